/* An op of one's own, with its gradient, checked against differences.
 * softsign: y = x / (k + |x|),  dy/dx = k / (k + |x|)^2 */
#include <luge/luge.h>
#include <math.h>

typedef struct softsign_attrs {
    float k;
} softsign_attrs;

static luge_tensor *softsign_forward(const luge_call *call)
{
    const softsign_attrs *a = call->attrs;
    luge_tensor *x = luge_contiguous(call->inputs.items[0]);
    luge_tensor *y = luge_empty_like(x);
    const float *from = luge_tensor_data(x, LUGE_F32);
    float *to = luge_tensor_data_mut(y, LUGE_F32);
    if (from == NULL || to == NULL) return NULL; /* raw pointers: here you must look */
    const int64_t n = luge_tensor_numel(x);
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] / (a->k + fabsf(from[i]));
    return y;
}

static void softsign_backward(const luge_call *call, luge_tensor *grad, luge_tensor **grads)
{
    const softsign_attrs *a = call->attrs;
    luge_tensor *d = luge_add_scalar(luge_abs(call->inputs.items[0]), a->k);
    grads[0] = luge_div(luge_mul_scalar(grad, a->k), luge_square(d)); /* of ops: can be differentiated itself */
}

static const luge_custom_op softsign_op = {
    .name = "softsign",
    .autocast = LUGE_CAST_F32, /* inside an autocast region the input comes as f32 */
    .save = LUGE_SAVE_INPUTS,
    .attrs_size = sizeof(softsign_attrs),
    .forward = softsign_forward,
    .backward = softsign_backward,
};

static luge_tensor *softsign(luge_tensor *x, float k)
{
    return luge_custom(&softsign_op, LUGE_LIST(x), &(softsign_attrs){.k = k});
}

static luge_tensor *check(luge_list inputs, void *user)
{
    (void)user;
    return softsign(inputs.items[0], 0.5f);
}

int main(void)
{
    LUGE_SCOPE("main");
    luge_seed(1);
    luge_set_default_device(luge_device_cpu()); /* the op reads memory of the host */
    luge_tensor *x = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(5), -2, -0.5, 0.25, 1, 4));
    luge_tensor *y = softsign(x, 0.5f);
    luge_backward(luge_sum(y, LUGE_ALL_AXES));
    printf("x     = %s\ny     = %s\ndy/dx = %s\n", luge_text(x), luge_text(y), luge_text(luge_tensor_grad(x)));

    luge_tensor *points = luge_requires_grad_(luge_randn(LUGE_SHAPE(8, 5), NULL));
    if (luge_gradcheck(check, LUGE_LIST(points), NULL, 1e-2) == LUGE_OK) puts("gradients agree with differences");
    return luge_exit_code(stderr);
}
