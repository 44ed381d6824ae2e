/* softmax and log_softmax: reads the call for the kernels of cuda_softmax.cu. */
#include "cuda/cuda.h"
#include "cuda/cuda_softmax.h"
#include "ops/attrs.h"

/* Rows along the axis, of the result, x and g. */
static lg_softmax_work work_of(const lg_call *call, luge_tensor *result, const luge_tensor *x, const luge_tensor *g)
{
    const int axis = ((const lg_axis_attrs *)call->attrs)->axis;
    const luge_tensor *operand[3] = {result, x, g};
    lg_softmax_work w = {.dtype = (int)result->dtype, .rows = {.operands = 3}, .result = lg_data(result),
                         .x = lg_data(x), .g = lg_data(g)};
    bool done[LUGE_MAX_RANK] = {false};
    const int rank = result->shape.rank;
    if (rank > 0) done[axis] = true;
    for (int n = 1; n < rank; ++n) { /* neighbours in memory first */
        int next = -1;
        for (int i = rank - 1; i >= 0; --i)
            if (!done[i] && (next < 0 || result->stride[i] < result->stride[next])) next = i;
        done[next] = true;
        const int64_t along[3] = {result->stride[next], x->stride[next], g->stride[next]};
        lg_geometry_add_axis(&w.rows, result->shape.dim[next], along);
    }
    lg_geometry_finish(&w.rows);
    for (int k = 0; k < 3 && rank > 0; ++k) w.step[k] = operand[k]->stride[axis];
    const int columns = w.step[0] != 1 && w.rows.stride[0][0] == 1;
    w.fold = lg_fold_of(w.rows.numel, rank == 0 ? 1 : result->shape.dim[axis], columns, 0);
    return w;
}

typedef cudaError_t softmax_launcher(const lg_softmax_work *w, cudaStream_t stream);

static int run(const lg_call *call, bool logarithm, lg_softmax_work w, softmax_launcher *launch)
{
    lg_cuda_device *d = lg_cuda_enter(call->device);
    w.logarithm = logarithm;
    return d == NULL ? (int)lg_error() : (int)lg_cuda_check(d, launch(&w, d->stream), "the kernel");
}

static int forward(const lg_call *call, bool logarithm)
{
    return run(call, logarithm, work_of(call, call->out[0], call->in[0], call->in[0]), lg_cuda_launch_softmax);
}

static int backward(const lg_call *call, bool logarithm)
{
    return run(call, logarithm, work_of(call, call->out[0], call->in[1], call->in[0]), lg_cuda_launch_softmax_gradient);
}

int lg_cuda_softmax(const lg_call *call) { return forward(call, false); }
int lg_cuda_log_softmax(const lg_call *call) { return forward(call, true); }
int lg_cuda_softmax_backward(const lg_call *call) { return backward(call, false); }
int lg_cuda_log_softmax_backward(const lg_call *call) { return backward(call, true); }
