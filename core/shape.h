/* Shapes, strides and broadcasting. Nothing here fails silently: what can go wrong returns a status
 * or -1 and the caller says what it was about. */
#ifndef LG_CORE_SHAPE_H
#define LG_CORE_SHAPE_H

#include <luge/base.h>
#include <luge/status.h>

/* The product of the sizes, or -1 if a size is negative, the rank is out of range, or the product
 * times 8 bytes does not fit in an int64_t. */
int64_t lg_shape_numel(const luge_shape *s);
bool lg_shape_equal(const luge_shape *a, const luge_shape *b);
/* "[2, 3]"; [] for a scalar. Returns buffer. */
enum { LG_SHAPE_TEXT = 192 };
const char *lg_shape_text(char buffer[LG_SHAPE_TEXT], const luge_shape *s);

/* Row-major strides. */
void lg_strides_contiguous(const luge_shape *s, int64_t stride[LUGE_MAX_RANK]);
/* [N, C, H, W] with C innermost. */
void lg_strides_channels_last(const luge_shape *s, int64_t stride[LUGE_MAX_RANK]);
bool lg_strides_are_contiguous(const luge_shape *s, const int64_t *stride);
bool lg_strides_are_channels_last(const luge_shape *s, const int64_t *stride);
/* Elements fill a block without gaps or overlap, in whatever order of axes. */
bool lg_strides_are_dense(const luge_shape *s, const int64_t *stride);
/* Some element has two indices (an expanded axis). */
bool lg_strides_overlap(const luge_shape *s, const int64_t *stride);

/* Widens *to so that both broadcast to it; false if they do not fit. */
bool lg_broadcast(luge_shape *to, const luge_shape *other);
/* Strides that show a tensor of shape `s` as shape `to` (0 along broadcast axes). */
void lg_broadcast_strides(const luge_shape *s, const int64_t *stride, const luge_shape *to,
                          int64_t out[LUGE_MAX_RANK]);
/* Strides of a view of `s` in the shape `to` of as many elements; false if a copy is needed. */
bool lg_reshape_strides(const luge_shape *s, const int64_t *stride, const luge_shape *to,
                        int64_t out[LUGE_MAX_RANK]);

/* The axis as 0..rank-1, or -1 if it is not there. rank 0 takes 0 and -1 as PyTorch does, giving 0. */
int lg_axis(int rank, int axis);
/* Bits of the axes chosen (all if count is 0); false for an axis that is not there or named twice. */
bool lg_axes_mask(int rank, const luge_axes *axes, uint32_t *mask);
/* The shape after reducing the axes in mask. */
luge_shape lg_reduced_shape(const luge_shape *s, uint32_t mask, bool keepdim);

#endif
