/* Writing safetensors files that PyTorch's safetensors package reads. */
#include <jansson.h>
#include <luge/ops.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/safetensors_dtypes.h"

/* ---- the header */

static json_t *describe(const luge_tensor *t, uint64_t begin, uint64_t end)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->shape.rank; ++i) {
        /* One that fails makes the array shorter; the count tells. */
        json_array_append_new(shape, json_integer(t->shape.dim[i]));
    }
    if (json_array_size(shape) != (size_t)t->shape.rank) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", lg_st_dtypes[t->dtype].name, "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

static luge_status refuse_name(const char *name)
{
    return lg_fail(LUGE_ERR_ARGUMENT,
                   "a tensor called \"%.64s\" cannot be saved as safetensors: names are UTF-8 and not "
                   "__metadata__",
                   name);
}

/* Adds the tensors in the order given, and their names if they are aliases. */
static luge_status fill_header(json_t *header, json_t *metadata, const lg_st_tensor *const *order, int count)
{
    uint64_t at = 0;
    for (int i = 0; i < count; ++i) {
        const lg_st_tensor *t = order[i];
        if (t->name[0] == '_' && strcmp(t->name, "__metadata__") == 0) return refuse_name(t->name);
        json_t *name = json_string(t->name); /* checks that it is UTF-8 */
        if (name == NULL) return refuse_name(t->name);
        json_decref(name);
        if (t->alias_of != NULL) {
            if (json_object_set_new(metadata, t->name, json_string(t->alias_of)) != 0) return LUGE_ERR_OUT_OF_MEMORY;
            continue;
        }
        const uint64_t end = at + (uint64_t)t->tensor->numel * lg_element_size(t->tensor);
        json_t *entry = describe(t->tensor, at, end);
        if (entry == NULL || json_object_set_new(header, t->name, entry) != 0) return LUGE_ERR_OUT_OF_MEMORY;
        at = end;
    }
    return LUGE_OK;
}

/* The header's text, for free(); padded so that the elements begin at a multiple of 8. */
static char *make_header(const lg_st_tensor *const *order, int count, size_t *length)
{
    json_t *metadata = json_pack("{s:s}", "format", "pt");
    json_t *header = json_object();
    luge_status status = LUGE_ERR_OUT_OF_MEMORY;
    if (header != NULL && json_object_set_new(header, "__metadata__", metadata) == 0) {
        status = fill_header(header, metadata, order, count);
    }
    char *text = status == LUGE_OK ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (text == NULL) {
        lg_fail(LUGE_ERR_OUT_OF_MEMORY, "out of host memory for the header of a safetensors file");
        return NULL;
    }
    *length = strlen(text);
    if (*length <= LG_ST_MAX_HEADER) return text;
    lg_fail(LUGE_ERR_UNSUPPORTED, "a safetensors header of %zu bytes would be larger than readers accept, %d", *length,
            LG_ST_MAX_HEADER);
    free(text);
    return NULL;
}

static luge_status write_header(lg_writer *w, const char *text, size_t length)
{
    static const char padding[8] = "       ";
    const size_t blank = (8 - length % 8) % 8;
    unsigned char prefix[8];
    for (int i = 0; i < 8; ++i) prefix[i] = (unsigned char)((uint64_t)(length + blank) >> 8 * i);
    lg_writer_write(w, prefix, sizeof prefix);
    lg_writer_write(w, text, length);
    return lg_writer_write(w, padding, blank);
}

/* ---- elements */

/* In row-major order, whatever the strides. */
static luge_status write_elements(lg_writer *w, luge_tensor *t)
{
    if (t->numel == 0) return LUGE_OK;
    luge_scope scope = luge_scope_enter("");
    luge_no_grad_enter();
    luge_tensor *rows = luge_contiguous(luge_to(t, luge_device_cpu(), NULL));
    if (rows != NULL) lg_writer_write(w, lg_data(rows), (size_t)rows->numel * lg_element_size(rows));
    return luge_scope_exit(scope, NULL);
}

/* Larger elements first, so that all are aligned; as given among equals. */
static int by_element(const void *a, const void *b)
{
    const lg_st_tensor *x = *(const lg_st_tensor *const *)a, *y = *(const lg_st_tensor *const *)b;
    const size_t m = lg_element_size(x->tensor), n = lg_element_size(y->tensor);
    return m != n ? (m < n) - (m > n) : (x > y) - (x < y);
}

luge_status lg_safetensors_write(const char *path, const lg_st_tensor *tensors, int count)
{
    if (!lg_ok()) return lg_error();
    const lg_st_tensor **order = lg_alloc((size_t)count * sizeof *order + 1);
    if (order == NULL) return lg_error();
    for (int i = 0; i < count; ++i) order[i] = &tensors[i];
    qsort(order, (size_t)count, sizeof *order, by_element);

    size_t length = 0;
    char *header = make_header(order, count, &length);
    lg_writer w;
    if (lg_writer_open(&w, path) == LUGE_OK) write_header(&w, header, length);
    for (int i = 0; i < count && lg_ok(); ++i) {
        if (order[i]->alias_of == NULL) write_elements(&w, order[i]->tensor);
    }
    lg_writer_end(&w);
    free(header);
    lg_free(order);
    return lg_error();
}
