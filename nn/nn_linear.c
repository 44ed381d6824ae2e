/* Linear layers and embeddings: rows of a weight, weighted or looked up. */
#include "core/thread.h"
#include "nn/layers.h"

/* ---- Linear */

typedef struct linear {
    int64_t in, out;
    bool no_bias;
    luge_tensor *weight, *bias; /* [out, in], [out] or none */
} linear;

static void linear_build(luge_module *self, void *state)
{
    linear *l = state;
    l->weight = lg_add_weight(self, "weight", LUGE_SHAPE(l->out, l->in));
    l->bias = l->no_bias || l->weight == NULL ? luge_none() : lg_add_bias(self, "bias", l->weight);
}

static luge_tensor *linear_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    const linear *l = state;
    return luge_linear(x, l->weight, l->bias);
}

static const luge_module_class linear_class = {
    .name = "Linear", .state_size = sizeof(linear), .build = linear_build, .forward = linear_forward};

luge_module *luge_nn_linear(int64_t in, int64_t out, const luge_linear_options *options)
{
    const luge_linear_options o = options != NULL ? *options : (luge_linear_options)LUGE_DEFAULTS;
    if (!lg_check_size("Linear", "in", in) || !lg_check_size("Linear", "out", out) ||
        !lg_check_reserved(o.reserved, 4, "luge_linear_options")) {
        return NULL;
    }
    return luge_module_create(&linear_class, &(linear){.in = in, .out = out, .no_bias = o.no_bias});
}

/* ---- Embedding */

typedef struct embedding {
    int64_t count, dim;
    int64_t padding;     /* -1: none */
    luge_tensor *weight; /* [count, dim] */
} embedding;

static void embedding_build(luge_module *self, void *state)
{
    embedding *e = state;
    luge_tensor *values = luge_init_normal_(luge_empty(LUGE_SHAPE(e->count, e->dim), NULL), 0, 1);
    if (e->padding >= 0) luge_zero_(luge_select(values, 0, e->padding));
    e->weight = luge_module_add_param(self, "weight", values);
}

static luge_tensor *embedding_forward(luge_module *self, void *state, luge_tensor *indices)
{
    (void)self;
    const embedding *e = state;
    luge_tensor *rows = luge_embedding(e->weight, indices);
    if (e->padding < 0) return rows;
    /* The padding row is looked up as others are, but outside the graph. */
    const luge_tensor_options like = {.dtype = luge_tensor_dtype(indices), .device = luge_tensor_device(indices)};
    luge_tensor *is_padding = luge_eq(indices, luge_full(LUGE_SCALAR, (double)e->padding, &like));
    return luge_where(luge_unsqueeze(is_padding, -1), luge_detach(rows), rows);
}

static const luge_module_class embedding_class = {
    .name = "Embedding", .state_size = sizeof(embedding), .build = embedding_build, .forward = embedding_forward};

luge_module *luge_nn_embedding(int64_t count, int64_t dim, const luge_embedding_options *options)
{
    const luge_embedding_options o = options != NULL ? *options : (luge_embedding_options)LUGE_DEFAULTS;
    if (!lg_check_size("Embedding", "count", count) || !lg_check_size("Embedding", "dim", dim) ||
        !lg_check_reserved(o.reserved, 4, "luge_embedding_options")) {
        return NULL;
    }
    int64_t padding = -1;
    if (o.padding_idx != NULL) {
        padding = *o.padding_idx < 0 ? *o.padding_idx + count : *o.padding_idx;
        if (padding < 0 || padding >= count) {
            lg_fail(LUGE_ERR_ARGUMENT, "Embedding: padding_idx %lld is not one of %lld rows", (long long)*o.padding_idx,
                    (long long)count);
            return NULL;
        }
    }
    return luge_module_create(&embedding_class, &(embedding){.count = count, .dim = dim, .padding = padding});
}
