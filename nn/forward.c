/* Running modules. This is the only place that calls a class's forward: in a scope named after the
 * module, with its inputs cast as the class asks, and with what it returned looked at. */
#include "autograd/region.h"
#include "core/alloc.h"
#include "core/thread.h"
#include "nn/module.h"

static _Thread_local struct {
    lg_forward_fn fn;
    void *user;
} observer;

void lg_forward_observe(lg_forward_fn fn, void *user)
{
    observer.fn = fn;
    observer.user = user;
}

/* ---- inputs */

static bool check_inputs(const luge_module *m, luge_list inputs)
{
    if (inputs.count < 0 || (inputs.count > 0 && inputs.items == NULL)) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: a list of %d inputs at %s", m->type->name, inputs.count,
                inputs.items == NULL ? "NULL" : "an address");
        return false;
    }
    for (int i = 0; i < inputs.count; ++i) {
        if (inputs.items[i] != NULL) continue;
        lg_fail(LUGE_ERR_ARGUMENT, "%s: input %d is NULL; LUGE_NONE says that there is none", m->type->name, i);
        return false;
    }
    return true;
}

/* What autocast makes of the float inputs of a class that asks. */
static luge_dtype cast_to(luge_cast_class wanted, luge_list inputs)
{
    if (wanted == LUGE_CAST_LOW) return lg_self()->modes.low;
    if (wanted == LUGE_CAST_F32) return LUGE_F32;
    luge_dtype widest = LUGE_BOOL;
    for (int i = 0; i < inputs.count; ++i) {
        const luge_tensor *t = inputs.items[i];
        if (lg_is_none(t) || !lg_is_float(t->dtype)) continue;
        widest = widest == LUGE_BOOL ? t->dtype : luge_promote_types(widest, t->dtype);
    }
    return widest;
}

/* Fills cast[inputs.count]; false on error. */
static bool cast_inputs(luge_cast_class wanted, luge_list inputs, luge_tensor **cast)
{
    const luge_dtype dtype = cast_to(wanted, inputs);
    for (int i = 0; i < inputs.count; ++i) {
        luge_tensor *t = inputs.items[i];
        cast[i] = lg_is_none(t) || !lg_is_float(t->dtype) ? t : luge_cast(t, dtype);
        if (cast[i] == NULL) return false;
    }
    return true;
}

/* ---- calling the class */

/* The general form falls back on the special ones, and the other way round where one output is wanted. */
static void call_class(luge_module *m, luge_list inputs, luge_tensor **outputs, int count)
{
    const luge_module_class *type = m->type;
    if (count == 1 && inputs.count == 1 && type->forward != NULL) {
        outputs[0] = type->forward(m, m->state, inputs.items[0]);
    } else if (count == 1 && type->forward_list != NULL) {
        outputs[0] = type->forward_list(m, m->state, inputs);
    } else if (type->forward_multi != NULL) {
        type->forward_multi(m, m->state, inputs, outputs, count);
    } else if (type->forward != NULL || type->forward_list != NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "%d inputs and %d outputs are asked for, but it takes %s and has one output",
                inputs.count, count, type->forward_list != NULL ? "several inputs" : "one input");
    } else {
        lg_fail(LUGE_ERR_UNSUPPORTED, "a %s has no forward", type->name);
    }
}

static void call_with_casts(luge_module *m, luge_list inputs, luge_tensor **outputs, int count)
{
    const luge_cast_class wanted = m->type->autocast;
    if (wanted == LUGE_CAST_KEEP || lg_self()->modes.low == LUGE_F32) {
        call_class(m, inputs, outputs, count);
        return;
    }
    luge_tensor **cast = lg_alloc((size_t)inputs.count * sizeof *cast);
    if (cast == NULL) return;
    if (cast_inputs(wanted, inputs, cast)) call_class(m, (luge_list){cast, inputs.count}, outputs, count);
    lg_free(cast);
}

static luge_status check_outputs(luge_tensor *const *outputs, int count)
{
    for (int i = 0; i < count && lg_ok(); ++i) {
        if (outputs[i] == NULL || lg_is_none(outputs[i])) {
            lg_fail(LUGE_ERR_CALLBACK, "forward gave %s as output %d and set no error",
                    outputs[i] == NULL ? "NULL" : "LUGE_NONE", i);
        }
    }
    return lg_error();
}

/* ---- activation checkpointing */

/* Recomputed as one, if a graph is recorded at all. A class with several outputs runs as always. */
static bool is_region(const luge_module *m, int count)
{
    const luge_module *parent = m->parent;
    if (count != 1 || lg_self()->modes.no_grad) return false;
    return m->recompute || (parent != NULL && parent->recompute_every > 0 && (m->index + 1) % parent->recompute_every == 0);
}

static luge_tensor *run_region(luge_list inputs, void *user)
{
    luge_tensor *output = NULL;
    call_with_casts(user, inputs, &output, 1);
    if (output == NULL && lg_ok()) check_outputs(&output, 1);
    return output;
}

static void release_module(void *user)
{
    lg_module_release(user);
}

static void call_in_region(luge_module *m, luge_list inputs, luge_tensor **output)
{
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    *output = lg_region_run(run_region, inputs, m, release_module, m->type->name);
}

/* Outputs belong to the caller's scope; all NULL on error. */
static luge_status run(luge_module *m, luge_list inputs, luge_tensor **outputs, int count)
{
    luge_scope scope = luge_scope_enter(m->name != NULL ? m->name : m->type->name);
    const double flops = lg_self()->flops;
    if (lg_ok() && check_inputs(m, inputs)) {
        if (is_region(m, count))
            call_in_region(m, inputs, outputs);
        else
            call_with_casts(m, inputs, outputs, count);
    }
    luge_status status = check_outputs(outputs, count);
    if (status == LUGE_OK && observer.fn != NULL) {
        observer.fn(m, outputs[0], lg_self()->flops - flops, observer.user);
    }
    for (int i = 1; i < count && status == LUGE_OK; ++i) {
        if (luge_keep(outputs[i]) == NULL) status = lg_error();
    }
    status = luge_scope_exit(scope, status == LUGE_OK ? outputs[0] : NULL);
    for (int i = 0; i < count && status != LUGE_OK; ++i) outputs[i] = NULL;
    return status;
}

/* ---- public */

static luge_tensor *forward(luge_module *module, luge_list inputs, const char *what)
{
    luge_tensor *output = NULL;
    if (!lg_ok() || !lg_check_module(module, what)) return NULL;
    run(module, inputs, &output, 1);
    return output;
}

luge_tensor *luge_forward(luge_module *module, luge_tensor *input)
{
    return forward(module, (luge_list){&input, 1}, "luge_forward");
}

luge_tensor *luge_forward_list(luge_module *module, luge_list inputs)
{
    return forward(module, inputs, "luge_forward_list");
}

luge_status luge_forward_multi(luge_module *module, luge_list inputs, luge_tensor **outputs, int count)
{
    static const char what[] = "luge_forward_multi";
    for (int i = 0; outputs != NULL && i < count; ++i) outputs[i] = NULL;
    if (!lg_ok() || !lg_check_module(module, what)) return lg_error();
    if (outputs == NULL || count < 1) {
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: %s", what, outputs == NULL ? "outputs is NULL" : "count is less than 1");
    }
    return run(module, inputs, outputs, count);
}
