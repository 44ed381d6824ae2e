/* Chosen gradients. */
#include "tests/support/train.h"

#include "core/tensor.h"

void set_grad(luge_tensor *leaf, luge_tensor *grad)
{
    luge_release(leaf->grad);
    leaf->grad = NULL;
    if (grad == NULL) return;
    LUGE_SCOPE("grad");
    leaf->grad = luge_retain(luge_to(luge_cast(grad, leaf->dtype), leaf->storage->device->id, NULL));
}

double at(luge_tensor *t, int64_t i)
{
    LUGE_SCOPE("at");
    LUGE_NO_GRAD();
    return luge_item(t->shape.rank == 0 ? t : luge_select(luge_reshape(t, LUGE_SHAPE(-1)), 0, i));
}
