/* Folding many elements into one, in an order that depends on shapes alone: who of a block works on which
 * group of elements, and how the threads of a group put their parts together. */
#ifndef LG_CUDA_FOLD_CUH
#define LG_CUDA_FOLD_CUH

#include "cuda/fold.h"
#include "cuda/kernel.cuh"

/* This thread's share: elements from, from + step, ... below `to` of a group. */
struct lg_share {
    int64_t group, slice, from, to, step;
    bool active;     /* the group exists */
    bool first;      /* of its group's threads: the one that writes */
};

__device__ __forceinline__ int lg_fold_thread(const lg_fold &f)
{
    return f.columns ? threadIdx.x / LG_WARP : threadIdx.x % f.threads;
}

__device__ __forceinline__ lg_share lg_share_of(const lg_fold &f, int64_t unit)
{
    const int thread = lg_fold_thread(f), local = f.columns ? threadIdx.x % LG_WARP : threadIdx.x / f.threads;
    lg_share s;
    s.slice = unit % f.slices;
    s.group = unit / f.slices * f.groups_a_block + local;
    s.active = s.group < f.groups;
    s.first = s.active && thread == 0;
    s.step = f.threads;
    const int64_t size = f.count / f.slices, rest = f.count % f.slices;
    const int64_t begin = size * s.slice + (s.slice < rest ? s.slice : rest);
    s.to = s.active ? begin + size + (s.slice < rest ? 1 : 0) : 0;
    s.from = begin + thread;
    return s;
}

/* The threads of each group merge their states; thread 0 has the result. Every thread of the block calls
 * it; `shared` has room for the block, and may be used again after it. */
template <class Merge, class State> __device__ __forceinline__ State lg_fold_merge(const lg_fold &f, State state, State *shared)
{
    if (f.threads == 1) return state;
    const int thread = lg_fold_thread(f), stride = f.columns ? LG_WARP : 1;
    shared[threadIdx.x] = state;
    for (int d = f.threads / 2; d > 0; d /= 2) {
        __syncthreads();
        if (thread < d) Merge::merge(shared[threadIdx.x], shared[threadIdx.x + d * stride]);
    }
    __syncthreads();
    state = shared[threadIdx.x - thread * stride];
    __syncthreads();
    return state; /* in every thread of the group */
}

struct lg_add {
    template <class R> static __device__ __forceinline__ void merge(R &into, const R &other) { into += other; }
};

struct lg_most {
    template <class R> static __device__ __forceinline__ void merge(R &into, const R &other)
    {
        if (other > into || other != other) into = other;
    }
};

static inline dim3 lg_fold_grid(const lg_fold &f)
{
    return dim3(lg_blocks((f.groups + f.groups_a_block - 1) / f.groups_a_block * f.slices, 1));
}

#define LG_EACH_UNIT(unit, f)                                                                                    \
    for (int64_t unit = blockIdx.x; unit < ((f).groups + (f).groups_a_block - 1) / (f).groups_a_block * (f).slices; \
         unit += gridDim.x)

#endif
