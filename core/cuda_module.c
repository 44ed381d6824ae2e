/* Opens the CUDA module, or says precisely why there is no CUDA. Nothing here is linked with CUDA: a
 * program runs where there is no driver, and pays nothing before it first asks about a CUDA device. The
 * driver is asked first, since loading the module with its libraries takes 0.2 s. */
#define _GNU_SOURCE
#include "core/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/thread.h"
#include "cuda/module.h"

static const char file_name[] = "libluge_cuda.so";

enum { WHY_TEXT = 512 };
static char reason[WHY_TEXT]; /* written by the one thread that opens; constant afterwards */

LUGE_PRINTF_LIKE(1, 2) static int refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return 0;
}

/* ---- what the driver says; the numbers are those of cuda.h and driver_types.h */

enum {
    DRIVER_NOT_INITIALIZED = 3,
    DRIVER_STUB = 34,
    DRIVER_TOO_OLD = 35,
    DRIVER_NO_DEVICE = 100,
    DRIVER_NOT_READY = 802,
    DRIVER_MISMATCH = 803,
    DRIVER_NOT_FOR_THIS_CARD = 804
};

static int refuse_code(int code)
{
    switch (code) {
    case DRIVER_NOT_INITIALIZED:
        return refuse("CUDA was started in the parent of this process, and does not survive fork(): start it in one "
                      "process only");
    case DRIVER_STUB:
        return refuse("the driver found is the toolkit's stub, which is only for linking: take its folder out of "
                      "LD_LIBRARY_PATH (34)");
    case DRIVER_TOO_OLD: return refuse("the NVIDIA driver is too old for the CUDA that Luge was built with: update the "
                                       "driver (35)");
    case DRIVER_NO_DEVICE:
        return refuse("the NVIDIA driver finds no CUDA device: look at nvidia-smi and CUDA_VISIBLE_DEVICES (100)");
    case DRIVER_NOT_READY: return refuse("the GPU is not ready yet: is nvidia-fabricmanager running? (802)");
    case DRIVER_MISMATCH:
        return refuse("the NVIDIA driver in memory and its libraries are of different versions: restart the machine "
                      "(803)");
    case DRIVER_NOT_FOR_THIS_CARD: return refuse("the CUDA compatibility package does not support this GPU (804)");
    default: return refuse("the NVIDIA driver reports error %d", code);
    }
}

/* Whether the driver is there and has devices. */
static bool ask_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL) return refuse("there is no NVIDIA driver (libcuda.so.1) on this machine"), false;
    int (*init)(unsigned), (*get_count)(int *);
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&get_count = dlsym(driver, "cuDeviceGetCount");
    if (init == NULL || get_count == NULL)
        return refuse("libcuda.so.1 is no NVIDIA driver: it lacks %s", init == NULL ? "cuInit" : "cuDeviceGetCount"), false;
    int count = 0, code = init(0);
    if (code == 0) code = get_count(&count);
    if (code == 0 && count > 0) return true; /* stays open, as the module's runtime wants it */
    return refuse_code(code != 0 ? code : DRIVER_NO_DEVICE), false;
}

/* ---- the module */

/* Where it is: what LUGE_CUDA_MODULE says, else beside the library, else where the linker looks. */
static void *open_module(void)
{
    const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE; /* CUDA's own threads may outlive the library */
    const char *given = getenv("LUGE_CUDA_MODULE");
    if (given != NULL && given[0] != '\0') return dlopen(given, flags);
    Dl_info self;
    const char *slash = dladdr(&reason, &self) != 0 && self.dli_fname != NULL ? strrchr(self.dli_fname, '/') : NULL;
    if (slash != NULL) {
        char path[PATH_MAX];
        const int folder = (int)(slash - self.dli_fname);
        if (snprintf(path, sizeof path, "%.*s/%s", folder, self.dli_fname, file_name) < (int)sizeof path) {
            FILE *there = fopen(path, "rb");
            if (there != NULL) {
                fclose(there);
                return dlopen(path, flags);
            }
        }
    }
    return dlopen(file_name, flags);
}

static int refuse_module(void)
{
    const char *text = dlerror();
    if (text == NULL) text = "no reason given";
    const char *given = getenv("LUGE_CUDA_MODULE");
    const char *name = given != NULL && given[0] != '\0' ? given : file_name;
    if (strncmp(text, name, strlen(name)) == 0 && strstr(text, "No such file") != NULL)
        return refuse("there is no CUDA module %s: build Luge with CUDA, or name the file in LUGE_CUDA_MODULE", name);
    return refuse("the CUDA module cannot be loaded: %s; are cuBLAS and cuDNN installed?", text);
}

static luge_status fail(luge_status code, const char *text) { return lg_fail(code, "%s", text); }
static void say(luge_log_level level, const char *text) { lg_log(level, "%s", text); }

static const lg_module_host host = {.layout = LG_MODULE_LAYOUT,
                                    .self = lg_self,
                                    .fail = fail,
                                    .log = say,
                                    .alloc = lg_alloc,
                                    .alloc_zero = lg_alloc_zero,
                                    .resize = lg_resize,
                                    .free = lg_free,
                                    .copy_text = lg_copy_text,
                                    .private_resize = lg_private_resize,
                                    .private_free = lg_private_free,
                                    .memory_alloc = lg_memory_alloc,
                                    .memory_free = lg_memory_free,
                                    .memory_trim = lg_memory_trim,
                                    .count = lg_count,
                                    .fault = lg_fault,
                                    .fork_guard = lg_fork_guard,
                                    .fork_unguard = lg_fork_unguard,
                                    .allows_tf32 = lg_allows_tf32};
static lg_module_entry *entry;

static int start(const lg_backend **backend)
{
    if (!ask_driver()) return 0;
    void *module = open_module();
    if (module == NULL) return refuse_module();
    *(void **)&entry = dlsym(module, LG_MODULE_ENTRY);
    if (entry == NULL) return refuse("the CUDA module is no module of Luge: it lacks %s", LG_MODULE_ENTRY);
    const char *why = "it does not say why";
    *backend = entry(&host, &why);
    if (*backend == NULL) {
        entry = NULL;
        return refuse("the CUDA module cannot be used: %s", why);
    }
    const int count = (*backend)->count();
    if (count > 0) return count;
    lg_cuda_forget();
    return refuse_code(count < 0 ? -count : DRIVER_NO_DEVICE);
}

int lg_cuda_backend(const lg_backend **backend, const char **why)
{
    *backend = NULL;
    const int count = start(backend);
    *why = reason;
    return count;
}

void lg_cuda_forget(void)
{
    if (entry != NULL) entry(NULL, NULL);
    entry = NULL;
}
