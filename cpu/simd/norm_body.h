/* The kernels of simd_norm.c for one type, `real`. */

/* ---- columns */

static void OF_REAL(column_moments)(int64_t n, int64_t rows, int64_t stride, const void *from, double *mean,
                                    double *deviation)
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

static void OF_REAL(column_normalise)(int64_t n, int64_t rows, int64_t stride, const void *from, const lg_norm_terms *t,
                                      void *to)
{
    const real *x = from, *mean = t->mean, *scale = t->scale, *shift = t->shift;
    real *y = to;
    for (int64_t r = 0; r < rows; ++r, x += stride, y += stride) {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - mean[j]) * scale[j] + shift[j];
    }
}

static void OF_REAL(column_sums)(int64_t n, int64_t rows, int64_t stride, const void *gs, const void *from,
                                 const void *means, double *sum, double *dot, double *off)
{
    const real *g = gs, *x = from, *mean = means;
    for (int64_t j = 0; j < n; ++j) sum[j] = dot[j] = off[j] = 0;
    for (int64_t r = 0; r < rows; ++r, g += stride, x += stride) {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) {
            const double d = (double)(x[j] - mean[j]);
            sum[j] += (double)g[j];
            dot[j] += (double)g[j] * d;
            off[j] += d;
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

/* ---- rows: n dense elements. Sums are taken in lanes, as a sum in order cannot be vectorised: lane j
 * takes in the elements j, j + lanes, ... and lanes are folded in halves. */

/* The statement `take` for the elements i of a row and their lanes j. */
#define OVER_ROW(lanes, n, take)                                        \
    do {                                                                \
        int64_t begin = 0;                                              \
        for (; begin + (lanes) <= (n); begin += (lanes))                \
            for (int64_t j = 0, i = begin; j < (lanes); ++j, ++i) take; \
        for (int64_t j = 0, i = begin; i < (n); ++j, ++i) take;         \
    } while (0)

#define FOLD(lanes, lane)                                    \
    for (int64_t width = (lanes) / 2; width > 0; width /= 2) \
        for (int64_t j = 0; j < width; ++j) (lane)[j] += (lane)[j + width];

/* ---- planes: sums are taken in f64 */

#define LANES ((int64_t)32)

static void OF_REAL(plane_moments)(int64_t n, const void *from, double *mean, double *deviation)
{
    const real *x = from;
    double sum[LANES] = {0}, square[LANES] = {0};
    OVER_ROW(LANES, n, sum[j] += (double)x[i]);
    FOLD(LANES, sum)
    const double center = sum[0] / (double)n;
    OVER_ROW(LANES, n, square[j] += ((double)x[i] - center) * ((double)x[i] - center));
    FOLD(LANES, square)
    *mean = center;
    *deviation = square[0];
}

static void OF_REAL(plane_normalise)(int64_t n, const void *from, const lg_norm_terms *t, void *to)
{
    const real *x = from, mean = *(const real *)t->mean, scale = *(const real *)t->scale,
               shift = *(const real *)t->shift;
    real *y = to;
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale + shift;
}

static void OF_REAL(plane_sums)(int64_t n, const void *gs, const void *from, const void *means, double *sum,
                                double *dot, double *off)
{
    const real *g = gs, *x = from, mean = *(const real *)means;
    double of_g[LANES] = {0}, of_both[LANES] = {0}, of_x[LANES] = {0};
    OVER_ROW(LANES, n,
             (of_g[j] += (double)g[i], of_both[j] += (double)g[i] * (double)(x[i] - mean),
              of_x[j] += (double)(x[i] - mean)));
    FOLD(LANES, of_g)
    FOLD(LANES, of_both)
    FOLD(LANES, of_x)
    *sum = of_g[0];
    *dot = of_both[0];
    *off = of_x[0];
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

/* ---- layer normalisation: sums over pieces are taken in `real`, and those are added in f64 */

#define LANES ((int64_t)(128 / sizeof(real)))
#define PIECE (32 * LANES)

static inline double OF_REAL(sum_of_piece)(int64_t n, const real *x)
{
    real sum[LANES] = {0};
    OVER_ROW(LANES, n, sum[j] += x[i]);
    FOLD(LANES, sum)
    return (double)sum[0];
}

static inline void OF_REAL(deviations_of_piece)(int64_t n, const real *x, real center, double *off, double *square)
{
    real offs[LANES] = {0}, squares[LANES] = {0};
    OVER_ROW(LANES, n, (offs[j] += x[i] - center, squares[j] += (x[i] - center) * (x[i] - center)));
    FOLD(LANES, offs)
    FOLD(LANES, squares)
    *off += (double)offs[0];
    *square += (double)squares[0];
}

/* Sums of g w and of g w (x - mean). */
static inline void OF_REAL(gradients_of_piece)(int64_t n, const real *g, const real *x, const real *weight, real mean,
                                               double *sum, double *dot)
{
    real of_g[LANES] = {0}, of_both[LANES] = {0};
    OVER_ROW(LANES, n, (of_g[j] += g[i] * weight[i], of_both[j] += g[i] * weight[i] * (x[i] - mean)));
    FOLD(LANES, of_g)
    FOLD(LANES, of_both)
    *sum += (double)of_g[0];
    *dot += (double)of_both[0];
}

static inline int64_t OF_REAL(piece)(int64_t n, int64_t begin)
{
    return n - begin < PIECE ? n - begin : PIECE;
}

static void OF_REAL(deviations)(int64_t n, const real *x, real center, double *off, double *square)
{
    *off = *square = 0;
    for (int64_t i = 0; i < n; i += PIECE)
        OF_REAL(deviations_of_piece)(OF_REAL(piece)(n, i), x + i, center, off, square);
}

/* The second pass also corrects what rounding did to the mean. */
static void OF_REAL(moments)(int64_t n, const real *x, double *mean, double *variance)
{
    double sum = 0, off, square;
    for (int64_t i = 0; i < n; i += PIECE) sum += OF_REAL(sum_of_piece)(OF_REAL(piece)(n, i), x + i);
    const real center = (real)(sum / (double)n);
    OF_REAL(deviations)(n, x, center, &off, &square);
    const double correction = off / (double)n;
    *mean = (double)center + correction;
    *variance = square / (double)n - correction * correction;
    if (*variance < 0) *variance = 0;
}

/* What the mean lost when it was rounded to `real` is subtracted by itself. */
static void OF_REAL(layer_norm)(int64_t n, const void *from, double eps, const void *weights, const void *biases,
                                void *to, double *means, double *invstds)
{
    const real *x = from, *weight = weights, *bias = biases;
    real *y = to;
    double variance;
    OF_REAL(moments)(n, x, means, &variance);
    *invstds = 1 / sqrt(variance + eps);
    const real mean = (real)*means, scale = (real)*invstds, low = (real)((*means - (double)mean) * *invstds);
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) y[i] = ((x[i] - mean) * scale - low) * weight[i] + bias[i];
}

/* What the mean lost when it was rounded, as said. Where the spread is not small beside it, that is nothing. */
static inline double OF_REAL(lost_of_mean)(int64_t n, const real *x, real mean, double invstd)
{
    enum { LITTLE = 8 }; /* spreads */
    if (fabs((double)mean) * invstd < LITTLE) return 0;
    double off, square;
    OF_REAL(deviations)(n, x, mean, &off, &square);
    return off / (double)n;
}

/* invstd (g w - (sum g w + unit sum g w unit) / n), where unit is (x - mean) invstd */
static void OF_REAL(layer_norm_backward)(int64_t n, const void *gs, const void *from, double means, double invstds,
                                         const void *weights, void *to, void *gweights, void *gbiases)
{
    const real *g = gs, *x = from, *weight = weights, mean = (real)means, invstd = (real)invstds;
    real *gx = to, *gweight = gweights, *gbias = gbiases;
    double sum = 0, dot = 0;
    for (int64_t i = 0; i < n; i += PIECE)
        OF_REAL(gradients_of_piece)(OF_REAL(piece)(n, i), g + i, x + i, weight + i, mean, &sum, &dot);
    const double lost = OF_REAL(lost_of_mean)(n, x, mean, invstds), share = 1 / (double)n;
    const real average = (real)(sum * share), along = (real)((dot - lost * sum) * invstds * share),
               low = (real)(lost * invstds);
    LG_VECTOR_LOOP
    for (int64_t i = 0; i < n; ++i) {
        const real unit = (x[i] - mean) * invstd - low;
        gx[i] = invstd * (g[i] * weight[i] - average - unit * along);
        gweight[i] += g[i] * unit;
        gbias[i] += g[i];
    }
}

#undef LANES
#undef PIECE
#undef OVER_ROW
#undef FOLD
