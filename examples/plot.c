/* Drawing of small reports: see plot.h. PNG files are written by stb_image_write. */
#include "plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "font.h"
#include "png.h"

struct canvas {
    int width, height;
    unsigned char *pixels; /* [height, width, 3] */
};

static const plot_color ink = {40, 44, 52}, pale = {228, 231, 236}, grey = {110, 116, 128};

canvas *canvas_create(int width, int height, plot_color background)
{
    canvas *c = malloc(sizeof *c);
    if (c == NULL) return NULL;
    *c = (canvas){width, height, malloc((size_t)width * (size_t)height * 3)};
    if (c->pixels == NULL) {
        free(c);
        return NULL;
    }
    plot_rectangle(c, (plot_box){0, 0, width, height}, background);
    return c;
}

void canvas_destroy(canvas *c)
{
    if (c == NULL) return;
    free(c->pixels);
    free(c);
}

bool canvas_write_png(const canvas *c, const char *path)
{
    return c != NULL && png_write(path, c->width, c->height, c->pixels);
}

/* Mixes `color` into a pixel; cover is 0 to 1. */
static void blend(canvas *c, int x, int y, plot_color color, double cover)
{
    if (c == NULL || x < 0 || y < 0 || x >= c->width || y >= c->height || !(cover > 0)) return;
    if (cover > 1) cover = 1;
    unsigned char *p = c->pixels + ((size_t)y * (size_t)c->width + (size_t)x) * 3;
    const unsigned char to[3] = {color.r, color.g, color.b};
    for (int i = 0; i < 3; ++i) p[i] = (unsigned char)lround(p[i] + cover * (to[i] - p[i]));
}

void plot_rectangle(canvas *c, plot_box box, plot_color color)
{
    for (int y = box.y; y < box.y + box.height; ++y)
        for (int x = box.x; x < box.x + box.width; ++x) blend(c, x, y, color, 1);
}

void plot_frame(canvas *c, plot_box box, int thickness, plot_color color)
{
    const int t = thickness;
    plot_rectangle(c, (plot_box){box.x, box.y, box.width, t}, color);
    plot_rectangle(c, (plot_box){box.x, box.y + box.height - t, box.width, t}, color);
    plot_rectangle(c, (plot_box){box.x, box.y, t, box.height}, color);
    plot_rectangle(c, (plot_box){box.x + box.width - t, box.y, t, box.height}, color);
}

void plot_line(canvas *c, double x0, double y0, double x1, double y1, double width, plot_color color)
{
    const double reach = width / 2 + 1, dx = x1 - x0, dy = y1 - y0, length2 = dx * dx + dy * dy;
    const int left = (int)floor(fmin(x0, x1) - reach), right = (int)ceil(fmax(x0, x1) + reach);
    const int top = (int)floor(fmin(y0, y1) - reach), bottom = (int)ceil(fmax(y0, y1) + reach);
    for (int y = top; y <= bottom; ++y) {
        for (int x = left; x <= right; ++x) { /* covered by how far the pixel is from the line */
            double t = length2 > 0 ? ((x - x0) * dx + (y - y0) * dy) / length2 : 0;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            blend(c, x, y, color, width / 2 + 0.5 - hypot(x - x0 - t * dx, y - y0 - t * dy));
        }
    }
}

/* ---- text */

static const unsigned char *glyph_of(char letter)
{
    return font[(letter < FONT_FIRST || letter > FONT_LAST ? '?' : letter) - FONT_FIRST];
}

/* The columns of a letter that are drawn: proportional, but for digits, which stand below each other. */
static void extent(char letter, int *first, int *width)
{
    unsigned used = 0;
    for (int row = 0; row < FONT_HEIGHT; ++row) used |= glyph_of(letter)[row];
    *first = 0;
    *width = letter == ' ' ? 3 : FONT_WIDTH;
    if (letter == ' ' || (letter >= '0' && letter <= '9')) return;
    while (*width > 1 && !(used >> (FONT_WIDTH - 1 - *first) & 1)) ++*first, --*width;
    while (*width > 1 && !(used >> (FONT_WIDTH - *first - *width) & 1)) --*width;
}

int plot_text_width(int scale, const char *text)
{
    int all = 0;
    for (; *text != '\0'; ++text) {
        int first, width;
        extent(*text, &first, &width);
        all += (width + 1) * scale;
    }
    return all > 0 ? all - scale : 0;
}

int plot_text_height(int scale) { return FONT_BASE * scale; }

/* Draws upright, or turned a quarter to the left, upwards from (x, y). */
static void draw_text(canvas *c, int x, int y, int scale, plot_color color, const char *text, bool turned)
{
    int along = 0;
    for (; *text != '\0'; ++text) {
        int first, width;
        extent(*text, &first, &width);
        for (int row = 0; row < FONT_HEIGHT; ++row) {
            for (int i = 0; i < width; ++i) {
                if (!(glyph_of(*text)[row] >> (FONT_WIDTH - 1 - first - i) & 1)) continue;
                const int a = along + i * scale, d = row * scale;
                const plot_box box = {turned ? x + d : x + a, turned ? y - a - scale : y + d, scale, scale};
                plot_rectangle(c, box, color);
            }
        }
        along += (width + 1) * scale;
    }
}

void plot_text(canvas *c, int x, int y, int scale, plot_color color, const char *text)
{
    draw_text(c, x, y, scale, color, text, false);
}

void plot_picture(canvas *c, int x, int y, int scale, const unsigned char *values, int width, int height)
{
    for (int i = 0; i < width * height; ++i) {
        const plot_box box = {x + i % width * scale, y + i / width * scale, scale, scale};
        plot_rectangle(c, box, (plot_color){values[i], values[i], values[i]});
    }
}

/* ---- charts */

typedef struct range {
    double low, high, step; /* step: between grid lines */
} range;

static range range_of(const plot_series *series, int count, bool of_y)
{
    range r = {INFINITY, -INFINITY, 0};
    for (int s = 0; s < count; ++s) {
        for (int i = 0; i < series[s].count; ++i) {
            const double v = of_y ? series[s].y[i] : series[s].x[i];
            if (!isfinite(v)) continue;
            r.low = fmin(r.low, v);
            r.high = fmax(r.high, v);
        }
    }
    if (r.low > r.high) r = (range){0, 1, 0};
    if (r.low == r.high) r.high = r.low + 1;
    return r;
}

/* A step of 1, 2 or 5 times a power of ten that gives about `lines` grid lines. */
static double nice_step(double span, int lines)
{
    const double raw = span / lines, power = pow(10, floor(log10(raw)));
    const double digit = raw / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

/* Where a value lies between the ends of an axis that begins at pixel `from`. */
static double place(const range *r, double value, double from, double to)
{
    return from + (value - r->low) / (r->high - r->low) * (to - from);
}

static void number_text(char *text, size_t size, double value, double step, bool percent)
{
    if (percent) value *= 100, step *= 100;
    int decimals = (int)ceil(-log10(step) - 1e-9);
    decimals = decimals < 0 ? 0 : decimals > 6 ? 6 : decimals;
    snprintf(text, size, "%.*f%s", decimals, value, percent ? " %" : "");
}

static void draw_grid(canvas *c, plot_box in, const range *x, const range *y, bool percent)
{
    char text[32];
    for (double v = ceil(y->low / y->step) * y->step; v <= y->high + 1e-9 * y->step; v += y->step) {
        const int at = (int)lround(place(y, v, in.y + in.height - 1, in.y));
        plot_rectangle(c, (plot_box){in.x, at, in.width, 1}, pale);
        number_text(text, sizeof text, fabs(v) < 1e-9 * y->step ? 0 : v, y->step, percent);
        plot_text(c, in.x - 8 - plot_text_width(2, text), at - plot_text_height(1), 2, grey, text);
    }
    for (double v = ceil(x->low / x->step) * x->step; v <= x->high + 1e-9 * x->step; v += x->step) {
        const int at = (int)lround(place(x, v, in.x, in.x + in.width - 1));
        plot_rectangle(c, (plot_box){at, in.y, 1, in.height}, pale);
        number_text(text, sizeof text, v, x->step, false);
        plot_text(c, at - plot_text_width(2, text) / 2, in.y + in.height + 8, 2, grey, text);
    }
}

static void draw_series(canvas *c, plot_box in, const range *x, const range *y, const plot_series *s)
{
    double px = 0, py = 0;
    bool pen_down = false;
    for (int i = 0; i < s->count; ++i) {
        if (!isfinite(s->y[i])) {
            pen_down = false;
            continue;
        }
        const double ax = place(x, s->x[i], in.x, in.x + in.width - 1);
        const double ay = place(y, fmin(fmax(s->y[i], y->low), y->high), in.y + in.height - 1, in.y);
        if (pen_down) plot_line(c, px, py, ax, ay, s->width, s->color);
        if (s->dots) plot_line(c, ax, ay, ax, ay, s->width + 6, s->color);
        px = ax;
        py = ay;
        pen_down = true;
    }
}

/* In the upper right or, where lines rise, the lower right corner. */
static void draw_legend(canvas *c, plot_box in, bool below, const plot_series *series, int count)
{
    int entries = 0, widest = 0;
    for (int s = 0; s < count; ++s) {
        if (series[s].name == NULL) continue;
        ++entries;
        const int width = plot_text_width(2, series[s].name);
        if (width > widest) widest = width;
    }
    const int row = 24, x = in.x + in.width - widest - 56;
    int y = below ? in.y + in.height - entries * row - 12 : in.y + 12;
    for (int s = 0; s < count; ++s) {
        if (series[s].name == NULL) continue;
        plot_line(c, x, y + 7, x + 28, y + 7, 3, series[s].color);
        plot_text(c, x + 38, y, 2, ink, series[s].name);
        y += row;
    }
}

void plot_chart(canvas *c, plot_box box, const plot_axes *axes, const plot_series *series, int count)
{
    const plot_box in = {box.x + 92, box.y + 44, box.width - 108, box.height - 104};
    range x = range_of(series, count, false), y = range_of(series, count, true);
    if (axes->y_low < axes->y_high) {
        y.low = axes->y_low;
        y.high = axes->y_high;
    }
    x.step = nice_step(x.high - x.low, 6);
    if (axes->whole_x && x.step < 1) x.step = 1;
    y.step = nice_step(y.high - y.low, 5);
    if (axes->y_low == axes->y_high) {
        y.low = floor(y.low / y.step) * y.step;
        y.high = ceil(y.high / y.step) * y.step;
    }
    draw_grid(c, in, &x, &y, axes->percent);
    for (int s = 0; s < count; ++s) draw_series(c, in, &x, &y, &series[s]);
    plot_rectangle(c, (plot_box){in.x, in.y, 2, in.height}, grey);
    plot_rectangle(c, (plot_box){in.x, in.y + in.height - 2, in.width, 2}, grey);

    const plot_series *last = count > 0 ? &series[count - 1] : NULL;
    const bool rises = last != NULL && last->count > 0 && last->y[last->count - 1] > last->y[0];
    draw_legend(c, in, rises, series, count);
    plot_text(c, in.x, box.y + 10, 2, ink, axes->title);
    const int centred = in.x + (in.width - plot_text_width(2, axes->x_label)) / 2;
    plot_text(c, centred, in.y + in.height + 36, 2, grey, axes->x_label);
    draw_text(c, box.x + 2, in.y + (in.height + plot_text_width(2, axes->y_label)) / 2, 2, grey, axes->y_label, true);
}
