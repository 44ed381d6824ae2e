/* oneDNN's functions are C++ inside, and where memory runs out some of them throw. */
#ifndef LG_CPU_ONEDNN_GUARD_H
#define LG_CPU_ONEDNN_GUARD_H

#ifdef __cplusplus
extern "C" {
#endif

enum { LG_ONEDNN_THREW = -1 };

/* What fn(data) returns, or LG_ONEDNN_THREW if an exception came through it. */
int lg_onednn_guard(int (*fn)(void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
