/* Pooling (cpu/simd/pool.h): windows of channels-last images are worked on all channels together, of
 * other layouts one channel at a time, and there a row of windows together where their pixels are dense. */
#include <string.h>
#include "core/pool.h"
#include "cpu/cpu.h"
#include "cpu/scratch.h"
#include "cpu/simd/pool.h"
#include "ops/attrs.h"

enum {
    GRAIN = 1 << 13,             /* elements of windows per slice, at least */
    IMAGES = 8,                  /* fewer images than this are cut further, by channels */
    CHANNELS = 16                /* then of so many at least */
};

typedef enum pool_task { MAX, MAX_BACKWARD, MEAN, MEAN_BACKWARD } pool_task;

typedef struct pool_work {
    const lg_pool_kernels *kernels;
    const lg_pool2d_attrs *attrs;
    pool_task task;
    const luge_tensor *whole[2]; /* as large as the input: x or gx, and x where both are there */
    const luge_tensor *small[2]; /* as large as the output: y or g, and y where both are there */
    int64_t size, images, channels; /* channels: worked on together */
    int64_t parts, rows_parts;   /* slices of an image: of its channels, of its output rows */
    bool by_rows;                /* rows of windows are worked on together */
    bool overwrite;              /* windows cover the input once: gx need not be zeroed */
    char *found;                 /* found_size elements a thread */
    int64_t found_size;
} pool_work;

/* ---- windows: the specification is in ops/pool.c */

typedef struct window {
    int64_t from, to, padded;    /* elements in the input; their number with the padding */
} window;

static window window_at(const lg_pool2d_attrs *a, int axis, int64_t i)
{
    const int64_t size = a->in_shape.dim[2 + axis], out = a->out[axis];
    if (a->adaptive) {
        const int64_t all = size / out, rest = size % out;
        const int64_t from = i * all + i * rest / out, to = (i + 1) * all + ((i + 1) * rest + out - 1) / out;
        return (window){from, to, to - from};
    }
    const int64_t from = i * a->stride[axis] - a->padding[axis], end = size + a->padding[axis];
    const int64_t to = from + a->kernel[axis] < end ? from + a->kernel[axis] : end;
    return (window){from > 0 ? from : 0, to < size ? to : size, to - from};
}

static double share(const lg_pool2d_attrs *a, window rows, window columns)
{
    if (a->include_padding) return 1 / ((double)rows.padded * (double)columns.padded);
    return 1 / ((double)(rows.to - rows.from) * (double)(columns.to - columns.from));
}

/* ---- slices: (image, part of the channels, part of the output rows) */

/* An image is a sample, or one channel of one where channels are not dense. */
static char *pixel(const pool_work *w, const luge_tensor *t, int64_t image, int64_t channel, int64_t row, int64_t column)
{
    const int64_t planes = w->channels == w->attrs->in_shape.dim[1] ? 1 : w->attrs->in_shape.dim[1];
    const int64_t at = image / planes * t->stride[0] + (image % planes + channel) * t->stride[1] + row * t->stride[2] +
                       column * t->stride[3];
    return (char *)lg_data(t) + at * w->size;
}

/* n windows: of n channels from `channel` on, or (step > 0) of n outputs in a row from `column` on. */
static void work_on_windows(const pool_work *w, int64_t image, int64_t channel, int64_t row, int64_t column, int64_t n, int64_t step, char *found)
{
    const lg_pool2d_attrs *a = w->attrs;
    const window rows = window_at(a, 0, row), columns = window_at(a, 1, column);
    const luge_tensor *big = w->whole[0], *source = w->whole[1] == NULL ? big : w->whole[1];
    const lg_pool_window v = {n, step > 0 ? step : 1, rows.to - rows.from, columns.to - columns.from,
                              big->stride[2], big->stride[3], source->stride[2], source->stride[3]};
    char *x = pixel(w, big, image, channel, rows.from, columns.from), *y = pixel(w, w->small[0], image, channel, row, column);
    switch (w->task) {
    case MAX: w->kernels->max(&v, x, y); break;
    case MEAN: w->kernels->mean(&v, x, share(a, rows, columns), y); break;
    case MEAN_BACKWARD: w->kernels->mean_backward(&v, y, share(a, rows, columns), x); break;
    case MAX_BACKWARD:
        w->kernels->max_backward(&v, y, pixel(w, source, image, channel, rows.from, columns.from),
                                 pixel(w, w->small[1], image, channel, row, column), !w->overwrite, found, x);
        break;
    }
}

/* One row of windows: those that lie wholly in the input's columns together. */
static void work_on_row(const pool_work *w, int64_t image, int64_t channel, int64_t n, int64_t row, char *found)
{
    const lg_pool2d_attrs *a = w->attrs;
    int64_t column = 0;
    while (column < a->out[1]) {
        int64_t together = 0;
        if (w->by_rows && column * a->stride[1] >= a->padding[1]) {
            const int64_t room = a->in_shape.dim[3] + a->padding[1] - a->kernel[1], end = room < 0 ? 0 : room / a->stride[1] + 1;
            together = (end < a->out[1] ? end : a->out[1]) - column;
        }
        if (together > 1) {
            work_on_windows(w, image, channel, row, column, together, a->stride[1], found);
            column += together;
        } else {
            work_on_windows(w, image, channel, row, column++, n, 0, found);
        }
    }
}

static void zero_image(const pool_work *w, int64_t image, int64_t channel, int64_t n)
{
    for (int64_t i = 0; i < w->attrs->in_shape.dim[2]; ++i)
        for (int64_t j = 0; j < w->attrs->in_shape.dim[3]; ++j)
            memset(pixel(w, w->whole[0], image, channel, i, j), 0, (size_t)(n * w->size));
}

static void pool_slice(int64_t slice, void *work)
{
    const pool_work *w = work;
    const int64_t rows_part = slice % w->rows_parts, part = slice / w->rows_parts % w->parts, image = slice / w->rows_parts / w->parts;
    const int64_t channel = lg_slice_begin(w->channels, w->parts, part), n = lg_slice_begin(w->channels, w->parts, part + 1) - channel;
    const int64_t end = lg_slice_begin(w->attrs->out[0], w->rows_parts, rows_part + 1);
    char *found = w->found + lg_pool_thread() * w->found_size * w->size;
    if ((w->task == MAX_BACKWARD || w->task == MEAN_BACKWARD) && !w->overwrite) zero_image(w, image, channel, n);
    for (int64_t row = lg_slice_begin(w->attrs->out[0], w->rows_parts, rows_part); row < end; ++row)
        work_on_row(w, image, channel, n, row, found);
}

/* ---- */

static bool covers_once(const lg_pool2d_attrs *a)
{
    for (int i = 0; i < 2; ++i)
        if (a->adaptive || a->padding[i] != 0 || a->stride[i] != a->kernel[i] || a->out[i] * a->kernel[i] != a->in_shape.dim[2 + i])
            return false;
    return true;
}

/* All tensors are dense along an axis. */
static bool all_dense(const pool_work *w, int axis)
{
    const luge_tensor *const t[] = {w->whole[0], w->whole[1], w->small[0], w->small[1]};
    for (int i = 0; i < 4; ++i)
        if (t[i] != NULL && t[i]->stride[axis] != 1 && t[i]->shape.dim[axis] != 1) return false;
    return true;
}

/* w has its task and tensors. Windows of one channel that overlap are always worked on in one slice. */
static int run(const lg_call *call, pool_work *w)
{
    const lg_pool2d_attrs *a = w->attrs = call->attrs;
    const luge_tensor *big = w->whole[0];
    if (big->dtype != LUGE_F32 && big->dtype != LUGE_F64) return LG_DECLINED;
    w->kernels = &LG_ISA_PICK(lg_pools)->of[big->dtype == LUGE_F64];
    w->size = (int64_t)lg_element_size(big);
    w->images = a->in_shape.dim[0];
    w->channels = a->in_shape.dim[1];
    if (!all_dense(w, 1)) {
        w->images *= w->channels;
        w->channels = 1;
    }
    w->by_rows = w->channels == 1 && !a->adaptive && all_dense(w, 3);
    w->found_size = w->task != MAX_BACKWARD ? 0 : w->by_rows ? a->out[1] : w->channels;
    const bool backward = w->task == MAX_BACKWARD || w->task == MEAN_BACKWARD;
    w->overwrite = w->task == MAX_BACKWARD && covers_once(a);
    w->parts = w->images >= IMAGES || w->channels < 2 * CHANNELS ? 1 : w->channels / CHANNELS < IMAGES ? w->channels / CHANNELS : IMAGES;
    const int64_t row_cost = a->in_shape.dim[2] * a->in_shape.dim[3] / a->out[0] * (w->channels / w->parts) + 1;
    w->rows_parts = backward && !w->overwrite ? 1 : lg_slices(a->out[0], GRAIN / row_cost);
    lg_scratch scratch;
    w->found = lg_scratch_open(&scratch, call->device, lg_scratch_times(lg_pool_threads(), w->found_size * w->size));
    if (w->found == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    lg_parallel(w->images * w->parts * w->rows_parts, pool_slice, w);
    lg_scratch_close(&scratch);
    return LUGE_OK;
}

/* (x) -> y */
int lg_cpu_max_pool2d(const lg_call *call)
{
    return run(call, &(pool_work){.task = MAX, .whole = {call->in[0]}, .small = {call->out[0]}});
}

/* (g, x, y) -> gx */
int lg_cpu_max_pool2d_backward(const lg_call *call)
{
    return run(call, &(pool_work){.task = MAX_BACKWARD, .whole = {call->out[0], call->in[1]}, .small = {call->in[0], call->in[2]}});
}

/* (x) -> y */
int lg_cpu_avg_pool2d(const lg_call *call)
{
    return run(call, &(pool_work){.task = MEAN, .whole = {call->in[0]}, .small = {call->out[0]}});
}

/* (g) -> gx */
int lg_cpu_avg_pool2d_backward(const lg_call *call)
{
    return run(call, &(pool_work){.task = MEAN_BACKWARD, .whole = {call->out[0]}, .small = {call->in[0]}});
}
