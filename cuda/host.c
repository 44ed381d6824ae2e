/* The library's services under their usual names, for the code of the module: each goes through the table
 * that the library hands over when it opens the module. Sources of core that compute and keep nothing
 * (core/dtype.c, core/iter.c, core/shape.c) are compiled into the module a second time instead. */
#include "cuda/module.h"

#include <stdarg.h>
#include <stdio.h>
#include "cuda/cuda.h"

static const lg_module_host *host;

const lg_backend *luge_cuda_module(const lg_module_host *given, const char **why)
{
    static const lg_module_layout own = LG_MODULE_LAYOUT;
    if (given == NULL) {
        if (!lg_cuda_exiting()) host = NULL; /* else threads may still run */
        return NULL;
    }
    if (memcmp(&given->layout, &own, sizeof own) != 0) {
        *why = "it was built from other sources than the library: build both together";
        return NULL;
    }
    if (host != NULL && host != given) {
        *why = "another copy of Luge in this process uses it: link both users with the same libluge.so";
        return NULL;
    }
    host = given;
    return lg_cuda_table();
}

lg_thread *lg_self(void) { return host->self(); }

luge_status lg_fail(luge_status code, const char *format, ...)
{
    char text[LG_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return host->fail(code, text);
}

luge_status lg_op_fail(const lg_call *call, luge_status code, const char *format, ...)
{
    char text[LG_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lg_fail(code, "%s: %s", call->op->name, text);
}

void lg_log(luge_log_level level, const char *format, ...)
{
    char text[LG_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    host->log(level, text);
}

void *lg_alloc(size_t bytes) { return host->alloc(bytes); }
void *lg_alloc_zero(size_t bytes) { return host->alloc_zero(bytes); }
void *lg_resize(void *old, size_t bytes) { return host->resize(old, bytes); }
void lg_free(void *memory) { host->free(memory); }
char *lg_copy_text(const char *text) { return host->copy_text(text); }
void *lg_private_resize(void *old, size_t bytes) { return host->private_resize(old, bytes); }
void lg_private_free(void *memory) { host->private_free(memory); }
void *lg_memory_alloc(lg_memory *m, size_t bytes) { return host->memory_alloc(m, bytes); }
void lg_memory_free(lg_memory *m, void *memory, size_t bytes) { host->memory_free(m, memory, bytes); }
void lg_memory_trim(lg_memory *m) { host->memory_trim(m); }
void lg_count(lg_counter counter) { host->count(counter); }
bool lg_fault(lg_fault_kind kind) { return host->fault(kind); }
void lg_fork_guard(pthread_mutex_t *lock) { host->fork_guard(lock); }
void lg_fork_unguard(pthread_mutex_t *lock) { host->fork_unguard(lock); }
bool lg_allows_tf32(luge_tf32_uses use) { return host->allows_tf32(use); }
