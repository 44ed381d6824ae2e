/* How samples get into a batch: the room that callbacks fill, and rows gathered from memory. The loader
 * (data/loader.c) says which samples. */
#include <inttypes.h>
#include <string.h>

#include "core/thread.h"
#include "data/dataset.h"

static const char *const field_name[LG_FIELDS] = {"input", "target"};

/* ---- slots */

void lg_slot_release(lg_slot *slot)
{
    for (int f = 0; f < LG_FIELDS; ++f) {
        luge_release(slot->tensor[f]);
        slot->tensor[f] = NULL;
    }
}

/* Whether nothing but the slot can reach the tensor's memory. */
static bool is_unshared(const luge_tensor *t)
{
    return atomic_load_explicit(&t->refs, memory_order_acquire) == 1 &&
           atomic_load_explicit(&t->storage->refs, memory_order_acquire) == 1 && !t->requires_grad && t->hooks == NULL;
}

void lg_slot_reset(lg_slot *slot, int64_t size)
{
    for (int f = 0; f < LG_FIELDS; ++f) {
        luge_tensor *t = slot->tensor[f];
        if (t == NULL) continue;
        if (size == slot->size && is_unshared(t)) {
            lg_bump_version(t); /* what was computed from the old contents is out of date */
        } else {
            luge_release(t);
            slot->tensor[f] = NULL;
        }
    }
    slot->size = size;
}

/* The slot's tensor for a field of which samples have that dtype and shape. */
static luge_tensor *field_tensor(lg_slot *slot, int f, luge_dtype dtype, const luge_shape *shape)
{
    if (slot->tensor[f] != NULL) return slot->tensor[f];
    luge_shape all = {.rank = shape->rank + 1, .dim = {slot->size}};
    memcpy(all.dim + 1, shape->dim, (size_t)shape->rank * sizeof *shape->dim);
    lg_device *host = lg_device_get(luge_device_cpu());
    lg_memory *memory = slot->memory != NULL || host == NULL ? slot->memory : host->memory;
    if (memory != NULL && host != NULL) slot->tensor[f] = lg_tensor_create_in(memory, host, dtype, &all, NULL);
    return slot->tensor[f];
}

/* ---- samples of callbacks */

/* One sample while its dataset fills it. */
struct luge_sample {
    lg_slot *slot;
    int64_t row;
    bool filled[LG_FIELDS];
};

static int find_field(const char *name)
{
    for (int f = 0; f < LG_FIELDS; ++f)
        if (strcmp(name, field_name[f]) == 0) return f;
    return -1;
}

/* Whether the sample fits those before it; the first one says what others must have. */
static luge_status check_field(lg_slot *slot, int f, luge_dtype dtype, const luge_shape *shape)
{
    lg_field *field = &slot->field[f];
    if (!slot->learned && !field->present) {
        *field = (lg_field){.present = true, .dtype = dtype, .shape = *shape};
        return LUGE_OK;
    }
    if (!field->present) {
        return lg_fail(LUGE_ERR_ARGUMENT, "has a field \"%s\", which earlier samples have not", field_name[f]);
    }
    if (field->dtype == dtype && lg_shape_equal(&field->shape, shape)) return LUGE_OK;
    char is[LG_SHAPE_TEXT], was[LG_SHAPE_TEXT];
    return lg_fail(LUGE_ERR_SHAPE, "\"%s\" is %s %s, but in earlier samples it is %s %s", field_name[f],
                   luge_dtype_name(dtype), lg_shape_text(is, shape), luge_dtype_name(field->dtype),
                   lg_shape_text(was, &field->shape));
}

void *luge_sample_field(luge_sample *sample, const char *name, luge_dtype dtype, luge_shape shape)
{
    if (!lg_ok()) return NULL;
    if (sample == NULL || name == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_sample_field: the %s is NULL", sample == NULL ? "sample" : "name");
        return NULL;
    }
    const int f = find_field(name);
    if (f < 0) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_sample_field: no field \"%s\": samples have \"input\" and \"target\"", name);
        return NULL;
    }
    if (!lg_dtype_valid(dtype)) {
        lg_fail(LUGE_ERR_DTYPE, "luge_sample_field: \"%s\": %d is no luge_dtype", name, (int)dtype);
        return NULL;
    }
    if (lg_shape_numel(&shape) < 0 || shape.rank >= LUGE_MAX_RANK) {
        char text[LG_SHAPE_TEXT];
        lg_fail(LUGE_ERR_SHAPE, "luge_sample_field: \"%s\": %s is no shape of a sample: at most %d sizes of 0 or more",
                name, lg_shape_text(text, &shape), LUGE_MAX_RANK - 1);
        return NULL;
    }
    if (check_field(sample->slot, f, dtype, &shape) != LUGE_OK) return NULL;
    luge_tensor *t = field_tensor(sample->slot, f, dtype, &shape);
    if (t == NULL) return NULL;
    sample->filled[f] = true;
    static char nothing;
    if (t->numel == 0) return &nothing;
    const size_t row_bytes = (size_t)(t->numel / sample->slot->size) * lg_element_size(t);
    return (char *)lg_data(t) + (size_t)sample->row * row_bytes;
}

luge_status luge_sample_set_label(luge_sample *sample, int64_t label)
{
    if (!lg_ok()) return lg_error();
    if (sample == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "luge_sample_set_label: the sample is NULL");
    int64_t *target = luge_sample_field(sample, field_name[LG_FIELD_TARGET], LUGE_I64, LUGE_SCALAR);
    if (target == NULL) return lg_error();
    *target = label;
    return LUGE_OK;
}

/* Whether the sample has all that it must have. */
static luge_status check_filled(const luge_sample *sample)
{
    if (!sample->filled[LG_FIELD_INPUT]) return lg_fail(LUGE_ERR_CALLBACK, "the dataset gave it no \"input\"");
    for (int f = 0; f < LG_FIELDS; ++f) {
        if (sample->filled[f] || !sample->slot->field[f].present) continue;
        return lg_fail(LUGE_ERR_CALLBACK, "the dataset gave it no \"%s\", which earlier samples have", field_name[f]);
    }
    return LUGE_OK;
}

luge_status lg_slot_fill(lg_slot *slot, const luge_dataset *dataset, int64_t row, int64_t index, luge_rng *rng)
{
    char name[LG_SCOPE_NAME];
    snprintf(name, sizeof name, "sample %" PRId64, index); /* the path in front of all that goes wrong here */
    luge_scope scope = luge_scope_enter(name);
    luge_sample sample = {.slot = slot, .row = row};
    luge_status status = lg_ok() ? dataset->type.get(index, rng, &sample, dataset->type.user) : lg_error();
    if (!lg_ok()) {
        status = lg_error();
    } else if (status != LUGE_OK) {
        status = lg_fail(LUGE_ERR_CALLBACK, "the dataset's get returned %d without saying why (luge_fail does)",
                         (int)status);
    } else {
        status = check_filled(&sample);
    }
    if (status == LUGE_OK) {
        slot->learned = true;
    } else if (!slot->learned) { /* a first sample that failed says nothing about others */
        lg_slot_release(slot);
        memset(slot->field, 0, sizeof slot->field);
    }
    luge_scope_exit(scope, NULL);
    return status;
}

/* ---- samples that lie in memory */

/* Row i of a batch is row order[i], or row first + i where there is no order. */
static int64_t row_at(const int64_t *order, int64_t first, int64_t i)
{
    return order != NULL ? order[first + i] : first + i;
}

static void copy_rows(luge_tensor *to, const lg_rows *rows, const int64_t *order, int64_t first, int64_t row_numel)
{
    const size_t bytes = (size_t)row_numel * lg_element_size(rows->data);
    const char *from = lg_data(rows->data);
    char *row = lg_data(to);
    for (int64_t i = 0; i < to->shape.dim[0]; ++i, row += bytes)
        memcpy(row, from + (size_t)row_at(order, first, i) * bytes, bytes);
}

static void normalise_rows(luge_tensor *to, const lg_rows *rows, const int64_t *order, int64_t first, int64_t row_numel)
{
    const uint8_t *all = lg_data(rows->data);
    const float scale = rows->scale, shift = rows->shift;
    float *restrict row = lg_data(to);
    for (int64_t i = 0; i < to->shape.dim[0]; ++i, row += row_numel) {
        const uint8_t *restrict from = all + row_at(order, first, i) * row_numel;
        for (int64_t k = 0; k < row_numel; ++k) row[k] = (float)from[k] * scale + shift;
    }
}

luge_status lg_slot_gather(lg_slot *slot, const luge_dataset *dataset, const int64_t *order, int64_t first)
{
    for (int f = 0; f < LG_FIELDS; ++f) {
        const lg_rows *rows = &dataset->rows[f];
        if (rows->data == NULL) continue;
        luge_shape sample = {.rank = rows->data->shape.rank - 1};
        memcpy(sample.dim, rows->data->shape.dim + 1, (size_t)sample.rank * sizeof *sample.dim);
        luge_tensor *t = field_tensor(slot, f, rows->normalise ? LUGE_F32 : rows->data->dtype, &sample);
        if (t == NULL) return lg_error();
        if (t->numel == 0) continue;
        (rows->normalise ? normalise_rows : copy_rows)(t, rows, order, first, t->numel / slot->size);
    }
    return LUGE_OK;
}
