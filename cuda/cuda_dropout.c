/* Dropout: reads the call for the kernels of cuda_dropout.cu. */
#include "cuda/cuda.h"
#include "cuda/cuda_dropout.h"
#include "ops/attrs.h"

int lg_cuda_dropout(const lg_call *call)
{
    const lg_dropout_attrs *a = call->attrs;
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    const luge_tensor *x = call->in[0], *y = call->out[0], *mask = call->out[1];
    const int64_t *const stride[3] = {y->stride, mask->stride, x->stride};
    const lg_dropout_work w = {.dtype = (int)x->dtype, .g = lg_geometry_row_major(&x->shape, 3, stride),
                               .x = lg_data(x), .y = lg_data(y), .mask = lg_data(mask), .seed = a->rng.seed,
                               .stream = a->rng.stream, .first = a->rng.first, .threshold = lg_dropout_threshold(a),
                               .scale = lg_dropout_scale(a)};
    return (int)lg_cuda_check(d, lg_cuda_launch_dropout(&w, d->stream), "the kernel");
}

int lg_cuda_dropout_backward(const lg_call *call)
{
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    luge_tensor *g = call->in[0], *mask = call->in[1], *gx = call->out[0], *operand[3] = {gx, mask, g};
    const lg_dropout_work w = {.dtype = (int)g->dtype, .g = lg_cuda_geometry(&gx->shape, 3, operand), .x = lg_data(g),
                               .y = lg_data(gx), .mask = lg_data(mask), .scale = lg_dropout_scale(call->attrs)};
    return (int)lg_cuda_check(d, lg_cuda_launch_dropout_gradient(&w, d->stream), "the kernel");
}
