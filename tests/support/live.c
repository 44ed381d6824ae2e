#include "tests/support/live.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the three above. */
#include <cmocka.h>
#include "core/fault.h"
#include "core/thread.h"

static luge_live_counts before;

int live_begin(void **state)
{
    (void)state;
    luge_release(lg_tensor_create(lg_device_get((luge_device){0}), LUGE_F32, &(luge_shape){0}, NULL));
    before = luge_live();
    return 0;
}

luge_live_counts live_now(void)
{
    luge_live_counts now = luge_live();
    now.tensors -= before.tensors;
    now.storages -= before.storages;
    now.nodes -= before.nodes;
    now.objects -= before.objects;
    now.host_bytes -= before.host_bytes;
    return now;
}

int live_end(void **state)
{
    (void)state;
    for (int kind = 0; kind < LG_FAULT_COUNT; ++kind) lg_fault_set((lg_fault_kind)kind, 0);
    const bool clean = luge_ok(), closed = lg_self()->n_frames == 0;
    lg_scope_close_all(lg_self());
    const luge_live_counts now = live_now();
    if (!clean) print_error("an error was left standing: %s\n", luge_error_text());
    luge_error_clear();
    if (now.tensors != 0 || now.storages != 0 || now.nodes != 0 || now.objects != 0 || now.host_bytes != 0)
        print_error("left behind: %d tensors, %d storages, %d nodes, %d objects, %d bytes\n", (int)now.tensors,
                    (int)now.storages, (int)now.nodes, (int)now.objects, (int)now.host_bytes);
    if (!closed) print_error("a scope was left open\n");
    return clean && closed && now.tensors == 0 && now.storages == 0 && now.nodes == 0 && now.objects == 0 && now.host_bytes == 0
               ? 0
               : -1;
}

void assert_error(luge_status code, const char *part)
{
    if (luge_error() != code || strstr(luge_error_text(), part) == NULL)
        fail_msg("wanted error %d with \"%s\", got %d: %s", (int)code, part, (int)luge_error(), luge_error_text());
    luge_error_clear();
}

void assert_elements(const luge_tensor *t, int count, const double *values)
{
    if (!luge_ok()) fail_msg("%s", luge_error_text());
    assert_non_null(t);
    assert_int_equal(luge_tensor_numel(t), count);
    double *has = malloc(sizeof(double) * (size_t)(count + 1));
    assert_non_null(has);
    assert_int_equal(luge_to_array(t, has, LUGE_F64, count), LUGE_OK);
    for (int i = 0; i < count; ++i) {
        if (has[i] == values[i] || (has[i] != has[i] && values[i] != values[i])) continue;
        const double is = has[i];
        free(has);
        fail_msg("element %d is %.9g, not %.9g", i, is, values[i]);
    }
    free(has);
}
