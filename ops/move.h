/* Moving between devices, for the call path. */
#ifndef LG_OPS_MOVE_H
#define LG_OPS_MOVE_H

#include "core/op.h"

typedef struct lg_move_attrs {
    lg_device *from, *to;
    bool non_blocking, pinned;
} lg_move_attrs;

extern const lg_op lg_op_to;

#endif
