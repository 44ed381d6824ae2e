/* Datasets of tensors, and the random numbers that samples draw. Datasets of callbacks are tested with
 * the loader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <luge/luge.h>
#include <math.h>

#include "core/thread.h"
#include "tests/support/device.h"
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
    luge_error_clear();
    lg_scope_close_all(lg_self()); /* copies that were looked at */
    const luge_live_counts now = luge_live();
    assert_int_equal(now.tensors, baseline.tensors);
    assert_int_equal(now.storages, baseline.storages);
    assert_int_equal(now.objects, baseline.objects);
    assert_int_equal(now.host_bytes, baseline.host_bytes);
    return 0;
}

/* ---- random numbers */

static luge_status draw_get(int64_t index, luge_rng *rng, luge_sample *s, void *user)
{
    (void)index;
    (void)user;
    double *v = luge_sample_field(s, "input", LUGE_F64, LUGE_SHAPE(3));
    if (v == NULL) return luge_error();
    v[0] = luge_rng_uniform(rng, -2, 3);
    v[1] = luge_rng_normal(rng);
    v[2] = (double)luge_rng_below(rng, 6);
    return LUGE_OK;
}

static void distributions_of_a_samples_numbers(void **state)
{
    (void)state;
    enum { N = 20000 };
    luge_loader *loader = luge_loader_create(
        luge_dataset_create(&(luge_dataset_class){.size = N, .get = draw_get}), N, NULL);
    luge_batch b;
    assert_true(luge_loader_next(loader, &b));
    assert_true(luge_is_none(b.target));
    const double *v = data_of(b.input, LUGE_F64);
    double uniform = 0, normal = 0, squares = 0;
    int dice[6] = {0};
    for (int i = 0; i < N; ++i, v += 3) {
        assert_true(v[0] >= -2 && v[0] < 3);
        uniform += v[0] / N;
        normal += v[1] / N;
        squares += v[1] * v[1] / N;
        ++dice[(int)v[2]];
    }
    assert_near(uniform, 0.5, 5 * 1.4434 / 141.4); /* five standard errors */
    assert_near(normal, 0, 5 / 141.4);
    assert_near(squares, 1, 5 * 1.4142 / 141.4);
    for (int i = 0; i < 6; ++i) assert_in_range(dice[i], N / 6 - 5 * 53, N / 6 + 5 * 53);
    luge_loader_destroy(loader);
}

static luge_status misdraw_get(int64_t index, luge_rng *rng, luge_sample *s, void *user)
{
    (void)s;
    (void)user;
    assert_true(luge_rng_uniform(rng, 4, 4) == 4);
    if (index == 0) assert_true(isnan(luge_rng_uniform(rng, 1, 0)));
    if (index == 1) assert_true(isnan(luge_rng_uniform(rng, 0, INFINITY)));
    if (index == 2) assert_int_equal(luge_rng_below(rng, 0), 0);
    if (index == 3) assert_int_equal(luge_rng_below(NULL, 7), 0);
    if (index == 4) assert_true(isnan(luge_rng_normal(NULL)));
    return LUGE_OK;
}

static void wrong_draws_are_errors(void **state)
{
    (void)state;
    for (int64_t first = 0; first < 5; ++first) {
        luge_loader *loader = luge_loader_create(
            luge_dataset_create(&(luge_dataset_class){.size = 5, .get = misdraw_get}), 1, NULL);
        luge_batch b;
        assert_false(luge_loader_next(loader, &b));
        expect_error(LUGE_ERR_ARGUMENT, "sample 0: luge_rng_uniform");
        luge_loader_destroy(loader);
    }
    luge_rng_below(NULL, 7);
    expect_error(LUGE_ERR_ARGUMENT, "NULL");
    luge_rng_normal(NULL);
    expect_error(LUGE_ERR_ARGUMENT, "NULL");
}

/* ---- datasets of tensors */

static void tensors_of_every_dtype_come_row_by_row(void **state)
{
    (void)state;
    const luge_dtype dtype[] = {LUGE_F32, LUGE_F64, LUGE_F16, LUGE_BF16, LUGE_I64, LUGE_I32, LUGE_U8, LUGE_BOOL};
    const uint64_t seed = 2;
    for (int d = 0; d < 8; ++d) {
        LUGE_SCOPE("dtype");
        luge_tensor *rows = luge_cast(luge_reshape(luge_arange(0, 30, 1, NULL), LUGE_SHAPE(5, 3, 2)), dtype[d]);
        luge_loader *loader = luge_loader_create(luge_dataset_tensors(rows, luge_arange(0, 5, 1, NULL)), 2,
                                                 &(luge_loader_options){.shuffle = true, .seed = &seed});
        int64_t n = 0;
        luge_batch b;
        while (luge_loader_next(loader, &b)) {
            assert_int_equal(luge_tensor_dtype(b.input), dtype[d]);
            assert_int_equal(luge_tensor_shape(b.input).rank, 3);
            assert_int_equal(luge_tensor_shape(b.target).rank, 1);
            double got[12], want[6];
            assert_int_equal(luge_to_array(b.input, got, LUGE_F64, b.size * 6), LUGE_OK);
            for (int64_t i = 0; i < b.size; ++i, ++n) {
                const int64_t row = (int64_t)((const float *)data_of(b.target, LUGE_F32))[i];
                assert_int_equal(luge_to_array(luge_select(rows, 0, row), want, LUGE_F64, 6), LUGE_OK);
                for (int k = 0; k < 6; ++k) assert_true(got[6 * i + k] == want[k]);
            }
        }
        assert_int_equal(n, 5);
        luge_loader_destroy(loader);
    }
}

static void tensors_of_other_layouts_and_from_graphs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *t = luge_requires_grad_(luge_reshape(luge_arange(0, 6, 1, NULL), LUGE_SHAPE(2, 3)));
    luge_loader *loader = luge_loader_create(luge_dataset_tensors(luge_transpose(t, 0, 1), LUGE_NONE), 3, NULL);
    luge_batch b;
    assert_true(luge_loader_next(loader, &b));
    assert_false(luge_tensor_requires_grad(b.input));
    const float want[] = {0, 3, 1, 4, 2, 5};
    const float *got = data_of(b.input, LUGE_F32);
    for (int i = 0; i < 6; ++i) assert_true(got[i] == want[i]);
    luge_loader_destroy(loader);

    /* rows without elements */
    loader = luge_loader_create(luge_dataset_tensors(luge_zeros(LUGE_SHAPE(4, 0), NULL), LUGE_NONE), 3, NULL);
    assert_true(luge_loader_next(loader, &b));
    assert_int_equal(luge_tensor_size(b.input, 0), 3);
    assert_int_equal(luge_tensor_numel(b.input), 0);
    luge_loader_destroy(loader);
    loader = luge_loader_create(luge_dataset_tensors(luge_zeros(LUGE_SHAPE(0, 4), NULL), LUGE_NONE), 3, NULL);
    assert_false(luge_loader_next(loader, &b));
    assert_true(luge_ok());
    luge_loader_destroy(loader);
}

static void wrong_tensors_are_refused(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *five = luge_zeros(LUGE_SHAPE(5, 2), NULL), *four = luge_zeros(LUGE_SHAPE(4), NULL);
    assert_null(luge_dataset_tensors(five, four));
    expect_error(LUGE_ERR_SHAPE, "5 inputs but 4 targets");
    assert_null(luge_dataset_tensors(luge_zeros(LUGE_SCALAR, NULL), LUGE_NONE));
    expect_error(LUGE_ERR_SHAPE, "scalar");
    assert_null(luge_dataset_tensors(five, luge_zeros(LUGE_SCALAR, NULL)));
    expect_error(LUGE_ERR_SHAPE, "scalar");
    assert_null(luge_dataset_tensors(NULL, LUGE_NONE));
    expect_error(LUGE_ERR_ARGUMENT, "NULL");
    assert_null(luge_dataset_tensors(five, NULL));
    expect_error(LUGE_ERR_ARGUMENT, "NULL");
    assert_null(luge_dataset_tensors(LUGE_NONE, LUGE_NONE));
    expect_error(LUGE_ERR_ARGUMENT, "LUGE_NONE");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    luge_memory_get_stats(luge_device_cpu()); /* starts the library, which keeps some memory */
    const struct CMUnitTest tests[] = {
        TEST(distributions_of_a_samples_numbers),
        TEST(wrong_draws_are_errors),
        TEST(tensors_of_every_dtype_come_row_by_row),
        TEST(tensors_of_other_layouts_and_from_graphs),
        TEST(wrong_tensors_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
