/* The kernels of simd_norm.c for one type, `real`. */

/* ---- columns */

static void OF_REAL(column_moments)(int64_t n, int64_t rows, int64_t stride, const void *from, double *mean, double *deviation)
{
    const real *x = from;
    for (int64_t j = 0; j < n; ++j) mean[j] = deviation[j] = 0;
    for (int64_t r = 0; r < rows; ++r) {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) mean[j] += (double)x[r * stride + j];
    }
    for (int64_t j = 0; j < n; ++j) mean[j] /= (double)rows;
    for (int64_t r = 0; r < rows; ++r) {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) {
            const double d = (double)x[r * stride + j] - mean[j];
            deviation[j] += d * d;
        }
    }
}

static void OF_REAL(column_normalise)(int64_t n, int64_t rows, int64_t stride, const void *from, const lg_norm_terms *t, void *to)
{
    const real *x = from, *mean = t->mean, *scale = t->scale, *shift = t->shift;
    real *y = to;
    for (int64_t r = 0; r < rows; ++r, x += stride, y += stride) {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - mean[j]) * scale[j] + shift[j];
    }
}

static void OF_REAL(column_sums)(int64_t n, int64_t rows, int64_t stride, const void *gs, const void *from, const void *means,
                                 double *sum, double *dot)
{
    const real *g = gs, *x = from, *mean = means;
    for (int64_t j = 0; j < n; ++j) sum[j] = dot[j] = 0;
    for (int64_t r = 0; r < rows; ++r, g += stride, x += stride) {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) {
            sum[j] += (double)g[j];
            dot[j] += (double)g[j] * (double)(x[j] - mean[j]);
        }
    }
}

static void OF_REAL(column_gradient)(int64_t n, int64_t rows, int64_t stride, const void *gs, const void *from,
                                     const lg_norm_terms *t, void *to)
{
    const real *g = gs, *x = from, *mean = t->mean, *scale = t->scale, *slope = t->slope, *shift = t->shift;
    real *gx = to;
    for (int64_t r = 0; r < rows; ++r, g += stride, x += stride, gx += stride) {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) gx[j] = g[j] * scale[j] + (x[j] - mean[j]) * slope[j] + shift[j];
    }
}

/* ---- planes. Sums are taken in lanes, as a sum in order cannot be vectorised. */

#define LANES 32
#define FOLD(lane)                                               \
    for (int64_t width = LANES / 2; width > 0; width /= 2)       \
        for (int64_t j = 0; j < width; ++j) lane[j] += lane[j + width];

static void OF_REAL(plane_moments)(int64_t n, const void *from, double *mean, double *deviation)
{
    const real *x = from;
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int64_t j = 0; j < LANES; ++j) lane[j] += (double)x[i + j];
    for (; i < n; ++i) lane[0] += (double)x[i];
    FOLD(lane)
    const double center = lane[0] / (double)n;
    double square[LANES] = {0};
    for (i = 0; i + LANES <= n; i += LANES)
        for (int64_t j = 0; j < LANES; ++j) square[j] += ((double)x[i + j] - center) * ((double)x[i + j] - center);
    for (; i < n; ++i) square[0] += ((double)x[i] - center) * ((double)x[i] - center);
    FOLD(square)
    *mean = center;
    *deviation = square[0];
}

static void OF_REAL(plane_normalise)(int64_t n, const void *from, const lg_norm_terms *t, void *to)
{
    const real *x = from, mean = *(const real *)t->mean, scale = *(const real *)t->scale, shift = *(const real *)t->shift;
    real *y = to;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale + shift;
}

static void OF_REAL(plane_sums)(int64_t n, const void *gs, const void *from, const void *means, double *sum, double *dot)
{
    const real *g = gs, *x = from, mean = *(const real *)means;
    double of_g[LANES] = {0}, of_both[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int64_t j = 0; j < LANES; ++j) {
            of_g[j] += (double)g[i + j];
            of_both[j] += (double)g[i + j] * (double)(x[i + j] - mean);
        }
    for (; i < n; ++i) {
        of_g[0] += (double)g[i];
        of_both[0] += (double)g[i] * (double)(x[i] - mean);
    }
    FOLD(of_g)
    FOLD(of_both)
    *sum = of_g[0];
    *dot = of_both[0];
}

static void OF_REAL(plane_gradient)(int64_t n, const void *gs, const void *from, const lg_norm_terms *t, void *to)
{
    const real *g = gs, *x = from, mean = *(const real *)t->mean, scale = *(const real *)t->scale;
    const real slope = *(const real *)t->slope, shift = *(const real *)t->shift;
    real *gx = to;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) gx[i] = g[i] * scale + (x[i] - mean) * slope + shift;
}

#undef LANES
#undef FOLD

/* ---- sums over a row, in lanes: lane j takes in the elements j, j + LANES, ... and lanes are folded in halves */

#define LANES ((int64_t)(128 / sizeof(real)))

/* The statement `take` for the elements i of a row and their lanes j. */
#define OVER_ROW(n, take)                                                            \
    do {                                                                             \
        int64_t begin = 0;                                                           \
        for (; begin + LANES <= (n); begin += LANES)                                 \
            for (int64_t j = 0, i = begin; j < LANES; ++j, ++i) take;                \
        for (int64_t j = 0, i = begin; i < (n); ++j, ++i) take;                      \
    } while (0)

static inline real OF_REAL(fold)(real *lane)
{
    for (int64_t width = LANES / 2; width > 0; width /= 2)
        for (int64_t j = 0; j < width; ++j) lane[j] += lane[j + width];
    return lane[0];
}

/* ---- layer normalisation */

/* The second pass also corrects what rounding did to the mean. */
static void OF_REAL(moments)(int64_t n, const real *x, double *mean, double *variance)
{
    real sum[LANES] = {0}, off[LANES] = {0}, square[LANES] = {0};
    OVER_ROW(n, sum[j] += x[i]);
    const real center = OF_REAL(fold)(sum) / (real)n;
    OVER_ROW(n, (off[j] += x[i] - center, square[j] += (x[i] - center) * (x[i] - center)));
    const double correction = (double)OF_REAL(fold)(off) / (double)n;
    *mean = (double)center + correction;
    *variance = (double)OF_REAL(fold)(square) / (double)n - correction * correction;
    if (*variance < 0) *variance = 0;
}

static void OF_REAL(layer_norm)(int64_t n, const void *from, double eps, const void *weights, const void *biases, void *to,
                                   double *means, double *invstds)
{
    const real *x = from, *weight = weights, *bias = biases;
    real *y = to;
    double variance;
    OF_REAL(moments)(n, x, means, &variance);
    *invstds = 1 / sqrt(variance + eps);
    const real mean = (real)*means, scale = (real)*invstds;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

/* invstd (g w - (sum g w + unit sum g w unit) / n), where unit is (x - mean) invstd */
static void OF_REAL(layer_norm_backward)(int64_t n, const void *gs, const void *from, double means, double invstds,
                                            const void *weights, void *to, void *gweights, void *gbiases)
{
    const real *g = gs, *x = from, *weight = weights, mean = (real)means, invstd = (real)invstds;
    real *gx = to, *gweight = gweights, *gbias = gbiases;
    real of_g[LANES] = {0}, of_both[LANES] = {0};
    OVER_ROW(n, (of_g[j] += g[i] * weight[i], of_both[j] += g[i] * weight[i] * (x[i] - mean)));
    const real sum = OF_REAL(fold)(of_g) / (real)n, along = OF_REAL(fold)(of_both) * invstd / (real)n;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) {
        const real unit = (x[i] - mean) * invstd;
        gx[i] = invstd * (g[i] * weight[i] - sum - unit * along);
        gweight[i] += g[i] * unit;
        gbias[i] += g[i];
    }
}

#undef LANES
#undef OVER_ROW
