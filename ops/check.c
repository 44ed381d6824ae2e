/* Checks that several specs make, and the layouts of images. */
#include "ops/check.h"
#include "ops/reference.h"
#include <luge/ops.h>

luge_status lg_need_float(const lg_call *call, int i, const char *what)
{
    luge_dtype d = call->in[i]->dtype;
    if (lg_is_float(d)) return LUGE_OK;
    return lg_op_fail(call, LUGE_ERR_DTYPE, "%s is %s, but must be of a float type", what, luge_dtype_name(d));
}

luge_status lg_need_same_dtype(const lg_call *call, int i, const char *what, int like, const char *like_what)
{
    const luge_tensor *t = call->in[i];
    if (t == NULL || t->dtype == call->in[like]->dtype) return LUGE_OK;
    return lg_op_fail(call, LUGE_ERR_DTYPE, "%s is %s but %s is %s; luge_cast one of them, or open an autocast region",
                      what, luge_dtype_name(t->dtype), like_what, luge_dtype_name(call->in[like]->dtype));
}

luge_status lg_need_vector(const lg_call *call, int i, const char *what, int64_t size)
{
    const luge_tensor *t = call->in[i];
    if (t == NULL || (t->shape.rank == 1 && t->shape.dim[0] == size)) return LUGE_OK;
    char text[LG_SHAPE_TEXT];
    return lg_op_fail(call, LUGE_ERR_SHAPE, "%s is %s, but must be [%lld]", what, lg_shape_text(text, &t->shape),
                      (long long)size);
}

luge_status lg_need_indices(const lg_call *call, int i, const char *what)
{
    luge_dtype d = call->in[i]->dtype;
    if (d == LUGE_I64 || d == LUGE_I32) return LUGE_OK;
    return lg_op_fail(call, LUGE_ERR_DTYPE, "%s is %s, but must be i64 or i32", what, luge_dtype_name(d));
}

luge_status lg_check_indices(const lg_call *call, int i, const char *what, int64_t size, const int64_t *other)
{
    const luge_tensor *t = call->in[i];
    if (!lg_on_host(t->storage->device)) return LUGE_OK;
    bool flat = lg_is_contiguous(t);
    for (int64_t k = 0; k < t->numel; ++k) {
        int64_t index = lg_get_index(t, flat ? k : lg_offset(t, k));
        if ((index >= 0 && index < size) || (other != NULL && index == *other)) continue;
        return lg_op_fail(call, LUGE_ERR_ARGUMENT, "%s %lld at position %lld is not in [0, %lld)", what,
                          (long long)index, (long long)k, (long long)size);
    }
    return LUGE_OK;
}

static bool is_channels_last(const luge_tensor *t)
{
    return t->shape.rank == 4 && !lg_is_contiguous(t) && lg_strides_are_channels_last(&t->shape, t->stride);
}

void lg_spec_image(lg_call *call, int i, const luge_shape *shape, const luge_tensor *like)
{
    if (is_channels_last(like))
        lg_spec_channels_last(call, i, like->dtype, shape);
    else
        lg_spec_contiguous(call, i, like->dtype, shape);
}

luge_tensor *lg_match_layout(luge_tensor *g, const luge_tensor *t)
{
    return is_channels_last(t) ? luge_channels_last(g) : luge_contiguous(g);
}
