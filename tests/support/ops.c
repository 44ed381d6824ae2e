#include "tests/support/ops.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

luge_tensor *constant(luge_shape shape)
{
    return luge_randn(shape, &(luge_tensor_options){.dtype = LUGE_F64});
}
luge_tensor *leaf(luge_shape shape)
{
    return luge_requires_grad_(constant(shape));
}
luge_tensor *in_dtype(luge_tensor *t, luge_dtype dtype)
{
    return luge_cast(t, dtype);
}

void assert_text(const luge_tensor *t, const char *text)
{
    assert_string_equal(luge_text(t), text);
}

void assert_refused(const luge_tensor *t, luge_status code, const char *text)
{
    expect_error(code, text);
    assert_null(t);
}

void assert_gradients(luge_tensor_fn fn, luge_list inputs, void *user, const char *what)
{
    if (luge_gradcheck(fn, inputs, user, 1e-6) != LUGE_OK) fail_msg("%s: %s", what, luge_error_text());
    if (luge_gradgradcheck(fn, inputs, user, 1e-6) != LUGE_OK) fail_msg("%s, twice: %s", what, luge_error_text());
}

void backward_of(luge_tensor *y)
{
    luge_tensor_options like = {.dtype = luge_tensor_dtype(y)};
    if (luge_backward_with(y, &(luge_backward_options){.gradient = luge_randn(luge_tensor_shape(y), &like)}) != LUGE_OK)
        fail_msg("backward: %s", luge_error_text());
}

int ops_begin(void **state)
{
    luge_seed(1);
    return live_begin(state);
}
