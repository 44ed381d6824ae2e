/* Softmax and its relatives (softmax.h) for one instruction set. */
#include "cpu/simd/softmax.h"
#include <math.h>
#include <string.h>
#include "cpu/simd/math_f32.h"
#include "cpu/simd/simd.h"

enum { SUMMED = 128 }; /* lines */

#define real float
#define LG_SUFFIX f32
#define LG_OWN_MATH
#define MATH_LOOP LG_VECTOR_LOOP
#include "cpu/simd/softmax_body.h"
#undef real
#undef LG_SUFFIX
#undef LG_OWN_MATH
#undef MATH_LOOP

#define real double
#define LG_SUFFIX f64
#define LG_LIBM(fn) fn
#define MATH_LOOP /* calls of the C library are not vectorised */
#include "cpu/simd/softmax_body.h"

#define ENTRIES(suffix)                                                                                     \
    {                                                                                                       \
        .softmax = softmax_##suffix, .log_softmax = log_softmax_##suffix,                                   \
        .softmax_backward = softmax_backward_##suffix, .log_softmax_backward = log_softmax_backward_##suffix, \
        .log_sum = log_sum_##suffix, .spread = spread_##suffix, .gradient = gradient_##suffix,              \
    }

const lg_softmax_table LG_ISA_NAME(lg_softmaxes) = {{ENTRIES(f32), ENTRIES(f64)}};
