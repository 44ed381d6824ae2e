/* The same as drive_everything.c for 04_by_hand.c, which is given what the other makes itself. */
#include <luge/luge.h>

void train_by_hand(luge_module *net, luge_optim *opt, luge_sched *sched, luge_scaler *scaler, luge_loader *data, const char *path);

enum { POINTS = 64, WINDOW = 4 };

static luge_tensor *points(luge_tensor *labels)
{
    luge_tensor *center = luge_add_scalar(luge_mul_scalar(luge_cast(labels, LUGE_F32), 4), -2);
    return luge_add(luge_randn(LUGE_SHAPE(POINTS, 2), NULL), luge_reshape(center, LUGE_SHAPE(POINTS, 1)));
}

static double run(luge_tensor *x, luge_tensor *labels, const char *path)
{
    luge_module *net = luge_nn_sequential(luge_nn_linear(2, 6, NULL), luge_nn_relu(), luge_nn_linear(6, 2, NULL));
    luge_optim *opt = luge_adam_create(net, 0.01, NULL);
    luge_loader *data = luge_loader_create(luge_dataset_tensors(x, labels), 4, &(luge_loader_options){.shuffle = true});
    luge_sched *sched = luge_cosine_lr_create(opt, 20 * luge_loader_batches(data, WINDOW), NULL);
    luge_scaler *scaler = luge_scaler_create(NULL);
    double accuracy;
    train_by_hand(net, opt, sched, scaler, data, path);
    {
        LUGE_EVAL(net);
        accuracy = luge_item(luge_accuracy(luge_forward(net, x), labels));
    }
    luge_scaler_destroy(scaler);
    luge_sched_destroy(sched);
    luge_optim_destroy(opt);
    luge_loader_destroy(data);
    luge_module_destroy(net);
    return accuracy;
}

int main(void)
{
    LUGE_SCOPE("main");
    static const char path[] = "by_hand.safetensors";
    remove(path);
    luge_seed(1);
    luge_tensor *labels = luge_randint(0, 2, LUGE_SHAPE(POINTS)), *x = points(labels);
    const double first = run(x, labels, path), second = run(x, labels, path);
    printf("accuracy %.0f %%, resumed %s\n", 100 * first, first == second ? "the same" : "another");
    remove(path);
    return luge_exit_code(stderr);
}
