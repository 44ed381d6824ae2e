/* The parts of a run by name: see run_items.h. */
#include "train/run_items.h"

#include <luge/amp.h>
#include <luge/ops.h>
#include <stdio.h>
#include <string.h>

#include "amp/scaler.h"
#include "core/alloc.h"
#include "core/thread.h"
#include "data/loader.h"
#include "nn/values.h"
#include "optim/state.h"
#include "train/accum.h"

enum { RANDOM_NUMBERS = 2, SCALER_NUMBERS = 3, MOST_NUMBERS = 8 };

/* ---- collecting */

static lg_run_item *add(lg_run_items *items, lg_run_kind kind, const luge_run *run, const char *what, const char *path)
{
    if (items->count == items->room) {
        const int room = items->room == 0 ? 64 : 2 * items->room;
        lg_run_item *bigger = lg_resize(items->item, (size_t)room * sizeof *bigger);
        if (bigger == NULL) return NULL;
        items->item = bigger;
        items->room = room;
    }
    const char *prefix = run->name != NULL ? run->name : "";
    const size_t room = strlen(prefix) + strlen(what) + strlen(path) + 3;
    char *name = lg_alloc(room);
    if (name == NULL) return NULL;
    snprintf(name, room, "%s%s%s%s%s", prefix, prefix[0] != '\0' ? "." : "", what, what[0] != '\0' && path[0] != '\0' ? "." : "", path);
    lg_run_item *item = &items->item[items->count++];
    *item = (lg_run_item){.kind = kind, .run = run, .name = name};
    return item;
}

static void add_module(lg_run_items *items, const luge_run *run)
{
    lg_items all;
    if (lg_items_collect(&all, run->module, LG_PARAMS | LG_BUFFERS) != LUGE_OK) return;
    for (int i = 0; i < all.count && lg_ok(); ++i) {
        if (all.item[i].first != i) continue; /* tied: under its first name */
        lg_run_item *item = add(items, LG_RUN_MODULE, run, "", all.item[i].path);
        if (item != NULL) item->handle = all.item[i].tensor;
    }
    lg_items_free(&all);
}

static void add_optim(lg_run_items *items, const luge_run *run)
{
    const luge_optim *o = run->optim;
    char what[64];
    for (int i = 0; i < o->count && lg_ok(); ++i)
        for (int k = 0; k < lg_state_count(o) && lg_ok(); ++k) {
            snprintf(what, sizeof what, "luge.optim.%s", lg_state_name(o, k));
            lg_run_item *item = add(items, LG_RUN_STATE, run, what, o->param[i].name);
            if (item == NULL) return;
            item->index = i;
            item->k = k;
        }
    if (lg_ok()) add(items, LG_RUN_STEPS, run, "luge.optim.steps", "");
}

static void add_window(lg_run_items *items, const luge_run *run)
{
    for (int i = 0; i < run->optim->count && lg_ok(); ++i) {
        lg_run_item *item = add(items, LG_RUN_GRADIENT, run, "luge.accum.grad", run->optim->param[i].name);
        if (item != NULL) item->index = i;
    }
    if (lg_ok()) add(items, LG_RUN_ACCUM, run, "luge.accum", "");
}

static luge_status check_run(const luge_run *first, const luge_run *run, const char *what)
{
    if (!lg_check_reserved(run->reserved, 8, what)) return lg_error();
    if (run->keep_last < 0) return lg_fail(LUGE_ERR_ARGUMENT, "%s: keep_last is %d", what, run->keep_last);
    if (run->accum != NULL && run->optim == NULL)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: a window without its optimizer cannot be saved", what);
    if (run->sched != NULL && lg_sched_optim(run->sched) != run->optim)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: the schedule belongs to another optimizer than the run's", what);
    for (const luge_run *other = first; other != run; other = other->next) {
        if (other->name != NULL && run->name != NULL && strcmp(other->name, run->name) != 0) continue;
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: chained runs need names, each another", what);
    }
    return LUGE_OK;
}

luge_status lg_run_collect(lg_run_items *items, const luge_run *run, const char *what)
{
    *items = (lg_run_items){0};
    if (run == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: the run is NULL", what);
    for (const luge_run *r = run; r != NULL && lg_ok(); r = r->next) {
        if (check_run(run, r, what) != LUGE_OK) break;
        if (r->module != NULL && lg_check_module(r->module, what)) add_module(items, r);
        if (r->optim != NULL && lg_ok()) add_optim(items, r);
        if (r->sched != NULL && lg_ok()) add(items, LG_RUN_POSITION, r, "luge.sched", "");
        if (r->scaler != NULL && lg_ok()) add(items, LG_RUN_SCALER, r, "luge.scaler", "");
        if (r->accum != NULL && lg_ok()) add_window(items, r);
        if (r->loader != NULL && lg_ok()) add(items, LG_RUN_LOADER, r, "luge.loader", "");
    }
    if (lg_ok()) add(items, LG_RUN_RANDOM, &(luge_run){.name = NULL}, "luge.random", "");
    if (!lg_ok()) lg_run_items_free(items);
    return lg_error();
}

void lg_run_items_free(lg_run_items *items)
{
    for (int i = 0; i < items->count; ++i) {
        luge_release(items->item[i].value);
        lg_free(items->item[i].name);
    }
    lg_free(items->item);
    *items = (lg_run_items){0};
}

/* ---- what they are */

bool lg_run_is_optional(const lg_run_item *item)
{
    return item->kind == LG_RUN_STATE || item->kind == LG_RUN_GRADIENT;
}

static lg_param *param_of(const lg_run_item *item)
{
    return &item->run->optim->param[item->index];
}

luge_shape lg_run_shape(const lg_run_item *item)
{
    switch (item->kind) {
    case LG_RUN_MODULE: return item->handle->shape;
    case LG_RUN_STATE:
    case LG_RUN_GRADIENT: return param_of(item)->tensor->shape;
    case LG_RUN_STEPS: return LUGE_SHAPE(item->run->optim->count);
    case LG_RUN_POSITION: return LUGE_SHAPE(1);
    case LG_RUN_SCALER: return LUGE_SHAPE(SCALER_NUMBERS);
    case LG_RUN_ACCUM: return LUGE_SHAPE(LG_ACCUM_NUMBERS);
    case LG_RUN_LOADER: return LUGE_SHAPE(LG_LOADER_NUMBERS);
    default: return LUGE_SHAPE(RANDOM_NUMBERS);
    }
}

/* On the host, whatever the default device is. */
static luge_tensor *numbers(luge_dtype dtype, const void *values, int64_t count)
{
    luge_tensor *t = luge_empty(LUGE_SHAPE(count), &(luge_tensor_options){.dtype = dtype, .device = luge_device_cpu()});
    if (t != NULL && count > 0) memcpy(lg_data(t), values, (size_t)count * luge_dtype_size(dtype));
    return t;
}

static luge_tensor *steps_of(const luge_optim *o)
{
    luge_tensor *t = luge_empty(LUGE_SHAPE(o->count), &(luge_tensor_options){.dtype = LUGE_F32, .device = luge_device_cpu()});
    return t != NULL && lg_state_read_steps(o, lg_data(t)) == LUGE_OK ? t : NULL;
}

luge_tensor *lg_run_get(const lg_run_item *item)
{
    const luge_run *r = item->run;
    int64_t whole[MOST_NUMBERS];
    luge_scaler_state scale;
    const lg_thread *self = lg_self();
    switch (item->kind) {
    case LG_RUN_MODULE: return item->handle;
    case LG_RUN_STATE: return param_of(item)->started ? param_of(item)->state[item->k] : NULL;
    case LG_RUN_GRADIENT: return luge_accum_pending(r->accum) > 0 ? param_of(item)->tensor->grad : NULL;
    case LG_RUN_STEPS: return steps_of(r->optim);
    case LG_RUN_POSITION: return numbers(LUGE_F64, (double[]){lg_optim_scalar(r->optim, LG_OPTIM_POSITION)}, 1);
    case LG_RUN_SCALER:
        if (luge_scaler_get_state(r->scaler, &scale) != LUGE_OK) return NULL;
        return numbers(LUGE_F64, (double[]){scale.scale, (double)scale.growth_tracker, (double)scale.skips}, SCALER_NUMBERS);
    case LG_RUN_ACCUM: return lg_accum_get(r->accum, whole) == LUGE_OK ? numbers(LUGE_I64, whole, LG_ACCUM_NUMBERS) : NULL;
    case LG_RUN_LOADER: lg_loader_get(r->loader, whole); return numbers(LUGE_I64, whole, LG_LOADER_NUMBERS);
    default: return numbers(LUGE_I64, (int64_t[]){(int64_t)self->seed, (int64_t)self->rng_offset}, RANDOM_NUMBERS);
    }
}

/* ---- becoming something else */

static const int64_t *whole_numbers(const luge_tensor *t) { return lg_data(t); }
static const double *real_numbers(const luge_tensor *t) { return lg_data(t); }

static luge_scaler_state scale_of(const luge_tensor *t)
{
    const double *v = real_numbers(t);
    return (luge_scaler_state){.scale = v[0], .growth_tracker = (int64_t)v[1], .skips = (int64_t)v[2]};
}

static luge_dtype dtype_of(const lg_run_item *item)
{
    switch (item->kind) {
    case LG_RUN_STEPS: return LUGE_F32;
    case LG_RUN_POSITION:
    case LG_RUN_SCALER: return LUGE_F64;
    default: return LUGE_I64;
    }
}

/* In the dtype, layout and place of what it takes the place of. */
static luge_tensor *fitting(const lg_run_item *item, luge_tensor *value)
{
    switch (item->kind) {
    case LG_RUN_MODULE: return lg_values_like(item->handle, item->handle->dtype, value);
    case LG_RUN_STATE: return lg_values_like(param_of(item)->tensor, lg_state_dtype(param_of(item)->tensor), value);
    case LG_RUN_GRADIENT: return lg_values_like(param_of(item)->tensor, param_of(item)->tensor->dtype, value);
    default:
        if (value->dtype == dtype_of(item)) return luge_retain(value);
        lg_fail(LUGE_ERR_FORMAT, "%s is %s, not %s", item->name, luge_dtype_name(value->dtype), luge_dtype_name(dtype_of(item)));
        return NULL;
    }
}

luge_status lg_run_stage(lg_run_item *item, luge_tensor *value)
{
    if (value == NULL) return LUGE_OK;
    item->value = fitting(item, value);
    if (item->value == NULL) return lg_error();
    switch (item->kind) {
    case LG_RUN_ACCUM: return lg_accum_check(item->run->accum, whole_numbers(item->value));
    case LG_RUN_LOADER: return lg_loader_check(item->run->loader, whole_numbers(item->value));
    case LG_RUN_POSITION:
        if (real_numbers(item->value)[0] >= 0) return LUGE_OK;
        return lg_fail(LUGE_ERR_FORMAT, "%s: a schedule cannot be at step %g", item->name, real_numbers(item->value)[0]);
    default: return LUGE_OK;
    }
}

static luge_tensor *take(lg_run_item *item)
{
    luge_tensor *value = item->value;
    item->value = NULL;
    return value;
}

static void replace(luge_tensor **slot, luge_tensor *value)
{
    luge_release(*slot);
    *slot = value;
}

static luge_status commit(lg_run_item *item)
{
    const luge_run *r = item->run;
    const luge_tensor *value = item->value;
    lg_thread *self = lg_self();
    luge_scaler_state scale;
    switch (item->kind) {
    case LG_RUN_MODULE: lg_tensor_rebind(item->handle, value); return LUGE_OK;
    case LG_RUN_STATE:
        param_of(item)->started = value != NULL;
        replace(&param_of(item)->state[item->k], take(item));
        return LUGE_OK;
    case LG_RUN_GRADIENT: replace(&param_of(item)->tensor->grad, take(item)); return LUGE_OK;
    case LG_RUN_STEPS:
        for (int i = 0; i < r->optim->count; ++i)
            if (((const float *)lg_data(value))[i] > 0) r->optim->param[i].started = true;
        return lg_state_write_steps(r->optim, lg_data(value));
    case LG_RUN_POSITION: return lg_optim_set_position(r->optim, real_numbers(value)[0], lg_sched_factor_at(r->sched, real_numbers(value)[0]));
    case LG_RUN_SCALER: scale = scale_of(value); return luge_scaler_set_state(r->scaler, &scale);
    case LG_RUN_ACCUM: lg_accum_set(r->accum, whole_numbers(value)); return LUGE_OK;
    case LG_RUN_LOADER: lg_loader_set(r->loader, whole_numbers(value)); return LUGE_OK;
    default:
        self->seed = (uint64_t)whole_numbers(value)[0];
        self->rng_offset = (uint64_t)whole_numbers(value)[1];
        return LUGE_OK;
    }
}

luge_status lg_run_commit(lg_run_items *items)
{
    luge_status status = LUGE_OK;
    for (int i = 0; i < items->count; ++i) {
        lg_run_item *item = &items->item[i];
        if (item->value == NULL && !lg_run_is_optional(item)) continue; /* a partial load */
        const luge_status one = commit(item);
        if (status == LUGE_OK) status = one;
        luge_release(take(item));
    }
    return status;
}
