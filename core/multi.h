/* One pass over many tensors: optimizers, clipping, zeroing. Scalars that change from step to step
 * (step count, learning rate, norm) are read from device memory. */
#ifndef LG_CORE_MULTI_H
#define LG_CORE_MULTI_H

#include "core/tensor.h"

typedef enum lg_multi_kind {
    LG_MULTI_SGD,        /* update rules: ops/update_rules.h */
    LG_MULTI_ADAM,
    LG_MULTI_ADAMW,
    LG_MULTI_NORM,       /* *norm = 2-norm of all grads, without overflow (scaled sums) */
    LG_MULTI_CLIP_NORM,  /* grads *= min(1, max_norm / (*norm + 1e-6)); untouched if *norm is not finite */
    LG_MULTI_CLIP_VALUE  /* grads limited to [-limit, limit] */
} lg_multi_kind;

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
    luge_tensor *norm;   /* f64 scalar on the device. NULL for an update without clipping; else, on a device that the
                            host does not wait for, one that is not finite means that nothing is updated, no step
                            counted, and that noted as trouble */
    double momentum, dampening, beta1, beta2, eps, limit;
    bool nesterov;
};

#endif
