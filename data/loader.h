/* Where a loader is, for runs that are saved and resumed. */
#ifndef LG_DATA_LOADER_H
#define LG_DATA_LOADER_H

#include <luge/data.h>

enum { LG_LOADER_NUMBERS = 6 };

/* seed, epoch, whether one has begun, samples and batches of it that were given out, batch size */
void lg_loader_get(const luge_loader *l, int64_t numbers[LG_LOADER_NUMBERS]);
/* Whether a loader of this dataset can be there; the error, if not, says why. */
luge_status lg_loader_check(const luge_loader *l, const int64_t numbers[LG_LOADER_NUMBERS]);
void lg_loader_set(luge_loader *l, const int64_t numbers[LG_LOADER_NUMBERS]);

#endif
