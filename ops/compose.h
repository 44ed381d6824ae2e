/* Functions made of recorded ops: what gradients are composed of, and what modules use beside the
 * public ops. Tensors are borrowed from the current scope; NULL in, NULL out. */
#ifndef LG_OPS_COMPOSE_H
#define LG_OPS_COMPOSE_H

#include <luge/ops.h>
#include <luge/tensor.h>

/* ---- elementwise.c */

/* A tensor of one element with t's dtype and device, rank 0: broadcasts to any shape. */
luge_tensor *lg_number_like(const luge_tensor *t, double value);
/* -1, 0 or 1; 1 where x > 0, else 0; 1 where p <= x <= q, else 0. Without gradients. */
luge_tensor *lg_sign(luge_tensor *x);
luge_tensor *lg_positive(luge_tensor *x);
luge_tensor *lg_within(luge_tensor *x, double p, double q);
/* 1 where a > b, 0.5 where they are equal, else 0. Without gradients. */
luge_tensor *lg_share(luge_tensor *a, luge_tensor *b);
/* Slopes of activations, differentiable. */
luge_tensor *lg_erf_slope(luge_tensor *x);
luge_tensor *lg_gelu_slope(luge_tensor *x);
luge_tensor *lg_silu_slope(luge_tensor *x);
/* Gradients of x^p and a^b, differentiable. */
luge_tensor *lg_pow_slope(luge_tensor *x, double p);
luge_tensor *lg_pow_grad_a(luge_tensor *g, luge_tensor *a, luge_tensor *b);
luge_tensor *lg_pow_grad_b(luge_tensor *g, luge_tensor *a, luge_tensor *b);

/* ---- create.c: in place, from this thread's random numbers; floats. Return t. */

luge_tensor *lg_uniform_(luge_tensor *t, double low, double high);
luge_tensor *lg_normal_(luge_tensor *t, double mean, double deviation);

#endif
