/* The single path of every op: check, autocast, promote, infer, allocate, launch, record. What the
 * spec of an op (ops/<family>.c) says is done here, with the kernels of the device's backend. */
#include "ops/call.h"
#include <luge/scope.h>
#include <stdarg.h>
#include <stdio.h>
#include "autograd/anomaly.h"
#include "autograd/node.h"
#include "autograd/region.h"
#include "core/alloc.h"
#include "core/profile.h"
#include "core/services.h"
#include "core/thread.h"
#include "core/undo.h"
#include "ops/attrs.h"
#include "ops/move.h"

luge_status lg_op_fail(const lg_call *call, luge_status code, const char *format, ...)
{
    char text[LG_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lg_fail(code, "%s: %s", call->op->name, text);
}

/* ---- check */

/* Whether input i is a number on the host, which an op that broadcasts takes among tensors of a device, as
 * PyTorch does. */
static bool is_host_number(const lg_call *call, int i)
{
    const luge_tensor *t = call->in[i];
    return t != NULL && t->shape.rank == 0 && lg_on_host(t->storage->device) && !(call->in_place && i == 0) &&
           (call->op->flags & (LG_PROMOTE | LG_PROMOTE_FLOAT)) != 0;
}

/* Inputs lie on different devices: the device is that of all but numbers. */
static luge_status choose_device(lg_call *call)
{
    call->device = NULL;
    for (int i = 0; i < call->n_in; ++i) {
        const luge_tensor *t = call->in[i];
        if (t == NULL || is_host_number(call, i)) continue;
        if (call->device == NULL) call->device = t->storage->device;
        if (call->device != t->storage->device)
            return lg_op_fail(call, LUGE_ERR_DEVICE, "input %d is on another device than those before it; luge_to moves it",
                              i);
    }
    return LUGE_OK;
}

/* Fills call->in and call->device. */
static luge_status check_inputs(lg_call *call, luge_tensor *const *given, luge_tensor **in)
{
    const lg_op *op = call->op;
    bool alike = true;
    call->in = in;
    call->device = NULL;
    for (int i = 0; i < call->n_in; ++i) {
        luge_tensor *t = given[i];
        if (t == NULL) return lg_op_fail(call, LUGE_ERR_ARGUMENT, "input %d is NULL", i);
        if (lg_is_none(t)) {
            if (i >= 32 || !(op->optional >> i & 1u))
                return lg_op_fail(call, LUGE_ERR_ARGUMENT, "input %d is LUGE_NONE, but is needed", i);
            in[i] = NULL;
            continue;
        }
        if (t->magic != LG_TENSOR_MAGIC)
            return lg_op_fail(call, LUGE_ERR_ARGUMENT,
                              "input %d was released before; luge_retain or luge_keep lets it live on", i);
        if (call->device == NULL) call->device = t->storage->device;
        alike = alike && call->device == t->storage->device;
        in[i] = t;
    }
    if (call->device == NULL) return lg_op_fail(call, LUGE_ERR_ARGUMENT, "there are no inputs");
    return alike ? LUGE_OK : choose_device(call);
}

/* ---- autocast and promotion: inputs are replaced by casts of them, which the call owns */

static luge_status perform(lg_call *call, luge_tensor *const *given, luge_tensor **in);

/* Runs an op with one input inside the call; the result is owned by the caller. */
static luge_tensor *run_inside(const lg_op *op, luge_tensor *t, const void *attrs, const void *site)
{
    luge_tensor *in[1];
    lg_call call;
    call.op = op;
    call.attrs = attrs;
    call.attrs_size = op->attrs_size;
    call.n_in = call.n_out = 1;
    call.in_place = false;
    call.site = site;
    return perform(&call, &t, in) == LUGE_OK ? call.out[0] : NULL;
}

/* Puts `fresh` in the place of input i, and releases what earlier casts have put there. */
static luge_status replace_input(luge_tensor *const *given, luge_tensor **in, int i, luge_tensor *fresh)
{
    if (fresh == NULL) return lg_error();
    if (in[i] != given[i]) luge_release(in[i]);
    in[i] = fresh;
    return LUGE_OK;
}

static luge_status bring_numbers(lg_call *call, luge_tensor *const *given, luge_tensor **in)
{
    luge_status status = LUGE_OK;
    for (int i = 0; i < call->n_in && status == LUGE_OK; ++i) {
        if (in[i] == NULL || in[i]->storage->device == call->device) continue;
        const lg_move_attrs attrs = {.from = in[i]->storage->device, .to = call->device};
        status = replace_input(given, in, i, run_inside(&lg_op_to, in[i], &attrs, call->site));
    }
    return status;
}

static luge_status cast_input(lg_call *call, luge_tensor *const *given, luge_tensor **in, int i, luge_dtype dtype)
{
    if (in[i] == NULL || in[i]->dtype == dtype) return LUGE_OK;
    const lg_dtype_attrs attrs = {.dtype = dtype};
    return replace_input(given, in, i, run_inside(&lg_op_cast, in[i], &attrs, call->site));
}

/* The same for a parameter, which is cast once in a region: every use has a node of its own, and all share
 * the elements. */
static luge_status cast_parameter(lg_call *call, luge_tensor *const *given, luge_tensor **in, int i, luge_dtype dtype)
{
    luge_tensor *source = in[i];
    const lg_dtype_attrs attrs = {.dtype = dtype, .shared = true};
    luge_tensor *cast = run_inside(&lg_op_cast, source, &attrs, call->site);
    luge_status status = cast != NULL ? lg_cast_cache_keep(source, cast) : lg_error();
    if (status == LUGE_OK) return replace_input(given, in, i, cast);
    luge_release(cast);
    return status;
}

/* An op of the user's gets its inputs for itself: it may write into them. */
static bool may_share(const lg_call *call, const luge_tensor *t, luge_dtype to)
{
    return call->op->cast == LUGE_CAST_LOW && t->dtype != to && lg_cast_cache_takes(t) && lg_op_number(call->op) >= 0;
}

/* The dtype that autocast wants for the op's float inputs, or LUGE_I64 for "as they are". f64 is never
 * cast down: whoever uses it wants it. */
static luge_dtype autocast_dtype(const lg_call *call, luge_dtype low)
{
    if (call->op->cast == LUGE_CAST_LOW) return low;
    if (call->op->cast == LUGE_CAST_F32) return LUGE_F32;
    luge_dtype widest = LUGE_I64;
    for (int i = 0; i < call->n_in; ++i) {
        const luge_tensor *t = call->in[i];
        if (t == NULL || !lg_is_float(t->dtype)) continue;
        widest = widest == LUGE_I64 ? t->dtype : luge_promote_types(widest, t->dtype);
    }
    return widest;
}

static luge_status autocast(lg_call *call, luge_tensor *const *given, luge_tensor **in, luge_dtype low)
{
    const luge_dtype to = autocast_dtype(call, low);
    luge_status status = LUGE_OK;
    for (int i = 0; i < call->n_in && to != LUGE_I64 && status == LUGE_OK; ++i) {
        const luge_tensor *t = in[i];
        if (t == NULL || !lg_is_float(t->dtype) || t->dtype == LUGE_F64) continue;
        if (i < 32 && call->op->mutates >> i & 1u) continue;
        status = may_share(call, t, to) ? cast_parameter(call, given, in, i, to) : cast_input(call, given, in, i, to);
    }
    return status;
}

/* 0 bool, 1 integer, 2 float: a tensor with axes is only widened by a scalar of a higher category. */
static int category(luge_dtype d)
{
    return d == LUGE_BOOL ? 0 : lg_is_float(d) ? 2 : 1;
}

/* PyTorch's result_type of all inputs. */
luge_dtype lg_result_type(int n, luge_tensor *const *in)
{
    luge_dtype with_axes = LUGE_BOOL, scalar = LUGE_BOOL;
    bool any_axes = false, any_scalar = false;
    for (int i = 0; i < n; ++i) {
        if (in[i] == NULL) continue;
        luge_dtype *into = in[i]->shape.rank > 0 ? &with_axes : &scalar;
        bool *any = in[i]->shape.rank > 0 ? &any_axes : &any_scalar;
        *into = *any ? luge_promote_types(*into, in[i]->dtype) : in[i]->dtype;
        *any = true;
    }
    if (!any_scalar) return with_axes;
    if (!any_axes) return scalar;
    return category(scalar) > category(with_axes) ? luge_promote_types(with_axes, scalar) : with_axes;
}

/* The dtype that the inputs are to have, and whether all have it already, as nearly always. */
static bool common_type(const lg_op *op, int n, luge_tensor *const *in, luge_dtype *dtype)
{
    const bool to_float = (op->flags & LG_PROMOTE_FLOAT) != 0;
    bool alike = in[0] != NULL;
    *dtype = alike ? in[0]->dtype : LUGE_F32;
    for (int i = 1; i < n && alike; ++i) alike = in[i] == NULL || in[i]->dtype == *dtype;
    if (alike && (!to_float || lg_is_float(*dtype))) return true;
    *dtype = lg_result_type(n, in);
    if (to_float && !lg_is_float(*dtype)) *dtype = LUGE_F32;
    return false;
}

static luge_status promote(lg_call *call, luge_tensor *const *given, luge_tensor **in)
{
    luge_dtype dtype;
    if (common_type(call->op, call->n_in, in, &dtype)) return LUGE_OK;
    if (call->in_place && dtype != in[0]->dtype) /* narrower floats and integers went through a copy */
        return lg_op_fail(call, LUGE_ERR_DTYPE, "the result is %s and does not fit into a %s tensor in place",
                          luge_dtype_name(dtype), luge_dtype_name(in[0]->dtype));
    luge_status status = LUGE_OK;
    for (int i = 0; i < call->n_in && status == LUGE_OK; ++i) status = cast_input(call, given, in, i, dtype);
    return status;
}

/* ---- writing in place */

static bool same_elements(const luge_tensor *a, const luge_tensor *b)
{
    return a->offset == b->offset && a->dtype == b->dtype && lg_shape_equal(&a->shape, &b->shape) &&
           memcmp(a->stride, b->stride, (size_t)a->shape.rank * sizeof *a->stride) == 0;
}

/* An input in the target's memory would change while it is read, or after it was saved: it is copied.
 * Element for element the same memory is fine, as long as nobody needs the old values later. */
static luge_status separate_inputs(lg_call *call, luge_tensor *const *given, luge_tensor **in, bool records)
{
    static const lg_layout_attrs keep = {LG_LAYOUT_KEEP};
    luge_status status = LUGE_OK;
    for (int i = 1; i < call->n_in && status == LUGE_OK; ++i) {
        if (in[i] == NULL || in[i]->storage != in[0]->storage) continue;
        if (!records && same_elements(in[i], in[0])) continue;
        status = replace_input(given, in, i, run_inside(&lg_op_copy, in[i], &keep, call->site));
    }
    return status;
}

static luge_status check_fits(const lg_op *op, const luge_shape *result, const luge_shape *target)
{
    char is[LG_SHAPE_TEXT], has[LG_SHAPE_TEXT];
    if (lg_shape_equal(result, target)) return LUGE_OK;
    return lg_fail(LUGE_ERR_SHAPE, "%s: the result is %s and does not fit into %s in place", op->name,
                   lg_shape_text(is, result), lg_shape_text(has, target));
}

static luge_status check_target(lg_call *call)
{
    const luge_tensor *t = call->in[0];
    const lg_spec *s = &call->spec[0];
    if (check_fits(call->op, &s->shape, &t->shape) != LUGE_OK) return lg_error();
    if (s->dtype != t->dtype)
        return lg_op_fail(call, LUGE_ERR_DTYPE, "the result is %s and does not fit into a %s tensor in place",
                          luge_dtype_name(s->dtype), luge_dtype_name(t->dtype));
    return LUGE_OK;
}

/* ---- allocate */

static luge_status allocate(lg_call *call)
{
    if (call->in_place) {
        call->out[0] = call->in[0]; /* the caller's */
        return LUGE_OK;
    }
    for (int k = 0; k < call->n_out; ++k) {
        if (call->out[k] != NULL) continue; /* infer made it: custom ops */
        const lg_spec *s = &call->spec[k];
        call->out[k] = k == 0 && call->view_of >= 0
                           ? lg_tensor_view(call->in[call->view_of], &s->shape, s->stride, s->offset)
                           : lg_tensor_create(call->device, s->dtype, &s->shape, s->stride);
        if (call->out[k] == NULL) return lg_error();
    }
    return LUGE_OK;
}

/* ---- launch */

atomic_bool lg_op_ran[LG_OP_COUNT];

static bool nothing_to_do(const lg_call *call)
{
    for (int k = 0; k < call->n_out; ++k)
        if (call->out[k]->numel > 0) return false;
    return true;
}

static luge_status run_kernel(lg_call *call, int id)
{
    const lg_backend *backend = call->device->backend;
    const lg_kernel kernel = id >= 0 ? backend->kernel[id] : NULL;
    if (kernel != NULL) {
        const int status = backend->kernel_kind[id] == LG_KERNEL_F32 ? lg_run_as_f32(call, kernel) : kernel(call);
        if (status != LG_DECLINED) {
            lg_count(LG_COUNT_KERNEL);
            if (status == LUGE_OK || !lg_ok()) return lg_error();
            return lg_op_fail(call, LUGE_ERR_UNSUPPORTED, "the kernel failed without saying why");
        }
    }
    if (call->op->reference == NULL || !lg_on_host(call->device))
        return lg_op_fail(call, LUGE_ERR_UNSUPPORTED, "not offered on %s for these inputs", backend->name);
    lg_count(LG_COUNT_REFERENCE);
    return call->op->reference(call);
}

/* Notes what the call is about to write over, for the attempt that it is part of. */
static luge_status keep_for_undo(lg_call *call)
{
    static const lg_layout_attrs keep = {LG_LAYOUT_KEEP};
    lg_modes *modes = &lg_self()->modes;
    const lg_modes before = *modes;
    const uint32_t writes = call->mutates | (call->in_place ? 1u : 0u);
    luge_status status = LUGE_OK;
    for (int i = 0; i < call->n_in && writes >> i != 0 && status == LUGE_OK; ++i) {
        luge_tensor *t = call->in[i];
        if (!(writes >> i & 1u) || t == NULL || !lg_undo_wants(before.undo, t)) continue;
        modes->undo = NULL;
        modes->no_grad = true;
        luge_tensor *copy = run_inside(&lg_op_copy, t, &keep, call->site);
        *modes = before;
        status = copy != NULL ? lg_undo_add(before.undo, t, copy) : lg_error();
    }
    return status;
}

static luge_status launch(lg_call *call, bool made_by_infer)
{
    const int id = lg_op_number(call->op);
    /* Written once, so that threads do not fight over it. */
    if (id >= 0 && !atomic_load_explicit(&lg_op_ran[id], memory_order_relaxed))
        atomic_store_explicit(&lg_op_ran[id], true, memory_order_relaxed);
    if (call->view_of >= 0) {
        lg_count(LG_COUNT_VIEW);
        return LUGE_OK;
    }
    if (made_by_infer || nothing_to_do(call)) return LUGE_OK;
    if (lg_self()->modes.undo != NULL) {
        const luge_status kept = keep_for_undo(call);
        if (kept != LUGE_OK) return kept;
    }
    const luge_status status = run_kernel(call, id);
    /* Also after a failure: memory may have been written. */
    if (call->in_place) lg_bump_version(call->in[0]);
    for (int i = 0; i < call->n_in && call->mutates >> i != 0; ++i)
        if ((call->mutates >> i & 1u) && call->in[i] != NULL) lg_bump_version(call->in[i]);
    return status;
}

/* ---- all of it */

static void release_outputs(lg_call *call)
{
    for (int k = 0; k < call->n_out; ++k) {
        if (!call->in_place) luge_release(call->out[k]);
        call->out[k] = NULL;
    }
}

static luge_status check_results(const lg_call *call)
{
    luge_status status = LUGE_OK;
    for (int k = 0; k < call->n_out && status == LUGE_OK; ++k)
        status = lg_check_finite(call->out[k], call->op->name, NULL, call->site, call->line);
    return status;
}

/* What the target of an op in place held before, where its gradient reads that. */
static luge_status keep_before(lg_call *call, luge_tensor **before)
{
    static const lg_layout_attrs keep = {LG_LAYOUT_KEEP};
    if (!call->in_place || !(lg_record_reads(call) & LG_IN(0))) return LUGE_OK;
    lg_modes *modes = &lg_self()->modes;
    const bool no_grad = modes->no_grad;
    modes->no_grad = true;
    *before = run_inside(&lg_op_copy, call->in[0], &keep, call->site);
    modes->no_grad = no_grad;
    return *before != NULL ? LUGE_OK : lg_error();
}

/* A region that runs again has written into running statistics before: they are as if absent. Those that are
 * only read stay. */
static void leave_outside_alone(const lg_call *call, luge_tensor **in)
{
    for (int i = 0; i < call->n_in && call->mutates >> i != 0; ++i)
        if ((call->mutates >> i & 1u) && in[i] != NULL && lg_region_is_outside(in[i])) in[i] = NULL;
}

/* From checked and cast inputs, which are `in`, to outputs; on failure outputs may be there, for the caller to release. */
static luge_status compute(lg_call *call, luge_tensor **in, bool records)
{
    call->view_of = -1;
    call->mutates = call->op->mutates;
    luge_status status = call->op->infer(call);
    const bool made_by_infer = call->out[0] != NULL;
    if (status == LUGE_OK && call->in_place) status = check_target(call);
    if (status == LUGE_OK && lg_self()->modes.again_from != 0) leave_outside_alone(call, in);
    if (status == LUGE_OK) status = allocate(call);

    luge_tensor *before = NULL;
    lg_node *node = NULL;
    if (status == LUGE_OK && records) {
        status = keep_before(call, &before);
        if (status == LUGE_OK && (node = lg_record_prepare(call, before)) == NULL) status = lg_error();
        luge_release(before);
    }
    if (status == LUGE_OK) status = launch(call, made_by_infer);
    if (status == LUGE_OK && lg_self()->modes.anomaly) status = check_results(call);
    if (node != NULL && status == LUGE_OK) lg_record_commit(node, call);
    if (node != NULL && status != LUGE_OK) lg_node_release(node);
    return status;
}

/* perform without the question of the profile. */
static luge_status run_call(lg_call *call, luge_tensor *const *given, luge_tensor **in)
{
    lg_thread *self = lg_self();
    const lg_op *op = call->op;
    const char *outer = self->op;
    call->line = self->modes.lines > 0 ? lg_line() : NULL;
    for (int k = 0; k < LG_MAX_OUT; ++k) call->out[k] = NULL;

    luge_status status = check_inputs(call, given, in);
    if (status != LUGE_OK) return status;
    self->op = op->name;
    if (!lg_on_host(call->device) && call->n_in > 1) status = bring_numbers(call, given, in);
    if (status == LUGE_OK && self->modes.low != LUGE_F32 && op->cast != LUGE_CAST_KEEP && !call->in_place)
        status = autocast(call, given, in, self->modes.low);
    if (status == LUGE_OK && (op->flags & (LG_PROMOTE | LG_PROMOTE_FLOAT))) status = promote(call, given, in);

    const bool records = lg_wants_graph(call->n_in, in) && (!(op->flags & LG_NO_GRAD) || call->in_place);
    if (status == LUGE_OK && call->in_place) {
        status = lg_check_in_place(call, records);
        if (status == LUGE_OK) status = separate_inputs(call, given, in, records);
    }
    if (status == LUGE_OK) status = compute(call, in, records);
    if (status == LUGE_OK && op->flops != NULL) self->flops += op->flops(call);

    if (status != LUGE_OK) release_outputs(call);
    for (int i = 0; i < call->n_in; ++i)
        if (in[i] != given[i] && in[i] != NULL) luge_release(in[i]);
    self->op = outer;
    return status;
}

/* The whole path. call has op, attrs, n_in, n_out, in_place and site; `in` has room for n_in. On
 * success call->out owns its tensors (in place: the caller does), on failure all are NULL. */
static luge_status perform(lg_call *call, luge_tensor *const *given, luge_tensor **in)
{
    if (lg_is_profiled(lg_self())) return lg_profile_op(lg_op_row(call->op), call, given, in, run_call);
    return run_call(call, given, in);
}

luge_status lg_perform(lg_call *call, luge_tensor *const *given)
{
    luge_tensor *few[LG_MAX_IN];
    if (!lg_ok()) return lg_error();
    if (call->n_in <= LG_MAX_IN) return perform(call, given, few);
    luge_tensor **in = lg_alloc((size_t)call->n_in * sizeof *in);
    if (in == NULL) return lg_error();
    const luge_status status = perform(call, given, in);
    lg_free(in);
    return status;
}

/* An input that is NULL while an error stands is that error's doing: nothing is added to it. */
luge_status lg_call_op(const lg_op *op, int n_in, luge_tensor *const *in, const void *attrs, const void *site,
                       luge_tensor **out)
{
    lg_call call;
    call.op = op;
    call.attrs = attrs;
    call.attrs_size = op->attrs_size;
    call.n_in = n_in;
    call.n_out = op->n_out;
    call.in_place = false;
    call.site = site;
    luge_status status = lg_perform(&call, in);
    for (int k = 0; k < op->n_out; ++k) out[k] = status == LUGE_OK ? lg_borrow(call.out[k]) : NULL;
    if (status != LUGE_OK || lg_ok()) return status;
    for (int k = 0; k < op->n_out; ++k) out[k] = NULL; /* the scope could not grow */
    return lg_error();
}

luge_tensor *lg_call1(const lg_op *op, int n_in, luge_tensor *const *in, const void *attrs, const void *site)
{
    luge_tensor *out[LG_MAX_OUT];
    return lg_call_op(op, n_in, in, attrs, site, out) == LUGE_OK ? out[0] : NULL;
}

/* Whether the op computes in a wider dtype of the same category than its target has. */
static bool computes_wider(const lg_op *op, int n_in, luge_tensor *const *in)
{
    luge_dtype dtype;
    if (!(op->flags & (LG_PROMOTE | LG_PROMOTE_FLOAT))) return false;
    for (int i = 0; i < n_in; ++i)
        if (in[i] == NULL || lg_is_none(in[i])) return false;
    return !common_type(op, n_in, in, &dtype) && dtype != in[0]->dtype && category(dtype) == category(in[0]->dtype);
}

/* f16 += f32 is added in f32 and rounded once, as in PyTorch: a new tensor, copied into the target. */
static luge_tensor *write_rounded(const lg_op *op, int n_in, luge_tensor *const *in, const void *attrs, const void *site)
{
    static const lg_layout_attrs keep = {LG_LAYOUT_KEEP};
    luge_tensor *t = in[0];
    luge_scope scope = luge_scope_enter(NULL);
    luge_tensor *result = lg_call1(op, n_in, in, attrs, site);
    if (result != NULL && check_fits(op, &result->shape, &t->shape) == LUGE_OK)
        t = lg_call_in_place(&lg_op_copy, 2, (luge_tensor *[]){t, result}, &keep, site);
    luge_scope_exit(scope, NULL);
    return lg_ok() ? t : NULL;
}

luge_tensor *lg_call_in_place(const lg_op *op, int n_in, luge_tensor *const *in, const void *attrs, const void *site)
{
    luge_tensor *const t = in[0];
    if (lg_self()->modes.again_from != 0 && t != NULL && !lg_is_none(t) && t->magic == LG_TENSOR_MAGIC && lg_region_is_outside(t))
        return lg_ok() ? t : NULL; /* done by the first run */
    if (computes_wider(op, n_in, in)) return write_rounded(op, n_in, in, attrs, site);
    lg_call call;
    call.op = op;
    call.attrs = attrs;
    call.attrs_size = op->attrs_size;
    call.n_in = n_in;
    call.n_out = 1;
    call.in_place = true;
    call.site = site;
    return lg_perform(&call, in) == LUGE_OK ? in[0] : NULL; /* the caller's own handle, which needs no scope */
}
