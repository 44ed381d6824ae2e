/* Convolutions by oneDNN: which calls go there, their numbers, the cache of primitives, what happens when
 * memory is short, and what the host's threads and processes notice of it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT */
#endif
#include <dlfcn.h>
#include <luge/luge.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/fault.h"
#include "cpu/isa.h"
#include "cpu/onednn.h"
#include "ops/call.h"
#include "tests/support/compare.h"
#include "tests/support/convolution.h"
#include "tests/support/device.h"
#include "tests/support/kernel.h"
#include "tests/support/ops.h"

enum { TEXT = 200 };

static const lg_op *const ops[] = {&lg_op_conv2d, &lg_op_conv2d_backward_input, &lg_op_conv2d_backward_weight};
enum { OPS = sizeof ops / sizeof *ops };

/* ---- geometries that go to oneDNN: ordinary, odd channels, one pixel, groups, all that attributes can say */

static const convolution_geometry geometries[] = {
    {8, 32, 12, 13, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1},
    {7, 17, 11, 12, 33, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1},
    {37, 16, 9, 9, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}, /* slices of two sizes */
    {5, 3, 26, 24, 20, 5, 5, {1, 1}, {2, 2}, {2, 2}, {1, 1}, 1},
    {8, 40, 15, 14, 24, 3, 3, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 1},
    {20, 24, 15, 13, 48, 1, 1, {2, 2}, {0, 0}, {0, 0}, {1, 1}, 1},
    {400, 64, 1, 1, 65, 1, 1, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 1},
    {4, 16, 22, 20, 32, 3, 2, {1, 2}, {0, 1}, {2, 0}, {1, 1}, 1},
    {4, 18, 20, 21, 30, 3, 3, {1, 1}, {2, 3}, {2, 3}, {2, 3}, 1},
    {4, 16, 20, 16, 32, 2, 4, {1, 1}, {0, 1}, {1, 2}, {1, 1}, 1},
    {9, 3, 33, 35, 16, 7, 7, {2, 2}, {3, 3}, {3, 3}, {1, 1}, 1},
    {1, 16, 9, 10, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 16},
    {5, 20, 12, 11, 20, 3, 3, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 20},
    {6, 32, 10, 11, 64, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 4},
};
enum { GEOMETRIES = sizeof geometries / sizeof *geometries };

typedef struct operands {
    luge_tensor *x, *weight, *bias, *y; /* y: random, in the shape of the result */
} operands;

static luge_tensor *image(luge_shape shape, luge_dtype dtype) { return random_layout(shape, dtype, 4); }

static operands operands_of(const lg_conv2d_attrs *a, luge_dtype dtype)
{
    const luge_tensor_options options = {.dtype = dtype};
    operands o = {.x = image(a->in_shape, dtype), .weight = luge_randn(a->weight_shape, &options),
                  .bias = luge_randn(LUGE_SHAPE(a->weight_shape.dim[0]), &options)};
    o.y = image(convolution_out(a), dtype);
    assert_ok();
    return o;
}

/* Inputs of an op of the three. */
static int inputs_of(int op, const operands *o, bool with_bias, luge_tensor *in[3])
{
    in[0] = op == 0 ? o->x : o->y;
    in[1] = op == 2 ? o->x : o->weight;
    in[2] = with_bias ? o->bias : LUGE_NONE;
    return op == 0 ? 3 : 2;
}

static void check(int op, const lg_conv2d_attrs *a, const operands *o, bool with_bias, double bound, const char *what)
{
    luge_tensor *in[3];
    const int n = inputs_of(op, o, with_bias, in);
    check_kernel(ops[op], (luge_list){in, n}, a, bound, what);
}

/* One run on outputs of its own. */
static luge_tensor *result_of(int op, const lg_conv2d_attrs *a, const operands *o)
{
    luge_tensor *in[3], *out[LG_MAX_OUT];
    const int n = inputs_of(op, o, true, in);
    assert_int_equal(run_kernel(ops[op], (luge_list){in, n}, a, out), LUGE_OK);
    return out[0];
}

static int64_t packs(void) { return luge_op_count().packs; }

static lg_conv2d_attrs usual_attrs(void) { return convolution_attrs(&geometries[0]); }

static void test_against_reference(void **state)
{
    (void)state;
    for (int i = 0; i < GEOMETRIES; ++i)
        for (int op = 0; op < OPS; ++op) {
            LUGE_SCOPE("geometry");
            const lg_conv2d_attrs a = convolution_attrs(&geometries[i]);
            const operands o = operands_of(&a, LUGE_F32);
            char what[TEXT];
            snprintf(what, sizeof what, "%s geometry %d", ops[op]->name, i);
            const int64_t before = packs();
            check(op, &a, &o, false, 5e-6, what);
            check(op, &a, &o, true, 5e-6, what);
            if (packs() == before) fail_msg("%s: not by oneDNN", what);
        }
}

/* ---- what stays with the own kernels */

static void assert_own(int op, const lg_conv2d_attrs *a, const operands *o, const char *what)
{
    const int64_t before = packs();
    check(op, a, o, true, o->x->dtype == LUGE_F64 ? 1e-12 : 5e-6, what);
    if (packs() != before) fail_msg("%s: by oneDNN", what);
}

static void test_declined(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        convolution_geometry geometry;
        bool not_for[OPS];
    } cases[] = {
        {"two images", {2, 32, 12, 13, 32, 3, 3, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 1}, {false}},
        {"one channel", {64, 1, 8, 8, 32, 3, 3, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 1}, {false, true, false}},
        {"little work", {4, 4, 3, 3, 4, 1, 1, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 1}, {false}},
        {"padding beyond the kernel", {4, 32, 12, 13, 32, 3, 3, {1, 1}, {5, 0}, {0, 0}, {1, 1}, 1}, {false}},
    };
    lg_onednn_set_use(LG_ONEDNN_WHERE_FASTER);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const lg_conv2d_attrs a = convolution_attrs(&cases[i].geometry);
        const operands o = operands_of(&a, LUGE_F32);
        for (int op = 0; op < OPS; ++op)
            if (!cases[i].not_for[op]) assert_own(op, &a, &o, cases[i].what);
    }
    lg_onednn_set_use(LG_ONEDNN_WHERE_POSSIBLE);
    const lg_conv2d_attrs usual = usual_attrs();
    const operands o = operands_of(&usual, LUGE_F64);
    for (int op = 0; op < OPS; ++op) assert_own(op, &usual, &o, "f64");
}

static void test_declined_layouts(void **state)
{
    (void)state;
    const lg_conv2d_attrs usual = usual_attrs(), *a = &usual;
    operands o = operands_of(a, LUGE_F32), other = o;
    other.x = luge_contiguous(o.x);
    other.y = luge_contiguous(o.y);
    for (int op = 0; op < OPS; ++op) assert_own(op, a, &other, "images by channels");
    other = o;
    other.weight = luge_channels_last(o.weight);
    assert_own(0, a, &other, "weight turned");
    assert_own(1, a, &other, "weight turned");
    other = o;
    other.bias = random_layout(LUGE_SHAPE(a->weight_shape.dim[0]), LUGE_F32, 2);
    assert_own(0, a, &other, "bias with gaps");
}

/* LUGE_ISA holds for all that is computed. */
static void test_declined_instruction_set(void **state)
{
    (void)state;
    const lg_isa best = lg_cpu_isa();
    if (best == LG_ISA_BASE) skip();
    const lg_conv2d_attrs a = usual_attrs();
    const operands o = operands_of(&a, LUGE_F32);
    assert_true(lg_cpu_set_isa(LG_ISA_BASE));
    for (int op = 0; op < OPS; ++op) assert_own(op, &a, &o, "base");
    assert_true(lg_cpu_set_isa(best));
}

/* ---- the cache */

static void test_cache_is_bounded(void **state)
{
    (void)state;
    const lg_conv2d_attrs a = usual_attrs();
    const operands o = operands_of(&a, LUGE_F32);
    const luge_tensor *first = result_of(0, &a, &o);
    for (int i = 0; i < LG_ONEDNN_CACHE + 20; ++i) {
        LUGE_SCOPE("small");
        const convolution_geometry g = {1, 8, 3 + i, 3, 8, 3, 3, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 8};
        const lg_conv2d_attrs b = convolution_attrs(&g);
        const operands small = operands_of(&b, LUGE_F32);
        result_of(0, &b, &small);
        assert_in_range(lg_onednn_cached(), 1, LG_ONEDNN_CACHE);
    }
    assert_int_equal(lg_onednn_cached(), LG_ONEDNN_CACHE);
    assert_true(same_bits(result_of(0, &a, &o), first));
}

/* ---- no memory: an error, nothing left behind, and the same bits when there is memory again. oneDNN is
 * not forsaken for the lack of it: own kernels have other bits. */

/* Until nothing fails any more; returns that result. expected NULL: of any bits. */
static luge_tensor *fail_each(lg_fault_kind kind, int op, const lg_conv2d_attrs *a, const operands *o, const luge_tensor *expected)
{
    luge_tensor *in[3], *out[LG_MAX_OUT];
    const int n = inputs_of(op, o, true, in);
    for (int64_t nth = 1;; ++nth) {
        luge_memory_empty_cache(luge_device_cpu());
        lg_fault_set(kind, nth);
        const luge_status status = lg_call_op(ops[op], n, in, a, NULL, out);
        const bool hit = lg_fault_hit(kind);
        lg_fault_set(kind, 0);
        if (status == LUGE_OK) {
            assert_true(expected == NULL || same_bits(out[0], expected));
            if (!hit) return out[0];
        } else {
            assert_true(hit);
            assert_null(out[0]);
            assert_error(LUGE_ERR_OUT_OF_MEMORY, ops[op]->name);
        }
    }
}

static void test_faults(void **state)
{
    (void)state;
    const convolution_geometry g = {37, 16, 9, 12, 24, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}; /* new to the cache */
    const lg_conv2d_attrs a = convolution_attrs(&g);
    const operands o = operands_of(&a, LUGE_F32);
    for (int op = 0; op < OPS; ++op) {
        const luge_tensor *first = fail_each(LG_FAULT_HOST, op, &a, &o, NULL);
        assert_true(same_bits(result_of(op, &a, &o), first));
        fail_each(LG_FAULT_HOST, op, &a, &o, first);
        fail_each(LG_FAULT_DEVICE, op, &a, &o, first);
    }
}

/* ---- threads and processes of the host */

typedef struct visitor {
    const lg_conv2d_attrs *a;
    const operands *o;
    luge_tensor *const *expected;
    bool same;
} visitor;

static void *visit(void *data)
{
    visitor *v = data;
    v->same = true;
    for (int round = 0; round < 20; ++round) {
        LUGE_SCOPE("visit");
        for (int op = 0; op < OPS; ++op) {
            luge_tensor *in[3], *out[LG_MAX_OUT];
            const int n = inputs_of(op, v->o, true, in);
            v->same = run_kernel(ops[op], (luge_list){in, n}, v->a, out) == LUGE_OK && same_bits(out[0], v->expected[op]) && v->same;
        }
    }
    return NULL;
}

static void test_host_threads(void **state)
{
    (void)state;
    enum { VISITORS = 4 };
    const lg_conv2d_attrs a = usual_attrs();
    const operands o = operands_of(&a, LUGE_F32);
    luge_tensor *expected[OPS];
    for (int op = 0; op < OPS; ++op) expected[op] = result_of(op, &a, &o);
    visitor v[VISITORS];
    pthread_t thread[VISITORS];
    for (int i = 0; i < VISITORS; ++i) {
        v[i] = (visitor){.a = &a, .o = &o, .expected = expected};
        assert_int_equal(pthread_create(&thread[i], NULL, visit, &v[i]), 0);
    }
    for (int i = 0; i < VISITORS; ++i) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_true(v[i].same);
    }
}

/* What the host told OpenMP stays as it was, whatever the result has cost. */
static void test_openmp_setting_is_kept(void **state)
{
    (void)state;
    int (*get)(void) = NULL;
    void (*set)(int) = NULL;
    void *found[] = {dlsym(RTLD_DEFAULT, "omp_get_max_threads"), dlsym(RTLD_DEFAULT, "omp_set_num_threads")};
    if (found[0] == NULL || found[1] == NULL) skip();
    memcpy(&get, &found[0], sizeof get);
    memcpy(&set, &found[1], sizeof set);
    const lg_conv2d_attrs a = usual_attrs();
    const operands o = operands_of(&a, LUGE_F32);
    luge_tensor *expected = result_of(2, &a, &o);
    const int before = get();
    set(5);
    assert_true(same_bits(result_of(2, &a, &o), expected));
    assert_int_equal(get(), 5);
    set(before);
}

static void test_forked_child(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__) /* a forked child of many threads is beyond it */
    skip();
#endif
    const lg_conv2d_attrs a = convolution_attrs(&geometries[3]);
    const operands o = operands_of(&a, LUGE_F32);
    luge_tensor *expected[OPS];
    for (int op = 0; op < OPS; ++op) expected[op] = result_of(op, &a, &o);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* a cached primitive, and one that is new */
        alarm(60);
        visitor v = {.a = &a, .o = &o, .expected = expected};
        visit(&v);
        const convolution_geometry g = {4, 8, 30, 30, 8, 5, 5, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 8};
        const lg_conv2d_attrs fresh = convolution_attrs(&g);
        const operands other = operands_of(&fresh, LUGE_F32);
        result_of(1, &fresh, &other);
        _exit(v.same && luge_ok() ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        OP_TEST(test_against_reference),       OP_TEST(test_declined),
        OP_TEST(test_declined_layouts),        OP_TEST(test_declined_instruction_set),
        OP_TEST(test_cache_is_bounded),        OP_TEST(test_faults),
        OP_TEST(test_host_threads),            OP_TEST(test_openmp_setting_is_kept),
        OP_TEST(test_forked_child),
    };
    lg_onednn_set_use(LG_ONEDNN_WHERE_POSSIBLE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
