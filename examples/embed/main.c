/* A host application: it has its own memory and log, trains a learner on one thread, predicts on others
 * meanwhile, and checks that it gets everything back.
 *
 *     embed [--rounds N]      creates, trains and destroys the learner N times (1) */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "learner.h"

enum { SAMPLES = 12000, PREDICTORS = 2 };

/* ---- what the host provides */

/* Memory by the byte, so that it can tell what is still out. */
typedef struct pool {
    atomic_llong bytes, blocks;
} pool;

void *host_alloc(size_t bytes, size_t alignment, void *user)
{
    pool *p = user;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) != 0) return NULL;
    atomic_fetch_add(&p->bytes, (long long)bytes);
    atomic_fetch_add(&p->blocks, 1);
    return memory;
}

void host_free(void *memory, size_t bytes, void *user)
{
    pool *p = user;
    atomic_fetch_sub(&p->bytes, (long long)bytes);
    atomic_fetch_sub(&p->blocks, 1);
    free(memory);
}

void host_log(luge_log_level level, const char *text, void *app)
{
    fprintf(stderr, "%s: luge(%d): %s\n", (const char *)app, (int)level, text);
}

/* y = sum of |x_i| - 8, of pseudo-random x. Only the training thread asks. */
static int samples_left;

static float truth(const float features[FEATURES])
{
    float sum = -8;
    for (int i = 0; i < FEATURES; ++i) sum += fabsf(features[i]);
    return sum;
}

static void make_features(uint32_t *state, float features[FEATURES])
{
    for (int i = 0; i < FEATURES; ++i) {
        *state = *state * 1664525u + 1013904223u; /* Knuth's quick and dirty generator */
        features[i] = (float)(*state >> 8) / 8388608.0f - 1; /* [-1, 1) */
    }
}

bool host_next_sample(float features[FEATURES], float *target)
{
    static uint32_t state = 1;
    if (samples_left-- <= 0) return false;
    make_features(&state, features);
    *target = truth(features);
    return true;
}

/* ---- the application */

typedef struct predictor {
    learner *from;
    atomic_bool *stop;
    uint32_t state;
    long predictions, failures;
} predictor;

/* Asks a few thousand times a second. Without a pause its read locks would hold off the trainer's write. */
static void *predict(void *arg)
{
    const struct timespec pause = {.tv_nsec = 100000};
    predictor *p = arg;
    float x[FEATURES];
    do {
        make_features(&p->state, x);
        if (isnan(learner_predict(p->from, x))) ++p->failures;
        ++p->predictions;
        nanosleep(&pause, NULL);
    } while (!atomic_load(p->stop));
    return NULL;
}

/* Mean squared error of the predictions. */
static double error_of(learner *l)
{
    uint32_t state = 77;
    double sum = 0;
    float x[FEATURES];
    for (int i = 0; i < 200; ++i) {
        make_features(&state, x);
        const double d = learner_predict(l, x) - (double)truth(x);
        sum += d * d / 200;
    }
    return sum;
}

/* Runs the trainer and the predictors; false if a thread cannot be started. */
static bool run_threads(learner *l, predictor *p)
{
    atomic_bool stop = false;
    pthread_t trainer, thread[PREDICTORS];
    int started = 0;
    samples_left = SAMPLES;
    const bool training = pthread_create(&trainer, NULL, learner_train, l) == 0;
    for (; training && started < PREDICTORS; ++started) {
        p[started] = (predictor){.from = l, .stop = &stop, .state = (uint32_t)started + 5};
        if (pthread_create(&thread[started], NULL, predict, &p[started]) != 0) break;
    }
    if (training) pthread_join(trainer, NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < started; ++i) pthread_join(thread[i], NULL);
    return training && started == PREDICTORS;
}

static bool run_round(int round, pool *memory)
{
    learner l;
    predictor p[PREDICTORS] = {{0}};
    if (learner_open(&l, memory, "embed") != LUGE_OK) {
        fprintf(stderr, "embed: %s\n", l.error);
        learner_close(&l);
        return false;
    }
    const double before = error_of(&l);
    const bool ran = run_threads(&l, p);
    const double after = error_of(&l);
    if (l.status != LUGE_OK) fprintf(stderr, "embed: training stopped: %s\n", l.error);
    printf("round %d: error %.3f before, %.3f after; %ld predictions meanwhile, %ld failed; %lld kB in use", round,
           before, after, p[0].predictions + p[1].predictions, p[0].failures + p[1].failures,
           atomic_load(&memory->bytes) / 1024);
    learner_close(&l);
    luge_memory_empty_cache(luge_device_cpu());
    printf(", %lld bytes afterwards\n", atomic_load(&memory->bytes));
    return ran && l.status == LUGE_OK && after < 0.5 * before && p[0].failures + p[1].failures == 0 &&
           atomic_load(&memory->bytes) == 0 && atomic_load(&memory->blocks) == 0;
}

int main(int argc, char **argv)
{
    int rounds = 1;
    if (argc == 3 && strcmp(argv[1], "--rounds") == 0) rounds = (int)strtol(argv[2], NULL, 10);
    if (argc != 1 && (argc != 3 || rounds < 1)) {
        fprintf(stderr, "usage: embed [--rounds N]\n");
        return 2;
    }
    static pool memory; /* outlives the library's own end */
    bool fine = true;
    for (int round = 1; fine && round <= rounds; ++round) fine = run_round(round, &memory);
    return fine ? 0 : 1;
}
