/* The CUDA backend's table: memory, copies, queues and marks, kernels (from ops.def). core/ calls it; where
 * it waits for the device it also looks at what kernels found wrong. */
#include "core/alloc.h"
#include "core/services.h"
#include "cuda/cuda.h"

/* Launches of kernels, counted where they are made (kernel.cuh). */
long long lg_cuda_launches;

/* ---- which devices there are */

static int count(void)
{
    int n = 0;
    const cudaError_t code = cudaGetDeviceCount(&n);
    if (code == cudaSuccess) return n;
    (void)cudaGetLastError();
    return -(int)code;
}

static const char *why_not(int index)
{
    return index >= 0 && index < count() ? NULL : "there is no CUDA device with this number";
}

/* ---- memory */

static void *alloc(lg_device *device, size_t bytes)
{
    lg_cuda_device *d = lg_cuda_enter_quietly(device);
    void *memory = NULL;
    if (d == NULL) return NULL;
    lg_cuda_count(d, LG_CUDA_ALLOCATION, 1);
    if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
    (void)cudaGetLastError();
    return NULL;
}

static void release(lg_device *device, void *memory, size_t bytes)
{
    (void)bytes;
    if (lg_cuda_enter_quietly(device) != NULL && cudaFree(memory) != cudaSuccess) (void)cudaGetLastError();
}

static void *host_alloc(lg_device *device, size_t bytes)
{
    lg_cuda_device *d = lg_cuda_enter_quietly(device);
    void *memory = NULL;
    if (d == NULL) return NULL;
    lg_cuda_count(d, LG_CUDA_PINNED_ALLOCATION, 1);
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) == cudaSuccess) return memory;
    (void)cudaGetLastError();
    return NULL;
}

static void host_free(lg_device *device, void *memory, size_t bytes)
{
    (void)bytes;
    if (lg_cuda_enter_quietly(device) != NULL && cudaFreeHost(memory) != cudaSuccess) (void)cudaGetLastError();
}

/* ---- marks */

static lg_cuda_mark *take_mark(lg_cuda_device *d)
{
    pthread_mutex_lock(&d->marks);
    lg_cuda_mark *m = d->spare_marks;
    if (m != NULL) d->spare_marks = m->next;
    pthread_mutex_unlock(&d->marks);
    if (m != NULL) return m;
    m = lg_private_resize(NULL, sizeof *m);
    if (m == NULL) return NULL;
    if (cudaEventCreateWithFlags(&m->event, cudaEventDisableTiming) == cudaSuccess) return m;
    (void)cudaGetLastError();
    lg_private_free(m);
    return NULL;
}

static void put_mark(lg_cuda_device *d, lg_cuda_mark *m)
{
    pthread_mutex_lock(&d->marks);
    m->next = d->spare_marks;
    d->spare_marks = m;
    pthread_mutex_unlock(&d->marks);
}

static void *mark(lg_device *device)
{
    lg_cuda_device *d = lg_cuda_enter_quietly(device);
    lg_cuda_mark *m = d != NULL ? take_mark(d) : NULL;
    if (m == NULL || cudaEventRecord(m->event, d->stream) == cudaSuccess) return m;
    (void)cudaGetLastError();
    put_mark(d, m);
    return NULL;
}

static bool reached(lg_device *device, void *m)
{
    lg_cuda_device *d = lg_cuda_enter_quietly(device);
    if (d == NULL) return true;
    const cudaError_t code = m != NULL ? cudaEventQuery(((lg_cuda_mark *)m)->event) : cudaStreamQuery(d->stream);
    if (code == cudaErrorNotReady) return false;
    if (code != cudaSuccess) (void)cudaGetLastError();
    return true;
}

static void unmark(lg_device *device, void *m)
{
    lg_cuda_device *d = lg_cuda_enter_quietly(device);
    if (d != NULL)
        put_mark(d, m);
    else /* in a child, where a thread of the parent may hold the lock, or at exit: the event goes with the process */
        lg_private_free(m);
}

/* `later` waits for what is queued on `earlier` by now. */
static cudaError_t order(lg_cuda_device *d, cudaStream_t later, cudaStream_t earlier)
{
    pthread_mutex_lock(&d->marks);
    cudaError_t code = cudaEventRecord(d->order, earlier);
    if (code == cudaSuccess) code = cudaStreamWaitEvent(later, d->order, 0);
    pthread_mutex_unlock(&d->marks);
    return code;
}

static luge_status follow(lg_device *device, lg_device *peer)
{
    lg_cuda_device *later = device->state, *earlier = lg_cuda_enter(peer);
    if (earlier == NULL || later == NULL) return lg_error();
    return lg_cuda_check(earlier, order(earlier, later->stream, earlier->stream), "ordering two devices");
}

/* ---- copies */

static luge_status copy(lg_device *device, void *to, const void *from, size_t bytes)
{
    lg_cuda_device *d = lg_cuda_enter(device);
    if (d == NULL) return lg_error();
    lg_cuda_count(d, LG_CUDA_WITHIN, (int64_t)bytes);
    return lg_cuda_check(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, d->stream), "copying");
}

static luge_status download(lg_device *device, void *pinned, const void *from, size_t bytes)
{
    lg_cuda_device *d = lg_cuda_enter(device);
    if (d == NULL) return lg_error();
    lg_cuda_count(d, LG_CUDA_TO_HOST, (int64_t)bytes);
    return lg_cuda_check(d, cudaMemcpyAsync(pinned, from, bytes, cudaMemcpyDeviceToHost, d->stream),
                         "copying to the host");
}

static luge_status upload(lg_device *device, void *to, const void *pinned, size_t bytes)
{
    lg_cuda_device *d = lg_cuda_enter(device);
    if (d == NULL) return lg_error();
    lg_cuda_count(d, LG_CUDA_TO_DEVICE, (int64_t)bytes);
    cudaError_t code = cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, d->copies);
    if (code == cudaSuccess) code = order(d, d->stream, d->copies);
    return lg_cuda_check(d, code, "copying to the device");
}

static luge_status from_peer(lg_device *device, void *to, lg_device *peer, const void *from, size_t bytes)
{
    if (follow(device, peer) != LUGE_OK) return lg_error(); /* what it copies is made, and `to` is free */
    lg_cuda_device *d = lg_cuda_enter(device);
    if (d == NULL) return lg_error();
    lg_cuda_count(d, LG_CUDA_WITHIN, (int64_t)bytes);
    const cudaError_t code = cudaMemcpyPeerAsync(to, d->index, from, peer->id.index, bytes, d->stream);
    if (lg_cuda_check(d, code, "copying from another device") != LUGE_OK) return lg_error();
    return follow(peer, device); /* what it does next to `from` comes later */
}

/* Waits for the device, also while an error stands: reading works then. What a kernel has noted is not lost by
 * that: it is told when no other error is in the way. */
static luge_status wait_and_report(lg_cuda_device *d, void *to, const void *from, size_t bytes)
{
    lg_cuda_count(d, LG_CUDA_WAIT, 1);
    pthread_mutex_lock(&d->reading);
    cudaError_t code = cudaMemcpyAsync(d->seen, d->trouble, sizeof *d->seen, cudaMemcpyDeviceToHost, d->stream);
    if (code == cudaSuccess && bytes > 0)
        code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, d->stream);
    if (code == cudaSuccess) code = cudaStreamSynchronize(d->stream);
    luge_status status = lg_cuda_check(d, code, "waiting for the device");
    if (status == LUGE_OK && lg_ok()) status = lg_cuda_report(d);
    pthread_mutex_unlock(&d->reading);
    return status;
}

static luge_status to_host(lg_device *device, void *to, const void *from, size_t bytes)
{
    lg_cuda_device *d = lg_cuda_enter(device);
    if (d == NULL) return lg_error();
    lg_cuda_count(d, LG_CUDA_TO_HOST, (int64_t)bytes);
    return wait_and_report(d, to, from, bytes);
}

static luge_status sync(lg_device *device)
{
    lg_cuda_device *d = lg_cuda_enter(device);
    return d != NULL ? wait_and_report(d, NULL, NULL, 0) : lg_error();
}

static void drain(lg_device *device)
{
    lg_cuda_device *d = lg_cuda_enter_quietly(device);
    if (d == NULL) return;
    lg_cuda_count(d, LG_CUDA_WAIT, 1);
    if (cudaStreamSynchronize(d->copies) != cudaSuccess || cudaStreamSynchronize(d->stream) != cudaSuccess)
        (void)cudaGetLastError();
}

/* What is small goes through pinned memory, so that the host need not wait; of what is large CUDA's own
 * detour is as good. */
enum { STAGED_MAX = 1 << 20 };

/* NULL: too large, or there is no pinned memory, which is no error: something that is being put back
 * must not fail for that. */
static void *stage(lg_device *device, size_t bytes)
{
    if (bytes > STAGED_MAX) return NULL;
    lg_thread *self = lg_self();
    const luge_status standing = self->error;
    void *staged = lg_memory_alloc(device->pinned, bytes);
    if (staged == NULL) self->error = standing;
    return staged;
}

static luge_status from_host(lg_device *device, void *to, const void *from, size_t bytes)
{
    lg_cuda_device *d = lg_cuda_enter(device);
    if (d == NULL) return lg_error();
    if (bytes == 0) return LUGE_OK;
    lg_cuda_count(d, LG_CUDA_TO_DEVICE, (int64_t)bytes);
    void *staged = stage(device, bytes);
    if (staged != NULL) {
        memcpy(staged, from, bytes);
        const cudaError_t code = cudaMemcpyAsync(to, staged, bytes, cudaMemcpyHostToDevice, d->stream);
        lg_memory_free(device->pinned, staged, bytes); /* held until the copy is done */
        return lg_cuda_check(d, code, "copying to the device");
    }
    lg_cuda_count(d, LG_CUDA_WAIT, 1);
    cudaError_t code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, d->stream);
    if (code == cudaSuccess) code = cudaStreamSynchronize(d->stream);
    return lg_cuda_check(d, code, "copying to the device");
}

static luge_status check(lg_device *device)
{
    return lg_cuda_enter(device) != NULL ? LUGE_OK : lg_error();
}

/* ---- the user's stream */

static luge_status set_stream(lg_device *device, void *stream)
{
    lg_cuda_device *d = lg_cuda_enter(device);
    if (d == NULL) return lg_error();
    cudaStream_t fresh = stream, old = d->stream;
    cudaError_t code = cudaSuccess;
    if (stream == NULL && d->own_stream) return LUGE_OK;
    if (stream == NULL) code = cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = order(d, fresh, old);
    if (lg_cuda_check(d, code, "changing the stream") != LUGE_OK) {
        if (stream == NULL && fresh != NULL) cudaStreamDestroy(fresh);
        return lg_error();
    }
    d->stream = fresh;
    if (d->own_stream) cudaStreamDestroy(old); /* goes once it is idle */
    d->own_stream = stream == NULL;
    return LUGE_OK;
}

/* ---- counts */

static void counts(lg_device *device, luge_device_counts *c)
{
    lg_cuda_device *d = device->state;
    if (d == NULL) return;
    int64_t n[LG_CUDA_COUNTS];
    for (int i = 0; i < LG_CUDA_COUNTS; ++i) n[i] = atomic_load_explicit(&d->count[i], memory_order_relaxed);
    *c = (luge_device_counts){.waits = n[LG_CUDA_WAIT],
                              .device_allocations = n[LG_CUDA_ALLOCATION],
                              .pinned_allocations = n[LG_CUDA_PINNED_ALLOCATION],
                              .launches = __atomic_load_n(&lg_cuda_launches, __ATOMIC_RELAXED),
                              .library_calls = n[LG_CUDA_LIBRARY_CALL],
                              .bytes_to_device = n[LG_CUDA_TO_DEVICE],
                              .bytes_to_host = n[LG_CUDA_TO_HOST],
                              .bytes_within = n[LG_CUDA_WITHIN]};
}

/* ---- the table */

#define ENTRY_VIEW(name)
#define ENTRY_ALL(name) [LG_OP_##name] = lg_cuda_##name,

const lg_backend *lg_cuda_table(void)
{
    static const lg_backend table = {
        .name = "cuda",
        .note = "this version's CUDA code has run on an emulated GPU only so far (docs/gpu_status.md): check its results",
        .kind = LG_DEVICE_CUDA,
        .count = count,
        .why_not = why_not,
        .alloc = alloc,
        .free = release,
        .alloc_granularity = 2 << 20,
        .copy = copy,
        .to_host = to_host,
        .from_host = from_host,
        .sync = sync,
        .kernel = {
#define LG_OP(name, cpu, cuda) ENTRY_##cuda(name)
#include "ops/ops.def"
#undef LG_OP
        },
        .kernel_kind = {
#define LG_OP(name, cpu, cuda) [LG_OP_##name] = LG_KERNEL_##cuda,
#include "ops/ops.def"
#undef LG_OP
        },
        .multi = lg_cuda_multi,
        .open = lg_cuda_open,
        .close = lg_cuda_close,
        .host_alloc = host_alloc,
        .host_free = host_free,
        .upload = upload,
        .download = download,
        .from_peer = from_peer,
        .follow = follow,
        .drain = drain,
        .mark = mark,
        .reached = reached,
        .unmark = unmark,
        .check = check,
        .set_stream = set_stream,
        .counts = counts,
    };
    return &table;
}
