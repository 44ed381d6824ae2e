/* What the tests of single ops share. */
#ifndef LG_TESTS_OPS_H
#define LG_TESTS_OPS_H

#include "tests/support/expect.h"
#include "tests/support/live.h"
#include <luge/luge.h>

/* Random normal f64 leaf that wants a gradient; values depend on this thread's seed. */
luge_tensor *leaf(luge_shape shape);
/* Likewise without a gradient. */
luge_tensor *constant(luge_shape shape);
luge_tensor *in_dtype(luge_tensor *t, luge_dtype dtype);
/* f64 from f32 literals: the values of LUGE_TENSOR must be exact. */
#define F64(t)      in_dtype(t, LUGE_F64)
#define LABELS(...) luge_from_array((int64_t[]){__VA_ARGS__}, LUGE_I64, LUGE_SHAPE(LUGE_COUNT_(int64_t, __VA_ARGS__)))

/* Fails the test unless the values print as `text` (luge_text). */
void assert_text(const luge_tensor *t, const char *text);
/* Fails the test unless `t` is NULL and an error stands with that code and with `text` in it; clears it. */
void assert_refused(const luge_tensor *t, luge_status code, const char *text);
/* Backward against differences, and backward of backward, to 1e-6. */
void assert_gradients(luge_tensor_fn fn, luge_list inputs, void *user, const char *what);
/* Gradient of the sum of y times a fixed random cotangent: leaves collect it. */
void backward_of(luge_tensor *y);

/* live_begin, with the random numbers at their start; goes with live_end. */
int ops_begin(void **state);
/* A row of cmocka's table: whatever the test made is gone when it ends. */
#define OP_TEST(name) cmocka_unit_test_setup_teardown(name, ops_begin, live_end)

#endif
