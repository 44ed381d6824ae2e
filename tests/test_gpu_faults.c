/* Every call of CUDA and its libraries in a training step fails in turn: the error comes back, nothing is lost,
 * and training goes on; where it was memory that failed, with the same bits. On an emulated GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>

#include "core/fault.h"
#include "core/thread.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/ops.h"

static const luge_device gpu = {LG_DEVICE_CUDA, 0};

static struct {
    void (*fail_call)(const char *, long, int);
    void (*repair)(void);
    long (*failures)(void);
    long (*leaks)(bool);
} emulator;

static bool find_emulator(void)
{
    const char *module = getenv("LUGE_CUDA_MODULE");
    luge_device_usable(gpu); /* opens it */
    void *handle = module != NULL ? dlopen(module, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (handle == NULL) return false;
    *(void **)&emulator.fail_call = dlsym(handle, "lg_emulator_fail");
    *(void **)&emulator.repair = dlsym(handle, "lg_emulator_repair");
    *(void **)&emulator.failures = dlsym(handle, "lg_emulator_failures");
    *(void **)&emulator.leaks = dlsym(handle, "lg_emulator_leaks");
    return emulator.fail_call != NULL && emulator.repair != NULL && emulator.failures != NULL && emulator.leaks != NULL;
}

/* ---- training: windows of two, in f16 with a scaler, and all kinds of layers */

typedef struct training {
    luge_module *net;
    luge_optim *optim;
    luge_sched *sched;
    luge_scaler *scaler;
    luge_accum *accum;
    luge_tensor *input, *target;
} training;

static training begin(luge_dtype low)
{
    luge_seed(31);
    training t = {.net = luge_nn_sequential(luge_nn_conv2d(1, 3, 3, NULL), luge_nn_batch_norm2d(3, NULL), luge_nn_relu(),
                                            luge_nn_max_pool2d(2, NULL), luge_nn_flatten(), luge_nn_dropout(0.2),
                                            luge_nn_linear(27, 8, NULL), luge_nn_layer_norm(LUGE_SHAPE(8), NULL), luge_nn_linear(8, 3, NULL))};
    luge_module_set_checkpointing(t.net, &(luge_checkpointing){.every = 3});
    t.optim = luge_adamw_create(t.net, 1e-2, 1e-2, NULL);
    t.sched = luge_cosine_lr_create(t.optim, 10, NULL);
    t.scaler = low == LUGE_F16 ? luge_scaler_create(NULL) : NULL;
    t.accum = luge_accum_create(t.optim, 2, &(luge_accum_options){.scaler = t.scaler, .sched = t.sched, .clip_norm = 0.5});
    const luge_tensor_options host = {.device = luge_device_cpu()};
    t.input = luge_retain(luge_randn(LUGE_SHAPE(4, 1, 8, 8), &host));
    t.target = luge_retain(luge_from_array((int64_t[]){0, 1, 2, 1}, LUGE_I64, LUGE_SHAPE(4)));
    assert_ok();
    return t;
}

static void end(training *t)
{
    luge_release(t->input);
    luge_release(t->target);
    luge_accum_destroy(t->accum);
    luge_scaler_destroy(t->scaler);
    luge_sched_destroy(t->sched);
    luge_optim_destroy(t->optim);
    luge_module_destroy(t->net);
}

/* One micro-batch, from the host on. */
static luge_status micro(training *t, luge_dtype low)
{
    LUGE_SCOPE("micro");
    LUGE_AUTOCAST(low);
    luge_tensor *x = luge_to(t->input, gpu, NULL), *y = luge_to(t->target, gpu, NULL);
    return luge_accum_backward(t->accum, luge_cross_entropy(luge_forward(t->net, x), y, NULL), 4);
}

/* A window whose calls are repeated after errors, from the random numbers that they began with. Statistics of
 * BatchNorm, which a failed forward may have moved, are set back. */
static int window(training *t, luge_dtype low)
{
    int errors = 0;
    lg_thread *self = lg_self();
    for (int i = 0; i < 2 || luge_accum_pending(t->accum) != 0;) {
        const uint64_t offset = self->rng_offset;
        const int before = luge_accum_pending(t->accum);
        luge_status status = before == 2 ? luge_accum_flush(t->accum) : micro(t, low);
        if (status == LUGE_OK && i == 1) status = luge_device_sync(gpu);
        if (status == LUGE_OK) {
            ++i;
            continue;
        }
        if (++errors > 4) fail_msg("it does not recover: %s", luge_error_text());
        luge_error_clear();
        emulator.repair();
        if (luge_accum_pending(t->accum) == before && before < 2) self->rng_offset = offset; /* nothing was done */
        else if (luge_accum_pending(t->accum) == 0) break;                                   /* the window is lost */
        else i = 1;
    }
    return errors;
}

typedef struct outcome {
    luge_tensor *weight, *bias, *norm;
    int64_t steps;
    int errors;
    bool hit;
} outcome;

/* Three windows; the n-th call of `function` in the second fails (0: none does), or of what the library asks
 * its allocators for. The result belongs to the caller's scope, on the host. */
static outcome run(const char *function, long n, luge_dtype low)
{
    training t = begin(low);
    outcome o = {.errors = window(&t, low)};
    luge_memory_empty_cache(gpu);
    const long before = emulator.failures();
    const bool device = strcmp(function, "device memory") == 0, host = strcmp(function, "host memory") == 0;
    const lg_fault_kind kind = device ? LG_FAULT_DEVICE : LG_FAULT_HOST;
    if (n > 0) device || host ? lg_fault_set(kind, n) : emulator.fail_call(function, n, 1); /* cudaErrorInvalidValue, which breaks nothing */
    o.errors += window(&t, low);
    o.hit = device || host ? lg_fault_hit(kind) : emulator.failures() > before;
    if (device || host) lg_fault_set(kind, 0);
    emulator.repair();
    o.errors += window(&t, low);
    o.steps = luge_optim_steps(t.optim);
    o.weight = luge_to(luge_module_param(t.net, "0.weight"), luge_device_cpu(), NULL);
    o.bias = luge_to(luge_module_param(t.net, "8.bias"), luge_device_cpu(), NULL);
    o.weight = luge_detach(o.weight);
    o.bias = luge_detach(o.bias);
    end(&t);
    assert_ok();
    return o;
}

/* Every `stride`th call. */
static void fail_each(const char *function, long stride, luge_dtype low, bool same_bits_after_errors)
{
    LUGE_SCOPE("all");
    const outcome plain = run(function, 0, low);
    assert_int_equal(plain.errors, 0);
    assert_int_equal(plain.steps, 3);
    luge_memory_empty_cache(gpu);
    const long leaks = emulator.leaks(false);
    int errors = 0, survived = 0;
    bool hit = true;
    for (long n = 1; hit; n += stride) {
        LUGE_SCOPE("trial");
        const luge_live_counts before = live_now();
        {
            LUGE_SCOPE("run");
            const outcome o = run(function, n, low);
            hit = o.hit;
            errors += o.errors > 0;
            survived += o.errors == 0;
            if (o.errors == 0 || same_bits_after_errors) {
                if (!same_bits(o.weight, plain.weight) || !same_bits(o.bias, plain.bias))
                    fail_msg("%s %ld: other bits after %d errors", function, n, o.errors);
                assert_int_equal(o.steps, 3);
            } else {
                assert_in_range(o.steps, 1, 3);
                assert_true(isfinite(luge_item(luge_sum(o.weight, LUGE_ALL_AXES))));
            }
        }
        const luge_live_counts after = live_now();
        if (after.tensors != before.tensors || after.nodes != before.nodes || after.objects != before.objects)
            fail_msg("%s %ld: something is left behind", function, n);
        luge_memory_empty_cache(gpu);
        if (emulator.leaks(false) != leaks) {
            emulator.leaks(true);
            fail_msg("%s %ld: something of CUDA's is left behind", function, n);
        }
    }
    print_message("%s: %d errors, %d made up for\n", function, errors, survived - 1);
}

/* Memory is asked for before anything is changed: what failed can be done again. */
static void memory_fails(void **state)
{
    (void)state;
    fail_each("device memory", 1, LUGE_F16, true);
    fail_each("host memory", 3, LUGE_F16, true); /* of hundreds */
    fail_each("cudaHostAlloc", 1, LUGE_F16, true);
}

static void every_call_fails(void **state)
{
    (void)state;
    fail_each("any", 1, LUGE_F16, false);
}

int main(void)
{
    if (on_cpu() || !find_emulator()) return 77;
    const struct CMUnitTest tests[] = {OP_TEST(memory_fails), OP_TEST(every_call_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
