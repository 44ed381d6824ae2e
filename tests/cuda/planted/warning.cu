/* Does not compile: the comparison is always false. */
__global__ void warning(unsigned v, int *p)
{
    if (v < 0) *p = 1;
}
