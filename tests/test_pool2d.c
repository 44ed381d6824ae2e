/* Pooling of images (ops/pool.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/support/compare.h"
#include "tests/support/ops.h"

static luge_tensor *counting(int64_t h, int64_t w)
{
    return luge_reshape(luge_arange(1, (double)(h * w) + 1, 1, NULL), LUGE_SHAPE(1, 1, h, w));
}

static void test_max_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = counting(4, 4);
    assert_text(luge_max_pool2d(x, 2, NULL), "[[[[6, 8], [14, 16]]]]");
    assert_text(luge_max_pool2d(x, 3, NULL), "[[[[11]]]]");
    assert_text(luge_max_pool2d(x, 3, &(luge_pool2d_options){.stride = 1}), "[[[[11, 12], [15, 16]]]]");
    assert_text(luge_max_pool2d(luge_neg(x), 3, &(luge_pool2d_options){.stride = 2, .padding = 1}),
                "[[[[-1, -2], [-5, -6]]]]");
    assert_text(luge_max_pool2d(x, 3, &(luge_pool2d_options){.stride = 2, .ceil_mode = true}),
                "[[[[11, 12], [15, 16]]]]");
    assert_text(luge_max_pool2d(counting(1, 3), 1, &(luge_pool2d_options){.stride = 2}), "[[[[1, 3]]]]");
}

static void test_avg_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = counting(4, 4);
    assert_text(luge_avg_pool2d(x, 2, NULL), "[[[[3.5, 5.5], [11.5, 13.5]]]]");
    luge_tensor *ones = luge_ones(LUGE_SHAPE(1, 1, 4, 4), NULL);
    /* 4 of 9 elements of the first window are inside; the last is cut at the padded edge */
    assert_text(luge_avg_pool2d(luge_mul_scalar(ones, 9), 3, &(luge_pool2d_options){.stride = 2, .padding = 1}),
                "[[[[4, 6], [6, 9]]]]");
    assert_text(luge_avg_pool2d(ones, 3, &(luge_pool2d_options){.stride = 2, .padding = 1, .exclude_padding = true}),
                "[[[[1, 1], [1, 1]]]]");
    assert_text(luge_avg_pool2d(luge_mul_scalar(ones, 36), 3,
                                &(luge_pool2d_options){.stride = 2, .padding = 1, .ceil_mode = true}),
                "[[[[16, 24, 12], [24, 36, 18], [12, 18, 9]]]]");
    assert_text(luge_avg_pool2d(luge_mul_scalar(ones, 36), 3, &(luge_pool2d_options){.stride = 3, .ceil_mode = true}),
                "[[[[36, 36], [36, 36]]]]");
}

/* With ceil_mode a window that would begin beyond the input is not there, one that hangs over is. */
static void test_ceil_mode_sizes(void **state)
{
    (void)state;
    static const struct {
        int64_t size, kernel, stride, padding, windows;
    } cases[] = {
        {5, 2, 2, 0, 3}, {4, 2, 2, 0, 2}, {3, 2, 2, 1, 2}, {4, 2, 3, 1, 2},
        {2, 3, 2, 0, 1}, {1, 2, 4, 0, 1}, {6, 3, 4, 1, 2}, {7, 2, 4, 1, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        LUGE_SCOPE("test");
        const luge_pool2d_options o = {.stride = cases[i].stride, .padding = cases[i].padding, .ceil_mode = true};
        luge_tensor *y = luge_max_pool2d(counting(cases[i].size, 8), cases[i].kernel, &o);
        if (luge_tensor_size(y, 2) != cases[i].windows)
            fail_msg("case %zu: %d windows: %s", i, (int)luge_tensor_size(y, 2), luge_error_text());
        assert_true(isfinite(luge_item(luge_sum(y, LUGE_ALL_AXES))));
    }
}

static void test_adaptive(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = counting(1, 5);
    assert_text(luge_adaptive_avg_pool2d(x, 1, 3), "[[[[1.5, 3, 4.5]]]]");
    assert_text(luge_adaptive_avg_pool2d(x, 1, 1), "[[[[3]]]]");
    assert_text(luge_adaptive_avg_pool2d(x, 2, 5), "[[[[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]]]");
    assert_text(luge_adaptive_avg_pool2d(counting(1, 2), 1, 3), "[[[[1, 1.5, 2]]]]");
}

static void test_layout_is_kept(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_randn(LUGE_SHAPE(2, 3, 4, 6), NULL), *last = luge_channels_last(x);
    luge_tensor *y = luge_max_pool2d(x, 2, NULL), *z = luge_max_pool2d(last, 2, NULL);
    assert_true(luge_tensor_is_contiguous(y));
    assert_true(luge_tensor_stride(z, 1) == 1);
    assert_close(z, y, 0, "max");
    assert_close(luge_max_pool2d(luge_transpose(luge_transpose(x, 2, 3), 2, 3), 2, NULL), y, 0, "turned");
    luge_tensor *a = luge_avg_pool2d(last, 2, NULL);
    assert_true(luge_tensor_stride(a, 1) == 1);
    assert_close(a, luge_avg_pool2d(x, 2, NULL), 1e-6, "mean");
    luge_requires_grad_(last);
    backward_of(luge_contiguous(luge_max_pool2d(last, 2, NULL)));
    assert_true(luge_tensor_stride(luge_tensor_grad(last), 1) == 1);

    /* The gradient of a global mean, which as a matrix has no layout. */
    luge_tensor *other = luge_requires_grad_(luge_channels_last(x));
    backward_of(luge_reshape(luge_adaptive_avg_pool2d(other, 1, 1), LUGE_SHAPE(2, 3)));
    assert_true(luge_tensor_stride(luge_tensor_grad(other), 1) == 1);
}

typedef struct pooling {
    int kind;
    int64_t size[2];
    luge_pool2d_options options;
} pooling;
static luge_tensor *pool(luge_list in, void *user)
{
    const pooling *p = user;
    if (p->kind == 0) return luge_max_pool2d(in.items[0], p->size[0], &p->options);
    if (p->kind == 1) return luge_avg_pool2d(in.items[0], p->size[0], &p->options);
    return luge_adaptive_avg_pool2d(in.items[0], p->size[0], p->size[1]);
}

static luge_tensor *pool_last(luge_list in, void *user)
{
    luge_tensor *x = luge_channels_last(in.items[0]);
    return pool(LUGE_LIST(x), user);
}

static void test_gradients(void **state)
{
    (void)state;
    static const pooling cases[] = {
        {0, {2}, {0}},
        {0, {3}, {.stride = 2, .padding = 1}},
        {0, {3}, {.stride = 1, .padding = 1}},
        {0, {3}, {.stride = 2, .ceil_mode = true}},
        {0, {2}, {.stride = 3, .padding = 1, .ceil_mode = true}},
        {1, {2}, {0}},
        {1, {3}, {.stride = 2, .padding = 1}},
        {1, {3}, {.stride = 2, .padding = 1, .exclude_padding = true}},
        {1, {3}, {.stride = 2, .padding = 1, .ceil_mode = true}},
        {1, {2}, {.stride = 1}},
        {2, {3, 2}, {0}},
        {2, {1, 1}, {0}},
        {2, {7, 9}, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        LUGE_SCOPE("test");
        pooling p = cases[i];
        luge_tensor *x = leaf(LUGE_SHAPE(2, 2, 5, 4));
        assert_gradients(pool, LUGE_LIST(x), &p, "pooling");
        assert_gradients(pool_last, LUGE_LIST(x), &p, "channels-last pooling");
    }
}

static void test_NUM_07_ties_share_one_gradient(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(luge_full(LUGE_SHAPE(1, 1, 2, 2), 3, NULL));
    luge_backward(luge_max_pool2d(x, 2, NULL));
    assert_text(luge_tensor_grad(x), "[[[[1, 0], [0, 0]]]]");
    luge_tensor *low = luge_requires_grad_(luge_full(LUGE_SHAPE(1, 1, 2, 2), -INFINITY, NULL));
    luge_backward(luge_max_pool2d(low, 2, NULL));
    assert_text(luge_tensor_grad(low), "[[[[1, 0], [0, 0]]]]");
    /* the form used for second derivatives chooses the same element */
    luge_tensor *tie = luge_requires_grad_(
        LUGE_TENSOR(LUGE_SHAPE(1, 1, 2, 4), 1, 5, -INFINITY, -INFINITY, 5, 5, -INFINITY, -INFINITY));
    luge_tensor *g = luge_grad(luge_sum(luge_max_pool2d(tie, 2, NULL), LUGE_ALL_AXES), tie,
                               &(luge_backward_options){.create_graph = true});
    assert_text(g, "[[[[0, 1, 1, 0], [0, 0, 0, 0]]]]");
}

static void test_nan_comes_through(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(1, 1, 2, 2), 1, NAN, 7, NAN));
    luge_tensor *y = luge_max_pool2d(x, 2, NULL);
    assert_text(y, "[[[[nan]]]]");
    luge_backward(y);
    assert_text(luge_tensor_grad(x), "[[[[0, 1], [0, 0]]]]");
}

static void test_NUM_09_no_window_without_data(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_ones(LUGE_SHAPE(1, 1, 1, 1), NULL);
    const luge_pool2d_options o = {.stride = 3, .padding = 3};
    assert_refused(luge_max_pool2d(x, 3, &o), LUGE_ERR_ARGUMENT,
                   "max_pool2d: padding is 3, but must lie between 0 and half the kernel, 1");
    assert_refused(luge_avg_pool2d(x, 3, &o), LUGE_ERR_ARGUMENT, "avg_pool2d: padding is 3");
    assert_text(luge_max_pool2d(x, 3, &(luge_pool2d_options){.padding = 1}), "[[[[1]]]]");
}

static void test_halves(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    /* the sum of 65520 ones and of 4 x 40000 is not finite in f16, the mean is */
    luge_tensor *x = luge_full(LUGE_SHAPE(1, 1, 2, 2), 40000, &(luge_tensor_options){.dtype = LUGE_F16});
    assert_text(luge_avg_pool2d(x, 2, NULL), "[[[[40000]]]]");
    assert_text(luge_max_pool2d(x, 2, NULL), "[[[[40000]]]]");
}

static void test_empty_batch(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(luge_zeros(LUGE_SHAPE(0, 3, 4, 4), NULL));
    luge_tensor *y = luge_add(luge_max_pool2d(x, 2, NULL), luge_avg_pool2d(x, 2, NULL));
    assert_true(luge_tensor_size(y, 0) == 0 && luge_tensor_size(y, 3) == 2);
    assert_int_equal(luge_backward(luge_sum(y, LUGE_ALL_AXES)), LUGE_OK);
    assert_int_equal(luge_tensor_size(luge_tensor_grad(x), 2), 4);
}

static void test_wrong_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_zeros(LUGE_SHAPE(2, 3, 4, 4), NULL);
    assert_refused(luge_max_pool2d(NULL, 2, NULL), LUGE_ERR_ARGUMENT, "max_pool2d: the input");
    assert_refused(luge_avg_pool2d(LUGE_NONE, 2, NULL), LUGE_ERR_ARGUMENT, "avg_pool2d: the input");
    assert_refused(luge_adaptive_avg_pool2d(NULL, 2, 2), LUGE_ERR_ARGUMENT, "adaptive_avg_pool2d: the input");
    assert_refused(luge_max_pool2d(luge_select(x, 0, 0), 2, NULL), LUGE_ERR_SHAPE,
                   "max_pool2d: the input is [3, 4, 4]");
    assert_refused(luge_max_pool2d(luge_zeros(LUGE_SHAPE(2, 3, 0, 4), NULL), 2, NULL), LUGE_ERR_SHAPE,
                   "nothing but the batch empty");
    assert_refused(luge_max_pool2d(x, 0, NULL), LUGE_ERR_ARGUMENT, "max_pool2d: the kernel is 0");
    assert_refused(luge_max_pool2d(x, -2, NULL), LUGE_ERR_ARGUMENT, "max_pool2d: the kernel is -2");
    assert_refused(luge_max_pool2d(x, INT64_MAX, NULL), LUGE_ERR_ARGUMENT, "max_pool2d: the kernel is 9223372036854775807");
    assert_refused(luge_avg_pool2d(x, 2, &(luge_pool2d_options){.stride = -1}), LUGE_ERR_ARGUMENT, "stride -1");
    assert_refused(luge_avg_pool2d(x, 2, &(luge_pool2d_options){.padding = -1}), LUGE_ERR_ARGUMENT,
                   "avg_pool2d: padding is -1");
    assert_refused(luge_avg_pool2d(x, 2, &(luge_pool2d_options){.reserved = {1}}), LUGE_ERR_ARGUMENT,
                   "luge_pool2d_options");
    assert_refused(luge_avg_pool2d(x, 5, NULL), LUGE_ERR_SHAPE,
                   "avg_pool2d: the kernel spans 5 rows, the padded input has 4");
    assert_refused(luge_max_pool2d(luge_cast(x, LUGE_I64), 2, NULL), LUGE_ERR_DTYPE, "max_pool2d: the input is i64");
    assert_refused(luge_adaptive_avg_pool2d(x, 0, 2), LUGE_ERR_ARGUMENT,
                   "adaptive_avg_pool2d: the output cannot be 0 x 2");
    assert_refused(luge_adaptive_avg_pool2d(x, 2, -1), LUGE_ERR_ARGUMENT, "cannot be 2 x -1");
    assert_refused(luge_adaptive_avg_pool2d(luge_cast(x, LUGE_BOOL), 2, 2), LUGE_ERR_DTYPE, "the input is bool");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_max_values),
        OP_TEST(test_avg_values),
        OP_TEST(test_ceil_mode_sizes),
        OP_TEST(test_adaptive),
        OP_TEST(test_layout_is_kept),
        OP_TEST(test_gradients),
        OP_TEST(test_NUM_07_ties_share_one_gradient),
        OP_TEST(test_nan_comes_through),
        OP_TEST(test_NUM_09_no_window_without_data),
        OP_TEST(test_halves),
        OP_TEST(test_empty_batch),
        OP_TEST(test_wrong_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
