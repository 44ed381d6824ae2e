/* Leaves in backward. Their gradients are staged until the whole graph has run, so that a backward
 * that fails leaves them as they were. */
#include "autograd/engine.h"
#include <luge/scope.h>
#include "autograd/hooks.h"
#include "core/services.h"
#include "core/thread.h"

/* A leaf's `stage` is a guess at its slot: right if that slot holds this leaf. So nothing has to be
 * cleaned up, and no map is needed. */
int lg_leaf_find(const lg_backward *b, const luge_tensor *leaf)
{
    const int guess = atomic_load_explicit(&leaf->stage, memory_order_relaxed);
    return guess >= 0 && guess < b->n_leaf && b->leaf[guess].leaf == leaf ? guess : -1;
}

lg_leaf_slot *lg_leaf_slot_of(lg_backward *b, luge_tensor *leaf)
{
    const int found = lg_leaf_find(b, leaf);
    if (found >= 0) return &b->leaf[found];
    int64_t cap = b->cap_leaf;
    if (!lg_reserve((void **)&b->leaf, &cap, b->n_leaf, sizeof *b->leaf)) return NULL;
    b->cap_leaf = (int)cap;
    atomic_store_explicit(&leaf->stage, b->n_leaf, memory_order_relaxed);
    lg_leaf_slot *slot = &b->leaf[b->n_leaf++];
    *slot = (lg_leaf_slot){.leaf = luge_retain(leaf)};
    return slot;
}

/* Gradients lie in memory as their leaf does, so that optimizers walk both in one line. */
static bool lies_like(const luge_tensor *grad, const luge_tensor *leaf)
{
    if (!lg_strides_are_dense(&leaf->shape, leaf->stride)) return lg_is_contiguous(grad);
    for (int i = 0; i < leaf->shape.rank; ++i)
        if (leaf->shape.dim[i] > 1 && leaf->stride[i] != grad->stride[i]) return false;
    return true;
}

static luge_tensor *copy_like(const luge_tensor *leaf, luge_tensor *grad)
{
    const bool dense = lg_strides_are_dense(&leaf->shape, leaf->stride);
    luge_tensor *copy = lg_borrow(
        lg_tensor_create(leaf->storage->device, grad->dtype, &leaf->shape, dense ? leaf->stride : NULL));
    return copy != NULL ? lg_service.copy(copy, grad) : NULL;
}

static luge_status check_leaf(const luge_tensor *leaf, const luge_tensor *grad)
{
    char is[LG_SHAPE_TEXT], should[LG_SHAPE_TEXT];
    if (lg_shape_equal(&grad->shape, &leaf->shape) && grad->storage->device == leaf->storage->device) return LUGE_OK;
    return lg_fail(LUGE_ERR_GRAPH,
                   "a leaf is now %s, its gradient %s: it was moved or loaded anew between forward and backward",
                   lg_shape_text(should, &leaf->shape), lg_shape_text(is, &grad->shape));
}

/* The tensor that commit will assign, or add to what is there. Borrowed from the scope, or grad itself. */
static luge_tensor *ready(const lg_backward *b, lg_leaf_slot *slot)
{
    luge_tensor *leaf = slot->leaf, *grad = slot->grad, *has = leaf->grad;
    const luge_dtype dtype = has != NULL ? has->dtype : leaf->dtype;
    slot->add_in_place = has != NULL && !b->create_graph;
    if (grad->dtype != dtype) {
        grad = lg_service.cast(grad, dtype);
        if (grad == NULL) return NULL;
    }
    if (has != NULL && b->create_graph) return lg_service.add(has, grad);
    if (has != NULL) return grad->storage == has->storage ? copy_like(leaf, grad) : grad;
    if (grad == slot->grad && lg_is_ours(grad) && lies_like(grad, leaf)) return grad;
    return b->create_graph ? lg_service.clone(grad) : copy_like(leaf, grad);
}

luge_status lg_leaves_prepare(lg_backward *b)
{
    luge_status status = LUGE_OK;
    for (int i = 0; i < b->n_leaf && status == LUGE_OK; ++i) {
        lg_leaf_slot *slot = &b->leaf[i];
        if (slot->grad == NULL) continue;
        status = check_leaf(slot->leaf, slot->grad);
        if (status == LUGE_OK) status = lg_hooks_on_grad(slot->leaf->hooks, 0, &slot->grad);
        if (status != LUGE_OK || b->selective) continue;
        luge_tensor *grad = ready(b, slot);
        if (grad == NULL) return lg_error();
        if (grad == slot->grad) continue;
        luge_retain(grad);
        luge_release(slot->grad);
        slot->grad = grad;
    }
    return status;
}

/* Sums first: only they could still fail. */
luge_status lg_leaves_commit(lg_backward *b)
{
    for (int i = 0; i < b->n_leaf; ++i) {
        const lg_leaf_slot *slot = &b->leaf[i];
        if (slot->grad != NULL && slot->add_in_place && lg_service.add_in_place(slot->leaf->grad, slot->grad) == NULL)
            return lg_error();
    }
    for (int i = 0; i < b->n_leaf; ++i) {
        lg_leaf_slot *slot = &b->leaf[i];
        if (slot->grad == NULL || slot->add_in_place) continue;
        luge_tensor *old = slot->leaf->grad;
        slot->leaf->grad = slot->grad;
        slot->grad = NULL;
        luge_release(old);
    }
    return LUGE_OK;
}
