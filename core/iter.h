/* Walking several strided tensors together: axes sorted by stride and merged where all allow it, so
 * that most work is one long inner loop. Shared by every backend. */
#ifndef LG_CORE_ITER_H
#define LG_CORE_ITER_H

#include "core/tensor.h"

enum { LG_ITER_MAX = 8 };

/* Axis 0 is the innermost. Strides are in elements; 0 where an operand is broadcast. Without elements
 * the sizes are 1 and 0: there is no row, and nothing is flat. */
typedef struct lg_iter {
    int n;                                       /* operands */
    int rank;                                    /* merged axes, at least 1 */
    int64_t size[LUGE_MAX_RANK];
    int64_t stride[LG_ITER_MAX][LUGE_MAX_RANK];
    int64_t numel;
} lg_iter;

/* Over `shape`, to which every operand must broadcast; operand 0, usually the output, decides the
 * order of axes. */
void lg_iter_init(lg_iter *it, const luge_shape *shape, int n, luge_tensor *const *operand);
/* Offsets in elements (from lg_data) of every operand at inner row `row` of numel / size[0]. */
void lg_iter_row(const lg_iter *it, int64_t row, int64_t offset[LG_ITER_MAX]);
static inline int64_t lg_iter_rows(const lg_iter *it) { return it->numel / it->size[0]; }
/* All operands have stride 1 (or 0: the same element throughout) along one merged axis. */
static inline bool lg_iter_flat(const lg_iter *it)
{
    if (it->rank != 1) return false;
    for (int k = 0; k < it->n; ++k)
        if (it->stride[k][0] != 0 && it->stride[k][0] != 1) return false;
    return true;
}

#endif
