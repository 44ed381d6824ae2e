/* cpu_norm */
#include "cpu/cpu.h"

int lg_cpu_batch_norm(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_batch_norm_backward(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_layer_norm(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_layer_norm_backward(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}
