/* What stands in for the NVIDIA driver, libcuda.so.1, where there is none: as much of it as the library asks
 * itself. LUGE_TEST_DRIVER is what cuInit answers (0), LUGE_TEST_DEVICES how many devices there are (2). Who
 * loads it leaves a trace in the file LUGE_TEST_TRACE. */
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGetCount(int *count);

static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? atoi(text) : otherwise;
}

__attribute__((constructor)) static void leave_trace(void)
{
    const char *path = getenv("LUGE_TEST_TRACE");
    FILE *f = path != NULL ? fopen(path, "w") : NULL;
    if (f != NULL) fclose(f);
}

int cuInit(unsigned flags)
{
    (void)flags;
    return number("LUGE_TEST_DRIVER", 0);
}

int cuDeviceGetCount(int *count)
{
    *count = number("LUGE_TEST_DEVICES", 2);
    return 0;
}
