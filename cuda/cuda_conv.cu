/* Kernels around cuDNN's convolutions: weights into its layout and back, the bias, and plain convolutions for
 * what cuDNN has no engine for (f64; odd geometries). Launched by cuda_conv.c. */
#include "cuda/cuda_conv.h"
#include "cuda/kernel.cuh"

/* ---- [K, C, R, S] between any two layouts: 2 element sizes moved for each element */

template <class T> __global__ void pack(const T *from, T *to, lg_conv_pack p)
{
    const int64_t n = p.size[0] * p.size[1] * p.size[2] * p.size[3];
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        /* The second axis runs fastest: dense in cuDNN's layout. */
        const int64_t c = i % p.size[1], s = i / p.size[1] % p.size[3];
        const int64_t r = i / (p.size[1] * p.size[3]) % p.size[2], k = i / (p.size[1] * p.size[3] * p.size[2]);
        to[k * p.to_stride[0] + c * p.to_stride[1] + r * p.to_stride[2] + s * p.to_stride[3]] =
            from[k * p.from_stride[0] + c * p.from_stride[1] + r * p.from_stride[2] + s * p.from_stride[3]];
    }
}

template <class T> static cudaError_t launch_pack(const lg_conv_pack *p, const void *from, void *to, cudaStream_t stream)
{
    const int64_t n = p->size[0] * p->size[1] * p->size[2] * p->size[3];
    return LG_LAUNCH(pack<T>, dim3(lg_blocks(n, LG_BLOCK_MAX)), dim3(LG_BLOCK_MAX), 0, stream,
                     static_cast<const T *>(from), static_cast<T *>(to), *p);
}

cudaError_t lg_cuda_launch_conv_pack(const lg_conv_pack *p, const void *from, void *to, cudaStream_t stream)
{
    switch (p->element) {
    case 2: return launch_pack<uint16_t>(p, from, to, stream);
    case 4: return launch_pack<uint32_t>(p, from, to, stream);
    case 8: return launch_pack<uint64_t>(p, from, to, stream);
    default: return cudaErrorInvalidValue;
    }
}

/* ---- bias: 1 FLOP and 2 element sizes (y read and written) an element */

template <class T, int N> __global__ void add_bias(T *y, const T *bias, int64_t packs, int64_t k)
{
    struct alignas(sizeof(T) * N) pack_of { T v[N]; };
    pack_of *out = reinterpret_cast<pack_of *>(y);
    const pack_of *add = reinterpret_cast<const pack_of *>(bias);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < packs; i += (int64_t)gridDim.x * blockDim.x) {
        pack_of a = out[i];
        const pack_of b = add[i % (k / N)];
        for (int j = 0; j < N; ++j) a.v[j] = lg_store<T>(lg_load(a.v[j]) + lg_load(b.v[j]));
        out[i] = a;
    }
}

template <class T> static cudaError_t launch_bias(void *y, const void *bias, int64_t rows, int64_t k, cudaStream_t stream)
{
    constexpr int wide = 16 / sizeof(T);
    const bool aligned = k % wide == 0 && (reinterpret_cast<uintptr_t>(y) | reinterpret_cast<uintptr_t>(bias)) % 16 == 0;
    const int64_t packs = aligned ? rows * (k / wide) : rows * k;
    const dim3 grid(lg_blocks(packs, LG_BLOCK_MAX)), block(LG_BLOCK_MAX);
    if (aligned)
        return LG_LAUNCH((add_bias<T, wide>), grid, block, 0, stream, static_cast<T *>(y), static_cast<const T *>(bias),
                         packs, k);
    return LG_LAUNCH((add_bias<T, 1>), grid, block, 0, stream, static_cast<T *>(y), static_cast<const T *>(bias), packs, k);
}

cudaError_t lg_cuda_launch_conv_bias(int dtype, void *y, const void *bias, int64_t rows, int64_t k, cudaStream_t stream)
{
    LG_FOR_FLOATS(dtype, return launch_bias<T>(y, bias, rows, k, stream));
    return cudaSuccess;
}

/* ---- plain convolutions: 2 cg r s FLOPs an output; operands come from the caches where they can */

/* y[n, p, q, k], a thread each. */
template <class T> __global__ void conv_forward(lg_conv_sizes g, const T *x, const T *w, T *y)
{
    const int64_t outputs = g.n * g.ho * g.wo * g.k;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < outputs; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t k = i % g.k, q = i / g.k % g.wo, p = i / (g.k * g.wo) % g.ho, n = i / (g.k * g.wo * g.ho);
        lg_real<T> sum = 0;
        for (int64_t r = 0; r < g.r; ++r) {
            const int64_t row = p * g.stride[0] - g.before[0] + r * g.dilation[0];
            for (int64_t s = 0; s < g.s && row >= 0 && row < g.h; ++s) {
                const int64_t col = q * g.stride[1] - g.before[1] + s * g.dilation[1];
                if (col < 0 || col >= g.w) continue;
                const T *from = x + ((n * g.h + row) * g.w + col) * g.c + k / g.kg * g.cg;
                const T *by = w + k * g.w_stride[0] + r * g.w_stride[2] + s * g.w_stride[3];
                for (int64_t c = 0; c < g.cg; ++c) sum += lg_load(from[c]) * lg_load(by[c * g.w_stride[1]]);
            }
        }
        y[i] = lg_store<T>(sum);
    }
}

/* The output row or column that `at` reaches through kernel element `k`; -1: none. */
__device__ __forceinline__ int64_t reaches(const lg_conv_sizes &g, int axis, int64_t at, int64_t k, int64_t outputs)
{
    const int64_t from = at + g.before[axis] - k * g.dilation[axis];
    if (from < 0 || from % g.stride[axis] != 0 || from / g.stride[axis] >= outputs) return -1;
    return from / g.stride[axis];
}

/* gx[n, row, col, c], a thread each. */
template <class T> __global__ void conv_input(lg_conv_sizes g, const T *gy, const T *w, T *gx)
{
    const int64_t elements = g.n * g.h * g.w * g.c;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < elements; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t c = i % g.c, col = i / g.c % g.w, row = i / (g.c * g.w) % g.h, n = i / (g.c * g.w * g.h);
        const int64_t first = c / g.cg * g.kg;
        lg_real<T> sum = 0;
        for (int64_t r = 0; r < g.r; ++r) {
            const int64_t p = reaches(g, 0, row, r, g.ho);
            for (int64_t s = 0; s < g.s && p >= 0; ++s) {
                const int64_t q = reaches(g, 1, col, s, g.wo);
                if (q < 0) continue;
                const T *from = gy + ((n * g.ho + p) * g.wo + q) * g.k + first;
                const T *by = w + first * g.w_stride[0] + c % g.cg * g.w_stride[1] + r * g.w_stride[2] + s * g.w_stride[3];
                for (int64_t k = 0; k < g.kg; ++k) sum += lg_load(from[k]) * lg_load(by[k * g.w_stride[0]]);
            }
        }
        gx[i] = lg_store<T>(sum);
    }
}

/* gw[k, c, r, s], a block each, with strides. */
template <class T> __global__ void conv_weight(lg_conv_sizes g, const T *gy, const T *x, T *gw)
{
    LG_SHARED(lg_real<T>, sums, [32]);
    const int64_t elements = g.k * g.cg * g.r * g.s, places = g.n * g.ho * g.wo;
    for (int64_t i = blockIdx.x; i < elements; i += gridDim.x) {
        const int64_t s = i % g.s, r = i / g.s % g.r, c = i / (g.s * g.r) % g.cg, k = i / (g.s * g.r * g.cg);
        lg_real<T> sum = 0;
        for (int64_t place = threadIdx.x; place < places; place += blockDim.x) {
            const int64_t q = place % g.wo, p = place / g.wo % g.ho, n = place / (g.wo * g.ho);
            const int64_t row = p * g.stride[0] - g.before[0] + r * g.dilation[0];
            const int64_t col = q * g.stride[1] - g.before[1] + s * g.dilation[1];
            if (row < 0 || row >= g.h || col < 0 || col >= g.w) continue;
            sum += lg_load(gy[place * g.k + k]) * lg_load(x[((n * g.h + row) * g.w + col) * g.c + k / g.kg * g.cg + c]);
        }
        sum = lg_block_sum(sum, sums);
        if (threadIdx.x == 0)
            gw[k * g.w_stride[0] + c * g.w_stride[1] + r * g.w_stride[2] + s * g.w_stride[3]] = lg_store<T>(sum);
    }
}

cudaError_t lg_cuda_launch_conv_forward(int dtype, const lg_conv_sizes *g, const void *x, const void *w, void *y,
                                        cudaStream_t stream)
{
    const dim3 grid(lg_blocks(g->n * g->ho * g->wo * g->k, LG_BLOCK_MAX)), block(LG_BLOCK_MAX);
    LG_FOR_FLOATS(dtype, return LG_LAUNCH(conv_forward<T>, grid, block, 0, stream, *g, static_cast<const T *>(x),
                                          static_cast<const T *>(w), static_cast<T *>(y)));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_conv_input(int dtype, const lg_conv_sizes *g, const void *gy, const void *w, void *gx,
                                      cudaStream_t stream)
{
    const dim3 grid(lg_blocks(g->n * g->h * g->w * g->c, LG_BLOCK_MAX)), block(LG_BLOCK_MAX);
    LG_FOR_FLOATS(dtype, return LG_LAUNCH(conv_input<T>, grid, block, 0, stream, *g, static_cast<const T *>(gy),
                                          static_cast<const T *>(w), static_cast<T *>(gx)));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_conv_weight(int dtype, const lg_conv_sizes *g, const void *gy, const void *x, void *gw,
                                       cudaStream_t stream)
{
    enum { FEW = 1024 };
    const dim3 grid(lg_blocks(g->k * g->cg * g->r * g->s, 1)), block(g->n * g->ho * g->wo <= FEW ? LG_WARP : LG_BLOCK_MAX);
    LG_FOR_FLOATS(dtype, return LG_LAUNCH(conv_weight<T>, grid, block, 0, stream, *g, static_cast<const T *>(gy),
                                          static_cast<const T *>(x), static_cast<T *>(gw)));
    return cudaSuccess;
}
