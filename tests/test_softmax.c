/* softmax and log_softmax (ops/softmax.c). */
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
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2, 2), 0, 0, 1, 1);
    assert_text(luge_softmax(x, 1), "[[0.5, 0.5], [0.5, 0.5]]");
    luge_tensor *y = luge_softmax(F64(x), 0);
    double v[4];
    assert_int_equal(luge_to_array(y, v, LUGE_F64, 4), LUGE_OK);
    assert_near(v[0], 1 / (1 + M_E), 1e-15);
    assert_near(v[2], M_E / (1 + M_E), 1e-15);
    assert_close(luge_exp(luge_log_softmax(F64(x), 0)), y, 1e-14, "log_softmax");
    assert_text(luge_softmax(LUGE_TENSOR(LUGE_SCALAR, 3), 0), "1");
    assert_text(luge_log_softmax(LUGE_TENSOR(LUGE_SCALAR, 3), -1), "0");
    /* large numbers neither overflow nor lose the difference */
    assert_text(luge_softmax(LUGE_TENSOR(LUGE_SHAPE(3), 1e30, 1e30, -1e30), 0), "[0.5, 0.5, 0]");
    assert_values(luge_log_softmax(LUGE_TENSOR(LUGE_SHAPE(2), 1000, 0), 0), 0, -1000);
    assert_int_equal(luge_tensor_numel(luge_softmax(luge_zeros(LUGE_SHAPE(3, 0), NULL), 1)), 0);
    assert_int_equal(luge_tensor_numel(luge_softmax(luge_zeros(LUGE_SHAPE(0, 3), NULL), 1)), 0);
}

static void test_layouts(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_randn(LUGE_SHAPE(2, 5, 3, 4), &(luge_tensor_options){.dtype = LUGE_F64});
    for (int axis = 0; axis < 4; ++axis) {
        luge_tensor *e = luge_exp(x), *expected = luge_div(e, luge_sum(e, LUGE_AXES_KEEPDIM(axis)));
        assert_close(luge_softmax(x, axis), expected, 1e-13, "row-major");
        assert_close(luge_softmax(luge_channels_last(x), axis - 4), expected, 1e-13, "channels-last");
        assert_close(luge_log_softmax(luge_transpose(luge_contiguous(luge_transpose(x, 0, 2)), 0, 2), axis),
                     luge_log(expected), 1e-13, "turned");
        assert_close(luge_softmax(luge_slice(luge_cat(LUGE_LIST(x, x), 3), 3, 2, 6), axis),
                     luge_softmax(luge_cat(LUGE_LIST(luge_slice(x, 3, 2, 4), luge_slice(x, 3, 0, 2)), 3), axis), 1e-13,
                     "sliced");
    }
}

typedef struct rows {
    int axis;
    bool log;
} rows;
static luge_tensor *along(luge_list in, void *user)
{
    const rows *r = user;
    return r->log ? luge_log_softmax(in.items[0], r->axis) : luge_softmax(in.items[0], r->axis);
}
static luge_tensor *along_turned(luge_list in, void *user)
{
    luge_tensor *x = luge_transpose(in.items[0], 0, 2);
    return along(LUGE_LIST(x), user);
}

static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < 6; ++i) {
        LUGE_SCOPE("test");
        rows r = {.axis = i % 3, .log = i >= 3};
        assert_gradients(along, LUGE_LIST(leaf(LUGE_SHAPE(2, 3, 4))), &r, r.log ? "log_softmax" : "softmax");
        assert_gradients(along_turned, LUGE_LIST(leaf(LUGE_SHAPE(2, 3, 4))), &r, "turned");
    }
    LUGE_SCOPE("test");
    assert_gradients(along, LUGE_LIST(leaf(LUGE_SCALAR)), &(rows){.log = true}, "a scalar");
}

static void test_NUM_06_masked_rows(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(3, 2), -INFINITY, -INFINITY, 0, 0, -INFINITY, 7));
    luge_tensor *g = LUGE_TENSOR(LUGE_SHAPE(3, 2), 1, 2, 1, 3, 5, 6);
    luge_tensor *y = luge_softmax(x, 1);
    assert_text(y, "[[0, 0], [0.5, 0.5], [0, 1]]");
    luge_backward_with(y, &(luge_backward_options){.gradient = g, .retain_graph = true});
    assert_values(luge_tensor_grad(x), 0, 0, -0.5, 0.5, 0, 0);
    luge_tensor *again = luge_grad(y, x, &(luge_backward_options){.gradient = g, .create_graph = true});
    assert_values(again, 0, 0, -0.5, 0.5, 0, 0);
    assert_text(luge_log_softmax(luge_slice(luge_detach(x), 0, 0, 1), 1), "[[-inf, -inf]]");
    assert_text(luge_softmax(LUGE_TENSOR(LUGE_SHAPE(2), NAN, 0), 0), "[nan, nan]");
}

static void test_AMP_06_computes_in_f32(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_cast(LUGE_TENSOR(LUGE_SHAPE(2), 0, 20), LUGE_F16);
    assert_values(luge_log_softmax(x, 0), -20, 0); /* e^20 is not finite in f16 */
    assert_int_equal(luge_tensor_dtype(luge_softmax(x, 0)), LUGE_F16);
    LUGE_AUTOCAST(LUGE_F16);
    assert_int_equal(luge_tensor_dtype(luge_softmax(x, 0)), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_log_softmax(x, 0)), LUGE_F32);
}

static void test_wrong_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_zeros(LUGE_SHAPE(2, 3), NULL);
    assert_refused(luge_softmax(NULL, 0), LUGE_ERR_ARGUMENT, "softmax");
    assert_refused(luge_log_softmax(LUGE_NONE, 0), LUGE_ERR_ARGUMENT, "log_softmax");
    assert_refused(luge_softmax(x, 2), LUGE_ERR_ARGUMENT, "softmax: [2, 3] has no axis 2");
    assert_refused(luge_log_softmax(x, -3), LUGE_ERR_ARGUMENT, "log_softmax: [2, 3] has no axis -3");
    assert_refused(luge_softmax(luge_cast(x, LUGE_I32), 0), LUGE_ERR_DTYPE, "softmax: the input is i32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_values),
        OP_TEST(test_layouts),
        OP_TEST(test_gradients),
        OP_TEST(test_NUM_06_masked_rows),
        OP_TEST(test_AMP_06_computes_in_f32),
        OP_TEST(test_wrong_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
