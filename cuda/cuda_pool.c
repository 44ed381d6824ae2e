/* Pooling: reads the call for the kernels of cuda_pool.cu. */
#include "cuda/cuda.h"
#include "cuda/cuda_pool.h"
#include "ops/attrs.h"

static void strides_of(const luge_tensor *t, int64_t stride[4])
{
    for (int i = 0; i < 4; ++i) stride[i] = t->stride[i];
}

/* `written` decides the order of the threads. */
static lg_pool_work work_of(const lg_call *call, luge_tensor *written)
{
    const lg_pool2d_attrs *a = call->attrs;
    lg_pool_work w = {.dtype = (int)written->dtype, .n = a->in_shape.dim[0], .c = a->in_shape.dim[1],
                      .adaptive = a->adaptive, .include_padding = a->include_padding,
                      .channels_last = written->stride[1] == 1, .result = lg_data(written)};
    for (int i = 0; i < 2; ++i) {
        w.size[i] = a->in_shape.dim[2 + i];
        w.out[i] = a->out[i];
        w.kernel[i] = a->kernel[i];
        w.stride[i] = a->stride[i];
        w.padding[i] = a->padding[i];
    }
    return w;
}

typedef cudaError_t pool_launcher(const lg_pool_work *w, cudaStream_t stream);

static int run(const lg_call *call, const lg_pool_work *w, pool_launcher *launch)
{
    lg_cuda_device *d = lg_cuda_enter(call->device);
    return d == NULL ? (int)lg_error() : (int)lg_cuda_check(d, launch(w, d->stream), "the kernel");
}

static int forward(const lg_call *call, pool_launcher *launch)
{
    lg_pool_work w = work_of(call, call->out[0]);
    w.x = lg_data(call->in[0]);
    strides_of(call->in[0], w.x_stride);
    strides_of(call->out[0], w.y_stride);
    return run(call, &w, launch);
}

int lg_cuda_max_pool2d(const lg_call *call) { return forward(call, lg_cuda_launch_max_pool); }
int lg_cuda_avg_pool2d(const lg_call *call) { return forward(call, lg_cuda_launch_avg_pool); }

int lg_cuda_max_pool2d_backward(const lg_call *call)
{
    lg_pool_work w = work_of(call, call->out[0]);
    w.g = lg_data(call->in[0]);
    w.x = lg_data(call->in[1]);
    w.y = lg_data(call->in[2]);
    strides_of(call->in[0], w.g_stride);
    strides_of(call->in[1], w.x_stride);
    strides_of(call->in[2], w.y_stride);
    strides_of(call->out[0], w.gx_stride);
    return run(call, &w, lg_cuda_launch_max_pool_gradient);
}

int lg_cuda_avg_pool2d_backward(const lg_call *call)
{
    lg_pool_work w = work_of(call, call->out[0]);
    w.g = lg_data(call->in[0]);
    strides_of(call->in[0], w.g_stride);
    strides_of(call->out[0], w.gx_stride);
    return run(call, &w, lg_cuda_launch_avg_pool_gradient);
}
