/* The walks of elementwise kernels: a thread takes four neighbouring elements (two of 8 bytes) of each operand,
 * at once where they are dense, computes, and puts four results. Bytes: those of the operands, each once. */
#ifndef LG_CUDA_MAP_CUH
#define LG_CUDA_MAP_CUH

#include "core/op_id.h"
#include "cuda/cuda_elementwise.h"
#include "cuda/kernel.cuh"

template <class T, int N> struct alignas(sizeof(T) * N) lg_few { T v[N]; };

template <class T> struct lg_map_width { static constexpr int value = sizeof(T) == 8 ? 2 : 4; };

/* Elements i .. i + N - 1 of an operand, as far as there are any. */
template <class T, int N>
__device__ __forceinline__ void lg_map_load(lg_real<T> (&v)[N], const lg_map_work &w, int operand, int64_t i)
{
    const T *from = static_cast<const T *>(w.in[operand - 1]);
    if ((w.dense >> operand & 1) && i + N <= w.g.numel) {
        const lg_few<T, N> few = *reinterpret_cast<const lg_few<T, N> *>(from + i);
        for (int k = 0; k < N; ++k) v[k] = lg_load(few.v[k]);
    } else {
        for (int k = 0; k < N; ++k) v[k] = i + k < w.g.numel ? lg_load(from[lg_offset(w.g, operand, i + k)]) : lg_real<T>(1);
    }
}

template <class T, int N>
__device__ __forceinline__ void lg_map_store(const lg_few<T, N> &few, const lg_map_work &w, int64_t i)
{
    T *to = static_cast<T *>(w.out);
    if ((w.dense & 1) && i + N <= w.g.numel) {
        *reinterpret_cast<lg_few<T, N> *>(to + i) = few;
    } else {
        for (int k = 0; k < N && i + k < w.g.numel; ++k) to[lg_offset(w.g, 0, i + k)] = few.v[k];
    }
}

#define LG_MAP_LOOP(i, N)                                                                              \
    for (int64_t i = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * N; i < w.g.numel;              \
         i += (int64_t)gridDim.x * blockDim.x * N)

template <class F, class T, class Out, class P> __global__ void lg_map_1(lg_map_work w, P p, P q)
{
    constexpr int N = lg_map_width<T>::value;
    LG_MAP_LOOP(i, N)
    {
        lg_real<T> a[N];
        lg_few<Out, N> out;
        lg_map_load<T>(a, w, 1, i);
        for (int k = 0; k < N; ++k) out.v[k] = lg_store<Out>(F::of(a[k], p, q));
        lg_map_store(out, w, i);
    }
}

template <class F, class T, class Out, class P> __global__ void lg_map_2(lg_map_work w, P p, P q)
{
    constexpr int N = lg_map_width<T>::value;
    LG_MAP_LOOP(i, N)
    {
        lg_real<T> a[N], b[N];
        lg_few<Out, N> out;
        lg_map_load<T>(a, w, 1, i);
        lg_map_load<T>(b, w, 2, i);
        for (int k = 0; k < N; ++k) out.v[k] = lg_store<Out>(F::of(a[k], b[k], p, q));
        lg_map_store(out, w, i);
    }
}

/* The first input may be of another type. */
template <class F, class A, class T, class P> __global__ void lg_map_3(lg_map_work w, P p, P q)
{
    constexpr int N = lg_map_width<T>::value;
    LG_MAP_LOOP(i, N)
    {
        lg_real<A> a[N];
        lg_real<T> b[N], c[N];
        lg_few<T, N> out;
        lg_map_load<A>(a, w, 1, i);
        lg_map_load<T>(b, w, 2, i);
        lg_map_load<T>(c, w, 3, i);
        for (int k = 0; k < N; ++k) out.v[k] = lg_store<T>(F::of(a[k], b[k], c[k], p, q));
        lg_map_store(out, w, i);
    }
}

template <class T> static inline dim3 lg_map_grid(const lg_map_work *w)
{
    return dim3(lg_blocks(w->g.numel, LG_BLOCK_MAX * lg_map_width<T>::value));
}

#endif
