/* Losses: cross_entropy row by row, mse_loss and bce_with_logits piece by piece (cpu/simd/rows.h). Sums
 * of slices are added in their order, in f64. */
#include <luge/scope.h>
#include <string.h>
#include "core/pool.h"
#include "cpu/cpu.h"
#include "cpu/scratch.h"
#include "cpu/simd/rows.h"
#include "cpu/strided.h"
#include "ops/attrs.h"

enum { GRAIN = 1 << 13, MAX_SLICES = 256 }; /* elements per slice, at least; what lg_slices gives at most */

static bool is_real(const luge_tensor *t) { return t->dtype == LUGE_F32 || t->dtype == LUGE_F64; }

static double load(const luge_tensor *t, int64_t offset)
{
    return t->dtype == LUGE_F64 ? ((const double *)lg_data(t))[offset] : (double)((const float *)lg_data(t))[offset];
}

static void store(luge_tensor *t, int64_t offset, double value)
{
    if (t->dtype == LUGE_F64)
        ((double *)lg_data(t))[offset] = value;
    else
        ((float *)lg_data(t))[offset] = (float)value;
}

/* ---- cross_entropy. What is wanted of row n is weight[c] ((1 - s) [c is the target] + s / C): the first
 * part is added by hand, the second, `share`, by the kernels. */

typedef struct entropy_work {
    const lg_row_kernels *kernels;
    const lg_cross_entropy_attrs *attrs;
    const luge_tensor *x, *target, *weight;
    int64_t rows, classes, slices, size;
    double sure, share_sum;      /* 1 - s; the sum of share */
    char *share;                 /* [C]; NULL if s is 0 */
    char *buffers;               /* a row of logits a thread, if they are not dense */
    /* forward */
    luge_tensor *loss, *lse, *count;
    double sum[MAX_SLICES], weights[MAX_SLICES];
    /* backward */
    const luge_tensor *g, *saved_lse;
    double scale;                /* of g */
    luge_tensor *gx;
} entropy_work;

static int64_t target_at(const entropy_work *w, int64_t n)
{
    const int64_t at = n * w->target->stride[0];
    return w->target->dtype == LUGE_I64 ? ((const int64_t *)lg_data(w->target))[at] : ((const int32_t *)lg_data(w->target))[at];
}

static double weight_at(const entropy_work *w, int64_t c)
{
    return w->weight == NULL ? 1 : load(w->weight, c * w->weight->stride[0]);
}

static const char *dense_row(const entropy_work *w, int64_t n)
{
    const char *from = (const char *)lg_data(w->x) + n * w->x->stride[0] * w->size;
    if (w->x->stride[1] == 1 || w->classes == 1) return from;
    char *to = w->buffers + lg_pool_thread() * w->classes * w->size;
    lg_copy_run(to, 1, from, w->x->stride[1], w->classes, (size_t)w->size);
    return to;
}

static double element(const entropy_work *w, const char *row, int64_t c)
{
    return w->size == 8 ? ((const double *)(const void *)row)[c] : (double)((const float *)(const void *)row)[c];
}

static void loss_slice(int64_t slice, void *data)
{
    entropy_work *w = data;
    double sum = 0, weights = 0;
    const int64_t end = lg_slice_begin(w->rows, w->slices, slice + 1);
    for (int64_t n = lg_slice_begin(w->rows, w->slices, slice); n < end; ++n) {
        const char *row = dense_row(w, n);
        const double lse = w->kernels->log_sum_exp(w->classes, row);
        const int64_t target = target_at(w, n);
        double loss = 0;
        store(w->lse, n, lse);
        if (target != w->attrs->ignore_index) {
            const double weight = weight_at(w, target);
            loss = weight * w->sure * (lse - element(w, row, target));
            if (w->share != NULL) loss += w->kernels->spread_loss(w->classes, row, w->share, lse);
            weights += weight;
        }
        if (w->attrs->reduction == LUGE_NO_REDUCTION) store(w->loss, n, loss);
        sum += loss;
    }
    w->sum[slice] = sum;
    w->weights[slice] = weights;
}

static void gradient_slice(int64_t slice, void *data)
{
    const entropy_work *w = data;
    const int64_t end = lg_slice_begin(w->rows, w->slices, slice + 1);
    for (int64_t n = lg_slice_begin(w->rows, w->slices, slice); n < end; ++n) {
        char *to = (char *)lg_data(w->gx) + n * w->classes * w->size;
        const int64_t target = target_at(w, n);
        if (target == w->attrs->ignore_index) {
            memset(to, 0, (size_t)(w->classes * w->size));
            continue;
        }
        const double d = w->scale * load(w->g, w->attrs->reduction == LUGE_NO_REDUCTION ? n * w->g->stride[0] : 0);
        const double sure = w->sure * weight_at(w, target);
        const double lse = load(w->saved_lse, n * w->saved_lse->stride[0]);
        w->kernels->spread_gradient(w->classes, dense_row(w, n), lse, d * (sure + w->share_sum), w->share, d, to);
        store(w->gx, n * w->classes + target, element(w, to, target) - d * sure);
    }
}

/* share[c] = weight[c] s / C */
static void fill_share(entropy_work *w)
{
    const double s = w->attrs->label_smoothing;
    for (int64_t c = 0; c < w->classes; ++c) {
        const double share = weight_at(w, c) * s / (double)w->classes;
        w->share_sum += share;
        if (w->size == 8)
            ((double *)(void *)w->share)[c] = share;
        else
            ((float *)(void *)w->share)[c] = (float)share;
    }
}

/* w has its tensors. */
static luge_status run_entropy(const lg_call *call, entropy_work *w, lg_slice_fn slice)
{
    w->attrs = call->attrs;
    w->kernels = &LG_ISA_PICK(lg_rows)->of[w->x->dtype == LUGE_F64];
    w->rows = w->x->shape.dim[0];
    w->classes = w->x->shape.dim[1];
    w->size = (int64_t)lg_element_size(w->x);
    w->slices = lg_slices(w->rows, GRAIN / (w->classes + 1));
    w->sure = 1 - w->attrs->label_smoothing;
    const bool smooth = w->attrs->label_smoothing > 0, dense = w->x->stride[1] == 1 || w->classes == 1;
    const int64_t row_bytes = lg_scratch_times(w->classes, w->size);
    const int64_t for_share = smooth ? lg_scratch_plus(0, row_bytes) : 0;
    lg_scratch scratch;
    char *memory = lg_scratch_open(&scratch, call->device,
                                   lg_scratch_plus(for_share, dense ? 0 : lg_scratch_times(lg_pool_threads(), row_bytes)));
    if (memory == NULL) return LUGE_ERR_OUT_OF_MEMORY;
    w->buffers = memory + for_share;
    w->share = smooth ? memory : NULL;
    if (smooth) fill_share(w);
    lg_parallel(w->slices, slice, w);
    lg_scratch_close(&scratch);
    return LUGE_OK;
}

/* (logits [N, C], target, [weight]) -> (loss, lse [N], count []) */
int lg_cpu_cross_entropy(const lg_call *call)
{
    entropy_work w = {.x = call->in[0], .target = call->in[1], .weight = call->in[2],
                      .loss = call->out[0], .lse = call->out[1], .count = call->out[2]};
    if (!is_real(w.x)) return LG_DECLINED;
    const luge_status status = run_entropy(call, &w, loss_slice);
    if (status != LUGE_OK) return (int)status;
    double sum = 0, weights = 0;
    for (int64_t i = 0; i < w.slices; ++i) {
        sum += w.sum[i];
        weights += w.weights[i];
    }
    store(w.count, 0, weights);
    if (w.attrs->reduction != LUGE_NO_REDUCTION) store(w.loss, 0, w.attrs->reduction == LUGE_MEAN ? sum / weights : sum);
    return LUGE_OK;
}

/* (g, logits, target, [weight], lse, count) -> glogits */
int lg_cpu_cross_entropy_backward(const lg_call *call)
{
    const lg_cross_entropy_attrs *a = call->attrs;
    entropy_work w = {.g = call->in[0], .x = call->in[1], .target = call->in[2], .weight = call->in[3],
                      .saved_lse = call->in[4], .gx = call->out[0]};
    if (!is_real(w.x)) return LG_DECLINED;
    w.scale = a->reduction == LUGE_MEAN ? 1 / load(call->in[5], 0) : 1;
    return (int)run_entropy(call, &w, gradient_slice);
}

/* ---- losses of pairs: (x, target) -> loss; (g, x, target) -> gx */

typedef struct pair_work {
    void (*loss)(int64_t n, const void *x, const void *target, void *y);
    void (*slope)(int64_t n, const void *g, double scale, const void *x, const void *target, void *gx);
    double scale;
} pair_work;

static void loss_piece(int64_t n, void *const at[], const void *work)
{
    ((const pair_work *)work)->loss(n, at[1], at[2], at[0]);
}

static void slope_piece(int64_t n, void *const at[], const void *work)
{
    const pair_work *w = work;
    w->slope(n, at[1], w->scale, at[2], at[3], at[0]);
}

typedef struct sum_work {
    const lg_row_kernels *kernels;
    const char *x;
    int64_t n, slices, size;
    double sum[MAX_SLICES];
} sum_work;

static void sum_slice(int64_t slice, void *data)
{
    sum_work *w = data;
    const int64_t begin = lg_slice_begin(w->n, w->slices, slice), end = lg_slice_begin(w->n, w->slices, slice + 1);
    w->sum[slice] = w->kernels->sum(end - begin, w->x + begin * w->size);
}

/* Of all elements of a row-major tensor. */
static double sum_of(const lg_row_kernels *kernels, const luge_tensor *t)
{
    sum_work w = {.kernels = kernels, .x = lg_data(t), .n = t->numel, .slices = lg_slices(t->numel, GRAIN),
                  .size = (int64_t)lg_element_size(t)};
    lg_parallel(w.slices, sum_slice, &w);
    double sum = 0;
    for (int64_t i = 0; i < w.slices; ++i) sum += w.sum[i];
    return sum;
}

static const lg_row_kernels *pair_kernels(const lg_call *call)
{
    return &LG_ISA_PICK(lg_rows)->of[call->out[0]->dtype == LUGE_F64];
}

/* Losses go to the result, or to a tensor that is then summed up. */
static int pair_loss(const lg_call *call, const pair_work *w)
{
    const lg_loss_attrs *a = call->attrs;
    luge_tensor *x = call->in[0], *result = call->out[0], *losses = result;
    if (!is_real(x)) return LG_DECLINED;
    if (a->reduction != LUGE_NO_REDUCTION && (losses = lg_tensor_create(call->device, x->dtype, &x->shape, NULL)) == NULL)
        return LUGE_ERR_OUT_OF_MEMORY;
    luge_tensor *const operands[] = {losses, x, call->in[1]};
    if (x->numel > 0) lg_each_piece(3, operands, 0, GRAIN, loss_piece, w);
    if (losses == result) return LUGE_OK;
    const double sum = sum_of(pair_kernels(call), losses);
    store(result, 0, a->reduction == LUGE_MEAN ? sum / (double)x->numel : sum);
    luge_release(losses);
    return LUGE_OK;
}

static int pair_slope(const lg_call *call, pair_work *w)
{
    const lg_loss_attrs *a = call->attrs;
    if (!is_real(call->out[0])) return LG_DECLINED;
    w->scale = a->reduction == LUGE_MEAN ? 1 / (double)call->out[0]->numel : 1;
    luge_tensor *const operands[] = {call->out[0], call->in[0], call->in[1], call->in[2]};
    lg_each_piece(4, operands, 0, GRAIN, slope_piece, w);
    return LUGE_OK;
}

int lg_cpu_mse_loss(const lg_call *call)
{
    return pair_loss(call, &(pair_work){.loss = pair_kernels(call)->squares});
}

int lg_cpu_bce_with_logits(const lg_call *call)
{
    return pair_loss(call, &(pair_work){.loss = pair_kernels(call)->binary});
}

int lg_cpu_mse_loss_backward(const lg_call *call)
{
    return pair_slope(call, &(pair_work){.slope = pair_kernels(call)->squares_backward});
}

int lg_cpu_bce_with_logits_backward(const lg_call *call)
{
    return pair_slope(call, &(pair_work){.slope = pair_kernels(call)->binary_backward});
}
