#include <luge/luge.h>

void train_by_hand(luge_module *net, luge_optim *opt, luge_sched *sched, luge_scaler *scaler,
                   luge_loader *data, const char *path) {
    const int epochs = 20, window = 4;
    const luge_run run = {.module = net, .optim = opt, .sched = sched, .scaler = scaler,
                          .loader = data};
    int micro = 0;

    luge_run_resume(&run, path);
    while (luge_loader_epoch(data) < epochs && luge_ok()) {
        luge_batch batch;
        while (luge_loader_next(data, &batch)) {
            LUGE_SCOPE("step");
            luge_tensor *loss;
            {
                LUGE_AUTOCAST(LUGE_F16);
                loss = luge_cross_entropy(luge_forward(net, batch.input), batch.target, NULL);
            }
            luge_backward(luge_scaler_scale(scaler, luge_mul_scalar(loss, 1.0 / window)));
            if (++micro % window != 0) continue;    /* the scope closes here too */

            luge_scaler_unscale(scaler, opt);
            luge_clip_grad_norm(opt, 1.0);
            luge_scaler_step(scaler, opt);          /* leaves the weights alone on inf or NaN */
            luge_scaler_update(scaler);
            luge_sched_step(sched);                 /* and then this stands still too */
            luge_optim_zero_grad(opt);
        }
        if (luge_run_save(&run, path) != LUGE_OK) break;
    }
}
