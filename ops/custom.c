/* Ops of the user's. Each call describes itself by an lg_op at the start of its attributes, which the
 * graph copies with them, and so takes the same path as the built-in ops. */
#include <luge/scope.h>
#include <stdalign.h>
#include "core/alloc.h"
#include "core/thread.h"
#include "ops/call.h"

/* Attributes of a custom call; the user's own follow. */
typedef struct custom_attrs {
    lg_op op; /* first: the call path's op == attrs */
    const luge_custom_op *custom;
    alignas(16) unsigned char user[];
} custom_attrs;

/* A list of n tensors, absent ones as LUGE_NONE; NULL with the error set. */
static luge_tensor **as_given(int n, luge_tensor *const *in)
{
    luge_tensor **list = lg_alloc((size_t)n * sizeof *list);
    for (int i = 0; i < n && list != NULL; ++i) list[i] = in[i] != NULL ? in[i] : luge_none();
    return list;
}

/* ---- forward: infer makes the output itself */

static luge_status take_output(lg_call *call, luge_tensor *y)
{
    if (y == NULL) return lg_op_fail(call, LUGE_ERR_CALLBACK, "forward returned NULL without an error");
    if (!lg_check_tensor(y, call->op->name)) return lg_error();
    if (y->storage->device != call->device)
        return lg_op_fail(call, LUGE_ERR_DEVICE, "forward returned a tensor of another device than its inputs'");
    /* A handle of its own: y may be an input, or something that the user keeps outside the graph. */
    call->out[0] = lg_tensor_alias(y);
    return call->out[0] != NULL ? LUGE_OK : lg_error();
}

static luge_status forward(lg_call *call)
{
    const custom_attrs *a = call->attrs;
    lg_modes *modes = &lg_self()->modes;
    luge_tensor **inputs = as_given(call->n_in, call->in);
    if (inputs == NULL) return lg_error();
    const luge_call c = {.inputs = {inputs, call->n_in}, .attrs = a->user};
    luge_scope scope = luge_scope_enter(NULL);
    luge_status status = lg_error();
    if (status == LUGE_OK) {
        modes->no_grad = true;
        if (a->custom->autocast != LUGE_CAST_KEEP) modes->low = LUGE_F32; /* inputs came as the class says */
        luge_tensor *y = a->custom->forward(&c);
        status = lg_ok() ? take_output(call, y) : lg_error();
    }
    luge_scope_exit(scope, NULL);
    lg_free(inputs);
    return status;
}

/* ---- backward */

static luge_status take_gradient(lg_grad_call *g, int i, luge_tensor *grad)
{
    char is[LG_SHAPE_TEXT], should[LG_SHAPE_TEXT];
    const char *name = g->op->name;
    if (grad == NULL) return lg_fail(LUGE_ERR_CALLBACK, "%s: backward left NULL for input %d without an error", name, i);
    if (lg_is_none(grad)) return LUGE_OK;
    if (!lg_check_tensor(grad, name)) return lg_error();
    if (!lg_shape_equal(&grad->shape, &g->in_shape[i]) || !lg_is_float(grad->dtype))
        return lg_fail(LUGE_ERR_SHAPE, "%s: backward gave %s %s for the gradient of input %d, which is %s %s", name,
                       lg_shape_text(is, &grad->shape), luge_dtype_name(grad->dtype), i,
                       lg_shape_text(should, &g->in_shape[i]), luge_dtype_name(g->in_dtype[i]));
    if (grad->storage->device != g->grad_out[0]->storage->device)
        return lg_fail(LUGE_ERR_DEVICE, "%s: backward gave a gradient of another device for input %d", name, i);
    g->grad_in[i] = grad;
    return LUGE_OK;
}

/* Adds to an error about a NULL why the callback was given one. */
static void explain_missing(const luge_custom_op *op)
{
    static const char *const not_given[] = {
        [LUGE_SAVE_NOTHING] = "neither inputs nor output, since it declares neither LUGE_SAVE_INPUTS nor "
                              "LUGE_SAVE_OUTPUT",
        [LUGE_SAVE_INPUTS] = "no output, since it does not declare LUGE_SAVE_OUTPUT",
        [LUGE_SAVE_OUTPUT] = "no inputs, since it does not declare LUGE_SAVE_INPUTS",
        [LUGE_SAVE_INPUTS | LUGE_SAVE_OUTPUT] = NULL};
    const bool about_null = lg_error() == LUGE_ERR_ARGUMENT && strstr(lg_self()->error_text, " is NULL") != NULL;
    if (!about_null || not_given[op->save] == NULL) return;
    char text[LG_ERROR_TEXT];
    luge_error_take(text, sizeof text - 192);
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "; the backward of %.32s is given %s", op->name, not_given[op->save]);
    lg_fail_raw(LUGE_ERR_ARGUMENT, text);
}

static luge_status backward(lg_grad_call *g)
{
    const custom_attrs *a = g->attrs;
    const bool saved = (a->custom->save & LUGE_SAVE_INPUTS) != 0;
    luge_tensor **inputs = as_given(g->n_in, g->in), **grads = as_given(g->n_in, g->in);
    luge_status status = inputs != NULL && grads != NULL ? LUGE_OK : lg_error();
    if (status == LUGE_OK) {
        for (int i = 0; i < g->n_in; ++i) {
            grads[i] = luge_none();
            if (!saved) inputs[i] = NULL;
        }
        const luge_call c = {.inputs = {inputs, g->n_in}, .output = g->out[0], .attrs = a->user};
        a->custom->backward(&c, g->grad_out[0], grads);
        explain_missing(a->custom);
        status = lg_error();
    }
    for (int i = 0; i < g->n_in && status == LUGE_OK; ++i)
        if (g->needs[i]) status = take_gradient(g, i, grads[i]);
    lg_free(inputs);
    lg_free(grads);
    return status;
}

/* ---- the call */

static luge_status check(const luge_custom_op *op, luge_list inputs, const void *attrs)
{
    static const char what[] = "luge_custom";
    if (op == NULL || op->name == NULL || op->forward == NULL)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: an op needs a name and a forward", what);
    if (!lg_check_reserved(op->reserved, 4, what)) return lg_error();
    if (op->autocast < LUGE_CAST_KEEP || op->autocast > LUGE_CAST_WIDEST)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: autocast %d is no luge_cast_class", op->name, (int)op->autocast);
    if ((op->save & ~(LUGE_SAVE_INPUTS | LUGE_SAVE_OUTPUT)) != 0)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: save has bits that are no LUGE_SAVE_...", op->name);
    if (attrs == NULL && op->attrs_size > 0)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: attrs is NULL, but attrs_size is %zu", op->name, op->attrs_size);
    if (op->attrs_size > SIZE_MAX / 2)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: attrs_size is out of range", op->name);
    if (inputs.count < 1 || inputs.items == NULL)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: there are no inputs", op->name);
    return LUGE_OK;
}

static lg_op describe(const luge_custom_op *op)
{
    const uint32_t reads = ((op->save & LUGE_SAVE_INPUTS) ? LG_IN(0) : 0) | ((op->save & LUGE_SAVE_OUTPUT) ? LG_OUT(0) : 0);
    return (lg_op){.name = op->name,
                   .n_in = -1,
                   .n_out = 1,
                   .optional = UINT32_MAX,
                   .reads = {reads},
                   .cast = op->autocast,
                   .flags = op->backward == NULL ? LG_NO_GRAD : 0,
                   .infer = forward,
                   .backward = op->backward == NULL ? NULL : backward};
}

luge_tensor *luge_custom(const luge_custom_op *op, luge_list inputs, const void *attrs)
{
    if (!lg_ok() || check(op, inputs, attrs) != LUGE_OK) return NULL;
    const size_t bytes = sizeof(custom_attrs) + op->attrs_size;
    custom_attrs *a = lg_alloc(bytes);
    if (a == NULL) return NULL;
    *a = (custom_attrs){.op = describe(op), .custom = op};
    if (op->attrs_size > 0) memcpy(a->user, attrs, op->attrs_size);
    lg_call call;
    call.op = &a->op;
    call.attrs = a;
    call.attrs_size = bytes;
    call.n_in = inputs.count;
    call.n_out = 1;
    call.in_place = false;
    call.site = LG_SITE;
    luge_tensor *y = lg_perform(&call, inputs.items) == LUGE_OK ? call.out[0] : NULL;
    lg_free(a);
    return lg_borrow(y);
}
