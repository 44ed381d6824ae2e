/* Reductions of dense rows, column by column; cpu_reduce.c makes reductions of tensors of them. */
#include <math.h>
#include "cpu/simd/simd.h"

enum { BLOCK = 512 }; /* columns whose largest elements stay in L1 */

#define real float
#define wide double
#define held float
#define place int32_t
#define LG_SUFFIX f32
#include "cpu/simd/reduce_lane.h"

#define real double
#define wide double
#define held double
#define place int64_t
#define LG_SUFFIX f64
#include "cpu/simd/reduce_lane.h"

#define LG_WHOLE
#define real int64_t
#define wide int64_t
#define held int64_t
#define place int64_t
#define LG_SUFFIX i64
#include "cpu/simd/reduce_lane.h"

#define real int32_t
#define wide int64_t
#define held int64_t
#define place int64_t
#define LG_SUFFIX i32
#include "cpu/simd/reduce_lane.h"

#define real uint8_t
#define wide int64_t
#define held int64_t
#define place int64_t
#define LG_SUFFIX u8
#include "cpu/simd/reduce_lane.h"

#define ENTRY(id, name, lane) [LG_REDUCE_##id] = name##_columns_##lane
#define WHOLES(lane) {ENTRY(SUM, sum, lane), ENTRY(MAX, max, lane), ENTRY(MIN, min, lane)}
#define REALS(lane)                                                                              \
    {                                                                                            \
        ENTRY(SUM, sum, lane), ENTRY(MAX, max, lane), ENTRY(MIN, min, lane),                     \
        ENTRY(ABS_SUM, abs_sum, lane), ENTRY(ABS_MAX, abs_max, lane),                            \
        ENTRY(SQUARE_SUM, square_sum, lane), ENTRY(MOMENTS, moments, lane),          \
        ENTRY(POWER_SUM, power_sum, lane)                                                        \
    }

const lg_reduce_table LG_ISA_NAME(lg_reduces) = {
    .of = {[LG_LANE_F32] = REALS(f32),
           [LG_LANE_F64] = REALS(f64),
           [LG_LANE_I64] = WHOLES(i64),
           [LG_LANE_I32] = WHOLES(i32),
           [LG_LANE_U8] = WHOLES(u8),
           [LG_LANE_BOOL] = WHOLES(u8)},
    .argmax = {[LG_LANE_F32] = argmax_f32,
               [LG_LANE_F64] = argmax_f64,
               [LG_LANE_I64] = argmax_i64,
               [LG_LANE_I32] = argmax_i32,
               [LG_LANE_U8] = argmax_u8,
               [LG_LANE_BOOL] = argmax_u8},
};
