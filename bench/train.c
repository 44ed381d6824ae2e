/* Time of a training step: bench_train MODEL [BATCH] [SECONDS] [THREADS] [DEVICE]. MODEL is mlp (784-512-512-10),
 * mlp-small (784-128-10), lenet (conv 32, 64, pool, 9216-128-10), resnet18 (for pictures of 32 x 32) or
 * transformer (2 layers of 128, 4 heads, 64 tokens). SGD with momentum 0.9 (Adam for the transformer); random
 * data, cross entropy. Prints one JSON object with times and, for each step, what was counted; bench/compare.py
 * runs it in turn with PyTorch. A GPU is timed in blocks of steps, at the end of which the host waits for it. */
#include <luge/luge.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TIMES = 20000, GPU_BLOCK = 10, TOKENS = 64, VOCABULARY = 65 };

typedef struct workload {
    const char *name;
    luge_module *net;
    luge_optim *opt;
    luge_tensor *x, *y;
    luge_device device;
    int block; /* steps between two looks at the clock */
} workload;

typedef struct counts {
    luge_device_counts device;
    luge_op_counts ops;
} counts;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- models and their data */

static luge_module *transformer(void)
{
    const double no_dropout = 0;
    const luge_transformer_options options = {
        .dim_feedforward = 512, .dropout = &no_dropout, .gelu = true, .norm_first = true, .causal = true};
    return luge_nn_sequential(luge_nn_embedding(VOCABULARY, 128, NULL), luge_nn_transformer_encoder_layer(128, 4, &options),
                              luge_nn_transformer_encoder_layer(128, 4, &options),
                              luge_nn_layer_norm(LUGE_SHAPE(128), NULL), luge_nn_linear(128, VOCABULARY, NULL));
}

static luge_module *convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride)
{
    return luge_nn_conv2d(in, out, kernel,
        &(luge_conv2d_options){.stride = stride, .padding = kernel / 2, .no_bias = true});
}

static luge_module *basic_block(int64_t in, int64_t out, int64_t stride)
{
    luge_module *body = luge_nn_sequential(convolution(in, out, 3, stride), luge_nn_batch_norm2d(out, NULL), luge_nn_relu(),
                                           convolution(out, out, 3, 1), luge_nn_batch_norm2d(out, NULL));
    luge_module *shortcut = in == out ? NULL : luge_nn_sequential(convolution(in, out, 1, stride),
                                                                  luge_nn_batch_norm2d(out, NULL));
    return luge_nn_sequential(luge_nn_residual(body, shortcut), luge_nn_relu());
}

static luge_module *resnet18(void)
{
    return luge_nn_sequential(convolution(3, 64, 3, 1), luge_nn_batch_norm2d(64, NULL), luge_nn_relu(),
                              basic_block(64, 64, 1), basic_block(64, 64, 1),
                              basic_block(64, 128, 2), basic_block(128, 128, 1),
                              basic_block(128, 256, 2), basic_block(256, 256, 1),
                              basic_block(256, 512, 2), basic_block(512, 512, 1),
                              luge_nn_adaptive_avg_pool2d(1, 1), luge_nn_flatten(), luge_nn_linear(512, 10, NULL));
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
    if (strcmp(name, "resnet18") == 0) return resnet18();
    if (strcmp(name, "transformer") == 0) return transformer();
    luge_fail(LUGE_ERR_ARGUMENT, "no model %s: mlp, mlp-small, lenet, resnet18 or transformer", name);
    return NULL;
}

static luge_tensor *input_of(const char *name, int64_t batch)
{
    if (strcmp(name, "transformer") == 0) return luge_randint(0, VOCABULARY, LUGE_SHAPE(batch, TOKENS));
    if (strcmp(name, "lenet") == 0) return luge_randn(LUGE_SHAPE(batch, 1, 28, 28), NULL);
    if (strcmp(name, "resnet18") == 0) /* channels-last, as the convolution takes it */
        return luge_permute(luge_randn(LUGE_SHAPE(batch, 32, 32, 3), NULL), LUGE_AXES(0, 3, 1, 2));
    return luge_randn(LUGE_SHAPE(batch, 784), NULL);
}

static workload open_workload(const char *name, int64_t batch, const char *device)
{
    workload w = {.name = name};
    luge_device_parse(device, &w.device);
    luge_set_default_device(w.device);
    w.block = w.device.kind == luge_device_cpu().kind ? 1 : GPU_BLOCK;
    const bool tokens = strcmp(name, "transformer") == 0;
    w.net = model_of(name);
    w.opt = tokens ? luge_adam_create(w.net, 1e-3, NULL)
                   : luge_sgd_create(w.net, 0.01, &(luge_sgd_options){.momentum = 0.9});
    w.x = input_of(name, batch);
    w.y = luge_randint(0, tokens ? VOCABULARY : 10, LUGE_SHAPE(tokens ? batch * TOKENS : batch));
    return w;
}

/* ---- steps */

static void step(const workload *w)
{
    LUGE_SCOPE("step");
    luge_optim_zero_grad(w->opt);
    luge_tensor *logits = luge_forward(w->net, w->x);
    if (luge_tensor_shape(logits).rank == 3) logits = luge_reshape(logits, LUGE_SHAPE(-1, VOCABULARY)); /* of each token */
    luge_backward(luge_cross_entropy(logits, w->y, NULL));
    luge_optim_step(w->opt);
}

/* Seconds for a step, over a block of them. */
static double block(const workload *w)
{
    const double start = now();
    for (int i = 0; i < w->block && luge_ok(); ++i) step(w);
    if (w->block > 1) luge_device_sync(w->device);
    return (now() - start) / w->block;
}

static int ascending(const void *a, const void *b)
{
    const double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

static counts count(const workload *w)
{
    return (counts){luge_device_get_counts(w->device), luge_op_count()};
}

static void print_counts(const workload *w, const counts *a, const counts *b, int blocks)
{
    const int steps = w->block * blocks;
    const int own_waits = w->block > 1 ? blocks : 0; /* those at the ends of blocks */
    const struct {
        const char *what;
        int64_t n;
    } row[] = {
        {"launches", b->device.launches - a->device.launches},
        {"library_calls", b->device.library_calls - a->device.library_calls},
        {"waits", b->device.waits - a->device.waits - own_waits},
        {"allocations", b->device.device_allocations - a->device.device_allocations + b->device.pinned_allocations -
                            a->device.pinned_allocations},
        {"transposes", b->ops.transposes - a->ops.transposes},
        {"reference_kernels", b->ops.references - a->ops.references},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; ++i) printf(", \"%s\": %g", row[i].what, (double)row[i].n / steps);
}

static void measure(const workload *w, double seconds)
{
    static double times[MAX_TIMES];
    double end = now() + 0.2 * seconds;
    do block(w);
    while (now() < end && luge_ok());
    const counts before = count(w);
    int n = 0;
    end = now() + seconds;
    do times[n++] = block(w);
    while (now() < end && n < MAX_TIMES && luge_ok());
    const counts after = count(w);
    if (!luge_ok()) return;
    qsort(times, (size_t)n, sizeof times[0], ascending);
    printf("{\"library\": \"luge\", \"model\": \"%s\", \"batch\": %d, \"threads\": %d, \"device\": \"%s\", \"ms_median\": %.4f, "
           "\"ms_p10\": %.4f, \"steps\": %d",
           w->name, (int)luge_tensor_size(w->x, 0), luge_num_threads(), w->block > 1 ? "cuda" : "cpu", 1e3 * times[n / 2],
           1e3 * times[n / 10], w->block * n);
    print_counts(w, &before, &after, n);
    printf("}\n");
}

int main(int argc, char **argv)
{
    LUGE_SCOPE("bench");
    luge_seed(1);
    luge_set_num_threads(argc > 4 ? atoi(argv[4]) : 2);
    const workload w = open_workload(argc > 1 ? argv[1] : "mlp", argc > 2 ? atoll(argv[2]) : 128, argc > 5 ? argv[5] : "cpu");
    if (luge_ok()) measure(&w, argc > 3 ? atof(argv[3]) : 2);
    luge_optim_destroy(w.opt);
    luge_module_destroy(w.net);
    return luge_exit_code(stderr);
}
