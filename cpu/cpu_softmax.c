/* softmax, log_softmax and their gradients, row by row along the axis (cpu/simd/rows.h). Rows that are
 * not dense in memory go through buffers. */
#include "core/pool.h"
#include "cpu/cpu.h"
#include "cpu/scratch.h"
#include "cpu/simd/rows.h"
#include "cpu/strided.h"
#include "ops/attrs.h"

enum { GRAIN = 1 << 13, TENSORS = 3 }; /* elements per slice, at least */

/* Rows of one shape in several tensors, the last of which is written. */
typedef struct softmax_work {
    const luge_tensor *tensor[TENSORS];
    int tensors, axis;
    int64_t length, rows, slices, size;
    bool plain;                  /* row r begins at r * length in every tensor */
    void (*forward)(int64_t n, const void *x, void *y);
    void (*backward)(int64_t n, const void *g, const void *y, void *gx);
    char *buffers;               /* `tensors` rows a thread */
} softmax_work;

/* Where row `row` begins, in elements. */
static int64_t row_start(const softmax_work *w, const luge_tensor *t, int64_t row)
{
    int64_t start = 0;
    if (w->plain) return row * w->length;
    for (int i = t->shape.rank - 1; i >= 0 && row > 0; --i) {
        if (i == w->axis) continue;
        start += row % t->shape.dim[i] * t->stride[i];
        row /= t->shape.dim[i];
    }
    return start;
}

static void work_on_row(const softmax_work *w, int64_t row, char *buffer)
{
    char *at[TENSORS], *dense[TENSORS];
    int64_t step[TENSORS];
    for (int k = 0; k < w->tensors; ++k) {
        const luge_tensor *t = w->tensor[k];
        step[k] = w->length == 1 ? 1 : t->stride[w->axis];
        at[k] = (char *)lg_data(t) + row_start(w, t, row) * w->size;
        dense[k] = step[k] == 1 ? at[k] : buffer + k * w->length * w->size;
        if (step[k] != 1 && k < w->tensors - 1) lg_copy_run(dense[k], 1, at[k], step[k], w->length, (size_t)w->size);
    }
    if (w->forward != NULL)
        w->forward(w->length, dense[0], dense[1]);
    else
        w->backward(w->length, dense[0], dense[1], dense[2]);
    const int last = w->tensors - 1;
    if (step[last] != 1) lg_copy_run(at[last], step[last], dense[last], 1, w->length, (size_t)w->size);
}

static void softmax_slice(int64_t slice, void *work)
{
    const softmax_work *w = work;
    char *buffer = w->buffers + lg_pool_thread() * w->tensors * w->length * w->size;
    const int64_t end = lg_slice_begin(w->rows, w->slices, slice + 1);
    for (int64_t row = lg_slice_begin(w->rows, w->slices, slice); row < end; ++row) work_on_row(w, row, buffer);
}

/* w has its functions. */
static int run(const lg_call *call, softmax_work *w)
{
    const lg_axis_attrs *a = call->attrs;
    const luge_tensor *y = call->out[0];
    if (y->dtype != LUGE_F32 && y->dtype != LUGE_F64) return LG_DECLINED;
    w->tensors = call->n_in + 1;
    w->axis = a->axis;
    w->size = (int64_t)lg_element_size(y);
    w->length = y->shape.rank == 0 ? 1 : y->shape.dim[a->axis];
    w->rows = y->numel / w->length;
    w->slices = lg_slices(w->rows, GRAIN / w->length);
    w->plain = a->axis >= y->shape.rank - 1;
    bool dense = true;
    for (int k = 0; k < w->tensors; ++k) {
        const luge_tensor *t = w->tensor[k] = k < call->n_in ? call->in[k] : y;
        w->plain = w->plain && lg_is_contiguous(t);
        dense = dense && (w->length == 1 || t->stride[a->axis] == 1);
    }
    lg_scratch scratch;
    const int64_t row_bytes = lg_scratch_times(w->length, w->tensors * w->size);
    w->buffers = lg_scratch_open(&scratch, call->device, dense ? 0 : lg_scratch_times(lg_pool_threads(), row_bytes));
    if (w->buffers == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    lg_parallel(w->slices, softmax_slice, w);
    lg_scratch_close(&scratch);
    return LUGE_OK;
}

static const lg_row_kernels *kernels_of(const lg_call *call)
{
    return &LG_ISA_PICK(lg_rows)->of[call->out[0]->dtype == LUGE_F64];
}

int lg_cpu_softmax(const lg_call *call)
{
    softmax_work w = {.forward = kernels_of(call)->softmax};
    return run(call, &w);
}

int lg_cpu_log_softmax(const lg_call *call)
{
    softmax_work w = {.forward = kernels_of(call)->log_softmax};
    return run(call, &w);
}

int lg_cpu_softmax_backward(const lg_call *call)
{
    softmax_work w = {.backward = kernels_of(call)->softmax_backward};
    return run(call, &w);
}

int lg_cpu_log_softmax_backward(const lg_call *call)
{
    softmax_work w = {.backward = kernels_of(call)->log_softmax_backward};
    return run(call, &w);
}
