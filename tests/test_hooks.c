/* Gradient hooks and leaf hooks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include "core/thread.h"
#include "tests/support/live.h"

static luge_tensor *total(luge_tensor *t) { return luge_sum(t, LUGE_ALL_AXES); }

static luge_tensor *scale(luge_tensor *grad, void *user) { return luge_mul_scalar(grad, *(const double *)user); }

/* What hooks saw, in order. */
static char trace[64];
static double seen;

static luge_tensor *look(luge_tensor *grad, void *name)
{
    strcat(trace, name);
    seen = luge_item(total(grad));
    return grad;
}

static void watch(luge_tensor *leaf, void *name)
{
    strcat(trace, name);
    seen = luge_item(total(luge_tensor_grad(leaf)));
}

static void begin_trace(void)
{
    trace[0] = '\0';
    seen = 0;
}

static void they_see_complete_gradients_and_replace_them(void **state)
{
    (void)state;
    LUGE_SCOPE("hooks");
    begin_trace();
    const double half = 0.5;
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 3, 4), *h = luge_mul_scalar(w, 2);
    assert_int_equal(luge_hook_grad(h, look, "a"), LUGE_OK);
    assert_int_equal(luge_hook_grad(h, scale, (void *)&half), LUGE_OK);
    assert_int_equal(luge_hook_grad(h, look, "b"), LUGE_OK);
    luge_tensor *y = luge_add(luge_mul_scalar(h, 3), luge_mul_scalar(h, 5)); /* two paths, one sum: 8 each */
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_string_equal(trace, "ab");
    assert_true(seen == 8);
    assert_values(luge_tensor_grad(w), 8, 8); /* 8 / 2 * 2 */
}

static void leaves_have_them_too(void **state)
{
    (void)state;
    LUGE_SCOPE("leaves");
    begin_trace();
    const double ten = 10;
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 3, 4), *v = LEAF(LUGE_SHAPE(2), 1, 1);
    luge_hook_accumulated(w, watch, "w");
    luge_hook_accumulated(v, watch, "v");
    luge_hook_grad(w, scale, (void *)&ten);
    luge_hook_grad(w, look, "g");
    assert_int_equal(luge_backward(total(luge_add(luge_mul_scalar(w, 2), w))), LUGE_OK);
    assert_string_equal(trace, "gw"); /* not v: this backward did not reach it */
    assert_true(seen == 60);
    assert_values(luge_tensor_grad(w), 30, 30);
    /* The hook sees what this backward brings; the leaf hook all there is by then. */
    begin_trace();
    assert_int_equal(luge_backward(total(w)), LUGE_OK);
    assert_true(seen == 80);
    assert_values(luge_tensor_grad(w), 40, 40);
    /* Gradient hooks run for luge_grad as well, leaf hooks do not: nothing is accumulated. */
    begin_trace();
    assert_values(luge_grad(total(w), w, NULL), 10, 10);
    assert_string_equal(trace, "g");
    assert_values(luge_tensor_grad(w), 40, 40);
}

static luge_tensor *nothing(luge_tensor *grad, void *user)
{
    (void)grad, (void)user;
    return NULL;
}

static luge_tensor *wrong_shape(luge_tensor *grad, void *user)
{
    (void)user;
    return total(grad);
}

static luge_tensor *failing(luge_tensor *grad, void *user)
{
    (void)grad, (void)user;
    luge_fail(LUGE_ERR_IO, "the logger is gone");
    return grad;
}

static void failures_leave_gradients_alone(void **state)
{
    (void)state;
    const struct {
        luge_grad_hook hook;
        luge_status code;
        const char *text;
    } cases[] = {
        {nothing, LUGE_ERR_CALLBACK, "backward.mul_scalar: a gradient hook returned NULL without an error"},
        {wrong_shape, LUGE_ERR_SHAPE, "a gradient hook returned [] f32 for a gradient of [2] f32"},
        {failing, LUGE_ERR_IO, "the logger is gone"},
    };
    for (int i = 0; i < 3; ++i) {
        LUGE_SCOPE("fail");
        luge_tensor *w = LEAF(LUGE_SHAPE(2), 3, 4), *v = LEAF(LUGE_SHAPE(2), 3, 4), *h = luge_mul_scalar(w, 2);
        luge_backward(total(w));
        luge_hook_grad(h, cases[i].hook, NULL);
        assert_int_equal(luge_backward(total(luge_add(v, h))), cases[i].code);
        assert_error(cases[i].code, cases[i].text);
        assert_values(luge_tensor_grad(w), 1, 1);
        assert_true(luge_is_none(luge_tensor_grad(v)));

        luge_tensor *u = LEAF(LUGE_SHAPE(2), 3, 4);
        luge_hook_grad(u, cases[i].hook, NULL);
        assert_int_equal(luge_backward(total(luge_add(v, u))), cases[i].code);
        luge_error_clear();
        assert_true(luge_is_none(luge_tensor_grad(v)));
        assert_true(luge_is_none(luge_tensor_grad(u)));
    }
}

static void arguments_are_checked(void **state)
{
    (void)state;
    LUGE_SCOPE("check");
    luge_tensor *w = LEAF(LUGE_SCALAR, 1), *h = luge_square(w), *c = LUGE_TENSOR(LUGE_SCALAR, 1);
    luge_hook_grad(NULL, look, NULL);
    assert_error(LUGE_ERR_ARGUMENT, "luge_hook_grad: the tensor is NULL");
    luge_hook_grad(w, NULL, NULL);
    assert_error(LUGE_ERR_ARGUMENT, "luge_hook_grad: the hook is NULL");
    luge_hook_grad(c, look, NULL);
    assert_error(LUGE_ERR_GRAPH, "does not require a gradient");
    luge_hook_accumulated(h, watch, NULL);
    assert_error(LUGE_ERR_GRAPH, "not a leaf");
    luge_hook_accumulated(c, watch, NULL);
    assert_error(LUGE_ERR_GRAPH, "not a leaf");
    luge_hook_accumulated(w, NULL, NULL);
    assert_error(LUGE_ERR_ARGUMENT, "luge_hook_accumulated: the hook is NULL");
    luge_hook_accumulated(LUGE_NONE, watch, NULL);
    assert_error(LUGE_ERR_ARGUMENT, "LUGE_NONE");
}

/* ---- what hooks may do */

static void again(luge_tensor *leaf, void *other)
{
    strcat(trace, "r");
    if (other != NULL) luge_backward(luge_square(other));
    if (strlen(trace) < 3) luge_backward(luge_square(leaf));
}

static luge_tensor *same_graph(luge_tensor *grad, void *y)
{
    luge_backward(y);
    return grad;
}

static void a_hook_may_run_another_backward(void **state)
{
    (void)state;
    LUGE_SCOPE("again");
    begin_trace();
    luge_tensor *w = LEAF(LUGE_SCALAR, 3), *v = LEAF(LUGE_SCALAR, 5);
    luge_hook_accumulated(w, again, v);
    /* Leaf hooks run with no graph recorded, so the backward in there is refused: no surprise graphs. */
    assert_int_equal(luge_backward(luge_square(w)), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "does not require a gradient");
    assert_values(luge_tensor_grad(w), 6); /* it was complete before */

    luge_tensor *x = LEAF(LUGE_SCALAR, 2), *h = luge_square(x), *y = luge_square(h);
    luge_hook_grad(h, same_graph, y);
    assert_int_equal(luge_backward_with(y, &(luge_backward_options){.retain_graph = true}), LUGE_ERR_STATE);
    assert_error(LUGE_ERR_STATE, "another backward is just running");
    assert_true(luge_is_none(luge_tensor_grad(x)));
    assert_values(luge_grad(luge_square(x), x, NULL), 4); /* everything else goes on */
}

static luge_tensor *let_go(luge_tensor *grad, void *user)
{
    luge_assign(user, grad); /* drops the only reference to the graph that the user has */
    return grad;
}

static void a_hook_may_release_the_graph(void **state)
{
    (void)state;
    LUGE_SCOPE("release");
    luge_tensor *w = LEAF(LUGE_SCALAR, 3), *mine = NULL;
    {
        LUGE_SCOPE("forward");
        luge_tensor *h = luge_square(w);
        luge_hook_grad(h, let_go, &mine);
        luge_assign(&mine, luge_square(h));
    }
    assert_int_equal(luge_backward(mine), LUGE_OK);
    assert_values(luge_tensor_grad(w), 108);
    assert_values(mine, 18);
    luge_release(mine);
}

static void hooks_go_with_their_tensor(void **state)
{
    (void)state;
    for (int i = 0; i < 3; ++i) {
        LUGE_SCOPE("gone");
        luge_tensor *w = LEAF(LUGE_SCALAR, 3);
        luge_hook_grad(w, look, "w");
        luge_hook_accumulated(w, watch, "w");
        luge_hook_grad(luge_square(w), look, "h");
    } /* live_end counts what is left */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(they_see_complete_gradients_and_replace_them),
        TEST(leaves_have_them_too),
        TEST(failures_leave_gradients_alone),
        TEST(arguments_are_checked),
        TEST(a_hook_may_run_another_backward),
        TEST(a_hook_may_release_the_graph),
        TEST(hooks_go_with_their_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
