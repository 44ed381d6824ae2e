/* Between the kernels of cpu/simd/ and those who call them. Every kernel works on dense arrays, which
 * may be one and the same where lengths are equal; strides, halves and threads are the callers'
 * business. */
#ifndef LG_CPU_SIMD_SIMD_H
#define LG_CPU_SIMD_SIMD_H

#include "core/dtype.h"
#include "core/op_id.h"
#include "core/rng.h"
#include "cpu/isa.h"

/* What kernels compute in. f16 and bf16 are converted to f32 for them. */
typedef enum lg_lane { LG_LANE_F32, LG_LANE_F64, LG_LANE_I64, LG_LANE_I32, LG_LANE_U8, LG_LANE_BOOL, LG_LANES } lg_lane;

static inline lg_lane lg_lane_of(luge_dtype d)
{
    static const unsigned char lane[LG_DTYPE_COUNT] = {LG_LANE_F32, LG_LANE_F64, LG_LANE_F32, LG_LANE_F32,
                                                       LG_LANE_I64, LG_LANE_I32, LG_LANE_U8,  LG_LANE_BOOL};
    return (lg_lane)lane[d];
}

/* An elementwise op on n elements, with its numbers. */
typedef void (*lg_map)(int64_t n, void *out, const void *const *in, double p, double q);
/* NULL for what is not elementwise, or not for this lane. */
typedef struct lg_map_table { lg_map op[LG_OP_COUNT]; } lg_map_table;
LG_ISA_DECLARE(const lg_map_table, lg_map_f32);
LG_ISA_DECLARE(const lg_map_table, lg_map_f64);
LG_ISA_DECLARE(const lg_map_table, lg_map_i64);
LG_ISA_DECLARE(const lg_map_table, lg_map_i32);
LG_ISA_DECLARE(const lg_map_table, lg_map_u8);
LG_ISA_DECLARE(const lg_map_table, lg_map_bool);

/* Conversion of n elements; see core/dtype.h for the rules. */
typedef void (*lg_convert_fn)(int64_t n, void *to, const void *from);
typedef struct lg_convert_table { lg_convert_fn to_from[LG_DTYPE_COUNT][LG_DTYPE_COUNT]; } lg_convert_table;
LG_ISA_DECLARE(const lg_convert_table, lg_converts);

/* ---- reductions. They accumulate in a wide type: f64 for floats, i64 for integers. */

typedef enum lg_reduction {
    LG_REDUCE_SUM,
    LG_REDUCE_MAX,        /* NaN if there is one */
    LG_REDUCE_MIN,
    LG_REDUCE_ABS_SUM,    /* these for floats only */
    LG_REDUCE_ABS_MAX,
    LG_REDUCE_SQUARE_SUM,
    LG_REDUCE_MOMENTS,    /* two accumulators: the sums of x - center and of its square */
    LG_REDUCE_POWER_SUM,  /* of |x / center|, to the power of number */
    LG_REDUCTIONS
} lg_reduction;

/* acc[j] takes in x[r * stride + j] for r < rows; j < n. center[n] may be NULL if it is not used. */
typedef void (*lg_reducer)(int64_t n, int64_t rows, int64_t stride, const void *x, const void *center, double number,
                           void *acc);

/* best[j] becomes the largest of itself and x[r * stride + j], and row[j] the first r where it was found,
 * plus first_row. */
typedef void (*lg_argmax_fn)(int64_t n, int64_t rows, int64_t stride, const void *x, int64_t first_row, void *best,
                             int64_t *row);

typedef struct lg_reduce_table {
    lg_reducer of[LG_LANES][LG_REDUCTIONS]; /* bool as u8 */
    lg_argmax_fn argmax[LG_LANES];
} lg_reduce_table;
LG_ISA_DECLARE(const lg_reduce_table, lg_reduces);

/* ---- random numbers */

typedef struct lg_random_table {
    /* 32-bit integers of `blocks` blocks of four. */
    void (*bits)(const lg_rng_range *rng, int64_t first_block, int64_t blocks, uint32_t *to);
    /* Uniform in [low, high), with as many bits as `width` says. */
    void (*uniform)(int64_t n, const uint32_t *bits, int width, float low, float high, float *to);
    /* n is even. */
    void (*normal)(int64_t n, const uint32_t *bits, float mean, float deviation, float *to);
} lg_random_table;
LG_ISA_DECLARE(const lg_random_table, lg_randoms);

/* Before a loop whose iterations do not depend on each other although its arrays may be the same. */
#if defined(__clang__)
#define LG_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define LG_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

#endif
