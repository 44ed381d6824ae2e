/* Devices and the backend interface. A backend is one struct of functions; the CPU's is linked in,
 * CUDA's comes from a module opened at run time. Only core/init.c names backends. */
#ifndef LG_CORE_DEVICE_H
#define LG_CORE_DEVICE_H

#include <luge/process.h>
#include "core/op_id.h"

enum { LG_DEVICE_DEFAULT = 0, LG_DEVICE_CPU = 1, LG_DEVICE_CUDA = 2 };

typedef struct lg_call lg_call;           /* core/op.h */
typedef struct lg_multi lg_multi;         /* core/multi.h */
typedef struct lg_memory lg_memory;       /* core/memory.h: the caching allocator of one device */
typedef struct lg_device lg_device;

/* How a kernel answered. Anything else is an error, which is then set on the thread. */
enum { LG_DECLINED = -1 };                /* "not this dtype or geometry": the reference runs instead */
typedef int (*lg_kernel)(const lg_call *call);

/* What a backend's kernel takes, one column of ops.def. */
typedef enum lg_kernel_kind {
    LG_KERNEL_VIEW, /* none: the op only makes views */
    LG_KERNEL_REF,  /* none: the reference kernel is good enough */
    LG_KERNEL_F32,  /* f32 (others as it likes): f16 and bf16 are converted for it */
    LG_KERNEL_ALL   /* every dtype of the op's class */
} lg_kernel_kind;

typedef struct lg_backend {
    const char *name;                     /* "cpu" */
    const char *note;                     /* said in the log when a device is opened; NULL: nothing */
    int kind;                             /* LG_DEVICE_... */
    int (*count)(void);                   /* devices; below 0: minus the driver's number of the error */
    const char *(*why_not)(int index);    /* NULL if usable */
    /* Raw memory; NULL if there is none. `bytes` > 0; at least 64-byte aligned. */
    void *(*alloc)(lg_device *device, size_t bytes);
    void (*free)(lg_device *device, void *memory, size_t bytes);
    size_t alloc_granularity;             /* segments are multiples of this */
    /* Queued on the device's stream, in order with kernels. */
    luge_status (*copy)(lg_device *device, void *to, const void *from, size_t bytes);       /* within the device */
    luge_status (*to_host)(lg_device *device, void *to, const void *from, size_t bytes);    /* and waits */
    luge_status (*from_host)(lg_device *device, void *to, const void *from, size_t bytes);  /* `from` may be reused on return */
    luge_status (*sync)(lg_device *device);
    lg_kernel kernel[LG_OP_COUNT];        /* NULL where kind is VIEW or REF */
    unsigned char kernel_kind[LG_OP_COUNT];
    luge_status (*multi)(lg_device *device, const lg_multi *work);  /* one pass over many tensors */

    /* The rest is for devices with memory and queues of their own; NULL for the CPU. */

    /* Makes what the device needs: called before it is first used, and again if that failed. */
    luge_status (*open)(lg_device *device);
    void (*close)(lg_device *device);
    /* Host memory that the device reads and writes while the host goes on ("pinned"). */
    void *(*host_alloc)(lg_device *device, size_t bytes);
    void (*host_free)(lg_device *device, void *memory, size_t bytes);
    /* From pinned memory, beside the kernels: those queued later wait for it. */
    luge_status (*upload)(lg_device *device, void *to, const void *pinned, size_t bytes);
    /* To pinned memory, in order with kernels; nobody waits. */
    luge_status (*download)(lg_device *device, void *pinned, const void *from, size_t bytes);
    /* Between two devices of this backend, in order with the kernels of both. */
    luge_status (*from_peer)(lg_device *device, void *to, lg_device *peer, const void *from, size_t bytes);
    /* What is queued on `device` from now on waits for all that is queued on `peer` by now. */
    luge_status (*follow)(lg_device *device, lg_device *peer);
    /* Waits until all that is queued is done. Reports nothing, also of a device that is lost. */
    void (*drain)(lg_device *device);
    /* A mark behind all that is queued, NULL if none can be made, which is no error; whether the device has
     * come to it (NULL: to the end of its queue), which a lost device has; an end to the mark. */
    void *(*mark)(lg_device *device);
    bool (*reached)(lg_device *device, void *mark);
    void (*unmark)(lg_device *device, void *mark);
    /* LUGE_OK, or the error that says why nothing works on the device any more. */
    luge_status (*check)(lg_device *device);
    luge_status (*set_stream)(lg_device *device, void *stream);
    void (*counts)(lg_device *device, luge_device_counts *counts);  /* fills in what it counts */
} lg_backend;

struct lg_device {
    luge_device id;
    const lg_backend *backend;
    lg_memory *memory;
    lg_memory *uploads;                   /* of the device, for what upload writes: used again once kernels are done with it */
    lg_memory *pinned;                    /* of the host: used again once the device is done with it */
    void *state;                          /* the backend's: streams, handles */
    _Atomic int opened;                   /* open has worked */
    _Atomic int forked;                   /* this is a child of the process that started it, which cannot use it */
    luge_allocator hooks;                 /* luge_set_device_allocator; alloc NULL: the backend's own */
};

/* The device (the default one for {0}), or NULL with LUGE_ERR_DEVICE and the reason. Starts the
 * library on first use. */
lg_device *lg_device_get(luge_device id);
luge_device lg_device_default(void);
/* Makes the devices of a backend known; for lg_init, which lets one thread in. Nothing is added on error. */
luge_status lg_device_add(const lg_backend *backend);
static inline bool lg_on_host(const lg_device *d) { return d->id.kind == LG_DEVICE_CPU; }

/* Gives everything of every device back: the library goes. */
void lg_device_close_all(void);
/* Whether d is a device that works on while the host does other things. */
static inline bool lg_has_queue(const lg_device *d) { return d->backend->mark != NULL; }

/* cpu/cpu_backend.c */
const lg_backend *lg_cpu_backend(void);
/* core/cuda_module.c: the CUDA backend, opened at the first call, and how many devices it has; 0 with the
 * reason. To be called by one thread at a time. */
int lg_cuda_backend(const lg_backend **backend, const char **why);
void lg_cuda_forget(void);

/* ---- the caching allocator (core/memory.c) */

/* Of the device's memory; a freed block may be taken at once, since work is queued in order. */
lg_memory *lg_memory_create(lg_device *device);
/* Of the device's or of pinned host memory; a freed block is held until the device has come to where it
 * was freed. */
lg_memory *lg_memory_create_held(lg_device *device, bool on_host);
/* `bytes` > 0, 64-byte aligned. NULL sets LUGE_ERR_OUT_OF_MEMORY with the op, the bytes asked for and
 * what is live, after the cache was given back and the request tried again. */
void *lg_memory_alloc(lg_memory *m, size_t bytes);
void lg_memory_free(lg_memory *m, void *memory, size_t bytes);
/* Gives unused segments back. */
void lg_memory_trim(lg_memory *m);
/* The device that it was made for. */
lg_device *lg_memory_device(const lg_memory *m);
/* Host memory for tensors that devices copy from without waiting: pinned for the default device or the
 * first CUDA device; without a GPU the CPU's own. NULL with the error set. */
lg_memory *lg_pinned_memory(void);

#endif
