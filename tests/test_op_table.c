/* The op table: every row of tests/cases.def against values and gradients that PyTorch made, against
 * finite differences, in every float dtype against f64, in every memory layout, on empty batches, on
 * awkward sizes, twice and with other numbers of threads. And the table itself: every op ran, on a
 * kernel where ops.def promises one. */
#include <luge/luge.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/op.h"
#include "ops/call.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/golden.h"

enum { MAX_X = 6, MAX_OUT = 3 };
enum { ELEMENTWISE = 1, EXACT = 2, KINK = 4, CONST = 8, ONE_DTYPE = 16, ONE_LAYOUT = 32, OVERWRITES = 64 };

typedef struct op_case {
    const char *name;
    int batched, flags;
    void (*run)(luge_tensor **x, luge_tensor **out);
} op_case;

static const int64_t two = 2;   /* an ignore_index */

/* Batch norm writes the running statistics: on copies, which are outputs 1 and 2. */
#define BATCH_NORM(w, b, mean, var, ...)                                                 \
    luge_tensor *m = luge_clone(mean), *v = luge_clone(var);                             \
    out[0] = luge_batch_norm(x[0], m, v, w, b, &(luge_batch_norm_options){__VA_ARGS__}); \
    out[1] = m;                                                                          \
    out[2] = v

#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)
#define CASE(name, batched, flags, ...)                                      \
    static void PASTE(case_, __LINE__)(luge_tensor * *x, luge_tensor * *out) \
    {                                                                        \
        __VA_ARGS__;                                                         \
        (void)x;                                                             \
    }
#include "tests/cases.def"
#undef CASE
#define CASE(name, batched, flags, ...) {name, batched, flags, PASTE(case_, __LINE__)},
static const op_case cases[] = {
#include "tests/cases.def"
};
#undef CASE
enum { CASES = sizeof cases / sizeof cases[0] };

static golden *file;

/* ---- inputs */

typedef struct inputs {
    luge_tensor *x[MAX_X];
    int n;
    bool wants[MAX_X];   /* a gradient */
    luge_tensor *cot;    /* of out[0], f64; NULL without a gradient */
} inputs;

static inputs load(const op_case *c)
{
    inputs in = {.n = 0};
    luge_tensor *t;
    for (int i = 0; (t = golden_get(file, "%s/in%d", c->name, i)) != NULL; ++i) {
        in.wants[in.n] = luge_tensor_dtype(t) == LUGE_F64 && !(c->flags & CONST);
        in.x[in.n++] = t;
    }
    for (int i = 0; (t = golden_get(file, "%s/const%d", c->name, i)) != NULL; ++i) in.x[in.n++] = t;
    if (in.n == 0) fail_msg("%s: no golden case of that name", c->name);
    in.cot = golden_get(file, "%s/cot", c->name);
    return in;
}

static bool is_float(const luge_tensor *t) { return luge_tensor_dtype(t) <= LUGE_BF16; }

/* Float inputs in another dtype (rounded). */
static inputs in_dtype(const inputs *in, luge_dtype dtype)
{
    inputs r = *in;
    for (int i = 0; i < in->n; ++i)
        if (is_float(in->x[i])) r.x[i] = luge_cast(in->x[i], dtype);
    return r;
}

typedef enum layout { DENSE, TRANSPOSED, SLICED, BROADCAST, LAYOUTS } layout;

/* The same values (for BROADCAST: those of index 0 along the longest axis, everywhere) in other memory. */
static luge_tensor *laid_out(luge_tensor *t, layout how)
{
    const luge_shape s = luge_tensor_shape(t);
    luge_axes reversed = {.count = s.rank};
    for (int i = 0; i < s.rank; ++i) reversed.axis[i] = s.rank - 1 - i;
    if (s.rank == 0 || how == DENSE) return luge_clone(luge_contiguous(t));
    if (how == TRANSPOSED) return luge_permute(luge_clone(luge_contiguous(luge_permute(t, reversed))), reversed);
    if (how == BROADCAST) {
        int longest = 0;
        for (int i = 1; i < s.rank; ++i)
            if (s.dim[i] > s.dim[longest]) longest = i;
        return luge_expand(luge_clone(luge_slice(t, longest, 0, 1)), s);
    }
    luge_shape wide = s;
    for (int i = 0; i < s.rank; ++i) wide.dim[i] += 3;
    const luge_tensor_options options = {.dtype = luge_tensor_dtype(t)};
    luge_tensor *view = luge_full(wide, is_float(t) ? (double)NAN : 1, &options);
    for (int i = 0; i < s.rank; ++i) view = luge_slice(view, i, 1, 1 + s.dim[i]);
    luge_copy_(view, t);
    return view;
}

/* ---- running */

typedef struct result {
    luge_tensor *out[MAX_OUT], *grad[MAX_X];
} result;

static result evaluate(const op_case *c, const inputs *in)
{
    result r = {.out = {NULL}};
    luge_tensor *x[MAX_X] = {NULL};
    int64_t version[MAX_X];
    for (int i = 0; i < in->n; ++i) {
        x[i] = luge_detach(in->x[i]);
        if (in->wants[i]) luge_requires_grad_(x[i]);
        version[i] = luge_tensor_version(x[i]);
    }
    c->run(x, r.out);
    if (!luge_ok()) fail_msg("%s: %s", c->name, luge_error_text());
    if (luge_tensor_requires_grad(r.out[0])) {
        luge_tensor *cot = in->cot;
        if (luge_tensor_numel(cot) != luge_tensor_numel(r.out[0])) cot = luge_ones_like(r.out[0]);
        luge_backward_with(r.out[0], &(luge_backward_options){.gradient = luge_cast(cot, luge_tensor_dtype(r.out[0]))});
        if (!luge_ok()) fail_msg("%s: backward: %s", c->name, luge_error_text());
    }
    for (int i = 0; i < in->n; ++i) {
        if (in->wants[i]) r.grad[i] = luge_tensor_grad(x[i]);
        if (c->flags & OVERWRITES && i == 0 && luge_is_none(r.grad[i])) r.grad[i] = luge_zeros_like(x[i]);
        if (luge_tensor_version(x[i]) != version[i]) fail_msg("%s: changed its input %d", c->name, i);
    }
    return r;
}

/* Roundings of the dtype, and a few of them where an op is made of several. */
static double bound_of(luge_dtype dtype)
{
    switch (dtype) {
    case LUGE_F64: return 1e-11;
    case LUGE_F32: return 4e-6;
    case LUGE_F16: return 8e-3;
    default: return 6e-2;
    }
}

static void compare(const op_case *c, const inputs *in, const result *got, const result *expected, double bound, const char *what)
{
    char text[160];
    for (int i = 0; i < MAX_OUT && expected->out[i] != NULL; ++i) {
        snprintf(text, sizeof text, "%s, %s, output %d", c->name, what, i);
        /* A share of right answers is f32 whatever the inputs are. */
        const double least = bound_of(luge_tensor_dtype(got->out[i]) == LUGE_F32 ? LUGE_F32 : LUGE_F64);
        assert_close(got->out[i], expected->out[i], c->flags & EXACT ? 0 : fmax(bound, least), text);
    }
    for (int i = 0; i < in->n; ++i) {
        if (!in->wants[i] || expected->grad[i] == NULL) continue;
        snprintf(text, sizeof text, "%s, %s, gradient %d", c->name, what, i);
        if (luge_is_none(got->grad[i]) || luge_is_none(expected->grad[i])) {
            if (luge_is_none(got->grad[i]) != luge_is_none(expected->grad[i])) fail_msg("%s: only one side has it", text);
            continue;
        }
        assert_int_equal(luge_tensor_dtype(got->grad[i]), luge_tensor_dtype(in->x[i]));
        assert_close(got->grad[i], expected->grad[i], bound, text);
    }
}

static void assert_same_bits(const op_case *c, const inputs *in, const result *a, const result *b, const char *what)
{
    for (int i = 0; i < MAX_OUT && a->out[i] != NULL; ++i)
        if (!same_bits(a->out[i], b->out[i])) fail_msg("%s: %s: output %d has other bits", c->name, what, i);
    for (int i = 0; i < in->n; ++i)
        if (in->wants[i] && !luge_is_none(a->grad[i]) && !same_bits(a->grad[i], b->grad[i]))
            fail_msg("%s: %s: gradient %d has other bits", c->name, what, i);
}

/* ---- the tests */

static void golden_values(void **state)
{
    (void)state;
    for (int k = 0; k < CASES; ++k) {
        LUGE_SCOPE("golden");
        const op_case *c = &cases[k];
        const inputs in = load(c);
        const result got = evaluate(c, &in);
        result expected = {.out = {NULL}};
        for (int i = 0; i < MAX_OUT; ++i) {
            expected.out[i] = golden_get(file, "%s/out%d", c->name, i);
            if ((expected.out[i] == NULL) != (got.out[i] == NULL)) fail_msg("%s: another number of outputs", c->name);
        }
        for (int i = 0; i < in.n; ++i)
            if (in.wants[i]) {
                expected.grad[i] = golden_get(file, "%s/grad%d", c->name, i);
                if (expected.grad[i] == NULL) fail_msg("%s: PyTorch has no gradient %d", c->name, i);
            }
        compare(c, &in, &got, &expected, bound_of(LUGE_F64), "against PyTorch");
    }
}

/* The case as a function for gradcheck; the constants are inputs without a gradient. */
static luge_tensor *as_function(luge_list list, void *user)
{
    const op_case *c = user;
    luge_tensor *x[MAX_X], *out[MAX_OUT] = {NULL};
    for (int i = 0; i < list.count; ++i) x[i] = list.items[i];
    c->run(x, out);
    return out[0];
}

static void finite_differences(void **state)
{
    (void)state;
    cpu_only(); /* other devices are compared with the CPU's values */
    for (int k = 0; k < CASES; ++k) {
        if (cases[k].flags & (CONST | KINK)) continue;
        LUGE_SCOPE("differences");
        op_case c = cases[k];
        inputs in = load(&c);
        for (int i = 0; i < in.n; ++i)
            if (in.wants[i]) luge_requires_grad_(in.x[i] = luge_clone(in.x[i]));
        const luge_list list = {in.x, in.n};
        if (luge_gradcheck(as_function, list, &c, 1e-6) != LUGE_OK) fail_msg("%s: %s", c.name, luge_error_text());
        if (luge_gradgradcheck(as_function, list, &c, 1e-6) != LUGE_OK) fail_msg("%s, twice: %s", c.name, luge_error_text());
    }
}

static const char *const layout_name[] = {"dense", "transposed", "sliced", "broadcast"};
static const char *const dtype_name[] = {"f32", "f64", "f16", "bf16"};

/* Every dtype and layout against f64 on dense copies of the same (rounded) values. */
static void dtypes_and_layouts(void **state)
{
    (void)state;
    for (int k = 0; k < CASES; ++k)
        for (int d = 0; d <= LUGE_BF16; ++d)
            for (int how = 0; how < LAYOUTS; ++how) {
                const op_case *c = &cases[k];
                if ((c->flags & ONE_DTYPE && d != LUGE_F64) || (c->flags & ONE_LAYOUT && how != DENSE)) continue;
                LUGE_SCOPE("layouts");
                const inputs golden_in = load(c);
                inputs in = in_dtype(&golden_in, (luge_dtype)d);
                for (int i = 0; i < in.n; ++i) in.x[i] = laid_out(in.x[i], (layout)how);
                inputs reference = in_dtype(&in, LUGE_F64);
                for (int i = 0; i < in.n; ++i) reference.x[i] = luge_clone(luge_contiguous(reference.x[i]));

                const int64_t references = luge_op_count().references;
                const result got = evaluate(c, &in);
                if (d == LUGE_F32 && luge_op_count().references != references)
                    fail_msg("%s, f32, %s: ran on a reference kernel", c->name, layout_name[how]);
                const result expected = evaluate(c, &reference), again = evaluate(c, &in);
                char what[64];
                snprintf(what, sizeof what, "%s, %s", dtype_name[d], layout_name[how]);
                compare(c, &in, &got, &expected, bound_of((luge_dtype)d), what);
                assert_same_bits(c, &in, &got, &again, "a second run");
            }
}

/* Nothing to do is done: empty outputs, and gradients of shared inputs that are zero, not missing. */
static void empty_batches(void **state)
{
    (void)state;
    for (int k = 0; k < CASES; ++k)
        for (int d = 0; d <= LUGE_F64; ++d) {
            const op_case *c = &cases[k];
            if (c->batched == 0 || (c->flags & ONE_DTYPE && d != LUGE_F64)) continue;
            LUGE_SCOPE("empty");
            const inputs golden_in = load(c);
            inputs in = in_dtype(&golden_in, (luge_dtype)d);
            for (int i = 0; i < c->batched; ++i) in.x[i] = luge_slice(in.x[i], 0, 0, 0);
            const result r = evaluate(c, &in);
            for (int i = 0; i < in.n; ++i) {
                if (!in.wants[i]) continue;
                if (luge_is_none(r.grad[i])) fail_msg("%s, empty: gradient %d is missing", c->name, i);
                double *v = values_of(r.grad[i]);
                for (int64_t j = 0; j < luge_tensor_numel(r.grad[i]); ++j)
                    if (v[j] != 0) fail_msg("%s, empty: gradient %d is not zero", c->name, i);
                free(v);
            }
        }
}

/* A 1-D tensor of n values out of t's, in a mixed order. */
static luge_tensor *resized(luge_tensor *t, int64_t n)
{
    const int64_t have = luge_tensor_numel(t);
    double *from = values_of(t), *to = malloc((size_t)n * sizeof *to);
    assert_non_null(to);
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * 7 % have];
    luge_tensor *r = luge_cast(luge_from_array(to, LUGE_F64, LUGE_SHAPE(n)), luge_tensor_dtype(t));
    free(from);
    free(to);
    return r;
}

/* Around the vector lengths, and past the size where threads share the work: the same bits for any
 * number of them. */
static void awkward_sizes(void **state)
{
    (void)state;
    const int64_t size[] = {1, 2, 7, 15, 16, 17, 31, 33, 1000, 70001};
    for (int k = 0; k < CASES; ++k)
        for (size_t s = 0; s < sizeof size / sizeof size[0]; ++s)
            for (int d = 0; d <= LUGE_BF16; ++d) {
                const op_case *c = &cases[k];
                if (!(c->flags & ELEMENTWISE)) continue;
                LUGE_SCOPE("sizes");
                const inputs golden_in = load(c);
                inputs in = in_dtype(&golden_in, (luge_dtype)d);
                for (int i = 0; i < in.n; ++i) in.x[i] = resized(in.x[i], size[s]);
                if (in.cot != NULL) in.cot = resized(in.cot, size[s]);
                const inputs reference = in_dtype(&in, LUGE_F64);
                const result got = evaluate(c, &in), expected = evaluate(c, &reference);
                char what[64];
                snprintf(what, sizeof what, "%s, %d elements", dtype_name[d], (int)size[s]);
                compare(c, &in, &got, &expected, bound_of((luge_dtype)d), what);
                if (size[s] < 70000) continue;
                for (int threads = 1; threads <= 3; ++threads) {
                    assert_int_equal(luge_set_num_threads(threads), LUGE_OK);
                    const result other = evaluate(c, &in);
                    assert_same_bits(c, &in, &got, &other, "another number of threads");
                }
                luge_set_num_threads(2);
            }
}

/* Nodes keep what the gradients that are wanted read, and nothing else: an input that alone wants one gets
 * what it gets among others, from a fused backward and from one made of ops. */
static void one_gradient_at_a_time(void **state)
{
    (void)state;
    for (int k = 0; k < CASES; ++k) {
        const op_case *c = &cases[k];
        LUGE_SCOPE("one");
        const inputs in = load(c);
        if (in.cot == NULL) continue;
        const result all = evaluate(c, &in);
        for (int i = 0; i < in.n; ++i) {
            if (!in.wants[i] || luge_is_none(all.grad[i])) continue;
            for (int composed = 0; composed < 2; ++composed) {
                LUGE_SCOPE("input");
                luge_tensor *x[MAX_X] = {NULL}, *out[MAX_OUT] = {NULL};
                for (int j = 0; j < in.n; ++j) x[j] = luge_detach(in.x[j]);
                luge_requires_grad_(x[i]);
                c->run(x, out);
                if (luge_ok() && !luge_tensor_requires_grad(out[0])) continue; /* written over */
                const luge_backward_options options = {.gradient = in.cot, .create_graph = composed != 0};
                luge_tensor *grad = luge_grad(out[0], x[i], &options);
                if (!luge_ok()) fail_msg("%s, %s, input %d: %s", c->name, composed ? "composed" : "fused", i, luge_error_text());
                char text[160];
                snprintf(text, sizeof text, "%s, %s, gradient %d alone", c->name, composed ? "composed" : "fused", i);
                assert_close(grad, all.grad[i], bound_of(LUGE_F64), text);
            }
        }
    }
}

static void every_op_has_run(void **state)
{
    (void)state;
    int missing = 0;
    for (int i = 0; i < LG_OP_COUNT; ++i) {
        const char *name = lg_ops[i]->name;
        if (lg_op_ran[i] == 0) {
            print_error("op %s has no row in tests/cases.def (or elsewhere in this test)\n", name);
            ++missing;
        }
    }
    assert_int_equal(missing, 0);
}

/* Ops without a golden value: random ones, fills, and parts of others that no row reaches. What they
 * make is checked in tests of their own. */
static void the_rest_runs(void **state)
{
    (void)state;
    LUGE_SCOPE("rest");
    luge_tensor *x = luge_requires_grad_(luge_randn(LUGE_SHAPE(64), NULL));
    luge_backward(luge_sum(luge_dropout(x, 0.5, true), LUGE_ALL_AXES));
    luge_rand(LUGE_SHAPE(4), NULL);
    luge_randint(0, 5, LUGE_SHAPE(4));
    luge_randperm(4);
    luge_fill_(luge_rand(LUGE_SHAPE(4), NULL), 1);
    assert_ok();
}

static void nothing_is_left(void **state)
{
    const luge_live_counts *before = *state, now = luge_live();
    assert_int_equal(now.tensors, before->tensors);
    assert_int_equal(now.storages, before->storages);
    assert_int_equal(now.nodes, before->nodes);
}

static luge_live_counts at_start;

static int open_file(void **state)
{
    file = golden_open("ops.safetensors");
    luge_set_num_threads(2);
    at_start = luge_live();
    *state = &at_start;
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    golden_close(file);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_values),  cmocka_unit_test(finite_differences), cmocka_unit_test(dtypes_and_layouts),
        cmocka_unit_test(empty_batches),  cmocka_unit_test(awkward_sizes),      cmocka_unit_test(one_gradient_at_a_time),
        cmocka_unit_test(the_rest_runs),  cmocka_unit_test(every_op_has_run),   cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
