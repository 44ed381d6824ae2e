/* Activation checkpointing: the same bits as without it, less memory, every function run once more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "core/fault.h"
#include "core/thread.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/ops.h"

/* ---- the entries of the list of pitfalls */

static luge_tensor *drop_half(luge_list inputs, void *user)
{
    (void)user;
    return luge_dropout(inputs.items[0], 0.5, true);
}

static void CKP_01_dropout_is_not_drawn_anew(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = luge_requires_grad_(luge_ones(LUGE_SHAPE(4096), NULL));
    luge_seed(3);
    luge_tensor *y = luge_checkpoint(drop_half, LUGE_LIST(x), NULL), *next = luge_rand(LUGE_SHAPE(4), NULL);
    luge_rand(LUGE_SHAPE(100), NULL);
    const uint64_t offset = lg_self()->rng_offset;
    luge_backward(luge_sum(y, LUGE_ALL_AXES));
    assert_true(same_bits(luge_tensor_grad(x), y));
    assert_true(lg_self()->rng_offset == offset);
    luge_tensor *plain = luge_requires_grad_(luge_ones(LUGE_SHAPE(4096), NULL));
    luge_seed(3);
    luge_tensor *z = drop_half(LUGE_LIST(plain), NULL);
    assert_true(same_bits(luge_rand(LUGE_SHAPE(4), NULL), next));
    luge_backward(luge_sum(z, LUGE_ALL_AXES));
    assert_true(same_bits(z, y));
    assert_true(same_bits(luge_tensor_grad(x), luge_tensor_grad(plain)));
}

static luge_tensor *times_weight(luge_list inputs, void *user) { return luge_matmul(user, inputs.items[0]); }

static void CKP_02_inputs_without_gradients(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2), *w = LEAF(LUGE_SHAPE(1, 2), 3, 4);
    luge_tensor *y = luge_checkpoint(times_weight, LUGE_LIST(x), w);
    assert_true(luge_tensor_requires_grad(y));
    luge_backward(luge_sum(y, LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(w), 1, 2);
}

static luge_tensor *masked_sum(luge_list inputs, void *user)
{
    (void)user;
    return luge_sum(luge_mul(inputs.items[0], inputs.items[1]), LUGE_ALL_AXES);
}

static void CKP_03_mixed_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LEAF(LUGE_SHAPE(3), 1, 2, 3), *mask = luge_cast(LUGE_TENSOR(LUGE_SHAPE(3), 1, 0, 1), LUGE_I64);
    luge_backward(luge_checkpoint(masked_sum, LUGE_LIST(x, mask, LUGE_NONE), NULL));
    assert_values(luge_tensor_grad(x), 1, 0, 1);
    assert_true(luge_is_none(luge_tensor_grad(mask)));
}

static luge_tensor *two_precisions(luge_list inputs, void *user)
{
    luge_tensor *y = luge_forward(user, inputs.items[0]);
    LUGE_AUTOCAST(LUGE_F32);
    return luge_forward(user, luge_cast(luge_tanh(y), LUGE_F32));
}

static void CKP_04_autocast_is_that_of_the_first_run(void **state)
{
    (void)state;
    for (int low = LUGE_F16; low <= LUGE_BF16; ++low) {
        luge_tensor *grad[2];
        LUGE_SCOPE("t");
        luge_seed(4);
        luge_module *linear = luge_nn_linear(8, 8, NULL);
        luge_tensor *x = luge_randn(LUGE_SHAPE(5, 8), NULL);
        for (int again = 0; again < 2; ++again) {
            luge_tensor *y;
            {
                LUGE_AUTOCAST((luge_dtype)low);
                y = again ? luge_checkpoint(two_precisions, LUGE_LIST(x), linear) : two_precisions(LUGE_LIST(x), linear);
            }
            luge_backward(luge_sum(luge_square(y), LUGE_ALL_AXES));
            luge_tensor *w = luge_module_param(linear, "weight");
            grad[again] = luge_clone(w->grad);
            luge_release(w->grad);
            w->grad = NULL;
        }
        assert_true(same_bits(grad[0], grad[1]));
        luge_module_destroy(linear);
    }
}

static int calls_of_g;

static luge_tensor *g(luge_list inputs, void *user)
{
    (void)user;
    ++calls_of_g;
    return luge_mul(inputs.items[0], inputs.items[0]);
}

static luge_tensor *f(luge_list inputs, void *user)
{
    (void)user;
    return luge_checkpoint(g, LUGE_LIST(luge_checkpoint(g, inputs, NULL)), NULL);
}

static void CKP_05_regions_inside_regions(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LEAF(LUGE_SCALAR, 2);
    calls_of_g = 0;
    const luge_live_counts before = live_now();
    {
        LUGE_SCOPE("run");
        luge_tensor *y = luge_checkpoint(f, LUGE_LIST(x), NULL);
        assert_int_equal(calls_of_g, 2);
        assert_values(y, 16);
        luge_backward(y);
    }
    assert_values(luge_tensor_grad(x), 32);
    assert_in_range(calls_of_g, 3, 6);
    assert_int_equal(live_now().tensors, before.tensors + 1);
    assert_int_equal(live_now().nodes, before.nodes);
}

/* ---- nets */

static luge_tensor *twice(luge_module *self, void *state, luge_tensor *x)
{
    (void)state;
    luge_module *shared = luge_module_child(self, "shared");
    return luge_forward(shared, luge_tanh(luge_forward(shared, x)));
}

static void build_twice(luge_module *self, void *state)
{
    (void)state;
    luge_module_add(self, "shared", luge_nn_linear(16, 16, NULL));
}

static const luge_module_class twice_class = {.name = "Twice", .build = build_twice, .forward = twice};

static luge_module *convolutional(void)
{
    luge_module *features = luge_nn_sequential(luge_nn_conv2d(2, 4, 3, NULL), luge_nn_batch_norm2d(4, NULL), luge_nn_relu(),
                                               luge_nn_max_pool2d(2, NULL), luge_nn_dropout(0.3), luge_nn_flatten());
    return luge_nn_sequential(features, luge_nn_linear(36, 16, NULL), luge_module_create(&twice_class, NULL), luge_nn_gelu(),
                              luge_nn_layer_norm(LUGE_SHAPE(16), NULL), luge_nn_linear(16, 3, NULL));
}

static luge_module *transformer(void)
{
    luge_transformer_options options = {.dim_feedforward = 24, .gelu = true};
    return luge_nn_sequential(luge_nn_linear(64, 64, NULL), luge_nn_transformer_encoder_layer(64, 2, &options),
                              luge_nn_transformer_encoder_layer(64, 2, &options), luge_nn_linear(64, 3, NULL));
}

/* Everything that a step leaves behind. */
typedef struct outcome {
    luge_tensor *all[64];
    int count;
} outcome;

static void add_grad(const char *name, luge_tensor *t, void *user)
{
    (void)name;
    outcome *o = user;
    o->all[o->count++] = luge_clone(t->grad != NULL ? t->grad : t);
}

static outcome outcome_of(luge_module *(*make)(void), luge_shape input, luge_dtype low, const luge_checkpointing *policy)
{
    outcome o = {.count = 0};
    luge_seed(21);
    luge_module *m = make();
    assert_int_equal(luge_module_set_checkpointing(m, policy), LUGE_OK);
    luge_tensor *x = luge_requires_grad_(luge_randn(input, NULL)), *y;
    for (int i = 0; i < 2; ++i) {
        {
            LUGE_AUTOCAST(low);
            y = luge_forward(m, x);
        }
        luge_backward(luge_mean(luge_square(luge_cast(y, LUGE_F32)), LUGE_ALL_AXES));
    }
    o.all[o.count++] = luge_clone(y);
    o.all[o.count++] = luge_clone(luge_tensor_grad(x));
    o.all[o.count++] = luge_rand(LUGE_SHAPE(3), NULL);
    luge_module_each_param(m, add_grad, &o);
    luge_module_each_buffer(m, add_grad, &o);
    luge_module_destroy(m);
    assert_ok();
    return o;
}

static void gradients_have_the_same_bits(void **state)
{
    (void)state;
    static const luge_checkpointing policies[] = {{.every = 1}, {.every = 2}, {.sqrt = true}, {.modules = "0*|2"}, {.modules = "*"}};
    static const luge_dtype lows[] = {LUGE_F32, LUGE_BF16, LUGE_F16};
    for (int net = 0; net < 2; ++net)
        for (size_t l = 0; l < 3; ++l) {
            LUGE_SCOPE("t");
            luge_module *(*make)(void) = net == 0 ? convolutional : transformer;
            const luge_shape input = net == 0 ? LUGE_SHAPE(4, 2, 8, 8) : LUGE_SHAPE(2, 5, 64);
            const outcome plain = outcome_of(make, input, lows[l], NULL);
            for (size_t p = 0; p < sizeof policies / sizeof *policies; ++p) {
                const outcome o = outcome_of(make, input, lows[l], &policies[p]);
                assert_int_equal(o.count, plain.count);
                for (int i = 0; i < o.count; ++i)
                    if (!same_bits(o.all[i], plain.all[i])) fail_msg("net %d, dtype %d, policy %d: tensor %d differs", net, (int)l, (int)p, i);
            }
        }
}

/* ---- gradients of gradients */

static luge_tensor *smooth(luge_list inputs, void *user)
{
    (void)user;
    luge_tensor *y = luge_tanh(luge_matmul(inputs.items[0], inputs.items[1]));
    return luge_mul(luge_exp(y), luge_sigmoid(luge_sum(luge_square(y), LUGE_ALL_AXES)));
}

static luge_tensor *in_regions(luge_list inputs, void *user)
{
    luge_tensor *y = luge_checkpoint(smooth, inputs, user);
    return luge_checkpoint(smooth, LUGE_LIST(y, inputs.items[1]), user);
}

static void gradients_are_right_and_can_be_differentiated(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *a = luge_requires_grad_(luge_cast(luge_randn(LUGE_SHAPE(3, 3), NULL), LUGE_F64)),
                *b = luge_requires_grad_(luge_cast(luge_randn(LUGE_SHAPE(3, 3), NULL), LUGE_F64));
    assert_int_equal(luge_gradcheck(in_regions, LUGE_LIST(a, b), NULL, 1e-6), LUGE_OK);
    assert_int_equal(luge_gradgradcheck(in_regions, LUGE_LIST(a, b), NULL, 1e-5), LUGE_OK);
}

static void graphs_may_be_kept(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LEAF(LUGE_SHAPE(2, 2), 1, 2, 3, 4), *w = LEAF(LUGE_SHAPE(2, 2), 0.1, 0.2, 0.3, 0.4);
    luge_tensor *y = luge_sum(in_regions(LUGE_LIST(x, w), NULL), LUGE_ALL_AXES);
    const luge_backward_options keep = {.retain_graph = true};
    luge_tensor *first = luge_grad(y, x, &keep), *second = luge_grad(y, x, &keep), *of_w = luge_grad(y, w, &keep);
    assert_true(same_bits(first, second));
    assert_non_null(of_w);
    assert_true(luge_is_none(luge_tensor_grad(x)));
    luge_backward(y);
    assert_true(same_bits(luge_tensor_grad(x), first));
    assert_int_equal(luge_backward(y), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "was freed by an earlier backward");
}

/* ---- memory, and what it costs */

enum { BLOCKS = 100, WIDTH = 32 };

static int calls_of_blocks;

static luge_tensor *block(luge_module *self, void *state, luge_tensor *x)
{
    (void)state;
    ++calls_of_blocks;
    luge_module *linear = luge_module_child(self, "linear");
    return luge_add(x, luge_relu(luge_forward(linear, luge_tanh(x))));
}

static void build_block(luge_module *self, void *state)
{
    (void)state;
    luge_module_add(self, "linear", luge_nn_linear(WIDTH, WIDTH, NULL));
}

static const luge_module_class block_class = {.name = "Block", .build = build_block, .forward = block};

static luge_module *deep(void)
{
    luge_module *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; ++i) blocks[i] = luge_module_create(&block_class, NULL);
    return luge_nn_sequential_array(blocks, BLOCKS);
}

static int64_t allocated(void) { return luge_memory_get_stats((luge_device){0}).allocated_bytes; }

/* Bytes above those that stay, at most, in a forward and a backward. */
static int64_t peak_of(luge_module *m, luge_tensor *x)
{
    for (int i = 0; i < 2; ++i) { /* the first makes gradients */
        LUGE_SCOPE("step");
        const int64_t before = allocated();
        luge_memory_reset_peak((luge_device){0});
        luge_backward(luge_sum(luge_forward(m, x), LUGE_ALL_AXES));
        assert_ok();
        if (i == 1) return luge_memory_get_stats((luge_device){0}).allocated_peak - before;
    }
    return 0;
}

static void segments_save_memory_and_cost_a_forward(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = deep();
    luge_tensor *x = luge_randn(LUGE_SHAPE(256, WIDTH), NULL);
    calls_of_blocks = 0;
    const int64_t plain = peak_of(m, x);
    assert_int_equal(calls_of_blocks, 2 * BLOCKS);
    double before = seconds();
    peak_of(m, x);
    const double plain_time = seconds() - before;
    luge_module_set_checkpointing(m, &(luge_checkpointing){.sqrt = true});
    calls_of_blocks = 0;
    const int64_t less = peak_of(m, x);
    assert_in_range(calls_of_blocks, 2 * BLOCKS, 4 * BLOCKS);
    before = seconds();
    peak_of(m, x);
    print_message("peak of activations: 1/%.1f; time %.2f\n", (double)plain / (double)less, (seconds() - before) / plain_time);
    assert_true(plain >= 6 * less);
    luge_module_set_checkpointing(m, &(luge_checkpointing){.every = 1});
    calls_of_blocks = 0;
    assert_true(peak_of(m, x) < plain);
    assert_int_equal(calls_of_blocks, 4 * BLOCKS);
    luge_module_set_checkpointing(m, NULL);
    calls_of_blocks = 0;
    assert_int_equal(peak_of(m, x), plain);
    assert_int_equal(calls_of_blocks, 2 * BLOCKS);
    luge_module_set_checkpointing(m, &(luge_checkpointing){.every = 1});
    calls_of_blocks = 0;
    {
        LUGE_NO_GRAD();
        luge_forward(m, x);
    }
    assert_int_equal(calls_of_blocks, BLOCKS);
    luge_module_destroy(m);
}

/* ---- what goes wrong */

static luge_tensor *exp_twice(luge_list inputs, void *user)
{
    (void)user;
    return luge_exp(luge_exp(inputs.items[0]));
}

static void inputs_must_stay_as_they_are(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 0.1, 0.2), *h = luge_mul_scalar(x, 2);
    luge_tensor *y = luge_sum(luge_checkpoint(exp_twice, LUGE_LIST(h), NULL), LUGE_ALL_AXES);
    {
        LUGE_NO_GRAD();
        luge_add_scalar_(h, 1);
    }
    assert_int_equal(luge_backward(y), LUGE_ERR_GRAPH);
    assert_error(LUGE_ERR_GRAPH, "luge_checkpoint: input 0 was changed in place since");
    assert_true(luge_is_none(luge_tensor_grad(x)));
}

static luge_tensor *write_input(luge_list inputs, void *user)
{
    (void)user;
    LUGE_NO_GRAD();
    luge_add_scalar_(inputs.items[0], 1);
    return luge_exp(inputs.items[0]);
}

static luge_tensor *change_mind(luge_list inputs, void *user)
{
    int *calls = user;
    luge_tensor *x = inputs.items[0];
    switch ((*calls)++) {
    case 0: return luge_exp(luge_tanh(x));
    case 1: return luge_exp(luge_sigmoid(x));
    case 2: return luge_exp(luge_exp(luge_exp(luge_tanh(x))));
    default: return luge_tanh(x);
    }
}

static luge_tensor *give_nothing(luge_list inputs, void *user)
{
    (void)inputs;
    (void)user;
    return NULL;
}

static luge_tensor *differentiate_inside(luge_list inputs, void *user)
{
    (void)user;
    luge_tensor *y = luge_exp(luge_exp(inputs.items[0]));
    return luge_grad(luge_sum(y, LUGE_ALL_AXES), inputs.items[0], NULL);
}

static void functions_must_do_the_same_again(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 0.1, 0.2);
    int calls = 0;
    luge_tensor *y = luge_sum(luge_checkpoint(change_mind, LUGE_LIST(x), &calls), LUGE_ALL_AXES);
    static const char *const says[] = {"op 1 was tanh and is now sigmoid", "op 3 was nothing more and is now exp", "op 2 was exp and is now nothing more"};
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(luge_backward_with(y, &(luge_backward_options){.retain_graph = true}), LUGE_ERR_STATE);
        assert_error(LUGE_ERR_STATE, says[i]);
    }
    assert_true(luge_is_none(luge_tensor_grad(x)));
    calls = 0;
    assert_int_equal(luge_backward(y), LUGE_OK); /* the same, at last */
    assert_near(((const float *)data_of(luge_tensor_grad(x), LUGE_F32))[0], exp(tanh(0.1)) * (1 - tanh(0.1) * tanh(0.1)), 1e-6);

    luge_tensor *h = luge_mul_scalar(x, 1);
    assert_null(luge_checkpoint(write_input, LUGE_LIST(h), NULL));
    assert_error(LUGE_ERR_STATE, "luge_checkpoint: input 0 was changed in place by the function");
    assert_null(luge_checkpoint(give_nothing, LUGE_LIST(x), NULL));
    assert_error(LUGE_ERR_CALLBACK, "luge_checkpoint: the function gave NULL and set no error");
    assert_null(luge_checkpoint(differentiate_inside, LUGE_LIST(x), NULL));
    assert_error(LUGE_ERR_UNSUPPORTED, "backward runs inside of the function");
    assert_null(luge_checkpoint(NULL, LUGE_LIST(x), NULL));
    assert_error(LUGE_ERR_ARGUMENT, "luge_checkpoint: the function is NULL");
}

static void policies_are_checked(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = convolutional(), *linear = luge_nn_linear(2, 2, NULL);
    assert_int_equal(luge_module_set_checkpointing(m, &(luge_checkpointing){.every = -1}), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "every is -1");
    assert_int_equal(luge_module_set_checkpointing(m, &(luge_checkpointing){.every = 1, .sqrt = true}), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "every, sqrt and modules exclude each other");
    assert_int_equal(luge_module_set_checkpointing(linear, &(luge_checkpointing){.sqrt = true}), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "a Linear cannot be cut into segments");
    assert_int_equal(luge_module_set_checkpointing(m, &(luge_checkpointing){.modules = "7"}), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "no module matches \"7\"");
    luge_module_destroy(linear);
    luge_module_destroy(m);
}

/* ---- failures */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; ++kind) {
        const lg_fault_kind fault = kind == 0 ? LG_FAULT_DEVICE : LG_FAULT_HOST;
        LUGE_SCOPE("t");
        luge_seed(8);
        luge_module *m = convolutional();
        luge_module_set_checkpointing(m, &(luge_checkpointing){.every = 1});
        luge_module_set_checkpointing(luge_module_child(m, "0"), &(luge_checkpointing){.every = 2});
        luge_tensor *x = luge_requires_grad_(luge_randn(LUGE_SHAPE(4, 2, 8, 8), NULL)), *should = NULL;
        bool hit = true;
        for (int64_t nth = 0; hit; ++nth) {
            LUGE_SCOPE("try");
            luge_seed(9);
            luge_tensor *y = luge_mean(luge_square(luge_forward(m, x)), LUGE_ALL_AXES);
            assert_ok();
            luge_memory_empty_cache((luge_device){0});
            const luge_live_counts before = live_now();
            if (nth > 0) lg_fault_set(fault, nth);
            const luge_status status = luge_grad(y, x, &(luge_backward_options){.retain_graph = true}) != NULL ? LUGE_OK : luge_error();
            hit = nth == 0 || lg_fault_hit(fault);
            lg_fault_set(fault, 0);
            if (status != LUGE_OK) {
                assert_int_equal(status, LUGE_ERR_OUT_OF_MEMORY);
                luge_error_clear();
                assert_int_equal(live_now().nodes, before.nodes); /* what the second run made is gone */
            }
            luge_tensor *g_x = luge_grad(y, x, NULL);
            assert_non_null(g_x);
            if (should == NULL)
                should = luge_keep(g_x);
            else
                assert_true(same_bits(g_x, should));
        }
        luge_module_destroy(m);
    }
}

static void modules_may_go_before_backward(void **state)
{
    (void)state;
    static const luge_checkpointing policies[] = {{.every = 1}, {.sqrt = true}};
    for (int p = 0; p < 2; ++p) {
        LUGE_SCOPE("t");
        luge_seed(10);
        luge_module *m = convolutional();
        luge_module_set_checkpointing(m, &policies[p]);
        luge_module *copy = luge_module_clone(m); /* keeps the policy */
        luge_tensor *x = luge_requires_grad_(luge_randn(LUGE_SHAPE(2, 2, 8, 8), NULL));
        luge_tensor *y = luge_sum(luge_square(luge_forward(copy, x)), LUGE_ALL_AXES);
        luge_module_destroy(copy);
        luge_module_destroy(m);
        assert_int_equal(luge_backward(y), LUGE_OK);
    }
}

typedef struct job {
    luge_tensor *y, *x, *grad;
    luge_status status;
} job;

static void *differentiate(void *user)
{
    job *j = user;
    LUGE_SCOPE("thread");
    luge_seed(77);
    j->grad = luge_retain(luge_grad(j->y, j->x, NULL)); /* parameters belong to all threads */
    j->status = luge_error_take(NULL, 0);
    return NULL;
}

/* Graphs that another thread has made. */
static void threads_run_backward(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    LUGE_SCOPE("t");
    luge_module *m = transformer();
    luge_module_set_checkpointing(m, &(luge_checkpointing){.every = 1});
    luge_tensor *should = NULL;
    job jobs[THREADS];
    pthread_t thread[THREADS];
    luge_seed(1);
    luge_tensor *data = luge_randn(LUGE_SHAPE(2, 4, 64), NULL);
    for (int i = 0; i < THREADS; ++i) {
        luge_seed(12);
        jobs[i].x = luge_requires_grad_(luge_clone(data));
        jobs[i].y = luge_sum(luge_square(luge_forward(m, jobs[i].x)), LUGE_ALL_AXES);
    }
    for (int i = 0; i < THREADS; ++i) assert_int_equal(pthread_create(&thread[i], NULL, differentiate, &jobs[i]), 0);
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(thread[i], NULL);
        assert_int_equal(jobs[i].status, LUGE_OK);
        if (should == NULL) should = luge_clone(jobs[i].grad);
        assert_true(same_bits(jobs[i].grad, should));
        luge_release(jobs[i].grad);
    }
    luge_module_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(CKP_01_dropout_is_not_drawn_anew),
        OP_TEST(CKP_02_inputs_without_gradients),
        OP_TEST(CKP_03_mixed_inputs),
        OP_TEST(CKP_04_autocast_is_that_of_the_first_run),
        OP_TEST(CKP_05_regions_inside_regions),
        OP_TEST(gradients_have_the_same_bits),
        OP_TEST(gradients_are_right_and_can_be_differentiated),
        OP_TEST(graphs_may_be_kept),
        OP_TEST(segments_save_memory_and_cost_a_forward),
        OP_TEST(inputs_must_stay_as_they_are),
        OP_TEST(functions_must_do_the_same_again),
        OP_TEST(policies_are_checked),
        OP_TEST(every_allocation_may_fail),
        OP_TEST(modules_may_go_before_backward),
        OP_TEST(threads_run_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
