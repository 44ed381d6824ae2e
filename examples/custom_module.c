/* A module of one's own: parameters, a buffer and a child, in a net that is trained, cloned and described.
 * y = x + proj(relu(gain * (x - mean))), where `mean` follows the batches seen in training. */
#include <luge/luge.h>

typedef struct center {
    int64_t features; /* given by the creator */
    double momentum;
    luge_tensor *gain, *mean; /* added by build; they belong to the module */
    luge_module *proj;
} center;

static void center_build(luge_module *self, void *state)
{
    center *c = state;
    const luge_shape shape = LUGE_SHAPE(c->features);
    c->gain = luge_module_add_param(self, "gain", luge_ones(shape, NULL));
    c->mean = luge_module_add_buffer(self, "mean", luge_zeros(shape, NULL));
    c->proj = luge_module_add(self, "proj", luge_nn_linear(c->features, c->features, NULL));
}

static luge_tensor *center_forward(luge_module *self, void *state, luge_tensor *x) /* [N, features] */
{
    center *c = state;
    if (luge_module_training(self)) {
        LUGE_NO_GRAD();
        luge_lerp_(c->mean, luge_mean(x, LUGE_AXES(0)), c->momentum);
    }
    luge_tensor *h = luge_mul(luge_sub(x, c->mean), c->gain);
    return luge_add(x, luge_forward(c->proj, luge_relu(h)));
}

static const luge_module_class center_class = {
    .name = "Center",
    .state_size = sizeof(center),
    .build = center_build,
    .forward = center_forward,
};

static luge_module *center_create(int64_t features, double momentum)
{
    return luge_module_create(&center_class, &(center){.features = features, .momentum = momentum});
}

int main(void)
{
    LUGE_SCOPE("main");
    luge_seed(1);
    luge_module *net = luge_nn_sequential(luge_nn_linear(16, 64, NULL), center_create(64, 0.1),
                                          luge_nn_linear(64, 1, NULL));
    luge_optim *opt = luge_adam_create(net, 1e-3, NULL);
    printf("%s\n", luge_module_summary(net, LUGE_SHAPE(32, 16))); /* 1.gain, 1.proj.weight, ... */

    for (int step = 1; step <= 300 && luge_ok(); ++step) {
        LUGE_SCOPE("step");
        luge_tensor *x = luge_randn(LUGE_SHAPE(128, 16), NULL);
        luge_tensor *y = luge_sum(luge_abs(x), LUGE_AXES_KEEPDIM(1)); /* to be learned */
        luge_tensor *loss = luge_mse_loss(luge_forward(net, x), y, NULL);
        luge_optim_zero_grad(opt);
        luge_backward(loss);
        luge_optim_step(opt);
        if (step % 100 == 0) printf("step %3d  loss %.4f\n", step, luge_item(loss));
    }

    luge_module *copy = luge_module_clone(net); /* build ran again; the values were copied */
    printf("mean of the copy: %s\n", luge_text(luge_slice(luge_module_buffer(copy, "1.mean"), 0, 0, 4)));
    luge_module_destroy(copy);
    luge_optim_destroy(opt);
    luge_module_destroy(net);
    return luge_exit_code(stderr);
}
