/* conv2d and its two gradients: by cuDNN where it has an engine (cuda/dnn.c), else by the plain kernels of
 * cuda_conv.cu. Plans are kept by geometry. cuDNN wants weights channels-last, [K, R, S, C/groups]: they are
 * brought there for each call, which is counted as a pack, and their gradient back. */
#include <string.h>
#include "core/alloc.h"
#include "core/process.h"
#include "core/services.h"
#include "cuda/cuda.h"
#include "cuda/cuda_conv.h"
#include "cuda/dnn.h"
#include "cuda/keep.h"
#include "ops/attrs.h"

/* ---- plans, under the device's lock */

enum { PLANS = 512 };

typedef struct kept_plan {
    uint64_t used;
    lg_dnn_conv conv;
    lg_dnn_plan plan;
} kept_plan;

typedef struct plan_cache {
    cudnnBackendDescriptor_t card;
    cudaStream_t stream; /* the handle's */
    uint64_t now;
    kept_plan kept[PLANS];
} plan_cache;

static luge_status open_dnn(lg_cuda_device *d)
{
    if (d->plans != NULL) return LUGE_OK;
    if (d->dnn == NULL && lg_cudnn_check(d, cudnnCreate(&d->dnn), "starting cuDNN") != LUGE_OK) {
        d->dnn = NULL;
        return lg_error();
    }
    plan_cache *cache = lg_private_resize(NULL, sizeof *cache);
    if (cache == NULL) return lg_fail(LUGE_ERR_OUT_OF_MEMORY, "conv2d: out of host memory");
    memset(cache, 0, sizeof *cache);
    if (lg_cudnn_check(d, lg_dnn_properties(d->dnn, NULL, 0, &cache->card), "describing the card to cuDNN") != LUGE_OK) {
        lg_private_free(cache);
        return lg_error();
    }
    d->plans = cache;
    return LUGE_OK;
}

void lg_cuda_conv_close(lg_cuda_device *d)
{
    plan_cache *cache = d->plans;
    for (int i = 0; i < PLANS && cache != NULL; ++i) lg_dnn_plan_free(&cache->kept[i].plan);
    if (cache != NULL) lg_dnn_properties_free(cache->card);
    lg_private_free(cache);
    d->plans = NULL;
    if (d->dnn != NULL) (void)cudnnDestroy(d->dnn);
    d->dnn = NULL;
}

/* The plan for a geometry; its plan->plan is NULL where cuDNN has none. NULL with the error set. */
static const lg_dnn_plan *plan_of(lg_cuda_device *d, const lg_dnn_conv *conv)
{
    if (open_dnn(d) != LUGE_OK) return NULL;
    plan_cache *cache = d->plans;
    bool found;
    kept_plan *k = lg_keep_find(cache->kept, PLANS, sizeof *k, conv, sizeof *conv, &found);
    if (!found) {
        lg_dnn_plan plan;
        if (lg_cudnn_check(d, lg_dnn_plan_make(cache->card, conv, &plan), "planning a convolution") != LUGE_OK) return NULL;
        lg_dnn_plan_free(&k->plan);
        *k = (kept_plan){0, *conv, plan};
    }
    k->used = ++cache->now;
    return &k->plan;
}

/* ---- one call */

/* Element strides of a dense channels-last [K, C/groups, R, S]. */
static void channels_last(const int64_t size[4], int64_t stride[4])
{
    stride[0] = size[1] * size[2] * size[3];
    stride[1] = 1;
    stride[2] = size[3] * size[1];
    stride[3] = size[1];
}

static bool lies_so(const int64_t size[4], const int64_t stride[4], const int64_t wanted[4])
{
    for (int i = 0; i < 4; ++i)
        if (size[i] != 1 && stride[i] != wanted[i]) return false;
    return true;
}

typedef struct conv_work {
    lg_dnn_kind kind;
    lg_device *device;
    lg_cuda_device *d;
    luge_dtype dtype;
    lg_conv_sizes sizes;
    lg_dnn_conv conv;
    void *x, *w, *y;     /* elements; the weight or its gradient with sizes.w_stride */
    int64_t weight[4];   /* its sizes */
} conv_work;

static bool dnn_dtype(luge_dtype dtype, int32_t *dnn)
{
    switch (dtype) {
    case LUGE_F32: *dnn = CUDNN_DATA_FLOAT; return true;
    case LUGE_F16: *dnn = CUDNN_DATA_HALF; return true;
    case LUGE_BF16: *dnn = CUDNN_DATA_BFLOAT16; return true;
    default: return false;
    }
}

static conv_work work_of(const lg_call *call, lg_dnn_kind kind, const luge_tensor *x, const luge_tensor *w,
                         const luge_tensor *y)
{
    const lg_conv2d_attrs *a = call->attrs;
    const int64_t *in = a->in_shape.dim, *weight = a->weight_shape.dim, *out = y->shape.dim;
    conv_work work = {.kind = kind, .device = call->device, .dtype = x->dtype,
                      .x = lg_data(x), .w = lg_data(w), .y = lg_data(y)};
    work.sizes = (lg_conv_sizes){.n = in[0], .c = in[1], .h = in[2], .w = in[3], .k = weight[0], .cg = weight[1],
                                 .r = weight[2], .s = weight[3], .kg = weight[0] / a->groups, .ho = out[2], .wo = out[3]};
    memset(&work.conv, 0, sizeof work.conv);
    work.conv.kind = (int32_t)kind;
    work.conv.tf32 = x->dtype == LUGE_F32 && lg_allows_tf32(LUGE_TF32_CONV);
    for (int i = 0; i < 4; ++i) {
        work.conv.x[i] = in[i];
        work.conv.w[i] = work.weight[i] = weight[i];
        work.conv.y[i] = out[i];
        work.sizes.w_stride[i] = w->stride[i];
    }
    for (int i = 0; i < 2; ++i) {
        work.sizes.stride[i] = work.conv.stride[i] = a->stride[i];
        work.sizes.before[i] = work.conv.before[i] = a->padding_before[i];
        work.sizes.dilation[i] = work.conv.dilation[i] = a->dilation[i];
        work.conv.after[i] = a->padding_after[i];
    }
    return work;
}

static luge_status run_plain(conv_work *c)
{
    const int dtype = (int)c->dtype;
    cudaError_t code;
    if (c->kind == LG_DNN_FORWARD)
        code = lg_cuda_launch_conv_forward(dtype, &c->sizes, c->x, c->w, c->y, c->d->stream);
    else if (c->kind == LG_DNN_INPUT)
        code = lg_cuda_launch_conv_input(dtype, &c->sizes, c->y, c->w, c->x, c->d->stream);
    else
        code = lg_cuda_launch_conv_weight(dtype, &c->sizes, c->y, c->x, c->w, c->d->stream);
    return lg_cuda_check(c->d, code, "the kernel");
}

/* Copies the weight between its own layout and cuDNN's. */
static luge_status move_weight(conv_work *c, const int64_t dense[4], void *own, void *packed, bool pack)
{
    lg_conv_pack p = {.element = (int)luge_dtype_size(c->dtype)};
    for (int i = 0; i < 4; ++i) {
        p.size[i] = c->weight[i];
        p.from_stride[i] = pack ? c->sizes.w_stride[i] : dense[i];
        p.to_stride[i] = pack ? dense[i] : c->sizes.w_stride[i];
    }
    lg_count(LG_COUNT_PACK);
    return lg_cuda_check(c->d, lg_cuda_launch_conv_pack(&p, pack ? own : packed, pack ? packed : own, c->d->stream),
                         "packing the weight");
}

static luge_status execute(conv_work *c, const lg_dnn_plan *plan, void *w)
{
    const size_t bytes = (size_t)plan->workspace;
    plan_cache *cache = c->d->plans;
    if (cache->stream != c->d->stream) { /* luge_cuda_set_stream may have changed it */
        if (lg_cudnn_check(c->d, cudnnSetStream(c->d->dnn, c->d->stream), "cuDNN's stream") != LUGE_OK) return lg_error();
        cache->stream = c->d->stream;
    }
    void *workspace = bytes > 0 ? lg_cuda_scratch(c->device, bytes) : NULL;
    if (bytes > 0 && workspace == NULL) return lg_error();
    const luge_status status =
        lg_cudnn_check(c->d, lg_dnn_plan_run(c->d->dnn, plan, c->x, w, c->y, workspace), "a convolution by cuDNN");
    if (workspace != NULL) lg_cuda_scratch_free(c->device, workspace, bytes);
    return status;
}

static luge_status run_plan(conv_work *c, const lg_dnn_plan *plan)
{
    int64_t dense[4];
    channels_last(c->weight, dense);
    if (lies_so(c->weight, c->sizes.w_stride, dense)) return execute(c, plan, c->w);
    const size_t bytes =
        (size_t)(c->weight[0] * c->weight[1] * c->weight[2] * c->weight[3]) * luge_dtype_size(c->dtype);
    void *packed = lg_cuda_scratch(c->device, bytes);
    if (packed == NULL) return lg_error();
    const bool is_result = c->kind == LG_DNN_WEIGHT;
    luge_status status = is_result ? LUGE_OK : move_weight(c, dense, c->w, packed, true);
    if (status == LUGE_OK) status = execute(c, plan, packed);
    if (status == LUGE_OK && is_result) status = move_weight(c, dense, c->w, packed, false);
    lg_cuda_scratch_free(c->device, packed, bytes);
    return status;
}

static luge_status run(conv_work *c)
{
    if ((c->d = lg_cuda_enter(c->device)) == NULL) return lg_error();
    if (!dnn_dtype(c->dtype, &c->conv.dtype)) return run_plain(c);
    pthread_mutex_lock(&c->d->lock);
    const lg_dnn_plan *plan = plan_of(c->d, &c->conv);
    luge_status status = plan == NULL ? lg_error() : plan->plan != NULL ? run_plan(c, plan) : LUGE_OK;
    const bool none = plan != NULL && plan->plan == NULL;
    pthread_mutex_unlock(&c->d->lock);
    return none ? run_plain(c) : status;
}

/* ---- the kernels */

int lg_cuda_conv2d(const lg_call *call)
{
    const luge_tensor *bias = call->in[2], *y = call->out[0];
    conv_work c = work_of(call, LG_DNN_FORWARD, call->in[0], call->in[1], y);
    luge_status status = run(&c);
    if (status != LUGE_OK || bias == NULL) return (int)status;
    const int64_t channels = y->shape.dim[1];
    void *add = lg_data(bias);
    const size_t bytes = (size_t)channels * lg_element_size(bias);
    if (bias->stride[0] != 1 && channels > 1) { /* a bias is small: it is made dense */
        const lg_conv_pack p = {.size = {1, channels, 1, 1}, .from_stride = {0, bias->stride[0], 0, 0},
                                .to_stride = {0, 1, 0, 0}, .element = (int)lg_element_size(bias)};
        if ((add = lg_cuda_scratch(call->device, bytes)) == NULL) return (int)lg_error();
        status = lg_cuda_check(c.d, lg_cuda_launch_conv_pack(&p, lg_data(bias), add, c.d->stream), "the bias");
    }
    if (status == LUGE_OK)
        status = lg_cuda_check(c.d,
                               lg_cuda_launch_conv_bias((int)y->dtype, lg_data(y), add, y->numel / channels, channels,
                                                        c.d->stream),
                               "the bias");
    if (add != lg_data(bias)) lg_cuda_scratch_free(call->device, add, bytes);
    return (int)status;
}

int lg_cuda_conv2d_backward_input(const lg_call *call)
{
    conv_work c = work_of(call, LG_DNN_INPUT, call->out[0], call->in[1], call->in[0]);
    return (int)run(&c);
}

int lg_cuda_conv2d_backward_weight(const lg_call *call)
{
    luge_tensor *gw = call->out[0];
    const luge_tensor *gy = call->in[0], *x = call->in[1];
    if (x->numel == 0) { /* an empty batch has no part in it */
        lg_cuda_device *d = lg_cuda_enter(call->device);
        if (d == NULL) return (int)lg_error();
        const size_t bytes = (size_t)gw->numel * lg_element_size(gw);
        return (int)lg_cuda_check(d, cudaMemsetAsync(lg_data(gw), 0, bytes, d->stream), "no gradient");
    }
    conv_work c = work_of(call, LG_DNN_WEIGHT, x, gw, gy);
    return (int)run(&c);
}
