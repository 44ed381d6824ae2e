/* The device's error word: what a kernel found wrong in the data it was given. A kernel cannot fail, and
 * the host does not wait for it; so the first kernel that meets such data notes it here, treats the element
 * as if it were not there, and the host says so as soon as it synchronises with the device. */
#ifndef LG_CUDA_TROUBLE_H
#define LG_CUDA_TROUBLE_H

#include <stdint.h>

typedef enum lg_cuda_trouble_kind {
    LG_TROUBLE_NONE,
    LG_TROUBLE_TARGET,    /* cross_entropy: value is a target outside of [0, limit) and not ignore_index */
    LG_TROUBLE_INDEX,     /* embedding: value is an index outside of [0, limit) */
    LG_TROUBLE_NORM,      /* a step that changed nothing: value holds the bits of the norm, a double that is not finite */
    LG_TROUBLE_SCALE      /* losses overflow at any scale: value steps in a row were left out, limit holds the bits of the scale */
} lg_cuda_trouble_kind;

typedef struct lg_cuda_trouble {
    int kind;             /* lg_cuda_trouble_kind, taken with a compare-and-swap: the first stays */
    int reserved;
    long long value, limit, place;   /* place: which element, in row-major order */
} lg_cuda_trouble;

#endif
