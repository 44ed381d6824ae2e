/* Launchers of losses (cuda_loss.cu), for cuda_loss.c. */
#ifndef LG_CUDA_LOSS_H
#define LG_CUDA_LOSS_H

#include <cuda_runtime_api.h>
#include "cuda/fold.h"
#include "cuda/geometry.h"
#include "cuda/trouble.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LG_LOSS_MEAN, LG_LOSS_SUM, LG_LOSS_EACH };

/* Logits [n, classes]. What is called "wide" is f32, f64 for f64. */
typedef struct lg_cross_entropy_work {
    int dtype, reduction, wide_target; /* the target is i64; else i32 */
    lg_fold fold;                      /* groups are rows */
    int64_t row, column;               /* strides of the logits */
    int64_t target_stride, weight_stride, g_stride;
    long long ignore_index;
    double smoothing;
    const void *x, *target, *weight;   /* weight NULL: 1 */
    void *lse, *count;                 /* wide: [n], [] */
    void *loss;                        /* [n] or [] */
    void *row_loss, *row_weight;       /* wide: [n], for the sums */
    const void *g;
    void *gx;                          /* row-major */
    lg_cuda_trouble *trouble;
} lg_cross_entropy_work;

cudaError_t lg_cuda_launch_cross_entropy(const lg_cross_entropy_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_cross_entropy_gradient(const lg_cross_entropy_work *w, cudaStream_t stream);

enum { LG_PAIR_MSE, LG_PAIR_BCE };

/* Operands of the geometry: x, target, then the result (each loss, or gx), then g. */
typedef struct lg_pairs_work {
    int kind, dtype, reduction;
    lg_geometry at;
    lg_fold fold;           /* one group, of all elements */
    const void *x, *target, *g;
    void *result;
    void *partial;          /* wide: [slices] */
} lg_pairs_work;

cudaError_t lg_cuda_launch_pairs(const lg_pairs_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_pairs_gradient(const lg_pairs_work *w, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
