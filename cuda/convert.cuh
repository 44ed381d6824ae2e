/* Conversions between element types, as core/dtype.h says: floats become integers by cutting towards zero,
 * limited to what fits, NaN becomes 0. */
#ifndef LG_CUDA_CONVERT_CUH
#define LG_CUDA_CONVERT_CUH

#include "cuda/kernel.cuh"

template <class I, class F> __device__ __forceinline__ I lg_cut(F v)
{
    constexpr bool is_signed = std::is_signed<I>::value;
    constexpr I high = is_signed ? I((1ull << (8 * sizeof(I) - 1)) - 1) : I(~I(0));
    constexpr I low = is_signed ? I(-high - 1) : I(0);
    if (!(v == v)) return 0;
    if (v <= static_cast<F>(low)) return low;
    return v >= static_cast<F>(high) ? high : static_cast<I>(v); /* a limit that F cannot hold is rounded up */
}

template <class To, class V> struct lg_converter {
    __device__ static To of(V v)
    {
        if constexpr (std::is_same<To, lg_bool>::value)
            return lg_bool{static_cast<unsigned char>(v != V(0))};
        else if constexpr (std::is_integral<To>::value && std::is_floating_point<V>::value)
            return lg_cut<To>(v);
        else
            return lg_store<To>(static_cast<lg_real<To>>(v));
    }
};

#endif
