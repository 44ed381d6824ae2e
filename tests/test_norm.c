/* batch_norm and layer_norm (ops/norm.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/support/compare.h"
#include "tests/support/ops.h"

static const luge_batch_norm_options training = {.training = true};

static void test_batch_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = F64(LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 10, 3, 30));
    luge_tensor *mean = F64(LUGE_TENSOR(LUGE_SHAPE(2), 0, 0)), *var = F64(LUGE_TENSOR(LUGE_SHAPE(2), 1, 1));
    luge_tensor *w = F64(LUGE_TENSOR(LUGE_SHAPE(2), 2, 1)), *b = F64(LUGE_TENSOR(LUGE_SHAPE(2), 0.5, -1));
    luge_tensor *y = luge_batch_norm(x, mean, var, w, b, &training);
    double v[4];
    assert_int_equal(luge_to_array(y, v, LUGE_F64, 4), LUGE_OK);
    const double small = 1 / sqrt(1 + 1e-5), large = 10 / sqrt(100 + 1e-5);
    assert_near(v[0], -2 * small + 0.5, 1e-14);
    assert_near(v[1], -large - 1, 1e-14);
    assert_near(v[2], 2 * small + 0.5, 1e-14);
    assert_near(v[3], large - 1, 1e-14);
    /* momentum 0.1; the running variance is the unbiased one: 2 and 200 */
    assert_text(mean, "[0.2, 2]");
    assert_text(var, "[1.1, 20.9]");
    assert_int_equal(luge_tensor_version(mean), 1);

    luge_tensor *z = luge_batch_norm(x, F64(LUGE_TENSOR(LUGE_SHAPE(2), 1, 10)), F64(LUGE_TENSOR(LUGE_SHAPE(2), 3, 0)),
                                     w, b, &(luge_batch_norm_options){.eps = 1});
    assert_text(z, "[[0.5, -1], [2.5, 19]]");
}

static void test_every_rank(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_randn(LUGE_SHAPE(3, 2, 4, 2, 3), &(luge_tensor_options){.dtype = LUGE_F64});
    luge_tensor *y = luge_batch_norm(x, LUGE_NONE, LUGE_NONE, LUGE_NONE, LUGE_NONE, &training);
    /* the same elements as [N, C, L] and, channels last, as [N, C] */
    luge_tensor *flat = luge_reshape(x, LUGE_SHAPE(3, 2, 24));
    assert_close(luge_batch_norm(flat, LUGE_NONE, LUGE_NONE, LUGE_NONE, LUGE_NONE, &training),
                 luge_reshape(y, LUGE_SHAPE(3, 2, 24)), 1e-12, "3-D");
    luge_tensor *rows = luge_reshape(luge_transpose(flat, 1, 2), LUGE_SHAPE(72, 2));
    assert_close(luge_batch_norm(rows, LUGE_NONE, LUGE_NONE, LUGE_NONE, LUGE_NONE, &training),
                 luge_reshape(luge_transpose(luge_reshape(y, LUGE_SHAPE(3, 2, 24)), 1, 2), LUGE_SHAPE(72, 2)), 1e-12,
                 "2-D");
    luge_tensor *image = luge_reshape(x, LUGE_SHAPE(3, 2, 8, 3)), *last = luge_channels_last(image);
    luge_tensor *z = luge_batch_norm(last, LUGE_NONE, LUGE_NONE, LUGE_NONE, LUGE_NONE, &training);
    assert_true(luge_tensor_stride(z, 1) == 1);
    assert_close(z, luge_reshape(y, LUGE_SHAPE(3, 2, 8, 3)), 1e-12, "channels-last");
    assert_near(luge_item(luge_mean(y, LUGE_ALL_AXES)), 0, 1e-12);
    assert_near(luge_item(luge_mean(luge_square(y), LUGE_ALL_AXES)), 1, 1e-4);
}

/* inputs x, [weight, bias]; in eval mode the statistics are constants */
typedef struct norm {
    bool train;
    int axes;
    luge_tensor *mean, *var;
} norm;
static luge_tensor *batch(luge_list in, void *user)
{
    norm *n = user;
    return luge_batch_norm(in.items[0], n->mean, n->var, in.count > 1 ? in.items[1] : LUGE_NONE,
                           in.count > 2 ? in.items[2] : LUGE_NONE,
                           &(luge_batch_norm_options){.training = n->train, .eps = 0.1});
}
static luge_tensor *batch_last(luge_list in, void *user)
{
    luge_tensor *items[3] = {luge_channels_last(in.items[0])};
    for (int i = 1; i < in.count; ++i) items[i] = in.items[i];
    return batch((luge_list){items, in.count}, user);
}

static void test_batch_gradients(void **state)
{
    (void)state;
    static const luge_shape shapes[] = {
        {2, {4, 3}}, {3, {2, 3, 4}}, {4, {2, 3, 2, 2}}, {5, {1, 3, 2, 1, 2}}, {2, {2, 3}}};
    for (size_t i = 0; i < 2 * (sizeof shapes / sizeof *shapes); ++i) {
        LUGE_SCOPE("test");
        norm n = {.train = i % 2 == 0,
                  .mean = constant(LUGE_SHAPE(3)),
                  .var = luge_add_scalar(luge_square(constant(LUGE_SHAPE(3))), 0.5)};
        luge_tensor *x = leaf(shapes[i / 2]), *w = leaf(LUGE_SHAPE(3)), *b = leaf(LUGE_SHAPE(3));
        assert_gradients(batch, LUGE_LIST(x, w, b), &n, "batch_norm");
        assert_gradients(batch, LUGE_LIST(x), &n, "batch_norm without parameters");
        assert_gradients(batch, LUGE_LIST(luge_detach(x), w, b), &n, "parameters only");
        if (shapes[i / 2].rank == 4) assert_gradients(batch_last, LUGE_LIST(x, w, b), &n, "channels-last batch_norm");
    }
}

static void test_NUM_03_small_spread(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *y = luge_batch_norm(LUGE_TENSOR(LUGE_SHAPE(2, 1), 1000, 1000.5), LUGE_NONE, LUGE_NONE, LUGE_NONE,
                                     LUGE_NONE, &training);
    float v[2];
    assert_int_equal(luge_to_array(y, v, LUGE_F32, 2), LUGE_OK);
    assert_near((double)v[0], -0.25 / sqrt(0.0625 + 1e-5), 1e-5);
    assert_near((double)v[1], 0.25 / sqrt(0.0625 + 1e-5), 1e-5);
    assert_text(luge_batch_norm(luge_full(LUGE_SHAPE(2, 3, 2, 2), 1000.1, NULL), LUGE_NONE, LUGE_NONE, LUGE_NONE,
                                LUGE_NONE, &training),
                luge_text(luge_zeros(LUGE_SHAPE(2, 3, 2, 2), NULL)));
}

static void test_NUM_04_one_value_per_channel(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *mean = luge_zeros(LUGE_SHAPE(100), NULL), *var = luge_ones(LUGE_SHAPE(100), NULL);
    const int64_t before = luge_tensor_version(mean);
    static const luge_shape refused[] = {{2, {1, 100}}, {4, {1, 100, 1, 1}}};
    for (int i = 0; i < 2; ++i) {
        assert_refused(luge_batch_norm(luge_ones(refused[i], NULL), mean, var, LUGE_NONE, LUGE_NONE, &training),
                       LUGE_ERR_SHAPE, "batch_norm: training needs more than one value per channel, got [1, 100");
        assert_near(luge_item(luge_max(luge_abs(mean), LUGE_ALL_AXES)), 0, 0);
        assert_near(luge_item(luge_min(var, LUGE_ALL_AXES)), 1, 0);
        assert_int_equal(luge_tensor_version(mean), before);
    }
    assert_non_null(luge_batch_norm(luge_ones(LUGE_SHAPE(1, 100), NULL), mean, var, LUGE_NONE, LUGE_NONE, NULL));
    assert_int_equal(luge_tensor_version(mean), before);
    assert_non_null(
        luge_batch_norm(luge_ones(LUGE_SHAPE(1, 100, 2, 2), NULL), mean, var, LUGE_NONE, LUGE_NONE, &training));
    assert_int_equal(luge_tensor_version(mean), before + 1);
}

static void test_NUM_14_biased_inside_unbiased_outside(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *mean = luge_zeros(LUGE_SHAPE(1), NULL), *var = luge_zeros(LUGE_SHAPE(1), NULL);
    luge_tensor *y = luge_batch_norm(LUGE_TENSOR(LUGE_SHAPE(2, 1), 1, 3), mean, var, LUGE_NONE, LUGE_NONE,
                                     &(luge_batch_norm_options){.training = true, .momentum = 1, .eps = 3});
    assert_text(y, "[[-0.5], [0.5]]"); /* sqrt(1 + 3) */
    assert_text(mean, "[2]");
    assert_text(var, "[2]");
}

static void test_AGR_05_empty_batch_in_eval(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(64), NULL)),
                *b = luge_requires_grad_(luge_ones(LUGE_SHAPE(64), NULL));
    luge_tensor *y = luge_batch_norm(luge_zeros(LUGE_SHAPE(0, 64, 4, 4), NULL), luge_zeros(LUGE_SHAPE(64), NULL),
                                     luge_ones(LUGE_SHAPE(64), NULL), w, b, NULL);
    {
        LUGE_SCOPE("poison"); /* what is not written would be NaN */
        for (int i = 0; i < 8; ++i) luge_full(LUGE_SHAPE(64), NAN, NULL);
    }
    assert_int_equal(luge_backward(luge_sum(y, LUGE_ALL_AXES)), LUGE_OK);
    assert_near(luge_item(luge_max(luge_abs(luge_tensor_grad(w)), LUGE_ALL_AXES)), 0, 0);
    assert_near(luge_item(luge_max(luge_abs(luge_tensor_grad(b)), LUGE_ALL_AXES)), 0, 0);
}

static void test_AGR_06_empty_batch_in_training(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *mean = luge_zeros(LUGE_SHAPE(5), NULL), *var = luge_ones(LUGE_SHAPE(5), NULL);
    luge_tensor *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(5), NULL));
    luge_tensor *y = luge_batch_norm(luge_zeros(LUGE_SHAPE(0, 5, 9), NULL), mean, var, w, LUGE_NONE, &training);
    assert_true(luge_tensor_size(y, 0) == 0 && luge_tensor_size(y, 1) == 5 && luge_tensor_size(y, 2) == 9);
    assert_text(mean, "[0, 0, 0, 0, 0]");
    assert_text(var, "[1, 1, 1, 1, 1]");
    assert_int_equal(luge_backward(luge_sum(y, LUGE_ALL_AXES)), LUGE_OK);
    assert_text(luge_tensor_grad(w), "[0, 0, 0, 0, 0]");
}

/* PyTorch's: no statistics to learn from, no gradients but zeros. It refuses 0 channels; there is no need to. */
static void test_batch_norm_of_nothing(void **state)
{
    (void)state;
    const luge_shape shapes[] = {LUGE_SHAPE(0, 3),       LUGE_SHAPE(0, 3, 2, 2), LUGE_SHAPE(4, 3, 0),
                                 LUGE_SHAPE(2, 3, 4, 0), LUGE_SHAPE(3, 0),       LUGE_SHAPE(0, 0),
                                 LUGE_SHAPE(2, 0, 4, 4)};
    for (size_t i = 0; i < 2 * (sizeof shapes / sizeof *shapes); ++i)
        for (int last = 0; last < (shapes[i / 2].rank == 4 ? 2 : 1); ++last) {
            LUGE_SCOPE("nothing");
            const luge_shape s = shapes[i / 2], channels = LUGE_SHAPE(s.dim[1]);
            luge_tensor *x = luge_zeros(s, NULL), *mean = luge_full(channels, 0.5, NULL),
                        *var = luge_full(channels, 2, NULL);
            luge_tensor *w = luge_requires_grad_(luge_ones(channels, NULL)),
                        *b = luge_requires_grad_(luge_ones(channels, NULL));
            x = luge_requires_grad_(last ? luge_channels_last(x) : x);
            luge_tensor *y = luge_batch_norm(x, mean, var, w, b, i % 2 ? &training : NULL);
            assert_int_equal(luge_tensor_numel(y), 0);
            assert_int_equal(luge_backward(luge_sum(y, LUGE_ALL_AXES)), LUGE_OK);
            assert_int_equal(luge_tensor_shape(luge_tensor_grad(x)).rank, s.rank);
            assert_text(mean, s.dim[1] == 0 ? "[]" : "[0.5, 0.5, 0.5]");
            assert_text(var, s.dim[1] == 0 ? "[]" : "[2, 2, 2]");
            assert_text(luge_tensor_grad(w), s.dim[1] == 0 ? "[]" : "[0, 0, 0]");
            assert_text(luge_tensor_grad(b), s.dim[1] == 0 ? "[]" : "[0, 0, 0]");
        }
}

/* A half input is normalised with f32 statistics, by f32 parameters. */
static void test_half_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_cast(LUGE_TENSOR(LUGE_SHAPE(2, 1), 60000, 60032), LUGE_F16);
    luge_tensor *mean = luge_zeros(LUGE_SHAPE(1), NULL), *var = luge_zeros(LUGE_SHAPE(1), NULL),
                *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(1), NULL));
    luge_tensor *y =
        luge_batch_norm(x, mean, var, w, LUGE_NONE, &(luge_batch_norm_options){.training = true, .momentum = 1});
    assert_int_equal(luge_tensor_dtype(y), LUGE_F16);
    assert_text(y, "[[-1], [1]]");
    assert_text(mean, "[60016]");
    assert_text(var, "[512]");
    luge_backward(luge_sum(luge_mul(luge_cast(y, LUGE_F32), LUGE_TENSOR(LUGE_SHAPE(2, 1), 1, 3)), LUGE_ALL_AXES));
    assert_int_equal(luge_tensor_dtype(luge_tensor_grad(w)), LUGE_F32);
    assert_near(luge_item(luge_tensor_grad(w)), 2, 1e-6);
    LUGE_AUTOCAST(LUGE_BF16);
    assert_int_equal(luge_tensor_dtype(luge_batch_norm(x, mean, var, w, LUGE_NONE, NULL)), LUGE_F16);
    assert_int_equal(luge_tensor_dtype(luge_layer_norm(x, 1, w, LUGE_NONE, 0)), LUGE_F32);
}

static void test_batch_norm_wrong_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_zeros(LUGE_SHAPE(4, 3), NULL), *c = luge_ones(LUGE_SHAPE(3), NULL), *none = LUGE_NONE;
    assert_refused(luge_batch_norm(NULL, c, c, c, c, NULL), LUGE_ERR_ARGUMENT, "batch_norm: input 0 is NULL");
    assert_refused(luge_batch_norm(x, NULL, c, c, c, NULL), LUGE_ERR_ARGUMENT, "batch_norm: input 1 is NULL");
    assert_refused(luge_batch_norm(none, c, c, c, c, NULL), LUGE_ERR_ARGUMENT, "batch_norm: input 0 is LUGE_NONE");
    assert_refused(luge_batch_norm(x, none, c, c, c, NULL), LUGE_ERR_ARGUMENT,
                   "outside training the running mean and variance are needed");
    assert_refused(luge_batch_norm(c, c, c, c, c, NULL), LUGE_ERR_SHAPE,
                   "batch_norm: the input is [3], but must be [N, C, ...]");
    assert_refused(luge_batch_norm(x, luge_ones(LUGE_SHAPE(4), NULL), c, c, c, NULL), LUGE_ERR_SHAPE,
                   "batch_norm: the running mean is [4], but must be [3]");
    assert_refused(luge_batch_norm(x, c, luge_ones(LUGE_SHAPE(3, 1), NULL), c, c, NULL), LUGE_ERR_SHAPE,
                   "the running variance is [3, 1]");
    assert_refused(luge_batch_norm(x, c, c, luge_ones(LUGE_SHAPE(1), NULL), c, NULL), LUGE_ERR_SHAPE,
                   "the weight is [1]");
    assert_refused(luge_batch_norm(x, c, c, c, luge_cast(c, LUGE_F64), NULL), LUGE_ERR_DTYPE,
                   "the bias is f64, but must be f32 for an input of f32");
    assert_refused(luge_batch_norm(luge_cast(x, LUGE_I64), c, c, c, c, NULL), LUGE_ERR_DTYPE,
                   "batch_norm: the input is i64");
    assert_refused(luge_batch_norm(x, luge_expand(luge_ones(LUGE_SHAPE(1), NULL), LUGE_SHAPE(3)), c, c, c, &training),
                   LUGE_ERR_ARGUMENT, "share memory");
    assert_refused(luge_batch_norm(x, c, c, c, c, &(luge_batch_norm_options){.momentum = -0.1}), LUGE_ERR_ARGUMENT,
                   "momentum is -0.1");
    assert_refused(luge_batch_norm(x, c, c, c, c, &(luge_batch_norm_options){.momentum = 1.5}), LUGE_ERR_ARGUMENT,
                   "momentum is 1.5");
    assert_refused(luge_batch_norm(x, c, c, c, c, &(luge_batch_norm_options){.eps = -1}), LUGE_ERR_ARGUMENT, "eps -1");
    assert_refused(luge_batch_norm(x, c, c, c, c, &(luge_batch_norm_options){.eps = NAN}), LUGE_ERR_ARGUMENT,
                   "eps nan");
    assert_refused(luge_batch_norm(x, c, c, c, c, &(luge_batch_norm_options){.reserved = {7}}), LUGE_ERR_ARGUMENT,
                   "luge_batch_norm_options");
}

/* ---- layer_norm */

static void test_NUM_02_large_mean(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *y =
        luge_layer_norm(LUGE_TENSOR(LUGE_SHAPE(4), 40000, 40001, 40002, 40003), 1, LUGE_NONE, LUGE_NONE, 1e-5);
    float v[4];
    assert_int_equal(luge_to_array(y, v, LUGE_F32, 4), LUGE_OK);
    const double expected[] = {-1.3416354, -0.4472118, 0.4472118, 1.3416354};
    for (int i = 0; i < 4; ++i) assert_near((double)v[i], expected[i], 1e-5);
}

static void test_layer_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 3, 10, 30);
    luge_tensor *w = LUGE_TENSOR(LUGE_SHAPE(2), 2, 4), *b = LUGE_TENSOR(LUGE_SHAPE(2), 1, -1);
    assert_text(luge_layer_norm(x, 1, LUGE_NONE, LUGE_NONE, 3), "[[-0.5, 0.5], [-0.985329, 0.985329]]");
    assert_text(luge_layer_norm(luge_slice(x, 0, 0, 1), 1, w, b, 3), "[[0, 1]]");
    /* both axes: mean 11, variance 131.5 */
    luge_tensor *y = luge_layer_norm(x, 2, LUGE_NONE, LUGE_NONE, 12.5);
    assert_text(luge_mul_scalar(y, 12), "[[-10, -8], [-1, 19]]");
    assert_text(luge_layer_norm(luge_transpose(x, 0, 1), 1, LUGE_NONE, LUGE_NONE, 1e-12), "[[-1, 1], [-1, 1]]");
    assert_text(luge_layer_norm(luge_full(LUGE_SHAPE(1, 7), 0.1, NULL), 1, LUGE_NONE, LUGE_NONE, 0),
                "[[0, 0, 0, 0, 0, 0, 0]]");
}

static luge_tensor *layer(luge_list in, void *user)
{
    const norm *n = user;
    return luge_layer_norm(in.items[0], n->axes, in.count > 1 ? in.items[1] : LUGE_NONE,
                           in.count > 2 ? in.items[2] : LUGE_NONE, 0.1);
}
static luge_tensor *layer_transposed(luge_list in, void *user)
{
    luge_tensor *x = luge_transpose(in.items[0], 0, 1);
    return layer(LUGE_LIST(x), user);
}

static void test_layer_gradients(void **state)
{
    (void)state;
    for (int axes = 1; axes <= 3; ++axes) {
        LUGE_SCOPE("test");
        norm n = {.axes = axes};
        luge_shape last = axes == 1 ? LUGE_SHAPE(4) : axes == 2 ? LUGE_SHAPE(3, 4) : LUGE_SHAPE(2, 3, 4);
        luge_tensor *x = leaf(LUGE_SHAPE(2, 3, 4)), *w = leaf(last), *b = leaf(last);
        assert_gradients(layer, LUGE_LIST(x, w, b), &n, "layer_norm");
        assert_gradients(layer, LUGE_LIST(x), &n, "layer_norm without parameters");
        assert_gradients(layer, LUGE_LIST(luge_detach(x), w, b), &n, "parameters only");
        assert_gradients(layer_transposed, LUGE_LIST(x), &n, "transposed");
    }
}

/* Nothing but the bias learns: its gradient is the sum of what comes, whatever there was to normalise. */
static void test_gradient_of_bias_alone(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = constant(LUGE_SHAPE(2, 3, 4));
    for (int train = 0; train < 2; ++train) {
        norm n = {.train = train != 0, .mean = constant(LUGE_SHAPE(3)), .var = luge_square(constant(LUGE_SHAPE(3)))};
        assert_gradients(batch, LUGE_LIST(x, constant(LUGE_SHAPE(3)), leaf(LUGE_SHAPE(3))), &n, "batch_norm");
    }
    assert_gradients(layer, LUGE_LIST(x, constant(LUGE_SHAPE(4)), leaf(LUGE_SHAPE(4))), &(norm){.axes = 1},
                     "layer_norm");

    enum { MANY = 70000 }; /* as a sum too large for f16 */
    luge_tensor *half = luge_zeros(LUGE_SHAPE(MANY, 1), &(luge_tensor_options){.dtype = LUGE_F16});
    luge_tensor *bias = luge_requires_grad_(luge_zeros(LUGE_SHAPE(1), NULL));
    luge_backward_with(luge_layer_norm(half, 1, LUGE_NONE, bias, 0),
                       &(luge_backward_options){.gradient = luge_ones(LUGE_SHAPE(MANY, 1), NULL)});
    assert_near(luge_item(luge_tensor_grad(bias)), MANY, 0);
}

static void test_layer_norm_of_nothing(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(3), NULL)),
                *b = luge_requires_grad_(luge_ones(LUGE_SHAPE(3), NULL));
    luge_tensor *y = luge_layer_norm(luge_zeros(LUGE_SHAPE(0, 3), NULL), 1, w, b, 0);
    assert_int_equal(luge_tensor_size(y, 0), 0);
    assert_int_equal(luge_backward(luge_sum(y, LUGE_ALL_AXES)), LUGE_OK);
    assert_text(luge_tensor_grad(w), "[0, 0, 0]");
    assert_text(luge_tensor_grad(b), "[0, 0, 0]");
    static const luge_shape empty[] = {{2, {2, 0}}, {2, {0, 0}}};
    for (int i = 0; i < 2; ++i) {
        luge_tensor *x = luge_requires_grad_(luge_zeros(empty[i], NULL)),
                    *none = luge_requires_grad_(luge_ones(LUGE_SHAPE(0), NULL));
        y = luge_layer_norm(x, 1, none, none, 0);
        assert_int_equal(luge_tensor_numel(y), 0);
        assert_int_equal(luge_backward(luge_sum(y, LUGE_ALL_AXES)), LUGE_OK);
        assert_int_equal(luge_tensor_size(luge_tensor_grad(x), 0), empty[i].dim[0]);
        assert_int_equal(luge_tensor_numel(luge_tensor_grad(none)), 0);
    }
}

static void test_layer_norm_wrong_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_zeros(LUGE_SHAPE(2, 3, 4), NULL), *w = luge_ones(LUGE_SHAPE(4), NULL), *none = LUGE_NONE;
    assert_refused(luge_layer_norm(NULL, 1, w, w, 0), LUGE_ERR_ARGUMENT, "layer_norm: the input");
    assert_refused(luge_layer_norm(x, 1, NULL, w, 0), LUGE_ERR_ARGUMENT, "layer_norm: the weight");
    assert_refused(luge_layer_norm(x, 1, w, NULL, 0), LUGE_ERR_ARGUMENT, "layer_norm: the bias");
    assert_refused(luge_layer_norm(x, 0, none, none, 0), LUGE_ERR_ARGUMENT,
                   "layer_norm: cannot normalise 0 axes of an input of 3");
    assert_refused(luge_layer_norm(x, 4, none, none, 0), LUGE_ERR_ARGUMENT, "cannot normalise 4 axes");
    assert_refused(luge_layer_norm(x, -1, none, none, 0), LUGE_ERR_ARGUMENT, "cannot normalise -1 axes");
    assert_refused(luge_layer_norm(x, 2, w, none, 0), LUGE_ERR_SHAPE,
                   "layer_norm: the weight is [4], but must be [3, 4]");
    assert_refused(luge_layer_norm(x, 1, none, luge_ones(LUGE_SHAPE(3), NULL), 0), LUGE_ERR_SHAPE,
                   "the bias is [3], but must be [4]");
    assert_refused(luge_layer_norm(x, 1, luge_cast(w, LUGE_F16), none, 0), LUGE_ERR_DTYPE,
                   "the weight is f16, but must be f32");
    assert_refused(luge_layer_norm(luge_cast(x, LUGE_U8), 1, none, none, 0), LUGE_ERR_DTYPE,
                   "layer_norm: the input is u8");
    assert_refused(luge_layer_norm(x, 1, none, none, -1), LUGE_ERR_ARGUMENT, "layer_norm: eps is -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_batch_values),
        OP_TEST(test_every_rank),
        OP_TEST(test_batch_gradients),
        OP_TEST(test_NUM_03_small_spread),
        OP_TEST(test_NUM_04_one_value_per_channel),
        OP_TEST(test_NUM_14_biased_inside_unbiased_outside),
        OP_TEST(test_AGR_05_empty_batch_in_eval),
        OP_TEST(test_AGR_06_empty_batch_in_training),
        OP_TEST(test_batch_norm_of_nothing),
        OP_TEST(test_half_inputs),
        OP_TEST(test_batch_norm_wrong_inputs),
        OP_TEST(test_NUM_02_large_mean),
        OP_TEST(test_layer_values),
        OP_TEST(test_layer_gradients),
        OP_TEST(test_gradient_of_bias_alone),
        OP_TEST(test_layer_norm_of_nothing),
        OP_TEST(test_layer_norm_wrong_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
