/* The kernels of rows.h for one type; included by simd_rows.c with `real` and LG_SUFFIX defined. */
#include "ops/scalar_ops.h"

/* ---- sums over a row, in lanes: lane j takes in the elements j, j + LANES, ... and lanes are folded in halves */

#define LANES ((int64_t)(256 / sizeof(real)))

#define SUM_OVER_ROW(name, term, ...)                                                      \
    static real LG_OF_REAL(name)(int64_t n, __VA_ARGS__)                                   \
    {                                                                                      \
        real lane[LANES] = {0};                                                            \
        for (int64_t begin = 0; begin < n; begin += LANES) {                               \
            const int64_t count = n - begin < LANES ? n - begin : LANES;                   \
            if (count == LANES)                                                            \
                for (int64_t j = 0, i = begin; j < LANES; ++j, ++i) lane[j] += (term);     \
            else                                                                           \
                for (int64_t j = 0, i = begin; j < count; ++j, ++i) lane[j] += (term);     \
        }                                                                                  \
        for (int64_t width = LANES / 2; width > 0; width /= 2)                             \
            for (int64_t j = 0; j < width; ++j) lane[j] += lane[j + width];                \
        return lane[0];                                                                    \
    }

SUM_OVER_ROW(sum, x[i], const real *x)
SUM_OVER_ROW(sum_from, x[i] - center, const real *x, real center)
SUM_OVER_ROW(squares_from, (x[i] - center) * (x[i] - center), const real *x, real center)
SUM_OVER_ROW(gw_sum, g[i] * w[i], const real *g, const real *w)
SUM_OVER_ROW(gw_dot, g[i] * w[i] * (x[i] - mean), const real *g, const real *w, const real *x, real mean)
#undef SUM_OVER_ROW

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
