/* What belongs to the whole process: its counters, the public side of device memory, forks, and
 * what is left to do when the library is unloaded. */
#include "core/process.h"

#include <luge/process.h>
#include <stdatomic.h>

#include "core/alloc.h"
#include "core/memory.h"
#include "core/origin.h"
#include "core/pool.h"
#include "core/services.h"
#include "core/thread.h"

const char *luge_version(void)
{
    return "0.1.0";
}

/* ---- counters */

static atomic_int_least64_t counts[LG_COUNTERS];
static atomic_int_least64_t live_objects, live_nodes;

static int64_t read_count(atomic_int_least64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void lg_count(lg_counter counter)
{
    atomic_fetch_add_explicit(&counts[counter], 1, memory_order_relaxed);
}

void lg_count_object(int change)
{
    atomic_fetch_add_explicit(&live_objects, change, memory_order_relaxed);
}

void lg_count_node(int change)
{
    atomic_fetch_add_explicit(&live_nodes, change, memory_order_relaxed);
}

luge_live_counts luge_live(void)
{
    return (luge_live_counts){.tensors = lg_live_tensors(),
                              .storages = lg_live_storages(),
                              .nodes = read_count(&live_nodes),
                              .objects = read_count(&live_objects),
                              .host_bytes = lg_alloc_live_bytes()};
}

luge_op_counts luge_op_count(void)
{
    return (luge_op_counts){.kernels = read_count(&counts[LG_COUNT_KERNEL]),
                            .references = read_count(&counts[LG_COUNT_REFERENCE]),
                            .views = read_count(&counts[LG_COUNT_VIEW]),
                            .transposes = read_count(&counts[LG_COUNT_TRANSPOSE]),
                            .packs = read_count(&counts[LG_COUNT_PACK])};
}

/* ---- host memory */

luge_status luge_set_allocator(const luge_allocator *allocator)
{
    if (!lg_ok()) return lg_self()->error;
    if (allocator != NULL) {
        if (allocator->alloc == NULL || allocator->free == NULL)
            return lg_fail(LUGE_ERR_ARGUMENT, "luge_set_allocator: both alloc and free must be given");
        if (!lg_check_reserved(allocator->reserved, 4, "luge_set_allocator")) return lg_self()->error;
    }
    luge_live_counts live = luge_live();
    if (live.tensors != 0 || live.storages != 0 || live.nodes != 0 || live.objects != 0)
        return lg_fail(
            LUGE_ERR_STATE,
            "luge_set_allocator: %lld tensors, %lld graph nodes and %lld objects are alive: destroy them first",
            (long long)live.tensors, (long long)live.nodes, (long long)live.objects);
    lg_memory_trim_all();
    if (live.host_bytes != 0 || lg_system_live_bytes() != 0)
        return lg_fail(LUGE_ERR_STATE,
                       "luge_set_allocator: %lld bytes of host memory are in use: close open scopes first",
                       (long long)(live.host_bytes + lg_system_live_bytes()));
    lg_alloc_use(allocator);
    return LUGE_OK;
}

/* ---- TF32 */

static atomic_int tf32_uses;

luge_status luge_set_tf32(int uses)
{
    if (!lg_ok()) return lg_self()->error;
    if ((uses & ~(LUGE_TF32_MATMUL | LUGE_TF32_CONV)) != 0)
        return lg_fail(LUGE_ERR_ARGUMENT, "luge_set_tf32: %d is not made of luge_tf32_uses", uses);
    atomic_store_explicit(&tf32_uses, uses, memory_order_relaxed);
    return LUGE_OK;
}

int luge_tf32(void)
{
    return atomic_load_explicit(&tf32_uses, memory_order_relaxed);
}

bool lg_allows_tf32(luge_tf32_uses use)
{
    return (luge_tf32() & (int)use) != 0;
}

/* ---- memory of devices */

luge_memory_stats luge_memory_get_stats(luge_device device)
{
    const lg_device *d = luge_device_usable(device) ? lg_device_get(device) : NULL;
    if (d == NULL) return (luge_memory_stats){0};
    luge_memory_stats s = lg_memory_stats(d->memory);
    if (d->uploads == NULL) return s;
    const luge_memory_stats more = lg_memory_stats(d->uploads);
    s.allocated_bytes += more.allocated_bytes;
    s.allocated_peak += more.allocated_peak; /* at most: they need not be of the same time */
    s.reserved_bytes += more.reserved_bytes;
    s.reserved_peak += more.reserved_peak;
    s.allocations += more.allocations;
    s.system_allocations += more.system_allocations;
    s.failures += more.failures;
    s.live_tensors += more.live_tensors;
    return s;
}

/* Gives all that is cached back; false if something is in use. */
static bool is_unused(lg_device *d)
{
    lg_memory *const all[] = {d->memory, d->uploads};
    for (int i = 0; i < 2; ++i) {
        if (all[i] == NULL) continue;
        lg_memory_trim(all[i]);
        if (lg_memory_stats(all[i]).reserved_bytes != 0) return false;
    }
    return true;
}

luge_status luge_set_device_allocator(luge_device device, const luge_allocator *allocator)
{
    static const char what[] = "luge_set_device_allocator";
    if (!lg_ok()) return lg_self()->error;
    if (allocator != NULL && (allocator->alloc == NULL || allocator->free == NULL))
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: both alloc and free must be given", what);
    if (allocator != NULL && !lg_check_reserved(allocator->reserved, 4, "luge_allocator")) return lg_self()->error;
    lg_device *d = lg_device_get(device);
    if (d == NULL) return lg_self()->error;
    if (lg_on_host(d))
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: the CPU's memory is the host's: luge_set_allocator replaces that", what);
    if (!is_unused(d))
        return lg_fail(LUGE_ERR_STATE, "%s: %lld bytes of the device are in use: release its tensors first", what,
                       (long long)lg_memory_stats(d->memory).allocated_bytes);
    d->hooks = allocator != NULL ? *allocator : (luge_allocator){0};
    return LUGE_OK;
}

luge_status luge_memory_reset_peak(luge_device device)
{
    if (!lg_ok()) return lg_self()->error;
    lg_device *d = lg_device_get(device);
    if (d == NULL) return lg_self()->error;
    lg_memory_reset_peak(d->memory);
    if (d->uploads != NULL) lg_memory_reset_peak(d->uploads);
    return LUGE_OK;
}

luge_status luge_memory_empty_cache(luge_device device)
{
    lg_device *d = lg_device_get(device);
    lg_memory *const all[] = {d != NULL ? d->memory : NULL, d != NULL ? d->uploads : NULL, d != NULL ? d->pinned : NULL};
    for (int i = 0; i < 3; ++i)
        if (all[i] != NULL) lg_memory_trim(all[i]);
    return lg_self()->error;
}

luge_status luge_set_memory_limit(luge_device device, int64_t bytes)
{
    if (!lg_ok()) return lg_self()->error;
    if (bytes < 0)
        return lg_fail(LUGE_ERR_ARGUMENT, "luge_set_memory_limit: %lld bytes: give 0 for no limit", (long long)bytes);
    lg_device *d = lg_device_get(device);
    if (d == NULL) return lg_self()->error;
    lg_memory_set_limit(d->memory, bytes);
    if (d->uploads != NULL) lg_memory_set_limit(d->uploads, bytes);
    return LUGE_OK;
}

static double mebibytes(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* What holds the memory, the largest first. */
static void write_holders(char *to, size_t size, const lg_origin *list, int n)
{
    enum { MOST = 20 };
    size_t used = 0;
    to[0] = '\0';
    for (int i = 0; i < n && i < MOST && used < size; ++i)
        used += (size_t)snprintf(to + used, size - used, "%s  %12.3f MiB in %5lld  %s\n", i == 0 ? "held by tensors of\n" : "",
                                 mebibytes(list[i].bytes), (long long)list[i].storages, list[i].name);
    if (n > MOST && used < size) snprintf(to + used, size - used, "  and %d more\n", n - MOST);
}

const char *luge_memory_report(luge_device device)
{
    if (!luge_device_usable(device)) return luge_device_why_not(device);
    const lg_device *d = lg_device_get(device);
    if (d == NULL) return luge_error_text();
    luge_memory_stats s = luge_memory_get_stats(device);
    char limit[32] = "none", holders[8192];
    if (s.limit > 0) snprintf(limit, sizeof limit, "%.1f MiB", mebibytes(s.limit));
    lg_origin *list = NULL;
    const int n = lg_origin_list(d, &list);
    write_holders(holders, sizeof holders, list, n);
    lg_free(list);
    return lg_borrow_text("memory of %s:%d        now          peak\n"
                          "  in use    %12.1f MiB %9.1f MiB   in %lld tensors\n"
                          "  cached    %12.1f MiB\n"
                          "  reserved  %12.1f MiB %9.1f MiB\n"
                          "  limit     %16s\n"
                          "  requests  %lld, of which %lld went to the system and %lld failed\n%s",
                          d->backend->name, d->id.index, mebibytes(s.allocated_bytes), mebibytes(s.allocated_peak),
                          (long long)s.live_tensors, mebibytes(s.reserved_bytes - s.allocated_bytes),
                          mebibytes(s.reserved_bytes), mebibytes(s.reserved_peak), limit, (long long)s.allocations,
                          (long long)s.system_allocations, (long long)s.failures, holders);
}

/* ---- forks */

enum { MAX_GUARDED = 128 };

/* In the order they are taken. No lock guards the list: whoever adds to it may hold one of them. */
static _Atomic(pthread_mutex_t *) guarded[MAX_GUARDED];
static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER; /* one fork at a time: `held` */
static pthread_mutex_t *held[MAX_GUARDED];

static void before_fork(void)
{
    pthread_mutex_lock(&fork_lock);
    for (int i = 0; i < MAX_GUARDED; ++i) {
        held[i] = atomic_load(&guarded[i]);
        if (held[i] != NULL) pthread_mutex_lock(held[i]);
    }
}

static void after_fork(void)
{
    for (int i = MAX_GUARDED - 1; i >= 0; --i) {
        if (held[i] != NULL) pthread_mutex_unlock(held[i]);
    }
    pthread_mutex_unlock(&fork_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

void lg_fork_guard(pthread_mutex_t *lock)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    for (int i = 0; i < MAX_GUARDED; ++i) {
        pthread_mutex_t *there = NULL;
        if (atomic_compare_exchange_strong(&guarded[i], &there, lock) || there == lock) return;
    }
}

void lg_fork_unguard(pthread_mutex_t *lock)
{
    for (int i = 0; i < MAX_GUARDED; ++i) {
        pthread_mutex_t *there = lock;
        if (atomic_compare_exchange_strong(&guarded[i], &there, NULL)) return;
    }
}

/* ---- unloading: at exit, or when a plugin that holds the library is closed. Other threads may still
 * run; they work on without the pool. The user's functions are not called any more: what they use may
 * be gone. */

__attribute__((destructor)) static void unload(void)
{
    lg_pool_stop();
    lg_thread_unload();
    lg_device_close_all();
    if (!lg_alloc_is_foreign()) lg_memory_trim_all();
}
