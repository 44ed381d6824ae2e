/* Between the emulated keywords (kernel_shim.h), which kernels are compiled with, and what runs the kernels
 * (kernel_run.cpp): where the running CUDA thread stands, what it can wait for, and a queued launch.
 * Kernels run one block after the other, each block thread by thread on one CPU thread; the caller sees to
 * it that one kernel runs at a time. */
#ifndef LG_EMULATOR_KERNEL_RUN_H
#define LG_EMULATOR_KERNEL_RUN_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#define LG_HIDDEN __attribute__((visibility("hidden")))

/* Of the CUDA thread that runs now. */
extern LG_HIDDEN uint3 threadIdx, blockIdx;
extern LG_HIDDEN dim3 blockDim, gridDim;
static const int warpSize = 32;

namespace emulated {

/* A place in a kernel's source. */
struct site {
    const char *file;
    int line;
};

enum class barrier { plain, count, all, any };
enum class collective { none, sync, shuffle, ballot };

/* Waits for the block's other threads; the number of (count), or whether all or any, have `vote` set. */
LG_HIDDEN int block_barrier(barrier kind, bool vote, site at);
/* Waits for the lanes in `mask`; the shuffled bits, those of lane `from` (-1: the caller's own), or the ballot. */
LG_HIDDEN uint64_t warp_collective(unsigned mask, collective kind, uint64_t bits, int from, site at);
/* The block's array of a declaration, which `key` names; NaNs at first. */
LG_HIDDEN void *shared_array(const void *key, size_t bytes, size_t alignment, const char *name);
LG_HIDDEN void *dynamic_shared(void);
LG_HIDDEN unsigned lane(void);
LG_HIDDEN void memory_fence(void);

/* One launch. `call` runs the kernel as one CUDA thread with the arguments that lie in `arguments`. */
struct launch {
    const char *name;
    const void *function;
    dim3 grid, block;
    size_t shared;
    void (*call)(const void *function, const void *arguments);
    void (*destroy)(void *arguments);
    void *arguments;
    size_t argument_bytes;
};

/* Runs all of the grid. `before` and `after` are objects for TSan to order by: the kernel's threads rely on
 * what the caller's context did before, and release `after`. Nothing else orders them with kernels of other
 * `stream` numbers, or blocks with each other. */
LG_HIDDEN void run_kernel(const launch *work, void *before, void *after, int stream);

/* Ends the process with a message about the running kernel, or about whoever called the runtime. */
[[noreturn]] LG_HIDDEN void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The running kernel's name; NULL: none runs. */
LG_HIDDEN const char *running_kernel(void);

} // namespace emulated

/* The emulated cudaLaunchKernel; takes over work->arguments whatever the answer. */
extern "C" LG_HIDDEN cudaError_t lg_emulated_launch(emulated::launch *work, cudaStream_t stream);

#endif
