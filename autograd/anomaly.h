/* Finding the first NaN or infinity, and saying where a call was made. */
#ifndef LG_AUTOGRAD_ANOMALY_H
#define LG_AUTOGRAD_ANOMALY_H

#include "core/tensor.h"

enum { LG_SITE_TEXT = 128 };

/* " (./prog+0x1a2f)" for a return address, "" if it cannot be found out. Returns buffer. */
const char *lg_site_text(char buffer[LG_SITE_TEXT], const void *site);

/* LUGE_ERR_NONFINITE, "<who>: made -inf, [256, 1] f32 (site)", if an element of t is not finite. */
luge_status lg_check_finite(const luge_tensor *t, const char *who, const void *site);

#endif
