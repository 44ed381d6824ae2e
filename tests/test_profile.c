/* Profiles: what is recorded, tables, traces, values, and what happens when memory and files fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "core/fault.h"
#include "core/profile.h"
#include "tests/support/live.h"

static luge_tensor *total(luge_tensor *t) { return luge_sum(t, LUGE_ALL_AXES); }

/* The event of that name and kind, the first; fails if there is none. */
static const lg_event *event_of(const luge_profile *p, const char *name, lg_event_kind kind)
{
    for (int64_t i = 0; i < p->n_events; ++i)
        if (p->event[i].kind == kind && strcmp(p->event[i].name, name) == 0) return &p->event[i];
    fail_msg("no event %s", name);
    return NULL;
}

static const char *around(const luge_profile *p, const lg_event *e) { return e->parent < 0 ? "" : p->event[e->parent].name; }

static void work(luge_tensor *w, luge_tensor *x)
{
    LUGE_SCOPE("step");
    luge_tensor *y;
    {
        LUGE_SCOPE("net");
        y = luge_keep(luge_linear(x, w, LUGE_NONE));
    }
    luge_backward(total(luge_square(y)));
}

/* ---- recording */

static void ops_and_scopes_are_recorded(void **state)
{
    (void)state;
    LUGE_SCOPE("outside");
    luge_tensor *w = LEAF(LUGE_SHAPE(4, 3), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), *x = luge_ones(LUGE_SHAPE(2, 3), NULL);
    luge_profile *p = luge_profile_start(&(luge_profile_options){.memory = true});
    work(w, x);
    assert_int_equal(luge_profile_stop(p), LUGE_OK);
    const int64_t recorded = p->n_events;
    work(w, x);
    assert_int_equal(p->n_events, recorded);

    assert_string_equal(p->path, "outside");
    const lg_event *step = event_of(p, "step", LG_EVENT_SCOPE), *net = event_of(p, "net", LG_EVENT_SCOPE);
    const lg_event *linear = event_of(p, "linear", LG_EVENT_OP), *node = event_of(p, "linear", LG_EVENT_NODE);
    const lg_event *weight = event_of(p, "matmul", LG_EVENT_OP);
    assert_int_equal(step->parent, -1);
    assert_string_equal(around(p, net), "step");
    assert_string_equal(around(p, linear), "net");
    assert_string_equal(around(p, node), "backward");
    assert_string_equal(around(p, weight), "linear");
    assert_string_equal(around(p, event_of(p, "backward", LG_EVENT_SCOPE)), "step");
    assert_true(step->end - step->start >= step->inside && net->end - net->start >= linear->end - linear->start);
    assert_true(net->inside == linear->end - linear->start);
    assert_true(net->start >= step->start && net->end <= step->end && linear->end > linear->start);

    assert_int_equal(linear->bytes, 2 * 4 * 4);
    assert_int_equal(net->bytes, 2 * 4 * 4);
    assert_int_equal(net->bytes_inside, 2 * 4 * 4);
    assert_true(linear->in_use >= 4 * (12 + 6 + 8));
    assert_int_equal(linear->n_in, 2);
    assert_int_equal(linear->n_out, 1);
    const lg_event_tensor *t = p->tensor + linear->tensors;
    assert_int_equal(t[0].shape.dim[0], 2);
    assert_int_equal(t[1].shape.dim[0], 4);
    assert_int_equal(t[2].shape.dim[1], 4);
    assert_int_equal(t[2].dtype, LUGE_F32);
    luge_profile_destroy(p);
}

static void scopes_from_before_and_after_do_no_harm(void **state)
{
    (void)state;
    luge_profile *p = NULL;
    {
        LUGE_SCOPE("before");
        LUGE_SCOPE("nearer");
        p = luge_profile_start(NULL);
        luge_scope left_open = luge_scope_enter("inside");
        luge_ones(LUGE_SCALAR, NULL);
        luge_profile_stop(p);
        luge_scope_exit(left_open, NULL);
    }
    assert_true(event_of(p, "inside", LG_EVENT_SCOPE)->end > 0);
    luge_profile_destroy(p);
    luge_scope before = luge_scope_enter("before");
    p = luge_profile_start(NULL);
    luge_scope_exit(before, NULL);
    {
        LUGE_SCOPE("after");
        luge_ones(LUGE_SCALAR, NULL);
    }
    assert_int_equal(event_of(p, "after", LG_EVENT_SCOPE)->parent, -1);
    luge_profile_destroy(p); /* stops it */
    assert_null(lg_self()->profile);
}

/* Two profiles: the caller's, and one of this thread, which ends with it. */
static void *use_elsewhere(void *arg)
{
    luge_profile **profiles = arg;
    luge_ones(LUGE_SCALAR, NULL);
    if (luge_profile_stop(profiles[0]) != LUGE_ERR_STATE) return "stopped";
    luge_error_clear();
    profiles[1] = luge_profile_start(NULL);
    luge_ones(LUGE_SCALAR, NULL);
    return NULL;
}

static void a_profile_belongs_to_its_thread(void **state)
{
    (void)state;
    luge_profile *p = luge_profile_start(NULL), *profiles[] = {p, NULL};
    assert_null(luge_profile_start(NULL));
    assert_error(LUGE_ERR_STATE, "luge_profile_start: a profile of this thread is running");
    pthread_t thread;
    void *wrong = NULL;
    assert_int_equal(pthread_create(&thread, NULL, use_elsewhere, profiles), 0);
    pthread_join(thread, &wrong);
    assert_null(wrong);
    luge_profile *own = profiles[1];
    assert_int_equal(p->n_events, 0);
    assert_null(own->thread);
    assert_int_equal(luge_profile_stop(own), LUGE_ERR_STATE);
    assert_error(LUGE_ERR_STATE, "stopped before");
    luge_profile_destroy(own);
    luge_profile_destroy(p);
    luge_profile_destroy(NULL);
}

static void failing_ops_end_their_events(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = luge_ones(LUGE_SHAPE(2, 3), NULL);
    luge_profile *p = luge_profile_start(&(luge_profile_options){.amp = true});
    assert_null(luge_add(x, luge_ones(LUGE_SHAPE(2, 2), NULL)));
    luge_error_clear();
    luge_relu(x);
    luge_profile_stop(p);
    assert_int_equal(event_of(p, "add", LG_EVENT_OP)->n_out, 0);
    assert_int_equal(event_of(p, "relu", LG_EVENT_OP)->parent, -1);
    luge_profile_destroy(p);
}

/* ---- reports */

/* The number in a column of the row that begins with `name`, counted from 0; NaN if there is no such row. */
static double number_in(const char *table, const char *name, int column)
{
    const size_t n = strlen(name);
    for (const char *line = table; line != NULL; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, name, n) != 0 || line[n] != ' ' || line[n + strspn(line + n, " ")] == '(') continue;
        char *at = (char *)line + n;
        double number = NAN;
        for (int i = 0; i <= column; ++i) number = strtod(at, &at);
        return number;
    }
    return NAN;
}

static void tables_add_up(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(4, 3), NULL)), *x = luge_ones(LUGE_SHAPE(2, 3), NULL);
    luge_profile *p = luge_profile_start(NULL);
    for (int i = 0; i < 5; ++i) work(w, x);
    luge_profile_stop(p);
    for (int order = LUGE_BY_SELF_TIME; order <= LUGE_BY_MEMORY; ++order) {
        const char *table = luge_profile_table(p, (luge_profile_order)order);
        assert_true(number_in(table, "linear", 0) == 5);
        assert_true(number_in(table, "linear (backward)", 0) == 5);
        assert_true(number_in(table, "t.step.net", 0) == 5);
        assert_true(number_in(table, "t.step.backward", 0) == 5);
        assert_true(number_in(table, "t.step", 3) >= number_in(table, "t.step.net", 3));
        assert_true(fabs(number_in(table, "linear", 5) - 5 * 32 / 1024.) < 0.06);
        /* Events lie in each other: the times of all without those inside are the time of the outermost. */
        const char *names[] = {"linear", "linear (backward)", "matmul",  "square",      "square_backward", "square (backward)",
                               "sum",    "sum (backward)",    "fill",    "reshape",     "expand",          "permute",
                               "t.step", "t.step.net",        "t.step.backward", "add"};
        double self = 0;
        for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
            const double ms = number_in(table, names[i], 1);
            if (isfinite(ms)) self += ms;
        }
        assert_true(fabs(self - number_in(table, "t.step", 3)) < 0.02);
    }
    /* In order. */
    const char *table = luge_profile_table(p, LUGE_BY_TOTAL_TIME), *step = strstr(table, "\nt.step ");
    assert_true(step != NULL && step < strstr(table, "\nt.step.net "));
    luge_profile_destroy(p);
}

/* Reads a file into memory that the caller frees. */
static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static void traces_are_json(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    char path[] = "/tmp/luge_trace_XXXXXX";
    close(mkstemp(path));
    luge_tensor *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(4, 3), NULL)), *x = luge_ones(LUGE_SHAPE(2, 3), NULL);
    luge_profile *p = luge_profile_start(&(luge_profile_options){.memory = true});
    {
        LUGE_SCOPE("a \"quoted\" \xff scope");
        work(w, x);
    }
    luge_profile_stop(p);
    assert_int_equal(luge_profile_write_trace(p, path), LUGE_OK);
    char *text = read_file(path);
    json_t *trace = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(trace);
    json_t *events = json_object_get(trace, "traceEvents"), *e;
    size_t i, complete = 0, counters = 0, linear = 0;
    json_array_foreach(events, i, e) {
        const char *ph = json_string_value(json_object_get(e, "ph")), *name = json_string_value(json_object_get(e, "name"));
        counters += strcmp(ph, "C") == 0;
        if (strcmp(ph, "X") != 0) continue;
        ++complete;
        assert_true(json_number_value(json_object_get(e, "dur")) >= 0);
        json_t *args = json_object_get(e, "args");
        if (strcmp(name, "linear") != 0 || strcmp(json_string_value(json_object_get(e, "cat")), "op") != 0) continue;
        ++linear;
        assert_string_equal(json_string_value(json_array_get(json_object_get(args, "inputs"), 1)), "f32 [4, 3]");
        assert_string_equal(json_string_value(json_array_get(json_object_get(args, "outputs"), 0)), "f32 [2, 4]");
    }
    assert_int_equal(complete, p->n_events);
    assert_int_equal(linear, 1);
    assert_true(counters > 5);
    json_decref(trace);
    free(text);
    unlink(path);
    assert_int_equal(luge_profile_write_trace(p, "/nowhere/trace.json"), LUGE_ERR_IO);
    assert_error(LUGE_ERR_IO, "/nowhere/trace.json");
    luge_profile_destroy(p);
}

static void values_are_looked_at(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = luge_cast(LUGE_TENSOR(LUGE_SHAPE(4), 60000, 1, 0x1p-14, 0), LUGE_F16);
    luge_profile *p = luge_profile_start(&(luge_profile_options){.amp = true});
    luge_mul_scalar(x, 0.5);
    {
        LUGE_SCOPE("net");
        luge_mul_scalar(x, 2);
        luge_exp(luge_cast(x, LUGE_F32));
    }
    luge_transpose(luge_ones(LUGE_SHAPE(2, 2), NULL), 0, 1);
    lg_profile_scale(65536, false);
    lg_profile_scale(65536, true);
    lg_profile_scale(32768, false);
    luge_profile_stop(p);
    lg_profile_scale(1, true); /* nobody listens */
    const char *report = luge_amp_report(p);
    assert_non_null(strstr(report, "the first infinity or NaN: t.net: mul_scalar, [4] f16\n"));
    assert_non_null(strstr(report, "scale of losses: 3 steps, 1 skipped; 65536 from step 1, 32768 from step 3\n"));
    assert_null(strstr(report, "permute"));

    json_t *all = json_loads(luge_amp_report_json(p), 0, NULL), *row;
    assert_non_null(all);
    size_t i, seen = 0;
    json_array_foreach(json_object_get(all, "ops"), i, row) {
        const char *op = json_string_value(json_object_get(row, "op"));
        if (strcmp(op, "mul_scalar") != 0) continue;
        ++seen;
        assert_string_equal(json_string_value(json_object_get(row, "dtype")), "f16");
        assert_int_equal(json_integer_value(json_object_get(row, "calls")), 2);
        assert_int_equal(json_integer_value(json_object_get(row, "elements")), 8);
        assert_true(json_real_value(json_object_get(row, "overflow")) == 1 / 8.);
        assert_true(json_real_value(json_object_get(row, "underflow")) == 3 / 8.); /* 2^-15, 0 and 0 */
        assert_true(json_real_value(json_object_get(row, "largest")) == 30000);
    }
    assert_int_equal(seen, 1);
    assert_int_equal(json_integer_value(json_object_get(all, "skipped")), 1);
    assert_int_equal(json_array_size(json_object_get(all, "scales")), 2);
    json_decref(all);
    luge_profile_destroy(p);
    p = luge_profile_start(NULL);
    assert_non_null(strstr(luge_amp_report(p), "not given .amp"));
    luge_profile_destroy(p);
}

/* ---- memory */

static int64_t resident(void)
{
    long pages = 0, rest = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%ld %ld", &rest, &pages) != 2) pages = 0;
    if (f != NULL) fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static void PRF_01_profiles_give_their_memory_back(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* they keep freed memory */
    skip();
#endif
    LUGE_SCOPE("t");
    luge_tensor *x = luge_ones(LUGE_SHAPE(4), NULL);
    int64_t at_200 = 0;
    for (int i = 0; i < 1000; ++i) {
        if (i == 200) at_200 = resident();
        luge_profile *p = luge_profile_start(&(luge_profile_options){.amp = true});
        for (int k = 0; k < 100; ++k) {
            LUGE_SCOPE("op");
            luge_relu(x);
        }
        luge_profile_stop(p);
        luge_profile_destroy(p);
    }
    const int64_t grown = resident() - at_200;
    if (grown > 1 << 20) fail_msg("%lld bytes more after 800 profiles", (long long)grown);
}

static void ops_work_without_memory_for_events(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = luge_ones(LUGE_SHAPE(4), NULL);
    bool hit = true;
    int64_t lost = 0;
    for (int64_t nth = 1; hit; ++nth) {
        LUGE_SCOPE("try");
        lg_fault_set(LG_FAULT_HOST, nth);
        luge_profile *p = luge_profile_start(&(luge_profile_options){.amp = true, .memory = true});
        {
            LUGE_SCOPE("net");
            luge_tensor *y = luge_relu(x);
            for (int i = 0; i < 100 && y != NULL; ++i) {
                LUGE_SCOPE("again");
                luge_relu(x);
            }
        }
        hit = lg_fault_hit(LG_FAULT_HOST);
        lg_fault_set(LG_FAULT_HOST, 0);
        luge_error_clear();
        if (p != NULL) {
            lost += p->lost;
            luge_profile_stop(p);
            const bool says = strstr(luge_profile_table(p, LUGE_BY_SELF_TIME), "events are missing") != NULL;
            assert_true(says == (p->lost > 0));
        }
        luge_profile_destroy(p);
    }
    assert_true(lost > 0);
}

static void failing_reports_leave_nothing(void **state)
{
    (void)state;
    char path[] = "/tmp/luge_trace_XXXXXX";
    close(mkstemp(path));
    LUGE_SCOPE("t");
    luge_profile *p = luge_profile_start(&(luge_profile_options){.amp = true});
    work(luge_requires_grad_(luge_ones(LUGE_SHAPE(4, 3), NULL)), luge_ones(LUGE_SHAPE(2, 3), NULL));
    luge_profile_stop(p);
    for (int kind = 0; kind < LG_FAULT_COUNT; ++kind) {
        bool hit = true;
        for (int64_t nth = 1; hit && nth < 1000; ++nth) {
            LUGE_SCOPE("try");
            lg_fault_set((lg_fault_kind)kind, nth);
            const char *table = luge_profile_table(p, LUGE_BY_SELF_TIME), *amp = luge_amp_report(p);
            const char *json = luge_amp_report_json(p);
            const luge_status status = luge_profile_write_trace(p, path);
            hit = lg_fault_hit((lg_fault_kind)kind);
            lg_fault_set((lg_fault_kind)kind, 0);
            assert_non_null(table);
            assert_non_null(amp);
            assert_non_null(json);
            assert_true(hit == (status != LUGE_OK));
            luge_error_clear();
        }
    }
    luge_profile_destroy(p);
    unlink(path);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ops_and_scopes_are_recorded),
        TEST(scopes_from_before_and_after_do_no_harm),
        TEST(a_profile_belongs_to_its_thread),
        TEST(failing_ops_end_their_events),
        TEST(tables_add_up),
        TEST(traces_are_json),
        TEST(values_are_looked_at),
        TEST(PRF_01_profiles_give_their_memory_back),
        TEST(ops_work_without_memory_for_events),
        TEST(failing_reports_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
