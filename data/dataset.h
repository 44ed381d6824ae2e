/* What a dataset is inside, and how a loader has its samples put into a batch. */
#ifndef LG_DATA_DATASET_H
#define LG_DATA_DATASET_H

#include <luge/data.h>
#include "core/rng.h"
#include "core/tensor.h"

enum { LG_FIELD_INPUT, LG_FIELD_TARGET, LG_FIELDS };

/* A field of a set that lies in memory: batches copy rows of it. */
typedef struct lg_rows {
    luge_tensor *data;    /* [n, ...], contiguous, on the host; owns a reference. NULL: no such field */
    bool normalise;       /* u8 becomes f32: x * scale + shift */
    float scale, shift;
} lg_rows;

/* Samples come from `type.get`, or, where that is NULL, from `rows`. */
struct luge_dataset {
    luge_dataset_class type;
    lg_rows rows[LG_FIELDS];
    bool owned;           /* by a loader, which alone may destroy it */
};

/* A set of rows; takes over the references in them, also on failure. */
luge_dataset *lg_dataset_of_rows(const lg_rows rows[LG_FIELDS]);
/* Destroys it whether it is owned or not. */
void lg_dataset_free(luge_dataset *dataset);

/* What every sample of a set has in a field, learned from the first one. */
typedef struct lg_field {
    bool present;
    luge_dtype dtype;
    luge_shape shape;     /* of one sample */
} lg_field;

/* A batch being filled: fields appear with its first sample. */
typedef struct lg_slot {
    lg_field field[LG_FIELDS];
    luge_tensor *tensor[LG_FIELDS];  /* [size, ...], contiguous, on the host; owns a reference */
    lg_memory *memory;    /* where they are from; NULL: the host's */
    int64_t size;
    bool learned;         /* `field` says what samples must have */
} lg_slot;

/* Fills row `row` of the slot with sample `index`. On error says which sample it was. */
luge_status lg_slot_fill(lg_slot *slot, const luge_dataset *dataset, int64_t row, int64_t index, luge_rng *rng);
/* Fills the whole slot with samples of a set that lies in memory: those in places first, first + 1, ... of
 * `order`, or of the set itself where that is NULL. */
luge_status lg_slot_gather(lg_slot *slot, const luge_dataset *dataset, const int64_t *order, int64_t first);
/* Makes the slot hold `size` samples. Memory that something outside still refers to is left to it. */
void lg_slot_reset(lg_slot *slot, int64_t size);
void lg_slot_release(lg_slot *slot);

/* Random numbers of one sample, or of the order of one epoch: a place in a Philox stream. */
struct luge_rng {
    uint64_t seed, stream, block;
    lg_philox numbers;
    int used;             /* of `numbers`; 4: none left */
};
/* Streams keep clear of each other and of those of threads (core/rng.c uses 0). Epochs are < 2^31. */
luge_rng lg_rng_of_sample(uint64_t seed, int epoch, int64_t index);
luge_rng lg_rng_of_order(uint64_t seed, int epoch);

/* Reads an idx file (data/idx.c): u8, on the host; the caller owns it. `rank` 0: any. */
luge_tensor *lg_read_idx(const char *path, int rank);

#endif
