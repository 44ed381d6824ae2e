/* LUGE_LINES: reports name the file and line of the call that they are about. */
#define LUGE_LINES
#include <luge/luge.h>
/* cmocka.h needs the three below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "core/thread.h"
#include "tests/support/live.h"

/* The standing error names this file and a line of it; clears it. */
static void assert_line(luge_status code, int line)
{
    char place[32];
    snprintf(place, sizeof place, "test_lines.c:%d)", line);
    assert_error(code, place);
    assert_int_equal(lg_self()->modes.lines, 0);
}

static luge_tensor *logarithm(luge_list inputs, void *user)
{
    int *line = user;
    *line = __LINE__ + 1;
    return luge_log(inputs.items[0]);
}

static void results_name_the_line_of_their_call(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2), 0, 1);
    LUGE_ANOMALY();
    assert_null(luge_log(x));
    assert_line(LUGE_ERR_NONFINITE, __LINE__ - 1);
    /* The calls in its arguments have lines of their own, and are over. */
    luge_tensor *y = luge_log(
        luge_sub(luge_abs(x),
                 luge_ones_like(x)));
    assert_null(y);
    /* Compilers take the first or the last line of a macro that spans several: one of another call it is not. */
    assert_error(LUGE_ERR_NONFINITE, "t: log: made nan, [2] f32 (");
    assert_int_equal(lg_self()->modes.lines, 0);
    int line = 0;
    assert_null(luge_checkpoint(logarithm, LUGE_LIST(x), &line));
    assert_line(LUGE_ERR_NONFINITE, line);
    assert_null(luge_sqrt(luge_neg(luge_add_scalar(x, 1)))), assert_line(LUGE_ERR_NONFINITE, __LINE__);
}

static void a_backward_names_the_line_of_the_forward_call(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 0, 4), *y;
    LUGE_ANOMALY();
    {
        LUGE_SCOPE("net");
        y = luge_keep(luge_sqrt(x));
    }
    const int line = __LINE__ - 2;
    assert_int_equal(luge_backward(luge_sum(y, LUGE_ALL_AXES)), LUGE_ERR_NONFINITE);
    assert_non_null(strstr(luge_error_text(), "t.backward.sqrt: the gradient of input 0: made inf, [2] f32; forward: t.net: "
                                              "sqrt of [2] f32 ("));
    assert_line(LUGE_ERR_NONFINITE, line);
}

static void changed_and_freed_tensors_do_too(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 1, 4), *h = luge_mul_scalar(x, 2);
    luge_tensor *y = luge_square(h);
    const int line = __LINE__ - 1;
    luge_zero_(luge_detach(h));
    luge_backward(luge_sum(y, LUGE_ALL_AXES));
    assert_line(LUGE_ERR_GRAPH, line);
    luge_tensor *z = luge_sum(luge_exp(x), LUGE_ALL_AXES);
    luge_backward(z);
    luge_backward(z);
    assert_line(LUGE_ERR_GRAPH, __LINE__ - 3);
}

/* What a jump or an exception has left open ends with the scope around it; deeper calls than there is room for are
 * counted. */
static void the_stack_of_lines_heals(void **state)
{
    (void)state;
    {
        LUGE_SCOPE("t");
        for (int i = 0; i < 40; ++i) luge_line_enter_("deep.c:1");
        luge_line_enter_("deeper.c:1");
        assert_string_equal(lg_line(), "deep.c:1");
        luge_line_leave_(NULL);
    }
    assert_int_equal(lg_self()->modes.lines, 0);
    assert_null(lg_line());
    assert_int_equal(luge_line_leave_status_(LUGE_ERR_IO), LUGE_ERR_IO);
    assert_null(lg_line());
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(results_name_the_line_of_their_call),
        TEST(a_backward_names_the_line_of_the_forward_call),
        TEST(changed_and_freed_tensors_do_too),
        TEST(the_stack_of_lines_heals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
