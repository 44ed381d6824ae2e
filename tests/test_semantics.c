/* What mixed precision, accumulation windows, recomputation, clipping and optimizers mean together: every
 * combination, on a net with a convolution, BatchNorm, dropout, weights used twice, settings by parameter and
 * a parameter that nobody uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "core/tensor.h"
#include "tests/support/compare.h"
#include "tests/support/device.h"
#include "tests/support/ops.h"

typedef enum precision { F32, BF16, F16_SCALED, PRECISIONS } precision;
typedef enum window { ONE, FOUR, SHORT, UNEQUAL, WINDOWS } window;
typedef enum clipping { NO_CLIP, CLIP_NORM, CLIP_VALUE, CLIPPINGS } clipping;
typedef enum rule { SGD, ADAMW, RULES } rule;
typedef enum overflow { NOWHERE, FIRST, MIDDLE, LAST, OVERFLOWS } overflow;
typedef enum recomputed { NOTHING, EVERY, SEGMENTS, NESTED, POLICIES } recomputed;

typedef struct combination {
    precision precision;
    window window;
    clipping clipping;
    rule rule;
    overflow overflow;
    recomputed recomputed;
} combination;

static const char *const words[][4] = {{"f32", "bf16", "f16 and scaler"},
                                       {"window 1", "window 4", "3 of 4", "unequal"},
                                       {"no clipping", "clipped norm", "clipped values"},
                                       {"SGD", "AdamW"},
                                       {"no overflow", "overflow first", "overflow in the middle", "overflow last"},
                                       {"nothing recomputed", "every child recomputed", "segments recomputed", "regions in regions"}};

static const char *text_of(const combination *c)
{
    static char text[160];
    snprintf(text, sizeof text, "%s, %s, %s, %s, %s, %s", words[0][c->precision], words[1][c->window], words[2][c->clipping],
             words[3][c->rule], words[4][c->overflow], words[5][c->recomputed]);
    return text;
}

/* ---- micro-batches */

enum { ITEMS = 12, SIDE = 6, CLASSES = 4, MOST = 4, LIMIT = 12 };

/* How many items each has; the window is how many make a step unless it is ended before. */
static const struct cut {
    int window, count, items[MOST];
} cuts[WINDOWS] = {{1, 1, {12}}, {4, 4, {3, 3, 3, 3}}, {4, 3, {4, 4, 4}}, {3, 3, {2, 7, 3}}};

/* Where there is one micro-batch, first, middle and last are the same: one of them is enough. */
static bool is_valid(const combination *c)
{
    return cuts[c->window].count > 1 || c->overflow == NOWHERE || c->overflow == FIRST;
}

static bool overflows_at(const combination *c, int micro)
{
    const int count = cuts[c->window].count;
    return (c->overflow == FIRST && micro == 0) || (c->overflow == MIDDLE && micro == count / 2) ||
           (c->overflow == LAST && micro == count - 1);
}

/* ---- the net */

/* Its child runs twice: the weights are tied. */
static void twice_build(luge_module *self, void *state)
{
    (void)state;
    luge_module_add(self, "shared", luge_nn_linear(8, 8, NULL));
    luge_module_add_param(self, "unused", luge_ones(LUGE_SHAPE(3), NULL));
}

static luge_tensor *twice_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)state;
    luge_module *shared = luge_module_child(self, "shared");
    return luge_forward(shared, luge_tanh(luge_forward(shared, x)));
}

static const luge_module_class twice_class = {.name = "Twice", .build = twice_build, .forward = twice_forward};

static luge_module *make_net(void)
{
    luge_module *features = luge_nn_sequential(luge_nn_conv2d(1, 4, 3, &(luge_conv2d_options){.no_bias = true}), luge_nn_batch_norm2d(4, NULL), luge_nn_relu(),
                                               luge_nn_dropout(0.2), luge_nn_flatten(), luge_nn_linear(4 * 16, 8, NULL));
    return luge_nn_sequential(features, luge_module_create(&twice_class, NULL), luge_nn_relu(), luge_nn_linear(8, CLASSES, NULL));
}

typedef struct training {
    luge_module *net;
    luge_optim *optim;
    luge_tensor *input, *target;
} training;

static training start(const combination *c)
{
    luge_seed(17);
    training t = {.net = make_net()};
    t.optim = c->rule == SGD ? luge_sgd_create(t.net, 0.5, &(luge_sgd_options){.momentum = 0.9})
                             : luge_adamw_create(t.net, 0.01, 0.1, &(luge_adam_options){.eps = 0.1});
    luge_module_set_checkpointing(t.net, &(luge_checkpointing){.every = c->recomputed == EVERY || c->recomputed == NESTED,
                                                               .sqrt = c->recomputed == SEGMENTS});
    if (c->recomputed == NESTED) luge_module_set_checkpointing(luge_module_child(t.net, "0"), &(luge_checkpointing){.every = 1});
    luge_optim_set_weight_decay(t.optim, "@vectors", 0);
    luge_optim_set_lr(t.optim, "3.*", 0.1);
    t.input = luge_randn(LUGE_SHAPE(ITEMS, 1, SIDE, SIDE), NULL);
    t.target = luge_randint(0, CLASSES, LUGE_SHAPE(ITEMS));
    luge_seed(99); /* dropout */
    assert_ok();
    return t;
}

static void finish(training *t)
{
    luge_optim_destroy(t->optim);
    luge_module_destroy(t->net);
}

static luge_tensor *loss_of(const training *t, const combination *c, int micro)
{
    static const luge_dtype low[] = {LUGE_F32, LUGE_BF16, LUGE_F16};
    const struct cut *cut = &cuts[c->window];
    int64_t from = 0;
    for (int i = 0; i < micro; ++i) from += cut->items[i];
    const int64_t to = from + cut->items[micro];
    LUGE_AUTOCAST(low[c->precision]);
    luge_tensor *logits = luge_forward(t->net, luge_slice(t->input, 0, from, to));
    luge_tensor *loss = luge_cross_entropy(logits, luge_slice(t->target, 0, from, to), NULL);
    return overflows_at(c, micro) ? luge_mul_scalar(loss, NAN) : loss;
}

/* ---- what is compared */

enum { NAMES = 64 };

/* Everything that a step may change: weights, and the optimizer's state. */
typedef struct snapshot {
    luge_tensor *tensor[NAMES];
    char name[NAMES][48];
    int count;
} snapshot;

static void add(snapshot *s, const char *name, const char *what, const luge_tensor *t)
{
    assert_true(s->count < NAMES);
    snprintf(s->name[s->count], sizeof s->name[0], "%s %s", name, what);
    s->tensor[s->count++] = luge_clone((luge_tensor *)t);
}

static void add_param(const char *name, luge_tensor *t, void *user) { add(user, name, "", t); }
static void add_state(const char *name, const char *what, luge_tensor *t, void *user) { add(user, name, what, t); }

static void add_buffer(const char *name, luge_tensor *t, void *user) { add(user, name, "", t); }

static snapshot snapshot_of(const training *t)
{
    LUGE_NO_GRAD();
    snapshot s = {.count = 0};
    luge_module_each_param(t->net, add_param, &s);
    luge_optim_each_state(t->optim, add_state, &s);
    assert_ok();
    return s;
}

static snapshot buffers_of(const training *t)
{
    snapshot s = {.count = 0};
    luge_module_each_buffer(t->net, add_buffer, &s);
    assert_ok();
    return s;
}

/* bound 0: the same bits. */
static void assert_alike(const snapshot *a, const snapshot *b, double bound, const combination *c)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; ++i) {
        assert_string_equal(a->name[i], b->name[i]);
        if (bound == 0 && same_bits(a->tensor[i], b->tensor[i])) continue;
        const double error = relative_error(a->tensor[i], b->tensor[i]);
        if (bound > 0 && error <= bound) continue;
        fail_msg("%s: %s is off by %.3g, allowed is %.3g", text_of(c), a->name[i], error, bound);
    }
}

/* ---- the ways to one step */

/* By the window. Returns what its last call did. */
static luge_status by_window(training *t, const combination *c, bool *skipped)
{
    const struct cut *cut = &cuts[c->window];
    luge_scaler *scaler = c->precision == F16_SCALED ? luge_scaler_create(&(luge_scaler_options){.init_scale = 1024}) : NULL;
    luge_accum *accum = luge_accum_create(t->optim, cut->window, &(luge_accum_options){.scaler = scaler,
                                          .clip_norm = c->clipping == CLIP_NORM ? 0.1 : 0,
                                          .clip_value = c->clipping == CLIP_VALUE ? 0.01 : 0});
    luge_status status = LUGE_OK;
    for (int i = 0; i < cut->count && status == LUGE_OK; ++i) {
        LUGE_SCOPE("micro");
        status = luge_accum_backward(accum, loss_of(t, c, i), cut->items[i]);
    }
    if (status == LUGE_OK) status = luge_accum_flush(accum);
    if (status == LUGE_OK && !on_cpu()) status = luge_device_sync((luge_device){0});
    *skipped = scaler != NULL && luge_scaler_skipped(scaler, t->optim);
    if (scaler != NULL) assert_near(luge_scaler_value(scaler), c->overflow == NOWHERE ? 1024 : 512, 0);
    assert_int_equal(luge_accum_pending(accum), 0);
    luge_accum_destroy(accum);
    luge_scaler_destroy(scaler);
    return status;
}

/* By hand: the mean over all items as the sum of the micro-batches' means by their items, one backward. */
static void by_hand(training *t, const combination *c)
{
    const struct cut *cut = &cuts[c->window];
    luge_tensor *sum = luge_zeros(LUGE_SCALAR, NULL);
    for (int i = 0; i < cut->count; ++i) {
        luge_tensor *loss = loss_of(t, c, i);
        sum = luge_add(sum, luge_mul_scalar(loss, (double)cut->items[i] / LIMIT));
    }
    luge_backward(sum);
    if (c->clipping == CLIP_NORM) luge_clip_grad_norm(t->optim, 0.1);
    if (c->clipping == CLIP_VALUE) luge_clip_grad_value(t->optim, 0.01);
    luge_optim_step(t->optim);
    assert_ok();
}

/* What is recomputed changes no bit. */
static void check_recomputed(combination c, const snapshot *plain, const snapshot *buffers)
{
    for (c.recomputed = EVERY; c.recomputed < POLICIES; ++c.recomputed) {
        bool skipped;
        training t = start(&c);
        assert_int_equal(by_window(&t, &c, &skipped), LUGE_OK);
        const snapshot is = snapshot_of(&t), statistics = buffers_of(&t);
        assert_alike(&is, plain, 0, &c);
        assert_alike(&statistics, buffers, 0, &c);
        finish(&t);
    }
}

static void check(const combination *c)
{
    static const double bound[] = {5e-6, 2e-2, 4e-3};
    LUGE_SCOPE("combination");
    bool skipped;
    training t = start(c);
    const snapshot before = snapshot_of(&t);
    const luge_status status = by_window(&t, c, &skipped);
    if (c->overflow != NOWHERE) {
        if (c->precision != F16_SCALED) assert_error(LUGE_ERR_NONFINITE, "the norm of the gradients is nan");
        luge_error_clear();
        assert_int_equal(status, c->precision == F16_SCALED ? LUGE_OK : LUGE_ERR_NONFINITE);
        assert_true(skipped == (c->precision == F16_SCALED));
        const snapshot after = snapshot_of(&t);
        for (int i = 0; i < before.count; ++i) { /* the optimizer may have made its state, of zeros */
            if (!same_bits(before.tensor[i], after.tensor[i])) fail_msg("%s: %s was changed", text_of(c), before.name[i]);
        }
        assert_int_equal(luge_optim_steps(t.optim), 0);
        assert_true(luge_is_none(luge_tensor_grad(luge_module_param(t.net, "3.weight"))));
    } else {
        assert_int_equal(status, LUGE_OK);
        assert_false(skipped);
        const snapshot is = snapshot_of(&t), buffers = buffers_of(&t);
        training other = start(c);
        by_hand(&other, c);
        const snapshot should = snapshot_of(&other), statistics = buffers_of(&other);
        assert_alike(&is, &should, bound[c->precision], c);
        assert_alike(&buffers, &statistics, 0, c);
        finish(&other);
        check_recomputed(*c, &is, &buffers);
    }
    finish(&t);
}

static void every_combination(void **state)
{
    (void)state;
    combination c = {.recomputed = NOTHING};
    int count = 0;
    for (c.precision = 0; c.precision < PRECISIONS; ++c.precision)
        for (c.window = 0; c.window < WINDOWS; ++c.window)
            for (c.clipping = 0; c.clipping < CLIPPINGS; ++c.clipping)
                for (c.rule = 0; c.rule < RULES; ++c.rule)
                    for (c.overflow = 0; c.overflow < OVERFLOWS; ++c.overflow) {
                        if (!is_valid(&c)) continue;
                        check(&c);
                        count += c.overflow == NOWHERE ? POLICIES : 1;
                    }
    print_message("%d combinations\n", count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(every_combination)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
