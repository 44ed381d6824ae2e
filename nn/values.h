/* Values in a given layout: for modules that copy and load, and for the state of optimizers. */
#ifndef LG_NN_VALUES_H
#define LG_NN_VALUES_H

#include <luge/base.h>

/* An owned tensor on the device of `like`, with its shape and strides, that holds the values of `from`
 * (converted and moved as needed; of the same shape) or, for NULL, zeros. */
luge_tensor *lg_values_like(const luge_tensor *like, luge_dtype dtype, luge_tensor *from);

#endif
