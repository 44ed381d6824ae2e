/* The life of modules: making them, filling them while they are built, freeing them. What acts on
 * whole trees is in tree.c and transfer.c, running them in forward.c. */
#include "nn/module.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"

enum { STATE_ALIGN = alignof(max_align_t) };

bool lg_check_module(const luge_module *m, const char *what)
{
    if (m == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the module is NULL", what);
        return false;
    }
    if (m->building) {
        lg_fail(LUGE_ERR_STATE, "%s: the %s is still being built", what, m->type->name);
        return false;
    }
    return true;
}

/* ---- making */

static bool check_class(const luge_module_class *type)
{
    if (type == NULL || type->name == NULL || type->name[0] == '\0') {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_module_create: the class %s", type == NULL ? "is NULL" : "has no name");
        return false;
    }
    if (type->autocast < LUGE_CAST_KEEP || type->autocast > LUGE_CAST_WIDEST) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_module_create: %s: autocast %d is no luge_cast_class", type->name,
                (int)type->autocast);
        return false;
    }
    if (type->state_size > PTRDIFF_MAX / 4) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_module_create: %s: a state of %zu bytes", type->name, type->state_size);
        return false;
    }
    return lg_check_reserved(type->reserved, 3, type->name);
}

luge_module *lg_module_begin(const luge_module_class *type, const void *state)
{
    if (!lg_ok() || !check_class(type)) return NULL;
    luge_module *m = lg_alloc_zero(sizeof *m);
    if (m == NULL) return NULL;
    const size_t size = (type->state_size + STATE_ALIGN - 1) / STATE_ALIGN * STATE_ALIGN;
    if (size > 0) {
        char *memory = lg_alloc_zero(2 * size);
        if (memory == NULL) {
            lg_free(m);
            return NULL;
        }
        if (state != NULL) {
            memcpy(memory, state, type->state_size);
            memcpy(memory + size, state, type->state_size);
        }
        m->state = memory;
        m->given = memory + size;
    }
    m->type = type;
    m->training = m->building = true;
    atomic_init(&m->refs, 1);
    lg_count_object(+1);
    return m;
}

luge_module *lg_module_finish(luge_module *m)
{
    if (m == NULL) return NULL;
    m->building = false;
    m->source = NULL;
    if (lg_ok()) return m;
    lg_module_release(m);
    return NULL;
}

void lg_module_run_build(luge_module *m)
{
    luge_scope scope = luge_scope_enter(m->type->name);
    if (lg_ok()) {
        m->built = true;
        if (m->type->build != NULL) m->type->build(m, m->state);
    }
    luge_scope_exit(scope, NULL);
}

luge_module *luge_module_create(const luge_module_class *type, const void *state)
{
    luge_module *m = lg_module_begin(type, state);
    if (m == NULL) return NULL;
    lg_module_run_build(m);
    return lg_module_finish(m);
}

/* ---- freeing */

static void free_slots(lg_slots *slots)
{
    for (int i = 0; i < slots->count; ++i) {
        luge_release(slots->slot[i].tensor);
        lg_free(slots->slot[i].name);
    }
    lg_free(slots->slot);
}

static void free_one(luge_module *m)
{
    if (m->built && m->type->destroy != NULL) m->type->destroy(m->state);
    free_slots(&m->params);
    free_slots(&m->buffers);
    lg_free(m->child);
    lg_free(m->name);
    lg_free(m->state);
    lg_free(m);
    lg_count_object(-1);
}

static bool drop_reference(luge_module *m)
{
    return atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) == 1;
}

void lg_module_release(luge_module *m)
{
    if (m == NULL || !drop_reference(m)) return;
    /* Modules to free, linked by `parent`, which they do not need any more: no recursion. */
    m->parent = NULL;
    while (m != NULL) {
        luge_module *next = m->parent;
        for (int i = m->n_children - 1; i >= 0; --i) {
            luge_module *child = m->child[i];
            child->parent = NULL;
            if (!drop_reference(child)) continue;
            child->parent = next;
            next = child;
        }
        free_one(m);
        m = next;
    }
}

void luge_module_destroy(luge_module *module)
{
    if (module == NULL) return;
    if (module->parent != NULL || module->building) {
        lg_log(LUGE_LOG_WARNING, "luge_module_destroy: ignored: the %s %s", module->type->name,
               module->building ? "is still being built" : "belongs to another module, which will destroy it");
        return;
    }
    lg_module_release(module);
}

void lg_module_dispose(luge_module *const *modules, int count)
{
    if (modules == NULL) return;
    /* Held meanwhile: one may lie below another, or be named twice. */
    for (int i = 0; i < count; ++i) {
        if (modules[i] != NULL) atomic_fetch_add_explicit(&modules[i]->refs, 1, memory_order_relaxed);
    }
    for (int i = 0; i < count; ++i) {
        luge_module *m = modules[i];
        int first = 0;
        while (modules[first] != m) ++first;
        if (m != NULL && first == i && m->parent == NULL && !m->building) lg_module_release(m);
    }
    for (int i = 0; i < count; ++i) lg_module_release(modules[i]);
}

/* ---- filling */

static bool name_taken(const luge_module *m, const char *name)
{
    for (int i = 0; i < m->params.count; ++i) {
        if (strcmp(m->params.slot[i].name, name) == 0) return true;
    }
    for (int i = 0; i < m->buffers.count; ++i) {
        if (strcmp(m->buffers.slot[i].name, name) == 0) return true;
    }
    for (int i = 0; i < m->n_children; ++i) {
        if (strcmp(m->child[i]->name, name) == 0) return true;
    }
    return false;
}

/* Whether something may be added to `self` under that name. */
static bool check_place(const luge_module *self, const char *name, const char *what)
{
    if (self == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the module is NULL", what);
    } else if (!self->building) {
        lg_fail(LUGE_ERR_STATE, "%s: the %s is built already; only its class's build may add to it", what,
                self->type->name);
    } else if (name == NULL || name[0] == '\0' || strchr(name, '.') != NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: \"%s\" cannot be a name: names are not empty and have no dots", what,
                name == NULL ? "NULL" : name);
    } else if (name_taken(self, name)) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the %s has a \"%s\" already", what, self->type->name, name);
    } else {
        return true;
    }
    return false;
}

/* Takes over the reference to `value`, also on error. */
static luge_status add_slot(lg_slots *slots, const char *name, luge_tensor *value)
{
    if (slots->count == slots->room) {
        const int room = slots->room == 0 ? 2 : 2 * slots->room;
        lg_slot *bigger = lg_resize(slots->slot, (size_t)room * sizeof *bigger);
        if (bigger == NULL) goto failed;
        slots->slot = bigger;
        slots->room = room;
    }
    char *copy = lg_copy_text(name);
    if (copy == NULL) goto failed;
    slots->slot[slots->count++] = (lg_slot){copy, value};
    return LUGE_OK;
failed:
    luge_release(value);
    return lg_error();
}

static bool is_param_below(luge_module *root, const luge_tensor *t)
{
    for (luge_module *m = root; m != NULL; m = lg_module_next(root, m)) {
        for (int i = 0; i < m->params.count; ++i) {
            if (m->params.slot[i].tensor == t) return true;
        }
    }
    return false;
}

/* Whether a scope of this thread is all that holds `t`. One reference may also be another module's. */
static bool is_unshared(const luge_tensor *t)
{
    if (atomic_load_explicit(&t->refs, memory_order_acquire) != 1 ||
        atomic_load_explicit(&t->storage->refs, memory_order_acquire) != 1 || t->node != NULL || t->grad != NULL ||
        t->hooks != NULL || !lg_strides_are_dense(&t->shape, t->stride)) {
        return false;
    }
    const lg_thread *self = lg_self();
    for (int i = self->n_owned - 1; i >= 0; --i) {
        if (self->owned[i] == t) return true;
    }
    return false;
}

/* A reference to `value` itself, or to a copy that nobody else has. */
static luge_tensor *own_value(luge_tensor *value)
{
    if (is_unshared(value)) return luge_retain(value);
    luge_scope no_grad = luge_no_grad_enter();
    luge_tensor *copy = luge_retain(luge_clone(value));
    luge_scope_exit(no_grad, NULL);
    return copy;
}

static bool check_param(const luge_tensor *value, const char *what)
{
    if (!lg_check_tensor(value, what)) return false;
    if (lg_is_float(value->dtype)) return true;
    lg_fail(LUGE_ERR_DTYPE, "%s: a parameter has floats, not %s; add it as a buffer", what,
            luge_dtype_name(value->dtype));
    return false;
}

luge_tensor *luge_module_add_param(luge_module *self, const char *name, luge_tensor *value)
{
    static const char what[] = "luge_module_add_param";
    if (!lg_ok() || !check_place(self, name, what) || !check_param(value, what)) return NULL;
    const bool tied = is_param_below(self, value);
    luge_tensor *own = tied ? luge_retain(value) : own_value(value);
    if (own == NULL) return NULL;
    if (!tied) lg_set_requires_grad(own, true);
    return add_slot(&self->params, name, own) == LUGE_OK ? own : NULL;
}

luge_tensor *luge_module_add_buffer(luge_module *self, const char *name, luge_tensor *value)
{
    static const char what[] = "luge_module_add_buffer";
    if (!lg_ok() || !check_place(self, name, what) || !lg_check_tensor(value, what)) return NULL;
    luge_tensor *own = own_value(value);
    if (own == NULL) return NULL;
    lg_set_requires_grad(own, false);
    return add_slot(&self->buffers, name, own) == LUGE_OK ? own : NULL;
}

luge_status lg_module_add_shared(luge_module *self, const char *name, luge_tensor *leaf)
{
    const char *what = self->type->name;
    if (!lg_ok() || !check_param(leaf, what)) return lg_error();
    if (leaf->node != NULL) {
        return lg_fail(LUGE_ERR_GRAPH, "%s: tensor %s was made by an op; parameters are leaves: take luge_detach of it",
                       what, name);
    }
    if (!lg_strides_are_dense(&leaf->shape, leaf->stride)) {
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: the elements of tensor %s have gaps between them: take luge_clone of it",
                       what, name);
    }
    return add_slot(&self->params, name, luge_retain(leaf));
}

/* ---- children */

static luge_status reserve_children(luge_module *self, int more)
{
    if (more > INT32_MAX / 2 - self->n_children)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: too many modules", self->type->name);
    const int need = self->n_children + more;
    if (need <= self->room_children) return LUGE_OK;
    const int room = need > 2 * self->room_children ? need : 2 * self->room_children;
    luge_module **bigger = lg_resize(self->child, (size_t)room * sizeof *bigger);
    if (bigger == NULL) return lg_error();
    self->child = bigger;
    self->room_children = room;
    return LUGE_OK;
}

/* Room for the child has been made. */
static luge_status attach(luge_module *self, luge_module *child, const char *name)
{
    if (child == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: module \"%s\" is NULL", self->type->name, name);
    if (child->building) {
        return lg_fail(LUGE_ERR_STATE, "%s: module \"%s\" is still being built", self->type->name, name);
    }
    if (child->parent != NULL) {
        return lg_fail(LUGE_ERR_STATE,
                       "%s: module \"%s\" belongs to a %s already; use luge_module_clone for a second one",
                       self->type->name, name, child->parent->type->name);
    }
    child->name = lg_copy_text(name);
    if (child->name == NULL) return lg_error();
    child->parent = self;
    child->index = self->n_children;
    self->child[self->n_children++] = child;
    return LUGE_OK;
}

static void detach_last(luge_module *self)
{
    luge_module *child = self->child[--self->n_children];
    child->parent = NULL;
    lg_free(child->name);
    child->name = NULL;
}

luge_status lg_module_adopt(luge_module *self, luge_module *const *modules, int count, const char *const *names)
{
    const int before = self->n_children;
    luge_status status = lg_ok() ? reserve_children(self, count) : lg_error();
    for (int i = 0; i < count && status == LUGE_OK; ++i) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        status = attach(self, modules[i], names != NULL ? names[i] : number);
    }
    if (status == LUGE_OK) return LUGE_OK;
    while (self->n_children > before) detach_last(self);
    lg_module_dispose(modules, count);
    return status;
}

luge_module *luge_module_add(luge_module *self, const char *name, luge_module *child)
{
    static const char what[] = "luge_module_add";
    if (lg_ok() && child != NULL && self != NULL && self->source != NULL && child->parent == self->source) {
        child = lg_module_rebuild(child); /* given by the creator: its copy belongs to this copy */
        if (child == NULL) return NULL;
    }
    if (!lg_ok() || !check_place(self, name, what)) {
        lg_module_dispose(&child, 1);
        return NULL;
    }
    return lg_module_adopt(self, &child, 1, &name) == LUGE_OK ? child : NULL;
}

/* ---- questions */

bool luge_module_training(const luge_module *module)
{
    return module != NULL && module->training;
}

const char *luge_module_kind(const luge_module *module)
{
    return module != NULL ? module->type->name : "";
}

bool lg_module_is_frozen(const luge_module *m)
{
    for (int i = 0; i < m->params.count; ++i) {
        if (!m->params.slot[i].tensor->requires_grad) return true;
    }
    return false;
}
