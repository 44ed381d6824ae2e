/* Pooling and norms of the CPU backend against their reference kernels. */
#include <luge/luge.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "cpu/isa.h"
#include "ops/attrs.h"
#include "tests/support/device.h"
#include "tests/support/kernel.h"
#include "tests/support/ops.h"

enum { TEXT = 200 };
static const luge_dtype reals[] = {LUGE_F32, LUGE_F64};
static double bound_of(luge_dtype d) { return d == LUGE_F64 ? 1e-13 : 4e-6; }

/* ---- pooling */

static const lg_pool2d_attrs pools[] = {
    {.kernel = {2, 2}, .stride = {2, 2}, .out = {4, 5}, .in_shape = {4, {3, 4, 8, 10}}},
    {.kernel = {2, 2}, .stride = {2, 2}, .out = {4, 5}, .in_shape = {4, {2, 37, 9, 11}}},
    {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .out = {4, 4}, .in_shape = {4, {2, 16, 7, 8}}, .include_padding = true},
    {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .out = {4, 4}, .in_shape = {4, {2, 3, 7, 8}}},
    {.kernel = {3, 2}, .stride = {1, 1}, .padding = {1, 0}, .out = {6, 6}, .in_shape = {4, {1, 70, 6, 7}}},
    {.kernel = {2, 2}, .stride = {3, 3}, .out = {3, 3}, .in_shape = {4, {2, 5, 8, 8}}},
    {.kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 1}, .out = {3, 3}, .in_shape = {4, {2, 5, 4, 4}}, .include_padding = true},
    {.kernel = {3, 3}, .stride = {2, 2}, .out = {3, 3}, .in_shape = {4, {2, 5, 6, 6}}, .include_padding = true}, /* hangs over the end */
    {.kernel = {1, 1}, .stride = {1, 1}, .out = {1, 1}, .in_shape = {4, {1, 1, 1, 1}}},
    {.adaptive = true, .out = {1, 1}, .in_shape = {4, {2, 20, 7, 7}}},
    {.adaptive = true, .out = {3, 5}, .in_shape = {4, {2, 3, 7, 4}}},
};

static void test_pooling(void **state)
{
    (void)state;
    for (int d = 0; d < 2; ++d)
        for (size_t i = 0; i < sizeof pools / sizeof *pools; ++i)
            for (int layout = 0; layout < LAYOUTS; ++layout) {
                LUGE_SCOPE("pool");
                const lg_pool2d_attrs *a = &pools[i];
                const luge_shape small = LUGE_SHAPE(a->in_shape.dim[0], a->in_shape.dim[1], a->out[0], a->out[1]);
                luge_tensor *x = random_layout(a->in_shape, reals[d], layout), *g = random_layout(small, reals[d], layout);
                char what[TEXT];
                snprintf(what, sizeof what, "%s pool %zu layout %d", luge_dtype_name(reals[d]), i, layout);
                check_kernel(&lg_op_avg_pool2d, LUGE_LIST(x), a, bound_of(reals[d]), what);
                check_kernel(&lg_op_avg_pool2d_backward, LUGE_LIST(g), a, bound_of(reals[d]), what);
                if (a->adaptive) continue;
                luge_tensor *out[LG_MAX_OUT];
                check_kernel(&lg_op_max_pool2d, LUGE_LIST(x), a, 0, what);
                assert_int_equal(run_kernel(&lg_op_max_pool2d, LUGE_LIST(x), a, out), LUGE_OK);
                check_kernel(&lg_op_max_pool2d_backward, LUGE_LIST(g, x, out[0]), a, bound_of(reals[d]), what);
            }
}

/* Equal elements, infinities and NaN: the gradient goes to one element of each window. */
static void test_max_pool_ties_NUM_07(void **state)
{
    (void)state;
    const lg_pool2d_attrs overlapping = {.kernel = {2, 2}, .stride = {1, 1}, .out = {2, 2}, .in_shape = {4, {1, 1, 3, 3}}};
    const double nan = (double)NAN, inf = HUGE_VAL;
    luge_tensor *inputs[] = {luge_ones(LUGE_SHAPE(1, 1, 3, 3), NULL),
                             LUGE_TENSOR(LUGE_SHAPE(1, 1, 3, 3), 1, nan, 2, nan, 3, nan, 0, 0, 4),
                             LUGE_TENSOR(LUGE_SHAPE(1, 1, 3, 3), -inf, -inf, -inf, -inf, -inf, inf, -inf, -inf, -inf)};
    luge_tensor *g = luge_randn(LUGE_SHAPE(1, 1, 2, 2), NULL), *out[LG_MAX_OUT];
    for (int i = 0; i < 3; ++i) {
        check_kernel(&lg_op_max_pool2d, LUGE_LIST(inputs[i]), &overlapping, 0, "ties");
        assert_int_equal(run_kernel(&lg_op_max_pool2d, LUGE_LIST(inputs[i]), &overlapping, out), LUGE_OK);
        check_kernel(&lg_op_max_pool2d_backward, LUGE_LIST(g, inputs[i], out[0]), &overlapping, 1e-6, "ties");
    }
    const lg_pool2d_attrs one = {.kernel = {2, 2}, .stride = {2, 2}, .out = {1, 1}, .in_shape = {4, {1, 1, 2, 2}}};
    luge_tensor *same = luge_full(LUGE_SHAPE(1, 1, 2, 2), 3, NULL), *unit = luge_ones(LUGE_SHAPE(1, 1, 1, 1), NULL);
    assert_int_equal(run_kernel(&lg_op_max_pool2d_backward, LUGE_LIST(unit, same, luge_full(LUGE_SHAPE(1, 1, 1, 1), 3, NULL)), &one, out), LUGE_OK);
    assert_values(out[0], 1, 0, 0, 0);
}

/* ---- norms */

static void check_batch_norm(luge_dtype dtype, luge_shape shape, int variant)
{
    LUGE_SCOPE("batch_norm");
    const lg_norm_attrs a = {.training = variant % 2, .momentum = 0.3, .eps = 1e-5};
    const int layout = variant % LAYOUTS;
    const luge_shape channels = LUGE_SHAPE(shape.dim[1]);
    luge_tensor *x = luge_add_scalar_(random_layout(shape, dtype, layout), 2), *g = random_layout(shape, dtype, variant / 2 % LAYOUTS);
    luge_tensor *mean = random_layout(channels, dtype, 2), *variance = luge_abs(random_layout(channels, dtype, 0));
    luge_tensor *weight = variant / 4 % 2 ? LUGE_NONE : random_layout(channels, dtype, 2);
    luge_tensor *bias = variant / 8 % 2 ? LUGE_NONE : random_layout(channels, dtype, 0);
    if (a.training && variant / 16 % 2) mean = variance = LUGE_NONE;
    char what[TEXT], text[LG_SHAPE_TEXT];
    snprintf(what, sizeof what, "batch_norm %s %s variant %d", luge_dtype_name(dtype), lg_shape_text(text, &shape), variant);
    check_kernel(&lg_op_batch_norm, LUGE_LIST(x, mean, variance, weight, bias), &a, bound_of(dtype), what);
    luge_tensor *out[LG_MAX_OUT];
    luge_tensor *running[] = {lg_is_none(mean) ? mean : luge_clone(mean), lg_is_none(variance) ? variance : luge_clone(variance)};
    assert_int_equal(run_kernel(&lg_op_batch_norm, LUGE_LIST(x, running[0], running[1], weight, bias), &a, out), LUGE_OK);
    check_kernel(&lg_op_batch_norm_backward, LUGE_LIST(g, x, weight, out[1], out[2]), &a, 2 * bound_of(dtype), what);
}

static void test_batch_norm(void **state)
{
    (void)state;
    const luge_shape shapes[] = {LUGE_SHAPE(4, 3), LUGE_SHAPE(37, 70), LUGE_SHAPE(2, 5, 3, 4), LUGE_SHAPE(3, 17, 8, 9), LUGE_SHAPE(2, 4, 6),
                                 LUGE_SHAPE(6, 33, 20, 21), LUGE_SHAPE(3, 1, 2, 2), LUGE_SHAPE(5, 1)};
    for (int d = 0; d < 2; ++d)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
            for (int variant = 0; variant < 40; ++variant) check_batch_norm(reals[d], shapes[i], variant);
    check_batch_norm(LUGE_F32, LUGE_SHAPE(0, 3), 0);
    check_batch_norm(LUGE_F32, LUGE_SHAPE(0, 3, 2, 2), 1);
}

static void test_batch_norm_cancellation_NUM_03(void **state)
{
    (void)state;
    const lg_norm_attrs a = {.training = true, .momentum = 0.1, .eps = 1e-5};
    luge_tensor *out[LG_MAX_OUT], *none = LUGE_NONE;
    for (int layout = 0; layout < 2; ++layout) { /* as columns and as planes */
        const luge_shape shape = layout ? LUGE_SHAPE(1, 1, 2, 1) : LUGE_SHAPE(2, 1);
        luge_tensor *x = luge_reshape(LUGE_TENSOR(LUGE_SHAPE(2), 1000.0, 1000.5), shape);
        assert_int_equal(run_kernel(&lg_op_batch_norm, LUGE_LIST(x, none, none, none, none), &a, out), LUGE_OK);
        double y[2];
        assert_int_equal(luge_to_array(out[0], y, LUGE_F64, 2), LUGE_OK);
        assert_near(y[0], -0.99992, 1e-5);
        assert_near(y[1], 0.99992, 1e-5);
        luge_tensor *same = luge_full(layout ? LUGE_SHAPE(2, 1, 50, 40) : LUGE_SHAPE(4000, 1), 1000.3, NULL);
        assert_int_equal(run_kernel(&lg_op_batch_norm, LUGE_LIST(same, none, none, none, none), &a, out), LUGE_OK);
        assert_near(luge_item(luge_max(luge_abs(out[0]), LUGE_ALL_AXES)), 0, 0);
    }
}

static void check_layer_norm(luge_dtype dtype, luge_shape shape, int axes, int variant)
{
    LUGE_SCOPE("layer_norm");
    const lg_norm_attrs a = {.axes = axes, .eps = 1e-5};
    luge_shape last = {.rank = axes};
    for (int i = 0; i < axes; ++i) last.dim[i] = shape.dim[shape.rank - axes + i];
    luge_tensor *x = luge_add_scalar(random_layout(shape, dtype, 0), -1), *g = random_layout(shape, dtype, 0);
    luge_tensor *weight = variant % 2 ? LUGE_NONE : random_layout(last, dtype, 0), *bias = variant / 2 % 2 ? LUGE_NONE : random_layout(last, dtype, 0);
    char what[TEXT], text[LG_SHAPE_TEXT];
    snprintf(what, sizeof what, "layer_norm %s %s axes %d variant %d", luge_dtype_name(dtype), lg_shape_text(text, &shape), axes, variant);
    check_kernel(&lg_op_layer_norm, LUGE_LIST(x, weight, bias), &a, bound_of(dtype), what);
    luge_tensor *out[LG_MAX_OUT];
    assert_int_equal(run_kernel(&lg_op_layer_norm, LUGE_LIST(x, weight, bias), &a, out), LUGE_OK);
    check_kernel(&lg_op_layer_norm_backward, LUGE_LIST(g, x, weight, out[1], out[2]), &a, 2 * bound_of(dtype), what);
}

static void test_layer_norm(void **state)
{
    (void)state;
    for (int d = 0; d < 2; ++d)
        for (int variant = 0; variant < 4; ++variant) {
            check_layer_norm(reals[d], LUGE_SHAPE(5), 1, variant);
            check_layer_norm(reals[d], LUGE_SHAPE(3, 64), 1, variant);
            check_layer_norm(reals[d], LUGE_SHAPE(7, 2, 131), 1, variant);
            check_layer_norm(reals[d], LUGE_SHAPE(4, 3, 5, 7), 3, variant);
            check_layer_norm(reals[d], LUGE_SHAPE(300, 200), 1, variant);
            check_layer_norm(reals[d], LUGE_SHAPE(0, 4), 1, variant);
        }
}

static void test_layer_norm_NUM_02(void **state)
{
    (void)state;
    const lg_norm_attrs a = {.axes = 1, .eps = 1e-5};
    luge_tensor *out[LG_MAX_OUT], *x = LUGE_TENSOR(LUGE_SHAPE(1, 4), 40000, 40001, 40002, 40003);
    assert_int_equal(run_kernel(&lg_op_layer_norm, LUGE_LIST(x, LUGE_NONE, LUGE_NONE), &a, out), LUGE_OK);
    static const double should[] = {-1.3416354, -0.4472118, 0.4472118, 1.3416354};
    double y[4];
    assert_int_equal(luge_to_array(out[0], y, LUGE_F64, 4), LUGE_OK);
    for (int i = 0; i < 4; ++i) assert_near(y[i], should[i], 1e-6);
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        OP_TEST(test_pooling), OP_TEST(test_max_pool_ties_NUM_07), OP_TEST(test_batch_norm),
        OP_TEST(test_batch_norm_cancellation_NUM_03), OP_TEST(test_layer_norm), OP_TEST(test_layer_norm_NUM_02),
    };
    int failed = 0;
    luge_device_usable(luge_device_cpu()); /* chooses one */
    for (int isa = 0; isa < LG_ISA_COUNT; ++isa)
        if (lg_cpu_set_isa((lg_isa)isa)) failed += cmocka_run_group_tests_name(lg_isa_name((lg_isa)isa), tests, NULL, NULL);
    return failed;
}
