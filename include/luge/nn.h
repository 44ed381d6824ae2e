/** @file nn.h
 *  Modules. Every luge_nn_... makes one; luge_module_... act on one. Parents own their children: a
 *  module given to another is no longer yours to destroy, even if that call fails. Names and layouts
 *  are PyTorch's: "0.weight" of a linear layer is [out, in].
 *
 *  A pattern names parameters: wildcards * and ?, alternatives with |; "@vectors" are those of rank 0
 *  and 1 (biases, norm weights); NULL is all. Matching nothing is LUGE_ERR_ARGUMENT. */
#ifndef LUGE_NN_H
#define LUGE_NN_H

#include <luge/autograd.h>
#include <luge/ops.h>

LUGE_BEGIN_C

/** Options of luge_nn_linear. */
typedef struct luge_linear_options {
    bool no_bias;     /**< PyTorch: bias=False. */
    LUGE_RESERVED(4); /**< Zero. */
} luge_linear_options;

/** Options of the norms. */
typedef struct luge_norm_options {
    double eps;       /**< 1e-5. PyTorch: eps. */
    double momentum;  /**< 0.1; of running statistics. PyTorch: momentum. */
    bool no_affine;   /**< No weight and bias. PyTorch: affine=False, elementwise_affine=False. */
    LUGE_RESERVED(4); /**< Zero. */
} luge_norm_options;

/** Options of luge_nn_embedding. */
typedef struct luge_embedding_options {
    const int64_t *padding_idx; /**< This row starts at zero and gets no gradient; unset: none. PyTorch: padding_idx. */
    LUGE_RESERVED(4);           /**< Zero. */
} luge_embedding_options;

/** Options of luge_nn_multihead_attention. */
typedef struct luge_mha_options {
    double dropout;   /**< Of attention weights; 0. PyTorch: dropout. */
    bool no_bias;     /**< PyTorch: bias=False. */
    bool causal;      /**< Each position attends to itself and earlier ones. */
    LUGE_RESERVED(4); /**< Zero. */
} luge_mha_options;

/** Options of luge_nn_transformer_encoder_layer. PyTorch: nn.TransformerEncoderLayer, batch_first=True. */
typedef struct luge_transformer_options {
    int64_t dim_feedforward;   /**< 2048. PyTorch: dim_feedforward. */
    const double *dropout;     /**< Unset: 0.1. PyTorch: dropout. */
    bool gelu;                 /**< GELU instead of ReLU. PyTorch: activation="gelu". */
    bool norm_first;           /**< Norm before attention and feed-forward. PyTorch: norm_first. */
    bool causal;               /**< Causal self-attention. */
    double layer_norm_eps;     /**< 1e-5. PyTorch: layer_norm_eps. */
    LUGE_RESERVED(4);          /**< Zero. */
} luge_transformer_options;

/* ---- layers; initial values are PyTorch's */

/** x [..., in] -> [..., out]; "weight" [out, in], "bias" [out]. PyTorch: nn.Linear. */
LUGE_API luge_module *luge_nn_linear(int64_t in, int64_t out, const luge_linear_options *options);
/** x [N, in, H, W] -> [N, out, H', W']; "weight" [out, in/groups, kernel, kernel], "bias" [out]. PyTorch: nn.Conv2d. */
LUGE_API luge_module *luge_nn_conv2d(int64_t in, int64_t out, int64_t kernel, const luge_conv2d_options *options);
/** x [N, C] or [N, C, L]. Buffers "running_mean", "running_var", "num_batches_tracked". PyTorch: nn.BatchNorm1d. */
LUGE_API luge_module *luge_nn_batch_norm1d(int64_t channels, const luge_norm_options *options);
/** x [N, C, H, W]. PyTorch: nn.BatchNorm2d. */
LUGE_API luge_module *luge_nn_batch_norm2d(int64_t channels, const luge_norm_options *options);
/** Over the last axes, which have the sizes `normalized`. PyTorch: nn.LayerNorm. */
LUGE_API luge_module *luge_nn_layer_norm(luge_shape normalized, const luge_norm_options *options);
/** indices i64 [...] -> [..., dim]; "weight" [count, dim]. PyTorch: nn.Embedding. */
LUGE_API luge_module *luge_nn_embedding(int64_t count, int64_t dim, const luge_embedding_options *options);
/** Zeroes elements with probability p in training. PyTorch: nn.Dropout. */
LUGE_API luge_module *luge_nn_dropout(double p);
/** PyTorch: nn.MaxPool2d. */
LUGE_API luge_module *luge_nn_max_pool2d(int64_t kernel, const luge_pool2d_options *options);
/** PyTorch: nn.AvgPool2d. */
LUGE_API luge_module *luge_nn_avg_pool2d(int64_t kernel, const luge_pool2d_options *options);
/** To [N, C, height, width] by averages. PyTorch: nn.AdaptiveAvgPool2d. */
LUGE_API luge_module *luge_nn_adaptive_avg_pool2d(int64_t height, int64_t width);
LUGE_API luge_module *luge_nn_relu(void);     /**< PyTorch: nn.ReLU. */
LUGE_API luge_module *luge_nn_gelu(void);     /**< PyTorch: nn.GELU, exact. */
LUGE_API luge_module *luge_nn_silu(void);     /**< PyTorch: nn.SiLU. */
LUGE_API luge_module *luge_nn_tanh(void);     /**< PyTorch: nn.Tanh. */
LUGE_API luge_module *luge_nn_sigmoid(void);  /**< PyTorch: nn.Sigmoid. */
LUGE_API luge_module *luge_nn_softplus(void); /**< PyTorch: nn.Softplus. */
/** [N, ...] -> [N, product]. PyTorch: nn.Flatten. */
LUGE_API luge_module *luge_nn_flatten(void);
/** Its input, unchanged. PyTorch: nn.Identity. */
LUGE_API luge_module *luge_nn_identity(void);
/** Loose tensors, these very ones, as parameters "0", "1", ...: float leaves without gaps in memory. One that is
 *  named twice is a shared parameter: reached by both names, but visited, counted, stored and trained once. Has
 *  no forward. PyTorch: nn.ParameterList. */
LUGE_API luge_module *luge_nn_params(luge_list tensors);
/** One after another; children are named "0", "1", ... and owned from then on, even on error. PyTorch: nn.Sequential. */
LUGE_API luge_module *luge_nn_sequential_array(luge_module *const *modules, int count);
/** body(x) + shortcut(x); `shortcut` NULL: + x. They are added as luge_add does it: shapes that differ broadcast,
 *  so a size of 1 on either side is repeated, and others are LUGE_ERR_SHAPE. Children "body", "shortcut". Owns
 *  both, even on error. */
LUGE_API luge_module *luge_nn_residual(luge_module *body, luge_module *shortcut);
/** Takes one input, x, which is query, key and value; two: x and a mask; three: query [N, L, dim], key and value
 *  [N, S, dim]; four: these and a mask. A mask is what luge_attention takes (added to the scores; bool: false is
 *  masked) or LUGE_NONE, and broadcasts to [N, heads, L, S]. Output [N, L, dim]. "in_proj_weight" [3 dim, dim],
 *  "in_proj_bias", "out_proj.weight", "out_proj.bias".
 *  PyTorch: nn.MultiheadAttention, batch_first=True. */
LUGE_API luge_module *luge_nn_multihead_attention(int64_t dim, int64_t heads, const luge_mha_options *options);
/** x [N, L, dim] -> the same. PyTorch's names: "self_attn.in_proj_weight", "linear1.weight", "norm1.weight", ... */
LUGE_API luge_module *luge_nn_transformer_encoder_layer(int64_t dim, int64_t heads,
                                                        const luge_transformer_options *options);

/* ---- running */

/** Runs the module in a scope named after it; the result belongs to the caller's scope. */
LUGE_API luge_tensor *luge_forward(luge_module *module, luge_tensor *input);
/** The same for several inputs. */
LUGE_API luge_tensor *luge_forward_list(luge_module *module, luge_list inputs);
/** For modules with several outputs, written to `outputs[count]` (all NULL on error). */
LUGE_API luge_status luge_forward_multi(luge_module *module, luge_list inputs, luge_tensor **outputs, int count);

/* ---- acting on a module */

/** Training mode, for the module and all below it. */
LUGE_API void luge_module_train(luge_module *module);
/** Eval mode: no dropout, norms use running statistics. */
LUGE_API void luge_module_eval(luge_module *module);
/** Whether it is in training mode, as new modules are. */
LUGE_API bool luge_module_training(const luge_module *module);
/** The kind of module: "Linear", "Sequential", or a user class's name; "" for NULL. */
LUGE_API const char *luge_module_kind(const luge_module *module);
/** Moves all parameters and buffers; their handles stay the same. */
LUGE_API luge_status luge_module_to(luge_module *module, luge_device device);
/** Converts float parameters and buffers; their handles stay the same. */
LUGE_API luge_status luge_module_to_dtype(luge_module *module, luge_dtype dtype);
/** A parameter by its path, "0.weight"; borrowed from the module. LUGE_ERR_ARGUMENT if there is none. */
LUGE_API luge_tensor *luge_module_param(luge_module *module, const char *name);
/** A buffer by its path. */
LUGE_API luge_tensor *luge_module_buffer(luge_module *module, const char *name);
/** A child by its path, "layer1.0"; it stays its parent's. */
LUGE_API luge_module *luge_module_child(luge_module *module, const char *name);
/** How many elements the parameters have together; those of a shared one count once. */
LUGE_API int64_t luge_module_param_count(const luge_module *module);
/** Which parts of a module are recomputed in backward (luge_checkpoint). At most one of them. */
typedef struct luge_checkpointing {
    int every;           /**< Each `every`th child of the module as one; 1: all of them. */
    bool sqrt;           /**< A Sequential's n children in about sqrt(2n) segments, each but the last as one: a
                              segment's activations are kept, not all. PyTorch: checkpoint_sequential. */
    const char *modules; /**< Those below the module whose paths match (wildcards * and ?, alternatives with |). */
    LUGE_RESERVED(4);    /**< Zero. */
} luge_checkpointing;
/** Sets what is recomputed; NULL or all zero: nothing. Modules with several outputs run as always. Modules below
 *  keep policies of their own, and then are recomputed within what is recomputed. It costs nothing where no
 *  graph is recorded. Between forward and backward the modules stay as they are: in train or eval mode, frozen or
 *  not. A pattern that matches nothing is LUGE_ERR_ARGUMENT. */
LUGE_API luge_status luge_module_set_checkpointing(luge_module *module, const luge_checkpointing *policy);
/** Stops gradients of the parameters that match, drops those they have, and stops the running
 *  statistics beside them: a batch norm with a frozen parameter normalises as in eval mode.
 *  @return how many parameters; 0 on error */
LUGE_API int luge_module_freeze(luge_module *module, const char *pattern);
/** Undoes luge_module_freeze. @return how many parameters; 0 on error */
LUGE_API int luge_module_unfreeze(luge_module *module, const char *pattern);
/** An independent copy, with the same values, modes and frozen parameters. Draws no random numbers. */
LUGE_API luge_module *luge_module_clone(const luge_module *module);
/** Copies values of parameters and buffers, by name; nothing is copied unless everything fits. */
LUGE_API luge_status luge_module_copy(luge_module *to, const luge_module *from);
/** A table of layers, output shapes, parameters and FLOPs for an input of that shape. Runs the module
 *  in eval mode on zeros. Borrowed from the scope, never NULL. */
LUGE_API const char *luge_module_summary(luge_module *module, luge_shape input);
/** Destroys a module with all below it; NULL is fine. Must not have a parent: those are ignored, with
 *  a warning in the log. */
LUGE_API void luge_module_destroy(luge_module *module);

/** Sees one parameter or buffer and its path. */
typedef void (*luge_param_fn)(const char *name, luge_tensor *param, void *user);
/** Visits all parameters: a module's own in the order they were added, then its children's. A shared
 *  one is visited once, under its first name. Ends early if an error comes to stand. */
LUGE_API luge_status luge_module_each_param(luge_module *module, luge_param_fn visit, void *user);
/** Visits all buffers. */
LUGE_API luge_status luge_module_each_buffer(luge_module *module, luge_param_fn visit, void *user);
/** Sees one module and its path ("" for the root). */
typedef void (*luge_module_fn)(const char *name, luge_module *module, void *user);
/** Visits the module and all below it, parents first. */
LUGE_API luge_status luge_module_each(luge_module *module, luge_module_fn visit, void *user);

/** Writes parameters and buffers as safetensors under their paths; PyTorch's safetensors package
 *  reads them. A shared parameter is stored once, under its first name; others that overlap in memory are
 *  LUGE_ERR_UNSUPPORTED. Written to a temporary file beside `path`, synced, then renamed. */
LUGE_API luge_status luge_module_save(const luge_module *module, const char *path) LUGE_MUST_CHECK;

/** How luge_module_load reads. */
typedef struct luge_load_options {
    bool partial;     /**< Take what fits, leave the rest as it is. PyTorch: strict=False. */
    const char *skip; /**< Pattern of names not to load. */
    LUGE_RESERVED(4); /**< Zero. */
} luge_load_options;
/** What luge_module_load found. */
typedef struct luge_load_result {
    int loaded;       /**< Tensors taken from the file. */
    int missing;      /**< In the module, not in the file. */
    int unexpected;   /**< In the file, not in the module. */
    int mismatched;   /**< In both, with other shapes. */
    const char *text; /**< One line per difference; borrowed from the scope. */
    LUGE_RESERVED(4); /**< Zero. */
} luge_load_result;
/** Reads safetensors into a module, converting dtypes. Everything is checked and read before anything
 *  changes; a strict load (the default) wants the same names and shapes. A shared parameter may be in
 *  the file under any of its names; the first of them counts. Batch norm counters may be missing, as in
 *  PyTorch. `result` may be NULL. */
LUGE_API luge_status luge_module_load(luge_module *module, const char *path, const luge_load_options *options,
                                      luge_load_result *result);

/* ---- modules of the user's */

/** A kind of module. Static: it must outlive its modules. One forward of the three will do: the others are made of it
 *  where inputs and outputs are one each. Without any, the module only holds parameters and children, and running it
 *  is LUGE_ERR_UNSUPPORTED. */
typedef struct luge_module_class {
    const char *name;  /**< Shown in summaries and messages. */
    size_t state_size; /**< Bytes of the state that each module of this kind has. */
    /** Adds parameters, buffers and children. `state` is a copy of what luge_module_create was given;
     *  runs again, on a fresh copy, when the module is cloned. */
    void (*build)(luge_module *self, void *state);
    /** One input, one output. Never called on a module whose build failed. */
    luge_tensor *(*forward)(luge_module *self, void *state, luge_tensor *input);
    /** Several inputs, one output. Called with as many inputs as the caller gave, none included: look at
     *  inputs.count first. */
    luge_tensor *(*forward_list)(luge_module *self, void *state, luge_list inputs);
    /** Frees what build made the state refer to; parameters and children go by themselves. */
    void (*destroy)(void *state);
    luge_cast_class autocast; /**< LUGE_CAST_F32: inputs come as f32 inside an autocast region, say. */
    /** Several inputs, several outputs. */
    void (*forward_multi)(luge_module *self, void *state, luge_list inputs, luge_tensor **outputs, int count);
    LUGE_RESERVED(3); /**< Zero. */
} luge_module_class;

/** Makes a module of the user's; NULL if anything in `build` failed, with all it had freed. `state` NULL
 *  is all zero. */
LUGE_API luge_module *luge_module_create(const luge_module_class *type, const void *state);
/** Makes `value` (unshared, or copied) a parameter; in `build` only. A parameter that the module or one
 *  of its children has already is not copied but shared: tied weights. Names have no dots.
 *  @return its handle, good for the module's life */
LUGE_API luge_tensor *luge_module_add_param(luge_module *self, const char *name, luge_tensor *value);
/** Makes `value` a buffer: saved and moved with the module, but not trained. */
LUGE_API luge_tensor *luge_module_add_buffer(luge_module *self, const char *name, luge_tensor *value);
/** Makes `child` a child, owned from then on, even on error; in `build` only. @return the child to keep
 *  in the state: `child`, or while cloning a copy of one that the original was given */
LUGE_API luge_module *luge_module_add(luge_module *self, const char *name, luge_module *child);

/* ---- initial values, in place; each returns its argument. PyTorch: torch.nn.init */

LUGE_API luge_tensor *luge_init_uniform_(luge_tensor *t, double low, double high); /**< Uniform in [low, high). */
LUGE_API luge_tensor *luge_init_normal_(luge_tensor *t, double mean, double std);  /**< Normal. */
/** Uniform with bound sqrt(6 / ((1 + a^2) fan_in)). PyTorch's layers use a = sqrt(5). */
LUGE_API luge_tensor *luge_init_kaiming_uniform_(luge_tensor *t, double a);
/** Normal with std sqrt(2 / fan_in) (He et al. 2015, for ReLU). */
LUGE_API luge_tensor *luge_init_kaiming_normal_(luge_tensor *t);
/** Uniform with bound sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010). */
LUGE_API luge_tensor *luge_init_xavier_uniform_(luge_tensor *t);

LUGE_END_C

/** luge_nn_sequential_array of a list written in place; layers are made in the order written. */
#ifndef __cplusplus
#define luge_nn_sequential(...) luge_nn_sequential_array((luge_module *[]){__VA_ARGS__}, LUGE_COUNT_(luge_module *, __VA_ARGS__))
#else
inline luge_module *luge_nn_sequential_(std::initializer_list<luge_module *> m)
{
    return luge_nn_sequential_array(m.begin(), int(m.size()));
}
#define luge_nn_sequential(...) luge_nn_sequential_({__VA_ARGS__})
#endif

#endif
