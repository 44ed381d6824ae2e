/* The kernels of loss.h for one type. Included by simd_loss.c with `real`, LG_SUFFIX, what
 * ops/scalar_ops.h needs, and MATH_LOOP, which stands before loops that call its functions. */
#include "ops/scalar_ops.h"

#define NAME(name) LG_OF_REAL(name)

/* The share of the label that is wrong pays |x|; nothing wrong pays nothing, however large x is. */
static inline real NAME(bce_of)(real x, real target)
{
    const real wrong = x > 0 ? 1 - target : target, size = FABS(x), paid = wrong * size;
    return (wrong == 0 ? 0 : paid) + LOG1P(EXP(-size));
}

static double NAME(fold)(const real *lane)
{
    double sum[LANES];
    for (int64_t j = 0; j < LANES; ++j) sum[j] = (double)lane[j];
    for (int64_t half = LANES / 2; half > 0; half /= 2)
        for (int64_t j = 0; j < half; ++j) sum[j] += sum[j + half];
    return sum[0];
}

/* `formula` and `slope` are those of v and t. Sums are taken in lanes, those of PIECE elements in `real`. */
#define LOSS(name, formula, slope)                                                                                  \
    static void NAME(name##_loss)(int64_t n, const void *from, const void *targets, void *to)                       \
    {                                                                                                               \
        const real *x = from, *target = targets;                                                                    \
        real *y = to;                                                                                               \
        MATH_LOOP                                                                                                   \
        for (int64_t i = 0; i < n; ++i) {                                                                           \
            const real v = x[i], t = target[i];                                                                     \
            y[i] = formula;                                                                                         \
        }                                                                                                           \
    }                                                                                                               \
    static double NAME(name##_sum)(int64_t n, const void *from, const void *targets)                                \
    {                                                                                                               \
        double sum = 0;                                                                                             \
        for (int64_t begin = 0; begin < n; begin += PIECE) {                                                        \
            const int64_t count = n - begin < PIECE ? n - begin : PIECE;                                            \
            const real *x = (const real *)from + begin, *target = (const real *)targets + begin;                    \
            real lane[LANES] = {0};                                                                                 \
            for (int64_t i = 0; i < count; i += LANES, x += LANES, target += LANES) {                               \
                const int64_t width = count - i < LANES ? count - i : LANES;                                        \
                MATH_LOOP                                                                                           \
                for (int64_t j = 0; j < width; ++j) {                                                               \
                    const real v = x[j], t = target[j];                                                             \
                    lane[j] += formula;                                                                             \
                }                                                                                                   \
            }                                                                                                       \
            sum += NAME(fold)(lane);                                                                                \
        }                                                                                                           \
        return sum;                                                                                                 \
    }                                                                                                               \
    static void NAME(name##_slope)(int64_t n, const void *gs, double scales, const void *from, const void *targets, \
                                   void *to)                                                                        \
    {                                                                                                               \
        const real *g = gs, *x = from, *target = targets, scale = (real)scales;                                     \
        real *gx = to;                                                                                              \
        MATH_LOOP                                                                                                   \
        for (int64_t i = 0; i < n; ++i) {                                                                           \
            const real v = x[i], t = target[i];                                                                     \
            gx[i] = g[i] * scale * (slope);                                                                         \
        }                                                                                                           \
    }
LOSS(mse, (v - t) * (v - t), 2 * (v - t))
LOSS(bce, NAME(bce_of)(v, t), SIGMOID(v) - t)

#undef LOSS
#undef NAME
