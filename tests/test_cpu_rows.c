/* embedding, dropout, softmax and losses of the CPU backend against their reference kernels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu/isa.h"
#include "ops/attrs.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/kernel.h"
#include "tests/support/ops.h"
#include <luge/luge.h>

enum { TEXT = 200 };
static const luge_dtype reals[] = {LUGE_F32, LUGE_F64};
static double bound_of(luge_dtype d)
{
    return d == LUGE_F64 ? 1e-13 : 3e-6;
}

/* ---- embedding */

/* Indices in several layouts: dense, i32, axes exchanged, every second one. */
enum { INDEX_LAYOUTS = 4 };

static luge_tensor *random_indices(luge_shape shape, int64_t below, int layout)
{
    luge_tensor *dense = luge_randint(0, below, shape);
    if (layout == 1) return luge_cast(dense, LUGE_I32);
    if (layout == 2 && shape.rank == 2) return luge_transpose(luge_contiguous(luge_transpose(dense, 0, 1)), 0, 1);
    if (layout == 3 && shape.rank > 0) {
        luge_tensor *pairs = luge_stack(LUGE_LIST(luge_randint(0, below, shape), dense), shape.rank);
        return luge_select(pairs, shape.rank, 1);
    }
    return dense;
}

static const luge_shape index_shapes[] = {
    {.rank = 0}, {1, {1}}, {1, {7}}, {2, {5, 9}}, {1, {0}}, {3, {2, 3, 4}}, {2, {300, 9}},
};
enum { INDEX_SHAPES = sizeof index_shapes / sizeof *index_shapes };

static void test_embedding(void **state)
{
    (void)state;
    static const luge_dtype dtypes[] = {LUGE_F32, LUGE_F64, LUGE_F16, LUGE_BF16};
    static const int64_t tables[][2] = {{1, 1}, {11, 3}, {40, 64}, {9, 130}};
    for (int d = 0; d < 4; ++d)
        for (int t = 0; t < 4; ++t)
            for (int s = 0; s < INDEX_SHAPES; ++s)
                for (int layout = 0; layout < INDEX_LAYOUTS; ++layout) {
                    LUGE_SCOPE("embedding");
                    luge_tensor *weight = random_layout(LUGE_SHAPE(tables[t][0], tables[t][1]), dtypes[d], layout);
                    luge_tensor *indices = random_indices(index_shapes[s], tables[t][0], layout);
                    char what[TEXT];
                    snprintf(what, sizeof what, "embedding %s table %d indices %d layout %d",
                             luge_dtype_name(dtypes[d]), t, s, layout);
                    check_kernel(&lg_op_embedding, LUGE_LIST(weight, indices), NULL, 0, what);
                }
}

static void test_embedding_backward(void **state)
{
    (void)state;
    /* rows of the table, of which some get no gradient, one or many; columns around a block of 512 */
    static const int64_t tables[][2] = {{1, 1}, {11, 3}, {1000, 16}, {3, 512}, {40, 513}, {5, 1030}};
    for (int d = 0; d < 2; ++d)
        for (int t = 0; t < 6; ++t)
            for (int s = 0; s < INDEX_SHAPES; ++s) {
                LUGE_SCOPE("embedding_backward");
                const lg_embedding_attrs a = {.count = tables[t][0]};
                luge_shape shape = index_shapes[s];
                shape.dim[shape.rank++] = tables[t][1];
                luge_tensor *g = random_layout(shape, reals[d], 0);
                luge_tensor *indices = random_indices(index_shapes[s], tables[t][0], s % INDEX_LAYOUTS);
                char what[TEXT];
                snprintf(what, sizeof what, "embedding_backward %s table %d indices %d", luge_dtype_name(reals[d]), t,
                         s);
                check_kernel(&lg_op_embedding_backward, LUGE_LIST(g, indices), &a, bound_of(reals[d]), what);
            }
}

/* Sums of many rows are as good as those of few: 1 + 2^-24 + ... in f32 one by one would stay 1. */
static void test_embedding_backward_adds_in_f64(void **state)
{
    (void)state;
    enum { N = 4097 };
    luge_tensor *g = luge_full(LUGE_SHAPE(N, 2), 0x1p-24, NULL);
    luge_fill_(luge_select(g, 0, 0), 1);
    luge_tensor *out[LG_MAX_OUT];
    const lg_embedding_attrs a = {.count = 2};
    luge_tensor *indices = luge_full(LUGE_SHAPE(N), 1, &(luge_tensor_options){.dtype = LUGE_I64});
    assert_int_equal(run_kernel(&lg_op_embedding_backward, LUGE_LIST(g, indices), &a, out), LUGE_OK);
    assert_text(luge_add_scalar(out[0], -1), "[[-1, -1], [0.000244141, 0.000244141]]");
}

/* Memory that somebody else changes behind our back must not lead anywhere else. */
static void test_embedding_backward_changed_indices(void **state)
{
    (void)state;
    const lg_embedding_attrs a = {.count = 3};
    luge_tensor *g = luge_ones(LUGE_SHAPE(2, 4), NULL), *out[LG_MAX_OUT];
    for (int64_t bad = -1; bad <= 3; bad += 4) {
        assert_int_equal(run_kernel(&lg_op_embedding_backward, LUGE_LIST(g, LABELS(0, bad)), &a, out),
                         LUGE_ERR_ARGUMENT);
        expect_error(LUGE_ERR_ARGUMENT, "embedding_backward: the indices have changed");
    }
}

/* ---- dropout */

static const luge_shape shapes[] = {
    {.rank = 0}, {1, {1}},    {1, {5}},        {2, {3, 7}},        {2, {64, 10}}, {1, {1023}},
    {1, {1024}}, {1, {1025}}, {3, {5, 4, 33}}, {4, {2, 17, 5, 9}}, {2, {0, 3}},   {2, {300, 257}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Also with one element for all of them. */
static luge_tensor *any_layout(luge_shape shape, luge_dtype dtype, int layout)
{
    if (layout < LAYOUTS) return random_layout(shape, dtype, layout);
    return luge_expand(luge_randn(LUGE_SCALAR, &(luge_tensor_options){.dtype = dtype}), shape);
}

static void test_dropout(void **state)
{
    (void)state;
    static const double p[] = {1e-12, 0.1, 0.5, 0.999, 1};
    for (int d = 0; d < 2; ++d)
        for (int s = 0; s < SHAPES; ++s)
            for (int layout = 0; layout <= LAYOUTS; ++layout) {
                LUGE_SCOPE("dropout");
                const lg_dropout_attrs a = {.p = p[(s + layout) % 5],
                                            .rng = {.seed = 77, .stream = 5, .first = UINT32_MAX - 3}};
                luge_tensor *x = any_layout(shapes[s], reals[d], layout), *out[LG_MAX_OUT];
                char what[TEXT];
                snprintf(what, sizeof what, "dropout %s shape %d layout %d", luge_dtype_name(reals[d]), s, layout);
                check_kernel(&lg_op_dropout, LUGE_LIST(x), &a, bound_of(reals[d]), what);

                assert_int_equal(run_kernel(&lg_op_dropout, LUGE_LIST(x), &a, out), LUGE_OK);
                luge_tensor *g = any_layout(shapes[s], reals[d], (layout + 1) % (LAYOUTS + 1));
                snprintf(what, sizeof what, "dropout_backward %s shape %d layout %d", luge_dtype_name(reals[d]), s,
                         layout);
                check_kernel(&lg_op_dropout_backward, LUGE_LIST(g, out[1]), &a, bound_of(reals[d]), what);
            }
}

/* What is dropped is 0 even if it was NaN. */
static void test_dropout_drops_anything(void **state)
{
    (void)state;
    const lg_dropout_attrs a = {.p = 0.5, .rng = {.seed = 3}};
    luge_tensor *x = luge_full(LUGE_SHAPE(100), (double)NAN, NULL);
    check_kernel(&lg_op_dropout, LUGE_LIST(x), &a, 0, "NaN");
    check_kernel(&lg_op_dropout, LUGE_LIST(luge_full(LUGE_SHAPE(100), (double)INFINITY, NULL)), &a, 0, "infinity");
}

/* ---- softmax */

static const lg_op *const softmaxes[][2] = {{&lg_op_softmax, &lg_op_softmax_backward},
                                            {&lg_op_log_softmax, &lg_op_log_softmax_backward}};

static void check_softmax(luge_tensor *x, luge_tensor *g, int axis, const char *what)
{
    const lg_axis_attrs a = {.axis = axis};
    const double bound = bound_of(luge_tensor_dtype(x));
    for (int log = 0; log < 2; ++log) {
        luge_tensor *y = log ? luge_log_softmax(x, axis) : luge_softmax(x, axis);
        check_kernel(softmaxes[log][0], LUGE_LIST(x), &a, bound, what);
        check_kernel(softmaxes[log][1], LUGE_LIST(g, y), &a, 4 * bound, what); /* long sums cancel */
    }
}

static void test_softmax(void **state)
{
    (void)state;
    static const luge_shape few[] = {
        {1, {1}},       {1, {7}},        {2, {3, 10}}, {2, {5, 64}},      {2, {4, 131}},
        {2, {3, 1300}}, {2, {5, 1}},     {2, {1, 5}},  {3, {40, 3, 17}},  {4, {2, 5, 6, 7}},
        {2, {3000, 9}}, {2, {130, 200}}, {2, {0, 3}},  {3, {2, 70, 130}}, {4, {2, 3, 1, 4}},
    };
    for (int d = 0; d < 2; ++d)
        for (size_t i = 0; i < sizeof few / sizeof *few; ++i)
            for (int layout = 0; layout <= LAYOUTS; ++layout)
                for (int axis = 0; axis < few[i].rank; ++axis) {
                    LUGE_SCOPE("softmax");
                    luge_tensor *x = luge_mul_scalar(any_layout(few[i], reals[d], layout), 3);
                    luge_tensor *g = random_layout(few[i], reals[d], (layout + axis) % LAYOUTS);
                    char what[TEXT];
                    snprintf(what, sizeof what, "softmax %s shape %zu layout %d axis %d", luge_dtype_name(reals[d]), i,
                             layout, axis);
                    check_softmax(x, g, axis, what);
                }
    luge_tensor *one = luge_full(LUGE_SCALAR, 3, NULL);
    check_softmax(one, one, 0, "a scalar");
}

/* Where rows begin to be folded, and where their vectors, lines and panels end. */
static void test_softmax_row_lengths(void **state)
{
    (void)state;
    static const int64_t lengths[] = {2,   15,  16,  17,  31,  32,  33,  63,   64,   65,
                                      127, 128, 129, 511, 512, 513, 577, 8193, 20000};
    static const int64_t rows[] = {1, 7, 8, 65};
    for (int d = 0; d < 2; ++d)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i)
            for (int r = 0; r < 4; ++r) {
                LUGE_SCOPE("softmax");
                if (lengths[i] > 1000 && r > 1) continue;
                const luge_shape shape = LUGE_SHAPE(rows[r], lengths[i]);
                char what[TEXT];
                snprintf(what, sizeof what, "softmax %s %lld x %lld", luge_dtype_name(reals[d]), (long long)rows[r],
                         (long long)lengths[i]);
                check_softmax(luge_mul_scalar(random_layout(shape, reals[d], 0), 4), random_layout(shape, reals[d], 3),
                              1, what);
            }
}

/* Rows of every kind with infinities and NaN, in the forms of x and as rows side by side, short and long. */
static void test_softmax_NUM_06(void **state)
{
    (void)state;
    const double inf = HUGE_VAL, nan = (double)NAN;
    const double values[][2] = {{-inf, -inf}, {0, 0},    {1000, -1000}, {inf, 1},   {nan, -inf},
                                {-inf, nan},  {-inf, 3}, {inf, nan},    {inf, -inf}};
    enum { ROWS = sizeof values / sizeof *values };
    luge_tensor *out[LG_MAX_OUT], *rows = luge_from_array(values, LUGE_F64, LUGE_SHAPE(ROWS, 2));
    for (int d = 0; d < 2; ++d)
        for (int64_t length = 2; length <= 1202; length += 400) {
            luge_tensor *x = luge_full(LUGE_SHAPE(ROWS, length), -inf, &(luge_tensor_options){.dtype = reals[d]});
            luge_copy_(luge_slice(x, 1, length - 2, length), luge_cast(rows, reals[d]));
            for (int log = 0; log < 2; ++log) {
                check_kernel(softmaxes[log][0], LUGE_LIST(x), &(lg_axis_attrs){1}, bound_of(reals[d]), "rows");
                luge_tensor *columns = luge_contiguous(luge_transpose(x, 0, 1));
                check_kernel(softmaxes[log][0], LUGE_LIST(columns), &(lg_axis_attrs){0}, bound_of(reals[d]), "columns");
            }
        }
    rows = luge_cast(luge_slice(rows, 0, 0, 2), LUGE_F32);
    assert_int_equal(run_kernel(&lg_op_softmax, LUGE_LIST(rows), &(lg_axis_attrs){1}, out), LUGE_OK);
    assert_values(out[0], 0, 0, 0.5, 0.5);
    assert_int_equal(
        run_kernel(&lg_op_softmax_backward, LUGE_LIST(luge_ones_like(rows), out[0]), &(lg_axis_attrs){1}, out),
        LUGE_OK);
    assert_values(out[0], 0, 0, 0, 0);
}

/* What was subtracted first does not round what is left of the logarithm. */
static void test_log_softmax_far_from_0(void **state)
{
    (void)state;
    for (int64_t length = 5; length <= 605; length += 600) {
        luge_tensor *x = luge_add_scalar(luge_randn(LUGE_SHAPE(9, length), NULL), 30000);
        check_kernel(&lg_op_log_softmax, LUGE_LIST(x), &(lg_axis_attrs){1}, 3e-7, "log_softmax");
        const lg_cross_entropy_attrs a = {.reduction = LUGE_NO_REDUCTION, .ignore_index = -100};
        luge_tensor *target = luge_randint(0, length, LUGE_SHAPE(9));
        check_kernel(&lg_op_cross_entropy, LUGE_LIST(x, target, LUGE_NONE), &a, 3e-7, "cross_entropy");
    }
}

/* ---- cross_entropy */

static void check_entropy(luge_dtype dtype, int64_t rows, int64_t classes, int variant)
{
    LUGE_SCOPE("entropy");
    const luge_tensor_options like = {.dtype = dtype};
    const lg_cross_entropy_attrs a = {.reduction = (luge_reduction)(variant % 3),
                                      .label_smoothing = variant / 3 % 2 * 0.1,
                                      .ignore_index = variant / 6 % 2 ? 1 : -100};
    luge_tensor *x = luge_mul_scalar(random_layout(LUGE_SHAPE(rows, classes), dtype, variant % 4), 2);
    luge_tensor *target = random_indices(LUGE_SHAPE(rows), classes, variant % INDEX_LAYOUTS);
    luge_tensor *weight =
        variant / 12 % 2 ? luge_abs(random_layout(LUGE_SHAPE(classes), dtype, variant % 4 == 2 ? 2 : 0)) : LUGE_NONE;
    char what[TEXT];
    snprintf(what, sizeof what, "cross_entropy %s %lld x %lld variant %d", luge_dtype_name(dtype), (long long)rows,
             (long long)classes, variant);
    check_kernel(&lg_op_cross_entropy, LUGE_LIST(x, target, weight), &a, bound_of(dtype), what);
    luge_tensor *out[LG_MAX_OUT];
    assert_int_equal(run_kernel(&lg_op_cross_entropy, LUGE_LIST(x, target, weight), &a, out), LUGE_OK);
    luge_tensor *g = a.reduction == LUGE_NO_REDUCTION ? random_layout(LUGE_SHAPE(rows), dtype, 2)
                                                      : luge_full(LUGE_SCALAR, 0.7, &like);
    check_kernel(&lg_op_cross_entropy_backward, LUGE_LIST(g, x, target, weight, out[1], out[2]), &a, bound_of(dtype),
                 what);
}

static void test_cross_entropy(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1},   {3, 2},   {5, 10},  {64, 10},   {7, 64},
                                       {70, 31}, {9, 128}, {9, 129}, {33, 1100}, {2000, 12}};
    for (int d = 0; d < 2; ++d)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
            for (int variant = 0; variant < 24; ++variant) {
                if (sizes[i][1] == 1 && reals[d] == LUGE_F64) continue; /* 0, but for rounding */
                check_entropy(reals[d], sizes[i][0], sizes[i][1], variant);
            }
}

/* The infinities of x, and rows of nothing else, among few and among many classes. */
static void test_cross_entropy_extremes(void **state)
{
    (void)state;
    const double inf = HUGE_VAL, nan = (double)NAN;
    const double values[][3] = {{-inf, 0, 1},    {1000, -1000, 0}, {-inf, -inf, -inf}, {inf, 0, 1},
                                {inf, 200, nan}, {nan, 1, 2},      {inf, inf, 0}};
    enum { ROWS = sizeof values / sizeof *values };
    luge_tensor *rows = luge_from_array(values, LUGE_F64, LUGE_SHAPE(ROWS, 3));
    const double smoothing[] = {0, 0.1, 1};
    for (int d = 0; d < 2; ++d)
        for (int64_t classes = 3; classes <= 603; classes += 600)
            for (int label = 0; label < 3; ++label)
                for (int s = 0; s < 3; ++s) {
                    LUGE_SCOPE("extremes");
                    luge_tensor *x = luge_zeros(LUGE_SHAPE(ROWS, classes), &(luge_tensor_options){.dtype = reals[d]}),
                                *out[LG_MAX_OUT];
                    luge_copy_(luge_slice(x, 1, 0, 3), luge_cast(rows, reals[d]));
                    luge_tensor *target = luge_full(LUGE_SHAPE(ROWS), label, &(luge_tensor_options){.dtype = LUGE_I64});
                    const lg_cross_entropy_attrs a = {
                        .reduction = LUGE_NO_REDUCTION, .label_smoothing = smoothing[s], .ignore_index = -100};
                    check_kernel(&lg_op_cross_entropy, LUGE_LIST(x, target, LUGE_NONE), &a, bound_of(reals[d]),
                                 "extremes");
                    assert_int_equal(run_kernel(&lg_op_cross_entropy, LUGE_LIST(x, target, LUGE_NONE), &a, out),
                                     LUGE_OK);
                    luge_tensor *g = luge_ones(LUGE_SHAPE(ROWS), &(luge_tensor_options){.dtype = reals[d]});
                    check_kernel(&lg_op_cross_entropy_backward, LUGE_LIST(g, x, target, LUGE_NONE, out[1], out[2]), &a,
                                 4 * bound_of(reals[d]), "slopes of extremes"); /* which cancel */
                }
}

static void test_cross_entropy_of_nothing(void **state)
{
    (void)state;
    const double inf = HUGE_VAL;
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2, 3), -inf, (double)NAN, 1, inf, 0, 1), *twos = LABELS(2, 2),
                *out[LG_MAX_OUT];
    const lg_cross_entropy_attrs all_ignored = {.ignore_index = 2}, sum = {.ignore_index = 2, .reduction = LUGE_SUM};
    check_kernel(&lg_op_cross_entropy, LUGE_LIST(x, twos, LUGE_NONE), &all_ignored, 1e-6, "all ignored");
    assert_int_equal(run_kernel(&lg_op_cross_entropy, LUGE_LIST(x, twos, LUGE_NONE), &sum, out), LUGE_OK);
    assert_values(out[0], 0);
    luge_tensor *g = luge_ones(LUGE_SCALAR, NULL);
    assert_int_equal(
        run_kernel(&lg_op_cross_entropy_backward, LUGE_LIST(g, x, twos, LUGE_NONE, out[1], out[2]), &all_ignored, out),
        LUGE_OK);
    assert_values(out[0], 0, 0, 0, 0, 0, 0);
    const lg_cross_entropy_attrs plain = {.ignore_index = -100};
    luge_tensor *none = luge_from_array((int64_t[]){0}, LUGE_I64, LUGE_SHAPE(0));
    check_kernel(&lg_op_cross_entropy, LUGE_LIST(luge_zeros(LUGE_SHAPE(0, 3), NULL), none, LUGE_NONE), &plain, 1e-6,
                 "no rows");
}

/* ---- losses of pairs */

static void test_pair_losses(void **state)
{
    (void)state;
    static const lg_op *const forward[] = {&lg_op_mse_loss, &lg_op_bce_with_logits};
    static const lg_op *const backward[] = {&lg_op_mse_loss_backward, &lg_op_bce_with_logits_backward};
    static const luge_shape few[] = {{.rank = 0},       {1, {1}},        {1, {17}},   {3, {3, 5, 7}},
                                     {4, {2, 3, 4, 5}}, {2, {130, 300}}, {1, {4097}}, {1, {0}}};
    for (int d = 0; d < 2; ++d)
        for (size_t i = 0; i < sizeof few / sizeof *few; ++i)
            for (int variant = 0; variant < 2 * 3 * (LAYOUTS + 1); ++variant) {
                LUGE_SCOPE("pairs");
                const lg_loss_attrs a = {.reduction = (luge_reduction)(variant / 2 % 3)};
                const int layout = variant / 6, binary = variant % 2;
                luge_tensor *x = luge_mul_scalar(any_layout(few[i], reals[d], layout), 4);
                luge_tensor *target = luge_sigmoid(any_layout(few[i], reals[d], (layout + variant) % (LAYOUTS + 1)));
                luge_tensor *g = a.reduction == LUGE_NO_REDUCTION
                                     ? any_layout(few[i], reals[d], (layout + 1) % (LAYOUTS + 1))
                                     : luge_full(LUGE_SCALAR, -0.3, &(luge_tensor_options){.dtype = reals[d]});
                char what[TEXT];
                snprintf(what, sizeof what, "%s %s shape %zu variant %d", forward[binary]->name,
                         luge_dtype_name(reals[d]), i, variant);
                check_kernel(forward[binary], LUGE_LIST(x, target), &a, bound_of(reals[d]), what);
                check_kernel(backward[binary], LUGE_LIST(g, x, target), &a, bound_of(reals[d]), what);
            }
}

/* Two tensors that lie in memory in the same unusual order are summed as they lie, others are not. */
static void test_pair_losses_in_order(void **state)
{
    (void)state;
    const lg_loss_attrs a = {.reduction = LUGE_SUM};
    luge_tensor *x = luge_channels_last(luge_randn(LUGE_SHAPE(2, 3, 4, 5), NULL)),
                *plain = luge_randn(LUGE_SHAPE(2, 3, 4, 5), NULL);
    check_kernel(&lg_op_mse_loss, LUGE_LIST(x, luge_channels_last(plain)), &a, 3e-6, "both channels-last");
    check_kernel(&lg_op_mse_loss, LUGE_LIST(x, plain), &a, 3e-6, "one channels-last");
    check_kernel(&lg_op_mse_loss, LUGE_LIST(plain, x), &a, 3e-6, "the other channels-last");
}

static void test_binary_AMP_03(void **state)
{
    (void)state;
    const double inf = HUGE_VAL;
    const lg_loss_attrs a = {.reduction = LUGE_NO_REDUCTION};
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(5), inf, -inf, -inf, inf, -20),
                *target = LUGE_TENSOR(LUGE_SHAPE(5), 1, 0, 1, 0, 1);
    luge_tensor *out[LG_MAX_OUT];
    assert_int_equal(run_kernel(&lg_op_bce_with_logits, LUGE_LIST(x, target), &a, out), LUGE_OK);
    assert_values(out[0], 0, 0, inf, inf, 20);
    check_kernel(&lg_op_bce_with_logits, LUGE_LIST(x, target), &(lg_loss_attrs){LUGE_SUM}, 1e-6, "summed");
    check_kernel(&lg_op_bce_with_logits_backward, LUGE_LIST(luge_ones_like(x), x, target), &a, 1e-6,
                 "slopes at infinity");
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        OP_TEST(test_embedding),
        OP_TEST(test_embedding_backward),
        OP_TEST(test_embedding_backward_adds_in_f64),
        OP_TEST(test_embedding_backward_changed_indices),
        OP_TEST(test_dropout),
        OP_TEST(test_dropout_drops_anything),
        OP_TEST(test_softmax),
        OP_TEST(test_softmax_row_lengths),
        OP_TEST(test_softmax_NUM_06),
        OP_TEST(test_log_softmax_far_from_0),
        OP_TEST(test_cross_entropy),
        OP_TEST(test_cross_entropy_extremes),
        OP_TEST(test_cross_entropy_of_nothing),
        OP_TEST(test_pair_losses),
        OP_TEST(test_pair_losses_in_order),
        OP_TEST(test_binary_AMP_03),
    };
    int failed = 0;
    luge_device_usable(luge_device_cpu()); /* chooses one */
    for (int isa = 0; isa < LG_ISA_COUNT; ++isa)
        if (lg_cpu_set_isa((lg_isa)isa))
            failed += cmocka_run_group_tests_name(lg_isa_name((lg_isa)isa), tests, NULL, NULL);
    return failed;
}
