#include <luge/luge.h>

/* A gradient hook: sees the gradient of one activation, and returns the one to use. */
static luge_tensor *soften(luge_tensor *grad, void *user) {
    return luge_mul_scalar(grad, *(const double *)user);
}

/* A leaf hook: runs when a parameter's gradient is complete. */
static void watch(luge_tensor *leaf, void *name) {
    luge_tensor *norm = luge_norm(luge_tensor_grad(leaf), 2, LUGE_ALL_AXES);
    printf("  |d %s| = %.3g\n", (const char *)name, luge_item(norm));
}

int main(void) {
    LUGE_SCOPE("inside");
    double half = 0.5;
    luge_module *body = luge_nn_sequential(luge_nn_linear(20, 64, NULL), luge_nn_relu());
    luge_module *head = luge_nn_sequential(luge_nn_linear(64, 1, NULL), luge_nn_softplus());
    luge_hook_accumulated(luge_module_param(body, "0.weight"), watch, "body.0.weight");

    luge_profile *profile = luge_profile_start(&(luge_profile_options){.amp = true});
    for (int step = 0; step < 20 && luge_ok(); ++step) {
        LUGE_SCOPE("step");
        LUGE_ANOMALY();                     /* the first NaN or inf is an error that says where */
        LUGE_AUTOCAST(LUGE_F16);
        luge_tensor *h = luge_forward(body, luge_randn(LUGE_SHAPE(256, 20), NULL));
        luge_hook_grad(h, soften, &half);
        luge_backward(luge_mean(luge_log(luge_forward(head, h)), LUGE_ALL_AXES));
    }
    luge_profile_stop(profile);

    printf("%s\n%s\n", luge_profile_table(profile, LUGE_BY_SELF_TIME), luge_amp_report(profile));
    if (luge_profile_write_trace(profile, "trace.json") == LUGE_OK) puts("wrote trace.json");
    luge_profile_destroy(profile);
    luge_module_destroy(head);
    luge_module_destroy(body);
    return luge_exit_code(stderr);
}
