/* Random numbers of samples. What a dataset draws depends on seed, epoch and index alone, whoever
 * runs it and whatever was drawn for other samples. */
#include <math.h>

#include "core/thread.h"
#include "data/dataset.h"

/* The upper two bits of a stream say what it is for; the epoch is the upper half of the block. */
#define STREAM_SAMPLE (1ull << 62)
#define STREAM_ORDER (2ull << 62)

static luge_rng place(uint64_t seed, uint64_t stream, int epoch)
{
    return (luge_rng){.seed = seed, .stream = stream, .block = (uint64_t)epoch << 32, .used = 4};
}

luge_rng lg_rng_of_sample(uint64_t seed, int epoch, int64_t index)
{
    return place(seed, STREAM_SAMPLE | (uint64_t)index, epoch);
}

luge_rng lg_rng_of_order(uint64_t seed, int epoch) { return place(seed, STREAM_ORDER, epoch); }

static uint32_t draw32(luge_rng *rng)
{
    if (rng->used == 4) {
        rng->numbers = lg_philox_block(rng->seed, rng->stream, rng->block++);
        rng->used = 0;
    }
    return rng->numbers.v[rng->used++];
}

static uint64_t draw64(luge_rng *rng)
{
    const uint64_t high = draw32(rng);
    return high << 32 | draw32(rng);
}

static double unit(luge_rng *rng)
{
    const uint32_t a = draw32(rng);
    return lg_uniform_f64(a, draw32(rng));
}

static bool usable(const luge_rng *rng, const char *function)
{
    if (rng != NULL) return true;
    if (lg_ok()) lg_fail(LUGE_ERR_ARGUMENT, "%s: rng is NULL", function);
    return false;
}

double luge_rng_uniform(luge_rng *rng, double low, double high)
{
    if (!usable(rng, "luge_rng_uniform")) return NAN;
    if (!(low <= high && isfinite(high - low))) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_rng_uniform: no numbers between %g and %g", low, high);
        return NAN;
    }
    const double value = low + unit(rng) * (high - low);
    return value < high || low == high ? value : nextafter(high, low); /* rounding may reach `high` */
}

double luge_rng_normal(luge_rng *rng)
{
    if (!usable(rng, "luge_rng_normal")) return NAN;
    /* Box and Muller 1958; 1 - u is never 0. */
    const double radius = sqrt(-2 * log(1 - unit(rng)));
    return radius * cos(2 * 3.14159265358979323846 * unit(rng));
}

int64_t luge_rng_below(luge_rng *rng, int64_t bound)
{
    if (!usable(rng, "luge_rng_below")) return 0;
    if (bound <= 0) {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_rng_below: the bound must be above 0, not %lld", (long long)bound);
        return 0;
    }
    const uint64_t n = (uint64_t)bound;
    uint64_t bits, rest;
    do { /* values from the last, incomplete run of n are drawn again, so that each is equally likely */
        bits = draw64(rng);
        rest = bits % n;
    } while (bits - rest > UINT64_MAX - (n - 1));
    return (int64_t)rest;
}
