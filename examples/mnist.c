/* Trains a small net on Fashion-MNIST, MNIST or anything else in their form, then shows how good it is.
 *
 *     mnist --model lenet --data /usr/share/datasets/fashion-mnist --out results
 *
 * writes results/weights.safetensors, which PyTorch reads, and results/report.png. */
#include <errno.h>
#include <getopt.h>
#include <luge/luge.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "progress.h"
#include "report.h"

typedef struct settings {
    const char *model, *data, *out, *classes, *device, *amp;
    int epochs, batch, window, threads;
    double lr;
    uint64_t seed;
} settings;

typedef struct trainer {
    luge_module *net;
    luge_optim *opt;
    luge_sched *sched;
    luge_dtype low;                      /* autocast's; LUGE_F32: off */
    luge_scaler *scaler;                 /* NULL: none */
    luge_accum *accum;
    luge_loader *train, *test;
    luge_meter *loss, *accuracy;         /* of the last WINDOW steps */
    progress_bar bar;
    curve losses, train_curve, test_curve;
    results results;                     /* of the last evaluation */
} trainer;

enum { WINDOW = 20 };

/* ---- nets */

static luge_module *mlp(void)
{
    return luge_nn_sequential(luge_nn_flatten(), luge_nn_linear(784, 256, NULL), luge_nn_relu(), luge_nn_dropout(0.2),
                              luge_nn_linear(256, 128, NULL), luge_nn_relu(),
                              luge_nn_linear(128, CLASSES, NULL));
}

static luge_module *lenet(void)
{
    return luge_nn_sequential(luge_nn_conv2d(1, 32, 3, NULL), luge_nn_relu(),
                              luge_nn_conv2d(32, 64, 3, NULL), luge_nn_relu(),
                              luge_nn_max_pool2d(2, NULL), luge_nn_dropout(0.25), luge_nn_flatten(),
                              luge_nn_linear(9216, 128, NULL), luge_nn_relu(), luge_nn_dropout(0.5),
                              luge_nn_linear(128, CLASSES, NULL));
}

static luge_module *make_net(const char *name)
{
    if (strcmp(name, "mlp") == 0) return mlp();
    if (strcmp(name, "lenet") == 0) return lenet();
    luge_fail(LUGE_ERR_ARGUMENT, "there is no model \"%s\": mlp or lenet", name);
    return NULL;
}

/* ---- training */

/* Every WINDOW steps the meters are read, which would wait for a GPU, and start again. */
static void note(trainer *t, double epoch)
{
    t->bar.loss = luge_meter_mean(t->loss);
    t->bar.accuracy = luge_meter_mean(t->accuracy);
    curve_add(&t->losses, (double)luge_optim_steps(t->opt), t->bar.loss);
    curve_add(&t->train_curve, epoch, t->bar.accuracy);
    luge_meter_reset(t->loss);
    luge_meter_reset(t->accuracy);
}

static void train_epoch(trainer *t)
{
    const double batches = (double)luge_loader_batches(t->train, 1);
    const int epoch = luge_loader_epoch(t->train);
    luge_batch b;
    while (luge_loader_next(t->train, &b)) {
        LUGE_SCOPE("step");
        LUGE_AUTOCAST(t->low);
        luge_tensor *logits = luge_forward(t->net, b.input);                 /* [N, CLASSES] */
        luge_tensor *loss = luge_cross_entropy(logits, b.target, NULL);
        luge_accum_backward(t->accum, loss, b.size);                         /* and, at a window's end, the step */
        luge_meter_add(t->loss, loss, b.size);
        luge_meter_add(t->accuracy, luge_accuracy(logits, b.target), b.size);
        if ((b.index + 1) % WINDOW == 0) note(t, epoch + (double)(b.index + 1) / batches);
    }
    luge_accum_flush(t->accum);                                              /* a short last window */
}

/* Itself, where there is no GPU. */
static luge_tensor *on_host(luge_tensor *t)
{
    return luge_to(t, luge_device_cpu(), NULL);
}

static void evaluate(trainer *t)
{
    LUGE_EVAL(t->net);
    LUGE_AUTOCAST(t->low);
    memset(&t->results, 0, sizeof t->results);
    luge_batch b;
    while (luge_loader_next(t->test, &b)) {
        LUGE_SCOPE("eval");
        luge_tensor *guess = luge_argmax(luge_forward(t->net, b.input), 1);  /* [N] */
        const float *pixels = luge_tensor_data(on_host(b.input), LUGE_F32);
        const int64_t *truth = luge_tensor_data(on_host(b.target), LUGE_I64);
        const int64_t *guesses = luge_tensor_data(on_host(guess), LUGE_I64);
        for (int64_t i = 0; i < b.size && luge_ok(); ++i)
            results_add(&t->results, pixels + i * SIDE * SIDE, truth[i], guesses[i]);
    }
}

/* What is made from here on is made there. A GPU that was asked for by name must be there; with "auto" the
 * CPU is used where there is none. */
static void choose_device(const char *name)
{
    luge_device device;
    if (luge_device_parse(name, &device) != LUGE_OK || luge_set_default_device(device) != LUGE_OK) return;
    if (device.kind != luge_device_cpu().kind) printf("on cuda:%d\n", device.index);
    else if (strcmp(name, "auto") != 0) printf("on the CPU, %d threads\n", luge_num_threads());
    else printf("on the CPU, %d threads; no GPU: %s\n", luge_num_threads(), luge_device_why_not(luge_device_cuda(0)));
}

/* f16 needs its losses scaled; bf16 has the range of f32. */
static void choose_precision(trainer *t, const char *amp)
{
    t->low = LUGE_F32;
    if (strcmp(amp, "bf16") == 0) t->low = LUGE_BF16;
    else if (strcmp(amp, "f16") == 0) t->low = LUGE_F16;
    else if (strcmp(amp, "off") != 0) luge_fail(LUGE_ERR_ARGUMENT, "--amp %s: off, bf16 or f16", amp);
    if (t->low == LUGE_F16) t->scaler = luge_scaler_create(NULL);
}

static void open_trainer(trainer *t, const settings *s)
{
    luge_seed(s->seed);
    if (s->threads != 0) luge_set_num_threads(s->threads);
    choose_device(s->device);
    choose_precision(t, s->amp);
    t->net = make_net(s->model);
    t->opt = luge_adam_create(t->net, s->lr, NULL);
    t->loss = luge_meter_create();
    t->accuracy = luge_meter_create();
    t->bar = (progress_bar){.epochs = s->epochs, .loss = NAN, .accuracy = NAN};
    luge_dataset *train = luge_dataset_mnist(s->data, LUGE_TRAIN), *test = luge_dataset_mnist(s->data, LUGE_TEST);
    if (luge_ok()) {
        printf("%s, %lld parameters; %s, %lld training and %lld test pictures\n", s->model,
               (long long)luge_module_param_count(t->net), s->data, (long long)luge_dataset_size(train),
               (long long)luge_dataset_size(test));
    }
    t->test = luge_loader_create(test, 250, NULL);
    t->train = luge_loader_create(train, s->batch,
        &(luge_loader_options){.shuffle = true, .progress = progress_show, .user = &t->bar});
    t->sched = luge_one_cycle_lr_create(t->opt, s->epochs * luge_loader_batches(t->train, s->window), NULL);
    t->accum = luge_accum_create(t->opt, s->window, &(luge_accum_options){.scaler = t->scaler, .sched = t->sched});
}

static void close_trainer(trainer *t)
{
    curve_free(&t->losses);
    curve_free(&t->train_curve);
    curve_free(&t->test_curve);
    luge_loader_destroy(t->train);
    luge_loader_destroy(t->test);
    luge_meter_destroy(t->loss);
    luge_meter_destroy(t->accuracy);
    luge_accum_destroy(t->accum);
    luge_scaler_destroy(t->scaler);
    luge_sched_destroy(t->sched);
    luge_optim_destroy(t->opt);
    luge_module_destroy(t->net);
}

/* ---- results */

/* Before training, not after it: a directory that cannot be written to would lose the result. */
static void make_directory(const char *path)
{
    struct stat info;
    if (mkdir(path, 0777) == 0 || (stat(path, &info) == 0 && S_ISDIR(info.st_mode))) return;
    luge_fail(LUGE_ERR_IO, "%s: not a directory, and cannot be made one (%s)", path, strerror(errno));
}

static void write_files(trainer *t, const settings *s, const class_names *names)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/weights.safetensors", s->out);
    if (luge_module_save(t->net, path) != LUGE_OK) return;
    printf("\nwrote %s\n", path);

    snprintf(path, sizeof path, "%s/report.png", s->out);
    const report r = {s->model, &t->losses, &t->train_curve, &t->test_curve, &t->results, names};
    if (!report_write_png(&r, path)) luge_fail(LUGE_ERR_IO, "%s: cannot be written", path);
    if (luge_ok()) printf("wrote %s\n", path);
}

static void run(trainer *t, const settings *s)
{
    class_names names;
    if (!class_names_find(&names, s->data, s->classes))
        luge_fail(LUGE_ERR_IO, "%s: cannot be read, or has less than %d lines", s->classes, CLASSES);
    if (s->out != NULL) make_directory(s->out);
    open_trainer(t, s);
    while (luge_ok() && luge_loader_epoch(t->train) < s->epochs) {
        train_epoch(t);
        evaluate(t);
        if (!luge_ok()) return;
        const int epoch = luge_loader_epoch(t->train);
        const double accuracy = results_accuracy(&t->results);
        curve_add(&t->test_curve, epoch, accuracy);
        printf("epoch %d: loss %.4f, test accuracy %.2f %%\n", epoch, t->bar.loss, 100 * accuracy);
    }
    if (!luge_ok()) return;
    results_print(stdout, &t->results, &names);
    if (s->out != NULL) write_files(t, s, &names);
}

/* ---- the command line */

static void show_warning(luge_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == LUGE_LOG_WARNING) fprintf(stderr, "warning: %s\n", text);
}

static const char usage[] =
    "usage: mnist [options]\n"
    "  --model mlp|lenet   what to train (lenet)\n"
    "  --data DIR          idx files, plain or .gz (/usr/share/datasets/fashion-mnist)\n"
    "  --classes FILE      names of the ten classes, one a line\n"
    "  --epochs N          passes over the training set (2)\n"
    "  --batch N           pictures in a step (64)\n"
    "  --window N          batches whose gradients make one step (1)\n"
    "  --amp TYPE          off, or compute in bf16 or f16 where that is safe (off)\n"
    "  --lr RATE           highest learning rate of the one-cycle schedule (0.002)\n"
    "  --device DEVICE     auto (a GPU if there is one), cpu, cuda or cuda:N (auto)\n"
    "  --seed N            of weights, order and dropout (1)\n"
    "  --threads N         threads (as many as there are cores)\n"
    "  --out DIR           write weights.safetensors and report.png there\n";

static double number(const char *option, const char *text, double low, double high)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= low && value <= high))
        luge_fail(LUGE_ERR_ARGUMENT, "--%s %s: a number from %g to %g", option, text, low, high);
    return luge_ok() ? value : low;
}

/* False: help was asked for, or the command line is wrong (then an error stands). */
static bool parse(int argc, char **argv, settings *s)
{
    enum { MODEL, DATA, CLASSES_FILE, EPOCHS, BATCH, STEP_WINDOW, AMP, RATE, DEVICE, SEED, THREADS, OUT, HELP };
    static const struct option options[] = {
        {"model", 1, 0, MODEL}, {"data", 1, 0, DATA}, {"classes", 1, 0, CLASSES_FILE}, {"epochs", 1, 0, EPOCHS},
        {"batch", 1, 0, BATCH}, {"window", 1, 0, STEP_WINDOW}, {"amp", 1, 0, AMP}, {"lr", 1, 0, RATE}, {"device", 1, 0, DEVICE}, {"seed", 1, 0, SEED},
        {"threads", 1, 0, THREADS}, {"out", 1, 0, OUT}, {"help", 0, 0, HELP}, {0, 0, 0, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case MODEL: s->model = optarg; break;
        case DATA: s->data = optarg; break;
        case CLASSES_FILE: s->classes = optarg; break;
        case EPOCHS: s->epochs = (int)number("epochs", optarg, 1, 1e6); break;
        case BATCH: s->batch = (int)number("batch", optarg, 1, 1e6); break;
        case STEP_WINDOW: s->window = (int)number("window", optarg, 1, 1e6); break;
        case AMP: s->amp = optarg; break;
        case RATE: s->lr = number("lr", optarg, 0, 1e3); break;
        case DEVICE: s->device = optarg; break;
        case SEED: s->seed = (uint64_t)number("seed", optarg, 0, 0x1p53); break;
        case THREADS: s->threads = (int)number("threads", optarg, 1, 1024); break;
        case OUT: s->out = optarg; break;
        case HELP: fputs(usage, stdout); return false;
        default: luge_fail(LUGE_ERR_ARGUMENT, "mnist --help says what there is");
        }
    }
    if (optind < argc) luge_fail(LUGE_ERR_ARGUMENT, "what is \"%s\"? mnist --help says what there is", argv[optind]);
    return luge_ok();
}

int main(int argc, char **argv)
{
    settings s = {.model = "lenet", .data = "/usr/share/datasets/fashion-mnist", .epochs = 2, .batch = 64,
                  .window = 1, .lr = 2e-3, .device = "auto", .amp = "off", .seed = 1};
    static trainer t; /* its pictures are large */
    luge_set_log(show_warning, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (parse(argc, argv, &s)) run(&t, &s);
    close_trainer(&t);
    return luge_exit_code(stderr);
}
