/* Losses: cross_entropy in panels of rows (cpu/simd/softmax.h), mse_loss and bce_with_logits element by
 * element. Sums of slices are added in their order, in f64. */
#include "core/iter.h"
#include "core/pool.h"
#include "core/thread.h"
#include "cpu/cpu.h"
#include "cpu/cpu_copy.h"
#include "cpu/panel.h"
#include "cpu/scratch.h"
#include "cpu/simd/loss.h"
#include "cpu/strided.h"
#include "ops/attrs.h"
#include <luge/tensor.h>
#include <string.h>

enum { GRAIN = 16384, MAX_SLICES = 256 }; /* elements worth a thread; what lg_slices gives at most */

static bool is_real(const luge_tensor *t)
{
    return t->dtype == LUGE_F32 || t->dtype == LUGE_F64;
}

static double get(const void *array, bool f64, int64_t i)
{
    return f64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}
static void put(void *array, bool f64, int64_t i, double value)
{
    if (f64) {
        ((double *)array)[i] = value;
    } else {
        ((float *)array)[i] = (float)value;
    }
}

static double load(const luge_tensor *t, int64_t i)
{
    return get(lg_data(t), t->dtype == LUGE_F64, i);
}
static void store(luge_tensor *t, int64_t i, double value)
{
    put(lg_data(t), t->dtype == LUGE_F64, i, value);
}

/* ---- cross_entropy. What is wanted of class c is weight[c] ((1 - s) [c is the target] + s / C): the
 * second part, share[c], is the kernels' business, the first is added here. */

typedef struct entropy {
    const lg_softmax_kernels *kernels;
    const lg_cross_entropy_attrs *attrs;
    const luge_tensor *x, *target, *weight; /* x [N, C], dense along C */
    int64_t rows, classes, size;
    bool f64;
    int64_t room, panels, slices; /* rows of a panel; panels in all */
    double sure, share_sum;       /* 1 - s; the sum of share */
    void *share;                  /* [C]; NULL if s is 0 */
    /* forward */
    luge_tensor *loss, *lse; /* loss NULL: it is reduced */
    double sum[MAX_SLICES], count[MAX_SLICES];
    /* backward */
    const luge_tensor *g, *saved_lse;
    double scale; /* of g */
    char *gx;
} entropy;

/* A number for each row of a panel, in x's type. */
typedef union numbers {
    float f32[LG_PANEL];
    double f64[LG_PANEL];
} numbers;

static double number(const numbers *a, bool f64, int64_t i)
{
    return f64 ? a->f64[i] : (double)a->f32[i];
}

static void set_number(numbers *a, bool f64, int64_t i, double value)
{
    if (f64) {
        a->f64[i] = value;
    } else {
        a->f32[i] = (float)value;
    }
}

static const void *row_of(const entropy *w, int64_t row)
{
    return (const char *)lg_data(w->x) + row * w->x->stride[0] * w->size;
}

/* -1 for a row that is ignored */
static int64_t target_of(const entropy *w, int64_t row)
{
    const int64_t at = row * w->target->stride[0];
    const void *data = lg_data(w->target);
    const int64_t target = w->target->dtype == LUGE_I64 ? ((const int64_t *)data)[at] : ((const int32_t *)data)[at];
    return target == w->attrs->ignore_index ? -1 : target;
}

static double weight_of(const entropy *w, int64_t c)
{
    return w->weight == NULL ? 1 : load(w->weight, c * w->weight->stride[0]);
}

static lg_panel panel_of(const entropy *w, int64_t row, int64_t rows, lg_panel_tile *tile)
{
    if (w->room == 1) {
        lg_panel p = lg_panel_of_row(w->classes);
        p.in[0] = row_of(w, row);
        return p;
    }
    lg_panel p = lg_panel_of_tile(w->classes, rows);
    lg_panel_gather(tile, row_of(w, row), w->x->stride[0], w->classes, rows, w->f64);
    p.in[0] = tile->memory;
    return p;
}

static void loss_panel(entropy *w, int64_t row, int64_t rows, int64_t slice)
{
    lg_panel_tile tile;
    numbers top, low;
    double spread[LG_PANEL] = {0};
    const lg_panel p = panel_of(w, row, rows, &tile);
    w->kernels->log_sum(&p, &top, &low);
    if (w->share != NULL) w->kernels->spread(&p, w->share, &top, &low, spread);

    for (int64_t r = 0; r < rows; ++r) {
        const double high = number(&top, w->f64, r), rest = number(&low, w->f64, r);
        const int64_t target = target_of(w, row + r);
        double loss = 0;
        store(w->lse, row + r, high + rest);
        if (target >= 0) {
            const double weight = weight_of(w, target);
            loss = spread[r];
            if (w->sure > 0) loss += w->sure * weight * (high - get(row_of(w, row + r), w->f64, target) + rest);
            w->count[slice] += weight;
        }
        if (w->loss != NULL) store(w->loss, row + r, loss);
        w->sum[slice] += loss;
    }
}

static void gradient_panel(const entropy *w, int64_t row, int64_t rows)
{
    lg_panel_tile tile;
    numbers lse = {.f64 = {0}}, scale = {.f64 = {0}}, d = {.f64 = {0}};
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t target = target_of(w, row + r);
        if (target < 0) continue;
        const double g =
            load(w->g, w->attrs->reduction == LUGE_NO_REDUCTION ? (row + r) * w->g->stride[0] : 0) * w->scale;
        set_number(&d, w->f64, r, g);
        set_number(&scale, w->f64, r, g * (w->sure * weight_of(w, target) + w->share_sum));
        set_number(&lse, w->f64, r, load(w->saved_lse, (row + r) * w->saved_lse->stride[0]));
    }

    lg_panel p = panel_of(w, row, rows, &tile);
    char *to = w->gx + row * w->classes * w->size;
    p.out = w->room == 1 ? to : tile.memory;
    w->kernels->gradient(&p, w->share, &lse, &scale, &d);
    if (w->room > 1) lg_panel_scatter(to, w->classes, &tile, w->classes, rows, w->f64);

    for (int64_t r = 0; r < rows; ++r, to += w->classes * w->size) {
        const int64_t target = target_of(w, row + r);
        if (target < 0) {
            memset(to, 0, (size_t)(w->classes * w->size));
        } else {
            put(to, w->f64, target, get(to, w->f64, target) - number(&d, w->f64, r) * w->sure * weight_of(w, target));
        }
    }
}

static void entropy_slice(int64_t slice, void *data)
{
    entropy *w = data;
    const int64_t end = lg_slice_begin(w->panels, w->slices, slice + 1);
    for (int64_t panel = lg_slice_begin(w->panels, w->slices, slice); panel < end; ++panel) {
        const int64_t row = panel * w->room, rows = w->rows - row < w->room ? w->rows - row : w->room;
        if (w->gx == NULL) {
            loss_panel(w, row, rows, slice);
        } else {
            gradient_panel(w, row, rows);
        }
    }
}

/* share[c] = weight[c] s / C */
static void fill_share(entropy *w)
{
    for (int64_t c = 0; c < w->classes; ++c) {
        const double share = weight_of(w, c) * w->attrs->label_smoothing / (double)w->classes;
        put(w->share, w->f64, c, share);
        w->share_sum += share;
    }
}

/* w has its tensors, and x is dense along C. */
static luge_status run_dense(const lg_call *call, entropy *w)
{
    w->room = lg_panel_room(w->classes, w->rows, w->f64);
    w->panels = (w->rows + w->room - 1) / w->room;
    w->slices = lg_slices(w->panels, GRAIN / (w->room * w->classes));
    w->sure = 1 - w->attrs->label_smoothing;
    lg_scratch scratch;
    const bool smooth = w->attrs->label_smoothing > 0;
    void *memory = lg_scratch_open(&scratch, call->device, smooth ? lg_scratch_times(w->classes, w->size) : 0);
    if (memory == NULL) return lg_error();
    if (smooth) {
        w->share = memory;
        fill_share(w);
    }
    lg_parallel(w->slices, entropy_slice, w);
    lg_scratch_close(&scratch);
    return LUGE_OK;
}

static luge_status run_entropy(const lg_call *call, luge_tensor *x, entropy *w)
{
    w->attrs = call->attrs;
    w->rows = x->shape.dim[0];
    w->classes = x->shape.dim[1];
    w->size = (int64_t)lg_element_size(x);
    w->f64 = x->dtype == LUGE_F64;
    w->kernels = &LG_ISA_PICK(lg_softmaxes)->of[w->f64];
    luge_tensor *dense = x->stride[1] == 1 || w->classes == 1 ? luge_retain(x) : lg_copy_of(call, x, x->dtype, NULL);
    if (dense == NULL) return lg_error();
    w->x = dense;
    const luge_status status = run_dense(call, w);
    luge_release(dense);
    return status;
}

/* (logits [N, C], target, [weight]) -> (loss, lse [N], count []) */
int lg_cpu_cross_entropy(const lg_call *call)
{
    const lg_cross_entropy_attrs *a = call->attrs;
    luge_tensor *loss = call->out[0];
    entropy w = {.target = call->in[1],
                 .weight = call->in[2],
                 .lse = call->out[1],
                 .loss = a->reduction == LUGE_NO_REDUCTION ? loss : NULL};
    if (!is_real(call->in[0])) return LG_DECLINED;
    const luge_status status = run_entropy(call, call->in[0], &w);
    if (status != LUGE_OK) return (int)status;
    double sum = 0, count = 0;
    for (int64_t i = 0; i < w.slices; ++i) {
        sum += w.sum[i];
        count += w.count[i];
    }
    store(call->out[2], 0, count);
    if (w.loss == NULL) store(loss, 0, a->reduction == LUGE_MEAN ? sum / count : sum);
    return LUGE_OK;
}

/* (g, logits, target, [weight], lse, count) -> glogits, row-major */
int lg_cpu_cross_entropy_backward(const lg_call *call)
{
    const lg_cross_entropy_attrs *a = call->attrs;
    entropy w = {.g = call->in[0],
                 .target = call->in[2],
                 .weight = call->in[3],
                 .saved_lse = call->in[4],
                 .gx = lg_data(call->out[0])};
    if (!is_real(call->in[1])) return LG_DECLINED;
    w.scale = a->reduction == LUGE_MEAN ? 1 / load(call->in[5], 0) : 1;
    return (int)run_entropy(call, call->in[1], &w);
}

/* ---- losses of pairs: (x, target) -> loss; (g, x, target) -> gx */

typedef struct pairs {
    const lg_loss_kernels *kernels;
    double scale; /* of g */
    /* for sums */
    const char *x, *target;
    int64_t n, slices, size;
    double sum[MAX_SLICES];
} pairs;

static void loss_piece(int64_t n, void *const at[], const void *data)
{
    const pairs *w = data;
    w->kernels->loss(n, at[1], at[2], at[0]);
}

static void slope_piece(int64_t n, void *const at[], const void *data)
{
    const pairs *w = data;
    w->kernels->slope(n, at[1], w->scale, at[2], at[3], at[0]);
}

static void sum_slice(int64_t slice, void *data)
{
    pairs *w = data;
    const int64_t begin = lg_slice_begin(w->n, w->slices, slice), end = lg_slice_begin(w->n, w->slices, slice + 1);
    w->sum[slice] = w->kernels->sum(end - begin, w->x + begin * w->size, w->target + begin * w->size);
}

/* Whether both are one run of memory, in the same order. */
static bool alike(luge_tensor *x, luge_tensor *target)
{
    lg_iter it;
    lg_iter_init(&it, &x->shape, 2, (luge_tensor *[]){x, target});
    return it.rank == 1 && (it.numel <= 1 || (it.stride[0][0] == 1 && it.stride[1][0] == 1));
}

static luge_status sum_up(const lg_call *call, pairs *w, double *sum)
{
    luge_tensor *x = call->in[0], *target = call->in[1];
    const bool copied = !alike(x, target);
    if (copied) x = lg_copy_of(call, x, x->dtype, NULL);
    if (copied) target = lg_copy_of(call, target, target->dtype, NULL);
    if (x != NULL && target != NULL) {
        w->x = lg_data(x);
        w->target = lg_data(target);
        w->n = x->numel;
        w->slices = lg_slices(w->n, GRAIN);
        lg_parallel(w->slices, sum_slice, w);
        for (int64_t i = 0; i < w->slices; ++i) *sum += w->sum[i];
    }
    if (copied) luge_release(x);
    if (copied) luge_release(target);
    return lg_error();
}

static int pair_loss(const lg_call *call, const lg_loss_kernels kernels[2])
{
    const luge_reduction reduction = ((const lg_loss_attrs *)call->attrs)->reduction;
    luge_tensor *x = call->in[0], *y = call->out[0];
    if (!is_real(x)) return LG_DECLINED;
    pairs w = {.kernels = &kernels[x->dtype == LUGE_F64], .size = (int64_t)lg_element_size(x)};
    if (reduction == LUGE_NO_REDUCTION) {
        lg_each_piece(3, (luge_tensor *[]){y, x, call->in[1]}, 0, GRAIN, loss_piece, &w);
        return LUGE_OK;
    }
    double sum = 0;
    if (sum_up(call, &w, &sum) != LUGE_OK) return (int)lg_error();
    store(y, 0, reduction == LUGE_MEAN ? sum / (double)x->numel : sum);
    return LUGE_OK;
}

static int pair_slope(const lg_call *call, const lg_loss_kernels kernels[2])
{
    const luge_reduction reduction = ((const lg_loss_attrs *)call->attrs)->reduction;
    luge_tensor *gx = call->out[0];
    if (!is_real(gx)) return LG_DECLINED;
    const pairs w = {.kernels = &kernels[gx->dtype == LUGE_F64],
                     .scale = reduction == LUGE_MEAN ? 1 / (double)gx->numel : 1};
    lg_each_piece(4, (luge_tensor *[]){gx, call->in[0], call->in[1], call->in[2]}, 0, GRAIN, slope_piece, &w);
    return LUGE_OK;
}

int lg_cpu_mse_loss(const lg_call *call)
{
    return pair_loss(call, LG_ISA_PICK(lg_losses)->mse);
}
int lg_cpu_mse_loss_backward(const lg_call *call)
{
    return pair_slope(call, LG_ISA_PICK(lg_losses)->mse);
}
int lg_cpu_bce_with_logits(const lg_call *call)
{
    return pair_loss(call, LG_ISA_PICK(lg_losses)->bce);
}
int lg_cpu_bce_with_logits_backward(const lg_call *call)
{
    return pair_slope(call, LG_ISA_PICK(lg_losses)->bce);
}
