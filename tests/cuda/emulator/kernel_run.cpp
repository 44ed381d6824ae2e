/* Runs kernels on the CPU with CUDA's rules: blocks one after the other, each thread of a block until it has
 * to wait for others (a barrier, a warp's collective), and then the next. Threads that never wait share one
 * fiber, so that they cost a call; a thread that waits keeps its fiber. What hardware leaves undefined ends
 * the process with a message: threads that wait for ones which never come, lanes of one mask at different
 * places, shuffles from lanes that take no part.
 * Nothing here is instrumented (sanitizers.h), and while a kernel runs nothing here calls the C library. */
#include "tests/cuda/emulator/kernel_run.h"

#include <execinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/cuda/emulator/fiber.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

__asm__(".text\n"
        ".globl lg_switch_stacks\n"
        ".hidden lg_switch_stacks\n"
        ".type lg_switch_stacks,@function\n"
        "lg_switch_stacks:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp,(%rdi)\n"
        "  movq %rsi,%rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size lg_switch_stacks,.-lg_switch_stacks\n");

namespace emulated {
namespace {

enum {
    MAX_THREADS = 1024,
    WARP = 32,
    MAX_MASKS = 33,         /* of one warp in one block */
    MAX_SHARED_ARRAYS = 32, /* of one kernel */
    /* TSan remembers who touched what by context. Each CUDA thread of a block has its own, and streams have
     * different ones, so that kernels that nothing orders are seen to race. */
    CONTEXT_SETS = with_tsan ? 4 : 1
};
enum : size_t {
    STATIC_SHARED_BYTES = 48 << 10,  /* what a kernel may declare */
    DYNAMIC_SHARED_BYTES = 227 << 10,
    REDZONE = with_asan ? 32 : 0,
    SHARED_BYTES = 320 << 10         /* both, with redzones */
};

enum class state { fresh, running, at_barrier, at_collective, done };
enum class order { forward, reverse, random };

struct cuda_thread {
    uint3 index;
    unsigned lane, warp;
    state now;
    fiber *on;
    site at;
};

/* The lanes of one mask meet here. Two sets of values, since the first lane to leave may come back before
 * the last has read. */
struct meeting {
    unsigned mask, arrived;
    int phase;
    collective kind;
    site at;
    uint64_t value[2][WARP];
};

struct warp_state {
    int meetings;
    unsigned done;
    meeting meet[MAX_MASKS];
};

/* What TSan knows orders by; in memory that it forgets between blocks, as nothing orders those. */
struct block_syncs {
    char barrier[2], meeting[MAX_THREADS / WARP][MAX_MASKS][2];
};
static_assert(sizeof(block_syncs) <= PAGE_BYTES, "they have one page");

struct shared_place {
    const void *key;
    size_t offset, bytes;
};

/* One kernel runs at a time: all of it is in one place. Plain arrays, since the C++ library's containers may
 * be instrumented ones of another source. */
struct {
    const launch *work;
    void *before, *after;
    int threads;
    order by;
    uint32_t random;
    int set;                      /* of contexts */

    fiber main, pool[CONTEXT_SETS * MAX_THREADS], *current, *idle[MAX_THREADS];
    int made, idle_count;
    const void *main_stack;       /* for ASan */
    size_t main_stack_bytes;

    cuda_thread thread[MAX_THREADS];
    int start_order[MAX_THREADS], started, done;
    int ready[MAX_THREADS];       /* a ring of threads that waited and may go on */
    unsigned ready_head, ready_tail;
    warp_state warp[MAX_THREADS / WARP];

    int barrier_arrived, barrier_votes, barrier_phase, barrier_result[2];
    barrier barrier_kind;
    site barrier_at;

    block_syncs *syncs;           /* one page, behind which lies shared memory */
    bool synchronised;            /* the running block has used them */
    char *shared;
    size_t shared_used;
    int shared_arrays;
    shared_place array[MAX_SHARED_ARRAYS];
} run;

uint32_t random_number()
{
    run.random ^= run.random << 13;
    run.random ^= run.random >> 17;
    return run.random ^= run.random << 5;
}

bool same(site a, site b) { return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0); }

/* ---- fibers */

#ifdef LG_EMULATOR_ASAN
/* A fiber goes on, or begins (fake_stack NULL). The first of a launch comes from the launching thread's stack. */
void arrive(void *fake_stack)
{
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
    if (run.main_stack != nullptr) return;
    run.main_stack = bottom;
    run.main_stack_bytes = bytes;
}
#endif

void switch_to(fiber *next)
{
    fiber *own = run.current;
    run.current = next;
    enter_context(next->context);
#ifdef LG_EMULATOR_ASAN
    __sanitizer_start_switch_fiber(&own->fake_stack, next->stack != nullptr ? next->stack : run.main_stack,
                                   next->stack != nullptr ? static_cast<size_t>(STACK_BYTES) : run.main_stack_bytes);
#endif
    lg_switch_stacks(&own->top, next->top);
#ifdef LG_EMULATOR_ASAN
    arrive(own->fake_stack);
#endif
    if (own->thread >= 0) threadIdx = run.thread[own->thread].index;
}

void fiber_entry();

fiber *make_fiber(int number)
{
    fiber *f = &run.pool[number];
    if (!make_stack(f, static_cast<unsigned>(number), fiber_entry)) fail("no memory for another stack");
    return f;
}

bool any_ready() { return run.ready_head != run.ready_tail; }

void wake(int thread)
{
    run.thread[thread].now = state::running;
    run.ready[run.ready_tail++ % MAX_THREADS] = thread;
}

int take_ready()
{
    if (run.by == order::random) {
        const unsigned first = run.ready_head % MAX_THREADS;
        const unsigned other = (run.ready_head + random_number() % (run.ready_tail - run.ready_head)) % MAX_THREADS;
        const int thread = run.ready[other];
        run.ready[other] = run.ready[first];
        run.ready[first] = thread;
    }
    return run.ready[run.ready_head++ % MAX_THREADS];
}

/* Whether the next to run is a thread that has not begun, rather than one that waited. */
bool begin_another()
{
    if (run.started == run.threads) return false;
    return run.by != order::random || !any_ready() || random_number() % 4 != 0;
}

/* What runs next when the current fiber cannot go on: the main one if no thread can. */
fiber *next_fiber()
{
    if (begin_another()) {
        if (with_tsan) return &run.pool[run.set * MAX_THREADS + run.start_order[run.started]];
        return run.idle_count > 0 ? run.idle[--run.idle_count] : make_fiber(run.made++);
    }
    return any_ready() ? run.thread[take_ready()].on : &run.main;
}

void wait_as(state what, site at)
{
    cuda_thread *own = &run.thread[run.current->thread];
    own->now = what;
    own->at = at;
    switch_to(next_fiber());
}

/* ---- one CUDA thread */

void release_barrier();

void finish(cuda_thread *own)
{
    own->now = state::done;
    ++run.done;
    warp_state *w = &run.warp[own->warp];
    w->done |= 1u << own->lane;
    for (int i = 0; i < w->meetings; ++i) {
        const meeting *m = &w->meet[i];
        if (m->arrived != 0 && (m->mask >> own->lane & 1) != 0)
            fail("lane %u of warp %u returned while lanes %08x wait at %s:%d for those of mask %08x", own->lane,
                 own->warp, m->arrived, m->at.file, m->at.line, m->mask);
    }
    if (run.barrier_arrived > 0 && run.barrier_arrived == run.threads - run.done) release_barrier();
}

void run_next_thread()
{
    const int number = run.start_order[run.started++];
    cuda_thread *own = &run.thread[number];
    run.current->thread = number;
    own->on = run.current;
    own->now = state::running;
    threadIdx = own->index;
    acquire(run.before);
    run.work->call(run.work->function, run.work->arguments);
    release(run.after);
    finish(own);
    run.current->thread = -1;
}

/* A fiber runs threads that have not begun, until one waits; then another fiber goes on with the rest. With
 * TSan a fiber's context is one thread's, so each fiber runs one thread of a block. */
void fiber_entry()
{
#ifdef LG_EMULATOR_ASAN
    arrive(nullptr);
#endif
    for (;;) {
        fiber *own = run.current;
        if (with_tsan) {
            run_next_thread();
            switch_to(next_fiber());
            continue;
        }
        while (begin_another()) run_next_thread();
        fiber *next = any_ready() ? run.thread[take_ready()].on : &run.main;
        run.idle[run.idle_count++] = own;
        switch_to(next);
    }
}

/* ---- what threads wait for */

void release_barrier()
{
    const int phase = run.barrier_phase++ & 1, votes = run.barrier_votes;
    run.barrier_result[phase] = run.barrier_kind == barrier::count ? votes
                              : run.barrier_kind == barrier::all   ? votes == run.barrier_arrived
                                                                   : votes != 0;
    run.barrier_arrived = run.barrier_votes = 0;
    for (int i = 0; i < run.threads; ++i)
        if (run.thread[i].now == state::at_barrier) wake(i);
}

meeting *meeting_of(warp_state *w, unsigned mask)
{
    for (int i = 0; i < w->meetings; ++i)
        if (w->meet[i].mask == mask) return &w->meet[i];
    if (w->meetings == MAX_MASKS) fail("more than %d masks in one warp", MAX_MASKS);
    meeting *m = &w->meet[w->meetings++];
    m->mask = mask;
    m->arrived = 0;
    m->phase = 0;
    return m;
}

void check_mask(const cuda_thread *own, unsigned mask, unsigned done, site at)
{
    if ((mask >> own->lane & 1) == 0)
        fail("%s:%d: lane %u takes part with mask %08x, which leaves it out", at.file, at.line, own->lane, mask);
    if ((mask & done) != 0)
        fail("%s:%d: mask %08x names lanes %08x, which have returned", at.file, at.line, mask, mask & done);
    const unsigned lanes = static_cast<unsigned>(run.threads) - own->warp * WARP;
    if (lanes < WARP && mask >> lanes != 0)
        fail("%s:%d: mask %08x names lanes that a block of %d threads lacks", at.file, at.line, mask, run.threads);
}

/* ---- one block */

void stuck()
{
    char text[1024];
    int used = 0, shown = 0;
    for (int i = 0; i < run.threads && shown < 6; ++i) {
        const cuda_thread *t = &run.thread[i];
        if (t->now == state::done) continue;
        used += snprintf(text + used, sizeof text - static_cast<size_t>(used), "\n    thread %d waits for %s at %s:%d", i,
                         t->now == state::at_barrier ? "the block" : "its warp", t->at.file, t->at.line);
        ++shown;
        if (used >= static_cast<int>(sizeof text)) break;
    }
    fail("divergence: %d of %d threads have returned, and the others wait for ever:%s", run.done, run.threads, text);
}

/* What an array holds before the kernel writes it: NaN in every floating-point type. Not memset, which a
 * sanitizer intercepts. */
void fill_with_nan(void *memory, size_t bytes)
{
    __asm__ volatile("rep stosb" : "+D"(memory), "+c"(bytes) : "a"(0xff) : "memory");
}

void map_shared()
{
    char *map = map_pages(PAGE_BYTES + SHARED_BYTES, PROT_READ | PROT_WRITE);
    if (map == nullptr) fail("no shared memory");
    run.syncs = reinterpret_cast<block_syncs *>(map);
    run.shared = map + PAGE_BYTES;
}

/* TSan forgets what was done in memory that is unmapped. Should another thread's mapping get the place at
 * once, a new one is taken. */
void forget_last_block()
{
    if (!run.synchronised && run.shared_used == 0) return;
    const size_t used = (PAGE_BYTES + run.shared_used + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    munmap(run.syncs, used);
    void *again = mmap(run.syncs, used, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (again == MAP_FAILED) map_shared();
    run.synchronised = false;
}

/* No block sees another's shared memory; to ASan it is closed until arrays are declared. */
void renew_shared()
{
    const size_t dynamic = run.work->shared;
    if (with_tsan) forget_last_block();
    unpoison(run.shared, dynamic);
    fill_with_nan(run.shared, dynamic);
    run.shared_arrays = 0;
    run.shared_used = dynamic == 0 ? 0 : (dynamic + 127) / 128 * 128 + REDZONE;
    if (with_asan) poison(run.shared + dynamic, SHARED_BYTES - dynamic);
}

void shuffle_start_order()
{
    for (int i = run.threads - 1; i > 0; --i) {
        const int j = static_cast<int>(random_number() % static_cast<unsigned>(i + 1)), other = run.start_order[j];
        run.start_order[j] = run.start_order[i];
        run.start_order[i] = other;
    }
}

void make_contexts()
{
    for (int i = 0; i < run.threads; ++i) {
        const int number = run.set * MAX_THREADS + i;
        if (run.pool[number].stack == nullptr) make_fiber(number)->context = new_context();
    }
}

void run_block()
{
    for (int i = 0; i < run.threads; ++i) run.thread[i].now = state::fresh;
    for (int i = 0; i < (run.threads + WARP - 1) / WARP; ++i) run.warp[i].meetings = 0, run.warp[i].done = 0;
    run.started = run.done = run.barrier_arrived = run.barrier_votes = 0;
    run.ready_head = run.ready_tail = 0;
    renew_shared();
    if (run.by == order::random) shuffle_start_order();
    release(run.before);
    while (run.done < run.threads) {
        fiber *next = next_fiber();
        if (next == &run.main) stuck();
        switch_to(next);
    }
}

/* ---- one grid */

order order_from_environment()
{
    const char *text = getenv("LG_EMULATED_ORDER");
    if (text == nullptr || strcmp(text, "forward") == 0) return order::forward;
    if (strcmp(text, "reverse") == 0) return order::reverse;
    if (strncmp(text, "random", 6) != 0) fail("LG_EMULATED_ORDER is forward, reverse, random or random:<seed>; not %s", text);
    const char *seed = strchr(text, ':');
    run.random = seed == nullptr ? 1 : static_cast<uint32_t>(strtoul(seed + 1, nullptr, 10)) * 2654435761u | 1;
    return order::random;
}

void start_once()
{
    if (run.shared != nullptr) return;
    run.by = order_from_environment();
    map_shared();
}

void check_size(const launch *work)
{
    const dim3 b = work->block, g = work->grid;
    const unsigned long long threads = 1ull * b.x * b.y * b.z;
    if (threads < 1 || threads > MAX_THREADS || b.z > 64) fail("a block of %u x %u x %u threads", b.x, b.y, b.z);
    if (g.x < 1 || g.y < 1 || g.z < 1 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
        fail("a grid of %u x %u x %u blocks", g.x, g.y, g.z);
    if (work->shared > DYNAMIC_SHARED_BYTES) fail("%zu bytes of dynamic shared memory", work->shared);
}

void place_threads(dim3 block)
{
    run.threads = static_cast<int>(block.x * block.y * block.z);
    for (unsigned i = 0; i < static_cast<unsigned>(run.threads); ++i) {
        cuda_thread *t = &run.thread[i];
        t->index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
        t->lane = i % WARP;
        t->warp = i / WARP;
        run.start_order[i] = run.by == order::reverse ? run.threads - 1 - static_cast<int>(i) : static_cast<int>(i);
    }
}

} // namespace

void run_kernel(const launch *work, void *before, void *after, int stream)
{
    run.work = work;
    start_once();
    check_size(work);
    run.before = before;
    run.after = after;
    run.set = static_cast<int>(static_cast<unsigned>(stream) % CONTEXT_SETS);
    run.current = &run.main;
    run.main.context = current_context();
    run.main_stack = nullptr;
    const dim3 grid = work->grid;
    if (run.threads == 0 || work->block.x != blockDim.x || work->block.y != blockDim.y || work->block.z != blockDim.z)
        place_threads(work->block);
    if (with_tsan) make_contexts();
    blockDim = work->block;
    gridDim = grid;
    const unsigned long long blocks = 1ull * grid.x * grid.y * grid.z;
    for (unsigned long long k = 0; k < blocks; ++k) {
        const unsigned long long i = run.by == order::reverse ? blocks - 1 - k : k;
        blockIdx = {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                    static_cast<unsigned>(i / (1ull * grid.x * grid.y))};
        run_block();
    }
    run.work = nullptr;
}

const char *running_kernel(void) { return run.work == nullptr ? nullptr : run.work->name; }

void fail(const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fflush(stdout);
    if (run.work != nullptr)
        fprintf(stderr, "emulated CUDA: kernel %s, block (%u,%u,%u), thread (%u,%u,%u): %s\n", run.work->name, blockIdx.x,
                blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, text);
    else
        fprintf(stderr, "emulated CUDA: %s\n", text);
    void *frames[24];
    backtrace_symbols_fd(frames, backtrace(frames, 24), STDERR_FILENO);
    syscall(SYS_exit_group, 99); /* not _exit(), which TSan takes for a chance to complain */
    __builtin_unreachable();
}

/* ---- what running kernels call */

unsigned lane(void) { return run.thread[run.current->thread].lane; }

int block_barrier(barrier kind, bool vote, site at)
{
    const int phase = run.barrier_phase & 1;
    if (run.barrier_arrived > 0 && (run.barrier_kind != kind || !same(run.barrier_at, at)))
        fail("threads of one block are at different barriers: %s:%d and %s:%d", run.barrier_at.file, run.barrier_at.line,
             at.file, at.line);
    run.barrier_at = at;
    run.barrier_kind = kind;
    run.barrier_votes += vote;
    ++run.barrier_arrived;
    run.synchronised = true;
    release(&run.syncs->barrier[phase]);
    if (run.barrier_arrived == run.threads - run.done) release_barrier();
    else wait_as(state::at_barrier, at);
    acquire(&run.syncs->barrier[phase]);
    return run.barrier_result[phase];
}

uint64_t warp_collective(unsigned mask, collective kind, uint64_t bits, int from, site at)
{
    const cuda_thread *own = &run.thread[run.current->thread];
    warp_state *w = &run.warp[own->warp];
    check_mask(own, mask, w->done, at);
    meeting *m = meeting_of(w, mask);
    if (m->arrived != 0 && (m->kind != kind || !same(m->at, at)))
        fail("lanes of one mask are at different places: %s:%d and %s:%d", m->at.file, m->at.line, at.file, at.line);
    const int phase = m->phase;
    char *sync = &run.syncs->meeting[own->warp][m - w->meet][phase];
    m->kind = kind;
    m->at = at;
    m->value[phase][own->lane] = bits;
    m->arrived |= 1u << own->lane;
    if (kind == collective::sync) {
        run.synchronised = true;
        release(sync);
    }
    if (m->arrived == mask) {
        m->arrived = 0;
        m->phase ^= 1;
        for (unsigned i = 0; i < WARP; ++i)
            if (i != own->lane && (mask >> i & 1) != 0) wake(static_cast<int>(own->warp * WARP + i));
    } else {
        wait_as(state::at_collective, at);
    }
    if (kind == collective::sync) acquire(sync);
    if (kind == collective::ballot) {
        unsigned ballot = 0;
        for (unsigned i = 0; i < WARP; ++i)
            if ((mask >> i & 1) != 0 && m->value[phase][i] != 0) ballot |= 1u << i;
        return ballot;
    }
    if (from < 0) return bits;
    if (from >= WARP || (mask >> from & 1) == 0)
        fail("%s:%d: lane %u reads lane %d, which is not in mask %08x", at.file, at.line, own->lane, from, mask);
    return m->value[phase][from];
}

void *shared_array(const void *key, size_t bytes, size_t alignment, const char *name)
{
    size_t declared = bytes;
    for (int i = 0; i < run.shared_arrays; ++i) {
        if (run.array[i].key == key) return run.shared + run.array[i].offset;
        declared += run.array[i].bytes;
    }
    if (declared > STATIC_SHARED_BYTES) fail("%s: %zu bytes of static shared memory; 48 KB at most", name, declared);
    if (run.shared_arrays == MAX_SHARED_ARRAYS) fail("%s: more than %d shared arrays", name, MAX_SHARED_ARRAYS);
    const size_t unit = alignment > 32 ? alignment : 32, offset = (run.shared_used + unit - 1) / unit * unit;
    if (offset + bytes > SHARED_BYTES) fail("%s: no room in shared memory", name);
    run.array[run.shared_arrays++] = {key, offset, bytes};
    run.shared_used = offset + bytes + REDZONE;
    unpoison(run.shared + offset, bytes);
    fill_with_nan(run.shared + offset, bytes);
    return run.shared + offset;
}

void *dynamic_shared(void) { return run.shared; }

/* Stronger than the GPU's: orders every thread that has passed before every one that passes later. */
void memory_fence(void)
{
    static char sync;
    release(&sync);
    acquire(&sync);
}

} // namespace emulated
