/* A shared object of somebody else's that uses Luge: a training round, large enough for
 * threads and for oneDNN. */
#include <luge/luge.h>

__attribute__((visibility("default"))) double plugin_run(void);

double plugin_run(void)
{
    LUGE_SCOPE("plugin");
    luge_seed(1);
    luge_set_num_threads(3);
    luge_module *net = luge_nn_sequential(luge_nn_conv2d(16, 16, 3, NULL), luge_nn_relu(), luge_nn_flatten(),
                                          luge_nn_linear(576, 256, NULL), luge_nn_relu(), luge_nn_linear(256, 10, NULL));
    luge_optim *opt = luge_sgd_create(net, 0.1, &(luge_sgd_options){.momentum = 0.9});
    luge_tensor *x = luge_randn(LUGE_SHAPE(64, 16, 8, 8), NULL), *y = luge_randint(0, 10, LUGE_SHAPE(64));
    double last = 0;
    for (int i = 0; i < 3; ++i) {
        LUGE_SCOPE("step");
        luge_tensor *loss = luge_cross_entropy(luge_forward(net, x), y, NULL);
        luge_optim_zero_grad(opt);
        luge_backward(loss);
        luge_optim_step(opt);
        last = luge_item(loss);
    }
    luge_optim_destroy(opt);
    luge_module_destroy(net);
    return luge_ok() ? last : -1;
}
