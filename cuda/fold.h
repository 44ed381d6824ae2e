/* How groups of elements are shared out among blocks and threads; see cuda/fold.cuh. */
#ifndef LG_CUDA_FOLD_H
#define LG_CUDA_FOLD_H

#include <stdint.h>

typedef struct lg_fold {
    int64_t groups, count;  /* how many, and elements of each */
    int64_t slices;         /* of a group, each for a block of its own */
    int threads;            /* of a group in a block */
    int groups_a_block;
    int columns;            /* groups are neighbours in memory, so a warp's lanes are groups */
} lg_fold;

/* A function of the numbers alone. `sliced`: groups may be cut into several. */
static inline lg_fold lg_fold_of(int64_t groups, int64_t count, int columns, int sliced)
{
    enum { BLOCK = 256, WARP = 32, ENOUGH_BLOCKS = 1024, MOST = 256 };
    lg_fold f = {groups, count, 1, 1, BLOCK, 0};
    if (columns && count >= 4) {
        f.columns = 1;
        f.threads = BLOCK / WARP;
        f.groups_a_block = WARP;
    } else if (!columns && count > 16) {
        f.threads = count <= 1024 ? WARP : BLOCK;
        f.groups_a_block = BLOCK / f.threads;
    }
    const int64_t blocks = (groups + f.groups_a_block - 1) / f.groups_a_block;
    const int64_t shortest = f.columns ? 64 : 2048;
    int64_t wanted = ENOUGH_BLOCKS / (blocks > 0 ? blocks : 1);
    if (wanted > count / shortest) wanted = count / shortest;
    if (wanted > MOST) wanted = MOST;
    f.slices = sliced && wanted > 1 ? wanted : 1;
    while (!f.columns && f.threads * f.groups_a_block > WARP && groups <= f.groups_a_block / 2) f.groups_a_block /= 2;
    return f;
}

/* Threads of a block. */
static inline int lg_fold_block(const lg_fold *f)
{
    return f->threads * f->groups_a_block;
}

#endif
