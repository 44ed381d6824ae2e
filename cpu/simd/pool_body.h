/* The kernels of simd_pool.c for one type: `real`, and `whole`, an integer of its size. */

#define EACH_PIXEL(w)                                   \
    for (int64_t row = 0; row < (w)->rows; ++row)       \
        for (int64_t column = 0, at = row * (w)->row_step; column < (w)->columns; ++column, at += (w)->column_step)

static void OF_REAL(max)(const lg_pool_window *w, const void *from, void *to)
{
    const int64_t n = w->n;
    const real *x = from;
    real *y = to;
    for (int64_t j = 0; j < n; ++j) y[j] = x[j];
    EACH_PIXEL(w)
    {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) {
            const real v = x[at + j];
            y[j] = ((v > y[j]) | (v != v)) ? v : y[j];
        }
    }
}

static inline void OF_REAL(give)(int64_t n, const real *g, const real *x, const real *y, bool add, whole *found, real *gx)
{
    LG_VECTOR_LOOP
    for (int64_t j = 0; j < n; ++j) {
        const whole here = ~found[j] & -(whole)((x[j] == y[j]) | (x[j] != x[j]));
        const real part = here ? g[j] : 0;
        gx[j] = add ? gx[j] + part : part;
        found[j] |= here;
    }
}

static void OF_REAL(max_backward)(const lg_pool_window *w, const void *g, const void *from, const void *y, bool add, void *found,
                                  void *to)
{
    const real *x = from;
    real *gx = to;
    for (int64_t j = 0; j < w->n; ++j) ((whole *)found)[j] = 0;
    EACH_PIXEL(w)
    {
        const real *there = x + row * w->x_row_step + column * w->x_column_step;
        if (add)
            OF_REAL(give)(w->n, g, there, y, true, found, gx + at);
        else
            OF_REAL(give)(w->n, g, there, y, false, found, gx + at);
    }
}

static void OF_REAL(mean)(const lg_pool_window *w, const void *from, double scale, void *to)
{
    const int64_t n = w->n;
    const real *x = from, times = (real)scale;
    real *y = to;
    for (int64_t j = 0; j < n; ++j) y[j] = 0;
    EACH_PIXEL(w)
    {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) y[j] += x[at + j];
    }
    LG_VECTOR_LOOP
    for (int64_t j = 0; j < n; ++j) y[j] *= times;
}

static void OF_REAL(mean_backward)(const lg_pool_window *w, const void *gs, double scale, void *to)
{
    const int64_t n = w->n;
    const real *g = gs, times = (real)scale;
    real *gx = to;
    EACH_PIXEL(w)
    {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) gx[at + j] += g[j] * times;
    }
}

#undef EACH_PIXEL
