/* The state of a training run as named tensors: what run.c writes to files and find_batch.c keeps in memory. */
#ifndef LG_TRAIN_RUN_ITEMS_H
#define LG_TRAIN_RUN_ITEMS_H

#include <luge/train.h>

#include "core/tensor.h"
#include "nn/module.h"

typedef enum lg_run_kind {
    LG_RUN_MODULE,   /* a parameter or buffer */
    LG_RUN_STATE,    /* of the optimizer: tensor k of parameter `index`; may be absent */
    LG_RUN_STEPS,    /* f32 [parameters] */
    LG_RUN_POSITION, /* of the schedule, f64 [1] */
    LG_RUN_SCALER,   /* f64 [3] */
    LG_RUN_ACCUM,    /* i64 [3] */
    LG_RUN_GRADIENT, /* of parameter `index`, while a window is open; may be absent */
    LG_RUN_LOADER,   /* i64 [6] */
    LG_RUN_RANDOM    /* i64 [2]: seed and offset of the thread; once for all runs */
} lg_run_kind;

typedef struct lg_run_item {
    lg_run_kind kind;
    const luge_run *run;
    char *name;
    luge_tensor *handle; /* MODULE */
    int index, k;
    luge_tensor *value;  /* to be taken over by lg_run_commit; owned */
} lg_run_item;

typedef struct lg_run_items {
    lg_run_item *item;
    int count, room;
} lg_run_items;

/* All items of a run and those chained to it, after checking them in the name of `what`. */
luge_status lg_run_collect(lg_run_items *items, const luge_run *run, const char *what);
void lg_run_items_free(lg_run_items *items);
/* What an item is now, borrowed; NULL without an error if it is absent. */
luge_tensor *lg_run_get(const lg_run_item *item);
/* Whether the item may be absent. */
bool lg_run_is_optional(const lg_run_item *item);
/* The shape that its value must have. */
luge_shape lg_run_shape(const lg_run_item *item);
/* Makes ready to become `value` (host, of that shape; NULL: absent). All that can fail fails here. */
luge_status lg_run_stage(lg_run_item *item, luge_tensor *value);
/* All items become what was staged. Fails only with a device. */
luge_status lg_run_commit(lg_run_items *items);

#endif
