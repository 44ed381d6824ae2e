/** @file base.h
 *  What every other header needs: export macros, the tail of option structs, the small value types.
 *  C11 and C++17. */
#ifndef LUGE_BASE_H
#define LUGE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <initializer_list>
#define LUGE_BEGIN_C extern "C" {
#define LUGE_END_C }
#else
#define LUGE_BEGIN_C
#define LUGE_END_C
#endif

#if defined(__GNUC__)
#define LUGE_API __attribute__((visibility("default")))
#define LUGE_MUST_CHECK __attribute__((warn_unused_result))
#define LUGE_PRINTF_LIKE(text, args) __attribute__((format(printf, text, args)))
#else
#define LUGE_API
#define LUGE_MUST_CHECK
#define LUGE_PRINTF_LIKE(text, args)
#endif

/** The tail of every struct that a user fills or declares: new fields take a word from it, so its
 *  size never changes. Zero is "default", for these words too; any other value is refused. */
#define LUGE_RESERVED(words) uint64_t reserved[words]

/** An options variable with every default: `luge_sgd_options sgd = LUGE_DEFAULTS;`
 *  In C a literal does as well: `&(luge_sgd_options){.momentum = 0.9}`. */
#ifdef __cplusplus
#define LUGE_DEFAULTS {}
#else
#define LUGE_DEFAULTS {0}
#endif

LUGE_BEGIN_C

typedef struct luge_tensor luge_tensor;       /**< A strided view of a storage; reference counted. */
typedef struct luge_module luge_module;       /**< A layer or a net of layers: parameters and a forward function. */
typedef struct luge_optim luge_optim;         /**< An optimizer and its state. */
typedef struct luge_sched luge_sched;         /**< A learning rate schedule. */
typedef struct luge_scaler luge_scaler;       /**< A dynamic scale of losses. */
typedef struct luge_accum luge_accum;         /**< A window of gradient accumulation. */
typedef struct luge_dataset luge_dataset;     /**< Samples by index. */
typedef struct luge_transform luge_transform; /**< What is done to a sample on its way into a batch. */
typedef struct luge_loader luge_loader;       /**< Batches of a dataset. */
typedef struct luge_sample luge_sample;       /**< One sample while its dataset fills it. */
typedef struct luge_rng luge_rng;             /**< A stream of random numbers of one sample. */
typedef struct luge_meter luge_meter;         /**< A running mean. */
typedef struct luge_profile luge_profile;     /**< What a thread has done, and when. */

/** The type of a tensor's elements. */
typedef enum luge_dtype {
    LUGE_F32,  /**< 32-bit float, the default. */
    LUGE_F64,  /**< 64-bit float. */
    LUGE_F16,  /**< IEEE half precision. */
    LUGE_BF16, /**< bfloat16: the upper half of an f32. */
    LUGE_I64,  /**< 64-bit signed integer; indices and labels. */
    LUGE_I32,  /**< 32-bit signed integer. */
    LUGE_U8,   /**< 8-bit unsigned integer. */
    LUGE_BOOL  /**< One byte, 0 or 1. */
} luge_dtype;

enum {
    LUGE_MAX_RANK = 8 /**< The most axes a tensor may have. */
};

/** The sizes of a tensor's axes. Made by LUGE_SHAPE; `{0}` is a scalar. The layout is final. */
typedef struct luge_shape {
    int rank;                   /**< Number of axes, 0 to LUGE_MAX_RANK. */
    int64_t dim[LUGE_MAX_RANK]; /**< Their sizes; those past `rank` are 0. */
} luge_shape;

/** A choice of axes. Made by LUGE_AXES, LUGE_AXES_KEEPDIM or LUGE_ALL_AXES. Negative axes count
 *  from the end. The layout is final. */
typedef struct luge_axes {
    int count;               /**< Number of axes; 0 means all of them. */
    int keepdim;             /**< 1: reduced axes stay with size 1. */
    int axis[LUGE_MAX_RANK]; /**< Which. */
} luge_axes;

/** Several tensors. Made by LUGE_LIST. The layout is final. */
typedef struct luge_list {
    luge_tensor *const *items; /**< The tensors, in order. */
    int count;                 /**< How many. */
} luge_list;

/** Where a tensor lives. `{0}` is the default device. The layout is final. */
typedef struct luge_device {
    int kind;  /**< 0 default, 1 CPU, 2 CUDA. */
    int index; /**< Which of that kind. */
} luge_device;

/** Names an open scope or mode. The layout is final. */
typedef struct luge_scope {
    uint64_t id; /**< Never reused within a thread. */
} luge_scope;

LUGE_END_C

/* Values and lists, written in place. Lists are array literals (C) and braced lists (C++), never
 * variable arguments: elements are typed, a NULL among them is no end mark, and they are evaluated
 * in the order written. */

/** All axes of a tensor. */
#define LUGE_ALL_AXES luge_axes_all_()

#ifndef __cplusplus

#define LUGE_COUNT_(type, ...) ((int)(sizeof((type[]){__VA_ARGS__}) / sizeof(type)))
/** A luge_shape: `LUGE_SHAPE(n, 3, 32, 32)`. */
#define LUGE_SHAPE(...) ((luge_shape){.rank = LUGE_COUNT_(int64_t, __VA_ARGS__), .dim = {__VA_ARGS__}})
/** The shape of a single number. */
#define LUGE_SCALAR ((luge_shape){0})
/** A luge_axes: `LUGE_AXES(0, 2)`; the reduced axes disappear. */
#define LUGE_AXES(...) ((luge_axes){.count = LUGE_COUNT_(int, __VA_ARGS__), .axis = {__VA_ARGS__}})
/** A luge_axes whose reduced axes stay with size 1. */
#define LUGE_AXES_KEEPDIM(...) ((luge_axes){.count = LUGE_COUNT_(int, __VA_ARGS__), .keepdim = 1, .axis = {__VA_ARGS__}})
/** A luge_list: `LUGE_LIST(a, b)`. */
#define LUGE_LIST(...) ((luge_list){(luge_tensor *[]){__VA_ARGS__}, LUGE_COUNT_(luge_tensor *, __VA_ARGS__)})

static inline luge_axes luge_axes_all_(void)
{
    return (luge_axes){0};
}

#else

inline luge_shape luge_shape_(std::initializer_list<int64_t> dims)
{
    luge_shape s = {};
    for (int64_t d : dims)
        if (s.rank++ < LUGE_MAX_RANK) s.dim[s.rank - 1] = d;
    return s;
}
inline luge_axes luge_axes_(int keepdim, std::initializer_list<int> axes)
{
    luge_axes a = {};
    a.keepdim = keepdim;
    for (int x : axes)
        if (a.count++ < LUGE_MAX_RANK) a.axis[a.count - 1] = x;
    return a;
}
inline luge_axes luge_axes_all_()
{
    return luge_axes{};
}
template <int n> struct luge_list_ {
    luge_tensor *items[n];
    operator luge_list() const { return luge_list{items, n}; }
};
template <class... T> luge_list_(T...) -> luge_list_<int(sizeof...(T))>;

#define LUGE_SHAPE(...) luge_shape_({__VA_ARGS__})
#define LUGE_SCALAR luge_shape{}
#define LUGE_AXES(...) luge_axes_(0, {__VA_ARGS__})
#define LUGE_AXES_KEEPDIM(...) luge_axes_(1, {__VA_ARGS__})
#define LUGE_LIST(...) luge_list(luge_list_{__VA_ARGS__})

#endif

#endif
