/* Comparing tensors in tests. A NaN on one side only fails: errors are tested as !(error <= bound). */
#ifndef LG_TESTS_COMPARE_H
#define LG_TESTS_COMPARE_H

#include <luge/luge.h>

/* The values as doubles, row-major; malloc'd. */
double *values_of(const luge_tensor *t);
/* Largest |a - b| / (|b| + size), where size is the root mean square of b, at least 0.1 where a
 * is f32 and 1 where it is f16 or bf16 (sums that cancel keep the rounding of their terms); NaN and infinity equal themselves. Infinity if
 * shapes differ or a value is NaN on one side. */
double relative_error(const luge_tensor *a, const luge_tensor *b);
/* Same shape, dtype and bits. */
bool same_bits(const luge_tensor *a, const luge_tensor *b);
/* Fails the test with `what` and the error unless relative_error(a, b) <= bound. */
void assert_close(const luge_tensor *a, const luge_tensor *b, double bound, const char *what);
/* Fails the test with the standing error's text if there is one. */
void assert_ok(void);

#endif
