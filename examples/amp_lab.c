/* A laboratory for mixed precision: one net, one set of pictures, and a table of what f32, bf16 and f16, with and
 * without a loss scale, windows of accumulation and activation checkpointing make of them.
 *
 *     amp_lab --data /usr/share/datasets/fashion-mnist --pictures 4096 */
#include <getopt.h>
#include <luge/luge.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CLASSES = 10, WIDTH = 16, BLOCKS = 12, MOST_PARAMS = 64 };

typedef struct settings {
    const char *data, *device;
    int pictures, batch, threads;
    double lr;
} settings;

/* One row of the table. */
typedef struct setup {
    const char *name;
    luge_dtype low;
    bool scaled, recompute;
    int window;
} setup;

typedef struct outcome {
    double loss, accuracy, megabytes, milliseconds, agreement;
    int steps, skipped;
} outcome;

/* A small residual net: deep enough that what is kept for backward is most of its memory. */
static luge_module *make_block(void)
{
    const luge_conv2d_options same = {.padding = 1, .no_bias = true};
    return luge_nn_residual(luge_nn_sequential(luge_nn_batch_norm2d(WIDTH, NULL), luge_nn_relu(),
                                               luge_nn_conv2d(WIDTH, WIDTH, 3, &same), luge_nn_dropout(0.1)), NULL);
}

static luge_module *make_net(bool recompute)
{
    luge_module *parts[BLOCKS + 5];
    int n = 0;
    parts[n++] = luge_nn_conv2d(1, WIDTH, 3, &(luge_conv2d_options){.stride = 2, .padding = 1});
    for (int i = 0; i < BLOCKS; ++i) parts[n++] = make_block();
    parts[n++] = luge_nn_relu();
    parts[n++] = luge_nn_max_pool2d(2, NULL);
    parts[n++] = luge_nn_flatten();
    parts[n++] = luge_nn_linear(WIDTH * 7 * 7, CLASSES, NULL);
    luge_module *net = luge_nn_sequential_array(parts, n);
    if (recompute) luge_module_set_checkpointing(net, &(luge_checkpointing){.sqrt = true});
    return net;
}

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- gradients of one batch, compared with those in f32 */

typedef struct gradients {
    luge_tensor *of[MOST_PARAMS]; /* f64 */
    int count;
} gradients;

static void keep_gradient(const char *name, luge_tensor *param, void *user)
{
    (void)name;
    gradients *g = user;
    if (g->count == MOST_PARAMS) return;
    g->of[g->count++] = luge_cast(luge_tensor_grad(param), LUGE_F64);
}

/* They belong to the caller's scope. The scale is divided out in f64, which loses nothing. */
static gradients gradients_of(const setup *s, const luge_batch *b, double scale)
{
    gradients g = {.count = 0};
    luge_seed(7);
    luge_module *net = make_net(s->recompute);
    luge_tensor *loss;
    {
        LUGE_AUTOCAST(s->low);
        loss = luge_cross_entropy(luge_forward(net, b->input), b->target, NULL);
    }
    luge_backward(luge_mul_scalar(loss, scale));
    luge_module_each_param(net, keep_gradient, &g);
    for (int i = 0; i < g.count; ++i) g.of[i] = luge_mul_scalar(g.of[i], 1 / scale);
    luge_module_destroy(net);
    return g;
}

/* The cosine between all gradients of both: 1 where they agree. */
static double agreement(const gradients *a, const gradients *b)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < a->count && luge_ok(); ++i) {
        LUGE_SCOPE("cosine");
        ab += luge_item(luge_sum(luge_mul(a->of[i], b->of[i]), LUGE_ALL_AXES));
        aa += luge_item(luge_sum(luge_square(a->of[i]), LUGE_ALL_AXES));
        bb += luge_item(luge_sum(luge_square(b->of[i]), LUGE_ALL_AXES));
    }
    return ab / sqrt(aa * bb);
}

/* With a scale as large as the scaler would leave it: the first, from 65536 on down, that overflows nothing. */
static double agreement_of(const setup *s, const luge_batch *b, const gradients *exact)
{
    double cosine = NAN;
    for (double scale = s->scaled ? 65536 : 1; scale >= 1 && !isfinite(cosine) && luge_ok(); scale /= 2) {
        LUGE_SCOPE("gradients");
        const gradients g = gradients_of(s, b, scale);
        cosine = agreement(exact, &g);
    }
    return cosine;
}

/* ---- training */

/* The first `count` samples of another dataset. */
static luge_dataset *some_of(luge_dataset *all, int64_t count)
{
    LUGE_SCOPE("some");
    luge_loader *loader = luge_loader_create(all, count, NULL);
    luge_batch b;
    luge_dataset *some = NULL;
    if (luge_loader_next(loader, &b))
        some = luge_dataset_tensors(luge_to(b.input, luge_device_cpu(), NULL), luge_to(b.target, luge_device_cpu(), NULL));
    luge_loader_destroy(loader);
    return some;
}

static luge_loader *load(const settings *s, luge_part part, int64_t pictures, int batch)
{
    static const uint64_t seed = 1;
    luge_dataset *d = some_of(luge_dataset_mnist(s->data, part), pictures);
    return luge_loader_create(d, batch, &(luge_loader_options){.shuffle = part == LUGE_TRAIN, .seed = &seed});
}

static double accuracy_of(luge_module *net, luge_loader *test, luge_dtype low)
{
    LUGE_EVAL(net);
    luge_meter *meter = luge_meter_create();
    luge_batch b;
    while (luge_loader_next(test, &b)) {
        LUGE_SCOPE("eval");
        LUGE_AUTOCAST(low);
        luge_meter_add(meter, luge_accuracy(luge_forward(net, b.input), b.target), b.size);
    }
    const double accuracy = luge_meter_mean(meter);
    luge_meter_destroy(meter);
    return accuracy;
}

static int64_t allocated(void)
{
    return luge_memory_get_stats((luge_device){0}).allocated_bytes;
}

static void train(const setup *s, const settings *all, luge_loader *test, outcome *o)
{
    luge_loader *train = load(all, LUGE_TRAIN, all->pictures, all->batch); /* anew, so that each row has its first epoch */
    const int64_t before = allocated();
    luge_seed(7);
    luge_module *net = make_net(s->recompute);
    luge_optim *optim = luge_adam_create(net, all->lr, NULL);
    luge_scaler *scaler = s->scaled ? luge_scaler_create(&(luge_scaler_options){.growth_interval = 100}) : NULL;
    luge_accum *accum = luge_accum_create(optim, s->window, &(luge_accum_options){.scaler = scaler, .clip_norm = 5});
    luge_meter *loss = luge_meter_create();
    luge_batch b;
    const double began = now();
    luge_memory_reset_peak((luge_device){0});
    int batches = 0;
    while (luge_loader_next(train, &b)) {
        LUGE_SCOPE("step");
        LUGE_AUTOCAST(s->low);
        luge_tensor *l = luge_cross_entropy(luge_forward(net, b.input), b.target, NULL);
        luge_meter_add(loss, l, b.size);
        luge_accum_backward(accum, l, b.size);
        if (luge_error() == LUGE_ERR_NONFINITE) luge_error_clear(); /* without a scaler: the step is left out, too */
        ++batches;
    }
    luge_accum_flush(accum);
    luge_device_sync((luge_device){0});
    o->milliseconds = 1e3 * (now() - began) / batches;
    o->megabytes = (double)(luge_memory_get_stats((luge_device){0}).allocated_peak - before) / 1e6;
    o->steps = (batches + s->window - 1) / s->window;
    o->skipped = o->steps - (int)luge_optim_steps(optim);
    o->loss = luge_meter_mean(loss);
    o->accuracy = accuracy_of(net, test, s->low);
    luge_meter_destroy(loss);
    luge_accum_destroy(accum);
    luge_scaler_destroy(scaler);
    luge_optim_destroy(optim);
    luge_module_destroy(net);
    luge_loader_destroy(train);
}

/* ---- the table */

static void print_row(const setup *s, const outcome *o)
{
    printf("%-12s %6d %10s  %7.4f  %6.2f %%  %4d of %-4d %8.1f  %8.1f  %9.6f\n", s->name, s->window, s->recompute ? "yes" : "no",
           o->loss, 100 * o->accuracy, o->skipped, o->steps, o->megabytes, o->milliseconds, o->agreement);
}

static void run(const settings *s)
{
    static const setup types[] = {{.name = "f32", .low = LUGE_F32}, {.name = "bf16", .low = LUGE_BF16},
                                  {.name = "f16", .low = LUGE_F16}, {.name = "f16 scaled", .low = LUGE_F16, .scaled = true}};
    static const int windows[] = {1, 4, 16};
    LUGE_SCOPE("lab");
    luge_device device;
    if (s->threads != 0) luge_set_num_threads(s->threads);
    if (luge_device_parse(s->device, &device) == LUGE_OK) luge_set_default_device(device);
    luge_loader *test = load(s, LUGE_TEST, 2000, 250);
    luge_loader *one = load(s, LUGE_TRAIN, s->batch, s->batch);
    luge_batch b;
    if (!luge_loader_next(one, &b)) b = (luge_batch){0};
    if (luge_ok()) {
        printf("%d pictures in batches of %d, 2000 to test with; seed and order are the same in every row\n\n"
               "precision    window recomputed     loss  accuracy  skipped      peak MB  ms/batch  agreement\n", s->pictures, s->batch);
    }
    const gradients exact = gradients_of(&types[0], &b, 1);
    for (size_t t = 0; t < sizeof types / sizeof *types && luge_ok(); ++t)
        for (size_t w = 0; w < sizeof windows / sizeof *windows; ++w)
            for (int recompute = 0; recompute < 2; ++recompute) {
                LUGE_SCOPE("row");
                setup row = types[t];
                outcome o = {0};
                row.window = windows[w];
                row.recompute = recompute == 1;
                o.agreement = agreement_of(&row, &b, &exact);
                train(&row, s, test, &o);
                if (luge_ok()) print_row(&row, &o);
            }
    if (luge_ok()) {
        printf("\nloss: mean over the epoch. skipped: steps that an overflow left out. peak: of all tensors of the training, at most.\n"
               "agreement: cosine between the gradients of one batch and those in f32. Without a scale, f16 loses small ones.\n");
    }
    luge_loader_destroy(one);
    luge_loader_destroy(test);
}

/* ---- the command line */

static const char usage[] =
    "usage: amp_lab [options]\n"
    "  --data DIR       idx files, plain or .gz (/usr/share/datasets/fashion-mnist)\n"
    "  --pictures N     training pictures, one epoch of them in each row (2048)\n"
    "  --batch N        pictures in a batch (64)\n"
    "  --lr RATE        of Adam (0.001)\n"
    "  --device DEVICE  auto (a GPU if there is one), cpu, cuda or cuda:N (auto)\n"
    "  --threads N      threads (as many as there are cores)\n";

static double number(const char *option, const char *text, double low, double high)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= low && value <= high))
        luge_fail(LUGE_ERR_ARGUMENT, "--%s %s: a number from %g to %g", option, text, low, high);
    return luge_ok() ? value : low;
}

int main(int argc, char **argv)
{
    enum { DATA, PICTURES, BATCH, RATE, DEVICE, THREADS, HELP };
    static const struct option options[] = {{"data", 1, 0, DATA}, {"pictures", 1, 0, PICTURES}, {"batch", 1, 0, BATCH}, {"lr", 1, 0, RATE},
                                            {"device", 1, 0, DEVICE}, {"threads", 1, 0, THREADS}, {"help", 0, 0, HELP}, {0, 0, 0, 0}};
    settings s = {.data = "/usr/share/datasets/fashion-mnist", .device = "auto", .pictures = 2048, .batch = 64, .lr = 1e-3};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case DATA: s.data = optarg; break;
        case PICTURES: s.pictures = (int)number("pictures", optarg, 1, 1e6); break;
        case BATCH: s.batch = (int)number("batch", optarg, 1, 1e5); break;
        case RATE: s.lr = number("lr", optarg, 0, 1e3); break;
        case DEVICE: s.device = optarg; break;
        case THREADS: s.threads = (int)number("threads", optarg, 1, 1024); break;
        case HELP: fputs(usage, stdout); return 0;
        default: luge_fail(LUGE_ERR_ARGUMENT, "amp_lab --help says what there is");
        }
    }
    if (optind < argc) luge_fail(LUGE_ERR_ARGUMENT, "what is \"%s\"? amp_lab --help says what there is", argv[optind]);
    if (luge_ok()) run(&s);
    return luge_exit_code(stderr);
}
