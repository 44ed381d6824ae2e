/* Autocast: which ops it casts, regions inside regions, and the casts of parameters, of which a region makes one
 * each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>
#include "core/fault.h"
#include "core/thread.h"
#include "ops/call.h"
#include "tests/support/compare.h"
#include "tests/support/live.h"

static luge_tensor *total(luge_tensor *t) { return luge_sum(t, LUGE_ALL_AXES); }
static int64_t kernels(void) { return luge_op_count().kernels; }

/* ---- classes: torch.amp's "CUDA Ops that can autocast to float16" and "that can autocast to float32" of
 * PyTorch 2.9, as far as Luge has them. Other ops keep what they are given, and promote as they do outside of a
 * region: of "CUDA Ops that promote to the widest input type" (addcdiv, addcmul, atan2, bilinear, cross, dot,
 * grid_sample, index_put, scatter_add, tensordot) Luge has none. */

static const char *const to_low[] = {"matmul", "linear", "conv2d"};
static const char *const to_f32[] = {
    "exp", "log", "softplus", "reciprocal", "pow", "pow_scalar", /* pow, __pow__ */
    "square",                                                   /* which is pow(x, 2) there */
    "cumsum", "sum", "norm", "softmax", "log_softmax", "layer_norm",
    "cross_entropy", "mse_loss", "bce_with_logits", /* binary_cross_entropy_with_logits */
};

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; ++i)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static void every_op_has_pytorchs_class(void **state)
{
    (void)state;
    size_t low = 0, f32 = 0;
    for (int i = 0; i < LG_OP_COUNT; ++i) {
        const char *name = lg_ops[i]->name;
        luge_cast_class should = LUGE_CAST_KEEP;
        if (is_one_of(name, to_low, sizeof to_low / sizeof *to_low)) {
            should = LUGE_CAST_LOW;
            ++low;
        } else if (is_one_of(name, to_f32, sizeof to_f32 / sizeof *to_f32)) {
            should = LUGE_CAST_F32;
            ++f32;
        }
        if (lg_ops[i]->cast != should) fail_msg("%s: class %d, PyTorch has %d", name, (int)lg_ops[i]->cast, (int)should);
    }
    assert_int_equal(low, sizeof to_low / sizeof *to_low);
    assert_int_equal(f32, sizeof to_f32 / sizeof *to_f32);
}

static luge_tensor *sum_of_both(const luge_call *call) { return luge_add(call->inputs.items[0], call->inputs.items[1]); }

static void the_widest_counts_where_an_op_says_so(void **state)
{
    (void)state;
    static const luge_custom_op widest = {.name = "both", .autocast = LUGE_CAST_WIDEST, .forward = sum_of_both};
    LUGE_SCOPE("t");
    luge_tensor *x = luge_ones(LUGE_SHAPE(2), NULL), *h = luge_cast(x, LUGE_F16), *b = luge_cast(x, LUGE_BF16);
    luge_tensor *number = luge_ones(LUGE_SCALAR, NULL);
    LUGE_AUTOCAST(LUGE_F16);
    assert_int_equal(luge_tensor_dtype(luge_custom(&widest, LUGE_LIST(h, h), NULL)), LUGE_F16);
    assert_int_equal(luge_tensor_dtype(luge_custom(&widest, LUGE_LIST(h, b), NULL)), LUGE_F32);
    assert_int_equal(luge_tensor_dtype(luge_custom(&widest, LUGE_LIST(number, h), NULL)), LUGE_F32);
    /* Others promote as outside: a number does not make a tensor wider. */
    assert_int_equal(luge_tensor_dtype(luge_add(number, h)), LUGE_F16);
    assert_int_equal(luge_tensor_dtype(luge_cat(LUGE_LIST(h, x), 0)), LUGE_F32);
}

/* ---- the entries of the list of pitfalls */

static void AMP_01_a_first_use_without_a_graph(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = LEAF(LUGE_SHAPE(2, 2), 1, 2, 3, 4), *x = LUGE_TENSOR(LUGE_SHAPE(2), 1, 1), *loss;
    {
        LUGE_AUTOCAST(LUGE_F16);
        {
            LUGE_NO_GRAD();
            luge_matmul(w, x);
        }
        const int64_t before = kernels();
        loss = luge_matmul(w, x);
        assert_int_equal(kernels() - before, 2); /* x is cast and multiplied, w was cast */
        loss = total(loss);
    }
    assert_int_equal(luge_backward(loss), LUGE_OK);
    assert_values(luge_tensor_grad(w), 1, 1, 1, 1);
}

static luge_tensor *fails(luge_tensor *w, luge_tensor *x)
{
    LUGE_AUTOCAST(LUGE_F32);
    return luge_matmul(luge_matmul(w, x), x);
}

static void AMP_04_regions_inside_regions(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = luge_from_values(LUGE_SHAPE(1), (const double[]){1 + 0x1p-12}, 1);
    luge_tensor *w = LEAF(LUGE_SHAPE(1, 1), 1);
    for (int again = 0; again < 2; ++again) {
        luge_tensor *a, *b, *c;
        {
            LUGE_AUTOCAST(LUGE_F16);
            a = luge_matmul(w, x);
            {
                LUGE_AUTOCAST(LUGE_F32);
                b = luge_matmul(w, x);
            }
            assert_null(fails(w, luge_ones(LUGE_SHAPE(3), NULL)));
            assert_error(LUGE_ERR_SHAPE, "matmul");
            c = luge_matmul(w, x);
        }
        luge_tensor *d = luge_matmul(w, x);
        assert_values(a, 1);
        assert_values(b, 1.000244140625);
        assert_values(c, 1);
        assert_values(d, 1.000244140625);
        assert_int_equal(luge_tensor_dtype(d), LUGE_F32);
    }
}

static void AMP_05_gradients_have_the_parameters_dtype(void **state)
{
    (void)state;
    const luge_dtype lows[] = {LUGE_F16, LUGE_BF16};
    for (int i = 0; i < 2; ++i) {
        LUGE_SCOPE("t");
        luge_tensor *w = LEAF(LUGE_SHAPE(2, 2), 1, 2, 3, 4), *x = LUGE_TENSOR(LUGE_SHAPE(2), 1, 1);
        for (int pass = 1; pass <= 2; ++pass) {
            luge_tensor *h, *loss;
            {
                LUGE_AUTOCAST(lows[i]);
                h = luge_matmul(w, x);
                loss = total(luge_matmul(w, h)); /* w W x: used twice */
            }
            luge_tensor *gh = luge_grad(loss, h, &(luge_backward_options){.retain_graph = true});
            assert_int_equal(luge_tensor_dtype(gh), lows[i]);
            assert_int_equal(luge_backward(loss), LUGE_OK);
            assert_int_equal(luge_tensor_dtype(luge_tensor_grad(w)), LUGE_F32);
            /* h' + (1 1)W x': [[3, 7], [3, 7]] + [[4, 4], [6, 6]] */
            assert_values(luge_tensor_grad(w), 7 * pass, 11 * pass, 9 * pass, 13 * pass);
        }
    }
}

typedef struct other_thread {
    luge_tensor *w, *x;
    luge_dtype dtype;
    int64_t misses;
} other_thread;

static void *multiply(void *arg)
{
    other_thread *t = arg;
    LUGE_SCOPE("other");
    const int64_t before = kernels();
    t->dtype = luge_tensor_dtype(luge_matmul(t->w, t->x));
    t->misses = kernels() - before;
    return NULL;
}

static void AMP_07_regions_belong_to_their_thread(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = LEAF(LUGE_SHAPE(2, 2), 1, 2, 3, 4), *x = LUGE_TENSOR(LUGE_SHAPE(2), 1, 1), *h, *loss;
    {
        LUGE_AUTOCAST(LUGE_BF16);
        h = luge_matmul(w, x);
        luge_tensor *y = luge_matmul(w, h);
        assert_int_equal(luge_tensor_dtype(y), LUGE_BF16);
        loss = total(y);
        other_thread other = {.w = w, .x = x};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, multiply, &other), 0);
        pthread_join(thread, NULL);
        assert_int_equal(other.dtype, LUGE_F32);
        assert_int_equal(other.misses, 1);
    }
    {
        LUGE_AUTOCAST(LUGE_F16); /* not that of the forward pass: backward reads what was recorded */
        luge_tensor *gh = luge_grad(loss, h, &(luge_backward_options){.retain_graph = true});
        assert_int_equal(luge_tensor_dtype(gh), LUGE_BF16);
        assert_int_equal(luge_backward(loss), LUGE_OK);
    }
    assert_values(luge_tensor_grad(w), 7, 11, 9, 13);
}

/* ---- casts of parameters */

static void a_parameter_is_cast_once(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = LEAF(LUGE_SHAPE(2, 2), 1, 2, 3, 4), *x = luge_cast(luge_ones(LUGE_SHAPE(2, 2), NULL), LUGE_F16);
    int64_t before = kernels();
    luge_tensor *y = x;
    {
        LUGE_AUTOCAST(LUGE_F16);
        for (int i = 0; i < 3; ++i) y = luge_linear(y, w, LUGE_NONE);
        assert_int_equal(kernels() - before, 4);
        before = kernels();
        luge_linear(x, luge_transpose(w, 0, 1), LUGE_NONE);
        assert_int_equal(kernels() - before, 2); /* a view of a parameter is none */
        before = kernels();
        luge_linear(x, luge_cast(w, LUGE_BF16), LUGE_NONE);
        assert_int_equal(kernels() - before, 3); /* nor is what was made of one */
    }
    assert_int_equal(lg_self()->casts.count, 0);
    LUGE_AUTOCAST(LUGE_F16);
    before = kernels();
    luge_linear(x, w, LUGE_NONE);
    assert_int_equal(kernels() - before, 2); /* another region casts for itself */
    before = kernels();
    LUGE_AUTOCAST(LUGE_BF16);
    luge_linear(luge_cast(x, LUGE_BF16), w, LUGE_NONE);
    assert_int_equal(kernels() - before, 3);
    before = kernels();
    LUGE_AUTOCAST(LUGE_F16);
    luge_linear(x, w, LUGE_NONE);
    assert_int_equal(kernels() - before, 1);
}

/* The gradient of a weight that is used often: as with casts of its own, bit for bit. */
static luge_tensor *gradient_of_many_uses(luge_tensor *x, const luge_tensor *start, bool by_hand)
{
    luge_tensor *w = luge_requires_grad_(luge_clone((luge_tensor *)start));
    luge_tensor *loss;
    {
        LUGE_AUTOCAST(LUGE_BF16);
        luge_tensor *y = x;
        for (int i = 0; i < 4; ++i) y = luge_tanh(luge_linear(y, by_hand ? luge_cast(w, LUGE_BF16) : w, LUGE_NONE));
        loss = total(luge_square(y));
    }
    assert_int_equal(luge_backward(loss), LUGE_OK);
    return luge_tensor_grad(w);
}

static void gradients_have_the_bits_of_casts_by_hand(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_seed(5);
    luge_tensor *x = luge_randn(LUGE_SHAPE(7, 16), NULL), *w = luge_randn(LUGE_SHAPE(16, 16), NULL);
    assert_true(same_bits(gradient_of_many_uses(x, w, false), gradient_of_many_uses(x, w, true)));
}

static void a_step_inside_the_region_is_seen(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *net = luge_nn_linear(2, 1, &(luge_linear_options){.no_bias = true});
    luge_tensor *w = luge_module_param(net, "weight"), *x = LUGE_TENSOR(LUGE_SHAPE(1, 2), 1, 1);
    luge_optim *sgd = luge_sgd_create(net, 1, NULL);
    {
        LUGE_NO_GRAD();
        luge_copy_(w, LUGE_TENSOR(LUGE_SHAPE(1, 2), 1, 2));
    }
    {
        LUGE_AUTOCAST(LUGE_F16);
        luge_tensor *y = luge_linear(x, w, LUGE_NONE);
        assert_values(y, 3);
        assert_int_equal(luge_backward(total(y)), LUGE_OK);
        luge_optim_step(sgd);
        assert_values(luge_linear(x, w, LUGE_NONE), 1);
        {
            LUGE_NO_GRAD();
            luge_fill_(w, 4);
        }
        assert_values(luge_linear(x, w, LUGE_NONE), 8);
        assert_int_equal(lg_self()->casts.count, 1);
    }
    luge_optim_destroy(sgd);
    luge_module_destroy(net);
}

/* Writes into what it is given. */
static luge_tensor *greedy(const luge_call *call)
{
    luge_mul_scalar_(call->inputs.items[0], 3);
    return luge_clone(call->inputs.items[0]);
}

static void nobody_can_write_into_a_shared_cast(void **state)
{
    (void)state;
    static const luge_custom_op op = {.name = "greedy", .autocast = LUGE_CAST_LOW, .forward = greedy};
    LUGE_SCOPE("t");
    luge_tensor *w = LEAF(LUGE_SHAPE(1, 2), 1, 2), *x = LUGE_TENSOR(LUGE_SHAPE(1, 2), 1, 1);
    LUGE_AUTOCAST(LUGE_F16);
    luge_tensor *y = luge_linear(x, w, LUGE_NONE);
    assert_values(luge_custom(&op, LUGE_LIST(w), NULL), 3, 6);
    luge_tensor *own = luge_cast(w, LUGE_F16);
    luge_mul_scalar_(luge_detach(own), 5);
    assert_values(luge_linear(x, w, LUGE_NONE), 3);
    assert_int_equal(luge_backward(total(y)), LUGE_OK);
    assert_values(luge_tensor_grad(w), 1, 1);
}

static luge_tensor *twice(luge_list inputs, void *w) { return luge_linear(luge_linear(inputs.items[0], w, LUGE_NONE), w, LUGE_NONE); }

/* The second run may find casts where the first had none, and the other way round. */
static void checkpoints_do_not_mind(void **state)
{
    (void)state;
    for (int backward_inside = 0; backward_inside < 2; ++backward_inside) {
        LUGE_SCOPE("t");
        luge_seed(6);
        luge_tensor *w = luge_requires_grad_(luge_randn(LUGE_SHAPE(8, 8), NULL));
        luge_tensor *v = luge_requires_grad_(luge_clone(luge_detach(w)));
        luge_tensor *x = luge_randn(LUGE_SHAPE(3, 8), NULL), *plain, *loss;
        {
            LUGE_AUTOCAST(LUGE_F16);
            plain = total(twice(LUGE_LIST(luge_linear(x, v, LUGE_NONE)), v));
            loss = total(luge_checkpoint(twice, LUGE_LIST(luge_linear(x, w, LUGE_NONE)), w));
            if (backward_inside) luge_backward(loss);
        }
        if (!backward_inside) luge_backward(loss);
        luge_backward(plain);
        assert_true(luge_ok());
        assert_true(same_bits(luge_tensor_grad(w), luge_tensor_grad(v)));
    }
}

static void nothing_outlives_the_region(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = luge_ones(LUGE_SHAPE(1, 4), NULL);
    const luge_live_counts before = luge_live();
    {
        LUGE_SCOPE("region");
        LUGE_AUTOCAST(LUGE_F16);
        LUGE_NO_GRAD();
        /* Leaves that come and go: the table does not grow with them. */
        for (int i = 0; i < 1000; ++i) {
            LUGE_SCOPE("step");
            luge_linear(x, luge_requires_grad_(luge_ones(LUGE_SHAPE(1, 4), NULL)), LUGE_NONE);
        }
        assert_in_range(lg_self()->casts.count, 1, 16);
        luge_tensor *leaf[100];
        for (int i = 0; i < 100; ++i) leaf[i] = luge_requires_grad_(luge_full(LUGE_SHAPE(1, 4), i, NULL));
        const int64_t start = kernels();
        for (int pass = 0; pass < 3; ++pass)
            for (int i = 0; i < 100; ++i) assert_values(luge_linear(x, leaf[i], LUGE_NONE), 4 * i);
        assert_int_equal(kernels() - start, 300 + 300 + 100); /* products, casts of x, casts of leaves */
    }
    const luge_live_counts after = luge_live();
    assert_int_equal(after.tensors, before.tensors);
    assert_int_equal(after.storages, before.storages);
    assert_int_equal(after.host_bytes, before.host_bytes);
    assert_true(lg_self()->casts.frame == 0);
}

static void failing_allocations_leave_nothing(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *w = LEAF(LUGE_SHAPE(1, 2), 1, 2), *x = LUGE_TENSOR(LUGE_SHAPE(1, 2), 1, 1);
    for (int kind = LG_FAULT_HOST; kind <= LG_FAULT_DEVICE; ++kind) {
        bool hit = true;
        for (int64_t nth = 1; hit; ++nth) {
            const luge_live_counts before = luge_live();
            {
                LUGE_SCOPE("try");
                LUGE_AUTOCAST(LUGE_F16);
                lg_fault_set((lg_fault_kind)kind, nth);
                luge_tensor *y = luge_linear(luge_linear(x, w, LUGE_NONE), luge_reshape(w, LUGE_SHAPE(2, 1)), LUGE_NONE);
                y = luge_linear(y, w, LUGE_NONE);
                hit = lg_fault_hit((lg_fault_kind)kind);
                lg_fault_set((lg_fault_kind)kind, 0);
                assert_true(hit == (y == NULL));
                if (hit) assert_error(LUGE_ERR_OUT_OF_MEMORY, "t.try: ");
                assert_values(luge_linear(x, w, LUGE_NONE), 3);
            }
            const luge_live_counts after = luge_live();
            assert_int_equal(after.tensors, before.tensors);
            assert_int_equal(after.nodes, before.nodes);
            assert_int_equal(after.host_bytes, before.host_bytes);
            assert_true(hit || nth > 4);
        }
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, live_begin, live_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_op_has_pytorchs_class),
        TEST(the_widest_counts_where_an_op_says_so),
        TEST(AMP_01_a_first_use_without_a_graph),
        TEST(AMP_04_regions_inside_regions),
        TEST(AMP_05_gradients_have_the_parameters_dtype),
        TEST(AMP_07_regions_belong_to_their_thread),
        TEST(a_parameter_is_cast_once),
        TEST(gradients_have_the_bits_of_casts_by_hand),
        TEST(a_step_inside_the_region_is_seen),
        TEST(nobody_can_write_into_a_shared_cast),
        TEST(checkpoints_do_not_mind),
        TEST(nothing_outlives_the_region),
        TEST(failing_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
