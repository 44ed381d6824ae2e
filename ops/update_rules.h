/* The update rules of the optimizers: what one step does to one element, and the coefficients that are
 * the same for all elements of a parameter; and of what changes from step to step, learning rates and the
 * scale of losses. The same text runs on every backend. Formulas are PyTorch's.
 *
 * Included once per type that computes, with `real` the type, LG_SUFFIX how functions end, and
 * LG_SQRT(x) its square root; without LG_SUFFIX for the coefficients only. LG_INLINE and LG_COSPI may be
 * defined for other compilers than C's. */

#ifndef LG_OPS_UPDATE_RULES_H
#define LG_OPS_UPDATE_RULES_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#ifndef LG_INLINE
#define LG_INLINE static inline
#endif
#ifndef LG_COSPI /* cos(pi x) */
#define LG_COSPI(x) cos(3.14159265358979323846 * (x))
#endif

/* Coefficients of one parameter in one step. */
typedef struct lg_update {
    double lr;              /* of this parameter, now */
    double decay;           /* L2: times p, added to the gradient */
    double shrink;          /* decoupled decay: p is multiplied by this */
    double momentum, fresh; /* SGD: the old direction and the gradient count this much */
    bool nesterov;
    double rate1, keep2, rate2;   /* Adam: 1 - beta1, beta2, 1 - beta2 */
    double step_size, root_scale; /* Adam: lr and root of the second moment, bias corrected */
    double eps;
} lg_update;

/* SGD. In the first step (steps_before 0) the direction is the gradient itself. */
LG_INLINE lg_update lg_sgd_update(double lr, double weight_decay, double momentum, double dampening, bool nesterov,
                                  double steps_before)
{
    const bool first = steps_before == 0;
    lg_update u;
    memset(&u, 0, sizeof u);
    u.lr = lr;
    u.decay = weight_decay;
    u.shrink = 1;
    u.momentum = momentum;
    u.fresh = first ? 1 : 1 - dampening;
    u.nesterov = nesterov;
    return u;
}

/* Adam (L2 in the gradient) and AdamW (decoupled). */
LG_INLINE lg_update lg_adam_update(double lr, double weight_decay, bool decoupled, double beta1, double beta2,
                                   double eps, double steps_before)
{
    const double step = steps_before + 1;
    lg_update u;
    memset(&u, 0, sizeof u);
    u.lr = lr;
    u.decay = decoupled ? 0 : weight_decay;
    u.shrink = decoupled ? 1 - lr * weight_decay : 1;
    u.rate1 = 1 - beta1;
    u.keep2 = beta2;
    u.rate2 = 1 - beta2;
    u.step_size = lr / (1 - pow(beta1, step));
    u.root_scale = 1 / sqrt(1 - pow(beta2, step));
    u.eps = eps;
    return u;
}

/* ---- schedules: what every learning rate is multiplied with, a function of the steps taken */

typedef enum lg_sched_kind {
    LG_SCHED_CONSTANT,
    LG_SCHED_STEP,
    LG_SCHED_WARMUP,
    LG_SCHED_COSINE,
    LG_SCHED_ONE_CYCLE
} lg_sched_kind;

/* Settings of all kinds; each uses its own. */
typedef struct lg_sched_rule {
    lg_sched_kind kind;
    long long steps, warmup, every;
    double gamma, lowest; /* lowest: as a factor */
    double rise, first;   /* one cycle: share of the steps that go up, the first factor */
} lg_sched_rule;

/* From one value to another by half a cosine, `done` from 0 to 1. */
LG_INLINE double lg_sched_anneal(double from, double to, double done)
{
    return to + (from - to) * 0.5 * (1 + LG_COSPI(done));
}

/* PyTorch's two phases: up until step rise * steps - 1, then down until the last. */
LG_INLINE double lg_sched_one_cycle(const lg_sched_rule *s, double step)
{
    const double last = (double)(s->steps - 1), top = s->rise * (double)s->steps - 1;
    const double at = step < last ? step : last;
    if (at <= top) return top > 0 ? lg_sched_anneal(s->first, 1, at / top) : 1;
    return last > top ? lg_sched_anneal(1, s->lowest, (at - top) / (last - top)) : s->lowest;
}

LG_INLINE double lg_sched_factor(const lg_sched_rule *s, double step)
{
    const double warmup = (double)s->warmup, steps = (double)s->steps;
    const int warms = s->kind == LG_SCHED_WARMUP || s->kind == LG_SCHED_COSINE;
    if (warms && step < warmup) return (step + 1) / warmup;
    switch (s->kind) {
    case LG_SCHED_STEP: return pow(s->gamma, floor(step / (double)s->every));
    case LG_SCHED_COSINE:
        return step < steps ? lg_sched_anneal(1, s->lowest, (step - warmup) / (steps - warmup)) : s->lowest;
    case LG_SCHED_ONE_CYCLE: return lg_sched_one_cycle(s, step);
    default: return 1;
    }
}

/* ---- the scale of losses: halved by an overflow, doubled after `interval` steps without one */

typedef struct lg_scaler_rule {
    double growth, backoff, lowest, highest;
    double interval;
} lg_scaler_rule;

/* Its state: the scale, steps since it was changed, steps left out in a row. */
enum { LG_SCALER_SCALE, LG_SCALER_GOOD, LG_SCALER_SKIPS, LG_SCALER_NUMBERS };

LG_INLINE void lg_scaler_advance(const lg_scaler_rule *r, int overflow, float *state)
{
    if (overflow) {
        const float smaller = (float)(state[LG_SCALER_SCALE] * r->backoff);
        state[LG_SCALER_SCALE] = smaller >= (float)r->lowest ? smaller : (float)r->lowest;
        state[LG_SCALER_GOOD] = 0;
        state[LG_SCALER_SKIPS] += 1;
        return;
    }
    state[LG_SCALER_SKIPS] = 0;
    state[LG_SCALER_GOOD] += 1;
    if (state[LG_SCALER_GOOD] < (float)r->interval) return;
    const float larger = (float)(state[LG_SCALER_SCALE] * r->growth);
    if (larger <= (float)r->highest) state[LG_SCALER_SCALE] = larger;
    state[LG_SCALER_GOOD] = 0;
}

#define LG_RULE_JOIN_(name, suffix) name##_##suffix
#define LG_RULE_JOIN(name, suffix)  LG_RULE_JOIN_(name, suffix)
#define LG_RULE(name)               LG_RULE_JOIN(name, LG_SUFFIX)

#endif

#ifdef LG_SUFFIX

/* p - lr (g + decay p) */
LG_INLINE real LG_RULE(lg_sgd_plain)(real p, real g, real lr, real decay)
{
    return p - lr * (g + decay * p);
}

/* *m = momentum *m + fresh (g + decay p); p - lr *m, or with Nesterov's look ahead. A first step is one
 * with momentum * 0: *m starts at zero. */
LG_INLINE real LG_RULE(lg_sgd_momentum)(real p, real g, real *m, real lr, real decay, real momentum, real fresh,
                                        bool nesterov)
{
    const real slope = g + decay * p;
    const real direction = momentum * *m + fresh * slope;
    *m = direction;
    return p - lr * (nesterov ? slope + momentum * direction : direction);
}

/* m and v are the running means of the gradient and of its square. */
LG_INLINE real LG_RULE(lg_adam)(real p, real g, real *m, real *v, real decay, real shrink, real rate1, real keep2,
                                real rate2, real step_size, real root_scale, real eps)
{
    const real slope = g + decay * p;
    const real mean = *m + rate1 * (slope - *m);
    const real square = keep2 * *v + rate2 * slope * slope;
    *m = mean;
    *v = square;
    return shrink * p - step_size * mean / (LG_SQRT(square) * root_scale + eps);
}

#endif
