/* Checking gradients against differences: for users' own ops and modules, and for the tests of ours. */
#include <luge/autograd.h>
#include <luge/scope.h>
#include <math.h>
#include "core/alloc.h"
#include "core/rng.h"
#include "core/services.h"
#include "core/thread.h"

enum {
    MOST_ELEMENTS = 200 /* of one input; of larger ones so many are drawn */
};

/* What one check works on. */
typedef struct gradcheck {
    luge_tensor_fn fn;
    luge_list inputs;
    void *user;
    double tolerance;
    const char *what;
    luge_tensor *cotangent; /* of the output */
    double *values;         /* [2, elements of the output]: cotangent, output */
    luge_tensor **grads;    /* [inputs]: analytic; NULL for constants */
} gradcheck;

/* ---- numbers that are random, but the same in every run */

enum { STREAM_COTANGENT = 1 << 20, STREAM_ELEMENTS = 1 << 21, SEED = 20240607 };

/* Uniform in [-1, 1): a cotangent of ones would not see a wrong softmax. */
static double random_number(uint64_t stream, int64_t i)
{
    const lg_philox bits = lg_philox_block(SEED, stream, (uint64_t)i);
    return 2 * lg_uniform_f64(bits.v[0], bits.v[1]) - 1;
}

static luge_tensor *random_like(const luge_tensor *t, uint64_t stream)
{
    lg_device *device = t->storage->device;
    luge_tensor *r = lg_borrow(lg_tensor_create(device, t->dtype, &t->shape, NULL));
    if (r == NULL || r->numel == 0) return r;
    char *values = lg_alloc(r->storage->bytes);
    if (values == NULL) return NULL;
    for (int64_t i = 0; i < r->numel; ++i)
        lg_store_f64(values + (size_t)i * lg_element_size(r), r->dtype, random_number(stream, i));
    const luge_status status = device->backend->from_host(device, lg_data(r), values, r->storage->bytes);
    lg_free(values);
    return status == LUGE_OK ? r : NULL;
}

/* ---- one element of a tensor, counted in row-major order */

static luge_shape index_of(const luge_tensor *t, int64_t element)
{
    luge_shape index = {.rank = t->shape.rank};
    for (int a = t->shape.rank - 1; a >= 0; --a) {
        index.dim[a] = element % t->shape.dim[a];
        element /= t->shape.dim[a];
    }
    return index;
}

static void *element_at(const luge_tensor *t, int64_t element)
{
    const luge_shape index = index_of(t, element);
    int64_t offset = 0;
    for (int a = 0; a < index.rank; ++a) offset += index.dim[a] * t->stride[a];
    return (char *)lg_data(t) + offset * (int64_t)lg_element_size(t);
}

static luge_status read_element(const luge_tensor *t, const void *at, double *value)
{
    lg_device *device = t->storage->device;
    char element[8];
    const luge_status status = device->backend->to_host(device, element, at, lg_element_size(t));
    if (status == LUGE_OK) *value = lg_load_f64(element, t->dtype);
    return status;
}

static luge_status write_element(luge_tensor *t, void *at, double value)
{
    lg_device *device = t->storage->device;
    char element[8];
    lg_store_f64(element, t->dtype, value);
    lg_bump_version(t);
    return device->backend->from_host(device, at, element, lg_element_size(t));
}

/* ---- the function */

static luge_tensor *call_function(const gradcheck *g)
{
    luge_tensor *y = g->fn(g->inputs, g->user);
    if (!lg_ok()) return NULL;
    if (y == NULL) {
        lg_fail(LUGE_ERR_CALLBACK, "%s: the function returned NULL without an error", g->what);
        return NULL;
    }
    if (!lg_check_tensor(y, g->what)) return NULL;
    if (!lg_is_float(y->dtype)) {
        lg_fail(LUGE_ERR_DTYPE, "%s: the function's result is %s, not a float", g->what, luge_dtype_name(y->dtype));
        return NULL;
    }
    if (g->cotangent != NULL && !lg_shape_equal(&y->shape, &g->cotangent->shape)) {
        lg_fail(LUGE_ERR_SHAPE, "%s: the function's result changes its shape from call to call", g->what);
        return NULL;
    }
    return y;
}

/* The sum of the output's elements, weighted by the cotangent. */
static luge_status weighted_sum(const gradcheck *g, double *sum)
{
    luge_scope scope = luge_scope_enter(NULL);
    luge_tensor *y = call_function(g);
    luge_status status = y != NULL ? LUGE_OK : lg_error();
    const int64_t n = g->cotangent->numel;
    if (status == LUGE_OK) status = luge_to_array(y, g->values + n, LUGE_F64, n);
    *sum = 0;
    for (int64_t i = 0; i < n && status == LUGE_OK; ++i) *sum += g->values[i] * g->values[n + i];
    luge_scope_exit(scope, NULL);
    return status;
}

/* The central difference for one element of an input, which is as before afterwards. */
static luge_status difference(const gradcheck *g, luge_tensor *x, void *at, double *slope)
{
    const double step = cbrt(x->dtype == LUGE_F64 ? 0x1p-52 : 0x1p-23);
    double before, sum[2] = {0, 0}, value[2] = {0, 0};
    luge_status status = read_element(x, at, &before);
    if (status != LUGE_OK) return status;
    for (int side = 0; side < 2 && status == LUGE_OK; ++side) {
        status = write_element(x, at, side == 0 ? before - step : before + step);
        if (status == LUGE_OK) status = read_element(x, at, &value[side]); /* rounded: the step that was really taken */
        if (status == LUGE_OK) status = weighted_sum(g, &sum[side]);
    }
    write_element(x, at, before);
    if (status == LUGE_OK) *slope = (sum[1] - sum[0]) / (value[1] - value[0]);
    return status;
}

static luge_status check_element(const gradcheck *g, int i, int64_t element)
{
    luge_tensor *x = g->inputs.items[i], *grad = g->grads[i];
    double analytic = 0, numeric = 0;
    luge_status status = lg_is_none(grad) ? LUGE_OK : read_element(grad, element_at(grad, element), &analytic);
    if (status == LUGE_OK) status = difference(g, x, element_at(x, element), &numeric);
    if (status != LUGE_OK) return status;
    if (fabs(analytic - numeric) <= g->tolerance * fmax(1, fabs(numeric))) return LUGE_OK;
    char text[LG_SHAPE_TEXT];
    const luge_shape index = index_of(x, element);
    return lg_fail(LUGE_ERR_GRAPH, "%s: input %d, element %s: backward says %.9g, differences say %.9g", g->what, i,
                   lg_shape_text(text, &index), analytic, numeric);
}

static luge_status check_input(const gradcheck *g, int i)
{
    const int64_t n = g->inputs.items[i]->numel;
    luge_status status = LUGE_OK;
    for (int64_t k = 0; k < n && k < MOST_ELEMENTS && status == LUGE_OK; ++k) {
        int64_t element = k;
        if (n > MOST_ELEMENTS) { /* one of each of as many equal parts */
            const int64_t from = (int64_t)((double)n / MOST_ELEMENTS * (double)k);
            const int64_t to = (int64_t)((double)n / MOST_ELEMENTS * (double)(k + 1));
            const double u = 0.5 + 0.5 * random_number(STREAM_ELEMENTS + (uint64_t)i, k);
            element = from + (int64_t)(u * (double)(to - from));
        }
        status = check_element(g, i, element);
    }
    return status;
}

/* ---- backward */

static bool is_variable(const luge_tensor *t)
{
    return t->requires_grad;
}

/* The gradients of all variables; those of constants stay NULL. */
static luge_status analytic(const gradcheck *g, luge_tensor *y, luge_tensor *cotangent, bool create_graph,
                            luge_tensor **grads)
{
    const int n = g->inputs.count;
    const luge_backward_options o = {.gradient = cotangent, .retain_graph = true, .create_graph = create_graph};
    luge_tensor **some = lg_alloc(2 * (size_t)n * sizeof *some);
    if (some == NULL) return lg_error();
    int count = 0;
    for (int i = 0; i < n; ++i)
        if (is_variable(g->inputs.items[i])) some[count++] = g->inputs.items[i];
    const luge_status status = luge_grad_list((luge_list){&y, 1}, (luge_list){some, count}, some + n, &o);
    count = 0;
    for (int i = 0; i < n; ++i) grads[i] = is_variable(g->inputs.items[i]) ? some[n + count++] : NULL;
    lg_free(some);
    return status;
}

static luge_status compare_gradients(const gradcheck *g, int i, const luge_tensor *a, const luge_tensor *b)
{
    const size_t bytes = (size_t)a->numel * lg_element_size(a);
    char *values = lg_alloc(2 * bytes + 1);
    luge_status status = values != NULL ? luge_to_array(a, values, a->dtype, a->numel) : lg_error();
    if (status == LUGE_OK) status = luge_to_array(b, values + bytes, a->dtype, b->numel);
    if (status == LUGE_OK && memcmp(values, values + bytes, bytes) != 0)
        status = lg_fail(LUGE_ERR_GRAPH, "%s: input %d: two runs of backward differ", g->what, i);
    lg_free(values);
    return status;
}

static luge_status compare_bits(const gradcheck *g, luge_tensor *const *again)
{
    luge_status status = LUGE_OK;
    for (int i = 0; i < g->inputs.count && status == LUGE_OK; ++i) {
        if (g->grads[i] == NULL || lg_is_none(g->grads[i])) continue;
        status = compare_gradients(g, i, g->grads[i], again[i]);
    }
    return status;
}

static luge_status run_twice(gradcheck *g, luge_tensor *y)
{
    luge_tensor **again = g->grads + g->inputs.count;
    luge_status status = analytic(g, y, g->cotangent, false, g->grads);
    if (status == LUGE_OK) status = analytic(g, y, g->cotangent, false, again);
    return status == LUGE_OK ? compare_bits(g, again) : status;
}

static luge_status check(gradcheck *g)
{
    luge_tensor *y = call_function(g);
    if (y == NULL) return lg_error();
    g->cotangent = random_like(y, STREAM_COTANGENT);
    if (g->cotangent == NULL) return lg_error();
    g->values = lg_alloc(2 * (size_t)(y->numel > 0 ? y->numel : 1) * sizeof *g->values);
    if (g->values == NULL) return lg_error();
    luge_status status = luge_to_array(g->cotangent, g->values, LUGE_F64, y->numel);
    if (status == LUGE_OK) status = run_twice(g, y);
    for (int i = 0; i < g->inputs.count && status == LUGE_OK; ++i)
        if (g->grads[i] != NULL) status = check_input(g, i);
    return status;
}

/* ---- what users call */

static luge_status check_arguments(const gradcheck *g)
{
    if (g->fn == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: the function is NULL", g->what);
    if (g->inputs.count < 1 || g->inputs.items == NULL)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: there are no inputs", g->what);
    if (!(g->tolerance > 0)) return lg_fail(LUGE_ERR_ARGUMENT, "%s: the tolerance must be greater than 0", g->what);
    bool any = false;
    for (int i = 0; i < g->inputs.count; ++i) {
        const luge_tensor *t = g->inputs.items[i];
        if (!lg_check_tensor(t, g->what)) return lg_error();
        if (!is_variable(t)) continue;
        any = true;
        if (t->node != NULL) return lg_fail(LUGE_ERR_GRAPH, "%s: input %d is not a leaf; luge_detach makes one", g->what, i);
        if (lg_is_half(t->dtype))
            return lg_fail(LUGE_ERR_DTYPE, "%s: input %d is %s, too coarse for differences; use f64 or f32", g->what, i,
                           luge_dtype_name(t->dtype));
        if (lg_strides_overlap(&t->shape, t->stride))
            return lg_fail(LUGE_ERR_ARGUMENT, "%s: some elements of input %d share memory; luge_clone it", g->what, i);
    }
    return any ? LUGE_OK : lg_fail(LUGE_ERR_GRAPH, "%s: no input requires a gradient", g->what);
}

static luge_status run(gradcheck *g, luge_status (*body)(gradcheck *))
{
    if (!lg_ok()) return lg_error();
    luge_status status = check_arguments(g);
    if (status != LUGE_OK) return status;
    luge_scope scope = luge_scope_enter(NULL);
    g->grads = lg_alloc_zero(2 * (size_t)g->inputs.count * sizeof *g->grads);
    status = lg_error();
    if (status == LUGE_OK) status = body(g);
    luge_scope_exit(scope, NULL);
    lg_free(g->grads);
    lg_free(g->values);
    return status;
}

luge_status luge_gradcheck(luge_tensor_fn fn, luge_list inputs, void *user, double tolerance)
{
    gradcheck g = {.fn = fn, .inputs = inputs, .user = user, .tolerance = tolerance, .what = "luge_gradcheck"};
    return run(&g, check);
}

/* ---- one order up: the gradient, as a function of the inputs and of its cotangent */

/* Of all gradients one number, weighted at random. The last input is the cotangent. */
static luge_tensor *gradient_function(luge_list inputs, void *user)
{
    gradcheck inner = *(const gradcheck *)user;
    luge_tensor *cotangent = inputs.items[inputs.count - 1], *sum = NULL;
    inner.inputs = (luge_list){inputs.items, inputs.count - 1};
    inner.cotangent = cotangent;
    luge_tensor *y = call_function(&inner);
    if (y == NULL) return NULL;
    luge_tensor **grads = lg_alloc((size_t)inputs.count * sizeof *grads);
    if (grads == NULL) return NULL;
    const luge_status status = analytic(&inner, y, cotangent, true, grads);
    for (int i = 0; i < inner.inputs.count && status == LUGE_OK; ++i) {
        if (grads[i] == NULL || lg_is_none(grads[i])) continue;
        luge_tensor *weights = random_like(grads[i], (uint64_t)i);
        luge_tensor *part = lg_service.sum(lg_service.mul(grads[i], weights), LUGE_ALL_AXES);
        sum = sum == NULL ? part : lg_service.add(sum, part);
    }
    lg_free(grads);
    if (sum == NULL && lg_ok()) lg_fail(LUGE_ERR_GRAPH, "%s: the result depends on no input", inner.what);
    return sum;
}

static luge_status check_gradient(gradcheck *g)
{
    const int n = g->inputs.count;
    luge_tensor *y = call_function(g);
    luge_tensor *cotangent = y != NULL ? luge_requires_grad_(random_like(y, STREAM_COTANGENT)) : NULL;
    if (cotangent == NULL) return lg_error();
    luge_tensor **inputs = lg_alloc(((size_t)n + 1) * sizeof *inputs);
    if (inputs == NULL) return lg_error();
    memcpy(inputs, g->inputs.items, (size_t)n * sizeof *inputs);
    inputs[n] = cotangent;
    gradcheck outer = {.fn = gradient_function,
                       .inputs = {inputs, n + 1},
                       .user = g,
                       .tolerance = g->tolerance,
                       .what = g->what};
    const luge_status status = run(&outer, check);
    lg_free(inputs);
    return status;
}

luge_status luge_gradgradcheck(luge_tensor_fn fn, luge_list inputs, void *user, double tolerance)
{
    gradcheck g = {.fn = fn, .inputs = inputs, .user = user, .tolerance = tolerance, .what = "luge_gradgradcheck"};
    return run(&g, check_gradient);
}
