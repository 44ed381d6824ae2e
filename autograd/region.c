/* Regions that are run again in backward: see region.h. */
#include "autograd/region.h"

#include <luge/scope.h>
#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"

/* What a region has recorded, in order: a node or a region inside, each NULL when it is gone. */
typedef struct entity {
    lg_node *node;
    lg_region *region;
    char op[32];         /* the node's, "" for a region: what a second run must meet */
    uint64_t form;       /* of what it was given and made: likewise */
} entity;

struct lg_region {
    atomic_int refs;     /* of nodes, of regions inside, and of the run itself */
    pthread_mutex_t lock; /* of the entities and of what their nodes save; recursive */
    luge_tensor_fn fn;
    void *user;
    void (*release)(void *user);
    lg_modes modes;
    uint64_t seed, rng_offset;
    uint64_t first_new;  /* storages from this number on were made by the outermost region */
    bool open;           /* the first run goes on */
    int n_in;
    lg_saved *in;
    bool *wanted;        /* inputs that require a gradient */
    entity *entity;
    int64_t count, room;
    lg_region *outer;    /* the region that this one is in; a reference */
    int64_t place;       /* there */
    /* Of a second run: */
    lg_region *first;    /* what is run again */
    int64_t at;          /* how far */
};

/* ---- life */

static void drop_inputs(lg_region *r)
{
    for (int i = 0; i < r->n_in; ++i) lg_saved_drop(&r->in[i]);
}

static void forget_in(lg_region *outer, int64_t place)
{
    pthread_mutex_lock(&outer->lock);
    outer->entity[place].node = NULL;
    outer->entity[place].region = NULL;
    pthread_mutex_unlock(&outer->lock);
}

static void release_region(lg_region *r)
{
    while (r != NULL && atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) == 1) {
        lg_region *outer = r->outer;
        if (outer != NULL) forget_in(outer, r->place);
        drop_inputs(r);
        if (r->release != NULL) r->release(r->user);
        pthread_mutex_destroy(&r->lock);
        lg_free(r->entity);
        lg_free(r);
        r = outer;
    }
}

/* The block, with its arrays behind the struct. */
static lg_region *create(int n_in)
{
    const size_t in = (size_t)n_in * sizeof(lg_saved);
    lg_region *r = lg_alloc_zero(sizeof *r + in + (size_t)n_in * sizeof(bool));
    if (r == NULL) return NULL;
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&r->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    atomic_init(&r->refs, 1);
    r->in = (lg_saved *)(void *)(r + 1);
    r->wanted = (bool *)(void *)((char *)(r + 1) + in);
    r->n_in = n_in;
    return r;
}

/* The next entity, or NULL with the error set. */
static entity *append(lg_region *r)
{
    if (r->count == r->room) {
        const int64_t room = r->room == 0 ? 16 : 2 * r->room;
        entity *bigger = lg_resize(r->entity, (size_t)room * sizeof *bigger);
        if (bigger == NULL) return NULL;
        r->entity = bigger;
        r->room = room;
    }
    r->entity[r->count] = (entity){0};
    return &r->entity[r->count++];
}

/* ---- recording */

static luge_status differs(const lg_region *second, const char *now)
{
    const lg_region *r = second->first;
    const char *was = second->at < r->count ? r->entity[second->at].op : "nothing more";
    return lg_fail(LUGE_ERR_STATE,
                   "luge_checkpoint: the function does something else when it runs again: op %lld was %s and is now %s; it "
                   "may depend on its inputs and on Luge's random numbers alone",
                   (long long)second->at + 1, was[0] != '\0' ? was : "another checkpoint", now[0] != '\0' ? now : "another checkpoint");
}

static luge_status differs_in_form(const lg_region *second, const char *op)
{
    return lg_fail(LUGE_ERR_STATE,
                   "luge_checkpoint: the function does something else when it runs again: op %lld, %s, now has other shapes, "
                   "dtypes or inputs that require gradients, or a module trains that did not, or the other way round",
                   (long long)second->at + 1, op[0] != '\0' ? op : "a checkpoint");
}

/* In a second run: the entity of the first that this one stands for. NULL with the error set. */
static entity *follow(lg_region *second, const char *op, uint64_t form)
{
    lg_region *r = second->first;
    if (second->at >= r->count || strncmp(r->entity[second->at].op, op, sizeof r->entity[0].op - 1) != 0)
        differs(second, op);
    else if (r->entity[second->at].form != form)
        differs_in_form(second, op);
    else
        return &r->entity[second->at++];
    return NULL;
}

/* FNV-1a, of whole numbers. */
static uint64_t add_number(uint64_t form, uint64_t number)
{
    return (form ^ number) * 0x100000001b3u;
}

static uint64_t add_form(uint64_t form, const luge_tensor *t)
{
    if (t == NULL || lg_is_none(t)) return add_number(form, UINT64_MAX);
    form = add_number(form, (uint64_t)t->dtype << 8 | (uint64_t)t->shape.rank);
    for (int i = 0; i < t->shape.rank; ++i) form = add_number(form, (uint64_t)t->shape.dim[i]);
    return form;
}

/* Shapes and dtypes of a call, what its node saves, and what it writes: what two runs must agree on for one to
 * be given what the other has saved. Running statistics are absent in the second. */
static uint64_t form_of_call(const lg_call *call, uint32_t reads)
{
    uint64_t form = add_number(0xcbf29ce484222325u, (uint64_t)reads << 32 | call->mutates);
    for (int i = 0; i < call->n_in; ++i)
        if (i >= 32 || !(call->op->mutates >> i & 1u)) form = add_form(form, call->in[i]);
    for (int k = 0; k < call->n_out; ++k) form = add_form(form, call->out[k]);
    return form;
}

static uint64_t form_of_inputs(const lg_region *r)
{
    uint64_t form = add_number(0xcbf29ce484222325u, (uint64_t)r->n_in);
    for (int i = 0; i < r->n_in; ++i) form = add_number(add_form(form, r->in[i].tensor), r->wanted[i]);
    return form;
}

/* What is written in place into a tensor from outside is written once, so the second run cannot record it. */
static luge_status check_target(const lg_region *r, const lg_call *call)
{
    if (!call->in_place || call->in[0]->storage->id >= r->first_new) return LUGE_OK;
    return lg_fail(LUGE_ERR_STATE,
                   "luge_checkpoint: %s writes in place, as a part of the graph, into a tensor from outside of the function, "
                   "which cannot be done again; write into a luge_clone, or open LUGE_NO_GRAD() first",
                   call->op->name);
}

luge_status lg_region_join(lg_node *n, const lg_call *call, uint32_t reads)
{
    lg_region *r = lg_self()->modes.region;
    if (r == NULL) return LUGE_OK;
    const uint64_t form = form_of_call(call, reads);
    if (r->first != NULL) {
        if (follow(r, n->op->name, form) == NULL) return lg_error();
        n->region = r;
        n->place = r->at - 1;
        return LUGE_OK;
    }
    entity *e = check_target(r, call) == LUGE_OK ? append(r) : NULL;
    if (e == NULL) return lg_error();
    e->node = n;
    e->form = form;
    strncpy(e->op, n->op->name, sizeof e->op - 1);
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    n->region = r;
    n->place = r->count - 1;
    return LUGE_OK;
}

bool lg_region_drops(const lg_region *r, const luge_tensor *t)
{
    return r->first == NULL && t->storage->id >= r->first_new;
}

void lg_region_leave(lg_node *n)
{
    lg_region *r = n->region;
    n->region = NULL;
    if (r->first != NULL) return; /* of a second run */
    forget_in(r, n->place);
    release_region(r);
}

void lg_region_hand_over(lg_node *n)
{
    if (n->region->first == NULL) return;
    lg_node *to = n->region->first->entity[n->place].node;
    for (int i = 0; to != NULL && i < n->n_in + n->n_out; ++i)
        if (to->saved[i].absent) lg_saved_share(&to->saved[i], &n->saved[i]);
    n->region = NULL;
}

bool lg_region_is_outside(const luge_tensor *t)
{
    return t->storage->id < lg_self()->modes.again_from;
}

/* ---- inputs */

static luge_status keep_input(lg_region *r, int i, luge_tensor *t)
{
    if (lg_is_none(t)) return LUGE_OK;
    r->wanted[i] = t->requires_grad;
    if (!lg_saved_make(&r->in[i], t, t->requires_grad && t->node == NULL)) return lg_error();
    lg_saved_stamp(&r->in[i]);
    return LUGE_OK;
}

/* Inside another region its inputs are made again, too, if that one has made them. */
static void drop_made_inputs(lg_region *r)
{
    for (int i = 0; i < r->n_in; ++i) {
        if (r->in[i].tensor == NULL || !lg_region_drops(r, r->in[i].tensor)) continue;
        lg_saved_drop(&r->in[i]);
        r->in[i].absent = true;
    }
}

static bool lacks_inputs(const lg_region *r)
{
    for (int i = 0; i < r->n_in; ++i)
        if (r->in[i].absent) return true;
    return false;
}

static luge_status check_inputs(const lg_region *r, luge_status code, const char *text)
{
    for (int i = 0; i < r->n_in; ++i)
        if (r->in[i].tensor != NULL && !lg_saved_is_same(&r->in[i]))
            return lg_fail(code, "luge_checkpoint: input %d %s: the function cannot run again with what it was given", i, text);
    return LUGE_OK;
}

/* Inputs of a second run: leaves as they are, others as new leaves. */
static luge_tensor *input_again(const lg_region *r, int i)
{
    luge_tensor *t = r->in[i].tensor;
    if (t == NULL) return luge_none();
    if (t->requires_grad || !r->wanted[i]) return t;
    t = lg_borrow(lg_tensor_alias(t));
    if (t != NULL) lg_set_requires_grad(t, true);
    return t;
}

/* ---- the second run */

static luge_status run_again(lg_region *r, lg_region *second, luge_tensor **in)
{
    lg_thread *self = lg_self();
    lg_modes modes = r->modes;
    modes.region = second;
    modes.lines = self->modes.lines;
    modes.undo = NULL;
    modes.again_from = lg_storage_next();
    lg_mode_enter(modes, NULL, NULL);
    for (int i = 0; i < r->n_in && lg_ok(); ++i) in[i] = input_again(r, i);
    if (!lg_ok()) return lg_error();
    self->seed = r->seed;
    self->rng_offset = r->rng_offset;
    if (r->fn((luge_list){in, r->n_in}, r->user) == NULL && lg_ok())
        return lg_fail(LUGE_ERR_CALLBACK, "luge_checkpoint: the function gave NULL when it ran again and set no error");
    return lg_ok() && second->at < r->count ? differs(second, "nothing more") : lg_error();
}

static void take_back(lg_saved *saved, int count)
{
    for (int i = 0; i < count; ++i) {
        if (!saved[i].again) continue;
        lg_saved_drop(&saved[i]);
        saved[i].absent = true;
        saved[i].again = false;
    }
}

/* Takes back what a second run that failed has handed over. */
static void empty(lg_region *r)
{
    for (int64_t k = 0; k < r->count; ++k) {
        const entity *e = &r->entity[k];
        if (e->node != NULL) take_back(e->node->saved, e->node->n_in + e->node->n_out);
        if (e->region != NULL) take_back(e->region->in, e->region->n_in);
    }
}

static luge_status fill(lg_region *r)
{
    if (r->open)
        return lg_fail(LUGE_ERR_UNSUPPORTED, "luge_checkpoint: backward runs inside of the function, through what it has made");
    luge_status status = LUGE_OK;
    if (r->outer != NULL) { /* whose second run, on any thread, writes these inputs */
        pthread_mutex_lock(&r->outer->lock);
        if (lacks_inputs(r)) status = fill(r->outer);
        pthread_mutex_unlock(&r->outer->lock);
    }
    if (status == LUGE_OK) status = check_inputs(r, LUGE_ERR_GRAPH, "was changed in place since");
    if (status != LUGE_OK) return status;
    lg_thread *self = lg_self();
    const uint64_t seed = self->seed, offset = self->rng_offset;
    luge_tensor **in = lg_alloc((size_t)r->n_in * sizeof *in + 1);
    if (in == NULL) return lg_error();
    lg_region second = {.first = r};
    luge_scope scope = luge_scope_enter("again");
    if (lg_ok()) run_again(r, &second, in);
    status = luge_scope_exit(scope, NULL);
    self->seed = seed;
    self->rng_offset = offset;
    lg_free(in);
    if (status != LUGE_OK) empty(r);
    return status;
}

luge_status lg_region_fill(lg_node *n)
{
    lg_region *r = n->region;
    pthread_mutex_lock(&r->lock);
    bool absent = false;
    for (int i = 0; i < n->n_in + n->n_out; ++i) absent = absent || n->saved[i].absent;
    const luge_status status = absent ? fill(r) : LUGE_OK;
    pthread_mutex_unlock(&r->lock);
    return status;
}

/* ---- the first run */

/* A region inside of what the thread is recording; in a second run it also fills the one that it stands for. */
static luge_status nest(lg_region *r, lg_region *around)
{
    if (around == NULL) return LUGE_OK;
    if (around->first != NULL) {
        entity *e = follow(around, "", form_of_inputs(r));
        if (e == NULL) return lg_error();
        for (int i = 0; e->region != NULL && i < r->n_in; ++i)
            if (e->region->in[i].absent) lg_saved_share(&e->region->in[i], &r->in[i]);
        r->first_new = lg_self()->modes.again_from;
        return LUGE_OK; /* r itself is gone when its function returns */
    }
    entity *e = append(around);
    if (e == NULL) return lg_error();
    e->region = r;
    e->form = form_of_inputs(r);
    atomic_fetch_add_explicit(&around->refs, 1, memory_order_relaxed);
    r->outer = around;
    r->place = around->count - 1;
    r->first_new = around->first_new;
    return LUGE_OK;
}

static luge_tensor *run_first(lg_region *r, luge_list inputs, const char *what)
{
    lg_thread *self = lg_self();
    for (int i = 0; i < r->n_in; ++i)
        if (keep_input(r, i, inputs.items[i]) != LUGE_OK) return NULL;
    r->modes = self->modes;
    r->seed = self->seed;
    r->rng_offset = self->rng_offset;
    r->first_new = lg_storage_next();
    if (!self->modes.no_grad && nest(r, self->modes.region) != LUGE_OK) return NULL;

    luge_scope scope = luge_scope_enter("");
    lg_modes modes = self->modes;
    modes.region = r;
    lg_mode_enter(modes, NULL, NULL);
    r->open = true;
    luge_tensor *out = lg_ok() ? r->fn(inputs, r->user) : NULL;
    r->open = false;
    if (out == NULL && lg_ok()) lg_fail(LUGE_ERR_CALLBACK, "%s: the function gave NULL and set no error", what);
    if (lg_ok()) check_inputs(r, LUGE_ERR_STATE, "was changed in place by the function");
    if (r->outer != NULL) drop_made_inputs(r);
    return luge_scope_exit(scope, lg_ok() ? out : NULL) == LUGE_OK ? out : NULL;
}

static bool check_list(luge_list inputs, luge_tensor_fn fn, const char *what)
{
    if (fn == NULL || inputs.count < 0 || (inputs.count > 0 && inputs.items == NULL)) {
        lg_fail(LUGE_ERR_ARGUMENT, "%s: %s", what, fn == NULL ? "the function is NULL" : "the list of inputs is not one");
        return false;
    }
    for (int i = 0; i < inputs.count; ++i)
        if (!lg_is_none(inputs.items[i]) && !lg_check_tensor(inputs.items[i], what)) return false;
    return true;
}

luge_tensor *lg_region_run(luge_tensor_fn fn, luge_list inputs, void *user, void (*release)(void *user), const char *what)
{
    lg_region *r = lg_ok() && check_list(inputs, fn, what) ? create(inputs.count) : NULL;
    if (r == NULL) {
        if (release != NULL) release(user);
        return NULL;
    }
    r->fn = fn;
    r->user = user;
    r->release = release;
    luge_tensor *out = run_first(r, inputs, what);
    release_region(r);
    return out;
}

luge_tensor *luge_checkpoint(luge_tensor_fn fn, luge_list inputs, void *user)
{
    return lg_region_run(fn, inputs, user, NULL, "luge_checkpoint");
}
