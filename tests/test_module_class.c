/* Module classes of the user's: luge_module_class in include/luge/nn.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/thread.h"
#include "tests/support/compare.h"
#include "tests/support/ops.h"

/* ---- the module of API program 5: y = x + proj(relu(gain * (x - mean))) */

typedef struct center {
    int64_t features;
    double momentum;
    luge_tensor *gain, *mean;
    luge_module *proj;
} center;

static void center_build(luge_module *self, void *state)
{
    center *c = state;
    luge_shape shape = LUGE_SHAPE(c->features);
    c->gain = luge_module_add_param(self, "gain", luge_ones(shape, NULL));
    c->mean = luge_module_add_buffer(self, "mean", luge_zeros(shape, NULL));
    c->proj = luge_module_add(self, "proj", luge_nn_linear(c->features, c->features, NULL));
}

static luge_tensor *center_forward(luge_module *self, void *state, luge_tensor *x)
{
    center *c = state;
    if (luge_module_training(self)) {
        LUGE_NO_GRAD();
        luge_lerp_(c->mean, luge_mean(x, LUGE_AXES(0)), c->momentum);
    }
    luge_tensor *h = luge_mul(luge_sub(x, c->mean), c->gain);
    return luge_add(x, luge_forward(c->proj, luge_relu(h)));
}

static const luge_module_class center_class = {
    .name = "Center", .state_size = sizeof(center), .build = center_build, .forward = center_forward};

static luge_module *center_create(int64_t features, double momentum)
{
    return luge_module_create(&center_class, &(center){.features = features, .momentum = momentum});
}

static void user_modules_work_like_others(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *net = luge_nn_sequential(luge_nn_linear(3, 4, NULL), center_create(4, 0.5));
    luge_tensor *x = luge_randn(LUGE_SHAPE(5, 3), NULL), *mean = luge_module_buffer(net, "1.mean");
    luge_backward(luge_sum(luge_forward(net, x), LUGE_ALL_AXES));
    assert_true(luge_ok());
    assert_false(luge_is_none(luge_tensor_grad(luge_module_param(net, "1.gain"))));
    assert_false(luge_is_none(luge_tensor_grad(luge_module_param(net, "1.proj.weight"))));
    luge_tensor *half = luge_mul_scalar(luge_mean(luge_forward(luge_module_child(net, "0"), x), LUGE_AXES(0)), 0.5);
    assert_close(mean, luge_detach(half), 1e-6, "running mean");
    luge_module_eval(net);
    luge_tensor *before = luge_clone(mean);
    luge_forward(net, x);
    assert_true(same_bits(mean, before));

    luge_module *copy = luge_module_clone(net);
    assert_true(same_bits(luge_forward(copy, x), luge_forward(net, x)));
    assert_ptr_not_equal(luge_module_buffer(copy, "1.mean"), mean);
    /* The copy's state has handles of its own. */
    luge_module_train(copy);
    luge_forward(copy, x);
    assert_true(same_bits(mean, before));
    const char *text = luge_module_summary(net, LUGE_SHAPE(2, 3));
    assert_non_null(strstr(text, "1.proj"));
    luge_module_destroy(net);
    assert_non_null(luge_forward(copy, x));
    luge_module_destroy(copy);
}

/* ---- what build may and may not do */

typedef struct probe {
    void (*act)(luge_module *self);
    char *memory; /* made by build, freed by destroy */
} probe;

static int destroyed;

static void probe_build(luge_module *self, void *state)
{
    probe *p = state;
    p->memory = malloc(10);
    if (p->act != NULL) p->act(self);
}

static luge_tensor *probe_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    (void)state;
    return x;
}

static void probe_destroy(void *state)
{
    free(((probe *)state)->memory);
    ++destroyed;
}

static const luge_module_class probe_class = {.name = "Probe",
                                              .state_size = sizeof(probe),
                                              .build = probe_build,
                                              .forward = probe_forward,
                                              .destroy = probe_destroy};

static luge_module *probe_create(void (*act)(luge_module *self))
{
    return luge_module_create(&probe_class, &(probe){.act = act});
}

static luge_tensor *ones(void)
{
    return luge_ones(LUGE_SHAPE(2), NULL);
}

static void add_dotted(luge_module *self)
{
    luge_module_add_param(self, "a.b", ones());
}
static void add_empty(luge_module *self)
{
    luge_module_add_buffer(self, "", ones());
}
static void add_unnamed(luge_module *self)
{
    luge_module_add(self, NULL, luge_nn_relu());
}
static void add_twice(luge_module *self)
{
    luge_module_add_param(self, "a", ones());
    luge_module_add(self, "a", luge_nn_relu());
}
static void add_buffer_twice(luge_module *self)
{
    luge_module_add(self, "a", luge_nn_relu());
    luge_module_add_buffer(self, "a", ones());
}
static void add_null(luge_module *self)
{
    luge_module_add_param(self, "a", NULL);
}
static void add_none(luge_module *self)
{
    luge_module_add_buffer(self, "a", LUGE_NONE);
}
static void add_integers(luge_module *self)
{
    luge_module_add_param(self, "a", LABELS(1, 2));
}
static void add_null_child(luge_module *self)
{
    luge_module_add(self, "a", NULL);
}
static void add_failed_child(luge_module *self)
{
    luge_module_add(self, "a", luge_nn_linear(-1, 2, NULL));
}
static void add_itself(luge_module *self)
{
    luge_module_add(self, "a", self);
}
static void hand_itself_over(luge_module *self)
{
    luge_nn_sequential(self, luge_nn_relu());
}
static void run_itself(luge_module *self)
{
    luge_forward(self, ones());
}
static void destroy_itself(luge_module *self)
{
    luge_module_add_param(self, "a", ones());
    luge_module_destroy(self); /* ignored */
    luge_fail(LUGE_ERR_STATE, "still here");
}
static void clone_itself(luge_module *self)
{
    luge_module_clone(self);
}
static void save_itself(luge_module *self)
{
    luge_module_freeze(self, NULL);
}

static void failing_builds_leave_nothing(void **state)
{
    (void)state;
    static const struct {
        void (*act)(luge_module *self);
        luge_status code;
        const char *text;
    } rows[] = {
        {add_dotted, LUGE_ERR_ARGUMENT, "t.Probe: luge_module_add_param: \"a.b\" cannot be a name"},
        {add_empty, LUGE_ERR_ARGUMENT, "\"\" cannot be a name"},
        {add_unnamed, LUGE_ERR_ARGUMENT, "luge_module_add: \"NULL\" cannot be a name"},
        {add_twice, LUGE_ERR_ARGUMENT, "luge_module_add: the Probe has a \"a\" already"},
        {add_buffer_twice, LUGE_ERR_ARGUMENT, "luge_module_add_buffer: the Probe has a \"a\" already"},
        {add_null, LUGE_ERR_ARGUMENT, "the tensor is NULL"},
        {add_none, LUGE_ERR_ARGUMENT, "LUGE_NONE"},
        {add_integers, LUGE_ERR_DTYPE, "a parameter has floats, not i64"},
        {add_null_child, LUGE_ERR_ARGUMENT, "module \"a\" is NULL"},
        {add_failed_child, LUGE_ERR_ARGUMENT, "Linear: in must"},
        {add_itself, LUGE_ERR_STATE, "module \"a\" is still being built"},
        {hand_itself_over, LUGE_ERR_STATE, "module \"0\" is still being built"},
        {run_itself, LUGE_ERR_STATE, "luge_forward: the Probe is still being built"},
        {destroy_itself, LUGE_ERR_STATE, "still here"},
        {clone_itself, LUGE_ERR_STATE, "luge_module_clone: the Probe is still being built"},
        {save_itself, LUGE_ERR_STATE, "luge_module_freeze: the Probe is still being built"},
    };
    LUGE_SCOPE("t");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        destroyed = 0;
        assert_null(luge_nn_sequential(luge_nn_relu(), probe_create(rows[i].act)));
        assert_error(rows[i].code, rows[i].text);
        assert_int_equal(destroyed, 1);
        assert_int_equal(live_now().objects, 0);
    }
}

static void modules_are_filled_in_build_only(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = probe_create(NULL);
    assert_null(luge_module_add_param(m, "late", ones()));
    assert_error(LUGE_ERR_STATE, "luge_module_add_param: the Probe is built already");
    assert_null(luge_module_add_buffer(m, "late", ones()));
    assert_error(LUGE_ERR_STATE, "built already");
    assert_null(luge_module_add(m, "late", luge_nn_relu())); /* owned all the same: nothing leaks */
    assert_error(LUGE_ERR_STATE, "built already");
    assert_null(luge_module_add(NULL, "a", luge_nn_relu()));
    assert_error(LUGE_ERR_ARGUMENT, "luge_module_add: the module is NULL");
    assert_null(luge_module_add_param(NULL, "a", ones()));
    assert_error(LUGE_ERR_ARGUMENT, "the module is NULL");
    assert_int_equal(live_now().objects, 1);
    luge_module_destroy(m);
}

static void classes_are_checked(void **state)
{
    (void)state;
    assert_null(luge_module_create(NULL, NULL));
    assert_error(LUGE_ERR_ARGUMENT, "the class is NULL");
    assert_null(luge_module_create(&(luge_module_class){.forward = probe_forward}, NULL));
    assert_error(LUGE_ERR_ARGUMENT, "the class has no name");
    assert_null(luge_module_create(&(luge_module_class){.name = "X", .reserved = {0, 1}}, NULL));
    assert_error(LUGE_ERR_ARGUMENT, "X: reserved");
    assert_null(luge_module_create(&(luge_module_class){.name = "X", .autocast = (luge_cast_class)9}, NULL));
    assert_error(LUGE_ERR_ARGUMENT, "X: autocast 9");
    assert_null(luge_module_create(&(luge_module_class){.name = "X", .state_size = SIZE_MAX}, NULL));
    assert_error(LUGE_ERR_ARGUMENT, "X: a state of");
    luge_fail(LUGE_ERR_IO, "before");
    assert_null(luge_module_create(&probe_class, NULL));
    assert_error(LUGE_ERR_IO, "before");
    destroyed = 0;
    luge_module *m = luge_module_create(&probe_class, NULL); /* NULL is a state of zeros */
    luge_module_destroy(m);
    assert_int_equal(destroyed, 1);
}

/* ---- who owns values */

static luge_tensor *given, *taken;

static void take_given(luge_module *self)
{
    taken = luge_module_add_param(self, "w", given);
}

static void unshared_values_are_taken_over(void **state)
{
    (void)state;
    {
        LUGE_SCOPE("t");
        given = LUGE_TENSOR(LUGE_SHAPE(2), 1, 2);
        luge_module *m = probe_create(take_given);
        assert_ptr_equal(taken, given);
        assert_true(luge_tensor_requires_grad(taken));
        luge_module_destroy(m);
    }
    { /* somebody else holds it: a copy, and theirs stays what it was */
        LUGE_SCOPE("t");
        given = luge_retain(LUGE_TENSOR(LUGE_SHAPE(2), 1, 2));
        luge_module *m = probe_create(take_given);
        assert_ptr_not_equal(taken, given);
        assert_false(luge_tensor_requires_grad(given));
        luge_fill_(given, 5);
        assert_values(taken, 1, 2);
        luge_release(given);
        luge_module_destroy(m);
    }
    { /* a view shares memory; a result of ops is no leaf; gaps are closed */
        LUGE_SCOPE("t");
        luge_tensor *base = LUGE_TENSOR(LUGE_SHAPE(2, 2), 1, 2, 3, 4);
        given = luge_select(base, 1, 1);
        luge_module *m = probe_create(take_given);
        luge_fill_(base, 0);
        assert_values(taken, 2, 4);
        luge_module_destroy(m);
        given = luge_mul_scalar(luge_requires_grad_(base), 2);
        m = probe_create(take_given);
        luge_backward(luge_sum(luge_mul_scalar(taken, 3), LUGE_ALL_AXES));
        assert_values(luge_tensor_grad(taken), 3, 3, 3, 3);
        assert_true(luge_is_none(luge_tensor_grad(base)));
        luge_module_destroy(m);
    }
}

/* Tied however many hold the parameter. */
static void tie_head(luge_module *self)
{
    luge_module *embed = luge_module_add(self, "embed", luge_nn_embedding(3, 2, NULL));
    luge_tensor *weight = luge_retain(luge_module_param(embed, "weight"));
    taken = luge_module_add_param(self, "head", weight);
    luge_release(weight);
}

static void parameters_of_other_modules_are_copied(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *other = luge_nn_linear(2, 2, NULL);
    given = luge_module_param(other, "weight"); /* one reference, but not a scope's */
    luge_module *m = probe_create(take_given);
    assert_ptr_not_equal(taken, given);
    assert_true(same_bits(taken, given));
    luge_module_destroy(other);
    luge_module_destroy(m);
}

static void count_params(const char *name, luge_tensor *param, void *user)
{
    (void)param;
    assert_string_equal(name, "head");
    ++*(int *)user;
}

static void parameters_of_children_are_tied(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = probe_create(tie_head);
    assert_ptr_equal(taken, luge_module_param(m, "embed.weight"));
    int count = 0;
    luge_module_each_param(m, count_params, &count); /* once, under its first name */
    assert_int_equal(count, 1);
    assert_int_equal(luge_module_param_count(m), 6);
    assert_int_equal(luge_module_freeze(m, "embed.*"), 1); /* under any name */
    assert_false(luge_tensor_requires_grad(taken));
    assert_int_equal(luge_module_unfreeze(m, "*"), 1);

    luge_module *copy = luge_module_clone(m);
    assert_ptr_equal(luge_module_param(copy, "head"), luge_module_param(copy, "embed.weight"));
    assert_true(same_bits(luge_module_param(copy, "head"), taken));
    assert_int_equal(luge_module_to_dtype(copy, LUGE_F64), LUGE_OK);
    assert_ptr_equal(luge_module_param(copy, "head"), luge_module_param(copy, "embed.weight"));
    assert_int_equal(luge_module_copy(m, copy), LUGE_OK);
    luge_module_destroy(copy);
    luge_module_destroy(m);
}

/* ---- children given by the creator */

typedef struct wrapper {
    luge_module *inner;
} wrapper;

static void wrapper_build(luge_module *self, void *state)
{
    wrapper *w = state;
    w->inner = luge_module_add(self, "inner", w->inner);
}

static luge_tensor *wrapper_forward(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    return luge_forward(((wrapper *)state)->inner, x);
}

static const luge_module_class wrapper_class = {
    .name = "Wrapper", .state_size = sizeof(wrapper), .build = wrapper_build, .forward = wrapper_forward};

static void given_children_are_cloned_with_their_parent(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_module *m = luge_module_create(&wrapper_class, &(wrapper){luge_nn_linear(2, 2, NULL)});
    luge_module *copy = luge_module_clone(m);
    luge_tensor *x = luge_ones(LUGE_SHAPE(1, 2), NULL);
    assert_true(same_bits(luge_forward(copy, x), luge_forward(m, x)));
    assert_ptr_not_equal(luge_module_child(copy, "inner"), luge_module_child(m, "inner"));
    luge_module_destroy(m);
    assert_non_null(luge_forward(copy, x));
    luge_module_destroy(copy);
}

/* ---- classes that cannot be cloned */

static int build_count;

static void unsteady_build(luge_module *self, void *state)
{
    (void)state;
    luge_module_add_param(self, "w", luge_ones(LUGE_SHAPE(++build_count), NULL));
}

static void clones_must_grow_alike(void **state)
{
    (void)state;
    static const luge_module_class unsteady = {.name = "Unsteady", .build = unsteady_build};
    static const luge_module_class bare = {.name = "Bare", .state_size = sizeof(probe), .destroy = probe_destroy};
    luge_module *m = luge_module_create(&unsteady, NULL);
    assert_null(luge_module_clone(m));
    assert_error(LUGE_ERR_STATE, "Unsteady: build made something else the second time");
    luge_module_destroy(m);
    destroyed = 0;
    m = luge_module_create(&bare, &(probe){.memory = malloc(3)});
    assert_null(luge_module_clone(m));
    assert_error(LUGE_ERR_UNSUPPORTED, "class Bare has a destroy, but no build");
    luge_module_destroy(m);
    assert_int_equal(destroyed, 1);
}

/* ---- forward */

static luge_tensor *give_null(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    (void)state;
    (void)x;
    return NULL;
}

static luge_tensor *give_none(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    (void)state;
    (void)x;
    return LUGE_NONE;
}

static luge_tensor *give_error(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    (void)state;
    luge_fail(LUGE_ERR_UNSUPPORTED, "not today");
    return x;
}

static luge_tensor *leave_scopes_open(luge_module *self, void *state, luge_tensor *x)
{
    (void)self;
    (void)state;
    luge_scope_enter("open");
    luge_no_grad_enter();
    return luge_mul_scalar(x, 2);
}

static void what_forward_returns_is_looked_at(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(1), 3);
    luge_module *m = luge_module_create(&(luge_module_class){.name = "Null", .forward = give_null}, NULL);
    assert_null(luge_forward(m, x));
    assert_error(LUGE_ERR_CALLBACK, "t.Null: forward gave NULL as output 0 and set no error");
    luge_module_destroy(m);
    m = luge_module_create(&(luge_module_class){.name = "None", .forward = give_none}, NULL);
    assert_null(luge_forward(m, x));
    assert_error(LUGE_ERR_CALLBACK, "forward gave LUGE_NONE");
    luge_module_destroy(m);
    m = luge_module_create(&(luge_module_class){.name = "Error", .forward = give_error}, NULL);
    assert_null(luge_forward(m, x));
    assert_error(LUGE_ERR_UNSUPPORTED, "t.Error: not today");
    luge_module_destroy(m);
    m = luge_module_create(&(luge_module_class){.name = "Open", .forward = leave_scopes_open}, NULL);
    assert_values(luge_forward(m, x), 6); /* closed by the scope around the module */
    assert_false(lg_self()->modes.no_grad);
    luge_module_destroy(m);
    m = probe_create(NULL);
    assert_ptr_equal(luge_forward(m, x), x);
    luge_module_destroy(m);
    assert_values(x, 3);
}

static luge_tensor *add_list(luge_module *self, void *state, luge_list in)
{
    (void)self;
    (void)state;
    luge_tensor *sum = in.items[0];
    for (int i = 1; i < in.count; ++i) {
        if (!luge_is_none(in.items[i])) sum = luge_add(sum, in.items[i]);
    }
    return sum;
}

static void split(luge_module *self, void *state, luge_list in, luge_tensor **out, int count)
{
    (void)self;
    (void)state;
    for (int i = 0; i < count && i < 2; ++i) out[i] = luge_mul_scalar(in.items[0], i + 1);
}

static void several_inputs_and_outputs(void **state)
{
    (void)state;
    LUGE_SCOPE("t");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(1), 3), *out[3];
    luge_module *list = luge_module_create(&(luge_module_class){.name = "List", .forward_list = add_list}, NULL);
    luge_module *multi = luge_module_create(&(luge_module_class){.name = "Multi", .forward_multi = split}, NULL);
    luge_module *one = probe_create(NULL);
    assert_values(luge_forward_list(list, LUGE_LIST(x, x, LUGE_NONE)), 6);
    assert_values(luge_forward(list, x), 3);
    assert_int_equal(luge_forward_multi(multi, LUGE_LIST(x), out, 2), LUGE_OK);
    assert_values(out[0], 3);
    assert_values(out[1], 6);
    assert_values(luge_forward(multi, x), 3); /* its first output */
    assert_int_equal(luge_forward_multi(one, LUGE_LIST(x), out, 1), LUGE_OK);
    assert_ptr_equal(out[0], x);
    assert_int_equal(luge_forward_multi(list, LUGE_LIST(x, x), out, 1), LUGE_OK);
    assert_values(out[0], 6);

    out[0] = out[1] = out[2] = x;
    assert_int_equal(luge_forward_multi(multi, LUGE_LIST(x), out, 3), LUGE_ERR_CALLBACK);
    assert_error(LUGE_ERR_CALLBACK, "NULL as output 2");
    assert_true(out[0] == NULL && out[1] == NULL && out[2] == NULL);
    assert_int_equal(luge_forward_multi(one, LUGE_LIST(x), out, 2), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "1 inputs and 2 outputs are asked for, but it takes one input");
    assert_null(luge_forward_list(one, LUGE_LIST(x, x)));
    assert_error(LUGE_ERR_ARGUMENT, "2 inputs and 1 outputs");
    assert_null(luge_forward_list(list, LUGE_LIST(x, NULL)));
    assert_error(LUGE_ERR_ARGUMENT, "input 1 is NULL");
    assert_null(luge_forward_list(list, (luge_list){NULL, 2}));
    assert_error(LUGE_ERR_ARGUMENT, "2 inputs at NULL");
    assert_int_equal(luge_forward_multi(multi, LUGE_LIST(x), NULL, 1), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "outputs is NULL");
    assert_int_equal(luge_forward_multi(multi, LUGE_LIST(x), out, 0), LUGE_ERR_ARGUMENT);
    assert_error(LUGE_ERR_ARGUMENT, "count is less than 1");
    luge_module_destroy(list);
    luge_module_destroy(multi);
    luge_module_destroy(one);
}

static luge_dtype saw[2];

static luge_tensor *note_dtypes(luge_module *self, void *state, luge_list in)
{
    (void)self;
    (void)state;
    for (int i = 0; i < in.count && i < 2; ++i) saw[i] = luge_tensor_dtype(in.items[i]);
    return in.items[0];
}

static void autocast_casts_inputs_as_the_class_asks(void **state)
{
    (void)state;
    static const struct {
        luge_cast_class wanted;
        luge_dtype first, second; /* of inputs f16 and f64 */
    } rows[] = {{LUGE_CAST_KEEP, LUGE_F16, LUGE_F64},
                {LUGE_CAST_LOW, LUGE_BF16, LUGE_BF16},
                {LUGE_CAST_F32, LUGE_F32, LUGE_F32},
                {LUGE_CAST_WIDEST, LUGE_F64, LUGE_F64}};
    for (int i = 0; i < 4; ++i) {
        LUGE_SCOPE("t");
        const luge_module_class type = {.name = "Casts", .forward_list = note_dtypes, .autocast = rows[i].wanted};
        luge_module *m = luge_module_create(&type, NULL);
        luge_tensor *x = luge_cast(ones(), LUGE_F16), *y = luge_cast(ones(), LUGE_F64);
        luge_forward_list(m, LUGE_LIST(x, y));
        assert_true(saw[0] == LUGE_F16 && saw[1] == LUGE_F64); /* outside of a region nothing happens */
        LUGE_AUTOCAST(LUGE_BF16);
        luge_forward_list(m, LUGE_LIST(x, y));
        assert_true(saw[0] == rows[i].first && saw[1] == rows[i].second);
        luge_forward_list(m, LUGE_LIST(x, LABELS(1)));
        assert_int_equal(saw[1], LUGE_I64); /* no float: left alone */
        luge_module_destroy(m);
    }
}

/* ---- each allocation fails in turn */

static void failures_in_build(void **state)
{
    (void)state;
    for (int kind = LG_FAULT_HOST; kind <= LG_FAULT_DEVICE; ++kind) {
        bool hit = true;
        for (int64_t n = 1; hit; ++n) {
            LUGE_SCOPE("t");
            lg_fault_set((lg_fault_kind)kind, n);
            luge_module *m = luge_nn_sequential(center_create(3, 0.1), probe_create(tie_head));
            hit = lg_fault_hit((lg_fault_kind)kind);
            lg_fault_set((lg_fault_kind)kind, 0);
            assert_int_equal(luge_ok(), m != NULL);
            luge_module_destroy(m);
            luge_error_clear();
            assert_int_equal(live_now().objects, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(user_modules_work_like_others),
        OP_TEST(failing_builds_leave_nothing),
        OP_TEST(modules_are_filled_in_build_only),
        OP_TEST(classes_are_checked),
        OP_TEST(unshared_values_are_taken_over),
        OP_TEST(parameters_of_other_modules_are_copied),
        OP_TEST(parameters_of_children_are_tied),
        OP_TEST(given_children_are_cloned_with_their_parent),
        OP_TEST(clones_must_grow_alike),
        OP_TEST(what_forward_returns_is_looked_at),
        OP_TEST(several_inputs_and_outputs),
        OP_TEST(autocast_casts_inputs_as_the_class_asks),
        OP_TEST(failures_in_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
