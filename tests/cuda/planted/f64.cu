/* Compiles, but computes in f64: the constant lacks its suffix. */
__global__ void leak(float *p)
{
    *p = *p * 1.1;
}
