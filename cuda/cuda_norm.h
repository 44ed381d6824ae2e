/* Launchers of batch and layer normalisation (cuda_norm.cu), for cuda_norm.c. */
#ifndef LG_CUDA_NORM_H
#define LG_CUDA_NORM_H

#include <cuda_runtime_api.h>
#include <stdint.h>
#include "cuda/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One number a group (batch norm) or an element of a row (layer norm); data NULL: absent. */
typedef struct lg_norm_param {
    void *data;
    int64_t stride;
    int wide; /* in the dtype of the statistics; else in x's */
} lg_norm_param;

enum { LG_NORM_X, LG_NORM_Y, LG_NORM_G }; /* operands: x, y or gx, g */

typedef struct lg_norm_work {
    int dtype;                 /* of x, y and g. Statistics are f32, f64 for f64 */
    int64_t groups, count;     /* elements that share a mean: how many sets, how many in each */
    int64_t group_stride[3];
    lg_geometry within;        /* a group's elements */
    int columns;               /* groups lie side by side: threads go along them */
    int64_t slices;            /* of a group, for partial sums: a function of the shape */
    const void *x, *g;
    void *y;
    lg_norm_param weight, bias, running_mean, running_var;
    void *mean, *invstd;       /* [groups], dense */
    void *gweight, *gbias;     /* dense */
    void *partial;             /* [groups or columns][slices][2] of the statistics' dtype */
    int training;
    double momentum, eps;
} lg_norm_work;

/* (x) -> mean, invstd, running statistics; and y from them. */
cudaError_t lg_cuda_launch_batch_statistics(const lg_norm_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_batch_apply(const lg_norm_work *w, cudaStream_t stream);
/* (g, x, mean, invstd) -> gweight, gbias; and gx from them. */
cudaError_t lg_cuda_launch_batch_sums(const lg_norm_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_batch_gradient(const lg_norm_work *w, cudaStream_t stream);
/* Rows [groups, count], dense. */
cudaError_t lg_cuda_launch_layer_forward(const lg_norm_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_layer_gradient(const lg_norm_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_layer_sums(const lg_norm_work *w, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
