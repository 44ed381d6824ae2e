/* What belongs to a thread: its error, its stack of scopes and modes, its random numbers. Nothing a
 * helper thread or backward does reads another thread's. */
#ifndef LG_CORE_THREAD_H
#define LG_CORE_THREAD_H

#include "core/cast_cache.h"
#include "core/tensor.h"
#include <luge/scope.h>
#include <luge/status.h>

enum { LG_ERROR_TEXT = 1024, LG_SCOPE_NAME = 32, LG_LINES = 16 };

/* Modes that ops ask about. Saved by each frame, restored when it closes. */
typedef struct lg_modes {
    bool no_grad;
    bool anomaly;
    int lines;            /* calls that have noted their line and go on (LUGE_LINES) */
    luge_dtype low;       /* autocast's dtype; LUGE_F32: off */
    struct lg_undo *undo; /* an attempt that may be taken back (core/undo.h); NULL: none */
    struct lg_region *region; /* what nodes are recorded into (autograd/region.h); NULL: nothing */
    uint64_t again_from;  /* a region runs again: storages before this one were there; 0: none does */
} lg_modes;

typedef struct lg_frame {
    uint64_t id;
    bool is_scope;                        /* else a mode, which owns no tensors */
    int owned_from, kept_from, text_from; /* where this scope's part of the thread's arrays begins */
    lg_modes before;                      /* to restore */
    void (*close)(void *data);            /* called when the frame closes; NULL: nothing */
    void *close_data;
    char name[LG_SCOPE_NAME];
} lg_frame;

typedef struct lg_thread {
    luge_status error;
    bool asked; /* somebody has looked at the error */
    lg_modes modes;
    lg_cast_cache casts; /* of the autocast region that is open */
    lg_frame *frame;
    int n_frames, cap_frames;
    luge_tensor **owned; /* references of open scopes, innermost last */
    int n_owned, cap_owned;
    luge_tensor **kept; /* luge_keep: to move to the parent when the scope closes */
    int n_kept, cap_kept;
    char **text; /* strings borrowed from scopes */
    int n_text, cap_text;
    uint64_t next_frame;
    uint64_t seed, rng_offset; /* Philox */
    luge_profile *profile;     /* that records this thread (core/profile.h); NULL: none */
    const char *op;            /* the op that runs, for messages of shapes and allocators; NULL */
    const char *line[LG_LINES]; /* of those calls, the innermost last */
    double flops;              /* counted by the call path */
    bool registered;           /* the thread-end handler knows this thread */
    char error_text[LG_ERROR_TEXT];
} lg_thread;

lg_thread *lg_self(void);

/* Whether no error stands. Unlike luge_ok this is not somebody asking about it: the library's own
 * checks use this, so that an error nobody looked at still reaches the log. */
static inline bool lg_ok(void)
{
    return lg_self()->error == LUGE_OK;
}
/* Likewise the code of the standing error. */
static inline luge_status lg_error(void)
{
    return lg_self()->error;
}

/* Sets the error "path: text" if none stands. */
luge_status lg_fail(luge_status code, const char *format, ...) LUGE_PRINTF_LIKE(2, 3);
/* The same without the path in front: for errors handed over from another thread. */
luge_status lg_fail_raw(luge_status code, const char *text);
/* "step.net.fc1" of the open scopes, "" for none. Returns buffer. */
const char *lg_scope_path(char *buffer, size_t size);

/* "train.c:28" of the innermost call that has noted its line; NULL if none has. */
const char *lg_line(void);

/* Opens a mode; `close(data)` runs when it closes, also if this fails to open it. */
luge_scope lg_mode_enter(lg_modes modes, void (*close)(void *), void *data);

/* A string that lives as long as the scope. Never NULL: on error a constant. */
const char *lg_borrow_text(const char *format, ...) LUGE_PRINTF_LIKE(1, 2);
/* Hands over a string made by lg_alloc. */
const char *lg_borrow_owned_text(char *text);

/* Sees to it that what the thread holds is released when it ends. */
void lg_thread_register(lg_thread *self);
/* The library goes: forgets the thread-end handler, and the calling thread's stacks if they are empty. */
void lg_thread_unload(void);
/* Closes every scope and mode of the thread, releases what it owns, frees its stacks. core/scope.c. */
void lg_scope_close_all(lg_thread *self);

/* False, with LUGE_ERR_ARGUMENT, if any of `words` reserved words is not zero. */
bool lg_check_reserved(const uint64_t *reserved, int words, const char *what);

void lg_log(luge_log_level level, const char *format, ...) LUGE_PRINTF_LIKE(2, 3);

#endif
