/* What a lower layer needs of a higher one: filled in by ops/registry.c and autograd/ when the library
 * starts. */
#ifndef LG_CORE_SERVICES_H
#define LG_CORE_SERVICES_H

#include "core/tensor.h"

typedef struct lg_services {
    /* Recorded ops; results borrowed from the scope. */
    luge_tensor *(*add)(luge_tensor *a, luge_tensor *b);
    luge_tensor *(*add_in_place)(luge_tensor *a, luge_tensor *b);
    luge_tensor *(*sum_to)(luge_tensor *a, const luge_shape *shape);  /* undoes broadcasting */
    luge_tensor *(*cast)(luge_tensor *a, luge_dtype dtype);
    luge_tensor *(*mul)(luge_tensor *a, luge_tensor *b);
    luge_tensor *(*sum)(luge_tensor *a, luge_axes axes);
    luge_tensor *(*full)(luge_shape shape, double value, const luge_tensor_options *options);
    luge_tensor *(*contiguous)(luge_tensor *a);
    luge_tensor *(*copy)(luge_tensor *to, luge_tensor *from);          /* copy_ */
    luge_tensor *(*clone)(luge_tensor *a);
    /* What a tensor owns of its graph, given back when the tensor is freed. Iterative. */
    void (*node_release)(lg_node *node);
    void (*hooks_free)(lg_hooks *hooks);
} lg_services;

extern lg_services lg_service;

/* Starts the library: services, devices. Called by lg_device_get; cheap afterwards, and tried again
 * after a failure. core/init.c. */
luge_status lg_init(void);
/* Each fills in its own part of lg_service: ops/registry.c, autograd/. */
void lg_register_services(void);
void lg_register_autograd(void);

/* Counts of luge_op_count. */
typedef enum lg_counter { LG_COUNT_KERNEL, LG_COUNT_REFERENCE, LG_COUNT_VIEW, LG_COUNT_TRANSPOSE, LG_COUNT_PACK, LG_COUNTERS } lg_counter;
void lg_count(lg_counter counter);

/* Counts an object (module, optimizer, ...) for luge_live: +1 or -1. */
void lg_count_object(int change);
void lg_count_node(int change);

#endif
