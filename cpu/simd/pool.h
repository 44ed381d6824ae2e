/* Kernels of pooling: n windows at a time, whose results are dense. They are those of n channels, whose
 * elements are neighbours (step 1), or of n outputs in a row, `step` elements apart. A window is rows x
 * columns pixels from the one at x on. [0] f32, [1] f64. */
#ifndef LG_CPU_SIMD_POOL_H
#define LG_CPU_SIMD_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include "cpu/isa.h"

typedef struct lg_pool_window {
    int64_t n, step;
    int64_t rows, columns;
    int64_t row_step, column_step; /* in elements, of x, or of gx where that is written */
    int64_t x_row_step, x_column_step; /* max_backward: of x */
} lg_pool_window;

typedef struct lg_pool_kernels {
    /* y = the largest; NaN if there is one. */
    void (*max)(const lg_pool_window *w, const void *x, void *y);
    /* g to the first element that is y, or NaN as y is; zero to the others. gx takes these in or
     * (add false) becomes them. `found` has room for n reals. */
    void (*max_backward)(const lg_pool_window *w, const void *g, const void *x, const void *y, bool add, void *found, void *gx);
    /* y = scale times the sum. */
    void (*mean)(const lg_pool_window *w, const void *x, double scale, void *y);
    /* gx += scale g */
    void (*mean_backward)(const lg_pool_window *w, const void *g, double scale, void *gx);
} lg_pool_kernels;

typedef struct lg_pool_table { lg_pool_kernels of[2]; } lg_pool_table;
LG_ISA_DECLARE(const lg_pool_table, lg_pools);

#endif
