/* Reductions over any set of axes. Each kind is a fold: a state that takes elements and merges with others.
 * Groups are cut into slices by shape, and states of slices merged in their order. Every element is read
 * once, 1 to 6 FLOPs each. Launched by cuda_reduce.c. */
#include "cuda/cuda_reduce.h"
#include "cuda/fold.cuh"

enum { THREADS = LG_BLOCK_MAX };

struct numbers { double number; int64_t count; }; /* norm's p, var's correction; elements of a group */

/* ---- the folds. V is what computes for the elements. */

template <class T> struct fold_whole_sum {
    using state = int64_t;
    using result = int64_t;
    static __device__ state empty() { return 0; }
    static __device__ void take(state &s, lg_real<T> v, int64_t, const numbers &) { s += static_cast<int64_t>(v); }
    static __device__ void seal(state &) {}
    static __device__ void merge(state &s, const state &other) { s += other; }
    static __device__ result finish(const state &s, const numbers &) { return s; }
};

template <class T> struct fold_sum {
    using state = lg_careful<lg_real<T>>;
    using result = T;
    static __device__ state empty() { return {0, 0}; }
    static __device__ void take(state &s, lg_real<T> v, int64_t, const numbers &) { s.add(v); }
    static __device__ void seal(state &) {}
    static __device__ void merge(state &s, const state &other) { s.merge(other); }
    static __device__ T finish(const state &s, const numbers &) { return lg_store<T>(s.value()); }
};

template <class T> struct fold_mean : fold_sum<T> {
    static __device__ T finish(const lg_careful<lg_real<T>> &s, const numbers &n)
    {
        return lg_store<T>(s.mean(static_cast<lg_real<T>>(n.count)));
    }
};

/* The first largest (SIGN 1) or smallest (-1) element, or the first NaN, and its place. */
template <class T, int SIGN> struct fold_extreme {
    using V = lg_real<T>;
    struct state { V v; int64_t at; }; /* at < 0: nothing yet */
    using result = T;
    static __device__ state empty() { return {V(0), -1}; }
    static __device__ bool wins(const state &a, const state &b) /* a over b, both there */
    {
        const bool a_nan = a.v != a.v, b_nan = b.v != b.v;
        if (a_nan != b_nan) return a_nan;
        if (!a_nan && a.v != b.v) return SIGN > 0 ? a.v > b.v : a.v < b.v;
        return a.at < b.at;
    }
    static __device__ void merge(state &s, const state &other)
    {
        if (other.at >= 0 && (s.at < 0 || wins(other, s))) s = other;
    }
    static __device__ void take(state &s, V v, int64_t j, const numbers &) { merge(s, state{v, j}); }
    static __device__ void seal(state &) {}
    static __device__ T finish(const state &s, const numbers &) { return lg_store<T>(s.v); }
};

template <class T> struct fold_argmax : fold_extreme<T, 1> {
    using result = int64_t;
    static __device__ int64_t finish(const typename fold_extreme<T, 1>::state &s, const numbers &) { return s.at; }
};

/* Distances to the thread's first element, `base`: their sum, which seal() turns into their mean, and that of
 * their squares, then of those around the mean. The mean itself is never rounded to a number as large as the
 * elements. Merged as Chan, Golub and LeVeque do. */
template <class T> struct fold_var {
    using R = lg_real<T>;
    struct state { R n, base, distance, squares; lg_careful<R> all; }; /* all: for the mean that is a result */
    using result = T;
    static __device__ state empty() { return {R(0), R(0), R(0), R(0), {R(0), R(0)}}; }
    static __device__ void take(state &s, R v, int64_t, const numbers &)
    {
        if (s.n == R(0)) s.base = v;
        const R d = v - s.base;
        s.all.add(v);
        s.n += R(1);
        s.distance += d;
        s.squares += d * d;
    }
    static __device__ void seal(state &s)
    {
        if (s.n == R(0)) return;
        const R mean = s.distance / s.n;
        s.squares -= s.distance * mean;
        if (s.squares < R(0)) s.squares = R(0);
        s.distance = mean;
    }
    static __device__ void merge(state &s, const state &other)
    {
        if (other.n == R(0)) return;
        if (s.n == R(0)) {
            s = other;
            return;
        }
        const R all = s.n + other.n, d = (other.base - s.base) + (other.distance - s.distance);
        s.distance += d * (other.n / all);
        s.squares += other.squares + d * d * (s.n * (other.n / all));
        s.all.merge(other.all);
        s.n = all;
    }
    static __device__ T finish(const state &s, const numbers &n)
    {
        const R left = static_cast<R>(n.count) - static_cast<R>(n.number);
        return lg_store<T>(left > R(0) ? s.squares / left : R(NAN));
    }
};

__device__ __forceinline__ float power(float x, float p) { return p == 2.0f ? x * x : p == 1.0f ? x : powf(x, p); }
__device__ __forceinline__ double power(double x, double p) { return p == 2.0 ? x * x : p == 1.0 ? x : pow(x, p); }

/* Sum of (|x| / top)^p with the largest magnitude `top`, so that no power overflows. */
template <class T> struct fold_norm {
    using R = lg_real<T>;
    struct state { R top, sum, p; };
    using result = T;
    static __device__ state empty() { return {R(0), R(0), R(0)}; }
    static __device__ void add(state &s, R top, R sum)
    {
        if (s.top != s.top || !(top > R(0) || top != top)) return;
        if (top != top || top == R(INFINITY)) { /* nothing can be divided by these */
            s.top = top;
            s.sum = R(1);
        } else if (top > s.top) {
            s.sum = (s.top > R(0) ? s.sum * power(s.top / top, s.p) : R(0)) + sum;
            s.top = top;
        } else {
            s.sum += sum * power(top / s.top, s.p);
        }
    }
    static __device__ void take(state &s, R v, int64_t, const numbers &n)
    {
        s.p = static_cast<R>(n.number);
        add(s, v < R(0) ? -v : v, R(1));
    }
    static __device__ void seal(state &) {}
    static __device__ void merge(state &s, const state &other)
    {
        if (s.p == R(0)) s.p = other.p;
        add(s, other.top, other.sum);
    }
    static __device__ T finish(const state &s, const numbers &n)
    {
        const R p = static_cast<R>(n.number);
        const bool scaled = s.top > R(0) && s.top != R(INFINITY) && p != R(INFINITY);
        if (!scaled) return lg_store<T>(s.top);
        return lg_store<T>(s.top * (p == R(1) ? s.sum : p == R(2) ? sqrt(s.sum) : power(s.sum, R(1) / p)));
    }
};

/* ---- the kernels */

template <class Fold> __device__ __forceinline__ void write_result(const lg_reduce_work &w, int64_t group, const typename Fold::state &s)
{
    const numbers n = {w.number, w.fold.count};
    static_cast<typename Fold::result *>(w.y)[group] = Fold::finish(s, n);
}

template <class Fold> struct keeps_mean { static constexpr bool value = false; };
template <class T> struct keeps_mean<fold_var<T>> { static constexpr bool value = true; };

template <class Fold> __device__ __forceinline__ void write_mean(const lg_reduce_work &w, int64_t group, const typename Fold::state &s)
{
    if constexpr (keeps_mean<Fold>::value)
        static_cast<typename Fold::R *>(w.mean)[group] = s.all.mean(static_cast<typename Fold::R>(w.fold.count));
    else
        (void)w, (void)group, (void)s;
}

template <class T, class Fold> __global__ void reduce(lg_reduce_work w)
{
    using state = typename Fold::state;
    static_assert(sizeof(state) <= LG_REDUCE_STATE, "room for partial results");
    LG_SHARED(state, shared, [THREADS]);
    const numbers n = {w.number, w.fold.count};
    LG_EACH_UNIT(unit, w.fold)
    {
        const lg_share mine = lg_share_of(w.fold, unit);
        state s = Fold::empty();
        if (mine.active) {
            const T *x = static_cast<const T *>(w.x) + lg_offset(w.kept, 0, mine.group);
            for (int64_t j = mine.from; j < mine.to; j += mine.step) Fold::take(s, lg_load(x[lg_offset(w.within, 0, j)]), j, n);
        }
        Fold::seal(s);
        s = lg_fold_merge<Fold>(w.fold, s, shared);
        if (!mine.first) continue;
        if (w.fold.slices > 1) {
            static_cast<state *>(w.partial)[mine.group * w.fold.slices + mine.slice] = s;
        } else {
            write_result<Fold>(w, mine.group, s);
            write_mean<Fold>(w, mine.group, s);
        }
    }
}

/* A thread a group. */
template <class Fold> __global__ void merge_slices(lg_reduce_work w)
{
    using state = typename Fold::state;
    const int64_t group = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (group >= w.fold.groups) return;
    state s = Fold::empty();
    for (int64_t k = 0; k < w.fold.slices; ++k) Fold::merge(s, static_cast<const state *>(w.partial)[group * w.fold.slices + k]);
    write_result<Fold>(w, group, s);
    write_mean<Fold>(w, group, s);
}

/* ---- launchers */

template <class T, class Fold> static cudaError_t launch(const lg_reduce_work *w, cudaStream_t stream)
{
    const cudaError_t code = LG_LAUNCH((reduce<T, Fold>), lg_fold_grid(w->fold), dim3(lg_fold_block(&w->fold)), 0, stream, *w);
    if (code != cudaSuccess || w->fold.slices == 1) return code;
    return LG_LAUNCH(merge_slices<Fold>, dim3(lg_blocks(w->fold.groups, THREADS)), dim3(THREADS), 0, stream, *w);
}

static cudaError_t launch_sum(const lg_reduce_work *w, cudaStream_t stream)
{
    switch (w->dtype) {
    case LG_I64: return launch<int64_t, fold_whole_sum<int64_t>>(w, stream);
    case LG_I32: return launch<int32_t, fold_whole_sum<int32_t>>(w, stream);
    case LG_U8: return launch<unsigned char, fold_whole_sum<unsigned char>>(w, stream);
    case LG_BOOL: return launch<lg_bool, fold_whole_sum<lg_bool>>(w, stream);
    default: break;
    }
    LG_FOR_FLOATS(w->dtype, return (launch<T, fold_sum<T>>(w, stream)));
    return cudaSuccess;
}

static cudaError_t launch_floats(const lg_reduce_work *w, cudaStream_t stream)
{
    if (w->kind == LG_REDUCE_MEAN) LG_FOR_FLOATS(w->dtype, return (launch<T, fold_mean<T>>(w, stream)));
    if (w->kind == LG_REDUCE_VAR) LG_FOR_FLOATS(w->dtype, return (launch<T, fold_var<T>>(w, stream)));
    LG_FOR_FLOATS(w->dtype, return (launch<T, fold_norm<T>>(w, stream)));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_reduce(const lg_reduce_work *w, cudaStream_t stream)
{
    switch (w->kind) {
    case LG_REDUCE_SUM: return launch_sum(w, stream);
    case LG_REDUCE_MAX: LG_FOR_ALL(w->dtype, return (launch<T, fold_extreme<T, 1>>(w, stream))); break;
    case LG_REDUCE_MIN: LG_FOR_ALL(w->dtype, return (launch<T, fold_extreme<T, -1>>(w, stream))); break;
    case LG_REDUCE_ARGMAX: LG_FOR_ALL(w->dtype, return (launch<T, fold_argmax<T>>(w, stream))); break;
    default: return launch_floats(w, stream);
    }
    return cudaErrorInvalidValue;
}
