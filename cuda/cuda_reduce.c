/* Reductions and running sums: reads the call for the kernels of cuda_reduce.cu and cuda_scan.cu. */
#include "cuda/cuda.h"
#include "cuda/cuda_reduce.h"
#include "ops/attrs.h"

/* Axes of x that stay and that go, both row-major: results are in that order, and argmax counts so. */
static void split_axes(const luge_tensor *x, uint32_t mask, lg_geometry *kept, lg_geometry *within)
{
    *kept = (lg_geometry){.operands = 1};
    *within = *kept;
    for (int i = x->shape.rank - 1; i >= 0; --i)
        lg_geometry_add_axis(mask >> i & 1u ? within : kept, x->shape.dim[i], &x->stride[i]);
    lg_geometry_finish(kept);
    lg_geometry_finish(within);
}

static int reduce(const lg_call *call, lg_reduce_kind kind)
{
    const lg_reduce_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0];
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    lg_reduce_work w = {.kind = (int)kind, .dtype = (int)x->dtype, .x = lg_data(x), .y = lg_data(call->out[0]),
                        .mean = call->n_out > 1 ? lg_data(call->out[1]) : NULL, .number = a->number};
    split_axes(x, a->mask, &w.kept, &w.within);
    const int columns = w.kept.stride[0][0] == 1 && w.within.stride[0][0] != 1 && w.kept.size[0] >= 8;
    w.fold = lg_fold_of(w.kept.numel, w.within.numel, columns, 1);
    const size_t bytes = (size_t)(w.fold.groups * w.fold.slices) * LG_REDUCE_STATE;
    if (w.fold.slices > 1 && (w.partial = lg_cuda_scratch(call->device, bytes)) == NULL) return (int)lg_error();
    const luge_status status = lg_cuda_check(d, lg_cuda_launch_reduce(&w, d->stream), "the kernel");
    if (w.partial != NULL) lg_cuda_scratch_free(call->device, w.partial, bytes);
    return (int)status;
}

int lg_cuda_sum(const lg_call *call) { return reduce(call, LG_REDUCE_SUM); }
int lg_cuda_mean(const lg_call *call) { return reduce(call, LG_REDUCE_MEAN); }
int lg_cuda_max(const lg_call *call) { return reduce(call, LG_REDUCE_MAX); }
int lg_cuda_min(const lg_call *call) { return reduce(call, LG_REDUCE_MIN); }
int lg_cuda_argmax(const lg_call *call) { return reduce(call, LG_REDUCE_ARGMAX); }
int lg_cuda_var(const lg_call *call) { return reduce(call, LG_REDUCE_VAR); }
int lg_cuda_norm(const lg_call *call) { return reduce(call, LG_REDUCE_NORM); }

int lg_cuda_cumsum(const lg_call *call)
{
    const lg_scan_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0];
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    lg_scan_work w = {.dtype = (int)x->dtype, .outer = 1, .n = 1, .inner = 1, .reverse = a->reverse,
                      .x = lg_data(x), .y = lg_data(call->out[0])};
    for (int i = 0; i < x->shape.rank; ++i)
        *(i < a->axis ? &w.outer : i == a->axis ? &w.n : &w.inner) *= x->shape.dim[i];
    return (int)lg_cuda_check(d, lg_cuda_launch_scan(&w, d->stream), "the kernel");
}
