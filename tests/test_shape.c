/* Shapes, strides, broadcasting, axes (core/shape.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/rng.h"
#include "core/shape.h"
#include "tests/support/device.h"
#include <luge/luge.h>

#define STRIDES(...) ((const int64_t[LUGE_MAX_RANK]){__VA_ARGS__})

static void check_strides(const luge_shape *s, const int64_t *got, const int64_t *wanted)
{
    for (int i = 0; i < s->rank; ++i) assert_int_equal(got[i], wanted[i]);
}

/* A small number of a random stream. */
static int64_t draw(uint64_t *at, int64_t below)
{
    return (int64_t)(lg_philox_block(11, 0, (*at)++).v[0] % (uint32_t)below);
}

static int64_t numel(luge_shape s)
{
    return lg_shape_numel(&s);
}

static void test_numel(void **state)
{
    (void)state;
    assert_int_equal(numel(LUGE_SCALAR), 1);
    assert_int_equal(numel(LUGE_SHAPE(2, 3, 4)), 24);
    assert_int_equal(numel(LUGE_SHAPE(2, 0, 4)), 0);
    assert_int_equal(numel(LUGE_SHAPE(2, -1)), -1);
    assert_int_equal(numel(LUGE_SHAPE(0, -1)), -1);
    assert_int_equal(numel((luge_shape){.rank = 9}), -1);
    assert_int_equal(numel((luge_shape){.rank = -1}), -1);
    assert_int_equal(numel(LUGE_SHAPE(1, 1, 1, 1, 1, 1, 1, 1)), 1);
}

static void test_NUM_11_sizes_over_2_31(void **state)
{
    (void)state;
    assert_int_equal(numel(LUGE_SHAPE(65536, 65536)), INT64_C(4294967296));
    assert_int_equal(numel(LUGE_SHAPE(INT64_C(3000000000), 2)), INT64_C(6000000000));
    assert_int_equal(numel(LUGE_SHAPE(INT64_MAX / 8)), INT64_MAX / 8);
    assert_int_equal(numel(LUGE_SHAPE(INT64_MAX / 8 + 1)), -1);
    assert_int_equal(numel(LUGE_SHAPE(INT64_C(1) << 32, INT64_C(1) << 32)), -1); /* 2^64: 0 if it wraps */
    assert_int_equal(numel(LUGE_SHAPE(INT64_MAX, INT64_MAX)), -1);               /* 1 if it wraps */
    assert_int_equal(numel(LUGE_SHAPE(0, INT64_MAX, INT64_MAX)), -1);            /* its strides do not fit */
    int64_t stride[LUGE_MAX_RANK];
    const luge_shape s = LUGE_SHAPE(4, 65536, 65536);
    lg_strides_contiguous(&s, stride);
    assert_int_equal(stride[0], INT64_C(4294967296));
}

static void test_equal_and_text(void **state)
{
    (void)state;
    const luge_shape a = LUGE_SHAPE(2, 3), b = LUGE_SHAPE(2, 3, 1), c = LUGE_SHAPE(2, 4), scalar = LUGE_SCALAR;
    luge_shape junk = a; /* what lies past the rank does not count */
    junk.dim[5] = 7;
    assert_true(lg_shape_equal(&a, &junk));
    assert_false(lg_shape_equal(&a, &b));
    assert_false(lg_shape_equal(&a, &c));

    char text[LG_SHAPE_TEXT];
    assert_string_equal(lg_shape_text(text, &a), "[2, 3]");
    assert_string_equal(lg_shape_text(text, &scalar), "[]");
    luge_shape widest = {.rank = LUGE_MAX_RANK};
    for (int i = 0; i < LUGE_MAX_RANK; ++i) widest.dim[i] = INT64_MIN;
    assert_int_equal(strlen(lg_shape_text(text, &widest)), 2 + 8 * 20 + 7 * 2);
    widest.rank = 1000;
    assert_non_null(strstr(lg_shape_text(text, &widest), ", ...]"));
    widest.rank = -5;
    assert_string_equal(lg_shape_text(text, &widest), "[]");
}

static void test_layouts(void **state)
{
    (void)state;
    int64_t stride[LUGE_MAX_RANK];
    const luge_shape s = LUGE_SHAPE(2, 3, 4, 5);
    lg_strides_contiguous(&s, stride);
    check_strides(&s, stride, STRIDES(60, 20, 5, 1));
    assert_true(lg_strides_are_contiguous(&s, stride));
    assert_false(lg_strides_are_channels_last(&s, stride));
    assert_true(lg_strides_are_dense(&s, stride));

    lg_strides_channels_last(&s, stride);
    check_strides(&s, stride, STRIDES(60, 1, 15, 3));
    assert_false(lg_strides_are_contiguous(&s, stride));
    assert_true(lg_strides_are_channels_last(&s, stride));
    assert_true(lg_strides_are_dense(&s, stride));

    /* Sizes of 1: both layouts at once, whatever the strides of those axes say. */
    const luge_shape one = LUGE_SHAPE(2, 1, 4, 5);
    assert_true(lg_strides_are_contiguous(&one, STRIDES(20, 999, 5, 1)));
    assert_true(lg_strides_are_channels_last(&one, STRIDES(20, 7, 5, 1)));

    /* Other ranks have no channels-last: row-major is what they get. */
    const luge_shape three = LUGE_SHAPE(2, 3, 4);
    lg_strides_channels_last(&three, stride);
    check_strides(&three, stride, STRIDES(12, 4, 1));
    assert_false(lg_strides_are_channels_last(&three, stride));

    const luge_shape empty = LUGE_SHAPE(2, 0, 3, 4);
    lg_strides_contiguous(&empty, stride);
    check_strides(&empty, stride, STRIDES(12, 12, 4, 1));
    assert_true(lg_strides_are_contiguous(&empty, STRIDES(9, 9, 9, 9)));
    assert_true(lg_strides_are_channels_last(&empty, STRIDES(9, 9, 9, 9)));
    assert_true(lg_strides_are_dense(&empty, STRIDES(9, 9, 9, 9)));
}

static void test_dense_and_overlap(void **state)
{
    (void)state;
    const luge_shape s = LUGE_SHAPE(2, 3);
    assert_true(lg_strides_are_dense(&s, STRIDES(1, 2)));
    assert_false(lg_strides_are_dense(&s, STRIDES(4, 1)));
    assert_false(lg_strides_are_dense(&s, STRIDES(0, 1)));
    assert_false(lg_strides_are_dense(&s, STRIDES(2, 1)));
    assert_false(lg_strides_overlap(&s, STRIDES(3, 1)));
    assert_false(lg_strides_overlap(&s, STRIDES(4, 1)));
    assert_false(lg_strides_overlap(&s, STRIDES(1, 2)));
    assert_true(lg_strides_overlap(&s, STRIDES(0, 1)));
    assert_true(lg_strides_overlap(&s, STRIDES(3, 0)));
    assert_true(lg_strides_overlap(&s, STRIDES(2, 1))); /* windows */

    const luge_shape thin = LUGE_SHAPE(1, 3), empty = LUGE_SHAPE(0, 3), scalar = LUGE_SCALAR;
    assert_false(lg_strides_overlap(&thin, STRIDES(0, 1)));
    assert_false(lg_strides_overlap(&empty, STRIDES(0, 0)));
    assert_false(lg_strides_overlap(&scalar, STRIDES(0)));
    assert_true(lg_strides_are_dense(&scalar, STRIDES(0)));
}

static bool broadcasts(luge_shape a, luge_shape b, luge_shape wanted)
{
    luge_shape ab = a, ba = b;
    return lg_broadcast(&ab, &b) && lg_broadcast(&ba, &a) && lg_shape_equal(&ab, &wanted) &&
           lg_shape_equal(&ba, &wanted);
}

static void test_broadcast(void **state)
{
    (void)state;
    assert_true(broadcasts(LUGE_SHAPE(2, 3), LUGE_SHAPE(3), LUGE_SHAPE(2, 3)));
    assert_true(broadcasts(LUGE_SHAPE(2, 1, 4), LUGE_SHAPE(3, 1), LUGE_SHAPE(2, 3, 4)));
    assert_true(broadcasts(LUGE_SCALAR, LUGE_SHAPE(5), LUGE_SHAPE(5)));
    assert_true(broadcasts(LUGE_SCALAR, LUGE_SCALAR, LUGE_SCALAR));

    luge_shape a = LUGE_SHAPE(5, 2, 3);
    const luge_shape before = a, b = LUGE_SHAPE(5, 4, 3);
    assert_false(lg_broadcast(&a, &b));
    assert_true(lg_shape_equal(&a, &before)); /* left as it was */
}

static void test_AGR_10_broadcast_with_an_empty_axis(void **state)
{
    (void)state;
    assert_true(broadcasts(LUGE_SHAPE(0, 3), LUGE_SHAPE(1, 3), LUGE_SHAPE(0, 3)));
    assert_true(broadcasts(LUGE_SHAPE(3, 0), LUGE_SHAPE(1), LUGE_SHAPE(3, 0)));
    assert_true(broadcasts(LUGE_SHAPE(3, 0), LUGE_SHAPE(3, 1), LUGE_SHAPE(3, 0)));
    luge_shape a = LUGE_SHAPE(0);
    const luge_shape b = LUGE_SHAPE(2);
    assert_false(lg_broadcast(&a, &b));

    int64_t stride[LUGE_MAX_RANK];
    const luge_shape from = LUGE_SHAPE(3, 1), to = LUGE_SHAPE(3, 0);
    lg_broadcast_strides(&from, STRIDES(1, 1), &to, stride);
    check_strides(&to, stride, STRIDES(1, 0));
}

static void test_broadcast_strides(void **state)
{
    (void)state;
    int64_t stride[LUGE_MAX_RANK];
    const luge_shape s = LUGE_SHAPE(3, 1), to = LUGE_SHAPE(2, 3, 4), same = LUGE_SHAPE(3, 1);
    lg_broadcast_strides(&s, STRIDES(7, 5), &to, stride);
    check_strides(&to, stride, STRIDES(0, 7, 0));
    lg_broadcast_strides(&s, STRIDES(7, 5), &same, stride);
    check_strides(&same, stride, STRIDES(7, 5));
}

static bool reshapes(luge_shape s, const int64_t *stride, luge_shape to, const int64_t *wanted)
{
    int64_t out[LUGE_MAX_RANK];
    if (!lg_reshape_strides(&s, stride, &to, out)) return false;
    for (int i = 0; i < to.rank; ++i)
        if (out[i] != wanted[i]) return false;
    return true;
}

static void test_reshape(void **state)
{
    (void)state;
    assert_true(reshapes(LUGE_SHAPE(2, 6), STRIDES(6, 1), LUGE_SHAPE(3, 4), STRIDES(4, 1)));
    assert_true(reshapes(LUGE_SHAPE(2, 6), STRIDES(6, 1), LUGE_SHAPE(12), STRIDES(1)));
    /* Columns of a wider matrix: splitting works, merging does not. */
    assert_true(reshapes(LUGE_SHAPE(4, 6), STRIDES(10, 1), LUGE_SHAPE(2, 2, 3, 2), STRIDES(20, 10, 2, 1)));
    assert_false(reshapes(LUGE_SHAPE(4, 6), STRIDES(10, 1), LUGE_SHAPE(24), STRIDES(0)));
    assert_true(reshapes(LUGE_SHAPE(4, 6), STRIDES(10, 1), LUGE_SHAPE(4, 2, 3), STRIDES(10, 3, 1)));
    assert_false(reshapes(LUGE_SHAPE(4, 6), STRIDES(10, 1), LUGE_SHAPE(3, 8), STRIDES(10, 1)));
    /* Transposed. */
    assert_false(reshapes(LUGE_SHAPE(2, 3), STRIDES(1, 2), LUGE_SHAPE(6), STRIDES(0)));
    assert_true(reshapes(LUGE_SHAPE(4, 3), STRIDES(1, 4), LUGE_SHAPE(2, 2, 3), STRIDES(2, 1, 4)));
    /* Sizes of 1 come and go. */
    assert_true(reshapes(LUGE_SHAPE(2, 1, 3), STRIDES(1, 99, 2), LUGE_SHAPE(2, 3), STRIDES(1, 2)));
    assert_true(reshapes(LUGE_SHAPE(2, 3), STRIDES(3, 1), LUGE_SHAPE(1, 2, 1, 3, 1), STRIDES(6, 3, 3, 1, 1)));
    assert_true(reshapes(LUGE_SHAPE(1), STRIDES(5), LUGE_SCALAR, STRIDES(0)));
    assert_true(reshapes(LUGE_SCALAR, STRIDES(0), LUGE_SHAPE(1, 1), STRIDES(1, 1)));
    /* Expanded axes are runs of stride 0. */
    assert_true(reshapes(LUGE_SHAPE(2, 3), STRIDES(0, 0), LUGE_SHAPE(3, 2), STRIDES(0, 0)));
    assert_false(reshapes(LUGE_SHAPE(2, 3), STRIDES(0, 1), LUGE_SHAPE(6), STRIDES(0)));
    /* Nothing to view: row-major. */
    assert_true(reshapes(LUGE_SHAPE(0, 3), STRIDES(9, 9), LUGE_SHAPE(2, 0, 5), STRIDES(5, 5, 1)));
}

/* Offset of row-major element number i. */
static int64_t offset_of(const luge_shape *s, const int64_t *stride, int64_t i)
{
    int64_t offset = 0;
    for (int axis = s->rank - 1; axis >= 0; --axis) {
        offset += i % s->dim[axis] * stride[axis];
        i /= s->dim[axis];
    }
    return offset;
}

/* Whether any strides show the elements of s in the shape `to`: each axis has one distance, read off
 * the elements themselves. */
static bool viewable(const luge_shape *s, const int64_t *stride, const luge_shape *to)
{
    int64_t found[LUGE_MAX_RANK], step = 1;
    const int64_t n = lg_shape_numel(s);
    for (int axis = to->rank - 1; axis >= 0; --axis) {
        found[axis] = to->dim[axis] > 1 ? offset_of(s, stride, step) : 0;
        step *= to->dim[axis];
    }
    for (int64_t i = 0; i < n; ++i)
        if (offset_of(to, found, i) != offset_of(s, stride, i)) return false;
    return true;
}

static void test_reshape_against_every_element(void **state)
{
    (void)state;
    static const luge_shape shapes[] = {
        {1, {24}},         {2, {4, 6}},     {2, {6, 4}},          {3, {2, 3, 4}}, {3, {4, 3, 2}},  {4, {2, 2, 3, 2}},
        {4, {3, 1, 8, 1}}, {3, {1, 24, 1}}, {5, {2, 1, 2, 2, 3}}, {2, {24, 1}},   {3, {2, 12, 1}},
    };
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    uint64_t at = 0;
    int views = 0, copies = 0;
    for (int round = 0; round < 4000; ++round) {
        const luge_shape s = shapes[draw(&at, SHAPES)], to = shapes[draw(&at, SHAPES)];
        /* A dense tensor in a random order of axes, some of them widened or expanded. */
        int64_t stride[LUGE_MAX_RANK] = {0}, step = 1;
        bool placed[LUGE_MAX_RANK] = {false};
        for (int k = 0; k < s.rank; ++k) {
            int axis = draw(&at, 2) == 0 ? s.rank - 1 - k : (int)draw(&at, s.rank);
            while (placed[axis]) axis = (axis + s.rank - 1) % s.rank;
            placed[axis] = true;
            const int64_t kind = draw(&at, 8);
            stride[axis] = kind == 0 ? 0 : step;
            step *= s.dim[axis] + (kind == 1);
        }
        int64_t out[LUGE_MAX_RANK];
        const bool view = lg_reshape_strides(&s, stride, &to, out);
        assert_int_equal(view, viewable(&s, stride, &to));
        for (int64_t i = 0; view && i < 24; ++i) assert_int_equal(offset_of(&to, out, i), offset_of(&s, stride, i));
        ++*(view ? &views : &copies);
    }
    assert_true(views > 500 && copies > 500);
}

static void test_axes(void **state)
{
    (void)state;
    assert_int_equal(lg_axis(3, 0), 0);
    assert_int_equal(lg_axis(3, -1), 2);
    assert_int_equal(lg_axis(3, -3), 0);
    assert_int_equal(lg_axis(3, 3), -1);
    assert_int_equal(lg_axis(3, -4), -1);
    assert_int_equal(lg_axis(0, 0), 0);
    assert_int_equal(lg_axis(0, -1), 0);
    assert_int_equal(lg_axis(0, 1), -1);

    uint32_t mask = 99;
    const luge_axes two = LUGE_AXES(0, -1), twice = LUGE_AXES(1, -2), far = LUGE_AXES(3), all = LUGE_ALL_AXES;
    assert_true(lg_axes_mask(3, &two, &mask));
    assert_int_equal(mask, 5);
    assert_false(lg_axes_mask(3, &twice, &mask));
    assert_false(lg_axes_mask(3, &far, &mask));
    assert_int_equal(mask, 5);
    assert_true(lg_axes_mask(3, &all, &mask));
    assert_int_equal(mask, 7);
    assert_true(lg_axes_mask(LUGE_MAX_RANK, &all, &mask));
    assert_int_equal(mask, 255);
    const luge_axes first = LUGE_AXES(0), bad = {.count = 9}, negative = {.count = -1};
    assert_true(lg_axes_mask(0, &first, &mask));
    assert_int_equal(mask, 0);
    assert_false(lg_axes_mask(3, &bad, &mask));
    assert_false(lg_axes_mask(3, &negative, &mask));

    const luge_shape s = LUGE_SHAPE(2, 3, 4), gone = LUGE_SHAPE(3), kept = LUGE_SHAPE(1, 3, 1);
    const luge_shape a = lg_reduced_shape(&s, 5, false), b = lg_reduced_shape(&s, 5, true);
    const luge_shape none = lg_reduced_shape(&s, 7, false);
    assert_true(lg_shape_equal(&a, &gone));
    assert_true(lg_shape_equal(&b, &kept));
    assert_int_equal(none.rank, 0);
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numel),
        cmocka_unit_test(test_NUM_11_sizes_over_2_31),
        cmocka_unit_test(test_equal_and_text),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_dense_and_overlap),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_AGR_10_broadcast_with_an_empty_axis),
        cmocka_unit_test(test_broadcast_strides),
        cmocka_unit_test(test_reshape),
        cmocka_unit_test(test_reshape_against_every_element),
        cmocka_unit_test(test_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
