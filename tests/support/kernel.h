/* A kernel against the reference kernel of its op, which runs on the host. */
#ifndef LG_TESTS_KERNEL_H
#define LG_TESTS_KERNEL_H

#include "core/op.h"

/* Runs both on the same inputs (LUGE_NONE: absent) and fails the test unless
 * - the kernel takes the call, and its results are within `bound` of the reference's (relative_error);
 * - it writes nothing beside its results, nor changes an input that it may not change;
 * - results are the same bits again, and with 1, 2 and 3 threads.
 * `what` names the case in messages. */
void check_kernel(const lg_op *op, luge_list in, const void *attrs, double bound, const char *what);
/* Runs the kernel alone on outputs of its own; borrowed, NULL where it has fewer. Its answer is returned. */
int run_kernel(const lg_op *op, luge_list in, const void *attrs, luge_tensor *out[LG_MAX_OUT]);

/* Random normal numbers in one of several layouts, whatever fits the rank: dense, last axes exchanged,
 * every second element, a slice with an offset, channels-last. */
enum { LAYOUTS = 5 };
luge_tensor *random_layout(luge_shape shape, luge_dtype dtype, int layout);

#endif
