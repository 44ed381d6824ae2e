/* The emulated CUDA runtime's streams: queues of work that runs when the mode says so, in the order of each
 * stream and of the events between them, and in no other. Also what every CUDA function does first: counting
 * and failures on demand (emulator.h). */
#include "tests/cuda/emulator/runtime.h"

#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <atomic>
#include <string>
#include <vector>
#include "tests/cuda/emulator/emulator.h"

namespace emulated {

settings options;
device_state device[MAX_DEVICES];
std::set<cudaStream_t> &streams = *new std::set<cudaStream_t>;
std::set<cudaEvent_t> &events = *new std::set<cudaEvent_t>;
std::map<const void *, size_t> &dynamic_limit = *new std::map<const void *, size_t>;

namespace {

/* The order of texts, as keys that are kept as they are: every name is a literal. */
struct by_text {
    bool operator()(const char *a, const char *b) const { return strcmp(a, b) < 0; }
};

struct planned_failure {
    std::string function;
    long remaining;
    int code;
};

enum { LAZY_QUEUE = 1024 }; /* the most that a lazy stream puts off */

std::map<const char *, long, by_text> &counts = *new std::map<const char *, long, by_text>;
std::vector<planned_failure> &planned = *new std::vector<planned_failure>;
long failures;
thread_local cudaError_t thread_error = cudaSuccess;
bool forked; /* CUDA does not survive fork() */
bool in_operation;

/* Not a mutex: TSan must not take it for an order that the program has asked for. */
std::atomic_flag locked = ATOMIC_FLAG_INIT;

void lock()
{
    ignore_begin();
    while (locked.test_and_set(std::memory_order_acquire)) sched_yield();
}

void unlock()
{
    locked.clear(std::memory_order_release);
    ignore_end();
}

uint32_t random_number()
{
    uint32_t &x = options.random_state;
    x ^= x << 13;
    x ^= x >> 17;
    return x ^= x << 5;
}

void set_mode(const char *text)
{
    if (strcmp(text, "lazy") == 0) options.mode = settings::lazy;
    else if (strcmp(text, "eager") == 0) options.mode = settings::eager;
    else if (strncmp(text, "random", 6) == 0) options.mode = settings::random;
    else fail("the mode is lazy, eager, random or random:<seed>; not %s", text);
    const char *seed = strchr(text, ':');
    if (seed != nullptr) options.random_state = static_cast<uint32_t>(strtoul(seed + 1, nullptr, 10)) * 2654435761u | 1;
}

void plan_failure(const char *function, long n, int code)
{
    if (n > 0) planned.push_back({function, n, code});
}

void read_environment()
{
    const char *text;
    if ((text = getenv("LG_EMULATED_MODE")) != nullptr) set_mode(text);
    if ((text = getenv("LUGE_TEST_DEVICES")) != nullptr) options.devices = atoi(text);
    if (options.devices < 0 || options.devices > MAX_DEVICES) fail("LUGE_TEST_DEVICES=%s: 0 to %d", text, MAX_DEVICES);
    if ((text = getenv("LG_EMULATED_MEMORY")) != nullptr) options.capacity = strtoull(text, nullptr, 10);
    if ((text = getenv("LG_EMULATED_PROTECT")) != nullptr) protect_memory(strcmp(text, "0") != 0);
    if ((text = getenv("LG_EMULATED_PEERS")) != nullptr) options.peers = strcmp(text, "0") != 0;
    char function[64];
    long n;
    int code = 0;
    if ((text = getenv("LG_EMULATED_FAIL")) == nullptr) return;
    if (sscanf(text, "%63[^:]:%ld:%d", function, &n, &code) < 2) fail("LG_EMULATED_FAIL=%s: <function>:<n>[:<code>]", text);
    plan_failure(function, n, code);
}

void start_once()
{
    static bool started;
    if (started) return;
    started = true;
    read_environment();
    void *frame;
    backtrace(&frame, 1); /* loads what fail() needs, since a signal handler must not */
    pthread_atfork(nullptr, nullptr, [] {
        forked = true;
        locked.clear();
    });
}

bool breaks_device(cudaError_t code)
{
    switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable: return true;
    default: return false;
    }
}

cudaError_t usual_failure(const char *function)
{
    const bool allocates = strcmp(function, "cudaMalloc") == 0 || strcmp(function, "cudaHostAlloc") == 0;
    return allocates ? cudaErrorMemoryAllocation : cudaErrorUnknown;
}

/* The failure that a test planned for this call; "any" counts it too, if it is a function. */
cudaError_t planned_for(const char *function, bool any)
{
    cudaError_t code = cudaSuccess;
    for (size_t i = 0; i < planned.size();) {
        planned_failure &p = planned[i];
        if ((p.function != function && !(any && p.function == "any")) || --p.remaining > 0) {
            ++i;
            continue;
        }
        code = p.code == 0 ? usual_failure(function) : static_cast<cudaError_t>(p.code);
        planned.erase(planned.begin() + static_cast<long>(i));
        ++failures;
    }
    return code;
}

/* ---- queues */

/* While it lives, TSan takes what runs for the stream's doing. */
class as_stream {
public:
    explicit as_stream(cudaStream_t stream) : earlier_(current_context()) { enter_context(stream->context); }
    ~as_stream() { enter_context(earlier_); }

private:
    void *earlier_;
};

bool runnable(cudaStream_t stream)
{
    if (stream->queue.empty()) return false;
    const operation &first = *stream->queue.front();
    return first.awaits == nullptr || first.awaits->done;
}

/* What is on a stack while a stream works must not be what the host has there later: nothing would order the
 * two for TSan. */
struct { ucontext_t host, own; operation *work; } detour;

void act_there()
{
    detour.work->act();
}

void act(cudaStream_t stream, operation *work)
{
    constexpr size_t bytes = 1 << 20;
    if (!with_tsan) {
        work->act();
        return;
    }
    if (stream->stack == nullptr) stream->stack.reset(new char[bytes]);
    detour.work = work;
    getcontext(&detour.own);
    detour.own.uc_stack.ss_sp = stream->stack.get();
    detour.own.uc_stack.ss_size = bytes;
    detour.own.uc_link = &detour.host;
    makecontext(&detour.own, act_there, 0);
    swapcontext(&detour.host, &detour.own);
}

void run_operation(cudaStream_t stream, operation *work)
{
    device_state &own = device[stream->device];
    if (const cudaError_t code = planned_for("device", false); code != cudaSuccess) own.broken = code;
    if (own.broken != cudaSuccess) return; /* nothing runs any more */
    open_devices(1u << stream->device | own.peers | work->devices);
    if (work->kernel != nullptr) run_kernel(work->kernel, &work->before, &work->after, stream->number);
    else if (work->act != nullptr) act(stream, work);
}

/* The first of the queue, for which nothing has to be waited. */
void step(cudaStream_t stream)
{
    std::unique_ptr<operation> work = std::move(stream->queue.front());
    stream->queue.pop_front();
    in_operation = true;
    {
        as_stream now(stream);
        acquire(&work->before);
        if (work->awaits != nullptr) acquire(&work->awaits->sync);
        run_operation(stream, work.get());
        acquire(&work->after);
        if (work->records != nullptr) release(&work->records->sync);
        release(&stream->sync);
    }
    in_operation = false;
    if (work->records != nullptr) work->records->done = true;
}

void step_after_others(cudaStream_t stream)
{
    const std::shared_ptr<event_record> awaited = stream->queue.front()->awaits;
    while (awaited != nullptr && !awaited->done) step_after_others(awaited->stream);
    step(stream);
}

void run_some()
{
    if (in_operation || options.mode == settings::lazy) return;
    if (options.mode == settings::eager) {
        for (bool any = true; any;) {
            any = false;
            for (cudaStream_t s : streams)
                while (runnable(s)) step(s), any = true;
        }
    } else {
        for (uint32_t steps = random_number() % 3; steps > 0; --steps) {
            std::vector<cudaStream_t> able;
            for (cudaStream_t s : streams)
                if (runnable(s)) able.push_back(s);
            if (able.empty()) break;
            step(able[random_number() % able.size()]);
        }
    }
    open_devices(0);
}

} // namespace

/* ---- calls */

int &current_device()
{
    static thread_local int number = 0;
    return number;
}

api_call::api_call(const char *name, bool can_fail)
{
    lock();
    if (in_operation) fail("%s: called by work that a device runs", name);
    start_once();
    count(name, 1);
    if (!can_fail) return;
    count("any", 1);
    trouble_ = planned_for(name, true);
    device_state &own = device[current_device()];
    if (trouble_ != cudaSuccess && breaks_device(trouble_)) own.broken = trouble_;
    if (own.broken != cudaSuccess) trouble_ = own.broken;
    if (forked) trouble_ = cudaErrorInitializationError;
}

api_call::~api_call() { unlock(); }

cudaError_t api_call::answer(cudaError_t code)
{
    /* Waiting may have shown that the device is broken. */
    if (trouble_ == cudaSuccess && code == cudaSuccess) trouble_ = device[current_device()].broken;
    if (trouble_ != cudaSuccess) code = trouble_;
    if (code != cudaSuccess && code != cudaErrorNotReady) thread_error = code;
    return code;
}

cudaError_t last_error(bool take)
{
    const cudaError_t broken = device[current_device()].broken, code = thread_error;
    if (take) thread_error = cudaSuccess;
    return broken != cudaSuccess ? broken : code;
}

void count(const char *name, long by) { counts[name] += by; }

long device_bytes()
{
    size_t bytes = 0;
    for (int i = 0; i < MAX_DEVICES; ++i) bytes += bytes_of(i);
    return static_cast<long>(bytes);
}

void count_peak()
{
    long &peak = counts["device bytes peak"];
    if (device_bytes() > peak) peak = device_bytes();
}

cudaStream_t check_stream(cudaStream_t stream)
{
    if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
        fail("work on the default stream, which Luge never uses");
    if (streams.count(stream) == 0) fail("%p is no stream, or one that was destroyed", static_cast<void *>(stream));
    return stream;
}

cudaEvent_t check_event(cudaEvent_t event)
{
    if (events.count(event) == 0) fail("%p is no event, or one that was destroyed", static_cast<void *>(event));
    return event;
}

void push(cudaStream_t stream, std::unique_ptr<operation> work)
{
    release(&work->before);
    stream->queue.push_back(std::move(work));
    if (options.mode == settings::lazy && stream->queue.size() > LAZY_QUEUE) drain(stream);
    run_some();
}

void drain(cudaStream_t stream)
{
    while (!stream->queue.empty()) step_after_others(stream);
    open_devices(0);
}

void drain_record(const event_record *record)
{
    while (!record->done) step_after_others(record->stream);
    open_devices(0);
}

void drain_blocking_streams()
{
    for (cudaStream_t s : streams) {
        if (!s->blocking) continue;
        drain(s);
        acquire(&s->sync);
    }
}

void drain_device(int number)
{
    for (cudaStream_t s : streams) {
        if (s->device != number) continue;
        drain(s);
        acquire(&s->sync);
    }
}

void progress(cudaStream_t stream)
{
    run_some();
    if (options.mode == settings::lazy && !stream->queue.empty()) step_after_others(stream);
    open_devices(0);
}

void copy_now(void *to, const void *from, size_t bytes, unsigned devices)
{
    open_devices(devices);
    {
        as_program now;
        memcpy(to, from, bytes);
    }
    open_devices(0);
}

namespace {

long pending()
{
    long n = 0;
    for (cudaStream_t s : streams) n += static_cast<long>(s->queue.size());
    return n;
}

class control {
public:
    control()
    {
        lock();
        start_once();
    }
    ~control() { unlock(); }
};

} // namespace
} // namespace emulated

using namespace emulated;

/* ---- emulator.h */

void lg_emulator_mode(const char *mode)
{
    control now;
    set_mode(mode);
}

void lg_emulator_fail(const char *function, long n, int code)
{
    control now;
    plan_failure(function, n, code);
}

void lg_emulator_repair(void)
{
    control now;
    planned.clear();
    for (device_state &d : device) d.broken = cudaSuccess;
}

long lg_emulator_failures(void)
{
    control now;
    return failures;
}

long lg_emulator_count(const char *what)
{
    control now;
    if (strcmp(what, "pending") == 0) return pending();
    if (strcmp(what, "device bytes") == 0) return device_bytes();
    const auto entry = counts.find(what);
    return entry == counts.end() ? 0 : entry->second;
}

void lg_emulator_reset_counts(void)
{
    control now;
    counts.clear();
}

long lg_emulator_leaks(bool show)
{
    control now;
    if (show) {
        for (cudaStream_t s : streams)
            fprintf(stderr, "emulated CUDA: leak: stream %d with %zu operations not run\n", s->number, s->queue.size());
        if (!events.empty()) fprintf(stderr, "emulated CUDA: leak: %zu events\n", events.size());
    }
    return show_blocks(show) + static_cast<long>(streams.size() + events.size());
}

void lg_emulator_capacity(size_t bytes)
{
    control now;
    options.capacity = bytes;
}

int lg_emulator_call(const char *function)
{
    api_call call(function);
    return call.trouble();
}

int lg_emulator_enqueue(const char *function, void *stream, void (*run)(void *), void *data, void (*free)(void *))
{
    api_call call(function);
    const std::shared_ptr<void> held(data, free);
    if (call.trouble() != cudaSuccess) return call.trouble();
    auto work = std::make_unique<operation>();
    work->name = function;
    work->act = [run, held] { run(held.get()); };
    push(check_stream(static_cast<cudaStream_t>(stream)), std::move(work));
    return cudaSuccess;
}

bool lg_emulator_reaches(void *stream, const void *memory, size_t bytes)
{
    /* Also asked by work that runs, which has the lock already. */
    const bool own = in_operation;
    if (!own) lock();
    const int number = check_stream(static_cast<cudaStream_t>(stream))->device;
    const block *b = find_block(memory, bytes);
    const bool reaches = b != nullptr && (b->device < 0 || b->device == number || (device[number].peers >> b->device & 1) != 0);
    if (!own) unlock();
    return reaches;
}

cudaError_t lg_emulated_launch(launch *given, cudaStream_t stream)
{
    api_call call("launch");
    const std::shared_ptr<launch> work(new launch(*given), [](launch *w) {
        w->destroy(w->arguments);
        delete w;
    });
    if (call.trouble() != cudaSuccess) return call.answer(cudaSuccess);
    check_stream(stream);
    const dim3 b = work->block, g = work->grid;
    const unsigned long long threads = 1ull * b.x * b.y * b.z;
    if (threads < 1 || threads > 1024 || b.z > 64 || g.x < 1 || g.y < 1 || g.z < 1 || g.x > 0x7fffffffu || g.y > 65535 ||
        g.z > 65535)
        return call.answer(cudaErrorInvalidConfiguration);
    const auto limit = dynamic_limit.find(work->function);
    if (work->shared > (limit == dynamic_limit.end() ? size_t{48} << 10 : limit->second)) return call.answer(cudaErrorInvalidValue);
    if (stream->device != current_device()) return call.answer(cudaErrorInvalidResourceHandle);
    check_arguments(work.get(), stream->device);
    count(work->name, 1);
    auto queued = std::make_unique<operation>();
    queued->name = work->name;
    queued->kernel = work.get();
    queued->act = [work] {}; /* keeps it */
    push(stream, std::move(queued));
    return call.answer(cudaSuccess);
}
