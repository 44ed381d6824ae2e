#include <luge/luge.h>

static luge_module *lenet(void) {
    return luge_nn_sequential(
        luge_nn_conv2d(1, 32, 3, NULL), luge_nn_relu(),
        luge_nn_conv2d(32, 64, 3, NULL), luge_nn_relu(),
        luge_nn_max_pool2d(2, NULL), luge_nn_dropout(0.25), luge_nn_flatten(),
        luge_nn_linear(9216, 128, NULL), luge_nn_relu(), luge_nn_dropout(0.5),
        luge_nn_linear(128, 10, NULL));
}

static void show(const luge_progress *p, void *loss) {
    fprintf(stderr, "\repoch %d  %3.0f %%  loss %.4f  %.0f images/s  %.0f s left  ", p->epoch + 1,
            100 * p->done, luge_meter_mean(loss), p->samples_per_second, p->seconds_left);
}

static double accuracy(luge_module *net, luge_loader *test) {
    LUGE_EVAL(net);                 /* no dropout, no graph; as before from the closing brace on */
    luge_meter *right = luge_meter_create();
    luge_batch b;
    while (luge_loader_next(test, &b)) {
        LUGE_SCOPE("eval");
        luge_meter_add(right, luge_accuracy(luge_forward(net, b.input), b.target), b.size);
    }
    double mean = luge_meter_mean(right);
    luge_meter_destroy(right);
    return mean;
}

int main(void) {
    luge_seed(1);
    luge_module *net = lenet();
    luge_optim *opt = luge_adam_create(net, 1e-3, NULL);
    luge_meter *loss_so_far = luge_meter_create();
    luge_loader *test = luge_loader_create(luge_dataset_mnist("mnist", LUGE_TEST), 256, NULL);
    luge_loader *train = luge_loader_create(luge_dataset_mnist("mnist", LUGE_TRAIN), 64,
        &(luge_loader_options){.shuffle = true, .progress = show, .user = loss_so_far});

    for (int epoch = 1; epoch <= 2 && luge_ok(); ++epoch) {
        luge_batch b;
        while (luge_loader_next(train, &b)) {
            LUGE_SCOPE("step");
            luge_tensor *loss = luge_cross_entropy(luge_forward(net, b.input), b.target, NULL);
            luge_optim_zero_grad(opt);
            luge_backward(loss);
            luge_optim_step(opt);
            luge_meter_add(loss_so_far, loss, b.size);
        }
        printf("\nepoch %d: test accuracy %.2f %%\n", epoch, 100 * accuracy(net, test));
        luge_meter_reset(loss_so_far);
    }
    luge_loader_destroy(train);
    luge_loader_destroy(test);
    luge_meter_destroy(loss_so_far);
    luge_optim_destroy(opt);
    luge_module_destroy(net);
    return luge_exit_code(stderr);
}
