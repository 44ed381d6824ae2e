/* Optimizers from inside: what schedules and clipping share with them. */
#ifndef LG_OPTIM_OPTIM_H
#define LG_OPTIM_OPTIM_H

#include "core/multi.h"
#include <luge/optim.h>
#include <stdatomic.h>

enum { LG_OPTIM_STATES = 2 };

/* Numbers on the device. */
enum {
    LG_OPTIM_FACTOR,   /* the schedule's, times every own rate */
    LG_OPTIM_POSITION, /* the schedule's: steps taken */
    LG_OPTIM_SKIP,     /* 1 if the last step changed nothing */
    LG_OPTIM_NORM,     /* of gradients, for whoever needs it no longer than the next pass */
    LG_OPTIM_SCALARS
};

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
    luge_tensor *scalars, *scalar[LG_OPTIM_SCALARS]; /* f64 there, and each of them */
    luge_tensor *norm;   /* of the gradients when they were last clipped, until they are dropped */
    bool clipped;        /* since the gradients were last dropped */
    bool scheduled;      /* some schedule writes the factor */
};

/* NULL: LUGE_ERR_ARGUMENT in the name of `what`. */
bool lg_check_optim(const luge_optim *o, const char *what);
luge_optim *lg_optim_retain(luge_optim *o);
void lg_optim_release(luge_optim *o);
/* References beside the owner's; NULL is fine. */
luge_sched *lg_sched_retain(luge_sched *sched);
void lg_sched_release(luge_sched *sched);
/* Writes the schedule's position and its factor there. */
luge_status lg_optim_set_position(luge_optim *o, double position, double factor);
/* The factor of a schedule at a position; the optimizer that it belongs to. */
double lg_sched_factor_at(const luge_sched *sched, double position);
luge_optim *lg_sched_optim(const luge_sched *sched);
/* One of the scalars; waits for the device. NaN if that fails. */
double lg_optim_scalar(const luge_optim *o, int which);
/* A pass without items, on the device of the scalars. */
luge_status lg_optim_run(luge_optim *o, const lg_multi *work);

/* Begins a pass over the gradients that there are: fills o->item with them (grad only) and returns how
 * many, or -1 with the error set. *device is where they are. */
int lg_optim_gather(luge_optim *o, const char *what, lg_device **device);
/* The same with the state of all of them ready, so that lg_optim_step_all does not have to allocate. */
int lg_optim_prepare(luge_optim *o, const char *what, lg_device **device);
/* luge_optim_step; one that `found` (NULL: none) is not 0 for changes nothing, and notes that. */
luge_status lg_optim_step_all(luge_optim *o, const char *what, luge_tensor *found);
/* Gradients times numerator / *scale (NULL: 1); *found becomes 1 if one of them is not finite. */
luge_status lg_optim_unscale(luge_optim *o, const char *what, double numerator, luge_tensor *scale, luge_tensor *found);
/* luge_clip_grad_norm with a place for the norm; max_norm INFINITY only measures. Then steps look at it. */
luge_status lg_optim_clip_norm(luge_optim *o, const char *what, double max_norm, luge_tensor *norm);
/* Drops gradients, also while an error stands. */
void lg_optim_drop_gradients(luge_optim *o);

#endif
