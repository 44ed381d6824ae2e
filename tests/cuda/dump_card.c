/* What cuDNN says of the card that is in the machine, as JSON on standard output: dump_card [NUMBER]. Kept in
 * tests/cuda/fixtures/, it lets test_real_cudnn.c make plans for that card where there is none.
 * tools/gpu_check.sh builds and runs it. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include "cuda/dnn.h"

static int complain(const char *what, cudnnStatus_t status)
{
    fprintf(stderr, "%s: %s\n", what, cudnnGetErrorString(status));
    return 1;
}

int main(int argc, char **argv)
{
    static char json[65536];
    int64_t length = 0;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t card, copy;
    const cudaError_t code = cudaSetDevice(argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0);
    if (code != cudaSuccess) return fprintf(stderr, "%s\n", cudaGetErrorString(code)), 1;
    cudnnStatus_t status = cudnnCreate(&handle);
    if (status != CUDNN_STATUS_SUCCESS) return complain("no cuDNN", status);
    status = lg_dnn_properties(handle, NULL, 0, &card);
    if (status != CUDNN_STATUS_SUCCESS) return complain("the card's properties", status);
    status = cudnnBackendGetAttribute(card, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof json - 1,
                                      &length, json);
    if (status != CUDNN_STATUS_SUCCESS) return complain("the properties as JSON", status);
    /* Only what can be read again is worth keeping. */
    status = lg_dnn_properties(NULL, json, (size_t)length, &copy);
    if (status != CUDNN_STATUS_SUCCESS) return complain("the JSON, read again", status);
    lg_dnn_properties_free(copy);
    lg_dnn_properties_free(card);
    cudnnDestroy(handle);
    fwrite(json, 1, (size_t)length, stdout);
    putchar('\n');
    return 0;
}
