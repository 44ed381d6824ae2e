/* Training and prediction inside of another program: see learner.h. Errors are per thread, so a trainer
 * that fails does not disturb predictions, and whoever runs on the host's threads takes its own error
 * before it returns. */
#include "learner.h"

#include <stdio.h>

luge_status learner_open(learner *l, void *pool, void *app)
{
    *l = (learner){.status = LUGE_OK};
    luge_set_log(host_log, app);
    luge_set_allocator(&(luge_allocator){.alloc = host_alloc, .free = host_free, .user = pool});
    l->net = luge_nn_sequential(luge_nn_linear(FEATURES, 64, NULL), luge_nn_relu(), luge_nn_linear(64, 1, NULL));
    l->serving = luge_module_clone(l->net);
    luge_module_eval(l->serving);
    pthread_rwlock_init(&l->lock, NULL);
    return luge_error_take(l->error, sizeof l->error); /* the host's thread is clean again */
}

void *learner_train(void *arg)
{
    learner *l = arg;
    luge_optim *opt = luge_sgd_create(l->net, 1e-3, &(luge_sgd_options){.momentum = 0.9});
    float x[FEATURES], y;
    while (luge_ok() && host_next_sample(x, &y)) {
        LUGE_SCOPE("step");
        luge_tensor *in = luge_from_array(x, LUGE_F32, LUGE_SHAPE(1, FEATURES));
        luge_tensor *target = luge_from_array(&y, LUGE_F32, LUGE_SHAPE(1, 1));
        luge_backward(luge_mse_loss(luge_forward(l->net, in), target, NULL));
        luge_optim_step(opt);
        luge_optim_zero_grad(opt);
        if (luge_optim_steps(opt) % 100 != 0) continue;
        pthread_rwlock_wrlock(&l->lock);
        luge_module_copy(l->serving, l->net);
        pthread_rwlock_unlock(&l->lock);
    }
    luge_optim_destroy(opt);
    l->status = luge_error_take(l->error, sizeof l->error);
    return NULL;
}

double learner_predict(learner *l, const float x[FEATURES])
{
    LUGE_SCOPE("predict");
    LUGE_NO_GRAD();
    luge_tensor *in = luge_from_array(x, LUGE_F32, LUGE_SHAPE(1, FEATURES));
    pthread_rwlock_rdlock(&l->lock);
    const double y = luge_item(luge_forward(l->serving, in));
    pthread_rwlock_unlock(&l->lock);
    luge_error_clear(); /* a prediction that failed is NaN, and no concern of others */
    return y;
}

void learner_close(learner *l)
{
    luge_module_destroy(l->net);
    luge_module_destroy(l->serving);
    pthread_rwlock_destroy(&l->lock);
}
