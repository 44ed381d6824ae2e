/* What the layers share: parameters with their initial values, checks of sizes. */
#ifndef LG_NN_LAYERS_H
#define LG_NN_LAYERS_H

#include <luge/nn.h>

/* For builds: adds a parameter (f32, on the default device) and returns its handle, NULL on error. */

/* Uniform in +-1/sqrt(fan_in), as PyTorch's linear and convolution layers start: [out, in, ...]. */
luge_tensor *lg_add_weight(luge_module *self, const char *name, luge_shape shape);
/* Uniform in +-1/sqrt(fan_in) of `weight`; [out]. */
luge_tensor *lg_add_bias(luge_module *self, const char *name, const luge_tensor *weight);
luge_tensor *lg_add_constant(luge_module *self, const char *name, luge_shape shape, double value);

/* For constructors: whether no error stands and the size is at least 1; sets the error
 * "Linear: in must be at least 1, not -3". */
bool lg_check_size(const char *layer, const char *what, int64_t size);
/* The same for a setting that must be in [low, high]; refuses NaN. */
bool lg_check_range(const char *layer, const char *what, double value, double low, double high);
/* A setting's default where it is zero. */
static inline double lg_or_default(double value, double otherwise)
{
    return value != 0 ? value : otherwise;
}

#endif
