/* The elementwise kernels of one lane, made from the rows of elementwise.def and from the formulas of
 * sign, where and lerp. Included by map_<lane>.c with what ops/scalar_ops.h needs and
 *   LG_TABLE        the table to define
 *   LG_STORE(v)     v as a result (only for bool not (real)v)
 *   LG_OWN_ROW      if it has loops of its own for some ops: a function of op, n, out, in and p that is
 *                   true where it has done the work */
#include "cpu/simd/simd.h"
#include "ops/scalar_ops.h"

#ifdef LG_WHOLE
#define ROW_FLOAT(...)
typedef int64_t number;
#define NUMBER(v) lg_f64_to_i64(v, INT64_MIN, INT64_MAX)
#else
#define ROW_FLOAT(...) __VA_ARGS__
typedef real number;
#define NUMBER(v) ((real)(v))
#endif
#define ROW_NUMBER(...) __VA_ARGS__
#define ROW_ANY(...) __VA_ARGS__

/* Backward kernels are for floats. */
#ifdef LG_WHOLE
#define SAVED(...)
#else
#define SAVED(...) __VA_ARGS__
#endif
#define ROW_SAVED_NONE(...)
#define ROW_SAVED_IN(...) SAVED(__VA_ARGS__)
#define ROW_SAVED_OUT(...) SAVED(__VA_ARGS__)
#define ROW_SAVED_B_A(...) SAVED(__VA_ARGS__)
#define ROW_SAVED_B_AB(...) SAVED(__VA_ARGS__)
#define ROW_SAVED_AB_AB(...) SAVED(__VA_ARGS__)
#define SAVED_IN x
#define SAVED_OUT y

#ifdef LG_OWN_ROW
#define OWN_ROW(name) if (LG_OWN_ROW(LG_OP_##name, n, out, in, number_p)) return
#else
#define OWN_ROW(name)
#endif

/* ---- loops: `formula` in the names given for the inputs. Unused inputs are not even loaded. */

#define MAP_BEGIN(name, result)                                                                            \
    static void map_##name(int64_t n, void *out, const void *const *in, double number_p, double number_q) \
    {                                                                                                      \
        OWN_ROW(name);                                                                                     \
        result *to = out;                                                                                  \
        const number p = NUMBER(number_p), q = NUMBER(number_q);                                           \
        (void)p, (void)q;
#define MAP_1(name, result, store, t0, v0, formula)            \
    MAP_BEGIN(name, result)                                    \
    const t0 *from0 = in[0];                                   \
    LG_VECTOR_LOOP                                             \
    for (int64_t i = 0; i < n; ++i) {                          \
        const t0 v0 = from0[i];                                \
        to[i] = store(formula);                                \
    }                                                          \
    }
#define MAP_2(name, result, store, t0, v0, t1, v1, formula)    \
    MAP_BEGIN(name, result)                                    \
    const t0 *from0 = in[0];                                   \
    const t1 *from1 = in[1];                                   \
    LG_VECTOR_LOOP                                             \
    for (int64_t i = 0; i < n; ++i) {                          \
        const t0 v0 = from0[i];                                \
        const t1 v1 = from1[i];                                \
        (void)v0, (void)v1;                                    \
        to[i] = store(formula);                                \
    }                                                          \
    }
#define MAP_3(name, t0, v0, v1, v2, formula)                   \
    MAP_BEGIN(name, real)                                      \
    const t0 *from0 = in[0];                                   \
    const real *from1 = in[1], *from2 = in[2];                 \
    LG_VECTOR_LOOP                                             \
    for (int64_t i = 0; i < n; ++i) {                          \
        const t0 v0 = from0[i];                                \
        const real v1 = from1[i], v2 = from2[i];               \
        (void)v0, (void)v1, (void)v2;                          \
        to[i] = LG_STORE(formula);                             \
    }                                                          \
    }
#define AS_BOOL(v) ((uint8_t)((v) != 0))

#define LUGE_UNARY(name, kinds, save, cast, forward, backward, ...) \
    ROW_##kinds(MAP_1(name, real, LG_STORE, real, x, forward))      \
    ROW_SAVED_##save(MAP_2(name##_backward, real, LG_STORE, real, g, real, SAVED_##save, backward))
#define LUGE_UNARY1 LUGE_UNARY
#define LUGE_UNARY2 LUGE_UNARY
#define LUGE_BINARY(name, kinds, save, cast, forward, grad_a, grad_b, ...)      \
    ROW_##kinds(MAP_2(name, real, LG_STORE, real, a, real, b, forward))         \
    ROW_SAVED_##save(MAP_3(name##_backward_a, real, g, a, b, grad_a) MAP_3(name##_backward_b, real, g, a, b, grad_b))
#define LUGE_COMPARE(name, forward) MAP_2(name, uint8_t, AS_BOOL, real, a, real, b, forward)
#include <luge/elementwise.def>
#undef LUGE_UNARY
#undef LUGE_UNARY1
#undef LUGE_UNARY2
#undef LUGE_BINARY
#undef LUGE_COMPARE

MAP_1(sign, real, LG_STORE, real, x, SIGN(x))
MAP_3(where, uint8_t, condition, a, b, condition != 0 ? a : b)
ROW_FLOAT(MAP_3(lerp, real, a, b, w, LERP(a, b, w)))
ROW_FLOAT(MAP_2(lerp_scalar, real, LG_STORE, real, a, real, b, LERP(a, b, p)))

/* ---- the table */

#define ENTRY(name) [LG_OP_##name] = map_##name,
const lg_map_table LG_ISA_NAME(LG_TABLE) = {{
#define LUGE_UNARY(name, kinds, save, ...) ROW_##kinds(ENTRY(name)) ROW_SAVED_##save(ENTRY(name##_backward))
#define LUGE_UNARY1 LUGE_UNARY
#define LUGE_UNARY2 LUGE_UNARY
#define LUGE_BINARY(name, kinds, save, ...) \
    ROW_##kinds(ENTRY(name)) ROW_SAVED_##save(ENTRY(name##_backward_a) ENTRY(name##_backward_b))
#define LUGE_COMPARE(name, ...) ENTRY(name)
#include <luge/elementwise.def>
    ENTRY(sign) ENTRY(where) ROW_FLOAT(ENTRY(lerp) ENTRY(lerp_scalar))
}};
