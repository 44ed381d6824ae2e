/* A whole training program, net, optimizer, loader and two steps, with each of its allocations and
 * thread starts failing in turn: an error comes back, and in the end nothing of Luge is alive. */
#include <luge/luge.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "core/fault.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"

static luge_module *small_net(void)
{
    return luge_nn_sequential(
        luge_nn_conv2d(1, 4, 3, NULL), luge_nn_batch_norm2d(4, NULL), luge_nn_relu(), luge_nn_max_pool2d(2, NULL),
        luge_nn_residual(luge_nn_conv2d(4, 4, 3, &(luge_conv2d_options){.padding = 1}), NULL), luge_nn_flatten(),
        luge_nn_dropout(0.2), luge_nn_linear(36, 8, NULL), luge_nn_layer_norm(LUGE_SHAPE(8), NULL), luge_nn_gelu(),
        luge_nn_linear(8, 3, NULL));
}

/* Stops at the first error, as a user's program would. */
static void program(void)
{
    LUGE_SCOPE("program");
    luge_seed(1);
    luge_module *net = small_net();
    luge_optim *opt = luge_adam_create(net, 1e-3, NULL);
    luge_sched *sched = luge_cosine_lr_create(opt, 10, NULL);
    luge_meter *meter = luge_meter_create();
    luge_dataset *data = luge_dataset_tensors(luge_rand(LUGE_SHAPE(8, 1, 8, 8), NULL), luge_randint(0, 3, LUGE_SHAPE(8)));
    luge_loader *loader = luge_loader_create(data, 4, &(luge_loader_options){.shuffle = true});
    luge_batch batch;
    while (luge_loader_next(loader, &batch)) {
        LUGE_SCOPE("step");
        luge_tensor *loss = luge_cross_entropy(luge_forward(net, batch.input), batch.target, NULL);
        luge_optim_zero_grad(opt);
        luge_backward(loss);
        luge_clip_grad_norm(opt, 1);
        luge_optim_step(opt);
        luge_sched_step(sched);
        luge_meter_add(meter, loss, batch.size);
    }
    luge_meter_mean(meter);
    luge_loader_destroy(loader);
    luge_meter_destroy(meter);
    luge_sched_destroy(sched);
    luge_optim_destroy(opt);
    luge_module_destroy(net);
}

static void fail_in_turn(lg_fault_kind kind)
{
    program();   /* once for what is made only once */
    assert_ok();
    const luge_live_counts before = luge_live();
    int64_t n = 1;
    for (;; ++n) {
        lg_fault_set(kind, n);
        program();
        const bool hit = lg_fault_hit(kind);
        lg_fault_set(kind, 0);
        if (!hit) break;
        /* The bookkeeping of other devices than the CPU has a way without. */
        if (luge_ok() && on_cpu()) fail_msg("request %d failed and no error came of it", (int)n);
        if (!luge_ok() && luge_error() != LUGE_ERR_OUT_OF_MEMORY) fail_msg("request %d: %s", (int)n, luge_error_text());
        luge_error_clear();
        const luge_live_counts now = luge_live();
        if (now.tensors != before.tensors || now.storages != before.storages || now.nodes != before.nodes ||
            now.objects != before.objects || now.host_bytes != before.host_bytes)
            fail_msg("request %d: alive %d tensors, %d nodes, %d objects, %d bytes more", (int)n,
                     (int)(now.tensors - before.tensors), (int)(now.nodes - before.nodes), (int)(now.objects - before.objects),
                     (int)(now.host_bytes - before.host_bytes));
    }
    assert_ok();
    print_message("%d requests failed in turn\n", (int)n - 1);
    assert_true(n > 20);
}

static void host_memory(void **state) { (void)state; fail_in_turn(LG_FAULT_HOST); }
static void device_memory(void **state) { (void)state; fail_in_turn(LG_FAULT_DEVICE); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(host_memory), cmocka_unit_test(device_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
