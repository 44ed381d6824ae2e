/* A host that loads plugin.so, lets it train and unloads it, many times: host PLUGIN load|fork|exit.
 * load: threads and memory are back each time. fork: a child of a process that has trained trains, too,
 * to the same value. exit: the process ends while another thread trains, silently and with code 0. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef double (*run_fn)(void);

static run_fn load(const char *path, void **handle)
{
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    run_fn run;
    *(void **)&run = dlsym(*handle, "plugin_run");
    return run;
}

static long status_of(const char *field)
{
    char line[128];
    long value = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, field, strlen(field)) == 0) value = atol(line + strlen(field) + 1);
    if (f != NULL) fclose(f);
    return value;
}

static bool in_pieces(const char *path)
{
    long settled = 0;
    double first = 0;
    for (int round = 0; round < 30; ++round) {
        void *handle;
        const double loss = load(path, &handle)();
        if (round == 0) first = loss;
        if (loss != first || loss < 0) return fprintf(stderr, "round %d: loss %g, was %g\n", round, loss, first), false;
        if (dlclose(handle) != 0) return fprintf(stderr, "%s\n", dlerror()), false;
        if (status_of("Threads") != 1) return fprintf(stderr, "round %d: %ld threads left\n", round, status_of("Threads")), false;
        if (round == 10) settled = status_of("VmRSS");
    }
    const long grown = status_of("VmRSS") - settled;
    printf("%ld KiB more after 19 rounds\n", grown);
    return grown < 2048;
}

static bool forked(const char *path)
{
    void *handle;
    run_fn run = load(path, &handle);
    const double loss = run();
    for (int i = 0; i < 5; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(30);
            const double own = run();
            _exit(own == loss ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return fprintf(stderr, "child %d ended with %d\n", i, status), false;
    }
    return run() == loss;
}

static void *for_ever(void *run)
{
    for (;;) (*(run_fn *)run)();
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    if (strcmp(argv[2], "load") == 0) return in_pieces(argv[1]) ? 0 : 1;
    if (strcmp(argv[2], "fork") == 0) return forked(argv[1]) ? 0 : 1;
    void *handle;
    static run_fn run;
    pthread_t thread;
    run = load(argv[1], &handle);
    run();
    if (pthread_create(&thread, NULL, for_ever, &run) != 0) return 2;
    usleep(20000);
    exit(0);
}
