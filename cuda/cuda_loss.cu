/* Losses and their gradients. Sums over rows and elements are taken in a fixed order. Launched by
 * cuda_loss.c. */
#include "cuda/cuda_loss.h"
#include "cuda/fold.cuh"

enum { THREADS = LG_BLOCK_MAX };

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }
__device__ __forceinline__ float log_of_1_and(float x) { return log1pf(x); }
__device__ __forceinline__ double log_of_1_and(double x) { return log1p(x); }

/* ---- cross_entropy */

/* The target of a row, or -1 for one that does not count. */
__device__ __forceinline__ int64_t target_of(const lg_cross_entropy_work &w, int64_t row, bool report)
{
    const int64_t at = row * w.target_stride;
    const int64_t t = w.wide_target ? static_cast<const int64_t *>(w.target)[at] : static_cast<const int32_t *>(w.target)[at];
    if (t == w.ignore_index) return -1;
    if (t >= 0 && t < w.fold.count) return t;
    if (report) lg_note_trouble(w.trouble, LG_TROUBLE_TARGET, t, w.fold.count, row);
    return -1;
}

template <class T> __device__ __forceinline__ lg_real<T> weight_of(const lg_cross_entropy_work &w, int64_t c)
{
    return w.weight == nullptr ? lg_real<T>(1) : lg_real<T>(lg_load(static_cast<const T *>(w.weight)[c * w.weight_stride]));
}

/* lse and the loss of each row: about 10 FLOPs an element, read once from memory and again from the caches. */
template <class T> __global__ void cross_entropy_rows(lg_cross_entropy_work w, lg_real<T> smoothing)
{
    using R = lg_real<T>;
    LG_SHARED(R, shared, [THREADS]);
    LG_EACH_UNIT(unit, w.fold)
    {
        const lg_share mine = lg_share_of(w.fold, unit);
        const int64_t row = mine.active ? mine.group : 0;
        const T *x = static_cast<const T *>(w.x) + row * w.row;
        R top = -R(INFINITY), sum = 0, spread = 0;
        for (int64_t c = mine.from; c < mine.to; c += mine.step) lg_most::merge(top, R(lg_load(x[c * w.column])));
        top = lg_fold_merge<lg_most>(w.fold, top, shared);
        for (int64_t c = mine.from; c < mine.to; c += mine.step) sum += exponential(lg_load(x[c * w.column]) - top);
        sum = lg_fold_merge<lg_add>(w.fold, sum, shared);
        const R lse = top == R(INFINITY) || top == -R(INFINITY) ? top : top + logarithm(sum);
        if (smoothing > R(0)) {
            for (int64_t c = mine.from; c < mine.to; c += mine.step) spread += weight_of<T>(w, c) * (lse - lg_load(x[c * w.column]));
            spread = lg_fold_merge<lg_add>(w.fold, spread, shared);
        }
        if (!mine.first) continue;
        const int64_t target = target_of(w, row, true);
        R loss = 0, weight = 0;
        if (target >= 0) {
            weight = weight_of<T>(w, target);
            loss = weight * (R(1) - smoothing) * (lse - lg_load(x[target * w.column]));
            if (smoothing > R(0)) loss += spread * (smoothing / static_cast<R>(w.fold.count));
        }
        static_cast<R *>(w.lse)[row] = lse;
        static_cast<R *>(w.row_loss)[row] = loss;
        static_cast<R *>(w.row_weight)[row] = weight;
        if (w.reduction == LG_LOSS_EACH) static_cast<T *>(w.loss)[row] = lg_store<T>(loss);
    }
}

/* The sums over rows, by one block. */
template <class T> __global__ void cross_entropy_total(lg_cross_entropy_work w)
{
    using R = lg_real<T>;
    LG_SHARED(R, shared, [LG_WARP]);
    R loss = 0, count = 0;
    for (int64_t row = threadIdx.x; row < w.fold.groups; row += THREADS) {
        loss += static_cast<const R *>(w.row_loss)[row];
        count += static_cast<const R *>(w.row_weight)[row];
    }
    loss = lg_block_sum(loss, shared);
    count = lg_block_sum(count, shared);
    if (threadIdx.x != 0) return;
    *static_cast<R *>(w.count) = count;
    if (w.reduction != LG_LOSS_EACH) *static_cast<T *>(w.loss) = lg_store<T>(w.reduction == LG_LOSS_MEAN ? loss / count : loss);
}

/* g (sum q e^(x - lse) - q): about 6 FLOPs and 2 element sizes an element. */
template <class T> __global__ void cross_entropy_gradient(lg_cross_entropy_work w, lg_real<T> smoothing)
{
    using R = lg_real<T>;
    LG_SHARED(R, shared, [THREADS]);
    const bool summed = w.weight != nullptr && smoothing > R(0);
    LG_EACH_UNIT(unit, w.fold)
    {
        const lg_share mine = lg_share_of(w.fold, unit);
        const int64_t row = mine.active ? mine.group : 0;
        const T *x = static_cast<const T *>(w.x) + row * w.row;
        T *gx = static_cast<T *>(w.gx) + row * w.fold.count;
        const int64_t target = target_of(w, row, false);
        const R each = smoothing / static_cast<R>(w.fold.count), rest = R(1) - smoothing;
        R all = 0;
        if (summed) {
            for (int64_t c = mine.from; c < mine.to; c += mine.step) all += weight_of<T>(w, c);
            all = lg_fold_merge<lg_add>(w.fold, all, shared);
        } else {
            all = static_cast<R>(w.fold.count);
        }
        R d = lg_load(static_cast<const T *>(w.g)[w.reduction == LG_LOSS_EACH ? row * w.g_stride : 0]);
        if (w.reduction == LG_LOSS_MEAN) d /= *static_cast<const R *>(w.count);
        const R lse = static_cast<const R *>(w.lse)[row];
        const R total = target < 0 ? R(0) : weight_of<T>(w, target) * rest + each * all;
        for (int64_t c = mine.from; c < mine.to; c += mine.step) {
            const R q = weight_of<T>(w, c) * ((c == target ? rest : R(0)) + each);
            const R v = target < 0 ? R(0) : d * (total * exponential(lg_load(x[c * w.column]) - lse) - q);
            gx[c] = lg_store<T>(v);
        }
    }
}

template <class T> static cudaError_t launch_cross_entropy(const lg_cross_entropy_work *w, cudaStream_t stream)
{
    const cudaError_t code = LG_LAUNCH(cross_entropy_rows<T>, lg_fold_grid(w->fold), dim3(lg_fold_block(&w->fold)), 0, stream, *w,
                                       static_cast<lg_real<T>>(w->smoothing));
    return code != cudaSuccess ? code : LG_LAUNCH(cross_entropy_total<T>, dim3(1), dim3(THREADS), 0, stream, *w);
}

cudaError_t lg_cuda_launch_cross_entropy(const lg_cross_entropy_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return launch_cross_entropy<T>(w, stream));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_cross_entropy_gradient(const lg_cross_entropy_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH(cross_entropy_gradient<T>, lg_fold_grid(w->fold), dim3(lg_fold_block(&w->fold)), 0, stream, *w,
                                             static_cast<lg_real<T>>(w->smoothing)));
    return cudaSuccess;
}

/* ---- losses of pairs */

struct mse {
    template <class R> static __device__ R loss(R x, R t) { return (x - t) * (x - t); }
    template <class R> static __device__ R slope(R x, R t) { return R(2) * (x - t); }
};

/* The share of the label that is wrong is paid |x|: no product of 0 and infinity. */
struct bce {
    template <class R> static __device__ R loss(R x, R t)
    {
        const R wrong = x > R(0) ? R(1) - t : t, size = x < R(0) ? -x : x;
        return (wrong == R(0) ? R(0) : wrong * size) + log_of_1_and(exponential(-size));
    }
    template <class R> static __device__ R slope(R x, R t)
    {
        const R e = exponential(x < R(0) ? x : -x);
        return (x < R(0) ? e : R(1)) / (R(1) + e) - t;
    }
};

/* 3 to 15 FLOPs and 3 element sizes an element. */
template <class T, class Loss> __global__ void pairs_each(lg_pairs_work w)
{
    const T *x = static_cast<const T *>(w.x), *t = static_cast<const T *>(w.target);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < w.at.numel; i += (int64_t)gridDim.x * blockDim.x)
        static_cast<T *>(w.result)[lg_offset(w.at, 2, i)] =
            lg_store<T>(Loss::loss(lg_load(x[lg_offset(w.at, 0, i)]), lg_load(t[lg_offset(w.at, 1, i)])));
}

/* The same without writing each. */
template <class T, class Loss> __global__ void pairs_sums(lg_pairs_work w)
{
    using R = lg_real<T>;
    LG_SHARED(R, shared, [THREADS]);
    const T *x = static_cast<const T *>(w.x), *t = static_cast<const T *>(w.target);
    LG_EACH_UNIT(unit, w.fold)
    {
        const lg_share mine = lg_share_of(w.fold, unit);
        R sum = 0;
        for (int64_t i = mine.from; i < mine.to; i += mine.step)
            sum += Loss::loss(R(lg_load(x[lg_offset(w.at, 0, i)])), R(lg_load(t[lg_offset(w.at, 1, i)])));
        sum = lg_fold_merge<lg_add>(w.fold, sum, shared);
        if (mine.first) static_cast<R *>(w.partial)[mine.slice] = sum;
    }
}

template <class T> __global__ void pairs_total(lg_pairs_work w)
{
    using R = lg_real<T>;
    R sum = 0;
    for (int64_t k = 0; k < w.fold.slices; ++k) sum += static_cast<const R *>(w.partial)[k];
    *static_cast<T *>(w.result) = lg_store<T>(w.reduction == LG_LOSS_MEAN ? sum / static_cast<R>(w.at.numel) : sum);
}

template <class T, class Loss> __global__ void pairs_gradient(lg_pairs_work w)
{
    using R = lg_real<T>;
    const T *x = static_cast<const T *>(w.x), *t = static_cast<const T *>(w.target), *g = static_cast<const T *>(w.g);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < w.at.numel; i += (int64_t)gridDim.x * blockDim.x) {
        R d = lg_load(g[w.reduction == LG_LOSS_EACH ? lg_offset(w.at, 3, i) : 0]);
        if (w.reduction == LG_LOSS_MEAN) d /= static_cast<R>(w.at.numel);
        static_cast<T *>(w.result)[lg_offset(w.at, 2, i)] =
            lg_store<T>(d * Loss::slope(R(lg_load(x[lg_offset(w.at, 0, i)])), R(lg_load(t[lg_offset(w.at, 1, i)]))));
    }
}

template <class T, class Loss> static cudaError_t launch_pairs(const lg_pairs_work *w, cudaStream_t stream)
{
    if (w->reduction == LG_LOSS_EACH)
        return LG_LAUNCH((pairs_each<T, Loss>), dim3(lg_blocks(w->at.numel, THREADS)), dim3(THREADS), 0, stream, *w);
    const cudaError_t code = LG_LAUNCH((pairs_sums<T, Loss>), lg_fold_grid(w->fold), dim3(lg_fold_block(&w->fold)), 0, stream, *w);
    return code != cudaSuccess ? code : LG_LAUNCH(pairs_total<T>, dim3(1), dim3(1), 0, stream, *w);
}

cudaError_t lg_cuda_launch_pairs(const lg_pairs_work *w, cudaStream_t stream)
{
    if (w->kind == LG_PAIR_MSE) LG_FOR_FLOATS(w->dtype, return (launch_pairs<T, mse>(w, stream)));
    LG_FOR_FLOATS(w->dtype, return (launch_pairs<T, bce>(w, stream)));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_pairs_gradient(const lg_pairs_work *w, cudaStream_t stream)
{
    const dim3 grid(lg_blocks(w->at.numel, THREADS)), block(THREADS);
    if (w->kind == LG_PAIR_MSE) LG_FOR_FLOATS(w->dtype, return LG_LAUNCH((pairs_gradient<T, mse>), grid, block, 0, stream, *w));
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH((pairs_gradient<T, bce>), grid, block, 0, stream, *w));
    return cudaSuccess;
}
