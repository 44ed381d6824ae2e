/* Copies between layouts, conversions between dtypes, fills. No FLOPs: an element is read and written once.
 * Launched by cuda_copy.c. */
#include "cuda/cuda_copy.h"
#include "cuda/convert.cuh"
#include "cuda/kernel.cuh"

enum { THREADS = LG_BLOCK_MAX, TILE = 32 };

/* ---- as they are */

template <class T> __global__ void move(lg_geometry g, T *to, const T *from)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < g.numel; i += (int64_t)gridDim.x * blockDim.x)
        to[lg_offset(g, 0, i)] = from[lg_offset(g, 1, i)];
}

/* A tile of axis 0 (along which the target is dense) by axis `across` (along which the source is): both are
 * read and written in whole lines. Tiles of the other axes follow each other. */
template <class T> __global__ void transpose(lg_geometry g, int across, int64_t tiles, T *to, const T *from)
{
    LG_SHARED(T, tile, [TILE][TILE + 1]);
    const int lane = threadIdx.x % TILE, row = threadIdx.x / TILE;
    const int64_t wide = (g.size[0] + TILE - 1) / TILE, high = (g.size[across] + TILE - 1) / TILE;
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int64_t x0 = t % wide * TILE, y0 = t / wide % high * TILE;
        int64_t rest = t / (wide * high), to_at = 0, from_at = 0;
        for (int axis = 1; axis < g.rank; ++axis) {
            if (axis == across) continue;
            to_at += rest % g.size[axis] * g.stride[0][axis];
            from_at += rest % g.size[axis] * g.stride[1][axis];
            rest /= g.size[axis];
        }
        for (int k = row; k < TILE; k += THREADS / TILE)
            if (x0 + k < g.size[0] && y0 + lane < g.size[across])
                tile[k][lane] = from[from_at + (x0 + k) * g.stride[1][0] + (y0 + lane) * g.stride[1][across]];
        __syncthreads();
        for (int k = row; k < TILE; k += THREADS / TILE)
            if (x0 + lane < g.size[0] && y0 + k < g.size[across])
                to[to_at + (x0 + lane) * g.stride[0][0] + (y0 + k) * g.stride[0][across]] = tile[lane][k];
        __syncthreads();
    }
}

template <class T> __global__ void fill(lg_geometry g, T *to, T value)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < g.numel; i += (int64_t)gridDim.x * blockDim.x)
        to[lg_offset(g, 0, i)] = value;
}

static dim3 grid_for(int64_t n) { return dim3(lg_blocks(n, THREADS)); }

/* Runs `...` with T an integer of so many bytes. */
#define FOR_SIZE(element, ...)                              \
    switch (element) {                                      \
    case 1: { using T = uint8_t; __VA_ARGS__; } break;      \
    case 2: { using T = uint16_t; __VA_ARGS__; } break;     \
    case 4: { using T = uint32_t; __VA_ARGS__; } break;     \
    case 8: { using T = uint64_t; __VA_ARGS__; } break;     \
    default: return cudaErrorInvalidValue;                  \
    }

cudaError_t lg_cuda_launch_move(int element, const lg_geometry *g, void *to, const void *from, cudaStream_t stream)
{
    FOR_SIZE(element, return LG_LAUNCH(move<T>, grid_for(g->numel), lg_threads(g->numel), 0, stream, *g, static_cast<T *>(to),
                                       static_cast<const T *>(from)));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_transpose(int element, const lg_geometry *g, int across, void *to, const void *from,
                                     cudaStream_t stream)
{
    int64_t tiles = 1;
    for (int axis = 0; axis < g->rank; ++axis)
        tiles *= axis == 0 || axis == across ? (g->size[axis] + TILE - 1) / TILE : g->size[axis];
    FOR_SIZE(element, return LG_LAUNCH(transpose<T>, dim3(lg_blocks(tiles, 1)), dim3(THREADS), 0, stream, *g, across,
                                       tiles, static_cast<T *>(to), static_cast<const T *>(from)));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_fill(int element, const lg_geometry *g, void *to, unsigned long long bits, cudaStream_t stream)
{
    FOR_SIZE(element, return LG_LAUNCH(fill<T>, grid_for(g->numel), lg_threads(g->numel), 0, stream, *g, static_cast<T *>(to),
                                       static_cast<T>(bits)));
    return cudaSuccess;
}

/* ---- conversions */

template <class To, class From> __device__ __forceinline__ To converted(const void *from, int64_t at)
{
    return lg_converter<To, lg_real<From>>::of(lg_load(static_cast<const From *>(from)[at]));
}

/* One kernel for each target: what it reads is a branch that all threads take alike. */
template <class To> __global__ void convert(lg_geometry g, To *to, const void *from, int from_dtype)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < g.numel; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t into = lg_offset(g, 0, i), at = lg_offset(g, 1, i);
        switch (from_dtype) {
        case LG_F32: to[into] = converted<To, float>(from, at); break;
        case LG_F64: to[into] = converted<To, double>(from, at); break;
        case LG_F16: to[into] = converted<To, __half>(from, at); break;
        case LG_BF16: to[into] = converted<To, __nv_bfloat16>(from, at); break;
        case LG_I64: to[into] = converted<To, int64_t>(from, at); break;
        case LG_I32: to[into] = converted<To, int32_t>(from, at); break;
        case LG_U8: to[into] = converted<To, unsigned char>(from, at); break;
        case LG_BOOL: to[into] = converted<To, lg_bool>(from, at); break;
        }
    }
}

/* Dense floats, four at a time: 8 or 16 bytes of each. */
template <class To, class From> __global__ void convert_dense(int64_t fours, To *to, const From *from)
{
    struct alignas(4 * sizeof(From)) from_pack { From v[4]; };
    struct alignas(4 * sizeof(To)) to_pack { To v[4]; };
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < fours; i += (int64_t)gridDim.x * blockDim.x) {
        const from_pack in = reinterpret_cast<const from_pack *>(from)[i];
        to_pack out;
        for (int k = 0; k < 4; ++k) out.v[k] = lg_converter<To, lg_real<From>>::of(lg_load(in.v[k]));
        reinterpret_cast<to_pack *>(to)[i] = out;
    }
}

template <class To, class From>
static cudaError_t launch_dense(const lg_geometry *g, void *to, const void *from, cudaStream_t stream)
{
    return LG_LAUNCH((convert_dense<To, From>), grid_for(g->numel / 4), lg_threads(g->numel / 4), 0, stream, g->numel / 4,
                     static_cast<To *>(to), static_cast<const From *>(from));
}

/* Between f32 and halves, as autocast does. */
static bool is_common(int to_dtype, int from_dtype)
{
    const bool to_half = to_dtype == LG_F16 || to_dtype == LG_BF16, from_half = from_dtype == LG_F16 || from_dtype == LG_BF16;
    return (to_half && from_dtype == LG_F32) || (to_dtype == LG_F32 && from_half);
}

static cudaError_t launch_common(int to_dtype, int from_dtype, const lg_geometry *g, void *to, const void *from,
                                 cudaStream_t stream)
{
    if (to_dtype == LG_F16) return launch_dense<__half, float>(g, to, from, stream);
    if (to_dtype == LG_BF16) return launch_dense<__nv_bfloat16, float>(g, to, from, stream);
    return from_dtype == LG_F16 ? launch_dense<float, __half>(g, to, from, stream)
                                : launch_dense<float, __nv_bfloat16>(g, to, from, stream);
}

cudaError_t lg_cuda_launch_convert(int to_dtype, int from_dtype, const lg_geometry *g, void *to, const void *from,
                                   cudaStream_t stream)
{
    const bool dense = g->flat && g->stride[0][0] == 1 && g->stride[1][0] == 1 && g->numel % 4 == 0 &&
                       (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0;
    if (dense && is_common(to_dtype, from_dtype)) return launch_common(to_dtype, from_dtype, g, to, from, stream);
    LG_FOR_ALL(to_dtype, return LG_LAUNCH(convert<T>, grid_for(g->numel), lg_threads(g->numel), 0, stream, *g,
                                          static_cast<T *>(to), from, from_dtype));
    return cudaSuccess;
}
