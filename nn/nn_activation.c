/* Layers without parameters: activations, dropout, flatten, identity. */
#include "core/thread.h"
#include "nn/layers.h"

#define ACTIVATION(op, kind)                                                             \
    static luge_tensor *op##_forward(luge_module *self, void *state, luge_tensor *x)     \
    {                                                                                    \
        (void)self;                                                                      \
        (void)state;                                                                     \
        return luge_##op(x);                                                             \
    }                                                                                    \
    static const luge_module_class op##_class = {.name = kind, .forward = op##_forward}; \
    luge_module *luge_nn_##op(void)                                                      \
    {                                                                                    \
        return luge_module_create(&op##_class, NULL);                                    \
    }

ACTIVATION(relu, "ReLU")
ACTIVATION(gelu, "GELU")
ACTIVATION(silu, "SiLU")
ACTIVATION(tanh, "Tanh")
ACTIVATION(sigmoid, "Sigmoid")
ACTIVATION(softplus, "Softplus")

static luge_tensor *flatten_forward(luge_module *self, void *state, luge_tensor *x) /* [N, ...] */
{
    (void)self;
    (void)state;
    return luge_flatten(x, 1, -1);
}

static luge_tensor *identity_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    (void)state;
    return x;
}

static const luge_module_class flatten_class = {.name = "Flatten", .forward = flatten_forward};
static const luge_module_class identity_class = {.name = "Identity", .forward = identity_forward};

luge_module *luge_nn_flatten(void)
{
    return luge_module_create(&flatten_class, NULL);
}

luge_module *luge_nn_identity(void)
{
    return luge_module_create(&identity_class, NULL);
}

static luge_tensor *dropout_forward(luge_module *self, void *state, luge_tensor *x)
{
    const double *p = state;
    return luge_dropout(x, *p, luge_module_training(self));
}

static const luge_module_class dropout_class = {
    .name = "Dropout", .state_size = sizeof(double), .forward = dropout_forward};

luge_module *luge_nn_dropout(double p)
{
    return lg_check_range("Dropout", "p", p, 0, 1) ? luge_module_create(&dropout_class, &p) : NULL;
}
