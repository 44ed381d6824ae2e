/* Ranges and random numbers: what number comes from which integer is laid down by ops/create.c. A thread
 * draws one block of Philox, four integers, and makes four elements of it, or two that take 64 bits. Launched
 * by cuda_random.c. */
#include "cuda/cuda_random.h"
#include "cuda/convert.cuh"
#include "core/rng.h"

enum { THREADS = LG_BLOCK_MAX };

/* Integers a block of Philox has for T: as many elements, or half for 64 bits. */
template <class T> struct elements_a_block { static constexpr int value = sizeof(T) == 8 ? 2 : 4; };

#define EACH_BLOCK(b, each)                                                                              \
    for (int64_t b = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; b * (each) < w.g.numel;             \
         b += (int64_t)gridDim.x * blockDim.x)

/* The bits of a uniform number that the type can hold, so that rounding does not make a 1 of them. */
template <class T> __device__ __forceinline__ float unit_of(uint32_t bits) { return lg_uniform_f32(bits); }
template <> __device__ __forceinline__ float unit_of<__half>(uint32_t bits) { return (float)(bits >> 21) * 0x1p-11f; }
template <> __device__ __forceinline__ float unit_of<__nv_bfloat16>(uint32_t bits) { return (float)(bits >> 24) * 0x1p-8f; }

/* a + x b, rounded twice, as on the CPU, which has no such product and sum in one for f64. */
__device__ __forceinline__ double sum_of(double a, double x, double b) { return __dadd_rn(a, __dmul_rn(x, b)); }

/* About 25 integer operations an element; an element is written. */
template <class T> __global__ void uniform(lg_random_work w, lg_real<T> low, lg_real<T> high)
{
    using R = lg_real<T>;
    constexpr int each = elements_a_block<T>::value;
    EACH_BLOCK(b, each)
    {
        const lg_philox n = lg_philox_block(w.seed, w.stream, w.first + static_cast<uint64_t>(b));
        for (int k = 0; k < each && b * each + k < w.g.numel; ++k) {
            R v;
            if constexpr (sizeof(T) == 8)
                v = sum_of(low, lg_uniform_f64(n.v[2 * k], n.v[2 * k + 1]), high - low);
            else
                v = fmaf(unit_of<T>(n.v[k]), high - low, low);
            static_cast<T *>(w.to)[lg_offset(w.g, 0, b * each + k)] = lg_store<T>(v < high ? v : low);
        }
    }
}

/* Box and Muller. 1 - u is never 0. */
__device__ __forceinline__ void two_normals(float u, float v, float *first, float *second)
{
    const float radius = sqrtf(-2.0f * logf(1.0f - u));
    float sine, cosine;
    sincospif(2.0f * v, &sine, &cosine);
    *first = radius * cosine;
    *second = radius * sine;
}

__device__ __forceinline__ void two_normals(double u, double v, double *first, double *second)
{
    const double radius = sqrt(-2.0 * log(1.0 - u));
    double sine, cosine;
    sincospi(2.0 * v, &sine, &cosine);
    *first = radius * cosine;
    *second = radius * sine;
}

/* About 40 operations an element; an element is written. */
template <class T> __global__ void normal(lg_random_work w, lg_real<T> mean, lg_real<T> deviation)
{
    using R = lg_real<T>;
    constexpr int each = elements_a_block<T>::value;
    EACH_BLOCK(b, each)
    {
        const lg_philox n = lg_philox_block(w.seed, w.stream, w.first + static_cast<uint64_t>(b));
        R v[each];
        if constexpr (sizeof(T) == 8) {
            two_normals(lg_uniform_f64(n.v[0], n.v[1]), lg_uniform_f64(n.v[2], n.v[3]), &v[0], &v[1]);
        } else {
            two_normals(lg_uniform_f32(n.v[0]), lg_uniform_f32(n.v[1]), &v[0], &v[1]);
            two_normals(lg_uniform_f32(n.v[2]), lg_uniform_f32(n.v[3]), &v[2], &v[3]);
        }
        for (int k = 0; k < each && b * each + k < w.g.numel; ++k)
            static_cast<T *>(w.to)[lg_offset(w.g, 0, b * each + k)] = lg_store<T>(mean + deviation * v[k]);
    }
}

/* floor(bits * range / 2^64): every value has the same share but for one part in 2^64 / range. */
__global__ void randint(lg_random_work w)
{
    EACH_BLOCK(b, 2)
    {
        const lg_philox n = lg_philox_block(w.seed, w.stream, w.first + static_cast<uint64_t>(b));
        for (int k = 0; k < 2 && b * 2 + k < w.g.numel; ++k) {
            const uint64_t bits = static_cast<uint64_t>(n.v[2 * k]) << 32 | n.v[2 * k + 1];
            const uint64_t below = static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * w.range >> 64);
            static_cast<int64_t *>(w.to)[lg_offset(w.g, 0, b * 2 + k)] =
                static_cast<int64_t>(static_cast<uint64_t>(w.low) + below);
        }
    }
}

/* In f64 for every dtype: integers beyond 2^24 are exact. */
template <class T> __global__ void arange(lg_random_work w)
{
    EACH_BLOCK(i, 1)
    static_cast<T *>(w.to)[lg_offset(w.g, 0, i)] =
        lg_converter<T, double>::of(sum_of(w.a, static_cast<double>(i), w.b));
}

static dim3 grid_for(const lg_random_work *w, int each) { return dim3(lg_blocks((w->g.numel + each - 1) / each, THREADS)); }

cudaError_t lg_cuda_launch_uniform(const lg_random_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH(uniform<T>, grid_for(w, elements_a_block<T>::value), dim3(THREADS), 0, stream,
                                             *w, static_cast<lg_real<T>>(w->a), static_cast<lg_real<T>>(w->b)));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_normal(const lg_random_work *w, cudaStream_t stream)
{
    LG_FOR_FLOATS(w->dtype, return LG_LAUNCH(normal<T>, grid_for(w, elements_a_block<T>::value), dim3(THREADS), 0, stream,
                                             *w, static_cast<lg_real<T>>(w->a), static_cast<lg_real<T>>(w->b)));
    return cudaSuccess;
}

cudaError_t lg_cuda_launch_randint(const lg_random_work *w, cudaStream_t stream)
{
    return LG_LAUNCH(randint, grid_for(w, 2), dim3(THREADS), 0, stream, *w);
}

cudaError_t lg_cuda_launch_arange(const lg_random_work *w, cudaStream_t stream)
{
    LG_FOR_ALL(w->dtype, return LG_LAUNCH(arange<T>, grid_for(w, 1), dim3(THREADS), 0, stream, *w));
    return cudaSuccess;
}
