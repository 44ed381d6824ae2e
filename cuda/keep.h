/* Tables of what a library has planned for a shape: descriptors, algorithms, engines. They are bounded, and
 * what was not used for longest goes first. */
#ifndef LG_CUDA_KEEP_H
#define LG_CUDA_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The entry for `key` in a table of `count` entries of `size` bytes. Each begins with when it was last used
 * (a uint64_t; 0: it is free), followed by its key, in which no byte is uninitialised. If the key is not
 * there (*found), the entry is the one to use for it. The search begins where the key's sum points and looks
 * at a few entries, so it is short, and the table need not be kept in order. */
static inline void *lg_keep_find(void *table, size_t count, size_t size, const void *key, size_t key_bytes, bool *found)
{
    enum { LOOKS = 16 };
    uint64_t sum = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < key_bytes; ++i) sum = (sum ^ ((const unsigned char *)key)[i]) * 0x100000001b3u;
    uint64_t *oldest = NULL;
    for (size_t i = 0; i < LOOKS; ++i) {
        uint64_t *entry = (void *)((char *)table + (sum + i) % count * size);
        *found = *entry != 0 && memcmp(entry + 1, key, key_bytes) == 0;
        if (*found) return entry;
        if (oldest == NULL || *entry < *oldest) oldest = entry;
    }
    return oldest;
}

#endif
