/* Multi-head attention and the transformer encoder layer, with PyTorch's names and arithmetic
 * (batch_first=True). */
#include "core/shape.h"
#include "core/thread.h"
#include "nn/layers.h"
#include "nn/module.h"

/* ---- MultiheadAttention */

typedef struct mha {
    int64_t dim, heads;
    luge_mha_options options;
    luge_tensor *in_weight, *in_bias; /* [3 dim, dim], [3 dim] or none: query, key, value */
    luge_module *out_proj;
} mha;

static void mha_build(luge_module *self, void *state)
{
    mha *a = state;
    const luge_linear_options out = {.no_bias = a->options.no_bias};
    luge_tensor *weight = luge_empty(LUGE_SHAPE(3 * a->dim, a->dim), NULL);
    a->in_weight = luge_module_add_param(self, "in_proj_weight", luge_init_xavier_uniform_(weight));
    a->in_bias = a->options.no_bias ? luge_none() : lg_add_constant(self, "in_proj_bias", LUGE_SHAPE(3 * a->dim), 0);
    a->out_proj = luge_module_add(self, "out_proj", luge_nn_linear(a->dim, a->dim, &out));
    if (a->out_proj == NULL || a->options.no_bias) return;
    luge_scope no_grad = luge_no_grad_enter();
    luge_zero_(luge_module_param(a->out_proj, "bias"));
    luge_scope_exit(no_grad, NULL);
}

static bool check_input(const mha *a, const luge_tensor *x, const char *what)
{
    if (!lg_check_tensor(x, what)) return false;
    if (x->shape.rank == 3 && x->shape.dim[2] == a->dim) return true;
    char text[LG_SHAPE_TEXT];
    lg_fail(LUGE_ERR_SHAPE, "the %s is %s, not [N, L, %lld]", what, lg_shape_text(text, &x->shape), (long long)a->dim);
    return false;
}

/* [N, L, dim] -> [N, heads, L, dim / heads], a view. */
static luge_tensor *split_heads(const mha *a, luge_tensor *x)
{
    const luge_shape s = luge_tensor_shape(x);
    luge_tensor *heads = luge_reshape(x, LUGE_SHAPE(s.dim[0], s.dim[1], a->heads, a->dim / a->heads));
    return luge_transpose(heads, 1, 2);
}

/* The part of the input projection for x: `part` 0 query, 1 key, 2 value. */
static luge_tensor *project(const mha *a, luge_tensor *x, int part)
{
    luge_tensor *weight = luge_slice(a->in_weight, 0, part * a->dim, (part + 1) * a->dim);
    luge_tensor *bias =
        lg_is_none(a->in_bias) ? a->in_bias : luge_slice(a->in_bias, 0, part * a->dim, (part + 1) * a->dim);
    return split_heads(a, luge_linear(x, weight, bias));
}

/* Fills qkv[3], [N, heads, L, dim / heads] each. Self-attention takes one product instead of three. */
static void project_all(const mha *a, luge_tensor *const *x, luge_tensor **qkv)
{
    const bool self_attention = x[0] == x[1] && x[0] == x[2];
    luge_tensor *all = self_attention ? luge_linear(x[0], a->in_weight, a->in_bias) : NULL; /* [N, L, 3 dim] */
    for (int i = 0; i < 3; ++i) {
        qkv[i] =
            self_attention ? split_heads(a, luge_slice(all, 2, i * a->dim, (i + 1) * a->dim)) : project(a, x[i], i);
    }
}

/* Two inputs are x and a mask; who meant a query and a key is told so. */
static bool check_mask(const mha *a, const luge_tensor *x, const luge_tensor *mask)
{
    const luge_shape *q = &x->shape;
    luge_shape scores = LUGE_SHAPE(q->dim[0], a->heads, q->dim[1], q->dim[1]), both = scores;
    if (lg_is_none(mask)) return true;
    if (!lg_check_tensor(mask, "mask")) return false;
    if (lg_broadcast(&both, &mask->shape) && lg_shape_equal(&both, &scores)) return true;
    char is[LG_SHAPE_TEXT], should[LG_SHAPE_TEXT];
    lg_fail(LUGE_ERR_SHAPE,
            "two inputs are (x, mask), but %s is no mask: it does not broadcast to %s. For another key and value "
            "give (query, key, value)",
            lg_shape_text(is, &mask->shape), lg_shape_text(should, &scores));
    return false;
}

static luge_tensor *mha_forward(luge_module *self, void *state, luge_list in)
{
    const mha *a = state;
    if (in.count < 1 || in.count > 4) {
        lg_fail(LUGE_ERR_ARGUMENT, "%d inputs, not (x), (x, mask), (query, key, value) or (query, key, value, mask)",
                in.count);
        return NULL;
    }
    luge_tensor *const mask = in.count % 2 == 0 ? in.items[in.count - 1] : luge_none();
    luge_tensor *x[3] = {in.items[0], in.items[0], in.items[0]};
    if (in.count > 2) {
        x[1] = in.items[1];
        x[2] = in.items[2];
    }
    if (!check_input(a, x[0], "query") || !check_input(a, x[1], "key") || !check_input(a, x[2], "value")) return NULL;
    if (in.count == 2 && !check_mask(a, x[0], mask)) return NULL;

    luge_tensor *qkv[3];
    project_all(a, x, qkv);
    const luge_attention_options options = {.dropout = luge_module_training(self) ? a->options.dropout : 0,
                                            .causal = a->options.causal};
    luge_tensor *heads = luge_attention(qkv[0], qkv[1], qkv[2], mask, &options); /* [N, heads, L, dim / heads] */
    luge_tensor *joined = luge_reshape(luge_transpose(heads, 1, 2), x[0]->shape);
    return luge_forward(a->out_proj, joined);
}

static const luge_module_class mha_class = {
    .name = "MultiheadAttention", .state_size = sizeof(mha), .build = mha_build, .forward_list = mha_forward};

luge_module *luge_nn_multihead_attention(int64_t dim, int64_t heads, const luge_mha_options *options)
{
    const char *name = mha_class.name;
    mha a = {.dim = dim, .heads = heads};
    if (options != NULL) a.options = *options;
    if (!lg_check_size(name, "dim", dim) || !lg_check_size(name, "heads", heads) ||
        !lg_check_range(name, "dropout", a.options.dropout, 0, 1) ||
        !lg_check_reserved(a.options.reserved, 4, "luge_mha_options")) {
        return NULL;
    }
    if (dim % heads != 0 || dim > INT64_MAX / 3) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: dim %lld does not divide into %lld heads", name, (long long)dim,
                (long long)heads);
        return NULL;
    }
    return luge_module_create(&mha_class, &a);
}

/* ---- TransformerEncoderLayer */

typedef struct encoder {
    int64_t dim, heads, feedforward;
    double dropout, eps;
    bool gelu, norm_first, causal;
    luge_module *attention, *linear1, *inner_dropout, *linear2, *norm1, *norm2, *dropout1, *dropout2;
} encoder;

static void encoder_build(luge_module *self, void *state)
{
    encoder *e = state;
    const luge_mha_options attention = {.dropout = e->dropout, .causal = e->causal};
    const luge_norm_options norm = {.eps = e->eps};
    e->attention = luge_module_add(self, "self_attn", luge_nn_multihead_attention(e->dim, e->heads, &attention));
    e->linear1 = luge_module_add(self, "linear1", luge_nn_linear(e->dim, e->feedforward, NULL));
    e->inner_dropout = luge_module_add(self, "dropout", luge_nn_dropout(e->dropout));
    e->linear2 = luge_module_add(self, "linear2", luge_nn_linear(e->feedforward, e->dim, NULL));
    e->norm1 = luge_module_add(self, "norm1", luge_nn_layer_norm(LUGE_SHAPE(e->dim), &norm));
    e->norm2 = luge_module_add(self, "norm2", luge_nn_layer_norm(LUGE_SHAPE(e->dim), &norm));
    e->dropout1 = luge_module_add(self, "dropout1", luge_nn_dropout(e->dropout));
    e->dropout2 = luge_module_add(self, "dropout2", luge_nn_dropout(e->dropout));
}

static luge_tensor *attend(const encoder *e, luge_tensor *x)
{
    return luge_forward(e->dropout1, luge_forward(e->attention, x));
}

static luge_tensor *feed_forward(const encoder *e, luge_tensor *x)
{
    luge_tensor *h = luge_forward(e->linear1, x);
    h = luge_forward(e->inner_dropout, e->gelu ? luge_gelu(h) : luge_relu(h));
    return luge_forward(e->dropout2, luge_forward(e->linear2, h));
}

static luge_tensor *encoder_forward(luge_module *self, void *state, luge_tensor *x) /* [N, L, dim] */
{
    (void)self;
    const encoder *e = state;
    if (e->norm_first) {
        x = luge_add(x, attend(e, luge_forward(e->norm1, x)));
        return luge_add(x, feed_forward(e, luge_forward(e->norm2, x)));
    }
    x = luge_forward(e->norm1, luge_add(x, attend(e, x)));
    return luge_forward(e->norm2, luge_add(x, feed_forward(e, x)));
}

static const luge_module_class encoder_class = {.name = "TransformerEncoderLayer",
                                                .state_size = sizeof(encoder),
                                                .build = encoder_build,
                                                .forward = encoder_forward};

luge_module *luge_nn_transformer_encoder_layer(int64_t dim, int64_t heads, const luge_transformer_options *options)
{
    const char *name = encoder_class.name;
    const luge_transformer_options o = options != NULL ? *options : (luge_transformer_options)LUGE_DEFAULTS;
    const encoder e = {.dim = dim,
                       .heads = heads,
                       .feedforward = o.dim_feedforward != 0 ? o.dim_feedforward : 2048,
                       .dropout = o.dropout != NULL ? *o.dropout : 0.1,
                       .eps = o.layer_norm_eps,
                       .gelu = o.gelu,
                       .norm_first = o.norm_first,
                       .causal = o.causal};
    if (!lg_check_size(name, "dim_feedforward", e.feedforward) || !lg_check_range(name, "dropout", e.dropout, 0, 1) ||
        !lg_check_reserved(o.reserved, 4, "luge_transformer_options")) {
        return NULL;
    }
    return luge_module_create(&encoder_class, &e);
}
