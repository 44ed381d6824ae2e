// cuBLASLt as far as cuda/cuda_matmul.c uses it: products of column-major matrices with a bias or its gradient,
// run by plain loops on the emulated stream. What real cuBLASLt would refuse, or what would go wrong with it, is
// refused: sizes and types that do not belong together, lines that overlap, an algorithm that was chosen for
// another product or for addresses of another alignment, a workspace that is missing.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "tests/cuda/emulator/emulator.h"

struct cublasLtContext { char unused; };

namespace {

// ---- what lies in the opaque descriptors

struct matrix_layout {
    uint64_t rows, columns;
    int64_t column, batch_stride;
    int32_t type, batch;
    uint64_t alive;
};

struct product {
    const void *vector;
    int32_t compute, scale, transposed_a, transposed_b;
    uint32_t epilogue;
    uint64_t alive;
};

struct limits {
    uint64_t workspace;
    uint32_t reductions, a, b, c, d; // alignments
    uint64_t alive;
};

// What an algorithm was chosen for.
struct algorithm {
    uint64_t problem;
    uint64_t workspace;
    uint32_t a, b, c, d, in_output_type;
    uint64_t alive;
};

constexpr uint64_t ALIVE = 0x61626c617343;

template <class T, class Opaque> T read(const Opaque *from)
{
    static_assert(sizeof(T) <= sizeof(Opaque), "the opaque struct is large enough");
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}

template <class T, class Opaque> void write(Opaque *to, T value)
{
    value.alive = ALIVE;
    memset(static_cast<void *>(to), 0, sizeof *to);
    memcpy(static_cast<void *>(to), &value, sizeof value);
}

template <class T, class Opaque> bool is(const Opaque *p)
{
    return p != nullptr && read<T>(p).alive == ALIVE;
}

template <class T> cublasStatus_t set(T &field, const void *from, size_t bytes)
{
    if (from == nullptr || bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&field, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

size_t size_of(int32_t type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

// ---- which products there are

struct operands {
    matrix_layout a, b, d;
};

bool is_layout(const matrix_layout &l)
{
    if (l.rows == 0 || l.columns == 0 || l.batch < 1 || l.batch > 65535) return false;
    return l.column >= static_cast<int64_t>(l.rows);
}

bool types_fit(const product &p, const operands &o)
{
    if (o.a.type != o.b.type || o.a.type != o.d.type) return false;
    switch (o.a.type) {
    case CUDA_R_64F: return p.compute == CUBLAS_COMPUTE_64F && p.scale == CUDA_R_64F;
    case CUDA_R_32F:
        return (p.compute == CUBLAS_COMPUTE_32F || p.compute == CUBLAS_COMPUTE_32F_FAST_TF32) && p.scale == CUDA_R_32F;
    case CUDA_R_16F:
    case CUDA_R_16BF: return p.compute == CUBLAS_COMPUTE_32F && p.scale == CUDA_R_32F;
    default: return false;
    }
}

uint64_t inner(const product &p, const operands &o) { return p.transposed_a ? o.a.rows : o.a.columns; }

cublasStatus_t check_problem(const product &p, const operands &o)
{
    if (!is_layout(o.a) || !is_layout(o.b) || !is_layout(o.d)) return CUBLAS_STATUS_INVALID_VALUE;
    const uint64_t m = p.transposed_a ? o.a.columns : o.a.rows, n = p.transposed_b ? o.b.rows : o.b.columns;
    const uint64_t k = p.transposed_b ? o.b.columns : o.b.rows;
    if (m != o.d.rows || n != o.d.columns || k != inner(p, o)) return CUBLAS_STATUS_INVALID_VALUE;
    if (o.a.batch != o.d.batch || o.b.batch != o.d.batch) return CUBLAS_STATUS_INVALID_VALUE;
    if (o.d.batch > 1 && o.d.batch_stride < o.d.column * static_cast<int64_t>(n)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!types_fit(p, o)) return CUBLAS_STATUS_NOT_SUPPORTED;
    // Not every release has each epilogue for every product; these stand for those that are missing.
    if (p.epilogue == CUBLASLT_EPILOGUE_BIAS && m == 1) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.epilogue == CUBLASLT_EPILOGUE_BGRADB && (o.a.type == CUDA_R_64F || !p.transposed_b || p.transposed_a))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

uint64_t sum_up(uint64_t sum, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; ++i) sum = (sum ^ static_cast<const unsigned char *>(data)[i]) * 0x100000001b3u;
    return sum;
}

uint64_t name_of(product p, const operands &o)
{
    p.vector = nullptr;
    return sum_up(sum_up(0xcbf29ce484222325u, &p, sizeof p), &o, sizeof o);
}

// ---- running them

struct job {
    product p;
    operands o;
    const void *a, *b;
    void *d, *vector, *workspace;
    size_t workspace_bytes;
    double alpha;
    bool in_output_type; // sums are rounded now and then
};

double load(const void *data, int32_t type, int64_t i)
{
    switch (type) {
    case CUDA_R_64F: return static_cast<const double *>(data)[i];
    case CUDA_R_32F: return static_cast<const float *>(data)[i];
    case CUDA_R_16F: return __half2float(static_cast<const __half *>(data)[i]);
    default: return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[i]);
    }
}

void store(void *data, int32_t type, int64_t i, double v)
{
    switch (type) {
    case CUDA_R_64F: static_cast<double *>(data)[i] = v; break;
    case CUDA_R_32F: static_cast<float *>(data)[i] = static_cast<float>(v); break;
    case CUDA_R_16F: static_cast<__half *>(data)[i] = __float2half_rn(static_cast<float>(v)); break;
    default: static_cast<__nv_bfloat16 *>(data)[i] = __float2bfloat16_rn(static_cast<float>(v));
    }
}

double rounded(double v, int32_t type)
{
    double bits;
    store(&bits, type, 0, v);
    return load(&bits, type, 0);
}

// The factor as it enters the products: TF32 has 10 bits behind the point.
float to_tf32(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if ((bits & 0x7f800000u) == 0x7f800000u) return v;
    bits = (bits + 0x0fffu + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&v, &bits, sizeof bits);
    return v;
}

// Matrix `batch` as [rows][columns] of what is multiplied, dense.
template <class R>
std::vector<R> gather(const void *data, const matrix_layout &l, bool by_rows, int32_t batch, bool tf32)
{
    std::vector<R> out(static_cast<size_t>(l.rows * l.columns));
    const int64_t rows = static_cast<int64_t>(l.rows), columns = static_cast<int64_t>(l.columns);
    for (int64_t j = 0; j < columns; ++j)
        for (int64_t i = 0; i < rows; ++i) {
            R v = static_cast<R>(load(data, l.type, batch * l.batch_stride + j * l.column + i));
            if (tf32) v = static_cast<R>(to_tf32(static_cast<float>(v)));
            out[static_cast<size_t>(by_rows ? i * columns + j : j * rows + i)] = v;
        }
    return out;
}

// Sums in R along k, one after the other.
template <class R> void multiply(const job &job, int32_t batch)
{
    const bool tf32 = job.p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const auto m = static_cast<size_t>(job.o.d.rows), n = static_cast<size_t>(job.o.d.columns);
    const auto k = static_cast<size_t>(inner(job.p, job.o));
    const std::vector<R> a = gather<R>(job.a, job.o.a, job.p.transposed_a != 0, batch, tf32); // [k][m]
    const std::vector<R> b = gather<R>(job.b, job.o.b, job.p.transposed_b != 0, batch, tf32); // [n][k]
    std::vector<R> column(m);
    for (size_t j = 0; j < n; ++j) {
        std::fill(column.begin(), column.end(), R{0});
        R of_b = 0;
        for (size_t l = 0; l < k; ++l) {
            const R factor = b[j * k + l], *line = &a[l * m];
            of_b += factor;
            for (size_t i = 0; i < m; ++i) column[i] += line[i] * factor;
            if (job.in_output_type)
                for (R &v : column) v = static_cast<R>(rounded(static_cast<double>(v), job.o.d.type));
        }
        for (size_t i = 0; i < m; ++i) {
            R v = static_cast<R>(job.alpha) * column[i];
            if (job.p.epilogue == CUBLASLT_EPILOGUE_BIAS) v += static_cast<R>(load(job.vector, job.o.d.type, static_cast<int64_t>(i)));
            store(job.d, job.o.d.type,
                  batch * job.o.d.batch_stride + static_cast<int64_t>(j) * job.o.d.column + static_cast<int64_t>(i),
                  static_cast<double>(v));
        }
        if (job.p.epilogue == CUBLASLT_EPILOGUE_BGRADB)
            store(job.vector, job.o.d.type, static_cast<int64_t>(j), static_cast<double>(of_b));
    }
}

void run(void *data)
{
    const job &j = *static_cast<job *>(data);
    if (j.workspace_bytes > 0) memset(j.workspace, 0xff, j.workspace_bytes); // nobody else may be using it
    for (int32_t batch = 0; batch < j.o.d.batch; ++batch) {
        if (j.o.d.type == CUDA_R_64F)
            multiply<double>(j, batch);
        else
            multiply<float>(j, batch);
    }
}

bool aligned(const void *address, uint32_t bytes) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; }

// A program whose matrices lie outside of its memory is wrong, whatever cuBLASLt would answer.
void must_reach(void *stream, const void *data, const matrix_layout &l, const char *what)
{
    const int64_t last = (l.batch - 1) * l.batch_stride + static_cast<int64_t>(l.columns - 1) * l.column + static_cast<int64_t>(l.rows);
    if (lg_emulator_reaches(stream, data, static_cast<size_t>(last) * size_of(l.type))) return;
    fprintf(stderr, "emulated CUDA: cublasLtMatmul: %s does not lie in the device's memory\n", what);
    _Exit(99);
}

cublasStatus_t check_run(const job &j, const algorithm &chosen)
{
    if (j.a == nullptr || j.b == nullptr || j.d == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (chosen.problem != name_of(j.p, j.o)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!aligned(j.a, chosen.a) || !aligned(j.b, chosen.b) || !aligned(j.d, chosen.d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (j.p.epilogue != CUBLASLT_EPILOGUE_DEFAULT && (j.vector == nullptr || !aligned(j.vector, chosen.d)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (chosen.workspace > 0 && (j.workspace == nullptr || !aligned(j.workspace, 16) || j.workspace_bytes < chosen.workspace))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t status_of(int code)
{
    return code == 0 ? CUBLAS_STATUS_SUCCESS
           : code == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // namespace

extern "C" {

const char *cublasGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    const int code = lg_emulator_call("cublasLtCreate");
    if (code != 0) return code == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasLtContext{};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t, cudaDataType type, uint64_t rows,
                                                 uint64_t columns, int64_t column)
{
    write(l, matrix_layout{rows, columns, column, 0, type, 1, 0});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t name,
                                                const void *from, size_t bytes)
{
    if (!is<matrix_layout>(l)) return CUBLAS_STATUS_INVALID_VALUE;
    auto value = read<matrix_layout>(l);
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) status = set(value.batch, from, bytes);
    if (name == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) status = set(value.batch_stride, from, bytes);
    write(l, value);
    return status;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t d, size_t, cublasComputeType_t compute, cudaDataType_t scale)
{
    write(d, product{nullptr, compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, 0});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name, const void *from,
                                              size_t bytes)
{
    if (!is<product>(d)) return CUBLAS_STATUS_INVALID_VALUE;
    auto value = read<product>(d);
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (name == CUBLASLT_MATMUL_DESC_TRANSA) status = set(value.transposed_a, from, bytes);
    if (name == CUBLASLT_MATMUL_DESC_TRANSB) status = set(value.transposed_b, from, bytes);
    if (name == CUBLASLT_MATMUL_DESC_EPILOGUE) status = set(value.epilogue, from, bytes);
    if (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER) status = set(value.vector, from, bytes);
    write(d, value);
    return status;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t p, size_t)
{
    write(p, limits{0, CUBLASLT_REDUCTION_SCHEME_MASK, 256, 256, 256, 256, 0});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *from, size_t bytes)
{
    if (!is<limits>(p)) return CUBLAS_STATUS_INVALID_VALUE;
    auto value = read<limits>(p);
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) status = set(value.workspace, from, bytes);
    if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) status = set(value.reductions, from, bytes);
    if (name == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) status = set(value.a, from, bytes);
    if (name == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES) status = set(value.b, from, bytes);
    if (name == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES) status = set(value.c, from, bytes);
    if (name == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) status = set(value.d, from, bytes);
    write(p, value);
    return status;
}

// One algorithm; for long sums one that wants a workspace, as those that cut them into parts do.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t given, int room,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    if (lg_emulator_call("cublasLtMatmulAlgoGetHeuristic") != 0) return CUBLAS_STATUS_INTERNAL_ERROR;
    *found = 0;
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!is<product>(d) || !is<matrix_layout>(a) || !is<matrix_layout>(b) || !is<matrix_layout>(c) || room < 1 ||
        !is<matrix_layout>(out) || memcmp(c, out, sizeof *c) != 0 || !is<limits>(given))
        return CUBLAS_STATUS_INVALID_VALUE;
    const auto p = read<product>(d);
    const operands o = {read<matrix_layout>(a), read<matrix_layout>(b), read<matrix_layout>(out)};
    const cublasStatus_t status = check_problem(p, o);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const auto limit = read<limits>(given);
    const auto element = static_cast<uint32_t>(size_of(o.d.type));
    if (limit.a < element || limit.b < element || limit.d < element) return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool cut = inner(p, o) >= 512 && limit.workspace >= 4096;
    results[0] = cublasLtMatmulHeuristicResult_t{};
    results[0].workspaceSize = cut ? 4096 : 0;
    const uint32_t coarse = limit.reductions == 0 || (limit.reductions & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0;
    write(&results[0].algo, algorithm{name_of(p, o), cut ? 4096u : 0u, limit.a, limit.b, limit.c, limit.d, coarse, 0});
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t what, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *chosen, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!is<product>(what) || !is<matrix_layout>(a_layout) || !is<matrix_layout>(b_layout) || alpha == nullptr ||
        !is<matrix_layout>(c_layout) || !is<matrix_layout>(d_layout) || beta == nullptr || !is<algorithm>(chosen) || c != d)
        return CUBLAS_STATUS_INVALID_VALUE;
    const auto p = read<product>(what);
    const operands o = {read<matrix_layout>(a_layout), read<matrix_layout>(b_layout), read<matrix_layout>(d_layout)};
    const auto algo = read<algorithm>(chosen);
    const bool wide = p.scale == CUDA_R_64F;
    if ((wide ? *static_cast<const double *>(beta) : *static_cast<const float *>(beta)) != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    job j = {p, o, a, b, d, const_cast<void *>(p.vector), workspace, workspace_bytes,
             wide ? *static_cast<const double *>(alpha) : *static_cast<const float *>(alpha), algo.in_output_type != 0};
    cublasStatus_t status = check_problem(p, o);
    if (status == CUBLAS_STATUS_SUCCESS) status = check_run(j, algo);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    j.workspace_bytes = algo.workspace;
    must_reach(stream, a, o.a, "A");
    must_reach(stream, b, o.b, "B");
    must_reach(stream, d, o.d, "D");
    return status_of(lg_emulator_enqueue("cublasLtMatmul", stream, run, new job(j),
                                         [](void *data) { delete static_cast<job *>(data); }));
}

} // extern "C"
