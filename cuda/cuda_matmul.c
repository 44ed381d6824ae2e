/* matmul, linear and linear's gradients: by cuBLASLt, with the bias, or its gradient, in the same kernel.
 *
 * cuBLASLt counts in columns: a row-major matrix is to it the transposed one, so C = A B is asked for as
 * C' = B' A', in which transposes cost nothing. What it cannot read by strides is copied. Sums are in f32,
 * or f64 for f64. Descriptors and the algorithm of each product are kept; which algorithm that is hangs on
 * the product, the card and the library alone. Workspaces are taken from the device's allocator call by
 * call, in the order of the stream, and only as large as the algorithm asks for. */
#include <string.h>
#include "core/alloc.h"
#include "core/process.h"
#include "cuda/cuda.h"
#include "cuda/cuda_conv.h"
#include "cuda/keep.h"
#include "ops/attrs.h"

enum {
    PRODUCTS = 256,
    WORKSPACE = 32 << 20, /* bytes at most */
    BATCH_MAX = 65535,    /* matrices that cuBLASLt takes at a time */
    ALIGNED = 16          /* bytes: more is not asked for */
};

/* ---- products as cuBLASLt sees them */

/* D [m, n] = A [m, k] B [k, n], by columns, D without gaps. The key of what is kept for it. */
typedef struct product {
    int64_t m, n, k, batch;
    int64_t a_column, b_column; /* elements from one column, as it lies in memory, to the next */
    int64_t a_batch, b_batch;
    int32_t dtype, tf32, epilogue;
    int32_t a_transposed, b_transposed;
    int32_t a_align, b_align, d_align; /* bytes; d_align also the vector's */
} product;

typedef struct operands {
    const void *a, *b;
    void *d;
    void *vector; /* the epilogue's: bias, or its gradient */
} operands;

typedef struct kept_product {
    uint64_t used;
    product key;
    bool supported;
    size_t workspace;
    cublasLtMatmulDescOpaque_t what;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
} kept_product;

static cudaDataType type_of(int32_t dtype)
{
    switch (dtype) {
    case LUGE_F64: return CUDA_R_64F;
    case LUGE_F16: return CUDA_R_16F;
    case LUGE_BF16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
    }
}

static cublasStatus_t describe_matrix(cublasLtMatrixLayoutOpaque_t *layout, const product *p, int64_t rows, int64_t columns,
                                      int64_t column, int64_t batch)
{
    const int32_t count = (int32_t)p->batch;
    cublasStatus_t code =
        cublasLtMatrixLayoutInit(layout, type_of(p->dtype), (uint64_t)rows, (uint64_t)columns, column);
    if (code == CUBLAS_STATUS_SUCCESS && count > 1)
        code = cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    if (code == CUBLAS_STATUS_SUCCESS && count > 1)
        code = cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch, sizeof batch);
    return code;
}

static cublasStatus_t describe(kept_product *k, const void *vector)
{
    const product *p = &k->key;
    const bool wide = p->dtype == LUGE_F64;
    const cublasComputeType_t compute = wide      ? CUBLAS_COMPUTE_64F
                                        : p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                  : CUBLAS_COMPUTE_32F;
    const int32_t a = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, b = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = (uint32_t)p->epilogue;
    cublasStatus_t code = cublasLtMatmulDescInit(&k->what, compute, wide ? CUDA_R_64F : CUDA_R_32F);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatmulDescSetAttribute(&k->what, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatmulDescSetAttribute(&k->what, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatmulDescSetAttribute(&k->what, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (code == CUBLAS_STATUS_SUCCESS && vector != NULL) /* here it stands for its alignment */
        code = cublasLtMatmulDescSetAttribute(&k->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = describe_matrix(&k->a, p, a == CUBLAS_OP_N ? p->m : p->k, a == CUBLAS_OP_N ? p->k : p->m, p->a_column,
                               p->a_batch);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = describe_matrix(&k->b, p, b == CUBLAS_OP_N ? p->k : p->n, b == CUBLAS_OP_N ? p->n : p->k, p->b_column,
                               p->b_batch);
    return code == CUBLAS_STATUS_SUCCESS ? describe_matrix(&k->d, p, p->m, p->n, p->m, p->m * p->n) : code;
}

/* What the algorithm may count on. Partial sums are kept in the type that computes, so that halves are
 * rounded once. */
static cublasStatus_t describe_limits(cublasLtMatmulPreferenceOpaque_t *limits, const product *p)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t value;
    } rows[] = {{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)p->a_align},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)p->b_align},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)p->d_align},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)p->d_align}};
    const uint64_t workspace = WORKSPACE;
    cublasStatus_t code = cublasLtMatmulPreferenceInit(limits);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                    sizeof workspace);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && code == CUBLAS_STATUS_SUCCESS; ++i)
        code = cublasLtMatmulPreferenceSetAttribute(limits, rows[i].name, &rows[i].value, sizeof rows[i].value);
    return code;
}

/* Fills in the rest of what is kept for k->key; a product that cuBLASLt does not have is no error. */
static cublasStatus_t choose(lg_cuda_device *d, kept_product *k, const void *vector)
{
    cublasLtMatmulPreferenceOpaque_t limits;
    cublasStatus_t code = describe(k, vector);
    if (code == CUBLAS_STATUS_SUCCESS) code = describe_limits(&limits, &k->key);
    if (code != CUBLAS_STATUS_SUCCESS) return code;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    code = cublasLtMatmulAlgoGetHeuristic(d->blas_lt, &k->what, &k->a, &k->b, &k->d, &k->d, &limits, 1, &best, &found);
    k->supported = code == CUBLAS_STATUS_SUCCESS && found > 0 && best.state == CUBLAS_STATUS_SUCCESS;
    if (k->supported) {
        k->algorithm = best.algo;
        k->workspace = best.workspaceSize;
    }
    return code == CUBLAS_STATUS_NOT_SUPPORTED ? CUBLAS_STATUS_SUCCESS : code;
}

/* ---- running them, under the device's lock */

typedef struct product_table {
    uint64_t now;
    kept_product kept[PRODUCTS];
} product_table;

static luge_status open_blas(lg_cuda_device *d)
{
    if (d->matmuls != NULL) return LUGE_OK;
    if (d->blas_lt == NULL) {
        const cublasStatus_t code = cublasLtCreate(&d->blas_lt);
        if (code != CUBLAS_STATUS_SUCCESS) d->blas_lt = NULL;
        if (lg_cublas_check(d, code, "starting cuBLAS") != LUGE_OK) return lg_error();
    }
    product_table *table = lg_private_resize(NULL, sizeof *table);
    if (table == NULL) return lg_fail(LUGE_ERR_OUT_OF_MEMORY, "matmul: out of host memory");
    memset(table, 0, sizeof *table);
    d->matmuls = table;
    return LUGE_OK;
}

void lg_cuda_matmul_close(lg_cuda_device *d)
{
    lg_private_free(d->matmuls);
    d->matmuls = NULL;
    if (d->blas_lt != NULL) (void)cublasLtDestroy(d->blas_lt);
    d->blas_lt = NULL;
}

/* NULL with the error set. */
static kept_product *product_of(lg_cuda_device *d, const product *p, const void *vector)
{
    if (open_blas(d) != LUGE_OK) return NULL;
    product_table *table = d->matmuls;
    bool found;
    kept_product *k = lg_keep_find(table->kept, PRODUCTS, sizeof *k, p, sizeof *p, &found);
    if (!found) {
        k->used = 0;
        k->key = *p;
        if (lg_cublas_check(d, choose(d, k, vector), "choosing an algorithm") != LUGE_OK) return NULL;
    }
    k->used = ++table->now;
    return k;
}

static luge_status multiply(lg_device *device, lg_cuda_device *d, kept_product *k, const operands *o)
{
    static const double one_f64 = 1, zero_f64 = 0;
    static const float one_f32 = 1, zero_f32 = 0;
    const bool wide = k->key.dtype == LUGE_F64;
    const void *one = wide ? (const void *)&one_f64 : &one_f32, *zero = wide ? (const void *)&zero_f64 : &zero_f32;
    void *workspace = NULL;
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    if (o->vector != NULL)
        code = cublasLtMatmulDescSetAttribute(&k->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->vector, sizeof o->vector);
    if (k->workspace > 0 && (workspace = lg_cuda_scratch(device, k->workspace)) == NULL) return lg_error();
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatmul(d->blas_lt, &k->what, one, o->a, &k->a, o->b, &k->b, zero, o->d, &k->d, o->d, &k->d,
                              &k->algorithm, workspace, k->workspace, d->stream);
    const luge_status status = lg_cublas_check(d, code, "a product by cuBLASLt");
    if (workspace != NULL) lg_cuda_scratch_free(device, workspace, k->workspace);
    return status;
}

static int32_t align_of(const void *address)
{
    const uintptr_t bits = (uintptr_t)address | ALIGNED;
    return (int32_t)(bits & (~bits + 1));
}

/* *supported false: cuBLASLt has no such product, and nothing was done. */
static luge_status run_some(lg_device *device, lg_cuda_device *d, product *p, const operands *o, bool *supported)
{
    p->a_align = align_of(o->a);
    p->b_align = align_of(o->b);
    p->d_align = align_of((const void *)((uintptr_t)o->d | (uintptr_t)o->vector));
    pthread_mutex_lock(&d->lock);
    kept_product *k = product_of(d, p, o->vector);
    *supported = k != NULL && k->supported;
    const luge_status status = *supported ? multiply(device, d, k, o) : lg_error();
    pthread_mutex_unlock(&d->lock);
    return status;
}

static luge_status run(lg_device *device, lg_cuda_device *d, const product *all, operands o, bool *supported)
{
    const int64_t element = (int64_t)luge_dtype_size((luge_dtype)all->dtype);
    product p = *all;
    for (int64_t at = 0; at < all->batch; at += p.batch) {
        p.batch = all->batch - at < BATCH_MAX ? all->batch - at : BATCH_MAX;
        if (run_some(device, d, &p, &o, supported) != LUGE_OK || !*supported) return lg_error();
        o.a = (const char *)o.a + p.batch * p.a_batch * element;
        o.b = (const char *)o.b + p.batch * p.b_batch * element;
        o.d = (char *)o.d + p.batch * p.m * p.n * element;
    }
    return LUGE_OK;
}

/* ---- from tensors to products */

/* A batch of matrices, perhaps in a copy. */
typedef struct matrix {
    luge_dtype dtype;
    luge_shape shape; /* [.., rows, columns] */
    int64_t stride[LUGE_MAX_RANK];
    void *data, *copy;
    size_t copy_bytes;
    /* for cuBLASLt, which sees [.., columns, rows] */
    bool transposed;
    int64_t column, batch;
} matrix;

static matrix matrix_of(const luge_tensor *t)
{
    matrix m = {.dtype = t->dtype, .shape = t->shape, .data = lg_data(t)};
    memcpy(m.stride, t->stride, sizeof m.stride);
    return m;
}

/* [rows, columns] -> [columns, rows] */
static matrix transposed(matrix m)
{
    const int row = m.shape.rank - 2, column = row + 1;
    const int64_t size = m.shape.dim[row], stride = m.stride[row];
    m.shape.dim[row] = m.shape.dim[column];
    m.stride[row] = m.stride[column];
    m.shape.dim[column] = size;
    m.stride[column] = stride;
    return m;
}

static int64_t at_least_1(int64_t n)
{
    return n > 1 ? n : 1;
}

/* Whether lines of `length` elements lie one after the other without overlap. */
static bool are_lines(int64_t length, int64_t within, int64_t lines, int64_t apart)
{
    return (within == 1 || length <= 1) && (apart >= at_least_1(length) || lines <= 1);
}

/* Fills in how cuBLASLt reads it; false: it cannot. */
static bool read_strides(matrix *m)
{
    const int row = m->shape.rank - 2;
    const int64_t rows = m->shape.dim[row], columns = m->shape.dim[row + 1];
    const int64_t down = m->stride[row], along = m->stride[row + 1];
    if (are_lines(columns, along, rows, down)) {
        m->transposed = false;
        m->column = rows > 1 ? down : at_least_1(columns);
    } else if (are_lines(rows, down, columns, along)) {
        m->transposed = true;
        m->column = columns > 1 ? along : at_least_1(rows);
    } else {
        return false;
    }
    int64_t count = 1; /* leading axes become one */
    m->batch = 0;
    for (int i = row - 1; i >= 0; --i) {
        if (m->shape.dim[i] == 1) continue;
        if (count == 1)
            m->batch = m->stride[i];
        else if (m->stride[i] != m->batch * count)
            return false;
        count *= m->shape.dim[i];
    }
    return m->batch >= 0;
}

/* NULL copy: nothing was to be copied. To be freed by let_go. */
static luge_status make_readable(lg_device *device, lg_cuda_device *d, matrix *m)
{
    if (read_strides(m)) return LUGE_OK;
    int64_t dense[LUGE_MAX_RANK];
    lg_strides_contiguous(&m->shape, dense);
    m->copy_bytes = (size_t)lg_shape_numel(&m->shape) * luge_dtype_size(m->dtype);
    m->copy = lg_cuda_scratch(device, m->copy_bytes);
    if (m->copy == NULL || lg_cuda_move(d, m->dtype, &m->shape, m->copy, dense, m->data, m->stride) != LUGE_OK)
        return lg_error();
    m->data = m->copy;
    memcpy(m->stride, dense, sizeof dense);
    read_strides(m);
    return LUGE_OK;
}

static void let_go(lg_device *device, matrix *m)
{
    if (m->copy != NULL) lg_cuda_scratch_free(device, m->copy, m->copy_bytes);
}

/* a [.., n, k] b [.., k, m], both readable, -> y [.., n, m], which is dense and not empty. *supported false:
 * cuBLASLt has no such product with this epilogue. */
static luge_status run_readable(lg_device *device, lg_cuda_device *d, const matrix *a, const matrix *b, void *y,
                                cublasLtEpilogue_t epilogue, void *vector, bool *supported)
{
    const int row = a->shape.rank - 2;
    product p;
    memset(&p, 0, sizeof p);
    p.m = b->shape.dim[row + 1];
    p.n = a->shape.dim[row];
    p.k = a->shape.dim[row + 1];
    p.batch = 1;
    for (int i = 0; i < row; ++i) p.batch *= a->shape.dim[i];
    p.a_column = b->column;
    p.b_column = a->column;
    p.a_batch = b->batch;
    p.b_batch = a->batch;
    p.a_transposed = b->transposed;
    p.b_transposed = a->transposed;
    p.dtype = (int32_t)a->dtype;
    p.tf32 = a->dtype == LUGE_F32 && lg_allows_tf32(LUGE_TF32_MATMUL);
    p.epilogue = (int32_t)epilogue;
    return run(device, d, &p, (operands){b->data, a->data, y, vector}, supported);
}

/* The same of any matrices. */
static luge_status run_any(const lg_call *call, lg_cuda_device *d, matrix a, matrix b, void *y,
                           cublasLtEpilogue_t epilogue, void *vector, bool *supported)
{
    luge_status status = make_readable(call->device, d, &a);
    if (status == LUGE_OK) status = make_readable(call->device, d, &b);
    if (status == LUGE_OK) status = run_readable(call->device, d, &a, &b, y, epilogue, vector, supported);
    let_go(call->device, &a);
    let_go(call->device, &b);
    return status;
}

/* Without an epilogue. */
static luge_status run_plain(const lg_call *call, lg_cuda_device *d, matrix a, matrix b, void *y)
{
    bool supported = true;
    const luge_status status = run_any(call, d, a, b, y, CUBLASLT_EPILOGUE_DEFAULT, NULL, &supported);
    if (supported || status != LUGE_OK) return status;
    return lg_op_fail(call, LUGE_ERR_UNSUPPORTED, "cuBLASLt has no algorithm for this product");
}

static luge_status clear(lg_cuda_device *d, const luge_tensor *t)
{
    return lg_cuda_check(d, cudaMemsetAsync(lg_data(t), 0, (size_t)t->numel * lg_element_size(t), d->stream), "zeros");
}

/* ---- matmul: a [.., n, k], b [.., k, m] -> [.., n, m] */

int lg_cuda_matmul(const lg_call *call)
{
    const luge_tensor *a = call->in[0], *b = call->in[1];
    luge_tensor *y = call->out[0];
    if (y->numel == 0) return LUGE_OK;
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    if (a->numel == 0) return (int)clear(d, y);
    return (int)run_plain(call, d, matrix_of(a), matrix_of(b), lg_data(y));
}

/* ---- linear: x [n, in], weight [out, in], [bias [out]] -> [n, out] */

/* y [n, out] = x weight' + bias, with a bias whose elements lie side by side. */
static luge_status linear_with(const lg_call *call, lg_cuda_device *d, void *bias)
{
    const matrix x = matrix_of(call->in[0]), weight = transposed(matrix_of(call->in[1]));
    luge_tensor *y = call->out[0];
    bool supported = true;
    luge_status status = run_any(call, d, x, weight, lg_data(y), CUBLASLT_EPILOGUE_BIAS, bias, &supported);
    if (supported || status != LUGE_OK) return status;
    status = run_plain(call, d, x, weight, lg_data(y));
    if (status != LUGE_OK) return status;
    return lg_cuda_check(
        d, lg_cuda_launch_conv_bias((int)y->dtype, lg_data(y), bias, y->shape.dim[0], y->shape.dim[1], d->stream),
        "the bias");
}

int lg_cuda_linear(const lg_call *call)
{
    const luge_tensor *x = call->in[0], *weight = call->in[1], *bias = call->in[2];
    luge_tensor *y = call->out[0];
    if (y->numel == 0) return LUGE_OK;
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    if (bias == NULL)
        return (int)(x->numel == 0 ? clear(d, y)
                                   : run_plain(call, d, matrix_of(x), transposed(matrix_of(weight)), lg_data(y)));
    if (x->numel == 0) {
        const int64_t every_row[2] = {0, bias->stride[0]};
        return (int)lg_cuda_move(d, y->dtype, &y->shape, lg_data(y), y->stride, lg_data(bias), every_row);
    }
    if (bias->stride[0] == 1 || bias->numel == 1) return (int)linear_with(call, d, lg_data(bias));
    const size_t bytes = (size_t)bias->numel * lg_element_size(bias);
    const int64_t dense = 1;
    void *copy = lg_cuda_scratch(call->device, bytes);
    if (copy == NULL) return (int)lg_error();
    luge_status status = lg_cuda_move(d, bias->dtype, &bias->shape, copy, &dense, lg_data(bias), bias->stride);
    if (status == LUGE_OK) status = linear_with(call, d, copy);
    lg_cuda_scratch_free(call->device, copy, bytes);
    return (int)status;
}

/* ---- linear's weight and bias: g [n, out], x [n, in] -> gweight [out, in], gbias [out] */

static int sum_rows(const lg_call *call, luge_tensor *g, luge_tensor *gbias)
{
    const lg_reduce_attrs rows = {.mask = 1};
    lg_call sum = *call;
    sum.attrs = &rows;
    sum.attrs_size = sizeof rows;
    sum.n_in = sum.n_out = 1;
    sum.in = &g;
    sum.out[0] = gbias;
    sum.out[1] = NULL;
    return lg_cuda_sum(&sum);
}

int lg_cuda_linear_backward_weight(const lg_call *call)
{
    luge_tensor *g = call->in[0], *gweight = call->out[0], *gbias = call->out[1];
    const luge_tensor *x = call->in[1];
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    if (gbias->numel == 0) return LUGE_OK;
    if (g->numel == 0) { /* an empty batch has no part in them */
        if (clear(d, gbias) == LUGE_OK && gweight->numel > 0) clear(d, gweight);
        return (int)lg_error();
    }
    if (gweight->numel == 0) return sum_rows(call, g, gbias);
    const matrix turned = transposed(matrix_of(g)), input = matrix_of(x);
    bool supported = true;
    luge_status status =
        run_any(call, d, turned, input, lg_data(gweight), CUBLASLT_EPILOGUE_BGRADB, lg_data(gbias), &supported);
    if (supported || status != LUGE_OK) return (int)status;
    status = run_plain(call, d, turned, input, lg_data(gweight));
    return status == LUGE_OK ? sum_rows(call, g, gbias) : (int)status;
}
