/* The caching allocator of one device, over a backend's raw memory. Used by storages and by the
 * workspaces of kernels.
 *
 * Memory comes from the backend in segments, which are cut into blocks. Small requests are rounded up
 * to a size class; a small block that is freed goes to its class's quick list and is taken from there
 * again without further ado. Other free blocks lie in bins by size, from which a request takes the
 * best fit, and are merged with free neighbours at once. Quick blocks are merged when the bins cannot
 * serve a small request, so that caching never keeps memory from being used. Small and large requests
 * have segments of their own: a small block that lives long does not split a large segment.
 *
 * Descriptions of blocks lie outside of the memory, which may be a GPU's; a table finds them by address.
 *
 * Memory that a device uses out of the order in which the host frees it - what is copied on a queue of its
 * own, and pinned host memory - comes from allocators that hold a freed block until the device has come to
 * a mark set when it was freed. */
#include "core/memory.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fault.h"
#include "core/process.h"
#include "core/profile.h"
#include "core/thread.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1 /* as gcc says it */
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size)   ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

enum {
    UNIT = 64,           /* block sizes are multiples: the alignment promised; */
    DEVICE_UNIT = 512,   /* on a device what its loads and libraries like */
    SMALL_MAX = 1 << 20, /* the largest small request, bytes */
    SMALL_SEGMENT = 4 << 20,
    LARGE_SEGMENT = 32 << 20,
    LARGE_UNIT = 1 << 16, /* sizes of large blocks are multiples */
    OCTAVE = 8,           /* classes between a size and its double */
    FINE = 15,            /* classes of 1..15 units, before octaves begin */
    QUICK_CLASSES = FINE + 10 * OCTAVE + 1,
    BINS = FINE + 55 * OCTAVE,
    BIN_LOOKS = 32,    /* blocks of one bin that a search for the best fit looks at */
    CHUNK_BLOCKS = 64, /* descriptions allocated at once */
    TABLE_START = 8    /* log2 of the table's first size */
};

typedef enum block_state { BLOCK_USED, BLOCK_HELD, BLOCK_QUICK, BLOCK_FREE } block_state;

typedef struct block {
    char *start;
    size_t size;
    struct block *left, *right; /* neighbours by address in the segment */
    struct block *next, *prev;  /* in a quick list or bin, or among the spare ones */
    struct block *chain;        /* in the table */
    void *mark;                 /* while held: what the device must come to */
    block_state state;
    bool large; /* of which arena */
} block;

typedef struct chunk {
    struct chunk *next;
    block blocks[CHUNK_BLOCKS];
} chunk;

/* Free blocks of small or of large segments. */
typedef struct arena {
    size_t segment; /* the least that is asked of the backend */
    block *bin[BINS];
    uint64_t filled[(BINS + 63) / 64];
} arena;

struct lg_memory {
    pthread_mutex_t lock;
    _Atomic int64_t in_use; /* stats.allocated_bytes, for the sibling */
    lg_device *device;
    bool on_host; /* its memory is the host's: the CPU's, or pinned for the device */
    bool holds;   /* freed blocks are held */
    size_t unit;
    block *held, *held_last; /* in the order they were freed */
    block *quick[QUICK_CLASSES];
    arena arena[2]; /* small, large */
    block **table;  /* 1 << table_bits chains */
    int table_bits;
    size_t n_blocks; /* in the table */
    block *spare;
    int n_spare;
    chunk *chunks;
    luge_memory_stats stats;
    char peak_op[LG_SCOPE_NAME]; /* that ran when most was allocated; "" */
};

/* Every allocator. They lie in static memory, which goes with the library: they cannot be freed before,
 * since other threads may still use them while the process exits. A place without a device is free. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static lg_memory place[LG_MAX_MEMORIES];

/* ---- sizes */

/* The class of a size in units: 1..15 by themselves, then OCTAVE classes from each power of two to the next. */
static int class_of(size_t units)
{
    if (units <= FINE) return (int)units - 1;
    int log2 = 63 - __builtin_clzll(units);
    return FINE + (log2 - 4) * OCTAVE + (int)((units >> (log2 - 3)) & (OCTAVE - 1));
}

static size_t round_up(size_t size, size_t multiple)
{
    return (size + multiple - 1) / multiple * multiple;
}

/* The size of a block for a request: the lower end of a class for small ones. */
static size_t block_size(const lg_memory *m, size_t bytes)
{
    if (bytes > SMALL_MAX) return round_up(bytes, LARGE_UNIT);
    size_t units = (bytes + m->unit - 1) / m->unit;
    if (units > FINE) units = round_up(units, (size_t)1 << (63 - __builtin_clzll(units) - 3));
    return units * m->unit;
}

/* ---- descriptions of blocks, and the table that finds them by address */

static size_t slot_of(const lg_memory *m, const void *start)
{
    return (size_t)(((uint64_t)(uintptr_t)start / UNIT * 0x9E3779B97F4A7C15u) >> (64 - m->table_bits));
}

static block *find(const lg_memory *m, const void *start)
{
    block *b = m->table[slot_of(m, start)];
    while (b != NULL && b->start != start) b = b->chain;
    return b;
}

static bool grow_table(lg_memory *m)
{
    int bits = m->table == NULL ? TABLE_START : m->table_bits + 1;
    block **table = lg_private_resize(NULL, sizeof *table << bits);
    if (table == NULL) return false;
    memset(table, 0, sizeof *table << bits);
    block **old = m->table;
    size_t old_size = old == NULL ? 0 : (size_t)1 << m->table_bits;
    m->table = table;
    m->table_bits = bits;
    for (size_t i = 0; i < old_size; ++i) {
        for (block *b = old[i], *after; b != NULL; b = after) {
            after = b->chain;
            size_t slot = slot_of(m, b->start);
            b->chain = table[slot];
            table[slot] = b;
        }
    }
    lg_private_free(old);
    return true;
}

/* Makes sure that a segment and a split can be described, so that nothing fails half-way. */
static bool reserve(lg_memory *m)
{
    if ((m->table == NULL || m->n_blocks + 2 > (size_t)1 << m->table_bits) && !grow_table(m)) return false;
    if (m->n_spare >= 2) return true;
    chunk *c = lg_private_resize(NULL, sizeof *c);
    if (c == NULL) return false;
    c->next = m->chunks;
    m->chunks = c;
    for (int i = CHUNK_BLOCKS - 1; i >= 0; --i) {
        c->blocks[i].next = m->spare;
        m->spare = &c->blocks[i];
    }
    m->n_spare += CHUNK_BLOCKS;
    return true;
}

static block *describe(lg_memory *m, char *start, size_t size, bool large)
{
    block *b = m->spare;
    m->spare = b->next;
    --m->n_spare;
    size_t slot = slot_of(m, start);
    *b = (block){.start = start, .size = size, .large = large, .chain = m->table[slot]};
    m->table[slot] = b;
    ++m->n_blocks;
    return b;
}

static void forget(lg_memory *m, block *b)
{
    block **link = &m->table[slot_of(m, b->start)];
    while (*link != b) link = &(*link)->chain;
    *link = b->chain;
    --m->n_blocks;
    b->next = m->spare;
    m->spare = b;
    ++m->n_spare;
}

static void free_descriptions(lg_memory *m)
{
    for (chunk *c = m->chunks, *after; c != NULL; c = after) {
        after = c->next;
        lg_private_free(c);
    }
    lg_private_free(m->table);
    m->chunks = NULL;
    m->spare = NULL;
    m->n_spare = 0;
    m->table = NULL;
    m->table_bits = 0;
}

/* ---- bins */

static void put_in_bin(lg_memory *m, block *b)
{
    arena *a = &m->arena[b->large];
    int bin = class_of(b->size / UNIT);
    b->state = BLOCK_FREE;
    b->prev = NULL;
    b->next = a->bin[bin];
    if (b->next != NULL) b->next->prev = b;
    a->bin[bin] = b;
    a->filled[bin / 64] |= (uint64_t)1 << (bin % 64);
}

static void take_from_bin(lg_memory *m, block *b)
{
    arena *a = &m->arena[b->large];
    int bin = class_of(b->size / UNIT);
    if (b->prev != NULL)
        b->prev->next = b->next;
    else
        a->bin[bin] = b->next;
    if (b->next != NULL) b->next->prev = b->prev;
    if (a->bin[bin] == NULL) a->filled[bin / 64] &= ~((uint64_t)1 << (bin % 64));
}

/* The first bin with a block in it, from `bin` on; BINS if there is none. */
static int filled_bin(const arena *a, int bin)
{
    if (bin >= BINS) return BINS;
    size_t word = (size_t)bin / 64;
    uint64_t bits = a->filled[word] & (UINT64_MAX << (bin % 64));
    while (bits == 0) {
        if (++word == sizeof a->filled / sizeof a->filled[0]) return BINS;
        bits = a->filled[word];
    }
    return (int)word * 64 + __builtin_ctzll(bits);
}

/* The smallest block that `size` fits in, as far as BIN_LOOKS goes. */
static block *best_fit(const arena *a, size_t size)
{
    for (int bin = filled_bin(a, class_of(size / UNIT)); bin < BINS; bin = filled_bin(a, bin + 1)) {
        block *best = NULL;
        int looks = BIN_LOOKS;
        for (block *b = a->bin[bin]; b != NULL && looks-- > 0; b = b->next) {
            if (b->size == size) return b;
            if (b->size > size && (best == NULL || b->size < best->size)) best = b;
        }
        if (best != NULL) return best;
    }
    return NULL;
}

/* Joins a with b, which lies to its right. */
static void merge(lg_memory *m, block *a, block *b)
{
    a->size += b->size;
    a->right = b->right;
    if (b->right != NULL) b->right->left = a;
    forget(m, b);
}

static void free_block(lg_memory *m, block *b)
{
    if (b->right != NULL && b->right->state == BLOCK_FREE) {
        take_from_bin(m, b->right);
        merge(m, b, b->right);
    }
    if (b->left != NULL && b->left->state == BLOCK_FREE) {
        block *left = b->left;
        take_from_bin(m, left);
        merge(m, left, b);
        b = left;
    }
    put_in_bin(m, b);
}

/* Cuts what a request of `size` does not need off a block. */
static void split(lg_memory *m, block *b, size_t size)
{
    size_t rest = b->size - size;
    if (rest < (b->large ? SMALL_MAX : m->unit)) return;
    block *r = describe(m, b->start + size, rest, b->large);
    r->left = b;
    r->right = b->right;
    if (r->right != NULL) r->right->left = r;
    b->right = r;
    b->size = size;
    put_in_bin(m, r);
}

/* ---- segments */

static void *take_segment(lg_memory *m, size_t size)
{
    lg_device *d = m->device;
    if (m->holds && m->on_host) return d->backend->host_alloc(d, size);
    if (d->hooks.alloc != NULL && !m->on_host) return d->hooks.alloc(size, DEVICE_UNIT, d->hooks.user);
    return d->backend->alloc(d, size);
}

static void give_segment(lg_memory *m, void *memory, size_t size)
{
    lg_device *d = m->device;
    if (m->holds && m->on_host)
        d->backend->host_free(d, memory, size);
    else if (d->hooks.alloc != NULL && !m->on_host) {
        if (d->backend->drain != NULL) d->backend->drain(d); /* as the driver's own does */
        d->hooks.free(memory, size, d->hooks.user);
    } else
        d->backend->free(d, memory, size);
}

static block *new_segment(lg_memory *m, bool large, size_t size)
{
    const lg_backend *backend = m->device->backend;
    if (backend->alloc_granularity > 1) size = round_up(size, backend->alloc_granularity);
    void *memory = take_segment(m, size);
    if (memory == NULL) return NULL;
    if (m->on_host) ASAN_POISON_MEMORY_REGION(memory, size);
    m->stats.reserved_bytes += (int64_t)size;
    if (m->stats.reserved_bytes > m->stats.reserved_peak) m->stats.reserved_peak = m->stats.reserved_bytes;
    block *b = describe(m, memory, size, large);
    put_in_bin(m, b);
    return b;
}

/* A block that nobody uses any more. */
static void settle(lg_memory *m, block *b)
{
    if (b->large) {
        free_block(m, b);
        return;
    }
    block **quick = &m->quick[class_of(b->size / UNIT)];
    b->state = BLOCK_QUICK;
    b->next = *quick;
    *quick = b;
}

static void hold(lg_memory *m, block *b)
{
    b->state = BLOCK_HELD;
    b->mark = m->device->backend->mark(m->device);
    b->next = NULL;
    *(m->held == NULL ? &m->held : &m->held_last->next) = b;
    m->held_last = b;
}

/* Takes in what the device is done with; everything, if it is waited for. */
static void let_go(lg_memory *m, bool wait)
{
    const lg_backend *backend = m->device->backend;
    if (wait && m->held != NULL) backend->drain(m->device);
    while (m->held != NULL && (wait || backend->reached(m->device, m->held->mark))) {
        block *b = m->held;
        m->held = b->next;
        if (b->mark != NULL) backend->unmark(m->device, b->mark);
        settle(m, b);
    }
}

static void flush_quick(lg_memory *m)
{
    for (int i = 0; i < QUICK_CLASSES; ++i) {
        while (m->quick[i] != NULL) {
            block *b = m->quick[i];
            m->quick[i] = b->next;
            free_block(m, b);
        }
    }
}

/* Gives segments that are one free block back. */
static void trim(lg_memory *m)
{
    let_go(m, true);
    flush_quick(m);
    for (int i = 0; i < 2; ++i) {
        arena *a = &m->arena[i];
        for (int bin = filled_bin(a, 0); bin < BINS; bin = filled_bin(a, bin + 1)) {
            for (block *b = a->bin[bin], *after; b != NULL; b = after) {
                after = b->next;
                if (b->left != NULL || b->right != NULL) continue;
                take_from_bin(m, b);
                if (m->on_host) ASAN_UNPOISON_MEMORY_REGION(b->start, b->size);
                give_segment(m, b->start, b->size);
                m->stats.reserved_bytes -= (int64_t)b->size;
                forget(m, b);
            }
        }
    }
}

/* The device's other allocator of the same memory; NULL if there is none. */
static lg_memory *sibling_of(const lg_memory *m)
{
    const lg_device *d = m->device;
    return m == d->memory ? d->uploads : m == d->uploads ? d->memory : NULL;
}

/* Unless another thread is in it. */
static void trim_sibling(lg_memory *m)
{
    lg_memory *sibling = sibling_of(m);
    if (sibling == NULL || pthread_mutex_trylock(&sibling->lock) != 0) return;
    trim(sibling);
    pthread_mutex_unlock(&sibling->lock);
}

/* A new segment with room for `size`: of the usual size if there is that much, also after the cache
 * was given back, else just large enough. */
static block *segment_for(lg_memory *m, bool large, size_t size)
{
    size_t usual = size > m->arena[large].segment ? size : m->arena[large].segment;
    ++m->stats.system_allocations;
    block *b = new_segment(m, large, usual);
    if (b != NULL) return b;
    trim(m);
    trim_sibling(m);
    b = new_segment(m, large, usual);
    return b != NULL || usual == size ? b : new_segment(m, large, size);
}

/* ---- requests */

/* A block for a request that no quick list serves; NULL if there is no memory. */
static block *take_block(lg_memory *m, bool large, size_t size)
{
    if (!reserve(m)) return NULL;
    arena *a = &m->arena[large];
    block *b = best_fit(a, size);
    if (b == NULL && !large) {
        flush_quick(m);
        b = best_fit(a, size);
    }
    if (b == NULL) b = segment_for(m, large, size);
    if (b == NULL) return NULL;
    take_from_bin(m, b);
    split(m, b, size);
    return b;
}

static int64_t in_use_by(const lg_memory *m)
{
    return m != NULL ? atomic_load_explicit(&m->in_use, memory_order_relaxed) : 0;
}

/* A limit is on both allocators of a device together. */
static void note_peak(lg_memory *m)
{
    const char *op = lg_self()->op;
    m->stats.allocated_peak = m->stats.allocated_bytes;
    strncpy(m->peak_op, op != NULL ? op : "", sizeof m->peak_op - 1);
}

static block *serve(lg_memory *m, size_t bytes)
{
    luge_memory_stats *s = &m->stats;
    if (bytes > PTRDIFF_MAX - LARGE_SEGMENT || lg_fault(LG_FAULT_DEVICE)) return NULL;
    if (s->limit > 0 && (int64_t)bytes > s->limit - s->allocated_bytes - in_use_by(sibling_of(m))) return NULL;

    if (m->held != NULL) let_go(m, false);
    bool large = bytes > SMALL_MAX;
    size_t size = block_size(m, bytes);
    block **quick = large ? NULL : &m->quick[class_of(size / UNIT)];
    block *b;
    if (!large && *quick != NULL) {
        b = *quick;
        *quick = b->next;
    } else {
        b = take_block(m, large, size);
        if (b == NULL) return NULL;
    }
    b->state = BLOCK_USED;
    s->allocated_bytes += (int64_t)bytes;
    atomic_store_explicit(&m->in_use, s->allocated_bytes, memory_order_relaxed);
    if (s->allocated_bytes > s->allocated_peak) note_peak(m);
    ++s->allocations;
    ++s->live_tensors;
    return b;
}

static void *fail(const lg_memory *m, size_t bytes, const luge_memory_stats *s, const char *peak_op)
{
    const lg_backend *backend = m->device->backend;
    if (backend->check != NULL && backend->check(m->device) != LUGE_OK) return NULL;
    const char *op = lg_self()->op;
    char limit[48] = "there is no limit";
    if (s->limit > 0) snprintf(limit, sizeof limit, "the limit is %lld", (long long)s->limit);
    lg_fail(LUGE_ERR_OUT_OF_MEMORY,
            "%s%sout of %smemory on %s:%d: %zu bytes asked for, %lld in use by %lld tensors (at most %lld so far%s%s), "
            "%lld reserved, %s; use smaller batches or free tensors",
            op ? op : "", op ? ": " : "", m->holds && m->on_host ? "pinned " : "", m->device->backend->name, m->device->id.index, bytes,
            (long long)s->allocated_bytes, (long long)s->live_tensors, (long long)s->allocated_peak,
            peak_op[0] != '\0' ? ", in " : "", peak_op, (long long)s->reserved_bytes, limit);
    return NULL;
}

void *lg_memory_alloc(lg_memory *m, size_t bytes)
{
    pthread_mutex_lock(&m->lock);
    block *b = serve(m, bytes);
    if (b == NULL) {
        ++m->stats.failures;
        luge_memory_stats stats = m->stats;
        char peak_op[LG_SCOPE_NAME];
        memcpy(peak_op, m->peak_op, sizeof peak_op);
        pthread_mutex_unlock(&m->lock);
        return fail(m, bytes, &stats, peak_op);
    }
    char *start = b->start;
    pthread_mutex_unlock(&m->lock);
    lg_thread *self = lg_self();
    if (lg_is_profiled(self)) self->profile->bytes += (int64_t)bytes;
    if (m->on_host) ASAN_UNPOISON_MEMORY_REGION(start, bytes);
    return start;
}

void lg_memory_free(lg_memory *m, void *memory, size_t bytes)
{
    if (memory == NULL) return;
    if (m->on_host) {
#ifndef NDEBUG
        if (!m->holds) memset(memory, 0xa5, bytes); /* else a copy may still read it */
#endif
        if (!m->holds) ASAN_POISON_MEMORY_REGION(memory, round_up(bytes, UNIT));
    }
    pthread_mutex_lock(&m->lock);
    block *b = find(m, memory);
    assert(b != NULL && b->state == BLOCK_USED);
    if (b != NULL) {
        m->stats.allocated_bytes -= (int64_t)bytes;
        atomic_store_explicit(&m->in_use, m->stats.allocated_bytes, memory_order_relaxed);
        --m->stats.live_tensors;
        if (m->holds)
            hold(m, b);
        else
            settle(m, b);
    }
    pthread_mutex_unlock(&m->lock);
}

/* ---- the allocator as a whole */

static lg_memory *create(lg_device *device, bool on_host, bool holds)
{
    lg_fork_guard(&all_lock);
    pthread_mutex_lock(&all_lock);
    lg_memory *m = place;
    while (m < place + LG_MAX_MEMORIES && m->device != NULL) ++m;
    if (m < place + LG_MAX_MEMORIES) {
        *m = (lg_memory){.device = device,
                         .on_host = on_host,
                         .holds = holds,
                         .unit = on_host ? UNIT : DEVICE_UNIT,
                         .arena = {{.segment = SMALL_SEGMENT}, {.segment = LARGE_SEGMENT}}};
        pthread_mutex_init(&m->lock, NULL);
        lg_fork_guard(&m->lock);
    }
    pthread_mutex_unlock(&all_lock);
    if (m < place + LG_MAX_MEMORIES) return m;
    lg_fail(LUGE_ERR_UNSUPPORTED, "there are more than %d devices", LG_MAX_MEMORIES);
    return NULL;
}

lg_memory *lg_memory_create(lg_device *device)
{
    return create(device, lg_on_host(device), false);
}

lg_memory *lg_memory_create_held(lg_device *device, bool on_host)
{
    return create(device, on_host, true);
}

void lg_memory_destroy(lg_memory *m)
{
    if (m == NULL) return;
    lg_fork_unguard(&m->lock);
    pthread_mutex_lock(&all_lock);
    trim(m);
    free_descriptions(m); /* if something was in use after all */
    pthread_mutex_destroy(&m->lock);
    m->device = NULL;
    pthread_mutex_unlock(&all_lock);
}

void lg_memory_trim(lg_memory *m)
{
    pthread_mutex_lock(&m->lock);
    trim(m);
    if (m->n_blocks == 0) free_descriptions(m);
    pthread_mutex_unlock(&m->lock);
}

void lg_memory_trim_all(void)
{
    pthread_mutex_lock(&all_lock);
    for (lg_memory *m = place; m < place + LG_MAX_MEMORIES; ++m)
        if (m->device != NULL) lg_memory_trim(m);
    pthread_mutex_unlock(&all_lock);
}

lg_device *lg_memory_device(const lg_memory *m)
{
    return m->device;
}

luge_memory_stats lg_memory_stats(lg_memory *m)
{
    pthread_mutex_lock(&m->lock);
    luge_memory_stats stats = m->stats;
    pthread_mutex_unlock(&m->lock);
    return stats;
}

void lg_memory_reset_peak(lg_memory *m)
{
    pthread_mutex_lock(&m->lock);
    m->stats.allocated_peak = m->stats.allocated_bytes;
    m->stats.reserved_peak = m->stats.reserved_bytes;
    m->peak_op[0] = '\0';
    pthread_mutex_unlock(&m->lock);
}

void lg_memory_set_limit(lg_memory *m, int64_t bytes)
{
    pthread_mutex_lock(&m->lock);
    m->stats.limit = bytes;
    pthread_mutex_unlock(&m->lock);
}
