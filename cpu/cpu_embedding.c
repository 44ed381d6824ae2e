/* Rows of a table by index, and sums of gradients into those rows. In the sums every row of the table
 * is worked out by one slice, from the positions that point to it in their order: no atomics, and the
 * same bits however many threads there are. */
#include "core/pool.h"
#include "core/thread.h"
#include "cpu/cpu.h"
#include "cpu/cpu_copy.h"
#include "cpu/scratch.h"
#include "cpu/simd/simd.h"
#include "cpu/strided.h"
#include "ops/attrs.h"
#include <luge/tensor.h>
#include <string.h>

enum { GRAIN = 32768 }; /* elements worth a thread */

static int64_t slices_of(int64_t rows, int64_t dim)
{
    const int64_t grain = dim > 0 ? GRAIN / dim : GRAIN;
    return lg_slices(rows, grain > 0 ? grain : 1);
}

/* The indices row-major and in i64, to be released; NULL with the error set. */
static luge_tensor *dense_indices(const lg_call *call, luge_tensor *indices)
{
    if (indices->dtype == LUGE_I64 && lg_is_contiguous(indices)) return luge_retain(indices);
    return lg_copy_of(call, indices, LUGE_I64, NULL);
}

/* ---- (weight, indices) -> rows */

typedef struct lookup {
    const int64_t *index;
    int64_t count, dim, row, column; /* positions; elements of a row; strides of the table */
    int64_t slices;
    size_t size; /* of an element */
    const char *table;
    char *to;
} lookup;

static void lookup_slice(int64_t slice, void *data)
{
    const lookup *w = data;
    const int64_t end = lg_slice_begin(w->count, w->slices, slice + 1), size = (int64_t)w->size;
    for (int64_t i = lg_slice_begin(w->count, w->slices, slice); i < end; ++i)
        lg_copy_run(w->to + i * w->dim * size, 1, w->table + w->index[i] * w->row * size, w->column, w->dim, w->size);
}

int lg_cpu_embedding(const lg_call *call)
{
    const luge_tensor *weight = call->in[0];
    luge_tensor *indices = dense_indices(call, call->in[1]);
    if (indices == NULL) return (int)lg_error();
    lookup w = {.index = lg_data(indices),
                .count = indices->numel,
                .dim = weight->shape.dim[1],
                .row = weight->stride[0],
                .column = weight->stride[1],
                .size = lg_element_size(weight),
                .table = lg_data(weight),
                .to = lg_data(call->out[0])};
    w.slices = slices_of(w.count, w.dim);
    lg_parallel(w.slices, lookup_slice, &w);
    luge_release(indices);
    return LUGE_OK;
}

/* ---- (g, indices) -> sums of rows of g */

typedef struct gather {
    int64_t rows, dim;
    const int64_t *end; /* positions of row r: order[end[r - 1]] to order[end[r]] */
    const int64_t *order;
    int64_t slices;
    size_t size;
    const char *g;
    char *to;
    lg_reducer sum;       /* adds to f64 */
    lg_convert_fn narrow; /* from f64 */
} gather;

/* Row r from the positions that point to it, of which there are several. */
static void sum_row(const gather *w, const int64_t *position, int64_t count, char *to)
{
    double acc[LG_BLOCK];
    for (int64_t column = 0; column < w->dim; column += LG_BLOCK) {
        const int64_t n = w->dim - column < LG_BLOCK ? w->dim - column : LG_BLOCK;
        memset(acc, 0, (size_t)n * sizeof *acc);
        for (int64_t i = 0; i < count; ++i)
            w->sum(n, 1, 0, w->g + (position[i] * w->dim + column) * (int64_t)w->size, NULL, 0, acc);
        w->narrow(n, to + column * (int64_t)w->size, acc);
    }
}

static void gather_slice(int64_t slice, void *data)
{
    const gather *w = data;
    const int64_t last = lg_slice_begin(w->rows, w->slices, slice + 1);
    const size_t bytes = (size_t)w->dim * w->size;
    for (int64_t row = lg_slice_begin(w->rows, w->slices, slice); row < last; ++row) {
        const int64_t begin = row > 0 ? w->end[row - 1] : 0, count = w->end[row] - begin;
        char *to = w->to + (size_t)row * bytes;
        if (count == 0) {
            memset(to, 0, bytes);
        } else if (count == 1) {
            memcpy(to, w->g + (size_t)w->order[begin] * bytes, bytes);
        } else {
            sum_row(w, w->order + begin, count, to);
        }
    }
}

/* Positions sorted by their index, those of one index in their order. end[rows] first holds where each
 * row's positions begin, and where they end once they are all there. False if an index is out of range:
 * forward has checked them, but memory that the caller lent may have changed since. */
static bool sort_positions(int64_t rows, int64_t count, const int64_t *index, int64_t *end, int64_t *order)
{
    memset(end, 0, (size_t)rows * sizeof *end);
    for (int64_t i = 0; i < count; ++i) {
        if (index[i] < 0 || index[i] >= rows) return false;
        ++end[index[i]];
    }
    for (int64_t row = 0, begin = 0; row < rows; ++row) {
        const int64_t here = end[row];
        end[row] = begin;
        begin += here;
    }
    for (int64_t i = 0; i < count; ++i) order[end[index[i]]++] = i;
    return true;
}

static luge_status sum_into_rows(const lg_call *call, const luge_tensor *indices)
{
    const luge_tensor *g = call->in[0];
    luge_tensor *to = call->out[0];
    gather w = {.rows = to->shape.dim[0],
                .dim = to->shape.dim[1],
                .size = lg_element_size(g),
                .g = lg_data(g),
                .to = lg_data(to),
                .sum = LG_ISA_PICK(lg_reduces)->of[lg_lane_of(g->dtype)][LG_REDUCE_SUM],
                .narrow = LG_ISA_PICK(lg_converts)->to_from[g->dtype][LUGE_F64]};
    lg_scratch scratch;
    int64_t *end = lg_scratch_open(&scratch, call->device, lg_scratch_times(w.rows + indices->numel, sizeof *end));
    if (end == NULL) return lg_error();
    const bool sorted = sort_positions(w.rows, indices->numel, lg_data(indices), end, end + w.rows);
    w.end = end;
    w.order = end + w.rows;
    w.slices = slices_of(w.rows, w.dim);
    if (sorted) lg_parallel(w.slices, gather_slice, &w);
    lg_scratch_close(&scratch);
    if (sorted) return LUGE_OK;
    return lg_op_fail(call, LUGE_ERR_ARGUMENT, "the indices have changed since they were looked up");
}

int lg_cpu_embedding_backward(const lg_call *call)
{
    const luge_tensor *g = call->in[0];
    if ((g->dtype != LUGE_F32 && g->dtype != LUGE_F64) || !lg_is_contiguous(g)) return LG_DECLINED;
    luge_tensor *indices = dense_indices(call, call->in[1]);
    if (indices == NULL) return (int)lg_error();
    const luge_status status = sum_into_rows(call, indices);
    luge_release(indices);
    return (int)status;
}
