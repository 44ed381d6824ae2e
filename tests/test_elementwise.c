/* Elementwise ops: kernels of every instruction set against the reference and the C library, dtypes,
 * broadcasting, layouts, writing in place, gradients at the edges. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/op.h"
#include "cpu/isa.h"
#include "ops/attrs.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/kernel.h"
#include "tests/support/ops.h"

/* ---- accuracy of the f32 functions, in units of the last place, over the whole range */

static double last_place(double exact)
{
    int exponent;
    if (fabs(exact) < 0x1p-126) return 0x1p-149;
    frexp(exact, &exponent);
    return ldexp(1, exponent - 24);
}

static float with_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

typedef luge_tensor *(*unary_fn)(luge_tensor *);
typedef double (*exact_fn)(double);

static double exact_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double exact_softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }
static double exact_gelu(double x) { return 0.5 * x * erfc(-x * 0.70710678118654752440); }
static double exact_silu(double x) { return x / (1 + exp(-x)); }
static double exact_reciprocal(double x) { return 1 / x; }
static double exact_square(double x) { return x * x; }

/* Error in last places; what is NaN or infinite must be so. A result past the largest number may be off
 * by the rounding that decides, and a subnormal one may be 0. */
static double error_of(float got, double exact)
{
    if (isnan(exact)) return isnan(got) ? 0 : INFINITY;
    if (isinf((float)exact)) return got == (float)exact || fabs(exact) < 0x1.00000ap128 ? 0 : INFINITY;
    if (!isfinite(got)) return fabs(exact) > 0x1.fffff0p127 ? 0 : INFINITY;
    if (got == 0 && fabs(exact) < 0x1p-126) return 0;
    return fabs((double)got - exact) / last_place(exact);
}

static void check_accuracy(const char *name, unary_fn fn, exact_fn exact, double bound, float low)
{
    enum { STEP = 6007, COUNT = (int)(0x100000000u / STEP) + 1 };
    LUGE_SCOPE("accuracy");
    luge_tensor *x = on_host(LUGE_SHAPE(COUNT), LUGE_F32);
    float *in = luge_tensor_data_mut(x, LUGE_F32);
    assert_non_null(in);
    for (int i = 0; i < COUNT; ++i) in[i] = with_bits((uint32_t)i * STEP);
    const float *out = data_of(fn(there(x)), LUGE_F32);
    for (int i = 0; i < COUNT; ++i) {
        if (in[i] < low) continue;
        double error = error_of(out[i], exact((double)in[i]));
        if (!(error <= bound)) fail_msg("%s(%a) is %a, %.3g last places off", name, (double)in[i], (double)out[i], error);
    }
}

static void test_functions_are_accurate(void **state)
{
    (void)state;
    check_accuracy("exp", luge_exp, exp, 1.2, -INFINITY);
    check_accuracy("log", luge_log, log, 1, -INFINITY);
    check_accuracy("tanh", luge_tanh, tanh, 2.5, -INFINITY);
    check_accuracy("erf", luge_erf, erf, 2.5, -INFINITY);
    check_accuracy("sigmoid", luge_sigmoid, exact_sigmoid, 2.5, -INFINITY);
    check_accuracy("softplus", luge_softplus, exact_softplus, 2.5, -INFINITY);
    check_accuracy("sqrt", luge_sqrt, sqrt, 0.501, -INFINITY);
    check_accuracy("reciprocal", luge_reciprocal, exact_reciprocal, 0.501, -INFINITY);
    check_accuracy("square", luge_square, exact_square, 0.501, -INFINITY);
    /* Further left the factor next to x is itself subnormal. */
    check_accuracy("gelu", luge_gelu, exact_gelu, 7, -12.5f);
    check_accuracy("silu", luge_silu, exact_silu, 3.5, -87);
}

static void test_pow_is_accurate(void **state)
{
    (void)state;
    enum { COUNT = 1 << 20 };
    luge_tensor *x = on_host(LUGE_SHAPE(COUNT), LUGE_F32), *y = on_host(LUGE_SHAPE(COUNT), LUGE_F32);
    float *a = luge_tensor_data_mut(x, LUGE_F32), *b = luge_tensor_data_mut(y, LUGE_F32);
    for (uint32_t i = 0; i < COUNT; ++i) {
        lg_philox r = lg_philox_block(1, 2, i);
        bool any = i % 4 == 0; /* any bits, else what gives finite results */
        a[i] = any ? with_bits(r.v[0]) : ldexpf(lg_uniform_f32(r.v[0]) - (i % 4 == 1 ? 0.5f : 0), (int)(r.v[1] % 80) - 40);
        b[i] = any ? with_bits(r.v[2]) : ldexpf(lg_uniform_f32(r.v[2]) - 0.5f, (int)(r.v[3] % 16) - 6);
        if (i % 4 == 1) b[i] = rintf(b[i]);
    }
    const float *z = data_of(luge_pow(there(x), there(y)), LUGE_F32);
    for (int i = 0; i < COUNT; ++i) {
        double error = error_of(z[i], pow((double)a[i], (double)b[i]));
        if (!(error <= 1)) fail_msg("pow(%a, %a) is %a, %g last places off", (double)a[i], (double)b[i], (double)z[i], error);
    }
}

/* Every pair of special numbers, as the C library has them, signs of zeros included. */
static void test_pow_at_special_numbers(void **state)
{
    (void)state;
    static const double special[] = {0,     -0.0, 1,     -1,    2,        -2,       3,         -3,          0.5, -0.5,
                                     1e-45, 3e38, -3e38, 1e-30, 16777216, 16777215, 8388607.5, (double)NAN, 2.5, -1e-45,
                                     -8388607, 33554434, (double)INFINITY, -(double)INFINITY};
    enum { N = sizeof special / sizeof *special };
    luge_tensor *all = luge_from_values(LUGE_SHAPE(N), special, N);
    const float *z = data_of(luge_pow(luge_unsqueeze(all, 1), all), LUGE_F32);
    for (int i = 0; i < N; ++i) {
        const float *s = data_of(luge_pow_scalar(all, special[i]), LUGE_F32);
        for (int j = 0; j < N; ++j) {
            float exact = powf((float)special[i], (float)special[j]), back = powf((float)special[j], (float)special[i]);
            bool same = (isnan(exact) && isnan(z[i * N + j])) || (z[i * N + j] == exact && !signbit(z[i * N + j]) == !signbit(exact));
            if (!same && !(error_of(z[i * N + j], (double)exact) <= 2)) fail_msg("pow(%g, %g) is %g, not %g", special[i], special[j], (double)z[i * N + j], (double)exact);
            if (!(isnan(back) && isnan(s[j])) && !(error_of(s[j], (double)back) <= 2)) fail_msg("pow_scalar(%g, %g) is %g, not %g", special[j], special[i], (double)s[j], (double)back);
        }
    }
}

static void test_special_numbers(void **state)
{
    (void)state;
    const double inf = (double)INFINITY, nan = (double)NAN;
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(4), nan, inf, -inf, 0);
    assert_values(luge_exp(x), nan, inf, 0, 1);
    assert_values(luge_log(x), nan, inf, nan, -inf);
    assert_values(luge_sqrt(x), nan, inf, nan, 0);
    assert_values(luge_tanh(x), nan, 1, -1, 0);
    assert_values(luge_sigmoid(x), nan, 1, 0, 0.5);
    assert_values(luge_erf(x), nan, 1, -1, 0);
    assert_values(luge_relu(x), nan, inf, 0, 0);
    assert_values(luge_softplus(LUGE_TENSOR(LUGE_SHAPE(3), nan, inf, -inf)), nan, inf, 0);
    assert_values(luge_clamp(x, -1, 2), nan, 2, -1, 0);
    assert_values(luge_clamp(x, 3, 2), nan, 2, 2, 2);
    assert_values(luge_maximum(x, luge_zeros_like(x)), nan, inf, 0, 0);
    assert_values(luge_minimum(luge_zeros_like(x), x), nan, 0, -inf, 0);
    assert_values(luge_eq(x, x), 0, 1, 1, 1);
    assert_values(luge_ne(x, x), 1, 0, 0, 0);
    /* The sign of zero */
    assert_values(luge_reciprocal(luge_neg(LUGE_TENSOR(LUGE_SHAPE(2), 0, -0.0))), -inf, inf);
    assert_values(luge_reciprocal(luge_tanh(LUGE_TENSOR(LUGE_SHAPE(1), -0.0))), -inf);
    assert_values(luge_reciprocal(luge_abs(LUGE_TENSOR(LUGE_SHAPE(1), -0.0))), inf);
}

/* ---- kernels against the reference, in every dtype and layout; the same bits wherever an element lies */

static const luge_dtype dtypes[] = {LUGE_F32, LUGE_F64, LUGE_F16, LUGE_BF16, LUGE_I64, LUGE_I32, LUGE_U8, LUGE_BOOL};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static double bound_of(luge_dtype dtype)
{
    static const double bound[] = {[LUGE_F32] = 2e-6, [LUGE_F64] = 1e-13, [LUGE_F16] = 1.1e-3, [LUGE_BF16] = 8.5e-3};
    return lg_is_float(dtype) ? bound[dtype] : 0;
}

/* In [low, high]; transposed, sliced, one element for all, long rows with gaps, or dense. */
static luge_tensor *input(luge_shape shape, luge_dtype dtype, double low, double high, int layout)
{
    luge_tensor *t = random_layout(shape, LUGE_F32, layout == LAYOUTS ? 0 : layout);
    luge_tensor *u = luge_mul_scalar(luge_add_scalar(luge_tanh(t), 1), 0.5);
    u = luge_add_scalar(luge_mul_scalar(u, high - low), low);
    if (!lg_is_float(dtype)) u = luge_mul_scalar(u, 40);
    u = luge_cast(u, dtype);
    if (layout == 3) { /* arithmetic has closed the gaps */
        luge_shape wide = shape;
        wide.dim[shape.rank - 1] += 3;
        luge_tensor *view = luge_slice(luge_zeros(wide, &(luge_tensor_options){.dtype = dtype}), -1, 2, wide.dim[shape.rank - 1] - 1);
        u = luge_copy_(view, u);
    }
    if (layout == 2) {
        luge_shape wide = shape;
        wide.dim[wide.rank++] = 2;
        u = luge_copy_(luge_select(luge_zeros(wide, &(luge_tensor_options){.dtype = dtype}), -1, 1), u);
    }
    if (layout == LAYOUTS) u = luge_expand(luge_slice(u, -1, 0, 1), shape);
    assert_ok();
    return u;
}

static void check_layouts(const lg_op *op, int inputs, const void *attrs, luge_dtype dtype, double low, double high)
{
    static const luge_shape shapes[] = {{3, {5, 7, 37}}, {2, {3, 1031}}, {4, {2, 19, 5, 6}}, {1, {70001}}};
    for (int s = 0; s < 4; ++s)
        for (int layout = 0; layout <= LAYOUTS; ++layout) {
            if (s == 3 && (layout > 0 || dtype == LUGE_F64)) continue;
            LUGE_SCOPE("layouts");
            char what[96];
            snprintf(what, sizeof what, "%s %s shape %d layout %d", op->name, luge_dtype_name(dtype), s, layout);
            luge_tensor *in[3];
            for (int k = 0; k < inputs; ++k) in[k] = input(shapes[s], dtype, low, high, (layout + k) % (LAYOUTS + 1));
            check_kernel(op, (luge_list){in, inputs}, attrs, bound_of(dtype), what);
        }
}

#define CHECK_FLOAT(op, inputs, attrs, low, high) \
    for (int d = 0; d < 4; ++d) check_layouts(&lg_op_##op, inputs, attrs, dtypes[d], low, high);
#define CHECK_WHOLE(op, inputs, attrs, low, high, last) \
    for (int d = 4; d < last; ++d) check_layouts(&lg_op_##op, inputs, attrs, dtypes[d], low, high);
#define WHOLE_FLOAT(...)
#define WHOLE_NUMBER(op, inputs, attrs, low, high) CHECK_WHOLE(op, inputs, attrs, low, high, DTYPES - 1)
#define WHOLE_ANY(op, inputs, attrs, low, high) CHECK_WHOLE(op, inputs, attrs, low, high, DTYPES)
#define SAVED_NONE(...)
#define SAVED_IN(...) __VA_ARGS__
#define SAVED_OUT(...) __VA_ARGS__
#define SAVED_B_A(...) __VA_ARGS__
#define SAVED_B_AB(...) __VA_ARGS__
#define SAVED_AB_AB(...) __VA_ARGS__

#define CHECK_UNARY(name, kinds, save, low, high, numbers, whole_numbers)           \
    CHECK_FLOAT(name, 1, numbers, low, high)                                        \
    WHOLE_##kinds(name, 1, whole_numbers, low, high)                                \
    SAVED_##save(CHECK_FLOAT(name##_backward, 2, numbers, (low) > 0 ? low : 0.1, high))

static void test_unary_kernels(void **state)
{
    (void)state;
#define LUGE_UNARY(name, kinds, save, cast, forward, backward, composed, low, high) \
    CHECK_UNARY(name, kinds, save, low, high, NULL, NULL)
#define LUGE_UNARY1(name, kinds, save, cast, forward, backward, composed, low, high, first)            \
    CHECK_UNARY(name, kinds, save, low, high, (&(lg_number_attrs){.p = first}), (&(lg_number_attrs){.p = -7}))
#define LUGE_UNARY2(name, kinds, save, cast, forward, backward, composed, low, high, first, second) \
    CHECK_UNARY(name, kinds, save, low, high, (&(lg_number_attrs){first, second}), (&(lg_number_attrs){-30, 25}))
#define LUGE_BINARY(...)
#define LUGE_COMPARE(...)
#include <luge/elementwise.def>
#undef LUGE_UNARY
#undef LUGE_UNARY1
#undef LUGE_UNARY2
#undef LUGE_BINARY
#undef LUGE_COMPARE
    CHECK_FLOAT(sign, 1, NULL, -3, 3)
    CHECK_WHOLE(sign, 1, NULL, -3, 3, DTYPES - 1)
}

static void test_binary_kernels(void **state)
{
    (void)state;
#define LUGE_UNARY(...)
#define LUGE_UNARY1(...)
#define LUGE_UNARY2(...)
#define LUGE_BINARY(name, kinds, save, cast, forward, grad_a, grad_b, composed_a, composed_b, low, high) \
    CHECK_FLOAT(name, 2, NULL, low, high)                                                                \
    WHOLE_##kinds(name, 2, NULL, low, high)                                                              \
    SAVED_##save(CHECK_FLOAT(name##_backward_a, 3, NULL, low, high) CHECK_FLOAT(name##_backward_b, 3, NULL, low, high))
#define LUGE_COMPARE(name, ...) CHECK_FLOAT(name, 2, NULL, -1, 1) WHOLE_ANY(name, 2, NULL, -1, 1)
#include <luge/elementwise.def>
#undef LUGE_UNARY
#undef LUGE_UNARY1
#undef LUGE_UNARY2
#undef LUGE_BINARY
#undef LUGE_COMPARE
    CHECK_FLOAT(lerp, 3, NULL, 0, 1)
    CHECK_FLOAT(lerp_scalar, 2, (&(lg_number_attrs){.p = 0.75}), -1, 1)
}

static void test_where_kernel(void **state)
{
    (void)state;
    const luge_shape shape = LUGE_SHAPE(3, 5, 41);
    for (int d = 0; d < DTYPES; ++d)
        for (int layout = 0; layout <= LAYOUTS; ++layout) {
            LUGE_SCOPE("where");
            luge_tensor *condition = input(shape, LUGE_BOOL, -0.5, 0.02, layout);
            luge_tensor *a = input(shape, dtypes[d], -2, 2, 0), *b = input(shape, dtypes[d], -2, 2, (layout + 1) % LAYOUTS);
            check_kernel(&lg_op_where, LUGE_LIST(condition, a, b), NULL, 0, luge_dtype_name(dtypes[d]));
        }
}

/* An element's result does not depend on where it lies in a vector, nor on its neighbours. */
static void check_places(unary_fn fn, const char *name, double low, double high)
{
    LUGE_SCOPE("places");
    luge_tensor *x = input(LUGE_SHAPE(131), LUGE_F32, low, high, 0), *whole = fn(x);
    for (int from = 1; from < 131; from += 9)
        for (int to = from + 1; to < 131; to += 14)
            if (!same_bits(fn(luge_slice(x, 0, from, to)), luge_slice(whole, 0, from, to)))
                fail_msg("%s: elements %d to %d have other bits alone", name, from, to);
}

static void test_same_bits_in_every_place(void **state)
{
    (void)state;
#define LUGE_UNARY(name, kinds, save, cast, forward, backward, composed, low, high) check_places(luge_##name, #name, low, high);
#define LUGE_UNARY1(...)
#define LUGE_UNARY2(...)
#define LUGE_BINARY(...)
#define LUGE_COMPARE(...)
#include <luge/elementwise.def>
#undef LUGE_UNARY
#undef LUGE_UNARY1
#undef LUGE_UNARY2
#undef LUGE_BINARY
#undef LUGE_COMPARE
}

/* Large inputs that lie across the output are straightened first. */
static void test_large_transposed_input(void **state)
{
    (void)state;
    for (int d = 0; d < DTYPES; ++d) {
        LUGE_SCOPE("across");
        luge_tensor *a = input(LUGE_SHAPE(257, 131), dtypes[d], -2, 2, 0), *b = input(LUGE_SHAPE(131, 257), dtypes[d], -2, 2, 0);
        luge_tensor *across = luge_transpose(b, 0, 1);
        assert_true(same_bits(luge_add(a, across), luge_add(a, luge_contiguous(across))));
        assert_true(same_bits(luge_maximum(across, a), luge_maximum(luge_contiguous(across), a)));
        luge_tensor *into = luge_clone(b);
        luge_add_(luge_transpose(into, 0, 1), a);
        assert_true(same_bits(into, luge_add(b, luge_transpose(a, 0, 1))));
    }
}

/* ---- dtypes */

static luge_tensor *whole(luge_dtype dtype, double a, double b)
{
    return luge_cast(luge_cast(LUGE_TENSOR(LUGE_SHAPE(2), a, b), LUGE_F64), dtype);
}

static void test_integers_wrap_around(void **state)
{
    (void)state;
    int32_t large[] = {INT32_MAX, INT32_MIN};
    int64_t larger[] = {INT64_MAX, INT64_MIN};
    luge_tensor *a = luge_from_array(large, LUGE_I32, LUGE_SHAPE(2)), *b = luge_from_array(larger, LUGE_I64, LUGE_SHAPE(2));
    assert_values(luge_add_scalar(a, 1), INT32_MIN, -2147483647.0);
    assert_values(luge_neg(a), -2147483647.0, INT32_MIN);
    assert_values(luge_abs(a), 2147483647.0, INT32_MIN);
    assert_values(luge_square(a), 1, 0);
    assert_values(luge_add(b, b), -2, 0);
    assert_values(luge_mul_scalar(b, 2), -2, 0);
    assert_values(luge_neg(b), -9223372036854775807.0, (double)INT64_MIN);
    assert_values(luge_add(whole(LUGE_U8, 250, 3), whole(LUGE_U8, 10, 4)), 4, 7);
    assert_values(luge_sub(whole(LUGE_U8, 2, 3), whole(LUGE_U8, 3, 3)), 255, 0);
    assert_values(luge_neg(whole(LUGE_U8, 1, 0)), 255, 0);
    assert_values(luge_add_scalar(whole(LUGE_U8, 5, 0), -6), 255, 250);
    assert_values(luge_clamp(whole(LUGE_U8, 5, 200), -1, 300), 5, 200);
    assert_values(luge_clamp(whole(LUGE_I32, -5, 200), -(double)INFINITY, 7), -5, 7);
    assert_int_equal(luge_tensor_dtype(luge_clamp(whole(LUGE_I32, -5, 200), 0, (double)INFINITY)), LUGE_I32);
}

static void test_numbers_beside_integers(void **state)
{
    (void)state;
    luge_tensor *i = whole(LUGE_I32, 3, -4), *b = whole(LUGE_BOOL, 1, 0);
    assert_int_equal(luge_tensor_dtype(luge_add_scalar(i, 2)), LUGE_I32);
    assert_int_equal(luge_tensor_dtype(luge_add_scalar(i, 2.5)), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_mul_scalar(i, (double)INFINITY)), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_add_scalar(b, 2)), LUGE_I64);
    assert_int_equal(luge_tensor_dtype(luge_mul_scalar(b, 0.5)), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_clamp(i, 0.5, 1)), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_pow_scalar(i, 2)), LUGE_F32);
    assert_values(luge_add_scalar(b, 2), 3, 2);
    assert_values(luge_mul_scalar(i, 0.5), 1.5, -2);
    assert_refused(luge_add_scalar_(i, 0.5), LUGE_ERR_DTYPE, "cast the tensor to a float first");
    assert_refused(luge_mul_scalar_(b, 2), LUGE_ERR_DTYPE, "not for bool");
    assert_refused(luge_clamp(i, (double)NAN, 1), LUGE_ERR_ARGUMENT, "a limit is NaN");
    assert_refused(luge_clamp_(LUGE_TENSOR(LUGE_SHAPE(1), 1), 0, (double)NAN), LUGE_ERR_ARGUMENT, "a limit is NaN");
    assert_values(luge_add_scalar_(i, 2), 5, -2);
}

static void test_bool(void **state)
{
    (void)state;
    luge_tensor *a = luge_cast(LUGE_TENSOR(LUGE_SHAPE(4), 0, 0, 1, 1), LUGE_BOOL), *b = luge_cast(LUGE_TENSOR(LUGE_SHAPE(4), 0, 1, 0, 1), LUGE_BOOL);
    assert_values(luge_add(a, b), 0, 1, 1, 1);
    assert_values(luge_mul(a, b), 0, 0, 0, 1);
    assert_values(luge_maximum(a, b), 0, 1, 1, 1);
    assert_values(luge_minimum(a, b), 0, 0, 0, 1);
    assert_int_equal(luge_tensor_dtype(luge_add(a, b)), LUGE_BOOL);
    assert_values(luge_lt(a, b), 0, 1, 0, 0);
    assert_values(luge_ge(a, b), 1, 0, 1, 1);
    assert_values(luge_exp(a), 1, 1, (double)expf(1), (double)expf(1));
    assert_refused(luge_sub(a, b), LUGE_ERR_DTYPE, "sub: not for bool");
    assert_refused(luge_neg(a), LUGE_ERR_DTYPE, "neg: not for bool");
    assert_refused(luge_abs(a), LUGE_ERR_DTYPE, "abs: not for bool");
    assert_refused(luge_square(a), LUGE_ERR_DTYPE, "square: not for bool");
    assert_refused(luge_relu(a), LUGE_ERR_DTYPE, "relu: not for bool");
}

static void test_promotion(void **state)
{
    (void)state;
    luge_tensor *f32 = whole(LUGE_F32, 1.5, 2), *f16 = whole(LUGE_F16, 1, 2), *i64 = whole(LUGE_I64, 1, 2), *u8 = whole(LUGE_U8, 1, 255);
    assert_int_equal(luge_tensor_dtype(luge_add(f16, f32)), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_add(f16, i64)), LUGE_F16);
    assert_int_equal(luge_tensor_dtype(luge_add(u8, i64)), LUGE_I64);
    assert_int_equal(luge_tensor_dtype(luge_div(u8, i64)), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_exp(u8)), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_gt(u8, f32)), LUGE_BOOL);
    assert_values(luge_gt(u8, f32), 0, 1);
    assert_int_equal(luge_tensor_dtype(luge_where(luge_gt(u8, f32), f16, i64)), LUGE_F16);
    /* A scalar of the same kind does not widen. */
    assert_int_equal(luge_tensor_dtype(luge_mul(f16, luge_full(LUGE_SCALAR, 2, NULL))), LUGE_F16);
    assert_int_equal(luge_tensor_dtype(luge_where(luge_gt(u8, f32), f16, luge_full(LUGE_SCALAR, 2, NULL))), LUGE_F16);
    /* i64 is compared as i64. */
    int64_t large[] = {INT64_C(9007199254740993)}, other[] = {INT64_C(9007199254740992)};
    assert_values(luge_gt(luge_from_array(large, LUGE_I64, LUGE_SHAPE(1)), luge_from_array(other, LUGE_I64, LUGE_SHAPE(1))), 1);
    assert_refused(luge_where(f32, f32, f32), LUGE_ERR_DTYPE, "the condition must be bool");
}

/* ---- shapes and layouts */

static void test_broadcasting(void **state)
{
    (void)state;
    luge_tensor *row = LUGE_TENSOR(LUGE_SHAPE(3), 1, 2, 3), *column = LUGE_TENSOR(LUGE_SHAPE(2, 1), 10, 20);
    assert_values(luge_add(row, column), 11, 12, 13, 21, 22, 23);
    assert_values(luge_add(luge_full(LUGE_SCALAR, 5, NULL), luge_full(LUGE_SCALAR, 2, NULL)), 7);
    assert_int_equal(luge_tensor_shape(luge_add(luge_full(LUGE_SCALAR, 5, NULL), row)).rank, 1);
    assert_int_equal(luge_tensor_numel(luge_add(luge_zeros(LUGE_SHAPE(4, 0), NULL), luge_zeros(LUGE_SHAPE(4, 1), NULL))), 0);
    assert_refused(luge_add(row, LUGE_TENSOR(LUGE_SHAPE(2), 1, 2)), LUGE_ERR_SHAPE, "shapes do not broadcast: [3] and [2]");
    assert_refused(luge_mul(luge_expand(column, LUGE_SHAPE(INT64_C(1) << 30, 2, 1)), luge_expand(row, LUGE_SHAPE(INT64_C(1) << 31, 1, 1, 1, 3))),
                   LUGE_ERR_SHAPE, "too large");
}

static void assert_strides(const luge_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    assert_ok();
    const int64_t is[] = {luge_tensor_stride(t, 0), luge_tensor_stride(t, 1), luge_tensor_stride(t, 2), luge_tensor_stride(t, 3)};
    if (is[0] != a || is[1] != b || is[2] != c || is[3] != d)
        fail_msg("strides are %d %d %d %d", (int)is[0], (int)is[1], (int)is[2], (int)is[3]);
}

static void test_layout_follows_the_inputs(void **state)
{
    (void)state;
    luge_tensor *plain = luge_zeros(LUGE_SHAPE(2, 3, 4, 5), NULL), *image = luge_channels_last(plain);
    luge_tensor *bias = luge_zeros(LUGE_SHAPE(1, 3, 1, 1), NULL), *map = luge_zeros(LUGE_SHAPE(4, 5), NULL);
    assert_strides(luge_relu(image), 60, 1, 15, 3);
    assert_strides(luge_add(image, bias), 60, 1, 15, 3);
    assert_strides(luge_add(bias, image), 60, 1, 15, 3);
    assert_strides(luge_add(map, image), 60, 1, 15, 3); /* the map has no opinion about channels */
    assert_strides(luge_add(image, map), 60, 1, 15, 3);
    assert_strides(luge_add(plain, image), 60, 20, 5, 1);
    assert_strides(luge_add(image, plain), 60, 1, 15, 3);
    assert_strides(luge_gt(image, image), 60, 1, 15, 3);
    luge_tensor *one = luge_zeros(LUGE_SHAPE(2, 3, 1, 1), NULL); /* lies in both ways */
    assert_strides(luge_add(one, image), 60, 1, 15, 3);
    assert_strides(luge_relu(luge_slice(image, 3, 1, 4)), 36, 1, 9, 3);
    assert_strides(luge_relu(luge_expand(bias, LUGE_SHAPE(2, 3, 4, 5))), 60, 20, 5, 1);
    luge_tensor *turned = luge_permute(plain, LUGE_AXES(3, 2, 1, 0)); /* [5, 4, 3, 2] */
    assert_strides(luge_exp(turned), 1, 5, 20, 60);
}

static void test_AGR_10_broadcast_with_an_empty_axis(void **state)
{
    (void)state;
    luge_tensor *a = luge_zeros(LUGE_SHAPE(4, 0), NULL), *b = LEAF(LUGE_SHAPE(4), 1, 2, 3, 4);
    luge_tensor *loss = luge_sum(luge_add(a, luge_unsqueeze(b, 1)), LUGE_ALL_AXES);
    assert_values(loss, 0);
    assert_int_equal(luge_backward(loss), LUGE_OK);
    assert_values(luge_tensor_grad(b), 0, 0, 0, 0);
}

static void test_AGR_09_gradient_of_a_transposed_parameter(void **state)
{
    (void)state;
    luge_tensor *w = LEAF(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), *c = LUGE_TENSOR(LUGE_SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
    assert_int_equal(luge_backward(luge_sum(luge_mul(luge_transpose(w, 0, 1), c), LUGE_ALL_AXES)), LUGE_OK);
    assert_values(luge_tensor_grad(w), 1, 3, 5, 2, 4, 6);
}

/* ---- in place */

static void test_in_place_equals_out_of_place(void **state)
{
    (void)state;
    luge_tensor *x = luge_add_scalar(luge_rand(LUGE_SHAPE(3, 67), NULL), 0.5), *b = luge_add_scalar(luge_rand(LUGE_SHAPE(67), NULL), 0.5);
    luge_tensor *t;
#define SAME(call, expected)                                                        \
    t = luge_clone(x);                                                              \
    assert_ptr_equal(call, t);                                                      \
    assert_true(same_bits(t, expected));                                            \
    assert_int_equal(luge_tensor_version(t), 1);
#define LUGE_UNARY(name, ...) SAME(luge_##name##_(t), luge_##name(x))
#define LUGE_UNARY1(name, ...) SAME(luge_##name##_(t, 1.25), luge_##name(x, 1.25))
#define LUGE_UNARY2(name, ...) SAME(luge_##name##_(t, 0.6, 1.2), luge_##name(x, 0.6, 1.2))
#define LUGE_BINARY(name, ...) SAME(luge_##name##_(t, b), luge_##name(x, b))
#define LUGE_COMPARE(...)
#include <luge/elementwise.def>
#undef LUGE_UNARY
#undef LUGE_UNARY1
#undef LUGE_UNARY2
#undef LUGE_BINARY
#undef LUGE_COMPARE
    SAME(luge_lerp_(t, b, 0.3), luge_lerp(x, b, luge_full(LUGE_SCALAR, 0.3, NULL)))
}

static void test_in_place_refuses_what_does_not_fit(void **state)
{
    (void)state;
    luge_tensor *row = LUGE_TENSOR(LUGE_SHAPE(3), 1, 2, 3), *wide = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    luge_tensor *i = whole(LUGE_I32, 1, 2);
    assert_refused(luge_add_(row, wide), LUGE_ERR_SHAPE, "does not fit into [3] in place");
    assert_refused(luge_exp_(i), LUGE_ERR_DTYPE, "exp");
    assert_refused(luge_add_(i, whole(LUGE_F32, 1, 2)), LUGE_ERR_DTYPE, "does not fit into a i32 tensor in place");
    assert_values(luge_add_(whole(LUGE_F16, 1, 2), whole(LUGE_F64, 1, 2)), 2, 4); /* floats do */
    assert_values(row, 1, 2, 3);
    assert_values(i, 1, 2);
}

static void test_AGR_04_writing_into_an_expanded_tensor(void **state)
{
    (void)state;
    luge_tensor *a = LUGE_TENSOR(LUGE_SHAPE(1), 0), *b = luge_expand(a, LUGE_SHAPE(10));
    assert_refused(luge_add_(b, luge_arange(0, 10, 1, NULL)), LUGE_ERR_ARGUMENT, "add");
    assert_refused(luge_fill_(b, 1), LUGE_ERR_ARGUMENT, "fill");
    assert_refused(luge_copy_(b, luge_arange(0, 10, 1, NULL)), LUGE_ERR_ARGUMENT, "copy");
    assert_values(luge_sum(b, LUGE_ALL_AXES), 0);
    assert_values(a, 0);
}

/* Elements that are read through another view after they were written would depend on the order. */
static void test_in_place_from_overlapping_memory(void **state)
{
    (void)state;
    luge_tensor *t = luge_arange(0, 1000, 1, NULL), *expected = luge_add(luge_slice(t, 0, 1, 1000), luge_slice(t, 0, 0, 999));
    luge_add_(luge_slice(t, 0, 1, 1000), luge_slice(t, 0, 0, 999));
    assert_true(same_bits(luge_slice(t, 0, 1, 1000), expected));
    luge_tensor *square = luge_reshape(luge_arange(0, 400, 1, NULL), LUGE_SHAPE(20, 20));
    luge_tensor *sum = luge_add(square, luge_transpose(square, 0, 1));
    assert_true(same_bits(luge_add_(square, luge_transpose(square, 0, 1)), sum));
}

/* ---- gradients */

static void test_NUM_07_ties(void **state)
{
    (void)state;
    luge_tensor *x = LEAF(LUGE_SHAPE(3), 0, -1, 2);
    luge_backward(luge_sum(luge_relu(x), LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(x), 0, 0, 1);
    /* PyTorch's clamp lets the gradient through at its ends. */
    luge_tensor *y = LEAF(LUGE_SHAPE(4), 0, -1, 2, 3);
    luge_backward(luge_sum(luge_clamp(y, 0, 2), LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(y), 1, 0, 1, 0);
    luge_tensor *a = LEAF(LUGE_SHAPE(3), 2, 1, 5), *b = LEAF(LUGE_SHAPE(3), 2, 4, 3);
    luge_backward(luge_sum(luge_maximum(a, b), LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(a), 0.5, 0, 1);
    assert_values(luge_tensor_grad(b), 0.5, 1, 0);
    luge_backward(luge_sum(luge_minimum(a, b), LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(a), 1, 1, 1);
    assert_values(luge_tensor_grad(b), 1, 1, 1);
}

static void check_pow_edges(bool create_graph)
{
    luge_tensor *a = LEAF(LUGE_SHAPE(5), 0, 0, 0, 2, -1), *b = LEAF(LUGE_SHAPE(5), 0, 2, 1, 0, 2), *grad[2];
    luge_tensor *y = luge_sum(luge_pow(a, b), LUGE_ALL_AXES);
    assert_values(luge_pow(a, b), 1, 0, 0, 1, 1);
    luge_grad_list(LUGE_LIST(y), LUGE_LIST(a, b), grad, &(luge_backward_options){.create_graph = create_graph});
    assert_values(grad[0], 0, 0, 1, 0, -2);
    assert_values(luge_slice(grad[1], 0, 0, 4), 0, 0, 0, log(2) == 0 ? 0 : (double)logf(2));
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 0, 3);
    assert_values(luge_grad(luge_sum(luge_pow_scalar(x, 0), LUGE_ALL_AXES), x, &(luge_backward_options){.create_graph = create_graph}), 0, 0);
    assert_values(luge_grad(luge_sum(luge_pow_scalar(x, 1), LUGE_ALL_AXES), x, &(luge_backward_options){.create_graph = create_graph}), 1, 1);
}

static void test_gradients_of_pow_at_the_edges(void **state)
{
    (void)state;
    check_pow_edges(false);
    check_pow_edges(true);
}

/* What is not chosen has no part in the gradient, whatever it is. */
static void test_where_keeps_nan_out(void **state)
{
    (void)state;
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 0, 4);
    luge_tensor *safe = luge_where(luge_gt(x, luge_zeros_like(x)), x, luge_ones_like(x));
    luge_tensor *y = luge_where(luge_gt(x, luge_zeros_like(x)), luge_log(safe), luge_zeros_like(x));
    luge_backward(luge_sum(y, LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(x), 0, 0.25);
    luge_tensor *a = LEAF(LUGE_SHAPE(2), 1, 2), *b = LEAF(LUGE_SHAPE(1), 7), *g = LUGE_TENSOR(LUGE_SHAPE(2), (double)NAN, 3);
    luge_tensor *chosen = luge_where(luge_cast(LUGE_TENSOR(LUGE_SHAPE(2), 0, 1), LUGE_BOOL), a, b);
    luge_backward_with(chosen, &(luge_backward_options){.gradient = g});
    assert_values(luge_tensor_grad(a), 0, 3);
    assert_values(luge_tensor_grad(b), (double)NAN);
}

/* Only what a gradient needs is kept: a product with a constant does not keep the other factor. */
static void test_only_what_is_read_is_saved(void **state)
{
    (void)state;
    luge_tensor *x = luge_requires_grad_(luge_ones(LUGE_SHAPE(4096), NULL)), *mask = luge_full(LUGE_SHAPE(4096), 2, NULL);
    luge_scope scope = luge_scope_enter("temporaries");
    int64_t before = luge_live().storages;
    luge_tensor *y = luge_mul(luge_mul_scalar(x, 3), mask);
    luge_scope_exit(scope, y);
    assert_int_equal(luge_live().storages - before, 1); /* y alone: mask was there before */
    luge_backward(luge_sum(y, LUGE_ALL_AXES));
    assert_near(luge_item(luge_select(luge_tensor_grad(x), 0, 5)), 6, 0);
}

int main(void)
{
    const struct CMUnitTest kernels[] = {
        OP_TEST(test_functions_are_accurate), OP_TEST(test_pow_is_accurate),  OP_TEST(test_pow_at_special_numbers),
        OP_TEST(test_special_numbers),        OP_TEST(test_unary_kernels),    OP_TEST(test_binary_kernels),
        OP_TEST(test_where_kernel),           OP_TEST(test_same_bits_in_every_place),
        OP_TEST(test_large_transposed_input), OP_TEST(test_integers_wrap_around),
    };
    const struct CMUnitTest ops[] = {
        OP_TEST(test_numbers_beside_integers),
        OP_TEST(test_bool),
        OP_TEST(test_promotion),
        OP_TEST(test_broadcasting),
        OP_TEST(test_layout_follows_the_inputs),
        OP_TEST(test_AGR_10_broadcast_with_an_empty_axis),
        OP_TEST(test_AGR_09_gradient_of_a_transposed_parameter),
        OP_TEST(test_in_place_equals_out_of_place),
        OP_TEST(test_in_place_refuses_what_does_not_fit),
        OP_TEST(test_AGR_04_writing_into_an_expanded_tensor),
        OP_TEST(test_in_place_from_overlapping_memory),
        OP_TEST(test_NUM_07_ties),
        OP_TEST(test_gradients_of_pow_at_the_edges),
        OP_TEST(test_where_keeps_nan_out),
        OP_TEST(test_only_what_is_read_is_saved),
    };
    luge_device_usable(luge_device_cpu()); /* chooses an instruction set */
    lg_isa best = lg_cpu_isa();
    int failed = cmocka_run_group_tests_name("ops", ops, NULL, NULL);
    for (int isa = on_cpu() ? 0 : (int)best; isa <= (int)best; ++isa)
        if (lg_cpu_set_isa((lg_isa)isa)) failed += cmocka_run_group_tests_name(lg_isa_name((lg_isa)isa), kernels, NULL, NULL);
    return failed;
}
