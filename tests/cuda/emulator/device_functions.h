/* CUDA's built-in device functions as host code; included by kernel_shim.h. Those with the names of the C
 * library (expf, erff, fmaf...) are the C library's. */
#ifndef LG_EMULATOR_DEVICE_FUNCTIONS_H
#define LG_EMULATOR_DEVICE_FUNCTIONS_H

#include <math.h>
#include <cmath>

namespace emulated {

template <class T> inline uint64_t bits_of(T value)
{
    static_assert(sizeof(T) <= 8, "a value of at most 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T> inline T value_of(uint64_t bits)
{
    T value;
    __builtin_memcpy(static_cast<void *>(&value), &bits, sizeof value);
    return value;
}

/* Lane `from`'s value, or the caller's own where CUDA says so. */
template <class T> inline T shuffle(unsigned mask, T value, int from, bool own, site at)
{
    return value_of<T>(warp_collective(mask, collective::shuffle, bits_of(value), own ? -1 : from, at));
}

inline unsigned ballot(unsigned mask, int predicate, site at)
{
    return static_cast<unsigned>(warp_collective(mask, collective::ballot, predicate != 0, -1, at));
}

} // namespace emulated

/* ---- barriers and warps; the last two parameters are where the caller stands */

#define LG_AT const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define LG_SITE \
    emulated::site { file, line }

inline void __syncthreads(LG_AT) { emulated::block_barrier(emulated::barrier::plain, false, LG_SITE); }
inline int __syncthreads_count(int p, LG_AT) { return emulated::block_barrier(emulated::barrier::count, p != 0, LG_SITE); }
inline int __syncthreads_and(int p, LG_AT) { return emulated::block_barrier(emulated::barrier::all, p != 0, LG_SITE); }
inline int __syncthreads_or(int p, LG_AT) { return emulated::block_barrier(emulated::barrier::any, p != 0, LG_SITE); }

inline void __syncwarp(unsigned mask = 0xffffffffu, LG_AT)
{
    emulated::warp_collective(mask, emulated::collective::sync, 0, -1, LG_SITE);
}
inline unsigned __ballot_sync(unsigned mask, int p, LG_AT) { return emulated::ballot(mask, p, LG_SITE); }
inline int __any_sync(unsigned mask, int p, LG_AT) { return emulated::ballot(mask, p, LG_SITE) != 0; }
inline int __all_sync(unsigned mask, int p, LG_AT) { return emulated::ballot(mask, p, LG_SITE) == mask; }
inline unsigned __activemask(LG_AT)
{
    emulated::fail("%s:%d: __activemask() depends on how the hardware schedules", file, line);
}

template <class T> inline T __shfl_sync(unsigned mask, T v, int from, int width = 32, LG_AT)
{
    const int lane = static_cast<int>(emulated::lane());
    return emulated::shuffle(mask, v, (lane & ~(width - 1)) + (from & (width - 1)), false, LG_SITE);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, LG_AT)
{
    const int lane = static_cast<int>(emulated::lane()), d = static_cast<int>(by);
    return emulated::shuffle(mask, v, lane + d, (lane & (width - 1)) + d >= width, LG_SITE);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, LG_AT)
{
    const int lane = static_cast<int>(emulated::lane()), d = static_cast<int>(by);
    return emulated::shuffle(mask, v, lane - d, (lane & (width - 1)) < d, LG_SITE);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32, LG_AT)
{
    const int lane = static_cast<int>(emulated::lane()), from = lane ^ by;
    return emulated::shuffle(mask, v, from, from >= (lane & ~(width - 1)) + width, LG_SITE);
}
#undef LG_AT
#undef LG_SITE

inline void __threadfence() { emulated::memory_fence(); }
inline void __threadfence_block() { emulated::memory_fence(); }
inline void __threadfence_system() { emulated::memory_fence(); }
[[noreturn]] inline void __trap() { emulated::fail("__trap()"); }
inline void __nanosleep(unsigned) {}
inline long long clock64() { return 0; }

/* ---- atomics: relaxed, as CUDA's are; of floats only what rounds nothing (sums must not depend on the order) */

#define LG_ATOMIC_INTEGER(T)                                                                             \
    inline T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }                 \
    inline T atomicExch(T *p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }               \
    inline T atomicCAS(T *p, T expected, T v)                                                            \
    {                                                                                                    \
        __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);         \
        return expected;                                                                                 \
    }                                                                                                    \
    inline T atomicMax(T *p, T v)                                                                        \
    {                                                                                                    \
        T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                    \
        while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} \
        return old;                                                                                      \
    }                                                                                                    \
    inline T atomicMin(T *p, T v)                                                                        \
    {                                                                                                    \
        T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                    \
        while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} \
        return old;                                                                                      \
    }                                                                                                    \
    inline T atomicOr(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }                   \
    inline T atomicAnd(T *p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }
LG_ATOMIC_INTEGER(int)
LG_ATOMIC_INTEGER(unsigned)
LG_ATOMIC_INTEGER(unsigned long long)
#undef LG_ATOMIC_INTEGER
inline unsigned short atomicCAS(unsigned short *p, unsigned short expected, unsigned short v)
{
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
inline unsigned atomicSub(unsigned *p, unsigned v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }
inline int atomicSub(int *p, int v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }
inline unsigned atomicInc(unsigned *p, unsigned limit)
{
    unsigned old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, old >= limit ? 0u : old + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}
inline float atomicExch(float *p, float v)
{
    return emulated::value_of<float>(atomicExch(reinterpret_cast<unsigned *>(p), (unsigned)emulated::bits_of(v)));
}

/* ---- loads and stores with hints */

template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline void __stcs(T *p, T v) { *p = v; }
template <class T> inline void __stcg(T *p, T v) { *p = v; }

/* ---- bits */

inline unsigned __float_as_uint(float v) { return emulated::value_of<unsigned>(emulated::bits_of(v)); }
inline int __float_as_int(float v) { return emulated::value_of<int>(emulated::bits_of(v)); }
inline float __uint_as_float(unsigned v) { return emulated::value_of<float>(v); }
inline float __int_as_float(int v) { return emulated::value_of<float>(static_cast<unsigned>(v)); }
inline long long __double_as_longlong(double v) { return emulated::value_of<long long>(emulated::bits_of(v)); }
inline double __longlong_as_double(long long v) { return emulated::value_of<double>(static_cast<uint64_t>(v)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }
inline int __clzll(long long v) { return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v)); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned __brev(unsigned v)
{
    unsigned r = 0;
    for (int i = 0; i < 32; ++i) r |= (v >> i & 1u) << (31 - i);
    return r;
}

/* ---- arithmetic */

/* The C library declares these names for itself, so they are macros: its full-accuracy functions. */
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)

/* Sine and cosine of pi x: of the distance to the nearest half, then turned by halves. */
inline void sincospi(double x, double *sine, double *cosine)
{
    const double halves = rint(2 * x), r = (x - halves / 2) * 3.14159265358979323846;
    const int turn = static_cast<int>(fmod(halves, 4)) & 3;
    const double s = turn & 1 ? cos(r) : sin(r), c = turn & 1 ? sin(r) : cos(r);
    *sine = turn & 2 ? -s : s;
    *cosine = (turn + 1) & 2 ? -c : c;
}
inline void sincospif(float x, float *sine, float *cosine)
{
    double s, c;
    sincospi(static_cast<double>(x), &s, &c);
    *sine = static_cast<float>(s);
    *cosine = static_cast<float>(c);
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; /* NaN: 0 */ }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

using std::isfinite;
using std::isinf;
using std::isnan;

template <class A, class B> inline std::common_type_t<A, B> min(A a, B b)
{
    if constexpr (std::is_floating_point_v<std::common_type_t<A, B>>)
        return fmin(static_cast<std::common_type_t<A, B>>(a), static_cast<std::common_type_t<A, B>>(b));
    else return b < a ? b : a;
}
template <class A, class B> inline std::common_type_t<A, B> max(A a, B b)
{
    if constexpr (std::is_floating_point_v<std::common_type_t<A, B>>)
        return fmax(static_cast<std::common_type_t<A, B>>(a), static_cast<std::common_type_t<A, B>>(b));
    else return a < b ? b : a;
}

#endif
