/* Single elements, for the reference kernels: any dtype through a double, any strides. */
#ifndef LG_OPS_REFERENCE_H
#define LG_OPS_REFERENCE_H

#include "core/op.h"

/* Where element i in row-major order lies, in elements from lg_data. */
static inline int64_t lg_offset(const luge_tensor *t, int64_t i)
{
    int64_t offset = 0;
    for (int axis = t->shape.rank - 1; axis >= 0 && i > 0; --axis) {
        offset += i % t->shape.dim[axis] * t->stride[axis];
        i /= t->shape.dim[axis];
    }
    return offset;
}

/* The element at an offset from lg_data. */
static inline double lg_get(const luge_tensor *t, int64_t offset)
{
    return lg_load_f64((const char *)lg_data(t) + (size_t)offset * lg_element_size(t), t->dtype);
}
static inline int64_t lg_get_index(const luge_tensor *t, int64_t offset)
{
    return lg_load_i64((const char *)lg_data(t) + (size_t)offset * lg_element_size(t), t->dtype);
}
static inline void lg_put(luge_tensor *t, int64_t offset, double value)
{
    lg_store_f64((char *)lg_data(t) + (size_t)offset * lg_element_size(t), t->dtype, value);
}

/* The same by the place in row-major order. */
static inline double lg_at(const luge_tensor *t, int64_t i)
{
    return lg_get(t, lg_offset(t, i));
}
static inline int64_t lg_index_at(const luge_tensor *t, int64_t i)
{
    return lg_get_index(t, lg_offset(t, i));
}
static inline void lg_set(luge_tensor *t, int64_t i, double value)
{
    lg_put(t, lg_offset(t, i), value);
}

#endif
