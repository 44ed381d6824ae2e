/* How fast elementwise ops and reductions move memory, on f32 tensors of 16 MiB: bytes read and written
 * per second, and that as a share of what memcpy does in the same run with as many threads. Forward and
 * backward kernels are rows of their own.
 *   bench_ops_elementwise [name]     only ops whose name contains that */
#include <luge/luge.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "core/op.h"
#include "ops/attrs.h"

enum { SIDE = 2048, COUNT = SIDE * SIDE, ROUNDS = 5, MAX_THREADS = 64 };
#define LONG_ENOUGH 0.1 /* seconds */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- what is measured: the best round */

typedef void (*work_fn)(void *data);

static double best_seconds(work_fn work, void *data)
{
    double best = 1e9, begin = now();
    for (int i = 0; i < ROUNDS || now() - begin < LONG_ENOUGH; ++i) {
        double start = now();
        work(data);
        double took = now() - start;
        if (took < best) best = took;
    }
    return best;
}

typedef struct part {
    char *to;
    const char *from;
    size_t bytes;
} part;

static void *copy_part(void *data)
{
    const part *p = data;
    memcpy(p->to, p->from, p->bytes);
    return NULL;
}

static void copy_all(void *data)
{
    const part *whole = data;
    int n = luge_num_threads() < MAX_THREADS ? luge_num_threads() : MAX_THREADS;
    part parts[MAX_THREADS];
    pthread_t thread[MAX_THREADS];
    size_t share = whole->bytes / (size_t)n;
    int started = 0;
    for (int i = 0; i < n; ++i) {
        size_t at = (size_t)i * share;
        parts[i] = (part){whole->to + at, whole->from + at, i + 1 < n ? share : whole->bytes - at};
        if (i + 1 == n || pthread_create(&thread[started], NULL, copy_part, &parts[i]) != 0) {
            copy_part(&parts[i]);
        } else {
            ++started;
        }
    }
    for (int i = 0; i < started; ++i) pthread_join(thread[i], NULL);
}

/* ---- ops */

typedef struct op_work {
    const lg_op *op;
    int n_in;
    luge_tensor *in[3];
    const void *attrs;
} op_work;

static void run_op(void *data)
{
    LUGE_SCOPE("run");
    op_work *w = data;
    luge_tensor *out[LG_MAX_OUT];
    lg_call_op(w->op, w->n_in, w->in, w->attrs, NULL, out);
}

static double copy_rate;

static void report(const char *name, double bytes, double seconds)
{
    double rate = bytes / seconds * 1e-9;
    printf("%-24s %8.2f GB/s %8.2f\n", name, rate, rate / copy_rate);
    fflush(stdout);
}

static void measure(const lg_op *op, const char *name, luge_tensor *a, luge_tensor *b, luge_tensor *c, const void *attrs,
                    const char *only)
{
    if (only != NULL && strstr(name, only) == NULL) return;
    LUGE_NO_GRAD();
    op_work w = {op, c != NULL ? 3 : b != NULL ? 2 : 1, {a, b, c}, attrs};
    run_op(&w);
    luge_tensor *out[LG_MAX_OUT];
    LUGE_SCOPE("size");
    if (lg_call_op(op, w.n_in, w.in, attrs, NULL, out) != LUGE_OK) return;
    double bytes = (double)luge_tensor_numel(out[0]) * (double)luge_dtype_size(luge_tensor_dtype(out[0]));
    for (int i = 0; i < w.n_in; ++i)
        bytes += (double)luge_tensor_numel(w.in[i]) * (double)luge_dtype_size(luge_tensor_dtype(w.in[i]));
    report(name, bytes, best_seconds(run_op, &w));
}

#define SAVED_NONE(...)
#define SAVED_IN(...) __VA_ARGS__
#define SAVED_OUT(...) __VA_ARGS__
#define SAVED_B_A(...) __VA_ARGS__
#define SAVED_B_AB(...) __VA_ARGS__
#define SAVED_AB_AB(...) __VA_ARGS__

static void elementwise(luge_tensor *a, luge_tensor *b, luge_tensor *g, const char *only)
{
    lg_number_attrs numbers = {2.5, 3};
#define LUGE_UNARY(name, kinds, save, ...)                                \
    measure(&lg_op_##name, #name, a, NULL, NULL, &numbers, only);         \
    SAVED_##save(measure(&lg_op_##name##_backward, #name "_backward", g, a, NULL, &numbers, only);)
#define LUGE_UNARY1 LUGE_UNARY
#define LUGE_UNARY2 LUGE_UNARY
#define LUGE_BINARY(name, kinds, save, ...)                                                   \
    measure(&lg_op_##name, #name, a, b, NULL, NULL, only);                                    \
    SAVED_##save(measure(&lg_op_##name##_backward_a, #name "_backward_a", g, a, b, NULL, only); \
                 measure(&lg_op_##name##_backward_b, #name "_backward_b", g, a, b, NULL, only);)
#define LUGE_COMPARE(name, ...) measure(&lg_op_##name, #name, a, b, NULL, NULL, only);
#include <luge/elementwise.def>
    luge_tensor *row = luge_slice(a, 0, 0, 1), *column = luge_slice(a, 1, 0, 1);
    measure(&lg_op_add, "add [n, m] + [m]", a, row, NULL, NULL, only);
    measure(&lg_op_add, "add [n, m] + [n, 1]", a, column, NULL, NULL, only);
    measure(&lg_op_add, "add transposed", a, luge_transpose(b, 0, 1), NULL, NULL, only);
    measure(&lg_op_where, "where", luge_gt(a, b), a, b, NULL, only);
    lg_layout_attrs contiguous = {LG_LAYOUT_CONTIGUOUS};
    measure(&lg_op_copy, "copy", a, NULL, NULL, &contiguous, only);
    measure(&lg_op_copy, "copy transposed", luge_transpose(a, 0, 1), NULL, NULL, &contiguous, only);
    lg_dtype_attrs half = {.dtype = LUGE_F16}, brain = {.dtype = LUGE_BF16}, single = {.dtype = LUGE_F32};
    measure(&lg_op_cast, "cast to f16", a, NULL, NULL, &half, only);
    measure(&lg_op_cast, "cast from f16", luge_cast(a, LUGE_F16), NULL, NULL, &single, only);
    measure(&lg_op_cast, "cast to bf16", a, NULL, NULL, &brain, only);
    measure(&lg_op_add, "add of f16", luge_cast(a, LUGE_F16), luge_cast(b, LUGE_F16), NULL, NULL, only);
    measure(&lg_op_gelu, "gelu of bf16", luge_cast(a, LUGE_BF16), NULL, NULL, NULL, only);
}

static void reductions(luge_tensor *a, const char *only)
{
    static const struct {
        const lg_op *op;
        double number;
        bool one_axis;
    } op[] = {{&lg_op_sum, 0, false}, {&lg_op_mean, 0, false}, {&lg_op_max, 0, false},   {&lg_op_min, 0, false},
              {&lg_op_var, 1, false}, {&lg_op_norm, 1, false}, {&lg_op_norm, 2, false}, {&lg_op_argmax, 0, true}};
    static const struct {
        const char *name;
        uint32_t mask;
    } over[] = {{"columns", 1}, {"rows", 2}, {"all", 3}};
    for (size_t i = 0; i < sizeof op / sizeof *op; ++i)
        for (size_t j = 0; j < 3; ++j) {
            char name[64];
            if (op[i].one_axis && over[j].mask == 3) continue;
            lg_reduce_attrs attrs = {.mask = over[j].mask, .number = op[i].number};
            snprintf(name, sizeof name, "%s of %s", op[i].op->name, over[j].name);
            measure(op[i].op, name, a, NULL, NULL, &attrs, only);
        }
    luge_tensor *image = luge_channels_last(luge_reshape(a, LUGE_SHAPE(16, 64, 64, 64)));
    lg_reduce_attrs channels = {.mask = 1 | 4 | 8};
    measure(&lg_op_sum, "sum of [n, h, w] of nhwc", image, NULL, NULL, &channels, only);
    luge_tensor *narrow = luge_reshape(a, LUGE_SHAPE(COUNT / 4, 4));
    lg_reduce_attrs last = {.mask = 2}, first = {.mask = 1};
    measure(&lg_op_sum, "sum of rows of 4", narrow, NULL, NULL, &last, only);
    measure(&lg_op_sum, "sum of 4 columns", narrow, NULL, NULL, &first, only);
}


int main(int argc, char **argv)
{
    LUGE_SCOPE("bench");
    const char *only = argc > 1 ? argv[1] : NULL;
    luge_tensor *a = luge_add_scalar(luge_rand(LUGE_SHAPE(SIDE, SIDE), NULL), 0.1);
    luge_tensor *b = luge_add_scalar(luge_rand(LUGE_SHAPE(SIDE, SIDE), NULL), 0.1);
    luge_tensor *g = luge_randn(LUGE_SHAPE(SIDE, SIDE), NULL);
    part whole = {luge_tensor_data_mut(luge_clone(a), LUGE_F32), luge_tensor_data(a, LUGE_F32), COUNT * sizeof(float)};
    if (!luge_ok()) return luge_exit_code(stderr);
    copy_rate = 2 * (double)whole.bytes / best_seconds(copy_all, &whole) * 1e-9;
    printf("%-24s %8.2f GB/s, %d threads\n", "memcpy", copy_rate, luge_num_threads());
    elementwise(a, b, g, only);
    reductions(a, only);
    return luge_exit_code(stderr);
}
