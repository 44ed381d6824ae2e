/* Failure injection: the n-th request of a kind fails. For tests; costs one load when off. */
#ifndef LG_CORE_FAULT_H
#define LG_CORE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum lg_fault_kind {
    LG_FAULT_HOST,   /* lg_alloc and relatives */
    LG_FAULT_DEVICE, /* tensor memory */
    LG_FAULT_FILE,   /* opening, reading, writing, syncing, renaming, closing files */
    LG_FAULT_THREAD, /* starting a thread */
    LG_FAULT_COUNT
} lg_fault_kind;

/* True if this request must fail. Counts the request, unless switched off. */
bool lg_fault(lg_fault_kind kind);
/* Fail the nth request (1 is the next) of that kind, once; 0 switches off. Restarts the count. */
void lg_fault_set(lg_fault_kind kind, int64_t nth);
/* Requests since lg_fault_set. */
int64_t lg_fault_requests(lg_fault_kind kind);
/* Whether the failure set last has happened. */
bool lg_fault_hit(lg_fault_kind kind);

#endif
