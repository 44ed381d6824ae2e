/* The real cuDNN, without a GPU: it makes plans for a card that a file describes. Every convolution of LeNet
 * and of ResNet-18 (for CIFAR and for ImageNet) must get one, in each dtype, from the code that the CUDA
 * backend runs on a card. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cuda/dnn.h"

typedef struct shape {
    const char *net;
    int64_t n, c, size, k, kernel, stride, padding;
} shape;

/* Repeated layers once. */
static const shape shapes[] = {
    {"lenet", 64, 1, 28, 32, 3, 1, 0},     {"lenet", 64, 32, 26, 64, 3, 1, 0},
    {"cifar", 128, 3, 32, 64, 3, 1, 1},    {"cifar", 128, 64, 32, 64, 3, 1, 1},
    {"cifar", 128, 64, 32, 128, 3, 2, 1},  {"cifar", 128, 64, 32, 128, 1, 2, 0},
    {"cifar", 128, 128, 16, 128, 3, 1, 1}, {"cifar", 128, 128, 16, 256, 3, 2, 1},
    {"cifar", 128, 128, 16, 256, 1, 2, 0}, {"cifar", 128, 256, 8, 256, 3, 1, 1},
    {"cifar", 128, 256, 8, 512, 3, 2, 1},  {"cifar", 128, 256, 8, 512, 1, 2, 0},
    {"cifar", 128, 512, 4, 512, 3, 1, 1},  {"imagenet", 64, 3, 224, 64, 7, 2, 3},
    {"imagenet", 64, 64, 56, 64, 3, 1, 1}, {"imagenet", 64, 64, 56, 128, 3, 2, 1},
    {"imagenet", 64, 256, 14, 512, 3, 2, 1},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static cudnnBackendDescriptor_t card;

static int open_card(void **state)
{
    static char json[8192];
    (void)state;
    FILE *f = fopen(LUGE_TEST_DIR "/cuda/fixtures/h200.json", "rb");
    if (f == NULL) return -1;
    const size_t length = fread(json, 1, sizeof json, f);
    fclose(f);
    const cudnnStatus_t status = lg_dnn_properties(NULL, json, length, &card);
    if (status != CUDNN_STATUS_SUCCESS) fprintf(stderr, "cuDNN refuses the card: %s\n", cudnnGetErrorString(status));
    return status == CUDNN_STATUS_SUCCESS ? 0 : -1;
}

static int close_card(void **state)
{
    (void)state;
    lg_dnn_properties_free(card);
    return 0;
}

static lg_dnn_conv conv_of(const shape *s, int kind, cudnnDataType_t dtype, int tf32)
{
    const int64_t out = (s->size + 2 * s->padding - s->kernel) / s->stride + 1;
    lg_dnn_conv c;
    memset(&c, 0, sizeof c);
    c = (lg_dnn_conv){.x = {s->n, s->c, s->size, s->size}, .w = {s->k, s->c, s->kernel, s->kernel},
                      .y = {s->n, s->k, out, out}, .stride = {s->stride, s->stride},
                      .before = {s->padding, s->padding}, .after = {s->padding, s->padding}, .dilation = {1, 1},
                      .kind = kind, .dtype = (int32_t)dtype, .tf32 = tf32};
    return c;
}

static void expect_plans(cudnnDataType_t dtype, int tf32)
{
    static const char *const kind_name[] = {"forward", "input's gradient", "weight's gradient"};
    int missing = 0;
    for (int i = 0; i < SHAPES; ++i) {
        for (int kind = LG_DNN_FORWARD; kind <= LG_DNN_WEIGHT; ++kind) {
            const lg_dnn_conv c = conv_of(&shapes[i], kind, dtype, tf32);
            lg_dnn_plan plan;
            assert_int_equal(lg_dnn_plan_make(card, &c, &plan), CUDNN_STATUS_SUCCESS);
            if (plan.plan == NULL) {
                print_error("%s: no plan for the %s of %lld x %lld, %lld x %lld kernel, stride %lld\n", shapes[i].net,
                            kind_name[kind], (long long)c.x[1], (long long)c.w[0], (long long)c.w[2], (long long)c.w[3],
                            (long long)c.stride[0]);
                ++missing;
            } else {
                assert_true(plan.workspace >= 0);
            }
            lg_dnn_plan_free(&plan);
        }
    }
    assert_int_equal(missing, 0);
}

static void f32_has_plans(void **state)
{
    (void)state;
    expect_plans(CUDNN_DATA_FLOAT, 0);
}

static void tf32_has_plans(void **state)
{
    (void)state;
    expect_plans(CUDNN_DATA_FLOAT, 1);
}

static void f16_has_plans(void **state)
{
    (void)state;
    expect_plans(CUDNN_DATA_HALF, 0);
}

static void bf16_has_plans(void **state)
{
    (void)state;
    expect_plans(CUDNN_DATA_BFLOAT16, 0);
}

/* A geometry that is none must be refused: the library does look at what it is given. */
static void a_wrong_size_is_refused(void **state)
{
    (void)state;
    lg_dnn_conv c = conv_of(&shapes[1], LG_DNN_FORWARD, CUDNN_DATA_HALF, 0);
    c.y[2] += 5;
    lg_dnn_plan plan;
    const cudnnStatus_t status = lg_dnn_plan_make(card, &c, &plan);
    assert_true(status != CUDNN_STATUS_SUCCESS || plan.plan == NULL);
    lg_dnn_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_has_plans),  cmocka_unit_test(tf32_has_plans),          cmocka_unit_test(f16_has_plans),
        cmocka_unit_test(bf16_has_plans), cmocka_unit_test(a_wrong_size_is_refused),
    };
    return cmocka_run_group_tests(tests, open_card, close_card);
}
