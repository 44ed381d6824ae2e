/* The devices of the process: which there are, which is the default, why one cannot be used. Every
 * function that makes a tensor comes through lg_device_get. */
#include "core/device.h"

#include "core/memory.h"
#include "core/services.h"
#include "core/thread.h"
#include <stdatomic.h>

/* Filled while the library starts and constant afterwards, so that readers need no lock. */
static lg_device devices[LG_MAX_MEMORIES];
static atomic_int device_count;

/* kind << 32 | index */
static _Atomic uint64_t default_device = (uint64_t)LG_DEVICE_CPU << 32;

static uint64_t pack_device(luge_device d)
{
    return (uint64_t)(uint32_t)d.kind << 32 | (uint32_t)d.index;
}
static luge_device unpack_device(uint64_t packed)
{
    return (luge_device){(int)(packed >> 32), (int)(uint32_t)packed};
}

luge_status lg_device_add(const lg_backend *backend)
{
    const int first = atomic_load(&device_count);
    const int usable = backend->count();
    const int n = usable < LG_MAX_MEMORIES - first ? usable : LG_MAX_MEMORIES - first;
    for (int i = 0; i < n; ++i) {
        lg_device *d = &devices[first + i];
        *d = (lg_device){.id = {backend->kind, i}, .backend = backend};
        d->memory = lg_memory_create(d);
        if (d->memory != NULL) continue;
        while (--i >= 0) lg_memory_destroy(devices[first + i].memory);
        return lg_error();
    }
    atomic_store_explicit(&device_count, first + n, memory_order_release);
    return LUGE_OK;
}

static lg_device *find_device(luge_device id)
{
    const int n = atomic_load_explicit(&device_count, memory_order_acquire);
    for (int i = 0; i < n; ++i)
        if (devices[i].id.kind == id.kind && devices[i].id.index == id.index) return &devices[i];
    return NULL;
}

luge_device lg_device_default(void)
{
    return unpack_device(atomic_load_explicit(&default_device, memory_order_relaxed));
}

static luge_device resolve(luge_device id)
{
    return id.kind == LG_DEVICE_DEFAULT && id.index == 0 ? lg_device_default() : id;
}

/* Why there is no such device. */
static const char *why_missing(luge_device id)
{
    switch (id.kind) {
    case LG_DEVICE_DEFAULT: return "the default device is {0}: it has no index";
    case LG_DEVICE_CPU: return "the CPU is one device, with index 0: use luge_device_cpu()";
    case LG_DEVICE_CUDA:
        if (find_device((luge_device){LG_DEVICE_CUDA, 0}) != NULL) return "there is no CUDA device with this number";
        return "this build of Luge has no CUDA module: use luge_device_cpu() or luge_device_best()";
    default: return "there is no such kind of device: use luge_device_cpu(), luge_device_cuda() or luge_device_best()";
    }
}

static const char *kind_name(int kind)
{
    static const char *const name[] = {"default", "cpu", "cuda"};
    return kind >= LG_DEVICE_DEFAULT && kind <= LG_DEVICE_CUDA ? name[kind] : "?";
}

lg_device *lg_device_get(luge_device id)
{
    if (lg_init() != LUGE_OK) return NULL;
    const luge_device meant = resolve(id);
    lg_device *d = find_device(meant);
    if (d == NULL) lg_fail(LUGE_ERR_DEVICE, "device %s:%d: %s", kind_name(meant.kind), meant.index, why_missing(meant));
    return d;
}

/* The same without an error: for questions. If the library cannot start, *why says so. */
static lg_device *ask_device(luge_device id, const char **why)
{
    const bool ok = lg_ok();
    if (lg_init() != LUGE_OK) {
        *why = "Luge could not start: out of memory";
        if (ok) luge_error_clear();
        return NULL;
    }
    const luge_device meant = resolve(id);
    lg_device *d = find_device(meant);
    *why = d != NULL ? "" : why_missing(meant);
    return d;
}

luge_device luge_device_cpu(void)
{
    return (luge_device){LG_DEVICE_CPU, 0};
}

luge_device luge_device_cuda(int index)
{
    return (luge_device){LG_DEVICE_CUDA, index};
}

luge_device luge_device_best(void)
{
    const luge_device gpu = luge_device_cuda(0);
    return luge_device_usable(gpu) ? gpu : luge_device_cpu();
}

bool luge_device_usable(luge_device device)
{
    const char *why;
    return ask_device(device, &why) != NULL;
}

const char *luge_device_why_not(luge_device device)
{
    const char *why;
    ask_device(device, &why);
    return why;
}

luge_status luge_set_default_device(luge_device device)
{
    if (!lg_ok()) return lg_error();
    const lg_device *d = lg_device_get(device);
    if (d == NULL) return lg_error();
    atomic_store_explicit(&default_device, pack_device(d->id), memory_order_relaxed);
    return LUGE_OK;
}

luge_status luge_device_sync(luge_device device)
{
    lg_device *d = lg_device_get(device);
    if (d != NULL) d->backend->sync(d); /* waits while an error stands, too */
    return lg_error();
}
