/* Conversion of dense arrays between any two dtypes, as core/dtype.h defines it for single elements.
 * f16 and bf16 are converted from and to f32; everything else goes that way in blocks. */
#include <string.h>
#include "cpu/simd/simd.h"
#if defined(__F16C__)
#include <immintrin.h>
#endif

enum { BLOCK = 512 };

static inline uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* ---- halves, without branches so that the loops are vectorised */

/* As an f32 with the same bits the value is 2^112 times too small, also where it is subnormal. */
static inline float f32_from_f16(uint16_t h)
{
    uint32_t magnitude = (h & 0x7fffu) << 13, sign = (h & 0x8000u) << 16;
    uint32_t finite = bits_of(float_of(magnitude) * 0x1p112f);
    uint32_t u = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
    return float_of(u | sign);
}

static inline uint16_t f16_from_f32(float f)
{
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    uint32_t normal = (u + 0xfffu + (u >> 13 & 1u) - (112u << 23)) >> 13;
    uint32_t subnormal = bits_of(float_of(u) + 0.5f) - 0x3f000000u; /* 0.5's last bit is worth 2^-24 */
    uint32_t h = u < 0x38800000u ? subnormal : normal;
    h = u >= 0x477ff000u ? 0x7c00u : h; /* 65520 is rounded to infinity */
    h = u > 0x7f800000u ? 0x7e00u : h;
    return (uint16_t)(h | sign);
}

static void f32_from_f16_array(int64_t n, void *to, const void *from)
{
    const uint16_t *h = from;
    float *f = to;
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) _mm512_storeu_ps(f + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(h + i))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(f + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(h + i))));
#endif
    LG_VECTOR_LOOP
    for (; i < n; ++i) f[i] = f32_from_f16(h[i]);
}

static void f16_from_f32_array(int64_t n, void *to, const void *from)
{
    const float *f = from;
    uint16_t *h = to;
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(h + i), _mm512_cvtps_ph(_mm512_loadu_ps(f + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(h + i), _mm256_cvtps_ph(_mm256_loadu_ps(f + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    LG_VECTOR_LOOP
    for (; i < n; ++i) h[i] = f16_from_f32(f[i]);
}

static void f32_from_bf16_array(int64_t n, void *to, const void *from)
{
    const uint16_t *h = from;
    float *f = to;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) f[i] = lg_bf16_to_f32(h[i]);
}

static void bf16_from_f32_array(int64_t n, void *to, const void *from)
{
    const float *f = from;
    uint16_t *h = to;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) {
        uint32_t u = bits_of(f[i]);
        uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16, quiet = u >> 16 | 0x40u;
        h[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    }
}

/* ---- the other types, element by element */

/* Floats to integers: cut towards zero, limited to the range; NaN gives 0. */
static inline int64_t cut_to_i64(double x)
{
    return x >= 0x1p63 ? INT64_MAX : x >= -0x1p63 ? (int64_t)x : x < 0 ? INT64_MIN : 0;
}
static inline int32_t cut_to_i32(double x)
{
    x = x > 2147483647.0 ? 2147483647.0 : x;
    return x >= -2147483648.0 ? (int32_t)x : x < 0 ? INT32_MIN : 0;
}
static inline uint8_t cut_to_u8(double x)
{
    x = x > 255 ? 255 : x;
    return x > 0 ? (uint8_t)(int32_t)x : 0;
}

#define TO_F32(x) ((float)(x))
#define TO_F64(x) ((double)(x))
#define TO_BOOL(x) ((uint8_t)((x) != 0))
#define CUT_I64(x) cut_to_i64((double)(x))
#define CUT_I32(x) cut_to_i32((double)(x))
#define CUT_U8(x) cut_to_u8((double)(x))
#define WRAP_I64(x) ((int64_t)(x))
#define WRAP_I32(x) ((int32_t)(x))
#define WRAP_U8(x) ((uint8_t)(x))

#define ARRAY(to_name, to_type, from_name, from_type, convert)                        \
    static void to_name##_from_##from_name##_array(int64_t n, void *to, const void *from) \
    {                                                                                 \
        const from_type *f = from;                                                    \
        to_type *t = to;                                                              \
        LG_VECTOR_LOOP                                                                \
        for (int64_t i = 0; i < n; ++i) t[i] = convert(f[i]);                         \
    }
/* From one type to all others, with the rules for floats (CUT) or integers (WRAP). */
#define ARRAYS_TO_OTHERS(from_name, from_type, rule)         \
    ARRAY(i64, int64_t, from_name, from_type, rule##_I64)    \
    ARRAY(i32, int32_t, from_name, from_type, rule##_I32)    \
    ARRAY(u8, uint8_t, from_name, from_type, rule##_U8)      \
    ARRAY(bool, uint8_t, from_name, from_type, TO_BOOL)      \
    ARRAY(f64, double, from_name, from_type, TO_F64)         \
    ARRAY(f32, float, from_name, from_type, TO_F32)
ARRAYS_TO_OTHERS(f32, float, CUT)
ARRAYS_TO_OTHERS(f64, double, CUT)
ARRAYS_TO_OTHERS(i64, int64_t, WRAP)
ARRAYS_TO_OTHERS(i32, int32_t, WRAP)
ARRAYS_TO_OTHERS(u8, uint8_t, WRAP)

static void same_16_array(int64_t n, void *to, const void *from) { memcpy(to, from, (size_t)n * 2); }

/* ---- halves and other types, by way of f32 */

static void via_f32(int64_t n, void *to, size_t to_size, lg_convert_fn second, const void *from, size_t from_size,
                    lg_convert_fn first)
{
    float block[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        first(m, block, (const char *)from + (size_t)i * from_size);
        second(m, (char *)to + (size_t)i * to_size, block);
    }
}

#define VIA_F32(to_name, to_size, from_name, from_size)                                                      \
    static void to_name##_from_##from_name##_array(int64_t n, void *to, const void *from)                    \
    {                                                                                                        \
        via_f32(n, to, to_size, to_name##_from_f32_array, from, from_size, f32_from_##from_name##_array);    \
    }
#define HALF_AND_OTHERS(half)     \
    VIA_F32(half, 2, f64, 8)      \
    VIA_F32(half, 2, i64, 8)      \
    VIA_F32(half, 2, i32, 4)      \
    VIA_F32(half, 2, u8, 1)       \
    VIA_F32(f64, 8, half, 2)      \
    VIA_F32(i64, 8, half, 2)      \
    VIA_F32(i32, 4, half, 2)      \
    VIA_F32(u8, 1, half, 2)       \
    VIA_F32(bool, 1, half, 2)
HALF_AND_OTHERS(f16)
HALF_AND_OTHERS(bf16)
VIA_F32(f16, 2, bf16, 2)
VIA_F32(bf16, 2, f16, 2)

/* ---- the table; bool is read as u8 */

#define ROW(to_name)                                                                      \
    {                                                                                     \
        [LUGE_F32] = to_name##_from_f32_array, [LUGE_F64] = to_name##_from_f64_array,     \
        [LUGE_F16] = to_name##_from_f16_array, [LUGE_BF16] = to_name##_from_bf16_array,   \
        [LUGE_I64] = to_name##_from_i64_array, [LUGE_I32] = to_name##_from_i32_array,     \
        [LUGE_U8] = to_name##_from_u8_array, [LUGE_BOOL] = to_name##_from_u8_array        \
    }
#define f16_from_f16_array same_16_array
#define bf16_from_bf16_array same_16_array

const lg_convert_table LG_ISA_NAME(lg_converts) = {{
    [LUGE_F32] = ROW(f32), [LUGE_F64] = ROW(f64), [LUGE_F16] = ROW(f16), [LUGE_BF16] = ROW(bf16),
    [LUGE_I64] = ROW(i64), [LUGE_I32] = ROW(i32), [LUGE_U8] = ROW(u8), [LUGE_BOOL] = ROW(bool),
}};
