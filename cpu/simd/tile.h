/* The inner loop of products and convolutions: one small tile of C = A B, held in registers while k
 * runs. A is read element by element from wherever its rows lie, so it needs no packing: a matrix in
 * any order, the pixels under a convolution, a gradient transposed. B is read in vectors along its
 * rows, packed by cpu_gemm.c and cpu_conv.c, or as it lies where that is fast.
 * Compiled once per instruction set (simd_tile.c), for f32 and f64. */
#ifndef LG_CPU_SIMD_TILE_H
#define LG_CPU_SIMD_TILE_H

#include <stdint.h>
#include "cpu/isa.h"

enum {
    LG_TILE_ROWS = 8,          /* the most rows of a tile */
    LG_TILE_VECTORS = 3,       /* the most vectors in a row of a tile */
    LG_TILE_BYTES = LG_TILE_VECTORS * 64
};

/* C[i][j] (+)= start[j] + sum over segments s and k < run of A[i][a_segment[s] + k a_step] B[(b_segment[s] + k) b_step + j].
 * Offsets and steps are in elements. B is read in whole vectors: its rows must be readable, whatever
 * they hold, up to `columns` rounded up to lg_tile_kernels.lanes. */
typedef struct lg_tile {
    const void *a[LG_TILE_ROWS]; /* rows of A; past `rows`: any that may be read, such as the last */
    void *c[LG_TILE_ROWS];       /* rows of C */
    const void *b;
    const void *start;           /* a row, read in whole vectors like B's; NULL: zeros */
    const int64_t *a_segment, *b_segment;
    int64_t segments, run, a_step, b_step;
    int rows, columns;
    bool add;                    /* to what C holds */
} lg_tile;

/* to[i * to_row + j] = from[i * from_row + j * from_column], for i < rows and j < columns, and 0 for
 * columns <= j < width. */
typedef struct lg_pack {
    void *to;
    const void *from;
    int64_t to_row, from_row, from_column;
    int64_t rows, columns, width;
} lg_pack;

/* [0] f32, [1] f64. */
typedef struct lg_tile_kernels {
    int rows;                    /* of a full tile */
    int lanes[2];                /* elements of a vector; a full tile has LG_TILE_VECTORS of them */
    void (*multiply[2])(const lg_tile *tile);
    void (*pack[2])(const lg_pack *pack);
} lg_tile_kernels;

LG_ISA_DECLARE(const lg_tile_kernels, lg_tile);

#endif
