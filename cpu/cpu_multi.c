/* One pass over many tensors: the steps of optimizers, norms and clipping of gradients. The elements of
 * all tensors together are cut into slices, so that small tensors share one and large ones spread over
 * the threads. Optimizers reach this through the backend's `multi`. */
#include <math.h>

#include "core/iter.h"
#include "core/multi.h"
#include "core/pool.h"
#include "core/thread.h"
#include "cpu/cpu.h"
#include "cpu/simd/multi.h"
#include "cpu/simd/simd.h"
#include "cpu/strided.h"

enum {
    GRAIN = 1 << 15,  /* elements of a slice at least */
    MAX_SLICES = 256, /* lg_slices's */
    CHUNK = 1024      /* elements that are gathered or converted at a time */
};

/* A sum of squares as scale^2 * sum, so that f64 gradients may be as large and small as they like. */
typedef struct squares {
    double scale, sum;
} squares;

typedef struct pass {
    const lg_multi *work;
    int64_t elements, slices;
    double factor;            /* CLIP_NORM's and UNSCALE's */
    squares part[MAX_SLICES]; /* NORM's */
    atomic_bool overflow;     /* UNSCALE: something was not finite */
} pass;

/* ---- chunks */

/* Elements [from, from + n) of one item, as dense arrays of the type that computes. */
typedef struct chunk {
    const lg_multi_item *item;
    const lg_update *update; /* of steps */
    const lg_multi_table *table;
    int64_t from, n;
    void *grad;
} chunk;

static bool is_step(lg_multi_kind kind)
{
    return kind <= LG_MULTI_ADAMW;
}

static bool writes_grad(lg_multi_kind kind)
{
    return kind == LG_MULTI_CLIP_NORM || kind == LG_MULTI_CLIP_VALUE || kind == LG_MULTI_UNSCALE;
}

static void *element(const luge_tensor *t, int64_t i)
{
    return t == NULL ? NULL : (char *)lg_data(t) + (size_t)i * lg_element_size(t);
}

static void convert(int64_t n, void *to, luge_dtype to_dtype, const void *from, luge_dtype from_dtype)
{
    LG_ISA_PICK(lg_converts)->to_from[to_dtype][from_dtype](n, to, from);
}

static luge_dtype compute_type(luge_dtype d)
{
    return d == LUGE_F64 ? LUGE_F64 : LUGE_F32;
}

/* f16 and bf16 parameters are rounded once a step; everything else stays in f32. */
static void step_chunk(const lg_multi *work, const chunk *c)
{
    luge_tensor *param = c->item->param;
    const luge_dtype compute = compute_type(param->dtype);
    _Alignas(64) float wide[CHUNK];
    void *p = element(param, c->from), *values = p;
    if (param->dtype != compute) {
        convert(c->n, wide, compute, p, param->dtype);
        values = wide;
    }
    const lg_update_fn update = work->kind != LG_MULTI_SGD  ? c->table->adam
                                : c->item->state[0] != NULL ? c->table->sgd_momentum
                                                            : c->table->sgd_plain;
    update(c->n, c->update, values, c->grad, element(c->item->state[0], c->from), element(c->item->state[1], c->from));
    if (values != p) convert(c->n, p, param->dtype, wide, compute);
}

static void merge(squares *into, squares other)
{
    if (other.sum == 0) return;
    if (into->sum == 0 || other.scale > into->scale) {
        const double ratio = into->scale / other.scale;
        into->sum = into->sum == 0 ? other.sum : other.sum + into->sum * ratio * ratio;
        into->scale = other.scale;
    } else {
        const double ratio = other.scale / into->scale;
        into->sum += other.sum * ratio * ratio;
    }
}

/* Squares of f32 always fit into f64. Those of f64 may not: then the elements are scaled first, by a
 * power of two, which rounds nothing. */
static void add_squares(const chunk *c, squares *into)
{
    squares s = {1, c->table->sum_squares(c->n, c->grad, 1)};
    if (compute_type(c->item->grad->dtype) == LUGE_F64 && !isnan(s.sum) && (s.sum > 0x1p1000 || s.sum < 0x1p-900)) {
        const double most = c->table->max_abs(c->n, c->grad);
        if (most > 0 && isfinite(most)) {
            s.scale = ldexp(1, ilogb(most) > -1000 ? ilogb(most) : -1000);
            s.sum = c->table->sum_squares(c->n, c->grad, 1 / s.scale);
        }
    }
    merge(into, s);
}

static void unscale_chunk(pass *p, const chunk *c)
{
    if (!c->table->unscale(c->n, c->grad, p->factor)) atomic_store_explicit(&p->overflow, true, memory_order_relaxed);
}

static void run_chunk(pass *p, const chunk *c, squares *sum)
{
    switch (p->work->kind) {
    case LG_MULTI_NORM: add_squares(c, sum); break;
    case LG_MULTI_CLIP_NORM: c->table->scale(c->n, c->grad, p->factor); break;
    case LG_MULTI_CLIP_VALUE: c->table->clamp(c->n, c->grad, p->work->limit); break;
    case LG_MULTI_UNSCALE: unscale_chunk(p, c); break;
    default: step_chunk(p->work, c); break;
    }
}

/* ---- gradients of any strides */

/* Moves elements [from, from + n) of the iteration between a dense buffer and a strided tensor. */
static void move_strided(const lg_iter *it, int operand, luge_tensor *t, int64_t from, int64_t n, void *buffer,
                         bool gather)
{
    const int64_t size = (int64_t)lg_element_size(t), stride = it->stride[operand][0];
    char *dense = buffer;
    while (n > 0) {
        const int64_t row = from / it->size[0], column = from % it->size[0];
        const int64_t run = n < it->size[0] - column ? n : it->size[0] - column;
        int64_t offset[LG_ITER_MAX];
        lg_iter_row(it, row, offset);
        char *place = (char *)lg_data(t) + (offset[operand] + column * stride) * size;
        if (gather) {
            lg_copy_run(dense, 1, place, stride, run, (size_t)size);
        } else {
            lg_copy_run(place, stride, dense, 1, run, (size_t)size);
        }
        dense += run * size;
        from += run;
        n -= run;
    }
}

/* Whether grad lies in memory as the parameter does (or, without one, without gaps). */
static bool same_layout(const luge_tensor *param, const luge_tensor *grad)
{
    if (param == NULL) return lg_strides_are_dense(&grad->shape, grad->stride);
    for (int i = 0; i < grad->shape.rank; ++i) {
        if (grad->shape.dim[i] > 1 && grad->stride[i] != param->stride[i]) return false;
    }
    return true;
}

/* In chunks, through buffers: the gradient is gathered into the parameter's order, and converted. */
static void run_buffered(pass *p, chunk c, int64_t from, int64_t to, squares *sum)
{
    luge_tensor *grad = c.item->grad;
    const luge_dtype compute = compute_type(grad->dtype);
    const bool strided = !same_layout(c.item->param, grad);
    luge_tensor *operands[] = {c.item->param != NULL ? c.item->param : grad, grad};
    lg_iter it;
    if (strided) lg_iter_init(&it, &grad->shape, 2, operands);
    _Alignas(64) double gathered[CHUNK];
    _Alignas(64) float wide[CHUNK];
    for (c.from = from; c.from < to; c.from += c.n) {
        c.n = to - c.from < CHUNK ? to - c.from : CHUNK;
        void *g = strided ? (void *)gathered : element(grad, c.from);
        if (strided) move_strided(&it, 1, grad, c.from, c.n, g, true);
        c.grad = grad->dtype == compute ? g : (void *)wide;
        if (c.grad != g) convert(c.n, wide, compute, g, grad->dtype);
        run_chunk(p, &c, sum);
        if (!writes_grad(p->work->kind)) continue;
        if (c.grad != g) convert(c.n, g, grad->dtype, wide, compute);
        if (strided) move_strided(&it, 1, grad, c.from, c.n, g, false);
    }
}

/* ---- items and slices */

static lg_update make_update(const lg_multi *work, const lg_multi_item *item)
{
    const double lr = *(const double *)lg_data(work->lr) * item->lr_scale;
    const double steps = (double)*(const float *)lg_data(item->step);
    if (work->kind == LG_MULTI_SGD) {
        return lg_sgd_update(lr, item->weight_decay, work->momentum, work->dampening, work->nesterov, steps);
    }
    return lg_adam_update(lr, item->weight_decay, work->kind == LG_MULTI_ADAMW, work->beta1, work->beta2, work->eps,
                          steps);
}

static void run_item(pass *p, const lg_multi_item *item, int64_t from, int64_t to, squares *sum)
{
    const luge_dtype dtype = item->grad->dtype;
    lg_update update;
    chunk c = {.item = item,
               .table = compute_type(dtype) == LUGE_F64 ? LG_ISA_PICK(lg_multi_f64) : LG_ISA_PICK(lg_multi_f32)};
    if (is_step(p->work->kind)) {
        update = make_update(p->work, item);
        c.update = &update;
    }
    if (dtype != compute_type(dtype) || !same_layout(item->param, item->grad)) {
        run_buffered(p, c, from, to, sum);
        return;
    }
    c.from = from;
    c.n = to - from;
    c.grad = element(item->grad, from);
    run_chunk(p, &c, sum);
}

static void run_slice(int64_t slice, void *work)
{
    pass *p = work;
    int64_t begin = lg_slice_begin(p->elements, p->slices, slice);
    const int64_t end = lg_slice_begin(p->elements, p->slices, slice + 1);
    squares sum = {1, 0};
    int64_t before = 0; /* elements of earlier items */
    for (int i = 0; i < p->work->count && begin < end; ++i) {
        const lg_multi_item *item = &p->work->item[i];
        const int64_t after = before + item->grad->numel;
        if (begin < after) {
            const int64_t stop = end < after ? end : after;
            run_item(p, item, begin - before, stop - before, &sum);
            begin = stop;
        }
        before = after;
    }
    p->part[slice] = sum;
}

static void count_steps(const lg_multi *work)
{
    for (int i = 0; i < work->count; ++i) *(float *)lg_data(work->item[i].step) += 1;
}

static void finish_norm(const pass *p)
{
    squares all = {1, 0};
    for (int64_t s = 0; s < p->slices; ++s) merge(&all, p->part[s]);
    *(double *)lg_data(p->work->norm) = all.scale * sqrt(all.sum);
}

/* ---- numbers that change from step to step */

static double *number(const luge_tensor *t)
{
    return lg_data(t);
}

static void schedule(const lg_multi *work)
{
    if (*number(work->skip) != 0) return;
    *number(work->position) += 1;
    *number(work->lr) = lg_sched_factor(work->schedule, *number(work->position));
}

static void rescale(const lg_multi *work)
{
    float *found = lg_data(work->found);
    bool any = false;
    for (int64_t i = 0; i < work->found->numel; ++i) {
        any = any || found[i] != 0;
        found[i] = 0;
    }
    lg_scaler_advance(work->scaler, any, lg_data(work->scale));
}

/* What becomes of the step, before it is taken. */
static bool is_skipped(const lg_multi *work)
{
    const bool skip = work->found != NULL && *(const float *)lg_data(work->found) != 0;
    if (work->skip != NULL) *number(work->skip) = skip ? 1 : 0;
    return skip;
}

/* The factor of a pass over gradients; false if there is nothing to do. */
static bool find_factor(pass *p)
{
    const lg_multi *work = p->work;
    if (work->kind == LG_MULTI_UNSCALE) {
        p->factor = work->limit / (work->scale != NULL ? (double)*(const float *)lg_data(work->scale) : 1);
    } else if (work->kind == LG_MULTI_CLIP_NORM) {
        const double norm = *number(work->norm);
        p->factor = work->limit / (norm + 1e-6); /* PyTorch's */
        return isfinite(norm) && p->factor < 1;
    }
    return true;
}

luge_status lg_cpu_multi(lg_device *device, const lg_multi *work)
{
    (void)device;
    pass p; /* parts are written before they are read */
    p.work = work;
    p.elements = 0;
    atomic_init(&p.overflow, false);
    if (work->kind == LG_MULTI_SCHEDULE) schedule(work);
    if (work->kind == LG_MULTI_RESCALE) rescale(work);
    if (work->kind >= LG_MULTI_SCHEDULE || (is_step(work->kind) && is_skipped(work)) || !find_factor(&p)) return LUGE_OK;
    for (int i = 0; i < work->count; ++i) p.elements += work->item[i].grad->numel;
    p.slices = p.elements > 0 ? lg_slices(p.elements, GRAIN) : 0;
    if (p.slices > 0) lg_parallel(p.slices, run_slice, &p);
    if (work->kind == LG_MULTI_NORM) finish_norm(&p);
    if (is_step(work->kind)) count_steps(work);
    if (work->found != NULL && atomic_load(&p.overflow)) *(float *)lg_data(work->found) = 1;
    return LUGE_OK;
}
