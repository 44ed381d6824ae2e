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
