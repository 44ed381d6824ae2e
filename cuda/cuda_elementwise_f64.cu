/* Elementwise kernels of f64. */
#include "cuda/map.cuh"
#define real double
#define LG_SUFFIX f64
#define LG_LIBM(fn) fn
#include "cuda/map_rows.cuh"

cudaError_t lg_cuda_launch_map_f64(const lg_map_work *w, cudaStream_t stream)
{
    return lg_map_f64<real>(w, stream);
}
