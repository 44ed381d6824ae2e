/* The update rules of the optimizers: what one step does to one element, and the coefficients that are
 * the same for all elements of a parameter. The same text runs on every backend. Formulas are PyTorch's.
 *
 * Included once per type that computes, with `real` the type, LG_SUFFIX how functions end, and
 * LG_SQRT(x) its square root; without LG_SUFFIX for the coefficients only. LG_INLINE may be defined for
 * other compilers than C's. */

#ifndef LG_OPS_UPDATE_RULES_H
#define LG_OPS_UPDATE_RULES_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#ifndef LG_INLINE
#define LG_INLINE static inline
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
