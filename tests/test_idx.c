/* The idx reader and luge_dataset_mnist: good files, every way a file can be wrong, every failure of
 * memory and files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <luge/luge.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "core/fault.h"
#include "core/memory.h"
#include "core/thread.h"
#include "tests/support/device.h"
#include "tests/support/expect.h"

static char dir[] = "/tmp/luge-test-idx-XXXXXX";
static luge_live_counts baseline;

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    if (d == NULL) return 0;
    int n = 0;
    while (readdir(d) != NULL) ++n;
    closedir(d);
    return n;
}

static int files_before;

static int begin(void **state)
{
    (void)state;
    baseline = luge_live();
    files_before = open_files();
    return 0;
}

static int end(void **state)
{
    (void)state;
    lg_fault_set(LG_FAULT_HOST, 0);
    lg_fault_set(LG_FAULT_FILE, 0);
    lg_fault_set(LG_FAULT_DEVICE, 0);
    luge_error_clear();
    lg_scope_close_all(lg_self()); /* copies that were looked at */
    const luge_live_counts now = luge_live();
    assert_int_equal(now.tensors, baseline.tensors);
    assert_int_equal(now.storages, baseline.storages);
    assert_int_equal(now.objects, baseline.objects);
    assert_int_equal(now.host_bytes, baseline.host_bytes);
    assert_int_equal(open_files(), files_before);
    return 0;
}

/* ---- files made here */

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void write_plain(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* zlib's own writer, so that the reader is not checked against itself. */
static void write_gzip(const char *name, const void *data, size_t n)
{
    gzFile f = gzopen(path_of(name), "wb9");
    assert_non_null(f);
    if (n > 0) assert_int_equal(gzwrite(f, data, (unsigned)n), n);
    assert_int_equal(gzclose(f), Z_OK);
}

/* An idx file's bytes: `rank` sizes and the elements 1, 2, 3, ... (mod 251). Free it. */
static unsigned char *idx_bytes(int rank, const uint32_t *dims, size_t elements, size_t *n)
{
    unsigned char *b = malloc(4 + 4 * (size_t)rank + elements);
    assert_non_null(b);
    memcpy(b, (unsigned char[]){0, 0, 8, (unsigned char)rank}, 4);
    for (int i = 0; i < rank; ++i)
        for (int k = 0; k < 4; ++k) b[4 + 4 * i + k] = (unsigned char)(dims[i] >> (24 - 8 * k));
    for (size_t i = 0; i < elements; ++i) b[4 + 4 * (size_t)rank + i] = (unsigned char)((i + 1) % 251);
    *n = 4 + 4 * (size_t)rank + elements;
    return b;
}

static void write_idx(const char *name, bool gzip, int rank, const uint32_t *dims)
{
    size_t elements = 1, n;
    for (int i = 0; i < rank; ++i) elements *= dims[i];
    unsigned char *b = idx_bytes(rank, dims, elements, &n);
    (gzip ? write_gzip : write_plain)(name, b, n);
    free(b);
}

/* The reader refuses the file with this code and says this. */
static void refused(const char *name, luge_status code, const char *says)
{
    const int64_t live = luge_live().tensors;
    assert_null(luge_read_idx(path_of(name)));
    assert_non_null(strstr(luge_error_text(), name));
    expect_error(code, says);
    assert_int_equal(luge_live().tensors, live);
}

static void refused_bytes(const void *data, size_t n, luge_status code, const char *says)
{
    write_plain("bytes", data, n);
    refused("bytes", code, says);
}

/* ---- good files */

static void reads_plain_and_gzip_whatever_they_are_called(void **state)
{
    (void)state;
    const uint32_t dims[] = {3, 4, 5};
    const struct { const char *name; bool gzip; } file[] = {{"a", false}, {"a.gz", true}, {"b.gz", false}, {"b", true}};
    for (int i = 0; i < 4; ++i) {
        LUGE_SCOPE("file");
        write_idx(file[i].name, file[i].gzip, 3, dims);
        luge_tensor *t = luge_read_idx(path_of(file[i].name));
        assert_non_null(t);
        assert_int_equal(luge_tensor_dtype(t), LUGE_U8);
        const luge_shape shape = luge_tensor_shape(t);
        assert_int_equal(shape.rank, 3);
        for (int k = 0; k < 3; ++k) assert_int_equal(shape.dim[k], dims[k]);
        const uint8_t *v = luge_tensor_data(t, LUGE_U8);
        for (int k = 0; k < 60; ++k) assert_int_equal(v[k], k + 1);
    }
}

static void reads_more_than_one_chunk(void **state)
{
    (void)state;
    LUGE_SCOPE("file");
    const uint32_t dims[] = {400000};
    write_idx("long.gz", true, 1, dims);
    luge_tensor *t = luge_read_idx(path_of("long.gz"));
    assert_int_equal(luge_tensor_numel(t), 400000);
    const uint8_t *v = luge_tensor_data(t, LUGE_U8);
    for (int k = 0; k < 400000; ++k)
        if (v[k] != (k + 1) % 251) fail_msg("element %d is %d", k, v[k]);
}

static void reads_empty_sets_and_the_largest_rank(void **state)
{
    (void)state;
    LUGE_SCOPE("file");
    write_idx("none", false, 3, (uint32_t[]){0, 28, 28});
    write_idx("none.gz", true, 3, (uint32_t[]){0, 28, 28});
    write_idx("rank8", false, 8, (uint32_t[]){1, 1, 2, 1, 1, 1, 3, 1});
    assert_int_equal(luge_tensor_size(luge_read_idx(path_of("none")), 1), 28);
    assert_int_equal(luge_tensor_numel(luge_read_idx(path_of("none.gz"))), 0);
    assert_int_equal(luge_tensor_shape(luge_read_idx(path_of("rank8"))).rank, 8);
    assert_true(luge_ok());
}

/* ---- bad files */

/* A gzip file is read; one inside of another is named for what it is, and its magic 0x1F8B0808 =
 * 529205256 is not taken for sizes. */
static void IMG_02_gzip_given_as_idx(void **state)
{
    (void)state;
    const unsigned char magic[] = {0x1f, 0x8b, 0x08, 0x08, 0, 0, 0, 0, 0, 3, 'a', 0, 1, 2, 3};
    assert_int_equal((magic[0] << 24) | (magic[1] << 16) | (magic[2] << 8) | magic[3], 529205256);
    refused_bytes(magic, 2, LUGE_ERR_FORMAT, "gzip");
    refused_bytes(magic, sizeof magic, LUGE_ERR_FORMAT, "gzip");

    size_t n;
    unsigned char *b = idx_bytes(1, (uint32_t[]){5}, 5, &n);
    write_gzip("inner", b, n);
    free(b);
    FILE *f = fopen(path_of("inner"), "rb");
    unsigned char packed[128];
    const size_t packed_n = fread(packed, 1, sizeof packed, f);
    fclose(f);
    write_gzip("outer", packed, packed_n);
    refused("outer", LUGE_ERR_FORMAT, "gzip-compressed");
}

static void IMG_03_html_page_saved_as_dataset(void **state)
{
    (void)state;
    char page[727];
    memset(page, ' ', sizeof page);
    memcpy(page, "<!DOCTYPE html>", 15);
    refused_bytes(page, sizeof page, LUGE_ERR_FORMAT, "HTML");
    refused_bytes("\n  <html>", 9, LUGE_ERR_FORMAT, "HTML");
    write_gzip("page.gz", page, sizeof page);
    refused("page.gz", LUGE_ERR_FORMAT, "HTML");

    refused_bytes("", 0, LUGE_ERR_FORMAT, "empty");
    refused_bytes("\0\0\10", 3, LUGE_ERR_FORMAT, "3 bytes");
    write_gzip("empty.gz", "", 0);
    refused("empty.gz", LUGE_ERR_FORMAT, "empty");
    refused_bytes("PK\3\4 zip", 8, LUGE_ERR_FORMAT, "50 4b 03 04");
}

/* 32768 * 32768 * 4 is 0 in 32 bits; 2^32 - 1 three times over is more than 64 hold. */
static void IMG_04_sizes_that_overflow(void **state)
{
    (void)state;
    size_t n;
    const int64_t requests = luge_memory_get_stats(luge_device_cpu()).allocations;
    unsigned char *b = idx_bytes(3, (uint32_t[]){32768, 32768, 4}, 1008, &n);
    assert_int_equal(n, 1024);
    write_plain("big", b, n);
    refused("big", LUGE_ERR_FORMAT, "1024 bytes");
    refused("big", LUGE_ERR_FORMAT, "4294967312");
    write_gzip("big.gz", b, n);
    refused("big.gz", LUGE_ERR_FORMAT, "cannot hold");
    free(b);
    b = idx_bytes(3, (uint32_t[]){UINT32_MAX, UINT32_MAX, UINT32_MAX}, 0, &n);
    write_plain("bigger", b, n);
    refused("bigger", LUGE_ERR_FORMAT, "impossible");
    write_gzip("bigger.gz", b, n);
    refused("bigger.gz", LUGE_ERR_FORMAT, "impossible");
    free(b);
    /* nothing was allocated on the strength of such a header */
    assert_int_equal(luge_memory_get_stats(luge_device_cpu()).allocations, requests);
}

static void every_cut_and_every_extra_byte_is_an_error(void **state)
{
    (void)state;
    size_t n;
    unsigned char *b = idx_bytes(2, (uint32_t[]){3, 7}, 21, &n);
    write_gzip("whole.gz", b, n);
    for (size_t cut = 0; cut < n; ++cut) {
        write_plain("cut", b, cut);
        refused("cut", LUGE_ERR_FORMAT, "");
        write_gzip("cut.gz", b, cut); /* whole as gzip, short as idx */
        refused("cut.gz", LUGE_ERR_FORMAT, "");
    }
    b = realloc(b, n + 1);
    b[n] = 0;
    write_plain("extra", b, n + 1);
    refused("extra", LUGE_ERR_FORMAT, "follow");
    write_gzip("extra.gz", b, n + 1);
    refused("extra.gz", LUGE_ERR_FORMAT, "follow");
    free(b);

    unsigned char packed[256];
    FILE *f = fopen(path_of("whole.gz"), "rb");
    const size_t packed_n = fread(packed, 1, sizeof packed - 1, f);
    fclose(f);
    for (size_t cut = 1; cut < packed_n; ++cut) {
        write_plain("cut.gz", packed, cut);
        refused("cut.gz", LUGE_ERR_FORMAT, "");
    }
    packed[packed_n] = 'x';
    write_plain("trailing.gz", packed, packed_n + 1);
    refused("trailing.gz", LUGE_ERR_FORMAT, "follow");
    packed[packed_n - 6] ^= 1; /* in the checksum */
    write_plain("checksum.gz", packed, packed_n);
    refused("checksum.gz", LUGE_ERR_FORMAT, "damaged");
}

/* A few kilobytes that unpack to 8 MB, behind a header that says 10 elements. */
static void gzip_bomb_is_bounded_by_its_header(void **state)
{
    (void)state;
    const size_t bytes = 8 << 20;
    unsigned char *zeros = calloc(bytes, 1);
    memcpy(zeros, (unsigned char[]){0, 0, 8, 1, 0, 0, 0, 10}, 8);
    write_gzip("bomb", zeros, bytes);
    free(zeros);
    luge_memory_reset_peak(luge_device_cpu());
    const int64_t before = luge_memory_get_stats(luge_device_cpu()).allocated_peak;
    refused("bomb", LUGE_ERR_FORMAT, "follow");
    assert_true(luge_memory_get_stats(luge_device_cpu()).allocated_peak - before < 65536);
}

static void other_types_and_ranks_are_refused(void **state)
{
    (void)state;
    refused_bytes("\0\0\x0d\1\0\0\0\1\0\0\0\0", 12, LUGE_ERR_UNSUPPORTED, "f32");
    refused_bytes("\0\0\x07\1\0\0\0\1\0", 9, LUGE_ERR_FORMAT, "not an idx file");
    refused_bytes("\0\0\10\0\0", 5, LUGE_ERR_FORMAT, "rank 0");
    refused_bytes("\0\0\10\11\0\0\0\1", 8, LUGE_ERR_FORMAT, "rank 9");
}

static void what_is_no_file(void **state)
{
    (void)state;
    refused("absent", LUGE_ERR_IO, "No such file");
    mkdir(path_of("folder"), 0700);
    refused("folder", LUGE_ERR_IO, "not a regular file");
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    refused("pipe", LUGE_ERR_IO, "not a regular file"); /* and does not wait for a writer */
    assert_null(luge_read_idx(NULL));
    assert_int_equal(luge_error(), LUGE_ERR_ARGUMENT);
    write_idx("good", false, 1, (uint32_t[]){4});
    assert_null(luge_read_idx(path_of("good"))); /* an error stands */
}

/* ---- MNIST's directories */

/* A set of `n` training and 2 test images of 2 x 2, all with the pixels and labels 1, 2, 3, ... */
static void write_set(const char *infix, bool gzip, uint32_t n)
{
    const char *gz = gzip ? ".gz" : "";
    char name[64];
    snprintf(name, sizeof name, "train-images%cidx3-ubyte%s", *infix, gz);
    write_idx(name, gzip, 3, (uint32_t[]){n, 2, 2});
    snprintf(name, sizeof name, "train-labels%cidx1-ubyte%s", *infix, gz);
    write_idx(name, gzip, 1, (uint32_t[]){n});
    snprintf(name, sizeof name, "t10k-images%cidx3-ubyte%s", *infix, gz);
    write_idx(name, gzip, 3, (uint32_t[]){2, 2, 2});
    snprintf(name, sizeof name, "t10k-labels%cidx1-ubyte%s", *infix, gz);
    write_idx(name, gzip, 1, (uint32_t[]){2});
}

static void remove_set(void)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strstr(e->d_name, "ubyte") != NULL) unlink(path_of(e->d_name));
    closedir(d);
}

/* The first batch holds pixels 1, 2, ... normalised by the training set's 1 .. 4n, and labels 1, 2, ... */
static void check_set(luge_part part, uint32_t n, int64_t size)
{
    luge_loader *loader = luge_loader_create(luge_dataset_mnist(dir, part), 2, NULL);
    luge_batch b;
    assert_true(luge_loader_next(loader, &b));
    assert_int_equal(luge_loader_batches(loader, 1), (size + 1) / 2);
    assert_int_equal(luge_tensor_shape(b.input).rank, 4);
    assert_int_equal(luge_tensor_size(b.input, 1), 1);
    const double m = 4.0 * n;
    const double mean = (m + 1) / 2, deviation = sqrt((m * m - 1) / 12);
    const float *v = data_of(b.input, LUGE_F32);
    for (int i = 0; i < 8; ++i) assert_near(v[i], (i + 1 - mean) / deviation, 1e-6);
    const int64_t *label = data_of(b.target, LUGE_I64);
    assert_int_equal(label[0], 1);
    assert_int_equal(label[1], 2);
    luge_loader_destroy(loader);
}

static void mnist_directories_in_all_spellings(void **state)
{
    (void)state;
    for (int i = 0; i < 4; ++i) {
        remove_set();
        write_set(i & 1 ? "-" : ".", i & 2, 10);
        check_set(LUGE_TRAIN, 10, 10);
        check_set(LUGE_TEST, 10, 2); /* by the statistics of the training images */
    }
    unlink(path_of("train-images-idx3-ubyte.gz"));
    check_set(LUGE_TEST, 2, 2); /* of its own 1 .. 8 */
}

static void set_refused(luge_part part, luge_status code, const char *says)
{
    assert_null(luge_dataset_mnist(dir, part));
    expect_error(code, says);
}

static void mnist_directories_that_are_wrong(void **state)
{
    (void)state;
    remove_set();
    set_refused(LUGE_TRAIN, LUGE_ERR_IO, "train-images-idx3-ubyte: not there");
    write_set("-", false, 10);
    unlink(path_of("train-labels-idx1-ubyte"));
    set_refused(LUGE_TRAIN, LUGE_ERR_IO, "train-labels-idx1-ubyte: not there");
    write_idx("train-labels-idx1-ubyte", false, 1, (uint32_t[]){9});
    set_refused(LUGE_TRAIN, LUGE_ERR_FORMAT, "10 images in train-images but 9 labels");
    write_idx("train-labels-idx1-ubyte", false, 3, (uint32_t[]){10, 1, 1});
    set_refused(LUGE_TRAIN, LUGE_ERR_FORMAT, "expected 1");
    write_idx("train-images-idx3-ubyte", false, 1, (uint32_t[]){10});
    set_refused(LUGE_TRAIN, LUGE_ERR_FORMAT, "expected 3");
    set_refused(LUGE_TEST, LUGE_ERR_FORMAT, "expected 3"); /* statistics from a damaged file: refused too */

    assert_null(luge_dataset_mnist("/no/such/place", LUGE_TRAIN));
    assert_non_null(strstr(luge_error_text(), "no such directory"));
    luge_error_clear();
    assert_null(luge_dataset_mnist(NULL, LUGE_TRAIN));
    assert_int_equal(luge_error(), LUGE_ERR_ARGUMENT);
    luge_error_clear();
    assert_null(luge_dataset_mnist(dir, (luge_part)2));
    assert_int_equal(luge_error(), LUGE_ERR_ARGUMENT);
}

static void every_failure_of_memory_and_files_is_returned(void **state)
{
    (void)state;
    remove_set();
    write_set("-", true, 10);
    luge_memory_empty_cache(luge_device_cpu());
    const lg_fault_kind kinds[] = {LG_FAULT_HOST, LG_FAULT_FILE, LG_FAULT_DEVICE};
    for (int k = 0; k < 3; ++k) {
        int failures = 0;
        for (int nth = 1;; ++nth) {
            lg_fault_set(kinds[k], nth);
            luge_dataset *d = luge_dataset_mnist(dir, LUGE_TEST);
            const bool hit = lg_fault_hit(kinds[k]);
            lg_fault_set(kinds[k], 0);
            luge_dataset_destroy(d);
            if (!hit) {
                assert_non_null(d);
                break;
            }
            assert_null(d);
            assert_int_equal(luge_error(), kinds[k] == LG_FAULT_FILE ? LUGE_ERR_IO : LUGE_ERR_OUT_OF_MEMORY);
            luge_error_clear();
            ++failures;
        }
        assert_true(failures >= 3);
    }
}

static void the_real_mnist(void **state)
{
    (void)state;
    const char *data = getenv("LUGE_TEST_DATA");
    if (data == NULL) skip();
    char path[1024];
    snprintf(path, sizeof path, "%s/mnist", data);
    luge_loader *loader = luge_loader_create(luge_dataset_mnist(path, LUGE_TRAIN), 60000, NULL);
    luge_batch b;
    assert_true(luge_loader_next(loader, &b));
    assert_int_equal(b.size, 60000);
    const float *v = data_of(b.input, LUGE_F32);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < luge_tensor_numel(b.input); ++i) {
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
    }
    const double n = (double)luge_tensor_numel(b.input);
    assert_near(sum / n, 0, 1e-6);
    assert_near(squares / n, 1, 1e-6);
    /* background is -mean / std of the published 0.1307 and 0.3081 */
    assert_near(v[0], -0.1306604763 / 0.3081078038, 1e-6);
    const int first[] = {5, 0, 4, 1, 9, 2, 1, 3, 1, 4};
    const int64_t *label = data_of(b.target, LUGE_I64);
    for (int i = 0; i < 10; ++i) assert_int_equal(label[i], first[i]);
    luge_loader_destroy(loader);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
    (void)state;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' && unlink(path_of(e->d_name)) != 0) rmdir(path_of(e->d_name));
    closedir(d);
    return rmdir(dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    luge_memory_get_stats(luge_device_cpu()); /* starts the library, which keeps some memory */
    const struct CMUnitTest tests[] = {
        TEST(reads_plain_and_gzip_whatever_they_are_called),
        TEST(reads_more_than_one_chunk),
        TEST(reads_empty_sets_and_the_largest_rank),
        TEST(IMG_02_gzip_given_as_idx),
        TEST(IMG_03_html_page_saved_as_dataset),
        TEST(IMG_04_sizes_that_overflow),
        TEST(every_cut_and_every_extra_byte_is_an_error),
        TEST(gzip_bomb_is_bounded_by_its_header),
        TEST(other_types_and_ranks_are_refused),
        TEST(what_is_no_file),
        TEST(mnist_directories_in_all_spellings),
        TEST(mnist_directories_that_are_wrong),
        TEST(every_failure_of_memory_and_files_is_returned),
        TEST(the_real_mnist),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
