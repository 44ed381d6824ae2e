/* Reductions: sum, mean, max, min, var, norm, argmax over any axes of tensors with any strides.
 *
 * The axes that stay and those that go are each merged and sorted by stride. Results are worked out in
 * tiles along the innermost axis that stays: column by column where that axis is dense in memory, else
 * result by result along the innermost axis that goes. Where there are few results and many elements,
 * the longest axis that goes is cut into parts, whose sums are added in order afterwards. Tiles and
 * parts are cut by shape alone. */
#include <math.h>
#include <string.h>
#include "core/pool.h"
#include "core/thread.h"
#include "cpu/cpu.h"
#include "cpu/scratch.h"
#include "cpu/simd/simd.h"
#include "cpu/strided.h"
#include "ops/attrs.h"

enum {
    TILE = LG_BLOCK, /* results of a tile at most */
    LANES = 256,     /* partial results of one long row */
    FEW_LANES = 32,  /* of one shorter row */
    ARGMAX_LANES = 64,
    TURNED = 2048,   /* elements of short rows turned around at a time */
    FEW = 64,        /* elements whose mean is the center of moments */
    GRAIN = 32768    /* elements worth a thread */
};

/* A number that accumulates: f64 for floats, i64 for integers. */
typedef union wide {
    double real;
    int64_t whole;
} wide;

typedef struct axis {
    int64_t size, x_stride, y_stride;
} axis;

/* What is done with the results of a tile: turned into what goes with each element in the second pass,
 * or into what is stored. `first` are the results of the first pass where there were two, or the centers of
 * moments. */
typedef struct reduce_work reduce_work;
typedef void (*step_fn)(const reduce_work *w, int64_t n, wide *acc, wide *first);

typedef struct recipe {
    lg_reduction pass[2];
    int passes;
    step_fn between, finish;
} recipe;

struct reduce_work {
    recipe recipe;
    const lg_reducer *kernels; /* of the lane */
    const lg_reducer *merge;   /* of the wide type: for partial results */
    lg_convert_fn to_f32;      /* of halves */
    bool whole;                /* accumulates integers */
    lg_lane lane;
    double number;             /* p or correction */
    int64_t count;             /* elements per result */

    const char *x;
    size_t x_size;
    luge_tensor *y, *y2;        /* y2: var's mean */
    int n_kept, n_gone;         /* at least 1 each */
    axis kept[LUGE_MAX_RANK], gone[LUGE_MAX_RANK];
    bool by_columns;

    int64_t tile, tiles, units; /* results per tile, tiles along kept[0], tiles in all */
    int cut;                    /* the axis that is cut into parts */
    int64_t parts, slices;
    int64_t results;
    wide *partial;              /* [parts][results * width_of(pass)] where there are parts */
    wide *first;                /* [results] of the first pass, or centers, where there are parts */
    int pass;                   /* where there are parts */
};

/* ---- accumulating */

static wide identity(const reduce_work *w, lg_reduction r)
{
    if (r == LG_REDUCE_MAX) return w->whole ? (wide){.whole = INT64_MIN} : (wide){.real = -INFINITY};
    if (r == LG_REDUCE_MIN) return w->whole ? (wide){.whole = INT64_MAX} : (wide){.real = INFINITY};
    return (wide){0};
}

/* Accumulators of a result, which lie side by side. */
static int64_t width_of(lg_reduction r) { return r == LG_REDUCE_MOMENTS ? 2 : 1; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static void set_all(int64_t n, wide *to, wide value)
{
    for (int64_t i = 0; i < n; ++i) to[i] = value;
}

/* How partial results of a reduction come together: as sums, or as the largest or smallest. */
static lg_reducer merger(const reduce_work *w, lg_reduction r)
{
    bool extreme = r == LG_REDUCE_MAX || r == LG_REDUCE_MIN;
    return w->merge[extreme ? r : r == LG_REDUCE_ABS_MAX ? LG_REDUCE_MAX : LG_REDUCE_SUM];
}

/* The n results in acc take in those in each row of `partial`. */
static void merge(const reduce_work *w, lg_reduction r, int64_t n, int64_t rows, const wide *partial, wide *acc)
{
    n *= width_of(r);
    merger(w, r)(n, rows, n, partial, NULL, 0, acc);
}

/* n dense elements of the lane's type into one result: in lanes that come together at the end. */
static void add_row(const reduce_work *w, lg_reduction r, int64_t n, const char *x, size_t size, const wide *center, wide *acc)
{
    int64_t width = width_of(r);
    for (int64_t lanes = LANES; lanes >= FEW_LANES; lanes /= LANES / FEW_LANES) {
        int64_t rows = n / lanes;
        if (rows < (lanes == LANES ? 16 : 2)) continue;
        wide lane[2 * LANES], same[LANES];
        set_all(lanes * width, lane, identity(w, r));
        if (center != NULL) set_all(lanes, same, *center);
        w->kernels[r](lanes, rows, lanes, x, center != NULL ? same : NULL, w->number, lane);
        for (int64_t half = lanes / 2; half > 0; half /= 2) merge(w, r, half, 1, lane + half * width, lane);
        merge(w, r, 1, 1, lane, acc);
        x += rows * lanes * (int64_t)size;
        n -= rows * lanes;
    }
    w->kernels[r](1, n, 1, x, center, w->number, acc);
}

/* Rows of the lane's type that are shorter than lanes are worth, dense and `stride` apart: turned around,
 * then column by column. */
static void add_short_rows(const reduce_work *w, lg_reduction r, int64_t n, int64_t length, int64_t stride, const char *x,
                           const wide *center, wide *acc)
{
    _Alignas(64) char turned[TURNED * sizeof(double)];
    int64_t together = smaller(n, TURNED / length);
    for (int64_t j = 0; j < n; j += together) {
        int64_t m = smaller(together, n - j);
        lg_transpose_run(turned, m, x + j * stride * (int64_t)w->x_size, stride, m, length, w->x_size);
        w->kernels[r](m, length, m, turned, center == NULL ? NULL : center + j, w->number, acc + j * width_of(r));
    }
}

/* The same for n elements at any stride and of any dtype. */
static void add_strided_row(const reduce_work *w, lg_reduction r, int64_t n, int64_t stride, const char *x,
                            const wide *center, wide *acc)
{
    if (stride == 1 && w->to_f32 == NULL) {
        add_row(w, r, n, x, w->x_size, center, acc);
        return;
    }
    _Alignas(64) char raw[LG_BLOCK * sizeof(double)];
    _Alignas(64) float converted[LG_BLOCK];
    for (int64_t i = 0; i < n; i += LG_BLOCK) {
        int64_t m = n - i < LG_BLOCK ? n - i : LG_BLOCK;
        const char *block = x + i * stride * (int64_t)w->x_size;
        if (stride != 1) {
            lg_copy_run(raw, 1, block, stride, m, w->x_size);
            block = raw;
        }
        if (w->to_f32 != NULL) {
            w->to_f32(m, converted, block);
            block = (const char *)converted;
        }
        add_row(w, r, m, block, w->to_f32 != NULL ? sizeof(float) : w->x_size, center, acc);
    }
}

/* Short dense rows, one after another in memory, are taken several at a time as one long row, whose
 * parts come together at the end. */
static void add_short_columns(const reduce_work *w, lg_reduction r, int64_t n, int64_t rows, const char *x,
                              const wide *center, wide *acc)
{
    int64_t together = TILE / n, wide_n = together * n;
    wide group[2 * TILE], centers[TILE];
    set_all(wide_n * width_of(r), group, identity(w, r));
    for (int64_t i = 0; i < together && center != NULL; ++i) memcpy(centers + i * n, center, (size_t)n * sizeof(wide));
    w->kernels[r](wide_n, rows / together, wide_n, x, center != NULL ? centers : NULL, w->number, group);
    merge(w, r, n, together, group, acc);
    x += rows / together * wide_n * (int64_t)w->x_size;
    w->kernels[r](n, rows % together, n, x, center, w->number, acc);
}

static void add_half_columns(const reduce_work *w, lg_reduction r, int64_t n, int64_t rows, int64_t stride, const char *x,
                             const wide *center, wide *acc)
{
    _Alignas(64) float converted[TILE];
    int64_t together = stride == n ? TILE / n : 1;
    for (int64_t i = 0; i < rows; i += together) {
        int64_t m = rows - i < together ? rows - i : together;
        w->to_f32(m * n, converted, x + i * stride * (int64_t)w->x_size);
        w->kernels[r](n, m, n, converted, center, w->number, acc);
    }
}

/* acc[j] takes in column j of rows that are dense along n columns. */
static void add_columns(const reduce_work *w, lg_reduction r, int64_t n, int64_t rows, int64_t stride, const char *x,
                        const wide *center, wide *acc)
{
    if (w->to_f32 != NULL) {
        add_half_columns(w, r, n, rows, stride, x, center, acc);
    } else if (stride == n && n <= TILE / 8 && rows >= 2 * TILE / n) {
        add_short_columns(w, r, n, rows, x, center, acc);
    } else {
        w->kernels[r](n, rows, stride, x, center, w->number, acc);
    }
}

/* ---- tiles */

/* A tile's part of the work: results from `at` on, and the part of the elements. */
typedef struct piece {
    int64_t at, n; /* place of the first result in y, and how many */
    const char *x;
    int64_t y_stride;
    int64_t gone[LUGE_MAX_RANK]; /* sizes */
} piece;

static piece piece_at(const reduce_work *w, int64_t unit, int64_t part)
{
    piece p;
    int64_t column = unit % w->tiles * w->tile, rest = unit / w->tiles;
    p.n = w->kept[0].size - column < w->tile ? w->kept[0].size - column : w->tile;
    p.y_stride = w->kept[0].y_stride;
    p.at = column * w->kept[0].y_stride;
    int64_t x = column * w->kept[0].x_stride;
    for (int i = 1; i < w->n_kept; ++i) {
        p.at += rest % w->kept[i].size * w->kept[i].y_stride;
        x += rest % w->kept[i].size * w->kept[i].x_stride;
        rest /= w->kept[i].size;
    }
    for (int i = 0; i < w->n_gone; ++i) p.gone[i] = w->gone[i].size;
    int64_t from = lg_slice_begin(w->gone[w->cut].size, w->parts, part);
    p.gone[w->cut] = lg_slice_begin(w->gone[w->cut].size, w->parts, part + 1) - from;
    p.x = w->x + (x + from * w->gone[w->cut].x_stride) * (int64_t)w->x_size;
    return p;
}

/* One pass over a piece. */
static void run_pass(const reduce_work *w, const piece *p, lg_reduction r, const wide *center, wide *acc)
{
    set_all(p->n * width_of(r), acc, identity(w, r));
    int64_t outer = 1;
    for (int i = 1; i < w->n_gone; ++i) outer *= p->gone[i];
    for (int64_t o = 0; o < outer; ++o) {
        const char *x = p->x;
        int64_t rest = o;
        for (int i = 1; i < w->n_gone; ++i) {
            x += rest % p->gone[i] * w->gone[i].x_stride * (int64_t)w->x_size;
            rest /= p->gone[i];
        }
        int64_t length = p->gone[0], stride = w->gone[0].x_stride;
        if (w->by_columns) {
            add_columns(w, r, p->n, length, stride, x, center, acc);
        } else if (stride == 1 && w->to_f32 == NULL && length > 0 && length < 2 * FEW_LANES) {
            add_short_rows(w, r, p->n, length, w->kept[0].x_stride, x, center, acc);
        } else {
            for (int64_t j = 0; j < p->n; ++j)
                add_strided_row(w, r, length, stride, x + j * w->kept[0].x_stride * (int64_t)w->x_size,
                                center == NULL ? NULL : center + j, acc + j * width_of(r));
        }
    }
}

/* Writes n results to a tensor of results. */
static void store(const reduce_work *w, luge_tensor *y, const piece *p, const wide *acc)
{
    size_t size = lg_element_size(y);
    char *to = (char *)lg_data(y) + p->at * (int64_t)size;
    lg_convert_fn convert = LG_ISA_PICK(lg_converts)->to_from[y->dtype][w->whole ? LUGE_I64 : LUGE_F64];
    if (p->y_stride == 1) {
        convert(p->n, to, acc);
        return;
    }
    _Alignas(64) char buffer[TILE * sizeof(double)];
    convert(p->n, buffer, acc);
    lg_copy_run(to, p->y_stride, buffer, 1, p->n, size);
}

static void finish(const reduce_work *w, const piece *p, wide *acc, wide *first)
{
    if (w->recipe.finish != NULL) w->recipe.finish(w, p->n, acc, first);
    if (w->y2 != NULL) store(w, w->y2, p, first);
    store(w, w->y, p, acc);
}

/* The center of each result's moments: the mean of its first FEW elements, if that is finite. Were they
 * far from all others, their own part in the variance would still keep what cancels within a factor of
 * count / FEW^2. */
static void find_centers(const reduce_work *w, const piece *p, wide *center)
{
    piece few = *p;
    few.gone[0] = p->gone[0] < FEW ? p->gone[0] : FEW;
    for (int i = 1; i < w->n_gone; ++i) few.gone[i] = p->gone[i] < 1 ? p->gone[i] : 1;
    run_pass(w, &few, LG_REDUCE_SUM, NULL, center);
    for (int64_t i = 0; i < p->n; ++i) {
        double mean = center[i].real / (double)few.gone[0];
        center[i].real = isfinite(mean) ? mean : 0;
    }
}

/* Tiles whole: both passes, while the elements are in cache. */
static void run_units(int64_t slice, void *data)
{
    const reduce_work *w = data;
    int64_t end = lg_slice_begin(w->units, w->slices, slice + 1);
    for (int64_t unit = lg_slice_begin(w->units, w->slices, slice); unit < end; ++unit) {
        wide first[TILE], acc[2 * TILE];
        piece p = piece_at(w, unit, 0);
        if (w->recipe.pass[0] == LG_REDUCE_MOMENTS) {
            find_centers(w, &p, first);
        } else if (w->recipe.passes == 2) {
            run_pass(w, &p, w->recipe.pass[0], NULL, first);
            w->recipe.between(w, p.n, first, NULL);
        }
        run_pass(w, &p, w->recipe.pass[w->recipe.passes - 1], first, acc);
        finish(w, &p, acc, first);
    }
}

/* ---- parts: partial results lie tile by tile */

static int64_t place_of(const reduce_work *w, int64_t unit)
{
    return unit / w->tiles * w->kept[0].size + unit % w->tiles * w->tile;
}

static void run_part(int64_t index, void *data)
{
    const reduce_work *w = data;
    int64_t unit = index % w->units, part = index / w->units, place = place_of(w, unit);
    piece p = piece_at(w, unit, part);
    lg_reduction r = w->recipe.pass[w->pass];
    run_pass(w, &p, r, w->first == NULL ? NULL : w->first + place,
             w->partial + (part * w->results + place) * width_of(r));
}

static void run_parts(reduce_work *w)
{
    lg_parallel(w->units * w->parts, run_part, w);
    lg_reduction r = w->recipe.pass[w->pass];
    merge(w, r, w->results, w->parts - 1, w->partial + w->results * width_of(r), w->partial);
}

static luge_status run_in_parts(reduce_work *w, lg_device *device)
{
    lg_scratch scratch;
    int64_t width = width_of(w->recipe.pass[0]);
    wide *memory = lg_scratch_open(&scratch, device, w->results * (w->parts * width + 1) * (int64_t)sizeof(wide));
    if (memory == NULL) return lg_error();
    w->partial = memory + w->results;
    for (int64_t unit = 0; unit < w->units && width == 2; ++unit) {
        piece p = piece_at(w, unit, 0);
        find_centers(w, &p, memory + place_of(w, unit));
        w->first = memory;
    }
    for (w->pass = 0; w->pass < w->recipe.passes; ++w->pass) {
        run_parts(w);
        if (w->pass + 1 == w->recipe.passes) break;
        w->recipe.between(w, w->results, w->partial, NULL);
        memcpy(memory, w->partial, (size_t)w->results * sizeof(wide));
        w->first = memory;
    }
    for (int64_t unit = 0; unit < w->units; ++unit) {
        piece p = piece_at(w, unit, 0);
        int64_t place = place_of(w, unit);
        finish(w, &p, w->partial + place * width, memory + place);
    }
    lg_scratch_close(&scratch);
    return LUGE_OK;
}

/* ---- setting up */

/* Adds an axis of more than one element to a list sorted by stride in x. */
static void insert(axis *list, int *n, axis a)
{
    if (a.size == 1) return;
    int at = (*n)++;
    for (; at > 0 && list[at - 1].x_stride > a.x_stride; --at) list[at] = list[at - 1];
    list[at] = a;
}

/* Axes that lie within each other without gaps become one. An empty list becomes one axis of size 1. */
static void merge_axes(axis *list, int *n)
{
    int out = 0;
    for (int i = 1; i < *n; ++i) {
        axis *inner = &list[out];
        if (list[i].x_stride == inner->x_stride * inner->size && list[i].y_stride == inner->y_stride * inner->size) {
            inner->size *= list[i].size;
        } else {
            list[++out] = list[i];
        }
    }
    if (*n == 0) list[0] = (axis){1, 1, 1};
    *n = out + 1;
}

/* Results are row-major: the strides of the axes that stay count up from the last one. */
static void sort_axes(reduce_work *w, const luge_tensor *x, uint32_t mask)
{
    int64_t y_stride = 1;
    w->n_kept = w->n_gone = 0;
    for (int i = x->shape.rank - 1; i >= 0; --i) {
        axis a = {x->shape.dim[i], x->stride[i], 0};
        if (mask >> i & 1u) {
            insert(w->gone, &w->n_gone, a);
        } else {
            a.y_stride = y_stride;
            y_stride *= a.size;
            insert(w->kept, &w->n_kept, a);
        }
    }
    merge_axes(w->kept, &w->n_kept);
    merge_axes(w->gone, &w->n_gone);
    w->by_columns = w->kept[0].size > 1 && w->kept[0].x_stride == 1;
    if (x->numel > 0) return;
    /* Nothing is read, and there may be no memory that an address could lie in. */
    for (int i = 0; i < w->n_kept; ++i) w->kept[i].x_stride = 0;
    for (int i = 0; i < w->n_gone; ++i) w->gone[i].x_stride = 0;
}

/* Tiles, and parts where there are too few tiles to share. */
static void cut_work(reduce_work *w)
{
    int64_t per_result = w->count > 0 ? w->count : 1;
    int64_t fitting = GRAIN / per_result > 1 ? GRAIN / per_result : 1;
    w->tile = w->by_columns || fitting > TILE ? TILE : fitting;
    if (w->tile > w->kept[0].size) w->tile = w->kept[0].size;
    w->tiles = (w->kept[0].size + w->tile - 1) / w->tile;
    w->units = w->tiles;
    for (int i = 1; i < w->n_kept; ++i) w->units *= w->kept[i].size;

    w->cut = 0;
    for (int i = 1; i < w->n_gone; ++i)
        if (w->gone[i].size > w->gone[w->cut].size) w->cut = i;
    int64_t wanted = lg_slices(w->results * per_result, GRAIN);
    w->slices = wanted < w->units ? wanted : w->units;
    w->parts = wanted / w->units;
    if (w->parts > w->gone[w->cut].size) w->parts = w->gone[w->cut].size;
    if (w->parts < 1) w->parts = 1;
}

static reduce_work prepare(const lg_call *call, recipe r)
{
    const lg_reduce_attrs *attrs = call->attrs;
    const luge_tensor *x = call->in[0];
    const lg_reduce_table *table = LG_ISA_PICK(lg_reduces);
    lg_lane lane = lg_lane_of(x->dtype);
    reduce_work w = {.recipe = r,
                     .lane = lane,
                     .kernels = table->of[lane],
                     .whole = !lg_is_float(x->dtype),
                     .number = attrs->number,
                     .x = lg_data(x),
                     .x_size = lg_element_size(x),
                     .y = call->out[0],
                     .y2 = call->n_out > 1 ? call->out[1] : NULL,
                     .results = call->out[0]->numel};
    w.merge = table->of[w.whole ? LG_LANE_I64 : LG_LANE_F64];
    if (lg_is_half(x->dtype)) w.to_f32 = LG_ISA_PICK(lg_converts)->to_from[LUGE_F32][x->dtype];
    w.count = x->numel / w.results;
    sort_axes(&w, x, attrs->mask);
    cut_work(&w);
    return w;
}

static int reduce(const lg_call *call, recipe r)
{
    reduce_work w = prepare(call, r);
    if (w.parts > 1) return (int)run_in_parts(&w, call->device);
    lg_parallel(w.slices, run_units, &w);
    return LUGE_OK;
}

/* ---- the reductions */

static void to_mean(const reduce_work *w, int64_t n, wide *acc, wide *first)
{
    (void)first;
    for (int64_t i = 0; i < n; ++i) acc[i].real /= (double)w->count;
}

/* From moments: the centers become means. */
static void to_var(const reduce_work *w, int64_t n, wide *acc, wide *first)
{
    double left = (double)w->count - w->number;
    for (int64_t i = 0; i < n; ++i) {
        double sum = acc[2 * i].real, mean = sum / (double)w->count, squares = acc[2 * i + 1].real - sum * mean;
        first[i].real += mean;
        acc[i].real = left > 0 ? (squares < 0 ? 0 : squares / left) : NAN;
    }
}

static void to_root(const reduce_work *w, int64_t n, wide *acc, wide *first)
{
    (void)w, (void)first;
    for (int64_t i = 0; i < n; ++i) acc[i].real = sqrt(acc[i].real);
}

/* The scale of a power sum: the largest magnitude, or 1 where that cannot be divided by. The rest of
 * the information is in the power sum then: it is 0, infinite or NaN. */
static void to_scale(const reduce_work *w, int64_t n, wide *acc, wide *first)
{
    (void)w, (void)first;
    for (int64_t i = 0; i < n; ++i)
        if (!(acc[i].real > 0 && acc[i].real < INFINITY)) acc[i].real = 1;
}

static void to_scaled_norm(const reduce_work *w, int64_t n, wide *acc, wide *first)
{
    for (int64_t i = 0; i < n; ++i) acc[i].real = first[i].real * pow(acc[i].real, 1 / w->number);
}

int lg_cpu_sum(const lg_call *call) { return reduce(call, (recipe){{LG_REDUCE_SUM}, 1, NULL, NULL}); }
int lg_cpu_mean(const lg_call *call) { return reduce(call, (recipe){{LG_REDUCE_SUM}, 1, NULL, to_mean}); }
int lg_cpu_max(const lg_call *call) { return reduce(call, (recipe){{LG_REDUCE_MAX}, 1, NULL, NULL}); }
int lg_cpu_min(const lg_call *call) { return reduce(call, (recipe){{LG_REDUCE_MIN}, 1, NULL, NULL}); }
int lg_cpu_var(const lg_call *call) { return reduce(call, (recipe){{LG_REDUCE_MOMENTS}, 1, NULL, to_var}); }

/* Squares of f32 and halves neither overflow nor vanish in f64; other powers are taken of scaled numbers. */
int lg_cpu_norm(const lg_call *call)
{
    double p = ((const lg_reduce_attrs *)call->attrs)->number;
    if (isinf(p)) return reduce(call, (recipe){{LG_REDUCE_ABS_MAX}, 1, NULL, NULL});
    if (p == 1) return reduce(call, (recipe){{LG_REDUCE_ABS_SUM}, 1, NULL, NULL});
    if (p == 2 && call->in[0]->dtype != LUGE_F64)
        return reduce(call, (recipe){{LG_REDUCE_SQUARE_SUM}, 1, NULL, to_root});
    return reduce(call, (recipe){{LG_REDUCE_ABS_MAX, LG_REDUCE_POWER_SUM}, 2, to_scale, to_scaled_norm});
}

/* ---- argmax, along one axis */

/* The first NaN counts as the largest. */
static bool is_better(const reduce_work *w, wide a, wide b)
{
    return w->whole ? a.whole > b.whole : a.real > b.real || (isnan(a.real) && !isnan(b.real));
}

/* m dense elements of the lane's type, the first of which has the index `from`. Lanes find the first of
 * their own largest elements; equal ones of several lanes are decided by the index. */
static void argmax_block(const reduce_work *w, lg_argmax_fn fn, int64_t m, const char *x, size_t size, int64_t from,
                         wide *best, int64_t *index)
{
    int64_t rows = m / ARGMAX_LANES;
    if (rows >= 2) {
        wide lane[ARGMAX_LANES], top = *best;
        int64_t row[ARGMAX_LANES] = {0}, first = INT64_MAX;
        set_all(ARGMAX_LANES, lane, identity(w, LG_REDUCE_MAX));
        fn(ARGMAX_LANES, rows, ARGMAX_LANES, x, 0, lane, row);
        for (int j = 0; j < ARGMAX_LANES; ++j) {
            int64_t here = from + row[j] * ARGMAX_LANES + j;
            bool better = is_better(w, lane[j], top), same = first < INT64_MAX && !is_better(w, top, lane[j]);
            if (!better && !(same && here < first)) continue;
            top = lane[j];
            first = here;
        }
        if (first < INT64_MAX) {
            *best = top;
            *index = first;
        }
        x += rows * ARGMAX_LANES * (int64_t)size;
        from += rows * ARGMAX_LANES;
        m -= rows * ARGMAX_LANES;
    }
    fn(1, m, 1, x, from, best, index);
}

static void argmax_row(const reduce_work *w, lg_argmax_fn fn, const char *x, wide *best, int64_t *index)
{
    int64_t n = w->gone[0].size, stride = w->gone[0].x_stride;
    if (stride == 1 && w->to_f32 == NULL) {
        argmax_block(w, fn, n, x, w->x_size, 0, best, index);
        return;
    }
    _Alignas(64) char raw[LG_BLOCK * sizeof(double)];
    _Alignas(64) float converted[LG_BLOCK];
    for (int64_t i = 0; i < n; i += LG_BLOCK) {
        int64_t m = n - i < LG_BLOCK ? n - i : LG_BLOCK;
        lg_copy_run(raw, 1, x + i * stride * (int64_t)w->x_size, stride, m, w->x_size);
        if (w->to_f32 != NULL) w->to_f32(m, converted, raw);
        argmax_block(w, fn, m, w->to_f32 != NULL ? (const char *)converted : raw,
                     w->to_f32 != NULL ? sizeof(float) : w->x_size, i, best, index);
    }
}

static void argmax_columns(const reduce_work *w, lg_argmax_fn fn, int64_t n, const char *x, wide *best, int64_t *index)
{
    int64_t rows = w->gone[0].size, stride = w->gone[0].x_stride;
    if (w->to_f32 == NULL) {
        fn(n, rows, stride, x, 0, best, index);
        return;
    }
    _Alignas(64) float converted[TILE];
    for (int64_t r = 0; r < rows; ++r) {
        w->to_f32(n, converted, x + r * stride * (int64_t)w->x_size);
        fn(n, 1, n, converted, r, best, index);
    }
}

static void argmax_units(int64_t slice, void *data)
{
    const reduce_work *w = data;
    lg_argmax_fn fn = LG_ISA_PICK(lg_reduces)->argmax[w->lane];
    int64_t end = lg_slice_begin(w->units, w->slices, slice + 1);
    for (int64_t unit = lg_slice_begin(w->units, w->slices, slice); unit < end; ++unit) {
        wide best[TILE];
        int64_t index[TILE] = {0};
        piece p = piece_at(w, unit, 0);
        set_all(p.n, best, identity(w, LG_REDUCE_MAX));
        if (w->by_columns) {
            argmax_columns(w, fn, p.n, p.x, best, index);
        } else {
            for (int64_t j = 0; j < p.n; ++j)
                argmax_row(w, fn, p.x + j * w->kept[0].x_stride * (int64_t)w->x_size, best + j, index + j);
        }
        lg_copy_run((int64_t *)lg_data(w->y) + p.at, p.y_stride, index, 1, p.n, sizeof(int64_t));
    }
}

int lg_cpu_argmax(const lg_call *call)
{
    reduce_work w = prepare(call, (recipe){.passes = 1});
    if (w.n_gone > 1) return LG_DECLINED;
    w.parts = 1;
    lg_parallel(w.slices, argmax_units, &w);
    return LUGE_OK;
}
