/* Elementary functions of f32 without branches or calls, so that compilers vectorise the loops around
 * them. Errors are within 2.5 ulp of the exact value (6 for normal_cdf) over the whole range, subnormal
 * arguments included; subnormal results are as exact or 0; NaN and infinities as in the C library. The
 * polynomials are minimax fits, made with the Remez algorithm in 40 digits. Included before
 * ops/scalar_ops.h, by kernels that define LG_OWN_MATH. Conditions are joined by & and |: && and || are
 * branches. */
#ifndef LG_CPU_SIMD_MATH_F32_H
#define LG_CPU_SIMD_MATH_F32_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t lg_bits_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float lg_from_bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float lg_fabs_f32(float x) { return fabsf(x); }
static inline float lg_sqrt_f32(float x) { return sqrtf(x); }
static inline float lg_copysign_f32(float magnitude, float sign)
{
    return lg_from_bits_f32((lg_bits_f32(magnitude) & 0x7fffffffu) | (lg_bits_f32(sign) & 0x80000000u));
}

/* ---- e^x */

/* 2^n for -126 <= n <= 127 */
static inline float lg_exp2i_f32(int32_t n) { return lg_from_bits_f32((uint32_t)(n + 127) << 23); }

/* Adding this rounds to an integer, which is then in the low bits. */
static const float lg_round_f32 = 0x1.8p23f;
/* The same for an n of which 2^n is wanted: what is in the low bits is the exponent, n + 127. */
static const float lg_round_exponent_f32 = 0x1.8p23f + 127;

/* x = n ln 2 + r with an integer n and |r| <= ln(2) / 2. */
typedef struct lg_reduced_f32 {
    float r, shifted; /* n, with lg_round_exponent_f32 added */
} lg_reduced_f32;

/* x is the sum of two numbers, of which `low` is small: for arguments that f32 cannot hold. */
static inline lg_reduced_f32 lg_reduce_sum_f32(float high, float low)
{
    float shifted = high * 1.44269504f + lg_round_exponent_f32;
    float n = shifted - lg_round_exponent_f32;
    float r = high - n * 0.693359375f; /* exact: the constant has 9 bits */
    return (lg_reduced_f32){r + low - n * -2.12194440e-4f, shifted};
}

static inline lg_reduced_f32 lg_reduce_f32(float x)
{
    float shifted = x * 1.44269504f + lg_round_exponent_f32;
    float n = shifted - lg_round_exponent_f32;
    return (lg_reduced_f32){x - n * 0.693359375f - n * -2.12194440e-4f, shifted};
}

/* 2^n for -126 <= n <= 127, and 0 for n = -127. */
static inline float lg_scale_f32(lg_reduced_f32 x) { return lg_from_bits_f32(lg_bits_f32(x.shifted) << 23); }

/* (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2; 2^-28 */
static inline float lg_exp_tail_f32(float r)
{
    return 0.499999934f + r * (0.166665205f + r * (0.0416683898f + r * (0.00836873512f + r * 0.00138145636f)));
}

static inline float lg_exp_of_rest_f32(float r) { return 1 + (r + r * r * lg_exp_tail_f32(r)); }

/* The power of two comes in two factors, as 2^128 and 2^-150 are none themselves. */
static inline float lg_exp_f32(float x)
{
    x = x > 89 ? 89 : x;
    x = x < -104 ? -104 : x;
    lg_reduced_f32 z = lg_reduce_f32(x);
    int32_t n = (int32_t)(lg_bits_f32(z.shifted) - lg_bits_f32(lg_round_exponent_f32)), half = n >> 1;
    return lg_exp_of_rest_f32(z.r) * lg_exp2i_f32(half) * lg_exp2i_f32(n - half);
}

/* e^(n ln 2 + r), where lg_scale_f32 is 2^n. */
static inline float lg_exp_of_reduced_f32(lg_reduced_f32 x) { return lg_exp_of_rest_f32(x.r) * lg_scale_f32(x); }

/* The same for x below 80, quicker: what is below 2^-126 may become 0. */
static inline float lg_exp_below_f32(float x)
{
    const float zero = -88.03f; /* about -127 ln 2 */
    return lg_exp_of_reduced_f32(lg_reduce_f32(x < zero ? zero : x));
}

/* e^(-x^2/2), 0 for NaN; what is below 2^-126 may be 0. The rounding error of x^2 would come out multiplied
 * by the exponent: the square is taken in two parts. */
static inline float lg_bell_f32(float x)
{
    const float zero = 13.27f; /* about the root of 254 ln 2 */
    float a = lg_fabs_f32(x);
    /* The smaller of both, as integers: compilers carry a choice of floats on to all that is made of them. */
    float b = lg_from_bits_f32(lg_bits_f32(a) < lg_bits_f32(zero) ? lg_bits_f32(a) : lg_bits_f32(zero));
#if defined(__FMA__)
    float high = -0.5f * b * b, low = __builtin_fmaf(-0.5f * b, b, -high);
#else
    float top = lg_from_bits_f32(lg_bits_f32(b) & 0xfffff000u); /* 12 bits: its square is exact */
    float high = -0.5f * (top * top), low = -0.5f * ((b - top) * (b + top));
#endif
    return lg_exp_of_reduced_f32(lg_reduce_sum_f32(high, low));
}

/* ---- logarithms */

/* x = 2^n (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); for positive finite x. */
typedef struct lg_split_f32 {
    float f;
    int32_t n;
} lg_split_f32;

static inline lg_split_f32 lg_split_of_f32(float x)
{
    int32_t subnormal = x < 0x1p-126f;
    x = subnormal ? x * 0x1p23f : x;
    uint32_t u = lg_bits_f32(x) - 0x3f3504f3u; /* sqrt(1/2) */
    float m = lg_from_bits_f32((u & 0x007fffffu) + 0x3f3504f3u);
    return (lg_split_f32){m - 1, ((int32_t)u >> 23) - (subnormal ? 23 : 0)};
}

static inline float lg_log_f32(float x)
{
    lg_split_f32 s = lg_split_of_f32(x);
    float f = s.f, n = (float)s.n;
    /* (log(1 + f) - f + f^2 / 2) / f^3; 2^-30 */
    float p = -0.116756995f + f * 0.0674668975f;
    p = 0.118881666f + f * p;
    p = -0.124055809f + f * p;
    p = 0.142195504f + f * p;
    p = -0.166679962f + f * p;
    p = 0.200021188f + f * p;
    p = -0.250000096f + f * p;
    p = 0.333333126f + f * p;
    float y = f * f * (f * p) + n * -2.12194440e-4f;
    y = y - 0.5f * f * f;
    y = n * 0.693359375f + (f + y);
    y = x == 0 ? -INFINITY : y;
    return x >= 0 ? (x == INFINITY ? x : y) : NAN;
}

/* log(1 + x) for 0 <= x <= 1; 2^-28 */
static inline float lg_log1p_f32(float x)
{
    float p = 0.0198515308f + x * -0.00324403745f;
    p = -0.0569596925f + x * p;
    p = 0.106036746f + x * p;
    p = -0.153056068f + x * p;
    p = 0.196759453f + x * p;
    p = -0.249541351f + x * p;
    p = 0.333299626f + x * p;
    p = -0.499999024f + x * p;
    return x + x * (x * p);
}

/* ---- tanh */

/* With t = e^2a - 1: t / (t + 2). t is precise where a is small, too. */
static inline float lg_tanh_f32(float x)
{
    float a = lg_fabs_f32(x);
    a = a > 10 ? 10 : a;
    lg_reduced_f32 z = lg_reduce_f32(2 * a);
    float scale = lg_scale_f32(z);
    float t = scale * (z.r + z.r * z.r * lg_exp_tail_f32(z.r)) + (scale - 1);
    return lg_copysign_f32(t / (t + 2), x);
}

/* ---- the error function and the normal distribution */

static inline float lg_erf_f32(float x)
{
    float a = lg_fabs_f32(x), z = x * x;
    /* erf(x) / x for |x| < 0.95; 2^-30 */
    float p = -0.000809770524f + z * 8.18509803e-05f;
    p = 0.00519695235f + z * p;
    p = -0.0268577053f + z * p;
    p = 0.11283664f + z * p;
    p = -0.376126316f + z * p;
    p = 1.12837917f + z * p;
    /* log(1 - erf(t)) up to where erf is 1 */
    float t = a > 3.95f ? 3.95f : a;
    float q = 0.000438529481f + t * -2.1445526e-05f;
    q = -0.00419085359f + t * q;
    q = 0.0251718031f + t * q;
    q = -0.108361544f + t * q;
    q = -0.633272421f + t * q;
    q = -1.12955204f + t * q;
    q = 0.000182459456f + t * q;
    return a < 0.95f ? x * p : lg_copysign_f32(1 - lg_exp_of_reduced_f32(lg_reduce_f32(q)), x);
}

/* The tail beyond |x| is e^(-x^2/2) times a smooth function; what is fitted is (t + 4) times that, in
 * u = (t - 4) / (t + 4), to 2^-29. Around 0 an odd polynomial, to 2^-27, is closer. */
static inline float lg_normal_cdf_f32(float x)
{
    float t = lg_fabs_f32(x), r = 1 / (t + 4), u = 1 - 8 * r;
    float p = -0.000222056946f + u * -4.63183949e-05f;
    p = 0.000170940458f + u * p;
    p = 0.00163708742f + u * p;
    p = -0.00349129704f + u * p;
    p = -0.0075429056f + u * p;
    p = 0.0603981482f + u * p;
    p = -0.186521554f + u * p;
    p = 0.387137319f + u * p;
    p = -0.60789665f + u * p;
    p = 0.755285131f + u * p;
    float tail = p * r * lg_bell_f32(x);
    float z = x * x;
    float q = -0.00117958904f + z * 0.000101336954f;
    q = 0.0099717981f + z * q;
    q = -0.0664902391f + z * q;
    q = 0.398942279f + z * q;
    float left = t < 0.8f ? 0.5f + x * q : tail;
    return x >= 0.8f ? 1 - tail : left;
}

/* ---- powers */

/* log2(1 + f) / f for sqrt(1/2) <= 1 + f < sqrt(2); 2^-33 */
static inline double lg_log2_poly_f32(double f)
{
    double p = 0.15485771843322138 + f * -0.086346183489357506;
    p = -0.15698228112849974 + f * p;
    p = 0.15900146617534808 + f * p;
    p = -0.17904694509070024 + f * p;
    p = 0.20609625795936432 + f * p;
    p = -0.24050417457727025 + f * p;
    p = 0.28854064351546482 + f * p;
    p = -0.36067280054014761 + f * p;
    p = 0.48089832073021727 + f * p;
    p = -0.72134752521310319 + f * p;
    return 1.4426950409393415 + f * p;
}

/* 2^t, rounded to f32 once, for |t| < 1022; 2^-29 */
static inline float lg_exp2_f32(double t)
{
    const double round = 0x1.8p52;
    double shifted = t + round, r = t - (shifted - round);
    double p = 0.0013399931671740378 + r * 0.00015345827966045241;
    p = 0.0096184888933987158 + r * p;
    p = 0.055503287759519619 + r * p;
    p = 0.24022646891345875 + r * p;
    p = 0.69314720573766753 + r * p;
    p = 1.0000000005539897 + r * p;
    uint64_t n;
    memcpy(&n, &shifted, sizeof n);
    n = (n + 1023) << 52; /* 2^n */
    memcpy(&shifted, &n, sizeof shifted);
    return (float)(p * shifted);
}

/* Whether a >= 0 is an integer: adding 2^23 rounds to one, and from there on there is nothing else. */
static inline uint32_t lg_is_whole_f32(float a) { return ((a + 0x1p23f) - 0x1p23f == a) | (a >= 0x1p23f); }

/* |x|^y as 2^(y log2|x|), whose exponent needs the precision of f64. The logarithm of 0 and of infinity
 * is so large that only its sign matters, and y is kept above 1e-12, where its product with that is
 * large; all other results are 1 there and below. Then the sign, which only an integer y can give a
 * negative x. What depends on y alone is done without choices: compilers fail to vectorise those that
 * are the same for all x. */
static inline float lg_pow_f32(float x, float y)
{
    float a = lg_fabs_f32(x), b = lg_fabs_f32(y);
    const uint32_t least = 0x2b8cbccc; /* 1e-12 */
    uint32_t y_bits = lg_bits_f32(b) < least ? least : lg_bits_f32(b); /* as a maximum of integers */
    float exponent = lg_copysign_f32(lg_from_bits_f32(y_bits), y);

    lg_split_f32 s = lg_split_of_f32(a);
    float n = a == 0 ? -1e30f : (float)s.n;
    n = a < INFINITY ? n : a == INFINITY ? 1e30f : NAN;
    double log2 = (double)n + (double)s.f * lg_log2_poly_f32((double)s.f);
    float z = lg_exp2_f32((double)exponent * log2);
    float rough = exponent * (n + s.f); /* within a factor of 1.5 of what 2 is raised to */
    z = rough > 600 ? INFINITY : z;
    z = rough < -600 ? 0 : z;
    z = a == 1 ? 1 : z; /* also for an infinite or NaN y */

    uint32_t whole = lg_is_whole_f32(b), even = lg_is_whole_f32(0.5f * b);
    uint32_t sign = (whole & ~even) << 31;
    float valid = lg_from_bits_f32(0x7fc00000u - whole * 0x40400000u); /* 1 or NaN */
    z = lg_from_bits_f32(lg_bits_f32(z) | (lg_bits_f32(x) & sign));
    z = ((x < 0) & (x > -INFINITY)) ? z * valid : z;
    return y == 0 ? 1 : z;
}

#endif
