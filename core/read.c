/* Values between host memory and tensors: single numbers, arrays, raw pointers, and copies from one
 * device to another. */
#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"
#include <inttypes.h>
#include <math.h>

/* What an empty tensor's elements are said to lie at. */
static _Alignas(64) char empty_elements[64];

/* ---- making */

luge_tensor *lg_empty(const char *name, luge_shape shape, const luge_tensor_options *options)
{
    if (!lg_ok()) return NULL;
    luge_tensor_options o;
    lg_device *device;
    if (lg_tensor_options(options, &o, &device) != LUGE_OK) return NULL;
    lg_thread *self = lg_self();
    const char *outer = self->op;
    self->op = name;
    lg_memory *memory = o.pinned ? lg_pinned_memory() : device->memory;
    luge_tensor *t = memory != NULL ? lg_tensor_create_in(memory, device, o.dtype, &shape, NULL) : NULL;
    self->op = outer;
    if (t == NULL) return NULL;
    lg_set_requires_grad(t, o.requires_grad);
    return lg_borrow(t);
}

luge_tensor *luge_empty(luge_shape shape, const luge_tensor_options *options)
{
    return lg_empty("empty", shape, options);
}

luge_tensor *luge_empty_like(const luge_tensor *t)
{
    if (!lg_ok() || !lg_check_tensor(t, "empty_like")) return NULL;
    const int64_t *stride = lg_strides_are_dense(&t->shape, t->stride) ? t->stride : NULL;
    return lg_borrow(lg_tensor_create(t->storage->device, t->dtype, &t->shape, stride));
}

/* A bool read from elsewhere may be any byte; in a tensor it is 0 or 1. */
static luge_status fill_bools(luge_tensor *t, const unsigned char *from)
{
    lg_device *device = t->storage->device;
    const size_t n = (size_t)t->numel;
    unsigned char *to = lg_on_host(device) ? lg_data(t) : lg_alloc(n);
    if (to == NULL) return lg_error();
    for (size_t i = 0; i < n; ++i) to[i] = from[i] != 0;
    if (lg_on_host(device)) return LUGE_OK;
    const luge_status status = device->backend->from_host(device, lg_data(t), to, n);
    lg_free(to);
    return status;
}

luge_tensor *luge_from_array(const void *data, luge_dtype dtype, luge_shape shape)
{
    if (!lg_ok()) return NULL;
    if (!lg_dtype_valid(dtype)) {
        lg_fail(LUGE_ERR_DTYPE, "from_array: %d is no luge_dtype", (int)dtype);
        return NULL;
    }
    luge_tensor *t = lg_empty("from_array", shape, &(luge_tensor_options){.dtype = dtype});
    if (t == NULL || t->numel == 0) return t;
    if (data == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "from_array: the array is NULL, but %" PRId64 " elements are to be read", t->numel);
        return NULL;
    }
    lg_device *device = t->storage->device;
    const luge_status status = dtype == LUGE_BOOL
                                   ? fill_bools(t, data)
                                   : device->backend->from_host(device, lg_data(t), data, t->storage->bytes);
    return status == LUGE_OK ? t : NULL;
}

luge_tensor *luge_from_values(luge_shape shape, const double *values, int count)
{
    if (!lg_ok()) return NULL;
    const int64_t numel = lg_shape_numel(&shape);
    if (numel >= 0 && numel != count) {
        char text[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "from_values: %d values for the shape %s, which takes %" PRId64, count,
                lg_shape_text(text, &shape), numel);
        return NULL;
    }
    luge_tensor *t = lg_empty("from_values", shape, NULL);
    if (t == NULL || numel == 0) return t;
    if (values == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "from_values: the values are NULL");
        return NULL;
    }
    lg_device *device = t->storage->device;
    float *to = lg_on_host(device) ? lg_data(t) : lg_alloc(t->storage->bytes);
    if (to == NULL) return NULL;
    for (int64_t i = 0; i < numel; ++i) to[i] = (float)values[i];
    if (lg_on_host(device)) return t;
    const luge_status status = device->backend->from_host(device, lg_data(t), to, t->storage->bytes);
    lg_free(to);
    return status == LUGE_OK ? t : NULL;
}

/* ---- reading */

/* Elements from the first to the last, both included. */
static size_t span(const luge_tensor *t)
{
    size_t last = 0;
    for (int i = 0; i < t->shape.rank; ++i) last += (size_t)(t->shape.dim[i] - 1) * (size_t)t->stride[i];
    return last + 1;
}

const void *lg_host_elements(const luge_tensor *t, void **buffer)
{
    *buffer = NULL;
    if (t->numel == 0) return empty_elements;
    lg_device *device = t->storage->device;
    if (lg_on_host(device)) return lg_data(t);

    const size_t bytes = span(t) * lg_element_size(t);
    *buffer = lg_alloc(bytes);
    if (*buffer == NULL) return NULL;
    if (device->backend->to_host(device, *buffer, lg_data(t), bytes) == LUGE_OK) return *buffer;
    lg_free(*buffer);
    *buffer = NULL;
    return NULL;
}

double luge_item(const luge_tensor *t)
{
    if (!lg_check_tensor(t, "item")) return NAN;
    if (t->numel != 1) {
        char text[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "item: the tensor must have one element, its shape is %s",
                lg_shape_text(text, &t->shape));
        return NAN;
    }
    void *buffer;
    const void *element = lg_host_elements(t, &buffer);
    if (element == NULL) return NAN;
    const double value = lg_load_f64(element, t->dtype);
    lg_free(buffer);
    return value;
}

/* Writes n elements, `step` apart in memory, next to each other. */
static void convert_row(char *to, luge_dtype to_dtype, const char *from, luge_dtype from_dtype, int64_t n, int64_t step)
{
    const size_t to_size = luge_dtype_size(to_dtype), from_size = luge_dtype_size(from_dtype);
    if (to_dtype == from_dtype && step == 1) {
        memcpy(to, from, (size_t)n * to_size);
        return;
    }
    for (int64_t i = 0; i < n; ++i) {
        lg_convert(to, to_dtype, from, from_dtype);
        to += to_size;
        from += (size_t)step * from_size;
    }
}

/* Writes the elements in row-major order. `from`: the first of t's. */
static void convert_all(char *to, luge_dtype to_dtype, const char *from, const luge_tensor *t)
{
    if (lg_is_contiguous(t)) {
        convert_row(to, to_dtype, from, t->dtype, t->numel, 1);
        return;
    }
    const int inner = t->shape.rank - 1; /* not contiguous, so there is an axis */
    const int64_t row = t->shape.dim[inner];
    const size_t row_bytes = (size_t)row * luge_dtype_size(to_dtype), size = lg_element_size(t);
    int64_t index[LUGE_MAX_RANK] = {0};
    for (int64_t rows = t->numel / row, offset = 0; rows > 0; --rows, to += row_bytes) {
        convert_row(to, to_dtype, from + (size_t)offset * size, t->dtype, row, t->stride[inner]);
        for (int i = inner - 1; i >= 0; --i) {
            offset += t->stride[i];
            if (++index[i] < t->shape.dim[i]) break;
            offset -= index[i] * t->stride[i];
            index[i] = 0;
        }
    }
}

luge_status luge_to_array(const luge_tensor *t, void *data, luge_dtype dtype, int64_t count)
{
    if (!lg_check_tensor(t, "to_array")) return lg_error();
    if (!lg_dtype_valid(dtype)) return lg_fail(LUGE_ERR_DTYPE, "to_array: %d is no luge_dtype", (int)dtype);
    if (count != t->numel) {
        return lg_fail(LUGE_ERR_SHAPE, "to_array: the array has %" PRId64 " elements, the tensor %" PRId64, count,
                       t->numel);
    }
    if (data == NULL && count > 0) return lg_fail(LUGE_ERR_ARGUMENT, "to_array: the array is NULL");
    void *buffer;
    const void *from = lg_host_elements(t, &buffer);
    if (from == NULL) return lg_error();
    if (count > 0) convert_all(data, dtype, from, t);
    lg_free(buffer);
    return LUGE_OK;
}

/* ---- raw pointers */

static void *raw_elements(const luge_tensor *t, luge_dtype dtype, const char *what)
{
    if (!lg_check_tensor(t, what)) return NULL;
    if (t->dtype != dtype) {
        lg_fail(LUGE_ERR_DTYPE, "%s: the tensor is %s, asked for was %s", what, luge_dtype_name(t->dtype),
                luge_dtype_name(dtype));
    } else if (!lg_on_host(t->storage->device)) {
        lg_fail(LUGE_ERR_DEVICE, "%s: the tensor is on another device; luge_to brings it to the host", what);
    } else if (!lg_is_contiguous(t)) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: the tensor is not contiguous; luge_contiguous makes one that is", what);
    } else {
        return t->numel == 0 ? empty_elements : lg_data(t);
    }
    return NULL;
}

const void *luge_tensor_data(const luge_tensor *t, luge_dtype dtype)
{
    return raw_elements(t, dtype, "tensor_data");
}

void *luge_tensor_data_mut(luge_tensor *t, luge_dtype dtype)
{
    if (!lg_ok()) return NULL;
    void *data = raw_elements(t, dtype, "tensor_data_mut");
    if (data != NULL) lg_bump_version(t);
    return data;
}

/* ---- moving */

/* Through the host, where nothing better is offered. */
static luge_status copy_by_host(luge_tensor *to, const luge_tensor *from, size_t bytes)
{
    lg_device *there = to->storage->device;
    void *buffer;
    const void *elements = lg_host_elements(from, &buffer);
    if (elements == NULL) return lg_error();
    const luge_status status = there->backend->from_host(there, lg_data(to), elements, bytes);
    lg_free(buffer);
    return status;
}

/* From pinned memory, which its own device must not give out again before `there` has read it. */
static luge_status upload(luge_tensor *to, const luge_tensor *from, size_t bytes)
{
    lg_device *there = to->storage->device, *owner = lg_memory_device(from->storage->memory);
    const luge_status status = there->backend->upload(there, lg_data(to), lg_data(from), bytes);
    return status == LUGE_OK && owner != there ? owner->backend->follow(owner, there) : status;
}

luge_status lg_copy_across(luge_tensor *to, const luge_tensor *from, bool wait)
{
    lg_device *there = to->storage->device, *here = from->storage->device;
    const size_t bytes = (size_t)from->numel * lg_element_size(from);
    if (bytes == 0) return LUGE_OK;
    if (lg_on_host(there) && lg_on_host(here)) {
        memcpy(lg_data(to), lg_data(from), bytes);
        return LUGE_OK;
    }
    if (lg_on_host(there)) {
        return !wait && lg_is_pinned(to) ? here->backend->download(here, lg_data(to), lg_data(from), bytes)
                                         : here->backend->to_host(here, lg_data(to), lg_data(from), bytes);
    }
    if (lg_on_host(here)) {
        return !wait && lg_is_pinned(from) ? upload(to, from, bytes)
                                           : there->backend->from_host(there, lg_data(to), lg_data(from), bytes);
    }
    if (here->backend != there->backend || there->backend->from_peer == NULL) return copy_by_host(to, from, bytes);
    return there->backend->from_peer(there, lg_data(to), here, lg_data(from), bytes);
}
