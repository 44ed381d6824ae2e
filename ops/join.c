/* cat, stack and pad: tensors put beside others. */
#include "core/alloc.h"
#include "core/op.h"
#include "core/thread.h"
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/reference.h"
#include <luge/scope.h>

/* ---- cat */

static luge_status infer_cat(lg_call *call)
{
    int axis = ((const lg_axis_attrs *)call->attrs)->axis;
    const luge_tensor *first = call->in[0];
    luge_shape shape = first->shape;
    for (int k = 1; k < call->n_in; ++k) {
        luge_shape other = call->in[k]->shape;
        int64_t along = other.dim[axis];
        other.dim[axis] = first->shape.dim[axis];
        if (!lg_shape_equal(&other, &first->shape)) {
            char text[LG_SHAPE_TEXT], first_text[LG_SHAPE_TEXT];
            return lg_op_fail(call, LUGE_ERR_SHAPE, "%s and %s differ in more than axis %d",
                              lg_shape_text(first_text, &first->shape), lg_shape_text(text, &call->in[k]->shape), axis);
        }
        shape.dim[axis] += along;
        if (lg_shape_numel(&shape) < 0) return lg_op_fail(call, LUGE_ERR_SHAPE, "the result is too large");
    }
    lg_spec_ordered(call, 0, first->dtype, &shape, first);
    return LUGE_OK;
}

/* Elements of x to where they lie in y: `from` along an axis. */
static void place(luge_tensor *y, const luge_tensor *x, int axis, int64_t from)
{
    for (int64_t i = 0; i < x->numel; ++i) {
        int64_t at = lg_offset(x, i), to = from * y->stride[axis], rest = i;
        for (int k = x->shape.rank - 1; k >= 0; --k) {
            to += rest % x->shape.dim[k] * y->stride[k];
            rest /= x->shape.dim[k];
        }
        size_t size = lg_element_size(x);
        memcpy((char *)lg_data(y) + (size_t)to * size, (const char *)lg_data(x) + (size_t)at * size, size);
    }
}

static luge_status cat_reference(const lg_call *call)
{
    int axis = ((const lg_axis_attrs *)call->attrs)->axis;
    int64_t from = 0;
    for (int k = 0; k < call->n_in; ++k) {
        place(call->out[0], call->in[k], axis, from);
        from += call->in[k]->shape.dim[axis];
    }
    return LUGE_OK;
}

static luge_status cat_backward(lg_grad_call *c)
{
    int axis = ((const lg_axis_attrs *)c->attrs)->axis;
    int64_t from = 0;
    for (int k = 0; k < c->n_in; ++k) {
        int64_t to = from + c->in_shape[k].dim[axis];
        if (c->needs[k]) c->grad_in[k] = luge_slice(c->grad_out[0], axis, from, to);
        from = to;
    }
    return lg_error();
}

const lg_op lg_op_cat = {.name = "cat",
                         .n_in = -1,
                         .n_out = 1,
                         .flags = LG_PROMOTE,
                         .attrs_size = sizeof(lg_axis_attrs),
                         .infer = infer_cat,
                         .reference = cat_reference,
                         .backward = cat_backward};

static bool check_list(const char *name, luge_list tensors)
{
    if (!lg_ok()) return false;
    if (tensors.count < 1 || tensors.items == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: at least one tensor is needed", name);
        return false;
    }
    for (int k = 0; k < tensors.count; ++k)
        if (!lg_check_tensor(tensors.items[k], name)) return false;
    return true;
}

luge_tensor *luge_cat(luge_list tensors, int axis)
{
    if (!check_list("cat", tensors)) return NULL;
    int rank = tensors.items[0]->shape.rank;
    lg_axis_attrs attrs = {lg_axis(rank, axis)};
    if (attrs.axis < 0 || rank == 0) {
        lg_fail(LUGE_ERR_ARGUMENT, "cat: there is no axis %d in a tensor of rank %d", axis, rank);
        return NULL;
    }
    return lg_call1(&lg_op_cat, tensors.count, tensors.items, &attrs, LG_SITE);
}

static luge_status check_alike(luge_list tensors)
{
    const luge_shape *first = &tensors.items[0]->shape;
    for (int k = 1; k < tensors.count; ++k) {
        if (lg_shape_equal(&tensors.items[k]->shape, first)) continue;
        char text[LG_SHAPE_TEXT], first_text[LG_SHAPE_TEXT];
        return lg_fail(LUGE_ERR_SHAPE, "stack: the shapes %s and %s differ", lg_shape_text(first_text, first),
                       lg_shape_text(text, &tensors.items[k]->shape));
    }
    return LUGE_OK;
}

luge_tensor *luge_stack(luge_list tensors, int axis)
{
    if (!check_list("stack", tensors) || check_alike(tensors) != LUGE_OK) return NULL;
    int rank = tensors.items[0]->shape.rank;
    lg_axis_attrs attrs = {lg_axis(rank + 1, axis)};
    if (attrs.axis < 0) {
        lg_fail(LUGE_ERR_ARGUMENT, "stack: axis %d is outside the result's rank %d", axis, rank + 1);
        return NULL;
    }
    if (rank == LUGE_MAX_RANK) {
        lg_fail(LUGE_ERR_SHAPE, "stack: tensors of rank %d have no room for another axis", rank);
        return NULL;
    }
    luge_tensor **wide = lg_alloc((size_t)tensors.count * sizeof(luge_tensor *));
    if (wide == NULL) return NULL;
    luge_scope scope = luge_scope_enter("stack"); /* for messages: the ops are unsqueeze and cat */
    for (int k = 0; k < tensors.count; ++k) wide[k] = luge_unsqueeze(tensors.items[k], attrs.axis);
    luge_tensor *y = lg_call1(&lg_op_cat, tensors.count, wide, &attrs, LG_SITE);
    luge_scope_exit(scope, y);
    lg_free(wide);
    return lg_ok() ? y : NULL;
}

/* ---- pad */

static luge_status infer_pad(lg_call *call)
{
    const lg_pad_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0];
    luge_shape shape = x->shape;
    for (int i = 0; i < shape.rank; ++i) {
        int64_t sum;
        if (__builtin_add_overflow(a->before.dim[i], a->after.dim[i], &sum) ||
            __builtin_add_overflow(shape.dim[i], sum, &shape.dim[i]))
            return lg_op_fail(call, LUGE_ERR_SHAPE, "the result is too large");
    }
    if (lg_shape_numel(&shape) < 0) return lg_op_fail(call, LUGE_ERR_SHAPE, "the result is too large");
    lg_spec_ordered(call, 0, x->dtype, &shape, x);
    return LUGE_OK;
}

static luge_status pad_reference(const lg_call *call)
{
    const lg_pad_attrs *a = call->attrs;
    luge_tensor *y = call->out[0], *x = call->in[0];
    size_t size = lg_element_size(y);
    for (int64_t i = 0; i < y->numel; ++i) lg_set(y, i, a->value);
    for (int64_t i = 0; i < x->numel; ++i) {
        int64_t to = 0, rest = i;
        for (int k = x->shape.rank - 1; k >= 0; --k) {
            to += (rest % x->shape.dim[k] + a->before.dim[k]) * y->stride[k];
            rest /= x->shape.dim[k];
        }
        memcpy((char *)lg_data(y) + (size_t)to * size, (const char *)lg_data(x) + (size_t)lg_offset(x, i) * size, size);
    }
    return LUGE_OK;
}

static luge_status pad_backward(lg_grad_call *c)
{
    const lg_pad_attrs *a = c->attrs;
    luge_tensor *g = c->grad_out[0];
    for (int i = 0; i < c->in_shape[0].rank; ++i)
        if (a->before.dim[i] > 0 || a->after.dim[i] > 0)
            g = luge_slice(g, i, a->before.dim[i], a->before.dim[i] + c->in_shape[0].dim[i]);
    c->grad_in[0] = g;
    return lg_error();
}

const lg_op lg_op_pad = {.name = "pad",
                         .n_in = 1,
                         .n_out = 1,
                         .attrs_size = sizeof(lg_pad_attrs),
                         .infer = infer_pad,
                         .reference = pad_reference,
                         .backward = pad_backward};

luge_tensor *luge_pad(luge_tensor *a, luge_shape before, luge_shape after, double value)
{
    if (!lg_usable(a, "pad")) return NULL;
    if (before.rank != a->shape.rank || after.rank != a->shape.rank) {
        lg_fail(LUGE_ERR_SHAPE, "pad: before and after need a size for each of the %d axes", a->shape.rank);
        return NULL;
    }
    for (int i = 0; i < before.rank; ++i) {
        if (before.dim[i] >= 0 && after.dim[i] >= 0) continue;
        lg_fail(LUGE_ERR_ARGUMENT, "pad: axis %d: the padding must not be negative", i);
        return NULL;
    }
    lg_pad_attrs attrs = {before, after, value};
    return LG_CALL(pad, &attrs, a);
}
