/* Finding the first NaN or infinity, and saying where a call was made. */
#ifndef LG_AUTOGRAD_ANOMALY_H
#define LG_AUTOGRAD_ANOMALY_H

#include "core/tensor.h"

enum { LG_SITE_TEXT = 128 };

/* Where a call was made: " (train.c:28)" if it has noted its line, else " (./prog+0x1a2f)" for its return address,
 * "" if that cannot be found out. Returns buffer. */
const char *lg_site_text(char buffer[LG_SITE_TEXT], const void *site, const char *line);

/* LUGE_ERR_NONFINITE, "<who>: made -inf, [256, 1] f32<more> (place)", if an element of t is not finite; more may
 * be NULL. */
luge_status lg_check_finite(const luge_tensor *t, const char *who, const char *more, const void *site, const char *line);

#endif
