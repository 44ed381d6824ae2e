/* The CPU's kernels: lg_cpu_<name> for every row of ops/ops.def that has one. cpu_backend.c makes the
 * table of them. */
#ifndef LG_CPU_KERNELS_H
#define LG_CPU_KERNELS_H

#include "core/op.h"

#define LG_OP(name, cpu) int lg_cpu_##name(const lg_call *call);
#include "ops/ops.def"
#undef LG_OP

#endif
