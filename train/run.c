/* Files of training runs: safetensors, with a version and a checksum. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <luge/ops.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "io/safetensors.h"
#include "nn/report.h"
#include "train/run_items.h"

static const char version_name[] = "luge.version", checksum_name[] = "luge.checksum";
enum { VERSION = 1 };

static bool check_path(const char *path, const char *what)
{
    if (path != NULL && path[0] != '\0') return true;
    lg_fail(LUGE_ERR_ARGUMENT, "%s: the path is %s", what, path == NULL ? "NULL" : "empty");
    return false;
}

/* ---- the checksum: names and elements, in the order of names */

static luge_status add_to_checksum(uLong *crc, const char *name, luge_tensor *t)
{
    luge_scope scope = luge_scope_enter("");
    luge_no_grad_enter();
    const luge_tensor *rows = luge_contiguous(luge_to(t, luge_device_cpu(), NULL));
    if (rows != NULL) {
        *crc = crc32_z(*crc, (const Bytef *)name, strlen(name) + 1);
        if (rows->numel > 0) *crc = crc32_z(*crc, lg_data(rows), (size_t)rows->numel * lg_element_size(rows));
    }
    return luge_scope_exit(scope, NULL);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const lg_st_tensor *)a)->name, ((const lg_st_tensor *)b)->name);
}

/* ---- saving */

/* The older files move on: PATH.1 becomes PATH.2, ...; PATH stays until it is replaced. A failure here loses
 * nothing but an old file. */
static void keep_older(const char *path, int keep)
{
    const size_t room = strlen(path) + 24;
    char *from = lg_alloc(2 * room), *to = from + room;
    if (from == NULL) return;
    for (int i = keep - 1; i >= 1; --i) {
        snprintf(from, room, "%s.%d", path, i);
        snprintf(to, room, "%s.%d", path, i + 1);
        rename(from, to);
    }
    snprintf(to, room, "%s.1", path);
    if (keep > 0 && link(path, to) != 0 && errno == EEXIST && unlink(to) == 0 && link(path, to) != 0) errno = 0;
    lg_free(from);
}

static luge_tensor *number(int64_t value)
{
    luge_tensor *t = luge_empty(LUGE_SHAPE(1), &(luge_tensor_options){.dtype = LUGE_I64, .device = luge_device_cpu()});
    if (t != NULL) memcpy(lg_data(t), &value, sizeof value);
    return t;
}

/* Tensors of the file, with room for two more. */
static int gather(const lg_run_items *items, lg_st_tensor *tensors)
{
    int count = 0;
    for (int i = 0; i < items->count && lg_ok(); ++i) {
        luge_tensor *t = lg_run_get(&items->item[i]);
        if (t != NULL) tensors[count++] = (lg_st_tensor){.name = items->item[i].name, .tensor = t};
    }
    tensors[count++] = (lg_st_tensor){.name = version_name, .tensor = number(VERSION)};
    return count;
}

static void write_run(const lg_run_items *items, const char *path, int keep)
{
    lg_st_tensor *tensors = lg_alloc((size_t)(items->count + 2) * sizeof *tensors);
    if (tensors == NULL) return;
    int count = gather(items, tensors);
    uLong crc = crc32_z(0, NULL, 0);
    if (lg_ok()) qsort(tensors, (size_t)count, sizeof *tensors, by_name);
    for (int i = 0; i < count && lg_ok(); ++i) add_to_checksum(&crc, tensors[i].name, tensors[i].tensor);
    if (lg_ok()) tensors[count++] = (lg_st_tensor){.name = checksum_name, .tensor = number((int64_t)crc)};
    if (lg_ok()) keep_older(path, keep);
    if (lg_ok()) lg_safetensors_write(path, tensors, count);
    lg_free(tensors);
}

luge_status luge_run_save(const luge_run *run, const char *path)
{
    static const char what[] = "luge_run_save";
    lg_run_items items;
    if (!lg_ok() || lg_run_collect(&items, run, what) != LUGE_OK) return lg_error();
    if (check_path(path, what)) {
        luge_scope scope = luge_scope_enter("");
        write_run(&items, path, run->keep_last);
        luge_scope_exit(scope, NULL);
    }
    lg_run_items_free(&items);
    return lg_error();
}

/* ---- loading */

typedef struct loading {
    lg_safetensors *file;
    lg_run_items items;
    lg_report report;
    int differences;
} loading;

static bool is_own(const char *name)
{
    return strcmp(name, version_name) == 0 || strcmp(name, checksum_name) == 0;
}

static bool is_known(const loading *l, const char *name)
{
    for (int i = 0; i < l->items.count; ++i)
        if (strcmp(l->items.item[i].name, name) == 0) return true;
    return is_own(name);
}

static void compare(loading *l)
{
    for (int i = 0; i < l->items.count; ++i) {
        const lg_run_item *item = &l->items.item[i];
        const int at = lg_safetensors_find(l->file, item->name);
        char mine[LG_SHAPE_TEXT], theirs[LG_SHAPE_TEXT];
        if (at < 0) {
            if (lg_run_is_optional(item)) continue;
            lg_report_add(&l->report, "missing in the file: %s\n", item->name);
        } else {
            const lg_st_entry *e = lg_safetensors_entry(l->file, at);
            const luge_shape shape = lg_run_shape(item);
            if (lg_shape_equal(&e->shape, &shape) && e->readable) continue;
            lg_report_add(&l->report, "other shape: %s is %s, in the file %s %s\n", item->name, lg_shape_text(mine, &shape),
                          lg_shape_text(theirs, &e->shape), e->stored);
        }
        ++l->differences;
    }
    for (int i = 0; i < lg_safetensors_count(l->file); ++i) {
        const char *name = lg_safetensors_entry(l->file, i)->name;
        if (is_known(l, name)) continue;
        lg_report_add(&l->report, "not in the run: %s\n", name);
        ++l->differences;
    }
}

/* The number that is stored under a name of the file's own. */
static luge_status read_number(loading *l, const char *name, const char *path, int64_t *value)
{
    const int at = lg_safetensors_find(l->file, name);
    luge_tensor *t = at >= 0 ? lg_safetensors_read(l->file, at) : NULL;
    if (!lg_ok()) return lg_error();
    const bool good = t != NULL && t->dtype == LUGE_I64 && t->numel == 1;
    if (good) memcpy(value, lg_data(t), sizeof *value);
    luge_release(t);
    return good ? LUGE_OK : lg_fail(LUGE_ERR_FORMAT, "%s is no file of luge_run_save: it has no %s", path, name);
}

static luge_status check_version(loading *l, const char *path)
{
    int64_t version;
    if (read_number(l, version_name, path, &version) != LUGE_OK) return lg_error();
    if (version == VERSION) return LUGE_OK;
    return lg_fail(LUGE_ERR_FORMAT, "%s has version %lld of the format, this Luge reads %d", path, (long long)version, VERSION);
}

/* Reads everything, compares the checksum, and stages what is known. */
static luge_status read_all(loading *l, const char *path)
{
    int64_t expected;
    uLong crc = crc32_z(0, NULL, 0);
    if (read_number(l, checksum_name, path, &expected) != LUGE_OK) return lg_error();
    for (int i = 0; i < lg_safetensors_count(l->file) && lg_ok(); ++i) { /* sorted by name */
        const char *name = lg_safetensors_entry(l->file, i)->name;
        if (strcmp(name, checksum_name) == 0) continue;
        luge_tensor *value = lg_safetensors_read(l->file, i);
        if (value == NULL) break;
        add_to_checksum(&crc, name, value);
        for (int k = 0; k < l->items.count && lg_ok(); ++k)
            if (strcmp(l->items.item[k].name, name) == 0) lg_run_stage(&l->items.item[k], value);
        luge_release(value);
    }
    if (lg_ok() && (uLong)expected != crc)
        return lg_fail(LUGE_ERR_FORMAT, "%s is damaged: its checksum is %08lx, its contents have %08lx", path, (unsigned long)expected, crc);
    return lg_error();
}

static luge_status load(loading *l, const char *path, const char *what)
{
    l->file = lg_safetensors_open(path);
    if (l->file == NULL || check_version(l, path) != LUGE_OK) return lg_error();
    compare(l);
    luge_scope scope = luge_scope_enter("");
    if (l->differences > 0 && lg_ok())
        lg_fail(LUGE_ERR_FORMAT, "%s: %s does not fit in %d places, nothing was loaded:\n%s", what, path,
                l->differences, lg_report_end(&l->report));
    if (lg_ok() && read_all(l, path) == LUGE_OK) lg_run_commit(&l->items);
    lg_report_end(&l->report);
    return luge_scope_exit(scope, NULL);
}

static luge_status load_run(const luge_run *run, const char *path, const char *what)
{
    loading l = {0};
    if (!lg_ok() || lg_run_collect(&l.items, run, what) != LUGE_OK) return lg_error();
    if (check_path(path, what)) load(&l, path, what);
    lg_safetensors_close(l.file);
    lg_run_items_free(&l.items);
    return lg_error();
}

luge_status luge_run_load(const luge_run *run, const char *path)
{
    return load_run(run, path, "luge_run_load");
}

luge_status luge_run_resume(const luge_run *run, const char *path)
{
    static const char what[] = "luge_run_resume";
    struct stat info;
    lg_run_items items;
    if (!lg_ok() || !check_path(path, what)) return lg_error();
    if (stat(path, &info) == 0 || errno != ENOENT) return load_run(run, path, what);
    if (lg_run_collect(&items, run, what) == LUGE_OK) lg_run_items_free(&items); /* a wrong run is wrong at the first start, too */
    return lg_error();
}
