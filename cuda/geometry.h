/* Strided tensors as kernels take them: plain numbers, the same in C and in CUDA C++. */
#ifndef LG_CUDA_GEOMETRY_H
#define LG_CUDA_GEOMETRY_H

#include <stdint.h>

enum { LG_GEOMETRY_AXES = 8, LG_GEOMETRY_OPERANDS = 4 };

/* Axis 0 is the innermost. Strides are in elements, 0 where an operand is broadcast. */
typedef struct lg_geometry {
    int rank;                /* merged axes, at least 1 */
    int operands;
    int flat;                /* one axis, every stride 0 or 1: element i of all is at i (or 0) */
    int64_t size[LG_GEOMETRY_AXES];
    int64_t stride[LG_GEOMETRY_OPERANDS][LG_GEOMETRY_AXES];
    int64_t numel;
} lg_geometry;

#endif
