/* Modules: trees, containers, modes, freezing, copies, summaries. Layers are in test_layers.c, user
 * classes in test_module_class.c, files in test_safetensors.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/tensor.h"
#include "core/thread.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/ops.h"

static luge_module *small_net(void)
{
    return luge_nn_sequential(luge_nn_linear(3, 4, NULL), luge_nn_tanh(), luge_nn_linear(4, 2, NULL));
}

static void destroy_all(int n, luge_module *const *m)
{
    for (int i = 0; i < n; ++i) luge_module_destroy(m[i]);
}

/* ---- names, trees, visits */

typedef struct seen {
    char text[512];
} seen;

static void note_param(const char *name, luge_tensor *param, void *user)
{
    seen *s = user;
    char shape[LG_SHAPE_TEXT];
    assert_true(luge_tensor_shape(param).rank >= 0);
    snprintf(s->text + strlen(s->text), sizeof s->text - strlen(s->text), "%s%s ", name,
             lg_shape_text(shape, &param->shape));
}

static void note_module(const char *name, luge_module *module, void *user)
{
    seen *s = user;
    snprintf(s->text + strlen(s->text), sizeof s->text - strlen(s->text), "%s:%s ", name, luge_module_kind(module));
}

static void names_are_pytorchs(void **state)
{
    (void)state;
    luge_module *net = luge_nn_sequential(luge_nn_conv2d(1, 2, 3, NULL), luge_nn_batch_norm2d(2, NULL),
                                          luge_nn_residual(luge_nn_linear(4, 4, NULL), luge_nn_identity()));
    seen params = {""}, buffers = {""}, modules = {""};
    assert_int_equal(luge_module_each_param(net, note_param, &params), LUGE_OK);
    assert_int_equal(luge_module_each_buffer(net, note_param, &buffers), LUGE_OK);
    assert_int_equal(luge_module_each(net, note_module, &modules), LUGE_OK);
    assert_string_equal(params.text, "0.weight[2, 1, 3, 3] 0.bias[2] 1.weight[2] 1.bias[2] 2.body.weight[4, 4] "
                                     "2.body.bias[4] ");
    assert_string_equal(buffers.text, "1.running_mean[2] 1.running_var[2] 1.num_batches_tracked[] ");
    assert_string_equal(modules.text,
                        ":Sequential 0:Conv2d 1:BatchNorm2d 2:Residual 2.body:Linear 2.shortcut:Identity ");
    assert_int_equal(luge_module_param_count(net), 18 + 2 + 4 + 20);
    assert_ptr_equal(luge_module_param(net, "2.body.bias"),
                     luge_module_param(luge_module_child(net, "2.body"), "bias"));
    assert_int_equal(luge_tensor_dtype(luge_module_buffer(net, "1.num_batches_tracked")), LUGE_I64);
    luge_module_destroy(net);
}

static void what_is_not_there_is_an_error(void **state)
{
    (void)state;
    luge_module *net = small_net();
    static const char *const wrong[] = {"",        ".",         "0",        "0.",        ".weight",
                                        "0.weigh", "0.weight.", "3.weight", "00.weight", "0..weight"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
        assert_null(luge_module_param(net, wrong[i]));
        assert_error(LUGE_ERR_ARGUMENT, "luge_module_param: the Sequential has no parameter");
    }
    assert_null(luge_module_buffer(net, "0.weight"));
    assert_error(LUGE_ERR_ARGUMENT, "no buffer \"0.weight\"");
    assert_null(luge_module_child(net, "0.weight"));
    assert_error(LUGE_ERR_ARGUMENT, "no module \"0.weight\"");
    assert_null(luge_module_child(net, ""));
    assert_error(LUGE_ERR_ARGUMENT, "no module \"\"");
    assert_null(luge_module_param(net, NULL));
    assert_error(LUGE_ERR_ARGUMENT, "the name is NULL");
    assert_null(luge_module_param(NULL, "a"));
    assert_error(LUGE_ERR_ARGUMENT, "the module is NULL");
    luge_module_destroy(net);
}

static void null_modules_are_errors(void **state)
{
    (void)state;
    seen s = {""};
    luge_module_train(NULL);
    assert_error(LUGE_ERR_ARGUMENT, "luge_module_train: the module is NULL");
    luge_module_eval(NULL);
    assert_error(LUGE_ERR_ARGUMENT, "luge_module_eval: the module is NULL");
    assert_false(luge_module_training(NULL));
    assert_string_equal(luge_module_kind(NULL), "");
    assert_int_equal(luge_module_param_count(NULL), 0);
    assert_error(LUGE_ERR_ARGUMENT, "the module is NULL");
    assert_int_equal(luge_module_each(NULL, note_module, &s), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "the module is NULL");
    assert_null(luge_module_clone(NULL));
    assert_error(LUGE_ERR_ARGUMENT, "luge_module_clone: the module is NULL");
    assert_int_equal(luge_module_freeze(NULL, NULL), 0);
    assert_error(LUGE_ERR_ARGUMENT, "luge_module_freeze: the module is NULL");
    assert_null(luge_forward(NULL, luge_none()));
    assert_error(LUGE_ERR_ARGUMENT, "luge_forward: the module is NULL");
    assert_int_equal(luge_module_to_dtype(NULL, LUGE_F64), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "the module is NULL");
    assert_int_equal(luge_module_copy(NULL, NULL), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "the module is NULL");
    luge_module_destroy(NULL);
    luge_module *net = luge_nn_relu();
    assert_int_equal(luge_module_each_param(net, NULL, NULL), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "the function is NULL");
    luge_module_destroy(net);
}

/* ---- containers own what they are given */

static void containers_own_what_they_are_given(void **state)
{
    (void)state;
    luge_module *twice = luge_nn_relu();
    assert_null(luge_nn_sequential(twice, luge_nn_linear(2, 2, NULL), twice));
    assert_error(LUGE_ERR_STATE, "Sequential: module \"2\" belongs to a Sequential already");

    assert_null(luge_nn_sequential(luge_nn_linear(2, 2, NULL), NULL, luge_nn_linear(2, 2, NULL)));
    assert_error(LUGE_ERR_ARGUMENT, "Sequential: module \"1\" is NULL");

    /* A failed constructor in the middle: the others go, the first error stays. */
    assert_null(luge_nn_sequential(luge_nn_linear(2, 2, NULL), luge_nn_linear(0, 2, NULL), luge_nn_relu()));
    assert_error(LUGE_ERR_ARGUMENT, "Linear: in must");

    assert_null(luge_nn_residual(NULL, luge_nn_relu()));
    assert_error(LUGE_ERR_ARGUMENT, "Residual: module \"body\" is NULL");
    luge_module *same = luge_nn_relu();
    assert_null(luge_nn_residual(same, same));
    assert_error(LUGE_ERR_STATE, "already");
    assert_int_equal(live_now().objects, 0);

    /* One that is owned stays with its owner. */
    luge_module *inner = luge_nn_relu(), *outer = luge_nn_sequential(inner);
    assert_null(luge_nn_sequential(luge_nn_tanh(), inner));
    assert_error(LUGE_ERR_STATE, "belongs to a Sequential");
    assert_ptr_equal(luge_module_child(outer, "0"), inner);
    /* A module and the one above it. */
    assert_null(luge_nn_sequential(outer, inner));
    assert_error(LUGE_ERR_STATE, "already");
    assert_int_equal(live_now().objects, 0);
    /* And the other way round: what is owned by none goes once. */
    inner = luge_nn_relu();
    outer = luge_nn_sequential(inner);
    assert_null(luge_nn_sequential(inner, outer, outer, NULL));
    assert_error(LUGE_ERR_STATE, "already");
    assert_int_equal(live_now().objects, 0);
}

static void log_line(luge_log_level level, const char *text, void *user)
{
    assert_int_equal(level, LUGE_LOG_WARNING);
    snprintf(user, 256, "%s", text);
}

static void destroying_a_child_is_ignored_with_a_warning(void **state)
{
    (void)state;
    char text[256] = "";
    luge_set_log(log_line, text);
    luge_module *child = luge_nn_relu(), *net = luge_nn_sequential(child);
    luge_module_destroy(child);
    assert_non_null(strstr(text, "ReLU belongs to another module"));
    luge_set_log(NULL, NULL);
    assert_ptr_equal(luge_module_child(net, "0"), child);
    luge_module_destroy(net);
}

static void deep_trees_need_no_stack(void **state)
{
    (void)state;
    luge_module *net = luge_nn_identity();
    for (int i = 0; i < 200000 && net != NULL; ++i) net = luge_nn_sequential(net);
    assert_int_equal(luge_module_param_count(net), 0);
    luge_module_eval(net);
    luge_module_destroy(net);
    assert_int_equal(live_now().objects, 0);
}

static void empty_sequences_return_their_input(void **state)
{
    (void)state;
    luge_module *net = luge_nn_sequential_array(NULL, 0);
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2);
    assert_ptr_equal(luge_forward(net, x), x);
    luge_module_destroy(net);
}

/* ---- modes */

static void eval_regions_restore_every_modes(void **state)
{
    (void)state;
    luge_module *dropout = luge_nn_dropout(0.5), *net = luge_nn_sequential(luge_nn_relu(), luge_nn_sequential(dropout));
    luge_module_eval(luge_module_child(net, "1"));
    for (int i = 0; i < 2; ++i) {
        LUGE_SCOPE("t");
        LUGE_EVAL(net);
        assert_true(lg_self()->modes.no_grad);
        assert_false(luge_module_training(net) || luge_module_training(dropout));
        luge_module_train(net); /* what happens inside is undone */
        {
            LUGE_EVAL(dropout);
            assert_false(luge_module_training(dropout));
            assert_true(luge_module_training(net));
        }
        assert_true(luge_module_training(dropout));
    }
    assert_true(luge_module_training(net));
    assert_true(luge_module_training(luge_module_child(net, "0")));
    assert_false(luge_module_training(luge_module_child(net, "1")));
    assert_false(luge_module_training(dropout));
    assert_false(lg_self()->modes.no_grad);
    luge_module_destroy(net);
}

static void eval_regions_of_nothing_close_too(void **state)
{
    (void)state;
    {
        LUGE_EVAL(NULL);
        assert_error(LUGE_ERR_ARGUMENT, "luge_eval_enter: the module is NULL");
        assert_true(lg_self()->modes.no_grad);
    }
    assert_false(lg_self()->modes.no_grad);
    luge_module *net = luge_nn_relu();
    luge_fail(LUGE_ERR_IO, "standing");
    {
        LUGE_EVAL(net);
        assert_true(luge_module_training(net)); /* nothing is changed while an error stands */
    }
    assert_error(LUGE_ERR_IO, "standing");
    luge_module_destroy(net);
}

static void modules_may_go_under_an_open_eval_region(void **state)
{
    (void)state;
    {
        luge_module *net = small_net();
        LUGE_EVAL(net);
        luge_module_destroy(net);
        assert_int_equal(live_now().objects, 4); /* until the region closes */
    }
    assert_int_equal(live_now().objects, 0);
    { /* a child that outlives its parent meanwhile */
        luge_module *net = small_net();
        LUGE_EVAL(luge_module_child(net, "0"));
        luge_module_destroy(net);
        assert_int_equal(live_now().objects, 1);
    }
    assert_int_equal(live_now().objects, 0);
}

/* ---- freezing */

static void frozen_parameters_get_no_gradient(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *net = small_net();
    luge_tensor *x = luge_ones(LUGE_SHAPE(2, 3), NULL);
    luge_backward(luge_sum(luge_forward(net, x), LUGE_ALL_AXES));
    assert_int_equal(luge_module_freeze(net, "0.*"), 2);
    assert_true(luge_is_none(luge_tensor_grad(luge_module_param(net, "0.weight")))); /* what it had is dropped */
    assert_false(luge_is_none(luge_tensor_grad(luge_module_param(net, "2.weight"))));
    luge_backward(luge_sum(luge_forward(net, x), LUGE_ALL_AXES));
    assert_true(luge_is_none(luge_tensor_grad(luge_module_param(net, "0.weight"))));
    assert_false(luge_tensor_requires_grad(luge_module_param(net, "0.bias")));
    assert_int_equal(luge_module_unfreeze(net, "0.weight|2.weight"), 2);
    luge_backward(luge_sum(luge_forward(net, x), LUGE_ALL_AXES));
    assert_false(luge_is_none(luge_tensor_grad(luge_module_param(net, "0.weight"))));
    assert_int_equal(luge_module_freeze(net, "@vectors"), 2);
    assert_int_equal(luge_module_freeze(net, NULL), 4);
    assert_int_equal(luge_module_unfreeze(net, NULL), 4);
    assert_int_equal(luge_module_freeze(net, "3.*"), 0);
    assert_error(LUGE_ERR_ARGUMENT,
                 "luge_module_freeze: no parameter matches \"3.*\"; the first is called \"0.weight\"");
    assert_int_equal(luge_module_freeze(net, "@vector"), 0);
    assert_error(LUGE_ERR_ARGUMENT, "\"@vector\" is no class");
    luge_module_destroy(net);
    luge_module *none = luge_nn_relu();
    assert_int_equal(luge_module_unfreeze(none, NULL), 0);
    assert_error(LUGE_ERR_ARGUMENT, "luge_module_unfreeze: no parameter matches \"*\"; there is none");
    luge_module_destroy(none);
}

static void running_statistics_beside_frozen_parameters_stand_still(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *net = luge_nn_sequential(luge_nn_batch_norm1d(1, NULL), luge_nn_batch_norm1d(1, NULL));
    luge_module_freeze(net, "0.weight");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2, 1), 10, 30);
    luge_forward(net, x);
    assert_values(luge_module_buffer(net, "0.running_mean"), 0);
    assert_values(luge_module_buffer(net, "0.num_batches_tracked"), 0);
    assert_values(luge_module_buffer(net, "1.num_batches_tracked"), 1);
    assert_near(luge_item(luge_module_buffer(net, "1.running_mean")), 2, 1e-4); /* saw what the first left as it was */
    luge_module_unfreeze(net, "0.weight");
    luge_forward(net, x);
    assert_values(luge_module_buffer(net, "0.running_mean"), 2);
    luge_module_destroy(net);
}

/* ---- copies, clones, moves */

static void clones_are_independent_and_equal(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const luge_shape bn_input = LUGE_SHAPE(4, 3);
    luge_module *net =
        luge_nn_sequential(luge_nn_linear(3, 3, NULL), luge_nn_batch_norm1d(3, NULL),
                           luge_nn_residual(luge_nn_linear(3, 3, NULL), luge_nn_identity()), luge_nn_dropout(0.3));
    luge_forward(net, luge_randn(bn_input, NULL));
    luge_module_freeze(net, "2.*");
    luge_module_eval(luge_module_child(net, "1"));
    luge_seed(9);
    luge_tensor *drawn = luge_rand(LUGE_SHAPE(3), NULL);
    luge_seed(9);
    luge_module *copy = luge_module_clone(net);
    assert_true(same_bits(luge_rand(LUGE_SHAPE(3), NULL), drawn)); /* cloning drew nothing */
    static const char *const params[] = {"0.weight", "0.bias", "1.weight", "1.bias", "2.body.weight", "2.body.bias"};
    for (int i = 0; i < 6; ++i) {
        luge_tensor *a = luge_module_param(net, params[i]), *b = luge_module_param(copy, params[i]);
        assert_ptr_not_equal(a, b);
        assert_true(same_bits(a, b));
        assert_int_equal(luge_tensor_requires_grad(b), i < 4);
    }
    assert_true(same_bits(luge_module_buffer(net, "1.running_mean"), luge_module_buffer(copy, "1.running_mean")));
    assert_values(luge_module_buffer(copy, "1.num_batches_tracked"), 1);
    assert_true(luge_module_training(copy));
    assert_false(luge_module_training(luge_module_child(copy, "1")));
    {
        LUGE_NO_GRAD();
        luge_fill_(luge_module_param(copy, "0.weight"), 7);
    }
    assert_false(same_bits(luge_module_param(net, "0.weight"), luge_module_param(copy, "0.weight")));
    /* Of a part, in another dtype; the original may go first. */
    luge_module_to_dtype(net, LUGE_F64);
    luge_module *part = luge_module_clone(luge_module_child(net, "2"));
    luge_module_destroy(net);
    assert_int_equal(luge_tensor_dtype(luge_module_param(part, "body.weight")), LUGE_F64);
    luge_module_destroy(part);
    luge_module_destroy(copy);
}

static void parameter_lists_clone_their_tensors(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2);
    luge_module *list = luge_nn_params(LUGE_LIST(w)), *copy = luge_module_clone(list);
    assert_ptr_not_equal(luge_module_param(copy, "0"), w);
    assert_values(luge_module_param(copy, "0"), 1, 2);
    assert_true(luge_tensor_requires_grad(luge_module_param(copy, "0")));
    luge_module_destroy(copy);
    luge_module_destroy(list);
}

static void copying_wants_everything_to_fit(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *a = small_net(), *b = small_net(),
                *c = luge_nn_sequential(luge_nn_linear(3, 4, NULL), luge_nn_tanh(), luge_nn_linear(4, 3, NULL)),
                *shorter = luge_nn_sequential(luge_nn_linear(3, 4, NULL));
    luge_tensor *handle = luge_module_param(b, "0.weight"), *old = luge_clone(luge_detach(handle));
    assert_int_equal(luge_module_copy(b, c), LUGE_ERR_SHAPE);
    assert_error(LUGE_ERR_SHAPE, "luge_module_copy: 2.weight is [2, 4] in the one, [3, 4] in the other");
    assert_int_equal(luge_module_copy(b, shorter), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "2.weight is missing in the module copied from");
    assert_int_equal(luge_module_copy(shorter, b), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "2.weight is missing in the module copied to");
    assert_true(same_bits(luge_detach(handle), old));
    assert_int_equal(luge_module_copy(b, a), LUGE_OK);
    assert_ptr_equal(luge_module_param(b, "0.weight"), handle);
    assert_true(same_bits(handle, luge_module_param(a, "0.weight")));
    assert_true(luge_tensor_requires_grad(handle));
    luge_module_to_dtype(b, LUGE_BF16); /* the dtype is the target's */
    assert_int_equal(luge_module_copy(b, a), LUGE_OK);
    assert_int_equal(luge_tensor_dtype(handle), LUGE_BF16);
    assert_int_equal(luge_module_copy(a, a), LUGE_OK);
    destroy_all(4, (luge_module *[]){a, b, c, shorter});
}

/* SAV-11: w = 1; best = snapshot(model); sgd step w -> 0.8; restore(best). */
static void sav_11_snapshots_do_not_alias(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = LUGE_TENSOR(LUGE_SHAPE(1), 1);
    luge_module *model = luge_nn_params(LUGE_LIST(w)), *best = luge_module_clone(model);
    luge_optim *opt = luge_sgd_create(model, 0.1, NULL);
    luge_backward(luge_sum(luge_square(w), LUGE_ALL_AXES));
    luge_optim_step(opt);
    assert_near(luge_item(w), 0.8, 1e-7);
    luge_module_copy(model, best);
    assert_values(w, 1);
    luge_optim_destroy(opt);
    luge_module_destroy(best);
    luge_module_destroy(model);
}

static void converting_keeps_handles_and_takes_gradients_along(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *net = luge_nn_sequential(luge_nn_linear(2, 2, NULL), luge_nn_batch_norm1d(2, NULL));
    luge_tensor *w = luge_module_param(net, "0.weight"), *x = luge_ones(LUGE_SHAPE(2, 2), NULL);
    luge_backward(luge_sum(luge_square(luge_forward(luge_module_child(net, "0"), x)), LUGE_ALL_AXES));
    luge_tensor *g = luge_tensor_grad(w), *values = luge_clone(luge_detach(w));
    assert_int_equal(luge_module_to_dtype(net, LUGE_F64), LUGE_OK);
    assert_ptr_equal(luge_module_param(net, "0.weight"), w);
    assert_int_equal(luge_tensor_dtype(w), LUGE_F64);
    assert_true(same_bits(luge_cast(luge_detach(w), LUGE_F32), values));
    assert_true(luge_tensor_requires_grad(w));
    assert_int_equal(luge_tensor_dtype(luge_tensor_grad(w)), LUGE_F64);
    assert_int_equal(luge_tensor_dtype(g), LUGE_F32); /* what the user holds is left alone */
    assert_int_equal(luge_tensor_dtype(luge_module_buffer(net, "1.running_mean")), LUGE_F64);
    assert_int_equal(luge_tensor_dtype(luge_module_buffer(net, "1.num_batches_tracked")), LUGE_I64);
    assert_int_equal(luge_module_to(net, luge_device_cpu()), LUGE_OK);
    assert_int_equal(luge_module_to_dtype(net, LUGE_I64), LUGE_ERR_DTYPE);
    assert_error(LUGE_ERR_DTYPE, "luge_module_to_dtype: modules have floats, not i64");
    assert_int_equal(luge_module_to_dtype(net, (luge_dtype)99), LUGE_ERR_DTYPE);
    luge_error_clear();
    assert_int_equal(luge_module_to(net, (luge_device){77, 0}), LUGE_ERR_DEVICE);
    luge_error_clear();
    luge_module_destroy(net);
}

/* What saved no values runs on, and its gradients are as the parameters are now. */
static void gradients_follow_a_conversion_after_forward(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *p = luge_ones(LUGE_SHAPE(3), NULL);
    luge_module *m = luge_nn_params(LUGE_LIST(p));
    luge_tensor *loss = luge_sum(luge_mul_scalar(p, 0.5), LUGE_ALL_AXES);
    assert_int_equal(luge_module_to_dtype(m, LUGE_F16), LUGE_OK);
    assert_int_equal(luge_backward(loss), LUGE_OK);
    assert_int_equal(luge_tensor_dtype(luge_tensor_grad(p)), LUGE_F16);
    assert_values(luge_cast(luge_tensor_grad(p), LUGE_F32), 0.5, 0.5, 0.5);
    luge_module_destroy(m);
}

/* A graph that saved the old values must not run with the new ones. */
static void graphs_notice_that_a_module_was_changed(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *net = luge_nn_linear(2, 2, NULL), *other = luge_module_clone(net);
    luge_tensor *x = luge_requires_grad_(luge_ones(LUGE_SHAPE(1, 2), NULL));
    luge_tensor *loss = luge_sum(luge_forward(net, x), LUGE_ALL_AXES);
    luge_module_copy(net, other);
    assert_int_equal(luge_backward(loss), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "changed in place");
    luge_module_destroy(other);
    luge_module_destroy(net);
}

/* ---- summary */

static void summaries_tell_shapes_parameters_and_flops(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *net = luge_nn_sequential(luge_nn_conv2d(1, 4, 3, NULL), luge_nn_batch_norm2d(4, NULL), luge_nn_relu(),
                                          luge_nn_flatten(), luge_nn_dropout(0.5), luge_nn_linear(16, 3, NULL));
    luge_module_freeze(net, "0.*");
    luge_module_eval(luge_module_child(net, "2"));
    luge_seed(4);
    luge_tensor *drawn = luge_rand(LUGE_SHAPE(2), NULL);
    luge_seed(4);
    const double flops = lg_self()->flops;
    const char *text = luge_module_summary(net, LUGE_SHAPE(2, 1, 4, 4));
    assert_true(luge_ok());
    assert_true(lg_self()->flops == flops);
    assert_true(same_bits(luge_rand(LUGE_SHAPE(2), NULL), drawn));
    assert_true(luge_module_training(net));
    assert_false(luge_module_training(luge_module_child(net, "2")));
    assert_values(luge_module_buffer(net, "1.num_batches_tracked"), 0);
    assert_non_null(strstr(text, "Conv2d"));
    assert_non_null(strstr(text, "[2, 4, 2, 2]"));
    assert_non_null(strstr(text, "[2, 16]"));
    assert_non_null(strstr(text, "99 parameters, 59 of them trainable, 40 frozen; "));
    /* 2 * 4 * 4 * 9 multiply-adds and a bias; 2 * 3 * 16: see the ops' own counts */
    LUGE_NO_GRAD();
    const double before = lg_self()->flops;
    luge_forward(luge_module_child(net, "5"), luge_zeros(LUGE_SHAPE(2, 16), NULL));
    char line[64];
    snprintf(line, sizeof line, "51 %11.0f\n", lg_self()->flops - before);
    assert_non_null(strstr(text, line));
    luge_module_destroy(net);
}

static void summaries_of_what_does_not_run(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *net = small_net();
    const char *text = luge_module_summary(net, LUGE_SHAPE(1, 5));
    assert_non_null(strstr(text, "26 parameters"));
    assert_non_null(strstr(text, "summary.Sequential.0: linear: "));
    assert_error(LUGE_ERR_SHAPE, "linear");
    assert_non_null(strstr(luge_module_summary(NULL, LUGE_SHAPE(1)), "the module is NULL"));
    assert_error(LUGE_ERR_ARGUMENT, "NULL");
    luge_module *lookup = luge_nn_sequential(luge_nn_embedding(5, 3, NULL), luge_nn_linear(3, 2, NULL));
    text = luge_module_summary(lookup, LUGE_SHAPE(2, 4));
    assert_true(luge_ok());
    assert_non_null(strstr(text, "[2, 4, 2]"));
    luge_module_destroy(lookup);
    luge_module_destroy(net);
}

/* ---- failures in turn, threads */

static luge_module *everything(void)
{
    return luge_nn_sequential(luge_nn_conv2d(1, 4, 3, NULL), luge_nn_batch_norm2d(4, NULL), luge_nn_relu(),
                              luge_nn_max_pool2d(2, NULL), luge_nn_flatten(),
                              luge_nn_residual(luge_nn_linear(4, 4, NULL), luge_nn_sequential(luge_nn_dropout(0.1))),
                              luge_nn_linear(4, 4, NULL));
}

/* Each allocation of each kind fails in turn until one run goes through. */
static void fail_in_turn(void (*act)(void *user), void *user)
{
    for (int kind = LG_FAULT_HOST; kind <= LG_FAULT_DEVICE; ++kind) {
        const luge_live_counts before = live_now();
        int64_t n = 1;
        for (;; ++n) {
            lg_fault_set((lg_fault_kind)kind, n);
            {
                LUGE_SCOPE("fault");
                act(user);
            }
            const bool hit = lg_fault_hit((lg_fault_kind)kind);
            lg_fault_set((lg_fault_kind)kind, 0);
            const luge_status status = luge_error_take(NULL, 0);
            const luge_live_counts after = live_now();
            if (after.objects != before.objects || after.tensors != before.tensors ||
                after.host_bytes != before.host_bytes) {
                fail_msg("kind %d, request %d: left behind %d objects, %d tensors, %d bytes", kind, (int)n,
                         (int)(after.objects - before.objects), (int)(after.tensors - before.tensors),
                         (int)(after.host_bytes - before.host_bytes));
            }
            if (!hit) break;
            /* A cached block may take the place of the one that failed; other devices' bookkeeping has a way
             * without. */
            if (kind == LG_FAULT_HOST && on_cpu()) assert_int_equal(status, LUGE_ERR_OUT_OF_MEMORY);
        }
        assert_true(n > 3);
    }
}

static void build_and_destroy(void *user)
{
    (void)user;
    luge_module_destroy(everything());
}

static void clone_and_destroy(void *user)
{
    luge_module_destroy(luge_module_clone(user));
}

static void run_forward(void *user)
{
    luge_forward(user, luge_zeros(LUGE_SHAPE(2, 1, 4, 4), NULL));
}

static void summarise(void *user)
{
    luge_module_summary(user, LUGE_SHAPE(2, 1, 4, 4));
}

static void failures_leave_nothing_behind(void **state)
{
    (void)state;
    luge_module_destroy(everything());
    fail_in_turn(build_and_destroy, NULL);
    luge_module *net = everything();
    luge_module_eval(net);
    {
        LUGE_SCOPE("warm");
        run_forward(net);
    }
    fail_in_turn(clone_and_destroy, net);
    fail_in_turn(summarise, net);
    LUGE_NO_GRAD();
    fail_in_turn(run_forward, net);
    luge_module_destroy(net);
}

/* A conversion that fails has converted nothing. */
static void failing_conversions_change_nothing(void **state)
{
    (void)state;
    luge_module *net = everything(), *other = everything();
    bool done = false;
    for (int64_t n = 1; !done; ++n) {
        lg_fault_set(LG_FAULT_HOST, n);
        const luge_status status = luge_module_to_dtype(net, LUGE_F64);
        lg_fault_set(LG_FAULT_HOST, 0);
        luge_error_clear();
        done = status == LUGE_OK;
        const luge_dtype should = done ? LUGE_F64 : LUGE_F32;
        assert_int_equal(luge_tensor_dtype(luge_module_param(net, "0.weight")), should);
        assert_int_equal(luge_tensor_dtype(luge_module_param(net, "6.bias")), should);
    }
    const double first = luge_item(luge_select(luge_module_param(net, "6.bias"), 0, 0));
    for (int64_t n = 1;; ++n) {
        lg_fault_set(LG_FAULT_HOST, n);
        const luge_status status = luge_module_copy(net, other);
        lg_fault_set(LG_FAULT_HOST, 0);
        luge_error_clear();
        if (status == LUGE_OK) break;
        assert_true(luge_item(luge_select(luge_module_param(net, "6.bias"), 0, 0)) == first);
    }
    luge_module_destroy(other);
    luge_module_destroy(net);
}

typedef struct reader {
    luge_module *net;
    luge_tensor *x, *y; /* y: what should come out */
    bool good;
} reader;

static void *predict(void *arg)
{
    reader *r = arg;
    r->good = true;
    for (int i = 0; i < 50; ++i) {
        LUGE_SCOPE("predict");
        LUGE_NO_GRAD();
        LUGE_EVAL(r->net); /* changes nothing: it is in eval mode */
        r->good = r->good && same_bits(luge_forward(r->net, r->x), r->y);
    }
    return NULL;
}

static void threads_share_a_module_that_nobody_changes(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *net = everything();
    luge_module_eval(net);
    reader r[4];
    luge_tensor *x = luge_randn(LUGE_SHAPE(2, 1, 4, 4), NULL), *y = luge_detach(luge_forward(net, x));
    pthread_t thread[4];
    for (int i = 0; i < 4; ++i) {
        r[i] = (reader){net, x, y, false};
        assert_int_equal(pthread_create(&thread[i], NULL, predict, &r[i]), 0);
    }
    for (int i = 0; i < 4; ++i) {
        pthread_join(thread[i], NULL);
        assert_true(r[i].good);
    }
    luge_module_destroy(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(names_are_pytorchs),
        OP_TEST(what_is_not_there_is_an_error),
        OP_TEST(null_modules_are_errors),
        OP_TEST(containers_own_what_they_are_given),
        OP_TEST(destroying_a_child_is_ignored_with_a_warning),
        OP_TEST(deep_trees_need_no_stack),
        OP_TEST(empty_sequences_return_their_input),
        OP_TEST(eval_regions_restore_every_modes),
        OP_TEST(eval_regions_of_nothing_close_too),
        OP_TEST(modules_may_go_under_an_open_eval_region),
        OP_TEST(frozen_parameters_get_no_gradient),
        OP_TEST(running_statistics_beside_frozen_parameters_stand_still),
        OP_TEST(clones_are_independent_and_equal),
        OP_TEST(parameter_lists_clone_their_tensors),
        OP_TEST(copying_wants_everything_to_fit),
        OP_TEST(sav_11_snapshots_do_not_alias),
        OP_TEST(converting_keeps_handles_and_takes_gradients_along),
        OP_TEST(gradients_follow_a_conversion_after_forward),
        OP_TEST(graphs_notice_that_a_module_was_changed),
        OP_TEST(summaries_tell_shapes_parameters_and_flops),
        OP_TEST(summaries_of_what_does_not_run),
        OP_TEST(failures_leave_nothing_behind),
        OP_TEST(failing_conversions_change_nothing),
        OP_TEST(threads_share_a_module_that_nobody_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
