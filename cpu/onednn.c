/* Primitives of oneDNN: how they are made with oneDNN 2 and 3, the cache of them, and how one is run by
 * one thread. The only file that includes oneDNN. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT */
#endif
#include "cpu/onednn.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/process.h"
#include "cpu/onednn_guard.h"

/* ---- one thread. With OpenMP, oneDNN asks the calling thread's setting when a primitive is made and
 * when it runs. With another runtime there is nothing to set. */

static struct {
    int (*get)(void);
    void (*set)(int);
} openmp;

static void guard_forks(void); /* the cache's lock */

/* OpenMP is looked up where oneDNN's own references are bound, so it is the same one, if any. */
static void prepare(void)
{
    guard_forks();
    void *get = dlsym(RTLD_DEFAULT, "omp_get_max_threads"), *set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (get == NULL || set == NULL) return;
    memcpy(&openmp.get, &get, sizeof get);
    memcpy(&openmp.set, &set, sizeof set);
}

/* libgomp takes some bytes at a thread's first setting, and ends the process if there are none. So it
 * is asked only while there is memory. */
static bool set_threads(int threads)
{
    enum { MORE_THAN_ENOUGH = 1 << 12 };
    if (openmp.get == NULL || openmp.get() == threads) return true;
    void *probe = lg_private_resize(NULL, MORE_THAN_ENOUGH);
    if (probe == NULL) return false;
    lg_private_free(probe);
    openmp.set(threads);
    return true;
}

bool lg_onednn_enter(lg_onednn_session *s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    s->threads = openmp.get == NULL ? 1 : openmp.get();
    return set_threads(1);
}

void lg_onednn_leave(const lg_onednn_session *s)
{
    if (openmp.get != NULL && openmp.get() != s->threads) openmp.set(s->threads);
}

/* ---- descriptions of memory and of convolutions: values in oneDNN 2, handles in oneDNN 3 */

enum { X, WEIGHT, BIAS, Y, OPERANDS };

typedef struct geometry {
    dnnl_dims_t stride, dilation, before, after;
} geometry;

#if DNNL_VERSION_MAJOR >= 3

typedef const_dnnl_memory_desc_t layout;
typedef dnnl_memory_desc_t own_layout;

static layout layout_of(const own_layout *d) { return *d; }
static void forget(own_layout *d) { if (*d != NULL) dnnl_memory_desc_destroy(*d); }
static dnnl_status_t describe(own_layout *d, int rank, const dnnl_dims_t dims, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(d, rank, dims, dnnl_f32, tag);
}

static dnnl_status_t describe_forward(dnnl_primitive_desc_t *to, dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                      const layout d[OPERANDS], const geometry *g)
{
    return dnnl_convolution_forward_primitive_desc_create(to, engine, dnnl_forward_training, dnnl_convolution_direct, d[X],
                                                          d[WEIGHT], d[BIAS], d[Y], g->stride, g->dilation, g->before, g->after, attr);
}
static dnnl_status_t describe_backward_input(dnnl_primitive_desc_t *to, dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                             const layout d[OPERANDS], const geometry *g, const_dnnl_primitive_desc_t forward)
{
    return dnnl_convolution_backward_data_primitive_desc_create(to, engine, dnnl_convolution_direct, d[X], d[WEIGHT], d[Y],
                                                                g->stride, g->dilation, g->before, g->after, forward, attr);
}
static dnnl_status_t describe_backward_weight(dnnl_primitive_desc_t *to, dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                              const layout d[OPERANDS], const geometry *g, const_dnnl_primitive_desc_t forward)
{
    return dnnl_convolution_backward_weights_primitive_desc_create(to, engine, dnnl_convolution_direct, d[X], d[WEIGHT], NULL, d[Y],
                                                                   g->stride, g->dilation, g->before, g->after, forward, attr);
}

#else

typedef const dnnl_memory_desc_t *layout;
typedef dnnl_memory_desc_t own_layout;

static layout layout_of(const own_layout *d) { return d->ndims == 0 ? NULL : d; }
static void forget(own_layout *d) { (void)d; }
static dnnl_status_t describe(own_layout *d, int rank, const dnnl_dims_t dims, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(d, rank, dims, dnnl_f32, tag);
}

static dnnl_status_t describe_forward(dnnl_primitive_desc_t *to, dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                      const layout d[OPERANDS], const geometry *g)
{
    dnnl_convolution_desc_t c;
    const dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &c, dnnl_forward_training, dnnl_convolution_direct, d[X], d[WEIGHT], d[BIAS], d[Y], g->stride, g->dilation, g->before, g->after);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(to, &c, attr, engine, NULL);
}
static dnnl_status_t describe_backward_input(dnnl_primitive_desc_t *to, dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                             const layout d[OPERANDS], const geometry *g, const_dnnl_primitive_desc_t forward)
{
    dnnl_convolution_desc_t c;
    const dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(
        &c, dnnl_convolution_direct, d[X], d[WEIGHT], d[Y], g->stride, g->dilation, g->before, g->after);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(to, &c, attr, engine, forward);
}
static dnnl_status_t describe_backward_weight(dnnl_primitive_desc_t *to, dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                              const layout d[OPERANDS], const geometry *g, const_dnnl_primitive_desc_t forward)
{
    dnnl_convolution_desc_t c;
    const dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(
        &c, dnnl_convolution_direct, d[X], d[WEIGHT], NULL, d[Y], g->stride, g->dilation, g->before, g->after);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(to, &c, attr, engine, forward);
}

#endif

/* ---- making primitives. Calls of oneDNN run inside lg_onednn_guard, so what they have made so far lies
 * in a struct outside, for the one place that destroys it. */

typedef struct entry {
    lg_onednn base; /* first: what callers hold */
    lg_onednn_key key;
    uint64_t hash, used; /* used: when, in calls */
    int users;
    dnnl_primitive_desc_t run_desc, repack_desc;
    dnnl_primitive_t run, repack; /* NULL: declined */
} entry;

/* Arguments of the three kinds, in the order of operands. */
static const int arguments[LG_ONEDNN_KINDS][OPERANDS] = {
    {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
    {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_DST},
    {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_DST},
};

static layout argument_layout(const_dnnl_primitive_desc_t desc, int argument)
{
    return dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, argument);
}

/* Shared by all primitives, made with the first. */
static dnnl_engine_t engine;
static dnnl_primitive_attr_t attr;

typedef struct making {
    entry *e;
    own_layout own[OPERANDS], plain; /* plain: the weight row-major */
    dnnl_primitive_desc_t forward;   /* a hint for backward */
} making;

static dnnl_status_t make_shared(void)
{
    if (engine == NULL) {
        const dnnl_status_t status = dnnl_engine_create(&engine, dnnl_cpu, 0);
        if (status != dnnl_success) return status;
    }
    if (attr != NULL) return dnnl_success;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_fpmath_mode(attr, dnnl_fpmath_mode_strict);
    if (status == dnnl_success) return status;
    dnnl_primitive_attr_destroy(attr);
    attr = NULL;
    return status;
}

static dnnl_status_t describe_operands(making *m)
{
    const lg_onednn_key *k = &m->e->key;
    const dnnl_dims_t x = {k->images, k->channels, k->size[0], k->size[1]}, y = {k->images, k->out_channels, k->out[0], k->out[1]};
    const dnnl_dims_t bias = {k->out_channels};
    const dnnl_dims_t whole = {k->out_channels, k->channels, k->kernel[0], k->kernel[1]};
    const dnnl_dims_t grouped = {k->groups, k->out_channels / k->groups, k->channels / k->groups, k->kernel[0], k->kernel[1]};
    const bool one = k->groups == 1;
    dnnl_status_t status = describe(&m->own[X], 4, x, dnnl_nhwc);
    if (status == dnnl_success) status = describe(&m->own[Y], 4, y, dnnl_nhwc);
    if (status == dnnl_success && k->with_bias) status = describe(&m->own[BIAS], 1, bias, dnnl_a);
    if (status == dnnl_success) status = describe(&m->own[WEIGHT], one ? 4 : 5, one ? whole : grouped, dnnl_format_tag_any);
    if (status == dnnl_success) status = describe(&m->plain, one ? 4 : 5, one ? whole : grouped, one ? dnnl_abcd : dnnl_abcde);
    return status;
}

static dnnl_status_t describe_run(making *m)
{
    const lg_onednn_key *k = &m->e->key;
    layout d[OPERANDS];
    geometry g;
    for (int i = 0; i < OPERANDS; ++i) d[i] = layout_of(&m->own[i]);
    for (int i = 0; i < 2; ++i) {
        g.stride[i] = k->stride[i];
        g.dilation[i] = k->dilation[i] - 1;
        g.before[i] = k->before[i];
        g.after[i] = k->after[i];
    }
    dnnl_primitive_desc_t *to = &m->e->run_desc;
    if (k->kind == LG_ONEDNN_FORWARD) return describe_forward(to, engine, attr, d, &g);
    const dnnl_status_t status = describe_forward(&m->forward, engine, attr, d, &g);
    if (status != dnnl_success) return status;
    return k->kind == LG_ONEDNN_BACKWARD_INPUT ? describe_backward_input(to, engine, attr, d, &g, m->forward)
                                               : describe_backward_weight(to, engine, attr, d, &g, m->forward);
}

/* "ref:any" and its like are hundreds of times slower than the others. */
static bool is_reference(const_dnnl_primitive_desc_t desc)
{
    const char *name = "";
    return dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) != dnnl_success || strstr(name, "ref") != NULL;
}

static dnnl_status_t make_repack(making *m)
{
    entry *e = m->e;
    const layout packed = argument_layout(e->run_desc, arguments[e->key.kind][WEIGHT]), plain = layout_of(&m->plain);
    const bool back = e->key.kind == LG_ONEDNN_BACKWARD_WEIGHT;
    const dnnl_status_t status =
        dnnl_reorder_primitive_desc_create(&e->repack_desc, back ? packed : plain, engine, back ? plain : packed, engine, NULL);
    return status != dnnl_success ? status : dnnl_primitive_create(&e->repack, e->repack_desc);
}

static int make(void *data)
{
    making *m = data;
    entry *e = m->e;
    dnnl_status_t status = make_shared();
    if (status == dnnl_success) status = describe_operands(m);
    if (status == dnnl_success) status = describe_run(m);
    if (status == dnnl_success && is_reference(e->run_desc)) status = dnnl_unimplemented;
    if (status == dnnl_success) status = dnnl_primitive_create(&e->run, e->run_desc);
    if (status == dnnl_success) status = make_repack(m);
    if (status != dnnl_success) return (int)status;
    e->base.packed_bytes = (int64_t)dnnl_memory_desc_get_size(argument_layout(e->run_desc, arguments[e->key.kind][WEIGHT]));
    e->base.scratch_bytes = (int64_t)dnnl_memory_desc_get_size(argument_layout(e->run_desc, DNNL_ARG_SCRATCHPAD));
    return dnnl_success;
}

static void unmake(entry *e)
{
    if (e->repack != NULL) dnnl_primitive_destroy(e->repack);
    if (e->run != NULL) dnnl_primitive_destroy(e->run);
    if (e->repack_desc != NULL) dnnl_primitive_desc_destroy(e->repack_desc);
    if (e->run_desc != NULL) dnnl_primitive_desc_destroy(e->run_desc);
    e->repack = e->run = NULL;
    e->repack_desc = e->run_desc = NULL;
}

/* A new entry, also for what oneDNN does not have; NULL: out of memory. */
static entry *create_entry(const lg_onednn_key *key, uint64_t hash)
{
    entry *e = lg_private_resize(NULL, sizeof *e);
    if (e == NULL) return NULL;
    *e = (entry){.key = *key, .hash = hash};
    making m = {.e = e};
    const int status = lg_onednn_guard(make, &m);
    for (int i = 0; i < OPERANDS; ++i) forget(&m.own[i]);
    forget(&m.plain);
    if (m.forward != NULL) dnnl_primitive_desc_destroy(m.forward);
    if (status == dnnl_success) return e;
    unmake(e);
    if (status == dnnl_unimplemented || status == dnnl_invalid_arguments) return e;
    lg_private_free(e);
    return NULL;
}

static void destroy_entry(entry *e)
{
    unmake(e);
    lg_private_free(e);
}

/* ---- the cache. Primitives are made while the lock is held, so that a fork, which waits for it, does
 * not find oneDNN's own locks taken. */

static struct {
    pthread_mutex_t lock;
    entry *at[LG_ONEDNN_CACHE];
    int n;
    uint64_t time;
    bool closed; /* the library goes */
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void guard_forks(void) { lg_fork_guard(&cache.lock); }

static uint64_t hash_of(const lg_onednn_key *key)
{
    enum { WORDS = sizeof *key / sizeof(int64_t) };
    int64_t words[WORDS];
    memcpy(words, key, sizeof words);
    uint64_t h = 0;
    for (int i = 0; i < WORDS; ++i) h = (h ^ (uint64_t)words[i]) * 0x9E3779B97F4A7C15u;
    return h;
}

static entry *find(const lg_onednn_key *key, uint64_t hash)
{
    for (int i = 0; i < cache.n; ++i)
        if (cache.at[i]->hash == hash && memcmp(&cache.at[i]->key, key, sizeof *key) == 0) return cache.at[i];
    return NULL;
}

/* A place for one more: that of the one not used for longest. NULL if all are in use. */
static entry **free_place(void)
{
    if (cache.n < LG_ONEDNN_CACHE) {
        cache.at[cache.n] = NULL;
        return &cache.at[cache.n++];
    }
    entry **oldest = NULL;
    for (int i = 0; i < cache.n; ++i)
        if (cache.at[i]->users == 0 && (oldest == NULL || cache.at[i]->used < (*oldest)->used)) oldest = &cache.at[i];
    if (oldest != NULL) destroy_entry(*oldest);
    return oldest;
}

static entry *find_or_make(const lg_onednn_key *key)
{
    const uint64_t hash = hash_of(key);
    entry *e = find(key, hash);
    if (e != NULL || cache.closed) return e;
    e = create_entry(key, hash);
    if (e == NULL) return NULL;
    entry **place = free_place();
    if (place != NULL) {
        *place = e;
        return e;
    }
    destroy_entry(e);
    return NULL;
}

int lg_onednn_get(const lg_onednn_key *key, lg_onednn **primitive)
{
    pthread_mutex_lock(&cache.lock);
    entry *e = find_or_make(key);
    int status = LUGE_ERR_OUT_OF_MEMORY;
    if (e != NULL) {
        e->used = ++cache.time;
        status = e->run != NULL ? LUGE_OK : LG_DECLINED; /* a declined one may be gone once the lock is open */
        if (status == LUGE_OK) {
            ++e->users;
            *primitive = &e->base;
        }
    }
    pthread_mutex_unlock(&cache.lock);
    return status;
}

void lg_onednn_put(lg_onednn *primitive)
{
    pthread_mutex_lock(&cache.lock);
    --((entry *)(void *)primitive)->users;
    pthread_mutex_unlock(&cache.lock);
}

int lg_onednn_cached(void)
{
    pthread_mutex_lock(&cache.lock);
    const int n = cache.n;
    pthread_mutex_unlock(&cache.lock);
    return n;
}

/* ---- running */

typedef struct running {
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    int n;
    dnnl_exec_arg_t argument[OPERANDS + 1];
    layout layout[OPERANDS + 1];
    void *data[OPERANDS + 1];
} running;

static void add(running *r, const_dnnl_primitive_desc_t desc, int argument, void *data)
{
    r->argument[r->n].arg = argument;
    r->layout[r->n] = argument_layout(desc, argument);
    r->data[r->n++] = data;
}

static int execute(void *data)
{
    running *r = data;
    dnnl_status_t status = dnnl_stream_create(&r->stream, engine, dnnl_stream_default_flags);
    for (int i = 0; i < r->n && status == dnnl_success; ++i)
        status = dnnl_memory_create(&r->argument[i].memory, r->layout[i], engine, r->data[i]);
    if (status == dnnl_success) status = dnnl_primitive_execute(r->primitive, r->stream, r->n, r->argument);
    if (status == dnnl_success) status = dnnl_stream_wait(r->stream);
    return (int)status;
}

static bool run(running *r)
{
    if (!set_threads(1)) return false;
    const int status = lg_onednn_guard(execute, r);
    for (int i = 0; i < r->n; ++i)
        if (r->argument[i].memory != NULL) dnnl_memory_destroy(r->argument[i].memory);
    if (r->stream != NULL) dnnl_stream_destroy(r->stream);
    return status == dnnl_success;
}

bool lg_onednn_same_packing(const lg_onednn *a, const lg_onednn *b)
{
    const entry *p = (const entry *)(const void *)a, *q = (const entry *)(const void *)b;
    return dnnl_memory_desc_equal(argument_layout(p->run_desc, arguments[p->key.kind][WEIGHT]),
                                  argument_layout(q->run_desc, arguments[q->key.kind][WEIGHT])) != 0;
}

bool lg_onednn_repack(const lg_onednn *primitive, const void *from, void *to)
{
    const entry *e = (const entry *)(const void *)primitive;
    void *source; /* which oneDNN only reads */
    memcpy(&source, &from, sizeof source);
    running r = {.primitive = e->repack};
    add(&r, e->repack_desc, DNNL_ARG_FROM, source);
    add(&r, e->repack_desc, DNNL_ARG_TO, to);
    return run(&r);
}

bool lg_onednn_run(const lg_onednn *primitive, void *x, void *weight, void *bias, void *y, void *scratch)
{
    const entry *e = (const entry *)(const void *)primitive;
    void *operand[OPERANDS] = {[X] = x, [WEIGHT] = weight, [BIAS] = bias, [Y] = y};
    running r = {.primitive = e->run};
    for (int i = 0; i < OPERANDS; ++i)
        if (i != BIAS || e->key.with_bias) add(&r, e->run_desc, arguments[e->key.kind][i], operand[i]);
    if (e->base.scratch_bytes > 0) add(&r, e->run_desc, DNNL_ARG_SCRATCHPAD, scratch);
    return run(&r);
}

/* ---- unloading. What another thread still makes or runs stays. */

__attribute__((destructor)) static void release_cache(void)
{
    if (pthread_mutex_trylock(&cache.lock) != 0) return;
    cache.closed = true;
    int kept = 0;
    for (int i = 0; i < cache.n; ++i) {
        if (cache.at[i]->users == 0)
            destroy_entry(cache.at[i]);
        else
            cache.at[kept++] = cache.at[i];
    }
    cache.n = kept;
    if (kept == 0 && attr != NULL) dnnl_primitive_attr_destroy(attr);
    if (kept == 0 && engine != NULL) dnnl_engine_destroy(engine);
    if (kept == 0) {
        attr = NULL;
        engine = NULL;
    }
    pthread_mutex_unlock(&cache.lock);
}
