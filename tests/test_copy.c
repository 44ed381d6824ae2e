/* Moving elements: conversion between all dtypes in every instruction set, copies between layouts, fill,
 * cat, stack, pad. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/op.h"
#include "cpu/isa.h"
#include "ops/attrs.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/kernel.h"
#include "tests/support/ops.h"

static const luge_dtype dtypes[] = {LUGE_F32, LUGE_F64, LUGE_F16, LUGE_BF16, LUGE_I64, LUGE_I32, LUGE_U8, LUGE_BOOL};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* ---- conversion */

/* Every f16 and bf16, and what they become in f32 and back. */
static void test_all_halves(void **state)
{
    (void)state;
    enum { ALL = 1 << 16 };
    for (int d = 2; d < 4; ++d) {
        LUGE_SCOPE("halves");
        luge_tensor *h = on_host(LUGE_SHAPE(ALL), dtypes[d]);
        uint16_t *bits = luge_tensor_data_mut(h, dtypes[d]);
        for (int i = 0; i < ALL; ++i) bits[i] = (uint16_t)i;
        luge_tensor *f = luge_cast(there(h), LUGE_F32), *back = luge_cast(f, dtypes[d]);
        const float *value = data_of(f, LUGE_F32);
        const uint16_t *again = data_of(back, dtypes[d]);
        for (int i = 0; i < ALL; ++i) {
            double exact = lg_load_f64(&bits[i], dtypes[d]);
            if (isnan(exact) ? !isnan(value[i]) : (double)value[i] != exact) fail_msg("%#x is %a", (unsigned)i, (double)value[i]);
            if (isnan(exact) ? !isnan(lg_load_f64(&again[i], dtypes[d])) : again[i] != i) fail_msg("%#x comes back as %#x", (unsigned)i, again[i]);
        }
    }
}

/* f32 of every exponent and many mantissas, with ties and their neighbours: to nearest even. */
static void test_rounding_to_halves(void **state)
{
    (void)state;
    enum { COUNT = 1 << 18 };
    luge_tensor *f = on_host(LUGE_SHAPE(COUNT), LUGE_F32);
    float *value = luge_tensor_data_mut(f, LUGE_F32);
    for (uint32_t i = 0; i < COUNT; ++i) {
        static const uint32_t low[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x3000, 0x7fff, 0x8000, 0x8001, 0x18000, 0x1fff, 0x17fff};
        uint32_t bits = (i / 12 * 0x9E3779B9u & 0xffff0000u) | low[i % 12];
        memcpy(&value[i], &bits, sizeof bits);
    }
    for (int d = 2; d < 4; ++d) {
        LUGE_SCOPE("rounding");
        const uint16_t *got = data_of(luge_cast(there(f), dtypes[d]), dtypes[d]);
        for (int i = 0; i < COUNT; ++i) {
            uint16_t exact = d == 2 ? lg_f32_to_f16(value[i]) : lg_f32_to_bf16(value[i]);
            if (isnan(value[i]) ? !isnan(lg_load_f64(&got[i], dtypes[d])) : got[i] != exact)
                fail_msg("%a becomes %#x, not %#x", (double)value[i], got[i], exact);
        }
    }
}

/* From each dtype to each, with what does not fit among the values. */
static void test_all_pairs(void **state)
{
    (void)state;
    static const double values[] = {0,    1,    -1,    2.5,        -2.5,        255,       256,   -129, 65504, 65520,  1e5,   -1e5,
                                    1e-8, 3e9,  -3e9,  2147483647, -2147483648.0, 4294967296.0, 1e19, -1e19, 1e30,  -1e300, 0.99, -0.99,
                                    127,  1e39, 0x1p63, -0x1p63,   (double)NAN, (double)INFINITY, -(double)INFINITY, 6e-8};
    enum { N = sizeof values / sizeof *values, REPEAT = 37 };
    for (int from = 0; from < DTYPES; ++from)
        for (int to = 0; to < DTYPES; ++to) {
            LUGE_SCOPE("pairs");
            luge_tensor *x = on_host(LUGE_SHAPE(N * REPEAT), dtypes[from]);
            char *at = luge_tensor_data_mut(x, dtypes[from]);
            for (int i = 0; i < N * REPEAT; ++i) lg_store_f64(at + (size_t)i * luge_dtype_size(dtypes[from]), dtypes[from], values[i % N]);
            lg_dtype_attrs attrs = {.dtype = dtypes[to]};
            char what[64];
            snprintf(what, sizeof what, "%s to %s", luge_dtype_name(dtypes[from]), luge_dtype_name(dtypes[to]));
            check_kernel(&lg_op_cast, LUGE_LIST(there(x)), &attrs, 0, what);
        }
}

static void test_cast(void **state)
{
    (void)state;
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(3), 1.7, -1.7, 300);
    assert_ptr_equal(luge_cast(x, LUGE_F32), x);
    assert_values(luge_cast(x, LUGE_I32), 1, -1, 300);
    assert_values(luge_cast(x, LUGE_U8), 1, 0, 255);
    assert_values(luge_cast(luge_cast(x, LUGE_I32), LUGE_U8), 1, 255, 44);
    assert_values(luge_cast(x, LUGE_BOOL), 1, 1, 1);
    assert_refused(luge_cast(x, (luge_dtype)99), LUGE_ERR_DTYPE, "99 is no luge_dtype");
    assert_refused(luge_cast(x, (luge_dtype)-1), LUGE_ERR_DTYPE, "is no luge_dtype");
    luge_tensor *image = luge_channels_last(luge_zeros(LUGE_SHAPE(2, 3, 4, 5), NULL));
    assert_int_equal(luge_tensor_stride(luge_cast(image, LUGE_F16), 1), 1);
    luge_tensor *leaf32 = LEAF(LUGE_SHAPE(2), 1, 2);
    luge_backward(luge_sum(luge_cast(leaf32, LUGE_F64), LUGE_ALL_AXES));
    assert_int_equal(luge_tensor_dtype(luge_tensor_grad(leaf32)), LUGE_F32);
}

/* ---- copies */

static void test_copy_kernels(void **state)
{
    (void)state;
    static const luge_shape shapes[] = {{1, {71}}, {2, {3, 600}}, {2, {130, 67}}, {3, {5, 33, 40}}, {4, {2, 19, 9, 11}}, {4, {2, 3, 64, 5}}};
    for (int d = 0; d < DTYPES; ++d)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; ++s)
            for (int layout = 0; layout < LAYOUTS; ++layout)
                for (int to = LG_LAYOUT_KEEP; to <= LG_LAYOUT_CHANNELS_LAST; ++to) {
                    if (to == LG_LAYOUT_CHANNELS_LAST && shapes[s].rank != 4) continue;
                    LUGE_SCOPE("copies");
                    luge_tensor *x = random_layout(shapes[s], dtypes[d] < LUGE_I64 ? dtypes[d] : LUGE_F32, layout);
                    if (dtypes[d] >= LUGE_I64) x = luge_cast(luge_mul_scalar(x, 50), dtypes[d]);
                    char what[64];
                    snprintf(what, sizeof what, "%s shape %d layout %d to %d", luge_dtype_name(dtypes[d]), (int)s, layout, to);
                    check_kernel(&lg_op_copy, LUGE_LIST(x), &(lg_layout_attrs){(lg_layout)to}, 0, what);
                }
}

static void test_contiguous_and_channels_last(void **state)
{
    (void)state;
    luge_tensor *x = luge_randn(LUGE_SHAPE(2, 3, 4, 5), NULL), *last = luge_channels_last(x);
    assert_ptr_equal(luge_contiguous(x), x);
    assert_ptr_equal(luge_channels_last(last), last);
    assert_int_equal(luge_tensor_stride(last, 1), 1);
    assert_true(same_bits(last, x));
    assert_true(same_bits(luge_contiguous(last), x));
    int64_t transposes = luge_op_count().transposes;
    luge_contiguous(last);
    luge_clone(last);
    assert_int_equal(luge_op_count().transposes - transposes, 1);
    assert_int_equal(luge_tensor_stride(luge_clone(last), 1), 1);
    luge_tensor *copy = luge_clone(x);
    luge_fill_(x, 7);
    assert_true(luge_item(luge_sum(luge_eq(copy, x), LUGE_ALL_AXES)) == 0);
    assert_refused(luge_channels_last(luge_zeros(LUGE_SHAPE(2, 3), NULL)), LUGE_ERR_SHAPE, "[N, C, H, W] is needed, not [2, 3]");
    /* A large transposition, and back */
    luge_tensor *big = luge_randn(LUGE_SHAPE(517, 301), NULL);
    luge_tensor *turned = luge_contiguous(luge_transpose(big, 0, 1));
    assert_true(same_bits(luge_contiguous(luge_transpose(turned, 0, 1)), big));
    assert_near(luge_item(luge_select(luge_select(turned, 0, 300), 0, 5)), luge_item(luge_select(luge_select(big, 0, 5), 0, 300)), 0);
}

static void test_copy_into(void **state)
{
    (void)state;
    luge_tensor *t = luge_zeros(LUGE_SHAPE(2, 3), NULL);
    assert_ptr_equal(luge_copy_(t, LUGE_TENSOR(LUGE_SHAPE(3), 1, 2, 3)), t);
    assert_values(t, 1, 2, 3, 1, 2, 3);
    luge_copy_(luge_transpose(t, 0, 1), luge_cast(LUGE_TENSOR(LUGE_SHAPE(3, 2), 1, 2, 3, 4, 5, 6), LUGE_I64));
    assert_values(t, 1, 3, 5, 2, 4, 6);
    luge_copy_(luge_select(t, 1, 1), luge_full(LUGE_SCALAR, 9, NULL));
    assert_values(t, 1, 9, 5, 2, 9, 6);
    assert_refused(luge_copy_(t, luge_zeros(LUGE_SHAPE(2), NULL)), LUGE_ERR_SHAPE, "copy: [2] does not broadcast to [2, 3]");
    assert_refused(luge_copy_(luge_select(t, 0, 0), t), LUGE_ERR_SHAPE, "copy: [2, 3] does not broadcast to [3]");
    luge_copy_(t, t);
    assert_values(t, 1, 9, 5, 2, 9, 6);
    luge_tensor *flags = luge_cast(luge_zeros(LUGE_SHAPE(3), NULL), LUGE_BOOL);
    assert_values(luge_copy_(flags, LUGE_TENSOR(LUGE_SHAPE(3), 0, 0.5, -2)), 0, 1, 1);
    /* The source takes the gradient, what it has replaced does not. */
    luge_tensor *a = LEAF(LUGE_SHAPE(2), 1, 2), *b = LEAF(LUGE_SHAPE(2), 3, 4);
    luge_tensor *y = luge_mul_scalar(a, 1);
    luge_copy_(y, luge_mul_scalar(b, 5));
    luge_backward(luge_sum(y, LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(b), 5, 5);
    assert_true(luge_is_none(luge_tensor_grad(a)) || luge_item(luge_sum(luge_tensor_grad(a), LUGE_ALL_AXES)) == 0);
}

static void test_fill(void **state)
{
    (void)state;
    for (int d = 0; d < DTYPES; ++d) {
        luge_tensor *t = luge_zeros(LUGE_SHAPE(3, 70001), &(luge_tensor_options){.dtype = dtypes[d]});
        luge_fill_(luge_slice(t, 1, 1, 70000), 3);
        double each = dtypes[d] == LUGE_BOOL ? 1 : 3;
        assert_near(luge_item(luge_sum(luge_cast(t, LUGE_F64), LUGE_ALL_AXES)), 3.0 * 69999 * each, 0);
        assert_near(luge_item(luge_select(luge_select(t, 0, 1), 0, 0)), 0, 0);
        assert_near(luge_item(luge_select(luge_select(t, 0, 1), 0, 70000)), 0, 0);
        luge_zero_(t);
        assert_near(luge_item(luge_sum(luge_cast(t, LUGE_F64), LUGE_ALL_AXES)), 0, 0);
    }
    luge_tensor *bytes = luge_zeros(LUGE_SHAPE(3), &(luge_tensor_options){.dtype = LUGE_U8});
    assert_values(luge_fill_(bytes, 2.9), 2, 2, 2);
    assert_values(luge_fill_(bytes, -1), 0, 0, 0);
    luge_tensor *a = LEAF(LUGE_SHAPE(2), 1, 2), *y = luge_mul_scalar(a, 3);
    luge_backward(luge_sum(luge_fill_(y, 7), LUGE_ALL_AXES));
    assert_true(luge_is_none(luge_tensor_grad(a)) || luge_item(luge_sum(luge_tensor_grad(a), LUGE_ALL_AXES)) == 0);
}

/* ---- cat, stack, pad */

static void test_join_kernels(void **state)
{
    (void)state;
    for (int layout = 0; layout < LAYOUTS; ++layout)
        for (int axis = 0; axis < 4; ++axis) {
            LUGE_SCOPE("join");
            luge_shape s = LUGE_SHAPE(2, 3, 5, 7), longer = s;
            longer.dim[axis] += 4;
            luge_tensor *a = random_layout(s, LUGE_F32, layout), *b = random_layout(longer, LUGE_F32, (layout + 1) % LAYOUTS);
            luge_tensor *none = luge_slice(a, axis, 1, 1);
            check_kernel(&lg_op_cat, LUGE_LIST(a, b, none, a), &(lg_axis_attrs){axis}, 0, "cat");
            lg_pad_attrs pad = {{4, {1, 0, 2, 0}}, {4, {0, 3, 1, 0}}, 2.5};
            check_kernel(&lg_op_pad, LUGE_LIST(a), &pad, 0, "pad");
            lg_slice_attrs slice = {.axis = axis, .from = 3, .to = 3 + s.dim[axis], .size = s.dim[axis] + 5};
            check_kernel(&lg_op_slice_backward, LUGE_LIST(a), &slice, 0, "slice_backward");
        }
}

static void test_cat_and_stack(void **state)
{
    (void)state;
    luge_tensor *a = LUGE_TENSOR(LUGE_SHAPE(1, 2), 1, 2), *b = LUGE_TENSOR(LUGE_SHAPE(2, 2), 3, 4, 5, 6);
    assert_values(luge_cat(LUGE_LIST(a, b), 0), 1, 2, 3, 4, 5, 6);
    assert_values(luge_cat(LUGE_LIST(b, b), -1), 3, 4, 3, 4, 5, 6, 5, 6);
    assert_values(luge_stack(LUGE_LIST(b, b), 1), 3, 4, 3, 4, 5, 6, 5, 6);
    assert_values(luge_stack(LUGE_LIST(b, b), -1), 3, 3, 4, 4, 5, 5, 6, 6);
    assert_values(luge_stack(LUGE_LIST(luge_full(LUGE_SCALAR, 3, NULL), luge_full(LUGE_SCALAR, 4, NULL)), 0), 3, 4);
    assert_int_equal(luge_tensor_dtype(luge_cat(LUGE_LIST(a, luge_cast(b, LUGE_F64)), 0)), LUGE_F64);
    luge_tensor *image = luge_channels_last(luge_zeros(LUGE_SHAPE(2, 3, 4, 5), NULL));
    assert_int_equal(luge_tensor_stride(luge_cat(LUGE_LIST(image, image), 1), 1), 1);
    luge_tensor *many[20];
    for (int i = 0; i < 20; ++i) many[i] = LEAF(LUGE_SHAPE(1), i);
    luge_tensor *all = luge_cat((luge_list){many, 20}, 0);
    luge_backward(luge_sum(luge_square(all), LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(many[13]), 26);

    assert_refused(luge_cat(LUGE_LIST(a, b), 1), LUGE_ERR_SHAPE, "cat: [1, 2] and [2, 2] differ in more than axis 1");
    assert_refused(luge_cat(LUGE_LIST(a, LUGE_TENSOR(LUGE_SHAPE(2), 1, 2)), 0), LUGE_ERR_SHAPE, "differ in more than axis 0");
    assert_refused(luge_cat(LUGE_LIST(a, b), 2), LUGE_ERR_ARGUMENT, "there is no axis 2");
    assert_refused(luge_cat(LUGE_LIST(luge_full(LUGE_SCALAR, 3, NULL)), 0), LUGE_ERR_ARGUMENT, "rank 0");
    assert_refused(luge_cat((luge_list){NULL, 2}, 0), LUGE_ERR_ARGUMENT, "at least one tensor");
    assert_refused(luge_cat((luge_list){many, 0}, 0), LUGE_ERR_ARGUMENT, "at least one tensor");
    assert_refused(luge_cat(LUGE_LIST(a, NULL), 0), LUGE_ERR_ARGUMENT, "cat");
    assert_refused(luge_stack(LUGE_LIST(a, LUGE_NONE), 0), LUGE_ERR_ARGUMENT, "stack");
    assert_refused(luge_stack(LUGE_LIST(a, b), 0), LUGE_ERR_SHAPE, "stack: the shapes [1, 2] and [2, 2] differ");
    assert_refused(luge_stack(LUGE_LIST(a, a), 3), LUGE_ERR_ARGUMENT, "stack: axis 3");
    luge_tensor *huge = luge_expand(a, LUGE_SHAPE(INT64_C(1) << 58, 2));
    assert_refused(luge_cat(LUGE_LIST(huge, huge, huge), 0), LUGE_ERR_SHAPE, "too large");
}

static void test_pad(void **state)
{
    (void)state;
    luge_tensor *a = LEAF(LUGE_SHAPE(1, 2), 1, 2);
    luge_tensor *y = luge_pad(a, LUGE_SHAPE(1, 0), LUGE_SHAPE(0, 2), 9);
    assert_values(y, 9, 9, 9, 9, 1, 2, 9, 9);
    luge_backward(luge_sum(luge_mul(y, luge_arange(0, 4, 1, NULL)), LUGE_ALL_AXES));
    assert_values(luge_tensor_grad(a), 0, 1);
    assert_values(luge_pad(luge_full(LUGE_SCALAR, 3, NULL), LUGE_SCALAR, LUGE_SCALAR, 1), 3);
    assert_values(luge_pad(luge_zeros(LUGE_SHAPE(0), NULL), LUGE_SHAPE(1), LUGE_SHAPE(1), 4), 4, 4);
    assert_refused(luge_pad(a, LUGE_SHAPE(1), LUGE_SHAPE(1, 1), 0), LUGE_ERR_SHAPE, "each of the 2 axes");
    assert_refused(luge_pad(a, LUGE_SHAPE(1, -1), LUGE_SHAPE(1, 1), 0), LUGE_ERR_ARGUMENT, "axis 1: the padding must not be negative");
    assert_refused(luge_pad(a, LUGE_SHAPE(INT64_MAX, 0), LUGE_SHAPE(INT64_MAX, 0), 0), LUGE_ERR_SHAPE, "too large");
    assert_refused(luge_pad(a, LUGE_SHAPE(INT64_MAX / 2, 0), LUGE_SHAPE(0, 0), 0), LUGE_ERR_SHAPE, "too large");
}

int main(void)
{
    const struct CMUnitTest kernels[] = {
        OP_TEST(test_all_halves), OP_TEST(test_rounding_to_halves), OP_TEST(test_all_pairs),
    };
    const struct CMUnitTest ops[] = {
        OP_TEST(test_cast), OP_TEST(test_copy_kernels),  OP_TEST(test_contiguous_and_channels_last), OP_TEST(test_copy_into),
        OP_TEST(test_fill), OP_TEST(test_join_kernels),  OP_TEST(test_cat_and_stack),                OP_TEST(test_pad),
    };
    luge_device_usable(luge_device_cpu()); /* chooses an instruction set */
    lg_isa best = lg_cpu_isa();
    int failed = cmocka_run_group_tests_name("ops", ops, NULL, NULL);
    for (int isa = on_cpu() ? 0 : (int)best; isa <= (int)best; ++isa)
        if (lg_cpu_set_isa((lg_isa)isa)) failed += cmocka_run_group_tests_name(lg_isa_name((lg_isa)isa), kernels, NULL, NULL);
    return failed;
}
