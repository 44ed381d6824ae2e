/* The kernels of softmax.h for one type. Included by simd_softmax.c with `real`, LG_SUFFIX, what
 * ops/scalar_ops.h needs, and MATH_LOOP, which stands before loops that call its functions. */
#include "ops/scalar_ops.h"

#define NAME(name) LG_OF_REAL(name)
#define LINE_IN(p, k, i) ((const real *)(p)->in[k] + (i) * (p)->in_step[k])
#define LINE_OUT(p, i) ((real *)(p)->out + (i) * (p)->out_step)

/* ---- a number for each column. If all columns are one row, what they found is folded in halves into
 * the first, and what follows from it is given to all. */

static void NAME(give_all)(const lg_panel *p, real *value)
{
    if (!p->folded) return;
    const real first = value[0];
    for (int64_t j = 1; j < p->width; ++j) value[j] = first;
}

/* Its own copy of what the caller has for each row. */
static void NAME(take)(const lg_panel *p, real *value, const void *from)
{
    memcpy(value, from, (size_t)lg_panel_rows(p) * sizeof *value);
    NAME(give_all)(p, value);
}

/* Sums over SUMMED lines are taken in `real`, and those are added in f64. */
typedef struct NAME(sums) {
    real part[LG_PANEL];
    double all[LG_PANEL];
} NAME(sums);

static void NAME(clear)(NAME(sums) *s)
{
    for (int64_t j = 0; j < LG_PANEL; ++j) s->part[j] = 0;
    for (int64_t j = 0; j < LG_PANEL; ++j) s->all[j] = 0;
}

static void NAME(add_part)(const lg_panel *p, NAME(sums) *s)
{
    for (int64_t j = 0; j < p->width; ++j) s->all[j] += (double)s->part[j];
    for (int64_t j = 0; j < p->width; ++j) s->part[j] = 0;
}

/* Behind line i. */
static inline void NAME(summed)(const lg_panel *p, NAME(sums) *s, int64_t i)
{
    if (i % SUMMED == SUMMED - 1 || i == p->lines - 1) NAME(add_part)(p, s);
}

static void NAME(fold)(const lg_panel *p, NAME(sums) *s)
{
    for (int64_t half = p->folded ? p->width / 2 : 0; half > 0; half /= 2)
        for (int64_t j = 0; j < half; ++j) s->all[j] += s->all[j + half];
}

/* Rows often follow each other in memory: the next one is fetched while this one's exponentials are
 * computed. x is a line of this one. */
static inline void NAME(fetch_next)(const lg_panel *p, const real *x)
{
    if (!p->folded) return;
    for (int64_t j = 0; j < p->width; j += 64 / (int64_t)sizeof(real)) __builtin_prefetch(x + p->lines * p->width + j);
}

/* ---- passes that several kernels make */

/* The largest element of each row, NaN set aside: it comes out of the exponentials. */
static void NAME(largest)(const lg_panel *p, real *top)
{
    for (int64_t j = 0; j < p->width; ++j) top[j] = -(real)INFINITY;
    for (int64_t i = 0; i < p->lines; ++i) {
        const int64_t width = lg_panel_width(p, i);
        const real *x = LINE_IN(p, 0, i);
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < width; ++j) top[j] = x[j] > top[j] ? x[j] : top[j];
    }
    for (int64_t half = p->folded ? p->width / 2 : 0; half > 0; half /= 2)
        for (int64_t j = 0; j < half; ++j) top[j] = top[j] > top[j + half] ? top[j] : top[j + half];
}

/* The same, but 0 for rows of nothing but -inf: what softmax subtracts. */
static void NAME(find_top)(const lg_panel *p, real *top)
{
    NAME(largest)(p, top);
    for (int64_t j = 0; j < lg_panel_rows(p); ++j) top[j] = top[j] == -(real)INFINITY ? 0 : top[j];
    NAME(give_all)(p, top);
}

/* `any`: top need not be the largest element. */
static void NAME(sum_exponentials)(const lg_panel *p, const real *top, bool any, NAME(sums) *s)
{
    NAME(clear)(s);
    for (int64_t i = 0; i < p->lines; ++i) {
        const int64_t width = lg_panel_width(p, i);
        const real *x = LINE_IN(p, 0, i);
        NAME(fetch_next)(p, x);
        if (any) {
            for (int64_t j = 0; j < width; ++j) s->part[j] += EXP(x[j] - top[j]);
        } else {
            MATH_LOOP
            for (int64_t j = 0; j < width; ++j) s->part[j] += EXP_BELOW(x[j] - top[j]);
        }
        NAME(summed)(p, s, i);
    }
    NAME(fold)(p, s);
}

/* ---- softmax */

static void NAME(softmax)(const lg_panel *p)
{
    real top[LG_PANEL], scale[LG_PANEL];
    NAME(sums) s;
    NAME(find_top)(p, top);
    NAME(clear)(&s);
    for (int64_t i = 0; i < p->lines; ++i) {
        const int64_t width = lg_panel_width(p, i);
        const real *x = LINE_IN(p, 0, i);
        real *y = LINE_OUT(p, i);
        NAME(fetch_next)(p, x);
        MATH_LOOP
        for (int64_t j = 0; j < width; ++j) {
            const real e = EXP_BELOW(x[j] - top[j]);
            y[j] = e;
            s.part[j] += e;
        }
        NAME(summed)(p, &s, i);
    }
    NAME(fold)(p, &s);
    for (int64_t j = 0; j < lg_panel_rows(p); ++j) scale[j] = s.all[j] == 0 ? 0 : (real)(1 / s.all[j]);
    NAME(give_all)(p, scale);
    for (int64_t i = 0; i < p->lines; ++i) {
        const int64_t width = lg_panel_width(p, i);
        real *y = LINE_OUT(p, i);
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < width; ++j) y[j] *= scale[j];
    }
}

static void NAME(log_softmax)(const lg_panel *p)
{
    real top[LG_PANEL], low[LG_PANEL];
    NAME(sums) s;
    NAME(find_top)(p, top);
    NAME(sum_exponentials)(p, top, false, &s);
    for (int64_t j = 0; j < lg_panel_rows(p); ++j) low[j] = LOG(s.all[j] == 0 ? 1 : (real)s.all[j]);
    NAME(give_all)(p, low);
    for (int64_t i = 0; i < p->lines; ++i) {
        const int64_t width = lg_panel_width(p, i);
        const real *x = LINE_IN(p, 0, i);
        real *y = LINE_OUT(p, i);
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < width; ++j) y[j] = x[j] - top[j] - low[j];
    }
}

/* y (g - sum g y) */
static void NAME(softmax_backward)(const lg_panel *p)
{
    real dot[LG_PANEL];
    NAME(sums) s;
    NAME(clear)(&s);
    for (int64_t i = 0; i < p->lines; ++i) {
        const int64_t width = lg_panel_width(p, i);
        const real *g = LINE_IN(p, 0, i), *y = LINE_IN(p, 1, i);
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < width; ++j) s.part[j] += g[j] * y[j];
        NAME(summed)(p, &s, i);
    }
    NAME(fold)(p, &s);
    for (int64_t j = 0; j < lg_panel_rows(p); ++j) dot[j] = (real)s.all[j];
    NAME(give_all)(p, dot);
    for (int64_t i = 0; i < p->lines; ++i) {
        const int64_t width = lg_panel_width(p, i);
        const real *g = LINE_IN(p, 0, i), *y = LINE_IN(p, 1, i);
        real *gx = LINE_OUT(p, i);
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < width; ++j) gx[j] = y[j] * (g[j] - dot[j]);
    }
}

/* g - e^y sum g */
static void NAME(log_softmax_backward)(const lg_panel *p)
{
    real sum[LG_PANEL];
    NAME(sums) s;
    NAME(clear)(&s);
    for (int64_t i = 0; i < p->lines; ++i) {
        const int64_t width = lg_panel_width(p, i);
        const real *g = LINE_IN(p, 0, i);
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < width; ++j) s.part[j] += g[j];
        NAME(summed)(p, &s, i);
    }
    NAME(fold)(p, &s);
    for (int64_t j = 0; j < lg_panel_rows(p); ++j) sum[j] = (real)s.all[j];
    NAME(give_all)(p, sum);
    for (int64_t i = 0; i < p->lines; ++i) {
        const int64_t width = lg_panel_width(p, i);
        const real *g = LINE_IN(p, 0, i), *y = LINE_IN(p, 1, i);
        real *gx = LINE_OUT(p, i);
        MATH_LOOP
        for (int64_t j = 0; j < width; ++j) gx[j] = g[j] - EXP_BELOW(y[j]) * sum[j];
    }
}

/* ---- cross_entropy */

/* A largest element that is infinite is not subtracted: the logarithm is infinite by itself then. */
static void NAME(log_sum)(const lg_panel *p, void *tops, void *lows)
{
    const int64_t rows = lg_panel_rows(p);
    real top[LG_PANEL], low[LG_PANEL];
    NAME(sums) s;
    NAME(largest)(p, top);
    bool infinite = false;
    for (int64_t j = 0; j < rows; ++j) {
        infinite = infinite || top[j] == (real)INFINITY;
        top[j] = FABS(top[j]) < (real)INFINITY ? top[j] : 0;
    }
    NAME(give_all)(p, top);
    NAME(sum_exponentials)(p, top, infinite, &s);
    for (int64_t j = 0; j < rows; ++j) low[j] = LOG((real)s.all[j]);
    memcpy(tops, top, (size_t)rows * sizeof *top);
    memcpy(lows, low, (size_t)rows * sizeof *low);
}

/* The shares of line i: one for all columns, or of one row one each. */
static const real *NAME(shares)(const lg_panel *p, const void *share, int64_t i, real *buffer)
{
    if (p->folded) return (const real *)share + i * p->width;
    for (int64_t j = 0; j < p->width; ++j) buffer[j] = ((const real *)share)[i];
    return buffer;
}

static void NAME(spread)(const lg_panel *p, const void *share, const void *tops, const void *lows, double *sum)
{
    real top[LG_PANEL], low[LG_PANEL], buffer[LG_PANEL];
    NAME(sums) s;
    NAME(take)(p, top, tops);
    NAME(take)(p, low, lows);
    NAME(clear)(&s);
    for (int64_t i = 0; i < p->lines; ++i) {
        const int64_t width = lg_panel_width(p, i);
        const real *x = LINE_IN(p, 0, i), *here = NAME(shares)(p, share, i, buffer);
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < width; ++j) s.part[j] += here[j] * (top[j] - x[j] + low[j]);
        NAME(summed)(p, &s, i);
    }
    NAME(fold)(p, &s);
    memcpy(sum, s.all, (size_t)lg_panel_rows(p) * sizeof *sum);
}

static void NAME(gradient)(const lg_panel *p, const void *share, const void *lses, const void *scales, const void *ds)
{
    real lse[LG_PANEL], scale[LG_PANEL], d[LG_PANEL], buffer[LG_PANEL];
    NAME(take)(p, lse, lses);
    NAME(take)(p, scale, scales);
    NAME(take)(p, d, ds);
    for (int64_t i = 0; i < p->lines; ++i) {
        const int64_t width = lg_panel_width(p, i);
        const real *x = LINE_IN(p, 0, i);
        real *y = LINE_OUT(p, i);
        MATH_LOOP
        for (int64_t j = 0; j < width; ++j) y[j] = scale[j] * EXP_BELOW(x[j] - lse[j]);
        if (share == NULL) continue;
        const real *here = NAME(shares)(p, share, i, buffer);
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < width; ++j) y[j] -= d[j] * here[j];
    }
}

#undef NAME
#undef LINE_IN
#undef LINE_OUT
