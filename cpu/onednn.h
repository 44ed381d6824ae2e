/* Convolutions of f32 by oneDNN, each one a primitive that a single thread runs on a few images. What
 * differs between oneDNN 2 and 3, and everything that is known of it, lies in onednn.c;
 * onednn_conv.c cuts a call into such pieces. */
#ifndef LG_CPU_ONEDNN_H
#define LG_CPU_ONEDNN_H

#include "core/op.h"

/* ---- the kernels of cpu_conv.c and cpu_conv_weight.c ask these first. LG_DECLINED: what oneDNN does
 * not have, or not faster; a matter of dtype, layout and shape alone, never of memory. */

int lg_onednn_conv2d(const lg_call *call);
int lg_onednn_conv2d_backward_input(const lg_call *call);
int lg_onednn_conv2d_backward_weight(const lg_call *call);
/* Which convolutions they take of those they can. For tests and benchmarks, which run nothing else meanwhile. */
typedef enum lg_onednn_use { LG_ONEDNN_WHERE_FASTER, LG_ONEDNN_WHERE_POSSIBLE, LG_ONEDNN_NEVER } lg_onednn_use;
void lg_onednn_set_use(lg_onednn_use use);

/* ---- primitives */

typedef enum lg_onednn_kind { LG_ONEDNN_FORWARD, LG_ONEDNN_BACKWARD_INPUT, LG_ONEDNN_BACKWARD_WEIGHT, LG_ONEDNN_KINDS } lg_onednn_kind;

/* What a primitive is made for. x [images, channels, size] and y [images, out_channels, out] lie
 * channels-last, the weight [out_channels, channels / groups, kernel] row-major. */
typedef struct lg_onednn_key {
    int64_t kind, with_bias, groups, images, channels, out_channels;
    int64_t size[2], out[2], kernel[2], stride[2], before[2], after[2], dilation[2];
} lg_onednn_key;

typedef struct lg_onednn {
    int64_t packed_bytes;  /* of the weight in the order that the primitive wants */
    int64_t scratch_bytes; /* for a run */
} lg_onednn;

/* Every use of primitives lies between these, on the calling thread. False: out of memory. */
typedef struct lg_onednn_session { int threads; } lg_onednn_session;
bool lg_onednn_enter(lg_onednn_session *s);
void lg_onednn_leave(const lg_onednn_session *s);

/* From the cache, made if need be; to be given back. LG_DECLINED if oneDNN has only its reference code
 * for it, LUGE_ERR_OUT_OF_MEMORY (no error set) if there is no memory. */
int lg_onednn_get(const lg_onednn_key *key, lg_onednn **primitive);
void lg_onednn_put(lg_onednn *primitive);
bool lg_onednn_same_packing(const lg_onednn *a, const lg_onednn *b);

/* These return false when out of memory. Memory is 64-byte aligned. */

/* The weight into the primitive's order; for backward weight the other way. */
bool lg_onednn_repack(const lg_onednn *primitive, const void *from, void *to);
/* Computes whichever of x, weight (packed) and y is the result. From any thread of the pool. bias: NULL
 * if the key has none. */
bool lg_onednn_run(const lg_onednn *primitive, void *x, void *weight, void *bias, void *y, void *scratch);

/* Primitives that the cache holds now. */
int lg_onednn_cached(void);
enum { LG_ONEDNN_CACHE = 256 };

#endif
