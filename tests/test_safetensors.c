/* The safetensors format: io/safetensors.h. Files of other programs, malformed files, damaged files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/fault.h"
#include "core/tensor.h"
#include "io/safetensors.h"
#include "tests/support/compare.h"
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

/* ---- making files */

/* A file of that header and data, at `name` in the test's folder. */
static const char *make_file(const char *name, const char *header, const void *data, size_t size)
{
    const size_t length = strlen(header);
    unsigned char *all = malloc(8 + length + size + 1);
    assert_non_null(all);
    for (int i = 0; i < 8; ++i) all[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(all + 8, header, length);
    if (size > 0) memcpy(all + 8 + length, data, size);
    const char *path = in_folder(name);
    write_file(path, all, 8 + length + size);
    free(all);
    return path;
}

static void assert_rejected(const char *path, luge_status code, const char *text)
{
    assert_null(lg_safetensors_open(path));
    if (luge_error() != code || strstr(luge_error_text(), text) == NULL) {
        fail_msg("%s: wanted %d with \"%s\", got %d: %s", path, (int)code, text, (int)luge_error(), luge_error_text());
    }
    luge_error_clear();
}

static void reject(const char *header, size_t data, const char *text)
{
    static const char zeros[64];
    assert_rejected(make_file("bad", header, zeros, data), LUGE_ERR_FORMAT, text);
}

/* Entry of that name, with the values expected. */
static void check_entry(lg_safetensors *s, const char *name, luge_dtype dtype, int count, const double *values)
{
    LUGE_SCOPE("entry");
    const int i = lg_safetensors_find(s, name);
    assert_true(i >= 0);
    assert_string_equal(lg_safetensors_entry(s, i)->name, name);
    luge_tensor *t = lg_safetensors_read(s, i);
    assert_ok();
    assert_int_equal(luge_tensor_dtype(t), dtype);
    assert_elements(t, count, values);
    luge_release(t);
}

/* ---- files of other programs */

static lg_safetensors *open_sample(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "interop/safetensors/%s.safetensors", name);
    const char *full = test_data(path);
    if (full == NULL) skip();
    lg_safetensors *s = lg_safetensors_open(full);
    assert_ok();
    return s;
}

static void samples_of_every_dtype(void **state)
{
    (void)state;
    static const double plain[] = {-3, -2, -1, 0, 1, 2};
    static const struct {
        const char *name;
        luge_dtype dtype;
        double values[6];
    } rows[] = {
        {"B", LUGE_U8, {253, 254, 255, 0, 1, 2}},
        {"H", LUGE_I32, {65533, 65534, 65535, 0, 1, 2}},
        {"I", LUGE_I64, {4294967293.0, 4294967294.0, 4294967295.0, 0, 1, 2}},
        {"b", LUGE_I32, {-3, -2, -1, 0, 1, 2}},
        {"d", LUGE_F64, {-3, -2, -1, 0, 1, 2}},
        {"e", LUGE_F16, {-3, -2, -1, 0, 1, 2}},
        {"f", LUGE_F32, {-3, -2, -1, 0, 1, 2}},
        {"h", LUGE_I32, {-3, -2, -1, 0, 1, 2}},
        {"i", LUGE_I32, {-3, -2, -1, 0, 1, 2}},
    };
    lg_safetensors *s = open_sample("hf_overall");
    assert_int_equal(lg_safetensors_count(s), 9);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i)
        check_entry(s, rows[i].name, rows[i].dtype, 6, rows[i].values);
    assert_int_equal(lg_safetensors_find(s, "x"), -1);
    lg_safetensors_close(s);
    s = open_sample("hf_f32");
    check_entry(s, "f", LUGE_F32, 6, plain);
    lg_safetensors_close(s);
    s = open_sample("hf_f16");
    check_entry(s, "e", LUGE_F16, 6, plain);
    lg_safetensors_close(s);
}

static void samples_with_odd_headers_and_shapes(void **state)
{
    (void)state;
    static const char *const empty[] = {"valid_empty_no_tensors", "valid_whitespace_leading_header",
                                        "valid_whitespace_trailing_header"};
    for (int i = 0; i < 3; ++i) {
        lg_safetensors *s = open_sample(empty[i]);
        assert_int_equal(lg_safetensors_count(s), 0);
        lg_safetensors_close(s);
    }
    lg_safetensors *s = open_sample("valid_scalar_shape");
    assert_int_equal(lg_safetensors_entry(s, 0)->shape.rank, 0);
    check_entry(s, "test", LUGE_I32, 1, (const double[]){0});
    lg_safetensors_close(s);
    s = open_sample("valid_zero_sized_tensor");
    check_entry(s, "test", LUGE_I32, 0, NULL);
    assert_int_equal(lg_safetensors_entry(s, 0)->shape.dim[0], 2);
    lg_safetensors_close(s);
    s = open_sample("numpy_f64_two_weights");
    assert_int_equal(lg_safetensors_count(s), 2);
    assert_int_equal(lg_safetensors_entry(s, lg_safetensors_find(s, "weight2"))->shape.dim[1], 16);
    lg_safetensors_close(s);
}

/* Every file of a folder must be refused, whatever is wrong with it. */
static void malformed_samples_are_refused(void **state)
{
    (void)state;
    const char *folder = test_data("interop/safetensors_malformed");
    if (folder == NULL) skip();
    char base[1024];
    snprintf(base, sizeof base, "%s", folder);
    DIR *dir = opendir(base);
    assert_non_null(dir);
    int count = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (strstr(e->d_name, ".safetensors") == NULL) continue;
        char path[2048];
        snprintf(path, sizeof path, "%s/%s", base, e->d_name);
        assert_rejected(path, LUGE_ERR_FORMAT, "is no safetensors file: ");
        ++count;
    }
    closedir(dir);
    assert_int_equal(count, 24);
}

/* ---- the pitfalls */

static void sav_07_shape_larger_than_byte_range(void **state)
{
    (void)state;
    reject("{\"t\":{\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]}}", 4,
           "\"t\" needs 4000000 bytes, but has 4");
}

static void sav_08_duplicate_keys(void **state)
{
    (void)state;
    reject("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
           "\"data_offsets\":[4,8]}}",
           8, "duplicate");
    reject("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "duplicate");
    reject("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "duplicate");
}

/* A file of n bytes of which the first 8 are the length. */
static void reject_length(uint64_t length, size_t size, const char *text)
{
    unsigned char data[32] = {0};
    for (int i = 0; i < 8; ++i) data[i] = (unsigned char)(length >> 8 * i);
    data[8] = '{';
    data[9] = '}';
    write_file(in_folder("bad"), data, size);
    const int64_t before = lg_alloc_live_bytes();
    assert_rejected(in_folder("bad"), LUGE_ERR_FORMAT, text);
    assert_int_equal(lg_alloc_live_bytes(), before);
}

static void sav_09_header_lengths(void **state)
{
    (void)state;
    reject_length(0, 0, "it has only 0 bytes");
    reject_length(2, 7, "it has only 7 bytes");
    reject_length(0, 10, "no JSON");
    reject_length(3, 10, "its header of 3 bytes is longer than the file");
    reject_length((uint64_t)1 << 63, 10, "longer than the 100000000 bytes");
    reject_length(101 << 20, 10, "longer than the 100000000 bytes");
    reject_length(UINT64_MAX, 10, "longer than");
    reject("x{}", 0, "no JSON");
    reject("\"a\":1", 0, "no JSON");
    reject("{\"\xff\":1}", 0, "no JSON");
    reject("[]", 0, "no JSON object");
    reject("{} {}", 0, "no JSON");
}

static void entries_are_checked(void **state)
{
    (void)state;
#define ENTRY(text) "{\"a\":{" text "}}"
    reject(ENTRY("\"shape\":[1],\"data_offsets\":[0,4]"), 4, "\"a\" has no dtype");
    reject(ENTRY("\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "no dtype");
    reject(ENTRY("\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "the unknown dtype \"f32\"");
    reject(ENTRY("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "no shape");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, "an impossible shape");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4, "an impossible shape");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]"), 4, "an impossible shape");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]"), 0,
           "more elements than fit");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[4611686018427387904,4,0],\"data_offsets\":[0,0]"), 0,
           "more elements than fit");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[1]"), 4, "no data_offsets");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, "no data_offsets");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4, "no data_offsets");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4, "no data_offsets");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]"), 4, "no data_offsets");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]"), 4, "behind the end of the file");
    reject(ENTRY("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]"), 4, "behind the end");
    reject(ENTRY("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"), 1, "needs 1 bytes");
    reject("{\"a\":1}", 0, "no dtype");
    reject("{\"__metadata__\":[]}", 0, "__metadata__ is no object");
    reject("{\"__metadata__\":{\"a\":1}}", 0, "\"a\" is no string");
#undef ENTRY
#define A(from, to) "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #from "," #to "]}"
#define B(from, to) "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #from "," #to "]}"
    reject("{" A(1, 5) "}", 5, "a hole before \"a\"");
    reject("{" A(0, 4) "," B(5, 9) "}", 9, "a hole before \"b\"");
    reject("{" A(0, 4) "," B(3, 7) "}", 7, "overlapping elements before \"b\"");
    reject("{" A(0, 4) "," B(0, 4) "}", 4, "overlapping");
    reject("{" A(0, 4) "}", 6, "2 bytes at the end belong to no tensor");
    /* In any order they may come, with more about them than we know. */
    const char *path = make_file(
        "good", "{" B(4, 8) ",\"a\":{\"dtype\":\"U8\",\"more\":{\"x\":[1]},\"shape\":[4],\"data_offsets\":[0,4]}}",
        (const char[]){1, 2, 3, 4, 5, 6, 7, 8}, 8);
#undef A
#undef B
    lg_safetensors *s = lg_safetensors_open(path);
    check_entry(s, "a", LUGE_U8, 4, (const double[]){1, 2, 3, 4});
    check_entry(s, "b", LUGE_U8, 4, (const double[]){5, 6, 7, 8});
    lg_safetensors_close(s);
}

static void what_cannot_be_read_can_be_skipped(void **state)
{
    (void)state;
    const char *path =
        make_file("u64", "{\"a\":{\"dtype\":\"U64\",\"shape\":[1],\"data_offsets\":[0,8]}}", "\1\0\0\0\0\0\0\0", 8);
    lg_safetensors *s = lg_safetensors_open(path);
    assert_non_null(s);
    assert_false(lg_safetensors_entry(s, 0)->readable);
    assert_null(lg_safetensors_read(s, 0));
    assert_error(LUGE_ERR_UNSUPPORTED, "\"a\" is U64, which luge has no dtype for");
    lg_safetensors_close(s);
    path = make_file("rank", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", "", 1);
    assert_rejected(path, LUGE_ERR_UNSUPPORTED, "\"a\" has 9 axes; luge has at most 8");
    path = make_file("bool", "{\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}", "\0\2\377", 3);
    s = lg_safetensors_open(path);
    check_entry(s, "a", LUGE_BOOL, 3, (const double[]){0, 1, 1});
    lg_safetensors_close(s);
}

static void files_that_are_none(void **state)
{
    (void)state;
    assert_rejected(in_folder("nowhere"), LUGE_ERR_IO, "cannot open ");
    assert_rejected(in_folder("."), LUGE_ERR_IO, "is not a regular file");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_rejected(in_folder("pipe"), LUGE_ERR_IO, "is not a regular file"); /* and does not wait */
}

/* ---- writing */

static void every_dtype_comes_back(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    static const char *const names[] = {"f32", "f64", "f16", "bf16", "i64", "i32", "u8", "bool"};
    lg_st_tensor tensors[10];
    for (int d = 0; d < 8; ++d) {
        luge_tensor *t = luge_cast(LUGE_TENSOR(LUGE_SHAPE(2, 3), 0, 1, 2, 3, 100, 0.5), (luge_dtype)d);
        tensors[d] = (lg_st_tensor){.name = names[d], .tensor = t};
    }
    tensors[8] = (lg_st_tensor){.name = "scalar \xc3\xa4 \"quoted\"", .tensor = luge_full(LUGE_SCALAR, 7, NULL)};
    tensors[9] = (lg_st_tensor){.name = "", .tensor = luge_zeros(LUGE_SHAPE(3, 0), NULL)};
    const char *path = in_folder("all.safetensors");
    assert_int_equal(lg_safetensors_write(path, tensors, 10), LUGE_OK);
    lg_safetensors *s = lg_safetensors_open(path);
    assert_ok();
    assert_int_equal(lg_safetensors_count(s), 10);
    for (int i = 0; i < 10; ++i) {
        const int at = lg_safetensors_find(s, tensors[i].name);
        assert_true(at >= 0);
        const lg_st_entry *e = lg_safetensors_entry(s, at);
        assert_true(e->begin % lg_element_size(tensors[i].tensor) == 0); /* aligned, also in the file */
        luge_tensor *t = lg_safetensors_read(s, at);
        assert_true(same_bits(t, tensors[i].tensor));
        luge_release(t);
    }
    lg_safetensors_close(s);
    assert_int_equal(folder_count(), 1);
}

static void headers_are_what_pytorch_expects(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2);
    const lg_st_tensor tensors[] = {{.name = "w", .tensor = w}, {.name = "v", .tensor = w, .alias_of = "w"}};
    assert_int_equal(lg_safetensors_write(in_folder("f"), tensors, 2), LUGE_OK);
    static const char expected[] = "\x68\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\",\"v\":\"w\"},"
                                   "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}              "
                                   "\0\0\x80?\0\0\0@";
    size_t size;
    unsigned char *data = read_file(in_folder("f"), &size);
    const size_t length = data[0];
    assert_true((8 + length) % 8 == 0);
    assert_memory_equal(data + 8, expected + 8, 100 - 8 - 4);
    assert_memory_equal(data + size - 8, "\0\0\x80?\0\0\0@", 8);
    assert_int_equal(size, 8 + length + 8);
    free(data);
}

static void names_are_checked(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = luge_zeros(LUGE_SHAPE(2), NULL);
    static const char *const bad[] = {"__metadata__", "\xff\xfe", "a\xc3"};
    for (int i = 0; i < 3; ++i) {
        const lg_st_tensor tensor = {.name = bad[i], .tensor = w};
        assert_int_equal(lg_safetensors_write(in_folder("f"), &tensor, 1), LUGE_ERR_ARGUMENT);
        assert_error(LUGE_ERR_ARGUMENT, "cannot be saved as safetensors");
    }
    assert_int_equal(folder_count(), 0);
}

static void sav_09_the_writer_keeps_to_the_readers_limit(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    enum { COUNT = 60, NAME = 2 << 20 };
    luge_tensor *w = luge_zeros(LUGE_SHAPE(1), NULL);
    lg_st_tensor tensors[COUNT];
    char *names = malloc((size_t)COUNT * NAME);
    assert_non_null(names);
    memset(names, 'x', (size_t)COUNT * NAME);
    for (int i = 0; i < COUNT; ++i) {
        char *name = names + (size_t)i * NAME;
        name[0] = (char)('A' + i % 26);
        name[1] = (char)('a' + i / 26);
        name[NAME - 1] = '\0';
        tensors[i] = (lg_st_tensor){.name = name, .tensor = w};
    }
    assert_int_equal(lg_safetensors_write(in_folder("f"), tensors, COUNT), LUGE_ERR_UNSUPPORTED);
    assert_error(LUGE_ERR_UNSUPPORTED, "larger than readers accept");
    assert_int_equal(folder_count(), 0);
    free(names);
}

/* ---- damaged files */

/* Whatever bytes change, reading ends with a tensor or an error, and nothing is left behind. */
static void damaged_files_are_survived(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const lg_st_tensor tensors[] = {{.name = "a.weight", .tensor = luge_randn(LUGE_SHAPE(2, 3), NULL)},
                                    {.name = "b", .tensor = luge_zeros(LUGE_SHAPE(0), NULL)},
                                    {.name = "c", .tensor = LABELS(1, 2, 3)}};
    assert_int_equal(lg_safetensors_write(in_folder("good"), tensors, 3), LUGE_OK);
    size_t size;
    unsigned char *good = read_file(in_folder("good"), &size), *bad = malloc(size);
    assert_non_null(bad);
    uint32_t random = 12345;
    int opened = 0, refused = 0;
    for (int run = 0; run < 3000; ++run) {
        memcpy(bad, good, size);
        size_t length = size;
        for (int k = 0; k <= run % 3; ++k) {
            random = random * 1664525 + 1013904223;
            static const char likely[] = "0123456789,:[]{}\"-";
            const size_t at = (random >> 8) % (k == 0 ? size : 170);
            bad[at] =
                run % 2 ? (unsigned char)likely[(random >> 3) % (sizeof likely - 1)] : (unsigned char)(random >> 20);
        }
        if (run % 10 == 0) length = (random >> 7) % size;
        write_file(in_folder("bad"), bad, length);
        lg_safetensors *s = lg_safetensors_open(in_folder("bad"));
        opened += s != NULL;
        refused += s == NULL;
        for (int i = 0; s != NULL && i < lg_safetensors_count(s); ++i) luge_release(lg_safetensors_read(s, i));
        lg_safetensors_close(s);
        luge_error_clear();
    }
    assert_true(opened > 100 && refused > 1000);
    free(good);
    free(bad);
}

/* Each request to the system fails in turn; the file that was there stays. */
static void failing_writes_leave_the_old_file(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const lg_st_tensor old = {.name = "w", .tensor = luge_full(LUGE_SHAPE(3), 1, NULL)},
                       new = {.name = "w", .tensor = luge_full(LUGE_SHAPE(3), 2, NULL)};
    const char *path = in_folder("file");
    for (int kind = 0; kind < 3; ++kind) {
        static const lg_fault_kind kinds[] = {LG_FAULT_FILE, LG_FAULT_HOST, LG_FAULT_DEVICE};
        assert_int_equal(lg_safetensors_write(path, &old, 1), LUGE_OK);
        for (int64_t n = 1;; ++n) {
            lg_fault_set(kinds[kind], n);
            const luge_status status = lg_safetensors_write(path, &new, 1);
            const bool hit = lg_fault_hit(kinds[kind]);
            lg_fault_set(kinds[kind], 0);
            luge_error_clear();
            assert_int_equal(folder_count(), 1); /* no temporary file */
            lg_safetensors *s = lg_safetensors_open(path);
            luge_tensor *t = lg_safetensors_read(s, 0);
            assert_ok();
            const double value = luge_item(luge_select(t, 0, 0));
            luge_release(t);
            lg_safetensors_close(s);
            if (!hit) {
                assert_int_equal(status, LUGE_OK);
                assert_true(value == 2);
                break;
            }
            assert_int_not_equal(status, LUGE_OK);
            /* After the rename only the sync of the directory can fail: then it is the new one. */
            assert_true(value == 1 || (kinds[kind] == LG_FAULT_FILE && n >= 7) ||
                        (kinds[kind] == LG_FAULT_HOST && value == 2));
        }
    }
}

/* What the system is asked for, in this order; each failure tells what it was. */
static int asked_for(const char *text)
{
    static const char *const order[] = {"cannot create ",
                                        "cannot write ",
                                        "cannot sync ",
                                        "cannot close ",
                                        "cannot replace ",
                                        "cannot sync the directory ",
                                        "cannot close the directory "};
    for (int i = 6; i >= 0; --i) {
        if (strstr(text, order[i]) != NULL) return i;
    }
    return -1;
}

static void sav_02_sync_before_rename_and_after(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const lg_st_tensor tensor = {.name = "w", .tensor = luge_zeros(LUGE_SHAPE(3), NULL)};
    int last = 0;
    for (int64_t n = 1;; ++n) {
        lg_fault_set(LG_FAULT_FILE, n);
        const luge_status status = lg_safetensors_write(in_folder("file"), &tensor, 1);
        lg_fault_set(LG_FAULT_FILE, 0);
        if (status == LUGE_OK) break;
        const int now = asked_for(luge_error_text());
        luge_error_clear();
        assert_true(now == last || now == last + 1);
        last = now;
    }
    assert_int_equal(last, 6);
}

static void failing_reads_are_errors(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    const lg_st_tensor tensor = {.name = "w", .tensor = luge_full(LUGE_SHAPE(3), 1, NULL)};
    assert_int_equal(lg_safetensors_write(in_folder("file"), &tensor, 1), LUGE_OK);
    for (int kind = 0; kind < 3; ++kind) {
        static const lg_fault_kind kinds[] = {LG_FAULT_FILE, LG_FAULT_HOST, LG_FAULT_DEVICE};
        for (int64_t n = 1;; ++n) {
            lg_fault_set(kinds[kind], n);
            lg_safetensors *s = lg_safetensors_open(in_folder("file"));
            luge_tensor *t = s != NULL ? lg_safetensors_read(s, 0) : NULL;
            const bool hit = lg_fault_hit(kinds[kind]);
            lg_fault_set(kinds[kind], 0);
            assert_int_equal(t != NULL, luge_ok());
            luge_error_clear();
            luge_release(t);
            lg_safetensors_close(s);
            if (!hit) break;
        }
    }
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(samples_of_every_dtype),
        FILE_TEST(samples_with_odd_headers_and_shapes),
        FILE_TEST(malformed_samples_are_refused),
        FILE_TEST(sav_07_shape_larger_than_byte_range),
        FILE_TEST(sav_08_duplicate_keys),
        FILE_TEST(sav_09_header_lengths),
        FILE_TEST(entries_are_checked),
        FILE_TEST(what_cannot_be_read_can_be_skipped),
        FILE_TEST(files_that_are_none),
        FILE_TEST(every_dtype_comes_back),
        FILE_TEST(headers_are_what_pytorch_expects),
        FILE_TEST(names_are_checked),
        FILE_TEST(sav_09_the_writer_keeps_to_the_readers_limit),
        FILE_TEST(damaged_files_are_survived),
        FILE_TEST(failing_writes_leave_the_old_file),
        FILE_TEST(sav_02_sync_before_rename_and_after),
        FILE_TEST(failing_reads_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
