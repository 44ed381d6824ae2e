/* The kernels of simd_pool.c for one type: `real`, and `whole`, an integer of its size. */

#define EACH_PIXEL(w)                                   \
    for (int64_t row = 0; row < (w)->rows; ++row)       \
        for (int64_t column = 0, at = row * (w)->row_step; column < (w)->columns; ++column, at += (w)->column_step)

/* Functions of a constant step 1 and of any: the former become plain vector loops. */
#define STEPS(call)         \
    if (w->step == 1) {     \
        const int64_t step = 1; \
        call;               \
    } else {                \
        const int64_t step = w->step; \
        call;               \
    }

static inline __attribute__((always_inline)) void OF_REAL(max_steps)(const lg_pool_window *w, const real *x, real *y, const int64_t step)
{
    const int64_t n = w->n;
    for (int64_t j = 0; j < n; ++j) y[j] = x[j * step];
    EACH_PIXEL(w)
    {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) {
            const real v = x[at + j * step];
            y[j] = ((v > y[j]) | (v != v)) ? v : y[j];
        }
    }
}

static void OF_REAL(max)(const lg_pool_window *w, const void *x, void *y) { STEPS(OF_REAL(max_steps)(w, x, y, step)) }

static inline __attribute__((always_inline)) void OF_REAL(give)(int64_t n, const real *g, const real *x, const real *y, const bool add,
                                                                whole *found, real *gx, const int64_t step)
{
    LG_VECTOR_LOOP
    for (int64_t j = 0; j < n; ++j) {
        const real v = x[j * step];
        const whole here = ~found[j] & -(whole)((v == y[j]) | (v != v));
        const real part = here ? g[j] : 0;
        gx[j * step] = add ? gx[j * step] + part : part;
        found[j] |= here;
    }
}

static inline __attribute__((always_inline)) void OF_REAL(give_steps)(const lg_pool_window *w, const real *g, const real *x, const real *y,
                                                                      const bool add, whole *found, real *gx, const int64_t step)
{
    for (int64_t j = 0; j < w->n; ++j) found[j] = 0;
    EACH_PIXEL(w) OF_REAL(give)(w->n, g, x + row * w->x_row_step + column * w->x_column_step, y, add, found, gx + at, step);
}

static void OF_REAL(max_backward)(const lg_pool_window *w, const void *g, const void *x, const void *y, bool add, void *found, void *gx)
{
    if (add)
        STEPS(OF_REAL(give_steps)(w, g, x, y, true, found, gx, step))
    else
        STEPS(OF_REAL(give_steps)(w, g, x, y, false, found, gx, step))
}

static inline __attribute__((always_inline)) void OF_REAL(mean_steps)(const lg_pool_window *w, const real *x, real scale, real *y, const int64_t step)
{
    const int64_t n = w->n;
    for (int64_t j = 0; j < n; ++j) y[j] = 0;
    EACH_PIXEL(w)
    {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) y[j] += x[at + j * step];
    }
    LG_VECTOR_LOOP
    for (int64_t j = 0; j < n; ++j) y[j] *= scale;
}

/* Windows of many pixels are summed in f64. */
static inline __attribute__((always_inline)) void OF_REAL(mean_of_many_steps)(const lg_pool_window *w, const real *x, double scale, real *y, const int64_t step)
{
    enum { BLOCK = 64 };
    for (int64_t first = 0; first < w->n; first += BLOCK, x += BLOCK * step, y += BLOCK) {
        const int64_t n = w->n - first < BLOCK ? w->n - first : BLOCK;
        double sum[BLOCK] = {0};
        EACH_PIXEL(w)
        {
            LG_VECTOR_LOOP
            for (int64_t j = 0; j < n; ++j) sum[j] += (double)x[at + j * step];
        }
        for (int64_t j = 0; j < n; ++j) y[j] = (real)(sum[j] * scale);
    }
}

static void OF_REAL(mean)(const lg_pool_window *w, const void *x, double scale, void *y)
{
    enum { MANY = 64 };
    if (w->rows * w->columns > MANY)
        STEPS(OF_REAL(mean_of_many_steps)(w, x, scale, y, step))
    else
        STEPS(OF_REAL(mean_steps)(w, x, (real)scale, y, step))
}

static inline __attribute__((always_inline)) void OF_REAL(spread_steps)(const lg_pool_window *w, const real *g, real scale, real *gx, const int64_t step)
{
    const int64_t n = w->n;
    EACH_PIXEL(w)
    {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) gx[at + j * step] += g[j] * scale;
    }
}

static void OF_REAL(mean_backward)(const lg_pool_window *w, const void *g, double scale, void *gx)
{
    STEPS(OF_REAL(spread_steps)(w, g, (real)scale, gx, step))
}

#undef EACH_PIXEL
#undef STEPS
