/* Graphs of a million ops, made, walked and freed on a small stack; and very wide ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "core/tensor.h"
#include "tests/support/device.h"
#include "tests/support/live.h"

enum { SMALL_STACK = 256 * 1024 };

/* Every op is a launch on a GPU, which are slow on an emulated one: graphs are then as much shorter. */
static int length_of(int n) { return on_cpu() ? n : n / 50; }

/* cmocka's assertions belong to the main thread: threads report by value. */
typedef struct job {
    int length;
    bool scopes;    /* one a step, so that handles go as soon as they can */
    double gradient;
    luge_status status;
} job;

static luge_tensor *chain(luge_tensor *x, const job *j)
{
    luge_tensor *y = luge_retain(x);
    for (int i = 0; i < j->length && luge_ok(); ++i) {
        luge_scope scope = {0};
        if (j->scopes) scope = luge_scope_enter("step");
        luge_assign(&y, luge_mul_scalar(y, 1));
        if (j->scopes) luge_scope_exit(scope, NULL);
    }
    return y;
}

static void *run(void *arg)
{
    job *j = arg;
    {
        LUGE_SCOPE("deep");
        luge_tensor *x = LEAF(LUGE_SCALAR, 1);
        luge_tensor *y = chain(x, j);
        luge_backward(y);
        j->gradient = luge_item(luge_tensor_grad(x));
        luge_release(y);
        luge_release(chain(x, j)); /* freed without backward */
        y = chain(x, j);           /* and with the gradient of a gradient, whose graph is as deep */
        luge_tensor *g = luge_grad(y, x, &(luge_backward_options){.create_graph = true});
        j->gradient += luge_item(g);
        luge_release(y);
    }
    j->status = luge_error_take(NULL, 0);
    return NULL;
}

static job on_small_stack(job j)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, SMALL_STACK), 0);
    assert_int_equal(pthread_create(&thread, &attr, run, &j), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    return j;
}

static void agr_02_deep_graph(void **state)
{
    (void)state;
    const job j = on_small_stack((job){.length = length_of(200000)});
    assert_int_equal(j.status, LUGE_OK);
    assert_true(j.gradient == 2);
}

static void a_million_ops(void **state)
{
    (void)state;
    const job j = on_small_stack((job){.length = length_of(1000000), .scopes = true});
    assert_int_equal(j.status, LUGE_OK);
    assert_true(j.gradient == 2);
}

/* What one node frees may own the next part of the graph: a leaf's gradient with a graph of its own. */
static void a_chain_of_leaves_and_their_gradients_graphs(void **state)
{
    (void)state;
    const int leaves = length_of(50000);
    luge_tensor *last = NULL;
    {
        LUGE_SCOPE("chain");
        last = luge_retain(LEAF(LUGE_SCALAR, 1));
        for (int i = 0; i < leaves; ++i) {
            LUGE_SCOPE("step");
            luge_tensor *next = LEAF(LUGE_SCALAR, 1);
            next->grad = luge_retain(luge_mul_scalar(last, 2)); /* as backward with create_graph leaves it */
            luge_assign(&last, next);
        }
    }
    luge_release(last);
}

static double seconds_for(int length)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    on_small_stack((job){.length = length, .scopes = true});
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

static void time_is_linear(void **state)
{
    (void)state;
    const double small = seconds_for(length_of(20000)), large = seconds_for(length_of(160000));
    assert_true(large < 40 * small + 0.1); /* 8 times the length; 64 times if it were quadratic */
}

static void a_wide_graph(void **state)
{
    (void)state;
    const int width = 3 * length_of(16000);
    LUGE_SCOPE("wide");
    luge_tensor *x = LEAF(LUGE_SHAPE(1), 1), **parts = malloc((size_t)width * sizeof *parts);
    assert_non_null(parts);
    for (int i = 0; i < width; ++i) parts[i] = luge_mul_scalar(x, i % 3);
    luge_tensor *y = luge_sum(luge_cat((luge_list){parts, width}, 0), LUGE_ALL_AXES);
    free(parts);
    assert_int_equal(luge_backward(y), LUGE_OK);
    assert_values(luge_tensor_grad(x), (double)width);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(agr_02_deep_graph), TEST(a_million_ops), TEST(a_chain_of_leaves_and_their_gradients_graphs),
        TEST(time_is_linear),    TEST(a_wide_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
