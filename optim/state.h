/* The state of optimizers: momenta and step counts, beside the parameters they belong to. */
#ifndef LG_OPTIM_STATE_H
#define LG_OPTIM_STATE_H

#include "optim/optim.h"

/* Puts step counts and the factor of the rates on that device, if they are not there. */
luge_status lg_state_place(luge_optim *o, lg_device *device);
/* Gives the first n items their state, in the dtype, layout and place that their parameters now have. All
 * or nothing. */
luge_status lg_state_prepare(luge_optim *o, int n, lg_device *device);

#endif
