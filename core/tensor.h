/* Tensors and their storages. A storage is memory with a version counter; a tensor is a strided view
 * of one, with its place in a graph. Both are counted, and counts may be touched from any thread. */
#ifndef LG_CORE_TENSOR_H
#define LG_CORE_TENSOR_H

#include <luge/tensor.h>
#include <stdatomic.h>
#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"

typedef struct lg_node lg_node;   /* autograd/node.h */
typedef struct lg_hooks lg_hooks; /* autograd/hooks.h */

typedef struct lg_storage {
    atomic_int refs;
    atomic_uint version;       /* counts writes in place, through whichever tensor */
    atomic_int graph_handles;  /* tensors of this storage that require a gradient */
    atomic_int saved_handles;  /* tensors of this storage that only nodes of a graph hold */
    lg_device *device;
    lg_memory *memory;         /* where data is from: the device's, or one that holds (core/device.h) */
    void *data;                /* NULL if bytes is 0 */
    size_t bytes;              /* asked for */
    int origin;                /* what made it, in core/origin.c; 0: not recorded */
    uint64_t id;               /* never reused: caches of packed weights are keyed by (id, version) */
    void (*release)(struct lg_storage *);  /* frees data that is not the allocator's; NULL: it is */
    void *release_data;
} lg_storage;

struct luge_tensor {
    atomic_int refs;
    uint32_t magic;            /* LG_TENSOR_MAGIC while alive */
    luge_dtype dtype;
    bool requires_grad;        /* a leaf that wants a gradient, or made by a recorded op */
    lg_storage *storage;
    int64_t offset;            /* of the first element, in elements */
    int64_t numel;
    luge_shape shape;
    int64_t stride[LUGE_MAX_RANK];
    lg_node *node;             /* the op that made it; NULL for a leaf. Owns a reference. */
    int node_output;
    luge_tensor *grad;         /* of a leaf; owns a reference */
    lg_hooks *hooks;           /* of a leaf; those of other tensors lie in their node */
    atomic_int stage;          /* of a leaf, during backward: see autograd/leaves.c; any value will do */
};

#define LG_TENSOR_MAGIC 0x4c756765u

/* ---- made with one reference that the caller owns; NULL with the error set */

lg_storage *lg_storage_create(lg_device *device, lg_memory *memory, size_t bytes);
void lg_storage_retain(lg_storage *s);
/* The number that the next storage will have. */
uint64_t lg_storage_next(void);
void lg_storage_release(lg_storage *s);

/* Uninitialised; stride NULL: row-major. The shape must be valid (lg_shape_numel >= 0). */
luge_tensor *lg_tensor_create(lg_device *device, luge_dtype dtype, const luge_shape *shape, const int64_t *stride);
/* The same from another allocator than device->memory, whose memory `device` can read. */
luge_tensor *lg_tensor_create_in(lg_memory *memory, lg_device *device, luge_dtype dtype, const luge_shape *shape,
                                 const int64_t *stride);
/* Another handle of the same elements, outside the graph. */
luge_tensor *lg_tensor_alias(const luge_tensor *t);
/* A view of t's storage with another geometry (offset absolute, in elements), outside the graph. */
luge_tensor *lg_tensor_view(const luge_tensor *t, const luge_shape *shape, const int64_t *stride, int64_t offset);
/* Frees a tensor whose count has come to 0: called by luge_release. */
void lg_tensor_free(luge_tensor *t);

/* ---- scope: gives the reference to the current scope and returns t. NULL stays NULL; if the scope
 * cannot grow, t is released and NULL returned with the error set. */
luge_tensor *lg_borrow(luge_tensor *owned);
/* The same for a tensor that somebody else owns: retained first. */
luge_tensor *lg_lend(luge_tensor *t);
/* luge_empty for the public function `name`, which messages about the shape or memory begin with. */
luge_tensor *lg_empty(const char *name, luge_shape shape, const luge_tensor_options *options);

/* ---- reading and writing */

static inline bool lg_is_none(const luge_tensor *t) { return t == luge_none(); }
static inline size_t lg_element_size(const luge_tensor *t)
{
    static const unsigned char size[LG_DTYPE_COUNT] = {4, 8, 2, 2, 8, 4, 1, 1};
    return size[t->dtype];
}
/* The first element's address (device memory for a GPU). */
static inline void *lg_data(const luge_tensor *t)
{
    return t->storage->data == NULL ? NULL : (char *)t->storage->data + (size_t)t->offset * lg_element_size(t);
}
static inline bool lg_is_contiguous(const luge_tensor *t) { return lg_strides_are_contiguous(&t->shape, t->stride); }
static inline uint32_t lg_version(const luge_tensor *t)
{
    return atomic_load_explicit(&t->storage->version, memory_order_relaxed);
}
/* Every write in place ends with this. */
static inline void lg_bump_version(luge_tensor *t)
{
    atomic_fetch_add_explicit(&t->storage->version, 1, memory_order_relaxed);
}
/* The first element on the host: t's own memory or, for another device, a copy of all from the first
 * element to the last in *buffer (for lg_free, also if it is NULL). Not NULL for an empty tensor;
 * NULL with the error set. */
const void *lg_host_elements(const luge_tensor *t, void **buffer);
static inline bool lg_is_pinned(const luge_tensor *t)
{
    return lg_on_host(t->storage->device) && t->storage->memory != NULL && t->storage->memory != t->storage->device->memory;
}
/* The elements of a dense tensor to one of the same geometry elsewhere. If `wait` is false and the one on
 * the host is pinned, only queued: the host leaves both alone until the device is synchronised. */
luge_status lg_copy_across(luge_tensor *to, const luge_tensor *from, bool wait);
/* Sets requires_grad and keeps storage->graph_handles true. */
void lg_set_requires_grad(luge_tensor *t, bool on);
/* Replaces what a handle holds (storage, geometry, dtype) by what `from` holds; version of the new
 * storage is bumped. For modules that move or load: handles stay the same. */
void lg_tensor_rebind(luge_tensor *t, const luge_tensor *from);

/* Whether t may be given to a public function: not NULL, alive, not LUGE_NONE. Sets the error. */
bool lg_check_tensor(const luge_tensor *t, const char *what);

/* Options with defaults filled in; checks reserved words, dtype, device. */
luge_status lg_tensor_options(const luge_tensor_options *given, luge_tensor_options *out, lg_device **device);

int64_t lg_live_tensors(void);
int64_t lg_live_storages(void);

#endif
