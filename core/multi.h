/* One pass over many tensors: optimizers, clipping, unscaling. Scalars that change from step to step
 * (step count, learning rate, norm, scale of losses) are read from device memory and changed there. */
#ifndef LG_CORE_MULTI_H
#define LG_CORE_MULTI_H

#include "core/tensor.h"

typedef enum lg_multi_kind {
    LG_MULTI_SGD,        /* update rules: ops/update_rules.h */
    LG_MULTI_ADAM,
    LG_MULTI_ADAMW,
    LG_MULTI_NORM,       /* *norm = 2-norm of all grads, without overflow (scaled sums) */
    LG_MULTI_CLIP_NORM,  /* grads *= min(1, max_norm / (*norm + 1e-6)); untouched if *norm is not finite */
    LG_MULTI_CLIP_VALUE, /* grads limited to [-limit, limit] */
    LG_MULTI_UNSCALE,    /* grads *= limit / *scale; *found = 1 if one is not finite, before or after, else left alone */
    /* These without items. */
    LG_MULTI_SCHEDULE,   /* unless *skip: *position += 1, *lr = the factor there */
    LG_MULTI_RESCALE     /* advances `scale` by whether any of `found` is not 0, and sets those to 0 */
} lg_multi_kind;

/* What RESCALE says of too many skips: how many steps (long long), and the scale (double). */
#define LG_TEXT_SCALE                                                                                          \
    "luge_scaler_update: gradients overflowed in %lld steps in a row, down to a scale of %g: the loss or the " \
    "model makes inf or NaN by itself; LUGE_ANOMALY() finds where"

/* One tensor of the pass. All of one item have the parameter's shape; param and state are dense with
 * equal strides, grad may have others. state are f32 (f64 for an f64 param). */
typedef struct lg_multi_item {
    luge_tensor *param, *grad, *state[2];
    luge_tensor *step;   /* f32 scalar on the device: steps of this parameter so far; incremented by the pass */
    double lr_scale;     /* times *lr: this parameter's own rate over the common one */
    double weight_decay;
} lg_multi_item;

struct lg_multi {
    lg_multi_kind kind;
    int count;
    const lg_multi_item *item;
    luge_tensor *lr;     /* f64 scalar on the device: the schedule's factor times nothing else */
    luge_tensor *position; /* SCHEDULE: f64 scalar, steps taken */
    luge_tensor *scale;  /* UNSCALE: f32 scalar, NULL for 1. RESCALE: the scaler's state, f32 [LG_SCALER_NUMBERS] */
    luge_tensor *found;  /* UNSCALE, and updates, which do nothing if it is not 0: f32 scalar or NULL. RESCALE: f32 [n] */
    luge_tensor *skip;   /* f64 scalar: updates note whether they did nothing (1) or something (0); SCHEDULE reads it */
    const struct lg_sched_rule *schedule;
    const struct lg_scaler_rule *scaler;
    int64_t most_skips;  /* RESCALE: so many in a row are noted as trouble, on a device that the host does not wait for */
    luge_tensor *norm;   /* f64 scalar on the device. NULL for an update without clipping; else, on a device that the
                            host does not wait for, one that is not finite means that nothing is updated, no step
                            counted, and that noted as trouble */
    double momentum, dampening, beta1, beta2, eps, limit;
    bool nesterov;
};

#endif
