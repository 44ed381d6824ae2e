/* cpu_embedding */
#include "cpu/cpu.h"

int lg_cpu_embedding(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_embedding_backward(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}
