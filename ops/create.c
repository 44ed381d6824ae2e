/* Tensors made from nothing: constants, ranges, random numbers. Each is an empty tensor that an op
 * then fills in place. */
#include <inttypes.h>
#include <math.h>
#include "core/op.h"
#include "core/thread.h"
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/compose.h"
#include "ops/reference.h"

/* ---- the ops */

static luge_status infer_same(lg_call *call)
{
    lg_spec_like(call, 0, call->in[0]->dtype, call->in[0]);
    return LUGE_OK;
}

static luge_status infer_float(lg_call *call)
{
    if (!lg_is_float(call->in[0]->dtype))
        return lg_op_fail(call, LUGE_ERR_DTYPE, "a float dtype is needed, not %s", luge_dtype_name(call->in[0]->dtype));
    return infer_same(call);
}

static luge_status infer_integers(lg_call *call)
{
    if (call->in[0]->dtype != LUGE_I64)
        return lg_op_fail(call, LUGE_ERR_DTYPE, "i64 is needed, not %s", luge_dtype_name(call->in[0]->dtype));
    return infer_same(call);
}

static luge_status arange_reference(const lg_call *call)
{
    const lg_range_attrs *range = call->attrs;
    luge_tensor *t = call->out[0];
    for (int64_t i = 0; i < t->numel; ++i) lg_set(t, i, range->start + (double)i * range->step);
    return LUGE_OK;
}

/* Integer number i of a stream. */
static uint32_t draw(const lg_rng_range *rng, int64_t i)
{
    return lg_philox_block(rng->seed, rng->stream, rng->first + (uint64_t)i / 4).v[i % 4];
}

static uint64_t draw_64(const lg_rng_range *rng, int64_t i)
{
    return (uint64_t)draw(rng, 2 * i) << 32 | draw(rng, 2 * i + 1);
}

/* Number i in [0, 1): of one integer, or two for f64. Halves take only the bits they can hold, so that
 * rounding does not make a 1 of them. */
static double uniform_at(const lg_rng_range *rng, int64_t i, luge_dtype dtype)
{
    switch (dtype) {
    case LUGE_F64: return lg_uniform_f64(draw(rng, 2 * i), draw(rng, 2 * i + 1));
    case LUGE_F16: return (double)(draw(rng, i) >> 21) * 0x1p-11;
    case LUGE_BF16: return (double)(draw(rng, i) >> 24) * 0x1p-8;
    default: return lg_uniform_f32(draw(rng, i));
    }
}

static luge_status uniform_reference(const lg_call *call)
{
    const lg_random_attrs *r = call->attrs;
    luge_tensor *t = call->out[0];
    for (int64_t i = 0; i < t->numel; ++i) {
        double value = r->a + uniform_at(&r->rng, i, t->dtype) * (r->b - r->a);
        lg_set(t, i, value < r->b ? value : r->a);
    }
    return LUGE_OK;
}

/* Box and Muller: numbers 2j and 2j + 1 are made of two uniform ones. 1 - u is never 0. */
static luge_status normal_reference(const lg_call *call)
{
    const lg_random_attrs *r = call->attrs;
    luge_tensor *t = call->out[0];
    luge_dtype dtype = t->dtype == LUGE_F64 ? LUGE_F64 : LUGE_F32;
    for (int64_t i = 0; i < t->numel; ++i) {
        int64_t pair = i - i % 2;
        double radius = sqrt(-2 * log(1 - uniform_at(&r->rng, pair, dtype)));
        double angle = 6.28318530717958647692 * uniform_at(&r->rng, pair + 1, dtype);
        lg_set(t, i, r->a + r->b * radius * (i % 2 == 0 ? cos(angle) : sin(angle)));
    }
    return LUGE_OK;
}

/* floor(bits * range / 2^64): every value has the same share but for one part in 2^64 / range. */
static int64_t below(uint64_t bits, uint64_t range)
{
    return (int64_t)((unsigned __int128)bits * range >> 64);
}

static luge_status randint_reference(const lg_call *call)
{
    const lg_randint_attrs *r = call->attrs;
    luge_tensor *t = call->out[0];
    uint64_t range = (uint64_t)r->high - (uint64_t)r->low;
    for (int64_t i = 0; i < t->numel; ++i) {
        int64_t value = (int64_t)((uint64_t)r->low + (uint64_t)below(draw_64(&r->rng, i), range));
        lg_store_i64((int64_t *)lg_data(t) + lg_offset(t, i), LUGE_I64, value);
    }
    return LUGE_OK;
}

/* Fisher and Yates: draw number i chooses what comes to place i. */
static luge_status randperm_reference(const lg_call *call)
{
    const lg_randint_attrs *r = call->attrs;
    luge_tensor *t = call->out[0];
    int64_t *at = lg_data(t), step = t->stride[0];
    for (int64_t i = 0; i < t->numel; ++i) at[i * step] = i;
    for (int64_t i = t->numel - 1; i > 0; --i) {
        int64_t j = below(draw_64(&r->rng, i), (uint64_t)i + 1), moved = at[i * step];
        at[i * step] = at[j * step];
        at[j * step] = moved;
    }
    return LUGE_OK;
}

#define FILLER(row, infer_fn, attrs_type)          \
    const lg_op lg_op_##row = {.name = #row,       \
                               .n_in = 1,          \
                               .n_out = 1,         \
                               .flags = LG_NO_GRAD, \
                               .attrs_size = sizeof(attrs_type), \
                               .infer = infer_fn,  \
                               .reference = row##_reference};
FILLER(arange, infer_same, lg_range_attrs)
FILLER(uniform, infer_float, lg_random_attrs)
FILLER(normal, infer_float, lg_random_attrs)
FILLER(randint, infer_integers, lg_randint_attrs)
FILLER(randperm, infer_integers, lg_randint_attrs)

/* ---- public functions */

/* The empty tensor to fill. It wants a gradient only once it is filled. */
static luge_tensor *start(const char *name, luge_shape shape, const luge_tensor_options *options)
{
    luge_tensor_options plain = options == NULL ? (luge_tensor_options){0} : *options;
    plain.requires_grad = false;
    return lg_empty(name, shape, &plain);
}

static luge_tensor *finish(luge_tensor *t, const luge_tensor_options *options)
{
    return options != NULL && options->requires_grad ? luge_requires_grad_(t) : t;
}

static luge_tensor *constant(const char *name, luge_shape shape, double value, const luge_tensor_options *options)
{
    return finish(luge_fill_(start(name, shape, options), value), options);
}

luge_tensor *luge_full(luge_shape shape, double value, const luge_tensor_options *options)
{
    return constant("full", shape, value, options);
}

luge_tensor *luge_zeros(luge_shape shape, const luge_tensor_options *options)
{
    return constant("zeros", shape, 0, options);
}

luge_tensor *luge_ones(luge_shape shape, const luge_tensor_options *options)
{
    return constant("ones", shape, 1, options);
}

luge_tensor *luge_zeros_like(const luge_tensor *t)
{
    return lg_usable(t, "zeros_like") ? luge_fill_(luge_empty_like(t), 0) : NULL;
}

luge_tensor *luge_ones_like(const luge_tensor *t)
{
    return lg_usable(t, "ones_like") ? luge_fill_(luge_empty_like(t), 1) : NULL;
}

luge_tensor *luge_arange(double start_at, double end, double step, const luge_tensor_options *options)
{
    if (!lg_ok()) return NULL;
    double count = ceil((end - start_at) / step);
    if (!isfinite(start_at) || !isfinite(end) || !isfinite(step) || step == 0 || count < 0) {
        lg_fail(LUGE_ERR_ARGUMENT, "arange: from %g one does not come to %g in steps of %g", start_at, end, step);
        return NULL;
    }
    if (!(count < 0x1p60)) {
        lg_fail(LUGE_ERR_SHAPE, "arange: %g elements are too many", count);
        return NULL;
    }
    lg_range_attrs attrs = {start_at, step};
    return finish(LG_CALL_IN_PLACE(arange, &attrs, start("arange", LUGE_SHAPE((int64_t)count), options)), options);
}

/* How many 32-bit integers `numel` random floats take. */
static int64_t integers_for(const luge_tensor *t) { return t->dtype == LUGE_F64 ? 2 * t->numel : t->numel; }

static luge_tensor *random_in_place(luge_tensor *t, double a, double b, bool normal)
{
    const char *name = normal ? "normal" : "uniform";
    if (!lg_usable(t, name)) return NULL;
    if (!lg_is_float(t->dtype)) { /* before numbers are taken */
        lg_fail(LUGE_ERR_DTYPE, "%s: a float dtype is needed, not %s", name, luge_dtype_name(t->dtype));
        return NULL;
    }
    lg_random_attrs attrs = {a, b, lg_rng_take(integers_for(t))};
    return normal ? LG_CALL_IN_PLACE(normal, &attrs, t) : LG_CALL_IN_PLACE(uniform, &attrs, t);
}

luge_tensor *lg_uniform_(luge_tensor *t, double low, double high) { return random_in_place(t, low, high, false); }
luge_tensor *lg_normal_(luge_tensor *t, double mean, double deviation)
{
    return random_in_place(t, mean, deviation, true);
}

luge_tensor *luge_rand(luge_shape shape, const luge_tensor_options *options)
{
    luge_tensor *t = start("rand", shape, options);
    return t == NULL ? NULL : finish(lg_uniform_(t, 0, 1), options);
}

luge_tensor *luge_randn(luge_shape shape, const luge_tensor_options *options)
{
    luge_tensor *t = start("randn", shape, options);
    return t == NULL ? NULL : finish(lg_normal_(t, 0, 1), options);
}

luge_tensor *luge_randint(int64_t low, int64_t high, luge_shape shape)
{
    if (!lg_ok()) return NULL;
    if (low >= high) {
        lg_fail(LUGE_ERR_ARGUMENT, "randint: no integer lies in [%" PRId64 ", %" PRId64 ")", low, high);
        return NULL;
    }
    luge_tensor *t = start("randint", shape, &(luge_tensor_options){.dtype = LUGE_I64});
    if (t == NULL) return NULL;
    lg_randint_attrs attrs = {low, high, lg_rng_take(2 * t->numel)};
    return LG_CALL_IN_PLACE(randint, &attrs, t);
}

luge_tensor *luge_randperm(int64_t n)
{
    luge_tensor *t = start("randperm", LUGE_SHAPE(n), &(luge_tensor_options){.dtype = LUGE_I64});
    if (t == NULL) return NULL;
    lg_randint_attrs attrs = {0, n, lg_rng_take(2 * n)};
    return LG_CALL_IN_PLACE(randperm, &attrs, t);
}
