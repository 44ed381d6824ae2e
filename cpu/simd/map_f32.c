/* Elementwise kernels that compute in f32. */
#include "cpu/simd/math_f32.h"
#define real float
#define LG_SUFFIX f32
#define LG_OWN_MATH
#define LG_TABLE lg_map_f32
#define LG_STORE(v) ((real)(v))
#if defined(__AVX512F__)
#include "cpu/simd/pow_avx512.h"
#define LG_OWN_ROW lg_row_16
#endif
#include "cpu/simd/map_rows.h"
