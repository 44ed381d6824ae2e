/** @file tensor.h
 *  Making, reading and moving tensors. Shapes are written [N, C, H, W]. */
#ifndef LUGE_TENSOR_H
#define LUGE_TENSOR_H

#include <luge/base.h>
#include <luge/status.h>

LUGE_BEGIN_C

/** How a new tensor is made. */
typedef struct luge_tensor_options {
    luge_dtype dtype;    /**< LUGE_F32. PyTorch: dtype. */
    luge_device device;  /**< The default device. PyTorch: device. */
    bool requires_grad;  /**< Collect gradients in it. Floats only. PyTorch: requires_grad. */
    bool pinned;         /**< Host memory that a GPU copies from while the host goes on; without a GPU, ordinary memory. `device` must be unset or the CPU. PyTorch: pin_memory. */
    LUGE_RESERVED(4);    /**< Zero. */
} luge_tensor_options;

/** "No tensor here", for arguments that may be absent. Never released, needs no scope. */
LUGE_API luge_tensor *luge_none(void);
/** "No tensor here". */
#define LUGE_NONE luge_none()
/** Whether `t` is LUGE_NONE. */
LUGE_API bool luge_is_none(const luge_tensor *t);

/* ---- making */

/** Uninitialised. */
LUGE_API luge_tensor *luge_empty(luge_shape shape, const luge_tensor_options *options);
/** All zero. */
LUGE_API luge_tensor *luge_zeros(luge_shape shape, const luge_tensor_options *options);
/** All one. */
LUGE_API luge_tensor *luge_ones(luge_shape shape, const luge_tensor_options *options);
/** All `value`, rounded to the dtype. */
LUGE_API luge_tensor *luge_full(luge_shape shape, double value, const luge_tensor_options *options);
/** start, start + step, ... below `end` (above it for a negative step); 1-D. PyTorch: arange, but f32 by default. */
LUGE_API luge_tensor *luge_arange(double start, double end, double step, const luge_tensor_options *options);
/** Uniform in [0, 1). Floats. */
LUGE_API luge_tensor *luge_rand(luge_shape shape, const luge_tensor_options *options);
/** Standard normal. Floats. */
LUGE_API luge_tensor *luge_randn(luge_shape shape, const luge_tensor_options *options);
/** Integers of [low, high), i64. */
LUGE_API luge_tensor *luge_randint(int64_t low, int64_t high, luge_shape shape);
/** 0 .. n-1 in random order, i64 [n]. */
LUGE_API luge_tensor *luge_randperm(int64_t n);
/** Uninitialised, with the shape, strides (where dense), dtype and device of `t`; records no graph. */
LUGE_API luge_tensor *luge_empty_like(const luge_tensor *t);
/** All zero, like `t`. */
LUGE_API luge_tensor *luge_zeros_like(const luge_tensor *t);
/** All one, like `t`. */
LUGE_API luge_tensor *luge_ones_like(const luge_tensor *t);
/** A copy of a host array of `dtype` in row-major order. */
LUGE_API luge_tensor *luge_from_array(const void *data, luge_dtype dtype, luge_shape shape);
/** An f32 tensor of `count` values, which must be the shape's number of elements. */
LUGE_API luge_tensor *luge_from_values(luge_shape shape, const double *values, int count);

/* ---- reading. These work while an error stands. */

/** Rank and sizes; rank 0 for NULL. */
LUGE_API luge_shape luge_tensor_shape(const luge_tensor *t);
/** Size of an axis (negative: from the end); 0 for NULL or an axis that is not there. */
LUGE_API int64_t luge_tensor_size(const luge_tensor *t, int axis);
/** Distance between neighbours along an axis, in elements; 0 for NULL or an axis that is not there. */
LUGE_API int64_t luge_tensor_stride(const luge_tensor *t, int axis);
/** Number of elements; 0 for NULL. */
LUGE_API int64_t luge_tensor_numel(const luge_tensor *t);
/** Element type; LUGE_F32 for NULL. */
LUGE_API luge_dtype luge_tensor_dtype(const luge_tensor *t);
/** Where it lives; the default device for NULL. */
LUGE_API luge_device luge_tensor_device(const luge_tensor *t);
/** Whether gradients flow into or through it. */
LUGE_API bool luge_tensor_requires_grad(const luge_tensor *t);
/** Whether its elements lie in row-major order without gaps. */
LUGE_API bool luge_tensor_is_contiguous(const luge_tensor *t);
/** Whether it lies in pinned host memory. */
LUGE_API bool luge_tensor_is_pinned(const luge_tensor *t);
/** How often its memory has been written in place; every view of a storage counts together. */
LUGE_API int64_t luge_tensor_version(const luge_tensor *t);
/** The gradient collected in a leaf, LUGE_NONE if there is none. Lives as long as the scope even if
 *  it is dropped meanwhile; a later backward adds into it in place. NULL for NULL. */
LUGE_API luge_tensor *luge_tensor_grad(const luge_tensor *t);
/** The only element, as a double. Waits for a device. NaN on error: for NULL, and (an error) where
 *  there is not exactly one element. */
LUGE_API double luge_item(const luge_tensor *t);
/** The values for people: "[[4.5], [9]]", long tensors shortened. Borrowed from the scope, never
 *  NULL; for a NULL tensor the standing error's text. */
LUGE_API const char *luge_text(const luge_tensor *t);
/** Copies all elements in row-major order to a host array of `count` elements of `dtype`, converting. */
LUGE_API luge_status luge_to_array(const luge_tensor *t, void *data, luge_dtype dtype, int64_t count) LUGE_MUST_CHECK;
/** The elements themselves, if they are on the host, contiguous and of that dtype; else NULL and an
 *  error. An empty tensor gives a valid pointer. */
LUGE_API const void *luge_tensor_data(const luge_tensor *t, luge_dtype dtype);
/** The same for writing; counts as a change in place. NULL while an error stands. */
LUGE_API void *luge_tensor_data_mut(luge_tensor *t, luge_dtype dtype);
/** Bytes per element. */
LUGE_API size_t luge_dtype_size(luge_dtype dtype);
/** "f32" and so on; "?" for a value that is none. */
LUGE_API const char *luge_dtype_name(luge_dtype dtype);
/** PyTorch's result_type of two tensors of rank > 0. */
LUGE_API luge_dtype luge_promote_types(luge_dtype a, luge_dtype b);

/* ---- moving */

/** How luge_to copies. */
typedef struct luge_to_options {
    bool non_blocking; /**< Between pinned memory and a GPU: do not wait for the copy. From the host, do not
                            write into `t` before the GPU has read it; to the host, the values are there after
                            luge_device_sync. PyTorch: non_blocking. */
    bool pinned;       /**< The result, on the host, in pinned memory. PyTorch: pin_memory(). */
    LUGE_RESERVED(2);  /**< Zero. */
} luge_to_options;

/** On another device; `t` itself if it is there already, as wished. Gradients flow through. */
LUGE_API luge_tensor *luge_to(luge_tensor *t, luge_device device, const luge_to_options *options);

LUGE_END_C

/** A small f32 tensor written in place: `LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 2, 3, 4)`. */
#ifndef __cplusplus
#define LUGE_TENSOR(shape, ...) luge_from_values(shape, (const double[]){__VA_ARGS__}, LUGE_COUNT_(double, __VA_ARGS__))
#else
inline luge_tensor *luge_tensor_(luge_shape shape, std::initializer_list<double> v)
{
    return luge_from_values(shape, v.begin(), int(v.size()));
}
#define LUGE_TENSOR(shape, ...) luge_tensor_(shape, {__VA_ARGS__})
#endif

#endif
