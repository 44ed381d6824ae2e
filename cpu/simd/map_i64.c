/* Elementwise kernels that compute in i64; the files here are compiled so that it wraps around. */
#define real int64_t
#define LG_SUFFIX i64
#define LG_WHOLE
#define LG_TABLE lg_map_i64
#define LG_STORE(v) ((real)(v))
#include "cpu/simd/map_rows.h"
