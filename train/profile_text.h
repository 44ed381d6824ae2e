/* Between the reports of profiles. */
#ifndef LG_TRAIN_PROFILE_TEXT_H
#define LG_TRAIN_PROFILE_TEXT_H

#include "core/profile.h"

/* A text that grows. Once it could not, nothing is added any more, and an error stands. */
typedef struct lg_text {
    char *at;
    size_t used, room;
    bool failed;
} lg_text;

void lg_text_add(lg_text *out, const char *format, ...) LUGE_PRINTF_LIKE(2, 3);
/* Hands the text to the scope; the error's text if it is not whole. Never NULL. */
const char *lg_text_borrow(lg_text *out);

/* Time in all ops whose values were looked at. */
int64_t lg_amp_time(const luge_profile *p);

#endif
