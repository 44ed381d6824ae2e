#include <luge/luge.h>

/* Temporaries end with their function; the result is handed to the caller's scope. */
static luge_tensor *cell(luge_tensor *w, luge_tensor *x, luge_tensor *h) {  /* [N, F], [N, H] */
    LUGE_SCOPE("cell");
    luge_tensor *both = luge_cat(LUGE_LIST(x, h), 1);
    return luge_keep(luge_tanh(luge_linear(both, w, LUGE_NONE)));           /* no bias */
}

/* The same without the guards, for compilers that lack them; `h` is carried from step to step. */
void unroll(luge_tensor *w, luge_tensor *xs, luge_tensor *start) {          /* xs: [T, N, F] */
    luge_tensor *h = luge_retain(start);                                    /* ours */
    for (int64_t t = 0; t < luge_tensor_size(xs, 0) && luge_ok(); ++t) {
        luge_scope step = luge_scope_enter("step");
        luge_autocast_enter(LUGE_BF16);             /* ends with the scope it was opened in */
        luge_assign(&h, luge_detach(cell(w, luge_select(xs, 0, t), h)));
        luge_scope_exit(step, NULL);                /* with all that was opened since */
    }
    luge_release(h);
}
