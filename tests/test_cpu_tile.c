/* Packing (cpu/simd/tile.h) on every instruction set: elements in their places, zeros beside them, nothing else
 * written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "cpu/isa.h"
#include "cpu/simd/tile.h"
#include "tests/support/device.h"

enum { MOST_ROWS = 19, MOST_COLUMNS = 19, MOST_WIDTH = 2 * MOST_COLUMNS, TO_ROW = MOST_WIDTH + 2 };

/* Where element (i, j) is in the source. */
typedef struct source {
    const char *name;
    int64_t row, column;
} source;
static const source sources[] = {{"rows", MOST_COLUMNS, 1}, {"columns", 1, MOST_ROWS}, {"neither", 2 * MOST_COLUMNS, 2}};

typedef union memory {
    float f32[2 * MOST_ROWS * TO_ROW];
    double f64[2 * MOST_ROWS * TO_ROW];
} memory;

static double get(const memory *m, int f64, int64_t i) { return f64 ? m->f64[i] : (double)m->f32[i]; }

static void set(memory *m, int f64, int64_t i, double value)
{
    if (f64)
        m->f64[i] = value;
    else
        m->f32[i] = (float)value;
}

static void check_pack(int f64, const source *s, int64_t rows, int64_t columns, int64_t width)
{
    memory from, to;
    for (int64_t i = 0; i < 2 * MOST_ROWS * TO_ROW; ++i) {
        set(&from, f64, i, (double)(i + 1));
        set(&to, f64, i, -1);
    }
    const lg_pack p = {.to = &to, .to_row = TO_ROW, .from = &from, .from_row = s->row, .from_column = s->column,
                       .rows = rows, .columns = columns, .width = width};
    LG_ISA_PICK(lg_tile)->pack[f64](&p);
    for (int64_t i = 0; i < MOST_ROWS; ++i)
        for (int64_t j = 0; j < TO_ROW; ++j) {
            const bool inside = i < rows && j < columns, beside = i < rows && j >= columns && j < width;
            const double should = inside ? (double)(i * s->row + j * s->column + 1) : beside ? 0 : -1;
            const double is = get(&to, f64, i * TO_ROW + j);
            if (is != should)
                fail_msg("%s, %s of %s, %d x %d in %d: (%d, %d) is %g, not %g", lg_isa_name(lg_cpu_isa()), f64 ? "f64" : "f32",
                         s->name, (int)rows, (int)columns, (int)width, (int)i, (int)j, is, should);
        }
}

static void every_size(void **state)
{
    (void)state;
    const lg_isa best = lg_cpu_isa();
    for (int isa = 0; isa < LG_ISA_COUNT; ++isa) {
        if (!lg_cpu_set_isa((lg_isa)isa)) continue;
        for (int f64 = 0; f64 < 2; ++f64)
            for (int s = 0; s < 3; ++s)
                for (int64_t rows = 0; rows <= MOST_ROWS; ++rows)
                    for (int64_t columns = 1; columns <= MOST_COLUMNS; ++columns)
                        for (int64_t width = columns; width <= MOST_WIDTH; ++width)
                            check_pack(f64, &sources[s], rows, columns, width);
    }
    lg_cpu_set_isa(best);
}

int main(void)
{
    CPU_ONLY();
    luge_device_usable(luge_device_cpu()); /* chooses an instruction set */
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
