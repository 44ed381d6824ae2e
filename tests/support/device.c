#include "tests/support/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include "core/device.h"

bool on_cpu(void) { return lg_device_default().kind == LG_DEVICE_CPU; }

void cpu_only(void)
{
    if (!on_cpu()) skip();
}

luge_tensor *on_host(luge_shape shape, luge_dtype dtype)
{
    return luge_empty(shape, &(luge_tensor_options){.dtype = dtype, .device = luge_device_cpu()});
}

luge_tensor *there(luge_tensor *t)
{
    luge_tensor *moved = luge_to(t, (luge_device){0}, NULL);
    if (moved == NULL) fail_msg("%s", luge_error_text());
    return moved;
}

const void *data_of(luge_tensor *t, luge_dtype dtype)
{
    const void *data = luge_tensor_data(luge_contiguous(luge_to(t, luge_device_cpu(), NULL)), dtype);
    if (data == NULL) fail_msg("%s", luge_error_text());
    return data;
}

luge_tensor *noticed(luge_tensor *t)
{
    return luge_device_sync((luge_device){0}) == LUGE_OK ? t : NULL;
}
