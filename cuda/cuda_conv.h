/* Launchers of the kernels around cuDNN's convolutions (cuda_conv.cu), for cuda_conv.c. */
#ifndef LG_CUDA_CONV_H
#define LG_CUDA_CONV_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x [n, c, h, w], y [n, k, ho, wo], both dense and channels-last; a weight [k, cg, r, s] with strides. */
typedef struct lg_conv_sizes {
    int64_t n, c, h, w, k, cg, r, s, kg, ho, wo; /* cg = c / groups, kg = k / groups */
    int64_t stride[2], before[2], dilation[2];
    int64_t w_stride[4];
} lg_conv_sizes;

/* A 4-D copy: elements of 2, 4 or 8 bytes. */
typedef struct lg_conv_pack {
    int64_t size[4], from_stride[4], to_stride[4];
    int element;
} lg_conv_pack;

cudaError_t lg_cuda_launch_conv_pack(const lg_conv_pack *p, const void *from, void *to, cudaStream_t stream);
/* y [rows, k] += bias [k]. */
cudaError_t lg_cuda_launch_conv_bias(int dtype, void *y, const void *bias, int64_t rows, int64_t k, cudaStream_t stream);
/* The convolution itself where cuDNN has no engine for it, as in f64. */
cudaError_t lg_cuda_launch_conv_forward(int dtype, const lg_conv_sizes *g, const void *x, const void *w, void *y,
                                        cudaStream_t stream);
cudaError_t lg_cuda_launch_conv_input(int dtype, const lg_conv_sizes *g, const void *gy, const void *w, void *gx,
                                      cudaStream_t stream);
cudaError_t lg_cuda_launch_conv_weight(int dtype, const lg_conv_sizes *g, const void *gy, const void *x, void *gw,
                                       cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
