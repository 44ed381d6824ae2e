/* What users call: marking leaves, backward, gradients of some tensors for others. */
#include <luge/autograd.h>
#include <luge/scope.h>
#include "autograd/engine.h"
#include "autograd/hooks.h"
#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"

void lg_register_autograd(void)
{
    lg_service.node_release = lg_node_release;
    lg_service.hooks_free = lg_hooks_free;
}

luge_tensor *luge_requires_grad_(luge_tensor *t)
{
    if (!lg_ok() || !lg_check_tensor(t, "luge_requires_grad_")) return NULL;
    if (!lg_is_float(t->dtype)) {
        lg_fail(LUGE_ERR_DTYPE, "luge_requires_grad_: only floats have gradients, not %s", luge_dtype_name(t->dtype));
        return NULL;
    }
    lg_set_requires_grad(t, true);
    return t;
}

luge_tensor *luge_detach(luge_tensor *t)
{
    if (!lg_ok() || !lg_check_tensor(t, "luge_detach")) return NULL;
    return lg_borrow(lg_tensor_alias(t));
}

/* ---- checks */

static luge_status check_options(const luge_backward_options *o, const char *what)
{
    if (!lg_check_reserved(o->reserved, 4, what)) return lg_error();
    return o->gradient == NULL || lg_check_tensor(o->gradient, what) ? LUGE_OK : lg_error();
}

static luge_status check_output(luge_tensor *output, const luge_tensor *gradient, const char *what)
{
    char is[LG_SHAPE_TEXT], should[LG_SHAPE_TEXT];
    if (!lg_check_tensor(output, what)) return lg_error();
    if (!output->requires_grad)
        return lg_fail(LUGE_ERR_GRAPH,
                       "%s: the output does not require a gradient: nothing that it was made from does, or it was made "
                       "in a no-grad region",
                       what);
    if (gradient == NULL && output->numel != 1)
        return lg_fail(LUGE_ERR_SHAPE, "%s: the output is %s; without a gradient of it in the options it has to be one "
                                       "element, a sum or a mean",
                       what, lg_shape_text(is, &output->shape));
    if (gradient == NULL) return LUGE_OK;
    if (!lg_shape_equal(&gradient->shape, &output->shape))
        return lg_fail(LUGE_ERR_SHAPE, "%s: the gradient in the options is %s, the output %s", what,
                       lg_shape_text(is, &gradient->shape), lg_shape_text(should, &output->shape));
    if (!lg_is_float(gradient->dtype))
        return lg_fail(LUGE_ERR_DTYPE, "%s: the gradient in the options is %s, not a float", what,
                       luge_dtype_name(gradient->dtype));
    if (gradient->storage->device != output->storage->device)
        return lg_fail(LUGE_ERR_DEVICE, "%s: the gradient in the options is on another device than the output", what);
    return LUGE_OK;
}

static luge_status check_outputs(luge_list outputs, const luge_backward_options *o, const char *what)
{
    if (outputs.count < 1 || outputs.items == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: there are no outputs", what);
    if (outputs.count > 1 && o->gradient != NULL)
        return lg_fail(LUGE_ERR_ARGUMENT, "%s: a gradient in the options belongs to one output, not to %d", what,
                       outputs.count);
    luge_status status = LUGE_OK;
    for (int i = 0; i < outputs.count && status == LUGE_OK; ++i)
        status = check_output(outputs.items[i], o->gradient, what);
    return status;
}

/* ---- running */

/* What backward runs under, until its scope closes: whatever the forward had, which is recorded in the
 * graph, does not count twice. */
static void set_modes(lg_backward *b)
{
    lg_modes *modes = &lg_self()->modes;
    b->anomaly = modes->anomaly;
    *modes = (lg_modes){.no_grad = !b->create_graph, .anomaly = false, .lines = modes->lines, .low = LUGE_F32};
}

static luge_status seed(lg_backward *b, luge_tensor *output, luge_tensor *gradient)
{
    luge_tensor *grad = gradient;
    if (grad == NULL) {
        const luge_tensor_options like = {.dtype = output->dtype, .device = output->storage->device->id};
        grad = lg_service.full(output->shape, 1, &like);
    } else if (grad->dtype != output->dtype) {
        grad = lg_service.cast(grad, output->dtype);
    }
    return grad != NULL ? lg_backward_seed(b, output, grad) : lg_error();
}

static luge_status go_through(lg_backward *b, luge_list outputs, const luge_backward_options *o)
{
    set_modes(b);
    luge_status status = lg_backward_collect(b, outputs);
    for (int i = 0; i < outputs.count && status == LUGE_OK; ++i) status = seed(b, outputs.items[i], o->gradient);
    if (status == LUGE_OK) status = lg_backward_run(b);
    if (status == LUGE_OK) status = lg_leaves_prepare(b);
    return status;
}

/* Leaf hooks see a finished backward: they may even start another. After an error none is called. */
static luge_status tell_leaves(luge_tensor **leaf, int n)
{
    for (int i = 0; i < n; ++i) {
        lg_hooks_on_leaf(leaf[i]);
        luge_release(leaf[i]);
    }
    lg_free(leaf);
    return lg_error();
}

/* The leaves with hooks, retained; their number is written to *n. */
static luge_status find_hooked(const lg_backward *b, luge_tensor ***leaf, int *n)
{
    *leaf = NULL;
    *n = 0;
    int hooked = 0;
    for (int i = 0; i < b->n_leaf; ++i) hooked += b->leaf[i].grad != NULL && b->leaf[i].leaf->hooks != NULL;
    if (hooked == 0) return LUGE_OK;
    *leaf = lg_alloc((size_t)hooked * sizeof **leaf);
    if (*leaf == NULL) return lg_error();
    for (int i = 0; i < b->n_leaf; ++i)
        if (b->leaf[i].grad != NULL && b->leaf[i].leaf->hooks != NULL) (*leaf)[(*n)++] = luge_retain(b->leaf[i].leaf);
    return LUGE_OK;
}

static luge_status backward(luge_tensor *output, const luge_backward_options *options, const char *what)
{
    const luge_backward_options o = options != NULL ? *options : (luge_backward_options){0};
    const luge_list outputs = {&output, 1};
    if (!lg_ok()) return lg_error();
    luge_status status = check_options(&o, what);
    if (status == LUGE_OK) status = check_outputs(outputs, &o, what);
    if (status != LUGE_OK) return status;

    lg_backward b = {.create_graph = o.create_graph, .retain_graph = o.retain_graph || o.create_graph};
    luge_tensor **hooked = NULL;
    int n_hooked = 0;
    luge_scope scope = luge_scope_enter("backward");
    if (!lg_ok()) return lg_error();
    luge_retain(output); /* holds the graph, whatever hooks release */
    status = go_through(&b, outputs, &o);
    if (status == LUGE_OK) status = find_hooked(&b, &hooked, &n_hooked);
    if (status == LUGE_OK) status = lg_leaves_commit(&b);
    lg_backward_close(&b);
    const luge_status told = tell_leaves(hooked, n_hooked);
    luge_release(output);
    luge_scope_exit(scope, NULL);
    return status == LUGE_OK ? told : status;
}

luge_status luge_backward_with(luge_tensor *output, const luge_backward_options *options)
{
    return backward(output, options, "luge_backward_with");
}

luge_status luge_backward(luge_tensor *loss)
{
    return backward(loss, NULL, "luge_backward");
}

/* ---- gradients as results */

/* What the caller gets: a tensor of its own, zero where the graph was reached but nothing came. */
static luge_tensor *result_of(const lg_backward *b, const lg_capture *c)
{
    const luge_tensor *of = c->of;
    const luge_tensor_options like = {.dtype = of->dtype, .device = of->storage->device->id};
    if (!c->reached) return luge_none();
    if (c->grad == NULL) return lg_service.full(of->shape, 0, &like);
    return b->create_graph || lg_is_ours(c->grad) ? c->grad : lg_service.clone(c->grad);
}

/* Replaces every capture's gradient by the one to hand out. */
static luge_status finish_captures(lg_backward *b)
{
    for (int i = 0; i < b->n_capture; ++i) {
        lg_capture *c = &b->capture[i];
        const int leaf = c->of->node == NULL ? lg_leaf_find(b, c->of) : -1;
        if (leaf < 0) continue;
        c->reached = b->leaf[leaf].reached;
        c->grad = luge_retain(b->leaf[leaf].grad);
    }
    for (int i = 0; i < b->n_leaf; ++i) { /* their references would make every gradient look shared */
        luge_release(b->leaf[i].grad);
        b->leaf[i].grad = NULL;
    }
    for (int i = 0; i < b->n_capture; ++i) {
        lg_capture *c = &b->capture[i];
        luge_tensor *result = luge_retain(result_of(b, c));
        if (result == NULL) return lg_error();
        luge_release(c->grad);
        c->grad = result;
    }
    return LUGE_OK;
}

/* A slot for every leaf asked for, and the age below which nothing is. */
static luge_status ask_for(lg_backward *b, luge_list inputs)
{
    b->oldest = UINT64_MAX;
    for (int i = 0; i < inputs.count; ++i) {
        luge_tensor *t = inputs.items[i];
        b->capture[i] = (lg_capture){.of = luge_retain(t)};
        b->n_capture = i + 1;
        if (!t->requires_grad) continue;
        const uint64_t age = t->node != NULL ? t->node->sequence : 0;
        if (age < b->oldest) b->oldest = age;
        if (t->node == NULL && lg_leaf_slot_of(b, t) == NULL) return lg_error();
    }
    return LUGE_OK;
}

static luge_status run_grad(lg_backward *b, luge_list outputs, luge_list inputs, const luge_backward_options *o)
{
    luge_status status = ask_for(b, inputs);
    if (status == LUGE_OK) status = go_through(b, outputs, o);
    return status == LUGE_OK ? finish_captures(b) : status;
}

static luge_status check_inputs(luge_list inputs, luge_tensor **grads, const char *what)
{
    if (grads == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: there is no room for the gradients", what);
    for (int i = 0; i < inputs.count; ++i) grads[i] = NULL;
    if (!lg_ok()) return lg_error();
    if (inputs.count < 1 || inputs.items == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "%s: there are no inputs", what);
    for (int i = 0; i < inputs.count; ++i)
        if (!lg_check_tensor(inputs.items[i], what)) return lg_error();
    return LUGE_OK;
}

static luge_status grad_list(luge_list outputs, luge_list inputs, luge_tensor **grads,
                             const luge_backward_options *options, const char *what)
{
    const luge_backward_options o = options != NULL ? *options : (luge_backward_options){0};
    luge_status status = check_inputs(inputs, grads, what);
    if (status == LUGE_OK) status = check_options(&o, what);
    if (status == LUGE_OK) status = check_outputs(outputs, &o, what);
    if (status != LUGE_OK) return status;

    lg_backward b = {.create_graph = o.create_graph, .retain_graph = o.retain_graph || o.create_graph, .selective = true};
    b.capture = lg_alloc((size_t)inputs.count * sizeof *b.capture);
    if (b.capture == NULL) return lg_error();
    luge_scope scope = luge_scope_enter("grad");
    status = lg_error();
    if (status == LUGE_OK) status = run_grad(&b, outputs, inputs, &o);
    lg_backward_close(&b);
    luge_scope_exit(scope, NULL);
    for (int i = 0; i < b.n_capture; ++i) {
        luge_release(b.capture[i].of);
        if (status != LUGE_OK)
            luge_release(b.capture[i].grad);
        else
            grads[i] = lg_is_none(b.capture[i].grad) ? luge_none() : lg_borrow(b.capture[i].grad);
    }
    lg_free(b.capture);
    if (!lg_ok())
        for (int i = 0; i < inputs.count; ++i) grads[i] = NULL;
    return lg_error();
}

luge_status luge_grad_list(luge_list outputs, luge_list inputs, luge_tensor **grads,
                           const luge_backward_options *options)
{
    return grad_list(outputs, inputs, grads, options, "luge_grad_list");
}

luge_tensor *luge_grad(luge_tensor *output, luge_tensor *input, const luge_backward_options *options)
{
    luge_tensor *grad = NULL;
    const luge_status status = grad_list((luge_list){&output, 1}, (luge_list){&input, 1}, &grad, options, "luge_grad");
    if (status == LUGE_OK && lg_is_none(grad)) {
        lg_fail(LUGE_ERR_GRAPH, "luge_grad: the output does not depend on the input");
        return NULL;
    }
    return grad;
}
