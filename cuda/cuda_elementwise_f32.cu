/* Elementwise kernels of f32. */
#include "cuda/map.cuh"
#define real float
#define LG_SUFFIX f32
#define LG_LIBM(fn) fn##f
#include "cuda/map_rows.cuh"

cudaError_t lg_cuda_launch_map_f32(const lg_map_work *w, cudaStream_t stream)
{
    return lg_map_f32<real>(w, stream);
}
