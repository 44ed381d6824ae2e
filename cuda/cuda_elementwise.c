/* Elementwise ops: every row of elementwise.def, sign, where and lerp. Reads the call for the kernels of
 * cuda_elementwise_*.cu. */
#include "core/dtype.h"
#include "core/op_id.h"
#include "cuda/cuda.h"
#include "cuda/cuda_elementwise.h"
#include "ops/attrs.h"

/* Whether `few` neighbours can be read at once wherever such a group begins. */
static bool is_dense(const lg_geometry *g, int operand, const luge_tensor *t, int few)
{
    if (g->stride[operand][0] != 1 || (uintptr_t)lg_data(t) % ((size_t)few * lg_element_size(t)) != 0) return false;
    for (int axis = 1; axis < g->rank; ++axis)
        if (g->stride[operand][axis] % few != 0) return false;
    return true;
}

/* Groups of as many elements as a thread can take, if the result can be written so and rows are made of whole
 * groups; else single elements, so that neighbouring threads still write neighbours. */
static void cut(lg_map_work *w, int operands, luge_tensor *const *operand)
{
    const int few = LG_MAP_WIDTH(luge_dtype_size((luge_dtype)w->dtype));
    w->few = (w->g.flat || w->g.size[0] % few == 0) && is_dense(&w->g, 0, operand[0], few) ? few : 1;
    for (int k = 0; k < operands && w->few > 1; ++k) w->dense |= is_dense(&w->g, k, operand[k], few) << k;
}

/* The last input has the dtype that computes; only a condition before it may have another. */
static bool same_dtype(const lg_call *call, lg_op_id op)
{
    for (int k = op == LG_OP_where ? 1 : 0; k < call->n_in; ++k)
        if (call->in[k]->dtype != call->in[call->n_in - 1]->dtype) return false;
    return true;
}

static cudaError_t launch(const lg_map_work *w, cudaStream_t stream)
{
    switch (w->dtype) {
    case LUGE_F32: return lg_cuda_launch_map_f32(w, stream);
    case LUGE_F64: return lg_cuda_launch_map_f64(w, stream);
    case LUGE_F16: return lg_cuda_launch_map_f16(w, stream);
    case LUGE_BF16: return lg_cuda_launch_map_bf16(w, stream);
    default: return lg_cuda_launch_map_whole(w, stream);
    }
}

static int map(const lg_call *call, lg_op_id op)
{
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    if (!same_dtype(call, op)) return LG_DECLINED;
    luge_tensor *out = call->out[0], *operand[LG_GEOMETRY_OPERANDS] = {out};
    lg_map_work w = {.op = (int)op, .dtype = (int)call->in[call->n_in - 1]->dtype, .out = lg_data(out)};
    for (int k = 0; k < call->n_in; ++k) {
        operand[k + 1] = call->in[k];
        w.in[k] = lg_data(call->in[k]);
    }
    w.g = lg_cuda_geometry(&out->shape, call->n_in + 1, operand);
    cut(&w, call->n_in + 1, operand);
    if (call->attrs_size == sizeof(lg_number_attrs)) {
        const lg_number_attrs *a = call->attrs;
        w.p = a->p;
        w.q = a->q;
        w.whole_p = lg_f64_to_i64(a->p, INT64_MIN, INT64_MAX);
        w.whole_q = lg_f64_to_i64(a->q, INT64_MIN, INT64_MAX);
    }
    const cudaError_t code = launch(&w, d->stream);
    return code == cudaErrorNotSupported ? LG_DECLINED : (int)lg_cuda_check(d, code, "the kernel");
}

/* ---- the kernels */

#define KERNEL(name) \
    int lg_cuda_##name(const lg_call *call) { return map(call, LG_OP_##name); }
#define IF_SAVED_NONE(...)
#define IF_SAVED_IN(...) __VA_ARGS__
#define IF_SAVED_OUT(...) __VA_ARGS__
#define IF_SAVED_B_A(...) __VA_ARGS__
#define IF_SAVED_B_AB(...) __VA_ARGS__
#define IF_SAVED_AB_AB(...) __VA_ARGS__
#define LUGE_UNARY(name, kinds, save, ...) KERNEL(name) IF_SAVED_##save(KERNEL(name##_backward))
#define LUGE_UNARY1 LUGE_UNARY
#define LUGE_UNARY2 LUGE_UNARY
#define LUGE_BINARY(name, kinds, save, ...) \
    KERNEL(name) IF_SAVED_##save(KERNEL(name##_backward_a) KERNEL(name##_backward_b))
#define LUGE_COMPARE(name, ...) KERNEL(name)
#include <luge/elementwise.def>
KERNEL(sign)
KERNEL(where)
KERNEL(lerp)
KERNEL(lerp_scalar)
