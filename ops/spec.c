/* Descriptions of outputs for infer functions: shape, dtype and memory layout. Every family of ops
 * calls these. */
#include <stdio.h>
#include <string.h>
#include "core/op.h"

static void describe(lg_spec *s, luge_dtype dtype, const luge_shape *shape)
{
    s->dtype = dtype;
    s->shape = *shape;
    s->offset = 0;
}

void lg_spec_contiguous(lg_call *call, int i, luge_dtype dtype, const luge_shape *shape)
{
    describe(&call->spec[i], dtype, shape);
    lg_strides_contiguous(shape, call->spec[i].stride);
}

void lg_spec_channels_last(lg_call *call, int i, luge_dtype dtype, const luge_shape *shape)
{
    describe(&call->spec[i], dtype, shape);
    lg_strides_channels_last(shape, call->spec[i].stride);
}

/* Whether axis x lies inside axis y in memory: 1, -1 for outside, 0 if no input says. The first input
 * with an opinion is heard; one that is broadcast along either axis has none. */
static int lies_inside(int n, int64_t (*stride)[LUGE_MAX_RANK], int x, int y)
{
    for (int k = 0; k < n; ++k) {
        int64_t sx = stride[k][x], sy = stride[k][y];
        if (sx == 0 || sy == 0 || sx == sy) continue;
        return sx < sy ? 1 : -1;
    }
    return 0;
}

/* Dense strides for `shape` whose order of axes follows those of n inputs, given as broadcast strides.
 * Where the inputs have no opinion the order is row-major. */
static void dense_strides(const luge_shape *shape, int n, int64_t (*stride)[LUGE_MAX_RANK], int64_t *out)
{
    int order[LUGE_MAX_RANK]; /* innermost first */
    for (int i = 0; i < shape->rank; ++i) order[i] = shape->rank - 1 - i;
    for (int i = 1; i < shape->rank; ++i) {
        /* Opinions may be missing between neighbours, so an axis moves past those that have none. */
        for (int at = i, j = i - 1; j >= 0; --j) {
            int inside = lies_inside(n, stride, order[at], order[j]);
            if (inside < 0) break;
            if (inside == 0) continue;
            int moved = order[at];
            order[at] = order[j];
            order[j] = moved;
            at = j;
        }
    }
    int64_t step = 1;
    for (int i = 0; i < shape->rank; ++i) {
        out[order[i]] = step;
        step *= shape->dim[order[i]] > 1 ? shape->dim[order[i]] : 1;
    }
}

void lg_spec_ordered(lg_call *call, int i, luge_dtype dtype, const luge_shape *shape, const luge_tensor *like)
{
    int64_t stride[1][LUGE_MAX_RANK];
    for (int axis = 0; axis < shape->rank; ++axis) stride[0][axis] = like->shape.dim[axis] == 1 ? 0 : like->stride[axis];
    describe(&call->spec[i], dtype, shape);
    dense_strides(shape, 1, stride, call->spec[i].stride);
}

void lg_spec_like(lg_call *call, int i, luge_dtype dtype, const luge_tensor *like)
{
    if (!lg_strides_are_dense(&like->shape, like->stride)) {
        lg_spec_ordered(call, i, dtype, &like->shape, like);
        return;
    }
    describe(&call->spec[i], dtype, &like->shape);
    memcpy(call->spec[i].stride, like->stride, sizeof like->stride);
}

/* All inputs lie in memory in the same way, without gaps: by far the commonest case. */
static bool all_alike(const lg_call *call)
{
    const luge_tensor *first = call->in[0];
    for (int k = 1; k < call->n_in; ++k) {
        const luge_tensor *t = call->in[k];
        if (!lg_shape_equal(&t->shape, &first->shape)) return false;
        if (memcmp(t->stride, first->stride, sizeof(int64_t) * (size_t)first->shape.rank) != 0) return false;
    }
    return lg_strides_are_dense(&first->shape, first->stride);
}

/* Broadcast strides, 0 also where an axis has one element: its stride says nothing. */
static void telling_strides(const luge_tensor *t, const luge_shape *to, int64_t out[LUGE_MAX_RANK])
{
    lg_broadcast_strides(&t->shape, t->stride, to, out);
    for (int i = 0; i < to->rank; ++i)
        if (to->dim[i] == 1) out[i] = 0;
}

static luge_status misfit(const lg_call *call)
{
    char text[LG_MAX_IN * (LG_SHAPE_TEXT + 8)], one[LG_SHAPE_TEXT];
    size_t n = 0;
    for (int k = 0; k < call->n_in; ++k)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", k > 0 ? " and " : "", lg_shape_text(one, &call->in[k]->shape));
    return lg_op_fail(call, LUGE_ERR_SHAPE, "shapes do not broadcast: %s", text);
}

luge_status lg_spec_broadcast(lg_call *call, int i, luge_dtype dtype)
{
    if (all_alike(call)) {
        lg_spec_like(call, i, dtype, call->in[0]);
        return LUGE_OK;
    }
    luge_shape shape = call->in[0]->shape;
    for (int k = 1; k < call->n_in; ++k)
        if (!lg_broadcast(&shape, &call->in[k]->shape)) return misfit(call);
    if (lg_shape_numel(&shape) < 0) return lg_op_fail(call, LUGE_ERR_SHAPE, "the result is too large");

    int64_t stride[LG_MAX_IN][LUGE_MAX_RANK];
    for (int k = 0; k < call->n_in; ++k) telling_strides(call->in[k], &shape, stride[k]);
    describe(&call->spec[i], dtype, &shape);
    dense_strides(&shape, call->n_in, stride, call->spec[i].stride);
    return LUGE_OK;
}
