/* The host application of 09_embed.c: gives memory and samples, trains in a thread of its own, asks for
 * predictions from two others meanwhile. y = sum of the features. */
#define _POSIX_C_SOURCE 200809L
#include <luge/luge.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct learner {
    luge_module *net;
    luge_module *serving;
    pthread_rwlock_t lock;
    luge_status status;
    char error[512];
} learner;

luge_status learner_open(learner *l, void *pool, void *app);
void *learner_train(void *arg);
double learner_predict(learner *l, const float x[16]);
void *host_alloc(size_t bytes, size_t alignment, void *pool);
void host_free(void *memory, size_t bytes, void *pool);
void host_log(luge_log_level level, const char *text, void *app);
bool host_next_sample(float features[16], float *target);

static atomic_llong held;
static atomic_int samples;
static atomic_bool training = true;

void *host_alloc(size_t bytes, size_t alignment, void *pool)
{
    void *memory = NULL;
    if (posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) != 0) return NULL;
    atomic_fetch_add((atomic_llong *)pool, (long long)bytes);
    return memory;
}

void host_free(void *memory, size_t bytes, void *pool)
{
    atomic_fetch_sub((atomic_llong *)pool, (long long)bytes);
    free(memory);
}

void host_log(luge_log_level level, const char *text, void *app)
{
    (void)app;
    if (level >= LUGE_LOG_WARNING) fprintf(stderr, "%s\n", text);
}

bool host_next_sample(float features[16], float *target)
{
    const int n = atomic_fetch_add(&samples, 1);
    *target = 0;
    for (int i = 0; i < 16; ++i) {
        features[i] = (float)((n * 37 + i * 101) % 17 - 8) / 16;
        *target += features[i];
    }
    return n < 3000;
}

static void *ask(void *arg)
{
    const float x[16] = {0.5f, -0.25f};
    long good = 0;
    while (atomic_load(&training)) good += isfinite(learner_predict(arg, x));
    return (void *)good;
}

int main(void)
{
    learner l = {.net = NULL};
    pthread_t trainer, asking[2];
    float x[16], y;
    if (learner_open(&l, &held, NULL) != LUGE_OK) {
        fprintf(stderr, "%s\n", l.error);
        luge_module_destroy(l.net);
        luge_module_destroy(l.serving);
        return 1;
    }
    pthread_create(&trainer, NULL, learner_train, &l);
    for (int i = 0; i < 2; ++i) pthread_create(&asking[i], NULL, ask, &l);
    pthread_join(trainer, NULL);
    atomic_store(&training, false);
    for (int i = 0; i < 2; ++i) pthread_join(asking[i], NULL);
    atomic_store(&samples, 41);
    host_next_sample(x, &y);
    const double guess = learner_predict(&l, x);
    printf("status %d, off by %.2f\n", (int)l.status, fabs(guess - y));
    luge_module_destroy(l.net);
    luge_module_destroy(l.serving);
    luge_memory_empty_cache(luge_device_cpu());
    pthread_rwlock_destroy(&l.lock);
    printf("the host got back all but %lld bytes\n", (long long)atomic_load(&held));
    return l.status == LUGE_OK && isfinite(guess) ? 0 : 1;
}
