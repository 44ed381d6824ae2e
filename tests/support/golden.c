#include "tests/support/golden.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "io/safetensors.h"
#include "tests/support/device.h"

struct golden {
    lg_safetensors *file;
};

golden *golden_open(const char *file)
{
    char path[512];
    snprintf(path, sizeof path, "%s/golden/%s", LUGE_TEST_DIR, file);
    golden *g = malloc(sizeof *g);
    assert_non_null(g);
    g->file = lg_safetensors_open(path);
    if (g->file == NULL) fail_msg("%s", luge_error_text());
    return g;
}

void golden_close(golden *g)
{
    if (g != NULL) lg_safetensors_close(g->file);
    free(g);
}

luge_tensor *golden_get(golden *g, const char *format, ...)
{
    char key[256];
    va_list args;
    va_start(args, format);
    vsnprintf(key, sizeof key, format, args);
    va_end(args);
    const int i = lg_safetensors_find(g->file, key);
    return i < 0 ? NULL : there(lg_borrow(lg_safetensors_read(g->file, i)));
}

void golden_each(golden *g, const char *prefix, void (*visit)(const char *key, void *user), void *user)
{
    for (int i = 0; i < lg_safetensors_count(g->file); ++i) {
        const char *name = lg_safetensors_entry(g->file, i)->name;
        if (strncmp(name, prefix, strlen(prefix)) == 0) visit(name, user);
    }
}

luge_tensor *golden_hashed(luge_shape shape, int64_t seed, double scale)
{
    luge_tensor *t = on_host(shape, LUGE_F64);
    double *v = luge_tensor_data_mut(t, LUGE_F64);
    assert_non_null(v);
    for (int64_t i = 0; i < luge_tensor_numel(t); ++i) {
        uint64_t z = ((uint64_t)i * 2654435761u + (uint64_t)seed * 40503u + 12345u) & 0xFFFFFFFFu;
        z = ((z ^ (z >> 15)) * 2246822519u) & 0xFFFFFFFFu;
        z = ((z ^ (z >> 13)) * 3266489917u) & 0xFFFFFFFFu;
        z = z ^ (z >> 16);
        v[i] = ((double)(z >> 8) / 16777216.0 * 2 - 1) * scale;
    }
    return there(t);
}
