/* Elementwise kernels that compute in i32; the files here are compiled so that it wraps around. */
#define real int32_t
#define LG_SUFFIX i32
#define LG_WHOLE
#define LG_TABLE lg_map_i32
#define LG_STORE(v) ((real)(v))
#include "cpu/simd/map_rows.h"
