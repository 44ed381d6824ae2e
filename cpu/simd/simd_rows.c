/* Layer normalisation (rows.h) for one instruction set. */
#include "cpu/simd/rows.h"
#include <math.h>
#include "cpu/simd/math_f32.h"
#include "cpu/simd/simd.h"

#define real float
#define LG_SUFFIX f32
#define LG_OWN_MATH
#include "cpu/simd/rows_body.h"
#undef real
#undef LG_SUFFIX
#undef LG_OWN_MATH

#define real double
#define LG_SUFFIX f64
#define LG_LIBM(fn) fn
#include "cpu/simd/rows_body.h"

const lg_row_table LG_ISA_NAME(lg_rows) = {{{moments_f32, layer_norm_f32, layer_norm_backward_f32},
                                            {moments_f64, layer_norm_f64, layer_norm_backward_f64}}};
