#include <luge/luge.h>

/* y = x + proj(relu(gain * (x - mean))); `mean` follows the batches seen in training. */
typedef struct center {
    int64_t features;               /* given by the creator */
    double momentum;
    luge_tensor *gain, *mean;       /* added by build; they belong to the module */
    luge_module *proj;
} center;

static void center_build(luge_module *self, void *state) {
    center *c = state;
    luge_shape shape = LUGE_SHAPE(c->features);
    c->gain = luge_module_add_param(self, "gain", luge_ones(shape, NULL));
    c->mean = luge_module_add_buffer(self, "mean", luge_zeros(shape, NULL));
    c->proj = luge_module_add(self, "proj", luge_nn_linear(c->features, c->features, NULL));
}

static luge_tensor *center_forward(luge_module *self, void *state, luge_tensor *x) {  /* [N, F] */
    center *c = state;
    if (luge_module_training(self)) {
        LUGE_NO_GRAD();
        luge_lerp_(c->mean, luge_mean(x, LUGE_AXES(0)), c->momentum);
    }
    luge_tensor *h = luge_mul(luge_sub(x, c->mean), c->gain);
    return luge_add(x, luge_forward(c->proj, luge_relu(h)));
}

static const luge_module_class center_class = {
    .name = "Center", .state_size = sizeof(center),
    .build = center_build, .forward = center_forward,
};

luge_module *center_create(int64_t features, double momentum) {
    return luge_module_create(&center_class, &(center){.features = features, .momentum = momentum});
}

int main(void) {
    LUGE_SCOPE("main");
    luge_module *net = luge_nn_sequential(luge_nn_linear(16, 64, NULL), center_create(64, 0.1),
                                          luge_nn_linear(64, 1, NULL));
    printf("%s\n", luge_module_summary(net, LUGE_SHAPE(32, 16)));   /* 1.gain, 1.proj.weight, ... */
    luge_module_destroy(net);
    return luge_exit_code(stderr);
}
