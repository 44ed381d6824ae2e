/* Walking strided tensors in pieces, and moving elements between them and dense buffers. */
#ifndef LG_CPU_STRIDED_H
#define LG_CPU_STRIDED_H

#include "core/iter.h"

/* A place in an iteration: an index along every merged axis, and where the operands are there. */
typedef struct lg_cursor {
    int64_t index[LUGE_MAX_RANK];
    int64_t offset[LG_ITER_MAX];
} lg_cursor;

/* At element i of the iteration. */
void lg_cursor_set(lg_cursor *c, const lg_iter *it, int64_t i);
/* On by `columns`, which must not go past the end of the inner row. */
void lg_cursor_move(lg_cursor *c, const lg_iter *it, int64_t columns);

/* Copies n elements of `size` bytes (1, 2, 4 or 8); strides are in elements. The arrays do not overlap. */
void lg_copy_run(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t n, size_t size);
/* Sets n dense elements of `size` bytes to the one at `from`. */
void lg_fill_run(void *to, const void *from, int64_t n, size_t size);

#endif
