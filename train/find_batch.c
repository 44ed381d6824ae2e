/* The largest batch that fits into memory, by trying. */
#include <luge/ops.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "train/run_items.h"

static const char what[] = "luge_find_batch_size";

/* Where the run was, in host memory, so that it takes nothing of what is measured. */
typedef struct search {
    lg_run_items items;
    luge_tensor **before;   /* of each item, on the host; NULL: absent */
    lg_items params;        /* of all modules' parameters: their gradients are set aside */
    luge_tensor **grad;
    luge_trial_fn trial;
    void *user;
} search;

static luge_tensor *on_host(luge_tensor *t)
{
    luge_scope scope = luge_scope_enter("");
    luge_no_grad_enter();
    luge_tensor *copy = t != NULL ? luge_contiguous(luge_to(t, luge_device_cpu(), NULL)) : NULL;
    if (copy == t && copy != NULL) copy = luge_clone(t);
    luge_retain(copy);
    if (luge_scope_exit(scope, NULL) == LUGE_OK) return copy;
    luge_release(copy);
    return NULL;
}

static luge_status remember(search *s)
{
    s->before = lg_alloc_zero((size_t)s->items.count * sizeof *s->before + 1);
    for (int i = 0; s->before != NULL && i < s->items.count && lg_ok(); ++i) {
        luge_scope scope = luge_scope_enter("");
        s->before[i] = on_host(lg_run_get(&s->items.item[i]));
        luge_scope_exit(scope, NULL);
    }
    return lg_error();
}

/* Everything as it was; values are staged anew from the host. */
static luge_status restore(search *s)
{
    for (int i = 0; i < s->items.count && lg_ok(); ++i) lg_run_stage(&s->items.item[i], s->before[i]);
    return lg_ok() ? lg_run_commit(&s->items) : lg_error();
}

static void set_gradients_aside(search *s)
{
    for (int i = 0; i < s->params.count; ++i) {
        if (s->params.item[i].first != i) continue;
        s->grad[i] = s->params.item[i].tensor->grad;
        s->params.item[i].tensor->grad = NULL;
    }
}

static void put_gradients_back(search *s)
{
    for (int i = 0; i < s->params.count && s->grad != NULL; ++i) {
        if (s->params.item[i].first != i) continue;
        luge_release(s->params.item[i].tensor->grad);
        s->params.item[i].tensor->grad = s->grad[i];
    }
}

/* LUGE_OK: it fits. LUGE_ERR_OUT_OF_MEMORY: it does not, and no error stands. */
static luge_status try(search *s, int64_t size)
{
    luge_scope scope = luge_scope_enter("trial");
    luge_status status = lg_ok() ? s->trial(size, s->user) : lg_error();
    if (status == LUGE_OK) status = lg_error();
    if (status != LUGE_OK && lg_ok()) lg_fail(status, "%s: the trial of %lld failed without saying why", what, (long long)size);
    const luge_status closed = luge_scope_exit(scope, NULL);
    if (status == LUGE_OK) status = closed;
    char text[LG_ERROR_TEXT];
    luge_error_take(text, sizeof text);
    for (int i = 0; i < s->params.count; ++i) { /* what the trial left is no part of the next */
        luge_tensor *t = s->params.item[i].tensor;
        luge_release(t->grad);
        t->grad = NULL;
    }
    if (restore(s) == LUGE_OK && status != LUGE_OK && status != LUGE_ERR_OUT_OF_MEMORY) lg_fail_raw(status, text);
    return lg_ok() ? status : lg_error();
}

/* Doubles until something does not fit, then halves the distance. */
static int64_t find(search *s, int64_t limit)
{
    int64_t fits = 0, fails = limit < INT64_MAX ? limit + 1 : limit;
    for (int64_t size = 1; fits + 1 < fails;) {
        const luge_status status = try(s, size);
        if (status == LUGE_OK) fits = size;
        else if (status == LUGE_ERR_OUT_OF_MEMORY) fails = size;
        else return 0;
        if (!lg_ok()) return 0;
        const bool doubling = fails > limit && fits <= limit / 2;
        size = doubling ? 2 * fits : fails > limit ? limit : fits + (fails - fits) / 2;
        if (fits == limit) break;
    }
    if (fits == 0) lg_fail(LUGE_ERR_OUT_OF_MEMORY, "%s: not even one item fits into memory", what);
    return fits;
}

int64_t luge_find_batch_size(const luge_run *run, int64_t limit, luge_trial_fn trial, void *user)
{
    search s = {.trial = trial, .user = user};
    int64_t size = 0;
    if (!lg_ok()) return 0;
    if (trial == NULL || limit < 1) {
        lg_fail(LUGE_ERR_ARGUMENT, trial == NULL ? "%s: the trial is NULL" : "%s: the limit must be 1 or more", what);
        return 0;
    }
    if (lg_run_collect(&s.items, run, what) != LUGE_OK) return 0;
    if (run->module != NULL) lg_items_collect(&s.params, run->module, LG_PARAMS);
    if (lg_ok()) s.grad = lg_alloc_zero((size_t)s.params.count * sizeof *s.grad + 1);
    if (lg_ok() && remember(&s) == LUGE_OK) {
        set_gradients_aside(&s);
        size = find(&s, limit);
        put_gradients_back(&s);
    }
    for (int i = 0; i < s.items.count && s.before != NULL; ++i) luge_release(s.before[i]);
    lg_free(s.before);
    lg_free(s.grad);
    lg_items_free(&s.params);
    lg_run_items_free(&s.items);
    return size;
}
