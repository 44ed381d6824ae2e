#include "tests/support/convolution.h"
#include <luge/luge.h>

lg_conv2d_attrs convolution_attrs(const convolution_geometry *g)
{
    lg_conv2d_attrs a = {.groups = g->groups, .in_shape = LUGE_SHAPE(g->n, g->c, g->h, g->w),
                         .weight_shape = LUGE_SHAPE(g->k, g->c / g->groups, g->r, g->s)};
    for (int i = 0; i < 2; ++i) {
        a.stride[i] = g->stride[i];
        a.padding_before[i] = g->before[i];
        a.padding_after[i] = g->after[i];
        a.dilation[i] = g->dilation[i];
    }
    return a;
}

luge_shape convolution_out(const lg_conv2d_attrs *a)
{
    luge_shape s = LUGE_SHAPE(a->in_shape.dim[0], a->weight_shape.dim[0], 0, 0);
    for (int i = 0; i < 2; ++i) {
        const int64_t room = a->in_shape.dim[2 + i] + a->padding_before[i] + a->padding_after[i] -
                             a->dilation[i] * (a->weight_shape.dim[2 + i] - 1) - 1;
        s.dim[2 + i] = room / a->stride[i] + 1;
    }
    return s;
}
