/* Time of a training step: bench_train MODEL [BATCH] [SECONDS] [THREADS]. MODEL is mlp (784-512-512-10),
 * mlp-small (784-128-10), lenet (conv 32, 64, pool, 9216-128-10) or transformer (2 layers of 128, 4 heads,
 * 64 tokens). SGD with momentum 0.9 (Adam for the transformer); random data, cross entropy. Prints one
 * JSON object; bench/compare.py runs it in turn with PyTorch. */
#include <luge/luge.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TIMES = 20000, TOKENS = 64, VOCABULARY = 65 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static luge_module *transformer(void)
{
    const double no_dropout = 0;
    const luge_transformer_options options = {
        .dim_feedforward = 512, .dropout = &no_dropout, .gelu = true, .norm_first = true, .causal = true};
    return luge_nn_sequential(luge_nn_embedding(VOCABULARY, 128, NULL), luge_nn_transformer_encoder_layer(128, 4, &options),
                              luge_nn_transformer_encoder_layer(128, 4, &options),
                              luge_nn_layer_norm(LUGE_SHAPE(128), NULL), luge_nn_linear(128, VOCABULARY, NULL));
}

static luge_module *model_of(const char *name)
{
    if (strcmp(name, "mlp") == 0)
        return luge_nn_sequential(luge_nn_linear(784, 512, NULL), luge_nn_relu(), luge_nn_linear(512, 512, NULL),
                                  luge_nn_relu(), luge_nn_linear(512, 10, NULL));
    if (strcmp(name, "mlp-small") == 0)
        return luge_nn_sequential(luge_nn_linear(784, 128, NULL), luge_nn_relu(), luge_nn_linear(128, 10, NULL));
    if (strcmp(name, "lenet") == 0)
        return luge_nn_sequential(luge_nn_conv2d(1, 32, 3, NULL), luge_nn_relu(), luge_nn_conv2d(32, 64, 3, NULL),
                                  luge_nn_relu(), luge_nn_max_pool2d(2, NULL), luge_nn_flatten(),
                                  luge_nn_linear(9216, 128, NULL), luge_nn_relu(), luge_nn_linear(128, 10, NULL));
    if (strcmp(name, "transformer") == 0) return transformer();
    luge_fail(LUGE_ERR_ARGUMENT, "no model %s: mlp, mlp-small, lenet or transformer", name);
    return NULL;
}

static double step(luge_module *net, luge_optim *opt, luge_tensor *x, luge_tensor *y, bool tokens)
{
    const double start = now();
    LUGE_SCOPE("step");
    luge_optim_zero_grad(opt);
    luge_tensor *logits = luge_forward(net, x);
    if (tokens) logits = luge_reshape(logits, LUGE_SHAPE(-1, VOCABULARY));
    luge_backward(luge_cross_entropy(logits, y, NULL));
    luge_optim_step(opt);
    return now() - start;
}

static int ascending(const void *a, const void *b)
{
    const double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

int main(int argc, char **argv)
{
    static double times[MAX_TIMES];
    const char *name = argc > 1 ? argv[1] : "mlp";
    const int64_t batch = argc > 2 ? atoll(argv[2]) : 128;
    const double seconds = argc > 3 ? atof(argv[3]) : 2;
    const int threads = argc > 4 ? atoi(argv[4]) : 2;
    const bool tokens = strcmp(name, "transformer") == 0, images = strcmp(name, "lenet") == 0;
    LUGE_SCOPE("bench");
    luge_seed(1);
    luge_set_num_threads(threads);
    luge_module *net = model_of(name);
    luge_optim *opt = tokens ? luge_adam_create(net, 1e-3, NULL)
                             : luge_sgd_create(net, 0.01, &(luge_sgd_options){.momentum = 0.9});
    luge_tensor *x = tokens   ? luge_randint(0, VOCABULARY, LUGE_SHAPE(batch, TOKENS))
                     : images ? luge_randn(LUGE_SHAPE(batch, 1, 28, 28), NULL)
                              : luge_randn(LUGE_SHAPE(batch, 784), NULL);
    luge_tensor *y = luge_randint(0, tokens ? VOCABULARY : 10, LUGE_SHAPE(tokens ? batch * TOKENS : batch));

    for (const double end = now() + 0.2 * seconds; now() < end && luge_ok();) step(net, opt, x, y, tokens);
    const int64_t references = luge_op_count().references;
    int n = 0;
    for (const double end = now() + seconds; now() < end && n < MAX_TIMES && luge_ok();)
        times[n++] = step(net, opt, x, y, tokens);
    qsort(times, (size_t)n, sizeof times[0], ascending);
    if (luge_ok() && n > 0)
        printf("{\"library\": \"luge\", \"model\": \"%s\", \"batch\": %d, \"threads\": %d, \"ms_median\": %.4f, \"ms_p10\": %.4f, "
               "\"steps\": %d, \"reference_kernels\": %d}\n",
               name, (int)batch, threads, 1e3 * times[n / 2], 1e3 * times[n / 10], n,
               (int)(luge_op_count().references - references));
    luge_optim_destroy(opt);
    luge_module_destroy(net);
    return luge_exit_code(stderr);
}
