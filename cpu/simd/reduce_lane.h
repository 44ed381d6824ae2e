/* The reductions of one lane. Included by reduce.c with
 *   real, wide     the type of the elements and the type that accumulates
 *   held, place    the type in which the largest is looked for, and an integer of its size
 *   LG_SUFFIX      how names end
 *   LG_WHOLE       if they are integers */

#define NAME_(a, b) a##_##b
#define NAME(a, b) NAME_(a, b)

/* One reduction: how acc, of a type, takes in the element v. Four rows at a time, so that acc is not stored
 * for each. */
#define REDUCTION(name, type, formula)                                                                                 \
    static void NAME(name##_columns, LG_SUFFIX)(int64_t n, int64_t rows, int64_t stride, const void *from,             \
                                                const void *centers, double number, void *accs)                        \
    {                                                                                                                  \
        const real *x = from;                                                                                          \
        const wide *center = centers;                                                                                  \
        type *to = accs;                                                                                               \
        (void)number, (void)center;                                                                                    \
        int64_t r = 0;                                                                                                 \
        for (; r + 4 <= rows; r += 4, x += 4 * stride) {                                                               \
            const real *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;                                         \
            LG_VECTOR_LOOP                                                                                             \
            for (int64_t j = 0; j < n; ++j) {                                                                          \
                type acc = to[j], v = (type)x[j];                                                                      \
                acc = (formula);                                                                                       \
                v = (type)x1[j];                                                                                       \
                acc = (formula);                                                                                       \
                v = (type)x2[j];                                                                                       \
                acc = (formula);                                                                                       \
                v = (type)x3[j];                                                                                       \
                to[j] = (formula);                                                                                     \
            }                                                                                                          \
        }                                                                                                              \
        for (; r < rows; ++r, x += stride) {                                                                           \
            LG_VECTOR_LOOP                                                                                             \
            for (int64_t j = 0; j < n; ++j) {                                                                          \
                type acc = to[j], v = (type)x[j];                                                                      \
                to[j] = (formula);                                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }

REDUCTION(sum, wide, acc + v)

/* The largest or smallest: elements are compared as what they are, in a copy of acc. */
#define EXTREME(name, formula)                                                                                         \
    REDUCTION(name##_held, held, formula)                                                                              \
    static void NAME(name##_columns, LG_SUFFIX)(int64_t n, int64_t rows, int64_t stride, const void *from,             \
                                                const void *centers, double number, void *accs)                        \
    {                                                                                                                  \
        const real *x = from;                                                                                          \
        wide *acc = accs;                                                                                              \
        for (int64_t at = 0; at < n; at += BLOCK) {                                                                    \
            int64_t m = n - at < BLOCK ? n - at : BLOCK;                                                               \
            held best[BLOCK];                                                                                          \
            for (int64_t j = 0; j < m; ++j) best[j] = (held)acc[at + j];                                               \
            NAME(name##_held_columns, LG_SUFFIX)(m, rows, stride, x + at, centers, number, best);                      \
            for (int64_t j = 0; j < m; ++j) acc[at + j] = (wide)best[j];                                               \
        }                                                                                                              \
    }

#ifdef LG_WHOLE
EXTREME(max, v > acc ? v : acc)
EXTREME(min, v < acc ? v : acc)
#define IS_BETTER(v, best) ((v) > (best))
#else
EXTREME(max, ((v > acc) | (v != v)) ? v : acc)
EXTREME(min, ((v < acc) | (v != v)) ? v : acc)
REDUCTION(abs_sum, wide, acc + fabs(v))
REDUCTION(abs_max, wide, ((fabs(v) > acc) | (v != v)) ? fabs(v) : acc)
REDUCTION(square_sum, wide, acc + v * v)
REDUCTION(power_sum, wide, acc + pow(fabs(v / center[j]), number))
/* The first NaN counts as the largest. */
#define IS_BETTER(v, best) (((v) > (best)) | (((v) != (v)) & ((best) == (best))))

/* Two accumulators a result: the sum of v - center, and that of its square. */
#define TAKE_MOMENTS(v)               \
    do {                              \
        wide d = (wide)(v)-center[j]; \
        sum += d;                     \
        squares += d * d;             \
    } while (0)

static void NAME(moments_columns, LG_SUFFIX)(int64_t n, int64_t rows, int64_t stride, const void *from,
                                             const void *centers, double number, void *accs)
{
    (void)number;
    const real *x = from;
    const wide *center = centers;
    wide *to = accs;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4, x += 4 * stride) {
        const real *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) {
            wide sum = to[2 * j], squares = to[2 * j + 1];
            TAKE_MOMENTS(x[j]);
            TAKE_MOMENTS(x1[j]);
            TAKE_MOMENTS(x2[j]);
            TAKE_MOMENTS(x3[j]);
            to[2 * j] = sum;
            to[2 * j + 1] = squares;
        }
    }
    for (; r < rows; ++r, x += stride) {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) {
            wide sum = to[2 * j], squares = to[2 * j + 1];
            TAKE_MOMENTS(x[j]);
            to[2 * j] = sum;
            to[2 * j + 1] = squares;
        }
    }
}

#undef TAKE_MOMENTS
#endif

/* At most 2^30 rows and BLOCK columns; at[j] stays where nothing is better. */
static void NAME(argmax_block, LG_SUFFIX)(int64_t n, place rows, int64_t stride, const real *x, held *best, place *at)
{
    for (place r = 0; r < rows; ++r, x += stride) {
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) {
            held v = (held)x[j], old = best[j];
            place old_at = at[j];
            at[j] = IS_BETTER(v, old) ? r : old_at;
            best[j] = IS_BETTER(v, old) ? v : old;
        }
    }
}

static void NAME(argmax, LG_SUFFIX)(int64_t n, int64_t rows, int64_t stride, const void *from, int64_t first_row,
                                    void *bests, int64_t *row)
{
    const int64_t most = INT64_C(1) << 30;
    const real *x = from;
    wide *acc = bests;
    for (int64_t r = 0; r < rows; r += most)
        for (int64_t column = 0; column < n; column += BLOCK) {
            int64_t m = n - column < BLOCK ? n - column : BLOCK;
            held best[BLOCK];
            place at[BLOCK];
            for (int64_t j = 0; j < m; ++j) best[j] = (held)acc[column + j], at[j] = -1;
            NAME(argmax_block, LG_SUFFIX)(m, (place)(rows - r < most ? rows - r : most), stride, x + r * stride + column, best, at);
            for (int64_t j = 0; j < m; ++j) {
                if (at[j] < 0) continue;
                acc[column + j] = (wide)best[j];
                row[column + j] = first_row + r + at[j];
            }
        }
}

#undef REDUCTION
#undef EXTREME
#undef IS_BETTER
#undef real
#undef wide
#undef held
#undef place
#undef LG_SUFFIX
