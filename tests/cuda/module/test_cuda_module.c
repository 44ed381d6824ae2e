/* Why CUDA cannot be used, for every reason; what LUGE_DEVICE says; and that a program which does not ask
 * about CUDA never touches it. Each case is a process of its own, since the module is opened once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>

#include <luge/luge.h>

/* ---- the child: test_cuda_module ask|make|train */

static int ask(void)
{
    printf("%s\n", luge_device_why_not(luge_device_cuda(0)));
    return luge_ok() && !luge_device_usable(luge_device_cuda(0)) && luge_device_best().kind == luge_device_cpu().kind ? 0 : 1;
}

static int make(void)
{
    LUGE_SCOPE("make");
    const luge_tensor *t = luge_zeros(LUGE_SHAPE(2), NULL);
    printf("%s\n", t != NULL ? luge_text(t) : luge_error_text());
    return t != NULL ? 0 : luge_error() == LUGE_ERR_DEVICE ? 3 : 1;
}

static int train(void)
{
    LUGE_SCOPE("train");
    luge_module *net = luge_nn_linear(4, 2, NULL);
    luge_optim *opt = luge_sgd_create(net, 0.1, NULL);
    luge_backward(luge_sum(luge_forward(net, luge_ones(LUGE_SHAPE(3, 4), NULL)), LUGE_ALL_AXES));
    luge_optim_step(opt);
    luge_optim_destroy(opt);
    luge_module_destroy(net);
    return luge_exit_code(stderr);
}

/* ---- the parent */

static const char *self; /* this program */
static char answer[1024];

/* Runs a child with variables "NAME=value" set, NULL at the end; its first line is `answer`. The variables of
 * the surroundings that matter here are not passed on. */
static int run(const char *what, const char *const *variables)
{
    int ends[2];
    if (pipe(ends) != 0) fail_msg("no pipe");
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        unsetenv("LUGE_CUDA_MODULE");
        unsetenv("LUGE_DEVICE");
        unsetenv("LD_LIBRARY_PATH");
        for (; *variables != NULL; ++variables) putenv((char *)*variables);
        execl(self, self, what, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; used < sizeof answer - 1 && (n = read(ends[0], answer + used, sizeof answer - 1 - used)) > 0;)
        used += (size_t)n;
    answer[used] = '\0';
    close(ends[0]);
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define RUN(what, ...) run(what, (const char *const[]){__VA_ARGS__, NULL})
#define DRIVER "LD_LIBRARY_PATH=" DRIVER_DIR

static void expect(const char *part)
{
    if (strstr(answer, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", answer, part);
}

static void test_there_is_no_driver(void **state)
{
    (void)state;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver != NULL) {
        dlclose(driver);
        skip();
    }
    assert_int_equal(RUN("ask", "LD_LIBRARY_PATH=/nowhere"), 0);
    expect("no NVIDIA driver (libcuda.so.1)");
}

static void test_what_the_driver_says(void **state)
{
    (void)state;
    assert_int_equal(RUN("ask", DRIVER, "LUGE_TEST_DRIVER=34"), 0);
    expect("stub");
    assert_int_equal(RUN("ask", DRIVER, "LUGE_TEST_DRIVER=35"), 0);
    expect("too old");
    assert_int_equal(RUN("ask", DRIVER, "LUGE_TEST_DRIVER=100"), 0);
    expect("finds no CUDA device");
    assert_int_equal(RUN("ask", DRIVER, "LUGE_TEST_DEVICES=0"), 0);
    expect("finds no CUDA device");
    assert_int_equal(RUN("ask", DRIVER, "LUGE_TEST_DRIVER=802"), 0);
    expect("fabricmanager");
    assert_int_equal(RUN("ask", DRIVER, "LUGE_TEST_DRIVER=803"), 0);
    expect("different versions");
    assert_int_equal(RUN("ask", DRIVER, "LUGE_TEST_DRIVER=999"), 0);
    expect("error 999");
    assert_int_equal(RUN("ask", "LD_LIBRARY_PATH=" NO_DRIVER_DIR), 0);
    expect("lacks cuInit");
}

static void test_what_is_wrong_with_the_module(void **state)
{
    (void)state;
    assert_int_equal(RUN("ask", DRIVER, "LUGE_CUDA_MODULE=/nowhere.so"), 0);
    expect("there is no CUDA module /nowhere.so");
    assert_int_equal(RUN("ask", DRIVER, "LUGE_CUDA_MODULE=" NO_OBJECT), 0);
    expect("cannot be loaded");
    assert_int_equal(RUN("ask", DRIVER, "LUGE_CUDA_MODULE=" NO_MODULE), 0);
    expect("lacks luge_cuda_module");
    assert_int_equal(RUN("ask", DRIVER, "LUGE_CUDA_MODULE=" NEEDY), 0);
    expect("libluge_test_absent.so");
    expect("are cuBLAS and cuDNN installed?");
}

static void test_a_module_of_other_sources(void **state)
{
    (void)state;
#ifdef OTHER_MODULE
    assert_int_equal(RUN("ask", DRIVER, "LUGE_CUDA_MODULE=" OTHER_MODULE), 0);
    expect("built from other sources");
#else
    skip();
#endif
}

static void test_the_default_device_by_name(void **state)
{
    (void)state;
    assert_int_equal(RUN("make", "LUGE_DEVICE=cpu"), 0);
    expect("[0, 0]");
    assert_int_equal(RUN("make", "LUGE_DEVICE="), 0);
    assert_int_equal(RUN("make", DRIVER, "LUGE_DEVICE=auto", "LUGE_TEST_DRIVER=35"), 0);
    expect("[0, 0]");
    assert_int_equal(RUN("make", "LUGE_DEVICE=gpu"), 3);
    expect("LUGE_DEVICE must be auto, cpu, cuda or cuda:<number>, not \"gpu\"");
    assert_int_equal(RUN("make", "LUGE_DEVICE=cuda:"), 3);
    expect("not \"cuda:\"");
    assert_int_equal(RUN("make", "LUGE_DEVICE=cuda:1x"), 3);
    assert_int_equal(RUN("make", "LUGE_DEVICE=cuda:-1"), 3);
    assert_int_equal(RUN("make", DRIVER, "LUGE_DEVICE=cuda:1", "LUGE_TEST_DRIVER=35"), 3);
    expect("device cuda:1: ");
    expect("too old");
    assert_int_equal(RUN("make", DRIVER, "LUGE_DEVICE=cuda", "LUGE_CUDA_MODULE=/nowhere.so"), 3);
    expect("device cuda:0: there is no CUDA module /nowhere.so");
}

static void test_who_does_not_ask_does_not_pay(void **state)
{
    (void)state;
    char variable[] = "LUGE_TEST_TRACE=/tmp/luge_trace_XXXXXX", *path = strchr(variable, '=') + 1;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    unlink(path);
    assert_int_equal(RUN("train", DRIVER, variable), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(RUN("ask", DRIVER, variable, "LUGE_TEST_DRIVER=100"), 0);
    assert_int_equal(access(path, F_OK), 0); /* so the test can fail */
    unlink(path);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "ask") == 0) return ask();
    if (argc > 1 && strcmp(argv[1], "make") == 0) return make();
    if (argc > 1 && strcmp(argv[1], "train") == 0) return train();
    self = argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_is_no_driver),
        cmocka_unit_test(test_what_the_driver_says),
        cmocka_unit_test(test_what_is_wrong_with_the_module),
        cmocka_unit_test(test_a_module_of_other_sources),
        cmocka_unit_test(test_the_default_device_by_name),
        cmocka_unit_test(test_who_does_not_ask_does_not_pay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
