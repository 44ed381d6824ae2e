/* Starting the library, at the first use of a device. The only file that names backends. */
#include "core/device.h"
#include "core/process.h"
#include "core/services.h"
#include <pthread.h>
#include <stdatomic.h>

lg_services lg_service;

static atomic_bool started;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

luge_status lg_init(void)
{
    if (atomic_load_explicit(&started, memory_order_acquire)) return LUGE_OK;

    luge_status status = LUGE_OK;
    pthread_mutex_lock(&starting);
    if (!atomic_load_explicit(&started, memory_order_relaxed)) {
        lg_fork_guard(&starting);
        lg_register_services();
        lg_register_autograd();
        status = lg_device_add(lg_cpu_backend());
        if (status == LUGE_OK) atomic_store_explicit(&started, true, memory_order_release);
    }
    pthread_mutex_unlock(&starting);
    return status;
}
