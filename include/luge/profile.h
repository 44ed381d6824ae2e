/** @file profile.h
 *  What a program spends its time on, op by op and scope by scope, and what its numbers look like in f16 and
 *  bf16. A profile sees the thread that started it: all ops, forward and backward, and all named scopes (modules
 *  are scopes, too). Without one, none of this costs anything.
 *
 *  Times are of the host's calls. On a GPU, where calls only queue work, they say what the host does, not what
 *  the device does. */
#ifndef LUGE_PROFILE_H
#define LUGE_PROFILE_H

#include <luge/base.h>
#include <luge/status.h>

LUGE_BEGIN_C

/** What is looked at beside times. */
typedef struct luge_profile_options {
    bool memory;      /**< Note how much memory is in use after each op. PyTorch: profile_memory. */
    bool amp;         /**< Look at every float result, for luge_amp_report. Slow, and waits for a GPU after every op;
                           the times that are reported do not count that in. */
    LUGE_RESERVED(4); /**< Zero. */
} luge_profile_options;

/** What comes first in a table. */
typedef enum luge_profile_order {
    LUGE_BY_SELF_TIME,  /**< Time without what ran inside. */
    LUGE_BY_TOTAL_TIME, /**< Time with it. */
    LUGE_BY_MEMORY      /**< Bytes asked for. */
} luge_profile_order;

/** Starts to record this thread. Each op and scope takes about a hundred bytes until luge_profile_destroy; when
 *  there is no memory for more, the rest is only counted, and no op fails. LUGE_ERR_STATE if this thread has a
 *  profile running. PyTorch: torch.profiler.profile. */
LUGE_API luge_profile *luge_profile_start(const luge_profile_options *options);
/** Stops recording, on the thread that started it (LUGE_ERR_STATE on others and if it was stopped before). */
LUGE_API luge_status luge_profile_stop(luge_profile *profile);
/** Two tables for people, of ops and of scopes: calls, times, bytes asked for. "(backward)" marks the gradient of
 *  an op as a whole; the ops that it is made of have rows of their own. Borrowed from the scope, never NULL.
 *  PyTorch: key_averages().table(). */
LUGE_API const char *luge_profile_table(const luge_profile *profile, luge_profile_order order);
/** Writes all events in Chrome's trace format, for chrome://tracing or ui.perfetto.dev.
 *  PyTorch: export_chrome_trace. */
LUGE_API luge_status luge_profile_write_trace(const luge_profile *profile, const char *path) LUGE_MUST_CHECK;
/** A table for people, if the profile was started with `amp`: for each op and dtype of its result the calls, the
 *  share of time, the fractions of elements that are infinite or NaN ("overflow") and, in f16 and bf16, zero or
 *  subnormal ("underflow", which a ReLU's zeros are, too), and the largest finite magnitude; then the op that
 *  made the first infinity or NaN, and what the scale of losses has been. Borrowed from the scope, never NULL. */
LUGE_API const char *luge_amp_report(const luge_profile *profile);
/** The same as JSON. Borrowed from the scope, never NULL. */
LUGE_API const char *luge_amp_report_json(const luge_profile *profile);
/** Stops and destroys the profile; NULL is fine. One that runs is destroyed by the thread that started it. */
LUGE_API void luge_profile_destroy(luge_profile *profile);

LUGE_END_C

#endif
