/* Memory that a kernel needs while it runs: on its stack where that is enough, else of the device. */
#ifndef LG_CPU_SCRATCH_H
#define LG_CPU_SCRATCH_H

#include "core/device.h"

enum { LG_SCRATCH_SMALL = 1 << 13 };

typedef struct lg_scratch {
    _Alignas(64) char small[LG_SCRATCH_SMALL];
    lg_device *device;
    void *memory;                 /* NULL: none, or small */
    size_t bytes;
} lg_scratch;

/* bytes >= 0; 64-byte aligned. NULL with LUGE_ERR_OUT_OF_MEMORY set, and nothing to close. */
static inline void *lg_scratch_open(lg_scratch *s, lg_device *device, int64_t bytes)
{
    s->device = device;
    s->memory = NULL;
    s->bytes = (size_t)bytes;
    if (bytes <= LG_SCRATCH_SMALL) return s->small;
    return s->memory = lg_memory_alloc(device->memory, s->bytes);
}
static inline void lg_scratch_close(lg_scratch *s)
{
    if (s->memory != NULL) lg_memory_free(s->device->memory, s->memory, s->bytes);
}

/* a * b, and a + b rounded up to 64, for sizes >= 0. What does not fit becomes a size that no memory has. */
static inline int64_t lg_scratch_times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}
static inline int64_t lg_scratch_plus(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) || sum > INT64_MAX - 63 ? INT64_MAX : (sum + 63) / 64 * 64;
}

#endif
