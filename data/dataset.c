/* Datasets, of callbacks or of tensors: making and destroying them. How their samples get into a batch
 * is in data/sample.c. */
#include "data/dataset.h"

#include <inttypes.h>
#include <luge/autograd.h>
#include <luge/ops.h>
#include <luge/scope.h>
#include <string.h>

#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"

static luge_dataset *make_dataset(const luge_dataset_class *type)
{
    luge_dataset *d = lg_alloc_zero(sizeof *d);
    if (d == NULL) return NULL;
    d->type = *type;
    lg_count_object(1);
    return d;
}

static bool check_class(const luge_dataset_class *type)
{
    if (!lg_ok() || !lg_check_reserved(type->reserved, 4, "luge_dataset_create")) return false;
    if (type->get == NULL) lg_fail(LUGE_ERR_ARGUMENT, "luge_dataset_create: get is NULL");
    if (type->size < 0) lg_fail(LUGE_ERR_ARGUMENT, "luge_dataset_create: the size is %" PRId64, type->size);
    return lg_ok();
}

luge_dataset *luge_dataset_create(const luge_dataset_class *type)
{
    if (type == NULL) {
        if (lg_ok()) lg_fail(LUGE_ERR_ARGUMENT, "luge_dataset_create: the class is NULL");
        return NULL;
    }
    luge_dataset *d = check_class(type) ? make_dataset(type) : NULL;
    if (d == NULL && type->destroy != NULL) type->destroy(type->user);
    return d;
}

luge_dataset *lg_dataset_of_rows(const lg_rows rows[LG_FIELDS])
{
    const luge_dataset_class type = {.size = rows[LG_FIELD_INPUT].data->shape.dim[0]};
    luge_dataset *d = make_dataset(&type);
    if (d != NULL) {
        memcpy(d->rows, rows, sizeof d->rows);
    } else {
        for (int f = 0; f < LG_FIELDS; ++f) luge_release(rows[f].data);
    }
    return d;
}

/* The tensor's values in row-major order on the host, outside of any graph: the tensor itself where it
 * is so already. The caller owns a reference. */
static luge_tensor *host_rows(luge_tensor *t)
{
    luge_scope scope = luge_scope_enter("rows");
    luge_scope mode = luge_no_grad_enter();
    luge_tensor *rows = luge_retain(luge_contiguous(luge_to(luge_detach(t), luge_device_cpu(), NULL)));
    luge_scope_exit(mode, NULL);
    luge_scope_exit(scope, NULL);
    return rows;
}

luge_dataset *luge_dataset_tensors(luge_tensor *input, luge_tensor *target)
{
    if (!lg_check_tensor(input, "luge_dataset_tensors: input")) return NULL;
    const bool labelled = target == NULL || !lg_is_none(target);
    if (labelled && !lg_check_tensor(target, "luge_dataset_tensors: target")) return NULL;
    if (!lg_ok()) return NULL;
    if (input->shape.rank == 0 || (labelled && target->shape.rank == 0)) {
        lg_fail(LUGE_ERR_SHAPE, "luge_dataset_tensors: a scalar has no axis of samples");
        return NULL;
    }
    if (labelled && input->shape.dim[0] != target->shape.dim[0]) {
        lg_fail(LUGE_ERR_SHAPE, "luge_dataset_tensors: %" PRId64 " inputs but %" PRId64 " targets", input->shape.dim[0],
                target->shape.dim[0]);
        return NULL;
    }
    lg_rows rows[LG_FIELDS] = {{0}};
    rows[LG_FIELD_INPUT].data = host_rows(input);
    if (labelled) rows[LG_FIELD_TARGET].data = host_rows(target);
    if (lg_ok()) return lg_dataset_of_rows(rows);
    for (int f = 0; f < LG_FIELDS; ++f) luge_release(rows[f].data);
    return NULL;
}

int64_t luge_dataset_size(const luge_dataset *dataset) { return dataset == NULL ? 0 : dataset->type.size; }

void lg_dataset_free(luge_dataset *dataset)
{
    if (dataset == NULL) return;
    for (int f = 0; f < LG_FIELDS; ++f) luge_release(dataset->rows[f].data);
    if (dataset->type.destroy != NULL) dataset->type.destroy(dataset->type.user);
    lg_count_object(-1);
    lg_free(dataset);
}

void luge_dataset_destroy(luge_dataset *dataset)
{
    if (dataset != NULL && dataset->owned) {
        lg_log(LUGE_LOG_WARNING, "luge_dataset_destroy: left alone: the dataset is its loader's, which destroys it");
        return;
    }
    lg_dataset_free(dataset);
}
