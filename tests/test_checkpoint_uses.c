/* Activation checkpointing among all else: hooks, custom ops, graphs of gradients, frozen layers, modes that
 * change before backward, threads in one region, failures in the forward. What it promises by itself is in
 * test_checkpoint.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "core/fault.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/ops.h"

static luge_tensor *total(luge_tensor *t) { return luge_sum(t, LUGE_ALL_AXES); }

static luge_module *blocks(void)
{
    luge_module *first = luge_nn_sequential(luge_nn_linear(6, 8, NULL), luge_nn_batch_norm1d(8, NULL), luge_nn_tanh(),
                                            luge_nn_dropout(0.2));
    luge_module *second = luge_nn_sequential(luge_nn_linear(8, 8, NULL), luge_nn_batch_norm1d(8, NULL), luge_nn_gelu());
    return luge_nn_sequential(first, second, luge_nn_linear(8, 2, NULL));
}

/* The gradient of x, with fresh random numbers. */
static luge_tensor *gradient(luge_module *m, luge_tensor *x)
{
    luge_seed(5);
    return luge_grad(total(luge_square(luge_forward(m, x))), x, NULL);
}

/* ---- with other things that look at graphs */

typedef struct seen {
    int calls;
    luge_tensor *inside, *grad; /* of a region's middle */
} seen;

static luge_tensor *look(luge_tensor *grad, void *user)
{
    seen *s = user;
    ++s->calls;
    s->grad = luge_retain(grad);
    return luge_mul_scalar(grad, 3);
}

static luge_tensor *watched(luge_list inputs, void *user)
{
    seen *s = user;
    luge_tensor *h = luge_exp(luge_tanh(inputs.items[0]));
    luge_hook_grad(h, look, s);
    return luge_exp(h);
}

static void hooks_run_once(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    seen plain = {0}, again = {0}, outside = {0};
    luge_tensor *a = LEAF(LUGE_SHAPE(2), 0.1, 0.2), *b = LEAF(LUGE_SHAPE(2), 0.1, 0.2);
    luge_backward(total(watched(LUGE_LIST(a), &plain)));
    luge_tensor *y = luge_checkpoint(watched, LUGE_LIST(b), &again);
    luge_hook_grad(y, look, &outside);
    luge_backward(luge_mul_scalar(total(y), 1.0 / 3));
    assert_ok();
    assert_int_equal(plain.calls, 1);
    assert_int_equal(again.calls, 1);
    assert_int_equal(outside.calls, 1);
    assert_close(again.grad, plain.grad, 1e-6, "the gradient that the hook sees");
    assert_close(luge_tensor_grad(b), luge_tensor_grad(a), 1e-6, "what it makes of it");
    luge_release(plain.grad);
    luge_release(again.grad);
    luge_release(outside.grad);
}

static luge_tensor *cube_forward(const luge_call *call)
{
    luge_tensor *x = call->inputs.items[0];
    return luge_mul(luge_square(x), x);
}

static void cube_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    grads[0] = luge_div(luge_mul_scalar(luge_mul(grad, call->output), 3), call->inputs.items[0]);
}

static const luge_custom_op cube = {
    .name = "cube", .save = LUGE_SAVE_INPUTS | LUGE_SAVE_OUTPUT, .forward = cube_forward, .backward = cube_backward};

/* Writes in place into what it has made, uses it several times, and an op of the user's. */
static luge_tensor *many_uses(luge_list inputs, void *user)
{
    (void)user;
    luge_tensor *h = luge_add_scalar(inputs.items[0], 0);
    luge_mul_scalar_(h, 2);
    luge_mul_(h, inputs.items[1]);
    luge_tensor *c = luge_custom(&cube, LUGE_LIST(h), NULL);
    return luge_add(luge_mul(c, h), luge_transpose(c, 0, 1));
}

static luge_tensor *uses_of_many(luge_list inputs, void *user)
{
    luge_tensor *y = luge_checkpoint(many_uses, inputs, user);
    return luge_add(luge_mul(y, luge_tanh(y)), y);
}

static luge_tensor *uses_of_plain(luge_list inputs, void *user)
{
    luge_tensor *y = many_uses(inputs, user);
    return luge_add(luge_mul(y, luge_tanh(y)), y);
}

static void outputs_may_be_used_often(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *a = luge_requires_grad_(luge_add_scalar(luge_cast(luge_rand(LUGE_SHAPE(3, 3), NULL), LUGE_F64), 0.5)),
                *b = luge_requires_grad_(luge_add_scalar(luge_cast(luge_rand(LUGE_SHAPE(3, 3), NULL), LUGE_F64), 0.5));
    for (int i = 0; i < 2; ++i) {
        luge_tensor *of = i == 0 ? a : b;
        luge_tensor *plain = luge_grad(total(uses_of_plain(LUGE_LIST(a, b), NULL)), of, NULL);
        assert_true(same_bits(luge_grad(total(uses_of_many(LUGE_LIST(a, b), NULL)), of, NULL), plain));
    }
    assert_int_equal(luge_gradcheck(uses_of_many, LUGE_LIST(a, b), NULL, 1e-6), LUGE_OK);
    assert_int_equal(luge_gradgradcheck(uses_of_many, LUGE_LIST(a, b), NULL, 1e-5), LUGE_OK);
}

/* A penalty on the gradient, as the loss. */
static luge_tensor *penalty_gradient(luge_module *m, luge_tensor *x, const char *of)
{
    luge_seed(5);
    luge_tensor *g = luge_grad(total(luge_square(luge_forward(m, x))), x, &(luge_backward_options){.create_graph = true});
    return luge_grad(total(luge_square(g)), luge_module_param(m, of), NULL);
}

static void gradients_of_modules_can_be_differentiated(void **state)
{
    (void)state;
    static const luge_checkpointing policies[] = {{.every = 1}, {.sqrt = true}, {.modules = "*"}};
    LUGE_SCOPE("t");
    luge_module *m = blocks();
    luge_tensor *x = luge_requires_grad_(luge_randn(LUGE_SHAPE(5, 6), NULL));
    static const char *const params[] = {"0.0.weight", "0.1.weight", "1.0.bias", "2.weight"};
    for (int i = 0; i < 4; ++i) {
        luge_module_set_checkpointing(m, NULL);
        luge_tensor *plain = penalty_gradient(m, x, params[i]);
        for (int p = 0; p < 3; ++p) {
            luge_module_set_checkpointing(m, &policies[p]);
            luge_tensor *again = penalty_gradient(m, x, params[i]);
            assert_ok();
            if (!same_bits(again, plain)) fail_msg("%s, policy %d", params[i], p);
        }
    }
    luge_module_destroy(m);
}

/* ---- modes */

/* Running statistics that are read and not written are there in the second run. */
static void normalising_by_statistics(void **state)
{
    (void)state;
    for (int frozen = 0; frozen < 2; ++frozen) {
        LUGE_SCOPE("t");
        luge_module *m = blocks();
        luge_tensor *x = luge_requires_grad_(luge_randn(LUGE_SHAPE(5, 6), NULL));
        gradient(m, x);
        if (frozen)
            luge_module_freeze(m, "*.1.*");
        else
            luge_module_eval(m);
        luge_tensor *mean = luge_clone(luge_module_buffer(m, "0.1.running_mean")), *plain = gradient(m, x);
        assert_int_equal(luge_module_set_checkpointing(m, &(luge_checkpointing){.modules = "*"}), LUGE_OK);
        luge_tensor *again = gradient(m, x);
        assert_ok();
        assert_true(same_bits(again, plain));
        assert_true(same_bits(luge_module_buffer(m, "0.1.running_mean"), mean));
        luge_module_destroy(m);
    }
}

static void change_mode(luge_module *m) { luge_module_eval(luge_module_child(m, "0.1")); }
static void change_learning(luge_module *m) { luge_module_freeze(m, "1.0.weight"); }

static void modes_must_not_change_before_backward(void **state)
{
    (void)state;
    static void (*const change[])(luge_module *) = {change_mode, change_learning};
    static const char *const op[] = {"op 2, batch_norm, now has other", "op 1, linear, now has other"};
    for (int i = 0; i < 2; ++i) {
        LUGE_SCOPE("t");
        luge_module *m = blocks();
        luge_module_set_checkpointing(m, &(luge_checkpointing){.every = 1});
        luge_tensor *x = luge_requires_grad_(luge_randn(LUGE_SHAPE(5, 6), NULL)), *y = total(luge_forward(m, x));
        change[i](m);
        assert_int_equal(luge_backward(y), LUGE_ERR_STATE);
        assert_error(LUGE_ERR_STATE, op[i]);
        assert_true(luge_is_none(luge_tensor_grad(x)));
        luge_module_destroy(m);
    }
}

static luge_tensor *grow(luge_list inputs, void *user)
{
    int *calls = user;
    luge_tensor *h = luge_expand(luge_exp(inputs.items[0]), LUGE_SHAPE(++*calls == 1 ? 40000 : 2));
    return luge_exp(luge_mul_scalar(h, 0.5));
}

static luge_tensor *add_outside(luge_list inputs, void *user)
{
    luge_tensor *h = luge_exp(inputs.items[0]);
    luge_add_(user, h);
    return luge_exp(h);
}

static void shapes_and_targets_are_those_of_the_first_run(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    int calls = 0;
    luge_tensor *x = LEAF(LUGE_SHAPE(1), 0.1), *y = luge_checkpoint(grow, LUGE_LIST(x), &calls);
    assert_int_equal(luge_backward(total(y)), LUGE_ERR_STATE);
    assert_error(LUGE_ERR_STATE, "op 2, expand, now has other shapes");
    luge_tensor *sum = luge_zeros(LUGE_SHAPE(1), NULL);
    assert_null(luge_checkpoint(add_outside, LUGE_LIST(x), sum));
    assert_error(LUGE_ERR_STATE, "add writes in place, as a part of the graph, into a tensor from outside");
    assert_values(sum, 0);
}

/* A sum beside the graph counts every forward once. */
static luge_tensor *count_outside(luge_list inputs, void *user)
{
    luge_tensor *h = luge_exp(inputs.items[0]);
    {
        LUGE_NO_GRAD();
        luge_add_(user, luge_ones_like(h));
    }
    return luge_exp(h);
}

static void what_lies_outside_is_written_once(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LEAF(LUGE_SHAPE(1), 0), *sum = luge_zeros(LUGE_SHAPE(1), NULL);
    luge_tensor *y = luge_checkpoint(count_outside, LUGE_LIST(x), sum);
    assert_int_equal(luge_backward(y), LUGE_OK);
    assert_values(sum, 1);
}

/* ---- two threads, whose regions lie in the same one */

typedef struct branch {
    luge_tensor *y, *x, *grad;
    luge_status status;
} branch;

static luge_tensor *powers(luge_list inputs, void *user)
{
    (void)user;
    return luge_exp(luge_tanh(luge_exp(inputs.items[0])));
}

/* Gives one output, and hands out another. */
static luge_tensor *two_branches(luge_list inputs, void *user)
{
    luge_tensor *y[2];
    for (int i = 0; i < 2; ++i) y[i] = luge_checkpoint(powers, LUGE_LIST(luge_exp(inputs.items[i])), NULL);
    luge_tensor **other = user;
    if (*other == NULL) *other = luge_retain(y[1]);
    return y[0];
}

static void *differentiate(void *user)
{
    branch *b = user;
    LUGE_SCOPE("thread");
    b->grad = luge_retain(luge_grad(total(b->y), b->x, NULL));
    b->status = luge_error_take(NULL, 0);
    return NULL;
}

static void threads_share_a_region(void **state)
{
    (void)state;
    for (int i = 0; i < 20; ++i) {
        LUGE_SCOPE("t");
        luge_tensor *data = luge_randn(LUGE_SHAPE(50), NULL), *x[2], *other = NULL;
        for (int k = 0; k < 2; ++k) x[k] = luge_requires_grad_(luge_clone(data));
        branch b[2] = {{.x = x[0]}, {.x = x[1]}};
        b[0].y = luge_checkpoint(two_branches, LUGE_LIST(x[0], x[1]), &other);
        b[1].y = other;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, differentiate, &b[1]), 0);
        differentiate(&b[0]);
        pthread_join(thread, NULL);
        assert_int_equal(b[0].status, LUGE_OK);
        assert_int_equal(b[1].status, LUGE_OK);
        assert_true(same_bits(b[0].grad, b[1].grad));
        for (int k = 0; k < 2; ++k) luge_release(b[k].grad);
        luge_release(other);
    }
}

/* ---- failures */

static void no_gradient_yet(const char *name, luge_tensor *t, void *user)
{
    (void)user;
    if (!luge_is_none(luge_tensor_grad(t))) fail_msg("%s has a gradient", name);
}

/* Whether the nth allocation was reached. What a failed forward has made is gone. */
static bool fail_forward(luge_module *m, luge_tensor *x, lg_fault_kind kind, int64_t nth)
{
    luge_memory_empty_cache((luge_device){0});
    const luge_live_counts before = live_now();
    lg_fault_set(kind, nth);
    {
        LUGE_SCOPE("try");
        luge_tensor *y = luge_forward(m, x);
        assert_true(lg_fault_hit(kind) || y != NULL);
        if (y == NULL) assert_int_equal(luge_error(), LUGE_ERR_OUT_OF_MEMORY);
        luge_error_clear();
    }
    const bool hit = lg_fault_hit(kind);
    lg_fault_set(kind, 0);
    assert_int_equal(live_now().tensors, before.tensors);
    assert_int_equal(live_now().nodes, before.nodes);
    return hit;
}

static void every_allocation_of_a_forward_may_fail(void **state)
{
    (void)state;
    static const luge_checkpointing policies[] = {{.every = 1}, {.sqrt = true}, {.modules = "*"}};
    for (int kind = LG_FAULT_HOST; kind <= LG_FAULT_DEVICE; ++kind)
        for (int p = 0; p < 3; ++p) {
            LUGE_SCOPE("t");
            luge_module *m = blocks();
            luge_module_set_checkpointing(m, &policies[p]);
            luge_tensor *x = luge_requires_grad_(luge_randn(LUGE_SHAPE(5, 6), NULL));
            gradient(m, x); /* what is made once */
            for (int64_t nth = 1; fail_forward(m, x, (lg_fault_kind)kind, nth);) ++nth;
            gradient(m, x);
            assert_ok();
            luge_module_destroy(m);
        }
}

static void failed_backwards_leave_leaves_alone(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = blocks();
    luge_module_set_checkpointing(m, &(luge_checkpointing){.modules = "*"});
    luge_tensor *x = luge_requires_grad_(luge_randn(LUGE_SHAPE(5, 6), NULL));
    luge_seed(5);
    luge_tensor *y = total(luge_square(luge_forward(m, x)));
    for (int64_t nth = 1;; ++nth) {
        LUGE_SCOPE("nth");
        luge_memory_empty_cache((luge_device){0});
        lg_fault_set(LG_FAULT_DEVICE, nth);
        const luge_status status = luge_backward_with(y, &(luge_backward_options){.retain_graph = true});
        const bool hit = lg_fault_hit(LG_FAULT_DEVICE);
        lg_fault_set(LG_FAULT_DEVICE, 0);
        if (!hit) break;
        if (status == LUGE_OK) fail_msg("failure %d was lost", (int)nth);
        assert_error(LUGE_ERR_OUT_OF_MEMORY, "");
        no_gradient_yet("x", x, NULL);
        luge_module_each_param(m, no_gradient_yet, NULL);
    }
    luge_tensor *tried = luge_tensor_grad(x);
    luge_module_set_checkpointing(m, NULL);
    assert_true(same_bits(gradient(m, x), tried));
    luge_module_destroy(m);
}

static luge_tensor *fail_late(luge_list inputs, void *user)
{
    const bool *fail = user;
    luge_tensor *y = luge_checkpoint(powers, LUGE_LIST(luge_exp(inputs.items[0])), NULL);
    return *fail ? luge_tanh(y) : luge_exp(y);
}

/* Nodes and regions inside have nothing of a second run that did not come to its end. */
static void failed_second_runs_keep_nothing(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    bool fail = false;
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 0.1, 0.2), *y = total(luge_checkpoint(fail_late, LUGE_LIST(x), &fail));
    const luge_live_counts before = live_now();
    fail = true;
    assert_int_equal(luge_backward_with(y, &(luge_backward_options){.retain_graph = true}), LUGE_ERR_STATE);
    assert_error(LUGE_ERR_STATE, "op 3 was exp and is now tanh");
    assert_int_equal(live_now().tensors, before.tensors);
    assert_int_equal(live_now().nodes, before.nodes);
    assert_int_equal(live_now().storages, before.storages);
    fail = false;
    assert_int_equal(luge_backward(y), LUGE_OK);
    luge_tensor *plain = luge_exp(powers(LUGE_LIST(luge_exp(x)), NULL));
    assert_true(same_bits(luge_tensor_grad(x), luge_grad(total(plain), x, NULL)));
}

/* ---- copies, and convolutions */

enum { DEEP = 64 };

static int forwards;

static luge_tensor *convolve(luge_module *self, void *state, luge_tensor *x)
{
    (void)state;
    ++forwards;
    luge_tensor *y = luge_forward(luge_module_child(self, "conv"), luge_relu(x));
    return luge_add(x, luge_forward(luge_module_child(self, "norm"), y));
}

static void build_convolve(luge_module *self, void *state)
{
    (void)state;
    luge_module_add(self, "conv", luge_nn_conv2d(4, 4, 3, &(luge_conv2d_options){.padding = 1}));
    luge_module_add(self, "norm", luge_nn_batch_norm2d(4, NULL));
}

static const luge_module_class convolve_class = {.name = "Convolve", .build = build_convolve, .forward = convolve};

/* Bytes above those that stay, at most, in a forward and a backward. */
static int64_t peak_of(luge_module *m, luge_tensor *x)
{
    int64_t before = 0;
    for (int i = 0; i < 2; ++i) { /* the first makes gradients */
        LUGE_SCOPE("step");
        forwards = 0;
        before = luge_memory_get_stats((luge_device){0}).allocated_bytes;
        luge_memory_reset_peak((luge_device){0});
        luge_backward(total(luge_forward(m, x)));
        assert_ok();
    }
    return luge_memory_get_stats((luge_device){0}).allocated_peak - before;
}

static void convolutions_in_segments_save_memory(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *block[DEEP];
    for (int i = 0; i < DEEP; ++i) block[i] = luge_module_create(&convolve_class, NULL);
    luge_module *m = luge_nn_sequential_array(block, DEEP);
    luge_tensor *x = luge_randn(LUGE_SHAPE(4, 4, 16, 16), NULL);
    const int64_t plain = peak_of(m, x);
    assert_int_equal(forwards, DEEP);
    luge_module_set_checkpointing(m, &(luge_checkpointing){.sqrt = true});
    luge_module *copy = luge_module_clone(m); /* with the policy */
    luge_module_destroy(m);
    const int64_t less = peak_of(copy, x);
    assert_in_range(forwards, DEEP + DEEP / 2, 2 * DEEP - 1); /* the last segment's stay */
    print_message("peak of activations of convolutions: 1/%.1f\n", (double)plain / (double)less);
    assert_true(plain >= 6 * less);
    luge_module_destroy(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(hooks_run_once),
        OP_TEST(outputs_may_be_used_often),
        OP_TEST(gradients_of_modules_can_be_differentiated),
        OP_TEST(normalising_by_statistics),
        OP_TEST(modes_must_not_change_before_backward),
        OP_TEST(shapes_and_targets_are_those_of_the_first_run),
        OP_TEST(what_lies_outside_is_written_once),
        OP_TEST(threads_share_a_region),
        OP_TEST(every_allocation_of_a_forward_may_fail),
        OP_TEST(failed_backwards_leave_leaves_alone),
        OP_TEST(failed_second_runs_keep_nothing),
        OP_TEST(convolutions_in_segments_save_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
