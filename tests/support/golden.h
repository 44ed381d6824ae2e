/* The golden files of tests/golden: values made by PyTorch, by key. */
#ifndef LG_TESTS_GOLDEN_H
#define LG_TESTS_GOLDEN_H

#include <luge/luge.h>

typedef struct golden golden;

/* A file of tests/golden; fails the test if it cannot be read. */
golden *golden_open(const char *file);
void golden_close(golden *g);
/* The tensor under `key`, on the device of the tests, borrowed from the scope; NULL, and no error, if there is none. */
luge_tensor *golden_get(golden *g, const char *format, ...) LUGE_PRINTF_LIKE(2, 3);
/* Calls visit for each key that begins with `prefix`, in the order of the keys. */
void golden_each(golden *g, const char *prefix, void (*visit)(const char *key, void *user), void *user);

/* The values that make_golden.py calls hashed(shape, seed, scale); f64. */
luge_tensor *golden_hashed(luge_shape shape, int64_t seed, double scale);

#endif
