/* Between call.c and its neighbours in ops/. Everybody else uses core/op.h. */
#ifndef LG_OPS_CALL_H
#define LG_OPS_CALL_H

#include "core/op.h"

/* Runs a call that has op, attrs, attrs_size, n_in, n_out, in_place and site filled in. On success
 * call->out owns its tensors, on failure all are NULL. */
luge_status lg_perform(lg_call *call, luge_tensor *const *given);

/* The number of a built-in op, -1 for any other (registry.c). */
int lg_op_number(const lg_op *op);
/* Its row's name, which tells the parts of an op apart; of any other op its own name. */
const char *lg_op_row(const lg_op *op);

/* Whether an op has run in this process: for the test that none is left out. */
extern atomic_bool lg_op_ran[LG_OP_COUNT];

/* Runs an f32 kernel on a call that may have f16 and bf16 tensors: converts them for it and its results
 * back (convert.c). Returns what the kernel returned, or an error. */
int lg_run_as_f32(const lg_call *call, lg_kernel kernel);

/* PyTorch's result_type of n tensors (NULL: absent), scalars counting less than tensors with axes. */
luge_dtype lg_result_type(int n, luge_tensor *const *in);

#endif
