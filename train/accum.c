/* Windows of gradient accumulation. A micro-batch's loss counts by its items, in units of the first
 * micro-batch's, so that losses of equal batches are not multiplied and f16 gradients keep their size; the
 * sum is divided by all items, in the same units, before the step. */
#include <luge/autograd.h>
#include <luge/ops.h>
#include <luge/train.h>
#include <math.h>
#include <stdio.h>

#include "amp/scaler.h"
#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"
#include "core/undo.h"
#include "optim/optim.h"
#include "train/accum.h"

/* What is done at the end of a window, in this order. */
typedef enum stage { UNSCALE, CLIP_VALUE, CLIP_NORM, STEP, UPDATE, SCHEDULE, DONE } stage;

struct luge_accum {
    luge_optim *optim; /* references */
    luge_scaler *scaler;
    luge_sched *sched;
    double clip_norm, clip_value;
    int window, micro;    /* micro-batches in a window; since the last step */
    int64_t items, first; /* of these; of the first of them */
    stage stage;          /* what comes next at the end of the window */
    int64_t splits;
    bool warned;          /* that splitting changes statistics of batches */
};

static bool check_accum(const luge_accum *a, const char *what)
{
    if (!lg_ok()) return false;
    if (a == NULL) lg_fail(LUGE_ERR_ARGUMENT, "%s: the window is NULL", what);
    return a != NULL;
}

static bool check_limit(const char *name, double limit)
{
    if (limit >= 0) return true;
    lg_fail(LUGE_ERR_ARGUMENT, "luge_accum_create: %s must be more than 0, or 0 for none, not %g", name, limit);
    return false;
}

luge_accum *luge_accum_create(luge_optim *optim, int window, const luge_accum_options *options)
{
    static const char what[] = "luge_accum_create";
    const luge_accum_options o = options != NULL ? *options : (luge_accum_options)LUGE_DEFAULTS;
    if (!lg_ok() || !lg_check_optim(optim, what)) return NULL;
    if (window < 1) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: a window has at least 1 micro-batch, not %d", what, window);
        return NULL;
    }
    if (!check_limit("clip_norm", o.clip_norm) || !check_limit("clip_value", o.clip_value) ||
        !lg_check_reserved(o.reserved, 4, "luge_accum_options"))
        return NULL;
    luge_accum *a = lg_alloc(sizeof *a);
    if (a == NULL) return NULL;
    *a = (luge_accum){.optim = lg_optim_retain(optim),
                      .scaler = lg_scaler_retain(o.scaler),
                      .sched = lg_sched_retain(o.sched),
                      .clip_norm = o.clip_norm,
                      .clip_value = o.clip_value,
                      .window = window};
    lg_count_object(+1);
    return a;
}

void luge_accum_destroy(luge_accum *accum)
{
    if (accum == NULL) return;
    lg_sched_release(accum->sched);
    lg_scaler_release(accum->scaler);
    lg_optim_release(accum->optim);
    lg_free(accum);
    lg_count_object(-1);
}

int luge_accum_pending(const luge_accum *accum)
{
    return accum != NULL ? accum->micro : 0;
}

int64_t luge_accum_splits(const luge_accum *accum)
{
    return accum != NULL ? accum->splits : 0;
}

luge_status lg_accum_get(const luge_accum *a, int64_t numbers[LG_ACCUM_NUMBERS])
{
    if (a->stage != UNSCALE)
        return lg_fail(LUGE_ERR_STATE, "a window's step found no memory; luge_accum_flush ends it");
    numbers[0] = a->micro;
    numbers[1] = a->items;
    numbers[2] = a->first;
    return LUGE_OK;
}

luge_status lg_accum_check(const luge_accum *a, const int64_t numbers[LG_ACCUM_NUMBERS])
{
    const bool empty = numbers[0] == 0 && numbers[1] == 0 && numbers[2] == 0;
    if (empty || (numbers[0] > 0 && numbers[0] <= a->window && numbers[2] > 0 && numbers[1] >= numbers[2])) return LUGE_OK;
    return lg_fail(LUGE_ERR_FORMAT, "%lld micro-batches of %lld items: no state of a window of %d", (long long)numbers[0],
                   (long long)numbers[1], a->window);
}

void lg_accum_set(luge_accum *a, const int64_t numbers[LG_ACCUM_NUMBERS])
{
    a->micro = (int)numbers[0];
    a->items = numbers[1];
    a->first = numbers[2];
    a->stage = UNSCALE;
}

/* ---- the end of a window */

static void begin_window(luge_accum *a)
{
    lg_optim_drop_gradients(a->optim);
    a->micro = 0;
    a->items = a->first = 0;
    a->stage = UNSCALE;
}

static luge_status unscale(luge_accum *a, const char *what)
{
    const double share = (double)a->first / (double)a->items;
    if (a->scaler != NULL) return lg_scaler_unscale(a->scaler, a->optim, share, what);
    return share != 1 ? lg_optim_unscale(a->optim, what, share, NULL, NULL) : LUGE_OK;
}

/* Without a scaler, steps look at the norm. */
static luge_status clip_norm(luge_accum *a, const char *what)
{
    if (a->clip_norm == 0 && a->scaler != NULL) return LUGE_OK;
    const double most = a->clip_norm > 0 ? a->clip_norm : INFINITY;
    return lg_optim_clip_norm(a->optim, what, most, a->optim->scalar[LG_OPTIM_NORM]);
}

/* One of the things that are done at the end of a window. If it finds no memory, it has done nothing. */
static luge_status run_stage(luge_accum *a, const char *what)
{
    switch (a->stage) {
    case UNSCALE: return unscale(a, what);
    case CLIP_VALUE: return a->clip_value > 0 ? luge_clip_grad_value(a->optim, a->clip_value) : LUGE_OK;
    case CLIP_NORM: return clip_norm(a, what);
    case STEP: return a->scaler != NULL ? luge_scaler_step(a->scaler, a->optim) : lg_optim_step_all(a->optim, what, NULL);
    case UPDATE: return a->scaler != NULL ? luge_scaler_update(a->scaler) : LUGE_OK;
    default: return a->sched != NULL ? luge_sched_step(a->sched) : LUGE_OK;
    }
}

/* Goes on where an earlier attempt found no memory. */
static luge_status close_window(luge_accum *a, const char *what)
{
    luge_status status = LUGE_OK;
    while (status == LUGE_OK && a->stage < DONE) {
        status = run_stage(a, what);
        if (status == LUGE_OK) ++a->stage;
    }
    if (status != LUGE_ERR_OUT_OF_MEMORY) begin_window(a);
    return status;
}

luge_status luge_accum_flush(luge_accum *accum)
{
    static const char what[] = "luge_accum_flush";
    if (!check_accum(accum, what)) return lg_error();
    return accum->micro > 0 ? close_window(accum, what) : LUGE_OK;
}

/* ---- one micro-batch */

/* Backward of the mean over `items`, as part of a micro-batch of a window whose first has so many. */
static luge_status add_gradient(luge_accum *a, luge_tensor *loss, int64_t items, int64_t first, const char *what)
{
    char text[LG_SHAPE_TEXT];
    if (loss->numel != 1)
        return lg_fail(LUGE_ERR_SHAPE, "%s: the loss is %s, not one element: a mean over items", what,
                       lg_shape_text(text, &loss->shape));
    if (!loss->requires_grad)
        return lg_fail(LUGE_ERR_GRAPH, "%s: the loss does not require a gradient: nothing that it was made from does", what);
    luge_scope scope = luge_scope_enter("");
    if (items != first) loss = luge_mul_scalar(loss, (double)items / (double)first);
    if (a->scaler != NULL) loss = luge_scaler_scale(a->scaler, loss);
    luge_backward(loss);
    return luge_scope_exit(scope, NULL);
}

static luge_status count(luge_accum *a, int64_t items, const char *what)
{
    if (a->micro++ == 0) a->first = items;
    a->items += items;
    return a->micro >= a->window ? close_window(a, what) : LUGE_OK;
}

/* A window whose end found no memory is closed before another micro-batch joins it. */
static luge_status finish_pending(luge_accum *a, const char *what)
{
    return a->micro >= a->window || a->stage != UNSCALE ? close_window(a, what) : LUGE_OK;
}

static int64_t first_items(const luge_accum *a, int64_t items)
{
    return a->micro == 0 ? items : a->first;
}

luge_status luge_accum_backward(luge_accum *accum, luge_tensor *loss, int64_t items)
{
    static const char what[] = "luge_accum_backward";
    if (!check_accum(accum, what) || !lg_check_tensor(loss, what)) return lg_error();
    if (items < 1) return lg_fail(LUGE_ERR_ARGUMENT, "%s: a loss is the mean of at least 1 item, not %lld", what, (long long)items);
    if (finish_pending(accum, what) != LUGE_OK) return lg_error();
    const luge_status status = add_gradient(accum, loss, items, first_items(accum, items), what);
    return status == LUGE_OK ? count(accum, items, what) : status;
}

/* ---- a batch that may have to be split */

typedef struct splitting {
    luge_accum *accum;
    const luge_batch *batch;
    luge_loss_fn loss;
    void *user;
    const char *what;
    lg_undo undo;
    luge_tensor **before; /* gradients that the window had already, by parameter; NULL until they are set aside */
} splitting;

static luge_tensor *part_of(luge_tensor *t, int64_t from, int64_t to, int64_t size)
{
    return lg_is_none(t) || (from == 0 && to == size) ? t : luge_slice(t, 0, from, to);
}

/* Forward and backward of items [from, to). What fails leaves gradients alone by itself; numbers and
 * statistics are taken back here. */
static luge_status attempt(splitting *s, int64_t from, int64_t to)
{
    lg_thread *self = lg_self();
    const uint64_t seed = self->seed, offset = self->rng_offset;
    const luge_batch *b = s->batch;
    const int kept = s->undo.count;
    luge_scope scope = luge_scope_enter("");
    lg_undo_begin(&s->undo);
    lg_modes modes = self->modes;
    modes.undo = &s->undo;
    lg_mode_enter(modes, NULL, NULL);
    if (lg_ok()) {
        luge_tensor *loss = s->loss(part_of(b->input, from, to, b->size), part_of(b->target, from, to, b->size), s->user);
        if (loss == NULL && lg_ok()) lg_fail(LUGE_ERR_CALLBACK, "%s: the loss function gave NULL and set no error", s->what);
        if (lg_ok()) add_gradient(s->accum, loss, to - from, first_items(s->accum, b->size), s->what);
    }
    const luge_status status = luge_scope_exit(scope, NULL);
    if (status == LUGE_OK) return status;
    self->seed = seed;
    self->rng_offset = offset;
    char text[LG_ERROR_TEXT];
    luge_error_take(text, sizeof text);
    if (lg_undo_back(&s->undo, kept) == LUGE_OK) lg_fail_raw(status, text);
    return status;
}

/* The parts' gradients are collected beside those of the window, so that they can be taken back. */
static luge_status set_aside(splitting *s)
{
    luge_optim *o = s->accum->optim;
    s->before = lg_alloc((size_t)o->count * sizeof *s->before + 1);
    if (s->before == NULL) return lg_error();
    for (int i = 0; i < o->count; ++i) {
        s->before[i] = o->param[i].tensor->grad;
        o->param[i].tensor->grad = NULL;
    }
    return LUGE_OK;
}

/* The window's gradients as they were. */
static void put_back(splitting *s)
{
    luge_optim *o = s->accum->optim;
    for (int i = 0; i < o->count; ++i) {
        luge_release(o->param[i].tensor->grad);
        o->param[i].tensor->grad = s->before[i];
    }
}

/* Adds the parts' gradients to the window's: into new tensors, so that a failure takes nothing. */
static luge_status join(splitting *s)
{
    luge_optim *o = s->accum->optim;
    luge_scope scope = luge_scope_enter("");
    luge_no_grad_enter();
    luge_tensor **sum = lg_alloc((size_t)o->count * sizeof *sum + 1);
    for (int i = 0; sum != NULL && i < o->count; ++i) {
        luge_tensor *grad = o->param[i].tensor->grad;
        sum[i] = s->before[i] == NULL ? grad : grad == NULL ? s->before[i] : luge_add(s->before[i], grad);
    }
    for (int i = 0; lg_ok() && i < o->count; ++i) {
        luge_tensor *param = o->param[i].tensor, *grad = param->grad;
        param->grad = luge_retain(sum[i]);
        luge_release(grad);
        luge_release(s->before[i]);
    }
    lg_free(sum);
    return luge_scope_exit(scope, NULL);
}

static void warn(splitting *s)
{
    luge_accum *a = s->accum;
    if (s->undo.count == 0 || a->warned) return;
    a->warned = true;
    lg_log(LUGE_LOG_WARNING, "%s: a batch is split for want of memory, and the net keeps statistics of its batches: "
           "they are of the parts, as are their gradients", s->what);
}

static luge_status run_parts(splitting *s)
{
    const int64_t n = s->batch->size;
    int64_t size = (n + 1) / 2;
    if (set_aside(s) != LUGE_OK) return lg_error();
    luge_status status = LUGE_OK;
    for (int64_t at = 0; at < n && status == LUGE_OK;) {
        const int64_t end = n - at < size ? n : at + size;
        status = attempt(s, at, end);
        if (status == LUGE_OK) {
            at = end;
        } else if (status == LUGE_ERR_OUT_OF_MEMORY && size > 1) {
            size = (size + 1) / 2;
            luge_error_clear();
            status = LUGE_OK;
        }
    }
    if (status == LUGE_OK) status = join(s);
    if (status == LUGE_OK) warn(s);
    return status;
}

/* Raises the error of a batch that did not fit, even in parts: `first` is what the whole met with. */
static void fail_in_parts(luge_status status, const char *text, const char *first)
{
    char both[LG_ERROR_TEXT];
    snprintf(both, sizeof both, "%.480s; in smaller parts: %.480s", first, text);
    if (status == LUGE_ERR_OUT_OF_MEMORY) /* the smallest part's: it says what is missing in the end */
        lg_fail_raw(status, text);
    else /* as of BatchNorm, which takes no single item */
        lg_fail_raw(LUGE_ERR_OUT_OF_MEMORY, both);
}

/* The batch in parts; if that fails, everything is as before the first attempt. */
static luge_status split(splitting *s)
{
    lg_thread *self = lg_self();
    const uint64_t seed = self->seed, offset = self->rng_offset;
    char first[LG_ERROR_TEXT], text[LG_ERROR_TEXT];
    luge_error_take(first, sizeof first);
    const luge_status status = run_parts(s);
    if (status == LUGE_OK) {
        ++s->accum->splits;
    } else {
        self->seed = seed;
        self->rng_offset = offset;
        luge_error_take(text, sizeof text);
        if (s->before != NULL) put_back(s);
        if (lg_undo_back(&s->undo, 0) == LUGE_OK) fail_in_parts(status, text, first);
    }
    lg_free(s->before);
    return lg_error();
}

static bool check_batch(const luge_batch *b, luge_loss_fn loss, const char *what)
{
    if (b == NULL || loss == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the %s is NULL", what, b == NULL ? "batch" : "loss function");
        return false;
    }
    if (!lg_check_tensor(b->input, what)) return false;
    if (b->target == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the target is NULL; LUGE_NONE says that there is none", what);
        return false;
    }
    const luge_tensor *const both[] = {b->input, lg_is_none(b->target) ? b->input : b->target};
    for (int i = 0; i < 2; ++i) {
        char text[LG_SHAPE_TEXT];
        if (both[i]->shape.rank > 0 && both[i]->shape.dim[0] == b->size && b->size > 0) continue;
        lg_fail(LUGE_ERR_SHAPE, "%s: a batch of %lld items cannot have %s %s", what, (long long)b->size,
                i == 0 ? "input" : "target", lg_shape_text(text, &both[i]->shape));
        return false;
    }
    return true;
}

luge_status luge_accum_step(luge_accum *accum, const luge_batch *batch, luge_loss_fn loss, void *user)
{
    static const char what[] = "luge_accum_step";
    if (!check_accum(accum, what) || !check_batch(batch, loss, what)) return lg_error();
    if (finish_pending(accum, what) != LUGE_OK) return lg_error();
    splitting s = {.accum = accum, .batch = batch, .loss = loss, .user = user, .what = what};
    luge_status status = attempt(&s, 0, batch->size);
    if (status == LUGE_ERR_OUT_OF_MEMORY && batch->size > 1) status = split(&s);
    lg_undo_end(&s.undo);
    return status == LUGE_OK ? count(accum, batch->size, what) : status;
}
