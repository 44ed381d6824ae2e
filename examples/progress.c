/* A progress bar: see progress.h. */
#include "progress.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { CELLS = 24 };

/* "  loss 0.4312  accuracy 84.1 %", as far as it is known. */
static void describe(const progress_bar *bar, char *text, size_t size)
{
    text[0] = '\0';
    if (!isfinite(bar->loss)) return;
    snprintf(text, size, "  loss %.4f  accuracy %4.1f %%", bar->loss, 100 * bar->accuracy);
}

static void draw(const luge_progress *p, const progress_bar *bar)
{
    char cells[CELLS + 1], values[64];
    const int full = (int)(p->done * CELLS);
    for (int i = 0; i < CELLS; ++i) cells[i] = i < full ? '=' : i == full ? '>' : ' ';
    cells[CELLS] = '\0';
    describe(bar, values, sizeof values);
    const int left = (int)ceil(p->seconds_left);
    fprintf(stderr, "\repoch %d/%d [%s] %3.0f %%%s  %.0f images/s  %d:%02d left\033[K", p->epoch + 1, bar->epochs,
            cells, 100 * p->done, values, p->samples_per_second, left / 60, left % 60);
    if (p->done >= 1) fprintf(stderr, "\r\033[K"); /* what the epoch gave is printed in its place */
    fflush(stderr);
}

static void write_line(const luge_progress *p, progress_bar *bar)
{
    const int quarter = (int)(4 * p->done);
    if (quarter == bar->quarter) return;
    bar->quarter = quarter % 4;
    char values[64];
    describe(bar, values, sizeof values);
    fprintf(stderr, "epoch %d/%d %3.0f %%%s  %.0f images/s\n", p->epoch + 1, bar->epochs, 100 * p->done, values,
            p->samples_per_second);
}

void progress_show(const luge_progress *p, void *bar)
{
    if (isatty(STDERR_FILENO)) {
        draw(p, bar);
    } else {
        write_line(p, bar);
    }
}
