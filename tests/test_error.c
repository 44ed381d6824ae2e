/* The error of a thread and the log: include/luge/status.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <luge/luge.h>
#include <pthread.h>
#include <string.h>

#include "core/fault.h"
#include "core/thread.h"

/* ---- a log that remembers */

typedef struct record {
    int lines;
    luge_log_level level;
    char text[LG_ERROR_TEXT];
} record;

static void remember(luge_log_level level, const char *text, void *user)
{
    record *r = user;
    ++r->lines;
    r->level = level;
    snprintf(r->text, sizeof r->text, "%s", text);
}

/* What the log received of a thread that ran `fn`. */
static record log_of_thread(void *(*fn)(void *))
{
    record r = {0};
    luge_set_log(remember, &r);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, NULL), 0);
    pthread_join(thread, NULL);
    luge_set_log(NULL, NULL);
    return r;
}

static int clean(void **state)
{
    (void)state;
    lg_fault_set(LG_FAULT_HOST, 0);
    luge_error_clear();
    return 0;
}

/* ---- the standing error */

static void none_at_first(void **state)
{
    (void)state;
    assert_true(luge_ok());
    assert_int_equal(luge_error(), LUGE_OK);
    assert_string_equal(luge_error_text(), "");
    assert_int_equal(luge_exit_code(NULL), 0);
}

static void first_error_stands(void **state)
{
    (void)state;
    assert_int_equal(luge_fail(LUGE_ERR_IO, "%s: line %d", "first", 7), LUGE_ERR_IO);
    assert_int_equal(luge_fail(LUGE_ERR_SHAPE, "second"), LUGE_ERR_IO);
    assert_int_equal(luge_error(), LUGE_ERR_IO);
    assert_false(luge_ok());
    assert_false(lg_ok());
    assert_string_equal(luge_error_text(), "first: line 7");
    assert_int_equal(luge_exit_code(NULL), 1);
    luge_error_clear();
    assert_true(luge_ok());
    assert_string_equal(luge_error_text(), "");
    assert_int_equal(luge_fail(LUGE_ERR_SHAPE, "second"), LUGE_ERR_SHAPE);
    assert_string_equal(luge_error_text(), "second");
}

static void exit_code_writes_the_text(void **state)
{
    (void)state;
    char text[64] = {0};
    FILE *out = fmemopen(text, sizeof text, "w");
    luge_fail(LUGE_ERR_STATE, "out of order");
    assert_int_equal(luge_exit_code(out), 1);
    fclose(out);
    assert_string_equal(text, "out of order\n");
}

static void take_copies_what_fits_and_clears(void **state)
{
    (void)state;
    char text[6];
    memset(text, 'x', sizeof text);
    assert_int_equal(luge_error_take(text, sizeof text), LUGE_OK);
    assert_string_equal(text, "");

    luge_fail(LUGE_ERR_DTYPE, "abcdefgh");
    assert_int_equal(luge_error_take(text, sizeof text), LUGE_ERR_DTYPE);
    assert_string_equal(text, "abcde");
    assert_true(luge_ok());

    luge_fail(LUGE_ERR_DTYPE, "abcde");
    assert_int_equal(luge_error_take(text, sizeof text), LUGE_ERR_DTYPE);
    assert_string_equal(text, "abcde");

    text[0] = 'x';
    luge_fail(LUGE_ERR_DTYPE, "abc");
    assert_int_equal(luge_error_take(text, 1), LUGE_ERR_DTYPE);
    assert_string_equal(text, "");

    text[0] = 'x';
    luge_fail(LUGE_ERR_DTYPE, "abc");
    assert_int_equal(luge_error_take(text, 0), LUGE_ERR_DTYPE);
    assert_int_equal(text[0], 'x');

    luge_fail(LUGE_ERR_DTYPE, "abc");
    assert_int_equal(luge_error_take(NULL, 100), LUGE_ERR_DTYPE);
    assert_true(luge_ok());
}

static void path_stands_in_front(void **state)
{
    (void)state;
    LUGE_SCOPE("step");
    LUGE_NO_GRAD();
    LUGE_SCOPE("net");
    LUGE_SCOPE(NULL);
    LUGE_SCOPE("fc1");
    lg_fail(LUGE_ERR_SHAPE, "linear: input has %d features", 785);
    assert_string_equal(luge_error_text(), "step.net.fc1: linear: input has 785 features");
    luge_error_clear();
    luge_fail(LUGE_ERR_SHAPE, "of a callback");
    assert_string_equal(luge_error_text(), "step.net.fc1: of a callback");
    luge_error_clear();
    /* An error of another thread has its path already. */
    assert_int_equal(lg_fail_raw(LUGE_ERR_IO, "sample 5: 100%s"), LUGE_ERR_IO);
    assert_string_equal(luge_error_text(), "sample 5: 100%s");
}

static void odd_arguments(void **state)
{
    (void)state;
    assert_int_equal(luge_fail(LUGE_OK, "no code"), LUGE_ERR_CALLBACK);
    luge_error_clear();
    assert_int_equal(luge_fail((luge_status)999, "no code"), LUGE_ERR_CALLBACK);
    luge_error_clear();
    assert_int_equal(luge_fail((luge_status)-1, "no code"), LUGE_ERR_CALLBACK);
    luge_error_clear();
    const char *nothing = NULL;
    assert_int_equal(luge_fail(LUGE_ERR_IO, nothing, 0), LUGE_ERR_IO);
    assert_true(strlen(luge_error_text()) > 0);
}

static void text_may_come_from_the_last_error(void **state)
{
    (void)state;
    luge_fail(LUGE_ERR_IO, "disk full");
    const char *text = luge_error_text();
    luge_error_clear();
    luge_fail(LUGE_ERR_IO, "while saving: %s", text);
    assert_string_equal(luge_error_text(), "while saving: disk full");
}

/* However deep the scopes, there is room for what is wrong. */
static void long_texts_are_cut_and_ended(void **state)
{
    (void)state;
    char big[4 * LG_ERROR_TEXT];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    luge_fail(LUGE_ERR_IO, "%s", big);
    assert_int_equal(strlen(luge_error_text()), LG_ERROR_TEXT - 1);
    luge_error_clear();

    luge_scope outer = luge_scope_enter("outermost");
    for (int i = 0; i < 100; ++i) luge_scope_enter("a name of thirty-one characters");
    luge_scope_enter("inner");
    luge_fail(LUGE_ERR_IO, "what is wrong");
    const char *text = luge_error_text();
    assert_memory_equal(text, "...a name", 9);
    assert_non_null(strstr(text, "characters.inner: what is wrong"));
    luge_scope_exit(outer, NULL);
}

static void reporting_takes_no_memory(void **state)
{
    (void)state;
    lg_fault_set(LG_FAULT_HOST, INT64_MAX);
    luge_fail(LUGE_ERR_OUT_OF_MEMORY, "%s", "nothing left");
    assert_string_equal(luge_error_text(), "nothing left");
    luge_error_clear();
    assert_int_equal(lg_fault_requests(LG_FAULT_HOST), 0);
}

static void reserved_words_must_be_zero(void **state)
{
    (void)state;
    uint64_t words[4] = {0};
    assert_true(lg_check_reserved(words, 4, "luge_some_options"));
    words[3] = 1;
    assert_true(lg_check_reserved(words, 3, "luge_some_options"));
    assert_true(luge_ok());
    assert_false(lg_check_reserved(words, 4, "luge_some_options"));
    assert_int_equal(luge_error(), LUGE_ERR_ARGUMENT);
    assert_non_null(strstr(luge_error_text(), "luge_some_options"));
}

/* ---- threads and the log */

static void *fail_unasked(void *arg)
{
    LUGE_SCOPE("worker");
    luge_fail(LUGE_ERR_IO, "nobody asks");
    luge_fail(LUGE_ERR_IO, "nor about this");
    return arg;
}

static void *fail_in_library_checks(void *arg)
{
    luge_fail(LUGE_ERR_IO, "nobody asks");
    (void)lg_ok(); /* the library's own look */
    luge_seed(1);
    luge_keep(NULL);
    return arg;
}

static void *fail_and_ask(void *arg)
{
    luge_fail(LUGE_ERR_IO, "asked");
    return luge_ok() ? arg : NULL;
}

static void *fail_and_read(void *arg)
{
    luge_fail(LUGE_ERR_IO, "asked");
    return luge_error_text() != NULL ? arg : NULL;
}

static void *fail_and_clear(void *arg)
{
    luge_fail(LUGE_ERR_IO, "cleared");
    luge_error_clear();
    return arg;
}

static void *fail_and_take(void *arg)
{
    luge_fail(LUGE_ERR_IO, "taken");
    return luge_error_take(NULL, 0) == LUGE_ERR_IO ? arg : NULL;
}

static void *fail_ask_and_fail_again(void *arg)
{
    luge_fail(LUGE_ERR_IO, "asked");
    (void)luge_error();
    luge_error_clear();
    luge_fail(LUGE_ERR_IO, "the second");
    return arg;
}

static void unasked_errors_are_logged_at_thread_end(void **state)
{
    (void)state;
    record r = log_of_thread(fail_unasked);
    assert_int_equal(r.lines, 1);
    assert_int_equal(r.level, LUGE_LOG_ERROR);
    assert_string_equal(r.text, "worker: nobody asks");

    r = log_of_thread(fail_in_library_checks);
    assert_int_equal(r.lines, 1);
    assert_string_equal(r.text, "nobody asks");

    r = log_of_thread(fail_ask_and_fail_again);
    assert_int_equal(r.lines, 1);
    assert_string_equal(r.text, "the second");

    assert_int_equal(log_of_thread(fail_and_ask).lines, 0);
    assert_int_equal(log_of_thread(fail_and_read).lines, 0);
    assert_int_equal(log_of_thread(fail_and_clear).lines, 0);
    assert_int_equal(log_of_thread(fail_and_take).lines, 0);
}

static void errors_are_per_thread(void **state)
{
    (void)state;
    luge_fail(LUGE_ERR_SHAPE, "mine");
    log_of_thread(fail_unasked);
    assert_int_equal(luge_error(), LUGE_ERR_SHAPE);
    assert_string_equal(luge_error_text(), "mine");
}

static void log_gets_level_and_user(void **state)
{
    (void)state;
    record r = {0};
    lg_log(LUGE_LOG_INFO, "dropped");
    luge_set_log(remember, &r);
    lg_log(LUGE_LOG_WARNING, "%d of %d", 3, 4);
    luge_set_log(NULL, NULL);
    lg_log(LUGE_LOG_INFO, "dropped");
    assert_int_equal(r.lines, 1);
    assert_int_equal(r.level, LUGE_LOG_WARNING);
    assert_string_equal(r.text, "3 of 4");
}

#define TEST(name) cmocka_unit_test_teardown(name, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(none_at_first),
        TEST(first_error_stands),
        TEST(exit_code_writes_the_text),
        TEST(take_copies_what_fits_and_clears),
        TEST(path_stands_in_front),
        TEST(odd_arguments),
        TEST(text_may_come_from_the_last_error),
        TEST(long_texts_are_cut_and_ended),
        TEST(reporting_takes_no_memory),
        TEST(reserved_words_must_be_zero),
        TEST(unasked_errors_are_logged_at_thread_end),
        TEST(errors_are_per_thread),
        TEST(log_gets_level_and_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
