/* What is special about tensors on a GPU: nobody waits in a training step, errors in the data come later,
 * copies go on by themselves, memory is kept until the device is done with it, a lost device is an error.
 * Runs where LUGE_DEVICE is a GPU; where that is the emulated one, faults are injected into it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>

#include "core/thread.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/ops.h"

static const luge_device gpu = {LG_DEVICE_CUDA, 0};

static luge_device_counts counts(void) { return luge_device_get_counts(gpu); }

/* A function of the emulator (tests/cuda/emulator/emulator.h); NULL on a real GPU. */
static void *emulator(const char *function)
{
    const char *module = getenv("LUGE_CUDA_MODULE");
    void *handle = module != NULL ? dlopen(module, RTLD_NOW | RTLD_NOLOAD) : NULL;
    return handle != NULL ? dlsym(handle, function) : NULL;
}

static void fail_next(const char *function, int code)
{
    void (*plan_failure)(const char *, long, int);
    *(void **)&plan_failure = emulator("lg_emulator_fail");
    if (plan_failure == NULL) skip();
    plan_failure(function, 1, code);
}

static void repair(void)
{
    void (*repair_all)(void);
    *(void **)&repair_all = emulator("lg_emulator_repair");
    repair_all();
}

/* ---- a training step */

enum { SAMPLES = 64, BATCH = 8, FEATURES = 12, CLASSES = 5 };

static luge_dataset *samples(void)
{
    LUGE_SCOPE("samples");
    const luge_tensor_options host = {.device = luge_device_cpu()};
    int64_t labels[SAMPLES];
    for (int i = 0; i < SAMPLES; ++i) labels[i] = i % CLASSES;
    luge_tensor *x = luge_randn(LUGE_SHAPE(SAMPLES, FEATURES), &host);
    return luge_dataset_tensors(x, luge_from_array(labels, LUGE_I64, LUGE_SHAPE(SAMPLES)));
}

typedef struct training {
    luge_module *net;
    luge_optim *optim;
    luge_sched *sched;
    luge_loader *loader;
    luge_meter *loss, *right;
} training;

static training begin(void)
{
    luge_seed(5);
    training t = {.net = luge_nn_sequential(luge_nn_linear(FEATURES, 16, NULL), luge_nn_relu(), luge_nn_dropout(0.2),
                                            luge_nn_layer_norm(LUGE_SHAPE(16), NULL), luge_nn_linear(16, CLASSES, NULL))};
    t.optim = luge_adamw_create(t.net, 1e-2, 1e-2, NULL);
    t.sched = luge_step_lr_create(t.optim, 3, 0.5);
    t.loader = luge_loader_create(samples(), BATCH, &(luge_loader_options){.shuffle = true});
    t.loss = luge_meter_create();
    t.right = luge_meter_create();
    assert_ok();
    return t;
}

static void step(training *t, luge_dtype low)
{
    luge_batch batch;
    if (!luge_loader_next(t->loader, &batch) && luge_ok()) luge_loader_next(t->loader, &batch);
    LUGE_SCOPE("step");
    luge_optim_zero_grad(t->optim);
    luge_tensor *logits, *loss;
    {
        LUGE_AUTOCAST(low);
        logits = luge_forward(t->net, batch.input);
        loss = luge_cross_entropy(logits, batch.target, NULL);
    }
    luge_backward(loss);
    luge_clip_grad_norm(t->optim, 1);
    luge_optim_step(t->optim);
    luge_sched_step(t->sched);
    luge_meter_add(t->loss, loss, batch.size);
    luge_meter_add(t->right, luge_accuracy(logits, batch.target), batch.size);
    assert_ok();
}

static void end(training *t)
{
    luge_meter_destroy(t->loss);
    luge_meter_destroy(t->right);
    luge_loader_destroy(t->loader);
    luge_sched_destroy(t->sched);
    luge_optim_destroy(t->optim);
    luge_module_destroy(t->net);
}

static void nobody_waits_in_a_step(void **state)
{
    (void)state;
    for (int low = LUGE_F32; low <= LUGE_BF16; low += LUGE_BF16 - LUGE_F32) {
        training t = begin();
        for (int i = 0; i < 10; ++i) step(&t, (luge_dtype)low); /* more than an epoch */
        const luge_device_counts before = counts();
        const luge_op_counts ops = luge_op_count();
        for (int i = 0; i < 10; ++i) step(&t, (luge_dtype)low);
        const luge_device_counts after = counts();
        assert_int_equal(after.waits, before.waits);
        assert_int_equal(after.device_allocations, before.device_allocations);
        assert_int_equal(after.pinned_allocations, before.pinned_allocations);
        assert_int_equal(after.bytes_to_host, before.bytes_to_host);
        assert_true(after.launches > before.launches);
        assert_true(after.bytes_to_device > before.bytes_to_device);
        assert_int_equal(luge_op_count().references, ops.references);
        assert_true(isfinite(luge_meter_mean(t.loss)));
        assert_int_equal(counts().waits, after.waits + 1);
        end(&t);
    }
}

/* With everything on: f16, a scaler that meets overflows, windows, clipping, a schedule, convolutions. */
static void nobody_waits_with_mixed_precision(void **state)
{
    (void)state;
    luge_seed(6);
    luge_module *net = luge_nn_sequential(luge_nn_conv2d(1, 4, 3, NULL), luge_nn_batch_norm2d(4, NULL), luge_nn_relu(), luge_nn_max_pool2d(2, NULL),
                                          luge_nn_flatten(), luge_nn_dropout(0.1), luge_nn_linear(36, CLASSES, NULL));
    luge_optim *optim = luge_adamw_create(net, 1e-2, 1e-2, NULL);
    luge_sched *sched = luge_cosine_lr_create(optim, 100, &(luge_cosine_options){.warmup = 4});
    luge_scaler *scaler = luge_scaler_create(&(luge_scaler_options){.init_scale = 0x1p26, .growth_interval = 2}); /* overflows */
    luge_accum *accum = luge_accum_create(optim, 2, &(luge_accum_options){.scaler = scaler, .sched = sched, .clip_norm = 1, .clip_value = 0.1});
    luge_tensor *x = luge_randn(LUGE_SHAPE(4, 1, 8, 8), NULL), *labels = luge_randint(0, CLASSES, LUGE_SHAPE(4));
    luge_device_counts before = counts();
    luge_op_counts ops = luge_op_count();
    for (int i = 0; i < 60; ++i) {
        if (i == 20) {
            before = counts();
            ops = luge_op_count();
        }
        LUGE_SCOPE("micro");
        LUGE_AUTOCAST(LUGE_F16);
        assert_int_equal(luge_accum_backward(accum, luge_cross_entropy(luge_forward(net, x), labels, NULL), 4), LUGE_OK);
    }
    const luge_device_counts after = counts();
    assert_int_equal(after.waits, before.waits);
    assert_int_equal(after.device_allocations, before.device_allocations);
    assert_int_equal(after.pinned_allocations, before.pinned_allocations);
    assert_int_equal(after.bytes_to_host, before.bytes_to_host);
    assert_int_equal(after.bytes_to_device, before.bytes_to_device);
    assert_int_equal(luge_op_count().references, ops.references);
    /* Some of the 30 steps overflowed, as the device knows. */
    const int64_t taken = luge_optim_steps(optim);
    assert_in_range(taken, 15, 29);
    assert_near(luge_optim_lr(optim), 1e-2 * luge_sched_factor(sched, taken), 1e-17);
    assert_true(luge_scaler_value(scaler) < 0x1p26);
    luge_accum_destroy(accum);
    luge_scaler_destroy(scaler);
    luge_sched_destroy(sched);
    luge_optim_destroy(optim);
    luge_module_destroy(net);
}

/* ---- products and convolutions are the libraries' */

static long calls_of(const char *function)
{
    long (*count)(const char *);
    *(void **)&count = emulator("lg_emulator_count");
    if (count == NULL) skip();
    return count(function);
}

static luge_module *residual(int64_t in, int64_t out, int64_t stride)
{
    const luge_conv2d_options first = {.stride = stride, .padding = 1, .no_bias = true}, second = {.padding = 1, .no_bias = true},
                              shortcut = {.stride = stride, .no_bias = true};
    luge_module *body = luge_nn_sequential(luge_nn_conv2d(in, out, 3, &first), luge_nn_batch_norm2d(out, NULL), luge_nn_relu(),
                                           luge_nn_conv2d(out, out, 3, &second), luge_nn_batch_norm2d(out, NULL));
    luge_module *down = in == out && stride == 1 ? NULL
                            : luge_nn_sequential(luge_nn_conv2d(in, out, 1, &shortcut), luge_nn_batch_norm2d(out, NULL));
    return luge_nn_sequential(luge_nn_residual(body, down), luge_nn_relu());
}

/* ResNet-18, an eighth as wide: 20 convolutions and a linear layer. */
static luge_module *resnet18(void)
{
    const luge_conv2d_options stem = {.padding = 1, .no_bias = true};
    return luge_nn_sequential(luge_nn_conv2d(3, 8, 3, &stem), luge_nn_batch_norm2d(8, NULL), luge_nn_relu(), residual(8, 8, 1),
                              residual(8, 8, 1), residual(8, 16, 2), residual(16, 16, 1), residual(16, 32, 2), residual(32, 32, 1),
                              residual(32, 64, 2), residual(64, 64, 1), luge_nn_adaptive_avg_pool2d(1, 1), luge_nn_flatten(),
                              luge_nn_linear(64, CLASSES, NULL));
}

static luge_module *lenet(void)
{
    return luge_nn_sequential(luge_nn_conv2d(3, 4, 3, NULL), luge_nn_relu(), luge_nn_conv2d(4, 8, 3, NULL), luge_nn_relu(),
                              luge_nn_max_pool2d(2, NULL), luge_nn_flatten(), luge_nn_linear(8 * 36, 16, NULL), luge_nn_relu(),
                              luge_nn_linear(16, CLASSES, NULL));
}

/* Each layer's output, gradient of the weight and, but for the first layer, of the input. */
static void models_use_the_libraries(void **state)
{
    (void)state;
    static const struct {
        luge_module *(*make)(void);
        int convolutions, linears, transposes;
    } models[] = {{lenet, 2, 2, 2}, {resnet18, 20, 1, 0}};
    for (int m = 0; m < 2; ++m)
        for (int low = LUGE_F32; low <= LUGE_F16; low += LUGE_F16 - LUGE_F32) {
            LUGE_SCOPE("model");
            luge_seed(3);
            luge_module *net = models[m].make();
            luge_optim *optim = luge_sgd_create(net, 0.01, &(luge_sgd_options){.momentum = 0.9});
            luge_scaler *scaler = luge_scaler_create(NULL);
            luge_tensor *x = luge_channels_last(luge_randn(LUGE_SHAPE(2, 3, 16, 16), NULL)), *labels = luge_randint(0, CLASSES, LUGE_SHAPE(2));
            for (int step = 0; step < 3; ++step) {
                LUGE_SCOPE("step");
                const luge_device_counts before = counts();
                const luge_op_counts ops = luge_op_count();
                const long executed = calls_of("cudnnBackendExecute"), products = calls_of("cublasLtMatmul") + calls_of("cublasGemmEx");
                luge_tensor *loss;
                {
                    LUGE_AUTOCAST((luge_dtype)low);
                    loss = luge_cross_entropy(luge_forward(net, x), labels, NULL);
                }
                luge_backward(luge_scaler_scale(scaler, loss));
                luge_scaler_step(scaler, optim);
                luge_scaler_update(scaler);
                luge_optim_zero_grad(optim);
                assert_ok();
                assert_int_equal(calls_of("cudnnBackendExecute") - executed, 3 * models[m].convolutions - 1);
                assert_int_equal(calls_of("cublasLtMatmul") + calls_of("cublasGemmEx") - products, 3 * models[m].linears);
                assert_int_equal(luge_op_count().references, ops.references);
                if (step == 0) continue;
                assert_int_equal(luge_op_count().transposes - ops.transposes, models[m].transposes);
                assert_int_equal(counts().waits, before.waits);
                assert_int_equal(counts().device_allocations, before.device_allocations);
            }
            luge_scaler_destroy(scaler);
            luge_optim_destroy(optim);
            luge_module_destroy(net);
        }
}

/* An MLP with two hidden layers: 20 launches, those of libraries among them, are what a step may take. */
static void a_step_of_an_mlp_is_few_launches(void **state)
{
    (void)state;
    luge_module *net = luge_nn_sequential(luge_nn_linear(20, 16, NULL), luge_nn_relu(), luge_nn_linear(16, 8, NULL),
                                          luge_nn_relu(), luge_nn_linear(8, 10, NULL));
    luge_optim *optim = luge_adamw_create(net, 1e-3, 1e-2, NULL);
    for (int i = 0; i < 3; ++i) {
        LUGE_SCOPE("step");
        luge_tensor *x = luge_randn(LUGE_SHAPE(32, 20), NULL), *labels = luge_randint(0, 10, LUGE_SHAPE(32));
        const luge_device_counts before = counts();
        luge_backward(luge_cross_entropy(luge_forward(net, x), labels, NULL));
        luge_optim_step(optim);
        luge_optim_zero_grad(optim);
        assert_ok();
        const luge_device_counts after = counts();
        if (i > 0) /* at first also algorithms are chosen, and memory is taken */
            assert_in_range(after.launches + after.library_calls - before.launches - before.library_calls, 1, 20);
    }
    luge_optim_destroy(optim);
    luge_module_destroy(net);
}

/* ---- errors in the data */

static void wrong_data_is_told_when_somebody_waits(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *logits = luge_zeros(LUGE_SHAPE(4, 10), NULL), *table = luge_zeros(LUGE_SHAPE(3, 2), NULL);
    luge_tensor *bad = LABELS(1, 2, 12, 11), *good = LABELS(1, 2, 3, 4);
    static const char target[] = "cross_entropy: target 12 at position 2 is not in [0, 10)";

    luge_tensor *loss = luge_cross_entropy(logits, bad, NULL);
    assert_non_null(loss);
    assert_true(luge_ok());
    assert_true(isnan(luge_item(loss)));
    assert_error(LUGE_ERR_ARGUMENT, target);
    assert_near(luge_item(luge_cross_entropy(logits, good, NULL)), log(10), 1e-5); /* told once */

    float one[1];
    loss = luge_cross_entropy(logits, bad, NULL);
    assert_int_equal(luge_to_array(loss, one, LUGE_F32, 1), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, target);
    loss = luge_cross_entropy(logits, bad, NULL);
    assert_null(luge_to(loss, luge_device_cpu(), NULL));
    assert_error(LUGE_ERR_ARGUMENT, target);
    luge_cross_entropy(logits, bad, NULL);
    luge_embedding(table, LABELS(5)); /* the first one is told */
    assert_int_equal(luge_device_sync(gpu), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, target);
    luge_embedding(table, LABELS(0, -1));
    assert_int_equal(luge_device_sync(gpu), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "embedding: index -1 at position 1 is not in [0, 3)");
    assert_int_equal(luge_device_sync(gpu), LUGE_OK);
}

/* ---- copies */

static void copies_without_waiting(void **state)
{
    (void)state;
    const luge_to_options later = {.non_blocking = true}, pinned = {.non_blocking = true, .pinned = true};
    for (int round = 0; round < 6; ++round) {
        LUGE_SCOPE("round");
        luge_tensor *host = luge_full(LUGE_SHAPE(1000, 3), round + 1, &(luge_tensor_options){.pinned = true});
        assert_true(luge_tensor_is_pinned(host));
        const luge_device_counts before = counts();
        luge_tensor *there_ = luge_to(host, gpu, &later), *twice = luge_add(there_, there_);
        luge_tensor *back = luge_to(luge_transpose(twice, 0, 1), luge_device_cpu(), &pinned);
        assert_true(luge_tensor_is_pinned(back));
        assert_int_equal(counts().waits, before.waits);
        if (round > 1) assert_int_equal(counts().pinned_allocations, before.pinned_allocations);
        assert_int_equal(luge_device_sync(gpu), LUGE_OK);
        const float *v = data_of(back, LUGE_F32);
        for (int i = 0; i < 3000; ++i) assert_true(v[i] == (float)(2 * (round + 1)));
    }
    /* Pinned memory is not given out again before it was read. */
    LUGE_SCOPE("reuse");
    luge_tensor *sum = luge_zeros(LUGE_SHAPE(4096), NULL);
    for (int i = 0; i < 50; ++i) {
        LUGE_SCOPE("once");
        luge_tensor *host = luge_full(LUGE_SHAPE(4096), i, &(luge_tensor_options){.pinned = true});
        luge_add_(sum, luge_to(host, gpu, &later));
    }
    assert_true(luge_item(luge_min(sum, LUGE_ALL_AXES)) == 49 * 50 / 2);
    assert_true(luge_item(luge_max(sum, LUGE_ALL_AXES)) == 49 * 50 / 2);
}

static void gradients_cross_devices(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *a = luge_requires_grad_(luge_to(LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 2, 3, 4), luge_device_cpu(), NULL));
    luge_tensor *y = luge_square(luge_to(luge_mul_scalar(a, 3), gpu, NULL));
    luge_backward(luge_sum(luge_to(y, luge_device_cpu(), NULL), LUGE_ALL_AXES));
    assert_int_equal(luge_tensor_device(luge_tensor_grad(a)).kind, LG_DEVICE_CPU);
    assert_values(luge_tensor_grad(a), 18, 36, 54, 72);
    luge_device second = luge_device_cuda(1);
    if (!luge_device_usable(second)) return;
    luge_tensor *b = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(3), 1, 2, 3));
    luge_tensor *far = luge_exp(luge_to(luge_mul(b, b), second, NULL));
    assert_int_equal(luge_tensor_device(far).index, 1);
    luge_backward(luge_sum(luge_log(luge_to(far, gpu, NULL)), LUGE_ALL_AXES));
    assert_close(luge_tensor_grad(b), LUGE_TENSOR(LUGE_SHAPE(3), 2, 4, 6), 1e-5, "by way of another device");
    luge_tensor *into = luge_zeros(LUGE_SHAPE(3), NULL);
    luge_copy_(into, luge_detach(luge_to(b, second, NULL)));
    assert_values(into, 1, 2, 3);
    assert_null(luge_add(into, far));
    assert_error(LUGE_ERR_DEVICE, "another device");
}

/* As PyTorch: a number on the host goes with tensors of any device, anything larger does not. */
static void numbers_of_the_host(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2);
    const luge_tensor_options host = {.device = luge_device_cpu(), .requires_grad = true};
    luge_tensor *two = luge_full(LUGE_SCALAR, 2, &host), *vector = luge_ones(LUGE_SHAPE(2), &host);
    const int64_t waits = counts().waits;
    luge_tensor *product = luge_mul(x, two), *difference = luge_sub(two, x);
    assert_int_equal(counts().waits, waits);
    assert_int_equal(luge_tensor_device(difference).kind, LG_DEVICE_CUDA);
    assert_values(difference, 1, 0);
    luge_backward(luge_sum(product, LUGE_ALL_AXES));
    assert_int_equal(luge_tensor_device(luge_tensor_grad(two)).kind, LG_DEVICE_CPU);
    assert_true(luge_item(luge_tensor_grad(two)) == 3);
    assert_null(luge_mul(x, vector));
    assert_error(LUGE_ERR_DEVICE, "input 1 is on another device");
    LUGE_NO_GRAD();
    assert_null(luge_add_(two, x));
    assert_error(LUGE_ERR_DEVICE, "input 1 is on another device");
    assert_values(luge_add_(x, two), 3, 4);
}

/* ---- failures */

static void a_full_device_is_an_error(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_ones(LUGE_SHAPE(4), NULL);
    assert_int_equal(luge_set_memory_limit(gpu, luge_memory_get_stats(gpu).allocated_bytes + (1 << 20)), LUGE_OK);
    assert_null(luge_zeros(LUGE_SHAPE(1 << 20), NULL));
    assert_error(LUGE_ERR_OUT_OF_MEMORY, "out of memory on cuda:0: 4194304 bytes asked for");
    /* What is uploaded without waiting counts, too. */
    luge_tensor *pinned = luge_ones(LUGE_SHAPE(1 << 19), &(luge_tensor_options){.pinned = true, .device = luge_device_cpu()});
    assert_null(luge_to(pinned, gpu, &(luge_to_options){.non_blocking = true}));
    assert_error(LUGE_ERR_OUT_OF_MEMORY, "out of memory on cuda:0: 2097152 bytes asked for");
    assert_int_equal(luge_set_memory_limit(gpu, 0), LUGE_OK);
    assert_non_null(luge_to(pinned, gpu, &(luge_to_options){.non_blocking = true}));
    assert_true(luge_item(luge_sum(x, LUGE_ALL_AXES)) == 4);
    luge_memory_empty_cache(gpu);
    fail_next("cudaMalloc", 0); /* tried again after the cache was given back */
    assert_non_null(luge_zeros(LUGE_SHAPE(1 << 23), NULL));
    repair();
}

static void a_copy_that_fails_is_an_error(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *x = luge_ones(LUGE_SHAPE(4), NULL);
    luge_device_sync(gpu);
    float v[4];
    fail_next("cudaMemcpyAsync", 1); /* an invalid value: nothing is lost */
    assert_int_not_equal(luge_to_array(x, v, LUGE_F32, 4), LUGE_OK);
    luge_error_clear();
    repair();
    assert_int_equal(luge_to_array(x, v, LUGE_F32, 4), LUGE_OK);
}

static void forked_children_cannot_use_it(void **state)
{
    (void)state;
    luge_scope scope = luge_scope_enter("test");
    luge_tensor *x = luge_ones(LUGE_SHAPE(4), NULL);
    const pid_t child = fork();
    if (child == 0) {
        if (luge_device_usable(gpu) || strstr(luge_device_why_not(gpu), "fork") == NULL) _exit(1);
        if (luge_add(x, x) != NULL || luge_error() != LUGE_ERR_DEVICE) _exit(2);
        luge_error_clear();
        if (luge_ones(LUGE_SHAPE(2), NULL) != NULL || luge_error() != LUGE_ERR_DEVICE) _exit(3);
        luge_error_clear();
        if (!isnan(luge_item(luge_ones(LUGE_SCALAR, &(luge_tensor_options){.device = gpu})))) _exit(4);
        luge_error_clear();
        if (luge_item(luge_ones(LUGE_SCALAR, &(luge_tensor_options){.device = luge_device_cpu()})) != 1) _exit(5);
        luge_scope_exit(scope, NULL);
        luge_memory_empty_cache(gpu);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("the child ended with %d", status);
    assert_true(luge_item(luge_sum(luge_add(x, x), LUGE_ALL_AXES)) == 8);
    luge_scope_exit(scope, NULL);
}

/* Last: nothing works on the device afterwards. */
static void a_lost_device_is_an_error(void **state)
{
    (void)state;
    training t = begin();
    step(&t, LUGE_F32);
    luge_device_sync(gpu);
    luge_scope scope = luge_scope_enter("lost");
    luge_tensor *x = luge_ones(LUGE_SHAPE(4), NULL);
    fail_next("device", 700); /* an illegal address, in work that is queued */
    luge_add(x, x);
    luge_device_sync(gpu);
    assert_int_equal(luge_error(), LUGE_ERR_DEVICE_LOST);
    luge_error_clear();
    assert_null(luge_add(x, x));
    assert_error(LUGE_ERR_DEVICE_LOST, "cuda:0 is lost");
    assert_true(isnan(luge_item(luge_select(x, 0, 0))));
    assert_error(LUGE_ERR_DEVICE_LOST, "");
    assert_int_equal(luge_device_sync(gpu), LUGE_ERR_DEVICE_LOST);
    luge_error_clear();
    assert_null(luge_zeros(LUGE_SHAPE(1 << 22), NULL));
    assert_error(LUGE_ERR_DEVICE_LOST, "");
    assert_int_not_equal(luge_optim_step(t.optim), LUGE_OK);
    luge_error_clear();
    luge_scope_exit(scope, NULL);
    end(&t);
    assert_int_equal(luge_memory_empty_cache(gpu), LUGE_OK);
    /* The host goes on. */
    assert_true(luge_item(luge_ones(LUGE_SCALAR, &(luge_tensor_options){.device = luge_device_cpu()})) == 1);
    luge_error_clear();
}

int main(void)
{
    if (on_cpu()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(a_step_of_an_mlp_is_few_launches),
        OP_TEST(models_use_the_libraries), OP_TEST(nobody_waits_with_mixed_precision), OP_TEST(nobody_waits_in_a_step),     OP_TEST(wrong_data_is_told_when_somebody_waits),
        OP_TEST(copies_without_waiting),     OP_TEST(gradients_cross_devices),
        OP_TEST(numbers_of_the_host),        OP_TEST(a_full_device_is_an_error),
        OP_TEST(a_copy_that_fails_is_an_error), OP_TEST(forked_children_cannot_use_it),
        OP_TEST(a_lost_device_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
