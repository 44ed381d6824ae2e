/* What an op costs beside its arithmetic: a chain of additions of 16 numbers, as in PyTorch's
 * h = h + c. bench_overhead [LENGTH] [SECONDS]. Prints the medians over all repetitions, in
 * nanoseconds per op, as one JSON object. */
#include <luge/luge.h>
#include <stdlib.h>
#include <time.h>

enum { NUMBERS = 16, MAX_TIMES = 20000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return n > 0 ? values[n / 2] : 0;
}

/* One repetition; the times of its parts in nanoseconds per op. */
typedef struct times {
    double forward, backward, close, no_grad;
} times;

static luge_tensor *chain(luge_tensor *x, luge_tensor *c, int length)
{
    luge_tensor *h = luge_retain(x);
    for (int i = 0; i < length; ++i) {
        luge_scope scope = luge_scope_enter("add");
        luge_assign(&h, luge_add(h, c));
        luge_scope_exit(scope, NULL);
    }
    return h;
}

static times repeat(luge_tensor *x, luge_tensor *c, int length)
{
    const double per_op = 1e9 / length;
    times t;
    double at[6];
    at[0] = now();
    luge_scope scope = luge_scope_enter("step");
    luge_tensor *h = chain(x, c, length);
    at[1] = now();
    luge_tensor *loss = luge_sum(h, LUGE_ALL_AXES);
    at[2] = now();
    luge_backward(loss);
    at[3] = now();
    luge_release(h);
    luge_scope_exit(scope, NULL);
    at[4] = now();
    scope = luge_no_grad_enter();
    luge_release(chain(x, c, length));
    luge_scope_exit(scope, NULL);
    at[5] = now();
    t.forward = (at[1] - at[0]) * per_op;
    t.backward = (at[3] - at[2]) * per_op;
    t.close = (at[4] - at[3]) * per_op;
    t.no_grad = (at[5] - at[4]) * per_op;
    return t;
}

int main(int argc, char **argv)
{
    const int length = argc > 1 ? atoi(argv[1]) : 1000;
    const double seconds = argc > 2 ? atof(argv[2]) : 2, end = now() + seconds;
    static double forward[MAX_TIMES], backward[MAX_TIMES], close[MAX_TIMES], no_grad[MAX_TIMES];
    int n = 0;
    LUGE_SCOPE("main");
    const luge_tensor_options leaf = {.requires_grad = true};
    luge_tensor *x = luge_ones(LUGE_SHAPE(NUMBERS), &leaf), *c = luge_ones(LUGE_SHAPE(NUMBERS), NULL);
    while (now() < end && n < MAX_TIMES && luge_ok()) {
        const times t = repeat(x, c, length);
        forward[n] = t.forward;
        backward[n] = t.backward;
        close[n] = t.close;
        no_grad[n++] = t.no_grad;
    }
    printf("{\"case\": \"overhead\", \"chain\": %d, \"forward_ns\": %.0f, \"backward_ns\": %.0f, \"free_ns\": %.0f, "
           "\"no_grad_ns\": %.0f, \"reps\": %d}\n",
           length, median(forward, n), median(backward, n), median(close, n), median(no_grad, n), n);
    return luge_exit_code(stderr);
}
