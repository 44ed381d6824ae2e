/* conv2d and its gradients by oneDNN: images are cut into slices by shape, each slice is a primitive
 * that one thread runs. cpu_conv.c and cpu_conv_weight.c ask here first. */
#include <string.h>
#include "core/pool.h"
#include "core/services.h"
#include "core/thread.h"
#include "cpu/isa.h"
#include "cpu/onednn.h"
#include "cpu/scratch.h"
#include "ops/attrs.h"

enum {
    SLICES = 16,                 /* the most that images are cut into */
    SLICE_WORK = 1 << 21,        /* operations of a slice, at least: it costs some microseconds to run one */
    PARTS = 8,                   /* the same for the gradient of the weight, where each slice */
    PARTS_BYTES = 1 << 25,       /* costs memory, at most so much, */
    PART_PIXELS = 192,           /* and a pass over its part, which is a tenth of the work of so many pixels */
    ADD_GRAIN = 1 << 13
};

typedef struct convolution {
    lg_onednn_key key;
    int64_t images, slices;
    lg_onednn *primitive[2];     /* for slices of images / slices images, and of one more */
    char *x, *weight, *bias, *y; /* weight: row-major */
    int64_t x_image, y_image;    /* bytes */
    char *packed, *scratch;
    int64_t packed_bytes, packed_step, scratch_bytes; /* step: from slice to slice */
    atomic_bool failed;
} convolution;

static lg_onednn_use used = LG_ONEDNN_WHERE_FASTER;

void lg_onednn_set_use(lg_onednn_use use) { used = use; }

/* ---- what goes to oneDNN */

static int64_t bytes_of(const int64_t *size, int64_t channels) { return lg_scratch_times(lg_scratch_times(size[0], size[1]), channels * 4); }

/* oneDNN computes offsets within a primitive's operands in int: sizes far from that limit. */
static bool is_ordinary(const lg_onednn_key *k)
{
    const int64_t most = INT32_MAX / 2;
    for (int i = 0; i < 2; ++i) {
        const int64_t span = k->dilation[i] * (k->kernel[i] - 1) + 1;
        if (k->before[i] >= span || k->after[i] >= span || k->stride[i] > k->size[i] + k->before[i] + k->after[i]) return false;
    }
    return lg_scratch_times(k->images, bytes_of(k->size, k->channels)) <= most &&
           lg_scratch_times(k->images, bytes_of(k->out, k->out_channels)) <= most &&
           lg_scratch_times(bytes_of(k->kernel, k->channels / k->groups), k->out_channels) <= most;
}

/* Multiplications and additions. */
static double work_of(const lg_onednn_key *k, int64_t images)
{
    return 2.0 * (double)images * (double)k->out[0] * (double)k->out[1] * (double)k->out_channels *
           (double)(k->channels / k->groups) * (double)k->kernel[0] * (double)k->kernel[1];
}
static int64_t pixels_of(const lg_onednn_key *k, int64_t images) { return lg_scratch_times(images, k->out[0] * k->out[1]); }

/* What was measured, oneDNN 2.6 to own kernels, on two processors.
 * AVX-512 (Xeon, one thread; time of oneDNN's in that of own): 0.6-1.0 for 3x3 and 1x1 from 16 to 512
 * channels, on average 0.9 forward, 0.85 backward input, 0.75 backward weight; 0.01-0.05 for depthwise,
 * 0.4-0.8 for other groups. But:
 * - 1.1-1.3 forward and backward weight for one input channel and whole vectors of outputs (1 -> 32, 3x3
 *   on 28x28), whose taps own kernels take as one run;
 * - 1.1-1.6 where there is so little to do that packing the weight and the calls count, 1 to 3 us (8 -> 8,
 *   3x3 on eight 8x8: 12 us of own, 15 of oneDNN);
 * - few images, or few pixels to a part of the weight's gradient, leave threads without a slice. Own
 *   kernels share out rows and channels of an image.
 * AVX2 (EPYC, two threads): 1.2-1.7 for 3x3 from 32 channels on, forward and backward weight, and backward
 * input if there are pixels enough to pay for sorting the weight anew; 0.6-1.0 for 1x1 and for three
 * channels; 0.04 for depthwise. */
static bool is_faster_avx2(const lg_onednn_key *k, int64_t images)
{
    enum { FEW_CHANNELS = 16, MANY_PIXELS = 8192 };
    if (k->kernel[0] * k->kernel[1] == 1 || k->channels < FEW_CHANNELS) return true;
    return k->kind == LG_ONEDNN_BACKWARD_INPUT && pixels_of(k, images) < MANY_PIXELS;
}

static bool is_faster(const lg_onednn_key *k, int64_t images)
{
    enum { FEW_IMAGES = 4, LITTLE_FORWARD = 1 << 21, LITTLE = 1 << 18, VECTOR = 16 };
    if (k->groups > 1) return true;
    if (images < FEW_IMAGES) return false;
    if (k->channels == 1 && k->out_channels >= VECTOR && k->kind != LG_ONEDNN_BACKWARD_INPUT) return false;
    if (k->kind == LG_ONEDNN_BACKWARD_WEIGHT && pixels_of(k, images) < 2 * PART_PIXELS) return false;
    if (lg_cpu_isa() == LG_ISA_AVX2 && !is_faster_avx2(k, images)) return false;
    return work_of(k, images) >= (k->kind == LG_ONEDNN_FORWARD ? LITTLE_FORWARD : LITTLE);
}

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

static void cut(convolution *v)
{
    const lg_onednn_key *k = &v->key;
    int64_t most = at_most(v->images, SLICES);
    if (k->kind == LG_ONEDNN_BACKWARD_WEIGHT) {
        const int64_t bytes = bytes_of(k->kernel, k->channels / k->groups) * k->out_channels;
        most = at_most(at_most(most, PARTS), at_most(PARTS_BYTES / bytes, pixels_of(k, v->images) / PART_PIXELS));
    }
    const double wanted = work_of(k, v->images) / SLICE_WORK;
    v->slices = wanted < (double)most ? (int64_t)wanted : most;
    if (v->slices < 1) v->slices = 1;
}

static bool plan(convolution *v, lg_onednn_kind kind, const lg_call *call, const luge_tensor *x, const luge_tensor *weight,
                 const luge_tensor *bias, const luge_tensor *y)
{
    const lg_conv2d_attrs *a = call->attrs;
    if (used == LG_ONEDNN_NEVER || lg_cpu_isa_is_lowered() || y->dtype != LUGE_F32 || !lg_strides_are_channels_last(&x->shape, x->stride) ||
        !lg_strides_are_channels_last(&y->shape, y->stride) || !lg_is_contiguous(weight) || (bias != NULL && !lg_is_contiguous(bias)))
        return false;
    *v = (convolution){
        .key = {.kind = kind, .with_bias = bias != NULL, .groups = a->groups, .channels = x->shape.dim[1], .out_channels = y->shape.dim[1]},
        .images = x->shape.dim[0],
        .x = lg_data(x),
        .weight = lg_data(weight),
        .bias = bias == NULL ? NULL : lg_data(bias),
        .y = lg_data(y),
    };
    lg_onednn_key *k = &v->key;
    for (int i = 0; i < 2; ++i) {
        k->size[i] = x->shape.dim[2 + i];
        k->out[i] = y->shape.dim[2 + i];
        k->kernel[i] = weight->shape.dim[2 + i];
        k->stride[i] = a->stride[i];
        k->before[i] = a->padding_before[i];
        k->after[i] = a->padding_after[i];
        k->dilation[i] = a->dilation[i];
    }
    if (v->images == 0 || (used == LG_ONEDNN_WHERE_FASTER && !is_faster(k, v->images))) return false;
    cut(v);
    k->images = v->images / v->slices + 1;
    if (!is_ordinary(k)) return false;
    v->x_image = bytes_of(k->size, k->channels);
    v->y_image = bytes_of(k->out, k->out_channels);
    return true;
}

/* ---- running */

static int out_of_memory(const lg_call *call)
{
    return (int)lg_fail(LUGE_ERR_OUT_OF_MEMORY, "%s: oneDNN found no memory for its work", call->op->name);
}

static void give_back(const convolution *v)
{
    for (int i = 0; i < 2; ++i)
        if (v->primitive[i] != NULL) lg_onednn_put(v->primitive[i]);
}

/* The primitives of both sizes of slices, which must want the weight in the same order. */
static int get_primitives(const lg_call *call, convolution *v)
{
    const int64_t longer = v->images % v->slices;
    int answer = LUGE_OK;
    for (int i = 0; i < (longer > 0 ? 2 : 1) && answer == LUGE_OK; ++i) {
        v->key.images = v->images / v->slices + i;
        answer = lg_onednn_get(&v->key, &v->primitive[i]);
    }
    if (answer == LUGE_OK && longer > 0 && !lg_onednn_same_packing(v->primitive[0], v->primitive[1])) answer = LG_DECLINED;
    if (answer != LUGE_OK) give_back(v);
    if (answer == LUGE_ERR_OUT_OF_MEMORY) return out_of_memory(call);
    return answer;
}

static void run_slice(int64_t slice, void *work)
{
    convolution *v = work;
    const int64_t image = lg_slice_begin(v->images, v->slices, slice);
    const lg_onednn *primitive = v->primitive[slice < v->images % v->slices];
    if (!lg_onednn_run(primitive, v->x + image * v->x_image, v->packed + slice * v->packed_step, v->bias, v->y + image * v->y_image,
                       v->scratch + lg_pool_thread() * v->scratch_bytes))
        atomic_store(&v->failed, true);
}

/* Part 0 += the others. */
static void add_parts(int64_t slice, void *work)
{
    const convolution *v = work;
    const int64_t count = v->packed_bytes / 4, step = v->packed_step / 4, n = lg_slices(count, ADD_GRAIN);
    const int64_t begin = lg_slice_begin(count, n, slice), end = lg_slice_begin(count, n, slice + 1);
    float *to = (float *)(void *)v->packed;
    for (int64_t part = 1; part < v->slices; ++part) {
        const float *from = to + part * step;
        for (int64_t i = begin; i < end; ++i) to[i] += from[i];
    }
}

static bool multiply(convolution *v)
{
    const bool sums = v->key.kind == LG_ONEDNN_BACKWARD_WEIGHT;
    lg_count(LG_COUNT_PACK);
    if (!sums && !lg_onednn_repack(v->primitive[0], v->weight, v->packed)) return false;
    lg_parallel(v->slices, run_slice, v);
    if (atomic_load(&v->failed)) return false;
    if (!sums) return true;
    if (v->slices > 1) lg_parallel(lg_slices(v->packed_bytes / 4, ADD_GRAIN), add_parts, v);
    return lg_onednn_repack(v->primitive[0], v->packed, v->weight);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int run_with_primitives(const lg_call *call, convolution *v)
{
    const bool two = v->primitive[1] != NULL;
    v->packed_bytes = v->primitive[0]->packed_bytes;
    v->packed_step = v->key.kind == LG_ONEDNN_BACKWARD_WEIGHT ? lg_scratch_plus(v->packed_bytes, 0) : 0;
    v->scratch_bytes = lg_scratch_plus(larger(v->primitive[0]->scratch_bytes, two ? v->primitive[1]->scratch_bytes : 0), 0);
    const int64_t for_weights = v->packed_step > 0 ? lg_scratch_times(v->slices, v->packed_step) : lg_scratch_plus(v->packed_bytes, 0);
    lg_scratch scratch;
    v->packed = lg_scratch_open(&scratch, call->device, lg_scratch_plus(for_weights, lg_scratch_times(lg_pool_threads(), v->scratch_bytes)));
    if (v->packed == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    v->scratch = v->packed + for_weights;
    const bool done = multiply(v);
    lg_scratch_close(&scratch);
    return done ? LUGE_OK : out_of_memory(call);
}

static int run(const lg_call *call, convolution *v)
{
    lg_onednn_session session;
    if (!lg_onednn_enter(&session)) return out_of_memory(call);
    int answer = get_primitives(call, v);
    if (answer == LUGE_OK) {
        answer = run_with_primitives(call, v);
        give_back(v);
    }
    lg_onednn_leave(&session);
    return answer;
}

/* ---- the three kernels; shapes are in cpu_conv.c and cpu_conv_weight.c */

int lg_onednn_conv2d(const lg_call *call)
{
    convolution v;
    return plan(&v, LG_ONEDNN_FORWARD, call, call->in[0], call->in[1], call->in[2], call->out[0]) ? run(call, &v) : LG_DECLINED;
}

int lg_onednn_conv2d_backward_input(const lg_call *call)
{
    convolution v;
    return plan(&v, LG_ONEDNN_BACKWARD_INPUT, call, call->out[0], call->in[1], NULL, call->in[0]) ? run(call, &v) : LG_DECLINED;
}

int lg_onednn_conv2d_backward_weight(const lg_call *call)
{
    convolution v;
    return plan(&v, LG_ONEDNN_BACKWARD_WEIGHT, call, call->in[1], call->out[0], NULL, call->in[0]) ? run(call, &v) : LG_DECLINED;
}
