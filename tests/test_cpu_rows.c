/* embedding, dropout, softmax and losses of the CPU backend against their reference kernels. */
#include <luge/luge.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "cpu/isa.h"
#include "ops/attrs.h"
#include "tests/support/compare.h"
#include "tests/support/kernel.h"
#include "tests/support/ops.h"

enum { TEXT = 200 };
static const luge_dtype reals[] = {LUGE_F32, LUGE_F64};
static double bound_of(luge_dtype d) { return d == LUGE_F64 ? 1e-13 : 3e-6; }

/* ---- embedding */

/* Indices in several layouts: dense, i32, axes exchanged, every second one. */
enum { INDEX_LAYOUTS = 4 };

static luge_tensor *random_indices(luge_shape shape, int64_t below, int layout)
{
    luge_tensor *dense = luge_randint(0, below, shape);
    if (layout == 1) return luge_cast(dense, LUGE_I32);
    if (layout == 2 && shape.rank == 2) return luge_transpose(luge_contiguous(luge_transpose(dense, 0, 1)), 0, 1);
    if (layout == 3 && shape.rank > 0) {
        luge_tensor *pairs = luge_stack(LUGE_LIST(luge_randint(0, below, shape), dense), shape.rank);
        return luge_select(pairs, shape.rank, 1);
    }
    return dense;
}

static const luge_shape index_shapes[] = {
    {.rank = 0}, {1, {1}}, {1, {7}}, {2, {5, 9}}, {1, {0}}, {3, {2, 3, 4}}, {2, {300, 9}},
};
enum { INDEX_SHAPES = sizeof index_shapes / sizeof *index_shapes };

static void test_embedding(void **state)
{
    (void)state;
    static const luge_dtype dtypes[] = {LUGE_F32, LUGE_F64, LUGE_F16, LUGE_BF16};
    static const int64_t tables[][2] = {{1, 1}, {11, 3}, {40, 64}, {9, 130}};
    for (int d = 0; d < 4; ++d)
        for (int t = 0; t < 4; ++t)
            for (int s = 0; s < INDEX_SHAPES; ++s)
                for (int layout = 0; layout < INDEX_LAYOUTS; ++layout) {
                    LUGE_SCOPE("embedding");
                    luge_tensor *weight = random_layout(LUGE_SHAPE(tables[t][0], tables[t][1]), dtypes[d], layout);
                    luge_tensor *indices = random_indices(index_shapes[s], tables[t][0], layout);
                    char what[TEXT];
                    snprintf(what, sizeof what, "embedding %s table %d indices %d layout %d", luge_dtype_name(dtypes[d]), t,
                             s, layout);
                    check_kernel(&lg_op_embedding, LUGE_LIST(weight, indices), NULL, 0, what);
                }
}

static void test_embedding_backward(void **state)
{
    (void)state;
    /* rows of the table, of which some get no gradient, one or many; columns around a block of 512 */
    static const int64_t tables[][2] = {{1, 1}, {11, 3}, {1000, 16}, {3, 512}, {40, 513}, {5, 1030}};
    for (int d = 0; d < 2; ++d)
        for (int t = 0; t < 6; ++t)
            for (int s = 0; s < INDEX_SHAPES; ++s) {
                LUGE_SCOPE("embedding_backward");
                const lg_embedding_attrs a = {.count = tables[t][0]};
                luge_shape shape = index_shapes[s];
                shape.dim[shape.rank++] = tables[t][1];
                luge_tensor *g = random_layout(shape, reals[d], 0);
                luge_tensor *indices = random_indices(index_shapes[s], tables[t][0], s % INDEX_LAYOUTS);
                char what[TEXT];
                snprintf(what, sizeof what, "embedding_backward %s table %d indices %d", luge_dtype_name(reals[d]), t, s);
                check_kernel(&lg_op_embedding_backward, LUGE_LIST(g, indices), &a, bound_of(reals[d]), what);
            }
}

/* Sums of many rows are as good as those of few: 1 + 2^-24 + ... in f32 one by one would stay 1. */
static void test_embedding_backward_adds_in_f64(void **state)
{
    (void)state;
    enum { N = 4097 };
    luge_tensor *g = luge_full(LUGE_SHAPE(N, 2), 0x1p-24, NULL);
    luge_fill_(luge_select(g, 0, 0), 1);
    luge_tensor *out[LG_MAX_OUT];
    const lg_embedding_attrs a = {.count = 2};
    luge_tensor *indices = luge_full(LUGE_SHAPE(N), 1, &(luge_tensor_options){.dtype = LUGE_I64});
    assert_int_equal(run_kernel(&lg_op_embedding_backward, LUGE_LIST(g, indices), &a, out), LUGE_OK);
    assert_text(luge_add_scalar(out[0], -1), "[[-1, -1], [0.000244141, 0.000244141]]");
}

/* ---- dropout */

static const luge_shape shapes[] = {
    {.rank = 0}, {1, {1}}, {1, {5}}, {2, {3, 7}}, {2, {64, 10}}, {1, {1023}}, {1, {1024}}, {1, {1025}}, {3, {5, 4, 33}},
    {4, {2, 17, 5, 9}}, {2, {0, 3}}, {2, {300, 257}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Also with one element for all of them. */
static luge_tensor *any_layout(luge_shape shape, luge_dtype dtype, int layout)
{
    if (layout < LAYOUTS) return random_layout(shape, dtype, layout);
    return luge_expand(luge_randn(LUGE_SCALAR, &(luge_tensor_options){.dtype = dtype}), shape);
}

static void test_dropout(void **state)
{
    (void)state;
    static const double p[] = {1e-12, 0.1, 0.5, 0.999, 1};
    for (int d = 0; d < 2; ++d)
        for (int s = 0; s < SHAPES; ++s)
            for (int layout = 0; layout <= LAYOUTS; ++layout) {
                LUGE_SCOPE("dropout");
                const lg_dropout_attrs a = {.p = p[(s + layout) % 5], .rng = {.seed = 77, .stream = 5, .first = UINT32_MAX - 3}};
                luge_tensor *x = any_layout(shapes[s], reals[d], layout), *out[LG_MAX_OUT];
                char what[TEXT];
                snprintf(what, sizeof what, "dropout %s shape %d layout %d", luge_dtype_name(reals[d]), s, layout);
                check_kernel(&lg_op_dropout, LUGE_LIST(x), &a, bound_of(reals[d]), what);

                assert_int_equal(run_kernel(&lg_op_dropout, LUGE_LIST(x), &a, out), LUGE_OK);
                luge_tensor *g = any_layout(shapes[s], reals[d], (layout + 1) % (LAYOUTS + 1));
                snprintf(what, sizeof what, "dropout_backward %s shape %d layout %d", luge_dtype_name(reals[d]), s, layout);
                check_kernel(&lg_op_dropout_backward, LUGE_LIST(g, out[1]), &a, bound_of(reals[d]), what);
            }
}

/* What is dropped is 0 even if it was NaN. */
static void test_dropout_drops_anything(void **state)
{
    (void)state;
    const lg_dropout_attrs a = {.p = 0.5, .rng = {.seed = 3}};
    luge_tensor *x = luge_full(LUGE_SHAPE(100), (double)NAN, NULL);
    check_kernel(&lg_op_dropout, LUGE_LIST(x), &a, 0, "NaN");
    check_kernel(&lg_op_dropout, LUGE_LIST(luge_full(LUGE_SHAPE(100), (double)INFINITY, NULL)), &a, 0, "infinity");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_embedding), OP_TEST(test_embedding_backward), OP_TEST(test_embedding_backward_adds_in_f64),
        OP_TEST(test_dropout), OP_TEST(test_dropout_drops_anything),
    };
    int failed = 0;
    luge_device_usable(luge_device_cpu()); /* chooses one */
    for (int isa = 0; isa < LG_ISA_COUNT; ++isa)
        if (lg_cpu_set_isa((lg_isa)isa)) failed += cmocka_run_group_tests_name(lg_isa_name((lg_isa)isa), tests, NULL, NULL);
    return failed;
}
