/* The table of all ops, and what the layers below need of them. */
#include "core/services.h"
#include "ops/attrs.h"
#include "ops/call.h"

const lg_op *const lg_ops[LG_OP_COUNT] = {
#define LG_OP(name, cpu, cuda) [LG_OP_##name] = &lg_op_##name,
#include "ops/ops.def"
#undef LG_OP
};

/* ---- from an op to its number: a hash of addresses, filled when the library starts */

enum { SLOT_BITS = 10, SLOTS = 1 << SLOT_BITS };
_Static_assert(LG_OP_COUNT * 3 < SLOTS * 2, "the table of op numbers is too full");
static short number_plus_one[SLOTS];

static unsigned slot_of(const lg_op *op)
{
    return (unsigned)(((uint64_t)(uintptr_t)op >> 3) * 0x9E3779B97F4A7C15u >> (64 - SLOT_BITS));
}

int lg_op_number(const lg_op *op)
{
    for (unsigned s = slot_of(op);; s = (s + 1) % SLOTS) {
        const int number = number_plus_one[s] - 1;
        if (number < 0 || lg_ops[number] == op) return number;
    }
}

const char *lg_op_row(const lg_op *op)
{
    static const char *const row[LG_OP_COUNT] = {
#define LG_OP(name, cpu, cuda) [LG_OP_##name] = #name,
#include "ops/ops.def"
#undef LG_OP
    };
    const int number = lg_op_number(op);
    return number >= 0 ? row[number] : op->name;
}

static void number_ops(void)
{
    for (int i = 0; i < LG_OP_COUNT; ++i) {
        unsigned s = slot_of(lg_ops[i]);
        while (number_plus_one[s] != 0 && number_plus_one[s] != i + 1) s = (s + 1) % SLOTS;
        number_plus_one[s] = (short)(i + 1);
    }
}

/* ---- services */

/* Sums the axes along which `shape` was broadcast to a's shape. */
static luge_tensor *sum_to(luge_tensor *a, const luge_shape *shape)
{
    const int extra = a->shape.rank - shape->rank;
    uint32_t mask = 0;
    bool inner = false;
    for (int i = 0; i < a->shape.rank; ++i) {
        const bool added = i < extra;
        if (!added && shape->dim[i - extra] == a->shape.dim[i]) continue;
        mask |= 1u << i;
        inner = inner || !added;
    }
    if (mask == 0) return a;
    const lg_reduce_attrs attrs = {.mask = mask, .keepdim = inner};
    luge_tensor *sum = LG_CALL(sum, &attrs, a);
    return inner && extra > 0 ? luge_reshape(sum, *shape) : sum;
}

static luge_tensor *copy_of(luge_tensor *a)
{
    const lg_layout_attrs attrs = {LG_LAYOUT_KEEP};
    return LG_CALL(copy, &attrs, a);
}

void lg_register_services(void)
{
    number_ops();
    lg_service.add = luge_add;
    lg_service.add_in_place = luge_add_;
    lg_service.sum_to = sum_to;
    lg_service.cast = luge_cast;
    lg_service.mul = luge_mul;
    lg_service.sum = luge_sum;
    lg_service.full = luge_full;
    lg_service.contiguous = luge_contiguous;
    lg_service.copy = luge_copy_;
    lg_service.clone = copy_of;
}
