/* Ops that move elements as they are: cast, copy (in another layout, or in place from a tensor of
 * another shape and dtype) and fill. */
#include "core/op.h"
#include "core/services.h"
#include "core/thread.h"
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/reference.h"
#include <luge/ops.h>
#include <luge/scope.h>

static luge_status infer_cast(lg_call *call)
{
    luge_dtype dtype = ((const lg_dtype_attrs *)call->attrs)->dtype;
    if (!lg_dtype_valid(dtype)) return lg_op_fail(call, LUGE_ERR_DTYPE, "%d is no luge_dtype", (int)dtype);
    lg_spec_like(call, 0, dtype, call->in[0]);
    if (!((const lg_dtype_attrs *)call->attrs)->shared) return LUGE_OK;
    call->out[0] = lg_cast_cache_find(call->in[0], dtype);
    return lg_error();
}

/* The source is the last input: (x) -> y, or in place (t, from). */
static luge_status copy_reference(const lg_call *call)
{
    luge_tensor *to = call->out[0], *from = call->in[call->n_in - 1];
    int64_t stride[LUGE_MAX_RANK];
    lg_broadcast_strides(&from->shape, from->stride, &to->shape, stride);
    for (int64_t i = 0; i < to->numel; ++i) {
        int64_t at = 0, rest = i;
        for (int axis = to->shape.rank - 1; axis >= 0; --axis) {
            at += rest % to->shape.dim[axis] * stride[axis];
            rest /= to->shape.dim[axis];
        }
        lg_convert((char *)lg_data(to) + lg_offset(to, i) * (int64_t)lg_element_size(to), to->dtype,
                   (const char *)lg_data(from) + at * (int64_t)lg_element_size(from), from->dtype);
    }
    return LUGE_OK;
}

/* The engine casts to the input's dtype and sums over broadcast axes. */
static luge_status pass_on(lg_grad_call *c)
{
    c->grad_in[c->n_in - 1] = c->grad_out[0];
    return LUGE_OK;
}

const lg_op lg_op_cast = {.name = "cast",
                          .n_in = 1,
                          .n_out = 1,
                          .attrs_size = sizeof(lg_dtype_attrs),
                          .infer = infer_cast,
                          .reference = copy_reference,
                          .backward = pass_on};

luge_tensor *luge_cast(luge_tensor *t, luge_dtype dtype)
{
    if (!lg_usable(t, "cast")) return NULL;
    if (t->dtype == dtype) return lg_lend(t);
    lg_dtype_attrs attrs = {.dtype = dtype};
    return LG_CALL(cast, &attrs, t);
}

/* ---- copy */

static luge_status infer_copy_into(lg_call *call)
{
    const luge_tensor *t = call->in[0], *from = call->in[1];
    luge_shape both = t->shape;
    if (!lg_broadcast(&both, &from->shape) || !lg_shape_equal(&both, &t->shape)) {
        char to_text[LG_SHAPE_TEXT], from_text[LG_SHAPE_TEXT];
        return lg_op_fail(call, LUGE_ERR_SHAPE, "%s does not broadcast to %s", lg_shape_text(from_text, &from->shape),
                          lg_shape_text(to_text, &t->shape));
    }
    lg_spec_like(call, 0, t->dtype, t);
    return LUGE_OK;
}

static luge_status infer_copy(lg_call *call)
{
    if (call->in_place) return infer_copy_into(call);
    const luge_tensor *x = call->in[0];
    switch (((const lg_layout_attrs *)call->attrs)->layout) {
    case LG_LAYOUT_KEEP: lg_spec_like(call, 0, x->dtype, x); break;
    case LG_LAYOUT_CONTIGUOUS: lg_spec_contiguous(call, 0, x->dtype, &x->shape); break;
    case LG_LAYOUT_CHANNELS_LAST: lg_spec_channels_last(call, 0, x->dtype, &x->shape); break;
    }
    return LUGE_OK;
}

const lg_op lg_op_copy = {.name = "copy",
                          .n_in = -1,
                          .n_out = 1,
                          .attrs_size = sizeof(lg_layout_attrs),
                          .infer = infer_copy,
                          .reference = copy_reference,
                          .backward = pass_on};

static luge_tensor *copy_to(luge_tensor *t, lg_layout layout, const void *site)
{
    lg_layout_attrs attrs = {layout};
    /* What was dense and is put into another order: that should be rare in a model. */
    if (layout != LG_LAYOUT_KEEP && t->shape.rank > 2 && lg_strides_are_dense(&t->shape, t->stride))
        lg_count(LG_COUNT_TRANSPOSE);
    return lg_call1(&lg_op_copy, 1, &t, &attrs, site);
}

luge_tensor *luge_contiguous(luge_tensor *t)
{
    if (!lg_usable(t, "contiguous")) return NULL;
    return lg_is_contiguous(t) ? lg_lend(t) : copy_to(t, LG_LAYOUT_CONTIGUOUS, LG_SITE);
}

luge_tensor *luge_channels_last(luge_tensor *t)
{
    if (!lg_usable(t, "channels_last")) return NULL;
    if (t->shape.rank != 4) {
        char text[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "channels_last: [N, C, H, W] is needed, not %s", lg_shape_text(text, &t->shape));
        return NULL;
    }
    return lg_strides_are_channels_last(&t->shape, t->stride) ? lg_lend(t) : copy_to(t, LG_LAYOUT_CHANNELS_LAST, LG_SITE);
}

luge_tensor *luge_clone(luge_tensor *t)
{
    return lg_usable(t, "clone") ? copy_to(t, LG_LAYOUT_KEEP, LG_SITE) : NULL;
}

static bool is_elsewhere(const luge_tensor *t, const luge_tensor *from)
{
    return t != NULL && from != NULL && !lg_is_none(t) && !lg_is_none(from) && t->magic == LG_TENSOR_MAGIC &&
           from->magic == LG_TENSOR_MAGIC && t->storage->device != from->storage->device;
}

luge_tensor *luge_copy_(luge_tensor *t, luge_tensor *from)
{
    lg_layout_attrs attrs = {LG_LAYOUT_KEEP};
    if (!lg_ok() || !is_elsewhere(t, from)) return LG_CALL_IN_PLACE(copy, &attrs, t, from);
    luge_scope scope = luge_scope_enter(NULL);
    LG_CALL_IN_PLACE(copy, &attrs, t, luge_to(from, t->storage->device->id, NULL));
    luge_scope_exit(scope, NULL);
    return lg_ok() ? t : NULL;
}

/* ---- fill */

static luge_status infer_fill(lg_call *call)
{
    lg_spec_like(call, 0, call->in[0]->dtype, call->in[0]);
    return LUGE_OK;
}

static luge_status fill_reference(const lg_call *call)
{
    luge_tensor *t = call->out[0];
    double value = ((const lg_number_attrs *)call->attrs)->p;
    for (int64_t i = 0; i < t->numel; ++i) lg_set(t, i, value);
    return LUGE_OK;
}

/* Nothing of the old values is left, so nothing flows back to them. */
static luge_status fill_backward(lg_grad_call *c)
{
    (void)c;
    return LUGE_OK;
}

const lg_op lg_op_fill = {.name = "fill",
                          .n_in = 1,
                          .n_out = 1,
                          .attrs_size = sizeof(lg_number_attrs),
                          .infer = infer_fill,
                          .reference = fill_reference,
                          .backward = fill_backward};

luge_tensor *luge_fill_(luge_tensor *t, double value)
{
    lg_number_attrs attrs = {.p = value};
    return LG_CALL_IN_PLACE(fill, &attrs, t);
}

luge_tensor *luge_zero_(luge_tensor *t)
{
    lg_number_attrs attrs = {0};
    luge_scope scope = luge_scope_enter("zero_"); /* for messages: the op is fill */
    luge_tensor *done = LG_CALL_IN_PLACE(fill, &attrs, t);
    luge_scope_exit(scope, NULL);
    return done;
}
