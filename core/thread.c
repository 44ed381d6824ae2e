/* A thread's error, the log, and what happens when a thread ends. Reporting an error takes no memory. */
#include "core/thread.h"
#include <luge/lines.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/profile.h"

enum { LOG_TEXT = LG_ERROR_TEXT };

static _Thread_local lg_thread this_thread = {.next_frame = 1};

lg_thread *lg_self(void)
{
    return &this_thread;
}

/* ---- errors */

static luge_status fail(bool with_path, luge_status code, const char *format, va_list args)
{
    lg_thread *self = lg_self();
    if (self->error != LUGE_OK) return self->error;

    /* Not straight into error_text: an argument may be the text of the last error. */
    char text[LG_ERROR_TEXT];
    size_t used = 0;
    if (with_path) {
        lg_scope_path(text, LG_ERROR_TEXT / 2);
        used = strlen(text);
        if (used > 0) {
            memcpy(text + used, ": ", 2);
            used += 2;
        }
    }
    vsnprintf(text + used, sizeof text - used, format ? format : "failed without saying why", args);
    memcpy(self->error_text, text, sizeof text);
    self->error = code > LUGE_OK && code <= LUGE_ERR_DEVICE_LOST ? code : LUGE_ERR_CALLBACK;
    self->asked = false;
    lg_thread_register(self);
    return self->error;
}

luge_status lg_fail(luge_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    luge_status status = fail(true, code, format, args);
    va_end(args);
    return status;
}

luge_status luge_fail(luge_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    luge_status status = fail(true, code, format, args);
    va_end(args);
    return status;
}

LUGE_PRINTF_LIKE(2, 3) static luge_status fail_bare(luge_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    luge_status status = fail(false, code, format, args);
    va_end(args);
    return status;
}

luge_status lg_fail_raw(luge_status code, const char *text)
{
    return fail_bare(code, "%s", text);
}

luge_status luge_error(void)
{
    lg_thread *self = lg_self();
    self->asked = true;
    return self->error;
}

bool luge_ok(void)
{
    return luge_error() == LUGE_OK;
}

const char *luge_error_text(void)
{
    lg_thread *self = lg_self();
    self->asked = true;
    return self->error == LUGE_OK ? "" : self->error_text;
}

void luge_error_clear(void)
{
    lg_self()->error = LUGE_OK;
}

luge_status luge_error_take(char *text, size_t size)
{
    lg_thread *self = lg_self();
    luge_status code = self->error;
    if (text != NULL && size > 0) {
        size_t n = code == LUGE_OK ? 0 : strlen(self->error_text);
        if (n >= size) n = size - 1;
        memcpy(text, self->error_text, n);
        text[n] = '\0';
    }
    self->error = LUGE_OK;
    return code;
}

bool lg_check_reserved(const uint64_t *reserved, int words, const char *what)
{
    for (int i = 0; i < words; ++i) {
        if (reserved[i] == 0) continue;
        lg_fail(LUGE_ERR_ARGUMENT, "%s: reserved words must be zero: start from {0} or LUGE_DEFAULTS", what);
        return false;
    }
    return true;
}

/* ---- lines of calls: a stack, since calls are made in the arguments of others. Frames of scopes restore its
 * height, also for calls that a C++ exception has left. */

void luge_line_enter_(const char *at)
{
    lg_thread *self = lg_self();
    if (self->modes.lines < LG_LINES) self->line[self->modes.lines] = at;
    ++self->modes.lines;
}

static void leave_line(void)
{
    lg_modes *modes = &lg_self()->modes;
    if (modes->lines > 0) --modes->lines;
}

luge_tensor *luge_line_leave_(luge_tensor *t)
{
    leave_line();
    return t;
}

luge_status luge_line_leave_status_(luge_status status)
{
    leave_line();
    return status;
}

const char *lg_line(void)
{
    const lg_thread *self = lg_self();
    const int n = self->modes.lines;
    return n == 0 ? NULL : self->line[(n < LG_LINES ? n : LG_LINES) - 1];
}

/* ---- the log */

static struct {
    luge_log_fn fn;
    void *user;
} log_to;

void luge_set_log(luge_log_fn log, void *user)
{
    log_to.fn = log;
    log_to.user = user;
}

void lg_log(luge_log_level level, const char *format, ...)
{
    if (log_to.fn == NULL) return;
    char text[LOG_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_to.fn(level, text, log_to.user);
}

/* ---- the end of a thread */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static atomic_bool key_made; /* false again once the library has gone */

static void end_thread(void *arg)
{
    lg_thread *self = arg;
    self->registered = false; /* what still happens on this thread registers it again */
    if (self->error != LUGE_OK && !self->asked) lg_log(LUGE_LOG_ERROR, "%s", self->error_text);
    self->error = LUGE_OK;
    lg_profile_detach(self);
    lg_scope_close_all(self);
}

static void make_key(void)
{
    atomic_store(&key_made, pthread_key_create(&key, end_thread) == 0);
}

void lg_thread_register(lg_thread *self)
{
    if (self->registered) return;
    pthread_once(&key_once, make_key);
    self->registered = atomic_load(&key_made) && pthread_setspecific(key, self) == 0;
}

void lg_thread_unload(void)
{
    if (atomic_exchange(&key_made, false)) pthread_key_delete(key);
    lg_thread *self = lg_self();
    if (self->n_frames == 0 && self->n_owned == 0 && self->n_text == 0) lg_scope_close_all(self);
}
