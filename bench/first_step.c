/* From the start of the process to the end of the first training step of an MLP 784-128-10, to be timed
 * from outside, and by itself from main on. */
#include <luge/luge.h>
#include <time.h>

int main(void)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    LUGE_SCOPE("first");
    luge_module *net = luge_nn_sequential(luge_nn_linear(784, 128, NULL), luge_nn_relu(), luge_nn_linear(128, 10, NULL));
    luge_optim *opt = luge_sgd_create(net, 0.01, NULL);
    luge_tensor *loss = luge_cross_entropy(luge_forward(net, luge_randn(LUGE_SHAPE(64, 784), NULL)),
                                           luge_randint(0, 10, LUGE_SHAPE(64)), NULL);
    luge_backward(loss);
    luge_optim_step(opt);
    const double value = luge_item(loss);
    luge_optim_destroy(opt);
    luge_module_destroy(net);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("loss %.3f, %.1f ms from main\n", value,
           1e3 * (double)(to.tv_sec - from.tv_sec) + 1e-6 * (double)(to.tv_nsec - from.tv_nsec));
    return luge_exit_code(stderr);
}
