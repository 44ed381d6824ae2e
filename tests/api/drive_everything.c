/* Trains a small net by 04_everything.c on two clouds of points, looks how good it is, and calls it once more: the run
 * is over then, and what it loads is as good. */
#include <luge/luge.h>

void train(luge_module *net, luge_loader *data, const char *path);

enum { POINTS = 100 };

static luge_tensor *points(luge_tensor *labels)
{
    luge_tensor *center = luge_add_scalar(luge_mul_scalar(luge_cast(labels, LUGE_F32), 10), -5); /* -5 or 5 */
    return luge_add(luge_randn(LUGE_SHAPE(POINTS, 2), NULL), luge_reshape(center, LUGE_SHAPE(POINTS, 1)));
}

static double run(luge_tensor *x, luge_tensor *labels, const char *path)
{
    luge_module *net = luge_nn_sequential(luge_nn_linear(2, 6, NULL), luge_nn_relu(), luge_nn_linear(6, 2, NULL));
    luge_loader *data = luge_loader_create(luge_dataset_tensors(x, labels), 1, &(luge_loader_options){.shuffle = true});
    double accuracy;
    train(net, data, path);
    {
        LUGE_EVAL(net);
        accuracy = luge_item(luge_accuracy(luge_forward(net, x), labels));
    }
    luge_loader_destroy(data);
    luge_module_destroy(net);
    return accuracy;
}

int main(void)
{
    LUGE_SCOPE("main");
    static const char path[] = "everything.safetensors";
    remove(path);
    luge_seed(1);
    luge_tensor *labels = luge_randint(0, 2, LUGE_SHAPE(POINTS)), *x = points(labels);
    const double first = run(x, labels, path), second = run(x, labels, path);
    printf("accuracy %.0f %%, resumed %s\n", 100 * first, first == second ? "the same" : "another");
    remove(path);
    return luge_exit_code(stderr);
}
