/* Patterns that name parameters: wildcards * (any characters, dots too) and ? (one character),
 * alternatives with |, "@vectors" for those of rank 0 and 1; NULL is all. Used by modules (freezing,
 * loading) and optimizers (settings). */
#ifndef LG_NN_PATTERN_H
#define LG_NN_PATTERN_H

#include <luge/status.h>

/* LUGE_ERR_ARGUMENT, in the name of the function `what`, for a class (@...) that there is none of. */
luge_status lg_pattern_check(const char *pattern, const char *what);
/* Whether a parameter of that name and rank is meant. */
bool lg_pattern_match(const char *pattern, const char *name, int rank);

#endif
