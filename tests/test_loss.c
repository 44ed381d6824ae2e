/* Losses and accuracy (ops/loss.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/ops.h"

#define CE(...) (&(luge_cross_entropy_options){__VA_ARGS__})

static void test_cross_entropy_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    /* probabilities 1/4 and 3/4 */
    luge_tensor *x = luge_log(F64(LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 3, 3, 1))), *t = LABELS(0, 0);
    const double four = log(4), less = log(4. / 3);
    assert_near(luge_item(luge_cross_entropy(x, t, NULL)), (four + less) / 2, 1e-15);
    assert_near(luge_item(luge_cross_entropy(x, t, CE(.reduction = LUGE_SUM))), four + less, 1e-15);
    assert_close(luge_cross_entropy(x, t, CE(.reduction = LUGE_NO_REDUCTION)),
                 luge_from_array((double[]){four, less}, LUGE_F64, LUGE_SHAPE(2)), 1e-14, "each for itself");
    /* smoothing 0.5: 3/4 of the target and 1/4 of the other */
    assert_near(luge_item(luge_cross_entropy(luge_slice(x, 0, 0, 1), LABELS(0), CE(.label_smoothing = 0.5))),
                0.75 * four + 0.25 * less, 1e-15);
    /* weights: 2 (four) + 5 (less) over 2 + 5, as the second target is class 1 */
    luge_tensor *w = F64(LUGE_TENSOR(LUGE_SHAPE(2), 2, 5));
    assert_near(luge_item(luge_cross_entropy(x, LABELS(0, 1), CE(.weight = w))), (2 * four + 5 * four) / 7, 1e-15);
    assert_near(luge_item(luge_cross_entropy(x, LABELS(0, 1), CE(.weight = w, .reduction = LUGE_SUM))), 7 * four,
                1e-14);
    /* ignored rows */
    const int64_t one = 1;
    assert_near(luge_item(luge_cross_entropy(x, LABELS(0, 1), CE(.ignore_index = &one))), four, 1e-15);
    assert_near(luge_item(luge_cross_entropy(x, LABELS(-100, 0), NULL)), less, 1e-15);
    assert_text(luge_cross_entropy(x, LABELS(-100, -100), CE(.reduction = LUGE_NO_REDUCTION)), "[0, 0]");
    assert_text(luge_cross_entropy(x, LABELS(-100, -100), CE(.reduction = LUGE_SUM)), "0");
    assert_text(luge_cross_entropy(x, LABELS(-100, -100), NULL), "nan"); /* 0 / 0, as in PyTorch */
    assert_near(luge_item(luge_cross_entropy(x, luge_cast(LABELS(0, 0), LUGE_I32), NULL)), (four + less) / 2, 1e-15);
}

/* The definition, from log_softmax and one-hot rows, with everything at once. */
static void test_cross_entropy_against_its_definition(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    enum { N = 7, C = 5 };
    const int64_t labels[N] = {0, 4, 2, 2, 1, 3, 2}, skip = 2;
    const double s = 0.3;
    luge_tensor *x = constant(LUGE_SHAPE(N, C)), *w = luge_add_scalar(luge_square(constant(LUGE_SHAPE(C))), 0.1);
    double logp[N * C], weight[C], sum = 0, count = 0;
    assert_int_equal(luge_to_array(luge_log_softmax(x, 1), logp, LUGE_F64, N * C), LUGE_OK);
    assert_int_equal(luge_to_array(w, weight, LUGE_F64, C), LUGE_OK);
    for (int n = 0; n < N; ++n) {
        if (labels[n] == skip) continue;
        count += weight[labels[n]];
        sum -= (1 - s) * weight[labels[n]] * logp[n * C + labels[n]];
        for (int c = 0; c < C; ++c) sum -= s / C * weight[c] * logp[n * C + c];
    }
    luge_tensor *t = luge_from_array(labels, LUGE_I64, LUGE_SHAPE(N));
    assert_near(luge_item(luge_cross_entropy(x, t, CE(.weight = w, .label_smoothing = s, .ignore_index = &skip))),
                sum / count, 1e-14);
    assert_near(luge_item(luge_cross_entropy(
                    x, t, CE(.weight = w, .label_smoothing = s, .ignore_index = &skip, .reduction = LUGE_SUM))),
                sum, 1e-13);
}

static void test_cross_entropy_of_images(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = leaf(LUGE_SHAPE(2, 3, 2, 2));
    luge_tensor *t = luge_reshape(LABELS(0, 1, 2, 0, 2, -100, 1, 1), LUGE_SHAPE(2, 2, 2));
    luge_tensor *rows = luge_reshape(luge_permute(x, LUGE_AXES(0, 2, 3, 1)), LUGE_SHAPE(8, 3)),
                *flat = luge_reshape(t, LUGE_SHAPE(8));
    assert_near(luge_item(luge_cross_entropy(x, t, NULL)), luge_item(luge_cross_entropy(rows, flat, NULL)), 1e-15);
    luge_tensor *each = luge_cross_entropy(x, t, CE(.reduction = LUGE_NO_REDUCTION));
    assert_close(each,
                 luge_reshape(luge_cross_entropy(rows, flat, CE(.reduction = LUGE_NO_REDUCTION)), LUGE_SHAPE(2, 2, 2)),
                 1e-14, "each");
    assert_close(luge_cross_entropy(luge_channels_last(x), t, CE(.reduction = LUGE_NO_REDUCTION)), each, 1e-14,
                 "channels-last");
}

typedef struct entropy {
    luge_tensor *target;
    luge_cross_entropy_options options;
} entropy;
static luge_tensor *entropy_of(luge_list in, void *user)
{
    const entropy *e = user;
    return luge_cross_entropy(in.items[0], e->target, &e->options);
}

static void test_cross_entropy_gradients(void **state)
{
    (void)state;
    static const int64_t skip = 1;
    for (int i = 0; i < 24; ++i) {
        LUGE_SCOPE("test");
        entropy e = {.target = LABELS(0, 2, 1, 3, -100)};
        e.options.reduction = (luge_reduction)(i % 3);
        if (i / 3 & 1) e.options.label_smoothing = 0.2;
        if (i / 6 & 1) e.options.weight = luge_add_scalar(luge_square(constant(LUGE_SHAPE(4))), 0.1);
        if (i / 12 & 1) {
            e.options.ignore_index = &skip;
            e.target = LABELS(0, 2, 1, 3, 1);
        }
        assert_gradients(entropy_of, LUGE_LIST(leaf(LUGE_SHAPE(5, 4))), &e, "cross_entropy");
    }
    LUGE_SCOPE("test");
    entropy e = {.target = luge_reshape(LABELS(0, 2, 1, 1), LUGE_SHAPE(2, 2)),
                 .options = {.reduction = LUGE_NO_REDUCTION}};
    assert_gradients(entropy_of, LUGE_LIST(leaf(LUGE_SHAPE(2, 3, 2))), &e, "of sequences");
}

static void test_cross_entropy_gradient_of_ignored_rows(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(1, 2), 1, 2));
    luge_tensor *nothing = luge_cross_entropy(x, LABELS(-100), NULL);
    luge_backward(nothing);
    assert_text(luge_tensor_grad(x), "[[0, 0]]");
    luge_tensor *bad = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(3, 2), NAN, 0, 0, 0, INFINITY, 1)),
                *g = luge_ones(LUGE_SCALAR, NULL);
    for (int create = 0; create < 2; ++create) {
        const luge_backward_options o = {.gradient = g, .create_graph = create == 1};
        assert_values(luge_grad(luge_cross_entropy(x, LABELS(-100), NULL), x, &o), 0, 0);
        assert_values(luge_grad(luge_cross_entropy(bad, LABELS(-100, 1, -100), NULL), bad, &o), 0, 0, 0.5, -0.5, 0, 0);
    }
}

static void test_NUM_05_label_out_of_range(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(luge_zeros(LUGE_SHAPE(2, 8), NULL));
    static const int64_t wrong[] = {8, -1, -4, 1000, INT64_MIN, INT64_MAX};
    static const char *const text[] = {"target 8 at",
                                       "target -1 at",
                                       "target -4 at",
                                       "target 1000 at",
                                       "target -9223372036854775808 at",
                                       "target 9223372036854775807 at"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
        luge_tensor *t = LABELS(7, wrong[i]);
        if (noticed(luge_cross_entropy(x, t, NULL)) != NULL) fail_msg("label %lld was taken", (long long)wrong[i]);
        assert_refused(NULL, LUGE_ERR_ARGUMENT, text[i]);
    }
    noticed(luge_cross_entropy(x, luge_reshape(LABELS(8, 0), LUGE_SHAPE(2)), NULL));
    assert_refused(NULL, LUGE_ERR_ARGUMENT, "cross_entropy: target 8 at position 0 is not in [0, 8)");
    /* and goes on working */
    assert_near(luge_item(luge_cross_entropy(x, LABELS(7, 0), NULL)), log(8), 1e-6);
}

static void test_AMP_06_cross_entropy_in_f32(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(luge_cast(LUGE_TENSOR(LUGE_SHAPE(1, 2), 0, 20), LUGE_F16));
    luge_tensor *loss;
    {
        LUGE_AUTOCAST(LUGE_F16);
        loss = luge_cross_entropy(x, LABELS(0), NULL);
    }
    assert_int_equal(luge_tensor_dtype(loss), LUGE_F32);
    assert_near(luge_item(loss), 20, 1e-5);
    luge_backward(loss);
    assert_int_equal(luge_tensor_dtype(luge_tensor_grad(x)), LUGE_F16);
    assert_text(luge_tensor_grad(x), "[[-1, 1]]");
    /* without autocast a half loss stays half, computed in f32 */
    luge_tensor *half = luge_cross_entropy(luge_detach(x), LABELS(0), NULL);
    assert_int_equal(luge_tensor_dtype(half), LUGE_F16);
    assert_near(luge_item(half), 20, 0);
}

static void test_cross_entropy_extremes(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(1, 3), 1e38, -1e38, -INFINITY));
    assert_near(luge_item(luge_cross_entropy(x, LABELS(0), NULL)), 0, 0);
    assert_text(luge_cross_entropy(x, LABELS(2), NULL), "inf");
    luge_backward(luge_cross_entropy(x, LABELS(0), NULL));
    assert_text(luge_tensor_grad(x), "[[0, 0, 0]]");
    luge_tensor *empty = luge_cross_entropy(luge_zeros(LUGE_SHAPE(0, 3), NULL),
                                            luge_zeros(LUGE_SHAPE(0), &(luge_tensor_options){.dtype = LUGE_I64}),
                                            CE(.reduction = LUGE_SUM));
    assert_text(empty, "0");
}

static void test_cross_entropy_wrong_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_zeros(LUGE_SHAPE(2, 3), NULL), *t = LABELS(0, 1);
    assert_text(luge_cross_entropy(x, t, &(luge_cross_entropy_options){.weight = LUGE_NONE}),
                luge_text(luge_cross_entropy(x, t, NULL)));
    assert_refused(luge_cross_entropy(NULL, t, NULL), LUGE_ERR_ARGUMENT, "cross_entropy: the logits");
    assert_refused(luge_cross_entropy(x, NULL, NULL), LUGE_ERR_ARGUMENT, "cross_entropy: the target");
    assert_refused(luge_cross_entropy(x, LUGE_NONE, NULL), LUGE_ERR_ARGUMENT, "cross_entropy: the target");
    assert_refused(luge_cross_entropy(x, LABELS(0, 1, 2), NULL), LUGE_ERR_SHAPE,
                   "cross_entropy: logits [2, 3] and target [3] must be");
    assert_refused(luge_cross_entropy(luge_select(x, 0, 0), LABELS(0), NULL), LUGE_ERR_SHAPE,
                   "cross_entropy: logits [3]");
    assert_refused(luge_cross_entropy(luge_zeros(LUGE_SHAPE(2, 3, 4), NULL),
                                      luge_reshape(LABELS(0, 1, 0, 1, 0, 1), LUGE_SHAPE(2, 3)), NULL),
                   LUGE_ERR_SHAPE, "[2, 3, 4] and target [2, 3]");
    assert_refused(luge_cross_entropy(luge_zeros(LUGE_SHAPE(2, 0), NULL), t, NULL), LUGE_ERR_SHAPE, "[2, 0]");
    assert_refused(luge_cross_entropy(x, luge_cast(t, LUGE_F32), NULL), LUGE_ERR_DTYPE,
                   "cross_entropy: the target is f32, but must be i64 or i32");
    assert_refused(luge_cross_entropy(luge_cast(x, LUGE_I64), t, NULL), LUGE_ERR_DTYPE,
                   "cross_entropy: the logits is i64");
    assert_refused(luge_cross_entropy(x, t, CE(.weight = luge_ones(LUGE_SHAPE(2), NULL))), LUGE_ERR_SHAPE,
                   "the weight is [2], but must be [3]");
    assert_refused(luge_cross_entropy(x, t, CE(.weight = F64(luge_ones(LUGE_SHAPE(3), NULL)))), LUGE_ERR_DTYPE,
                   "the weight is f64");
    assert_refused(luge_cross_entropy(x, t, CE(.weight = luge_requires_grad_(luge_ones(LUGE_SHAPE(3), NULL)))),
                   LUGE_ERR_UNSUPPORTED, "luge_detach(weight)");
    assert_refused(luge_cross_entropy(x, t, CE(.label_smoothing = 1.5)), LUGE_ERR_ARGUMENT,
                   "cross_entropy: label smoothing is 1.5");
    assert_refused(luge_cross_entropy(x, t, CE(.label_smoothing = -0.1)), LUGE_ERR_ARGUMENT, "label smoothing is -0.1");
    assert_refused(luge_cross_entropy(x, t, CE(.label_smoothing = NAN)), LUGE_ERR_ARGUMENT, "label smoothing is nan");
    assert_refused(luge_cross_entropy(x, t, CE(.reduction = (luge_reduction)3)), LUGE_ERR_ARGUMENT,
                   "cross_entropy: 3 is no luge_reduction");
    assert_refused(luge_cross_entropy(x, t, CE(.reserved = {1})), LUGE_ERR_ARGUMENT, "luge_cross_entropy_options");
}

/* ---- losses of pairs */

static void test_mse_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 2, 3, 4), *t = LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 0, 0, 1);
    assert_text(luge_mse_loss(x, t, NULL), "5.5");
    assert_text(luge_mse_loss(x, t, &(luge_loss_options){.reduction = LUGE_SUM}), "22");
    assert_text(luge_mse_loss(x, luge_transpose(t, 0, 1), &(luge_loss_options){.reduction = LUGE_NO_REDUCTION}),
                "[[0, 4], [9, 9]]");
    assert_text(luge_mse_loss(x, luge_cast(t, LUGE_I64), NULL), "5.5");
    assert_text(luge_mse_loss(luge_zeros(LUGE_SHAPE(0), NULL), luge_zeros(LUGE_SHAPE(0), NULL), NULL), "nan");
    luge_tensor *ones = luge_ones(LUGE_SHAPE(4096), &(luge_tensor_options){.dtype = LUGE_F16});
    assert_text(luge_mse_loss(luge_mul_scalar(ones, 300), luge_zeros_like(ones), NULL),
                "inf"); /* 90000 itself does not fit */
    assert_text(luge_mse_loss(luge_mul_scalar(ones, 200), luge_zeros_like(ones), NULL), "40000");
    LUGE_AUTOCAST(LUGE_F16);
    assert_text(luge_mse_loss(luge_mul_scalar(ones, 300), luge_zeros_like(ones), NULL), "90000");
}

static void test_bce_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = F64(LUGE_TENSOR(LUGE_SHAPE(3), 0, 2, -2)), *t = F64(LUGE_TENSOR(LUGE_SHAPE(3), 1, 0, 0.25));
    const double l0 = log(2), l1 = log1p(exp(2)), l2 = 0.25 * log1p(exp(2)) + 0.75 * log1p(exp(-2));
    assert_near(luge_item(luge_bce_with_logits(x, t, NULL)), (l0 + l1 + l2) / 3, 1e-15);
    assert_near(luge_item(luge_bce_with_logits(x, t, &(luge_loss_options){.reduction = LUGE_SUM})), l0 + l1 + l2,
                1e-14);
    /* accurate where the loss is tiny */
    luge_tensor *sure =
        luge_bce_with_logits(F64(LUGE_TENSOR(LUGE_SHAPE(1), 30)), F64(LUGE_TENSOR(LUGE_SHAPE(1), 1)), NULL);
    assert_near(luge_item(sure) / exp(-30), 1, 1e-12);
}

static void test_AMP_02_bce_in_half(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(luge_cast(LUGE_TENSOR(LUGE_SHAPE(1), -20), LUGE_F16)), *loss;
    {
        LUGE_AUTOCAST(LUGE_F16);
        loss = luge_bce_with_logits(x, LUGE_TENSOR(LUGE_SHAPE(1), 1), NULL);
    }
    assert_int_equal(luge_tensor_dtype(loss), LUGE_F32);
    assert_near(luge_item(loss), 20, 1e-6);
    luge_backward(loss);
    assert_near(luge_item(luge_tensor_grad(x)), -1, 1e-6);
}

static void test_AMP_03_bce_at_infinite_logits(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    const luge_loss_options each = {.reduction = LUGE_NO_REDUCTION};
    luge_tensor *x = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(4), INFINITY, -INFINITY, -INFINITY, INFINITY));
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(4), 1, 0, 1, 0);
    luge_tensor *y = luge_bce_with_logits(x, t, &each);
    assert_text(y, "[0, 0, inf, inf]");
    luge_tensor *ones = luge_ones(LUGE_SHAPE(4), NULL);
    luge_backward_with(y, &(luge_backward_options){.gradient = ones, .retain_graph = true});
    assert_text(luge_tensor_grad(x), "[0, 0, -1, 1]");
    assert_text(luge_grad(y, x, &(luge_backward_options){.gradient = ones, .create_graph = true}), "[0, 0, -1, 1]");
    luge_tensor *wide = luge_bce_with_logits(F64(luge_detach(x)), F64(t), &each);
    assert_text(wide, "[0, 0, inf, inf]");
}

typedef struct pairs {
    bool mse;
    luge_loss_options options;
} pairs;
static luge_tensor *loss_of(luge_list in, void *user)
{
    const pairs *p = user;
    return (p->mse ? luge_mse_loss : luge_bce_with_logits)(in.items[0], in.items[1], &p->options);
}
static luge_tensor *loss_of_turned(luge_list in, void *user)
{
    luge_tensor *x = luge_transpose(in.items[0], 0, 1);
    return loss_of(LUGE_LIST(x, in.items[1]), user);
}

static void test_pair_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < 6; ++i) {
        LUGE_SCOPE("test");
        pairs p = {.mse = i < 3, .options = {.reduction = (luge_reduction)(i % 3)}};
        luge_tensor *x = leaf(LUGE_SHAPE(3, 2)), *t = leaf(LUGE_SHAPE(3, 2));
        assert_gradients(loss_of, LUGE_LIST(x, t), &p, "both");
        assert_gradients(loss_of, LUGE_LIST(x, luge_detach(t)), &p, "the input");
        assert_gradients(loss_of, LUGE_LIST(luge_detach(x), t), &p, "the target");
        assert_gradients(loss_of_turned, LUGE_LIST(leaf(LUGE_SHAPE(2, 3)), t), &p, "turned");
    }
}

static void test_pairs_wrong_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_zeros(LUGE_SHAPE(2, 3), NULL), *t = luge_zeros(LUGE_SHAPE(3), NULL);
    assert_refused(luge_mse_loss(x, t, NULL), LUGE_ERR_SHAPE,
                   "mse_loss: input [2, 3] and target [3] must have the same shape");
    assert_refused(luge_bce_with_logits(t, x, NULL), LUGE_ERR_SHAPE, "bce_with_logits: input [3] and target [2, 3]");
    assert_refused(luge_mse_loss(NULL, t, NULL), LUGE_ERR_ARGUMENT, "mse_loss: input 0 is NULL");
    assert_refused(luge_mse_loss(x, LUGE_NONE, NULL), LUGE_ERR_ARGUMENT, "mse_loss: input 1 is LUGE_NONE");
    assert_refused(luge_bce_with_logits(x, NULL, NULL), LUGE_ERR_ARGUMENT, "bce_with_logits: input 1 is NULL");
    assert_refused(luge_mse_loss(x, x, &(luge_loss_options){.reduction = (luge_reduction)-1}), LUGE_ERR_ARGUMENT,
                   "mse_loss: -1 is no luge_reduction");
    assert_refused(luge_bce_with_logits(x, x, &(luge_loss_options){.reduction = (luge_reduction)9}), LUGE_ERR_ARGUMENT,
                   "bce_with_logits: 9 is no luge_reduction");
    assert_refused(luge_mse_loss(x, x, &(luge_loss_options){.reserved = {0, 1}}), LUGE_ERR_ARGUMENT,
                   "luge_loss_options");
}

/* ---- accuracy */

static void test_accuracy(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(4, 3), 1, 2, 3, 3, 2, 1, 1, 5, 5, 0, 0, 0));
    luge_tensor *share = luge_accuracy(x, LABELS(2, 1, 1, 0)); /* the first of equal ones counts */
    assert_text(share, "0.75");
    assert_false(luge_tensor_requires_grad(share));
    assert_int_equal(luge_tensor_dtype(share), LUGE_F32);
    assert_text(luge_accuracy(x, luge_cast(LABELS(2, 0, 1, 0), LUGE_I32)), "1");
    assert_text(luge_accuracy(x, LABELS(-100, -100, -100, -100)), "0");
    assert_text(luge_accuracy(x, LABELS(2, 3, 99, INT64_MIN)), "0.25"); /* no such classes: never right */
    assert_refused(luge_accuracy(NULL, LABELS(1)), LUGE_ERR_ARGUMENT, "accuracy: the logits");
    assert_refused(luge_accuracy(x, LUGE_NONE), LUGE_ERR_ARGUMENT, "accuracy: the target");
    assert_refused(luge_accuracy(x, LABELS(1)), LUGE_ERR_SHAPE, "accuracy: logits [4, 3] and target [1] must be");
    assert_refused(luge_accuracy(luge_select(x, 0, 0), LABELS(1)), LUGE_ERR_SHAPE, "accuracy: logits [3]");
    assert_refused(luge_accuracy(x, luge_zeros(LUGE_SHAPE(4), NULL)), LUGE_ERR_DTYPE, "accuracy: the target is f32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_cross_entropy_values),
        OP_TEST(test_cross_entropy_against_its_definition),
        OP_TEST(test_cross_entropy_of_images),
        OP_TEST(test_cross_entropy_gradients),
        OP_TEST(test_cross_entropy_gradient_of_ignored_rows),
        OP_TEST(test_NUM_05_label_out_of_range),
        OP_TEST(test_AMP_06_cross_entropy_in_f32),
        OP_TEST(test_cross_entropy_extremes),
        OP_TEST(test_cross_entropy_wrong_inputs),
        OP_TEST(test_mse_values),
        OP_TEST(test_bce_values),
        OP_TEST(test_AMP_02_bce_in_half),
        OP_TEST(test_AMP_03_bce_at_infinite_logits),
        OP_TEST(test_pair_gradients),
        OP_TEST(test_pairs_wrong_inputs),
        OP_TEST(test_accuracy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
