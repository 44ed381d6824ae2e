/* Scaled dot-product attention, composed of ops: gradients, autocast and both backends come with them. */
#include "ops/check.h"
#include "ops/compose.h"
#include <luge/ops.h>
#include <luge/scope.h>
#include <math.h>

/* The last two axes of q [.., L, D], k [.., S, D], v [.., S, E] fit. */
static bool check_heads(const luge_tensor *q, const luge_tensor *k, const luge_tensor *v)
{
    const char *wrong = NULL;
    if (q->shape.rank < 2 || k->shape.rank < 2 || v->shape.rank < 2) {
        wrong = "one has less than two axes";
    } else if (luge_tensor_size(q, -1) != luge_tensor_size(k, -1)) {
        wrong = "D of q and of k differ";
    } else if (luge_tensor_size(k, -2) != luge_tensor_size(v, -2)) {
        wrong = "S of k and of v differ";
    } else if (luge_tensor_size(q, -1) == 0) {
        wrong = "D is 0, which leaves nothing to compare";
    }
    if (wrong == NULL) return true;
    char tq[LG_SHAPE_TEXT], tk[LG_SHAPE_TEXT], tv[LG_SHAPE_TEXT];
    lg_fail(LUGE_ERR_SHAPE, "attention: q %s, k %s, v %s must be [.., L, D], [.., S, D], [.., S, E]: %s",
            lg_shape_text(tq, &q->shape), lg_shape_text(tk, &k->shape), lg_shape_text(tv, &v->shape), wrong);
    return false;
}

static bool check_dtypes(const luge_tensor *q, const luge_tensor *k, const luge_tensor *v, const luge_tensor *mask)
{
    if (!lg_is_float(q->dtype) || !lg_is_float(k->dtype) || !lg_is_float(v->dtype)) {
        lg_fail(LUGE_ERR_DTYPE, "attention: q, k and v are %s, %s and %s, but must be of float types",
                luge_dtype_name(q->dtype), luge_dtype_name(k->dtype), luge_dtype_name(v->dtype));
        return false;
    }
    if (lg_is_none(mask) || mask->dtype == LUGE_BOOL || lg_is_float(mask->dtype)) return true;
    lg_fail(LUGE_ERR_DTYPE, "attention: the mask is %s, but must be bool or of a float type",
            luge_dtype_name(mask->dtype));
    return false;
}

static bool check_options(const luge_attention_options *o)
{
    if (!lg_check_reserved(o->reserved, 4, "luge_attention_options")) return false;
    if (!(o->dropout >= 0 && o->dropout <= 1)) {
        lg_fail(LUGE_ERR_ARGUMENT, "attention: dropout is %g, but must lie in [0, 1]", o->dropout);
        return false;
    }
    if (isfinite(o->scale)) return true;
    lg_fail(LUGE_ERR_ARGUMENT, "attention: scale is %g, but must be finite", o->scale);
    return false;
}

/* bool [L, S]: row i sees columns 0 to i */
static luge_tensor *causal_mask(const luge_tensor *scores)
{
    const luge_tensor_options index = {.dtype = LUGE_I64, .device = luge_tensor_device(scores)};
    luge_tensor *row = luge_arange(0, (double)luge_tensor_size(scores, -2), 1, &index);
    luge_tensor *col = luge_arange(0, (double)luge_tensor_size(scores, -1), 1, &index);
    return luge_ge(luge_unsqueeze(row, 1), col);
}

/* Scores stay where `mask` is true and become -inf elsewhere. */
static luge_tensor *keep_where(luge_tensor *mask, luge_tensor *scores)
{
    return luge_where(mask, scores, lg_number_like(scores, -HUGE_VAL));
}

static luge_tensor *masked(luge_tensor *scores, luge_tensor *mask)
{
    if (scores == NULL || lg_is_none(mask)) return scores;
    luge_shape shape = scores->shape;
    if (!lg_broadcast(&shape, &mask->shape) || !lg_shape_equal(&shape, &scores->shape)) {
        char tm[LG_SHAPE_TEXT], ts[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "the mask %s does not broadcast to the scores %s", lg_shape_text(tm, &mask->shape),
                lg_shape_text(ts, &scores->shape));
        return NULL;
    }
    return mask->dtype == LUGE_BOOL ? keep_where(mask, scores) : luge_add(scores, mask);
}

luge_tensor *luge_attention(luge_tensor *q, luge_tensor *k, luge_tensor *v, luge_tensor *mask,
                            const luge_attention_options *options)
{
    static const luge_attention_options defaults = {0};
    const luge_attention_options *o = options == NULL ? &defaults : options;
    if (!lg_usable(q, "attention: q") || !lg_usable(k, "attention: k") || !lg_usable(v, "attention: v") ||
        !lg_usable_or_none(mask, "attention: the mask") || !check_options(o) || !check_heads(q, k, v) ||
        !check_dtypes(q, k, v, mask))
        return NULL;
    luge_scope scope = luge_scope_enter("attention");
    double scale = o->scale == 0 ? 1 / sqrt((double)luge_tensor_size(q, -1)) : o->scale;
    /* Scaling q, the smallest factor, keeps half-precision scores in range. */
    luge_tensor *scores = luge_matmul(luge_mul_scalar(q, scale), luge_transpose(k, -2, -1));
    scores = masked(scores, mask);
    if (o->causal && scores != NULL) scores = keep_where(causal_mask(scores), scores);
    luge_tensor *weights = luge_dropout(luge_softmax(scores, -1), o->dropout, true);
    luge_tensor *y = luge_matmul(weights, v);
    luge_scope_exit(scope, y);
    return y;
}
