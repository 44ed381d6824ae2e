/* Element types: promotion, half precision, conversion of elements (core/dtype.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/dtype.h"
#include "core/rng.h"
#include "tests/support/device.h"
#include <luge/luge.h>

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void test_names_and_sizes(void **state)
{
    (void)state;
    static const char *const name[] = {"f32", "f64", "f16", "bf16", "i64", "i32", "u8", "bool"};
    static const size_t size[] = {4, 8, 2, 2, 8, 4, 1, 1};
    for (int d = 0; d < LG_DTYPE_COUNT; ++d) {
        assert_string_equal(luge_dtype_name((luge_dtype)d), name[d]);
        assert_int_equal(luge_dtype_size((luge_dtype)d), size[d]);
        assert_true(lg_dtype_valid((luge_dtype)d));
    }
    for (int d = LG_DTYPE_COUNT; d <= 1000; d += 100) {
        assert_string_equal(luge_dtype_name((luge_dtype)d), "?");
        assert_int_equal(luge_dtype_size((luge_dtype)d), 0);
        assert_false(lg_dtype_valid((luge_dtype)d));
    }
    assert_false(lg_dtype_valid((luge_dtype)-1));
    assert_string_equal(luge_dtype_name((luge_dtype)-1), "?");
}

/* torch.result_type of two tensors with axes. */
static void test_promotion_is_pytorchs(void **state)
{
    (void)state;
    enum {
        F32 = LUGE_F32,
        F64 = LUGE_F64,
        F16 = LUGE_F16,
        BF = LUGE_BF16,
        I64 = LUGE_I64,
        I32 = LUGE_I32,
        U8 = LUGE_U8,
        BO = LUGE_BOOL
    };
    static const unsigned char wanted[8][8] = {
        /*         f32  f64  f16  bf16 i64  i32  u8   bool */
        /* f32 */ {F32, F64, F32, F32, F32, F32, F32, F32},
        /* f64 */ {F64, F64, F64, F64, F64, F64, F64, F64},
        /* f16 */ {F32, F64, F16, F32, F16, F16, F16, F16},
        /* bf16*/ {F32, F64, F32, BF, BF, BF, BF, BF},
        /* i64 */ {F32, F64, F16, BF, I64, I64, I64, I64},
        /* i32 */ {F32, F64, F16, BF, I64, I32, I32, I32},
        /* u8  */ {F32, F64, F16, BF, I64, I32, U8, U8},
        /* bool*/ {F32, F64, F16, BF, I64, I32, U8, BO},
    };
    for (int a = 0; a < 8; ++a)
        for (int b = 0; b < 8; ++b) assert_int_equal(luge_promote_types((luge_dtype)a, (luge_dtype)b), wanted[a][b]);
}

static void test_accumulate_types(void **state)
{
    (void)state;
    static const luge_dtype wanted[] = {LUGE_F32, LUGE_F64, LUGE_F32, LUGE_F32, LUGE_I64, LUGE_I64, LUGE_I64, LUGE_I64};
    for (int d = 0; d < LG_DTYPE_COUNT; ++d) assert_int_equal(lg_accumulate_type((luge_dtype)d), wanted[d]);
}

/* By the definition of the format, in doubles. */
static double half_value(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    double v = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) v = fraction == 0 ? INFINITY : NAN;
    return h & 0x8000 ? -v : v;
}

static void test_f16_to_f32_all(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xffff; ++h) {
        const float f = lg_f16_to_f32((uint16_t)h);
        const double wanted = half_value((uint16_t)h);
        if (isnan(wanted)) {
            assert_true(isnan(f));
            assert_int_equal(bits(f) >> 31, h >> 15);
        } else {
            assert_true((double)f == wanted && !signbit(f) == !signbit(wanted));
        }
    }
}

static void test_f16_there_and_back_all(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xffff; ++h) {
        const uint16_t back = lg_f32_to_f16(lg_f16_to_f32((uint16_t)h));
        const bool nan = (h & 0x7fff) > 0x7c00;
        assert_int_equal(back, nan ? h | 0x200 : h); /* NaNs become quiet, and keep what they carry */
    }
}

/* The half nearest to f, by search among all of them; the even one if two are as near. */
static uint16_t nearest_half(float f)
{
    const double v = fabs((double)f);
    uint16_t h;
    if (v >= 65520) {
        h = 0x7c00;
    } else {
        uint16_t low = 0, high = 0x7bff; /* halves are in the order of their bits */
        while (low < high) {
            const uint16_t middle = (uint16_t)((low + high + 1) / 2);
            if (half_value(middle) <= v)
                low = middle;
            else
                high = (uint16_t)(middle - 1);
        }
        const double below = v - half_value(low), above = (low == 0x7bff ? 65536 : half_value((uint16_t)(low + 1))) - v;
        h = below < above || (below == above && low % 2 == 0) ? low : (uint16_t)(low + 1);
    }
    return signbit(f) ? h | 0x8000 : h;
}

static void test_f32_to_f16_at_every_midpoint(void **state)
{
    (void)state;
    for (uint16_t h = 0; h < 0x7c00; ++h) {
        const double next = h == 0x7bff ? 65536 : half_value((uint16_t)(h + 1));
        const float middle = (float)((half_value(h) + next) / 2); /* exact: 12 bits */
        const uint16_t up = (uint16_t)(h + 1), even = h % 2 == 0 ? h : up;
        assert_int_equal(lg_f32_to_f16(middle), even);
        assert_int_equal(lg_f32_to_f16(-middle), even | 0x8000);
        assert_int_equal(lg_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(lg_f32_to_f16(nextafterf(middle, INFINITY)), up);
    }
}

static void test_f32_to_f16_random_bits(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100000; ++i) {
        const lg_philox r = lg_philox_block(3, 0, i);
        for (int k = 0; k < 4; ++k) {
            /* Every other one within the range of halves. */
            const uint32_t u = k % 2 == 0 ? r.v[k] : (r.v[k] & 0x8fffffffu) + 0x33000000u - (r.v[k] >> 31 << 26);
            const float f = from_bits(u);
            if (!isnan(f)) assert_int_equal(lg_f32_to_f16(f), nearest_half(f));
        }
    }
}

static void test_f16_edges(void **state)
{
    (void)state;
    assert_int_equal(lg_f32_to_f16(65504), 0x7bff);
    assert_int_equal(lg_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(lg_f32_to_f16(65520), 0x7c00);
    assert_int_equal(lg_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(lg_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(lg_f32_to_f16(0x1p-24f), 1);
    assert_int_equal(lg_f32_to_f16(0x1p-25f), 0); /* halfway to 0, which is even */
    assert_int_equal(lg_f32_to_f16(0x1.000002p-25f), 1);
    assert_int_equal(lg_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(lg_f32_to_f16(from_bits(1)), 0);
    assert_true(isnan(lg_f16_to_f32(lg_f32_to_f16(NAN))));
    assert_true(isnan(lg_f16_to_f32(lg_f32_to_f16(from_bits(0x7f800001))))); /* not cut down to infinity */
    assert_int_equal(lg_f32_to_f16(from_bits(0xffc00000)), 0xfe00);
}

static void test_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xffff; ++h) {
        const float f = lg_bf16_to_f32((uint16_t)h);
        assert_int_equal(bits(f), h << 16);
        const bool nan = (h & 0x7fff) > 0x7f80;
        assert_int_equal(lg_f32_to_bf16(f), nan ? h | 0x40 : h);
        if ((h & 0x7fff) >= 0x7f80) continue;
        /* Halfway to the next, and a step to both sides. */
        assert_int_equal(lg_f32_to_bf16(from_bits(h << 16 | 0x8000)), h % 2 == 0 ? h : h + 1);
        assert_int_equal(lg_f32_to_bf16(from_bits(h << 16 | 0x7fff)), h);
        assert_int_equal(lg_f32_to_bf16(from_bits(h << 16 | 0x8001)), h + 1);
    }
    assert_true(isnan(lg_bf16_to_f32(lg_f32_to_bf16(from_bits(0x7fffffff))))); /* does not round up to -0 */
    assert_true(isnan(lg_bf16_to_f32(lg_f32_to_bf16(from_bits(0x7f800001)))));
    assert_int_equal(lg_f32_to_bf16(3.4e38f), 0x7f80);
}

/* Stores a double as `d` and reads it back. */
static double round_trip(luge_dtype d, double value)
{
    int64_t element = -1;
    lg_store_f64(&element, d, value);
    return lg_load_f64(&element, d);
}

static void test_floats_to_integers(void **state)
{
    (void)state;
    assert_true(round_trip(LUGE_I64, 2.9) == 2);
    assert_true(round_trip(LUGE_I64, -2.9) == -2);
    assert_true(round_trip(LUGE_I32, -0.5) == 0);
    assert_true(round_trip(LUGE_I32, 1e10) == INT32_MAX);
    assert_true(round_trip(LUGE_I32, -1e10) == INT32_MIN);
    assert_true(round_trip(LUGE_I32, 2147483647.5) == INT32_MAX);
    assert_true(round_trip(LUGE_I32, -2147483648.5) == INT32_MIN);
    assert_true(round_trip(LUGE_U8, 255.9) == 255);
    assert_true(round_trip(LUGE_U8, 300) == 255);
    assert_true(round_trip(LUGE_U8, -0.9) == 0);
    assert_true(round_trip(LUGE_U8, -3) == 0);
    int64_t i;
    lg_store_f64(&i, LUGE_I64, 1e30);
    assert_int_equal(i, INT64_MAX);
    lg_store_f64(&i, LUGE_I64, 0x1p63);
    assert_int_equal(i, INT64_MAX);
    lg_store_f64(&i, LUGE_I64, -0x1p63);
    assert_int_equal(i, INT64_MIN);
    lg_store_f64(&i, LUGE_I64, -INFINITY);
    assert_int_equal(i, INT64_MIN);
    lg_store_f64(&i, LUGE_I64, 0x1.fffffffffffffp62);
    assert_int_equal(i, INT64_C(0x7ffffffffffffc00));
    for (int d = LUGE_I64; d <= LUGE_U8; ++d) assert_true(round_trip((luge_dtype)d, NAN) == 0);
    const float f = -1e30f;
    assert_int_equal(lg_load_i64(&f, LUGE_F32), INT64_MIN);
}

static void test_bool_is_not_zero(void **state)
{
    (void)state;
    assert_true(round_trip(LUGE_BOOL, 0.25) == 1);
    assert_true(round_trip(LUGE_BOOL, -0.0) == 0);
    assert_true(round_trip(LUGE_BOOL, NAN) == 1);
    uint8_t b = 7;
    lg_store_i64(&b, LUGE_BOOL, 256); /* not the lowest byte */
    assert_int_equal(b, 1);
    b = 0x40;
    assert_int_equal(lg_load_i64(&b, LUGE_BOOL), 1);
}

static void test_floats_are_rounded(void **state)
{
    (void)state;
    assert_true(round_trip(LUGE_F32, 0.1) == (double)0.1f);
    assert_true(round_trip(LUGE_F64, 0.1) == 0.1);
    assert_true(round_trip(LUGE_F16, 0.1) == 0x1.998p-4);
    assert_true(round_trip(LUGE_BF16, 0.1) == 0x1.9ap-4);
    assert_true(isinf(round_trip(LUGE_F16, 70000)));
    assert_true(round_trip(LUGE_BF16, 70000) == 70144);
    assert_true(isnan(round_trip(LUGE_F16, NAN)) && isnan(round_trip(LUGE_BF16, NAN)));
}

static void test_integers(void **state)
{
    (void)state;
    const int64_t big = INT64_C(9007199254740993); /* 2^53 + 1: no double */
    int64_t i = 0;
    int32_t n = 0;
    uint8_t u = 0;
    lg_convert(&i, LUGE_I64, &big, LUGE_I64);
    assert_int_equal(i, big);
    const int64_t wide = INT64_C(0x100000102);
    lg_convert(&n, LUGE_I32, &wide, LUGE_I64);
    assert_int_equal(n, 0x102);
    lg_convert(&u, LUGE_U8, &wide, LUGE_I64);
    assert_int_equal(u, 2);
    const int32_t minus = -1;
    lg_convert(&u, LUGE_U8, &minus, LUGE_I32);
    assert_int_equal(u, 255);
    lg_convert(&i, LUGE_I64, &minus, LUGE_I32);
    assert_int_equal(i, -1);
    /* To f32 in one rounding: by way of f64 this would be 2^60. */
    const int64_t odd = (INT64_C(1) << 60) + (INT64_C(1) << 36) + 1;
    float f = 0;
    lg_convert(&f, LUGE_F32, &odd, LUGE_I64);
    assert_true(f == 0x1.000002p60f);
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_sizes),
        cmocka_unit_test(test_promotion_is_pytorchs),
        cmocka_unit_test(test_accumulate_types),
        cmocka_unit_test(test_f16_to_f32_all),
        cmocka_unit_test(test_f16_there_and_back_all),
        cmocka_unit_test(test_f32_to_f16_at_every_midpoint),
        cmocka_unit_test(test_f32_to_f16_random_bits),
        cmocka_unit_test(test_f16_edges),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_floats_to_integers),
        cmocka_unit_test(test_bool_is_not_zero),
        cmocka_unit_test(test_floats_are_rounded),
        cmocka_unit_test(test_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
