/* What the specs of the larger ops share: checks of inputs with their messages, layouts of images,
 * small steps of backward. */
#ifndef LG_OPS_CHECK_H
#define LG_OPS_CHECK_H

#include "core/op.h"
#include "core/thread.h"

/* ---- for public functions, which look at their inputs before the call path does */

/* No error stands and t is a tensor; `what` is "conv2d: weight". */
static inline bool lg_usable(const luge_tensor *t, const char *what)
{
    return lg_ok() && lg_check_tensor(t, what);
}
/* The same for a tensor that may be LUGE_NONE. */
static inline bool lg_usable_or_none(const luge_tensor *t, const char *what)
{
    return lg_ok() && (lg_is_none(t) || lg_check_tensor(t, what));
}

/* ---- for infer */

/* Input i, called `what`, is a float; has the dtype of input `like`; is [size] where it is given. */
luge_status lg_need_float(const lg_call *call, int i, const char *what);
luge_status lg_need_same_dtype(const lg_call *call, int i, const char *what, int like, const char *like_what);
luge_status lg_need_vector(const lg_call *call, int i, const char *what, int64_t size);
/* Input i are indices (i64 or i32). */
luge_status lg_need_indices(const lg_call *call, int i, const char *what);
/* Each of them lies in [0, size) or is *other (NULL: no other). On the host they are looked at here,
 * before anything is allocated or written, so kernels need not; a GPU reports them when it can. */
luge_status lg_check_indices(const lg_call *call, int i, const char *what, int64_t size, const int64_t *other);
/* Output i [N, C, H, W], channels-last if input `like` is, else row-major. */
void lg_spec_image(lg_call *call, int i, const luge_shape *shape, const luge_tensor *like);

/* ---- for backward */

/* A saved optional input, as an argument of an op. */
static inline luge_tensor *lg_or_none(luge_tensor *t)
{
    return t == NULL ? luge_none() : t;
}
/* g laid out in memory like t, of the same shape: so that a kernel walks both alike. */
luge_tensor *lg_match_layout(luge_tensor *g, const luge_tensor *t);

#endif
