/* softmax and log_softmax along an axis. A row of only -inf has no largest element to subtract: its
 * softmax is zeros, its log_softmax -inf, and softmax's gradient there is 0. */
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/reference.h"
#include <luge/ops.h>
#include <math.h>

/* ---- rows: all elements along the axis */

static luge_status rows_infer(lg_call *call)
{
    luge_status status = lg_need_float(call, 0, "the input");
    if (status == LUGE_OK) lg_spec_like(call, 0, call->in[0]->dtype, call->in[0]);
    return status;
}

/* (g, y) -> gx, laid out like y */
static luge_status rows_backward_infer(lg_call *call)
{
    lg_spec_like(call, 0, call->in[1]->dtype, call->in[1]);
    return LUGE_OK;
}

typedef void (*row_fn)(const lg_call *call, int64_t n, const int64_t *start, const int64_t *step);

/* Calls fn for each row: of every tensor (inputs, then the output) its start and the step along it. */
static luge_status for_rows(const lg_call *call, row_fn fn)
{
    const lg_axis_attrs *a = call->attrs;
    const luge_shape *shape = &call->out[0]->shape;
    int64_t n = shape->rank == 0 ? 1 : shape->dim[a->axis], inner = 1;
    for (int i = a->axis + 1; i < shape->rank; ++i) inner *= shape->dim[i];
    if (call->out[0]->numel == 0) return LUGE_OK;
    for (int64_t row = 0; row < call->out[0]->numel / n; ++row) {
        int64_t first = row / inner * n * inner + row % inner, start[3], step[3];
        for (int k = 0; k <= call->n_in; ++k) {
            const luge_tensor *t = k < call->n_in ? call->in[k] : call->out[0];
            start[k] = lg_offset(t, first);
            step[k] = shape->rank == 0 ? 0 : t->stride[a->axis];
        }
        fn(call, n, start, step);
    }
    return LUGE_OK;
}

/* The row's largest element and sum of e^(x - largest); sum 0 if there is nothing but -inf. */
static double row_sum(const luge_tensor *x, int64_t n, int64_t start, int64_t step, double *largest)
{
    double sum = 0;
    *largest = -INFINITY;
    for (int64_t j = 0; j < n; ++j) {
        double v = lg_get(x, start + j * step);
        if (v > *largest || isnan(v)) *largest = v;
    }
    for (int64_t j = 0; j < n && *largest != -INFINITY; ++j) sum += exp(lg_get(x, start + j * step) - *largest);
    return sum;
}

/* ---- softmax */

static void softmax_row(const lg_call *call, int64_t n, const int64_t *start, const int64_t *step)
{
    double largest, sum = row_sum(call->in[0], n, start[0], step[0], &largest);
    for (int64_t j = 0; j < n; ++j) {
        double v = sum == 0 ? 0 : exp(lg_get(call->in[0], start[0] + j * step[0]) - largest) / sum;
        lg_put(call->out[0], start[1] + j * step[1], v);
    }
}

/* gx = y (g - sum g y) */
static void softmax_backward_row(const lg_call *call, int64_t n, const int64_t *start, const int64_t *step)
{
    double dot = 0;
    for (int64_t j = 0; j < n; ++j)
        dot += lg_get(call->in[0], start[0] + j * step[0]) * lg_get(call->in[1], start[1] + j * step[1]);
    for (int64_t j = 0; j < n; ++j) {
        double g = lg_get(call->in[0], start[0] + j * step[0]), y = lg_get(call->in[1], start[1] + j * step[1]);
        lg_put(call->out[0], start[2] + j * step[2], y * (g - dot));
    }
}

static luge_status softmax_reference(const lg_call *call)
{
    return for_rows(call, softmax_row);
}
static luge_status softmax_backward_reference(const lg_call *call)
{
    return for_rows(call, softmax_backward_row);
}

static luge_axes along(const lg_grad_call *g)
{
    const lg_axis_attrs *a = g->attrs;
    return LUGE_AXES_KEEPDIM(a->axis);
}

static luge_status softmax_backward(lg_grad_call *g)
{
    luge_tensor *gy = g->grad_out[0], *y = g->out[0];
    if (g->needs[0]) g->grad_in[0] = luge_mul(y, luge_sub(gy, luge_sum(luge_mul(gy, y), along(g))));
    return lg_error();
}

static luge_status softmax_backward_fused(lg_grad_call *g)
{
    luge_tensor *gy = lg_match_layout(g->grad_out[0], g->out[0]);
    if (g->needs[0]) g->grad_in[0] = LG_CALL(softmax_backward, g->attrs, gy, g->out[0]);
    return lg_error();
}

const lg_op lg_op_softmax = {
    .name = "softmax",
    .n_in = 1,
    .n_out = 1,
    .reads = {LG_OUT(0)},
    .cast = LUGE_CAST_F32,
    .attrs_size = sizeof(lg_axis_attrs),
    .infer = rows_infer,
    .reference = softmax_reference,
    .backward = softmax_backward,
    .backward_fused = softmax_backward_fused,
};

const lg_op lg_op_softmax_backward = {
    .name = "softmax_backward",
    .n_in = 2,
    .n_out = 1,
    .attrs_size = sizeof(lg_axis_attrs),
    .infer = rows_backward_infer,
    .reference = softmax_backward_reference,
};

/* ---- log_softmax */

static void log_softmax_row(const lg_call *call, int64_t n, const int64_t *start, const int64_t *step)
{
    double largest, sum = row_sum(call->in[0], n, start[0], step[0], &largest);
    for (int64_t j = 0; j < n; ++j) {
        double v = sum == 0 ? -INFINITY : lg_get(call->in[0], start[0] + j * step[0]) - largest - log(sum);
        lg_put(call->out[0], start[1] + j * step[1], v);
    }
}

/* gx = g - e^y sum g */
static void log_softmax_backward_row(const lg_call *call, int64_t n, const int64_t *start, const int64_t *step)
{
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += lg_get(call->in[0], start[0] + j * step[0]);
    for (int64_t j = 0; j < n; ++j) {
        double g = lg_get(call->in[0], start[0] + j * step[0]), y = lg_get(call->in[1], start[1] + j * step[1]);
        lg_put(call->out[0], start[2] + j * step[2], g - exp(y) * sum);
    }
}

static luge_status log_softmax_reference(const lg_call *call)
{
    return for_rows(call, log_softmax_row);
}
static luge_status log_softmax_backward_reference(const lg_call *call)
{
    return for_rows(call, log_softmax_backward_row);
}

static luge_status log_softmax_backward(lg_grad_call *g)
{
    luge_tensor *gy = g->grad_out[0];
    if (g->needs[0]) g->grad_in[0] = luge_sub(gy, luge_mul(luge_exp(g->out[0]), luge_sum(gy, along(g))));
    return lg_error();
}

static luge_status log_softmax_backward_fused(lg_grad_call *g)
{
    luge_tensor *gy = lg_match_layout(g->grad_out[0], g->out[0]);
    if (g->needs[0]) g->grad_in[0] = LG_CALL(log_softmax_backward, g->attrs, gy, g->out[0]);
    return lg_error();
}

const lg_op lg_op_log_softmax = {
    .name = "log_softmax",
    .n_in = 1,
    .n_out = 1,
    .reads = {LG_OUT(0)},
    .cast = LUGE_CAST_F32,
    .attrs_size = sizeof(lg_axis_attrs),
    .infer = rows_infer,
    .reference = log_softmax_reference,
    .backward = log_softmax_backward,
    .backward_fused = log_softmax_backward_fused,
};

const lg_op lg_op_log_softmax_backward = {
    .name = "log_softmax_backward",
    .n_in = 2,
    .n_out = 1,
    .attrs_size = sizeof(lg_axis_attrs),
    .infer = rows_backward_infer,
    .reference = log_softmax_backward_reference,
};

/* ---- public functions */

static bool resolve(const char *op, luge_tensor *a, int axis, lg_axis_attrs *attrs)
{
    if (!lg_usable(a, op)) return false;
    attrs->axis = lg_axis(a->shape.rank, axis);
    if (attrs->axis >= 0) return true;
    char text[LG_SHAPE_TEXT];
    lg_fail(LUGE_ERR_ARGUMENT, "%s: %s has no axis %d", op, lg_shape_text(text, &a->shape), axis);
    return false;
}

luge_tensor *luge_softmax(luge_tensor *a, int axis)
{
    lg_axis_attrs attrs;
    return resolve("softmax", a, axis, &attrs) ? LG_CALL(softmax, &attrs, a) : NULL;
}

luge_tensor *luge_log_softmax(luge_tensor *a, int axis)
{
    lg_axis_attrs attrs;
    return resolve("log_softmax", a, axis, &attrs) ? LG_CALL(log_softmax, &attrs, a) : NULL;
}
