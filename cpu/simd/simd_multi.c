/* Steps of optimizers and passes over gradients, in f32 and f64. f16 and bf16 are converted to f32 for
 * them (cpu/cpu_multi.c). */
#include "cpu/simd/multi.h"

#define real       float
#define LG_SUFFIX  f32
#define LG_SQRT(x) sqrtf(x)
#include "cpu/simd/multi_body.h"
#undef real
#undef LG_SUFFIX
#undef LG_SQRT

#define real       double
#define LG_SUFFIX  f64
#define LG_SQRT(x) sqrt(x)
#include "cpu/simd/multi_body.h"
