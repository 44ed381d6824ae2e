/* What mnist.c shows of a run: curves, a table of classes, a page of test pictures. */
#ifndef EXAMPLES_REPORT_H
#define EXAMPLES_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CLASSES = 10, SIDE = 28, SHOWN = 20 };

/* Points of a line. */
typedef struct curve {
    double *x, *y;
    int count, room;
} curve;

void curve_add(curve *c, double x, double y); /* without memory the point is left out */
void curve_free(curve *c);

/* A test picture and what the net took it for. */
typedef struct picture {
    unsigned char grey[SIDE * SIDE];
    int truth, guess;
} picture;

/* How a net did on the test set. */
typedef struct results {
    int64_t count[CLASSES][CLASSES]; /* [truth][guess] */
    picture first[SHOWN], wrong[SHOWN];
    int n_first, n_wrong;
} results;

/* Counts one picture of SIDE x SIDE pixels of any range. */
void results_add(results *r, const float *pixels, int64_t truth, int64_t guess);
double results_accuracy(const results *r);

/* What the classes are called. */
typedef struct class_names {
    char of[CLASSES][32];
} class_names;

/* Those in `file`, one a line; where that is NULL, Fashion-MNIST's if the directory's name has "fashion"
 * in it, else digits. False if the file has fewer lines or cannot be read. */
bool class_names_find(class_names *names, const char *dir, const char *file);

/* Precision, recall and F1 of each class. */
void results_print(FILE *out, const results *r, const class_names *names);

typedef struct report {
    const char *model;                           /* its name, for the title */
    const curve *loss;                           /* by step */
    const curve *train_accuracy, *test_accuracy; /* by epoch */
    const results *results;
    const class_names *names;
} report;

/* False if the file cannot be written. */
bool report_write_png(const report *r, const char *path);

#endif
