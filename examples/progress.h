/* A progress bar on stderr for luge_loader_options.progress. On a terminal one line is redrawn; elsewhere
 * a line is written for each quarter of an epoch. */
#ifndef EXAMPLES_PROGRESS_H
#define EXAMPLES_PROGRESS_H

#include <luge/luge.h>

typedef struct progress_bar {
    int epochs;            /* how many there will be */
    double loss, accuracy; /* what to show beside the bar; NaN: nothing yet */
    int quarter;           /* of the last line, where stderr is not a terminal */
} progress_bar;

/* The callback; `bar` is a progress_bar. */
void progress_show(const luge_progress *p, void *bar);

#endif
