/* Runs unroll of scopes_by_hand.c: 6 steps of a recurrent cell, then prints the size of what is left. */
#include <luge/luge.h>

void unroll(luge_tensor *w, luge_tensor *xs, luge_tensor *start);

int main(void)
{
    LUGE_SCOPE("main");
    luge_seed(3);
    luge_tensor *w = luge_requires_grad_(luge_randn(LUGE_SHAPE(4, 7), NULL));   /* [H, F + H] */
    luge_tensor *xs = luge_randn(LUGE_SHAPE(6, 2, 3), NULL);
    luge_tensor *start = luge_zeros(LUGE_SHAPE(2, 4), NULL);
    const int64_t tensors = luge_live().tensors;
    unroll(w, xs, start);
    printf("left behind: %d tensors\n", (int)(luge_live().tensors - tensors));
    return luge_exit_code(stderr);
}
