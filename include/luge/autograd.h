/** @file autograd.h
 *  Gradients. Ops on tensors that require a gradient record a graph unless a no-grad region is open;
 *  backward walks it. A graph is freed by its backward unless it is retained. */
#ifndef LUGE_AUTOGRAD_H
#define LUGE_AUTOGRAD_H

#include <luge/base.h>
#include <luge/status.h>

LUGE_BEGIN_C

/** How backward runs. */
typedef struct luge_backward_options {
    luge_tensor *gradient; /**< Of the output, in its shape; unset: 1, for a single element. */
    bool retain_graph;     /**< Keep the graph for another backward. PyTorch: retain_graph. */
    bool create_graph;     /**< Record a graph of the gradients themselves; implies retain_graph. Such a gradient kept in
                                a leaf holds the leaf until it is dropped: luge_grad avoids that. PyTorch: create_graph. */
    LUGE_RESERVED(4);      /**< Zero. */
} luge_backward_options;

/** Marks a float leaf as wanting a gradient, in place. LUGE_ERR_DTYPE for integers. @return t */
LUGE_API luge_tensor *luge_requires_grad_(luge_tensor *t);
/** The same values and memory, outside the graph. */
LUGE_API luge_tensor *luge_detach(luge_tensor *t);
/** Adds d loss / d leaf to the gradient of every leaf that `loss` (one element) was made from. If it
 *  fails, no leaf has changed. LUGE_ERR_GRAPH if part of the graph was freed by an earlier backward,
 *  or if a tensor that it needs was changed in place; LUGE_ERR_STATE if another backward (another
 *  thread's, or the one that called this hook) is just going through the same part. */
LUGE_API luge_status luge_backward(luge_tensor *loss);
/** The same with options; NULL options are luge_backward. */
LUGE_API luge_status luge_backward_with(luge_tensor *output, const luge_backward_options *options);
/** d output / d input as a new tensor; leaves keep the gradients they have. LUGE_ERR_GRAPH if
 *  `output` does not depend on `input`. */
LUGE_API luge_tensor *luge_grad(luge_tensor *output, luge_tensor *input, const luge_backward_options *options);
/** Gradients of the sum of several outputs for several inputs, written to `grads[inputs.count]`
 *  (borrowed; LUGE_NONE for an input that no output depends on; all NULL on error). With more than
 *  one output, options->gradient must be unset. */
LUGE_API luge_status luge_grad_list(luge_list outputs, luge_list inputs, luge_tensor **grads,
                                    const luge_backward_options *options);

/** Sees the gradient of a tensor during backward, on the thread that runs it; returns the one to use
 *  (`grad` itself, or a new tensor of the same shape), or NULL after an error. */
typedef luge_tensor *(*luge_grad_hook)(luge_tensor *grad, void *user);
/** Runs when a backward has finished and all leaves have their gradients, on the thread that ran it and
 *  with no graph recorded. */
typedef void (*luge_leaf_hook)(luge_tensor *leaf, void *user);
/** Adds a hook to a tensor that requires a gradient. Hooks run in the order they were added. */
LUGE_API luge_status luge_hook_grad(luge_tensor *t, luge_grad_hook hook, void *user);
/** Adds a hook to a leaf, run at the end of each backward that reached it. */
LUGE_API luge_status luge_hook_accumulated(luge_tensor *leaf, luge_leaf_hook hook, void *user);

/** A function of tensors. */
typedef luge_tensor *(*luge_tensor_fn)(luge_list inputs, void *user);
/** Activation checkpointing: fn(inputs, user), of which the graph keeps no activation that fn makes. When
 *  backward needs one, fn runs again, with the same random numbers, autocast region and inputs: memory for
 *  time. Gradients have the same bits as without it, of all that fn uses (inputs, parameters, whether inputs
 *  require gradients or not), also for luge_grad and create_graph, and regions may lie inside each other.
 *
 *  `fn` must do the same again: it depends on its inputs, on `user`, which outlives the graph, and on Luge's
 *  random numbers alone. If the second run records another op, or one with other shapes, dtypes or gradients to
 *  take (a layer was frozen or put into eval mode in between), backward is LUGE_ERR_STATE.
 *
 *  `fn` may write in place into what it makes. What it writes under no-grad into other tensors, such as the running
 *  statistics of BatchNorm, is written once. It does not write into its inputs, nor as a part of the graph into
 *  other tensors from outside (LUGE_ERR_STATE), and runs no backward through what it has made itself
 *  (LUGE_ERR_UNSUPPORTED). An input that is changed in place before backward is LUGE_ERR_GRAPH there. In a no-grad
 *  region fn just runs.
 *  PyTorch: torch.utils.checkpoint.checkpoint(use_reentrant=False).
 *  @return what fn returned, in the caller's scope */
LUGE_API luge_tensor *luge_checkpoint(luge_tensor_fn fn, luge_list inputs, void *user);
/** Compares backward of `fn` with central differences, for a random cotangent. Inputs are leaves of
 *  f64 or f32 that require gradients (others are constants); differences are taken in their dtype,
 *  in steps of the cube root of its epsilon.
 *  @param tolerance largest |analytic - numeric| / max(1, |numeric|) that passes
 *  @return LUGE_OK, or LUGE_ERR_GRAPH with the input, the element and both values in the text */
LUGE_API luge_status luge_gradcheck(luge_tensor_fn fn, luge_list inputs, void *user, double tolerance) LUGE_MUST_CHECK;
/** The same one order up: gradcheck of the gradient of `fn`. */
LUGE_API luge_status luge_gradgradcheck(luge_tensor_fn fn, luge_list inputs, void *user, double tolerance) LUGE_MUST_CHECK;

/** What autocast does with an op's float inputs. */
typedef enum luge_cast_class {
    LUGE_CAST_KEEP,  /**< Nothing. */
    LUGE_CAST_LOW,   /**< To the region's dtype: the op is fast and safe there. */
    LUGE_CAST_F32,   /**< To f32: the op needs range or precision. */
    LUGE_CAST_WIDEST /**< To the widest dtype among the inputs. */
} luge_cast_class;

/** What a custom op's backward needs; an OR of these. */
enum {
    LUGE_SAVE_NOTHING = 0, /**< Only the gradient. */
    LUGE_SAVE_INPUTS = 1,  /**< The inputs. */
    LUGE_SAVE_OUTPUT = 2   /**< The output. */
};

/** One call of a custom op. */
typedef struct luge_call {
    luge_list inputs;    /**< After autocast; in backward NULL items unless the op declares LUGE_SAVE_INPUTS. */
    luge_tensor *output; /**< In backward, with LUGE_SAVE_OUTPUT; else NULL. */
    const void *attrs;   /**< A copy of what luge_custom was given. */
} luge_call;

/** An op of the user's. Static: it must outlive every graph that uses it. */
typedef struct luge_custom_op {
    const char *name;         /**< For messages. */
    luge_cast_class autocast; /**< What autocast does with the inputs. */
    int save;                 /**< LUGE_SAVE_... */
    size_t attrs_size;        /**< That many bytes are copied at each call. */
    /** Makes the output. Runs under no-grad; may use ops or raw pointers. */
    luge_tensor *(*forward)(const luge_call *call);
    /** Fills grads[i] (LUGE_NONE on entry) with the gradient of input i, in its shape. Made of ops it
     *  can itself be differentiated. NULL: the op has no gradient. */
    void (*backward)(const luge_call *call, luge_tensor *grad, luge_tensor **grads);
    LUGE_RESERVED(4); /**< Zero. */
} luge_custom_op;

/** Runs a custom op. `attrs` may be NULL if attrs_size is 0. */
LUGE_API luge_tensor *luge_custom(const luge_custom_op *op, luge_list inputs, const void *attrs);

LUGE_END_C

#endif
