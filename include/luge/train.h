/** @file train.h
 *  Windows of gradient accumulation, in which several small batches make one step; runs that are saved and
 *  resumed; the largest batch that fits. */
#ifndef LUGE_TRAIN_H
#define LUGE_TRAIN_H

#include <luge/base.h>
#include <luge/data.h>
#include <luge/status.h>

LUGE_BEGIN_C

/** Options of luge_accum_create. */
typedef struct luge_accum_options {
    luge_scaler *scaler; /**< Scales losses; unset: no scaling. */
    luge_sched *sched;   /**< Stepped once per window; unset: none. */
    double clip_norm;    /**< luge_clip_grad_norm of the whole window's gradient; 0: none. */
    double clip_value;   /**< luge_clip_grad_value, before clip_norm; 0: none. */
    LUGE_RESERVED(4);    /**< Zero. */
} luge_accum_options;

/** The mean loss of a batch, one element; runs on the thread that called luge_accum_step, any number of
 *  times. `target` is LUGE_NONE if the batch has none. NULL after an error. */
typedef luge_tensor *(*luge_loss_fn)(luge_tensor *input, luge_tensor *target, void *user);

/** Makes a window of `window` (>= 1) micro-batches over the optimizer's parameters. Optimizer, scaler and
 *  schedule are held and may be destroyed in any order.
 *
 *  A window's gradient is that of the mean over all its items, however many each micro-batch has. Gradients
 *  are summed in the parameters' dtype (f32 under autocast). The last micro-batch of a window unscales,
 *  clips, steps the optimizer, updates the scaler, steps the schedule and drops the gradients. A gradient
 *  that is not finite leaves weights, optimizer and schedule as they are: with a scaler that is no error
 *  and the scale is lowered; without one it is LUGE_ERR_NONFINITE (a GPU says so when the host next waits
 *  for it). The window is over then, and the next one begins clean. */
LUGE_API luge_accum *luge_accum_create(luge_optim *optim, int window, const luge_accum_options *options);
/** Backward of `loss` (one element, the mean over `items` >= 1 items), and the step if this was the last of
 *  a window. If backward fails, nothing has changed. If the step fails for want of memory, its gradients
 *  stay and luge_accum_flush tries again. */
LUGE_API luge_status luge_accum_backward(luge_accum *accum, luge_tensor *loss, int64_t items);
/** Forward and backward of a batch, as luge_accum_backward(accum, loss(batch), batch->size). Where memory
 *  runs out, it is done again in halves, quarters, ... of the batch, down to one item: the same gradient,
 *  but for rounding. Before each attempt, random numbers are those that the failed one began with, and what
 *  it wrote into tensors that were there before (running statistics) is taken back. BatchNorm sees the
 *  parts, not the whole; the log says so once. If not even one item fits, that is LUGE_ERR_OUT_OF_MEMORY,
 *  and everything is as before the call. */
LUGE_API luge_status luge_accum_step(luge_accum *accum, const luge_batch *batch, luge_loss_fn loss, void *user);
/** Ends a window that is not full: steps with what it has. With no micro-batch since the last step, nothing
 *  happens. To be called at the end of an epoch. */
LUGE_API luge_status luge_accum_flush(luge_accum *accum);
/** Micro-batches since the last step; 0 for NULL. */
LUGE_API int luge_accum_pending(const luge_accum *accum);
/** Batches that luge_accum_step had to split, so far; 0 for NULL. */
LUGE_API int64_t luge_accum_splits(const luge_accum *accum);
/** Destroys the window; NULL is fine. Gradients stay. */
LUGE_API void luge_accum_destroy(luge_accum *accum);

/** What belongs to one training run. Unset parts are neither saved nor loaded. */
typedef struct luge_run {
    const char *name;            /**< Prefix of all names in the file; needed where runs are chained. */
    luge_module *module;         /**< Weights and buffers, under PyTorch's names. */
    luge_optim *optim;           /**< State of its parameters, and where its schedule is. */
    luge_sched *sched;           /**< Of `optim`. */
    luge_scaler *scaler;         /**< Scale and counts. */
    luge_accum *accum;           /**< An open window, with its gradients. */
    luge_loader *loader;         /**< Epoch, place in it, seed, batch size. */
    const struct luge_run *next; /**< Another run in the same file: a second net with its optimizer. */
    int keep_last;               /**< So many older files are kept beside it: PATH.1 is the last, PATH.2 the one before. */
    LUGE_RESERVED(8);            /**< Zero. */
} luge_run;

/** Saves a run as one safetensors file, with the thread's random numbers: replaced in one step, so that a crash
 *  at any moment leaves the old file or the new one. A run that loads it goes on with the same bits as if it had
 *  never stopped, also in the middle of an epoch and of a window. Waits for a device. */
LUGE_API luge_status luge_run_save(const luge_run *run, const char *path) LUGE_MUST_CHECK;
/** Loads what luge_run_save has written, into a run that has the same parts. All of the file is read, its checksum
 *  compared, and every difference reported at once (LUGE_ERR_FORMAT) before anything is changed. */
LUGE_API luge_status luge_run_load(const luge_run *run, const char *path);
/** luge_run_load; where there is no such file nothing happens: a fresh start. */
LUGE_API luge_status luge_run_resume(const luge_run *run, const char *path);

/** Forward, backward and step with a batch of that size; LUGE_ERR_OUT_OF_MEMORY where it does not fit. Runs in a
 *  scope, on the thread that called luge_find_batch_size, any number of times. */
typedef luge_status (*luge_trial_fn)(int64_t batch_size, void *user);
/** The largest size in [1, limit] for which `trial` fits, found by doubling and halving; 0 if 1 does not
 *  (LUGE_ERR_OUT_OF_MEMORY) or on another error. The run and the thread's random numbers are afterwards as they
 *  were, gradients too; what they were lies in host memory meanwhile. */
LUGE_API int64_t luge_find_batch_size(const luge_run *run, int64_t limit, luge_trial_fn trial, void *user);

LUGE_END_C

#endif
