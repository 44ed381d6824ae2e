/* Batch and layer normalisation (cpu/simd/norm.h). Moments of slices are taken in two passes
 * each and merged in the slices' order, as Chan et al. (1983) do; nothing is taken as a difference of
 * large sums. */
#include "core/pool.h"
#include "cpu/cpu.h"
#include "cpu/scratch.h"
#include "cpu/simd/norm.h"
#include "cpu/simd/simd.h"
#include "cpu/strided.h"
#include "ops/attrs.h"
#include <luge/scope.h>
#include <math.h>
#include <string.h>

enum {
    GRAIN = 1 << 14, /* elements per slice, at least */
    ROWS = 32,       /* of layer_norm's gradients at most, whose parts of the parameters' are summed in x's type */
    PARTS = 32       /* such parts are made of fewer rows to have as many */
};

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

/* ---- batch_norm: x as [outer, channels, inner]. What is worked on at a time, a block, is of columns where
 * channels are dense in memory (inner is 1), else a piece of one plane. Blocks are small enough for a cache,
 * and cut by the sizes alone. Each leaves its numbers for its channels: those of column blocks side by side,
 * or of the pieces at the same place in all channels, are a part. */

enum { WIDTH = 1024, NUMBERS = 3 }; /* columns of a block at most; numbers of a channel in a part */

typedef struct batch_work {
    const lg_norm_kernels *kernels;
    bool f64, columns;
    int64_t outer, channels, inner, size;
    int64_t cuts; /* blocks side by side, or pieces of a plane */
    int64_t parts, blocks, slices;
    const char *g, *x;
    char *y;
    double *number[NUMBERS]; /* [parts, channels]: mean and deviation, or sum, dot and off */
    char *terms;             /* mean, scale, slope, shift: channels numbers each */
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

static void cut_blocks(batch_work *w)
{
    if (w->columns) {
        w->cuts = (w->channels + WIDTH - 1) / WIDTH;
        w->parts = lg_slices(w->outer, GRAIN / (w->channels < WIDTH ? w->channels + 1 : WIDTH));
        w->blocks = w->parts * w->cuts;
    } else {
        w->cuts = w->inner < GRAIN ? 1 : w->inner / GRAIN;
        w->parts = w->outer * w->cuts;
        w->blocks = w->parts * w->channels;
    }
    if (w->blocks > 0) w->slices = lg_slices(w->blocks, GRAIN / (w->outer * w->channels * w->inner / w->blocks + 1));
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
    cut_blocks(w);
    return true;
}

static void copy_piece(int64_t n, void *const at[], const void *size)
{
    memcpy(at[0], at[1], (size_t)n * *(const size_t *)size);
}

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
    const int64_t each = lg_scratch_times(w->parts, w->channels);
    const int64_t bytes = lg_scratch_times(NUMBERS * (int64_t)sizeof(double), each);
    w->number[0] = lg_scratch_open(scratch, call->device, lg_scratch_plus(bytes, 4 * w->channels * w->size));
    if (w->number[0] == NULL) return false;
    for (int i = 1; i < NUMBERS; ++i) w->number[i] = w->number[i - 1] + each;
    w->terms = (char *)(w->number[NUMBERS - 1] + each);
    return true;
}

static lg_norm_terms terms_at(const batch_work *w, int64_t channel)
{
    const int64_t each = w->channels * w->size, at = channel * w->size;
    return (lg_norm_terms){w->terms + at, w->terms + each + at, w->terms + 2 * each + at, w->terms + 3 * each + at};
}

typedef enum batch_task { MOMENTS, NORMALISE, SUMS, GRADIENT } batch_task;

/* Rows [begin, begin + rows) of n columns from `channel` on. */
static void run_columns(const batch_work *w, batch_task task, int64_t block)
{
    const int64_t part = block / w->cuts, cut = block % w->cuts, step = w->channels;
    const int64_t channel = lg_slice_begin(step, w->cuts, cut), n = lg_slice_begin(step, w->cuts, cut + 1) - channel;
    const int64_t begin = lg_slice_begin(w->outer, w->parts, part),
                  rows = lg_slice_begin(w->outer, w->parts, part + 1) - begin;
    const int64_t at = (begin * step + channel) * w->size, to = part * step + channel;
    const lg_norm_terms t = terms_at(w, channel);
    double *const numbers[NUMBERS] = {w->number[0] + to, w->number[1] + to, w->number[2] + to};
    switch (task) {
    case MOMENTS: w->kernels->column_moments(n, rows, step, w->x + at, numbers[0], numbers[1]); break;
    case NORMALISE: w->kernels->column_normalise(n, rows, step, w->x + at, &t, w->y + at); break;
    case SUMS:
        w->kernels->column_sums(n, rows, step, w->g + at, w->x + at, t.mean, numbers[0], numbers[1], numbers[2]);
        break;
    case GRADIENT: w->kernels->column_gradient(n, rows, step, w->g + at, w->x + at, &t, w->y + at); break;
    }
}

/* n elements of one plane. */
static void run_piece(const batch_work *w, batch_task task, int64_t block)
{
    const int64_t plane = block / w->cuts, cut = block % w->cuts, channel = plane % w->channels;
    const int64_t begin = lg_slice_begin(w->inner, w->cuts, cut),
                  n = lg_slice_begin(w->inner, w->cuts, cut + 1) - begin;
    const int64_t at = (plane * w->inner + begin) * w->size,
                  to = (plane / w->channels * w->cuts + cut) * w->channels + channel;
    const lg_norm_terms t = terms_at(w, channel);
    double *const numbers[NUMBERS] = {w->number[0] + to, w->number[1] + to, w->number[2] + to};
    switch (task) {
    case MOMENTS: w->kernels->plane_moments(n, w->x + at, numbers[0], numbers[1]); break;
    case NORMALISE: w->kernels->plane_normalise(n, w->x + at, &t, w->y + at); break;
    case SUMS: w->kernels->plane_sums(n, w->g + at, w->x + at, t.mean, numbers[0], numbers[1], numbers[2]); break;
    case GRADIENT: w->kernels->plane_gradient(n, w->g + at, w->x + at, &t, w->y + at); break;
    }
}

static void run_blocks(const batch_work *w, batch_task task, int64_t slice)
{
    const int64_t end = lg_slice_begin(w->blocks, w->slices, slice + 1);
    for (int64_t block = lg_slice_begin(w->blocks, w->slices, slice); block < end; ++block)
        w->columns ? run_columns(w, task, block) : run_piece(w, task, block);
}

#define DEFINE_SLICE(name, task)                \
    static void name(int64_t slice, void *work) \
    {                                           \
        run_blocks(work, task, slice);          \
    }
DEFINE_SLICE(moments_slice, MOMENTS)
DEFINE_SLICE(normalise_slice, NORMALISE)
DEFINE_SLICE(sums_slice, SUMS)
DEFINE_SLICE(gradient_slice, GRADIENT)

/* Elements of a channel in one part. */
static int64_t part_count(const batch_work *w, int64_t part)
{
    const int64_t items = w->columns ? w->outer : w->inner, n = w->columns ? w->parts : w->cuts, i = part % n;
    return lg_slice_begin(items, n, i + 1) - lg_slice_begin(items, n, i);
}

/* Means and deviations of all parts, merged into those of part 0. */
static void merge_moments(const batch_work *w)
{
    double *const mean = w->number[0], *const deviation = w->number[1];
    double before = (double)part_count(w, 0);
    for (int64_t part = 1; part < w->parts; ++part) {
        const double here = (double)part_count(w, part), share = here / (before + here);
        const double *means = mean + part * w->channels, *deviations = deviation + part * w->channels;
        for (int64_t c = 0; c < w->channels; ++c) {
            const double d = means[c] - mean[c];
            mean[c] += d * share;
            deviation[c] += deviations[c] + d * d * before * share;
        }
        before += here;
    }
}

static void merge_sums(const batch_work *w)
{
    for (int i = 0; i < NUMBERS; ++i) {
        double *const sum = w->number[i];
        for (int64_t part = 1; part < w->parts; ++part)
            for (int64_t c = 0; c < w->channels; ++c) sum[c] += sum[part * w->channels + c];
    }
}

static void follow(luge_tensor *running, int64_t c, double value, double momentum)
{
    if (running != NULL) store(running, c, (1 - momentum) * load(running, c, 0) + momentum * value);
}

/* What `real` loses of a number. */
static double lost(bool f64, double value)
{
    return f64 ? 0 : value - (double)(float)value;
}

/* What x is multiplied with, and the statistics that the call returns and keeps. A mean is rounded to x's
 * type, which may be much beside a small spread: the shift makes up for it. */
static void finish_statistics(const lg_call *call, const batch_work *w, double count)
{
    const lg_norm_attrs *a = call->attrs;
    const lg_norm_terms t = terms_at(w, 0);
    const bool measured = a->training && count > 0;
    for (int64_t c = 0; c < w->channels; ++c) {
        const double mean = measured ? w->number[0][c] : a->training ? 0 : load(call->in[1], c, 0);
        const double variance = measured ? w->number[1][c] / count : a->training ? 0 : load(call->in[2], c, 0);
        const double invstd = 1 / sqrt(variance + a->eps), scale = invstd * load(call->in[3], c, 1);
        if (measured) {
            follow(call->in[1], c, mean, a->momentum);
            follow(call->in[2], c, w->number[1][c] / (count - 1), a->momentum);
        }
        store(call->out[1], c, mean);
        store(call->out[2], c, invstd);
        put(w->f64, (void *)t.mean, c, mean);
        put(w->f64, (void *)t.scale, c, scale);
        put(w->f64, (void *)t.shift, c, load(call->in[4], c, 0) - lost(w->f64, mean) * scale);
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

/* What g and x are multiplied with, and the gradients of the parameters. In training the mean of x is what
 * was given and what rounding took from it: the mean of x less what was given. */
static void finish_gradient(const lg_call *call, const batch_work *w, double count)
{
    const lg_norm_attrs *a = call->attrs;
    const lg_norm_terms t = terms_at(w, 0);
    for (int64_t c = 0; c < w->channels; ++c) {
        const double invstd = load(call->in[4], c, 0), scale = invstd * load(call->in[2], c, 1);
        const double sum = count > 0 ? w->number[0][c] : 0,
                     off = count > 0 && a->training ? w->number[2][c] / count : 0;
        const double dot = count > 0 ? w->number[1][c] - off * sum : 0;
        const double slope = count > 0 && a->training ? -scale * dot * invstd * invstd / count : 0;
        store(call->out[1], c, dot * invstd);
        store(call->out[2], c, sum);
        put(w->f64, (void *)t.scale, c, scale);
        put(w->f64, (void *)t.slope, c, slope);
        put(w->f64, (void *)t.shift, c, count > 0 && a->training ? -scale * sum / count - slope * off : 0);
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
    luge_tensor *mean, *invstd; /* forward: written */
    double eps;
    const void *weight, *bias; /* never NULL */
    int64_t parts;             /* backward: of the rows */
    char *sums;                /* [parts, 2, n], of the parameters' gradients */
    luge_tensor *gradient[2];  /* of the parameters */
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

static void cut_rows(layer_work *w)
{
    const int64_t wanted = w->slices < PARTS ? w->slices : PARTS, needed = (w->rows + ROWS - 1) / ROWS;
    w->parts = needed > wanted ? needed : wanted;
    if (w->parts > 0) w->slices = lg_slices(w->parts, GRAIN / (w->rows / w->parts * w->n + 1));
}

static void layer_gradient_part(const layer_work *w, int64_t part)
{
    const int64_t bytes = w->n * w->size, end = lg_slice_begin(w->rows, w->parts, part + 1);
    char *gweight = w->sums + part * 2 * bytes, *gbias = gweight + bytes;
    memset(gweight, 0, (size_t)(2 * bytes));
    for (int64_t row = lg_slice_begin(w->rows, w->parts, part); row < end; ++row)
        w->kernels->layer_norm_backward(w->n, w->g + row * bytes, w->x + row * bytes, load(w->mean, row, 0),
                                        load(w->invstd, row, 0), w->weight, w->y + row * bytes, gweight, gbias);
}

static void layer_gradient_slice(int64_t slice, void *work)
{
    const layer_work *w = work;
    const int64_t end = lg_slice_begin(w->parts, w->slices, slice + 1);
    for (int64_t part = lg_slice_begin(w->parts, w->slices, slice); part < end; ++part) layer_gradient_part(w, part);
}

static int64_t sum_blocks(const layer_work *w)
{
    return (w->n + LG_BLOCK - 1) / LG_BLOCK;
}

/* Sums of all parts, of some columns of both gradients. */
static void layer_sum_slice(int64_t slice, void *work)
{
    const layer_work *w = work;
    const int64_t begin = slice % sum_blocks(w) * LG_BLOCK, n = w->n - begin < LG_BLOCK ? w->n - begin : LG_BLOCK;
    const lg_reducer sum = LG_ISA_PICK(lg_reduces)->of[w->f64 ? LG_LANE_F64 : LG_LANE_F32][LG_REDUCE_SUM];
    luge_tensor *gradient = w->gradient[slice / sum_blocks(w)];
    double all[LG_BLOCK] = {0};
    sum(n, w->parts, 2 * w->n, w->sums + (slice / sum_blocks(w) * w->n + begin) * w->size, NULL, 0, all);
    for (int64_t i = 0; i < n; ++i) put(w->f64, lg_data(gradient), begin + i, all[i]);
}

/* (g, x, [weight], mean, invstd) -> (gx, gweight, gbias) */
int lg_cpu_layer_norm_backward(const lg_call *call)
{
    const luge_tensor *g = call->in[0], *x = call->in[1], *weight = call->in[2];
    layer_work w = {.g = lg_data(g),
                    .y = lg_data(call->out[0]),
                    .mean = call->in[3],
                    .invstd = call->in[4],
                    .gradient = {call->out[1], call->out[2]}};
    if (!plan_layer(call, x, w.mean, &w) || !fits_rows(g, x) || !fits_rows(weight, x) || w.mean->dtype != x->dtype)
        return LG_DECLINED;
    cut_rows(&w);
    const int64_t bytes = w.n * w.size;
    lg_scratch scratch;
    char *memory = lg_scratch_open(&scratch, call->device, lg_scratch_times(2 * w.parts + 1, bytes));
    if (memory == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    w.weight = parameter(&w, weight, memory, 1);
    w.sums = memory + bytes;
    lg_parallel(w.slices, layer_gradient_slice, &w);
    lg_parallel(2 * sum_blocks(&w), layer_sum_slice, &w);
    lg_scratch_close(&scratch);
    return LUGE_OK;
}
