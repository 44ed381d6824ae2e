/* matmul, linear and convolutions of the CPU backend against their reference kernels; convolutions by
 * its own kernels, which take over where oneDNN declines. */
#include <luge/luge.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/fault.h"
#include "cpu/isa.h"
#include "cpu/onednn.h"
#include "tests/support/convolution.h"
#include "tests/support/device.h"
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

/* ---- convolutions */

static const convolution_geometry geometries[] = {
    {0, 2, 5, 5, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1}, /* no images: only the weights' gradient has elements */
    {1, 1, 1, 1, 1, 1, 1, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 1},
    {2, 1, 9, 8, 5, 3, 3, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 1},
    {3, 3, 8, 9, 17, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1},
    {2, 16, 7, 7, 50, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1},
    {2, 20, 9, 10, 16, 3, 3, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 1},
    {1, 3, 15, 14, 8, 7, 7, {2, 2}, {3, 3}, {3, 3}, {1, 1}, 1},
    {3, 17, 6, 5, 33, 1, 1, {1, 1}, {0, 0}, {0, 0}, {1, 1}, 1},
    {2, 16, 7, 9, 48, 1, 1, {2, 2}, {0, 0}, {0, 0}, {1, 1}, 1},
    {1, 6, 9, 9, 10, 2, 3, {3, 2}, {0, 1}, {0, 1}, {1, 1}, 1},
    {1, 5, 11, 12, 4, 3, 2, {1, 1}, {2, 2}, {2, 2}, {2, 3}, 1},
    {2, 4, 10, 9, 6, 3, 3, {2, 3}, {2, 0}, {2, 0}, {3, 2}, 1},
    {1, 8, 7, 7, 12, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 4},
    {2, 6, 8, 8, 6, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 6},
    {2, 20, 8, 9, 20, 3, 3, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 20},
    {1, 4, 6, 6, 12, 3, 3, {1, 1}, {1, 1}, {1, 1}, {2, 2}, 4},
    {2, 3, 5, 6, 4, 2, 4, {1, 1}, {0, 1}, {1, 2}, {1, 1}, 1},
    {2, 2, 4, 4, 3, 3, 3, {1, 1}, {4, 3}, {4, 3}, {1, 1}, 1},
    {1, 2, 3, 3, 2, 2, 2, {5, 5}, {2, 2}, {2, 2}, {1, 1}, 1},
    {5, 40, 12, 13, 24, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1},
};
enum { GEOMETRIES = sizeof geometries / sizeof *geometries };

/* One of the three products, with inputs in every layout. */
static void check_convolution(const lg_op *op, bool x_of_out, bool weight_of_out, bool with_bias)
{
    for (int d = 0; d < 2; ++d)
        for (int i = 0; i < GEOMETRIES; ++i)
            for (int layout = 0; layout < LAYOUTS; ++layout) {
                LUGE_SCOPE("conv");
                const lg_conv2d_attrs a = convolution_attrs(&geometries[i]);
                if (a.in_shape.dim[0] == 0 && !weight_of_out) continue;
                const luge_shape first = x_of_out ? convolution_out(&a) : a.in_shape, second = weight_of_out ? a.in_shape : a.weight_shape;
                luge_tensor *in[3] = {random_layout(first, reals[d], layout), random_layout(second, reals[d], LAYOUTS - 1 - layout),
                                      layout % 2 ? LUGE_NONE : random_layout(LUGE_SHAPE(geometries[i].k), reals[d], layout)};
                char what[TEXT];
                snprintf(what, sizeof what, "%s %s geometry %d layout %d", op->name, luge_dtype_name(reals[d]), i, layout);
                check_kernel(op, (luge_list){in, with_bias ? 3 : 2}, &a, bound_of(reals[d]), what);
            }
}

static void test_conv2d(void **state)
{
    (void)state;
    check_convolution(&lg_op_conv2d, false, false, true);
}

static void test_conv2d_backward_input(void **state)
{
    (void)state;
    check_convolution(&lg_op_conv2d_backward_input, true, false, false);
}

static void test_conv2d_backward_weight(void **state)
{
    (void)state;
    check_convolution(&lg_op_conv2d_backward_weight, true, true, false);
}

/* ---- memory that runs out */

/* Fails each request for memory of a call in turn. */
static void fail_in_turn(const lg_op *op, luge_list in, const void *attrs)
{
    static const lg_fault_kind kinds[] = {LG_FAULT_DEVICE, LG_FAULT_HOST};
    for (int k = 0; k < 2; ++k) {
        int64_t nth = 0, failed = 0;
        for (bool hit = true; hit; failed += hit) {
            luge_scope scope = luge_scope_enter("fail");
            luge_tensor *out[LG_MAX_OUT];
            lg_fault_set(kinds[k], ++nth);
            const luge_status status = lg_call_op(op, in.count, in.items, attrs, NULL, out);
            hit = lg_fault_hit(kinds[k]);
            lg_fault_set(kinds[k], 0);
            assert_int_equal(status, hit ? LUGE_ERR_OUT_OF_MEMORY : LUGE_OK);
            if (hit) expect_error(LUGE_ERR_OUT_OF_MEMORY, "");
            luge_scope_exit(scope, NULL);
        }
        if (kinds[k] == LG_FAULT_DEVICE && failed < 2) fail_msg("%s: only %lld requests", op->name, (long long)failed);
    }
}

static void test_out_of_memory(void **state)
{
    (void)state;
    luge_tensor *x = luge_randn(LUGE_SHAPE(40, 300), NULL), *weight = luge_randn(LUGE_SHAPE(60, 300), NULL);
    fail_in_turn(&lg_op_linear, LUGE_LIST(x, weight, luge_randn(LUGE_SHAPE(60), NULL)), NULL);
    fail_in_turn(&lg_op_matmul, LUGE_LIST(luge_transpose(x, 0, 1), luge_randn(LUGE_SHAPE(40, 90), NULL)), NULL);
    const convolution_geometry g = {4, 20, 12, 12, 40, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1};
    const lg_conv2d_attrs a = convolution_attrs(&g);
    luge_tensor *image = random_layout(a.in_shape, LUGE_F32, 4), *kernel = luge_randn(a.weight_shape, NULL);
    luge_tensor *gradient = random_layout(convolution_out(&a), LUGE_F32, 4);
    fail_in_turn(&lg_op_conv2d, LUGE_LIST(image, kernel, luge_randn(LUGE_SHAPE(40), NULL)), &a);
    fail_in_turn(&lg_op_conv2d_backward_input, LUGE_LIST(gradient, kernel), &a);
    fail_in_turn(&lg_op_conv2d_backward_weight, LUGE_LIST(gradient, image), &a);
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        OP_TEST(test_matmul), OP_TEST(test_matmul_large), OP_TEST(test_matmul_batched),
        OP_TEST(test_matmul_broadcast_and_empty), OP_TEST(test_linear),
        OP_TEST(test_conv2d), OP_TEST(test_conv2d_backward_input), OP_TEST(test_conv2d_backward_weight),
        OP_TEST(test_out_of_memory),
    };
    int failed = 0;
    luge_device_usable(luge_device_cpu()); /* chooses one */
    lg_onednn_set_use(LG_ONEDNN_NEVER);
    for (int isa = 0; isa < LG_ISA_COUNT; ++isa)
        if (lg_cpu_set_isa((lg_isa)isa)) failed += cmocka_run_group_tests_name(lg_isa_name((lg_isa)isa), tests, NULL, NULL);
    return failed;
}
