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

luge_status lg_optim_clip_norm(luge_optim *o, const char *what, double max_norm, luge_tensor *norm)
{
    lg_device *device;
    const int n = lg_optim_gather(o, what, &device);
    if (n <= 0) return lg_error();
    if (run(o, device, LG_MULTI_NORM, n, 0, norm) != LUGE_OK) return lg_error();
    if (isfinite(max_norm)) {
        if (run(o, device, LG_MULTI_CLIP_NORM, n, max_norm, norm) != LUGE_OK) return lg_error();
        bump_versions(o, n);
        o->clipped = true;
    }
    luge_retain(norm);
    luge_release(o->norm);
    o->norm = norm;
    return LUGE_OK;
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
    return norm != NULL && lg_optim_clip_norm(optim, what, max_norm, norm) == LUGE_OK ? norm : NULL;
}

luge_status lg_optim_unscale(luge_optim *o, const char *what, double numerator, luge_tensor *scale, luge_tensor *found)
{
    lg_device *device;
    const int n = lg_optim_gather(o, what, &device);
    if (n <= 0) return lg_error();
    const lg_multi work = {.kind = LG_MULTI_UNSCALE, .item = o->item, .count = n, .limit = numerator, .scale = scale, .found = found};
    if (device->backend->multi(device, &work) != LUGE_OK) return lg_error();
    bump_versions(o, n);
    return LUGE_OK;
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
    optim->clipped = true;
    return LUGE_OK;
}
