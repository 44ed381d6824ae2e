/** @file status.h
 *  Errors and the log. The first error of a thread stands until it is cleared or taken; while it
 *  stands nothing is made and nothing is changed on that thread, and reading, closing, releasing
 *  and destroying work. So a whole program needs one check.
 *
 *  A text begins with the path of open scopes, then says who refuses what: "step.net.fc1: linear: ...". Where
 *  the call is elsewhere than the failure (a backward, a saved tensor that was changed, anomaly mode) the place
 *  of the call follows: "(./train+0x12a4)". `addr2line -e ./train 0x12a4` names its file and line, if the
 *  program was compiled with -g. With -DLUGE_LINES (lines.h) the text says "(train.c:28)" itself. */
#ifndef LUGE_STATUS_H
#define LUGE_STATUS_H

#include <luge/base.h>
#include <stdio.h>

LUGE_BEGIN_C

/** What went wrong. */
typedef enum luge_status {
    LUGE_OK,
    LUGE_ERR_ARGUMENT,      /**< NULL, out of range, unknown name. */
    LUGE_ERR_SHAPE,         /**< Sizes that do not fit. */
    LUGE_ERR_DTYPE,         /**< A type that the operation does not take. */
    LUGE_ERR_DEVICE,        /**< Not there, or tensors on different ones. */
    LUGE_ERR_OUT_OF_MEMORY, /**< On the host or on a device. */
    LUGE_ERR_STATE,         /**< A call out of order. */
    LUGE_ERR_GRAPH,         /**< A freed graph, a saved tensor changed in place. */
    LUGE_ERR_NONFINITE,     /**< Anomaly mode, clipping. */
    LUGE_ERR_IO,            /**< The operating system refused to read or write. */
    LUGE_ERR_FORMAT,        /**< A file that is not what it should be. */
    LUGE_ERR_TIMEOUT,       /**< Something took longer than was allowed. */
    LUGE_ERR_UNSUPPORTED,   /**< Sensible, but not offered. */
    LUGE_ERR_CALLBACK,      /**< A user's callback failed without saying why. */
    LUGE_ERR_DEVICE_LOST    /**< A device failed for good: what is on it is gone, and only a new process can use it again. */
} luge_status;

/** This thread's standing error, or LUGE_OK. */
LUGE_API luge_status luge_error(void);
/** Whether no error stands: `luge_error() == LUGE_OK`. */
LUGE_API bool luge_ok(void);
/** The standing error's text, "" if there is none; valid until the next error of this thread. */
LUGE_API const char *luge_error_text(void);
/** Forgets the standing error. */
LUGE_API void luge_error_clear(void);
/** Copies the standing error's text (cut to fit, always ended; `text` may be NULL), clears the error
 *  and returns its code. */
LUGE_API luge_status luge_error_take(char *text, size_t size);
/** Sets the standing error, for callbacks and wrappers; an error that already stands stays. The path
 *  of open scopes is put in front of the text.
 *  @return the code of the error that stands afterwards, so `return luge_fail(...)` is right. */
LUGE_API luge_status luge_fail(luge_status code, const char *format, ...) LUGE_PRINTF_LIKE(2, 3);

/** What main returns: 0, or 1 after writing the standing error to `out`. Inline, so that no FILE
 *  crosses into the library, which never prints. */
static inline int luge_exit_code(FILE *out)
{
    if (luge_ok()) return 0;
    if (out != NULL) fprintf(out, "%s\n", luge_error_text());
    return 1;
}

/** How much a log line matters. */
typedef enum luge_log_level {
    LUGE_LOG_DEBUG,   /**< For developers of Luge. */
    LUGE_LOG_INFO,    /**< Worth knowing. */
    LUGE_LOG_WARNING, /**< Works, but not as wished. */
    LUGE_LOG_ERROR    /**< An error that nobody asked about. */
} luge_log_level;

/** Receives log lines; called on the thread that has something to say, without its newline. */
typedef void (*luge_log_fn)(luge_log_level level, const char *text, void *user);

/** Where log lines go; NULL (the default) drops them. Not while other threads use Luge. */
LUGE_API void luge_set_log(luge_log_fn log, void *user);

LUGE_END_C

#endif
