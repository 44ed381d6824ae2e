/* Nodes of the graph: one recorded op each, with the edges to what made its inputs and what its
 * backward reads. Made by ops/call.c through lg_record, walked by engine.c. */
#ifndef LG_AUTOGRAD_NODE_H
#define LG_AUTOGRAD_NODE_H

#include "core/op.h"

/* Whether a call with these inputs (NULL: absent) is to be recorded: grad mode is on and one of them
 * requires a gradient. */
bool lg_wants_graph(int n_in, luge_tensor *const *in);

/* Versions of the inputs' storages before a kernel ran (an op in place changes one). */
enum { LG_RECORD_VERSIONS = 64 };

/* Records a call that has run: makes its node, with in[] as they were given (after casts), and makes
 * the float outputs require gradients. On error nothing is recorded and the error is set. */
luge_status lg_record(const lg_call *call, const uint32_t *in_version);

/* Before an op writes into t in place (through `op`'s name in messages): refuses overlap
 * (LUGE_ERR_ARGUMENT), leaves that require a gradient, and writes that would break a graph through
 * another handle of the same storage (LUGE_ERR_GRAPH). `records`: whether the call will be recorded. */
luge_status lg_check_in_place(const lg_call *call, luge_tensor *t, bool records);

lg_node *lg_node_retain(lg_node *n);
/* Iterative: frees a chain of a million nodes on a small stack. */
void lg_node_release(lg_node *n);

#endif
