/* Calls the functions of 08_memory.c where memory is short. */
#include <luge/luge.h>

typedef struct task { luge_module *net; luge_optim *opt; } task;

int64_t largest_batch(task *t);
void epoch_split(task *t, luge_loader *data);
void epoch_by_hand(task *t, luge_loader *data);

enum { SAMPLES = 40, BATCH = 20, ROOM = 2500000 };

static luge_loader *load(void)
{
    luge_tensor *x = luge_randn(LUGE_SHAPE(SAMPLES, 3, 32, 32), NULL), *y = luge_randint(0, 10, LUGE_SHAPE(SAMPLES));
    return luge_loader_create(luge_dataset_tensors(x, y), BATCH, NULL);
}

static void limit(int64_t room)
{
    luge_memory_empty_cache((luge_device){0});
    luge_set_memory_limit((luge_device){0}, room > 0 ? luge_memory_get_stats((luge_device){0}).allocated_bytes + room : 0);
}

int main(void)
{
    LUGE_SCOPE("main");
    luge_seed(2);
    task t = {.net = luge_nn_sequential(luge_nn_conv2d(3, 8, 3, NULL), luge_nn_relu(), luge_nn_flatten(), luge_nn_linear(7200, 10, NULL))};
    t.opt = luge_sgd_create(t.net, 0.01, NULL);
    luge_loader *data = load(), *other = load();
    limit(ROOM);
    const int64_t most = largest_batch(&t);
    printf("%s batch fits\n", most > 4 && most < BATCH ? "a smaller" : "another");
    epoch_split(&t, data);
    epoch_by_hand(&t, other);
    limit(0);
    printf("by hand the batch became %s\n", luge_loader_batch_size(other) < BATCH ? "smaller" : "no smaller");
    luge_loader_destroy(other);
    luge_loader_destroy(data);
    luge_optim_destroy(t.opt);
    luge_module_destroy(t.net);
    return luge_exit_code(stderr);
}
