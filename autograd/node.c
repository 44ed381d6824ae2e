/* Making, keeping and freeing nodes. */
#include "autograd/node.h"
#include "autograd/anomaly.h"
#include "autograd/hooks.h"
#include "autograd/region.h"
#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"
#include <luge/scope.h>

/* The number of the node made last on this thread. A node from another thread may be newer: see
 * fill_edges. */
static _Thread_local uint64_t last_sequence;

bool lg_wants_graph(int n_in, luge_tensor *const *in)
{
    if (lg_self()->modes.no_grad) return false;
    for (int i = 0; i < n_in; ++i)
        if (in[i] != NULL && in[i]->requires_grad) return true;
    return false;
}

uint32_t lg_record_reads(const lg_call *call)
{
    const lg_op *op = call->op;
    uint32_t reads = 0;
    if (op->flags & LG_NO_GRAD) return 0;
    for (int i = 0; i < call->n_in; ++i)
        if (call->in[i] != NULL && call->in[i]->requires_grad) reads |= op->reads[op->n_in < 0 ? 0 : i];
    return reads;
}

/* ---- making */

static size_t padded(size_t bytes)
{
    return (bytes + 15u) & ~(size_t)15u;
}

/* The block, with its arrays in place and nothing in them. */
static lg_node *create_node(const lg_call *call)
{
    char path[LG_ERROR_TEXT / 4] = "";
    const bool named = lg_self()->modes.anomaly;
    const size_t path_bytes = named ? strlen(lg_scope_path(path, sizeof path)) + 1 : 0;
    const size_t n_in = (size_t)call->n_in, n_all = n_in + (size_t)call->n_out;
    const size_t edges = padded(n_in * sizeof(lg_edge)), shapes = padded(n_in * sizeof(luge_shape)),
                 dtypes = padded(n_in * sizeof(luge_dtype)), saved = padded(n_all * sizeof(lg_saved)),
                 head = padded(sizeof(lg_node));
    char *at = lg_alloc(head + edges + shapes + dtypes + saved + call->attrs_size + path_bytes);
    if (at == NULL) return NULL;

    lg_node *n = (lg_node *)(void *)at;
    *n = (lg_node){.n_in = call->n_in, .n_out = call->n_out, .op = call->op, .site = call->site, .line = call->line};
    atomic_init(&n->refs, 1);
    at += head;
    n->edge = (lg_edge *)(void *)at;
    at += edges;
    n->in_shape = (luge_shape *)(void *)at;
    at += shapes;
    n->in_dtype = (luge_dtype *)(void *)at;
    at += dtypes;
    n->saved = (lg_saved *)(void *)at;
    memset(n->saved, 0, saved);
    at += saved;
    if (call->attrs_size > 0) memcpy(at, call->attrs, call->attrs_size);
    n->attrs = at;
    if (named) n->path = memcpy(at + call->attrs_size, path, path_bytes);
    /* A custom op lies at the start of its attributes, and so in the node that uses it. */
    if (call->op == call->attrs) n->op = n->attrs;
    lg_count_node(1);
    return n;
}

/* The order of nodes is that in which their thread made them, and above all of those they were made
 * from, whichever thread that was. */
static void fill_edges(lg_node *n, const lg_call *call)
{
    n->sequence = last_sequence;
    for (int i = 0; i < n->n_in; ++i) {
        luge_tensor *t = call->in[i];
        n->edge[i] = (lg_edge){0};
        if (t == NULL) {
            n->in_shape[i] = (luge_shape){0};
            n->in_dtype[i] = LUGE_F32;
            continue;
        }
        n->in_shape[i] = t->shape;
        n->in_dtype[i] = t->dtype;
        if (!t->requires_grad) continue;
        if (t->node != NULL) {
            n->edge[i] = (lg_edge){.node = lg_node_retain(t->node), .output = t->node_output};
            if (t->node->sequence > n->sequence) n->sequence = t->node->sequence;
        } else {
            n->edge[i].leaf = luge_retain(t);
        }
    }
    last_sequence = ++n->sequence;
}

bool lg_saved_make(lg_saved *s, luge_tensor *t, bool is_leaf)
{
    s->tensor = is_leaf ? luge_retain(t) : lg_tensor_alias(t);
    s->alias = !is_leaf;
    if (s->tensor == NULL || is_leaf) return s->tensor != NULL;
    atomic_fetch_add_explicit(&t->storage->saved_handles, 1, memory_order_relaxed);
    return true;
}

void lg_saved_stamp(lg_saved *s)
{
    s->storage = s->tensor->storage->id;
    s->version = lg_version(s->tensor);
}

bool lg_saved_is_same(const lg_saved *s)
{
    return s->version == lg_version(s->tensor) && s->storage == s->tensor->storage->id;
}

void lg_saved_share(lg_saved *to, const lg_saved *from)
{
    *to = *from;
    to->absent = false;
    to->again = true;
    if (to->tensor == NULL) return;
    luge_retain(to->tensor);
    if (to->alias) atomic_fetch_add_explicit(&to->tensor->storage->saved_handles, 1, memory_order_relaxed);
}

void lg_saved_drop(lg_saved *s)
{
    luge_tensor *t = s->tensor;
    if (t == NULL) return;
    s->tensor = NULL;
    if (s->alias) atomic_fetch_sub_explicit(&t->storage->saved_handles, 1, memory_order_relaxed);
    luge_release(t);
}

static bool save(lg_node *n, int at, luge_tensor *t, bool is_output)
{
    const bool is_leaf = t->requires_grad && t->node == NULL && !is_output;
    n->saved[at].absent = !is_leaf && n->region != NULL && lg_region_drops(n->region, t);
    return n->saved[at].absent || lg_saved_make(&n->saved[at], t, is_leaf);
}

lg_node *lg_record_prepare(const lg_call *call, luge_tensor *before)
{
    const uint32_t reads = lg_record_reads(call);
    const bool any_count = call->op->n_in < 0;
    lg_node *n = create_node(call);
    if (n == NULL) return NULL;
    fill_edges(n, call);
    if (lg_region_join(n, call, reads) != LUGE_OK) goto fail;
    for (int i = 0; i < n->n_in && reads != 0; ++i) {
        luge_tensor *t = i == 0 && before != NULL ? before : call->in[i];
        if (t == NULL || !(reads & LG_IN(any_count ? 0 : i))) continue;
        if (!save(n, i, t, false)) goto fail;
    }
    for (int k = 0; k < n->n_out && reads != 0; ++k)
        if ((reads & LG_OUT(k)) && !save(n, n->n_in + k, call->out[k], true)) goto fail;
    return n;
fail:
    lg_node_release(n);
    return NULL;
}

/* The same for a reference that is handed over. */
static void give_node(luge_tensor *t, lg_node *n, int output)
{
    lg_node *old = t->node;
    t->node = n;
    t->node_output = output;
    if (!t->requires_grad) lg_set_requires_grad(t, true);
    if (old != NULL) lg_node_release(old);
}

void lg_node_attach(luge_tensor *t, lg_node *n, int output)
{
    give_node(t, lg_node_retain(n), output);
}

void lg_record_commit(lg_node *n, const lg_call *call)
{
    for (int i = 0; i < n->n_in + n->n_out; ++i)
        if (n->saved[i].tensor != NULL) lg_saved_stamp(&n->saved[i]);
    if (n->region != NULL) lg_region_hand_over(n);
    int floats = 0;
    for (int k = 0; k < n->n_out; ++k) {
        if (!lg_is_float(call->out[k]->dtype)) continue;
        if (floats++ > 0) lg_node_retain(n);
        give_node(call->out[k], n, k);
    }
    if (floats == 0) lg_node_release(n);
}

/* ---- checks */

luge_status lg_check_in_place(const lg_call *call, bool records)
{
    const luge_tensor *t = call->in[0];
    if (lg_strides_overlap(&t->shape, t->stride))
        return lg_op_fail(call, LUGE_ERR_ARGUMENT,
                          "internal overlap: some elements of the tensor written in place share memory; "
                          "write into a luge_clone of it");
    if (!records) return LUGE_OK;
    if (t->requires_grad && t->node == NULL)
        return lg_op_fail(call, LUGE_ERR_GRAPH,
                          "a leaf that requires a gradient is not written in place while a graph is recorded; "
                          "open LUGE_NO_GRAD() first");
    const int others = atomic_load_explicit(&t->storage->refs, memory_order_relaxed) - 1 -
                       atomic_load_explicit(&t->storage->saved_handles, memory_order_relaxed);
    if (others > 0)
        return lg_op_fail(call, LUGE_ERR_GRAPH,
                          "a graph cannot record writing in place into memory that another tensor shares (a view, "
                          "or what this is a view of); write into a luge_clone, or join parts by luge_cat");
    return LUGE_OK;
}

luge_status lg_node_check_saved(lg_node *n)
{
    if (n->region != NULL && lg_region_fill(n) != LUGE_OK) return lg_error();
    for (int i = 0; i < n->n_in + n->n_out; ++i) {
        const luge_tensor *t = n->saved[i].tensor;
        if (t == NULL || lg_saved_is_same(&n->saved[i])) continue;
        char shape[LG_SHAPE_TEXT], where[LG_SITE_TEXT];
        const bool is_output = i >= n->n_in;
        return lg_fail(LUGE_ERR_GRAPH,
                       "%s: its %s %d, %s %s, is needed for the gradient but was changed in place since (version %u, "
                       "saved at %u)%s",
                       n->op->name, is_output ? "output" : "input", is_output ? i - n->n_in : i,
                       lg_shape_text(shape, &t->shape), luge_dtype_name(t->dtype), (unsigned)lg_version(t),
                       (unsigned)n->saved[i].version, lg_site_text(where, n->site, n->line));
    }
    return LUGE_OK;
}

/* ---- freeing */

void lg_node_drop_saved(lg_node *n)
{
    if (n->region != NULL) lg_region_leave(n);
    for (int i = 0; i < n->n_in + n->n_out; ++i) lg_saved_drop(&n->saved[i]);
    n->freed = true;
}

lg_node *lg_node_retain(lg_node *n)
{
    atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
    return n;
}

/* Nodes of this thread that wait to be freed. What a node frees may release further nodes: they join
 * the list, so the stack stays as it is. */
static _Thread_local lg_node *dying;
static _Thread_local bool reaping;

static void free_node(lg_node *n)
{
    lg_node_drop_saved(n);
    for (int i = 0; i < n->n_in; ++i) {
        if (n->edge[i].node != NULL) lg_node_release(n->edge[i].node);
        if (n->edge[i].leaf != NULL) luge_release(n->edge[i].leaf);
    }
    lg_hooks_free(n->hooks);
    lg_free(n);
    lg_count_node(-1);
}

void lg_node_release(lg_node *n)
{
    if (atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) != 1) return;
    n->next = dying;
    dying = n;
    if (reaping) return;
    reaping = true;
    while ((n = dying) != NULL) {
        dying = n->next;
        free_node(n);
    }
    reaping = false;
}
