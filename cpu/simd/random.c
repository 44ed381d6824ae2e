/* Random integers and floats in dense arrays. What number comes from which integer is laid down by the
 * reference kernels in ops/create.c. */
#include "cpu/simd/math_f32.h"
#include "cpu/simd/simd.h"

static void bits(const lg_rng_range *rng, int64_t first_block, int64_t blocks, uint32_t *to)
{
    uint64_t first = rng->first + (uint64_t)first_block;
    for (int64_t i = 0; i < blocks; ++i) {
        lg_philox block = lg_philox_block(rng->seed, rng->stream, first + (uint64_t)i);
        to[4 * i] = block.v[0];
        to[4 * i + 1] = block.v[1];
        to[4 * i + 2] = block.v[2];
        to[4 * i + 3] = block.v[3];
    }
}

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
