/* What the library and the CUDA module, a shared object of its own, say to each other. The library opens
 * the module (core/cuda_module.c), finds its one exported function and hands it a table of its services;
 * it gets the backend in return. The module uses no other symbol of the library: cuda/host.c offers the
 * services under their usual names. */
#ifndef LG_CUDA_MODULE_H
#define LG_CUDA_MODULE_H

#include "core/alloc.h"
#include "core/fault.h"
#include "core/multi.h"
#include "core/op.h"
#include "core/process.h"
#include "core/services.h"
#include "core/thread.h"

enum { LG_MODULE_VERSION = 1 }; /* of the meaning of what lies in this header */

/* Sizes of what both look into: a module of other sources is refused, not called. */
typedef struct lg_module_layout {
    unsigned version, host, backend, device, storage, tensor, thread, call, op, multi, multi_item, ops;
} lg_module_layout;

typedef struct lg_module_host {
    lg_module_layout layout;
    /* core/thread.h */
    lg_thread *(*self)(void);
    luge_status (*fail)(luge_status code, const char *text); /* lg_fail(code, "%s", text) */
    void (*log)(luge_log_level level, const char *text);
    /* core/alloc.h */
    void *(*alloc)(size_t bytes);
    void *(*alloc_zero)(size_t bytes);
    void *(*resize)(void *old, size_t bytes);
    void (*free)(void *memory);
    char *(*copy_text)(const char *text);
    void *(*private_resize)(void *old, size_t bytes);
    void (*private_free)(void *memory);
    /* core/device.h */
    void *(*memory_alloc)(lg_memory *m, size_t bytes);
    void (*memory_free)(lg_memory *m, void *memory, size_t bytes);
    void (*memory_trim)(lg_memory *m);
    /* core/services.h, core/fault.h, core/process.h */
    void (*count)(lg_counter counter);
    bool (*fault)(lg_fault_kind kind);
    void (*fork_guard)(pthread_mutex_t *lock);
    void (*fork_unguard)(pthread_mutex_t *lock);
    bool (*allows_tf32)(luge_tf32_uses use);
} lg_module_host;

#define LG_MODULE_LAYOUT                                                                                      \
    {LG_MODULE_VERSION, sizeof(lg_module_host), sizeof(lg_backend), sizeof(lg_device), sizeof(lg_storage),    \
     sizeof(luge_tensor), sizeof(lg_thread), sizeof(lg_call), sizeof(lg_op), sizeof(lg_multi),                \
     sizeof(lg_multi_item), LG_OP_COUNT}

/* The module's one function. NULL with *why: it is of other sources, or in use by another copy of the
 * library in this process. `host` NULL: the library goes, and its services with it. */
typedef const lg_backend *lg_module_entry(const lg_module_host *host, const char **why);
#define LG_MODULE_ENTRY "luge_cuda_module"
LUGE_API lg_module_entry luge_cuda_module;

#endif
