/* The vocabulary of the formulas in elementwise.def, for one type. Included once per type that
 * computes, by the reference kernels (ops/) and the kernels of each backend, with
 *   real            the type
 *   LG_SUFFIX       how its functions end: lg_sigmoid_<suffix>
 *   LG_LIBM(fn)     the C library's function for it: fn##f for float, fn for double; or
 *   LG_OWN_MATH     where a backend has functions of its own, declared before this as lg_exp_<suffix> and
 *                   so on: all those of the block below that LG_OWN_MATH leaves out
 *   LG_WHOLE        instead of either, if real is an integer type: only what ANY and NUMBER rows use
 * The words themselves are macros, so a formula means what was included last. */

#ifndef LG_OPS_SCALAR_OPS_H
#define LG_OPS_SCALAR_OPS_H

#ifndef LG_INLINE
#define LG_INLINE static inline
#endif

#define LG_JOIN_(a, b) a##_##b
#define LG_JOIN(a, b) LG_JOIN_(a, b)
#define LG_OF_REAL(name) LG_JOIN(name, LG_SUFFIX)

#define R(c) ((real)(c))
#define FABS(x) LG_OF_REAL(lg_fabs)(x)
#define SQRT(x) LG_OF_REAL(lg_sqrt)(x)
#define EXP(x) LG_OF_REAL(lg_exp)(x)
#define EXP_BELOW(x) LG_OF_REAL(lg_exp_below)(x) /* e^x for x <= 0; may give 0 for subnormal numbers */
#define LOG(x) LG_OF_REAL(lg_log)(x)
#define LOG1P(x) LG_OF_REAL(lg_log1p)(x) /* log(1 + x) for x from 0 to 1 */
#define TANH(x) LG_OF_REAL(lg_tanh)(x)
#define ERF(x) LG_OF_REAL(lg_erf)(x)
#define BELL(x) LG_OF_REAL(lg_bell)(x)
#define POW(x, y) LG_OF_REAL(lg_pow)(x, y)
#define SIGMOID(x) LG_OF_REAL(lg_sigmoid)(x)
#define SOFTPLUS(x) LG_OF_REAL(lg_softplus)(x)
#define NORMAL_CDF(x) LG_OF_REAL(lg_normal_cdf)(x)
#define NORMAL_PDF(x) LG_OF_REAL(lg_normal_pdf)(x)
#define ERF_SLOPE(x) LG_OF_REAL(lg_erf_slope)(x)
#define POW_GRAD_A(g, a, b) LG_OF_REAL(lg_pow_grad_a)(g, a, b)
#define POW_GRAD_B(g, a, b) LG_OF_REAL(lg_pow_grad_b)(g, a, b)
#define LERP(a, b, w) LG_OF_REAL(lg_lerp)(a, b, w)

/* These are the same for every type. Comparisons are written so that a NaN comes through. */
#define SIGN(x) ((x) > 0 ? R(1) : (x) < 0 ? R(-1) : R(0))
#define RELU(x) ((x) <= 0 ? R(0) : (x))
#define MAXIMUM(a, b) LG_OF_REAL(lg_maximum)(a, b)
#define MINIMUM(a, b) LG_OF_REAL(lg_minimum)(a, b)
#define CUT_TOP(x, high) ((x) > (high) ? (real)(high) : (real)(x))
#define CLAMP(x, low, high) ((x) < (low) ? CUT_TOP(low, high) : CUT_TOP(x, high))

#endif

#ifdef LG_WHOLE

LG_INLINE real LG_OF_REAL(lg_fabs)(real x) { return (real)(x < 0 ? -x : x); }
LG_INLINE real LG_OF_REAL(lg_maximum)(real a, real b) { return a > b ? a : b; }
LG_INLINE real LG_OF_REAL(lg_minimum)(real a, real b) { return a < b ? a : b; }

#else

LG_INLINE real LG_OF_REAL(lg_maximum)(real a, real b) { return ((a > b) | (a != a)) ? a : b; }
LG_INLINE real LG_OF_REAL(lg_minimum)(real a, real b) { return ((a < b) | (a != a)) ? a : b; }

#ifndef LG_OWN_MATH
LG_INLINE real LG_OF_REAL(lg_fabs)(real x) { return LG_LIBM(fabs)(x); }
LG_INLINE real LG_OF_REAL(lg_sqrt)(real x) { return LG_LIBM(sqrt)(x); }
LG_INLINE real LG_OF_REAL(lg_exp)(real x) { return LG_LIBM(exp)(x); }
LG_INLINE real LG_OF_REAL(lg_exp_below)(real x) { return LG_LIBM(exp)(x); }
LG_INLINE real LG_OF_REAL(lg_log)(real x) { return LG_LIBM(log)(x); }
LG_INLINE real LG_OF_REAL(lg_log1p)(real x) { return LG_LIBM(log1p)(x); }
LG_INLINE real LG_OF_REAL(lg_tanh)(real x) { return LG_LIBM(tanh)(x); }
LG_INLINE real LG_OF_REAL(lg_erf)(real x) { return LG_LIBM(erf)(x); }
LG_INLINE real LG_OF_REAL(lg_pow)(real x, real y) { return LG_LIBM(pow)(x, y); }
/* e^(-x^2/2). What rounding takes from x^2 is put back, for it counts x^2 times. */
LG_INLINE real LG_OF_REAL(lg_bell)(real x)
{
    real z = x * x, e = EXP(R(-0.5) * z);
    return e == 0 ? e : e - e * R(0.5) * LG_LIBM(fma)(x, x, -z);
}
/* erfc keeps its relative precision far out on the left, where 1 + erf cancels; there the rounding of
 * x / sqrt(2) counts 2t^2 times, so that it is put back, by the slope of log erfc to a few percent. */
LG_INLINE real LG_OF_REAL(lg_normal_cdf)(real x)
{
    real root = R(0.70710678118654752440), t = -(x * root);
    real missing = R(0.70710678118654757274 - (double)R(0.70710678118654752440) - 4.8336466567264567e-17);
    real e = LG_LIBM(erfc)(t);
    if ((t > 0) & (t < 30)) e += e * (t + SQRT(t * t + R(1.2732395447351627))) * (LG_LIBM(fma)(x, root, t) + x * missing);
    return R(0.5) * e;
}
#endif

/* Written with e^-|x|, which cannot overflow. */
LG_INLINE real LG_OF_REAL(lg_sigmoid)(real x)
{
    real e = EXP_BELOW(-FABS(x));
    return (x < 0 ? e : R(1)) / (R(1) + e);
}

LG_INLINE real LG_OF_REAL(lg_softplus)(real x) { return RELU(x) + LOG1P(EXP_BELOW(-FABS(x))); }

LG_INLINE real LG_OF_REAL(lg_normal_pdf)(real x) { return R(0.39894228040143267794) * BELL(x); }
LG_INLINE real LG_OF_REAL(lg_erf_slope)(real x) { return R(1.12837916709551257390) * EXP(-x * x); }

/* The limits at the edges, as PyTorch takes them: b a^(b-1) is 0 for b = 0, and a^b log a is 0 for
 * a = 0 where a^b is finite. */
LG_INLINE real LG_OF_REAL(lg_pow_grad_a)(real g, real a, real b)
{
    real grad = g * (b * POW(a, b - R(1)));
    return b == 0 ? R(0) : grad;
}
LG_INLINE real LG_OF_REAL(lg_pow_grad_b)(real g, real a, real b)
{
    real grad = g * (POW(a, b) * LOG(a));
    return ((a == 0) & (b >= 0)) ? R(0) : grad;
}

/* Exactly a at weight 0 and b at weight 1. */
LG_INLINE real LG_OF_REAL(lg_lerp)(real a, real b, real w)
{
    return w < R(0.5) ? a + w * (b - a) : b - (b - a) * (R(1) - w);
}

#endif
