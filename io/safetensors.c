/* Reading safetensors files. Nothing in the header is believed before it is checked: files come from
 * anywhere. The writer is in safetensors_write.c. */
#include "io/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "io/file.h"
#include "io/safetensors_dtypes.h"

struct lg_safetensors {
    lg_reader file;
    json_t *header;     /* owns names and dtype names */
    lg_st_entry *entry; /* sorted by name */
    int count;
};

const lg_st_dtype lg_st_dtypes[] = {
    {"F32", 32, LUGE_F32, LG_ST_AS_IS},   {"F64", 64, LUGE_F64, LG_ST_AS_IS},  {"F16", 16, LUGE_F16, LG_ST_AS_IS},
    {"BF16", 16, LUGE_BF16, LG_ST_AS_IS}, {"I64", 64, LUGE_I64, LG_ST_AS_IS},  {"I32", 32, LUGE_I32, LG_ST_AS_IS},
    {"U8", 8, LUGE_U8, LG_ST_AS_IS},      {"BOOL", 8, LUGE_BOOL, LG_ST_BOOL},  {"I8", 8, LUGE_I32, LG_ST_I8},
    {"I16", 16, LUGE_I32, LG_ST_I16},     {"U16", 16, LUGE_I32, LG_ST_U16},    {"U32", 32, LUGE_I64, LG_ST_U32},
    {"U64", 64, 0, LG_ST_UNREADABLE},     {"C64", 64, 0, LG_ST_UNREADABLE},    {"F8_E4M3", 8, 0, LG_ST_UNREADABLE},
    {"F8_E5M2", 8, 0, LG_ST_UNREADABLE},  {"F8_E8M0", 8, 0, LG_ST_UNREADABLE}, {"F6_E2M3", 6, 0, LG_ST_UNREADABLE},
    {"F6_E3M2", 6, 0, LG_ST_UNREADABLE},  {"F4", 4, 0, LG_ST_UNREADABLE},      {NULL, 0, 0, LG_ST_UNREADABLE},
};

static const lg_st_dtype *find_dtype(const char *name)
{
    const lg_st_dtype *d = lg_st_dtypes;
    while (d->name != NULL && strcmp(d->name, name) != 0) ++d;
    return d->name != NULL ? d : NULL;
}

LUGE_PRINTF_LIKE(2, 3) static luge_status malformed(const lg_safetensors *s, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lg_fail(LUGE_ERR_FORMAT, "%s is no safetensors file: %s", s->file.path, text);
}

/* ---- the header */

/* The header's JSON and where the elements begin. */
static luge_status read_header(lg_safetensors *s, uint64_t *data)
{
    unsigned char prefix[8];
    if (s->file.size < sizeof prefix) return malformed(s, "it has only %" PRIu64 " bytes", s->file.size);
    if (lg_reader_read(&s->file, 0, prefix, sizeof prefix) != LUGE_OK) return lg_error();
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | prefix[i];
    if (length > LG_ST_MAX_HEADER || length > s->file.size - sizeof prefix) {
        return malformed(s, "its header of %" PRIu64 " bytes is longer than the %s", length,
                         length > LG_ST_MAX_HEADER ? "100000000 bytes that the format allows" : "file");
    }
    *data = sizeof prefix + length;

    char *text = lg_alloc((size_t)length + 1);
    if (text == NULL) return lg_error();
    if (lg_reader_read(&s->file, sizeof prefix, text, (size_t)length) == LUGE_OK) {
        json_error_t error;
        s->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
        if (s->header == NULL && json_error_code(&error) == json_error_out_of_memory) {
            lg_fail(LUGE_ERR_OUT_OF_MEMORY, "out of host memory for the header of %s", s->file.path);
        } else if (s->header == NULL) {
            malformed(s, "its header is no JSON that can be read: %s at byte %d", error.text, error.position);
        } else if (!json_is_object(s->header)) {
            malformed(s, "its header is no JSON object");
        }
    }
    lg_free(text);
    return lg_error();
}

static luge_status check_metadata(const lg_safetensors *s, json_t *metadata)
{
    if (!json_is_object(metadata)) return malformed(s, "__metadata__ is no object");
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value)) return malformed(s, "__metadata__ \"%.64s\" is no string", key);
    }
    return LUGE_OK;
}

/* One size or offset: an integer that is not negative. */
static bool get_natural(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

/* The shape, and the bits that its elements take. */
static luge_status parse_shape(const lg_safetensors *s, const json_t *sizes, lg_st_entry *e, uint64_t *bits)
{
    if (!json_is_array(sizes)) return malformed(s, "\"%.64s\" has no shape", e->name);
    const size_t rank = json_array_size(sizes);
    bool overflow = false;
    for (size_t i = 0; i < rank; ++i) {
        uint64_t size;
        if (!get_natural(json_array_get(sizes, i), &size))
            return malformed(s, "\"%.64s\" has an impossible shape", e->name);
        overflow = __builtin_mul_overflow(*bits, size, bits) || overflow;
        if (i < LUGE_MAX_RANK) e->shape.dim[i] = (int64_t)size;
    }
    if (overflow) return malformed(s, "\"%.64s\" has more elements than fit in memory", e->name);
    if (rank > LUGE_MAX_RANK) {
        return lg_fail(LUGE_ERR_UNSUPPORTED, "%s: \"%.64s\" has %zu axes; luge has at most %d", s->file.path, e->name,
                       rank, LUGE_MAX_RANK);
    }
    e->shape.rank = (int)rank;
    return LUGE_OK;
}

static luge_status parse_entry(const lg_safetensors *s, const char *name, json_t *value, uint64_t data, lg_st_entry *e)
{
    *e = (lg_st_entry){.name = name};
    e->stored = json_string_value(json_object_get(value, "dtype"));
    if (e->stored == NULL) return malformed(s, "\"%.64s\" has no dtype", name);
    const lg_st_dtype *dtype = find_dtype(e->stored);
    if (dtype == NULL) return malformed(s, "\"%.64s\" has the unknown dtype \"%.32s\"", name, e->stored);
    e->dtype = dtype->dtype;
    e->readable = dtype->form != LG_ST_UNREADABLE;

    uint64_t bits = dtype->bits;
    if (parse_shape(s, json_object_get(value, "shape"), e, &bits) != LUGE_OK) return lg_error();

    const json_t *offsets = json_object_get(value, "data_offsets");
    uint64_t begin, end;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !get_natural(json_array_get(offsets, 0), &begin) ||
        !get_natural(json_array_get(offsets, 1), &end) || begin > end) {
        return malformed(s, "\"%.64s\" has no data_offsets [begin, end]", name);
    }
    if (end > s->file.size - data) return malformed(s, "\"%.64s\" lies behind the end of the file", name);
    if (bits % 8 != 0 || bits / 8 != end - begin) {
        return malformed(s, "\"%.64s\" needs %" PRIu64 " bytes, but has %" PRIu64, name, bits / 8, end - begin);
    }
    e->begin = data + begin;
    e->end = data + end;
    return LUGE_OK;
}

static int by_place(const void *a, const void *b)
{
    const lg_st_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const lg_st_entry *)a)->name, ((const lg_st_entry *)b)->name);
}

/* Tensors fill the file: no byte belongs to none of them, or to two. */
static luge_status check_places(lg_safetensors *s, uint64_t data)
{
    qsort(s->entry, (size_t)s->count, sizeof *s->entry, by_place);
    uint64_t at = data;
    for (int i = 0; i < s->count; ++i) {
        const lg_st_entry *e = &s->entry[i];
        if (e->begin != at) {
            return malformed(s, "there %s before \"%.64s\"", e->begin > at ? "is a hole" : "are overlapping elements",
                             e->name);
        }
        at = e->end;
    }
    if (at != s->file.size) return malformed(s, "%" PRIu64 " bytes at the end belong to no tensor", s->file.size - at);
    qsort(s->entry, (size_t)s->count, sizeof *s->entry, by_name);
    return LUGE_OK;
}

static luge_status parse_header(lg_safetensors *s, uint64_t data)
{
    s->entry = lg_alloc(json_object_size(s->header) * sizeof *s->entry + 1);
    if (s->entry == NULL) return lg_error();
    const char *name;
    json_t *value;
    json_object_foreach(s->header, name, value)
    {
        const bool metadata = strcmp(name, "__metadata__") == 0;
        luge_status status =
            metadata ? check_metadata(s, value) : parse_entry(s, name, value, data, &s->entry[s->count]);
        if (status != LUGE_OK) return status;
        s->count += !metadata;
    }
    return check_places(s, data);
}

lg_safetensors *lg_safetensors_open(const char *path)
{
    if (!lg_ok()) return NULL;
    lg_safetensors *s = lg_alloc_zero(sizeof *s);
    if (s == NULL) return NULL;
    uint64_t data;
    if (lg_reader_open(&s->file, path) == LUGE_OK && read_header(s, &data) == LUGE_OK &&
        parse_header(s, data) == LUGE_OK) {
        return s;
    }
    lg_safetensors_close(s);
    return NULL;
}

void lg_safetensors_close(lg_safetensors *s)
{
    if (s == NULL) return;
    lg_reader_close(&s->file);
    json_decref(s->header);
    lg_free(s->entry);
    lg_free(s);
}

int lg_safetensors_count(const lg_safetensors *s)
{
    return s->count;
}

const lg_st_entry *lg_safetensors_entry(const lg_safetensors *s, int i)
{
    return &s->entry[i];
}

int lg_safetensors_find(const lg_safetensors *s, const char *name)
{
    const lg_st_entry key = {.name = name};
    const lg_st_entry *e = bsearch(&key, s->entry, (size_t)s->count, sizeof *s->entry, by_name);
    return e != NULL ? (int)(e - s->entry) : -1;
}

/* ---- elements */

/* Widens n elements that were read to the end of `to`'s memory, from the first on: each is read before
 * its place is written over. */
static void widen(luge_tensor *to, const unsigned char *from, lg_st_form form)
{
    int32_t *small = lg_data(to);
    int64_t *large = lg_data(to);
    for (int64_t i = 0; i < to->numel; ++i) {
        int16_t i16 = 0;
        uint16_t u16 = 0;
        uint32_t u32 = 0;
        switch (form) {
        case LG_ST_I8: small[i] = (signed char)from[i]; break;
        case LG_ST_I16: memcpy(&i16, from + 2 * i, 2), small[i] = i16; break;
        case LG_ST_U16: memcpy(&u16, from + 2 * i, 2), small[i] = u16; break;
        case LG_ST_U32: memcpy(&u32, from + 4 * i, 4), large[i] = u32; break;
        default: break;
        }
    }
}

luge_tensor *lg_safetensors_read(lg_safetensors *s, int i)
{
    if (!lg_ok()) return NULL;
    const lg_st_entry *e = &s->entry[i];
    const lg_st_form form = find_dtype(e->stored)->form;
    if (form == LG_ST_UNREADABLE) {
        lg_fail(LUGE_ERR_UNSUPPORTED, "%s: \"%.64s\" is %s, which luge has no dtype for", s->file.path, e->name,
                e->stored);
        return NULL;
    }
    luge_tensor *t = lg_tensor_create(lg_device_get(luge_device_cpu()), e->dtype, &e->shape, NULL);
    if (t == NULL || t->numel == 0) return t;
    const size_t bytes = (size_t)(e->end - e->begin);
    unsigned char *to = (unsigned char *)lg_data(t) + (t->storage->bytes - bytes);
    if (lg_reader_read(&s->file, e->begin, to, bytes) != LUGE_OK) {
        luge_release(t);
        return NULL;
    }
    if (form == LG_ST_BOOL) {
        for (size_t k = 0; k < bytes; ++k) to[k] = to[k] != 0;
    } else if (form != LG_ST_AS_IS) {
        widen(t, to, form);
    }
    return t;
}
