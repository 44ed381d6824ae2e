/* Elementwise kernels for bool, whose results are 0 or 1. */
/* Formulas ask whether x < 0, which is always false here. */
#pragma GCC diagnostic ignored "-Wtype-limits"
#define real uint8_t
#define LG_SUFFIX b8
#define LG_WHOLE
#define LG_TABLE lg_map_bool
#define LG_STORE(v) ((real)((v) != 0))
#include "cpu/simd/map_rows.h"
