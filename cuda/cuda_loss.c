/* Losses: reads the call for the kernels of cuda_loss.cu. */
#include "core/dtype.h"
#include "cuda/cuda.h"
#include "cuda/cuda_loss.h"
#include "ops/attrs.h"

static int reduction_of(luge_reduction r)
{
    return r == LUGE_MEAN ? LG_LOSS_MEAN : r == LUGE_SUM ? LG_LOSS_SUM : LG_LOSS_EACH;
}

/* ---- cross_entropy */

static lg_cross_entropy_work rows_of(const lg_call *call, const lg_cuda_device *d, const luge_tensor *x,
                                     const luge_tensor *target, const luge_tensor *weight)
{
    const lg_cross_entropy_attrs *a = call->attrs;
    const int columns = x->stride[1] != 1 && x->stride[0] == 1;
    return (lg_cross_entropy_work){
        .dtype = (int)x->dtype,
        .reduction = reduction_of(a->reduction),
        .wide_target = target->dtype == LUGE_I64,
        .fold = lg_fold_of(x->shape.dim[0], x->shape.dim[1], columns, 0),
        .row = x->stride[0],
        .column = x->stride[1],
        .target_stride = target->stride[0],
        .weight_stride = weight != NULL ? weight->stride[0] : 0,
        .ignore_index = a->ignore_index,
        .smoothing = a->label_smoothing,
        .x = lg_data(x),
        .target = lg_data(target),
        .weight = weight != NULL ? lg_data(weight) : NULL,
        .trouble = d->trouble,
    };
}

int lg_cuda_cross_entropy(const lg_call *call)
{
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    lg_cross_entropy_work w = rows_of(call, d, call->in[0], call->in[1], call->in[2]);
    w.loss = lg_data(call->out[0]);
    w.lse = lg_data(call->out[1]);
    w.count = lg_data(call->out[2]);
    const size_t rows = (size_t)w.fold.groups * luge_dtype_size(call->out[1]->dtype);
    char *room = lg_cuda_scratch(call->device, 2 * rows);
    if (room == NULL) return (int)lg_error();
    w.row_loss = room;
    w.row_weight = room + rows;
    const luge_status status = lg_cuda_check(d, lg_cuda_launch_cross_entropy(&w, d->stream), "the kernel");
    lg_cuda_scratch_free(call->device, room, 2 * rows);
    return (int)status;
}

int lg_cuda_cross_entropy_backward(const lg_call *call)
{
    const luge_tensor *g = call->in[0];
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    lg_cross_entropy_work w = rows_of(call, d, call->in[1], call->in[2], call->in[3]);
    w.g = lg_data(g);
    w.g_stride = g->shape.rank > 0 ? g->stride[0] : 0;
    w.lse = lg_data(call->in[4]);
    w.count = lg_data(call->in[5]);
    w.gx = lg_data(call->out[0]);
    return (int)lg_cuda_check(d, lg_cuda_launch_cross_entropy_gradient(&w, d->stream), "the kernel");
}

/* ---- losses of pairs */

static int pairs(const lg_call *call, int kind)
{
    luge_tensor *x = call->in[0], *target = call->in[1], *loss = call->out[0];
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    lg_pairs_work w = {.kind = kind, .dtype = (int)x->dtype, .x = lg_data(x), .target = lg_data(target),
                       .reduction = reduction_of(((const lg_loss_attrs *)call->attrs)->reduction), .result = lg_data(loss)};
    luge_tensor *operand[3] = {x, target, loss};
    w.at = lg_cuda_geometry(&x->shape, w.reduction == LG_LOSS_EACH ? 3 : 2, operand);
    w.fold = lg_fold_of(1, w.at.numel, 0, 1);
    const size_t bytes = (size_t)w.fold.slices * luge_dtype_size(LUGE_F64);
    if ((w.partial = lg_cuda_scratch(call->device, bytes)) == NULL) return (int)lg_error();
    const luge_status status = lg_cuda_check(d, lg_cuda_launch_pairs(&w, d->stream), "the kernel");
    lg_cuda_scratch_free(call->device, w.partial, bytes);
    return (int)status;
}

static int pairs_backward(const lg_call *call, int kind)
{
    luge_tensor *g = call->in[0], *x = call->in[1], *target = call->in[2], *gx = call->out[0];
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    lg_pairs_work w = {.kind = kind, .dtype = (int)x->dtype, .x = lg_data(x), .target = lg_data(target), .g = lg_data(g),
                       .reduction = reduction_of(((const lg_loss_attrs *)call->attrs)->reduction), .result = lg_data(gx)};
    luge_tensor *operand[4] = {x, target, gx, g};
    w.at = lg_cuda_geometry(&x->shape, w.reduction == LG_LOSS_EACH ? 4 : 3, operand);
    return (int)lg_cuda_check(d, lg_cuda_launch_pairs_gradient(&w, d->stream), "the kernel");
}

int lg_cuda_mse_loss(const lg_call *call) { return pairs(call, LG_PAIR_MSE); }
int lg_cuda_mse_loss_backward(const lg_call *call) { return pairs_backward(call, LG_PAIR_MSE); }
int lg_cuda_bce_with_logits(const lg_call *call) { return pairs(call, LG_PAIR_BCE); }
int lg_cuda_bce_with_logits_backward(const lg_call *call) { return pairs_backward(call, LG_PAIR_BCE); }
