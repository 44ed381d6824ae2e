/* Powers of f32 for AVX-512, sixteen at a time: the rows of elementwise.def that are made of pow, which
 * loops over single elements compute in f64. Included by map_f32.c. A logarithm with the 31 bits that the
 * exponent needs comes from a table in registers and from sums of two f32. Errors are below 1 ulp, and all
 * special cases as in the C library. */
#ifndef LG_CPU_SIMD_POW_AVX512_H
#define LG_CPU_SIMD_POW_AVX512_H

#include <float.h>
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include "core/op_id.h"

/* By the upper five bits of a mantissa m from 1 to 2: a c of six bits with |c m - 1| <= 1/32, and the upper
 * 16 bits and the rest of -log2 c. Next to 1, on both sides, c is a power of two: the logarithm keeps its
 * relative precision there. */
static const float lg_inverse_table[32] = {
    1,        0.953125, 0.921875, 0.90625, 0.875,   0.859375, 0.828125, 0.8125,   0.796875, 0.765625, 0.75,
    0.734375, 0.71875,  0.703125, 0.6875,  0.671875, 0.65625, 0.640625, 0.640625, 0.625,    0.609375, 0.59375,
    0.59375,  0.578125, 0.5625,   0.5625,  0.546875, 0.53125, 0.53125,  0.515625, 0.515625, 0.5};
static const float lg_log2_table[32] = {
    0,          4539 * 0x1p-16,  7691 * 0x1p-16,  9307 * 0x1p-16,  12625 * 0x1p-16, 14329 * 0x1p-16, 17831 * 0x1p-16,
    19632 * 0x1p-16, 21468 * 0x1p-16, 25250 * 0x1p-16, 27200 * 0x1p-16, 29190 * 0x1p-16, 31224 * 0x1p-16, 33302 * 0x1p-16,
    35427 * 0x1p-16, 37600 * 0x1p-16, 39825 * 0x1p-16, 42103 * 0x1p-16, 42103 * 0x1p-16, 44438 * 0x1p-16, 46832 * 0x1p-16,
    49288 * 0x1p-16, 49288 * 0x1p-16, 51809 * 0x1p-16, 54400 * 0x1p-16, 54400 * 0x1p-16, 57063 * 0x1p-16, 59804 * 0x1p-16,
    59804 * 0x1p-16, 62627 * 0x1p-16, 62627 * 0x1p-16, 1};
static const float lg_log2_rest_table[32] = {
    0,              3.01888235e-06f, 1.60395848e-06f,  5.45506782e-06f,  2.86602835e-06f,  -2.90200114e-06f, 7.76633655e-08f,
    -2.65016098e-07f, -1.02556521e-06f, 5.73205671e-06f, -1.56322119e-06f, 7.09558799e-06f, -2.38574444e-06f, -1.28968907e-06f,
    -4.73875434e-06f, 4.77654794e-06f, 1.30280716e-06f, 7.19948366e-06f, 7.19948366e-06f, 1.83675331e-06f, -1.82823726e-06f,
    -2.70875603e-06f, -2.70875603e-06f, 4.03183185e-06f, -3.12644238e-06f, -3.12644238e-06f, 4.70278155e-06f, 5.37655922e-07f,
    5.37655922e-07f, -6.30197565e-06f, -6.30197565e-06f, 0};

#define LG_SPLAT(c) _mm512_set1_ps(c)
#define LG_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)

static inline __m512 lg_look_up_16(const float *table, __m512i index)
{
    return _mm512_permutex2var_ps(_mm512_loadu_ps(table), index, _mm512_loadu_ps(table + 16));
}

/* high + low, which is up to 2^-11 of high, and NaN where that is infinite. */
typedef struct lg_log2_16 {
    __m512 high, low;
} lg_log2_16;

/* log2|x| */
static inline lg_log2_16 lg_log2_of_16(__m512 x)
{
    __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
    __m512i index = _mm512_srli_epi32(_mm512_castps_si512(m), 18);
    __m512 r = _mm512_fmsub_ps(m, lg_look_up_16(lg_inverse_table, index), LG_SPLAT(1));     /* exact */
    __m512 whole = _mm512_add_ps(_mm512_getexp_ps(x), lg_look_up_16(lg_log2_table, index)); /* exact */

    /* log2(1 + r) / r is slope + slope_low, to 2^-37 */
    __m512 slope = LG_FMA(r, LG_SPLAT(-0.721347511f), LG_SPLAT(1.44269502f));
    __m512 slope_low = LG_FMA(r, LG_SPLAT(-0.721347511f), _mm512_sub_ps(LG_SPLAT(1.44269502f), slope));
    __m512 p = LG_FMA(r, LG_SPLAT(-0.240755841f), LG_SPLAT(0.288818674f));
    p = LG_FMA(r, p, LG_SPLAT(-0.360673633f));
    p = LG_FMA(r, p, LG_SPLAT(0.480898263f));
    p = LG_FMA(r, p, LG_SPLAT(-9.62981496e-09f));
    p = LG_FMA(r, p, LG_SPLAT(1.92596299e-08f));
    slope_low = _mm512_add_ps(slope_low, p);

    __m512 high = LG_FMA(r, slope, whole), low = LG_FMA(r, slope, _mm512_sub_ps(whole, high));
    __m512 rest = LG_FMA(r, slope_low, lg_look_up_16(lg_log2_rest_table, index));
    return (lg_log2_16){high, _mm512_add_ps(low, rest)};
}

/* What depends on the exponent alone. Infinity becomes the largest number: the results are the same, without
 * 0 times infinity. */
typedef struct lg_exponent_16 {
    __m512 y;
    __m512i sign;    /* the sign bit where y is odd */
    __m512i special; /* for VFIXUPIMM: which of the classes of x have results of their own */
} lg_exponent_16;

static inline lg_exponent_16 lg_exponent_of_16(__m512 y)
{
    const __m512 zero = _mm512_setzero_ps();
    /* Eight classes from the lowest four bits on: NaN, signalling NaN, 0, 1, -infinity, infinity, negative,
     * positive. The answer a is 1, and 3 is NaN. */
    const __m512i one_to_1 = _mm512_set1_epi32(0x0000a000), and_negative_to_nan = _mm512_set1_epi32(0x0300a000),
                  all_to_1 = _mm512_set1_epi32((int32_t)0xaaaaaaaa);
    y = _mm512_max_ps(LG_SPLAT(-FLT_MAX), _mm512_min_ps(LG_SPLAT(FLT_MAX), y)); /* in this order, NaN stays */
    __m512 half = _mm512_mul_ps(y, LG_SPLAT(0.5f));
    __mmask16 whole = _mm512_cmp_ps_mask(_mm512_reduce_ps(y, _MM_FROUND_TO_ZERO), zero, _CMP_EQ_OQ);
    __mmask16 odd = _mm512_mask_cmp_ps_mask(whole, _mm512_reduce_ps(half, _MM_FROUND_TO_ZERO), zero, _CMP_NEQ_UQ);
    __m512i special = _mm512_mask_mov_epi32(and_negative_to_nan, whole, one_to_1);
    special = _mm512_mask_mov_epi32(special, _mm512_cmp_ps_mask(y, zero, _CMP_EQ_OQ), all_to_1);
    return (lg_exponent_16){y, _mm512_maskz_set1_epi32(odd, INT32_MIN), special};
}

/* x^y, where log2 is that of |x|. */
static inline __m512 lg_pow_of_log2_16(__m512 x, lg_log2_16 log2, lg_exponent_16 e)
{
    const __m512 one = LG_SPLAT(1), round = LG_SPLAT(0x1.8p23f);
    __m512 n = _mm512_sub_ps(LG_FMA(e.y, log2.high, round), round);
    __m512 f = LG_FMA(e.y, log2.low, _mm512_fmsub_ps(e.y, log2.high, n));
    f = _mm512_range_ps(f, one, 2); /* 1 where f is larger or NaN: 2^n is 0, infinite or NaN there */
    __m512 p = LG_FMA(f, LG_SPLAT(1.45175702e-05f), LG_SPLAT(0.000154588536f));
    p = LG_FMA(f, p, LG_SPLAT(0.00133372856f));
    p = LG_FMA(f, p, LG_SPLAT(0.00961806618f));
    p = LG_FMA(f, p, LG_SPLAT(0.0555040555f));
    p = LG_FMA(f, p, LG_SPLAT(0.240226509f));
    p = LG_FMA(f, p, LG_SPLAT(0.693147182f));
    p = LG_FMA(f, p, one);
    p = _mm512_scalef_ps(p, n);
    __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), e.sign);
    p = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(p), sign));
    return _mm512_fixupimm_ps(p, x, e.special, 0);
}

static inline __m512 lg_pow_16(__m512 x, lg_exponent_16 e) { return lg_pow_of_log2_16(x, lg_log2_of_16(x), e); }

/* ---- POW_GRAD_A and POW_GRAD_B of ops/scalar_ops.h; `less` is b - 1 */

static inline __m512 lg_pow_grad_a_16(__m512 g, __m512 a, __m512 b, lg_exponent_16 less)
{
    __m512 slope = _mm512_mul_ps(b, lg_pow_16(a, less));
    return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(b, _mm512_setzero_ps(), _CMP_NEQ_UQ), g, slope);
}

static inline __m512 lg_pow_grad_b_16(__m512 g, __m512 a, __m512 b)
{
    const __m512 zero = _mm512_setzero_ps();
    const __m512i negative_to_nan = _mm512_set1_epi32(0x03030000);
    lg_log2_16 log2 = lg_log2_of_16(a);
    __m512 power = lg_pow_of_log2_16(a, log2, lg_exponent_of_16(b));
    __m512 log = _mm512_add_ps(log2.high, _mm512_range_ps(log2.low, LG_SPLAT(1), 2)); /* 1 instead of NaN */
    log = _mm512_fixupimm_ps(_mm512_mul_ps(log, LG_SPLAT(0.693147181f)), a, negative_to_nan, 0);
    __mmask16 none = _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(a, zero, _CMP_EQ_OQ), b, zero, _CMP_GE_OQ);
    return _mm512_maskz_mul_ps(_mm512_knot(none), g, _mm512_mul_ps(power, log));
}

/* ---- rows of elementwise.def: `formula` of x, y, z, sixteen elements of each input; the last ones with a mask */

#define LG_ROW_16(name, n_in, formula)                                                                         \
    static void lg_##name##_row_16(int64_t n, void *out, const void *const *in, float number)                  \
    {                                                                                                          \
        const float *from0 = in[0], *from1 = in[n_in > 1 ? 1 : 0], *from2 = in[n_in > 2 ? 2 : 0];              \
        float *to = out;                                                                                       \
        const __m512 p = LG_SPLAT(number);                                                                     \
        const lg_exponent_16 exponent = lg_exponent_of_16(p), less = lg_exponent_of_16(LG_SPLAT(number - 1));  \
        (void)p, (void)exponent, (void)less;                                                                   \
        int64_t i = 0;                                                                                         \
        for (; i + 16 <= n; i += 16) {                                                                         \
            __m512 x = _mm512_loadu_ps(from0 + i), y = _mm512_loadu_ps(from1 + i), z = _mm512_loadu_ps(from2 + i); \
            (void)y, (void)z;                                                                                  \
            _mm512_storeu_ps(to + i, formula);                                                                 \
        }                                                                                                      \
        const __mmask16 rest = (__mmask16)((1u << (n - i)) - 1);                                               \
        __m512 x = _mm512_maskz_loadu_ps(rest, from0 + i), y = _mm512_maskz_loadu_ps(rest, from1 + i);         \
        __m512 z = _mm512_maskz_loadu_ps(rest, from2 + i);                                                     \
        (void)y, (void)z;                                                                                      \
        _mm512_mask_storeu_ps(to + i, rest, formula);                                                          \
    }
LG_ROW_16(pow_scalar, 1, lg_pow_16(x, exponent))
LG_ROW_16(pow_scalar_backward, 2, lg_pow_grad_a_16(x, y, p, less))
LG_ROW_16(pow, 2, lg_pow_16(x, lg_exponent_of_16(y)))
LG_ROW_16(pow_backward_a, 3, lg_pow_grad_a_16(x, y, z, lg_exponent_of_16(_mm512_sub_ps(z, LG_SPLAT(1)))))
LG_ROW_16(pow_backward_b, 3, lg_pow_grad_b_16(x, y, z))

/* Computes the row of `op`, if it is one of these. */
static inline bool lg_row_16(lg_op_id op, int64_t n, void *out, const void *const *in, double number)
{
    switch (op) {
    case LG_OP_pow_scalar: lg_pow_scalar_row_16(n, out, in, (float)number); return true;
    case LG_OP_pow_scalar_backward: lg_pow_scalar_backward_row_16(n, out, in, (float)number); return true;
    case LG_OP_pow: lg_pow_row_16(n, out, in, 0); return true;
    case LG_OP_pow_backward_a: lg_pow_backward_a_row_16(n, out, in, 0); return true;
    case LG_OP_pow_backward_b: lg_pow_backward_b_row_16(n, out, in, 0); return true;
    default: return false;
    }
}

#endif
