/* 2-D convolution and the products that are its gradients. The three rows are linear in each operand
 * and closed under differentiation: the gradients of each are calls of the other two. */
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/reference.h"
#include <luge/ops.h>

/* ---- geometry. All loops below run over these sizes. */

typedef struct geometry {
    int64_t n, c, h, w;  /* x */
    int64_t k, cg, r, s; /* weight: [k, cg = c / groups, r, s] */
    int64_t kg, ho, wo;  /* kg = k / groups; y is [n, k, ho, wo] */
} geometry;

/* Outputs along one axis; at least 1 if `size` and its padding hold the kernel once. */
static int64_t out_size(const lg_conv2d_attrs *a, int axis, int64_t size, int64_t kernel)
{
    int64_t room = size + a->padding_before[axis] + a->padding_after[axis] - a->dilation[axis] * (kernel - 1) - 1;
    return room < 0 ? 0 : room / a->stride[axis] + 1;
}

static geometry geometry_of(const lg_conv2d_attrs *a)
{
    const int64_t *x = a->in_shape.dim, *w = a->weight_shape.dim;
    return (geometry){.n = x[0],
                      .c = x[1],
                      .h = x[2],
                      .w = x[3],
                      .k = w[0],
                      .cg = w[1],
                      .r = w[2],
                      .s = w[3],
                      .kg = w[0] / a->groups,
                      .ho = out_size(a, 0, x[2], w[2]),
                      .wo = out_size(a, 1, x[3], w[3])};
}

static luge_shape out_shape(const lg_conv2d_attrs *a)
{
    geometry g = geometry_of(a);
    return LUGE_SHAPE(g.n, g.k, g.ho, g.wo);
}

static int64_t at4(const luge_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * t->stride[0] + b * t->stride[1] + c * t->stride[2] + d * t->stride[3];
}

static double conv2d_flops(const lg_call *call)
{
    const lg_conv2d_attrs *a = call->attrs;
    geometry g = geometry_of(a);
    return 2.0 * (double)(g.n * g.k) * (double)(g.ho * g.wo) * (double)(g.cg * g.r * g.s);
}

/* ---- y[n, k, i, j] = bias[k] + sum over c, r, s of x[n, c, i + r, j + s] weight[k, c, r, s] */

static luge_status conv2d_infer(lg_call *call)
{
    const lg_conv2d_attrs *a = call->attrs;
    luge_status status = lg_need_float(call, 0, "the input");
    if (status == LUGE_OK) status = lg_need_same_dtype(call, 1, "the weight", 0, "the input");
    if (status == LUGE_OK) status = lg_need_same_dtype(call, 2, "the bias", 0, "the input");
    if (status == LUGE_OK) status = lg_need_vector(call, 2, "the bias", a->weight_shape.dim[0]);
    if (status != LUGE_OK) return status;
    luge_shape shape = out_shape(a);
    if (lg_shape_numel(&shape) < 0) return lg_op_fail(call, LUGE_ERR_SHAPE, "the result is too large");
    lg_spec_channels_last(call, 0, call->in[0]->dtype, &shape);
    return LUGE_OK;
}

static luge_status conv2d_reference(const lg_call *call)
{
    const lg_conv2d_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0], *weight = call->in[1], *bias = call->in[2];
    luge_tensor *y = call->out[0];
    const geometry g = geometry_of(a);
    for (int64_t i = 0; i < y->numel; ++i) {
        int64_t q = i % g.wo, p = i / g.wo % g.ho, k = i / (g.wo * g.ho) % g.k, n = i / (g.wo * g.ho * g.k);
        double sum = bias == NULL ? 0 : lg_at(bias, k);
        for (int64_t c = 0; c < g.cg; ++c) {
            for (int64_t r = 0; r < g.r; ++r) {
                int64_t row = p * a->stride[0] - a->padding_before[0] + r * a->dilation[0];
                for (int64_t s = 0; s < g.s && row >= 0 && row < g.h; ++s) {
                    int64_t col = q * a->stride[1] - a->padding_before[1] + s * a->dilation[1];
                    if (col < 0 || col >= g.w) continue;
                    sum +=
                        lg_get(x, at4(x, n, k / g.kg * g.cg + c, row, col)) * lg_get(weight, at4(weight, k, c, r, s));
                }
            }
        }
        lg_put(y, at4(y, n, k, p, q), sum);
    }
    return LUGE_OK;
}

/* ---- gx: what each element of x took part in */

static luge_status conv2d_backward_input_infer(lg_call *call)
{
    const lg_conv2d_attrs *a = call->attrs;
    luge_status status = lg_need_same_dtype(call, 1, "the weight", 0, "the gradient");
    if (status == LUGE_OK) lg_spec_channels_last(call, 0, call->in[0]->dtype, &a->in_shape);
    return status;
}

/* The output row or column that element `at` of x reaches through kernel element `k`; -1: none. */
static int64_t reaches(const lg_conv2d_attrs *a, int axis, int64_t at, int64_t k, int64_t outputs)
{
    int64_t from = at + a->padding_before[axis] - k * a->dilation[axis];
    if (from < 0 || from % a->stride[axis] != 0 || from / a->stride[axis] >= outputs) return -1;
    return from / a->stride[axis];
}

static luge_status conv2d_backward_input_reference(const lg_call *call)
{
    const lg_conv2d_attrs *a = call->attrs;
    const luge_tensor *gy = call->in[0], *weight = call->in[1];
    luge_tensor *gx = call->out[0];
    const geometry g = geometry_of(a);
    for (int64_t i = 0; i < gx->numel; ++i) {
        int64_t col = i % g.w, row = i / g.w % g.h, c = i / (g.w * g.h) % g.c, n = i / (g.w * g.h * g.c);
        int64_t group = c / g.cg;
        double sum = 0;
        for (int64_t r = 0; r < g.r; ++r) {
            int64_t p = reaches(a, 0, row, r, g.ho);
            for (int64_t s = 0; s < g.s && p >= 0; ++s) {
                int64_t q = reaches(a, 1, col, s, g.wo);
                for (int64_t k = group * g.kg; k < (group + 1) * g.kg && q >= 0; ++k)
                    sum += lg_get(gy, at4(gy, n, k, p, q)) * lg_get(weight, at4(weight, k, c % g.cg, r, s));
            }
        }
        lg_put(gx, at4(gx, n, c, row, col), sum);
    }
    return LUGE_OK;
}

/* ---- gweight: what each element of the weight was multiplied with */

static luge_status conv2d_backward_weight_infer(lg_call *call)
{
    const lg_conv2d_attrs *a = call->attrs;
    luge_status status = lg_need_same_dtype(call, 1, "the input", 0, "the gradient");
    if (status == LUGE_OK) lg_spec_contiguous(call, 0, call->in[0]->dtype, &a->weight_shape);
    return status;
}

static luge_status conv2d_backward_weight_reference(const lg_call *call)
{
    const lg_conv2d_attrs *a = call->attrs;
    const luge_tensor *gy = call->in[0], *x = call->in[1];
    luge_tensor *gw = call->out[0];
    const geometry g = geometry_of(a);
    for (int64_t i = 0; i < gw->numel; ++i) {
        int64_t s = i % g.s, r = i / g.s % g.r, c = i / (g.s * g.r) % g.cg, k = i / (g.s * g.r * g.cg);
        double sum = 0;
        for (int64_t n = 0; n < g.n; ++n) {
            for (int64_t p = 0; p < g.ho; ++p) {
                int64_t row = p * a->stride[0] - a->padding_before[0] + r * a->dilation[0];
                for (int64_t q = 0; q < g.wo && row >= 0 && row < g.h; ++q) {
                    int64_t col = q * a->stride[1] - a->padding_before[1] + s * a->dilation[1];
                    if (col < 0 || col >= g.w) continue;
                    sum += lg_get(gy, at4(gy, n, k, p, q)) * lg_get(x, at4(x, n, k / g.kg * g.cg + c, row, col));
                }
            }
        }
        lg_put(gw, i, sum);
    }
    return LUGE_OK;
}

/* ---- gradients: each row is called by the others' backward, with the attributes it was called with */

static luge_tensor *forward(const lg_conv2d_attrs *a, luge_tensor *x, luge_tensor *weight)
{
    return LG_CALL(conv2d, a, luge_channels_last(x), weight, LUGE_NONE);
}
static luge_tensor *input_gradient(const lg_conv2d_attrs *a, luge_tensor *gy, luge_tensor *weight)
{
    return LG_CALL(conv2d_backward_input, a, luge_channels_last(gy), weight);
}
static luge_tensor *weight_gradient(const lg_conv2d_attrs *a, luge_tensor *gy, luge_tensor *x)
{
    return LG_CALL(conv2d_backward_weight, a, luge_channels_last(gy), luge_channels_last(x));
}

static luge_status conv2d_backward(lg_grad_call *g)
{
    luge_tensor *gy = g->grad_out[0];
    if (g->needs[0]) g->grad_in[0] = input_gradient(g->attrs, gy, g->in[1]);
    if (g->needs[1]) g->grad_in[1] = weight_gradient(g->attrs, gy, g->in[0]);
    if (g->needs[2]) g->grad_in[2] = luge_sum(gy, LUGE_AXES(0, 2, 3));
    return lg_error();
}

static luge_status conv2d_backward_input_backward(lg_grad_call *g)
{
    luge_tensor *ggx = g->grad_out[0];
    if (g->needs[0]) g->grad_in[0] = forward(g->attrs, ggx, g->in[1]);
    if (g->needs[1]) g->grad_in[1] = weight_gradient(g->attrs, g->in[0], ggx);
    return lg_error();
}

static luge_status conv2d_backward_weight_backward(lg_grad_call *g)
{
    luge_tensor *ggw = g->grad_out[0];
    if (g->needs[0]) g->grad_in[0] = forward(g->attrs, g->in[1], ggw);
    if (g->needs[1]) g->grad_in[1] = input_gradient(g->attrs, g->in[0], ggw);
    return lg_error();
}

const lg_op lg_op_conv2d = {
    .name = "conv2d",
    .n_in = 3,
    .n_out = 1,
    .optional = LG_IN(2),
    .reads = {LG_IN(1), LG_IN(0)},
    .cast = LUGE_CAST_LOW,
    .attrs_size = sizeof(lg_conv2d_attrs),
    .infer = conv2d_infer,
    .reference = conv2d_reference,
    .backward = conv2d_backward,
    .flops = conv2d_flops,
};

const lg_op lg_op_conv2d_backward_input = {
    .name = "conv2d_backward_input",
    .n_in = 2,
    .n_out = 1,
    .reads = {LG_IN(1), LG_IN(0)},
    .attrs_size = sizeof(lg_conv2d_attrs),
    .infer = conv2d_backward_input_infer,
    .reference = conv2d_backward_input_reference,
    .backward = conv2d_backward_input_backward,
    .flops = conv2d_flops,
};

const lg_op lg_op_conv2d_backward_weight = {
    .name = "conv2d_backward_weight",
    .n_in = 2,
    .n_out = 1,
    .reads = {LG_IN(1), LG_IN(0)},
    .attrs_size = sizeof(lg_conv2d_attrs),
    .infer = conv2d_backward_weight_infer,
    .reference = conv2d_backward_weight_reference,
    .backward = conv2d_backward_weight_backward,
    .flops = conv2d_flops,
};

/* ---- the public function */

/* Strides, paddings, dilations and kernels beyond this are no convolutions; below it, sizes of the
 * padded input and of the spread kernel fit in an int64_t. */
static const int64_t largest = INT32_MAX;

/* One option for both axes: `both`, or `hw` where that is set. `least` is the smallest value allowed. */
static bool pair(const char *name, int64_t both, const int64_t hw[2], int64_t fallback, int64_t least, int64_t out[2])
{
    bool given = hw[0] != 0 || hw[1] != 0;
    for (int i = 0; i < 2; ++i) {
        out[i] = given ? hw[i] : both;
        if (out[i] == 0) out[i] = fallback;
        if (out[i] >= least && out[i] <= largest) continue;
        lg_fail(LUGE_ERR_ARGUMENT, "conv2d: %s%s%s is %lld, but must lie between %lld%s and %lld", name,
                given ? "_hw" : "", !given ? "" : i == 0 ? "[0]" : "[1]", (long long)out[i], (long long)least,
                least == LUGE_SAME ? " (LUGE_SAME)" : "", (long long)largest);
        return false;
    }
    return true;
}

/* PyTorch's "same": where the padding is odd, the longer part comes after. */
static bool resolve_padding(lg_conv2d_attrs *a)
{
    for (int i = 0; i < 2; ++i) {
        a->padding_after[i] = a->padding_before[i];
        if (a->padding_before[i] != LUGE_SAME) continue;
        if (a->stride[i] != 1) {
            lg_fail(LUGE_ERR_ARGUMENT, "conv2d: padding LUGE_SAME needs a stride of 1, not %lld",
                    (long long)a->stride[i]);
            return false;
        }
        int64_t total = a->dilation[i] * (a->weight_shape.dim[2 + i] - 1);
        a->padding_before[i] = total / 2;
        a->padding_after[i] = total - total / 2;
    }
    return true;
}

static bool resolve_options(const luge_conv2d_options *given, lg_conv2d_attrs *a)
{
    static const luge_conv2d_options defaults = {0};
    const luge_conv2d_options *o = given == NULL ? &defaults : given;
    if (!lg_check_reserved(o->reserved, 8, "luge_conv2d_options")) return false;
    a->groups = o->groups == 0 ? 1 : o->groups;
    if (a->groups < 1) {
        lg_fail(LUGE_ERR_ARGUMENT, "conv2d: groups is %lld, but must be at least 1", (long long)a->groups);
        return false;
    }
    return pair("stride", o->stride, o->stride_hw, 1, 1, a->stride) &&
           pair("dilation", o->dilation, o->dilation_hw, 1, 1, a->dilation) &&
           pair("padding", o->padding, o->padding_hw, 0, LUGE_SAME, a->padding_before) && resolve_padding(a);
}

/* x and weight are [N, C, H, W] and [K, C/groups, R, S] and nothing but the batch is empty. */
static bool check_operands(const luge_shape *x, const luge_shape *weight)
{
    char text[LG_SHAPE_TEXT];
    if (x->rank != 4) {
        lg_fail(LUGE_ERR_SHAPE, "conv2d: the input is %s, but must be [N, C, H, W]", lg_shape_text(text, x));
        return false;
    }
    if (weight->rank != 4) {
        lg_fail(LUGE_ERR_SHAPE, "conv2d: the weight is %s, but must be [K, C/groups, R, S]",
                lg_shape_text(text, weight));
        return false;
    }
    for (int i = 0; i < 4; ++i) {
        if ((i == 0 || x->dim[i] > 0) && weight->dim[i] > 0) continue;
        char other[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "conv2d: only the batch may be empty: input %s, weight %s", lg_shape_text(text, x),
                lg_shape_text(other, weight));
        return false;
    }
    if (weight->dim[2] <= largest && weight->dim[3] <= largest) return true;
    lg_fail(LUGE_ERR_SHAPE, "conv2d: the kernel of weight %s is too large", lg_shape_text(text, weight));
    return false;
}

static bool check_fit(const lg_conv2d_attrs *a)
{
    const int64_t *x = a->in_shape.dim, *w = a->weight_shape.dim;
    if (w[0] % a->groups != 0) {
        lg_fail(LUGE_ERR_SHAPE, "conv2d: %lld output channels do not divide into %lld groups", (long long)w[0],
                (long long)a->groups);
        return false;
    }
    if (x[1] % a->groups != 0 || x[1] / a->groups != w[1]) {
        lg_fail(LUGE_ERR_SHAPE, "conv2d: input has %lld channels, the weight takes %lld x %lld groups", (long long)x[1],
                (long long)w[1], (long long)a->groups);
        return false;
    }
    for (int i = 0; i < 2; ++i) {
        if (out_size(a, i, x[2 + i], w[2 + i]) > 0) continue;
        lg_fail(LUGE_ERR_SHAPE, "conv2d: the kernel spans %lld %s, the padded input has %lld",
                (long long)(a->dilation[i] * (w[2 + i] - 1) + 1), i == 0 ? "rows" : "columns",
                (long long)(x[2 + i] + a->padding_before[i] + a->padding_after[i]));
        return false;
    }
    return true;
}

luge_tensor *luge_conv2d(luge_tensor *x, luge_tensor *weight, luge_tensor *bias, const luge_conv2d_options *options)
{
    if (!lg_usable(x, "conv2d: the input") || !lg_usable(weight, "conv2d: the weight") ||
        !lg_usable_or_none(bias, "conv2d: the bias"))
        return NULL;
    if (!check_operands(&x->shape, &weight->shape)) return NULL;
    lg_conv2d_attrs a = {.in_shape = x->shape, .weight_shape = weight->shape};
    if (!resolve_options(options, &a) || !check_fit(&a)) return NULL;
    return LG_CALL(conv2d, &a, luge_channels_last(x), weight, bias);
}
