/* The casts of parameters that a thread has made in its autocast region: a small table, cleared when the
 * outermost region closes. Entries are good for one version of their storages, so an optimizer may step, and
 * anybody write into a parameter, inside of a region. */
#include "core/cast_cache.h"
#include "core/alloc.h"
#include "core/thread.h"

enum { FIRST_ROOM = 16 };

static void drop(lg_cast_entry *e)
{
    luge_release(e->cast);
    luge_release(e->source);
}

void lg_cast_cache_clear(lg_cast_cache *cache)
{
    const lg_cast_cache was = *cache;
    *cache = (lg_cast_cache){0};
    for (int i = 0; i < was.count; ++i) drop(&was.entry[i]);
    lg_free(was.entry);
}

bool lg_cast_cache_takes(const luge_tensor *t)
{
    return t->requires_grad && t->node == NULL && lg_strides_are_dense(&t->shape, t->stride);
}

/* Dense tensors of the same storage: the cast lies as its source did. */
static bool is_cast_of(const lg_cast_entry *e, const luge_tensor *t, luge_dtype dtype)
{
    const luge_tensor *source = e->source;
    return e->id == t->storage->id && e->cast->dtype == dtype && source->dtype == t->dtype && source->offset == t->offset &&
           lg_shape_equal(&source->shape, &t->shape) &&
           memcmp(source->stride, t->stride, (size_t)t->shape.rank * sizeof *t->stride) == 0;
}

static lg_cast_entry *find(lg_cast_cache *cache, const luge_tensor *t, luge_dtype dtype)
{
    for (int k = 0, i = cache->next; k < cache->count; ++k, ++i) {
        if (i >= cache->count) i = 0;
        if (!is_cast_of(&cache->entry[i], t, dtype)) continue;
        cache->next = i;
        return &cache->entry[i];
    }
    return NULL;
}

static bool is_good(const lg_cast_entry *e, const luge_tensor *t)
{
    return e->version == lg_version(t) && e->cast_version == lg_version(e->cast);
}

luge_tensor *lg_cast_cache_find(const luge_tensor *t, luge_dtype dtype)
{
    const lg_cast_entry *e = find(&lg_self()->casts, t, dtype);
    return e != NULL && is_good(e, t) ? lg_tensor_alias(e->cast) : NULL;
}

/* Forgets sources that nobody else holds any more: a region may be long, and tensors come and go in it. */
static void sweep(lg_cast_cache *cache)
{
    int kept = 0;
    for (int i = 0; i < cache->count; ++i) {
        lg_cast_entry e = cache->entry[i];
        if (atomic_load_explicit(&e.source->refs, memory_order_acquire) == 1) {
            drop(&e);
        } else {
            cache->entry[kept++] = e;
        }
    }
    cache->count = kept;
    cache->next = 0;
}

/* After a sweep there is at least as much room as entries are left: what is dead never outnumbers the living. */
static luge_status make_room(lg_cast_cache *cache)
{
    if (cache->count < cache->room) return LUGE_OK;
    sweep(cache);
    if (cache->room > 0 && cache->count <= cache->room / 2) return LUGE_OK;
    const int room = cache->room == 0 ? FIRST_ROOM : 2 * cache->room;
    lg_cast_entry *bigger = lg_resize(cache->entry, (size_t)room * sizeof *bigger);
    if (bigger == NULL) return lg_error();
    cache->entry = bigger;
    cache->room = room;
    return LUGE_OK;
}

/* The frame that opened the outermost autocast region of the thread. */
static uint64_t outermost_region(const lg_thread *self)
{
    for (int i = 0; i < self->n_frames; ++i) {
        const lg_modes *inside = i + 1 < self->n_frames ? &self->frame[i + 1].before : &self->modes;
        if (inside->low != LUGE_F32) return self->frame[i].id;
    }
    return 0;
}

luge_status lg_cast_cache_keep(luge_tensor *t, const luge_tensor *cast)
{
    lg_thread *self = lg_self();
    lg_cast_cache *cache = &self->casts;
    lg_cast_entry *e = find(cache, t, cast->dtype);
    if (e != NULL && is_good(e, t) && e->cast->storage == cast->storage) return LUGE_OK;
    luge_tensor *kept = lg_tensor_alias(cast);
    if (kept == NULL) return lg_error();
    if (cache->frame == 0) cache->frame = outermost_region(self);
    if (e != NULL) {
        drop(e);
    } else if (make_room(cache) == LUGE_OK) {
        e = &cache->entry[cache->count++];
    } else {
        luge_release(kept);
        return lg_error();
    }
    *e = (lg_cast_entry){.source = luge_retain(t),
                         .cast = kept,
                         .id = t->storage->id,
                         .version = lg_version(t),
                         .cast_version = lg_version(cast)};
    return LUGE_OK;
}
