/* Saving and loading modules: luge_module_save, luge_module_load. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/folder.h"
#include "tests/support/ops.h"

static int begin(void **state)
{
    folder_begin();
    return ops_begin(state);
}

static int end(void **state)
{
    folder_end();
    return live_end(state);
}

static luge_module *net(int64_t classes)
{
    return luge_nn_sequential(luge_nn_conv2d(1, 2, 3, NULL), luge_nn_batch_norm2d(2, NULL), luge_nn_flatten(),
                              luge_nn_linear(8, classes, NULL));
}

static void assert_same_values(luge_module *a, luge_module *b)
{
    static const char *const params[] = {"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"};
    static const char *const buffers[] = {"1.running_mean", "1.running_var", "1.num_batches_tracked"};
    for (int i = 0; i < 6; ++i)
        assert_true(same_bits(luge_module_param(a, params[i]), luge_module_param(b, params[i])));
    for (int i = 0; i < 3; ++i)
        assert_true(same_bits(luge_module_buffer(a, buffers[i]), luge_module_buffer(b, buffers[i])));
}

static void what_is_saved_is_loaded(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *a = net(3), *b = net(3);
    luge_forward(a, luge_randn(LUGE_SHAPE(4, 1, 4, 4), NULL)); /* running statistics */
    const char *path = in_folder("net.safetensors");
    assert_int_equal(luge_module_save(a, path), LUGE_OK);
    luge_tensor *handle = luge_module_param(b, "0.weight");
    luge_module_freeze(b, "0.*");
    luge_load_result result;
    assert_int_equal(luge_module_load(b, path, NULL, &result), LUGE_OK);
    assert_int_equal(result.loaded, 9);
    assert_true(result.missing == 0 && result.unexpected == 0 && result.mismatched == 0);
    assert_string_equal(result.text, "");
    assert_same_values(a, b);
    assert_ptr_equal(luge_module_param(b, "0.weight"), handle);
    assert_false(luge_tensor_requires_grad(handle));
    assert_true(luge_tensor_requires_grad(luge_module_param(b, "3.weight")));
    assert_int_equal(luge_module_save(b, path), LUGE_OK); /* over the old one */
    assert_int_equal(luge_module_load(a, path, NULL, NULL), LUGE_OK);
    assert_int_equal(folder_count(), 1);
    luge_module_destroy(a);
    luge_module_destroy(b);
}

static void loading_converts_dtypes_and_layouts(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *a = net(3), *b = net(3);
    const char *path = in_folder("net.safetensors");
    assert_int_equal(luge_module_save(a, path), LUGE_OK);
    luge_module_to_dtype(b, LUGE_F64);
    assert_int_equal(luge_module_load(b, path, NULL, NULL), LUGE_OK);
    luge_tensor *w = luge_module_param(b, "3.weight");
    assert_int_equal(luge_tensor_dtype(w), LUGE_F64);
    assert_true(same_bits(luge_cast(luge_detach(w), LUGE_F32), luge_module_param(a, "3.weight")));
    /* Into a transposed parameter. */
    luge_tensor *turned = luge_transpose(luge_zeros(LUGE_SHAPE(2, 3), NULL), 0, 1);
    luge_module *list = luge_nn_params(LUGE_LIST(turned));
    luge_module *plain = luge_nn_params(LUGE_LIST(LUGE_TENSOR(LUGE_SHAPE(3, 2), 1, 2, 3, 4, 5, 6)));
    assert_int_equal(luge_module_save(plain, path), LUGE_OK);
    assert_int_equal(luge_module_load(list, path, NULL, NULL), LUGE_OK);
    assert_values(luge_detach(turned), 1, 2, 3, 4, 5, 6);
    assert_int_equal(luge_tensor_stride(turned, 0), 1);
    luge_module_destroy(plain);
    luge_module_destroy(list);
    luge_module_destroy(a);
    luge_module_destroy(b);
}

static void sav_06_differences_are_listed_and_nothing_changes(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const char *path = in_folder("file.safetensors");
    luge_module *file = luge_nn_params(LUGE_LIST(luge_zeros(LUGE_SHAPE(2), NULL), luge_zeros(LUGE_SHAPE(81, 4), NULL),
                                                 luge_zeros(LUGE_SHAPE(3), NULL)));
    luge_module *inner = luge_nn_params(LUGE_LIST(luge_ones(LUGE_SHAPE(2), NULL), luge_ones(LUGE_SHAPE(25, 4), NULL)));
    luge_module *model = luge_nn_sequential(luge_nn_identity(), luge_nn_linear(2, 2, NULL));
    assert_int_equal(luge_module_save(file, path), LUGE_OK);
    luge_load_result result;
    assert_int_equal(luge_module_load(inner, path, NULL, &result), LUGE_ERR_FORMAT);
    assert_error(LUGE_ERR_FORMAT, "does not fit, nothing was loaded");
    assert_true(result.loaded == 0 && result.mismatched == 1 && result.unexpected == 1 && result.missing == 0);
    assert_non_null(strstr(result.text, "other shape: 1 is [25, 4], in the file [81, 4]\n"));
    assert_non_null(strstr(result.text, "not in the module: 2 f32\n"));
    assert_values(luge_module_param(inner, "0"), 1, 1);
    assert_int_equal(luge_module_load(model, path, NULL, &result), LUGE_ERR_FORMAT);
    assert_error(LUGE_ERR_FORMAT,
                 "missing in the file: 1.weight\nmissing in the file: 1.bias\nnot in the module: 0 f32");
    assert_true(result.missing == 2 && result.unexpected == 3);

    const luge_load_options partial = {.partial = true};
    assert_int_equal(luge_module_load(inner, path, &partial, &result), LUGE_OK);
    assert_true(result.loaded == 1 && result.mismatched == 1 && result.unexpected == 1);
    assert_values(luge_module_param(inner, "0"), 0, 0);
    assert_near(luge_item(luge_min(luge_module_param(inner, "1"), LUGE_ALL_AXES)), 1, 0);
    /* What is skipped is no difference. */
    assert_int_equal(luge_module_load(inner, path, &(luge_load_options){.skip = "1|2"}, &result), LUGE_OK);
    assert_true(result.loaded == 1 && result.mismatched == 0 && result.unexpected == 0);
    assert_int_equal(luge_module_load(inner, path, &(luge_load_options){.skip = "nothing"}, &result),
                     LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "matches \"nothing\" to skip");
    luge_module_destroy(model);
    luge_module_destroy(inner);
    luge_module_destroy(file);
}

static void sav_10_views_are_written_row_by_row(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const char *path = in_folder("f");
    luge_tensor *turned = luge_transpose(LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 2, 3, 4), 0, 1);
    luge_module *a = luge_nn_params(LUGE_LIST(turned)),
                *b = luge_nn_params(LUGE_LIST(luge_zeros(LUGE_SHAPE(2, 2), NULL)));
    assert_int_equal(luge_module_save(a, path), LUGE_OK);
    assert_int_equal(luge_module_load(b, path, NULL, NULL), LUGE_OK);
    assert_values(luge_module_param(b, "0"), 1, 3, 2, 4);
    luge_module_destroy(a);
    luge_module_destroy(b);
}

static void sav_10_overlapping_tensors_are_refused(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *a = luge_zeros(LUGE_SHAPE(10, 10), NULL), *b = luge_slice(a, 0, 0, 2), *c = luge_slice(a, 0, 2, 10);
    luge_module *m = luge_nn_params(LUGE_LIST(a, b)), *parts = luge_nn_params(LUGE_LIST(b, c));
    assert_int_equal(luge_module_save(m, in_folder("f")), LUGE_ERR_UNSUPPORTED);
    assert_error(LUGE_ERR_UNSUPPORTED, "0 and 1 overlap in memory");
    assert_int_equal(folder_count(), 0);
    assert_int_equal(luge_module_save(parts, in_folder("f")), LUGE_OK); /* side by side is fine */
    luge_module_destroy(parts);
    luge_module_destroy(m);
}

static void tie_build(luge_module *self, void *state)
{
    (void)state;
    luge_module *embed = luge_module_add(self, "embed", luge_nn_embedding(3, 2, NULL));
    luge_module *head = luge_module_add(self, "head", luge_nn_params(LUGE_LIST(luge_module_param(embed, "weight"))));
    luge_module_add_buffer(self, "scale", luge_ones(LUGE_SCALAR, NULL));
    (void)head;
}

static const luge_module_class tie_class = {.name = "Tied", .build = tie_build};

static void sav_10_ties_are_stored_once_and_hold(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const char *path = in_folder("f");
    luge_module *a = luge_module_create(&tie_class, NULL), *b = luge_module_create(&tie_class, NULL);
    assert_int_equal(luge_module_save(a, path), LUGE_OK);
    size_t size;
    char *text = (char *)read_file(path, &size);
    assert_non_null(strstr(text + 8, "\"head.0\":\"embed.weight\"")); /* as PyTorch's save_model notes it */
    assert_null(strstr(text + 8, "\"head.0\":{"));
    free(text);
    luge_load_result result;
    assert_int_equal(luge_module_load(b, path, NULL, &result), LUGE_OK);
    assert_int_equal(result.loaded, 2);
    assert_ptr_equal(luge_module_param(b, "embed.weight"), luge_module_param(b, "head.0"));
    assert_true(same_bits(luge_module_param(a, "head.0"), luge_module_param(b, "head.0")));
    {
        LUGE_NO_GRAD();
        luge_fill_(luge_module_param(b, "head.0"), 5);
    }
    assert_near(luge_item(luge_min(luge_module_param(b, "embed.weight"), LUGE_ALL_AXES)), 5, 0);
    luge_module_destroy(a);
    luge_module_destroy(b);
}

/* A file may have a tied tensor under another of its names, or under all. */
static void ties_are_found_under_any_name(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    static const char header[] = "{\"head.0\":{\"dtype\":\"U8\",\"shape\":[3,2],\"data_offsets\":[0,6]},"
                                 "\"scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[6,10]}}";
    unsigned char file[256] = {sizeof header - 1};
    memcpy(file + 8, header, sizeof header - 1);
    memcpy(file + 8 + sizeof header - 1, "\1\2\3\4\5\6\0\0\0@", 10);
    write_file(in_folder("f"), file, 8 + sizeof header - 1 + 10);
    luge_module *m = luge_module_create(&tie_class, NULL);
    assert_int_equal(luge_module_load(m, in_folder("f"), NULL, NULL), LUGE_OK);
    assert_values(luge_module_param(m, "embed.weight"), 1, 2, 3, 4, 5, 6);
    assert_values(luge_module_buffer(m, "scale"), 2);
    luge_module_destroy(m);
}

/* ---- files written by PyTorch */

typedef struct named {
    const char *name;
    luge_module *module;
} named;

static void named_build(luge_module *self, void *state)
{
    named *n = *(named **)state;
    for (; n->name != NULL; ++n) luge_module_add(self, n->name, n->module);
}

static const luge_module_class named_class = {.name = "Named", .state_size = sizeof(named *), .build = named_build};

static luge_tensor *through(luge_module *m, const char *name, luge_tensor *x)
{
    return luge_forward(luge_module_child(m, name), x);
}

static luge_module *load_sample(named *children, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "interop/safetensors/%s.safetensors", name);
    luge_module *m = luge_module_create(&named_class, &children);
    luge_load_result result;
    const luge_status status = luge_module_load(m, test_data(path), NULL, &result);
    if (status != LUGE_OK) fail_msg("%s", luge_error_text());
    luge_module_eval(m);
    return m;
}

static void a_pytorch_net_gives_pytorchs_numbers(void **state)
{
    (void)state;
    if (test_data("") == NULL) skip();
    LUGE_SCOPE("t");
    LUGE_NO_GRAD();
    static const double expected[] = {0.04971555,  -0.16849735, 0.05182848,  -0.18032673, 0.23138367,  0.05041867,
                                      0.13005908,  -0.32202929, -0.07915690, -0.03232457, -0.19790289, -0.17476529,
                                      -0.19627589, -0.21757686, -0.31376451, 0.08377837};
    named children[] = {{"conv1", luge_nn_conv2d(3, 4, 3, &(luge_conv2d_options){.padding = 1})},
                        {"norm1", luge_nn_batch_norm2d(4, NULL)},
                        {"fc1", luge_nn_linear(256, 16, NULL)},
                        {NULL, NULL}};
    luge_module *m = load_sample(children, "pytorch_multi_layer");
    luge_tensor *x = luge_ones(LUGE_SHAPE(1, 3, 8, 8), NULL);
    x = luge_relu(through(m, "norm1", through(m, "conv1", x)));
    double *y = values_of(through(m, "fc1", luge_flatten(x, 1, -1)));
    for (int i = 0; i < 16; ++i) assert_near(y[i], expected[i], 2e-7);
    free(y);
    luge_module_destroy(m);
}

static void a_trained_pytorch_net_reads_digits(void **state)
{
    (void)state;
    if (test_data("") == NULL) skip();
    LUGE_SCOPE("t");
    LUGE_NO_GRAD();
    named children[] = {{"conv1", luge_nn_conv2d(1, 8, 3, NULL)},   {"conv2", luge_nn_conv2d(8, 16, 3, NULL)},
                        {"conv3", luge_nn_conv2d(16, 24, 3, NULL)}, {"norm1", luge_nn_batch_norm2d(24, NULL)},
                        {"fc1", luge_nn_linear(11616, 32, NULL)},   {"fc2", luge_nn_linear(32, 10, NULL)},
                        {"norm2", luge_nn_batch_norm1d(10, NULL)},  {NULL, NULL}};
    luge_module *m = load_sample(children, "pytorch_mnist_cnn");
    luge_tensor *images = luge_read_idx(test_data("mnist/t10k-images-idx3-ubyte.gz")),
                *labels = luge_read_idx(test_data("mnist/t10k-labels-idx1-ubyte.gz"));
    const int count = on_cpu() ? 500 : 10; /* an emulated GPU is slow */
    luge_tensor *x = luge_reshape(luge_cast(there(luge_slice(images, 0, 0, count)), LUGE_F32), LUGE_SHAPE(count, 1, 28, 28));
    x = luge_mul_scalar(luge_add_scalar(luge_mul_scalar(x, 1 / 255.0), -0.1307), 1 / 0.3081);
    for (int i = 1; i <= 3; ++i) {
        char name[8];
        snprintf(name, sizeof name, "conv%d", i);
        x = luge_relu(through(m, name, x));
    }
    x = luge_flatten(through(m, "norm1", x), 1, -1);
    luge_tensor *logits = through(m, "norm2", through(m, "fc2", luge_relu(through(m, "fc1", x))));
    /* PyTorch in f64, first image. */
    static const double first[] = {-0.85099, -1.48741, -1.25595, -1.47106, -1.26021,
                                   -2.13442, -1.74878, 8.75707,  -1.58929, -0.89986};
    assert_ok();
    double *y = values_of(luge_select(logits, 0, 0));
    for (int i = 0; i < 10; ++i) assert_near(y[i], first[i], on_cpu() ? 2e-5 : 1e-4);
    free(y);
    luge_tensor *target = luge_cast(there(luge_slice(labels, 0, 0, count)), LUGE_I64);
    assert_true(luge_item(luge_accuracy(logits, target)) > 0.97);
    luge_module_destroy(m);
}

/* ---- what goes wrong */

static void arguments_are_checked(void **state)
{
    (void)state;
    luge_module *m = luge_nn_relu();
    luge_load_result result = {.loaded = 7};
    assert_int_equal(luge_module_save(NULL, "x"), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_module_save: the module is NULL");
    assert_int_equal(luge_module_save(m, NULL), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_module_save: the path is NULL");
    assert_int_equal(luge_module_load(NULL, "x", NULL, &result), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_module_load: the module is NULL");
    assert_int_equal(result.loaded, 0); /* written in every case */
    assert_string_equal(result.text, "");
    assert_int_equal(luge_module_load(m, NULL, NULL, NULL), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_module_load: the path is NULL");
    assert_int_equal(luge_module_load(m, "x", &(luge_load_options){.reserved = {1}}, NULL), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "luge_load_options: reserved");
    assert_int_equal(luge_module_load(m, "x", &(luge_load_options){.skip = "@none"}, NULL), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "\"@none\" is no class");
    assert_int_equal(luge_module_load(m, in_folder("nowhere"), NULL, NULL), LUGE_ERR_IO);
    assert_error(LUGE_ERR_IO, "nowhere: No such file");
    assert_int_equal(luge_module_save(m, in_folder("no/such/folder")), LUGE_ERR_IO);
    assert_error(LUGE_ERR_IO, "cannot create");
    assert_int_equal(luge_module_save(m, in_folder("")), LUGE_ERR_IO); /* a folder */
    luge_error_clear();
    luge_fail(LUGE_ERR_STATE, "standing");
    assert_int_equal(luge_module_save(m, in_folder("f")), LUGE_ERR_STATE);
    assert_int_equal(luge_module_load(m, in_folder("f"), NULL, &result), LUGE_ERR_STATE);
    luge_error_clear();
    assert_int_equal(folder_count(), 0);
    luge_module_destroy(m);
}

static void failing_loads_change_nothing(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *a = net(3), *b = net(3), *before = luge_module_clone(b);
    luge_module_to_dtype(b, LUGE_F64);
    luge_module_to_dtype(before, LUGE_F64);
    const char *path = in_folder("f");
    assert_int_equal(luge_module_save(a, path), LUGE_OK);
    for (int kind = 0; kind < 3; ++kind) {
        static const lg_fault_kind kinds[] = {LG_FAULT_FILE, LG_FAULT_HOST, LG_FAULT_DEVICE};
        luge_module *target = luge_module_clone(b);
        const luge_live_counts live = live_now();
        for (int64_t n = 1;; ++n) {
            LUGE_SCOPE("load");
            lg_fault_set(kinds[kind], n);
            luge_load_result result;
            const luge_status status = luge_module_load(target, path, NULL, &result);
            lg_fault_set(kinds[kind], 0);
            luge_error_clear();
            if (status == LUGE_OK) break;
            assert_same_values(target, before);
            assert_true(live_now().tensors == live.tensors && live_now().objects == live.objects);
        }
        luge_tensor *is = luge_cast(luge_detach(luge_module_param(target, "3.bias")), LUGE_F32);
        assert_true(same_bits(is, luge_module_param(a, "3.bias")));
        luge_module_destroy(target);
    }
    luge_module_destroy(a);
    luge_module_destroy(b);
    luge_module_destroy(before);
}

/* A file system that is full: a write is cut short, then refused. */
static void a_full_disk_is_an_error(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = luge_nn_linear(100, 100, NULL);
    assert_int_equal(luge_module_save(m, in_folder("f")), LUGE_OK);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 5000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const luge_status status = luge_module_save(m, in_folder("f"));
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, LUGE_ERR_IO);
    assert_error(LUGE_ERR_IO, "cannot write");
    assert_int_equal(folder_count(), 1);
    assert_int_equal(luge_module_load(m, in_folder("f"), NULL, NULL), LUGE_OK);
    luge_module_destroy(m);
}

/* Saves for ever, with all weights equal to a number that grows. */
static void save_for_ever(const char *path)
{
    LUGE_SCOPE("child");
    luge_module *m = luge_nn_linear(64, 64, NULL);
    LUGE_NO_GRAD();
    for (int k = 1; luge_ok(); ++k) {
        luge_fill_(luge_module_param(m, "weight"), k);
        luge_fill_(luge_module_param(m, "bias"), k);
        if (luge_module_save(m, path) != LUGE_OK) break;
    }
    _exit(1);
}

static void sav_01_killed_saves_leave_a_whole_file(void **state)
{
    (void)state;
    cpu_only(); /* children train */
    LUGE_SCOPE("t");
    const char *path = in_folder("f");
    luge_module *m = luge_nn_linear(64, 64, NULL);
    assert_int_equal(luge_module_save(m, path), LUGE_OK);
    uint32_t random = 1;
    double largest = 0;
    for (int i = 0; i < 100; ++i) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) save_for_ever(path);
        random = random * 1664525 + 1013904223;
        const struct timespec pause = {.tv_nsec = 1000000 + (long)((random >> 8) % 49) * 1000000};
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        assert_int_equal(luge_module_load(m, path, NULL, NULL), LUGE_OK);
        luge_tensor *w = luge_detach(luge_module_param(m, "weight")), *b = luge_detach(luge_module_param(m, "bias"));
        const double k = luge_item(luge_max(w, LUGE_ALL_AXES));
        if (i == 0 && k < 1) continue; /* killed before its first save */
        if (k >= 1)
            assert_true(luge_item(luge_min(w, LUGE_ALL_AXES)) == k && luge_item(luge_min(b, LUGE_ALL_AXES)) == k);
        largest = fmax(largest, k);
    }
    assert_true(largest >= 2);
    luge_module_destroy(m);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(what_is_saved_is_loaded),
        FILE_TEST(loading_converts_dtypes_and_layouts),
        FILE_TEST(sav_06_differences_are_listed_and_nothing_changes),
        FILE_TEST(sav_10_views_are_written_row_by_row),
        FILE_TEST(sav_10_overlapping_tensors_are_refused),
        FILE_TEST(sav_10_ties_are_stored_once_and_hold),
        FILE_TEST(ties_are_found_under_any_name),
        FILE_TEST(a_pytorch_net_gives_pytorchs_numbers),
        FILE_TEST(a_trained_pytorch_net_reads_digits),
        FILE_TEST(arguments_are_checked),
        FILE_TEST(failing_loads_change_nothing),
        FILE_TEST(a_full_disk_is_an_error),
        FILE_TEST(sav_01_killed_saves_leave_a_whole_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
