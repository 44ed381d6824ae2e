/* The process as a whole. */
#ifndef LG_CORE_PROCESS_H
#define LG_CORE_PROCESS_H

#include <luge/process.h>
#include <pthread.h>

/* Holds `lock` while the process forks, so that it is free, and what it guards whole, in the child.
 * Locks that are taken while another is held must be named after that one. */
void lg_fork_guard(pthread_mutex_t *lock);
/* Before such a lock goes away. */
void lg_fork_unguard(pthread_mutex_t *lock);

/* Whether the user allows TF32 for it (luge_set_tf32). */
bool lg_allows_tf32(luge_tf32_uses use);

#endif
