/* luge_gradcheck and luge_gradgradcheck: that right gradients pass, and that wrong ones do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include "core/tensor.h"
#include "tests/support/device.h"
#include "tests/support/live.h"

static luge_tensor *random_leaf(luge_shape shape, luge_dtype dtype)
{
    return luge_randn(shape, &(luge_tensor_options){.dtype = dtype, .requires_grad = true});
}

/* ---- right ones */

static luge_tensor *mixed(luge_list in, void *user)
{
    (void)user;
    luge_tensor *h = luge_tanh(luge_matmul(in.items[0], in.items[1]));
    return luge_mul(luge_softmax(h, 1), luge_add(h, in.items[2]));
}

static void right_gradients_pass(void **state)
{
    (void)state;
    LUGE_SCOPE("right");
    luge_seed(11);
    luge_tensor *a = random_leaf(LUGE_SHAPE(3, 4), LUGE_F64), *b = random_leaf(LUGE_SHAPE(4, 5), LUGE_F64);
    luge_tensor *c = random_leaf(LUGE_SHAPE(5), LUGE_F64);
    assert_int_equal(luge_gradcheck(mixed, LUGE_LIST(a, b, c), NULL, 1e-7), LUGE_OK);
    assert_int_equal(luge_gradgradcheck(mixed, LUGE_LIST(a, b, c), NULL, 1e-6), LUGE_OK);
    /* Constants are left alone; f32 in its own precision; strided leaves in place. */
    luge_tensor *constant = luge_randn(LUGE_SHAPE(4, 5), &(luge_tensor_options){.dtype = LUGE_F64});
    assert_int_equal(luge_gradcheck(mixed, LUGE_LIST(a, constant, c), NULL, 1e-7), LUGE_OK);
    luge_tensor *a32 = random_leaf(LUGE_SHAPE(3, 4), LUGE_F32), *b32 = random_leaf(LUGE_SHAPE(4, 5), LUGE_F32);
    assert_int_equal(luge_gradcheck(mixed, LUGE_LIST(a32, b32, random_leaf(LUGE_SHAPE(5), LUGE_F32)), NULL, 1e-2), LUGE_OK);
    luge_tensor *turned = luge_requires_grad_(
        luge_transpose(luge_randn(LUGE_SHAPE(4, 3), &(luge_tensor_options){.dtype = LUGE_F64}), 0, 1));
    assert_int_equal(luge_gradcheck(mixed, LUGE_LIST(turned, b, c), NULL, 1e-7), LUGE_OK);
    assert_true(luge_is_none(luge_tensor_grad(a)));
}

static void inputs_are_as_before(void **state)
{
    (void)state;
    LUGE_SCOPE("before");
    luge_tensor *a = LEAF64(LUGE_SHAPE(2, 2), 0.1, 0.2, 0.3, 0.4), *b = LEAF64(LUGE_SHAPE(2, 2), 1, 2, 3, 4);
    luge_tensor *copy = luge_clone(luge_detach(a));
    assert_int_equal(luge_gradcheck(mixed, LUGE_LIST(a, b, b), NULL, 1e-6), LUGE_OK);
    assert_true(luge_item(luge_sum(luge_abs(luge_sub(luge_detach(a), copy)), LUGE_ALL_AXES)) == 0);
}

/* ---- wrong ones: custom ops with mistakes */

/* y = x^2, but the gradient of one element, or of all, is wrong. */
static luge_tensor *square_forward(const luge_call *call) { return luge_square(call->inputs.items[0]); }

/* g with `more` added to elements from `first` to `end`, in row-major order. */
static luge_tensor *added(luge_tensor *g, int64_t first, int64_t end, double more)
{
    luge_tensor *wrong = luge_clone(g);
    luge_add_scalar_(luge_slice(luge_reshape(wrong, LUGE_SHAPE(-1)), 0, first, end), more);
    return wrong;
}

static void one_wrong(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    luge_tensor *x = call->inputs.items[0], *g = luge_mul(grad, luge_mul_scalar(x, 2));
    grads[0] = added(g, 4, 5, 1e-3);
}

static void forgets_the_cotangent(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    (void)grad;
    grads[0] = luge_mul_scalar(call->inputs.items[0], 2);
}

static void differs(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    static double drift;
    drift += 1e-12;
    grads[0] = luge_mul(grad, luge_mul_scalar(call->inputs.items[0], 2 + drift));
}

/* Right once, but differentiating it again loses a term: the input is cut off. */
static void cut_off(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    grads[0] = luge_mul(grad, luge_mul_scalar(luge_detach(call->inputs.items[0]), 2));
}

static void no_gradient(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    (void)call, (void)grad, (void)grads;
}

static luge_tensor *apply(luge_list in, void *op) { return luge_custom(op, in, NULL); }

static luge_custom_op square_with(void (*backward)(const luge_call *, luge_tensor *, luge_tensor **))
{
    return (luge_custom_op){
        .name = "square", .save = LUGE_SAVE_INPUTS, .forward = square_forward, .backward = backward};
}

static void wrong_gradients_do_not_pass(void **state)
{
    (void)state;
    LUGE_SCOPE("wrong");
    luge_tensor *x = LEAF64(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    luge_custom_op op = square_with(one_wrong);
    assert_int_equal(luge_gradcheck(apply, LUGE_LIST(x), &op, 1e-6), LUGE_ERR_GRAPH);
    assert_true(strstr(luge_error_text(), "backward says ") != NULL && strstr(luge_error_text(), "differences say "));
    assert_error(LUGE_ERR_GRAPH, "luge_gradcheck: input 0, element [1, 1]: ");
    assert_int_equal(luge_gradcheck(apply, LUGE_LIST(x), &op, 1e-2), LUGE_OK); /* the tolerance is heard */
    op = square_with(forgets_the_cotangent);
    assert_int_equal(luge_gradcheck(apply, LUGE_LIST(x), &op, 1e-2), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "element [0, 0]");
    op = square_with(no_gradient);
    assert_int_equal(luge_gradcheck(apply, LUGE_LIST(x), &op, 1e-2), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "backward says 0,");
    op = square_with(differs);
    assert_int_equal(luge_gradcheck(apply, LUGE_LIST(x), &op, 1e-2), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "two runs of backward differ");
    op = square_with(cut_off);
    assert_int_equal(luge_gradcheck(apply, LUGE_LIST(x), &op, 1e-6), LUGE_OK);
    assert_int_equal(luge_gradgradcheck(apply, LUGE_LIST(x), &op, 1e-6), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "luge_gradgradcheck: input 0");
}

/* A wrong softmax gradient of zero is right for a cotangent of ones: it must be found all the same. */
static luge_tensor *softmax_forward(const luge_call *call) { return luge_softmax(call->inputs.items[0], 0); }

static void zero_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    (void)call;
    grads[0] = luge_zeros_like(grad);
}

static void the_cotangent_is_random(void **state)
{
    (void)state;
    LUGE_SCOPE("softmax");
    luge_custom_op op = {.name = "softmax", .forward = softmax_forward, .backward = zero_backward};
    assert_int_equal(luge_gradcheck(apply, LUGE_LIST(LEAF64(LUGE_SHAPE(3), 1, 2, 3)), &op, 1e-2), LUGE_ERR_GRAPH);
    luge_error_clear();
}

/* Of many elements some are drawn, from everywhere. */
static void last_part_wrong(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    luge_tensor *x = call->inputs.items[0], *g = luge_mul(grad, luge_mul_scalar(x, 2));
    grads[0] = added(g, 4900, 5000, 1);
}

static void large_inputs_are_sampled(void **state)
{
    (void)state;
    LUGE_SCOPE("large");
    luge_tensor *x = random_leaf(LUGE_SHAPE(5000), LUGE_F64);
    luge_custom_op op = square_with(last_part_wrong);
    assert_int_equal(luge_gradcheck(apply, LUGE_LIST(x), &op, 1e-2), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "element [49");
    op.backward = cut_off;
    assert_int_equal(luge_gradcheck(apply, LUGE_LIST(x), &op, 1e-6), LUGE_OK);
}

/* ---- arguments */

static luge_tensor *null_function(luge_list in, void *user)
{
    (void)in, (void)user;
    return NULL;
}

static luge_tensor *constant_function(luge_list in, void *user)
{
    (void)user;
    return luge_detach(in.items[0]);
}

static luge_tensor *integer_function(luge_list in, void *user)
{
    (void)user;
    return luge_argmax(in.items[0], 0);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    LUGE_SCOPE("check");
    luge_tensor *x = LEAF64(LUGE_SHAPE(2), 1, 2), *constant = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2);
    luge_custom_op op = square_with(cut_off);
    luge_status status = luge_gradcheck(NULL, LUGE_LIST(x), NULL, 1e-3);
    assert_error(LUGE_ERR_ARGUMENT, "the function is NULL");
    status = luge_gradcheck(apply, (luge_list){0}, &op, 1e-3);
    assert_error(LUGE_ERR_ARGUMENT, "no inputs");
    status = luge_gradcheck(apply, LUGE_LIST(x, NULL), &op, 1e-3);
    assert_error(LUGE_ERR_ARGUMENT, "NULL");
    status = luge_gradcheck(apply, LUGE_LIST(x), &op, 0);
    assert_error(LUGE_ERR_ARGUMENT, "tolerance");
    status = luge_gradcheck(apply, LUGE_LIST(constant), &op, 1e-3);
    assert_error(LUGE_ERR_GRAPH, "no input requires a gradient");
    status = luge_gradcheck(apply, LUGE_LIST(luge_square(x)), &op, 1e-3);
    assert_error(LUGE_ERR_GRAPH, "not a leaf");
    status = luge_gradcheck(apply, LUGE_LIST(luge_requires_grad_(luge_cast(constant, LUGE_F16))), &op, 1e-3);
    assert_error(LUGE_ERR_DTYPE, "too coarse");
    status = luge_gradcheck(null_function, LUGE_LIST(x), NULL, 1e-3);
    assert_error(LUGE_ERR_CALLBACK, "returned NULL without an error");
    status = luge_gradcheck(constant_function, LUGE_LIST(x), NULL, 1e-3);
    assert_error(LUGE_ERR_GRAPH, "does not require a gradient");
    status = luge_gradcheck(integer_function, LUGE_LIST(x), NULL, 1e-3);
    assert_error(LUGE_ERR_DTYPE, "i64, not a float");
    luge_fail(LUGE_ERR_IO, "before");
    status = luge_gradgradcheck(apply, LUGE_LIST(x), &op, 1e-3);
    assert_int_equal(status, LUGE_ERR_IO);
    assert_error(LUGE_ERR_IO, "before");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(right_gradients_pass),
        TEST(inputs_are_as_before),
        TEST(wrong_gradients_do_not_pass),
        TEST(the_cotangent_is_random),
        TEST(large_inputs_are_sampled),
        TEST(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
