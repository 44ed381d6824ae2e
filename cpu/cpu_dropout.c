/* Dropout: the mask is drawn in row-major order, whatever the layout, and then applied as the gradient
 * applies it. */
#include "core/pool.h"
#include "core/thread.h"
#include "cpu/cpu.h"
#include "cpu/simd/dropout.h"
#include "cpu/simd/simd.h"
#include "cpu/strided.h"
#include "ops/attrs.h"
#include <luge/tensor.h>

enum {
    CHUNK = 1024,   /* elements drawn at a time: whole blocks of random numbers */
    GRAIN = 16,     /* chunks worth a thread */
    APPLIED = 65536 /* elements worth a thread where the mask is there */
};

/* ---- the mask */

typedef struct draw_work {
    const lg_dropout_attrs *attrs;
    uint8_t *mask;
    int64_t numel, chunks, slices;
} draw_work;

static void draw_slice(int64_t slice, void *data)
{
    const draw_work *w = data;
    const uint64_t threshold = lg_dropout_threshold(w->attrs);
    const int64_t end = lg_slice_begin(w->chunks, w->slices, slice + 1);
    for (int64_t c = lg_slice_begin(w->chunks, w->slices, slice); c < end; ++c) {
        uint32_t bits[CHUNK];
        const int64_t first = c * CHUNK, n = w->numel - first < CHUNK ? w->numel - first : CHUNK;
        LG_ISA_PICK(lg_randoms)->bits(&w->attrs->rng, first / 4, (n + 3) / 4, bits);
        LG_ISA_PICK(lg_dropouts)->choose(n, bits, threshold, w->mask + first);
    }
}

/* Into a row-major mask. */
static void draw(const lg_dropout_attrs *attrs, luge_tensor *mask)
{
    draw_work w = {.attrs = attrs, .mask = lg_data(mask), .numel = mask->numel};
    w.chunks = (w.numel + CHUNK - 1) / CHUNK;
    w.slices = lg_slices(w.chunks, GRAIN);
    lg_parallel(w.slices, draw_slice, &w);
}

static luge_status draw_any(const lg_call *call, luge_tensor *mask)
{
    if (lg_is_contiguous(mask)) {
        draw(call->attrs, mask);
        return LUGE_OK;
    }
    luge_tensor *drawn = lg_tensor_create(call->device, LUGE_U8, &mask->shape, NULL);
    if (drawn == NULL) return lg_error();
    draw(call->attrs, drawn);
    const lg_call copy = {.n_in = 1, .n_out = 1, .in = &drawn, .out = {mask}};
    lg_cpu_copy(&copy);
    luge_release(drawn);
    return LUGE_OK;
}

/* ---- applied */

typedef struct apply_work {
    void (*apply)(int64_t n, const void *x, const uint8_t *mask, double scale, void *y);
    double scale;
} apply_work;

static void apply_piece(int64_t n, void *const at[], const void *data)
{
    const apply_work *w = data;
    w->apply(n, at[1], at[2], w->scale, at[0]);
}

static void apply(const lg_call *call, luge_tensor *y, luge_tensor *x, luge_tensor *mask)
{
    const apply_work w = {LG_ISA_PICK(lg_dropouts)->apply[x->dtype == LUGE_F64], lg_dropout_scale(call->attrs)};
    lg_each_piece(3, (luge_tensor *[]){y, x, mask}, 0, APPLIED, apply_piece, &w);
}

static bool is_real(const luge_tensor *t)
{
    return t->dtype == LUGE_F32 || t->dtype == LUGE_F64;
}

int lg_cpu_dropout(const lg_call *call)
{
    if (!is_real(call->in[0])) return LG_DECLINED;
    if (draw_any(call, call->out[1]) != LUGE_OK) return (int)lg_error();
    apply(call, call->out[0], call->in[0], call->out[1]);
    return LUGE_OK;
}

int lg_cpu_dropout_backward(const lg_call *call)
{
    if (!is_real(call->in[0])) return LG_DECLINED;
    apply(call, call->out[0], call->in[0], call->in[1]);
    return LUGE_OK;
}
