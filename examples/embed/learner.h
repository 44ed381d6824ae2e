/* A learner inside of a host application: it trains on one thread while any number of others predict. */
#ifndef EMBED_LEARNER_H
#define EMBED_LEARNER_H

#include <luge/luge.h>
#include <pthread.h>

enum { FEATURES = 16 };

typedef struct learner {
    luge_module *net;      /* the trainer's alone */
    luge_module *serving;  /* a copy that predictions read */
    pthread_rwlock_t lock; /* guards `serving` */
    luge_status status;    /* how training ended, and why */
    char error[512];
} learner;

/* What the host application provides: memory, a log, and samples until it wants to stop. */
void *host_alloc(size_t bytes, size_t alignment, void *pool);
void host_free(void *memory, size_t bytes, void *pool);
void host_log(luge_log_level level, const char *text, void *app);
bool host_next_sample(float features[FEATURES], float *target);

/* On error the code is returned, the text is in l->error, and learner_close is still to be called. */
luge_status learner_open(learner *l, void *pool, void *app);
/* The body of one of the host's threads; `arg` is the learner. */
void *learner_train(void *arg);
/* From any thread, many at once; NaN if it cannot be computed. */
double learner_predict(learner *l, const float x[FEATURES]);
void learner_close(learner *l);

#endif
