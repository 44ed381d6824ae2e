/* Sums along an axis up to each element. */
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/reference.h"
#include <luge/ops.h>

static luge_status cumsum_infer(lg_call *call)
{
    lg_spec_contiguous(call, 0, lg_is_float(call->in[0]->dtype) ? call->in[0]->dtype : LUGE_I64, &call->in[0]->shape);
    return LUGE_OK;
}

static luge_status cumsum_reference(const lg_call *call)
{
    const lg_scan_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0];
    const int64_t n = x->shape.rank == 0 ? 1 : x->shape.dim[a->axis];
    int64_t inner = 1;
    for (int i = a->axis + 1; i < x->shape.rank; ++i) inner *= x->shape.dim[i];
    for (int64_t row = 0; row < x->numel / n; ++row) {
        double sum = 0;
        int64_t whole = 0;
        for (int64_t j = 0; j < n; ++j) {
            const int64_t i = row / inner * n * inner + row % inner + (a->reverse ? n - 1 - j : j) * inner;
            if (lg_is_float(x->dtype)) {
                lg_set(call->out[0], i, sum += lg_at(x, i));
            } else {
                whole = (int64_t)((uint64_t)whole + (uint64_t)lg_index_at(x, i)); /* wraps around */
                lg_store_i64((int64_t *)lg_data(call->out[0]) + i, LUGE_I64, whole);
            }
        }
    }
    return LUGE_OK;
}

/* Element i went into all sums from i on: the same from the other end. */
static luge_status cumsum_backward(lg_grad_call *g)
{
    lg_scan_attrs a = *(const lg_scan_attrs *)g->attrs;
    a.reverse = !a.reverse;
    g->grad_in[0] = LG_CALL(cumsum, &a, luge_contiguous(g->grad_out[0]));
    return lg_error();
}

const lg_op lg_op_cumsum = {
    .name = "cumsum",
    .n_in = 1,
    .n_out = 1,
    .cast = LUGE_CAST_F32,
    .attrs_size = sizeof(lg_scan_attrs),
    .infer = cumsum_infer,
    .reference = cumsum_reference,
    .backward = cumsum_backward,
};

luge_tensor *luge_cumsum(luge_tensor *a, int axis)
{
    if (!lg_usable(a, "cumsum: the input")) return NULL;
    const lg_scan_attrs attrs = {.axis = lg_axis(a->shape.rank, axis)};
    if (attrs.axis < 0) {
        lg_fail(LUGE_ERR_ARGUMENT, "cumsum: there is no axis %d in %d axes", axis, a->shape.rank);
        return NULL;
    }
    return LG_CALL(cumsum, &attrs, luge_contiguous(a));
}
