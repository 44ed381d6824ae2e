/* The CPU backend: its memory, its table of kernels (from ops.def), and the choice of the instruction
 * set. core/init.c asks for it when the library starts. */
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include "core/alloc.h"
#include "core/thread.h"
#include "cpu/cpu.h"
#include "cpu/isa.h"

/* ---- instruction sets */

static lg_isa isa_in_use = LG_ISA_BASE, best_isa = LG_ISA_BASE;

lg_isa lg_cpu_isa(void) { return isa_in_use; }

const char *lg_isa_name(lg_isa isa)
{
    static const char *const names[LG_ISA_COUNT] = {"base", "avx2", "avx512"};
    return names[isa];
}

#if defined(__x86_64__)
/* Conversion of halves, which not every compiler can ask for by name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool has_isa(lg_isa isa)
{
    if (isa == LG_ISA_BASE) return true;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return false;
    return isa == LG_ISA_AVX2 || (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
}
#else
static bool has_isa(lg_isa isa) { return isa == LG_ISA_BASE; }
#endif

bool lg_cpu_set_isa(lg_isa isa)
{
    if (!has_isa(isa)) return false;
    isa_in_use = isa;
    if (isa > best_isa) best_isa = isa;
    return true;
}

bool lg_cpu_isa_is_lowered(void) { return isa_in_use < best_isa; }

/* The best there is, or what LUGE_ISA names. A name that is unknown or not there changes nothing. */
static void choose_isa(void)
{
    for (int isa = 0; isa < LG_ISA_COUNT; ++isa) lg_cpu_set_isa((lg_isa)isa);
    const char *wanted = getenv("LUGE_ISA");
    if (wanted == NULL) return;
    for (int isa = 0; isa < LG_ISA_COUNT; ++isa)
        if (strcmp(wanted, lg_isa_name((lg_isa)isa)) == 0 && lg_cpu_set_isa((lg_isa)isa)) return;
    lg_log(LUGE_LOG_WARNING, "LUGE_ISA is %s, which this processor does not have: using %s", wanted, lg_isa_name(isa_in_use));
}

/* ---- memory: the host's own, so every copy is done when it returns */

static int count(void) { return 1; }

static const char *why_not(int index) { return index == 0 ? NULL : "there is one CPU device, number 0"; }

enum { PAGE = 4096, CACHE_LINE = 64 };

static void *alloc(lg_device *device, size_t bytes)
{
    (void)device;
    return lg_system_alloc(bytes, CACHE_LINE);
}

static void release(lg_device *device, void *memory, size_t bytes)
{
    (void)device;
    lg_system_free(memory, bytes);
}

static luge_status copy(lg_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    if (bytes > 0) memcpy(to, from, bytes);
    return LUGE_OK;
}

static luge_status sync(lg_device *device)
{
    (void)device;
    return LUGE_OK;
}

/* ---- the table */

#define ENTRY_VIEW(name)
#define ENTRY_REF(name)
#define ENTRY_F32(name) [LG_OP_##name] = lg_cpu_##name,
#define ENTRY_ALL(name) [LG_OP_##name] = lg_cpu_##name,

static const lg_backend backend = {
    .name = "cpu",
    .kind = LG_DEVICE_CPU,
    .count = count,
    .why_not = why_not,
    .alloc = alloc,
    .free = release,
    .alloc_granularity = PAGE,
    .copy = copy,
    .to_host = copy,
    .from_host = copy,
    .sync = sync,
    .kernel = {
#define LG_OP(name, cpu, cuda) ENTRY_##cpu(name)
#include "ops/ops.def"
#undef LG_OP
    },
    .kernel_kind = {
#define LG_OP(name, cpu, cuda) [LG_OP_##name] = LG_KERNEL_##cpu,
#include "ops/ops.def"
#undef LG_OP
    },
    .multi = lg_cpu_multi,
};

const lg_backend *lg_cpu_backend(void)
{
    choose_isa();
    return &backend;
}
