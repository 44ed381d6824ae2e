/* cpu_matmul */
#include "cpu/cpu.h"

int lg_cpu_matmul(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_linear(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}
