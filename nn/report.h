/* Texts of many lines, made line by line. */
#ifndef LG_NN_REPORT_H
#define LG_NN_REPORT_H

#include <luge/status.h>

typedef struct lg_report {
    char *text; /* NULL: empty */
    size_t used, room;
} lg_report;

/* Appends; sets the error if there is no memory, and then leaves the text as it is. */
void lg_report_add(lg_report *r, const char *format, ...) LUGE_PRINTF_LIKE(2, 3);
/* The text, borrowed from the scope; never NULL. The report is empty afterwards. */
const char *lg_report_end(lg_report *r);

#endif
