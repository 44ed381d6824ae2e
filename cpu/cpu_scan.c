/* cumsum: f32 and f64, summed in f64. Every element is read and written once, so memory decides; columns
 * that lie side by side are summed side by side. */
#include "core/pool.h"
#include "cpu/cpu.h"
#include "ops/attrs.h"

enum { COLUMNS = 64, GRAIN = 1 << 15 };

/* Input and output are [outer, n, inner], row-major, with the sums along n. */
typedef struct scan {
    const luge_tensor *x, *y;
    int64_t outer, n, inner, blocks, slices;
    int64_t first, step; /* where sums begin, and on to the next term */
} scan;

static void sum_columns(const scan *s, int64_t at, int64_t columns)
{
    double sum[COLUMNS] = {0};
    for (int64_t j = 0; j < s->n; ++j, at += s->step) {
        if (s->x->dtype == LUGE_F32) {
            const float *from = (const float *)lg_data(s->x) + at;
            float *to = (float *)lg_data(s->y) + at;
            for (int64_t i = 0; i < columns; ++i) to[i] = (float)(sum[i] += (double)from[i]);
        } else {
            const double *from = (const double *)lg_data(s->x) + at;
            double *to = (double *)lg_data(s->y) + at;
            for (int64_t i = 0; i < columns; ++i) to[i] = sum[i] += from[i];
        }
    }
}

static void sum_slice(int64_t slice, void *work)
{
    const scan *s = work;
    const int64_t items = s->outer * s->blocks, end = lg_slice_begin(items, s->slices, slice + 1);
    for (int64_t i = lg_slice_begin(items, s->slices, slice); i < end; ++i) {
        const int64_t column = i % s->blocks * COLUMNS, left = s->inner - column;
        sum_columns(s, i / s->blocks * s->n * s->inner + s->first + column, left < COLUMNS ? left : COLUMNS);
    }
}

int lg_cpu_cumsum(const lg_call *call)
{
    const lg_scan_attrs *a = call->attrs;
    const luge_shape *shape = &call->in[0]->shape;
    scan s = {.x = call->in[0], .y = call->out[0], .n = shape->rank == 0 ? 1 : shape->dim[a->axis], .inner = 1};
    if (s.x->dtype != LUGE_F32 && s.x->dtype != LUGE_F64) return LG_DECLINED;
    for (int i = a->axis + 1; i < shape->rank; ++i) s.inner *= shape->dim[i];
    s.outer = s.x->numel / (s.n * s.inner);
    s.first = a->reverse ? (s.n - 1) * s.inner : 0;
    s.step = a->reverse ? -s.inner : s.inner;
    s.blocks = (s.inner + COLUMNS - 1) / COLUMNS;
    s.slices = lg_slices(s.outer * s.blocks, GRAIN / (s.n * (s.inner < COLUMNS ? s.inner : COLUMNS)));
    lg_parallel(s.slices, sum_slice, &s);
    return LUGE_OK;
}
