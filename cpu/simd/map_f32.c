/* Elementwise kernels that compute in f32. */
#include "cpu/simd/math_f32.h"
#define real float
#define LG_SUFFIX f32
#define LG_OWN_MATH
#define LG_TABLE lg_map_f32
#define LG_STORE(v) ((real)(v))
#include "cpu/simd/map_rows.h"
