/* Taking back what ops have written. While an attempt runs that may fail, such as a batch that may not fit
 * into memory, the call path keeps what tensors held before an op wrote into them: running statistics,
 * counters. Tensors that the attempt itself has made go with it and are passed over. */
#ifndef LG_CORE_UNDO_H
#define LG_CORE_UNDO_H

#include "core/tensor.h"

typedef struct lg_undo_entry {
    luge_tensor *target, *before; /* references */
} lg_undo_entry;

typedef struct lg_undo {
    lg_undo_entry *entry;
    int count, room;
    uint64_t first_new; /* storages from this number on were made by the attempt */
} lg_undo;

/* An attempt begins: what is there already is kept when it is written to, behind the entries there are. */
void lg_undo_begin(lg_undo *u);
/* Whether t is to be kept before it is written to. */
bool lg_undo_wants(const lg_undo *u, const luge_tensor *t);
/* Notes what t held; takes over the reference of `before` in any case. */
luge_status lg_undo_add(lg_undo *u, luge_tensor *t, luge_tensor *before);
/* Writes back all entries from number `from` on, the latest first, and forgets them. */
luge_status lg_undo_back(lg_undo *u, int from);
/* Forgets everything and gives the memory back. */
void lg_undo_end(lg_undo *u);

#endif
