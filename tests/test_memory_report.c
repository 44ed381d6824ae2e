/* What holds memory: recorded by op and scope path, in a table and as JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>
#include "core/alloc.h"
#include "core/fault.h"
#include "core/origin.h"
#include "tests/support/live.h"

static lg_device *device(void) { return lg_device_get((luge_device){0}); }

/* Bytes held by what `name` has made; -1 if it holds nothing. */
static int64_t held_by(const char *name, int64_t *storages)
{
    lg_origin *list;
    const int n = lg_origin_list(device(), &list);
    int64_t bytes = -1;
    for (int i = 0; i < n; ++i) {
        assert_true(i == 0 || list[i].bytes <= list[i - 1].bytes);
        if (strcmp(list[i].name, name) != 0) continue;
        bytes = list[i].bytes;
        *storages = list[i].storages;
    }
    lg_free(list);
    return bytes;
}

static void what_is_alive_is_told_by_who_made_it(void **state)
{
    (void)state;
    int64_t n = 0;
    LUGE_SCOPE("run");
    luge_tensor *before = luge_ones(LUGE_SHAPE(1000), NULL);
    assert_int_equal(luge_memory_record(true), LUGE_OK);
    luge_tensor *kept = NULL;
    {
        LUGE_SCOPE("net");
        luge_assign(&kept, luge_relu(before));
        luge_tensor *other = luge_relu(before);
        luge_slice(other, 0, 0, 10); /* a view has no memory of its own */
        luge_exp(luge_slice(before, 0, 0, 500));
        assert_int_equal(held_by("run.net: relu", &n), 8000);
        assert_int_equal(n, 2);
        assert_int_equal(held_by("run.net: exp", &n), 2000);
        const char *report = luge_memory_report(device()->id);
        assert_true(strstr(report, "held by") < strstr(report, "run.net: relu"));
        assert_true(strstr(report, "run.net: relu") < strstr(report, "run.net: exp"));
    }
    assert_int_equal(held_by("run.net: relu", &n), 4000);
    assert_int_equal(held_by("run.net: exp", &n), -1);

    json_t *all = json_loads(luge_memory_snapshot(device()->id), 0, NULL), *stats = json_object_get(all, "stats");
    json_t *first = json_array_get(json_object_get(all, "holders"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "made_by")), "run.net: relu");
    assert_int_equal(json_integer_value(json_object_get(first, "bytes")), 4000);
    assert_true(json_integer_value(json_object_get(stats, "allocated_bytes")) >= 8000);
    json_decref(all);

    assert_int_equal(luge_memory_record(false), LUGE_OK);
    luge_tensor *after = luge_sqrt(before);
    assert_non_null(after);
    assert_int_equal(held_by("run: sqrt", &n), -1);
    assert_int_equal(held_by("run.net: relu", &n), 4000); /* until it goes */
    luge_release(kept);
    assert_int_equal(held_by("run.net: relu", &n), -1);
    assert_null(strstr(luge_memory_report(device()->id), "held by"));
    assert_string_equal(luge_memory_snapshot((luge_device){99, 0}), "{}");
}

static void without_memory_nothing_is_noted_and_no_op_fails(void **state)
{
    (void)state;
    LUGE_SCOPE("run");
    luge_tensor *x = luge_ones(LUGE_SHAPE(10), NULL);
    luge_memory_record(true);
    bool hit = true;
    for (int64_t nth = 1; hit; ++nth) {
        LUGE_SCOPE("try");
        lg_fault_set(LG_FAULT_HOST, nth);
        luge_relu(x);
        const char *report = luge_memory_report(device()->id), *snapshot = luge_memory_snapshot(device()->id);
        hit = lg_fault_hit(LG_FAULT_HOST);
        lg_fault_set(LG_FAULT_HOST, 0);
        assert_non_null(report);
        assert_non_null(snapshot);
        luge_error_clear();
    }
    luge_memory_record(false);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_alive_is_told_by_who_made_it),
        TEST(without_memory_nothing_is_noted_and_no_op_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
