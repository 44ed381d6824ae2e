/* Tiles and packing (tile.h) for one instruction set. */
#include "cpu/simd/tile.h"
#include <string.h>

#define EACH_ROW(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7)

/* A loop over an array of vectors, which must be gone when registers are given out. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* What the registers hold: rows x LG_TILE_VECTORS sums, a row of B, and one element of A. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define TILE_ROWS 8
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define TILE_ROWS 4
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define TILE_ROWS 8
#else
#define VECTOR_BYTES 16
#define TILE_ROWS 4
#endif

/* Index lists that interleave the first and the second halves of two vectors of n elements. */
#define LOW_2 0, 2
#define HIGH_2 1, 3
#define LOW_4 0, 4, 1, 5
#define HIGH_4 2, 6, 3, 7
#define LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

#if VECTOR_BYTES == 64
#define F32_LANES 16
#define F64_LANES 8
#elif VECTOR_BYTES == 32
#define F32_LANES 8
#define F64_LANES 4
#else
#define F32_LANES 4
#define F64_LANES 2
#endif

#define real float
#define OF_REAL(name) name##_f32
#define LANES F32_LANES
#include "cpu/simd/tile_body.h"
#undef real
#undef OF_REAL
#undef LANES

#define real double
#define OF_REAL(name) name##_f64
#define LANES F64_LANES
#include "cpu/simd/tile_body.h"

const lg_tile_kernels LG_ISA_NAME(lg_tile) = {
    .rows = TILE_ROWS,
    .lanes = {F32_LANES, F64_LANES},
    .multiply = {multiply_f32, multiply_f64},
    .pack = {pack_f32, pack_f64},
};
