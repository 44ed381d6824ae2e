/* Layer normalisation of one dense row of n elements at a time. [0] f32, [1] f64. Sums over a row are
 * taken in lanes, so that they are as quick as the rest and more precise than one after the other. */
#ifndef LG_CPU_SIMD_ROWS_H
#define LG_CPU_SIMD_ROWS_H

#include <stdint.h>
#include "cpu/isa.h"

typedef struct lg_row_kernels {
    /* Mean and sum of squared deviations, in two passes. */
    void (*moments)(int64_t n, const void *x, double *mean, double *deviation);
    /* y[i] = (x[i] - mean) scale weight[i] + bias[i] */
    void (*layer_norm)(int64_t n, const void *x, double mean, double scale, const void *weight, const void *bias, void *y);
    /* gx of one row; gweight[i] and gbias[i] take in its parts of theirs. */
    void (*layer_norm_backward)(int64_t n, const void *g, const void *x, double mean, double invstd, const void *weight,
                                void *gx, void *gweight, void *gbias);
} lg_row_kernels;

typedef struct lg_row_table { lg_row_kernels of[2]; } lg_row_table;
LG_ISA_DECLARE(const lg_row_table, lg_rows);

#endif
