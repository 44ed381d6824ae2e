/* The dynamic scale of losses: PyTorch's sequences, the order of calls, several optimizers, what a step
 * that is left out leaves alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "core/fault.h"
#include "core/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/golden.h"
#include "tests/support/ops.h"
#include "tests/support/train.h"

typedef struct net {
    luge_tensor *weight;
    luge_module *module;
    luge_optim *optim;
} net;

static net make(luge_tensor *weight, double lr)
{
    net n = {.weight = weight, .module = luge_nn_params(LUGE_LIST(weight))};
    n.optim = luge_sgd_create(n.module, lr, NULL);
    return n;
}

static void drop(net n)
{
    luge_optim_destroy(n.optim);
    luge_module_destroy(n.module);
}

static luge_scaler *scaler_of(double scale)
{
    return luge_scaler_create(&(luge_scaler_options){.init_scale = scale});
}

static void values_are_scaled_and_unscaled(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net n = make(PARAM(1, 2), 0.5);
    luge_scaler *s = scaler_of(1024);
    assert_values(luge_scaler_scale(s, luge_sum(luge_mul_scalar(n.weight, 3), LUGE_ALL_AXES)), 9216);
    luge_backward(luge_scaler_scale(s, luge_sum(luge_mul_scalar(n.weight, 3), LUGE_ALL_AXES)));
    assert_values(n.weight->grad, 3072, 3072);
    assert_int_equal(luge_scaler_unscale(s, n.optim), LUGE_OK);
    assert_values(n.weight->grad, 3, 3);
    assert_int_equal(luge_scaler_step(s, n.optim), LUGE_OK);
    assert_values(n.weight, -0.5, 0.5);
    assert_false(luge_scaler_skipped(s, n.optim));
    assert_int_equal(luge_scaler_update(s), LUGE_OK);
    assert_near(luge_scaler_value(s), 1024, 0);
    /* A loss in f16 is scaled in f32, one in f64 in f64. */
    luge_tensor *half = luge_scaler_scale(s, luge_cast(LUGE_TENSOR(LUGE_SCALAR, 100), LUGE_F16));
    assert_int_equal(luge_tensor_dtype(half), LUGE_F32);
    assert_values(half, 102400);
    assert_int_equal(luge_tensor_dtype(luge_scaler_scale(s, luge_cast(LUGE_TENSOR(LUGE_SCALAR, 1), LUGE_F64))), LUGE_F64);
    luge_scaler_destroy(s);
    drop(n);
}

/* 200 random patterns of overflows, with settings of all kinds. */
static void sequences_are_pytorchs(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    golden *g = golden_open("amp.safetensors");
    double *settings = values_of(golden_get(g, "scaler/settings")), *overflow = values_of(golden_get(g, "scaler/overflow")),
           *scale = values_of(golden_get(g, "scaler/scale")), *weight = values_of(golden_get(g, "scaler/weight"));
    enum { STEPS = 40 };
    const int runs = on_cpu() ? 200 : 20;
    for (int r = 0; r < runs; ++r) {
        LUGE_SCOPE("run");
        luge_tensor *w = PARAM(0);
        luge_module *m = luge_nn_params(LUGE_LIST(w));
        luge_optim *o = luge_adam_create(m, 0.1, NULL);
        luge_scaler *s = luge_scaler_create(&(luge_scaler_options){.init_scale = settings[4 * r],
                                                                   .growth_factor = settings[4 * r + 1],
                                                                   .backoff_factor = settings[4 * r + 2],
                                                                   .growth_interval = (int64_t)settings[4 * r + 3]});
        for (int k = 0; k < STEPS; ++k) {
            LUGE_SCOPE("step");
            const int at_step = r * STEPS + k;
            luge_optim_zero_grad(o);
            luge_tensor *loss = luge_sum(luge_mul_scalar(w, overflow[at_step] != 0 ? INFINITY : 0.5), LUGE_ALL_AXES);
            luge_backward(luge_scaler_scale(s, loss));
            luge_scaler_step(s, o);
            assert_true(luge_scaler_skipped(s, o) == (overflow[at_step] != 0));
            assert_int_equal(luge_scaler_update(s), LUGE_OK);
            assert_near(luge_scaler_value(s), scale[at_step], 0);
            assert_near(at(w, 0), weight[at_step], 2e-6);
        }
        luge_scaler_destroy(s);
        luge_optim_destroy(o);
        luge_module_destroy(m);
    }
    free(settings);
    free(overflow);
    free(scale);
    free(weight);
    golden_close(g);
}

static void SCL_01_the_scale_never_becomes_zero(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net n = make(PARAM(1), 0.1);
    luge_scaler *s = scaler_of(65536), *floored = luge_scaler_create(&(luge_scaler_options){.min_scale = 8});
    int errors = 0;
    for (int k = 0; k < 1200; ++k) {
        SET_GRAD(n.weight, INFINITY);
        assert_int_equal(luge_scaler_unscale(s, n.optim), LUGE_OK);
        assert_int_equal(luge_scaler_step(s, n.optim), LUGE_OK);
        luge_status status = luge_scaler_update(s);
        if (status == LUGE_OK && !on_cpu()) status = luge_device_sync((luge_device){0});
        assert_int_equal(status, k < 99 ? LUGE_OK : LUGE_ERR_NONFINITE);
        if (status == LUGE_OK) continue;
        if (errors++ == 0) assert_error(LUGE_ERR_NONFINITE, "gradients overflowed in 100 steps in a row, down to a scale of ");
        luge_error_clear();
    }
    assert_near(luge_scaler_value(s), 0x1p-126, 0);
    assert_values(n.weight, 1);
    for (int k = 0; k < 30; ++k) {
        SET_GRAD(n.weight, NAN);
        luge_scaler_step(floored, n.optim);
        luge_scaler_update(floored);
    }
    assert_near(luge_scaler_value(floored), 8, 0);
    luge_scaler_destroy(floored);
    luge_scaler_destroy(s);
    drop(n);
}

static void the_scale_stays_finite(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net n = make(PARAM(0), 0.1);
    luge_scaler *s = luge_scaler_create(&(luge_scaler_options){.growth_interval = 1}),
                *bounded = luge_scaler_create(&(luge_scaler_options){.growth_interval = 1, .max_scale = 1e6});
    for (int k = 0; k < 150; ++k) {
        SET_GRAD(n.weight, 0);
        luge_scaler_step(s, n.optim);
        luge_scaler_update(s);
        luge_scaler_step(bounded, n.optim);
        luge_scaler_update(bounded);
    }
    assert_near(luge_scaler_value(s), 0x1p127, 0);
    assert_near(luge_scaler_value(bounded), 524288, 0);
    luge_scaler_destroy(bounded);
    luge_scaler_destroy(s);
    drop(n);
}

static void SCL_02_a_skipped_step_does_not_poison_the_next(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net n = make(PARAM(1), 0.1);
    luge_scaler *s = scaler_of(1024);
    SET_GRAD(n.weight, INFINITY);
    luge_scaler_step(s, n.optim);
    assert_true(luge_scaler_skipped(s, n.optim));
    luge_scaler_update(s);
    luge_optim_zero_grad(n.optim);
    SET_GRAD(n.weight, 2 * 512);
    luge_scaler_step(s, n.optim);
    assert_false(luge_scaler_skipped(s, n.optim));
    luge_scaler_update(s);
    assert_near(at(n.weight, 0), 0.8, 1e-7);
    assert_near(luge_scaler_value(s), 512, 0);
    luge_scaler_destroy(s);
    drop(n);
}

static void SCL_03_a_skipped_step_advances_neither_adam_nor_schedule(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = PARAM(1);
    luge_module *m = luge_nn_params(LUGE_LIST(w));
    luge_optim *o = luge_adam_create(m, 0.1, NULL);
    luge_sched *sched = luge_step_lr_create(o, 1, 0.5);
    luge_scaler *s = scaler_of(1);
    for (int k = 0; k < 2; ++k) {
        SET_GRAD(w, k == 0 ? INFINITY : 0.5);
        luge_scaler_step(s, o);
        luge_scaler_update(s);
        luge_optim_zero_grad(o);
        luge_sched_step(sched);
        assert_near(luge_optim_lr(o), k == 0 ? 0.1 : 0.05, 1e-15);
        if (k == 0) luge_scaler_set_state(s, &(luge_scaler_state){.scale = 1});
    }
    assert_near(at(w, 0), 0.900000002, 1e-7);
    assert_int_equal(luge_optim_steps(o), 1);
    luge_scaler_destroy(s);
    luge_sched_destroy(sched);
    luge_optim_destroy(o);
    luge_module_destroy(m);
}

static void SCL_04_unscaling_twice_is_refused(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net n = make(PARAM(1), 0.1);
    luge_scaler *s = scaler_of(4);
    SET_GRAD(n.weight, 8);
    assert_int_equal(luge_scaler_unscale(s, n.optim), LUGE_OK);
    assert_int_equal(luge_scaler_unscale(s, n.optim), LUGE_ERR_STATE);
    assert_error(LUGE_ERR_STATE, "luge_scaler_unscale: this optimizer was unscaled since the last luge_scaler_update");
    assert_values(n.weight->grad, 2);
    assert_int_equal(luge_scaler_update(s), LUGE_OK); /* without a step */
    SET_GRAD(n.weight, 8);
    assert_int_equal(luge_scaler_step(s, n.optim), LUGE_OK);
    assert_near(at(n.weight, 0), 0.8, 1e-7);
    assert_int_equal(luge_scaler_step(s, n.optim), LUGE_ERR_STATE);
    assert_error(LUGE_ERR_STATE, "luge_scaler_step: this optimizer was stepped since the last luge_scaler_update");
    assert_int_equal(luge_scaler_unscale(s, n.optim), LUGE_ERR_STATE);
    luge_error_clear();
    assert_near(at(n.weight, 0), 0.8, 1e-7);
    assert_int_equal(luge_scaler_update(s), LUGE_OK);
    assert_int_equal(luge_scaler_update(s), LUGE_ERR_STATE);
    assert_error(LUGE_ERR_STATE, "luge_scaler_update: no optimizer was unscaled or stepped since the last update");
    luge_scaler_destroy(s);
    drop(n);
}

static void SCL_05_clipping_comes_after_unscaling(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net n = make(PARAM(0, 0), 1);
    luge_scaler *s = scaler_of(1024);
    SET_GRAD(n.weight, 3 * 1024, 4 * 1024);
    luge_scaler_unscale(s, n.optim);
    assert_near(luge_item(luge_clip_grad_norm(n.optim, 1)), 5, 1e-6);
    luge_scaler_step(s, n.optim);
    luge_scaler_update(s);
    assert_near(at(n.weight, 0), -0.6, 1e-6);
    assert_near(at(n.weight, 1), -0.8, 1e-6);
    luge_optim_zero_grad(n.optim);
    for (int by_value = 0; by_value < 2; ++by_value) { /* the wrong order */
        SET_GRAD(n.weight, 3 * 1024, 4 * 1024);
        by_value ? (void)luge_clip_grad_value(n.optim, 1) : (void)luge_clip_grad_norm(n.optim, 1);
        assert_int_equal(luge_scaler_unscale(s, n.optim), LUGE_ERR_STATE);
        assert_error(LUGE_ERR_STATE, "the gradients were clipped while they were scaled");
        assert_int_equal(luge_scaler_step(s, n.optim), LUGE_ERR_STATE);
        luge_error_clear();
        assert_near(at(n.weight, 0), -0.6, 1e-6);
        luge_optim_zero_grad(n.optim);
    }
    luge_scaler_destroy(s);
    drop(n);
}

static void SCL_06_one_scaler_serves_two_optimizers(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net a = make(PARAM(1), 0.5), b = make(PARAM(1), 0.5);
    luge_scaler *s = scaler_of(8);
    SET_GRAD(a.weight, INFINITY);
    SET_GRAD(b.weight, 8);
    luge_scaler_step(s, a.optim);
    luge_scaler_step(s, b.optim);
    luge_scaler_update(s);
    assert_values(a.weight, 1);
    assert_values(b.weight, 0.5);
    assert_true(luge_scaler_skipped(s, a.optim));
    assert_false(luge_scaler_skipped(s, b.optim));
    assert_near(luge_scaler_value(s), 4, 0);
    /* The overflow of one step is not that of the next, and more optimizers may join. */
    net c = make(PARAM(1), 0.5);
    SET_GRAD(a.weight, 4);
    SET_GRAD(c.weight, 8);
    luge_scaler_unscale(s, c.optim);
    luge_scaler_step(s, a.optim);
    luge_scaler_step(s, c.optim);
    luge_scaler_update(s);
    assert_values(a.weight, 0.5);
    assert_values(c.weight, 0);
    assert_near(luge_scaler_value(s), 4, 0);
    drop(a); /* in any order */
    luge_scaler_destroy(s);
    drop(b);
    drop(c);
}

static void SCL_07_an_overflow_inside_a_window(void **state)
{
    (void)state;
    for (int overflow = 0; overflow < 2; ++overflow) {
        LUGE_SCOPE("t");
        net n = make(PARAM(1), 0.1);
        luge_scaler *s = scaler_of(16);
        luge_accum *window = luge_accum_create(n.optim, 3, &(luge_accum_options){.scaler = s});
        for (int micro = 0; micro < 3; ++micro) {
            LUGE_SCOPE("micro");
            if (micro == 2) assert_near(luge_scaler_value(s), 16, 0);
            luge_tensor *loss = luge_sum(luge_mul_scalar(n.weight, overflow && micro == 1 ? INFINITY : 3), LUGE_ALL_AXES);
            if (micro == 2 && !overflow) assert_values(n.weight->grad, 2 * 48);
            assert_int_equal(luge_accum_backward(window, loss, 1), LUGE_OK);
        }
        assert_near(at(n.weight, 0), overflow ? 1 : 0.7, 1e-6);
        assert_near(luge_scaler_value(s), overflow ? 8 : 16, 0);
        assert_null(n.weight->grad);
        luge_accum_backward(window, luge_sum(luge_mul_scalar(n.weight, 3), LUGE_ALL_AXES), 1); /* clean again */
        assert_values(n.weight->grad, overflow ? 24 : 48);
        luge_accum_destroy(window);
        luge_scaler_destroy(s);
        drop(n);
    }
}

static void a_disabled_scaler_passes_everything_on(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net n = make(PARAM(1), 0.5);
    luge_scaler *s = luge_scaler_create(&(luge_scaler_options){.disabled = true});
    luge_tensor *loss = luge_sum(n.weight, LUGE_ALL_AXES);
    assert_ptr_equal(luge_scaler_scale(s, loss), loss);
    luge_backward(loss);
    assert_int_equal(luge_scaler_update(s), LUGE_OK);
    assert_int_equal(luge_scaler_unscale(s, n.optim), LUGE_OK);
    assert_int_equal(luge_scaler_unscale(s, n.optim), LUGE_OK);
    assert_int_equal(luge_scaler_step(s, n.optim), LUGE_OK);
    assert_values(n.weight, 0.5);
    assert_near(luge_scaler_value(s), 1, 0);
    luge_scaler_destroy(s);
    drop(n);
}

static void state_is_saved_and_set(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net n = make(PARAM(1), 0.1);
    luge_scaler *s = scaler_of(64);
    luge_scaler_state now;
    assert_int_equal(luge_scaler_get_state(s, &now), LUGE_OK);
    assert_true(now.scale == 64 && now.growth_tracker == 0 && now.skips == 0);
    assert_int_equal(luge_scaler_set_state(s, &(luge_scaler_state){.scale = 8, .growth_tracker = 1998}), LUGE_OK);
    for (int k = 0; k < 2; ++k) {
        SET_GRAD(n.weight, 0);
        luge_scaler_step(s, n.optim);
        assert_int_equal(luge_scaler_set_state(s, &now), LUGE_ERR_STATE);
        luge_error_clear();
        luge_scaler_update(s);
    }
    luge_scaler_get_state(s, &now);
    assert_true(now.scale == 16 && now.growth_tracker == 0);
    SET_GRAD(n.weight, NAN);
    luge_scaler_step(s, n.optim);
    luge_scaler_update(s);
    luge_scaler_get_state(s, &now);
    assert_true(now.scale == 8 && now.growth_tracker == 0 && now.skips == 1);
    const luge_scaler_state bad[] = {{.scale = 0}, {.scale = INFINITY}, {.scale = NAN}, {.scale = 1, .growth_tracker = -1},
                                     {.scale = 1, .growth_tracker = 2000}, {.scale = 1, .skips = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        assert_int_equal(luge_scaler_set_state(s, &bad[i]), LUGE_ERR_ARGUMENT);
        luge_error_clear();
    }
    assert_near(luge_scaler_value(s), 8, 0);
    luge_scaler_destroy(s);
    drop(n);
}

static void refused(const luge_scaler_options *o, const char *text)
{
    assert_null(luge_scaler_create(o));
    assert_error(LUGE_ERR_ARGUMENT, text);
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    refused(&(luge_scaler_options){.init_scale = -1}, "luge_scaler_create: init_scale must be between min_scale and max_scale, not -1");
    refused(&(luge_scaler_options){.init_scale = NAN}, "init_scale");
    refused(&(luge_scaler_options){.init_scale = INFINITY}, "init_scale");
    refused(&(luge_scaler_options){.growth_factor = 1}, "growth_factor must be more than 1");
    refused(&(luge_scaler_options){.backoff_factor = 1}, "backoff_factor must be between 0 and 1");
    refused(&(luge_scaler_options){.growth_interval = -3}, "growth_interval must be in [1, 2^24)");
    refused(&(luge_scaler_options){.max_skips = 1 << 24}, "max_skips must be in [1, 2^24)");
    refused(&(luge_scaler_options){.min_scale = 1e-40}, "min_scale");
    refused(&(luge_scaler_options){.min_scale = 4, .max_scale = 2}, "max_scale must be from min_scale");
    refused(&(luge_scaler_options){.reserved = {1}}, "reserved");
    luge_scaler *s = luge_scaler_create(NULL);
    assert_null(luge_scaler_scale(s, LABELS(1)));
    assert_error(LUGE_ERR_DTYPE, "luge_scaler_scale: the loss is i64, not a float");
    luge_tensor *half = luge_cast(PARAM(1), LUGE_F16);
    net n = make(half, 0.1);
    set_grad(half, luge_cast(PARAM(2), LUGE_F16));
    assert_int_equal(luge_scaler_step(s, n.optim), LUGE_ERR_DTYPE);
    assert_error(LUGE_ERR_DTYPE, "luge_scaler_step: the gradient of 0 is f16; keep parameters in f32");
    assert_values(half->grad, 2);
    drop(n);
    luge_scaler_destroy(s);
}

/* Without gradients there is nothing to find: the step does nothing and the update counts. */
static void nothing_to_do_is_fine(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net n = make(PARAM(1), 0.1);
    luge_scaler *s = scaler_of(2);
    assert_int_equal(luge_scaler_step(s, n.optim), LUGE_OK);
    assert_int_equal(luge_scaler_update(s), LUGE_OK);
    assert_false(luge_scaler_skipped(s, n.optim));
    luge_scaler_destroy(s);
    drop(n);
}

/* Every gradient is looked at, wherever in which tensor it is, in every dtype and layout. */
static void one_bad_element_is_found(void **state)
{
    (void)state;
    static const luge_dtype dtypes[] = {LUGE_F32, LUGE_F64, LUGE_BF16};
    static const int64_t places[] = {0, 15, 16, 4095, 4096, 5000, 9999};
    for (size_t d = 0; d < 3; ++d)
        for (size_t k = 0; k < sizeof places / sizeof *places; ++k)
            for (int transposed = 0; transposed < 2; ++transposed) {
                LUGE_SCOPE("t");
                luge_tensor *small = luge_cast(PARAM(1), dtypes[d]), *large = luge_cast(luge_ones(LUGE_SHAPE(100, 100), NULL), dtypes[d]);
                luge_module *m = luge_nn_params(LUGE_LIST(small, large));
                luge_optim *o = luge_sgd_create(m, 0.1, NULL);
                luge_scaler *s = scaler_of(2);
                luge_tensor *grad = luge_reshape(luge_where(luge_eq(luge_arange(0, 10000, 1, NULL), luge_full(LUGE_SCALAR, (double)places[k], NULL)),
                                                            luge_full(LUGE_SCALAR, k % 2 ? NAN : -INFINITY, NULL), luge_ones(LUGE_SCALAR, NULL)),
                                                 LUGE_SHAPE(100, 100));
                grad = luge_cast(grad, dtypes[d]);
                set_grad(large, transposed ? luge_transpose(grad, 0, 1) : grad);
                set_grad(small, luge_cast(PARAM(2), dtypes[d]));
                assert_int_equal(luge_scaler_step(s, o), LUGE_OK);
                assert_true(luge_scaler_skipped(s, o));
                assert_values(small, 1);
                luge_scaler_destroy(s);
                luge_optim_destroy(o);
                luge_module_destroy(m);
            }
}

/* A gradient too small for its type after unscaling is no overflow; one that overflows by it is. */
static void unscaling_looks_before_and_after(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net n = make(PARAM(1), 0.1);
    luge_scaler *s = scaler_of(0x1p-100);
    SET_GRAD(n.weight, 1e10);
    luge_scaler_step(s, n.optim);
    assert_true(luge_scaler_skipped(s, n.optim));
    luge_scaler_update(s);
    luge_scaler_set_state(s, &(luge_scaler_state){.scale = 0x1p100});
    SET_GRAD(n.weight, 1e-30);
    luge_scaler_step(s, n.optim);
    assert_false(luge_scaler_skipped(s, n.optim));
    luge_scaler_destroy(s);
    drop(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(values_are_scaled_and_unscaled),
        OP_TEST(sequences_are_pytorchs),
        OP_TEST(SCL_01_the_scale_never_becomes_zero),
        OP_TEST(the_scale_stays_finite),
        OP_TEST(SCL_02_a_skipped_step_does_not_poison_the_next),
        OP_TEST(SCL_03_a_skipped_step_advances_neither_adam_nor_schedule),
        OP_TEST(SCL_04_unscaling_twice_is_refused),
        OP_TEST(SCL_05_clipping_comes_after_unscaling),
        OP_TEST(SCL_06_one_scaler_serves_two_optimizers),
        OP_TEST(SCL_07_an_overflow_inside_a_window),
        OP_TEST(a_disabled_scaler_passes_everything_on),
        OP_TEST(state_is_saved_and_set),
        OP_TEST(bad_input_is_refused),
        OP_TEST(nothing_to_do_is_fine),
        OP_TEST(one_bad_element_is_found),
        OP_TEST(unscaling_looks_before_and_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
