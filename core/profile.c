/* Recording of events while a thread is profiled: starting, stopping, and what the call path, scopes and the
 * engine tell. Events lie in one array in the order they were opened, and name the one around them. Recording
 * never fails an op: what there is no memory for is counted. */
#include "core/profile.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "core/alloc.h"
#include "core/iter.h"
#include "core/memory.h"
#include "core/services.h"

/* ---- arrays that grow */

static bool make_room(void **array, int64_t *room, int64_t need, size_t size)
{
    if (need <= *room) return true;
    int64_t more = *room < 64 ? 64 : *room;
    while (more < need) more *= 2;
    void *bigger = lg_private_resize(*array, (size_t)more * size);
    if (bigger == NULL) return false;
    *array = bigger;
    *room = more;
    return true;
}

/* ---- clock */

static int64_t clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t time_of(const luge_profile *p)
{
    return clock_now() - p->origin - p->paused;
}

/* ---- events */

/* NULL if there is no memory; to be closed all the same. */
static lg_event *open_event(luge_profile *p, const char *name, lg_event_kind kind)
{
    if (p->lost_open > 0 || !make_room((void **)&p->event, &p->room_events, p->n_events + 1, sizeof *p->event)) {
        ++p->lost;
        ++p->lost_open;
        return NULL;
    }
    lg_event *e = &p->event[p->n_events];
    *e = (lg_event){.kind = kind, .parent = p->current, .in_use = -1, .bytes = p->bytes};
    snprintf(e->name, sizeof e->name, "%s", name);
    p->current = p->n_events++;
    e->start = e->end = time_of(p);
    return e;
}

/* The one that is open innermost; NULL if it was lost. */
static lg_event *close_event(luge_profile *p)
{
    if (p->lost_open > 0) {
        --p->lost_open;
        return NULL;
    }
    lg_event *e = &p->event[p->current];
    e->end = time_of(p);
    e->bytes = p->bytes - e->bytes;
    p->current = e->parent;
    if (p->current >= 0) {
        p->event[p->current].inside += e->end - e->start;
        p->event[p->current].bytes_inside += e->bytes;
    }
    return e;
}

void lg_profile_enter(const lg_frame *frame)
{
    lg_event *e = open_event(lg_self()->profile, frame->name, LG_EVENT_SCOPE);
    if (e != NULL) e->frame = frame->id;
}

void lg_profile_exit(uint64_t frame)
{
    luge_profile *p = lg_self()->profile;
    if (frame < p->first_frame) return; /* opened before the start */
    if (p->lost_open > 0 || (p->current >= 0 && p->event[p->current].frame == frame)) close_event(p);
}

void lg_profile_mark_node(void)
{
    luge_profile *p = lg_self()->profile;
    if (p->lost_open == 0 && p->current >= 0) p->event[p->current].kind = LG_EVENT_NODE;
}

/* ---- values */

static bool is_subnormal(double magnitude, luge_dtype dtype)
{
    return dtype == LUGE_F16 ? magnitude < 0x1p-14 : dtype == LUGE_BF16 && magnitude < 0x1p-126;
}

static void look_at_memory(lg_amp_row *row, const luge_tensor *t, const char *base)
{
    const int64_t size = (int64_t)lg_element_size(t);
    lg_iter it;
    lg_iter_init(&it, &t->shape, 1, (luge_tensor *[]){(luge_tensor *)t});
    for (int64_t r = 0; r * it.size[0] < it.numel; ++r) {
        int64_t offset[LG_ITER_MAX];
        lg_iter_row(&it, r, offset);
        const char *at = base + (t->offset + offset[0]) * size;
        for (int64_t i = 0; i < it.size[0]; ++i) {
            const double magnitude = fabs(lg_load_f64(at + i * it.stride[0][0] * size, t->dtype));
            if (!isfinite(magnitude)) {
                ++row->overflow;
            } else {
                row->underflow += is_subnormal(magnitude, t->dtype);
                if (magnitude > row->largest) row->largest = magnitude;
            }
        }
    }
    row->elements += t->numel;
}

/* What cannot be looked at, for want of memory or because the device fails, is left out: the op has worked. */
static void look_at(lg_amp_row *row, const luge_tensor *t)
{
    const lg_storage *s = t->storage;
    if (t->numel == 0) return;
    if (lg_on_host(s->device)) {
        look_at_memory(row, t, s->data);
        return;
    }
    char *copy = lg_private_resize(NULL, s->bytes);
    if (copy != NULL && s->device->backend->to_host(s->device, copy, s->data, s->bytes) == LUGE_OK)
        look_at_memory(row, t, copy);
    lg_private_free(copy);
}

static lg_amp_row *row_of(luge_profile *p, const char *name, luge_dtype dtype)
{
    for (int64_t i = 0; i < p->n_rows; ++i)
        if (p->row[i].dtype == dtype && strncmp(p->row[i].name, name, sizeof p->row[i].name - 1) == 0) return &p->row[i];
    if (!make_room((void **)&p->row, &p->room_rows, p->n_rows + 1, sizeof *p->row)) return NULL;
    lg_amp_row *row = &p->row[p->n_rows++];
    *row = (lg_amp_row){.dtype = dtype};
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

static void note_values(luge_profile *p, const char *name, const lg_call *call, int64_t self_time)
{
    const int64_t began = clock_now();
    const luge_tensor *y = call->out[0];
    lg_amp_row *row = lg_is_float(y->dtype) ? row_of(p, name, y->dtype) : NULL;
    if (row != NULL) {
        const int64_t before = row->overflow;
        ++row->calls;
        row->time += self_time;
        look_at(row, y);
        if (row->overflow > before && p->first_bad[0] == '\0') {
            char path[LG_ERROR_TEXT / 4], shape[LG_SHAPE_TEXT];
            lg_scope_path(path, sizeof path);
            snprintf(p->first_bad, sizeof p->first_bad, "%s%s%s, %s %s", path, path[0] != '\0' ? ": " : "", name,
                     lg_shape_text(shape, &y->shape), luge_dtype_name(y->dtype));
        }
    }
    p->paused += clock_now() - began;
}

/* ---- ops */

static void note_tensors(luge_profile *p, int n, luge_tensor *const *t, int *count)
{
    if (!make_room((void **)&p->tensor, &p->room_tensors, p->n_tensors + n, sizeof *p->tensor)) return;
    for (int i = 0; i < n; ++i) {
        if (t[i] == NULL || lg_is_none(t[i]) || t[i]->magic != LG_TENSOR_MAGIC) continue;
        p->tensor[p->n_tensors++] = (lg_event_tensor){t[i]->dtype, t[i]->shape};
        ++*count;
    }
}

luge_status lg_profile_op(const char *name, lg_call *call, luge_tensor *const *given, luge_tensor **in,
                          luge_status (*run)(lg_call *, luge_tensor *const *, luge_tensor **))
{
    lg_thread *self = lg_self();
    luge_profile *p = self->profile;
    open_event(p, name, LG_EVENT_OP);
    const luge_status status = run(call, given, in);
    if (self->profile != p) return status; /* a custom op has stopped it, and with it all events */
    lg_event *e = close_event(p);
    if (e == NULL) return status;
    e->tensors = p->n_tensors;
    note_tensors(p, call->n_in, given, &e->n_in);
    if (status != LUGE_OK) return status;
    note_tensors(p, call->n_out, call->out, &e->n_out);
    if (p->options.memory) e->in_use = lg_memory_stats(call->device->memory).allocated_bytes;
    if (p->options.amp && call->view_of < 0) note_values(p, name, call, e->end - e->start - e->inside);
    return status;
}

/* ---- scales of losses */

void lg_profile_scale(double scale, bool skipped)
{
    luge_profile *p = lg_self()->profile;
    if (p == NULL) return;
    ++p->steps;
    p->skipped += skipped;
    if (p->n_scales > 0 && p->scale[p->n_scales - 1].scale == scale) return;
    if (!make_room((void **)&p->scale, &p->room_scales, p->n_scales + 1, sizeof *p->scale)) return;
    p->scale[p->n_scales++] = (lg_scale_change){.step = p->steps, .scale = scale};
}

/* ---- starting and stopping */

luge_profile *luge_profile_start(const luge_profile_options *options)
{
    static const char what[] = "luge_profile_start";
    lg_thread *self = lg_self();
    if (!lg_ok() || (options != NULL && !lg_check_reserved(options->reserved, 4, what))) return NULL;
    if (self->profile != NULL) {
        lg_fail(LUGE_ERR_STATE, "%s: a profile of this thread is running; luge_profile_stop ends it", what);
        return NULL;
    }
    luge_profile *p = lg_alloc_zero(sizeof *p);
    if (p == NULL) return NULL;
    if (options != NULL) p->options = *options;
    lg_scope_path(p->path, sizeof p->path);
    p->current = -1;
    p->thread = self;
    p->first_frame = self->next_frame;
    p->origin = clock_now();
    self->profile = p;
    lg_count_object(1);
    lg_thread_register(self);
    return p;
}

static void stop(luge_profile *p)
{
    while (p->lost_open > 0 || p->current >= 0) close_event(p);
    p->thread->profile = NULL;
    p->thread = NULL;
}

void lg_profile_detach(lg_thread *thread)
{
    if (thread->profile != NULL) stop(thread->profile);
}

luge_status luge_profile_stop(luge_profile *p)
{
    static const char what[] = "luge_profile_stop";
    if (!lg_ok()) return lg_error();
    if (p == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: the profile is NULL", what);
    if (p->thread == NULL) return lg_fail(LUGE_ERR_STATE, "%s: the profile was stopped before", what);
    if (p->thread != lg_self()) return lg_fail(LUGE_ERR_STATE, "%s: another thread has started the profile", what);
    stop(p);
    return LUGE_OK;
}

void luge_profile_destroy(luge_profile *p)
{
    if (p == NULL) return;
    if (p->thread != NULL) stop(p);
    lg_private_free(p->event);
    lg_private_free(p->tensor);
    lg_private_free(p->row);
    lg_private_free(p->scale);
    lg_free(p);
    lg_count_object(-1);
}
