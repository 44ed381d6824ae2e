/* The reductions of one lane. Included by reduce.c with
 *   real, wide     the type of the elements and the type that accumulates
 *   LG_SUFFIX      how names end
 *   LG_WHOLE       if they are integers */

#define NAME_(a, b) a##_##b
#define NAME(a, b) NAME_(a, b)

/* One reduction: how acc takes in the element v. Four rows at a time, so that acc is not stored for each. */
#define REDUCTION(name, formula)                                                                                       \
    static void NAME(name##_columns, LG_SUFFIX)(int64_t n, int64_t rows, int64_t stride, const void *from,             \
                                                const void *centers, double number, void *accs)                        \
    {                                                                                                                  \
        const real *x = from;                                                                                          \
        const wide *center = centers;                                                                                  \
        wide *to = accs;                                                                                               \
        (void)number, (void)center;                                                                                    \
        int64_t r = 0;                                                                                                 \
        for (; r + 4 <= rows; r += 4, x += 4 * stride) {                                                               \
            const real *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;                                         \
            LG_VECTOR_LOOP                                                                                             \
            for (int64_t j = 0; j < n; ++j) {                                                                          \
                wide acc = to[j], v = (wide)x[j];                                                                      \
                acc = (formula);                                                                                       \
                v = (wide)x1[j];                                                                                       \
                acc = (formula);                                                                                       \
                v = (wide)x2[j];                                                                                       \
                acc = (formula);                                                                                       \
                v = (wide)x3[j];                                                                                       \
                to[j] = (formula);                                                                                     \
            }                                                                                                          \
        }                                                                                                              \
        for (; r < rows; ++r, x += stride) {                                                                           \
            LG_VECTOR_LOOP                                                                                             \
            for (int64_t j = 0; j < n; ++j) {                                                                          \
                wide acc = to[j], v = (wide)x[j];                                                                      \
                to[j] = (formula);                                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void NAME(name##_rows, LG_SUFFIX)(int64_t n, int64_t length, int64_t stride, const void *from,              \
                                             const void *centers, double number, void *accs)                           \
    {                                                                                                                  \
        const wide *center = centers;                                                                                  \
        (void)number, (void)center;                                                                                    \
        for (int64_t j = 0; j < n; ++j) {                                                                              \
            const real *x = (const real *)from + j * stride;                                                           \
            wide acc = ((wide *)accs)[j];                                                                              \
            for (int64_t i = 0; i < length; ++i) {                                                                     \
                wide v = (wide)x[i];                                                                                   \
                acc = (formula);                                                                                       \
            }                                                                                                          \
            ((wide *)accs)[j] = acc;                                                                                   \
        }                                                                                                              \
    }

REDUCTION(sum, acc + v)
#ifdef LG_WHOLE
REDUCTION(max, v > acc ? v : acc)
REDUCTION(min, v < acc ? v : acc)
#define BETTER(v, best) ((v) > (best))
#else
REDUCTION(max, ((v > acc) | (v != v)) ? v : acc)
REDUCTION(min, ((v < acc) | (v != v)) ? v : acc)
REDUCTION(abs_sum, acc + fabs(v))
REDUCTION(abs_max, ((fabs(v) > acc) | (v != v)) ? fabs(v) : acc)
REDUCTION(square_sum, acc + v * v)
REDUCTION(deviation_sum, acc + (v - center[j]) * (v - center[j]))
REDUCTION(power_sum, acc + pow(fabs(v / center[j]), number))
/* The first NaN counts as the largest. */
#define BETTER(v, best) (((v) > (best)) | (((v) != (v)) & ((best) == (best))))
#endif

static void NAME(argmax, LG_SUFFIX)(int64_t n, int64_t rows, int64_t stride, const void *from, int64_t first_row,
                                    void *bests, int64_t *row)
{
    const real *x = from;
    wide *best = bests;
    for (int64_t r = 0; r < rows; ++r, x += stride) {
        int64_t here = first_row + r;
        LG_VECTOR_LOOP
        for (int64_t j = 0; j < n; ++j) {
            wide v = (wide)x[j], old = best[j];
            int64_t old_row = row[j];
            row[j] = BETTER(v, old) ? here : old_row;
            best[j] = BETTER(v, old) ? v : old;
        }
    }
}

#undef REDUCTION
#undef BETTER
#undef real
#undef wide
#undef LG_SUFFIX
