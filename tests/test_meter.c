/* Meters: means, what they accept, and that they keep nothing alive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <luge/luge.h>
#include <math.h>

#include "core/fault.h"
#include "tests/support/expect.h"

static luge_live_counts baseline;

static int begin(void **state)
{
    (void)state;
    baseline = luge_live();
    return 0;
}

static int end(void **state)
{
    (void)state;
    lg_fault_set(LG_FAULT_HOST, 0);
    lg_fault_set(LG_FAULT_DEVICE, 0);
    luge_error_clear();
    const luge_live_counts now = luge_live();
    assert_int_equal(now.tensors, baseline.tensors);
    assert_int_equal(now.storages, baseline.storages);
    assert_int_equal(now.nodes, baseline.nodes);
    assert_int_equal(now.objects, baseline.objects);
    assert_int_equal(now.host_bytes, baseline.host_bytes);
    return 0;
}

static luge_tensor *scalar(double value, luge_dtype dtype)
{
    return luge_full(LUGE_SCALAR, value, &(luge_tensor_options){.dtype = dtype});
}

static void weighted_mean_of_every_float_type(void **state)
{
    (void)state;
    const luge_dtype dtype[] = {LUGE_F32, LUGE_F64, LUGE_F16, LUGE_BF16};
    luge_meter *m = luge_meter_create();
    for (int d = 0; d < 4; ++d) {
        LUGE_SCOPE("dtype");
        assert_true(isnan(luge_meter_mean(m)));
        assert_int_equal(luge_meter_add(m, scalar(0.5, dtype[d]), 3), LUGE_OK);
        assert_int_equal(luge_meter_add(m, scalar(2, dtype[d]), 1), LUGE_OK);
        assert_int_equal(luge_meter_add(m, scalar(NAN, dtype[d]), 0), LUGE_OK); /* weighs nothing */
        assert_true(luge_meter_mean(m) == 0.875);
        luge_meter_reset(m);
    }
    luge_meter_destroy(m);
}

/* 2^30 items, then single ones, which an f32 sum would lose. */
static void the_sum_is_f64(void **state)
{
    (void)state;
    luge_meter *m = luge_meter_create();
    LUGE_SCOPE("sum");
    luge_tensor *tenth = scalar(0.1, LUGE_F64);
    assert_int_equal(luge_meter_add(m, tenth, 1ll << 30), LUGE_OK);
    for (int i = 0; i < 1000; ++i) {
        LUGE_SCOPE("step");
        luge_meter_add(m, tenth, 1);
    }
    assert_near(luge_meter_mean(m), 0.1, 1e-13);
    assert_int_equal(luge_meter_add(m, scalar(1, LUGE_F32), 1), LUGE_OK); /* types may change */
    assert_near(luge_meter_mean(m), 0.1 + 0.9 / ((1ll << 30) + 1001), 1e-13);
    luge_meter_destroy(m);
}

/* Neither the graph of what is added, nor tensors of its own, stay. */
static void AGR_08_adding_keeps_no_graph_alive(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_meter *m = luge_meter_create();
    luge_tensor *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(4), NULL));
    luge_live_counts after_first = {0};
    for (int i = 0; i < 100; ++i) {
        {
            LUGE_SCOPE("step");
            luge_tensor *loss = luge_sum(luge_square(w), LUGE_ALL_AXES);
            assert_int_equal(luge_meter_add(m, loss, 2), LUGE_OK);
        }
        const luge_live_counts now = luge_live();
        if (i == 0) after_first = now;
        assert_int_equal(now.nodes, baseline.nodes);
        assert_int_equal(now.tensors, after_first.tensors);
        assert_int_equal(now.host_bytes, after_first.host_bytes);
    }
    assert_true(luge_meter_mean(m) == 4);
    luge_meter_destroy(m);
}

static void the_value_stays_usable(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_meter *m = luge_meter_create();
    luge_tensor *w = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(1, 1), 3));
    luge_tensor *loss = luge_square(w); /* [1, 1] */
    assert_int_equal(luge_meter_add(m, loss, 1), LUGE_OK);
    luge_meter_add(m, w, 1);
    assert_int_equal(luge_backward(loss), LUGE_OK);
    assert_true(luge_item(luge_tensor_grad(w)) == 6);
    assert_true(luge_meter_mean(m) == 6);

    luge_tensor *f64 = scalar(1, LUGE_F64); /* needs no conversion: still not the meter's own memory */
    luge_meter_reset(m);
    luge_meter_add(m, f64, 1);
    luge_meter_add(m, f64, 1);
    assert_true(luge_item(f64) == 1);
    {
        LUGE_AUTOCAST(LUGE_F16);
        luge_meter_add(m, scalar(1e6, LUGE_F32), 1); /* f16 would make it infinite */
    }
    assert_near(luge_meter_mean(m), (2 + 1e6) / 3, 1e-9);
    luge_meter_destroy(m);
}

static void wrong_values_are_refused_and_change_nothing(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_meter *m = luge_meter_create();
    luge_meter_add(m, scalar(2, LUGE_F32), 1);
    assert_int_equal(luge_meter_add(m, luge_zeros(LUGE_SHAPE(2), NULL), 1), LUGE_ERR_SHAPE);
    expect_error(LUGE_ERR_SHAPE, "[2]");
    assert_int_equal(luge_meter_add(m, scalar(1, LUGE_I64), 1), LUGE_ERR_DTYPE);
    expect_error(LUGE_ERR_DTYPE, "i64");
    assert_int_equal(luge_meter_add(m, scalar(1, LUGE_F32), -1), LUGE_ERR_ARGUMENT);
    expect_error(LUGE_ERR_ARGUMENT, "-1");
    assert_int_equal(luge_meter_add(m, scalar(1, LUGE_F32), INT64_MAX), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    assert_int_equal(luge_meter_add(m, NULL, 1), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    assert_int_equal(luge_meter_add(m, LUGE_NONE, 1), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    assert_int_equal(luge_meter_add(NULL, scalar(1, LUGE_F32), 1), LUGE_ERR_ARGUMENT);
    luge_error_clear();

    luge_fail(LUGE_ERR_IO, "before");
    assert_int_equal(luge_meter_add(m, scalar(1, LUGE_F32), 1), LUGE_ERR_IO);
    assert_null(luge_meter_create());
    assert_true(luge_meter_mean(m) == 2); /* reading works */
    luge_error_clear();

    assert_true(isnan(luge_meter_mean(NULL)));
    luge_meter_reset(NULL);
    luge_meter_destroy(NULL);
    luge_meter_destroy(m);
}

static void every_failure_of_memory_leaves_the_mean(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *five = scalar(5, LUGE_F32);
    const lg_fault_kind kinds[] = {LG_FAULT_HOST, LG_FAULT_DEVICE};
    for (int k = 0; k < 2; ++k) {
        luge_meter *m = luge_meter_create();
        luge_meter_add(m, scalar(2, LUGE_F32), 1);
        int failures = 0;
        for (bool hit = true; hit; ++failures) {
            lg_fault_set(kinds[k], failures + 1);
            luge_meter_add(m, five, 1);
            hit = lg_fault_hit(kinds[k]);
            lg_fault_set(kinds[k], 0);
            if (hit) {
                assert_int_equal(luge_error(), LUGE_ERR_OUT_OF_MEMORY);
                luge_error_clear();
            }
            assert_near(luge_meter_mean(m), hit ? 2 : 3.5, 0);
        }
        assert_true(failures > 1);
        luge_meter_destroy(m);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    luge_memory_get_stats(luge_device_cpu()); /* starts the library, which keeps some memory */
    const struct CMUnitTest tests[] = {
        TEST(weighted_mean_of_every_float_type),
        TEST(the_sum_is_f64),
        TEST(AGR_08_adding_keeps_no_graph_alive),
        TEST(the_value_stays_usable),
        TEST(wrong_values_are_refused_and_change_nothing),
        TEST(every_failure_of_memory_leaves_the_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
