/* What the three products of a convolution share: how output pixels are cut into blocks, and the
 * window of the input that a block looks at, copied into channels-last order with its padding where
 * it does not lie so already. Everything is for f32 and f64. */
#ifndef LG_CPU_CONV_H
#define LG_CPU_CONV_H

#include "core/tensor.h"
#include "cpu/simd/tile.h"
#include "ops/attrs.h"

/* One axis of a correlation: output i looks, with tap t of the kernel, at i * stride + at + t * at_step
 * of the input. */
typedef struct lg_conv_axis {
    int64_t size;               /* of the input; what lies outside is zero */
    int64_t outputs, stride;
    int64_t at, at_step, taps;
    int64_t tap, tap_step;      /* tap t is the weight's element tap + t * tap_step */
} lg_conv_axis;

/* The axis (0: rows, 1: columns) of x under conv2d. */
lg_conv_axis lg_conv_axis_of(const lg_conv2d_attrs *a, int axis);

typedef struct lg_windows {
    const lg_tile_kernels *kernels;
    bool f64;
    int64_t size;               /* of an element */
    const char *data;           /* the input */
    int64_t images, channels, stride[4];
    lg_conv_axis h, w;
    bool direct;                /* read where it lies */
    int64_t image_step, row_step, pixel_step; /* in a window, in elements */
    int64_t block_images, block_rows;         /* outputs of a block: whole images, or rows of one */
    int64_t row_blocks, blocks;
    int64_t bytes;              /* of a window's copy */
} lg_windows;

/* The part of the input that one block looks at. For the block's image m, row i, column j, taps r and s
 * and channel c, its element is at data + (m image_step + (i h.stride + r h.at_step) row_step +
 * (j w.stride + s w.at_step) pixel_step + c) elements. */
typedef struct lg_window {
    const char *data;
    int64_t image, images, row, rows;
} lg_window;

/* Blocks of about `pixels` outputs. False if windows would be much larger than the input: a kernel
 * spread far over padding, for the reference kernel. */
bool lg_windows_plan(lg_windows *w, const luge_tensor *input, lg_conv_axis h, lg_conv_axis v, int64_t pixels);
/* `copy` has room for lg_windows.bytes. */
lg_window lg_window_of(const lg_windows *w, int64_t block, char *copy);

#endif
