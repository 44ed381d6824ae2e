/* Trains the critic of 13_penalty.c for some steps, to tell N(0, 1) from N(2, 1). */
#include <luge/luge.h>
#include <math.h>

double critic_step(luge_module *critic, luge_optim *opt, luge_tensor *real, luge_tensor *fake);

int main(void)
{
    LUGE_SCOPE("main");
    luge_seed(5);
    luge_module *critic = luge_nn_sequential(luge_nn_linear(3, 16, NULL), luge_nn_tanh(), luge_nn_linear(16, 1, NULL));
    luge_optim *opt = luge_adam_create(critic, 0.01, NULL);
    double first = NAN, last = NAN;
    for (int step = 0; step < 60 && luge_ok(); ++step) {
        LUGE_SCOPE("data");
        luge_tensor *real = luge_randn(LUGE_SHAPE(32, 3), NULL);
        luge_tensor *fake = luge_add_scalar(luge_randn(LUGE_SHAPE(32, 3), NULL), 2);
        last = critic_step(critic, opt, real, fake);
        if (step == 0) first = last;
    }
    printf("the critic's loss %s\n", last < first - 1 && last < 0 ? "fell" : "did not fall");
    luge_optim_destroy(opt);
    luge_module_destroy(critic);
    return luge_exit_code(stderr);
}
