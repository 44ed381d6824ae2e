/* cast, copy and fill, and the copies that other families of kernels need. */
#include "core/dtype.h"
#include "cuda/cuda.h"
#include "cuda/cuda_copy.h"
#include "ops/attrs.h"

/* The axis along which the source is dense, if it is not the target's and both have some length there; 0: none. */
static int axis_across(const lg_geometry *g)
{
    enum { WORTH_IT = 8 };
    if (g->stride[0][0] != 1 || g->stride[1][0] == 1 || g->size[0] < WORTH_IT) return 0;
    for (int axis = 1; axis < g->rank; ++axis)
        if (g->stride[1][axis] == 1 && g->size[axis] >= WORTH_IT) return axis;
    return 0;
}

static luge_status move(lg_cuda_device *d, luge_dtype dtype, const lg_geometry *g, void *to, const void *from)
{
    const int element = (int)luge_dtype_size(dtype);
    const int across = axis_across(g);
    cudaError_t code;
    if (g->flat && g->stride[0][0] == 1 && g->stride[1][0] == 1)
        code = cudaMemcpyAsync(to, from, (size_t)g->numel * (size_t)element, cudaMemcpyDeviceToDevice, d->stream);
    else if (across > 0)
        code = lg_cuda_launch_transpose(element, g, across, to, from, d->stream);
    else
        code = lg_cuda_launch_move(element, g, to, from, d->stream);
    return lg_cuda_check(d, code, "a copy");
}

luge_status lg_cuda_move(lg_cuda_device *d, luge_dtype dtype, const luge_shape *shape, void *to,
                         const int64_t *to_stride, const void *from, const int64_t *from_stride)
{
    const int64_t *const stride[2] = {to_stride, from_stride};
    const lg_geometry g = lg_geometry_sorted(shape, 2, stride);
    return g.numel == 0 ? LUGE_OK : move(d, dtype, &g, to, from);
}

/* The source is the last input and broadcasts to the target. */
int lg_cuda_copy(const lg_call *call)
{
    luge_tensor *to = call->out[0], *from = call->in[call->n_in - 1], *operand[2] = {to, from};
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    const lg_geometry g = lg_cuda_geometry(&to->shape, 2, operand);
    if (to->dtype == from->dtype) return (int)move(d, to->dtype, &g, lg_data(to), lg_data(from));
    return (int)lg_cuda_check(
        d, lg_cuda_launch_convert((int)to->dtype, (int)from->dtype, &g, lg_data(to), lg_data(from), d->stream), "the kernel");
}

int lg_cuda_cast(const lg_call *call)
{
    return lg_cuda_copy(call);
}

int lg_cuda_fill(const lg_call *call)
{
    luge_tensor *to = call->out[0];
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    const lg_geometry g = lg_cuda_geometry(&to->shape, 1, &to);
    const size_t element = lg_element_size(to);
    unsigned long long bits = 0;
    lg_store_f64(&bits, to->dtype, ((const lg_number_attrs *)call->attrs)->p);
    const cudaError_t code =
        bits == 0 && g.flat && g.stride[0][0] == 1
            ? cudaMemsetAsync(lg_data(to), 0, (size_t)g.numel * element, d->stream)
            : lg_cuda_launch_fill((int)element, &g, lg_data(to), bits, d->stream);
    return (int)lg_cuda_check(d, code, "the kernel");
}
