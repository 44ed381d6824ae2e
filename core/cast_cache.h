/* What autocast has made of parameters: inside a region each is cast once, not once per use. The call path
 * (ops/call.c) adds and asks, core/scope.c ends it with the outermost region of the thread.
 *
 * Only elements are shared. Every use still records a cast of its own, so gradients arrive one by one and are
 * summed in the parameter's dtype, and whether a graph was recorded at the first use does not matter. */
#ifndef LG_CORE_CAST_CACHE_H
#define LG_CORE_CAST_CACHE_H

#include "core/tensor.h"

typedef struct lg_cast_entry {
    luge_tensor *source, *cast; /* references; the cast is outside the graph */
    uint64_t id;                /* of the source's storage */
    uint32_t version, cast_version;
} lg_cast_entry;

typedef struct lg_cast_cache {
    lg_cast_entry *entry;
    int count, room;
    int next;       /* where to look first: parameters are mostly used in the same order again */
    uint64_t frame; /* the region that it ends with; 0 while there is nothing */
} lg_cast_cache;

/* Whether the thread may keep the cast of t: a dense leaf that requires a gradient. */
bool lg_cast_cache_takes(const luge_tensor *t);
/* The elements of t in `dtype`, a new handle outside the graph that the caller owns and nobody writes into.
 * NULL if they are not there, or with the error set. */
luge_tensor *lg_cast_cache_find(const luge_tensor *t, luge_dtype dtype);
/* Keeps `cast`, which was made of t, unless it is there. */
luge_status lg_cast_cache_keep(luge_tensor *t, const luge_tensor *cast);
/* The thread's: gives everything back. */
void lg_cast_cache_clear(lg_cast_cache *cache);

#endif
