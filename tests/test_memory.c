/* The caching allocator of a device, over a backend whose memory is limited and watched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <luge/luge.h>
#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/fault.h"
#include "core/memory.h"
#include "core/thread.h"
#include "tests/support/device.h"

#define MIB ((size_t)1 << 20)

/* ---- the backend */

enum { MAX_SEGMENTS = 1024 };

static struct {
    size_t capacity, used;
    int calls;
    struct {
        unsigned char *start;
        size_t size;
    } segment[MAX_SEGMENTS];
    int n_segments; /* ever; given back ones have start NULL */
} machine;

static void *machine_alloc(lg_device *device, size_t bytes)
{
    (void)device;
    ++machine.calls;
    if (bytes > machine.capacity - machine.used || machine.n_segments == MAX_SEGMENTS) return NULL;
    unsigned char *start = lg_system_alloc(bytes, 64);
    machine.used += bytes;
    machine.segment[machine.n_segments].start = start;
    machine.segment[machine.n_segments++].size = bytes;
    return start;
}

static void machine_free(lg_device *device, void *memory, size_t bytes)
{
    (void)device;
    for (int i = 0; i < machine.n_segments; ++i) {
        if (machine.segment[i].start != memory) continue;
        if (machine.segment[i].size != bytes)
            fail_msg("a segment of %zu bytes given back as %zu", machine.segment[i].size, bytes);
        machine.segment[i].start = NULL;
        machine.used -= bytes;
        lg_system_free(memory, bytes);
        return;
    }
    fail_msg("memory given back that is not ours");
}

static const lg_backend backend = {
    .name = "machine", .kind = LG_DEVICE_CPU, .alloc = machine_alloc, .free = machine_free, .alloc_granularity = 4096};
static lg_device device = {.id = {LG_DEVICE_CPU, 3}, .backend = &backend};

static lg_memory *memory; /* of the running test */

static int begin(void **state)
{
    (void)state;
    memset(&machine, 0, sizeof machine);
    machine.capacity = 512 * MIB;
    memory = lg_memory_create(&device);
    return memory == NULL;
}

/* Whatever a test did, nothing stays. */
static int end(void **state)
{
    (void)state;
    lg_fault_set(LG_FAULT_HOST, 0);
    lg_fault_set(LG_FAULT_DEVICE, 0);
    luge_error_clear();
    luge_memory_stats s = lg_memory_stats(memory);
    assert_int_equal(s.allocated_bytes, 0);
    assert_int_equal(s.live_tensors, 0);
    assert_int_equal(s.reserved_bytes, (int64_t)machine.used);
    lg_memory_trim(memory);
    assert_int_equal(machine.used, 0);
    assert_int_equal(lg_memory_stats(memory).reserved_bytes, 0);
    lg_memory_destroy(memory);
    return 0;
}

static void *take(size_t bytes)
{
    void *p = lg_memory_alloc(memory, bytes);
    assert_non_null(p);
    return p;
}

static void give(void *p, size_t bytes)
{
    lg_memory_free(memory, p, bytes);
}

static void assert_out_of_memory(size_t bytes)
{
    assert_null(lg_memory_alloc(memory, bytes));
    assert_int_equal(luge_error(), LUGE_ERR_OUT_OF_MEMORY);
    luge_error_clear();
}

/* ---- blocks */

static void blocks_are_aligned_and_whole(void **state)
{
    (void)state;
    const size_t sizes[] = {1,     63,    64,     65,      960, 961,     1024,        1025,     1100,     4096,
                            10000, 65536, 100000, MIB - 1, MIB, MIB + 1, 2 * MIB + 3, 31 * MIB, 32 * MIB, 33 * MIB + 7};
    enum { N = sizeof sizes / sizeof sizes[0] };
    unsigned char *p[N];
    for (int i = 0; i < N; ++i) {
        p[i] = take(sizes[i]);
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        memset(p[i], i + 1, sizes[i]);
    }
    for (int i = 0; i < N; ++i) {
        for (size_t k = 0; k < sizes[i]; ++k) {
            if (p[i][k] != i + 1) fail_msg("block %d, byte %zu", i, k);
        }
        give(p[i], sizes[i]);
    }
}

static void freed_blocks_are_used_again(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 100, 5000, MIB, 3 * MIB, 40 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        void *p = take(sizes[i]);
        give(p, sizes[i]);
        const int calls = machine.calls;
        void *q = take(sizes[i]);
        assert_ptr_equal(p, q);
        assert_int_equal(machine.calls, calls);
        give(q, sizes[i]);
    }
}

static void neighbours_merge(void **state)
{
    (void)state;
    /* Three blocks of one 32 MiB segment, freed in an order that merges to the left, the right and both. */
    const int orders[][3] = {{0, 2, 1}, {0, 1, 2}, {2, 1, 0}, {1, 0, 2}};
    for (int o = 0; o < 4; ++o) {
        void *p[3];
        for (int i = 0; i < 3; ++i) p[i] = take(10 * MIB);
        for (int i = 0; i < 3; ++i) give(p[orders[o][i]], 10 * MIB);
        void *all = take(32 * MIB);
        give(all, 32 * MIB);
        assert_int_equal(machine.calls, 1);
    }
}

static void best_fit_is_taken(void **state)
{
    (void)state;
    void *a = take(9 * MIB), *gap_a = take(2 * MIB), *b = take(6 * MIB), *gap_b = take(2 * MIB);
    give(a, 9 * MIB);
    give(b, 6 * MIB);
    void *c = take(5 * MIB); /* into 6, not 9 nor the 13 at the end */
    assert_ptr_equal(c, b);
    give(c, 5 * MIB);
    give(gap_a, 2 * MIB);
    give(gap_b, 2 * MIB);
    assert_int_equal(machine.calls, 1);
}

/* Small blocks that wait for others of their size are merged before more is taken from the system. */
static void small_blocks_merge_for_other_sizes(void **state)
{
    (void)state;
    enum { N = 64 };
    void *p[N];
    for (int i = 0; i < N; ++i) p[i] = take(64 << 10);
    for (int i = 0; i < N; ++i) give(p[i], 64 << 10);
    assert_int_equal(machine.calls, 1);
    for (int i = 0; i < 4; ++i) p[i] = take(MIB);
    assert_int_equal(machine.calls, 1);
    for (int i = 0; i < 4; ++i) give(p[i], MIB);
}

/* A small block that lives long does not stand in the middle of a large segment. */
static void small_and_large_are_apart(void **state)
{
    (void)state;
    void *large = take(20 * MIB), *small = take(64);
    give(large, 20 * MIB);
    lg_memory_trim(memory);
    assert_true(machine.used < 8 * MIB);
    give(small, 64);
}

/* ---- running out */

/* 0.4 % and 70 % of a limit, with the machine's memory as large as the limit. */
static void fragment(size_t limit)
{
    machine.capacity = limit;
    lg_memory_set_limit(memory, (int64_t)limit);
    const size_t part = limit / 1000 * 4;
    void *p[100];
    for (int i = 0; i < 100; ++i) p[i] = take(part);
    for (int i = 0; i < 100; ++i) give(p[i], part);
    const size_t most = limit / 10 * 7;
    void *big = take(most);
    give(big, most);
    lg_memory_trim(memory);
    assert_int_equal(machine.used, 0);
}

static void mem_03_cached_blocks_do_not_stand_in_the_way(void **state)
{
    (void)state;
    fragment(8 * MIB);
    fragment(64 * MIB);
    fragment(500 * MIB);
    lg_memory_set_limit(memory, 0);
}

static void mem_02_a_quarter_succeeds_after_failure(void **state)
{
    (void)state;
    lg_memory_set_limit(memory, (int64_t)(16 * MIB));
    void *weights = take(2 * MIB);
    const int64_t before = lg_memory_stats(memory).allocated_bytes;
    void *activation = take(10 * MIB);
    assert_out_of_memory(10 * MIB);
    give(activation, 10 * MIB);
    assert_int_equal(lg_memory_stats(memory).allocated_bytes, before);
    for (int i = 0; i < 2; ++i) {
        void *a = take(5 * MIB / 2), *b = take(5 * MIB / 2);
        give(a, 5 * MIB / 2);
        give(b, 5 * MIB / 2);
    }
    give(weights, 2 * MIB);
    assert_true(luge_ok());
}

static void mem_01_a_request_too_large_is_an_error_and_no_more(void **state)
{
    (void)state;
    const size_t sizes[] = {(size_t)1 << 40, SIZE_MAX, SIZE_MAX - 63, PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, 513 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) assert_out_of_memory(sizes[i]);
    assert_int_equal(lg_memory_stats(memory).failures, 6);
    give(take(64), 64);
    assert_true(luge_ok());
}

static void the_cache_is_given_back_before_giving_up(void **state)
{
    (void)state;
    machine.capacity = 100 * MIB;
    void *kept = take(40 * MIB), *p = take(50 * MIB);
    give(p, 50 * MIB); /* cached: 10 MiB are left, 60 with it */
    p = take(55 * MIB);
    assert_true(luge_ok());
    assert_out_of_memory(10 * MIB);
    give(p, 55 * MIB);
    p = take(60 * MIB); /* to the last byte */
    give(p, 60 * MIB);
    give(kept, 40 * MIB);
}

/* Where not even one usual segment fits, requests still get what they ask for. */
static void small_machines_serve_small_requests(void **state)
{
    (void)state;
    machine.capacity = MIB;
    void *a = take(1000), *b = take(900000);
    assert_out_of_memory(200000);
    give(a, 1000);
    give(b, 900000);
}

static void limit_counts_what_tensors_hold(void **state)
{
    (void)state;
    lg_memory_set_limit(memory, 1000);
    void *a = take(600), *b = take(400);
    assert_out_of_memory(1);
    give(b, 400);
    assert_out_of_memory(401);
    b = take(400);
    lg_memory_set_limit(memory, 500); /* below what is held: only refuses more */
    assert_out_of_memory(1);
    give(b, 400);
    give(a, 600);
    give(take(500), 500);
    assert_out_of_memory(501);
    lg_memory_set_limit(memory, 0);
    give(take(501), 501);
}

static void message_says_what_and_where(void **state)
{
    (void)state;
    lg_memory_set_limit(memory, 5000);
    void *a = take(3000);
    lg_self()->op = "linear";
    void *b = take(1500);
    lg_self()->op = NULL;
    give(b, 1500);
    luge_scope s = luge_scope_enter("step");
    lg_self()->op = "conv2d";
    assert_null(lg_memory_alloc(memory, 2345));
    lg_self()->op = NULL;
    luge_scope_exit(s, NULL);
    const char *text = luge_error_text();
    const char *parts[] = {"step: conv2d: out of memory on machine:3", "2345 bytes asked for",
                           "3000 in use by 1 tensor", "at most 4500 so far, in linear", "the limit is 5000"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; ++i) {
        if (strstr(text, parts[i]) == NULL) fail_msg("\"%s\" is not in \"%s\"", parts[i], text);
    }
    luge_error_clear();
    lg_memory_set_limit(memory, 0);
    machine.capacity = machine.used;
    assert_null(lg_memory_alloc(memory, 64 * MIB));
    assert_non_null(strstr(luge_error_text(), "no limit"));
    luge_error_clear();
    give(a, 3000);
}

static void injected_failures_look_like_real_ones(void **state)
{
    (void)state;
    lg_fault_set(LG_FAULT_DEVICE, 2);
    void *a = take(100);
    assert_out_of_memory(100);
    assert_true(lg_fault_hit(LG_FAULT_DEVICE));
    void *b = take(100);
    assert_int_equal(lg_fault_requests(LG_FAULT_DEVICE), 3);
    give(a, 100);
    give(b, 100);
}

/* The allocator's own tables cannot grow: an error, and all goes on afterwards. */
static void failing_host_memory_is_an_error(void **state)
{
    (void)state;
    enum { N = 2000 };
    static void *p[N];
    int failed = 0;
    for (int64_t nth = 1;; ++nth) {
        lg_memory *fresh = lg_memory_create(&device);
        assert_non_null(fresh);
        bool hit_seen = false;
        lg_fault_set(LG_FAULT_HOST, nth);
        for (int i = 0; i < N; ++i) {
            p[i] = lg_memory_alloc(fresh, 64 + (size_t)i * 7);
            if (p[i] != NULL) continue;
            assert_int_equal(luge_error(), LUGE_ERR_OUT_OF_MEMORY);
            luge_error_clear();
            assert_false(hit_seen);
            hit_seen = true;
            p[i] = lg_memory_alloc(fresh, 64 + (size_t)i * 7);
            assert_non_null(p[i]);
        }
        assert_int_equal(hit_seen, lg_fault_hit(LG_FAULT_HOST));
        lg_fault_set(LG_FAULT_HOST, 0);
        for (int i = 0; i < N; ++i) lg_memory_free(fresh, p[i], 64 + (size_t)i * 7);
        assert_int_equal(lg_memory_stats(fresh).allocated_bytes, 0);
        lg_memory_destroy(fresh);
        assert_int_equal(machine.used, 0);
        machine.n_segments = 0;
        if (!hit_seen) break;
        ++failed;
    }
    assert_true(failed > 20);
}

static void more_allocators_than_places_are_an_error(void **state)
{
    (void)state;
    lg_memory *made[LG_MAX_MEMORIES];
    int n = 0;
    while (n < LG_MAX_MEMORIES && (made[n] = lg_memory_create(&device)) != NULL) ++n;
    assert_int_equal(n, LG_MAX_MEMORIES - 1); /* the tests have one */
    assert_int_equal(luge_error(), LUGE_ERR_UNSUPPORTED);
    luge_error_clear();
    while (n > 0) lg_memory_destroy(made[--n]);
    lg_memory *again = lg_memory_create(&device);
    assert_non_null(again);
    lg_memory_destroy(again);
}

/* ---- statistics */

static void statistics_are_exact(void **state)
{
    (void)state;
    void *a = take(1000), *b = take(3 * MIB);
    luge_memory_stats s = lg_memory_stats(memory);
    assert_int_equal(s.allocated_bytes, 1000 + 3 * MIB);
    assert_int_equal(s.allocated_peak, 1000 + 3 * MIB);
    assert_int_equal(s.reserved_bytes, 36 * MIB);
    assert_int_equal(s.live_tensors, 2);
    assert_int_equal(s.allocations, 2);
    assert_int_equal(s.system_allocations, 2);
    assert_int_equal(s.failures, 0);
    assert_int_equal(s.limit, 0);
    give(b, 3 * MIB);
    lg_memory_trim(memory);
    s = lg_memory_stats(memory);
    assert_int_equal(s.allocated_bytes, 1000);
    assert_int_equal(s.allocated_peak, 1000 + 3 * MIB);
    assert_int_equal(s.reserved_bytes, 4 * MIB);
    assert_int_equal(s.reserved_peak, 36 * MIB);
    lg_memory_reset_peak(memory);
    s = lg_memory_stats(memory);
    assert_int_equal(s.allocated_peak, 1000);
    assert_int_equal(s.reserved_peak, 4 * MIB);
    give(a, 1000);
    give(take(1000), 1000);
    assert_int_equal(lg_memory_stats(memory).system_allocations, 2);
    assert_int_equal(lg_memory_stats(memory).allocations, 3);
}

/* ---- long runs */

static uint32_t next_random(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

/* Mostly small, sometimes a few MiB. */
static size_t random_size(uint32_t *x)
{
    const uint32_t r = next_random(x);
    if (r % 64 == 0) return MIB + next_random(x) % (4 * MIB);
    return 1 + next_random(x) % (r % 8 == 0 ? 300000 : 2000);
}

typedef struct piece {
    unsigned char *p;
    size_t bytes;
    unsigned char mark;
} piece;

static bool mark(piece *q, unsigned char m)
{
    q->mark = m;
    q->p[0] = q->p[q->bytes - 1] = q->p[q->bytes / 2] = m;
    return (uintptr_t)q->p % 64 == 0;
}

static bool marked(const piece *q)
{
    return q->p[0] == q->mark && q->p[q->bytes - 1] == q->mark && q->p[q->bytes / 2] == q->mark;
}

/* Takes and gives back at random; false if blocks overlapped. Adds the places it got to *places. */
static bool churn(lg_memory *m, uint32_t seed, int steps, uint64_t *places)
{
    enum { N = 200 };
    piece held[N] = {0};
    bool good = true;
    for (int i = 0; i < steps && good; ++i) {
        piece *q = &held[next_random(&seed) % N];
        if (q->p != NULL) {
            good = marked(q);
            lg_memory_free(m, q->p, q->bytes);
            q->p = NULL;
            continue;
        }
        q->bytes = random_size(&seed);
        q->p = lg_memory_alloc(m, q->bytes);
        good = q->p != NULL && mark(q, (unsigned char)i);
        for (int k = 0; places != NULL && k < machine.n_segments; ++k) {
            const size_t at = (size_t)(q->p - machine.segment[k].start);
            if (machine.segment[k].start != NULL && q->p >= machine.segment[k].start && at < machine.segment[k].size)
                *places = (*places ^ (at + (uint64_t)k)) * 0x100000001b3u;
        }
    }
    for (int i = 0; i < N; ++i) {
        if (held[i].p == NULL) continue;
        good = good && marked(&held[i]);
        lg_memory_free(m, held[i].p, held[i].bytes);
    }
    return good;
}

static void random_requests_never_overlap(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 5; ++seed) assert_true(churn(memory, seed, 20000, NULL));
    assert_true(lg_memory_stats(memory).system_allocations < 40);
}

static void same_requests_get_the_same_places(void **state)
{
    (void)state;
    uint64_t places[2] = {0};
    for (int i = 0; i < 2; ++i) {
        lg_memory_trim(memory);
        machine.n_segments = 0;
        lg_memory *fresh = lg_memory_create(&device);
        assert_true(churn(fresh, 11, 5000, &places[i]));
        lg_memory_destroy(fresh);
    }
    assert_true(places[0] == places[1]);
    assert_true(places[0] != 0);
}

typedef struct hand {
    uint32_t seed;
    bool good;
} hand;

static void *churn_on_a_thread(void *arg)
{
    hand *h = arg;
    h->good = churn(memory, h->seed, 5000, NULL);
    return NULL;
}

static void threads_share_an_allocator(void **state)
{
    (void)state;
    enum { N = 4 };
    hand hands[N];
    pthread_t thread[N];
    for (uint32_t i = 0; i < N; ++i) {
        hands[i] = (hand){.seed = 100 + i};
        assert_int_equal(pthread_create(&thread[i], NULL, churn_on_a_thread, &hands[i]), 0);
    }
    for (int i = 0; i < N; ++i) pthread_join(thread[i], NULL);
    for (int i = 0; i < N; ++i) assert_true(hands[i].good);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        TEST(blocks_are_aligned_and_whole),
        TEST(freed_blocks_are_used_again),
        TEST(neighbours_merge),
        TEST(best_fit_is_taken),
        TEST(small_blocks_merge_for_other_sizes),
        TEST(small_and_large_are_apart),
        TEST(mem_03_cached_blocks_do_not_stand_in_the_way),
        TEST(mem_02_a_quarter_succeeds_after_failure),
        TEST(mem_01_a_request_too_large_is_an_error_and_no_more),
        TEST(the_cache_is_given_back_before_giving_up),
        TEST(small_machines_serve_small_requests),
        TEST(limit_counts_what_tensors_hold),
        TEST(message_says_what_and_where),
        TEST(injected_failures_look_like_real_ones),
        TEST(failing_host_memory_is_an_error),
        TEST(more_allocators_than_places_are_an_error),
        TEST(statistics_are_exact),
        TEST(random_requests_never_overlap),
        TEST(same_requests_get_the_same_places),
        TEST(threads_share_an_allocator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
