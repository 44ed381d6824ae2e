/* Kernels of dense rows (rows.h) for one instruction set. */
#include "cpu/simd/rows.h"
#include <math.h>
#include "cpu/simd/math_f32.h"
#include "cpu/simd/simd.h"

#define real float
#define LG_SUFFIX f32
#define LG_OWN_MATH
#define MATH_LOOP LG_VECTOR_LOOP
#include "cpu/simd/rows_body.h"
#undef real
#undef LG_SUFFIX
#undef LG_OWN_MATH
#undef MATH_LOOP

#define real double
#define LG_SUFFIX f64
#define LG_LIBM(fn) fn
#define MATH_LOOP /* calls of the C library are not vectorised */
#include "cpu/simd/rows_body.h"

#define ENTRIES(suffix)                                                                                          \
    {                                                                                                            \
        softmax_##suffix, log_softmax_##suffix, softmax_backward_##suffix, log_softmax_backward_##suffix,        \
        log_sum_exp_##suffix, spread_loss_##suffix, spread_gradient_##suffix, total_##suffix, squares_##suffix,   \
        binary_##suffix, squares_backward_##suffix, binary_backward_##suffix, masked_##suffix, moments_##suffix, \
        layer_norm_##suffix, layer_norm_backward_##suffix,                                                       \
    }

const lg_row_table LG_ISA_NAME(lg_rows) = {{ENTRIES(f32), ENTRIES(f64)}};
