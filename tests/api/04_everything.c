#include <luge/luge.h>

void train(luge_module *net, luge_loader *data, const char *path) {
    const int epochs = 20, window = 4;
    luge_module_set_checkpointing(net, &(luge_checkpointing){.every = 2});
    luge_optim *opt = luge_adamw_create(net, 3e-4, 0.05, NULL);
    luge_sched *sched = luge_cosine_lr_create(opt, epochs * luge_loader_batches(data, window),
                                              &(luge_cosine_options){.warmup = 500});
    luge_scaler *scaler = luge_scaler_create(NULL);
    luge_accum *accum = luge_accum_create(opt, window,
        &(luge_accum_options){.scaler = scaler, .sched = sched, .clip_norm = 1.0});
    const luge_run run = {.module = net, .optim = opt, .sched = sched, .scaler = scaler,
                          .accum = accum, .loader = data};

    luge_run_resume(&run, path);                    /* no such file: a fresh start */
    while (luge_loader_epoch(data) < epochs && luge_ok()) {
        luge_batch batch;
        while (luge_loader_next(data, &batch)) {
            LUGE_SCOPE("step");
            LUGE_AUTOCAST(LUGE_F16);
            luge_tensor *logits = luge_forward(net, batch.input);
            luge_tensor *loss = luge_cross_entropy(logits, batch.target, NULL);
            luge_accum_backward(accum, loss, batch.size);
        }
        luge_accum_flush(accum);                    /* the short last window */
        if (luge_run_save(&run, path) != LUGE_OK) break;
    }

    luge_accum_destroy(accum);
    luge_scaler_destroy(scaler);
    luge_sched_destroy(sched);
    luge_optim_destroy(opt);
}
