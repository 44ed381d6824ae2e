/* MNIST and what is published in its form, like Fashion-MNIST: four idx files in one directory. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "data/dataset.h"

/* The names in use: "train-images-idx3-ubyte" and "train-images.idx3-ubyte", with or without ".gz". */
static const char *const stem[][2] = {
    [LUGE_TRAIN] = {"train-images", "train-labels"},
    [LUGE_TEST] = {"t10k-images", "t10k-labels"},
};
static const char *const ending[][2] = {
    {"-idx3-ubyte", "-idx1-ubyte"},
    {"-idx3-ubyte.gz", "-idx1-ubyte.gz"},
    {".idx3-ubyte", ".idx1-ubyte"},
    {".idx3-ubyte.gz", ".idx1-ubyte.gz"},
};
enum { IMAGES, LABELS, ENDINGS = sizeof ending / sizeof *ending, LONGEST_NAME = 32 };

/* The file's path in `path`, which has room for it; false if there is none under any name. */
static bool find_file(char *path, size_t size, const char *dir, luge_part part, int what)
{
    for (int i = 0; i < ENDINGS; ++i) {
        snprintf(path, size, "%s/%s%s", dir, stem[part][what], ending[i][what]);
        if (access(path, F_OK) == 0) return true;
    }
    return false;
}

static luge_status missing(const char *dir, luge_part part, int what)
{
    const char *reason = access(dir, F_OK) == 0 ? "" : " (there is no such directory)";
    return lg_fail(LUGE_ERR_IO,
                   "%s/%s%s: not there, nor with .gz%s. Get MNIST's four files (Debian's package "
                   "dataset-fashion-mnist has Fashion-MNIST's, in /usr/share/datasets/fashion-mnist)",
                   dir, stem[part][what], ending[0][what], reason);
}

/* Reads one of the four files; the caller owns it. `optional`: NULL without an error if it is not there. */
static luge_tensor *read_file(const char *dir, luge_part part, int what, bool optional)
{
    const size_t size = strlen(dir) + LONGEST_NAME;
    char *path = lg_alloc(size);
    luge_tensor *t = NULL;
    if (path != NULL && find_file(path, size, dir, part, what)) {
        t = lg_read_idx(path, what == IMAGES ? 3 : 1);
    } else if (path != NULL && !optional) {
        missing(dir, part, what);
    }
    lg_free(path);
    return t;
}

/* What makes pixels have mean 0 and deviation 1. Counts are exact, so the order of pixels is nothing. */
static void measure(const luge_tensor *images, lg_rows *rows)
{
    int64_t count[256] = {0};
    const uint8_t *pixel = lg_data(images);
    for (int64_t i = 0; i < images->numel; ++i) ++count[pixel[i]];

    const double n = images->numel > 0 ? (double)images->numel : 1;
    double mean = 0, variance = 0;
    for (int v = 0; v < 256; ++v) mean += v * ((double)count[v] / n);
    for (int v = 0; v < 256; ++v) variance += (v - mean) * (v - mean) * ((double)count[v] / n);
    const double deviation = variance > 0 ? sqrt(variance) : 1; /* all alike: only shifted */
    rows->normalise = true;
    rows->scale = (float)(1 / deviation);
    rows->shift = (float)(-mean / deviation);
}

/* The training images' statistics, whatever the part: a net is tested on what it was trained for. */
static luge_status measure_training(const char *dir, luge_part part, lg_rows *rows)
{
    luge_tensor *train = part == LUGE_TRAIN ? luge_retain(rows->data) : read_file(dir, LUGE_TRAIN, IMAGES, true);
    if (lg_ok()) measure(train != NULL ? train : rows->data, rows);
    luge_release(train);
    return lg_error();
}

static luge_tensor *widen_labels(const luge_tensor *labels)
{
    luge_tensor *wide = lg_tensor_create(labels->storage->device, LUGE_I64, &labels->shape, NULL);
    if (wide == NULL) return NULL;
    const uint8_t *from = lg_data(labels);
    int64_t *to = lg_data(wide);
    for (int64_t i = 0; i < labels->numel; ++i) to[i] = from[i];
    return wide;
}

/* [n, rows, columns] -> [n, 1, rows, columns], the same memory. */
static luge_tensor *add_channel(const luge_tensor *images)
{
    const int64_t *dim = images->shape.dim;
    const luge_shape shape = {.rank = 4, .dim = {dim[0], 1, dim[1], dim[2]}};
    int64_t stride[LUGE_MAX_RANK];
    lg_strides_contiguous(&shape, stride);
    return lg_tensor_view(images, &shape, stride, 0);
}

static luge_status check_counts(const char *dir, luge_part part, const luge_tensor *images, const luge_tensor *labels)
{
    if (images->shape.dim[0] == labels->shape.dim[0]) return LUGE_OK;
    return lg_fail(LUGE_ERR_FORMAT, "%s: %" PRId64 " images in %s but %" PRId64 " labels in %s: two sets?", dir,
                   images->shape.dim[0], stem[part][IMAGES], labels->shape.dim[0], stem[part][LABELS]);
}

luge_dataset *luge_dataset_mnist(const char *dir, luge_part part)
{
    if (!lg_ok()) return NULL;
    if (dir == NULL || dir[0] == '\0') {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_dataset_mnist: the directory is %s", dir == NULL ? "NULL" : "empty");
        return NULL;
    }
    if (part != LUGE_TRAIN && part != LUGE_TEST) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_dataset_mnist: the part is %d, not LUGE_TRAIN or LUGE_TEST", (int)part);
        return NULL;
    }
    lg_rows rows[LG_FIELDS] = {{0}};
    luge_tensor *images = read_file(dir, part, IMAGES, false);
    luge_tensor *labels = images != NULL ? read_file(dir, part, LABELS, false) : NULL;
    if (labels != NULL && check_counts(dir, part, images, labels) == LUGE_OK) {
        rows[LG_FIELD_INPUT].data = add_channel(images);
        rows[LG_FIELD_TARGET].data = widen_labels(labels);
        if (lg_ok()) measure_training(dir, part, &rows[LG_FIELD_INPUT]);
    }
    luge_release(images);
    luge_release(labels);
    if (lg_ok()) return lg_dataset_of_rows(rows);
    for (int f = 0; f < LG_FIELDS; ++f) luge_release(rows[f].data);
    return NULL;
}
