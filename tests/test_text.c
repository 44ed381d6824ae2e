/* luge_text (core/text.c). */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/fault.h"
#include "core/tensor.h"
#include "tests/support/device.h"
#include <luge/luge.h>

static luge_tensor *array_of(luge_dtype dtype, luge_shape shape, const double *values)
{
    luge_tensor *t = on_host(shape, dtype);
    char *at = luge_tensor_data_mut(t, dtype);
    for (int64_t i = 0; i < luge_tensor_numel(t); ++i) {
        lg_store_f64(at + (size_t)i * luge_dtype_size(dtype), dtype, values == NULL ? (double)i : values[i]);
    }
    return there(t);
}

static void test_nested_lists(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    assert_string_equal(luge_text(LUGE_TENSOR(LUGE_SHAPE(2, 1), 4.5, 9)), "[[4.5], [9]]");
    assert_string_equal(luge_text(LUGE_TENSOR(LUGE_SCALAR, 4.5)), "4.5");
    assert_string_equal(luge_text(LUGE_TENSOR(LUGE_SHAPE(1), 4.5)), "[4.5]");
    assert_string_equal(luge_text(LUGE_TENSOR(LUGE_SHAPE(2, 2, 1), 1, 2, 3, 4)), "[[[1], [2]], [[3], [4]]]");
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    const luge_shape turned = LUGE_SHAPE(3, 2);
    assert_string_equal(luge_text(lg_borrow(lg_tensor_view(t, &turned, (int64_t[]){1, 3}, 0))),
                        "[[1, 4], [2, 5], [3, 6]]");
}

static void test_numbers(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    const double values[] = {0.1, -0.0, 1e-7, 123456789, 0.333333333333, 1e30};
    assert_string_equal(luge_text(array_of(LUGE_F32, LUGE_SHAPE(6), values)),
                        "[0.1, -0, 1e-07, 1.23457e+08, 0.333333, 1e+30]");
    assert_string_equal(luge_text(array_of(LUGE_F64, LUGE_SHAPE(6), values)),
                        "[0.1, -0, 1e-07, 1.23457e+08, 0.333333, 1e+30]");
    assert_string_equal(luge_text(array_of(LUGE_F16, LUGE_SHAPE(2), (double[]){0.1, 70000})), "[0.0999756, inf]");
    assert_string_equal(luge_text(array_of(LUGE_BF16, LUGE_SHAPE(1), (double[]){1.5})), "[1.5]");
    assert_string_equal(luge_text(array_of(LUGE_F32, LUGE_SHAPE(4), (double[]){INFINITY, -INFINITY, NAN, -NAN})),
                        "[inf, -inf, nan, nan]");
    assert_string_equal(luge_text(array_of(LUGE_BOOL, LUGE_SHAPE(2), (double[]){1, 0})), "[true, false]");
    assert_string_equal(luge_text(array_of(LUGE_U8, LUGE_SHAPE(2), (double[]){255, 0})), "[255, 0]");
    assert_string_equal(luge_text(luge_from_array((int64_t[]){INT64_MIN, INT64_MAX}, LUGE_I64, LUGE_SHAPE(2))),
                        "[-9223372036854775808, 9223372036854775807]");
}

static void test_the_locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE",
                                         "nl_NL.UTF-8", "es_ES.UTF-8", "ps_AF.UTF-8"};
    bool found = false;
    for (size_t i = 0; i < sizeof commas / sizeof *commas && !found; ++i)
        found = setlocale(LC_NUMERIC, commas[i]) != NULL;
    if (!found) skip();
    LUGE_SCOPE("test");
    assert_string_equal(luge_text(LUGE_TENSOR(LUGE_SHAPE(2), 1.5, 2.25e-10)), "[1.5, 2.25e-10]");
    setlocale(LC_NUMERIC, "C");
}

static void test_nothing_to_show(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    assert_string_equal(luge_text(luge_empty(LUGE_SHAPE(0), NULL)), "[]");
    assert_string_equal(luge_text(luge_empty(LUGE_SHAPE(2, 0), NULL)), "[[], []]");
    assert_string_equal(luge_text(luge_empty(LUGE_SHAPE(0, 2), NULL)), "[]");
    assert_string_equal(luge_text(LUGE_NONE), "none");
    assert_true(luge_ok());
}

static void test_NULL_gives_the_error(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_fail(LUGE_ERR_IO, "disk on fire");
    const char *text = luge_text(NULL);
    luge_error_clear();
    assert_string_equal(text, "test: disk on fire"); /* the text is the scope's, not the error's */
    assert_non_null(strstr(luge_text(NULL), "text: the tensor is NULL"));
    assert_int_equal(luge_error(), LUGE_ERR_ARGUMENT);
    luge_error_clear();
}

static void test_long_tensors_are_shortened(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    const char *whole = luge_text(array_of(LUGE_I64, LUGE_SHAPE(1000), NULL));
    assert_null(strstr(whole, "..."));
    assert_non_null(strstr(whole, ", 499, 500, 501,"));
    assert_string_equal(luge_text(array_of(LUGE_I64, LUGE_SHAPE(1001), NULL)), "[0, 1, 2, ..., 998, 999, 1000]");
    assert_string_equal(luge_text(array_of(LUGE_I64, LUGE_SHAPE(2, 501), NULL)),
                        "[[0, 1, 2, ..., 498, 499, 500], [501, 502, 503, ..., 999, 1000, 1001]]");
    assert_string_equal(luge_text(array_of(LUGE_I64, LUGE_SHAPE(501, 2), NULL)),
                        "[[0, 1], [2, 3], [4, 5], ..., [996, 997], [998, 999], [1000, 1001]]");
}

static void test_no_shape_makes_a_long_text(void **state)
{
    (void)state;
    static const luge_shape shapes[] = {
        {8, {6, 6, 6, 6, 6, 6, 6, 6}},
        {8, {5, 5, 5, 5, 5, 5, 5, 5}},
        {4, {30, 30, 30, 30}},
        {1, {1000}},
        {2, {1000, 0}},
        {2, {100000, 0}},
        {4, {7, 7, 7, 7}},
        {2, {1, 100000}},
        {2, {31, 32}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        LUGE_SCOPE("test");
        luge_tensor *t = on_host(shapes[i], LUGE_F32);
        float *data = luge_tensor_data_mut(t, LUGE_F32);
        for (int64_t k = 0; k < luge_tensor_numel(t); ++k) data[k] = -1.23456e-20f;
        const char *text = luge_text(there(t));
        assert_true(strlen(text) > 10 && strlen(text) < 16000);
        int depth = 0;
        for (const char *c = text; *c != '\0'; ++c) depth += (*c == '[') - (*c == ']');
        assert_int_equal(depth, 0);
    }
}

static void test_out_of_memory(void **state)
{
    (void)state;
    int failures = 0;
    for (int nth = 1;; ++nth) {
        LUGE_SCOPE("test");
        luge_tensor *t = array_of(LUGE_I32, LUGE_SHAPE(900), NULL);
        lg_fault_set(LG_FAULT_HOST, nth);
        const char *text = luge_text(t);
        const bool hit = lg_fault_hit(LG_FAULT_HOST);
        lg_fault_set(LG_FAULT_HOST, 0);
        assert_non_null(text);
        if (!hit) break;
        ++failures;
        assert_int_equal(luge_error(), LUGE_ERR_OUT_OF_MEMORY);
        assert_non_null(strstr(text, "out of"));
        luge_error_clear();
    }
    assert_true(failures > 2);
    assert_int_equal(luge_live().tensors, 0);
    assert_int_equal(luge_live().host_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nested_lists),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_the_locale_does_not_matter),
        cmocka_unit_test(test_nothing_to_show),
        cmocka_unit_test(test_NULL_gives_the_error),
        cmocka_unit_test(test_long_tensors_are_shortened),
        cmocka_unit_test(test_no_shape_makes_a_long_text),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
