#define _POSIX_C_SOURCE 200809L
#include <luge/luge.h>
#include <pthread.h>

/* What the host application has: memory, a log, and samples until it wants to stop. */
void *host_alloc(size_t bytes, size_t alignment, void *pool);
void host_free(void *memory, size_t bytes, void *pool);
void host_log(luge_log_level level, const char *text, void *app);
bool host_next_sample(float features[16], float *target);

typedef struct learner {
    luge_module *net;               /* the trainer's alone */
    luge_module *serving;           /* a copy that predictions read */
    pthread_rwlock_t lock;          /* guards `serving` */
    luge_status status;             /* how training ended, and why */
    char error[512];
} learner;

luge_status learner_open(learner *l, void *pool, void *app) {
    luge_set_log(host_log, app);
    luge_set_allocator(&(luge_allocator){.alloc = host_alloc, .free = host_free, .user = pool});
    l->net = luge_nn_sequential(luge_nn_linear(16, 64, NULL), luge_nn_relu(),
                                luge_nn_linear(64, 1, NULL));
    l->serving = luge_module_clone(l->net);
    luge_module_eval(l->serving);
    pthread_rwlock_init(&l->lock, NULL);
    return luge_error_take(l->error, sizeof l->error);  /* the host's thread is clean again */
}

void *learner_train(void *arg) {      /* one thread of the host's */
    learner *l = arg;
    luge_optim *opt = luge_sgd_create(l->net, 1e-3, &(luge_sgd_options){.momentum = 0.9});
    float x[16], y;
    while (luge_ok() && host_next_sample(x, &y)) {
        LUGE_SCOPE("step");
        luge_tensor *in = luge_from_array(x, LUGE_F32, LUGE_SHAPE(1, 16));
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

double learner_predict(learner *l, const float x[16]) {   /* any thread, many at once */
    LUGE_SCOPE("predict");
    LUGE_NO_GRAD();
    luge_tensor *in = luge_from_array(x, LUGE_F32, LUGE_SHAPE(1, 16));
    pthread_rwlock_rdlock(&l->lock);
    double y = luge_item(luge_forward(l->serving, in));
    pthread_rwlock_unlock(&l->lock);
    luge_error_clear();             /* a prediction that failed is NaN, and no concern of others */
    return y;
}
