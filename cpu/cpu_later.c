#include "cpu/cpu.h"
#define D(name) int lg_cpu_##name(const lg_call *call) { (void)call; return LG_DECLINED; }
D(arange) D(uniform) D(normal) D(randint) D(randperm)

