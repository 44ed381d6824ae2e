/* From device to device: luge_to, as an op outside of the table. Its output lies elsewhere than its input,
 * so infer makes it, as that of a user's op. */
#include "core/op.h"
#include "core/services.h"
#include "core/thread.h"
#include "ops/check.h"
#include "ops/move.h"

static luge_status move(lg_call *call)
{
    const lg_move_attrs *a = call->attrs;
    const luge_tensor *t = call->in[0];
    luge_tensor *dense = NULL;
    if (!lg_strides_are_dense(&t->shape, t->stride)) {
        luge_scope scope = luge_scope_enter(NULL);
        luge_no_grad_enter();
        dense = luge_retain(lg_service.contiguous(call->in[0]));
        luge_scope_exit(scope, NULL);
        if (dense == NULL) return lg_error();
        t = dense;
    }
    /* What is copied beside the kernels goes where no kernel that is still queued reads or writes. */
    lg_memory *memory = a->to->memory;
    if (a->pinned) memory = lg_pinned_memory();
    else if (a->non_blocking && lg_is_pinned(t) && a->to->uploads != NULL) memory = a->to->uploads;
    luge_tensor *y = memory != NULL ? lg_tensor_create_in(memory, a->to, t->dtype, &t->shape, t->stride) : NULL;
    const luge_status status = y != NULL ? lg_copy_across(y, t, !a->non_blocking) : lg_error();
    luge_release(dense);
    if (status == LUGE_OK)
        call->out[0] = y;
    else
        luge_release(y);
    return status;
}

static luge_status move_back(lg_grad_call *g)
{
    const lg_move_attrs *a = g->attrs;
    g->grad_in[0] = luge_to(g->grad_out[0], a->from->id, NULL);
    return lg_error();
}

const lg_op lg_op_to = {
    .name = "to", .n_in = 1, .n_out = 1, .attrs_size = sizeof(lg_move_attrs), .infer = move, .backward = move_back};

luge_tensor *luge_to(luge_tensor *t, luge_device device, const luge_to_options *options)
{
    static const luge_to_options defaults;
    if (!lg_usable(t, "to")) return NULL;
    const luge_to_options *o = options != NULL ? options : &defaults;
    if (!lg_check_reserved(o->reserved, 2, "luge_to_options")) return NULL;
    lg_device *there = lg_device_get(device), *here = t->storage->device;
    if (there == NULL) return NULL;
    if (o->pinned && !lg_on_host(there)) {
        lg_fail(LUGE_ERR_ARGUMENT, "to: only memory of the host is pinned");
        return NULL;
    }
    /* Where there is no GPU, pinned memory is what `t` has. */
    if (there == here && (!o->pinned || lg_is_pinned(t) || lg_pinned_memory() == here->memory))
        return lg_ok() ? lg_lend(t) : NULL;
    const lg_move_attrs attrs = {here, there, o->non_blocking, o->pinned};
    return lg_call1(&lg_op_to, 1, &t, &attrs, LG_SITE);
}
