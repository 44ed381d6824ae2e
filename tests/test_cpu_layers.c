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
static double bound_of(luge_dtype d)
{
    return d == LUGE_F64 ? 1e-13 : 4e-6;
}

/* ---- pooling */

static const lg_pool2d_attrs pools[] = {
    {.kernel = {2, 2}, .stride = {2, 2}, .out = {4, 5}, .in_shape = {4, {3, 4, 8, 10}}},
    {.kernel = {2, 2}, .stride = {2, 2}, .out = {4, 5}, .in_shape = {4, {2, 37, 9, 11}}},
    {.kernel = {3, 3},
     .stride = {2, 2},
     .padding = {1, 1},
     .out = {4, 4},
     .in_shape = {4, {2, 16, 7, 8}},
     .include_padding = true},
    {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .out = {4, 4}, .in_shape = {4, {2, 3, 7, 8}}},
    {.kernel = {3, 2}, .stride = {1, 1}, .padding = {1, 0}, .out = {6, 6}, .in_shape = {4, {1, 70, 6, 7}}},
    {.kernel = {2, 2}, .stride = {3, 3}, .out = {3, 3}, .in_shape = {4, {2, 5, 8, 8}}},
    {.kernel = {2, 2},
     .stride = {2, 2},
     .padding = {1, 1},
     .out = {3, 3},
     .in_shape = {4, {2, 5, 4, 4}},
     .include_padding = true},
    {.kernel = {3, 3},
     .stride = {2, 2},
     .out = {3, 3},
     .in_shape = {4, {2, 5, 6, 6}},
     .include_padding = true}, /* hangs over the end */
    {.kernel = {1, 1}, .stride = {1, 1}, .out = {1, 1}, .in_shape = {4, {1, 1, 1, 1}}},
    {.adaptive = true, .out = {1, 1}, .in_shape = {4, {2, 20, 7, 7}}},
    {.adaptive = true, .out = {1, 1}, .in_shape = {4, {1, 70, 13, 11}}}, /* of many pixels, and channels */
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
                luge_tensor *x = random_layout(a->in_shape, reals[d], layout),
                            *g = random_layout(small, reals[d], layout);
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
    const lg_pool2d_attrs overlapping = {
        .kernel = {2, 2}, .stride = {1, 1}, .out = {2, 2}, .in_shape = {4, {1, 1, 3, 3}}};
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
    assert_int_equal(run_kernel(&lg_op_max_pool2d_backward,
                                LUGE_LIST(unit, same, luge_full(LUGE_SHAPE(1, 1, 1, 1), 3, NULL)), &one, out),
                     LUGE_OK);
    assert_values(out[0], 1, 0, 0, 0);
}

/* 40000 pixels, whose sum in f32 would be off in the fourth digit. */
static void test_mean_of_many_pixels(void **state)
{
    (void)state;
    const lg_pool2d_attrs all = {.adaptive = true, .out = {1, 1}, .in_shape = {4, {1, 3, 200, 200}}};
    luge_tensor *x = luge_full(all.in_shape, 1000.1, NULL), *out[LG_MAX_OUT];
    for (int last = 0; last < 2; ++last) {
        assert_int_equal(run_kernel(&lg_op_avg_pool2d, LUGE_LIST(last ? luge_channels_last(x) : x), &all, out),
                         LUGE_OK);
        assert_near(luge_item(luge_max(out[0], LUGE_ALL_AXES)), (double)1000.1f, 1e-4);
        assert_near(luge_item(luge_min(out[0], LUGE_ALL_AXES)), (double)1000.1f, 1e-4);
    }
}

/* ---- norms */

static void check_batch_norm(luge_dtype dtype, luge_shape shape, int variant)
{
    LUGE_SCOPE("batch_norm");
    const lg_norm_attrs a = {.training = variant % 2, .momentum = 0.3, .eps = 1e-5};
    const int layout = variant % LAYOUTS;
    const luge_shape channels = LUGE_SHAPE(shape.dim[1]);
    luge_tensor *x = luge_add_scalar_(random_layout(shape, dtype, layout), 2),
                *g = random_layout(shape, dtype, variant / 2 % LAYOUTS);
    luge_tensor *mean = random_layout(channels, dtype, 2), *variance = luge_abs(random_layout(channels, dtype, 0));
    luge_tensor *weight = variant / 4 % 2 ? LUGE_NONE : random_layout(channels, dtype, 2);
    luge_tensor *bias = variant / 8 % 2 ? LUGE_NONE : random_layout(channels, dtype, 0);
    if (a.training && variant / 16 % 2) mean = variance = LUGE_NONE;
    char what[TEXT], text[LG_SHAPE_TEXT];
    snprintf(what, sizeof what, "batch_norm %s %s variant %d", luge_dtype_name(dtype), lg_shape_text(text, &shape),
             variant);
    check_kernel(&lg_op_batch_norm, LUGE_LIST(x, mean, variance, weight, bias), &a, bound_of(dtype), what);
    luge_tensor *out[LG_MAX_OUT];
    luge_tensor *running[] = {lg_is_none(mean) ? mean : luge_clone(mean),
                              lg_is_none(variance) ? variance : luge_clone(variance)};
    assert_int_equal(run_kernel(&lg_op_batch_norm, LUGE_LIST(x, running[0], running[1], weight, bias), &a, out),
                     LUGE_OK);
    check_kernel(&lg_op_batch_norm_backward, LUGE_LIST(g, x, weight, out[1], out[2]), &a, 2 * bound_of(dtype), what);
}

static void test_batch_norm(void **state)
{
    (void)state;
    const luge_shape shapes[] = {LUGE_SHAPE(4, 3),        LUGE_SHAPE(37, 70),  LUGE_SHAPE(2, 5, 3, 4),
                                 LUGE_SHAPE(3, 17, 8, 9), LUGE_SHAPE(2, 4, 6), LUGE_SHAPE(6, 33, 20, 21),
                                 LUGE_SHAPE(3, 1, 2, 2),  LUGE_SHAPE(5, 1)};
    for (int d = 0; d < 2; ++d)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
            for (int variant = 0; variant < 40; ++variant) check_batch_norm(reals[d], shapes[i], variant);
    /* more blocks than one: beside each other and below each other, of planes, of rows of channels-last */
    const luge_shape large[] = {LUGE_SHAPE(90, 1100), LUGE_SHAPE(4000, 11), LUGE_SHAPE(1, 3, 150, 301),
                                LUGE_SHAPE(2, 40, 31, 33)};
    for (size_t i = 0; i < sizeof large / sizeof *large; ++i)
        for (int variant = 1; variant < 10; variant += 4) check_batch_norm(LUGE_F32, large[i], variant);
    check_batch_norm(LUGE_F32, LUGE_SHAPE(0, 3), 0);
    check_batch_norm(LUGE_F32, LUGE_SHAPE(0, 3, 2, 2), 1);
}

/* Row-major [n, c, inner] in f64, of channel k: the specification, by itself. */
typedef struct exact {
    int64_t n, c, inner;
    const double *x, *g;
    double *y, *gx, *gweight, *gbias;
} exact;

static int64_t exact_at(const exact *e, int64_t k, int64_t i)
{
    return (i / e->inner * e->c + k) * e->inner + i % e->inner;
}

static void exact_channel(const exact *e, int64_t k, double eps)
{
    const int64_t count = e->n * e->inner;
    double mean = 0, variance = 0, sum = 0, dot = 0;
    for (int64_t i = 0; i < count; ++i) mean += e->x[exact_at(e, k, i)] / (double)count;
    for (int64_t i = 0; i < count; ++i) variance += pow(e->x[exact_at(e, k, i)] - mean, 2) / (double)count;
    const double invstd = 1 / sqrt(variance + eps);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t at = exact_at(e, k, i);
        e->y[at] = (e->x[at] - mean) * invstd;
        sum += e->g[at];
        dot += e->g[at] * e->y[at];
    }
    for (int64_t i = 0; i < count; ++i) {
        const int64_t at = exact_at(e, k, i);
        e->gx[at] = invstd * (e->g[at] - (sum + e->y[at] * dot) / (double)count);
    }
    e->gweight[k] = dot;
    e->gbias[k] = sum;
}

/* To within `bound` of the largest, or of 1. */
static void assert_all_near(const luge_tensor *t, const double *should, double bound, const char *what)
{
    const int64_t n = luge_tensor_numel(t);
    double *is = malloc((size_t)n * sizeof *is), largest = 1;
    assert_non_null(is);
    assert_int_equal(luge_to_array(t, is, LUGE_F64, n), LUGE_OK);
    for (int64_t i = 0; i < n; ++i) largest = fmax(largest, fabs(should[i]));
    for (int64_t i = 0; i < n; ++i)
        if (!(fabs(is[i] - should[i]) <= bound * largest))
            fail_msg("%s: element %lld is %.9g, not %.9g", what, (long long)i, is[i], should[i]);
    free(is);
}

/* Channel k has the mean 1000 (k + 1), which f32 does not hold, and a spread of 0.3. */
static luge_tensor *far_from_0(luge_shape shape)
{
    luge_shape channels = {.rank = shape.rank};
    for (int i = 0; i < shape.rank; ++i) channels.dim[i] = i == 1 ? shape.dim[1] : 1;
    luge_tensor *mean =
        luge_reshape(luge_mul_scalar(luge_arange(1, (double)shape.dim[1] + 1, 1, NULL), 1000), channels);
    return luge_add(luge_rand(shape, NULL), mean);
}

static void check_far_from_0(luge_shape shape, bool last)
{
    LUGE_SCOPE("far");
    const lg_norm_attrs a = {.training = true, .momentum = 1, .eps = 1e-5};
    luge_tensor *x = far_from_0(shape), *g = luge_add_scalar(luge_rand(shape, NULL), 1), *none = LUGE_NONE,
                *out[LG_MAX_OUT];
    if (last) x = luge_channels_last(x);
    if (last) g = luge_channels_last(g);
    char what[TEXT], text[LG_SHAPE_TEXT];
    snprintf(what, sizeof what, "%s%s", lg_shape_text(text, &shape), last ? ", channels-last" : "");

    const int64_t count = luge_tensor_numel(x), c = shape.dim[1];
    double *memory = malloc((size_t)(4 * count + 2 * c) * sizeof *memory);
    assert_non_null(memory);
    const exact e = {shape.dim[0],
                     c,
                     count / shape.dim[0] / c,
                     memory,
                     memory + count,
                     memory + 2 * count,
                     memory + 3 * count,
                     memory + 4 * count,
                     memory + 4 * count + c};
    assert_int_equal(luge_to_array(x, memory, LUGE_F64, count), LUGE_OK);
    assert_int_equal(luge_to_array(g, memory + count, LUGE_F64, count), LUGE_OK);
    for (int64_t k = 0; k < c; ++k) exact_channel(&e, k, a.eps);

    assert_int_equal(run_kernel(&lg_op_batch_norm, LUGE_LIST(x, none, none, none, none), &a, out), LUGE_OK);
    assert_all_near(out[0], e.y, 1e-6, what);
    assert_int_equal(run_kernel(&lg_op_batch_norm_backward, LUGE_LIST(g, x, none, out[1], out[2]), &a, out), LUGE_OK);
    assert_all_near(out[0], e.gx, 2e-6, what);
    assert_all_near(out[1], e.gweight, 1e-5, what);
    assert_all_near(out[2], e.gbias, 2e-7, what);
    free(memory);
}

/* {1000.0, 1000.5} in every channel: as columns, as planes, and channels-last. */
static void test_batch_norm_cancellation_NUM_03(void **state)
{
    (void)state;
    const lg_norm_attrs a = {.training = true, .momentum = 0.1, .eps = 1e-5};
    const luge_shape shapes[] = {LUGE_SHAPE(2, 1), LUGE_SHAPE(2, 3), LUGE_SHAPE(1, 1, 2, 1), LUGE_SHAPE(2, 3, 1, 1)};
    luge_tensor *out[LG_MAX_OUT], *none = LUGE_NONE, *pair = LUGE_TENSOR(LUGE_SHAPE(2, 1), 1000.0, 1000.5);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int last = 0; last < 2; ++last) {
            luge_tensor *x = luge_reshape(luge_expand(pair, LUGE_SHAPE(2, shapes[i].dim[1])), shapes[i]);
            if (last && shapes[i].rank == 4) x = luge_channels_last(x);
            assert_int_equal(run_kernel(&lg_op_batch_norm, LUGE_LIST(x, none, none, none, none), &a, out), LUGE_OK);
            luge_tensor *should = luge_mul_scalar(luge_add_scalar(x, -1000.25), 4 * 0.99992);
            assert_near(luge_item(luge_max(luge_abs(luge_sub(out[0], should)), LUGE_ALL_AXES)), 0, 1e-5);
        }
}

static void test_batch_norm_of_constants_NUM_03(void **state)
{
    (void)state;
    const lg_norm_attrs a = {.training = true, .momentum = 0.1, .eps = 1e-5};
    const luge_shape shapes[] = {LUGE_SHAPE(2, 3),     LUGE_SHAPE(4000, 1),     LUGE_SHAPE(4000, 3),
                                 LUGE_SHAPE(90, 1100), LUGE_SHAPE(2, 3, 50, 40), LUGE_SHAPE(1, 2, 200, 250)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i)
        for (int last = 0; last < 2; ++last) {
            LUGE_SCOPE("constant");
            luge_tensor *same = luge_full(shapes[i], 1000.3, NULL), *out[LG_MAX_OUT], *none = LUGE_NONE;
            if (last && shapes[i].rank == 4) same = luge_channels_last(same);
            assert_int_equal(run_kernel(&lg_op_batch_norm, LUGE_LIST(same, none, none, none, none), &a, out), LUGE_OK);
            assert_near(luge_item(luge_max(luge_abs(out[0]), LUGE_ALL_AXES)), 0, 0);
        }
}

static void test_batch_norm_far_from_0_NUM_03(void **state)
{
    (void)state;
    const luge_shape shapes[] = {LUGE_SHAPE(2, 3),       LUGE_SHAPE(4000, 3),      LUGE_SHAPE(300, 1030),
                                 LUGE_SHAPE(2, 3, 2, 2), LUGE_SHAPE(3, 5, 20, 30), LUGE_SHAPE(1, 3, 200, 250)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        check_far_from_0(shapes[i], false);
        if (shapes[i].rank == 4) check_far_from_0(shapes[i], true);
    }
}

static void check_layer_norm(luge_dtype dtype, luge_shape shape, int axes, int variant)
{
    LUGE_SCOPE("layer_norm");
    const lg_norm_attrs a = {.axes = axes, .eps = 1e-5};
    luge_shape last = {.rank = axes};
    for (int i = 0; i < axes; ++i) last.dim[i] = shape.dim[shape.rank - axes + i];
    luge_tensor *x = luge_add_scalar(random_layout(shape, dtype, 0), -1), *g = random_layout(shape, dtype, 0);
    luge_tensor *weight = variant % 2 ? LUGE_NONE : random_layout(last, dtype, 0),
                *bias = variant / 2 % 2 ? LUGE_NONE : random_layout(last, dtype, 0);
    char what[TEXT], text[LG_SHAPE_TEXT];
    snprintf(what, sizeof what, "layer_norm %s %s axes %d variant %d", luge_dtype_name(dtype),
             lg_shape_text(text, &shape), axes, variant);
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

/* Rows and long rows far from 0, whose gradients are also far from 0: as batch_norm's channels. */
static void test_layer_norm_far_from_0(void **state)
{
    (void)state;
    const lg_norm_attrs a = {.axes = 1, .eps = 1e-5};
    const int64_t sizes[][2] = {{3, 5}, {700, 33}, {2, 150000}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        LUGE_SCOPE("far");
        const int64_t rows = sizes[i][0], n = sizes[i][1];
        luge_tensor *x = luge_add_scalar(luge_rand(LUGE_SHAPE(rows, n), NULL), 1000),
                    *g = luge_add_scalar(luge_rand(LUGE_SHAPE(rows, n), NULL), 1);
        luge_tensor *none = LUGE_NONE, *out[LG_MAX_OUT], *sums[LG_MAX_OUT];
        double *memory = malloc((size_t)(4 * rows * n + 2 * rows) * sizeof *memory), *y = memory + 2 * rows * n;
        assert_non_null(memory);
        /* a row is a channel of one sample */
        const exact e = {
            1, rows, n, memory, memory + rows * n, y, y + rows * n, y + 2 * rows * n, y + 2 * rows * n + rows};
        assert_int_equal(luge_to_array(x, memory, LUGE_F64, rows * n), LUGE_OK);
        assert_int_equal(luge_to_array(g, memory + rows * n, LUGE_F64, rows * n), LUGE_OK);
        for (int64_t k = 0; k < rows; ++k) exact_channel(&e, k, a.eps);
        assert_int_equal(run_kernel(&lg_op_layer_norm, LUGE_LIST(x, none, none), &a, out), LUGE_OK);
        assert_all_near(out[0], e.y, 1e-6, "far from 0");
        assert_int_equal(run_kernel(&lg_op_layer_norm_backward, LUGE_LIST(g, x, none, out[1], out[2]), &a, sums),
                         LUGE_OK);
        assert_all_near(sums[0], e.gx, 4e-6, "gx far from 0");
        for (int64_t k = 0; k < n; ++k) { /* gweight and gbias, in place of g and y of row 0 */
            double weight = 0, bias = 0;
            for (int64_t r = 0; r < rows; ++r) weight += e.g[r * n + k] * e.y[r * n + k], bias += e.g[r * n + k];
            memory[rows * n + k] = weight, y[k] = bias;
        }
        assert_all_near(sums[1], e.g, 2e-6, "gweight far from 0");
        assert_all_near(sums[2], y, 2e-7, "gbias far from 0");
        free(memory);
    }
}

/* 400000 equal addends: in f32 every addition would round the same way. */
static void test_layer_norm_sums_of_many_rows(void **state)
{
    (void)state;
    enum { ROWS = 400000 };
    const lg_norm_attrs a = {.axes = 1, .eps = 1e-5};
    luge_tensor *x = luge_expand(LUGE_TENSOR(LUGE_SHAPE(1, 3), 0.25, -1, 4), LUGE_SHAPE(ROWS, 3)), *out[LG_MAX_OUT];
    luge_tensor *g = luge_full(LUGE_SHAPE(ROWS, 3), 0.1, NULL), *none = LUGE_NONE;
    x = luge_contiguous(x);
    assert_int_equal(run_kernel(&lg_op_layer_norm, LUGE_LIST(x, none, none), &a, out), LUGE_OK);
    double unit[3], gradient[3];
    assert_int_equal(luge_to_array(luge_slice(out[0], 0, 0, 1), unit, LUGE_F64, 3), LUGE_OK);
    assert_int_equal(run_kernel(&lg_op_layer_norm_backward, LUGE_LIST(g, x, none, out[1], out[2]), &a, out), LUGE_OK);
    for (int i = 1; i < 3; ++i) {
        assert_int_equal(luge_to_array(out[i], gradient, LUGE_F64, 3), LUGE_OK);
        for (int j = 0; j < 3; ++j) {
            const double should = (double)0.1f * ROWS * (i == 1 ? unit[j] : 1);
            assert_near(gradient[j] / should, 1, 6e-7);
        }
    }
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        OP_TEST(test_pooling),
        OP_TEST(test_max_pool_ties_NUM_07),
        OP_TEST(test_batch_norm),
        OP_TEST(test_batch_norm_cancellation_NUM_03),
        OP_TEST(test_batch_norm_of_constants_NUM_03),
        OP_TEST(test_batch_norm_far_from_0_NUM_03),
        OP_TEST(test_layer_norm),
        OP_TEST(test_layer_norm_NUM_02),
        OP_TEST(test_mean_of_many_pixels),
        OP_TEST(test_layer_norm_far_from_0),
        OP_TEST(test_layer_norm_sums_of_many_rows),
    };
    int failed = 0;
    luge_device_usable(luge_device_cpu()); /* chooses one */
    for (int isa = 0; isa < LG_ISA_COUNT; ++isa)
        if (lg_cpu_set_isa((lg_isa)isa))
            failed += cmocka_run_group_tests_name(lg_isa_name((lg_isa)isa), tests, NULL, NULL);
    return failed;
}
