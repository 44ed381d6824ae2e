/* The kernels of the CPU backend: lg_cpu_<op> for every op whose row in ops.def promises one. */
#ifndef LG_CPU_CPU_H
#define LG_CPU_CPU_H

#include "core/multi.h"
#include "core/op.h"

#define LG_CPU_VIEW(name)
#define LG_CPU_REF(name)
#define LG_CPU_F32(name) int lg_cpu_##name(const lg_call *call);
#define LG_CPU_ALL(name) int lg_cpu_##name(const lg_call *call);
#define LG_OP(name, cpu, cuda) LG_CPU_##cpu(name)
#include "ops/ops.def"
#undef LG_OP
#undef LG_CPU_VIEW
#undef LG_CPU_REF
#undef LG_CPU_F32
#undef LG_CPU_ALL

/* cpu_multi.c */
luge_status lg_cpu_multi(lg_device *device, const lg_multi *work);

#endif
