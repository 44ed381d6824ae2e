/* Launchers of the passes over many tensors (cuda_multi.cu), for cuda_multi.c. What a launch works on lies
 * in the kernel's parameters, which CUDA copies when the launch is queued. */
#ifndef LG_CUDA_MULTI_H
#define LG_CUDA_MULTI_H

#include <cuda_runtime_api.h>
#include <stdint.h>
#include "cuda/trouble.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what is to be done to each element */

typedef enum lg_multi_rule {
    LG_RULE_SGD_PLAIN,
    LG_RULE_SGD_MOMENTUM,
    LG_RULE_ADAM,        /* also AdamW */
    LG_RULE_SQUARES,     /* sums of squares of the gradients */
    LG_RULE_SCALE,       /* gradients times min(1, limit / (norm + 1e-6)) */
    LG_RULE_CLAMP        /* gradients limited to [-limit, limit] */
} lg_multi_rule;

/* What ops/update_rules.h's coefficients of one tensor take up in device memory, in its compute type. */
enum { LG_MULTI_RATES_BYTES = 96 };

/* Tensors of one dtype; those without a state or a parameter have NULL there. */
typedef struct lg_multi_tensor {
    void *param, *grad, *state[2];
    int64_t count;
    int64_t first_block; /* of this tensor; ascending */
    int rates;           /* number of its coefficients */
    int packed;          /* all addresses are multiples of 16 */
} lg_multi_tensor;

enum { LG_MULTI_TENSORS = 64, LG_MULTI_CHUNK = 4096 /* elements a block */ };

typedef struct lg_multi_pass {
    int dtype, rule, count;
    int64_t blocks;
    const void *rates;   /* steps */
    double *partial;     /* SQUARES: three sums a block (cuda_multi.cu) */
    const double *norm;  /* SCALE */
    double limit;
    lg_multi_tensor tensor[LG_MULTI_TENSORS];
} lg_multi_pass;

cudaError_t lg_cuda_launch_multi_pass(const lg_multi_pass *pass, cudaStream_t stream);
/* *norm from the sums of all blocks. */
cudaError_t lg_cuda_launch_multi_norm(const double *partial, int64_t blocks, double *norm, cudaStream_t stream);

/* ---- coefficients of steps */

enum { LG_MULTI_STEPS = 96 };

typedef struct lg_multi_step {
    float *steps; /* so far: incremented */
    double lr_scale, weight_decay;
    int wide;     /* computes in f64 */
} lg_multi_step;

typedef struct lg_multi_steps {
    int rule, count;
    int decoupled, nesterov;
    double momentum, dampening, beta1, beta2, eps;
    const double *lr, *norm; /* norm NULL: without */
    lg_cuda_trouble *trouble;
    void *rates;             /* [count] */
    lg_multi_step step[LG_MULTI_STEPS];
} lg_multi_steps;

/* Works out the coefficients and counts the steps; or, if *norm is not finite, sees to it that the passes
 * change nothing, and notes that. */
cudaError_t lg_cuda_launch_multi_rates(const lg_multi_steps *steps, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
