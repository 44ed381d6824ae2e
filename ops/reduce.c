/* Reductions over any set of axes: sum, mean, max, min, var, norm, argmax. Results are row-major. */
#include <math.h>
#include "core/op.h"
#include "core/thread.h"
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/compose.h"
#include "ops/reference.h"

/* ---- shapes and dtypes */

static const lg_reduce_attrs *attrs_of(const lg_call *call) { return call->attrs; }

/* How many elements come together in each result. */
static int64_t reduced_count(const luge_shape *s, uint32_t mask)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; ++i)
        if (mask >> i & 1u) n *= s->dim[i];
    return n;
}

static luge_status infer_as(lg_call *call, luge_dtype dtype)
{
    const lg_reduce_attrs *a = attrs_of(call);
    luge_shape shape = lg_reduced_shape(&call->in[0]->shape, a->mask, a->keepdim);
    lg_spec_contiguous(call, 0, dtype, &shape);
    return LUGE_OK;
}

static luge_status infer_sum(lg_call *call)
{
    luge_dtype dtype = call->in[0]->dtype;
    return infer_as(call, lg_is_float(dtype) ? dtype : LUGE_I64);
}

static luge_status infer_mean(lg_call *call)
{
    luge_status status = lg_need_float(call, 0, "the input");
    return status != LUGE_OK ? status : infer_as(call, call->in[0]->dtype);
}

static luge_status need_elements(const lg_call *call)
{
    const luge_shape *s = &call->in[0]->shape;
    if (reduced_count(s, attrs_of(call)->mask) > 0) return LUGE_OK;
    char text[LG_SHAPE_TEXT];
    return lg_op_fail(call, LUGE_ERR_SHAPE, "there are no elements to choose from in %s", lg_shape_text(text, s));
}

static luge_status infer_extreme(lg_call *call)
{
    luge_status status = need_elements(call);
    return status != LUGE_OK ? status : infer_as(call, call->in[0]->dtype);
}

static luge_status infer_argmax(lg_call *call)
{
    luge_status status = need_elements(call);
    return status != LUGE_OK ? status : infer_as(call, LUGE_I64);
}

static luge_status infer_var(lg_call *call)
{
    luge_status status = infer_mean(call);
    if (status != LUGE_OK) return status;
    luge_shape kept = lg_reduced_shape(&call->in[0]->shape, attrs_of(call)->mask, true);
    lg_spec_contiguous(call, 1, lg_accumulate_type(call->in[0]->dtype), &kept);
    return LUGE_OK;
}

static luge_status infer_norm(lg_call *call)
{
    double p = attrs_of(call)->number;
    if (!(p > 0)) return lg_op_fail(call, LUGE_ERR_ARGUMENT, "p must be greater than 0, not %g", p);
    return infer_mean(call);
}

/* ---- reference kernels */

/* The elements of one result: axes that go, walked in row-major order. */
typedef struct group {
    const luge_tensor *t;
    int rank;
    int64_t size[LUGE_MAX_RANK], stride[LUGE_MAX_RANK];
    int64_t count;
    int64_t base;
} group;

static int64_t walk(int rank, const int64_t *size, const int64_t *stride, int64_t i)
{
    int64_t offset = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
        offset += i % size[axis] * stride[axis];
        i /= size[axis];
    }
    return offset;
}

/* The group of result number `result`. */
static group group_at(const lg_call *call, int64_t result)
{
    group g = {.t = call->in[0], .count = 1};
    uint32_t mask = attrs_of(call)->mask;
    int kept = 0;
    int64_t kept_size[LUGE_MAX_RANK], kept_stride[LUGE_MAX_RANK];
    for (int i = 0; i < g.t->shape.rank; ++i) {
        if (mask >> i & 1u) {
            g.size[g.rank] = g.t->shape.dim[i];
            g.stride[g.rank++] = g.t->stride[i];
            g.count *= g.t->shape.dim[i];
        } else {
            kept_size[kept] = g.t->shape.dim[i];
            kept_stride[kept++] = g.t->stride[i];
        }
    }
    g.base = walk(kept, kept_size, kept_stride, result);
    return g;
}

static double real_at(const group *g, int64_t i)
{
    return lg_get(g->t, g->base + walk(g->rank, g->size, g->stride, i));
}

static int64_t whole_at(const group *g, int64_t i)
{
    return lg_get_index(g->t, g->base + walk(g->rank, g->size, g->stride, i));
}

static double sum_of(const group *g)
{
    double sum = 0;
    for (int64_t i = 0; i < g->count; ++i) sum += real_at(g, i);
    return sum;
}

static luge_status sum_reference(const lg_call *call)
{
    luge_tensor *y = call->out[0];
    for (int64_t r = 0; r < y->numel; ++r) {
        group g = group_at(call, r);
        if (lg_is_float(y->dtype)) {
            lg_put(y, r, sum_of(&g));
        } else {
            uint64_t sum = 0; /* wraps around */
            for (int64_t i = 0; i < g.count; ++i) sum += (uint64_t)whole_at(&g, i);
            ((int64_t *)lg_data(y))[r] = (int64_t)sum;
        }
    }
    return LUGE_OK;
}

static luge_status mean_reference(const lg_call *call)
{
    for (int64_t r = 0; r < call->out[0]->numel; ++r) {
        group g = group_at(call, r);
        lg_put(call->out[0], r, sum_of(&g) / (double)g.count);
    }
    return LUGE_OK;
}

/* Place of the first largest element (smallest if sign is -1), or of the first NaN. */
static int64_t extreme_of(const group *g, int sign)
{
    int64_t best = 0;
    for (int64_t i = 0; i < g->count; ++i) {
        if (lg_is_float(g->t->dtype)) {
            double x = real_at(g, i), top = real_at(g, best);
            if (isnan(x)) return i;
            if (x * sign > top * sign) best = i;
        } else {
            int64_t x = whole_at(g, i), top = whole_at(g, best);
            if (sign > 0 ? x > top : x < top) best = i;
        }
    }
    return best;
}

static luge_status extreme_reference(const lg_call *call, int sign)
{
    luge_tensor *y = call->out[0];
    size_t size = lg_element_size(y);
    for (int64_t r = 0; r < y->numel; ++r) {
        group g = group_at(call, r);
        int64_t from = g.base + walk(g.rank, g.size, g.stride, extreme_of(&g, sign));
        memcpy((char *)lg_data(y) + (size_t)r * size, (const char *)lg_data(g.t) + (size_t)from * size, size);
    }
    return LUGE_OK;
}

static luge_status max_reference(const lg_call *call) { return extreme_reference(call, 1); }
static luge_status min_reference(const lg_call *call) { return extreme_reference(call, -1); }

static luge_status argmax_reference(const lg_call *call)
{
    for (int64_t r = 0; r < call->out[0]->numel; ++r) {
        group g = group_at(call, r);
        ((int64_t *)lg_data(call->out[0]))[r] = extreme_of(&g, 1);
    }
    return LUGE_OK;
}

static luge_status var_reference(const lg_call *call)
{
    for (int64_t r = 0; r < call->out[0]->numel; ++r) {
        group g = group_at(call, r);
        double mean = sum_of(&g) / (double)g.count, squares = 0;
        for (int64_t i = 0; i < g.count; ++i) squares += (real_at(&g, i) - mean) * (real_at(&g, i) - mean);
        double left = (double)g.count - attrs_of(call)->number;
        lg_put(call->out[0], r, left > 0 ? squares / left : NAN);
        lg_put(call->out[1], r, mean);
    }
    return LUGE_OK;
}

/* Scaled by the largest magnitude, so that no power overflows. */
static luge_status norm_reference(const lg_call *call)
{
    double p = attrs_of(call)->number;
    for (int64_t r = 0; r < call->out[0]->numel; ++r) {
        group g = group_at(call, r);
        double top = 0, sum = 0;
        for (int64_t i = 0; i < g.count; ++i) {
            double x = fabs(real_at(&g, i));
            if (isnan(x) || x > top) top = x;
            if (isnan(x)) break;
        }
        if (!isinf(p) && top > 0 && !isinf(top)) {
            for (int64_t i = 0; i < g.count; ++i) sum += pow(fabs(real_at(&g, i)) / top, p);
            top *= pow(sum, 1 / p);
        }
        lg_put(call->out[0], r, top);
    }
    return LUGE_OK;
}

/* ---- gradients */

/* A result again with the axes that went, of size 1: so that it broadcasts over the input. */
static luge_tensor *with_axes(luge_tensor *y, const lg_grad_call *c)
{
    return luge_reshape(y, lg_reduced_shape(&c->in_shape[0], ((const lg_reduce_attrs *)c->attrs)->mask, true));
}

static luge_tensor *sum_like(luge_tensor *x, const lg_grad_call *c)
{
    lg_reduce_attrs attrs = {.mask = ((const lg_reduce_attrs *)c->attrs)->mask, .keepdim = true};
    return LG_CALL(sum, &attrs, x);
}

static luge_status sum_backward(lg_grad_call *c)
{
    c->grad_in[0] = luge_expand(with_axes(c->grad_out[0], c), c->in_shape[0]);
    return lg_error();
}

static luge_status mean_backward(lg_grad_call *c)
{
    int64_t n = reduced_count(&c->in_shape[0], ((const lg_reduce_attrs *)c->attrs)->mask);
    luge_tensor *g = luge_mul_scalar(c->grad_out[0], 1 / (double)n);
    c->grad_in[0] = luge_expand(with_axes(g, c), c->in_shape[0]);
    return lg_error();
}

/* g shared equally between the elements where x equals y. Their number may be past what f16 can count. */
static luge_tensor *share_out(luge_tensor *g, luge_tensor *x, luge_tensor *y, const lg_grad_call *c)
{
    if (x == NULL) return NULL;
    luge_tensor *chosen = luge_cast(luge_eq(x, with_axes(y, c)), lg_accumulate_type(x->dtype));
    return luge_mul(chosen, luge_div(with_axes(g, c), sum_like(chosen, c)));
}

static luge_status extreme_backward(lg_grad_call *c)
{
    c->grad_in[0] = share_out(c->grad_out[0], c->in[0], c->out[0], c);
    return lg_error();
}

static luge_status var_gradient(lg_grad_call *c, luge_tensor *mean)
{
    const lg_reduce_attrs *a = c->attrs;
    double left = (double)reduced_count(&c->in_shape[0], a->mask) - a->number;
    luge_tensor *g = luge_mul_scalar(c->grad_out[0], 2 / left);
    c->grad_in[0] = luge_mul(luge_sub(c->in[0], mean), with_axes(g, c));
    return lg_error();
}

/* The mean that was kept is a constant; where gradients are to be differentiated it is made again. */
static luge_status var_backward(lg_grad_call *c)
{
    lg_reduce_attrs attrs = {.mask = ((const lg_reduce_attrs *)c->attrs)->mask, .keepdim = true};
    return var_gradient(c, LG_CALL(mean, &attrs, c->in[0]));
}

static luge_status var_fused(lg_grad_call *c) { return var_gradient(c, c->out[1]); }

/* a where the tensor `at` is not 0, else 0. */
static luge_tensor *zero_where_zero(luge_tensor *at, luge_tensor *a)
{
    return luge_where(luge_eq(at, lg_number_like(at, 0)), lg_number_like(a, 0), a);
}

/* g sign(x) |x|^(p-1) / y^(p-1), and 0 where the norm or (for p < 1) the element is 0. */
static luge_status norm_backward(lg_grad_call *c)
{
    double p = ((const lg_reduce_attrs *)c->attrs)->number;
    luge_tensor *g = c->grad_out[0], *x = c->in[0], *y = c->out[0];
    if (isinf(p)) {
        c->grad_in[0] = luge_mul(lg_sign(x), share_out(g, luge_abs(x), y, c));
    } else if (p == 1) {
        c->grad_in[0] = luge_mul(lg_sign(x), with_axes(g, c));
    } else if (p == 2) {
        c->grad_in[0] = luge_mul(x, with_axes(zero_where_zero(y, luge_div(g, y)), c));
    } else {
        luge_tensor *ratio = luge_div(luge_abs(x), with_axes(y, c));
        luge_tensor *slope = luge_mul(lg_sign(x), luge_pow_scalar(ratio, p - 1));
        c->grad_in[0] = luge_mul(zero_where_zero(x, slope), with_axes(g, c));
    }
    return lg_error();
}

/* ---- the ops */

const lg_op lg_op_sum = {.name = "sum",
                         .n_in = 1,
                         .n_out = 1,
                         .cast = LUGE_CAST_F32,
                         .attrs_size = sizeof(lg_reduce_attrs),
                         .infer = infer_sum,
                         .reference = sum_reference,
                         .backward = sum_backward};

const lg_op lg_op_mean = {.name = "mean",
                          .n_in = 1,
                          .n_out = 1,
                          .attrs_size = sizeof(lg_reduce_attrs),
                          .infer = infer_mean,
                          .reference = mean_reference,
                          .backward = mean_backward};

#define EXTREME(row)                                                     \
    const lg_op lg_op_##row = {.name = #row,                             \
                               .n_in = 1,                                \
                               .n_out = 1,                               \
                               .reads = {LG_IN(0) | LG_OUT(0)},          \
                               .attrs_size = sizeof(lg_reduce_attrs),    \
                               .infer = infer_extreme,                   \
                               .reference = row##_reference,             \
                               .backward = extreme_backward};
EXTREME(max)
EXTREME(min)

const lg_op lg_op_var = {.name = "var",
                         .n_in = 1,
                         .n_out = 2,
                         .reads = {LG_IN(0) | LG_OUT(1)},
                         .attrs_size = sizeof(lg_reduce_attrs),
                         .infer = infer_var,
                         .reference = var_reference,
                         .backward = var_backward,
                         .backward_fused = var_fused};

const lg_op lg_op_norm = {.name = "norm",
                          .n_in = 1,
                          .n_out = 1,
                          .reads = {LG_IN(0) | LG_OUT(0)},
                          .cast = LUGE_CAST_F32,
                          .attrs_size = sizeof(lg_reduce_attrs),
                          .infer = infer_norm,
                          .reference = norm_reference,
                          .backward = norm_backward};

const lg_op lg_op_argmax = {.name = "argmax",
                            .n_in = 1,
                            .n_out = 1,
                            .flags = LG_NO_GRAD,
                            .attrs_size = sizeof(lg_reduce_attrs),
                            .infer = infer_argmax,
                            .reference = argmax_reference};

/* ---- public functions */

/* Says which axis is wrong. */
static void fail_axes(const lg_op *op, const luge_shape *shape, const luge_axes *axes)
{
    char text[LG_SHAPE_TEXT];
    lg_shape_text(text, shape);
    if (axes->count < 0 || axes->count > LUGE_MAX_RANK) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: %d axes were named; the input is %s", op->name, axes->count, text);
        return;
    }
    for (int i = 0; i < axes->count; ++i)
        if (lg_axis(shape->rank, axes->axis[i]) < 0) {
            lg_fail(LUGE_ERR_ARGUMENT, "%s: there is no axis %d; the input is %s", op->name, axes->axis[i], text);
            return;
        }
    lg_fail(LUGE_ERR_ARGUMENT, "%s: an axis is named twice; the input is %s", op->name, text);
}

static luge_tensor *reduce(const lg_op *op, luge_tensor *a, luge_axes axes, double number, const void *site)
{
    if (!lg_usable(a, op->name)) return NULL;
    lg_reduce_attrs attrs = {.keepdim = axes.keepdim != 0, .number = number};
    if (!lg_axes_mask(a->shape.rank, &axes, &attrs.mask)) {
        fail_axes(op, &a->shape, &axes);
        return NULL;
    }
    return lg_call1(op, 1, &a, &attrs, site);
}

luge_tensor *luge_sum(luge_tensor *a, luge_axes axes) { return reduce(&lg_op_sum, a, axes, 0, LG_SITE); }
luge_tensor *luge_mean(luge_tensor *a, luge_axes axes) { return reduce(&lg_op_mean, a, axes, 0, LG_SITE); }
luge_tensor *luge_max(luge_tensor *a, luge_axes axes) { return reduce(&lg_op_max, a, axes, 0, LG_SITE); }
luge_tensor *luge_min(luge_tensor *a, luge_axes axes) { return reduce(&lg_op_min, a, axes, 0, LG_SITE); }
luge_tensor *luge_var(luge_tensor *a, luge_axes axes, int64_t correction)
{
    return reduce(&lg_op_var, a, axes, (double)correction, LG_SITE);
}
luge_tensor *luge_norm(luge_tensor *a, double p, luge_axes axes) { return reduce(&lg_op_norm, a, axes, p, LG_SITE); }
luge_tensor *luge_argmax(luge_tensor *a, int axis) { return reduce(&lg_op_argmax, a, LUGE_AXES(axis), 0, LG_SITE); }
