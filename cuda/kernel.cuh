/* What every kernel source includes: element types and what computes for them, loads of 16 bytes, launches.
 * The same source is compiled by nvcc for the GPU and, in the tests, by the host's C++ compiler, which then
 * runs it thread by thread (tests/cuda/emulator): so no <<<>>>, shared memory only through the macros here,
 * no libraries of device code, and blocks of at most 256 threads. */
#ifndef LG_CUDA_KERNEL_CUH
#define LG_CUDA_KERNEL_CUH

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <type_traits>
#include "cuda/geometry.h"
#include "cuda/trouble.h"

#ifndef LG_EMULATED /* defined by the emulator's header, which the compiler is told to include first */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define LG_SHARED(type, name, dims) __shared__ type name dims
/* Memory whose size the launch says; one array a kernel. */
#define LG_DYNAMIC_SHARED(type, name)                                         \
    extern __shared__ __align__(16) unsigned char lg_dynamic_shared_memory[]; \
    type *name = reinterpret_cast<type *>(lg_dynamic_shared_memory)

template <class... Params, class... Args>
static cudaError_t lg_launch_named(const char *, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared,
                                   cudaStream_t stream, Args... args)
{
    static_assert(sizeof...(Params) == sizeof...(Args), "a kernel gets as many arguments as it takes");
    return [&](Params... exact) {
        void *pointers[] = {static_cast<void *>(&exact)..., nullptr};
        return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, pointers, shared, stream);
    }(static_cast<Params>(args)...);
}
#endif

/* Counted for luge_device_get_counts, which cuda_backend.c answers; weak, so that kernels can do without it. */
extern "C" {
__attribute__((weak)) long long lg_cuda_launches;
}

/* Queues a kernel; the answer is to be checked by the caller on the host (lg_cuda_check). */
#define LG_LAUNCH(kernel, grid, block, shared, stream, ...)         \
    (__atomic_fetch_add(&lg_cuda_launches, 1LL, __ATOMIC_RELAXED), \
     lg_launch_named(#kernel, kernel, grid, block, shared, stream, __VA_ARGS__))

/* What functions of headers shared with C become: ops/scalar_ops.h, core/rng.h... */
#define LG_INLINE static __host__ __device__ __forceinline__
#ifndef LG_EMULATED
#define LG_COSPI cospi /* cos() keeps a table on the stack */
#endif

/* ---- element types: values of luge_dtype, which C++ cannot include */

enum { LG_F32, LG_F64, LG_F16, LG_BF16, LG_I64, LG_I32, LG_U8, LG_BOOL };

struct lg_bool { unsigned char v; };    /* 0 or 1 */

/* What computes for a stored type: f32 for halves, the type itself else (bool: u8). */
template <class T> struct lg_compute { using type = T; };
template <> struct lg_compute<__half> { using type = float; };
template <> struct lg_compute<__nv_bfloat16> { using type = float; };
template <> struct lg_compute<lg_bool> { using type = unsigned char; };
template <class T> using lg_real = typename lg_compute<T>::type;

template <class T> __device__ __forceinline__ lg_real<T> lg_load(T v) { return v; }
__device__ __forceinline__ float lg_load(__half v) { return __half2float(v); }
__device__ __forceinline__ float lg_load(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ unsigned char lg_load(lg_bool v) { return v.v; }

template <class T> __device__ __forceinline__ T lg_store(lg_real<T> v) { return v; }
template <> __device__ __forceinline__ __half lg_store<__half>(float v) { return __float2half_rn(v); }
template <> __device__ __forceinline__ __nv_bfloat16 lg_store<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }
template <> __device__ __forceinline__ lg_bool lg_store<lg_bool>(unsigned char v)
{
    return lg_bool{static_cast<unsigned char>(v != 0)};
}

/* Runs `...` with T as the stored type of a float dtype, of any dtype. `dtype` must be one of them: the .c
 * file has checked it, and another gives cudaErrorInvalidValue. */
#define LG_CASE_(d, type, ...) \
    case d: { using T = type; __VA_ARGS__; } break
#define LG_FOR_FLOATS(dtype, ...)                 \
    switch (dtype) {                              \
        LG_CASE_(LG_F32, float, __VA_ARGS__);     \
        LG_CASE_(LG_F64, double, __VA_ARGS__);    \
        LG_CASE_(LG_F16, __half, __VA_ARGS__);    \
        LG_CASE_(LG_BF16, __nv_bfloat16, __VA_ARGS__); \
    default: return cudaErrorInvalidValue;        \
    }
#define LG_FOR_ALL(dtype, ...)                    \
    switch (dtype) {                              \
        LG_CASE_(LG_F32, float, __VA_ARGS__);     \
        LG_CASE_(LG_F64, double, __VA_ARGS__);    \
        LG_CASE_(LG_F16, __half, __VA_ARGS__);    \
        LG_CASE_(LG_BF16, __nv_bfloat16, __VA_ARGS__); \
        LG_CASE_(LG_I64, int64_t, __VA_ARGS__);   \
        LG_CASE_(LG_I32, int32_t, __VA_ARGS__);   \
        LG_CASE_(LG_U8, unsigned char, __VA_ARGS__); \
        LG_CASE_(LG_BOOL, lg_bool, __VA_ARGS__);  \
    default: return cudaErrorInvalidValue;        \
    }

/* ---- 16 bytes at a time */

template <class T> struct alignas(16) lg_pack { T v[16 / sizeof(T)]; };

/* ---- where element i of an operand lies */

__device__ __forceinline__ int64_t lg_offset(const lg_geometry &g, int operand, int64_t i)
{
    if (g.flat) return i * g.stride[operand][0];
    int64_t offset = 0;
#pragma unroll 1
    for (int axis = 0; axis < g.rank; ++axis) {
        const int64_t next = i / g.size[axis];
        offset += (i - next * g.size[axis]) * g.stride[operand][axis];
        i = next;
    }
    return offset;
}

/* ---- within a warp and a block: always in the same order, so that sums have the same bits */

enum { LG_WARP = 32, LG_BLOCK_MAX = 256 };

template <class R> __device__ __forceinline__ R lg_warp_sum(R v)
{
    for (int d = LG_WARP / 2; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

/* The sum over a block of whole warps, in every thread. `shared` has room for 32 values; it may be used
 * again after a barrier. */
template <class R> __device__ __forceinline__ R lg_block_sum(R v, R *shared)
{
    const int lane = threadIdx.x % LG_WARP, warp = threadIdx.x / LG_WARP, warps = (int)blockDim.x / LG_WARP;
    v = lg_warp_sum(v);
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    R total = 0;
    for (int w = 0; w < warps; ++w) total += shared[w];
    __syncthreads();
    return total;
}

__device__ __forceinline__ float lg_fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double lg_fused(double a, double b, double c) { return fma(a, b, c); }

/* A sum that also keeps what rounding took from it (Knuth's two-sum): as good as one of twice the bits. */
template <class R> struct lg_careful {
    R sum, lost;
    __device__ __forceinline__ void add(R v)
    {
        const R next = sum + v, part = next - sum;
        lost += (sum - (next - part)) + (v - part);
        sum = next;
    }
    __device__ __forceinline__ void merge(const lg_careful &other)
    {
        add(other.sum);
        lost += other.lost;
    }
    /* Where the sum is infinite or NaN, what was lost is no number. */
    __device__ __forceinline__ R value() const { return sum - sum == R(0) ? sum + lost : sum; }
    /* Of n elements: that of equal ones is exactly theirs. */
    __device__ __forceinline__ R mean(R n) const
    {
        const R rough = sum / n;
        return sum - sum == R(0) ? rough + (lg_fused(-rough, n, sum) + lost) / n : rough;
    }
};

/* Over a warp, in every lane. */
template <class R> __device__ __forceinline__ lg_careful<R> lg_warp_sum(lg_careful<R> v)
{
    for (int d = LG_WARP / 2; d > 0; d /= 2)
        v.merge(lg_careful<R>{__shfl_xor_sync(0xffffffffu, v.sum, d), __shfl_xor_sync(0xffffffffu, v.lost, d)});
    return {__shfl_sync(0xffffffffu, v.sum, 0), __shfl_sync(0xffffffffu, v.lost, 0)}; /* lanes round differently */
}

/* Over a block, as lg_block_sum. */
template <class R> __device__ __forceinline__ lg_careful<R> lg_block_sum(lg_careful<R> v, lg_careful<R> *shared)
{
    const int lane = threadIdx.x % LG_WARP, warp = threadIdx.x / LG_WARP, warps = (int)blockDim.x / LG_WARP;
    v = lg_warp_sum(v);
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    lg_careful<R> total = shared[0];
    for (int w = 1; w < warps; ++w) total.merge(shared[w]);
    __syncthreads();
    return total;
}

/* ---- grids */

static inline unsigned lg_blocks(int64_t items, int64_t per_block)
{
    const int64_t n = (items + per_block - 1) / per_block;
    return (unsigned)(n < 1 ? 1 : n > 0x7fffffff ? 0x7fffffff : n);
}

/* Whole warps, no more than there is work for. */
static inline dim3 lg_threads(int64_t items)
{
    if (items >= LG_BLOCK_MAX) return dim3(LG_BLOCK_MAX);
    return dim3((unsigned)(items < 1 ? 1 : (items + LG_WARP - 1) / LG_WARP) * LG_WARP);
}

/* Notes what is wrong with the data, if nothing was noted before. */
__device__ __forceinline__ void lg_note_trouble(lg_cuda_trouble *t, int kind, long long value, long long limit,
                                                long long place)
{
    if (atomicCAS(reinterpret_cast<unsigned *>(&t->kind), (unsigned)LG_TROUBLE_NONE, (unsigned)kind) != LG_TROUBLE_NONE)
        return;
    t->value = value;
    t->limit = limit;
    t->place = place;
}

#endif
