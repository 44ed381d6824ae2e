/* What the host code of the CUDA backend shares: the state of a device, checks of CUDA's answers, memory
 * for one call, and the shape of strided tensors as kernels take it. Kernels and their launchers are in
 * .cu files, which see plain structs only (cuda/kernel.cuh); the .c file of the same name reads the call
 * and fills these in. */
#ifndef LG_CUDA_CUDA_H
#define LG_CUDA_CUDA_H

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <pthread.h>
#include <stdatomic.h>
#include "core/multi.h"
#include "core/op.h"
#include "core/thread.h"
#include "cuda/geometry.h"
#include "cuda/trouble.h"

/* What luge_device_get_counts tells of a device. */
typedef enum lg_cuda_counter {
    LG_CUDA_WAIT,
    LG_CUDA_ALLOCATION,
    LG_CUDA_PINNED_ALLOCATION,
    LG_CUDA_LIBRARY_CALL,
    LG_CUDA_TO_DEVICE, /* bytes */
    LG_CUDA_TO_HOST,
    LG_CUDA_WITHIN,
    LG_CUDA_COUNTS
} lg_cuda_counter;

/* An event that is recorded, or spare. */
typedef struct lg_cuda_mark {
    cudaEvent_t event;
    struct lg_cuda_mark *next;
} lg_cuda_mark;

/* lg_device.state of a CUDA device; made by the backend's open. */
typedef struct lg_cuda_device {
    int index;                 /* CUDA's number */
    cudaStream_t stream;       /* all kernels, in the order of the calls */
    cudaStream_t copies;       /* copies from and to pinned memory that nobody waits for */
    int multiprocessors;
    lg_cuda_trouble *trouble;  /* device memory: what kernels found wrong; read when the host synchronises */
    atomic_bool lost;          /* a sticky error was seen: nothing works any more, every free still returns */
    pthread_mutex_t lock;      /* the handles below are used by one thread at a time */
    cublasHandle_t blas;       /* NULL until first used, like the others */
    cublasLtHandle_t blas_lt;
    cudnnHandle_t dnn;
    void *plans;               /* cuda_conv.c's finalised plans */
    void *matmuls;             /* cuda_matmul.c's descriptors and algorithms by shape */
    void *blas_workspace;

    /* cuda_device.c's and cuda_backend.c's own */
    bool own_stream;           /* else the user's (luge_cuda_set_stream) */
    pthread_mutex_t reading;   /* of `seen`: one thread at a time waits for the device */
    lg_cuda_trouble *seen;     /* pinned: a copy of *trouble */
    pthread_mutex_t marks;     /* of the events that are not in use */
    lg_cuda_mark *spare_marks;
    cudaEvent_t order;         /* of follow and upload, under `marks` */
    _Atomic int64_t count[LG_CUDA_COUNTS];
} lg_cuda_device;

/* The state of the call's device, which becomes the thread's current one; NULL with the error set. */
lg_cuda_device *lg_cuda_enter(lg_device *device);
/* The same for what works on while a device is lost: NULL, without an error, if there is nothing to do. */
lg_cuda_device *lg_cuda_enter_quietly(lg_device *device);
static inline void lg_cuda_count(lg_cuda_device *d, lg_cuda_counter counter, int64_t n)
{
    atomic_fetch_add_explicit(&d->count[counter], n, memory_order_relaxed);
}

/* LUGE_OK, or the error "<op>: <what>: <CUDA's text>": LUGE_ERR_OUT_OF_MEMORY, LUGE_ERR_DEVICE_LOST for a
 * sticky one, else LUGE_ERR_DEVICE. Also clears the runtime's own last error. The libraries' checks count a
 * call of them (luge_device_counts.library_calls). */
luge_status lg_cuda_check(lg_cuda_device *d, cudaError_t code, const char *what);
luge_status lg_cublas_check(lg_cuda_device *d, cublasStatus_t code, const char *what);
luge_status lg_cudnn_check(lg_cuda_device *d, cudnnStatus_t code, const char *what);

/* Memory for the kernels of one call, from the device's allocator; NULL with the error set. It may be
 * freed as soon as the kernels are launched: whoever gets it next runs behind them on the same stream. */
void *lg_cuda_scratch(lg_device *device, size_t bytes);
void lg_cuda_scratch_free(lg_device *device, void *memory, size_t bytes);

/* The shape of out[0] and inputs in[0..n-1] of an elementwise walk, merged (core/iter.h); operand 0 decides
 * the order of the axes. */
lg_geometry lg_cuda_geometry(const luge_shape *shape, int n, luge_tensor *const *operand);

/* Geometries of what is no tensor, from strides for each axis of the shape (cuda_geometry.c): axes in the
 * order of operand 0's strides, or in row-major order, so that element i is the i-th of the shape. */
lg_geometry lg_geometry_sorted(const luge_shape *shape, int n, const int64_t *const *stride);
lg_geometry lg_geometry_row_major(const luge_shape *shape, int n, const int64_t *const *stride);
/* Adds an axis outside of those that are there, merged with the last where all operands allow it. */
void lg_geometry_add_axis(lg_geometry *g, int64_t size, const int64_t *stride);
/* After the last axis: fills in what follows from them. */
void lg_geometry_finish(lg_geometry *g);

/* Copies elements of one dtype (cuda_copy.c); strides for each axis of the shape. */
luge_status lg_cuda_move(lg_cuda_device *d, luge_dtype dtype, const luge_shape *shape, void *to,
                         const int64_t *to_stride, const void *from, const int64_t *from_stride);

/* The kernels, one a row of ops.def. */
#define LG_OP(name, cpu, cuda) LG_CUDA_DECLARE_##cuda(name)
#define LG_CUDA_DECLARE_VIEW(name)
#define LG_CUDA_DECLARE_ALL(name) int lg_cuda_##name(const lg_call *call);
#include "ops/ops.def"
#undef LG_OP

luge_status lg_cuda_multi(lg_device *device, const lg_multi *work);

/* Each frees what its family keeps in d (plans, matmuls, blas_workspace, handles) and sets it to NULL; NULL
 * is fine. The stream is idle. */
void lg_cuda_matmul_close(lg_cuda_device *d);  /* cuda_matmul.c: matmuls, blas_workspace, blas, blas_lt */
void lg_cuda_conv_close(lg_cuda_device *d);    /* cuda_conv.c: plans, dnn */

/* Opening and closing (cuda_device.c), and the table (cuda_backend.c). */
luge_status lg_cuda_open(lg_device *device);
void lg_cuda_close(lg_device *device);
/* Takes *d->seen, which the host has just waited for: the error that a kernel noted, in the words of the
 * CPU's checks; d->trouble is cleared. */
luge_status lg_cuda_report(lg_cuda_device *d);
const lg_backend *lg_cuda_table(void);
/* The process ends: CUDA may be gone, and is not called any more. */
bool lg_cuda_exiting(void);

#endif
