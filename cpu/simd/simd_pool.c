/* Kernels of pooling (pool.h) for one instruction set. */
#include "cpu/simd/pool.h"
#include "cpu/simd/simd.h"

#define real float
#define whole int32_t
#define OF_REAL(name) name##_f32
#include "cpu/simd/pool_body.h"
#undef real
#undef whole
#undef OF_REAL

#define real double
#define whole int64_t
#define OF_REAL(name) name##_f64
#include "cpu/simd/pool_body.h"

#define ENTRIES(suffix) {max_##suffix, max_backward_##suffix, mean_##suffix, mean_backward_##suffix}

const lg_pool_table LG_ISA_NAME(lg_pools) = {{ENTRIES(f32), ENTRIES(f64)}};
