/* Attributes of the ops: one small struct each, copied into the graph. Defaults are resolved and axes
 * normalised by the public functions, so kernels read them as they are. */
#ifndef LG_OPS_ATTRS_H
#define LG_OPS_ATTRS_H

#include <luge/ops.h>
#include "core/rng.h"

typedef struct lg_number_attrs { double p, q; } lg_number_attrs;   /* unary ops' p and q; others p */
typedef struct lg_dtype_attrs {
    luge_dtype dtype;
    bool shared;           /* autocast's, of a parameter: what the thread has cast before will do */
} lg_dtype_attrs;
typedef enum lg_layout { LG_LAYOUT_KEEP, LG_LAYOUT_CONTIGUOUS, LG_LAYOUT_CHANNELS_LAST } lg_layout;
typedef struct lg_layout_attrs { lg_layout layout; } lg_layout_attrs;
typedef struct lg_range_attrs { double start, step; } lg_range_attrs;
typedef struct lg_random_attrs { double a, b; lg_rng_range rng; } lg_random_attrs;
typedef struct lg_randint_attrs { int64_t low, high; lg_rng_range rng; } lg_randint_attrs;
typedef struct lg_axis_attrs { int axis; } lg_axis_attrs;          /* 0..rank-1 */

typedef struct lg_reduce_attrs {
    uint32_t mask;         /* axes that go */
    bool keepdim;
    double number;         /* norm: p; var: correction */
} lg_reduce_attrs;

typedef struct lg_scan_attrs {
    int axis;
    bool reverse; /* from the other end */
} lg_scan_attrs;

typedef struct lg_conv2d_attrs {
    int64_t stride[2], padding_before[2], padding_after[2], dilation[2], groups;
    luge_shape in_shape, weight_shape;    /* filled by conv2d's infer caller, read by the backward ops */
} lg_conv2d_attrs;

typedef struct lg_pool2d_attrs {
    int64_t kernel[2], stride[2], padding[2], out[2];  /* out: H', W' */
    bool include_padding;                 /* avg: divide by the whole window (cut at the padded edge) */
    bool adaptive;                        /* windows [floor(i H / H'), ceil((i + 1) H / H')) instead */
    luge_shape in_shape;
} lg_pool2d_attrs;

typedef struct lg_norm_attrs {
    bool training;                        /* batch_norm */
    double momentum, eps;
    int axes;                             /* layer_norm: how many last axes */
} lg_norm_attrs;

typedef struct lg_cross_entropy_attrs {
    luge_reduction reduction;
    double label_smoothing;
    int64_t ignore_index;
} lg_cross_entropy_attrs;

typedef struct lg_loss_attrs { luge_reduction reduction; } lg_loss_attrs;
typedef struct lg_dropout_attrs { double p; lg_rng_range rng; } lg_dropout_attrs;
/* Element i in row-major order stays iff number i of the stream (lane i % 4 of block first + i / 4) is
 * at least this; 2^32 for p = 1. Those that stay are multiplied by the scale. */
static inline uint64_t lg_dropout_threshold(const lg_dropout_attrs *a) { return (uint64_t)(a->p * 0x1p32); }
static inline double lg_dropout_scale(const lg_dropout_attrs *a) { return a->p < 1 ? 1 / (1 - a->p) : 0; }
typedef struct lg_embedding_attrs { int64_t count; } lg_embedding_attrs;
typedef struct lg_shape_attrs { luge_shape shape; } lg_shape_attrs;
typedef struct lg_permute_attrs { int order[LUGE_MAX_RANK]; } lg_permute_attrs;
typedef struct lg_slice_attrs { int axis; int64_t from, to; int64_t size; } lg_slice_attrs;  /* size: of the input's axis */
typedef struct lg_pad_attrs { luge_shape before, after; double value; } lg_pad_attrs;

#endif
