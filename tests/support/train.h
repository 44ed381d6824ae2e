/* Parameters whose gradients a test chooses, for tests of optimizers. */
#ifndef LG_TESTS_TRAIN_H
#define LG_TESTS_TRAIN_H

#include <luge/luge.h>

/* Gives the leaf this gradient, in place of the one it has. */
void set_grad(luge_tensor *leaf, luge_tensor *grad);
/* The same for a leaf of rank 1 from numbers. */
#define SET_GRAD(leaf, ...)                                                                                      \
    set_grad(leaf, luge_from_values(LUGE_SHAPE(LUGE_COUNT_(double, __VA_ARGS__)), (const double[]){__VA_ARGS__}, \
                                    LUGE_COUNT_(double, __VA_ARGS__)))
/* A vector of parameters. */
#define PARAM(...) LUGE_TENSOR(LUGE_SHAPE(LUGE_COUNT_(double, __VA_ARGS__)), __VA_ARGS__)
/* One element. */
double at(luge_tensor *t, int64_t i);

#endif
