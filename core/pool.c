/* The thread pool, one a process. One lg_parallel at a time has it; slices are claimed one by one, the
 * caller claims too, and only waits for slices that a worker has begun. Workers look for new work for
 * some microseconds before they sleep, so that ops in a row do not pay for waking them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "core/pool.h"

#include <luge/process.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/process.h"
#include "core/thread.h"

enum {
    MAX_THREADS = 1024,
    MAX_HOOKS = 4,
    SPIN_NANOSECONDS = 20000,
    SPIN_STEP = 32 /* looks between two looks at the clock */
};

static struct {
    /* The work at hand. Written while `open` is false and nobody is inside. */
    lg_slice_fn fn;
    void *work;
    int64_t n;
    atomic_int_least64_t next; /* slice to claim */

    atomic_bool busy;          /* some lg_parallel, or a change of the pool, has the pool */
    atomic_bool open;          /* workers may come in */
    atomic_int inside;         /* workers that may be looking at the work */
    atomic_uint round;         /* counts works; a change of it wakes the workers */
    atomic_bool quit, stopped; /* workers are to end; the pool is gone for good */

    pthread_mutex_t lock; /* with the two conditions */
    pthread_cond_t wake, done;
    atomic_int sleeping; /* workers at `wake` */
    atomic_bool waiting; /* the caller is at `done` */

    /* Changed by whoever is busy. */
    pthread_t worker[MAX_THREADS];
    int n_workers;
    int asked;          /* threads with the caller; 0: not decided */
    atomic_int threads; /* what of it could be started; 0: not decided */
    void (*hook[MAX_HOOKS])(void);
    int n_hooks;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static _Thread_local int thread_number; /* 0: not the pool's */
static _Thread_local bool in_parallel;

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- workers */

static void run_slices(void)
{
    const int64_t n = pool.n;
    for (int64_t i; (i = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed)) < n;) pool.fn(i, pool.work);
}

/* Waits for a round other than `seen`: first looking, then asleep. False: the worker is to end. */
static bool next_round(unsigned seen)
{
    int64_t until = nanoseconds() + SPIN_NANOSECONDS;
    do {
        for (int i = 0; i < SPIN_STEP; ++i) {
            if (atomic_load(&pool.quit)) return false;
            if (atomic_load(&pool.round) != seen) return true;
            relax();
        }
    } while (nanoseconds() < until);

    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.sleeping, 1);
    while (atomic_load(&pool.round) == seen && !atomic_load(&pool.quit)) pthread_cond_wait(&pool.wake, &pool.lock);
    atomic_fetch_sub(&pool.sleeping, 1);
    pthread_mutex_unlock(&pool.lock);
    return !atomic_load(&pool.quit);
}

static void *run_worker(void *arg)
{
    thread_number = (int)(intptr_t)arg;
    in_parallel = true;
    for (int i = 0; i < pool.n_hooks; ++i) pool.hook[i]();

    unsigned seen = atomic_load(&pool.round) - 1; /* there may be work already */
    while (next_round(seen)) {
        seen = atomic_load(&pool.round);
        /* Counted before looking whether the work is open: the caller closes it before looking
         * whether anybody is counted. One of the two sees the other. */
        atomic_fetch_add(&pool.inside, 1);
        if (atomic_load(&pool.open)) run_slices();
        if (atomic_fetch_sub(&pool.inside, 1) == 1 && atomic_load(&pool.waiting)) {
            pthread_mutex_lock(&pool.lock);
            pthread_cond_signal(&pool.done);
            pthread_mutex_unlock(&pool.lock);
        }
    }
    return NULL;
}

/* ---- starting and ending them. Called by whoever is busy. */

static int default_threads(void)
{
    const char *text = getenv("LUGE_NUM_THREADS");
    if (text != NULL && *text != '\0') {
        char *end;
        long n = strtol(text, &end, 10);
        if (*end == '\0' && n >= 1 && n <= MAX_THREADS) return (int)n;
        lg_log(LUGE_LOG_WARNING, "LUGE_NUM_THREADS: \"%s\" is not a number from 1 to %d: ignored", text, MAX_THREADS);
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t allowed; /* a container or taskset may leave fewer */
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) n = CPU_COUNT(&allowed);
#endif
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (int)n;
}

int lg_pool_threads(void)
{
    int threads = atomic_load_explicit(&pool.threads, memory_order_relaxed);
    if (threads > 0) return threads;
    int expected = 0;
    threads = default_threads();
    return atomic_compare_exchange_strong(&pool.threads, &expected, threads) ? threads : expected;
}

static pthread_once_t forks_guarded = PTHREAD_ONCE_INIT;
static void guard_forks(void);

static void start_workers(int wanted)
{
    pthread_once(&forks_guarded, guard_forks);
    sigset_t all_signals, before; /* signals are for the host's threads */
    sigfillset(&all_signals);
    pthread_sigmask(SIG_SETMASK, &all_signals, &before);
    while (pool.n_workers < wanted) {
        int number = pool.n_workers + 1;
        if (lg_fault(LG_FAULT_THREAD) ||
            pthread_create(&pool.worker[pool.n_workers], NULL, run_worker, (void *)(intptr_t)number) != 0)
            break;
        pool.n_workers = number;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pool.n_workers == wanted) return;
    atomic_store(&pool.threads, pool.n_workers + 1);
    lg_log(LUGE_LOG_WARNING, "%d threads asked for, %d could be started: going on with those", wanted + 1,
           pool.n_workers + 1);
}

static void end_workers(void)
{
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.quit, true);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < pool.n_workers; ++i) pthread_join(pool.worker[i], NULL);
    pool.n_workers = 0;
    atomic_store(&pool.quit, false);
}

/* ---- forks: the child has no workers, and starts its own when it needs them */

static void reset_in_child(void)
{
    static const pthread_cond_t fresh = PTHREAD_COND_INITIALIZER;
    memcpy(&pool.wake, &fresh, sizeof fresh);
    memcpy(&pool.done, &fresh, sizeof fresh);
    pool.n_workers = 0;
    atomic_store(&pool.threads, pool.asked);
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.inside, 0);
    atomic_store(&pool.open, false);
    atomic_store(&pool.waiting, false);
    atomic_store(&pool.quit, false);
    atomic_store(&pool.busy, pool.stopped || (in_parallel && thread_number == 0));
}

static void guard_forks(void)
{
    lg_fork_guard(&pool.lock);
    pthread_atfork(NULL, NULL, reset_in_child);
}

/* ---- using the pool */

static bool acquire(void)
{
    return !in_parallel && !atomic_load_explicit(&pool.busy, memory_order_relaxed) &&
           !atomic_exchange(&pool.busy, true);
}

static void release(void)
{
    atomic_store(&pool.busy, false);
}

static void wake_workers(int64_t wanted)
{
    int64_t sleeping = atomic_load(&pool.sleeping);
    if (sleeping == 0) return;
    pthread_mutex_lock(&pool.lock);
    if (wanted >= sleeping)
        pthread_cond_broadcast(&pool.wake);
    else
        while (wanted-- > 0) pthread_cond_signal(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
}

static void await_workers(void)
{
    if (atomic_load(&pool.inside) == 0) return;
    int64_t until = nanoseconds() + SPIN_NANOSECONDS;
    do {
        for (int i = 0; i < SPIN_STEP; ++i) {
            if (atomic_load(&pool.inside) == 0) return;
            relax();
        }
    } while (nanoseconds() < until);

    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.waiting, true);
    while (atomic_load(&pool.inside) > 0) pthread_cond_wait(&pool.done, &pool.lock);
    atomic_store(&pool.waiting, false);
    pthread_mutex_unlock(&pool.lock);
}

static void run_together(int64_t n, lg_slice_fn fn, void *work)
{
    pool.fn = fn;
    pool.work = work;
    pool.n = n;
    atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
    atomic_store(&pool.open, true);
    atomic_fetch_add(&pool.round, 1);
    wake_workers(n - 1);
    in_parallel = true;
    run_slices();
    in_parallel = false;
    atomic_store(&pool.open, false);
    await_workers();
}

void lg_parallel(int64_t n, lg_slice_fn fn, void *work)
{
    if (n > 1 && lg_pool_threads() > 1 && acquire()) {
        int wanted = lg_pool_threads() - 1;
        if (pool.n_workers < wanted) start_workers(wanted);
        if (pool.n_workers > 0) run_together(n, fn, work);
        const bool done = pool.n_workers > 0;
        release();
        if (done) return;
    }
    for (int64_t i = 0; i < n; ++i) fn(i, work);
}

int64_t lg_slices(int64_t items, int64_t grain)
{
    enum { MAX_SLICES = 256 };
    if (items <= 0) return 0;
    int64_t n = items / (grain > 1 ? grain : 1);
    return n < 1 ? 1 : n > MAX_SLICES ? MAX_SLICES : n;
}

int lg_pool_thread(void)
{
    return thread_number;
}

void lg_pool_on_start(void (*fn)(void))
{
    if (pool.n_hooks < MAX_HOOKS) pool.hook[pool.n_hooks++] = fn;
}

void lg_pool_stop(void)
{
    /* If a slice ends the process, its own thread cannot be waited for. */
    if (in_parallel || atomic_load(&pool.stopped)) return;
    /* An op on another thread may have the pool. It is waited for, but not for ever. */
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; !acquire(); ++i) {
        if (i == 5000) return;
        nanosleep(&pause, NULL);
    }
    end_workers();
    atomic_store(&pool.stopped, true); /* and busy for good */
}

luge_status luge_set_num_threads(int threads)
{
    if (!lg_ok()) return lg_self()->error;
    if (threads < 1 || threads > MAX_THREADS)
        return lg_fail(LUGE_ERR_ARGUMENT, "luge_set_num_threads: %d is not a number of threads from 1 to %d", threads,
                       MAX_THREADS);
    if (!acquire())
        return lg_fail(LUGE_ERR_STATE, "luge_set_num_threads: an op is using the threads: call it between ops");
    end_workers();
    pool.asked = threads;
    atomic_store(&pool.threads, threads);
    release();
    return LUGE_OK;
}

int luge_num_threads(void)
{
    return lg_pool_threads();
}
