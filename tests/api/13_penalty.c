#include <luge/luge.h>

/* Between real and generated samples, [N, D], the critic's gradient should have length 1. */
static luge_tensor *penalty(luge_module *critic, luge_tensor *real, luge_tensor *fake) {
    luge_tensor *mix = luge_rand(LUGE_SHAPE(luge_tensor_size(real, 0), 1), NULL);
    luge_tensor *between = luge_requires_grad_(luge_detach(luge_lerp(real, fake, mix)));
    luge_tensor *score = luge_sum(luge_forward(critic, between), LUGE_ALL_AXES);

    luge_backward_options twice = LUGE_DEFAULTS;
    twice.create_graph = true;              /* the gradient is itself differentiable */
    luge_tensor *slope = luge_norm(luge_grad(score, between, &twice), 2, LUGE_AXES(1));
    return luge_mean(luge_square(luge_add_scalar(slope, -1)), LUGE_ALL_AXES);
}

double critic_step(luge_module *critic, luge_optim *opt, luge_tensor *real, luge_tensor *fake) {
    LUGE_SCOPE("critic");
    fake = luge_detach(fake);
    luge_tensor *on_fake = luge_mean(luge_forward(critic, fake), LUGE_ALL_AXES);
    luge_tensor *on_real = luge_mean(luge_forward(critic, real), LUGE_ALL_AXES);
    luge_tensor *gap = luge_sub(on_fake, on_real);
    luge_tensor *loss = luge_add(gap, luge_mul_scalar(penalty(critic, real, fake), 10));
    luge_optim_zero_grad(opt);
    luge_backward(loss);
    luge_optim_step(opt);
    return luge_item(loss);
}
