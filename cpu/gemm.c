/* The product of matrices. B is packed panel by panel, A is read where it is; then tiles of C are
 * computed, shared out among threads in slices fixed by the sizes. Where B would be the costly one to
 * pack - a weight [n, k] under a small batch - the transposed product is computed instead, and tiles
 * are transposed on their way to C. */
#include "cpu/gemm.h"
#include <string.h>
#include "cpu/scratch.h"

enum {
    PACK_ROWS = 256,             /* rows of k packed at a time */
    PACK_GRAIN = 1 << 14,        /* elements packed per slice, at least */
    K_BLOCK = 1024,              /* the most of k in one go: a panel stays in L2 */
    SLICE_FLOPS = 1 << 20        /* per slice, at least */
};

/* A product on its way, in the orientation chosen: rows from `a`, columns from the packed `b`. */
typedef struct product {
    const lg_gemm *g;
    const lg_tile_kernels *kernels;
    bool transposed;             /* rows are C's columns */
    bool direct;                 /* b is read where it is */
    bool shared_b;               /* one b for the whole batch */
    int64_t size;                /* of an element */
    int64_t rows, k;
    const char *a, *b;
    int64_t a_row, a_step, b_row, b_column;
    const int64_t *a_batch, *b_batch;
    lg_panels panels;
    int64_t batches, k_blocks;
    int64_t unit, units;         /* rows computed together; how many of them */
    int64_t pack_slices, slices;
    char *packed;
    int64_t packed_size;         /* elements for each b */
    char *turn;                  /* transposed tiles, turn_size bytes a thread */
    int64_t turn_size;
} product;

/* ---- batches */

static int64_t batch_offset(const lg_gemm *g, int64_t batch, const int64_t *stride)
{
    int64_t offset = 0;
    for (int i = g->batch_rank - 1; i >= 0 && batch > 0; --i) {
        offset += batch % g->batch[i] * stride[i];
        batch /= g->batch[i];
    }
    return offset;
}

static bool same_for_batch(const lg_gemm *g, const int64_t *stride)
{
    for (int i = 0; i < g->batch_rank; ++i)
        if (g->batch[i] > 1 && stride[i] != 0) return false;
    return true;
}

/* ---- packing: slices over (b, panel, block of k) */

static void pack_panel(const product *p, int64_t item)
{
    const int64_t blocks = (p->k + PACK_ROWS - 1) / PACK_ROWS;
    const int64_t block = item % blocks, panel = item / blocks % p->panels.count, batch = item / blocks / p->panels.count;
    const int64_t k = block * PACK_ROWS, column = lg_panel_begin(&p->panels, panel);
    const int64_t width = lg_panel_width(&p->panels, panel);
    const int64_t from = batch_offset(p->g, batch, p->b_batch) + k * p->b_row + column * p->b_column;
    const int64_t to = batch * p->packed_size + (p->panels.narrow ? 0 : column) * p->k + k * width;
    const lg_pack pack = {
        .to = p->packed + to * p->size,
        .from = p->b + from * p->size,
        .to_row = width,
        .from_row = p->b_row,
        .from_column = p->b_column,
        .rows = p->k - k < PACK_ROWS ? p->k - k : PACK_ROWS,
        .columns = lg_panel_columns(&p->panels, panel),
        .width = width,
    };
    p->kernels->pack[p->g->f64](&pack);
}

static int64_t pack_items(const product *p)
{
    return (p->shared_b ? 1 : p->batches) * p->panels.count * ((p->k + PACK_ROWS - 1) / PACK_ROWS);
}

static void pack_slice(int64_t slice, void *work)
{
    const product *p = work;
    const int64_t items = pack_items(p), end = lg_slice_begin(items, p->pack_slices, slice + 1);
    for (int64_t i = lg_slice_begin(items, p->pack_slices, slice); i < end; ++i) pack_panel(p, i);
}

/* ---- tiles: slices over (batch, panel, unit of rows) */

/* Where one unit of rows meets one panel. */
typedef struct place {
    int64_t batch, panel, row, rows, column, columns;
} place;

static place place_of(const product *p, int64_t item)
{
    place at = {.row = item % p->units * p->unit,
                .panel = item / p->units % p->panels.count,
                .batch = item / p->units / p->panels.count};
    at.rows = p->rows - at.row < p->unit ? p->rows - at.row : p->unit;
    at.column = lg_panel_begin(&p->panels, at.panel);
    at.columns = lg_panel_columns(&p->panels, at.panel);
    return at;
}

/* C's rows, or those of the turned tiles, begin with the bias. */
static void start_rows(const product *p, const place *at, char *c, int64_t c_row)
{
    const int64_t step = p->g->bias_step;
    const lg_pack pack = {
        .to = c,
        .from = (const char *)p->g->bias + (p->transposed ? at->row : at->column) * step * p->size,
        .to_row = c_row,
        .from_row = p->transposed ? step : 0,
        .from_column = p->transposed ? 0 : step,
        .rows = at->rows,
        .columns = at->columns,
        .width = at->columns,
    };
    p->kernels->pack[p->g->f64](&pack);
}

/* Rows of one unit times one panel, for [k, k + run). */
static void multiply_unit(const product *p, const place *at, int64_t k, int64_t run, char *c, int64_t c_row)
{
    static const int64_t no_offset = 0;
    const int64_t width = p->direct ? p->b_row : lg_panel_width(&p->panels, at->panel);
    const int64_t a = batch_offset(p->g, at->batch, p->a_batch) + at->row * p->a_row + k * p->a_step;
    const int64_t b = p->direct
                          ? batch_offset(p->g, at->batch, p->b_batch) + at->column + k * p->b_row
                          : (p->shared_b ? 0 : at->batch * p->packed_size) + (p->panels.narrow ? 0 : at->column) * p->k + k * width;
    lg_tile tile = {
        .b = (p->direct ? p->b : p->packed) + b * p->size,
        .a_segment = &no_offset,
        .b_segment = &no_offset,
        .segments = 1,
        .run = run,
        .a_step = p->a_step,
        .b_step = width,
        .columns = (int)at->columns,
        .add = k > 0 || p->g->bias != NULL,
    };
    if (k == 0 && p->g->bias != NULL) start_rows(p, at, c, c_row);
    for (int64_t i = 0; i < at->rows; i += p->kernels->rows) {
        const int64_t left = at->rows - i;
        tile.rows = left < p->kernels->rows ? (int)left : p->kernels->rows;
        for (int j = 0; j < p->kernels->rows; ++j) {
            const int64_t row = i + (j < tile.rows ? j : tile.rows - 1);
            tile.a[j] = p->a + (a + row * p->a_row) * p->size;
            tile.c[j] = c + row * c_row * p->size;
        }
        p->kernels->multiply[p->g->f64](&tile);
    }
}

static char *place_in_c(const product *p, const place *at)
{
    const lg_gemm *g = p->g;
    const int64_t row = p->transposed ? at->column : at->row, column = p->transposed ? at->row : at->column;
    return (char *)g->c + (batch_offset(g, at->batch, g->c_batch) + row * g->c_row + column) * p->size;
}

static void turn_into_c(const product *p, const place *at, const char *turned)
{
    const lg_pack pack = {
        .to = place_in_c(p, at),
        .from = turned,
        .to_row = p->g->c_row,
        .from_row = 1,
        .from_column = at->columns,
        .rows = at->columns,
        .columns = at->rows,
        .width = at->rows,
    };
    p->kernels->pack[p->g->f64](&pack);
}

static void multiply_slice(int64_t slice, void *work)
{
    const product *p = work;
    const int64_t items = p->batches * p->panels.count * p->units;
    const int64_t begin = lg_slice_begin(items, p->slices, slice), end = lg_slice_begin(items, p->slices, slice + 1);
    char *const turn = p->turn + lg_pool_thread() * p->turn_size;
    for (int64_t block = 0; block < p->k_blocks; ++block) {
        const int64_t k = lg_slice_begin(p->k, p->k_blocks, block);
        const int64_t run = lg_slice_begin(p->k, p->k_blocks, block + 1) - k;
        for (int64_t i = begin; i < end; ++i) {
            const place at = place_of(p, i);
            if (!p->transposed) {
                multiply_unit(p, &at, k, run, place_in_c(p, &at), p->g->c_row);
                continue;
            }
            char *turned = turn + (p->k_blocks == 1 ? 0 : i - begin) * p->unit * LG_TILE_BYTES;
            multiply_unit(p, &at, k, run, turned, at.columns);
            if (block == p->k_blocks - 1) turn_into_c(p, &at, turned);
        }
    }
}

/* ---- choosing, by the sizes alone */

/* Packing a B that is dense along k costs a transposition. If A's rows are fewer than its columns,
 * packing A instead, and turning C, is cheaper. */
static bool better_transposed(const lg_gemm *g)
{
    if (g->b_row != 1 || g->b_column == 1 || g->m >= g->n) return false;
    return (double)g->k * (double)g->m + (double)g->m * (double)g->n < (double)g->k * (double)g->n;
}

static void orient(product *p)
{
    const lg_gemm *g = p->g;
    const int64_t lanes = p->kernels->lanes[g->f64];
    p->transposed = better_transposed(g);
    p->unit = p->kernels->rows;
    if (!p->transposed) {
        p->a = g->a, p->a_row = g->a_row, p->a_step = g->a_column, p->a_batch = g->a_batch;
        p->b = g->b, p->b_row = g->b_row, p->b_column = g->b_column, p->b_batch = g->b_batch;
        p->rows = g->m;
        p->panels = lg_panels_of(g->n, lanes);
        /* Few rows do not earn the packing. */
        p->direct = g->b_column == 1 && g->n % lanes == 0 && g->m <= 2 * p->kernels->rows;
    } else {
        p->a = g->b, p->a_row = g->b_column, p->a_step = g->b_row, p->a_batch = g->b_batch;
        p->b = g->a, p->b_row = g->a_column, p->b_column = g->a_row, p->b_batch = g->a_batch;
        p->rows = g->n;
        p->panels = lg_panels_of(g->m, lanes);
        if (p->unit < lanes) p->unit = lanes; /* so that whole squares are turned */
    }
    p->units = (p->rows + p->unit - 1) / p->unit;
    p->shared_b = same_for_batch(g, p->b_batch);
}

static void cut(product *p)
{
    const int64_t items = p->batches * p->panels.count * p->units;
    const double flops = 2.0 * (double)(p->unit * LG_TILE_VECTORS * p->panels.lanes) * (double)(p->k + 1);
    p->slices = lg_slices(items, (int64_t)(SLICE_FLOPS / flops));
    p->pack_slices = lg_slices(pack_items(p), PACK_GRAIN / (PACK_ROWS * LG_TILE_VECTORS * p->panels.lanes));
    p->k_blocks = p->k <= K_BLOCK ? 1 : (p->k + K_BLOCK - 1) / K_BLOCK;
    p->packed_size = lg_panels_size(&p->panels, p->k);
    p->turn_size = !p->transposed ? 0 : (p->k_blocks == 1 ? 1 : (items + p->slices - 1) / p->slices) * p->unit * LG_TILE_BYTES;
}

luge_status lg_gemm_run(lg_device *device, const lg_gemm *g)
{
    product p = {.g = g, .kernels = LG_ISA_PICK(lg_tile), .size = g->f64 ? 8 : 4, .k = g->k, .batches = 1};
    for (int i = 0; i < g->batch_rank; ++i) p.batches *= g->batch[i];
    if (p.batches == 0 || g->m == 0 || g->n == 0) return LUGE_OK;
    orient(&p);
    cut(&p);

    const int64_t packed = p.direct ? 0 : lg_scratch_times(p.shared_b ? 1 : p.batches, lg_scratch_times(p.packed_size, p.size));
    const int64_t bytes = lg_scratch_plus(packed, lg_pool_threads() * p.turn_size);
    lg_scratch scratch;
    p.packed = lg_scratch_open(&scratch, device, bytes);
    if (p.packed == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    p.turn = p.packed + (bytes - lg_pool_threads() * p.turn_size) / 64 * 64;
    if (!p.direct) lg_parallel(p.pack_slices, pack_slice, &p);
    lg_parallel(p.slices, multiply_slice, &p);
    lg_scratch_close(&scratch);
    return LUGE_OK;
}
