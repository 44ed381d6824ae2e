// cuDNN as far as cuda/dnn.c uses it: descriptors with their rules, one convolution a graph, run by plain loops
// on the emulated stream. What real cuDNN would refuse is refused: missing attributes, sizes that do not belong
// together, parts that are not finalised, misaligned addresses. Heuristics name a nondeterministic engine
// first; running it gives NaN, so a backend that does not look at the notes is found out.
#include <cudnn.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>
#include "tests/cuda/emulator/emulator.h"

struct cudnnContext { cudaStream_t stream = nullptr; };

namespace {

struct descriptor;
using reference = std::shared_ptr<descriptor>;

struct attribute {
    cudnnBackendAttributeType_t type;
    int64_t n;
    std::vector<char> bytes;
    std::vector<reference> parts;
};

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalised = false, nondeterministic = false;
    std::map<int, attribute> attributes;
};

// What the caller holds; parts that others refer to live on after it is destroyed.
struct box { reference d; };

reference of(cudnnBackendDescriptor_t handle) { return static_cast<box *>(handle)->d; }

size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE: return 8;
    default: return 4;
    }
}

const attribute *find(const descriptor &d, int name)
{
    const auto at = d.attributes.find(name);
    return at == d.attributes.end() ? nullptr : &at->second;
}

// An attribute that must be there, of so many values; after lacks() said no.
template <class T> std::vector<T> values(const descriptor &d, int name)
{
    const attribute *a = find(d, name);
    std::vector<T> v(a == nullptr ? 0 : static_cast<size_t>(a->n));
    if (!v.empty()) memcpy(v.data(), a->bytes.data(), v.size() * sizeof(T));
    return v;
}

const descriptor *part(const descriptor &d, int name)
{
    const attribute *a = find(d, name);
    return a == nullptr || a->parts.empty() ? nullptr : a->parts[0].get();
}

bool lacks(const descriptor &d, int name, int64_t n)
{
    const attribute *a = find(d, name);
    return a == nullptr || a->n != n;
}

// ---- the convolution operations

struct names { int alpha, beta, convolution, x, w, y; };

const names *names_of(cudnnBackendDescriptorType_t type)
{
    static const names forward = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    static const names data = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    static const names filter = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: return &forward;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: return &data;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: return &filter;
    default: return nullptr;
    }
}

struct geometry {
    std::vector<int64_t> before, after, stride, dilation;
};

geometry geometry_of(const descriptor &convolution)
{
    return {values<int64_t>(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
            values<int64_t>(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
            values<int64_t>(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
            values<int64_t>(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS)};
}

std::vector<int64_t> sizes_of(const descriptor &tensor) { return values<int64_t>(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS); }

bool fits(const geometry &g, const std::vector<int64_t> &x, const std::vector<int64_t> &w, const std::vector<int64_t> &y)
{
    if (x[0] != y[0] || y[1] != w[0] || w[1] < 1 || x[1] % w[1] != 0) return false;
    if (w[0] % (x[1] / w[1]) != 0) return false;
    for (size_t i = 0; i < 2; ++i) {
        const int64_t room = x[2 + i] + g.before[i] + g.after[i] - g.dilation[i] * (w[2 + i] - 1) - 1;
        if (room < 0 || room / g.stride[i] + 1 != y[2 + i]) return false;
    }
    return true;
}

cudnnStatus_t check_operation(const descriptor &d)
{
    const names *n = names_of(d.type);
    if (lacks(d, n->alpha, 1) || lacks(d, n->beta, 1)) return CUDNN_STATUS_BAD_PARAM;
    const descriptor *convolution = part(d, n->convolution), *x = part(d, n->x), *w = part(d, n->w), *y = part(d, n->y);
    if (convolution == nullptr || x == nullptr || w == nullptr || y == nullptr) return CUDNN_STATUS_BAD_PARAM;
    return fits(geometry_of(*convolution), sizes_of(*x), sizes_of(*w), sizes_of(*y)) ? CUDNN_STATUS_SUCCESS
                                                                                     : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t check_tensor(const descriptor &d)
{
    if (lacks(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1) || lacks(d, CUDNN_ATTR_TENSOR_DATA_TYPE, 1) ||
        lacks(d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4) || lacks(d, CUDNN_ATTR_TENSOR_STRIDES, 4) ||
        lacks(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1))
        return CUDNN_STATUS_BAD_PARAM;
    const auto size = sizes_of(d), stride = values<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES);
    for (const int64_t s : size)
        if (s < 1) return CUDNN_STATUS_BAD_PARAM;
    return stride[1] == 1 && stride[3] == size[1] ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t check_convolution(const descriptor &d)
{
    for (const int name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                           CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS})
        if (lacks(d, name, 2)) return CUDNN_STATUS_BAD_PARAM;
    for (const int name : {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_ATTR_CONVOLUTION_CONV_MODE})
        if (lacks(d, name, 1)) return CUDNN_STATUS_BAD_PARAM;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check(const descriptor &d)
{
    if (names_of(d.type) != nullptr) return check_operation(d);
    switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return check_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return check_convolution(d);
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
        return find(d, CUDNN_ATTR_DEVICEPROP_HANDLE) != nullptr ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return lacks(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, 1) ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return lacks(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 1) || lacks(d, CUDNN_ATTR_ENGINEHEUR_MODE, 1) ||
                       lacks(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 1)
                   ? CUDNN_STATUS_BAD_PARAM
                   : CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return lacks(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 1) || lacks(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 1)
                   ? CUDNN_STATUS_BAD_PARAM
                   : CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return lacks(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 3) || lacks(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 3) ||
                       lacks(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1)
                   ? CUDNN_STATUS_BAD_PARAM
                   : CUDNN_STATUS_SUCCESS;
    default: return CUDNN_STATUS_BAD_PARAM;
    }
}

// ---- running

struct tensor {
    std::vector<int64_t> size, stride;
    cudnnDataType_t type;
    void *data;
};

int64_t place(const tensor &t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3];
}

float load(const tensor &t, int64_t i)
{
    switch (t.type) {
    case CUDNN_DATA_HALF: return __half2float(static_cast<const __half *>(t.data)[i]);
    case CUDNN_DATA_BFLOAT16: return __bfloat162float(static_cast<const __nv_bfloat16 *>(t.data)[i]);
    default: return static_cast<const float *>(t.data)[i];
    }
}

void store(const tensor &t, int64_t i, float v)
{
    switch (t.type) {
    case CUDNN_DATA_HALF: static_cast<__half *>(t.data)[i] = __float2half_rn(v); break;
    case CUDNN_DATA_BFLOAT16: static_cast<__nv_bfloat16 *>(t.data)[i] = __float2bfloat16_rn(v); break;
    default: static_cast<float *>(t.data)[i] = v;
    }
}

struct job {
    cudnnBackendDescriptorType_t type;
    geometry g;
    tensor x, w, y;
    bool poisoned;
};

tensor &result_of(job &j)
{
    switch (j.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: return j.y;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: return j.x;
    default: return j.w;
    }
}

// Calls f(index in x, in w, in y) for every product of the convolution.
template <class F> void each_product(const job &j, F f)
{
    const int64_t per_group = j.w.size[0] / (j.x.size[1] / j.w.size[1]);
    for (int64_t n = 0; n < j.y.size[0]; ++n)
    for (int64_t k = 0; k < j.y.size[1]; ++k)
    for (int64_t p = 0; p < j.y.size[2]; ++p)
    for (int64_t q = 0; q < j.y.size[3]; ++q)
    for (int64_t r = 0; r < j.w.size[2]; ++r)
    for (int64_t s = 0; s < j.w.size[3]; ++s) {
        const int64_t row = p * j.g.stride[0] - j.g.before[0] + r * j.g.dilation[0];
        const int64_t col = q * j.g.stride[1] - j.g.before[1] + s * j.g.dilation[1];
        if (row < 0 || row >= j.x.size[2] || col < 0 || col >= j.x.size[3]) continue;
        for (int64_t c = 0; c < j.w.size[1]; ++c)
            f(place(j.x, n, k / per_group * j.w.size[1] + c, row, col), place(j.w, k, c, r, s), place(j.y, n, k, p, q));
    }
}

// Every operand is read through once, so that sanitizers see what a kernel would touch.
std::vector<float> all_of(const tensor &t)
{
    std::vector<float> v(static_cast<size_t>(t.size[0] * t.size[1] * t.size[2] * t.size[3]));
    for (size_t i = 0; i < v.size(); ++i) v[i] = load(t, static_cast<int64_t>(i));
    return v;
}

void run(void *data)
{
    job &j = *static_cast<job *>(data);
    tensor &out = result_of(j);
    std::vector<double> sum(static_cast<size_t>(out.size[0] * out.size[1] * out.size[2] * out.size[3]));
    const std::vector<float> none;
    const std::vector<float> x = &out == &j.x ? none : all_of(j.x), w = &out == &j.w ? none : all_of(j.w),
                             y = &out == &j.y ? none : all_of(j.y);
    if (&out == &j.y) each_product(j, [&](int64_t a, int64_t b, int64_t c) { sum[size_t(c)] += double(x[size_t(a)]) * w[size_t(b)]; });
    if (&out == &j.x) each_product(j, [&](int64_t a, int64_t b, int64_t c) { sum[size_t(a)] += double(y[size_t(c)]) * w[size_t(b)]; });
    if (&out == &j.w) each_product(j, [&](int64_t a, int64_t b, int64_t c) { sum[size_t(b)] += double(x[size_t(a)]) * y[size_t(c)]; });
    for (size_t i = 0; i < sum.size(); ++i) store(out, static_cast<int64_t>(i), j.poisoned ? NAN : static_cast<float>(sum[i]));
}

bool bind(tensor &t, const descriptor &d, const descriptor &pack)
{
    const auto id = values<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto address = values<void *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    const int64_t wanted = values<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID)[0];
    const auto alignment = static_cast<uintptr_t>(values<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)[0]);
    t.size = sizes_of(d);
    t.stride = values<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES);
    t.type = values<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE)[0];
    for (size_t i = 0; i < id.size(); ++i)
        if (id[i] == wanted) t.data = address[i];
    return t.data != nullptr && reinterpret_cast<uintptr_t>(t.data) % alignment == 0;
}

// The configurations of a graph: what heuristics of mode A and the fallback list give.
void fill_config(descriptor &config, const reference &graph, bool nondeterministic)
{
    config.attributes[CUDNN_ATTR_ENGINECFG_ENGINE] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {graph}};
    config.nondeterministic = nondeterministic;
    config.finalised = true;
}

constexpr int64_t workspace_bytes = 256;

} // namespace

extern "C" {

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
const char *cudnnGetErrorString(cudnnStatus_t) { return "an error of the emulated cuDNN"; }

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    if (lg_emulator_call("cudnnCreate") != 0) return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = new cudnnContext;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (lg_emulator_call("cudnnSetStream") != 0) return CUDNN_STATUS_INTERNAL_ERROR;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d)
{
    if (lg_emulator_call("cudnnBackendCreateDescriptor") != 0) return CUDNN_STATUS_ALLOC_FAILED;
    const auto made = std::make_shared<descriptor>();
    made->type = type;
    *d = new box{made};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    delete static_cast<box *>(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    const reference d = of(handle);
    if (d->finalised || value == nullptr || n < 1) return CUDNN_STATUS_BAD_PARAM;
    attribute a = {type, n, {}, {}};
    const auto *bytes = static_cast<const char *>(value);
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        a.bytes.assign(bytes, bytes + static_cast<size_t>(n) * size_of(type));
    } else {
        for (int64_t i = 0; i < n; ++i) {
            const reference p = of(static_cast<const cudnnBackendDescriptor_t *>(value)[i]);
            if (!p->finalised) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
            a.parts.push_back(p);
        }
    }
    d->attributes[name] = a;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle)
{
    if (lg_emulator_call("cudnnBackendFinalize") != 0) return CUDNN_STATUS_INTERNAL_ERROR;
    const reference d = of(handle);
    const cudnnStatus_t status = check(*d);
    d->finalised = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const handle, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t room, int64_t *n, void *values)
{
    const reference d = of(handle);
    if (!d->finalised) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    *n = 1;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
        const reference graph = d->attributes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH].parts[0];
        *n = room < 2 ? room : 2;
        for (int64_t i = 0; i < *n; ++i)
            fill_config(*of(static_cast<cudnnBackendDescriptor_t *>(values)[i]), graph, i == 0);
        return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
        const reference engine = of(*static_cast<cudnnBackendDescriptor_t *>(values));
        engine->nondeterministic = d->nondeterministic;
        engine->finalised = true;
        return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *n = d->nondeterministic ? 1 : 0;
        if (*n > 0 && room > 0) *static_cast<cudnnBackendNumericalNote_t *>(values) = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *static_cast<int64_t *>(values) = workspace_bytes;
        return CUDNN_STATUS_SUCCESS;
    default: return CUDNN_STATUS_NOT_SUPPORTED;
    }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    const reference p = of(plan), v = of(pack);
    if (!p->finalised || !v->finalised) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    const descriptor &config = *part(*p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const descriptor &graph = *part(config, CUDNN_ATTR_ENGINECFG_ENGINE);
    const descriptor &operation = *part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const names *n = names_of(operation.type);
    if (values<void *>(*v, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)[0] == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;

    auto *j = new job{operation.type, geometry_of(*part(operation, n->convolution)), {}, {}, {}, config.nondeterministic};
    if (!bind(j->x, *part(operation, n->x), *v) || !bind(j->w, *part(operation, n->w), *v) ||
        !bind(j->y, *part(operation, n->y), *v)) {
        delete j;
        return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
    }
    const int code = lg_emulator_enqueue("cudnnBackendExecute", handle->stream, run, j,
                                                 [](void *data) { delete static_cast<job *>(data); });
    return code == 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

} // extern "C"
