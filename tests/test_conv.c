/* conv2d (ops/conv.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/compare.h"
#include "tests/support/ops.h"

static luge_tensor *counting(luge_shape shape, int64_t n)
{
    return luge_reshape(luge_arange(1, (double)n + 1, 1, NULL), shape);
}

static void test_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = counting(LUGE_SHAPE(1, 1, 3, 3), 9), *w = LUGE_TENSOR(LUGE_SHAPE(1, 1, 2, 2), 1, 2, 3, 4);
    assert_text(luge_conv2d(x, w, LUGE_NONE, NULL), "[[[[37, 47], [67, 77]]]]");
    assert_text(luge_conv2d(x, w, LUGE_TENSOR(LUGE_SHAPE(1), 0.5), &(luge_conv2d_options){.stride = 2}),
                "[[[[37.5]]]]");
    assert_text(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.stride = 2, .padding = 1}),
                "[[[[4, 18], [36, 77]]]]");
    assert_text(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.dilation = 2}), "[[[[64]]]]");
    assert_text(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.stride_hw = {1, 2}, .padding_hw = {0, 1}}),
                "[[[[18, 47], [36, 77]]]]");
    /* two channels in, two out, and the same as two groups */
    luge_tensor *two = counting(LUGE_SHAPE(1, 2, 1, 2), 4);
    assert_text(luge_conv2d(two, LUGE_TENSOR(LUGE_SHAPE(2, 2, 1, 1), 1, 10, 2, 20), LUGE_NONE, NULL),
                "[[[[31, 42]], [[62, 84]]]]");
    assert_text(
        luge_conv2d(two, LUGE_TENSOR(LUGE_SHAPE(2, 1, 1, 1), 1, 10), LUGE_NONE, &(luge_conv2d_options){.groups = 2}),
        "[[[[1, 2]], [[30, 40]]]]");
}

/* 'same' with an even span: the longer part of the padding comes after. */
static void test_padding_same(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(1, 1, 1, 3), 1, 2, 3);
    const luge_conv2d_options same = {.padding = LUGE_SAME};
    assert_text(luge_conv2d(x, LUGE_TENSOR(LUGE_SHAPE(1, 1, 1, 2), 1, 10), LUGE_NONE, &same), "[[[[21, 32, 3]]]]");
    assert_text(luge_conv2d(x, LUGE_TENSOR(LUGE_SHAPE(1, 1, 1, 3), 1, 10, 100), LUGE_NONE, &same),
                "[[[[210, 321, 32]]]]");
    assert_text(luge_conv2d(x, LUGE_TENSOR(LUGE_SHAPE(1, 1, 1, 2), 1, 10), LUGE_NONE,
                            &(luge_conv2d_options){.padding_hw = {0, LUGE_SAME}, .dilation = 2, .stride_hw = {3, 1}}),
                "[[[[20, 31, 2]]]]");
    assert_refused(luge_conv2d(x, LUGE_TENSOR(LUGE_SHAPE(1, 1, 1, 2), 1, 10), LUGE_NONE,
                               &(luge_conv2d_options){.padding = LUGE_SAME, .stride = 2}),
                   LUGE_ERR_ARGUMENT, "conv2d: padding LUGE_SAME needs a stride of 1, not 2");
}

static void test_layouts(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_randn(LUGE_SHAPE(2, 3, 5, 4), NULL), *w = luge_randn(LUGE_SHAPE(4, 3, 3, 2), NULL);
    luge_tensor *y = luge_conv2d(x, w, LUGE_NONE, NULL);
    assert_true(luge_tensor_stride(y, 1) == 1 && luge_tensor_stride(y, 3) == 4 && luge_tensor_stride(y, 2) == 12);
    luge_tensor *turned = luge_transpose(luge_contiguous(luge_transpose(x, 1, 3)), 1, 3);
    luge_tensor *turned_w = luge_transpose(luge_contiguous(luge_transpose(w, 0, 2)), 0, 2);
    assert_close(luge_conv2d(luge_channels_last(x), w, LUGE_NONE, NULL), y, 1e-6, "channels-last input");
    assert_close(luge_conv2d(turned, w, LUGE_NONE, NULL), y, 1e-6, "turned input");
    assert_close(luge_conv2d(x, turned_w, LUGE_NONE, NULL), y, 1e-6, "turned weight");
    assert_close(luge_conv2d(x, luge_channels_last(w), LUGE_NONE, NULL), y, 1e-6, "channels-last weight");
}

/* A second formulation: the sum over kernel places of shifted inputs. */
static void test_against_shifted_sums(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    const luge_tensor_options f64 = {.dtype = LUGE_F64};
    luge_tensor *x = luge_randn(LUGE_SHAPE(2, 3, 6, 7), &f64), *w = luge_randn(LUGE_SHAPE(4, 3, 3, 2), &f64);
    luge_tensor *padded = luge_pad(x, LUGE_SHAPE(0, 0, 1, 2), LUGE_SHAPE(0, 0, 1, 2), 0);
    luge_tensor *sum = luge_zeros(LUGE_SHAPE(2, 4, 4, 10), &f64);
    for (int r = 0; r < 3; ++r) {
        for (int s = 0; s < 2; ++s) {
            luge_tensor *part = luge_slice(luge_slice(padded, 2, 2 * r, 2 * r + 4), 3, s, s + 10);
            luge_tensor *at = luge_select(luge_select(w, 3, s), 2, r); /* [K, C] */
            sum = luge_add(
                sum, luge_reshape(luge_matmul(at, luge_reshape(part, LUGE_SHAPE(2, 3, 40))), LUGE_SHAPE(2, 4, 4, 10)));
        }
    }
    assert_close(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.padding_hw = {1, 2}, .dilation_hw = {2, 1}}), sum,
                 1e-12, "shifted sums");
}

static luge_tensor *convolve(luge_list in, void *user)
{
    return luge_conv2d(in.items[0], in.items[1], in.count > 2 ? in.items[2] : LUGE_NONE, user);
}

static void test_gradients(void **state)
{
    (void)state;
    static const struct {
        luge_shape x, w;
        luge_conv2d_options options;
    } cases[] = {
        {{4, {2, 3, 4, 4}}, {4, {2, 3, 3, 3}}, {.padding = 1}},
        {{4, {1, 2, 5, 4}}, {4, {2, 2, 2, 2}}, {.stride = 2}},
        {{4, {1, 2, 5, 5}}, {4, {3, 2, 2, 2}}, {.dilation = 2, .padding = 1}},
        {{4, {2, 4, 3, 3}}, {4, {2, 2, 2, 2}}, {.groups = 2, .stride = 1, .padding = 1}},
        {{4, {1, 3, 4, 3}}, {4, {3, 1, 3, 2}}, {.groups = 3, .padding = LUGE_SAME}},
        {{4, {1, 2, 3, 3}}, {4, {4, 1, 2, 2}}, {.groups = 2, .padding = LUGE_SAME, .dilation = 3}},
        {{4, {1, 1, 4, 6}}, {4, {2, 1, 2, 3}}, {.stride_hw = {1, 3}, .padding_hw = {2, 0}, .dilation_hw = {2, 1}}},
        {{4, {1, 2, 3, 3}}, {4, {2, 2, 1, 1}}, {.stride = 2}},
        {{4, {1, 1, 2, 2}}, {4, {1, 1, 2, 2}}, {.padding = 3, .stride = 3}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        LUGE_SCOPE("test");
        luge_conv2d_options options = cases[i].options;
        luge_tensor *x = leaf(cases[i].x), *w = leaf(cases[i].w);
        assert_gradients(convolve, LUGE_LIST(x, w, leaf(LUGE_SHAPE(cases[i].w.dim[0]))), &options, "conv2d");
        assert_gradients(convolve, LUGE_LIST(x, w), &options, "conv2d without bias");
    }
}

static void test_AGR_05_empty_batch(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = luge_requires_grad_(luge_randn(LUGE_SHAPE(4, 3, 3, 3), NULL));
    luge_tensor *b = luge_requires_grad_(luge_randn(LUGE_SHAPE(4), NULL));
    luge_tensor *x = luge_requires_grad_(luge_zeros(LUGE_SHAPE(0, 3, 8, 8), NULL));
    luge_tensor *y = luge_conv2d(x, w, b, NULL);
    luge_shape s = luge_tensor_shape(y);
    assert_true(s.rank == 4 && s.dim[0] == 0 && s.dim[1] == 4 && s.dim[2] == 6 && s.dim[3] == 6);
    {
        LUGE_SCOPE("poison"); /* what is not written would be NaN */
        for (int i = 0; i < 8; ++i) luge_full(LUGE_SHAPE(i < 4 ? 108 : 4), NAN, NULL);
    }
    assert_int_equal(luge_backward(luge_sum(y, LUGE_ALL_AXES)), LUGE_OK);
    assert_text(luge_tensor_grad(b), "[0, 0, 0, 0]");
    assert_near(luge_item(luge_max(luge_abs(luge_tensor_grad(w)), LUGE_ALL_AXES)), 0, 0);
    assert_int_equal(luge_tensor_size(luge_tensor_grad(x), 0), 0);
}

/* A parameter's gradient is row-major, an image's channels-last. */
static void test_gradient_layouts(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = luge_requires_grad_(luge_randn(LUGE_SHAPE(4, 3, 3, 3), NULL));
    luge_tensor *x = luge_requires_grad_(luge_channels_last(luge_randn(LUGE_SHAPE(2, 3, 8, 8), NULL)));
    backward_of(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.padding = 1}));
    assert_true(luge_tensor_is_contiguous(luge_tensor_grad(w)));
    assert_int_equal(luge_tensor_stride(luge_tensor_grad(x), 1), 1);
}

static void test_halves(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_ones(LUGE_SHAPE(1, 513, 2, 2), &(luge_tensor_options){.dtype = LUGE_F16});
    luge_tensor *w = luge_ones(LUGE_SHAPE(1, 513, 2, 2), &(luge_tensor_options){.dtype = LUGE_F16});
    assert_text(luge_conv2d(x, w, LUGE_NONE, NULL), "[[[[2052]]]]"); /* 2048 + 1 is 2048 in f16 */
    LUGE_AUTOCAST(LUGE_BF16);
    assert_int_equal(luge_tensor_dtype(luge_conv2d(luge_cast(x, LUGE_F32), luge_cast(w, LUGE_F32), LUGE_NONE, NULL)),
                     LUGE_BF16);
}

static void test_wrong_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_zeros(LUGE_SHAPE(2, 3, 4, 4), NULL), *w = luge_zeros(LUGE_SHAPE(6, 3, 3, 3), NULL);
    assert_refused(luge_conv2d(NULL, w, LUGE_NONE, NULL), LUGE_ERR_ARGUMENT, "conv2d: the input");
    assert_refused(luge_conv2d(x, NULL, LUGE_NONE, NULL), LUGE_ERR_ARGUMENT, "conv2d: the weight");
    assert_refused(luge_conv2d(x, w, NULL, NULL), LUGE_ERR_ARGUMENT, "conv2d: the bias");
    assert_refused(luge_conv2d(LUGE_NONE, w, LUGE_NONE, NULL), LUGE_ERR_ARGUMENT, "conv2d: the input");
    assert_refused(luge_conv2d(luge_select(x, 0, 0), w, LUGE_NONE, NULL), LUGE_ERR_SHAPE,
                   "conv2d: the input is [3, 4, 4]");
    assert_refused(luge_conv2d(x, luge_select(w, 0, 0), LUGE_NONE, NULL), LUGE_ERR_SHAPE,
                   "conv2d: the weight is [3, 3, 3]");
    assert_refused(luge_conv2d(luge_zeros(LUGE_SHAPE(2, 4, 4, 4), NULL), w, LUGE_NONE, NULL), LUGE_ERR_SHAPE,
                   "conv2d: input has 4 channels, the weight takes 3 x 1 groups");
    assert_refused(
        luge_conv2d(luge_zeros(LUGE_SHAPE(2, 12, 4, 4), NULL), w, LUGE_NONE, &(luge_conv2d_options){.groups = 4}),
        LUGE_ERR_SHAPE, "conv2d: 6 output channels do not divide into 4 groups");
    assert_refused(luge_conv2d(luge_zeros(LUGE_SHAPE(2, 0, 4, 4), NULL), w, LUGE_NONE, NULL), LUGE_ERR_SHAPE,
                   "only the batch may be empty");
    assert_refused(luge_conv2d(x, luge_zeros(LUGE_SHAPE(6, 3, 5, 3), NULL), LUGE_NONE, NULL), LUGE_ERR_SHAPE,
                   "conv2d: the kernel spans 5 rows, the padded input has 4");
    assert_refused(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.dilation = 2}), LUGE_ERR_SHAPE, "spans 5 rows");
    assert_refused(luge_conv2d(x, w, luge_zeros(LUGE_SHAPE(5), NULL), NULL), LUGE_ERR_SHAPE,
                   "conv2d: the bias is [5], but must be [6]");
    assert_refused(luge_conv2d(x, luge_cast(w, LUGE_F64), LUGE_NONE, NULL), LUGE_ERR_DTYPE,
                   "conv2d: the weight is f64 but the input is f32");
    assert_refused(luge_conv2d(luge_cast(x, LUGE_U8), w, LUGE_NONE, NULL), LUGE_ERR_DTYPE, "conv2d: the input is u8");
    assert_refused(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.stride = -1}), LUGE_ERR_ARGUMENT,
                   "conv2d: stride is -1, but must lie between 1 and 2147483647");
    assert_refused(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.padding = -2}), LUGE_ERR_ARGUMENT,
                   "conv2d: padding is -2, but must lie between -1 (LUGE_SAME) and");
    assert_refused(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.dilation_hw = {1, -1}}), LUGE_ERR_ARGUMENT,
                   "conv2d: dilation_hw[1] is -1, but");
    assert_refused(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.groups = -1}), LUGE_ERR_ARGUMENT,
                   "conv2d: groups is -1");
    assert_refused(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.padding = INT64_MAX}), LUGE_ERR_ARGUMENT,
                   "conv2d: padding is 9223372036854775807");
    assert_refused(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.reserved = {0, 0, 1}}), LUGE_ERR_ARGUMENT,
                   "luge_conv2d_options");
    assert_refused(luge_conv2d(x, w, LUGE_NONE, &(luge_conv2d_options){.padding = INT32_MAX}), LUGE_ERR_SHAPE,
                   "too large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_values),           OP_TEST(test_padding_same),
        OP_TEST(test_layouts),          OP_TEST(test_against_shifted_sums),
        OP_TEST(test_gradients),        OP_TEST(test_AGR_05_empty_batch),
        OP_TEST(test_gradient_layouts), OP_TEST(test_halves),
        OP_TEST(test_wrong_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
