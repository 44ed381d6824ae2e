#include "tests/support/kernel.h"
#include <luge/luge.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/thread.h"
#include "ops/call.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

/* ---- calls by hand */

typedef struct hand_call {
    lg_call call;
    luge_tensor *in[LG_MAX_IN];
    luge_tensor *whole[LG_MAX_OUT]; /* bytes of which out is the middle */
} hand_call;

/* An output in the middle of a block of GUARD_BYTEs. */
static luge_tensor *guarded(lg_device *device, const lg_spec *s, luge_tensor **whole)
{
    const int64_t size = (int64_t)luge_dtype_size(s->dtype), numel = lg_shape_numel(&s->shape);
    const luge_shape bytes = LUGE_SHAPE((numel + 2 * GUARD) * size);
    *whole = lg_borrow(lg_tensor_create(device, LUGE_U8, &bytes, NULL));
    assert_ok();
    luge_fill_(*whole, GUARD_BYTE);
    luge_tensor *out = lg_borrow(lg_tensor_view(*whole, &s->shape, s->stride, GUARD));
    assert_ok();
    out->dtype = s->dtype;
    return out;
}

static void check_guards(luge_tensor *whole, const luge_tensor *out, const char *what)
{
    const unsigned char *bytes = data_of(whole, LUGE_U8);
    const size_t guard = GUARD * lg_element_size(out), size = (size_t)whole->numel;
    for (size_t i = 0; i < guard; ++i)
        if (bytes[i] != GUARD_BYTE || bytes[size - 1 - i] != GUARD_BYTE) fail_msg("%s: writes beside its result", what);
}

/* Inputs that the op changes are copied. */
static void prepare(hand_call *h, const lg_op *op, luge_list in, const void *attrs)
{
    memset(h, 0, sizeof *h);
    lg_device *device = NULL;
    for (int i = 0; i < in.count; ++i) {
        h->in[i] = lg_is_none(in.items[i]) ? NULL : op->mutates >> i & 1u ? luge_clone(in.items[i]) : in.items[i];
        if (h->in[i] != NULL) device = h->in[i]->storage->device;
    }
    assert_ok();
    h->call = (lg_call){.op = op, .attrs = attrs, .attrs_size = op->attrs_size, .n_in = in.count, .n_out = op->n_out,
                        .in = h->in, .view_of = -1, .device = device, .site = LG_SITE};
    op->infer(&h->call);
    assert_ok();
    for (int k = 0; k < op->n_out; ++k) h->call.out[k] = guarded(device, &h->call.spec[k], &h->whole[k]);
}

static int run(hand_call *h)
{
    const int id = lg_op_number(h->call.op);
    return h->call.device->backend->kernel[id](&h->call);
}

int run_kernel(const lg_op *op, luge_list in, const void *attrs, luge_tensor *out[LG_MAX_OUT])
{
    hand_call h;
    prepare(&h, op, in, attrs);
    const int answer = run(&h);
    for (int k = 0; k < LG_MAX_OUT; ++k) out[k] = h.call.out[k];
    return answer;
}

/* Results and changed inputs of `h` are within `bound` of those of `to`; bound < 0: the same bits. */
static void compare(const hand_call *h, const hand_call *to, double bound, const char *what)
{
    for (int k = 0; k < h->call.n_out + h->call.n_in; ++k) {
        const bool out = k < h->call.n_out;
        const int i = out ? k : k - h->call.n_out;
        if (!out && (h->in[i] == NULL || !(h->call.op->mutates >> i & 1u))) continue;
        const luge_tensor *a = out ? h->call.out[i] : h->in[i], *b = out ? to->call.out[i] : to->in[i];
        if (bound < 0 && !same_bits(a, b)) fail_msg("%s: other bits with %d threads", what, luge_num_threads());
        const double error = bound < 0 ? 0 : relative_error(a, b);
        if (bound >= 0 && !(error <= bound))
            fail_msg("%s: %s %d is %g away from the reference", what, out ? "output" : "input", i, error);
    }
}

/* The same inputs where reference kernels run. */
static luge_list on_the_host(luge_list in, luge_tensor *host[LG_MAX_IN])
{
    for (int i = 0; i < in.count; ++i)
        host[i] = lg_is_none(in.items[i]) ? in.items[i] : luge_to(in.items[i], luge_device_cpu(), NULL);
    assert_ok();
    return (luge_list){host, in.count};
}

void check_kernel(const lg_op *op, luge_list in, const void *attrs, double bound, const char *what)
{
    luge_scope scope = luge_scope_enter("check_kernel");
    hand_call reference, first, again;
    luge_tensor *before[LG_MAX_IN] = {NULL}, *host[LG_MAX_IN];
    for (int i = 0; i < in.count; ++i)
        if (!lg_is_none(in.items[i])) before[i] = luge_clone(in.items[i]);

    prepare(&reference, op, on_the_host(in, host), attrs);
    assert_int_equal(op->reference(&reference.call), LUGE_OK);
    for (int threads = 0; threads <= 3; ++threads) {
        assert_int_equal(luge_set_num_threads(threads == 0 ? 2 : threads), LUGE_OK);
        hand_call *h = threads == 0 ? &first : &again;
        prepare(h, op, in, attrs);
        const int answer = run(h);
        if (answer != LUGE_OK) fail_msg("%s: %s", what, answer == LG_DECLINED ? "declined" : luge_error_text());
        for (int k = 0; k < op->n_out; ++k) check_guards(h->whole[k], h->call.out[k], what);
        compare(h, threads == 0 ? &reference : &first, threads == 0 ? bound : -1, what);
    }
    for (int i = 0; i < in.count; ++i)
        if (before[i] != NULL && !same_bits(before[i], in.items[i])) fail_msg("%s: input %d has changed", what, i);
    assert_int_equal(luge_set_num_threads(2), LUGE_OK);
    luge_scope_exit(scope, NULL);
    assert_ok();
}

/* ---- layouts */

luge_tensor *random_layout(luge_shape shape, luge_dtype dtype, int layout)
{
    const luge_tensor_options options = {.dtype = dtype};
    const int rank = shape.rank;
    if (layout == 1 && rank >= 2) {
        luge_shape other = shape;
        other.dim[rank - 1] = shape.dim[rank - 2];
        other.dim[rank - 2] = shape.dim[rank - 1];
        return luge_transpose(luge_randn(other, &options), -1, -2);
    }
    if (layout == 2 && rank >= 1) {
        luge_shape wide = shape;
        wide.dim[wide.rank++] = 2;
        return luge_select(luge_randn(wide, &options), -1, 1);
    }
    if (layout == 3 && rank >= 1) {
        luge_shape wide = shape;
        wide.dim[rank - 1] += 3;
        return luge_slice(luge_randn(wide, &options), -1, 2, wide.dim[rank - 1] - 1);
    }
    if (layout == 4 && rank == 4) return luge_channels_last(luge_randn(shape, &options));
    return luge_randn(shape, &options);
}
