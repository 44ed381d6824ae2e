/* Learning rate schedules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "core/tensor.h"
#include "tests/nn_values.h"
#include "tests/support/ops.h"
#include "tests/support/train.h"

static luge_module *module;
static luge_tensor *weight;
static luge_optim *optim;

static int begin(void **state)
{
    if (ops_begin(state) != 0) return -1;
    LUGE_SCOPE("begin");
    weight = luge_cast(PARAM(0), LUGE_F64);
    module = luge_nn_params(LUGE_LIST(weight));
    optim = luge_sgd_create(module, 0.5, NULL);
    return optim != NULL ? 0 : -1;
}

static int end(void **state)
{
    luge_optim_destroy(optim);
    luge_module_destroy(module);
    return live_end(state);
}

/* Steps with a gradient of 1: what the parameter moves by is the rate that the step has used. */
static void check_rates(luge_sched *sched, const double *factors, int count, double bound)
{
    LUGE_SCOPE("rates");
    assert_true(luge_ok());
    for (int k = 0; k < count; ++k) {
        assert_near(luge_sched_factor(sched, k), factors[k], bound);
        assert_near(luge_optim_lr(optim), 0.5 * factors[k], bound);
        const double before = at(weight, 0);
        SET_GRAD(weight, 1);
        luge_optim_step(optim);
        assert_near(before - at(weight, 0), 0.5 * factors[k], 1e-14 + bound);
        assert_int_equal(luge_sched_step(sched), LUGE_OK);
    }
}

static void factors_agree_with_pytorch(void **state)
{
    (void)state;
    luge_sched *s = luge_step_lr_create(optim, 3, 0.1);
    check_rates(s, step_lr, 10, 1e-15);
    luge_sched_destroy(s);
    s = luge_cosine_lr_create(optim, 10, &(luge_cosine_options){.min_lr = 0.05});
    check_rates(s, cosine_lr, 11, 1e-14);
    assert_near(luge_sched_factor(s, 1000), 0.1, 1e-15); /* stays there */
    luge_sched_destroy(s);
    s = luge_one_cycle_lr_create(optim, 10, NULL);
    check_rates(s, one_cycle_lr, 10, 1e-14);
    assert_near(luge_sched_factor(s, 1000), one_cycle_lr[9], 1e-15);
    luge_sched_destroy(s);
    s = luge_one_cycle_lr_create(optim, 7,
                                 &(luge_one_cycle_options){.pct_start = 0.5, .div_factor = 4, .final_div_factor = 10});
    check_rates(s, one_cycle_other_lr, 7, 1e-14);
    luge_sched_destroy(s);
}

static void warm_up_is_linear(void **state)
{
    (void)state;
    static const double four[] = {0.25, 0.5, 0.75, 1, 1, 1};
    luge_sched *s = luge_warmup_lr_create(optim, 4);
    check_rates(s, four, 6, 0);
    luge_sched_destroy(s);
    static const double cosine[] = {0.5, 1, 1, 0.85355339059327378, 0.5, 0.14644660940672622, 0, 0};
    s = luge_cosine_lr_create(optim, 6, &(luge_cosine_options){.warmup = 2});
    check_rates(s, cosine, 8, 1e-15);
    luge_sched_destroy(s);
}

static void constant_is_constant(void **state)
{
    (void)state;
    luge_sched *s = luge_constant_lr_create(optim);
    check_rates(s, (const double[]){1, 1, 1}, 3, 0);
    luge_sched_destroy(s);
}

static void check_sane(luge_sched *s, double first)
{
    assert_non_null(s);
    assert_near(luge_sched_factor(s, 0), first, 1e-15);
    for (int64_t k = 0; k < 30; ++k) {
        const double f = luge_sched_factor(s, k);
        assert_true(f >= 0 && f <= 1);
    }
    luge_sched_destroy(s);
}

static void opt_04_phases_of_no_length(void **state)
{
    (void)state;
    check_sane(luge_cosine_lr_create(optim, 10, &(luge_cosine_options){.warmup = 0}), 1);
    check_sane(luge_cosine_lr_create(optim, 10, &(luge_cosine_options){.warmup = 10}), 0.1);
    check_sane(luge_cosine_lr_create(optim, 1, NULL), 1);
    check_sane(luge_warmup_lr_create(optim, 0), 1);
    check_sane(luge_warmup_lr_create(optim, 1), 1);
    check_sane(luge_step_lr_create(optim, 1, 0), 1);
    for (int64_t steps = 1; steps < 12; ++steps) {
        for (double rise = 0.05; rise <= 1; rise += 0.05) {
            luge_sched *s = luge_one_cycle_lr_create(optim, steps, &(luge_one_cycle_options){.pct_start = rise});
            check_sane(s, luge_sched_factor(s, 0));
        }
        check_sane(luge_one_cycle_lr_create(optim, steps, &(luge_one_cycle_options){.pct_start = 1.0 / (double)steps}),
                   1);
    }
}

static void every_rate_is_multiplied(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *a = PARAM(0), *b = PARAM(0);
    luge_module *m = luge_nn_params(LUGE_LIST(a, b));
    luge_optim *o = luge_sgd_create(m, 1, NULL);
    luge_optim_set_lr(o, "1", 10);
    luge_sched *s = luge_step_lr_create(o, 1, 0.5);
    luge_sched_step(s);
    SET_GRAD(a, 1);
    SET_GRAD(b, 1);
    luge_optim_step(o);
    assert_values(a, -0.5);
    assert_values(b, -5);
    luge_optim_set_lr(o, "0", 4); /* in the middle of a schedule */
    luge_optim_step(o);
    assert_values(a, -2.5);
    luge_sched_destroy(s);
    luge_optim_step(o); /* the rates stay as they are */
    assert_values(a, -4.5);
    luge_optim_destroy(o);
    luge_module_destroy(m);
}

static void rates_follow_a_converted_optimizer(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_sched *s = luge_step_lr_create(optim, 1, 0.5);
    luge_sched_step(s);
    luge_module_to_dtype(module, LUGE_F32);
    SET_GRAD(weight, 1);
    luge_optim_step(optim);
    assert_values(weight, -0.25);
    luge_sched_destroy(s);
}

static void arguments_are_checked(void **state)
{
    (void)state;
#define REFUSED(make, text)                    \
    do {                                       \
        assert_null(make);                     \
        assert_error(LUGE_ERR_ARGUMENT, text); \
    } while (0)
    REFUSED(luge_constant_lr_create(NULL), "luge_constant_lr_create: the optimizer is NULL");
    REFUSED(luge_step_lr_create(optim, 0, 0.1), "every must be at least 1, not 0");
    REFUSED(luge_step_lr_create(optim, 1, -0.1), "gamma cannot be -0.1");
    REFUSED(luge_step_lr_create(optim, 1, NAN), "gamma");
    REFUSED(luge_warmup_lr_create(optim, -1), "warmup must be at least 0");
    REFUSED(luge_cosine_lr_create(optim, 0, NULL), "steps must be at least 1");
    REFUSED(luge_cosine_lr_create(optim, 5, &(luge_cosine_options){.warmup = 6}),
            "a warm-up of 6 steps does not fit into 5");
    REFUSED(luge_cosine_lr_create(optim, 5, &(luge_cosine_options){.min_lr = 0.6}),
            "min_lr 0.6 is above the optimizer's rate 0.5");
    REFUSED(luge_cosine_lr_create(optim, 5, &(luge_cosine_options){.min_lr = -1}), "min_lr");
    REFUSED(luge_cosine_lr_create(optim, 5, &(luge_cosine_options){.reserved = {1}}), "luge_cosine_options: reserved");
    REFUSED(luge_cosine_lr_create(NULL, 5, NULL), "the optimizer is NULL");
    REFUSED(luge_one_cycle_lr_create(optim, 0, NULL), "steps");
    REFUSED(luge_one_cycle_lr_create(optim, 5, &(luge_one_cycle_options){.pct_start = 1.5}), "pct_start cannot be 1.5");
    REFUSED(luge_one_cycle_lr_create(optim, 5, &(luge_one_cycle_options){.div_factor = -2}), "div_factor");
    REFUSED(luge_one_cycle_lr_create(optim, 5, &(luge_one_cycle_options){.final_div_factor = NAN}), "final_div_factor");
    REFUSED(luge_one_cycle_lr_create(optim, 5, &(luge_one_cycle_options){.reserved = {1}}), "reserved");
#undef REFUSED
    luge_sched *s = luge_constant_lr_create(optim);
    assert_null(luge_constant_lr_create(optim));
    assert_error(LUGE_ERR_STATE, "the optimizer has a schedule already");
    luge_fail(LUGE_ERR_IO, "standing");
    assert_int_equal(luge_sched_step(s), LUGE_ERR_IO);
    luge_error_clear();
    luge_sched_destroy(s);
    luge_sched_destroy(luge_constant_lr_create(optim));
    assert_int_equal(luge_sched_step(NULL), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_sched_step: the schedule is NULL");
    assert_true(isnan(luge_sched_factor(NULL, 0)));
    luge_sched_destroy(NULL);
    assert_near(luge_optim_lr(optim), 0.5, 0); /* what was refused has changed nothing */
}

/* A schedule refers to its optimizer, so that the two go in any order. */
static void it_outlives_its_optimizer(void **state)
{
    (void)state;
    luge_optim *o = luge_sgd_create(module, 1, NULL);
    luge_sched *s = luge_step_lr_create(o, 1, 0.5);
    luge_optim_destroy(o);
    assert_int_equal(luge_sched_step(s), LUGE_OK);
    assert_near(luge_sched_factor(s, 2), 0.25, 0);
    luge_sched_destroy(s);
    assert_true(luge_ok());
}

#define SCHED_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCHED_TEST(factors_agree_with_pytorch), SCHED_TEST(warm_up_is_linear),
        SCHED_TEST(constant_is_constant),       SCHED_TEST(opt_04_phases_of_no_length),
        SCHED_TEST(every_rate_is_multiplied),   SCHED_TEST(rates_follow_a_converted_optimizer),
        SCHED_TEST(it_outlives_its_optimizer),  SCHED_TEST(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
