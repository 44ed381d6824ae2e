/* Failure injection for tests: asked by everything that takes memory, touches files or starts threads. */
#include "core/fault.h"

#include <stdatomic.h>

static struct {
    atomic_int_least64_t nth, requests;
    atomic_bool hit;
} fault[LG_FAULT_COUNT];

bool lg_fault(lg_fault_kind kind)
{
    int64_t nth = atomic_load_explicit(&fault[kind].nth, memory_order_relaxed);
    if (nth == 0) return false;
    if (atomic_fetch_add_explicit(&fault[kind].requests, 1, memory_order_relaxed) + 1 != nth) return false;
    atomic_store_explicit(&fault[kind].hit, true, memory_order_relaxed);
    return true;
}

void lg_fault_set(lg_fault_kind kind, int64_t nth)
{
    atomic_store(&fault[kind].nth, 0);
    atomic_store(&fault[kind].requests, 0);
    atomic_store(&fault[kind].hit, false);
    atomic_store(&fault[kind].nth, nth);
}

int64_t lg_fault_requests(lg_fault_kind kind)
{
    return atomic_load(&fault[kind].requests);
}

bool lg_fault_hit(lg_fault_kind kind)
{
    return atomic_load(&fault[kind].hit);
}
