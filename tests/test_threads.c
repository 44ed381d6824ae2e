/* Several host threads use Luge at once: each has its own error, scopes, modes and random numbers, nets
 * may be shared while nobody changes them, graphs may change hands, and nothing that is computed depends
 * on who else is computing or on how many threads the pool has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <luge/luge.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/compare.h"
#include "tests/support/live.h"

/* ---- nets and training runs */

static luge_module *mlp(int64_t in, int64_t hidden, int64_t out)
{
    return luge_nn_sequential(luge_nn_linear(in, hidden, NULL), luge_nn_gelu(), luge_nn_layer_norm(LUGE_SHAPE(hidden), NULL),
                              luge_nn_dropout(0.1), luge_nn_linear(hidden, out, NULL));
}

static luge_module *lenet(void)
{
    return luge_nn_sequential(luge_nn_conv2d(1, 6, 5, &(luge_conv2d_options){.padding = 2}), luge_nn_batch_norm2d(6, NULL),
                              luge_nn_relu(), luge_nn_max_pool2d(2, NULL), luge_nn_conv2d(6, 16, 5, NULL), luge_nn_tanh(),
                              luge_nn_avg_pool2d(2, NULL), luge_nn_flatten(), luge_nn_linear(16 * 5 * 5, 84, NULL),
                              luge_nn_relu(), luge_nn_linear(84, 10, NULL));
}

/* Steps on random images (or rows) and labels, drawn from this thread's random numbers. */
static void train(luge_module *net, luge_shape batch, int64_t classes, int steps)
{
    luge_optim *optim = luge_adam_create(net, 1e-2, NULL);
    for (int i = 0; i < steps && luge_ok(); ++i) {
        LUGE_SCOPE("step");
        luge_tensor *y = luge_forward(net, luge_randn(batch, NULL));
        luge_tensor *loss = luge_cross_entropy(y, luge_randint(0, classes, LUGE_SHAPE(batch.dim[0])), NULL);
        luge_optim_zero_grad(optim);
        luge_backward(loss);
        luge_clip_grad_norm(optim, 1);
        luge_optim_step(optim);
    }
    luge_optim_destroy(optim);
}

/* All parameters and buffers, one after another; malloc'd. */
typedef struct bytes {
    unsigned char *data;
    size_t count;
} bytes;

static void append(const char *name, luge_tensor *t, void *user)
{
    (void)name;
    bytes *b = user;
    const luge_dtype dtype = luge_tensor_dtype(t);
    const size_t more = (size_t)luge_tensor_numel(t) * luge_dtype_size(dtype);
    unsigned char *bigger = realloc(b->data, b->count + more);
    if (bigger == NULL) {
        luge_fail(LUGE_ERR_OUT_OF_MEMORY, "no room for %zu bytes", b->count + more);
        return;
    }
    b->data = bigger;
    if (luge_to_array(t, bigger + b->count, dtype, luge_tensor_numel(t)) == LUGE_OK) b->count += more;
}

static bytes bytes_of(luge_module *net)
{
    bytes b = {0};
    luge_module_each_param(net, append, &b);
    luge_module_each_buffer(net, append, &b);
    return b;
}

static bool same_bytes(bytes a, bytes b)
{
    return a.count > 0 && a.count == b.count && memcmp(a.data, b.data, a.count) == 0;
}

/* ---- threads, and what they found */

typedef struct job {
    pthread_t thread;
    int number;
    bytes result;
    luge_module *net;                  /* shared */
    luge_tensor *given, *made;         /* handed over, with a reference */
    const char *wrong;                 /* what the thread saw that it should not have */
    luge_status status;
    char text[200];
} job;

enum { JOBS = 4 };

/* The thread ends with its error asked about, so that it is here and not in the log. */
static void note_error(job *j) { j->status = luge_error_take(j->text, sizeof j->text); }

static void run_all(job *jobs, void *(*work)(void *))
{
    for (int i = 0; i < JOBS; ++i) {
        jobs[i].number = i;
        assert_int_equal(pthread_create(&jobs[i].thread, NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < JOBS; ++i) assert_int_equal(pthread_join(jobs[i].thread, NULL), 0);
    for (int i = 0; i < JOBS; ++i) {
        if (jobs[i].wrong != NULL) fail_msg("thread %d: %s", i, jobs[i].wrong);
    }
}

static void run_one(job *j, void *(*work)(void *))
{
    assert_int_equal(pthread_create(&j->thread, NULL, work, j), 0);
    assert_int_equal(pthread_join(j->thread, NULL), 0);
    if (j->wrong != NULL) fail_msg("%s", j->wrong);
}

static void assert_fine(const job *j)
{
    if (j->status != LUGE_OK) fail_msg("thread %d: %s", j->number, j->text);
}

/* ---- training at once */

static void *train_own_net(void *arg)
{
    job *j = arg;
    luge_seed((uint64_t)j->number);
    const int64_t in = 64 + 16 * j->number;
    luge_module *net = j->number % 2 == 0 ? mlp(in, 128, 5) : lenet();
    train(net, j->number % 2 == 0 ? LUGE_SHAPE(64, in) : LUGE_SHAPE(8, 1, 28, 28), 5, 6);
    j->result = bytes_of(net);
    luge_module_destroy(net);
    note_error(j);
    return NULL;
}

static void nets_trained_at_once_come_out_as_alone(void **state)
{
    (void)state;
    job alone[JOBS] = {{0}}, together[JOBS] = {{0}};
    for (int i = 0; i < JOBS; ++i) {
        alone[i].number = i;
        run_one(&alone[i], train_own_net);
        assert_fine(&alone[i]);
    }
    run_all(together, train_own_net);
    for (int i = 0; i < JOBS; ++i) {
        assert_fine(&together[i]);
        if (!same_bytes(alone[i].result, together[i].result)) fail_msg("net %d came out differently", i);
        free(alone[i].result.data);
        free(together[i].result.data);
    }
}

/* ---- one net for all */

enum { PREDICTIONS = 20 };

static luge_tensor *question(int number)
{
    luge_seed((uint64_t)(100 + number));
    return luge_randn(LUGE_SHAPE(3, 1, 28, 28), NULL);
}

static void *predict(void *arg)
{
    job *j = arg;
    LUGE_NO_GRAD();
    for (int i = 0; i < PREDICTIONS && luge_ok(); ++i) {
        LUGE_SCOPE("predict");
        luge_tensor *y = luge_forward(j->net, question(j->number + i));
        luge_assign(&j->made, y);
        luge_tensor *again = luge_forward(j->net, question(j->number + i));
        if (luge_ok() && !same_bits(y, again)) j->wrong = "the same question was answered differently";
        if (luge_tensor_requires_grad(y)) j->wrong = "a graph was recorded";
    }
    note_error(j);
    return NULL;
}

static void threads_predict_with_one_net_while_another_is_trained(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_seed(1);
    luge_module *net = lenet();
    luge_module_eval(net);
    job jobs[JOBS] = {{0}};
    job trainer = {.number = 1};
    for (int i = 0; i < JOBS; ++i) jobs[i].net = net;
    assert_int_equal(pthread_create(&trainer.thread, NULL, train_own_net, &trainer), 0);
    run_all(jobs, predict);
    assert_int_equal(pthread_join(trainer.thread, NULL), 0);
    assert_fine(&trainer);
    LUGE_NO_GRAD();
    for (int i = 0; i < JOBS; ++i) {
        assert_fine(&jobs[i]);
        assert_true(same_bits(jobs[i].made, luge_forward(net, question(i + PREDICTIONS - 1))));
        luge_release(jobs[i].made);
    }
    free(trainer.result.data);
    luge_module_destroy(net);
}

/* ---- errors */

static pthread_barrier_t together;

/* Odd threads have an error standing while even ones work. */
static void *fail_or_work(void *arg)
{
    job *j = arg;
    LUGE_SCOPE(j->number % 2 == 0 ? "works" : "fails");
    luge_tensor *a = luge_ones(LUGE_SHAPE(2, 3), NULL), *b = luge_ones(LUGE_SHAPE(3, 4), NULL);
    if (j->number % 2 != 0) luge_matmul(b, a);
    pthread_barrier_wait(&together);
    luge_tensor *product = luge_matmul(a, b);
    if ((product == NULL) != (j->number % 2 != 0)) j->wrong = "the other threads' error was seen, or the own one was not";
    if (luge_ok() && luge_item(luge_sum(product, LUGE_ALL_AXES)) != 24) j->wrong = "a wrong product";
    pthread_barrier_wait(&together);
    note_error(j);
    return NULL;
}

static void errors_stay_in_their_thread(void **state)
{
    (void)state;
    job jobs[JOBS] = {{0}};
    pthread_barrier_init(&together, NULL, JOBS);
    luge_fail(LUGE_ERR_IO, "the main thread's");
    run_all(jobs, fail_or_work);
    pthread_barrier_destroy(&together);
    assert_error(LUGE_ERR_IO, "the main thread's");
    for (int i = 0; i < JOBS; ++i) {
        assert_int_equal(jobs[i].status, i % 2 == 0 ? LUGE_OK : LUGE_ERR_SHAPE);
        if (i % 2 != 0) assert_non_null(strstr(jobs[i].text, "fails: matmul"));
    }
}

static char logged[256];

static void keep_log(luge_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == LUGE_LOG_ERROR) snprintf(logged, sizeof logged, "%s", text);
}

static void *leave_with_an_error(void *arg)
{
    (void)arg;
    luge_scope_enter("left open");
    luge_matmul(luge_ones(LUGE_SHAPE(2, 3), NULL), luge_ones(LUGE_SHAPE(2, 3), NULL));
    return NULL;
}

static void an_error_that_nobody_asked_about_goes_to_the_log(void **state)
{
    (void)state;
    job j = {0};
    luge_set_log(keep_log, NULL);
    run_one(&j, leave_with_an_error);
    luge_set_log(NULL, NULL);
    assert_non_null(strstr(logged, "left open: matmul"));
    assert_true(luge_ok());
    assert_int_equal(live_now().tensors, 0); /* what the thread left in its scopes went with it */
}

/* ---- scopes and modes */

/* Each thread is in another mode while all compute. */
static void *work_in_a_mode(void *arg)
{
    job *j = arg;
    LUGE_SCOPE("outer");
    luge_tensor *w = luge_requires_grad_(luge_ones(LUGE_SHAPE(4, 4), NULL));
    luge_scope mode = luge_scope_enter("mode");
    if (j->number == 1) luge_no_grad_enter();
    if (j->number == 2) luge_autocast_enter(LUGE_BF16);
    if (j->number == 3) luge_anomaly_enter();
    pthread_barrier_wait(&together);
    for (int i = 0; i < 200; ++i) {
        LUGE_SCOPE("inner");
        luge_tensor *y = luge_matmul(w, w);
        if (luge_tensor_requires_grad(y) != (j->number != 1)) j->wrong = "grad mode is not this thread's";
        if (luge_tensor_dtype(y) != (j->number == 2 ? LUGE_BF16 : LUGE_F32)) j->wrong = "autocast is not this thread's";
    }
    luge_log(luge_full(LUGE_SCALAR, -1, NULL)); /* NaN */
    if ((luge_error() == LUGE_ERR_NONFINITE) != (j->number == 3)) j->wrong = "anomaly mode is not this thread's";
    luge_error_clear();
    pthread_barrier_wait(&together);
    luge_scope_exit(mode, NULL);
    luge_tensor *y = luge_matmul(w, w);
    if (!luge_tensor_requires_grad(y) || luge_tensor_dtype(y) != LUGE_F32) j->wrong = "a mode outlived its scope";
    note_error(j);
    return NULL;
}

static void scopes_and_modes_are_each_threads_own(void **state)
{
    (void)state;
    LUGE_SCOPE("main");
    LUGE_NO_GRAD();
    LUGE_AUTOCAST(LUGE_F16);
    job jobs[JOBS] = {{0}};
    pthread_barrier_init(&together, NULL, JOBS);
    run_all(jobs, work_in_a_mode);
    pthread_barrier_destroy(&together);
    for (int i = 0; i < JOBS; ++i) assert_fine(&jobs[i]);
    luge_tensor *w = luge_ones(LUGE_SHAPE(4, 4), NULL);
    assert_int_equal(luge_tensor_dtype(luge_matmul(w, w)), LUGE_F16);
}

static void *draw(void *arg)
{
    job *j = arg;
    if (j->number > 0) luge_seed((uint64_t)j->number % 2);
    for (int i = 0; i < 50; ++i) luge_assign(&j->made, luge_rand(LUGE_SHAPE(100), NULL));
    note_error(j);
    return NULL;
}

static void random_numbers_are_each_threads_own(void **state)
{
    (void)state;
    job jobs[JOBS] = {{0}};
    run_all(jobs, draw);
    assert_true(same_bits(jobs[0].made, jobs[2].made)); /* the seed without luge_seed is 0 */
    assert_true(same_bits(jobs[1].made, jobs[3].made));
    assert_false(same_bits(jobs[0].made, jobs[1].made));
    for (int i = 0; i < JOBS; ++i) luge_release(jobs[i].made);
}

/* ---- graphs that change hands */

/* loss = sum (x w^T)^2, made by a thread that is gone when its graph is used. */
static void *make_loss(void *arg)
{
    job *j = arg;
    LUGE_SCOPE("make");
    luge_tensor *y = luge_linear(luge_ones(LUGE_SHAPE(5, 3), NULL), j->given, LUGE_NONE);
    luge_assign(&j->made, luge_sum(luge_square(y), LUGE_ALL_AXES));
    note_error(j);
    return NULL;
}

static void *backward_of_given(void *arg)
{
    job *j = arg;
    luge_backward(j->given);
    luge_release(j->given); /* the graph's last reference: freed here */
    note_error(j);
    return NULL;
}

static void a_graph_is_made_in_one_thread_and_walked_in_another(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6));
    job maker = {.given = w};
    run_one(&maker, make_loss);
    assert_fine(&maker);
    job walker = {.given = maker.made};
    run_one(&walker, backward_of_given);
    assert_fine(&walker);
    assert_values(luge_tensor_grad(w), 60, 60, 60, 150, 150, 150); /* 2 * 5 * row sum */
}

/* All over the same leaves: what they collect is the sum, whoever comes first. */
static void graphs_over_shared_leaves_are_walked_at_once(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *w = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6));
    job makers[JOBS] = {{0}}, walkers[JOBS] = {{0}};
    for (int i = 0; i < JOBS; ++i) makers[i].given = w;
    run_all(makers, make_loss);
    for (int i = 0; i < JOBS; ++i) {
        assert_fine(&makers[i]);
        walkers[i].given = makers[i].made;
    }
    run_all(walkers, backward_of_given);
    for (int i = 0; i < JOBS; ++i) assert_fine(&walkers[i]);
    assert_values(luge_tensor_grad(w), 240, 240, 240, 600, 600, 600);
}

/* ---- the number of threads in the pool */

static bytes train_with(int threads, bool images)
{
    assert_int_equal(luge_set_num_threads(threads), LUGE_OK);
    assert_int_equal(luge_num_threads(), threads);
    luge_seed(11);
    luge_module *net = images ? lenet() : mlp(784, 256, 10);
    train(net, images ? LUGE_SHAPE(32, 1, 28, 28) : LUGE_SHAPE(128, 784), 10, 4);
    if (!luge_ok()) fail_msg("%s", luge_error_text());
    const bytes result = bytes_of(net);
    luge_module_destroy(net);
    return result;
}

static void compare_numbers_of_threads(bool images)
{
    const int before = luge_num_threads();
    const bytes first = train_with(1, images);
    for (int threads = 1; threads <= 3; ++threads) {
        const bytes now = train_with(threads, images);
        if (!same_bytes(first, now)) fail_msg("%d threads made other numbers than 1", threads);
        free(now.data);
    }
    free(first.data);
    assert_int_equal(luge_set_num_threads(before), LUGE_OK);
}

static void an_mlp_learns_the_same_with_any_number_of_threads(void **state)
{
    (void)state;
    compare_numbers_of_threads(false);
}

static void a_lenet_learns_the_same_with_any_number_of_threads(void **state)
{
    (void)state;
    compare_numbers_of_threads(true);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    alarm(250); /* threads that wait for each other for ever */
    const struct CMUnitTest tests[] = {
        TEST(nets_trained_at_once_come_out_as_alone),
        TEST(threads_predict_with_one_net_while_another_is_trained),
        TEST(errors_stay_in_their_thread),
        TEST(an_error_that_nobody_asked_about_goes_to_the_log),
        TEST(scopes_and_modes_are_each_threads_own),
        TEST(random_numbers_are_each_threads_own),
        TEST(a_graph_is_made_in_one_thread_and_walked_in_another),
        TEST(graphs_over_shared_leaves_are_walked_at_once),
        TEST(an_mlp_learns_the_same_with_any_number_of_threads),
        TEST(a_lenet_learns_the_same_with_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
