/** @file process.h
 *  Devices, memory, threads, random numbers: what belongs to the whole process or thread. */
#ifndef LUGE_PROCESS_H
#define LUGE_PROCESS_H

#include <luge/base.h>
#include <luge/status.h>

LUGE_BEGIN_C

/** The library's version, "major.minor.patch". */
LUGE_API const char *luge_version(void);

/* ---- devices */

/** The CPU. */
LUGE_API luge_device luge_device_cpu(void);
/** The CUDA device of that number, whether it is there or not. */
LUGE_API luge_device luge_device_cuda(int index);
/** A usable GPU if there is one, else the CPU. */
LUGE_API luge_device luge_device_best(void);
/** The device that a command line names: "auto" (luge_device_best), "cpu", "cuda" (its first) or "cuda:1".
 *  *device is written on success only. That it is usable is not asked: its first tensor would say why not.
 *  PyTorch: torch.device("cuda:1"). */
LUGE_API luge_status luge_device_parse(const char *text, luge_device *device);
/** Whether tensors can be made on `device`. Sets no error. */
LUGE_API bool luge_device_usable(luge_device device);
/** Why not: one sentence that says what to do; "" if usable. Borrowed from the scope. */
LUGE_API const char *luge_device_why_not(luge_device device);
/** Where tensors are made when options do not say. For the whole process. Until it is set, that is what the
 *  environment variable LUGE_DEVICE names (as for luge_device_parse), else the CPU. */
LUGE_API luge_status luge_set_default_device(luge_device device);
/** Waits until all work queued on `device` is done, and reports what it found wrong. */
LUGE_API luge_status luge_device_sync(luge_device device);

/** Queues the work of a CUDA device on `stream`, a cudaStream_t of that device which the caller owns and does
 *  not destroy while it is in use; NULL: on Luge's own again, which is what it starts with. What is queued by
 *  now comes first. Not while other threads use Luge. PyTorch: torch.cuda.set_stream(ExternalStream). */
LUGE_API luge_status luge_cuda_set_stream(int index, void *stream);

/** What a device and the host have exchanged since the device was first used. All zero for the CPU.
 *  A training step that has come into its stride waits for nothing and takes no memory from the driver. */
typedef struct luge_device_counts {
    int64_t waits;         /**< Calls in which the host waited for the device. */
    int64_t device_allocations; /**< Requests for memory that went to the driver. */
    int64_t pinned_allocations; /**< Likewise for pinned host memory. */
    int64_t launches;      /**< Kernels of Luge's own, over all devices of this kind. */
    int64_t library_calls; /**< Calls of the vendor's libraries. */
    int64_t bytes_to_device;   /**< Copied from the host. */
    int64_t bytes_to_host;     /**< Copied to the host. */
    int64_t bytes_within;      /**< Copied on the device and from its peers. */
    LUGE_RESERVED(8);      /**< Zero. */
} luge_device_counts;
/** Counts of a device so far; all zero for one that is not usable. Sets no error. */
LUGE_API luge_device_counts luge_device_get_counts(luge_device device);

/** What may be worked out in TF32: f32 factors are rounded to 10 bits behind the point, their products are
 *  summed in f32. */
typedef enum luge_tf32_uses {
    LUGE_TF32_NOTHING = 0, /**< The default. */
    LUGE_TF32_MATMUL = 1,  /**< matmul and linear. PyTorch: torch.backends.cuda.matmul.allow_tf32. */
    LUGE_TF32_CONV = 2     /**< conv2d. PyTorch, where it is on: torch.backends.cudnn.allow_tf32. */
} luge_tf32_uses;
/** Lets CUDA devices that can (Ampere and later) use TF32 for f32 tensors, from the next op on, forward and
 *  backward: several times quicker, and as exact as f16. `uses` are luge_tf32_uses or'ed together; for the
 *  whole process. On other devices nothing changes. */
LUGE_API luge_status luge_set_tf32(int uses);
/** What is set. */
LUGE_API int luge_tf32(void);

/* ---- memory */

/** The host's memory functions. */
typedef struct luge_allocator {
    /** Returns `bytes` (> 0) of memory at a multiple of `alignment` (a power of two), or NULL. Any thread. */
    void *(*alloc)(size_t bytes, size_t alignment, void *user);
    /** Takes back what alloc gave; `bytes` is what was asked for. Any thread. */
    void (*free)(void *memory, size_t bytes, void *user);
    void *user;      /**< Passed to both. */
    LUGE_RESERVED(4); /**< Zero. */
} luge_allocator;

/** Sends the host memory of tensors and objects through `allocator` (copied; NULL: malloc and free
 *  again); what Luge keeps for itself, such as the list of open scopes, stays with malloc.
 *  LUGE_ERR_STATE while Luge holds any tensor or object. Not while other threads use Luge. When the
 *  library is unloaded or the process exits, `allocator` is not called any more. */
LUGE_API luge_status luge_set_allocator(const luge_allocator *allocator);

/** Takes the memory of `device`, a GPU, from `allocator` (copied; NULL: from the driver again): for programs
 *  that share a GPU with another library's cache. alloc must give memory of that device; blocks are large and
 *  are kept until luge_memory_empty_cache or until memory is short. LUGE_ERR_STATE while tensors are on the
 *  device. Not while other threads use Luge. When the library is unloaded or the process exits, `allocator` is
 *  not called any more. PyTorch: CUDAPluggableAllocator. */
LUGE_API luge_status luge_set_device_allocator(luge_device device, const luge_allocator *allocator);

/** What a device's memory is used for; bytes. PyTorch: torch.cuda.memory_stats. */
typedef struct luge_memory_stats {
    int64_t allocated_bytes;/**< Held by tensors now. */
    int64_t allocated_peak; /**< The most since luge_memory_reset_peak. */
    int64_t reserved_bytes; /**< Taken from the system: allocated and cached. */
    int64_t reserved_peak;  /**< The most since luge_memory_reset_peak. */
    int64_t limit;          /**< luge_set_memory_limit's, 0: none. */
    int64_t allocations;    /**< Requests served since the process began. */
    int64_t system_allocations; /**< Those of them that went to the system. */
    int64_t failures;       /**< Requests that could not be served. */
    int64_t live_tensors;   /**< Storages alive on the device. */
    LUGE_RESERVED(8);       /**< Zero. */
} luge_memory_stats;

/** Statistics of a device's memory; all zero for one that is not usable. */
LUGE_API luge_memory_stats luge_memory_get_stats(luge_device device);
/** Sets both peaks to the present values. */
LUGE_API luge_status luge_memory_reset_peak(luge_device device);
/** Gives cached memory that no tensor uses back to the system. Works while an error stands. */
LUGE_API luge_status luge_memory_empty_cache(luge_device device);
/** Refuses allocations that would make tensors hold more than `bytes`; 0 lifts the limit. */
LUGE_API luge_status luge_set_memory_limit(luge_device device, int64_t bytes);
/** Notes from now on, of the whole process, which op in which scopes makes each tensor's memory, for
 *  luge_memory_report and luge_memory_snapshot; false: no longer. It costs a lock and a look into a table for each
 *  tensor that is made or freed; while it is off, nothing. PyTorch: torch.cuda.memory._record_memory_history. */
LUGE_API luge_status luge_memory_record(bool on);
/** A table of what is allocated, for people; below it, if luge_memory_record is on, what holds it: the bytes and
 *  tensors alive by scope path and op, the largest first. Borrowed from the scope, never NULL. */
LUGE_API const char *luge_memory_report(luge_device device);
/** The same as JSON: {"device", "index", "stats": {luge_memory_stats}, "holders": [{"made_by", "bytes", "tensors"}]},
 *  "{}" for a device that is not usable. Borrowed from the scope, never NULL. */
LUGE_API const char *luge_memory_snapshot(luge_device device);

/** How many Luge objects of each kind are alive in the process: for leak checks. */
typedef struct luge_live_counts {
    int64_t tensors;  /**< Tensor handles. */
    int64_t storages; /**< Blocks of tensor memory. */
    int64_t nodes;    /**< Recorded operations of graphs. */
    int64_t objects;  /**< Modules, optimizers, schedules, datasets, loaders, meters. */
    int64_t host_bytes; /**< Host memory of all of these but tensor data. */
    LUGE_RESERVED(4); /**< Zero. */
} luge_live_counts;
/** Counts what is alive now. */
LUGE_API luge_live_counts luge_live(void);

/** How many ops ran, by what ran them, since the process began. */
typedef struct luge_op_counts {
    int64_t kernels;    /**< Calls of a backend's own kernels. */
    int64_t references; /**< Calls of the naive reference kernels: slow, none in a model that Luge ships. */
    int64_t views;      /**< Ops that only made a view. */
    int64_t transposes; /**< Copies of activations from one memory layout to another. */
    int64_t packs;      /**< Weights packed for a library. */
    LUGE_RESERVED(4);   /**< Zero. */
} luge_op_counts;
/** Counts ops so far, over all threads. */
LUGE_API luge_op_counts luge_op_count(void);

/* ---- threads and random numbers */

/** How many threads, the calling one included, share the work of an op; 1 to 1024. The default is
 *  the environment variable LUGE_NUM_THREADS, else the number of cores the process may use. Results
 *  are the same bits for any number. If fewer can be started, that is a warning in the log. Not
 *  while other threads use Luge. */
LUGE_API luge_status luge_set_num_threads(int threads);
/** The number in use. */
LUGE_API int luge_num_threads(void);
/** Restarts this thread's random numbers. A thread that never calls it starts at seed 0. */
LUGE_API luge_status luge_seed(uint64_t seed);

LUGE_END_C

#endif
