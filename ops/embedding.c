/* Rows of a table by index, and the sums of gradients into those rows. */
#include "core/alloc.h"
#include "ops/attrs.h"
#include "ops/check.h"
#include "ops/reference.h"
#include <luge/ops.h>
#include <string.h>

static luge_status embedding_infer(lg_call *call)
{
    const luge_tensor *weight = call->in[0], *indices = call->in[1];
    char text[LG_SHAPE_TEXT];
    luge_status status = lg_need_float(call, 0, "the weight");
    if (status == LUGE_OK) status = lg_need_indices(call, 1, "the index tensor");
    if (status != LUGE_OK) return status;
    if (weight->shape.rank != 2)
        return lg_op_fail(call, LUGE_ERR_SHAPE, "the weight is %s, but must be [count, dim]",
                          lg_shape_text(text, &weight->shape));
    if (indices->shape.rank == LUGE_MAX_RANK)
        return lg_op_fail(call, LUGE_ERR_SHAPE, "the result would have more than %d axes", LUGE_MAX_RANK);
    luge_shape shape = indices->shape;
    shape.dim[shape.rank++] = weight->shape.dim[1];
    if (lg_shape_numel(&shape) < 0) return lg_op_fail(call, LUGE_ERR_SHAPE, "the result is too large");
    status = lg_check_indices(call, 1, "index", weight->shape.dim[0], NULL);
    if (status == LUGE_OK) lg_spec_contiguous(call, 0, weight->dtype, &shape);
    return status;
}

static luge_status embedding_reference(const lg_call *call)
{
    const luge_tensor *weight = call->in[0], *indices = call->in[1];
    int64_t dim = weight->shape.dim[1];
    for (int64_t i = 0; i < indices->numel; ++i)
        for (int64_t j = 0; j < dim; ++j)
            lg_put(call->out[0], i * dim + j,
                   lg_get(weight, lg_index_at(indices, i) * weight->stride[0] + j * weight->stride[1]));
    return LUGE_OK;
}

static luge_status embedding_backward_infer(lg_call *call)
{
    const lg_embedding_attrs *a = call->attrs;
    const luge_shape *g = &call->in[0]->shape;
    luge_shape shape = LUGE_SHAPE(a->count, g->dim[g->rank - 1]);
    lg_spec_contiguous(call, 0, call->in[0]->dtype, &shape);
    return LUGE_OK;
}

static luge_status embedding_backward_reference(const lg_call *call)
{
    const luge_tensor *g = call->in[0], *indices = call->in[1];
    luge_tensor *gw = call->out[0];
    int64_t count = gw->shape.dim[0], dim = gw->shape.dim[1];
    if (gw->numel == 0) return LUGE_OK;
    double *sum = lg_alloc((size_t)count * sizeof *sum); /* of one column */
    if (sum == NULL) return lg_error();
    for (int64_t j = 0; j < dim; ++j) {
        memset(sum, 0, (size_t)count * sizeof *sum);
        for (int64_t i = 0; i < indices->numel; ++i) sum[lg_index_at(indices, i)] += lg_at(g, i * dim + j);
        for (int64_t row = 0; row < count; ++row) lg_put(gw, row * dim + j, sum[row]);
    }
    lg_free(sum);
    return LUGE_OK;
}

static luge_status embedding_backward(lg_grad_call *g)
{
    const lg_embedding_attrs a = {.count = g->in_shape[0].dim[0]};
    if (g->needs[0]) g->grad_in[0] = LG_CALL(embedding_backward, &a, luge_contiguous(g->grad_out[0]), g->in[1]);
    return lg_error();
}

static luge_status embedding_backward_backward(lg_grad_call *g)
{
    if (g->needs[0]) g->grad_in[0] = luge_embedding(g->grad_out[0], g->in[1]);
    return lg_error();
}

const lg_op lg_op_embedding = {
    .name = "embedding",
    .n_in = 2,
    .n_out = 1,
    .reads = {LG_IN(1)},
    .infer = embedding_infer,
    .reference = embedding_reference,
    .backward = embedding_backward,
};

const lg_op lg_op_embedding_backward = {
    .name = "embedding_backward",
    .n_in = 2,
    .n_out = 1,
    .reads = {LG_IN(1)},
    .attrs_size = sizeof(lg_embedding_attrs),
    .infer = embedding_backward_infer,
    .reference = embedding_backward_reference,
    .backward = embedding_backward_backward,
};

luge_tensor *luge_embedding(luge_tensor *weight, luge_tensor *indices)
{
    return LG_CALL(embedding, NULL, weight, indices);
}
