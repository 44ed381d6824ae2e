/* cat, pad and slice_backward: copies into parts of the result. */
#include "core/dtype.h"
#include "cuda/cuda.h"
#include "cuda/cuda_copy.h"
#include "ops/attrs.h"

/* The address of an element of t given by its place along each axis. */
static char *part_of(const luge_tensor *t, const int64_t *from)
{
    int64_t offset = 0;
    for (int i = 0; i < t->shape.rank; ++i) offset += from[i] * t->stride[i];
    return (char *)lg_data(t) + offset * (int64_t)lg_element_size(t);
}

/* x into the part of y that begins at `from`. */
static luge_status put(lg_cuda_device *d, luge_tensor *y, const luge_tensor *x, const int64_t *from)
{
    if (x->numel == 0) return LUGE_OK;
    return lg_cuda_move(d, x->dtype, &x->shape, part_of(y, from), y->stride, lg_data(x), x->stride);
}

/* y is dense, in whatever order. */
static luge_status fill_all(lg_cuda_device *d, luge_tensor *y, double value)
{
    unsigned long long bits = 0;
    const size_t element = lg_element_size(y);
    lg_store_f64(&bits, y->dtype, value);
    if (bits == 0)
        return lg_cuda_check(d, cudaMemsetAsync(lg_data(y), 0, (size_t)y->numel * element, d->stream), "a fill");
    const lg_geometry g = lg_cuda_geometry(&y->shape, 1, &y);
    return lg_cuda_check(d, lg_cuda_launch_fill((int)element, &g, lg_data(y), bits, d->stream), "a fill");
}

int lg_cuda_cat(const lg_call *call)
{
    const int axis = ((const lg_axis_attrs *)call->attrs)->axis;
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    int64_t from[LUGE_MAX_RANK] = {0};
    luge_status status = LUGE_OK;
    for (int k = 0; k < call->n_in && status == LUGE_OK; ++k) {
        status = put(d, call->out[0], call->in[k], from);
        from[axis] += call->in[k]->shape.dim[axis];
    }
    return (int)status;
}

int lg_cuda_pad(const lg_call *call)
{
    const lg_pad_attrs *a = call->attrs;
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    luge_status status = fill_all(d, call->out[0], a->value);
    if (status == LUGE_OK) status = put(d, call->out[0], call->in[0], a->before.dim);
    return (int)status;
}

int lg_cuda_slice_backward(const lg_call *call)
{
    const lg_slice_attrs *a = call->attrs;
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    int64_t from[LUGE_MAX_RANK] = {0};
    from[a->axis] = a->from;
    luge_status status = fill_all(d, call->out[0], 0);
    if (status == LUGE_OK) status = put(d, call->out[0], call->in[0], from);
    return (int)status;
}
