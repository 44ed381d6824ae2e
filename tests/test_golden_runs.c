/* Ten SGD steps of an MLP, a LeNet and a two-layer transformer, against PyTorch's: in f64 to 1e-10, in
 * f32 with an error to f64 of at most twice PyTorch's; and twenty under autocast to bf16, which on average
 * take them no further from f32 than PyTorch's do, within the spread of seeds. Dropout is off; initial values and data come from a
 * formula that both sides compute. */
#include <luge/luge.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/compare.h"
#include "tests/support/golden.h"

enum { BATCH = 8, STEPS = 10, CLASSES = 5 };

static golden *file, *amp_file;

/* How a model is trained. */
typedef struct recipe {
    luge_dtype dtype, low; /* of the parameters; autocast's, LUGE_F32 for none */
    int64_t seed;
    int steps;
    double lr;
} recipe;

static luge_module *mlp(void)
{
    return luge_nn_sequential(luge_nn_linear(20, 32, NULL), luge_nn_relu(), luge_nn_linear(32, 24, NULL), luge_nn_tanh(),
                              luge_nn_linear(24, CLASSES, NULL));
}

static luge_module *lenet(void)
{
    return luge_nn_sequential(luge_nn_conv2d(1, 6, 3, NULL), luge_nn_relu(), luge_nn_conv2d(6, 8, 3, NULL), luge_nn_relu(),
                              luge_nn_max_pool2d(2, NULL), luge_nn_flatten(), luge_nn_linear(8 * 4 * 4, 16, NULL),
                              luge_nn_relu(), luge_nn_linear(16, CLASSES, NULL));
}

static luge_module *transformer(void)
{
    const double none = 0;
    const luge_transformer_options options = {.dim_feedforward = 32, .dropout = &none, .gelu = true};
    return luge_nn_sequential(luge_nn_embedding(11, 16, NULL), luge_nn_transformer_encoder_layer(16, 4, &options),
                              luge_nn_transformer_encoder_layer(16, 4, &options), luge_nn_flatten(),
                              luge_nn_linear(6 * 16, CLASSES, NULL));
}

/* floor(|u| bound), kept below bound: labels and tokens. */
static luge_tensor *hashed_indices(luge_shape shape, int64_t seed, double bound)
{
    luge_tensor *u = luge_abs(golden_hashed(shape, seed, 1));
    return luge_clamp(luge_cast(luge_mul_scalar(u, bound), LUGE_I64), 0, bound - 1);
}

static luge_tensor *input_of(const char *name, const recipe *r)
{
    if (strcmp(name, "transformer") == 0) return hashed_indices(LUGE_SHAPE(BATCH, 6), 77 + r->seed, 11);
    luge_tensor *x = strcmp(name, "mlp") == 0 ? golden_hashed(LUGE_SHAPE(BATCH, 20), 75 + r->seed, 1)
                                              : golden_hashed(LUGE_SHAPE(BATCH, 1, 12, 12), 76 + r->seed, 1);
    return luge_cast(luge_cast(x, LUGE_F32), r->dtype);
}

/* The i-th parameter, as train() of make_golden.py sets it. */
static void set_param(const char *name, luge_tensor *param, void *user)
{
    int64_t *index = user;
    const luge_shape s = luge_tensor_shape(param);
    int64_t fan = s.rank == 2 ? s.dim[1] : 16;
    if (s.rank > 2) fan = luge_tensor_numel(param) / s.dim[0];
    luge_tensor *value = luge_cast(golden_hashed(s, ++*index, pow((double)fan, -0.5)), LUGE_F32);
    const bool norm_weight = strstr(name, "norm") != NULL && strstr(name, "weight") != NULL;
    LUGE_NO_GRAD();
    luge_copy_(param, norm_weight ? luge_add_scalar(luge_cast(value, luge_tensor_dtype(param)), 1) : value);
}

/* Losses [steps], f64; the trained module goes to *out. */
static luge_tensor *train(const char *name, luge_module *(*make)(void), recipe r, luge_module **out)
{
    enum { MOST = 20 };
    luge_module *net = make();
    assert_int_equal(luge_module_to_dtype(net, r.dtype), LUGE_OK);
    int64_t index = r.seed;
    luge_module_each_param(net, set_param, &index);
    luge_optim *opt = luge_sgd_create(net, r.lr, &(luge_sgd_options){.momentum = 0.9});
    luge_tensor *x = input_of(name, &r), *y = hashed_indices(LUGE_SHAPE(BATCH), 78 + r.seed, CLASSES);
    double losses[MOST];
    for (int i = 0; i < r.steps; ++i) {
        LUGE_SCOPE("step");
        LUGE_AUTOCAST(r.low);
        luge_optim_zero_grad(opt);
        luge_tensor *loss = luge_cross_entropy(luge_forward(net, x), y, NULL);
        luge_backward(loss);
        luge_optim_step(opt);
        losses[i] = luge_item(loss);
    }
    luge_optim_destroy(opt);
    assert_ok();
    *out = net;
    return luge_from_array(losses, LUGE_F64, LUGE_SHAPE(r.steps));
}

typedef struct distance {
    const char *model;
    luge_module *net;
    double error, size;   /* squares */
    int params;
} distance;

static void measure(const char *key, void *user)
{
    distance *d = user;
    luge_tensor *expected = golden_get(file, "%s", key);
    luge_tensor *got = luge_module_param(d->net, key + strlen(d->model) + strlen("/param/"));
    assert_ok();
    LUGE_NO_GRAD();
    luge_tensor *difference = luge_sub(luge_cast(got, LUGE_F64), expected);
    d->error += pow(luge_item(luge_norm(difference, 2, LUGE_ALL_AXES)), 2);
    d->size += pow(luge_item(luge_norm(expected, 2, LUGE_ALL_AXES)), 2);
    ++d->params;
}

/* |params - golden| / |golden|, all parameters together. */
static double param_error(const char *name, luge_module *net)
{
    LUGE_SCOPE("error");
    distance d = {.model = name, .net = net};
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s/param/", name);
    golden_each(file, prefix, measure, &d);
    assert_true(d.params > 0);
    return sqrt(d.error / d.size);
}

static void compare_run(const char *name, luge_module *(*make)(void))
{
    LUGE_SCOPE("golden");
    luge_tensor *expected = golden_get(file, "%s/losses", name);
    luge_module *net;
    assert_close(train(name, make, (recipe){.dtype = LUGE_F64, .low = LUGE_F32, .steps = STEPS, .lr = 0.1}, &net), expected, 1e-10, name);
    const double error64 = param_error(name, net);
    luge_module_destroy(net);
    if (!(error64 <= 1e-10)) fail_msg("%s, f64: parameters off by %.3g", name, error64);

    double *torch = values_of(golden_get(file, "%s/f32_error", name));
    const int64_t references = luge_op_count().references;
    luge_tensor *losses = train(name, make, (recipe){.dtype = LUGE_F32, .low = LUGE_F32, .steps = STEPS, .lr = 0.1}, &net);
    assert_int_equal(luge_op_count().references, references);
    const double error32 = param_error(name, net);
    luge_module_destroy(net);
    const double loss_error = luge_item(luge_max(luge_abs(luge_sub(losses, expected)), LUGE_ALL_AXES));
    print_message("%s: f64 off by %.2e; f32 off by %.2e (PyTorch %.2e), losses by %.2e (PyTorch %.2e)\n", name, error64, error32,
                  torch[1], loss_error, torch[0]);
    if (!(error32 <= 2 * torch[1])) fail_msg("%s, f32: parameters off by %.3g, PyTorch's by %.3g", name, error32, torch[1]);
    /* Single losses are a few roundings: where PyTorch is lucky, allow one unit in the last place more. */
    if (!(loss_error <= 2 * torch[0] + 2.4e-7)) fail_msg("%s, f32: losses off by %.3g, PyTorch's by %.3g", name, loss_error, torch[0]);
    free(torch);
}

typedef struct pair {
    luge_module *a, *b;
    double error, size; /* squares */
} pair;

static void add_distance(const char *name, luge_tensor *param, void *user)
{
    pair *p = user;
    LUGE_SCOPE("distance");
    LUGE_NO_GRAD();
    luge_tensor *a = luge_cast(param, LUGE_F64), *b = luge_cast(luge_module_param(p->b, name), LUGE_F64);
    p->error += luge_item(luge_sum(luge_square(luge_sub(a, b)), LUGE_ALL_AXES));
    p->size += luge_item(luge_sum(luge_square(b), LUGE_ALL_AXES));
}

static void compare_bf16(const char *name, luge_module *(*make)(void))
{
    LUGE_SCOPE("bf16");
    enum { SEEDS = 5 };
    double *torch = values_of(golden_get(amp_file, "bf16/%s", name)), mean = 0, torch_mean = 0;
    for (int s = 0; s < SEEDS; ++s) {
        LUGE_SCOPE("seed");
        pair p = {0};
        recipe r = {.dtype = LUGE_F32, .low = LUGE_BF16, .seed = 1000 * s, .steps = 20, .lr = 0.01};
        train(name, make, r, &p.a);
        r.low = LUGE_F32;
        train(name, make, r, &p.b);
        luge_module_each_param(p.a, add_distance, &p);
        assert_ok();
        mean += sqrt(p.error / p.size) / SEEDS;
        torch_mean += torch[s] / SEEDS;
        luge_module_destroy(p.a);
        luge_module_destroy(p.b);
    }
    free(torch);
    print_message("%s: bf16 is %.2e from f32 (PyTorch %.2e)\n", name, mean, torch_mean);
    /* Another five seeds move either mean by some 5 %. */
    if (!(mean <= 1.05 * torch_mean)) fail_msg("%s: bf16 is %.3g from f32, PyTorch's %.3g", name, mean, torch_mean);
}

static void mlp_bf16(void **state) { (void)state; compare_bf16("mlp", mlp); }
static void lenet_bf16(void **state) { (void)state; compare_bf16("lenet", lenet); }
static void transformer_bf16(void **state) { (void)state; compare_bf16("transformer", transformer); }

static void mlp_run(void **state) { (void)state; compare_run("mlp", mlp); }
static void lenet_run(void **state) { (void)state; compare_run("lenet", lenet); }
static void transformer_run(void **state) { (void)state; compare_run("transformer", transformer); }

static int open_file(void **state)
{
    (void)state;
    file = golden_open("runs.safetensors");
    amp_file = golden_open("amp.safetensors");
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    golden_close(amp_file);
    golden_close(file);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mlp_run), cmocka_unit_test(lenet_run), cmocka_unit_test(transformer_run),
                                       cmocka_unit_test(mlp_bf16), cmocka_unit_test(lenet_bf16), cmocka_unit_test(transformer_bf16)};
    return cmocka_run_group_tests(tests, open_file, close_file);
}
