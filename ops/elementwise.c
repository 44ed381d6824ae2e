/* The elementwise ops. Those of elementwise.def come from their rows: public functions, op definitions,
 * gradients and reference kernels. sign, where and lerp are written out below. */
#include <math.h>
#include "core/iter.h"
#include "core/op.h"
#include "core/thread.h"
#include "ops/attrs.h"
#include "ops/call.h"
#include "ops/check.h"
#include "ops/compose.h"

/* ---- formulas, one element at a time: v[] are the inputs */

#define IF_FLOAT_FLOAT(...) __VA_ARGS__
#define IF_FLOAT_NUMBER(...)
#define IF_FLOAT_ANY(...)
#define IF_WHOLE_FLOAT(...)
#define IF_WHOLE_NUMBER(...) __VA_ARGS__
#define IF_WHOLE_ANY(...) __VA_ARGS__

/* IF_SAVED_x: what only rows with a backward kernel have. SAVED_x: the name of what unary rows save. */
#define IF_SAVED_NONE(...)
#define IF_SAVED_IN(...) __VA_ARGS__
#define IF_SAVED_OUT(...) __VA_ARGS__
#define IF_SAVED_B_A(...) __VA_ARGS__
#define IF_SAVED_B_AB(...) __VA_ARGS__
#define IF_SAVED_AB_AB(...) __VA_ARGS__
#define SAVED_IN x
#define SAVED_OUT y

/* Reals are computed as double. */
#define real double
#define LG_SUFFIX f64
#define LG_LIBM(fn) fn
#include "ops/scalar_ops.h"

typedef double (*real_formula)(const double *v, double p, double q);

#define REAL_1(name, argument, formula)                        \
    static double name##_real(const double *v, double p, double q) \
    {                                                          \
        const double argument = v[0];                          \
        (void)p, (void)q;                                      \
        return (formula);                                      \
    }
#define REAL_2(name, first, second, formula)                   \
    static double name##_real(const double *v, double p, double q) \
    {                                                          \
        const double first = v[0], second = v[1];              \
        (void)p, (void)q, (void)first, (void)second;           \
        return (formula);                                      \
    }
#define REAL_3(name, first, second, third, formula)            \
    static double name##_real(const double *v, double p, double q) \
    {                                                          \
        const double first = v[0], second = v[1], third = v[2]; \
        (void)p, (void)q, (void)first, (void)second, (void)third; \
        return (formula);                                      \
    }

#define LUGE_UNARY(name, kinds, save, cast, forward, backward, ...) \
    REAL_1(name, x, forward)                                        \
    IF_SAVED_##save(REAL_2(name##_backward, g, SAVED_##save, backward))
#define LUGE_UNARY1 LUGE_UNARY
#define LUGE_UNARY2 LUGE_UNARY
#define LUGE_BINARY(name, kinds, save, cast, forward, grad_a, grad_b, ...) \
    REAL_2(name, a, b, forward)                                            \
    IF_SAVED_##save(REAL_3(name##_backward_a, g, a, b, grad_a) REAL_3(name##_backward_b, g, a, b, grad_b))
#define LUGE_COMPARE(name, forward) REAL_2(name, a, b, forward)
#include <luge/elementwise.def>
REAL_1(sign, x, SIGN(x))
REAL_3(where, condition, a, b, condition != 0 ? a : b)
REAL_3(lerp, a, b, w, LERP(a, b, w))
REAL_2(lerp_scalar, a, b, LERP(a, b, p))
#undef LUGE_UNARY
#undef LUGE_UNARY1
#undef LUGE_UNARY2
#undef LUGE_BINARY
#undef LUGE_COMPARE

/* Integers are computed in a type so wide that no formula overflows; storing them wraps around. */
#undef real
#undef LG_SUFFIX
#undef LG_LIBM
#define real __int128
#define LG_SUFFIX wide
#define LG_WHOLE
#include "ops/scalar_ops.h"

typedef __int128 (*whole_formula)(const __int128 *v, __int128 p, __int128 q);

#define WHOLE_1(name, argument, formula)                                   \
    static __int128 name##_whole(const __int128 *v, __int128 p, __int128 q) \
    {                                                                      \
        const __int128 argument = v[0];                                    \
        (void)p, (void)q;                                                  \
        return (formula);                                                  \
    }
#define WHOLE_2(name, first, second, formula)                              \
    static __int128 name##_whole(const __int128 *v, __int128 p, __int128 q) \
    {                                                                      \
        const __int128 first = v[0], second = v[1];                        \
        (void)p, (void)q;                                                  \
        return (formula);                                                  \
    }

#define LUGE_UNARY(name, kinds, save, cast, forward, ...) IF_WHOLE_##kinds(WHOLE_1(name, x, forward))
#define LUGE_UNARY1 LUGE_UNARY
#define LUGE_UNARY2 LUGE_UNARY
#define LUGE_BINARY(name, kinds, save, cast, forward, ...) IF_WHOLE_##kinds(WHOLE_2(name, a, b, forward))
#define LUGE_COMPARE(name, forward) WHOLE_2(name, a, b, forward)
#include <luge/elementwise.def>
WHOLE_1(sign, x, SIGN(x))
static __int128 where_whole(const __int128 *v, __int128 p, __int128 q)
{
    (void)p, (void)q;
    return v[0] != 0 ? v[1] : v[2];
}
#undef LUGE_UNARY
#undef LUGE_UNARY1
#undef LUGE_UNARY2
#undef LUGE_BINARY
#undef LUGE_COMPARE
#undef real
#undef LG_SUFFIX
#undef LG_WHOLE

/* ---- reference kernels */

enum { MAX_INPUTS = 3 };

static lg_number_attrs numbers_of(const lg_call *call)
{
    return call->attrs_size == sizeof(lg_number_attrs) ? *(const lg_number_attrs *)call->attrs : (lg_number_attrs){0};
}

static void *element(const luge_tensor *t, int64_t offset)
{
    return (char *)lg_data(t) + offset * (int64_t)lg_element_size(t);
}

/* One element of the result; at[0] is the output, the inputs follow. */
static void compute(const lg_call *call, real_formula on_reals, whole_formula on_wholes, lg_number_attrs number,
                    void *const at[])
{
    /* The last input has the type that computes: before it may come a condition. */
    if (on_wholes != NULL && !lg_is_float(call->in[call->n_in - 1]->dtype)) {
        __int128 v[MAX_INPUTS];
        for (int k = 0; k < call->n_in; ++k) v[k] = lg_load_i64(at[k + 1], call->in[k]->dtype);
        __int128 result = on_wholes(v, lg_f64_to_i64(number.p, INT64_MIN, INT64_MAX),
                                    lg_f64_to_i64(number.q, INT64_MIN, INT64_MAX));
        lg_store_i64(at[0], call->out[0]->dtype, (int64_t)result);
    } else {
        double v[MAX_INPUTS];
        for (int k = 0; k < call->n_in; ++k) v[k] = lg_load_f64(at[k + 1], call->in[k]->dtype);
        lg_store_f64(at[0], call->out[0]->dtype, on_reals(v, number.p, number.q));
    }
}

static luge_status map_reference(const lg_call *call, real_formula on_reals, whole_formula on_wholes)
{
    luge_tensor *operand[MAX_INPUTS + 1] = {call->out[0]};
    for (int k = 0; k < call->n_in; ++k) operand[k + 1] = call->in[k];

    lg_iter it;
    lg_iter_init(&it, &call->out[0]->shape, call->n_in + 1, operand);
    lg_number_attrs number = numbers_of(call);
    int64_t rows = it.numel == 0 ? 0 : it.numel / it.size[0];
    for (int64_t row = 0; row < rows; ++row) {
        int64_t offset[LG_ITER_MAX];
        lg_iter_row(&it, row, offset);
        for (int64_t i = 0; i < it.size[0]; ++i) {
            void *at[MAX_INPUTS + 1];
            for (int k = 0; k < it.n; ++k) at[k] = element(operand[k], offset[k] + i * it.stride[k][0]);
            compute(call, on_reals, on_wholes, number, at);
        }
    }
    return LUGE_OK;
}

/* ---- what the ops take */

static luge_status infer_any(lg_call *call) { return lg_spec_broadcast(call, 0, call->in[0]->dtype); }

static luge_status infer_number(lg_call *call)
{
    if (call->in[0]->dtype == LUGE_BOOL)
        return lg_op_fail(call, LUGE_ERR_DTYPE, "not for bool: cast it to a number first");
    return infer_any(call);
}

static luge_status infer_compare(lg_call *call) { return lg_spec_broadcast(call, 0, LUGE_BOOL); }

static bool is_whole(double p) { return p == trunc(p) && fabs(p) < 0x1p63; }
/* As the end of a range, infinity is no limit: that goes with integers, too. */
static bool is_whole_limit(double p) { return is_whole(p) || isinf(p); }

/* x as it goes with a number beside it: unchanged if it is a float, or if the number is whole. */
static luge_tensor *fit_number(luge_tensor *x, const char *name, bool whole)
{
    if (!lg_usable(x, name)) return NULL;
    if (lg_is_float(x->dtype)) return x;
    return whole ? luge_cast(x, x->dtype == LUGE_BOOL ? LUGE_I64 : x->dtype) : luge_cast(x, LUGE_F32);
}

/* In place there is no casting, so what does not go together arrives here. */
static luge_status check_number(lg_call *call, bool whole)
{
    if (!whole && !lg_is_float(call->in[0]->dtype))
        return lg_op_fail(call, LUGE_ERR_DTYPE, "%s in place with a number that is not whole: cast the tensor to a float first",
                          luge_dtype_name(call->in[0]->dtype));
    return infer_number(call);
}

static luge_status infer_scalar(lg_call *call) { return check_number(call, is_whole(numbers_of(call).p)); }

static luge_status infer_limits(lg_call *call)
{
    lg_number_attrs limit = numbers_of(call);
    if (isnan(limit.p) || isnan(limit.q)) return lg_op_fail(call, LUGE_ERR_ARGUMENT, "a limit is NaN");
    return check_number(call, is_whole_limit(limit.p) && is_whole_limit(limit.q));
}

static luge_status infer_where(lg_call *call)
{
    if (call->in[0]->dtype != LUGE_BOOL)
        return lg_op_fail(call, LUGE_ERR_DTYPE, "the condition must be bool, not %s", luge_dtype_name(call->in[0]->dtype));
    if (call->in[1]->dtype != call->in[2]->dtype)
        return lg_op_fail(call, LUGE_ERR_DTYPE, "choosing between %s and %s", luge_dtype_name(call->in[1]->dtype),
                          luge_dtype_name(call->in[2]->dtype));
    return lg_spec_broadcast(call, 0, call->in[1]->dtype);
}

/* ---- gradients by the backward kernels; what was not saved is stood in for by g, which has its shape */

static luge_status fused_1(lg_grad_call *c, const lg_op *op, luge_tensor *saved)
{
    luge_tensor *in[] = {c->grad_out[0], saved};
    c->grad_in[0] = lg_call1(op, 2, in, c->attrs, LG_SITE);
    return lg_error();
}

static luge_status fused_2(lg_grad_call *c, const lg_op *op_a, const lg_op *op_b)
{
    luge_tensor *g = c->grad_out[0];
    luge_tensor *in[] = {g, c->in[0] != NULL ? c->in[0] : g, c->in[1] != NULL ? c->in[1] : g};
    if (c->needs[0]) c->grad_in[0] = lg_call1(op_a, 3, in, NULL, LG_SITE);
    if (c->needs[1]) c->grad_in[1] = lg_call1(op_b, 3, in, NULL, LG_SITE);
    return lg_error();
}

/* ---- the rows' ops */

#define FLAGS_FLOAT LG_PROMOTE_FLOAT
#define FLAGS_NUMBER LG_PROMOTE
#define FLAGS_ANY LG_PROMOTE

#define INFER_FLOAT infer_any
#define INFER_NUMBER infer_number
#define INFER_ANY infer_any
#define INFER_1_FLOAT infer_any
#define INFER_1_NUMBER infer_scalar
#define INFER_2_NUMBER infer_limits

#define WHOLES_FLOAT(name) NULL
#define WHOLES_NUMBER(name) name##_whole
#define WHOLES_ANY(name) name##_whole

#define READS_NONE {0}
#define READS_IN {LG_IN(0)}
#define READS_OUT {LG_OUT(0)}
#define READS_B_A {LG_IN(1), LG_IN(0)}
#define READS_B_AB {LG_IN(1), LG_IN(0) | LG_IN(1)}
#define READS_AB_AB {LG_IN(0) | LG_IN(1), LG_IN(0) | LG_IN(1)}

#define FUSED_NONE(name) NULL
#define FUSED_IN(name) name##_fused
#define FUSED_OUT(name) name##_fused
#define FUSED_B_A(name) name##_fused
#define FUSED_B_AB(name) name##_fused
#define FUSED_AB_AB(name) name##_fused

#define REFERENCE(name, on_wholes)                                                                    \
    static luge_status name##_reference(const lg_call *call) { return map_reference(call, name##_real, on_wholes); }

/* A backward kernel as an op: not differentiable itself, the composed form is. */
#define BACKWARD_OP(fullname, inputs, size)                             \
    REFERENCE(fullname, NULL)                                           \
    const lg_op lg_op_##fullname = {.name = #fullname,                  \
                                    .n_in = inputs,                     \
                                    .n_out = 1,                         \
                                    .flags = LG_PROMOTE | LG_NO_GRAD,   \
                                    .attrs_size = size,                 \
                                    .infer = infer_any,                 \
                                    .reference = fullname##_reference};

#define UNARY_OP(row, kinds, save, class, composed, infer_fn, size)                   \
    static luge_status row##_composed(lg_grad_call *c)                                \
    {                                                                                 \
        luge_tensor *g = c->grad_out[0], *x = c->in[0], *y = c->out[0];               \
        double p = size == 0 ? 0 : ((const lg_number_attrs *)c->attrs)->p;            \
        double q = size == 0 ? 0 : ((const lg_number_attrs *)c->attrs)->q;            \
        (void)x, (void)y, (void)p, (void)q;                                           \
        c->grad_in[0] = (composed);                                                   \
        return lg_error();                                                          \
    }                                                                                 \
    IF_SAVED_##save(BACKWARD_OP(row##_backward, 2, size)                              \
    static luge_status row##_fused(lg_grad_call *c)                                   \
    {                                                                                 \
        luge_tensor *x = c->in[0], *y = c->out[0];                                    \
        (void)x, (void)y;                                                             \
        return fused_1(c, &lg_op_##row##_backward, SAVED_##save);                     \
    })                                                                                \
    REFERENCE(row, WHOLES_##kinds(row))                                               \
    const lg_op lg_op_##row = {.name = #row,                                          \
                               .n_in = 1,                                             \
                               .n_out = 1,                                            \
                               .reads = READS_##save,                                 \
                               .cast = LUGE_CAST_##class,                             \
                               .flags = FLAGS_##kinds,                                \
                               .attrs_size = size,                                    \
                               .infer = infer_fn,                                     \
                               .reference = row##_reference,                          \
                               .backward = row##_composed,                            \
                               .backward_fused = FUSED_##save(row)};

#define LUGE_UNARY(row, kinds, save, class, forward, backward, composed, ...)               \
    UNARY_OP(row, kinds, save, class, composed, INFER_##kinds, 0)                           \
    luge_tensor *luge_##row(luge_tensor *x) { return LG_CALL(row, NULL, x); }               \
    luge_tensor *luge_##row##_(luge_tensor *x) { return LG_CALL_IN_PLACE(row, NULL, x); }

#define FIT_1_FLOAT(row, x, p) (x)
#define FIT_1_NUMBER(row, x, p) fit_number(x, #row, is_whole(p))
#define LUGE_UNARY1(row, kinds, save, class, forward, backward, composed, ...)              \
    UNARY_OP(row, kinds, save, class, composed, INFER_1_##kinds, sizeof(lg_number_attrs))   \
    luge_tensor *luge_##row(luge_tensor *x, double p)                                       \
    {                                                                                       \
        lg_number_attrs attrs = {.p = p};                                                   \
        return LG_CALL(row, &attrs, FIT_1_##kinds(row, x, p));                                   \
    }                                                                                       \
    luge_tensor *luge_##row##_(luge_tensor *x, double p)                                    \
    {                                                                                       \
        lg_number_attrs attrs = {.p = p};                                                   \
        return LG_CALL_IN_PLACE(row, &attrs, x);                                            \
    }

#define FIT_2_NUMBER(row, x, p, q) fit_number(x, #row, is_whole_limit(p) && is_whole_limit(q))
#define LUGE_UNARY2(row, kinds, save, class, forward, backward, composed, ...)              \
    UNARY_OP(row, kinds, save, class, composed, INFER_2_##kinds, sizeof(lg_number_attrs))   \
    luge_tensor *luge_##row(luge_tensor *x, double p, double q)                             \
    {                                                                                       \
        lg_number_attrs attrs = {p, q};                                                     \
        return LG_CALL(row, &attrs, FIT_2_##kinds(row, x, p, q));                                \
    }                                                                                       \
    luge_tensor *luge_##row##_(luge_tensor *x, double p, double q)                          \
    {                                                                                       \
        lg_number_attrs attrs = {p, q};                                                     \
        return LG_CALL_IN_PLACE(row, &attrs, x);                                            \
    }

#define LUGE_BINARY(row, kinds, save, class, forward, grad_a, grad_b, composed_a, composed_b, ...)                  \
    static luge_status row##_composed(lg_grad_call *c)                                                              \
    {                                                                                                               \
        luge_tensor *g = c->grad_out[0], *a = c->in[0], *b = c->in[1];                                              \
        (void)a, (void)b;                                                                                           \
        if (c->needs[0]) c->grad_in[0] = (composed_a);                                                              \
        if (c->needs[1]) c->grad_in[1] = (composed_b);                                                              \
        return lg_error();                                                                                        \
    }                                                                                                               \
    IF_SAVED_##save(BACKWARD_OP(row##_backward_a, 3, 0) BACKWARD_OP(row##_backward_b, 3, 0)                         \
    static luge_status row##_fused(lg_grad_call *c)                                                                 \
    {                                                                                                               \
        return fused_2(c, &lg_op_##row##_backward_a, &lg_op_##row##_backward_b);                                    \
    })                                                                                                              \
    REFERENCE(row, WHOLES_##kinds(row))                                                                             \
    const lg_op lg_op_##row = {.name = #row,                                                                        \
                               .n_in = 2,                                                                           \
                               .n_out = 1,                                                                          \
                               .reads = READS_##save,                                                               \
                               .cast = LUGE_CAST_##class,                                                           \
                               .flags = FLAGS_##kinds,                                                              \
                               .infer = INFER_##kinds,                                                              \
                               .reference = row##_reference,                                                        \
                               .backward = row##_composed,                                                          \
                               .backward_fused = FUSED_##save(row)};                                                \
    luge_tensor *luge_##row(luge_tensor *a, luge_tensor *b) { return LG_CALL(row, NULL, a, b); }                    \
    luge_tensor *luge_##row##_(luge_tensor *a, luge_tensor *b) { return LG_CALL_IN_PLACE(row, NULL, a, b); }

#define LUGE_COMPARE(row, forward)                                 \
    REFERENCE(row, row##_whole)                                    \
    const lg_op lg_op_##row = {.name = #row,                       \
                               .n_in = 2,                          \
                               .n_out = 1,                         \
                               .flags = LG_PROMOTE | LG_NO_GRAD,   \
                               .infer = infer_compare,             \
                               .reference = row##_reference};      \
    luge_tensor *luge_##row(luge_tensor *a, luge_tensor *b) { return LG_CALL(row, NULL, a, b); }

#include <luge/elementwise.def>

/* ---- sign, where, lerp */

REFERENCE(sign, sign_whole)
const lg_op lg_op_sign = {
    .name = "sign", .n_in = 1, .n_out = 1, .flags = LG_NO_GRAD, .infer = infer_number, .reference = sign_reference};

static luge_status where_backward(lg_grad_call *c)
{
    luge_tensor *g = c->grad_out[0], *condition = c->in[0];
    luge_tensor *zero = lg_number_like(g, 0);
    if (c->needs[1]) c->grad_in[1] = LG_CALL(where, NULL, condition, g, zero);
    if (c->needs[2]) c->grad_in[2] = LG_CALL(where, NULL, condition, zero, g);
    return lg_error();
}

REFERENCE(where, where_whole)
const lg_op lg_op_where = {.name = "where",
                           .n_in = 3,
                           .n_out = 1,
                           .reads = {0, LG_IN(0), LG_IN(0)},
                           .infer = infer_where,
                           .reference = where_reference,
                           .backward = where_backward};

luge_tensor *luge_where(luge_tensor *condition, luge_tensor *a, luge_tensor *b)
{
    if (!lg_usable(a, "where: a") || !lg_usable(b, "where: b")) return NULL;
    luge_dtype dtype = lg_result_type(2, (luge_tensor *[]){a, b});
    return LG_CALL(where, NULL, condition, luge_cast(a, dtype), luge_cast(b, dtype));
}

static luge_status lerp_backward(lg_grad_call *c)
{
    luge_tensor *g = c->grad_out[0], *a = c->in[0], *b = c->in[1], *weight = c->in[2];
    if (c->needs[0]) c->grad_in[0] = luge_sub(g, luge_mul(g, weight));
    if (c->needs[1]) c->grad_in[1] = luge_mul(g, weight);
    if (c->needs[2]) c->grad_in[2] = luge_mul(g, luge_sub(b, a));
    return lg_error();
}

REFERENCE(lerp, NULL)
const lg_op lg_op_lerp = {.name = "lerp",
                          .n_in = 3,
                          .n_out = 1,
                          .reads = {LG_IN(2), LG_IN(2), LG_IN(0) | LG_IN(1)},
                          .flags = LG_PROMOTE_FLOAT,
                          .infer = infer_any,
                          .reference = lerp_reference,
                          .backward = lerp_backward};

luge_tensor *luge_lerp(luge_tensor *a, luge_tensor *b, luge_tensor *weight) { return LG_CALL(lerp, NULL, a, b, weight); }

static luge_status lerp_scalar_backward(lg_grad_call *c)
{
    luge_tensor *g = c->grad_out[0];
    double weight = ((const lg_number_attrs *)c->attrs)->p;
    if (c->needs[0]) c->grad_in[0] = luge_mul_scalar(g, 1 - weight);
    if (c->needs[1]) c->grad_in[1] = luge_mul_scalar(g, weight);
    return lg_error();
}

REFERENCE(lerp_scalar, NULL)
const lg_op lg_op_lerp_scalar = {.name = "lerp",
                                 .n_in = 2,
                                 .n_out = 1,
                                 .flags = LG_PROMOTE_FLOAT,
                                 .attrs_size = sizeof(lg_number_attrs),
                                 .infer = infer_any,
                                 .reference = lerp_scalar_reference,
                                 .backward = lerp_scalar_backward};

luge_tensor *luge_lerp_(luge_tensor *a, luge_tensor *b, double weight)
{
    lg_number_attrs attrs = {.p = weight};
    return LG_CALL_IN_PLACE(lerp_scalar, &attrs, a, b);
}

/* ---- functions made of ops, for composed gradients */

luge_tensor *lg_number_like(const luge_tensor *t, double value)
{
    if (t == NULL) return NULL;
    luge_tensor_options options = {.dtype = t->dtype, .device = t->storage->device->id};
    return luge_full(LUGE_SCALAR, value, &options);
}

static luge_tensor *cast_like(luge_tensor *x, const luge_tensor *like)
{
    return like == NULL ? NULL : luge_cast(x, like->dtype);
}

luge_tensor *lg_sign(luge_tensor *x) { return LG_CALL(sign, NULL, x); }

luge_tensor *lg_positive(luge_tensor *x) { return cast_like(luge_gt(x, lg_number_like(x, 0)), x); }

luge_tensor *lg_within(luge_tensor *x, double p, double q)
{
    return cast_like(luge_mul(luge_ge(x, lg_number_like(x, p)), luge_le(x, lg_number_like(x, q))), x);
}

luge_tensor *lg_share(luge_tensor *a, luge_tensor *b)
{
    return luge_add(cast_like(luge_gt(a, b), a), luge_mul_scalar(cast_like(luge_eq(a, b), a), 0.5));
}

/* scale e^(-x^2 * rate) */
static luge_tensor *bell(luge_tensor *x, double rate, double scale)
{
    return luge_mul_scalar(luge_exp(luge_mul_scalar(luge_square(x), -rate)), scale);
}

luge_tensor *lg_erf_slope(luge_tensor *x) { return bell(x, 1, 1.12837916709551257390); }

/* Phi(x) + x phi(x) */
luge_tensor *lg_gelu_slope(luge_tensor *x)
{
    luge_tensor *cdf = luge_mul_scalar(luge_add_scalar(luge_erf(luge_mul_scalar(x, 0.70710678118654752440)), 1), 0.5);
    return luge_add(cdf, luge_mul(x, bell(x, 0.5, 0.39894228040143267794)));
}

/* s + x s (1 - s) */
luge_tensor *lg_silu_slope(luge_tensor *x)
{
    luge_tensor *s = luge_sigmoid(x);
    return luge_add(s, luge_mul(luge_mul(x, s), luge_add_scalar(luge_neg(s), 1)));
}

luge_tensor *lg_pow_slope(luge_tensor *x, double p)
{
    return p == 0 ? lg_number_like(x, 0) : luge_mul_scalar(luge_pow_scalar(x, p - 1), p);
}

/* g b a^(b-1), 0 where b is 0 */
luge_tensor *lg_pow_grad_a(luge_tensor *g, luge_tensor *a, luge_tensor *b)
{
    luge_tensor *zero = lg_number_like(g, 0);
    return luge_where(luge_eq(b, zero), zero, luge_mul(g, luge_mul(b, luge_pow(a, luge_add_scalar(b, -1)))));
}

/* g a^b log a, 0 where a is 0 and b is not negative */
luge_tensor *lg_pow_grad_b(luge_tensor *g, luge_tensor *a, luge_tensor *b)
{
    luge_tensor *zero = lg_number_like(g, 0);
    luge_tensor *at_edge = luge_mul(luge_eq(a, zero), luge_ge(b, zero));
    return luge_where(at_edge, zero, luge_mul(g, luge_mul(luge_pow(a, b), luge_log(a))));
}
