/* Random numbers: Philox4x32-10 (Salmon et al. 2011), keyed by (seed, stream) and counted by an
 * offset: the same integers on every device and for any number of threads. */
#ifndef LG_CORE_RNG_H
#define LG_CORE_RNG_H

#include <stdint.h>

/* May be defined for other compilers than C's. */
#ifndef LG_INLINE
#define LG_INLINE static inline
#endif

typedef struct lg_philox { uint32_t v[4]; } lg_philox;

/* Block number `block` of the stream: four 32-bit integers. */
LG_INLINE lg_philox lg_philox_block(uint64_t seed, uint64_t stream, uint64_t block)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    for (int round = 0; round < 10; ++round) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    lg_philox numbers = {{c0, c1, c2, c3}};
    return numbers;
}

/* [0, 1) with 24 bits: 0xFFFFFFFF gives 0.99999994f. */
LG_INLINE float lg_uniform_f32(uint32_t bits) { return (float)(bits >> 8) * 0x1p-24f; }
/* [0, 1) with 53 bits of two integers. */
LG_INLINE double lg_uniform_f64(uint32_t a, uint32_t b)
{
    return (double)(((uint64_t)a << 21) ^ (uint64_t)(b >> 11)) * 0x1p-53;
}

/* What a random op draws from: block `first` on, of a stream. Part of its attributes. */
typedef struct lg_rng_range { uint64_t seed, stream, first; } lg_rng_range;

/* Takes `numbers` 32-bit integers from this thread's generator (whole blocks of four). */
lg_rng_range lg_rng_take(int64_t numbers);

#endif
