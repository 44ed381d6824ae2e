/* Losses of pairs (x, target), element by element, on dense arrays. cpu/cpu_loss.c calls these. */
#ifndef LG_CPU_SIMD_LOSS_H
#define LG_CPU_SIMD_LOSS_H

#include "cpu/isa.h"
#include <stdint.h>

typedef struct lg_loss_kernels {
    void (*loss)(int64_t n, const void *x, const void *target, void *y);
    /* The sum of the losses. */
    double (*sum)(int64_t n, const void *x, const void *target);
    /* gx = g scale times the slope in x */
    void (*slope)(int64_t n, const void *g, double scale, const void *x, const void *target, void *gx);
} lg_loss_kernels;

typedef struct lg_loss_table {
    lg_loss_kernels mse[2], bce[2];
} lg_loss_table; /* f32, f64 */
LG_ISA_DECLARE(const lg_loss_table, lg_losses);

#endif
