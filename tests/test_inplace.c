/* Writing in place: results, what it does to graphs, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include "core/tensor.h"
#include "tests/support/live.h"

static luge_tensor *total(luge_tensor *t) { return luge_sum(t, LUGE_ALL_AXES); }

static luge_tensor *integers(luge_dtype dtype) { return luge_cast(LUGE_TENSOR(LUGE_SHAPE(3), 1, 2, 3), dtype); }

/* ---- values */

static void it_returns_its_argument(void **state)
{
    (void)state;
    LUGE_SCOPE("inplace");
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, -2, 3, -4);
    const int64_t tensors = luge_live().tensors;
    assert_ptr_equal(luge_relu_(t), t);
    assert_ptr_equal(luge_add_(t, t), t);
    assert_int_equal(luge_live().tensors, tensors);
    assert_values(t, 2, 0, 6, 0);
    assert_int_equal(luge_tensor_version(t), 2);
    luge_tensor *view = luge_slice(t, 0, 0, 1);
    luge_fill_(view, 5);
    assert_int_equal(luge_tensor_version(t), 3); /* of the memory, not of the handle */
    assert_values(t, 5, 5, 6, 0);
    luge_add_(luge_transpose(t, 0, 1), LUGE_TENSOR(LUGE_SHAPE(2), 10, 20));
    assert_values(t, 15, 15, 26, 20);
}

static void results_must_fit(void **state)
{
    (void)state;
    LUGE_SCOPE("inplace");
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(3), 1, 2, 3);
    assert_null(luge_add_(t, luge_ones(LUGE_SHAPE(2, 3), NULL)));
    assert_error(LUGE_ERR_SHAPE, "add: the result is [2, 3] and does not fit into [3] in place");
    assert_null(luge_add_(integers(LUGE_I64), t));
    assert_error(LUGE_ERR_DTYPE, "add: the result is f32 and does not fit into a i64 tensor in place");
    assert_null(luge_div_(integers(LUGE_I32), integers(LUGE_I32)));
    assert_error(LUGE_ERR_DTYPE, "div");
    assert_null(luge_exp_(integers(LUGE_U8)));
    assert_error(LUGE_ERR_DTYPE, "exp");
    assert_null(luge_mul_(luge_cast(t, LUGE_BOOL), integers(LUGE_I32)));
    assert_error(LUGE_ERR_DTYPE, "mul");
    assert_values(t, 1, 2, 3);
    /* The target's dtype decides within a category and above. */
    luge_tensor *i = integers(LUGE_I32);
    assert_values(luge_add_(i, integers(LUGE_I64)), 2, 4, 6);
    assert_int_equal(luge_tensor_dtype(i), LUGE_I32);
    assert_values(luge_mul_(t, luge_cast(t, LUGE_F64)), 1, 4, 9);
    assert_int_equal(luge_tensor_dtype(t), LUGE_F32);
    assert_values(luge_add_(t, luge_ones(LUGE_SCALAR, NULL)), 2, 5, 10);
}

/* What lies between is computed in the wider type and rounded once. */
static void a_narrow_target_is_written_from_a_wide_result(void **state)
{
    (void)state;
    LUGE_SCOPE("wide");
    luge_tensor *h = luge_cast(LUGE_TENSOR(LUGE_SHAPE(2), -60000, 1), LUGE_F16);
    assert_ptr_equal(luge_add_(h, LUGE_TENSOR(LUGE_SHAPE(2), 70000, 1)), h); /* 70000 is infinite in f16 */
    assert_int_equal(luge_tensor_dtype(h), LUGE_F16);
    assert_values(h, 10000, 2);
    luge_tensor *i = luge_cast(LUGE_TENSOR(LUGE_SHAPE(1), 7), LUGE_I32);
    luge_maximum_(i, luge_full(LUGE_SHAPE(1), 4294967296.0 + 5, &(luge_tensor_options){.dtype = LUGE_I64}));
    assert_values(i, 5); /* the larger one, in 32 bits */
    assert_null(luge_add_(h, luge_ones(LUGE_SHAPE(3, 2), NULL)));
    assert_error(LUGE_ERR_SHAPE, "add: the result is [3, 2] and does not fit into [2] in place");

    luge_tensor *w = LEAF(LUGE_SHAPE(2), 3, 4), *v = LEAF64(LUGE_SHAPE(2), 5, 6), *p = luge_mul_scalar(w, 2);
    luge_mul_(p, v);
    assert_int_equal(luge_tensor_dtype(p), LUGE_F32);
    assert_int_equal(luge_backward(total(p)), LUGE_OK);
    assert_values(luge_tensor_grad(w), 10, 12);
    assert_values(luge_tensor_grad(v), 6, 8);
}

static void agr_04_expanded_tensors_are_not_written(void **state)
{
    (void)state;
    LUGE_SCOPE("agr04");
    luge_tensor *a = LUGE_TENSOR(LUGE_SHAPE(1), 0), *b = luge_expand(a, LUGE_SHAPE(10));
    assert_null(luge_copy_(b, luge_arange(0, 10, 1, NULL)));
    assert_error(LUGE_ERR_ARGUMENT, "internal overlap");
    assert_null(luge_add_(b, luge_arange(0, 10, 1, NULL)));
    assert_error(LUGE_ERR_ARGUMENT, "internal overlap");
    assert_null(luge_fill_(b, 1));
    assert_error(LUGE_ERR_ARGUMENT, "internal overlap");
    assert_values(total(b), 0);
}

static void an_input_in_the_targets_memory_is_read_first(void **state)
{
    (void)state;
    LUGE_SCOPE("overlap");
    luge_tensor *t = luge_arange(0, 6, 1, NULL);
    luge_add_(luge_slice(t, 0, 1, 6), luge_slice(t, 0, 0, 5));
    assert_values(t, 0, 1, 3, 5, 7, 9);
    luge_tensor *m = LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 2, 3, 4);
    luge_add_(m, luge_transpose(m, 0, 1));
    assert_values(m, 2, 5, 5, 8);
    luge_sub_(m, luge_slice(m, 0, 0, 1)); /* the first row, broadcast */
    assert_values(m, 0, 0, 3, 3);
    luge_mul_(m, m);
    assert_values(m, 0, 0, 9, 9);
}

/* ---- graphs */

static void it_becomes_part_of_the_graph(void **state)
{
    (void)state;
    LUGE_SCOPE("graph");
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 3, 4);
    luge_tensor *h = luge_mul_scalar(w, 2);
    luge_add_(h, w);      /* 3w */
    luge_mul_scalar_(h, 5); /* 15w */
    luge_tensor *z = luge_zeros(LUGE_SHAPE(2), NULL);
    luge_add_(z, h); /* a constant becomes a part of the graph */
    assert_true(luge_tensor_requires_grad(z));
    assert_int_equal(luge_backward(total(luge_mul(z, LUGE_TENSOR(LUGE_SHAPE(2), 1, 10)))), LUGE_OK);
    assert_values(luge_tensor_grad(w), 15, 150);
}

static void old_values_are_kept_where_the_gradient_reads_them(void **state)
{
    (void)state;
    LUGE_SCOPE("old");
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 3, 4), *v = LEAF(LUGE_SHAPE(2), 5, 6);
    luge_tensor *h = luge_mul_scalar(w, 2);
    luge_mul_(h, v);   /* 2 w v: the gradient of v reads the old h */
    luge_square_(h);   /* and this one reads what it squares: 4 w^2 v^2 */
    assert_int_equal(luge_backward(total(h)), LUGE_OK);
    assert_values(luge_tensor_grad(w), 8 * 3 * 25, 8 * 4 * 36);
    assert_values(luge_tensor_grad(v), 8 * 9 * 5, 8 * 16 * 6);

    luge_tensor *x = LEAF(LUGE_SHAPE(2), 3, 4), *s = luge_add_scalar(x, 1);
    luge_mul_(s, s); /* (x + 1)^2 */
    assert_int_equal(luge_backward(total(s)), LUGE_OK);
    assert_values(luge_tensor_grad(x), 8, 10);

    luge_tensor *u = LEAF(LUGE_SHAPE(2), -1, 2), *r = luge_mul_scalar(u, 3);
    luge_relu_(r); /* reads its output, as it is after the write */
    assert_int_equal(luge_backward(total(r)), LUGE_OK);
    assert_values(luge_tensor_grad(u), 0, 3);
}

static void overwriting_ends_the_gradient(void **state)
{
    (void)state;
    LUGE_SCOPE("fill");
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 3, 4), *v = LEAF(LUGE_SHAPE(2), 1, 1);
    luge_tensor *h = luge_square(w);
    luge_fill_(h, 2);
    luge_mul_(h, v);
    assert_int_equal(luge_backward(total(h)), LUGE_OK);
    assert_values(luge_tensor_grad(v), 2, 2);
    assert_true(luge_is_none(luge_tensor_grad(w)));
    luge_tensor *c = luge_square(w);
    luge_copy_(c, v);
    assert_int_equal(luge_backward(total(c)), LUGE_OK);
    assert_values(luge_tensor_grad(v), 3, 3);
    assert_true(luge_is_none(luge_tensor_grad(w)));
}

static void changed_inputs_and_outputs_are_noticed(void **state)
{
    (void)state;
    LUGE_SCOPE("changed");
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 1, 2), *x = LUGE_TENSOR(LUGE_SHAPE(2), 5, 6);
    luge_tensor *y = total(luge_mul(w, x));
    luge_fill_(x, 0);
    assert_int_equal(luge_backward(y), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "mul: its input 1, [2] f32, is needed for the gradient but was changed in place");
    /* A leaf changed by an optimizer between forward and backward. */
    y = total(luge_square(w));
    {
        LUGE_NO_GRAD();
        luge_mul_scalar_(w, 2);
    }
    assert_int_equal(luge_backward(y), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "square: its input 0");
    /* What nobody reads may change. */
    y = luge_add(w, x);
    luge_fill_(x, 7);
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_values(luge_tensor_grad(w), 1, 1);
}

/* ---- refusals */

static void leaves_are_not_written_while_a_graph_is_recorded(void **state)
{
    (void)state;
    LUGE_SCOPE("leaf");
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 1, 2);
    assert_null(luge_add_(w, w));
    assert_error(LUGE_ERR_GRAPH, "add: a leaf that requires a gradient is not written in place");
    assert_null(luge_zero_(w));
    assert_error(LUGE_ERR_GRAPH, "leaf");
    assert_values(w, 1, 2);
    LUGE_NO_GRAD();
    assert_non_null(luge_add_(w, w));
    assert_values(w, 2, 4);
    assert_true(luge_tensor_requires_grad(w));
}

static void views_and_their_bases_are_not_written_in_a_graph(void **state)
{
    (void)state;
    LUGE_SCOPE("views");
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 1, 2);
    luge_tensor *h = luge_mul_scalar(w, 2), *view = luge_slice(h, 0, 0, 1);
    assert_null(luge_add_(view, view)); /* its base is in the graph */
    assert_error(LUGE_ERR_GRAPH, "memory that another tensor shares");
    assert_null(luge_add_(h, h)); /* it has a view */
    assert_error(LUGE_ERR_GRAPH, "memory that another tensor shares");
    assert_null(luge_relu_(luge_reshape(h, LUGE_SHAPE(1, 2)))); /* reshape was a view */
    assert_error(LUGE_ERR_GRAPH, "relu");
    assert_values(h, 2, 4);
    /* A constant's view that would become part of a graph without its base knowing. */
    luge_tensor *out = luge_zeros(LUGE_SHAPE(2, 2), NULL);
    assert_null(luge_copy_(luge_select(out, 0, 0), h));
    assert_error(LUGE_ERR_GRAPH, "luge_cat");
    assert_values(total(out), 0);
    LUGE_NO_GRAD();
    assert_non_null(luge_copy_(luge_select(out, 0, 0), h));
    assert_values(out, 2, 4, 0, 0);
}

static void a_view_alone_may_be_written(void **state)
{
    (void)state;
    LUGE_SCOPE("alone");
    luge_tensor *w = LEAF(LUGE_SHAPE(2, 2), 1, 2, 3, 4), *t;
    {
        LUGE_SCOPE("inner");
        t = luge_keep(luge_transpose(luge_mul_scalar(w, 2), 0, 1)); /* what it is a view of is gone */
    }
    assert_non_null(luge_mul_(t, LUGE_TENSOR(LUGE_SHAPE(2), 1, 10)));
    assert_int_equal(luge_backward(total(t)), LUGE_OK);
    assert_values(luge_tensor_grad(w), 2, 2, 20, 20);
}

static void saved_aliases_do_not_count_as_other_tensors(void **state)
{
    (void)state;
    LUGE_SCOPE("saved");
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 0, 0);
    luge_tensor *s = luge_sigmoid(w); /* saves its output */
    assert_non_null(luge_mul_scalar_(s, 2));
    assert_int_equal(luge_backward(total(s)), LUGE_ERR_GRAPH); /* but backward needs it as it was */
    assert_error(LUGE_ERR_GRAPH, "sigmoid: its output 0");
    assert_int_equal(atomic_load(&s->storage->saved_handles), 1);
    assert_int_equal(atomic_load(&s->storage->refs), 2);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_returns_its_argument),
        TEST(results_must_fit),
        TEST(a_narrow_target_is_written_from_a_wide_result),
        TEST(agr_04_expanded_tensors_are_not_written),
        TEST(an_input_in_the_targets_memory_is_read_first),
        TEST(it_becomes_part_of_the_graph),
        TEST(old_values_are_kept_where_the_gradient_reads_them),
        TEST(overwriting_ends_the_gradient),
        TEST(changed_inputs_and_outputs_are_noticed),
        TEST(leaves_are_not_written_while_a_graph_is_recorded),
        TEST(views_and_their_bases_are_not_written_in_a_graph),
        TEST(a_view_alone_may_be_written),
        TEST(saved_aliases_do_not_count_as_other_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
