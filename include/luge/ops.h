/** @file ops.h
 *  Operations on tensors. Every one returns a tensor borrowed from the current scope, or NULL with
 *  this thread's error set: LUGE_ERR_SHAPE, LUGE_ERR_DTYPE, LUGE_ERR_DEVICE, LUGE_ERR_ARGUMENT or
 *  LUGE_ERR_OUT_OF_MEMORY, with the sizes in the text. NULL in, NULL out. Inputs are not changed,
 *  except by names that end in an underscore. Axes may be negative: from the end.
 *
 *  A tensor of rank 0 counts as if it had one axis, 0 or -1, for reductions, argmax, cumsum, softmax and
 *  flatten, whose results are [] again ([1] for flatten). A new axis, of unsqueeze or stack, may be 0 or -1. To
 *  other functions it has no axis: naming one to transpose, squeeze, slice, select or cat is
 *  LUGE_ERR_ARGUMENT. */
#ifndef LUGE_OPS_H
#define LUGE_OPS_H

#include <luge/base.h>
#include <luge/status.h>

LUGE_BEGIN_C

/* ---- elementwise: see elementwise.def */

#define LUGE_UNARY(name, ...)                        \
    LUGE_API luge_tensor *luge_##name(luge_tensor *x); \
    LUGE_API luge_tensor *luge_##name##_(luge_tensor *x);
#define LUGE_UNARY1(name, ...)                                 \
    LUGE_API luge_tensor *luge_##name(luge_tensor *x, double p); \
    LUGE_API luge_tensor *luge_##name##_(luge_tensor *x, double p);
#define LUGE_UNARY2(name, ...)                                           \
    LUGE_API luge_tensor *luge_##name(luge_tensor *x, double p, double q); \
    LUGE_API luge_tensor *luge_##name##_(luge_tensor *x, double p, double q);
#define LUGE_BINARY(name, ...)                                       \
    LUGE_API luge_tensor *luge_##name(luge_tensor *a, luge_tensor *b); \
    LUGE_API luge_tensor *luge_##name##_(luge_tensor *a, luge_tensor *b);
#define LUGE_COMPARE(name, ...) LUGE_API luge_tensor *luge_##name(luge_tensor *a, luge_tensor *b);
#include <luge/elementwise.def>
#undef LUGE_UNARY
#undef LUGE_UNARY1
#undef LUGE_UNARY2
#undef LUGE_BINARY
#undef LUGE_COMPARE

/** Where `condition` (bool) holds the element of `a`, elsewhere that of `b`; all broadcast. PyTorch: where. */
LUGE_API luge_tensor *luge_where(luge_tensor *condition, luge_tensor *a, luge_tensor *b);
/** a + weight * (b - a). PyTorch: lerp. */
LUGE_API luge_tensor *luge_lerp(luge_tensor *a, luge_tensor *b, luge_tensor *weight);
/** The same in place, with a number as weight. @return a */
LUGE_API luge_tensor *luge_lerp_(luge_tensor *a, luge_tensor *b, double weight);

/* ---- writing in place; each returns its first argument */

/** Every element becomes 0. PyTorch: zero_. */
LUGE_API luge_tensor *luge_zero_(luge_tensor *t);
/** Every element becomes `value`. PyTorch: fill_. */
LUGE_API luge_tensor *luge_fill_(luge_tensor *t, double value);
/** The elements of `from`, broadcast and converted. PyTorch: copy_. */
LUGE_API luge_tensor *luge_copy_(luge_tensor *t, luge_tensor *from);

/* ---- reductions over axes; f16 and bf16 are summed in f32 */

/** Sum; integers and bool become i64. PyTorch: sum. */
LUGE_API luge_tensor *luge_sum(luge_tensor *a, luge_axes axes);
/** Mean; floats only. PyTorch: mean. */
LUGE_API luge_tensor *luge_mean(luge_tensor *a, luge_axes axes);
/** Largest element, NaN if there is one; the gradient is shared between equal ones. LUGE_ERR_SHAPE
 *  over no elements. PyTorch: amax. */
LUGE_API luge_tensor *luge_max(luge_tensor *a, luge_axes axes);
/** Smallest element. PyTorch: amin. */
LUGE_API luge_tensor *luge_min(luge_tensor *a, luge_axes axes);
/** Variance; `correction` 1 divides by n - 1 (PyTorch's default), 0 by n. NaN where nothing is left
 *  to divide by. PyTorch: var. */
LUGE_API luge_tensor *luge_var(luge_tensor *a, luge_axes axes, int64_t correction);
/** (sum |x|^p)^(1/p), p > 0 or HUGE_VAL for the largest; p = 2 does not overflow before the result
 *  does. The gradient at 0 is 0. PyTorch: linalg.vector_norm. */
LUGE_API luge_tensor *luge_norm(luge_tensor *a, double p, luge_axes axes);
/** Index of the largest element along an axis, the first of equal ones; i64. PyTorch: argmax. */
LUGE_API luge_tensor *luge_argmax(luge_tensor *a, int axis);

/** Sums along an axis up to and with each element, in row-major order; integers and bool become i64.
 *  PyTorch: cumsum. */
LUGE_API luge_tensor *luge_cumsum(luge_tensor *a, int axis);

/* ---- products */

/** Matrix product of the last two axes, [..., n, k] x [..., k, m]; earlier axes broadcast; 1-D inputs
 *  are vectors. PyTorch: matmul. */
LUGE_API luge_tensor *luge_matmul(luge_tensor *a, luge_tensor *b);
/** x weight^T + bias: x [..., in], weight [out, in], bias [out] or LUGE_NONE. PyTorch: linear. */
LUGE_API luge_tensor *luge_linear(luge_tensor *x, luge_tensor *weight, luge_tensor *bias);

enum {
    LUGE_SAME = -1 /**< Padding that keeps the size, for a stride of 1. */
};

/** A convolution's geometry. */
typedef struct luge_conv2d_options {
    int64_t stride;      /**< 1. PyTorch: stride. */
    int64_t dilation;    /**< 1. PyTorch: dilation. */
    int64_t groups;      /**< 1. PyTorch: groups. */
    int64_t padding;     /**< 0; LUGE_SAME: output as large as the input. PyTorch: padding. */
    int64_t kernel_hw[2];   /**< nn only: where height and width differ; {0, 0} else. */
    int64_t stride_hw[2];   /**< Overrides stride unless {0, 0}. */
    int64_t padding_hw[2];  /**< Overrides padding unless {0, 0}. */
    int64_t dilation_hw[2]; /**< Overrides dilation unless {0, 0}. */
    bool no_bias;        /**< nn only. PyTorch: bias=False. */
    LUGE_RESERVED(8);    /**< Zero. */
} luge_conv2d_options;

/** Pooling geometry. */
typedef struct luge_pool2d_options {
    int64_t stride;           /**< The kernel's size. PyTorch: stride. */
    int64_t padding;          /**< 0; at most half the kernel. PyTorch: padding. */
    bool ceil_mode;           /**< Round the output's size up. PyTorch: ceil_mode. */
    bool exclude_padding;     /**< avg_pool2d: divide by the elements inside. PyTorch: count_include_pad=False. */
    LUGE_RESERVED(4);         /**< Zero. */
} luge_pool2d_options;

/** 2-D convolution: x [N, C, H, W], weight [K, C/groups, R, S], bias [K] or LUGE_NONE ->
 *  [N, K, H', W'], channels-last in memory. PyTorch: conv2d. */
LUGE_API luge_tensor *luge_conv2d(luge_tensor *x, luge_tensor *weight, luge_tensor *bias,
                                  const luge_conv2d_options *options);
/** Largest of each window of kernel x kernel. The gradient goes to the first of equal ones. PyTorch: max_pool2d. */
LUGE_API luge_tensor *luge_max_pool2d(luge_tensor *x, int64_t kernel, const luge_pool2d_options *options);
/** Mean of each window. PyTorch: avg_pool2d. */
LUGE_API luge_tensor *luge_avg_pool2d(luge_tensor *x, int64_t kernel, const luge_pool2d_options *options);
/** Means of height x width windows that cover the input. PyTorch: adaptive_avg_pool2d. */
LUGE_API luge_tensor *luge_adaptive_avg_pool2d(luge_tensor *x, int64_t height, int64_t width);

/* ---- norms, softmax, attention */

/** Options of luge_batch_norm. */
typedef struct luge_batch_norm_options {
    bool training;    /**< Normalise by the batch and update the running statistics. PyTorch: training. */
    double momentum;  /**< 0.1; of the running statistics. PyTorch: momentum. */
    double eps;       /**< 1e-5. PyTorch: eps. */
    LUGE_RESERVED(4); /**< Zero. */
} luge_batch_norm_options;

/** Normalises each channel of x [N, C, ...]: by the batch's mean and biased variance in training
 *  (two-pass), by the running ones else. running_mean and running_var [C] are updated in place in
 *  training (the variance unbiased); they, weight and bias [C] may be LUGE_NONE. LUGE_ERR_SHAPE for
 *  one value per channel in training; an empty batch changes nothing. PyTorch: batch_norm. */
LUGE_API luge_tensor *luge_batch_norm(luge_tensor *x, luge_tensor *running_mean, luge_tensor *running_var,
                                      luge_tensor *weight, luge_tensor *bias, const luge_batch_norm_options *options);
/** Normalises over the last `axes` axes (>= 1); weight and bias have their sizes or are LUGE_NONE.
 *  `eps` 0 is 1e-5. PyTorch: layer_norm. */
LUGE_API luge_tensor *luge_layer_norm(luge_tensor *x, int axes, luge_tensor *weight, luge_tensor *bias, double eps);
/** e^x / sum e^x along an axis. A row of only -inf gives zeros. PyTorch: softmax. */
LUGE_API luge_tensor *luge_softmax(luge_tensor *a, int axis);
/** log(softmax). PyTorch: log_softmax. */
LUGE_API luge_tensor *luge_log_softmax(luge_tensor *a, int axis);

/** Options of luge_attention. */
typedef struct luge_attention_options {
    double scale;     /**< Of the scores; 1/sqrt(D). PyTorch: scale. */
    double dropout;   /**< Of the weights; 0. PyTorch: dropout_p. */
    bool causal;      /**< Position i attends to 0..i. PyTorch: is_causal. */
    LUGE_RESERVED(4); /**< Zero. */
} luge_attention_options;
/** softmax(scale q k^T + mask) v: q [..., L, D], k [..., S, D], v [..., S, E]; mask broadcasts to
 *  [..., L, S] and is added (bool: false means masked), or is LUGE_NONE. PyTorch: scaled_dot_product_attention. */
LUGE_API luge_tensor *luge_attention(luge_tensor *q, luge_tensor *k, luge_tensor *v, luge_tensor *mask,
                                     const luge_attention_options *options);

/* ---- losses */

/** What becomes of the losses of the items. */
typedef enum luge_reduction {
    LUGE_MEAN,        /**< Their mean, the default. */
    LUGE_SUM,         /**< Their sum. */
    LUGE_NO_REDUCTION /**< Each for itself. */
} luge_reduction;

/** Options of luge_cross_entropy. */
typedef struct luge_cross_entropy_options {
    luge_reduction reduction;    /**< LUGE_MEAN (weighted, over the targets that count). PyTorch: reduction. */
    double label_smoothing;      /**< 0, in [0, 1]. PyTorch: label_smoothing. */
    luge_tensor *weight;         /**< [classes]; unset or LUGE_NONE: every class counts 1. PyTorch: weight. */
    const int64_t *ignore_index; /**< Targets that do not count; unset: -100. PyTorch: ignore_index. */
    LUGE_RESERVED(4);            /**< Zero. */
} luge_cross_entropy_options;

/** Options of the other losses. */
typedef struct luge_loss_options {
    luge_reduction reduction; /**< LUGE_MEAN. PyTorch: reduction. */
    LUGE_RESERVED(4);         /**< Zero. */
} luge_loss_options;

/** -log softmax(logits)[target]: logits [N, classes] or [N, classes, ...], target i64 or i32 [N] or
 *  [N, ...]. A label outside [0, classes) that is not ignore_index is LUGE_ERR_ARGUMENT, with its
 *  value and place; on a GPU when the host next waits for it. PyTorch: cross_entropy. */
LUGE_API luge_tensor *luge_cross_entropy(luge_tensor *logits, luge_tensor *target,
                                         const luge_cross_entropy_options *options);
/** Binary cross entropy of sigmoid(logits), in the form that does not overflow; same shapes. PyTorch:
 *  binary_cross_entropy_with_logits. */
LUGE_API luge_tensor *luge_bce_with_logits(luge_tensor *logits, luge_tensor *target, const luge_loss_options *options);
/** (input - target)^2; same shapes. PyTorch: mse_loss. */
LUGE_API luge_tensor *luge_mse_loss(luge_tensor *input, luge_tensor *target, const luge_loss_options *options);
/** Share of rows of logits [N, classes] whose largest element, the first of equal ones, is at target [N]; f32
 *  scalar, no gradient. A target outside [0, classes), -100 among them, is no error, but a row that is wrong. */
LUGE_API luge_tensor *luge_accuracy(luge_tensor *logits, luge_tensor *target);

/* ---- regularisation and indices */

/** Zeroes elements with probability p (in [0, 1]) and scales the rest by 1/(1-p); `training` false:
 *  the input itself. PyTorch: dropout. */
LUGE_API luge_tensor *luge_dropout(luge_tensor *a, double p, bool training);
/** Rows of weight [count, dim] at indices (i64 or i32, any shape) -> [..., dim]. An index out of range
 *  is LUGE_ERR_ARGUMENT, on a GPU when the host next waits for it. PyTorch: embedding. */
LUGE_API luge_tensor *luge_embedding(luge_tensor *weight, luge_tensor *indices);

/* ---- shapes: views share memory with their input */

/** Another shape with as many elements; one dim may be -1. A view where strides allow, else a copy;
 *  writing in place into it is an error when it is a view in a graph. PyTorch: reshape. */
LUGE_API luge_tensor *luge_reshape(luge_tensor *a, luge_shape shape);
/** The same, but LUGE_ERR_SHAPE where a copy would be needed. PyTorch: view. */
LUGE_API luge_tensor *luge_view(luge_tensor *a, luge_shape shape);
/** Axes in another order, all of them named. PyTorch: permute. */
LUGE_API luge_tensor *luge_permute(luge_tensor *a, luge_axes order);
/** Two axes exchanged. PyTorch: transpose. */
LUGE_API luge_tensor *luge_transpose(luge_tensor *a, int axis0, int axis1);
/** Axes start to end (inclusive) as one. PyTorch: flatten. */
LUGE_API luge_tensor *luge_flatten(luge_tensor *a, int start, int end);
/** Axes of size 1, and new ones in front, repeated without a copy; -1 keeps a size. PyTorch: expand. */
LUGE_API luge_tensor *luge_expand(luge_tensor *a, luge_shape shape);
/** A new axis of size 1. PyTorch: unsqueeze. */
LUGE_API luge_tensor *luge_unsqueeze(luge_tensor *a, int axis);
/** Without one axis of size 1; LUGE_ERR_SHAPE if it has another size. PyTorch: squeeze. */
LUGE_API luge_tensor *luge_squeeze(luge_tensor *a, int axis);
/** Elements [from, to) along an axis; negative ones count from the end, and both are cut to it. PyTorch: a[from:to]. */
LUGE_API luge_tensor *luge_slice(luge_tensor *a, int axis, int64_t from, int64_t to);
/** One element along an axis, which disappears. PyTorch: select. */
LUGE_API luge_tensor *luge_select(luge_tensor *a, int axis, int64_t index);
/** One after another along an axis; dtypes promote. PyTorch: cat. */
LUGE_API luge_tensor *luge_cat(luge_list tensors, int axis);
/** Tensors of one shape along a new axis. PyTorch: stack. */
LUGE_API luge_tensor *luge_stack(luge_list tensors, int axis);
/** Adds before[i] and after[i] (>= 0) elements of `value` to axis i; both have the tensor's rank.
 *  PyTorch: pad(mode="constant"). */
LUGE_API luge_tensor *luge_pad(luge_tensor *a, luge_shape before, luge_shape after, double value);

/* ---- copies */

/** Another dtype; the tensor itself if it has that already. Floats to integers cut toward zero. PyTorch: to(dtype). */
LUGE_API luge_tensor *luge_cast(luge_tensor *t, luge_dtype dtype);
/** In row-major order; the tensor itself if it is already. PyTorch: contiguous. */
LUGE_API luge_tensor *luge_contiguous(luge_tensor *t);
/** In channels-last order, for a [N, C, H, W] tensor; itself if it is already. PyTorch: contiguous(memory_format=channels_last). */
LUGE_API luge_tensor *luge_channels_last(luge_tensor *t);
/** A copy in memory of its own. PyTorch: clone. */
LUGE_API luge_tensor *luge_clone(luge_tensor *t);

LUGE_END_C

#endif
