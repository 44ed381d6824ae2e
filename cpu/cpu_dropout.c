/* Dropout. Which elements stay depends on their place in row-major order (ops/attrs.h): tensors are
 * worked on row by row of the last axis, or as one row where they are contiguous. */
#include "core/pool.h"
#include "cpu/cpu.h"
#include "cpu/simd/rows.h"
#include "cpu/simd/simd.h"
#include "cpu/strided.h"
#include "ops/attrs.h"

enum { PIECE = 1024, GRAIN = 1 << 13 }; /* elements at a time, a multiple of 4; elements per slice, at least */

typedef struct dropout_work {
    const lg_row_kernels *kernels;
    const lg_random_table *random;
    const lg_dropout_attrs *attrs;
    const luge_tensor *x, *y, *mask;
    int64_t length, rows, slices, size;
    bool flat;                   /* all is one row */
} dropout_work;

/* One piece of a row, which begins at element `first` in row-major order. Strides are those within it. */
typedef struct piece {
    int64_t n, first;
    const char *x;
    char *y;
    uint8_t *mask;
    int64_t x_step, y_step, mask_step;
} piece;

static void decide(const dropout_work *w, const piece *p, uint8_t *mask)
{
    uint32_t bits[PIECE + 4];
    const int64_t block = p->first / 4, skip = p->first % 4;
    w->random->bits(&w->attrs->rng, block, (skip + p->n + 3) / 4, bits);
    const uint64_t threshold = lg_dropout_threshold(w->attrs);
    for (int64_t i = 0; i < p->n; ++i) mask[i] = bits[skip + i] >= threshold;
}

/* forward: mask is made; else it is read */
static void run_piece(const dropout_work *w, const piece *p, bool forward)
{
    _Alignas(64) char x[PIECE * sizeof(double)], y[PIECE * sizeof(double)];
    uint8_t mask[PIECE];
    const char *from = p->x;
    char *to = p->y_step == 1 ? p->y : y;
    uint8_t *by = p->mask_step == 1 ? p->mask : mask;
    const size_t size = (size_t)w->size;
    if (p->x_step != 1) lg_copy_run(x, 1, p->x, p->x_step, p->n, size);
    if (p->x_step != 1) from = x;
    if (forward) decide(w, p, by);
    if (forward && by == mask) lg_copy_run(p->mask, p->mask_step, mask, 1, p->n, 1);
    if (!forward && by == mask) lg_copy_run(mask, 1, p->mask, p->mask_step, p->n, 1);
    w->kernels->masked(p->n, from, by, lg_dropout_scale(w->attrs), to);
    if (to == y) lg_copy_run(p->y, p->y_step, y, 1, p->n, size);
}

static int64_t row_start(const luge_tensor *t, int64_t row)
{
    int64_t start = 0;
    for (int i = t->shape.rank - 2; i >= 0 && row > 0; --i) {
        start += row % t->shape.dim[i] * t->stride[i];
        row /= t->shape.dim[i];
    }
    return start;
}

static int64_t last_step(const dropout_work *w, const luge_tensor *t)
{
    return w->flat || w->length == 1 ? 1 : t->stride[t->shape.rank - 1];
}

/* Slices are of pieces: a row has several. */
static int64_t pieces_of_row(const dropout_work *w) { return (w->length + PIECE - 1) / PIECE; }

static void run_slice(const dropout_work *w, int64_t slice, bool forward)
{
    const int64_t per_row = pieces_of_row(w), pieces = w->rows * per_row, end = lg_slice_begin(pieces, w->slices, slice + 1);
    const int64_t x_step = last_step(w, w->x), y_step = last_step(w, w->y), mask_step = last_step(w, w->mask);
    for (int64_t i = lg_slice_begin(pieces, w->slices, slice); i < end; ++i) {
        const int64_t row = i / per_row, at = i % per_row * PIECE;
        const piece p = {
            .n = w->length - at < PIECE ? w->length - at : PIECE,
            .first = row * w->length + at,
            .x = (const char *)lg_data(w->x) + (row_start(w->x, row) + at * x_step) * w->size,
            .y = (char *)lg_data(w->y) + (row_start(w->y, row) + at * y_step) * w->size,
            .mask = (uint8_t *)lg_data(w->mask) + row_start(w->mask, row) + at * mask_step,
            .x_step = x_step,
            .y_step = y_step,
            .mask_step = mask_step,
        };
        run_piece(w, &p, forward);
    }
}

static void forward_slice(int64_t slice, void *work) { run_slice(work, slice, true); }
static void backward_slice(int64_t slice, void *work) { run_slice(work, slice, false); }

/* w has its tensors. */
static int run(const lg_call *call, dropout_work *w, lg_slice_fn slice)
{
    if (w->x->dtype != LUGE_F32 && w->x->dtype != LUGE_F64) return LG_DECLINED;
    w->kernels = &LG_ISA_PICK(lg_rows)->of[w->x->dtype == LUGE_F64];
    w->random = LG_ISA_PICK(lg_randoms);
    w->attrs = call->attrs;
    w->size = (int64_t)lg_element_size(w->x);
    w->flat = lg_is_contiguous(w->x) && lg_is_contiguous(w->y) && lg_is_contiguous(w->mask);
    w->length = w->flat ? w->x->numel : w->x->shape.dim[w->x->shape.rank - 1];
    w->rows = w->x->numel / w->length;
    w->slices = lg_slices(w->rows * pieces_of_row(w), GRAIN / (w->length < PIECE ? w->length : PIECE));
    lg_parallel(w->slices, slice, w);
    return LUGE_OK;
}

/* (x) -> (y, mask) */
int lg_cpu_dropout(const lg_call *call)
{
    return run(call, &(dropout_work){.x = call->in[0], .y = call->out[0], .mask = call->out[1]}, forward_slice);
}

/* (g, mask) -> gx */
int lg_cpu_dropout_backward(const lg_call *call)
{
    return run(call, &(dropout_work){.x = call->in[0], .y = call->out[0], .mask = call->in[1]}, backward_slice);
}
