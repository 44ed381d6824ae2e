/* Launchers of elementwise ops (cuda_elementwise_*.cu), for cuda_elementwise.c. */
#ifndef LG_CUDA_ELEMENTWISE_H
#define LG_CUDA_ELEMENTWISE_H

#include <cuda_runtime_api.h>
#include "cuda/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements of so many bytes that a thread takes at once: 16 bytes, or eight elements. */
#define LG_MAP_WIDTH(bytes) ((bytes) > 2 ? 16 / (int)(bytes) : 8)

/* Operand 0 is the result, 1 to 3 are the inputs; all of `dtype` but for results of comparisons and where's
 * condition, which are bool. */
typedef struct lg_map_work {
    int op, dtype;           /* lg_op_id, luge_dtype */
    lg_geometry g;
    int few;                 /* elements a thread takes at a time, which never pass a row's end: LG_MAP_WIDTH, or 1 */
    int dense;               /* bit k: operand k has so many in a row, aligned */
    void *out;
    const void *in[3];
    double p, q;
    int64_t whole_p, whole_q; /* the same, cut to integers */
} lg_map_work;

/* cudaErrorNotSupported: the op does not take that dtype. */
cudaError_t lg_cuda_launch_map_f32(const lg_map_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_map_f64(const lg_map_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_map_f16(const lg_map_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_map_bf16(const lg_map_work *w, cudaStream_t stream);
cudaError_t lg_cuda_launch_map_whole(const lg_map_work *w, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
