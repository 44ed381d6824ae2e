/* Runs a program once for each of its calls of Luge, with that call failing, when the environment has
 * LUGE_FAIL_CALLS=1. The loop is a constructor: it forks before main, the child goes on into main with
 * one call to fail, the parent looks at how it ended. Every run has to end by itself, with exit code 1
 * (or 0, where LUGE_FAIL_CALLS=recovers says that the program recovers), with nothing of Luge alive. */
#define _GNU_SOURCE
#include "tests/api/fail_calls.h"
#include <luge/luge.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEFT_ALIVE = 90, ALL_THE_FIRST = 150, THEN_ABOUT = 60 };

/* Shared with the child. */
static struct { long calls, fail_at; char function[64], left[160]; } *run;

void fail_calls_count(const char *function)
{
    if (run == NULL || __atomic_add_fetch(&run->calls, 1, __ATOMIC_RELAXED) != run->fail_at) return;
    snprintf(run->function, sizeof run->function, "%s", function);
    luge_fail(LUGE_ERR_OUT_OF_MEMORY, "%s was made to fail", function);
}

static void look_for_leftovers(void)
{
    const luge_live_counts live = luge_live();
    if (live.tensors == 0 && live.nodes == 0 && live.objects == 0) return;
    snprintf(run->left, sizeof run->left, "%d tensors, %d nodes, %d objects", (int)live.tensors, (int)live.nodes,
             (int)live.objects);
    fflush(NULL);
    _exit(LEFT_ALIVE);
}

/* True in the child. */
static int start(long fail_at)
{
    memset(run, 0, sizeof *run);
    run->fail_at = fail_at;
    const pid_t child = fork();
    if (child < 0) _exit(2);
    if (child == 0) {
        atexit(look_for_leftovers);
        alarm(60);
        if (fail_at != 0 && (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)) _exit(2);
        return 1;
    }
    return 0;
}

static int finish(int recovers)
{
    int status = 0;
    wait(&status);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    /* Calls that hang on the clock, such as a progress bar's, may be fewer this time: then none failed. */
    const int failed = run->function[0] != '\0';
    if (code == 0 && (!failed || recovers)) return 1;
    if (code == 1 && failed) return 1;
    fprintf(stderr, "call %ld, %s, failing: %s %d%s%s\n", run->fail_at, run->function,
            WIFSIGNALED(status) ? "killed by signal" : "exit code", WIFSIGNALED(status) ? WTERMSIG(status) : code,
            code == LEFT_ALIVE ? ", left alive: " : "", run->left);
    return 0;
}

__attribute__((constructor)) static void fail_in_turn(void)
{
    const char *mode = getenv("LUGE_FAIL_CALLS");
    if (mode == NULL) return;
    run = mmap(NULL, sizeof *run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run == MAP_FAILED) _exit(2);
    if (start(0)) return;
    int good = finish(0);
    const long calls = run->calls;
    long runs = 0;
    for (long n = 1; n <= calls; n += n < ALL_THE_FIRST ? 1 : 1 + (calls - ALL_THE_FIRST) / THEN_ABOUT, ++runs) {
        if (start(n)) return;
        good &= finish(strcmp(mode, "recovers") == 0);
    }
    fprintf(stderr, "%ld calls, %ld of them failed in turn: %s\n", calls, runs, good ? "good" : "bad");
    _exit(good && calls > 0 ? 0 : 1);
}
