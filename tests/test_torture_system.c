/* The system's memory fails: malloc and its relatives, whoever calls them - Luge, oneDNN and its new, zlib,
 * jansson, the C library when it starts a thread or opens a file. For each request a child process runs a
 * small program with that request failing, once or from then on. It must neither crash nor hang: an error comes back or
 * the numbers are right, nothing stays alive, and when memory is there again the program runs and its
 * numbers are right. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <luge/luge.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/onednn.h"
#include "tests/support/device.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

#if !defined(__GLIBC__) || defined(SANITIZED)

int main(void) { return 77; } /* their malloc cannot be stood before */

#else

/* ---- malloc of the whole process */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_bool counting, for_good;
static atomic_long requests, fail_at;

static bool fails(void)
{
    if (!atomic_load_explicit(&counting, memory_order_relaxed)) return false;
    const long n = 1 + atomic_fetch_add(&requests, 1), at = atomic_load(&fail_at);
    if (at == 0 || (for_good ? n < at : n != at)) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) { return fails() ? NULL : __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { return fails() ? NULL : __libc_calloc(count, bytes); }
void *realloc(void *old, size_t bytes) { return fails() ? NULL : __libc_realloc(old, bytes); }
void *memalign(size_t alignment, size_t bytes);
void *memalign(size_t alignment, size_t bytes) { return fails() ? NULL : __libc_memalign(alignment, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return fails() ? NULL : __libc_memalign(alignment, bytes); }
int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    void *made = fails() ? NULL : __libc_memalign(alignment, bytes);
    if (made == NULL) return ENOMEM;
    *memory = made;
    return 0;
}

static void fail_request(long n, bool from_then_on)
{
    atomic_store(&requests, 0);
    atomic_store(&fail_at, n);
    atomic_store(&for_good, from_then_on);
    atomic_store(&counting, true);
}

/* ---- the program: trains two steps, saves, loads, reads a gzip file */

static char directory[] = "/tmp/luge_torture_XXXXXX";
static char saved[64], packed[64];

/* idx, u8 [4, 3]: 0, 1, ... 11 */
static const unsigned char gzip_file[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xff, 0x63, 0x60, 0xe0, 0x60, 0x62, 0x60, 0x60, 0x60, 0x01, 0x62, 0x66,
    0x06, 0x46, 0x26, 0x66, 0x16, 0x56, 0x36, 0x76, 0x0e, 0x4e, 0x2e, 0x6e, 0x00, 0x56, 0xa9, 0x21, 0xd9, 0x18, 0x00, 0x00, 0x00};

static luge_module *make_net(void)
{
    return luge_nn_sequential(luge_nn_conv2d(1, 4, 3, NULL), luge_nn_batch_norm2d(4, NULL), luge_nn_relu(),
                              luge_nn_max_pool2d(2, NULL),
                              luge_nn_conv2d(4, 4, 3, &(luge_conv2d_options){.padding = 1, .groups = 2}), luge_nn_flatten(), luge_nn_dropout(0.2),
                              luge_nn_linear(36, 3, NULL));
}

/* Adds the losses of two steps. */
static double train(luge_module *net)
{
    double sum = 0;
    luge_optim *optim = luge_adam_create(net, 1e-2, NULL);
    luge_dataset *data = luge_dataset_tensors(luge_rand(LUGE_SHAPE(8, 1, 8, 8), NULL), luge_randint(0, 3, LUGE_SHAPE(8)));
    luge_loader *loader = luge_loader_create(data, 4, &(luge_loader_options){.shuffle = true});
    luge_batch batch;
    while (luge_loader_next(loader, &batch)) {
        LUGE_SCOPE("step");
        luge_tensor *y = luge_forward(net, batch.input);
        luge_tensor *loss = luge_cross_entropy(y, batch.target, NULL);
        luge_optim_zero_grad(optim);
        luge_backward(loss);
        luge_clip_grad_norm(optim, 1);
        luge_optim_step(optim);
        sum += luge_item(loss) + luge_item(luge_max(luge_softmax(y, 1), LUGE_ALL_AXES));
    }
    luge_loader_destroy(loader);
    luge_optim_destroy(optim);
    return sum;
}

/* A number that hangs on everything; of no use if an error stands. */
static double program(void)
{
    LUGE_SCOPE("program");
    luge_seed(1);
    luge_module *net = make_net(), *copy = make_net();
    double sum = train(net);
    if (luge_module_save(net, saved) == LUGE_OK && luge_module_load(copy, saved, NULL, NULL) == LUGE_OK)
        sum += luge_item(luge_sum(luge_module_param(copy, "7.weight"), LUGE_ALL_AXES));
    sum += luge_item(luge_sum(luge_read_idx(packed), LUGE_ALL_AXES));
    luge_module_destroy(copy);
    luge_module_destroy(net);
    return sum;
}

/* ---- a child with one failing request */

/* Shared with it. */
static struct shared {
    double right;
    int64_t host_bytes;       /* what the library keeps when all is done */
    long requests;
    int primitives;           /* of oneDNN: the convolution in groups */
    bool failed;              /* an error came back */
    char text[256];
} *shared;

LUGE_PRINTF_LIKE(1, 2) static void give_up(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(shared->text, sizeof shared->text, format, args);
    va_end(args);
    _exit(1);
}

static void check_live(const char *when)
{
    const luge_live_counts live = luge_live();
    if (live.tensors != 0 || live.storages != 0 || live.nodes != 0 || live.objects != 0 || live.host_bytes != 0)
        give_up("%s %d tensors, %d nodes, %d objects, %d bytes are alive", when, (int)live.tensors, (int)live.nodes,
                (int)live.objects, (int)live.host_bytes);
}

static void run_child(long n, bool from_then_on)
{
    alarm(20);
    fail_request(n, from_then_on);
    const double sum = program();
    atomic_store(&counting, false);
    shared->requests = atomic_load(&requests);
    if (n == 0) shared->right = sum;
    shared->primitives = lg_onednn_cached();
    shared->failed = !luge_ok();
    if (luge_ok() && sum != shared->right) give_up("no error, but %.17g instead of %.17g", sum, shared->right);
    if (!luge_ok() && (n == 0 || luge_error_text()[0] == '\0')) give_up("the error '%s'", luge_error_text());
    luge_error_clear();
    check_live("after the failure");

    const double again = program();
    if (!luge_ok()) give_up("with memory there again: '%s'", luge_error_text());
    if (again != shared->right) give_up("with memory there again: %.17g instead of %.17g", again, shared->right);
    check_live("in the end");
    _exit(0);
}

static bool run(long n, bool from_then_on)
{
    shared->text[0] = '\0';
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) run_child(n, from_then_on);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    if (WIFSIGNALED(status)) {
        print_error("request %ld: killed by signal %d\n", n, WTERMSIG(status));
    } else {
        print_error("request %ld: exit code %d: %s\n", n, WEXITSTATUS(status), shared->text);
    }
    return false;
}

/* ---- tests */

enum { ALL_THE_FIRST = 300, THEN_ABOUT = 100 };

static void fail_in_turn(bool from_then_on)
{
    assert_true(run(0, false));
    if (getenv("LUGE_ISA") == NULL) assert_true(shared->primitives >= 3);
    const long total = shared->requests;
    const long step = 1 + (total > ALL_THE_FIRST ? (total - ALL_THE_FIRST) / THEN_ABOUT : 0);
    int runs = 0, bad = 0, errors = 0;
    for (long n = 1; n <= total && bad < 10; n += n < ALL_THE_FIRST ? 1 : step, ++runs) {
        bad += !run(n, from_then_on);
        errors += shared->failed;
    }
    print_message("%ld requests; %d failed in turn, errors came of %d\n", total, runs, errors);
    assert_int_equal(bad, 0);
    assert_true(runs > 100 && errors > runs / 2);
}

static void one_request_fails(void **state)
{
    (void)state;
    fail_in_turn(false);
}

static void all_requests_fail_from_one_on(void **state)
{
    (void)state;
    fail_in_turn(true);
}

static int begin(void **state)
{
    (void)state;
    setenv("LUGE_NUM_THREADS", "2", 1); /* a thread is started; the order of requests is nearly fixed */
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || mkdtemp(directory) == NULL) return -1;
    snprintf(saved, sizeof saved, "%s/net.safetensors", directory);
    snprintf(packed, sizeof packed, "%s/idx.gz", directory);
    FILE *f = fopen(packed, "wb");
    return f == NULL || fwrite(gzip_file, 1, sizeof gzip_file, f) != sizeof gzip_file || fclose(f) != 0;
}

static int end(void **state)
{
    (void)state;
    unlink(saved);
    unlink(packed);
    return rmdir(directory); /* fails if a temporary file was forgotten */
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_request_fails),
        cmocka_unit_test(all_requests_fail_from_one_on),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

#endif
