/* The kernels of one type; included by simd_multi.c with `real`, LG_SUFFIX and LG_SQRT defined. */
#include "ops/update_rules.h"

static void LG_RULE(sgd_plain)(int64_t n, const lg_update *u, void *param, const void *grad, void *state0, void *state1)
{
    (void)state0;
    (void)state1;
    real *restrict p = param;
    const real *restrict g = grad;
    const real lr = (real)u->lr, decay = (real)u->decay;
    for (int64_t i = 0; i < n; ++i) p[i] = LG_RULE(lg_sgd_plain)(p[i], g[i], lr, decay);
}

static void LG_RULE(sgd_momentum)(int64_t n, const lg_update *u, void *param, const void *grad, void *state0,
                                  void *state1)
{
    (void)state1;
    real *restrict p = param, *restrict m = state0;
    const real *restrict g = grad;
    const real lr = (real)u->lr, decay = (real)u->decay, momentum = (real)u->momentum, fresh = (real)u->fresh;
    const bool nesterov = u->nesterov;
    for (int64_t i = 0; i < n; ++i) {
        p[i] = LG_RULE(lg_sgd_momentum)(p[i], g[i], &m[i], lr, decay, momentum, fresh, nesterov);
    }
}

static void LG_RULE(adam)(int64_t n, const lg_update *u, void *param, const void *grad, void *state0, void *state1)
{
    real *restrict p = param, *restrict m = state0, *restrict v = state1;
    const real *restrict g = grad;
    const real decay = (real)u->decay, shrink = (real)u->shrink, rate1 = (real)u->rate1, keep2 = (real)u->keep2,
               rate2 = (real)u->rate2, step_size = (real)u->step_size, root_scale = (real)u->root_scale,
               eps = (real)u->eps;
    for (int64_t i = 0; i < n; ++i) {
        p[i] =
            LG_RULE(lg_adam)(p[i], g[i], &m[i], &v[i], decay, shrink, rate1, keep2, rate2, step_size, root_scale, eps);
    }
}

static void LG_RULE(scale)(int64_t n, void *x, double factor)
{
    real *restrict p = x;
    for (int64_t i = 0; i < n; ++i) p[i] = (real)(p[i] * factor);
}

/* Anything times zero is zero, or NaN if it is not finite: so the sum says whether all are, and the loop
 * vectorises. */
static bool LG_RULE(unscale)(int64_t n, void *x, double factor)
{
    enum { WAYS = 16 };
    real *restrict p = x;
    const real by = (real)factor;
    real zeros[WAYS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + WAYS <= n; i += WAYS) {
        for (int k = 0; k < WAYS; ++k) {
            const real before = p[i + k], after = before * by;
            zeros[k] += before * 0 + after * 0;
            p[i + k] = after;
        }
    }
    for (; i < n; ++i) {
        const real before = p[i], after = before * by;
        sum += before * 0 + after * 0;
        p[i] = after;
    }
    for (int k = 0; k < WAYS; ++k) sum += zeros[k];
    return sum == 0;
}

static void LG_RULE(clamp)(int64_t n, void *x, double limit)
{
    real *restrict p = x;
    const real high = (real)limit, low = -high;
    for (int64_t i = 0; i < n; ++i) p[i] = p[i] > high ? high : p[i] < low ? low : p[i];
}

/* Sixteen partial sums, so that the additions need not wait for each other. */
static double LG_RULE(sum_squares)(int64_t n, const void *x, double factor)
{
    enum { WAYS = 16 };
    const real *restrict p = x;
    double sum[WAYS] = {0};
    int64_t i = 0;
    for (; i + WAYS <= n; i += WAYS) {
        for (int k = 0; k < WAYS; ++k) {
            const double value = p[i + k] * factor;
            sum[k] += value * value;
        }
    }
    for (; i < n; ++i) {
        const double value = p[i] * factor;
        sum[0] += value * value;
    }
    for (int width = WAYS / 2; width > 0; width /= 2) {
        for (int k = 0; k < width; ++k) sum[k] += sum[k + width];
    }
    return sum[0];
}

static double LG_RULE(max_abs)(int64_t n, const void *x)
{
    const real *restrict p = x;
    real most = 0;
    for (int64_t i = 0; i < n; ++i) {
        const real a = p[i] < 0 ? -p[i] : p[i];
        most = a > most ? a : most;
    }
    return (double)most;
}

const lg_multi_table LG_ISA_NAME(LG_RULE(lg_multi)) = {
    .sgd_plain = LG_RULE(sgd_plain),
    .sgd_momentum = LG_RULE(sgd_momentum),
    .adam = LG_RULE(adam),
    .scale = LG_RULE(scale),
    .clamp = LG_RULE(clamp),
    .unscale = LG_RULE(unscale),
    .sum_squares = LG_RULE(sum_squares),
    .max_abs = LG_RULE(max_abs),
};
