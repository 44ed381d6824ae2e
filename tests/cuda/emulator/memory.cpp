/* Memory of the emulated devices and pinned memory. Blocks lie in a reserved range of addresses, each with
 * its end at a page that cannot be touched, and device memory as a whole cannot be touched while host code
 * runs; a fault is told apart by its address. Addresses are never used twice. */
#include "tests/cuda/emulator/runtime.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>
#include "tests/cuda/emulator/fiber.h"

namespace emulated {
namespace {

enum : size_t {
    ALIGNMENT = 256,
    ARENA_BYTES = size_t{64} << 30, /* of addresses, not of memory */
    HUGE_BYTES = size_t{2} << 20,   /* pages of this size are quick to protect */
    FILLED_BYTES = size_t{64} << 20 /* beyond, only the ends hold NaNs at first */
};

std::map<char *, block> &live = *new std::map<char *, block>, &freed = *new std::map<char *, block>; /* by base */
char *arena;                          /* the last of them */
std::vector<char *> &arenas = *new std::vector<char *>;
size_t arena_used = ARENA_BYTES;
size_t device_bytes[MAX_DEVICES];
bool protects = true;
unsigned open_mask; /* of devices */
struct sigaction earlier_handler;

size_t whole_pages(size_t bytes) { return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES; }

/* Pages with a guard before and behind them; NULL: no addresses left. */
char *reserve(size_t bytes)
{
    if (bytes > ARENA_BYTES - 2 * HUGE_BYTES) return nullptr;
    if (arena_used + bytes + 2 * HUGE_BYTES > ARENA_BYTES) {
        arena = map_pages(ARENA_BYTES, PROT_NONE);
        if (arena == nullptr) return nullptr;
        arenas.push_back(arena);
        arena_used = 0;
    }
    uintptr_t place = reinterpret_cast<uintptr_t>(arena) + arena_used + PAGE_BYTES;
    if (bytes >= HUGE_BYTES) place = (place + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    char *pages = reinterpret_cast<char *>(place);
    arena_used = static_cast<size_t>(pages - arena) + bytes;
    if (bytes >= HUGE_BYTES) madvise(pages, bytes, MADV_HUGEPAGE);
    return pages;
}

bool in_an_arena(uintptr_t address)
{
    for (const char *a : arenas)
        if (address - reinterpret_cast<uintptr_t>(a) < ARENA_BYTES) return true;
    return false;
}

const block *near_in(const std::map<char *, block> &blocks, const char *address)
{
    const auto next = blocks.upper_bound(const_cast<char *>(address));
    if (next != blocks.begin()) {
        const block *b = &std::prev(next)->second;
        if (address < b->pages() + b->mapped + PAGE_BYTES) return b;
    }
    return next != blocks.end() && address >= next->second.pages() - PAGE_BYTES ? &next->second : nullptr;
}

/* The block whose pages, guards included, hold the address; between two, the one that ends there. */
const block *block_near(const char *address)
{
    const block *b = near_in(live, address);
    return b != nullptr ? b : near_in(freed, address);
}

/* A segmentation fault: says what was touched, or hands on what is no business of ours. */
void explain_fault(int signal, siginfo_t *info, void *context)
{
    const char *address = static_cast<const char *>(info->si_addr);
    const block *b = block_near(address);
    if (b != nullptr) {
        const char *kind = b->device < 0 ? "pinned" : "device";
        const long at = static_cast<long>(address - b->base);
        if (b->freed) fail("use after free: byte %ld of %s memory %p of %zu bytes, freed before", at, kind, b->base, b->bytes);
        if (at < 0 || static_cast<size_t>(at) >= b->bytes)
            fail("out of bounds: byte %ld of %s memory %p of %zu bytes", at, kind, b->base, b->bytes);
        if (open_mask == 0) fail("host code touched device memory: byte %ld of %p of %zu bytes", at, b->base, b->bytes);
        fail("no access: byte %ld of %p of %zu bytes on device %d, which is no peer of this one", at, b->base, b->bytes,
             b->device);
    }
    if (running_kernel() != nullptr) fail("segmentation fault at %p, which is no device memory", info->si_addr);
    if ((earlier_handler.sa_flags & SA_SIGINFO) != 0 && earlier_handler.sa_sigaction != nullptr)
        earlier_handler.sa_sigaction(signal, info, context);
    else
        sigaction(SIGSEGV, &earlier_handler, nullptr); /* and again, when this returns */
}

/* A test runner may have taken the signal since. */
void watch_faults()
{
    struct sigaction own = {}, now;
    own.sa_sigaction = explain_fault;
    own.sa_flags = SA_SIGINFO | SA_NODEFER;
    if (sigaction(SIGSEGV, nullptr, &now) == 0 && now.sa_sigaction == explain_fault) return;
    earlier_handler = now;
    sigaction(SIGSEGV, &own, nullptr);
}

void set_protection(const block &b, bool accessible)
{
    if (mprotect(b.pages(), b.mapped, accessible ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        fail("mprotect: %s", strerror(errno));
}

bool is_open(int of_device) { return of_device < 0 || !protects || (open_mask >> of_device & 1) != 0; }

void fill(block *b)
{
    const size_t end = b->bytes > FILLED_BYTES ? FILLED_BYTES / 2 : b->bytes;
    memset(b->base, 0xff, end);
    memset(b->base + b->bytes - end, 0xff, end);
}

} // namespace

char *block::pages() const { return reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(base) / PAGE_BYTES * PAGE_BYTES); }

block *make_block(size_t bytes, int of_device)
{
    watch_faults();
    const size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, mapped = whole_pages(rounded);
    if (bytes > ARENA_BYTES) return nullptr;
    char *pages = reserve(mapped);
    if (pages == nullptr || mprotect(pages, mapped, PROT_READ | PROT_WRITE) != 0) return nullptr;
    block b = {pages + mapped - rounded, bytes, mapped, of_device, false};
    fill(&b);
    if (with_asan) {
        poison(pages, mapped);
        unpoison(b.base, bytes);
    }
    if (of_device >= 0) device_bytes[of_device] += bytes;
    if (!is_open(of_device)) set_protection(b, false);
    return &(live[b.base] = b);
}

void free_block(block *b)
{
    if (b->device >= 0) device_bytes[b->device] -= b->bytes;
    if (with_asan) unpoison(b->pages(), b->mapped); /* the page says it better */
    if (mmap(b->pages(), b->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        fail("mmap: %s", strerror(errno));
    block gone = *b;
    gone.freed = true;
    live.erase(gone.base);
    freed[gone.base] = gone;
}

block *find_block(const void *memory, size_t bytes)
{
    char *address = static_cast<char *>(const_cast<void *>(memory));
    auto next = live.upper_bound(address);
    if (next == live.begin()) return nullptr;
    block *b = &std::prev(next)->second;
    const size_t offset = static_cast<size_t>(address - b->base);
    return offset <= b->bytes && bytes <= b->bytes - offset && (offset < b->bytes || bytes == 0) ? b : nullptr;
}

long show_blocks(bool show)
{
    if (show) for (const auto &entry : live) {
        const block &b = entry.second;
        if (b.device < 0) fprintf(stderr, "emulated CUDA: leak: pinned memory %p of %zu bytes\n", b.base, b.bytes);
        else fprintf(stderr, "emulated CUDA: leak: memory %p of %zu bytes on device %d\n", b.base, b.bytes, b.device);
    }
    return static_cast<long>(live.size());
}

size_t bytes_of(int of_device) { return device_bytes[of_device]; }

void open_devices(unsigned mask)
{
    const unsigned changes = open_mask ^ mask;
    open_mask = mask;
    if (!protects || changes == 0) return;
    watch_faults();
    for (const auto &entry : live) {
        const block &b = entry.second;
        if (b.device >= 0 && (changes >> b.device & 1) != 0) set_protection(b, (mask >> b.device & 1) != 0);
    }
}

void protect_memory(bool on) { protects = on; }

/* Every word of every argument, since launchers pass structs: an address of host memory that is mapped, and
 * one of a device that this one does not reach, are mistakes. */
void check_arguments(const launch *work, int of_device)
{
    /* Below lies no program, but the sanitizers' own memory: two small numbers side by side look like it. */
    const uintptr_t lowest = with_tsan ? uintptr_t{0x550000000000} : with_asan ? uintptr_t{0x10007fff8000} : uintptr_t{1} << 32;
    const char *bytes = static_cast<const char *>(work->arguments);
    const unsigned reaches = 1u << of_device | device[of_device].peers;
    for (size_t at = 0; at + sizeof(uintptr_t) <= work->argument_bytes; at += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, bytes + at, sizeof word);
        if (word < lowest || word >= uintptr_t{1} << 47 || (word & 0xffffffff) < 1 << 16) continue; /* a small int before padding */
        const block *b = block_near(reinterpret_cast<const char *>(word));
        if (b != nullptr) {
            if (b->freed) fail("kernel %s: byte %zu of its arguments is an address of freed memory", work->name, at);
            if (b->device >= 0 && (reaches >> b->device & 1) == 0)
                fail("kernel %s: byte %zu of its arguments is an address of device %d, which device %d does not reach",
                     work->name, at, b->device, of_device);
            continue;
        }
        if (in_an_arena(word)) continue; /* nothing was ever there: a number that looks like an address */
        unsigned char resident;
        if (mincore(reinterpret_cast<void *>(word / PAGE_BYTES * PAGE_BYTES), 1, &resident) == 0)
            fail("kernel %s: byte %zu of its arguments is an address of host memory, %p (or a field that is never set)",
                 work->name, at, reinterpret_cast<void *>(word));
    }
}

} // namespace emulated
