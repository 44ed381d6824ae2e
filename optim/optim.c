/* Optimizers: making them, their settings by name, stepping. What a step does to an element is in
 * ops/update_rules.h; backends run it over all parameters in one pass. A step that fails has changed
 * nothing: all it needs is allocated before anything is updated. */
#include "optim/optim.h"

#include <luge/nn.h>
#include <luge/ops.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"
#include "nn/module.h"
#include "nn/pattern.h"
#include "nn/values.h"
#include "optim/state.h"

bool lg_check_optim(const luge_optim *o, const char *what)
{
    if (o == NULL) lg_fail(LUGE_ERR_ARGUMENT, "%s: the optimizer is NULL", what);
    return o != NULL;
}

/* ---- making */

static void add_param(const char *name, luge_tensor *tensor, void *user)
{
    luge_optim *o = user;
    if (o->count == o->room) {
        const int room = o->room == 0 ? 8 : 2 * o->room;
        lg_param *bigger = lg_resize(o->param, (size_t)room * sizeof *bigger);
        if (bigger == NULL) return;
        o->param = bigger;
        o->room = room;
    }
    char *copy = lg_copy_text(name);
    if (copy == NULL) return;
    o->param[o->count++] = (lg_param){.name = copy, .tensor = luge_retain(tensor), .lr = o->lr};
}

static luge_optim *make(luge_module *params, const lg_multi *rule, double lr, double weight_decay, const char *what)
{
    if (!lg_ok() || !lg_check_module(params, what)) return NULL;
    luge_optim *o = lg_alloc_zero(sizeof *o);
    if (o == NULL) return NULL;
    atomic_init(&o->refs, 1);
    lg_count_object(+1);
    o->rule = *rule;
    o->lr = lr;
    luge_module_each_param(params, add_param, o);
    for (int i = 0; i < o->count; ++i) o->param[i].weight_decay = weight_decay;
    o->item = lg_alloc((size_t)o->count * sizeof *o->item + 1);
    o->item_of = lg_alloc((size_t)o->count * sizeof *o->item_of + 1);
    lg_device *device = o->count > 0 ? o->param[0].tensor->storage->device : lg_device_get((luge_device){0});
    if (lg_ok()) lg_state_place(o, device);
    if (lg_ok()) return o;
    lg_optim_release(o);
    return NULL;
}

luge_optim *lg_optim_retain(luge_optim *o)
{
    atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
    return o;
}

void lg_optim_release(luge_optim *o)
{
    if (o == NULL || atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) != 1) return;
    for (int i = 0; i < o->count; ++i) {
        lg_param *p = &o->param[i];
        for (int k = 0; k < LG_OPTIM_STATES; ++k) luge_release(p->state[k]);
        luge_release(p->step);
        luge_release(p->tensor);
        lg_free(p->name);
    }
    luge_release(o->norm);
    for (int i = 0; i < LG_OPTIM_SCALARS; ++i) luge_release(o->scalar[i]);
    luge_release(o->scalars);
    luge_release(o->steps);
    lg_free(o->item_of);
    lg_free(o->item);
    lg_free(o->param);
    lg_free(o);
    lg_count_object(-1);
}

void luge_optim_destroy(luge_optim *optim)
{
    lg_optim_release(optim);
}

/* A setting in [0, below), finite; `below` INFINITY for any. */
static bool check_setting(const char *what, const char *name, double value, double below)
{
    if (!lg_ok()) return false;
    if (value >= 0 && value < below) return true;
    if (isinf(below)) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: %s must be 0 or more, not %g", what, name, value);
    } else {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: %s must be in [0, %g), not %g", what, name, below, value);
    }
    return false;
}

luge_optim *luge_sgd_create(luge_module *params, double lr, const luge_sgd_options *options)
{
    static const char what[] = "luge_sgd_create";
    const luge_sgd_options o = options != NULL ? *options : (luge_sgd_options)LUGE_DEFAULTS;
    if (!check_setting(what, "lr", lr, INFINITY) || !check_setting(what, "momentum", o.momentum, INFINITY) ||
        !check_setting(what, "dampening", o.dampening, INFINITY) ||
        !check_setting(what, "weight_decay", o.weight_decay, INFINITY) ||
        !lg_check_reserved(o.reserved, 4, "luge_sgd_options")) {
        return NULL;
    }
    if (o.nesterov && (o.momentum == 0 || o.dampening != 0)) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: nesterov needs momentum, and no dampening", what);
        return NULL;
    }
    const lg_multi rule = {
        .kind = LG_MULTI_SGD, .momentum = o.momentum, .dampening = o.dampening, .nesterov = o.nesterov};
    return make(params, &rule, lr, o.weight_decay, what);
}

static luge_optim *make_adam(luge_module *params, lg_multi_kind kind, double lr, double weight_decay,
                             const luge_adam_options *o, const char *what)
{
    const bool default_betas = o->betas[0] == 0 && o->betas[1] == 0;
    const lg_multi rule = {.kind = kind,
                           .beta1 = default_betas ? 0.9 : o->betas[0],
                           .beta2 = default_betas ? 0.999 : o->betas[1],
                           .eps = o->eps != 0 ? o->eps : 1e-8};
    if (!check_setting(what, "lr", lr, INFINITY) || !check_setting(what, "weight_decay", weight_decay, INFINITY) ||
        !check_setting(what, "betas[0]", rule.beta1, 1) || !check_setting(what, "betas[1]", rule.beta2, 1) ||
        !check_setting(what, "eps", rule.eps, INFINITY) || !lg_check_reserved(o->reserved, 4, "luge_adam_options")) {
        return NULL;
    }
    return make(params, &rule, lr, weight_decay, what);
}

luge_optim *luge_adam_create(luge_module *params, double lr, const luge_adam_options *options)
{
    const luge_adam_options o = options != NULL ? *options : (luge_adam_options)LUGE_DEFAULTS;
    return make_adam(params, LG_MULTI_ADAM, lr, o.weight_decay, &o, "luge_adam_create");
}

luge_optim *luge_adamw_create(luge_module *params, double lr, double weight_decay, const luge_adam_options *options)
{
    static const char what[] = "luge_adamw_create";
    const luge_adam_options o = options != NULL ? *options : (luge_adam_options)LUGE_DEFAULTS;
    if (o.weight_decay != 0) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the decay is an argument; options->weight_decay must be 0", what);
        return NULL;
    }
    return make_adam(params, LG_MULTI_ADAMW, lr, weight_decay, &o, what);
}

/* ---- settings */

typedef enum setting { SET_LR, SET_WEIGHT_DECAY } setting;

static luge_status set(luge_optim *o, const char *pattern, setting which, double value, const char *what)
{
    const char *name = which == SET_LR ? "lr" : "weight_decay";
    if (!lg_ok() || !lg_check_optim(o, what) || !check_setting(what, name, value, INFINITY)) return lg_error();
    if (lg_pattern_check(pattern, what) != LUGE_OK) return lg_error();
    bool found = false;
    for (int i = 0; i < o->count; ++i) {
        lg_param *p = &o->param[i];
        if (!lg_pattern_match(pattern, p->name, p->tensor->shape.rank)) continue;
        *(which == SET_LR ? &p->lr : &p->weight_decay) = value;
        found = true;
    }
    if (!found) {
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: none of the %d parameters matches \"%s\"", what, o->count,
                       pattern != NULL ? pattern : "*");
    }
    if (which == SET_LR && pattern == NULL) o->lr = value;
    return LUGE_OK;
}

luge_status luge_optim_set_lr(luge_optim *optim, const char *pattern, double lr)
{
    return set(optim, pattern, SET_LR, lr, "luge_optim_set_lr");
}

luge_status luge_optim_set_weight_decay(luge_optim *optim, const char *pattern, double weight_decay)
{
    return set(optim, pattern, SET_WEIGHT_DECAY, weight_decay, "luge_optim_set_weight_decay");
}

double luge_optim_lr(const luge_optim *optim)
{
    if (optim == NULL) return NAN;
    double most = optim->count > 0 ? 0 : optim->lr;
    for (int i = 0; i < optim->count; ++i) most = fmax(most, optim->param[i].lr);
    return most * lg_optim_scalar(optim, LG_OPTIM_FACTOR);
}

luge_status lg_optim_set_position(luge_optim *o, double position, double factor)
{
    const double both[] = {factor, position};
    _Static_assert(LG_OPTIM_FACTOR == 0 && LG_OPTIM_POSITION == 1, "they lie side by side");
    lg_device *device = o->scalars->storage->device;
    return device->backend->from_host(device, lg_data(o->scalars), both, sizeof both);
}

double lg_optim_scalar(const luge_optim *o, int which)
{
    double value = NAN;
    lg_device *device = o->scalars->storage->device;
    device->backend->to_host(device, &value, lg_data(o->scalar[which]), sizeof value);
    return value;
}

luge_status lg_optim_run(luge_optim *o, const lg_multi *work)
{
    lg_device *device = o->scalars->storage->device;
    return device->backend->multi(device, work);
}

/* ---- stepping */

/* Clipping scales gradients in place, which must not meet an element twice. */
static luge_tensor *own_gradient(luge_tensor *param)
{
    if (!lg_strides_overlap(&param->grad->shape, param->grad->stride)) return param->grad;
    luge_tensor *dense = lg_values_like(param, param->grad->dtype, param->grad);
    if (dense == NULL) return NULL;
    luge_release(param->grad);
    return param->grad = dense;
}

int lg_optim_gather(luge_optim *o, const char *what, lg_device **device)
{
    int n = 0;
    *device = NULL;
    for (int i = 0; i < o->count; ++i) {
        luge_tensor *param = o->param[i].tensor;
        if (param->grad == NULL || !param->requires_grad) continue;
        lg_device *here = param->storage->device;
        luge_tensor *grad = own_gradient(param);
        if (grad == NULL) return -1;
        if (*device != NULL && here != *device) {
            lg_fail(LUGE_ERR_DEVICE, "%s: %s is on another device than the parameters before it", what,
                    o->param[i].name);
            return -1;
        }
        if (grad->dtype != param->dtype || grad->storage->device != here ||
            !lg_shape_equal(&grad->shape, &param->shape)) {
            lg_fail(LUGE_ERR_STATE, "%s: the gradient of %s is of another dtype, device or shape than it", what,
                    o->param[i].name);
            return -1;
        }
        *device = here;
        o->item_of[n] = i;
        o->item[n++] = (lg_multi_item){.grad = grad};
    }
    return n;
}

int lg_optim_prepare(luge_optim *o, const char *what, lg_device **device)
{
    const int n = lg_optim_gather(o, what, device);
    return n > 0 && lg_state_prepare(o, n, *device) != LUGE_OK ? -1 : n;
}

/* Whether the gradients are known to be useless. Looking at a device's memory would wait for it, so
 * there it reports by itself. */
static bool is_nonfinite(const luge_optim *o)
{
    if (o->norm == NULL || !lg_on_host(o->norm->storage->device)) return false;
    return !isfinite(*(const double *)lg_data(o->norm));
}

/* On the host, whether the step is to be left out without an error. */
static bool is_found(const luge_tensor *found)
{
    return found != NULL && lg_on_host(found->storage->device) && *(const float *)lg_data(found) != 0;
}

static void complete_items(luge_optim *o, int n)
{
    for (int i = 0; i < n; ++i) {
        lg_param *p = &o->param[o->item_of[i]];
        o->item[i].param = p->tensor;
        o->item[i].step = p->step;
        o->item[i].lr_scale = p->lr;
        o->item[i].weight_decay = p->weight_decay;
    }
}

luge_status lg_optim_step_all(luge_optim *o, const char *what, luge_tensor *found)
{
    if (!is_found(found) && is_nonfinite(o)) {
        const double skip = 1;
        memcpy(lg_data(o->scalar[LG_OPTIM_SKIP]), &skip, sizeof skip);
        return lg_fail(LUGE_ERR_NONFINITE,
                       "%s: the norm of the gradients is %g: nothing was changed; drop them and go on", what,
                       *(const double *)lg_data(o->norm));
    }
    lg_device *device;
    const int n = lg_optim_prepare(o, what, &device);
    if (n < 0) return lg_error();
    if (n == 0) device = o->scalars->storage->device;
    complete_items(o, n);
    lg_multi work = o->rule;
    work.item = o->item;
    work.count = n;
    work.lr = o->scalar[LG_OPTIM_FACTOR];
    work.norm = o->norm; /* a device looks at it itself */
    work.found = found;
    work.skip = o->scalar[LG_OPTIM_SKIP];
    const luge_status status = device->backend->multi(device, &work);
    for (int i = 0; i < n && status == LUGE_OK; ++i) lg_bump_version(o->item[i].param);
    return status;
}

luge_status luge_optim_step(luge_optim *optim)
{
    static const char what[] = "luge_optim_step";
    if (!lg_ok() || !lg_check_optim(optim, what)) return lg_error();
    return lg_optim_step_all(optim, what, NULL);
}

void lg_optim_drop_gradients(luge_optim *o)
{
    for (int i = 0; i < o->count; ++i) {
        luge_tensor *param = o->param[i].tensor;
        luge_release(param->grad);
        param->grad = NULL;
    }
    luge_release(o->norm);
    o->norm = NULL;
    o->clipped = false;
}

luge_status luge_optim_zero_grad(luge_optim *optim)
{
    if (!lg_ok() || !lg_check_optim(optim, "luge_optim_zero_grad")) return lg_error();
    lg_optim_drop_gradients(optim);
    return LUGE_OK;
}
