/* Inside the emulated CUDA runtime: devices, memory (memory.cpp), streams and their queues, failures on
 * demand (runtime.cpp), behind CUDA's functions (cudart.cpp). All state is under one lock, which each CUDA
 * function takes; queued work runs with it held, so the program's own threads see devices that work one
 * after the other. */
#ifndef LG_EMULATOR_RUNTIME_H
#define LG_EMULATOR_RUNTIME_H

#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include "tests/cuda/emulator/kernel_run.h"
#include "tests/cuda/emulator/sanitizers.h"

namespace emulated {

/* One cudaEventRecord(): who waits for the event waits for the record that was the last then. */
struct event_record {
    cudaStream_t stream; /* while it is queued */
    bool done = false;
    char sync = 0;       /* for TSan, like those below */
};

struct operation {
    const char *name;
    std::function<void()> act;          /* as the stream's device */
    const launch *kernel = nullptr;     /* or this */
    std::shared_ptr<event_record> awaits, records;
    unsigned devices = 0;               /* whose memory it may touch besides the stream's device and its peers */
    char before = 0, after = 0;
};

} // namespace emulated

struct CUstream_st {
    int number, device;
    bool blocking; /* waits for the default stream and is waited for by it */
    std::deque<std::unique_ptr<emulated::operation>> queue;
    char sync;
    void *context; /* TSan's */
    std::unique_ptr<char[]> stack; /* with TSan: on which libraries do the stream's work */
};

struct CUevent_st {
    int device;
    unsigned flags;
    std::shared_ptr<emulated::event_record> last; /* NULL: none yet */
};

namespace emulated {

enum { MAX_DEVICES = 8 };

/* ---- memory.cpp */

enum class place { unknown, device, pinned };

struct block {
    char *base;
    size_t bytes, mapped; /* `mapped` bytes of whole pages, which end where the block does */
    int device;           /* -1: pinned */
    bool freed;
    char *pages() const;
};

/* A block with guards around it, which the current mode protects; NULL: no memory. */
block *make_block(size_t bytes, int device);
/* Its addresses stay taken, so that later uses are seen. */
void free_block(block *b);
/* The live block that holds all of the range; NULL: none. */
block *find_block(const void *memory, size_t bytes);
long show_blocks(bool show);
size_t bytes_of(int device);
/* Opens the memory of the devices in the mask to this process and closes that of others. 0: host code runs. */
void open_devices(unsigned mask);
void protect_memory(bool on);
/* Looks at the arguments for addresses that a kernel on the device cannot use. */
void check_arguments(const launch *work, int device);

/* ---- runtime.cpp */

struct settings {
    enum { lazy, eager, random } mode = lazy;
    uint32_t random_state = 1;
    int devices = 2;
    size_t capacity = size_t{4} << 30;
    bool peers = true;
};
extern settings options;

struct device_state {
    unsigned peers = 0;                    /* devices whose memory it reaches */
    cudaError_t broken = cudaSuccess;
};
extern device_state device[MAX_DEVICES];
/* Containers are never destroyed: the library may free what it has after the destructors of this module. */
extern std::set<cudaStream_t> &streams;
extern std::set<cudaEvent_t> &events;
extern std::map<const void *, size_t> &dynamic_limit; /* of kernels that asked for more than 48 KB */

int &current_device(); /* of the calling thread */

/* One call of a CUDA function: holds the lock, counts it, makes it fail where a test wants that. */
class api_call {
public:
    explicit api_call(const char *name, bool can_fail = true);
    ~api_call();
    api_call(const api_call &) = delete;
    /* The error with which it fails before it does anything; cudaSuccess: none. */
    cudaError_t trouble() const { return trouble_; }
    /* Its answer, kept for cudaGetLastError: what it says, unless it was to fail. */
    cudaError_t answer(cudaError_t code);

private:
    cudaError_t trouble_ = cudaSuccess;
};

/* The thread's last error; takes it, or leaves it there. */
cudaError_t last_error(bool take);

/* Counts something for lg_emulator_count; `name` is kept. */
void count(const char *name, long by);
/* Notes how much device memory there is. */
void count_peak();

/* While it lives, what runs is the program's as far as TSan knows. */
struct as_program {
    as_program() { ignore_end(); }
    ~as_program() { ignore_begin(); }
};

/* Ends the process unless it is a stream (not the default one), an event. */
cudaStream_t check_stream(cudaStream_t stream);
cudaEvent_t check_event(cudaEvent_t event);

/* Queues work; may run some, as the mode says. */
void push(cudaStream_t stream, std::unique_ptr<operation> work);
/* Runs what is queued, until the stream has nothing left, the record is done, or no stream has anything. */
void drain(cudaStream_t stream);
void drain_record(const event_record *record);
void drain_blocking_streams();
void drain_device(int device);
/* Somebody asks whether the stream is done: the device may do a little. */
void progress(cudaStream_t stream);

/* Copies at once, as the host, which has waited for what it needs. `devices`: whose memory that may be. */
void copy_now(void *to, const void *from, size_t bytes, unsigned devices);

} // namespace emulated

#endif
