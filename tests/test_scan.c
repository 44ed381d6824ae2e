/* Sums up to each element (ops/scan.c): the kernel against the reference, integers, gradients, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "core/op.h"
#include "ops/attrs.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/kernel.h"
#include "tests/support/ops.h"

/* ---- the kernel against the reference, along every axis and both ways */

static const struct {
    luge_dtype dtype;
    double bound;
    bool on_cpu; /* the CPU's kernel takes f32 and f64 */
} kernel_dtypes[] = {{LUGE_F32, 1e-5, true}, {LUGE_F64, 1e-13, true}, {LUGE_F16, 2e-3, false}, {LUGE_BF16, 1e-2, false}};

static void check_scans(luge_shape shape)
{
    for (size_t d = 0; d < sizeof kernel_dtypes / sizeof *kernel_dtypes; ++d) {
        if (on_cpu() && !kernel_dtypes[d].on_cpu) continue;
        for (int axis = 0; axis < (shape.rank > 0 ? shape.rank : 1); ++axis) {
            LUGE_SCOPE("test");
            char what[64];
            snprintf(what, sizeof what, "cumsum, dtype %zu, axis %d of %d", d, axis, shape.rank);
            luge_tensor *x = random_layout(shape, kernel_dtypes[d].dtype, 0);
            for (int reverse = 0; reverse < 2; ++reverse)
                check_kernel(&lg_op_cumsum, LUGE_LIST(x), &(lg_scan_attrs){.axis = axis, .reverse = reverse != 0},
                             kernel_dtypes[d].bound, what);
        }
    }
}

static void test_kernel(void **state)
{
    (void)state;
    check_scans(LUGE_SCALAR);
    check_scans(LUGE_SHAPE(1));
    check_scans(LUGE_SHAPE(1000));
    check_scans(LUGE_SHAPE(3, 7, 5));
    check_scans(LUGE_SHAPE(2, 9, 64)); /* as many columns as are summed side by side, and one more */
    check_scans(LUGE_SHAPE(2, 9, 65));
    check_scans(LUGE_SHAPE(300, 200)); /* more than a slice */
}

/* ---- values */

static void test_integers(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *rows = luge_cast(LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 250, 250, 250), LUGE_U8);
    luge_tensor *sums = luge_cumsum(rows, 1);
    assert_int_equal(luge_tensor_dtype(sums), LUGE_I64);
    assert_text(sums, "[[1, 3, 6], [250, 500, 750]]");
    assert_text(luge_cumsum(rows, -2), "[[1, 2, 3], [251, 252, 253]]");
    assert_text(luge_cumsum(luge_transpose(rows, 0, 1), 0), "[[1, 250], [3, 500], [6, 750]]");
    luge_tensor *yes = luge_gt(LUGE_TENSOR(LUGE_SHAPE(4), 1, -1, 1, 1), luge_full(LUGE_SCALAR, 0, NULL));
    assert_text(luge_cumsum(yes, 0), "[1, 1, 2, 3]");
    int64_t v[2];
    assert_int_equal(luge_to_array(luge_cumsum(LABELS(INT64_MAX, 2), 0), v, LUGE_I64, 2), LUGE_OK);
    assert_true(v[0] == INT64_MAX && v[1] == INT64_MIN + 1); /* wraps around */
}

/* The CPU sums in f64 what in f32 would stand still at 2^24. */
static void test_long_sums(void **state)
{
    (void)state;
    cpu_only();
    LUGE_SCOPE("test");
    enum { FEW = 8 };
    luge_tensor *large = luge_full(LUGE_SHAPE(1), 16777216, NULL), *ones = luge_ones(LUGE_SHAPE(FEW), NULL);
    luge_tensor *sums = luge_cumsum(luge_cat(LUGE_LIST(large, ones), 0), 0);
    float v[FEW + 1];
    assert_int_equal(luge_to_array(sums, v, LUGE_F32, FEW + 1), LUGE_OK);
    assert_true(v[0] == 16777216 && v[2] == 16777218 && v[FEW] == 16777216 + FEW);
}

static luge_tensor *scan(luge_list in, void *axis) { return luge_cumsum(in.items[0], *(int *)axis); }

static void test_gradients(void **state)
{
    (void)state;
    for (int axis = 0; axis < 3; ++axis) {
        LUGE_SCOPE("test");
        assert_gradients(scan, LUGE_LIST(leaf(LUGE_SHAPE(2, 3, 4))), &axis, "cumsum");
    }
}

static void test_nothing_to_sum(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    static const luge_dtype dtypes[] = {LUGE_F32, LUGE_F16, LUGE_I64, LUGE_BOOL};
    for (int d = 0; d < 4; ++d) {
        const luge_tensor_options options = {.dtype = dtypes[d]};
        for (int axis = 0; axis < 2; ++axis) {
            const luge_shape no_rows = luge_tensor_shape(luge_cumsum(luge_zeros(LUGE_SHAPE(0, 3), &options), axis));
            assert_true(no_rows.rank == 2 && no_rows.dim[0] == 0 && no_rows.dim[1] == 3);
            const luge_shape no_columns = luge_tensor_shape(luge_cumsum(luge_zeros(LUGE_SHAPE(3, 0), &options), axis));
            assert_true(no_columns.rank == 2 && no_columns.dim[0] == 3 && no_columns.dim[1] == 0);
        }
    }
}

static void test_wrong_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_zeros(LUGE_SHAPE(2, 3), NULL);
    assert_refused(luge_cumsum(x, 2), LUGE_ERR_ARGUMENT, "cumsum: there is no axis 2 in 2 axes");
    assert_refused(luge_cumsum(x, -3), LUGE_ERR_ARGUMENT, "cumsum: there is no axis -3");
    assert_refused(luge_cumsum(NULL, 0), LUGE_ERR_ARGUMENT, "cumsum: the input");
    assert_refused(luge_cumsum(LUGE_NONE, 0), LUGE_ERR_ARGUMENT, "cumsum: the input");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_kernel),    OP_TEST(test_integers),       OP_TEST(test_long_sums),
        OP_TEST(test_gradients), OP_TEST(test_nothing_to_sum), OP_TEST(test_wrong_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
