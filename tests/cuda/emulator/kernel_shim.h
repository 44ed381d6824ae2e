/* Lets the host's C++ compiler compile a kernel source: the compiler is told to include this first
 * (-include). Keywords vanish, built-in variables and functions become ordinary ones, shared memory and
 * launches go through the macros that cuda/kernel.cuh leaves to whoever defines LG_EMULATED. Needs headers
 * of CUDA and no nvcc. */
#ifndef LG_EMULATOR_KERNEL_SHIM_H
#define LG_EMULATOR_KERNEL_SHIM_H

#ifndef LG_EMULATED
#define LG_EMULATED
#endif

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <new>
#include <stdlib.h>
#include <tuple>
#include <type_traits>
#include <vector_functions.h>
#include "tests/cuda/emulator/kernel_run.h"

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __managed__
#undef __launch_bounds__
#undef __forceinline__
#undef __noinline__
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))

#include "tests/cuda/emulator/device_functions.h"

/* A static array is one of the running block. */
#define LG_SHARED(type, name, dims)                  \
    typedef type lg_type_of_##name dims;             \
    static const char lg_key_of_##name = 0;          \
    lg_type_of_##name &name = *static_cast<lg_type_of_##name *>(emulated::shared_array( \
        &lg_key_of_##name, sizeof(lg_type_of_##name), alignof(lg_type_of_##name), #name))
#define LG_DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emulated::dynamic_shared())

namespace emulated {

template <class... Params> struct signature {
    using arguments = std::tuple<Params...>;
    static void call(const void *function, const void *given)
    {
        std::apply(reinterpret_cast<void (*)(Params...)>(const_cast<void *>(function)),
                   *static_cast<const arguments *>(given));
    }
    static void destroy(void *given) { free(given); }
};

} // namespace emulated

/* As cuda/kernel.cuh's for the GPU. The memory for the arguments is zeroed, since its unused bytes are
 * looked at too. */
template <class... Params, class... Args>
static cudaError_t lg_launch_named(const char *name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared,
                                   cudaStream_t stream, Args... args)
{
    static_assert(sizeof...(Params) == sizeof...(Args), "a kernel gets as many arguments as it takes");
    using of_kernel = emulated::signature<Params...>;
    using arguments = typename of_kernel::arguments;
    static_assert(std::is_trivially_destructible<arguments>::value, "a kernel takes plain structs");
    const size_t room = (sizeof(arguments) + 63) / 64 * 64;
    void *copy = aligned_alloc(64, room);
    if (copy == nullptr) return cudaErrorMemoryAllocation;
    __builtin_memset(copy, 0, room);
    asm volatile("" : : "r"(copy) : "memory"); /* else it is left out: a constructor follows */
    new (copy) arguments(static_cast<Params>(args)...);
    emulated::launch work = {name,  reinterpret_cast<const void *>(kernel), grid, block, shared, of_kernel::call,
                             of_kernel::destroy, copy, sizeof(arguments)};
    return lg_emulated_launch(&work, stream);
}

#endif
