/* matmul, linear and convolutions of the CPU backend against their reference kernels. */
#include <luge/luge.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/fault.h"
#include "cpu/isa.h"
#include "ops/attrs.h"
#include "tests/support/kernel.h"
#include "tests/support/ops.h"

enum { TEXT = 200 };
static const luge_dtype reals[] = {LUGE_F32, LUGE_F64};
static double bound_of(luge_dtype d) { return d == LUGE_F64 ? 1e-13 : 3e-6; }

/* ---- matmul and linear */

static void check_matmul(luge_dtype dtype, luge_shape a, luge_shape b, int layout_a, int layout_b)
{
    LUGE_SCOPE("matmul");
    char what[TEXT], ta[LG_SHAPE_TEXT], tb[LG_SHAPE_TEXT];
    snprintf(what, sizeof what, "matmul %s %s x %s, layouts %d %d", luge_dtype_name(dtype), lg_shape_text(ta, &a),
             lg_shape_text(tb, &b), layout_a, layout_b);
    check_kernel(&lg_op_matmul, LUGE_LIST(random_layout(a, dtype, layout_a), random_layout(b, dtype, layout_b)), NULL,
                 bound_of(dtype), what);
}

static void test_matmul(void **state)
{
    (void)state;
    /* m, k, n: tails of every size, one row, one column, panels of each width, blocks of k */
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 5, 1},    {2, 3, 4},     {7, 9, 15},   {8, 8, 16},   {9, 1, 17},
                                       {16, 16, 33}, {5, 40, 47},  {23, 64, 48},  {31, 7, 64},  {3, 1030, 5}, {1, 300, 70},
                                       {70, 300, 1}, {17, 20, 96}, {40, 33, 129}, {12, 2100, 3}};
    for (int d = 0; d < 2; ++d)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
            for (int layouts = 0; layouts < 16; ++layouts) {
                const int64_t *s = sizes[i];
                check_matmul(reals[d], LUGE_SHAPE(s[0], s[1]), LUGE_SHAPE(s[1], s[2]), layouts / 4, layouts % 4);
            }
}

static void test_matmul_large(void **state)
{
    (void)state;
    check_matmul(LUGE_F32, LUGE_SHAPE(64, 300), LUGE_SHAPE(300, 130), 0, 0);
    check_matmul(LUGE_F32, LUGE_SHAPE(64, 300), LUGE_SHAPE(300, 130), 0, 1);
    check_matmul(LUGE_F32, LUGE_SHAPE(64, 300), LUGE_SHAPE(300, 130), 1, 0);
    check_matmul(LUGE_F32, LUGE_SHAPE(40, 2100), LUGE_SHAPE(2100, 50), 0, 1);
    check_matmul(LUGE_F64, LUGE_SHAPE(61, 300), LUGE_SHAPE(300, 131), 0, 1);
}

static void test_matmul_batched(void **state)
{
    (void)state;
    for (int d = 0; d < 2; ++d)
        for (int layouts = 0; layouts < 16; ++layouts) {
            check_matmul(reals[d], LUGE_SHAPE(3, 2, 9, 17), LUGE_SHAPE(3, 2, 17, 20), layouts / 4, layouts % 4);
            check_matmul(reals[d], LUGE_SHAPE(5, 20, 17), LUGE_SHAPE(5, 17, 40), layouts / 4, layouts % 4);
        }
}

static void test_matmul_broadcast_and_empty(void **state)
{
    (void)state;
    luge_tensor *shared = luge_expand(luge_randn(LUGE_SHAPE(1, 17, 20), NULL), LUGE_SHAPE(4, 17, 20));
    luge_tensor *batch = luge_randn(LUGE_SHAPE(4, 9, 17), NULL);
    check_kernel(&lg_op_matmul, LUGE_LIST(batch, shared), NULL, 3e-6, "shared b");
    check_kernel(&lg_op_matmul, LUGE_LIST(luge_transpose(shared, 1, 2), luge_transpose(batch, 1, 2)), NULL, 3e-6, "shared a");
    luge_tensor *ones = luge_expand(luge_randn(LUGE_SHAPE(1, 1), NULL), LUGE_SHAPE(9, 17));
    check_kernel(&lg_op_matmul, LUGE_LIST(ones, luge_transpose(ones, 0, 1)), NULL, 3e-6, "all strides 0");
    check_matmul(LUGE_F32, LUGE_SHAPE(3, 0), LUGE_SHAPE(0, 4), 0, 0);
    check_matmul(LUGE_F32, LUGE_SHAPE(2, 3, 0), LUGE_SHAPE(2, 0, 4), 0, 0);
    check_matmul(LUGE_F32, LUGE_SHAPE(0, 3), LUGE_SHAPE(3, 4), 0, 0);
}

static void test_linear(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {1, 10, 30}, {3, 4, 5}, {64, 10, 33}, {20, 48, 1030}, {30, 130, 70}, {5, 7, 0}};
    for (int d = 0; d < 2; ++d)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
            for (int variant = 0; variant < 32; ++variant) {
                LUGE_SCOPE("linear");
                const int64_t n = sizes[i][0], out = sizes[i][1], in = sizes[i][2];
                luge_tensor *x = random_layout(LUGE_SHAPE(n, in), reals[d], variant % 4);
                luge_tensor *weight = random_layout(LUGE_SHAPE(out, in), reals[d], variant / 4 % 4);
                luge_tensor *bias = variant < 16 ? LUGE_NONE : random_layout(LUGE_SHAPE(out), reals[d], variant % 2 * 2);
                char what[TEXT];
                snprintf(what, sizeof what, "linear %s %lld %lld %lld variant %d", luge_dtype_name(reals[d]), (long long)n,
                         (long long)out, (long long)in, variant);
                check_kernel(&lg_op_linear, LUGE_LIST(x, weight, bias), NULL, bound_of(reals[d]), what);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_matmul), OP_TEST(test_matmul_large), OP_TEST(test_matmul_batched),
        OP_TEST(test_matmul_broadcast_and_empty), OP_TEST(test_linear),
    };
    int failed = 0;
    luge_device_usable(luge_device_cpu()); /* chooses one */
    for (int isa = 0; isa < LG_ISA_COUNT; ++isa)
        if (lg_cpu_set_isa((lg_isa)isa)) failed += cmocka_run_group_tests_name(lg_isa_name((lg_isa)isa), tests, NULL, NULL);
    return failed;
}
