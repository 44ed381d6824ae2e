/* Clipping of gradients: luge_clip_grad_norm and luge_clip_grad_value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "core/fault.h"
#include "core/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/ops.h"
#include "tests/support/train.h"

/* Parameters and their optimizer, which only clips here. */
typedef struct net {
    luge_module *module;
    luge_optim *optim;
} net;

static net make(luge_list params)
{
    net n = {.module = luge_nn_params(params)};
    n.optim = luge_sgd_create(n.module, 1, NULL);
    return n;
}

static void drop(net n)
{
    luge_optim_destroy(n.optim);
    luge_module_destroy(n.module);
}

static void norms_are_joint_and_gradients_scaled(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *a = PARAM(0, 0), *b = PARAM(0), *none = PARAM(0);
    net n = make(LUGE_LIST(a, b, none));
    SET_GRAD(a, 3, 4);
    SET_GRAD(b, 12);
    luge_tensor *norm = luge_clip_grad_norm(n.optim, 26); /* large enough */
    assert_values(norm, 13);
    assert_values(a->grad, 3, 4);
    const int64_t version = luge_tensor_version(a->grad);
    assert_values(luge_clip_grad_norm(n.optim, 1.3), 13);
    assert_near(at(a->grad, 0), 0.3, 1e-6);
    assert_near(at(a->grad, 1), 0.4, 1e-6);
    assert_near(at(b->grad, 0), 1.2, 1e-6);
    assert_true(luge_tensor_version(a->grad) > version);
    assert_near(luge_item(luge_clip_grad_norm(n.optim, 100)), 1.3, 1e-6);
    luge_optim_step(n.optim);
    assert_near(at(b, 0), -1.2, 1e-6);
    assert_values(none, 0);
    drop(n);
}

static void without_gradients_the_norm_is_zero(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    net n = make(LUGE_LIST(PARAM(1, 2))), empty = make(LUGE_LIST(luge_zeros(LUGE_SHAPE(0), NULL)));
    assert_values(luge_clip_grad_norm(n.optim, 1), 0);
    assert_int_equal(luge_clip_grad_value(n.optim, 1), LUGE_OK);
    set_grad(luge_module_param(empty.module, "0"), luge_zeros(LUGE_SHAPE(0), NULL));
    assert_values(luge_clip_grad_norm(empty.optim, 1), 0);
    SET_GRAD(luge_module_param(n.module, "0"), 0, 0);
    assert_values(luge_clip_grad_norm(n.optim, 1), 0);
    assert_values(luge_module_param(n.module, "0")->grad, 0, 0);
    drop(empty);
    drop(n);
}

static luge_tensor *filled(int64_t count, double value, luge_dtype dtype)
{
    return luge_full(LUGE_SHAPE(count), value, &(luge_tensor_options){.dtype = dtype});
}

static void opt_05_a_norm_whose_square_overflows(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *p = luge_zeros(LUGE_SHAPE(100), NULL);
    net n = make(LUGE_LIST(p));
    set_grad(p, filled(100, 1e20, LUGE_F32));
    assert_near(luge_item(luge_clip_grad_norm(n.optim, 1)) / 1e21, 1, 1e-6);
    for (int i = 0; i < 100; ++i) assert_near(at(p->grad, i), 0.1, 1e-7);
    drop(n);
}

static void opt_05_infinite_gradients_are_left_alone(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    static const double bad[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; ++i) {
        luge_tensor *p = PARAM(5, 6);
        net n = make(LUGE_LIST(p));
        luge_sched *sched = luge_step_lr_create(n.optim, 1, 0.5);
        SET_GRAD(p, bad[i], 1);
        luge_tensor *norm = luge_clip_grad_norm(n.optim, 1);
        assert_true(luge_ok());
        assert_true(!isfinite(luge_item(norm)));
        assert_values(p->grad, bad[i], 1);
        for (int again = 0; again < 2; ++again) {
            const luge_status stepped = luge_optim_step(n.optim);
            assert_int_equal(on_cpu() ? stepped : luge_device_sync((luge_device){0}), LUGE_ERR_NONFINITE);
            assert_error(LUGE_ERR_NONFINITE, "luge_optim_step: the norm of the gradients is ");
        }
        assert_values(p, 5, 6);
        assert_int_equal(luge_sched_step(sched), LUGE_OK); /* stands still */
        assert_near(luge_optim_lr(n.optim), 1, 0);
        /* Once they are dropped, or clipped anew, all is well. */
        luge_optim_zero_grad(n.optim);
        SET_GRAD(p, 3, 4);
        assert_values(luge_clip_grad_norm(n.optim, 5), 5);
        assert_int_equal(luge_optim_step(n.optim), LUGE_OK);
        assert_int_equal(luge_sched_step(sched), LUGE_OK);
        assert_near(luge_optim_lr(n.optim), 0.5, 0);
        luge_sched_destroy(sched);
        drop(n);
    }
}

static void opt_06_a_norm_near_the_limit(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *p = luge_zeros(LUGE_SHAPE(128), NULL);
    net n = make(LUGE_LIST(p));
    set_grad(p, filled(128, 1e19, LUGE_F32));
    assert_near(luge_item(luge_clip_grad_norm(n.optim, 2)), 1.1313708e20, 1e13);
    assert_near(at(p->grad, 77), 0.17677670, 1e-8);
    drop(n);
}

/* f64 has no wider type to add in: the elements are scaled. */
static void norms_of_f64_neither_overflow_nor_vanish(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    static const struct {
        double a, b, norm;
    } rows[] = {{3e200, 4e200, 5e200},  {3e-200, 4e-200, 5e-200}, {1.5e308, 0, 1.5e308},
                {3e200, 4e-200, 3e200}, {5e-324, 0, 5e-324},      {3e-200, 4, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        luge_tensor *p = luge_cast(PARAM(0), LUGE_F64), *q = luge_cast(PARAM(0), LUGE_F64);
        net n = make(LUGE_LIST(p, q));
        set_grad(p, filled(1, rows[i].a, LUGE_F64));
        set_grad(q, filled(1, rows[i].b, LUGE_F64));
        const double norm = luge_item(luge_clip_grad_norm(n.optim, HUGE_VAL));
        assert_near(norm / rows[i].norm, 1, 1e-15);
        assert_true(at(p->grad, 0) == rows[i].a);
        drop(n);
    }
}

static void halves_are_measured_in_f32(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *p = luge_zeros(LUGE_SHAPE(5000), &(luge_tensor_options){.dtype = LUGE_F16}),
                *q = luge_zeros(LUGE_SHAPE(5000), &(luge_tensor_options){.dtype = LUGE_BF16});
    net n = make(LUGE_LIST(p, q));
    set_grad(p, filled(5000, 60000, LUGE_F16));
    set_grad(q, filled(5000, 1, LUGE_BF16));
    assert_near(luge_item(luge_clip_grad_norm(n.optim, 70.710678)), 60000 * sqrt(5000), 100);
    assert_near(at(p->grad, 4999), 1, 1e-3);
    assert_near(at(q->grad, 0), 1 / 60000.0, 1e-7);
    drop(n);
}

static void gradients_of_any_strides(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *p = luge_zeros(LUGE_SHAPE(30, 50), NULL), *values = luge_randn(LUGE_SHAPE(30, 50), NULL);
    luge_tensor *turned = luge_contiguous(luge_transpose(values, 0, 1));
    luge_tensor *wide = luge_cat(LUGE_LIST(turned, luge_full(LUGE_SHAPE(50, 2), 9, NULL)), 1); /* [50, 32] */
    luge_tensor *grad = luge_transpose(luge_slice(wide, 1, 0, 30), 0, 1);
    assert_int_equal(luge_tensor_stride(grad, 1), 32);
    net n = make(LUGE_LIST(p));
    set_grad(p, grad);
    const double norm = luge_item(luge_norm(values, 2, LUGE_ALL_AXES));
    assert_near(luge_item(luge_clip_grad_norm(n.optim, norm / 2)) / norm, 1, 1e-6);
    assert_close(p->grad, luge_mul_scalar(values, 0.5), 1e-6, "scaled");
    assert_near(luge_item(luge_min(luge_slice(wide, 1, 30, 32), LUGE_ALL_AXES)), 9,
                0); /* what lies between is not touched */
    luge_clip_grad_value(n.optim, 0.25);
    assert_close(p->grad, luge_clamp(luge_mul_scalar(values, 0.5), -0.25, 0.25), 1e-6, "limited");
    assert_near(luge_item(luge_max(luge_slice(wide, 1, 30, 32), LUGE_ALL_AXES)), 9, 0);
    drop(n);
}

/* The sum is cut into slices by shape: the same bits for any number of threads. */
static void norms_do_not_depend_on_threads(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const int threads = luge_num_threads();
    luge_tensor *p = luge_zeros(LUGE_SHAPE(300007), NULL), *norm[3];
    net n = make(LUGE_LIST(p));
    set_grad(p, luge_randn(LUGE_SHAPE(300007), NULL));
    for (int i = 0; i < 3; ++i) {
        luge_set_num_threads(i + 1);
        norm[i] = luge_clip_grad_norm(n.optim, 1e9);
    }
    luge_set_num_threads(threads);
    assert_true(same_bits(norm[0], norm[1]) && same_bits(norm[0], norm[2]));
    assert_near(luge_item(norm[0]) / sqrt(300007), 1, 0.01);
    drop(n);
}

static void values_are_limited(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *p = PARAM(0, 0, 0, 0, 0);
    net n = make(LUGE_LIST(p));
    SET_GRAD(p, -3, -0.5, 0, INFINITY, NAN);
    assert_int_equal(luge_clip_grad_value(n.optim, 0.75), LUGE_OK);
    assert_values(p->grad, -0.75, -0.5, 0, 0.75, NAN);
    drop(n);
}

static void limits_are_checked(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *p = PARAM(0);
    net n = make(LUGE_LIST(p));
    SET_GRAD(p, 2);
    static const double bad[] = {0, -1, NAN};
    for (int i = 0; i < 3; ++i) {
        assert_null(luge_clip_grad_norm(n.optim, bad[i]));
        assert_error(LUGE_ERR_ARGUMENT, "luge_clip_grad_norm: max_norm must be more than 0");
        assert_int_equal(luge_clip_grad_value(n.optim, bad[i]), LUGE_ERR_ARGUMENT);
        assert_error(LUGE_ERR_ARGUMENT, "luge_clip_grad_value: limit must be more than 0");
    }
    assert_null(luge_clip_grad_norm(NULL, 1));
    assert_error(LUGE_ERR_ARGUMENT, "luge_clip_grad_norm: the optimizer is NULL");
    assert_int_equal(luge_clip_grad_value(NULL, 1), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    luge_fail(LUGE_ERR_IO, "standing");
    assert_null(luge_clip_grad_norm(n.optim, 1));
    assert_int_equal(luge_clip_grad_value(n.optim, 1), LUGE_ERR_IO);
    luge_error_clear();
    assert_values(p->grad, 2);
    drop(n);
}

static void failures_leave_gradients_alone(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *p = PARAM(0, 0);
    net n = make(LUGE_LIST(p));
    SET_GRAD(p, 3, 4);
    for (int kind = LG_FAULT_HOST; kind <= LG_FAULT_DEVICE; ++kind) {
        for (int64_t i = 1;; ++i) {
            lg_fault_set((lg_fault_kind)kind, i);
            luge_tensor *norm = luge_clip_grad_norm(n.optim, 50);
            const bool hit = lg_fault_hit((lg_fault_kind)kind);
            lg_fault_set((lg_fault_kind)kind, 0);
            assert_int_equal(norm != NULL, luge_ok());
            luge_error_clear();
            if (!hit) break;
            assert_values(p->grad, 3, 4);
        }
    }
    drop(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(norms_are_joint_and_gradients_scaled),
        OP_TEST(without_gradients_the_norm_is_zero),
        OP_TEST(opt_05_a_norm_whose_square_overflows),
        OP_TEST(opt_05_infinite_gradients_are_left_alone),
        OP_TEST(opt_06_a_norm_near_the_limit),
        OP_TEST(norms_of_f64_neither_overflow_nor_vanish),
        OP_TEST(halves_are_measured_in_f32),
        OP_TEST(gradients_of_any_strides),
        OP_TEST(norms_do_not_depend_on_threads),
        OP_TEST(values_are_limited),
        OP_TEST(limits_are_checked),
        OP_TEST(failures_leave_gradients_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
