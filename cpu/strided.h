/* Walking strided tensors in dense pieces, and moving elements between them and dense buffers. */
#ifndef LG_CPU_STRIDED_H
#define LG_CPU_STRIDED_H

#include "core/iter.h"

enum {
    LG_PIECES_MAX = 4, /* tensors walked together */
    LG_BLOCK = 512     /* elements that go through buffers at a time: those of all operands stay in L1 */
};

/* Works on n elements of every tensor, dense at at[k] in the tensor's own dtype; at[0] is written. */
typedef void (*lg_piece_fn)(int64_t n, void *const at[], const void *work);

/* Calls fn for all elements of tensor[0], which `fn` writes, together with those of the others, which
 * broadcast to it. Pieces have at most `longest` elements (0: any number); they are cut by shape alone,
 * and shared among threads if there are more than `grain` elements. Where tensors are not dense pieces
 * are copied. Tensors may be the same, but must not overlap otherwise. */
void lg_each_piece(int n, luge_tensor *const *tensor, int64_t longest, int64_t grain, lg_piece_fn fn, const void *work);

/* A place in an iteration: an index along every merged axis, and where the operands are there. */
typedef struct lg_cursor {
    int64_t index[LUGE_MAX_RANK];
    int64_t offset[LG_ITER_MAX];
} lg_cursor;

/* At element i of the iteration. */
void lg_cursor_set(lg_cursor *c, const lg_iter *it, int64_t i);
/* On by `columns`, which do not go past the end of the inner row. */
void lg_cursor_move(lg_cursor *c, const lg_iter *it, int64_t columns);

/* Elements as words of their size, whatever their type. */
typedef uint8_t lg_word_1;
typedef uint16_t __attribute__((may_alias)) lg_word_2;
typedef uint32_t __attribute__((may_alias)) lg_word_4;
typedef uint64_t __attribute__((may_alias)) lg_word_8;

/* Copies n elements of `size` bytes (1, 2, 4 or 8); strides are in elements. The arrays do not overlap. */
void lg_copy_run(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t n, size_t size);
/* to[j * to_stride + i] becomes from[i * from_stride + j], for i < rows and j < columns. */
void lg_transpose_run(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t rows, int64_t columns,
                      size_t size);
/* Sets n dense elements of `size` bytes to the one at `from`. */
void lg_fill_run(void *to, const void *from, int64_t n, size_t size);

#endif
