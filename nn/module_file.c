/* Saving and loading modules as safetensors. A tied parameter is stored once, under its first name;
 * it is loaded from whichever of its names the file has, the first of them that it has. */
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "io/safetensors.h"
#include "nn/module.h"
#include "nn/pattern.h"
#include "nn/report.h"
#include "nn/values.h"

/* ---- saving */

/* Bytes [begin, end) of its storage that a dense tensor covers. */
static void covered(const luge_tensor *t, size_t *begin, size_t *end)
{
    *begin = (size_t)t->offset * lg_element_size(t);
    *end = *begin + (size_t)t->numel * lg_element_size(t);
}

/* Two handles of the same memory would come back as two memories: the tie would be lost in silence. */
static luge_status check_overlap(const lg_items *items)
{
    for (int i = 0; i < items->count; ++i) {
        const luge_tensor *a = items->item[i].tensor;
        if (atomic_load_explicit(&a->storage->refs, memory_order_relaxed) == 1) continue;
        for (int j = 0; j < i; ++j) {
            const luge_tensor *b = items->item[j].tensor;
            if (a == b || a->storage != b->storage) continue;
            size_t a_begin, a_end, b_begin, b_end;
            covered(a, &a_begin, &a_end);
            covered(b, &b_begin, &b_end);
            if (a_begin >= b_end || b_begin >= a_end) continue;
            return lg_fail(LUGE_ERR_UNSUPPORTED,
                           "luge_module_save: %s and %s overlap in memory, which a file cannot say; make one of them a "
                           "luge_clone",
                           items->item[j].path, items->item[i].path);
        }
    }
    return LUGE_OK;
}

static bool check_path(const char *path, const char *what)
{
    if (path != NULL && path[0] != '\0') return true;
    lg_fail(LUGE_ERR_ARGUMENT, "%s: the path is %s", what, path == NULL ? "NULL" : "empty");
    return false;
}

luge_status luge_module_save(const luge_module *module, const char *path)
{
    static const char what[] = "luge_module_save";
    if (!lg_ok() || !lg_check_module(module, what)) return lg_error();
    if (!check_path(path, what)) return lg_error();
    lg_items items;
    if (lg_items_collect(&items, module, LG_PARAMS | LG_BUFFERS) != LUGE_OK) return lg_error();
    lg_st_tensor *tensors = lg_alloc((size_t)items.count * sizeof *tensors + 1);
    if (tensors != NULL && check_overlap(&items) == LUGE_OK) {
        for (int i = 0; i < items.count; ++i) {
            const lg_item *item = &items.item[i];
            tensors[i] = (lg_st_tensor){.name = item->path,
                                        .tensor = item->tensor,
                                        .alias_of = item->first != i ? items.item[item->first].path : NULL};
        }
        lg_safetensors_write(path, tensors, items.count);
    }
    lg_free(tensors);
    lg_items_free(&items);
    return lg_error();
}

/* ---- loading */

typedef struct loading {
    lg_safetensors *file;
    lg_items items;
    const luge_load_options *options;
    luge_load_result result;
    lg_report report;
    lg_changes changes;
    int *source;    /* of each first item: the file's entry to take, or -1 */
    bool *skipped;  /* of each first item: the user does not want it */
    bool skip_used; /* the pattern has matched something */
} loading;

static bool is_skipped(loading *l, const char *name, int rank)
{
    if (l->options->skip == NULL || !lg_pattern_match(l->options->skip, name, rank)) return false;
    l->skip_used = true;
    return true;
}

/* PyTorch before 0.4.1, and programs that follow it, write batch norms without their counter. */
static bool may_be_missing(const char *path)
{
    static const char counter[] = "num_batches_tracked";
    const char *dot = strrchr(path, '.');
    return strcmp(dot != NULL ? dot + 1 : path, counter) == 0;
}

/* Finds what to take for every item. */
static void match_items(loading *l)
{
    for (int i = 0; i < l->items.count; ++i) {
        const lg_item *item = &l->items.item[i];
        if (item->first == i) l->source[i] = -1, l->skipped[i] = false;
        if (is_skipped(l, item->path, item->tensor->shape.rank)) {
            l->skipped[item->first] = true;
        } else if (l->source[item->first] < 0) {
            l->source[item->first] = lg_safetensors_find(l->file, item->path);
        }
    }
}

static void compare_item(loading *l, int i)
{
    const lg_item *item = &l->items.item[i];
    if (item->first != i || l->skipped[i]) return;
    if (l->source[i] < 0) {
        if (may_be_missing(item->path)) return;
        ++l->result.missing;
        lg_report_add(&l->report, "missing in the file: %s\n", item->path);
        return;
    }
    const lg_st_entry *e = lg_safetensors_entry(l->file, l->source[i]);
    char mine[LG_SHAPE_TEXT], theirs[LG_SHAPE_TEXT];
    if (!lg_shape_equal(&e->shape, &item->tensor->shape)) {
        lg_report_add(&l->report, "other shape: %s is %s, in the file %s\n", item->path,
                      lg_shape_text(mine, &item->tensor->shape), lg_shape_text(theirs, &e->shape));
    } else if (!e->readable) {
        lg_report_add(&l->report, "other dtype: %s is %s in the file, which cannot be converted\n", item->path,
                      e->stored);
    } else {
        ++l->result.loaded;
        return;
    }
    ++l->result.mismatched;
    l->source[i] = -1;
}

static void compare(loading *l)
{
    match_items(l);
    for (int i = 0; i < l->items.count; ++i) compare_item(l, i);
    for (int i = 0; i < lg_safetensors_count(l->file); ++i) {
        const lg_st_entry *e = lg_safetensors_entry(l->file, i);
        if (lg_items_find(&l->items, e->name, i) >= 0 || is_skipped(l, e->name, e->shape.rank)) continue;
        ++l->result.unexpected;
        lg_report_add(&l->report, "not in the module: %s %s\n", e->name, luge_dtype_name(e->dtype));
    }
}

static luge_status check_strict(loading *l, const char *path)
{
    const luge_load_result *r = &l->result;
    if (!lg_ok()) return lg_error();
    if (l->options->skip != NULL && !l->skip_used) {
        return lg_fail(LUGE_ERR_ARGUMENT, "luge_module_load: nothing in the module or the file matches \"%s\" to skip",
                       l->options->skip);
    }
    if (l->options->partial || r->missing + r->unexpected + r->mismatched == 0) return LUGE_OK;
    return lg_fail(LUGE_ERR_FORMAT, "luge_module_load: %s does not fit, nothing was loaded:\n%s", path,
                   l->report.text != NULL ? l->report.text : "");
}

/* Reads what was matched, in the dtype and layout that the module has. */
static luge_status read_tensors(loading *l)
{
    for (int i = 0; i < l->items.count; ++i) {
        luge_tensor *handle = l->items.item[i].tensor;
        if (l->items.item[i].first != i || l->source[i] < 0 || l->skipped[i]) continue;
        luge_tensor *read = lg_safetensors_read(l->file, l->source[i]);
        if (read == NULL) return lg_error();
        luge_tensor *value = read;
        if (read->dtype != handle->dtype || !lg_on_host(handle->storage->device) || !lg_is_contiguous(handle)) {
            value = lg_values_like(handle, handle->dtype, read);
            luge_release(read);
        }
        if (value == NULL || lg_changes_add(&l->changes, handle, value, NULL) != LUGE_OK) return lg_error();
    }
    return LUGE_OK;
}

static luge_status load(loading *l, luge_module *module, const char *path)
{
    l->file = lg_safetensors_open(path);
    if (l->file == NULL || lg_items_collect(&l->items, module, LG_PARAMS | LG_BUFFERS) != LUGE_OK) return lg_error();
    const size_t count = (size_t)l->items.count;
    l->source = lg_alloc(count * sizeof *l->source + 1);
    l->skipped = lg_alloc(count * sizeof *l->skipped + 1);
    if (l->source == NULL || l->skipped == NULL) return lg_error();
    compare(l);
    return check_strict(l, path) == LUGE_OK ? read_tensors(l) : lg_error();
}

luge_status luge_module_load(luge_module *module, const char *path, const luge_load_options *options,
                             luge_load_result *result)
{
    static const char what[] = "luge_module_load";
    static const luge_load_options defaults = LUGE_DEFAULTS;
    if (result != NULL) *result = (luge_load_result){.text = ""};
    if (!lg_ok() || !lg_check_module(module, what)) return lg_error();
    loading l = {.options = options != NULL ? options : &defaults};
    if (!check_path(path, what)) return lg_error();
    if (!lg_check_reserved(l.options->reserved, 4, "luge_load_options")) return lg_error();
    if (lg_pattern_check(l.options->skip, what) != LUGE_OK) return lg_error();

    const luge_status status = lg_changes_end(&l.changes, load(&l, module, path));
    lg_safetensors_close(l.file);
    lg_items_free(&l.items);
    lg_free(l.source);
    lg_free(l.skipped);
    l.result.text = lg_report_end(&l.report);
    if (status != LUGE_OK) l.result.loaded = 0;
    if (result != NULL) *result = l.result;
    return status;
}
