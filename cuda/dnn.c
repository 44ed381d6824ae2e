/* Convolution graphs of cuDNN's backend API. cuda_conv.c makes and runs them; tests finalise them without a
 * GPU. A descriptor that a finalised one refers to may be destroyed. */
#include "cuda/dnn.h"

#include <stdbool.h>
#include <stddef.h>

enum { ID_X = 1, ID_W, ID_Y, ALIGNMENT = 16, MAX_CONFIGS = 32, MAX_NOTES = CUDNN_NUMERICAL_NOTE_TYPE_COUNT };

/* ---- a descriptor in the making: the first status that is not success stays */

typedef struct maker {
    cudnnBackendDescriptor_t d;
    cudnnStatus_t status;
} maker;

static maker start(cudnnBackendDescriptorType_t type)
{
    maker m = {NULL, CUDNN_STATUS_SUCCESS};
    m.status = cudnnBackendCreateDescriptor(type, &m.d);
    return m;
}

static void set(maker *m, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (m->status == CUDNN_STATUS_SUCCESS) m->status = cudnnBackendSetAttribute(m->d, name, type, n, value);
}

static void set_int(maker *m, cudnnBackendAttributeName_t name, int64_t value)
{
    set(m, name, CUDNN_TYPE_INT64, 1, &value);
}

static void set_descriptor(maker *m, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    set(m, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void drop(cudnnBackendDescriptor_t d)
{
    if (d != NULL) (void)cudnnBackendDestroyDescriptor(d);
}

/* *d is the finalised descriptor, NULL after a failure. */
static cudnnStatus_t finish(maker *m, cudnnBackendDescriptor_t *d)
{
    if (m->status == CUDNN_STATUS_SUCCESS) m->status = cudnnBackendFinalize(m->d);
    if (m->status != CUDNN_STATUS_SUCCESS) {
        drop(m->d);
        m->d = NULL;
    }
    *d = m->d;
    return m->status;
}

/* ---- the parts of the graph */

static cudnnStatus_t make_tensor(int64_t id, const lg_dnn_conv *c, const int64_t size[4], cudnnBackendDescriptor_t *d)
{
    const int64_t stride[4] = {size[1] * size[2] * size[3], 1, size[3] * size[1], size[1]};
    const cudnnDataType_t dtype = (cudnnDataType_t)c->dtype;
    const bool is_virtual = false;
    maker m = start(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_int(&m, CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    set(&m, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &dtype);
    set(&m, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size);
    set(&m, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set_int(&m, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, ALIGNMENT);
    set(&m, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    return finish(&m, d);
}

static cudnnStatus_t make_convolution(const lg_dnn_conv *c, cudnnBackendDescriptor_t *d)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    maker m = start(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_int(&m, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
    set(&m, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    set(&m, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(&m, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c->before);
    set(&m, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c->after);
    set(&m, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c->stride);
    set(&m, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, c->dilation);
    return finish(&m, d);
}

/* The names that the three operations have for the same things. */
static const struct operation {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
} operations[] = {
    [LG_DNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    [LG_DNN_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    [LG_DNN_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

static cudnnStatus_t make_operation(const lg_dnn_conv *c, cudnnBackendDescriptor_t *d)
{
    const struct operation *o = &operations[c->kind];
    const float one = 1, zero = 0;
    cudnnBackendDescriptor_t convolution = NULL, x = NULL, w = NULL, y = NULL;
    cudnnStatus_t status = make_convolution(c, &convolution);
    if (status == CUDNN_STATUS_SUCCESS) status = make_tensor(ID_X, c, c->x, &x);
    if (status == CUDNN_STATUS_SUCCESS) status = make_tensor(ID_W, c, c->w, &w);
    if (status == CUDNN_STATUS_SUCCESS) status = make_tensor(ID_Y, c, c->y, &y);
    if (status == CUDNN_STATUS_SUCCESS) {
        maker m = start(o->type);
        set(&m, o->alpha, CUDNN_TYPE_FLOAT, 1, &one);
        set(&m, o->beta, CUDNN_TYPE_FLOAT, 1, &zero);
        set_descriptor(&m, o->convolution, convolution);
        set_descriptor(&m, o->x, x);
        set_descriptor(&m, o->w, w);
        set_descriptor(&m, o->y, y);
        status = finish(&m, d);
    }
    drop(y);
    drop(w);
    drop(x);
    drop(convolution);
    return status;
}

static cudnnStatus_t make_graph(const lg_dnn_conv *c, cudnnBackendDescriptor_t *d)
{
    cudnnBackendDescriptor_t operation = NULL;
    cudnnStatus_t status = make_operation(c, &operation);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    maker m = start(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set_descriptor(&m, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    status = finish(&m, d);
    drop(operation);
    return status;
}

/* ---- choosing */

/* Whether an engine gives the same bits every time, and all the bits that are asked for. An engine that
 * does not say is not taken. */
static bool suits(cudnnBackendDescriptor_t config, const lg_dnn_conv *c)
{
    maker engine = start(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t n = 0;
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    cudnnStatus_t status = engine.status;
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                          &engine.d);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(engine.d, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES,
                                          &n, notes);
    drop(engine.d);
    if (status != CUDNN_STATUS_SUCCESS) return false;
    const bool exact = c->dtype == CUDNN_DATA_FLOAT && !c->tf32;
    for (int64_t i = 0; i < n && i < MAX_NOTES; ++i) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
        if (notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) return false;
        if (exact && notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) return false;
        if (exact && notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) return false;
    }
    return true;
}

/* An engine that cannot do it after all says so here: that is no error. */
static bool make_plan(cudnnBackendDescriptor_t properties, cudnnBackendDescriptor_t config, lg_dnn_plan *plan)
{
    maker m = start(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_descriptor(&m, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties);
    set_descriptor(&m, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (finish(&m, &plan->plan) != CUDNN_STATUS_SUCCESS) return false;
    int64_t n = 0;
    if (cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                 &plan->workspace) == CUDNN_STATUS_SUCCESS)
        return true;
    lg_dnn_plan_free(plan);
    return false;
}

static cudnnStatus_t make_heuristics(cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t properties,
                                     cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *d)
{
    maker m = start(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(&m, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(&m, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_descriptor(&m, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties);
    return finish(&m, d);
}

/* The engines that one list of heuristics names, the best first; *n of them. */
static cudnnStatus_t list_configs(cudnnBackendDescriptor_t heuristics, cudnnBackendDescriptor_t config[MAX_CONFIGS],
                                  int64_t *n)
{
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    int made = 0;
    while (made < MAX_CONFIGS && status == CUDNN_STATUS_SUCCESS) {
        const maker m = start(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        status = m.status;
        if (status == CUDNN_STATUS_SUCCESS) config[made++] = m.d;
    }
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                          MAX_CONFIGS, n, config);
    int64_t used = status == CUDNN_STATUS_SUCCESS ? *n : 0;
    if (used > MAX_CONFIGS) used = MAX_CONFIGS;
    for (int64_t i = used; i < made; ++i) drop(config[i]);
    *n = used;
    return status;
}

/* Tries what one list offers. */
static void try_mode(cudnnBackendDescriptor_t properties, cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
                     const lg_dnn_conv *c, lg_dnn_plan *plan)
{
    cudnnBackendDescriptor_t heuristics = NULL, config[MAX_CONFIGS];
    int64_t n = 0;
    if (make_heuristics(graph, properties, mode, &heuristics) != CUDNN_STATUS_SUCCESS) return;
    if (list_configs(heuristics, config, &n) != CUDNN_STATUS_SUCCESS) n = 0;
    for (int64_t i = 0; i < n && plan->plan == NULL; ++i)
        if (suits(config[i], c)) make_plan(properties, config[i], plan);
    for (int64_t i = 0; i < n; ++i) drop(config[i]);
    drop(heuristics);
}

cudnnStatus_t lg_dnn_properties(cudnnHandle_t handle, const char *json, size_t length, cudnnBackendDescriptor_t *d)
{
    maker m = start(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    if (handle != NULL)
        set(&m, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    else
        set(&m, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)length, json);
    return finish(&m, d);
}

void lg_dnn_properties_free(cudnnBackendDescriptor_t properties)
{
    drop(properties);
}

cudnnStatus_t lg_dnn_plan_make(cudnnBackendDescriptor_t properties, const lg_dnn_conv *conv, lg_dnn_plan *plan)
{
    *plan = (lg_dnn_plan){NULL, 0};
    cudnnBackendDescriptor_t graph = NULL;
    const cudnnStatus_t status = make_graph(conv, &graph);
    if (status == CUDNN_STATUS_NOT_SUPPORTED) return CUDNN_STATUS_SUCCESS;
    if (status != CUDNN_STATUS_SUCCESS) return status;
    try_mode(properties, graph, CUDNN_HEUR_MODE_A, conv, plan);
    if (plan->plan == NULL) try_mode(properties, graph, CUDNN_HEUR_MODE_FALLBACK, conv, plan);
    drop(graph);
    return CUDNN_STATUS_SUCCESS;
}

void lg_dnn_plan_free(lg_dnn_plan *plan)
{
    drop(plan->plan);
    plan->plan = NULL;
}

/* ---- running */

cudnnStatus_t lg_dnn_plan_run(cudnnHandle_t handle, const lg_dnn_plan *plan, void *x, void *w, void *y, void *workspace)
{
    const int64_t id[3] = {ID_X, ID_W, ID_Y};
    void *const address[3] = {x, w, y};
    cudnnBackendDescriptor_t pack = NULL;
    maker m = start(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&m, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, id);
    set(&m, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, address);
    set(&m, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    cudnnStatus_t status = finish(&m, &pack);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendExecute(handle, plan->plan, pack);
    drop(pack);
    return status;
}
