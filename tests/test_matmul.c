/* matmul and linear (ops/matmul.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/kernel.h"
#include "tests/support/ops.h"

static void test_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *a = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6),
                *b = LUGE_TENSOR(LUGE_SHAPE(3, 2), 1, -1, 0, 2, 3, 1);
    assert_text(luge_matmul(a, b), "[[10, 6], [22, 12]]");
    assert_text(luge_matmul(b, a), "[[-3, -3, -3], [8, 10, 12], [7, 11, 15]]");
    /* transposes are strides */
    assert_text(luge_matmul(luge_transpose(b, 0, 1), luge_transpose(a, 0, 1)), "[[10, 22], [6, 12]]");
    assert_text(luge_matmul(luge_slice(a, 1, 0, 2), luge_slice(b, 0, 1, 3)), "[[6, 4], [15, 13]]");
}

static void test_vectors(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *m = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    luge_tensor *v2 = LUGE_TENSOR(LUGE_SHAPE(2), 1, -1), *v3 = LUGE_TENSOR(LUGE_SHAPE(3), 1, 0, 2);
    assert_text(luge_matmul(v2, m), "[-3, -3, -3]");
    assert_text(luge_matmul(m, v3), "[7, 16]");
    assert_text(luge_matmul(v3, v3), "5");
    luge_tensor *batch = luge_reshape(luge_arange(0, 12, 1, NULL), LUGE_SHAPE(2, 2, 3));
    assert_text(luge_matmul(batch, v3), "[[4, 13], [22, 31]]");
    assert_text(luge_matmul(v2, batch), "[[-3, -3, -3], [-3, -3, -3]]");
}

static void test_batches(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *a = luge_reshape(luge_arange(0, 8, 1, NULL), LUGE_SHAPE(2, 2, 2));
    luge_tensor *b = LUGE_TENSOR(LUGE_SHAPE(3, 1, 2, 1), 1, 0, 0, 1, 1, 1);
    luge_tensor *y = luge_matmul(a, b);
    assert_text(y, "[[[[0], [2]], [[4], [6]]], [[[1], [3]], [[5], [7]]], [[[1], [5]], [[9], [13]]]]");
    assert_true(luge_tensor_is_contiguous(y));
    luge_tensor *swap = LUGE_TENSOR(LUGE_SHAPE(2, 2), 0, 1, 1, 0);
    assert_text(luge_matmul(a, swap), "[[[1, 0], [3, 2]], [[5, 4], [7, 6]]]");
    assert_text(luge_matmul(swap, a), "[[[2, 3], [0, 1]], [[6, 7], [4, 5]]]");
    /* one matrix for the batch, whose layout does not fold into rows */
    assert_text(luge_matmul(luge_transpose(a, 0, 1), swap), "[[[1, 0], [5, 4]], [[3, 2], [7, 6]]]");
}

static void test_empty(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_shape s =
        luge_tensor_shape(luge_matmul(luge_zeros(LUGE_SHAPE(0, 3), NULL), luge_zeros(LUGE_SHAPE(3, 2), NULL)));
    assert_true(s.rank == 2 && s.dim[0] == 0 && s.dim[1] == 2);
    assert_text(luge_matmul(luge_zeros(LUGE_SHAPE(1, 0), NULL), luge_zeros(LUGE_SHAPE(0, 2), NULL)), "[[0, 0]]");
    assert_text(luge_linear(luge_zeros(LUGE_SHAPE(1, 0), NULL), luge_zeros(LUGE_SHAPE(2, 0), NULL),
                            LUGE_TENSOR(LUGE_SHAPE(2), 3, 4)),
                "[[3, 4]]");
    s = luge_tensor_shape(luge_matmul(luge_zeros(LUGE_SHAPE(0, 2, 3), NULL), luge_zeros(LUGE_SHAPE(0, 3, 4), NULL)));
    assert_true(s.rank == 3 && s.dim[0] == 0 && s.dim[1] == 2 && s.dim[2] == 4);
}

static luge_tensor *product(luge_list in, void *user)
{
    (void)user;
    return luge_matmul(in.items[0], in.items[1]);
}

static luge_tensor *product_of_transposes(luge_list in, void *user)
{
    (void)user;
    return luge_matmul(luge_transpose(in.items[0], -1, -2), luge_transpose(in.items[1], -1, -2));
}

static void test_matmul_gradients(void **state)
{
    (void)state;
    static const struct {
        luge_shape a, b;
    } pairs[] = {
        {{2, {2, 3}}, {2, {3, 4}}},       {{1, {3}}, {2, {3, 2}}},
        {{2, {2, 3}}, {1, {3}}},          {{1, {4}}, {1, {4}}},
        {{3, {2, 3, 2}}, {3, {2, 2, 3}}}, {{3, {2, 3, 2}}, {2, {2, 3}}},
        {{2, {3, 2}}, {3, {2, 2, 3}}},    {{3, {2, 2, 3}}, {1, {3}}},
        {{1, {3}}, {3, {2, 3, 2}}},       {{4, {2, 1, 2, 3}}, {3, {3, 3, 2}}},
        {{3, {1, 2, 2}}, {3, {3, 2, 1}}}, {{2, {1, 1}}, {2, {1, 1}}},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; ++i) {
        LUGE_SCOPE("test");
        assert_gradients(product, LUGE_LIST(leaf(pairs[i].a), leaf(pairs[i].b)), NULL, "matmul");
    }
    LUGE_SCOPE("test");
    assert_gradients(product_of_transposes, LUGE_LIST(leaf(LUGE_SHAPE(2, 3, 2)), leaf(LUGE_SHAPE(4, 3))), NULL,
                     "transposed");
    assert_gradients(product_of_transposes, LUGE_LIST(leaf(LUGE_SHAPE(2, 3, 2)), leaf(LUGE_SHAPE(1, 4, 3))), NULL,
                     "transposed batch");
}

static void test_linear_values(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), *b = LUGE_TENSOR(LUGE_SHAPE(2), 10, -10);
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 0, -1, 2, 2, 2);
    assert_text(luge_linear(x, w, b), "[[8, -12], [22, 20]]");
    assert_text(luge_linear(x, w, LUGE_NONE), "[[-2, -2], [12, 30]]");
    assert_text(luge_linear(luge_select(x, 0, 1), w, b), "[22, 20]");
    assert_text(luge_linear(luge_reshape(x, LUGE_SHAPE(1, 2, 1, 3)), w, b), "[[[[8, -12]], [[22, 20]]]]");
    assert_text(luge_linear(x, luge_transpose(LUGE_TENSOR(LUGE_SHAPE(3, 2), 1, 4, 2, 5, 3, 6), 0, 1), b),
                "[[8, -12], [22, 20]]");
}

static luge_tensor *affine(luge_list in, void *user)
{
    (void)user;
    return luge_linear(in.items[0], in.items[1], in.count > 2 ? in.items[2] : LUGE_NONE);
}

static void test_linear_gradients(void **state)
{
    (void)state;
    static const luge_shape inputs[] = {{1, {3}}, {2, {4, 3}}, {3, {2, 2, 3}}, {4, {2, 1, 2, 3}}};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; ++i) {
        LUGE_SCOPE("test");
        assert_gradients(affine, LUGE_LIST(leaf(inputs[i]), leaf(LUGE_SHAPE(2, 3)), leaf(LUGE_SHAPE(2))), NULL,
                         "linear");
        assert_gradients(affine, LUGE_LIST(leaf(inputs[i]), leaf(LUGE_SHAPE(2, 3))), NULL, "linear without bias");
    }
}

/* Gradients that nothing has written would be NaN: the cache is filled with NaN before. */
static void poison(int64_t elements)
{
    LUGE_SCOPE("poison");
    for (int i = 0; i < 4; ++i) luge_full(LUGE_SHAPE(elements), NAN, NULL);
}

static void test_AGR_05_empty_batch(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    enum { N = 2100 };
    luge_tensor *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(N, N), NULL));
    luge_tensor *b = luge_requires_grad_(luge_ones(LUGE_SHAPE(N), NULL));
    luge_tensor *y = luge_linear(luge_zeros(LUGE_SHAPE(0, N), NULL), w, b);
    assert_true(luge_tensor_size(y, 0) == 0 && luge_tensor_size(y, 1) == N);
    poison((int64_t)N * N);
    poison(N);
    assert_int_equal(luge_backward(luge_sum(y, LUGE_ALL_AXES)), LUGE_OK);
    assert_true(luge_tensor_size(luge_tensor_grad(w), 0) == N && luge_tensor_size(luge_tensor_grad(b), 0) == N);
    assert_near(luge_item(luge_max(luge_abs(luge_tensor_grad(w)), LUGE_ALL_AXES)), 0, 0);
    assert_near(luge_item(luge_max(luge_abs(luge_tensor_grad(b)), LUGE_ALL_AXES)), 0, 0);
}

static void test_gradient_of_a_parameter(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6));
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(1, 2), 1, 10);
    luge_tensor *y = luge_matmul(x, w);
    luge_backward(luge_sum(luge_mul(y, LUGE_TENSOR(LUGE_SHAPE(1, 3), 1, 2, 3)), LUGE_ALL_AXES));
    assert_text(luge_tensor_grad(w), "[[1, 2, 3], [10, 20, 30]]");
}

static void test_NUM_15_bias_gradient_over_a_long_half_batch(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    const luge_tensor_options half = {.dtype = LUGE_F16};
    luge_tensor *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(2, 3), &half));
    luge_tensor *b = luge_requires_grad_(luge_zeros(LUGE_SHAPE(2), &half));
    luge_tensor *y = luge_linear(luge_ones(LUGE_SHAPE(4096, 3), &half), w, b);
    luge_backward_with(y, &(luge_backward_options){.gradient = luge_ones(LUGE_SHAPE(4096, 2), &half)});
    assert_text(luge_tensor_grad(b), "[4096, 4096]");
    assert_text(luge_tensor_grad(w), "[[4096, 4096, 4096], [4096, 4096, 4096]]");
}

static void test_halves_add_up_in_f32(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *ones = luge_ones(LUGE_SHAPE(1, 4096), &(luge_tensor_options){.dtype = LUGE_F16});
    assert_text(luge_matmul(ones, luge_transpose(ones, 0, 1)), "[[4096]]");
    luge_tensor *bf = luge_cast(ones, LUGE_BF16);
    assert_text(luge_linear(bf, bf, LUGE_NONE), "[[4096]]");
}

static void test_AMP_04_autocast_nests(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = LUGE_TENSOR(LUGE_SHAPE(1, 1), 1), *x = luge_full(LUGE_SHAPE(1, 1), 1 + 0x1p-12, NULL);
    {
        LUGE_AUTOCAST(LUGE_F16);
        assert_text(luge_cast(luge_matmul(w, x), LUGE_F64), "[[1]]");
        {
            LUGE_AUTOCAST(LUGE_F32);
            assert_near(luge_item(luge_matmul(w, x)), 1.000244140625, 0);
        }
        assert_int_equal(luge_tensor_dtype(luge_linear(x, w, LUGE_NONE)), LUGE_F16);
    }
    assert_near(luge_item(luge_matmul(w, x)), 1.000244140625, 0);
}

/* ---- kernels against the reference, whatever the strides; the CPU's take f32 and f64 */

static const struct {
    luge_dtype dtype;
    double bound;
    bool on_cpu;
} kernel_dtypes[] = {
    {LUGE_F32, 3e-6, true}, {LUGE_F64, 1e-13, true}, {LUGE_F16, 2e-3, false}, {LUGE_BF16, 1e-2, false}};
#define EACH_DTYPE(d)                                                         \
    for (size_t d = 0; d < sizeof kernel_dtypes / sizeof *kernel_dtypes; ++d) \
        if (kernel_dtypes[d].on_cpu || !on_cpu())

static void check_product(size_t d, luge_shape a, luge_shape b, int layouts)
{
    char what[64];
    snprintf(what, sizeof what, "matmul, dtype %zu, rank %d, %lld inner, layouts %d", d, a.rank,
             (long long)a.dim[a.rank - 1], layouts);
    const luge_dtype dtype = kernel_dtypes[d].dtype;
    check_kernel(&lg_op_matmul,
                 LUGE_LIST(random_layout(a, dtype, layouts / LAYOUTS), random_layout(b, dtype, layouts % LAYOUTS)),
                 NULL, kernel_dtypes[d].bound, what);
}

static void test_kernels_of_products(void **state)
{
    (void)state;
    EACH_DTYPE(d)
    {
        for (int layouts = 0; layouts < LAYOUTS * LAYOUTS; ++layouts) {
            LUGE_SCOPE("test");
            check_product(d, LUGE_SHAPE(7, 9), LUGE_SHAPE(9, 15), layouts);
            check_product(d, LUGE_SHAPE(3, 2, 5, 8), LUGE_SHAPE(3, 2, 8, 6), layouts);
            if (layouts % (LAYOUTS + 1) != 0) continue; /* the same layout for both */
            check_product(d, LUGE_SHAPE(1, 5), LUGE_SHAPE(5, 1), layouts);
            check_product(d, LUGE_SHAPE(4, 1, 8), LUGE_SHAPE(4, 8, 3), layouts);
            check_product(d, LUGE_SHAPE(2, 3, 0), LUGE_SHAPE(2, 0, 4), layouts);
        }
        check_product(d, LUGE_SHAPE(3, 1030), LUGE_SHAPE(1030, 5), 0); /* a sum that is cut into parts */
    }
}

static void test_kernels_of_linear(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{6, 8, 5}, {1, 4, 3}, {5, 3, 1}, {9, 600, 4}, {4, 0, 3}, {0, 3, 2}};
    EACH_DTYPE(d)
    {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
            for (int layout = 0; layout < 4; ++layout) {
                LUGE_SCOPE("test");
                char what[64];
                snprintf(what, sizeof what, "linear, dtype %zu, sizes %zu, layout %d", d, i, layout);
                const luge_dtype dtype = kernel_dtypes[d].dtype;
                const int64_t n = sizes[i][0], in = sizes[i][1], out = sizes[i][2];
                luge_tensor *x = random_layout(LUGE_SHAPE(n, in), dtype, layout);
                luge_tensor *weight = random_layout(LUGE_SHAPE(out, in), dtype, ((int)i + layout) % 4);
                luge_tensor *bias = random_layout(LUGE_SHAPE(out), dtype, layout);
                luge_tensor *g = random_layout(LUGE_SHAPE(n, out), dtype, ((int)i + layout) % 4);
                check_kernel(&lg_op_linear, LUGE_LIST(x, weight, bias), NULL, kernel_dtypes[d].bound, what);
                check_kernel(&lg_op_linear, LUGE_LIST(x, weight, LUGE_NONE), NULL, kernel_dtypes[d].bound, what);
                check_kernel(&lg_op_linear_backward_weight, LUGE_LIST(g, x), NULL, kernel_dtypes[d].bound, what);
            }
        }
    }
}

static void test_a_batch_that_shares_a_matrix(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *shared = luge_expand(luge_randn(LUGE_SHAPE(1, 7, 6), NULL), LUGE_SHAPE(4, 7, 6));
    luge_tensor *batch = luge_randn(LUGE_SHAPE(4, 5, 7), NULL);
    check_kernel(&lg_op_matmul, LUGE_LIST(batch, shared), NULL, 3e-6, "shared b");
    check_kernel(&lg_op_matmul, LUGE_LIST(luge_transpose(shared, 1, 2), luge_transpose(batch, 1, 2)), NULL, 3e-6,
                 "shared a");
    luge_tensor *one = luge_expand(luge_randn(LUGE_SHAPE(1, 1), NULL), LUGE_SHAPE(9, 7));
    check_kernel(&lg_op_matmul, LUGE_LIST(one, luge_transpose(one, 0, 1)), NULL, 3e-6, "all strides 0");
}

/* The gradients of weight and bias in one go, and as they are made of ops. */
static void test_linear_gradients_in_one_go(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_randn(LUGE_SHAPE(6, 4), NULL), *gy = luge_randn(LUGE_SHAPE(6, 5), NULL);
    luge_tensor *weight = luge_requires_grad_(luge_randn(LUGE_SHAPE(5, 4), NULL));
    luge_tensor *bias = luge_requires_grad_(luge_randn(LUGE_SHAPE(5), NULL));
    luge_backward(luge_sum(luge_mul(luge_linear(x, weight, bias), gy), LUGE_ALL_AXES));
    assert_close(luge_tensor_grad(weight), luge_matmul(luge_transpose(gy, 0, 1), x), 1e-6, "weight");
    assert_close(luge_tensor_grad(bias), luge_sum(gy, LUGE_AXES(0)), 1e-6, "bias");
}

/* TF32 rounds factors to 10 bits, where there is such a thing. */
static void test_tf32_on_request(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *a = luge_full(LUGE_SHAPE(8, 8), 1 + 0x1p-12, NULL), *one = luge_ones(LUGE_SHAPE(8, 8), NULL);
    assert_int_equal(luge_tf32(), LUGE_TF32_NOTHING);
    assert_near(luge_item(luge_max(luge_matmul(a, one), LUGE_ALL_AXES)), 8 + 0x1p-9, 0);
    assert_int_equal(luge_set_tf32(LUGE_TF32_CONV), LUGE_OK);
    assert_near(luge_item(luge_max(luge_matmul(a, one), LUGE_ALL_AXES)), 8 + 0x1p-9, 0);
    assert_int_equal(luge_set_tf32(LUGE_TF32_MATMUL | LUGE_TF32_CONV), LUGE_OK);
    const double product = luge_item(luge_max(luge_matmul(a, one), LUGE_ALL_AXES));
    const double wide =
        luge_item(luge_max(luge_matmul(luge_cast(a, LUGE_F64), luge_cast(one, LUGE_F64)), LUGE_ALL_AXES));
    assert_int_equal(luge_tf32(), LUGE_TF32_MATMUL | LUGE_TF32_CONV);
    luge_set_tf32(LUGE_TF32_NOTHING);
    assert_near(product, on_cpu() ? 8 + 0x1p-9 : 8, 0);
    assert_near(wide, 8 + 0x1p-9, 0);
    assert_int_equal(luge_set_tf32(4), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_set_tf32: 4 is not made of luge_tf32_uses");
    assert_int_equal(luge_tf32(), LUGE_TF32_NOTHING);
}

static void test_wrong_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *a = luge_zeros(LUGE_SHAPE(3, 1), NULL), *b = luge_zeros(LUGE_SHAPE(2, 3), NULL);
    assert_refused(luge_matmul(a, b), LUGE_ERR_SHAPE, "matmul: inner sizes differ: [3, 1] x [2, 3]");
    assert_refused(luge_matmul(luge_zeros(LUGE_SHAPE(2), NULL), luge_zeros(LUGE_SHAPE(3), NULL)), LUGE_ERR_SHAPE,
                   "[2] x [3]");
    assert_refused(luge_matmul(luge_zeros(LUGE_SCALAR, NULL), b), LUGE_ERR_SHAPE,
                   "matmul: takes tensors of at least one axis, got [] x [2, 3]");
    assert_refused(luge_matmul(luge_zeros(LUGE_SHAPE(2, 1, 3), NULL), luge_zeros(LUGE_SHAPE(3, 3, 1), NULL)),
                   LUGE_ERR_SHAPE, "matmul: leading axes do not broadcast: [2, 1, 3] x [3, 3, 1]");
    assert_refused(luge_matmul(NULL, b), LUGE_ERR_ARGUMENT, "matmul: the first input");
    assert_refused(luge_matmul(a, NULL), LUGE_ERR_ARGUMENT, "matmul: the second input");
    assert_refused(luge_matmul(LUGE_NONE, b), LUGE_ERR_ARGUMENT, "LUGE_NONE");
    assert_refused(luge_matmul(b, luge_cast(a, LUGE_F64)), LUGE_ERR_DTYPE,
                   "matmul: the second input is f64 but the first is f32");
    luge_tensor *i = luge_cast(a, LUGE_I64);
    assert_refused(luge_matmul(luge_cast(b, LUGE_I64), i), LUGE_ERR_DTYPE, "matmul: the first input is i64");

    luge_tensor *x = luge_zeros(LUGE_SHAPE(4, 785), NULL), *w = luge_zeros(LUGE_SHAPE(10, 784), NULL);
    assert_refused(luge_linear(x, w, LUGE_NONE), LUGE_ERR_SHAPE,
                   "linear: input has 785 features, the weight takes 784");
    assert_refused(luge_linear(luge_zeros(LUGE_SCALAR, NULL), w, LUGE_NONE), LUGE_ERR_SHAPE,
                   "linear: input has 1 features");
    assert_refused(luge_linear(x, luge_zeros(LUGE_SHAPE(785), NULL), LUGE_NONE), LUGE_ERR_SHAPE, "must be [out, in]");
    luge_tensor *fit = luge_zeros(LUGE_SHAPE(10, 785), NULL);
    assert_refused(luge_linear(x, fit, luge_zeros(LUGE_SHAPE(9), NULL)), LUGE_ERR_SHAPE,
                   "linear: the bias is [9], but must be [10]");
    assert_refused(luge_linear(x, fit, luge_zeros(LUGE_SHAPE(10, 1), NULL)), LUGE_ERR_SHAPE,
                   "linear: the bias is [10, 1]");
    assert_refused(luge_linear(x, fit, NULL), LUGE_ERR_ARGUMENT, "linear: the bias");
    assert_refused(luge_linear(NULL, fit, LUGE_NONE), LUGE_ERR_ARGUMENT, "linear: the input");
    assert_refused(luge_linear(x, LUGE_NONE, LUGE_NONE), LUGE_ERR_ARGUMENT, "linear: the weight");
    assert_refused(luge_linear(x, luge_cast(fit, LUGE_F16), LUGE_NONE), LUGE_ERR_DTYPE,
                   "linear: the weight is f16 but the input is f32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_values),
        OP_TEST(test_vectors),
        OP_TEST(test_batches),
        OP_TEST(test_empty),
        OP_TEST(test_matmul_gradients),
        OP_TEST(test_linear_values),
        OP_TEST(test_linear_gradients),
        OP_TEST(test_AGR_05_empty_batch),
        OP_TEST(test_gradient_of_a_parameter),
        OP_TEST(test_NUM_15_bias_gradient_over_a_long_half_batch),
        OP_TEST(test_halves_add_up_in_f32),
        OP_TEST(test_AMP_04_autocast_nests),
        OP_TEST(test_kernels_of_products),
        OP_TEST(test_kernels_of_linear),
        OP_TEST(test_a_batch_that_shares_a_matrix),
        OP_TEST(test_linear_gradients_in_one_go),
        OP_TEST(test_tf32_on_request),
        OP_TEST(test_wrong_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
