/* Ops of the user's: luge_custom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include "core/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/live.h"

static luge_tensor *total(luge_tensor *t) { return luge_sum(t, LUGE_ALL_AXES); }

/* ---- softsign: y = x / (k + |x|), by raw pointers, on the host, f32 */

typedef struct softsign_attrs {
    float k;
} softsign_attrs;

static luge_tensor *softsign_forward(const luge_call *call)
{
    const softsign_attrs *a = call->attrs;
    luge_tensor *x = luge_to(luge_contiguous(call->inputs.items[0]), luge_device_cpu(), NULL), *y = luge_empty_like(x);
    const float *from = luge_tensor_data(x, LUGE_F32);
    float *to = luge_tensor_data_mut(y, LUGE_F32);
    if (from == NULL || to == NULL) return NULL;
    for (int64_t i = 0; i < luge_tensor_numel(x); ++i) to[i] = from[i] / (a->k + fabsf(from[i]));
    return luge_to(y, (luge_device){0}, NULL);
}

static void softsign_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    const softsign_attrs *a = call->attrs;
    luge_tensor *d = luge_add_scalar(luge_abs(call->inputs.items[0]), a->k);
    grads[0] = luge_div(luge_mul_scalar(grad, a->k), luge_square(d));
}

static const luge_custom_op softsign_op = {.name = "softsign",
                                           .autocast = LUGE_CAST_F32,
                                           .save = LUGE_SAVE_INPUTS,
                                           .attrs_size = sizeof(softsign_attrs),
                                           .forward = softsign_forward,
                                           .backward = softsign_backward};

static luge_tensor *softsign(luge_tensor *x, float k)
{
    return luge_custom(&softsign_op, LUGE_LIST(x), &(softsign_attrs){k});
}

static luge_tensor *softsign_fn(luge_list in, void *user)
{
    (void)user;
    return softsign(in.items[0], 0.5f);
}

/* ---- a product of two, made of ops, reading its inputs */

static luge_tensor *product_forward(const luge_call *call)
{
    return luge_mul(call->inputs.items[0], call->inputs.items[1]);
}

static void product_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    grads[0] = luge_mul(grad, call->inputs.items[1]);
    grads[1] = luge_mul(grad, call->inputs.items[0]);
}

static const luge_custom_op product_op = {
    .name = "product", .save = LUGE_SAVE_INPUTS, .forward = product_forward, .backward = product_backward};

static luge_tensor *product_fn(luge_list in, void *user)
{
    (void)user;
    return luge_sum(luge_custom(&product_op, in, NULL), LUGE_AXES(0));
}

/* ---- an exponential that reads its output */

static luge_tensor *exp_forward(const luge_call *call) { return luge_exp(call->inputs.items[0]); }

static void exp_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    assert_null(call->inputs.items[0]);
    grads[0] = luge_mul(grad, call->output);
}

static const luge_custom_op exp_op = {
    .name = "my_exp", .save = LUGE_SAVE_OUTPUT, .forward = exp_forward, .backward = exp_backward};

static luge_tensor *exp_fn(luge_list in, void *user)
{
    (void)user;
    return luge_custom(&exp_op, in, NULL);
}

/* ---- tests */

static void it_computes_and_has_gradients(void **state)
{
    (void)state;
    LUGE_SCOPE("custom");
    luge_tensor *x = LEAF(LUGE_SHAPE(3), -1, 0, 3);
    luge_tensor *y = softsign(x, 1);
    assert_values(y, -0.5, 0, 0.75);
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_values(luge_tensor_grad(x), 0.25, 1, 0.0625);
    luge_seed(5);
    luge_tensor *r = luge_requires_grad_(luge_randn(LUGE_SHAPE(8, 5), NULL));
    assert_int_equal(luge_gradcheck(softsign_fn, LUGE_LIST(r), NULL, 1e-2), LUGE_OK);
    assert_int_equal(luge_gradgradcheck(softsign_fn, LUGE_LIST(r), NULL, 2e-2), LUGE_OK);
    const luge_tensor_options leaf = {.dtype = LUGE_F64, .requires_grad = true};
    luge_tensor *a = luge_randn(LUGE_SHAPE(4, 3), &leaf), *b = luge_randn(LUGE_SHAPE(4, 3), &leaf);
    assert_int_equal(luge_gradcheck(product_fn, LUGE_LIST(a, b), NULL, 1e-7), LUGE_OK);
    assert_int_equal(luge_gradgradcheck(product_fn, LUGE_LIST(a, b), NULL, 1e-7), LUGE_OK);
    assert_int_equal(luge_gradcheck(exp_fn, LUGE_LIST(a), NULL, 1e-7), LUGE_OK);
    assert_int_equal(luge_gradgradcheck(exp_fn, LUGE_LIST(a), NULL, 1e-7), LUGE_OK);
    assert_ok();
}

static void attributes_are_copied(void **state)
{
    (void)state;
    LUGE_SCOPE("attrs");
    luge_tensor *x = LEAF(LUGE_SHAPE(1), 1), *y;
    {
        softsign_attrs attrs = {1};
        y = luge_custom(&softsign_op, LUGE_LIST(x), &attrs);
        attrs.k = 1e9f;
    }
    assert_int_equal(luge_backward(y), LUGE_OK);
    assert_values(luge_tensor_grad(x), 0.25);
}

static void autocast_uses_its_class(void **state)
{
    (void)state;
    LUGE_SCOPE("amp");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 1, 3);
    luge_tensor *y;
    {
        LUGE_AUTOCAST(LUGE_F16);
        y = softsign(luge_cast(x, LUGE_F16), 1); /* raw f32 pointers would refuse an f16 input */
        assert_int_equal(luge_tensor_dtype(y), LUGE_F32);
    }
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_values(luge_tensor_grad(x), 0.25, 0.0625);
}

static luge_tensor *second_forward(const luge_call *call)
{
    assert_true(luge_is_none(call->inputs.items[0]));
    return call->inputs.items[1];
}

static void second_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    assert_true(luge_is_none(call->inputs.items[0]));
    assert_true(luge_is_none(grads[1]));
    grads[1] = luge_mul_scalar(grad, 3);
}

static void inputs_may_be_absent_and_returned(void **state)
{
    (void)state;
    LUGE_SCOPE("absent");
    static const luge_custom_op op = {
        .name = "second", .save = LUGE_SAVE_INPUTS, .forward = second_forward, .backward = second_backward};
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 1, 2);
    luge_tensor *y = luge_custom(&op, LUGE_LIST(LUGE_NONE, x), NULL);
    assert_ptr_not_equal(y, x); /* the leaf stays a leaf */
    assert_null(x->node);
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_values(luge_tensor_grad(x), 3, 3);
}

static luge_tensor *kept;

static luge_tensor *kept_forward(const luge_call *call)
{
    (void)call;
    return kept;
}

static void what_the_user_keeps_stays_out_of_the_graph(void **state)
{
    (void)state;
    LUGE_SCOPE("kept");
    static const luge_custom_op op = {.name = "kept", .forward = kept_forward, .backward = product_backward};
    kept = luge_ones(LUGE_SHAPE(2), NULL);
    luge_tensor *y = luge_custom(&op, LUGE_LIST(LEAF(LUGE_SHAPE(2), 1, 2)), NULL);
    assert_true(luge_tensor_requires_grad(y));
    assert_false(luge_tensor_requires_grad(kept));
}

static void an_op_without_backward_ends_the_graph(void **state)
{
    (void)state;
    LUGE_SCOPE("none");
    static const luge_custom_op op = {.name = "constant", .forward = exp_forward};
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 1, 2);
    assert_false(luge_tensor_requires_grad(luge_custom(&op, LUGE_LIST(x), NULL)));
    assert_ok();
}

/* ---- failures */

static luge_tensor *silent_forward(const luge_call *call)
{
    (void)call;
    return NULL;
}

static luge_tensor *telling_forward(const luge_call *call)
{
    (void)call;
    luge_fail(LUGE_ERR_IO, "no table at hand");
    return NULL;
}

static void silent_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    (void)call, (void)grad;
    grads[0] = NULL;
}

static void wrong_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    (void)call;
    grads[0] = luge_sum(grad, LUGE_ALL_AXES);
}

static void careless_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    grads[0] = luge_mul(grad, call->inputs.items[0]);
}

static void unhappy_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    (void)call, (void)grad, (void)grads;
    luge_fail(LUGE_ERR_ARGUMENT, "no sense in it");
}

static void what_was_not_saved_is_named(void **state)
{
    (void)state;
    LUGE_SCOPE("net");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 1, 2);
    luge_custom_op op = {.name = "mine", .forward = exp_forward, .backward = careless_backward};
    luge_backward(total(luge_custom(&op, LUGE_LIST(x), NULL)));
    assert_error(LUGE_ERR_ARGUMENT, "mul: input 1 is NULL; the backward of mine is given neither inputs nor output, since it "
                                    "declares neither LUGE_SAVE_INPUTS nor LUGE_SAVE_OUTPUT");
    op.save = LUGE_SAVE_INPUTS;
    luge_backward(total(luge_custom(&op, LUGE_LIST(x), NULL)));
    assert_true(luge_ok());
    op.save = LUGE_SAVE_OUTPUT;
    luge_backward(total(luge_custom(&op, LUGE_LIST(x), NULL)));
    assert_error(LUGE_ERR_ARGUMENT, "the backward of mine is given no inputs, since it does not declare LUGE_SAVE_INPUTS");
    op.backward = unhappy_backward;
    luge_backward(total(luge_custom(&op, LUGE_LIST(x), NULL)));
    assert_string_equal(strrchr(luge_error_text(), ':'), ": no sense in it");
    luge_error_clear();
}

static void failures_of_callbacks_are_errors(void **state)
{
    (void)state;
    LUGE_SCOPE("net");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 1, 2);
    luge_custom_op op = {.name = "mine", .forward = silent_forward, .backward = silent_backward};
    assert_null(luge_custom(&op, LUGE_LIST(x), NULL));
    assert_error(LUGE_ERR_CALLBACK, "net: mine: forward returned NULL without an error");
    op.forward = telling_forward;
    assert_null(luge_custom(&op, LUGE_LIST(x), NULL));
    assert_error(LUGE_ERR_IO, "no table at hand");
    op.forward = exp_forward;
    luge_backward(total(luge_custom(&op, LUGE_LIST(x), NULL)));
    assert_error(LUGE_ERR_CALLBACK, "mine: backward left NULL for input 0");
    op.backward = wrong_backward;
    luge_backward(total(luge_custom(&op, LUGE_LIST(x), NULL)));
    assert_error(LUGE_ERR_SHAPE, "mine: backward gave [] f32 for the gradient of input 0, which is [2] f32");
    assert_true(luge_is_none(luge_tensor_grad(x)));
}

static void arguments_are_checked(void **state)
{
    (void)state;
    LUGE_SCOPE("check");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 1, 2);
    assert_null(luge_custom(NULL, LUGE_LIST(x), NULL));
    assert_error(LUGE_ERR_ARGUMENT, "luge_custom");
    luge_custom_op op = exp_op;
    op.forward = NULL;
    assert_null(luge_custom(&op, LUGE_LIST(x), NULL));
    assert_error(LUGE_ERR_ARGUMENT, "a name and a forward");
    op = exp_op;
    op.reserved[3] = 1;
    assert_null(luge_custom(&op, LUGE_LIST(x), NULL));
    assert_error(LUGE_ERR_ARGUMENT, "reserved");
    op = exp_op;
    op.save = 8;
    assert_null(luge_custom(&op, LUGE_LIST(x), NULL));
    assert_error(LUGE_ERR_ARGUMENT, "LUGE_SAVE");
    op = exp_op;
    op.autocast = (luge_cast_class)7;
    assert_null(luge_custom(&op, LUGE_LIST(x), NULL));
    assert_error(LUGE_ERR_ARGUMENT, "luge_cast_class");
    assert_null(luge_custom(&softsign_op, LUGE_LIST(x), NULL));
    assert_error(LUGE_ERR_ARGUMENT, "softsign: attrs is NULL");
    assert_null(luge_custom(&exp_op, (luge_list){0}, NULL));
    assert_error(LUGE_ERR_ARGUMENT, "no inputs");
    assert_null(luge_custom(&exp_op, LUGE_LIST(x, NULL), NULL));
    assert_error(LUGE_ERR_ARGUMENT, "my_exp: input 1 is NULL");
    assert_null(luge_custom(&exp_op, LUGE_LIST(LUGE_NONE), NULL));
    assert_error(LUGE_ERR_ARGUMENT, "my_exp: there are no inputs");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_computes_and_has_gradients),
        TEST(attributes_are_copied),
        TEST(autocast_uses_its_class),
        TEST(inputs_may_be_absent_and_returned),
        TEST(what_the_user_keeps_stays_out_of_the_graph),
        TEST(an_op_without_backward_ends_the_graph),
        TEST(what_was_not_saved_is_named),
        TEST(failures_of_callbacks_are_errors),
        TEST(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
