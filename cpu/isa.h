/* Instruction sets. The files of cpu/simd/ are compiled once for each; kernels take theirs by
 * LG_ISA_PICK. Which one runs is decided once, by what the processor has or what the environment
 * variable LUGE_ISA (base, avx2, avx512) asks for. */
#ifndef LG_CPU_ISA_H
#define LG_CPU_ISA_H

#include <stdbool.h>

typedef enum lg_isa { LG_ISA_BASE, LG_ISA_AVX2, LG_ISA_AVX512, LG_ISA_COUNT } lg_isa;

/* The one in use. */
lg_isa lg_cpu_isa(void);
/* "avx2" */
const char *lg_isa_name(lg_isa isa);
/* Uses another one; false, and nothing changes, if the processor or the build lacks it. For tests, which
 * run nothing else meanwhile. */
bool lg_cpu_set_isa(lg_isa isa);
/* Whether the processor has a better one than is in use. Libraries, which choose for themselves, are then
 * left alone. */
bool lg_cpu_isa_is_lowered(void);

/* In cpu/simd/: the name of what a file defines for the instruction set it is compiled for. */
#define LG_ISA_JOIN_(name, isa) name##_##isa
#define LG_ISA_JOIN(name, isa) LG_ISA_JOIN_(name, isa)
#define LG_ISA_NAME(name) LG_ISA_JOIN(name, LG_ISA)

/* For users of such a constant: LG_ISA_DECLARE(const lg_maps, lg_maps); LG_ISA_PICK(lg_maps)->... */
#if defined(__x86_64__) || defined(_M_X64)
#define LG_ISA_DECLARE(type, name) extern type name##_base, name##_avx2, name##_avx512
#define LG_ISA_PICK(name)                               \
    (lg_cpu_isa() == LG_ISA_AVX512 ? &name##_avx512 : \
     lg_cpu_isa() == LG_ISA_AVX2   ? &name##_avx2   : \
                                     &name##_base)
#else
#define LG_ISA_DECLARE(type, name) extern type name##_base
#define LG_ISA_PICK(name) (&name##_base)
#endif

#endif
