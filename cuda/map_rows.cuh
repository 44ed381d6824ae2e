/* The elementwise kernels of one type that computes, from the rows of elementwise.def and the formulas of
 * sign, where and lerp. Included by cuda_elementwise_<type>.cu with what ops/scalar_ops.h needs. Makes
 *   template <class T> cudaError_t LG_OF_REAL(lg_map)(const lg_map_work *w, cudaStream_t stream)
 * for stored types T that compute as `real`. */
#include "ops/scalar_ops.h"

#ifdef LG_WHOLE
#define ROW_FLOAT(...)
#define NUMBERS w->whole_p, w->whole_q
#else
#define ROW_FLOAT(...) __VA_ARGS__
#define NUMBERS static_cast<real>(w->p), static_cast<real>(w->q)
#endif
#define ROW_NUMBER(...) __VA_ARGS__
#define ROW_ANY(...) __VA_ARGS__

/* Backward kernels are for floats. */
#define ROW_SAVED_NONE(...)
#define ROW_SAVED_IN ROW_FLOAT
#define ROW_SAVED_OUT ROW_FLOAT
#define ROW_SAVED_B_A ROW_FLOAT
#define ROW_SAVED_B_AB ROW_FLOAT
#define ROW_SAVED_AB_AB ROW_FLOAT
#define SAVED_IN x
#define SAVED_OUT y

/* ---- formulas, in the names that they use for their inputs */

#define MAP(name, result, formula, ...)                                       \
    struct LG_OF_REAL(name) {                                                 \
        template <class number> static __device__ __forceinline__ result of(__VA_ARGS__, number p, number q) \
        {                                                                     \
            (void)p, (void)q;                                                 \
            return static_cast<result>(formula);                              \
        }                                                                     \
    };
#define MAP_1(name, v0, formula) MAP(name, real, formula, [[maybe_unused]] real v0)
#define MAP_2(name, v0, v1, formula) MAP(name, real, formula, [[maybe_unused]] real v0, [[maybe_unused]] real v1)
#define MAP_3(name, t0, v0, v1, v2, formula) \
    MAP(name, real, formula, [[maybe_unused]] t0 v0, [[maybe_unused]] real v1, [[maybe_unused]] real v2)

#define LUGE_UNARY(name, kinds, save, cast, forward, backward, ...) \
    ROW_##kinds(MAP_1(map_##name, x, forward)) ROW_SAVED_##save(MAP_2(map_##name##_backward, g, SAVED_##save, backward))
#define LUGE_UNARY1 LUGE_UNARY
#define LUGE_UNARY2 LUGE_UNARY
#define LUGE_BINARY(name, kinds, save, cast, forward, grad_a, grad_b, ...) \
    ROW_##kinds(MAP_2(map_##name, a, b, forward))                          \
    ROW_SAVED_##save(MAP_3(map_##name##_backward_a, real, g, a, b, grad_a) MAP_3(map_##name##_backward_b, real, g, a, b, grad_b))
#define LUGE_COMPARE(name, forward) MAP(map_##name, unsigned char, forward, real a, real b)
#include "../include/luge/elementwise.def"
#undef LUGE_UNARY
#undef LUGE_UNARY1
#undef LUGE_UNARY2
#undef LUGE_BINARY
#undef LUGE_COMPARE
MAP_1(map_sign, x, SIGN(x))
MAP_3(map_where, unsigned char, condition, a, b, condition != 0 ? a : b)
ROW_FLOAT(MAP_3(map_lerp, real, a, b, w, LERP(a, b, w)))
ROW_FLOAT(MAP_2(map_lerp_scalar, a, b, LERP(a, b, p)))

/* ---- launches */

#define LAUNCH(kernel) return LG_LAUNCH(kernel, lg_map_grid(w), lg_map_block(w), 0, stream, *w, NUMBERS)
#define CASE_1(name) \
    case LG_OP_##name: LAUNCH((lg_map_1<LG_OF_REAL(map_##name), T, T, P>));
#define CASE_2(name) \
    case LG_OP_##name: LAUNCH((lg_map_2<LG_OF_REAL(map_##name), T, T, P>));
#define CASE_3(name, A) \
    case LG_OP_##name: LAUNCH((lg_map_3<LG_OF_REAL(map_##name), A, T, P>));

template <class T> static cudaError_t LG_OF_REAL(lg_map)(const lg_map_work *w, cudaStream_t stream)
{
#ifdef LG_WHOLE
    using P = int64_t;
#else
    using P = real;
#endif
    switch (w->op) {
#define LUGE_UNARY(name, kinds, save, ...) ROW_##kinds(CASE_1(name)) ROW_SAVED_##save(CASE_2(name##_backward))
#define LUGE_UNARY1 LUGE_UNARY
#define LUGE_UNARY2 LUGE_UNARY
#define LUGE_BINARY(name, kinds, save, ...) \
    ROW_##kinds(CASE_2(name)) ROW_SAVED_##save(CASE_3(name##_backward_a, T) CASE_3(name##_backward_b, T))
#define LUGE_COMPARE(name, ...) \
    case LG_OP_##name: LAUNCH((lg_map_2<LG_OF_REAL(map_##name), T, lg_bool, P>));
#include "../include/luge/elementwise.def"
#undef LUGE_UNARY
#undef LUGE_UNARY1
#undef LUGE_UNARY2
#undef LUGE_BINARY
#undef LUGE_COMPARE
    CASE_1(sign)
    CASE_3(where, lg_bool)
    ROW_FLOAT(CASE_3(lerp, T) CASE_2(lerp_scalar))
    default: return cudaErrorNotSupported;
    }
}

#undef LAUNCH
#undef CASE_1
#undef CASE_2
#undef CASE_3
#undef MAP
#undef MAP_1
#undef MAP_2
#undef MAP_3
#undef ROW_FLOAT
#undef ROW_NUMBER
#undef ROW_ANY
#undef ROW_SAVED_NONE
#undef ROW_SAVED_IN
#undef ROW_SAVED_OUT
#undef ROW_SAVED_B_A
#undef ROW_SAVED_B_AB
#undef ROW_SAVED_AB_AB
#undef SAVED_IN
#undef SAVED_OUT
#undef NUMBERS
