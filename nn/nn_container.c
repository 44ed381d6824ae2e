/* Modules made of others that they are given: sequences, residual blocks, loose parameters. They own
 * what they are given, also when they cannot be made, so nested constructors never leak. */
#include <math.h>
#include <stdio.h>

#include "autograd/region.h"
#include "core/alloc.h"
#include "core/pool.h"
#include "core/thread.h"
#include "nn/module.h"

/* A module of `type` with the given children, or NULL with all of them freed. */
static luge_module *make_container(const luge_module_class *type, luge_module *const *modules, int count,
                                   const char *const *names)
{
    luge_module *m = lg_module_begin(type, NULL);
    if (m == NULL) {
        lg_module_dispose(modules, count);
        return NULL;
    }
    lg_module_adopt(m, modules, count, names);
    return lg_module_finish(m);
}

/* ---- Sequential */

/* Children [from, to). Each result is dropped as soon as the next module has run: without a graph, only two
 * are alive. */
static luge_tensor *run_children(luge_module *self, int from, int to, luge_tensor *x)
{
    x = luge_retain(x);
    for (int i = from; i < to && x != NULL; ++i) {
        luge_scope step = luge_scope_enter("");
        luge_tensor *y = luge_retain(luge_forward(self->child[i], x));
        luge_scope_exit(step, NULL);
        luge_release(x);
        x = y;
    }
    return lg_is_none(x) ? x : lg_borrow(x);
}

/* Some children in a row, recomputed as one. */
typedef struct segment {
    luge_module *module; /* a reference */
    int from, to;
} segment;

static luge_tensor *run_segment(luge_list inputs, void *user)
{
    const segment *s = user;
    return run_children(s->module, s->from, s->to, inputs.items[0]);
}

static void release_segment(void *user)
{
    segment *s = user;
    lg_module_release(s->module);
    lg_free(s);
}

static luge_tensor *recompute_children(luge_module *self, int from, int to, luge_tensor *x)
{
    segment *s = lg_alloc(sizeof *s);
    if (s == NULL) return NULL;
    *s = (segment){self, from, to};
    atomic_fetch_add_explicit(&self->refs, 1, memory_order_relaxed);
    return lg_region_run(run_segment, (luge_list){&x, 1}, s, release_segment, self->type->name);
}

/* Kept are one activation a segment, and all of one segment while that is run again: with two to a child,
 * least for sqrt(2n) segments. The last segment's are needed at once, and stay. */
static luge_tensor *run_segments(luge_module *self, luge_tensor *x)
{
    const int n = self->n_children, wanted = (int)lround(sqrt(2.0 * (double)n)), segments = wanted < n ? wanted : n;
    for (int s = 0; s < segments && x != NULL; ++s) {
        const int from = (int)lg_slice_begin(n, segments, s), to = (int)lg_slice_begin(n, segments, s + 1);
        x = s + 1 < segments ? recompute_children(self, from, to, x) : run_children(self, from, to, x);
    }
    return x;
}

static luge_tensor *sequential_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)state;
    const bool segments = self->recompute_segments && !lg_self()->modes.no_grad;
    return segments ? run_segments(self, x) : run_children(self, 0, self->n_children, x);
}

static const luge_module_class sequential_class = {.name = "Sequential", .forward = sequential_forward};

luge_module *luge_nn_sequential_array(luge_module *const *modules, int count)
{
    if (count < 0 || (count > 0 && modules == NULL)) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: a list of %d modules at %s", sequential_class.name, count,
                modules == NULL ? "NULL" : "an address");
        return NULL;
    }
    return make_container(&sequential_class, modules, count, NULL);
}

/* ---- Residual */

static luge_tensor *residual_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)state;
    luge_tensor *y = luge_forward(self->child[0], x);
    return luge_add(y, self->n_children > 1 ? luge_forward(self->child[1], x) : x);
}

static const luge_module_class residual_class = {.name = "Residual", .forward = residual_forward};

luge_module *luge_nn_residual(luge_module *body, luge_module *shortcut)
{
    static const char *const names[] = {"body", "shortcut"};
    return make_container(&residual_class, (luge_module *[]){body, shortcut}, shortcut != NULL ? 2 : 1, names);
}

/* ---- ParameterList */

static const luge_module_class params_class = {.name = "ParameterList"};

luge_module *luge_nn_params(luge_list tensors)
{
    if (!lg_ok()) return NULL;
    if (tensors.count < 0 || (tensors.count > 0 && tensors.items == NULL)) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: a list of %d tensors at %s", params_class.name, tensors.count,
                tensors.items == NULL ? "NULL" : "an address");
        return NULL;
    }
    luge_module *m = lg_module_begin(&params_class, NULL);
    for (int i = 0; m != NULL && i < tensors.count && lg_ok(); ++i) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        lg_module_add_shared(m, name, tensors.items[i]);
    }
    m = lg_module_finish(m);
    for (int i = 0; m != NULL && i < m->params.count; ++i) lg_set_requires_grad(m->params.slot[i].tensor, true);
    return m;
}
