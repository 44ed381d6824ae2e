/* luge_attention (ops/attention.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/support/compare.h"
#include "tests/support/ops.h"

static void test_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    /* scores log 3 and 0: weights 3/4 and 1/4 */
    luge_tensor *q = LUGE_TENSOR(LUGE_SHAPE(1, 1), log(3)), *k = LUGE_TENSOR(LUGE_SHAPE(2, 1), 1, 0);
    luge_tensor *v = LUGE_TENSOR(LUGE_SHAPE(2, 3), 4, 8, 0, 0, 4, 4);
    assert_text(luge_attention(q, k, v, LUGE_NONE, NULL), "[[3, 7, 1]]");
    assert_text(luge_attention(q, k, v, LUGE_NONE, &(luge_attention_options){.scale = 2}), "[[3.6, 7.6, 0.4]]");
    assert_text(luge_attention(q, k, v, LUGE_TENSOR(LUGE_SHAPE(2), -log(3), 0), NULL), "[[2, 6, 2]]");
    luge_tensor *only = luge_cast(LUGE_TENSOR(LUGE_SHAPE(1, 2), 0, 1), LUGE_BOOL);
    assert_text(luge_attention(q, k, v, only, NULL), "[[0, 4, 4]]");
    /* the default scale is 1 / sqrt(D) */
    luge_tensor *wide = luge_mul_scalar(luge_ones(LUGE_SHAPE(1, 4), NULL), log(3) / 2);
    luge_tensor *keys = LUGE_TENSOR(LUGE_SHAPE(2, 4), 1, 1, 1, 1, 0, 0, 0, 0);
    assert_text(luge_attention(wide, keys, v, LUGE_NONE, NULL), "[[3, 7, 1]]");
}

static void test_causal(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *zero = luge_zeros(LUGE_SHAPE(4, 2), NULL), *v = LUGE_TENSOR(LUGE_SHAPE(4, 1), 12, 24, 36, 48);
    const luge_attention_options causal = {.causal = true};
    assert_text(luge_attention(zero, zero, v, LUGE_NONE, &causal), "[[12], [18], [24], [30]]");
    assert_text(luge_attention(luge_slice(zero, 0, 0, 2), zero, v, LUGE_NONE, &causal), "[[12], [18]]");
    luge_tensor *not_first = luge_cast(LUGE_TENSOR(LUGE_SHAPE(4), 0, 1, 1, 1), LUGE_BOOL);
    assert_text(luge_attention(zero, zero, v, not_first, &causal), "[[0], [24], [30], [36]]");
}

typedef struct heads {
    luge_tensor *mask;
    luge_attention_options options;
} heads;
static luge_tensor *attend(luge_list in, void *user)
{
    const heads *h = user;
    luge_seed(11);
    return luge_attention(in.items[0], in.items[1], in.items[2], in.count > 3 ? in.items[3] : h->mask, &h->options);
}

static void test_gradients(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    heads h = {.mask = LUGE_NONE};
    luge_tensor *q = leaf(LUGE_SHAPE(2, 2, 3, 2)), *k = leaf(LUGE_SHAPE(2, 2, 4, 2)), *v = leaf(LUGE_SHAPE(2, 2, 4, 3));
    assert_gradients(attend, LUGE_LIST(q, k, v), &h, "attention");
    assert_gradients(attend, LUGE_LIST(q, k, v, leaf(LUGE_SHAPE(3, 4))), &h, "with a mask that is trained");
    h.options = (luge_attention_options){.causal = true, .scale = 0.3};
    assert_gradients(attend, LUGE_LIST(q, k, v), &h, "causal");
    h.options = (luge_attention_options){.dropout = 0.4};
    assert_gradients(attend, LUGE_LIST(q, k, v), &h, "with dropout");
    h.mask = luge_cast(LUGE_TENSOR(LUGE_SHAPE(3, 4), 1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0), LUGE_BOOL);
    assert_gradients(attend, LUGE_LIST(q, k, v), &h, "with a masked row");
    heads plain = {.mask = LUGE_NONE};
    assert_gradients(attend, LUGE_LIST(leaf(LUGE_SHAPE(3, 2)), leaf(LUGE_SHAPE(2, 1, 4, 2)), v), &plain,
                     "broadcast heads");
}

static void test_NUM_06_masked_row_gives_zeros(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *q = luge_requires_grad_(luge_ones(LUGE_SHAPE(2, 2), NULL)), *v = luge_ones(LUGE_SHAPE(2, 1), NULL);
    luge_tensor *mask = luge_cast(LUGE_TENSOR(LUGE_SHAPE(2, 2), 0, 0, 1, 1), LUGE_BOOL);
    luge_tensor *y = luge_attention(q, luge_detach(q), v, mask, NULL);
    assert_text(y, "[[0], [1]]");
    luge_backward(luge_sum(y, LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(q), 0, 0, 0, 0);
}

static void test_autocast(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(luge_randn(LUGE_SHAPE(2, 8, 16), NULL)), *y;
    luge_tensor *mask = luge_zeros(LUGE_SHAPE(8, 8), NULL);
    {
        LUGE_AUTOCAST(LUGE_BF16);
        y = luge_attention(x, x, x, mask, &(luge_attention_options){.causal = true});
    }
    assert_int_equal(luge_tensor_dtype(y), LUGE_BF16);
    assert_close(luge_cast(luge_detach(y), LUGE_F32),
                 luge_attention(luge_detach(x), luge_detach(x), luge_detach(x), LUGE_NONE,
                                &(luge_attention_options){.causal = true}),
                 0.03, "bf16");
    backward_of(y);
    assert_int_equal(luge_tensor_dtype(luge_tensor_grad(x)), LUGE_F32);
}

static void test_wrong_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *q = luge_zeros(LUGE_SHAPE(2, 3, 4), NULL), *k = luge_zeros(LUGE_SHAPE(2, 5, 4), NULL),
                *none = LUGE_NONE;
    assert_refused(luge_attention(NULL, k, k, none, NULL), LUGE_ERR_ARGUMENT, "attention: q");
    assert_refused(luge_attention(q, NULL, k, none, NULL), LUGE_ERR_ARGUMENT, "attention: k");
    assert_refused(luge_attention(q, k, none, none, NULL), LUGE_ERR_ARGUMENT, "attention: v");
    assert_refused(luge_attention(q, k, k, NULL, NULL), LUGE_ERR_ARGUMENT, "attention: the mask");
    assert_refused(luge_attention(q, luge_zeros(LUGE_SHAPE(2, 5, 3), NULL), k, none, NULL), LUGE_ERR_SHAPE,
                   "attention: q [2, 3, 4], k [2, 5, 3], v [2, 5, 4] must be");
    assert_refused(luge_attention(q, k, q, none, NULL), LUGE_ERR_SHAPE, "v [2, 3, 4] must be [.., L, D], [.., S, D], [.., S, E]: S of k and of v differ");
    assert_refused(luge_attention(q, luge_select(luge_select(k, 0, 0), 0, 0), k, none, NULL), LUGE_ERR_SHAPE, "k [4]");
    assert_refused(luge_attention(luge_slice(q, 2, 0, 0), luge_slice(k, 2, 0, 0), k, none, NULL), LUGE_ERR_SHAPE,
                   "D is 0, which leaves nothing to compare");
    assert_refused(
        luge_attention(q, luge_zeros(LUGE_SHAPE(3, 5, 4), NULL), luge_zeros(LUGE_SHAPE(3, 5, 4), NULL), none, NULL),
        LUGE_ERR_SHAPE, "leading axes do not broadcast");
    assert_refused(luge_attention(q, k, k, luge_zeros(LUGE_SHAPE(3, 4), NULL), NULL), LUGE_ERR_SHAPE,
                   "the mask [3, 4] does not broadcast to the scores [2, 3, 5]");
    assert_refused(luge_attention(q, k, k, luge_zeros(LUGE_SHAPE(7, 1, 3, 5), NULL), NULL), LUGE_ERR_SHAPE,
                   "the mask [7, 1, 3, 5]");
    assert_refused(luge_attention(q, k, k, luge_cast(luge_zeros(LUGE_SHAPE(3, 5), NULL), LUGE_U8), NULL),
                   LUGE_ERR_DTYPE, "attention: the mask is u8");
    assert_refused(luge_attention(q, k, k, none, &(luge_attention_options){.dropout = 1.5}), LUGE_ERR_ARGUMENT,
                   "attention: dropout is 1.5, but must lie in [0, 1]");
    assert_refused(luge_attention(q, k, k, none, &(luge_attention_options){.scale = INFINITY}), LUGE_ERR_ARGUMENT,
                   "attention: scale is inf, but must be finite");
    assert_refused(luge_attention(q, k, k, none, &(luge_attention_options){.reserved = {1}}), LUGE_ERR_ARGUMENT,
                   "luge_attention_options");
    assert_refused(luge_attention(luge_cast(q, LUGE_I64), k, k, none, NULL), LUGE_ERR_DTYPE,
                   "attention: q, k and v are i64, f32 and f32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_values),    OP_TEST(test_causal),
        OP_TEST(test_gradients), OP_TEST(test_NUM_06_masked_row_gives_zeros),
        OP_TEST(test_autocast),  OP_TEST(test_wrong_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
