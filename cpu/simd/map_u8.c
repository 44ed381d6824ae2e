/* Elementwise kernels that compute in u8. */
/* Formulas ask whether x < 0, which is always false here. */
#pragma GCC diagnostic ignored "-Wtype-limits"
#define real uint8_t
#define LG_SUFFIX u8
#define LG_WHOLE
#define LG_TABLE lg_map_u8
#define LG_STORE(v) ((real)(v))
#include "cpu/simd/map_rows.h"
