/* Views: reshape and its relatives, permute, expand, slice, select; their gradients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/ops.h"

static luge_tensor *counting(int64_t rows, int64_t columns)
{
    return luge_reshape(luge_arange(0, (double)(rows * columns), 1, NULL), LUGE_SHAPE(rows, columns));
}

static bool shares(const luge_tensor *a, const luge_tensor *b) { return a != NULL && b != NULL && a->storage == b->storage; }

static void assert_shape(const luge_tensor *t, luge_shape should)
{
    assert_ok();
    char is[LG_SHAPE_TEXT], other[LG_SHAPE_TEXT];
    if (!lg_shape_equal(&t->shape, &should)) fail_msg("%s, not %s", lg_shape_text(is, &t->shape), lg_shape_text(other, &should));
}

static void test_reshape(void **state)
{
    (void)state;
    luge_tensor *a = counting(3, 4);
    assert_shape(luge_reshape(a, LUGE_SHAPE(2, -1)), LUGE_SHAPE(2, 6));
    assert_true(shares(luge_reshape(a, LUGE_SHAPE(12)), a));
    luge_tensor *turned = luge_transpose(a, 0, 1), *flat = luge_reshape(turned, LUGE_SHAPE(-1));
    assert_false(shares(flat, a));
    assert_values(flat, 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11);
    assert_true(shares(luge_reshape(turned, LUGE_SHAPE(2, 2, 3)), a)); /* an axis cut in two needs no copy */
    assert_shape(luge_reshape(luge_full(LUGE_SCALAR, 3, NULL), LUGE_SHAPE(1, 1)), LUGE_SHAPE(1, 1));
    assert_shape(luge_reshape(luge_ones(LUGE_SHAPE(1), NULL), LUGE_SCALAR), LUGE_SCALAR);
    assert_shape(luge_reshape(luge_zeros(LUGE_SHAPE(0, 3), NULL), LUGE_SHAPE(7, 0)), LUGE_SHAPE(7, 0));
    assert_refused(luge_reshape(a, LUGE_SHAPE(5)), LUGE_ERR_SHAPE, "reshape: [5] does not fit [3, 4] (12 elements)");
    assert_refused(luge_reshape(a, LUGE_SHAPE(-1, -1)), LUGE_ERR_SHAPE, "reshape");
    assert_refused(luge_reshape(a, LUGE_SHAPE(5, -1)), LUGE_ERR_SHAPE, "reshape");
    assert_refused(luge_reshape(a, LUGE_SHAPE(-2, 6)), LUGE_ERR_SHAPE, "reshape");
    assert_refused(luge_reshape(luge_zeros(LUGE_SHAPE(0), NULL), LUGE_SHAPE(0, -1)), LUGE_ERR_SHAPE, "reshape");
    assert_refused(luge_reshape(a, (luge_shape){.rank = 9}), LUGE_ERR_SHAPE, "reshape");
    assert_refused(luge_reshape(a, (luge_shape){.rank = -1}), LUGE_ERR_SHAPE, "reshape");
    assert_refused(luge_reshape(NULL, LUGE_SHAPE(1)), LUGE_ERR_ARGUMENT, "reshape");
    assert_refused(luge_reshape(LUGE_NONE, LUGE_SHAPE(1)), LUGE_ERR_ARGUMENT, "reshape");
}

static void test_view(void **state)
{
    (void)state;
    luge_tensor *a = counting(3, 4);
    luge_tensor *v = luge_view(a, LUGE_SHAPE(6, 2));
    assert_true(shares(v, a));
    luge_fill_(v, 7);
    assert_near(luge_item(luge_sum(a, LUGE_ALL_AXES)), 84, 0);
    assert_refused(luge_view(luge_transpose(a, 0, 1), LUGE_SHAPE(12)), LUGE_ERR_SHAPE, "view: the elements do not lie so that [12] needs no copy");
    assert_refused(luge_view(a, LUGE_SHAPE(5, 2)), LUGE_ERR_SHAPE, "view: [5, 2] does not fit");
}

static void test_flatten_squeeze_unsqueeze(void **state)
{
    (void)state;
    luge_tensor *a = luge_zeros(LUGE_SHAPE(2, 3, 1, 5), NULL);
    assert_shape(luge_flatten(a, 1, -1), LUGE_SHAPE(2, 15));
    assert_shape(luge_flatten(a, 0, -1), LUGE_SHAPE(30));
    assert_shape(luge_flatten(a, 2, 2), LUGE_SHAPE(2, 3, 1, 5));
    assert_shape(luge_flatten(luge_full(LUGE_SCALAR, 1, NULL), 0, -1), LUGE_SHAPE(1));
    assert_shape(luge_flatten(luge_zeros(LUGE_SHAPE(0, 3), NULL), 0, 1), LUGE_SHAPE(0));
    assert_refused(luge_flatten(a, 2, 1), LUGE_ERR_ARGUMENT, "flatten: axis 2 comes after axis 1");
    assert_refused(luge_flatten(a, 0, 4), LUGE_ERR_ARGUMENT, "flatten: there is no axis 4 in a tensor of rank 4");

    assert_shape(luge_squeeze(a, 2), LUGE_SHAPE(2, 3, 5));
    assert_shape(luge_squeeze(a, -2), LUGE_SHAPE(2, 3, 5));
    assert_refused(luge_squeeze(a, 1), LUGE_ERR_SHAPE, "squeeze: axis 1 of [2, 3, 1, 5] does not have size 1");
    assert_refused(luge_squeeze(luge_full(LUGE_SCALAR, 1, NULL), 0), LUGE_ERR_ARGUMENT, "squeeze: there is no axis 0");
    assert_shape(luge_unsqueeze(a, 0), LUGE_SHAPE(1, 2, 3, 1, 5));
    assert_shape(luge_unsqueeze(a, -1), LUGE_SHAPE(2, 3, 1, 5, 1));
    assert_shape(luge_unsqueeze(a, 4), LUGE_SHAPE(2, 3, 1, 5, 1));
    assert_shape(luge_unsqueeze(luge_full(LUGE_SCALAR, 1, NULL), 0), LUGE_SHAPE(1));
    luge_tensor *turned = luge_unsqueeze(luge_transpose(counting(3, 4), 0, 1), 1);
    assert_shape(turned, LUGE_SHAPE(4, 1, 3));
    assert_values(luge_select(luge_squeeze(turned, 1), 0, 1), 1, 5, 9);
    assert_refused(luge_unsqueeze(a, 5), LUGE_ERR_ARGUMENT, "unsqueeze: there is no axis 5");
    assert_refused(luge_unsqueeze(luge_zeros(LUGE_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), NULL), 0), LUGE_ERR_SHAPE, "8 axes already");
}

static void test_permute_and_transpose(void **state)
{
    (void)state;
    luge_tensor *a = luge_reshape(luge_arange(0, 24, 1, NULL), LUGE_SHAPE(2, 3, 4));
    luge_tensor *p = luge_permute(a, LUGE_AXES(2, 0, -2));
    assert_shape(p, LUGE_SHAPE(4, 2, 3));
    assert_true(shares(p, a));
    assert_near(luge_item(luge_select(luge_select(luge_select(p, 0, 3), 0, 1), 0, 2)), 23, 0);
    assert_values(luge_select(luge_select(p, 0, 1), 0, 0), 1, 5, 9);
    assert_shape(luge_transpose(a, 0, -1), LUGE_SHAPE(4, 3, 2));
    assert_shape(luge_transpose(a, 1, 1), LUGE_SHAPE(2, 3, 4));
    luge_tensor *scalar = luge_full(LUGE_SCALAR, 1, NULL);
    assert_shape(luge_permute(scalar, LUGE_ALL_AXES), LUGE_SCALAR);
    assert_refused(luge_permute(a, LUGE_AXES(0, 1)), LUGE_ERR_ARGUMENT, "permute: each of the 3 axes must be named once");
    assert_refused(luge_permute(a, LUGE_AXES(0, 1, -2)), LUGE_ERR_ARGUMENT, "must be named once");
    assert_refused(luge_permute(a, LUGE_AXES(0, 1, 3)), LUGE_ERR_ARGUMENT, "must be named once");
    assert_refused(luge_transpose(a, 0, 3), LUGE_ERR_ARGUMENT, "transpose: there is no axis 3");
    assert_refused(luge_transpose(scalar, 0, 0), LUGE_ERR_ARGUMENT, "transpose: there is no axis 0");
}

static void test_expand(void **state)
{
    (void)state;
    luge_tensor *a = LUGE_TENSOR(LUGE_SHAPE(2, 1), 1, 2);
    luge_tensor *e = luge_expand(a, LUGE_SHAPE(3, -1, 2));
    assert_shape(e, LUGE_SHAPE(3, 2, 2));
    assert_true(shares(e, a));
    assert_near(luge_item(luge_sum(e, LUGE_ALL_AXES)), 18, 0);
    assert_shape(luge_expand(a, LUGE_SHAPE(2, 0)), LUGE_SHAPE(2, 0));
    assert_shape(luge_expand(luge_full(LUGE_SCALAR, 1, NULL), LUGE_SHAPE(2, 3)), LUGE_SHAPE(2, 3));
    assert_refused(luge_expand(a, LUGE_SHAPE(3, 1)), LUGE_ERR_SHAPE, "expand: [2, 1] does not repeat to [3, 1]");
    assert_refused(luge_expand(a, LUGE_SHAPE(2)), LUGE_ERR_SHAPE, "expand");
    assert_refused(luge_expand(a, LUGE_SHAPE(-1, 2, 1)), LUGE_ERR_SHAPE, "expand");
    assert_refused(luge_expand(a, LUGE_SHAPE(2, -3)), LUGE_ERR_SHAPE, "expand");
    assert_refused(luge_expand(a, (luge_shape){.rank = 12}), LUGE_ERR_SHAPE, "expand");
    assert_refused(luge_expand(a, LUGE_SHAPE(INT64_MAX, 2, INT64_MAX)), LUGE_ERR_SHAPE, "expand");
}

static void test_slice_and_select(void **state)
{
    (void)state;
    luge_tensor *a = counting(3, 4);
    assert_values(luge_slice(a, 0, 1, 2), 4, 5, 6, 7);
    assert_values(luge_slice(a, 1, -2, 100), 2, 3, 6, 7, 10, 11);
    assert_values(luge_slice(a, -1, -100, 1), 0, 4, 8);
    assert_values(luge_slice(luge_slice(a, 0, 1, 3), 1, 1, 3), 5, 6, 9, 10);
    assert_shape(luge_slice(a, 0, 2, 1), LUGE_SHAPE(0, 4));
    assert_shape(luge_slice(a, 0, 5, INT64_MAX), LUGE_SHAPE(0, 4));
    assert_shape(luge_slice(a, 0, INT64_MIN, INT64_MAX), LUGE_SHAPE(3, 4));
    assert_true(shares(luge_slice(a, 0, 1, 2), a));
    assert_values(luge_select(a, 0, 2), 8, 9, 10, 11);
    assert_values(luge_select(a, 1, -1), 3, 7, 11);
    assert_values(luge_select(luge_select(a, 1, 2), 0, 1), 6);
    assert_refused(luge_select(a, 0, 3), LUGE_ERR_ARGUMENT, "select: index 3 is outside axis 0, which has size 3");
    assert_refused(luge_select(a, 1, -5), LUGE_ERR_ARGUMENT, "index -5");
    assert_refused(luge_select(a, 2, 0), LUGE_ERR_ARGUMENT, "there is no axis 2");
    assert_refused(luge_select(a, 0, INT64_MIN), LUGE_ERR_ARGUMENT, "select");
    assert_refused(luge_slice(luge_full(LUGE_SCALAR, 1, NULL), 0, 0, 1), LUGE_ERR_ARGUMENT, "slice: there is no axis 0");
}

/* Views run no kernel and see what is written into their base. */
static void test_views_run_no_kernel(void **state)
{
    (void)state;
    luge_tensor *a = counting(3, 4);
    luge_op_counts before = luge_op_count();
    luge_tensor *v = luge_select(luge_permute(luge_unsqueeze(luge_slice(a, 0, 1, 3), 0), LUGE_AXES(2, 1, 0)), 0, 1);
    assert_int_equal(luge_op_count().kernels, before.kernels);
    assert_int_equal(luge_op_count().references, before.references);
    assert_int_equal(luge_op_count().views - before.views, 4);
    luge_fill_(a, 3);
    assert_values(v, 3, 3);
}

/* ---- gradients */

static luge_tensor *views(luge_list in, void *user)
{
    luge_tensor *x = in.items[0]; /* [2, 3, 4] */
    switch (*(int *)user) {
    case 0: return luge_reshape(luge_permute(x, LUGE_AXES(2, 0, 1)), LUGE_SHAPE(8, 3));
    case 1: return luge_slice(luge_slice(x, 2, 1, 3), 0, -1, 2);
    case 2: return luge_select(luge_select(x, 1, 1), -1, 2);
    case 3: return luge_expand(luge_slice(x, 1, 0, 1), LUGE_SHAPE(5, 2, 3, 4));
    case 4: return luge_squeeze(luge_unsqueeze(luge_flatten(x, 0, 1), 1), 1);
    case 5: return luge_stack(LUGE_LIST(x, luge_square(x)), 1);
    case 6: return luge_pad(x, LUGE_SHAPE(1, 0, 2), LUGE_SHAPE(0, 3, 1), 0.5);
    case 7: return luge_cat(LUGE_LIST(luge_slice(x, 1, 1, 3), x, luge_slice(x, 1, 2, 2)), 1);
    default: return luge_contiguous(luge_transpose(luge_clone(x), 0, 2));
    }
}

static void test_gradients(void **state)
{
    (void)state;
    for (int which = 0; which <= 8; ++which) {
        LUGE_SCOPE("gradients");
        char name[32];
        snprintf(name, sizeof name, "views %d", which);
        assert_gradients(views, LUGE_LIST(leaf(LUGE_SHAPE(2, 3, 4))), &which, name);
    }
}

static void test_gradient_of_slices_of_an_image(void **state)
{
    (void)state;
    luge_tensor *x = luge_requires_grad_(luge_channels_last(luge_randn(LUGE_SHAPE(2, 3, 4, 5), NULL)));
    luge_backward(luge_sum(luge_slice(x, 1, 1, 2), LUGE_ALL_AXES));
    assert_near(luge_item(luge_sum(luge_tensor_grad(x), LUGE_ALL_AXES)), 40, 0);
    assert_near(luge_item(luge_sum(luge_select(luge_tensor_grad(x), 1, 1), LUGE_ALL_AXES)), 40, 0);
}

/* What ops.h says of axes of rank 0. */
static void test_axes_of_scalars(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *s = luge_full(LUGE_SCALAR, 3, NULL);
    for (int axis = -1; axis <= 0; ++axis) {
        assert_shape(luge_sum(s, LUGE_AXES(axis)), LUGE_SCALAR);
        assert_shape(luge_max(s, LUGE_AXES_KEEPDIM(axis)), LUGE_SCALAR);
        assert_shape(luge_argmax(s, axis), LUGE_SCALAR);
        assert_shape(luge_cumsum(s, axis), LUGE_SCALAR);
        assert_shape(luge_softmax(s, axis), LUGE_SCALAR);
        assert_shape(luge_flatten(s, axis, axis), LUGE_SHAPE(1));
        assert_shape(luge_unsqueeze(s, axis), LUGE_SHAPE(1));
        assert_shape(luge_stack(LUGE_LIST(s, s), axis), LUGE_SHAPE(2));
        assert_refused(luge_transpose(s, axis, axis), LUGE_ERR_ARGUMENT, "transpose: there is no axis");
        assert_refused(luge_squeeze(s, axis), LUGE_ERR_ARGUMENT, "squeeze: there is no axis");
        assert_refused(luge_slice(s, axis, 0, 1), LUGE_ERR_ARGUMENT, "slice: there is no axis");
        assert_refused(luge_select(s, axis, 0), LUGE_ERR_ARGUMENT, "select: there is no axis");
        assert_refused(luge_cat(LUGE_LIST(s, s), axis), LUGE_ERR_ARGUMENT, "cat: there is no axis");
    }
    for (int axis = -2; axis <= 1; axis += 3) {
        assert_refused(luge_sum(s, LUGE_AXES(axis)), LUGE_ERR_ARGUMENT, "sum: there is no axis");
        assert_refused(luge_softmax(s, axis), LUGE_ERR_ARGUMENT, "softmax: [] has no axis");
        assert_refused(luge_unsqueeze(s, axis), LUGE_ERR_ARGUMENT, "unsqueeze: there is no axis");
    }
    luge_tensor *full = luge_zeros(LUGE_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), NULL);
    assert_refused(luge_stack(LUGE_LIST(full, full), 0), LUGE_ERR_SHAPE, "stack: tensors of rank 8 have no room");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_reshape),
        OP_TEST(test_view),
        OP_TEST(test_flatten_squeeze_unsqueeze),
        OP_TEST(test_permute_and_transpose),
        OP_TEST(test_expand),
        OP_TEST(test_slice_and_select),
        OP_TEST(test_axes_of_scalars),
        OP_TEST(test_views_run_no_kernel),
        OP_TEST(test_gradients),
        OP_TEST(test_gradient_of_slices_of_an_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
