/* Embedding: rows of a table, and gradients summed into them. */
#include <string.h>
#include "core/pool.h"
#include "cpu/cpu.h"
#include "cpu/scratch.h"
#include "cpu/strided.h"
#include "ops/attrs.h"

enum { GRAIN = 1 << 13 }; /* elements per slice, at least */

/* Index i in row-major order. */
static int64_t index_at(const luge_tensor *t, int64_t i)
{
    int64_t at = 0;
    if (lg_is_contiguous(t)) {
        at = i;
    } else {
        for (int axis = t->shape.rank - 1; axis >= 0; --axis) {
            at += i % t->shape.dim[axis] * t->stride[axis];
            i /= t->shape.dim[axis];
        }
    }
    return t->dtype == LUGE_I64 ? ((const int64_t *)lg_data(t))[at] : ((const int32_t *)lg_data(t))[at];
}

/* ---- (weight [count, dim], indices) -> [.., dim] */

typedef struct gather_work {
    const luge_tensor *weight, *indices;
    char *to;
    int64_t dim, size, slices;
} gather_work;

static void gather_slice(int64_t slice, void *work)
{
    const gather_work *w = work;
    const int64_t end = lg_slice_begin(w->indices->numel, w->slices, slice + 1);
    for (int64_t i = lg_slice_begin(w->indices->numel, w->slices, slice); i < end; ++i) {
        const char *from = (const char *)lg_data(w->weight) + index_at(w->indices, i) * w->weight->stride[0] * w->size;
        lg_copy_run(w->to + i * w->dim * w->size, 1, from, w->weight->stride[1], w->dim, (size_t)w->size);
    }
}

int lg_cpu_embedding(const lg_call *call)
{
    gather_work w = {.weight = call->in[0], .indices = call->in[1], .to = lg_data(call->out[0]),
                     .dim = call->in[0]->shape.dim[1], .size = (int64_t)lg_element_size(call->in[0])};
    w.slices = lg_slices(w.indices->numel, GRAIN / (w.dim + 1));
    lg_parallel(w.slices, gather_slice, &w);
    return LUGE_OK;
}

/* ---- (g [.., dim], indices) -> gweight [count, dim]. Places are sorted by the row they go to, so that
 * each row is summed by one thread, in the order of the places. */

typedef struct scatter_work {
    const luge_tensor *g, *indices;
    char *to;
    int64_t dim, count, slices;
    bool f64;
    int64_t *end;                /* of each row's places */
    int64_t *place;              /* places of row r: from end[r - 1] to end[r] */
} scatter_work;

#define DEFINE_ADD_ROW(real)                                                             \
    static void add_row_##real(real *to, const real *from, int64_t n)                    \
    {                                                                                    \
        for (int64_t i = 0; i < n; ++i) to[i] += from[i];                                \
    }
DEFINE_ADD_ROW(float)
DEFINE_ADD_ROW(double)

static void scatter_slice(int64_t slice, void *work)
{
    const scatter_work *w = work;
    const int64_t size = w->f64 ? 8 : 4, last = lg_slice_begin(w->count, w->slices, slice + 1);
    for (int64_t row = lg_slice_begin(w->count, w->slices, slice); row < last; ++row) {
        char *to = w->to + row * w->dim * size;
        memset(to, 0, (size_t)(w->dim * size));
        for (int64_t i = row == 0 ? 0 : w->end[row - 1]; i < w->end[row]; ++i) {
            const char *from = (const char *)lg_data(w->g) + w->place[i] * w->dim * size;
            if (w->f64)
                add_row_double((double *)(void *)to, (const double *)(const void *)from, w->dim);
            else
                add_row_float((float *)(void *)to, (const float *)(const void *)from, w->dim);
        }
    }
}

/* A counting sort, which keeps the order of places. False for an index that is out of range. */
static bool sort_places(const scatter_work *w)
{
    const int64_t n = w->indices->numel;
    memset(w->end, 0, (size_t)(w->count + 1) * sizeof *w->end);
    for (int64_t i = 0; i < n; ++i) {
        const int64_t row = index_at(w->indices, i);
        if (row < 0 || row >= w->count) return false;
        ++w->end[row + 1];
    }
    for (int64_t row = 0; row < w->count; ++row) w->end[row + 1] += w->end[row];
    /* end[r] is where row r begins; filling moves it to where it ends */
    for (int64_t i = 0; i < n; ++i) w->place[w->end[index_at(w->indices, i)]++] = i;
    return true;
}

int lg_cpu_embedding_backward(const lg_call *call)
{
    const lg_embedding_attrs *a = call->attrs;
    const luge_tensor *g = call->in[0], *indices = call->in[1], *gw = call->out[0];
    if ((g->dtype != LUGE_F32 && g->dtype != LUGE_F64) || !lg_is_contiguous(g)) return LG_DECLINED;
    scatter_work w = {.g = g, .indices = indices, .to = lg_data(gw), .dim = gw->shape.dim[1], .count = a->count, .f64 = g->dtype == LUGE_F64};
    lg_scratch scratch;
    w.end = lg_scratch_open(&scratch, call->device, lg_scratch_times(lg_scratch_plus(a->count, indices->numel + 1), sizeof(int64_t)));
    if (w.end == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    w.place = w.end + a->count + 1;
    const bool sorted = sort_places(&w);
    w.slices = lg_slices(w.count, GRAIN / (w.dim + 1));
    if (sorted) lg_parallel(w.slices, scatter_slice, &w);
    lg_scratch_close(&scratch);
    if (sorted) return LUGE_OK;
    return (int)lg_op_fail(call, LUGE_ERR_ARGUMENT, "an index is not in [0, %lld)", (long long)a->count);
}
