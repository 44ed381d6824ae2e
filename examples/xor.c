/* Learns exclusive or: the smallest complete program. */
#include <luge/luge.h>

int main(void)
{
    LUGE_SCOPE("xor");
    luge_seed(1);
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(4, 2), 0, 0, 0, 1, 1, 0, 1, 1);
    luge_tensor *y = LUGE_TENSOR(LUGE_SHAPE(4, 1), 0, 1, 1, 0);
    luge_module *net = luge_nn_sequential(luge_nn_linear(2, 8, NULL), luge_nn_tanh(), luge_nn_linear(8, 1, NULL));
    luge_optim *opt = luge_adam_create(net, 0.05, NULL);

    for (int step = 1; step <= 500 && luge_ok(); ++step) {
        LUGE_SCOPE("step");
        luge_tensor *loss = luge_bce_with_logits(luge_forward(net, x), y, NULL);
        luge_optim_zero_grad(opt);
        luge_backward(loss);
        luge_optim_step(opt);
        if (step % 100 == 0) printf("step %3d  loss %.4f\n", step, luge_item(loss));
    }

    LUGE_NO_GRAD();
    printf("0^0, 0^1, 1^0, 1^1 = %s\n", luge_text(luge_sigmoid(luge_forward(net, x))));
    luge_optim_destroy(opt);
    luge_module_destroy(net);
    return luge_exit_code(stderr); /* the only check: the first error stands, and nothing happens after it */
}
