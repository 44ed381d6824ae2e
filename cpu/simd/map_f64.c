/* Elementwise kernels that compute in f64, with the C library's functions. */
#include <math.h>
#define real double
#define LG_SUFFIX f64
#define LG_LIBM(fn) fn
#define LG_TABLE lg_map_f64
#define LG_STORE(v) ((real)(v))
#include "cpu/simd/map_rows.h"
