/* An open accumulation window, for runs that are saved and resumed. */
#ifndef LG_TRAIN_ACCUM_H
#define LG_TRAIN_ACCUM_H

#include <luge/train.h>

enum { LG_ACCUM_NUMBERS = 3 };

/* Micro-batches since the last step, items of these, items of the first of them. LUGE_ERR_STATE between the
 * stages of a step that found no memory. */
luge_status lg_accum_get(const luge_accum *a, int64_t numbers[LG_ACCUM_NUMBERS]);
luge_status lg_accum_check(const luge_accum *a, const int64_t numbers[LG_ACCUM_NUMBERS]);
void lg_accum_set(luge_accum *a, const int64_t numbers[LG_ACCUM_NUMBERS]);

#endif
