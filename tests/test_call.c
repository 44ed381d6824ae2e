/* The call path of every op (ops/call.c): checks, autocast, promotion, results, counting, anomaly mode. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "core/fault.h"
#include "core/thread.h"
#include "ops/call.h"
#include "tests/support/compare.h"
#include "tests/support/live.h"

static luge_tensor *total(luge_tensor *t) { return luge_sum(t, LUGE_ALL_AXES); }

static luge_tensor *of_type(luge_dtype dtype, int rank)
{
    const luge_tensor_options o = {.dtype = dtype};
    return luge_ones(rank == 0 ? LUGE_SCALAR : LUGE_SHAPE(2), &o);
}

/* ---- check */

static void inputs_are_checked(void **state)
{
    (void)state;
    LUGE_SCOPE("check");
    luge_tensor *x = luge_ones(LUGE_SHAPE(2, 3), NULL);
    assert_null(luge_add(x, NULL));
    assert_error(LUGE_ERR_ARGUMENT, "check: add: input 1 is NULL");
    assert_null(luge_add(LUGE_NONE, x));
    assert_error(LUGE_ERR_ARGUMENT, "check: add: input 0 is LUGE_NONE");
    assert_null(luge_relu_(NULL));
    assert_error(LUGE_ERR_ARGUMENT, "check: relu: input 0 is NULL");
    assert_non_null(luge_linear(x, luge_ones(LUGE_SHAPE(4, 3), NULL), LUGE_NONE));
    assert_null(luge_linear(x, luge_ones(LUGE_SHAPE(4, 3), NULL), NULL));
    assert_error(LUGE_ERR_ARGUMENT, "is NULL");
    assert_null(luge_linear(x, LUGE_NONE, LUGE_NONE));
    assert_error(LUGE_ERR_ARGUMENT, "LUGE_NONE");
}

static void the_first_error_stands(void **state)
{
    (void)state;
    LUGE_SCOPE("net");
    luge_tensor *x = luge_ones(LUGE_SHAPE(2, 3), NULL);
    luge_tensor *y = luge_relu(luge_add(luge_matmul(x, x), x));
    assert_null(y);
    const luge_live_counts before = luge_live();
    assert_null(luge_add(x, x));
    assert_null(luge_add_(x, x));
    assert_null(luge_fill_(x, 3));
    const luge_live_counts after = luge_live();
    assert_int_equal(after.tensors, before.tensors);
    assert_error(LUGE_ERR_SHAPE, "net: matmul: ");
    assert_values(x, 1, 1, 1, 1, 1, 1);
}

static void a_failure_names_scope_and_op_and_leaves_nothing(void **state)
{
    (void)state;
    LUGE_SCOPE("step");
    LUGE_SCOPE("net");
    luge_tensor *x = luge_requires_grad_(luge_ones(LUGE_SHAPE(4), NULL));
    for (int kind = LG_FAULT_HOST; kind <= LG_FAULT_DEVICE; ++kind) {
        const luge_live_counts before = luge_live();
        for (int64_t nth = 1;; ++nth) {
            lg_fault_set((lg_fault_kind)kind, nth);
            luge_tensor *y = luge_mul(x, x);
            const bool hit = lg_fault_hit((lg_fault_kind)kind);
            lg_fault_set((lg_fault_kind)kind, 0);
            if (!hit) {
                assert_non_null(y);
                assert_true(nth > (kind == LG_FAULT_HOST ? 3 : 1));
                break;
            }
            assert_null(y);
            assert_error(LUGE_ERR_OUT_OF_MEMORY, "step.net: mul: ");
            const luge_live_counts after = luge_live();
            assert_int_equal(after.tensors, before.tensors);
            assert_int_equal(after.nodes, before.nodes);
            assert_int_equal(after.host_bytes, before.host_bytes);
        }
    }
}

static void an_in_place_op_that_cannot_record_writes_nothing(void **state)
{
    (void)state;
    LUGE_SCOPE("step");
    luge_tensor *w = LEAF(LUGE_SHAPE(2), 3, 4);
    for (int64_t nth = 1;; ++nth) {
        LUGE_SCOPE("try");
        luge_tensor *h = luge_add_scalar(w, 0);
        lg_fault_set(LG_FAULT_HOST, nth);
        luge_tensor *y = luge_mul_(h, w);
        const bool hit = lg_fault_hit(LG_FAULT_HOST);
        lg_fault_set(LG_FAULT_HOST, 0);
        luge_error_clear();
        if (!hit) {
            assert_ptr_equal(y, h);
            assert_values(h, 9, 16);
            assert_true(nth > 2);
            break;
        }
        assert_null(y);
        assert_values(h, 3, 4);
    }
}

/* ---- promotion: values of torch.result_type */

static void dtypes_promote_as_in_pytorch(void **state)
{
    (void)state;
    static const struct {
        luge_dtype a;
        int rank_a;
        luge_dtype b;
        int rank_b;
        luge_dtype result;
    } cases[] = {
        {LUGE_F32, 1, LUGE_F64, 1, LUGE_F64},   {LUGE_F16, 1, LUGE_BF16, 1, LUGE_F32}, {LUGE_I64, 1, LUGE_F16, 1, LUGE_F16},
        {LUGE_U8, 1, LUGE_I32, 1, LUGE_I32},    {LUGE_BOOL, 1, LUGE_U8, 1, LUGE_U8},   {LUGE_I32, 1, LUGE_I64, 1, LUGE_I64},
        {LUGE_F32, 1, LUGE_F64, 0, LUGE_F32},   {LUGE_F64, 0, LUGE_F16, 1, LUGE_F16},  {LUGE_I32, 1, LUGE_I64, 0, LUGE_I32},
        {LUGE_I64, 1, LUGE_F64, 0, LUGE_F64},   {LUGE_BOOL, 1, LUGE_I64, 0, LUGE_I64}, {LUGE_U8, 1, LUGE_F16, 0, LUGE_F16},
        {LUGE_F16, 1, LUGE_I64, 1, LUGE_F16},   {LUGE_F16, 1, LUGE_F64, 0, LUGE_F16},  {LUGE_BOOL, 1, LUGE_BOOL, 0, LUGE_BOOL},
        {LUGE_F32, 0, LUGE_F64, 0, LUGE_F64},   {LUGE_F16, 0, LUGE_I64, 1, LUGE_F16},  {LUGE_I64, 0, LUGE_U8, 1, LUGE_U8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        LUGE_SCOPE("promote");
        luge_tensor *a = of_type(cases[i].a, cases[i].rank_a), *b = of_type(cases[i].b, cases[i].rank_b);
        assert_int_equal(lg_result_type(2, (luge_tensor *[]){a, b}), cases[i].result);
        assert_int_equal(lg_result_type(2, (luge_tensor *[]){b, a}), cases[i].result);
        assert_int_equal(luge_tensor_dtype(luge_mul(a, b)), cases[i].result);
    }
    LUGE_SCOPE("more");
    assert_int_equal(luge_tensor_dtype(luge_div(of_type(LUGE_I64, 1), of_type(LUGE_I32, 1))), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_exp(of_type(LUGE_U8, 1))), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_exp(of_type(LUGE_F16, 1))), LUGE_F16);
    assert_values(luge_div(LUGE_TENSOR(LUGE_SHAPE(1), 7), luge_cast(LUGE_TENSOR(LUGE_SHAPE(1), 2), LUGE_I64)), 3.5);
}

/* ---- autocast */

static void autocast_follows_the_ops_classes(void **state)
{
    (void)state;
    const luge_dtype lows[] = {LUGE_F16, LUGE_BF16};
    for (int i = 0; i < 2; ++i) {
        LUGE_SCOPE("amp");
        luge_tensor *x = luge_ones(LUGE_SHAPE(2, 2), NULL), *d = luge_cast(x, LUGE_F64), *h = luge_cast(x, lows[i]);
        LUGE_AUTOCAST(lows[i]);
        assert_int_equal(luge_tensor_dtype(luge_matmul(x, x)), lows[i]);      /* LOW */
        assert_int_equal(luge_tensor_dtype(luge_exp(h)), LUGE_F32);           /* F32 */
        assert_int_equal(luge_tensor_dtype(luge_relu(h)), lows[i]);           /* KEEP */
        assert_int_equal(luge_tensor_dtype(luge_add(x, h)), LUGE_F32);        /* promoted as elsewhere */
        assert_int_equal(luge_tensor_dtype(luge_add(luge_ones(LUGE_SCALAR, NULL), h)), lows[i]);
        assert_int_equal(luge_tensor_dtype(luge_relu(x)), LUGE_F32);
        assert_int_equal(luge_tensor_dtype(luge_matmul(d, d)), LUGE_F64);     /* f64 is meant */
        {
            LUGE_AUTOCAST(LUGE_F32); /* off */
            assert_int_equal(luge_tensor_dtype(luge_matmul(x, x)), LUGE_F32);
        }
        assert_int_equal(luge_tensor_dtype(luge_matmul(x, x)), lows[i]);
    }
}

static void gradients_pass_autocast_back(void **state)
{
    (void)state;
    LUGE_SCOPE("amp");
    luge_tensor *w = LEAF(LUGE_SHAPE(2, 2), 1, 2, 3, 4), *x = LUGE_TENSOR(LUGE_SHAPE(1, 2), 1, 1);
    luge_tensor *loss;
    {
        LUGE_AUTOCAST(LUGE_F16);
        loss = total(luge_linear(x, w, LUGE_NONE));
        assert_int_equal(luge_backward(loss), LUGE_OK); /* inside the region: backward runs without it */
    }
    assert_int_equal(luge_tensor_dtype(luge_tensor_grad(w)), LUGE_F32);
    assert_values(luge_tensor_grad(w), 1, 1, 1, 1);
}

static void amp_01_no_grad_casts_do_not_cut_the_graph(void **state)
{
    (void)state;
    LUGE_SCOPE("amp01");
    luge_tensor *w = LEAF(LUGE_SHAPE(2, 2), 1, 2, 3, 4), *x = LUGE_TENSOR(LUGE_SHAPE(2, 1), 1, 1), *loss;
    {
        LUGE_AUTOCAST(LUGE_F16);
        {
            LUGE_NO_GRAD();
            luge_matmul(w, x);
        }
        loss = total(luge_matmul(w, x));
    }
    assert_int_equal(luge_backward(loss), LUGE_OK);
    assert_values(luge_tensor_grad(w), 1, 1, 1, 1);
}

static void kernels_for_f32_take_halves(void **state)
{
    (void)state;
    LUGE_SCOPE("halves");
    luge_seed(3);
    luge_tensor *a = luge_randn(LUGE_SHAPE(5, 7), NULL), *b = luge_randn(LUGE_SHAPE(7, 3), NULL);
    const luge_dtype halves[] = {LUGE_F16, LUGE_BF16};
    for (int i = 0; i < 2; ++i) {
        luge_tensor *ha = luge_cast(a, halves[i]), *hb = luge_cast(b, halves[i]);
        /* Rounded once, from sums in f32. */
        luge_tensor *want = luge_cast(luge_matmul(luge_cast(ha, LUGE_F32), luge_cast(hb, LUGE_F32)), halves[i]);
        luge_tensor *y = luge_matmul(ha, hb);
        assert_int_equal(luge_tensor_dtype(y), halves[i]);
        assert_true(same_bits(y, want));
        luge_tensor *turned = luge_matmul(luge_transpose(hb, 0, 1), luge_transpose(ha, 0, 1));
        assert_true(same_bits(luge_contiguous(luge_transpose(turned, 0, 1)), want));
    }
}

/* ---- results */

static void any_number_of_inputs(void **state)
{
    (void)state;
    LUGE_SCOPE("many");
    enum { MANY = 100 };
    luge_tensor *parts[MANY];
    luge_tensor *w = LEAF(LUGE_SHAPE(1), 2);
    for (int i = 0; i < MANY; ++i) parts[i] = luge_mul_scalar(w, i);
    luge_tensor *y = luge_cat((luge_list){parts, MANY}, 0);
    assert_int_equal(luge_tensor_size(y, 0), MANY);
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_values(luge_tensor_grad(w), MANY * (MANY - 1) / 2);
    parts[MANY / 2] = NULL;
    assert_null(luge_cat((luge_list){parts, MANY}, 0));
    assert_error(LUGE_ERR_ARGUMENT, "NULL");
}

static void ops_are_counted(void **state)
{
    (void)state;
    LUGE_SCOPE("count");
    luge_tensor *x = luge_ones(LUGE_SHAPE(2, 3), NULL);
    const luge_op_counts before = luge_op_count();
    luge_permute(x, LUGE_AXES(1, 0));
    luge_slice(x, 0, 0, 1);
    const luge_op_counts views = luge_op_count();
    assert_int_equal(views.views - before.views, 2);
    assert_int_equal(views.kernels, before.kernels);
    luge_add(x, x);
    luge_matmul(x, luge_transpose(x, 0, 1));
    const luge_op_counts after = luge_op_count();
    assert_int_equal(after.kernels - views.kernels, 2);
    assert_int_equal(after.references, before.references);
    lg_self()->flops = 0;
    luge_matmul(x, luge_transpose(x, 0, 1));
    assert_true(lg_self()->flops == 2 * 2 * 2 * 3);
}

static void empty_results_need_no_kernel(void **state)
{
    (void)state;
    LUGE_SCOPE("empty");
    luge_tensor *x = luge_requires_grad_(luge_empty(LUGE_SHAPE(0, 3), NULL));
    luge_tensor *y = luge_tanh(luge_mul(x, luge_ones(LUGE_SHAPE(3), NULL)));
    assert_int_equal(luge_tensor_numel(y), 0);
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_int_equal(luge_tensor_size(luge_tensor_grad(x), 1), 3);
}

/* ---- anomaly mode */

static void anomaly_mode_reports_the_first_bad_result(void **state)
{
    (void)state;
    LUGE_SCOPE("inside");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(3), 1, 0, 2);
    assert_non_null(luge_log(x)); /* -inf is fine elsewhere */
    LUGE_ANOMALY();
    assert_null(luge_log(x));
    assert_true(strstr(luge_error_text(), "+0x") != NULL); /* where the call was */
    assert_error(LUGE_ERR_NONFINITE, "inside: log: made -inf, [3] f32 (");
    assert_null(luge_sqrt(LUGE_TENSOR(LUGE_SHAPE(1), -1)));
    assert_error(LUGE_ERR_NONFINITE, "sqrt: made nan");
    luge_tensor *d = luge_cast(luge_full(LUGE_SHAPE(2, 2), 60000, NULL), LUGE_F64);
    assert_null(luge_mul_scalar(luge_cast(luge_transpose(d, 0, 1), LUGE_F16), 2));
    assert_error(LUGE_ERR_NONFINITE, "mul_scalar: made inf, [2, 2] f16");
    assert_non_null(luge_argmax(x, 0));
    /* Large values are no infinities, whatever their sum. */
    assert_non_null(luge_mul_scalar(luge_full(LUGE_SHAPE(64), 3e38, NULL), 1));
}

static void anomaly_mode_names_the_forward_op_of_a_bad_gradient(void **state)
{
    (void)state;
    LUGE_SCOPE("inside");
    luge_tensor *x = LEAF(LUGE_SHAPE(2), 0, 4);
    LUGE_ANOMALY();
    luge_tensor *y = luge_sqrt(x);
    assert_int_equal(luge_backward(total(y)), LUGE_ERR_NONFINITE);
    assert_error(LUGE_ERR_NONFINITE, "inside.backward.sqrt: the gradient of input 0: made inf, [2] f32; forward: inside: sqrt of [2] f32 (");
    assert_true(luge_is_none(luge_tensor_grad(x)));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(inputs_are_checked),
        TEST(the_first_error_stands),
        TEST(a_failure_names_scope_and_op_and_leaves_nothing),
        TEST(an_in_place_op_that_cannot_record_writes_nothing),
        TEST(dtypes_promote_as_in_pytorch),
        TEST(autocast_follows_the_ops_classes),
        TEST(gradients_pass_autocast_back),
        TEST(amp_01_no_grad_casts_do_not_cut_the_graph),
        TEST(kernels_for_f32_take_halves),
        TEST(any_number_of_inputs),
        TEST(ops_are_counted),
        TEST(empty_results_need_no_kernel),
        TEST(anomaly_mode_reports_the_first_bad_result),
        TEST(anomaly_mode_names_the_forward_op_of_a_bad_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
