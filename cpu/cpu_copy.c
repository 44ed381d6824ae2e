/* Moving elements: cast, copy, fill, and what is made of them: cat, pad, slice_backward. */
#include <string.h>
#include "core/pool.h"
#include "core/thread.h"
#include "cpu/cpu.h"
#include "cpu/cpu_copy.h"
#include "cpu/simd/simd.h"
#include "cpu/strided.h"
#include "ops/attrs.h"

enum {
    GRAIN = 65536, /* elements worth a thread */
    TILE = 64,     /* of a transposition: several cache lines on both sides, as lines a power of two apart displace each other */
    CACHE_LINE = 64,
    WORTH_STRAIGHTENING = 16384
};

/* ---- transposition: `to` runs along one axis in memory, `from` along another. Tiles are read along
 * the latter into a buffer and written along the former, so that every cache line is used whole. */

typedef struct transposition {
    lg_iter it;
    int axis; /* along which `from` is dense; `to` is along axis 0 */
    char *to;
    const char *from;
    size_t size;
    int64_t tiles[LUGE_MAX_RANK]; /* along each axis: of TILE elements along axis 0 and `axis`, else of one */
    int64_t count, slices;
} transposition;

static void transpose_tile(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t rows,
                           int64_t columns, size_t size)
{
    _Alignas(64) char tile[TILE * TILE * sizeof(double)];
    for (int64_t i = 0; i < rows; ++i)
        memcpy(tile + (size_t)(i * TILE) * size, from + (size_t)(i * from_stride) * size, (size_t)columns * size);
    lg_transpose_run(to, to_stride, tile, TILE, rows, columns, size);
}

/* Asks for the lines of the next tile of `to`: no processor foresees writes in so many places, and each would
 * have to wait for what is in memory there. */
static void expect_tile(const char *to, int64_t to_stride, int64_t rows, int64_t columns, size_t size)
{
    for (int64_t j = 0; j < columns; ++j)
        for (size_t at = 0; at < (size_t)rows * size; at += CACHE_LINE)
            __builtin_prefetch(to + (size_t)(j * to_stride) * size + at, 1);
}

static int64_t tile_length(const lg_iter *it, int axis, int64_t begin)
{
    return it->size[axis] - begin < TILE ? it->size[axis] - begin : TILE;
}

static void transpose_slice(int64_t slice, void *data)
{
    const transposition *t = data;
    const lg_iter *it = &t->it;
    int64_t end = lg_slice_begin(t->count, t->slices, slice + 1);
    for (int64_t n = lg_slice_begin(t->count, t->slices, slice); n < end; ++n) {
        int64_t rest = n, begin[LUGE_MAX_RANK], to = 0, from = 0;
        for (int axis = 0; axis < it->rank; ++axis) {
            begin[axis] = rest % t->tiles[axis] * (axis == 0 || axis == t->axis ? TILE : 1);
            rest /= t->tiles[axis];
            to += begin[axis] * it->stride[0][axis];
            from += begin[axis] * it->stride[1][axis];
        }
        char *tile = t->to + to * (int64_t)t->size;
        int64_t to_stride = it->stride[0][t->axis], columns = tile_length(it, t->axis, begin[t->axis]);
        if (begin[0] + TILE < it->size[0])
            expect_tile(tile + TILE * t->size, to_stride, tile_length(it, 0, begin[0] + TILE), columns, t->size);
        transpose_tile(tile, to_stride, t->from + from * (int64_t)t->size, it->stride[1][0], tile_length(it, 0, begin[0]),
                       columns, t->size);
    }
}

/* Fills in the iteration and the axis; false if there is nothing to gain by tiles. */
static bool find_transposition(transposition *t, luge_tensor *to, luge_tensor *from)
{
    t->axis = 0;
    lg_iter_init(&t->it, &to->shape, 2, (luge_tensor *[]){to, from});
    if (t->it.stride[0][0] != 1 || t->it.stride[1][0] <= 1) return false;
    for (int axis = 1; axis < t->it.rank; ++axis)
        if (t->it.stride[1][axis] == 1) t->axis = axis;
    return t->axis > 0 && t->it.size[t->axis] >= TILE / 8;
}

static void transpose(transposition *t, luge_tensor *to, luge_tensor *from)
{
    t->to = lg_data(to);
    t->from = lg_data(from);
    t->size = lg_element_size(to);
    t->count = 1;
    for (int axis = 0; axis < t->it.rank; ++axis) {
        int64_t step = axis == 0 || axis == t->axis ? TILE : 1;
        t->tiles[axis] = (t->it.size[axis] + step - 1) / step;
        t->count *= t->tiles[axis];
    }
    t->slices = lg_slices(t->count, GRAIN / (TILE * TILE));
    lg_parallel(t->slices, transpose_slice, t);
}

luge_status lg_straighten(lg_straight *s, const lg_call *call, luge_tensor **t)
{
    luge_tensor *out = call->out[0], *from = *t;
    transposition plan;
    s->used = from->numel >= WORTH_STRAIGHTENING && lg_strides_are_dense(&out->shape, out->stride) &&
              lg_shape_equal(&from->shape, &out->shape) && find_transposition(&plan, out, from);
    if (!s->used) return LUGE_OK;
    void *memory = lg_scratch_open(&s->scratch, call->device, from->numel * (int64_t)lg_element_size(from));
    if (memory == NULL) return lg_error();
    s->storage = (lg_storage){.device = call->device, .data = memory};
    s->tensor = (luge_tensor){.dtype = from->dtype, .storage = &s->storage, .numel = from->numel, .shape = from->shape};
    memcpy(s->tensor.stride, out->stride, sizeof out->stride);
    transpose(&plan, &s->tensor, from);
    *t = &s->tensor;
    return LUGE_OK;
}

void lg_straight_close(lg_straight *s)
{
    if (s->used) lg_scratch_close(&s->scratch);
}

/* ---- copy and cast */

typedef struct copy_work {
    lg_convert_fn convert; /* NULL: bytes are copied */
    size_t size;
} copy_work;

static void copy_piece(int64_t n, void *const at[], const void *data)
{
    const copy_work *w = data;
    if (w->convert != NULL) {
        w->convert(n, at[0], at[1]);
    } else if (at[0] != at[1]) {
        memcpy(at[0], at[1], (size_t)n * w->size);
    }
}

/* `from` broadcasts to `to` and is converted to its dtype. */
static void copy_tensor(luge_tensor *to, luge_tensor *from)
{
    if (to->numel == 0) return;
    bool same = to->dtype == from->dtype;
    transposition plan;
    if (same && find_transposition(&plan, to, from)) {
        transpose(&plan, to, from);
        return;
    }
    copy_work w = {same ? NULL : LG_ISA_PICK(lg_converts)->to_from[to->dtype][from->dtype], lg_element_size(to)};
    lg_each_piece(2, (luge_tensor *[]){to, from}, 0, GRAIN, copy_piece, &w);
}

luge_tensor *lg_copy_of(const lg_call *call, luge_tensor *t, luge_dtype dtype, const int64_t *stride)
{
    luge_tensor *copy = lg_tensor_create(call->device, dtype, &t->shape, stride);
    if (copy != NULL) copy_tensor(copy, t);
    return copy;
}

int lg_cpu_cast(const lg_call *call)
{
    copy_tensor(call->out[0], call->in[0]);
    return LUGE_OK;
}

int lg_cpu_copy(const lg_call *call)
{
    copy_tensor(call->out[0], call->in[call->n_in - 1]);
    return LUGE_OK;
}

/* ---- fill */

typedef struct fill_work {
    _Alignas(8) char element[8];
    size_t size;
} fill_work;

static void fill_piece(int64_t n, void *const at[], const void *data)
{
    const fill_work *w = data;
    lg_fill_run(at[0], w->element, n, w->size);
}

static void fill_tensor(luge_tensor *t, double value)
{
    if (t->numel == 0) return;
    fill_work w = {.size = lg_element_size(t)};
    lg_store_f64(w.element, t->dtype, value);
    lg_each_piece(1, &t, 0, GRAIN, fill_piece, &w);
}

int lg_cpu_fill(const lg_call *call)
{
    fill_tensor(call->out[0], ((const lg_number_attrs *)call->attrs)->p);
    return LUGE_OK;
}

/* ---- parts of a tensor, in kernels only: handles on the stack that own nothing */

static void set_part(luge_tensor *part, const luge_tensor *t)
{
    *part = (luge_tensor){.dtype = t->dtype, .storage = t->storage, .offset = t->offset, .numel = t->numel, .shape = t->shape};
    memcpy(part->stride, t->stride, sizeof part->stride);
}

static void narrow(luge_tensor *part, int axis, int64_t from, int64_t size)
{
    part->offset += from * part->stride[axis];
    part->shape.dim[axis] = size;
    part->numel = lg_shape_numel(&part->shape);
}

/* Fills what lies before and after `size` elements along an axis, and narrows the part to them. */
static void fill_around(luge_tensor *part, int axis, int64_t before, int64_t size, double value)
{
    luge_tensor edge;
    set_part(&edge, part);
    narrow(&edge, axis, 0, before);
    fill_tensor(&edge, value);
    set_part(&edge, part);
    narrow(&edge, axis, before + size, part->shape.dim[axis] - before - size);
    fill_tensor(&edge, value);
    narrow(part, axis, before, size);
}

int lg_cpu_cat(const lg_call *call)
{
    int axis = ((const lg_axis_attrs *)call->attrs)->axis;
    int64_t at = 0;
    for (int k = 0; k < call->n_in; ++k) {
        luge_tensor part;
        set_part(&part, call->out[0]);
        narrow(&part, axis, at, call->in[k]->shape.dim[axis]);
        copy_tensor(&part, call->in[k]);
        at += call->in[k]->shape.dim[axis];
    }
    return LUGE_OK;
}

int lg_cpu_pad(const lg_call *call)
{
    const lg_pad_attrs *a = call->attrs;
    luge_tensor inner;
    set_part(&inner, call->out[0]);
    for (int axis = 0; axis < inner.shape.rank; ++axis)
        fill_around(&inner, axis, a->before.dim[axis], call->in[0]->shape.dim[axis], a->value);
    copy_tensor(&inner, call->in[0]);
    return LUGE_OK;
}

int lg_cpu_slice_backward(const lg_call *call)
{
    const lg_slice_attrs *a = call->attrs;
    luge_tensor inner;
    set_part(&inner, call->out[0]);
    fill_around(&inner, a->axis, a->from, a->to - a->from, 0);
    copy_tensor(&inner, call->in[0]);
    return LUGE_OK;
}
