/* Dropout (dropout.h) for one instruction set. */
#include "cpu/simd/dropout.h"
#include "cpu/simd/simd.h"

/* Compared as 32 bits, which 2^32 does not fit in: with one less, and all stays at 0. */
static void choose(int64_t n, const uint32_t *bits, uint64_t threshold, uint8_t *mask)
{
    const uint32_t dropped = (uint32_t)(threshold - 1);
    const uint8_t all = threshold == 0;
    for (int64_t i = 0; i < n; ++i) mask[i] = (uint8_t)((bits[i] > dropped) | all);
}

#define APPLY(name, real)                                                                      \
    static void name(int64_t n, const void *from, const uint8_t *mask, double factor, void *to) \
    {                                                                                          \
        const real *x = from, scale = (real)factor;                                            \
        real *y = to;                                                                          \
        LG_VECTOR_LOOP                                                                         \
        for (int64_t i = 0; i < n; ++i) {                                                      \
            const real scaled = x[i] * scale;                                                  \
            y[i] = mask[i] != 0 ? scaled : 0;                                                  \
        }                                                                                      \
    }
APPLY(apply_f32, float)
APPLY(apply_f64, double)

const lg_dropout_kernels LG_ISA_NAME(lg_dropouts) = {choose, {apply_f32, apply_f64}};
