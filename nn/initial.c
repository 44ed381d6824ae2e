/* Initial values of parameters: the public luge_init_ functions and what layers start with. Numbers
 * come from the thread's generator, in the order in which layers are made. */
#include <math.h>

#include "core/thread.h"
#include "nn/layers.h"
#include "ops/compose.h"

enum { UNIFORM, NORMAL };

static luge_tensor *draw(luge_tensor *t, int kind, double a, double b)
{
    return kind == UNIFORM ? lg_uniform_(t, a, b) : lg_normal_(t, a, b);
}

/* Parameters are leaves: their values are set outside any graph. They are drawn on the host, so that they
 * are the same bits on every device. Numbers drawn for a tensor that refuses them are drawn again. */
static luge_tensor *fill(luge_tensor *t, const char *what, int kind, double a, double b)
{
    const uint64_t drawn = lg_self()->rng_offset;
    luge_scope scope = luge_scope_enter(what);
    luge_no_grad_enter();
    if (lg_on_host(t->storage->device)) {
        draw(t, kind, a, b);
    } else {
        const luge_tensor_options host = {.dtype = t->dtype, .device = luge_device_cpu()};
        luge_copy_(t, draw(luge_empty(t->shape, &host), kind, a, b));
    }
    luge_scope_exit(scope, NULL);
    if (lg_ok()) return t;
    lg_self()->rng_offset = drawn;
    return NULL;
}

/* t is a float of a rank that has fans: [out, in, ...]. */
static bool has_fans(const luge_tensor *t, const char *what, double *fan_in, double *fan_out)
{
    if (!lg_ok() || !lg_check_tensor(t, what)) return false;
    if (t->shape.rank < 2) {
        char text[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "%s: needs the shape [out, in, ...] of a weight, not %s", what,
                lg_shape_text(text, &t->shape));
        return false;
    }
    double window = 1;
    for (int i = 2; i < t->shape.rank; ++i) window *= (double)t->shape.dim[i];
    *fan_in = (double)t->shape.dim[1] * window;
    *fan_out = (double)t->shape.dim[0] * window;
    return true;
}

luge_tensor *luge_init_uniform_(luge_tensor *t, double low, double high)
{
    static const char what[] = "luge_init_uniform_";
    if (!lg_ok() || !lg_check_tensor(t, what)) return NULL;
    if (!isfinite(low) || !isfinite(high) || low > high) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: from %g to %g is no range", what, low, high);
        return NULL;
    }
    return fill(t, what, UNIFORM, low, high);
}

luge_tensor *luge_init_normal_(luge_tensor *t, double mean, double std)
{
    static const char what[] = "luge_init_normal_";
    if (!lg_ok() || !lg_check_tensor(t, what)) return NULL;
    if (!isfinite(mean) || !isfinite(std) || std < 0) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: there is no normal distribution of mean %g and deviation %g", what, mean, std);
        return NULL;
    }
    return fill(t, what, NORMAL, mean, std);
}

luge_tensor *luge_init_kaiming_uniform_(luge_tensor *t, double a)
{
    static const char what[] = "luge_init_kaiming_uniform_";
    double fan_in, fan_out;
    if (!has_fans(t, what, &fan_in, &fan_out)) return NULL;
    if (!isfinite(a)) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: a is %g", what, a);
        return NULL;
    }
    const double bound = fan_in > 0 ? sqrt(6 / ((1 + a * a) * fan_in)) : 0;
    return fill(t, what, UNIFORM, -bound, bound);
}

luge_tensor *luge_init_kaiming_normal_(luge_tensor *t)
{
    static const char what[] = "luge_init_kaiming_normal_";
    double fan_in, fan_out;
    if (!has_fans(t, what, &fan_in, &fan_out)) return NULL;
    return fill(t, what, NORMAL, 0, fan_in > 0 ? sqrt(2 / fan_in) : 0);
}

luge_tensor *luge_init_xavier_uniform_(luge_tensor *t)
{
    static const char what[] = "luge_init_xavier_uniform_";
    double fan_in, fan_out;
    if (!has_fans(t, what, &fan_in, &fan_out)) return NULL;
    const double bound = fan_in + fan_out > 0 ? sqrt(6 / (fan_in + fan_out)) : 0;
    return fill(t, what, UNIFORM, -bound, bound);
}

/* ---- for layers */

luge_tensor *lg_add_weight(luge_module *self, const char *name, luge_shape shape)
{
    return luge_module_add_param(self, name, luge_init_kaiming_uniform_(luge_empty(shape, NULL), sqrt(5)));
}

luge_tensor *lg_add_bias(luge_module *self, const char *name, const luge_tensor *weight)
{
    double fan_in, fan_out;
    if (!has_fans(weight, name, &fan_in, &fan_out)) return NULL;
    const double bound = fan_in > 0 ? 1 / sqrt(fan_in) : 0;
    luge_tensor *bias = luge_empty(LUGE_SHAPE(weight->shape.dim[0]), NULL);
    return luge_module_add_param(self, name, luge_init_uniform_(bias, -bound, bound));
}

luge_tensor *lg_add_constant(luge_module *self, const char *name, luge_shape shape, double value)
{
    return luge_module_add_param(self, name, luge_full(shape, value, NULL));
}

bool lg_check_size(const char *layer, const char *what, int64_t size)
{
    if (!lg_ok()) return false;
    if (size >= 1) return true;
    lg_fail(LUGE_ERR_ARGUMENT, "%s: %s must be at least 1, not %lld", layer, what, (long long)size);
    return false;
}

bool lg_check_range(const char *layer, const char *what, double value, double low, double high)
{
    if (!lg_ok()) return false;
    if (value >= low && value <= high) return true;
    lg_fail(LUGE_ERR_ARGUMENT, "%s: %s must be in [%g, %g], not %g", layer, what, low, high, value);
    return false;
}
