/* The product of matrices. B is packed panel by panel, A mostly read where it is; then tiles of C are
 * computed, shared out among threads in slices fixed by the sizes. Where B would be the costly one to
 * pack - a weight [n, k] under a small batch - the transposed product is computed instead, and tiles
 * are turned on their way to C. */
#include "cpu/gemm.h"
#include "cpu/scratch.h"

enum {
    PACK_ROWS = 64,              /* rows of k packed at a time: few enough for the pages they lie in */
    PACK_GRAIN = 1 << 14,        /* elements packed per slice, at least */
    K_BLOCK = 1024,              /* the most of k in one go: a panel stays in L2 */
    K_BLOCK_DIRECT = 64,         /* where B is not packed: its rows stay within as many pages */
    PANELS_DIRECT = 4,           /* per slice, at least: whole lines of B's rows */
    SLICE_FLOPS = 1 << 20,       /* per slice, at least */
    PAGE = 4096,
    PAGES = 96,                  /* more than these in one tile make reading slow: A is packed */
    SMALL_B = 1 << 19            /* bytes of B that stay in L2 while all of A passes */
};

/* A or B on its way: a matrix of k rows, cut into panels of columns. A's columns are the rows of the
 * product, as many to a panel as to a tile. */
typedef struct operand {
    const char *data;
    int64_t row, column;         /* strides */
    const int64_t *batch;        /* strides */
    lg_panels panels;
    bool packed, shared;         /* shared: one for the whole batch */
    char *buffer;
    int64_t buffer_size;         /* elements for each of the batch */
    int64_t pack_slices;
} operand;

/* A product in the orientation chosen. */
typedef struct product {
    const lg_gemm *g;
    const lg_tile_kernels *kernels;
    operand a, b;
    bool transposed;             /* A's panels are C's columns */
    bool rows_first;             /* slices go along panels of B, not along those of A */
    int64_t size;                /* of an element */
    int64_t batches, k_blocks;
    int64_t unit, units;         /* panels of A taken together; how many of these there are */
    int64_t slices;
    char *bias;                  /* in whole vectors; NULL: none, or C is transposed */
    char *turn;                  /* tiles to be turned, turn_size bytes a thread */
    int64_t turn_size;
} product;

/* ---- operands */

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

/* Row k of a panel, where the operand lies. */
static const char *place_in(const product *p, const operand *o, int64_t batch, int64_t panel, int64_t k)
{
    return o->data + (batch_offset(p->g, batch, o->batch) + k * o->row + lg_panel_begin(&o->panels, panel) * o->column) * p->size;
}
static char *place_in_buffer(const product *p, const operand *o, int64_t batch, int64_t panel, int64_t k)
{
    const int64_t of_panel = o->panels.narrow ? 0 : lg_panel_begin(&o->panels, panel) * p->g->k;
    return o->buffer + ((o->shared ? 0 : batch * o->buffer_size) + of_panel + k * lg_panel_width(&o->panels, panel)) * p->size;
}

/* ---- packing: slices over (batch, block of k, panel), so that rows are read along */

typedef struct packing {
    const product *p;
    const operand *o;
} packing;

static int64_t pack_blocks(const product *p) { return (p->g->k + PACK_ROWS - 1) / PACK_ROWS; }
static int64_t pack_items(const product *p, const operand *o)
{
    return (o->shared ? 1 : p->batches) * o->panels.count * pack_blocks(p);
}

static void pack_slice(int64_t slice, void *work)
{
    const product *p = ((const packing *)work)->p;
    const operand *o = ((const packing *)work)->o;
    const int64_t items = pack_items(p, o), blocks = pack_blocks(p), end = lg_slice_begin(items, o->pack_slices, slice + 1);
    for (int64_t i = lg_slice_begin(items, o->pack_slices, slice); i < end; ++i) {
        const int64_t panel = i % o->panels.count, k = i / o->panels.count % blocks * PACK_ROWS, batch = i / o->panels.count / blocks;
        const int64_t width = lg_panel_width(&o->panels, panel);
        const lg_pack pack = {
            .to = place_in_buffer(p, o, batch, panel, k),
            .from = place_in(p, o, batch, panel, k),
            .to_row = width,
            .from_row = o->row,
            .from_column = o->column,
            .rows = p->g->k - k < PACK_ROWS ? p->g->k - k : PACK_ROWS,
            .columns = lg_panel_columns(&o->panels, panel),
            .width = width,
        };
        p->kernels->pack[p->g->f64](&pack);
    }
}

static void pack_operand(const product *p, const operand *o)
{
    packing work = {p, o};
    if (o->packed) lg_parallel(o->pack_slices, pack_slice, &work);
}

/* ---- tiles: slices over (batch, panel of B, unit of panels of A) or (batch, unit, panel) */

/* Where one unit meets one panel. */
typedef struct place {
    int64_t batch, panel, unit;
    int64_t row, rows, column, columns; /* of the product as oriented */
} place;

static place place_of(const product *p, int64_t item)
{
    const int64_t panels = p->b.panels.count, in_batch = item % (panels * p->units);
    place at = {.batch = item / (panels * p->units),
                .panel = p->rows_first ? in_batch % panels : in_batch / p->units,
                .unit = p->rows_first ? in_batch / panels : in_batch % p->units};
    const int64_t unit_rows = p->unit * p->kernels->rows, rows = p->a.panels.columns;
    at.row = at.unit * unit_rows;
    at.rows = rows - at.row < unit_rows ? rows - at.row : unit_rows;
    at.column = lg_panel_begin(&p->b.panels, at.panel);
    at.columns = lg_panel_columns(&p->b.panels, at.panel);
    return at;
}

/* The rows of a tile to be turned begin with their own bias each. */
static void start_rows(const product *p, const place *at, char *c, int64_t c_row)
{
    const lg_pack pack = {
        .to = c,
        .from = (const char *)p->g->bias + at->row * p->g->bias_step * p->size,
        .to_row = c_row,
        .from_row = p->g->bias_step,
        .rows = at->rows,
        .columns = at->columns,
        .width = at->columns,
    };
    p->kernels->pack[p->g->f64](&pack);
}

/* One unit times one panel, for [k, k + run). */
static void multiply_unit(const product *p, const place *at, int64_t k, int64_t run, char *c, int64_t c_row)
{
    static const int64_t no_offset = 0;
    const operand *a = &p->a, *b = &p->b;
    const int rows = p->kernels->rows;
    const int64_t a_row = (a->packed ? 1 : a->column) * p->size;
    lg_tile tile = {
        .b = b->packed ? place_in_buffer(p, b, at->batch, at->panel, k) : place_in(p, b, at->batch, at->panel, k),
        .a_segment = &no_offset,
        .b_segment = &no_offset,
        .segments = 1,
        .run = run,
        .a_step = a->packed ? rows : a->row,
        .b_step = b->packed ? lg_panel_width(&b->panels, at->panel) : b->row,
        .columns = (int)at->columns,
        .add = k > 0 || (p->transposed && p->g->bias != NULL),
    };
    if (k == 0 && p->bias != NULL) tile.start = p->bias + at->column * p->size;
    if (k == 0 && p->transposed && p->g->bias != NULL) start_rows(p, at, c, c_row);
    for (int64_t i = 0; i < at->rows; i += rows) {
        const int64_t panel = (at->row + i) / rows;
        const char *from = a->packed ? place_in_buffer(p, a, at->batch, panel, k) : place_in(p, a, at->batch, panel, k);
        tile.rows = at->rows - i < rows ? (int)(at->rows - i) : rows;
        for (int j = 0; j < rows; ++j) {
            const int row = j < tile.rows ? j : tile.rows - 1;
            tile.a[j] = from + row * a_row;
            tile.c[j] = c + (i + row) * c_row * p->size;
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

static int64_t items_of(const product *p) { return p->batches * p->b.panels.count * p->units; }
static int64_t turn_bytes(const product *p) { return p->unit * p->kernels->rows * LG_TILE_BYTES; }

static void multiply_slice(int64_t slice, void *work)
{
    const product *p = work;
    const int64_t items = items_of(p);
    const int64_t begin = lg_slice_begin(items, p->slices, slice), end = lg_slice_begin(items, p->slices, slice + 1);
    char *const turn = p->turn + lg_pool_thread() * p->turn_size;
    for (int64_t block = 0; block < p->k_blocks; ++block) {
        const int64_t k = lg_slice_begin(p->g->k, p->k_blocks, block);
        const int64_t run = lg_slice_begin(p->g->k, p->k_blocks, block + 1) - k;
        for (int64_t i = begin; i < end; ++i) {
            const place at = place_of(p, i);
            if (!p->transposed) {
                multiply_unit(p, &at, k, run, place_in_c(p, &at), p->g->c_row);
                continue;
            }
            char *turned = turn + (p->k_blocks == 1 ? 0 : i - begin) * turn_bytes(p);
            multiply_unit(p, &at, k, run, turned, at.columns);
            if (block == p->k_blocks - 1) turn_into_c(p, &at, turned);
        }
    }
}

/* ---- choosing, by the sizes and strides alone */

/* Packing a B that is dense along k costs a transposition. If A has fewer rows than B columns, packing
 * A instead, and turning C, is cheaper. */
static bool better_transposed(const lg_gemm *g)
{
    if (g->b_row != 1 || g->b_column == 1 || g->m >= g->n) return false;
    return (double)g->k * (double)g->m + (double)g->m * (double)g->n < (double)g->k * (double)g->n;
}

static void orient(product *p)
{
    const lg_gemm *g = p->g;
    const int64_t lanes = p->kernels->lanes[g->f64], rows = p->kernels->rows;
    operand a = {.data = g->a, .row = g->a_column, .column = g->a_row, .batch = g->a_batch};
    operand b = {.data = g->b, .row = g->b_row, .column = g->b_column, .batch = g->b_batch};
    p->transposed = better_transposed(g);
    p->a = p->transposed ? b : a;
    p->b = p->transposed ? a : b;
    const int64_t m = p->transposed ? g->n : g->m, n = p->transposed ? g->m : g->n;
    p->b.panels = lg_panels_of(n, lanes);
    p->a.panels = (lg_panels){.columns = m, .lanes = rows, .vectors = (m + rows - 1) / rows, .count = (m + rows - 1) / rows};
    p->unit = p->transposed && rows < lanes ? lanes / rows : 1; /* so that whole squares are turned */
    p->units = (p->a.panels.count + p->unit - 1) / p->unit;

    /* A few rows do not earn packing B; A is packed where one tile of it would be spread too wide. */
    const double spread = (double)p->a.row * (double)p->size >= PAGE ? 1 : (double)p->a.row * (double)p->size / PAGE;
    p->b.packed = p->b.column != 1 || n % lanes != 0 || m > 2 * rows;
    p->a.packed = p->a.row != 1 && (double)g->k * spread > PAGES && p->b.panels.count > 1;
    p->rows_first = (double)p->b.panels.columns * (double)g->k * (double)p->size <= SMALL_B;
}

static void cut(product *p)
{
    const int64_t k = p->g->k, items = items_of(p);
    operand *const both[] = {&p->a, &p->b};
    for (int i = 0; i < 2; ++i) {
        operand *o = both[i];
        o->shared = same_for_batch(p->g, o->batch);
        o->buffer_size = lg_panels_size(&o->panels, k);
        o->pack_slices = lg_slices(pack_items(p, o), PACK_GRAIN / (PACK_ROWS * lg_panel_width(&o->panels, 0)));
    }
    const int64_t block = p->b.packed ? K_BLOCK : K_BLOCK_DIRECT;
    p->k_blocks = k <= block ? 1 : (k + block - 1) / block;
    const double flops = 2.0 * (double)(p->unit * p->kernels->rows * lg_panel_width(&p->b.panels, 0)) * (double)(k + 1);
    p->slices = lg_slices(items, p->b.packed ? (int64_t)(SLICE_FLOPS / flops) : PANELS_DIRECT * p->units);
    if (p->transposed) p->turn_size = (p->k_blocks == 1 ? 1 : (items + p->slices - 1) / p->slices) * turn_bytes(p);
}

static int64_t buffer_bytes(const product *p, const operand *o)
{
    if (!o->packed) return 0;
    return lg_scratch_times(o->shared ? 1 : p->batches, lg_scratch_times(o->buffer_size, p->size));
}

static void pack_bias(const product *p)
{
    const int64_t n = p->g->n;
    const lg_pack pack = {.to = p->bias, .from = p->g->bias, .from_column = p->g->bias_step, .rows = 1, .columns = n,
                          .width = p->b.panels.vectors * p->b.panels.lanes};
    p->kernels->pack[p->g->f64](&pack);
}

luge_status lg_gemm_run(lg_device *device, const lg_gemm *g)
{
    product p = {.g = g, .kernels = LG_ISA_PICK(lg_tile), .size = g->f64 ? 8 : 4, .batches = 1};
    for (int i = 0; i < g->batch_rank; ++i) p.batches *= g->batch[i];
    if (p.batches == 0 || g->m == 0 || g->n == 0) return LUGE_OK;
    orient(&p);
    cut(&p);

    const bool with_bias = g->bias != NULL && !p.transposed;
    const int64_t for_turns = lg_scratch_plus(0, lg_pool_threads() * p.turn_size);
    const int64_t for_bias = lg_scratch_plus(for_turns, with_bias ? p.b.panels.vectors * p.b.panels.lanes * p.size : 0);
    const int64_t for_a = lg_scratch_plus(for_bias, buffer_bytes(&p, &p.a));
    lg_scratch scratch;
    p.turn = lg_scratch_open(&scratch, device, lg_scratch_plus(for_a, buffer_bytes(&p, &p.b)));
    if (p.turn == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    if (with_bias) p.bias = p.turn + for_turns;
    p.a.buffer = p.turn + for_bias;
    p.b.buffer = p.turn + for_a;
    if (with_bias) pack_bias(&p);
    pack_operand(&p, &p.a);
    pack_operand(&p, &p.b);
    lg_parallel(p.slices, multiply_slice, &p);
    lg_scratch_close(&scratch);
    return LUGE_OK;
}
