/* Fibers: stacks that take turns on one CPU thread. kernel_run.cpp runs each CUDA thread that has to wait on
 * one of its own. The switch saves what the x86-64 System V convention asks a function to keep; 16 to 19 ns
 * as measured, where swapcontext() with its two system calls takes 300. */
#ifndef LG_EMULATOR_FIBER_H
#define LG_EMULATOR_FIBER_H

#ifndef __x86_64__
#error "CUDA kernels can be emulated on x86-64 only: the switch between fibers is written for it"
#endif

#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/cuda/emulator/sanitizers.h"

namespace emulated {

struct fiber {
    void *top = nullptr;         /* the stack pointer while another one runs */
    char *stack = nullptr;       /* its lowest byte; NULL: the stack of the CPU thread */
    void *fake_stack = nullptr;  /* ASan's */
    void *context = nullptr;     /* TSan's */
    int thread = -1;             /* the CUDA thread on it */
};

enum : size_t { STACK_BYTES = with_asan || with_tsan ? 512 << 10 : 128 << 10, PAGE_BYTES = 4096 };

/* Memory that starts as zeros, or NULL; past TSan's mmap(), which would mark all of it as written. */
inline char *map_pages(size_t bytes, int protection)
{
    const long map = syscall(SYS_mmap, nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return map == -1 ? nullptr : reinterpret_cast<char *>(map);
}

/* Pushes what must be kept, exchanges the stack pointers, pops. */
extern "C" __attribute__((visibility("hidden"))) void lg_switch_stacks(void **save_top, void *load_top);

/* A stack on which `entry` starts when it is switched to; below it lies a page that must not be touched.
 * `number` staggers the tops: stacks at equal offsets would fight for the same cache sets. */
inline bool make_stack(fiber *f, unsigned number, void (*entry)())
{
    char *map = map_pages(STACK_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE);
    if (map == nullptr || mprotect(map, PAGE_BYTES, PROT_NONE) != 0) return false;
    f->stack = map + PAGE_BYTES;
    void **top = reinterpret_cast<void **>(f->stack + STACK_BYTES - (number * 576u & (PAGE_BYTES - 1)));
    *--top = nullptr; /* as if `entry` had been called: 8 bytes off a multiple of 16 */
    *--top = reinterpret_cast<void *>(entry);
    for (int saved_registers = 0; saved_registers < 6; ++saved_registers) *--top = nullptr;
    f->top = top;
    return true;
}

} // namespace emulated

#endif
