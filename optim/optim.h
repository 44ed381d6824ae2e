/* Optimizers from inside: what schedules and clipping share with them. */
#ifndef LG_OPTIM_OPTIM_H
#define LG_OPTIM_OPTIM_H

#include "core/multi.h"
#include <luge/optim.h>
#include <stdatomic.h>

enum { LG_OPTIM_STATES = 2 };

/* A parameter, its own settings, and its state, which is made when it is first needed. */
typedef struct lg_param {
    char *name;
    luge_tensor *tensor; /* the module's handle */
    double lr, weight_decay;
    luge_tensor *state[LG_OPTIM_STATES];
    luge_tensor *step; /* f32 scalar, a view into `steps` */
    bool started;      /* it has state to be saved */
} lg_param;

struct luge_optim {
    atomic_int refs; /* the owner's, and schedules' */
    lg_multi rule;   /* kind and settings */
    double lr;       /* the common rate: what parameters have that were not set by name */
    lg_param *param;
    int count, room;
    lg_multi_item *item; /* [count], for one pass */
    int *item_of;        /* [count], the parameter that each is of */
    luge_tensor *steps;  /* f32 [count] on the parameters' device */
    luge_tensor *factor; /* f64 scalar there: the schedule's, times every own rate */
    double host_factor;  /* the same, as written last */
    luge_tensor *norm;   /* of the gradients when they were last clipped, until they are dropped */
    bool skipped;        /* the last step was refused */
    bool scheduled;      /* some schedule writes the factor */
};

/* NULL: LUGE_ERR_ARGUMENT in the name of `what`. */
bool lg_check_optim(const luge_optim *o, const char *what);
void lg_optim_release(luge_optim *o);
/* Writes the factor of all rates. */
luge_status lg_optim_set_factor(luge_optim *o, double factor);

/* Begins a pass over the gradients that there are: fills o->item with them (grad only) and returns how
 * many, or -1 with the error set. *device is where they are. */
int lg_optim_gather(luge_optim *o, const char *what, lg_device **device);

#endif
