/* softmax, log_softmax and their gradients, in panels of rows (cpu/simd/softmax.h). Rows are dense in
 * memory, or side by side; what is neither is copied first. */
#include "core/iter.h"
#include "core/pool.h"
#include "core/thread.h"
#include "cpu/cpu.h"
#include "cpu/cpu_copy.h"
#include "cpu/panel.h"
#include "cpu/strided.h"
#include "ops/attrs.h"
#include <luge/tensor.h>
#include <string.h>

enum { GRAIN = 16384, MAX_TENSORS = 3 }; /* elements worth a thread; inputs and output */

typedef struct softmax_work {
    lg_panel_fn kernel;
    lg_iter it; /* over the rows: the output first, then the inputs */
    char *data[MAX_TENSORS];
    int64_t step[MAX_TENSORS]; /* along a row */
    int64_t n, size;           /* elements of a row; bytes of an element */
    bool side_by_side;
    int64_t room, panels, slices; /* rows of a panel; panels in all, if none is cut off */
} softmax_work;

static char *row_at(const softmax_work *w, int k, const lg_cursor *c)
{
    return w->data[k] + c->offset[k] * w->size;
}

/* Rows that lie side by side are columns as they are. */
static void run_columns(const softmax_work *w, const lg_cursor *c, int64_t rows)
{
    lg_panel p = {.lines = w->n, .width = rows, .last = rows, .out = row_at(w, 0, c), .out_step = w->step[0]};
    for (int k = 1; k < w->it.n; ++k) {
        p.in[k - 1] = row_at(w, k, c);
        p.in_step[k - 1] = w->step[k];
    }
    w->kernel(&p);
}

static void run_long_row(const softmax_work *w, const lg_cursor *c)
{
    lg_panel p = lg_panel_of_row(w->n);
    for (int k = 1; k < w->it.n; ++k) p.in[k - 1] = row_at(w, k, c);
    p.out = row_at(w, 0, c);
    w->kernel(&p);
}

static void run_short_rows(const softmax_work *w, const lg_cursor *c, int64_t rows)
{
    lg_panel_tile tile[MAX_TENSORS - 1];
    lg_panel p = lg_panel_of_tile(w->n, rows);
    const bool f64 = w->size == sizeof(double);
    for (int k = 1; k < w->it.n; ++k) {
        lg_panel_gather(&tile[k - 1], row_at(w, k, c), w->it.stride[k][0], w->n, rows, f64);
        p.in[k - 1] = tile[k - 1].memory;
    }
    p.out = tile[0].memory;
    w->kernel(&p);
    lg_panel_scatter(row_at(w, 0, c), w->it.stride[0][0], &tile[0], w->n, rows, f64);
}

static void softmax_slice(int64_t slice, void *data)
{
    const softmax_work *w = data;
    int64_t row = lg_slice_begin(w->panels, w->slices, slice) * w->room;
    int64_t end = lg_slice_begin(w->panels, w->slices, slice + 1) * w->room;
    if (end > w->it.numel) end = w->it.numel;
    lg_cursor c;
    lg_cursor_set(&c, &w->it, row);
    while (row < end) {
        int64_t rows = w->it.size[0] - c.index[0];
        if (rows > w->room) rows = w->room;
        if (rows > end - row) rows = end - row;
        if (w->side_by_side) {
            run_columns(w, &c, rows);
        } else if (w->room == 1) {
            run_long_row(w, &c);
        } else {
            run_short_rows(w, &c, rows);
        }
        row += rows;
        lg_cursor_move(&c, &w->it, rows);
    }
}

/* ---- setting up */

/* A stand-in for t that has the first element of each row only. */
static luge_tensor rows_of(const luge_tensor *t, int axis)
{
    luge_tensor r = {.dtype = t->dtype, .storage = t->storage, .offset = t->offset, .shape = t->shape};
    memcpy(r.stride, t->stride, sizeof r.stride);
    if (r.shape.rank > 0) r.shape.dim[axis] = 1;
    return r;
}

static void lay_out(softmax_work *w, int n, luge_tensor *const *tensor, int axis)
{
    luge_tensor rows[MAX_TENSORS], *pointer[MAX_TENSORS];
    for (int k = 0; k < n; ++k) {
        rows[k] = rows_of(tensor[k], axis);
        pointer[k] = &rows[k];
        w->data[k] = lg_data(tensor[k]);
        w->step[k] = w->n > 1 ? tensor[k]->stride[axis] : 1;
    }
    lg_iter_init(&w->it, &rows[0].shape, n, pointer);
    w->side_by_side = w->step[0] != 1;
}

/* Whether tensor k has its rows as the output has them. */
static bool fits(const softmax_work *w, int k)
{
    return w->side_by_side ? w->it.stride[k][0] == 1 : w->step[k] == 1;
}

static void run_rows(softmax_work *w)
{
    w->room = w->side_by_side ? LG_PANEL : lg_panel_room(w->n, w->it.numel, w->size == sizeof(double));
    w->panels = (w->it.numel + w->room - 1) / w->room;
    w->slices = lg_slices(w->panels, GRAIN / (w->room * w->n));
    lg_parallel(w->slices, softmax_slice, w);
}

static int run(const lg_call *call, lg_panel_fn kernel)
{
    const int axis = ((const lg_axis_attrs *)call->attrs)->axis, n = call->n_in + 1;
    luge_tensor *y = call->out[0], *tensor[MAX_TENSORS] = {y}, *copy[MAX_TENSORS] = {NULL};
    softmax_work w = {.kernel = kernel, .size = (int64_t)lg_element_size(y)};
    if (kernel == NULL) return LG_DECLINED;
    if (y->numel == 0) return LUGE_OK;
    w.n = y->shape.rank == 0 ? 1 : y->shape.dim[axis];
    for (int k = 1; k < n; ++k) tensor[k] = call->in[k - 1];
    lay_out(&w, n, tensor, axis);
    if (!fits(&w, 0)) return LG_DECLINED;

    luge_status status = LUGE_OK;
    bool copied = false;
    for (int k = 1; k < n && status == LUGE_OK; ++k) {
        if (fits(&w, k)) continue;
        tensor[k] = copy[k] = lg_copy_of(call, tensor[k], tensor[k]->dtype, y->stride);
        if (copy[k] == NULL) status = lg_error();
        copied = true;
    }
    if (status == LUGE_OK) {
        if (copied) lay_out(&w, n, tensor, axis);
        run_rows(&w);
    }
    for (int k = 1; k < n; ++k) luge_release(copy[k]);
    return (int)status;
}

/* The kernels for the type of the output; all NULL if there are none. */
static const lg_softmax_kernels *kernels_of(const lg_call *call)
{
    static const lg_softmax_kernels none;
    const luge_dtype d = call->out[0]->dtype;
    return d == LUGE_F32 || d == LUGE_F64 ? &LG_ISA_PICK(lg_softmaxes)->of[d == LUGE_F64] : &none;
}

int lg_cpu_softmax(const lg_call *call)
{
    return run(call, kernels_of(call)->softmax);
}
int lg_cpu_log_softmax(const lg_call *call)
{
    return run(call, kernels_of(call)->log_softmax);
}
int lg_cpu_softmax_backward(const lg_call *call)
{
    return run(call, kernels_of(call)->softmax_backward);
}
int lg_cpu_log_softmax_backward(const lg_call *call)
{
    return run(call, kernels_of(call)->log_softmax_backward);
}
