/* Host memory: the only place that calls malloc or the user's allocator. Blocks of lg_alloc carry
 * their size in front, so that they can be counted and given back with it. */
#include "core/alloc.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/thread.h"

typedef struct header {
    alignas(16) size_t bytes; /* asked for, without the header */
} header;

static luge_allocator user; /* user.alloc NULL: malloc and free */
static atomic_int_least64_t live_bytes, system_bytes;

void lg_alloc_use(const luge_allocator *allocator)
{
    user = allocator ? *allocator : (luge_allocator){0};
}

bool lg_alloc_is_foreign(void)
{
    return user.alloc != NULL;
}

static void count(atomic_int_least64_t *counter, int64_t change)
{
    atomic_fetch_add_explicit(counter, change, memory_order_relaxed);
}

static void *fail(size_t bytes)
{
    const char *op = lg_self()->op;
    lg_fail(LUGE_ERR_OUT_OF_MEMORY, "%s%sout of host memory: %zu bytes asked for, %lld in use", op ? op : "",
            op ? ": " : "", bytes, (long long)lg_alloc_live_bytes());
    return NULL;
}

static void *finish(header *h, size_t bytes)
{
    h->bytes = bytes;
    count(&live_bytes, (int64_t)bytes);
    return h + 1;
}

/* Whether a block with its header can be asked for at all. */
static bool refused(size_t bytes)
{
    return bytes > PTRDIFF_MAX - sizeof(header) || lg_fault(LG_FAULT_HOST);
}

void *lg_alloc(size_t bytes)
{
    if (refused(bytes)) return fail(bytes);
    size_t all = bytes + sizeof(header);
    header *h = user.alloc ? user.alloc(all, alignof(header), user.user) : malloc(all);
    return h ? finish(h, bytes) : fail(bytes);
}

void *lg_alloc_zero(size_t bytes)
{
    void *memory = lg_alloc(bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void *lg_resize(void *old, size_t bytes)
{
    if (old == NULL) return lg_alloc(bytes);
    header *h = (header *)old - 1;
    size_t before = h->bytes;
    if (user.alloc) {
        void *fresh = lg_alloc(bytes);
        if (fresh == NULL) return NULL;
        memcpy(fresh, old, before < bytes ? before : bytes);
        lg_free(old);
        return fresh;
    }
    if (refused(bytes)) return fail(bytes);
    h = realloc(h, bytes + sizeof(header));
    if (h == NULL) return fail(bytes);
    count(&live_bytes, -(int64_t)before);
    return finish(h, bytes);
}

void lg_free(void *memory)
{
    if (memory == NULL) return;
    header *h = (header *)memory - 1;
    count(&live_bytes, -(int64_t)h->bytes);
    if (user.alloc)
        user.free(h, h->bytes + sizeof(header), user.user);
    else
        free(h);
}

char *lg_copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = lg_alloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

void *lg_system_alloc(size_t bytes, size_t alignment)
{
    void *memory = NULL;
    if (user.alloc)
        memory = user.alloc(bytes, alignment, user.user);
    else if (posix_memalign(&memory, alignment, bytes) != 0)
        memory = NULL;
    if (memory != NULL) count(&system_bytes, (int64_t)bytes);
    return memory;
}

void lg_system_free(void *memory, size_t bytes)
{
    if (memory == NULL) return;
    count(&system_bytes, -(int64_t)bytes);
    if (user.alloc)
        user.free(memory, bytes, user.user);
    else
        free(memory);
}

void *lg_private_resize(void *old, size_t bytes)
{
    return lg_fault(LG_FAULT_HOST) ? NULL : realloc(old, bytes);
}

void lg_private_free(void *memory)
{
    free(memory);
}

int64_t lg_alloc_live_bytes(void)
{
    return atomic_load_explicit(&live_bytes, memory_order_relaxed);
}

int64_t lg_system_live_bytes(void)
{
    return atomic_load_explicit(&system_bytes, memory_order_relaxed);
}
