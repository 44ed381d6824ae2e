/* Running means. The weighted sum lies on the device of what is added, in f64, so that adding is a few
 * queued ops and nobody waits. */
#include <inttypes.h>
#include <luge/autograd.h>
#include <luge/data.h>
#include <luge/ops.h>
#include <luge/scope.h>
#include <math.h>

#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"

struct luge_meter {
    luge_tensor *sum;  /* [] f64; owns a reference; NULL until something is added */
    int64_t weight;
};

luge_meter *luge_meter_create(void)
{
    luge_meter *m = lg_ok() ? lg_alloc_zero(sizeof *m) : NULL;
    if (m != NULL) lg_count_object(1);
    return m;
}

static luge_status check_value(const luge_meter *meter, const luge_tensor *value, int64_t weight)
{
    if (!lg_ok()) return lg_error();
    if (meter == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "luge_meter_add: the meter is NULL");
    if (!lg_check_tensor(value, "luge_meter_add")) return lg_error();
    if (value->numel != 1) {
        char text[LG_SHAPE_TEXT];
        return lg_fail(LUGE_ERR_SHAPE, "luge_meter_add: takes one element, not %s: luge_mean makes one",
                       lg_shape_text(text, &value->shape));
    }
    if (!lg_is_float(value->dtype)) {
        return lg_fail(LUGE_ERR_DTYPE, "luge_meter_add: takes floats, not %s: luge_cast converts",
                       luge_dtype_name(value->dtype));
    }
    int64_t total;
    if (weight < 0 || __builtin_add_overflow(meter->weight, weight, &total)) {
        return lg_fail(LUGE_ERR_ARGUMENT, "luge_meter_add: a weight of %" PRId64, weight);
    }
    return LUGE_OK;
}

luge_status luge_meter_add(luge_meter *meter, luge_tensor *value, int64_t weight)
{
    if (check_value(meter, value, weight) != LUGE_OK || weight == 0) return lg_error();

    luge_scope scope = luge_scope_enter("meter");
    luge_no_grad_enter(); /* closes with the scope */
    luge_tensor *v = luge_cast(luge_reshape(value, LUGE_SCALAR), LUGE_F64);
    v = luge_mul_scalar(v, (double)weight);
    if (meter->sum != NULL) {
        luge_add_(meter->sum, v);
    } else {
        luge_assign(&meter->sum, v);
    }
    luge_scope_exit(scope, NULL);
    if (lg_ok()) meter->weight += weight;
    return lg_error();
}

double luge_meter_mean(luge_meter *meter)
{
    if (meter == NULL || meter->weight == 0) return NAN;
    return luge_item(meter->sum) / (double)meter->weight;
}

void luge_meter_reset(luge_meter *meter)
{
    if (meter == NULL || !lg_ok()) return;
    luge_release(meter->sum);
    meter->sum = NULL;
    meter->weight = 0;
}

void luge_meter_destroy(luge_meter *meter)
{
    if (meter == NULL) return;
    luge_release(meter->sum);
    lg_count_object(-1);
    lg_free(meter);
}
