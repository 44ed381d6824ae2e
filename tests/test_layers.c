/* The layers: their initial values, their checks, what they compute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "tests/nn_values.h"
#include "tests/support/compare.h"
#include "tests/support/ops.h"

static luge_module *small_net(void)
{
    return luge_nn_sequential(luge_nn_linear(3, 4, NULL), luge_nn_tanh(), luge_nn_linear(4, 2, NULL));
}

static void destroy_all(int n, luge_module *const *m)
{
    for (int i = 0; i < n; ++i) luge_module_destroy(m[i]);
}

/* ---- initial values */

/* Uniform in +-bound: the largest of n comes close to it, and the variance is bound^2 / 3. */
static void assert_uniform(const luge_tensor *t, double bound)
{
    const int64_t n = luge_tensor_numel(t);
    double *v = values_of(t), most = 0, square = 0;
    for (int64_t i = 0; i < n; ++i) {
        most = fmax(most, fabs(v[i]));
        square += v[i] * v[i];
    }
    free(v);
    assert_true(most <= bound && most > 0.97 * bound);
    assert_near(square / (double)n, bound * bound / 3, 0.1 * bound * bound);
}

static void initial_values_are_pytorchs(void **state)
{
    (void)state;
    luge_seed(5);
    luge_module *linear = luge_nn_linear(100, 200, NULL),
                *conv = luge_nn_conv2d(8, 40, 3, &(luge_conv2d_options){.groups = 2});
    luge_module *embedding = luge_nn_embedding(200, 50, NULL), *mha = luge_nn_multihead_attention(60, 6, NULL);
    luge_module *norm = luge_nn_batch_norm1d(3, NULL), *layer_norm = luge_nn_layer_norm(LUGE_SHAPE(2), NULL);
    assert_uniform(luge_module_param(linear, "weight"), 0.1); /* 1 / sqrt(fan_in) */
    assert_uniform(luge_module_param(linear, "bias"), 0.1);
    assert_uniform(luge_module_param(conv, "weight"), 1 / 6.0); /* fan_in 4 * 9 */
    assert_true(luge_tensor_numel(luge_module_param(conv, "bias")) == 40);
    assert_uniform(luge_module_param(mha, "in_proj_weight"), sqrt(6.0 / 240));
    assert_uniform(luge_module_param(mha, "out_proj.weight"), sqrt(1.0 / 60));
    double *bias = values_of(luge_module_param(mha, "in_proj_bias")),
           *out_bias = values_of(luge_module_param(mha, "out_proj.bias"));
    for (int i = 0; i < 180; ++i) assert_true(bias[i] == 0 && (i >= 60 || out_bias[i] == 0));
    free(bias);
    free(out_bias);
    luge_tensor *rows = luge_detach(luge_module_param(embedding, "weight"));
    assert_near(luge_item(luge_mean(rows, LUGE_ALL_AXES)), 0, 0.03);
    assert_near(luge_item(luge_var(rows, LUGE_ALL_AXES, 1)), 1, 0.05);
    assert_values(luge_module_param(norm, "weight"), 1, 1, 1);
    assert_values(luge_module_param(norm, "bias"), 0, 0, 0);
    assert_values(luge_module_buffer(norm, "running_mean"), 0, 0, 0);
    assert_values(luge_module_buffer(norm, "running_var"), 1, 1, 1);
    assert_values(luge_module_param(layer_norm, "weight"), 1, 1);
    destroy_all(6, (luge_module *[]){linear, conv, embedding, mha, norm, layer_norm});
}

static void initial_values_follow_the_seed_in_order(void **state)
{
    (void)state;
    luge_seed(3);
    luge_module *a = small_net(), *b = small_net();
    luge_seed(3);
    luge_module *c = small_net();
    assert_true(same_bits(luge_module_param(a, "0.weight"), luge_module_param(c, "0.weight")));
    assert_true(same_bits(luge_module_param(a, "2.bias"), luge_module_param(c, "2.bias")));
    assert_false(same_bits(luge_module_param(a, "0.weight"), luge_module_param(b, "0.weight")));
    /* The first layer of the list draws first. */
    luge_seed(3);
    luge_module *first = luge_nn_linear(3, 4, NULL);
    assert_true(same_bits(luge_module_param(a, "0.weight"), luge_module_param(first, "weight")));
    destroy_all(4, (luge_module *[]){a, b, c, first});
}

static void init_functions(void **state)
{
    (void)state;
    luge_tensor *t = luge_empty(LUGE_SHAPE(40, 10, 5), NULL); /* fan_in 50, fan_out 200 */
    assert_ptr_equal(luge_init_uniform_(t, -3, 3), t);
    assert_uniform(t, 3);
    assert_uniform(luge_init_kaiming_uniform_(t, 0), sqrt(6.0 / 50));
    assert_uniform(luge_init_kaiming_uniform_(t, 1), sqrt(3.0 / 50));
    assert_uniform(luge_init_xavier_uniform_(t), sqrt(6.0 / 250));
    luge_init_normal_(t, 2, 0.5);
    assert_near(luge_item(luge_mean(t, LUGE_ALL_AXES)), 2, 0.05);
    assert_near(luge_item(luge_var(t, LUGE_ALL_AXES, 1)), 0.25, 0.03);
    luge_init_kaiming_normal_(t);
    assert_near(luge_item(luge_var(t, LUGE_ALL_AXES, 1)), 2.0 / 50, 0.005);
    luge_init_uniform_(t, 4, 4);
    assert_near(luge_item(luge_max(t, LUGE_ALL_AXES)), 4, 0);

    /* On a parameter, and outside of any graph. */
    luge_module *m = luge_nn_linear(10, 10, NULL);
    assert_non_null(luge_init_uniform_(luge_module_param(m, "weight"), 1, 2));
    assert_true(luge_tensor_requires_grad(luge_module_param(m, "weight")));
    luge_module_destroy(m);

    luge_tensor *vector = luge_empty(LUGE_SHAPE(3), NULL),
                *whole = luge_zeros(LUGE_SHAPE(2, 2), &(luge_tensor_options){.dtype = LUGE_I64});
    assert_refused(luge_init_kaiming_uniform_(vector, 0), LUGE_ERR_SHAPE, "[out, in, ...]");
    assert_refused(luge_init_xavier_uniform_(vector), LUGE_ERR_SHAPE, "luge_init_xavier_uniform_");
    assert_refused(luge_init_uniform_(vector, 1, 0), LUGE_ERR_ARGUMENT, "from 1 to 0");
    assert_refused(luge_init_uniform_(vector, 0, NAN), LUGE_ERR_ARGUMENT, "no range");
    assert_refused(luge_init_normal_(vector, 0, -1), LUGE_ERR_ARGUMENT, "deviation -1");
    assert_refused(luge_init_uniform_(whole, 0, 1), LUGE_ERR_DTYPE, "uniform");
    assert_refused(luge_init_normal_(NULL, 0, 1), LUGE_ERR_ARGUMENT, "NULL");
    assert_refused(luge_init_kaiming_normal_(NULL), LUGE_ERR_ARGUMENT, "NULL");
}

/* ---- constructors refuse nonsense */

static void constructors_check_their_arguments(void **state)
{
    (void)state;
#define REFUSED(make, text)                    \
    do {                                       \
        assert_null(make);                     \
        assert_error(LUGE_ERR_ARGUMENT, text); \
    } while (0)
    REFUSED(luge_nn_linear(0, 1, NULL), "Linear: in must be at least 1, not 0");
    REFUSED(luge_nn_linear(1, -2, NULL), "Linear: out must be at least 1, not -2");
    REFUSED(luge_nn_linear(1, 1, &(luge_linear_options){.reserved = {1}}), "luge_linear_options: reserved");
    REFUSED(luge_nn_conv2d(3, 4, 0, NULL), "Conv2d: kernel must");
    REFUSED(luge_nn_conv2d(3, 4, 3, &(luge_conv2d_options){.groups = 2}), "Conv2d: 3 input and 4 output channels");
    REFUSED(luge_nn_conv2d(4, 3, 3, &(luge_conv2d_options){.groups = 2}), "2 groups");
    REFUSED(luge_nn_conv2d(4, 4, 3, &(luge_conv2d_options){.groups = -1}), "groups must");
    REFUSED(luge_nn_conv2d(4, 4, 3, &(luge_conv2d_options){.stride = -1}), "stride must be at least 0");
    REFUSED(luge_nn_conv2d(4, 4, 3, &(luge_conv2d_options){.padding = -2}), "padding must be at least -1");
    REFUSED(luge_nn_conv2d(4, 4, 3, &(luge_conv2d_options){.dilation_hw = {1, -1}}), "dilation_hw");
    REFUSED(luge_nn_conv2d(4, 4, 3, &(luge_conv2d_options){.kernel_hw = {3, 0}}), "kernel must");
    REFUSED(luge_nn_conv2d(4, 4, 3, &(luge_conv2d_options){.reserved = {0, 7}}), "luge_conv2d_options: reserved");
    REFUSED(luge_nn_batch_norm1d(0, NULL), "BatchNorm1d: channels");
    REFUSED(luge_nn_batch_norm2d(3, &(luge_norm_options){.eps = -1}), "BatchNorm2d: eps");
    REFUSED(luge_nn_batch_norm2d(3, &(luge_norm_options){.momentum = 1.5}), "momentum must be in [0, 1], not 1.5");
    REFUSED(luge_nn_batch_norm2d(3, &(luge_norm_options){.eps = NAN}), "eps");
    REFUSED(luge_nn_layer_norm(LUGE_SCALAR, NULL), "LayerNorm: the number of axes");
    REFUSED(luge_nn_layer_norm(LUGE_SHAPE(3, 0), NULL), "nothing to normalise in axes [3, 0]");
    REFUSED(luge_nn_layer_norm(LUGE_SHAPE(3), &(luge_norm_options){.reserved = {1}}), "luge_norm_options: reserved");
    REFUSED(luge_nn_embedding(0, 3, NULL), "Embedding: count");
    REFUSED(luge_nn_embedding(3, 0, NULL), "Embedding: dim");
    const int64_t three = 3, minus_four = -4;
    REFUSED(luge_nn_embedding(3, 2, &(luge_embedding_options){.padding_idx = &three}),
            "padding_idx 3 is not one of 3 rows");
    REFUSED(luge_nn_embedding(3, 2, &(luge_embedding_options){.padding_idx = &minus_four}), "padding_idx -4");
    REFUSED(luge_nn_dropout(1.1), "Dropout: p must be in [0, 1], not 1.1");
    REFUSED(luge_nn_dropout(-0.1), "Dropout: p");
    REFUSED(luge_nn_dropout(NAN), "Dropout: p");
    REFUSED(luge_nn_max_pool2d(0, NULL), "MaxPool2d: kernel");
    REFUSED(luge_nn_max_pool2d(3, &(luge_pool2d_options){.padding = 2}), "MaxPool2d: padding 2 is more than half");
    REFUSED(luge_nn_avg_pool2d(2, &(luge_pool2d_options){.stride = -1}), "AvgPool2d: stride");
    REFUSED(luge_nn_avg_pool2d(2, &(luge_pool2d_options){.reserved = {1}}), "luge_pool2d_options: reserved");
    REFUSED(luge_nn_adaptive_avg_pool2d(0, 1), "AdaptiveAvgPool2d: height");
    REFUSED(luge_nn_multihead_attention(6, 4, NULL), "dim 6 does not divide into 4 heads");
    REFUSED(luge_nn_multihead_attention(6, 0, NULL), "heads must");
    REFUSED(luge_nn_multihead_attention(6, 2, &(luge_mha_options){.dropout = 2}), "MultiheadAttention: dropout");
    REFUSED(luge_nn_transformer_encoder_layer(6, 4, NULL), "dim 6 does not divide");
    REFUSED(luge_nn_transformer_encoder_layer(6, 2, &(luge_transformer_options){.dim_feedforward = -1}),
            "dim_feedforward");
    REFUSED(luge_nn_transformer_encoder_layer(6, 2, &(luge_transformer_options){.dropout = &(double){-1}}), "dropout");
    REFUSED(luge_nn_transformer_encoder_layer(6, 2, &(luge_transformer_options){.reserved = {1}}), "reserved");
    REFUSED(luge_nn_sequential_array(NULL, 1), "Sequential: a list of 1 modules at NULL");
    REFUSED(luge_nn_sequential_array(NULL, -1), "Sequential: a list of -1");
    REFUSED(luge_nn_params((luge_list){NULL, 1}), "ParameterList: a list of 1 tensors at NULL");
#undef REFUSED
}

/* ---- running */

static void set_param(luge_module *m, const char *name, luge_tensor *values)
{
    LUGE_NO_GRAD();
    luge_copy_(luge_module_param(m, name), values);
}

static void linear_computes(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = luge_nn_linear(3, 2, NULL), *bare = luge_nn_linear(3, 2, &(luge_linear_options){.no_bias = true});
    luge_tensor *w = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6),
                *x = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 0, -1, 2, 1, 0);
    set_param(m, "weight", w);
    set_param(m, "bias", LUGE_TENSOR(LUGE_SHAPE(2), 10, 20));
    set_param(bare, "weight", w);
    assert_values(luge_forward(m, x), 8, 18, 14, 33);
    assert_values(luge_forward(bare, x), -2, -2, 4, 13);
    assert_null(luge_module_param(bare, "bias"));
    luge_error_clear();
    luge_backward(luge_sum(luge_forward(m, x), LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(luge_module_param(m, "weight")), 3, 1, -1, 3, 1, -1);
    assert_values(luge_tensor_grad(luge_module_param(m, "bias")), 2, 2);
    assert_null(luge_forward(m, LUGE_TENSOR(LUGE_SHAPE(1, 2), 1, 2)));
    assert_error(LUGE_ERR_SHAPE, "t.Linear: linear: ");
    luge_module_destroy(m);
    luge_module_destroy(bare);
}

static void errors_name_the_path(void **state)
{
    (void)state;
    LUGE_SCOPE("step");
    luge_module *net = luge_nn_sequential(luge_nn_identity(), luge_nn_sequential(luge_nn_linear(3, 2, NULL)));
    assert_null(luge_forward(net, luge_zeros(LUGE_SHAPE(1, 4), NULL)));
    assert_error(LUGE_ERR_SHAPE, "step.Sequential.1.0: linear: ");
    assert_null(luge_forward(net, NULL));
    assert_error(LUGE_ERR_ARGUMENT, "step.Sequential: Sequential: input 0 is NULL");
    /* With an error standing nothing runs and the first one stays. */
    luge_fail(LUGE_ERR_IO, "before");
    assert_null(luge_forward(net, luge_none()));
    assert_error(LUGE_ERR_IO, "before");
    luge_module_destroy(net);
}

static void conv_layers_compute(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = luge_nn_conv2d(1, 1, 2, NULL);
    set_param(m, "weight", LUGE_TENSOR(LUGE_SHAPE(1, 1, 2, 2), 1, 2, 3, 4));
    set_param(m, "bias", LUGE_TENSOR(LUGE_SHAPE(1), 0.5));
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(1, 1, 3, 3), 1, 2, 3, 4, 5, 6, 7, 8, 9);
    assert_values(luge_forward(m, x), 37.5, 47.5, 67.5, 77.5);
    luge_module *wide = luge_nn_conv2d(
        2, 4, 9, &(luge_conv2d_options){.kernel_hw = {1, 3}, .padding_hw = {0, 1}, .groups = 2, .no_bias = true});
    assert_text(luge_forward(wide, luge_zeros(LUGE_SHAPE(1, 2, 1, 3), NULL)),
                "[[[[0, 0, 0]], [[0, 0, 0]], [[0, 0, 0]], [[0, 0, 0]]]]");
    const luge_shape shape = luge_tensor_shape(luge_module_param(wide, "weight"));
    assert_true(shape.rank == 4 && shape.dim[0] == 4 && shape.dim[1] == 1 && shape.dim[2] == 1 && shape.dim[3] == 3);
    luge_module *max = luge_nn_max_pool2d(2, NULL), *avg = luge_nn_avg_pool2d(2, &(luge_pool2d_options){.stride = 1}),
                *adaptive = luge_nn_adaptive_avg_pool2d(1, 1);
    assert_values(luge_forward(max, x), 5);
    assert_values(luge_forward(avg, x), 3, 4, 6, 7);
    assert_values(luge_forward(adaptive, x), 5);
    destroy_all(5, (luge_module *[]){m, wide, max, avg, adaptive});
}

static void activations_are_their_ops(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2, 3), -2, -0.5, 0, 0.5, 1, 3);
    luge_module *m[] = {luge_nn_relu(),    luge_nn_gelu(),     luge_nn_silu(),    luge_nn_tanh(),
                        luge_nn_sigmoid(), luge_nn_softplus(), luge_nn_flatten(), luge_nn_identity()};
    luge_tensor *y[] = {
        luge_relu(x), luge_gelu(x), luge_silu(x), luge_tanh(x), luge_sigmoid(x), luge_softplus(x), x, x};
    static const char *const kinds[] = {"ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "Softplus", "Flatten", "Identity"};
    for (int i = 0; i < 8; ++i) {
        assert_true(same_bits(luge_forward(m[i], x), y[i]));
        assert_string_equal(luge_module_kind(m[i]), kinds[i]);
    }
    const luge_shape flat = luge_tensor_shape(luge_forward(m[6], luge_zeros(LUGE_SHAPE(2, 3, 4, 5), NULL)));
    assert_true(flat.rank == 2 && flat.dim[0] == 2 && flat.dim[1] == 60);
    destroy_all(8, m);
}

static void dropout_acts_in_training_only(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *net = luge_nn_sequential(luge_nn_dropout(0.5));
    luge_tensor *x = luge_ones(LUGE_SHAPE(1000), NULL);
    const double zeros =
        luge_item(luge_sum(luge_eq(luge_forward(net, x), luge_zeros(LUGE_SCALAR, NULL)), LUGE_ALL_AXES));
    assert_near(zeros, 500, 100);
    luge_module_eval(net);
    assert_true(same_bits(luge_forward(net, x), x));
    luge_module_train(net);
    assert_false(same_bits(luge_forward(net, x), x));
    luge_module_destroy(net);
}

static void batch_norm_follows_batches(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = luge_nn_batch_norm1d(2, &(luge_norm_options){.momentum = 0.5});
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 10, 3, 30);
    assert_close(luge_forward(m, x), LUGE_TENSOR(LUGE_SHAPE(2, 2), -1, -1, 1, 1), 1e-5, "normalised");
    assert_values(luge_module_buffer(m, "running_mean"), 1, 10);
    assert_values(luge_module_buffer(m, "running_var"), 1.5, 100.5); /* unbiased 2 and 200, half of it */
    assert_values(luge_module_buffer(m, "num_batches_tracked"), 1);
    luge_forward(m, luge_zeros(LUGE_SHAPE(0, 2), NULL)); /* nothing to learn from */
    assert_values(luge_module_buffer(m, "num_batches_tracked"), 1);
    luge_module_eval(m);
    assert_near(luge_item(luge_select(luge_select(luge_forward(m, x), 0, 0), 0, 0)), 0, 1e-6);
    assert_values(luge_module_buffer(m, "num_batches_tracked"), 1);
    assert_null(luge_forward(m, luge_zeros(LUGE_SHAPE(2, 2, 2, 2), NULL)));
    assert_error(LUGE_ERR_SHAPE, "t.BatchNorm1d: input [2, 2, 2, 2] has 4 axes");
    luge_module *images = luge_nn_batch_norm2d(2, &(luge_norm_options){.no_affine = true});
    assert_null(luge_forward(images, x));
    assert_error(LUGE_ERR_SHAPE, "BatchNorm2d takes [N, C, H, W]");
    assert_int_equal(luge_module_param_count(images), 0);
    assert_non_null(luge_forward(images, luge_ones(LUGE_SHAPE(2, 2, 1, 1), NULL)));
    luge_module_destroy(images);
    luge_module_destroy(m);
}

static void layer_norm_normalises_rows(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = luge_nn_layer_norm(LUGE_SHAPE(2), NULL),
                *plain = luge_nn_layer_norm(LUGE_SHAPE(2), &(luge_norm_options){.no_affine = true});
    set_param(m, "weight", LUGE_TENSOR(LUGE_SHAPE(2), 2, 3));
    set_param(m, "bias", LUGE_TENSOR(LUGE_SHAPE(2), 1, 1));
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 3, 10, 30);
    assert_close(luge_forward(m, x), LUGE_TENSOR(LUGE_SHAPE(2, 2), -1, 4, -1, 4), 2e-5, "affine");
    assert_close(luge_forward(plain, x), LUGE_TENSOR(LUGE_SHAPE(2, 2), -1, 1, -1, 1), 2e-5, "plain");
    assert_null(luge_forward(plain, luge_zeros(LUGE_SHAPE(2, 3), NULL)));
    assert_error(LUGE_ERR_SHAPE, "input [2, 3] does not end in the axes [2]");
    assert_null(luge_forward(m, luge_zeros(LUGE_SCALAR, NULL)));
    assert_error(LUGE_ERR_SHAPE, "input []");
    luge_module_destroy(plain);
    luge_module_destroy(m);
}

static void padding_rows_get_no_gradient(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const int64_t last = -1;
    luge_module *m = luge_nn_embedding(3, 2, &(luge_embedding_options){.padding_idx = &last});
    luge_tensor *w = luge_module_param(m, "weight");
    assert_values(luge_select(luge_detach(w), 0, 2), 0, 0);
    set_param(m, "weight", LUGE_TENSOR(LUGE_SHAPE(3, 2), 1, 2, 3, 4, 5, 6));
    luge_tensor *y = luge_forward(m, LABELS(0, 2, 0, 1));
    assert_values(y, 1, 2, 5, 6, 1, 2, 3, 4); /* the row itself is looked up like others */
    luge_backward(luge_sum(y, LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(w), 2, 2, 1, 1, 0, 0);
    luge_tensor *small = luge_forward(m, luge_cast(LABELS(2, 1), LUGE_I32));
    assert_values(small, 5, 6, 3, 4);
    luge_module_destroy(m);
}

static void residuals_add(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *plain = luge_nn_residual(luge_nn_relu(), NULL),
                *both = luge_nn_residual(luge_nn_relu(), luge_nn_tanh());
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2), -1, 2);
    assert_values(luge_forward(plain, x), -1, 4);
    assert_true(same_bits(luge_forward(both, x), luge_add(luge_relu(x), luge_tanh(x))));
    /* The two are added as luge_add does it: sizes of 1 are repeated, on either side. */
    luge_module *wider = luge_nn_residual(luge_nn_linear(1, 3, NULL), NULL),
                *narrower = luge_nn_residual(luge_nn_linear(3, 1, NULL), NULL),
                *unfit = luge_nn_residual(luge_nn_linear(3, 2, NULL), NULL);
    assert_int_equal(luge_tensor_size(luge_forward(wider, luge_ones(LUGE_SHAPE(2, 1), NULL)), 1), 3);
    assert_int_equal(luge_tensor_size(luge_forward(narrower, luge_ones(LUGE_SHAPE(2, 3), NULL)), 1), 3);
    assert_null(luge_forward(unfit, luge_ones(LUGE_SHAPE(2, 3), NULL)));
    assert_error(LUGE_ERR_SHAPE, "t.Residual: add: shapes do not broadcast: [2, 2] and [2, 3]");
    luge_module_destroy(wider);
    luge_module_destroy(narrower);
    luge_module_destroy(unfit);
    luge_module_destroy(plain);
    luge_module_destroy(both);
}

static void count_visits(const char *name, luge_tensor *param, void *user)
{
    (void)name, (void)param;
    ++*(int *)user;
}

static void one_tensor_twice_is_one_parameter(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *a = luge_ones(LUGE_SHAPE(2), NULL);
    luge_module *m = luge_nn_params(LUGE_LIST(a, a));
    int visits = 0;
    luge_module_each_param(m, count_visits, &visits);
    assert_int_equal(visits, 1);
    assert_int_equal(luge_module_param_count(m), 2);
    assert_ptr_equal(luge_module_param(m, "1"), a);
    luge_optim *sgd = luge_sgd_create(m, 0.5, NULL);
    luge_backward(luge_sum(luge_module_param(m, "0"), LUGE_ALL_AXES));
    luge_optim_step(sgd);
    assert_values(a, 0.5, 0.5); /* once */
    luge_optim_destroy(sgd);
    luge_module_destroy(m);
}

static void loose_tensors_are_the_parameters(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *a = luge_retain(LUGE_TENSOR(LUGE_SHAPE(2), 1, 2)), *b = luge_zeros(LUGE_SHAPE(2, 2), NULL);
    luge_module *m = luge_nn_params(LUGE_LIST(a, b));
    assert_ptr_equal(luge_module_param(m, "0"), a);
    assert_ptr_equal(luge_module_param(m, "1"), b);
    assert_true(luge_tensor_requires_grad(a));
    assert_null(luge_forward(m, b));
    assert_error(LUGE_ERR_UNSUPPORTED, "t.ParameterList: a ParameterList has no forward");
    assert_null(luge_nn_params(LUGE_LIST(luge_mul_scalar(a, 2))));
    assert_error(LUGE_ERR_GRAPH, "tensor 0 was made by an op");
    assert_null(luge_nn_params(LUGE_LIST(b, luge_expand(luge_detach(a), LUGE_SHAPE(3, 2)))));
    assert_error(LUGE_ERR_ARGUMENT, "tensor 1 have gaps");
    assert_null(luge_nn_params(LUGE_LIST(LABELS(1))));
    assert_error(LUGE_ERR_DTYPE, "a parameter has floats, not i64");
    assert_null(luge_nn_params(LUGE_LIST(b, NULL)));
    assert_error(LUGE_ERR_ARGUMENT, "NULL");
    luge_module_destroy(m);
    luge_backward(luge_sum(luge_square(a), LUGE_ALL_AXES)); /* outlives the module */
    assert_values(luge_tensor_grad(a), 2, 4);
    luge_release(a);
}

/* Without a graph only neighbours are alive: ten layers take no more than three activations. */
static void sequences_drop_activations_as_they_go(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *layers[10];
    for (int i = 0; i < 10; ++i) layers[i] = luge_nn_tanh();
    luge_module *net = luge_nn_sequential_array(layers, 10);
    luge_tensor *x = luge_zeros(LUGE_SHAPE(1 << 18), NULL);
    LUGE_EVAL(net);
    const luge_memory_stats before = luge_memory_get_stats(luge_device_cpu());
    luge_memory_reset_peak(luge_device_cpu());
    assert_non_null(luge_forward(net, x));
    const luge_memory_stats after = luge_memory_get_stats(luge_device_cpu());
    assert_true(after.allocated_peak - before.allocated_bytes <= 2 << 20);
    luge_module_destroy(net);
}

/* ---- attention */

/* Reference values: torch 2.9.1, TransformerEncoderLayer(4, 2, 8, dropout=0, batch_first=True), float64,
 * with parameter number i, element k = sin(k + 1 + 10 i) / 2 and input cos(k). */
static void fill_waves(const char *name, luge_tensor *param, void *user)
{
    (void)name;
    int *number = user;
    double values[64];
    for (int k = 0; k < (int)luge_tensor_numel(param); ++k) values[k] = sin(k + 1 + 10 * *number) / 2;
    LUGE_NO_GRAD();
    luge_tensor *wave = luge_from_array(values, LUGE_F64, luge_tensor_shape(param));
    luge_copy_(param, wave);
    ++*number;
}

static luge_tensor *cosines(luge_shape shape)
{
    double values[64];
    int64_t n = 1;
    for (int i = 0; i < shape.rank; ++i) n *= shape.dim[i];
    for (int k = 0; k < (int)n; ++k) values[k] = cos(k);
    return luge_from_array(values, LUGE_F64, shape);
}

static void check_encoder(const luge_transformer_options *options, const double *expected)
{
    LUGE_SCOPE("t");
    const double none = 0;
    luge_transformer_options o = *options;
    o.dim_feedforward = 8;
    o.dropout = &none;
    luge_module *m = luge_nn_transformer_encoder_layer(4, 2, &o);
    int number = 0;
    luge_module_to_dtype(m, LUGE_F64);
    luge_module_each_param(m, fill_waves, &number);
    luge_tensor *y = luge_forward(m, cosines(LUGE_SHAPE(2, 3, 4)));
    assert_ok();
    double *is = values_of(y);
    for (int i = 0; i < 24; ++i) assert_near(is[i], expected[i], 1e-12);
    free(is);
    luge_module_destroy(m);
}

static void note_param(const char *name, luge_tensor *param, void *user)
{
    char *text = user, shape[LG_SHAPE_TEXT];
    snprintf(text + strlen(text), 512 - strlen(text), "%s%s ", name, lg_shape_text(shape, &param->shape));
}

static void encoder_layers_agree_with_pytorch(void **state)
{
    (void)state;
    check_encoder(&(luge_transformer_options){0}, encoder_default);
    check_encoder(&(luge_transformer_options){.gelu = true, .norm_first = true}, encoder_gelu_first);
    check_encoder(&(luge_transformer_options){.causal = true, .layer_norm_eps = 1e-3}, encoder_causal);
    luge_module *m = luge_nn_transformer_encoder_layer(4, 2, NULL);
    char names[512] = "";
    luge_module_each_param(m, note_param, names);
    assert_string_equal(names,
                        "self_attn.in_proj_weight[12, 4] self_attn.in_proj_bias[12] self_attn.out_proj.weight[4, 4] "
                        "self_attn.out_proj.bias[4] linear1.weight[2048, 4] linear1.bias[2048] "
                        "linear2.weight[4, 2048] linear2.bias[4] norm1.weight[4] norm1.bias[4] "
                        "norm2.weight[4] norm2.bias[4] ");
    luge_module_destroy(m);
}

static void attention_takes_one_to_four_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = luge_nn_multihead_attention(4, 2, NULL);
    luge_module_to_dtype(m, LUGE_F64);
    int number = 0;
    luge_module_each_param(m, fill_waves, &number);
    luge_tensor *x = cosines(LUGE_SHAPE(2, 3, 4)), *copy = luge_clone(x), *kv = cosines(LUGE_SHAPE(2, 5, 4));
    luge_tensor *y = luge_forward(m, x);
    assert_close(luge_forward_list(m, LUGE_LIST(x, copy, copy)), y, 1e-14, "three products are one");
    assert_close(luge_forward_list(m, LUGE_LIST(x, copy, copy, LUGE_NONE)), y, 1e-14, "no mask");
    assert_close(
        luge_forward_list(m, LUGE_LIST(x, luge_zeros(LUGE_SHAPE(3, 3), &(luge_tensor_options){.dtype = LUGE_F64}))), y,
        1e-14, "a mask of zeros");
    luge_tensor *cross = luge_forward_list(m, LUGE_LIST(x, kv, kv));
    double *is = values_of(cross);
    for (int i = 0; i < 24; ++i) assert_near(is[i], attention_cross[i], 1e-12);
    free(is);
    /* Attending to itself only is the value projection: a mask that leaves the diagonal. */
    luge_tensor *eye = luge_eq(luge_unsqueeze(luge_arange(0, 3, 1, NULL), 1), luge_arange(0, 3, 1, NULL));
    luge_tensor *only = luge_forward_list(m, LUGE_LIST(x, eye));
    luge_tensor *w = luge_slice(luge_module_param(m, "in_proj_weight"), 0, 8, 12),
                *b = luge_slice(luge_module_param(m, "in_proj_bias"), 0, 8, 12);
    luge_tensor *value = luge_linear(x, w, b);
    assert_close(only,
                 luge_linear(value, luge_module_param(m, "out_proj.weight"), luge_module_param(m, "out_proj.bias")),
                 1e-12, "diagonal");

    assert_null(luge_forward(m, kv = luge_zeros(LUGE_SHAPE(2, 3, 5), NULL)));
    assert_error(LUGE_ERR_SHAPE, "the query is [2, 3, 5], not [N, L, 4]");
    assert_null(luge_forward_list(m, LUGE_LIST(x, x, x, LUGE_NONE, x)));
    assert_error(LUGE_ERR_ARGUMENT, "5 inputs");
    assert_null(luge_forward_list(m, LUGE_LIST(x, LUGE_NONE, x)));
    assert_error(LUGE_ERR_ARGUMENT, "key");
    assert_true(same_bits(luge_forward_list(m, LUGE_LIST(x, LUGE_NONE)), y));
    assert_null(luge_forward_list(m, LUGE_LIST(x, cosines(LUGE_SHAPE(2, 5, 4)))));
    assert_error(LUGE_ERR_SHAPE,
                 "two inputs are (x, mask), but [2, 5, 4] is no mask: it does not broadcast to [2, 2, 3, 3]. For another "
                 "key and value give (query, key, value)");
    luge_module_destroy(m);

    luge_module *bare = luge_nn_multihead_attention(4, 2, &(luge_mha_options){.no_bias = true, .dropout = 0.5});
    assert_int_equal(luge_module_param_count(bare), 48 + 16);
    x = luge_cast(x, LUGE_F32);
    assert_false(same_bits(luge_forward(bare, x), luge_forward(bare, x))); /* other dropout each time */
    luge_module_eval(bare);
    assert_true(same_bits(luge_forward(bare, x), luge_forward(bare, x)));
    luge_module_destroy(bare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(initial_values_are_pytorchs),
        OP_TEST(initial_values_follow_the_seed_in_order),
        OP_TEST(init_functions),
        OP_TEST(constructors_check_their_arguments),
        OP_TEST(linear_computes),
        OP_TEST(errors_name_the_path),
        OP_TEST(conv_layers_compute),
        OP_TEST(activations_are_their_ops),
        OP_TEST(dropout_acts_in_training_only),
        OP_TEST(batch_norm_follows_batches),
        OP_TEST(layer_norm_normalises_rows),
        OP_TEST(padding_rows_get_no_gradient),
        OP_TEST(residuals_add),
        OP_TEST(one_tensor_twice_is_one_parameter),
        OP_TEST(loose_tensors_are_the_parameters),
        OP_TEST(sequences_drop_activations_as_they_go),
        OP_TEST(encoder_layers_agree_with_pytorch),
        OP_TEST(attention_takes_one_to_four_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
