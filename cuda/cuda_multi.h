/* Launchers of the passes over many tensors (cuda_multi.cu), for cuda_multi.c. What a launch works on lies
 * in the kernel's parameters, which CUDA copies when the launch is queued. */
#ifndef LG_CUDA_MULTI_H
#define LG_CUDA_MULTI_H

#include <cuda_runtime_api.h>
#include <stdint.h>
#include "cuda/trouble.h"
#include "ops/update_rules.h"

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
    LG_RULE_CLAMP,       /* gradients limited to [-limit, limit] */
    LG_RULE_UNSCALE      /* gradients times limit / *scale; *overflow = 1 if one is not finite */
} lg_multi_rule;

/* Tensors of one dtype. What a pass does not use is NULL. */
typedef struct lg_multi_tensor {
    void *param, *grad, *state[2];
    const float *steps;  /* so far */
    double lr_scale, weight_decay;
    int64_t count;
    int64_t first_block; /* of this tensor; ascending */
    int64_t packed;      /* all addresses are multiples of 16 */
} lg_multi_tensor;

enum { LG_MULTI_TENSORS = 48, LG_MULTI_CHUNK = 4096 /* elements a block */ };

typedef struct lg_multi_pass {
    int dtype, rule, count;
    float limit_f32;
    int64_t blocks;
    const double *lr;      /* steps */
    const double *norm;    /* SCALE, and steps: NULL, or nothing is done if it is not finite */
    const float *found;    /* steps: NULL, or nothing is done if it is not 0 */
    const float *scale;    /* UNSCALE: NULL for 1 */
    float *overflow;       /* UNSCALE: NULL if nobody asks */
    double *partial;       /* SQUARES: three sums a block (cuda_multi.cu) */
    double limit;          /* SCALE, CLAMP, UNSCALE */
    double momentum, dampening, beta1, beta2, eps;
    int decoupled, nesterov;
    lg_multi_tensor tensor[LG_MULTI_TENSORS];
} lg_multi_pass;

cudaError_t lg_cuda_launch_multi_pass(const lg_multi_pass *pass, cudaStream_t stream);

/* ---- what comes after the passes */

/* *norm from the sums of all blocks. */
cudaError_t lg_cuda_launch_multi_norm(const double *partial, int64_t blocks, double *norm, cudaStream_t stream);

enum { LG_MULTI_STEPS = 256 };

typedef struct lg_multi_counts {
    int64_t count;
    const double *norm; /* NULL: without */
    const float *found; /* likewise */
    double *skip;       /* becomes 1 if the step was left out, else 0 */
    lg_cuda_trouble *trouble;
    float *steps[LG_MULTI_STEPS];
} lg_multi_counts;

/* Counts a step of each; or none if *found is not 0, or if *norm is not finite, which is noted as trouble. */
cudaError_t lg_cuda_launch_multi_count(const lg_multi_counts *counts, cudaStream_t stream);

/* ---- numbers that change from step to step, by one thread */

/* Unless *skip: *position += 1, *factor = the schedule's there. */
cudaError_t lg_cuda_launch_schedule(const lg_sched_rule *rule, const double *skip, double *position, double *factor,
                                    cudaStream_t stream);
/* Advances `state` by whether any of found[n] is not 0, and sets those to 0. `most` skips in a row are trouble. */
cudaError_t lg_cuda_launch_rescale(const lg_scaler_rule *rule, float *state, float *found, int64_t n, int64_t most,
                                   lg_cuda_trouble *trouble, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
