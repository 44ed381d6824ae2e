/* Launchers of pooling (cuda_pool.cu), for cuda_pool.c. */
#ifndef LG_CUDA_POOL_H
#define LG_CUDA_POOL_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lg_pool_work {
    int dtype;
    int64_t n, c, size[2], out[2];           /* x [n, c, size], y [n, c, out] */
    int64_t kernel[2], stride[2], padding[2];
    int adaptive, include_padding;
    int channels_last;                       /* of what is written: the order of threads */
    int64_t x_stride[4], y_stride[4], g_stride[4], gx_stride[4];
    const void *x, *y, *g;
    void *result;                            /* y or gx */
} lg_pool_work;

cudaError_t lg_cuda_launch_max_pool(const lg_pool_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_max_pool_gradient(const lg_pool_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_avg_pool(const lg_pool_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_avg_pool_gradient(const lg_pool_work *w, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
