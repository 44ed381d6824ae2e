/* What the CPU backend decides when the library starts: the instruction set, by the processor and by LUGE_ISA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/isa.h"
#include "tests/support/device.h"
#include "tests/support/expect.h"
#include <luge/luge.h>

/* What a child process answers that starts the library with LUGE_ISA being `wanted`, or without it. */
static int in_child(const char *wanted, int (*answer)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        if (wanted != NULL)
            setenv("LUGE_ISA", wanted, 1);
        else
            unsetenv("LUGE_ISA");
        _exit(answer());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void count_warnings(luge_log_level level, const char *text, void *user)
{
    if (level == LUGE_LOG_WARNING && strstr(text, "LUGE_ISA is ") != NULL) ++*(int *)user;
}

enum { WARNED = 16, LOWERED = 32, WRONG = 64 };

/* The instruction set in use, and how it came about. Sums of small integers are the same with any. */
static int isa_by_environment(void)
{
    int warnings = 0;
    luge_set_log(count_warnings, &warnings);
    LUGE_SCOPE("child");
    luge_tensor *x = luge_arange(0, 100, 1, NULL);
    const bool right = luge_item(luge_sum(luge_mul(x, x), LUGE_ALL_AXES)) == 328350;
    return (int)lg_cpu_isa() + warnings * WARNED + (lg_cpu_isa_is_lowered() ? LOWERED : 0) + (right ? 0 : WRONG);
}

static void environment_decides_the_instruction_set(void **state)
{
    (void)state;
    const int best = in_child(NULL, isa_by_environment);
    assert_in_range(best, LG_ISA_BASE, LG_ISA_COUNT - 1);
    for (int isa = LG_ISA_BASE; isa < LG_ISA_COUNT; ++isa) {
        const int expected = isa > best ? best + WARNED : isa < best ? isa + LOWERED : isa;
        assert_int_equal(in_child(lg_isa_name((lg_isa)isa), isa_by_environment), expected);
    }
    static const char *const unknown[] = {"", "AVX2", "avx2 ", "sse"};
    for (int i = 0; i < 4; ++i) assert_int_equal(in_child(unknown[i], isa_by_environment), best + WARNED);
}

static void the_cpu_is_one_device(void **state)
{
    (void)state;
    const luge_tensor_options second = {.device = {luge_device_cpu().kind, 1}};
    LUGE_SCOPE("test");
    assert_null(luge_zeros(LUGE_SHAPE(1), &second));
    expect_error(LUGE_ERR_DEVICE, "the CPU is one device, with index 0");
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environment_decides_the_instruction_set), /* first, while nothing is decided */
        cmocka_unit_test(the_cpu_is_one_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
