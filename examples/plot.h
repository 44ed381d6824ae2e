/* Drawing of small reports: text, line charts and grey pictures on a canvas that is saved as PNG. No
 * function fails but the first and the last; on a NULL canvas nothing happens. Coordinates are pixels
 * from the upper left corner. */
#ifndef EXAMPLES_PLOT_H
#define EXAMPLES_PLOT_H

#include <stdbool.h>

typedef struct plot_color {
    unsigned char r, g, b;
} plot_color;

typedef struct plot_box {
    int x, y, width, height;
} plot_box;

/* One line of a chart. `name` is its entry in the legend, NULL for none. */
typedef struct plot_series {
    const char *name;
    const double *x, *y;
    int count;
    plot_color color;
    double width;           /* of the line, in pixels */
    bool dots;              /* mark each point */
} plot_series;

typedef struct plot_axes {
    const char *title, *x_label, *y_label;
    double y_low, y_high;   /* equal: fitted to the data */
    bool whole_x;           /* label whole x only */
    bool percent;           /* y values of 0.93 are shown as 93 % */
} plot_axes;

typedef struct canvas canvas;

canvas *canvas_create(int width, int height, plot_color background);
void canvas_destroy(canvas *c);
bool canvas_write_png(const canvas *c, const char *path);

void plot_rectangle(canvas *c, plot_box box, plot_color color);
void plot_frame(canvas *c, plot_box box, int thickness, plot_color color); /* inside of the box */
void plot_line(canvas *c, double x0, double y0, double x1, double y1, double width, plot_color color);
/* `scale` pixels for each pixel of the font; (x, y) is the text's upper left corner. */
void plot_text(canvas *c, int x, int y, int scale, plot_color color, const char *text);
int plot_text_width(int scale, const char *text);
int plot_text_height(int scale); /* of capitals */
/* width * height grey values, 0 black, each `scale` pixels square. */
void plot_picture(canvas *c, int x, int y, int scale, const unsigned char *grey, int width, int height);
/* A chart with axes, grid, labels and legend that fills the box. */
void plot_chart(canvas *c, plot_box box, const plot_axes *axes, const plot_series *series, int count);

#endif
