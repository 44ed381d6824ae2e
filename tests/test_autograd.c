/* Backward and gradients: include/luge/autograd.h, and the engine's pitfalls with their numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include "autograd/node.h"
#include "core/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/live.h"

static luge_tensor *total(luge_tensor *t) { return luge_sum(t, LUGE_ALL_AXES); }

/* As optimizers do. */
static void drop_gradient(luge_tensor *leaf)
{
    luge_release(leaf->grad);
    leaf->grad = NULL;
}

/* ---- pitfalls */

static void agr_01_saved_output_changed_through_a_detached_alias(void **state)
{
    (void)state;
    LUGE_SCOPE("agr01");
    luge_tensor *a = LEAF(LUGE_SHAPE(3), 1, 2, 3);
    luge_tensor *s = luge_sigmoid(a), *loss = total(s);
    assert_non_null(luge_zero_(luge_detach(s)));
    assert_int_equal(luge_backward(loss), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "agr01.backward.sigmoid: sigmoid: its output 0, [3] f32");
    assert_true(luge_is_none(luge_tensor_grad(a)));
}

static void agr_03_gradient_that_the_user_holds_is_not_reused(void **state)
{
    (void)state;
    LUGE_SCOPE("agr03");
    luge_tensor *w = LEAF(LUGE_SCALAR, 1);
    assert_int_equal(luge_backward(luge_mul_scalar(w, 2)), LUGE_OK);
    luge_tensor *g = luge_retain(luge_tensor_grad(w));
    drop_gradient(w);
    assert_int_equal(luge_backward(luge_mul_scalar(w, 5)), LUGE_OK);
    assert_values(g, 2);
    assert_values(luge_tensor_grad(w), 5);
    luge_release(g);
}

static void agr_03_first_gradient_is_the_leafs_own(void **state)
{
    (void)state;
    LUGE_SCOPE("agr03");
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 1, 2), *v = LEAF(LUGE_SHAPE(2), 3, 4);
    luge_tensor *seed = LUGE_TENSOR(LUGE_SHAPE(2), 10, 20);
    assert_int_equal(luge_backward_with(luge_add(w, v), &(luge_backward_options){.gradient = seed}), LUGE_OK);
    luge_tensor *gw = luge_tensor_grad(w), *gv = luge_tensor_grad(v);
    luge_fill_(seed, 0);
    luge_fill_(gw, 1);
    assert_values(gv, 10, 20);
    assert_values(luge_tensor_grad(w), 1, 1);
    /* Later ones are added into the same tensor. */
    assert_int_equal(luge_backward(total(w)), LUGE_OK);
    assert_ptr_equal(luge_tensor_grad(w), gw);
    assert_values(gw, 2, 2);
}

static void agr_05_zero_size_batch(void **state)
{
    (void)state;
    LUGE_SCOPE("agr05");
    const luge_tensor_options leaf = {.requires_grad = true};
    luge_tensor *x = luge_empty(LUGE_SHAPE(0, 2100), &leaf);
    luge_tensor *w = luge_randn(LUGE_SHAPE(2100, 2100), &leaf), *b = luge_randn(LUGE_SHAPE(2100), &leaf);
    luge_tensor *y = luge_linear(x, w, b);
    assert_int_equal(luge_tensor_size(y, 0), 0);
    assert_int_equal(luge_tensor_size(y, 1), 2100);
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_int_equal(luge_tensor_numel(luge_tensor_grad(x)), 0);
    assert_true(luge_item(total(luge_abs(luge_tensor_grad(w)))) == 0);
    assert_true(luge_item(total(luge_abs(luge_tensor_grad(b)))) == 0);

    luge_tensor *image = luge_empty(LUGE_SHAPE(0, 3, 8, 8), NULL), *k = luge_randn(LUGE_SHAPE(4, 3, 3, 3), &leaf);
    luge_tensor *kb = luge_randn(LUGE_SHAPE(4), &leaf);
    y = luge_conv2d(image, k, kb, NULL);
    assert_int_equal(luge_tensor_size(y, 2), 6);
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_true(luge_item(total(luge_abs(luge_tensor_grad(k)))) == 0);
    assert_true(luge_item(total(luge_abs(luge_tensor_grad(kb)))) == 0);

    luge_tensor *gain = luge_ones(LUGE_SHAPE(64), &leaf), *shift = luge_zeros(LUGE_SHAPE(64), &leaf);
    y = luge_batch_norm(luge_empty(LUGE_SHAPE(0, 64, 4, 4), NULL), luge_zeros(LUGE_SHAPE(64), NULL),
                        luge_ones(LUGE_SHAPE(64), NULL), gain, shift, NULL);
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_true(luge_item(total(luge_abs(luge_tensor_grad(gain)))) == 0);
    assert_true(luge_item(total(luge_abs(luge_tensor_grad(shift)))) == 0);
}

static void agr_06_batch_norm_with_an_empty_batch(void **state)
{
    (void)state;
    LUGE_SCOPE("agr06");
    luge_tensor *mean = luge_zeros(LUGE_SHAPE(5), NULL), *var = luge_ones(LUGE_SHAPE(5), NULL);
    assert_non_null(luge_batch_norm(luge_empty(LUGE_SHAPE(0, 5, 9), NULL), mean, var, LUGE_NONE, LUGE_NONE,
                                    &(luge_batch_norm_options){.training = true}));
    assert_values(mean, 0, 0, 0, 0, 0);
    assert_values(var, 1, 1, 1, 1, 1);
}

static void agr_07_second_backward_through_a_freed_part(void **state)
{
    (void)state;
    LUGE_SCOPE("agr07");
    luge_tensor *x = LEAF(LUGE_SCALAR, 3);
    luge_tensor *k = luge_mul(x, x), *l1 = luge_mul_scalar(k, 2), *l2 = luge_mul_scalar(k, 3);
    assert_int_equal(luge_backward(l1), LUGE_OK);
    assert_values(luge_tensor_grad(x), 12);
    assert_int_equal(luge_backward(l2), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "mul: this part of the graph was freed");
    assert_values(luge_tensor_grad(x), 12);

    luge_tensor *z = LEAF(LUGE_SCALAR, 3);
    k = luge_mul(z, z);
    l1 = luge_mul_scalar(k, 2);
    l2 = luge_mul_scalar(k, 3);
    assert_int_equal(luge_backward_with(l1, &(luge_backward_options){.retain_graph = true}), LUGE_OK);
    assert_int_equal(luge_backward(l2), LUGE_OK);
    assert_values(luge_tensor_grad(z), 30);
}

static void agr_08_graphs_go_and_a_kept_one_is_counted(void **state)
{
    (void)state;
    LUGE_SCOPE("agr08");
    luge_tensor *w = LEAF(LUGE_SCALAR, 2);
    assert_int_equal(luge_backward(luge_square(w)), LUGE_OK); /* the leaf has its gradient from now on */
    const luge_live_counts start = luge_live();
    double sum = 0;
    for (int i = 0; i < 10000; ++i) {
        LUGE_SCOPE("step");
        luge_tensor *loss = luge_square(w);
        luge_backward(loss);
        sum += luge_item(loss);
    }
    luge_live_counts now = luge_live();
    assert_true(sum == 40000);
    assert_int_equal(now.nodes, start.nodes);
    assert_int_equal(now.tensors, start.tensors);

    luge_tensor *tot = luge_retain(luge_zeros(LUGE_SCALAR, NULL));
    for (int i = 0; i < 100; ++i) {
        LUGE_SCOPE("step");
        luge_assign(&tot, luge_add(tot, luge_square(w)));
    }
    now = luge_live();
    assert_int_equal(now.nodes, start.nodes + 200);
    luge_release(tot);
}

static void agr_09_gradient_of_a_transposed_parameter(void **state)
{
    (void)state;
    LUGE_SCOPE("agr09");
    luge_tensor *w = LEAF(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), *c = LUGE_TENSOR(LUGE_SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
    assert_int_equal(luge_backward(total(luge_mul(luge_transpose(w, 0, 1), c))), LUGE_OK);
    luge_tensor *grad = luge_tensor_grad(w);
    assert_values(grad, 1, 3, 5, 2, 4, 6);
    assert_true(luge_tensor_is_contiguous(grad));
}

static void gradients_lie_as_their_leaf_does(void **state)
{
    (void)state;
    LUGE_SCOPE("layout");
    luge_tensor *w = luge_requires_grad_(luge_channels_last(luge_detach(luge_randn(LUGE_SHAPE(2, 3, 4, 5), NULL))));
    luge_tensor *c = luge_randn(LUGE_SHAPE(2, 3, 4, 5), NULL);
    assert_int_equal(luge_backward(total(luge_mul(w, c))), LUGE_OK);
    for (int axis = 0; axis < 4; ++axis)
        assert_int_equal(luge_tensor_stride(luge_tensor_grad(w), axis), luge_tensor_stride(w, axis));
    assert_true(relative_error(luge_tensor_grad(w), c) == 0);
    /* An expanded gradient becomes memory of the leaf's own. */
    luge_tensor *v = luge_requires_grad_(luge_randn(LUGE_SHAPE(3, 2), NULL));
    assert_int_equal(luge_backward(total(v)), LUGE_OK);
    assert_true(luge_tensor_is_contiguous(luge_tensor_grad(v)));
    assert_values(luge_tensor_grad(v), 1, 1, 1, 1, 1, 1);
}

static void agr_10_broadcast_with_an_empty_dimension(void **state)
{
    (void)state;
    LUGE_SCOPE("agr10");
    luge_tensor *a = luge_empty(LUGE_SHAPE(4, 0), NULL), *b = LEAF(LUGE_SHAPE(4), 1, 2, 3, 4);
    luge_tensor *loss = total(luge_add(a, luge_unsqueeze(b, 1)));
    assert_values(loss, 0);
    assert_int_equal(luge_backward(loss), LUGE_OK);
    assert_values(luge_tensor_grad(b), 0, 0, 0, 0);
}

static void num_01_norm_of_a_zero_vector(void **state)
{
    (void)state;
    LUGE_SCOPE("num01");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 0, 0);
    assert_int_equal(luge_backward(luge_norm(x, 2, LUGE_ALL_AXES)), LUGE_OK);
    assert_values(luge_tensor_grad(x), 0, 0);
    assert_int_equal(luge_backward(luge_square(luge_norm(x, 2, LUGE_ALL_AXES))), LUGE_OK);
    assert_values(luge_tensor_grad(x), 0, 0);
    luge_tensor *zero = LEAF(LUGE_SCALAR, 0);
    assert_int_equal(luge_backward(luge_sqrt(zero)), LUGE_OK);
    assert_values(luge_tensor_grad(zero), HUGE_VAL); /* the honest one */
}

/* ---- flow of gradients */

static void paths_are_summed(void **state)
{
    (void)state;
    LUGE_SCOPE("paths");
    /* y = (x + x^2) (x + 3) at 2: dy/dx = (1 + 2x)(x + 3) + (x + x^2) = 31 */
    luge_tensor *x = LEAF(LUGE_SCALAR, 2);
    luge_tensor *y = luge_mul(luge_add(x, luge_square(x)), luge_add_scalar(x, 3));
    assert_int_equal(luge_backward(y), LUGE_OK);
    assert_values(luge_tensor_grad(x), 31);
    /* The same input twice, and again in a diamond. */
    luge_tensor *z = LEAF(LUGE_SCALAR, 3), *s = luge_mul(z, z);
    assert_int_equal(luge_backward(luge_mul(s, s)), LUGE_OK);
    assert_values(luge_tensor_grad(z), 108);
}

static void broadcasting_is_undone(void **state)
{
    (void)state;
    LUGE_SCOPE("broadcast");
    luge_tensor *a = LEAF(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), *row = LEAF(LUGE_SHAPE(3), 1, 10, 100);
    luge_tensor *column = LEAF(LUGE_SHAPE(2, 1), 2, 3), *one = LEAF(LUGE_SCALAR, 5);
    luge_tensor *y = luge_mul(luge_mul(luge_mul(a, row), column), one);
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_values(luge_tensor_grad(a), 10, 100, 1000, 15, 150, 1500);
    assert_values(luge_tensor_grad(row), 70, 95, 120);
    assert_values(luge_tensor_grad(column), 1605, 3270);
    assert_values(luge_tensor_grad(one), 642 + 1962);
    luge_tensor *b = LEAF(LUGE_SHAPE(1, 3), 1, 2, 3), *wide = luge_randn(LUGE_SHAPE(4, 2, 3), NULL);
    assert_int_equal(luge_backward(total(luge_add(wide, b))), LUGE_OK);
    assert_values(luge_tensor_grad(b), 8, 8, 8);
    assert_int_equal(luge_tensor_shape(luge_tensor_grad(b)).rank, 2);
}

static void dtypes_are_cast_back(void **state)
{
    (void)state;
    LUGE_SCOPE("dtypes");
    luge_tensor *a = LEAF(LUGE_SHAPE(2), 1, 2), *b = LEAF64(LUGE_SHAPE(2), 3, 4);
    luge_tensor *y = luge_mul(a, b);
    assert_int_equal(luge_tensor_dtype(y), LUGE_F64);
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_int_equal(luge_tensor_dtype(luge_tensor_grad(a)), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_tensor_grad(b)), LUGE_F64);
    assert_values(luge_tensor_grad(a), 3, 4);
    assert_values(luge_tensor_grad(b), 1, 2);
}

static void acc_03_half_precision_activations_accumulate_in_f32(void **state)
{
    (void)state;
    LUGE_SCOPE("acc03");
    luge_tensor *w = LEAF(LUGE_SCALAR, 1);
    for (int i = 0; i < 5000; ++i) {
        LUGE_SCOPE("micro");
        luge_backward(luge_cast(w, LUGE_F16));
    }
    assert_int_equal(luge_tensor_dtype(luge_tensor_grad(w)), LUGE_F32);
    assert_values(luge_tensor_grad(w), 5000);
}

static void no_graph_is_recorded_without_need(void **state)
{
    (void)state;
    LUGE_SCOPE("none");
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 1, 2), *x = LUGE_TENSOR(LUGE_SHAPE(2), 3, 4);
    assert_false(luge_tensor_requires_grad(luge_mul(x, x)));
    {
        LUGE_NO_GRAD();
        assert_false(luge_tensor_requires_grad(luge_mul(w, x)));
    }
    assert_false(luge_tensor_requires_grad(luge_mul(luge_detach(w), x)));
    assert_false(luge_tensor_requires_grad(luge_gt(w, x)));
    assert_int_equal(live_now().nodes, 0);
    assert_true(luge_tensor_requires_grad(luge_mul(w, x)));
    assert_int_equal(live_now().nodes, 1);
}

static void only_what_is_read_is_saved(void **state)
{
    (void)state;
    LUGE_SCOPE("saved");
    luge_tensor *w = LEAF(LUGE_SHAPE(4), 1, 2, 3, 4);
    luge_tensor *h = luge_retain(luge_zeros(LUGE_SHAPE(4), NULL));
    for (int i = 0; i < 10; ++i) {
        LUGE_SCOPE("step");
        luge_assign(&h, luge_add(h, w)); /* reads nothing */
    }
    assert_int_equal(live_now().storages, 2 + 1); /* w, the first zeros, h */
    const int64_t before = live_now().storages;
    {
        LUGE_SCOPE("step");
        luge_keep(luge_mul(luge_mul_scalar(h, 2), LUGE_TENSOR(LUGE_SHAPE(4), 1, 2, 3, 4)));
    }
    /* The product and the constant factor; not the variable one, whose partner is a constant. */
    assert_int_equal(live_now().storages, before + 2);
    luge_release(h);
}

static void saved_tensors_go_as_backward_passes(void **state)
{
    (void)state;
    LUGE_SCOPE("freed");
    luge_tensor *x = luge_requires_grad_(luge_randn(LUGE_SHAPE(8), NULL)), *loss;
    {
        LUGE_SCOPE("forward");
        luge_tensor *h = x;
        for (int i = 0; i < 10; ++i) h = luge_tanh(h);
        loss = luge_keep(total(h));
    }
    assert_int_equal(live_now().storages, 2 + 10);
    assert_int_equal(luge_backward(loss), LUGE_OK);
    assert_int_equal(live_now().storages, 3); /* x, its gradient, the loss */
}

/* ---- luge_grad */

static void grad_leaves_leaves_alone(void **state)
{
    (void)state;
    LUGE_SCOPE("grad");
    luge_tensor *x = LEAF(LUGE_SHAPE(3), 1, 2, 3), *w = LEAF(LUGE_SHAPE(3), 4, 5, 6);
    luge_tensor *h = luge_mul(x, w), *y = total(luge_square(h));
    const luge_backward_options retain = {.retain_graph = true};
    assert_values(luge_grad(y, h, &retain), 8, 20, 36);
    assert_values(luge_grad(y, y, &retain), 1);
    assert_values(luge_grad(y, x, &retain), 32, 100, 216);
    assert_true(luge_is_none(luge_tensor_grad(x)));
    luge_tensor *grads[4];
    luge_tensor *other = LEAF(LUGE_SCALAR, 1), *constant = LUGE_TENSOR(LUGE_SCALAR, 1);
    assert_int_equal(luge_grad_list(LUGE_LIST(y), LUGE_LIST(w, other, h, constant), grads, NULL), LUGE_OK);
    assert_values(grads[0], 8, 40, 108);
    assert_true(luge_is_none(grads[1]));
    assert_values(grads[2], 8, 20, 36);
    assert_true(luge_is_none(grads[3]));
    assert_null(luge_grad(total(luge_square(x)), w, NULL));
    assert_error(LUGE_ERR_GRAPH, "luge_grad: the output does not depend on the input");
}

static void grad_runs_only_what_lies_between(void **state)
{
    (void)state;
    LUGE_SCOPE("between");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 1, 2);
    luge_tensor *early = luge_sigmoid(x), *h = luge_square(early), *y = total(luge_square(h));
    luge_zero_(luge_detach(early)); /* backward through sigmoid or the first square would be refused */
    assert_non_null(luge_grad(y, h, &(luge_backward_options){.retain_graph = true}));
    assert_null(luge_grad(y, x, NULL));
    assert_error(LUGE_ERR_GRAPH, "changed in place");
    /* What luge_grad went through is freed, the rest is not. */
    luge_tensor *a = LEAF(LUGE_SCALAR, 3), *b = luge_square(a), *c = luge_square(b);
    assert_values(luge_grad(c, b, NULL), 18);
    assert_values(luge_grad(b, a, NULL), 6);
    assert_null(luge_grad(c, a, NULL));
    assert_error(LUGE_ERR_GRAPH, "was freed");
}

static void grads_of_several_outputs(void **state)
{
    (void)state;
    LUGE_SCOPE("outputs");
    luge_tensor *x = LEAF(LUGE_SCALAR, 3), *grads[2];
    luge_tensor *a = luge_square(x), *b = luge_mul(a, x);
    assert_int_equal(luge_grad_list(LUGE_LIST(a, b, x), LUGE_LIST(x, a), grads, NULL), LUGE_OK);
    assert_values(grads[0], 6 + 27 + 1);
    assert_values(grads[1], 1 + 3);
}

static void a_reached_input_without_gradient_gets_zeros(void **state)
{
    (void)state;
    LUGE_SCOPE("zeros");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 1, 2), *h = luge_square(x);
    luge_fill_(h, 7); /* nothing of the square is left */
    luge_tensor *grads[1];
    assert_int_equal(luge_grad_list(LUGE_LIST(total(h)), LUGE_LIST(x), grads, NULL), LUGE_OK);
    assert_values(grads[0], 0, 0);
}

static void gradients_can_be_differentiated(void **state)
{
    (void)state;
    LUGE_SCOPE("twice");
    /* y = x^3 tanh: checked by gradgradcheck elsewhere; here powers, exactly: x^4 -> 4x^3 -> 12x^2 -> 24x */
    luge_tensor *x = LEAF64(LUGE_SCALAR, 3);
    const luge_backward_options create = {.create_graph = true};
    luge_tensor *g1 = luge_grad(luge_square(luge_square(x)), x, &create);
    luge_tensor *g2 = luge_grad(g1, x, &create);
    luge_tensor *g3 = luge_grad(g2, x, NULL);
    assert_values(g1, 108);
    assert_values(g2, 108);
    assert_values(g3, 72);
    assert_false(luge_tensor_requires_grad(g3));
    /* Through a saved output. */
    luge_tensor *z = LEAF64(LUGE_SCALAR, 0.5), *e = luge_exp(z);
    luge_tensor *d = luge_grad(e, z, &create);
    assert_int_equal(luge_backward(d), LUGE_OK);
    assert_true(fabs(luge_item(luge_tensor_grad(z)) - exp(0.5)) < 1e-15);
}

static void create_graph_in_backward_adds_out_of_place(void **state)
{
    (void)state;
    LUGE_SCOPE("create");
    luge_tensor *x = LEAF(LUGE_SCALAR, 3);
    const luge_backward_options create = {.create_graph = true};
    assert_int_equal(luge_backward_with(luge_square(x), &create), LUGE_OK);
    luge_tensor *first = luge_tensor_grad(x);
    assert_true(luge_tensor_requires_grad(first));
    assert_int_equal(luge_backward_with(luge_square(x), &create), LUGE_OK);
    assert_values(first, 6);
    assert_values(luge_tensor_grad(x), 12);
    assert_values(luge_grad(luge_tensor_grad(x), x, NULL), 4);
    /* The gradient's graph holds the leaf, and the leaf its gradient: dropping that ends the circle. */
    drop_gradient(x);
}

/* ---- refusals */

static void outputs_are_checked(void **state)
{
    (void)state;
    LUGE_SCOPE("refuse");
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 1, 2), *x = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2);
    assert_int_equal(luge_backward(NULL), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_backward: the tensor is NULL");
    assert_int_equal(luge_backward(LUGE_NONE), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "LUGE_NONE");
    luge_backward(total(x));
    assert_error(LUGE_ERR_GRAPH, "does not require a gradient");
    luge_backward(w);
    assert_error(LUGE_ERR_SHAPE, "the output is [2]");
    luge_backward_with(w, &(luge_backward_options){.gradient = luge_ones(LUGE_SHAPE(3), NULL)});
    assert_error(LUGE_ERR_SHAPE, "the gradient in the options is [3], the output [2]");
    luge_backward_with(w, &(luge_backward_options){.gradient = luge_cast(x, LUGE_I64)});
    assert_error(LUGE_ERR_DTYPE, "i64, not a float");
    luge_backward_with(total(w), &(luge_backward_options){.reserved = {0, 0, 1}});
    assert_error(LUGE_ERR_ARGUMENT, "reserved");
    assert_true(luge_is_none(luge_tensor_grad(w)));

    luge_tensor *grads[2] = {w, w};
    luge_grad_list(LUGE_LIST(total(w), total(w)), LUGE_LIST(w, w), grads,
                   &(luge_backward_options){.gradient = luge_ones(LUGE_SCALAR, NULL)});
    assert_error(LUGE_ERR_ARGUMENT, "belongs to one output");
    assert_null(grads[0]);
    assert_null(grads[1]);
    luge_grad_list((luge_list){0}, LUGE_LIST(w), grads, NULL);
    assert_error(LUGE_ERR_ARGUMENT, "no outputs");
    luge_grad_list(LUGE_LIST(total(w)), (luge_list){0}, grads, NULL);
    assert_error(LUGE_ERR_ARGUMENT, "no inputs");
    luge_grad_list(LUGE_LIST(total(w)), LUGE_LIST(w), NULL, NULL);
    assert_error(LUGE_ERR_ARGUMENT, "room");
    assert_null(luge_grad(total(w), NULL, NULL));
    assert_error(LUGE_ERR_ARGUMENT, "luge_grad: the tensor is NULL");
}

static void a_standing_error_stops_everything(void **state)
{
    (void)state;
    LUGE_SCOPE("standing");
    luge_tensor *w = LEAF(LUGE_SCALAR, 2), *y = luge_square(w), *grads[1] = {w};
    luge_fail(LUGE_ERR_IO, "the disk is full");
    assert_int_equal(luge_backward(y), LUGE_ERR_IO);
    assert_null(luge_grad(y, w, NULL));
    assert_int_equal(luge_grad_list(LUGE_LIST(y), LUGE_LIST(w), grads, NULL), LUGE_ERR_IO);
    assert_null(grads[0]);
    assert_null(luge_requires_grad_(w));
    assert_null(luge_detach(w));
    assert_error(LUGE_ERR_IO, "the disk is full");
    assert_true(luge_is_none(luge_tensor_grad(w)));
    assert_int_equal(luge_backward(y), LUGE_OK); /* the graph was not touched */
    assert_values(luge_tensor_grad(w), 4);
}

static void marking_leaves(void **state)
{
    (void)state;
    LUGE_SCOPE("leaves");
    assert_null(luge_requires_grad_(luge_zeros(LUGE_SCALAR, &(luge_tensor_options){.dtype = LUGE_I64})));
    assert_error(LUGE_ERR_DTYPE, "i64");
    assert_null(luge_requires_grad_(NULL));
    assert_error(LUGE_ERR_ARGUMENT, "luge_requires_grad_: the tensor is NULL");
    assert_null(luge_detach(NULL));
    assert_error(LUGE_ERR_ARGUMENT, "luge_detach: the tensor is NULL");
    luge_tensor *w = LEAF(LUGE_SCALAR, 2), *y = luge_square(w);
    assert_ptr_equal(luge_requires_grad_(y), y); /* it does already */
    luge_tensor *d = luge_detach(y);
    assert_false(luge_tensor_requires_grad(d));
    luge_fill_(d, 9); /* the same memory */
    assert_values(y, 9);
}

static void a_failed_backward_leaves_leaves_as_they_were(void **state)
{
    (void)state;
    LUGE_SCOPE("failed");
    luge_tensor *a = LEAF(LUGE_SHAPE(2), 1, 2), *b = LEAF(LUGE_SHAPE(2), 3, 4);
    luge_backward(total(a));
    /* The gradient of b is known when that of a turns out to be lost. */
    luge_tensor *s = luge_sigmoid(a), *y = total(luge_add(b, s));
    luge_zero_(luge_detach(s));
    luge_backward(y);
    assert_error(LUGE_ERR_GRAPH, "sigmoid");
    assert_values(luge_tensor_grad(a), 1, 1);
    assert_true(luge_is_none(luge_tensor_grad(b)));
}

static void nodes_know_their_place_in_line(void **state)
{
    (void)state;
    LUGE_SCOPE("order");
    luge_tensor *w = LEAF(LUGE_SCALAR, 2), *a = luge_square(w), *b = luge_square(a);
    assert_true(b->node->sequence > a->node->sequence);
    assert_ptr_equal(b->node->edge[0].node, a->node);
    assert_ptr_equal(a->node->edge[0].leaf, w);
}

/* ---- threads: cmocka's assertions belong to the main one, so the others report by value */

enum { THREADS = 4, ROUNDS = 200 };

typedef struct worker {
    luge_tensor *w;     /* a leaf that all share */
    luge_tensor *mine;  /* a leaf of the thread's own */
    double factor;
    int right;
    luge_tensor *made;  /* owned: for the main thread to go through */
} worker;

static void *work(void *arg)
{
    worker *t = arg;
    for (int i = 0; i < ROUNDS; ++i) {
        LUGE_SCOPE("round");
        luge_tensor *y = luge_mul(luge_mul_scalar(luge_square(t->w), t->factor), t->mine);
        luge_tensor *grads[2];
        luge_grad_list(LUGE_LIST(y), LUGE_LIST(t->w, t->mine), grads, &(luge_backward_options){.retain_graph = true});
        t->right += luge_item(grads[0]) == 6 * t->factor * 2 && luge_item(grads[1]) == 9 * t->factor;
        luge_backward(luge_mul_scalar(t->mine, 2));
    }
    LUGE_SCOPE("made");
    t->made = luge_retain(luge_mul_scalar(luge_square(t->w), t->factor));
    return NULL;
}

static void threads_share_leaves_and_hand_graphs_over(void **state)
{
    (void)state;
    LUGE_SCOPE("threads");
    luge_tensor *w = LEAF(LUGE_SCALAR, 3);
    worker t[THREADS];
    pthread_t id[THREADS];
    for (int i = 0; i < THREADS; ++i) {
        t[i] = (worker){.w = w, .mine = LEAF(LUGE_SCALAR, 2), .factor = i + 1};
        assert_int_equal(pthread_create(&id[i], NULL, work, &t[i]), 0);
    }
    luge_tensor *sum = luge_mul_scalar(w, 0);
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(id[i], NULL);
        assert_int_equal(t[i].right, ROUNDS);
        assert_values(luge_tensor_grad(t[i].mine), 2 * ROUNDS);
        assert_non_null(t[i].made);
        /* Far more nodes were made over there than here: order must hold all the same. */
        sum = luge_square(luge_add(sum, t[i].made));
        assert_true(sum->node->sequence > t[i].made->node->sequence);
        luge_release(t[i].made);
    }
    /* s1 = (9)^2, s2 = (s1 + 18)^2, s3 = (s2 + 27)^2, s4 = (s3 + 36)^2 */
    double s = 0, d = 0;
    for (int i = 1; i <= THREADS; ++i) {
        const double part = 9.0 * i, slope = 6.0 * i;
        d = 2 * (s + part) * (d + slope);
        s = (s + part) * (s + part);
    }
    assert_int_equal(luge_backward(sum), LUGE_OK);
    assert_true(fabs(luge_item(luge_tensor_grad(w)) / d - 1) < 1e-5);
    assert_true(fabs(luge_item(sum) / s - 1) < 1e-5);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(agr_01_saved_output_changed_through_a_detached_alias),
        TEST(agr_03_gradient_that_the_user_holds_is_not_reused),
        TEST(agr_03_first_gradient_is_the_leafs_own),
        TEST(agr_05_zero_size_batch),
        TEST(agr_06_batch_norm_with_an_empty_batch),
        TEST(agr_07_second_backward_through_a_freed_part),
        TEST(agr_08_graphs_go_and_a_kept_one_is_counted),
        TEST(agr_09_gradient_of_a_transposed_parameter),
        TEST(gradients_lie_as_their_leaf_does),
        TEST(agr_10_broadcast_with_an_empty_dimension),
        TEST(num_01_norm_of_a_zero_vector),
        TEST(paths_are_summed),
        TEST(broadcasting_is_undone),
        TEST(dtypes_are_cast_back),
        TEST(acc_03_half_precision_activations_accumulate_in_f32),
        TEST(no_graph_is_recorded_without_need),
        TEST(only_what_is_read_is_saved),
        TEST(saved_tensors_go_as_backward_passes),
        TEST(grad_leaves_leaves_alone),
        TEST(grad_runs_only_what_lies_between),
        TEST(grads_of_several_outputs),
        TEST(a_reached_input_without_gradient_gets_zeros),
        TEST(gradients_can_be_differentiated),
        TEST(create_graph_in_backward_adds_out_of_place),
        TEST(outputs_are_checked),
        TEST(a_standing_error_stops_everything),
        TEST(marking_leaves),
        TEST(a_failed_backward_leaves_leaves_as_they_were),
        TEST(nodes_know_their_place_in_line),
        TEST(threads_share_leaves_and_hand_graphs_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
