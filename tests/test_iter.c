/* Strided iteration (core/iter.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/iter.h"
#include "core/rng.h"
#include "tests/support/device.h"
#include <luge/luge.h>

/* A tensor of which only the geometry counts. */
static luge_tensor geometry(luge_shape shape, const int64_t *stride)
{
    luge_tensor t = {.shape = shape, .numel = lg_shape_numel(&shape)};
    if (stride == NULL) {
        lg_strides_contiguous(&shape, t.stride);
    } else {
        for (int i = 0; i < shape.rank; ++i) t.stride[i] = stride[i];
    }
    return t;
}

#define STRIDES(...) ((const int64_t[LUGE_MAX_RANK]){__VA_ARGS__})

static void test_same_layout_is_flat(void **state)
{
    (void)state;
    const luge_shape s = LUGE_SHAPE(2, 3, 4, 5);
    int64_t last[LUGE_MAX_RANK];
    lg_strides_channels_last(&s, last);
    luge_tensor a = geometry(s, NULL), b = geometry(s, NULL), c = geometry(s, last), d = geometry(s, last);
    lg_iter it;
    lg_iter_init(&it, &s, 2, (luge_tensor *[]){&a, &b});
    assert_true(lg_iter_flat(&it));
    assert_int_equal(it.size[0], 120);
    assert_int_equal(it.numel, 120);
    lg_iter_init(&it, &s, 2, (luge_tensor *[]){&c, &d});
    assert_true(lg_iter_flat(&it));
    assert_int_equal(it.size[0], 120);
    lg_iter_init(&it, &s, 2, (luge_tensor *[]){&a, &c});
    assert_false(lg_iter_flat(&it));
    assert_int_equal(it.rank, 3); /* H and W stay one */
}

static void test_scalars_stay_flat(void **state)
{
    (void)state;
    const luge_shape s = LUGE_SHAPE(2, 3), one = LUGE_SHAPE(1, 1);
    luge_tensor out = geometry(s, NULL), a = geometry(s, NULL), b = geometry(LUGE_SCALAR, NULL),
                c = geometry(one, NULL);
    lg_iter it;
    lg_iter_init(&it, &s, 4, (luge_tensor *[]){&out, &a, &b, &c});
    assert_true(lg_iter_flat(&it));
    assert_int_equal(it.size[0], 6);
    assert_int_equal(it.stride[0][0], 1);
    assert_int_equal(it.stride[1][0], 1);
    assert_int_equal(it.stride[2][0], 0);
    assert_int_equal(it.stride[3][0], 0);

    /* One element altogether, the strides of which mean nothing. */
    luge_tensor x = geometry(one, STRIDES(17, 0)), y = geometry(LUGE_SCALAR, NULL);
    lg_iter_init(&it, &one, 2, (luge_tensor *[]){&x, &y});
    assert_true(lg_iter_flat(&it));
    assert_int_equal(it.numel, 1);
    assert_int_equal(it.size[0], 1);
}

static void test_nothing_to_walk(void **state)
{
    (void)state;
    const luge_shape s = LUGE_SHAPE(3, 0);
    luge_tensor out = geometry(s, NULL), a = geometry(LUGE_SHAPE(3, 1), NULL), b = geometry(LUGE_SCALAR, NULL);
    lg_iter it;
    lg_iter_init(&it, &s, 3, (luge_tensor *[]){&out, &a, &b});
    assert_int_equal(it.numel, 0);
    assert_int_equal(lg_iter_rows(&it), 0);
    assert_false(lg_iter_flat(&it));
}

static void test_slices_and_broadcasts(void **state)
{
    (void)state;
    /* Columns of a wider matrix: rows of 6. */
    const luge_shape s = LUGE_SHAPE(4, 6);
    luge_tensor out = geometry(s, NULL), wide = geometry(s, STRIDES(10, 1));
    lg_iter it;
    lg_iter_init(&it, &s, 2, (luge_tensor *[]){&out, &wide});
    assert_int_equal(it.rank, 2);
    assert_int_equal(it.size[0], 6);
    assert_int_equal(lg_iter_rows(&it), 4);
    int64_t offset[LG_ITER_MAX];
    lg_iter_row(&it, 3, offset);
    assert_int_equal(offset[0], 18);
    assert_int_equal(offset[1], 30);

    /* Every other element: one row, but not flat. */
    const luge_shape line = LUGE_SHAPE(5);
    luge_tensor y = geometry(line, NULL), x = geometry(line, STRIDES(2));
    lg_iter_init(&it, &line, 2, (luge_tensor *[]){&y, &x});
    assert_int_equal(it.rank, 1);
    assert_false(lg_iter_flat(&it));
    assert_int_equal(it.stride[1][0], 2);

    /* A bias along channels-last channels is the inner axis of everything else. */
    const luge_shape image = LUGE_SHAPE(2, 3, 4, 5);
    int64_t last[LUGE_MAX_RANK];
    lg_strides_channels_last(&image, last);
    luge_tensor o = geometry(image, last), i = geometry(image, last), bias = geometry(LUGE_SHAPE(3, 1, 1), NULL);
    lg_iter_init(&it, &image, 3, (luge_tensor *[]){&o, &i, &bias});
    assert_int_equal(it.rank, 2);
    assert_int_equal(it.size[0], 3);
    assert_int_equal(it.size[1], 40);
    assert_int_equal(it.stride[2][0], 1);
    assert_int_equal(it.stride[2][1], 0);
}

/* Where element number i (row-major) of `shape` lies in an operand that broadcasts to it. */
static int64_t offset_of(const luge_tensor *t, const luge_shape *shape, int64_t i)
{
    int64_t offset = 0;
    for (int axis = shape->rank - 1, own = t->shape.rank - 1; axis >= 0; --axis, --own) {
        const int64_t index = i % shape->dim[axis];
        i /= shape->dim[axis];
        if (own >= 0 && t->shape.dim[own] != 1) offset += index * t->stride[own];
    }
    return offset;
}

static uint64_t drawn;
static int64_t draw(int64_t below)
{
    return (int64_t)(lg_philox_block(5, 0, drawn++).v[0] % (uint32_t)below);
}

/* Dense in a random order of axes, sometimes with gaps; broadcast along some axes if it may be. */
static luge_tensor random_operand(const luge_shape *shape, bool broadcast)
{
    luge_tensor t = {0};
    const int cut = broadcast && draw(4) == 0 ? (int)draw(shape->rank + 1) : 0;
    t.shape.rank = shape->rank - cut;
    t.numel = 1;
    for (int i = 0; i < t.shape.rank; ++i) {
        t.shape.dim[i] = broadcast && draw(4) == 0 ? 1 : shape->dim[cut + i];
        t.numel *= t.shape.dim[i];
    }
    lg_strides_contiguous(&t.shape, t.stride);
    if (t.shape.rank == 0 || draw(3) == 0) return t;
    bool placed[LUGE_MAX_RANK] = {false};
    int64_t step = 1 + draw(2) * draw(2);
    for (int k = 0; k < t.shape.rank; ++k) {
        int axis = (int)draw(t.shape.rank);
        while (placed[axis]) axis = (axis + 1) % t.shape.rank;
        placed[axis] = true;
        t.stride[axis] = step;
        step *= t.shape.dim[axis] + (draw(5) == 0);
    }
    return t;
}

/* Every element is met once, with the right elements of all operands. */
static void check_walk(const luge_shape *shape, int n, luge_tensor *const *operand)
{
    enum { MOST = 5 * 5 * 5 * 5 * 5 * 16 };
    static int row_of[MOST];
    static int64_t met[MOST][LG_ITER_MAX];
    lg_iter it;
    lg_iter_init(&it, shape, n, operand);
    const int64_t numel = lg_shape_numel(shape);
    assert_int_equal(it.numel, numel);
    assert_true(it.rank >= 1 && it.rank <= LUGE_MAX_RANK);

    /* Operand 0 has one place for each element: by it the walk finds which element it is at. */
    for (int64_t i = 0; i < MOST; ++i) row_of[i] = 0;
    int64_t offset[LG_ITER_MAX];
    for (int64_t row = 0; row < lg_iter_rows(&it); ++row) {
        lg_iter_row(&it, row, offset);
        for (int64_t j = 0; j < it.size[0]; ++j) {
            const int64_t place = offset[0] + j * it.stride[0][0];
            assert_in_range(place, 0, MOST - 1);
            assert_int_equal(row_of[place]++, 0);
            for (int k = 1; k < n; ++k) met[place][k] = offset[k] + j * it.stride[k][0];
        }
    }
    for (int64_t i = 0; i < numel; ++i) {
        const int64_t place = offset_of(operand[0], shape, i);
        assert_int_equal(row_of[place], 1);
        for (int k = 1; k < n; ++k) assert_int_equal(met[place][k], offset_of(operand[k], shape, i));
    }
}

static void test_random_geometries(void **state)
{
    (void)state;
    int flat = 0, deep = 0;
    for (int round = 0; round < 1500; ++round) {
        luge_shape shape = {.rank = (int)draw(6)};
        for (int i = 0; i < shape.rank; ++i) shape.dim[i] = 1 + draw(5) * (draw(4) != 0);
        if (round % 50 == 0 && shape.rank > 0) shape.dim[draw(shape.rank)] = 0;
        const int n = 1 + (int)draw(4);
        luge_tensor t[4], *operand[4];
        for (int k = 0; k < n; ++k) {
            t[k] = random_operand(&shape, k > 0);
            operand[k] = &t[k];
        }
        check_walk(&shape, n, operand);
        lg_iter it;
        lg_iter_init(&it, &shape, n, operand);
        flat += lg_iter_flat(&it);
        deep += it.rank > 2;
    }
    assert_true(flat > 100 && deep > 100);
}

/* Sizes of eight axes, and offsets beyond 2^31 elements. */
static void test_NUM_11_offsets_over_2_31(void **state)
{
    (void)state;
    const luge_shape s = LUGE_SHAPE(65536, 65536);
    luge_tensor out = geometry(s, NULL), across = geometry(s, STRIDES(1, 65536));
    lg_iter it;
    lg_iter_init(&it, &s, 2, (luge_tensor *[]){&out, &across});
    assert_int_equal(it.numel, INT64_C(4294967296));
    int64_t offset[LG_ITER_MAX];
    lg_iter_row(&it, 65535, offset);
    assert_int_equal(offset[0], INT64_C(4294901760));
    assert_int_equal(offset[1], 65535);
}

int main(void)
{
    CPU_ONLY();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_layout_is_flat), cmocka_unit_test(test_scalars_stay_flat),
        cmocka_unit_test(test_nothing_to_walk),     cmocka_unit_test(test_slices_and_broadcasts),
        cmocka_unit_test(test_random_geometries),   cmocka_unit_test(test_NUM_11_offsets_over_2_31),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
