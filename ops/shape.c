/* Views: ops that show the elements of a tensor in another shape, without a kernel. Their gradients
 * are views again, or slice_backward, which surrounds a slice with zeros. */
#include <inttypes.h>
#include "core/op.h"
#include "core/thread.h"
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/reference.h"

static lg_spec *view_of_input(lg_call *call)
{
    const luge_tensor *x = call->in[0];
    lg_spec *s = &call->spec[0];
    call->view_of = 0;
    s->dtype = x->dtype;
    s->shape = x->shape;
    s->offset = x->offset;
    memcpy(s->stride, x->stride, sizeof s->stride);
    return s;
}

static void remove_axis(lg_spec *s, int axis)
{
    --s->shape.rank;
    for (int i = axis; i < s->shape.rank; ++i) {
        s->shape.dim[i] = s->shape.dim[i + 1];
        s->stride[i] = s->stride[i + 1];
    }
    s->shape.dim[s->shape.rank] = 0;
}

/* The axis as 0..rank-1, or -1 with the error set. */
static int find_axis(const char *name, int rank, int axis)
{
    int found = lg_axis(rank, axis);
    if (found < 0 || found >= rank) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: there is no axis %d in a tensor of rank %d", name, axis, rank);
        return -1;
    }
    return found;
}

/* ---- reshape */

static luge_status infer_reshape(lg_call *call)
{
    const luge_shape *to = &((const lg_shape_attrs *)call->attrs)->shape;
    const luge_tensor *x = call->in[0];
    lg_spec *s = view_of_input(call);
    s->shape = *to;
    if (lg_shape_numel(to) == x->numel && lg_reshape_strides(&x->shape, x->stride, to, s->stride)) return LUGE_OK;
    char from_text[LG_SHAPE_TEXT], to_text[LG_SHAPE_TEXT];
    return lg_op_fail(call, LUGE_ERR_SHAPE, "%s cannot be viewed as %s", lg_shape_text(from_text, &x->shape),
                      lg_shape_text(to_text, to));
}

static luge_status reshape_backward(lg_grad_call *c)
{
    c->grad_in[0] = luge_reshape(c->grad_out[0], c->in_shape[0]);
    return lg_error();
}

const lg_op lg_op_reshape = {.name = "reshape",
                             .n_in = 1,
                             .n_out = 1,
                             .attrs_size = sizeof(lg_shape_attrs),
                             .infer = infer_reshape,
                             .backward = reshape_backward};

/* Fills in the size given as -1; false, with the error set, if the shape does not fit numel elements. */
static bool complete_shape(const char *name, const luge_tensor *a, luge_shape *shape)
{
    luge_shape known = *shape;
    int open = -1;
    bool several = false;
    if (known.rank >= 0 && known.rank <= LUGE_MAX_RANK) {
        for (int i = 0; i < known.rank; ++i) {
            if (known.dim[i] != -1) continue;
            several = open >= 0;
            open = i;
            known.dim[i] = 1;
        }
    }
    int64_t n = lg_shape_numel(&known);
    bool fits = n >= 0 && !several;
    if (fits && open >= 0) {
        fits = n > 0 && a->numel % n == 0;
        if (fits) known.dim[open] = a->numel / n;
    } else {
        fits = fits && n == a->numel;
    }
    if (fits) {
        *shape = known;
        return true;
    }
    char from_text[LG_SHAPE_TEXT], to_text[LG_SHAPE_TEXT];
    lg_fail(LUGE_ERR_SHAPE, "%s: %s does not fit %s (%" PRId64 " elements)", name, lg_shape_text(to_text, shape),
            lg_shape_text(from_text, &a->shape), a->numel);
    return false;
}

static luge_tensor *view_as(luge_tensor *a, const luge_shape *shape, const void *site)
{
    lg_shape_attrs attrs = {*shape};
    return lg_call1(&lg_op_reshape, 1, &a, &attrs, site);
}

/* To a complete shape that fits. */
static luge_tensor *reshape_to(luge_tensor *a, const luge_shape *shape, const void *site)
{
    int64_t stride[LUGE_MAX_RANK];
    if (!lg_reshape_strides(&a->shape, a->stride, shape, stride)) a = luge_contiguous(a);
    return view_as(a, shape, site);
}

luge_tensor *luge_reshape(luge_tensor *a, luge_shape shape)
{
    if (!lg_usable(a, "reshape") || !complete_shape("reshape", a, &shape)) return NULL;
    return reshape_to(a, &shape, LG_SITE);
}

luge_tensor *luge_view(luge_tensor *a, luge_shape shape)
{
    if (!lg_usable(a, "view") || !complete_shape("view", a, &shape)) return NULL;
    int64_t stride[LUGE_MAX_RANK];
    if (!lg_reshape_strides(&a->shape, a->stride, &shape, stride)) {
        char text[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "view: the elements do not lie so that %s needs no copy; luge_reshape makes one",
                lg_shape_text(text, &shape));
        return NULL;
    }
    return view_as(a, &shape, LG_SITE);
}

luge_tensor *luge_flatten(luge_tensor *a, int start, int end)
{
    if (!lg_usable(a, "flatten")) return NULL;
    int rank = a->shape.rank > 0 ? a->shape.rank : 1;
    int first = find_axis("flatten", rank, start), last = find_axis("flatten", rank, end);
    if (first < 0 || last < 0) return NULL;
    if (first > last) {
        lg_fail(LUGE_ERR_ARGUMENT, "flatten: axis %d comes after axis %d", start, end);
        return NULL;
    }
    luge_shape shape = {0};
    for (int i = 0; i < rank; ++i) {
        int64_t size = a->shape.rank > 0 ? a->shape.dim[i] : 1;
        if (i > first && i <= last) {
            shape.dim[shape.rank - 1] *= size;
        } else {
            shape.dim[shape.rank++] = size;
        }
    }
    return reshape_to(a, &shape, LG_SITE);
}

luge_tensor *luge_unsqueeze(luge_tensor *a, int axis)
{
    if (!lg_usable(a, "unsqueeze")) return NULL;
    if (a->shape.rank == LUGE_MAX_RANK) {
        lg_fail(LUGE_ERR_SHAPE, "unsqueeze: the tensor has %d axes already, the most there can be", LUGE_MAX_RANK);
        return NULL;
    }
    luge_shape shape = a->shape;
    int at = find_axis("unsqueeze", ++shape.rank, axis);
    if (at < 0) return NULL;
    for (int i = shape.rank - 1; i > at; --i) shape.dim[i] = shape.dim[i - 1];
    shape.dim[at] = 1;
    return view_as(a, &shape, LG_SITE);
}

luge_tensor *luge_squeeze(luge_tensor *a, int axis)
{
    if (!lg_usable(a, "squeeze")) return NULL;
    int at = find_axis("squeeze", a->shape.rank, axis);
    if (at < 0) return NULL;
    if (a->shape.dim[at] != 1) {
        char text[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "squeeze: axis %d of %s does not have size 1", axis, lg_shape_text(text, &a->shape));
        return NULL;
    }
    luge_shape shape = lg_reduced_shape(&a->shape, 1u << at, false);
    return view_as(a, &shape, LG_SITE);
}

/* ---- permute */

static luge_status infer_permute(lg_call *call)
{
    const int *order = ((const lg_permute_attrs *)call->attrs)->order;
    const luge_tensor *x = call->in[0];
    lg_spec *s = view_of_input(call);
    for (int i = 0; i < x->shape.rank; ++i) {
        s->shape.dim[i] = x->shape.dim[order[i]];
        s->stride[i] = x->stride[order[i]];
    }
    return LUGE_OK;
}

static luge_status permute_backward(lg_grad_call *c)
{
    lg_permute_attrs back = {0};
    for (int i = 0; i < c->in_shape[0].rank; ++i) back.order[((const lg_permute_attrs *)c->attrs)->order[i]] = i;
    c->grad_in[0] = LG_CALL(permute, &back, c->grad_out[0]);
    return lg_error();
}

const lg_op lg_op_permute = {.name = "permute",
                             .n_in = 1,
                             .n_out = 1,
                             .attrs_size = sizeof(lg_permute_attrs),
                             .infer = infer_permute,
                             .backward = permute_backward};

luge_tensor *luge_permute(luge_tensor *a, luge_axes order)
{
    if (!lg_usable(a, "permute")) return NULL;
    uint32_t mask;
    int rank = a->shape.rank;
    if (order.count != rank || !lg_axes_mask(rank, &order, &mask)) {
        lg_fail(LUGE_ERR_ARGUMENT, "permute: each of the %d axes must be named once", rank);
        return NULL;
    }
    lg_permute_attrs attrs = {0};
    for (int i = 0; i < rank; ++i) attrs.order[i] = lg_axis(rank, order.axis[i]);
    return LG_CALL(permute, &attrs, a);
}

luge_tensor *luge_transpose(luge_tensor *a, int axis0, int axis1)
{
    if (!lg_usable(a, "transpose")) return NULL;
    int first = find_axis("transpose", a->shape.rank, axis0), second = find_axis("transpose", a->shape.rank, axis1);
    if (first < 0 || second < 0) return NULL;
    lg_permute_attrs attrs = {0};
    for (int i = 0; i < a->shape.rank; ++i) attrs.order[i] = i == first ? second : i == second ? first : i;
    return LG_CALL(permute, &attrs, a);
}

/* ---- expand */

static luge_status infer_expand(lg_call *call)
{
    const luge_shape *to = &((const lg_shape_attrs *)call->attrs)->shape;
    const luge_tensor *x = call->in[0];
    lg_spec *s = view_of_input(call);
    s->shape = *to;
    lg_broadcast_strides(&x->shape, x->stride, to, s->stride);
    return LUGE_OK;
}

/* The engine sums over the axes that were repeated. */
static luge_status expand_backward(lg_grad_call *c)
{
    c->grad_in[0] = c->grad_out[0];
    return LUGE_OK;
}

const lg_op lg_op_expand = {.name = "expand",
                            .n_in = 1,
                            .n_out = 1,
                            .attrs_size = sizeof(lg_shape_attrs),
                            .infer = infer_expand,
                            .backward = expand_backward};

luge_tensor *luge_expand(luge_tensor *a, luge_shape shape)
{
    if (!lg_usable(a, "expand")) return NULL;
    lg_shape_attrs attrs = {shape};
    int lead = shape.rank - a->shape.rank;
    if (lead >= 0 && shape.rank <= LUGE_MAX_RANK)
        for (int i = lead; i < shape.rank; ++i)
            if (shape.dim[i] == -1) attrs.shape.dim[i] = a->shape.dim[i - lead];
    luge_shape both = attrs.shape;
    const bool possible = lg_shape_numel(&attrs.shape) >= 0;
    if (lead < 0 || !possible || !lg_broadcast(&both, &a->shape) || !lg_shape_equal(&both, &attrs.shape)) {
        char from_text[LG_SHAPE_TEXT], to_text[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, possible ? "expand: %s does not repeat to %s" : "expand: from %s, no tensor can have shape %s",
                lg_shape_text(from_text, &a->shape), lg_shape_text(to_text, &shape));
        return NULL;
    }
    return LG_CALL(expand, &attrs, a);
}

/* ---- slice and select */

static luge_status infer_slice(lg_call *call)
{
    const lg_slice_attrs *a = call->attrs;
    lg_spec *s = view_of_input(call);
    s->shape.dim[a->axis] = a->to - a->from;
    s->offset += a->from * s->stride[a->axis];
    return LUGE_OK;
}

static luge_status slice_backward(lg_grad_call *c)
{
    c->grad_in[0] = LG_CALL(slice_backward, c->attrs, c->grad_out[0]);
    return lg_error();
}

const lg_op lg_op_slice = {.name = "slice",
                           .n_in = 1,
                           .n_out = 1,
                           .attrs_size = sizeof(lg_slice_attrs),
                           .infer = infer_slice,
                           .backward = slice_backward};

static luge_status infer_select(lg_call *call)
{
    luge_status status = infer_slice(call);
    remove_axis(&call->spec[0], ((const lg_slice_attrs *)call->attrs)->axis);
    return status;
}

static luge_status select_backward(lg_grad_call *c)
{
    luge_tensor *g = luge_unsqueeze(c->grad_out[0], ((const lg_slice_attrs *)c->attrs)->axis);
    c->grad_in[0] = LG_CALL(slice_backward, c->attrs, g);
    return lg_error();
}

const lg_op lg_op_select = {.name = "select",
                            .n_in = 1,
                            .n_out = 1,
                            .attrs_size = sizeof(lg_slice_attrs),
                            .infer = infer_select,
                            .backward = select_backward};

static luge_status infer_slice_backward(lg_call *call)
{
    const lg_slice_attrs *a = call->attrs;
    luge_shape shape = call->in[0]->shape;
    shape.dim[a->axis] = a->size;
    lg_spec_ordered(call, 0, call->in[0]->dtype, &shape, call->in[0]);
    return LUGE_OK;
}

static luge_status slice_backward_reference(const lg_call *call)
{
    const lg_slice_attrs *a = call->attrs;
    luge_tensor *gx = call->out[0], *g = call->in[0];
    for (int64_t i = 0; i < gx->numel; ++i) lg_set(gx, i, 0);
    for (int64_t i = 0; i < g->numel; ++i) {
        int64_t inner = 1;
        for (int axis = a->axis + 1; axis < g->shape.rank; ++axis) inner *= g->shape.dim[axis];
        int64_t width = a->to - a->from, outer = i / (inner * width), along = i / inner % width;
        lg_set(gx, (outer * a->size + a->from + along) * inner + i % inner, lg_at(g, i));
    }
    return LUGE_OK;
}

static luge_status slice_backward_backward(lg_grad_call *c)
{
    c->grad_in[0] = LG_CALL(slice, c->attrs, c->grad_out[0]);
    return lg_error();
}

const lg_op lg_op_slice_backward = {.name = "slice_backward",
                                    .n_in = 1,
                                    .n_out = 1,
                                    .attrs_size = sizeof(lg_slice_attrs),
                                    .infer = infer_slice_backward,
                                    .reference = slice_backward_reference,
                                    .backward = slice_backward_backward};

/* An end of a range: negative ones count from the end, and it is cut to [0, size]. */
static int64_t cut(int64_t at, int64_t size)
{
    if (at < 0) at = at < -size ? 0 : at + size;
    return at < size ? at : size;
}

luge_tensor *luge_slice(luge_tensor *a, int axis, int64_t from, int64_t to)
{
    if (!lg_usable(a, "slice")) return NULL;
    int at = find_axis("slice", a->shape.rank, axis);
    if (at < 0) return NULL;
    int64_t size = a->shape.dim[at];
    lg_slice_attrs attrs = {.axis = at, .from = cut(from, size), .to = cut(to, size), .size = size};
    if (attrs.to < attrs.from) attrs.to = attrs.from;
    return LG_CALL(slice, &attrs, a);
}

luge_tensor *luge_select(luge_tensor *a, int axis, int64_t index)
{
    if (!lg_usable(a, "select")) return NULL;
    int at = find_axis("select", a->shape.rank, axis);
    if (at < 0) return NULL;
    int64_t size = a->shape.dim[at], place = index < 0 ? index + size : index;
    if (place < 0 || place >= size) {
        lg_fail(LUGE_ERR_ARGUMENT, "select: index %" PRId64 " is outside axis %d, which has size %" PRId64, index, axis, size);
        return NULL;
    }
    lg_slice_attrs attrs = {.axis = at, .from = place, .to = place + 1, .size = size};
    return LG_CALL(select, &attrs, a);
}
