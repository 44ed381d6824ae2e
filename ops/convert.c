/* f16 and bf16 for kernels that are written for f32: called by the call path for ops whose row in
 * ops.def says F32. */
#include <luge/scope.h>
#include "core/dtype.h"
#include "core/thread.h"
#include "ops/attrs.h"
#include "ops/call.h"

static luge_status convert(const lg_call *of, luge_tensor *from, luge_tensor *to)
{
    const lg_dtype_attrs attrs = {.dtype = to->dtype};
    lg_call cast = {.op = &lg_op_cast,
                    .attrs = &attrs,
                    .attrs_size = sizeof attrs,
                    .n_in = 1,
                    .n_out = 1,
                    .in = &from,
                    .out = {to},
                    .view_of = -1,
                    .device = of->device,
                    .site = of->site,
                    .line = of->line};
    const lg_kernel kernel = of->device->backend->kernel[LG_OP_cast];
    int status = kernel != NULL ? kernel(&cast) : LG_DECLINED;
    if (status == LG_DECLINED && lg_on_host(of->device)) status = (int)lg_op_cast.reference(&cast);
    if (status == LG_DECLINED) return lg_op_fail(of, LUGE_ERR_UNSUPPORTED, "the device cannot convert to f32");
    return status == LUGE_OK ? LUGE_OK : lg_error();
}

/* An f32 tensor of the shape of t, in the same order of axes where that is dense. */
static luge_tensor *create_like(const lg_call *call, const luge_tensor *t)
{
    const bool dense = lg_strides_are_dense(&t->shape, t->stride);
    return lg_tensor_create(call->device, LUGE_F32, &t->shape, dense ? t->stride : NULL);
}

static bool is_half(const luge_tensor *t)
{
    return t != NULL && lg_is_half(t->dtype);
}

/* Replaces the halves among call's tensors, whose inputs lie in `in`, by f32 stand-ins that it owns. */
static luge_status stand_in(lg_call *call, luge_tensor **in)
{
    luge_status status = LUGE_OK;
    for (int i = 0; i < call->n_in && status == LUGE_OK; ++i) {
        luge_tensor *half = in[i];
        if (!is_half(half)) continue;
        in[i] = create_like(call, half);
        status = in[i] != NULL ? convert(call, half, in[i]) : lg_error();
    }
    for (int k = 0; k < call->n_out && status == LUGE_OK; ++k) {
        if (!is_half(call->out[k])) continue;
        call->out[k] = create_like(call, call->out[k]);
        if (call->out[k] == NULL) status = lg_error();
    }
    return status;
}

int lg_run_as_f32(const lg_call *call, lg_kernel kernel)
{
    bool any = false;
    for (int i = 0; i < call->n_in && !any; ++i) any = is_half(call->in[i]);
    for (int k = 0; k < call->n_out && !any; ++k) any = is_half(call->out[k]);
    if (!any) return kernel(call);
    if (call->n_in > LG_MAX_IN) return LG_DECLINED;

    luge_tensor *in[LG_MAX_IN];
    memcpy(in, call->in, (size_t)call->n_in * sizeof *in);
    lg_call wide = *call;
    wide.in = in;
    int status = (int)stand_in(&wide, in);
    if (status == LUGE_OK) status = kernel(&wide);
    for (int k = 0; k < call->n_out; ++k) {
        if (wide.out[k] == call->out[k]) continue;
        if (status == LUGE_OK) status = (int)convert(call, wide.out[k], call->out[k]);
        luge_release(wide.out[k]);
    }
    for (int i = 0; i < call->n_in; ++i) {
        if (in[i] == call->in[i]) continue;
        const bool written = call->mutates >> i & 1u;
        if (status == LUGE_OK && written) status = (int)convert(call, in[i], call->in[i]);
        luge_release(in[i]);
    }
    return status;
}
