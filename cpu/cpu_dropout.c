/* cpu_dropout */
#include "cpu/cpu.h"

int lg_cpu_dropout(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_dropout_backward(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}
