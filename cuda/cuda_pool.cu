/* Pooling, a thread an element of what is written. Gradients are gathered: each element of gx asks the windows
 * that it lies in, in their order, so there are no atomics and no tensors of indices. Launched by cuda_pool.c. */
#include "cuda/cuda_pool.h"
#include "cuda/kernel.cuh"

enum { THREADS = LG_BLOCK_MAX };

/* ---- windows along one axis; the same as ops/pool.c's */

struct window { int64_t from, to, padded; };

__device__ __forceinline__ window window_at(const lg_pool_work &w, int axis, int64_t i)
{
    const int64_t size = w.size[axis], out = w.out[axis];
    if (w.adaptive) {
        const int64_t whole = size / out, rest = size % out;
        const int64_t from = i * whole + i * rest / out, to = (i + 1) * whole + ((i + 1) * rest + out - 1) / out;
        return {from, to, to - from};
    }
    const int64_t from = i * w.stride[axis] - w.padding[axis];
    int64_t to = from + w.kernel[axis];
    if (to > size + w.padding[axis]) to = size + w.padding[axis];
    return {from > 0 ? from : 0, to < size ? to : size, to - from};
}

/* The windows [first, last] that may hold element i; window_at tells. */
__device__ __forceinline__ void windows_of(const lg_pool_work &w, int axis, int64_t i, int64_t *first, int64_t *last)
{
    const int64_t out = w.out[axis];
    if (w.adaptive) {
        *first = i * out / w.size[axis] - 1;
        *last = (i + 1) * out / w.size[axis] + 1;
    } else {
        const int64_t end = i + w.padding[axis], begin = end - w.kernel[axis] + 1;
        *first = begin <= 0 ? 0 : (begin + w.stride[axis] - 1) / w.stride[axis];
        *last = end / w.stride[axis];
    }
    if (*first < 0) *first = 0;
    if (*last > out - 1) *last = out - 1;
}

struct place { int64_t n, c, row, col; };

/* Element i of [n, c, size] in the order of memory. */
__device__ __forceinline__ place place_of(const lg_pool_work &w, const int64_t size[2], int64_t i)
{
    place p;
    if (w.channels_last) {
        p.c = i % w.c;
        i /= w.c;
    }
    p.col = i % size[1];
    p.row = i / size[1] % size[0];
    i /= size[1] * size[0];
    if (!w.channels_last) {
        p.c = i % w.c;
        i /= w.c;
    }
    p.n = i;
    return p;
}

__device__ __forceinline__ int64_t at(const int64_t stride[4], const place &p, int64_t row, int64_t col)
{
    return p.n * stride[0] + p.c * stride[1] + row * stride[2] + col * stride[3];
}

/* ---- maximum: a comparison an element of each window, which is read once from memory */

template <class R> __device__ __forceinline__ bool better(R other, R value) { return other > value || (other != other && value == value); }

template <class T> __global__ void max_pool(lg_pool_work w)
{
    using R = lg_real<T>;
    const T *x = static_cast<const T *>(w.x);
    const int64_t outputs = w.n * w.c * w.out[0] * w.out[1];
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < outputs; i += (int64_t)gridDim.x * blockDim.x) {
        const place p = place_of(w, w.out, i);
        const window rows = window_at(w, 0, p.row), cols = window_at(w, 1, p.col);
        R best = lg_load(x[at(w.x_stride, p, rows.from, cols.from)]);
        for (int64_t r = rows.from; r < rows.to; ++r) {
            for (int64_t c = cols.from; c < cols.to; ++c) {
                const R v = lg_load(x[at(w.x_stride, p, r, c)]);
                if (better(v, best)) best = v;
            }
        }
        static_cast<T *>(w.result)[at(w.y_stride, p, p.row, p.col)] = lg_store<T>(best);
    }
}

/* Whether the first largest element (or first NaN) of a window is the one at (row, col) of p. */
template <class T> __device__ bool is_first(const lg_pool_work &w, const place &p, window rows, window cols)
{
    using R = lg_real<T>;
    const T *x = static_cast<const T *>(w.x);
    const R mine = lg_load(x[at(w.x_stride, p, p.row, p.col)]);
    for (int64_t r = rows.from; r < rows.to; ++r) {
        for (int64_t c = cols.from; c < cols.to; ++c) {
            const R v = lg_load(x[at(w.x_stride, p, r, c)]);
            const bool before = r < p.row || (r == p.row && c < p.col);
            if (better(v, mine) || (before && !better(mine, v))) return false;
        }
    }
    return true;
}

/* Reads g and y where windows overlap more than once; a window only where its maximum equals the element. */
template <class T> __global__ void max_pool_gradient(lg_pool_work w)
{
    using R = lg_real<T>;
    const T *x = static_cast<const T *>(w.x), *y = static_cast<const T *>(w.y), *g = static_cast<const T *>(w.g);
    const int64_t elements = w.n * w.c * w.size[0] * w.size[1];
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < elements; i += (int64_t)gridDim.x * blockDim.x) {
        const place p = place_of(w, w.size, i);
        const R mine = lg_load(x[at(w.x_stride, p, p.row, p.col)]);
        int64_t row, last_row, first_col, last_col;
        windows_of(w, 0, p.row, &row, &last_row);
        windows_of(w, 1, p.col, &first_col, &last_col);
        R sum = 0;
        for (; row <= last_row; ++row) {
            const window rows = window_at(w, 0, row);
            for (int64_t col = first_col; col <= last_col; ++col) {
                const window cols = window_at(w, 1, col);
                if (p.row < rows.from || p.row >= rows.to || p.col < cols.from || p.col >= cols.to) continue;
                const R most = lg_load(y[at(w.y_stride, p, row, col)]);
                if (mine != most && mine == mine) continue;
                if (is_first<T>(w, p, rows, cols)) sum += lg_load(g[at(w.g_stride, p, row, col)]);
            }
        }
        static_cast<T *>(w.result)[at(w.gx_stride, p, p.row, p.col)] = lg_store<T>(sum);
    }
}

/* ---- mean: an addition an element of each window */

template <class R> __device__ __forceinline__ R divisor(const lg_pool_work &w, const window &rows, const window &cols)
{
    if (w.include_padding) return static_cast<R>(rows.padded) * static_cast<R>(cols.padded);
    return static_cast<R>(rows.to - rows.from) * static_cast<R>(cols.to - cols.from);
}

template <class T> __global__ void avg_pool(lg_pool_work w)
{
    using R = lg_real<T>;
    const T *x = static_cast<const T *>(w.x);
    const int64_t outputs = w.n * w.c * w.out[0] * w.out[1];
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < outputs; i += (int64_t)gridDim.x * blockDim.x) {
        const place p = place_of(w, w.out, i);
        const window rows = window_at(w, 0, p.row), cols = window_at(w, 1, p.col);
        R sum = 0;
        for (int64_t r = rows.from; r < rows.to; ++r) {
            R line = 0; /* summed by rows: global pooling adds thousands */
            for (int64_t c = cols.from; c < cols.to; ++c) line += lg_load(x[at(w.x_stride, p, r, c)]);
            sum += line;
        }
        static_cast<T *>(w.result)[at(w.y_stride, p, p.row, p.col)] = lg_store<T>(sum / divisor<R>(w, rows, cols));
    }
}

template <class T> __global__ void avg_pool_gradient(lg_pool_work w)
{
    using R = lg_real<T>;
    const T *g = static_cast<const T *>(w.g);
    const int64_t elements = w.n * w.c * w.size[0] * w.size[1];
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < elements; i += (int64_t)gridDim.x * blockDim.x) {
        const place p = place_of(w, w.size, i);
        int64_t row, last_row, first_col, last_col;
        windows_of(w, 0, p.row, &row, &last_row);
        windows_of(w, 1, p.col, &first_col, &last_col);
        R sum = 0;
        for (; row <= last_row; ++row) {
            const window rows = window_at(w, 0, row);
            for (int64_t col = first_col; col <= last_col; ++col) {
                const window cols = window_at(w, 1, col);
                if (p.row < rows.from || p.row >= rows.to || p.col < cols.from || p.col >= cols.to) continue;
                sum += lg_load(g[at(w.g_stride, p, row, col)]) / divisor<R>(w, rows, cols);
            }
        }
        static_cast<T *>(w.result)[at(w.gx_stride, p, p.row, p.col)] = lg_store<T>(sum);
    }
}

/* ---- launchers */

static dim3 grid_of(const lg_pool_work *w, const int64_t size[2])
{
    return dim3(lg_blocks(w->n * w->c * size[0] * size[1], THREADS));
}

cudaError_t lg_cuda_launch_max_pool(const lg_pool_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH(max_pool<T>, grid_of(w, w->out), dim3(THREADS), 0, stream, *w));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_max_pool_gradient(const lg_pool_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH(max_pool_gradient<T>, grid_of(w, w->size), dim3(THREADS), 0, stream, *w));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_avg_pool(const lg_pool_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH(avg_pool<T>, grid_of(w, w->out), dim3(THREADS), 0, stream, *w));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_avg_pool_gradient(const lg_pool_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH(avg_pool_gradient<T>, grid_of(w, w->size), dim3(THREADS), 0, stream, *w));
    return cudaSuccess;
}
