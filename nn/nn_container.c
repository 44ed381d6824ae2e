/* Modules made of others that they are given: sequences, residual blocks, loose parameters. They own
 * what they are given, also when they cannot be made, so nested constructors never leak. */
#include <stdio.h>

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

/* Each result is dropped as soon as the next module has run: without a graph, only two are alive. */
static luge_tensor *sequential_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)state;
    x = luge_retain(x);
    for (int i = 0; i < self->n_children && x != NULL; ++i) {
        luge_scope step = luge_scope_enter("");
        luge_tensor *y = luge_retain(luge_forward(self->child[i], x));
        luge_scope_exit(step, NULL);
        luge_release(x);
        x = y;
    }
    return lg_is_none(x) ? x : lg_borrow(x);
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
