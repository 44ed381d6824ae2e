/* Launchers of ranges and random numbers (cuda_random.cu), for cuda_random.c. */
#ifndef LG_CUDA_RANDOM_H
#define LG_CUDA_RANDOM_H

#include <cuda_runtime_api.h>
#include "cuda/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lg_random_work {
    int dtype;
    lg_geometry g;                         /* row-major: element i takes number i of the stream */
    void *to;
    unsigned long long seed, stream, first; /* core/rng.h */
    double a, b;                           /* uniform in [a, b); normal: mean and deviation; arange: start, step */
    long long low;                         /* randint */
    unsigned long long range;
} lg_random_work;

cudaError_t lg_cuda_launch_arange(const lg_random_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_uniform(const lg_random_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_normal(const lg_random_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_randint(const lg_random_work *w, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
