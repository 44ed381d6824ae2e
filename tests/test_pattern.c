/* Patterns of parameter names: nn/pattern.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "nn/pattern.h"
#include "tests/support/device.h"
#include "tests/support/live.h"

static void check(const char *pattern, const char *name, int rank, bool should)
{
    if (lg_pattern_match(pattern, name, rank) != should) {
        fail_msg("\"%s\" and \"%s\", rank %d", pattern != NULL ? pattern : "NULL", name, rank);
    }
}

static void plain_names_match_themselves(void **state)
{
    (void)state;
    check("fc.weight", "fc.weight", 2, true);
    check("fc.weight", "fc.weights", 2, false);
    check("fc.weight", "fc.weigh", 2, false);
    check("fc.weight", "xfc.weight", 2, false);
    check("Fc.weight", "fc.weight", 2, false);
    check("", "fc.weight", 2, false);
    check("", "", 2, true);
}

static void null_is_all(void **state)
{
    (void)state;
    check(NULL, "fc.weight", 2, true);
    check(NULL, "", 0, true);
}

static void stars_take_any_characters_dots_too(void **state)
{
    (void)state;
    check("*", "layer1.0.conv1.weight", 4, true);
    check("layer1.*", "layer1.0.conv1.weight", 4, true);
    check("layer1.*", "layer10.conv1.weight", 4, false);
    check("layer1.*", "layer1.", 4, true);
    check("layer1.*", "layer1", 4, false);
    check("*.bias", "a.b.bias", 1, true);
    check("*.bias", "bias", 1, false);
    check("*a*b*", "xxaxxbxx", 1, true);
    check("*a*b*", "xxbxxaxx", 1, false);
    check("a**b", "ab", 1, true);
    check("*ab", "aab", 1, true);
    check("*aab*ab", "aaabaab", 1, true);
}

static void question_marks_take_one_character(void **state)
{
    (void)state;
    check("layer?.weight", "layer3.weight", 2, true);
    check("layer?.weight", "layer.weight", 2, false);
    check("layer?.weight", "layer12.weight", 2, false);
    check("?", "\xc3\xa4", 2, true); /* one letter in two bytes */
    check("??", "\xc3\xa4", 2, false);
    check("*?", "", 2, false);
}

static void alternatives(void **state)
{
    (void)state;
    check("conv1.*|bn1.*|layer1.*", "conv1.weight", 4, true);
    check("conv1.*|bn1.*|layer1.*", "bn1.bias", 1, true);
    check("conv1.*|bn1.*|layer1.*", "layer1.0.bn2.bias", 1, true);
    check("conv1.*|bn1.*|layer1.*", "layer2.0.bn2.bias", 1, false);
    check("a|", "a", 1, true);
    check("|a", "a", 1, true);
    check("a||b", "c", 1, false);
}

static void vectors_are_those_of_rank_0_and_1(void **state)
{
    (void)state;
    check("@vectors", "fc.bias", 1, true);
    check("@vectors", "scale", 0, true);
    check("@vectors", "fc.weight", 2, false);
    check("fc.*|@vectors", "fc.weight", 2, true);
    check("fc.*|@vectors", "bn.bias", 1, true);
    check("fc.*|@vectors", "conv.weight", 4, false);
}

static void unknown_classes_are_refused(void **state)
{
    (void)state;
    assert_int_equal(lg_pattern_check(NULL, "f"), LUGE_OK);
    assert_int_equal(lg_pattern_check("", "f"), LUGE_OK);
    assert_int_equal(lg_pattern_check("a|@vectors|b", "f"), LUGE_OK);
    assert_int_equal(lg_pattern_check("user@host", "f"), LUGE_OK);
    assert_int_equal(lg_pattern_check("a|@vector", "f"), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "f: \"@vector\" is no class");
    assert_int_equal(lg_pattern_check("@vectorsx|a", "f"), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "\"@vectorsx\"");
}

/* A pattern that backtracks over every star would need longer than the age of the universe. */
static void many_stars_take_no_time(void **state)
{
    (void)state;
    char name[1001], pattern[201];
    memset(name, 'a', 1000);
    name[1000] = '\0';
    for (int i = 0; i < 100; ++i) memcpy(pattern + 2 * i, "*a", 2);
    pattern[199] = 'b';
    pattern[200] = '\0';
    check(pattern, name, 1, false);
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plain_names_match_themselves, live_begin, live_end),
        cmocka_unit_test_setup_teardown(null_is_all, live_begin, live_end),
        cmocka_unit_test_setup_teardown(stars_take_any_characters_dots_too, live_begin, live_end),
        cmocka_unit_test_setup_teardown(question_marks_take_one_character, live_begin, live_end),
        cmocka_unit_test_setup_teardown(alternatives, live_begin, live_end),
        cmocka_unit_test_setup_teardown(vectors_are_those_of_rank_0_and_1, live_begin, live_end),
        cmocka_unit_test_setup_teardown(unknown_classes_are_refused, live_begin, live_end),
        cmocka_unit_test_setup_teardown(many_stars_take_no_time, live_begin, live_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
