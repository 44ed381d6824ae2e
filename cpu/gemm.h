/* Products of strided matrices of f32 or f64, batched: matmul and linear, over the tiles of
 * cpu/simd/tile.h. Also how columns are cut into panels, which convolutions do alike. */
#ifndef LG_CPU_GEMM_H
#define LG_CPU_GEMM_H

#include "core/pool.h"
#include "core/tensor.h"
#include "cpu/simd/tile.h"

/* C [m, n] = A [m, k] B [k, n] + bias [n] for each of a batch. Strides are in elements. C's rows are
 * dense; A and B may lie in any order. */
typedef struct lg_gemm {
    bool f64;
    int64_t m, n, k;
    const void *a, *b, *bias;    /* bias NULL: none */
    void *c;
    int64_t a_row, a_column, b_row, b_column, c_row, bias_step;
    int batch_rank;
    int64_t batch[LUGE_MAX_RANK], a_batch[LUGE_MAX_RANK], b_batch[LUGE_MAX_RANK], c_batch[LUGE_MAX_RANK];
} lg_gemm;

/* The same bits for any number of threads. Memory for packing comes from the device. */
luge_status lg_gemm_run(lg_device *device, const lg_gemm *g);

/* Columns of a product cut into panels of at most LG_TILE_VECTORS vectors, as even as can be. Packed
 * panels follow each other; their rows are padded to whole vectors, but for a few columns that would
 * be mostly padding. */
typedef struct lg_panels {
    int64_t columns, lanes, vectors, count;
    bool narrow;
} lg_panels;

static inline lg_panels lg_panels_of(int64_t columns, int64_t lanes)
{
    const int64_t vectors = (columns + lanes - 1) / lanes;
    return (lg_panels){.columns = columns, .lanes = lanes, .vectors = vectors,
                       .count = (vectors + LG_TILE_VECTORS - 1) / LG_TILE_VECTORS, .narrow = columns <= lanes / 2};
}
/* First column of panel p. */
static inline int64_t lg_panel_begin(const lg_panels *p, int64_t panel)
{
    return lg_slice_begin(p->vectors, p->count, panel) * p->lanes;
}
/* Columns of it that are there. */
static inline int64_t lg_panel_columns(const lg_panels *p, int64_t panel)
{
    const int64_t end = lg_panel_begin(p, panel + 1);
    return (end < p->columns ? end : p->columns) - lg_panel_begin(p, panel);
}
/* Elements from one of its packed rows to the next. */
static inline int64_t lg_panel_width(const lg_panels *p, int64_t panel)
{
    return p->narrow ? p->columns : lg_panel_begin(p, panel + 1) - lg_panel_begin(p, panel);
}
/* Elements of k packed rows of all panels, with what tiles may read behind them. */
static inline int64_t lg_panels_size(const lg_panels *p, int64_t k)
{
    return (p->narrow ? p->columns : p->vectors * p->lanes) * k + p->lanes;
}

#endif
