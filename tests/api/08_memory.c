#include <luge/luge.h>

typedef struct task { luge_module *net; luge_optim *opt; } task;

static luge_tensor *loss_of(luge_tensor *input, luge_tensor *target, void *user) {
    task *t = user;
    return luge_cross_entropy(luge_forward(t->net, input), target, NULL);
}

static luge_status step(task *t, luge_tensor *input, luge_tensor *target) {
    LUGE_SCOPE("step");                     /* whatever happens, its memory is back on return */
    luge_backward(loss_of(input, target, t));
    luge_optim_step(t->opt);
    return luge_optim_zero_grad(t->opt);
}

static luge_status trial(int64_t size, void *user) {
    LUGE_SCOPE("trial");
    luge_tensor *input = luge_randn(LUGE_SHAPE(size, 3, 32, 32), NULL);
    luge_tensor *target = luge_randint(0, 10, LUGE_SHAPE(size));
    return step(user, input, target);
}

/* 1. Ask. Weights, optimizer and random numbers are afterwards as they were. */
int64_t largest_batch(task *t) {
    return luge_find_batch_size(&(luge_run){.module = t->net, .optim = t->opt}, 4096, trial, t);
}

/* 2. Let Luge split: what does not fit runs as two halves, or four, and gives the same gradient. */
void epoch_split(task *t, luge_loader *data) {
    luge_accum *accum = luge_accum_create(t->opt, 1, NULL);
    luge_batch batch;
    while (luge_loader_next(data, &batch)) {
        LUGE_SCOPE("step");
        luge_accum_step(accum, &batch, loss_of, t);
    }
    printf("%d batches were split\n", (int)luge_accum_splits(accum));
    luge_accum_destroy(accum);
}

/* 3. Do it yourself: drop the batch that did not fit, go on with smaller ones. */
void epoch_by_hand(task *t, luge_loader *data) {
    luge_batch batch;
    while (luge_loader_next(data, &batch)) {
        if (step(t, batch.input, batch.target) != LUGE_ERR_OUT_OF_MEMORY) continue;
        fprintf(stderr, "%s\n", luge_error_text());         /* the op, the bytes, what is live */
        luge_error_clear();
        luge_optim_zero_grad(t->opt);
        luge_loader_set_batch_size(data, luge_loader_batch_size(data) / 2);
    }
}
