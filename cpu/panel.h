/* Rows that are dense in memory as panels for the kernels of cpu/simd/softmax.h: a long one is a panel by
 * itself; short ones go through a tile, in which they lie side by side. */
#ifndef LG_CPU_PANEL_H
#define LG_CPU_PANEL_H

#include "cpu/simd/softmax.h"
#include "cpu/simd/tile.h"

/* [element][row], f32 or f64 */
typedef struct lg_panel_tile {
    _Alignas(64) char memory[1 << 15];
} lg_panel_tile;

/* How many of `rows` rows of n elements make a panel. Folding costs as much as some ten elements of a row. */
static inline int64_t lg_panel_room(int64_t n, int64_t rows, bool f64)
{
    const int64_t fitting = (int64_t)sizeof(lg_panel_tile) / (f64 ? 8 : 4) / LG_PANEL;
    return n <= fitting && (rows >= 8 || n < 32) ? LG_PANEL : 1;
}

/* Columns of a tile of so many rows: whole vectors. */
static inline int64_t lg_panel_columns(int64_t rows)
{
    return (rows + 15) / 16 * 16;
}

/* The panel of `rows` short rows in tiles. */
static inline lg_panel lg_panel_of_tile(int64_t n, int64_t rows)
{
    const int64_t width = lg_panel_columns(rows);
    return (lg_panel){.lines = n, .width = width, .last = width, .in_step = {LG_PANEL, LG_PANEL}, .out_step = LG_PANEL};
}

/* Row r begins at element r * step of `from`, or `to`. What is beside the rows in the tile is 0. */
static inline void lg_panel_gather(lg_panel_tile *tile, const void *from, int64_t step, int64_t n, int64_t rows,
                                   bool f64)
{
    const lg_pack p = {.to = tile->memory,
                       .to_row = LG_PANEL,
                       .from = from,
                       .from_row = 1,
                       .from_column = step,
                       .rows = n,
                       .columns = rows,
                       .width = lg_panel_columns(rows)};
    LG_ISA_PICK(lg_tile)->pack[f64](&p);
}

static inline void lg_panel_scatter(void *to, int64_t step, const lg_panel_tile *tile, int64_t n, int64_t rows,
                                    bool f64)
{
    const lg_pack p = {.to = to,
                       .to_row = step,
                       .from = tile->memory,
                       .from_row = 1,
                       .from_column = LG_PANEL,
                       .rows = rows,
                       .columns = n,
                       .width = n};
    LG_ISA_PICK(lg_tile)->pack[f64](&p);
}

#endif
