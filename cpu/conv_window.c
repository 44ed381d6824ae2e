/* Windows of the input under a convolution; see conv.h. */
#include <string.h>
#include "core/pool.h"
#include "cpu/conv.h"

lg_conv_axis lg_conv_axis_of(const lg_conv2d_attrs *a, int axis)
{
    const int64_t size = a->in_shape.dim[2 + axis], taps = a->weight_shape.dim[2 + axis];
    const int64_t room = size + a->padding_before[axis] + a->padding_after[axis] - a->dilation[axis] * (taps - 1) - 1;
    return (lg_conv_axis){.size = size, .outputs = room / a->stride[axis] + 1, .stride = a->stride[axis],
                          .at = -a->padding_before[axis], .at_step = a->dilation[axis], .taps = taps, .tap_step = 1};
}

/* From the first to the last input that `outputs` outputs in a row look at. */
static int64_t extent(const lg_conv_axis *a, int64_t outputs)
{
    return a->taps == 0 ? 0 : (outputs - 1) * a->stride + (a->taps - 1) * a->at_step + 1;
}

static bool is_inside(const lg_conv_axis *a)
{
    return a->taps == 0 || (a->at >= 0 && a->at + extent(a, a->outputs) <= a->size);
}

static void cut_into_blocks(lg_windows *w, int64_t pixels)
{
    const int64_t of_image = w->h.outputs * w->w.outputs;
    if (of_image >= pixels) {
        const int64_t rows = pixels > w->w.outputs ? pixels / w->w.outputs : 1;
        w->row_blocks = (w->h.outputs + rows - 1) / rows;
        w->block_rows = (w->h.outputs + w->row_blocks - 1) / w->row_blocks;
        w->row_blocks = (w->h.outputs + w->block_rows - 1) / w->block_rows;
        w->block_images = 1;
    } else {
        const int64_t images = pixels / of_image;
        w->row_blocks = 1;
        w->block_rows = w->h.outputs;
        w->block_images = images < w->images ? images : w->images;
    }
    w->blocks = w->row_blocks * ((w->images + w->block_images - 1) / w->block_images);
}

bool lg_windows_plan(lg_windows *w, const luge_tensor *input, lg_conv_axis h, lg_conv_axis v, int64_t pixels)
{
    enum { SPREAD = 64 };
    *w = (lg_windows){
        .kernels = LG_ISA_PICK(lg_tile),
        .f64 = input->dtype == LUGE_F64,
        .size = (int64_t)lg_element_size(input),
        .data = lg_data(input),
        .images = input->shape.dim[0],
        .channels = input->shape.dim[1],
        .h = h,
        .w = v,
    };
    memcpy(w->stride, input->stride, sizeof w->stride);
    if (w->channels == 1) w->stride[1] = 1;
    cut_into_blocks(w, pixels);
    w->direct = w->stride[1] == 1 && is_inside(&w->h) && is_inside(&w->w);
    if (w->direct) {
        w->image_step = w->stride[0];
        w->row_step = w->stride[2];
        w->pixel_step = w->stride[3];
        return true;
    }
    const int64_t rows = extent(&w->h, w->block_rows), columns = extent(&w->w, w->w.outputs);
    const double all = (double)w->images * (double)w->channels * (double)h.size * (double)v.size;
    const double window = (double)w->block_images * (double)rows * (double)columns * (double)w->channels;
    if (window > SPREAD * (all + (double)(w->channels * pixels))) return false;
    w->pixel_step = w->channels;
    w->row_step = columns * w->channels;
    w->image_step = rows * w->row_step;
    w->bytes = (w->block_images * w->image_step * w->size + 63) / 64 * 64;
    return true;
}

static int64_t limited(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }

/* One row of the input, with zeros left and right of it. */
static void copy_row(const lg_windows *w, const char *from, char *to)
{
    const int64_t columns = extent(&w->w, w->w.outputs), c = w->channels;
    const int64_t begin = limited(-w->w.at, 0, columns), end = limited(w->w.size - w->w.at, begin, columns);
    memset(to, 0, (size_t)(begin * c * w->size));
    memset(to + end * c * w->size, 0, (size_t)((columns - end) * c * w->size));
    const bool whole = w->stride[1] == 1 && w->stride[3] == c;
    const lg_pack pack = {
        .to = to + begin * c * w->size,
        .from = from + (begin + w->w.at) * w->stride[3] * w->size,
        .to_row = c,
        .from_row = w->stride[3],
        .from_column = w->stride[1],
        .rows = whole ? 1 : end - begin,
        .columns = whole ? (end - begin) * c : c,
        .width = whole ? (end - begin) * c : c,
    };
    if (end > begin) w->kernels->pack[w->f64](&pack);
}

lg_window lg_window_of(const lg_windows *w, int64_t block, char *copy)
{
    lg_window v = {.image = block / w->row_blocks * w->block_images, .row = block % w->row_blocks * w->block_rows};
    v.images = w->images - v.image < w->block_images ? w->images - v.image : w->block_images;
    v.rows = w->h.outputs - v.row < w->block_rows ? w->h.outputs - v.row : w->block_rows;
    const int64_t top = v.row * w->h.stride + w->h.at;
    if (w->direct) {
        v.data = w->data;
        if (w->h.taps > 0 && w->w.taps > 0)
            v.data += (v.image * w->image_step + top * w->row_step + w->w.at * w->pixel_step) * w->size;
        return v;
    }
    const int64_t rows = extent(&w->h, v.rows);
    for (int64_t m = 0; m < v.images; ++m) {
        for (int64_t i = 0; i < rows; ++i) {
            char *to = copy + (m * w->image_step + i * w->row_step) * w->size;
            const int64_t y = top + i;
            if (y >= 0 && y < w->h.size)
                copy_row(w, w->data + ((v.image + m) * w->stride[0] + y * w->stride[2]) * w->size, to);
            else
                memset(to, 0, (size_t)(w->row_step * w->size));
        }
    }
    v.data = copy;
    return v;
}
