/* Activation checkpointing. What runs in a region is recorded as always, the same nodes with the same edges;
 * but a node keeps no tensor that the region has made itself. When backward first needs one, the region's
 * function runs again with the random numbers and modes of the first time, and hands what its k-th node saves
 * to the k-th node of the first run. So gradients flow through the graph of the first run, in its order: they
 * have the bits of a run without regions. A region inside another is run again by itself; its inputs count
 * as saved tensors of the outer one. */
#ifndef LG_AUTOGRAD_REGION_H
#define LG_AUTOGRAD_REGION_H

#include "autograd/node.h"

/* Runs fn(inputs, user) as a region. `user` is given to release when the region is over and done with, also
 * after an error; release may be NULL. */
luge_tensor *lg_region_run(luge_tensor_fn fn, luge_list inputs, void *user, void (*release)(void *user), const char *what);

/* ---- for node.c */

/* Makes a node that is being recorded part of the thread's region, if there is one. `reads`: what it saves,
 * lg_record_reads. In a second run the op must be that of the first, and be given what is alike. */
luge_status lg_region_join(lg_node *n, const lg_call *call, uint32_t reads);
/* Whether a node of the region does not keep t. */
bool lg_region_drops(const lg_region *r, const luge_tensor *t);
/* In a second run: hands what n saves to the node of the first run. Else nothing happens. */
void lg_region_hand_over(lg_node *n);
/* Sees to it that n has what it saves. */
luge_status lg_region_fill(lg_node *n);
/* n needs nothing more. */
void lg_region_leave(lg_node *n);

/* ---- for the call path, in a second run */

/* Whether t was there before the second run began: what is written into it was written in the first. */
bool lg_region_is_outside(const luge_tensor *t);

#endif
