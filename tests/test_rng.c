/* Random numbers: Philox4x32-10, conversions, and each thread's generator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <luge/luge.h>
#include <pthread.h>

#include "core/rng.h"
#include "core/thread.h"
#include "tests/support/device.h"

/* The known answers that Random123 publishes for philox4x32 with 10 rounds. */
static void philox_known_answers(void **state)
{
    (void)state;
    const struct {
        uint64_t block, stream, seed;
        uint32_t v[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
        lg_philox p = lg_philox_block(known[i].seed, known[i].stream, known[i].block);
        assert_memory_equal(p.v, known[i].v, sizeof p.v);
    }
}

static void num_12_uniform_is_below_one(void **state)
{
    (void)state;
    assert_true(lg_uniform_f32(0) == 0.0f);
    assert_true(lg_uniform_f32(0xFFFFFFFF) == 0.99999994f);
    assert_true(lg_uniform_f32(0xFFFFFFFF) < 1.0f);
    /* floor(u n) <= n - 1 for every n up to 2^24. */
    const float u = lg_uniform_f32(0xFFFFFFFF);
    for (int32_t n = 1; n <= 1 << 24; ++n) {
        if ((int32_t)(u * (float)n) > n - 1) fail_msg("floor(u * %d) is %d", n, (int32_t)(u * (float)n));
    }
    assert_true(lg_uniform_f64(0, 0) == 0.0);
    assert_true(lg_uniform_f64(0xFFFFFFFF, 0xFFFFFFFF) == 1.0 - 0x1p-53);
    /* All 53 bits count. */
    assert_true(lg_uniform_f64(0, 1u << 11) == 0x1p-53);
    assert_true(lg_uniform_f64(0x80000000, 0) == 0.5);
}

static void taking_reserves_whole_blocks(void **state)
{
    (void)state;
    assert_int_equal(luge_seed(42), LUGE_OK);
    const struct {
        int64_t numbers;
        uint64_t blocks;
    } take[] = {
        {1, 1}, {4, 1}, {5, 2}, {8, 2}, {0, 0}, {-3, 0}, {1000001, 250001}, {INT64_MAX, 2305843009213693952u},
    };
    uint64_t at = 0;
    for (size_t i = 0; i < sizeof take / sizeof take[0]; ++i) {
        lg_rng_range r = lg_rng_take(take[i].numbers);
        assert_true(r.seed == 42 && r.stream == 0);
        assert_true(r.first == at);
        at += take[i].blocks;
    }
    assert_true(lg_rng_take(1).first == at);
    assert_int_equal(luge_seed(43), LUGE_OK);
    lg_rng_range r = lg_rng_take(1);
    assert_true(r.seed == 43 && r.first == 0);
}

static void seeding_changes_nothing_while_an_error_stands(void **state)
{
    (void)state;
    luge_seed(5);
    lg_rng_take(8);
    luge_fail(LUGE_ERR_IO, "stands");
    assert_int_equal(luge_seed(6), LUGE_ERR_IO);
    luge_error_clear();
    lg_rng_range r = lg_rng_take(1);
    assert_true(r.seed == 5 && r.first == 2);
}

static void *take_first(void *arg)
{
    *(lg_rng_range *)arg = lg_rng_take(4);
    return NULL;
}

static void threads_start_at_seed_zero(void **state)
{
    (void)state;
    luge_seed(9);
    lg_rng_take(100);
    lg_rng_range other = {1, 1, 1};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_first, &other), 0);
    pthread_join(thread, NULL);
    assert_true(other.seed == 0 && other.stream == 0 && other.first == 0);
    assert_true(lg_rng_take(1).first == 25);
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),         cmocka_unit_test(num_12_uniform_is_below_one),
        cmocka_unit_test(taking_reserves_whole_blocks), cmocka_unit_test(seeding_changes_nothing_while_an_error_stands),
        cmocka_unit_test(threads_start_at_seed_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
