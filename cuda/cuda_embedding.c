/* Embeddings: reads the call for the kernels of cuda_embedding.cu. */
#include "cuda/cuda.h"
#include "cuda/cuda_embedding.h"
#include "ops/attrs.h"

static lg_embedding_work work_of(const lg_cuda_device *d, const luge_tensor *indices, luge_dtype dtype)
{
    const int64_t *const stride[1] = {indices->stride};
    return (lg_embedding_work){.dtype = (int)dtype, .wide_index = indices->dtype == LUGE_I64,
                               .places = lg_geometry_row_major(&indices->shape, 1, stride),
                               .index = lg_data(indices), .trouble = d->trouble};
}

int lg_cuda_embedding(const lg_call *call)
{
    const luge_tensor *weight = call->in[0];
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    lg_embedding_work w = work_of(d, call->in[1], weight->dtype);
    w.count = weight->shape.dim[0];
    w.dim = weight->shape.dim[1];
    w.row = weight->stride[0];
    w.column = weight->stride[1];
    w.from = lg_data(weight);
    w.to = lg_data(call->out[0]);
    return (int)lg_cuda_check(d, lg_cuda_launch_embedding(&w, d->stream), "the kernel");
}

int lg_cuda_embedding_backward(const lg_call *call)
{
    luge_tensor *gw = call->out[0];
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    lg_embedding_work w = work_of(d, call->in[1], gw->dtype);
    w.count = gw->shape.dim[0];
    w.dim = gw->shape.dim[1];
    w.from = lg_data(call->in[0]);
    w.to = lg_data(gw);
    const size_t bytes = (size_t)gw->numel * lg_element_size(gw);
    luge_status status = lg_cuda_check(d, cudaMemsetAsync(lg_data(gw), 0, bytes, d->stream), "clearing the gradient");
    if (status == LUGE_OK && w.places.numel > 0)
        status = lg_cuda_check(d, lg_cuda_launch_embedding_gradient(&w, d->stream), "the kernel");
    return (int)status;
}
