/* Kernels of normalisation (norm.h) for one instruction set. */
#include "cpu/simd/norm.h"
#include <math.h>
#include "cpu/simd/simd.h"

#define real float
#define OF_REAL(name) name##_f32
#include "cpu/simd/norm_body.h"
#undef real
#undef OF_REAL

#define real double
#define OF_REAL(name) name##_f64
#include "cpu/simd/norm_body.h"

#define ENTRIES(suffix)                                                                                          \
    {                                                                                                            \
        column_moments_##suffix, column_normalise_##suffix, column_sums_##suffix, column_gradient_##suffix,      \
        plane_moments_##suffix, plane_normalise_##suffix, plane_sums_##suffix, plane_gradient_##suffix,          \
        layer_norm_##suffix, layer_norm_backward_##suffix,                                                       \
    }

const lg_norm_table LG_ISA_NAME(lg_norms) = {{ENTRIES(f32), ENTRIES(f64)}};
