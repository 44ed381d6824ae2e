/* Element types: sizes, promotion, conversion of single values. */
#ifndef LG_CORE_DTYPE_H
#define LG_CORE_DTYPE_H

#include <luge/tensor.h>
#include <string.h>

enum { LG_DTYPE_COUNT = LUGE_BOOL + 1 };

static inline bool lg_is_float(luge_dtype d) { return d <= LUGE_BF16; }
static inline bool lg_is_half(luge_dtype d) { return d == LUGE_F16 || d == LUGE_BF16; }
bool lg_dtype_valid(luge_dtype d);
/* What a reduction over d adds up in: f32 for halves, else d (i64 for integers and bool). */
luge_dtype lg_accumulate_type(luge_dtype d);

/* To nearest even; f16 overflows to infinity; NaN stays NaN. */
static inline float lg_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t lg_f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
float lg_f16_to_f32(uint16_t h);
uint16_t lg_f32_to_f16(float f);

/* One element as a double / int64 and back. Floats become integers by cutting towards zero; what does
 * not fit gives the nearest limit, and NaN gives 0 (where C leaves the result undefined). Integers are
 * narrowed modulo 2^n, as PyTorch does. bool is whether the value is not 0. f64 to f16 and bf16 goes
 * through f32. */
double lg_load_f64(const void *element, luge_dtype d);
int64_t lg_load_i64(const void *element, luge_dtype d);
void lg_store_f64(void *element, luge_dtype d, double value);
void lg_store_i64(void *element, luge_dtype d, int64_t value);
/* One element from dtype to dtype; integers go to integers without a detour through double. */
void lg_convert(void *to, luge_dtype to_dtype, const void *from, luge_dtype from_dtype);
/* The value cut towards zero and limited to [low, high]; 0 for NaN. */
int64_t lg_f64_to_i64(double value, int64_t low, int64_t high);

#endif
