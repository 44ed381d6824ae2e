/* What other kernels need of cpu_copy.c. */
#ifndef LG_CPU_CPU_COPY_H
#define LG_CPU_CPU_COPY_H

#include "core/op.h"
#include "cpu/scratch.h"

/* A stand-in for an input, while a kernel runs. */
typedef struct lg_straight {
    bool used;
    luge_tensor tensor;
    lg_storage storage;
    lg_scratch scratch;
} lg_straight;

/* Where an input of the output's shape runs across it in memory, and is large, walking both together
 * would touch a cache line for every element: *t becomes a copy that lies as the output does. Else
 * nothing happens. On an error there is nothing to close. */
luge_status lg_straighten(lg_straight *s, const lg_call *call, luge_tensor **t);
void lg_straight_close(lg_straight *s);

/* A tensor of t's elements in another dtype or layout (stride NULL: row-major), which the caller releases;
 * NULL with the error set. */
luge_tensor *lg_copy_of(const lg_call *call, luge_tensor *t, luge_dtype dtype, const int64_t *stride);

#endif
