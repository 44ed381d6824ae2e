/* The thread pool. Work is cut into slices by shape, never by the number of threads, so results do not
 * depend on it. */
#ifndef LG_CORE_POOL_H
#define LG_CORE_POOL_H

#include <stdint.h>

typedef void (*lg_slice_fn)(int64_t slice, void *work);

/* Runs fn for slices 0..n-1, each once, on this thread and the pool's; returns when all are done.
 * Runs here alone if n is 1, inside another lg_parallel, or while another thread uses the pool. fn
 * sees no thread state (scopes, errors): it computes, and writes only its slice. */
void lg_parallel(int64_t n, lg_slice_fn fn, void *work);
/* Number of slices for `items` of equal cost with at least `grain` items each, at most 256; a
 * function of both alone. Slice s covers [lg_slice_begin(items, n, s), lg_slice_begin(items, n, s + 1)). */
int64_t lg_slices(int64_t items, int64_t grain);
static inline int64_t lg_slice_begin(int64_t items, int64_t n, int64_t s)
{
    return items / n * s + (s < items % n ? s : items % n);
}
/* 0 in a calling thread (of which there may be several), 1.. in pool threads. */
int lg_pool_thread(void);
/* How many threads work on an lg_parallel at most: the pool's and the caller. */
int lg_pool_threads(void);
/* Runs fn on every thread of the pool when it starts. Before the first lg_parallel. */
void lg_pool_on_start(void (*fn)(void));
/* Ends the pool's threads for good: from now on everything runs in its caller. */
void lg_pool_stop(void);

#endif
