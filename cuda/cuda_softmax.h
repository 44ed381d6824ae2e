/* Launchers of softmax and log_softmax (cuda_softmax.cu), for cuda_softmax.c. */
#ifndef LG_CUDA_SOFTMAX_H
#define LG_CUDA_SOFTMAX_H

#include <cuda_runtime_api.h>
#include "cuda/fold.h"
#include "cuda/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operands: the result (y or gx), then x (or y), then g. */
typedef struct lg_softmax_work {
    int dtype, logarithm;
    lg_fold fold;          /* groups are rows */
    lg_geometry rows;      /* where they begin */
    int64_t step[3];       /* along them */
    void *result;
    const void *x, *g;
} lg_softmax_work;

cudaError_t lg_cuda_launch_softmax(const lg_softmax_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_softmax_gradient(const lg_softmax_work *w, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
