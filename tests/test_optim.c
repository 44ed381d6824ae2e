/* Optimizers: include/luge/optim.h. Clipping is in test_clip.c, schedules in test_sched.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/tensor.h"
#include "tests/nn_values.h"
#include "tests/support/compare.h"
#include "tests/support/ops.h"
#include "tests/support/train.h"

/* ---- against PyTorch */

typedef luge_optim *(*make_fn)(luge_module *params);

static luge_optim *make_sgd(luge_module *m, luge_sgd_options o)
{
    return luge_sgd_create(m, 0.1, &o);
}
static luge_optim *sgd_1(luge_module *m)
{
    return luge_sgd_create(m, 0.1, NULL);
}
static luge_optim *sgd_2(luge_module *m)
{
    return make_sgd(m, (luge_sgd_options){.weight_decay = 0.2});
}
static luge_optim *sgd_3(luge_module *m)
{
    return make_sgd(m, (luge_sgd_options){.momentum = 0.9});
}
static luge_optim *sgd_4(luge_module *m)
{
    return make_sgd(m, (luge_sgd_options){.momentum = 0.9, .dampening = 0.4, .weight_decay = 0.2});
}
static luge_optim *sgd_5(luge_module *m)
{
    return make_sgd(m, (luge_sgd_options){.momentum = 0.8, .nesterov = true, .weight_decay = 0.2});
}
static luge_optim *adam_1(luge_module *m)
{
    return luge_adam_create(m, 0.1, NULL);
}
static luge_optim *adam_2(luge_module *m)
{
    return luge_adam_create(m, 0.1, &(luge_adam_options){.betas = {0.7, 0.95}, .eps = 0.01, .weight_decay = 0.2});
}
static luge_optim *adamw_1(luge_module *m)
{
    return luge_adamw_create(m, 0.1, 0.2, NULL);
}
static luge_optim *adamw_2(luge_module *m)
{
    return luge_adamw_create(m, 0.1, 0.01, &(luge_adam_options){.betas = {0, 0.5}, .eps = 0.01});
}

/* Five steps on [1, -2, 0.5] in that dtype; see make_nn_values.py. */
static void run_five(make_fn make, luge_dtype dtype, double *out)
{
    LUGE_SCOPE("five");
    luge_tensor *p = luge_cast(PARAM(1, -2, 0.5), dtype);
    luge_module *m = luge_nn_params(LUGE_LIST(p));
    luge_optim *opt = make(m);
    for (int t = 0; t < 5; ++t) {
        double g[3];
        for (int k = 0; k < 3; ++k) g[k] = cos(k + 3 * t) * (k + 1);
        set_grad(p, luge_from_array(g, LUGE_F64, LUGE_SHAPE(3)));
        assert_int_equal(luge_optim_step(opt), LUGE_OK);
    }
    assert_int_equal(luge_optim_steps(opt), 5);
    for (int k = 0; k < 3; ++k) out[k] = at(p, k);
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

static void steps_agree_with_pytorch(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        make_fn make;
        const double *expected;
    } rows[] = {
        {"sgd_plain", sgd_1, sgd_plain},
        {"sgd_decay", sgd_2, sgd_decay},
        {"sgd_momentum", sgd_3, sgd_momentum},
        {"sgd_dampening", sgd_4, sgd_dampening},
        {"sgd_nesterov", sgd_5, sgd_nesterov},
        {"adam_plain", adam_1, adam_plain},
        {"adam_settings", adam_2, adam_settings},
        {"adamw_plain", adamw_1, adamw_plain},
        {"adamw_settings", adamw_2, adamw_settings},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        static const struct {
            luge_dtype dtype;
            double bound;
        } dtypes[] = {{LUGE_F64, 1e-14}, {LUGE_F32, 2e-6}, {LUGE_F16, 5e-3}, {LUGE_BF16, 4e-2}};
        for (int d = 0; d < 4; ++d) {
            double out[3];
            run_five(rows[i].make, dtypes[d].dtype, out);
            for (int k = 0; k < 3; ++k) {
                if (fabs(out[k] - rows[i].expected[k]) <= dtypes[d].bound) continue;
                fail_msg("%s, dtype %d, element %d: %.17g, PyTorch %.17g", rows[i].name, (int)dtypes[d].dtype, k,
                         out[k], rows[i].expected[k]);
            }
        }
    }
}

/* ---- the pitfalls */

static void opt_01_adam_in_f16_with_zero_gradient(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *p = luge_cast(PARAM(1, -2, 0.5), LUGE_F16);
    luge_module *m = luge_nn_params(LUGE_LIST(p));
    luge_optim *opt = luge_adam_create(m, 1e-3, NULL);
    for (int i = 0; i < 3; ++i) {
        set_grad(p, luge_zeros_like(p));
        luge_optim_step(opt);
    }
    assert_values(p, 1, -2, 0.5);
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

static void count_state(const char *param, const char *what, luge_tensor *value, void *user)
{
    (void)param;
    (void)what;
    (void)value;
    ++*(int *)user;
}

static void opt_02_no_gradient_is_not_a_zero_gradient(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = PARAM(1);
    luge_module *m = luge_nn_params(LUGE_LIST(w));
    luge_optim *opt = luge_sgd_create(m, 0.1, &(luge_sgd_options){.momentum = 0.9, .weight_decay = 0.1});
    int count = 0;
    assert_int_equal(luge_optim_step(opt), LUGE_OK);
    luge_optim_each_state(opt, count_state, &count);
    assert_int_equal(count, 0);
    assert_values(w, 1);
    assert_int_equal(luge_optim_steps(opt), 0);
    SET_GRAD(w, 0);
    luge_optim_step(opt);
    assert_near(at(w, 0), 0.99, 1e-7);
    luge_optim_each_state(opt, count_state, &count);
    assert_int_equal(count, 2);
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

typedef struct ab {
    bool swapped;
    luge_tensor *a, *b;
} ab;

static void ab_build(luge_module *self, void *state)
{
    ab *s = state;
    luge_tensor **first = s->swapped ? &s->b : &s->a, **second = s->swapped ? &s->a : &s->b;
    *first = luge_module_add_param(self, s->swapped ? "B" : "A", PARAM(1));
    *second = luge_module_add_param(self, s->swapped ? "A" : "B", PARAM(1));
}

static const luge_module_class ab_class = {.name = "AB", .state_size = sizeof(ab), .build = ab_build};

static void copy_state(const char *param, const char *what, luge_tensor *value, void *user)
{
    assert_int_equal(luge_optim_set_state(user, param, what, value), LUGE_OK);
}

static void opt_03_state_is_matched_by_name(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const luge_sgd_options momentum = {.momentum = 0.9};
    luge_module *one = luge_module_create(&ab_class, &(ab){.swapped = false}),
                *two = luge_module_create(&ab_class, &(ab){.swapped = true});
    luge_optim *first = luge_sgd_create(one, 0.1, &momentum), *second = luge_sgd_create(two, 0.1, &momentum);
    SET_GRAD(luge_module_param(one, "A"), 1);
    SET_GRAD(luge_module_param(one, "B"), 10);
    luge_optim_step(first);
    luge_module_copy(two, one);
    luge_optim_each_state(first, copy_state, second);
    assert_int_equal(luge_optim_steps(second), 1);
    SET_GRAD(luge_module_param(two, "A"), 0);
    SET_GRAD(luge_module_param(two, "B"), 0);
    luge_optim_step(second);
    assert_near(at(luge_module_param(two, "A"), 0), 0.81, 1e-6);
    assert_near(at(luge_module_param(two, "B"), 0), -0.9, 1e-6);
    luge_optim_destroy(first);
    luge_optim_destroy(second);
    luge_module_destroy(one);
    luge_module_destroy(two);
}

static void opt_07_weight_decay_enters_the_gradient(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = luge_cast(PARAM(1), LUGE_F64);
    luge_module *m = luge_nn_params(LUGE_LIST(w));
    luge_optim *opt = luge_adam_create(m, 0.1, &(luge_adam_options){.weight_decay = 0.1});
    SET_GRAD(w, 0);
    luge_optim_step(opt);
    assert_near(at(w, 0), 0.9, 1e-7); /* eps is 1e-7 of the denominator */
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

static void opt_08_moments_follow_a_moved_model(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = luge_cast(PARAM(1), LUGE_F64);
    luge_module *m = luge_nn_params(LUGE_LIST(w));
    luge_optim *saved = luge_adam_create(m, 0.1, NULL), *loaded = luge_adam_create(m, 0.1, NULL);
    SET_GRAD(w, 0.5);
    luge_optim_step(saved);
    luge_optim_each_state(saved, copy_state, loaded);
    luge_module_to(m, luge_device_cpu());
    SET_GRAD(w, -0.25);
    luge_optim_step(loaded);
    assert_near(at(w, 0), 0.87336630, 1e-8);
    luge_optim_destroy(saved);
    luge_optim_destroy(loaded);
    luge_module_destroy(m);
}

/* The same with a change of dtype in between: state is converted, not begun anew. */
static void moments_follow_a_converted_model(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = PARAM(1);
    luge_module *m = luge_nn_params(LUGE_LIST(w));
    luge_optim *opt = luge_adam_create(m, 0.1, NULL);
    SET_GRAD(w, 0.75);
    luge_optim_step(opt);
    luge_module_to_dtype(m, LUGE_F64);
    SET_GRAD(w, -0.5);
    luge_optim_step(opt);
    const double mean = (0.9 * 0.1 * 0.75 + 0.1 * -0.5) / (1 - 0.9 * 0.9);
    const double square = (0.999 * 0.001 * 0.75 * 0.75 + 0.001 * 0.25) / (1 - 0.999 * 0.999);
    assert_near(at(w, 0), 0.9 - 0.1 * mean / sqrt(square), 2e-7);
    assert_int_equal(luge_optim_steps(opt), 2);
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

/* ---- any layout, any size */

/* AGR-09: steps are elementwise right for any mix of strides. */
static void agr_09_gradients_of_other_layouts(void **state)
{
    (void)state;
    for (int half = 0; half < 2; ++half) {
        const luge_dtype dtype = half ? LUGE_F16 : LUGE_F32;
        for (int layout = 0; layout < 4; ++layout) {
            LUGE_SCOPE("t");
            const luge_shape shape = LUGE_SHAPE(40, 70), turned = LUGE_SHAPE(70, 40);
            luge_tensor *base = luge_cast(luge_randn(shape, NULL), dtype),
                        *grad = luge_cast(luge_randn(shape, NULL), dtype);
            luge_tensor *dense = luge_clone(base);
            /* The same values with the axes of memory exchanged, in one, the other, or both; or with gaps. */
            luge_tensor *p = layout & 1 ? luge_transpose(luge_clone(luge_contiguous(luge_transpose(base, 0, 1))), 0, 1)
                                        : luge_clone(base);
            luge_tensor *g =
                layout & 2
                    ? luge_transpose(luge_contiguous(luge_transpose(grad, 0, 1)), 0, 1)
                    : luge_slice(luge_cat(LUGE_LIST(grad, luge_cast(luge_zeros(LUGE_SHAPE(40, 3), NULL), dtype)), 1), 1,
                                 0, 70);
            assert_int_equal(luge_tensor_size(luge_zeros(turned, NULL), 0), 70);
            luge_module *m = luge_nn_params(LUGE_LIST(p)), *n = luge_nn_params(LUGE_LIST(dense));
            luge_optim *a = luge_adam_create(m, 0.1, NULL), *b = luge_adam_create(n, 0.1, NULL);
            for (int i = 0; i < 2; ++i) {
                set_grad(p, g);
                set_grad(dense, grad);
                luge_optim_step(a);
                luge_optim_step(b);
            }
            assert_ok();
            /* Bits may differ by fused multiply-adds in different chunks; numbers may not. */
            assert_close(p, dense, half ? 1e-3 : 1e-6, "stepped");
            luge_optim_destroy(a);
            luge_optim_destroy(b);
            luge_module_destroy(m);
            luge_module_destroy(n);
        }
    }
}

static void gradients_that_overlap_are_made_dense(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    enum { COUNT = 10000 };
    luge_tensor *p = luge_zeros(LUGE_SHAPE(COUNT), NULL);
    luge_module *m = luge_nn_params(LUGE_LIST(p));
    luge_optim *opt = luge_sgd_create(m, 1, NULL);
    set_grad(p, luge_expand(PARAM(4), LUGE_SHAPE(COUNT)));
    luge_clip_grad_norm(opt, 2 * sqrt(COUNT)); /* each element is halved once */
    luge_optim_step(opt);
    assert_near(luge_item(luge_max(luge_detach(p), LUGE_ALL_AXES)), -2, 1e-6);
    assert_near(luge_item(luge_min(luge_detach(p), LUGE_ALL_AXES)), -2, 1e-6);
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

enum { MANY = 60 };

/* Tensors from no element to more than a slice, against a plain loop; the same bits with any number of
 * threads. */
static void many_sizes_in_one_pass(void **state)
{
    (void)state;
    luge_tensor *kept[2][MANY];
    const int threads = luge_num_threads();
    for (int run = 0; run < 2; ++run) {
        LUGE_SCOPE("t");
        luge_seed(1);
        luge_set_num_threads(run == 0 ? 1 : 3);
        luge_tensor *p[MANY];
        for (int i = 0; i < MANY; ++i) p[i] = luge_randn(LUGE_SHAPE(i == 50 ? 100003 : i == 51 ? 70001 : i * i), NULL);
        luge_module *m = luge_nn_params((luge_list){p, MANY});
        luge_optim *opt = luge_sgd_create(m, 0.5, &(luge_sgd_options){.momentum = 0.5});
        for (int step = 0; step < 2; ++step) {
            for (int i = 0; i < MANY; ++i) set_grad(p[i], luge_mul_scalar(luge_detach(p[i]), 0.5));
            assert_int_equal(luge_optim_step(opt), LUGE_OK);
        }
        for (int i = 0; i < MANY; ++i) kept[run][i] = luge_retain(luge_clone(luge_detach(p[i])));
        luge_optim_destroy(opt);
        luge_module_destroy(m);
    }
    luge_set_num_threads(threads);
    LUGE_SCOPE("t");
    luge_seed(1);
    for (int i = 0; i < MANY; ++i) {
        luge_tensor *w = luge_randn(luge_tensor_shape(kept[0][i]), NULL);
        assert_true(same_bits(kept[0][i], kept[1][i]));
        /* w1 = w - 0.25 w; m2 = 0.125 + 0.75/4 ... = w (0.25 + 0.375); w2 = 0.75 w - 0.5 (0.25 + 0.375) w */
        assert_close(kept[0][i], luge_mul_scalar(w, 0.75 - 0.5 * (0.25 + 0.375)), 1e-6, "two steps");
        luge_release(kept[0][i]);
        luge_release(kept[1][i]);
    }
}

/* ---- settings */

static void settings_go_by_name(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *net = luge_nn_sequential(luge_nn_linear(1, 1, NULL), luge_nn_linear(1, 1, NULL));
    luge_optim *opt = luge_sgd_create(net, 0.1, &(luge_sgd_options){.weight_decay = 0.5});
    assert_int_equal(luge_optim_set_lr(opt, "1.*", 0.2), LUGE_OK);
    assert_int_equal(luge_optim_set_weight_decay(opt, "@vectors", 0), LUGE_OK);
    assert_near(luge_optim_lr(opt), 0.2, 0);
    static const char *const names[] = {"0.weight", "0.bias", "1.weight", "1.bias"};
    static const double expected[] = {1 - 0.1 * 1.5, 1 - 0.1, 1 - 0.2 * 1.5, 1 - 0.2};
    for (int i = 0; i < 4; ++i) {
        luge_tensor *p = luge_module_param(net, names[i]);
        {
            LUGE_NO_GRAD();
            luge_fill_(p, 1);
        }
        set_grad(p, luge_ones_like(p));
    }
    luge_optim_step(opt);
    for (int i = 0; i < 4; ++i) assert_near(at(luge_module_param(net, names[i]), 0), expected[i], 1e-6);
    assert_int_equal(luge_optim_set_lr(opt, NULL, 0.01), LUGE_OK);
    assert_near(luge_optim_lr(opt), 0.01, 0);

    luge_optim_set_lr(opt, "2.*", 1);
    assert_error(LUGE_ERR_ARGUMENT, "luge_optim_set_lr: none of the 4 parameters matches \"2.*\"");
    luge_optim_set_lr(opt, "0.*", -1);
    assert_error(LUGE_ERR_ARGUMENT, "lr must be 0 or more, not -1");
    luge_optim_set_weight_decay(opt, "@all", 1);
    assert_error(LUGE_ERR_ARGUMENT, "\"@all\" is no class");
    luge_optim_set_weight_decay(opt, NULL, NAN);
    assert_error(LUGE_ERR_ARGUMENT, "weight_decay must be 0 or more, not");
    assert_near(luge_optim_lr(opt), 0.01, 0);
    luge_optim_destroy(opt);
    luge_module_destroy(net);
}

static void options_are_checked(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = luge_nn_params(LUGE_LIST(PARAM(1)));
#define REFUSED(make, text)                    \
    do {                                       \
        assert_null(make);                     \
        assert_error(LUGE_ERR_ARGUMENT, text); \
    } while (0)
    REFUSED(luge_sgd_create(NULL, 0.1, NULL), "the module is NULL");
    REFUSED(luge_sgd_create(m, -0.1, NULL), "luge_sgd_create: lr must be 0 or more, not -0.1");
    REFUSED(luge_sgd_create(m, NAN, NULL), "lr");
    REFUSED(luge_sgd_create(m, INFINITY, NULL), "lr");
    REFUSED(luge_sgd_create(m, 1, &(luge_sgd_options){.momentum = -1}), "momentum");
    REFUSED(luge_sgd_create(m, 1, &(luge_sgd_options){.momentum = 0.9, .dampening = NAN}), "dampening");
    REFUSED(luge_sgd_create(m, 1, &(luge_sgd_options){.weight_decay = -1}), "weight_decay");
    REFUSED(luge_sgd_create(m, 1, &(luge_sgd_options){.nesterov = true}), "nesterov needs momentum");
    REFUSED(luge_sgd_create(m, 1, &(luge_sgd_options){.nesterov = true, .momentum = 0.9, .dampening = 0.1}),
            "no dampening");
    REFUSED(luge_sgd_create(m, 1, &(luge_sgd_options){.reserved = {1}}), "luge_sgd_options: reserved");
    REFUSED(luge_adam_create(m, 1, &(luge_adam_options){.betas = {1, 0.9}}), "betas[0] must be in [0, 1), not 1");
    REFUSED(luge_adam_create(m, 1, &(luge_adam_options){.betas = {0.9, -0.1}}), "betas[1]");
    REFUSED(luge_adam_create(m, 1, &(luge_adam_options){.betas = {0.9, NAN}}), "betas[1]");
    REFUSED(luge_adam_create(m, 1, &(luge_adam_options){.eps = -1}), "eps");
    REFUSED(luge_adam_create(m, 1, &(luge_adam_options){.weight_decay = -1}), "weight_decay");
    REFUSED(luge_adam_create(m, 1, &(luge_adam_options){.reserved = {0, 0, 1}}), "luge_adam_options: reserved");
    REFUSED(luge_adamw_create(m, 1, -1, NULL), "luge_adamw_create: weight_decay");
    REFUSED(luge_adamw_create(m, 1, 0, &(luge_adam_options){.weight_decay = 0.1}), "the decay is an argument");
#undef REFUSED
    assert_int_equal(luge_optim_step(NULL), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_optim_step: the optimizer is NULL");
    assert_int_equal(luge_optim_zero_grad(NULL), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_optim_zero_grad: the optimizer is NULL");
    assert_int_equal(luge_optim_set_lr(NULL, NULL, 1), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    assert_int_equal(luge_optim_steps(NULL), 0);
    assert_true(isnan(luge_optim_lr(NULL)));
    luge_optim_destroy(NULL);
    assert_true(luge_ok());
    luge_module_destroy(m);
}

static void nothing_to_optimise_is_fine(void **state)
{
    (void)state;
    luge_module *m = luge_nn_relu();
    luge_optim *opt = luge_adam_create(m, 0.1, NULL);
    assert_non_null(opt);
    assert_int_equal(luge_optim_step(opt), LUGE_OK);
    assert_int_equal(luge_optim_zero_grad(opt), LUGE_OK);
    assert_int_equal(luge_optim_steps(opt), 0);
    assert_near(luge_optim_lr(opt), 0.1, 0);
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

/* ---- gradients, errors, lifetimes */

static void zero_grad_drops_gradients(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = PARAM(1, 2);
    luge_module *m = luge_nn_params(LUGE_LIST(w));
    luge_optim *opt = luge_sgd_create(m, 0.1, NULL);
    luge_backward(luge_sum(luge_square(w), LUGE_ALL_AXES));
    luge_tensor *grad = luge_tensor_grad(w);
    luge_fail(LUGE_ERR_IO, "standing");
    assert_int_equal(luge_optim_zero_grad(opt), LUGE_ERR_IO);
    assert_int_equal(luge_optim_step(opt), LUGE_ERR_IO);
    luge_error_clear();
    assert_false(luge_is_none(luge_tensor_grad(w)));
    luge_optim_zero_grad(opt);
    assert_true(luge_is_none(luge_tensor_grad(w)));
    assert_values(grad, 2, 4); /* lives as long as the scope */
    assert_values(w, 1, 2);
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

static void frozen_parameters_are_left_alone(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = PARAM(1), *v = PARAM(1);
    luge_module *m = luge_nn_params(LUGE_LIST(w, v));
    luge_optim *opt = luge_sgd_create(m, 1, NULL);
    luge_module_freeze(m, "0");
    SET_GRAD(w, 1); /* a stray one */
    SET_GRAD(v, 1);
    luge_optim_step(opt);
    assert_values(w, 1);
    assert_values(v, 0);
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

static void objects_go_in_any_order(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = luge_nn_linear(2, 2, NULL);
    luge_optim *opt = luge_adam_create(m, 0.1, NULL);
    luge_sched *sched = luge_constant_lr_create(opt);
    luge_tensor *w = luge_module_param(m, "weight");
    set_grad(w, luge_ones_like(w));
    const double before = at(w, 0);
    luge_module_destroy(m);
    assert_int_equal(luge_optim_step(opt), LUGE_OK);
    assert_near(at(w, 0), before - 0.1, 1e-6); /* the optimizer's now */
    luge_optim_destroy(opt);
    assert_int_equal(luge_sched_step(sched), LUGE_OK);
    assert_int_equal(live_now().objects, 2);
    luge_sched_destroy(sched);
    assert_int_equal(live_now().objects, 0);
}

static void graphs_notice_a_step(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = PARAM(1, 2);
    luge_module *m = luge_nn_params(LUGE_LIST(w));
    luge_optim *opt = luge_sgd_create(m, 0.1, NULL);
    luge_tensor *loss = luge_sum(luge_square(w), LUGE_ALL_AXES);
    SET_GRAD(w, 1, 1);
    const int64_t version = luge_tensor_version(w);
    luge_optim_step(opt);
    assert_int_equal(luge_tensor_version(w), version + 1);
    assert_int_equal(luge_backward(loss), LUGE_ERR_GRAPH);
    luge_error_clear();
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

/* Gradients that backward hands to two leaves must not be one memory: clipping would scale it twice. */
static void leaves_do_not_share_gradients(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *a = PARAM(3, 4), *b = PARAM(0, 0);
    luge_module *m = luge_nn_params(LUGE_LIST(a, b));
    luge_optim *opt = luge_sgd_create(m, 1, NULL);
    luge_backward(luge_sum(luge_mul_scalar(luge_add(a, b), 8), LUGE_ALL_AXES));
    luge_clip_grad_norm(opt, 8); /* the norm is 16 */
    assert_near(at(luge_tensor_grad(a), 0), 4, 1e-5);
    assert_near(at(luge_tensor_grad(b), 1), 4, 1e-5);
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

/* ---- state */

static void note_state(const char *param, const char *what, luge_tensor *value, void *user)
{
    char *text = user;
    snprintf(text + strlen(text), 512 - strlen(text), "%s.%s=%s ", param, what, luge_text(value));
}

static void state_has_pytorchs_names(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = PARAM(1, 2), *unused = PARAM(3);
    luge_module *m = luge_nn_params(LUGE_LIST(w, unused));
    luge_optim *adam = luge_adam_create(m, 0.1, &(luge_adam_options){.betas = {0.5, 0.75}}),
               *sgd = luge_sgd_create(m, 0.5, &(luge_sgd_options){.momentum = 0.5}),
               *plain = luge_sgd_create(m, 0.5, NULL);
    SET_GRAD(w, 2, 4);
    luge_optim_step(adam);
    luge_optim_step(sgd);
    luge_optim_step(plain);
    char text[512] = "";
    assert_int_equal(luge_optim_each_state(adam, note_state, text), LUGE_OK);
    assert_string_equal(text, "0.exp_avg=[1, 2] 0.exp_avg_sq=[1, 4] 0.step=1 ");
    text[0] = '\0';
    luge_optim_each_state(sgd, note_state, text);
    assert_string_equal(text, "0.momentum_buffer=[2, 4] 0.step=1 ");
    text[0] = '\0';
    luge_optim_each_state(plain, note_state, text);
    assert_string_equal(text, "0.step=1 ");

    luge_optim_set_state(adam, "2", "exp_avg", w);
    assert_error(LUGE_ERR_ARGUMENT, "there is no parameter \"2\"");
    luge_optim_set_state(adam, "0", "momentum_buffer", w);
    assert_error(LUGE_ERR_ARGUMENT, "no state \"momentum_buffer\"");
    luge_optim_set_state(plain, "0", "momentum_buffer", w);
    assert_error(LUGE_ERR_ARGUMENT, "no state \"momentum_buffer\"");
    luge_optim_set_state(adam, "0", "exp_avg", unused);
    assert_error(LUGE_ERR_SHAPE, "exp_avg of 0 is [1], the parameter [2]");
    luge_optim_set_state(adam, "0", "step", w);
    assert_error(LUGE_ERR_SHAPE, "");
    luge_optim_set_state(adam, "0", "step", PARAM(1.5));
    assert_error(LUGE_ERR_ARGUMENT, "1.5 is no number of steps");
    luge_optim_set_state(adam, "0", "step", PARAM(-1));
    assert_error(LUGE_ERR_ARGUMENT, "-1 is no number");
    luge_optim_set_state(adam, NULL, "step", w);
    assert_error(LUGE_ERR_ARGUMENT, "the parameter's name is NULL");
    luge_optim_set_state(adam, "0", "step", NULL);
    assert_error(LUGE_ERR_ARGUMENT, "NULL");
    luge_optim_each_state(adam, NULL, NULL);
    assert_error(LUGE_ERR_ARGUMENT, "the function is NULL");
    /* What is set is a copy, and may be of another dtype; the other moment starts at zero. */
    luge_tensor *mean = luge_cast(PARAM(7), LUGE_F64), *nine = luge_cast(luge_full(LUGE_SCALAR, 9, NULL), LUGE_I64);
    assert_int_equal(luge_optim_set_state(adam, "1", "step", nine), LUGE_OK);
    text[0] = '\0';
    luge_optim_each_state(adam, note_state, text);
    assert_string_equal(text, "0.exp_avg=[1, 2] 0.exp_avg_sq=[1, 4] 0.step=1 1.step=9 ");
    assert_int_equal(luge_optim_set_state(adam, "1", "exp_avg", mean), LUGE_OK);
    luge_fill_(mean, 0);
    text[0] = '\0';
    luge_optim_each_state(adam, note_state, text);
    assert_string_equal(text, "0.exp_avg=[1, 2] 0.exp_avg_sq=[1, 4] 0.step=1 1.exp_avg=[7] 1.exp_avg_sq=[0] 1.step=9 ");
    assert_int_equal(luge_optim_steps(adam), 9);
    luge_optim_destroy(adam);
    luge_optim_destroy(sgd);
    luge_optim_destroy(plain);
    luge_module_destroy(m);
}

/* A momentum from a PyTorch file comes without a count: it still is not the first step. */
static void a_loaded_momentum_is_dampened(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = PARAM(0);
    luge_module *m = luge_nn_params(LUGE_LIST(w));
    luge_optim *opt = luge_sgd_create(m, 1, &(luge_sgd_options){.momentum = 0.5, .dampening = 0.75});
    luge_optim_set_state(opt, "0", "momentum_buffer", PARAM(4));
    SET_GRAD(w, 4);
    luge_optim_step(opt);
    assert_values(w, -(0.5 * 4 + 0.25 * 4));
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

/* ---- failures */

/* A step that fails has changed neither parameters nor state. */
static void failing_steps_change_nothing(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *a = PARAM(1, 2), *b = PARAM(3, 4);
    luge_module *m = luge_nn_params(LUGE_LIST(a, b));
    int failures = 0;
    for (int kind = LG_FAULT_HOST; kind <= LG_FAULT_DEVICE; ++kind) {
        luge_module *copy = luge_module_clone(m);
        luge_optim *opt = luge_adam_create(copy, 0.1, NULL);
        luge_tensor *p = luge_module_param(copy, "0"), *q = luge_module_param(copy, "1");
        SET_GRAD(p, 1, 1);
        SET_GRAD(q, 1, 1);
        for (int64_t n = 1;; ++n) {
            lg_fault_set((lg_fault_kind)kind, n);
            const luge_status status = luge_optim_step(opt);
            lg_fault_set((lg_fault_kind)kind, 0);
            luge_error_clear();
            if (status == LUGE_OK) break;
            ++failures;
            int count = 0;
            luge_optim_each_state(opt, count_state, &count);
            assert_int_equal(count, 0);
            assert_values(p, 1, 2);
            assert_values(q, 3, 4);
            assert_int_equal(luge_optim_steps(opt), 0);
        }
        assert_near(at(q, 1), 3.9, 1e-6);
        luge_optim_destroy(opt);
        luge_module_destroy(copy);
    }
    assert_true(failures > 6);
    luge_module_destroy(m);
}

static void failing_creations_leave_nothing(void **state)
{
    (void)state;
    luge_module *m = luge_nn_linear(2, 2, NULL);
    for (int kind = LG_FAULT_HOST; kind <= LG_FAULT_DEVICE; ++kind) {
        bool hit = true;
        for (int64_t n = 1; hit; ++n) {
            LUGE_SCOPE("t");
            lg_fault_set((lg_fault_kind)kind, n);
            luge_optim *opt = luge_adam_create(m, 0.1, NULL);
            luge_sched *sched = luge_cosine_lr_create(opt, 10, NULL);
            hit = lg_fault_hit((lg_fault_kind)kind);
            lg_fault_set((lg_fault_kind)kind, 0);
            luge_sched_destroy(sched);
            luge_optim_destroy(opt);
            luge_error_clear();
            assert_int_equal(live_now().objects, 1);
        }
    }
    luge_module_destroy(m);
}

/* In a steady state a step asks for no memory at all. */
static void steady_steps_allocate_nothing(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = luge_nn_linear(8, 8, NULL);
    luge_optim *opt = luge_adam_create(m, 0.1, NULL);
    luge_tensor *w = luge_module_param(m, "weight");
    set_grad(w, luge_ones_like(w));
    luge_optim_step(opt);
    lg_fault_set(LG_FAULT_HOST, 1000000);
    lg_fault_set(LG_FAULT_DEVICE, 1000000);
    for (int i = 0; i < 10; ++i) luge_optim_step(opt);
    assert_int_equal(lg_fault_requests(LG_FAULT_HOST), 0);
    assert_int_equal(lg_fault_requests(LG_FAULT_DEVICE), 0);
    luge_optim_destroy(opt);
    luge_module_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(steps_agree_with_pytorch),
        OP_TEST(opt_01_adam_in_f16_with_zero_gradient),
        OP_TEST(opt_02_no_gradient_is_not_a_zero_gradient),
        OP_TEST(opt_03_state_is_matched_by_name),
        OP_TEST(opt_07_weight_decay_enters_the_gradient),
        OP_TEST(opt_08_moments_follow_a_moved_model),
        OP_TEST(moments_follow_a_converted_model),
        OP_TEST(agr_09_gradients_of_other_layouts),
        OP_TEST(gradients_that_overlap_are_made_dense),
        OP_TEST(many_sizes_in_one_pass),
        OP_TEST(settings_go_by_name),
        OP_TEST(options_are_checked),
        OP_TEST(nothing_to_optimise_is_fine),
        OP_TEST(zero_grad_drops_gradients),
        OP_TEST(frozen_parameters_are_left_alone),
        OP_TEST(objects_go_in_any_order),
        OP_TEST(graphs_notice_a_step),
        OP_TEST(leaves_do_not_share_gradients),
        OP_TEST(state_has_pytorchs_names),
        OP_TEST(a_loaded_momentum_is_dampened),
        OP_TEST(failing_steps_change_nothing),
        OP_TEST(failing_creations_leave_nothing),
        OP_TEST(steady_steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
