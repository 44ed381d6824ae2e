/* Strided iteration over several tensors at once, for kernels of every backend and the reference
 * kernels. Most calls are about tensors of one shape that lie densely in one order of axes: those are
 * recognised first and become one row. */
#include "core/iter.h"

static bool same_geometry(const luge_tensor *a, const luge_tensor *b)
{
    if (a->shape.rank != b->shape.rank) return false;
    for (int i = 0; i < a->shape.rank; ++i)
        if (a->shape.dim[i] != b->shape.dim[i] || a->stride[i] != b->stride[i]) return false;
    return true;
}

/* One dense row, if operand 0 is dense and the others lie as it does or are single numbers. */
static bool init_flat(lg_iter *it, const luge_shape *shape, luge_tensor *const *operand)
{
    const luge_tensor *first = operand[0];
    if (first->numel == 0 || !lg_shape_equal(&first->shape, shape) || !lg_strides_are_dense(shape, first->stride)) {
        return false;
    }
    it->stride[0][0] = 1;
    for (int k = 1; k < it->n; ++k) {
        const luge_tensor *t = operand[k];
        if (same_geometry(first, t)) {
            it->stride[k][0] = 1;
        } else if (t->numel == 1) {
            it->stride[k][0] = 0;
        } else {
            return false;
        }
    }
    it->rank = 1;
    it->size[0] = it->numel = first->numel;
    return true;
}

/* An axis with every operand's stride along it. */
typedef struct axis {
    int64_t size;
    int64_t stride[LG_ITER_MAX];
} axis;

/* Whether a lies inside b: by the first operand whose strides differ. */
static bool is_inner(const axis *a, const axis *b, int n)
{
    for (int k = 0; k < n; ++k)
        if (a->stride[k] != b->stride[k]) return a->stride[k] < b->stride[k];
    return false;
}

/* The axes longer than 1, innermost first; of equals the last one is the inner. */
static int sort_axes(axis sorted[LUGE_MAX_RANK], const luge_shape *shape, int n, luge_tensor *const *operand)
{
    int64_t stride[LG_ITER_MAX][LUGE_MAX_RANK];
    for (int k = 0; k < n; ++k) lg_broadcast_strides(&operand[k]->shape, operand[k]->stride, shape, stride[k]);
    int count = 0;
    for (int i = shape->rank - 1; i >= 0; --i) {
        if (shape->dim[i] == 1) continue;
        axis a = {.size = shape->dim[i]};
        for (int k = 0; k < n; ++k) a.stride[k] = stride[k][i];
        int at = count++;
        for (; at > 0 && is_inner(&a, &sorted[at - 1], n); --at) sorted[at] = sorted[at - 1];
        sorted[at] = a;
    }
    return count;
}

static bool continues(const axis *outer, const axis *inner, int n)
{
    for (int k = 0; k < n; ++k)
        if (outer->stride[k] != inner->stride[k] * inner->size) return false;
    return true;
}

static void init_general(lg_iter *it, const luge_shape *shape, luge_tensor *const *operand)
{
    axis axes[LUGE_MAX_RANK];
    const int count = sort_axes(axes, shape, it->n, operand);
    int rank = 0;
    for (int i = 0; i < count; ++i) {
        if (rank > 0 && continues(&axes[i], &axes[rank - 1], it->n)) {
            axes[rank - 1].size *= axes[i].size;
        } else {
            axes[rank++] = axes[i];
        }
    }
    if (rank == 0) { /* one element */
        axes[rank++] = (axis){.size = 1};
        for (int k = 0; k < it->n; ++k) axes[0].stride[k] = 1;
    }
    it->rank = rank;
    it->numel = 1;
    for (int i = 0; i < rank; ++i) {
        it->size[i] = axes[i].size;
        it->numel *= axes[i].size;
        for (int k = 0; k < it->n; ++k) it->stride[k][i] = axes[i].stride[k];
    }
}

void lg_iter_init(lg_iter *it, const luge_shape *shape, int n, luge_tensor *const *operand)
{
    it->n = n;
    if (init_flat(it, shape, operand)) return;
    if (lg_shape_numel(shape) == 0) {
        it->rank = 2;
        it->size[0] = 1;
        it->size[1] = 0;
        it->numel = 0;
        for (int k = 0; k < n; ++k) it->stride[k][0] = it->stride[k][1] = 0;
    } else {
        init_general(it, shape, operand);
    }
}

void lg_iter_row(const lg_iter *it, int64_t row, int64_t offset[LG_ITER_MAX])
{
    for (int k = 0; k < it->n; ++k) offset[k] = 0;
    for (int i = 1; i < it->rank; ++i) {
        const int64_t index = row % it->size[i];
        row /= it->size[i];
        for (int k = 0; k < it->n; ++k) offset[k] += index * it->stride[k][i];
    }
}
