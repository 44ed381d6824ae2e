/* Promises that every public function keeps, tried on each row of calls.def: with right arguments it
 * works; while an error stands it does nothing, or if it reads or ends something still does that; a
 * NULL, LUGE_NONE where a tensor is needed, a broken list and a reserved word that is not zero are
 * refused; so is a value out of range, and what tensors of other kinds do not suit; the message names the
 * function that was called; and what is refused changes nothing and leaves nothing behind. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <luge/luge.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "data/dataset.h"
#include "tests/support/live.h"

/* ---- what calls are made with */

enum { MAX_SEEN = 56, ODD = 6 };

/* Made anew for each call. */
static struct world {
    luge_tensor *a, *b, *c;               /* [2, 3]: a leaf with a gradient, two without a graph */
    luge_tensor *host;                    /* [2, 3] on the host */
    luge_tensor *leaf64;                  /* [2] f64 */
    luge_tensor *square;                  /* [3, 3] */
    luge_tensor *pair;                    /* [2, 2] */
    luge_tensor *row;                     /* [1, 3] */
    luge_tensor *three, *four, *five, *six; /* [3] */
    luge_tensor *image, *kernel;          /* [2, 2, 4, 4], [3, 2, 3, 3] */
    luge_tensor *indices, *mask;          /* [2] i64; [2, 3] bool */
    luge_tensor *one;                     /* [] */
    luge_tensor *loss;                    /* [], made from a */
    luge_tensor *slot;                    /* owns what it holds */
    luge_module *net, *twin, *body, *shortcut;
    luge_optim *optim, *unscheduled;
    luge_sched *sched;
    luge_scaler *scaler, *fresh;          /* one has unscaled gradients */
    luge_accum *accum;
    luge_profile *profile, *running;      /* the first was stopped */
    luge_scaler_state scaler_state;
    luge_batch pictures;
    luge_run run; char saved_run[64];
    luge_dataset *dataset;
    luge_loader *loader;
    luge_meter *meter;
    luge_module *self;                    /* inside build */
    luge_sample *sample;                  /* inside get */
    luge_rng *rng;
    luge_custom_op op;
    luge_module_class module_class;
    luge_dataset_class dataset_class;
    luge_allocator allocator;
    luge_load_result load_result;
    luge_batch batch;
    luge_tensor *grads[2];
    luge_tensor *list[3][2];
    luge_module *modules[2];
    luge_tensor *odd[ODD];                /* what few functions take everywhere */
    double factor;
    float array[6];
    char directory[64], saved[96], new_file[96], idx[96];
    luge_tensor *seen[MAX_SEEN];          /* all tensors above, parameters and buffers */
    luge_module *layers[MAX_SEEN];
    int n_seen, n_layers;
} w;

static const float numbers[6] = {1, 2, 3, 4, 5, 6};
static const double two_numbers[2] = {1, 2};
static const luge_device no_device = {.kind = 2, .index = 4711};

/* Callbacks that do nothing, and what they are given. */
static void hear(luge_log_level level, const char *text, void *user) { (void)level, (void)text, (void)user; }
static luge_tensor *see_grad(luge_tensor *grad, void *user) { return (void)user, grad; }
static void see_leaf(luge_tensor *leaf, void *user) { (void)leaf, (void)user; }
static void see_param(const char *name, luge_tensor *param, void *user) { (void)name, (void)param, (void)user; }
static void see_module(const char *name, luge_module *module, void *user) { (void)name, (void)module, (void)user; }
static void see_state(const char *param, const char *what, luge_tensor *value, void *user)
{
    (void)param, (void)what, (void)value, (void)user;
}
static luge_tensor *squares(luge_list in, void *user)
{
    (void)user;
    return luge_sum(luge_square(in.items[0]), LUGE_ALL_AXES);
}
static luge_tensor *scaled(const luge_call *call)
{
    return luge_mul_scalar(call->inputs.items[0], *(const double *)call->attrs);
}
static luge_tensor *pass_on(luge_module *self, void *state, luge_tensor *input) { return (void)self, (void)state, input; }
static luge_status fill(int64_t index, luge_rng *rng, luge_sample *sample, void *user)
{
    (void)rng, (void)user;
    float *input = luge_sample_field(sample, "input", LUGE_F32, LUGE_SCALAR);
    if (input != NULL) *input = (float)index;
    return luge_error();
}
/* Never called: there is always something alive. */
static void *take_memory(size_t bytes, size_t alignment, void *user) { return (void)bytes, (void)alignment, user; }
static void give_memory(void *memory, size_t bytes, void *user) { (void)memory, (void)bytes, (void)user; }

static void note_param(const char *name, luge_tensor *param, void *user)
{
    (void)name, (void)user;
    if (w.n_seen < MAX_SEEN) w.seen[w.n_seen++] = param;
}
static void note_layer(const char *name, luge_module *module, void *user)
{
    (void)name, (void)user;
    if (w.n_layers < MAX_SEEN) w.layers[w.n_layers++] = module;
}

static void make_odd_ones(void)
{
    const luge_tensor_options f64 = {.dtype = LUGE_F64}, f16 = {.dtype = LUGE_F16}, i64 = {.dtype = LUGE_I64},
                              flags = {.dtype = LUGE_BOOL};
    w.odd[0] = luge_full(LUGE_SCALAR, -3, &f64);
    w.odd[1] = luge_full(LUGE_SHAPE(7), 9, &i64);
    w.odd[2] = luge_zeros(LUGE_SHAPE(0, 3), NULL);
    w.odd[3] = luge_ones(LUGE_SHAPE(1, 1, 1, 1, 1, 1, 1, 5), &f16);
    w.odd[4] = luge_transpose(luge_ones(LUGE_SHAPE(3, 2), &flags), 0, 1);
    w.odd[5] = luge_expand(luge_randn(LUGE_SHAPE(5, 1, 1), NULL), LUGE_SHAPE(5, 2, 4));
}

static void make_tensors(void)
{
    const luge_tensor_options leaf = {.requires_grad = true}, leaf64 = {.dtype = LUGE_F64, .requires_grad = true};
    luge_seed(3);
    w.a = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6));
    w.b = LUGE_TENSOR(LUGE_SHAPE(2, 3), 0.3, 1, 2, 0.5, 4, 1);
    w.c = LUGE_TENSOR(LUGE_SHAPE(2, 3), 2, 1, 0.5, 2, 1, 3);
    w.host = luge_to(w.b, luge_device_cpu(), NULL);
    w.leaf64 = luge_rand(LUGE_SHAPE(2), &leaf64);
    w.square = luge_randn(LUGE_SHAPE(3, 3), &leaf);
    w.pair = luge_randn(LUGE_SHAPE(2, 2), NULL);
    w.row = luge_randn(LUGE_SHAPE(1, 3), NULL);
    w.three = luge_ones(LUGE_SHAPE(3), NULL);
    w.four = luge_ones(LUGE_SHAPE(3), NULL);
    w.five = luge_ones(LUGE_SHAPE(3), NULL);
    w.six = luge_ones(LUGE_SHAPE(3), NULL);
    w.image = luge_randn(LUGE_SHAPE(2, 2, 4, 4), NULL);
    w.kernel = luge_randn(LUGE_SHAPE(3, 2, 3, 3), &leaf);
    w.indices = luge_from_array((int64_t[]){0, 2}, LUGE_I64, LUGE_SHAPE(2));
    w.mask = luge_gt(w.b, w.c);
    w.one = luge_full(LUGE_SCALAR, 2.5, NULL);
    luge_backward(luge_mean(luge_square(w.a), LUGE_ALL_AXES));
    w.loss = luge_mean(luge_square(w.a), LUGE_ALL_AXES);
    luge_assign(&w.slot, w.c);
    luge_tensor *const all[] = {w.a,    w.b,    w.c,   w.leaf64, w.square, w.pair,    w.row,  w.three, w.four,
                                w.five, w.six, w.image, w.kernel, w.indices, w.mask, w.one, w.loss,
                                w.host};
    memcpy(w.seen, all, sizeof all);
    w.n_seen = sizeof all / sizeof all[0];
    make_odd_ones();
    for (int i = 0; i < ODD; ++i) w.seen[w.n_seen++] = w.odd[i];
}

static void make_objects(void)
{
    w.net = luge_nn_sequential(luge_nn_conv2d(2, 3, 3, NULL), luge_nn_batch_norm2d(3, NULL), luge_nn_relu(),
                               luge_nn_flatten(), luge_nn_linear(12, 3, NULL));
    w.twin = luge_module_clone(w.net);
    w.body = luge_nn_linear(3, 3, NULL);
    w.shortcut = luge_nn_identity();
    w.optim = luge_sgd_create(w.net, 0.1, &(luge_sgd_options){.momentum = 0.9});
    w.unscheduled = luge_adam_create(w.twin, 0.1, NULL);
    w.sched = luge_step_lr_create(w.optim, 2, 0.5);
    luge_backward(luge_cross_entropy(luge_forward(w.net, w.image), w.indices, NULL));
    luge_optim_step(w.optim);
    w.scaler = luge_scaler_create(NULL);
    w.fresh = luge_scaler_create(NULL);
    luge_scaler_unscale(w.scaler, w.unscheduled);
    w.accum = luge_accum_create(w.optim, 2, NULL);
    w.run = (luge_run){.module = w.net, .optim = w.optim};
    w.pictures = (luge_batch){.input = w.image, .target = w.indices, .size = 2};
    w.dataset = luge_dataset_tensors(w.image, w.indices);
    w.loader = luge_loader_create(luge_dataset_tensors(w.image, w.indices), 2, NULL);
    w.meter = luge_meter_create();
    luge_meter_add(w.meter, w.one, 1);
    w.profile = luge_profile_start(&(luge_profile_options){.amp = true});
    luge_relu(w.a);
    luge_profile_stop(w.profile);
    luge_module_each_param(w.net, note_param, NULL);
    luge_module_each_buffer(w.net, note_param, NULL);
    luge_module_each_param(w.twin, note_param, NULL);
    luge_module_each(w.net, note_layer, NULL);
}

static luge_profile *running_profile(void) { return w.running = luge_profile_start(NULL); }

static char directory[] = "/tmp/luge_calls_XXXXXX";

static luge_tensor *loss_of(luge_tensor *x, luge_tensor *y, void *user) { (void)user; return luge_cross_entropy(luge_forward(w.net, x), y, NULL); }

static luge_status fits_one(int64_t size, void *user) { return size == 1 || user == NULL ? LUGE_OK : luge_fail(LUGE_ERR_OUT_OF_MEMORY, "too many"); }

static luge_scope make_world(void)
{
    luge_scope scope = luge_scope_enter("");
    w = (struct world){.op = {.name = "scaled", .attrs_size = sizeof(double), .forward = scaled},
                       .module_class = {.name = "PassOn", .state_size = sizeof(double), .forward = pass_on},
                       .dataset_class = {.size = 3, .get = fill},
                       .allocator = {.alloc = take_memory, .free = give_memory},
                       .factor = 1.5};
    snprintf(w.directory, sizeof w.directory, "%s", directory);
    snprintf(w.saved, sizeof w.saved, "%s/saved.safetensors", directory);
    snprintf(w.saved_run, sizeof w.saved_run, "%s/run.safetensors", directory);
    snprintf(w.new_file, sizeof w.new_file, "%s/new.safetensors", directory);
    snprintf(w.idx, sizeof w.idx, "%s/train-labels-idx1-ubyte", directory);
    make_tensors();
    make_objects();
    if (!luge_ok()) fail_msg("%s", luge_error_text());
    return scope;
}

static void end_world(luge_scope scope)
{
    luge_set_log(NULL, NULL);
    luge_meter_destroy(w.meter);
    luge_loader_destroy(w.loader);
    luge_dataset_destroy(w.dataset);
    luge_profile_destroy(w.running);
    luge_profile_destroy(w.profile);
    luge_accum_destroy(w.accum), luge_scaler_destroy(w.fresh);
    luge_scaler_destroy(w.scaler);
    luge_sched_destroy(w.sched);
    luge_optim_destroy(w.unscheduled);
    luge_optim_destroy(w.optim);
    luge_module_destroy(w.shortcut);
    luge_module_destroy(w.body);
    luge_module_destroy(w.twin);
    luge_module_destroy(w.net);
    luge_release(w.slot);
    luge_scope_exit(scope, NULL);
}

/* ---- what may change: everything above, and what the thread and the process keep */

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return hash;
}
#define MIX(hash, value) mix(hash, &(value), sizeof(value))

static uint64_t mix_tensor(uint64_t hash, const luge_tensor *t)
{
    const uint32_t version = lg_version(t);
    hash = MIX(hash, version);
    hash = MIX(hash, t->dtype);
    hash = MIX(hash, t->requires_grad);
    hash = MIX(hash, t->grad);
    hash = MIX(hash, t->hooks);
    hash = MIX(hash, t->storage);
    hash = mix(hash, t->shape.dim, sizeof t->shape.dim);
    void *elements;
    const lg_storage *s = t->storage;
    if (lg_on_host(s->device)) return mix(hash, s->data, s->bytes);
    const int64_t size = (int64_t)s->bytes;
    const luge_tensor whole = {
        .storage = t->storage, .dtype = LUGE_U8, .shape = LUGE_SHAPE(size), .stride = {1}, .numel = size};
    const void *bytes = lg_host_elements(&whole, &elements);
    hash = bytes != NULL ? mix(hash, bytes, s->bytes) : hash;
    lg_free(elements);
    return hash;
}

static uint64_t state_of_world(void)
{
    const lg_thread *self = lg_self();
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < w.n_seen; ++i) hash = mix_tensor(hash, w.seen[i]);
    for (int i = 0; i < w.n_seen; ++i) {
        if (w.seen[i]->grad != NULL) hash = mix_tensor(hash, w.seen[i]->grad);
    }
    for (int i = 0; i < w.n_layers; ++i) hash ^= (uint64_t)luge_module_training(w.layers[i]) << i;
    const int64_t numbers_of[] = {luge_optim_steps(w.optim), luge_loader_epoch(w.loader), luge_loader_batch_size(w.loader),
                                  luge_num_threads(), luge_tensor_device(NULL).kind, (int64_t)self->seed,
                                  (int64_t)self->rng_offset, self->n_frames, self->n_owned, self->n_kept, self->n_text};
    const double reals[] = {luge_optim_lr(w.optim), luge_meter_mean(w.meter)};
    hash = MIX(hash, self->modes.no_grad);
    hash = MIX(hash, self->modes.anomaly);
    hash = MIX(hash, self->modes.low);
    hash = MIX(hash, w.slot);
    return mix(mix(hash, numbers_of, sizeof numbers_of), reals, sizeof reals);
}

/* ---- one call, with at most one argument wrong */

typedef enum argument {
    NO_ARGUMENT, TENSOR_ARGUMENT, TENSOR_OR_NONE, VALUE, POINTER, OPTIONAL, OPTIONS, STRUCT, LIST_ARGUMENT,
    LIST_OR_NONE, MODULES
} argument;
typedef enum wrong {
    RIGHT, STANDING, IS_NULL, IS_NONE, FIRST_RESERVED, LAST_RESERVED, NO_ITEMS, NULL_ITEM, NONE_ITEM, NEGATIVE_COUNT,
    BAD_VALUE, FIRST_ODD, LAST_ODD = FIRST_ODD + ODD - 1
} wrong;
static const char *const wrong_name[] = {"right arguments",     "an error standing",    "NULL",          "LUGE_NONE",
                                         "a reserved word set", "a reserved word set",  "a list at NULL", "a list with NULL",
                                         "a list with LUGE_NONE", "a list of -1 tensors", "a value out of range",
                                         "an f64 scalar",       "i64 [7]",              "f32 [0, 3]",
                                         "f16 of rank 8",       "bool [2, 3]",          "an expanded [5, 2, 4]"};

enum { MAX_ARGUMENTS = 6 };

static struct trial {
    wrong wrong;
    int at;                               /* the argument that is wrong */
    argument arguments[MAX_ARGUMENTS];    /* what was asked for */
    const char *options;                  /* the type of those with a reserved word set */
    bool owned;                           /* something was handed over for good */
    bool status_lies;                     /* a status was returned that is not luge_error() */
} trial;

static bool is_list(argument kind) { return kind == LIST_ARGUMENT || kind == LIST_OR_NONE; }
static bool is_odd(wrong how) { return how >= FIRST_ODD && how <= LAST_ODD; }

static bool wrong_at(int i, argument kind, wrong how)
{
    trial.arguments[i] = kind;
    return trial.wrong == how && trial.at == i;
}
static bool missing(int i, argument kind) { return wrong_at(i, kind, IS_NULL); }

static luge_tensor *tensor(int i, luge_tensor *t, argument kind)
{
    if (wrong_at(i, kind, IS_NONE)) return LUGE_NONE;
    if (is_odd(trial.wrong) && trial.at == i) return w.odd[trial.wrong - FIRST_ODD];
    return missing(i, kind) ? NULL : t;
}

static void *with_reserved(int i, argument kind, const char *type, void *options, size_t offset, size_t bytes)
{
    if (missing(i, kind)) return NULL;
    uint64_t *words = (uint64_t *)((char *)options + offset);
    if (wrong_at(i, kind, FIRST_RESERVED)) words[0] = 1;
    if (wrong_at(i, kind, LAST_RESERVED)) words[bytes / sizeof *words - 1] = 1ull << 63;
    if (trial.wrong == FIRST_RESERVED || trial.wrong == LAST_RESERVED) trial.options = type;
    return options;
}

static luge_list list(int i, argument kind, luge_tensor *first, luge_tensor *second)
{
    w.list[i][0] = first;
    w.list[i][1] = second;
    luge_list made = {w.list[i], second != NULL ? 2 : 1};
    if (wrong_at(i, kind, NO_ITEMS)) made.items = NULL;
    if (wrong_at(i, kind, NULL_ITEM)) w.list[i][made.count - 1] = NULL;
    if (wrong_at(i, kind, NONE_ITEM)) w.list[i][made.count - 1] = LUGE_NONE;
    if (wrong_at(i, kind, NEGATIVE_COUNT)) made.count = -1;
    if (is_odd(trial.wrong) && trial.at == i) w.list[i][made.count - 1] = w.odd[trial.wrong - FIRST_ODD];
    return made;
}

static luge_module **owned_modules(int i)
{
    if (missing(i, MODULES)) return NULL;
    w.modules[0] = w.body;
    w.modules[1] = wrong_at(i, MODULES, NULL_ITEM) ? NULL : w.shortcut;
    if (w.modules[1] != NULL) w.shortcut = NULL;
    w.body = NULL;
    trial.owned = true;
    return w.modules;
}

static bool released(luge_tensor *t)
{
    luge_release(t);
    return t != NULL;
}

/* Belongs to the caller's scope. */
static bool kept(luge_tensor *t)
{
    luge_scope scope = luge_scope_enter("");
    const bool done = luge_keep(t) != NULL;
    luge_scope_exit(scope, NULL);
    return done;
}

static double status_is_ok(luge_status status)
{
    if (status != luge_error()) trial.status_lies = true;
    return status == LUGE_OK;
}

#define T(i, t) tensor(i, t, TENSOR_ARGUMENT)
#define N(i, t) tensor(i, t, TENSOR_OR_NONE)
#define V(i, right, ...) (wrong_at(i, VALUE, BAD_VALUE) ? (__VA_ARGS__) : (right))
#define P(i, p) (missing(i, POINTER) ? NULL : (p))
#define Z(i, p) (missing(i, OPTIONAL) ? NULL : (p))
#define OWNED_AS(i, kind, p)                                    \
    ({                                                          \
        __typeof__(p) given_ = missing(i, kind) ? NULL : (p);   \
        if (given_ != NULL) {                                   \
            (p) = NULL;                                         \
            trial.owned = true;                                 \
        }                                                       \
        given_;                                                 \
    })
#define OWNED(i, p) OWNED_AS(i, POINTER, p)
#define OWNED_OR_NULL(i, p) OWNED_AS(i, OPTIONAL, p)
#define OWNED_MODULES(i) owned_modules(i)
#define O(i, type, ...) \
    with_reserved(i, OPTIONS, #type, &(type){__VA_ARGS__}, offsetof(type, reserved), sizeof(((type *)0)->reserved))
#define CLASS_AS(i, kind, type, p) \
    with_reserved(i, kind, type, p, (size_t)((char *)(p)->reserved - (char *)(p)), sizeof((p)->reserved))
#define CLASS(i, p) CLASS_AS(i, STRUCT, NULL, p)
#define CLASS_OR_NULL(i, p) CLASS_AS(i, OPTIONS, "luge_allocator", p)
#define LIST_(i, kind, a, b, ...) list(i, kind, a, b)
#define LIST(i, ...) LIST_(i, LIST_ARGUMENT, __VA_ARGS__, NULL, 0)
#define LISTN(i, ...) LIST_(i, LIST_OR_NONE, __VA_ARGS__, NULL, 0)

/* ---- the table: first each row as a function that returns what came of the call, as a number */

#define CALL(name, ...) \
    static double call_##name(void) { __VA_ARGS__ }
#define MAKES(type, name, destroy, ...) \
    CALL(name, type *made = name(__VA_ARGS__); destroy(made); return made != NULL;)
#define TENSOR(name, ...) CALL(name, return name(__VA_ARGS__) != NULL;)
#define CHILD(name, ...) CALL(name, return name(__VA_ARGS__) != NULL;)
#define MODULE(name, ...) MAKES(luge_module, name, luge_module_destroy, __VA_ARGS__)
#define OBJECT(kind, name, ...) MAKES(luge_##kind, name, luge_##kind##_destroy, __VA_ARGS__)
#define STATUS(name, ...) CALL(name, return status_is_ok(name(__VA_ARGS__));)
#define REFUSED(name, code, ...) CALL(name, return status_is_ok(name(__VA_ARGS__));)
#define COUNT(name, ...) CALL(name, return name(__VA_ARGS__) ? 1 : 0;)
#define VOID(name, ...) CALL(name, name(__VA_ARGS__); return 1;)
#define OPENS(name, ...) CALL(name, luge_scope opened = name(__VA_ARGS__); luge_scope_exit(opened, NULL); return 1;)
#define ENDS(name, ...) CALL(name, name(__VA_ARGS__); return 1;)
#define READS(name, of_null, value) CALL(name, return (double)(value);)
#define ASKS(name, on_error, value) CALL(name, return (double)(value);)
#define ELSEWHERE(name)
#include "tests/calls.def"

/* Then as data. */
#undef TENSOR
#undef CHILD
#undef MODULE
#undef OBJECT
#undef STATUS
#undef REFUSED
#undef COUNT
#undef VOID
#undef OPENS
#undef ENDS
#undef READS
#undef ASKS
#undef ELSEWHERE

typedef enum behaviour { ACTS, IS_REFUSED, ACTS_SILENTLY, ENDS_OR_OPENS, READS_ONLY, ASKS_ONLY, NOT_TRIED } behaviour;
typedef enum place { HERE, IN_BUILD, IN_GET } place;

static const struct row {
    const char *name;
    double (*call)(void);
    behaviour behaviour;
    place place;
    double otherwise;                     /* the result for NULL or on error; the code of a refusal */
} rows[] = {
#define ROW(name, behaviour, otherwise) {#name, call_##name, behaviour, WHERE, otherwise},
#define TENSOR(name, ...) ROW(name, ACTS, 0)
#define CHILD(name, ...) ROW(name, ACTS, 0)
#define MODULE(name, ...) ROW(name, ACTS, 0)
#define OBJECT(kind, name, ...) ROW(name, ACTS, 0)
#define STATUS(name, ...) ROW(name, ACTS, 0)
#define REFUSED(name, code, ...) ROW(name, IS_REFUSED, code)
#define COUNT(name, ...) ROW(name, ACTS, 0)
#define VOID(name, ...) ROW(name, ACTS_SILENTLY, 1)
#define OPENS(name, ...) ROW(name, ENDS_OR_OPENS, 1)
#define ENDS(name, ...) ROW(name, ENDS_OR_OPENS, 1)
#define READS(name, of_null, value) ROW(name, READS_ONLY, of_null)
#define ASKS(name, on_error, value) ROW(name, ASKS_ONLY, on_error)
#define ELSEWHERE(name) {#name, NULL, NOT_TRIED, HERE, 0},
#include "tests/calls.def"
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* ---- what is expected */

static const char first_error[] = "the first error";
static int complaints;

LUGE_PRINTF_LIKE(2, 3) static void complain(const struct row *r, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char at[32] = "";
    if (trial.wrong >= IS_NULL) snprintf(at, sizeof at, " as argument %d", trial.at);
    print_error("%s: with %s%s: %s\n", r->name, wrong_name[trial.wrong], at, text);
    ++complaints;
}

static bool same_number(double a, double b) { return a == b || (a != a && b != b); }

/* A name without its case, its underscores, and what only says that it is public. */
static void plain_name(char plain[64], const char *name, size_t length)
{
    static const char *const prefixes[] = {"luge_", "nn_"};
    for (int i = 0; i < 2; ++i) {
        const size_t n = strlen(prefixes[i]);
        if (length <= n || strncmp(name, prefixes[i], n) != 0) continue;
        name += n;
        length -= n;
    }
    size_t used = 0;
    for (size_t i = 0; i < length && used < 63; ++i)
        if (name[i] != '_') plain[used++] = (char)tolower((unsigned char)name[i]);
    plain[used] = '\0';
}

static bool has_name(const char *text, const char *name)
{
    char wanted[64], word[64];
    plain_name(wanted, name, strlen(name));
    while (*text != '\0') {
        const size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        plain_name(word, text, length);
        if (length > 0 && strcmp(wanted, word) == 0) return true;
        text += length + (text[length] != '\0');
    }
    return false;
}

/* Whether who reads the text knows what it is about: the function, by its name or that of its op or class ("add: ...",
 * "BatchNorm2d: ..."); what of the user's it calls; the options with the reserved word; or the device or file that
 * was asked for. */
static bool is_named(const struct row *r, const char *text)
{
    static const char *const users[][2] = {{"luge_custom", "scaled"},
                                           {"luge_module_create", "PassOn"},
                                           {"luge_module_add", "Trial"},
                                           {"luge_nn_sequential_array", "Sequential"},
                                           {"luge_nn_params", "ParameterList"},
                                           {"luge_forward", "Sequential"},
                                           {"luge_forward_list", "Sequential"},
                                           {"luge_forward_multi", "Sequential"},
                                           {"luge_module_summary", "Sequential"}};
    for (size_t i = 0; i < sizeof users / sizeof users[0]; ++i)
        if (strcmp(r->name, users[i][0]) == 0 && has_name(text, users[i][1])) return true;
    if (luge_error() == LUGE_ERR_DEVICE && strncmp(text, "device ", 7) == 0) return true;
    if (luge_error() == LUGE_ERR_IO && has_name(text, "nowhere")) return true;
    return has_name(text, r->name) || (trial.options != NULL && has_name(text, trial.options));
}

/* Whether what is wrong here is an error for this function. */
static bool must_fail(const struct row *r)
{
    if (trial.wrong == RIGHT) return r->behaviour == IS_REFUSED;
    if (is_odd(trial.wrong)) return !luge_ok(); /* many functions take many tensors */
    if (trial.wrong != IS_NULL) return true;
    const argument kind = trial.arguments[trial.at];
    return r->behaviour == IS_REFUSED || (kind != OPTIONAL && kind != OPTIONS);
}

static void check_error(const struct row *r, double result)
{
    luge_status wanted = trial.wrong == IS_NULL && r->behaviour != IS_REFUSED ? LUGE_ERR_ARGUMENT : luge_error();
    if (r->behaviour == IS_REFUSED && trial.wrong <= IS_NULL) wanted = (luge_status)r->otherwise;
    if (luge_ok()) {
        complain(r, "no error");
    } else if (luge_error() != wanted || luge_error_text()[0] == '\0') {
        complain(r, "error %d '%s'", (int)luge_error(), luge_error_text());
    }
    const double otherwise = r->behaviour == IS_REFUSED ? 0 : r->otherwise;
    if (!same_number(result, otherwise)) complain(r, "gives %g, not %g", result, otherwise);
    if (!is_named(r, luge_error_text())) complain(r, "the text does not name it: '%s'", luge_error_text());
}

static void check_success(const struct row *r, double result, double right)
{
    if (!luge_ok()) complain(r, "error %d '%s'", (int)luge_error(), luge_error_text());
    if (trial.wrong == RIGHT && r->behaviour == ACTS && result != 1) complain(r, "gives nothing");
    if (trial.wrong != IS_NULL) return;
    const double wanted = r->behaviour == READS_ONLY ? r->otherwise : right;
    if (!same_number(result, wanted)) complain(r, "gives %g, not %g", result, wanted);
}

static void check_standing(const struct row *r, double result, double right)
{
    if (luge_error() != LUGE_ERR_TIMEOUT || strstr(luge_error_text(), first_error) == NULL)
        complain(r, "the error became %d '%s'", (int)luge_error(), luge_error_text());
    const double wanted = r->behaviour == ACTS || r->behaviour == IS_REFUSED ? 0 : right;
    if (!same_number(result, wanted)) complain(r, "gives %g, not %g", result, wanted);
}

static void check_unchanged(const struct row *r, uint64_t state, luge_live_counts live)
{
    if (trial.owned) return;              /* end_world looks for leftovers */
    if (state_of_world() != state) complain(r, "something changed");
    luge_live_counts now = luge_live();
    /* A call that may try may make room for what it then does not add. */
    if (trial.wrong != STANDING) now.host_bytes = live.host_bytes;
    if (now.tensors != live.tensors || now.storages != live.storages || now.nodes != live.nodes ||
        now.objects != live.objects || now.host_bytes != live.host_bytes)
        complain(r, "left %d tensors, %d storages, %d nodes, %d objects, %d bytes", (int)(now.tensors - live.tensors),
                 (int)(now.storages - live.storages), (int)(now.nodes - live.nodes), (int)(now.objects - live.objects),
                 (int)(now.host_bytes - live.host_bytes));
}

/* Makes the call in a world of its own; in a callback, if that is the place. Returns the result. */
static double call_and_check(const struct row *r, double right)
{
    const luge_live_counts live = luge_live();
    const uint64_t state = state_of_world();
    luge_scope scope = luge_scope_enter("");
    if (trial.wrong == STANDING) luge_fail(LUGE_ERR_TIMEOUT, "%s", first_error);
    const double result = r->call();
    const bool failed = !luge_ok();
    if (trial.wrong == STANDING) {
        check_standing(r, result, right);
    } else if (must_fail(r)) {
        check_error(r, result);
    } else {
        check_success(r, result, right);
    }
    if (trial.status_lies) complain(r, "returns another status than luge_error()");
    luge_error_clear();
    luge_scope_exit(scope, NULL);
    if (failed) check_unchanged(r, state, live);
    return result;
}

/* ---- the places that a call is made in */

static const struct row *row_now;
static double right_now, result_now;

static void call_in_build(luge_module *self, void *state)
{
    (void)state;
    w.self = self;
    result_now = call_and_check(row_now, right_now);
}

static luge_status call_in_get(int64_t index, luge_rng *rng, luge_sample *sample, void *user)
{
    (void)index, (void)user;
    w.rng = rng;
    w.sample = sample;
    result_now = call_and_check(row_now, right_now);
    return luge_fail(LUGE_ERR_CALLBACK, "no more is wanted");
}

static double call_in_place(const struct row *r, double right)
{
    if (r->place == HERE) return call_and_check(r, right);
    row_now = r;
    right_now = right;
    if (r->place == IN_BUILD) {
        luge_module_destroy(luge_module_create(&(luge_module_class){.name = "Trial", .build = call_in_build}, NULL));
    } else {
        luge_rng rng = lg_rng_of_sample(1, 0, 0);
        luge_dataset dataset = {.type = {.size = 1, .get = call_in_get}};
        lg_slot slot = {0};
        lg_slot_reset(&slot, 1);
        lg_slot_fill(&slot, &dataset, 0, 0, &rng);
        lg_slot_release(&slot);
    }
    luge_error_clear();
    return result_now;
}

/* `arguments`: learned by the call. */
static double try_one(const struct row *r, wrong how, int at, double right, argument arguments[MAX_ARGUMENTS])
{
    const luge_live_counts before = luge_live();
    luge_scope scope = make_world();
    trial = (struct trial){.wrong = how, .at = at};
    const double result = call_in_place(r, right);
    end_world(scope);
    const luge_live_counts after = luge_live();
    if (after.tensors != before.tensors || after.nodes != before.nodes || after.objects != before.objects ||
        after.host_bytes != before.host_bytes)
        complain(r, "in the end %d tensors, %d nodes, %d objects, %d bytes are left", (int)(after.tensors - before.tensors),
                 (int)(after.nodes - before.nodes), (int)(after.objects - before.objects),
                 (int)(after.host_bytes - before.host_bytes));
    memcpy(arguments, trial.arguments, sizeof trial.arguments);
    return result;
}

/* ---- tests */

static bool can_be(argument kind, wrong how)
{
    switch (how) {
    case IS_NULL: return kind != NO_ARGUMENT && !is_list(kind) && kind != VALUE;
    case BAD_VALUE: return kind == VALUE;
    case IS_NONE: return kind == TENSOR_ARGUMENT;
    case FIRST_RESERVED:
    case LAST_RESERVED: return kind == OPTIONS || kind == STRUCT;
    case NULL_ITEM: return is_list(kind) || kind == MODULES;
    case NO_ITEMS:
    case NEGATIVE_COUNT: return is_list(kind);
    case NONE_ITEM: return kind == LIST_ARGUMENT;
    default: return is_odd(how) && (kind == TENSOR_ARGUMENT || kind == TENSOR_OR_NONE || is_list(kind));
    }
}

static void every_call_in_every_way(void **state)
{
    (void)state;
    complaints = 0;
    end_world(make_world());              /* what is made on first use */
    int tried = 0;
    for (int i = 0; i < ROWS; ++i) {
        argument arguments[MAX_ARGUMENTS], unused[MAX_ARGUMENTS];
        if (rows[i].behaviour == NOT_TRIED) continue;
        const double right = try_one(&rows[i], RIGHT, -1, 0, arguments);
        try_one(&rows[i], STANDING, -1, right, unused);
        for (int at = 0; at < MAX_ARGUMENTS; ++at) {
            for (wrong how = IS_NULL; how <= LAST_ODD; ++how) {
                if (!can_be(arguments[at], how)) continue;
                try_one(&rows[i], how, at, right, unused);
                ++tried;
            }
        }
    }
    print_message("%d functions, %d wrong arguments\n", (int)ROWS, tried);
    assert_int_equal(complaints, 0);
    assert_true(tried > ROWS);
}

static void every_function_is_listed(void **state)
{
    (void)state;
    static const char *const declared[] = {
#define FUNCTION(name) #name,
#include "public_functions.inc"
    };
    const int count = sizeof declared / sizeof declared[0];
    int missed = 0;
    for (int i = 0; i < count; ++i) {
        int times = 0;
        for (int k = 0; k < ROWS; ++k) times += strcmp(rows[k].name, declared[i]) == 0;
        if (times != 1) print_error("%s: %d rows in calls.def, not 1\n", declared[i], times);
        missed += times != 1;
    }
    assert_int_equal(missed, 0);
    assert_int_equal(count, ROWS);
}

/* ---- files that functions read */

static void write_file(const char *name, const unsigned char *bytes, size_t count)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

static int make_files(void **state)
{
    static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8},
                               labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 1, 0};
    assert_non_null(mkdtemp(directory));
    write_file("train-images-idx3-ubyte", images, sizeof images);
    write_file("train-labels-idx1-ubyte", labels, sizeof labels);
    luge_scope scope = make_world();
    assert_int_equal(luge_module_save(w.net, w.saved), LUGE_OK);
    assert_int_equal(luge_run_save(&w.run, w.saved_run), LUGE_OK);
    end_world(scope);
    return live_begin(state);
}

static int remove_files(void **state)
{
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "saved.safetensors",
                                        "new.safetensors", "run.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    const bool empty = rmdir(directory) == 0; /* and so no temporary file was forgotten */
    return live_end(state) != 0 || !empty;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_is_listed),
        cmocka_unit_test_setup_teardown(every_call_in_every_way, make_files, remove_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
