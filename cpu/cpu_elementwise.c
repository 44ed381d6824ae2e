/* Elementwise ops: every row of elementwise.def, sign, where and lerp. The formulas are compiled in
 * cpu/simd/map_*.c for dense arrays; here tensors of any strides and dtypes are cut into pieces for
 * them, and the pieces shared among threads. */
#include <string.h>
#include "core/pool.h"
#include "cpu/cpu.h"
#include "cpu/simd/simd.h"
#include "cpu/strided.h"
#include "ops/attrs.h"

enum {
    MAX_OPERANDS = 4, /* the output and three inputs */
    BLOCK = 512,      /* elements that go through buffers at a time: those of all operands stay in L1 */
    LONG_ROW = 128    /* rows at least this long are worked on one by one */
};

/* How the pieces of an operand come to the kernel. */
typedef enum access {
    DENSE,  /* they lie in the order of the iteration */
    SCALAR, /* one element, repeated in a buffer */
    ROWS    /* row by row, through a buffer unless a long row has stride 1 */
} access;

typedef struct operand {
    char *base;
    size_t size;
    access access;
    lg_convert_fn to_lane, from_lane; /* of halves; NULL for the lane's own dtype */
} operand;

typedef struct map_work {
    lg_iter it;
    lg_map map;
    double p, q;
    operand operand[MAX_OPERANDS]; /* the output first */
    bool long_rows;
    int64_t longest; /* piece */
    int64_t slices;
} map_work;

/* A slice's buffers: elements as they are in the tensors, and as the lane takes them. */
typedef struct buffers {
    _Alignas(64) char raw[MAX_OPERANDS][BLOCK * sizeof(double)];
    _Alignas(64) float converted[MAX_OPERANDS][BLOCK];
} buffers;

/* ---- pieces */

/* Moves the rows of a piece of m elements between operand k and its buffer. */
static void move_rows(const map_work *w, const lg_cursor *at, int64_t m, int k, char *buffer)
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

/* Whether operand k's part of a piece has to be gathered or scattered. */
static bool needs_rows(const map_work *w, int k)
{
    return w->operand[k].access == ROWS && !(w->long_rows && w->it.stride[k][0] == 1);
}

/* The raw elements of operand k for the piece of m elements that begins at element i. */
static char *find_piece(const map_work *w, const lg_cursor *at, int64_t i, int k, buffers *b)
{
    const operand *o = &w->operand[k];
    if (o->access == DENSE) return o->base + i * (int64_t)o->size;
    if (o->access == SCALAR || needs_rows(w, k)) return b->raw[k];
    return o->base + at->offset[k] * (int64_t)o->size;
}

static void run_piece(const map_work *w, const lg_cursor *at, int64_t i, int64_t m, buffers *b)
{
    const void *in[MAX_OPERANDS];
    for (int k = 1; k < w->it.n; ++k) {
        const operand *o = &w->operand[k];
        char *raw = find_piece(w, at, i, k, b);
        if (needs_rows(w, k)) move_rows(w, at, m, k, raw);
        if (o->to_lane != NULL && o->access != SCALAR) o->to_lane(m, b->converted[k], raw);
        in[k - 1] = o->to_lane != NULL ? (const void *)b->converted[k] : raw;
    }
    char *raw = find_piece(w, at, i, 0, b);
    const operand *to = &w->operand[0];
    if (to->from_lane == NULL) {
        w->map(m, raw, in, w->p, w->q);
    } else {
        w->map(m, b->converted[0], in, w->p, w->q);
        to->from_lane(m, raw, b->converted[0]);
    }
    if (needs_rows(w, 0)) move_rows(w, at, m, 0, raw);
}

static void fill_scalars(const map_work *w, buffers *b)
{
    for (int k = 1; k < w->it.n; ++k) {
        const operand *o = &w->operand[k];
        if (o->access != SCALAR) continue;
        lg_fill_run(b->raw[k], o->base, BLOCK, o->size);
        if (o->to_lane != NULL) o->to_lane(BLOCK, b->converted[k], b->raw[k]);
    }
}

static void run_slice(int64_t slice, void *data)
{
    const map_work *w = data;
    int64_t i = lg_slice_begin(w->it.numel, w->slices, slice), end = lg_slice_begin(w->it.numel, w->slices, slice + 1);
    buffers b;
    fill_scalars(w, &b);
    lg_cursor at;
    lg_cursor_set(&at, &w->it, i);
    while (i < end) {
        int64_t m = end - i < w->longest ? end - i : w->longest;
        if (w->long_rows && m > w->it.size[0] - at.index[0]) m = w->it.size[0] - at.index[0];
        run_piece(w, &at, i, m, &b);
        i += m;
        if (w->it.rank > 1 && i < end) {
            /* A piece may span rows; the cursor moves within one. */
            if (w->long_rows) {
                lg_cursor_move(&at, &w->it, m);
            } else {
                lg_cursor_set(&at, &w->it, i);
            }
        }
    }
}

/* ---- setting up */

static access access_of(const lg_iter *it, int k)
{
    bool dense = true, scalar = k > 0;
    int64_t expected = 1;
    for (int axis = 0; axis < it->rank; ++axis) {
        dense = dense && it->stride[k][axis] == expected;
        scalar = scalar && it->stride[k][axis] == 0;
        expected *= it->size[axis];
    }
    return dense ? DENSE : scalar ? SCALAR : ROWS;
}

static void describe(map_work *w, int k, const luge_tensor *t, const lg_convert_table *convert)
{
    operand *o = &w->operand[k];
    o->base = lg_data(t);
    o->size = lg_element_size(t);
    o->access = access_of(&w->it, k);
    bool half = lg_is_half(t->dtype);
    o->to_lane = half ? convert->to_from[LUGE_F32][t->dtype] : NULL;
    o->from_lane = half ? convert->to_from[t->dtype][LUGE_F32] : NULL;
    if (half || o->access == SCALAR || needs_rows(w, k)) w->longest = BLOCK;
}

static const lg_map_table *table_of(lg_lane lane)
{
    switch (lane) {
    case LG_LANE_F32: return LG_ISA_PICK(lg_map_f32);
    case LG_LANE_F64: return LG_ISA_PICK(lg_map_f64);
    case LG_LANE_I64: return LG_ISA_PICK(lg_map_i64);
    case LG_LANE_I32: return LG_ISA_PICK(lg_map_i32);
    case LG_LANE_U8: return LG_ISA_PICK(lg_map_u8);
    default: return LG_ISA_PICK(lg_map_bool);
    }
}

/* The last input has the dtype that computes; only a condition before it may have another. */
static bool same_lane(const lg_call *call, lg_op_id id, lg_lane lane)
{
    for (int k = id == LG_OP_where ? 1 : 0; k < call->n_in; ++k)
        if (lg_lane_of(call->in[k]->dtype) != lane) return false;
    return true;
}

/* Elements that a slice is worth: less where the C library computes them one by one. */
static int64_t grain_of(lg_lane lane) { return lane == LG_LANE_F64 ? 4096 : 32768; }

static int map(const lg_call *call, lg_op_id id)
{
    lg_lane lane = lg_lane_of(call->in[call->n_in - 1]->dtype);
    map_work w;
    w.map = table_of(lane)->op[id];
    if (w.map == NULL || !same_lane(call, id, lane)) return LG_DECLINED;

    luge_tensor *tensor[MAX_OPERANDS] = {call->out[0]};
    for (int k = 0; k < call->n_in; ++k) tensor[k + 1] = call->in[k];
    lg_iter_init(&w.it, &call->out[0]->shape, call->n_in + 1, tensor);

    bool numbers = call->attrs_size == sizeof(lg_number_attrs);
    w.p = numbers ? ((const lg_number_attrs *)call->attrs)->p : 0;
    w.q = numbers ? ((const lg_number_attrs *)call->attrs)->q : 0;
    w.long_rows = w.it.rank > 1 && w.it.size[0] >= LONG_ROW;
    w.longest = w.it.rank > 1 && !w.long_rows ? BLOCK : INT64_MAX;
    for (int k = 0; k < w.it.n; ++k) describe(&w, k, tensor[k], LG_ISA_PICK(lg_converts));
    w.slices = lg_slices(w.it.numel, grain_of(lane));
    lg_parallel(w.slices, run_slice, &w);
    return LUGE_OK;
}

/* ---- the kernels */

#define KERNEL(name) \
    int lg_cpu_##name(const lg_call *call) { return map(call, LG_OP_##name); }
#define IF_SAVED_NONE(...)
#define IF_SAVED_IN(...) __VA_ARGS__
#define IF_SAVED_OUT(...) __VA_ARGS__
#define IF_SAVED_B_A(...) __VA_ARGS__
#define IF_SAVED_B_AB(...) __VA_ARGS__
#define IF_SAVED_AB_AB(...) __VA_ARGS__
#define LUGE_UNARY(name, kinds, save, ...) KERNEL(name) IF_SAVED_##save(KERNEL(name##_backward))
#define LUGE_UNARY1 LUGE_UNARY
#define LUGE_UNARY2 LUGE_UNARY
#define LUGE_BINARY(name, kinds, save, ...) \
    KERNEL(name) IF_SAVED_##save(KERNEL(name##_backward_a) KERNEL(name##_backward_b))
#define LUGE_COMPARE(name, ...) KERNEL(name)
#include <luge/elementwise.def>
KERNEL(sign)
KERNEL(where)
KERNEL(lerp)
KERNEL(lerp_scalar)
