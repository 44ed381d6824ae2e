/* State is made when a parameter is first stepped, follows it to another device, dtype or layout, and is
 * named as PyTorch names it. */
#include "optim/state.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "nn/values.h"

static const char *const state_names[][LG_OPTIM_STATES] = {
    [LG_MULTI_SGD] = {"momentum_buffer"},
    [LG_MULTI_ADAM] = {"exp_avg", "exp_avg_sq"},
    [LG_MULTI_ADAMW] = {"exp_avg", "exp_avg_sq"},
};

int lg_state_count(const luge_optim *o)
{
    if (o->rule.kind == LG_MULTI_SGD) return o->rule.momentum != 0 ? 1 : 0;
    return 2;
}

luge_dtype lg_state_dtype(const luge_tensor *param)
{
    return param->dtype == LUGE_F64 ? LUGE_F64 : LUGE_F32;
}

const char *lg_state_name(const luge_optim *o, int k)
{
    return state_names[o->rule.kind][k];
}

luge_status lg_state_read_steps(const luge_optim *o, float *steps)
{
    lg_device *device = o->steps->storage->device;
    return o->count == 0 ? LUGE_OK : device->backend->to_host(device, steps, lg_data(o->steps), (size_t)o->count * sizeof *steps);
}

luge_status lg_state_write_steps(luge_optim *o, const float *steps)
{
    lg_device *device = o->steps->storage->device;
    return o->count == 0 ? LUGE_OK : device->backend->from_host(device, lg_data(o->steps), steps, (size_t)o->count * sizeof *steps);
}

/* ---- place */

typedef struct scalars {
    luge_tensor *steps, *all, *one[LG_OPTIM_SCALARS];
    luge_tensor **step; /* [count] views */
} scalars;

static void free_scalars(scalars *s, int count)
{
    for (int i = 0; i < count && s->step != NULL; ++i) luge_release(s->step[i]);
    lg_free(s->step);
    luge_release(s->steps);
    for (int i = 0; i < LG_OPTIM_SCALARS; ++i) luge_release(s->one[i]);
    luge_release(s->all);
}

/* Zeros of that shape on the device, or the values of `from`. */
static luge_tensor *make_vector(lg_device *device, luge_dtype dtype, int64_t n, luge_tensor *from)
{
    const luge_shape shape = LUGE_SHAPE(n);
    luge_tensor *layout = lg_tensor_create(device, dtype, &shape, NULL);
    luge_tensor *made = layout != NULL ? lg_values_like(layout, dtype, from) : NULL;
    luge_release(layout);
    return made;
}

/* Zeros and a factor of 1, or what the optimizer has on another device. */
static luge_status make_scalars(scalars *s, const luge_optim *o, lg_device *device)
{
    const luge_shape scalar = LUGE_SCALAR;
    s->steps = make_vector(device, LUGE_F32, o->count, o->steps);
    s->all = make_vector(device, LUGE_F64, LG_OPTIM_SCALARS, o->scalars);
    s->step = lg_alloc_zero((size_t)o->count * sizeof *s->step + 1);
    if (s->steps == NULL || s->all == NULL || s->step == NULL) return lg_error();
    for (int i = 0; i < o->count; ++i) {
        s->step[i] = lg_tensor_view(s->steps, &scalar, s->steps->stride, i);
        if (s->step[i] == NULL) return lg_error();
    }
    for (int i = 0; i < LG_OPTIM_SCALARS; ++i) {
        s->one[i] = lg_tensor_view(s->all, &scalar, s->all->stride, i);
        if (s->one[i] == NULL) return lg_error();
    }
    const double factor = 1;
    if (o->scalars != NULL) return LUGE_OK;
    return device->backend->from_host(device, lg_data(s->one[LG_OPTIM_FACTOR]), &factor, sizeof factor);
}

static void exchange(luge_tensor **a, luge_tensor **b)
{
    luge_tensor *t = *a;
    *a = *b;
    *b = t;
}

luge_status lg_state_place(luge_optim *o, lg_device *device)
{
    if (o->steps != NULL && o->steps->storage->device == device) return LUGE_OK;
    scalars s = {0};
    const luge_status status = make_scalars(&s, o, device);
    if (status == LUGE_OK) { /* exchange: the old ones are freed below */
        exchange(&o->steps, &s.steps);
        exchange(&o->scalars, &s.all);
        for (int i = 0; i < o->count; ++i) exchange(&o->param[i].step, &s.step[i]);
        for (int i = 0; i < LG_OPTIM_SCALARS; ++i) exchange(&o->scalar[i], &s.one[i]);
    }
    free_scalars(&s, o->count);
    return status;
}

/* ---- state of one parameter */

/* Whether `state` can be stepped with the parameter as it is. */
static bool fits(const luge_tensor *state, const luge_tensor *param)
{
    return state->dtype == lg_state_dtype(param) && state->storage->device == param->storage->device &&
           memcmp(state->stride, param->stride, (size_t)param->shape.rank * sizeof param->stride[0]) == 0;
}

static void drop_new(luge_optim *o, int n)
{
    for (int i = 0; i < n; ++i) {
        const lg_param *p = &o->param[o->item_of[i]];
        for (int k = 0; k < LG_OPTIM_STATES; ++k) {
            if (o->item[i].state[k] != p->state[k]) luge_release(o->item[i].state[k]);
        }
    }
}

static void keep_new(luge_optim *o, int n)
{
    for (int i = 0; i < n; ++i) {
        lg_param *p = &o->param[o->item_of[i]];
        p->started = true;
        for (int k = 0; k < LG_OPTIM_STATES; ++k) {
            if (o->item[i].state[k] == p->state[k]) continue;
            luge_release(p->state[k]);
            p->state[k] = o->item[i].state[k];
        }
    }
}

luge_status lg_state_prepare(luge_optim *o, int n, lg_device *device)
{
    if (lg_state_place(o, device) != LUGE_OK) return lg_error();
    const int states = lg_state_count(o);
    for (int i = 0; i < n; ++i) {
        const lg_param *p = &o->param[o->item_of[i]];
        for (int k = 0; k < states; ++k) {
            luge_tensor *state = p->state[k];
            if (state == NULL || !fits(state, p->tensor)) {
                state = lg_values_like(p->tensor, lg_state_dtype(p->tensor), state);
                if (state == NULL) {
                    drop_new(o, i + 1); /* what this item has is old, new, or not set */
                    return lg_error();
                }
            }
            o->item[i].state[k] = state;
        }
    }
    keep_new(o, n);
    return LUGE_OK;
}

/* ---- by name */

static float read_step(const lg_param *p)
{
    float steps = 0;
    lg_device *device = p->step->storage->device;
    device->backend->to_host(device, &steps, lg_data(p->step), sizeof steps);
    return steps;
}

static luge_status write_step(lg_param *p, float steps)
{
    lg_device *device = p->step->storage->device;
    return device->backend->from_host(device, lg_data(p->step), &steps, sizeof steps);
}

int64_t luge_optim_steps(const luge_optim *optim)
{
    if (optim == NULL || optim->steps == NULL) return 0;
    void *buffer;
    const float *steps = lg_host_elements(optim->steps, &buffer);
    float most = 0;
    for (int i = 0; i < optim->count && steps != NULL; ++i) most = fmaxf(most, steps[i]);
    lg_free(buffer);
    return (int64_t)most;
}

luge_status luge_optim_each_state(luge_optim *optim, luge_optim_state_fn visit, void *user)
{
    static const char what[] = "luge_optim_each_state";
    if (!lg_ok() || !lg_check_optim(optim, what)) return lg_error();
    if (visit == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: the function is NULL", what);
    for (int i = 0; i < optim->count && lg_ok(); ++i) {
        const lg_param *p = &optim->param[i];
        if (!p->started) continue;
        for (int k = 0; k < lg_state_count(optim) && lg_ok(); ++k) {
            if (p->state[k] != NULL && lg_lend(p->state[k]) != NULL) {
                visit(p->name, state_names[optim->rule.kind][k], p->state[k], user);
            }
        }
        if (lg_ok() && lg_lend(p->step) != NULL) visit(p->name, "step", p->step, user);
    }
    return lg_error();
}

static lg_param *find_param(luge_optim *o, const char *name)
{
    for (int i = 0; i < o->count; ++i) {
        if (strcmp(o->param[i].name, name) == 0) return &o->param[i];
    }
    return NULL;
}

static luge_status set_step(lg_param *p, luge_tensor *value)
{
    const double steps = luge_item(value);
    if (!lg_ok()) return lg_error();
    if (!(steps >= 0) || steps != floor(steps) || isinf(steps)) {
        return lg_fail(LUGE_ERR_ARGUMENT, "luge_optim_set_state: %g is no number of steps", steps);
    }
    if (write_step(p, (float)steps) != LUGE_OK) return lg_error();
    return LUGE_OK;
}

/* Sets state k, and the others to zero where there are none. */
static luge_status set_tensor(luge_optim *o, lg_param *p, int k, luge_tensor *value)
{
    luge_tensor *made[LG_OPTIM_STATES] = {0};
    for (int j = 0; j < lg_state_count(o) && lg_ok(); ++j) {
        if (j == k || p->state[j] == NULL) {
            made[j] = lg_values_like(p->tensor, lg_state_dtype(p->tensor), j == k ? value : NULL);
        }
    }
    /* A momentum that is there already is not the first: PyTorch saves no count with it. */
    if (lg_ok() && o->rule.kind == LG_MULTI_SGD && read_step(p) == 0) write_step(p, 1);
    for (int j = 0; j < LG_OPTIM_STATES; ++j) {
        if (made[j] == NULL) continue;
        luge_release(lg_ok() ? p->state[j] : made[j]);
        if (lg_ok()) p->state[j] = made[j];
    }
    return lg_error();
}

luge_status luge_optim_set_state(luge_optim *optim, const char *param, const char *what, luge_tensor *value)
{
    static const char self[] = "luge_optim_set_state";
    if (!lg_ok() || !lg_check_optim(optim, self) || !lg_check_tensor(value, self)) return lg_error();
    if (param == NULL || what == NULL) {
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: the %s is NULL", self,
                       param == NULL ? "parameter's name" : "state's name");
    }
    lg_param *p = find_param(optim, param);
    if (p == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: there is no parameter \"%s\"", self, param);
    luge_status status;
    if (strcmp(what, "step") == 0) {
        status = set_step(p, value);
    } else {
        int k = 0;
        while (k < lg_state_count(optim) && strcmp(what, state_names[optim->rule.kind][k]) != 0) ++k;
        if (k == lg_state_count(optim)) {
            return lg_fail(LUGE_ERR_ARGUMENT, "%s: this optimizer has no state \"%s\"", self, what);
        }
        if (!lg_shape_equal(&value->shape, &p->tensor->shape)) {
            char a[LG_SHAPE_TEXT], b[LG_SHAPE_TEXT];
            return lg_fail(LUGE_ERR_SHAPE, "%s: %s of %s is %s, the parameter %s", self, what, param,
                           lg_shape_text(a, &value->shape), lg_shape_text(b, &p->tensor->shape));
        }
        status = set_tensor(optim, p, k, value);
    }
    if (status == LUGE_OK) p->started = true;
    return status;
}
