/* Numbers of the ops: one per row of ops/ops.def. */
#ifndef LG_CORE_OP_ID_H
#define LG_CORE_OP_ID_H

typedef enum lg_op_id {
#define LG_OP(name, cpu, cuda) LG_OP_##name,
#include "ops/ops.def"
#undef LG_OP
    LG_OP_COUNT
} lg_op_id;

#endif
