/* cpu_conv */
#include "cpu/cpu.h"

int lg_cpu_conv2d(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_conv2d_backward_input(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_conv2d_backward_weight(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}
