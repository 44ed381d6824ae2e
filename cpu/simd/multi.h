/* Steps of optimizers and passes over gradients, on n dense elements of one type. cpu/cpu_multi.c calls
 * these. */
#ifndef LG_CPU_SIMD_MULTI_H
#define LG_CPU_SIMD_MULTI_H

#include "cpu/isa.h"
#include "ops/update_rules.h"
#include <stdint.h>

/* Updates param (and its state) by grad; arrays do not overlap. */
typedef void (*lg_update_fn)(int64_t n, const lg_update *u, void *param, const void *grad, void *state0, void *state1);

typedef struct lg_multi_table {
    lg_update_fn sgd_plain, sgd_momentum, adam;
    void (*scale)(int64_t n, void *x, double factor);               /* in f64 */
    void (*clamp)(int64_t n, void *x, double limit);                /* NaN stays */
    bool (*unscale)(int64_t n, void *x, double factor);             /* in x's type; false if something is not finite */
    double (*sum_squares)(int64_t n, const void *x, double factor); /* of factor x, in f64 */
    double (*max_abs)(int64_t n, const void *x);                    /* NaN is passed over */
} lg_multi_table;

LG_ISA_DECLARE(const lg_multi_table, lg_multi_f32);
LG_ISA_DECLARE(const lg_multi_table, lg_multi_f64);

#endif
