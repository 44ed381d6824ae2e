/* The table of what has made the storages that are alive. One lock guards it; while nothing is recorded a storage
 * asks one flag when it is made and one word of its own when it goes. */
#include "core/origin.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "core/alloc.h"
#include "core/process.h"
#include "core/thread.h"

atomic_bool lg_records_memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    lg_origin *at;
    int count, room;
    int64_t alive; /* storages, of all */
} table;

static int find(const char *name, const lg_device *device)
{
    int i = 0;
    while (i < table.count && (table.at[i].device != device || strcmp(table.at[i].name, name) != 0)) ++i;
    return i;
}

/* Its place, or -1 if there is no memory for one more. */
static int find_or_add(const char *name, const lg_device *device)
{
    const int i = find(name, device);
    if (i < table.count) return i;
    if (table.count == table.room) {
        const int room = table.room == 0 ? 64 : 2 * table.room;
        lg_origin *bigger = lg_private_resize(table.at, (size_t)room * sizeof *bigger);
        if (bigger == NULL) return -1;
        table.at = bigger;
        table.room = room;
    }
    table.at[i] = (lg_origin){.device = device};
    snprintf(table.at[i].name, sizeof table.at[i].name, "%s", name);
    ++table.count;
    return i;
}

void lg_origin_enter(lg_storage *s)
{
    char path[192], name[sizeof table.at->name];
    const char *op = lg_self()->op;
    lg_scope_path(path, sizeof path);
    snprintf(name, sizeof name, "%s%s%s", path, path[0] != '\0' ? ": " : "", op != NULL ? op : "(no op)");
    pthread_mutex_lock(&lock);
    s->origin = 1 + find_or_add(name, s->device);
    if (s->origin > 0) {
        table.at[s->origin - 1].bytes += (int64_t)s->bytes;
        ++table.at[s->origin - 1].storages;
        ++table.alive;
    }
    pthread_mutex_unlock(&lock);
}

/* Forgets all, if nobody refers to it. */
static void clear_if_unused(void)
{
    if (table.alive > 0 || atomic_load(&lg_records_memory)) return;
    lg_private_free(table.at);
    table.at = NULL;
    table.count = table.room = 0;
}

void lg_origin_leave(const lg_storage *s)
{
    pthread_mutex_lock(&lock);
    lg_origin *o = &table.at[s->origin - 1];
    o->bytes -= (int64_t)s->bytes;
    --o->storages;
    --table.alive;
    clear_if_unused();
    pthread_mutex_unlock(&lock);
}

luge_status luge_memory_record(bool on)
{
    if (!lg_ok()) return lg_error();
    if (on) lg_fork_guard(&lock);
    pthread_mutex_lock(&lock);
    atomic_store(&lg_records_memory, on);
    clear_if_unused();
    pthread_mutex_unlock(&lock);
    return LUGE_OK;
}

static int by_size(const void *a, const void *b)
{
    const lg_origin *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->name, y->name);
}

int lg_origin_list(const lg_device *device, lg_origin **list)
{
    *list = NULL;
    pthread_mutex_lock(&lock);
    lg_origin *copy = table.count > 0 ? lg_alloc((size_t)table.count * sizeof *copy) : NULL;
    int n = 0;
    for (int i = 0; i < table.count && copy != NULL; ++i)
        if (table.at[i].device == device && table.at[i].storages > 0) copy[n++] = table.at[i];
    const bool failed = table.count > 0 && copy == NULL;
    pthread_mutex_unlock(&lock);
    if (failed) return -1;
    if (n > 0) qsort(copy, (size_t)n, sizeof *copy, by_size);
    *list = copy;
    return n;
}
