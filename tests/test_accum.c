/* Windows of gradient accumulation, and batches that are split where memory runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/thread.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/ops.h"
#include "tests/support/train.h"

typedef struct line { /* a weight and its optimizer */
    luge_tensor *weight;
    luge_module *module;
    luge_optim *optim;
} line;

static line make(luge_tensor *weight, double lr)
{
    line n = {.weight = weight, .module = luge_nn_params(LUGE_LIST(weight))};
    n.optim = luge_sgd_create(n.module, lr, NULL);
    return n;
}

static void drop(line n)
{
    luge_optim_destroy(n.optim);
    luge_module_destroy(n.module);
}

/* The mean of w x over a few items. */
static luge_tensor *mean_of(luge_tensor *w, luge_tensor *x)
{
    return luge_mean(luge_mul(w, x), LUGE_ALL_AXES);
}

static void ACC_01_the_mean_is_over_items(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    line n = make(PARAM(0), 1);
    luge_accum *a = luge_accum_create(n.optim, 2, NULL);
    assert_int_equal(luge_accum_backward(a, mean_of(n.weight, PARAM(3)), 1), LUGE_OK);
    assert_int_equal(luge_accum_pending(a), 1);
    assert_int_equal(luge_accum_backward(a, mean_of(n.weight, PARAM(1, 1, 1)), 3), LUGE_OK);
    assert_values(n.weight, -1.5);
    assert_null(n.weight->grad);
    assert_int_equal(luge_accum_pending(a), 0);
    /* The larger one first. */
    luge_accum_backward(a, mean_of(n.weight, PARAM(1, 1, 1)), 3);
    luge_accum_backward(a, mean_of(n.weight, PARAM(3)), 1);
    assert_near(at(n.weight, 0), -3, 1e-6);
    luge_accum_destroy(a);
    drop(n);
}

static void ACC_02_short_windows_and_schedules(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    line n = make(PARAM(0), 0.1);
    luge_sched *sched = luge_step_lr_create(n.optim, 1, 0.5);
    luge_accum *a = luge_accum_create(n.optim, 4, &(luge_accum_options){.sched = sched});
    for (int k = 0; k < 3; ++k) luge_accum_backward(a, mean_of(n.weight, PARAM(1)), 1);
    assert_values(n.weight, 0);
    assert_int_equal(luge_accum_flush(a), LUGE_OK); /* the end of the epoch */
    assert_near(at(n.weight, 0), -0.1, 1e-7);
    assert_int_equal(luge_optim_steps(n.optim), 0 + 1);
    assert_int_equal(luge_accum_flush(a), LUGE_OK);
    assert_int_equal(luge_accum_flush(a), LUGE_OK);
    assert_int_equal(luge_optim_steps(n.optim), 1);
    assert_near(luge_optim_lr(n.optim), 0.05, 1e-15);
    luge_accum_destroy(a);
    luge_sched_destroy(sched);

    sched = luge_step_lr_create(n.optim, 1, 0.5);
    a = luge_accum_create(n.optim, 4, &(luge_accum_options){.sched = sched});
    double before = at(n.weight, 0);
    for (int k = 0; k < 8; ++k) {
        luge_accum_backward(a, mean_of(n.weight, PARAM(1)), 1);
        if (k % 4 != 3) continue;
        assert_near(before - at(n.weight, 0), k == 3 ? 0.1 : 0.05, 1e-7);
        before = at(n.weight, 0);
    }
    luge_accum_destroy(a);
    luge_sched_destroy(sched);
    for (int window = 0; window >= -1; --window) {
        assert_null(luge_accum_create(n.optim, window, NULL));
        assert_error(LUGE_ERR_ARGUMENT, window == 0 ? "luge_accum_create: a window has at least 1 micro-batch, not 0"
                                                    : "at least 1 micro-batch, not -1");
    }
    drop(n);
}

static void ACC_03_gradients_are_summed_in_f32(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const int count = on_cpu() ? 5000 : 2100; /* f16 stalls at 2048 */
    line n = make(LUGE_TENSOR(LUGE_SHAPE(1, 1), 0), 1);
    luge_accum *a = luge_accum_create(n.optim, count + 1, NULL);
    luge_tensor *one = LUGE_TENSOR(LUGE_SHAPE(1, 1), 1);
    for (int k = 0; k < count; ++k) {
        LUGE_SCOPE("micro");
        LUGE_AUTOCAST(LUGE_F16);
        luge_accum_backward(a, luge_sum(luge_matmul(one, n.weight), LUGE_ALL_AXES), 1);
    }
    assert_int_equal(luge_tensor_dtype(n.weight->grad), LUGE_F32);
    assert_values(n.weight->grad, count);
    luge_accum_destroy(a);
    drop(n);
}

/* A window of equal batches has the gradient of the pattern by hand, bit for bit where the window is a power of
 * two; a window of one is a plain step. */
static void windows_equal_the_pattern_by_hand(void **state)
{
    (void)state;
    for (int window = 1; window <= 4; window *= 2) {
        LUGE_SCOPE("t");
        luge_seed(5);
        luge_module *m = luge_nn_sequential(luge_nn_linear(6, 5, NULL), luge_nn_tanh(), luge_nn_linear(5, 3, NULL));
        luge_module *by_hand = luge_module_clone(m);
        luge_module_copy(by_hand, m);
        luge_optim *o = luge_adam_create(m, 0.01, NULL), *p = luge_adam_create(by_hand, 0.01, NULL);
        luge_accum *a = luge_accum_create(o, window, &(luge_accum_options){.clip_norm = 0.1});
        for (int k = 1; k <= 8; ++k) {
            LUGE_SCOPE("micro");
            luge_tensor *x = luge_randn(LUGE_SHAPE(4, 6), NULL), *y = luge_randn(LUGE_SHAPE(4, 3), NULL);
            assert_int_equal(luge_accum_backward(a, luge_mse_loss(luge_forward(m, x), y, NULL), 4), LUGE_OK);
            luge_backward(luge_mul_scalar(luge_mse_loss(luge_forward(by_hand, x), y, NULL), 1.0 / window));
            if (k % window != 0) continue;
            luge_clip_grad_norm(p, 0.1);
            luge_optim_step(p);
            luge_optim_zero_grad(p);
        }
        assert_true(same_bits(luge_module_param(m, "0.weight"), luge_module_param(by_hand, "0.weight")));
        assert_true(same_bits(luge_module_param(m, "2.bias"), luge_module_param(by_hand, "2.bias")));
        luge_accum_destroy(a);
        luge_optim_destroy(p);
        luge_optim_destroy(o);
        luge_module_destroy(by_hand);
        luge_module_destroy(m);
    }
}

static void clipping_is_of_the_whole_window(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    line n = make(PARAM(0, 0), 1);
    luge_scaler *s = luge_scaler_create(&(luge_scaler_options){.init_scale = 1024});
    luge_accum *a = luge_accum_create(n.optim, 2, &(luge_accum_options){.scaler = s, .clip_norm = 1, .clip_value = 3.5});
    luge_accum_backward(a, luge_sum(luge_mul(n.weight, PARAM(3, 8)), LUGE_ALL_AXES), 1);
    luge_accum_backward(a, luge_sum(luge_mul(n.weight, PARAM(3, 0)), LUGE_ALL_AXES), 1);
    const double norm = sqrt(3 * 3 + 3.5 * 3.5); /* (3, 4), limited to 3.5 each */
    assert_near(at(n.weight, 0), -3 / norm, 1e-6);
    assert_near(at(n.weight, 1), -3.5 / norm, 1e-6);
    luge_accum_destroy(a);
    luge_scaler_destroy(s);
    drop(n);
}

static void without_a_scaler_an_overflow_is_an_error(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    for (int clip = 0; clip < 3; ++clip) {
        line n = make(PARAM(1), 1);
        luge_accum *a = luge_accum_create(n.optim, 2, &(luge_accum_options){.clip_norm = clip == 1 ? 1 : 0, .clip_value = clip == 2 ? 1 : 0});
        luge_accum_backward(a, mean_of(n.weight, PARAM(clip == 2 ? NAN : INFINITY)), 1); /* infinity is clipped by value */
        luge_status status = luge_accum_backward(a, mean_of(n.weight, PARAM(1)), 1);
        if (!on_cpu()) status = luge_device_sync((luge_device){0});
        assert_int_equal(status, LUGE_ERR_NONFINITE);
        assert_error(LUGE_ERR_NONFINITE, "the norm of the gradients is ");
        luge_error_clear();
        assert_values(n.weight, 1);
        for (int k = 0; k < 2; ++k) assert_int_equal(luge_accum_backward(a, mean_of(n.weight, PARAM(1)), 1), LUGE_OK);
        assert_near(at(n.weight, 0), 0, 1e-5);
        luge_accum_destroy(a);
        drop(n);
    }
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    line n = make(PARAM(1), 1);
    assert_null(luge_accum_create(n.optim, 1, &(luge_accum_options){.clip_norm = -1}));
    assert_error(LUGE_ERR_ARGUMENT, "luge_accum_create: clip_norm must be more than 0, or 0 for none, not -1");
    assert_null(luge_accum_create(n.optim, 1, &(luge_accum_options){.clip_value = NAN}));
    assert_error(LUGE_ERR_ARGUMENT, "clip_value");
    luge_accum *a = luge_accum_create(n.optim, 1, NULL);
    assert_int_equal(luge_accum_backward(a, mean_of(n.weight, PARAM(1)), 0), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_accum_backward: a loss is the mean of at least 1 item, not 0");
    assert_int_equal(luge_accum_backward(a, luge_mul(n.weight, PARAM(1, 2)), 1), LUGE_ERR_SHAPE);
    luge_error_clear();
    assert_int_equal(luge_accum_pending(a), 0);
    assert_null(n.weight->grad);
    luge_accum_destroy(a);
    drop(n);
}

/* Users refer to what they use: it may go in any order. */
static void things_may_go_in_any_order(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    line n = make(PARAM(1), 1);
    luge_scaler *s = luge_scaler_create(NULL);
    luge_sched *sched = luge_constant_lr_create(n.optim);
    luge_accum *a = luge_accum_create(n.optim, 1, &(luge_accum_options){.scaler = s, .sched = sched});
    luge_sched_destroy(sched);
    luge_scaler_destroy(s);
    drop(n);
    assert_int_equal(luge_accum_backward(a, mean_of(n.weight, PARAM(1)), 1), LUGE_OK);
    assert_near(at(n.weight, 0), 0, 1e-6);
    luge_accum_destroy(a);
}

/* ---- splitting */

typedef struct task {
    luge_module *net;
    int calls;
    int most;      /* items that fit, 0: any number */
    int fail_from; /* calls from this one on find no memory, 0: none */
} task;

/* Memory runs out behind the forward, which has drawn random numbers and updated statistics. */
static luge_tensor *loss_of(luge_tensor *input, luge_tensor *target, void *user)
{
    task *t = user;
    luge_tensor *loss = luge_cross_entropy(luge_forward(t->net, input), target, NULL);
    ++t->calls;
    if ((t->most > 0 && luge_tensor_shape(input).dim[0] > t->most) || (t->fail_from > 0 && t->calls >= t->fail_from)) {
        luge_fail(LUGE_ERR_OUT_OF_MEMORY, "call %d finds no memory", t->calls);
        return NULL;
    }
    return loss;
}

typedef struct training {
    task task;
    luge_module *net;
    luge_optim *optim;
    luge_batch batch;
} training;

static training start(bool with_norm, double dropout)
{
    luge_seed(11);
    training t = {0};
    t.net = with_norm ? luge_nn_sequential(luge_nn_linear(12, 16, NULL), luge_nn_batch_norm1d(16, NULL), luge_nn_relu(),
                                           luge_nn_dropout(dropout), luge_nn_linear(16, 4, NULL))
                      : luge_nn_sequential(luge_nn_linear(12, 16, NULL), luge_nn_relu(), luge_nn_dropout(dropout),
                                           luge_nn_linear(16, 4, NULL));
    t.task.net = t.net;
    t.optim = luge_sgd_create(t.net, 0.1, NULL);
    t.batch = (luge_batch){.input = luge_randn(LUGE_SHAPE(13, 12), NULL), .target = luge_randint(0, 4, LUGE_SHAPE(13)), .size = 13};
    assert_ok();
    return t;
}

static void finish(training *t)
{
    luge_optim_destroy(t->optim);
    luge_module_destroy(t->net);
}

static void parts_have_the_gradient_of_the_whole(void **state)
{
    (void)state;
    for (int scaled = 0; scaled < 2; ++scaled)
        for (int most = 12; most >= 1; most = most * 2 / 3) {
            LUGE_SCOPE("t");
            training t = start(false, 0);
            luge_scaler *s = scaled ? luge_scaler_create(NULL) : NULL;
            luge_accum *a = luge_accum_create(t.optim, 100, &(luge_accum_options){.scaler = s});
            luge_tensor *weight = luge_module_param(t.net, "0.weight");
            assert_int_equal(luge_accum_step(a, &t.batch, loss_of, &t.task), LUGE_OK);
            luge_tensor *whole = luge_clone(weight->grad), *twice = luge_mul_scalar(whole, 2);
            assert_int_equal(t.task.calls, 1);
            t.task.most = most;
            assert_int_equal(luge_accum_step(a, &t.batch, loss_of, &t.task), LUGE_OK); /* beside what is there */
            assert_close(weight->grad, twice, 1e-6, "parts");
            assert_int_equal(luge_accum_splits(a), 1);
            assert_int_equal(luge_accum_pending(a), 2);
            luge_accum_destroy(a);
            luge_scaler_destroy(s);
            finish(&t);
        }
}

/* What a step may change. */
typedef struct snapshot {
    luge_tensor *grad, *mean, *var, *batches;
    uint64_t offset;
} snapshot;

static luge_tensor *copy_of(luge_tensor *t)
{
    return t != NULL ? luge_clone(t) : NULL;
}

static snapshot snapshot_of(const training *t)
{
    return (snapshot){copy_of(luge_module_param(t->net, "0.weight")->grad), luge_clone(luge_module_buffer(t->net, "1.running_mean")),
                      luge_clone(luge_module_buffer(t->net, "1.running_var")),
                      luge_clone(luge_module_buffer(t->net, "1.num_batches_tracked")), lg_self()->rng_offset};
}

static void assert_same(const snapshot *a, const snapshot *b)
{
    assert_true((a->grad == NULL) == (b->grad == NULL));
    if (a->grad != NULL) assert_true(same_bits(a->grad, b->grad));
    assert_true(same_bits(a->mean, b->mean));
    assert_true(same_bits(a->var, b->var));
    assert_true(same_bits(a->batches, b->batches));
    assert_true(a->offset == b->offset);
}

/* A failure in the middle takes back what parts before it have done. */
static void what_does_not_fit_at_all_changes_nothing(void **state)
{
    (void)state;
    for (int pending = 0; pending < 2; ++pending) {
        LUGE_SCOPE("t");
        training t = start(true, 0.5);
        luge_accum *a = luge_accum_create(t.optim, 3, NULL);
        if (pending) assert_int_equal(luge_accum_step(a, &t.batch, loss_of, &t.task), LUGE_OK);
        const snapshot before = snapshot_of(&t);
        t.task.most = 7;
        t.task.fail_from = t.task.calls + 3; /* 13 do not fit, 7 do, then nothing: at last BatchNorm refuses a single item */
        assert_int_equal(luge_accum_step(a, &t.batch, loss_of, &t.task), LUGE_ERR_OUT_OF_MEMORY);
        assert_error(LUGE_ERR_OUT_OF_MEMORY, "finds no memory; in smaller parts: t.Sequential.1: batch_norm: training needs");
        luge_error_clear();
        const snapshot after = snapshot_of(&t);
        assert_same(&before, &after);
        assert_int_equal(luge_accum_pending(a), pending);
        assert_int_equal(luge_accum_splits(a), 0);
        t.task.fail_from = 0;
        assert_int_equal(luge_accum_step(a, &t.batch, loss_of, &t.task), LUGE_OK);
        assert_int_equal(luge_accum_splits(a), 1);
        luge_accum_destroy(a);
        finish(&t);
    }
}

/* The first part begins with the random numbers of the attempt that it replaces, and statistics are of the
 * parts alone. */
static void parts_see_no_trace_of_the_attempt(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    training t = start(true, 0.5), other = start(true, 0.5);
    luge_accum *a = luge_accum_create(t.optim, 100, NULL), *b = luge_accum_create(other.optim, 100, NULL);
    luge_module_copy(other.net, t.net);
    t.task.most = 7;
    luge_seed(1);
    assert_int_equal(luge_accum_step(a, &t.batch, loss_of, &t.task), LUGE_OK);
    luge_seed(1);
    for (int k = 0; k < 2; ++k) {
        const int64_t from = k == 0 ? 0 : 7, to = k == 0 ? 7 : 13;
        luge_tensor *loss = loss_of(luge_slice(t.batch.input, 0, from, to), luge_slice(t.batch.target, 0, from, to), &other.task);
        assert_int_equal(luge_backward(luge_mul_scalar(loss, (double)(to - from) / 13)), LUGE_OK);
    }
    const snapshot parts = snapshot_of(&t), by_hand = snapshot_of(&other);
    assert_same(&parts, &by_hand);
    luge_accum_destroy(b);
    luge_accum_destroy(a);
    finish(&other);
    finish(&t);
}

/* Each allocation fails in turn: the gradient is the whole one's, or all is as before. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    int split = 0, refused = 0;
    for (int kind = 0; kind < 2; ++kind) {
        const lg_fault_kind fault = kind == 0 ? LG_FAULT_DEVICE : LG_FAULT_HOST;
        bool hit = true;
        for (int64_t nth = 1; hit; ++nth) {
            LUGE_SCOPE("t");
            training t = start(false, 0);
            luge_scaler *s = luge_scaler_create(NULL);
            luge_accum *a = luge_accum_create(t.optim, 2, &(luge_accum_options){.scaler = s, .clip_norm = 100});
            luge_tensor *weight = luge_module_param(t.net, "0.weight"), *before = luge_clone(weight);
            assert_int_equal(luge_accum_step(a, &t.batch, loss_of, &t.task), LUGE_OK);
            luge_tensor *grad = luge_clone(weight->grad);
            luge_memory_empty_cache((luge_device){0});
            lg_fault_set(fault, nth);
            const luge_status status = luge_accum_step(a, &t.batch, loss_of, &t.task);
            hit = lg_fault_hit(fault);
            lg_fault_set(fault, 0);
            split += (int)luge_accum_splits(a);
            if (status != LUGE_OK) {
                ++refused;
                assert_int_equal(status, LUGE_ERR_OUT_OF_MEMORY);
                luge_error_clear();
                assert_true(same_bits(before, weight));
                if (luge_accum_pending(a) == 1) {
                    assert_true(same_bits(grad, weight->grad));
                    assert_int_equal(luge_accum_step(a, &t.batch, loss_of, &t.task), LUGE_OK);
                } else { /* the step itself */
                    assert_int_equal(luge_accum_flush(a), LUGE_OK);
                }
            }
            assert_int_equal(luge_accum_pending(a), 0);
            luge_tensor *should = luge_sub(before, luge_mul_scalar(grad, 0.1 / 65536));
            assert_close(weight, should, 1e-6, "weight");
            luge_accum_destroy(a);
            luge_scaler_destroy(s);
            finish(&t);
        }
    }
    assert_true(split > 5 && refused > 0);
}

/* ---- a limit of memory, as a smaller card has it */

static luge_module *lenet(void)
{
    return luge_nn_sequential(luge_nn_conv2d(1, 8, 3, NULL), luge_nn_relu(), luge_nn_conv2d(8, 16, 3, NULL), luge_nn_relu(),
                              luge_nn_max_pool2d(2, NULL), luge_nn_flatten(), luge_nn_linear(16 * 6 * 6, 10, NULL));
}

static int64_t allocated(void) { return luge_memory_get_stats((luge_device){0}).allocated_bytes; }
static int64_t peak(void) { return luge_memory_get_stats((luge_device){0}).allocated_peak; }

static void limits_of_memory_split_batches(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const int64_t items = on_cpu() ? 64 : 24;
    luge_seed(2);
    luge_module *net = lenet();
    luge_optim *o = luge_sgd_create(net, 0.1, NULL);
    task work = {.net = net};
    const luge_batch batch = {.input = luge_randn(LUGE_SHAPE(items, 1, 16, 16), NULL), .target = luge_randint(0, 10, LUGE_SHAPE(items)), .size = items};
    luge_accum *a = luge_accum_create(o, 100, NULL);
    luge_tensor *weight = luge_module_param(net, "2.weight");
    assert_int_equal(luge_accum_step(a, &batch, loss_of, &work), LUGE_OK); /* makes what stays */
    luge_optim_zero_grad(o);
    const int64_t base = allocated();
    luge_memory_reset_peak((luge_device){0});
    assert_int_equal(luge_accum_step(a, &batch, loss_of, &work), LUGE_OK);
    const int64_t plain = peak();
    assert_true((double)(plain - base) > 0.8 * (double)plain); /* activations */
    luge_tensor *whole = luge_clone(weight->grad);
    luge_optim_zero_grad(o);
    static const int percent[] = {90, 70, 50, 30, 1};
    for (size_t i = 0; i < sizeof percent / sizeof *percent; ++i) {
        luge_memory_empty_cache((luge_device){0});
        const int64_t before = allocated(), limit = percent[i] > 1 ? plain * percent[i] / 100 : before + 4096;
        assert_int_equal(luge_set_memory_limit((luge_device){0}, limit), LUGE_OK);
        const luge_status status = luge_accum_step(a, &batch, loss_of, &work);
        luge_set_memory_limit((luge_device){0}, 0);
        if (percent[i] == 1) {
            assert_int_equal(status, LUGE_ERR_OUT_OF_MEMORY);
            assert_true(strlen(luge_error_text()) > 40);
            luge_error_clear();
        } else {
            assert_int_equal(status, LUGE_OK);
            assert_close(weight->grad, whole, 1e-6, "in parts");
            assert_int_equal(luge_accum_splits(a), (int)i + 1);
        }
        luge_optim_zero_grad(o);
        assert_int_equal(allocated(), before);
    }
    luge_accum_destroy(a);
    luge_optim_destroy(o);
    luge_module_destroy(net);
}

static void unfit_batches_are_refused(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    training t = start(false, 0);
    luge_accum *a = luge_accum_create(t.optim, 2, NULL);
    luge_batch wrong = t.batch;
    wrong.size = 12;
    assert_int_equal(luge_accum_step(a, &wrong, loss_of, &t.task), LUGE_ERR_SHAPE);
    assert_error(LUGE_ERR_SHAPE, "luge_accum_step: a batch of 12 items cannot have input [13, 12]");
    wrong = t.batch;
    wrong.target = luge_zeros(LUGE_SHAPE(5), NULL);
    assert_int_equal(luge_accum_step(a, &wrong, loss_of, &t.task), LUGE_ERR_SHAPE);
    assert_error(LUGE_ERR_SHAPE, "target [5]");
    wrong.target = NULL;
    assert_int_equal(luge_accum_step(a, &wrong, loss_of, &t.task), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    assert_int_equal(t.task.calls, 0);
    assert_int_equal(luge_accum_pending(a), 0);
    luge_accum_destroy(a);
    finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(ACC_01_the_mean_is_over_items),
        OP_TEST(ACC_02_short_windows_and_schedules),
        OP_TEST(ACC_03_gradients_are_summed_in_f32),
        OP_TEST(windows_equal_the_pattern_by_hand),
        OP_TEST(clipping_is_of_the_whole_window),
        OP_TEST(without_a_scaler_an_overflow_is_an_error),
        OP_TEST(bad_input_is_refused),
        OP_TEST(things_may_go_in_any_order),
        OP_TEST(parts_have_the_gradient_of_the_whole),
        OP_TEST(what_does_not_fit_at_all_changes_nothing),
        OP_TEST(parts_see_no_trace_of_the_attempt),
        OP_TEST(every_allocation_may_fail),
        OP_TEST(limits_of_memory_split_batches),
        OP_TEST(unfit_batches_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
