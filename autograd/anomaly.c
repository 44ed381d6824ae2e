/* Anomaly mode's look at every result, and the places that its reports and others name. Called by the
 * call path after each op and by the engine after each node. */
#define _GNU_SOURCE
#include "autograd/anomaly.h"
#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <stdio.h>
#include "core/alloc.h"
#include "core/iter.h"
#include "core/thread.h"

const char *lg_site_text(char buffer[LG_SITE_TEXT], const void *site, const char *line)
{
    Dl_info info;
    struct link_map *map = NULL;
    buffer[0] = '\0';
    if (line != NULL) {
        const size_t length = strlen(line), most = LG_SITE_TEXT - 4;
        snprintf(buffer, LG_SITE_TEXT, " (%s)", length > most ? line + length - most : line);
        return buffer;
    }
    if (site == NULL || dladdr1(site, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL) return buffer;
    /* One byte back: the call, not what follows it, which may belong to another line. */
    const uintptr_t at = (uintptr_t)site - 1 - map->l_addr;
    const char *file = info.dli_fname != NULL ? info.dli_fname : "?";
    const size_t length = strlen(file), room = LG_SITE_TEXT - 32;
    snprintf(buffer, LG_SITE_TEXT, " (%s+%#zx)", length > room ? file + length - room : file, (size_t)at);
    return buffer;
}

/* Whether one of n adjacent f32 has all bits of its exponent set. A loop that vectorises. */
static bool any_bad_f32(const char *at, int64_t n)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; ++i) {
        uint32_t bits;
        memcpy(&bits, at + 4 * i, 4);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return bad != 0;
}

/* The first element of a run that is not finite, or -1. */
static int64_t find_bad(const char *at, luge_dtype dtype, int64_t n, int64_t stride)
{
    const int64_t step = stride * (int64_t)luge_dtype_size(dtype);
    if (dtype == LUGE_F32 && stride == 1 && !any_bad_f32(at, n)) return -1;
    for (int64_t i = 0; i < n; ++i)
        if (!isfinite(lg_load_f64(at + i * step, dtype))) return i;
    return -1;
}

/* What reports of one tensor share. */
typedef struct report {
    const char *who, *more;
    const void *site;
    const char *line;
} report;

static luge_status say(const luge_tensor *t, const report *r, double value)
{
    char shape[LG_SHAPE_TEXT], where[LG_SITE_TEXT];
    return lg_fail(LUGE_ERR_NONFINITE, "%s: made %s, %s %s%s%s", r->who, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf",
                   lg_shape_text(shape, &t->shape), luge_dtype_name(t->dtype), r->more != NULL ? r->more : "",
                   lg_site_text(where, r->site, r->line));
}

static luge_status check_memory(const luge_tensor *t, const char *base, const report *r)
{
    lg_iter it;
    lg_iter_init(&it, &t->shape, 1, (luge_tensor *[]){(luge_tensor *)t});
    for (int64_t row = 0; row * it.size[0] < it.numel; ++row) {
        int64_t offset[LG_ITER_MAX];
        lg_iter_row(&it, row, offset);
        const char *at = base + (t->offset + offset[0]) * (int64_t)lg_element_size(t);
        const int64_t bad = find_bad(at, t->dtype, it.size[0], it.stride[0][0]);
        if (bad < 0) continue;
        const char *element = at + bad * it.stride[0][0] * (int64_t)lg_element_size(t);
        return say(t, r, lg_load_f64(element, t->dtype));
    }
    return LUGE_OK;
}

luge_status lg_check_finite(const luge_tensor *t, const char *who, const char *more, const void *site, const char *line)
{
    const report r = {.who = who, .more = more, .site = site, .line = line};
    if (!lg_is_float(t->dtype) || t->numel == 0) return LUGE_OK;
    const lg_storage *s = t->storage;
    if (lg_on_host(s->device)) return check_memory(t, s->data, &r);

    char *copy = lg_alloc(s->bytes);
    if (copy == NULL) return lg_error();
    luge_status status = s->device->backend->to_host(s->device, copy, s->data, s->bytes);
    if (status == LUGE_OK) status = check_memory(t, copy, &r);
    lg_free(copy);
    return status;
}
