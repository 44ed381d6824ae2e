/* Passes over many tensors in one launch: steps of optimizers, the norm of all gradients, clipping. A block
 * works on one piece of one tensor, so that which element is added where is a matter of sizes alone. Launched
 * by cuda_multi.c. */
#include "cuda/kernel.cuh" /* first: how functions of update_rules.h are compiled */
#include "cuda/cuda_multi.h"

#define real      float
#define LG_SUFFIX f32
#define LG_SQRT   sqrtf
#include "ops/update_rules.h"
#undef real
#undef LG_SUFFIX
#undef LG_SQRT
#define real      double
#define LG_SUFFIX f64
#define LG_SQRT   sqrt
#include "ops/update_rules.h"
#undef real
#undef LG_SUFFIX
#undef LG_SQRT

enum { THREADS = LG_BLOCK_MAX };

__device__ __forceinline__ bool is_finite(double v) { return v - v == 0; }

/* ---- which tensor, and which of its elements */

__device__ __forceinline__ const lg_multi_tensor &tensor_of(const lg_multi_pass &p)
{
    int low = 0, high = p.count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (p.tensor[middle].first_block <= (int64_t)blockIdx.x)
            low = middle;
        else
            high = middle - 1;
    }
    return p.tensor[low];
}

/* Calls f.pack(i) for the elements from i on that fill 16 bytes of T, and f.one(i) for others. */
template <class T, class F> __device__ __forceinline__ void each_element(const lg_multi_tensor &t, F &f)
{
    constexpr int WIDTH = 16 / sizeof(T);
    const int64_t from = ((int64_t)blockIdx.x - t.first_block) * LG_MULTI_CHUNK;
    const int64_t to = t.count - from < LG_MULTI_CHUNK ? t.count : from + LG_MULTI_CHUNK;
    int64_t packs_end = from;
    if (t.packed) {
        packs_end = from + (to - from) / WIDTH * WIDTH;
        for (int64_t i = from + (int)threadIdx.x * WIDTH; i < packs_end; i += THREADS * WIDTH) f.pack(i);
    }
    for (int64_t i = packs_end + (int)threadIdx.x; i < to; i += THREADS) f.one(i);
}

/* N elements of T or of what computes for it, by loads of 16 bytes. */
template <class T, int N> struct alignas(16) lanes { T v[N]; };

/* ---- steps */

/* lg_update in the type that computes. */
template <class R> struct rates {
    R lr, decay, shrink, momentum, fresh, rate1, keep2, rate2, step_size, root_scale, eps;
    int nesterov, skip;
};

/* Of all elements of a tensor: one thread of the block works them out, in f64 as the learning rate is. */
template <class R, int RULE> __device__ __forceinline__ rates<R> rates_of(const lg_multi_pass &p, const lg_multi_tensor &t)
{
    const double lr = *p.lr * t.lr_scale, steps = *t.steps;
    const lg_update u = RULE == LG_RULE_ADAM
                            ? lg_adam_update(lr, t.weight_decay, p.decoupled != 0, p.beta1, p.beta2, p.eps, steps)
                            : lg_sgd_update(lr, t.weight_decay, p.momentum, p.dampening, p.nesterov != 0, steps);
    return rates<R>{static_cast<R>(u.lr), static_cast<R>(u.decay), static_cast<R>(u.shrink), static_cast<R>(u.momentum),
                    static_cast<R>(u.fresh), static_cast<R>(u.rate1), static_cast<R>(u.keep2), static_cast<R>(u.rate2),
                    static_cast<R>(u.step_size), static_cast<R>(u.root_scale), static_cast<R>(u.eps), u.nesterov,
                    (p.norm != nullptr && !is_finite(*p.norm)) || (p.found != nullptr && *p.found != 0)};
}

template <class T, int RULE> struct step {
    using R = lg_real<T>;
    static constexpr int WIDTH = 16 / sizeof(T);
    T *p;
    const T *g;
    R *m, *v;
    rates<R> u;

    static __device__ __forceinline__ float apply(const rates<float> &u, float p, float g, float *m, float *v)
    {
        if (RULE == LG_RULE_SGD_PLAIN) return lg_sgd_plain_f32(p, g, u.lr, u.decay);
        if (RULE == LG_RULE_SGD_MOMENTUM)
            return lg_sgd_momentum_f32(p, g, m, u.lr, u.decay, u.momentum, u.fresh, u.nesterov != 0);
        return lg_adam_f32(p, g, m, v, u.decay, u.shrink, u.rate1, u.keep2, u.rate2, u.step_size, u.root_scale, u.eps);
    }
    static __device__ __forceinline__ double apply(const rates<double> &u, double p, double g, double *m, double *v)
    {
        if (RULE == LG_RULE_SGD_PLAIN) return lg_sgd_plain_f64(p, g, u.lr, u.decay);
        if (RULE == LG_RULE_SGD_MOMENTUM)
            return lg_sgd_momentum_f64(p, g, m, u.lr, u.decay, u.momentum, u.fresh, u.nesterov != 0);
        return lg_adam_f64(p, g, m, v, u.decay, u.shrink, u.rate1, u.keep2, u.rate2, u.step_size, u.root_scale, u.eps);
    }
    __device__ __forceinline__ void one(int64_t i)
    {
        R none = 0;
        p[i] = lg_store<T>(apply(u, lg_load(p[i]), lg_load(g[i]), RULE == LG_RULE_SGD_PLAIN ? &none : &m[i],
                                 RULE == LG_RULE_ADAM ? &v[i] : &none));
    }
    __device__ __forceinline__ void pack(int64_t i)
    {
        lg_pack<T> values = *reinterpret_cast<lg_pack<T> *>(p + i);
        const lg_pack<T> slopes = *reinterpret_cast<const lg_pack<T> *>(g + i);
        lanes<R, WIDTH> first = {}, second = {};
        if (RULE != LG_RULE_SGD_PLAIN) first = *reinterpret_cast<lanes<R, WIDTH> *>(m + i);
        if (RULE == LG_RULE_ADAM) second = *reinterpret_cast<lanes<R, WIDTH> *>(v + i);
        for (int k = 0; k < WIDTH; ++k)
            values.v[k] = lg_store<T>(apply(u, lg_load(values.v[k]), lg_load(slopes.v[k]), &first.v[k], &second.v[k]));
        *reinterpret_cast<lg_pack<T> *>(p + i) = values;
        if (RULE != LG_RULE_SGD_PLAIN) *reinterpret_cast<lanes<R, WIDTH> *>(m + i) = first;
        if (RULE == LG_RULE_ADAM) *reinterpret_cast<lanes<R, WIDTH> *>(v + i) = second;
    }
};

/* Bytes an element of f32, and FLOPs: SGD 12 and 4, with momentum 20 and 7, Adam 28 and 15. Once a block some
 * hundred FLOPs of f64, while other blocks go on. */
template <class T, int RULE> __global__ void multi_step(lg_multi_pass p)
{
    using R = lg_real<T>;
    LG_SHARED(rates<R>, shared, [1]);
    const lg_multi_tensor &t = tensor_of(p);
    if (threadIdx.x == 0) shared[0] = rates_of<R, RULE>(p, t);
    __syncthreads();
    step<T, RULE> f = {static_cast<T *>(t.param), static_cast<const T *>(t.grad), static_cast<R *>(t.state[0]),
                       static_cast<R *>(t.state[1]), shared[0]};
    if (f.u.skip) return;
    each_element<T>(t, f);
}

/* A thread a tensor, when all blocks have read the counts. 8 bytes and 1 FLOP each. */
__global__ void multi_count(lg_multi_counts c)
{
    const int i = (int)threadIdx.x;
    const bool found = c.found != nullptr && *c.found != 0, bad = c.norm != nullptr && !is_finite(*c.norm);
    if (i < c.count && !found && !bad) *c.steps[i] += 1.0f;
    if (i != 0) return;
    if (c.skip != nullptr) *c.skip = found || bad ? 1 : 0;
    if (bad && !found) lg_note_trouble(c.trouble, LG_TROUBLE_NORM, __double_as_longlong(*c.norm), 0, 0);
}

extern "C" cudaError_t lg_cuda_launch_multi_count(const lg_multi_counts *counts, cudaStream_t stream)
{
    return LG_LAUNCH(multi_count, dim3(1), dim3(LG_MULTI_STEPS), 0, stream, *counts);
}

/* ---- clipping */

__device__ __forceinline__ float limit_of(const lg_multi_pass &p, float) { return p.limit_f32; }
__device__ __forceinline__ double limit_of(const lg_multi_pass &p, double) { return p.limit; }

template <class T> struct clamp {
    T *g;
    lg_real<T> limit;

    __device__ __forceinline__ T of(T stored) const /* NaN stays */
    {
        const lg_real<T> v = lg_load(stored);
        return lg_store<T>(v > limit ? limit : v < -limit ? -limit : v);
    }
    __device__ __forceinline__ void one(int64_t i) { g[i] = of(g[i]); }
    __device__ __forceinline__ void pack(int64_t i)
    {
        lg_pack<T> values = *reinterpret_cast<lg_pack<T> *>(g + i);
        for (T &v : values.v) v = of(v);
        *reinterpret_cast<lg_pack<T> *>(g + i) = values;
    }
};

/* Twice the element's bytes, 2 FLOPs. */
template <class T> __global__ void multi_clamp(lg_multi_pass p)
{
    const lg_multi_tensor &t = tensor_of(p);
    clamp<T> f = {static_cast<T *>(t.grad), limit_of(p, lg_real<T>())};
    each_element<T>(t, f);
}

/* By a factor in f64, which may be smaller than f32 goes; the bits are the CPU's. */
template <class T> struct scale {
    T *g;
    double factor;

    __device__ __forceinline__ T of(T v) const
    {
        return lg_store<T>(static_cast<lg_real<T>>(static_cast<double>(lg_load(v)) * factor));
    }
    __device__ __forceinline__ void one(int64_t i) { g[i] = of(g[i]); }
    __device__ __forceinline__ void pack(int64_t i)
    {
        lg_pack<T> values = *reinterpret_cast<lg_pack<T> *>(g + i);
        for (T &v : values.v) v = of(v);
        *reinterpret_cast<lg_pack<T> *>(g + i) = values;
    }
};

/* Twice the element's bytes, 1 FLOP, of f64: even a card with few units for that is as quick as its memory. */
template <class T> __global__ void multi_scale(lg_multi_pass p)
{
    LG_SHARED(double, factor, [1]);
    if (threadIdx.x == 0) factor[0] = is_finite(*p.norm) ? p.limit / (*p.norm + 1e-6) : 1;
    __syncthreads();
    const lg_multi_tensor &t = tensor_of(p);
    scale<T> f = {static_cast<T *>(t.grad), factor[0]};
    if (f.factor < 1) each_element<T>(t, f);
}

/* By the scale of losses. PyTorch's way: one factor, rounded to what computes. */
template <class T> struct unscale {
    T *g;
    lg_real<T> factor;
    bool bad;

    __device__ __forceinline__ T of(T stored)
    {
        const lg_real<T> before = lg_load(stored), after = before * factor;
        bad = bad || !(before - before == 0) || !(after - after == 0);
        return lg_store<T>(after);
    }
    __device__ __forceinline__ void one(int64_t i) { g[i] = of(g[i]); }
    __device__ __forceinline__ void pack(int64_t i)
    {
        lg_pack<T> values = *reinterpret_cast<lg_pack<T> *>(g + i);
        for (T &v : values.v) v = of(v);
        *reinterpret_cast<lg_pack<T> *>(g + i) = values;
    }
};

/* Twice the element's bytes, 3 FLOPs. Whichever thread meets an overflow writes the same 1. */
template <class T> __global__ void multi_unscale(lg_multi_pass p)
{
    LG_SHARED(double, factor, [1]);
    if (threadIdx.x == 0) factor[0] = p.limit / (p.scale != nullptr ? static_cast<double>(*p.scale) : 1);
    __syncthreads();
    const lg_multi_tensor &t = tensor_of(p);
    unscale<T> f = {static_cast<T *>(t.grad), static_cast<lg_real<T>>(factor[0]), false};
    each_element<T>(t, f);
    if (f.bad && p.overflow != nullptr) atomicExch(p.overflow, 1.0f);
}

/* ---- the norm: sums in f64, which holds the squares of everything but f64. Those are added up in three
 * sums by their size, as in J. L. Blue, "A Portable Fortran Program to Find the Euclidean Norm of a Vector"
 * (1978): small ones times 2^600, large ones times 2^-538, so that none of the squares is out of range. */

constexpr double SMALL = 0x1p-511, LARGE = 0x1p486, SMALL_UP = 0x1p600, LARGE_DOWN = 0x1p-538;

template <class T> struct squares {
    const T *g;
    double small, middle, large;

    __device__ __forceinline__ void add(float v) { middle += static_cast<double>(v) * static_cast<double>(v); }
    __device__ __forceinline__ void add(double v)
    {
        const double size = fabs(v);
        if (size > LARGE)
            large += v * LARGE_DOWN * (v * LARGE_DOWN);
        else if (size < SMALL)
            small += v * SMALL_UP * (v * SMALL_UP);
        else
            middle += v * v; /* and NaN */
    }
    __device__ __forceinline__ void one(int64_t i) { add(lg_load(g[i])); }
    __device__ __forceinline__ void pack(int64_t i)
    {
        const lg_pack<T> values = *reinterpret_cast<const lg_pack<T> *>(g + i);
        for (const T &v : values.v) add(lg_load(v));
    }
};

/* The element's bytes, 2 FLOPs of f64. */
template <class T> __global__ void multi_squares(lg_multi_pass p)
{
    LG_SHARED(double, shared, [LG_WARP]);
    const lg_multi_tensor &t = tensor_of(p);
    squares<T> f = {static_cast<const T *>(t.grad), 0, 0, 0};
    each_element<T>(t, f);
    const double middle = lg_block_sum(f.middle, shared);
    double small = 0, large = 0;
    if (sizeof(T) == sizeof(double)) {
        small = lg_block_sum(f.small, shared);
        large = lg_block_sum(f.large, shared);
    }
    if (threadIdx.x != 0) return;
    double *out = p.partial + 3 * (int64_t)blockIdx.x;
    out[0] = small;
    out[1] = middle;
    out[2] = large;
}

__device__ __forceinline__ double norm_of(double small, double middle, double large)
{
    if (large > 0) return sqrt(large + middle * LARGE_DOWN * LARGE_DOWN) / LARGE_DOWN;
    if (middle > 0x1p-400 || !(middle >= 0) || small == 0) return sqrt(middle);
    return sqrt(small + middle * SMALL_UP * SMALL_UP) / SMALL_UP;
}

/* One block; 24 bytes and 3 FLOPs for 4096 elements of the gradients. */
__global__ void multi_norm(const double *partial, int64_t blocks, double *norm)
{
    LG_SHARED(double, shared, [LG_WARP]);
    double sum[3] = {0, 0, 0};
    for (int64_t b = (int)threadIdx.x; b < blocks; b += THREADS)
        for (int k = 0; k < 3; ++k) sum[k] += partial[3 * b + k];
    for (double &s : sum) s = lg_block_sum(s, shared);
    if (threadIdx.x == 0) *norm = norm_of(sum[0], sum[1], sum[2]);
}

extern "C" cudaError_t lg_cuda_launch_multi_norm(const double *partial, int64_t blocks, double *norm, cudaStream_t stream)
{
    return LG_LAUNCH(multi_norm, dim3(1), dim3(THREADS), 0, stream, partial, blocks, norm);
}

/* ---- numbers that change from step to step: some hundred FLOPs of f64 by one thread */

__global__ void schedule(lg_sched_rule rule, const double *skip, double *position, double *factor)
{
    if (*skip != 0) return;
    *position += 1;
    *factor = lg_sched_factor(&rule, *position);
}

extern "C" cudaError_t lg_cuda_launch_schedule(const lg_sched_rule *rule, const double *skip, double *position,
                                               double *factor, cudaStream_t stream)
{
    return LG_LAUNCH(schedule, dim3(1), dim3(1), 0, stream, *rule, skip, position, factor);
}

__global__ void rescale(lg_scaler_rule rule, float *state, float *found, int64_t n, int64_t most, lg_cuda_trouble *trouble)
{
    bool any = false;
    for (int64_t i = 0; i < n; ++i) {
        any = any || found[i] != 0;
        found[i] = 0;
    }
    lg_scaler_advance(&rule, any, state);
    if (any && state[LG_SCALER_SKIPS] >= static_cast<float>(most))
        lg_note_trouble(trouble, LG_TROUBLE_SCALE, static_cast<long long>(state[LG_SCALER_SKIPS]),
                        __double_as_longlong(static_cast<double>(state[LG_SCALER_SCALE])), 0);
}

extern "C" cudaError_t lg_cuda_launch_rescale(const lg_scaler_rule *rule, float *state, float *found, int64_t n,
                                              int64_t most, lg_cuda_trouble *trouble, cudaStream_t stream)
{
    return LG_LAUNCH(rescale, dim3(1), dim3(1), 0, stream, *rule, state, found, n, most, trouble);
}

/* ---- all of them */

template <class T> static cudaError_t launch(const lg_multi_pass *p, cudaStream_t stream)
{
    const dim3 grid(static_cast<unsigned>(p->blocks)), block(THREADS);
    switch (p->rule) {
    case LG_RULE_SGD_PLAIN: return LG_LAUNCH((multi_step<T, LG_RULE_SGD_PLAIN>), grid, block, 0, stream, *p);
    case LG_RULE_SGD_MOMENTUM: return LG_LAUNCH((multi_step<T, LG_RULE_SGD_MOMENTUM>), grid, block, 0, stream, *p);
    case LG_RULE_ADAM: return LG_LAUNCH((multi_step<T, LG_RULE_ADAM>), grid, block, 0, stream, *p);
    case LG_RULE_SQUARES: return LG_LAUNCH(multi_squares<T>, grid, block, 0, stream, *p);
    case LG_RULE_SCALE: return LG_LAUNCH(multi_scale<T>, grid, block, 0, stream, *p);
    case LG_RULE_CLAMP: return LG_LAUNCH(multi_clamp<T>, grid, block, 0, stream, *p);
    case LG_RULE_UNSCALE: return LG_LAUNCH(multi_unscale<T>, grid, block, 0, stream, *p);
    default: return cudaErrorInvalidValue;
    }
}

extern "C" cudaError_t lg_cuda_launch_multi_pass(const lg_multi_pass *pass, cudaStream_t stream)
{
    LG_FOR_FLOATS(pass->dtype, return launch<T>(pass, stream));
}
