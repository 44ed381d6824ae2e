/* Convolutions and pooling: layers over images [N, C, H, W]. */
#include "core/thread.h"
#include "nn/layers.h"

/* ---- Conv2d */

typedef struct conv2d {
    int64_t in, out, kernel[2];
    luge_conv2d_options options;
    luge_tensor *weight, *bias; /* [out, in/groups, R, S], [out] or none */
} conv2d;

static void conv2d_build(luge_module *self, void *state)
{
    conv2d *c = state;
    c->weight =
        lg_add_weight(self, "weight", LUGE_SHAPE(c->out, c->in / c->options.groups, c->kernel[0], c->kernel[1]));
    c->bias = c->options.no_bias || c->weight == NULL ? luge_none() : lg_add_bias(self, "bias", c->weight);
}

static luge_tensor *conv2d_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    const conv2d *c = state;
    return luge_conv2d(x, c->weight, c->bias, &c->options);
}

static const luge_module_class conv2d_class = {
    .name = "Conv2d", .state_size = sizeof(conv2d), .build = conv2d_build, .forward = conv2d_forward};

static bool check_at_least(const char *layer, const char *what, int64_t value, int64_t least)
{
    if (!lg_ok()) return false;
    if (value >= least) return true;
    lg_fail(LUGE_ERR_ARGUMENT, "%s: %s must be at least %lld, not %lld", layer, what, (long long)least,
            (long long)value);
    return false;
}

static bool check_pair(const char *what, const int64_t pair[2], int64_t least)
{
    return check_at_least("Conv2d", what, pair[0], least) && check_at_least("Conv2d", what, pair[1], least);
}

static bool check_conv2d(const conv2d *c)
{
    const luge_conv2d_options *o = &c->options;
    if (!lg_check_size("Conv2d", "in", c->in) || !lg_check_size("Conv2d", "out", c->out) ||
        !lg_check_size("Conv2d", "kernel", c->kernel[0]) || !lg_check_size("Conv2d", "kernel", c->kernel[1]) ||
        !lg_check_size("Conv2d", "groups", o->groups) || !check_at_least("Conv2d", "stride", o->stride, 0) ||
        !check_at_least("Conv2d", "dilation", o->dilation, 0) ||
        !check_at_least("Conv2d", "padding", o->padding, LUGE_SAME) || !check_pair("stride_hw", o->stride_hw, 0) ||
        !check_pair("padding_hw", o->padding_hw, LUGE_SAME) || !check_pair("dilation_hw", o->dilation_hw, 0) ||
        !lg_check_reserved(o->reserved, 8, "luge_conv2d_options")) {
        return false;
    }
    if (c->in % o->groups == 0 && c->out % o->groups == 0) return true;
    lg_fail(LUGE_ERR_ARGUMENT, "Conv2d: %lld input and %lld output channels do not divide into %lld groups",
            (long long)c->in, (long long)c->out, (long long)o->groups);
    return false;
}

luge_module *luge_nn_conv2d(int64_t in, int64_t out, int64_t kernel, const luge_conv2d_options *options)
{
    conv2d c = {.in = in, .out = out, .kernel = {kernel, kernel}};
    if (options != NULL) c.options = *options;
    if (c.options.kernel_hw[0] != 0 || c.options.kernel_hw[1] != 0) {
        c.kernel[0] = c.options.kernel_hw[0];
        c.kernel[1] = c.options.kernel_hw[1];
        c.options.kernel_hw[0] = c.options.kernel_hw[1] = 0;
    }
    if (c.options.groups == 0) c.options.groups = 1;
    return check_conv2d(&c) ? luge_module_create(&conv2d_class, &c) : NULL;
}

/* ---- pooling */

typedef struct pool2d {
    int64_t kernel;
    luge_pool2d_options options;
} pool2d;

static luge_tensor *max_pool2d_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    const pool2d *p = state;
    return luge_max_pool2d(x, p->kernel, &p->options);
}

static luge_tensor *avg_pool2d_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    const pool2d *p = state;
    return luge_avg_pool2d(x, p->kernel, &p->options);
}

static const luge_module_class max_pool2d_class = {
    .name = "MaxPool2d", .state_size = sizeof(pool2d), .forward = max_pool2d_forward};
static const luge_module_class avg_pool2d_class = {
    .name = "AvgPool2d", .state_size = sizeof(pool2d), .forward = avg_pool2d_forward};

static luge_module *make_pool2d(const luge_module_class *type, int64_t kernel, const luge_pool2d_options *options)
{
    pool2d p = {.kernel = kernel};
    if (options != NULL) p.options = *options;
    if (!lg_check_size(type->name, "kernel", kernel) || !check_at_least(type->name, "stride", p.options.stride, 0) ||
        !check_at_least(type->name, "padding", p.options.padding, 0) ||
        !lg_check_reserved(p.options.reserved, 4, "luge_pool2d_options")) {
        return NULL;
    }
    if (p.options.padding > kernel / 2) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: padding %lld is more than half of the kernel, %lld", type->name,
                (long long)p.options.padding, (long long)kernel);
        return NULL;
    }
    return luge_module_create(type, &p);
}

luge_module *luge_nn_max_pool2d(int64_t kernel, const luge_pool2d_options *options)
{
    return make_pool2d(&max_pool2d_class, kernel, options);
}

luge_module *luge_nn_avg_pool2d(int64_t kernel, const luge_pool2d_options *options)
{
    return make_pool2d(&avg_pool2d_class, kernel, options);
}

typedef struct adaptive {
    int64_t height, width;
} adaptive;

static luge_tensor *adaptive_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    const adaptive *a = state;
    return luge_adaptive_avg_pool2d(x, a->height, a->width);
}

static const luge_module_class adaptive_class = {
    .name = "AdaptiveAvgPool2d", .state_size = sizeof(adaptive), .forward = adaptive_forward};

luge_module *luge_nn_adaptive_avg_pool2d(int64_t height, int64_t width)
{
    if (!lg_check_size(adaptive_class.name, "height", height) || !lg_check_size(adaptive_class.name, "width", width)) {
        return NULL;
    }
    return luge_module_create(&adaptive_class, &(adaptive){height, width});
}
