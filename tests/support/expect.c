/* What tests expect of errors and numbers. */
#include "tests/support/expect.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>
#include <time.h>

void expect_error(luge_status code, const char *says)
{
    if (luge_error() != code || strstr(luge_error_text(), says) == NULL) {
        fail_msg("error %d '%s', expected %d and '%s'", (int)luge_error(), luge_error_text(), (int)code, says);
    }
    luge_error_clear();
}

void assert_near(double is, double should, double bound)
{
    if (!(fabs(is - should) <= bound)) fail_msg("%.17g is not within %g of %.17g", is, bound, should);
}

double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
