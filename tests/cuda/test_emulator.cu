/* The emulated GPU: what is right works in every mode and order, and planted faults are found. Each scene is
 * run as a process of its own (this program with the scene's name), since a fault that is found ends it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {
#include <cmocka.h>
}
#include "cuda/kernel.cuh"
#include "tests/cuda/emulator/emulator.h"

namespace {

enum { N = 256, WRONG = 5 }; /* threads of a block; the exit code of a scene whose figures are wrong */

#define DO(call)                                                                         \
    do {                                                                                 \
        const cudaError_t code_ = (call);                                                \
        if (code_ != cudaSuccess) {                                                      \
            fprintf(stderr, "%s:%d: %s\n", #call, __LINE__, cudaGetErrorString(code_));   \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

void expect(bool right, const char *what, int line)
{
    if (right) return;
    fprintf(stderr, "wrong figures: line %d: %s\n", line, what);
    exit(WRONG);
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

/* What most scenes use. */
struct gpu {
    cudaStream_t stream = nullptr, other = nullptr;
    float *memory = nullptr, *pinned = nullptr; /* N numbers; pinned: 0, 1, 2... */

    gpu()
    {
        DO(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        DO(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
        DO(cudaMalloc(reinterpret_cast<void **>(&memory), N * sizeof(float)));
        DO(cudaHostAlloc(reinterpret_cast<void **>(&pinned), N * sizeof(float), cudaHostAllocDefault));
        for (int i = 0; i < N; ++i) pinned[i] = static_cast<float>(i);
    }
    void upload() { DO(cudaMemcpyAsync(memory, pinned, N * sizeof(float), cudaMemcpyHostToDevice, stream)); }
    void download(cudaStream_t on) { DO(cudaMemcpyAsync(pinned, memory, N * sizeof(float), cudaMemcpyDeviceToHost, on)); }
    void wait(cudaStream_t on) { DO(cudaStreamSynchronize(on)); }
    void close()
    {
        DO(cudaFree(memory));
        DO(cudaFreeHost(pinned));
        DO(cudaStreamDestroy(stream));
        DO(cudaStreamDestroy(other));
        EXPECT(lg_emulator_leaks(true) == 0);
    }
};

/* ---- kernels */

__global__ void scale(float *x, float by, int n)
{
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) x[i] *= by;
}

__global__ void reverse_block(float *x, int with_barrier)
{
    LG_SHARED(float, all, [N]);
    all[threadIdx.x] = x[threadIdx.x];
    if (with_barrier) __syncthreads();
    x[threadIdx.x] = all[N - 1 - threadIdx.x];
}

__global__ void sum_block(const float *x, float *y)
{
    LG_SHARED(float, partial, [32]);
    const float sum = lg_block_sum(x[threadIdx.x], partial);
    if (threadIdx.x == 0) *y = sum;
}

/* Every kind of collective, each checked against what CUDA's documentation says it gives. */
__global__ void collectives(int *wrong)
{
    LG_DYNAMIC_SHARED(int, seen);
    const int lane = threadIdx.x % 32, thread = threadIdx.x;
    int bad = 0;
    bad += __shfl_sync(~0u, thread, 5) != thread - lane + 5;
    bad += __shfl_sync(~0u, lane, 9, 8) != lane / 8 * 8 + 1;
    bad += __shfl_up_sync(~0u, lane, 3) != (lane < 3 ? lane : lane - 3);
    bad += __shfl_down_sync(~0u, lane, 2, 16) != (lane % 16 < 14 ? lane + 2 : lane);
    bad += __shfl_xor_sync(~0u, 1.5 * lane, 4) != 1.5 * (lane ^ 4);
    bad += __ballot_sync(~0u, lane % 3 == 0) != 0x49249249u;
    bad += !__any_sync(~0u, lane == 31) + (__all_sync(~0u, lane < 31) != 0) + !__all_sync(~0u, lane < 32);
    if (lane < 8) bad += __shfl_sync(0xffu, lane, 7 - lane) != 7 - lane;
    seen[thread] = thread;
    bad += __syncthreads_count(thread % 2) != N / 2;
    bad += !__syncthreads_or(thread == 7) + (__syncthreads_and(thread != 7) != 0);
    bad += seen[N - 1 - thread] != N - 1 - thread;
    atomicAdd(&wrong[0], bad);
    atomicMax(&wrong[1], thread);
    if (atomicCAS(&wrong[2], 0, thread + 1) == 0) wrong[3] = 1;
}

__global__ void half_a_warp(float *x)
{
    if (threadIdx.x % 32 < 16) x[threadIdx.x] = __shfl_xor_sync(~0u, x[threadIdx.x], 1);
}

__global__ void two_barriers(float *x)
{
    if (threadIdx.x < 32) __syncthreads();
    else
        __syncthreads();
    x[0] = 1;
}

__global__ void lane_outside(float *x)
{
    if (threadIdx.x < 16) x[threadIdx.x] = __shfl_sync(0xffffu, x[threadIdx.x], 20);
}

__global__ void blocks_meet(float *x)
{
    if (threadIdx.x == blockIdx.x) x[0] = static_cast<float>(blockIdx.x);
}

/* ---- scenes of what is right */

void scene_kernels()
{
    gpu g;
    g.upload();
    DO(LG_LAUNCH(reverse_block, dim3(1), dim3(N), 0, g.stream, g.memory, 1));
    DO(LG_LAUNCH(scale, dim3(2), dim3(N / 2), 0, g.stream, g.memory, 2.0f, N));
    g.download(g.stream);
    g.wait(g.stream);
    for (int i = 0; i < N; ++i) EXPECT(g.pinned[i] == 2.0f * static_cast<float>(N - 1 - i));
    DO(LG_LAUNCH(sum_block, dim3(1), dim3(N), 0, g.stream, g.memory, g.memory));
    g.download(g.stream);
    g.wait(g.stream);
    EXPECT(g.pinned[0] == static_cast<float>(N * (N - 1)));
    g.close();
}

void scene_collectives()
{
    gpu g;
    int *wrong = reinterpret_cast<int *>(g.memory), answer[4];
    DO(cudaMemsetAsync(wrong, 0, sizeof answer, g.stream));
    DO(LG_LAUNCH(collectives, dim3(1), dim3(N), N * sizeof(int), g.stream, wrong));
    DO(cudaMemcpyAsync(answer, wrong, sizeof answer, cudaMemcpyDeviceToHost, g.stream)); /* to pageable memory: waits */
    EXPECT(answer[0] == 0);
    EXPECT(answer[1] == N - 1);
    EXPECT(answer[2] >= 1 && answer[2] <= N);
    EXPECT(answer[3] == 1);
    g.close();
}

void scene_streams_and_events()
{
    gpu g;
    cudaEvent_t event;
    DO(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    g.upload();
    DO(cudaEventRecord(event, g.stream));
    DO(cudaStreamWaitEvent(g.other, event, 0));
    DO(LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.other, g.memory, 3.0f, N));
    DO(cudaEventRecord(event, g.other));
    DO(cudaStreamWaitEvent(g.stream, event, 0));
    g.download(g.stream);
    DO(cudaEventRecord(event, g.stream));
    while (cudaEventQuery(event) == cudaErrorNotReady) {}
    EXPECT(g.pinned[N - 1] == 3.0f * (N - 1));
    DO(cudaEventDestroy(event));
    g.close();
}

void scene_pageable_memory()
{
    gpu g;
    float host[N];
    for (float &v : host) v = 7;
    DO(cudaMemcpyAsync(g.memory, host, sizeof host, cudaMemcpyHostToDevice, g.stream));
    for (float &v : host) v = 8; /* it has been read */
    g.download(g.stream);
    g.wait(g.stream);
    EXPECT(g.pinned[0] == 7 && g.pinned[N - 1] == 7);
    EXPECT(lg_emulator_count("pageable bytes") == sizeof host);
    EXPECT(lg_emulator_count("device to host bytes") == sizeof host);
    g.close();
}

void scene_two_devices()
{
    gpu g;
    float *there;
    int can = 0;
    DO(cudaSetDevice(1));
    DO(cudaMalloc(reinterpret_cast<void **>(&there), N * sizeof(float)));
    DO(cudaSetDevice(0));
    EXPECT(LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, g.memory, 1.0f, N) == cudaSuccess);
    g.upload();
    DO(cudaMemcpyPeerAsync(there, 1, g.memory, 0, N * sizeof(float), g.stream));
    DO(cudaDeviceCanAccessPeer(&can, 0, 1));
    EXPECT(can == 1);
    DO(cudaDeviceEnablePeerAccess(1, 0));
    EXPECT(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
    DO(LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, there, 5.0f, N));
    DO(cudaMemcpyAsync(g.memory, there, N * sizeof(float), cudaMemcpyDeviceToDevice, g.stream));
    g.download(g.stream);
    g.wait(g.stream);
    EXPECT(g.pinned[2] == 10);
    DO(cudaSetDevice(1));
    EXPECT(LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, there, 1.0f, N) == cudaErrorInvalidResourceHandle);
    DO(cudaFree(there));
    EXPECT(cudaSetDevice(2) == cudaErrorInvalidDevice);
    g.close();
}

void scene_failures()
{
    gpu g;
    void *more;
    lg_emulator_fail("cudaMalloc", 2, 0);
    DO(cudaMalloc(&more, 100));
    DO(cudaFree(more));
    EXPECT(cudaMalloc(&more, 100) == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaSuccess);
    lg_emulator_fail("launch", 1, cudaErrorLaunchOutOfResources);
    EXPECT(LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, g.memory, 1.0f, N) == cudaErrorLaunchOutOfResources);
    lg_emulator_fail("any", 3, 0);
    g.upload();
    g.wait(g.stream);
    EXPECT(cudaStreamSynchronize(g.stream) == cudaErrorUnknown);
    EXPECT(lg_emulator_failures() == 3);
    lg_emulator_capacity(1 << 20);
    EXPECT(cudaMalloc(&more, 1 << 20) == cudaErrorMemoryAllocation);
    EXPECT(LG_LAUNCH(scale, dim3(1), dim3(2048), 0, g.stream, g.memory, 1.0f, N) == cudaErrorInvalidConfiguration);
    EXPECT(LG_LAUNCH(scale, dim3(1), dim3(N), 64 << 10, g.stream, g.memory, 1.0f, N) == cudaErrorInvalidValue);
    DO(cudaFuncSetAttribute(reinterpret_cast<const void *>(scale), cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    DO(LG_LAUNCH(scale, dim3(1), dim3(N), 64 << 10, g.stream, g.memory, 1.0f, N));
    (void)cudaGetLastError();
    /* A broken device refuses all, and still frees. */
    g.wait(g.stream);
    lg_emulator_fail("device", 1, cudaErrorIllegalAddress);
    (void)LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, g.memory, 1.0f, N);
    EXPECT(cudaStreamSynchronize(g.stream) == cudaErrorIllegalAddress);
    EXPECT(cudaMalloc(&more, 100) == cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress && cudaGetLastError() == cudaErrorIllegalAddress);
    EXPECT(cudaFree(g.memory) == cudaErrorIllegalAddress);
    lg_emulator_repair();
    DO(cudaMalloc(reinterpret_cast<void **>(&g.memory), 100));
    g.close();
}

void scene_counts()
{
    gpu g;
    EXPECT(lg_emulator_count("device bytes") == N * sizeof(float));
    g.upload();
    DO(LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, g.memory, 1.0f, N));
    EXPECT(lg_emulator_count("pending") == 2);
    DO(LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, g.memory, 1.0f, N));
    EXPECT(lg_emulator_count("launch") == 2 && lg_emulator_count("scale") == 2 && lg_emulator_count("wait") == 0);
    EXPECT(lg_emulator_count("cudaMemcpyAsync") == 1 && lg_emulator_count("cudaMalloc") == 1);
    g.wait(g.stream);
    EXPECT(lg_emulator_count("wait") == 1 && lg_emulator_count("pending") == 0);
    EXPECT(lg_emulator_leaks(false) == 4);
    g.close();
    EXPECT(lg_emulator_count("device bytes") == 0);
    EXPECT(lg_emulator_count("device bytes peak") == N * sizeof(float));
}

/* ---- scenes of what is wrong */

void run_on(gpu *g, void (*kernel)(float *), unsigned blocks)
{
    g->upload();
    DO(lg_launch_named("planted", kernel, dim3(blocks), dim3(N), 0, g->stream, g->memory));
    g->wait(g->stream);
}

void scene_missing_barrier()
{
    gpu g;
    g.upload();
    DO(LG_LAUNCH(reverse_block, dim3(1), dim3(N), 0, g.stream, g.memory, 0));
    g.download(g.stream);
    g.wait(g.stream);
    for (int i = 0; i < N; ++i) EXPECT(g.pinned[i] == static_cast<float>(N - 1 - i));
}

void scene_half_a_warp()
{
    gpu g;
    run_on(&g, half_a_warp, 1);
}

void scene_two_barriers()
{
    gpu g;
    run_on(&g, two_barriers, 1);
}

void scene_lane_outside()
{
    gpu g;
    run_on(&g, lane_outside, 1);
}

void scene_blocks_meet()
{
    gpu g;
    run_on(&g, blocks_meet, 2);
}

void scene_out_of_bounds()
{
    gpu g;
    DO(LG_LAUNCH(scale, dim3(2), dim3(N), 0, g.stream, g.memory, 1.0f, N + 1));
    g.wait(g.stream);
}

void scene_host_touches_device()
{
    gpu g;
    g.memory[1] = 2;
}

void scene_read_before_wait()
{
    gpu g;
    g.upload();
    DO(LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, g.memory, 2.0f, N));
    g.download(g.stream);
    const float early = g.pinned[1];
    g.wait(g.stream);
    EXPECT(early == 2);
}

void scene_overwritten_source()
{
    gpu g;
    g.upload();
    g.pinned[1] = 50;
    g.download(g.stream);
    g.wait(g.stream);
    EXPECT(g.pinned[1] == 1);
}

void scene_missing_event()
{
    gpu g;
    g.upload();
    DO(LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, g.memory, 2.0f, N));
    DO(LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.other, g.memory, 3.0f, N));
    g.wait(g.other);
    g.download(g.other);
    g.wait(g.other);
    g.wait(g.stream);
    EXPECT(g.pinned[1] == 6);
}

void scene_leak()
{
    gpu g;
    EXPECT(lg_emulator_leaks(true) == 0);
}

void scene_kernel_after_free()
{
    gpu g;
    float *freed = g.memory;
    DO(cudaFree(g.memory));
    DO(LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, freed, 2.0f, N));
}

void scene_host_after_free()
{
    gpu g;
    DO(cudaFreeHost(g.pinned));
    g.pinned[1] = 2;
}

void scene_freed_twice()
{
    gpu g;
    DO(cudaFree(g.memory));
    (void)cudaFree(g.memory);
}

void scene_default_stream()
{
    gpu g;
    (void)LG_LAUNCH(scale, dim3(1), dim3(N), 0, nullptr, g.memory, 2.0f, N);
}

void scene_destroyed_stream()
{
    gpu g;
    DO(cudaStreamDestroy(g.other));
    g.download(g.other);
}

void scene_host_address()
{
    gpu g;
    static float host[N];
    (void)LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, host, 2.0f, N);
}

void scene_no_peer()
{
    gpu g;
    float *there;
    DO(cudaSetDevice(1));
    DO(cudaMalloc(reinterpret_cast<void **>(&there), N * sizeof(float)));
    DO(cudaSetDevice(0));
    (void)LG_LAUNCH(scale, dim3(1), dim3(N), 0, g.stream, there, 2.0f, N);
}

/* ---- the table of scenes */

#if defined(__SANITIZE_ADDRESS__)
enum { ASAN = 1, TSAN = 0 };
#elif defined(__SANITIZE_THREAD__)
enum { ASAN = 0, TSAN = 1 };
#else
enum { ASAN = 0, TSAN = 0 };
#endif

struct scene {
    const char *name;
    void (*run)();
    const char *mode, *order; /* NULL: each of them */
    const char *found;        /* a text on stderr; NULL: nothing is wrong */
    const char *found_by_tsan;
};

const char RACE[] = "data race", FIGURES[] = "wrong figures";

const scene scenes[] = {
    {"kernels", scene_kernels, nullptr, nullptr, nullptr, nullptr},
    {"collectives", scene_collectives, nullptr, nullptr, nullptr, nullptr},
    {"streams and events", scene_streams_and_events, nullptr, nullptr, nullptr, nullptr},
    {"pageable memory", scene_pageable_memory, nullptr, "forward", nullptr, nullptr},
    {"two devices", scene_two_devices, nullptr, "forward", nullptr, nullptr},
    {"failures", scene_failures, nullptr, "forward", nullptr, nullptr},
    {"counts", scene_counts, "lazy", "forward", nullptr, nullptr},
    {"missing barrier", scene_missing_barrier, "lazy", nullptr, FIGURES, RACE},
    {"half a warp", scene_half_a_warp, nullptr, nullptr, "wait at|have returned", nullptr},
    {"two barriers", scene_two_barriers, "lazy", nullptr, "different barriers", nullptr},
    {"lane outside", scene_lane_outside, "lazy", nullptr, "reads lane 20, which is not in mask 0000ffff", nullptr},
    {"blocks meet", scene_blocks_meet, "lazy", nullptr, nullptr, RACE},
    {"out of bounds", scene_out_of_bounds, nullptr, "forward", ASAN ? "use-after-poison|unknown-crash|out of bounds" : "out of bounds: byte 1024",
     nullptr},
    {"host touches device", scene_host_touches_device, nullptr, "forward", "host code touched device memory: byte 4 ", nullptr},
    {"read before wait, lazy", scene_read_before_wait, "lazy", "forward", FIGURES, RACE},
    {"read before wait, random", scene_read_before_wait, "random:1", "forward", FIGURES, RACE},
    {"read before wait, eager", scene_read_before_wait, "eager", "forward", nullptr, RACE},
    {"overwritten source, lazy", scene_overwritten_source, "lazy", "forward", FIGURES, RACE},
    {"overwritten source, eager", scene_overwritten_source, "eager", "forward", nullptr, RACE},
    {"missing event, lazy", scene_missing_event, "lazy", "forward", FIGURES, RACE},
    {"missing event, eager", scene_missing_event, "eager", "forward", nullptr, RACE},
    {"leak", scene_leak, "lazy", "forward", "leak: memory", nullptr},
    {"kernel after free", scene_kernel_after_free, "lazy", "forward", "address of freed memory", nullptr},
    {"host after free", scene_host_after_free, "lazy", "forward", "use after free: byte 4 of pinned memory", nullptr},
    {"freed twice", scene_freed_twice, "lazy", "forward", "free already", nullptr},
    {"default stream", scene_default_stream, "lazy", "forward", "default stream", nullptr},
    {"destroyed stream", scene_destroyed_stream, "lazy", "forward", "no stream, or one that was destroyed", nullptr},
    {"host address", scene_host_address, "lazy", "forward", "address of host memory", nullptr},
    {"no peer", scene_no_peer, "lazy", "forward", "address of device 1, which device 0 does not reach", nullptr},
};

/* Whether one of the alternatives, separated by |, is in the text. */
bool contains(const char *text, const char *alternatives)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", alternatives);
    for (char *rest = copy, *one; (one = strsep(&rest, "|")) != nullptr;)
        if (strstr(text, one) != nullptr) return true;
    return false;
}

void play(const scene &s, const char *mode, const char *order)
{
    char self[4096], command[8192], output[1 << 16];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=atexit_sleep_ms=0 LG_EMULATED_MODE=%s LG_EMULATED_ORDER=%s '%s' '%s' 2>&1",
             mode, order, self, s.name);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const size_t read = fread(output, 1, sizeof output - 1, pipe);
    output[read] = '\0';
    while (fgetc(pipe) != EOF) {}
    const int status = pclose(pipe), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    const char *expected = TSAN && s.found_by_tsan != nullptr ? s.found_by_tsan : s.found;
    const bool as_expected = expected == nullptr ? code == 0 : code != 0 && contains(output, expected);
    if (!as_expected)
        fail_msg("%s (%s, %s): exit code %d, expected: %s\n%s", s.name, mode, order, code,
                 expected == nullptr ? "nothing" : expected, output);
}

/* Some seeds of a random order may hide a fault; none may make one. */
void play_all(bool wrong)
{
    static const char *const modes[] = {"lazy", "eager", "random:1", "random:2"};
    static const char *const orders[] = {"forward", "reverse", "random:1"};
    for (const scene &s : scenes) {
        if ((s.found != nullptr || s.found_by_tsan != nullptr) != wrong) continue;
        for (const char *mode : modes) {
            if (s.mode != nullptr && mode != modes[0]) break;
            for (const char *order : orders) {
                if (s.order != nullptr && order != orders[0]) break;
                play(s, s.mode != nullptr ? s.mode : mode, s.order != nullptr ? s.order : order);
            }
        }
    }
}

void test_what_is_right_works(void **) { play_all(false); }
void test_planted_faults_are_found(void **) { play_all(true); }

} // namespace

int main(int argc, char **argv)
{
    for (const scene &s : scenes)
        if (argc > 1 && strcmp(argv[1], s.name) == 0) {
            s.run();
            return 0;
        }
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_right_works),
        cmocka_unit_test(test_planted_faults_are_found),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
