/* The one place where C++ exceptions end; see onednn_guard.h. */
#include "cpu/onednn_guard.h"

int lg_onednn_guard(int (*fn)(void *data), void *data)
{
    try {
        return fn(data);
    } catch (...) {
        return LG_ONEDNN_THREW;
    }
}
