/* Learning rate schedules: functions of the step count that every parameter's own rate is multiplied
 * by. The factor lies in device memory, where the step reads it. */
#include <math.h>

#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"
#include "optim/optim.h"

/* Settings of all kinds of schedule; each uses its own. */
typedef struct settings {
    int64_t steps, warmup, every;
    double gamma, lowest; /* lowest: as a factor */
    double rise, first;   /* one cycle: share of the steps that go up, the first factor */
} settings;

typedef double (*factor_fn)(const settings *s, int64_t step);

struct luge_sched {
    luge_optim *optim; /* a reference */
    factor_fn factor;
    settings settings;
    int64_t step;
};

/* ---- factors */

static const double pi = 3.14159265358979323846;

/* From one value to another by half a cosine, `done` from 0 to 1. */
static double anneal(double from, double to, double done)
{
    return to + (from - to) * 0.5 * (1 + cos(pi * done));
}

static double constant_factor(const settings *s, int64_t step)
{
    (void)s;
    (void)step;
    return 1;
}

static double step_factor(const settings *s, int64_t step)
{
    return pow(s->gamma, (double)(step / s->every));
}

static double warmup_factor(const settings *s, int64_t step)
{
    return step < s->warmup ? ((double)step + 1) / (double)s->warmup : 1;
}

static double cosine_factor(const settings *s, int64_t step)
{
    if (step < s->warmup) return warmup_factor(s, step);
    if (step >= s->steps) return s->lowest;
    return anneal(1, s->lowest, (double)(step - s->warmup) / (double)(s->steps - s->warmup));
}

/* PyTorch's two phases: up until step rise * steps - 1, then down until the last. */
static double one_cycle_factor(const settings *s, int64_t step)
{
    const double last = (double)(s->steps - 1), top = s->rise * (double)s->steps - 1;
    const double at = (double)step < last ? (double)step : last;
    if (at <= top) return top > 0 ? anneal(s->first, 1, at / top) : 1;
    return last > top ? anneal(1, s->lowest, (at - top) / (last - top)) : s->lowest;
}

/* ---- making */

static luge_sched *make(luge_optim *optim, factor_fn factor, const settings *s, const char *what)
{
    if (!lg_ok() || !lg_check_optim(optim, what)) return NULL;
    if (optim->scheduled) {
        lg_fail(LUGE_ERR_STATE, "%s: the optimizer has a schedule already; destroy that first", what);
        return NULL;
    }
    luge_sched *sched = lg_alloc(sizeof *sched);
    if (sched == NULL) return NULL;
    *sched = (luge_sched){.optim = optim, .factor = factor, .settings = *s};
    if (lg_optim_set_factor(optim, factor(s, 0)) != LUGE_OK) {
        lg_free(sched);
        return NULL;
    }
    atomic_fetch_add_explicit(&optim->refs, 1, memory_order_relaxed);
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
    return make(optim, constant_factor, &(settings){0}, "luge_constant_lr_create");
}

luge_sched *luge_step_lr_create(luge_optim *optim, int64_t every, double gamma)
{
    static const char what[] = "luge_step_lr_create";
    if (!check_steps(what, "every", every, 1) || !check_number(what, "gamma", gamma, gamma >= 0)) return NULL;
    return make(optim, step_factor, &(settings){.every = every, .gamma = gamma}, what);
}

luge_sched *luge_warmup_lr_create(luge_optim *optim, int64_t warmup)
{
    static const char what[] = "luge_warmup_lr_create";
    if (!check_steps(what, "warmup", warmup, 0)) return NULL;
    return make(optim, warmup_factor, &(settings){.warmup = warmup}, what);
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
    return make(optim, cosine_factor, &(settings){.steps = steps, .warmup = o.warmup, .lowest = lowest}, what);
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
    const settings s = {.steps = steps, .rise = rise, .first = 1 / div, .lowest = 1 / div / final_div};
    return make(optim, one_cycle_factor, &s, what);
}

/* ---- using */

luge_status luge_sched_step(luge_sched *sched)
{
    static const char what[] = "luge_sched_step";
    if (!lg_ok()) return lg_error();
    if (sched == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: the schedule is NULL", what);
    if (sched->optim->skipped) return LUGE_OK;
    const luge_status status = lg_optim_set_factor(sched->optim, sched->factor(&sched->settings, sched->step + 1));
    if (status == LUGE_OK) ++sched->step;
    return status;
}

double luge_sched_factor(const luge_sched *sched, int64_t step)
{
    return sched != NULL && step >= 0 ? sched->factor(&sched->settings, step) : NAN;
}

void luge_sched_destroy(luge_sched *sched)
{
    if (sched == NULL) return;
    sched->optim->scheduled = false;
    lg_optim_release(sched->optim);
    lg_free(sched);
    lg_count_object(-1);
}
