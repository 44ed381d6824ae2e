/* Tensors made from nothing: constants, ranges, random numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/op.h"
#include "core/rng.h"
#include "cpu/isa.h"
#include "ops/attrs.h"
#include "ops/compose.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/kernel.h"
#include "tests/support/ops.h"

static const luge_dtype floats[] = {LUGE_F32, LUGE_F64, LUGE_F16, LUGE_BF16};

/* ---- kernels against the reference */

static void check_filler(const lg_op *op, luge_dtype dtype, int64_t n, const void *attrs, double bound)
{
    LUGE_SCOPE("filler");
    luge_tensor *like = luge_zeros(LUGE_SHAPE(n), &(luge_tensor_options){.dtype = dtype});
    char what[64];
    snprintf(what, sizeof what, "%s %s %d", op->name, luge_dtype_name(dtype), (int)n);
    check_kernel(op, LUGE_LIST(like), attrs, bound, what);
}

static void test_kernels(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 1023, 1025, 50001};
    const lg_rng_range rng = {.seed = 0x123456789abcdefu, .stream = 77, .first = 0xfffffff0u};
    for (int s = 0; s < 6; ++s) {
        for (int d = 0; d < 4; ++d) {
            double bound = floats[d] == LUGE_F64 ? 1e-14 : floats[d] == LUGE_F32 ? 1e-6 : floats[d] == LUGE_F16 ? 1e-3 : 8e-3;
            check_filler(&lg_op_uniform, floats[d], sizes[s], &(lg_random_attrs){0, 1, rng}, 0);
            check_filler(&lg_op_uniform, floats[d], sizes[s], &(lg_random_attrs){-3, 5, rng}, bound);
            check_filler(&lg_op_normal, floats[d], sizes[s], &(lg_random_attrs){0.5, 2, rng}, bound);
            check_filler(&lg_op_arange, floats[d], sizes[s], &(lg_range_attrs){-3, 0.25}, 0);
        }
        check_filler(&lg_op_arange, LUGE_I64, sizes[s], &(lg_range_attrs){-3, 7}, 0);
        check_filler(&lg_op_arange, LUGE_U8, sizes[s], &(lg_range_attrs){0, 1}, 0);
        check_filler(&lg_op_randint, LUGE_I64, sizes[s], &(lg_randint_attrs){-5, 1000003, rng}, 0);
        check_filler(&lg_op_randint, LUGE_I64, sizes[s], &(lg_randint_attrs){INT64_MIN, INT64_MAX, rng}, 0);
        check_filler(&lg_op_randperm, LUGE_I64, sizes[s], &(lg_randint_attrs){0, sizes[s], rng}, 0);
    }
}

/* Numbers belong to places, not to memory: the same in a tensor with another layout. */
static void test_same_numbers_in_any_layout(void **state)
{
    (void)state;
    luge_tensor *rows = luge_zeros(LUGE_SHAPE(5, 30), NULL), *columns = luge_transpose(luge_zeros(LUGE_SHAPE(30, 5), NULL), 0, 1);
    luge_seed(9);
    lg_uniform_(rows, 0, 1);
    luge_seed(9);
    lg_uniform_(columns, 0, 1);
    assert_true(same_bits(rows, luge_contiguous(columns)));
}

static void test_thread_count_does_not_matter(void **state)
{
    (void)state;
    int before = luge_num_threads();
    luge_tensor *t[2];
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(luge_set_num_threads(i == 0 ? 1 : 3), LUGE_OK);
        luge_seed(5);
        t[i] = luge_randn(LUGE_SHAPE(200003), NULL);
    }
    assert_true(same_bits(t[0], t[1]));
    assert_int_equal(luge_set_num_threads(before), LUGE_OK);
}

/* ---- distributions */

static void test_NUM_12_uniform_stays_below_1(void **state)
{
    (void)state;
    assert_true(lg_uniform_f32(0xFFFFFFFFu) == 0.99999994f);
    assert_true(lg_uniform_f32(0) == 0);
    assert_true(lg_uniform_f64(0xFFFFFFFFu, 0xFFFFFFFFu) < 1);
    for (int d = 0; d < 4; ++d) {
        LUGE_SCOPE("uniform");
        luge_tensor *u = luge_cast(luge_rand(LUGE_SHAPE(2000000), &(luge_tensor_options){.dtype = floats[d]}), LUGE_F64);
        double low = luge_item(luge_min(u, LUGE_ALL_AXES)), high = luge_item(luge_max(u, LUGE_ALL_AXES));
        assert_true(low >= 0 && low < 1e-3);
        assert_true(high < 1 && high > (floats[d] == LUGE_BF16 ? 0.995 : 0.999));
        double off_centre = floats[d] == LUGE_F16 ? 0x1p-12 : floats[d] == LUGE_BF16 ? 0x1p-9 : 0; /* values are cut */
        assert_near(luge_item(luge_mean(u, LUGE_ALL_AXES)), 0.5 - off_centre, 1e-3);
        assert_near(luge_item(luge_var(u, LUGE_ALL_AXES, 0)), 1.0 / 12, 1e-3);
    }
    /* Also where a float next to the upper end is what the product is rounded to. */
    luge_tensor *t = luge_zeros(LUGE_SHAPE(100000), NULL);
    lg_uniform_(t, 1, 1.0000002);
    assert_true(luge_item(luge_max(t, LUGE_ALL_AXES)) < (double)1.0000002f && luge_item(luge_min(t, LUGE_ALL_AXES)) >= 1);
}

static void test_NUM_13_normal_is_finite(void **state)
{
    (void)state;
    for (int d = 0; d < 4; ++d) {
        LUGE_SCOPE("normal");
        luge_tensor *z = luge_cast(luge_randn(LUGE_SHAPE(4000001), &(luge_tensor_options){.dtype = floats[d]}), LUGE_F64);
        double top = luge_item(luge_norm(z, INFINITY, LUGE_ALL_AXES));
        assert_true(top > 4.5 && top <= (floats[d] == LUGE_F64 ? 8.6 : 5.8));
        assert_near(luge_item(luge_mean(z, LUGE_ALL_AXES)), 0, 3e-3);
        assert_near(luge_item(luge_var(z, LUGE_ALL_AXES, 0)), 1, 5e-3);
        assert_near(luge_item(luge_mean(luge_square(luge_square(z)), LUGE_ALL_AXES)), 3, 0.03);
        double within = luge_item(luge_mean(luge_cast(luge_lt(luge_abs(z), luge_full(LUGE_SCALAR, 1, &(luge_tensor_options){.dtype = LUGE_F64})), LUGE_F64), LUGE_ALL_AXES));
        assert_near(within, 0.6827, floats[d] == LUGE_BF16 ? 2e-3 : 1e-3);
        /* Neighbours, which are made of the same two integers, are independent. */
        luge_tensor *pairs = luge_reshape(luge_slice(z, 0, 0, 4000000), LUGE_SHAPE(2000000, 2));
        luge_tensor *products = luge_mul(luge_select(pairs, 1, 0), luge_select(pairs, 1, 1));
        assert_near(luge_item(luge_mean(products, LUGE_ALL_AXES)), 0, 3e-3);
    }
}

/* The integers that would give log(0) and the like. */
static void test_NUM_13_extreme_integers(void **state)
{
    (void)state;
    for (uint64_t first = 0; first < 3; ++first) {
        const lg_random_attrs attrs = {0, 1, {.seed = 0, .stream = 0, .first = first}};
        luge_tensor *out[LG_MAX_OUT];
        assert_int_equal(run_kernel(&lg_op_normal, LUGE_LIST(luge_zeros(LUGE_SHAPE(4096), NULL)), &attrs, out), LUGE_OK);
        assert_true(isfinite(luge_item(luge_sum(out[0], LUGE_ALL_AXES))));
    }
    assert_true(isfinite(sqrtf(-2 * logf(1 - lg_uniform_f32(0xFFFFFFFFu)))));
    assert_true(sqrtf(-2 * logf(1 - lg_uniform_f32(0xFFFFFFFFu))) < 5.78f);
    assert_true(logf(1 - lg_uniform_f32(0)) == 0);
}

static void test_randint(void **state)
{
    (void)state;
    enum { N = 600000 };
    luge_tensor *t = luge_randint(-2, 4, LUGE_SHAPE(N));
    const int64_t *v = data_of(t, LUGE_I64);
    int count[6] = {0};
    for (int i = 0; i < N; ++i) {
        assert_true(v[i] >= -2 && v[i] < 4);
        ++count[v[i] + 2];
    }
    for (int i = 0; i < 6; ++i) assert_near(count[i], N / 6.0, 1500);
    assert_values(luge_randint(7, 8, LUGE_SHAPE(3)), 7, 7, 7);
    assert_refused(luge_randint(3, 3, LUGE_SHAPE(1)), LUGE_ERR_ARGUMENT, "randint: no integer lies in [3, 3)");
    assert_refused(luge_randint(0, 3, LUGE_SHAPE(-1)), LUGE_ERR_SHAPE, "");
    luge_tensor *wide = luge_randint(INT64_MIN, INT64_MAX, LUGE_SHAPE(1000));
    assert_near(luge_item(luge_mean(luge_cast(luge_lt(wide, luge_zeros_like(wide)), LUGE_F32), LUGE_ALL_AXES)), 0.5, 0.1);
}

static void test_randperm(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 3000; n = n * 3 + 1) {
        const int64_t *v = data_of(luge_randperm(n), LUGE_I64);
        char seen[3000] = {0};
        for (int64_t i = 0; i < n; ++i) {
            assert_true(v[i] >= 0 && v[i] < n && !seen[v[i]]);
            seen[v[i]] = 1;
        }
    }
    int at_front[5] = {0};
    for (int i = 0; i < 5000; ++i) {
        LUGE_SCOPE("draw");
        ++at_front[*(const int64_t *)data_of(luge_randperm(5), LUGE_I64)];
    }
    for (int i = 0; i < 5; ++i) assert_near(at_front[i], 1000, 130);
    assert_refused(luge_randperm(-1), LUGE_ERR_SHAPE, "");
}

static void test_seeds(void **state)
{
    (void)state;
    luge_seed(3);
    luge_tensor *a = luge_randn(LUGE_SHAPE(100), NULL), *b = luge_randn(LUGE_SHAPE(100), NULL);
    luge_seed(3);
    assert_true(same_bits(luge_randn(LUGE_SHAPE(100), NULL), a));
    assert_true(same_bits(luge_randn(LUGE_SHAPE(100), NULL), b));
    assert_false(same_bits(a, b));
    luge_seed(4);
    assert_false(same_bits(luge_randn(LUGE_SHAPE(100), NULL), a));
    /* A call that fails takes no numbers. */
    luge_seed(3);
    assert_refused(luge_randn(LUGE_SHAPE(10), &(luge_tensor_options){.dtype = LUGE_I64}), LUGE_ERR_DTYPE, "a float dtype is needed, not i64");
    assert_refused(luge_rand(LUGE_SHAPE(-1), NULL), LUGE_ERR_SHAPE, "");
    assert_true(same_bits(luge_randn(LUGE_SHAPE(100), NULL), a));
}

/* ---- the rest */

static void test_constants(void **state)
{
    (void)state;
    assert_values(luge_zeros(LUGE_SHAPE(2, 2), NULL), 0, 0, 0, 0);
    assert_values(luge_ones(LUGE_SHAPE(2), &(luge_tensor_options){.dtype = LUGE_BOOL}), 1, 1);
    assert_values(luge_full(LUGE_SCALAR, 0.1, NULL), (double)0.1f);
    assert_values(luge_full(LUGE_SHAPE(2), 65519, &(luge_tensor_options){.dtype = LUGE_F16}), 65504, 65504);
    assert_int_equal(luge_tensor_numel(luge_zeros(LUGE_SHAPE(3, 0), NULL)), 0);
    luge_tensor *leaf_ = luge_ones(LUGE_SHAPE(2), &(luge_tensor_options){.requires_grad = true});
    assert_true(luge_tensor_requires_grad(leaf_));
    luge_backward(luge_sum(luge_square(leaf_), LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(leaf_), 2, 2);
    luge_tensor *image = luge_channels_last(luge_ones(LUGE_SHAPE(2, 3, 4, 5), &(luge_tensor_options){.dtype = LUGE_F64}));
    assert_int_equal(luge_tensor_stride(luge_zeros_like(image), 1), 1);
    assert_int_equal(luge_tensor_dtype(luge_ones_like(image)), LUGE_F64);
    assert_near(luge_item(luge_sum(luge_ones_like(image), LUGE_ALL_AXES)), 120, 0);
    assert_false(luge_tensor_requires_grad(luge_zeros_like(leaf_)));
    assert_refused(luge_ones(LUGE_SHAPE(2), &(luge_tensor_options){.dtype = LUGE_I32, .requires_grad = true}), LUGE_ERR_DTYPE, "");
    assert_refused(luge_full(LUGE_SHAPE(2), 1, &(luge_tensor_options){.reserved = {1}}), LUGE_ERR_ARGUMENT, "reserved");
    assert_refused(luge_zeros(LUGE_SHAPE(INT64_MAX, 2), NULL), LUGE_ERR_SHAPE, "");
}

static void test_arange(void **state)
{
    (void)state;
    assert_values(luge_arange(0, 4, 1, NULL), 0, 1, 2, 3);
    assert_values(luge_arange(3, 0, -1, NULL), 3, 2, 1);
    assert_values(luge_arange(0, 1, 0.25, NULL), 0, 0.25, 0.5, 0.75);
    assert_values(luge_arange(-1, 2, 2, &(luge_tensor_options){.dtype = LUGE_I64}), -1, 1);
    assert_int_equal(luge_tensor_numel(luge_arange(5, 5, 1, NULL)), 0);
    assert_int_equal(luge_tensor_numel(luge_arange(0, 0.3, 0.1, NULL)), 3);
    assert_near(luge_item(luge_select(luge_arange(0, 3e7, 1, &(luge_tensor_options){.dtype = LUGE_I32}), 0, -1)), 29999999, 0);
    assert_refused(luge_arange(0, 1, 0, NULL), LUGE_ERR_ARGUMENT, "arange: from 0 one does not come to 1 in steps of 0");
    assert_refused(luge_arange(0, 1, -1, NULL), LUGE_ERR_ARGUMENT, "in steps of -1");
    assert_refused(luge_arange(0, (double)INFINITY, 1, NULL), LUGE_ERR_ARGUMENT, "arange");
    assert_refused(luge_arange(0, 1, (double)NAN, NULL), LUGE_ERR_ARGUMENT, "arange");
    assert_refused(luge_arange(0, 1e30, 1, NULL), LUGE_ERR_SHAPE, "are too many");
}

int main(void)
{
    const struct CMUnitTest kernels[] = {
        OP_TEST(test_kernels), OP_TEST(test_NUM_12_uniform_stays_below_1), OP_TEST(test_NUM_13_normal_is_finite),
    };
    const struct CMUnitTest ops[] = {
        OP_TEST(test_same_numbers_in_any_layout),
        OP_TEST(test_thread_count_does_not_matter),
        OP_TEST(test_NUM_13_extreme_integers),
        OP_TEST(test_randint),
        OP_TEST(test_randperm),
        OP_TEST(test_seeds),
        OP_TEST(test_constants),
        OP_TEST(test_arange),
    };
    luge_device_usable(luge_device_cpu()); /* chooses an instruction set */
    lg_isa best = lg_cpu_isa();
    int failed = cmocka_run_group_tests_name("ops", ops, NULL, NULL);
    for (int isa = on_cpu() ? 0 : (int)best; isa <= (int)best; ++isa)
        if (lg_cpu_set_isa((lg_isa)isa)) failed += cmocka_run_group_tests_name(lg_isa_name((lg_isa)isa), kernels, NULL, NULL);
    return failed;
}
