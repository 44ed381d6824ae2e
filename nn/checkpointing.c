/* Which parts of a module are recomputed in backward. forward.c and nn_container.c act on it. */
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "nn/module.h"
#include "nn/pattern.h"

static const char what[] = "luge_module_set_checkpointing";

/* Marks the modules below `root` that match, or only counts them; -1 on error. */
static int mark_matching(luge_module *root, const char *pattern, bool mark)
{
    int found = 0;
    for (luge_module *m = lg_module_next(root, root); m != NULL; m = lg_module_next(root, m)) {
        char *path = lg_module_path(root, m);
        if (path == NULL) return -1;
        const bool matches = lg_pattern_match(pattern, path, 2);
        lg_free(path);
        if (!matches) continue;
        ++found;
        if (mark) m->recompute = true;
    }
    return found;
}

static void clear(luge_module *root)
{
    root->recompute_every = 0;
    root->recompute_segments = false;
    for (luge_module *m = lg_module_next(root, root); m != NULL; m = lg_module_next(root, m)) m->recompute = false;
}

static luge_status check_policy(luge_module *m, const luge_checkpointing *p)
{
    if (!lg_check_reserved(p->reserved, 4, "luge_checkpointing")) return lg_error();
    if (p->every < 0) return lg_fail(LUGE_ERR_ARGUMENT, "%s: every is %d, not 1 or more", what, p->every);
    if ((p->every > 0) + p->sqrt + (p->modules != NULL) > 1)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: every, sqrt and modules exclude each other", what);
    if (p->sqrt && strcmp(m->type->name, "Sequential") != 0)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: a %s cannot be cut into segments, only a Sequential", what, m->type->name);
    if (p->modules == NULL) return LUGE_OK;
    if (lg_pattern_check(p->modules, what) != LUGE_OK) return lg_error();
    const int found = mark_matching(m, p->modules, false);
    if (found < 0) return lg_error();
    return found > 0 ? LUGE_OK : lg_fail(LUGE_ERR_ARGUMENT, "%s: no module matches \"%s\"", what, p->modules);
}

luge_status luge_module_set_checkpointing(luge_module *module, const luge_checkpointing *policy)
{
    const luge_checkpointing p = policy != NULL ? *policy : (luge_checkpointing)LUGE_DEFAULTS;
    if (!lg_ok() || !lg_check_module(module, what) || check_policy(module, &p) != LUGE_OK) return lg_error();
    clear(module);
    module->recompute_every = p.every;
    module->recompute_segments = p.sqrt;
    if (p.modules != NULL && mark_matching(module, p.modules, true) < 0) {
        clear(module);
        return lg_error();
    }
    return LUGE_OK;
}
