/* The gradient of a convolution by its weights: for each tap and input channel a row of sums over all
 * pixels, of x under the tap times g. So it is a product whose A are the pixels of x, read in place,
 * and whose B is g as it lies. Pixels are shared out in parts fixed by the sizes; each part adds up in
 * memory of its own, and parts are added in their order. */
#include <string.h>
#include "core/pool.h"
#include "cpu/conv.h"
#include "cpu/cpu.h"
#include "cpu/gemm.h"
#include "cpu/onednn.h"
#include "cpu/scratch.h"

enum {
    PIXELS = 256,                /* of a block: a panel of g stays in L1 */
    PACKED_ROWS = 64,            /* from here on it pays to pack g, whose pixels may lie on the same cache lines' places */
    SLICES = 16,                 /* so many are wanted */
    PARTS_BYTES = 1 << 24,       /* the most memory for sums of parts */
    TURN_ROWS = 16               /* output channels turned together: whole cache lines */
};

/* Sums of a part are [groups][taps x channels][out]: row (r, s, c) of a group at its place in this order. */
typedef struct weight_gradient {
    lg_windows in;
    int64_t groups, in_channels, out_channels; /* of a group */
    const luge_tensor *g;
    bool g_direct;               /* read where it lies: dense, and rows of panels in whole vectors */
    lg_panels panels;            /* of a group's output channels */
    int64_t rows;                /* taps x channels of a group */
    int64_t parts, panel_parts;
    char *sums;
    int64_t sums_size;           /* elements of a part */
    char *work;                  /* work_bytes a thread: window, segments, packed g */
    int64_t work_bytes;
    void *gw;
} weight_gradient;

/* ---- g of a block */

static bool lies_by_pixels(const luge_tensor *g)
{
    const int64_t *d = g->shape.dim, *s = g->stride;
    return s[1] == 1 && s[3] == d[1] && (s[2] == d[3] * s[3] || d[2] == 1) && (s[0] == d[2] * d[3] * s[3] || d[0] == 1);
}

static int64_t block_pixels(const weight_gradient *v) { return v->in.block_images * v->in.block_rows * v->in.w.outputs; }

/* One panel of g, [pixels of the block][width]. */
static void pack_g(const weight_gradient *v, const lg_window *window, int64_t channel, int64_t columns, int64_t width, char *to)
{
    const int64_t *stride = v->g->stride, size = v->in.size;
    for (int64_t m = 0; m < window->images; ++m) {
        for (int64_t i = 0; i < window->rows; ++i) {
            const int64_t from = (window->image + m) * stride[0] + (window->row + i) * stride[2] + channel * stride[1];
            const lg_pack pack = {
                .to = to,
                .from = (const char *)lg_data(v->g) + from * size,
                .to_row = width,
                .from_row = stride[3],
                .from_column = stride[1],
                .rows = v->in.w.outputs,
                .columns = columns,
                .width = width,
            };
            v->in.kernels->pack[v->in.f64](&pack);
            to += v->in.w.outputs * width * size;
        }
    }
}

/* ---- slices: (part of the pixels, part of the panels) */

/* A thread's memory. A segment is one row of output pixels. */
typedef struct work {
    char *window, *packed;
    int64_t *a_segment, *b_segment;
} work;

static work work_of(const weight_gradient *v)
{
    char *memory = v->work + lg_pool_thread() * v->work_bytes;
    work w = {.window = memory, .a_segment = (int64_t *)(void *)(memory + v->in.bytes)};
    w.b_segment = w.a_segment + v->in.block_images * v->in.block_rows;
    w.packed = memory + lg_scratch_plus(v->in.bytes, 2 * (int64_t)sizeof(int64_t) * v->in.block_images * v->in.block_rows);
    return w;
}

static int64_t fill_segments(const weight_gradient *v, const lg_window *window, const work *w)
{
    int64_t n = 0;
    for (int64_t m = 0; m < window->images; ++m) {
        for (int64_t i = 0; i < window->rows; ++i) {
            w->a_segment[n] = m * v->in.image_step + i * v->in.h.stride * v->in.row_step;
            w->b_segment[n] = n * v->in.w.outputs;
            ++n;
        }
    }
    return n;
}

/* The tile's rows of A: taps and channels from `first` on. */
static void point_rows(const weight_gradient *v, lg_tile *tile, const char *data, char *sums, int64_t first)
{
    const lg_windows *in = &v->in;
    for (int j = 0; j < in->kernels->rows; ++j) {
        const int64_t row = first + (j < tile->rows ? j : tile->rows - 1);
        const int64_t c = row % v->in_channels, tap = row / v->in_channels;
        const int64_t at = tap / in->w.taps * in->h.at_step * in->row_step + tap % in->w.taps * in->w.at_step * in->pixel_step + c;
        tile->a[j] = data + at * in->size;
        tile->c[j] = sums + row * v->out_channels * in->size;
    }
}

/* One panel of one group over one block. */
static void add_block(const weight_gradient *v, const lg_window *window, const work *w, char *sums, int64_t item, bool add)
{
    const int64_t size = v->in.size, panel = item % v->panels.count, group = item / v->panels.count;
    const int64_t column = lg_panel_begin(&v->panels, panel), columns = lg_panel_columns(&v->panels, panel);
    const int64_t width = lg_panel_width(&v->panels, panel), channel = group * v->out_channels + column;
    lg_tile tile = {
        .b = w->packed,
        .a_segment = w->a_segment,
        .b_segment = w->b_segment,
        .segments = window->images * window->rows,
        .run = v->in.w.outputs,
        .a_step = v->in.w.stride * v->in.pixel_step,
        .b_step = v->g_direct ? v->g->stride[3] : width,
        .columns = (int)columns,
        .add = add,
    };
    if (v->g_direct)
        tile.b = (const char *)lg_data(v->g) +
                 ((window->image * v->in.h.outputs + window->row) * v->in.w.outputs * v->g->stride[3] + channel) * size;
    else
        pack_g(v, window, channel, columns, width, w->packed);
    const char *data = window->data + group * v->in_channels * size;
    sums += (group * v->rows * v->out_channels + column) * size;
    for (int64_t row = 0; row < v->rows; row += v->in.kernels->rows) {
        tile.rows = v->rows - row < v->in.kernels->rows ? (int)(v->rows - row) : v->in.kernels->rows;
        point_rows(v, &tile, data, sums, row);
        v->in.kernels->multiply[v->in.f64](&tile);
    }
}

static void add_slice(int64_t slice, void *data)
{
    const weight_gradient *v = data;
    const work w = work_of(v);
    const int64_t part = slice / v->panel_parts, panel_part = slice % v->panel_parts;
    const int64_t panels = v->groups * v->panels.count;
    const int64_t first = lg_slice_begin(panels, v->panel_parts, panel_part), last = lg_slice_begin(panels, v->panel_parts, panel_part + 1);
    const int64_t begin = lg_slice_begin(v->in.blocks, v->parts, part), end = lg_slice_begin(v->in.blocks, v->parts, part + 1);
    for (int64_t block = begin; block < end; ++block) {
        const lg_window window = lg_window_of(&v->in, block, w.window);
        fill_segments(v, &window, &w);
        for (int64_t i = first; i < last; ++i)
            add_block(v, &window, &w, v->sums + part * v->sums_size * v->in.size, i, block > begin);
    }
}

/* ---- from the sums of parts to the gradient */

/* Part 0 += the others, elements [begin, end); then gw[o][c][tap] = sums[tap][c][o], for o of [begin, end)
 * of one group. */
#define DEFINE_FINISH(real)                                                                                      \
    static void add_parts_##real(const weight_gradient *v, int64_t begin, int64_t end)                           \
    {                                                                                                            \
        real *to = (real *)(void *)v->sums;                                                                      \
        for (int64_t part = 1; part < v->parts; ++part) {                                                        \
            const real *from = to + part * v->sums_size;                                                         \
            for (int64_t i = begin; i < end; ++i) to[i] += from[i];                                              \
        }                                                                                                        \
    }                                                                                                            \
    static void turn_##real(const weight_gradient *v, int64_t group, int64_t begin, int64_t end)                 \
    {                                                                                                            \
        const int64_t taps = v->in.h.taps * v->in.w.taps, channels = v->in_channels, out = v->out_channels;      \
        const real *sums = (const real *)(const void *)v->sums + group * v->rows * out;                          \
        real *gw = (real *)v->gw + group * out * v->rows;                                                        \
        for (int64_t c = 0; c < channels; ++c)                                                                   \
            for (int64_t o = begin; o < end; ++o)                                                                \
                for (int64_t t = 0; t < taps; ++t) gw[o * v->rows + c * taps + t] = sums[(t * channels + c) * out + o]; \
    }
DEFINE_FINISH(float)
DEFINE_FINISH(double)

enum { ADD_GRAIN = 1 << 13 };

static void add_parts(int64_t slice, void *data)
{
    const weight_gradient *v = data;
    const int64_t n = lg_slices(v->sums_size, ADD_GRAIN);
    const int64_t begin = lg_slice_begin(v->sums_size, n, slice), end = lg_slice_begin(v->sums_size, n, slice + 1);
    v->in.f64 ? add_parts_double(v, begin, end) : add_parts_float(v, begin, end);
}

static int64_t turns(const weight_gradient *v) { return (v->out_channels + TURN_ROWS - 1) / TURN_ROWS; }

static void turn(int64_t slice, void *data)
{
    const weight_gradient *v = data;
    const int64_t group = slice / turns(v), begin = slice % turns(v) * TURN_ROWS;
    const int64_t end = begin + TURN_ROWS < v->out_channels ? begin + TURN_ROWS : v->out_channels;
    v->in.f64 ? turn_double(v, group, begin, end) : turn_float(v, group, begin, end);
}

/* ---- g [N, K, H', W'], x [N, C, H, W] -> gw [K, C / groups, R, S] */

static void cut(weight_gradient *v)
{
    const int64_t panels = v->groups * v->panels.count, most = PARTS_BYTES / (v->sums_size * v->in.size);
    v->parts = v->in.blocks < SLICES ? v->in.blocks : SLICES;
    if (v->parts > most) v->parts = most > 1 ? most : 1;
    v->panel_parts = (SLICES + v->parts - 1) / v->parts;
    if (v->panel_parts > panels) v->panel_parts = panels;
    v->work_bytes = lg_scratch_plus(v->in.bytes, 2 * (int64_t)sizeof(int64_t) * v->in.block_images * v->in.block_rows);
    const int64_t packed = (block_pixels(v) * lg_panel_width(&v->panels, 0) + v->panels.lanes) * v->in.size;
    if (!v->g_direct) v->work_bytes = lg_scratch_plus(v->work_bytes, packed);
}

int lg_cpu_conv2d_backward_weight(const lg_call *call)
{
    const int answer = lg_onednn_conv2d_backward_weight(call);
    if (answer != LG_DECLINED) return answer;
    const lg_conv2d_attrs *a = call->attrs;
    const luge_tensor *g = call->in[0], *x = call->in[1], *gw = call->out[0];
    if (gw->dtype != LUGE_F32 && gw->dtype != LUGE_F64) return LG_DECLINED;
    weight_gradient v = {
        .groups = a->groups,
        .in_channels = a->weight_shape.dim[1],
        .out_channels = a->weight_shape.dim[0] / a->groups,
        .g = g,
        .rows = lg_shape_numel(&a->weight_shape) / a->weight_shape.dim[0],
        .sums_size = lg_shape_numel(&a->weight_shape),
        .gw = lg_data(gw),
    };
    if (x->shape.dim[0] == 0) {
        memset(v.gw, 0, (size_t)gw->numel * lg_element_size(gw));
        return LUGE_OK;
    }
    if (!lg_windows_plan(&v.in, x, lg_conv_axis_of(a, 0), lg_conv_axis_of(a, 1), PIXELS)) return LG_DECLINED;
    v.panels = lg_panels_of(v.out_channels, v.in.kernels->lanes[v.in.f64]);
    v.g_direct = lies_by_pixels(g) && v.out_channels % v.panels.lanes == 0 && v.rows < PACKED_ROWS;
    cut(&v);

    const int64_t for_work = lg_scratch_plus(0, lg_scratch_times(lg_pool_threads(), v.work_bytes));
    lg_scratch scratch;
    v.work = lg_scratch_open(&scratch, call->device, lg_scratch_plus(for_work, v.parts * v.sums_size * v.in.size));
    if (v.work == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    v.sums = v.work + for_work;
    lg_parallel(v.parts * v.panel_parts, add_slice, &v);
    if (v.parts > 1) lg_parallel(lg_slices(v.sums_size, ADD_GRAIN), add_parts, &v);
    lg_parallel(v.groups * turns(&v), turn, &v);
    lg_scratch_close(&scratch);
    return LUGE_OK;
}
