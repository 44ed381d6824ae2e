/* Dropout: which elements stay is decided by their place in row-major order and nothing else, so it
 * does not depend on layout, device or threads. */
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/reference.h"
#include <luge/ops.h>

static luge_status dropout_infer(lg_call *call)
{
    luge_status status = lg_need_float(call, 0, "the input");
    if (status != LUGE_OK) return status;
    lg_spec_like(call, 0, call->in[0]->dtype, call->in[0]);
    lg_spec_like(call, 1, LUGE_U8, call->in[0]);
    return LUGE_OK;
}

static luge_status dropout_reference(const lg_call *call)
{
    const lg_dropout_attrs *a = call->attrs;
    const uint64_t threshold = lg_dropout_threshold(a);
    const double scale = lg_dropout_scale(a);
    for (int64_t i = 0; i < call->in[0]->numel; ++i) {
        lg_philox block = lg_philox_block(a->rng.seed, a->rng.stream, a->rng.first + (uint64_t)i / 4);
        bool keep = block.v[i % 4] >= threshold;
        lg_set(call->out[0], i, keep ? lg_at(call->in[0], i) * scale : 0);
        lg_set(call->out[1], i, keep);
    }
    return LUGE_OK;
}

/* (g, mask) -> gx. Linear in g, so it is its own gradient. */
static luge_status dropout_backward_infer(lg_call *call)
{
    lg_spec_like(call, 0, call->in[0]->dtype, call->in[1]);
    return LUGE_OK;
}

static luge_status dropout_backward_reference(const lg_call *call)
{
    const double scale = lg_dropout_scale(call->attrs);
    for (int64_t i = 0; i < call->in[0]->numel; ++i)
        lg_set(call->out[0], i, lg_index_at(call->in[1], i) != 0 ? lg_at(call->in[0], i) * scale : 0);
    return LUGE_OK;
}

static luge_tensor *masked(const lg_grad_call *g, luge_tensor *mask)
{
    return LG_CALL(dropout_backward, g->attrs, lg_match_layout(g->grad_out[0], mask), mask);
}

static luge_status dropout_backward(lg_grad_call *g)
{
    if (g->needs[0]) g->grad_in[0] = masked(g, g->out[1]);
    return lg_error();
}

static luge_status dropout_backward_backward(lg_grad_call *g)
{
    if (g->needs[0]) g->grad_in[0] = masked(g, g->in[1]);
    return lg_error();
}

const lg_op lg_op_dropout = {
    .name = "dropout",
    .n_in = 1,
    .n_out = 2,
    .reads = {LG_OUT(1)},
    .attrs_size = sizeof(lg_dropout_attrs),
    .infer = dropout_infer,
    .reference = dropout_reference,
    .backward = dropout_backward,
};

const lg_op lg_op_dropout_backward = {
    .name = "dropout_backward",
    .n_in = 2,
    .n_out = 1,
    .reads = {LG_IN(1)},
    .attrs_size = sizeof(lg_dropout_attrs),
    .infer = dropout_backward_infer,
    .reference = dropout_backward_reference,
    .backward = dropout_backward_backward,
};

luge_tensor *luge_dropout(luge_tensor *a, double p, bool training)
{
    if (!lg_usable(a, "dropout")) return NULL;
    if (!(p >= 0 && p <= 1)) {
        lg_fail(LUGE_ERR_ARGUMENT, "dropout: p is %g, but must lie between 0 and 1", p);
        return NULL;
    }
    if (!lg_is_float(a->dtype)) {
        lg_fail(LUGE_ERR_DTYPE, "dropout: the input is %s, but must be of a float type", luge_dtype_name(a->dtype));
        return NULL;
    }
    if (!training || p == 0) return lg_lend(a);
    lg_dropout_attrs attrs = {.p = p, .rng = lg_rng_take(a->numel)};
    return LG_CALL(dropout, &attrs, a);
}
