/** @file scope.h
 *  Ownership. A tensor that a function returns is borrowed from the innermost open scope of the
 *  thread: it lives at least until that scope closes, and is not to be released. Modes (no-grad,
 *  autocast, eval, anomaly) lie on the same stack and own no tensors. Without an open scope, tensors
 *  belong to the thread and end with it. */
#ifndef LUGE_SCOPE_H
#define LUGE_SCOPE_H

#include <luge/base.h>
#include <luge/status.h>

LUGE_BEGIN_C

/** Opens a scope. `name` (copied, cut at 31 characters) becomes part of the path in messages. Works
 *  while an error stands, too. */
LUGE_API luge_scope luge_scope_enter(const char *name);
/** Opens an autocast region: ops run in `low` (LUGE_F16 or LUGE_BF16) where that is safe, as
 *  PyTorch's autocast does. LUGE_F32 switches autocast off inside. */
LUGE_API luge_scope luge_autocast_enter(luge_dtype low);
/** Opens a region in which ops record no graph. */
LUGE_API luge_scope luge_no_grad_enter(void);
/** Puts `module` and its children into eval mode and opens a no-grad region; closing restores each
 *  module's own mode. */
LUGE_API luge_scope luge_eval_enter(luge_module *module);
/** Opens a region in which the first NaN or infinity that an op makes is LUGE_ERR_NONFINITE. */
LUGE_API luge_scope luge_anomaly_enter(void);
/** Closes a scope or mode and everything opened after it; an id that is not open any more is
 *  ignored. Works while an error stands.
 *  @param keep moved to the parent scope; NULL for none. */
LUGE_API luge_status luge_scope_exit(luge_scope scope, luge_tensor *keep);

/** Lets `t` live as long as the parent of the innermost scope. @return t */
LUGE_API luge_tensor *luge_keep(luge_tensor *t);
/** Makes a reference of your own, to be given back with luge_release. NULL and LUGE_NONE are fine.
 *  @return t */
LUGE_API luge_tensor *luge_retain(luge_tensor *t);
/** Gives back a reference made by luge_retain or luge_assign. NULL and LUGE_NONE are fine. */
LUGE_API void luge_release(luge_tensor *t);
/** Puts `t` into a variable that owns what it holds: retains `t`, releases the old value. While an
 *  error stands, and for a NULL `t`, the variable keeps what it has. */
LUGE_API void luge_assign(luge_tensor **slot, luge_tensor *t);

LUGE_END_C

#define LUGE_PASTE2_(a, b) a##b
#define LUGE_PASTE_(a, b) LUGE_PASTE2_(a, b)
#ifdef __COUNTER__
#define LUGE_UNIQUE_ LUGE_PASTE_(luge_guard_at_, __COUNTER__)
#else
#define LUGE_UNIQUE_ LUGE_PASTE_(luge_guard_at_, __LINE__)
#endif

#if defined(__cplusplus)
struct luge_guard_ {
    luge_scope scope;
    explicit luge_guard_(luge_scope s) : scope(s) {}
    luge_guard_(const luge_guard_ &) = delete;
    luge_guard_ &operator=(const luge_guard_ &) = delete;
    ~luge_guard_() { luge_scope_exit(scope, nullptr); }
};
#define LUGE_GUARD_(enter) const luge_guard_ LUGE_UNIQUE_(enter)
#elif defined(__GNUC__)
static inline void luge_guard_close_(luge_scope *scope)
{
    luge_scope_exit(*scope, NULL);
}
#define LUGE_GUARD_(enter) \
    luge_scope LUGE_UNIQUE_ __attribute__((cleanup(luge_guard_close_), unused)) = (enter)
#endif

#ifdef LUGE_GUARD_
/** Opens a scope that closes at the end of the enclosing block, however that is left: break,
 *  continue, return, goto or a C++ exception. gcc, clang and any C++ compiler; elsewhere call
 *  luge_scope_enter and luge_scope_exit. */
#define LUGE_SCOPE(name) LUGE_GUARD_(luge_scope_enter(name))
/** Autocast to the end of the enclosing block. */
#define LUGE_AUTOCAST(low) LUGE_GUARD_(luge_autocast_enter(low))
/** No graph is recorded to the end of the enclosing block. */
#define LUGE_NO_GRAD() LUGE_GUARD_(luge_no_grad_enter())
/** Eval mode and no graph to the end of the enclosing block. */
#define LUGE_EVAL(module) LUGE_GUARD_(luge_eval_enter(module))
/** The first NaN or infinity is an error to the end of the enclosing block. */
#define LUGE_ANOMALY() LUGE_GUARD_(luge_anomaly_enter())
#endif

#endif
