/* cpu_pool */
#include "cpu/cpu.h"

int lg_cpu_max_pool2d(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_max_pool2d_backward(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_avg_pool2d(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_avg_pool2d_backward(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}
