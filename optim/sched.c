/* Learning rate schedules: functions of the step count that every parameter's own rate is multiplied
 * by. Position and factor lie in device memory: the device knows whether a step was left out, and moves on
 * by itself. */
#include <math.h>

#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"
#include "ops/update_rules.h"
#include "optim/optim.h"

struct luge_sched {
    atomic_int refs; /* the owner's, and accumulation windows' */
    luge_optim *optim; /* a reference */
    lg_sched_rule rule;
};

/* ---- making */

static luge_sched *make(luge_optim *optim, const lg_sched_rule *rule, const char *what)
{
    if (!lg_ok() || !lg_check_optim(optim, what)) return NULL;
    if (optim->scheduled) {
        lg_fail(LUGE_ERR_STATE, "%s: the optimizer has a schedule already; destroy that first", what);
        return NULL;
    }
    luge_sched *sched = lg_alloc(sizeof *sched);
    if (sched == NULL) return NULL;
    *sched = (luge_sched){.optim = optim, .rule = *rule};
    atomic_init(&sched->refs, 1);
    if (lg_optim_set_position(optim, 0, lg_sched_factor(rule, 0)) != LUGE_OK) {
        lg_free(sched);
        return NULL;
    }
    lg_optim_retain(optim);
    optim->scheduled = true;
    lg_count_object(+1);
    return sched;
}

static bool check_steps(const char *what, const char *name, int64_t value, int64_t least)
{
    if (!lg_ok()) return false;
    if (value >= least) return true;
    lg_fail(LUGE_ERR_ARGUMENT, "%s: %s must be at least %lld, not %lld", what, name, (long long)least,
            (long long)value);
    return false;
}

static bool check_number(const char *what, const char *name, double value, bool good)
{
    if (!lg_ok()) return false;
    if (good && isfinite(value)) return true;
    lg_fail(LUGE_ERR_ARGUMENT, "%s: %s cannot be %g", what, name, value);
    return false;
}

luge_sched *luge_constant_lr_create(luge_optim *optim)
{
    return make(optim, &(lg_sched_rule){.kind = LG_SCHED_CONSTANT}, "luge_constant_lr_create");
}

luge_sched *luge_step_lr_create(luge_optim *optim, int64_t every, double gamma)
{
    static const char what[] = "luge_step_lr_create";
    if (!check_steps(what, "every", every, 1) || !check_number(what, "gamma", gamma, gamma >= 0)) return NULL;
    return make(optim, &(lg_sched_rule){.kind = LG_SCHED_STEP, .every = every, .gamma = gamma}, what);
}

luge_sched *luge_warmup_lr_create(luge_optim *optim, int64_t warmup)
{
    static const char what[] = "luge_warmup_lr_create";
    if (!check_steps(what, "warmup", warmup, 0)) return NULL;
    return make(optim, &(lg_sched_rule){.kind = LG_SCHED_WARMUP, .warmup = warmup}, what);
}

luge_sched *luge_cosine_lr_create(luge_optim *optim, int64_t steps, const luge_cosine_options *options)
{
    static const char what[] = "luge_cosine_lr_create";
    const luge_cosine_options o = options != NULL ? *options : (luge_cosine_options)LUGE_DEFAULTS;
    if (!lg_ok() || !lg_check_optim(optim, what) || !check_steps(what, "steps", steps, 1) ||
        !check_steps(what, "warmup", o.warmup, 0) || !check_number(what, "min_lr", o.min_lr, o.min_lr >= 0) ||
        !lg_check_reserved(o.reserved, 4, "luge_cosine_options")) {
        return NULL;
    }
    if (o.warmup > steps) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: a warm-up of %lld steps does not fit into %lld", what, (long long)o.warmup,
                (long long)steps);
        return NULL;
    }
    if (o.min_lr > optim->lr) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: min_lr %g is above the optimizer's rate %g", what, o.min_lr, optim->lr);
        return NULL;
    }
    const double lowest = o.min_lr > 0 ? o.min_lr / optim->lr : 0;
    const lg_sched_rule rule = {.kind = LG_SCHED_COSINE, .steps = steps, .warmup = o.warmup, .lowest = lowest};
    return make(optim, &rule, what);
}

luge_sched *luge_one_cycle_lr_create(luge_optim *optim, int64_t steps, const luge_one_cycle_options *options)
{
    static const char what[] = "luge_one_cycle_lr_create";
    const luge_one_cycle_options o = options != NULL ? *options : (luge_one_cycle_options)LUGE_DEFAULTS;
    const double rise = o.pct_start != 0 ? o.pct_start : 0.3, div = o.div_factor != 0 ? o.div_factor : 25,
                 final_div = o.final_div_factor != 0 ? o.final_div_factor : 1e4;
    if (!check_steps(what, "steps", steps, 1) || !check_number(what, "pct_start", rise, rise > 0 && rise <= 1) ||
        !check_number(what, "div_factor", div, div >= 1) ||
        !check_number(what, "final_div_factor", final_div, final_div >= 1) ||
        !lg_check_reserved(o.reserved, 4, "luge_one_cycle_options")) {
        return NULL;
    }
    const lg_sched_rule rule = {
        .kind = LG_SCHED_ONE_CYCLE, .steps = steps, .rise = rise, .first = 1 / div, .lowest = 1 / div / final_div};
    return make(optim, &rule, what);
}

/* ---- using */

luge_status luge_sched_step(luge_sched *sched)
{
    static const char what[] = "luge_sched_step";
    if (!lg_ok()) return lg_error();
    if (sched == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: the schedule is NULL", what);
    luge_optim *o = sched->optim;
    const lg_multi work = {.kind = LG_MULTI_SCHEDULE,
                           .lr = o->scalar[LG_OPTIM_FACTOR],
                           .position = o->scalar[LG_OPTIM_POSITION],
                           .skip = o->scalar[LG_OPTIM_SKIP],
                           .schedule = &sched->rule};
    return lg_optim_run(o, &work);
}

double luge_sched_factor(const luge_sched *sched, int64_t step)
{
    return sched != NULL && step >= 0 ? lg_sched_factor(&sched->rule, (double)step) : NAN;
}

double lg_sched_factor_at(const luge_sched *sched, double position)
{
    return lg_sched_factor(&sched->rule, position);
}

luge_optim *lg_sched_optim(const luge_sched *sched)
{
    return sched->optim;
}

void lg_sched_release(luge_sched *sched)
{
    if (sched == NULL || atomic_fetch_sub_explicit(&sched->refs, 1, memory_order_acq_rel) != 1) return;
    sched->optim->scheduled = false;
    lg_optim_release(sched->optim);
    lg_free(sched);
    lg_count_object(-1);
}

luge_sched *lg_sched_retain(luge_sched *sched)
{
    if (sched != NULL) atomic_fetch_add_explicit(&sched->refs, 1, memory_order_relaxed);
    return sched;
}

void luge_sched_destroy(luge_sched *sched)
{
    lg_sched_release(sched);
}
