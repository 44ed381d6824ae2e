/* What nearly every test of tensors begins and ends with, and exact comparisons. */
#ifndef LG_TESTS_LIVE_H
#define LG_TESTS_LIVE_H

#include <luge/luge.h>

/* Set-up and tear-down for cmocka: whatever a test made is gone when it ends, and no error, scope or
 * injected fault stays behind. */
int live_begin(void **state);
int live_end(void **state);
/* What is alive now beyond what there was at live_begin. */
luge_live_counts live_now(void);

/* Fails unless the standing error has that code and `part` in its text; clears it. */
void assert_error(luge_status code, const char *part);
/* Fails unless t's elements are exactly these, in row-major order. */
void assert_elements(const luge_tensor *t, int count, const double *values);
#define assert_values(t, ...) \
    assert_elements(t, LUGE_COUNT_(double, __VA_ARGS__), (const double[]){__VA_ARGS__})

/* Leaves that require gradients, f32 and f64. */
#define LEAF(shape, ...) luge_requires_grad_(LUGE_TENSOR(shape, __VA_ARGS__))
#define LEAF64(shape, ...) luge_requires_grad_(luge_cast(LUGE_TENSOR(shape, __VA_ARGS__), LUGE_F64))

#endif
