/* softmax and log_softmax along an axis, forward and backward. A row is read once from memory and again from
 * the caches. Launched by cuda_softmax.c. */
#include "cuda/cuda_softmax.h"
#include "cuda/fold.cuh"

enum { THREADS = LG_BLOCK_MAX };

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float logarithm_of(float x) { return logf(x); }
__device__ __forceinline__ double logarithm_of(double x) { return log(x); }

/* About 10 FLOPs and 2 element sizes an element. A row of only -inf has no largest element to subtract. */
template <class T, bool LOGARITHM> __global__ void softmax(lg_softmax_work w)
{
    using R = lg_real<T>;
    LG_SHARED(R, shared, [THREADS]);
    LG_EACH_UNIT(unit, w.fold)
    {
        const lg_share mine = lg_share_of(w.fold, unit);
        const int64_t row = mine.active ? mine.group : 0;
        const T *x = static_cast<const T *>(w.x) + lg_offset(w.rows, 1, row);
        T *y = static_cast<T *>(w.result) + lg_offset(w.rows, 0, row);
        R top = -R(INFINITY), sum = 0;
        for (int64_t j = mine.from; j < mine.to; j += mine.step) lg_most::merge(top, R(lg_load(x[j * w.step[1]])));
        top = lg_fold_merge<lg_most>(w.fold, top, shared);
        const bool empty = top == -R(INFINITY);
        for (int64_t j = mine.from; j < mine.to; j += mine.step) sum += empty ? R(0) : exponential(lg_load(x[j * w.step[1]]) - top);
        sum = lg_fold_merge<lg_add>(w.fold, sum, shared);
        const R less = top + logarithm_of(sum);
        for (int64_t j = mine.from; j < mine.to; j += mine.step) {
            const R v = lg_load(x[j * w.step[1]]);
            R out;
            if constexpr (LOGARITHM)
                out = empty ? -R(INFINITY) : v - less;
            else
                out = empty ? R(0) : exponential(v - top) / sum;
            y[j * w.step[0]] = lg_store<T>(out);
        }
    }
}

/* gx = y (g - sum g y), or g - e^y sum g: 4 FLOPs and 3 element sizes an element. */
template <class T, bool LOGARITHM> __global__ void softmax_gradient(lg_softmax_work w)
{
    using R = lg_real<T>;
    LG_SHARED(R, shared, [THREADS]);
    LG_EACH_UNIT(unit, w.fold)
    {
        const lg_share mine = lg_share_of(w.fold, unit);
        const int64_t row = mine.active ? mine.group : 0;
        const T *y = static_cast<const T *>(w.x) + lg_offset(w.rows, 1, row);
        const T *g = static_cast<const T *>(w.g) + lg_offset(w.rows, 2, row);
        T *gx = static_cast<T *>(w.result) + lg_offset(w.rows, 0, row);
        R sum = 0;
        for (int64_t j = mine.from; j < mine.to; j += mine.step)
            sum += lg_load(g[j * w.step[2]]) * (LOGARITHM ? R(1) : R(lg_load(y[j * w.step[1]])));
        sum = lg_fold_merge<lg_add>(w.fold, sum, shared);
        for (int64_t j = mine.from; j < mine.to; j += mine.step) {
            const R v = lg_load(y[j * w.step[1]]), d = lg_load(g[j * w.step[2]]);
            gx[j * w.step[0]] = lg_store<T>(LOGARITHM ? d - exponential(v) * sum : v * (d - sum));
        }
    }
}

cudaError_t lg_cuda_launch_softmax(const lg_softmax_work *w, cudaStream_t stream)
{
    const dim3 grid = lg_fold_grid(w->fold), block(lg_fold_block(&w->fold));
    if (w->logarithm) LG_FOR_FLOATS(w->dtype, return LG_LAUNCH((softmax<T, true>), grid, block, 0, stream, *w));
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH((softmax<T, false>), grid, block, 0, stream, *w));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_softmax_gradient(const lg_softmax_work *w, cudaStream_t stream)
{
    const dim3 grid = lg_fold_grid(w->fold), block(lg_fold_block(&w->fold));
    if (w->logarithm) LG_FOR_FLOATS(w->dtype, return LG_LAUNCH((softmax_gradient<T, true>), grid, block, 0, stream, *w));
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH((softmax_gradient<T, false>), grid, block, 0, stream, *w));
    return cudaSuccess;
}
