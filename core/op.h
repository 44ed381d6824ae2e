/* What an op is, and one call of it. ops/<family>.c says what each op means; cpu/ and cuda/ say how
 * it runs; ops/call.c is the only path between them. */
#ifndef LG_CORE_OP_H
#define LG_CORE_OP_H

#include <luge/autograd.h>
#include "core/tensor.h"

enum { LG_MAX_IN = 6, LG_MAX_OUT = 3 };

/* Bits of saved tensors: inputs from 0, outputs from 16. */
#define LG_IN(i) (1u << (i))
#define LG_OUT(i) (1u << (16 + (i)))

/* What infer says of an output. */
typedef struct lg_spec {
    luge_dtype dtype;
    luge_shape shape;
    int64_t stride[LUGE_MAX_RANK];
    int64_t offset;            /* of a view: absolute, in elements */
} lg_spec;

typedef struct lg_op lg_op;

/* One call. infer fills spec[] (and view_of); kernels read the rest. */
struct lg_call {
    const lg_op *op;
    const void *attrs;
    size_t attrs_size;         /* op->attrs_size, or a custom op's */
    int n_in, n_out;
    luge_tensor *const *in;    /* after casts; an absent optional input is NULL here */
    luge_tensor *out[LG_MAX_OUT];
    lg_spec spec[LG_MAX_OUT];
    int view_of;               /* infer: output 0 is a view of this input, no kernel runs; -1 */
    bool in_place;             /* output 0 is in[0] */
    uint32_t mutates;          /* op->mutates; infer may take out what this call leaves alone */
    lg_device *device;
    const void *site;          /* return address of the public function, for reports */
    const char *line;          /* "file:line" of that call, NULL if it is not known (LUGE_LINES) */
};

/* One backward of one node. Gradients are borrowed from the current scope. */
typedef struct lg_grad_call {
    const lg_op *op;
    const void *attrs;
    int n_in, n_out;
    luge_tensor *const *in;        /* saved inputs, NULL where op->reads did not ask */
    luge_tensor *const *out;       /* saved outputs, likewise */
    const luge_shape *in_shape;    /* of every input, saved or not */
    const luge_dtype *in_dtype;
    luge_tensor *const *grad_out;  /* NULL: nothing came, it is zero */
    luge_tensor **grad_in;         /* to fill where needs[i]; NULL on entry, may stay so for zero */
    const bool *needs;
} lg_grad_call;

/* What an op may ask of the call path. */
enum {
    LG_PROMOTE = 1,            /* inputs are cast to their common dtype (core/dtype.h) before infer */
    LG_PROMOTE_FLOAT = 2,      /* the same, and integers to f32 */
    LG_NO_GRAD = 4             /* outputs never require a gradient */
};

struct lg_op {
    const char *name;
    int n_in;                  /* -1: any number, at least 1 */
    int n_out;
    uint32_t optional;         /* bits of inputs that may be LUGE_NONE */
    uint32_t mutates;          /* bits of inputs that the kernel writes (running statistics) */
    uint32_t reads[LG_MAX_IN]; /* what the gradient of input i reads: LG_IN(..) | LG_OUT(..) */
                               /* n_in -1: reads[0] for each, LG_IN(0) standing for all */
    luge_cast_class cast;
    int flags;
    size_t attrs_size;
    /* Checks shapes, dtypes and attributes, says with lg_op_fail what is wrong, fills call->spec. */
    luge_status (*infer)(lg_call *call);
    /* Naive and for every dtype: loads and stores with core/dtype.h. Host only. */
    luge_status (*reference)(const lg_call *call);
    /* Gradients made of recorded ops. Broadcast axes are summed and dtypes cast back by the engine.
     * NULL: the op cannot be differentiated twice. */
    luge_status (*backward)(lg_grad_call *g);
    /* Faster, not differentiable; used unless the graph of gradients is wanted. NULL: use backward. */
    luge_status (*backward_fused)(lg_grad_call *g);
    /* Floating-point operations of a call, for summaries; NULL: not counted. */
    double (*flops)(const lg_call *call);
};

extern const lg_op *const lg_ops[LG_OP_COUNT];
#define LG_OP(name, cpu, cuda) extern const lg_op lg_op_##name;
#include "ops/ops.def"
#undef LG_OP

/* ---- for infer functions */

/* The error "op: text", behind the scope path. Returns the code of the standing error. */
luge_status lg_op_fail(const lg_call *call, luge_status code, const char *format, ...) LUGE_PRINTF_LIKE(3, 4);
/* Output i: row-major, or dense in the shape of `like` and its order of axes, or channels-last. */
void lg_spec_contiguous(lg_call *call, int i, luge_dtype dtype, const luge_shape *shape);
void lg_spec_like(lg_call *call, int i, luge_dtype dtype, const luge_tensor *like);
void lg_spec_channels_last(lg_call *call, int i, luge_dtype dtype, const luge_shape *shape);
/* Output i dense in `shape`, its axes in the order of the strides of `like`, which has as many. */
void lg_spec_ordered(lg_call *call, int i, luge_dtype dtype, const luge_shape *shape, const luge_tensor *like);
/* Output i of an elementwise op: the shape to which all inputs broadcast, dense, its axes in the order
 * of the inputs' strides (the first input decides where they differ). LUGE_ERR_SHAPE if they do not fit. */
luge_status lg_spec_broadcast(lg_call *call, int i, luge_dtype dtype);

/* ---- the call path (ops/call.c) */

#define LG_SITE __builtin_return_address(0)

/* Runs an op. in[] as given to the public function: LUGE_NONE where absent; a NULL is LUGE_ERR_ARGUMENT
 * unless an error stands. out[] gets n_out borrowed tensors, all NULL on error. Internal outputs
 * (statistics) are outputs like others. */
luge_status lg_call_op(const lg_op *op, int n_in, luge_tensor *const *in, const void *attrs, const void *site,
                       luge_tensor **out);
/* The first output only. */
luge_tensor *lg_call1(const lg_op *op, int n_in, luge_tensor *const *in, const void *attrs, const void *site);
/* Writes into in[0] and returns it. */
luge_tensor *lg_call_in_place(const lg_op *op, int n_in, luge_tensor *const *in, const void *attrs, const void *site);

/* Shorthands: LG_CALL(softmax, &attrs, a); */
#define LG_CALL(name, attrs, ...)                                                                          \
    lg_call1(&lg_op_##name, (int)(sizeof((luge_tensor *[]){__VA_ARGS__}) / sizeof(luge_tensor *)),       \
             (luge_tensor *[]){__VA_ARGS__}, attrs, LG_SITE)
#define LG_CALL_IN_PLACE(name, attrs, ...)                                                                 \
    lg_call_in_place(&lg_op_##name, (int)(sizeof((luge_tensor *[]){__VA_ARGS__}) / sizeof(luge_tensor *)), \
                     (luge_tensor *[]){__VA_ARGS__}, attrs, LG_SITE)

#endif
