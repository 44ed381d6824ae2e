/* Launchers of dropout (cuda_dropout.cu), for cuda_dropout.c. */
#ifndef LG_CUDA_DROPOUT_H
#define LG_CUDA_DROPOUT_H

#include <cuda_runtime_api.h>
#include "cuda/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operands y, mask, x (or gx, mask, g). The forward's geometry is row-major. */
typedef struct lg_dropout_work {
    int dtype;
    lg_geometry g;
    const void *x;
    void *y;
    unsigned char *mask;
    unsigned long long seed, stream, first, threshold; /* core/rng.h, lg_dropout_threshold */
    double scale;
} lg_dropout_work;

cudaError_t lg_cuda_launch_dropout(const lg_dropout_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_dropout_gradient(const lg_dropout_work *w, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
