/* One pass over many tensors: the steps of optimizers, the norm of gradients, clipping. Tensors of one dtype
 * go into a table, and a launch takes as many as fit into its parameters. An optimizer's step is a launch for
 * each such table, and one to count it; it asks for no memory. */
#include "cuda/cuda_multi.h"

#include <string.h>
#include "core/multi.h"
#include "cuda/cuda.h"

/* Kernel parameters may take 4096 bytes on every card and driver. */
_Static_assert(sizeof(lg_multi_pass) <= 4080 && sizeof(lg_multi_counts) <= 4080, "tables lie in kernel parameters");

typedef struct multi {
    const lg_multi *work;
    lg_device *device;
    lg_cuda_device *d;
    double *partial; /* NORM: sums of every block */
    int64_t blocks;  /* launched so far */
    lg_multi_pass pass;
} multi;

static bool is_step(lg_multi_kind kind)
{
    return kind <= LG_MULTI_ADAMW;
}

static bool writes_grad(lg_multi_kind kind)
{
    return kind == LG_MULTI_CLIP_NORM || kind == LG_MULTI_CLIP_VALUE || kind == LG_MULTI_UNSCALE;
}

static int rule_of(const lg_multi *work)
{
    switch (work->kind) {
    case LG_MULTI_SGD: return work->momentum != 0 ? LG_RULE_SGD_MOMENTUM : LG_RULE_SGD_PLAIN;
    case LG_MULTI_ADAM:
    case LG_MULTI_ADAMW: return LG_RULE_ADAM;
    case LG_MULTI_NORM: return LG_RULE_SQUARES;
    case LG_MULTI_CLIP_NORM: return LG_RULE_SCALE;
    case LG_MULTI_UNSCALE: return LG_RULE_UNSCALE;
    default: return LG_RULE_CLAMP;
    }
}

static int64_t blocks_of(int64_t elements)
{
    return (elements + LG_MULTI_CHUNK - 1) / LG_MULTI_CHUNK;
}

static void *data_of(const luge_tensor *t)
{
    return t != NULL ? lg_data(t) : NULL;
}

/* ---- launches */

static luge_status flush(multi *m)
{
    lg_multi_pass *p = &m->pass;
    if (p->count == 0) return LUGE_OK;
    if (m->partial != NULL) p->partial = m->partial + 3 * m->blocks;
    m->blocks += p->blocks;
    const cudaError_t code = lg_cuda_launch_multi_pass(p, m->d->stream);
    memset(p->tensor, 0, (size_t)p->count * sizeof p->tensor[0]);
    p->count = 0;
    p->blocks = 0;
    return lg_cuda_check(m->d, code, "a pass over many tensors");
}

/* Adds item i with its gradient's elements at `grad`, in the order of the parameter's. */
static luge_status add(multi *m, int i, void *grad)
{
    const lg_multi_item *item = &m->work->item[i];
    lg_multi_pass *p = &m->pass;
    if (p->count == LG_MULTI_TENSORS && flush(m) != LUGE_OK) return lg_error();
    lg_multi_tensor *t = &p->tensor[p->count++];
    *t = (lg_multi_tensor){.param = data_of(item->param), .grad = grad,
                           .state = {data_of(item->state[0]), data_of(item->state[1])},
                           .steps = data_of(item->step), .lr_scale = item->lr_scale,
                           .weight_decay = item->weight_decay, .count = item->grad->numel, .first_block = p->blocks};
    const uintptr_t all = (uintptr_t)t->param | (uintptr_t)grad | (uintptr_t)t->state[0] | (uintptr_t)t->state[1];
    t->packed = all % 16 == 0;
    p->blocks += blocks_of(t->count);
    return LUGE_OK;
}

/* ---- gradients that lie otherwise than their parameters: by way of a copy */

static bool same_layout(const luge_tensor *param, const luge_tensor *grad)
{
    if (param == NULL) return lg_strides_are_dense(&grad->shape, grad->stride);
    for (int i = 0; i < grad->shape.rank; ++i) {
        if (grad->shape.dim[i] > 1 && grad->stride[i] != param->stride[i]) return false;
    }
    return true;
}

static luge_status run_copied(multi *m, int i)
{
    const lg_multi_item *item = &m->work->item[i];
    const luge_tensor *grad = item->grad;
    int64_t stride[LUGE_MAX_RANK];
    lg_strides_contiguous(&grad->shape, stride);
    const int64_t *order = item->param != NULL ? item->param->stride : stride;
    const size_t bytes = (size_t)grad->numel * lg_element_size(grad);
    void *copy = lg_cuda_scratch(m->device, bytes);
    if (copy == NULL) return lg_error();
    luge_status status = lg_cuda_move(m->d, grad->dtype, &grad->shape, copy, order, lg_data(grad), grad->stride);
    if (status == LUGE_OK) status = add(m, i, copy);
    if (status == LUGE_OK) status = flush(m);
    if (status == LUGE_OK && writes_grad(m->work->kind))
        status = lg_cuda_move(m->d, grad->dtype, &grad->shape, lg_data(grad), grad->stride, copy, order);
    lg_cuda_scratch_free(m->device, copy, bytes);
    return status;
}

/* ---- all items, dtype by dtype */

static luge_status run_items(multi *m)
{
    static const luge_dtype dtypes[] = {LUGE_F32, LUGE_F64, LUGE_F16, LUGE_BF16};
    for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; ++k) {
        m->pass.dtype = (int)dtypes[k];
        for (int i = 0; i < m->work->count; ++i) {
            const lg_multi_item *item = &m->work->item[i];
            if (item->grad->dtype != dtypes[k] || item->grad->numel == 0) continue;
            if (same_layout(item->param, item->grad)) {
                if (add(m, i, lg_data(item->grad)) != LUGE_OK) return lg_error();
            } else if (flush(m) != LUGE_OK || run_copied(m, i) != LUGE_OK) {
                return lg_error();
            }
        }
        if (flush(m) != LUGE_OK) return lg_error();
    }
    return LUGE_OK;
}

static luge_status count_steps(const multi *m)
{
    const lg_multi *work = m->work;
    lg_multi_counts c = {.norm = data_of(work->norm), .found = data_of(work->found), .skip = data_of(work->skip),
                         .trouble = m->d->trouble};
    int i = 0;
    do { /* once also without items, for what the step came to */
        for (c.count = 0; c.count < LG_MULTI_STEPS && i < work->count; ++i)
            c.steps[c.count++] = lg_data(work->item[i].step);
        if (lg_cuda_check(m->d, lg_cuda_launch_multi_count(&c, m->d->stream), "counting steps") != LUGE_OK)
            return lg_error();
    } while (i < work->count);
    return LUGE_OK;
}

/* ---- a pass */

/* Copies of gradients are made when some work is already queued. So that a lack of memory changes nothing,
 * the largest is asked for before: the allocator has it then. */
static luge_status reserve_copy(const multi *m)
{
    size_t most = 0;
    for (int i = 0; i < m->work->count; ++i) {
        const lg_multi_item *item = &m->work->item[i];
        const size_t bytes = (size_t)item->grad->numel * lg_element_size(item->grad);
        if (bytes > most && !same_layout(item->param, item->grad)) most = bytes;
    }
    if (most == 0) return LUGE_OK;
    void *copy = lg_cuda_scratch(m->device, most);
    if (copy == NULL) return lg_error();
    lg_cuda_scratch_free(m->device, copy, most);
    return LUGE_OK;
}

/* The norm of all gradients, in two launches. */
static luge_status run_norm(multi *m)
{
    int64_t blocks = 0;
    for (int i = 0; i < m->work->count; ++i) blocks += blocks_of(m->work->item[i].grad->numel);
    const size_t bytes = (size_t)blocks * 3 * sizeof(double);
    m->partial = lg_cuda_scratch(m->device, bytes);
    if (m->partial == NULL) return lg_error();
    luge_status status = reserve_copy(m);
    if (status == LUGE_OK) status = run_items(m);
    if (status == LUGE_OK)
        status = lg_cuda_check(
            m->d, lg_cuda_launch_multi_norm(m->partial, m->blocks, lg_data(m->work->norm), m->d->stream), "a norm");
    lg_cuda_scratch_free(m->device, m->partial, bytes);
    return status;
}

/* What has no items. */
static luge_status run_numbers(const multi *m)
{
    const lg_multi *work = m->work;
    if (work->kind == LG_MULTI_SCHEDULE)
        return lg_cuda_check(m->d, lg_cuda_launch_schedule(work->schedule, data_of(work->skip), data_of(work->position),
                                                           data_of(work->lr), m->d->stream), "a schedule");
    return lg_cuda_check(m->d, lg_cuda_launch_rescale(work->scaler, data_of(work->scale), data_of(work->found),
                                                      work->found->numel, work->most_skips, m->d->trouble, m->d->stream),
                         "a scaler's update");
}

luge_status lg_cuda_multi(lg_device *device, const lg_multi *work)
{
    multi m = {.work = work, .device = device, .d = lg_cuda_enter(device)};
    if (m.d == NULL) return lg_error();
    if (work->kind >= LG_MULTI_SCHEDULE) return run_numbers(&m);
    lg_multi_pass *p = &m.pass;
    p->rule = rule_of(work);
    p->lr = data_of(work->lr);
    p->norm = data_of(work->norm);
    p->scale = data_of(work->scale);
    p->found = is_step(work->kind) ? data_of(work->found) : NULL;
    p->overflow = is_step(work->kind) ? NULL : data_of(work->found);
    p->limit = work->limit;
    p->limit_f32 = (float)work->limit;
    p->momentum = work->momentum;
    p->dampening = work->dampening;
    p->beta1 = work->beta1;
    p->beta2 = work->beta2;
    p->eps = work->eps;
    p->decoupled = work->kind == LG_MULTI_ADAMW;
    p->nesterov = work->nesterov;
    if (work->kind == LG_MULTI_NORM) return run_norm(&m);
    if (reserve_copy(&m) != LUGE_OK || run_items(&m) != LUGE_OK) return lg_error();
    return is_step(work->kind) ? count_steps(&m) : LUGE_OK;
}
