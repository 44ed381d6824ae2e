/* What tensors held before they were written to; see undo.h. */
#include "core/undo.h"

#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"

void lg_undo_begin(lg_undo *u)
{
    u->first_new = lg_storage_next();
}

bool lg_undo_wants(const lg_undo *u, const luge_tensor *t)
{
    return t->storage->id < u->first_new;
}

luge_status lg_undo_add(lg_undo *u, luge_tensor *t, luge_tensor *before)
{
    if (u->count == u->room) {
        const int room = u->room == 0 ? 16 : 2 * u->room;
        lg_undo_entry *bigger = lg_resize(u->entry, (size_t)room * sizeof *bigger);
        if (bigger == NULL) {
            luge_release(before);
            return lg_error();
        }
        u->entry = bigger;
        u->room = room;
    }
    u->entry[u->count++] = (lg_undo_entry){luge_retain(t), before};
    return LUGE_OK;
}

static void forget(lg_undo_entry *e)
{
    luge_release(e->target);
    luge_release(e->before);
}

luge_status lg_undo_back(lg_undo *u, int from)
{
    luge_scope scope = luge_scope_enter("");
    luge_no_grad_enter();
    lg_self()->modes.undo = NULL;
    while (u->count > from && lg_ok()) {
        lg_undo_entry *e = &u->entry[u->count - 1];
        if (lg_service.copy(e->target, e->before) == NULL) break;
        forget(e);
        --u->count;
    }
    luge_scope_exit(scope, NULL);
    return lg_error();
}

void lg_undo_end(lg_undo *u)
{
    for (int i = 0; i < u->count; ++i) forget(&u->entry[i]);
    lg_free(u->entry);
    *u = (lg_undo){0};
}
