/* One run of backward: its parts and its steps, for engine.c, leaves.c and backward.c. */
#ifndef LG_AUTOGRAD_ENGINE_H
#define LG_AUTOGRAD_ENGINE_H

#include "autograd/node.h"

/* A leaf that gradients have come to; they wait here until nothing can fail any more. */
typedef struct lg_leaf_slot {
    luge_tensor *leaf, *grad; /* both owned; grad may be NULL */
    bool add_in_place;        /* grad is added to what the leaf has, else it takes its place */
    bool reached;             /* luge_grad: an output depends on it */
} lg_leaf_slot;

/* A gradient that luge_grad asks for. */
typedef struct lg_capture {
    luge_tensor *of;
    luge_tensor *grad; /* owned */
    bool reached;      /* an output depends on it */
} lg_capture;

typedef struct lg_backward {
    bool create_graph, retain_graph;
    bool anomaly;           /* look at every gradient */
    bool selective;         /* luge_grad: only what leads to captures runs */
    uint64_t oldest;        /* nodes before this one lead to no capture */
    lg_node **heap;         /* while collecting: nodes met, the newest on top */
    int64_t n_heap, cap_heap;
    lg_node **order;        /* nodes to run, newest first */
    int64_t n_order, cap_order;
    lg_leaf_slot *leaf;
    int n_leaf, cap_leaf;
    lg_capture *capture;
    int n_capture;
    int most;               /* the largest number of tensors around one node */
    luge_tensor **tensors;  /* room for twice `most` */
    bool *needs;            /* room for `most` */
} lg_backward;

/* The steps, in this order; each may fail. Then lg_backward_close in any case. */

/* Finds all nodes that lead from outputs to leaves, and claims them for this run. */
luge_status lg_backward_collect(lg_backward *b, luge_list outputs);
/* Adds the gradient of an output to what its node or leaf has collected. */
luge_status lg_backward_seed(lg_backward *b, luge_tensor *output, luge_tensor *grad);
luge_status lg_backward_run(lg_backward *b);
/* Makes everything ready so that the commit does not have to allocate. */
luge_status lg_leaves_prepare(lg_backward *b);
luge_status lg_leaves_commit(lg_backward *b);

void lg_backward_close(lg_backward *b);

/* ---- shared by engine.c and leaves.c */

/* The slot of a leaf, -1 if it has none; and the same, made if it is not there (NULL with the error). */
int lg_leaf_find(const lg_backward *b, const luge_tensor *leaf);
lg_leaf_slot *lg_leaf_slot_of(lg_backward *b, luge_tensor *leaf);
/* *slot += grad. */
luge_status lg_accumulate(const lg_backward *b, luge_tensor **slot, luge_tensor *grad);
/* Nobody else can see t or its memory, and it fills that without gaps. */
bool lg_is_ours(const luge_tensor *t);
/* Room for one more entry in an array of lg_alloc's. */
bool lg_reserve(void **array, int64_t *cap, int64_t count, size_t entry);

#endif
