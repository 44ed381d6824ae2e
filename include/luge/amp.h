/** @file amp.h
 *  Dynamic loss scaling. Gradients of f16 activations are small numbers, of which f16 loses many: the
 *  loss is multiplied by a scale before backward, gradients are divided by it before the step, and a step
 *  whose gradients are not finite is left out and the scale lowered. PyTorch: torch.amp.GradScaler. All
 *  state lies on the device: nothing here waits for a GPU unless it says so. Regions that run ops in f16
 *  or bf16 are LUGE_AUTOCAST (scope.h).
 *
 *      luge_backward(luge_scaler_scale(scaler, loss));
 *      luge_scaler_unscale(scaler, optim);       // only to clip or look at gradients
 *      luge_clip_grad_norm(optim, 1.0);
 *      luge_scaler_step(scaler, optim);
 *      luge_scaler_update(scaler);
 *
 *  Each optimizer goes from gradients as they are to unscaled to stepped, and luge_scaler_update begins
 *  anew for all; a call out of this order is LUGE_ERR_STATE and changes nothing. */
#ifndef LUGE_AMP_H
#define LUGE_AMP_H

#include <luge/base.h>
#include <luge/status.h>

LUGE_BEGIN_C

/** Options of luge_scaler_create. Names are PyTorch's where they exist there. */
typedef struct luge_scaler_options {
    double init_scale;       /**< 65536. */
    double growth_factor;    /**< 2; above 1. */
    double backoff_factor;   /**< 0.5; in (0, 1). */
    int64_t growth_interval; /**< 2000 steps without an overflow; below 2^24. */
    double min_scale;        /**< The scale is never less: 2^-126, the smallest normal f32. */
    double max_scale;        /**< The scale never grows beyond: 2^127. */
    int64_t max_skips;       /**< So many steps left out in a row are LUGE_ERR_NONFINITE: 100. */
    bool disabled;           /**< Everything passes through unchanged. PyTorch: enabled=False. */
    LUGE_RESERVED(4);        /**< Zero. */
} luge_scaler_options;

/** A scaler's state, for saving and resuming. PyTorch: state_dict's scale and _growth_tracker. */
typedef struct luge_scaler_state {
    double scale;           /**< A finite number above 0. */
    int64_t growth_tracker; /**< Steps without an overflow since the scale was changed. */
    int64_t skips;          /**< Steps left out in a row, up to now. */
} luge_scaler_state;

/** Makes a scaler, which may serve any number of optimizers whose parameters lie on one device. */
LUGE_API luge_scaler *luge_scaler_create(const luge_scaler_options *options);
/** loss * scale, f32 (f64 for an f64 loss), to call luge_backward on. `loss` is a float tensor.
 *  PyTorch: scale(). */
LUGE_API luge_tensor *luge_scaler_scale(luge_scaler *scaler, luge_tensor *loss);
/** Divides the optimizer's gradients by the scale, once between two updates, and notes whether one of them
 *  is not finite. LUGE_ERR_STATE if they were unscaled, stepped or clipped already; LUGE_ERR_DTYPE for
 *  gradients in f16, whose parameters belong in f32. PyTorch: unscale_(). */
LUGE_API luge_status luge_scaler_unscale(luge_scaler *scaler, luge_optim *optim);
/** luge_optim_step, after unscaling if that was not done. If a gradient is not finite the optimizer's
 *  parameters, state and step counts stay as they are, which is no error; its gradients stay, too: drop
 *  them. PyTorch: step(). */
LUGE_API luge_status luge_scaler_step(luge_scaler *scaler, luge_optim *optim);
/** Lowers the scale if a gradient of any optimizer was not finite since the last update, else counts a
 *  good step and raises it after growth_interval of them. Every optimizer may then be unscaled again.
 *  LUGE_ERR_STATE if none was unscaled or stepped. LUGE_ERR_NONFINITE, after the update, if max_skips in a
 *  row were left out: no scale will do; a GPU reports that when the host next waits for it. PyTorch: update(). */
LUGE_API luge_status luge_scaler_update(luge_scaler *scaler);
/** Whether the optimizer's last step was left out. Waits for a device. False for NULL. */
LUGE_API bool luge_scaler_skipped(luge_scaler *scaler, const luge_optim *optim);
/** The present scale; 1 if disabled. Waits for a device. NaN for NULL. PyTorch: get_scale(). */
LUGE_API double luge_scaler_value(const luge_scaler *scaler);
/** Reads the state. Waits for a device. PyTorch: state_dict(). */
LUGE_API luge_status luge_scaler_get_state(const luge_scaler *scaler, luge_scaler_state *state);
/** Sets it: for resuming, or for a scale of one's own. Not between unscaling and update (LUGE_ERR_STATE).
 *  PyTorch: load_state_dict(). */
LUGE_API luge_status luge_scaler_set_state(luge_scaler *scaler, const luge_scaler_state *state);
/** Destroys the scaler; NULL is fine. Optimizers and windows may go before or after. */
LUGE_API void luge_scaler_destroy(luge_scaler *scaler);

LUGE_END_C

#endif
