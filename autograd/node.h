/* Nodes of the graph: one recorded op each, with the edges to what made its inputs and what its
 * backward reads. Made by ops/call.c, walked by engine.c. A node never owns a tensor that owns the
 * node: saved tensors are leaves, or aliases outside the graph. */
#ifndef LG_AUTOGRAD_NODE_H
#define LG_AUTOGRAD_NODE_H

#include "core/op.h"

/* Where the gradient of an input goes: to an output of another node or to a leaf. Both NULL: nowhere. */
typedef struct lg_edge {
    lg_node *node;
    luge_tensor *leaf;
    int output;
} lg_edge;

/* A saved tensor, and what it held when it was saved. */
typedef struct lg_saved {
    luge_tensor *tensor;           /* a reference; NULL: not read, or absent */
    uint64_t storage;
    uint32_t version;
    bool alias;                    /* counted in the storage's saved_handles */
    bool absent;                   /* the node's region makes it again when it is needed */
    bool again;                    /* it has */
} lg_saved;

typedef struct lg_region lg_region; /* autograd/region.h */

/* One block of memory: the arrays and the attributes lie behind the struct. */
struct lg_node {
    atomic_int refs;
    int n_in, n_out;
    bool freed;                    /* saved tensors are gone: a backward went through */
    const lg_op *op;
    const void *attrs, *site;
    const char *line;              /* lg_call's */
    const char *path;              /* of the scopes it was recorded in; NULL but in anomaly mode */
    uint64_t sequence;             /* higher than those of the nodes that made the inputs */
    lg_hooks *hooks;               /* of its outputs */
    lg_edge *edge;                 /* [n_in] */
    luge_shape *in_shape;          /* [n_in] */
    luge_dtype *in_dtype;          /* [n_in] */
    lg_saved *saved;               /* [n_in + n_out]: inputs, then outputs */
    lg_region *region;             /* that this was recorded in; a reference */
    int64_t place;                 /* there */
    /* The rest is the engine's, while it runs. */
    _Atomic(void *) run;           /* the backward that holds this node */
    luge_tensor *grad[LG_MAX_OUT]; /* collected so far for each output */
    bool wanted;                   /* its backward has to run */
    uint8_t capture;               /* bits of outputs whose gradient luge_grad asks for */
    lg_node *next;                 /* in the list of nodes about to be freed */
};

/* Whether a call with these inputs (NULL: absent) is to be recorded: grad mode is on and one of them
 * requires a gradient. */
bool lg_wants_graph(int n_in, luge_tensor *const *in);

/* The saved tensors that the gradients of this call will read: LG_IN and LG_OUT bits; of an op with
 * any number of inputs LG_IN(0) stands for all of them. */
uint32_t lg_record_reads(const lg_call *call);

/* Recording takes two steps, so that an op in place cannot fail after it has written. First, with the
 * outputs allocated: makes the node with all that it holds, or NULL with the error set. `before`:
 * what in[0] held before an op in place, if that is read; else NULL. */
lg_node *lg_record_prepare(const lg_call *call, luge_tensor *before);
/* Then, when the kernel has run: notes versions and makes the float outputs part of the graph. Takes
 * over the reference. Cannot fail. */
void lg_record_commit(lg_node *n, const lg_call *call);

/* Before an op writes into in[0]: refuses elements that share memory (LUGE_ERR_ARGUMENT) and, if the
 * call will be recorded, leaves that require a gradient and memory that other tensors see
 * (LUGE_ERR_GRAPH): their gradients would silently be wrong. */
luge_status lg_check_in_place(const lg_call *call, bool records);

/* Makes t the output of a node. */
void lg_node_attach(luge_tensor *t, lg_node *n, int output);
/* Makes what is absent; fails with LUGE_ERR_GRAPH if a saved tensor was changed since. */
luge_status lg_node_check_saved(lg_node *n);
void lg_node_drop_saved(lg_node *n);

/* ---- saved tensors */

/* Keeps a leaf that requires a gradient itself, as it cannot come to refer to whoever keeps it: ops in place
 * are refused on it. Anything else might, so an alias is kept. False with the error set. */
bool lg_saved_make(lg_saved *s, luge_tensor *t, bool is_leaf);
/* Notes what it holds now. */
void lg_saved_stamp(lg_saved *s);
/* Whether it still holds that. */
bool lg_saved_is_same(const lg_saved *s);
/* Gives `to`, which is absent, what `from` has. Cannot fail. */
void lg_saved_share(lg_saved *to, const lg_saved *from);
void lg_saved_drop(lg_saved *s);

lg_node *lg_node_retain(lg_node *n);
/* Iterative: frees a chain of a million nodes on a small stack. */
void lg_node_release(lg_node *n);

#endif
