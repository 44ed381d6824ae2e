/* Scopes and modes: one stack of frames a thread. What scopes own lies in arrays of the thread, each
 * scope's part behind that of the scope it was opened in, so opening one takes no memory. */
#include <luge/scope.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/profile.h"
#include "core/thread.h"

static const char out_of_memory[] = "(out of memory)";

/* ---- the thread's arrays */

/* `array` with room for `need` entries of `size` bytes, or NULL with the error set and `array` as it was. */
static void *grown(void *array, int *cap, int need, size_t size)
{
    int room = *cap < 16 ? 16 : *cap;
    while (room < need) room = room > INT32_MAX / 2 ? INT32_MAX : room * 2;
    void *bigger = lg_private_resize(array, (size_t)room * size);
    if (bigger == NULL) {
        lg_fail(LUGE_ERR_OUT_OF_MEMORY, "out of host memory: no room for %d entries of open scopes", need);
        return NULL;
    }
    *cap = room;
    lg_thread_register(lg_self());
    return bigger;
}

static bool reserve_owned(lg_thread *self, int need)
{
    if (need <= self->cap_owned) return true;
    luge_tensor **owned = grown(self->owned, &self->cap_owned, need, sizeof *owned);
    if (owned == NULL) return false;
    self->owned = owned;
    return true;
}

static bool reserve_kept(lg_thread *self, int need)
{
    if (need <= self->cap_kept) return true;
    luge_tensor **kept = grown(self->kept, &self->cap_kept, need, sizeof *kept);
    if (kept == NULL) return false;
    self->kept = kept;
    return true;
}

static bool reserve_text(lg_thread *self, int need)
{
    if (need <= self->cap_text) return true;
    char **text = grown(self->text, &self->cap_text, need, sizeof *text);
    if (text == NULL) return false;
    self->text = text;
    return true;
}

/* ---- frames */

/* A new frame with nothing in it, or NULL with the error set. */
static lg_frame *open_frame(lg_thread *self, bool is_scope)
{
    if (self->n_frames == self->cap_frames) {
        lg_frame *frame = grown(self->frame, &self->cap_frames, self->n_frames + 1, sizeof *frame);
        if (frame == NULL) return NULL;
        self->frame = frame;
    }
    lg_frame *f = &self->frame[self->n_frames++];
    f->id = self->next_frame++;
    f->is_scope = is_scope;
    f->owned_from = self->n_owned;
    f->kept_from = self->n_kept;
    f->text_from = self->n_text;
    f->before = self->modes;
    f->close = NULL;
    f->name[0] = '\0';
    return f;
}

/* Releasing and closing may call back into the library: each entry is off its array by then. */
static void release_from(lg_thread *self, int owned_from, int text_from)
{
    while (self->n_owned > owned_from) luge_release(self->owned[--self->n_owned]);
    while (self->n_text > text_from) lg_free(self->text[--self->n_text]);
}

static void close_frame(lg_thread *self)
{
    lg_frame f = self->frame[--self->n_frames];
    self->modes = f.before;
    if (f.id == self->casts.frame) lg_cast_cache_clear(&self->casts);
    if (f.close != NULL) f.close(f.close_data);
    if (!f.is_scope) return;
    release_from(self, f.owned_from, f.text_from);
    /* luge_keep has made the room. */
    for (int i = f.kept_from; i < self->n_kept; ++i) self->owned[self->n_owned++] = self->kept[i];
    self->n_kept = f.kept_from;
    if (lg_is_profiled(self) && f.name[0] != '\0') lg_profile_exit(f.id);
}

void lg_scope_close_all(lg_thread *self)
{
    while (self->n_frames > 0) close_frame(self);
    release_from(self, 0, 0);
    lg_private_free(self->frame);
    lg_private_free(self->owned);
    lg_private_free(self->kept);
    lg_private_free(self->text);
    self->frame = NULL;
    self->owned = self->kept = NULL;
    self->text = NULL;
    self->cap_frames = self->cap_owned = self->cap_kept = self->cap_text = 0;
}

/* The place of a frame on the stack, -1 if it is not open. */
static int find_frame(const lg_thread *self, luge_scope scope)
{
    int i = self->n_frames - 1;
    while (i >= 0 && self->frame[i].id > scope.id) --i;
    return i >= 0 && self->frame[i].id == scope.id ? i : -1;
}

static void copy_name(char to[LG_SCOPE_NAME], const char *name)
{
    size_t n = strnlen(name, LG_SCOPE_NAME);
    if (n == LG_SCOPE_NAME) {
        n = LG_SCOPE_NAME - 1;
        while (n > 0 && ((unsigned char)name[n] & 0xc0u) == 0x80u) --n; /* not inside a UTF-8 character */
    }
    memcpy(to, name, n);
    to[n] = '\0';
}

luge_scope luge_scope_enter(const char *name)
{
    lg_thread *self = lg_self();
    lg_frame *f = open_frame(self, true);
    if (f == NULL) return (luge_scope){0};
    if (name != NULL) copy_name(f->name, name);
    if (lg_is_profiled(self) && f->name[0] != '\0') lg_profile_enter(f);
    return (luge_scope){f->id};
}

luge_status luge_scope_exit(luge_scope scope, luge_tensor *keep)
{
    lg_thread *self = lg_self();
    int target = find_frame(self, scope);
    if (target < 0) return self->error;
    if (keep != NULL) luge_retain(keep);
    while (self->n_frames > target) close_frame(self);
    if (keep != NULL) lg_borrow(keep);
    return self->error;
}

/* ---- modes */

luge_scope lg_mode_enter(lg_modes modes, void (*close)(void *), void *data)
{
    lg_thread *self = lg_self();
    lg_frame *f = open_frame(self, false);
    if (f == NULL) {
        if (close != NULL) close(data);
        return (luge_scope){0};
    }
    f->close = close;
    f->close_data = data;
    self->modes = modes;
    return (luge_scope){f->id};
}

luge_scope luge_autocast_enter(luge_dtype low)
{
    if (low != LUGE_F16 && low != LUGE_BF16 && low != LUGE_F32) {
        lg_fail(LUGE_ERR_DTYPE,
                "luge_autocast_enter: %s is not a type to cast to: LUGE_F16 or LUGE_BF16, or LUGE_F32 for off",
                luge_dtype_name(low));
        return (luge_scope){0};
    }
    lg_modes modes = lg_self()->modes;
    modes.low = low;
    return lg_mode_enter(modes, NULL, NULL);
}

luge_scope luge_no_grad_enter(void)
{
    lg_modes modes = lg_self()->modes;
    modes.no_grad = true;
    return lg_mode_enter(modes, NULL, NULL);
}

luge_scope luge_anomaly_enter(void)
{
    lg_modes modes = lg_self()->modes;
    modes.anomaly = true;
    return lg_mode_enter(modes, NULL, NULL);
}

/* ---- tensors */

luge_tensor *lg_borrow(luge_tensor *owned)
{
    if (owned == NULL) return NULL;
    lg_thread *self = lg_self();
    if (self->n_owned == self->cap_owned && !reserve_owned(self, self->n_owned + 1)) {
        luge_release(owned);
        return NULL;
    }
    self->owned[self->n_owned++] = owned;
    return owned;
}

luge_tensor *lg_lend(luge_tensor *t)
{
    return lg_is_none(t) ? t : lg_borrow(luge_retain(t));
}

luge_tensor *luge_keep(luge_tensor *t)
{
    lg_thread *self = lg_self();
    if (t == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_keep: the tensor is NULL");
        return NULL;
    }
    int scope = self->n_frames - 1;
    while (scope >= 0 && !self->frame[scope].is_scope) --scope;
    if (scope < 0) return lg_lend(t); /* the thread itself is the parent */

    const lg_frame *f = &self->frame[scope];
    if (!reserve_kept(self, self->n_kept + 1) || !reserve_owned(self, f->owned_from + self->n_kept + 1 - f->kept_from))
        return NULL;
    self->kept[self->n_kept++] = luge_retain(t);
    return t;
}

luge_tensor *luge_retain(luge_tensor *t)
{
    if (t != NULL && !lg_is_none(t)) atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void luge_release(luge_tensor *t)
{
    if (t == NULL || lg_is_none(t)) return;
    if (atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1) lg_tensor_free(t);
}

void luge_assign(luge_tensor **slot, luge_tensor *t)
{
    if (!lg_ok()) return;
    if (slot == NULL || t == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_assign: the %s is NULL", slot == NULL ? "variable's address" : "tensor");
        return;
    }
    luge_tensor *old = *slot;
    *slot = luge_retain(t);
    luge_release(old);
}

/* ---- text */

const char *lg_scope_path(char *buffer, size_t size)
{
    static const char more[] = "...";
    const lg_thread *self = lg_self();
    if (size <= sizeof more) {
        if (size > 0) buffer[0] = '\0';
        return buffer;
    }
    /* What does not fit is cut off at the outer end: the innermost names say most. */
    size_t room = size - sizeof more, used = 0;
    int from = self->n_frames;
    while (from > 0) {
        size_t n = strlen(self->frame[from - 1].name);
        if (n > 0 && used + n + 1 > room) break;
        used += n > 0 ? n + 1 : 0;
        --from;
    }
    char *end = buffer;
    if (from > 0) end = stpcpy(end, more);
    bool first = true;
    for (int i = from; i < self->n_frames; ++i) {
        if (self->frame[i].name[0] == '\0') continue;
        if (!first) *end++ = '.';
        end = stpcpy(end, self->frame[i].name);
        first = false;
    }
    *end = '\0';
    return buffer;
}

const char *lg_borrow_owned_text(char *text)
{
    lg_thread *self = lg_self();
    if (text == NULL) return out_of_memory;
    if (!reserve_text(self, self->n_text + 1)) {
        lg_free(text);
        return out_of_memory;
    }
    self->text[self->n_text++] = text;
    return text;
}

const char *lg_borrow_text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) return "";
    char *text = lg_alloc((size_t)n + 1);
    if (text == NULL) return out_of_memory;
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return lg_borrow_owned_text(text);
}
