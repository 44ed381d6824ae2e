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
#include "core/op.h"
#include "cuda/geometry.h"
#include "cuda/trouble.h"

/* lg_device.state of a CUDA device; made by the backend's open. */
typedef struct lg_cuda_device {
    int index;                 /* CUDA's number */
    cudaStream_t stream;       /* all kernels, in the order of the calls */
    cudaStream_t copies;       /* copies from and to pinned memory that nobody waits for */
    int multiprocessors;
    lg_cuda_trouble *trouble;  /* device memory: what kernels found wrong; read when the host synchronises */
    bool lost;                 /* a sticky error was seen: nothing works any more, every free still returns */
    pthread_mutex_t lock;      /* the handles below are used by one thread at a time */
    cublasHandle_t blas;       /* NULL until first used, like the others */
    cublasLtHandle_t blas_lt;
    cudnnHandle_t dnn;
    void *plans;               /* cuda_conv.c's finalised plans */
    void *matmuls;             /* cuda_matmul.c's descriptors and algorithms by shape */
    void *blas_workspace;
} lg_cuda_device;

/* The state of the call's device, which becomes the thread's current one; NULL with the error set. */
lg_cuda_device *lg_cuda_enter(lg_device *device);

/* LUGE_OK, or the error "<op>: <what>: <CUDA's text>": LUGE_ERR_OUT_OF_MEMORY, LUGE_ERR_DEVICE_LOST for a
 * sticky one, else LUGE_ERR_DEVICE. Also clears the runtime's own last error. */
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

/* The kernels, one a row of ops.def. */
#define LG_OP(name, cpu, cuda) LG_CUDA_DECLARE_##cuda(name)
#define LG_CUDA_DECLARE_VIEW(name)
#define LG_CUDA_DECLARE_ALL(name) int lg_cuda_##name(const lg_call *call);
#include "ops/ops.def"
#undef LG_OP

luge_status lg_cuda_multi(lg_device *device, const lg_multi *work);

#endif
