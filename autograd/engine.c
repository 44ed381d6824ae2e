/* Backward: collects the nodes below the outputs, then runs them, the newest first. Nodes are numbered
 * as they are made, after those of their inputs, so this order has every gradient complete when its
 * node's turn comes, and is the same in every run. Nothing here recurses. */
#include "autograd/engine.h"
#include <luge/scope.h>
#include "autograd/anomaly.h"
#include "autograd/hooks.h"
#include "core/alloc.h"
#include "core/profile.h"
#include "core/services.h"
#include "core/thread.h"

bool lg_reserve(void **array, int64_t *cap, int64_t count, size_t entry)
{
    if (count < *cap) return true;
    const int64_t more = *cap < 64 ? 64 : *cap * 2;
    void *bigger = lg_resize(*array, (size_t)more * entry);
    if (bigger == NULL) return false;
    *array = bigger;
    *cap = more;
    return true;
}

/* ---- collecting: a heap gives the newest node that was met and not taken yet */

static void sift_up(lg_node **heap, int64_t at, lg_node *n)
{
    while (at > 0 && heap[(at - 1) / 2]->sequence < n->sequence) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = n;
}

static lg_node *take_newest(lg_backward *b)
{
    lg_node **heap = b->heap, *newest = heap[0], *last = heap[--b->n_heap];
    int64_t at = 0, child;
    while ((child = 2 * at + 1) < b->n_heap) {
        if (child + 1 < b->n_heap && heap[child + 1]->sequence > heap[child]->sequence) ++child;
        if (heap[child]->sequence < last->sequence) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return newest;
}

static bool is_claimed(const lg_backward *b, const lg_node *n)
{
    return atomic_load_explicit(&n->run, memory_order_relaxed) == (const void *)b;
}

/* Claims a node that is met for the first time and puts it on the heap. */
static luge_status meet(lg_backward *b, lg_node *n)
{
    if (n->sequence < b->oldest || is_claimed(b, n)) return LUGE_OK;
    if (!lg_reserve((void **)&b->heap, &b->cap_heap, b->n_heap, sizeof *b->heap)) return lg_error();
    void *nobody = NULL;
    if (!atomic_compare_exchange_strong_explicit(&n->run, &nobody, b, memory_order_acquire, memory_order_relaxed))
        return lg_fail(LUGE_ERR_STATE, "%s: another backward is just running through this part of the graph", n->op->name);
    n->wanted = !b->selective;
    n->capture = 0;
    if (n->n_in + n->n_out > b->most) b->most = n->n_in + n->n_out;
    sift_up(b->heap, b->n_heap++, n);
    return LUGE_OK;
}

static luge_status check_not_freed(const lg_node *n)
{
    char where[LG_SITE_TEXT];
    if (!n->freed) return LUGE_OK;
    return lg_fail(LUGE_ERR_GRAPH,
                   "%s: this part of the graph was freed by an earlier backward; give that one retain_graph to go "
                   "through it again%s",
                   n->op->name, lg_site_text(where, n->site, n->line));
}

/* Whether a gradient is wanted at the end of an edge. */
static bool leads_on(const lg_backward *b, const lg_edge *e)
{
    if (!b->selective) return e->node != NULL || e->leaf != NULL;
    if (e->leaf != NULL) return lg_leaf_find(b, e->leaf) >= 0;
    return e->node != NULL && is_claimed(b, e->node) && (e->node->wanted || (e->node->capture >> e->output & 1));
}

static void mark_captures(lg_backward *b)
{
    for (int c = 0; c < b->n_capture; ++c) {
        const luge_tensor *of = b->capture[c].of;
        if (of->node == NULL || !is_claimed(b, of->node)) continue;
        of->node->capture |= (uint8_t)(1u << of->node_output);
        b->capture[c].reached = true;
    }
}

static void mark_leaves(lg_backward *b, const lg_node *n)
{
    for (int e = 0; e < n->n_in; ++e) {
        const int slot = n->edge[e].leaf != NULL ? lg_leaf_find(b, n->edge[e].leaf) : -1;
        if (slot >= 0) b->leaf[slot].reached = true;
    }
}

/* Oldest first: a node is wanted if any of its edges leads to a capture. */
static luge_status select_nodes(lg_backward *b)
{
    mark_captures(b);
    luge_status status = LUGE_OK;
    for (int64_t i = b->n_order - 1; i >= 0 && status == LUGE_OK; --i) {
        lg_node *n = b->order[i];
        mark_leaves(b, n);
        for (int e = 0; e < n->n_in && !n->wanted; ++e) n->wanted = leads_on(b, &n->edge[e]);
        if (n->wanted) status = check_not_freed(n);
    }
    return status;
}

static luge_status make_room(lg_backward *b)
{
    const size_t most = (size_t)(b->most > 0 ? b->most : 1);
    b->tensors = lg_alloc(2 * most * sizeof *b->tensors);
    b->needs = lg_alloc(most * sizeof *b->needs);
    return b->tensors != NULL && b->needs != NULL ? LUGE_OK : lg_error();
}

luge_status lg_backward_collect(lg_backward *b, luge_list outputs)
{
    luge_status status = LUGE_OK;
    for (int i = 0; i < outputs.count && status == LUGE_OK; ++i)
        if (outputs.items[i]->node != NULL) status = meet(b, outputs.items[i]->node);
    while (b->n_heap > 0 && status == LUGE_OK) {
        if (!lg_reserve((void **)&b->order, &b->cap_order, b->n_order, sizeof *b->order)) return lg_error();
        lg_node *n = b->order[b->n_order++] = take_newest(b);
        if (!b->selective) status = check_not_freed(n);
        for (int e = 0; e < n->n_in && status == LUGE_OK; ++e)
            if (n->edge[e].node != NULL) status = meet(b, n->edge[e].node);
    }
    if (status == LUGE_OK && b->selective) status = select_nodes(b);
    return status == LUGE_OK ? make_room(b) : status;
}

/* ---- gradients on their way */

bool lg_is_ours(const luge_tensor *t)
{
    return atomic_load_explicit(&t->refs, memory_order_acquire) == 1 &&
           atomic_load_explicit(&t->storage->refs, memory_order_acquire) == 1 &&
           t->storage->bytes == (size_t)t->numel * lg_element_size(t) && t->storage->release == NULL &&
           lg_strides_are_dense(&t->shape, t->stride);
}

luge_status lg_accumulate(const lg_backward *b, luge_tensor **slot, luge_tensor *grad)
{
    if (*slot == NULL) {
        *slot = luge_retain(grad);
        return LUGE_OK;
    }
    if (!b->create_graph && lg_is_ours(*slot)) return lg_service.add_in_place(*slot, grad) != NULL ? LUGE_OK : lg_error();
    luge_tensor *sum = lg_service.add(*slot, grad);
    if (sum == NULL) return lg_error();
    luge_retain(sum);
    luge_release(*slot);
    *slot = sum;
    return LUGE_OK;
}

static luge_status arrive(lg_backward *b, const lg_edge *e, luge_tensor *grad)
{
    if (e->node != NULL) return lg_accumulate(b, &e->node->grad[e->output], grad);
    lg_leaf_slot *slot = lg_leaf_slot_of(b, e->leaf);
    return slot != NULL ? lg_accumulate(b, &slot->grad, grad) : lg_error();
}

luge_status lg_backward_seed(lg_backward *b, luge_tensor *output, luge_tensor *grad)
{
    const lg_edge e = {.node = output->node, .leaf = output->node == NULL ? output : NULL, .output = output->node_output};
    const int slot = b->selective && e.leaf != NULL ? lg_leaf_find(b, e.leaf) : -1;
    if (b->selective && e.leaf != NULL && slot < 0) return LUGE_OK;
    if (slot >= 0) b->leaf[slot].reached = true;
    if (e.node != NULL && !is_claimed(b, e.node)) return LUGE_OK; /* older than all that is asked for */
    return arrive(b, &e, grad);
}

/* Whether summing axes of `grad` can give `shape`. */
static bool was_broadcast(const luge_shape *grad, const luge_shape *shape)
{
    luge_shape wide = *shape;
    return lg_broadcast(&wide, grad) && lg_shape_equal(&wide, grad);
}

/* Sends the gradient of input i on: in the input's shape and dtype. */
static luge_status deliver(lg_backward *b, const lg_node *n, int i, luge_tensor *grad)
{
    const luge_shape *shape = &n->in_shape[i];
    if (!lg_shape_equal(&grad->shape, shape)) {
        char is[LG_SHAPE_TEXT], should[LG_SHAPE_TEXT];
        if (!was_broadcast(&grad->shape, shape))
            return lg_fail(LUGE_ERR_SHAPE, "%s: its backward gave %s for the gradient of input %d, which is %s",
                           n->op->name, lg_shape_text(is, &grad->shape), i, lg_shape_text(should, shape));
        grad = lg_service.sum_to(grad, shape);
    }
    if (grad != NULL && grad->dtype != n->in_dtype[i]) grad = lg_service.cast(grad, n->in_dtype[i]);
    return grad != NULL ? arrive(b, &n->edge[i], grad) : lg_error();
}

/* ---- running a node */

/* Saved tensors as parts of the graph again, for gradients that will be differentiated. */
static luge_status reconnect(const lg_node *n, luge_tensor **saved)
{
    for (int i = 0; i < n->n_in + n->n_out; ++i) {
        luge_tensor *t = saved[i];
        const bool is_output = i >= n->n_in;
        lg_node *maker = is_output ? (lg_node *)n : n->edge[i].node;
        if (t == NULL || maker == NULL || !lg_is_float(t->dtype)) continue;
        saved[i] = lg_borrow(lg_tensor_alias(t));
        if (saved[i] == NULL) return lg_error();
        lg_node_attach(saved[i], maker, is_output ? i - n->n_in : n->edge[i].output);
    }
    return LUGE_OK;
}

static luge_status call_backward(lg_backward *b, lg_node *n, luge_tensor **grad_in)
{
    const lg_op *op = n->op;
    luge_status (*backward)(lg_grad_call *) =
        !b->create_graph && op->backward_fused != NULL ? op->backward_fused : op->backward;
    if (backward == NULL)
        return lg_fail(LUGE_ERR_UNSUPPORTED, "%s: %s", op->name,
                       b->create_graph ? "its gradient cannot be differentiated" : "it has no gradient");
    luge_status status = lg_node_check_saved(n);
    luge_tensor **saved = b->tensors + b->most;
    for (int i = 0; i < n->n_in + n->n_out; ++i) saved[i] = n->saved[i].tensor;
    if (status == LUGE_OK && b->create_graph) status = reconnect(n, saved);
    if (status != LUGE_OK) return status;

    for (int i = 0; i < n->n_in; ++i) b->needs[i] = leads_on(b, &n->edge[i]);
    lg_grad_call g = {.op = op,
                      .attrs = n->attrs,
                      .n_in = n->n_in,
                      .n_out = n->n_out,
                      .in = saved,
                      .out = saved + n->n_in,
                      .in_shape = n->in_shape,
                      .in_dtype = n->in_dtype,
                      .grad_out = n->grad,
                      .grad_in = grad_in,
                      .needs = b->needs};
    status = backward(&g);
    return status == LUGE_OK ? lg_error() : status;
}

/* "; forward: step.net.fc1: linear of [64, 3] f32, [8, 3] f32" */
static void describe_forward(char *text, size_t size, const lg_node *n)
{
    char shape[LG_SHAPE_TEXT];
    const bool has_path = n->path != NULL && n->path[0] != '\0';
    int used = snprintf(text, size, "; forward: %s%s%s of", has_path ? n->path : "", has_path ? ": " : "", n->op->name);
    for (int i = 0; i < n->n_in && used > 0 && (size_t)used < size; ++i)
        used += snprintf(text + used, size - (size_t)used, "%s %s %s", i > 0 ? "," : "", lg_shape_text(shape, &n->in_shape[i]),
                         luge_dtype_name(n->in_dtype[i]));
}

static luge_status check_gradients(const lg_node *n, luge_tensor *const *grad_in)
{
    char who[96], forward[LG_ERROR_TEXT / 2];
    luge_status status = LUGE_OK;
    describe_forward(forward, sizeof forward, n);
    for (int i = 0; i < n->n_in && status == LUGE_OK; ++i) {
        if (grad_in[i] == NULL) continue;
        snprintf(who, sizeof who, "the gradient of input %d", i);
        status = lg_check_finite(grad_in[i], who, forward, n->site, n->line);
    }
    return status;
}

static luge_status run_backward(lg_backward *b, lg_node *n)
{
    if (n->op->flags & LG_NO_GRAD) return LUGE_OK; /* written in place: nothing flows past it */
    luge_tensor **grad_in = b->tensors;
    for (int i = 0; i < n->n_in; ++i) grad_in[i] = NULL;
    luge_status status = call_backward(b, n, grad_in);
    if (status == LUGE_OK && b->anomaly) status = check_gradients(n, grad_in);
    for (int i = 0; i < n->n_in && status == LUGE_OK; ++i)
        if (b->needs[i] && grad_in[i] != NULL) status = deliver(b, n, i, grad_in[i]);
    return status;
}

static void take_captures(lg_backward *b, const lg_node *n)
{
    for (int c = 0; c < b->n_capture; ++c) {
        lg_capture *capture = &b->capture[c];
        if (capture->of->node != n || n->grad[capture->of->node_output] == NULL) continue;
        capture->grad = luge_retain(n->grad[capture->of->node_output]);
    }
}

static luge_status run_node(lg_backward *b, lg_node *n)
{
    luge_scope scope = luge_scope_enter(n->op->name);
    if (lg_is_profiled(lg_self())) lg_profile_mark_node();
    luge_status status = lg_error();
    for (int k = 0; k < n->n_out && n->hooks != NULL && status == LUGE_OK; ++k)
        if (n->grad[k] != NULL) status = lg_hooks_on_grad(n->hooks, k, &n->grad[k]);
    if (status == LUGE_OK && n->capture != 0) take_captures(b, n);
    if (status == LUGE_OK && n->wanted) status = run_backward(b, n);
    luge_scope_exit(scope, NULL);
    return status;
}

static void drop_gradients(lg_node *n)
{
    for (int k = 0; k < n->n_out; ++k) {
        luge_release(n->grad[k]);
        n->grad[k] = NULL;
    }
}

luge_status lg_backward_run(lg_backward *b)
{
    luge_status status = LUGE_OK;
    for (int64_t i = 0; i < b->n_order && status == LUGE_OK; ++i) {
        lg_node *n = b->order[i];
        bool any = false;
        for (int k = 0; k < n->n_out; ++k) any = any || n->grad[k] != NULL;
        if (any && (n->wanted || n->capture != 0)) status = run_node(b, n);
        drop_gradients(n);
        if (n->wanted && !b->retain_graph && status == LUGE_OK) lg_node_drop_saved(n);
    }
    return status;
}

static void give_up_claims(lg_node **nodes, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        drop_gradients(nodes[i]);
        atomic_store_explicit(&nodes[i]->run, NULL, memory_order_release);
    }
}

void lg_backward_close(lg_backward *b)
{
    give_up_claims(b->order, b->n_order);
    give_up_claims(b->heap, b->n_heap);
    b->n_order = b->n_heap = 0;
    for (int i = 0; i < b->n_leaf; ++i) {
        luge_release(b->leaf[i].grad);
        luge_release(b->leaf[i].leaf);
    }
    b->n_leaf = 0;
    lg_free(b->heap);
    lg_free(b->order);
    lg_free(b->leaf);
    lg_free(b->tensors);
    lg_free(b->needs);
}
