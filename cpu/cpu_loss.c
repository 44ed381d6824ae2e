/* cpu_loss */
#include "cpu/cpu.h"

int lg_cpu_cross_entropy(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_cross_entropy_backward(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_mse_loss(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_mse_loss_backward(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_bce_with_logits(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}

int lg_cpu_bce_with_logits_backward(const lg_call *call)
{
    (void)call;
    return LG_DECLINED;
}
