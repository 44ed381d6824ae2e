/* Elementwise kernels of integers, which wrap around, and of bool. */
#include "cuda/map.cuh"
/* Formulas ask whether x < 0, which u8 never is. */
#ifdef __CUDACC__
#pragma nv_diag_suppress 186
#else
#pragma GCC diagnostic ignored "-Wtype-limits"
#endif
#define LG_WHOLE
#define real int64_t
#define LG_SUFFIX i64
#include "cuda/map_rows.cuh"
#undef real
#undef LG_SUFFIX
#define real int32_t
#define LG_SUFFIX i32
#include "cuda/map_rows.cuh"
#undef real
#undef LG_SUFFIX
#define real unsigned char
#define LG_SUFFIX u8
#include "cuda/map_rows.cuh"

cudaError_t lg_cuda_launch_map_whole(const lg_map_work *w, cudaStream_t stream)
{
    switch (w->dtype) {
    case LG_I64: return lg_map_i64<int64_t>(w, stream);
    case LG_I32: return lg_map_i32<int32_t>(w, stream);
    case LG_U8: return lg_map_u8<unsigned char>(w, stream);
    case LG_BOOL: return lg_map_u8<lg_bool>(w, stream);
    default: return cudaErrorNotSupported;
    }
}
