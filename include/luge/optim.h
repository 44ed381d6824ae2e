/** @file optim.h
 *  Optimizers, clipping and schedules. An optimizer refers to the parameters that a module has when it
 *  is made, by name (a shared one by its first); module and optimizer may be destroyed in any order.
 *  Step count and learning rates live in device memory. A parameter without a gradient is left alone,
 *  its state too, and so is a frozen one. State is f32 (f64 for f64 parameters) and follows a parameter
 *  to another device or dtype. */
#ifndef LUGE_OPTIM_H
#define LUGE_OPTIM_H

#include <luge/base.h>
#include <luge/status.h>

LUGE_BEGIN_C

/** PyTorch: torch.optim.SGD. */
typedef struct luge_sgd_options {
    double momentum;     /**< 0. PyTorch: momentum. */
    double dampening;    /**< 0. PyTorch: dampening. */
    double weight_decay; /**< 0, an L2 term in the gradient. PyTorch: weight_decay. */
    bool nesterov;       /**< Needs momentum and no dampening. PyTorch: nesterov. */
    LUGE_RESERVED(4);    /**< Zero. */
} luge_sgd_options;

/** PyTorch: torch.optim.Adam and AdamW. */
typedef struct luge_adam_options {
    double betas[2];     /**< {0.9, 0.999}, unless either is not zero. PyTorch: betas. */
    double eps;          /**< 1e-8. PyTorch: eps. */
    double weight_decay; /**< Adam: L2, 0. AdamW takes its decay as an argument instead. PyTorch: weight_decay. */
    LUGE_RESERVED(4);    /**< Zero. */
} luge_adam_options;

/** SGD over the parameters of `params`, of which there may be none. lr >= 0. */
LUGE_API luge_optim *luge_sgd_create(luge_module *params, double lr, const luge_sgd_options *options);
/** Adam (Kingma and Ba 2014). */
LUGE_API luge_optim *luge_adam_create(luge_module *params, double lr, const luge_adam_options *options);
/** Adam with decoupled weight decay (Loshchilov and Hutter 2017); PyTorch's default decay is 0.01. */
LUGE_API luge_optim *luge_adamw_create(luge_module *params, double lr, double weight_decay,
                                       const luge_adam_options *options);
/** Updates every parameter that has a gradient, in one pass; all of them or, on error, none. */
LUGE_API luge_status luge_optim_step(luge_optim *optim);
/** Drops all gradients (PyTorch: set_to_none=True). */
LUGE_API luge_status luge_optim_zero_grad(luge_optim *optim);
/** Steps taken, by the parameter that has taken most; 0 for NULL. Waits for a device. */
LUGE_API int64_t luge_optim_steps(const luge_optim *optim);
/** The largest present learning rate among the parameters; NaN for NULL. Waits for a device. */
LUGE_API double luge_optim_lr(const luge_optim *optim);
/** Destroys the optimizer; NULL is fine. The parameters stay. */
LUGE_API void luge_optim_destroy(luge_optim *optim);

/** Learning rate of the parameters whose names match `pattern` (wildcards * and ?, alternatives with
 *  |; "@vectors": rank 0 and 1; NULL: all). A pattern that matches nothing is LUGE_ERR_ARGUMENT. */
LUGE_API luge_status luge_optim_set_lr(luge_optim *optim, const char *pattern, double lr);
/** Weight decay of the parameters whose names match `pattern`. */
LUGE_API luge_status luge_optim_set_weight_decay(luge_optim *optim, const char *pattern, double weight_decay);

/** Names one tensor of an optimizer's state: "0.weight" and "exp_avg", say. */
typedef void (*luge_optim_state_fn)(const char *param, const char *what, luge_tensor *value, void *user);
/** Visits the state: per parameter what PyTorch calls momentum_buffer, exp_avg, exp_avg_sq and step (for
 *  SGD too), where it exists already. */
LUGE_API luge_status luge_optim_each_state(luge_optim *optim, luge_optim_state_fn visit, void *user);
/** Sets one tensor of the state by name (a copy of `value`); for resuming. A momentum_buffer that comes
 *  without a step, as in PyTorch's files, counts as one step taken. */
LUGE_API luge_status luge_optim_set_state(luge_optim *optim, const char *param, const char *what, luge_tensor *value);

/** Scales all gradients so that their joint 2-norm is at most `max_norm` (> 0). A norm that is not
 *  finite leaves them alone; steps then report LUGE_ERR_NONFINITE and change nothing, until the
 *  gradients are dropped or clipped anew. A GPU's steps change nothing either, but report it only when
 *  the host next waits for the GPU (luge_item, luge_device_sync).
 *  @return the norm before clipping, an f64 scalar on the device */
LUGE_API luge_tensor *luge_clip_grad_norm(luge_optim *optim, double max_norm);
/** Clamps every gradient element to [-limit, limit]. limit > 0. */
LUGE_API luge_status luge_clip_grad_value(luge_optim *optim, double limit);

/* ---- schedules: each multiplies every parameter's own rate by a factor of the step count. An
 *      optimizer has at most one at a time. */

/** Options of luge_cosine_lr_create. */
typedef struct luge_cosine_options {
    int64_t warmup;   /**< Steps of linear warm-up before the cosine; 0. */
    double min_lr;    /**< Where the cosine ends, as a rate, for parameters with the common one; 0. PyTorch: eta_min. */
    LUGE_RESERVED(4); /**< Zero. */
} luge_cosine_options;
/** Options of luge_one_cycle_lr_create. PyTorch: OneCycleLR. */
typedef struct luge_one_cycle_options {
    double pct_start;        /**< Share of the steps that go up; 0.3. */
    double div_factor;       /**< First rate is the largest divided by this; 25. */
    double final_div_factor; /**< Last rate is the first divided by this; 1e4. */
    LUGE_RESERVED(4);        /**< Zero. */
} luge_one_cycle_options;

/** The rate stays as it is. */
LUGE_API luge_sched *luge_constant_lr_create(luge_optim *optim);
/** Multiplies by `gamma` every `every` steps. PyTorch: StepLR. */
LUGE_API luge_sched *luge_step_lr_create(luge_optim *optim, int64_t every, double gamma);
/** Half a cosine from the base rate to min_lr over `steps` steps, warm-up included; stays there.
 *  PyTorch: CosineAnnealingLR. */
LUGE_API luge_sched *luge_cosine_lr_create(luge_optim *optim, int64_t steps, const luge_cosine_options *options);
/** Linear from (k+1)/warmup of the base rate up to all of it. */
LUGE_API luge_sched *luge_warmup_lr_create(luge_optim *optim, int64_t warmup);
/** One cycle up to the base rate and down again, by cosines. PyTorch: OneCycleLR. */
LUGE_API luge_sched *luge_one_cycle_lr_create(luge_optim *optim, int64_t steps, const luge_one_cycle_options *options);
/** Moves on by one step; stands still if the optimizer's last step changed nothing, which a device finds by
 *  itself. A schedule holds its optimizer: the two may be destroyed in any order, and after
 *  luge_optim_destroy this still works, though it changes no rate that anybody trains with. */
LUGE_API luge_status luge_sched_step(luge_sched *sched);
/** The factor at step `step` (>= 0), for plots and tests; NaN for NULL. */
LUGE_API double luge_sched_factor(const luge_sched *sched, int64_t step);
/** Destroys the schedule; NULL is fine. The rates stay as they are. */
LUGE_API void luge_sched_destroy(luge_sched *sched);

LUGE_END_C

#endif
