/* Host memory of the library itself. Everything that is not tensor data comes from here: counted
 * (luge_live), failed on request (core/fault.h), sent through the user's allocator. */
#ifndef LG_CORE_ALLOC_H
#define LG_CORE_ALLOC_H

#include <luge/process.h>
#include <stddef.h>
#include <stdint.h>

/* NULL sets LUGE_ERR_OUT_OF_MEMORY on this thread. Contents are undefined / zero. */
void *lg_alloc(size_t bytes);
void *lg_alloc_zero(size_t bytes);
/* As realloc: on failure the old block stays. */
void *lg_resize(void *old, size_t bytes);
void lg_free(void *memory);           /* NULL is fine */
char *lg_copy_text(const char *text); /* strdup */

/* Memory straight from the system or the user's allocator, aligned; no error is set. For
 * backends, whose caching allocator reports failures itself. */
void *lg_system_alloc(size_t bytes, size_t alignment);
void lg_system_free(void *memory, size_t bytes);

/* What the library keeps between objects: stacks of threads, tables, caches. Always malloc's, so that
 * it does not stand in the way of luge_set_allocator; not part of luge_live; no error is set, but
 * failed on request like the rest. lg_private_resize is as realloc. */
void *lg_private_resize(void *old, size_t bytes);
void lg_private_free(void *memory);

/* Bytes asked of lg_alloc and of lg_system_alloc that have not been given back. */
int64_t lg_alloc_live_bytes(void);
int64_t lg_system_live_bytes(void);

/* Replaces the functions behind lg_alloc and lg_system_alloc (NULL: malloc and free). Nothing of them
 * may be alive. */
void lg_alloc_use(const luge_allocator *allocator);
/* Whether they are the user's. */
bool lg_alloc_is_foreign(void);

#endif
