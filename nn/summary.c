/* The table of a module's layers. It runs the module once, in eval mode, on zeros, and leaves modes,
 * random numbers and counts as they were. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "nn/module.h"
#include "nn/report.h"

/* What was seen of one module. */
typedef struct row {
    luge_module *module;
    char *path;
    luge_shape output;
    bool ran;
    double flops; /* of all its calls, children included */
} row;

typedef struct table {
    row *row; /* the tree, parents first */
    int count;
} table;

static int find_row(const table *t, const luge_module *m)
{
    for (int i = 0; i < t->count; ++i) {
        if (t->row[i].module == m) return i;
    }
    return -1;
}

static void note_output(luge_module *m, luge_tensor *output, double flops, void *user)
{
    table *t = user;
    const int i = find_row(t, m);
    if (i < 0) return; /* a module that forward brings along */
    t->row[i].output = output->shape;
    t->row[i].ran = true;
    t->row[i].flops += flops;
}

static luge_status list_modules(table *t, luge_module *root)
{
    for (luge_module *m = root; m != NULL; m = lg_module_next(root, m)) ++t->count;
    t->row = lg_alloc_zero((size_t)t->count * sizeof *t->row);
    if (t->row == NULL) return lg_error();
    int i = 0;
    for (luge_module *m = root; m != NULL; m = lg_module_next(root, m), ++i) {
        t->row[i].module = m;
        t->row[i].path = lg_module_path(root, m);
        if (t->row[i].path == NULL) return lg_error();
    }
    return LUGE_OK;
}

static void free_table(table *t)
{
    for (int i = 0; i < t->count && t->row != NULL; ++i) lg_free(t->row[i].path);
    lg_free(t->row);
}

/* ---- the run */

/* Zeros like the module's first parameter, or indices. */
static luge_tensor *make_input(luge_module *root, luge_shape shape, bool indices)
{
    luge_tensor_options like = {.dtype = indices ? LUGE_I64 : LUGE_F32};
    for (luge_module *m = root; m != NULL; m = lg_module_next(root, m)) {
        if (m->params.count == 0) continue;
        const luge_tensor *first = m->params.slot[0].tensor;
        like.device = first->storage->device->id;
        if (!indices) like.dtype = first->dtype;
        break;
    }
    return luge_zeros(shape, &like);
}

static void run_once(table *t, luge_module *root, luge_shape shape)
{
    lg_thread *self = lg_self();
    const uint64_t seed = self->seed, rng_offset = self->rng_offset;
    const double flops = self->flops;
    luge_scope scope = luge_scope_enter("luge_module_summary");
    luge_eval_enter(root);
    lg_forward_observe(note_output, t);
    luge_forward(root, make_input(root, shape, false));
    if (lg_error() == LUGE_ERR_DTYPE) { /* it looks something up */
        char text[LG_ERROR_TEXT];
        luge_error_take(text, sizeof text);
        luge_forward(root, make_input(root, shape, true));
        if (lg_error() == LUGE_ERR_DTYPE) { /* then the first reason is the better one */
            luge_error_clear();
            lg_fail_raw(LUGE_ERR_DTYPE, text);
        }
    }
    lg_forward_observe(NULL, NULL);
    luge_scope_exit(scope, NULL);
    self->flops = flops;
    self->seed = seed;
    self->rng_offset = rng_offset;
}

/* ---- the text */

/* Four digits or less and a unit: "1.18 M". */
static const char *short_number(char text[32], double value)
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P"};
    int unit = 0;
    for (; value >= 1000 && unit < 5; ++unit) value /= 1000;
    snprintf(text, 32, unit == 0 ? "%.0f%s" : "%.3g%s", value, units[unit]);
    return text;
}

/* What the module does beyond calling its children. */
static double own_flops(const table *t, int i)
{
    double flops = t->row[i].flops;
    for (int k = 0; k < t->row[i].module->n_children; ++k) {
        flops -= t->row[find_row(t, t->row[i].module->child[k])].flops;
    }
    return flops > 0 ? flops : 0;
}

static void add_row(lg_report *r, const table *t, int i, int width)
{
    const row *line = &t->row[i];
    const luge_module *m = line->module;
    int64_t params = 0;
    for (int k = 0; k < m->params.count; ++k) params += m->params.slot[k].tensor->numel;
    char shape[LG_SHAPE_TEXT], flops[32];
    lg_report_add(r, "%-*s  %-24s %-22s %12lld  %10s\n", width, line->path, m->type->name,
                  line->ran ? lg_shape_text(shape, &line->output) : "-", (long long)params,
                  line->ran ? short_number(flops, own_flops(t, i)) : "-");
}

static void add_totals(lg_report *r, const table *t, luge_module *root)
{
    lg_items items;
    if (lg_items_collect(&items, root, LG_PARAMS) != LUGE_OK) return;
    int64_t trainable = 0, frozen = 0;
    for (int i = 0; i < items.count; ++i) {
        const luge_tensor *p = items.item[i].tensor;
        if (items.item[i].first == i) *(p->requires_grad ? &trainable : &frozen) += p->numel;
    }
    lg_items_free(&items);
    char flops[32];
    lg_report_add(r, "%lld parameters, %lld of them trainable, %lld frozen; %s floating-point operations\n",
                  (long long)(trainable + frozen), (long long)trainable, (long long)frozen,
                  short_number(flops, t->row[0].flops));
}

static const char *make_report(const table *t, luge_module *root)
{
    lg_report report = {0};
    size_t longest = 4;
    for (int i = 0; i < t->count; ++i) {
        const size_t length = strlen(t->row[i].path);
        if (length > longest) longest = length;
    }
    const int width = longest < 60 ? (int)longest : 60;
    lg_report_add(&report, "%-*s  %-24s %-22s %12s  %10s\n", width, "name", "kind", "output", "parameters", "FLOPs");
    for (int i = 0; i < t->count; ++i) add_row(&report, t, i, width);
    add_totals(&report, t, root);
    if (!lg_ok()) lg_report_add(&report, "%s\n", lg_self()->error_text);
    return lg_report_end(&report);
}

const char *luge_module_summary(luge_module *module, luge_shape input)
{
    table t = {0};
    const char *text = NULL;
    if (lg_ok() && lg_check_module(module, "luge_module_summary") && list_modules(&t, module) == LUGE_OK) {
        run_once(&t, module, input);
        text = make_report(&t, module);
    }
    free_table(&t);
    return text != NULL ? text : lg_borrow_text("%s", lg_self()->error_text);
}
