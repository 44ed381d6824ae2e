/* Recording of events while a thread is profiled. The call path, scopes and the engine open and close events
 * here; the reports (train/profile_*.c) read them. Nothing is called unless lg_self()->profile is set. */
#ifndef LG_CORE_PROFILE_H
#define LG_CORE_PROFILE_H

#include <luge/profile.h>
#include "core/op.h"
#include "core/thread.h"

typedef enum lg_event_kind { LG_EVENT_OP, LG_EVENT_NODE, LG_EVENT_SCOPE } lg_event_kind;

typedef struct lg_event {
    char name[LG_SCOPE_NAME];
    lg_event_kind kind;
    int64_t parent;            /* index of the event around it; -1: none */
    uint64_t frame;            /* of a scope; else 0 */
    int64_t start, end;        /* nanoseconds since the profile was started, less what looking at values took */
    int64_t inside;            /* of that, in events inside */
    int64_t bytes, bytes_inside; /* asked of the allocators */
    int64_t in_use;            /* by all tensors of the op's device when it ended; -1: not noted */
    int64_t tensors;           /* where those of an op begin in profile->tensor */
    int n_in, n_out;           /* of them */
} lg_event;

typedef struct lg_event_tensor {
    luge_dtype dtype;
    luge_shape shape;
} lg_event_tensor;

/* An op's results of one dtype. */
typedef struct lg_amp_row {
    char name[LG_SCOPE_NAME];
    luge_dtype dtype;
    int64_t calls, time;       /* time: without what ran inside */
    int64_t elements, overflow, underflow;
    double largest;            /* finite magnitude */
} lg_amp_row;

typedef struct lg_scale_change {
    int64_t step;
    double scale;
} lg_scale_change;

struct luge_profile {
    lg_thread *thread;         /* that it runs on; NULL once stopped */
    luge_profile_options options;
    char path[LG_ERROR_TEXT / 2]; /* of the scopes that were open when it started */
    lg_event *event;
    int64_t n_events, room_events;
    lg_event_tensor *tensor;
    int64_t n_tensors, room_tensors;
    uint64_t first_frame;      /* of scopes opened since */
    int64_t current;           /* the innermost event that is open; -1 */
    int64_t lost;              /* events that there was no memory for */
    int64_t lost_open;         /* of them, those that are open, all inside of `current` */
    int64_t origin, paused;    /* the clock at the start; time not to be counted */
    int64_t bytes;             /* asked of the allocators so far */
    lg_amp_row *row;
    int64_t n_rows, room_rows;
    char first_bad[LG_ERROR_TEXT / 2]; /* "step.net: log: made inf" of the first; "" */
    lg_scale_change *scale;    /* the first, and each that differs from the one before */
    int64_t n_scales, room_scales;
    int64_t steps, skipped;
};

/* Whether a thread is recorded: nearly never. */
static inline bool lg_is_profiled(const lg_thread *self) { return __builtin_expect(self->profile != NULL, 0); }

/* A call of an op, under the name of its row in ops.def. `given`: its inputs before casts. */
luge_status lg_profile_op(const char *name, lg_call *call, luge_tensor *const *given, luge_tensor **in,
                          luge_status (*run)(lg_call *, luge_tensor *const *, luge_tensor **));
/* A named scope opens and closes. */
void lg_profile_enter(const lg_frame *frame);
void lg_profile_exit(uint64_t frame);
/* The scope opened last is the backward of a node. */
void lg_profile_mark_node(void);
/* An optimizer's step is over, or was skipped, with this scale of losses. Nothing without a profile. */
void lg_profile_scale(double scale, bool skipped);
/* The thread ends. */
void lg_profile_detach(lg_thread *thread);

#endif
