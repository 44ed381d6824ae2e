/* Tensors: making, sharing, freeing, reading (core/tensor.c, core/read.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/fault.h"
#include "core/thread.h"
#include "tests/support/device.h"
#include <luge/luge.h>

/* The address sanitizer ends the process on sizes that malloc only refuses, unless told not to. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static luge_live_counts before;
static luge_scope scope;

static int set_up(void **state)
{
    (void)state;
    luge_error_clear();
    luge_device_usable(luge_device_cpu()); /* starts the library */
    before = luge_live();
    scope = luge_scope_enter("test");
    return 0;
}

/* No test leaves anything behind. */
static int tear_down(void **state)
{
    (void)state;
    luge_scope_exit(scope, NULL);
    luge_error_clear();
    const luge_live_counts now = luge_live();
    return now.tensors == before.tensors && now.storages == before.storages && now.host_bytes == before.host_bytes ? 0
                                                                                                                   : 1;
}

static void expect_error(luge_status code, const char *part)
{
    assert_int_equal(luge_error(), code);
    if (strstr(luge_error_text(), part) == NULL) fail_msg("\"%s\" does not say \"%s\"", luge_error_text(), part);
    luge_error_clear();
}

static luge_tensor *view(luge_tensor *t, luge_shape shape, const int64_t *stride, int64_t offset)
{
    return lg_borrow(lg_tensor_view(t, &shape, stride, offset));
}

#define STRIDES(...) ((const int64_t[LUGE_MAX_RANK]){__VA_ARGS__})

/* ---- making */

static void test_empty(void **state)
{
    (void)state;
    luge_tensor *t = luge_empty(LUGE_SHAPE(2, 3, 4), &(luge_tensor_options){.dtype = LUGE_F16, .requires_grad = true});
    assert_non_null(t);
    const luge_shape s = luge_tensor_shape(t);
    assert_int_equal(s.rank, 3);
    assert_int_equal(s.dim[1], 3);
    assert_int_equal(s.dim[7], 0);
    assert_int_equal(luge_tensor_size(t, -1), 4);
    assert_int_equal(luge_tensor_stride(t, 0), 12);
    assert_int_equal(luge_tensor_numel(t), 24);
    assert_int_equal(luge_tensor_dtype(t), LUGE_F16);
    assert_int_equal(luge_tensor_device(t).kind, lg_device_default().kind);
    assert_true(luge_tensor_requires_grad(t));
    assert_true(luge_tensor_is_contiguous(t));
    assert_int_equal(luge_tensor_version(t), 0);
    assert_int_equal((uintptr_t)lg_data(t) % 64, 0);
    assert_int_equal(t->storage->bytes, 48);
    assert_int_equal(atomic_load(&t->storage->graph_handles), 1);
}

static void test_empty_refuses(void **state)
{
    (void)state;
    assert_null(luge_empty(LUGE_SHAPE(2, -1), NULL));
    expect_error(LUGE_ERR_SHAPE, "[2, -1]");
    assert_null(luge_empty((luge_shape){.rank = 9}, NULL));
    expect_error(LUGE_ERR_SHAPE, "0 to 8 axes, not 9");
    assert_null(luge_empty(LUGE_SHAPE(2), &(luge_tensor_options){.dtype = (luge_dtype)8}));
    expect_error(LUGE_ERR_DTYPE, "8");
    assert_null(luge_empty(LUGE_SHAPE(2), &(luge_tensor_options){.dtype = (luge_dtype)-1}));
    expect_error(LUGE_ERR_DTYPE, "-1");
    assert_null(luge_empty(LUGE_SHAPE(2), &(luge_tensor_options){.reserved = {[3] = 1}}));
    expect_error(LUGE_ERR_ARGUMENT, "reserved");
    assert_null(luge_empty(LUGE_SHAPE(2), &(luge_tensor_options){.dtype = LUGE_I64, .requires_grad = true}));
    expect_error(LUGE_ERR_DTYPE, "i64");
    assert_null(luge_empty(LUGE_SHAPE(2), &(luge_tensor_options){.device = {1, 1}}));
    expect_error(LUGE_ERR_DEVICE, "cpu:1");
    assert_null(luge_empty(LUGE_SHAPE(2), &(luge_tensor_options){.device = {77, 0}}));
    expect_error(LUGE_ERR_DEVICE, "kind");
}

static void test_NUM_11_sizes_that_do_not_fit(void **state)
{
    (void)state;
    assert_null(luge_empty(LUGE_SHAPE(INT64_C(1) << 32, INT64_C(1) << 32), NULL));
    expect_error(LUGE_ERR_SHAPE, "4294967296");
    assert_null(luge_empty(LUGE_SHAPE(INT64_MAX / 8), NULL)); /* a fine shape, too large for any memory */
    expect_error(LUGE_ERR_OUT_OF_MEMORY, "memory");
}

static void test_nothing_is_made_while_an_error_stands(void **state)
{
    (void)state;
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2);
    const float data[2] = {3, 4};
    luge_fail(LUGE_ERR_IO, "disk on fire");
    const int64_t alive = lg_live_tensors();
    assert_null(luge_empty(LUGE_SHAPE(2), NULL));
    assert_null(luge_empty_like(t));
    assert_null(luge_from_array(data, LUGE_F32, LUGE_SHAPE(2)));
    assert_null(LUGE_TENSOR(LUGE_SHAPE(2), 1, 2));
    assert_null(luge_to(t, luge_device_cpu(), NULL));
    assert_null(luge_tensor_data_mut(t, LUGE_F32));
    assert_int_equal(luge_tensor_version(t), 0);
    assert_int_equal(lg_live_tensors(), alive);
    expect_error(LUGE_ERR_IO, "disk on fire");
}

static void test_reading_works_while_an_error_stands(void **state)
{
    (void)state;
    cpu_only();
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2), *one = LUGE_TENSOR(LUGE_SCALAR, 7);
    t->grad = luge_retain(one);
    luge_fail(LUGE_ERR_IO, "disk on fire");
    double got[2];
    assert_int_equal(luge_to_array(t, got, LUGE_F64, 2), LUGE_OK);
    assert_true(got[0] == 1 && got[1] == 2);
    assert_true(luge_item(one) == 7);
    assert_int_equal(luge_tensor_size(t, 0), 2);
    assert_ptr_equal(luge_tensor_grad(t), one);
    assert_non_null(luge_tensor_data(t, LUGE_F32));
    assert_string_equal(luge_text(t), "[1, 2]");
    assert_true(isnan(luge_item(t)));
    expect_error(LUGE_ERR_IO, "disk on fire");
}

static void test_from_array(void **state)
{
    (void)state;
    const int32_t data[6] = {1, 2, 3, 4, 5, -6};
    luge_tensor *t = luge_from_array(data, LUGE_I32, LUGE_SHAPE(2, 3));
    double got[6];
    assert_int_equal(luge_to_array(t, got, LUGE_F64, 6), LUGE_OK);
    for (int i = 0; i < 6; ++i) assert_true(got[i] == data[i]);

    const unsigned char flags[3] = {0, 1, 200};
    luge_tensor *b = luge_from_array(flags, LUGE_BOOL, LUGE_SHAPE(3));
    assert_memory_equal(data_of(b, LUGE_BOOL), ((unsigned char[]){0, 1, 1}), 3);

    assert_non_null(luge_from_array(NULL, LUGE_F32, LUGE_SHAPE(0, 3)));
    assert_null(luge_from_array(NULL, LUGE_F32, LUGE_SHAPE(2, 3)));
    expect_error(LUGE_ERR_ARGUMENT, "6 elements");
    assert_null(luge_from_array(data, (luge_dtype)12, LUGE_SHAPE(2)));
    expect_error(LUGE_ERR_DTYPE, "12");
}

static void test_from_values(void **state)
{
    (void)state;
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(2, 2), 0.1, 1e300, -2, 3);
    const float *data = data_of(t, LUGE_F32);
    assert_true(data[0] == 0.1f && isinf(data[1]) && data[2] == -2 && data[3] == 3);
    assert_true(luge_item(LUGE_TENSOR(LUGE_SCALAR, 4)) == 4);
    assert_null(LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 2, 3));
    expect_error(LUGE_ERR_SHAPE, "3 values");
    assert_null(luge_from_values(LUGE_SHAPE(2, 2), (double[]){1, 2, 3, 4, 5}, 5));
    expect_error(LUGE_ERR_SHAPE, "takes 4");
    assert_null(luge_from_values(LUGE_SHAPE(2), NULL, 2));
    expect_error(LUGE_ERR_ARGUMENT, "NULL");
    assert_null(luge_from_values(LUGE_SHAPE(-2), (double[]){1}, 1));
    expect_error(LUGE_ERR_SHAPE, "[-2]");
    assert_non_null(luge_from_values(LUGE_SHAPE(0), NULL, 0));
    assert_null(luge_from_values(LUGE_SHAPE(2), (double[]){1}, -1));
    expect_error(LUGE_ERR_SHAPE, "-1 values");
}

static void test_empty_like(void **state)
{
    (void)state;
    luge_tensor *t = luge_empty(LUGE_SHAPE(2, 3), &(luge_tensor_options){.dtype = LUGE_I64});
    luge_tensor *across = view(t, LUGE_SHAPE(3, 2), STRIDES(1, 3), 0);  /* dense: kept */
    luge_tensor *columns = view(t, LUGE_SHAPE(2, 2), STRIDES(3, 1), 1); /* not dense */
    luge_tensor *a = luge_empty_like(across), *b = luge_empty_like(columns);
    assert_int_equal(luge_tensor_dtype(a), LUGE_I64);
    assert_int_equal(luge_tensor_stride(a, 0), 1);
    assert_int_equal(luge_tensor_stride(a, 1), 3);
    assert_ptr_not_equal(a->storage, t->storage);
    assert_int_equal(a->storage->bytes, 48);
    assert_int_equal(luge_tensor_stride(b, 0), 2);
    assert_int_equal(b->storage->bytes, 32);
    assert_int_equal(b->offset, 0);
    assert_null(luge_empty_like(NULL));
    expect_error(LUGE_ERR_ARGUMENT, "empty_like");
    assert_null(luge_empty_like(LUGE_NONE));
    expect_error(LUGE_ERR_ARGUMENT, "LUGE_NONE");
}

static void test_tensors_without_elements(void **state)
{
    (void)state;
    cpu_only();
    luge_tensor *t = luge_empty(LUGE_SHAPE(3, 0), NULL);
    assert_non_null(t);
    assert_null(t->storage->data);
    assert_null(lg_data(t));
    assert_int_equal(luge_tensor_numel(t), 0);
    assert_non_null(luge_tensor_data(t, LUGE_F32));
    assert_non_null(luge_tensor_data_mut(t, LUGE_F32));
    float none;
    assert_int_equal(luge_to_array(t, &none, LUGE_F32, 0), LUGE_OK);
    assert_int_equal(luge_to_array(t, NULL, LUGE_F32, 0), LUGE_OK);
    assert_true(isnan(luge_item(t)));
    expect_error(LUGE_ERR_SHAPE, "[3, 0]");
    assert_non_null(luge_empty_like(t));
}

/* ---- sharing and freeing */

static void test_views_share_and_outlive(void **state)
{
    (void)state;
    cpu_only();
    const luge_scope inner = luge_scope_enter("inner");
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    const int64_t storages = lg_live_storages();
    luge_tensor *second = lg_tensor_view(t, &LUGE_SHAPE(3), STRIDES(1), 3);
    luge_tensor *same = lg_tensor_alias(t);
    assert_int_equal(lg_live_storages(), storages);
    assert_int_equal(same->numel, 6);
    assert_int_equal(second->numel, 3);
    ((float *)luge_tensor_data_mut(second, LUGE_F32))[0] = 40;
    assert_int_equal(luge_tensor_version(t), 1);
    assert_int_equal(luge_tensor_version(same), 1);
    luge_scope_exit(inner, NULL);
    double got[3];
    assert_int_equal(luge_to_array(second, got, LUGE_F64, 3), LUGE_OK);
    assert_true(got[0] == 40 && got[1] == 5 && got[2] == 6);
    luge_release(same);
    luge_release(second);
    assert_int_equal(lg_live_storages(), storages - 1);
}

static void test_storage_ids_are_never_reused(void **state)
{
    (void)state;
    uint64_t last = 0;
    for (int i = 0; i < 100; ++i) {
        luge_tensor *t = lg_tensor_create(lg_device_get(luge_device_cpu()), LUGE_F32, &LUGE_SHAPE(4), NULL);
        assert_true(t->storage->id > last);
        last = t->storage->id;
        luge_release(t);
    }
}

static int released;
static void count_release(lg_storage *s)
{
    assert_ptr_equal(s->release_data, &released);
    ++released;
}

static void test_foreign_memory(void **state)
{
    (void)state;
    static float outside[4] = {1, 2, 3, 4};
    luge_tensor *t = lg_tensor_create(lg_device_get(luge_device_cpu()), LUGE_F32, &LUGE_SHAPE(0), NULL);
    t->storage->data = outside;
    t->storage->release = count_release;
    t->storage->release_data = &released;
    t->shape.dim[0] = t->numel = 4;
    luge_tensor *alias = lg_tensor_alias(t);
    released = 0;
    luge_release(t);
    assert_int_equal(released, 0);
    luge_release(alias);
    assert_int_equal(released, 1);
}

static void test_graph_handles_are_counted(void **state)
{
    (void)state;
    luge_tensor *t = luge_empty(LUGE_SHAPE(2), NULL), *alias = lg_tensor_alias(t);
    atomic_int *handles = &t->storage->graph_handles;
    lg_set_requires_grad(t, true);
    lg_set_requires_grad(t, true);
    assert_int_equal(atomic_load(handles), 1);
    lg_set_requires_grad(alias, true);
    assert_int_equal(atomic_load(handles), 2);
    luge_release(alias); /* freed: it does not count any more */
    assert_int_equal(atomic_load(handles), 1);
    lg_set_requires_grad(t, false);
    assert_int_equal(atomic_load(handles), 0);
}

static void test_rebind(void **state)
{
    (void)state;
    luge_tensor *t = luge_empty(LUGE_SHAPE(2), &(luge_tensor_options){.requires_grad = true});
    luge_tensor *from = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    luge_tensor *row = view(from, LUGE_SHAPE(3), STRIDES(1), 3);
    lg_storage *old = t->storage;
    lg_storage_retain(old);
    lg_tensor_rebind(t, row);
    assert_int_equal(atomic_load(&old->graph_handles), 0);
    assert_int_equal(atomic_load(&old->refs), 1);
    lg_storage_release(old);
    assert_ptr_equal(t->storage, from->storage);
    assert_int_equal(atomic_load(&from->storage->graph_handles), 1);
    assert_true(luge_tensor_requires_grad(t));
    assert_int_equal(luge_tensor_version(from), 1);
    assert_string_equal(luge_text(t), "[4, 5, 6]");
    lg_tensor_rebind(t, t); /* to itself */
    assert_string_equal(luge_text(t), "[4, 5, 6]");
    assert_int_equal(atomic_load(&from->storage->graph_handles), 1);
}

static void test_grad_is_lent(void **state)
{
    (void)state;
    luge_tensor *leaf = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2);
    assert_true(luge_is_none(luge_tensor_grad(leaf)));
    assert_null(luge_tensor_grad(NULL));
    leaf->grad = luge_retain(LUGE_TENSOR(LUGE_SHAPE(2), 3, 4));
    const luge_scope inner = luge_scope_enter("inner");
    luge_tensor *g = luge_tensor_grad(leaf);
    luge_release(leaf->grad); /* dropped meanwhile */
    leaf->grad = NULL;
    assert_string_equal(luge_text(g), "[3, 4]");
    luge_scope_exit(inner, NULL);
}

/* ---- LUGE_NONE, NULL and the dead */

static void test_none(void **state)
{
    (void)state;
    const int64_t alive = lg_live_tensors();
    assert_ptr_equal(LUGE_NONE, LUGE_NONE);
    assert_true(luge_is_none(LUGE_NONE));
    assert_false(luge_is_none(NULL));
    for (int i = 0; i < 3; ++i) luge_release(LUGE_NONE);
    assert_ptr_equal(luge_retain(LUGE_NONE), LUGE_NONE);
    assert_int_equal(luge_tensor_numel(LUGE_NONE), 0);
    assert_int_equal(luge_tensor_shape(LUGE_NONE).rank, 0);
    assert_int_equal(luge_tensor_device(LUGE_NONE).kind, lg_device_default().kind);
    assert_true(luge_is_none(luge_tensor_grad(LUGE_NONE)));
    assert_true(luge_ok());
    assert_true(isnan(luge_item(LUGE_NONE)));
    expect_error(LUGE_ERR_ARGUMENT, "LUGE_NONE");
    assert_null(luge_tensor_data(LUGE_NONE, LUGE_F32));
    expect_error(LUGE_ERR_ARGUMENT, "LUGE_NONE");
    assert_null(luge_to(LUGE_NONE, luge_device_cpu(), NULL));
    expect_error(LUGE_ERR_ARGUMENT, "LUGE_NONE");
    assert_int_equal(lg_live_tensors(), alive);
}

static void test_NULL(void **state)
{
    (void)state;
    assert_int_equal(luge_tensor_shape(NULL).rank, 0);
    assert_int_equal(luge_tensor_size(NULL, 0), 0);
    assert_int_equal(luge_tensor_stride(NULL, 0), 0);
    assert_int_equal(luge_tensor_numel(NULL), 0);
    assert_int_equal(luge_tensor_dtype(NULL), LUGE_F32);
    assert_int_equal(luge_tensor_device(NULL).kind, lg_device_default().kind);
    assert_false(luge_tensor_requires_grad(NULL));
    assert_false(luge_tensor_is_contiguous(NULL));
    assert_int_equal(luge_tensor_version(NULL), 0);
    assert_true(luge_ok());
    assert_true(isnan(luge_item(NULL)));
    expect_error(LUGE_ERR_ARGUMENT, "item: the tensor is NULL");
    double got;
    assert_int_equal(luge_to_array(NULL, &got, LUGE_F64, 1), LUGE_ERR_ARGUMENT);
    expect_error(LUGE_ERR_ARGUMENT, "to_array: the tensor is NULL");
    assert_null(luge_tensor_data(NULL, LUGE_F32));
    expect_error(LUGE_ERR_ARGUMENT, "NULL");
    assert_null(luge_tensor_data_mut(NULL, LUGE_F32));
    expect_error(LUGE_ERR_ARGUMENT, "NULL");
    assert_null(luge_to(NULL, luge_device_cpu(), NULL));
    expect_error(LUGE_ERR_ARGUMENT, "NULL");
    luge_fail(LUGE_ERR_IO, "disk on fire"); /* explains the NULL */
    assert_true(isnan(luge_item(NULL)));
    expect_error(LUGE_ERR_IO, "disk on fire");
}

static void test_a_released_tensor_is_noticed(void **state)
{
    (void)state;
    luge_tensor dead = {.magic = 0}; /* what is left of one */
    assert_int_equal(luge_tensor_numel(&dead), 0);
    assert_true(isnan(luge_item(&dead)));
    expect_error(LUGE_ERR_ARGUMENT, "released");
}

static void test_axes_that_are_not_there(void **state)
{
    (void)state;
    luge_tensor *t = luge_empty(LUGE_SHAPE(2, 3), NULL), *scalar = luge_empty(LUGE_SCALAR, NULL);
    assert_int_equal(luge_tensor_size(t, 2), 0);
    assert_int_equal(luge_tensor_size(t, -3), 0);
    assert_int_equal(luge_tensor_stride(t, 9), 0);
    assert_int_equal(luge_tensor_size(scalar, 0), 0);
    assert_int_equal(luge_tensor_size(scalar, -1), 0);
    assert_true(luge_ok());
}

/* ---- reading */

static void test_item(void **state)
{
    (void)state;
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    assert_true(luge_item(view(t, LUGE_SHAPE(1, 1), STRIDES(9, 9), 4)) == 5);
    assert_true(isnan(luge_item(t)));
    expect_error(LUGE_ERR_SHAPE, "[2, 3]");
    for (int d = 0; d < LG_DTYPE_COUNT; ++d) {
        luge_tensor *one = luge_empty(LUGE_SCALAR, &(luge_tensor_options){.dtype = (luge_dtype)d});
        luge_fill_(one, 1);
        assert_true(luge_item(one) == 1);
    }
}

static void test_to_array_of_views(void **state)
{
    (void)state;
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(2, 3, 2), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    static const struct {
        luge_shape shape;
        int64_t stride[LUGE_MAX_RANK], offset;
        int wanted[12];
    } views[] = {
        {{3, {2, 3, 2}}, {6, 2, 1}, 0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
        {{3, {2, 3, 2}}, {1, 4, 2}, 0, {0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}},
        {{2, {2, 2}}, {6, 2}, 1, {1, 3, 7, 9}},
        {{2, {3, 2}}, {2, 6}, 1, {1, 7, 3, 9, 5, 11}},
        {{3, {2, 2, 2}}, {0, 6, 1}, 4, {4, 5, 10, 11, 4, 5, 10, 11}},
        {{1, {4}}, {0}, 7, {7, 7, 7, 7}},
        {{4, {1, 3, 1, 1}}, {77, 4, 77, 77}, 2, {2, 6, 10}},
    };
    for (size_t i = 0; i < sizeof views / sizeof *views; ++i) {
        luge_tensor *v = view(t, views[i].shape, views[i].stride, views[i].offset);
        double d[12];
        float f[12];
        int64_t n[12];
        assert_int_equal(luge_to_array(v, d, LUGE_F64, v->numel), LUGE_OK);
        assert_int_equal(luge_to_array(v, f, LUGE_F32, v->numel), LUGE_OK);
        assert_int_equal(luge_to_array(v, n, LUGE_I64, v->numel), LUGE_OK);
        for (int64_t k = 0; k < v->numel; ++k) {
            assert_true(d[k] == views[i].wanted[k]);
            assert_true(f[k] == (float)views[i].wanted[k]);
            assert_int_equal(n[k], views[i].wanted[k]);
        }
    }
}

static void test_to_array_refuses(void **state)
{
    (void)state;
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2);
    double got[3] = {7, 7, 7};
    assert_int_equal(luge_to_array(t, got, LUGE_F64, 3), LUGE_ERR_SHAPE);
    expect_error(LUGE_ERR_SHAPE, "3 elements, the tensor 2");
    assert_int_equal(luge_to_array(t, got, (luge_dtype)8, 2), LUGE_ERR_DTYPE);
    expect_error(LUGE_ERR_DTYPE, "8");
    assert_int_equal(luge_to_array(t, NULL, LUGE_F64, 2), LUGE_ERR_ARGUMENT);
    expect_error(LUGE_ERR_ARGUMENT, "NULL");
    assert_int_equal(luge_to_array(LUGE_NONE, got, LUGE_F64, 0), LUGE_ERR_ARGUMENT);
    expect_error(LUGE_ERR_ARGUMENT, "LUGE_NONE");
    assert_true(got[0] == 7);
}

static void test_raw_pointers(void **state)
{
    (void)state;
    cpu_only();
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 2, 3, 4);
    luge_tensor *row = view(t, LUGE_SHAPE(2), STRIDES(1), 2);
    assert_true(((const float *)luge_tensor_data(row, LUGE_F32))[0] == 3);
    assert_int_equal(luge_tensor_version(t), 0);
    assert_ptr_equal(luge_tensor_data_mut(row, LUGE_F32), luge_tensor_data(row, LUGE_F32));
    assert_int_equal(luge_tensor_version(t), 1);
    assert_null(luge_tensor_data(t, LUGE_F64));
    expect_error(LUGE_ERR_DTYPE, "tensor_data: the tensor is f32, asked for was f64");
    luge_tensor *column = view(t, LUGE_SHAPE(2), STRIDES(2), 0);
    assert_null(luge_tensor_data_mut(column, LUGE_F32));
    expect_error(LUGE_ERR_ARGUMENT, "luge_contiguous");
    assert_int_equal(luge_tensor_version(t), 1);
}

static void test_to_the_same_device(void **state)
{
    (void)state;
    cpu_only();
    luge_tensor *t = luge_empty(LUGE_SHAPE(2), &(luge_tensor_options){.requires_grad = true});
    assert_ptr_equal(luge_to(t, luge_device_cpu(), NULL), t);
    assert_ptr_equal(luge_to(t, (luge_device){0}, &(luge_to_options){.non_blocking = true}), t);
    assert_null(luge_to(t, luge_device_cpu(), &(luge_to_options){.reserved = {1}}));
    expect_error(LUGE_ERR_ARGUMENT, "reserved");
}

/* Each request for memory fails in turn: an error, and everything as before. */
static void test_out_of_memory_anywhere(void **state)
{
    (void)state;
    static const lg_fault_kind kinds[] = {LG_FAULT_HOST, LG_FAULT_DEVICE};
    for (int k = 0; k < 2; ++k) {
        int failures = 0;
        for (int nth = 1;; ++nth) {
            const luge_live_counts start = luge_live();
            const luge_scope inner = luge_scope_enter("inner");
            lg_fault_set(kinds[k], nth);
            luge_tensor *a = luge_from_values(LUGE_SHAPE(3), (double[]){1, 2, 3}, 3);
            luge_tensor *b = luge_empty_like(a);
            luge_tensor *c = a == NULL ? NULL : lg_borrow(lg_tensor_alias(a));
            const bool hit = lg_fault_hit(kinds[k]);
            lg_fault_set(kinds[k], 0);
            if (hit && luge_ok() && !on_cpu()) {
                ++failures; /* what a GPU wants beside the tensor's own memory it can do without */
            } else if (hit) {
                assert_int_equal(luge_error(), LUGE_ERR_OUT_OF_MEMORY);
                assert_true(a == NULL || b == NULL || c == NULL);
                ++failures;
            } else {
                assert_true(luge_ok() && a != NULL && b != NULL && c != NULL);
            }
            luge_error_clear();
            luge_scope_exit(inner, NULL);
            assert_int_equal(luge_live().tensors, start.tensors);
            assert_int_equal(luge_live().storages, start.storages);
            if (!hit) break;
        }
        assert_true(failures >= 2);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_empty),
        TEST(test_empty_refuses),
        TEST(test_NUM_11_sizes_that_do_not_fit),
        TEST(test_nothing_is_made_while_an_error_stands),
        TEST(test_reading_works_while_an_error_stands),
        TEST(test_from_array),
        TEST(test_from_values),
        TEST(test_empty_like),
        TEST(test_tensors_without_elements),
        TEST(test_views_share_and_outlive),
        TEST(test_storage_ids_are_never_reused),
        TEST(test_foreign_memory),
        TEST(test_graph_handles_are_counted),
        TEST(test_rebind),
        TEST(test_grad_is_lent),
        TEST(test_none),
        TEST(test_NULL),
        TEST(test_a_released_tensor_is_noticed),
        TEST(test_axes_that_are_not_there),
        TEST(test_item),
        TEST(test_to_array_of_views),
        TEST(test_to_array_refuses),
        TEST(test_raw_pointers),
        TEST(test_to_the_same_device),
        TEST(test_out_of_memory_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
