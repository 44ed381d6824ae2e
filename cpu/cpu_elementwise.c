/* Elementwise ops: every row of elementwise.def, sign, where and lerp. The formulas are compiled in
 * cpu/simd/map_*.c for dense arrays of the type that computes; here tensors are cut into pieces for
 * them, and halves converted on the way. */
#include "cpu/cpu.h"
#include "cpu/cpu_copy.h"
#include "cpu/simd/simd.h"
#include "cpu/strided.h"
#include "ops/attrs.h"

typedef struct map_work {
    lg_map map;
    double p, q;
    int n_in;
    lg_convert_fn to_f32[LG_PIECES_MAX - 1], from_f32; /* NULL for what is no half */
} map_work;

static void map_piece(int64_t n, void *const at[], const void *data)
{
    const map_work *w = data;
    w->map(n, at[0], (const void *const *)(at + 1), w->p, w->q);
}

/* With halves among inputs or result; n <= LG_BLOCK. */
static void map_halves(int64_t n, void *const at[], const void *data)
{
    const map_work *w = data;
    _Alignas(64) float converted[LG_PIECES_MAX][LG_BLOCK];
    const void *in[LG_PIECES_MAX - 1];
    for (int k = 0; k < w->n_in; ++k) {
        in[k] = at[k + 1];
        if (w->to_f32[k] == NULL) continue;
        w->to_f32[k](n, converted[k + 1], at[k + 1]);
        in[k] = converted[k + 1];
    }
    w->map(n, w->from_f32 != NULL ? converted[0] : at[0], in, w->p, w->q);
    if (w->from_f32 != NULL) w->from_f32(n, at[0], converted[0]);
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

/* Walks the tensors, the output first, together. */
static luge_status walk(const lg_call *call, luge_tensor **tensor, bool halves, int64_t grain, const map_work *w)
{
    lg_straight straight[LG_PIECES_MAX - 1];
    luge_status status = LUGE_OK;
    int n = 0;
    for (; n < call->n_in && status == LUGE_OK; ++n) status = lg_straighten(&straight[n], call, &tensor[n + 1]);
    if (status != LUGE_OK) --n; /* nothing to close of the last */
    if (status == LUGE_OK)
        lg_each_piece(call->n_in + 1, tensor, halves ? LG_BLOCK : 0, grain, halves ? map_halves : map_piece, w);
    for (int k = 0; k < n; ++k) lg_straight_close(&straight[k]);
    return status;
}

/* Elements worth a thread: fewer where the C library computes them one by one. */
static int64_t grain_of(lg_lane lane) { return lane == LG_LANE_F64 ? 4096 : 32768; }

static int map(const lg_call *call, lg_op_id id)
{
    lg_lane lane = lg_lane_of(call->in[call->n_in - 1]->dtype);
    map_work w = {.map = table_of(lane)->op[id], .n_in = call->n_in};
    if (w.map == NULL || !same_lane(call, id, lane)) return LG_DECLINED;
    if (call->attrs_size == sizeof(lg_number_attrs)) {
        w.p = ((const lg_number_attrs *)call->attrs)->p;
        w.q = ((const lg_number_attrs *)call->attrs)->q;
    }

    const lg_convert_table *convert = LG_ISA_PICK(lg_converts);
    luge_tensor *tensor[LG_PIECES_MAX] = {call->out[0]};
    bool halves = lg_is_half(call->out[0]->dtype);
    if (halves) w.from_f32 = convert->to_from[call->out[0]->dtype][LUGE_F32];
    for (int k = 0; k < call->n_in; ++k) {
        luge_dtype dtype = call->in[k]->dtype;
        tensor[k + 1] = call->in[k];
        if (!lg_is_half(dtype)) continue;
        w.to_f32[k] = convert->to_from[LUGE_F32][dtype];
        halves = true;
    }
    return (int)walk(call, tensor, halves, grain_of(lane), &w);
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
