/* The devices of the process: which there are, which is the default, why one cannot be used. Every
 * function that makes a tensor comes through lg_device_get. */
#include "core/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/process.h"
#include "core/services.h"
#include "core/thread.h"

enum { MAX_DEVICES = 17 }; /* the CPU and what one machine has of others */

/* Only ever added to, and each constant but for its own state, so that readers need no lock. */
static lg_device devices[MAX_DEVICES];
static atomic_int device_count;

/* Held while devices are added and opened. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

luge_status lg_device_add(const lg_backend *backend)
{
    lg_fork_guard(&lock); /* before the allocators' */
    const int first = atomic_load(&device_count);
    const int usable = backend->count();
    const int n = usable < MAX_DEVICES - first ? usable : MAX_DEVICES - first;
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

/* ---- the default: luge_set_default_device's, else LUGE_DEVICE's */

/* kind << 32 | index; UNSET: as LUGE_DEVICE says */
static const uint64_t UNSET = UINT64_MAX;
static _Atomic uint64_t default_device = UINT64_MAX;

static uint64_t pack_device(luge_device d)
{
    return (uint64_t)(uint32_t)d.kind << 32 | (uint32_t)d.index;
}
static luge_device unpack_device(uint64_t packed)
{
    return (luge_device){(int)(packed >> 32), (int)(uint32_t)packed};
}

#define DEVICE_NAMES "auto, cpu, cuda or cuda:<number>"

/* False for text that names none. */
static bool parse(const char *text, luge_device *d)
{
    *d = (luge_device){LG_DEVICE_CPU, 0};
    if (strcmp(text, "cpu") == 0) return true;
    if (strcmp(text, "auto") == 0) return *d = luge_device_best(), true;
    if (strncmp(text, "cuda", 4) != 0) return false;
    *d = (luge_device){LG_DEVICE_CUDA, 0};
    text += 4;
    if (text[0] == '\0') return true;
    if (text[0] != ':' || text[1] < '0' || text[1] > '9') return false;
    char *end;
    const long index = strtol(text + 1, &end, 10);
    d->index = index < MAX_DEVICES ? (int)index : MAX_DEVICES;
    return *end == '\0';
}

luge_status luge_device_parse(const char *text, luge_device *device)
{
    if (!lg_ok()) return lg_error();
    if (device == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "luge_device_parse: device is NULL");
    if (text == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "luge_device_parse: text is NULL");
    luge_device parsed;
    if (!parse(text, &parsed))
        return lg_fail(LUGE_ERR_ARGUMENT, "there is no device \"%s\": " DEVICE_NAMES, text);
    *device = parsed;
    return LUGE_OK;
}

/* What LUGE_DEVICE says; the CPU if it is not set. False for text that names no device. */
static bool wanted_device(luge_device *d)
{
    const char *text = getenv("LUGE_DEVICE");
    return parse(text != NULL && text[0] != '\0' ? text : "cpu", d);
}

luge_device lg_device_default(void)
{
    const uint64_t set = atomic_load_explicit(&default_device, memory_order_relaxed);
    if (set != UNSET) return unpack_device(set);
    luge_device wanted;
    if (!wanted_device(&wanted)) return (luge_device){LG_DEVICE_CPU, 0};
    /* Read once, so that it costs nothing later; luge_set_default_device may have come first. */
    uint64_t expected = UNSET;
    atomic_compare_exchange_strong(&default_device, &expected, pack_device(wanted));
    return wanted;
}

static luge_device resolve(luge_device id)
{
    return id.kind == LG_DEVICE_DEFAULT && id.index == 0 ? lg_device_default() : id;
}

/* Whether `id` stands for a default that LUGE_DEVICE names and nobody understands. */
static bool misnamed(luge_device id)
{
    luge_device wanted;
    return id.kind == LG_DEVICE_DEFAULT && id.index == 0 &&
           atomic_load_explicit(&default_device, memory_order_relaxed) == UNSET && !wanted_device(&wanted);
}

/* ---- CUDA's devices, known after the first question about one */

static atomic_bool asked_for_cuda;
static const char *why_no_cuda = "";

/* A process that CUDA was started in forks: its driver does not work in the child. */
static void mark_forked(void)
{
    const int n = atomic_load(&device_count);
    for (int i = 0; i < n; ++i)
        if (devices[i].backend->open != NULL) atomic_store(&devices[i].forked, 1);
}

static void find_cuda(void)
{
    if (atomic_load_explicit(&asked_for_cuda, memory_order_acquire)) return;
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&asked_for_cuda, memory_order_relaxed)) {
        const lg_backend *backend;
        if (lg_cuda_backend(&backend, &why_no_cuda) > 0) {
            if (lg_device_add(backend) != LUGE_OK) why_no_cuda = "there are too many devices";
            pthread_atfork(NULL, NULL, mark_forked);
        }
        atomic_store_explicit(&asked_for_cuda, true, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
}

static lg_device *look_up(luge_device id)
{
    lg_device *d = find_device(id);
    if (d != NULL || id.kind != LG_DEVICE_CUDA) return d;
    find_cuda();
    return find_device(id);
}

/* Why `id`, for which `d` was found, cannot be used; NULL if it can. */
static const char *why_not(luge_device id, const lg_device *d)
{
    static const char forked[] = "CUDA was started before this process was forked, and does not survive that: start it "
                                 "in the child only, or give the child a new program";
    if (d != NULL) return atomic_load_explicit(&d->forked, memory_order_relaxed) ? forked : NULL;
    switch (id.kind) {
    case LG_DEVICE_DEFAULT: return "the default device is {0}: it has no index";
    case LG_DEVICE_CPU: return "the CPU is one device, with index 0: use luge_device_cpu()";
    case LG_DEVICE_CUDA:
        if (find_device((luge_device){LG_DEVICE_CUDA, 0}) != NULL) return "there is no CUDA device with this number";
        return why_no_cuda;
    default: return "there is no such kind of device: use luge_device_cpu(), luge_device_cuda() or luge_device_best()";
    }
}

static const char bad_name[] = "LUGE_DEVICE must be " DEVICE_NAMES;

static const char *kind_name(int kind)
{
    static const char *const name[] = {"default", "cpu", "cuda"};
    return kind >= LG_DEVICE_DEFAULT && kind <= LG_DEVICE_CUDA ? name[kind] : "?";
}

/* ---- opening */

static luge_status open_device(lg_device *d)
{
    luge_status status = LUGE_OK;
    pthread_mutex_lock(&lock);
    const bool fresh = !atomic_load_explicit(&d->opened, memory_order_relaxed);
    if (fresh) {
        status = d->backend->open(d);
        if (status == LUGE_OK) {
            d->uploads = lg_memory_create_held(d, false);
            d->pinned = d->uploads != NULL ? lg_memory_create_held(d, true) : NULL;
            if (d->pinned == NULL) {
                status = lg_error();
                lg_memory_destroy(d->uploads);
                d->backend->close(d);
            }
        }
        if (status == LUGE_OK) atomic_store_explicit(&d->opened, 1, memory_order_release);
    }
    const char *note = fresh && status == LUGE_OK ? d->backend->note : NULL;
    pthread_mutex_unlock(&lock);
    if (note != NULL) lg_log(LUGE_LOG_WARNING, "%s:%d: %s", kind_name(d->id.kind), d->id.index, note);
    return status;
}

void lg_device_close_all(void)
{
    const int n = atomic_load(&device_count);
    for (int i = 0; i < n; ++i) {
        lg_device *d = &devices[i];
        if (!atomic_load(&d->opened) || atomic_load(&d->forked)) continue;
        d->backend->drain(d);
        lg_memory_trim(d->pinned);
        if (d->hooks.alloc == NULL) { /* what the user's functions need may be gone */
            lg_memory_trim(d->uploads);
            lg_memory_trim(d->memory);
        }
        d->backend->close(d);
    }
    lg_cuda_forget();
}

lg_device *lg_device_get(luge_device id)
{
    if (lg_init() != LUGE_OK) return NULL;
    if (misnamed(id)) {
        lg_fail(LUGE_ERR_DEVICE, "the environment variable %s, not \"%s\"", bad_name, getenv("LUGE_DEVICE"));
        return NULL;
    }
    const luge_device meant = resolve(id);
    lg_device *d = look_up(meant);
    const char *why = why_not(meant, d);
    if (why != NULL) {
        lg_fail(LUGE_ERR_DEVICE, "device %s:%d: %s", kind_name(meant.kind), meant.index, why);
        return NULL;
    }
    const bool ready = d->backend->open == NULL || atomic_load_explicit(&d->opened, memory_order_acquire);
    return ready || open_device(d) == LUGE_OK ? d : NULL;
}

/* The same without opening it and without an error: for questions. If the library cannot start, *why says
 * so. */
static lg_device *ask_device(luge_device id, const char **why)
{
    const bool ok = lg_ok();
    if (lg_init() != LUGE_OK) {
        *why = "Luge could not start: out of memory";
        if (ok) luge_error_clear();
        return NULL;
    }
    if (misnamed(id)) {
        *why = bad_name;
        return NULL;
    }
    const luge_device meant = resolve(id);
    lg_device *d = look_up(meant);
    *why = why_not(meant, d);
    if (*why != NULL) return NULL;
    *why = "";
    return d;
}

lg_memory *lg_pinned_memory(void)
{
    luge_device id = lg_device_default();
    if (id.kind == LG_DEVICE_CPU) id = luge_device_cuda(0);
    const char *why;
    lg_device *d = ask_device(id, &why);
    if (d == NULL || d->backend->open == NULL) d = lg_device_get(luge_device_cpu());
    else d = lg_device_get(id);
    if (d == NULL) return NULL;
    return d->pinned != NULL ? d->pinned : d->memory;
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

luge_device_counts luge_device_get_counts(luge_device device)
{
    luge_device_counts counts = {0};
    const char *why;
    lg_device *d = ask_device(device, &why);
    if (d != NULL && d->backend->counts != NULL && atomic_load(&d->opened)) d->backend->counts(d, &counts);
    return counts;
}

luge_status luge_cuda_set_stream(int index, void *stream)
{
    if (!lg_ok()) return lg_error();
    lg_device *d = lg_device_get(luge_device_cuda(index));
    if (d == NULL) return lg_error();
    if (d->backend->set_stream == NULL) return lg_fail(LUGE_ERR_UNSUPPORTED, "luge_cuda_set_stream: not on this device");
    return d->backend->set_stream(d, stream);
}

luge_status luge_device_sync(luge_device device)
{
    lg_device *d = lg_device_get(device);
    if (d != NULL) d->backend->sync(d); /* waits while an error stands, too */
    return lg_error();
}
