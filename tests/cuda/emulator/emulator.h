/* The emulated CUDA runtime seen from tests and from the emulated libraries. The functions are exported from
 * the emulated module beside luge_cuda_module, so that a test finds them with dlsym().
 *
 * Environment, read once:
 *   LG_EMULATED_MODE     when queued work runs: lazy (only when somebody waits; default), eager (at once),
 *                        random or random:<seed> (some of it now and then, of any stream)
 *   LG_EMULATED_ORDER    of blocks and threads: forward (default), reverse, random or random:<seed>
 *   LUGE_TEST_DEVICES    how many devices there are; default 2 (tests/cuda/module/driver.c answers the same)
 *   LG_EMULATED_MEMORY   bytes of each; default 4 GiB
 *   LG_EMULATED_PROTECT  0: device memory stays accessible while host code runs
 *   LG_EMULATED_PEERS    0: no device reaches another's memory
 *   LG_EMULATED_FAIL     <function>:<n>[:<code>], as lg_emulator_fail
 * What CUDA leaves undefined or forbids ends the process with a message on stderr and exit code 99: host
 * code or another device touching device memory, kernels outside an allocation, uses after free, the
 * default stream, destroyed handles. */
#ifndef LG_EMULATOR_EMULATOR_H
#define LG_EMULATOR_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LG_EMULATOR_API __attribute__((visibility("default")))

/* "lazy", "eager", "random:<seed>". */
LG_EMULATOR_API void lg_emulator_mode(const char *mode);

/* The n-th call from now (1: the next) of a function of CUDA's runtime or libraries fails. `function`:
 * "cudaMalloc", "cublasGemmEx"..., "launch" for kernels, "any" for whichever comes, "device" for the n-th
 * piece of queued work, whose failure shows in later calls. `code` is a cudaError_t; 0: what suits
 * the function. Functions that free do so nevertheless. After a code that breaks the device
 * (cudaErrorIllegalAddress, cudaErrorLaunchFailure...) every call fails, until lg_emulator_repair(). */
LG_EMULATOR_API void lg_emulator_fail(const char *function, long n, int code);
/* Takes back failures that have not happened; and what broke devices. */
LG_EMULATOR_API void lg_emulator_repair(void);
/* How many failures of lg_emulator_fail have happened. */
LG_EMULATOR_API long lg_emulator_failures(void);

/* Calls so far of a function, or of a kernel by its name in the source; or
 *   "any"              calls of all functions that can fail
 *   "launch"           kernels launched
 *   "wait"             times that the host waited for a device
 *   "host to device bytes", "device to host bytes", "pageable bytes" (of those two: memory that is not pinned)
 *   "device bytes", "device bytes peak"   allocated now, and at most
 *   "pending"          pieces of work queued and not run */
LG_EMULATOR_API long lg_emulator_count(const char *what);
LG_EMULATOR_API void lg_emulator_reset_counts(void);

/* Device memory, pinned memory, streams and events that are there; with `show`, each on stderr. */
LG_EMULATOR_API long lg_emulator_leaks(bool show);

/* Bytes of each device from now on. */
LG_EMULATOR_API void lg_emulator_capacity(size_t bytes);

/* ---- for the emulated libraries */

/* Counts a call; 0, or the cudaError_t with which it is to fail. */
LG_EMULATOR_API int lg_emulator_call(const char *function);
/* The same, and queues work: run(data) in the stream's order as its device, release(data) after that (or at
 * once, if the call fails). `stream` is a cudaStream_t. */
LG_EMULATOR_API int lg_emulator_enqueue(const char *function, void *stream, void (*run)(void *), void *data,
                                        void (*release)(void *));
/* Whether all of the range is memory that `stream`'s device reaches: of the device, of a peer, or pinned. */
LG_EMULATOR_API bool lg_emulator_reaches(void *stream, const void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
