/* Shapes, strides and broadcasting. Called by every op's shape rule and by strided iteration, so all
 * of it is integer arithmetic on small arrays: nothing is allocated and no error is set. */
#include "core/shape.h"

#include <inttypes.h>
#include <stdio.h>

int64_t lg_shape_numel(const luge_shape *s)
{
    if (s->rank < 0 || s->rank > LUGE_MAX_RANK) return -1;
    /* Zero sizes are left out of the check, so that the strides of an empty tensor fit as well. */
    int64_t product = 1;
    bool empty = false;
    for (int i = 0; i < s->rank; ++i) {
        if (s->dim[i] < 0) return -1;
        if (s->dim[i] == 0) {
            empty = true;
        } else if (__builtin_mul_overflow(product, s->dim[i], &product)) {
            return -1;
        }
    }
    if (product > INT64_MAX / 8) return -1;
    return empty ? 0 : product;
}

bool lg_shape_equal(const luge_shape *a, const luge_shape *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; ++i)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

const char *lg_shape_text(char buffer[LG_SHAPE_TEXT], const luge_shape *s)
{
    const int shown = s->rank < 0 ? 0 : s->rank > LUGE_MAX_RANK ? LUGE_MAX_RANK : s->rank;
    size_t n = 0;
    buffer[n++] = '[';
    for (int i = 0; i < shown; ++i) {
        n += (size_t)snprintf(buffer + n, LG_SHAPE_TEXT - n, "%s%" PRId64, i == 0 ? "" : ", ", s->dim[i]);
    }
    snprintf(buffer + n, LG_SHAPE_TEXT - n, "%s]", s->rank > shown ? ", ..." : "");
    return buffer;
}

/* ---- layouts. The stride of an axis of size 1 means nothing and is not looked at. */

void lg_strides_contiguous(const luge_shape *s, int64_t stride[LUGE_MAX_RANK])
{
    int64_t step = 1;
    for (int i = s->rank - 1; i >= 0; --i) {
        stride[i] = step;
        if (s->dim[i] > 1) step *= s->dim[i];
    }
}

void lg_strides_channels_last(const luge_shape *s, int64_t stride[LUGE_MAX_RANK])
{
    static const int inner_first[4] = {1, 3, 2, 0};
    if (s->rank != 4) {
        lg_strides_contiguous(s, stride);
        return;
    }
    int64_t step = 1;
    for (int i = 0; i < 4; ++i) {
        const int axis = inner_first[i];
        stride[axis] = step;
        if (s->dim[axis] > 1) step *= s->dim[axis];
    }
}

static bool is_empty(const luge_shape *s)
{
    for (int i = 0; i < s->rank; ++i)
        if (s->dim[i] == 0) return true;
    return false;
}

bool lg_strides_are_contiguous(const luge_shape *s, const int64_t *stride)
{
    int64_t step = 1;
    for (int i = s->rank - 1; i >= 0; --i) {
        if (s->dim[i] == 1) continue;
        if (stride[i] != step) return is_empty(s);
        step *= s->dim[i];
    }
    return true;
}

bool lg_strides_are_channels_last(const luge_shape *s, const int64_t *stride)
{
    if (s->rank != 4) return false;
    int64_t wanted[LUGE_MAX_RANK];
    lg_strides_channels_last(s, wanted);
    for (int i = 0; i < 4; ++i)
        if (s->dim[i] != 1 && stride[i] != wanted[i]) return is_empty(s);
    return true;
}

/* The axes longer than 1, by ascending stride. Returns how many. */
static int axes_by_stride(const luge_shape *s, const int64_t *stride, int order[LUGE_MAX_RANK])
{
    int n = 0;
    for (int axis = 0; axis < s->rank; ++axis) {
        if (s->dim[axis] == 1) continue;
        int at = n++;
        for (; at > 0 && stride[order[at - 1]] > stride[axis]; --at) order[at] = order[at - 1];
        order[at] = axis;
    }
    return n;
}

bool lg_strides_are_dense(const luge_shape *s, const int64_t *stride)
{
    if (lg_strides_are_contiguous(s, stride)) return true;
    int order[LUGE_MAX_RANK];
    const int n = axes_by_stride(s, stride, order);
    int64_t step = 1;
    for (int i = 0; i < n; ++i) {
        if (stride[order[i]] != step) return false;
        step *= s->dim[order[i]];
    }
    return true;
}

bool lg_strides_overlap(const luge_shape *s, const int64_t *stride)
{
    if (is_empty(s)) return false;
    int order[LUGE_MAX_RANK];
    const int n = axes_by_stride(s, stride, order);
    int64_t last = 0; /* offset of the last element over the axes seen so far */
    for (int i = 0; i < n; ++i) {
        if (stride[order[i]] <= last) return true;
        last += (s->dim[order[i]] - 1) * stride[order[i]];
    }
    return false;
}

/* ---- broadcasting and reshaping */

bool lg_broadcast(luge_shape *to, const luge_shape *other)
{
    const luge_shape *longer = to->rank >= other->rank ? to : other;
    const luge_shape *shorter = to->rank >= other->rank ? other : to;
    luge_shape both = *longer;
    const int lead = longer->rank - shorter->rank;
    for (int i = 0; i < shorter->rank; ++i) {
        const int64_t a = longer->dim[lead + i], b = shorter->dim[i];
        if (a != b && a != 1 && b != 1) return false;
        both.dim[lead + i] = a == 1 ? b : a; /* 1 with 0 gives 0 */
    }
    *to = both;
    return true;
}

void lg_broadcast_strides(const luge_shape *s, const int64_t *stride, const luge_shape *to, int64_t out[LUGE_MAX_RANK])
{
    const int lead = to->rank - s->rank;
    for (int i = 0; i < lead; ++i) out[i] = 0;
    for (int i = 0; i < s->rank; ++i) out[lead + i] = s->dim[i] == 1 && to->dim[lead + i] != 1 ? 0 : stride[i];
}

/* A stretch of elements at equal distances: one or several axes of a shape that can be walked as one. */
typedef struct run {
    int64_t size, stride;
} run;

/* The longest runs of a shape, innermost first. */
static int merge_axes(const luge_shape *s, const int64_t *stride, run runs[LUGE_MAX_RANK])
{
    int n = 0;
    for (int i = s->rank - 1; i >= 0; --i) {
        if (s->dim[i] == 1) continue;
        if (n > 0 && stride[i] == runs[n - 1].size * runs[n - 1].stride) {
            runs[n - 1].size *= s->dim[i];
        } else {
            runs[n++] = (run){s->dim[i], stride[i]};
        }
    }
    return n;
}

/* Each new axis must be cut from one run, as the distance between neighbours changes where runs meet. */
bool lg_reshape_strides(const luge_shape *s, const int64_t *stride, const luge_shape *to, int64_t out[LUGE_MAX_RANK])
{
    if (is_empty(s)) {
        lg_strides_contiguous(to, out);
        return true;
    }
    run runs[LUGE_MAX_RANK];
    const int n = merge_axes(s, stride, runs);
    int at = 0;
    run left = n > 0 ? runs[0] : (run){1, 1};
    for (int i = to->rank - 1; i >= 0; --i) {
        if (to->dim[i] > 1 && left.size == 1 && at + 1 < n) left = runs[++at];
        if (left.size % to->dim[i] != 0) return false;
        out[i] = left.stride;
        left.size /= to->dim[i];
        left.stride *= to->dim[i];
    }
    return true;
}

/* ---- axes */

int lg_axis(int rank, int axis)
{
    const int range = rank == 0 ? 1 : rank;
    if (axis < -range || axis >= range) return -1;
    return axis < 0 ? axis + range : axis;
}

bool lg_axes_mask(int rank, const luge_axes *axes, uint32_t *mask)
{
    if (axes->count < 0 || axes->count > LUGE_MAX_RANK) return false;
    uint32_t chosen = 0;
    for (int i = 0; i < axes->count; ++i) {
        const int axis = lg_axis(rank, axes->axis[i]);
        if (axis < 0 || (chosen >> axis & 1u) != 0) return false;
        chosen |= 1u << axis;
    }
    const uint32_t all = (1u << rank) - 1u;
    *mask = axes->count == 0 ? all : chosen & all;
    return true;
}

luge_shape lg_reduced_shape(const luge_shape *s, uint32_t mask, bool keepdim)
{
    luge_shape out = {0};
    for (int i = 0; i < s->rank; ++i) {
        const bool goes = (mask >> i & 1u) != 0;
        if (!goes || keepdim) out.dim[out.rank++] = goes ? 1 : s->dim[i];
    }
    return out;
}
