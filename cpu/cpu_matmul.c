/* matmul and linear: their tensors as a strided product (gemm.c). */
#include "cpu/cpu.h"
#include "cpu/gemm.h"
#include "ops/attrs.h"

/* Leading axes; those of C are of size 1 or like both others. */
static void add_batch(lg_gemm *g, const luge_tensor *a, const luge_tensor *b, const luge_tensor *c)
{
    g->batch_rank = c->shape.rank - 2;
    for (int i = 0; i < g->batch_rank; ++i) {
        g->batch[i] = c->shape.dim[i];
        g->a_batch[i] = a->stride[i];
        g->b_batch[i] = b->stride[i];
        g->c_batch[i] = c->stride[i];
    }
}

/* a [.., n, k], b [.., k, m] -> [.., n, m] */
int lg_cpu_matmul(const lg_call *call)
{
    const luge_tensor *a = call->in[0], *b = call->in[1];
    luge_tensor *c = call->out[0];
    if (c->dtype != LUGE_F32 && c->dtype != LUGE_F64) return LG_DECLINED;
    const int row = c->shape.rank - 2, column = row + 1;
    lg_gemm g = {
        .f64 = c->dtype == LUGE_F64,
        .m = c->shape.dim[row],
        .n = c->shape.dim[column],
        .k = a->shape.dim[column],
        .a = lg_data(a),
        .b = lg_data(b),
        .c = lg_data(c),
        .a_row = a->stride[row],
        .a_column = a->stride[column],
        .b_row = b->stride[row],
        .b_column = b->stride[column],
        .c_row = c->stride[row],
    };
    add_batch(&g, a, b, c);
    return (int)lg_gemm_run(call->device, &g);
}

/* x [n, in], weight [out, in], [bias [out]] -> [n, out] */
int lg_cpu_linear(const lg_call *call)
{
    const luge_tensor *x = call->in[0], *weight = call->in[1], *bias = call->in[2];
    luge_tensor *y = call->out[0];
    if (y->dtype != LUGE_F32 && y->dtype != LUGE_F64) return LG_DECLINED;
    const lg_gemm g = {
        .f64 = y->dtype == LUGE_F64,
        .m = y->shape.dim[0],
        .n = y->shape.dim[1],
        .k = x->shape.dim[1],
        .a = lg_data(x),
        .b = lg_data(weight),
        .c = lg_data(y),
        .bias = bias == NULL ? NULL : lg_data(bias),
        .a_row = x->stride[0],
        .a_column = x->stride[1],
        .b_row = weight->stride[1],
        .b_column = weight->stride[0],
        .c_row = y->stride[0],
        .bias_step = bias == NULL ? 0 : bias->stride[0],
    };
    return (int)lg_gemm_run(call->device, &g);
}

/* g [n, out], x [n, in] -> gweight [out, in], gbias [out] */
int lg_cpu_linear_backward_weight(const lg_call *call)
{
    luge_tensor *g = call->in[0], *gweight = call->out[0];
    const luge_tensor *x = call->in[1];
    if (gweight->dtype != LUGE_F32 && gweight->dtype != LUGE_F64) return LG_DECLINED;
    const lg_gemm product = {
        .f64 = gweight->dtype == LUGE_F64,
        .m = gweight->shape.dim[0],
        .n = gweight->shape.dim[1],
        .k = g->shape.dim[0],
        .a = lg_data(g),
        .b = lg_data(x),
        .c = lg_data(gweight),
        .a_row = g->stride[1],
        .a_column = g->stride[0],
        .b_row = x->stride[0],
        .b_column = x->stride[1],
        .c_row = gweight->stride[0],
    };
    const lg_reduce_attrs rows = {.mask = 1};
    lg_call sum = *call;
    sum.attrs = &rows;
    sum.attrs_size = sizeof rows;
    sum.n_in = sum.n_out = 1;
    sum.in = &g;
    sum.out[0] = call->out[1];
    sum.out[1] = NULL;
    const int status = lg_cpu_sum(&sum);
    return status == LUGE_OK ? (int)lg_gemm_run(call->device, &product) : status;
}
