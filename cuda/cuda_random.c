/* Ranges and random numbers, the same as on the CPU: reads the call for the kernels of cuda_random.cu. */
#include "cuda/cuda.h"
#include "cuda/cuda_random.h"
#include "ops/attrs.h"

static lg_random_work work_of(const luge_tensor *t, const lg_rng_range *rng)
{
    const int64_t *const stride[1] = {t->stride};
    lg_random_work w = {.dtype = (int)t->dtype, .g = lg_geometry_row_major(&t->shape, 1, stride), .to = lg_data(t)};
    if (rng == NULL) return w;
    w.seed = rng->seed;
    w.stream = rng->stream;
    w.first = rng->first;
    return w;
}

typedef cudaError_t random_launcher(const lg_random_work *w, cudaStream_t stream);

static int run(const lg_call *call, const lg_random_work *w, random_launcher *launch)
{
    lg_cuda_device *d = lg_cuda_enter(call->device);
    return d == NULL ? (int)lg_error() : (int)lg_cuda_check(d, launch(w, d->stream), "the kernel");
}

int lg_cuda_arange(const lg_call *call)
{
    const lg_range_attrs *a = call->attrs;
    lg_random_work w = work_of(call->out[0], NULL);
    w.a = a->start;
    w.b = a->step;
    return run(call, &w, lg_cuda_launch_arange);
}

static int floats(const lg_call *call, random_launcher *launch)
{
    const lg_random_attrs *a = call->attrs;
    lg_random_work w = work_of(call->out[0], &a->rng);
    w.a = a->a;
    w.b = a->b;
    return run(call, &w, launch);
}

int lg_cuda_uniform(const lg_call *call) { return floats(call, lg_cuda_launch_uniform); }
int lg_cuda_normal(const lg_call *call) { return floats(call, lg_cuda_launch_normal); }

int lg_cuda_randint(const lg_call *call)
{
    const lg_randint_attrs *a = call->attrs;
    lg_random_work w = work_of(call->out[0], &a->rng);
    w.low = a->low;
    w.range = (unsigned long long)a->high - (unsigned long long)a->low;
    return run(call, &w, lg_cuda_launch_randint);
}

static void shuffle(int64_t *at, int64_t n, const lg_rng_range *rng)
{
    for (int64_t i = 0; i < n; ++i) at[i] = i;
    for (int64_t i = n - 1; i > 0; --i) {
        const lg_philox numbers = lg_philox_block(rng->seed, rng->stream, rng->first + (uint64_t)i / 2);
        const uint64_t bits = (uint64_t)numbers.v[i % 2 * 2] << 32 | numbers.v[i % 2 * 2 + 1];
        const int64_t j = (int64_t)((unsigned __int128)bits * ((uint64_t)i + 1) >> 64), moved = at[i];
        at[i] = at[j];
        at[j] = moved;
    }
}

/* Fisher and Yates, as on the CPU. One exchange depends on the last, which is what a host is good at: it
 * shuffles in pinned memory, from where the result is copied while it goes on. */
int lg_cuda_randperm(const lg_call *call)
{
    const lg_randint_attrs *a = call->attrs;
    luge_tensor *t = call->out[0];
    if (!lg_is_contiguous(t)) return LG_DECLINED;
    lg_cuda_device *d = lg_cuda_enter(call->device);
    if (d == NULL) return (int)lg_error();
    const size_t bytes = (size_t)t->numel * sizeof(int64_t);
    if (bytes == 0) return LUGE_OK;
    int64_t *at = lg_memory_alloc(call->device->pinned, bytes);
    if (at == NULL) return (int)lg_error();
    shuffle(at, t->numel, &a->rng);
    lg_cuda_count(d, LG_CUDA_TO_DEVICE, (int64_t)bytes);
    const cudaError_t code = cudaMemcpyAsync(lg_data(t), at, bytes, cudaMemcpyHostToDevice, d->stream);
    lg_memory_free(call->device->pinned, at, bytes); /* held until the copy is done */
    return (int)lg_cuda_check(d, code, "copying to the device");
}
