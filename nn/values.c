/* Copies of values in a given dtype, layout and place. */
#include "nn/values.h"

#include <luge/ops.h>
#include <luge/scope.h>

#include "core/tensor.h"

luge_tensor *lg_values_like(const luge_tensor *like, luge_dtype dtype, luge_tensor *from)
{
    lg_device *device = like->storage->device;
    luge_tensor *made = lg_tensor_create(device, dtype, &like->shape, like->stride);
    if (made == NULL) return NULL;
    luge_scope scope = luge_scope_enter("");
    luge_no_grad_enter();
    if (from == NULL) {
        luge_zero_(made);
    } else {
        luge_copy_(made, luge_to(from, device->id, NULL));
    }
    if (luge_scope_exit(scope, NULL) == LUGE_OK) return made;
    luge_release(made);
    return NULL;
}
