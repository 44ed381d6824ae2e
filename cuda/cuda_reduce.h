/* Launchers of reductions (cuda_reduce.cu) and running sums (cuda_scan.cu), for cuda_reduce.c. */
#ifndef LG_CUDA_REDUCE_H
#define LG_CUDA_REDUCE_H

#include <cuda_runtime_api.h>
#include "cuda/fold.h"
#include "cuda/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lg_reduce_kind { LG_REDUCE_SUM, LG_REDUCE_MEAN, LG_REDUCE_MAX, LG_REDUCE_MIN, LG_REDUCE_ARGMAX,
                              LG_REDUCE_VAR, LG_REDUCE_NORM } lg_reduce_kind;

enum { LG_REDUCE_STATE = 48 }; /* bytes of one partial result at most */

typedef struct lg_reduce_work {
    int kind, dtype;
    lg_fold fold;
    lg_geometry kept, within;   /* of x: axes that stay and axes that go, both row-major */
    const void *x;
    void *y, *mean;             /* mean: var's second output */
    void *partial;              /* [groups][slices][LG_REDUCE_STATE] if there are slices */
    double number;              /* var: correction; norm: p */
} lg_reduce_work;

cudaError_t lg_cuda_launch_reduce(const lg_reduce_work *w, cudaStream_t stream);

/* [outer, n, inner], row-major; `whole`: x is of an integer type, y i64. */
typedef struct lg_scan_work {
    int dtype;
    int64_t outer, n, inner;
    int reverse;
    const void *x;
    void *y;
} lg_scan_work;

cudaError_t lg_cuda_launch_scan(const lg_scan_work *w, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
