/* Pooling over windows of [N, C, H, W]: maximum, mean, and the mean over windows that adapt to the
 * output's size. Results lie in memory as the input does. */
#include "core/alloc.h"
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/compose.h"
#include "ops/reference.h"
#include <float.h>
#include <luge/ops.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- windows */

/* The elements [from, to) of one axis in a window, and their number with the padding. */
typedef struct window {
    int64_t from, to, padded;
} window;

static window window_at(const lg_pool2d_attrs *a, int axis, int64_t i)
{
    int64_t size = a->in_shape.dim[2 + axis], out = a->out[axis];
    if (a->adaptive) {
        /* floor(i size / out) to ceil((i + 1) size / out), without the large product */
        int64_t whole = size / out, rest = size % out;
        int64_t from = i * whole + i * rest / out, to = (i + 1) * whole + ((i + 1) * rest + out - 1) / out;
        return (window){from, to, to - from};
    }
    int64_t from = i * a->stride[axis] - a->padding[axis], to = from + a->kernel[axis];
    if (to > size + a->padding[axis]) to = size + a->padding[axis];
    return (window){from > 0 ? from : 0, to < size ? to : size, to - from};
}

static int64_t at4(const luge_tensor *t, int64_t plane, int64_t row, int64_t col)
{
    int64_t channels = t->shape.dim[1];
    return plane / channels * t->stride[0] + plane % channels * t->stride[1] + row * t->stride[2] + col * t->stride[3];
}

static luge_status pool_infer(lg_call *call)
{
    const lg_pool2d_attrs *a = call->attrs;
    luge_status status = lg_need_float(call, 0, "the input");
    if (status != LUGE_OK) return status;
    luge_shape shape = LUGE_SHAPE(a->in_shape.dim[0], a->in_shape.dim[1], a->out[0], a->out[1]);
    if (lg_shape_numel(&shape) < 0) return lg_op_fail(call, LUGE_ERR_SHAPE, "the result is too large");
    lg_spec_image(call, 0, &shape, call->in[0]);
    return LUGE_OK;
}

/* out[0] = the value of each window of in[0] [N, C, H, W] */
static luge_status gather(const lg_call *call,
                          double (*value)(const lg_call *, int64_t plane, window rows, window cols))
{
    const lg_pool2d_attrs *a = call->attrs;
    luge_tensor *y = call->out[0];
    for (int64_t i = 0; i < y->numel; ++i) {
        int64_t col = i % a->out[1], row = i / a->out[1] % a->out[0], plane = i / (a->out[1] * a->out[0]);
        lg_put(y, at4(y, plane, row, col), value(call, plane, window_at(a, 0, row), window_at(a, 1, col)));
    }
    return LUGE_OK;
}

/* out[0] [N, C, H, W] = what the gradients in[0] of the windows add up to. Windows overlap, so a plane
 * is summed in doubles, row-major, and stored once. */
static luge_status scatter(const lg_call *call,
                           void (*add)(const lg_call *, int64_t plane, window rows, window cols, double g, double *sum))
{
    const lg_pool2d_attrs *a = call->attrs;
    const luge_tensor *g = call->in[0];
    luge_tensor *gx = call->out[0];
    int64_t height = a->in_shape.dim[2], width = a->in_shape.dim[3];
    if (gx->numel == 0) return LUGE_OK;
    double *sum = lg_alloc((size_t)(height * width) * sizeof *sum);
    if (sum == NULL) return lg_error();
    for (int64_t plane = 0; plane < a->in_shape.dim[0] * a->in_shape.dim[1]; ++plane) {
        memset(sum, 0, (size_t)(height * width) * sizeof *sum);
        for (int64_t row = 0; row < a->out[0]; ++row)
            for (int64_t col = 0; col < a->out[1]; ++col)
                add(call, plane, window_at(a, 0, row), window_at(a, 1, col), lg_get(g, at4(g, plane, row, col)), sum);
        for (int64_t i = 0; i < height * width; ++i) lg_put(gx, at4(gx, plane, i / width, i % width), sum[i]);
    }
    lg_free(sum);
    return LUGE_OK;
}

/* ---- max */

/* Row-major place in the plane of a window's first largest element, or of its first NaN. */
static int64_t largest_of(const luge_tensor *x, int64_t plane, window rows, window cols)
{
    int64_t width = x->shape.dim[3], best = rows.from * width + cols.from;
    double value = lg_get(x, at4(x, plane, rows.from, cols.from));
    for (int64_t r = rows.from; r < rows.to; ++r) {
        for (int64_t c = cols.from; c < cols.to && !isnan(value); ++c) {
            double other = lg_get(x, at4(x, plane, r, c));
            if (!(other > value) && !isnan(other)) continue;
            best = r * width + c;
            value = other;
        }
    }
    return best;
}

static double max_value(const lg_call *call, int64_t plane, window rows, window cols)
{
    const luge_tensor *x = call->in[0];
    int64_t width = x->shape.dim[3], best = largest_of(x, plane, rows, cols);
    return lg_get(x, at4(x, plane, best / width, best % width));
}

static void max_add(const lg_call *call, int64_t plane, window rows, window cols, double g, double *sum)
{
    sum[largest_of(call->in[1], plane, rows, cols)] += g;
}

static luge_status max_pool2d_reference(const lg_call *call)
{
    return gather(call, max_value);
}
static luge_status max_pool2d_backward_reference(const lg_call *call)
{
    return scatter(call, max_add);
}

static luge_status max_pool2d_backward_infer(lg_call *call)
{
    lg_spec_like(call, 0, call->in[1]->dtype, call->in[1]);
    return LUGE_OK;
}

/* The composed gradient takes each window apart into its elements with a convolution by unit kernels,
 * one plane at a time: [N C, 1, H, W] -> [N C, places, H', W']. */
static lg_conv2d_attrs windows_apart(const lg_pool2d_attrs *a)
{
    const int64_t *x = a->in_shape.dim, *k = a->kernel;
    lg_conv2d_attrs c = {.dilation = {1, 1}, .groups = 1};
    c.in_shape = LUGE_SHAPE(x[0] * x[1], 1, x[2], x[3]);
    c.weight_shape = LUGE_SHAPE(k[0] * k[1], 1, k[0], k[1]);
    for (int i = 0; i < 2; ++i) {
        int64_t after = (a->out[i] - 1) * a->stride[i] + k[i] - x[2 + i] - a->padding[i];
        c.stride[i] = a->stride[i];
        c.padding_before[i] = a->padding[i];
        c.padding_after[i] = after > 0 ? after : 0;
    }
    return c;
}

/* 1 at the place of each window that the maximum came from, 0 elsewhere: [N C, places, H', W']. x [N C, 1, H, W]
 * is made finite first, as the unit kernels multiply by 0. */
static luge_tensor *chosen(const lg_conv2d_attrs *c, luge_tensor *x, luge_tensor *units)
{
    const double most = x != NULL && x->dtype == LUGE_F64 ? DBL_MAX : FLT_MAX;
    lg_conv2d_attrs one = *c;
    one.in_shape.dim[0] = 1;
    luge_tensor *apart = LG_CALL(conv2d, c, luge_channels_last(luge_clamp(x, -most, most)), units, LUGE_NONE);
    luge_tensor *inside =
        LG_CALL(conv2d, &one, luge_channels_last(luge_ones_like(luge_slice(x, 0, 0, 1))), units, LUGE_NONE);
    apart = luge_where(luge_gt(inside, lg_number_like(x, 0.5)), apart, lg_number_like(x, -HUGE_VAL));
    const luge_tensor_options index = {.dtype = LUGE_I64, .device = luge_tensor_device(x)};
    luge_tensor *places = luge_arange(0, (double)c->weight_shape.dim[0], 1, &index);
    luge_tensor *best = luge_unsqueeze(luge_argmax(apart, 1), 1);
    return luge_cast(luge_eq(best, luge_reshape(places, LUGE_SHAPE(c->weight_shape.dim[0], 1, 1))),
                     luge_tensor_dtype(x));
}

static luge_status max_pool2d_backward(lg_grad_call *g)
{
    const lg_pool2d_attrs *a = g->attrs;
    const lg_conv2d_attrs c = windows_apart(a);
    if (!g->needs[0] || c.in_shape.dim[0] == 0) return LUGE_OK;
    luge_tensor *x = luge_cast(luge_reshape(luge_detach(g->in[0]), c.in_shape), lg_accumulate_type(g->in_dtype[0]));
    const luge_tensor_options like = {.dtype = luge_tensor_dtype(x), .device = luge_tensor_device(x)};
    luge_tensor *number = luge_arange(0, (double)c.weight_shape.dim[0], 1, &like);
    luge_tensor *units =
        luge_reshape(luge_cast(luge_eq(luge_unsqueeze(number, 1), number), like.dtype), c.weight_shape);
    luge_tensor *gy =
        luge_cast(luge_reshape(g->grad_out[0], LUGE_SHAPE(c.in_shape.dim[0], 1, a->out[0], a->out[1])), like.dtype);
    luge_tensor *apart = luge_mul(gy, chosen(&c, x, units));
    luge_tensor *gx = LG_CALL(conv2d_backward_input, &c, luge_channels_last(apart), units);
    g->grad_in[0] = luge_reshape(gx, a->in_shape);
    return lg_error();
}

static luge_status max_pool2d_backward_fused(lg_grad_call *g)
{
    luge_tensor *gy = lg_match_layout(g->grad_out[0], g->out[0]);
    if (g->needs[0]) g->grad_in[0] = LG_CALL(max_pool2d_backward, g->attrs, gy, g->in[0], g->out[0]);
    return lg_error();
}

const lg_op lg_op_max_pool2d = {
    .name = "max_pool2d",
    .n_in = 1,
    .n_out = 1,
    .reads = {LG_IN(0) | LG_OUT(0)},
    .attrs_size = sizeof(lg_pool2d_attrs),
    .infer = pool_infer,
    .reference = max_pool2d_reference,
    .backward = max_pool2d_backward,
    .backward_fused = max_pool2d_backward_fused,
};

const lg_op lg_op_max_pool2d_backward = {
    .name = "max_pool2d_backward",
    .n_in = 3,
    .n_out = 1,
    .attrs_size = sizeof(lg_pool2d_attrs),
    .infer = max_pool2d_backward_infer,
    .reference = max_pool2d_backward_reference,
};

/* ---- mean: linear, so its gradient's gradient is itself */

static double divisor(const lg_pool2d_attrs *a, window rows, window cols)
{
    if (a->include_padding) return (double)rows.padded * (double)cols.padded;
    return (double)(rows.to - rows.from) * (double)(cols.to - cols.from);
}

static double mean_value(const lg_call *call, int64_t plane, window rows, window cols)
{
    const luge_tensor *x = call->in[0];
    double sum = 0;
    for (int64_t r = rows.from; r < rows.to; ++r)
        for (int64_t c = cols.from; c < cols.to; ++c) sum += lg_get(x, at4(x, plane, r, c));
    return sum / divisor(call->attrs, rows, cols);
}

static void mean_add(const lg_call *call, int64_t plane, window rows, window cols, double g, double *sum)
{
    const lg_pool2d_attrs *a = call->attrs;
    (void)plane;
    for (int64_t r = rows.from; r < rows.to; ++r)
        for (int64_t c = cols.from; c < cols.to; ++c) sum[r * a->in_shape.dim[3] + c] += g / divisor(a, rows, cols);
}

static luge_status avg_pool2d_reference(const lg_call *call)
{
    return gather(call, mean_value);
}
static luge_status avg_pool2d_backward_reference(const lg_call *call)
{
    return scatter(call, mean_add);
}

static luge_status avg_pool2d_backward_infer(lg_call *call)
{
    const lg_pool2d_attrs *a = call->attrs;
    const luge_tensor *g = call->in[0];
    /* A gradient of 1 x 1 windows has both layouts, and what is pooled comes from convolutions. */
    if (lg_strides_are_channels_last(&g->shape, g->stride)) lg_spec_channels_last(call, 0, g->dtype, &a->in_shape);
    else lg_spec_contiguous(call, 0, g->dtype, &a->in_shape);
    return LUGE_OK;
}

static luge_tensor *dense(luge_tensor *t)
{
    return lg_strides_are_channels_last(&t->shape, t->stride) ? t : luge_contiguous(t);
}

static luge_status avg_pool2d_backward(lg_grad_call *g)
{
    if (g->needs[0]) g->grad_in[0] = LG_CALL(avg_pool2d_backward, g->attrs, dense(g->grad_out[0]));
    return lg_error();
}

static luge_status avg_pool2d_backward_backward(lg_grad_call *g)
{
    if (g->needs[0]) g->grad_in[0] = LG_CALL(avg_pool2d, g->attrs, g->grad_out[0]);
    return lg_error();
}

const lg_op lg_op_avg_pool2d = {
    .name = "avg_pool2d",
    .n_in = 1,
    .n_out = 1,
    .attrs_size = sizeof(lg_pool2d_attrs),
    .infer = pool_infer,
    .reference = avg_pool2d_reference,
    .backward = avg_pool2d_backward,
};

const lg_op lg_op_avg_pool2d_backward = {
    .name = "avg_pool2d_backward",
    .n_in = 1,
    .n_out = 1,
    .attrs_size = sizeof(lg_pool2d_attrs),
    .infer = avg_pool2d_backward_infer,
    .reference = avg_pool2d_backward_reference,
    .backward = avg_pool2d_backward_backward,
};

/* ---- public functions */

/* So that sums of sizes, paddings and kernels fit in an int64_t. */
static const int64_t largest = INT32_MAX;

static bool check_input(luge_tensor *x, const char *op)
{
    if (!lg_ok()) return false;
    char text[LG_SHAPE_TEXT];
    snprintf(text, sizeof text, "%s: the input", op);
    if (!lg_check_tensor(x, text)) return false;
    if (x->shape.rank == 4 && x->shape.dim[1] > 0 && x->shape.dim[2] > 0 && x->shape.dim[3] > 0) return true;
    lg_fail(LUGE_ERR_SHAPE, "%s: the input is %s, but must be [N, C, H, W] with nothing but the batch empty", op,
            lg_shape_text(text, &x->shape));
    return false;
}

/* Number of windows along an axis. With ceil_mode the last one may hang over the end, but must begin
 * in the input or in the padding before it. */
static int64_t windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, bool ceil_mode)
{
    int64_t room = size + 2 * padding - kernel;
    if (room < 0 && !(ceil_mode && room + stride > 0)) return 0;
    int64_t count = ceil_mode ? (room + stride - 1) / stride + 1 : room / stride + 1;
    return ceil_mode && (count - 1) * stride >= size + padding ? count - 1 : count;
}

static bool resolve(const char *op, luge_tensor *x, int64_t kernel, const luge_pool2d_options *given,
                    lg_pool2d_attrs *a)
{
    static const luge_pool2d_options defaults = {0};
    const luge_pool2d_options *o = given == NULL ? &defaults : given;
    if (!check_input(x, op) || !lg_check_reserved(o->reserved, 4, "luge_pool2d_options")) return false;
    if (kernel < 1 || kernel > largest || o->stride < 0 || o->stride > largest) {
        lg_fail(LUGE_ERR_ARGUMENT,
                "%s: the kernel is %lld and the stride %lld, but a kernel lies between 1 and %lld, a stride between 0 (the "
                "kernel's size) and that",
                op, (long long)kernel, (long long)o->stride, (long long)largest);
        return false;
    }
    if (o->padding < 0 || o->padding > kernel / 2) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: padding is %lld, but must lie between 0 and half the kernel, %lld", op,
                (long long)o->padding, (long long)(kernel / 2));
        return false;
    }
    *a = (lg_pool2d_attrs){.include_padding = !o->exclude_padding, .in_shape = x->shape};
    for (int i = 0; i < 2; ++i) {
        a->kernel[i] = kernel;
        a->stride[i] = o->stride == 0 ? kernel : o->stride;
        a->padding[i] = o->padding;
        a->out[i] = windows(x->shape.dim[2 + i], kernel, a->stride[i], o->padding, o->ceil_mode);
        if (a->out[i] > 0) continue;
        lg_fail(LUGE_ERR_SHAPE, "%s: the kernel spans %lld %s, the padded input has %lld", op, (long long)kernel,
                i == 0 ? "rows" : "columns", (long long)(x->shape.dim[2 + i] + 2 * o->padding));
        return false;
    }
    return true;
}

luge_tensor *luge_max_pool2d(luge_tensor *x, int64_t kernel, const luge_pool2d_options *options)
{
    lg_pool2d_attrs a;
    return resolve("max_pool2d", x, kernel, options, &a) ? LG_CALL(max_pool2d, &a, x) : NULL;
}

luge_tensor *luge_avg_pool2d(luge_tensor *x, int64_t kernel, const luge_pool2d_options *options)
{
    lg_pool2d_attrs a;
    return resolve("avg_pool2d", x, kernel, options, &a) ? LG_CALL(avg_pool2d, &a, x) : NULL;
}

luge_tensor *luge_adaptive_avg_pool2d(luge_tensor *x, int64_t height, int64_t width)
{
    if (!check_input(x, "adaptive_avg_pool2d")) return NULL;
    if (height < 1 || height > largest || width < 1 || width > largest) {
        lg_fail(LUGE_ERR_ARGUMENT, "adaptive_avg_pool2d: the output cannot be %lld x %lld", (long long)height,
                (long long)width);
        return NULL;
    }
    lg_pool2d_attrs a = {.out = {height, width}, .adaptive = true, .in_shape = x->shape};
    return LG_CALL(avg_pool2d, &a, x);
}
