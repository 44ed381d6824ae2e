/* Each thread's generator: a place in the Philox stream of its seed, which ops take blocks from. */
#include "core/rng.h"

#include <luge/process.h>

#include "core/thread.h"

lg_rng_range lg_rng_take(int64_t numbers)
{
    lg_thread *self = lg_self();
    lg_rng_range range = {.seed = self->seed, .stream = 0, .first = self->rng_offset};
    if (numbers > 0) self->rng_offset += (uint64_t)(numbers / 4 + (numbers % 4 != 0));
    return range;
}

luge_status luge_seed(uint64_t seed)
{
    lg_thread *self = lg_self();
    if (self->error != LUGE_OK) return self->error;
    self->seed = seed;
    self->rng_offset = 0;
    return LUGE_OK;
}
