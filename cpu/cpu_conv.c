/* conv2d and its gradient by the input. Both are correlations: an output pixel is the product of the
 * pixels under the kernel with the packed weights. So they are products of matrices whose A is the
 * input itself, read in place (tile.h); only B, the weights, is packed. The gradient by the input is
 * one correlation of g for each phase of the stride, with the kernel turned around. */
#include <string.h>
#include "core/pool.h"
#include "cpu/conv.h"
#include "cpu/cpu.h"
#include "cpu/gemm.h"
#include "cpu/onednn.h"
#include "cpu/scratch.h"

enum {
    PIXELS = 192,                /* of a block: A stays in L2 while all panels pass */
    K_BLOCK = 1024,              /* the most of k in one go: a panel of B stays in L2 */
    SLICES = 16,                 /* so many are wanted */
    BUFFER_ROWS = 256            /* of a panel, packed in two steps: they stay in L1 and L2 */
};

/* out[n, i, j, :] = bias + sum over taps and channels c of in[n, i', j', c] weight[tap][c][:], by groups. */
typedef struct correlation {
    lg_windows in;
    int64_t groups, in_channels, out_channels; /* of a group */
    const char *weight, *bias;
    int64_t weight_in, weight_out, weight_h, weight_w, weight_group; /* strides */
    int64_t bias_step;
    char *out;                   /* of output (0, 0) */
    int64_t out_image, out_row, out_column;    /* strides; channels are dense */
    lg_panels panels;            /* of a group's output channels */
    int64_t segments, run;       /* of k: taps x channels, or kernel rows x (taps x channels) where these touch */
    int64_t *a_segment, *b_segment;
    char *starts;                /* bias in whole vectors, by groups */
    char *packed;
    int64_t packed_size;         /* elements of a group */
    int64_t parts;               /* a block's panels are cut into so many slices */
    char *work;                  /* work_bytes a thread: window and offsets */
    int64_t work_bytes;
} correlation;

/* ---- weights */

static int64_t k_of(const correlation *v) { return v->in.h.taps * v->in.w.taps * v->in_channels; }

/* One panel of one group: where it is, and where it goes to. */
typedef struct weight_panel {
    const char *from;            /* its first column, tap (0, 0), input channel 0 */
    char *to;
    int64_t columns, width;
} weight_panel;

static weight_panel panel_of(const correlation *v, int64_t item)
{
    const int64_t number = item % v->panels.count, group = item / v->panels.count, column = lg_panel_begin(&v->panels, number);
    const int64_t to = group * v->packed_size + (v->panels.narrow ? 0 : column) * k_of(v);
    return (weight_panel){
        .from = v->weight + (group * v->weight_group + column * v->weight_out) * v->in.size,
        .to = v->packed + to * v->in.size,
        .columns = lg_panel_columns(&v->panels, number),
        .width = lg_panel_width(&v->panels, number),
    };
}

/* Tap by tap, from wherever elements lie. */
static void pack_by_taps(const correlation *v, const weight_panel *p)
{
    const lg_conv_axis *h = &v->in.h, *w = &v->in.w;
    char *to = p->to;
    for (int64_t r = 0; r < h->taps; ++r) {
        for (int64_t s = 0; s < w->taps; ++s) {
            const int64_t tap = (h->tap + r * h->tap_step) * v->weight_h + (w->tap + s * w->tap_step) * v->weight_w;
            const lg_pack pack = {
                .to = to,
                .from = p->from + tap * v->in.size,
                .to_row = p->width,
                .from_row = v->weight_in,
                .from_column = v->weight_out,
                .rows = v->in_channels,
                .columns = p->columns,
                .width = p->width,
            };
            v->in.kernels->pack[v->in.f64](&pack);
            to += v->in_channels * p->width * v->in.size;
        }
    }
}

/* Channels that go through `buffer` together. */
static int64_t buffered_channels(const correlation *v)
{
    const int64_t taps = v->in.h.taps * v->in.w.taps, channels = taps < BUFFER_ROWS ? BUFFER_ROWS / taps : 1;
    return channels < v->in_channels ? channels : v->in_channels;
}

/* Row-major weights [out][in][taps]: first transposed as a whole, which is quick, then their rows sorted. */
static void pack_row_major(const correlation *v, const weight_panel *p, char *buffer)
{
    const int64_t taps = v->in.h.taps * v->in.w.taps, most = buffered_channels(v), size = v->in.size;
    for (int64_t c = 0; c < v->in_channels; c += most) {
        const int64_t channels = v->in_channels - c < most ? v->in_channels - c : most;
        const lg_pack turn = {
            .to = buffer,
            .from = p->from + c * taps * size,
            .to_row = p->width,
            .from_row = 1,
            .from_column = v->weight_out,
            .rows = channels * taps,
            .columns = p->columns,
            .width = p->width,
        };
        v->in.kernels->pack[v->in.f64](&turn);
        for (int64_t tap = 0; tap < taps; ++tap) {
            const lg_pack sort = {
                .to = p->to + (tap * v->in_channels + c) * p->width * size,
                .from = buffer + tap * p->width * size,
                .to_row = p->width,
                .from_row = taps * p->width,
                .from_column = 1,
                .rows = channels,
                .columns = p->width,
                .width = p->width,
            };
            v->in.kernels->pack[v->in.f64](&sort);
        }
    }
}

static bool is_row_major(const correlation *v)
{
    const lg_conv_axis *h = &v->in.h, *w = &v->in.w;
    return h->tap == 0 && h->tap_step == 1 && w->tap == 0 && w->tap_step == 1 && v->weight_w == 1 && v->weight_h == w->taps &&
           v->weight_in == h->taps * w->taps;
}

static void pack_weights(int64_t item, void *work)
{
    const correlation *v = work;
    const weight_panel p = panel_of(v, item);
    if (is_row_major(v))
        pack_row_major(v, &p, v->work + lg_pool_thread() * v->work_bytes);
    else
        pack_by_taps(v, &p);
}

static void pack_bias(const correlation *v)
{
    const int64_t width = v->panels.vectors * v->panels.lanes;
    const lg_pack pack = {
        .to = v->starts,
        .from = v->bias,
        .to_row = width,
        .from_row = v->out_channels * v->bias_step,
        .from_column = v->bias_step,
        .rows = v->groups,
        .columns = v->out_channels,
        .width = width,
    };
    v->in.kernels->pack[v->in.f64](&pack);
}

/* Neighbouring taps of a kernel row are one run of k where their pixels touch. */
static void plan_segments(correlation *v)
{
    const lg_windows *in = &v->in;
    const bool touch = v->groups == 1 && in->w.at_step * in->pixel_step == v->in_channels;
    const bool merge = touch && in->w.taps * v->in_channels <= K_BLOCK;
    v->run = merge ? in->w.taps * v->in_channels : v->in_channels;
    v->segments = merge && in->w.taps > 0 ? in->h.taps : in->h.taps * in->w.taps;
}

static void fill_segments(const correlation *v)
{
    const lg_windows *in = &v->in;
    const int64_t of_row = in->h.taps == 0 ? 1 : v->segments / in->h.taps;
    for (int64_t i = 0; i < v->segments; ++i) {
        v->a_segment[i] = i / of_row * in->h.at_step * in->row_step + i % of_row * in->w.at_step * in->pixel_step;
        v->b_segment[i] = i * v->run;
    }
}

/* ---- slices: (block, part of the panels) */

/* The offsets of a block's pixels, in elements. */
typedef struct pixels {
    int64_t count;
    int64_t *in, *out;
} pixels;

static pixels pixels_of(const correlation *v, const lg_window *window, char *memory)
{
    const lg_windows *in = &v->in;
    pixels p = {.in = (int64_t *)(void *)memory};
    p.out = p.in + in->block_images * in->block_rows * in->w.outputs;
    for (int64_t m = 0; m < window->images; ++m) {
        for (int64_t i = 0; i < window->rows; ++i) {
            const int64_t from = m * in->image_step + i * in->h.stride * in->row_step;
            const int64_t to = (window->image + m) * v->out_image + (window->row + i) * v->out_row;
            for (int64_t j = 0; j < in->w.outputs; ++j) {
                p.in[p.count] = from + j * in->w.stride * in->pixel_step;
                p.out[p.count++] = to + j * v->out_column;
            }
        }
    }
    return p;
}

/* All pixels of the block, the output channels of one panel, and segments [begin, end) of k. */
static void correlate_panel(const correlation *v, const char *data, const pixels *p, int64_t item, int64_t begin, int64_t end)
{
    const int64_t size = v->in.size, panel = item % v->panels.count, group = item / v->panels.count;
    const int64_t column = lg_panel_begin(&v->panels, panel), channel = group * v->out_channels + column;
    const int rows = v->in.kernels->rows;
    lg_tile tile = {
        .b = v->packed + (group * v->packed_size + (v->panels.narrow ? 0 : column) * k_of(v)) * size,
        .a_segment = v->a_segment + begin,
        .b_segment = v->b_segment + begin,
        .segments = end - begin,
        .run = v->run,
        .a_step = 1,
        .b_step = lg_panel_width(&v->panels, panel),
        .columns = (int)lg_panel_columns(&v->panels, panel),
        .add = begin > 0,
    };
    if (begin == 0 && v->bias != NULL) tile.start = v->starts + (group * v->panels.vectors * v->panels.lanes + column) * size;
    const char *from = data + group * v->in_channels * size;
    for (int64_t i = 0; i < p->count; i += rows) {
        tile.rows = p->count - i < rows ? (int)(p->count - i) : rows;
        for (int j = 0; j < rows; ++j) {
            const int64_t pixel = i + (j < tile.rows ? j : tile.rows - 1);
            tile.a[j] = from + p->in[pixel] * size;
            tile.c[j] = v->out + (p->out[pixel] + channel) * size;
        }
        v->in.kernels->multiply[v->in.f64](&tile);
    }
}

static void correlate_slice(int64_t slice, void *work)
{
    const correlation *v = work;
    char *memory = v->work + lg_pool_thread() * v->work_bytes;
    const lg_window window = lg_window_of(&v->in, slice / v->parts, memory);
    const pixels p = pixels_of(v, &window, memory + v->in.bytes);
    const int64_t panels = v->groups * v->panels.count, part = slice % v->parts;
    const int64_t first = lg_slice_begin(panels, v->parts, part), last = lg_slice_begin(panels, v->parts, part + 1);
    const int64_t step = v->run < K_BLOCK && v->run > 0 ? K_BLOCK / v->run : 1;
    int64_t begin = 0;
    do { /* once also where there are no taps: outputs become zero */
        const int64_t end = v->segments - begin < step ? v->segments : begin + step;
        for (int64_t i = first; i < last; ++i) correlate_panel(v, window.data, &p, i, begin, end);
        begin = end;
    } while (begin < v->segments);
}

static void cut(correlation *v)
{
    const int64_t panels = v->groups * v->panels.count, wanted = (SLICES + v->in.blocks - 1) / v->in.blocks;
    v->parts = wanted < panels ? wanted : panels;
    v->work_bytes = v->in.bytes + 2 * (int64_t)sizeof(int64_t) * v->in.block_images * v->in.block_rows * v->in.w.outputs;
    const int64_t buffer = is_row_major(v) ? buffered_channels(v) * v->in.h.taps * v->in.w.taps * LG_TILE_BYTES : 0;
    v->work_bytes = lg_scratch_plus(v->work_bytes > buffer ? v->work_bytes : buffer, 0);
}

/* v has everything up to out_column, and in planned. */
static luge_status correlate(lg_device *device, correlation *v)
{
    v->panels = lg_panels_of(v->out_channels, v->in.kernels->lanes[v->in.f64]);
    v->packed_size = lg_panels_size(&v->panels, k_of(v));
    plan_segments(v);
    cut(v);
    const int64_t for_segments = 2 * (int64_t)sizeof(int64_t) * v->segments;
    const int64_t for_work = lg_scratch_plus(for_segments, lg_scratch_times(lg_pool_threads(), v->work_bytes));
    const int64_t for_bias = v->bias == NULL ? 0 : v->groups * v->panels.vectors * v->panels.lanes * v->in.size;
    const int64_t for_starts = lg_scratch_plus(for_work, for_bias);
    const int64_t for_weights = lg_scratch_times(v->groups, lg_scratch_times(v->packed_size, v->in.size));
    lg_scratch scratch;
    char *memory = lg_scratch_open(&scratch, device, lg_scratch_plus(for_starts, for_weights));
    if (memory == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    v->a_segment = (int64_t *)(void *)memory;
    v->b_segment = v->a_segment + v->segments;
    v->work = memory + lg_scratch_plus(for_segments, 0);
    v->starts = memory + for_work;
    v->packed = memory + for_starts;
    if (v->bias != NULL) pack_bias(v);
    fill_segments(v);
    lg_parallel(v->groups * v->panels.count, pack_weights, v);
    lg_parallel(v->in.blocks * v->parts, correlate_slice, v);
    lg_scratch_close(&scratch);
    return LUGE_OK;
}

/* ---- conv2d: x [N, C, H, W], weight [K, C / groups, R, S], [bias [K]] -> [N, K, H', W'] */

int lg_cpu_conv2d(const lg_call *call)
{
    const int answer = lg_onednn_conv2d(call);
    if (answer != LG_DECLINED) return answer;
    const lg_conv2d_attrs *a = call->attrs;
    const luge_tensor *x = call->in[0], *weight = call->in[1], *bias = call->in[2];
    const luge_tensor *y = call->out[0];
    if (y->dtype != LUGE_F32 && y->dtype != LUGE_F64) return LG_DECLINED;
    correlation v = {
        .groups = a->groups,
        .in_channels = weight->shape.dim[1],
        .out_channels = weight->shape.dim[0] / a->groups,
        .weight = lg_data(weight),
        .bias = bias == NULL ? NULL : lg_data(bias),
        .weight_in = weight->stride[1],
        .weight_out = weight->stride[0],
        .weight_h = weight->stride[2],
        .weight_w = weight->stride[3],
        .weight_group = weight->shape.dim[0] / a->groups * weight->stride[0],
        .bias_step = bias == NULL ? 0 : bias->stride[0],
        .out = lg_data(y),
        .out_image = y->stride[0],
        .out_row = y->stride[2],
        .out_column = y->stride[3],
    };
    if (!lg_windows_plan(&v.in, x, lg_conv_axis_of(a, 0), lg_conv_axis_of(a, 1), PIXELS)) return LG_DECLINED;
    return (int)correlate(call->device, &v);
}

/* ---- conv2d_backward_input: g [N, K, H', W'], weight -> gx [N, C, H, W] */

/* Rows (or columns) phase, phase + stride, ... of x as a correlation of g's: element `at` of x has part
 * in output (at + padding - r dilation) / stride, for the r that divide. */
static lg_conv_axis phase_of(const lg_conv_axis *forward, int64_t phase)
{
    const int64_t stride = forward->stride, dilation = forward->at_step;
    lg_conv_axis v = {.size = forward->outputs, .outputs = (forward->size - phase + stride - 1) / stride, .stride = 1};
    int64_t last = -1; /* the last r that divides; so does each before it by as many as there are r to a multiple of the stride */
    for (int64_t r = 0; r < forward->taps; ++r) {
        if ((phase - forward->at - r * dilation) % stride != 0) continue;
        if (last >= 0) v.tap_step = last - r;
        last = r;
        ++v.taps;
    }
    if (v.taps == 0) return v;
    v.tap = last;
    v.at = (phase - forward->at - last * dilation) / stride;
    v.at_step = -v.tap_step * dilation / stride;
    return v;
}

int lg_cpu_conv2d_backward_input(const lg_call *call)
{
    const int answer = lg_onednn_conv2d_backward_input(call);
    if (answer != LG_DECLINED) return answer;
    const lg_conv2d_attrs *a = call->attrs;
    const luge_tensor *g = call->in[0], *weight = call->in[1];
    const luge_tensor *gx = call->out[0];
    if (gx->dtype != LUGE_F32 && gx->dtype != LUGE_F64) return LG_DECLINED;
    const lg_conv_axis h = lg_conv_axis_of(a, 0), w = lg_conv_axis_of(a, 1);
    for (int64_t i = 0; i < h.stride && i < h.size; ++i) {
        for (int64_t j = 0; j < w.stride && j < w.size; ++j) {
            correlation v = {
                .groups = a->groups,
                .in_channels = weight->shape.dim[0] / a->groups,
                .out_channels = weight->shape.dim[1],
                .weight = lg_data(weight),
                .weight_in = weight->stride[0],
                .weight_out = weight->stride[1],
                .weight_h = weight->stride[2],
                .weight_w = weight->stride[3],
                .weight_group = weight->shape.dim[0] / a->groups * weight->stride[0],
                .out = (char *)lg_data(gx) + (i * gx->stride[2] + j * gx->stride[3]) * (int64_t)lg_element_size(gx),
                .out_image = gx->stride[0],
                .out_row = h.stride * gx->stride[2],
                .out_column = w.stride * gx->stride[3],
            };
            if (!lg_windows_plan(&v.in, g, phase_of(&h, i), phase_of(&w, j), PIXELS)) return LG_DECLINED;
            const luge_status status = correlate(call->device, &v);
            if (status != LUGE_OK) return (int)status;
        }
    }
    return LUGE_OK;
}
