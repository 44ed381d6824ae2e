/* luge_text: the values of a tensor as people write them, "[[4.5], [9]]". */
#include "core/alloc.h"
#include "core/thread.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum {
    MAX_SHOWN = 1000, /* elements */
    MAX_EDGE = 3,     /* elements shown at each end of an axis that is cut */
    NUMBER_TEXT = 32, /* one value: 20 digits and a sign at most */
};

/* A string that grows. Once it could not, nothing is added any more. */
typedef struct text {
    char *at;
    size_t used, room;
    bool failed;
} text;

static void add(text *out, const char *piece)
{
    const size_t n = strlen(piece);
    if (out->failed) return;
    if (out->room - out->used <= n) {
        const size_t room = 2 * out->room + n + 64;
        char *at = lg_resize(out->at, room);
        out->failed = at == NULL;
        if (out->failed) return;
        out->at = at;
        out->room = room;
    }
    memcpy(out->at + out->used, piece, n + 1);
    out->used += n;
}

/* %.6g, whatever the locale of the program writes for the decimal point and the C library for NaN. */
static void write_float(char number[NUMBER_TEXT], double value)
{
    if (isnan(value) || isinf(value)) {
        snprintf(number, NUMBER_TEXT, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    char local[NUMBER_TEXT];
    snprintf(local, sizeof local, "%.6g", value);
    char *to = number;
    for (const char *from = local; *from != '\0'; ++from) {
        if (strchr("0123456789+-e", *from) != NULL) {
            *to++ = *from;
        } else if (to == number || to[-1] != '.') { /* the point may be several bytes */
            *to++ = '.';
        }
    }
    *to = '\0';
}

static void add_value(text *out, const void *element, luge_dtype dtype)
{
    char number[NUMBER_TEXT];
    if (lg_is_float(dtype)) {
        write_float(number, lg_load_f64(element, dtype));
    } else if (dtype == LUGE_BOOL) {
        snprintf(number, NUMBER_TEXT, "%s", lg_load_i64(element, dtype) != 0 ? "true" : "false");
    } else {
        snprintf(number, sizeof number, "%" PRId64, lg_load_i64(element, dtype));
    }
    add(out, number);
}

/* Writes everything below one index of the axes before `axis`. */
static void add_axis(text *out, const luge_tensor *t, const char *elements, int axis, int edge)
{
    if (axis == t->shape.rank) {
        add_value(out, elements, t->dtype);
        return;
    }
    const int64_t n = t->shape.dim[axis];
    const size_t step = (size_t)t->stride[axis] * lg_element_size(t);
    add(out, "[");
    for (int64_t i = 0; i < n; ++i) {
        if (i > 0) add(out, ", ");
        if (i == edge && n > 2 * edge) {
            add(out, "..., ");
            i = n - edge;
        }
        add_axis(out, t, elements + (size_t)i * step, axis + 1, edge);
    }
    add(out, "]");
}

/* How many elements stay if axes are cut to `edge` at each end; an empty axis counts for its brackets. */
static int64_t shown(const luge_shape *s, int edge)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; ++i) {
        const int64_t dim = s->dim[i] > 2 * edge ? 2 * edge : s->dim[i];
        if (dim > 0) n *= dim;
    }
    return n;
}

/* Elements left at each end of an axis; more than any axis has if nothing need be cut. */
static int choose_edge(const luge_shape *s)
{
    int64_t all = 1;
    for (int i = 0; i < s->rank && all <= MAX_SHOWN; ++i)
        if (s->dim[i] > 0) all = s->dim[i] > MAX_SHOWN ? MAX_SHOWN + 1 : all * s->dim[i];
    if (all <= MAX_SHOWN) return MAX_SHOWN;
    int edge = MAX_EDGE;
    while (edge > 1 && shown(s, edge) > MAX_SHOWN) --edge;
    return edge;
}

const char *luge_text(const luge_tensor *t)
{
    if (t == luge_none()) return "none";
    if (!lg_check_tensor(t, "text")) return lg_borrow_text("%s", luge_error_text());
    void *buffer;
    const void *elements = lg_host_elements(t, &buffer);
    text out = {0};
    if (elements != NULL) add_axis(&out, t, elements, 0, choose_edge(&t->shape));
    lg_free(buffer);
    if (elements == NULL || out.failed) {
        lg_free(out.at);
        return lg_borrow_text("%s", luge_error_text());
    }
    return lg_borrow_owned_text(out.at);
}
