/* Modules from inside. A module is a node of a tree: its class, its state, named parameters, buffers
 * and children. The tree is built once and does not change afterwards; forward only reads it, so
 * that any number of threads may run a module that nobody changes. */
#ifndef LG_NN_MODULE_H
#define LG_NN_MODULE_H

#include "core/tensor.h"
#include <luge/nn.h>
#include <stdatomic.h>

/* A named parameter or buffer. Owns a reference. */
typedef struct lg_slot {
    char *name;
    luge_tensor *tensor;
} lg_slot;

typedef struct lg_slots {
    lg_slot *slot;
    int count, room;
} lg_slots;

struct luge_module {
    atomic_int refs; /* the owner's, and those of open LUGE_EVAL regions */
    const luge_module_class *type;
    void *state;
    const void *given; /* the state as it was given, for clones */
    char *name;        /* in its parent; NULL for a root */
    luge_module *parent;
    int index;                 /* among its parent's children */
    const luge_module *source; /* while this is being built as a clone of it */
    bool building;
    bool built; /* build has run, so destroy must */
    bool training;
    int recompute_every;       /* each so manyth child is a region of activation checkpointing; 0: none */
    bool recompute_segments;   /* a Sequential's children are, in about sqrt(n) segments */
    bool recompute;            /* this is, by a pattern given to a module above */
    lg_slots params, buffers;
    luge_module **child; /* owned */
    int n_children, room_children;
};

/* ---- life: module.c */

/* A module of that class with a copy of `state` (NULL: zeros), being built: contents may be added. */
luge_module *lg_module_begin(const luge_module_class *type, const void *state);
/* Runs its class's build. */
void lg_module_run_build(luge_module *m);
/* Ends building: the module, or NULL with all it had freed if an error stands. NULL stays NULL. */
luge_module *lg_module_finish(luge_module *m);
void lg_module_release(luge_module *m);

/* Gives `self` all of the modules as children, or on error frees them all. names NULL: "0", "1", ... */
luge_status lg_module_adopt(luge_module *self, luge_module *const *modules, int count, const char *const *names);
/* Frees modules that a container was given but cannot keep: those without a parent, each once. */
void lg_module_dispose(luge_module *const *modules, int count);
/* Makes this very tensor a parameter, which others may hold too: a dense float leaf. */
luge_status lg_module_add_shared(luge_module *self, const char *name, luge_tensor *leaf);
/* Whether some parameter that the module has itself is frozen. */
bool lg_module_is_frozen(const luge_module *m);
/* The same module built anew, with its own initial values. transfer.c */
luge_module *lg_module_rebuild(const luge_module *m);
/* NULL, or still being built: LUGE_ERR_ARGUMENT or _STATE in the name of `what`. */
bool lg_check_module(const luge_module *m, const char *what);

/* ---- the tree: tree.c */

/* The module after m in the tree under root, parents first; NULL at the end. */
luge_module *lg_module_next(const luge_module *root, luge_module *m);

/* "1.proj", "" for the root itself; for lg_free. */
char *lg_module_path(const luge_module *root, const luge_module *m);

/* One parameter or buffer of a tree. */
typedef struct lg_item {
    const char *path; /* "1.proj.weight" */
    luge_tensor *tensor;
    luge_module *owner;
    int first;   /* the first item with the same tensor: itself, unless tied */
    bool chosen; /* for whoever goes through them */
} lg_item;

typedef struct lg_items {
    lg_item *item;
    int count;
} lg_items;

enum { LG_PARAMS = 1, LG_BUFFERS = 2 };

/* All parameters and/or buffers of a tree, parents first, a module's own in the order they were added. */
luge_status lg_items_collect(lg_items *items, const luge_module *root, int which);
void lg_items_free(lg_items *items);
/* The item of that path, or -1. `hint` is looked at first. */
int lg_items_find(const lg_items *items, const char *path, int hint);

/* ---- running: forward.c */

/* Sees every module that has run on this thread; `flops` are those of the call, children included. */
typedef void (*lg_forward_fn)(luge_module *m, luge_tensor *output, double flops, void *user);
/* NULL switches off. */
void lg_forward_observe(lg_forward_fn fn, void *user);

/* ---- changing what handles hold, all or nothing: transfer.c */

typedef struct lg_change {
    luge_tensor *handle, *value, *grad; /* grad NULL: stays */
} lg_change;

typedef struct lg_changes {
    lg_change *change;
    int count, room;
} lg_changes;

/* Plans that `handle` will hold what `value` holds, and have `grad`. Takes over both references. */
luge_status lg_changes_add(lg_changes *c, luge_tensor *handle, luge_tensor *value, luge_tensor *grad);
/* Makes the changes if `status` is LUGE_OK, which cannot fail, or forgets them. Returns status. */
luge_status lg_changes_end(lg_changes *c, luge_status status);

#endif
