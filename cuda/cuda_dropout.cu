/* Dropout: a thread draws one block of Philox for four neighbours in row-major order, so masks are the CPU's.
 * Launched by cuda_dropout.c. */
#include "cuda/cuda_dropout.h"
#include "cuda/kernel.cuh"
#include "core/rng.h"

enum { THREADS = LG_BLOCK_MAX };

/* 1 FLOP, about 25 integer operations, 2 element sizes and a byte an element. */
template <class T> __global__ void dropout(lg_dropout_work w, lg_real<T> scale)
{
    using R = lg_real<T>;
    const T *x = static_cast<const T *>(w.x);
    T *y = static_cast<T *>(w.y);
    const int64_t blocks = (w.g.numel + 3) / 4;
    for (int64_t b = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; b < blocks; b += (int64_t)gridDim.x * blockDim.x) {
        const lg_philox numbers = lg_philox_block(w.seed, w.stream, w.first + static_cast<uint64_t>(b));
        for (int k = 0; k < 4 && 4 * b + k < w.g.numel; ++k) {
            const int64_t i = 4 * b + k;
            const bool keep = numbers.v[k] >= w.threshold;
            y[lg_offset(w.g, 0, i)] = lg_store<T>(keep ? lg_load(x[lg_offset(w.g, 2, i)]) * scale : R(0));
            w.mask[lg_offset(w.g, 1, i)] = keep;
        }
    }
}

/* 1 FLOP, 2 element sizes and a byte an element. */
template <class T> __global__ void dropout_gradient(lg_dropout_work w, lg_real<T> scale)
{
    using R = lg_real<T>;
    const T *g = static_cast<const T *>(w.x);
    T *gx = static_cast<T *>(w.y);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < w.g.numel; i += (int64_t)gridDim.x * blockDim.x)
        gx[lg_offset(w.g, 0, i)] =
            lg_store<T>(w.mask[lg_offset(w.g, 1, i)] != 0 ? lg_load(g[lg_offset(w.g, 2, i)]) * scale : R(0));
}

cudaError_t lg_cuda_launch_dropout(const lg_dropout_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH(dropout<T>, dim3(lg_blocks((w->g.numel + 3) / 4, THREADS)), dim3(THREADS), 0,
                                             stream, *w, static_cast<lg_real<T>>(w->scale)));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_dropout_gradient(const lg_dropout_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH(dropout_gradient<T>, dim3(lg_blocks(w->g.numel, THREADS)), dim3(THREADS), 0,
                                             stream, *w, static_cast<lg_real<T>>(w->scale)));
    return cudaSuccess;
}
