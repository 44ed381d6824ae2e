/* Convolutions written in one line of a table. */
#ifndef LG_TESTS_CONVOLUTION_H
#define LG_TESTS_CONVOLUTION_H

#include "ops/attrs.h"

/* x [n, c, h, w], weight [k, c / groups, r, s] */
typedef struct convolution_geometry {
    int64_t n, c, h, w, k, r, s;
    int64_t stride[2], before[2], after[2], dilation[2], groups;
} convolution_geometry;

lg_conv2d_attrs convolution_attrs(const convolution_geometry *g);
/* The shape of the result. */
luge_shape convolution_out(const lg_conv2d_attrs *a);

#endif
