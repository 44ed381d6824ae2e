/* Every allocation of a training step fails in turn: the error is reported, gradients stay as they
 * were, and nothing is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include "core/fault.h"
#include "core/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/live.h"

/* A net of two layers, with hooks, an op of the user's, an op in place and casts. */
typedef struct net {
    luge_tensor *x, *target, *w1, *b1, *w2, *gain;
    bool autocast;
} net;

static luge_tensor *twice_forward(const luge_call *call) { return luge_mul_scalar(call->inputs.items[0], 2); }

static void twice_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    (void)call;
    grads[0] = luge_mul_scalar(grad, 2);
}

static const luge_custom_op twice = {.name = "twice",
                                     .save = LUGE_SAVE_INPUTS | LUGE_SAVE_OUTPUT,
                                     .forward = twice_forward,
                                     .backward = twice_backward};

static luge_tensor *halve(luge_tensor *grad, void *user)
{
    (void)user;
    return luge_mul_scalar(grad, 0.5);
}

static luge_tensor *loss_of(const net *n)
{
    LUGE_SCOPE("net");
    if (n->autocast) luge_autocast_enter(LUGE_BF16);
    luge_tensor *h = luge_linear(n->x, n->w1, n->b1);
    luge_mul_(h, n->gain);
    luge_hook_grad(h, halve, NULL);
    h = luge_add(luge_tanh(h), luge_relu(h));
    h = luge_custom(&twice, LUGE_LIST(h), NULL);
    luge_tensor *y = luge_linear(luge_cat(LUGE_LIST(h, luge_transpose(luge_transpose(h, 0, 1), 0, 1)), 1), n->w2, LUGE_NONE);
    return luge_keep(luge_mse_loss(luge_cast(y, LUGE_F32), n->target, NULL));
}

enum { LEAVES = 4 };

static luge_list leaves_of(const net *n, luge_tensor *leaf[LEAVES])
{
    leaf[0] = n->w1;
    leaf[1] = n->b1;
    leaf[2] = n->w2;
    leaf[3] = n->gain;
    return (luge_list){leaf, LEAVES};
}

static net make_net(bool autocast)
{
    const luge_tensor_options leaf = {.requires_grad = true};
    luge_seed(21);
    net n = {.autocast = autocast};
    n.x = luge_randn(LUGE_SHAPE(3, 5), NULL);
    n.target = luge_randn(LUGE_SHAPE(3, 2), NULL);
    n.w1 = luge_randn(LUGE_SHAPE(4, 5), &leaf);
    n.b1 = luge_randn(LUGE_SHAPE(4), &leaf);
    n.w2 = luge_randn(LUGE_SHAPE(2, 8), &leaf);
    n.gain = luge_randn(LUGE_SHAPE(4), &leaf);
    return n;
}

/* ---- what is tried */

static luge_status plain(net *n) { return luge_backward(loss_of(n)); }

static luge_status penalty(net *n)
{
    luge_tensor *leaf[LEAVES], *grads[LEAVES];
    const luge_list leaves = leaves_of(n, leaf);
    luge_tensor *loss = loss_of(n);
    luge_grad_list(LUGE_LIST(loss), leaves, grads, &(luge_backward_options){.create_graph = true});
    luge_tensor *sum = loss;
    for (int i = 0; i < LEAVES; ++i) sum = luge_add(sum, luge_sum(luge_square(grads[i]), LUGE_ALL_AXES));
    return luge_backward(sum);
}

static luge_tensor *checked(luge_list in, void *user)
{
    net n = *(net *)user;
    n.w1 = in.items[0];
    return loss_of(&n);
}

static luge_status gradcheck(net *n)
{
    return luge_gradcheck(checked, LUGE_LIST(n->w1), n, 10); /* the hook halves gradients: only failures count here */
}

/* ---- failing each request in turn */

static void drop_gradients(luge_list leaves)
{
    for (int i = 0; i < leaves.count; ++i) {
        luge_release(leaves.items[i]->grad);
        leaves.items[i]->grad = NULL;
    }
}

/* Whether gradients are what they were: the same tensors with the same bits, or none. */
static void assert_untouched(luge_list leaves, luge_tensor *const *had, luge_tensor *const *copies)
{
    for (int i = 0; i < leaves.count; ++i) {
        assert_ptr_equal(leaves.items[i]->grad, had[i]);
        if (had[i] != NULL) assert_true(same_bits(had[i], copies[i]));
    }
}

static void fail_each(net *n, luge_status (*step)(net *), lg_fault_kind kind)
{
    luge_tensor *leaf[LEAVES], *had[LEAVES], *copies[LEAVES];
    const luge_list leaves = leaves_of(n, leaf);
    for (int i = 0; i < LEAVES; ++i) {
        had[i] = leaf[i]->grad;
        copies[i] = had[i] != NULL ? luge_clone(had[i]) : NULL;
    }
    int64_t nth = 1;
    for (bool hit = true; hit; ++nth) {
        const luge_live_counts before = luge_live();
        luge_scope scope = luge_scope_enter("step");
        lg_fault_set(kind, nth);
        const luge_status status = step(n);
        hit = lg_fault_hit(kind);
        lg_fault_set(kind, 0);
        luge_scope_exit(scope, NULL);
        if (!hit) {
            assert_int_equal(status, LUGE_OK);
            break;
        }
        /* A cache that could not grow may go without; what matters is that a failure is a whole one. */
        if (status == LUGE_OK) {
            drop_gradients(leaves);
            for (int i = 0; i < LEAVES; ++i) leaf[i]->grad = had[i] = luge_retain(copies[i]);
            for (int i = 0; i < LEAVES; ++i) copies[i] = had[i] != NULL ? luge_clone(had[i]) : NULL;
            continue;
        }
        assert_int_equal(status, LUGE_ERR_OUT_OF_MEMORY);
        luge_error_clear();
        assert_untouched(leaves, had, copies);
        const luge_live_counts after = luge_live();
        assert_int_equal(after.tensors, before.tensors);
        assert_int_equal(after.storages, before.storages);
        assert_int_equal(after.nodes, before.nodes);
    }
    assert_true(nth > 20);
}

static void fail_all(luge_status (*step)(net *), bool autocast)
{
    LUGE_SCOPE("faults");
    net n = make_net(autocast);
    luge_tensor *leaf[LEAVES];
    const luge_list leaves = leaves_of(&n, leaf);
    /* Once as it is, so that what is made on first use is there; then with and without gradients. */
    assert_int_equal(step(&n), LUGE_OK);
    fail_each(&n, step, LG_FAULT_HOST);
    fail_each(&n, step, LG_FAULT_DEVICE);
    drop_gradients(leaves);
    fail_each(&n, step, LG_FAULT_HOST);
    drop_gradients(leaves);
    fail_each(&n, step, LG_FAULT_DEVICE);
}

static void in_a_training_step(void **state)
{
    (void)state;
    fail_all(plain, false);
}

static void under_autocast(void **state)
{
    (void)state;
    fail_all(plain, true);
}

static void in_gradients_of_gradients(void **state)
{
    (void)state;
    fail_all(penalty, false);
}

static void in_gradcheck(void **state)
{
    (void)state;
    LUGE_SCOPE("faults");
    net n = make_net(false);
    luge_tensor *w1 = luge_clone(luge_detach(n.w1));
    fail_each(&n, gradcheck, LG_FAULT_DEVICE);
    assert_true(same_bits(n.w1, w1)); /* the element that was changed is back */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(in_a_training_step),
        TEST(under_autocast),
        TEST(in_gradients_of_gradients),
        TEST(in_gradcheck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
