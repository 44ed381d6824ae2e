/* Tables of a profile for people: of ops, of scopes, and of values. Events become a tree of calls, equal ones
 * together, and the tree the tables. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "core/alloc.h"
#include "core/profile.h"
#include "train/profile_text.h"

/* Equal events of equal surroundings. */
typedef struct place {
    const char *name;
    lg_event_kind kind;
    int64_t parent, child, sibling; /* -1: none */
    int64_t calls, total, self, bytes;
} place;

typedef struct tree {
    place *at;
    int64_t count;
    int64_t *of_event;
} tree;

/* ---- from events to the tree */

static int64_t find_place(tree *t, int64_t parent, const lg_event *e)
{
    int64_t *link = &t->at[parent].child;
    while (*link >= 0 && (t->at[*link].kind != e->kind || strcmp(t->at[*link].name, e->name) != 0))
        link = &t->at[*link].sibling;
    if (*link < 0) {
        *link = t->count; /* there is a place for each event */
        t->at[t->count++] = (place){.name = e->name, .kind = e->kind, .parent = parent, .child = -1, .sibling = -1};
    }
    return *link;
}

static luge_status grow_tree(tree *t, const luge_profile *p)
{
    t->at = lg_alloc((size_t)(p->n_events + 1) * sizeof *t->at);
    t->of_event = lg_alloc((size_t)(p->n_events + 1) * sizeof *t->of_event);
    if (t->at == NULL || t->of_event == NULL) return lg_error();
    t->at[0] = (place){.name = p->path, .kind = LG_EVENT_SCOPE, .parent = -1, .child = -1, .sibling = -1};
    t->count = 1;
    for (int64_t i = 0; i < p->n_events; ++i) {
        const lg_event *e = &p->event[i];
        const int64_t at = find_place(t, e->parent < 0 ? 0 : t->of_event[e->parent], e);
        t->of_event[i] = at;
        ++t->at[at].calls;
        t->at[at].total += e->end - e->start;
        t->at[at].self += e->end - e->start - e->inside;
        t->at[at].bytes += e->bytes - e->bytes_inside;
    }
    return LUGE_OK;
}

static void fell_tree(tree *t)
{
    lg_free(t->at);
    lg_free(t->of_event);
}

/* ---- rows */

typedef struct row {
    char name[LG_ERROR_TEXT / 4];
    int64_t calls, total, self, bytes;
} row;

/* An op's row of the table of all ops. */
static void add_op(row *rows, int64_t *n, const place *p)
{
    char name[LG_SCOPE_NAME + 16];
    snprintf(name, sizeof name, "%s%s", p->name, p->kind == LG_EVENT_NODE ? " (backward)" : "");
    int64_t i = 0;
    while (i < *n && strcmp(rows[i].name, name) != 0) ++i;
    if (i == *n) {
        rows[(*n)++] = (row){.calls = 0};
        snprintf(rows[i].name, sizeof rows[i].name, "%s", name);
    }
    rows[i].calls += p->calls;
    rows[i].total += p->total;
    rows[i].self += p->self;
    rows[i].bytes += p->bytes;
}

/* "step.net.fc1"; what does not fit is cut off at the outer end. */
static void write_path(char *to, size_t size, const tree *t, int64_t at)
{
    char text[LG_ERROR_TEXT];
    size_t from = sizeof text - 1;
    text[from] = '\0';
    for (; at >= 0; at = t->at[at].parent) {
        const char *name = t->at[at].name;
        const size_t n = strlen(name), dot = text[from] != '\0' && n > 0;
        if (n + dot > from || sizeof text - 1 - from + n + dot >= size) break;
        if (dot) text[--from] = '.';
        from -= n;
        memcpy(text + from, name, n);
    }
    memcpy(to, text + from, sizeof text - from);
}

/* What the scopes themselves ran outside of ops is their self time. */
static void add_scope(row *rows, int64_t *n, const tree *t, int64_t at)
{
    const place *p = &t->at[at];
    row *r = &rows[(*n)++];
    *r = (row){.calls = p->calls, .total = p->total, .self = p->self, .bytes = p->bytes};
    write_path(r->name, sizeof r->name, t, at);
}

static int compare(int64_t a, int64_t b, const row *x, const row *y)
{
    return a != b ? (a < b ? 1 : -1) : strcmp(x->name, y->name);
}
static int by_self(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return compare(x->self, y->self, x, y);
}
static int by_total(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return compare(x->total, y->total, x, y);
}
static int by_memory(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return compare(x->bytes, y->bytes, x, y);
}

static void print_rows(lg_text *out, const char *title, row *rows, int64_t n, luge_profile_order order, int64_t whole)
{
    qsort(rows, (size_t)n, sizeof *rows, order == LUGE_BY_SELF_TIME ? by_self : order == LUGE_BY_TOTAL_TIME ? by_total : by_memory);
    lg_text_add(out, "%-44s %9s %12s %7s %12s %10s %12s\n", title, "calls", "self ms", "self %", "total ms", "us a call", "KiB");
    for (int64_t i = 0; i < n; ++i)
        lg_text_add(out, "%-44s %9" PRId64 " %12.3f %7.2f %12.3f %10.2f %12.1f\n", rows[i].name, rows[i].calls,
                    1e-6 * (double)rows[i].self, whole > 0 ? 100 * (double)rows[i].self / (double)whole : 0,
                    1e-6 * (double)rows[i].total, 1e-3 * (double)rows[i].total / (double)rows[i].calls,
                    (double)rows[i].bytes / 1024);
}

static luge_status print_tables(lg_text *out, const luge_profile *p, const tree *t, luge_profile_order order)
{
    row *rows = lg_alloc((size_t)t->count * sizeof *rows);
    if (rows == NULL) return lg_error();
    int64_t n = 0, whole = 0;
    for (int64_t i = 0; i < p->n_events; ++i) whole += p->event[i].parent < 0 ? p->event[i].end - p->event[i].start : 0;
    for (int64_t i = 1; i < t->count; ++i)
        if (t->at[i].kind != LG_EVENT_SCOPE) add_op(rows, &n, &t->at[i]);
    print_rows(out, "op", rows, n, order, whole);
    n = 0;
    for (int64_t i = 1; i < t->count; ++i)
        if (t->at[i].kind == LG_EVENT_SCOPE) add_scope(rows, &n, t, i);
    lg_text_add(out, "\n");
    print_rows(out, "scope", rows, n, order, whole);
    if (p->lost > 0) lg_text_add(out, "\n%" PRId64 " events are missing: there was no memory for them\n", p->lost);
    lg_free(rows);
    return LUGE_OK;
}

const char *luge_profile_table(const luge_profile *p, luge_profile_order order)
{
    static const char what[] = "luge_profile_table";
    if (p == NULL || order < LUGE_BY_SELF_TIME || order > LUGE_BY_MEMORY) {
        if (p == NULL)
            lg_fail(LUGE_ERR_ARGUMENT, "%s: the profile is NULL", what);
        else
            lg_fail(LUGE_ERR_ARGUMENT, "%s: %d is no luge_profile_order", what, (int)order);
        return lg_borrow_text("%s", lg_self()->error_text);
    }
    lg_text out = {0};
    tree t = {0};
    if (grow_tree(&t, p) == LUGE_OK || t.count > 0) print_tables(&out, p, &t, order);
    fell_tree(&t);
    return lg_text_borrow(&out);
}

/* ---- values */

static double share(int64_t part, int64_t whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

static void print_scales(lg_text *out, const luge_profile *p)
{
    if (p->steps == 0) return;
    lg_text_add(out, "\nscale of losses: %" PRId64 " steps, %" PRId64 " skipped;", p->steps, p->skipped);
    for (int64_t i = 0; i < p->n_scales; ++i)
        lg_text_add(out, "%s %g from step %" PRId64, i > 0 ? "," : "", p->scale[i].scale, p->scale[i].step);
    lg_text_add(out, "\n");
}

const char *luge_amp_report(const luge_profile *p)
{
    if (p == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_amp_report: the profile is NULL");
        return lg_borrow_text("%s", lg_self()->error_text);
    }
    if (!p->options.amp) return lg_borrow_text("no values were looked at: luge_profile_start was not given .amp\n");
    lg_text out = {0};
    const int64_t whole = lg_amp_time(p);
    lg_text_add(&out, "%-32s %5s %9s %7s %12s %12s %12s\n", "op", "dtype", "calls", "time %", "overflow %", "underflow %", "largest");
    for (int64_t i = 0; i < p->n_rows; ++i) {
        const lg_amp_row *r = &p->row[i];
        lg_text_add(&out, "%-32s %5s %9" PRId64 " %7.2f %12.4f %12.4f %12.4g\n", r->name, luge_dtype_name(r->dtype), r->calls,
                    share(r->time, whole), share(r->overflow, r->elements), share(r->underflow, r->elements), r->largest);
    }
    if (p->first_bad[0] != '\0') lg_text_add(&out, "\nthe first infinity or NaN: %s\n", p->first_bad);
    print_scales(&out, p);
    return lg_text_borrow(&out);
}
