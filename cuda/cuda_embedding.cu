/* Rows of a table by index, and the sums of gradients into those rows. Launched by cuda_embedding.c. */
#include "cuda/cuda_embedding.h"
#include "cuda/kernel.cuh"

enum { THREADS = LG_BLOCK_MAX, WARPS = THREADS / LG_WARP };

__device__ __forceinline__ int64_t index_at(const lg_embedding_work &w, int64_t place)
{
    const int64_t at = lg_offset(w.places, 0, place);
    return w.wide_index ? static_cast<const int64_t *>(w.index)[at] : static_cast<const int32_t *>(w.index)[at];
}

/* A warp a row: 2 element sizes an element. An index that is none gives a row of zeros. */
template <class T> __global__ void embedding(lg_embedding_work w)
{
    const int lane = threadIdx.x % LG_WARP;
    const int64_t step = (int64_t)gridDim.x * WARPS;
    for (int64_t i = blockIdx.x * (int64_t)WARPS + threadIdx.x / LG_WARP; i < w.places.numel; i += step) {
        const int64_t index = index_at(w, i);
        const bool there = index >= 0 && index < w.count;
        if (!there && lane == 0) lg_note_trouble(w.trouble, LG_TROUBLE_INDEX, index, w.count, i);
        const T *row = static_cast<const T *>(w.from) + (there ? index : 0) * w.row;
        T *to = static_cast<T *>(w.to) + i * w.dim;
        for (int64_t j = lane; j < w.dim; j += LG_WARP) to[j] = there ? row[j * w.column] : lg_store<T>(lg_real<T>(0));
    }
}

/* A warp a position: the first that has an index adds up all that have it, in their order. Reads the indices
 * once for each position (they stay in the caches), and the gradients once. */
template <class T> __global__ void embedding_gradient(lg_embedding_work w)
{
    using R = lg_real<T>;
    const int lane = threadIdx.x % LG_WARP;
    const int64_t n = w.places.numel, step = (int64_t)gridDim.x * WARPS;
    for (int64_t i = blockIdx.x * (int64_t)WARPS + threadIdx.x / LG_WARP; i < n; i += step) {
        const int64_t index = index_at(w, i);
        bool first = index >= 0 && index < w.count;
        for (int64_t j = 0; j < i && first; j += LG_WARP)
            first = !__any_sync(0xffffffffu, j + lane < i && index_at(w, j + lane) == index);
        if (!first) continue;
        for (int64_t column = lane; column < (w.dim + LG_WARP - 1) / LG_WARP * LG_WARP; column += LG_WARP) {
            R sum = 0;
            for (int64_t j = i / LG_WARP * LG_WARP; j < n; j += LG_WARP) {
                unsigned same =
                    __ballot_sync(0xffffffffu, j + lane >= i && j + lane < n && index_at(w, j + lane < n ? j + lane : i) == index);
                for (; same != 0; same &= same - 1) {
                    const int64_t place = j + __ffs(static_cast<int>(same)) - 1;
                    if (column < w.dim) sum += lg_load(static_cast<const T *>(w.from)[place * w.dim + column]);
                }
            }
            if (column < w.dim) static_cast<T *>(w.to)[index * w.dim + column] = lg_store<T>(sum);
        }
    }
}

cudaError_t lg_cuda_launch_embedding(const lg_embedding_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH(embedding<T>, dim3(lg_blocks(w->places.numel, WARPS)), dim3(THREADS), 0, stream, *w));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_embedding_gradient(const lg_embedding_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH(embedding_gradient<T>, dim3(lg_blocks(w->places.numel, WARPS)), dim3(THREADS), 0,
                                             stream, *w));
    return cudaSuccess;
}
