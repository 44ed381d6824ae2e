/* Devices (core/device.c), and what core does with memory that the host cannot read: a pretended
 * second backend keeps every byte inverted, so that reading it directly gives wrong values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/tensor.h"
#include <luge/luge.h>

static int copies_in, copies_out, syncs;
static luge_status answer;

static int count(void)
{
    return 2;
}
static const char *why_not(int index)
{
    (void)index;
    return NULL;
}
static void *take(lg_device *device, size_t bytes)
{
    (void)device;
    return lg_system_alloc(bytes, 64);
}
static void give(lg_device *device, void *memory, size_t bytes)
{
    (void)device;
    lg_system_free(memory, bytes);
}
static luge_status invert(void *to, const void *from, size_t bytes)
{
    if (answer != LUGE_OK) return luge_fail(answer, "the pretended device is lost");
    for (size_t i = 0; i < bytes; ++i) ((unsigned char *)to)[i] = (unsigned char)~((const unsigned char *)from)[i];
    return LUGE_OK;
}
static luge_status to_host(lg_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    ++copies_out;
    return invert(to, from, bytes);
}
static luge_status from_host(lg_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    ++copies_in;
    return invert(to, from, bytes);
}
static luge_status sync(lg_device *device)
{
    (void)device;
    ++syncs;
    return LUGE_OK;
}

static const lg_backend pretended = {
    .name = "pretended",
    .kind = LG_DEVICE_CUDA,
    .count = count,
    .why_not = why_not,
    .alloc = take,
    .free = give,
    .alloc_granularity = 4096,
    .to_host = to_host,
    .from_host = from_host,
    .sync = sync,
};

static void expect_error(luge_status code, const char *part)
{
    assert_int_equal(luge_error(), code);
    if (strstr(luge_error_text(), part) == NULL) fail_msg("\"%s\" does not say \"%s\"", luge_error_text(), part);
    luge_error_clear();
}

static void test_the_cpu_is_there(void **state)
{
    (void)state;
    assert_true(luge_device_usable(luge_device_cpu()));
    assert_true(luge_device_usable((luge_device){0}));
    assert_string_equal(luge_device_why_not(luge_device_cpu()), "");
    assert_int_equal(luge_device_sync(luge_device_cpu()), LUGE_OK);
    assert_true(lg_on_host(lg_device_get((luge_device){0})));
}

/* There is no module where main says it is; whether there is a driver depends on the machine. */
static void test_cuda_is_not(void **state)
{
    (void)state;
    const luge_device gpu = luge_device_cuda(0);
    assert_false(luge_device_usable(gpu));
    const char *why = luge_device_why_not(gpu);
    assert_true(strstr(why, "driver") != NULL || strstr(why, "no CUDA module /nowhere.so") != NULL);
    assert_int_equal(luge_device_best().kind, luge_device_cpu().kind);
    assert_true(luge_ok());

    assert_null(luge_empty(LUGE_SHAPE(2), &(luge_tensor_options){.device = gpu}));
    expect_error(LUGE_ERR_DEVICE, why);
    assert_int_equal(luge_set_default_device(gpu), LUGE_ERR_DEVICE);
    expect_error(LUGE_ERR_DEVICE, "cuda:0");
    assert_int_equal(luge_device_sync(gpu), LUGE_ERR_DEVICE);
    expect_error(LUGE_ERR_DEVICE, "cuda:0");
    LUGE_SCOPE("test");
    assert_null(luge_to(LUGE_TENSOR(LUGE_SCALAR, 1), gpu, NULL));
    expect_error(LUGE_ERR_DEVICE, "cuda:0");
    assert_int_equal(lg_device_default().kind, LG_DEVICE_CPU);
}

static void test_devices_that_make_no_sense(void **state)
{
    (void)state;
    static const luge_device none[] = {{1, 1}, {1, -1}, {0, 3}, {-1, 0}, {99, 0}, {2, -1}};
    for (size_t i = 0; i < sizeof none / sizeof *none; ++i) {
        assert_false(luge_device_usable(none[i]));
        assert_true(strlen(luge_device_why_not(none[i])) > 10);
        assert_true(luge_ok());
        assert_null(lg_device_get(none[i]));
        expect_error(LUGE_ERR_DEVICE, luge_device_why_not(none[i]));
    }
}

static void test_questions_while_an_error_stands(void **state)
{
    (void)state;
    luge_fail(LUGE_ERR_IO, "disk on fire");
    assert_true(luge_device_usable(luge_device_cpu()));
    assert_false(luge_device_usable((luge_device){99, 0}));
    assert_int_equal(luge_set_default_device(luge_device_cpu()), LUGE_ERR_IO);
    expect_error(LUGE_ERR_IO, "disk on fire");
}

static void test_names_of_devices(void **state)
{
    (void)state;
    luge_device d = {0};
    assert_int_equal(luge_device_parse("cpu", &d), LUGE_OK);
    assert_true(d.kind == LG_DEVICE_CPU && d.index == 0);
    assert_int_equal(luge_device_parse("cuda", &d), LUGE_OK); /* whether it is there or not */
    assert_true(d.kind == LG_DEVICE_CUDA && d.index == 0);
    assert_int_equal(luge_device_parse("cuda:12", &d), LUGE_OK);
    assert_true(d.kind == LG_DEVICE_CUDA && d.index == 12);
    assert_int_equal(luge_device_parse("cuda:4294967296", &d), LUGE_OK); /* not device 0 */
    assert_true(d.kind == LG_DEVICE_CUDA && d.index > 12);
    assert_int_equal(luge_device_parse("auto", &d), LUGE_OK);
    assert_true(d.kind == LG_DEVICE_CPU && d.index == 0);

    static const char *const wrong[] = {"", "gpu", "CPU", "cpu:0", "cpu ", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda: 1", "cuda1", "auto:0"};
    d = (luge_device){77, 78};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
        assert_int_equal(luge_device_parse(wrong[i], &d), LUGE_ERR_ARGUMENT);
        assert_non_null(strstr(luge_error_text(), wrong[i]));
        expect_error(LUGE_ERR_ARGUMENT, "auto, cpu, cuda or cuda:<number>");
    }
    assert_int_equal(luge_device_parse(NULL, &d), LUGE_ERR_ARGUMENT);
    expect_error(LUGE_ERR_ARGUMENT, "text is NULL");
    assert_int_equal(luge_device_parse("cpu", NULL), LUGE_ERR_ARGUMENT);
    expect_error(LUGE_ERR_ARGUMENT, "device is NULL");
    luge_fail(LUGE_ERR_IO, "disk on fire");
    assert_int_equal(luge_device_parse("cpu", &d), LUGE_ERR_IO);
    expect_error(LUGE_ERR_IO, "disk on fire");
    assert_true(d.kind == 77 && d.index == 78);
}

/* From here on the pretended devices are there. */
static void test_a_second_backend(void **state)
{
    (void)state;
    assert_int_equal(lg_device_add(&pretended), LUGE_OK);
    assert_true(luge_device_usable(luge_device_cuda(0)));
    assert_true(luge_device_usable(luge_device_cuda(1)));
    assert_false(luge_device_usable(luge_device_cuda(2)));
    assert_non_null(strstr(luge_device_why_not(luge_device_cuda(2)), "this number"));
    assert_int_equal(luge_device_best().kind, LG_DEVICE_CUDA);
    luge_device best;
    assert_int_equal(luge_device_parse("auto", &best), LUGE_OK);
    assert_int_equal(best.kind, LG_DEVICE_CUDA);
    syncs = 0;
    assert_int_equal(luge_device_sync(luge_device_cuda(1)), LUGE_OK);
    assert_int_equal(syncs, 1);
}

static void test_default_device(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    assert_int_equal(luge_set_default_device(luge_device_cuda(1)), LUGE_OK);
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(3), 1, 2, 3);
    assert_int_equal(luge_tensor_device(t).kind, LG_DEVICE_CUDA);
    assert_int_equal(luge_tensor_device(t).index, 1);
    assert_int_equal(luge_tensor_device(NULL).index, 1);
    assert_string_equal(luge_text(t), "[1, 2, 3]");
    const unsigned char flags[3] = {0, 1, 200};
    assert_string_equal(luge_text(luge_from_array(flags, LUGE_BOOL, LUGE_SHAPE(3))), "[false, true, true]");
    luge_tensor *here = luge_empty(LUGE_SHAPE(2), &(luge_tensor_options){.device = luge_device_cpu()});
    assert_int_equal(luge_tensor_device(here).kind, LG_DEVICE_CPU);
    assert_int_equal(luge_set_default_device(luge_device_cpu()), LUGE_OK);
    assert_int_equal(luge_tensor_device(LUGE_TENSOR(LUGE_SCALAR, 1)).kind, LG_DEVICE_CPU);
    assert_null(luge_tensor_data(t, LUGE_F32));
    expect_error(LUGE_ERR_DEVICE, "luge_to");
}

static void test_reading_from_a_device(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *t = luge_to(LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), luge_device_cuda(0), NULL);
    assert_non_null(t);
    const luge_shape shape = LUGE_SHAPE(2, 2), one = LUGE_SCALAR;
    luge_tensor *corner = lg_borrow(lg_tensor_view(t, &shape, (int64_t[]){3, 1}, 1)); /* last two columns */
    double got[4];
    copies_out = 0;
    assert_int_equal(luge_to_array(corner, got, LUGE_F64, 4), LUGE_OK);
    assert_int_equal(copies_out, 1);
    assert_true(got[0] == 2 && got[1] == 3 && got[2] == 5 && got[3] == 6);
    assert_string_equal(luge_text(corner), "[[2, 3], [5, 6]]");
    assert_true(luge_item(lg_borrow(lg_tensor_view(t, &one, NULL, 4))) == 5);

    answer = LUGE_ERR_DEVICE;
    assert_int_equal(luge_to_array(corner, got, LUGE_F64, 4), LUGE_ERR_DEVICE);
    expect_error(LUGE_ERR_DEVICE, "lost");
    assert_non_null(strstr(luge_text(t), "lost"));
    expect_error(LUGE_ERR_DEVICE, "lost");
    assert_null(luge_to(t, luge_device_cpu(), NULL));
    expect_error(LUGE_ERR_DEVICE, "lost");
    answer = LUGE_OK;
}

static void test_moving(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *t = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    const luge_shape turned = LUGE_SHAPE(3, 2);
    luge_tensor *across = lg_borrow(lg_tensor_view(t, &turned, (int64_t[]){1, 3}, 0)); /* dense: layout is kept */
    luge_tensor *there = luge_to(across, luge_device_cuda(0), NULL);
    luge_tensor *further = luge_to(there, luge_device_cuda(1), NULL);
    luge_tensor *back = luge_to(further, luge_device_cpu(), NULL);
    assert_int_equal(luge_tensor_device(there).kind, LG_DEVICE_CUDA);
    assert_int_equal(luge_tensor_device(further).index, 1);
    assert_int_equal(luge_tensor_device(back).kind, LG_DEVICE_CPU);
    assert_int_equal(luge_tensor_stride(back, 1), 3);
    assert_ptr_not_equal(back->storage, t->storage);
    assert_string_equal(luge_text(back), "[[1, 4], [2, 5], [3, 6]]");
    assert_ptr_equal(luge_to(there, luge_device_cuda(0), NULL), there);
    copies_in = 0;
    assert_non_null(luge_to(luge_empty(LUGE_SHAPE(0, 3), NULL), luge_device_cuda(0), NULL));
    assert_int_equal(copies_in, 0);

    assert_null(luge_to(t, luge_device_cuda(0), &(luge_to_options){.pinned = true}));
    expect_error(LUGE_ERR_ARGUMENT, "host");
    assert_ptr_equal(luge_to(t, luge_device_cpu(), &(luge_to_options){.pinned = true}), t); /* nothing to pin it for */
}

static void test_gradients_move_too(void **state)
{
    (void)state;
    LUGE_SCOPE("test");
    luge_tensor *leaf = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 2, 3, 4));
    luge_tensor *there = luge_to(luge_mul(leaf, leaf), luge_device_cuda(1), NULL);
    assert_true(luge_tensor_requires_grad(there));
    luge_tensor *back = luge_to(there, luge_device_cpu(), NULL);
    assert_int_equal(luge_backward(luge_sum(back, LUGE_ALL_AXES)), LUGE_OK);
    assert_string_equal(luge_text(luge_tensor_grad(leaf)), "[[2, 4], [6, 8]]");
    {
        LUGE_NO_GRAD();
        assert_false(luge_tensor_requires_grad(luge_to(leaf, luge_device_cuda(0), NULL)));
    }

    /* In place, from elsewhere. */
    luge_tensor *target = luge_zeros(LUGE_SHAPE(2, 2), NULL), *from = luge_to(luge_detach(leaf), luge_device_cuda(0), NULL);
    assert_ptr_equal(luge_copy_(target, from), target);
    assert_string_equal(luge_text(target), "[[1, 2], [3, 4]]");
    answer = LUGE_ERR_DEVICE;
    assert_null(luge_copy_(target, from));
    expect_error(LUGE_ERR_DEVICE, "lost");
    answer = LUGE_OK;
    assert_int_equal(luge_tensor_version(target), 2);
}

/* ---- the user's memory for a device */

static int taken, given;

static void *user_alloc(size_t bytes, size_t alignment, void *user)
{
    assert_ptr_equal(user, &taken);
    assert_true(alignment >= 256 && bytes >= 1 << 20);
    ++taken;
    return lg_system_alloc(bytes, alignment);
}
static void user_free(void *memory, size_t bytes, void *user)
{
    assert_ptr_equal(user, &taken);
    ++given;
    lg_system_free(memory, bytes);
}

static void test_memory_from_the_user(void **state)
{
    (void)state;
    const luge_device gpu = luge_device_cuda(1);
    luge_allocator allocator = {.alloc = user_alloc, .free = user_free, .user = &taken};
    {
        LUGE_SCOPE("in use");
        luge_empty(LUGE_SHAPE(3), &(luge_tensor_options){.device = gpu});
        assert_int_equal(luge_set_device_allocator(gpu, &allocator), LUGE_ERR_STATE);
        expect_error(LUGE_ERR_STATE, "12 bytes of the device are in use");
    }
    assert_int_equal(luge_set_device_allocator(gpu, &(luge_allocator){.alloc = user_alloc}), LUGE_ERR_ARGUMENT);
    expect_error(LUGE_ERR_ARGUMENT, "both");
    assert_int_equal(luge_set_device_allocator(gpu, &allocator), LUGE_OK);
    {
        LUGE_SCOPE("test");
        for (int i = 0; i < 5; ++i) luge_empty(LUGE_SHAPE(1000), &(luge_tensor_options){.device = gpu});
        assert_string_equal(luge_text(luge_to(LUGE_TENSOR(LUGE_SHAPE(2), 1, 2), gpu, NULL)), "[1, 2]");
    }
    assert_int_equal(taken, 1);
    assert_int_equal(given, 0);
    assert_int_equal(luge_set_device_allocator(gpu, NULL), LUGE_OK);
    assert_int_equal(given, 1);
    assert_int_equal(luge_cuda_set_stream(1, NULL), LUGE_ERR_UNSUPPORTED);
    expect_error(LUGE_ERR_UNSUPPORTED, "luge_cuda_set_stream");
}

static void test_nothing_is_left(void **state)
{
    (void)state;
    assert_int_equal(luge_live().tensors, 0);
    assert_int_equal(luge_live().storages, 0);
    assert_int_equal(luge_live().host_bytes, 0);
}

int main(void)
{
    setenv("LUGE_CUDA_MODULE", "/nowhere.so", 1);
    unsetenv("LUGE_DEVICE");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cpu_is_there),
        cmocka_unit_test(test_cuda_is_not),
        cmocka_unit_test(test_devices_that_make_no_sense),
        cmocka_unit_test(test_questions_while_an_error_stands),
        cmocka_unit_test(test_names_of_devices),
        cmocka_unit_test(test_a_second_backend),
        cmocka_unit_test(test_default_device),
        cmocka_unit_test(test_reading_from_a_device),
        cmocka_unit_test(test_moving),
        cmocka_unit_test(test_gradients_move_too),
        cmocka_unit_test(test_memory_from_the_user),
        cmocka_unit_test(test_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
