/* The kernels of simd_tile.c for one type, `real`. */

typedef real OF_REAL(vector) __attribute__((vector_size(VECTOR_BYTES)));
typedef real OF_REAL(unaligned) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
#define vector OF_REAL(vector)
#define unaligned OF_REAL(unaligned)
#define LOAD(p) ((vector)*(const unaligned *)(p))
#define STORE_AT(p, v) (*(unaligned *)(p) = (v))

/* ---- the tile. `rows` and `vectors` are constants where this is inlined, and rows are spelled out, so
 * that both compilers keep the sums in registers. */

/* Fewer than LANES elements, or a short row: vectors, then a half, a quarter, ... as far as there are elements. */
static inline void OF_REAL(copy)(real *to, const real *from, int64_t n)
{
    for (; n >= LANES; n -= LANES, to += LANES, from += LANES) STORE_AT(to, LOAD(from));
    UNROLL for (int part = LANES / 2; part > 0; part /= 2) {
        if (!(n & part)) continue;
        memcpy(to, from, (size_t)part * sizeof(real));
        to += part;
        from += part;
    }
}

static __attribute__((noinline)) void OF_REAL(store_part)(real *c, const vector *sum, int columns, bool add)
{
    real part[LANES] = {0};
    if (add) OF_REAL(copy)(part, c, columns);
    STORE_AT(part, LOAD(part) + *sum);
    OF_REAL(copy)(c, part, columns);
}

static inline void OF_REAL(store)(real *c, vector sum, int columns, bool add)
{
    if (columns < LANES) {
        if (columns > 0) OF_REAL(store_part)(c, &sum, columns, add);
        return;
    }
    if (add) sum += LOAD(c);
    STORE_AT(c, sum);
}

static inline __attribute__((always_inline)) void OF_REAL(multiply_of)(const lg_tile *t, const int rows, const int vectors)
{
    vector start[LG_TILE_VECTORS] = {{0}}, sum[LG_TILE_ROWS][LG_TILE_VECTORS];
    if (t->start != NULL) {
        start[0] = LOAD(t->start);
        if (vectors > 1) start[1] = LOAD((const real *)t->start + LANES);
        if (vectors > 2) start[2] = LOAD((const real *)t->start + 2 * LANES);
    }
#define START(i)                                 \
    if (i < rows) {                              \
        sum[i][0] = start[0];                    \
        if (vectors > 1) sum[i][1] = start[1];   \
        if (vectors > 2) sum[i][2] = start[2];   \
    }
    EACH_ROW(START)
    const int64_t a_step = t->a_step, b_step = t->b_step;
    for (int64_t s = 0; s < t->segments; ++s) {
        const real *a[LG_TILE_ROWS];
#define SEGMENT(i) \
    if (i < rows) a[i] = (const real *)t->a[i] + t->a_segment[s];
        EACH_ROW(SEGMENT)
        const real *b = (const real *)t->b + t->b_segment[s] * b_step;
        int64_t at = 0;
        for (int64_t k = t->run; k > 0; --k) {
            const vector b0 = LOAD(b);
            const vector b1 = LOAD(b + (vectors > 1 ? LANES : 0));
            const vector b2 = LOAD(b + (vectors > 2 ? 2 * LANES : 0));
#define MULTIPLY(i)                                  \
    if (i < rows) {                                  \
        const vector x = a[i][at] - (vector){0};     \
        sum[i][0] += x * b0;                         \
        if (vectors > 1) sum[i][1] += x * b1;        \
        if (vectors > 2) sum[i][2] += x * b2;        \
    }
            EACH_ROW(MULTIPLY)
            at += a_step;
            b += b_step;
        }
    }
#define STORE(i)                                                                                                  \
    if (i < rows && i < t->rows) {                                                                                \
        OF_REAL(store)((real *)t->c[i], sum[i][0], t->columns, t->add);                                           \
        if (vectors > 1) OF_REAL(store)((real *)t->c[i] + LANES, sum[i][1], t->columns - LANES, t->add);          \
        if (vectors > 2) OF_REAL(store)((real *)t->c[i] + 2 * LANES, sum[i][2], t->columns - 2 * LANES, t->add);  \
    }
    EACH_ROW(STORE)
#undef START
#undef SEGMENT
#undef MULTIPLY
#undef STORE
}

static void OF_REAL(multiply)(const lg_tile *t)
{
    const bool half = t->rows <= TILE_ROWS / 2;
    if (t->columns > 2 * LANES) {
        if (half) OF_REAL(multiply_of)(t, TILE_ROWS / 2, 3); else OF_REAL(multiply_of)(t, TILE_ROWS, 3);
    } else if (t->columns > LANES) {
        if (half) OF_REAL(multiply_of)(t, TILE_ROWS / 2, 2); else OF_REAL(multiply_of)(t, TILE_ROWS, 2);
    } else {
        if (half) OF_REAL(multiply_of)(t, TILE_ROWS / 2, 1); else OF_REAL(multiply_of)(t, TILE_ROWS, 1);
    }
}

/* ---- packing */

/* A square of LANES x LANES elements across its diagonal: log2(LANES) perfect shuffles of its rows. Of
 * these the first `count` are read, the others are zeros. */
static inline __attribute__((always_inline)) void OF_REAL(transpose)(real *to, int64_t to_row, const real *from, int64_t from_row, int64_t count)
{
    vector v[LANES], w[LANES];
    UNROLL for (int i = 0; i < LANES; ++i) v[i] = i < count ? LOAD(from + i * from_row) : (vector){0};
    UNROLL for (int step = 1; step < LANES; step *= 2) {
        UNROLL for (int i = 0; i < LANES / 2; ++i) {
            w[2 * i] = __builtin_shufflevector(v[i], v[i + LANES / 2], LG_ISA_JOIN(LOW, LANES));
            w[2 * i + 1] = __builtin_shufflevector(v[i], v[i + LANES / 2], LG_ISA_JOIN(HIGH, LANES));
        }
        UNROLL for (int i = 0; i < LANES; ++i) v[i] = w[i];
    }
    UNROLL for (int i = 0; i < LANES; ++i) STORE_AT(to + i * to_row, v[i]);
}

/* Rows [row, row + rows) of columns [column, column + columns), element by element; the
 * longer loop is the inner one. */
static void OF_REAL(pack_part)(const lg_pack *p, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const real *from = (const real *)p->from + row * p->from_row + column * p->from_column;
    real *to = (real *)p->to + row * p->to_row + column;
    if (columns < rows) {
        for (int64_t j = 0; j < columns; ++j)
            for (int64_t i = 0; i < rows; ++i) to[i * p->to_row + j] = from[i * p->from_row + j * p->from_column];
    } else {
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j) to[i * p->to_row + j] = from[i * p->from_row + j * p->from_column];
    }
}

/* Where the padding has room for it, the last vector of columns is written whole, with zeros behind them.
 * Returns how many rows that is so for. */
static int64_t OF_REAL(pack_transposed)(const lg_pack *p)
{
    const int64_t rows = p->rows / LANES * LANES, whole = p->columns / LANES * LANES, rest = p->columns - whole;
    const real *from = p->from;
    real *to = p->to;
    const bool padded = rest > 0 && p->width >= whole + LANES;
    for (int64_t i = 0; i < rows; i += LANES) {
        for (int64_t j = 0; j < whole; j += LANES)
            OF_REAL(transpose)(to + i * p->to_row + j, p->to_row, from + i + j * p->from_column, p->from_column, LANES);
        if (padded) OF_REAL(transpose)(to + i * p->to_row + whole, p->to_row, from + i + whole * p->from_column, p->from_column, rest);
    }
    if (!padded) OF_REAL(pack_part)(p, 0, rows, whole, rest);
    OF_REAL(pack_part)(p, rows, p->rows - rows, 0, p->columns);
    return padded ? rows : 0;
}

static void OF_REAL(pack)(const lg_pack *p)
{
    const int64_t vectors = (p->columns + LANES - 1) / LANES * LANES;
    int64_t in_vectors = 0; /* rows that are written so far */
    if (p->from_column == 1) {
        const real *from = p->from;
        real *to = p->to;
        for (int64_t i = 0; i < p->rows; ++i) OF_REAL(copy)(to + i * p->to_row, from + i * p->from_row, p->columns);
    } else if (p->from_row == 1) {
        in_vectors = OF_REAL(pack_transposed)(p);
    } else {
        OF_REAL(pack_part)(p, 0, p->rows, 0, p->columns);
    }
    if (p->width == p->columns) return;
    for (int64_t i = 0; i < p->rows; ++i)
        for (int64_t j = i < in_vectors ? vectors : p->columns; j < p->width; ++j) ((real *)p->to)[i * p->to_row + j] = 0;
}

#undef vector
#undef LOAD
#undef STORE_AT
#undef unaligned
