/* Losses of pairs (loss.h) for one instruction set. */
#include "cpu/simd/loss.h"
#include <math.h>
#include "cpu/simd/math_f32.h"
#include "cpu/simd/simd.h"

enum { LANES = 32, PIECE = 4096 };

#define real float
#define LG_SUFFIX f32
#define LG_OWN_MATH
#define MATH_LOOP LG_VECTOR_LOOP
#include "cpu/simd/loss_body.h"
#undef real
#undef LG_SUFFIX
#undef LG_OWN_MATH
#undef MATH_LOOP

#define real double
#define LG_SUFFIX f64
#define LG_LIBM(fn) fn
#define MATH_LOOP /* calls of the C library are not vectorised */
#include "cpu/simd/loss_body.h"

const lg_loss_table LG_ISA_NAME(lg_losses) = {
    .mse = {{mse_loss_f32, mse_sum_f32, mse_slope_f32}, {mse_loss_f64, mse_sum_f64, mse_slope_f64}},
    .bce = {{bce_loss_f32, bce_sum_f32, bce_slope_f32}, {bce_loss_f64, bce_sum_f64, bce_slope_f64}},
};
