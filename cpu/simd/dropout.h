/* Dropout on dense arrays. cpu/cpu_dropout.c calls these. */
#ifndef LG_CPU_SIMD_DROPOUT_H
#define LG_CPU_SIMD_DROPOUT_H

#include "cpu/isa.h"
#include <stdint.h>

typedef struct lg_dropout_kernels {
    /* mask[i] = bits[i] >= threshold; 0 <= threshold <= 2^32 */
    void (*choose)(int64_t n, const uint32_t *bits, uint64_t threshold, uint8_t *mask);
    /* y[i] = x[i] scale where mask[i] is not 0, else 0; y may be x. [0] f32, [1] f64 */
    void (*apply[2])(int64_t n, const void *x, const uint8_t *mask, double scale, void *y);
} lg_dropout_kernels;

LG_ISA_DECLARE(const lg_dropout_kernels, lg_dropouts);

#endif
