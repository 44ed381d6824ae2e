/* Storages and tensor handles: making, sharing and freeing them, and the questions that cost nothing
 * to answer. On the path of every op: one allocation for a handle, two for a storage. */
#include "core/tensor.h"

#include "core/alloc.h"
#include "core/origin.h"
#include "core/services.h"
#include "core/thread.h"

/* Storages are numbered as they are made, so the number is the count as well. */
static _Atomic uint64_t storages_made;
static _Atomic uint64_t storages_gone;
static _Atomic int64_t tensors_alive;

int64_t lg_live_tensors(void)
{
    return atomic_load_explicit(&tensors_alive, memory_order_relaxed);
}

int64_t lg_live_storages(void)
{
    const uint64_t gone = atomic_load_explicit(&storages_gone, memory_order_acquire);
    return (int64_t)(atomic_load_explicit(&storages_made, memory_order_relaxed) - gone);
}

/* ---- storages */

uint64_t lg_storage_next(void)
{
    return 1 + atomic_load_explicit(&storages_made, memory_order_relaxed);
}

lg_storage *lg_storage_create(lg_device *device, lg_memory *memory, size_t bytes)
{
    lg_storage *s = lg_alloc(sizeof *s);
    if (s == NULL) return NULL;
    void *data = bytes == 0 ? NULL : lg_memory_alloc(memory, bytes);
    if (data == NULL && bytes != 0) {
        lg_free(s);
        return NULL;
    }
    *s = (lg_storage){.device = device, .memory = memory, .data = data, .bytes = bytes};
    atomic_init(&s->refs, 1);
    s->id = 1 + atomic_fetch_add_explicit(&storages_made, 1, memory_order_relaxed);
    if (atomic_load_explicit(&lg_records_memory, memory_order_relaxed)) lg_origin_enter(s);
    return s;
}

void lg_storage_retain(lg_storage *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void lg_storage_release(lg_storage *s)
{
    /* Whoever holds the only reference need not lock the bus to learn that it was the last. */
    if (atomic_load_explicit(&s->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (s->origin > 0) lg_origin_leave(s);
    if (s->release != NULL) {
        s->release(s);
    } else if (s->data != NULL) {
        lg_memory_free(s->memory, s->data, s->bytes);
    }
    lg_free(s);
    atomic_fetch_add_explicit(&storages_gone, 1, memory_order_release);
}

/* ---- handles */

/* Takes over the reference to the storage, also on failure. */
static luge_tensor *make_handle(lg_storage *storage, luge_dtype dtype, const luge_shape *shape, int64_t numel,
                                int64_t offset)
{
    luge_tensor *t = lg_alloc(sizeof *t);
    if (t == NULL) {
        lg_storage_release(storage);
        return NULL;
    }
    *t = (luge_tensor){.magic = LG_TENSOR_MAGIC,
                       .dtype = dtype,
                       .storage = storage,
                       .offset = offset,
                       .numel = numel,
                       .shape = *shape};
    atomic_init(&t->refs, 1);
    atomic_fetch_add_explicit(&tensors_alive, 1, memory_order_relaxed);
    return t;
}

/* Elements from the first to the last of a tensor that is not empty, both included; -1 if that does
 * not fit in memory. */
static int64_t extent(const luge_shape *shape, const int64_t *stride)
{
    int64_t last = 0;
    for (int i = 0; i < shape->rank; ++i) {
        int64_t step;
        if (stride[i] < 0 || __builtin_mul_overflow(shape->dim[i] - 1, stride[i], &step) ||
            __builtin_add_overflow(last, step, &last)) {
            return -1;
        }
    }
    return last < INT64_MAX / 8 ? last + 1 : -1;
}

/* Says what is wrong with a shape that no tensor can have. */
static void fail_shape(const luge_shape *shape)
{
    const char *op = lg_self()->op, *colon = op != NULL ? ": " : "";
    char text[LG_SHAPE_TEXT];
    if (op == NULL) op = "";
    if (shape->rank < 0 || shape->rank > LUGE_MAX_RANK) {
        lg_fail(LUGE_ERR_SHAPE, "%s%sa tensor has 0 to %d axes, not %d", op, colon, LUGE_MAX_RANK, shape->rank);
        return;
    }
    lg_shape_text(text, shape);
    for (int i = 0; i < shape->rank; ++i)
        if (shape->dim[i] < 0) {
            lg_fail(LUGE_ERR_SHAPE, "%s%sthere is no tensor of shape %s: size %d is negative", op, colon, text, i);
            return;
        }
    lg_fail(LUGE_ERR_SHAPE, "%s%sthere is no tensor of shape %s: so many elements do not fit in any memory", op, colon,
            text);
}

luge_tensor *lg_tensor_create_in(lg_memory *memory, lg_device *device, luge_dtype dtype, const luge_shape *shape,
                                 const int64_t *stride)
{
    const int64_t numel = lg_shape_numel(shape);
    const int64_t elements = stride == NULL || numel <= 0 ? numel : extent(shape, stride);
    if (elements < 0) {
        fail_shape(shape);
        return NULL;
    }
    lg_storage *storage = lg_storage_create(device, memory, (size_t)elements * luge_dtype_size(dtype));
    if (storage == NULL) return NULL;
    luge_tensor *t = make_handle(storage, dtype, shape, numel, 0);
    if (t == NULL) return NULL;
    if (stride == NULL) {
        lg_strides_contiguous(shape, t->stride);
    } else {
        for (int i = 0; i < shape->rank; ++i) t->stride[i] = stride[i];
    }
    return t;
}

luge_tensor *lg_tensor_create(lg_device *device, luge_dtype dtype, const luge_shape *shape, const int64_t *stride)
{
    return lg_tensor_create_in(device->memory, device, dtype, shape, stride);
}

luge_tensor *lg_tensor_view(const luge_tensor *t, const luge_shape *shape, const int64_t *stride, int64_t offset)
{
    lg_storage_retain(t->storage);
    luge_tensor *view = make_handle(t->storage, t->dtype, shape, lg_shape_numel(shape), offset);
    if (view == NULL) return NULL;
    for (int i = 0; i < shape->rank; ++i) view->stride[i] = stride[i];
    return view;
}

luge_tensor *lg_tensor_alias(const luge_tensor *t)
{
    return lg_tensor_view(t, &t->shape, t->stride, t->offset);
}

void lg_tensor_free(luge_tensor *t)
{
    lg_set_requires_grad(t, false);
    /* Marked dead before anything that could come back to it; a use after this is reported where the
     * memory has not been given out again. */
    t->magic = 0;
    if (t->node != NULL) lg_service.node_release(t->node);
    if (t->hooks != NULL) lg_service.hooks_free(t->hooks);
    luge_release(t->grad);
    lg_storage_release(t->storage);
#ifndef NDEBUG
    memset(t, 0xaa, sizeof *t);
#endif
    lg_free(t);
    atomic_fetch_sub_explicit(&tensors_alive, 1, memory_order_relaxed);
}

void lg_set_requires_grad(luge_tensor *t, bool on)
{
    if (t->requires_grad == on) return;
    t->requires_grad = on;
    atomic_fetch_add_explicit(&t->storage->graph_handles, on ? 1 : -1, memory_order_relaxed);
}

void lg_tensor_rebind(luge_tensor *t, const luge_tensor *from)
{
    const bool wants_grad = t->requires_grad;
    lg_set_requires_grad(t, false);
    lg_storage_retain(from->storage); /* first: it may be the same one */
    lg_storage_release(t->storage);
    t->storage = from->storage;
    t->dtype = from->dtype;
    t->offset = from->offset;
    t->numel = from->numel;
    t->shape = from->shape;
    memcpy(t->stride, from->stride, sizeof t->stride);
    lg_set_requires_grad(t, wants_grad);
    lg_bump_version(t);
}

/* ---- LUGE_NONE: a handle like others, empty and never freed, so that questions need not look for it */

luge_tensor *luge_none(void)
{
    static lg_storage nothing = {.refs = 1};
    static luge_tensor none = {.magic = LG_TENSOR_MAGIC, .storage = &nothing};
    return &none;
}

bool luge_is_none(const luge_tensor *t)
{
    return lg_is_none(t);
}

/* ---- checks */

static bool is_alive(const luge_tensor *t)
{
    return t != NULL && t->magic == LG_TENSOR_MAGIC;
}

bool lg_check_tensor(const luge_tensor *t, const char *what)
{
    if (is_alive(t) && !lg_is_none(t)) return true;
    if (!lg_ok()) return false; /* it says why t is NULL */
    if (t == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the tensor is NULL", what);
    } else if (!is_alive(t)) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the tensor was released before; luge_retain or luge_keep lets it live on",
                what);
    } else {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the tensor is LUGE_NONE, but is needed here", what);
    }
    return false;
}

luge_status lg_tensor_options(const luge_tensor_options *given, luge_tensor_options *out, lg_device **device)
{
    *out = given != NULL ? *given : (luge_tensor_options){0};
    if (!lg_check_reserved(out->reserved, 4, "luge_tensor_options")) return lg_error();
    if (!lg_dtype_valid(out->dtype)) {
        return lg_fail(LUGE_ERR_DTYPE, "luge_tensor_options: %d is no luge_dtype", (int)out->dtype);
    }
    if (out->requires_grad && !lg_is_float(out->dtype)) {
        return lg_fail(LUGE_ERR_DTYPE, "luge_tensor_options: only floats have gradients, not %s",
                       luge_dtype_name(out->dtype));
    }
    if (out->pinned && out->device.kind == LG_DEVICE_DEFAULT && out->device.index == 0) out->device.kind = LG_DEVICE_CPU;
    *device = lg_device_get(out->device);
    if (*device == NULL) return lg_error();
    if (out->pinned && !lg_on_host(*device)) {
        return lg_fail(LUGE_ERR_ARGUMENT, "luge_tensor_options: only memory of the host is pinned");
    }
    out->device = (*device)->id;
    return LUGE_OK;
}

/* ---- questions; they work while an error stands */

luge_shape luge_tensor_shape(const luge_tensor *t)
{
    return is_alive(t) ? t->shape : (luge_shape){0};
}

/* -1 if there is no such axis; scalars have none. */
static int find_axis(const luge_tensor *t, int axis)
{
    return is_alive(t) && t->shape.rank > 0 ? lg_axis(t->shape.rank, axis) : -1;
}

int64_t luge_tensor_size(const luge_tensor *t, int axis)
{
    const int i = find_axis(t, axis);
    return i < 0 ? 0 : t->shape.dim[i];
}

int64_t luge_tensor_stride(const luge_tensor *t, int axis)
{
    const int i = find_axis(t, axis);
    return i < 0 ? 0 : t->stride[i];
}

int64_t luge_tensor_numel(const luge_tensor *t)
{
    return is_alive(t) ? t->numel : 0;
}

luge_dtype luge_tensor_dtype(const luge_tensor *t)
{
    return is_alive(t) ? t->dtype : LUGE_F32;
}

luge_device luge_tensor_device(const luge_tensor *t)
{
    return is_alive(t) && t->storage->device != NULL ? t->storage->device->id : lg_device_default();
}

bool luge_tensor_requires_grad(const luge_tensor *t)
{
    return is_alive(t) && t->requires_grad;
}

bool luge_tensor_is_pinned(const luge_tensor *t)
{
    return is_alive(t) && !lg_is_none(t) && lg_is_pinned(t);
}

bool luge_tensor_is_contiguous(const luge_tensor *t)
{
    return is_alive(t) && lg_is_contiguous(t);
}

int64_t luge_tensor_version(const luge_tensor *t)
{
    return is_alive(t) ? (int64_t)lg_version(t) : 0;
}

luge_tensor *luge_tensor_grad(const luge_tensor *t)
{
    if (!is_alive(t)) return NULL;
    return t->grad != NULL ? lg_lend(t->grad) : luge_none();
}
