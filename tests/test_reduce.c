/* Reductions: kernels of every instruction set against the reference over all sets of axes and layouts,
 * precision, special numbers, dtypes, gradients. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/op.h"
#include "cpu/isa.h"
#include "ops/attrs.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/kernel.h"
#include "tests/support/ops.h"

static const double nan_ = (double)NAN, inf = (double)INFINITY;

/* ---- kernels */

typedef struct kind {
    const lg_op *op;
    double number;
    bool floats_only, one_axis, needs_elements;
} kind;

static const kind kinds[] = {
    {&lg_op_sum, 0, false, false, false}, {&lg_op_mean, 0, true, false, false},
    {&lg_op_max, 0, false, false, true},  {&lg_op_min, 0, false, false, true},
    {&lg_op_var, 1, true, false, false},  {&lg_op_norm, 1, true, false, false},
    {&lg_op_norm, 2, true, false, false}, {&lg_op_norm, 3, true, false, false},
    {&lg_op_norm, INFINITY, true, false, false}, {&lg_op_argmax, 0, false, true, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static double bound_of(luge_dtype dtype)
{
    static const double bound[] = {[LUGE_F32] = 2e-6, [LUGE_F64] = 1e-11, [LUGE_F16] = 1.1e-3, [LUGE_BF16] = 8.5e-3};
    return lg_is_float(dtype) ? bound[dtype] : 0;
}

static bool is_single(uint32_t mask) { return mask != 0 && (mask & (mask - 1)) == 0; }

/* Every kind over every set of axes. */
static void check_axes(luge_tensor *x, const char *what)
{
    const luge_shape s = luge_tensor_shape(x);
    for (int k = 0; k < KINDS; ++k)
        for (uint32_t mask = 1; mask < 1u << s.rank; ++mask) {
            if (kinds[k].floats_only && !lg_is_float(x->dtype)) continue;
            if (kinds[k].one_axis && !is_single(mask)) continue;
            bool empty = false, no_results = false;
            for (int i = 0; i < s.rank; ++i) {
                empty = empty || (s.dim[i] == 0 && (mask >> i & 1u));
                no_results = no_results || (s.dim[i] == 0 && !(mask >> i & 1u));
            }
            if (no_results || (empty && kinds[k].needs_elements)) continue;
            LUGE_SCOPE("axes");
            const lg_reduce_attrs attrs = {.mask = mask, .keepdim = mask % 2 == 0, .number = kinds[k].number};
            char text[128];
            snprintf(text, sizeof text, "%s(%g) over %#x of %s %s", kinds[k].op->name, kinds[k].number, mask,
                     luge_dtype_name(x->dtype), what);
            check_kernel(kinds[k].op, LUGE_LIST(x), &attrs, bound_of(x->dtype), text);
        }
}

/* Small whole numbers for integers, so that they differ and repeat. */
static luge_tensor *numbers(luge_shape shape, luge_dtype dtype, int layout)
{
    if (lg_is_float(dtype)) return random_layout(shape, dtype, layout);
    luge_tensor *t = luge_mul_scalar(random_layout(shape, LUGE_F32, layout), 40);
    luge_tensor *u = luge_cast(t, dtype);
    return layout == 1 ? luge_transpose(luge_contiguous(luge_transpose(u, -1, -2)), -1, -2) : u;
}

static void test_kernels(void **state)
{
    (void)state;
    static const luge_dtype dtypes[] = {LUGE_F32, LUGE_F64, LUGE_F16, LUGE_BF16, LUGE_I64, LUGE_I32, LUGE_U8, LUGE_BOOL};
    /* Lengths around those of lanes and tiles, short and long rows, both inside and outside. */
    static const luge_shape shapes[] = {{1, {1}},          {1, {77}},      {2, {3, 4500}}, {2, {700, 3}},
                                        {3, {5, 6, 7}},    {3, {4, 70, 33}}, {4, {2, 17, 3, 5}}, {2, {65, 520}}};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; ++d)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; ++s)
            for (int layout = 0; layout < LAYOUTS; ++layout) {
                if ((layout == 4 && shapes[s].rank != 4) || (layout == 1 && shapes[s].rank == 1)) continue;
                if (layout > 1 && layout < 4 && d > 2) continue;
                LUGE_SCOPE("kernels");
                char what[48];
                snprintf(what, sizeof what, "shape %d layout %d", (int)s, layout);
                check_axes(numbers(shapes[s], dtypes[d], layout), what);
            }
}

static void test_expanded_and_empty(void **state)
{
    (void)state;
    luge_tensor *row = luge_randn(LUGE_SHAPE(1, 9), NULL);
    check_axes(luge_expand(row, LUGE_SHAPE(600, 9)), "expanded");
    check_axes(luge_expand(luge_randn(LUGE_SHAPE(7, 1), NULL), LUGE_SHAPE(7, 100)), "expanded inside");
    check_axes(luge_zeros(LUGE_SHAPE(3, 0, 2), NULL), "empty");
    check_axes(luge_zeros(LUGE_SHAPE(3, 0), &(luge_tensor_options){.dtype = LUGE_I64}), "empty");
}

/* Cut into parts: few results of many elements, whichever axes go. */
static void test_parts(void **state)
{
    (void)state;
    check_axes(luge_randn(LUGE_SHAPE(100003), NULL), "long");
    check_axes(luge_randn(LUGE_SHAPE(7000, 12), NULL), "tall");
    check_axes(luge_randn(LUGE_SHAPE(12, 7000), NULL), "wide");
    check_axes(luge_channels_last(luge_randn(LUGE_SHAPE(3, 16, 40, 40), NULL)), "image");
    check_axes(luge_cast(luge_mul_scalar(luge_randn(LUGE_SHAPE(70001), NULL), 9), LUGE_I32), "long");
    check_axes(luge_randn(LUGE_SHAPE(70001), &(luge_tensor_options){.dtype = LUGE_F16}), "long");
}

/* NaN wins wherever it is, and the first of equal ones is found, in lanes and in the rest. */
static void test_nan_and_ties_in_any_place(void **state)
{
    (void)state;
    for (int n = 1; n < 200; n += 7)
        for (int at = 0; at < n; at += 5) {
            LUGE_SCOPE("places");
            luge_tensor *x = luge_full(LUGE_SHAPE(n), -3, NULL);
            luge_fill_(luge_select(x, 0, at), 2);
            luge_fill_(luge_select(x, 0, n - 1), 2);
            assert_near(luge_item(luge_argmax(x, 0)), at, 0);
            assert_near(luge_item(luge_max(x, LUGE_ALL_AXES)), 2, 0);
            luge_fill_(luge_select(x, 0, at), nan_);
            assert_near(luge_item(luge_argmax(x, 0)), at, 0);
            assert_true(isnan(luge_item(luge_max(x, LUGE_ALL_AXES))));
            assert_true(isnan(luge_item(luge_min(x, LUGE_ALL_AXES))));
            assert_true(isnan(luge_item(luge_norm(x, INFINITY, LUGE_ALL_AXES))));
            luge_fill_(x, -inf);
            assert_near(luge_item(luge_argmax(x, 0)), 0, 0);
            assert_true(luge_item(luge_max(x, LUGE_ALL_AXES)) == -inf);
        }
    luge_tensor *columns = LUGE_TENSOR(LUGE_SHAPE(3, 4), 1, nan_, -inf, 5, 1, 3, -inf, 5, 2, nan_, -inf, 5);
    assert_values(luge_argmax(columns, 0), 2, 0, 0, 0);
    assert_values(luge_max(columns, LUGE_AXES(0)), 2, nan_, -inf, 5);
    assert_values(luge_argmax(columns, 1), 1, 3, 1);
}

/* ---- precision */

static void test_NUM_08_half_precision_reductions(void **state)
{
    (void)state;
    const luge_tensor_options f16 = {.dtype = LUGE_F16};
    assert_values(luge_mean(luge_ones(LUGE_SHAPE(65520), &f16), LUGE_ALL_AXES), 1);
    assert_values(luge_mean(luge_full(LUGE_SHAPE(3), 40000, &f16), LUGE_ALL_AXES), 40000);
    luge_tensor *cancels = luge_cat(LUGE_LIST(luge_full(LUGE_SHAPE(4), 32000, &f16), luge_full(LUGE_SHAPE(4), -32000, &f16)), 0);
    assert_values(luge_sum(cancels, LUGE_ALL_AXES), 0);
    assert_values(luge_mean(luge_ones(LUGE_SHAPE(65520, 2), &f16), LUGE_AXES(0)), 1, 1);
    assert_values(luge_mean(luge_full(LUGE_SHAPE(2, 3), 40000, &f16), LUGE_AXES(1)), 40000, 40000);
    assert_values(luge_sum(luge_transpose(luge_reshape(cancels, LUGE_SHAPE(2, 4)), 0, 1), LUGE_AXES(1)), 0, 0, 0, 0);
    assert_int_equal(luge_tensor_dtype(luge_sum(cancels, LUGE_ALL_AXES)), LUGE_F16);
    /* The gradient too: 4096 equal ones share 1. */
    luge_tensor *x = luge_requires_grad_(luge_ones(LUGE_SHAPE(131072), &f16));
    luge_backward(luge_max(x, LUGE_ALL_AXES));
    assert_near(luge_item(luge_select(luge_tensor_grad(x), 0, 7)), 0x1p-17, 0);
}

static void test_long_sums_are_precise(void **state)
{
    (void)state;
    luge_tensor *ones = luge_expand(luge_ones(LUGE_SHAPE(1), NULL), LUGE_SHAPE(10000000));
    assert_values(luge_mean(ones, LUGE_ALL_AXES), 1);
    luge_tensor *tenths = luge_full(LUGE_SHAPE(1000000), 0.1, NULL);
    assert_near(luge_item(luge_sum(tenths, LUGE_ALL_AXES)), 1e6 * (double)0.1f, 0.01);
    assert_near(luge_item(luge_sum(luge_reshape(tenths, LUGE_SHAPE(1000000, 1)), LUGE_AXES(0))), 1e6 * (double)0.1f, 0.01);
    /* A large mean does not swallow the variance. */
    luge_tensor *far = LUGE_TENSOR(LUGE_SHAPE(4), 40000, 40001, 40002, 40003);
    assert_values(luge_var(far, LUGE_ALL_AXES, 0), 1.25);
}

/* In one pass around the first elements, which may be as far from the others as they like. */
static void check_variance(double first, double mean, luge_dtype dtype)
{
    enum { N = 70000 };
    luge_tensor *x = luge_full(LUGE_SHAPE(2, N), mean, &(luge_tensor_options){.dtype = dtype});
    luge_add_scalar_(luge_slice(x, 1, 0, N / 2), 1);
    luge_fill_(luge_slice(x, 1, 0, 1), first);
    double center = (first + (mean + 1) * (N / 2 - 1) + mean * (N / 2)) / N;
    double squares = (first - center) * (first - center) + (mean + 1 - center) * (mean + 1 - center) * (N / 2 - 1) +
                     (mean - center) * (mean - center) * (N / 2);
    const double allowed = squares / N * (dtype != LUGE_F32 ? 1e-10 : on_cpu() ? 1e-7 : 3e-6); /* a GPU adds up in f32 */
    for (int turned = 0; turned < 2; ++turned) {
        luge_tensor *y = turned ? luge_contiguous(luge_transpose(x, 0, 1)) : x;
        luge_tensor *rows = luge_var(y, LUGE_AXES(turned ? 0 : 1), 0);
        assert_near(luge_item(luge_select(rows, 0, 0)), squares / N, allowed);
        assert_near(luge_item(luge_select(rows, 0, 1)), squares / N, allowed);
        assert_near(luge_item(luge_var(y, LUGE_ALL_AXES, 0)), squares / N, allowed);
    }
}

static void test_variance_is_precise(void **state)
{
    (void)state;
    check_variance(0, 0, LUGE_F32);
    check_variance(8388608, 8388608, LUGE_F32); /* a large mean does not swallow it */
    check_variance(1e10, 0, LUGE_F32);
    check_variance(0, 8388608, LUGE_F32);
    check_variance(1e9, -1e9, LUGE_F64);
    assert_values(luge_var(luge_full(LUGE_SHAPE(1000), 0.1, NULL), LUGE_ALL_AXES, 0), 0);
    assert_values(luge_var(LUGE_TENSOR(LUGE_SHAPE(2, 2), inf, 1, 1, nan_), LUGE_AXES(1), 0), nan_, nan_);
    assert_values(luge_var(LUGE_TENSOR(LUGE_SHAPE(2, 2), inf, 1, -inf, inf), LUGE_AXES(0), 0), nan_, nan_);
}

static void test_norm_does_not_overflow(void **state)
{
    (void)state;
    assert_near(luge_item(luge_norm(LUGE_TENSOR(LUGE_SHAPE(2), 3e30, 4e30), 2, LUGE_ALL_AXES)), 5e30, 1e24);
    assert_near(luge_item(luge_norm(LUGE_TENSOR(LUGE_SHAPE(2), 3e-30, 4e-30), 2, LUGE_ALL_AXES)), 5e-30, 1e-36);
    const luge_tensor_options f64 = {.dtype = LUGE_F64};
    assert_near(luge_item(luge_norm(luge_full(LUGE_SHAPE(4), 1e300, &f64), 2, LUGE_ALL_AXES)) / 2e300, 1, 1e-15);
    assert_near(luge_item(luge_norm(luge_full(LUGE_SHAPE(4), 1e-300, &f64), 2, LUGE_ALL_AXES)) / 2e-300, 1, 1e-15);
    assert_near(luge_item(luge_norm(luge_full(LUGE_SHAPE(8), 1e30, NULL), 3, LUGE_ALL_AXES)) / 2e30, 1, 1e-6);
    assert_near(luge_item(luge_norm(luge_full(LUGE_SHAPE(3), 300, &(luge_tensor_options){.dtype = LUGE_F16}), 2, LUGE_ALL_AXES)), 519.5, 0.5);
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(3), 1, -inf, 2), *y = LUGE_TENSOR(LUGE_SHAPE(3), 1, nan_, 2);
    assert_values(luge_norm(x, 2, LUGE_ALL_AXES), inf);
    assert_values(luge_norm(x, 3, LUGE_ALL_AXES), inf);
    assert_values(luge_norm(y, 2, LUGE_ALL_AXES), nan_);
    assert_values(luge_norm(y, 3, LUGE_ALL_AXES), nan_);
    assert_values(luge_norm(luge_zeros(LUGE_SHAPE(3), NULL), 3, LUGE_ALL_AXES), 0);
    assert_values(luge_norm(luge_cast(x, LUGE_F64), 2, LUGE_ALL_AXES), inf);
    assert_values(luge_norm(luge_cast(y, LUGE_F64), 2, LUGE_ALL_AXES), nan_);
}

static void test_NUM_14_variance_of_one_element(void **state)
{
    (void)state;
    luge_tensor *one = LUGE_TENSOR(LUGE_SHAPE(1), 5), *two = LUGE_TENSOR(LUGE_SHAPE(2), 1, 3);
    assert_values(luge_var(one, LUGE_ALL_AXES, 1), nan_);
    assert_values(luge_var(one, LUGE_ALL_AXES, 0), 0);
    assert_values(luge_var(two, LUGE_ALL_AXES, 1), 2);
    assert_values(luge_var(two, LUGE_ALL_AXES, 0), 1);
    assert_values(luge_var(two, LUGE_ALL_AXES, 5), nan_);
}

/* ---- what ops take and give */

static void test_shapes(void **state)
{
    (void)state;
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    assert_values(luge_sum(x, LUGE_ALL_AXES), 21);
    assert_int_equal(luge_tensor_shape(luge_sum(x, LUGE_ALL_AXES)).rank, 0);
    assert_values(luge_sum(x, LUGE_AXES(0)), 5, 7, 9);
    assert_values(luge_sum(x, LUGE_AXES(-1)), 6, 15);
    assert_values(luge_sum(x, LUGE_AXES(1, 0)), 21);
    assert_int_equal(luge_tensor_shape(luge_sum(x, LUGE_AXES_KEEPDIM(1))).rank, 2);
    assert_int_equal(luge_tensor_size(luge_sum(x, LUGE_AXES_KEEPDIM(1)), 1), 1);
    assert_values(luge_sum(luge_transpose(x, 0, 1), LUGE_AXES(0)), 6, 15);
    luge_tensor *scalar = luge_full(LUGE_SCALAR, 4, NULL);
    assert_values(luge_sum(scalar, LUGE_ALL_AXES), 4);
    assert_values(luge_mean(scalar, LUGE_AXES(-1)), 4);
    assert_values(luge_argmax(scalar, 0), 0);
    assert_values(luge_var(scalar, LUGE_ALL_AXES, 0), 0);
    assert_refused(luge_sum(x, LUGE_AXES(2)), LUGE_ERR_ARGUMENT, "sum: there is no axis 2; the input is [2, 3]");
    assert_refused(luge_max(x, LUGE_AXES(0, -2)), LUGE_ERR_ARGUMENT, "named twice");
    assert_refused(luge_argmax(x, 2), LUGE_ERR_ARGUMENT, "argmax");
}

static void test_no_elements(void **state)
{
    (void)state;
    luge_tensor *x = luge_zeros(LUGE_SHAPE(2, 0), NULL);
    assert_values(luge_sum(x, LUGE_AXES(1)), 0, 0);
    assert_values(luge_mean(x, LUGE_AXES(1)), nan_, nan_);
    assert_values(luge_var(x, LUGE_AXES(1), 0), nan_, nan_);
    assert_values(luge_norm(x, 2, LUGE_AXES(1)), 0, 0);
    assert_int_equal(luge_tensor_numel(luge_max(x, LUGE_AXES(0))), 0);
    assert_refused(luge_max(x, LUGE_AXES(1)), LUGE_ERR_SHAPE, "max: there are no elements to choose from in [2, 0]");
    assert_refused(luge_min(x, LUGE_ALL_AXES), LUGE_ERR_SHAPE, "no elements");
    assert_refused(luge_argmax(x, 1), LUGE_ERR_SHAPE, "no elements");
    luge_tensor *y = luge_requires_grad_(luge_zeros(LUGE_SHAPE(2, 0), NULL));
    assert_int_equal(luge_backward(luge_sum(luge_mean(y, LUGE_AXES(1)), LUGE_ALL_AXES)), LUGE_OK);
    assert_int_equal(luge_tensor_numel(luge_tensor_grad(y)), 0);
}

static void test_dtypes(void **state)
{
    (void)state;
    luge_tensor *i = luge_cast(LUGE_TENSOR(LUGE_SHAPE(3), 200, 100, -7), LUGE_I32);
    luge_tensor *u = luge_full(LUGE_SHAPE(1000), 255, &(luge_tensor_options){.dtype = LUGE_U8});
    luge_tensor *b = luge_cast(LUGE_TENSOR(LUGE_SHAPE(3), 1, 0, 1), LUGE_BOOL);
    assert_int_equal(luge_tensor_dtype(luge_sum(i, LUGE_ALL_AXES)), LUGE_I64);
    assert_values(luge_sum(u, LUGE_ALL_AXES), 255000);
    assert_values(luge_sum(b, LUGE_ALL_AXES), 2);
    assert_int_equal(luge_tensor_dtype(luge_max(i, LUGE_ALL_AXES)), LUGE_I32);
    assert_values(luge_max(i, LUGE_ALL_AXES), 200);
    assert_values(luge_min(i, LUGE_ALL_AXES), -7);
    assert_int_equal(luge_tensor_dtype(luge_max(b, LUGE_ALL_AXES)), LUGE_BOOL);
    assert_values(luge_max(b, LUGE_ALL_AXES), 1);
    assert_values(luge_min(b, LUGE_ALL_AXES), 0);
    assert_values(luge_argmax(luge_neg(i), 0), 2);
    /* Past what f64 holds */
    int64_t large[] = {INT64_C(9007199254740993), 2};
    luge_tensor *l = luge_from_array(large, LUGE_I64, LUGE_SHAPE(2));
    int64_t sum;
    assert_int_equal(luge_to_array(luge_sum(l, LUGE_ALL_AXES), &sum, LUGE_I64, 1), LUGE_OK);
    assert_true(sum == INT64_C(9007199254740995));
    assert_refused(luge_mean(i, LUGE_ALL_AXES), LUGE_ERR_DTYPE, "mean");
    assert_refused(luge_var(b, LUGE_ALL_AXES, 1), LUGE_ERR_DTYPE, "var");
    assert_refused(luge_norm(u, 2, LUGE_ALL_AXES), LUGE_ERR_DTYPE, "norm");
    assert_refused(luge_norm(LUGE_TENSOR(LUGE_SHAPE(1), 1), 0, LUGE_ALL_AXES), LUGE_ERR_ARGUMENT, "p must be greater than 0");
    assert_refused(luge_norm(LUGE_TENSOR(LUGE_SHAPE(1), 1), nan_, LUGE_ALL_AXES), LUGE_ERR_ARGUMENT, "p must be greater than 0");
}

/* ---- gradients */

static luge_tensor *gradient_of(luge_tensor *y, luge_tensor *x) { return luge_grad(y, x, NULL); }

static void test_NUM_01_norm_of_a_zero_vector(void **state)
{
    (void)state;
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 0, 0);
    assert_values(gradient_of(luge_norm(x, 2, LUGE_ALL_AXES), x), 0, 0);
    assert_values(gradient_of(luge_square(luge_norm(x, 2, LUGE_ALL_AXES)), x), 0, 0);
    assert_values(gradient_of(luge_norm(x, 1, LUGE_ALL_AXES), x), 0, 0);
    assert_values(gradient_of(luge_norm(x, 3, LUGE_ALL_AXES), x), 0, 0);
    assert_values(gradient_of(luge_norm(x, 0.5, LUGE_ALL_AXES), x), 0, 0);
    assert_values(gradient_of(luge_norm(x, INFINITY, LUGE_ALL_AXES), x), 0, 0);
    luge_tensor *rows = LEAF(LUGE_SHAPE(2, 2), 0, 0, 3, 4);
    assert_values(gradient_of(luge_sum(luge_norm(rows, 2, LUGE_AXES(1)), LUGE_ALL_AXES), rows), 0, 0, (double)0.6f, (double)0.8f);
    /* Honest: the slope of the root is infinite there. */
    assert_values(gradient_of(luge_sum(luge_sqrt(x), LUGE_ALL_AXES), x), inf, inf);
}

static void test_NUM_07_ties_share_the_gradient(void **state)
{
    (void)state;
    luge_tensor *x = LEAF(LUGE_SHAPE(3), 2, 2, 1);
    assert_values(gradient_of(luge_max(x, LUGE_ALL_AXES), x), 0.5, 0.5, 0);
    assert_values(gradient_of(luge_min(x, LUGE_ALL_AXES), x), 0, 0, 1);
    assert_values(gradient_of(luge_norm(x, INFINITY, LUGE_ALL_AXES), x), 0.5, 0.5, 0);
    luge_tensor *y = LEAF(LUGE_SHAPE(2, 2), 1, 1, 3, 1);
    assert_values(gradient_of(luge_sum(luge_max(y, LUGE_AXES(1)), LUGE_ALL_AXES), y), 0.5, 0.5, 1, 0);
    assert_values(gradient_of(luge_sum(luge_max(y, LUGE_AXES_KEEPDIM(0)), LUGE_ALL_AXES), y), 0, 0.5, 1, 0.5);
}

typedef struct gradient_case {
    int which;
    double p;
    luge_axes axes;
} gradient_case;

static luge_tensor *reduction(luge_list in, void *user)
{
    const gradient_case *c = user;
    switch (c->which) {
    case 0: return luge_sum(in.items[0], c->axes);
    case 1: return luge_mean(in.items[0], c->axes);
    case 2: return luge_max(in.items[0], c->axes);
    case 3: return luge_min(in.items[0], c->axes);
    case 4: return luge_var(in.items[0], c->axes, (int64_t)c->p);
    default: return luge_norm(in.items[0], c->p, c->axes);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    const luge_axes axes[] = {LUGE_ALL_AXES, LUGE_AXES(1), LUGE_AXES_KEEPDIM(0, 2)};
    static const double ps[] = {0.5, 1, 1.5, 2, 3, INFINITY};
    for (int a = 0; a < 3; ++a) {
        LUGE_SCOPE("gradients");
        luge_tensor *t = constant(LUGE_SHAPE(2, 3, 4)); /* away from 0, where powers bend */
        luge_tensor *x = luge_requires_grad_(luge_add(t, luge_mul_scalar(luge_div(t, luge_abs(t)), 0.5)));
        for (int which = 0; which < 5; ++which)
            assert_gradients(reduction, LUGE_LIST(x), &(gradient_case){which, a % 2, axes[a]}, "reduction");
        for (int p = 0; p < 6; ++p)
            assert_gradients(reduction, LUGE_LIST(x), &(gradient_case){5, ps[p], axes[a]}, "norm");
    }
}

int main(void)
{
    const struct CMUnitTest kernels[] = {
        OP_TEST(test_kernels),
        OP_TEST(test_expanded_and_empty),
        OP_TEST(test_parts),
        OP_TEST(test_nan_and_ties_in_any_place),
        OP_TEST(test_NUM_08_half_precision_reductions),
        OP_TEST(test_long_sums_are_precise),
        OP_TEST(test_variance_is_precise),
        OP_TEST(test_norm_does_not_overflow),
        OP_TEST(test_NUM_14_variance_of_one_element),
    };
    const struct CMUnitTest ops[] = {
        OP_TEST(test_shapes),
        OP_TEST(test_no_elements),
        OP_TEST(test_dtypes),
        OP_TEST(test_NUM_01_norm_of_a_zero_vector),
        OP_TEST(test_NUM_07_ties_share_the_gradient),
        OP_TEST(test_gradients),
    };
    luge_device_usable(luge_device_cpu()); /* chooses an instruction set */
    lg_isa best = lg_cpu_isa();
    int failed = cmocka_run_group_tests_name("ops", ops, NULL, NULL);
    for (int isa = on_cpu() ? 0 : (int)best; isa <= (int)best; ++isa)
        if (lg_cpu_set_isa((lg_isa)isa)) failed += cmocka_run_group_tests_name(lg_isa_name((lg_isa)isa), kernels, NULL, NULL);
    return failed;
}
