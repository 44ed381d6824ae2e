/* Kernels of normalisation. Columns: [rows, n] elements, `stride` from row to row, one channel a
 * column (channels-last). Planes: n dense elements of one channel. Rows: n dense elements of one
 * mean. [0] f32, [1] f64. */
#ifndef LG_CPU_SIMD_NORM_H
#define LG_CPU_SIMD_NORM_H

#include "cpu/isa.h"
#include <stdint.h>

/* What x and g of a channel are multiplied with: y = (x - mean) scale + shift, and
 * gx = g scale + (x - mean) slope + shift. In columns one number for each channel. */
typedef struct lg_norm_terms {
    const void *mean, *scale, *slope, *shift;
} lg_norm_terms;

typedef struct lg_norm_kernels {
    /* Mean and sum of squared deviations in two passes: rows * n elements should fit in a cache. */
    void (*column_moments)(int64_t n, int64_t rows, int64_t stride, const void *x, double *mean, double *deviation);
    void (*column_normalise)(int64_t n, int64_t rows, int64_t stride, const void *x, const lg_norm_terms *t, void *y);
    /* Sums of g, of g (x - mean) and of x - mean. */
    void (*column_sums)(int64_t n, int64_t rows, int64_t stride, const void *g, const void *x, const void *mean,
                        double *sum, double *dot, double *off);
    void (*column_gradient)(int64_t n, int64_t rows, int64_t stride, const void *g, const void *x,
                            const lg_norm_terms *t, void *gx);
    void (*plane_moments)(int64_t n, const void *x, double *mean, double *deviation);
    void (*plane_normalise)(int64_t n, const void *x, const lg_norm_terms *t, void *y);
    void (*plane_sums)(int64_t n, const void *g, const void *x, const void *mean, double *sum, double *dot,
                       double *off);
    void (*plane_gradient)(int64_t n, const void *g, const void *x, const lg_norm_terms *t, void *gx);
    /* y[i] = (x[i] - mean) invstd weight[i] + bias[i]. The moments are taken in two passes. */
    void (*layer_norm)(int64_t n, const void *x, double eps, const void *weight, const void *bias, void *y,
                       double *mean, double *invstd);
    /* gx of one row; gweight[i] and gbias[i] take in its parts of theirs: of a few rows, as they are reals. */
    void (*layer_norm_backward)(int64_t n, const void *g, const void *x, double mean, double invstd, const void *weight,
                                void *gx, void *gweight, void *gbias);
} lg_norm_kernels;

typedef struct lg_norm_table {
    lg_norm_kernels of[2];
} lg_norm_table;
LG_ISA_DECLARE(const lg_norm_table, lg_norms);

#endif
