/* The tree of modules: walking it, names and paths, modes, freezing. Walks are loops, not recursion,
 * and take no memory; paths are made for a whole tree at once. */
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "nn/pattern.h"

luge_module *lg_module_next(const luge_module *root, luge_module *m)
{
    if (m->n_children > 0) return m->child[0];
    while (m != root && m->index + 1 == m->parent->n_children) m = m->parent;
    return m == root ? NULL : m->parent->child[m->index + 1];
}

/* ---- paths */

/* Bytes of "1.proj." in front of what m holds, without an end. */
static size_t prefix_length(const luge_module *root, const luge_module *m)
{
    size_t length = 0;
    for (; m != root; m = m->parent) length += strlen(m->name) + 1;
    return length;
}

static void write_prefix(char *to, const luge_module *root, const luge_module *m)
{
    char *end = to + prefix_length(root, m);
    for (; m != root; m = m->parent) {
        const size_t length = strlen(m->name);
        *--end = '.';
        end -= length;
        memcpy(end, m->name, length);
    }
}

static const lg_slots *slots_of(const luge_module *m, int which)
{
    return which == LG_PARAMS ? &m->params : &m->buffers;
}

static void measure(const luge_module *root, const luge_module *m, int which, int64_t *count, size_t *bytes)
{
    const lg_slots *slots = slots_of(m, which);
    if (slots->count == 0) return;
    const size_t prefix = prefix_length(root, m);
    for (int i = 0; i < slots->count; ++i) *bytes += prefix + strlen(slots->slot[i].name) + 1;
    *count += slots->count;
}

/* Returns where the next path goes. */
static char *add_items(lg_items *items, const luge_module *root, luge_module *m, int which, char *text)
{
    const lg_slots *slots = slots_of(m, which);
    const size_t prefix = slots->count > 0 ? prefix_length(root, m) : 0;
    for (int i = 0; i < slots->count; ++i) {
        const size_t name = strlen(slots->slot[i].name) + 1;
        write_prefix(text, root, m);
        memcpy(text + prefix, slots->slot[i].name, name);
        items->item[items->count] =
            (lg_item){.path = text, .tensor = slots->slot[i].tensor, .owner = m, .first = items->count};
        ++items->count;
        text += prefix + name;
    }
    return text;
}

typedef struct place {
    uintptr_t tensor;
    int index;
} place;

static int by_tensor(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Finds tied items: sorted by tensor, they lie together. */
static luge_status find_ties(lg_items *items)
{
    place *sorted = lg_alloc((size_t)items->count * sizeof *sorted + 1);
    if (sorted == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    for (int i = 0; i < items->count; ++i) sorted[i] = (place){(uintptr_t)items->item[i].tensor, i};
    qsort(sorted, (size_t)items->count, sizeof *sorted, by_tensor);
    for (int i = 1; i < items->count; ++i) {
        if (sorted[i].tensor != sorted[i - 1].tensor) continue;
        items->item[sorted[i].index].first = items->item[sorted[i - 1].index].first;
    }
    lg_free(sorted);
    return LUGE_OK;
}

luge_status lg_items_collect(lg_items *items, const luge_module *root, int which)
{
    *items = (lg_items){0};
    luge_module *top = (luge_module *)root;
    int64_t count = 0;
    size_t bytes = 0;
    for (luge_module *m = top; m != NULL; m = lg_module_next(root, m)) {
        if (which & LG_PARAMS) measure(root, m, LG_PARAMS, &count, &bytes);
        if (which & LG_BUFFERS) measure(root, m, LG_BUFFERS, &count, &bytes);
    }
    items->item = lg_alloc((size_t)count * sizeof *items->item + bytes + 1);
    if (items->item == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    char *text = (char *)(items->item + count);
    for (luge_module *m = top; m != NULL; m = lg_module_next(root, m)) {
        if (which & LG_PARAMS) text = add_items(items, root, m, LG_PARAMS, text);
        if (which & LG_BUFFERS) text = add_items(items, root, m, LG_BUFFERS, text);
    }
    const luge_status status = find_ties(items);
    if (status != LUGE_OK) lg_items_free(items);
    return status;
}

void lg_items_free(lg_items *items)
{
    lg_free(items->item);
    *items = (lg_items){0};
}

int lg_items_find(const lg_items *items, const char *path, int hint)
{
    if (hint >= 0 && hint < items->count && strcmp(items->item[hint].path, path) == 0) return hint;
    for (int i = 0; i < items->count; ++i) {
        if (strcmp(items->item[i].path, path) == 0) return i;
    }
    return -1;
}

char *lg_module_path(const luge_module *root, const luge_module *m)
{
    const size_t length = prefix_length(root, m);
    char *path = lg_alloc(length + 1);
    if (path == NULL) return NULL;
    write_prefix(path, root, m);
    path[length > 0 ? length - 1 : 0] = '\0'; /* over the last dot */
    return path;
}

/* ---- finding by path */

static luge_module *find_own_child(const luge_module *m, const char *name, size_t length)
{
    for (int i = 0; i < m->n_children; ++i) {
        if (strncmp(m->child[i]->name, name, length) == 0 && m->child[i]->name[length] == '\0') return m->child[i];
    }
    return NULL;
}

/* The module that the path from `path` to `end` names, or NULL. */
static luge_module *find_child(luge_module *m, const char *path, const char *end)
{
    while (m != NULL && path <= end) {
        const char *dot = memchr(path, '.', (size_t)(end - path));
        const char *stop = dot != NULL ? dot : end;
        m = find_own_child(m, path, (size_t)(stop - path));
        path = stop + 1;
    }
    return m;
}

static luge_tensor *find_tensor(luge_module *root, const char *path, int which)
{
    const char *what = which == LG_PARAMS ? "luge_module_param" : "luge_module_buffer";
    const char *kind = which == LG_PARAMS ? "parameter" : "buffer";
    if (root == NULL || path == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the %s is NULL", what, root == NULL ? "module" : "name");
        return NULL;
    }
    const char *dot = strrchr(path, '.');
    const luge_module *m = dot != NULL ? find_child(root, path, dot) : root;
    const lg_slots *slots = m != NULL ? slots_of(m, which) : NULL;
    for (int i = 0; slots != NULL && i < slots->count; ++i) {
        if (strcmp(slots->slot[i].name, dot != NULL ? dot + 1 : path) == 0) return slots->slot[i].tensor;
    }
    lg_fail(LUGE_ERR_ARGUMENT, "%s: the %s has no %s \"%s\"; luge_module_summary shows what it has", what,
            root->type->name, kind, path);
    return NULL;
}

luge_tensor *luge_module_param(luge_module *module, const char *name)
{
    return find_tensor(module, name, LG_PARAMS);
}

luge_tensor *luge_module_buffer(luge_module *module, const char *name)
{
    return find_tensor(module, name, LG_BUFFERS);
}

luge_module *luge_module_child(luge_module *module, const char *name)
{
    static const char what[] = "luge_module_child";
    if (module == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the module is NULL", what);
        return NULL;
    }
    luge_module *child = name != NULL ? find_child(module, name, name + strlen(name)) : NULL;
    if (child == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the %s has no module \"%s\"", what, module->type->name,
                name != NULL ? name : "NULL");
    }
    return child;
}

/* ---- visiting */

static luge_status visit_items(luge_module *module, int which, luge_param_fn visit, void *user, const char *what)
{
    if (!lg_ok() || !lg_check_module(module, what)) return lg_error();
    if (visit == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: the function is NULL", what);
    lg_items items;
    if (lg_items_collect(&items, module, which) != LUGE_OK) return lg_error();
    for (int i = 0; i < items.count && lg_ok(); ++i) {
        if (items.item[i].first == i) visit(items.item[i].path, items.item[i].tensor, user);
    }
    lg_items_free(&items);
    return lg_error();
}

luge_status luge_module_each_param(luge_module *module, luge_param_fn visit, void *user)
{
    return visit_items(module, LG_PARAMS, visit, user, "luge_module_each_param");
}

luge_status luge_module_each_buffer(luge_module *module, luge_param_fn visit, void *user)
{
    return visit_items(module, LG_BUFFERS, visit, user, "luge_module_each_buffer");
}

luge_status luge_module_each(luge_module *module, luge_module_fn visit, void *user)
{
    static const char what[] = "luge_module_each";
    if (!lg_ok() || !lg_check_module(module, what)) return lg_error();
    if (visit == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: the function is NULL", what);
    for (luge_module *m = module; m != NULL && lg_ok(); m = lg_module_next(module, m)) {
        char *path = lg_module_path(module, m);
        if (path == NULL) break;
        visit(path, m, user);
        lg_free(path);
    }
    return lg_error();
}

int64_t luge_module_param_count(const luge_module *module)
{
    lg_items items;
    if (!lg_check_module(module, "luge_module_param_count") || lg_items_collect(&items, module, LG_PARAMS) != LUGE_OK) {
        return 0;
    }
    int64_t count = 0;
    for (int i = 0; i < items.count; ++i) count += items.item[i].first == i ? items.item[i].tensor->numel : 0;
    lg_items_free(&items);
    return count;
}

/* ---- modes */

/* Writes only what differs: several threads may find a module in the mode they want. */
static void set_mode(luge_module *m, bool training)
{
    if (m->training != training) m->training = training;
}

static void set_modes(luge_module *root, bool training, const char *what)
{
    if (!lg_ok() || !lg_check_module(root, what)) return;
    for (luge_module *m = root; m != NULL; m = lg_module_next(root, m)) set_mode(m, training);
}

void luge_module_train(luge_module *module)
{
    set_modes(module, true, "luge_module_train");
}

void luge_module_eval(luge_module *module)
{
    set_modes(module, false, "luge_module_eval");
}

/* What an eval region restores: the modes of a tree, parents first. */
typedef struct eval_region {
    luge_module *root; /* a reference */
    bool was[];
} eval_region;

static void leave_eval(void *data)
{
    eval_region *region = data;
    int i = 0;
    for (luge_module *m = region->root; m != NULL; m = lg_module_next(region->root, m)) set_mode(m, region->was[i++]);
    lg_module_release(region->root);
    lg_free(region);
}

luge_scope luge_eval_enter(luge_module *module)
{
    lg_modes modes = lg_self()->modes;
    modes.no_grad = true;
    if (!lg_ok() || !lg_check_module(module, "luge_eval_enter")) return lg_mode_enter(modes, NULL, NULL);
    size_t count = 0;
    for (luge_module *m = module; m != NULL; m = lg_module_next(module, m)) ++count;
    eval_region *region = lg_alloc(sizeof *region + count * sizeof region->was[0]);
    if (region == NULL) return lg_mode_enter(modes, NULL, NULL);
    region->root = module;
    atomic_fetch_add_explicit(&module->refs, 1, memory_order_relaxed);
    size_t i = 0;
    for (luge_module *m = module; m != NULL; m = lg_module_next(module, m)) {
        region->was[i++] = m->training;
        set_mode(m, false);
    }
    return lg_mode_enter(modes, leave_eval, region);
}

/* ---- freezing */

static int set_frozen(luge_module *module, const char *pattern, bool frozen, const char *what)
{
    if (!lg_ok() || !lg_check_module(module, what) || lg_pattern_check(pattern, what) != LUGE_OK) return 0;
    lg_items items;
    if (lg_items_collect(&items, module, LG_PARAMS) != LUGE_OK) return 0;
    int count = 0;
    for (int i = 0; i < items.count; ++i) {
        const lg_item *item = &items.item[i];
        lg_item *first = &items.item[item->first];
        if (first->chosen || !lg_pattern_match(pattern, item->path, item->tensor->shape.rank)) continue;
        first->chosen = true;
        ++count;
        lg_set_requires_grad(item->tensor, !frozen);
        if (!frozen) continue;
        luge_release(item->tensor->grad); /* or a step would still use it */
        item->tensor->grad = NULL;
    }
    if (count == 0) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: no parameter matches \"%s\"%s%s%s", what, pattern != NULL ? pattern : "*",
                items.count > 0 ? "; the first is called \"" : "; there is none",
                items.count > 0 ? items.item[0].path : "", items.count > 0 ? "\"" : "");
    }
    lg_items_free(&items);
    return count;
}

int luge_module_freeze(luge_module *module, const char *pattern)
{
    return set_frozen(module, pattern, true, "luge_module_freeze");
}

int luge_module_unfreeze(luge_module *module, const char *pattern)
{
    return set_frozen(module, pattern, false, "luge_module_unfreeze");
}
