/* What handles hold, exchanged: moving a module to another device or dtype, copying, cloning. The new
 * values are made first; then all handles change at once, which cannot fail. */
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "nn/module.h"
#include "nn/values.h"

/* ---- planned changes */

luge_status lg_changes_add(lg_changes *c, luge_tensor *handle, luge_tensor *value, luge_tensor *grad)
{
    if (c->count == c->room) {
        const int room = c->room == 0 ? 16 : 2 * c->room;
        lg_change *bigger = lg_resize(c->change, (size_t)room * sizeof *bigger);
        if (bigger == NULL) {
            luge_release(value);
            luge_release(grad);
            return lg_error();
        }
        c->change = bigger;
        c->room = room;
    }
    c->change[c->count++] = (lg_change){handle, value, grad};
    return LUGE_OK;
}

luge_status lg_changes_end(lg_changes *c, luge_status status)
{
    for (int i = 0; i < c->count; ++i) {
        lg_change *change = &c->change[i];
        if (status == LUGE_OK) {
            lg_tensor_rebind(change->handle, change->value);
            if (change->grad != NULL) {
                luge_tensor *old = change->handle->grad;
                change->handle->grad = change->grad;
                change->grad = old;
            }
        }
        luge_release(change->value);
        luge_release(change->grad);
    }
    lg_free(c->change);
    *c = (lg_changes){0};
    return status;
}

/* ---- moving and converting */

typedef luge_tensor *(*convert_fn)(luge_tensor *t, const void *to);

static luge_tensor *to_device(luge_tensor *t, const void *to)
{
    return luge_to(t, *(const luge_device *)to, NULL);
}

static luge_tensor *to_dtype(luge_tensor *t, const void *to)
{
    return lg_is_float(t->dtype) ? luge_cast(t, *(const luge_dtype *)to) : t;
}

/* A reference to what `convert` makes of t, or to t itself if there is nothing to do. */
static luge_tensor *converted(luge_tensor *t, convert_fn convert, const void *to)
{
    luge_scope scope = luge_scope_enter("");
    luge_no_grad_enter();
    luge_tensor *made = lg_ok() ? luge_retain(convert(t, to)) : NULL;
    luge_scope_exit(scope, NULL);
    return made;
}

static luge_status plan_conversion(lg_changes *changes, luge_tensor *t, convert_fn convert, const void *to)
{
    luge_tensor *value = converted(t, convert, to);
    if (value == NULL || value == t) {
        luge_release(value);
        return lg_error();
    }
    luge_tensor *grad = NULL;
    if (t->grad != NULL) {
        grad = converted(t->grad, convert, to);
        if (grad == NULL) {
            luge_release(value);
            return lg_error();
        }
    }
    return lg_changes_add(changes, t, value, grad);
}

static luge_status convert_all(luge_module *module, convert_fn convert, const void *to)
{
    lg_items items;
    luge_status status = lg_items_collect(&items, module, LG_PARAMS | LG_BUFFERS);
    lg_changes changes = {0};
    for (int i = 0; i < items.count && status == LUGE_OK; ++i) {
        if (items.item[i].first == i) status = plan_conversion(&changes, items.item[i].tensor, convert, to);
    }
    lg_items_free(&items);
    return lg_changes_end(&changes, status);
}

luge_status luge_module_to(luge_module *module, luge_device device)
{
    if (!lg_ok() || !lg_check_module(module, "luge_module_to") || lg_device_get(device) == NULL) return lg_error();
    return convert_all(module, to_device, &device);
}

luge_status luge_module_to_dtype(luge_module *module, luge_dtype dtype)
{
    static const char what[] = "luge_module_to_dtype";
    if (!lg_ok() || !lg_check_module(module, what)) return lg_error();
    if (!lg_dtype_valid(dtype) || !lg_is_float(dtype)) {
        return lg_fail(LUGE_ERR_DTYPE, "%s: modules have floats, not %s", what, luge_dtype_name(dtype));
    }
    return convert_all(module, to_dtype, &dtype);
}

/* ---- copying */

static luge_status plan_copy(lg_changes *changes, const lg_item *to, const luge_tensor *from)
{
    if (!lg_shape_equal(&to->tensor->shape, &from->shape)) {
        char a[LG_SHAPE_TEXT], b[LG_SHAPE_TEXT];
        return lg_fail(LUGE_ERR_SHAPE, "luge_module_copy: %s is %s in the one, %s in the other", to->path,
                       lg_shape_text(a, &to->tensor->shape), lg_shape_text(b, &from->shape));
    }
    luge_tensor *value = lg_values_like(to->tensor, to->tensor->dtype, (luge_tensor *)from);
    return value != NULL ? lg_changes_add(changes, to->tensor, value, NULL) : lg_error();
}

static luge_status plan_copies(lg_changes *changes, const lg_items *to, const lg_items *from)
{
    for (int i = 0; i < from->count; ++i) {
        if (lg_items_find(to, from->item[i].path, i) < 0) {
            return lg_fail(LUGE_ERR_ARGUMENT, "luge_module_copy: %s is missing in the module copied to",
                           from->item[i].path);
        }
    }
    for (int i = 0; i < to->count; ++i) {
        const int at = lg_items_find(from, to->item[i].path, i);
        if (at < 0) {
            return lg_fail(LUGE_ERR_ARGUMENT, "luge_module_copy: %s is missing in the module copied from",
                           to->item[i].path);
        }
        if (to->item[i].first == i && plan_copy(changes, &to->item[i], from->item[at].tensor) != LUGE_OK) break;
    }
    return lg_error();
}

luge_status luge_module_copy(luge_module *to, const luge_module *from)
{
    if (!lg_ok() || !lg_check_module(to, "luge_module_copy") || !lg_check_module(from, "luge_module_copy")) {
        return lg_error();
    }
    lg_items here, there;
    if (lg_items_collect(&here, to, LG_PARAMS | LG_BUFFERS) != LUGE_OK) return lg_error();
    luge_status status = lg_items_collect(&there, from, LG_PARAMS | LG_BUFFERS);
    lg_changes changes = {0};
    if (status == LUGE_OK) status = plan_copies(&changes, &here, &there);
    lg_items_free(&there);
    lg_items_free(&here);
    return lg_changes_end(&changes, status);
}

/* ---- cloning */

/* What a class without build holds came from outside: its children and parameters are copied. */
static void rebuild_contents(luge_module *copy, const luge_module *m)
{
    for (int i = 0; i < m->params.count; ++i) {
        luge_scope no_grad = luge_no_grad_enter();
        luge_tensor *value = luge_clone(m->params.slot[i].tensor);
        luge_scope_exit(no_grad, NULL);
        lg_module_add_shared(copy, m->params.slot[i].name, value);
    }
    for (int i = 0; i < m->n_children && lg_ok(); ++i) {
        luge_module *child = lg_module_rebuild(m->child[i]);
        const char *name = m->child[i]->name;
        lg_module_adopt(copy, &child, 1, &name);
    }
}

luge_module *lg_module_rebuild(const luge_module *m)
{
    if (m->type->build == NULL && m->type->destroy != NULL) {
        lg_fail(LUGE_ERR_UNSUPPORTED,
                "luge_module_clone: class %s has a destroy, but no build that would make anew what it frees",
                m->type->name);
        return NULL;
    }
    luge_module *copy = lg_module_begin(m->type, m->given);
    if (copy == NULL) return NULL;
    copy->source = m;
    luge_scope scope = luge_scope_enter("");
    if (m->type->build != NULL) {
        lg_module_run_build(copy);
    } else {
        copy->built = true;
        rebuild_contents(copy, m);
    }
    luge_scope_exit(scope, NULL);
    return lg_module_finish(copy);
}

static luge_status plan_slots(lg_changes *changes, const lg_slots *to, const lg_slots *from)
{
    if (to->count != from->count) return LUGE_ERR_STATE;
    for (int i = 0; i < to->count; ++i) {
        const lg_slot *a = &to->slot[i], *b = &from->slot[i];
        if (strcmp(a->name, b->name) != 0 || !lg_shape_equal(&a->tensor->shape, &b->tensor->shape))
            return LUGE_ERR_STATE;
        luge_tensor *value = lg_values_like(b->tensor, b->tensor->dtype, b->tensor);
        if (value == NULL || lg_changes_add(changes, a->tensor, value, NULL) != LUGE_OK) return lg_error();
    }
    return LUGE_OK;
}

/* Walks both trees together, which must have grown alike. */
static luge_status plan_clone(lg_changes *changes, luge_module *copy, const luge_module *source)
{
    luge_module *from = (luge_module *)source;
    for (luge_module *to = copy; to != NULL; to = lg_module_next(copy, to)) {
        luge_status status = from == NULL || to->type != from->type || to->n_children != from->n_children
                                 ? LUGE_ERR_STATE
                                 : plan_slots(changes, &to->params, &from->params);
        if (status == LUGE_OK) status = plan_slots(changes, &to->buffers, &from->buffers);
        if (!lg_ok()) return lg_error();
        if (status != LUGE_OK) {
            return lg_fail(status, "luge_module_clone: %s: build made something else the second time", to->type->name);
        }
        from = lg_module_next(source, from);
    }
    return LUGE_OK;
}

static void copy_flags(luge_module *copy, const luge_module *source)
{
    luge_module *from = (luge_module *)source;
    for (luge_module *to = copy; to != NULL; to = lg_module_next(copy, to)) {
        to->training = from->training;
        to->recompute_every = from->recompute_every;
        to->recompute_segments = from->recompute_segments;
        to->recompute = from->recompute;
        for (int i = 0; i < to->params.count; ++i) {
            lg_set_requires_grad(to->params.slot[i].tensor, from->params.slot[i].tensor->requires_grad);
        }
        from = lg_module_next(source, from);
    }
}

luge_module *luge_module_clone(const luge_module *module)
{
    if (!lg_ok() || !lg_check_module(module, "luge_module_clone")) return NULL;
    lg_thread *self = lg_self();
    const uint64_t seed = self->seed, rng_offset = self->rng_offset;
    luge_module *copy = lg_module_rebuild(module);
    self->seed = seed; /* initial values were drawn in vain */
    self->rng_offset = rng_offset;
    if (copy == NULL) return NULL;
    lg_changes changes = {0};
    if (lg_changes_end(&changes, plan_clone(&changes, copy, module)) != LUGE_OK) {
        lg_module_release(copy);
        return NULL;
    }
    copy_flags(copy, module);
    return copy;
}
