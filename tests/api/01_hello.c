#include <luge/luge.h>

int main(void) {
    LUGE_SCOPE("hello");
    luge_tensor *x = LUGE_TENSOR(LUGE_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    luge_tensor *w = luge_requires_grad_(LUGE_TENSOR(LUGE_SHAPE(3, 1), 0.5, -1, 2));
    luge_tensor *y = luge_matmul(x, w);                                     /* [2, 1] */

    luge_backward(luge_sum(y, LUGE_ALL_AXES));
    printf("y  = %s\ndW = %s\n", luge_text(y), luge_text(luge_tensor_grad(w)));
    return luge_exit_code(stderr);
}
