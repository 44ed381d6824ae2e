/* Strided shapes for kernels: axes in a useful order, merged where all operands allow it, so that most are
 * one axis and need no division. */
#include "cuda/cuda.h"

void lg_geometry_add_axis(lg_geometry *g, int64_t size, const int64_t *stride)
{
    if (size == 1) return;
    const int last = g->rank - 1;
    bool follows = last >= 0;
    for (int k = 0; k < g->operands && follows; ++k) follows = stride[k] == g->stride[k][last] * g->size[last];
    if (follows) {
        g->size[last] *= size;
        return;
    }
    g->size[g->rank] = size;
    for (int k = 0; k < g->operands; ++k) g->stride[k][g->rank] = stride[k];
    ++g->rank;
}

void lg_geometry_finish(lg_geometry *g)
{
    if (g->rank == 0) g->size[g->rank++] = 1;
    g->numel = 1;
    for (int i = 0; i < g->rank; ++i) g->numel *= g->size[i];
    g->flat = g->rank == 1;
}

static void add_axis_of(lg_geometry *g, const luge_shape *shape, int axis, const int64_t *const *stride)
{
    int64_t along[LG_GEOMETRY_OPERANDS];
    for (int k = 0; k < g->operands; ++k) along[k] = stride[k][axis];
    lg_geometry_add_axis(g, shape->dim[axis], along);
}

lg_geometry lg_geometry_row_major(const luge_shape *shape, int n, const int64_t *const *stride)
{
    lg_geometry g = {.operands = n};
    for (int i = shape->rank - 1; i >= 0; --i) add_axis_of(&g, shape, i, stride);
    lg_geometry_finish(&g);
    return g;
}

lg_geometry lg_geometry_sorted(const luge_shape *shape, int n, const int64_t *const *stride)
{
    lg_geometry g = {.operands = n};
    bool done[LUGE_MAX_RANK] = {false};
    for (int taken = 0; taken < shape->rank; ++taken) {
        int next = -1;
        for (int i = shape->rank - 1; i >= 0; --i)
            if (!done[i] && (next < 0 || stride[0][i] < stride[0][next])) next = i;
        done[next] = true;
        add_axis_of(&g, shape, next, stride);
    }
    lg_geometry_finish(&g);
    return g;
}
