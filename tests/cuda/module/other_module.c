/* A module of other sources: the real entry function, but for what it thinks structs look like. */
#include "cuda/module.h"

#undef LG_MODULE_LAYOUT
#define LG_MODULE_LAYOUT {.version = LG_MODULE_VERSION + 1}

#include "cuda/cuda.h"
#include "cuda/host.c"

const lg_backend *lg_cuda_table(void) { return NULL; }
bool lg_cuda_exiting(void) { return false; }
