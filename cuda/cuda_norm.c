/* Batch and layer normalisation: reads the call, cuts groups into slices by shape, launches the kernels of
 * cuda_norm.cu. */
#include "core/dtype.h"
#include "cuda/cuda.h"
#include "cuda/cuda_norm.h"
#include "ops/attrs.h"

static lg_norm_param param_of(const luge_tensor *t, luge_dtype wide)
{
    if (t == NULL) return (lg_norm_param){NULL, 0, 0};
    return (lg_norm_param){lg_data(t), t->shape.rank == 1 ? t->stride[0] : 1, t->dtype == wide};
}

/* Slices of `count` elements, so that a large group gives every multiprocessor work, and none is too short
 * to pay. A function of the shape alone. */
static int64_t slices_of(int64_t groups, int64_t count, int64_t shortest)
{
    enum { ENOUGH_BLOCKS = 1024, MOST = 256 };
    int64_t n = count / shortest, wanted = ENOUGH_BLOCKS / (groups > 0 ? groups : 1);
    if (n > wanted) n = wanted;
    if (n > MOST) n = MOST;
    return n < 1 ? 1 : n;
}

/* ---- batch norm */

/* A group's elements: every axis but the channels', the one with the smallest stride of y first. */
static lg_geometry within_channel(const luge_shape *shape, const int64_t *const stride[3], int64_t *count)
{
    lg_geometry g = {.operands = 3};
    bool done[LUGE_MAX_RANK] = {[1] = true};
    *count = 1;
    for (int n = 0; n < shape->rank - 1; ++n) {
        int next = -1;
        for (int i = 0; i < shape->rank; ++i)
            if (!done[i] && (next < 0 || stride[LG_NORM_Y][i] <= stride[LG_NORM_Y][next])) next = i;
        done[next] = true;
        *count *= shape->dim[next];
        const int64_t along[3] = {stride[0][next], stride[1][next], stride[2][next]};
        lg_geometry_add_axis(&g, shape->dim[next], along);
    }
    lg_geometry_finish(&g);
    return g;
}

/* x, y (or gx) and g, which is absent in the forward pass. */
static lg_norm_work batch_work(const lg_call *call, const luge_tensor *x, const luge_tensor *y, const luge_tensor *g)
{
    const lg_norm_attrs *a = call->attrs;
    const luge_tensor *third = g != NULL ? g : x;
    const int64_t *const stride[3] = {x->stride, y->stride, third->stride};
    lg_norm_work w = {.dtype = (int)x->dtype, .groups = x->shape.dim[1], .x = lg_data(x), .y = lg_data(y),
                      .g = lg_data(third), .training = a->training, .momentum = a->momentum, .eps = a->eps};
    w.within = within_channel(&x->shape, stride, &w.count);
    for (int k = 0; k < 3; ++k) w.group_stride[k] = stride[k][1];
    w.columns = y->stride[1] == 1 && w.groups > 1;
    w.slices = w.columns ? slices_of((w.groups + 31) / 32, w.count, 64) : slices_of(w.groups, w.count, 2048);
    return w;
}

/* Room for partial sums: [n][slices][2]. */
static void *partial_room(const lg_call *call, int64_t n, int64_t slices, luge_dtype wide, size_t *bytes)
{
    *bytes = (size_t)(n * slices * 2) * luge_dtype_size(wide);
    return lg_cuda_scratch(call->device, *bytes);
}

int lg_cuda_batch_norm(const lg_call *call)
{
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    const luge_dtype wide = call->out[1]->dtype;
    lg_norm_work w = batch_work(call, call->in[0], call->out[0], NULL);
    w.running_mean = param_of(call->in[1], wide);
    w.running_var = param_of(call->in[2], wide);
    w.weight = param_of(call->in[3], wide);
    w.bias = param_of(call->in[4], wide);
    w.mean = lg_data(call->out[1]);
    w.invstd = lg_data(call->out[2]);
    size_t bytes;
    w.partial = partial_room(call, w.groups, w.slices, wide, &bytes);
    if (w.partial == NULL) return (int)lg_error();
    luge_status status = lg_cuda_check(d, lg_cuda_launch_batch_statistics(&w, d->stream), "the statistics");
    if (status == LUGE_OK && w.count > 0)
        status = lg_cuda_check(d, lg_cuda_launch_batch_apply(&w, d->stream), "the kernel");
    lg_cuda_scratch_free(call->device, w.partial, bytes);
    return (int)status;
}

int lg_cuda_batch_norm_backward(const lg_call *call)
{
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    const luge_dtype wide = call->out[1]->dtype;
    lg_norm_work w = batch_work(call, call->in[1], call->out[0], call->in[0]);
    w.weight = param_of(call->in[2], wide);
    w.mean = lg_data(call->in[3]);
    w.invstd = lg_data(call->in[4]);
    w.gweight = lg_data(call->out[1]);
    w.gbias = lg_data(call->out[2]);
    size_t bytes;
    w.partial = partial_room(call, w.groups, w.slices, wide, &bytes);
    if (w.partial == NULL) return (int)lg_error();
    luge_status status = lg_cuda_check(d, lg_cuda_launch_batch_sums(&w, d->stream), "the parameters' gradients");
    if (status == LUGE_OK && w.count > 0)
        status = lg_cuda_check(d, lg_cuda_launch_batch_gradient(&w, d->stream), "the kernel");
    lg_cuda_scratch_free(call->device, w.partial, bytes);
    return (int)status;
}

/* ---- layer norm */

static lg_norm_work layer_work(const luge_tensor *x, int axes)
{
    lg_norm_work w = {.dtype = (int)x->dtype, .groups = 1, .count = 1, .x = lg_data(x)};
    for (int i = 0; i < x->shape.rank; ++i) *(i < x->shape.rank - axes ? &w.groups : &w.count) *= x->shape.dim[i];
    return w;
}

static lg_norm_param row_param(const luge_tensor *t, luge_dtype wide)
{
    lg_norm_param p = param_of(t, wide);
    if (t != NULL) p.stride = 1; /* row-major, of whatever rank */
    return p;
}

int lg_cuda_layer_norm(const lg_call *call)
{
    const lg_norm_attrs *a = call->attrs;
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    const luge_dtype wide = call->out[1]->dtype;
    lg_norm_work w = layer_work(call->in[0], a->axes);
    w.eps = a->eps;
    w.weight = row_param(call->in[1], wide);
    w.bias = row_param(call->in[2], wide);
    w.y = lg_data(call->out[0]);
    w.mean = lg_data(call->out[1]);
    w.invstd = lg_data(call->out[2]);
    return (int)lg_cuda_check(d, lg_cuda_launch_layer_forward(&w, d->stream), "the kernel");
}

int lg_cuda_layer_norm_backward(const lg_call *call)
{
    const lg_norm_attrs *a = call->attrs;
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    const luge_dtype wide = call->out[1]->dtype;
    lg_norm_work w = layer_work(call->in[1], a->axes);
    w.g = lg_data(call->in[0]);
    w.weight = row_param(call->in[2], wide);
    w.mean = lg_data(call->in[3]);
    w.invstd = lg_data(call->in[4]);
    w.y = lg_data(call->out[0]);
    w.gweight = lg_data(call->out[1]);
    w.gbias = lg_data(call->out[2]);
    w.slices = slices_of((w.count + 31) / 32, w.groups, 64);
    size_t bytes;
    w.partial = partial_room(call, w.count, w.slices, wide, &bytes);
    if (w.partial == NULL) return (int)lg_error();
    luge_status status = LUGE_OK;
    if (w.count > 0) status = lg_cuda_check(d, lg_cuda_launch_layer_sums(&w, d->stream), "the parameters' gradients");
    if (status == LUGE_OK && w.groups > 0 && w.count > 0)
        status = lg_cuda_check(d, lg_cuda_launch_layer_gradient(&w, d->stream), "the kernel");
    lg_cuda_scratch_free(call->device, w.partial, bytes);
    return (int)status;
}
