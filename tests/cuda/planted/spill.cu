/* Does not compile: needs more registers than a block of this size has. */
extern "C" __global__ void __launch_bounds__(1024, 2) spill(const float *in, float *out)
{
    float v[96];
#pragma unroll
    for (int i = 0; i < 96; ++i) v[i] = in[i * 1024 + threadIdx.x];
#pragma unroll
    for (int r = 0; r < 3; ++r)
#pragma unroll
        for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i * 37 + 11) % 96] + v[(i * 53 + 7) % 96];
#pragma unroll
    for (int i = 0; i < 96; ++i) out[i * 1024 + threadIdx.x] = v[i];
}
