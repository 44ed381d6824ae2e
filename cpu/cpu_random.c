/* Ranges and random numbers, for dense row-major tensors: element i depends on i alone, so work is cut
 * as one likes. The reference kernels (ops/create.c) do the same for other tensors, and say what the
 * numbers are. */
#include <math.h>
#include "core/pool.h"
#include "cpu/cpu.h"
#include "cpu/simd/simd.h"
#include "ops/attrs.h"

enum {
    CHUNK = 1024, /* elements at a time */
    GRAIN = 16    /* chunks worth a thread */
};

/* Elements i to i + n of the result. */
typedef void (*chunk_fn)(const void *work, int64_t i, int64_t n);

typedef struct chunk_work {
    const lg_call *call;
    luge_tensor *t;
    chunk_fn fn;
    int64_t chunks, slices;
} chunk_work;

static void run_slice(int64_t slice, void *data)
{
    const chunk_work *w = data;
    int64_t end = lg_slice_begin(w->chunks, w->slices, slice + 1);
    for (int64_t c = lg_slice_begin(w->chunks, w->slices, slice); c < end; ++c) {
        int64_t left = w->t->numel - c * CHUNK;
        w->fn(w, c * CHUNK, left < CHUNK ? left : CHUNK);
    }
}

static int run(const lg_call *call, chunk_fn fn)
{
    chunk_work w = {.call = call, .t = call->out[0], .fn = fn};
    if (!lg_is_contiguous(w.t)) return LG_DECLINED;
    w.chunks = (w.t->numel + CHUNK - 1) / CHUNK;
    w.slices = lg_slices(w.chunks, GRAIN);
    lg_parallel(w.slices, run_slice, &w);
    return LUGE_OK;
}

static void *element(const chunk_work *w, int64_t i) { return (char *)lg_data(w->t) + i * (int64_t)lg_element_size(w->t); }

static void store_f64(const chunk_work *w, int64_t i, int64_t n, const double *from)
{
    LG_ISA_PICK(lg_converts)->to_from[w->t->dtype][LUGE_F64](n, element(w, i), from);
}

static void store_f32(const chunk_work *w, int64_t i, int64_t n, const float *from)
{
    LG_ISA_PICK(lg_converts)->to_from[w->t->dtype][LUGE_F32](n, element(w, i), from);
}

static void arange_chunk(const void *data, int64_t i, int64_t n)
{
    const chunk_work *w = data;
    const lg_range_attrs *range = w->call->attrs;
    double value[CHUNK];
    for (int64_t j = 0; j < n; ++j) value[j] = range->start + (double)(i + j) * range->step;
    store_f64(w, i, n, value);
}

/* The integers of elements i to i + n, `each` per element, in whole blocks: a chunk begins with one. */
static void draw(const lg_rng_range *rng, int64_t i, int64_t n, int each, uint32_t *to)
{
    LG_ISA_PICK(lg_randoms)->bits(rng, i * each / 4, (n * each + 3) / 4, to);
}

static double uniform_f64(const uint32_t *bits) { return lg_uniform_f64(bits[0], bits[1]); }

static void uniform_chunk(const void *data, int64_t i, int64_t n)
{
    const chunk_work *w = data;
    const lg_random_attrs *r = w->call->attrs;
    uint32_t bits[2 * CHUNK];
    if (w->t->dtype == LUGE_F64) {
        double *to = element(w, i);
        draw(&r->rng, i, n, 2, bits);
        for (int64_t j = 0; j < n; ++j) {
            to[j] = r->a + uniform_f64(bits + 2 * j) * (r->b - r->a);
            if (!(to[j] < r->b)) to[j] = r->a;
        }
        return;
    }
    float value[CHUNK];
    int width = w->t->dtype == LUGE_F16 ? 11 : w->t->dtype == LUGE_BF16 ? 8 : 24;
    draw(&r->rng, i, n, 1, bits);
    LG_ISA_PICK(lg_randoms)->uniform(n, bits, width, (float)r->a, (float)r->b, value);
    store_f32(w, i, n, value);
}

static void normal_chunk(const void *data, int64_t i, int64_t n)
{
    const chunk_work *w = data;
    const lg_random_attrs *r = w->call->attrs;
    uint32_t bits[2 * CHUNK];
    int64_t even = n + n % 2;
    if (w->t->dtype == LUGE_F64) {
        double *to = element(w, i);
        draw(&r->rng, i, even, 2, bits);
        for (int64_t j = 0; j < n; ++j) {
            const uint32_t *pair = bits + 2 * (j - j % 2);
            double radius = sqrt(-2 * log(1 - uniform_f64(pair))), angle = 6.28318530717958647692 * uniform_f64(pair + 2);
            to[j] = r->a + r->b * radius * (j % 2 == 0 ? cos(angle) : sin(angle));
        }
        return;
    }
    float value[CHUNK];
    draw(&r->rng, i, even, 1, bits);
    LG_ISA_PICK(lg_randoms)->normal(even, bits, (float)r->a, (float)r->b, value);
    store_f32(w, i, n, value);
}

/* floor(bits * range / 2^64) */
static uint64_t below(const uint32_t *bits, uint64_t range)
{
    return (uint64_t)((unsigned __int128)((uint64_t)bits[0] << 32 | bits[1]) * range >> 64);
}

static void randint_chunk(const void *data, int64_t i, int64_t n)
{
    const chunk_work *w = data;
    const lg_randint_attrs *r = w->call->attrs;
    uint32_t bits[2 * CHUNK];
    int64_t *to = element(w, i);
    uint64_t range = (uint64_t)r->high - (uint64_t)r->low;
    draw(&r->rng, i, n, 2, bits);
    for (int64_t j = 0; j < n; ++j) to[j] = (int64_t)((uint64_t)r->low + below(bits + 2 * j, range));
}

int lg_cpu_arange(const lg_call *call) { return run(call, arange_chunk); }
int lg_cpu_uniform(const lg_call *call) { return run(call, uniform_chunk); }
int lg_cpu_normal(const lg_call *call) { return run(call, normal_chunk); }
int lg_cpu_randint(const lg_call *call) { return run(call, randint_chunk); }

/* One exchange depends on the last, so this runs on one thread; only its numbers come in bulk. */
int lg_cpu_randperm(const lg_call *call)
{
    const lg_randint_attrs *r = call->attrs;
    luge_tensor *t = call->out[0];
    if (!lg_is_contiguous(t)) return LG_DECLINED;
    int64_t *at = lg_data(t);
    for (int64_t i = 0; i < t->numel; ++i) at[i] = i;
    for (int64_t last = (t->numel - 1) / CHUNK * CHUNK; last >= 0; last -= CHUNK) {
        uint32_t bits[2 * CHUNK];
        int64_t n = t->numel - last < CHUNK ? t->numel - last : CHUNK;
        draw(&r->rng, last, n, 2, bits);
        for (int64_t i = last + n - 1; i >= last && i > 0; --i) {
            int64_t j = (int64_t)below(bits + 2 * (i - last), (uint64_t)i + 1), moved = at[i];
            at[i] = at[j];
            at[j] = moved;
        }
    }
    return LUGE_OK;
}
