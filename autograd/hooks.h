/* Hooks: what users want to hear of gradients. A list per leaf, and one per node for its outputs. */
#ifndef LG_AUTOGRAD_HOOKS_H
#define LG_AUTOGRAD_HOOKS_H

#include <luge/autograd.h>
#include "core/tensor.h"

/* One hook, in a list in the order they were added. */
struct lg_hooks {
    lg_hooks *next;
    int output;              /* of the node; 0 for a leaf */
    luge_grad_hook on_grad;  /* one of these two is set */
    luge_leaf_hook on_leaf;
    void *user;
};

/* Sends the complete gradient of an output through its hooks. `*grad` owns a reference and is replaced
 * by what they return. */
luge_status lg_hooks_on_grad(const lg_hooks *list, int output, luge_tensor **grad);
void lg_hooks_on_leaf(luge_tensor *leaf);
void lg_hooks_free(lg_hooks *list);

#endif
