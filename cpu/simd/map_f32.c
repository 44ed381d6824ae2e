/* Elementwise kernels that compute in f32. */
#include <math.h>
#define real float
#define LG_SUFFIX f32
#define LG_LIBM(fn) fn##f
#define LG_TABLE lg_map_f32
#define LG_STORE(v) ((real)(v))
#include "cpu/simd/map_rows.h"
