/* The functions of the CUDA runtime that Luge uses, emulated; what each does is in NVIDIA's documentation of
 * the function of the same name. */
#include "tests/cuda/emulator/runtime.h"

#include <stdio.h>
#include <string.h>

using namespace emulated;

namespace {

enum { DRIVER = 13000 };
constexpr size_t SHARED_BYTES = 227 << 10;

bool has(int number) { return number >= 0 && number < options.devices; }

/* ---- copies */

struct side {
    const block *of; /* NULL: pageable host memory */
    bool on_device() const { return of != nullptr && of->device >= 0; }
};

side side_of(const char *function, const void *memory, size_t bytes)
{
    const side s = {find_block(memory, bytes)};
    if (s.of == nullptr && find_block(memory, 1) != nullptr)
        fail("%s: %zu bytes from %p on are more than the allocation holds", function, bytes, memory);
    return s;
}

/* Whether the kind that the caller names is the one that the addresses say. */
bool is_of_kind(cudaMemcpyKind kind, side to, side from)
{
    switch (kind) {
    case cudaMemcpyHostToHost: return !to.on_device() && !from.on_device();
    case cudaMemcpyHostToDevice: return to.on_device() && !from.on_device();
    case cudaMemcpyDeviceToHost: return !to.on_device() && from.on_device();
    case cudaMemcpyDeviceToDevice: return to.on_device() && from.on_device();
    default: return kind == cudaMemcpyDefault;
    }
}

unsigned devices_of(side to, side from)
{
    unsigned mask = 0;
    if (to.on_device()) mask |= 1u << to.of->device;
    if (from.on_device()) mask |= 1u << from.of->device;
    return mask;
}

void count_copy(side to, side from, size_t bytes)
{
    const long n = static_cast<long>(bytes);
    if (to.on_device() && !from.on_device()) count("host to device bytes", n);
    if (!to.on_device() && from.on_device()) count("device to host bytes", n);
    if (to.of == nullptr || from.of == nullptr) count("pageable bytes", n);
}

void push_copy(cudaStream_t stream, void *to, std::shared_ptr<const void> from, size_t bytes, unsigned devices)
{
    auto work = std::make_unique<operation>();
    work->name = "copy";
    work->devices = devices;
    work->act = [to, from, bytes] { memcpy(to, from.get(), bytes); };
    push(stream, std::move(work));
}

/* As the documentation has it for memory that is not pinned: the source is read before the function returns,
 * and a destination is written before it returns. */
void copy_in_order(cudaStream_t stream, void *to, const void *from, size_t bytes, side to_side, side from_side)
{
    const unsigned devices = devices_of(to_side, from_side);
    count_copy(to_side, from_side, bytes);
    if (to_side.of == nullptr) {
        count("wait", 1);
        drain(stream);
        acquire(&stream->sync);
        copy_now(to, from, bytes, devices);
    } else if (from_side.of == nullptr) {
        std::shared_ptr<void> staged(new char[bytes], [](void *p) { delete[] static_cast<char *>(p); });
        copy_now(staged.get(), from, bytes, 0);
        push_copy(stream, to, staged, bytes, devices);
    } else {
        push_copy(stream, to, std::shared_ptr<const void>(from, [](const void *) {}), bytes, devices);
    }
}

cudaError_t allocate(void **memory, size_t bytes, int of_device)
{
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (of_device >= 0 && (bytes > options.capacity || bytes_of(of_device) > options.capacity - bytes))
        return cudaErrorMemoryAllocation;
    const block *b = make_block(bytes, of_device);
    if (b == nullptr) return cudaErrorMemoryAllocation;
    *memory = b->base;
    if (of_device >= 0) count_peak();
    return cudaSuccess;
}

/* What may still use the memory runs first, as the function waits for the device. */
void release_memory(const char *function, void *memory, bool pinned)
{
    if (memory == nullptr) return;
    block *b = find_block(memory, 1);
    if (b == nullptr || b->base != memory || (b->device < 0) != pinned)
        fail("%s(%p): no such memory, or it is free already", function, memory);
    for (int i = 0; i < options.devices; ++i)
        if (pinned || i == b->device) drain_device(i);
    free_block(b);
}

cudaError_t make_stream(cudaStream_t *stream, unsigned flags)
{
    static int number;
    auto *made = new CUstream_st{};
    made->number = ++number;
    made->device = current_device();
    made->blocking = (flags & cudaStreamNonBlocking) == 0;
    made->context = new_context(); /* now: a context begins with what its maker has seen */
    streams.insert(made);
    *stream = made;
    return cudaSuccess;
}

int attribute(cudaDeviceAttr which)
{
    switch (which) {
    case cudaDevAttrMultiProcessorCount: return 132;
    case cudaDevAttrComputeCapabilityMajor: return 9;
    case cudaDevAttrComputeCapabilityMinor: return 0;
    case cudaDevAttrMaxThreadsPerBlock: return 1024;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return SHARED_BYTES;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return 228 << 10;
    case cudaDevAttrL2CacheSize: return 60 << 20;
    case cudaDevAttrUnifiedAddressing: return 1;
    case cudaDevAttrMemoryPoolsSupported: return 1;
    case cudaDevAttrAsyncEngineCount: return 3;
    default: return 0;
    }
}

} // namespace

/* Functions that do nothing once they are to fail. */
#define LG_BEGIN           \
    api_call call(__func__); \
    if (call.trouble() != cudaSuccess) return call.answer(cudaSuccess)

extern "C" {

/* ---- devices */

cudaError_t cudaGetDeviceCount(int *count_of_devices)
{
    LG_BEGIN;
    *count_of_devices = options.devices;
    return call.answer(options.devices == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int number)
{
    LG_BEGIN;
    if (!has(number)) return call.answer(cudaErrorInvalidDevice);
    current_device() = number;
    return call.answer(cudaSuccess);
}

cudaError_t cudaGetDevice(int *number)
{
    LG_BEGIN;
    *number = current_device();
    return call.answer(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int number)
{
    LG_BEGIN;
    if (!has(number)) return call.answer(cudaErrorInvalidDevice);
    *value = attribute(which);
    return call.answer(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int number)
{
    LG_BEGIN;
    if (!has(number)) return call.answer(cudaErrorInvalidDevice);
    *properties = cudaDeviceProp{};
    snprintf(properties->name, sizeof properties->name, "Emulated GPU %d", number);
    properties->major = attribute(cudaDevAttrComputeCapabilityMajor);
    properties->minor = attribute(cudaDevAttrComputeCapabilityMinor);
    properties->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    properties->totalGlobalMem = options.capacity;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = SHARED_BYTES;
    properties->l2CacheSize = attribute(cudaDevAttrL2CacheSize);
    properties->pciBusID = number + 1;
    return call.answer(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    LG_BEGIN;
    count("wait", 1);
    drain_device(current_device());
    return call.answer(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    LG_BEGIN;
    const size_t used = bytes_of(current_device());
    *total = options.capacity;
    *free_bytes = used < options.capacity ? options.capacity - used : 0;
    return call.answer(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    LG_BEGIN;
    *version = CUDART_VERSION;
    return call.answer(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    LG_BEGIN;
    *version = DRIVER;
    return call.answer(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int number, int peer)
{
    LG_BEGIN;
    if (!has(number) || !has(peer)) return call.answer(cudaErrorInvalidDevice);
    *can = number != peer && options.peers;
    return call.answer(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    LG_BEGIN;
    unsigned &peers = device[current_device()].peers;
    if (!has(peer) || peer == current_device()) return call.answer(cudaErrorInvalidDevice);
    if (flags != 0) return call.answer(cudaErrorInvalidValue);
    if (!options.peers) return call.answer(cudaErrorPeerAccessUnsupported);
    if ((peers >> peer & 1) != 0) return call.answer(cudaErrorPeerAccessAlreadyEnabled);
    peers |= 1u << peer;
    return call.answer(cudaSuccess);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    LG_BEGIN;
    unsigned &peers = device[current_device()].peers;
    if (!has(peer)) return call.answer(cudaErrorInvalidDevice);
    if ((peers >> peer & 1) == 0) return call.answer(cudaErrorPeerAccessNotEnabled);
    drain_device(current_device());
    peers &= ~(1u << peer);
    return call.answer(cudaSuccess);
}

/* ---- errors */

cudaError_t cudaGetLastError(void)
{
    api_call call(__func__, false);
    return last_error(true);
}

cudaError_t cudaPeekAtLastError(void)
{
    api_call call(__func__, false);
    return last_error(false);
}

/* Those that a test is likely to meet; the text of others is their number. */
const char *cudaGetErrorName(cudaError_t code)
{
    static thread_local char text[32];
    switch (code) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError: return "cudaErrorInitializationError";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorUnknown: return "cudaErrorUnknown";
    default: snprintf(text, sizeof text, "cudaError %d", code); return text;
    }
}

const char *cudaGetErrorString(cudaError_t code)
{
    switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInitializationError: return "initialization error";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorUnknown: return "unknown error";
    default: return cudaGetErrorName(code);
    }
}

/* ---- memory */

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    LG_BEGIN;
    return call.answer(allocate(memory, bytes, current_device()));
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    LG_BEGIN;
    (void)flags;
    return call.answer(allocate(memory, bytes, -1));
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) { return cudaHostAlloc(memory, bytes, cudaHostAllocDefault); }

cudaError_t cudaFree(void *memory)
{
    api_call call(__func__);
    release_memory(__func__, memory, false);
    return call.answer(cudaSuccess);
}

cudaError_t cudaFreeHost(void *memory)
{
    api_call call(__func__);
    release_memory(__func__, memory, true);
    return call.answer(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *memory)
{
    LG_BEGIN;
    *attributes = cudaPointerAttributes{};
    const block *b = find_block(memory, 1);
    attributes->type = b == nullptr ? cudaMemoryTypeUnregistered : b->device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = b == nullptr ? -2 : b->device < 0 ? 0 : b->device;
    attributes->devicePointer = b == nullptr ? nullptr : const_cast<void *>(memory);
    attributes->hostPointer = b != nullptr && b->device >= 0 ? nullptr : const_cast<void *>(memory);
    return call.answer(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    LG_BEGIN;
    check_stream(stream);
    if (bytes == 0) return call.answer(cudaSuccess);
    const side to_side = side_of(__func__, to, bytes), from_side = side_of(__func__, from, bytes);
    if (!is_of_kind(kind, to_side, from_side)) return call.answer(cudaErrorInvalidValue);
    copy_in_order(stream, to, from, bytes, to_side, from_side);
    return call.answer(cudaSuccess);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream)
{
    LG_BEGIN;
    check_stream(stream);
    if (!has(to_device) || !has(from_device)) return call.answer(cudaErrorInvalidDevice);
    if (bytes == 0) return call.answer(cudaSuccess);
    const side to_side = side_of(__func__, to, bytes), from_side = side_of(__func__, from, bytes);
    if (!to_side.on_device() || to_side.of->device != to_device || !from_side.on_device() || from_side.of->device != from_device)
        return call.answer(cudaErrorInvalidValue);
    copy_in_order(stream, to, from, bytes, to_side, from_side);
    return call.answer(cudaSuccess);
}

/* On the default stream, which is ordered with blocking streams only. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    LG_BEGIN;
    if (bytes == 0) return call.answer(cudaSuccess);
    const side to_side = side_of(__func__, to, bytes), from_side = side_of(__func__, from, bytes);
    if (!is_of_kind(kind, to_side, from_side)) return call.answer(cudaErrorInvalidValue);
    count_copy(to_side, from_side, bytes);
    count("wait", 1);
    drain_blocking_streams();
    copy_now(to, from, bytes, devices_of(to_side, from_side));
    return call.answer(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    LG_BEGIN;
    check_stream(stream);
    if (bytes == 0) return call.answer(cudaSuccess);
    const side where = side_of(__func__, memory, bytes);
    if (where.of == nullptr) return call.answer(cudaErrorInvalidValue);
    auto work = std::make_unique<operation>();
    work->name = "set";
    work->act = [=] { memset(memory, value, bytes); };
    push(stream, std::move(work));
    return call.answer(cudaSuccess);
}

/* ---- streams */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    LG_BEGIN;
    return call.answer(make_stream(stream, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    LG_BEGIN;
    (void)priority;
    return call.answer(make_stream(stream, flags));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    LG_BEGIN;
    *least = 0;
    *greatest = -5;
    return call.answer(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    api_call call(__func__);
    drain(check_stream(stream));
    streams.erase(stream);
    if (with_tsan) end_context(stream->context);
    delete stream;
    return call.answer(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    LG_BEGIN;
    count("wait", 1);
    drain(check_stream(stream));
    acquire(&stream->sync);
    return call.answer(device[stream->device].broken);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    LG_BEGIN;
    progress(check_stream(stream));
    if (!stream->queue.empty()) return call.answer(cudaErrorNotReady);
    acquire(&stream->sync);
    return call.answer(device[stream->device].broken);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    LG_BEGIN;
    (void)flags;
    check_stream(stream);
    if (check_event(event)->last == nullptr) return call.answer(cudaSuccess);
    auto work = std::make_unique<operation>();
    work->name = "wait for an event";
    work->awaits = event->last;
    push(stream, std::move(work));
    return call.answer(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    LG_BEGIN;
    auto work = std::make_unique<operation>();
    work->name = "host function";
    work->act = [=] {
        open_devices(0);
        function(data);
    };
    push(check_stream(stream), std::move(work));
    return call.answer(cudaSuccess);
}

/* ---- events */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    LG_BEGIN;
    auto *made = new CUevent_st{current_device(), flags, nullptr};
    events.insert(made);
    *event = made;
    return call.answer(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    api_call call(__func__);
    check_event(event);
    events.erase(event);
    delete event;
    return call.answer(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    LG_BEGIN;
    if (check_event(event)->device != check_stream(stream)->device) return call.answer(cudaErrorInvalidResourceHandle);
    event->last = std::make_shared<event_record>();
    event->last->stream = stream;
    auto work = std::make_unique<operation>();
    work->name = "event";
    work->records = event->last;
    push(stream, std::move(work));
    return call.answer(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    LG_BEGIN;
    count("wait", 1);
    event_record *last = check_event(event)->last.get();
    if (last == nullptr) return call.answer(cudaSuccess);
    drain_record(last);
    acquire(&last->sync);
    return call.answer(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    LG_BEGIN;
    event_record *last = check_event(event)->last.get();
    if (last == nullptr) return call.answer(cudaSuccess);
    if (!last->done) progress(last->stream);
    if (!last->done) return call.answer(cudaErrorNotReady);
    acquire(&last->sync);
    return call.answer(cudaSuccess);
}

/* The emulated device has no clock: the time is 0. */
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    LG_BEGIN;
    *milliseconds = 0;
    const bool timed = ((check_event(start)->flags | check_event(end)->flags) & cudaEventDisableTiming) == 0;
    if (!timed || start->last == nullptr || end->last == nullptr) return call.answer(cudaErrorInvalidResourceHandle);
    return call.answer(start->last->done && end->last->done ? cudaSuccess : cudaErrorNotReady);
}

/* ---- kernels */

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute which, int value)
{
    LG_BEGIN;
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return call.answer(cudaSuccess);
    if (value < 0 || static_cast<size_t>(value) > SHARED_BYTES) return call.answer(cudaErrorInvalidValue);
    dynamic_limit[function] = static_cast<size_t>(value);
    return call.answer(cudaSuccess);
}

} // extern "C"
