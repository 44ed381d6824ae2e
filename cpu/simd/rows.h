/* Kernels that work on one dense row of n elements at a time: softmax and its relatives, losses,
 * layer normalisation. [0] f32, [1] f64. Sums over a row are taken in lanes, so that they are as quick
 * as the rest and more precise than one after the other. */
#ifndef LG_CPU_SIMD_ROWS_H
#define LG_CPU_SIMD_ROWS_H

#include <stdint.h>
#include "cpu/isa.h"

typedef struct lg_row_kernels {
    /* y may be x. A row of nothing but -inf becomes zeros, or -inf. */
    void (*softmax)(int64_t n, const void *x, void *y);
    void (*log_softmax)(int64_t n, const void *x, void *y);
    void (*softmax_backward)(int64_t n, const void *g, const void *y, void *gx);
    void (*log_softmax_backward)(int64_t n, const void *g, const void *y, void *gx);
    /* log sum e^x */
    double (*log_sum_exp)(int64_t n, const void *x);
    /* sum of share[i] (lse - x[i]) */
    double (*spread_loss)(int64_t n, const void *x, const void *share, double lse);
    /* y[i] = scale e^(x[i] - lse) - d share[i]; share NULL: zeros */
    void (*spread_gradient)(int64_t n, const void *x, double lse, double scale, const void *share, double d, void *y);
    double (*sum)(int64_t n, const void *x);
    /* Losses of pairs, and their slopes times g times scale. */
    void (*squares)(int64_t n, const void *x, const void *target, void *y);
    void (*binary)(int64_t n, const void *x, const void *target, void *y);
    void (*squares_backward)(int64_t n, const void *g, double scale, const void *x, const void *target, void *gx);
    void (*binary_backward)(int64_t n, const void *g, double scale, const void *x, const void *target, void *gx);
    /* y[i] = mask[i] ? x[i] scale : 0 */
    void (*masked)(int64_t n, const void *x, const uint8_t *mask, double scale, void *y);
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
