/* Random integers and floats in dense arrays. What number comes from which integer is laid down by the
 * reference kernels in ops/create.c. */
#include "cpu/simd/math_f32.h"
#include "cpu/simd/simd.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* ---- integers */

static void store_block(const lg_rng_range *rng, uint64_t block, uint32_t *to)
{
    lg_philox b = lg_philox_block(rng->seed, rng->stream, block);
    memcpy(to, b.v, sizeof b.v);
}

#if defined(__SSE2__)

/* Blocks side by side in lanes of 64 bits, whose lower halves count: that is what there is a product
 * for. Several groups of lanes at a time hide its latency. */
#if defined(__AVX512F__)
typedef __m512i lanes;
#define PRODUCT _mm512_mul_epu32
#elif defined(__AVX2__)
typedef __m256i lanes;
#define PRODUCT _mm256_mul_epu32
#else
typedef __m128i lanes;
#define PRODUCT _mm_mul_epu32
#endif
typedef uint64_t words __attribute__((vector_size(sizeof(lanes))));
enum { WIDTH = sizeof(lanes) / sizeof(uint64_t), GROUPS = WIDTH == 8 ? 4 : 2, TOGETHER = GROUPS * WIDTH };

static inline words all(uint64_t value) { return value - (words){0}; }

/* Philox4x32-10, as lg_philox_block has it. */
static void draw_together(const lg_rng_range *rng, uint64_t first, uint64_t *to)
{
    words c0[GROUPS], c1[GROUPS], c2[GROUPS], c3[GROUPS], k0 = all((uint32_t)rng->seed), k1 = all(rng->seed >> 32);
    words place = {0};
    for (int j = 1; j < WIDTH; ++j) place[j] = (uint64_t)j;
    for (int g = 0; g < GROUPS; ++g) {
        c0[g] = first + (uint64_t)(g * WIDTH) + place;
        c1[g] = c0[g] >> 32;
        c2[g] = all((uint32_t)rng->stream);
        c3[g] = all(rng->stream >> 32);
    }
    for (int round = 0; round < 10; ++round) {
        for (int g = 0; g < GROUPS; ++g) {
            words p0 = (words)PRODUCT((lanes)all(0xD2511F53u), (lanes)c0[g]), p1 = (words)PRODUCT((lanes)all(0xCD9E8D57u), (lanes)c2[g]);
            c0[g] = (p1 >> 32) ^ c1[g] ^ k0;
            c2[g] = (p0 >> 32) ^ c3[g] ^ k1;
            c1[g] = p1;
            c3[g] = p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int g = 0; g < GROUPS; ++g) {
        words low = (c0[g] & 0xffffffffu) | c1[g] << 32, high = (c2[g] & 0xffffffffu) | c3[g] << 32;
        for (int j = 0; j < WIDTH; ++j) {
            to[2 * (g * WIDTH + j)] = low[j];
            to[2 * (g * WIDTH + j) + 1] = high[j];
        }
    }
}

#else

enum { TOGETHER = 1 };
static void draw_together(const lg_rng_range *rng, uint64_t first, uint64_t *to)
{
    uint32_t block[4];
    store_block(rng, first, block);
    memcpy(to, block, sizeof block);
}

#endif

static void bits(const lg_rng_range *rng, int64_t first_block, int64_t blocks, uint32_t *to)
{
    uint64_t first = rng->first + (uint64_t)first_block;
    int64_t i = 0;
    for (; i + TOGETHER <= blocks; i += TOGETHER) {
        uint64_t together[2 * TOGETHER];
        draw_together(rng, first + (uint64_t)i, together);
        memcpy(to + 4 * i, together, sizeof together);
    }
    for (; i < blocks; ++i) store_block(rng, first + (uint64_t)i, to + 4 * i);
}

/* ---- floats */

/* The upper `width` bits as a fraction in [0, 1). */
static void uniform(int64_t n, const uint32_t *from, int width, float low, float high, float *to)
{
    float unit = lg_exp2i_f32(-width), range = high - low;
    int shift = 32 - width;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) {
        float x = low + (float)(int32_t)(from[i] >> shift) * unit * range;
        to[i] = x < high ? x : low;
    }
}

/* Sine and cosine of 2 pi u, for u in [0, 1): of the distance to the nearest quarter, then turned by
 * quarters. */
static inline void sin_cos_turns(float u, float *sine, float *cosine)
{
    float shifted = 4 * u + lg_round_f32;
    float r = u - 0.25f * (shifted - lg_round_f32), z = r * r;
    uint32_t quarter = lg_bits_f32(shifted) & 3u;
    float s = r * (6.28318529f + z * (-41.3416615f + z * (81.5923536f + z * -75.3935632f)));
    float c = 1 + z * (-19.7392086f + z * (64.9393107f + z * (-85.442298f + z * 59.2027957f)));
    float a = quarter & 1u ? c : s, b = quarter & 1u ? s : c;
    *sine = lg_from_bits_f32(lg_bits_f32(a) ^ (quarter & 2u) << 30);
    *cosine = lg_from_bits_f32(lg_bits_f32(b) ^ ((quarter + 1) & 2u) << 30);
}

/* Box and Muller; 1 - u is never 0. */
static void normal(int64_t n, const uint32_t *from, float mean, float deviation, float *to)
{
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n / 2; ++i) {
        float s, c;
        float u = 1 - (float)(int32_t)(from[2 * i] >> 8) * 0x1p-24f;
        float radius = deviation * lg_sqrt_f32(-2 * lg_log_f32(u));
        sin_cos_turns((float)(int32_t)(from[2 * i + 1] >> 8) * 0x1p-24f, &s, &c);
        to[2 * i] = mean + radius * c;
        to[2 * i + 1] = mean + radius * s;
    }
}

const lg_random_table LG_ISA_NAME(lg_randoms) = {bits, uniform, normal};
