/* Losses: cross_entropy over classes, mse_loss, bce_with_logits; and accuracy, which is composed. */
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/compose.h"
#include "ops/reference.h"
#include <luge/ops.h>
#include <luge/scope.h>
#include <math.h>

static bool check_reduction(const char *op, luge_reduction r)
{
    if (r == LUGE_MEAN || r == LUGE_SUM || r == LUGE_NO_REDUCTION) return true;
    lg_fail(LUGE_ERR_ARGUMENT, "%s: %d is no luge_reduction", op, (int)r);
    return false;
}

/* ---- cross_entropy. The loss of a row is sum over c of q[c] (lse - x[c]), with the wanted
 * distribution q[c] = weight[c] ((1 - s) [c is the target] + s / C) for label smoothing s. Ignored rows
 * have q = 0. The mean divides by the sum of the weights of the targets, `count`. */

static luge_status cross_entropy_infer(lg_call *call)
{
    const lg_cross_entropy_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0];
    luge_status status = lg_need_float(call, 0, "the logits");
    if (status == LUGE_OK) status = lg_need_indices(call, 1, "the target");
    if (status == LUGE_OK) status = lg_need_vector(call, 2, "the weight", x->shape.dim[1]);
    if (status == LUGE_OK) status = lg_need_same_dtype(call, 2, "the weight", 0, "logits");
    if (status == LUGE_OK) status = lg_check_indices(call, 1, "target", x->shape.dim[1], &a->ignore_index);
    if (status != LUGE_OK) return status;
    const luge_shape one = LUGE_SCALAR, rows = LUGE_SHAPE(x->shape.dim[0]);
    lg_spec_contiguous(call, 0, x->dtype, a->reduction == LUGE_NO_REDUCTION ? &rows : &one);
    lg_spec_contiguous(call, 1, lg_accumulate_type(x->dtype), &rows);
    lg_spec_contiguous(call, 2, lg_accumulate_type(x->dtype), &one);
    return LUGE_OK;
}

/* One row of logits [N, C] and what is wanted of it. */
typedef struct row {
    const luge_tensor *x, *weight;
    int64_t n, classes, target;
    double smoothing;
    bool ignored;
} row;

static row row_at(const lg_call *call, const luge_tensor *x, const luge_tensor *target, const luge_tensor *weight,
                  int64_t n)
{
    const lg_cross_entropy_attrs *a = call->attrs;
    row r = {.x = x, .weight = weight, .n = n, .classes = x->shape.dim[1], .smoothing = a->label_smoothing};
    r.target = lg_get_index(target, n * target->stride[0]);
    r.ignored = r.target == a->ignore_index;
    return r;
}
static double logit(const row *r, int64_t c)
{
    return lg_get(r->x, r->n * r->x->stride[0] + c * r->x->stride[1]);
}
static double weight_of(const row *r, int64_t c)
{
    return r->weight == NULL ? 1 : lg_get(r->weight, c * r->weight->stride[0]);
}
static double wanted(const row *r, int64_t c)
{
    return weight_of(r, c) * ((c == r->target ? 1 - r->smoothing : 0) + r->smoothing / (double)r->classes);
}

static double log_sum_exp(const row *r)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t c = 0; c < r->classes; ++c)
        if (logit(r, c) > largest || isnan(logit(r, c))) largest = logit(r, c);
    if (isinf(largest)) return largest;
    for (int64_t c = 0; c < r->classes; ++c) sum += exp(logit(r, c) - largest);
    return largest + log(sum);
}

static double row_loss(const row *r, double lse)
{
    double loss = 0;
    for (int64_t c = 0; c < r->classes; ++c)
        if (c == r->target || r->smoothing > 0) loss += wanted(r, c) * (lse - logit(r, c));
    return loss;
}

static luge_status cross_entropy_reference(const lg_call *call)
{
    const lg_cross_entropy_attrs *a = call->attrs;
    double sum = 0, count = 0;
    for (int64_t n = 0; n < call->in[0]->shape.dim[0]; ++n) {
        row r = row_at(call, call->in[0], call->in[1], call->in[2], n);
        double lse = log_sum_exp(&r), loss = r.ignored ? 0 : row_loss(&r, lse);
        lg_put(call->out[1], n, lse);
        if (a->reduction == LUGE_NO_REDUCTION) lg_put(call->out[0], n, loss);
        sum += loss;
        count += r.ignored ? 0 : weight_of(&r, r.target);
    }
    lg_put(call->out[2], 0, count);
    if (a->reduction != LUGE_NO_REDUCTION) lg_put(call->out[0], 0, a->reduction == LUGE_MEAN ? sum / count : sum);
    return LUGE_OK;
}

static luge_status cross_entropy_backward_infer(lg_call *call)
{
    lg_spec_contiguous(call, 0, call->in[1]->dtype, &call->in[1]->shape);
    return LUGE_OK;
}

/* (g, logits, target, [weight], lse, count) -> g (sum q e^(x - lse) - q) */
static luge_status cross_entropy_backward_reference(const lg_call *call)
{
    const lg_cross_entropy_attrs *a = call->attrs;
    const luge_tensor *g = call->in[0];
    for (int64_t n = 0; n < call->in[1]->shape.dim[0]; ++n) {
        row r = row_at(call, call->in[1], call->in[2], call->in[3], n);
        double d = a->reduction == LUGE_NO_REDUCTION ? lg_get(g, n * g->stride[0]) : lg_get(g, 0);
        double lse = lg_at(call->in[4], n), total = 0;
        if (a->reduction == LUGE_MEAN) d /= lg_get(call->in[5], 0);
        for (int64_t c = 0; c < r.classes; ++c) total += wanted(&r, c);
        for (int64_t c = 0; c < r.classes; ++c)
            lg_put(call->out[0], n * r.classes + c,
                   r.ignored ? 0 : d * (total * exp(logit(&r, c) - lse) - wanted(&r, c)));
    }
    return LUGE_OK;
}

/* One-hot rows of the target [N, C], zero for ignored rows; a constant. */
static luge_tensor *one_hot(const lg_grad_call *g)
{
    const lg_cross_entropy_attrs *a = g->attrs;
    luge_tensor *target = luge_unsqueeze(g->in[1], 1);
    luge_tensor_options like = {.dtype = luge_tensor_dtype(target), .device = luge_tensor_device(target)};
    luge_tensor *number = luge_arange(0, (double)g->in_shape[0].dim[1], 1, &like);
    luge_tensor *counts = luge_ne(number, lg_number_like(number, (double)a->ignore_index));
    return luge_cast(luge_mul(luge_eq(target, number), counts), g->in_dtype[0]);
}

static luge_status cross_entropy_backward(lg_grad_call *g)
{
    const lg_cross_entropy_attrs *a = g->attrs;
    const double s = a->label_smoothing;
    if (!g->needs[0]) return LUGE_OK;
    luge_tensor *hot = one_hot(g), *counts = luge_sum(hot, LUGE_AXES_KEEPDIM(1)); /* 1 or 0: [N, 1] */
    luge_tensor *q = luge_add_scalar(luge_mul_scalar(hot, 1 - s), s / (double)g->in_shape[0].dim[1]);
    if (g->in[2] != NULL) q = luge_mul(q, luge_detach(g->in[2]));
    q = luge_mul(q, counts);

    /* What ignored rows hold must not get in by way of 0 times infinity, nor must a count of 0. */
    luge_tensor *zero = lg_number_like(hot, 0), *d = g->grad_out[0];
    luge_tensor *x = luge_where(luge_gt(counts, zero), g->in[0], zero);
    if (a->reduction == LUGE_MEAN) {
        luge_tensor *count = luge_detach(g->out[2]), *some = luge_gt(luge_sum(counts, LUGE_ALL_AXES), zero);
        d = luge_div(d, luge_where(some, count, lg_number_like(count, 1)));
    }
    if (a->reduction == LUGE_NO_REDUCTION) d = luge_unsqueeze(d, 1);
    luge_tensor *total = luge_sum(q, LUGE_AXES_KEEPDIM(1));
    g->grad_in[0] = luge_mul(d, luge_sub(luge_mul(total, luge_softmax(x, 1)), q));
    return lg_error();
}

static luge_status cross_entropy_backward_fused(lg_grad_call *g)
{
    if (g->needs[0])
        g->grad_in[0] = LG_CALL(cross_entropy_backward, g->attrs, g->grad_out[0], g->in[0], g->in[1],
                                lg_or_none(g->in[2]), g->out[1], g->out[2]);
    return lg_error();
}

const lg_op lg_op_cross_entropy = {
    .name = "cross_entropy",
    .n_in = 3,
    .n_out = 3,
    .optional = LG_IN(2),
    .reads = {LG_IN(0) | LG_IN(1) | LG_IN(2) | LG_OUT(1) | LG_OUT(2)},
    .cast = LUGE_CAST_F32,
    .attrs_size = sizeof(lg_cross_entropy_attrs),
    .infer = cross_entropy_infer,
    .reference = cross_entropy_reference,
    .backward = cross_entropy_backward,
    .backward_fused = cross_entropy_backward_fused,
};

const lg_op lg_op_cross_entropy_backward = {
    .name = "cross_entropy_backward",
    .n_in = 6,
    .n_out = 1,
    .optional = LG_IN(3),
    .attrs_size = sizeof(lg_cross_entropy_attrs),
    .infer = cross_entropy_backward_infer,
    .reference = cross_entropy_backward_reference,
};

/* logits [N, C, d1, ...] and target [N, d1, ...] */
static bool check_sizes(const luge_tensor *logits, const luge_tensor *target)
{
    const luge_shape *x = &logits->shape, *t = &target->shape;
    bool fits = x->rank >= 2 && t->rank == x->rank - 1 && x->dim[1] > 0;
    for (int i = 0; fits && i < t->rank; ++i) fits = t->dim[i] == x->dim[i == 0 ? 0 : i + 1];
    if (fits) return true;
    char tx[LG_SHAPE_TEXT], tt[LG_SHAPE_TEXT];
    lg_fail(LUGE_ERR_SHAPE, "cross_entropy: logits %s and target %s must be [N, classes, ...] and [N, ...]",
            lg_shape_text(tx, x), lg_shape_text(tt, t));
    return false;
}

/* [N, C, d1, ...] -> [N d1 ..., C] */
static luge_tensor *classes_last(luge_tensor *logits)
{
    int rank = logits->shape.rank;
    int64_t classes = logits->shape.dim[1], rows = logits->shape.dim[0];
    luge_axes order = {.count = rank};
    for (int i = 2; i < rank; ++i) {
        order.axis[i - 1] = i;
        rows *= logits->shape.dim[i];
    }
    order.axis[rank - 1] = 1;
    return luge_reshape(luge_permute(logits, order), LUGE_SHAPE(rows, classes));
}

luge_tensor *luge_cross_entropy(luge_tensor *logits, luge_tensor *target, const luge_cross_entropy_options *options)
{
    static const luge_cross_entropy_options defaults = {0};
    const luge_cross_entropy_options *o = options == NULL ? &defaults : options;
    if (!lg_usable(logits, "cross_entropy: the logits") || !lg_usable(target, "cross_entropy: the target") ||
        !lg_check_reserved(o->reserved, 4, "luge_cross_entropy_options") ||
        !check_reduction("cross_entropy", o->reduction) || !check_sizes(logits, target))
        return NULL;
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1)) {
        lg_fail(LUGE_ERR_ARGUMENT, "cross_entropy: label smoothing is %g, but must lie between 0 and 1",
                o->label_smoothing);
        return NULL;
    }
    luge_tensor *weight = o->weight == NULL ? LUGE_NONE : o->weight;
    if (!lg_usable_or_none(weight, "cross_entropy: the weight")) return NULL;
    if (weight->requires_grad) {
        lg_fail(LUGE_ERR_UNSUPPORTED, "cross_entropy: the class weights have no gradient; use luge_detach(weight)");
        return NULL;
    }
    lg_cross_entropy_attrs a = {.reduction = o->reduction,
                                .label_smoothing = o->label_smoothing,
                                .ignore_index = o->ignore_index == NULL ? -100 : *o->ignore_index};
    if (logits->shape.rank == 2) return LG_CALL(cross_entropy, &a, logits, target, weight);

    luge_shape shape = target->shape;
    luge_tensor *loss =
        LG_CALL(cross_entropy, &a, classes_last(logits), luge_reshape(target, LUGE_SHAPE(target->numel)), weight);
    return a.reduction == LUGE_NO_REDUCTION ? luge_reshape(loss, shape) : loss;
}

/* ---- losses of pairs: mse_loss and bce_with_logits */

static luge_status pairs_infer(lg_call *call)
{
    const lg_loss_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0], *target = call->in[1];
    char tx[LG_SHAPE_TEXT], tt[LG_SHAPE_TEXT];
    if (!lg_shape_equal(&x->shape, &target->shape))
        return lg_op_fail(call, LUGE_ERR_SHAPE, "input %s and target %s must have the same shape",
                          lg_shape_text(tx, &x->shape), lg_shape_text(tt, &target->shape));
    const luge_shape one = LUGE_SCALAR;
    if (a->reduction == LUGE_NO_REDUCTION)
        lg_spec_like(call, 0, x->dtype, x);
    else
        lg_spec_contiguous(call, 0, x->dtype, &one);
    return LUGE_OK;
}

static luge_status pairs_reference(const lg_call *call, double (*loss)(double x, double target))
{
    const lg_loss_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0], *target = call->in[1];
    double sum = 0;
    for (int64_t i = 0; i < x->numel; ++i) {
        double l = loss(lg_at(x, i), lg_at(target, i));
        if (a->reduction == LUGE_NO_REDUCTION) lg_set(call->out[0], i, l);
        sum += l;
    }
    if (a->reduction != LUGE_NO_REDUCTION)
        lg_put(call->out[0], 0, a->reduction == LUGE_MEAN ? sum / (double)x->numel : sum);
    return LUGE_OK;
}

/* (g, x, target) -> gx */
static luge_status pairs_backward_infer(lg_call *call)
{
    lg_spec_like(call, 0, call->in[1]->dtype, call->in[1]);
    return LUGE_OK;
}

static luge_status pairs_backward_reference(const lg_call *call, double (*slope)(double x, double target))
{
    const lg_loss_attrs *a = call->attrs;
    const luge_tensor *g = call->in[0], *x = call->in[1], *target = call->in[2];
    for (int64_t i = 0; i < x->numel; ++i) {
        double d = a->reduction == LUGE_NO_REDUCTION ? lg_at(g, i) : lg_get(g, 0);
        if (a->reduction == LUGE_MEAN) d /= (double)x->numel;
        lg_set(call->out[0], i, d * slope(lg_at(x, i), lg_at(target, i)));
    }
    return LUGE_OK;
}

/* The incoming gradient per element, before the slope: of ops. */
static luge_tensor *per_element(const lg_grad_call *g)
{
    const lg_loss_attrs *a = g->attrs;
    int64_t n = lg_shape_numel(&g->in_shape[0]);
    return a->reduction == LUGE_MEAN ? luge_mul_scalar(g->grad_out[0], 1 / (double)n) : g->grad_out[0];
}

static luge_tensor *call_pairs(const char *op, const lg_op *which, luge_tensor *x, luge_tensor *target,
                               const luge_loss_options *options, const void *site)
{
    static const luge_loss_options defaults = {0};
    const luge_loss_options *o = options == NULL ? &defaults : options;
    if (!lg_ok() || !lg_check_reserved(o->reserved, 4, "luge_loss_options") || !check_reduction(op, o->reduction))
        return NULL;
    luge_tensor *in[] = {x, target};
    return lg_call1(which, 2, in, &(lg_loss_attrs){.reduction = o->reduction}, site);
}

/* ---- (x - t)^2 */

static double mse(double x, double target)
{
    return (x - target) * (x - target);
}
static double mse_slope(double x, double target)
{
    return 2 * (x - target);
}
static luge_status mse_loss_reference(const lg_call *call)
{
    return pairs_reference(call, mse);
}
static luge_status mse_loss_backward_reference(const lg_call *call)
{
    return pairs_backward_reference(call, mse_slope);
}

static luge_status mse_loss_backward(lg_grad_call *g)
{
    luge_tensor *gx = luge_mul(per_element(g), luge_mul_scalar(luge_sub(g->in[0], g->in[1]), 2));
    if (g->needs[0]) g->grad_in[0] = gx;
    if (g->needs[1]) g->grad_in[1] = luge_neg(gx);
    return lg_error();
}

static luge_status mse_loss_backward_fused(lg_grad_call *g)
{
    luge_tensor *gx = LG_CALL(mse_loss_backward, g->attrs, g->grad_out[0], g->in[0], g->in[1]);
    if (g->needs[0]) g->grad_in[0] = gx;
    if (g->needs[1]) g->grad_in[1] = luge_neg(gx);
    return lg_error();
}

const lg_op lg_op_mse_loss = {
    .name = "mse_loss",
    .n_in = 2,
    .n_out = 1,
    .reads = {LG_IN(0) | LG_IN(1), LG_IN(0) | LG_IN(1)},
    .cast = LUGE_CAST_F32,
    .flags = LG_PROMOTE_FLOAT,
    .attrs_size = sizeof(lg_loss_attrs),
    .infer = pairs_infer,
    .reference = mse_loss_reference,
    .backward = mse_loss_backward,
    .backward_fused = mse_loss_backward_fused,
};

const lg_op lg_op_mse_loss_backward = {
    .name = "mse_loss_backward",
    .n_in = 3,
    .n_out = 1,
    .attrs_size = sizeof(lg_loss_attrs),
    .infer = pairs_backward_infer,
    .reference = mse_loss_backward_reference,
};

luge_tensor *luge_mse_loss(luge_tensor *input, luge_tensor *target, const luge_loss_options *options)
{
    return call_pairs("mse_loss", &lg_op_mse_loss, input, target, options, LG_SITE);
}

/* ---- -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)), where the share of the label that is wrong is
 * paid |x|: no product of 0 and infinity, no difference of infinities */

static double bce(double x, double target)
{
    double wrong = x > 0 ? 1 - target : target;
    return (wrong == 0 ? 0 : wrong * fabs(x)) + log1p(exp(-fabs(x)));
}
static double bce_slope(double x, double target)
{
    return 1 / (1 + exp(-x)) - target;
}
static luge_status bce_with_logits_reference(const lg_call *call)
{
    return pairs_reference(call, bce);
}
static luge_status bce_with_logits_backward_reference(const lg_call *call)
{
    return pairs_backward_reference(call, bce_slope);
}

static luge_status bce_with_logits_backward(lg_grad_call *g)
{
    luge_tensor *d = per_element(g);
    if (g->needs[0]) g->grad_in[0] = luge_mul(d, luge_sub(luge_sigmoid(g->in[0]), g->in[1]));
    if (g->needs[1]) g->grad_in[1] = luge_mul(d, luge_neg(g->in[0]));
    return lg_error();
}

static luge_status bce_with_logits_backward_fused(lg_grad_call *g)
{
    if (g->needs[0]) g->grad_in[0] = LG_CALL(bce_with_logits_backward, g->attrs, g->grad_out[0], g->in[0], g->in[1]);
    if (g->needs[1]) g->grad_in[1] = luge_mul(per_element(g), luge_neg(g->in[0]));
    return lg_error();
}

const lg_op lg_op_bce_with_logits = {
    .name = "bce_with_logits",
    .n_in = 2,
    .n_out = 1,
    .reads = {LG_IN(0) | LG_IN(1), LG_IN(0)},
    .cast = LUGE_CAST_F32,
    .flags = LG_PROMOTE_FLOAT,
    .attrs_size = sizeof(lg_loss_attrs),
    .infer = pairs_infer,
    .reference = bce_with_logits_reference,
    .backward = bce_with_logits_backward,
    .backward_fused = bce_with_logits_backward_fused,
};

const lg_op lg_op_bce_with_logits_backward = {
    .name = "bce_with_logits_backward",
    .n_in = 3,
    .n_out = 1,
    .attrs_size = sizeof(lg_loss_attrs),
    .infer = pairs_backward_infer,
    .reference = bce_with_logits_backward_reference,
};

luge_tensor *luge_bce_with_logits(luge_tensor *logits, luge_tensor *target, const luge_loss_options *options)
{
    return call_pairs("bce_with_logits", &lg_op_bce_with_logits, logits, target, options, LG_SITE);
}

/* ---- accuracy */

luge_tensor *luge_accuracy(luge_tensor *logits, luge_tensor *target)
{
    if (!lg_usable(logits, "accuracy: the logits") || !lg_usable(target, "accuracy: the target")) return NULL;
    const luge_shape *x = &logits->shape, *t = &target->shape;
    if (x->rank != 2 || t->rank != 1 || x->dim[0] != t->dim[0] || x->dim[1] == 0) {
        char tx[LG_SHAPE_TEXT], tt[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "accuracy: logits %s and target %s must be [N, classes] and [N]", lg_shape_text(tx, x),
                lg_shape_text(tt, t));
        return NULL;
    }
    if (target->dtype != LUGE_I64 && target->dtype != LUGE_I32) {
        lg_fail(LUGE_ERR_DTYPE, "accuracy: the target is %s, but must be i64 or i32", luge_dtype_name(target->dtype));
        return NULL;
    }
    luge_scope scope = luge_scope_enter("accuracy");
    luge_tensor *right = luge_cast(luge_eq(luge_argmax(logits, 1), target), LUGE_F32);
    luge_tensor *share = luge_mean(right, LUGE_ALL_AXES);
    luge_scope_exit(scope, share);
    return share;
}
