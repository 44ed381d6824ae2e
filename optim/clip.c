/* Clipping of gradients. The norm stays on the device: scaling reads it there, and a step looks at it
 * where that costs nothing. */
#include <math.h>

#include "core/thread.h"
#include "optim/optim.h"

static bool check_limit(luge_optim *o, const char *what, const char *name, double limit)
{
    if (!lg_ok() || !lg_check_optim(o, what)) return false;
    if (limit > 0) return true;
    lg_fail(LUGE_ERR_ARGUMENT, "%s: %s must be more than 0, not %g", what, name, limit);
    return false;
}

static luge_status run(luge_optim *o, lg_device *device, lg_multi_kind kind, int n, double limit, luge_tensor *norm)
{
    const lg_multi work = {.kind = kind, .item = o->item, .count = n, .limit = limit, .norm = norm};
    return device->backend->multi(device, &work);
}

static void bump_versions(luge_optim *o, int n)
{
    for (int i = 0; i < n; ++i) lg_bump_version(o->item[i].grad);
}

luge_tensor *luge_clip_grad_norm(luge_optim *optim, double max_norm)
{
    static const char what[] = "luge_clip_grad_norm";
    if (!check_limit(optim, what, "max_norm", max_norm)) return NULL;
    lg_device *device;
    const int n = lg_optim_gather(optim, what, &device);
    if (n < 0) return NULL;
    if (n == 0) return luge_zeros(LUGE_SCALAR, &(luge_tensor_options){.dtype = LUGE_F64});

    const luge_shape scalar = LUGE_SCALAR;
    luge_tensor *norm = lg_borrow(lg_tensor_create(device, LUGE_F64, &scalar, NULL));
    if (norm == NULL) return NULL;
    if (run(optim, device, LG_MULTI_NORM, n, 0, norm) != LUGE_OK ||
        run(optim, device, LG_MULTI_CLIP_NORM, n, max_norm, norm) != LUGE_OK) {
        return NULL;
    }
    bump_versions(optim, n);
    luge_release(optim->norm);
    optim->norm = luge_retain(norm);
    return norm;
}

luge_status luge_clip_grad_value(luge_optim *optim, double limit)
{
    static const char what[] = "luge_clip_grad_value";
    if (!check_limit(optim, what, "limit", limit)) return lg_error();
    lg_device *device;
    const int n = lg_optim_gather(optim, what, &device);
    if (n <= 0) return lg_error();
    if (run(optim, device, LG_MULTI_CLIP_VALUE, n, limit, NULL) != LUGE_OK) return lg_error();
    bump_versions(optim, n);
    return LUGE_OK;
}
