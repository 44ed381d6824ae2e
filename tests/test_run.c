/* Files of training runs: resumed runs have the bits of runs that were never interrupted; damaged files, other runs and
 * failures change nothing. And the largest batch that fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/thread.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/folder.h"
#include "tests/support/ops.h"

/* ---- a run with everything */

typedef struct training {
    luge_module *net;
    luge_optim *optim;
    luge_sched *sched;
    luge_scaler *scaler;
    luge_accum *accum;
    luge_loader *loader;
} training;

static luge_dataset *samples(void)
{
    LUGE_SCOPE("samples");
    luge_seed(99);
    const luge_tensor_options host = {.device = luge_device_cpu()};
    int64_t labels[22];
    for (int i = 0; i < 22; ++i) labels[i] = i % 3;
    luge_tensor *y = luge_to(luge_from_array(labels, LUGE_I64, LUGE_SHAPE(22)), luge_device_cpu(), NULL);
    return luge_dataset_tensors(luge_randn(LUGE_SHAPE(22, 6), &host), y);
}

/* `seed`: of initial values, which loading replaces. */
static training begin(uint64_t seed)
{
    training t = {.loader = luge_loader_create(samples(), 4, &(luge_loader_options){.shuffle = true, .seed = &seed})};
    luge_seed(seed);
    t.net = luge_nn_sequential(luge_nn_linear(6, 8, NULL), luge_nn_batch_norm1d(8, NULL), luge_nn_relu(), luge_nn_dropout(0.3),
                               luge_nn_linear(8, 3, NULL));
    t.optim = luge_adamw_create(t.net, 0.01, 0.01, NULL);
    t.sched = luge_cosine_lr_create(t.optim, 12, &(luge_cosine_options){.warmup = 2});
    t.scaler = luge_scaler_create(&(luge_scaler_options){.init_scale = 64, .growth_interval = 2});
    t.accum = luge_accum_create(t.optim, 3, &(luge_accum_options){.scaler = t.scaler, .sched = t.sched, .clip_norm = 1});
    assert_ok();
    return t;
}

static luge_run run_of(const training *t)
{
    return (luge_run){.module = t->net, .optim = t->optim, .sched = t->sched, .scaler = t->scaler, .accum = t->accum, .loader = t->loader};
}

static void end(training *t)
{
    luge_accum_destroy(t->accum);
    luge_scaler_destroy(t->scaler);
    luge_sched_destroy(t->sched);
    luge_optim_destroy(t->optim);
    luge_module_destroy(t->net);
    luge_loader_destroy(t->loader);
}

static void step(training *t)
{
    luge_batch b;
    if (!luge_loader_next(t->loader, &b) && luge_ok()) luge_loader_next(t->loader, &b);
    LUGE_SCOPE("step");
    LUGE_AUTOCAST(LUGE_F16);
    luge_accum_backward(t->accum, luge_cross_entropy(luge_forward(t->net, b.input), b.target, NULL), b.size);
    assert_ok();
}

enum { STEPS = 20 };

static const char *file(void) { return in_folder("run.safetensors"); }

/* Everything that a run has come to, as the file that it writes. */
static unsigned char *contents_of(const training *t, size_t *size)
{
    const luge_run run = run_of(t);
    assert_int_equal(luge_run_save(&run, in_folder("contents")), LUGE_OK);
    return read_file(in_folder("contents"), size);
}

static void assert_alike(const training *a, const training *b)
{
    size_t m, n;
    unsigned char *x = contents_of(a, &m), *y = contents_of(b, &n);
    assert_int_equal(m, n);
    assert_memory_equal(x, y, m);
    free(x);
    free(y);
}

static void a_run_resumes_anywhere_with_the_same_bits(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    training plain = begin(1);
    for (int i = 0; i < STEPS; ++i) step(&plain);
    const luge_tensor *next = luge_rand(LUGE_SHAPE(4), NULL);
    const uint64_t offset = lg_self()->rng_offset, seed = lg_self()->seed;
    for (int stop = 0; stop <= STEPS; stop += on_cpu() ? 1 : 4) {
        LUGE_SCOPE("stop");
        training first = begin(1);
        for (int i = 0; i < stop; ++i) step(&first);
        const luge_run run = run_of(&first);
        assert_int_equal(luge_run_save(&run, file()), LUGE_OK);
        end(&first);
        luge_rand(LUGE_SHAPE(50), NULL); /* others draw, too */
        training second = begin(77);
        const luge_run again = run_of(&second);
        assert_int_equal(luge_run_resume(&again, file()), LUGE_OK);
        for (int i = stop; i < STEPS; ++i) step(&second);
        assert_true(same_bits(luge_rand(LUGE_SHAPE(4), NULL), next));
        lg_self()->seed = seed;
        lg_self()->rng_offset = offset;
        assert_alike(&second, &plain);
        end(&second);
    }
    end(&plain);
}

static void without_a_file_resuming_is_a_fresh_start(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    training t = begin(3);
    const luge_run run = run_of(&t);
    assert_int_equal(luge_run_resume(&run, in_folder("nothing")), LUGE_OK);
    assert_int_equal(luge_run_load(&run, in_folder("nothing")), LUGE_ERR_IO);
    luge_error_clear();
    assert_int_equal(luge_optim_steps(t.optim), 0);
    end(&t);
}

/* ---- what goes wrong */

static void refused(const luge_run *run, const char *path, const char *text)
{
    assert_int_equal(luge_run_load(run, path), LUGE_ERR_FORMAT);
    assert_error(LUGE_ERR_FORMAT, text);
}

static void differences_are_reported_at_once(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    training t = begin(1), other = begin(2);
    for (int i = 0; i < 4; ++i) step(&t);
    luge_run run = run_of(&t);
    luge_module *module = luge_nn_sequential(luge_nn_linear(6, 9, NULL), luge_nn_batch_norm1d(9, NULL));
    assert_int_equal(luge_run_save(&run, file()), LUGE_OK);
    const luge_run smaller = {.module = module};
    assert_int_equal(luge_run_load(&smaller, file()), LUGE_ERR_FORMAT);
    const char *text = luge_error_text();
    static const char *const says[] = {"luge_run_load: ", "does not fit in ", "nothing was loaded", "other shape: 0.weight is [9, 6], in the file [8, 6] F32",
                                       "not in the run: 4.weight", "not in the run: luge.loader"};
    for (size_t i = 0; i < sizeof says / sizeof *says; ++i)
        if (strstr(text, says[i]) == NULL) fail_msg("does not say '%s': %s", says[i], text);
    luge_error_clear();
    luge_module_destroy(module);
    run.scaler = NULL;
    assert_int_equal(luge_run_save(&run, in_folder("less")), LUGE_OK);
    const luge_run more = run_of(&other);
    size_t m, n;
    unsigned char *before = contents_of(&other, &m);
    refused(&more, in_folder("less"), "missing in the file: luge.scaler");
    unsigned char *after = contents_of(&other, &n);
    assert_int_equal(m, n);
    assert_memory_equal(before, after, m);
    free(before);
    free(after);
    end(&other);
    end(&t);
}

/* Any byte of the elements, and any cut. */
static void damaged_files_change_nothing(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    training t = begin(1), other = begin(2);
    for (int i = 0; i < 4; ++i) step(&t);
    const luge_run run = run_of(&t), into = run_of(&other);
    assert_int_equal(luge_run_save(&run, file()), LUGE_OK);
    size_t size, m, n;
    unsigned char *good = read_file(file(), &size), *before = contents_of(&other, &m);
    const size_t header = 8 + (size_t)good[0] + 256 * (size_t)good[1];
    for (size_t at = header; at < size; at += 97) {
        good[at] ^= 0x10;
        write_file(in_folder("bad"), good, size);
        good[at] ^= 0x10;
        assert_int_equal(luge_run_load(&into, in_folder("bad")), LUGE_ERR_FORMAT);
        luge_error_clear();
    }
    for (size_t cut = 0; cut < size; cut += 1 + size / 13) {
        write_file(in_folder("bad"), good, cut);
        assert_int_equal(luge_run_load(&into, in_folder("bad")), LUGE_ERR_FORMAT);
        luge_error_clear();
    }
    unsigned char *after = contents_of(&other, &n);
    assert_int_equal(m, n);
    assert_memory_equal(before, after, m);
    free(after);
    free(before);
    free(good);
    assert_int_equal(luge_module_save(t.net, in_folder("weights")), LUGE_OK);
    refused(&into, in_folder("weights"), "is no file of luge_run_save: it has no luge.version");
    end(&other);
    end(&t);
}

static void bad_runs_are_refused(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    training t = begin(1), other = begin(2);
    luge_run run = run_of(&t);
    run.sched = other.sched;
    assert_int_equal(luge_run_save(&run, file()), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_run_save: the schedule belongs to another optimizer");
    run = run_of(&t);
    run.optim = NULL;
    run.sched = NULL;
    assert_int_equal(luge_run_save(&run, file()), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "a window without its optimizer");
    luge_run second = run_of(&other);
    run = run_of(&t);
    run.next = &second;
    assert_int_equal(luge_run_save(&run, file()), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "chained runs need names");
    run.name = "a";
    second.name = "b";
    assert_int_equal(luge_run_save(&run, file()), LUGE_OK);
    step(&t);
    step(&other);
    assert_int_equal(luge_run_load(&run, file()), LUGE_OK);
    assert_int_equal(luge_accum_pending(t.accum), 0);
    end(&other);
    end(&t);
}

static void older_files_are_kept(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    training t = begin(1);
    luge_run run = run_of(&t);
    run.keep_last = 2;
    for (int i = 0; i < 5; ++i) {
        assert_int_equal(luge_run_save(&run, in_folder("kept")), LUGE_OK);
        for (int k = 0; k < 3; ++k) step(&t);
    }
    static const struct { const char *name; int steps; } files[] = {{"kept", 4}, {"kept.1", 3}, {"kept.2", 2}};
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(luge_run_load(&run, in_folder(files[i].name)), LUGE_OK);
        assert_int_equal(luge_optim_steps(t.optim), files[i].steps);
    }
    assert_int_not_equal(access(in_folder("kept.3"), F_OK), 0);
    end(&t);
}

/* Each file operation and allocation fails in turn: the old file stays whole, and the run as it was. */
static void every_failure_leaves_both_whole(void **state)
{
    (void)state;
    static const lg_fault_kind kinds[] = {LG_FAULT_FILE, LG_FAULT_HOST, LG_FAULT_DEVICE};
    LUGE_SCOPE("t");
    training t = begin(1), old = begin(5), other = begin(2);
    for (int i = 0; i < 4; ++i) step(&t);
    const luge_run run = run_of(&t), first = run_of(&old), into = run_of(&other);
    assert_int_equal(luge_run_save(&first, file()), LUGE_OK);
    size_t size, n;
    unsigned char *was = read_file(file(), &size);
    for (int loads = 0; loads < 2; ++loads)
        for (int k = 0; k < 3; ++k) {
            bool hit = true;
            for (int64_t nth = 1; hit; nth += kinds[k] == LG_FAULT_HOST ? 7 : 1) {
                luge_memory_empty_cache((luge_device){0});
                lg_fault_set(kinds[k], nth);
                const luge_status status = loads ? luge_run_load(&into, file()) : luge_run_save(&run, file());
                hit = lg_fault_hit(kinds[k]);
                lg_fault_set(kinds[k], 0);
                if (status == LUGE_OK) { /* the write through, or a failure that was made up for */
                    if (!loads) write_file(file(), was, size);
                    continue;
                }
                assert_true(hit);
                luge_error_clear();
                if (!loads) {
                    unsigned char *is = read_file(file(), &n);
                    if (n != size || memcmp(is, was, n) != 0) { /* all of the new one: only syncing the folder failed */
                        assert_int_equal(kinds[k], LG_FAULT_FILE);
                        assert_int_equal(luge_run_load(&into, file()), LUGE_OK);
                        write_file(file(), was, size);
                    }
                    free(is);
                }
            }
        }
    free(was);
    end(&other);
    end(&old);
    end(&t);
}

static void killed_saves_leave_a_whole_file(void **state)
{
    (void)state;
    cpu_only();
#if defined(__SANITIZE_THREAD__)
    skip();
#endif
    LUGE_SCOPE("t");
    training t = begin(1);
    const luge_run run = run_of(&t);
    assert_int_equal(luge_run_save(&run, file()), LUGE_OK);
    for (int i = 0; i < 20; ++i) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            for (;;) {
                step(&t);
                if (luge_run_save(&run, file()) != LUGE_OK) _exit(1);
            }
        }
        usleep(1000 + 700u * (unsigned)i);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        training second = begin(7);
        const luge_run again = run_of(&second);
        assert_int_equal(luge_run_load(&again, file()), LUGE_OK);
        end(&second);
    }
    end(&t);
}

/* ---- the largest batch */

typedef struct search {
    training *t;
    int64_t most, calls;
    luge_status otherwise;
} search;

static luge_status trial(int64_t size, void *user)
{
    search *s = user;
    ++s->calls;
    luge_tensor *x = luge_randn(LUGE_SHAPE(size + 1, 6), NULL), *y = luge_randint(0, 3, LUGE_SHAPE(size + 1));
    luge_backward(luge_cross_entropy(luge_forward(s->t->net, x), y, NULL));
    luge_optim_step(s->t->optim);
    if (s->otherwise != LUGE_OK) return luge_fail(s->otherwise, "the trial does not like %d", (int)size);
    return size > s->most ? luge_fail(LUGE_ERR_OUT_OF_MEMORY, "%d do not fit", (int)size) : luge_error();
}

static void the_largest_batch_is_found_and_nothing_changed(void **state)
{
    (void)state;
    static const int64_t most[] = {1, 2, 3, 7, 8, 100, 127, 128};
    for (size_t i = 0; i < sizeof most / sizeof *most; ++i) {
        LUGE_SCOPE("t");
        training t = begin(1), same = begin(1);
        for (int k = 0; k < 4; ++k) step(&t);
        luge_seed(0);
        for (int k = 0; k < 4; ++k) step(&same);
        luge_module_copy(same.net, t.net);
        size_t m, n;
        unsigned char *before = contents_of(&t, &m);
        const luge_run run = run_of(&t);
        search s = {.t = &t, .most = most[i]};
        assert_int_equal(luge_find_batch_size(&run, 128, trial, &s), most[i]);
        assert_in_range(s.calls, 1, 16);
        unsigned char *after = contents_of(&t, &n);
        assert_int_equal(m, n);
        assert_memory_equal(before, after, m);
        free(before);
        free(after);
        end(&same);
        end(&t);
    }
}

static void failing_searches(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    training t = begin(1);
    for (int k = 0; k < 4; ++k) step(&t);
    const luge_run run = run_of(&t);
    search s = {.t = &t, .most = 0};
    assert_int_equal(luge_find_batch_size(&run, 16, trial, &s), 0);
    assert_error(LUGE_ERR_OUT_OF_MEMORY, "luge_find_batch_size: not even one item fits");
    s.otherwise = LUGE_ERR_SHAPE;
    assert_int_equal(luge_find_batch_size(&run, 16, trial, &s), 0);
    assert_error(LUGE_ERR_SHAPE, "the trial does not like 1");
    assert_int_equal(luge_find_batch_size(&run, 0, trial, &s), 0);
    assert_error(LUGE_ERR_ARGUMENT, "the limit must be 1 or more");
    assert_int_equal(luge_optim_steps(t.optim), 1);
    end(&t);
}

#define RUN_TEST(f) cmocka_unit_test_setup_teardown(f, ops_begin, live_end)

static int open_folder(void **state)
{
    (void)state;
    folder_begin();
    return 0;
}
static int close_folder(void **state)
{
    (void)state;
    folder_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_TEST(a_run_resumes_anywhere_with_the_same_bits),
        RUN_TEST(without_a_file_resuming_is_a_fresh_start),
        RUN_TEST(differences_are_reported_at_once),
        RUN_TEST(damaged_files_change_nothing),
        RUN_TEST(bad_runs_are_refused),
        RUN_TEST(older_files_are_kept),
        RUN_TEST(every_failure_leaves_both_whole),
        RUN_TEST(killed_saves_leave_a_whole_file),
        RUN_TEST(the_largest_batch_is_found_and_nothing_changed),
        RUN_TEST(failing_searches),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
