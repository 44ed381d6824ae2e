/* Walking strided tensors: see strided.h. */
#include "cpu/strided.h"

#include <string.h>
#include "core/pool.h"

/* Rows at least this long are worked on one by one; shorter ones are gathered into blocks. */
enum { LONG_ROW = 128 };

/* ---- runs */

#define STRIDED_LOOP(word)                                                     \
    do {                                                                       \
        const word *f = from;                                                  \
        word *t = to;                                                          \
        for (int64_t i = 0; i < n; ++i) t[i * to_stride] = f[i * from_stride]; \
    } while (0)

void lg_copy_run(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t n, size_t size)
{
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    if (to_stride == 1 && from_stride == 0) {
        lg_fill_run(to, from, n, size);
        return;
    }
    switch (size) {
    case 1: STRIDED_LOOP(lg_word_1); break;
    case 2: STRIDED_LOOP(lg_word_2); break;
    case 4: STRIDED_LOOP(lg_word_4); break;
    default: STRIDED_LOOP(lg_word_8); break;
    }
}

#define TRANSPOSED_LOOP(word)                                                              \
    do {                                                                                   \
        const word *f = from;                                                              \
        word *t = to;                                                                      \
        for (int64_t j = 0; j < columns; ++j)                                              \
            for (int64_t i = 0; i < rows; ++i) t[j * to_stride + i] = f[i * from_stride + j]; \
    } while (0)

/* Four by four at a time, in vectors; the edges one by one. */
static void transpose_words_4(lg_word_4 *to, int64_t to_stride, const lg_word_4 *from, int64_t from_stride, int64_t rows,
                              int64_t columns)
{
    typedef lg_word_4 quad __attribute__((vector_size(16)));
    int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
    for (int64_t j = 0; j < whole_columns; j += 4)
        for (int64_t i = 0; i < whole_rows; i += 4) {
            quad row[4], column[4];
            for (int k = 0; k < 4; ++k) memcpy(&row[k], from + (i + k) * from_stride + j, sizeof(quad));
            quad a = __builtin_shufflevector(row[0], row[2], 0, 4, 1, 5), b = __builtin_shufflevector(row[1], row[3], 0, 4, 1, 5);
            quad c = __builtin_shufflevector(row[0], row[2], 2, 6, 3, 7), d = __builtin_shufflevector(row[1], row[3], 2, 6, 3, 7);
            column[0] = __builtin_shufflevector(a, b, 0, 4, 1, 5);
            column[1] = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            column[2] = __builtin_shufflevector(c, d, 0, 4, 1, 5);
            column[3] = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            for (int k = 0; k < 4; ++k) memcpy(to + (j + k) * to_stride + i, &column[k], sizeof(quad));
        }
    for (int64_t j = 0; j < columns; ++j)
        for (int64_t i = j < whole_columns ? whole_rows : 0; i < rows; ++i) to[j * to_stride + i] = from[i * from_stride + j];
}

void lg_transpose_run(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t rows, int64_t columns,
                      size_t size)
{
    switch (size) {
    case 1: TRANSPOSED_LOOP(lg_word_1); break;
    case 2: TRANSPOSED_LOOP(lg_word_2); break;
    case 4: transpose_words_4(to, to_stride, from, from_stride, rows, columns); break;
    default: TRANSPOSED_LOOP(lg_word_8); break;
    }
}

#define FILL_LOOP(word)                               \
    do {                                              \
        const word value = *(const word *)from;       \
        word *t = to;                                 \
        for (int64_t i = 0; i < n; ++i) t[i] = value; \
    } while (0)

void lg_fill_run(void *to, const void *from, int64_t n, size_t size)
{
    switch (size) {
    case 1: memset(to, *(const uint8_t *)from, (size_t)n); break;
    case 2: FILL_LOOP(lg_word_2); break;
    case 4: FILL_LOOP(lg_word_4); break;
    default: FILL_LOOP(lg_word_8); break;
    }
}

/* ---- cursors */

void lg_cursor_set(lg_cursor *c, const lg_iter *it, int64_t i)
{
    for (int k = 0; k < it->n; ++k) c->offset[k] = 0;
    for (int axis = 0; axis < it->rank; ++axis) {
        c->index[axis] = i % it->size[axis];
        i /= it->size[axis];
        for (int k = 0; k < it->n; ++k) c->offset[k] += c->index[axis] * it->stride[k][axis];
    }
}

static void step(lg_cursor *c, const lg_iter *it, int axis, int64_t by)
{
    c->index[axis] += by;
    for (int k = 0; k < it->n; ++k) c->offset[k] += by * it->stride[k][axis];
}

void lg_cursor_move(lg_cursor *c, const lg_iter *it, int64_t columns)
{
    step(c, it, 0, columns);
    for (int axis = 0; axis + 1 < it->rank && c->index[axis] == it->size[axis]; ++axis) {
        step(c, it, axis, -it->size[axis]);
        step(c, it, axis + 1, 1);
    }
}

/* ---- pieces */

typedef enum access {
    DENSE,  /* elements lie in the order of the iteration */
    SCALAR, /* one element, repeated in a buffer */
    ROW,    /* dense within a row, and rows are long: taken one by one */
    GATHER  /* through a buffer */
} access;

typedef struct operand {
    char *base;
    size_t size; /* of an element */
    access access;
} operand;

typedef struct walk {
    lg_iter it;
    operand operand[LG_PIECES_MAX];
    bool by_rows;
    int64_t longest;
    int64_t slices;
    lg_piece_fn fn;
    const void *work;
} walk;

typedef struct buffers {
    _Alignas(64) char of[LG_PIECES_MAX][LG_BLOCK * sizeof(double)];
} buffers;

/* Moves a piece of m elements between operand k and its buffer; the piece may span rows. */
static void move_rows(const walk *w, const lg_cursor *at, int64_t m, int k, char *buffer)
{
    const operand *o = &w->operand[k];
    int64_t stride = w->it.stride[k][0];
    lg_cursor c = *at;
    for (int64_t done = 0, n; done < m; done += n) {
        n = w->it.size[0] - c.index[0];
        if (n > m - done) n = m - done;
        char *there = o->base + c.offset[k] * (int64_t)o->size, *here = buffer + (size_t)done * o->size;
        if (k == 0) {
            lg_copy_run(there, stride, here, 1, n, o->size);
        } else {
            lg_copy_run(here, 1, there, stride, n, o->size);
        }
        if (done + n < m) lg_cursor_move(&c, &w->it, n);
    }
}

/* Elements i to i + m, which begin at `at`. */
static void run_piece(const walk *w, const lg_cursor *at, int64_t i, int64_t m, buffers *b)
{
    void *piece[LG_PIECES_MAX];
    for (int k = 0; k < w->it.n; ++k) {
        const operand *o = &w->operand[k];
        switch (o->access) {
        case DENSE: piece[k] = o->base + i * (int64_t)o->size; break;
        case ROW: piece[k] = o->base + at->offset[k] * (int64_t)o->size; break;
        case SCALAR: piece[k] = b->of[k]; break;
        case GATHER:
            piece[k] = b->of[k];
            if (k > 0) move_rows(w, at, m, k, b->of[k]);
            break;
        }
    }
    w->fn(m, piece, w->work);
    if (w->operand[0].access == GATHER) move_rows(w, at, m, 0, b->of[0]);
}

static void run_slice(int64_t slice, void *data)
{
    const walk *w = data;
    buffers b;
    for (int k = 1; k < w->it.n; ++k)
        if (w->operand[k].access == SCALAR) lg_fill_run(b.of[k], w->operand[k].base, LG_BLOCK, w->operand[k].size);

    int64_t i = lg_slice_begin(w->it.numel, w->slices, slice), end = lg_slice_begin(w->it.numel, w->slices, slice + 1);
    lg_cursor at;
    lg_cursor_set(&at, &w->it, i);
    while (i < end) {
        int64_t m = end - i < w->longest ? end - i : w->longest;
        if (w->by_rows && m > w->it.size[0] - at.index[0]) m = w->it.size[0] - at.index[0];
        run_piece(w, &at, i, m, &b);
        i += m;
        if (w->by_rows) {
            lg_cursor_move(&at, &w->it, m);
        } else {
            lg_cursor_set(&at, &w->it, i);
        }
    }
}

/* ---- setting up */

static access access_of(const walk *w, int k)
{
    const lg_iter *it = &w->it;
    bool dense = true, scalar = k > 0;
    int64_t expected = 1;
    for (int axis = 0; axis < it->rank; ++axis) {
        dense = dense && it->stride[k][axis] == expected;
        scalar = scalar && it->stride[k][axis] == 0;
        expected *= it->size[axis];
    }
    if (dense) return DENSE;
    if (scalar) return SCALAR;
    return w->by_rows && it->stride[k][0] == 1 ? ROW : GATHER;
}

void lg_each_piece(int n, luge_tensor *const *tensor, int64_t longest, int64_t grain, lg_piece_fn fn, const void *work)
{
    walk w;
    lg_iter_init(&w.it, &tensor[0]->shape, n, tensor);
    w.by_rows = w.it.rank > 1 && w.it.size[0] >= LONG_ROW;
    w.longest = longest > 0 ? longest : INT64_MAX;
    for (int k = 0; k < n; ++k) {
        access how = access_of(&w, k);
        w.operand[k] = (operand){lg_data(tensor[k]), lg_element_size(tensor[k]), how};
        if ((how == SCALAR || how == GATHER) && w.longest > LG_BLOCK) w.longest = LG_BLOCK;
    }
    w.fn = fn;
    w.work = work;
    w.slices = lg_slices(w.it.numel, grain);
    lg_parallel(w.slices, run_slice, &w);
}
