/* What belongs to the whole process: include/luge/process.h without devices, threads and random
 * numbers, which have tests of their own; core/alloc.h, and forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <luge/luge.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/fault.h"
#include "core/process.h"
#include "core/services.h"
#include "core/thread.h"
#include "tests/support/device.h"

static int end(void **state)
{
    (void)state;
    lg_fault_set(LG_FAULT_HOST, 0);
    luge_error_clear();
    assert_int_equal(luge_live().tensors, 0);
    assert_int_equal(luge_live().host_bytes, 0);
    return luge_set_allocator(NULL) != LUGE_OK;
}

static luge_tensor *tensor_of(int64_t n)
{
    luge_shape shape = LUGE_SHAPE(n);
    return lg_tensor_create(lg_device_get((luge_device){0}), LUGE_F32, &shape, NULL);
}

static void version_is_the_projects(void **state)
{
    (void)state;
    FILE *f = fopen(LUGE_TEST_DIR "/../CMakeLists.txt", "r");
    assert_non_null(f);
    char line[256], wanted[64];
    snprintf(wanted, sizeof wanted, "project(luge VERSION %s ", luge_version());
    bool found = false;
    while (!found && fgets(line, sizeof line, f) != NULL) found = strncmp(line, wanted, strlen(wanted)) == 0;
    fclose(f);
    assert_true(found);
}

/* ---- memory of the library itself */

static void host_memory_is_counted(void **state)
{
    (void)state;
    char *a = lg_alloc(100), *b = lg_alloc_zero(50), *c = lg_copy_text("12345"), *d = lg_alloc(0);
    assert_true(a != NULL && b != NULL && c != NULL && d != NULL);
    assert_int_equal((uintptr_t)a % 16, 0);
    assert_int_equal(luge_live().host_bytes, 156);
    assert_string_equal(c, "12345");
    for (int i = 0; i < 50; ++i) assert_int_equal(b[i], 0);
    memset(a, 'a', 100);
    a = lg_resize(a, 100000);
    assert_int_equal(luge_live().host_bytes, 100056);
    for (int i = 0; i < 100; ++i) assert_int_equal(a[i], 'a');
    a = lg_resize(a, 10);
    assert_int_equal(luge_live().host_bytes, 66);
    lg_free(a);
    lg_free(b);
    lg_free(c);
    lg_free(d);
    lg_free(NULL);
    assert_int_equal(luge_live().host_bytes, 0);
    a = lg_resize(NULL, 5);
    assert_int_equal(luge_live().host_bytes, 5);
    lg_free(a);
}

static void failed_requests_change_nothing(void **state)
{
    (void)state;
    char *a = lg_alloc(10);
    memset(a, 'a', 10);
    for (int i = 0; i < 4; ++i) {
        lg_fault_set(LG_FAULT_HOST, 1);
        lg_self()->op = "linear";
        void *p = i == 0   ? lg_alloc(777)
                  : i == 1 ? lg_alloc_zero(777)
                  : i == 2 ? lg_copy_text("text")
                           : lg_resize(a, 777);
        lg_self()->op = NULL;
        assert_null(p);
        assert_int_equal(luge_error(), LUGE_ERR_OUT_OF_MEMORY);
        assert_memory_equal(luge_error_text(), "linear: out of host memory", 26);
        luge_error_clear();
        assert_int_equal(luge_live().host_bytes, 10);
    }
    for (int i = 0; i < 10; ++i) assert_int_equal(a[i], 'a');
    const size_t huge[] = {SIZE_MAX, SIZE_MAX - 15, PTRDIFF_MAX, (size_t)1 << 62};
    for (int i = 0; i < 4; ++i) {
        assert_null(lg_alloc(huge[i]));
        assert_null(lg_resize(a, huge[i]));
        assert_int_equal(luge_error(), LUGE_ERR_OUT_OF_MEMORY);
        luge_error_clear();
    }
    lg_free(a);
}

/* ---- the user's allocator: one that checks what it is given */

enum { MAX_LIVE = 1000 };

typedef struct host {
    struct {
        void *memory;
        size_t bytes;
    } live[MAX_LIVE];
    int n_live, calls, wrong;
    size_t bytes;
    bool refuse;
} host;

static void *host_alloc(size_t bytes, size_t alignment, void *user)
{
    host *h = user;
    ++h->calls;
    if (bytes == 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) ++h->wrong;
    if (h->refuse || h->n_live == MAX_LIVE) return NULL;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) != 0) return NULL;
    h->live[h->n_live].memory = memory;
    h->live[h->n_live++].bytes = bytes;
    h->bytes += bytes;
    return memory;
}

static void host_free(void *memory, size_t bytes, void *user)
{
    host *h = user;
    for (int i = 0; i < h->n_live; ++i) {
        if (h->live[i].memory != memory) continue;
        if (h->live[i].bytes != bytes) ++h->wrong;
        h->bytes -= bytes;
        h->live[i] = h->live[--h->n_live];
        free(memory);
        return;
    }
    ++h->wrong;
}

static luge_allocator allocator_of(host *h)
{
    return (luge_allocator){.alloc = host_alloc, .free = host_free, .user = h};
}

static void all_memory_goes_through_the_users_allocator(void **state)
{
    (void)state;
    static host h;
    luge_release(tensor_of(1000)); /* used before, and freed: its cache does not stand in the way */
    luge_allocator a = allocator_of(&h);
    assert_int_equal(luge_set_allocator(&a), LUGE_OK);
    memset(&a, 0, sizeof a); /* copied */

    luge_tensor *t = tensor_of(1000), *big = tensor_of(3000000);
    assert_true(h.bytes > 12000000);
    {
        LUGE_SCOPE("s");
        const int before = h.n_live;
        lg_borrow_text("text");
        assert_int_equal(h.n_live, before + 1);
    }
    void *grown = lg_alloc(10);
    memcpy(grown, "123456789", 10);
    grown = lg_resize(grown, 1000);
    assert_string_equal(grown, "123456789");
    lg_free(grown);

    h.refuse = true;
    assert_null(tensor_of(100000000));
    assert_int_equal(luge_error(), LUGE_ERR_OUT_OF_MEMORY);
    luge_error_clear();
    h.refuse = false;

    luge_release(t);
    luge_release(big);
    assert_int_equal(luge_set_allocator(NULL), LUGE_OK);
    assert_int_equal(h.n_live, 0);
    assert_int_equal(h.wrong, 0);
    const int calls = h.calls;
    luge_release(tensor_of(1000));
    assert_int_equal(h.calls, calls);
}

static void allocator_stays_while_anything_lives(void **state)
{
    (void)state;
    static host h;
    luge_allocator a = allocator_of(&h);
    luge_tensor *t = tensor_of(10);
    assert_int_equal(luge_set_allocator(&a), LUGE_ERR_STATE);
    luge_error_clear();
    luge_release(t);

    lg_count_object(1);
    assert_int_equal(luge_set_allocator(&a), LUGE_ERR_STATE);
    luge_error_clear();
    lg_count_object(-1);

    lg_count_node(1);
    assert_int_equal(luge_set_allocator(&a), LUGE_ERR_STATE);
    luge_error_clear();
    lg_count_node(-1);

    {
        LUGE_SCOPE("with a text");
        lg_borrow_text("text");
        assert_int_equal(luge_set_allocator(&a), LUGE_ERR_STATE);
        luge_error_clear();
    }
    void *scratch = lg_system_alloc(100, 64);
    assert_int_equal(luge_set_allocator(&a), LUGE_ERR_STATE);
    luge_error_clear();
    lg_system_free(scratch, 100);

    luge_release(tensor_of(10));
    assert_int_equal(h.calls, 0);
    LUGE_SCOPE("an open scope alone is no hindrance");
    assert_int_equal(luge_set_allocator(&a), LUGE_OK);
    assert_int_equal(luge_set_allocator(NULL), LUGE_OK);
}

static void wrong_allocators_are_refused(void **state)
{
    (void)state;
    static host h;
    luge_allocator a = {.free = host_free, .user = &h};
    assert_int_equal(luge_set_allocator(&a), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    a = (luge_allocator){.alloc = host_alloc, .user = &h};
    assert_int_equal(luge_set_allocator(&a), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    a = allocator_of(&h);
    a.reserved[2] = 1;
    assert_int_equal(luge_set_allocator(&a), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    a.reserved[2] = 0;
    luge_fail(LUGE_ERR_IO, "stands");
    assert_int_equal(luge_set_allocator(&a), LUGE_ERR_IO);
    luge_error_clear();
    luge_release(tensor_of(10));
    assert_int_equal(h.calls, 0);
}

/* ---- memory of devices */

static void memory_of_the_cpu(void **state)
{
    (void)state;
    const luge_device cpu = luge_device_cpu();
    assert_int_equal(luge_memory_empty_cache(cpu), LUGE_OK);
    assert_int_equal(luge_memory_reset_peak(cpu), LUGE_OK);
    const luge_memory_stats before = luge_memory_get_stats((luge_device){0});
    assert_int_equal(before.allocated_bytes, 0);
    assert_int_equal(before.reserved_bytes, 0);
    assert_int_equal(before.reserved_peak, 0);

    luge_tensor *t = tensor_of(1000);
    luge_memory_stats s = luge_memory_get_stats(cpu);
    assert_int_equal(s.allocated_bytes, 4000);
    assert_int_equal(s.live_tensors, 1);
    assert_int_equal(s.allocations, before.allocations + 1);
    assert_int_equal(s.system_allocations, before.system_allocations + 1);
    luge_release(t);
    assert_int_equal(luge_memory_get_stats(cpu).allocated_peak, 4000);
    assert_true(luge_memory_get_stats(cpu).reserved_bytes > 0);

    luge_fail(LUGE_ERR_IO, "stands");
    assert_int_equal(luge_memory_reset_peak(cpu), LUGE_ERR_IO);
    assert_int_equal(luge_set_memory_limit(cpu, 5), LUGE_ERR_IO);
    assert_int_equal(luge_memory_get_stats(cpu).allocated_peak, 4000);
    assert_int_equal(luge_memory_get_stats(cpu).limit, 0);
    assert_int_equal(luge_memory_empty_cache(cpu), LUGE_ERR_IO); /* done all the same */
    assert_int_equal(luge_memory_get_stats(cpu).reserved_bytes, 0);
    luge_error_clear();

    assert_int_equal(luge_set_memory_limit(cpu, -1), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    assert_int_equal(luge_set_memory_limit(cpu, 4000), LUGE_OK);
    assert_int_equal(luge_memory_get_stats(cpu).limit, 4000);
    assert_null(tensor_of(1001));
    assert_int_equal(luge_error(), LUGE_ERR_OUT_OF_MEMORY);
    luge_error_clear();
    luge_release(tensor_of(1000));
    assert_int_equal(luge_set_memory_limit(cpu, 0), LUGE_OK);
    luge_release(tensor_of(1001));
    assert_true(luge_ok());
}

static void memory_of_no_device(void **state)
{
    (void)state;
    const luge_device none = {77, 3};
    const luge_memory_stats zero = {0}, s = luge_memory_get_stats(none);
    assert_memory_equal(&s, &zero, sizeof s);
    assert_true(luge_ok());
    luge_status (*const act[])(luge_device) = {luge_memory_reset_peak, luge_memory_empty_cache};
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(act[i](none), LUGE_ERR_DEVICE);
        luge_error_clear();
    }
    assert_int_equal(luge_set_memory_limit(none, 1), LUGE_ERR_DEVICE);
    luge_error_clear();
    const char *report = luge_memory_report(none);
    assert_non_null(report);
    assert_true(strlen(report) > 0);
    assert_true(luge_ok());
}

static void report_is_a_table(void **state)
{
    (void)state;
    LUGE_SCOPE("s");
    const luge_device cpu = luge_device_cpu();
    luge_set_memory_limit(cpu, 64 << 20);
    luge_tensor *t = tensor_of(2621440);
    const char *text = luge_memory_report(cpu);
    const char *parts[] = {"memory of cpu:0", "in use            10.0 MiB", "in 1 tensors", "reserved", "64.0 MiB",
                           "requests"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; ++i) {
        if (strstr(text, parts[i]) == NULL) fail_msg("\"%s\" is not in\n%s", parts[i], text);
    }
    luge_set_memory_limit(cpu, 0);
    assert_non_null(strstr(luge_memory_report(cpu), "none"));
    luge_release(t);
    luge_fail(LUGE_ERR_IO, "stands");
    assert_non_null(strstr(luge_memory_report(cpu), "memory of cpu:0"));
}

/* ---- counters */

static void counters_count(void **state)
{
    (void)state;
    const luge_op_counts a = luge_op_count();
    const int times[LG_COUNTERS] = {1, 2, 3, 4, 5};
    for (int c = 0; c < LG_COUNTERS; ++c)
        for (int i = 0; i < times[c]; ++i) lg_count((lg_counter)c);
    const luge_op_counts b = luge_op_count();
    assert_int_equal(b.kernels - a.kernels, 1);
    assert_int_equal(b.references - a.references, 2);
    assert_int_equal(b.views - a.views, 3);
    assert_int_equal(b.transposes - a.transposes, 4);
    assert_int_equal(b.packs - a.packs, 5);

    lg_count_object(1);
    lg_count_node(1);
    lg_count_node(1);
    luge_tensor *t = tensor_of(4);
    luge_live_counts live = luge_live();
    assert_int_equal(live.objects, 1);
    assert_int_equal(live.nodes, 2);
    assert_int_equal(live.tensors, 1);
    assert_int_equal(live.storages, 1);
    assert_true(live.host_bytes > 0);
    luge_release(t);
    lg_count_object(-1);
    lg_count_node(-1);
    lg_count_node(-1);
    live = luge_live();
    assert_true(live.objects == 0 && live.nodes == 0 && live.tensors == 0 && live.storages == 0 &&
                live.host_bytes == 0);
}

static void faults_count_from_where_they_were_set(void **state)
{
    (void)state;
    lg_fault_set(LG_FAULT_FILE, 3);
    for (int i = 1; i <= 6; ++i) {
        assert_int_equal(lg_fault(LG_FAULT_FILE), i == 3);
        assert_int_equal(lg_fault_requests(LG_FAULT_FILE), i);
        assert_int_equal(lg_fault_hit(LG_FAULT_FILE), i >= 3);
        assert_false(lg_fault(LG_FAULT_THREAD));
    }
    lg_fault_set(LG_FAULT_FILE, 1);
    assert_false(lg_fault_hit(LG_FAULT_FILE));
    assert_true(lg_fault(LG_FAULT_FILE));
    lg_fault_set(LG_FAULT_FILE, 0);
    for (int i = 0; i < 5; ++i) assert_false(lg_fault(LG_FAULT_FILE));
    assert_int_equal(lg_fault_requests(LG_FAULT_FILE), 0);
    assert_int_equal(lg_fault_requests(LG_FAULT_THREAD), 0);
}

/* ---- forks */

static atomic_bool enough;
static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
static int together[2]; /* equal whenever `own` is free */

/* Holds the locks of the library, and one that is guarded like them, most of the time. */
static void *work(void *arg)
{
    while (!atomic_load(&enough)) {
        luge_tensor *t = tensor_of(100);
        luge_memory_empty_cache((luge_device){0});
        luge_release(t);
        pthread_mutex_lock(&own);
        for (int i = 0; i < 1000; ++i) ++together[0];
        for (int i = 0; i < 1000; ++i) ++together[1];
        pthread_mutex_unlock(&own);
    }
    return arg;
}

static int work_in_child(void)
{
    alarm(5); /* a lock that its holder left behind would be for ever */
    luge_tensor *t = tensor_of(100);
    if (t == NULL) return 1;
    luge_release(t);
    luge_memory_empty_cache((luge_device){0});
    lg_memory *fresh = lg_memory_create(lg_device_get((luge_device){0}));
    if (fresh == NULL) return 2;
    pthread_mutex_lock(&own);
    return together[0] == together[1] ? 0 : 3;
}

static void emb_01_locks_are_free_in_a_child(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* a forked child of many threads is beyond the thread sanitizer */
#endif
    lg_fork_guard(&own);
    lg_fork_guard(&own); /* twice is as once */
    atomic_store(&enough, false);
    pthread_t busy[2];
    for (int i = 0; i < 2; ++i) assert_int_equal(pthread_create(&busy[i], NULL, work, NULL), 0);
    int failed = 0;
    fflush(NULL);
    for (int i = 0; i < 200; ++i) {
        pid_t child = fork();
        if (child == 0) _exit(work_in_child());
        int status = 0;
        waitpid(child, &status, 0);
        failed += !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 2; ++i) pthread_join(busy[i], NULL);
    lg_fork_unguard(&own);
    assert_int_equal(failed, 0);
    assert_int_equal(pthread_mutex_trylock(&own), 0);
    pthread_mutex_unlock(&own);
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        TEST(version_is_the_projects),
        TEST(host_memory_is_counted),
        TEST(failed_requests_change_nothing),
        TEST(all_memory_goes_through_the_users_allocator),
        TEST(allocator_stays_while_anything_lives),
        TEST(wrong_allocators_are_refused),
        TEST(memory_of_the_cpu),
        TEST(memory_of_no_device),
        TEST(report_is_a_table),
        TEST(counters_count),
        TEST(faults_count_from_where_they_were_set),
        TEST(emb_01_locks_are_free_in_a_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
