/* The state of optimizers: momenta and step counts, beside the parameters they belong to. */
#ifndef LG_OPTIM_STATE_H
#define LG_OPTIM_STATE_H

#include "optim/optim.h"

/* Puts step counts and the factor of the rates on that device, if they are not there. */
luge_status lg_state_place(luge_optim *o, lg_device *device);
/* How many tensors of its shape each parameter has, and what the k-th is called. */
int lg_state_count(const luge_optim *o);
const char *lg_state_name(const luge_optim *o, int k);
luge_dtype lg_state_dtype(const luge_tensor *param);
/* Steps of all parameters, on the host: [count]. */
luge_status lg_state_read_steps(const luge_optim *o, float *steps);
luge_status lg_state_write_steps(luge_optim *o, const float *steps);
/* Gives the first n items their state, in the dtype, layout and place that their parameters now have. All
 * or nothing. */
luge_status lg_state_prepare(luge_optim *o, int n, lg_device *device);

#endif
