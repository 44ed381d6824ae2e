/* dropout and embedding (ops/dropout.c, ops/embedding.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/rng.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/ops.h"

/* Element i in row-major order is decided by number i of the thread's stream, whatever the layout. */
static void test_which_elements_stay(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    enum { N = 2 * 3 * 5 * 7 };
    luge_seed(5);
    const lg_rng_range range = lg_rng_take(N);
    float expected[N];
    for (int i = 0; i < N; ++i) {
        const uint32_t bits = lg_philox_block(range.seed, range.stream, range.first + (uint64_t)i / 4).v[i % 4];
        expected[i] = bits >= 0x40000000u ? 1 / 0.75f : 0; /* p = 1/4 */
    }
    luge_tensor *x = luge_ones(LUGE_SHAPE(2, 3, 5, 7), NULL),
                *y = luge_from_array(expected, LUGE_F32, LUGE_SHAPE(2, 3, 5, 7));
    luge_seed(5);
    assert_close(luge_dropout(x, 0.25, true), y, 1e-7, "row-major");
    luge_seed(5);
    luge_tensor *last = luge_dropout(luge_channels_last(x), 0.25, true);
    assert_true(luge_tensor_stride(last, 1) == 1);
    assert_close(last, y, 1e-7, "channels-last");
    luge_seed(5);
    assert_close(luge_dropout(luge_expand(luge_ones(LUGE_SHAPE(1), NULL), LUGE_SHAPE(2, 3, 5, 7)), 0.25, true), y, 1e-7,
                 "expanded");
    luge_seed(5);
    assert_close(luge_dropout(F64(x), 0.25, true), F64(y), 1e-7, "f64");
    luge_seed(5);
    luge_tensor *half = luge_dropout(luge_cast(x, LUGE_F16), 0.25, true);
    assert_int_equal(luge_tensor_dtype(half), LUGE_F16);
    assert_close(half, luge_cast(y, LUGE_F16), 1e-3, "f16");
    /* the next call draws other numbers */
    assert_true(relative_error(luge_dropout(x, 0.25, true), y) > 0.1);
}

static void test_share_that_stays(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *y = luge_dropout(luge_ones(LUGE_SHAPE(100000), NULL), 0.2, true);
    assert_near(luge_item(luge_mean(y, LUGE_ALL_AXES)), 1, 0.01);
    assert_near(luge_item(luge_max(y, LUGE_ALL_AXES)), 1.25, 1e-6);
    /* what goes, goes, whatever it was */
    luge_tensor *bad = luge_dropout(luge_full(LUGE_SHAPE(64), NAN, NULL), 0.5, true);
    assert_true(luge_item(luge_sum(luge_cast(luge_eq(bad, luge_zeros_like(bad)), LUGE_F32), LUGE_ALL_AXES)) > 8);
}

static void test_CKP_01_gradient_has_the_mask_of_forward(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(luge_ones(LUGE_SHAPE(4096), NULL)), *y = luge_dropout(x, 0.5, true);
    luge_backward(luge_sum(y, LUGE_ALL_AXES));
    assert_true(same_bits(luge_tensor_grad(x), luge_detach(y)));
}

static void test_NUM_10_edges(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    static const struct {
        double p;
        bool training;
        double value;
    } cases[] = {{1, true, 0}, {0, true, 1}, {0.5, false, 1}, {1, false, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        luge_tensor *x = luge_requires_grad_(luge_ones(LUGE_SHAPE(8), NULL)),
                    *y = luge_dropout(x, cases[i].p, cases[i].training);
        luge_backward(luge_sum(y, LUGE_ALL_AXES));
        assert_near(luge_item(luge_min(y, LUGE_ALL_AXES)), cases[i].value, 0);
        assert_near(luge_item(luge_max(y, LUGE_ALL_AXES)), cases[i].value, 0);
        assert_near(luge_item(luge_min(luge_tensor_grad(x), LUGE_ALL_AXES)), cases[i].value, 0);
        assert_near(luge_item(luge_max(luge_tensor_grad(x), LUGE_ALL_AXES)), cases[i].value, 0);
    }
    luge_tensor *x = luge_ones(LUGE_SHAPE(8), NULL);
    assert_ptr_equal(luge_dropout(x, 0.5, false), x);
    assert_refused(luge_dropout(x, -0.1, true), LUGE_ERR_ARGUMENT, "dropout: p is -0.1, but must lie between 0 and 1");
    assert_refused(luge_dropout(x, 1.5, true), LUGE_ERR_ARGUMENT, "dropout: p is 1.5");
    assert_refused(luge_dropout(x, 1.5, false), LUGE_ERR_ARGUMENT, "dropout: p is 1.5");
    assert_refused(luge_dropout(x, NAN, true), LUGE_ERR_ARGUMENT, "dropout: p is nan");
    assert_refused(luge_dropout(NULL, 0.5, true), LUGE_ERR_ARGUMENT, "dropout");
    assert_refused(luge_dropout(LUGE_NONE, 0.5, false), LUGE_ERR_ARGUMENT, "dropout");
    assert_refused(luge_dropout(luge_cast(x, LUGE_I64), 0.5, true), LUGE_ERR_DTYPE, "dropout: the input is i64");
}

static void test_drawing_costs_nothing_when_nothing_is_dropped(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_ones(LUGE_SHAPE(64), NULL);
    luge_seed(3);
    luge_tensor *a = luge_dropout(x, 0.5, true);
    luge_seed(3);
    luge_dropout(x, 0.5, false);
    luge_dropout(x, 0, true);
    assert_true(same_bits(luge_dropout(x, 0.5, true), a));
}

static luge_tensor *dropped(luge_list in, void *user)
{
    luge_seed(9);
    return luge_dropout(in.items[0], *(const double *)user, true);
}

static void test_dropout_gradients(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    double p = 0.3;
    assert_gradients(dropped, LUGE_LIST(leaf(LUGE_SHAPE(3, 5))), &p, "dropout");
    assert_gradients(dropped, LUGE_LIST(luge_requires_grad_(luge_channels_last(constant(LUGE_SHAPE(2, 3, 2, 2))))), &p,
                     "channels-last");
    luge_tensor *empty = luge_dropout(luge_requires_grad_(luge_zeros(LUGE_SHAPE(0, 3), NULL)), 0.5, true);
    assert_int_equal(luge_tensor_numel(empty), 0);
}

/* ---- embedding */

static void test_embedding_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(3, 2), 1, 2, 3, 4, 5, 6));
    luge_tensor *at = luge_reshape(LABELS(2, 0, 2, 1), LUGE_SHAPE(2, 2));
    luge_tensor *y = luge_embedding(w, at);
    assert_text(y, "[[[5, 6], [1, 2]], [[5, 6], [3, 4]]]");
    backward_of(luge_mul_scalar(y, 0));
    luge_tensor *g = LUGE_TENSOR(LUGE_SHAPE(2, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8);
    assert_text(luge_grad(luge_embedding(w, at), w, &(luge_backward_options){.gradient = g}),
                "[[3, 4], [7, 8], [6, 8]]");
    assert_text(luge_embedding(luge_transpose(LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 3, 5, 2, 4, 6), 0, 1),
                               luge_cast(LABELS(1), LUGE_I32)),
                "[[3, 4]]");
    assert_text(luge_embedding(luge_detach(w), luge_select(LABELS(1, 2), 0, 1)), "[5, 6]");
    assert_text(luge_embedding(luge_detach(w), luge_transpose(at, 0, 1)), "[[[5, 6], [5, 6]], [[1, 2], [3, 4]]]");
}

static luge_tensor *rows_at(luge_list in, void *user)
{
    return luge_embedding(in.items[0], user);
}

static void test_embedding_gradients(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    assert_gradients(rows_at, LUGE_LIST(leaf(LUGE_SHAPE(4, 3))), LABELS(1, 1, 3, 0, 1), "embedding");
    assert_gradients(rows_at, LUGE_LIST(leaf(LUGE_SHAPE(4, 1))), luge_reshape(LABELS(3, 3), LUGE_SHAPE(2, 1)),
                     "one column");
}

static void test_embedding_gradient_in_half_adds_up_in_f32(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = luge_requires_grad_(luge_zeros(LUGE_SHAPE(2, 1), &(luge_tensor_options){.dtype = LUGE_F16}));
    luge_tensor *y = luge_embedding(w, luge_zeros(LUGE_SHAPE(4096), &(luge_tensor_options){.dtype = LUGE_I64}));
    luge_backward_with(y, &(luge_backward_options){.gradient = luge_ones_like(luge_detach(y))});
    assert_text(luge_tensor_grad(w), "[[4096], [0]]");
}

static void test_embedding_of_nothing(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(3, 2), NULL));
    luge_tensor *y = luge_embedding(w, luge_zeros(LUGE_SHAPE(0), &(luge_tensor_options){.dtype = LUGE_I64}));
    assert_int_equal(luge_backward(luge_sum(y, LUGE_ALL_AXES)), LUGE_OK);
    assert_text(luge_tensor_grad(w), "[[0, 0], [0, 0], [0, 0]]");
}

static void test_embedding_wrong_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = luge_zeros(LUGE_SHAPE(3, 2), NULL);
    assert_refused(noticed(luge_embedding(w, LABELS(0, 3))), LUGE_ERR_ARGUMENT,
                   "embedding: index 3 at position 1 is not in [0, 3)");
    assert_refused(noticed(luge_embedding(w, LABELS(-1))), LUGE_ERR_ARGUMENT, "embedding: index -1 at position 0");
    assert_refused(luge_embedding(NULL, LABELS(0)), LUGE_ERR_ARGUMENT, "embedding: input 0 is NULL");
    assert_refused(luge_embedding(w, LUGE_NONE), LUGE_ERR_ARGUMENT, "embedding: input 1 is LUGE_NONE");
    assert_refused(luge_embedding(luge_select(w, 0, 0), LABELS(0)), LUGE_ERR_SHAPE,
                   "embedding: the weight is [2], but must be [count, dim]");
    assert_refused(luge_embedding(w, w), LUGE_ERR_DTYPE, "embedding: the index tensor is f32, but must be i64 or i32");
    assert_refused(luge_embedding(luge_cast(w, LUGE_I64), LABELS(0)), LUGE_ERR_DTYPE, "embedding: the weight is i64");
    assert_refused(luge_embedding(w, luge_reshape(LABELS(0), LUGE_SHAPE(1, 1, 1, 1, 1, 1, 1, 1))), LUGE_ERR_SHAPE,
                   "more than 8 axes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_which_elements_stay),
        OP_TEST(test_share_that_stays),
        OP_TEST(test_CKP_01_gradient_has_the_mask_of_forward),
        OP_TEST(test_NUM_10_edges),
        OP_TEST(test_drawing_costs_nothing_when_nothing_is_dropped),
        OP_TEST(test_dropout_gradients),
        OP_TEST(test_embedding_values),
        OP_TEST(test_embedding_gradients),
        OP_TEST(test_embedding_gradient_in_half_adds_up_in_f32),
        OP_TEST(test_embedding_of_nothing),
        OP_TEST(test_embedding_wrong_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
