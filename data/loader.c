/* The loader: says which samples make a batch, in which order, and hands them out. Everything it does
 * is a function of seed, epoch and position, so any number of workers would give the same batches; in
 * this version the calling thread does the work. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include <luge/scope.h>
#include "core/alloc.h"
#include "core/services.h"
#include "core/thread.h"
#include "data/dataset.h"
#include "data/loader.h"

#define PROGRESS_SECONDS 0.1

struct luge_loader {
    luge_dataset *dataset;   /* owned */
    luge_loader_options options;
    uint64_t seed;
    int64_t batch_size;
    lg_slot slot;            /* where batches are filled; on the CPU the one given out last */
    lg_device *device;       /* where they arrive */
    luge_tensor *arrived[LG_FIELDS]; /* the batch given out last, on another device; owns references */
    int64_t *order;          /* [size] indices of this epoch's samples; NULL: as they lie in the dataset */
    int epoch;
    bool in_epoch;           /* between an epoch's first batch and its end */
    bool busy;               /* inside luge_loader_next */
    int64_t position;        /* samples of this epoch that were given out */
    int64_t batch_index;
    double started, reported; /* when the epoch began; when progress was told last */
};

/* ---- making and destroying */

static bool check_options(const luge_loader_options *o)
{
    if (!lg_check_reserved(o->reserved, 7, "luge_loader_options")) return false;
    if (o->workers < LUGE_AUTO) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_loader_create: workers is %d, not 0 or more or LUGE_AUTO", o->workers);
    } else if (o->prefetch < 0) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_loader_create: prefetch is %d batches", o->prefetch);
    } else if (!(o->timeout >= 0)) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_loader_create: timeout is %g seconds", o->timeout);
    } else {
        lg_device_get(o->device);
    }
    return lg_ok();
}

static bool check_arguments(const luge_dataset *dataset, int64_t batch_size, const luge_loader_options *options)
{
    if (!lg_ok()) return false;
    if (dataset == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_loader_create: the dataset is NULL");
    } else if (batch_size < 1) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_loader_create: a batch size of %" PRId64, batch_size);
    } else {
        check_options(options);
    }
    return lg_ok();
}

/* A seed of its own from the thread's random numbers, so that loading never draws from them again. */
static uint64_t draw_seed(void)
{
    const lg_rng_range range = lg_rng_take(4);
    const lg_philox p = lg_philox_block(range.seed, range.stream, range.first);
    return (uint64_t)p.v[0] << 32 | p.v[1];
}

static int64_t *make_order(int64_t size)
{
    if ((uint64_t)size > SIZE_MAX / sizeof(int64_t)) {
        lg_fail(LUGE_ERR_OUT_OF_MEMORY, "luge_loader_create: %" PRId64 " samples are too many to shuffle", size);
        return NULL;
    }
    return lg_alloc((size_t)size * sizeof(int64_t));
}

static luge_loader *make_loader(luge_dataset *dataset, int64_t batch_size, const luge_loader_options *options)
{
    luge_loader *l = lg_alloc_zero(sizeof *l);
    if (l == NULL) return NULL;
    if (options->shuffle && (l->order = make_order(dataset->type.size)) == NULL) {
        lg_free(l);
        return NULL;
    }
    l->dataset = dataset;
    l->batch_size = batch_size;
    l->options = *options;
    l->device = lg_device_get(options->device);
    l->slot.memory = l->device->pinned;
    l->seed = options->seed != NULL ? *options->seed : draw_seed();
    l->options.seed = NULL; /* it pointed at the caller's */
    lg_count_object(1);
    return l;
}

luge_loader *luge_loader_create(luge_dataset *dataset, int64_t batch_size, const luge_loader_options *options)
{
    static const luge_loader_options defaults;
    if (dataset != NULL && dataset->owned) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_loader_create: the dataset belongs to another loader; make it once for each");
        return NULL;
    }
    if (options == NULL) options = &defaults;
    luge_loader *l = check_arguments(dataset, batch_size, options) ? make_loader(dataset, batch_size, options) : NULL;
    if (l == NULL) {
        luge_dataset_destroy(dataset);
    } else {
        dataset->owned = true;
    }
    return l;
}

static void release_arrived(luge_loader *l)
{
    for (int f = 0; f < LG_FIELDS; ++f) {
        luge_release(l->arrived[f]);
        l->arrived[f] = NULL;
    }
}

void luge_loader_destroy(luge_loader *loader)
{
    if (loader == NULL) return;
    lg_slot_release(&loader->slot);
    release_arrived(loader);
    lg_dataset_free(loader->dataset);
    lg_free(loader->order);
    lg_count_object(-1);
    lg_free(loader);
}

/* ---- questions */

int luge_loader_epoch(const luge_loader *loader) { return loader == NULL ? 0 : loader->epoch; }

int64_t luge_loader_batch_size(const luge_loader *loader) { return loader == NULL ? 0 : loader->batch_size; }

static int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

int64_t luge_loader_batches(const luge_loader *loader, int window)
{
    if (loader == NULL || window < 1) {
        if (lg_ok()) {
            lg_fail(LUGE_ERR_ARGUMENT, loader == NULL ? "luge_loader_batches: the loader is NULL"
                                                      : "luge_loader_batches: a window of %d batches", window);
        }
        return 0;
    }
    const int64_t size = loader->dataset->type.size, batch = loader->batch_size;
    return divide_up(loader->options.drop_last ? size / batch : divide_up(size, batch), window);
}

luge_status luge_loader_set_batch_size(luge_loader *loader, int64_t batch_size)
{
    if (!lg_ok()) return lg_error();
    if (loader == NULL) return lg_fail(LUGE_ERR_ARGUMENT, "luge_loader_set_batch_size: the loader is NULL");
    if (batch_size < 1)
        return lg_fail(LUGE_ERR_ARGUMENT, "luge_loader_set_batch_size: a batch size of %" PRId64, batch_size);
    loader->batch_size = batch_size;
    return LUGE_OK;
}

/* ---- progress */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tells of the samples that the caller has had, not of those it is about to get. */
static void report(luge_loader *l, bool epoch_ends)
{
    if (l->options.progress == NULL) return;
    const double time = now();
    if (!epoch_ends && time - l->reported < PROGRESS_SECONDS) return;
    const double seconds = time - l->started;
    const double size = (double)l->dataset->type.size, samples = (double)l->position;
    const luge_progress p = {
        .epoch = l->epoch,
        .done = epoch_ends ? 1 : samples / size,
        .samples = l->position,
        .samples_per_second = seconds > 0 ? samples / seconds : 0,
        .seconds_left = !epoch_ends && samples > 0 ? seconds / samples * (size - samples) : 0,
    };
    l->reported = time;
    l->options.progress(&p, l->options.user);
}

/* ---- batches */

static void shuffle(int64_t *order, int64_t n, luge_rng rng)
{
    for (int64_t i = 0; i < n; ++i) order[i] = i;
    for (int64_t i = n - 1; i > 0; --i) {
        const int64_t k = luge_rng_below(&rng, i + 1), other = order[k];
        order[k] = order[i];
        order[i] = other;
    }
}

static void begin_epoch(luge_loader *l)
{
    if (l->order != NULL) shuffle(l->order, l->dataset->type.size, lg_rng_of_order(l->seed, l->epoch));
    l->in_epoch = true;
    l->position = 0;
    l->batch_index = 0;
    l->started = l->reported = now();
}

static void end_epoch(luge_loader *l)
{
    l->in_epoch = false;
    ++l->epoch;
}

static luge_status fill_one(luge_loader *l, int64_t row, int64_t index)
{
    luge_rng rng = lg_rng_of_sample(l->seed, l->epoch, index);
    const double began = l->options.timeout > 0 ? now() : 0;
    if (lg_slot_fill(&l->slot, l->dataset, row, index, &rng) != LUGE_OK) return lg_error();
    if (l->options.timeout > 0 && now() - began > l->options.timeout) {
        return lg_fail(LUGE_ERR_TIMEOUT, "sample %" PRId64 ": took %.1f s, the loader's timeout is %.1f s", index,
                       now() - began, l->options.timeout);
    }
    return LUGE_OK;
}

static luge_status fill_batch(luge_loader *l, int64_t size)
{
    lg_slot_reset(&l->slot, size);
    if (l->dataset->type.get == NULL) return lg_slot_gather(&l->slot, l->dataset, l->order, l->position);
    for (int64_t row = 0; row < size; ++row) {
        const int64_t place = l->position + row;
        if (fill_one(l, row, l->order != NULL ? l->order[place] : place) != LUGE_OK) return lg_error();
    }
    return LUGE_OK;
}

/* Sends the filled slot on its way to the loader's device, beside what that computes. Its memory is given
 * back at once, and given out again when the device has read it. */
static luge_status send(luge_loader *l)
{
    release_arrived(l);
    luge_scope scope = luge_scope_enter("loader");
    luge_no_grad_enter();
    for (int f = 0; f < LG_FIELDS && lg_ok(); ++f) {
        if (l->slot.tensor[f] == NULL) continue;
        l->arrived[f] = luge_retain(luge_to(l->slot.tensor[f], l->device->id, &(luge_to_options){.non_blocking = true}));
    }
    luge_scope_exit(scope, NULL);
    lg_slot_release(&l->slot);
    return lg_error();
}

/* LUGE_OK with an empty batch: the epoch is over. What fails leaves the place in the epoch as it was. */
static luge_status next_batch(luge_loader *l, luge_batch *batch)
{
    if (!l->in_epoch) begin_epoch(l);
    const int64_t left = l->dataset->type.size - l->position;
    const int64_t size = left < l->batch_size ? left : l->batch_size;
    const bool ends = size == 0 || (l->options.drop_last && size < l->batch_size);
    if (ends || l->position > 0) report(l, ends);
    if (ends) end_epoch(l);
    if (ends || !lg_ok()) return lg_error(); /* that of the progress callback */

    if (fill_batch(l, size) != LUGE_OK) return lg_error();
    const bool away = !lg_on_host(l->device);
    if (away && send(l) != LUGE_OK) return lg_error();
    luge_tensor *const *field = away ? l->arrived : l->slot.tensor, *target = field[LG_FIELD_TARGET];
    *batch = (luge_batch){
        .input = field[LG_FIELD_INPUT],
        .target = target != NULL ? target : luge_none(),
        .size = size,
        .index = l->batch_index++,
    };
    l->position += size;
    return LUGE_OK;
}

/* ---- where it is */

enum { SEED, EPOCH, IN_EPOCH, POSITION, BATCH_INDEX, BATCH_SIZE };

void lg_loader_get(const luge_loader *l, int64_t numbers[LG_LOADER_NUMBERS])
{
    numbers[SEED] = (int64_t)l->seed;
    numbers[EPOCH] = l->epoch;
    numbers[IN_EPOCH] = l->in_epoch;
    numbers[POSITION] = l->position;
    numbers[BATCH_INDEX] = l->batch_index;
    numbers[BATCH_SIZE] = l->batch_size;
}

luge_status lg_loader_check(const luge_loader *l, const int64_t numbers[LG_LOADER_NUMBERS])
{
    const bool good = numbers[EPOCH] >= 0 && numbers[EPOCH] <= INT32_MAX && numbers[IN_EPOCH] >> 1 == 0 && numbers[POSITION] >= 0 &&
                      numbers[POSITION] <= l->dataset->type.size && numbers[BATCH_INDEX] >= 0 && numbers[BATCH_SIZE] >= 1;
    return good ? LUGE_OK
                : lg_fail(LUGE_ERR_FORMAT, "epoch %" PRId64 ", sample %" PRId64 " of %" PRId64 ": no place of this loader",
                          numbers[EPOCH], numbers[POSITION], l->dataset->type.size);
}

void lg_loader_set(luge_loader *l, const int64_t numbers[LG_LOADER_NUMBERS])
{
    l->seed = (uint64_t)numbers[SEED];
    l->epoch = (int)numbers[EPOCH];
    l->batch_size = numbers[BATCH_SIZE];
    l->in_epoch = false;
    if (numbers[IN_EPOCH] != 0) begin_epoch(l);
    l->position = numbers[POSITION];
    l->batch_index = numbers[BATCH_INDEX];
}

bool luge_loader_next(luge_loader *loader, luge_batch *batch)
{
    if (batch != NULL) *batch = (luge_batch){0};
    if (!lg_ok()) return false;
    if (loader == NULL || batch == NULL) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_loader_next: the %s is NULL", loader == NULL ? "loader" : "batch");
        return false;
    }
    if (loader->busy) {
        lg_fail(LUGE_ERR_STATE, "luge_loader_next: called from one of the loader's own callbacks");
        return false;
    }
    loader->busy = true;
    const luge_status status = next_batch(loader, batch);
    loader->busy = false;
    return status == LUGE_OK && batch->size > 0;
}
