/* Convolutions as cuDNN's graph API takes them: from sizes to a plan that can run. It knows nothing of
 * tensors or errors of Luge, so a test can finalise every graph with the real library and without a GPU. */
#ifndef LG_CUDA_DNN_H
#define LG_CUDA_DNN_H

#include <cudnn.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lg_dnn_kind {
    LG_DNN_FORWARD, /* x, w -> y */
    LG_DNN_INPUT,   /* y's gradient, w -> x's */
    LG_DNN_WEIGHT   /* y's gradient, x -> w's */
} lg_dnn_kind;

/* One convolution; the key of its plan, so nothing is left uninitialised in it. Sizes are in the order
 * N C H W and K C/groups R S; in memory all are dense and channels-last. */
typedef struct lg_dnn_conv {
    int64_t x[4], w[4], y[4];
    int64_t stride[2], before[2], after[2], dilation[2];
    int32_t kind;  /* lg_dnn_kind */
    int32_t dtype; /* cudnnDataType_t of all three; products are summed in f32 */
    int32_t tf32;  /* f32 may be rounded to TF32 */
    int32_t reserved;
} lg_dnn_conv;

typedef struct lg_dnn_plan {
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN offers none for this convolution */
    int64_t workspace;             /* bytes */
} lg_dnn_plan;

/* The card that plans are for: the handle's or, with handle NULL, the one that `json` describes (what the
 * finalised descriptor gives as its CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). */
cudnnStatus_t lg_dnn_properties(cudnnHandle_t handle, const char *json, size_t length, cudnnBackendDescriptor_t *d);
void lg_dnn_properties_free(cudnnBackendDescriptor_t properties);

/* The first engine of cuDNN's heuristics, then of its fallback list, that is deterministic and takes the
 * convolution; what is chosen is a function of `conv`, the card and the library alone. plan->plan is NULL
 * if there is no such engine, which is no error. */
cudnnStatus_t lg_dnn_plan_make(cudnnBackendDescriptor_t properties, const lg_dnn_conv *conv, lg_dnn_plan *plan);
void lg_dnn_plan_free(lg_dnn_plan *plan);

/* Queues it on the handle's stream. Addresses at multiples of 16 bytes. */
cudnnStatus_t lg_dnn_plan_run(cudnnHandle_t handle, const lg_dnn_plan *plan, void *x, void *w, void *y, void *workspace);

#endif
