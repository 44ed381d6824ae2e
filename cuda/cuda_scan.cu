/* Running sums along an axis. Launched by cuda_reduce.c. */
#include "cuda/cuda_reduce.h"
#include "cuda/kernel.cuh"

enum { THREADS = LG_BLOCK_MAX };

template <class T, class A> __device__ __forceinline__ auto stored(A v)
{
    if constexpr (std::is_same<A, int64_t>::value)
        return v;
    else
        return lg_store<T>(v);
}

/* A thread a row: reads and writes whole lines where rows are neighbours. 1 FLOP an element. */
template <class T, class A, class Y> __global__ void scan_columns(lg_scan_work w)
{
    const int64_t rows = w.outer * w.inner;
    for (int64_t row = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; row < rows; row += (int64_t)gridDim.x * blockDim.x) {
        const int64_t start = row / w.inner * w.n * w.inner + row % w.inner;
        A sum = 0;
        for (int64_t j = 0; j < w.n; ++j) {
            const int64_t i = start + (w.reverse ? w.n - 1 - j : j) * w.inner;
            sum += static_cast<A>(lg_load(static_cast<const T *>(w.x)[i]));
            static_cast<Y *>(w.y)[i] = stored<T, A>(sum);
        }
    }
}

/* A block a row of dense elements: a tile at a time, summed in log2 steps, and the sum of the tiles before
 * carried on. 9 FLOPs an element. */
template <class T, class A, class Y> __global__ void scan_rows(lg_scan_work w)
{
    LG_SHARED(A, part, [THREADS]);
    const int t = threadIdx.x;
    for (int64_t row = blockIdx.x; row < w.outer; row += gridDim.x) {
        A carry = 0;
        for (int64_t j0 = 0; j0 < w.n; j0 += THREADS) {
            const int64_t j = j0 + t, i = row * w.n + (w.reverse ? w.n - 1 - j : j);
            part[t] = j < w.n ? static_cast<A>(lg_load(static_cast<const T *>(w.x)[i])) : A(0);
            for (int d = 1; d < THREADS; d *= 2) {
                __syncthreads();
                const A before = t >= d ? part[t - d] : A(0);
                __syncthreads();
                part[t] += before;
            }
            __syncthreads();
            if (j < w.n) static_cast<Y *>(w.y)[i] = stored<T, A>(carry + part[t]);
            carry += part[THREADS - 1];
            __syncthreads();
        }
    }
}

template <class T, class A, class Y> static cudaError_t launch(const lg_scan_work *w, cudaStream_t stream)
{
    enum { LONG_ROW = 64 };
    if (w->inner == 1 && w->n >= LONG_ROW)
        return LG_LAUNCH((scan_rows<T, A, Y>), dim3(lg_blocks(w->outer, 1)), dim3(THREADS), 0, stream, *w);
    return LG_LAUNCH((scan_columns<T, A, Y>), dim3(lg_blocks(w->outer * w->inner, THREADS)), dim3(THREADS), 0, stream, *w);
}

cudaError_t lg_cuda_launch_scan(const lg_scan_work *w, cudaStream_t stream)
{
    switch (w->dtype) {
    case LG_I64: return launch<int64_t, int64_t, int64_t>(w, stream);
    case LG_I32: return launch<int32_t, int64_t, int64_t>(w, stream);
    case LG_U8: return launch<unsigned char, int64_t, int64_t>(w, stream);
    case LG_BOOL: return launch<lg_bool, int64_t, int64_t>(w, stream);
    default: break;
    }
    LG_FOR_FLOATS(w->dtype, return (launch<T, lg_real<T>, T>(w, stream)));
    return cudaSuccess;
}
