/** @file data.h
 *  Datasets, the loader and meters. */
#ifndef LUGE_DATA_H
#define LUGE_DATA_H

#include <luge/base.h>
#include <luge/status.h>

LUGE_BEGIN_C

/** Which part of a dataset. */
typedef enum luge_part {
    LUGE_TRAIN, /**< For training. */
    LUGE_TEST   /**< For testing. */
} luge_part;

/** A dataset of the user's. `get` runs on several threads at once and must not change `user`. */
typedef struct luge_dataset_class {
    int64_t size; /**< Number of samples; may be 0. */
    /** Fills one sample with luge_sample_field; draws only from `rng`, which depends on seed, epoch
     *  and index alone. */
    luge_status (*get)(int64_t index, luge_rng *rng, luge_sample *sample, void *user);
    void (*destroy)(void *user); /**< May be NULL. */
    void *user;                  /**< Passed to both. */
    LUGE_RESERVED(4);            /**< Zero. */
} luge_dataset_class;

/** A dataset of callbacks. On error `user` is destroyed. */
LUGE_API luge_dataset *luge_dataset_create(const luge_dataset_class *type);
/** MNIST, Fashion-MNIST or anything else in idx files named like theirs, plain or .gz, in `dir`:
 *  "input" f32 [1, rows, columns], "target" an i64 scalar. Pixels are shifted and scaled so that those
 *  of the training images have mean 0 and deviation 1, for both parts; where the training images are
 *  absent, the test part uses its own. */
LUGE_API luge_dataset *luge_dataset_mnist(const char *dir, luge_part part);
/** Samples of two tensors, [n, ...] each, which are retained: "input" and "target" (or LUGE_NONE).
 *  Tensors that are not contiguous are copied. */
LUGE_API luge_dataset *luge_dataset_tensors(luge_tensor *input, luge_tensor *target);
/** Number of samples; 0 for NULL. */
LUGE_API int64_t luge_dataset_size(const luge_dataset *dataset);
/** Destroys a dataset that no loader owns (one that a loader owns is left alone, with a warning in the
 *  log); NULL is fine. */
LUGE_API void luge_dataset_destroy(luge_dataset *dataset);

/** Room for one tensor of the sample, in the batch itself; uninitialised. Fields are "input", which
 *  every sample has, and "target"; dtypes and shapes are the same for all samples. @return NULL on error */
LUGE_API void *luge_sample_field(luge_sample *sample, const char *name, luge_dtype dtype, luge_shape shape);
/** Sets "target" to an i64 scalar. */
LUGE_API luge_status luge_sample_set_label(luge_sample *sample, int64_t label);
/** Uniform in [low, high); `low` if both are equal. */
LUGE_API double luge_rng_uniform(luge_rng *rng, double low, double high);
/** Standard normal. */
LUGE_API double luge_rng_normal(luge_rng *rng);
/** An integer of [0, bound); bound > 0. */
LUGE_API int64_t luge_rng_below(luge_rng *rng, int64_t bound);

/** Reads one idx file of u8, plain or gzip (by content, not name): u8 [sizes of the file], on the CPU.
 *  The sizes are checked against what the file can hold before anything is allocated; bytes that are
 *  missing or too many are LUGE_ERR_FORMAT. */
LUGE_API luge_tensor *luge_read_idx(const char *path);

/** One batch: the loader's, until its next luge_loader_next. */
typedef struct luge_batch {
    luge_tensor *input;  /**< [size, ...] */
    luge_tensor *target; /**< [size, ...]; LUGE_NONE if samples have none. */
    int64_t size;        /**< Items. */
    int64_t index;       /**< Of the batch in its epoch. */
    LUGE_RESERVED(8);    /**< Zero. */
} luge_batch;

/** How far an epoch is. */
typedef struct luge_progress {
    int epoch;                 /**< Epochs finished. */
    double done;               /**< 0 to 1 of the epoch. */
    int64_t samples;           /**< Of this epoch. */
    double samples_per_second; /**< In this epoch, so far. */
    double seconds_left;       /**< Of this epoch. */
} luge_progress;
/** Hears of progress: from luge_loader_next, on its thread, at most ten times a second and at an epoch's end. */
typedef void (*luge_progress_fn)(const luge_progress *progress, void *user);

enum {
    LUGE_AUTO = -1 /**< "Choose for me." */
};

/** How a loader loads. Batches and their contents depend on seed, epoch and position alone, so results
 *  are the same for any `workers` and `prefetch`. In this version the calling thread loads whatever they
 *  say, and `timeout` is noticed when the sample has come. */
typedef struct luge_loader_options {
    bool shuffle;       /**< Another order each epoch. PyTorch: shuffle. */
    bool drop_last;     /**< Leave out a short last batch. PyTorch: drop_last. */
    int workers;        /**< 0: in the calling thread; LUGE_AUTO: by the number of cores. PyTorch: num_workers. */
    int prefetch;       /**< Batches per worker; 2. PyTorch: prefetch_factor. */
    double timeout;     /**< Seconds for one sample; 0: no limit. PyTorch: timeout. */
    luge_device device; /**< Where batches arrive; the default device. */
    luge_progress_fn progress; /**< Hears of progress. */
    void *user;         /**< Passed to progress. */
    const uint64_t *seed; /**< Of order and augmentation; unset: drawn once from this thread's random numbers. */
    LUGE_RESERVED(7);   /**< Zero. */
} luge_loader_options;

/** A loader; owns `dataset` from then on, even on error. batch_size >= 1. */
LUGE_API luge_loader *luge_loader_create(luge_dataset *dataset, int64_t batch_size, const luge_loader_options *options);
/** True: `batch` holds the next one. False: the epoch is over (the next call begins another), or this
 *  thread has an error; `batch` is then all zero. A batch that something still refers to (a graph,
 *  luge_retain) is not overwritten: the loader takes another buffer. A sample that fails is an error
 *  that names it, "sample 4711: ..."; after luge_error_clear the same batch is tried again. */
LUGE_API bool luge_loader_next(luge_loader *loader, luge_batch *batch);
/** Epochs finished; 0 for NULL. */
LUGE_API int luge_loader_epoch(const luge_loader *loader);
/** Windows of `window` (>= 1) batches in an epoch of the present batch size, rounded up; 0 on error. */
LUGE_API int64_t luge_loader_batches(const luge_loader *loader, int window);
/** The batch size; 0 for NULL. */
LUGE_API int64_t luge_loader_batch_size(const luge_loader *loader);
/** Changes the batch size from the next batch on. */
LUGE_API luge_status luge_loader_set_batch_size(luge_loader *loader, int64_t batch_size);
/** Destroys the loader and its dataset, also in the middle of an epoch; NULL is fine. */
LUGE_API void luge_loader_destroy(luge_loader *loader);

/** A running mean on the device: adding never waits for it, reading does. */
LUGE_API luge_meter *luge_meter_create(void);
/** Adds a value of one element, of any float type, with a weight (>= 0). Keeps no graph alive. */
LUGE_API luge_status luge_meter_add(luge_meter *meter, luge_tensor *value, int64_t weight);
/** The weighted mean so far; NaN if there is none. */
LUGE_API double luge_meter_mean(luge_meter *meter);
/** Starts again. */
LUGE_API void luge_meter_reset(luge_meter *meter);
/** NULL is fine. */
LUGE_API void luge_meter_destroy(luge_meter *meter);

LUGE_END_C

#endif
