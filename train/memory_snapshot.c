/* The statistics of a device's memory, and what holds it, as JSON. */
#include <jansson.h>
#include <stdlib.h>
#include "core/alloc.h"
#include "core/origin.h"
#include "core/thread.h"

static json_t *describe(const lg_origin *o)
{
    json_t *name = json_string(o->name);
    if (name == NULL) name = json_string("(no UTF-8)");
    return json_pack("{s:o, s:I, s:I}", "made_by", name, "bytes", (json_int_t)o->bytes, "tensors", (json_int_t)o->storages);
}

static json_t *describe_stats(const luge_memory_stats *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "allocated_bytes", (json_int_t)s->allocated_bytes,
                     "allocated_peak", (json_int_t)s->allocated_peak, "reserved_bytes", (json_int_t)s->reserved_bytes,
                     "reserved_peak", (json_int_t)s->reserved_peak, "limit", (json_int_t)s->limit, "allocations",
                     (json_int_t)s->allocations, "system_allocations", (json_int_t)s->system_allocations, "failures",
                     (json_int_t)s->failures, "live_tensors", (json_int_t)s->live_tensors);
}

const char *luge_memory_snapshot(luge_device device)
{
    const lg_device *d = luge_device_usable(device) ? lg_device_get(device) : NULL;
    if (d == NULL) return "{}";
    const luge_memory_stats stats = luge_memory_get_stats(device);
    lg_origin *list = NULL;
    const int n = lg_origin_list(d, &list);
    json_t *holders = json_array();
    for (int i = 0; i < n; ++i) json_array_append_new(holders, describe(&list[i]));
    lg_free(list);
    json_t *all = json_pack("{s:s, s:i, s:o, s:o}", "device", d->backend->name, "index", d->id.index, "stats",
                            describe_stats(&stats), "holders", holders);
    char *text = all != NULL ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    const char *borrowed = lg_borrow_text("%s", text != NULL ? text : "{}");
    free(text);
    return borrowed;
}
