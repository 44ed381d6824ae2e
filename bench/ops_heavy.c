/* How fast products and convolutions are: GFLOP/s of each with its two gradients, for the shapes of an
 * MLP, a LeNet, ResNets and a transformer. The best of several rounds; with LUGE_NUM_THREADS threads.
 *   bench_ops_heavy [name]     only rows whose name contains that */
#include <luge/luge.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "core/op.h"
#include "ops/attrs.h"

enum { ROUNDS = 15, GRADIENTS = 3 };

static const char *only;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One call of an op. */
typedef struct work {
    const lg_op *op;
    int n_in;
    luge_tensor *in[3];
    const void *attrs;
} work;

static double gflops(const work *w, double flops)
{
    double best = 1e9;
    for (int i = 0; i < ROUNDS; ++i) {
        LUGE_SCOPE("round");
        luge_tensor *out[LG_MAX_OUT];
        const double start = now();
        lg_call_op(w->op, w->n_in, w->in, w->attrs, LG_SITE, out);
        const double took = now() - start;
        if (took < best) best = took;
    }
    return flops / best / 1e9;
}

static void print_row(const char *name, const char *shape, const work w[GRADIENTS], double flops)
{
    printf("%-12s %-44s", name, shape);
    for (int i = 0; i < GRADIENTS; ++i) printf(" %9.1f", gflops(&w[i], flops));
    printf("\n");
}

/* ---- rows */

static void run_linear(const char *name, int64_t batch, int64_t in, int64_t out)
{
    if (only != NULL && strstr(name, only) == NULL) return;
    LUGE_SCOPE("linear");
    luge_tensor *x = luge_randn(LUGE_SHAPE(batch, in), NULL), *weight = luge_randn(LUGE_SHAPE(out, in), NULL);
    luge_tensor *bias = luge_randn(LUGE_SHAPE(out), NULL), *g = luge_randn(LUGE_SHAPE(batch, out), NULL);
    const work w[GRADIENTS] = {{&lg_op_linear, 3, {x, weight, bias}, NULL},
                               {&lg_op_matmul, 2, {g, weight}, NULL},
                               {&lg_op_matmul, 2, {luge_transpose(g, 0, 1), x}, NULL}};
    char shape[64];
    snprintf(shape, sizeof shape, "linear [%d, %d] -> %d", (int)batch, (int)in, (int)out);
    print_row(name, shape, w, 2.0 * (double)batch * (double)in * (double)out);
}

/* a [batch, n, k] x b [batch, m, k]^T, as attention's scores */
static void run_batched(const char *name, int64_t batch, int64_t n, int64_t k, int64_t m)
{
    if (only != NULL && strstr(name, only) == NULL) return;
    LUGE_SCOPE("batched");
    luge_tensor *a = luge_randn(LUGE_SHAPE(batch, n, k), NULL), *b = luge_randn(LUGE_SHAPE(batch, m, k), NULL);
    luge_tensor *g = luge_randn(LUGE_SHAPE(batch, n, m), NULL);
    const work w[GRADIENTS] = {{&lg_op_matmul, 2, {a, luge_transpose(b, 1, 2)}, NULL},
                               {&lg_op_matmul, 2, {g, b}, NULL},
                               {&lg_op_matmul, 2, {luge_transpose(g, 1, 2), a}, NULL}};
    char shape[64];
    snprintf(shape, sizeof shape, "matmul %d x [%d, %d] x [%d, %d]", (int)batch, (int)n, (int)k, (int)k, (int)m);
    print_row(name, shape, w, 2.0 * (double)batch * (double)n * (double)k * (double)m);
}

typedef struct geometry {
    int64_t n, c, size, k, kernel, stride, padding, groups;
} geometry;

static void run_conv(const char *name, geometry v)
{
    if (only != NULL && strstr(name, only) == NULL) return;
    LUGE_SCOPE("conv");
    const int64_t out = (v.size + 2 * v.padding - v.kernel) / v.stride + 1;
    const lg_conv2d_attrs a = {.stride = {v.stride, v.stride},
                               .padding_before = {v.padding, v.padding},
                               .padding_after = {v.padding, v.padding},
                               .dilation = {1, 1},
                               .groups = v.groups,
                               .in_shape = LUGE_SHAPE(v.n, v.c, v.size, v.size),
                               .weight_shape = LUGE_SHAPE(v.k, v.c / v.groups, v.kernel, v.kernel)};
    luge_tensor *x = luge_channels_last(luge_randn(a.in_shape, NULL)), *weight = luge_randn(a.weight_shape, NULL);
    luge_tensor *bias = luge_randn(LUGE_SHAPE(v.k), NULL), *g = luge_channels_last(luge_randn(LUGE_SHAPE(v.n, v.k, out, out), NULL));
    const work w[GRADIENTS] = {{&lg_op_conv2d, 3, {x, weight, bias}, &a},
                               {&lg_op_conv2d_backward_input, 2, {g, weight}, &a},
                               {&lg_op_conv2d_backward_weight, 2, {g, x}, &a}};
    char shape[80];
    snprintf(shape, sizeof shape, "conv [%d, %d, %d, %d] -> %d, %dx%d/%d%s", (int)v.n, (int)v.c, (int)v.size, (int)v.size, (int)v.k,
             (int)v.kernel, (int)v.kernel, (int)v.stride, v.groups > 1 ? ", grouped" : "");
    print_row(name, shape, w, 2.0 * (double)(v.n * out * out) * (double)(v.k * (v.c / v.groups)) * (double)(v.kernel * v.kernel));
}

int main(int argc, char **argv)
{
    LUGE_SCOPE("bench");
    only = argc > 1 ? argv[1] : NULL;
    printf("%d threads; GFLOP/s\n%-12s %-44s %9s %9s %9s\n", luge_num_threads(), "", "", "forward", "by input", "by weight");
    run_linear("mlp", 128, 784, 512);
    run_linear("mlp", 128, 512, 512);
    run_linear("mlp", 128, 512, 10);
    run_conv("lenet", (geometry){64, 1, 28, 32, 3, 1, 0, 1});
    run_conv("lenet", (geometry){64, 32, 26, 64, 3, 1, 0, 1});
    run_linear("lenet", 64, 9216, 128);
    run_conv("resnet-cifar", (geometry){64, 3, 32, 64, 3, 1, 1, 1});
    run_conv("resnet-cifar", (geometry){64, 64, 32, 64, 3, 1, 1, 1});
    run_conv("resnet-cifar", (geometry){64, 64, 32, 128, 3, 2, 1, 1});
    run_conv("resnet-cifar", (geometry){64, 128, 16, 128, 3, 1, 1, 1});
    run_conv("resnet-cifar", (geometry){64, 256, 8, 256, 3, 1, 1, 1});
    run_conv("resnet-cifar", (geometry){64, 512, 4, 512, 3, 1, 1, 1});
    run_conv("resnet-cifar", (geometry){64, 64, 32, 128, 1, 2, 0, 1});
    run_conv("resnet50", (geometry){4, 3, 224, 64, 7, 2, 3, 1});
    run_conv("resnet50", (geometry){4, 64, 56, 256, 1, 1, 0, 1});
    run_conv("resnet50", (geometry){4, 256, 56, 64, 1, 1, 0, 1});
    run_conv("resnet50", (geometry){4, 512, 7, 512, 3, 1, 1, 1});
    run_conv("depthwise", (geometry){4, 96, 56, 96, 3, 1, 1, 96});
    run_linear("transformer", 2048, 128, 384);
    run_linear("transformer", 2048, 768, 3072);
    run_linear("transformer", 2048, 3072, 768);
    run_batched("transformer", 128, 64, 32, 64);
    run_batched("transformer", 96, 256, 64, 256);
    return luge_exit_code(stderr);
}
