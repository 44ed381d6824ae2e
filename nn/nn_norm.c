/* Batch norm and layer norm. */
#include "core/shape.h"
#include "core/thread.h"
#include "nn/layers.h"
#include "nn/module.h"

static bool check_options(const char *layer, const luge_norm_options *given, luge_norm_options *out)
{
    *out = given != NULL ? *given : (luge_norm_options)LUGE_DEFAULTS;
    out->eps = lg_or_default(out->eps, 1e-5);
    out->momentum = lg_or_default(out->momentum, 0.1);
    return lg_check_range(layer, "eps", out->eps, 0, 1e30) && lg_check_range(layer, "momentum", out->momentum, 0, 1) &&
           lg_check_reserved(out->reserved, 4, "luge_norm_options");
}

/* ---- BatchNorm */

typedef struct batch_norm {
    int64_t channels;
    int min_rank, max_rank; /* of inputs */
    luge_norm_options options;
    luge_tensor *weight, *bias;        /* [C] or none */
    luge_tensor *mean, *var, *batches; /* [C], [C], i64 scalar */
} batch_norm;

static void batch_norm_build(luge_module *self, void *state)
{
    batch_norm *b = state;
    const luge_shape shape = LUGE_SHAPE(b->channels);
    b->weight = b->bias = luge_none();
    if (!b->options.no_affine) {
        b->weight = lg_add_constant(self, "weight", shape, 1);
        b->bias = lg_add_constant(self, "bias", shape, 0);
    }
    b->mean = luge_module_add_buffer(self, "running_mean", luge_zeros(shape, NULL));
    b->var = luge_module_add_buffer(self, "running_var", luge_ones(shape, NULL));
    b->batches = luge_module_add_buffer(self, "num_batches_tracked",
                                        luge_zeros(LUGE_SCALAR, &(luge_tensor_options){.dtype = LUGE_I64}));
}

static luge_tensor *batch_norm_forward(luge_module *self, void *state, luge_tensor *x) /* [N, C, ...] */
{
    const batch_norm *b = state;
    const int rank = luge_tensor_shape(x).rank;
    if (rank < b->min_rank || rank > b->max_rank) {
        char text[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "input %s has %d axes; %s takes %s", lg_shape_text(text, &x->shape), rank,
                luge_module_kind(self), b->max_rank == 4 ? "[N, C, H, W]" : "[N, C] or [N, C, L]");
        return NULL;
    }
    /* Frozen, it is a fixed function: as in eval mode. */
    const bool training = luge_module_training(self) && !lg_module_is_frozen(self);
    const luge_batch_norm_options options = {
        .training = training, .momentum = b->options.momentum, .eps = b->options.eps};
    luge_tensor *y = luge_batch_norm(x, b->mean, b->var, b->weight, b->bias, &options);
    if (training && y != NULL && x->numel > 0) {
        luge_scope no_grad = luge_no_grad_enter();
        luge_add_scalar_(b->batches, 1);
        luge_scope_exit(no_grad, NULL);
    }
    return y;
}

static const luge_module_class batch_norm1d_class = {
    .name = "BatchNorm1d", .state_size = sizeof(batch_norm), .build = batch_norm_build, .forward = batch_norm_forward};
static const luge_module_class batch_norm2d_class = {
    .name = "BatchNorm2d", .state_size = sizeof(batch_norm), .build = batch_norm_build, .forward = batch_norm_forward};

static luge_module *make_batch_norm(const luge_module_class *type, batch_norm b, const luge_norm_options *options)
{
    if (!lg_check_size(type->name, "channels", b.channels) || !check_options(type->name, options, &b.options))
        return NULL;
    return luge_module_create(type, &b);
}

luge_module *luge_nn_batch_norm1d(int64_t channels, const luge_norm_options *options)
{
    return make_batch_norm(&batch_norm1d_class, (batch_norm){.channels = channels, .min_rank = 2, .max_rank = 3},
                           options);
}

luge_module *luge_nn_batch_norm2d(int64_t channels, const luge_norm_options *options)
{
    return make_batch_norm(&batch_norm2d_class, (batch_norm){.channels = channels, .min_rank = 4, .max_rank = 4},
                           options);
}

/* ---- LayerNorm */

typedef struct layer_norm {
    luge_shape shape; /* of the last axes */
    luge_norm_options options;
    luge_tensor *weight, *bias; /* `shape` or none */
} layer_norm;

static void layer_norm_build(luge_module *self, void *state)
{
    layer_norm *l = state;
    l->weight = l->bias = luge_none();
    if (l->options.no_affine) return;
    l->weight = lg_add_constant(self, "weight", l->shape, 1);
    l->bias = lg_add_constant(self, "bias", l->shape, 0);
}

static luge_tensor *layer_norm_forward(luge_module *self, void *state, luge_tensor *x) /* [..., shape] */
{
    (void)self;
    const layer_norm *l = state;
    const luge_shape given = luge_tensor_shape(x);
    const int before = given.rank - l->shape.rank;
    bool fits = before >= 0;
    for (int i = 0; fits && i < l->shape.rank; ++i) fits = given.dim[before + i] == l->shape.dim[i];
    if (!fits) {
        char a[LG_SHAPE_TEXT], b[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "input %s does not end in the axes %s", lg_shape_text(a, &given),
                lg_shape_text(b, &l->shape));
        return NULL;
    }
    return luge_layer_norm(x, l->shape.rank, l->weight, l->bias, l->options.eps);
}

static const luge_module_class layer_norm_class = {
    .name = "LayerNorm", .state_size = sizeof(layer_norm), .build = layer_norm_build, .forward = layer_norm_forward};

luge_module *luge_nn_layer_norm(luge_shape normalized, const luge_norm_options *options)
{
    const char *name = layer_norm_class.name;
    layer_norm l = {.shape = normalized};
    if (!lg_check_size(name, "the number of axes", normalized.rank) || !check_options(name, options, &l.options))
        return NULL;
    if (lg_shape_numel(&normalized) < 1) {
        char text[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_ARGUMENT, "%s: there is nothing to normalise in axes %s", name,
                lg_shape_text(text, &normalized));
        return NULL;
    }
    return luge_module_create(&layer_norm_class, &l);
}
