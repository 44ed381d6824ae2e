/* A CUDA device as the host code sees it: opening and closing it, entering it before a call, CUDA's answers
 * as errors, what kernels found wrong, memory and geometry for one call. */
#include "cuda/cuda.h"

#include <stdlib.h>
#include "core/alloc.h"
#include "core/iter.h"
#include "core/process.h"

/* ---- the end of the process: CUDA goes before the library does, and must not be called any more. The
 * module is never unloaded before, so this does not run when a plugin that holds the library is closed. */

static atomic_bool exiting;

bool lg_cuda_exiting(void) { return atomic_load_explicit(&exiting, memory_order_relaxed); }

static void note_exit(void) { atomic_store(&exiting, true); }

static void watch_exit(void)
{
    static atomic_bool watched;
    if (!atomic_exchange(&watched, true)) atexit(note_exit);
}

/* ---- entering */

lg_cuda_device *lg_cuda_enter_quietly(lg_device *device)
{
    lg_cuda_device *d = device->state;
    if (d == NULL || d->lost || atomic_load_explicit(&device->forked, memory_order_relaxed) ||
        lg_cuda_exiting())
        return NULL;
    int current;
    if (cudaGetDevice(&current) == cudaSuccess && current == d->index) return d;
    if (cudaSetDevice(d->index) == cudaSuccess) return d;
    (void)cudaGetLastError();
    return NULL;
}

lg_cuda_device *lg_cuda_enter(lg_device *device)
{
    lg_cuda_device *d = lg_cuda_enter_quietly(device);
    if (d != NULL) return d;
    const int index = device->id.index;
    const lg_cuda_device *state = device->state;
    if (state != NULL && state->lost)
        lg_fail(LUGE_ERR_DEVICE_LOST, "cuda:%d is lost since an earlier error: save what is on the host and start anew",
                index);
    else if (atomic_load(&device->forked))
        lg_fail(LUGE_ERR_DEVICE, "cuda:%d cannot be used in a child of the process that started it", index);
    else
        lg_fail(LUGE_ERR_DEVICE, "cuda:%d cannot be made the thread's device", index);
    return NULL;
}

/* ---- errors */

/* Whether nothing works in the process after this error. */
static bool is_sticky(cudaError_t code)
{
    switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown: return true;
    default: return false;
    }
}

/* "<op>: <what>: <text>" */
static luge_status fail(luge_status code, const char *what, const char *text)
{
    const char *op = lg_self()->op;
    return lg_fail(code, "%s%s%s: %s", op != NULL ? op : "", op != NULL ? ": " : "", what, text);
}

luge_status lg_cuda_check(lg_cuda_device *d, cudaError_t code, const char *what)
{
    if (code == cudaSuccess) return LUGE_OK;
    (void)cudaGetLastError();
    if (is_sticky(code)) {
        d->lost = true;
        return fail(LUGE_ERR_DEVICE_LOST, what, cudaGetErrorString(code));
    }
    return fail(code == cudaErrorMemoryAllocation ? LUGE_ERR_OUT_OF_MEMORY : LUGE_ERR_DEVICE, what,
                cudaGetErrorString(code));
}

/* A library that failed because the device is lost says only that something failed. */
static luge_status library_failed(lg_cuda_device *d, bool memory, const char *what, const char *text)
{
    const cudaError_t code = cudaPeekAtLastError();
    if (code != cudaSuccess && is_sticky(code)) return lg_cuda_check(d, code, what);
    (void)cudaGetLastError();
    return fail(memory ? LUGE_ERR_OUT_OF_MEMORY : LUGE_ERR_DEVICE, what, text);
}

luge_status lg_cublas_check(lg_cuda_device *d, cublasStatus_t code, const char *what)
{
    lg_cuda_count(d, LG_CUDA_LIBRARY_CALL, 1);
    if (code == CUBLAS_STATUS_SUCCESS) return LUGE_OK;
    return library_failed(d, code == CUBLAS_STATUS_ALLOC_FAILED, what, cublasGetStatusString(code));
}

luge_status lg_cudnn_check(lg_cuda_device *d, cudnnStatus_t code, const char *what)
{
    lg_cuda_count(d, LG_CUDA_LIBRARY_CALL, 1);
    if (code == CUDNN_STATUS_SUCCESS) return LUGE_OK;
    return library_failed(d, code == CUDNN_STATUS_ALLOC_FAILED, what, cudnnGetErrorString(code));
}

luge_status lg_cuda_report(lg_cuda_device *d)
{
    static const char *const text[] = {[LG_TROUBLE_TARGET] = "cross_entropy: target",
                                       [LG_TROUBLE_INDEX] = "embedding: index"};
    const lg_cuda_trouble t = *d->seen;
    if (t.kind == LG_TROUBLE_NONE) return LUGE_OK;
    if (lg_cuda_check(d, cudaMemsetAsync(d->trouble, 0, sizeof *d->trouble, d->stream), "clearing the error word") !=
        LUGE_OK)
        return lg_error();
    if (t.kind == LG_TROUBLE_NORM) {
        double norm;
        memcpy(&norm, &t.value, sizeof norm);
        return lg_fail(LUGE_ERR_NONFINITE,
                       "luge_optim_step: the norm of the gradients is %g: nothing was changed; drop them and go on", norm);
    }
    if (t.kind == LG_TROUBLE_SCALE) {
        double scale;
        memcpy(&scale, &t.limit, sizeof scale);
        return lg_fail(LUGE_ERR_NONFINITE, LG_TEXT_SCALE, (long long)t.value, scale);
    }
    const bool known = t.kind > 0 && t.kind < (int)(sizeof text / sizeof *text);
    return lg_fail(LUGE_ERR_ARGUMENT, "%s %lld at position %lld is not in [0, %lld)", known ? text[t.kind] : "value",
                   t.value, t.place, t.limit);
}

/* ---- opening and closing */

static void free_marks(lg_cuda_device *d)
{
    while (d->spare_marks != NULL) {
        lg_cuda_mark *m = d->spare_marks;
        d->spare_marks = m->next;
        cudaEventDestroy(m->event);
        lg_private_free(m);
    }
}

/* Also of a device that was opened in part. */
static void give_back(lg_cuda_device *d)
{
    lg_cuda_conv_close(d);
    lg_cuda_matmul_close(d);
    free_marks(d);
    if (d->order != NULL) cudaEventDestroy(d->order);
    if (d->seen != NULL) cudaFreeHost(d->seen);
    if (d->trouble != NULL) cudaFree(d->trouble);
    if (d->copies != NULL) cudaStreamDestroy(d->copies);
    if (d->stream != NULL && d->own_stream) cudaStreamDestroy(d->stream);
    (void)cudaGetLastError();
}

static cudaError_t make_parts(lg_cuda_device *d)
{
    cudaError_t code = cudaSetDevice(d->index);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&d->multiprocessors, cudaDevAttrMultiProcessorCount, d->index);
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&d->copies, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaEventCreateWithFlags(&d->order, cudaEventDisableTiming);
    if (code == cudaSuccess) code = cudaMalloc((void **)&d->trouble, sizeof *d->trouble);
    if (code == cudaSuccess) code = cudaMemsetAsync(d->trouble, 0, sizeof *d->trouble, d->stream);
    if (code == cudaSuccess) code = cudaHostAlloc((void **)&d->seen, sizeof *d->seen, cudaHostAllocPortable);
    if (code == cudaSuccess) code = cudaStreamSynchronize(d->stream);
    return code;
}

luge_status lg_cuda_open(lg_device *device)
{
    lg_cuda_device *d = lg_private_resize(NULL, sizeof *d);
    if (d == NULL) return lg_fail(LUGE_ERR_OUT_OF_MEMORY, "cuda:%d: out of host memory", device->id.index);
    *d = (lg_cuda_device){.index = device->id.index, .own_stream = true};
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->reading, NULL);
    pthread_mutex_init(&d->marks, NULL);
    const cudaError_t code = make_parts(d);
    if (code != cudaSuccess) {
        char what[32];
        snprintf(what, sizeof what, "starting cuda:%d", d->index);
        give_back(d);
        lg_cuda_check(d, code, what);
        lg_private_free(d);
        return lg_error();
    }
    device->state = d;
    watch_exit();
    return LUGE_OK;
}

void lg_cuda_close(lg_device *device)
{
    lg_cuda_device *d = lg_cuda_enter_quietly(device);
    if (d == NULL) return; /* the process ends, or nothing can be given back */
    give_back(d);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->reading);
    pthread_mutex_destroy(&d->marks);
    lg_private_free(d);
    device->state = NULL;
}

/* ---- for one call */

void *lg_cuda_scratch(lg_device *device, size_t bytes)
{
    return lg_memory_alloc(device->memory, bytes > 0 ? bytes : 1);
}

void lg_cuda_scratch_free(lg_device *device, void *memory, size_t bytes)
{
    lg_memory_free(device->memory, memory, bytes > 0 ? bytes : 1);
}

lg_geometry lg_cuda_geometry(const luge_shape *shape, int n, luge_tensor *const *operand)
{
    lg_iter it;
    lg_iter_init(&it, shape, n, operand);
    lg_geometry g = {.rank = it.rank, .operands = n, .flat = lg_iter_flat(&it), .numel = it.numel};
    for (int i = 0; i < it.rank; ++i) {
        g.size[i] = it.size[i];
        for (int k = 0; k < n; ++k) g.stride[k][i] = it.stride[k][i];
    }
    return g;
}
