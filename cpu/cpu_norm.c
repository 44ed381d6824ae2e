/* Batch and layer normalisation (cpu/simd/norm.h). Moments of slices are taken in two passes
 * each and merged in the slices' order, as Chan et al. (1983) do; nothing is taken as a difference of
 * large sums. */
#include <luge/scope.h>
#include <math.h>
#include <string.h>
#include "core/pool.h"
#include "cpu/cpu.h"
#include "cpu/scratch.h"
#include "cpu/simd/norm.h"
#include "cpu/strided.h"
#include "ops/attrs.h"

enum { GRAIN = 1 << 14, PARTS = 32 }; /* elements per slice, at least; sums of layer_norm's parameters */

static void store(luge_tensor *t, int64_t i, double value)
{
    const int64_t at = t->shape.rank == 0 ? 0 : i * t->stride[t->shape.rank - 1];
    if (t->dtype == LUGE_F64)
        ((double *)lg_data(t))[at] = value;
    else
        ((float *)lg_data(t))[at] = (float)value;
}

/* Element i of a vector; `absent` if there is none. */
static double load(const luge_tensor *t, int64_t i, double absent)
{
    if (t == NULL) return absent;
    const int64_t at = i * t->stride[0];
    return t->dtype == LUGE_F64 ? ((const double *)lg_data(t))[at] : (double)((const float *)lg_data(t))[at];
}

static void put(bool f64, void *array, int64_t i, double value)
{
    if (f64)
        ((double *)array)[i] = value;
    else
        ((float *)array)[i] = (float)value;
}

/* ---- batch_norm: x as [outer, channels, inner]. Slices are of rows (inner 1: channels are columns) or
 * of planes; each has two numbers a channel, or a plane has two. */

typedef struct batch_work {
    const lg_norm_kernels *kernels;
    bool f64, columns;
    int64_t outer, channels, inner, size;
    int64_t slices, parts;       /* numbers are [parts, channels]: of slices, or of all outer indices */
    const char *g, *x;
    char *y;
    double *first, *second;      /* numbers: mean and deviation, or sum and dot */
    char *terms;                 /* mean, scale, slope, shift: channels numbers each */
} batch_work;

/* Channels of a dense tensor: axes with larger strides are outside, those with smaller ones inside. */
static void see_channels(const luge_tensor *y, batch_work *w)
{
    w->channels = y->shape.dim[1];
    w->outer = w->inner = 1;
    for (int i = 0; i < y->shape.rank; ++i) {
        if (i == 1) continue;
        if (w->channels > 1 && y->shape.dim[i] > 1 && y->stride[i] > y->stride[1])
            w->outer *= y->shape.dim[i];
        else
            w->inner *= y->shape.dim[i];
    }
}

/* y is the result; it is dense. */
static bool plan_batch(const luge_tensor *y, batch_work *w)
{
    if (y->dtype != LUGE_F32 && y->dtype != LUGE_F64) return false;
    see_channels(y, w);
    w->f64 = y->dtype == LUGE_F64;
    w->kernels = &LG_ISA_PICK(lg_norms)->of[w->f64];
    w->size = (int64_t)lg_element_size(y);
    w->columns = w->inner == 1;
    w->y = lg_data(y);
    w->slices = w->columns ? lg_slices(w->outer, GRAIN / (w->channels + 1)) : lg_slices(w->outer * w->channels, GRAIN / (w->inner + 1));
    w->parts = w->columns ? w->slices : w->outer;
    return true;
}

static void copy_piece(int64_t n, void *const at[], const void *size) { memcpy(at[0], at[1], (size_t)n * *(const size_t *)size); }

/* t laid out like y: itself, or a copy. To be released; NULL on error. */
static luge_tensor *laid_out_like(luge_tensor *t, const luge_tensor *y)
{
    bool same = true;
    for (int i = 0; i < y->shape.rank; ++i) same = same && (y->shape.dim[i] == 1 || t->stride[i] == y->stride[i]);
    if (same) return luge_retain(t);
    luge_tensor *copy = lg_tensor_create(y->storage->device, t->dtype, &y->shape, y->stride);
    const size_t size = lg_element_size(t);
    if (copy != NULL) lg_each_piece(2, (luge_tensor *const[]){copy, t}, 0, GRAIN, copy_piece, &size);
    return copy;
}

/* Numbers of all parts and terms, in one piece of scratch. */
static bool open_batch(const lg_call *call, batch_work *w, lg_scratch *scratch)
{
    const int64_t numbers = lg_scratch_times(2 * (int64_t)sizeof(double), lg_scratch_times(w->parts, w->channels));
    w->first = lg_scratch_open(scratch, call->device, lg_scratch_plus(numbers, 4 * w->channels * w->size));
    if (w->first == NULL) return false;
    w->second = w->first + w->parts * w->channels;
    w->terms = (char *)(w->second + w->parts * w->channels);
    return true;
}

static lg_norm_terms terms_at(const batch_work *w, int64_t channel)
{
    const int64_t each = w->channels * w->size, at = channel * w->size;
    return (lg_norm_terms){w->terms + at, w->terms + each + at, w->terms + 2 * each + at, w->terms + 3 * each + at};
}

typedef enum batch_task { MOMENTS, NORMALISE, SUMS, GRADIENT } batch_task;

static void run_columns(const batch_work *w, batch_task task, int64_t slice)
{
    const int64_t begin = lg_slice_begin(w->outer, w->slices, slice), n = w->channels;
    const int64_t rows = lg_slice_begin(w->outer, w->slices, slice + 1) - begin, at = begin * n * w->size;
    const lg_norm_terms t = terms_at(w, 0);
    double *first = w->first + slice * n, *second = w->second + slice * n;
    switch (task) {
    case MOMENTS: w->kernels->column_moments(n, rows, n, w->x + at, first, second); break;
    case NORMALISE: w->kernels->column_normalise(n, rows, n, w->x + at, &t, w->y + at); break;
    case SUMS: w->kernels->column_sums(n, rows, n, w->g + at, w->x + at, t.mean, first, second); break;
    case GRADIENT: w->kernels->column_gradient(n, rows, n, w->g + at, w->x + at, &t, w->y + at); break;
    }
}

static void run_planes(const batch_work *w, batch_task task, int64_t slice)
{
    const int64_t planes = w->outer * w->channels, end = lg_slice_begin(planes, w->slices, slice + 1), n = w->inner;
    for (int64_t i = lg_slice_begin(planes, w->slices, slice); i < end; ++i) {
        const int64_t at = i * n * w->size, channel = i % w->channels;
        const lg_norm_terms t = terms_at(w, channel);
        switch (task) {
        case MOMENTS: w->kernels->plane_moments(n, w->x + at, w->first + i, w->second + i); break;
        case NORMALISE: w->kernels->plane_normalise(n, w->x + at, &t, w->y + at); break;
        case SUMS:
            w->kernels->plane_sums(n, w->g + at, w->x + at, t.mean, w->first + i, w->second + i);
            break;
        case GRADIENT: w->kernels->plane_gradient(n, w->g + at, w->x + at, &t, w->y + at); break;
        }
    }
}

#define DEFINE_SLICE(name, task)                                   \
    static void name(int64_t slice, void *work)                    \
    {                                                              \
        const batch_work *w = work;                                \
        if (w->columns)                                            \
            run_columns(w, task, slice);                           \
        else                                                       \
            run_planes(w, task, slice);                            \
    }
DEFINE_SLICE(moments_slice, MOMENTS)
DEFINE_SLICE(normalise_slice, NORMALISE)
DEFINE_SLICE(sums_slice, SUMS)
DEFINE_SLICE(gradient_slice, GRADIENT)

/* Elements of a channel in one part. */
static int64_t part_count(const batch_work *w, int64_t part)
{
    if (!w->columns) return w->inner;
    return lg_slice_begin(w->outer, w->slices, part + 1) - lg_slice_begin(w->outer, w->slices, part);
}

/* Means and deviations of all parts, merged into those of part 0. */
static void merge_moments(const batch_work *w)
{
    double before = (double)part_count(w, 0);
    for (int64_t part = 1; part < w->parts; ++part) {
        const double here = (double)part_count(w, part), share = here / (before + here);
        const double *mean = w->first + part * w->channels, *deviation = w->second + part * w->channels;
        for (int64_t c = 0; c < w->channels; ++c) {
            const double d = mean[c] - w->first[c];
            w->first[c] += d * share;
            w->second[c] += deviation[c] + d * d * before * share;
        }
        before += here;
    }
}

static void merge_sums(const batch_work *w)
{
    for (int64_t part = 1; part < w->parts; ++part) {
        for (int64_t c = 0; c < w->channels; ++c) {
            w->first[c] += w->first[part * w->channels + c];
            w->second[c] += w->second[part * w->channels + c];
        }
    }
}

static void follow(luge_tensor *running, int64_t c, double value, double momentum)
{
    if (running != NULL) store(running, c, (1 - momentum) * load(running, c, 0) + momentum * value);
}

/* What x is multiplied with, and the statistics that the call returns and keeps. */
static void finish_statistics(const lg_call *call, const batch_work *w, double count)
{
    const lg_norm_attrs *a = call->attrs;
    const lg_norm_terms t = terms_at(w, 0);
    const bool measured = a->training && count > 0;
    for (int64_t c = 0; c < w->channels; ++c) {
        const double mean = measured ? w->first[c] : a->training ? 0 : load(call->in[1], c, 0);
        const double variance = measured ? w->second[c] / count : a->training ? 0 : load(call->in[2], c, 0);
        const double invstd = 1 / sqrt(variance + a->eps);
        if (measured) {
            follow(call->in[1], c, mean, a->momentum);
            follow(call->in[2], c, w->second[c] / (count - 1), a->momentum);
        }
        store(call->out[1], c, mean);
        store(call->out[2], c, invstd);
        put(w->f64, (void *)t.mean, c, mean);
        put(w->f64, (void *)t.scale, c, invstd * load(call->in[3], c, 1));
        put(w->f64, (void *)t.shift, c, load(call->in[4], c, 0));
    }
}

/* (x, [running_mean], [running_var], [weight], [bias]) -> (y, mean, invstd) */
int lg_cpu_batch_norm(const lg_call *call)
{
    const lg_norm_attrs *a = call->attrs;
    batch_work w = {0};
    lg_scratch scratch;
    if (!plan_batch(call->out[0], &w)) return LG_DECLINED;
    luge_tensor *x = laid_out_like(call->in[0], call->out[0]);
    if (x == NULL || !open_batch(call, &w, &scratch)) {
        luge_release(x);
        return LUGE_ERR_OUT_OF_MEMORY;
    }
    w.x = lg_data(x);
    const double count = (double)w.outer * (double)w.inner;
    if (a->training && count > 0) {
        lg_parallel(w.slices, moments_slice, &w);
        merge_moments(&w);
    }
    finish_statistics(call, &w, count);
    lg_parallel(w.slices, normalise_slice, &w);
    lg_scratch_close(&scratch);
    luge_release(x);
    return LUGE_OK;
}

/* What g and x are multiplied with, and the gradients of the parameters. */
static void finish_gradient(const lg_call *call, const batch_work *w, double count)
{
    const lg_norm_attrs *a = call->attrs;
    const lg_norm_terms t = terms_at(w, 0);
    for (int64_t c = 0; c < w->channels; ++c) {
        const double invstd = load(call->in[4], c, 0), scale = invstd * load(call->in[2], c, 1);
        const double sum = count > 0 ? w->first[c] : 0, dot = count > 0 ? w->second[c] : 0;
        store(call->out[1], c, dot * invstd);
        store(call->out[2], c, sum);
        put(w->f64, (void *)t.scale, c, scale);
        put(w->f64, (void *)t.slope, c, a->training ? -scale * dot * invstd * invstd / count : 0);
        put(w->f64, (void *)t.shift, c, a->training ? -scale * sum / count : 0);
    }
}

/* (g, x, [weight], mean, invstd) -> (gx, gweight, gbias) */
int lg_cpu_batch_norm_backward(const lg_call *call)
{
    luge_tensor *const gx = call->out[0], *g, *x = NULL;
    batch_work w = {0};
    lg_scratch scratch;
    if (!plan_batch(gx, &w) || call->in[3]->dtype != gx->dtype) return LG_DECLINED;
    if ((g = laid_out_like(call->in[0], gx)) == NULL || (x = laid_out_like(call->in[1], gx)) == NULL ||
        !open_batch(call, &w, &scratch)) {
        luge_release(g);
        luge_release(x);
        return LUGE_ERR_OUT_OF_MEMORY;
    }
    w.g = lg_data(g);
    w.x = lg_data(x);
    for (int64_t c = 0; c < w.channels; ++c) put(w.f64, (void *)terms_at(&w, 0).mean, c, load(call->in[3], c, 0));
    const double count = (double)w.outer * (double)w.inner;
    if (count > 0) {
        lg_parallel(w.slices, sums_slice, &w);
        merge_sums(&w);
    }
    finish_gradient(call, &w, count);
    lg_parallel(w.slices, gradient_slice, &w);
    lg_scratch_close(&scratch);
    luge_release(g);
    luge_release(x);
    return LUGE_OK;
}

/* ---- layer_norm: x as [rows, n] */

typedef struct layer_work {
    const lg_norm_kernels *kernels;
    bool f64;
    int64_t n, rows, slices, size;
    const char *g, *x;
    char *y;
    luge_tensor *mean, *invstd;  /* forward: written */
    double eps;
    const void *weight, *bias;   /* never NULL */
    char *parts;                 /* backward: [slices, 2, n], the parameters' gradients */
} layer_work;

static bool fits_rows(const luge_tensor *t, const luge_tensor *x)
{
    return t == NULL || (lg_is_contiguous(t) && t->dtype == x->dtype);
}

static bool plan_layer(const lg_call *call, const luge_tensor *x, const luge_tensor *mean, layer_work *w)
{
    const lg_norm_attrs *a = call->attrs;
    if ((x->dtype != LUGE_F32 && x->dtype != LUGE_F64) || !fits_rows(x, x)) return false;
    w->f64 = x->dtype == LUGE_F64;
    w->kernels = &LG_ISA_PICK(lg_norms)->of[w->f64];
    w->size = (int64_t)lg_element_size(x);
    w->rows = mean->numel;
    w->n = 1;
    for (int i = x->shape.rank - a->axes; i < x->shape.rank; ++i) w->n *= x->shape.dim[i];
    w->slices = lg_slices(w->rows, GRAIN / (w->n + 1));
    w->x = lg_data(x);
    return true;
}

/* n ones or zeros where a parameter is absent. */
static const void *parameter(const layer_work *w, const luge_tensor *t, char *memory, double absent)
{
    if (t != NULL) return lg_data(t);
    for (int64_t i = 0; i < w->n; ++i) put(w->f64, memory, i, absent);
    return memory;
}

static void layer_slice(int64_t slice, void *work)
{
    const layer_work *w = work;
    const int64_t end = lg_slice_begin(w->rows, w->slices, slice + 1);
    for (int64_t row = lg_slice_begin(w->rows, w->slices, slice); row < end; ++row) {
        const int64_t at = row * w->n * w->size;
        double mean = 0, invstd = 1 / sqrt(w->eps);
        if (w->n > 0) w->kernels->layer_norm(w->n, w->x + at, w->eps, w->weight, w->bias, w->y + at, &mean, &invstd);
        store(w->mean, row, mean);
        store(w->invstd, row, invstd);
    }
}

/* (x, [weight], [bias]) -> (y, mean [rows], invstd [rows]) */
int lg_cpu_layer_norm(const lg_call *call)
{
    const lg_norm_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0], *weight = call->in[1], *bias = call->in[2];
    layer_work w = {.y = lg_data(call->out[0]), .mean = call->out[1], .invstd = call->out[2], .eps = a->eps};
    if (!plan_layer(call, x, call->out[1], &w) || !fits_rows(weight, x) || !fits_rows(bias, x)) return LG_DECLINED;
    const int64_t each = weight != NULL && bias != NULL ? 0 : w.n * w.size;
    lg_scratch scratch;
    char *memory = lg_scratch_open(&scratch, call->device, 2 * each);
    if (memory == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    w.weight = parameter(&w, weight, memory, 1);
    w.bias = parameter(&w, bias, memory + each, 0);
    lg_parallel(w.slices, layer_slice, &w);
    lg_scratch_close(&scratch);
    return LUGE_OK;
}

static void layer_gradient_slice(int64_t slice, void *work)
{
    const layer_work *w = work;
    const int64_t bytes = w->n * w->size, end = lg_slice_begin(w->rows, w->slices, slice + 1);
    char *gweight = w->parts + slice * 2 * bytes, *gbias = gweight + bytes;
    memset(gweight, 0, (size_t)(2 * bytes));
    for (int64_t row = lg_slice_begin(w->rows, w->slices, slice); row < end; ++row)
        w->kernels->layer_norm_backward(w->n, w->g + row * bytes, w->x + row * bytes, load(w->mean, row, 0),
                                        load(w->invstd, row, 0), w->weight, w->y + row * bytes, gweight, gbias);
}

/* `to` becomes the sum of the slices' parts, which lie 2 n elements apart. */
#define DEFINE_ADD_PARTS(real)                                                                     \
    static void add_parts_##real(const layer_work *w, const char *parts, void *to)                 \
    {                                                                                              \
        real *sum = to;                                                                            \
        memset(to, 0, (size_t)(w->n * w->size));                                                   \
        for (int64_t s = 0; s < w->slices; ++s) {                                                  \
            const real *part = (const real *)(const void *)(parts + s * 2 * w->n * w->size);       \
            for (int64_t i = 0; i < w->n; ++i) sum[i] += part[i];                                  \
        }                                                                                          \
    }
DEFINE_ADD_PARTS(float)
DEFINE_ADD_PARTS(double)

/* (g, x, [weight], mean, invstd) -> (gx, gweight, gbias) */
int lg_cpu_layer_norm_backward(const lg_call *call)
{
    const luge_tensor *g = call->in[0], *x = call->in[1], *weight = call->in[2];
    layer_work w = {.g = lg_data(g), .y = lg_data(call->out[0]), .mean = call->in[3], .invstd = call->in[4]};
    if (!plan_layer(call, x, w.mean, &w) || !fits_rows(g, x) || !fits_rows(weight, x) || w.mean->dtype != x->dtype) return LG_DECLINED;
    if (w.slices > PARTS) w.slices = PARTS;
    const int64_t bytes = w.n * w.size;
    lg_scratch scratch;
    char *memory = lg_scratch_open(&scratch, call->device, lg_scratch_times(2 * w.slices + 1, bytes));
    if (memory == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    w.weight = parameter(&w, weight, memory, 1);
    w.parts = memory + bytes;
    lg_parallel(w.slices, layer_gradient_slice, &w);
    void (*add_parts)(const layer_work *, const char *, void *) = w.f64 ? add_parts_double : add_parts_float;
    add_parts(&w, w.parts, lg_data(call->out[1]));
    add_parts(&w, w.parts + bytes, lg_data(call->out[2]));
    lg_scratch_close(&scratch);
    return LUGE_OK;
}
