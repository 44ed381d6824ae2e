/* Makes the calls of a program fail in turn: see fail_calls.c. */
#ifndef LG_TESTS_FAIL_CALLS_H
#define LG_TESTS_FAIL_CALLS_H

/* Counts a call of a Luge function; sets the error if this is the one to fail. */
void fail_calls_count(const char *function);

#endif
