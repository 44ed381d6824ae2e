/* The device that tests run on: the default one, which LUGE_DEVICE names. Tests write values on the host
 * and take them there, and bring results back to look at them. */
#ifndef LG_TESTS_DEVICE_H
#define LG_TESTS_DEVICE_H

#include <luge/luge.h>

bool on_cpu(void);
/* In main: the program is about the CPU or about no device at all, and is skipped on others. */
#define CPU_ONLY() \
    if (!on_cpu()) return 77
/* In a test, likewise. */
void cpu_only(void);

/* Uninitialised, on the host, to write into with luge_tensor_data_mut. */
luge_tensor *on_host(luge_shape shape, luge_dtype dtype);
/* t on the device of the tests; fails the test if that fails. */
luge_tensor *there(luge_tensor *t);
/* The elements of t in row-major order on the host, which must be of that dtype; they live as long as the
 * scope. Fails the test if there are none. */
const void *data_of(luge_tensor *t, luge_dtype dtype);

/* t, or NULL if the device finds fault with what it was given: it says so only when it is waited for. */
luge_tensor *noticed(luge_tensor *t);

#endif
