/* Elementwise kernels of bf16, computed in f32. */
#include "cuda/map.cuh"
#define real float
#define LG_SUFFIX f32
#define LG_LIBM(fn) fn##f
#include "cuda/map_rows.cuh"

cudaError_t lg_cuda_launch_map_bf16(const lg_map_work *w, cudaStream_t stream)
{
    return lg_map_f32<__nv_bfloat16>(w, stream);
}
