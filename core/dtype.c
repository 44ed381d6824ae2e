/* Element types: their sizes, names and promotion, and the conversion of single elements. Reference
 * kernels, reading and printing go through the loads and stores here; fast kernels convert in bulk
 * and must give the same bits. */
#include "core/dtype.h"

/* The unsigned comparison also catches what a caller cast from a negative int. */
bool lg_dtype_valid(luge_dtype d)
{
    return (unsigned)d < LG_DTYPE_COUNT;
}

size_t luge_dtype_size(luge_dtype dtype)
{
    static const size_t size[LG_DTYPE_COUNT] = {4, 8, 2, 2, 8, 4, 1, 1};
    return lg_dtype_valid(dtype) ? size[dtype] : 0;
}

const char *luge_dtype_name(luge_dtype dtype)
{
    static const char *const name[LG_DTYPE_COUNT] = {"f32", "f64", "f16", "bf16", "i64", "i32", "u8", "bool"};
    return lg_dtype_valid(dtype) ? name[dtype] : "?";
}

luge_dtype luge_promote_types(luge_dtype a, luge_dtype b)
{
    if (a == b) return a;
    if (lg_is_float(a) && lg_is_float(b)) return a == LUGE_F64 || b == LUGE_F64 ? LUGE_F64 : LUGE_F32;
    /* Otherwise floats come before integers and wider integers before narrower ones, as in the enum. */
    return a < b ? a : b;
}

luge_dtype lg_accumulate_type(luge_dtype d)
{
    if (!lg_is_float(d)) return LUGE_I64;
    return d == LUGE_F64 ? LUGE_F64 : LUGE_F32;
}

/* ---- half precision: 1 sign bit, 5 of exponent (bias 15), 10 of fraction */

static float f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t bits_of_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float lg_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu, fraction = h & 0x3ffu;
    if (exponent == 0) return f32_of_bits(sign | bits_of_f32((float)fraction * 0x1p-24f));
    if (exponent == 31) {
        /* NaNs come out quiet, as the processor's own conversion makes them. */
        return f32_of_bits(sign | 0x7f800000u | (fraction != 0 ? 0x400000u : 0) | fraction << 13);
    }
    return f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t lg_f32_to_f16(float f)
{
    const uint32_t u = bits_of_f32(f), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    uint32_t h;
    if (magnitude > 0x7f800000u) {
        h = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    } else if (magnitude >= 0x477ff000u) { /* 65520: halfway from the largest to 2^16 */
        h = 0x7c00u;
    } else if (magnitude < 0x38800000u) { /* 2^-14: below, halves are multiples of 2^-24 as floats in [0.5, 1) are */
        h = bits_of_f32(f32_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    } else {
        h = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
    }
    return (uint16_t)(sign | h);
}

/* ---- single elements */

double lg_load_f64(const void *element, luge_dtype d)
{
    switch (d) {
    case LUGE_F32: return *(const float *)element;
    case LUGE_F64: return *(const double *)element;
    case LUGE_F16: return lg_f16_to_f32(*(const uint16_t *)element);
    case LUGE_BF16: return lg_bf16_to_f32(*(const uint16_t *)element);
    default: return (double)lg_load_i64(element, d);
    }
}

int64_t lg_load_i64(const void *element, luge_dtype d)
{
    switch (d) {
    case LUGE_I64: return *(const int64_t *)element;
    case LUGE_I32: return *(const int32_t *)element;
    case LUGE_U8: return *(const uint8_t *)element;
    case LUGE_BOOL: return *(const uint8_t *)element != 0;
    default: return lg_f64_to_i64(lg_load_f64(element, d), INT64_MIN, INT64_MAX);
    }
}

int64_t lg_f64_to_i64(double value, int64_t low, int64_t high)
{
    if (!(value == value)) return 0;
    /* 2^63 is the double next to INT64_MAX, so >= is right for every bound. */
    if (value <= (double)low) return low;
    if (value >= (double)high) return high;
    return (int64_t)value;
}

void lg_store_f64(void *element, luge_dtype d, double value)
{
    switch (d) {
    case LUGE_F32: *(float *)element = (float)value; break;
    case LUGE_F64: *(double *)element = value; break;
    case LUGE_F16: *(uint16_t *)element = lg_f32_to_f16((float)value); break;
    case LUGE_BF16: *(uint16_t *)element = lg_f32_to_bf16((float)value); break;
    case LUGE_I64: *(int64_t *)element = lg_f64_to_i64(value, INT64_MIN, INT64_MAX); break;
    case LUGE_I32: *(int32_t *)element = (int32_t)lg_f64_to_i64(value, INT32_MIN, INT32_MAX); break;
    case LUGE_U8: *(uint8_t *)element = (uint8_t)lg_f64_to_i64(value, 0, UINT8_MAX); break;
    case LUGE_BOOL: *(uint8_t *)element = value != 0; break;
    }
}

void lg_store_i64(void *element, luge_dtype d, int64_t value)
{
    switch (d) {
    case LUGE_F32: *(float *)element = (float)value; break;
    case LUGE_F64: *(double *)element = (double)value; break;
    case LUGE_F16: *(uint16_t *)element = lg_f32_to_f16((float)value); break;
    case LUGE_BF16: *(uint16_t *)element = lg_f32_to_bf16((float)value); break;
    case LUGE_I64: *(int64_t *)element = value; break;
    case LUGE_I32: *(int32_t *)element = (int32_t)value; break;
    case LUGE_U8: *(uint8_t *)element = (uint8_t)value; break;
    case LUGE_BOOL: *(uint8_t *)element = value != 0; break;
    }
}

void lg_convert(void *to, luge_dtype to_dtype, const void *from, luge_dtype from_dtype)
{
    if (lg_is_float(from_dtype)) {
        lg_store_f64(to, to_dtype, lg_load_f64(from, from_dtype));
    } else {
        lg_store_i64(to, to_dtype, lg_load_i64(from, from_dtype));
    }
}
