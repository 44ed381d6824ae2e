/* The kernels of simd_rows.c for one type, `real`. MATH_LOOP stands before loops that call EXP and its like. */
#include "ops/scalar_ops.h"

/* ---- over a row, in lanes: lane j takes in the elements j, j + LANES, ... and lanes are folded in halves */

#define LANES ((int64_t)(256 / sizeof(real)))

#define OVER_ROW(name, start, take, fold, ...)                                             \
    static real LG_OF_REAL(name)(int64_t n, __VA_ARGS__)                                   \
    {                                                                                      \
        real lane[LANES];                                                                  \
        for (int64_t j = 0; j < LANES; ++j) lane[j] = (start);                             \
        for (int64_t begin = 0; begin < n; begin += LANES) {                               \
            const int64_t count = n - begin < LANES ? n - begin : LANES;                   \
            if (count == LANES)                                                            \
                for (int64_t j = 0, i = begin; j < LANES; ++j, ++i) lane[j] = (take);      \
            else                                                                           \
                for (int64_t j = 0, i = begin; j < count; ++j, ++i) lane[j] = (take);      \
        }                                                                                  \
        for (int64_t width = LANES / 2; width > 0; width /= 2)                             \
            for (int64_t j = 0; j < width; ++j) lane[j] = (fold);                          \
        return lane[0];                                                                    \
    }

#define FOLD_SUM lane[j] + lane[j + width]
OVER_ROW(sum, 0, lane[j] + x[i], FOLD_SUM, const real *x)
OVER_ROW(dot, 0, lane[j] + x[i] * y[i], FOLD_SUM, const real *x, const real *y)
OVER_ROW(sum_from, 0, lane[j] + (x[i] - center), FOLD_SUM, const real *x, real center)
OVER_ROW(squares_from, 0, lane[j] + (x[i] - center) * (x[i] - center), FOLD_SUM, const real *x, real center)
OVER_ROW(spread, 0, lane[j] + share[i] * (lse - x[i]), FOLD_SUM, const real *x, const real *share, real lse)
OVER_ROW(gw_sum, 0, lane[j] + g[i] * w[i], FOLD_SUM, const real *g, const real *w)
OVER_ROW(gw_dot, 0, lane[j] + g[i] * w[i] * (x[i] - mean), FOLD_SUM, const real *g, const real *w, const real *x, real mean)
/* NaN counts for nothing here: it comes out of the exponentials. */
OVER_ROW(largest, -(real)INFINITY, x[i] > lane[j] ? x[i] : lane[j], lane[j] > lane[j + width] ? lane[j] : lane[j + width],
         const real *x)
#undef OVER_ROW

/* ---- softmax */

/* y = e^(x - largest); returns its sum. 0, and y without meaning, if there is nothing but -inf. */
static real LG_OF_REAL(exponentials)(int64_t n, const real *x, real *y, real *largest)
{
    *largest = LG_OF_REAL(largest)(n, x);
    if (*largest == -(real)INFINITY) {
        for (int64_t i = 0; i < n; ++i)
            if (x[i] != x[i]) return x[i];
        return 0;
    }
    const real top = *largest;
    MATH_LOOP
    for (int64_t i = 0; i < n; ++i) y[i] = EXP(x[i] - top);
    return LG_OF_REAL(sum)(n, y);
}

static void LG_OF_REAL(softmax)(int64_t n, const void *from, void *to)
{
    real *y = to, largest;
    const real sum = LG_OF_REAL(exponentials)(n, from, y, &largest);
    if (sum != sum || sum == 0) {
        for (int64_t i = 0; i < n; ++i) y[i] = sum;
        return;
    }
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) y[i] = y[i] / sum;
}

/* A row in pieces through a buffer, where the exponentials themselves are not wanted. */
enum { LG_OF_REAL(PIECE) = 512 };

static real LG_OF_REAL(log_sum)(int64_t n, const real *x)
{
    real largest = LG_OF_REAL(largest)(n, x), e[LG_OF_REAL(PIECE)], sum = 0;
    if (isinf(largest)) {
        for (int64_t i = 0; i < n; ++i)
            if (x[i] != x[i]) return x[i];
        return largest;
    }
    for (int64_t begin = 0; begin < n; begin += LG_OF_REAL(PIECE)) {
        const int64_t count = n - begin < LG_OF_REAL(PIECE) ? n - begin : LG_OF_REAL(PIECE);
        MATH_LOOP
        for (int64_t i = 0; i < count; ++i) e[i] = EXP(x[begin + i] - largest);
        sum += LG_OF_REAL(sum)(count, e);
    }
    return largest + LOG(sum);
}

static double LG_OF_REAL(log_sum_exp)(int64_t n, const void *x) { return (double)LG_OF_REAL(log_sum)(n, x); }

static void LG_OF_REAL(log_softmax)(int64_t n, const void *from, void *to)
{
    const real *x = from;
    real *y = to;
    const real lse = LG_OF_REAL(log_sum)(n, x);
    if (lse == -(real)INFINITY || lse == (real)INFINITY) {
        const real all = lse < 0 ? lse : (real)NAN;
        for (int64_t i = 0; i < n; ++i) y[i] = all;
        return;
    }
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] - lse;
}

/* y (g - sum g y) */
static void LG_OF_REAL(softmax_backward)(int64_t n, const void *gs, const void *ys, void *to)
{
    const real *g = gs, *y = ys, dot = LG_OF_REAL(dot)(n, g, y);
    real *gx = to;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) gx[i] = y[i] * (g[i] - dot);
}

/* g - e^y sum g */
static void LG_OF_REAL(log_softmax_backward)(int64_t n, const void *gs, const void *ys, void *to)
{
    const real *g = gs, *y = ys, sum = LG_OF_REAL(sum)(n, g);
    real *gx = to;
    MATH_LOOP
    for (int64_t i = 0; i < n; ++i) gx[i] = g[i] - EXP(y[i]) * sum;
}

/* ---- losses */

static double LG_OF_REAL(spread_loss)(int64_t n, const void *x, const void *share, double lse)
{
    return (double)LG_OF_REAL(spread)(n, x, share, (real)lse);
}

static void LG_OF_REAL(spread_gradient)(int64_t n, const void *from, double lses, double scales, const void *shares,
                                        double ds, void *to)
{
    const real *x = from, *share = shares, lse = (real)lses, scale = (real)scales, d = (real)ds;
    real *y = to;
    MATH_LOOP
    for (int64_t i = 0; i < n; ++i) y[i] = scale * EXP(x[i] - lse);
    if (share == NULL) return;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) y[i] -= d * share[i];
}

static double LG_OF_REAL(total)(int64_t n, const void *x)
{
    double sum = 0;
    const real *from = x;
    for (int64_t begin = 0; begin < n; begin += LG_OF_REAL(PIECE)) {
        const int64_t count = n - begin < LG_OF_REAL(PIECE) ? n - begin : LG_OF_REAL(PIECE);
        sum += (double)LG_OF_REAL(sum)(count, from + begin);
    }
    return sum;
}

#define PAIR(name, given, g_times, formula)                                       \
    static void LG_OF_REAL(name)(int64_t n, given const void *from, const void *targets, void *to) \
    {                                                                             \
        const real *x = from, *target = targets;                                  \
        real *y = to;                                                             \
        MATH_LOOP                                                                 \
        for (int64_t i = 0; i < n; ++i) {                                         \
            const real v = x[i], t = target[i];                                   \
            y[i] = g_times(formula);                                              \
        }                                                                         \
    }
#define NOTHING
#define GIVEN const void *g, double scale,
#define G_TIMES ((const real *)g)[i] * (real)scale *
PAIR(squares, NOTHING, NOTHING, (v - t) * (v - t))
PAIR(squares_backward, GIVEN, G_TIMES, 2 * (v - t))
/* The share of the label that is wrong pays |v|; nothing wrong pays nothing, however large v is. */
static inline real LG_OF_REAL(penalty)(real v, real t)
{
    const real wrong = v > 0 ? 1 - t : t, size = FABS(v), paid = wrong * size;
    return (wrong == 0 ? 0 : paid) + LOG1P(EXP(-size));
}
PAIR(binary, NOTHING, NOTHING, LG_OF_REAL(penalty)(v, t))
PAIR(binary_backward, GIVEN, G_TIMES, SIGMOID(v) - t)
#undef PAIR
#undef NOTHING
#undef GIVEN
#undef G_TIMES

/* ---- dropout */

static void LG_OF_REAL(masked)(int64_t n, const void *from, const uint8_t *mask, double scales, void *to)
{
    const real *x = from, scale = (real)scales;
    real *y = to;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) {
        const real v = x[i] * scale;
        y[i] = mask[i] ? v : 0;
    }
}

/* ---- layer normalisation */

/* The second pass also corrects what rounding did to the mean. */
static void LG_OF_REAL(moments)(int64_t n, const void *x, double *mean, double *deviation)
{
    const real center = LG_OF_REAL(sum)(n, x) / (real)n;
    const double off = (double)LG_OF_REAL(sum_from)(n, x, center);
    *mean = (double)center + off / (double)n;
    *deviation = (double)LG_OF_REAL(squares_from)(n, x, center) - off * off / (double)n;
    if (*deviation < 0) *deviation = 0;
}

static void LG_OF_REAL(layer_norm)(int64_t n, const void *from, double means, double scales, const void *weights,
                                   const void *biases, void *to)
{
    const real *x = from, *weight = weights, *bias = biases, mean = (real)means, scale = (real)scales;
    real *y = to;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

/* invstd (g w - (sum g w + unit sum g w unit) / n), where unit is (x - mean) invstd */
static void LG_OF_REAL(layer_norm_backward)(int64_t n, const void *gs, const void *from, double means, double invstds,
                                            const void *weights, void *to, void *gweights, void *gbiases)
{
    const real *g = gs, *x = from, *weight = weights, mean = (real)means, invstd = (real)invstds;
    real *gx = to, *gweight = gweights, *gbias = gbiases;
    const real sum = LG_OF_REAL(gw_sum)(n, g, weight) / (real)n;
    const real along = LG_OF_REAL(gw_dot)(n, g, weight, x, mean) * invstd / (real)n;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) {
        const real unit = (x[i] - mean) * invstd;
        gx[i] = invstd * (g[i] * weight[i] - sum - unit * along);
        gweight[i] += g[i] * unit;
        gbias[i] += g[i];
    }
}

#undef LANES
#undef FOLD_SUM
