/* Softmax and its relatives on panels: rows of a tensor that lie side by side, as columns, so that all of
 * them are worked on at once. A long row that is dense in memory is a panel too: its elements are dealt
 * out to columns, and what these find is folded into one. Sums of many elements are in f64. */
#ifndef LG_CPU_SIMD_SOFTMAX_H
#define LG_CPU_SIMD_SOFTMAX_H

#include "cpu/isa.h"
#include <stdbool.h>
#include <stdint.h>

enum { LG_PANEL = 64 }; /* columns at most */

/* Element j of line i is at in[k][i * in_step[k] + j] and out[i * out_step + j]. */
typedef struct lg_panel {
    int64_t lines, width;
    int64_t last; /* the width of the last line, which may be shorter in a folded panel */
    bool folded;  /* all is one row */
    const void *in[2];
    void *out;
    int64_t in_step[2], out_step;
} lg_panel;

/* One dense row of n elements, at least 1: long ones in more columns, which take longer to fold. */
static inline lg_panel lg_panel_of_row(int64_t n)
{
    const int64_t width = n < 512 ? LG_PANEL / 2 : LG_PANEL, lines = (n + width - 1) / width;
    return (lg_panel){.lines = lines,
                      .width = width,
                      .last = n - (lines - 1) * width,
                      .folded = true,
                      .in_step = {width, width},
                      .out_step = width};
}

static inline int64_t lg_panel_width(const lg_panel *p, int64_t line)
{
    return line + 1 < p->lines ? p->width : p->last;
}
static inline int64_t lg_panel_rows(const lg_panel *p)
{
    return p->folded ? 1 : p->width;
}

typedef void (*lg_panel_fn)(const lg_panel *p);

/* Arrays of numbers for each row have lg_panel_rows elements, in the panel's type where they are void. */
typedef struct lg_softmax_kernels {
    /* x -> y; g, y -> gx. out may be an input. */
    lg_panel_fn softmax, log_softmax, softmax_backward, log_softmax_backward;
    /* log sum e^x = top + low, where top is the largest element if that is finite. */
    void (*log_sum)(const lg_panel *p, void *top, void *low);
    /* sum over i of share[i] (top - x[i] + low) */
    void (*spread)(const lg_panel *p, const void *share, const void *top, const void *low, double *sum);
    /* out = scale e^(x - lse) - d share[i]; share NULL: zeros */
    void (*gradient)(const lg_panel *p, const void *share, const void *lse, const void *scale, const void *d);
} lg_softmax_kernels;

typedef struct lg_softmax_table {
    lg_softmax_kernels of[2];
} lg_softmax_table; /* f32, f64 */
LG_ISA_DECLARE(const lg_softmax_table, lg_softmaxes);

#endif
