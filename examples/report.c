/* What mnist.c shows of a run: see report.h. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plot.h"

static const plot_color white = {255, 255, 255}, ink = {40, 44, 52}, rule = {228, 231, 236};
static const plot_color blue = {38, 98, 200}, pale_blue = {184, 204, 240}, orange = {232, 140, 34};
static const plot_color green = {32, 140, 78}, red = {208, 52, 52};

/* ---- curves */

void curve_add(curve *c, double x, double y)
{
    if (c->count == c->room) {
        const int room = c->room > 0 ? 2 * c->room : 256;
        double *xs = realloc(c->x, (size_t)room * sizeof *xs);
        if (xs == NULL) return;
        c->x = xs;
        double *ys = realloc(c->y, (size_t)room * sizeof *ys);
        if (ys == NULL) return;
        c->y = ys;
        c->room = room;
    }
    c->x[c->count] = x;
    c->y[c->count++] = y;
}

void curve_free(curve *c)
{
    free(c->x);
    free(c->y);
    *c = (curve){0};
}

/* ---- results */

static void keep_picture(picture *p, const float *pixels, int truth, int guess)
{
    float low = pixels[0], high = pixels[0];
    for (int i = 1; i < SIDE * SIDE; ++i) {
        low = fminf(low, pixels[i]);
        high = fmaxf(high, pixels[i]);
    }
    const float scale = high > low ? 255 / (high - low) : 0;
    for (int i = 0; i < SIDE * SIDE; ++i) p->grey[i] = (unsigned char)lroundf((pixels[i] - low) * scale);
    p->truth = truth;
    p->guess = guess;
}

void results_add(results *r, const float *pixels, int64_t truth, int64_t guess)
{
    if (truth < 0 || truth >= CLASSES || guess < 0 || guess >= CLASSES) return;
    const int t = (int)truth, g = (int)guess;
    ++r->count[t][g];
    if (r->n_first < SHOWN) keep_picture(&r->first[r->n_first++], pixels, t, g);
    if (t != g && r->n_wrong < SHOWN) keep_picture(&r->wrong[r->n_wrong++], pixels, t, g);
}

static double share(int64_t part, int64_t whole) { return whole > 0 ? (double)part / (double)whole : 0; }

double results_accuracy(const results *r)
{
    int64_t right = 0, all = 0;
    for (int t = 0; t < CLASSES; ++t) {
        right += r->count[t][t];
        for (int g = 0; g < CLASSES; ++g) all += r->count[t][g];
    }
    return share(right, all);
}

bool class_names_find(class_names *names, const char *dir, const char *file)
{
    static const char *const clothes[CLASSES] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                                 "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
    const bool fashion = strstr(dir, "fashion") != NULL;
    for (int c = 0; c < CLASSES; ++c)
        snprintf(names->of[c], sizeof names->of[c], "%s", fashion ? clothes[c] : (char[]){(char)('0' + c), '\0'});
    if (file == NULL) return true;
    FILE *f = fopen(file, "r");
    int found = 0;
    while (f != NULL && found < CLASSES && fgets(names->of[found], sizeof names->of[found], f) != NULL) {
        names->of[found][strcspn(names->of[found], "\r\n")] = '\0';
        ++found;
    }
    if (f != NULL) fclose(f);
    return found == CLASSES;
}

void results_print(FILE *out, const results *r, const class_names *names)
{
    fprintf(out, "\n  %-14s precision  recall      F1  pictures\n", "class");
    for (int c = 0; c < CLASSES; ++c) {
        int64_t taken = 0, there = 0; /* guessed to be c; really c */
        for (int k = 0; k < CLASSES; ++k) {
            taken += r->count[k][c];
            there += r->count[c][k];
        }
        const int64_t right = r->count[c][c];
        fprintf(out, "  %-14s %7.2f %% %5.2f %%  %.4f  %8lld\n", names->of[c], 100 * share(right, taken),
                100 * share(right, there), share(2 * right, taken + there), (long long)there);
    }
}

/* ---- the page */

enum {
    COLUMNS = 10,
    CELL = 144,                  /* a picture with its names */
    ZOOM = 4,
    ROW = ZOOM * SIDE + 62,
    MARGIN = 28,
    HEADER = 72,
    CHART = 420,
    HEADING = 44,
};

static int least(int a, int b) { return a < b ? a : b; }

/* The mean of the points around each: what the eye is to follow. */
static void smooth(const curve *from, curve *to)
{
    enum { REACH = 5 };
    for (int i = 0; i < from->count; ++i) {
        const int reach = least(REACH, least(i, from->count - 1 - i)); /* as many to the left as to the right */
        double sum = 0;
        for (int k = i - reach; k <= i + reach; ++k) sum += from->y[k];
        curve_add(to, from->x[i], sum / (2 * reach + 1));
    }
}

/* Where the axis of accuracies begins: a step of 10 % below the worst test. */
static double accuracy_floor(const curve *test)
{
    double worst = 1;
    for (int i = 0; i < test->count; ++i) worst = fmin(worst, test->y[i]);
    return fmax(0, floor(10 * worst - 1) / 10);
}

static plot_series line(const char *name, const curve *c, plot_color color, double width, bool dots)
{
    return (plot_series){name, c->x, c->y, c->count, color, width, dots};
}

static void draw_charts(canvas *page, const report *r, int width)
{
    curve trend = {0};
    smooth(r->loss, &trend);
    const plot_series loss[] = {line("mean of 20 steps", r->loss, pale_blue, 1.5, false),
                                line("trend", &trend, blue, 3, false)};
    const plot_series accuracy[] = {line("training", r->train_accuracy, orange, 1.5, false),
                                    line("test", r->test_accuracy, green, 3, true)};
    const int half = (width - 3 * MARGIN) / 2;
    plot_chart(page, (plot_box){MARGIN, HEADER, half, CHART},
               &(plot_axes){.title = "Loss in training", .x_label = "step", .y_label = "cross entropy"}, loss, 2);
    plot_chart(page, (plot_box){2 * MARGIN + half, HEADER, half, CHART},
               &(plot_axes){.title = "Accuracy", .x_label = "epoch", .y_label = "pictures right", .percent = true,
                             .whole_x = true,
                             .y_low = accuracy_floor(r->test_accuracy), .y_high = 1},
               accuracy, 2);
    curve_free(&trend);
}

static void draw_pictures(canvas *page, int y, const char *heading, const picture *pictures, int count,
                          const class_names *names)
{
    plot_text(page, MARGIN, y, 2, ink, heading);
    for (int i = 0; i < count; ++i) {
        const picture *p = &pictures[i];
        const bool right = p->guess == p->truth;
        const int left = MARGIN + i % COLUMNS * CELL, top = y + HEADING - 12 + i / COLUMNS * ROW;
        plot_picture(page, left + 4, top + 4, ZOOM, p->grey, SIDE, SIDE);
        plot_frame(page, (plot_box){left, top, ZOOM * SIDE + 8, ZOOM * SIDE + 8}, 4, right ? green : red);
        plot_text(page, left, top + ZOOM * SIDE + 14, 2, right ? green : red, names->of[p->guess]);
        if (right) continue; /* else what it really is */
        plot_text(page, left, top + ZOOM * SIDE + 34, 2, green, names->of[p->truth]);
    }
}

bool report_write_png(const report *r, const char *path)
{
    const int width = 2 * MARGIN + COLUMNS * CELL;
    const int rows = SHOWN / COLUMNS, block = HEADING + rows * ROW;
    canvas *page = canvas_create(width, HEADER + CHART + 2 * block + 2 * MARGIN, white);
    char title[128];
    snprintf(title, sizeof title, "%s: %.2f %% of the test pictures right", r->model, 100 * results_accuracy(r->results));
    plot_text(page, MARGIN, 24, 3, ink, title);
    plot_rectangle(page, (plot_box){MARGIN, HEADER - 10, width - 2 * MARGIN, 2}, rule);
    draw_charts(page, r, width);
    const int y = HEADER + CHART + MARGIN;
    draw_pictures(page, y, "The first test pictures, and what the net takes them for", r->results->first,
                  r->results->n_first, r->names);
    draw_pictures(page, y + block, "Its first mistakes, and what they really are", r->results->wrong,
                  r->results->n_wrong, r->names);
    const bool written = canvas_write_png(page, path);
    canvas_destroy(page);
    return written;
}
