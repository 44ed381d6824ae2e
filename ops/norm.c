/* Batch and layer normalisation: y = (x - mean) invstd weight + bias over groups of elements that share
 * a mean. Statistics are taken in two passes, so that a large mean does not swallow a small spread. */
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/reference.h"
#include <luge/ops.h>
#include <math.h>

/* ---- reference. Both norms see x as [outer, groups, inner], and a group is [outer, inner]. */

typedef struct view {
    int64_t groups, count; /* count: elements of a group */
    int64_t inner;
    bool by_channel; /* parameter i belongs to group i; else to element i of every group */
} view;

static view channels_of(const luge_shape *s) /* [N, C, ...]: a group is a channel */
{
    view v = {.groups = s->dim[1], .inner = 1, .by_channel = true};
    for (int i = 2; i < s->rank; ++i) v.inner *= s->dim[i];
    v.count = s->dim[0] * v.inner;
    return v;
}

static view rows_of(const luge_shape *s, int axes) /* a group is the last `axes` axes */
{
    view v = {.groups = 1, .inner = 1};
    for (int i = 0; i < s->rank; ++i) {
        if (i < s->rank - axes)
            v.groups *= s->dim[i];
        else
            v.inner *= s->dim[i];
    }
    v.count = v.inner;
    return v;
}

/* Row-major place of element j of a group. */
static int64_t place(const view *v, int64_t group, int64_t j)
{
    return (j / v->inner * v->groups + group) * v->inner + j % v->inner;
}
/* The parameter of that element. */
static double number(const luge_tensor *t, const view *v, int64_t group, int64_t j, double absent)
{
    return t == NULL ? absent : lg_at(t, v->by_channel ? group : j);
}

static void statistics(const luge_tensor *x, const view *v, int64_t group, double *mean, double *variance)
{
    double sum = 0, squares = 0, n = (double)v->count;
    for (int64_t j = 0; j < v->count; ++j) sum += lg_at(x, place(v, group, j));
    *mean = sum / n;
    for (int64_t j = 0; j < v->count; ++j) {
        double d = lg_at(x, place(v, group, j)) - *mean;
        squares += d * d;
    }
    *variance = squares / n;
}

static void normalise(const lg_call *call, const view *v, int64_t group, double mean, double invstd,
                      const luge_tensor *weight, const luge_tensor *bias)
{
    for (int64_t j = 0; j < v->count; ++j) {
        int64_t p = place(v, group, j);
        double unit = (lg_at(call->in[0], p) - mean) * invstd;
        lg_set(call->out[0], p, unit * number(weight, v, group, j, 1) + number(bias, v, group, j, 0));
    }
    lg_set(call->out[1], group, mean);
    lg_set(call->out[2], group, invstd);
}

/* (g, x, [weight], mean, invstd) -> gx of one group. `constant`: mean and invstd did not come from x. */
static void group_gradient(const lg_call *call, const view *v, int64_t group, bool constant)
{
    const luge_tensor *g = call->in[0], *x = call->in[1], *weight = call->in[2];
    double mean = lg_at(call->in[3], group), invstd = lg_at(call->in[4], group), sum = 0, dot = 0;
    for (int64_t j = 0; j < v->count && !constant; ++j) {
        int64_t p = place(v, group, j);
        double gw = lg_at(g, p) * number(weight, v, group, j, 1);
        sum += gw;
        dot += gw * (lg_at(x, p) - mean) * invstd;
    }
    for (int64_t j = 0; j < v->count; ++j) {
        int64_t p = place(v, group, j);
        double gw = lg_at(g, p) * number(weight, v, group, j, 1), unit = (lg_at(x, p) - mean) * invstd;
        lg_set(call->out[0], p, invstd * (gw - (sum + unit * dot) / (double)v->count));
    }
}

/* -> gweight, gbias */
static void parameter_gradients(const lg_call *call, const view *v)
{
    const luge_tensor *g = call->in[0], *x = call->in[1];
    int64_t params = call->out[1]->numel, terms = v->by_channel ? v->count : v->groups;
    for (int64_t i = 0; i < params; ++i) {
        double weight = 0, bias = 0;
        for (int64_t j = 0; j < terms; ++j) {
            int64_t group = v->by_channel ? i : j, p = place(v, group, v->by_channel ? j : i);
            double d = lg_at(g, p);
            weight += d * (lg_at(x, p) - lg_at(call->in[3], group)) * lg_at(call->in[4], group);
            bias += d;
        }
        lg_set(call->out[1], i, weight);
        lg_set(call->out[2], i, bias);
    }
}

/* ---- gradients */

/* Where the inputs and axes of a norm are, for the backward that both share. */
typedef struct layout {
    int weight, bias;        /* numbers of the inputs */
    luge_axes group;         /* axes that share a mean, kept with size 1 */
    luge_axes params;        /* axes along which parameters are the same */
    luge_shape weight_shape; /* the weight as it broadcasts to x */
} layout;

static luge_tensor *sum_terms(luge_tensor *t, const layout *l)
{
    return l->params.count == 0 ? t : luge_sum(t, l->params);
}

/* Whether nothing but the bias learns. Its gradient, which reads nothing of the forward, is then set. */
static bool bias_alone(lg_grad_call *g, const layout *l)
{
    if (g->needs[0] || g->needs[l->weight]) return false;
    const luge_dtype wide = lg_accumulate_type(g->in_dtype[0]);
    if (g->needs[l->bias]) g->grad_in[l->bias] = sum_terms(luge_cast(g->grad_out[0], wide), l);
    return true;
}

/* Made of ops, for gradients of gradients. The statistics are computed again from x, so that they are
 * part of the graph, or constants, which the forward was given. */
static luge_status composed_backward(lg_grad_call *g, const layout *l, bool constants)
{
    if (bias_alone(g, l)) return lg_error();
    const lg_norm_attrs *a = g->attrs;
    const luge_dtype wide = lg_accumulate_type(g->in_dtype[0]);
    luge_tensor *gy = luge_cast(g->grad_out[0], wide), *x = luge_cast(g->in[0], wide);
    luge_tensor *mean = constants ? luge_reshape(luge_detach(g->out[1]), l->weight_shape) : luge_mean(x, l->group);
    luge_tensor *centered = luge_sub(x, mean);
    luge_tensor *invstd =
        constants ? luge_reshape(luge_detach(g->out[2]), l->weight_shape)
                  : luge_pow_scalar(luge_add_scalar(luge_mean(luge_square(centered), l->group), a->eps), -0.5);
    luge_tensor *unit = luge_mul(centered, invstd);
    if (g->needs[l->weight]) g->grad_in[l->weight] = sum_terms(luge_mul(gy, unit), l);
    if (g->needs[l->bias]) g->grad_in[l->bias] = sum_terms(gy, l);
    if (!g->needs[0]) return lg_error();

    luge_tensor *weight = g->in[l->weight];
    if (weight != NULL) gy = luge_mul(gy, luge_reshape(luge_cast(weight, wide), l->weight_shape));
    if (!constants) {
        luge_tensor *along = luge_mul(unit, luge_mean(luge_mul(gy, unit), l->group));
        gy = luge_sub(luge_sub(gy, luge_mean(gy, l->group)), along);
    }
    g->grad_in[0] = luge_mul(gy, invstd);
    return lg_error();
}

/* One call of `op` (g, x, [weight], mean, invstd) -> (gx, gweight, gbias). */
static luge_status fused_backward(lg_grad_call *g, const layout *l, const lg_op *op)
{
    if (bias_alone(g, l)) return lg_error();
    luge_tensor *out[3], *in[] = {lg_match_layout(g->grad_out[0], g->in[0]), g->in[0], lg_or_none(g->in[l->weight]),
                                  g->out[1], g->out[2]};
    luge_status status = lg_call_op(op, 5, in, g->attrs, NULL, out);
    if (g->needs[0]) g->grad_in[0] = out[0];
    if (g->needs[l->weight]) g->grad_in[l->weight] = out[1];
    if (g->needs[l->bias]) g->grad_in[l->bias] = out[2];
    return status;
}

/* Parameters and running statistics are in the dtype of the statistics, or of the input. */
static luge_status need_parameter_dtype(lg_call *call, int i, const char *what)
{
    luge_dtype is = call->in[i]->dtype, input = call->in[0]->dtype, wide = lg_accumulate_type(input);
    if (is == wide || is == input) return LUGE_OK;
    return lg_op_fail(call, LUGE_ERR_DTYPE, "%s is %s, but must be %s for an input of %s", what, luge_dtype_name(is),
                      luge_dtype_name(wide), luge_dtype_name(input));
}

/* ---- batch_norm */

/* Input i holds one number per channel. */
static luge_status need_channels(lg_call *call, int i, const char *what)
{
    const luge_tensor *x = call->in[0], *t = call->in[i];
    if (t == NULL) return LUGE_OK;
    if (need_parameter_dtype(call, i, what) != LUGE_OK) return lg_error();
    if (call->op->mutates >> i & 1u && lg_strides_overlap(&t->shape, t->stride))
        return lg_op_fail(call, LUGE_ERR_ARGUMENT,
                          "%s has elements that share memory, so it cannot be updated; luge_clone it", what);
    return lg_need_vector(call, i, what, x->shape.dim[1]);
}

static luge_status batch_norm_infer(lg_call *call)
{
    const lg_norm_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0];
    char text[LG_SHAPE_TEXT];
    luge_status status = lg_need_float(call, 0, "the input");
    if (status != LUGE_OK) return status;
    if (x->shape.rank < 2)
        return lg_op_fail(call, LUGE_ERR_SHAPE, "the input is %s, but must be [N, C, ...]",
                          lg_shape_text(text, &x->shape));
    static const char *const name[] = {"the running mean", "the running variance", "the weight", "the bias"};
    for (int i = 0; i < 4 && status == LUGE_OK; ++i) status = need_channels(call, i + 1, name[i]);
    if (status != LUGE_OK) return status;
    if (!a->training && (call->in[1] == NULL || call->in[2] == NULL))
        return lg_op_fail(call, LUGE_ERR_ARGUMENT, "outside training the running mean and variance are needed");
    if (a->training && channels_of(&x->shape).count == 1)
        return lg_op_fail(call, LUGE_ERR_SHAPE, "training needs more than one value per channel, got %s",
                          lg_shape_text(text, &x->shape));

    if (!a->training) call->mutates = 0;
    luge_shape channels = LUGE_SHAPE(x->shape.dim[1]);
    lg_spec_like(call, 0, x->dtype, x);
    lg_spec_contiguous(call, 1, lg_accumulate_type(x->dtype), &channels);
    lg_spec_contiguous(call, 2, lg_accumulate_type(x->dtype), &channels);
    return LUGE_OK;
}

static void follow(luge_tensor *running, int64_t i, double value, double momentum)
{
    if (running != NULL) lg_set(running, i, (1 - momentum) * lg_at(running, i) + momentum * value);
}

static luge_status batch_norm_reference(const lg_call *call)
{
    const lg_norm_attrs *a = call->attrs;
    const view v = channels_of(&call->in[0]->shape);
    for (int64_t c = 0; c < v.groups; ++c) {
        double mean = 0, variance = 0;
        if (!a->training) {
            mean = lg_at(call->in[1], c);
            variance = lg_at(call->in[2], c);
        } else if (v.count > 0) {
            statistics(call->in[0], &v, c, &mean, &variance);
            follow(call->in[1], c, mean, a->momentum);
            follow(call->in[2], c, variance * (double)v.count / (double)(v.count - 1), a->momentum);
        }
        normalise(call, &v, c, mean, 1 / sqrt(variance + a->eps), call->in[3], call->in[4]);
    }
    return LUGE_OK;
}

static luge_status batch_norm_backward_infer(lg_call *call)
{
    const luge_tensor *x = call->in[1];
    luge_shape channels = LUGE_SHAPE(x->shape.dim[1]);
    lg_spec_like(call, 0, x->dtype, x);
    lg_spec_contiguous(call, 1, call->in[3]->dtype, &channels);
    lg_spec_contiguous(call, 2, call->in[3]->dtype, &channels);
    return LUGE_OK;
}

static luge_status batch_norm_backward_reference(const lg_call *call)
{
    const lg_norm_attrs *a = call->attrs;
    const view v = channels_of(&call->in[1]->shape);
    for (int64_t c = 0; c < v.groups; ++c) group_gradient(call, &v, c, !a->training);
    parameter_gradients(call, &v);
    return LUGE_OK;
}

static layout batch_layout(const lg_grad_call *g)
{
    layout l = {.weight = 3, .bias = 4, .weight_shape = {.rank = g->in_shape[0].rank}};
    for (int i = 0; i < g->in_shape[0].rank; ++i) {
        l.weight_shape.dim[i] = i == 1 ? g->in_shape[0].dim[1] : 1;
        if (i != 1) l.params.axis[l.params.count++] = i;
    }
    l.group = l.params;
    l.group.keepdim = 1;
    return l;
}

static luge_status batch_norm_backward(lg_grad_call *g)
{
    const layout l = batch_layout(g);
    return composed_backward(g, &l, !((const lg_norm_attrs *)g->attrs)->training);
}

static luge_status batch_norm_backward_fused(lg_grad_call *g)
{
    const layout l = batch_layout(g);
    return fused_backward(g, &l, &lg_op_batch_norm_backward);
}

const lg_op lg_op_batch_norm = {
    .name = "batch_norm",
    .n_in = 5,
    .n_out = 3,
    .optional = LG_IN(1) | LG_IN(2) | LG_IN(3) | LG_IN(4),
    .mutates = LG_IN(1) | LG_IN(2),
    .reads = {LG_IN(0) | LG_IN(3) | LG_OUT(1) | LG_OUT(2), 0, 0, LG_IN(0) | LG_OUT(1) | LG_OUT(2)},
    .attrs_size = sizeof(lg_norm_attrs),
    .infer = batch_norm_infer,
    .reference = batch_norm_reference,
    .backward = batch_norm_backward,
    .backward_fused = batch_norm_backward_fused,
};

const lg_op lg_op_batch_norm_backward = {
    .name = "batch_norm_backward",
    .n_in = 5,
    .n_out = 3,
    .optional = LG_IN(2),
    .attrs_size = sizeof(lg_norm_attrs),
    .infer = batch_norm_backward_infer,
    .reference = batch_norm_backward_reference,
};

luge_tensor *luge_batch_norm(luge_tensor *x, luge_tensor *running_mean, luge_tensor *running_var, luge_tensor *weight,
                             luge_tensor *bias, const luge_batch_norm_options *options)
{
    static const luge_batch_norm_options defaults = {0};
    const luge_batch_norm_options *o = options == NULL ? &defaults : options;
    if (!lg_ok() || !lg_check_reserved(o->reserved, 4, "luge_batch_norm_options")) return NULL;
    lg_norm_attrs a = {
        .training = o->training, .momentum = o->momentum == 0 ? 0.1 : o->momentum, .eps = o->eps == 0 ? 1e-5 : o->eps};
    if (!(a.momentum > 0 && a.momentum <= 1) || !(a.eps > 0)) {
        lg_fail(LUGE_ERR_ARGUMENT, "batch_norm: momentum is %g and eps %g, but must lie in (0, 1] and above 0",
                a.momentum, a.eps);
        return NULL;
    }
    return LG_CALL(batch_norm, &a, x, running_mean, running_var, weight, bias);
}

/* ---- layer_norm */

static luge_shape last_axes(const luge_shape *s, int axes)
{
    luge_shape last = {.rank = axes};
    for (int i = 0; i < axes; ++i) last.dim[i] = s->dim[s->rank - axes + i];
    return last;
}

/* Input i has the sizes of the last axes of x. */
static luge_status need_last_axes(lg_call *call, int i, const char *what)
{
    const lg_norm_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0], *t = call->in[i];
    if (t == NULL) return LUGE_OK;
    if (need_parameter_dtype(call, i, what) != LUGE_OK) return lg_error();
    luge_shape last = last_axes(&x->shape, a->axes);
    if (lg_shape_equal(&t->shape, &last)) return LUGE_OK;
    char is[LG_SHAPE_TEXT], must[LG_SHAPE_TEXT];
    return lg_op_fail(call, LUGE_ERR_SHAPE, "%s is %s, but must be %s", what, lg_shape_text(is, &t->shape),
                      lg_shape_text(must, &last));
}

static luge_status layer_norm_infer(lg_call *call)
{
    const lg_norm_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0];
    luge_status status = lg_need_float(call, 0, "the input");
    if (status == LUGE_OK) status = need_last_axes(call, 1, "the weight");
    if (status == LUGE_OK) status = need_last_axes(call, 2, "the bias");
    if (status != LUGE_OK) return status;
    luge_shape rows = LUGE_SHAPE(rows_of(&x->shape, a->axes).groups);
    lg_spec_contiguous(call, 0, x->dtype, &x->shape);
    lg_spec_contiguous(call, 1, lg_accumulate_type(x->dtype), &rows);
    lg_spec_contiguous(call, 2, lg_accumulate_type(x->dtype), &rows);
    return LUGE_OK;
}

static luge_status layer_norm_reference(const lg_call *call)
{
    const lg_norm_attrs *a = call->attrs;
    const view v = rows_of(&call->in[0]->shape, a->axes);
    for (int64_t row = 0; row < v.groups; ++row) {
        double mean = 0, variance = 0;
        if (v.count > 0) statistics(call->in[0], &v, row, &mean, &variance);
        normalise(call, &v, row, mean, 1 / sqrt(variance + a->eps), call->in[1], call->in[2]);
    }
    return LUGE_OK;
}

static luge_status layer_norm_backward_infer(lg_call *call)
{
    const lg_norm_attrs *a = call->attrs;
    const luge_tensor *x = call->in[1];
    luge_shape last = last_axes(&x->shape, a->axes);
    lg_spec_contiguous(call, 0, x->dtype, &x->shape);
    lg_spec_contiguous(call, 1, call->in[3]->dtype, &last);
    lg_spec_contiguous(call, 2, call->in[3]->dtype, &last);
    return LUGE_OK;
}

static luge_status layer_norm_backward_reference(const lg_call *call)
{
    const lg_norm_attrs *a = call->attrs;
    const view v = rows_of(&call->in[1]->shape, a->axes);
    for (int64_t row = 0; row < v.groups; ++row) group_gradient(call, &v, row, false);
    parameter_gradients(call, &v);
    return LUGE_OK;
}

static layout layer_layout(const lg_grad_call *g)
{
    const lg_norm_attrs *a = g->attrs;
    layout l = {.weight = 1, .bias = 2, .weight_shape = last_axes(&g->in_shape[0], a->axes), .group = {.keepdim = 1}};
    int rank = g->in_shape[0].rank, leading = rank - a->axes;
    for (int i = 0; i < leading; ++i) l.params.axis[l.params.count++] = i;
    for (int i = leading; i < rank; ++i) l.group.axis[l.group.count++] = i;
    return l;
}

static luge_status layer_norm_backward(lg_grad_call *g)
{
    const layout l = layer_layout(g);
    return composed_backward(g, &l, false);
}

static luge_status layer_norm_backward_fused(lg_grad_call *g)
{
    const layout l = layer_layout(g);
    return fused_backward(g, &l, &lg_op_layer_norm_backward);
}

const lg_op lg_op_layer_norm = {
    .name = "layer_norm",
    .n_in = 3,
    .n_out = 3,
    .optional = LG_IN(1) | LG_IN(2),
    .reads = {LG_IN(0) | LG_IN(1) | LG_OUT(1) | LG_OUT(2), LG_IN(0) | LG_OUT(1) | LG_OUT(2)},
    .cast = LUGE_CAST_F32,
    .attrs_size = sizeof(lg_norm_attrs),
    .infer = layer_norm_infer,
    .reference = layer_norm_reference,
    .backward = layer_norm_backward,
    .backward_fused = layer_norm_backward_fused,
};

const lg_op lg_op_layer_norm_backward = {
    .name = "layer_norm_backward",
    .n_in = 5,
    .n_out = 3,
    .optional = LG_IN(2),
    .attrs_size = sizeof(lg_norm_attrs),
    .infer = layer_norm_backward_infer,
    .reference = layer_norm_backward_reference,
};

luge_tensor *luge_layer_norm(luge_tensor *x, int axes, luge_tensor *weight, luge_tensor *bias, double eps)
{
    if (!lg_usable(x, "layer_norm: the input") || !lg_usable_or_none(weight, "layer_norm: the weight") ||
        !lg_usable_or_none(bias, "layer_norm: the bias"))
        return NULL;
    if (axes < 1 || axes > x->shape.rank) {
        lg_fail(LUGE_ERR_ARGUMENT, "layer_norm: cannot normalise %d axes of an input of %d", axes, x->shape.rank);
        return NULL;
    }
    lg_norm_attrs a = {.axes = axes, .eps = eps == 0 ? 1e-5 : eps};
    if (!(a.eps > 0)) {
        lg_fail(LUGE_ERR_ARGUMENT, "layer_norm: eps is %g, but must be above 0", eps);
        return NULL;
    }
    if (!lg_is_none(weight)) weight = luge_contiguous(weight);
    if (!lg_is_none(bias)) bias = luge_contiguous(bias);
    return LG_CALL(layer_norm, &a, luge_contiguous(x), weight, bias);
}
