/* Which op, in which scopes, has made the storages that are alive: recorded while luge_memory_record is on. */
#ifndef LG_CORE_ORIGIN_H
#define LG_CORE_ORIGIN_H

#include "core/tensor.h"

/* Storages alive of one op and path on one device. */
typedef struct lg_origin {
    char name[256];            /* "step.net.fc1: linear" */
    const lg_device *device;
    int64_t bytes, storages;
} lg_origin;

extern atomic_bool lg_records_memory;

/* Notes where a new storage comes from, if there is memory to. */
void lg_origin_enter(lg_storage *s);
/* One that was noted goes. */
void lg_origin_leave(const lg_storage *s);
/* Those of a device that have anything alive, the largest first, in *list for lg_free; how many, -1 with the error
 * set. */
int lg_origin_list(const lg_device *device, lg_origin **list);

#endif
