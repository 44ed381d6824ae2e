/* The dynamic scale of losses. Scale, counts and what was found in gradients lie on one device, where
 * passes over the gradients (core/multi.h) read and write them; the host only keeps the order of calls. */
#include "amp/scaler.h"

#include <luge/ops.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/profile.h"
#include "core/services.h"
#include "core/thread.h"
#include "ops/update_rules.h"
#include "optim/optim.h"

typedef enum stage { READY, UNSCALED, STEPPED } stage;

/* An optimizer that the scaler has met. */
typedef struct served {
    luge_optim *optim; /* a reference */
    stage stage;
    luge_tensor *found; /* its element of the scaler's */
} served;

struct luge_scaler {
    atomic_int refs; /* the owner's, and accumulation windows' */
    luge_scaler_options options;
    lg_scaler_rule rule;
    luge_scaler_state start; /* until there is a device */
    luge_tensor *numbers;    /* f32 [LG_SCALER_NUMBERS]; NULL until there is a device */
    luge_tensor *scale;      /* its first, a scalar */
    luge_tensor *found;      /* f32 [room]: not 0 if that optimizer's gradients were not finite */
    served *served;
    int count, room;
};

/* ---- making */

static double or_default(double given, double otherwise)
{
    return given != 0 ? given : otherwise;
}

static void fill_defaults(luge_scaler_options *o)
{
    o->init_scale = or_default(o->init_scale, 65536);
    o->growth_factor = or_default(o->growth_factor, 2);
    o->backoff_factor = or_default(o->backoff_factor, 0.5);
    o->growth_interval = o->growth_interval != 0 ? o->growth_interval : 2000;
    o->min_scale = or_default(o->min_scale, 0x1p-126);
    o->max_scale = or_default(o->max_scale, 0x1p127);
    o->max_skips = o->max_skips != 0 ? o->max_skips : 100;
}

static bool check(const char *name, double value, bool good, const char *range)
{
    if (!lg_ok()) return false;
    if (good && isfinite(value)) return true;
    lg_fail(LUGE_ERR_ARGUMENT, "luge_scaler_create: %s must be %s, not %g", name, range, value);
    return false;
}

static bool check_options(const luge_scaler_options *o)
{
    const double most = 0x1p24; /* counts lie in f32 */
    return check("growth_factor", o->growth_factor, o->growth_factor > 1, "more than 1") &&
           check("backoff_factor", o->backoff_factor, o->backoff_factor > 0 && o->backoff_factor < 1, "between 0 and 1") &&
           check("growth_interval", (double)o->growth_interval,
                 o->growth_interval >= 1 && (double)o->growth_interval < most, "in [1, 2^24)") &&
           check("max_skips", (double)o->max_skips, o->max_skips >= 1 && (double)o->max_skips < most, "in [1, 2^24)") &&
           check("min_scale", o->min_scale, o->min_scale >= 0x1p-126 && o->min_scale <= 0x1p127, "in [2^-126, 2^127]") &&
           check("max_scale", o->max_scale, o->max_scale >= o->min_scale && o->max_scale <= 0x1p127,
                 "from min_scale to 2^127") &&
           check("init_scale", o->init_scale, o->init_scale >= o->min_scale && o->init_scale <= o->max_scale,
                 "between min_scale and max_scale") &&
           lg_check_reserved(o->reserved, 4, "luge_scaler_options");
}

luge_scaler *luge_scaler_create(const luge_scaler_options *options)
{
    luge_scaler_options o = options != NULL ? *options : (luge_scaler_options)LUGE_DEFAULTS;
    fill_defaults(&o);
    if (!lg_ok() || !check_options(&o)) return NULL;
    luge_scaler *s = lg_alloc_zero(sizeof *s);
    if (s == NULL) return NULL;
    atomic_init(&s->refs, 1);
    s->options = o;
    s->rule = (lg_scaler_rule){.growth = o.growth_factor,
                               .backoff = o.backoff_factor,
                               .lowest = o.min_scale,
                               .highest = o.max_scale,
                               .interval = (double)o.growth_interval};
    s->start.scale = (double)(float)o.init_scale;
    lg_count_object(+1);
    return s;
}

luge_scaler *lg_scaler_retain(luge_scaler *s)
{
    if (s != NULL) atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void lg_scaler_release(luge_scaler *s)
{
    if (s == NULL || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
    for (int i = 0; i < s->count; ++i) {
        luge_release(s->served[i].found);
        lg_optim_release(s->served[i].optim);
    }
    luge_release(s->found);
    luge_release(s->scale);
    luge_release(s->numbers);
    lg_free(s->served);
    lg_free(s);
    lg_count_object(-1);
}

void luge_scaler_destroy(luge_scaler *scaler)
{
    lg_scaler_release(scaler);
}

static bool check_scaler(const luge_scaler *s, const char *what)
{
    if (s == NULL) lg_fail(LUGE_ERR_ARGUMENT, "%s: the scaler is NULL", what);
    return s != NULL;
}

/* ---- numbers on the device */

static luge_status write_numbers(luge_scaler *s, const luge_scaler_state *state)
{
    const float numbers[LG_SCALER_NUMBERS] = {(float)state->scale, (float)state->growth_tracker, (float)state->skips};
    lg_device *device = s->numbers->storage->device;
    const luge_status status = device->backend->from_host(device, lg_data(s->numbers), numbers, sizeof numbers);
    if (status == LUGE_OK) lg_bump_version(s->numbers);
    return status;
}

/* Puts them on the device of the first loss or gradient; others must lie there, too. */
static luge_status place(luge_scaler *s, lg_device *device, const char *what)
{
    if (s->numbers != NULL) {
        if (s->numbers->storage->device == device) return LUGE_OK;
        return lg_fail(LUGE_ERR_DEVICE, "%s: the scaler serves another device; each needs its own", what);
    }
    const luge_shape numbers = LUGE_SHAPE(LG_SCALER_NUMBERS), scalar = LUGE_SCALAR;
    s->numbers = lg_tensor_create(device, LUGE_F32, &numbers, NULL);
    if (s->numbers != NULL) s->scale = lg_tensor_view(s->numbers, &scalar, s->numbers->stride, LG_SCALER_SCALE);
    if (s->scale != NULL && write_numbers(s, &s->start) == LUGE_OK) return LUGE_OK;
    luge_release(s->scale);
    luge_release(s->numbers);
    s->scale = s->numbers = NULL;
    return lg_error();
}

/* A zero for each of `room` optimizers. What is found already is kept. */
static luge_tensor *make_found(const luge_scaler *s, int64_t room)
{
    lg_device *device = s->numbers->storage->device;
    luge_scope scope = luge_scope_enter("");
    luge_no_grad_enter();
    luge_tensor *found = luge_zeros(LUGE_SHAPE(room), &(luge_tensor_options){.dtype = LUGE_F32, .device = device->id});
    if (s->count > 0) luge_copy_(luge_slice(found, 0, 0, s->count), luge_slice(s->found, 0, 0, s->count));
    luge_retain(found);
    if (luge_scope_exit(scope, NULL) == LUGE_OK) return found;
    luge_release(found);
    return NULL;
}

static luge_tensor *element_of(luge_tensor *found, int i)
{
    const luge_shape scalar = LUGE_SCALAR;
    return lg_tensor_view(found, &scalar, found->stride, i);
}

/* Room for twice as many, all or nothing. */
static luge_status grow(luge_scaler *s)
{
    const int room = s->room == 0 ? 2 : 2 * s->room;
    served *bigger = lg_alloc((size_t)room * sizeof *bigger);
    luge_tensor *found = bigger != NULL ? make_found(s, room) : NULL;
    int n = 0;
    for (; found != NULL && n < s->count; ++n) {
        bigger[n] = s->served[n];
        if ((bigger[n].found = element_of(found, n)) == NULL) break;
    }
    const bool done = found != NULL && n == s->count;
    for (int i = 0; i < n; ++i) luge_release(done ? s->served[i].found : bigger[i].found);
    luge_release(done ? s->found : found);
    lg_free(done ? s->served : bigger);
    if (!done) return lg_error();
    s->found = found;
    s->served = bigger;
    s->room = room;
    return LUGE_OK;
}

/* The optimizer's place among those served, -1 with the error set. */
static int find(luge_scaler *s, luge_optim *o, const char *what)
{
    for (int i = 0; i < s->count; ++i)
        if (s->served[i].optim == o) return i;
    if (place(s, o->scalars->storage->device, what) != LUGE_OK) return -1;
    if (s->count == s->room && grow(s) != LUGE_OK) return -1;
    luge_tensor *found = element_of(s->found, s->count);
    if (found == NULL) return -1;
    s->served[s->count] = (served){.optim = lg_optim_retain(o), .found = found};
    return s->count++;
}

/* ---- between backward and step */

luge_tensor *luge_scaler_scale(luge_scaler *scaler, luge_tensor *loss)
{
    static const char what[] = "luge_scaler_scale";
    if (!lg_ok() || !check_scaler(scaler, what) || !lg_check_tensor(loss, what)) return NULL;
    if (!lg_is_float(loss->dtype)) {
        lg_fail(LUGE_ERR_DTYPE, "%s: the loss is %s, not a float", what, luge_dtype_name(loss->dtype));
        return NULL;
    }
    if (scaler->options.disabled) return loss;
    if (place(scaler, loss->storage->device, what) != LUGE_OK) return NULL;
    if (loss->dtype == LUGE_F16 || loss->dtype == LUGE_BF16) loss = luge_cast(loss, LUGE_F32);
    return luge_mul(loss, scaler->scale);
}

static luge_status check_stage(const luge_scaler *s, int at, stage most, const char *what)
{
    static const char *const was[] = {[UNSCALED] = "unscaled", [STEPPED] = "stepped"};
    const served *v = &s->served[at];
    if (v->stage > most)
        return lg_fail(LUGE_ERR_STATE, "%s: this optimizer was %s since the last luge_scaler_update", what, was[v->stage]);
    if (v->stage == READY && v->optim->clipped)
        return lg_fail(LUGE_ERR_STATE,
                       "%s: the gradients were clipped while they were scaled; call luge_scaler_unscale first", what);
    return LUGE_OK;
}

static luge_status check_dtypes(const luge_optim *o, const char *what)
{
    for (int i = 0; i < o->count; ++i) {
        const luge_tensor *param = o->param[i].tensor;
        if (param->grad != NULL && param->grad->dtype == LUGE_F16)
            return lg_fail(LUGE_ERR_DTYPE, "%s: the gradient of %s is f16; keep parameters in f32, autocast casts them",
                           what, o->param[i].name);
    }
    return LUGE_OK;
}

/* The pass of an optimizer that is ready. */
static luge_status unscale(luge_scaler *s, int at, double numerator, const char *what)
{
    served *v = &s->served[at];
    if (check_dtypes(v->optim, what) != LUGE_OK) return lg_error();
    const luge_status status = lg_optim_unscale(v->optim, what, numerator, s->scale, v->found);
    if (status == LUGE_OK) v->stage = UNSCALED;
    return status;
}

luge_status lg_scaler_unscale(luge_scaler *s, luge_optim *o, double numerator, const char *what)
{
    if (s->options.disabled) return numerator != 1 ? lg_optim_unscale(o, what, numerator, NULL, NULL) : LUGE_OK;
    const int at = find(s, o, what);
    if (at < 0 || check_stage(s, at, READY, what) != LUGE_OK) return lg_error();
    return unscale(s, at, numerator, what);
}

luge_status luge_scaler_unscale(luge_scaler *scaler, luge_optim *optim)
{
    static const char what[] = "luge_scaler_unscale";
    if (!lg_ok() || !check_scaler(scaler, what) || !lg_check_optim(optim, what)) return lg_error();
    return lg_scaler_unscale(scaler, optim, 1, what);
}

luge_status luge_scaler_step(luge_scaler *scaler, luge_optim *optim)
{
    static const char what[] = "luge_scaler_step";
    if (!lg_ok() || !check_scaler(scaler, what) || !lg_check_optim(optim, what)) return lg_error();
    if (scaler->options.disabled) return lg_optim_step_all(optim, what, NULL);
    const int at = find(scaler, optim, what);
    if (at < 0 || check_stage(scaler, at, UNSCALED, what) != LUGE_OK) return lg_error();
    /* What the step needs is made before gradients are touched. */
    lg_device *device;
    if (lg_optim_prepare(optim, what, &device) < 0) return lg_error();
    if (scaler->served[at].stage == READY && unscale(scaler, at, 1, what) != LUGE_OK) return lg_error();
    const luge_status status = lg_optim_step_all(optim, what, scaler->served[at].found);
    if (status == LUGE_OK) scaler->served[at].stage = STEPPED;
    return status;
}

static float number(const luge_scaler *s, int which)
{
    return ((const float *)lg_data(s->numbers))[which];
}

static bool read_state(const luge_scaler *s, luge_scaler_state *state)
{
    float numbers[LG_SCALER_NUMBERS];
    *state = s->start;
    if (s->numbers == NULL) return true;
    lg_device *device = s->numbers->storage->device;
    if (device->backend->to_host(device, numbers, lg_data(s->numbers), sizeof numbers) != LUGE_OK) return false;
    *state = (luge_scaler_state){.scale = (double)numbers[LG_SCALER_SCALE],
                                 .growth_tracker = (int64_t)numbers[LG_SCALER_GOOD],
                                 .skips = (int64_t)numbers[LG_SCALER_SKIPS]};
    return true;
}

/* For whoever watches, who has to wait for a device. */
static void note_scale(const luge_scaler *s)
{
    luge_scaler_state state;
    if (lg_is_profiled(lg_self()) && read_state(s, &state)) lg_profile_scale(state.scale, state.skips > 0);
}

luge_status luge_scaler_update(luge_scaler *scaler)
{
    static const char what[] = "luge_scaler_update";
    if (!lg_ok() || !check_scaler(scaler, what)) return lg_error();
    if (scaler->options.disabled) return LUGE_OK;
    bool any = false;
    for (int i = 0; i < scaler->count; ++i) any = any || scaler->served[i].stage != READY;
    if (!any) return lg_fail(LUGE_ERR_STATE, "%s: no optimizer was unscaled or stepped since the last update", what);

    lg_device *device = scaler->numbers->storage->device;
    const lg_multi work = {.kind = LG_MULTI_RESCALE,
                           .scale = scaler->numbers,
                           .found = scaler->found,
                           .scaler = &scaler->rule,
                           .most_skips = scaler->options.max_skips};
    if (device->backend->multi(device, &work) != LUGE_OK) return lg_error();
    lg_bump_version(scaler->numbers);
    for (int i = 0; i < scaler->count; ++i) scaler->served[i].stage = READY;
    note_scale(scaler);
    if (lg_on_host(device) && number(scaler, LG_SCALER_SKIPS) >= (float)scaler->options.max_skips)
        return lg_fail(LUGE_ERR_NONFINITE, LG_TEXT_SCALE, (long long)number(scaler, LG_SCALER_SKIPS),
                       (double)number(scaler, LG_SCALER_SCALE));
    return LUGE_OK;
}

/* ---- reading and setting */

bool luge_scaler_skipped(luge_scaler *scaler, const luge_optim *optim)
{
    return scaler != NULL && optim != NULL && lg_optim_scalar(optim, LG_OPTIM_SKIP) != 0;
}

double luge_scaler_value(const luge_scaler *scaler)
{
    luge_scaler_state state;
    if (scaler == NULL) return NAN;
    if (scaler->options.disabled) return 1;
    return read_state(scaler, &state) ? state.scale : NAN;
}

luge_status luge_scaler_get_state(const luge_scaler *scaler, luge_scaler_state *state)
{
    static const char what[] = "luge_scaler_get_state";
    if (state != NULL) *state = (luge_scaler_state){.scale = NAN};
    if (!lg_ok() || !check_scaler(scaler, what)) return lg_error();
    if (state == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: the state is NULL", what);
    return read_state(scaler, state) ? LUGE_OK : lg_error();
}

luge_status luge_scaler_set_state(luge_scaler *scaler, const luge_scaler_state *state)
{
    static const char what[] = "luge_scaler_set_state";
    if (!lg_ok() || !check_scaler(scaler, what)) return lg_error();
    if (state == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: the state is NULL", what);
    const luge_scaler_options *o = &scaler->options;
    if (!(state->scale >= o->min_scale && state->scale <= o->max_scale))
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: scale %g is not between %g and %g", what, state->scale, o->min_scale, o->max_scale);
    if (state->growth_tracker < 0 || state->growth_tracker >= o->growth_interval || state->skips < 0)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: %lld steps without an overflow, of %lld, after %lld skips make no state", what,
                       (long long)state->growth_tracker, (long long)o->growth_interval, (long long)state->skips);
    for (int i = 0; i < scaler->count; ++i)
        if (scaler->served[i].stage != READY)
            return lg_fail(LUGE_ERR_STATE, "%s: gradients are unscaled by the present scale; call luge_scaler_update first", what);
    scaler->start = *state;
    return scaler->numbers != NULL ? write_numbers(scaler, state) : LUGE_OK;
}
