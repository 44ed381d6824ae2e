/* Steps of strided kernels: see strided.h. */
#include "cpu/strided.h"

#include <string.h>

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

/* Elements as words, whatever type they are. */
typedef uint8_t word_1;
typedef uint16_t __attribute__((may_alias)) word_2;
typedef uint32_t __attribute__((may_alias)) word_4;
typedef uint64_t __attribute__((may_alias)) word_8;

#define STRIDED_LOOP(word)                                                         \
    do {                                                                           \
        const word *f = from;                                                      \
        word *t = to;                                                              \
        for (int64_t i = 0; i < n; ++i) t[i * to_stride] = f[i * from_stride];     \
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
    case 1: STRIDED_LOOP(word_1); break;
    case 2: STRIDED_LOOP(word_2); break;
    case 4: STRIDED_LOOP(word_4); break;
    default: STRIDED_LOOP(word_8); break;
    }
}

#define FILL_LOOP(word)                              \
    do {                                             \
        const word value = *(const word *)from;      \
        word *t = to;                                \
        for (int64_t i = 0; i < n; ++i) t[i] = value; \
    } while (0)

void lg_fill_run(void *to, const void *from, int64_t n, size_t size)
{
    switch (size) {
    case 1: memset(to, *(const uint8_t *)from, (size_t)n); break;
    case 2: FILL_LOOP(word_2); break;
    case 4: FILL_LOOP(word_4); break;
    default: FILL_LOOP(word_8); break;
    }
}
