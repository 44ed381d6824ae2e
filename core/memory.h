/* The rest of the caching allocator's interface: what core/process.c shows to users. Allocation itself
 * is in core/device.h. */
#ifndef LG_CORE_MEMORY_H
#define LG_CORE_MEMORY_H

#include "core/device.h"

enum { LG_MAX_MEMORIES = 52 };

/* Gives everything back. Nothing of it may be in use. */
void lg_memory_destroy(lg_memory *m);
luge_memory_stats lg_memory_stats(lg_memory *m);
void lg_memory_reset_peak(lg_memory *m);
/* Bytes that tensors may hold; 0: no limit. */
void lg_memory_set_limit(lg_memory *m, int64_t bytes);
/* lg_memory_trim of every allocator. */
void lg_memory_trim_all(void);

#endif
