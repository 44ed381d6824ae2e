/* Launchers of embeddings (cuda_embedding.cu), for cuda_embedding.c. */
#ifndef LG_CUDA_EMBEDDING_H
#define LG_CUDA_EMBEDDING_H

#include <cuda_runtime_api.h>
#include "cuda/geometry.h"
#include "cuda/trouble.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lg_embedding_work {
    int dtype;              /* of the table and the rows */
    int wide_index;         /* i64; else i32 */
    lg_geometry places;     /* row-major; operand 0: the indices */
    const void *index;
    int64_t count, dim;     /* the table is [count, dim] */
    int64_t row, column;    /* its strides */
    const void *from;       /* the table, or the gradient of the rows [places, dim] */
    void *to;               /* the rows [places, dim], or the table's gradient, row-major and zero */
    lg_cuda_trouble *trouble;
} lg_embedding_work;

cudaError_t lg_cuda_launch_embedding(const lg_embedding_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_embedding_gradient(const lg_embedding_work *w, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
