/* The thread pool: core/pool.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <luge/luge.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/pool.h"

#if defined(__SANITIZE_THREAD__)
enum { FORKS_WORK = 0 }; /* a forked child of many threads is beyond the thread sanitizer */
#else
enum { FORKS_WORK = 1 };
#endif

static void set_threads(int n)
{
    assert_int_equal(luge_set_num_threads(n), LUGE_OK);
    assert_int_equal(luge_num_threads(), n);
}

static int end(void **state)
{
    (void)state;
    lg_fault_set(LG_FAULT_THREAD, 0);
    luge_set_log(NULL, NULL);
    luge_error_clear();
    return luge_set_num_threads(2) != LUGE_OK;
}

static void wait_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* ---- slices */

enum { MOST = 5000 };

typedef struct tally {
    atomic_int times[MOST];
} tally;

static void count_slice(int64_t slice, void *work)
{
    atomic_fetch_add(&((tally *)work)->times[slice], 1);
}

/* Every slice once, none beyond. */
static bool runs_each_once(int64_t n)
{
    static _Thread_local tally t;
    memset(&t, 0, sizeof t);
    lg_parallel(n, count_slice, &t);
    for (int i = 0; i < MOST; ++i) {
        if (atomic_load(&t.times[i]) != (i < n)) return false;
    }
    return true;
}

static void each_slice_runs_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; ++threads) {
        set_threads(threads);
        const int64_t n[] = {-1, 0, 1, 2, 3, 7, 64, 256, MOST};
        for (size_t i = 0; i < sizeof n / sizeof n[0]; ++i) assert_true(runs_each_once(n[i]));
        for (int i = 0; i < 300; ++i) assert_true(runs_each_once(i % 9));
    }
}

static void slices_cover_all_items(void **state)
{
    (void)state;
    const int64_t items[] = {1, 2, 5, 100, 255, 256, 257, 1000, 65537, INT64_MAX};
    const int64_t grain[] = {-1, 0, 1, 3, 64, 100000, INT64_MAX};
    assert_int_equal(lg_slices(0, 1), 0);
    assert_int_equal(lg_slices(-5, 1), 0);
    for (size_t i = 0; i < sizeof items / sizeof items[0]; ++i) {
        for (size_t g = 0; g < sizeof grain / sizeof grain[0]; ++g) {
            const int64_t n = lg_slices(items[i], grain[g]);
            assert_in_range(n, 1, 256);
            assert_int_equal(lg_slice_begin(items[i], n, 0), 0);
            assert_int_equal(lg_slice_begin(items[i], n, n), items[i]);
            for (int64_t s = 0; s < n; ++s) {
                const int64_t size = lg_slice_begin(items[i], n, s + 1) - lg_slice_begin(items[i], n, s);
                assert_true(size == items[i] / n || size == items[i] / n + 1);
                if (n > 1 && grain[g] > 0) assert_true(size >= grain[g]);
            }
        }
    }
    assert_int_equal(lg_slices(1000, 10), 100);
    assert_int_equal(lg_slices(1009, 10), 100);
    assert_int_equal(lg_slices(1 << 20, 1), 256);
}

/* Slices that wait for each other: as many threads as slices must be at work. */
typedef struct meeting {
    atomic_int here;
    int expected;
    atomic_bool failed;
    atomic_int by[8]; /* per lg_pool_thread() */
} meeting;

static void meet(int64_t slice, void *work)
{
    (void)slice;
    meeting *m = work;
    atomic_fetch_add(&m->by[lg_pool_thread()], 1);
    atomic_fetch_add(&m->here, 1);
    for (int i = 0; atomic_load(&m->here) < m->expected; ++i) {
        if (i == 100000) {
            atomic_store(&m->failed, true);
            return;
        }
        wait_a_moment();
    }
}

static void all_threads_take_part(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 4; ++threads) {
        set_threads(threads);
        for (int round = 0; round < 20; ++round) {
            meeting m = {.expected = threads};
            lg_parallel(threads, meet, &m);
            assert_false(atomic_load(&m.failed));
            for (int i = 0; i < 8; ++i) assert_int_equal(atomic_load(&m.by[i]), i < threads);
            if (round % 5 == 0) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* asleep by then */
        }
    }
    assert_int_equal(lg_pool_thread(), 0);
}

/* The caller waits, asleep in the end, for a slice that takes long. */
static void sleep_in_one(int64_t slice, void *work)
{
    if (slice == 0) nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    atomic_fetch_add((atomic_int *)work, 1);
}

static void long_slices_are_waited_for(void **state)
{
    (void)state;
    set_threads(3);
    for (int i = 0; i < 20; ++i) {
        atomic_int done = 0;
        lg_parallel(3, sleep_in_one, &done);
        assert_int_equal(atomic_load(&done), 3);
    }
}

/* Results that depend on memory written by other threads arrive whole. */
typedef struct column {
    double in[4096], out[4096];
} column;

static void square(int64_t slice, void *work)
{
    column *c = work;
    for (int64_t i = lg_slice_begin(4096, 16, slice); i < lg_slice_begin(4096, 16, slice + 1); ++i)
        c->out[i] = c->in[i] * c->in[i];
}

static void what_slices_wrote_is_seen(void **state)
{
    (void)state;
    static column c;
    set_threads(3);
    for (int round = 0; round < 500; ++round) {
        for (int i = 0; i < 4096; ++i) c.in[i] = round + i;
        lg_parallel(16, square, &c);
        double sum = 0;
        for (int i = 0; i < 4096; ++i) sum += c.out[i];
        const double n = 4096, r = round; /* sum of (r + i)^2 */
        assert_true(sum == n * r * r + r * n * (n - 1) + (n - 1) * n * (2 * n - 1) / 6);
    }
}

/* ---- nested and concurrent use */

typedef struct nested {
    atomic_int strangers; /* inner slices on another thread than their caller's */
    atomic_int inner;
} nested;

typedef struct inner_work {
    nested *all;
    pthread_t caller;
} inner_work;

static void inner_slice(int64_t slice, void *work)
{
    (void)slice;
    inner_work *w = work;
    atomic_fetch_add(&w->all->inner, 1);
    if (!pthread_equal(pthread_self(), w->caller)) atomic_fetch_add(&w->all->strangers, 1);
}

static void outer_slice(int64_t slice, void *work)
{
    (void)slice;
    inner_work w = {work, pthread_self()};
    lg_parallel(10, inner_slice, &w);
}

static void nested_calls_run_in_their_caller(void **state)
{
    (void)state;
    set_threads(3);
    nested all = {0};
    for (int i = 0; i < 50; ++i) lg_parallel(6, outer_slice, &all);
    assert_int_equal(atomic_load(&all.inner), 50 * 6 * 10);
    assert_int_equal(atomic_load(&all.strangers), 0);
}

typedef struct held {
    atomic_bool begun, go;
} held;

static void hold(int64_t slice, void *work)
{
    held *h = work;
    if (slice != 0) return;
    atomic_store(&h->begun, true);
    while (!atomic_load(&h->go)) wait_a_moment();
}

static void *hold_the_pool(void *arg)
{
    lg_parallel(2, hold, arg);
    return NULL;
}

static void a_second_caller_runs_alone(void **state)
{
    (void)state;
    set_threads(2);
    held h = {0};
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, hold_the_pool, &h), 0);
    while (!atomic_load(&h.begun)) wait_a_moment();
    nested all = {0};
    inner_work w = {&all, pthread_self()};
    lg_parallel(10, inner_slice, &w);
    assert_int_equal(atomic_load(&all.inner), 10);
    assert_int_equal(atomic_load(&all.strangers), 0);
    assert_int_equal(luge_set_num_threads(3), LUGE_ERR_STATE);
    luge_error_clear();
    atomic_store(&h.go, true);
    pthread_join(other, NULL);
    set_threads(3);
}

static atomic_bool enough;

static void *run_many(void *arg)
{
    for (int i = 0; i < 200; ++i) {
        if (!runs_each_once(1 + i % 40)) return NULL;
    }
    return arg;
}

static void many_callers_at_once(void **state)
{
    (void)state;
    enum { N = 4 };
    set_threads(3);
    pthread_t thread[N];
    for (int i = 0; i < N; ++i) assert_int_equal(pthread_create(&thread[i], NULL, run_many, &enough), 0);
    for (int i = 0; i < N; ++i) {
        void *result;
        pthread_join(thread[i], &result);
        assert_ptr_equal(result, &enough);
    }
}

/* ---- how many threads */

static void set_in_a_slice(int64_t slice, void *work)
{
    ((luge_status *)work)[slice] = luge_set_num_threads(2);
    luge_error_clear();
}

static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    set_threads(3);
    const int wrong[] = {0, -1, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; ++i) {
        assert_int_equal(luge_set_num_threads(wrong[i]), LUGE_ERR_ARGUMENT);
        luge_error_clear();
        assert_int_equal(luge_num_threads(), 3);
    }
    luge_status status[4] = {0};
    lg_parallel(4, set_in_a_slice, status);
    for (int i = 0; i < 4; ++i) assert_int_equal(status[i], LUGE_ERR_STATE);
    luge_fail(LUGE_ERR_IO, "stands");
    assert_int_equal(luge_set_num_threads(2), LUGE_ERR_IO);
    luge_error_clear();
    assert_int_equal(luge_num_threads(), 3);
}

static void count_warnings(luge_log_level level, const char *text, void *user)
{
    (void)text;
    if (level == LUGE_LOG_WARNING) ++*(int *)user;
}

static void fewer_threads_are_a_warning(void **state)
{
    (void)state;
    for (int nth = 1; nth <= 3; ++nth) {
        int warnings = 0;
        luge_set_log(count_warnings, &warnings);
        set_threads(4);
        lg_fault_set(LG_FAULT_THREAD, nth);
        for (int i = 0; i < 10; ++i) assert_true(runs_each_once(100));
        assert_true(lg_fault_hit(LG_FAULT_THREAD));
        assert_int_equal(lg_fault_requests(LG_FAULT_THREAD), nth); /* not tried again */
        assert_int_equal(warnings, 1);
        assert_int_equal(luge_num_threads(), nth);
        assert_true(luge_ok());
        lg_fault_set(LG_FAULT_THREAD, 0);
        meeting m = {.expected = nth};
        lg_parallel(nth, meet, &m);
        assert_false(atomic_load(&m.failed));
        set_threads(4); /* and now there are enough */
        m = (meeting){.expected = 4};
        lg_parallel(4, meet, &m);
        assert_false(atomic_load(&m.failed));
        assert_int_equal(warnings, 1);
    }
}

/* ---- manners */

static atomic_int starts;
static void note_start(void)
{
    atomic_fetch_add(&starts, 1);
}

static void hooks_run_on_every_worker(void **state)
{
    (void)state;
    lg_pool_on_start(note_start);
    set_threads(4);
    const int before = atomic_load(&starts);
    meeting m = {.expected = 4};
    lg_parallel(4, meet, &m);
    assert_int_equal(atomic_load(&starts), before + 3);
    lg_parallel(4, count_slice, &(tally){0});
    assert_int_equal(atomic_load(&starts), before + 3);
}

static void look_at_signals(int64_t slice, void *work)
{
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (lg_pool_thread() > 0 &&
        (!sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGUSR1) || !sigismember(&blocked, SIGALRM)))
        atomic_store(&((meeting *)work)->by[7], 1);
    meet(slice, work);
}

static void signals_are_left_to_the_host(void **state)
{
    (void)state;
    set_threads(3);
    meeting m = {.expected = 3};
    lg_parallel(3, look_at_signals, &m);
    assert_int_equal(atomic_load(&m.by[7]), 0);
    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_false(sigismember(&mine, SIGINT));
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void idle_workers_sleep(void **state)
{
    (void)state;
    set_threads(4);
    assert_true(runs_each_once(100));
    const double before = cpu_seconds();
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    assert_true(cpu_seconds() - before < 0.05); /* three that spin: 0.2 and more */
}

/* ---- forks and the end of the process */

static bool is_child;

#if defined(__SANITIZE_ADDRESS__)
/* The leak checker of a child stumbles over the threads that stayed with its parent. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_child;
}
#endif

/* Runs fn in a child; its exit status, or -1 if it died. Killed after five seconds. */
static int in_child(int (*fn)(void *), void *arg)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        is_child = true;
        alarm(5);
        exit(fn(arg)); /* through the library's destructor */
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int work_in_child(void *arg)
{
    if (!runs_each_once(500)) return 1;
    if (luge_num_threads() != 3) return 2;
    meeting m = {.expected = 3};
    lg_parallel(3, meet, &m); /* its own workers */
    if (atomic_load(&m.failed)) return 3;
    return arg == NULL || in_child(work_in_child, NULL) == 0 ? 0 : 4; /* and a grandchild */
}

static void emb_01_children_have_their_own_pool(void **state)
{
    (void)state;
    if (!FORKS_WORK) skip();
    set_threads(3);
    for (int i = 0; i < 10; ++i) {
        assert_true(runs_each_once(500)); /* workers spin, or sleep */
        if (i % 2) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        assert_int_equal(in_child(work_in_child, i < 3 ? "deeper" : NULL), 0);
        assert_true(runs_each_once(500));
    }
}

static void *run_until_enough(void *arg)
{
    while (!atomic_load(&enough)) {
        if (!runs_each_once(300)) return NULL;
    }
    return arg;
}

static void emb_01_fork_while_others_work(void **state)
{
    (void)state;
    if (!FORKS_WORK) skip();
    set_threads(3);
    atomic_store(&enough, false);
    pthread_t busy;
    assert_int_equal(pthread_create(&busy, NULL, run_until_enough, &enough), 0);
    for (int i = 0; i < 50; ++i) assert_int_equal(in_child(work_in_child, NULL), 0);
    atomic_store(&enough, true);
    void *result;
    pthread_join(busy, &result);
    assert_ptr_equal(result, &enough);
}

static int exit_while_others_work(void *arg)
{
    atomic_store(&enough, false);
    for (int i = 0; i < 3; ++i) {
        pthread_t busy;
        if (pthread_create(&busy, NULL, run_until_enough, &enough) != 0) return 1;
    }
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    return arg == NULL ? 0 : 1;
}

static void emb_02_exit_with_threads_at_work(void **state)
{
    (void)state;
    if (!FORKS_WORK) skip();
    for (int i = 0; i < 30; ++i) assert_int_equal(in_child(exit_while_others_work, NULL), 0);
}

static void exit_in_slice(int64_t slice, void *work)
{
    (void)work;
    if (slice == 5) exit(0);
    wait_a_moment();
}

static int exit_from_a_slice(void *arg)
{
    lg_parallel(100, exit_in_slice, arg);
    return 1;
}

static void emb_02_exit_from_a_slice(void **state)
{
    (void)state;
    if (!FORKS_WORK) skip();
    for (int i = 0; i < 10; ++i) assert_int_equal(in_child(exit_from_a_slice, NULL), 0);
}

static int stop_and_go_on(void *arg)
{
    (void)arg;
    if (!runs_each_once(100)) return 1;
    lg_pool_stop();
    nested all = {0};
    inner_work w = {&all, pthread_self()};
    lg_parallel(10, inner_slice, &w);
    if (all.inner != 10 || all.strangers != 0) return 2;
    return luge_set_num_threads(2) == LUGE_ERR_STATE ? 0 : 3;
}

static void a_stopped_pool_leaves_work_to_its_callers(void **state)
{
    (void)state;
    if (!FORKS_WORK) skip();
    assert_int_equal(in_child(stop_and_go_on, NULL), 0);
}

static int threads_by_environment(void *text)
{
    if (text != NULL)
        setenv("LUGE_NUM_THREADS", text, 1);
    else
        unsetenv("LUGE_NUM_THREADS");
    int warnings = 0;
    luge_set_log(count_warnings, &warnings);
    return luge_num_threads() + 100 * warnings;
}

/* First, while the number is not decided. */
static void environment_decides_the_number(void **state)
{
    (void)state;
    if (!FORKS_WORK) skip();
    const int standard = in_child(threads_by_environment, NULL);
    assert_in_range(standard, 1, 99);
    assert_int_equal(in_child(threads_by_environment, "1"), 1);
    assert_int_equal(in_child(threads_by_environment, "7"), 7);
    assert_int_equal(in_child(threads_by_environment, ""), standard);
    const char *wrong[] = {"0", "-3", "many", "3x", "99999999999"};
    for (int i = 0; i < 5; ++i) assert_int_equal(in_child(threads_by_environment, (void *)wrong[i]), standard + 100);
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(environment_decides_the_number),
        TEST(each_slice_runs_once),
        TEST(slices_cover_all_items),
        TEST(all_threads_take_part),
        TEST(long_slices_are_waited_for),
        TEST(what_slices_wrote_is_seen),
        TEST(nested_calls_run_in_their_caller),
        TEST(a_second_caller_runs_alone),
        TEST(many_callers_at_once),
        TEST(wrong_numbers_are_refused),
        TEST(fewer_threads_are_a_warning),
        TEST(hooks_run_on_every_worker),
        TEST(signals_are_left_to_the_host),
        TEST(idle_workers_sleep),
        TEST(emb_01_children_have_their_own_pool),
        TEST(emb_01_fork_while_others_work),
        TEST(emb_02_exit_with_threads_at_work),
        TEST(emb_02_exit_from_a_slice),
        TEST(a_stopped_pool_leaves_work_to_its_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
