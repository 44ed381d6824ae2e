/* Products of matrices: matmul, and linear with its bias. The public functions bring vectors, batches
 * and leading axes into the form of the rows in ops.def; transposes are strides, so gradients are
 * products of views. */
#include "ops/check.h"
#include "ops/reference.h"
#include <luge/ops.h>

/* ---- matmul: a [.., n, k], b [.., k, m] -> [.., n, m] */

static luge_status matmul_infer(lg_call *call)
{
    const luge_tensor *a = call->in[0], *b = call->in[1];
    luge_status status = lg_need_float(call, 0, "the first input");
    if (status == LUGE_OK) status = lg_need_same_dtype(call, 1, "the second input", 0, "the first");
    if (status != LUGE_OK) return status;

    int rank = a->shape.rank;
    bool fits = rank >= 2 && b->shape.rank == rank && a->shape.dim[rank - 1] == b->shape.dim[rank - 2];
    for (int i = 0; fits && i < rank - 2; ++i) fits = a->shape.dim[i] == b->shape.dim[i];
    if (!fits) {
        char ta[LG_SHAPE_TEXT], tb[LG_SHAPE_TEXT];
        return lg_op_fail(call, LUGE_ERR_SHAPE, "sizes do not fit: %s x %s", lg_shape_text(ta, &a->shape),
                          lg_shape_text(tb, &b->shape));
    }
    luge_shape shape = a->shape;
    shape.dim[rank - 1] = b->shape.dim[rank - 1];
    if (lg_shape_numel(&shape) < 0) return lg_op_fail(call, LUGE_ERR_SHAPE, "the result is too large");
    lg_spec_contiguous(call, 0, a->dtype, &shape);
    return LUGE_OK;
}

static luge_status matmul_reference(const lg_call *call)
{
    const luge_tensor *a = call->in[0], *b = call->in[1];
    luge_tensor *y = call->out[0];
    if (y->numel == 0) return LUGE_OK;
    int row = a->shape.rank - 2, col = row + 1;
    int64_t n = a->shape.dim[row], k = a->shape.dim[col], m = b->shape.dim[col];
    for (int64_t batch = 0; batch < y->numel / (n * m); ++batch) {
        int64_t at_a = lg_offset(a, batch * n * k), at_b = lg_offset(b, batch * k * m);
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t j = 0; j < m; ++j) {
                double sum = 0;
                for (int64_t l = 0; l < k; ++l)
                    sum += lg_get(a, at_a + i * a->stride[row] + l * a->stride[col]) *
                           lg_get(b, at_b + l * b->stride[row] + j * b->stride[col]);
                lg_set(y, (batch * n + i) * m + j, sum);
            }
        }
    }
    return LUGE_OK;
}

static luge_status matmul_backward(lg_grad_call *g)
{
    luge_tensor *gy = g->grad_out[0];
    if (g->needs[0]) g->grad_in[0] = luge_matmul(gy, luge_transpose(g->in[1], -2, -1));
    if (g->needs[1]) g->grad_in[1] = luge_matmul(luge_transpose(g->in[0], -2, -1), gy);
    return lg_error();
}

static double matmul_flops(const lg_call *call)
{
    return 2.0 * (double)call->out[0]->numel * (double)call->in[0]->shape.dim[call->in[0]->shape.rank - 1];
}

const lg_op lg_op_matmul = {
    .name = "matmul",
    .n_in = 2,
    .n_out = 1,
    .reads = {LG_IN(1), LG_IN(0)},
    .cast = LUGE_CAST_LOW,
    .infer = matmul_infer,
    .reference = matmul_reference,
    .backward = matmul_backward,
    .flops = matmul_flops,
};

/* Why a and b cannot be multiplied, NULL if they can; and the leading axes of the result: those of
 * both, broadcast. */
static const char *misfit(const luge_tensor *a, const luge_tensor *b, luge_shape *leading)
{
    int ra = a->shape.rank, rb = b->shape.rank;
    if (ra == 0 || rb == 0) return "takes tensors of at least one axis, got";
    if (a->shape.dim[ra - 1] != b->shape.dim[rb == 1 ? 0 : rb - 2]) return "inner sizes differ:";
    luge_shape other = {0};
    *leading = other;
    for (int i = 0; i < ra - 2; ++i) leading->dim[leading->rank++] = a->shape.dim[i];
    for (int i = 0; i < rb - 2; ++i) other.dim[other.rank++] = b->shape.dim[i];
    return lg_broadcast(leading, &other) ? NULL : "leading axes do not broadcast:";
}

static bool fit(const luge_tensor *a, const luge_tensor *b, luge_shape *leading)
{
    const char *why = misfit(a, b, leading);
    if (why == NULL) return true;
    char ta[LG_SHAPE_TEXT], tb[LG_SHAPE_TEXT];
    const bool scalar = a->shape.rank == 0 || b->shape.rank == 0;
    lg_fail(LUGE_ERR_SHAPE, "matmul: %s %s x %s%s", why, lg_shape_text(ta, &a->shape), lg_shape_text(tb, &b->shape),
            scalar ? "; luge_mul multiplies by a scalar" : "");
    return false;
}

/* t [.., r, c] with other leading axes, which it broadcasts to. */
static luge_tensor *with_leading(luge_tensor *t, const luge_shape *leading)
{
    luge_shape shape = *leading;
    for (int i = t->shape.rank - 2; i < t->shape.rank; ++i) shape.dim[shape.rank++] = t->shape.dim[i];
    return lg_shape_equal(&shape, &t->shape) ? t : luge_expand(t, shape);
}

luge_tensor *luge_matmul(luge_tensor *a, luge_tensor *b)
{
    luge_shape leading;
    if (!lg_usable(a, "matmul: the first input") || !lg_usable(b, "matmul: the second input")) return NULL;
    if (!fit(a, b, &leading)) return NULL;
    if (a->shape.rank == 2 && b->shape.rank == 2) return LG_CALL(matmul, NULL, a, b);

    bool row = a->shape.rank == 1, column = b->shape.rank == 1;
    if (row) a = luge_unsqueeze(a, 0);
    if (column) b = luge_unsqueeze(b, 1);
    if (a == NULL || b == NULL) return NULL;
    luge_tensor *y;
    if (b->shape.rank == 2) {
        /* One product over all rows, and so are the gradients: b's needs no sum over the batch. */
        luge_shape shape = a->shape;
        int64_t k = shape.dim[shape.rank - 1], m = b->shape.dim[1];
        int64_t rows = 1;
        for (int i = 0; i < shape.rank - 1; ++i) rows *= shape.dim[i];
        if (shape.rank > 2) a = luge_reshape(a, LUGE_SHAPE(rows, k));
        y = LG_CALL(matmul, NULL, a, b);
        shape.dim[shape.rank - 1] = m;
        if (shape.rank > 2) y = luge_reshape(y, shape);
    } else {
        a = with_leading(a, &leading);
        y = LG_CALL(matmul, NULL, a, with_leading(b, &leading));
    }
    if (column) y = luge_squeeze(y, -1);
    if (row) y = luge_squeeze(y, column ? -1 : -2);
    return y;
}

/* ---- linear: x [n, in], weight [out, in], [bias [out]] -> [n, out] */

static luge_status linear_infer(lg_call *call)
{
    const luge_tensor *x = call->in[0], *weight = call->in[1];
    luge_status status = lg_need_float(call, 0, "the input");
    if (status == LUGE_OK) status = lg_need_same_dtype(call, 1, "the weight", 0, "the input");
    if (status == LUGE_OK) status = lg_need_same_dtype(call, 2, "the bias", 0, "the input");
    if (status == LUGE_OK) status = lg_need_vector(call, 2, "the bias", weight->shape.dim[0]);
    if (status != LUGE_OK) return status;
    luge_shape shape = LUGE_SHAPE(x->shape.dim[0], weight->shape.dim[0]);
    if (lg_shape_numel(&shape) < 0) return lg_op_fail(call, LUGE_ERR_SHAPE, "the result is too large");
    lg_spec_contiguous(call, 0, x->dtype, &shape);
    return LUGE_OK;
}

static luge_status linear_reference(const lg_call *call)
{
    const luge_tensor *x = call->in[0], *weight = call->in[1], *bias = call->in[2];
    luge_tensor *y = call->out[0];
    int64_t n = y->shape.dim[0], out = y->shape.dim[1], in = x->shape.dim[1];
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < out; ++j) {
            double sum = bias == NULL ? 0 : lg_at(bias, j);
            for (int64_t l = 0; l < in; ++l)
                sum += lg_get(x, i * x->stride[0] + l * x->stride[1]) *
                       lg_get(weight, j * weight->stride[0] + l * weight->stride[1]);
            lg_set(y, i * out + j, sum);
        }
    }
    return LUGE_OK;
}

static luge_status linear_backward(lg_grad_call *g)
{
    luge_tensor *gy = g->grad_out[0];
    if (g->needs[0]) g->grad_in[0] = luge_matmul(gy, g->in[1]);
    if (g->needs[1]) g->grad_in[1] = luge_matmul(luge_transpose(gy, 0, 1), g->in[0]);
    if (g->needs[2]) g->grad_in[2] = luge_sum(gy, LUGE_AXES(0));
    return lg_error();
}

/* The gradients of weight and bias in one go, where both are wanted. */
static luge_status linear_backward_fused(lg_grad_call *g)
{
    if (!g->needs[1] || !g->needs[2]) return linear_backward(g);
    luge_tensor *gy = g->grad_out[0], *out[2];
    lg_call_op(&lg_op_linear_backward_weight, 2, (luge_tensor *[]){gy, g->in[0]}, NULL, LG_SITE, out);
    g->grad_in[1] = out[0];
    g->grad_in[2] = out[1];
    if (g->needs[0]) g->grad_in[0] = luge_matmul(gy, g->in[1]);
    return lg_error();
}

static double linear_flops(const lg_call *call)
{
    return 2.0 * (double)call->out[0]->numel * (double)call->in[0]->shape.dim[1];
}

const lg_op lg_op_linear = {
    .name = "linear",
    .n_in = 3,
    .n_out = 1,
    .optional = LG_IN(2),
    .reads = {LG_IN(1), LG_IN(0)},
    .cast = LUGE_CAST_LOW,
    .infer = linear_infer,
    .reference = linear_reference,
    .backward = linear_backward,
    .backward_fused = linear_backward_fused,
    .flops = linear_flops,
};

/* g [n, out], x [n, in] -> gweight [out, in], gbias [out] */
static luge_status linear_backward_weight_infer(lg_call *call)
{
    const luge_tensor *g = call->in[0], *x = call->in[1];
    const luge_shape weight = LUGE_SHAPE(g->shape.dim[1], x->shape.dim[1]), bias = LUGE_SHAPE(g->shape.dim[1]);
    lg_spec_contiguous(call, 0, x->dtype, &weight);
    lg_spec_contiguous(call, 1, x->dtype, &bias);
    return LUGE_OK;
}

static luge_status linear_backward_weight_reference(const lg_call *call)
{
    const luge_tensor *g = call->in[0], *x = call->in[1];
    luge_tensor *gweight = call->out[0], *gbias = call->out[1];
    const int64_t n = g->shape.dim[0], out = g->shape.dim[1], in = x->shape.dim[1];
    for (int64_t i = 0; i < out; ++i) {
        double bias = 0;
        for (int64_t l = 0; l < n; ++l) bias += lg_get(g, l * g->stride[0] + i * g->stride[1]);
        lg_set(gbias, i, bias);
        for (int64_t j = 0; j < in; ++j) {
            double sum = 0;
            for (int64_t l = 0; l < n; ++l)
                sum += lg_get(g, l * g->stride[0] + i * g->stride[1]) * lg_get(x, l * x->stride[0] + j * x->stride[1]);
            lg_set(gweight, i * in + j, sum);
        }
    }
    return LUGE_OK;
}

const lg_op lg_op_linear_backward_weight = {
    .name = "linear_backward_weight",
    .n_in = 2,
    .n_out = 2,
    .infer = linear_backward_weight_infer,
    .reference = linear_backward_weight_reference,
};

luge_tensor *luge_linear(luge_tensor *x, luge_tensor *weight, luge_tensor *bias)
{
    if (!lg_usable(x, "linear: the input") || !lg_usable(weight, "linear: the weight") ||
        !lg_usable_or_none(bias, "linear: the bias"))
        return NULL;
    char text[LG_SHAPE_TEXT];
    if (weight->shape.rank != 2) {
        lg_fail(LUGE_ERR_SHAPE, "linear: the weight is %s, but must be [out, in]", lg_shape_text(text, &weight->shape));
        return NULL;
    }
    luge_shape shape = x->shape;
    int64_t in = weight->shape.dim[1];
    if (shape.rank == 0 || shape.dim[shape.rank - 1] != in) {
        lg_fail(LUGE_ERR_SHAPE, "linear: input has %lld features, the weight takes %lld",
                (long long)(shape.rank == 0 ? 1 : shape.dim[shape.rank - 1]), (long long)in);
        return NULL;
    }
    if (shape.rank == 2) return LG_CALL(linear, NULL, x, weight, bias);

    int64_t rows = 1;
    for (int i = 0; i < shape.rank - 1; ++i) rows *= shape.dim[i];
    luge_tensor *y = LG_CALL(linear, NULL, luge_reshape(x, LUGE_SHAPE(rows, in)), weight, bias);
    shape.dim[shape.rank - 1] = weight->shape.dim[0];
    return luge_reshape(y, shape);
}
