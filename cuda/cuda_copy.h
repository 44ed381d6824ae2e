/* Launchers of copies, conversions and fills (cuda_copy.cu), for cuda_copy.c. */
#ifndef LG_CUDA_COPY_H
#define LG_CUDA_COPY_H

#include <cuda_runtime_api.h>
#include "cuda/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operand 0 is written, operand 1 read. Elements of 1, 2, 4 or 8 bytes as they are. */
cudaError_t lg_cuda_launch_move(int element, const lg_geometry *g, void *to, const void *from, cudaStream_t stream);
/* The same where axis `across` of the source is dense and axis 0 of the target is: through shared memory. */
cudaError_t lg_cuda_launch_transpose(int element, const lg_geometry *g, int across, void *to, const void *from,
                                     cudaStream_t stream);
/* From one dtype to another. */
cudaError_t lg_cuda_launch_convert(int to_dtype, int from_dtype, const lg_geometry *g, void *to, const void *from,
                                   cudaStream_t stream);
/* Every element of operand 0 becomes the low `element` bytes of `bits`. */
cudaError_t lg_cuda_launch_fill(int element, const lg_geometry *g, void *to, unsigned long long bits, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
