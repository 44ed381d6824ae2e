/* A profile for programs: Chrome's trace format, and the report of values as JSON. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "core/alloc.h"
#include "core/profile.h"
#include "io/file.h"
#include "train/profile_text.h"

/* ---- text */

void lg_text_add(lg_text *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = out->failed ? -1 : vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) return;
    const size_t need = out->used + (size_t)n + 1;
    if (need > out->room) {
        const size_t room = 2 * need;
        char *bigger = lg_resize(out->at, room);
        out->failed = bigger == NULL;
        if (out->failed) return;
        out->at = bigger;
        out->room = room;
    }
    va_start(args, format);
    vsnprintf(out->at + out->used, out->room - out->used, format, args);
    va_end(args);
    out->used += (size_t)n;
}

const char *lg_text_borrow(lg_text *out)
{
    if (!out->failed && out->at != NULL) return lg_borrow_owned_text(out->at);
    lg_free(out->at);
    return lg_borrow_text("%s", lg_self()->error_text);
}

/* ---- trace: one event a line, made and written one by one */

static const char *const category[] = {[LG_EVENT_OP] = "op", [LG_EVENT_NODE] = "backward", [LG_EVENT_SCOPE] = "scope"};

/* JSON is UTF-8; what users call their ops need not be. */
static json_t *text_of(const char *name)
{
    json_t *text = json_string(name);
    return text != NULL ? text : json_string("(no UTF-8)");
}

/* ["f32 [64, 3]", ...] */
static json_t *describe_tensors(const lg_event_tensor *t, int n)
{
    char shape[LG_SHAPE_TEXT];
    json_t *list = json_array();
    for (int i = 0; i < n; ++i)
        json_array_append_new(list, json_sprintf("%s %s", luge_dtype_name(t[i].dtype), lg_shape_text(shape, &t[i].shape)));
    return list;
}

static json_t *describe_event(const luge_profile *p, const lg_event *e)
{
    json_t *args = json_pack("{s:I}", "bytes", (json_int_t)e->bytes);
    if (e->kind == LG_EVENT_OP && args != NULL) {
        const lg_event_tensor *t = p->tensor + e->tensors;
        json_object_set_new(args, "inputs", describe_tensors(t, e->n_in));
        json_object_set_new(args, "outputs", describe_tensors(t + e->n_in, e->n_out));
    }
    return json_pack("{s:o, s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "name", text_of(e->name), "cat", category[e->kind], "ph", "X", "ts",
                     1e-3 * (double)e->start, "dur", 1e-3 * (double)(e->end - e->start), "pid", 1, "tid", 1, "args", args);
}

static json_t *describe_memory(const lg_event *e)
{
    return json_pack("{s:s, s:s, s:f, s:i, s:i, s:{s:I}}", "name", "memory in use", "ph", "C", "ts", 1e-3 * (double)e->end, "pid",
                     1, "tid", 1, "args", "bytes", (json_int_t)e->in_use);
}

static json_t *describe_thread(const luge_profile *p)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:{s:o}}", "name", "thread_name", "ph", "M", "pid", 1, "tid", 1, "args", "name",
                     text_of(p->path[0] != '\0' ? p->path : "luge"));
}

/* Takes over `value`, NULL if there was no memory to make it. */
static luge_status write_json(lg_writer *w, json_t *value, bool first)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    if (text == NULL) return lg_fail(LUGE_ERR_OUT_OF_MEMORY, "luge_profile_write_trace: out of host memory");
    if (!first) lg_writer_write(w, ",\n", 2);
    const luge_status status = lg_writer_write(w, text, strlen(text));
    free(text);
    return status;
}

luge_status luge_profile_write_trace(const luge_profile *p, const char *path)
{
    static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", tail[] = "\n]}\n";
    if (!lg_ok()) return lg_error();
    if (p == NULL || path == NULL)
        return lg_fail(LUGE_ERR_ARGUMENT, "luge_profile_write_trace: the %s is NULL", p == NULL ? "profile" : "path");
    lg_writer w;
    lg_writer_open(&w, path);
    luge_status status = lg_writer_write(&w, head, sizeof head - 1);
    if (status == LUGE_OK)
        status = write_json(&w, describe_thread(p), true);
    for (int64_t i = 0; i < p->n_events && status == LUGE_OK; ++i) {
        status = write_json(&w, describe_event(p, &p->event[i]), false);
        if (status == LUGE_OK && p->event[i].in_use >= 0) status = write_json(&w, describe_memory(&p->event[i]), false);
    }
    lg_writer_write(&w, tail, sizeof tail - 1);
    return lg_writer_end(&w);
}

/* ---- values */

int64_t lg_amp_time(const luge_profile *p)
{
    int64_t whole = 0;
    for (int64_t i = 0; i < p->n_rows; ++i) whole += p->row[i].time;
    return whole;
}

static json_t *describe_row(const lg_amp_row *r, int64_t whole)
{
    const double n = r->elements > 0 ? (double)r->elements : 1;
    return json_pack("{s:o, s:s, s:I, s:f, s:I, s:f, s:f, s:f}", "op", text_of(r->name), "dtype", luge_dtype_name(r->dtype), "calls",
                     (json_int_t)r->calls, "time", whole > 0 ? (double)r->time / (double)whole : 0, "elements",
                     (json_int_t)r->elements, "overflow", (double)r->overflow / n, "underflow", (double)r->underflow / n,
                     "largest", r->largest);
}

const char *luge_amp_report_json(const luge_profile *p)
{
    if (p == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_amp_report_json: the profile is NULL");
        return lg_borrow_text("%s", lg_self()->error_text);
    }
    json_t *ops = json_array(), *scales = json_array();
    for (int64_t i = 0; i < p->n_rows; ++i) json_array_append_new(ops, describe_row(&p->row[i], lg_amp_time(p)));
    for (int64_t i = 0; i < p->n_scales; ++i)
        json_array_append_new(scales, json_pack("{s:I, s:f}", "step", (json_int_t)p->scale[i].step, "scale", p->scale[i].scale));
    json_t *all = json_pack("{s:o, s:o, s:I, s:I, s:o}", "ops", ops, "first_nonfinite", text_of(p->first_bad), "steps",
                            (json_int_t)p->steps, "skipped", (json_int_t)p->skipped, "scales", scales);
    char *text = all != NULL ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    const char *borrowed = lg_borrow_text("%s", text != NULL ? text : "{}");
    free(text);
    return borrowed;
}
