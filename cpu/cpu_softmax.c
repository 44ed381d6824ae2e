/* cpu_softmax */
#include "cpu/cpu.h"

int lg_cpu_softmax(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_softmax_backward(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_log_softmax(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_log_softmax_backward(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}
