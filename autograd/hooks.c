/* Adding hooks and running them. */
#include "autograd/hooks.h"
#include <luge/scope.h>
#include "autograd/node.h"
#include "core/alloc.h"
#include "core/thread.h"

static luge_status add(luge_tensor *t, lg_hooks hook)
{
    lg_hooks *h = lg_alloc(sizeof *h);
    if (h == NULL) return lg_error();
    *h = hook;
    lg_hooks **end = t->node != NULL ? &t->node->hooks : &t->hooks;
    while (*end != NULL) end = &(*end)->next;
    *end = h;
    return LUGE_OK;
}

luge_status luge_hook_grad(luge_tensor *t, luge_grad_hook hook, void *user)
{
    if (!lg_ok()) return lg_error();
    if (!lg_check_tensor(t, "luge_hook_grad")) return lg_error();
    if (hook == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "luge_hook_grad: the hook is NULL");
    if (!t->requires_grad)
        return lg_fail(LUGE_ERR_GRAPH, "luge_hook_grad: the tensor does not require a gradient, so there is none to see");
    return add(t, (lg_hooks){.output = t->node_output, .on_grad = hook, .user = user});
}

luge_status luge_hook_accumulated(luge_tensor *leaf, luge_leaf_hook hook, void *user)
{
    if (!lg_ok()) return lg_error();
    if (!lg_check_tensor(leaf, "luge_hook_accumulated")) return lg_error();
    if (hook == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "luge_hook_accumulated: the hook is NULL");
    if (!leaf->requires_grad || leaf->node != NULL)
        return lg_fail(LUGE_ERR_GRAPH, "luge_hook_accumulated: the tensor is not a leaf that requires a gradient; "
                                       "luge_hook_grad sees those of others");
    return add(leaf, (lg_hooks){.on_leaf = hook, .user = user});
}

/* Puts `fresh`, borrowed from the scope, in the place of *grad. */
static luge_status replace(luge_tensor **grad, luge_tensor *fresh)
{
    if (fresh == *grad) return LUGE_OK;
    if (fresh == NULL) return lg_fail(LUGE_ERR_CALLBACK, "a gradient hook returned NULL without an error");
    char is[LG_SHAPE_TEXT], should[LG_SHAPE_TEXT];
    if (!lg_check_tensor(fresh, "a gradient hook's result")) return lg_error();
    if (!lg_shape_equal(&fresh->shape, &(*grad)->shape) || fresh->dtype != (*grad)->dtype)
        return lg_fail(LUGE_ERR_SHAPE, "a gradient hook returned %s %s for a gradient of %s %s",
                       lg_shape_text(is, &fresh->shape), luge_dtype_name(fresh->dtype),
                       lg_shape_text(should, &(*grad)->shape), luge_dtype_name((*grad)->dtype));
    if (fresh->storage->device != (*grad)->storage->device)
        return lg_fail(LUGE_ERR_DEVICE, "a gradient hook returned a tensor of another device");
    luge_retain(fresh);
    luge_release(*grad);
    *grad = fresh;
    return LUGE_OK;
}

luge_status lg_hooks_on_grad(const lg_hooks *list, int output, luge_tensor **grad)
{
    luge_status status = LUGE_OK;
    for (const lg_hooks *h = list; h != NULL && status == LUGE_OK; h = h->next) {
        if (h->on_grad == NULL || h->output != output) continue;
        luge_tensor *fresh = h->on_grad(*grad, h->user);
        status = lg_ok() ? replace(grad, fresh) : lg_error();
    }
    return status;
}

void lg_hooks_on_leaf(luge_tensor *leaf)
{
    for (const lg_hooks *h = leaf->hooks; h != NULL && lg_ok(); h = h->next)
        if (h->on_leaf != NULL) h->on_leaf(leaf, h->user);
}

void lg_hooks_free(lg_hooks *list)
{
    while (list != NULL) {
        lg_hooks *next = list->next;
        lg_free(list);
        list = next;
    }
}
