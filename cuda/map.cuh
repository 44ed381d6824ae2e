/* The walks of elementwise kernels: a thread takes a few neighbouring elements of each operand, at once where
 * they lie densely, computes, and puts as many results. FLOPs: those of the formula; bytes: those of the
 * operands, each once. */
#ifndef LG_CUDA_MAP_CUH
#define LG_CUDA_MAP_CUH

#include "core/op_id.h"
#include "cuda/cuda_elementwise.h"
#include "cuda/kernel.cuh"

template <class T, int N> struct alignas(sizeof(T) * N) lg_few { T v[N]; };

template <class T> struct lg_map_width { static constexpr int value = LG_MAP_WIDTH(sizeof(T)); };

/* Where elements i .. i + count - 1 are: `at` is the first of each operand. */
template <int Operands> struct lg_map_place {
    int count;
    int64_t at[Operands];

    __device__ __forceinline__ lg_map_place(const lg_map_work &w, int64_t i)
    {
        count = w.g.numel - i < w.few ? static_cast<int>(w.g.numel - i) : w.few;
        for (int k = 0; k < Operands; ++k) at[k] = 0;
#pragma unroll 1
        for (int axis = 0; axis < w.g.rank; ++axis) {
            int64_t along = i;
            if (!w.g.flat) {
                i /= w.g.size[axis];
                along -= i * w.g.size[axis];
            }
            for (int k = 0; k < Operands; ++k) at[k] += along * w.g.stride[k][axis];
        }
    }
};

template <class T, int N, int Operands>
__device__ __forceinline__ void lg_map_load(lg_real<T> (&v)[N], const lg_map_work &w, int operand, const lg_map_place<Operands> &p)
{
    const T *from = static_cast<const T *>(w.in[operand - 1]) + p.at[operand];
    if ((w.dense >> operand & 1) && p.count == N) {
        const lg_few<T, N> few = *reinterpret_cast<const lg_few<T, N> *>(from);
        for (int k = 0; k < N; ++k) v[k] = lg_load(few.v[k]);
    } else {
        for (int k = 0; k < N; ++k) v[k] = k < p.count ? lg_load(from[k * w.g.stride[operand][0]]) : lg_real<T>(1);
    }
}

template <class T, int N, int Operands>
__device__ __forceinline__ void lg_map_store(const lg_few<T, N> &few, const lg_map_work &w, const lg_map_place<Operands> &p)
{
    T *to = static_cast<T *>(w.out) + p.at[0];
    if ((w.dense & 1) && p.count == N) {
        *reinterpret_cast<lg_few<T, N> *>(to) = few;
    } else {
        for (int k = 0; k < N; ++k)
            if (k < p.count) to[k * w.g.stride[0][0]] = few.v[k];
    }
}

#define LG_MAP_LOOP(i)                                                                                 \
    for (int64_t i = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * w.few; i < w.g.numel;          \
         i += (int64_t)gridDim.x * blockDim.x * w.few)

template <class F, class T, class Out, class P> __global__ void lg_map_1(lg_map_work w, P p, P q)
{
    constexpr int N = lg_map_width<T>::value;
    LG_MAP_LOOP(i)
    {
        const lg_map_place<2> at(w, i);
        lg_real<T> a[N];
        lg_few<Out, N> out = {};
        lg_map_load<T>(a, w, 1, at);
        for (int k = 0; k < N; ++k)
            if (k < at.count) out.v[k] = lg_store<Out>(F::of(a[k], p, q));
        lg_map_store(out, w, at);
    }
}

template <class F, class T, class Out, class P> __global__ void lg_map_2(lg_map_work w, P p, P q)
{
    constexpr int N = lg_map_width<T>::value;
    LG_MAP_LOOP(i)
    {
        const lg_map_place<3> at(w, i);
        lg_real<T> a[N], b[N];
        lg_few<Out, N> out = {};
        lg_map_load<T>(a, w, 1, at);
        lg_map_load<T>(b, w, 2, at);
        for (int k = 0; k < N; ++k)
            if (k < at.count) out.v[k] = lg_store<Out>(F::of(a[k], b[k], p, q));
        lg_map_store(out, w, at);
    }
}

/* The first input may be of another type. */
template <class F, class A, class T, class P> __global__ void lg_map_3(lg_map_work w, P p, P q)
{
    constexpr int N = lg_map_width<T>::value;
    LG_MAP_LOOP(i)
    {
        const lg_map_place<4> at(w, i);
        lg_real<A> a[N];
        lg_real<T> b[N], c[N];
        lg_few<T, N> out = {};
        lg_map_load<A>(a, w, 1, at);
        lg_map_load<T>(b, w, 2, at);
        lg_map_load<T>(c, w, 3, at);
        for (int k = 0; k < N; ++k)
            if (k < at.count) out.v[k] = lg_store<T>(F::of(a[k], b[k], c[k], p, q));
        lg_map_store(out, w, at);
    }
}

static inline dim3 lg_map_grid(const lg_map_work *w)
{
    return dim3(lg_blocks(w->g.numel, LG_BLOCK_MAX * static_cast<int64_t>(w->few)));
}

static inline dim3 lg_map_block(const lg_map_work *w) { return lg_threads((w->g.numel + w->few - 1) / w->few); }

#endif
