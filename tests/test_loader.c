/* Datasets and the loader: order, contents, buffers, progress, errors, and what they leave behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <luge/luge.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/fault.h"
#include "core/rng.h"
#include "core/thread.h"
#include "tests/support/device.h"
#include "tests/support/expect.h"

static luge_live_counts baseline;

static int begin(void **state)
{
    (void)state;
    baseline = luge_live();
    return 0;
}

static int end(void **state)
{
    (void)state;
    lg_fault_set(LG_FAULT_HOST, 0);
    lg_fault_set(LG_FAULT_DEVICE, 0);
    luge_error_clear();
    assert_int_equal(lg_self()->n_frames, 0);
    lg_scope_close_all(lg_self()); /* copies that were looked at */
    const luge_live_counts now = luge_live();
    assert_int_equal(now.tensors, baseline.tensors);
    assert_int_equal(now.storages, baseline.storages);
    assert_int_equal(now.objects, baseline.objects);
    assert_int_equal(now.host_bytes, baseline.host_bytes);
    return 0;
}

static void sleep_ms(double ms)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(fmod(ms, 1000) * 1e6)}, NULL);
}

/* ---- a dataset whose sample i is {i, a random number} with label 10 i */

typedef struct plan {
    int64_t fails_at;             /* -1: never */
    void (*wrong)(luge_sample *s); /* how it does */
    double sleep_ms;              /* before a sample is there */
    int destroyed;
    int64_t asked;                /* samples got */
} plan;

#define NO_FAILURE {.fails_at = -1}

static luge_status get(int64_t index, luge_rng *rng, luge_sample *s, void *user)
{
    plan *p = user;
    ++p->asked;
    if (p->sleep_ms > 0) sleep_ms(p->sleep_ms);
    if (index == p->fails_at) {
        if (p->wrong == NULL) return LUGE_ERR_IO; /* and does not say why */
        p->wrong(s);
        return LUGE_OK;
    }
    double *input = luge_sample_field(s, "input", LUGE_F64, LUGE_SHAPE(2));
    if (input == NULL) return luge_error();
    input[0] = (double)index;
    input[1] = (double)luge_rng_below(rng, 1ll << 32);
    return luge_sample_set_label(s, 10 * index);
}

static void destroy(void *user) { ++((plan *)user)->destroyed; }

static luge_dataset *planned(plan *p, int64_t size)
{
    return luge_dataset_create(&(luge_dataset_class){.size = size, .get = get, .destroy = destroy, .user = p});
}

/* Runs one epoch; the two numbers of each sample in the order they came. Returns their count. */
static int64_t run_epoch(luge_loader *loader, double (*numbers)[2])
{
    int64_t n = 0;
    luge_batch b;
    while (luge_loader_next(loader, &b)) {
        const double *input = data_of(b.input, LUGE_F64);
        const int64_t *label = data_of(b.target, LUGE_I64);
        for (int64_t i = 0; i < b.size; ++i, ++n) {
            memcpy(numbers[n], input + 2 * i, sizeof *numbers);
            assert_true((double)label[i] == 10 * input[2 * i]);
        }
    }
    assert_true(luge_ok());
    return n;
}

/* ---- order and random numbers */

static void LDR_01_random_numbers_of_samples(void **state)
{
    (void)state;
    const int workers[] = {0, 1, 4};
    const uint64_t seed = 11;
    static double table[3][2][64][2], shuffled[64][2];
    for (int w = 0; w < 3; ++w) {
        plan p = NO_FAILURE;
        luge_loader *loader = luge_loader_create(planned(&p, 64), 5,
                                                 &(luge_loader_options){.workers = workers[w], .seed = &seed});
        for (int epoch = 0; epoch < 2; ++epoch) assert_int_equal(run_epoch(loader, table[w][epoch]), 64);
        luge_loader_destroy(loader);
        assert_memory_equal(table[w], table[0], sizeof table[0]);
    }
    int same = 0;
    for (int i = 0; i < 64; ++i) {
        for (int k = 0; k < i; ++k) assert_true(table[0][0][i][1] != table[0][0][k][1]);
        same += table[0][0][i][1] == table[0][1][i][1];
    }
    assert_true(same <= 1);

    /* a sample's numbers are the same wherever it comes in the order, and whatever the batch size */
    plan p = NO_FAILURE;
    luge_loader *loader = luge_loader_create(planned(&p, 64), 9,
                                             &(luge_loader_options){.shuffle = true, .seed = &seed});
    run_epoch(loader, shuffled);
    luge_loader_destroy(loader);
    for (int i = 0; i < 64; ++i) assert_true(shuffled[i][1] == table[0][0][(int)shuffled[i][0]][1]);
}

static void LDR_06_order_does_not_depend_on_time(void **state)
{
    (void)state;
    const uint64_t seed = 7;
    static double order[4][32][2];
    for (int run = 0; run < 4; ++run) {
        plan p = {.fails_at = -1, .sleep_ms = run % 2 ? 0.7 : 0};
        luge_loader *loader = luge_loader_create(
            planned(&p, 32), 4, &(luge_loader_options){.shuffle = true, .workers = run < 2 ? 4 : 0, .seed = &seed});
        assert_int_equal(run_epoch(loader, order[run]), 32);
        luge_loader_destroy(loader);
        assert_memory_equal(order[run], order[0], sizeof order[0]);
    }
}

static void each_epoch_shuffles_anew_and_whole(void **state)
{
    (void)state;
    plan p = NO_FAILURE;
    const uint64_t seed = 3;
    static double order[3][1000][2];
    luge_loader *loader = luge_loader_create(planned(&p, 1000), 32,
                                             &(luge_loader_options){.shuffle = true, .seed = &seed});
    for (int epoch = 0; epoch < 3; ++epoch) {
        assert_int_equal(luge_loader_epoch(loader), epoch);
        assert_int_equal(run_epoch(loader, order[epoch]), 1000);
        bool seen[1000] = {false};
        for (int i = 0; i < 1000; ++i) seen[(int)order[epoch][i][0]] = true;
        for (int i = 0; i < 1000; ++i) assert_true(seen[i]);
        int fixed = 0, as_before = 0;
        for (int i = 0; i < 1000; ++i) {
            fixed += (int)order[epoch][i][0] == i;
            as_before += epoch > 0 && order[epoch][i][0] == order[epoch - 1][i][0];
        }
        assert_true(fixed < 12 && as_before < 12); /* 1 is expected; 12 has probability 1e-9 */
    }
    luge_loader_destroy(loader);
}

/* Where the order of 3 is drawn many times, each of the 6 comes a sixth of the time. */
static void orders_are_equally_likely(void **state)
{
    (void)state;
    int count[27] = {0};
    for (uint64_t seed = 0; seed < 6000; ++seed) {
        plan p = NO_FAILURE;
        double order[3][2];
        luge_loader *loader = luge_loader_create(planned(&p, 3), 3,
                                                 &(luge_loader_options){.shuffle = true, .seed = &seed});
        run_epoch(loader, order);
        luge_loader_destroy(loader);
        ++count[(int)(order[0][0] * 9 + order[1][0] * 3 + order[2][0])];
    }
    int kinds = 0;
    double chi2 = 0;
    for (int i = 0; i < 27; ++i) {
        if (count[i] == 0) continue;
        ++kinds;
        chi2 += (count[i] - 1000.0) * (count[i] - 1000.0) / 1000;
    }
    assert_int_equal(kinds, 6);
    assert_true(chi2 < 30); /* 5 degrees of freedom: 1.5e-5 */
}

/* The thread's random numbers are drawn from once, when a loader without a seed is made. */
static void loading_leaves_the_threads_random_numbers_alone(void **state)
{
    (void)state;
    plan p = NO_FAILURE;
    static double first[20][2], second[20][2];
    const uint64_t seed = 1;
    luge_seed(5);
    const lg_rng_range before = lg_rng_take(0);
    luge_loader *given = luge_loader_create(planned(&p, 20), 4, &(luge_loader_options){.shuffle = true, .seed = &seed});
    run_epoch(given, first);
    luge_loader_destroy(given);
    assert_int_equal(lg_rng_take(0).first, before.first);

    luge_loader *drawn = luge_loader_create(planned(&p, 20), 4, &(luge_loader_options){.shuffle = true});
    assert_int_equal(lg_rng_take(0).first, before.first + 1);
    run_epoch(drawn, first);
    luge_loader_destroy(drawn);
    assert_int_equal(lg_rng_take(0).first, before.first + 1);

    luge_seed(5); /* the same seed, the same loader */
    drawn = luge_loader_create(planned(&p, 20), 4, &(luge_loader_options){.shuffle = true});
    run_epoch(drawn, second);
    luge_loader_destroy(drawn);
    assert_memory_equal(first, second, sizeof first);
}

/* ---- batches */

static void LDR_04_last_batch_and_empty_data(void **state)
{
    (void)state;
    const struct { int64_t size, batch; bool drop; int64_t batches, last; } c[] = {
        {10, 4, false, 3, 2}, {10, 4, true, 2, 4}, {101, 10, false, 11, 1}, {3, 4, true, 0, 0}, {0, 4, false, 0, 0},
    };
    for (int i = 0; i < 5; ++i) {
        plan p = NO_FAILURE;
        luge_loader *loader = luge_loader_create(planned(&p, c[i].size), c[i].batch,
                                                 &(luge_loader_options){.drop_last = c[i].drop});
        assert_int_equal(luge_loader_batches(loader, 1), c[i].batches);
        assert_int_equal(luge_loader_batches(loader, 4), (c[i].batches + 3) / 4);
        for (int epoch = 0; epoch < 2; ++epoch) {
            int64_t n = 0, last = 0;
            luge_batch b;
            while (luge_loader_next(loader, &b)) {
                assert_int_equal(b.index, n);
                assert_int_equal(luge_tensor_size(b.input, 0), b.size);
                ++n;
                last = b.size;
            }
            assert_true(luge_ok());
            assert_int_equal(n, c[i].batches);
            assert_int_equal(last, c[i].last);
            assert_int_equal(luge_loader_epoch(loader), epoch + 1);
            assert_null(b.input);
            assert_null(b.target);
            assert_int_equal(b.size, 0);
        }
        luge_loader_destroy(loader);
    }
}

/* A set without an end, as good as: only shuffling needs memory for each sample. */
static void sets_of_any_size(void **state)
{
    (void)state;
    plan p = NO_FAILURE;
    luge_loader *loader = luge_loader_create(planned(&p, INT64_MAX), 4, NULL);
    luge_batch b;
    assert_int_equal(luge_loader_batches(loader, 1), INT64_MAX / 4 + 1);
    assert_true(luge_loader_next(loader, &b) && luge_loader_next(loader, &b));
    assert_true(((const double *)data_of(b.input, LUGE_F64))[0] == 4);
    luge_loader_destroy(loader);
    assert_null(luge_loader_create(planned(&p, INT64_MAX), 4, &(luge_loader_options){.shuffle = true}));
    expect_error(LUGE_ERR_OUT_OF_MEMORY, "too many to shuffle");
    assert_null(luge_loader_create(planned(&p, INT64_MAX / 16), 4, &(luge_loader_options){.shuffle = true}));
    expect_error(LUGE_ERR_OUT_OF_MEMORY, "");
    assert_int_equal(p.destroyed, 3);
}

static void buffers_are_reused_only_when_nobody_holds_them(void **state)
{
    (void)state;
    cpu_only(); /* batches on their way to a device are filled in pinned memory */
    plan p = NO_FAILURE;
    luge_loader *loader = luge_loader_create(planned(&p, 100), 4, NULL);
    luge_batch b;
    assert_true(luge_loader_next(loader, &b));
    const void *first = luge_tensor_data(b.input, LUGE_F64);
    const int64_t version = luge_tensor_version(b.input);
    assert_true(luge_loader_next(loader, &b));
    assert_ptr_equal(luge_tensor_data(b.input, LUGE_F64), first);
    assert_true(luge_tensor_version(b.input) > version); /* packed copies of it are out of date */

    luge_tensor *held = luge_retain(b.input); /* the handle */
    assert_true(luge_loader_next(loader, &b));
    assert_ptr_not_equal(luge_tensor_data(b.input, LUGE_F64), first);
    assert_true(((const double *)luge_tensor_data(held, LUGE_F64))[0] == 4);
    luge_release(held);

    luge_scope scope = luge_scope_enter("view");
    luge_tensor *view = luge_slice(b.input, 0, 1, 2); /* the memory only */
    const void *second = luge_tensor_data(b.input, LUGE_F64);
    assert_true(luge_loader_next(loader, &b));
    assert_ptr_not_equal(luge_tensor_data(b.input, LUGE_F64), second);
    assert_true(((const double *)luge_tensor_data(view, LUGE_F64))[0] == 9);
    luge_scope_exit(scope, NULL);

    luge_requires_grad_(b.input); /* a leaf would keep its gradient */
    assert_true(luge_loader_next(loader, &b));
    assert_false(luge_tensor_requires_grad(b.input));
    luge_loader_destroy(loader);
}

static void a_graph_keeps_its_batch(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *rows = luge_reshape(luge_arange(0, 12, 1, NULL), LUGE_SHAPE(6, 2));
    luge_loader *loader = luge_loader_create(luge_dataset_tensors(rows, LUGE_NONE), 2, NULL);
    luge_tensor *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(2, 2), NULL));
    luge_batch b;
    assert_true(luge_loader_next(loader, &b));
    luge_tensor *loss = luge_sum(luge_mul(w, b.input), LUGE_ALL_AXES); /* reads 0 1 2 3 in backward */
    assert_true(luge_loader_next(loader, &b));
    assert_int_equal(luge_backward(loss), LUGE_OK);
    const float *g = data_of(luge_tensor_grad(w), LUGE_F32);
    for (int i = 0; i < 4; ++i) assert_true(g[i] == (float)i);
    luge_loader_destroy(loader);
}

static void batches_outlive_their_loader_when_held(void **state)
{
    (void)state;
    plan p = NO_FAILURE;
    luge_loader *loader = luge_loader_create(planned(&p, 8), 4, NULL);
    luge_batch b;
    assert_true(luge_loader_next(loader, &b));
    luge_tensor *held = luge_retain(b.input);
    luge_loader_destroy(loader);
    assert_int_equal(p.destroyed, 1);
    assert_true(((const double *)data_of(held, LUGE_F64))[6] == 3);
    luge_release(held);
}

static void batch_size_changes_from_the_next_batch_on(void **state)
{
    (void)state;
    plan p = NO_FAILURE;
    luge_loader *loader = luge_loader_create(planned(&p, 12), 8, NULL);
    luge_batch b;
    assert_true(luge_loader_next(loader, &b));
    assert_int_equal(luge_loader_set_batch_size(loader, 3), LUGE_OK);
    assert_int_equal(luge_loader_batch_size(loader), 3);
    assert_int_equal(b.size, 8);
    assert_true(luge_loader_next(loader, &b));
    assert_int_equal(b.size, 3);
    assert_true(((const double *)data_of(b.input, LUGE_F64))[0] == 8);
    assert_true(luge_loader_next(loader, &b));
    assert_int_equal(b.size, 1);
    assert_false(luge_loader_next(loader, &b));
    assert_int_equal(luge_loader_batches(loader, 1), 4);
    assert_int_equal(luge_loader_set_batch_size(loader, 0), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    assert_int_equal(luge_loader_batch_size(loader), 3);
    luge_loader_destroy(loader);
}

/* ---- what goes wrong */

static void LDR_02_leaving_early(void **state)
{
    (void)state;
    plan p = {.fails_at = -1, .sleep_ms = 5};
    for (int i = 0; i < 100; ++i) {
        luge_loader *loader = luge_loader_create(planned(&p, 1000), 1,
                                                 &(luge_loader_options){.workers = 4, .prefetch = 4});
        luge_batch b;
        if (i % 10 != 0) assert_true(luge_loader_next(loader, &b)); /* some never advance */
        const double began = seconds();
        luge_loader_destroy(loader);
        assert_true(seconds() - began < 1);
        assert_int_equal(p.destroyed, i + 1);
    }
    /* `end` checks that memory and objects are as they were */
}

static void LDR_03_failing_sample(void **state)
{
    (void)state;
    plan p = {.fails_at = 5};
    luge_loader *loader = luge_loader_create(planned(&p, 8), 2, &(luge_loader_options){.workers = 3});
    luge_batch b;
    for (int i = 0; i < 2; ++i) {
        assert_true(luge_loader_next(loader, &b));
        const double *input = data_of(b.input, LUGE_F64);
        assert_true(input[0] == 2 * i && input[2] == 2 * i + 1);
    }
    assert_false(luge_loader_next(loader, &b));
    assert_null(b.input);
    expect_error(LUGE_ERR_CALLBACK, "sample 5: ");
    assert_false(luge_loader_next(loader, &b)); /* the same batch again */
    expect_error(LUGE_ERR_CALLBACK, "sample 5: ");
    assert_int_equal(luge_loader_epoch(loader), 0);
    p.fails_at = -1;
    assert_true(luge_loader_next(loader, &b));
    assert_true(((const double *)data_of(b.input, LUGE_F64))[0] == 4);
    assert_int_equal(b.index, 2);
    luge_loader_destroy(loader);
}

static void says_why(luge_sample *s) { (void)s, luge_fail(LUGE_ERR_IO, "%s: truncated", "shapes/4711.png"); }
static void no_input(luge_sample *s) { luge_sample_set_label(s, 1); }
static void no_target(luge_sample *s) { luge_sample_field(s, "input", LUGE_F64, LUGE_SHAPE(2)); }
static void other_shape(luge_sample *s) { luge_sample_field(s, "input", LUGE_F64, LUGE_SHAPE(3)); }
static void other_dtype(luge_sample *s) { luge_sample_field(s, "input", LUGE_F32, LUGE_SHAPE(2)); }
static void no_such_dtype(luge_sample *s) { luge_sample_field(s, "input", (luge_dtype)99, LUGE_SHAPE(2)); }
static void no_such_field(luge_sample *s) { luge_sample_field(s, "picture", LUGE_F64, LUGE_SHAPE(2)); }
static void no_name(luge_sample *s) { luge_sample_field(s, NULL, LUGE_F64, LUGE_SHAPE(2)); }
static void negative(luge_sample *s) { luge_sample_field(s, "input", LUGE_F64, LUGE_SHAPE(-2)); }
static void rank_8(luge_sample *s) { luge_sample_field(s, "input", LUGE_F64, LUGE_SHAPE(1, 1, 1, 1, 1, 1, 1, 2)); }

static void errors_name_the_sample(void **state)
{
    (void)state;
    const struct { void (*wrong)(luge_sample *s); luge_status code; const char *says; } c[] = {
        {says_why, LUGE_ERR_IO, "sample 6: shapes/4711.png: truncated"},
        {no_input, LUGE_ERR_CALLBACK, "sample 6: the dataset gave it no \"input\""},
        {no_target, LUGE_ERR_CALLBACK, "sample 6: the dataset gave it no \"target\""},
        {other_shape, LUGE_ERR_SHAPE, "sample 6: \"input\" is f64 [3], but in earlier samples it is f64 [2]"},
        {other_dtype, LUGE_ERR_SHAPE, "sample 6: \"input\" is f32 [2], but in earlier samples it is f64 [2]"},
        {no_such_dtype, LUGE_ERR_DTYPE, "sample 6: luge_sample_field: \"input\": 99"},
        {no_such_field, LUGE_ERR_ARGUMENT, "sample 6: luge_sample_field: no field \"picture\""},
        {no_name, LUGE_ERR_ARGUMENT, "sample 6: luge_sample_field: the name is NULL"},
        {negative, LUGE_ERR_SHAPE, "sample 6: luge_sample_field: \"input\": [-2]"},
        {rank_8, LUGE_ERR_SHAPE, "at most 7 sizes"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; ++i) {
        plan p = {.fails_at = 6, .wrong = c[i].wrong};
        luge_loader *loader = luge_loader_create(planned(&p, 8), 4, NULL);
        luge_batch b;
        assert_true(luge_loader_next(loader, &b));
        assert_false(luge_loader_next(loader, &b));
        expect_error(c[i].code, c[i].says);
        luge_loader_destroy(loader);
    }
    luge_sample_field(NULL, "input", LUGE_F32, LUGE_SHAPE(1));
    expect_error(LUGE_ERR_ARGUMENT, "sample is NULL");
}

/* The first sample says what others must have, unless it fails. */
static void a_first_sample_that_fails_says_nothing(void **state)
{
    (void)state;
    plan p = {.fails_at = 0, .wrong = other_shape};
    luge_loader *loader = luge_loader_create(planned(&p, 4), 4, NULL);
    luge_batch b;
    assert_true(luge_loader_next(loader, &b) == false && luge_error() == LUGE_ERR_SHAPE); /* sample 1 is not like it */
    luge_error_clear();
    luge_loader_destroy(loader);

    p = (plan){.fails_at = 0, .wrong = no_input};
    loader = luge_loader_create(planned(&p, 4), 4, NULL);
    assert_false(luge_loader_next(loader, &b));
    expect_error(LUGE_ERR_CALLBACK, "sample 0");
    p.fails_at = -1;
    assert_true(luge_loader_next(loader, &b));
    assert_int_equal(luge_tensor_size(b.input, 1), 2);
    luge_loader_destroy(loader);
}

static void slow_samples_are_noticed(void **state)
{
    (void)state;
    plan p = {.fails_at = -1, .sleep_ms = 60};
    luge_loader *loader = luge_loader_create(planned(&p, 8), 2, &(luge_loader_options){.timeout = 0.05});
    luge_batch b;
    assert_false(luge_loader_next(loader, &b));
    expect_error(LUGE_ERR_TIMEOUT, "sample 0: took 0.1 s");
    p.sleep_ms = 0;
    assert_true(luge_loader_next(loader, &b));
    luge_loader_destroy(loader);
}

static void nothing_moves_while_an_error_stands(void **state)
{
    (void)state;
    plan p = NO_FAILURE;
    luge_loader *loader = luge_loader_create(planned(&p, 8), 4, NULL);
    luge_fail(LUGE_ERR_IO, "before");
    luge_batch b = {.size = 77};
    assert_false(luge_loader_next(loader, &b));
    assert_int_equal(b.size, 0);
    assert_int_equal(p.asked, 0);
    assert_int_equal(luge_loader_set_batch_size(loader, 2), LUGE_ERR_IO);
    assert_null(luge_loader_create(planned(&p, 8), 4, NULL)); /* the dataset is NULL, its user destroyed */
    assert_int_equal(p.destroyed, 1);
    luge_loader_destroy(loader);
    assert_int_equal(p.destroyed, 2);
    expect_error(LUGE_ERR_IO, "before");
}

static void next_inside_of(luge_loader **loader)
{
    luge_batch b;
    assert_false(luge_loader_next(*loader, &b));
}

static luge_status recursive_get(int64_t index, luge_rng *rng, luge_sample *s, void *user)
{
    (void)index, (void)rng, (void)s;
    next_inside_of(user);
    return luge_error();
}

static void arguments_are_checked(void **state)
{
    (void)state;
    plan p = NO_FAILURE;
    const luge_loader_options bad[] = {
        {.workers = -2}, {.prefetch = -1}, {.timeout = -1}, {.timeout = NAN}, {.reserved = {0, 1}},
        {.device = {.kind = 2, .index = 99}},
        {.device = {.kind = 9}},
    };
    const int count = (int)(sizeof bad / sizeof *bad);
    for (int i = 0; i < count; ++i) {
        assert_null(luge_loader_create(planned(&p, 8), 4, &bad[i]));
        assert_int_equal(luge_error(), i < 5 ? LUGE_ERR_ARGUMENT : LUGE_ERR_DEVICE);
        luge_error_clear();
    }
    assert_null(luge_loader_create(planned(&p, 8), 0, NULL));
    expect_error(LUGE_ERR_ARGUMENT, "batch size of 0");
    assert_int_equal(p.destroyed, count + 1); /* a loader owns its dataset, even on error */
    assert_null(luge_loader_create(NULL, 4, NULL));
    expect_error(LUGE_ERR_ARGUMENT, "NULL");

    assert_null(luge_dataset_create(NULL));
    expect_error(LUGE_ERR_ARGUMENT, "NULL");
    assert_null(luge_dataset_create(&(luge_dataset_class){.size = 3, .destroy = destroy, .user = &p}));
    expect_error(LUGE_ERR_ARGUMENT, "get is NULL");
    assert_null(planned(&p, -1));
    expect_error(LUGE_ERR_ARGUMENT, "size is -1");
    const luge_dataset_class reserved = {.size = 3, .get = get, .destroy = destroy, .user = &p, .reserved = {1}};
    assert_null(luge_dataset_create(&reserved));
    expect_error(LUGE_ERR_ARGUMENT, "reserved");
    assert_int_equal(p.destroyed, count + 4);

    luge_dataset *d = planned(&p, 8);
    luge_loader *loader = luge_loader_create(d, 4, NULL);
    assert_null(luge_loader_create(d, 4, NULL));
    expect_error(LUGE_ERR_ARGUMENT, "another loader");
    luge_dataset_destroy(d); /* left alone */
    assert_int_equal(luge_dataset_size(d), 8);
    assert_false(luge_loader_next(loader, NULL));
    expect_error(LUGE_ERR_ARGUMENT, "batch is NULL");
    assert_int_equal(luge_loader_batches(loader, 0), 0);
    expect_error(LUGE_ERR_ARGUMENT, "window of 0");
    luge_loader_destroy(loader);

    luge_batch b;
    assert_false(luge_loader_next(NULL, &b));
    expect_error(LUGE_ERR_ARGUMENT, "loader is NULL");
    assert_int_equal(luge_loader_batches(NULL, 1), 0);
    expect_error(LUGE_ERR_ARGUMENT, "NULL");
    assert_int_equal(luge_loader_set_batch_size(NULL, 1), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    assert_int_equal(luge_loader_epoch(NULL) + luge_loader_batch_size(NULL) + luge_dataset_size(NULL), 0);
    luge_loader_destroy(NULL);
    luge_dataset_destroy(NULL);

    luge_loader *itself = NULL;
    itself = luge_loader_create(
        luge_dataset_create(&(luge_dataset_class){.size = 1, .get = recursive_get, .user = &itself}), 1, NULL);
    assert_false(luge_loader_next(itself, &b));
    expect_error(LUGE_ERR_STATE, "own callbacks");
    luge_loader_destroy(itself);
}

static void every_failure_of_memory_is_returned(void **state)
{
    (void)state;
    const uint64_t seed = 1;
    const lg_fault_kind kinds[] = {LG_FAULT_HOST, LG_FAULT_DEVICE};
    luge_scope scope = luge_scope_enter("warm"); /* the thread's own stacks grow once */
    luge_scope_exit(scope, NULL);
    for (int k = 0; k < 2; ++k) {
        bool hit = true;
        for (int nth = 1; hit; ++nth) {
            plan p = NO_FAILURE;
            lg_fault_set(kinds[k], nth);
            luge_loader *loader = luge_loader_create(planned(&p, 10), 4,
                                                     &(luge_loader_options){.shuffle = true, .seed = &seed});
            luge_batch b;
            int batches = 0;
            while (luge_loader_next(loader, &b)) ++batches;
            hit = lg_fault_hit(kinds[k]);
            lg_fault_set(kinds[k], 0);
            if (hit) assert_int_equal(luge_error(), LUGE_ERR_OUT_OF_MEMORY);
            assert_int_equal(luge_ok(), !hit);
            if (!hit) assert_int_equal(batches, 3);
            luge_error_clear();
            if (hit && loader != NULL) { /* goes on where it stood */
                while (luge_loader_next(loader, &b)) ++batches;
                assert_int_equal(batches, 3);
            }
            luge_loader_destroy(loader);
            assert_int_equal(p.destroyed, 1);
            assert_true(hit || nth > 3);
        }
    }
}

/* ---- progress */

typedef struct heard {
    int calls, ends;
    double last, least_gap, at;
    luge_progress final;
    bool refuse;
} heard;

static void hear(const luge_progress *p, void *user)
{
    heard *h = user;
    const double t = seconds();
    ++h->calls;
    assert_true(p->done >= h->last && p->done <= 1);
    if (p->done < 1) {
        if (h->at > 0 && t - h->at < h->least_gap) h->least_gap = t - h->at;
        assert_near(p->done, (double)p->samples / 60, 1e-12);
        assert_true(p->samples_per_second > 0 && p->seconds_left > 0);
        h->at = t;
    } else {
        ++h->ends;
        h->final = *p;
    }
    h->last = p->done;
    if (h->refuse) luge_fail(LUGE_ERR_IO, "the terminal is gone");
}

static void progress_is_told_ten_times_a_second(void **state)
{
    (void)state;
    plan p = {.fails_at = -1, .sleep_ms = 10};
    heard h = {.least_gap = 1e9};
    luge_loader *loader = luge_loader_create(planned(&p, 60), 1, &(luge_loader_options){.progress = hear, .user = &h});
    luge_batch b;
    for (int epoch = 0; epoch < 2; ++epoch) {
        h.last = h.at = 0;
        const double began = seconds();
        while (luge_loader_next(loader, &b)) {}
        const double took = seconds() - began;
        assert_int_equal(h.ends, epoch + 1);
        assert_int_equal(h.final.epoch, epoch);
        assert_int_equal(h.final.samples, 60);
        assert_true(h.final.seconds_left == 0);
        assert_near(h.final.samples_per_second, 60 / took, 0.2 * 60 / took);
    }
    assert_true(h.least_gap >= 0.0999);
    assert_in_range(h.calls, 4, 40);
    luge_loader_destroy(loader);

    h = (heard){.least_gap = 1e9};
    p.sleep_ms = 0; /* too fast for anything but its end */
    loader = luge_loader_create(planned(&p, 60), 1, &(luge_loader_options){.progress = hear, .user = &h});
    const double began = seconds();
    while (luge_loader_next(loader, &b)) {}
    assert_int_equal(h.ends, 1);
    assert_true(h.calls <= 1 + 10 * (seconds() - began));
    h = (heard){.refuse = true};
    while (luge_loader_next(loader, &b)) {}
    expect_error(LUGE_ERR_IO, "the terminal is gone");
    luge_loader_destroy(loader);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    luge_memory_get_stats(luge_device_cpu()); /* starts the library, which keeps some memory */
    const struct CMUnitTest tests[] = {
        TEST(LDR_01_random_numbers_of_samples),
        TEST(LDR_02_leaving_early),
        TEST(LDR_03_failing_sample),
        TEST(LDR_04_last_batch_and_empty_data),
        TEST(LDR_06_order_does_not_depend_on_time),
        TEST(each_epoch_shuffles_anew_and_whole),
        TEST(orders_are_equally_likely),
        TEST(loading_leaves_the_threads_random_numbers_alone),
        TEST(sets_of_any_size),
        TEST(buffers_are_reused_only_when_nobody_holds_them),
        TEST(a_graph_keeps_its_batch),
        TEST(batches_outlive_their_loader_when_held),
        TEST(batch_size_changes_from_the_next_batch_on),
        TEST(errors_name_the_sample),
        TEST(a_first_sample_that_fails_says_nothing),
        TEST(slow_samples_are_noticed),
        TEST(nothing_moves_while_an_error_stands),
        TEST(arguments_are_checked),
        TEST(every_failure_of_memory_is_returned),
        TEST(progress_is_told_ten_times_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
