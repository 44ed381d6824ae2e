/* Batch and layer normalisation, forward and backward. Statistics of a slice are taken in two passes, the
 * second from the caches, and slices are merged in their order, so a large mean does not swallow a small
 * spread and the bits are always the same. Launched by cuda_norm.c. */
#include "cuda/cuda_norm.h"
#include "cuda/kernel.cuh"

enum { THREADS = LG_BLOCK_MAX, ROWS = THREADS / LG_WARP };

template <class T> __device__ __forceinline__ lg_real<T> parameter(const lg_norm_param &p, int64_t i, lg_real<T> absent)
{
    if (p.data == nullptr) return absent;
    if (p.wide) return static_cast<const lg_real<T> *>(p.data)[i * p.stride];
    return lg_load(static_cast<const T *>(p.data)[i * p.stride]);
}

template <class T> __device__ __forceinline__ void set_parameter(const lg_norm_param &p, int64_t i, lg_real<T> v)
{
    if (p.wide)
        static_cast<lg_real<T> *>(p.data)[i * p.stride] = v;
    else
        static_cast<T *>(p.data)[i * p.stride] = lg_store<T>(v);
}

__device__ __forceinline__ float inverse_root(float v) { return 1.0f / sqrtf(v); }
__device__ __forceinline__ double inverse_root(double v) { return 1.0 / sqrt(v); }

/* ---- who does what: a block works on one slice of one group (rows), or of 32 neighbouring groups (columns),
 * where lanes are groups and warps share the elements */

struct part {
    int64_t group, from, to, step;
    bool active;
};

__device__ __forceinline__ part part_of(const lg_norm_work &w, int64_t unit)
{
    const int64_t slice = unit % w.slices, block = unit / w.slices;
    const int64_t begin = w.count / w.slices * slice + (slice < w.count % w.slices ? slice : w.count % w.slices);
    const int64_t size = w.count / w.slices + (slice < w.count % w.slices ? 1 : 0);
    const int lane = threadIdx.x % LG_WARP, row = threadIdx.x / LG_WARP;
    part p = {block, begin + (int)threadIdx.x, begin + size, THREADS, true};
    if (!w.columns) return p;
    p.group = block * LG_WARP + lane;
    p.from = begin + row;
    p.step = ROWS;
    p.active = p.group < w.groups;
    if (!p.active) p.from = p.to;
    return p;
}

__device__ __forceinline__ int64_t units_of(const lg_norm_work &w)
{
    return (w.columns ? (w.groups + LG_WARP - 1) / LG_WARP : w.groups) * w.slices;
}

template <class R> __device__ __forceinline__ void add_to(R &sum, const R &v) { sum += v; }
template <class R> __device__ __forceinline__ void add_to(lg_careful<R> &sum, const lg_careful<R> &v) { sum.merge(v); }

/* The sum over the threads of a group; S is a number or lg_careful. */
template <class S> __device__ __forceinline__ S group_sum(const lg_norm_work &w, S v, S *shared)
{
    if (!w.columns) return lg_block_sum(v, shared);
    const int lane = threadIdx.x % LG_WARP;
    shared[threadIdx.x] = v;
    __syncthreads();
    S total = shared[lane];
    for (int k = 1; k < ROWS; ++k) add_to(total, shared[k * LG_WARP + lane]);
    __syncthreads();
    return total;
}

__device__ __forceinline__ bool writes(const lg_norm_work &w, const part &p)
{
    return p.active && (w.columns ? threadIdx.x < LG_WARP : threadIdx.x == 0);
}

template <class T> __device__ __forceinline__ lg_real<T> element(const lg_norm_work &w, int operand, int64_t group, int64_t j)
{
    const T *data = static_cast<const T *>(operand == LG_NORM_X ? w.x : w.g);
    return lg_load(data[group * w.group_stride[operand] + lg_offset(w.within, operand, j)]);
}

template <class T> __device__ __forceinline__ void set_element(const lg_norm_work &w, int64_t group, int64_t j, lg_real<T> v)
{
    static_cast<T *>(w.y)[group * w.group_stride[LG_NORM_Y] + lg_offset(w.within, LG_NORM_Y, j)] = lg_store<T>(v);
}

static dim3 grid_of(const lg_norm_work *w)
{
    return dim3(lg_blocks((w->columns ? (w->groups + LG_WARP - 1) / LG_WARP : w->groups) * w->slices, 1));
}

/* ---- batch norm, forward */

/* Mean and sum of squared distances of each slice: 10 FLOPs an element, read once from memory. Means are
 * exact to the last bit, so what is constant is normalised to 0. */
template <class T> __global__ void batch_statistics(lg_norm_work w)
{
    using R = lg_real<T>;
    LG_SHARED(R, shared, [THREADS]);
    LG_SHARED(lg_careful<R>, careful, [THREADS]);
    const int64_t units = units_of(w);
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const part p = part_of(w, unit);
        const int64_t slice = unit % w.slices;
        const R size = static_cast<R>(w.count / w.slices + (slice < w.count % w.slices ? 1 : 0));
        lg_careful<R> sum = {0, 0};
        R squares = 0;
        for (int64_t j = p.from; j < p.to; j += p.step) sum.add(element<T>(w, LG_NORM_X, p.group, j));
        const R mean = group_sum(w, sum, careful).mean(size);
        for (int64_t j = p.from; j < p.to; j += p.step) {
            const R d = element<T>(w, LG_NORM_X, p.group, j) - mean;
            squares += d * d;
        }
        squares = group_sum(w, squares, shared);
        if (!writes(w, p)) continue;
        R *out = static_cast<R *>(w.partial) + (p.group * w.slices + slice) * 2;
        out[0] = mean;
        out[1] = squares;
    }
}

/* Slices merged (Chan, Golub, LeVeque 1979), a thread a group. */
template <class T> __global__ void batch_finish(lg_norm_work w, lg_real<T> eps, lg_real<T> momentum)
{
    using R = lg_real<T>;
    const int64_t group = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (group >= w.groups) return;
    R mean = 0, variance = 0;
    if (!w.training) {
        mean = parameter<T>(w.running_mean, group, R(0));
        variance = parameter<T>(w.running_var, group, R(0));
    } else if (w.count > 0) {
        const R *in = static_cast<const R *>(w.partial) + group * w.slices * 2;
        R n = 0, squares = 0;
        for (int64_t s = 0; s < w.slices; ++s) {
            const R size = static_cast<R>(w.count / w.slices + (s < w.count % w.slices ? 1 : 0));
            const R d = in[2 * s] - mean, all = n + size;
            mean += d * (size / all);
            squares += in[2 * s + 1] + d * d * (n * (size / all));
            n = all;
        }
        variance = squares / n;
        if (w.running_mean.data != nullptr)
            set_parameter<T>(w.running_mean, group,
                             (R(1) - momentum) * parameter<T>(w.running_mean, group, R(0)) + momentum * mean);
        if (w.running_var.data != nullptr)
            set_parameter<T>(w.running_var, group, (R(1) - momentum) * parameter<T>(w.running_var, group, R(0)) +
                                                       momentum * (squares / (n - R(1))));
    }
    static_cast<R *>(w.mean)[group] = mean;
    static_cast<R *>(w.invstd)[group] = inverse_root(variance + eps);
}

/* 3 FLOPs and 2 element sizes an element. */
template <class T> __global__ void batch_apply(lg_norm_work w)
{
    using R = lg_real<T>;
    const int64_t units = units_of(w);
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const part p = part_of(w, unit);
        if (!p.active) continue;
        const R mean = static_cast<const R *>(w.mean)[p.group];
        const R scale = static_cast<const R *>(w.invstd)[p.group] * parameter<T>(w.weight, p.group, R(1));
        const R bias = parameter<T>(w.bias, p.group, R(0));
        for (int64_t j = p.from; j < p.to; j += p.step)
            set_element<T>(w, p.group, j, (element<T>(w, LG_NORM_X, p.group, j) - mean) * scale + bias);
    }
}

/* ---- batch norm, backward */

/* Sums over each slice of g and of g times the unit of x: 5 FLOPs and 2 element sizes an element. */
template <class T> __global__ void batch_sums(lg_norm_work w)
{
    using R = lg_real<T>;
    LG_SHARED(R, shared, [THREADS]);
    const int64_t units = units_of(w);
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const part p = part_of(w, unit);
        const R mean = p.active ? static_cast<const R *>(w.mean)[p.group] : R(0);
        const R invstd = p.active ? static_cast<const R *>(w.invstd)[p.group] : R(0);
        R bias = 0, weight = 0;
        for (int64_t j = p.from; j < p.to; j += p.step) {
            const R d = element<T>(w, LG_NORM_G, p.group, j);
            bias += d;
            weight += d * ((element<T>(w, LG_NORM_X, p.group, j) - mean) * invstd);
        }
        bias = group_sum(w, bias, shared);
        weight = group_sum(w, weight, shared);
        if (!writes(w, p)) continue;
        R *out = static_cast<R *>(w.partial) + (p.group * w.slices + unit % w.slices) * 2;
        out[0] = bias;
        out[1] = weight;
    }
}

/* Partial sums [n][slices][2] into gbias and gweight, in the order of the slices; a thread each. */
template <class R> __global__ void add_slices(const R *partial, int64_t n, int64_t slices, R *bias, R *weight)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    R b = 0, w = 0;
    for (int64_t s = 0; s < slices; ++s) {
        b += partial[(i * slices + s) * 2];
        w += partial[(i * slices + s) * 2 + 1];
    }
    bias[i] = b;
    weight[i] = w;
}

/* 6 FLOPs and 3 element sizes an element. */
template <class T> __global__ void batch_gradient(lg_norm_work w)
{
    using R = lg_real<T>;
    const int64_t units = units_of(w);
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const part p = part_of(w, unit);
        if (!p.active) continue;
        const R mean = static_cast<const R *>(w.mean)[p.group], invstd = static_cast<const R *>(w.invstd)[p.group];
        const R scale = invstd * parameter<T>(w.weight, p.group, R(1));
        const R n = static_cast<R>(w.count);
        const R sum = w.training ? static_cast<const R *>(w.gbias)[p.group] / n : R(0);
        const R dot = w.training ? static_cast<const R *>(w.gweight)[p.group] / n : R(0);
        for (int64_t j = p.from; j < p.to; j += p.step) {
            const R unit_x = (element<T>(w, LG_NORM_X, p.group, j) - mean) * invstd;
            set_element<T>(w, p.group, j, scale * (element<T>(w, LG_NORM_G, p.group, j) - (sum + unit_x * dot)));
        }
    }
}

/* ---- layer norm: `WIDTH` threads a row, a warp for short ones */

template <int WIDTH, class S> __device__ __forceinline__ S row_sum(S v, S *shared)
{
    return WIDTH == LG_WARP ? lg_warp_sum(v) : lg_block_sum(v, shared);
}

/* 13 FLOPs and 2 element sizes an element: x is read thrice, twice of it from the caches. */
template <class T, int WIDTH> __global__ void layer_forward(lg_norm_work w, lg_real<T> eps)
{
    using R = lg_real<T>;
    LG_SHARED(R, shared, [LG_WARP]);
    LG_SHARED(lg_careful<R>, careful, [LG_WARP]);
    const int64_t rows_a_block = THREADS / WIDTH;
    const int at = threadIdx.x % WIDTH;
    for (int64_t row = blockIdx.x * rows_a_block + threadIdx.x / WIDTH; row < w.groups; row += gridDim.x * rows_a_block) {
        const T *x = static_cast<const T *>(w.x) + row * w.count;
        T *y = static_cast<T *>(w.y) + row * w.count;
        const R n = static_cast<R>(w.count > 0 ? w.count : 1);
        lg_careful<R> sum = {0, 0};
        R squares = 0;
        for (int64_t j = at; j < w.count; j += WIDTH) sum.add(lg_load(x[j]));
        const R mean = row_sum<WIDTH>(sum, careful).mean(n);
        for (int64_t j = at; j < w.count; j += WIDTH) {
            const R d = lg_load(x[j]) - mean;
            squares += d * d;
        }
        const R invstd = inverse_root(row_sum<WIDTH>(squares, shared) / n + eps);
        for (int64_t j = at; j < w.count; j += WIDTH) {
            const R unit = (lg_load(x[j]) - mean) * invstd;
            y[j] = lg_store<T>(unit * parameter<T>(w.weight, j, R(1)) + parameter<T>(w.bias, j, R(0)));
        }
        if (at != 0) continue;
        static_cast<R *>(w.mean)[row] = mean;
        static_cast<R *>(w.invstd)[row] = invstd;
    }
}

/* gx: 12 FLOPs and 3 element sizes an element, g and x read twice. */
template <class T, int WIDTH> __global__ void layer_gradient(lg_norm_work w)
{
    using R = lg_real<T>;
    LG_SHARED(R, shared, [LG_WARP]);
    const int64_t rows_a_block = THREADS / WIDTH;
    const int at = threadIdx.x % WIDTH;
    for (int64_t row = blockIdx.x * rows_a_block + threadIdx.x / WIDTH; row < w.groups; row += gridDim.x * rows_a_block) {
        const T *x = static_cast<const T *>(w.x) + row * w.count, *g = static_cast<const T *>(w.g) + row * w.count;
        T *gx = static_cast<T *>(w.y) + row * w.count;
        const R mean = static_cast<const R *>(w.mean)[row], invstd = static_cast<const R *>(w.invstd)[row];
        const R n = static_cast<R>(w.count);
        R sum = 0, dot = 0;
        for (int64_t j = at; j < w.count; j += WIDTH) {
            const R d = lg_load(g[j]) * parameter<T>(w.weight, j, R(1));
            sum += d;
            dot += d * ((lg_load(x[j]) - mean) * invstd);
        }
        sum = row_sum<WIDTH>(sum, shared) / n;
        dot = row_sum<WIDTH>(dot, shared) / n;
        for (int64_t j = at; j < w.count; j += WIDTH) {
            const R d = lg_load(g[j]) * parameter<T>(w.weight, j, R(1)), unit = (lg_load(x[j]) - mean) * invstd;
            gx[j] = lg_store<T>(invstd * (d - (sum + unit * dot)));
        }
    }
}

/* Sums of g and of g times the unit of x along slices of the rows: lanes are columns, warps share the rows.
 * 5 FLOPs and 2 element sizes an element. */
template <class T> __global__ void layer_sums(lg_norm_work w)
{
    using R = lg_real<T>;
    LG_SHARED(R, shared, [2 * THREADS]);
    const int lane = threadIdx.x % LG_WARP, warp = threadIdx.x / LG_WARP;
    const int64_t tiles = (w.count + LG_WARP - 1) / LG_WARP;
    for (int64_t unit = blockIdx.x; unit < tiles * w.slices; unit += gridDim.x) {
        const int64_t slice = unit % w.slices, column = unit / w.slices * LG_WARP + lane, rest = w.groups % w.slices;
        const int64_t begin = w.groups / w.slices * slice + (slice < rest ? slice : rest);
        const int64_t end = begin + w.groups / w.slices + (slice < rest ? 1 : 0);
        R bias = 0, weight = 0;
        for (int64_t row = begin + warp; row < end && column < w.count; row += ROWS) {
            const R d = lg_load(static_cast<const T *>(w.g)[row * w.count + column]);
            const R x = lg_load(static_cast<const T *>(w.x)[row * w.count + column]);
            bias += d;
            weight += d * ((x - static_cast<const R *>(w.mean)[row]) * static_cast<const R *>(w.invstd)[row]);
        }
        shared[threadIdx.x] = bias;
        shared[THREADS + threadIdx.x] = weight;
        __syncthreads();
        if (warp == 0 && column < w.count) {
            R *out = static_cast<R *>(w.partial) + (column * w.slices + slice) * 2;
            out[0] = out[1] = 0;
            for (int k = 0; k < ROWS; ++k) {
                out[0] += shared[k * LG_WARP + lane];
                out[1] += shared[THREADS + k * LG_WARP + lane];
            }
        }
        __syncthreads();
    }
}

/* ---- launchers */

template <class T> static cudaError_t statistics(const lg_norm_work *w, cudaStream_t stream)
{
    using R = lg_real<T>;
    cudaError_t code = cudaSuccess;
    if (w->training && w->count > 0)
        code = LG_LAUNCH(batch_statistics<T>, grid_of(w), dim3(THREADS), 0, stream, *w);
    if (code != cudaSuccess) return code;
    return LG_LAUNCH(batch_finish<T>, dim3(lg_blocks(w->groups, THREADS)), dim3(THREADS), 0, stream, *w,
                     static_cast<R>(w->eps), static_cast<R>(w->momentum));
}

template <class R> static cudaError_t finish_sums(const lg_norm_work *w, int64_t n, cudaStream_t stream)
{
    return LG_LAUNCH(add_slices<R>, dim3(lg_blocks(n, THREADS)), dim3(THREADS), 0, stream,
                     static_cast<const R *>(w->partial), n, w->slices, static_cast<R *>(w->gbias), static_cast<R *>(w->gweight));
}

template <class T> static cudaError_t channel_sums(const lg_norm_work *w, cudaStream_t stream)
{
    const cudaError_t code = LG_LAUNCH(batch_sums<T>, grid_of(w), dim3(THREADS), 0, stream, *w);
    return code != cudaSuccess ? code : finish_sums<lg_real<T>>(w, w->groups, stream);
}

template <class T> static cudaError_t column_sums(const lg_norm_work *w, cudaStream_t stream)
{
    const dim3 grid(lg_blocks((w->count + LG_WARP - 1) / LG_WARP * w->slices, 1));
    const cudaError_t code = LG_LAUNCH(layer_sums<T>, grid, dim3(THREADS), 0, stream, *w);
    return code != cudaSuccess ? code : finish_sums<lg_real<T>>(w, w->count, stream);
}

enum { SHORT_ROW = 1024 }; /* for a warp */

template <class T> static cudaError_t rows_forward(const lg_norm_work *w, cudaStream_t stream)
{
    const lg_real<T> eps = static_cast<lg_real<T>>(w->eps);
    if (w->count <= SHORT_ROW)
        return LG_LAUNCH((layer_forward<T, LG_WARP>), dim3(lg_blocks(w->groups, ROWS)), dim3(THREADS), 0, stream, *w, eps);
    return LG_LAUNCH((layer_forward<T, THREADS>), dim3(lg_blocks(w->groups, 1)), dim3(THREADS), 0, stream, *w, eps);
}

template <class T> static cudaError_t rows_gradient(const lg_norm_work *w, cudaStream_t stream)
{
    if (w->count <= SHORT_ROW)
        return LG_LAUNCH((layer_gradient<T, LG_WARP>), dim3(lg_blocks(w->groups, ROWS)), dim3(THREADS), 0, stream, *w);
    return LG_LAUNCH((layer_gradient<T, THREADS>), dim3(lg_blocks(w->groups, 1)), dim3(THREADS), 0, stream, *w);
}

#define LAUNCHER(name, ...)                                               \
    cudaError_t lg_cuda_launch_##name(const lg_norm_work *w, cudaStream_t stream) \
    {                                                                     \
        LG_FOR_FLOATS(w->dtype, return __VA_ARGS__);                      \
        return cudaSuccess;                                               \
    }
LAUNCHER(batch_statistics, statistics<T>(w, stream))
LAUNCHER(batch_apply, LG_LAUNCH(batch_apply<T>, grid_of(w), dim3(THREADS), 0, stream, *w))
LAUNCHER(batch_sums, channel_sums<T>(w, stream))
LAUNCHER(batch_gradient, LG_LAUNCH(batch_gradient<T>, grid_of(w), dim3(THREADS), 0, stream, *w))
LAUNCHER(layer_forward, rows_forward<T>(w, stream))
LAUNCHER(layer_gradient, rows_gradient<T>(w, stream))
LAUNCHER(layer_sums, column_sums<T>(w, stream))
