#include "tests/support/compare.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

double *values_of(const luge_tensor *t)
{
    const int64_t n = luge_tensor_numel(t);
    double *v = malloc((size_t)(n > 0 ? n : 1) * sizeof *v);
    if (v == NULL || luge_to_array(t, v, LUGE_F64, n) != LUGE_OK) fail_msg("cannot read a tensor: %s", luge_error_text());
    return v;
}

static bool same_shape(const luge_tensor *a, const luge_tensor *b)
{
    const luge_shape s = luge_tensor_shape(a), u = luge_tensor_shape(b);
    return a != NULL && b != NULL && s.rank == u.rank && memcmp(s.dim, u.dim, sizeof s.dim[0] * (size_t)s.rank) == 0;
}

double relative_error(const luge_tensor *a, const luge_tensor *b)
{
    if (!same_shape(a, b)) return INFINITY;
    const int64_t n = luge_tensor_numel(a);
    double *p = values_of(a), *q = values_of(b), squares = 0, worst = 0;
    for (int64_t i = 0; i < n; ++i)
        if (isfinite(q[i])) squares += q[i] * q[i];
    const luge_dtype dtype = luge_tensor_dtype(a);
    const double least = dtype == LUGE_F64 ? 1e-30 : dtype == LUGE_F32 ? 0.1 : 1;
    const double size = n > 0 ? fmax(sqrt(squares / (double)n), least) : 1;
    for (int64_t i = 0; i < n; ++i) {
        if ((isnan(p[i]) && isnan(q[i])) || p[i] == q[i]) continue;
        const double error = fabs(p[i] - q[i]) / (fabs(q[i]) + size);
        if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
    }
    free(p);
    free(q);
    return worst;
}

bool same_bits(const luge_tensor *a, const luge_tensor *b)
{
    if (!same_shape(a, b) || luge_tensor_dtype(a) != luge_tensor_dtype(b)) return false;
    const int64_t n = luge_tensor_numel(a);
    const luge_dtype dtype = luge_tensor_dtype(a);
    const size_t bytes = (size_t)n * luge_dtype_size(dtype);
    void *p = malloc(bytes + 1), *q = malloc(bytes + 1);
    assert_true(p != NULL && q != NULL);
    assert_int_equal(luge_to_array(a, p, dtype, n), LUGE_OK);
    assert_int_equal(luge_to_array(b, q, dtype, n), LUGE_OK);
    const bool same = memcmp(p, q, bytes) == 0;
    free(p);
    free(q);
    return same;
}

void assert_close(const luge_tensor *a, const luge_tensor *b, double bound, const char *what)
{
    const double error = relative_error(a, b);
    if (!(error <= bound))
        fail_msg("%s: off by %.3g, allowed is %.3g\n  got      %.300s\n  expected %.300s", what, error, bound, luge_text(a),
                 luge_text(b));
}

void assert_ok(void)
{
    if (!luge_ok()) fail_msg("%s", luge_error_text());
}
