// SPDX-License-Identifier: Apache-2.0
// transpose: changes of the order of dimensions after which another one lies along memory: planes
// of two dimensions, one along the operand's memory and one along the result's, are turned by tiles
// of a vector's width in registers; the other dimensions say where planes lie. A line of the cache
// of the result is written at once.
// Does not: orders that keep whole runs together (a kernel moves those as well), sides shorter than
// a tile, blocks of channels.
#include "devices/cpu/cpu.h"
#include "devices/cpu/routines/cpu_turn.h"

enum { LINE = 64, LINES = 4 }; // bytes of a line; lines of the result's side in a unit
enum { GRAIN = 100000 };       // bytes that one thread takes at least: about 20 us
enum { ALONE = 2048 };         // elements: a step of its own costs less than what a kernel loses
// Elements of a long one of few lines, and of a unit of them.
enum { LONG_LINE = 1024, FEW_CHUNK = 1024 };
// Elements that stay together, a kernel has vectors for more; bytes of those that it moves well
// beside other work.
enum { MOST_RUN = 7, ALONE_RUN = 16 };
enum { FEW_WIDE = 7 };            // rows of 8 bytes that a kernel joins
enum { RUNS = 64, FEW_RUNS = 8 }; // of them that are written one behind the other
// Lines of the result that long runs are put in, one run in each, before the next runs: they stay
// in the nearest cache.
enum { NEAR_LINES = 16, NEAR_RUN = 12 };

typedef void plane_fn(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows,
                      int64_t columns);
struct side {
    int64_t n, in, out; // extent; strides in elements
};
// Where lines lie, in bytes: line x at x / near * far + x % near * step.
struct lines {
    int64_t n, near, step, far;
};
struct transpose_state;
struct piece {              // of a plane: rows `begin` to begin + n
    const char *from, *end; // end: of the operand
    char *to;
    int64_t begin, n;
};
typedef void piece_fn(const struct transpose_state *t, const struct piece *p);
struct transpose_state {
    int rank; // of what stands around the planes
    struct side around[HLO_MAX_RANK];
    // Columns lie along the operand, rows along the result; where columns go, where rows are.
    struct lines columns, rows;
    int64_t chunk, chunks, units; // chunk: of rows
    int64_t size;
    int64_t bytes; // of the operand
    bool alone;
    piece_fn *run;
};

// ---- tiles

// The places of n lines from line x on.
static inline void lines_at(const struct lines *l, int64_t x, int n, int64_t *at) {
    int64_t far = x / l->near, near = x % l->near;
    for (int k = 0; k < n; k++) {
        at[k] = far * l->far + near * l->step;
        if (++near == l->near) near = 0, far++;
    }
}
// Where a tile of `n` begins that would begin at x: the last one of all may overlap.
static inline int64_t last_begin(int64_t x, int n, int64_t all) {
    return x + n <= all ? x : all - n;
}
// Do lines of the result that are this far apart meet in few sets of the nearest cache? Then a line
// that is not whole soon is put away and brought back (1024x200 of f32 on Zen 5: 8 times as long as
// 1040x200), so CROWD of them are filled for a unit's rows before the next.
enum { CROWD = 16, SETS = 2048 };
static inline bool crowded(int64_t apart) {
    int64_t off = apart % SETS;
    return apart >= SETS - LINE && (off < LINE || off > SETS - LINE);
}
// One of T by T elements in vectors of T: row j of the operand's tile holds neighbours along a.
#define INLINE static inline __attribute__((always_inline))
#define PLANE(NAME, TYPE, T)                                                                       \
    TURN_SQUARE(NAME, TYPE, T)                                                                     \
    INLINE void NAME##_tile(const char *from, const int64_t *from_at, char *to,                    \
                            const int64_t *to_at) {                                                \
        NAME##_vector v[T];                                                                        \
        _Pragma("GCC unroll 16") for (int k = 0; k < T; k++)                                       \
            memcpy(&v[k], from + from_at[k], sizeof *v);                                           \
        NAME##_turn(v);                                                                            \
        _Pragma("GCC unroll 16") for (int k = 0; k < T; k++)                                       \
            memcpy(to + to_at[k], &v[k], sizeof *v);                                               \
    }                                                                                              \
    /* Tiles below each other that make whole lines of the result, a line after the other. */      \
    INLINE void NAME##_lines(const char *from, int64_t from_row, char *to, int64_t to_row) {       \
        enum { TILES = LINE / sizeof(TYPE) / T };                                                  \
        NAME##_vector v[TILES][T];                                                                 \
        _Pragma("GCC unroll 4") for (int j = 0; j < TILES; j++) {                                  \
            _Pragma("GCC unroll 16") for (int k = 0; k < T; k++)                                   \
                memcpy(&v[j][k], from + (j * T + k) * from_row, sizeof v[j][k]);                   \
            NAME##_turn(v[j]);                                                                     \
        }                                                                                          \
        _Pragma("GCC unroll 16") for (int k = 0; k < T; k++)                                       \
            _Pragma("GCC unroll 4") for (int j = 0; j < TILES; j++)                                \
                memcpy(to + k * to_row + j * (int64_t)sizeof v[j][k], &v[j][k], sizeof v[j][k]);   \
    }                                                                                              \
    /* A line's rows from r on (fewer at the end: by tiles), columns c to c + T. */                \
    INLINE void NAME##_strip(const char *from, int64_t from_row, char *to, int64_t to_row,         \
                             int64_t begin, int64_t rows, int64_t c) {                             \
        enum { WIDE = LINE / sizeof(TYPE) };                                                       \
        int64_t from_at[T], to_at[T];                                                              \
        from += c * (int64_t)sizeof(TYPE);                                                         \
        to += c * to_row;                                                                          \
        if (begin + WIDE <= rows) {                                                                \
            NAME##_lines(from + begin * from_row, from_row, to + begin * (int64_t)sizeof(TYPE),    \
                         to_row);                                                                  \
            return;                                                                                \
        }                                                                                          \
        _Pragma("GCC unroll 16") for (int k = 0; k < T; k++) {                                     \
            from_at[k] = k * from_row;                                                             \
            to_at[k] = k * to_row;                                                                 \
        }                                                                                          \
        for (int64_t j = begin; j < rows; j += T) {                                                \
            int64_t r = last_begin(j, T, rows);                                                    \
            NAME##_tile(from + r * from_row, from_at, to + r * (int64_t)sizeof(TYPE), to_at);      \
        }                                                                                          \
    }                                                                                              \
    /* rows along b, columns along a: both at least T. The last tile of a side may overlap. */     \
    static void NAME##_plane(const char *from, int64_t from_row, char *to, int64_t to_row,         \
                             int64_t rows, int64_t columns) {                                      \
        enum { WIDE = LINE / sizeof(TYPE) };                                                       \
        int64_t some = crowded(to_row) ? CROWD : columns;                                          \
        for (int64_t first = 0; first < columns; first += some)                                    \
            for (int64_t begin = 0; begin < rows; begin += WIDE)                                   \
                for (int64_t k = first; k < first + some && k < columns; k += T)                   \
                    NAME##_strip(from, from_row, to, to_row, begin, rows,                          \
                                 last_begin(k, T, columns));                                       \
    }                                                                                              \
    static void NAME##_long(const struct transpose_state *t, const struct piece *p) {              \
        NAME##_plane(p->from + p->begin * t->rows.step, t->rows.step,                              \
                     p->to + p->begin * (int64_t)sizeof(TYPE), t->columns.step, p->n,              \
                     t->columns.n);                                                                \
    }                                                                                              \
    /* The same where the lines of a side lie by twos. */                                          \
    static void NAME##_far(const struct transpose_state *t, const struct piece *p) {               \
        enum { WIDE = LINE / sizeof(TYPE) };                                                       \
        int64_t rows = p->n, columns = t->columns.n, from_at[WIDE], to_at[T];                      \
        for (int64_t begin = 0; begin < rows; begin += WIDE) {                                     \
            for (int64_t j = 0; j < WIDE && begin + j < rows; j += T)                              \
                lines_at(&t->rows, p->begin + last_begin(begin + j, T, rows), T, from_at + j);     \
            for (int64_t k = 0; k < columns; k += T) {                                             \
                int64_t c = last_begin(k, T, columns);                                             \
                lines_at(&t->columns, c, T, to_at);                                                \
                for (int64_t j = 0; j < WIDE && begin + j < rows; j += T) {                        \
                    int64_t r = p->begin + last_begin(begin + j, T, rows);                         \
                    NAME##_tile(p->from + c * (int64_t)sizeof(TYPE), from_at + j,                  \
                                p->to + r * (int64_t)sizeof(TYPE), to_at);                         \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void NAME##_one(const struct transpose_state *t, const struct piece *p, int64_t r,      \
                           int64_t c) {                                                            \
        memcpy(p->to + c * t->columns.step + r * (int64_t)sizeof(TYPE),                            \
               p->from + r * t->rows.step + c * (int64_t)sizeof(TYPE), sizeof(TYPE));              \
    }                                                                                              \
    /* few columns: vectors of each row are read, of which the first ones count */                 \
    INLINE void NAME##_split_to(const struct transpose_state *t, const struct piece *p, int few) { \
        NAME##_vector v[T];                                                                        \
        int64_t end = p->begin + p->n;                                                             \
        for (int64_t j = p->begin; j < end; j += T) {                                              \
            int64_t r = j + T <= end ? j : end - T;                                                \
            const char *from = p->from + r * t->rows.step;                                         \
            if (p->end - from < (T - 1) * t->rows.step + (int64_t)sizeof *v) {                     \
                for (int64_t k = 0; k < T * few; k++)                                              \
                    NAME##_one(t, p, r + k / few, k % few);                                        \
                continue;                                                                          \
            }                                                                                      \
            _Pragma("GCC unroll 16") for (int k = 0; k < T; k++)                                   \
                memcpy(&v[k], from + k * t->rows.step, sizeof *v);                                 \
            NAME##_turn(v);                                                                        \
            _Pragma("GCC unroll 16") for (int k = 0; k < few; k++)                                 \
                memcpy(p->to + k * t->columns.step + r * (int64_t)sizeof(TYPE), &v[k], sizeof *v); \
        }                                                                                          \
    }
PLANE(bytes, uint8_t, 16)
PLANE(twos, uint16_t, 8)
PLANE(fours, uint32_t, 4)
PLANE(eights, uint64_t, 2)

static void twos_split(const struct transpose_state *t, const struct piece *p) {
    switch (t->columns.n) {
#define FEW(n)                                                                                     \
    case n:                                                                                        \
        twos_split_to(t, p, n);                                                                    \
        return;
        FEW(2)
        FEW(3)
        FEW(4)
        FEW(5)
        FEW(6)
        FEW(7)
#undef FEW
    }
}
static void fours_split(const struct transpose_state *t, const struct piece *p) {
    fours_split_to(t, p, 3);
}
// Elements of sizes that vectors have not: a line of the result by runs, in each of some lines of
// the operand that stay in the nearest cache.
static void by_runs(const struct transpose_state *t, const struct piece *p) {
    const char *from = p->from + p->begin * t->rows.step;
    char *to = p->to + p->begin * t->size;
    int64_t columns = t->columns.n, most = t->size < NEAR_RUN ? columns : NEAR_LINES;
    if (p->n < FEW_RUNS)
        for (int64_t c = 0; c < columns; c += most)
            for (int64_t r = 0; r < p->n; r++) {
                int64_t n = columns - c < most ? columns - c : most;
                cpu_copy_runs(to + c * t->columns.step + r * t->size, t->columns.step,
                              from + r * t->rows.step + c * t->size, t->size, t->size, n);
            }
    else
        for (int64_t c = 0; c < columns; c++)
            cpu_copy_runs(to + c * t->columns.step, t->size, from + c * t->size, t->rows.step,
                          t->size, p->n);
}

// split: NULL where kernels do as well.
static const struct form {
    int64_t size, tile;
    plane_fn *plane;
    piece_fn *whole, *far, *split;
} planes[] = {{1, 16, bytes_plane, bytes_long, bytes_far, NULL},
              {2, 8, twos_plane, twos_long, twos_far, twos_split},
              {4, 4, fours_plane, fours_long, fours_far, fours_split},
              {8, 2, eights_plane, eights_long, eights_far, NULL}};

// Sides shorter than a tile, elements of 16 bytes: by squares that stay in the nearest cache.
static void by_squares(int64_t size, const char *from, int64_t rows, int64_t columns, char *to) {
    enum { SIDE = 16 };
    for (int64_t r0 = 0; r0 < rows; r0 += SIDE)
        for (int64_t c0 = 0; c0 < columns; c0 += SIDE)
            for (int64_t r = r0; r < r0 + SIDE && r < rows; r++)
                for (int64_t c = c0; c < c0 + SIDE && c < columns; c++)
                    memcpy(to + (c * rows + r) * size, from + (r * columns + c) * size,
                           (size_t)size);
}
void cpu_transpose_matrix(int64_t size, const void *from, int64_t rows, int64_t columns, void *to) {
    if (rows == 1 || columns == 1) {
        memcpy(to, from, (size_t)(rows * columns * size));
        return;
    }
    for (size_t k = 0; k < sizeof planes / sizeof *planes; k++)
        if (planes[k].size == size && rows >= planes[k].tile && columns >= planes[k].tile) {
            planes[k].plane(from, columns * size, to, rows * size, rows, columns);
            return;
        }
    if (size == 16)
        by_squares(16, from, rows, columns, to);
    else
        by_squares(size, from, rows, columns, to);
}

// ---- which

// The sides in the order of the result's memory, neighbours that stay neighbours as one. Gives how
// many; -1: something else.
static int sides_of(const struct hlo_instr *i, struct side *sides) {
    struct shape_phys from, to;
    int64_t in[HLO_MAX_RANK], stride = 1, out = 1;
    int n = 0;
    shape_physical(i->operands[0]->shape, &from);
    shape_physical(i->shape, &to);
    if (to.rank != i->shape->rank || from.rank != to.rank) return -1; // blocks
    for (int k = from.rank - 1; k >= 0; k--) {
        in[from.of[k]] = stride;
        stride *= from.dims[k];
    }
    for (int k = to.rank - 1; k >= 0; k--) { // from the innermost on
        int d = to.of[k];
        int64_t step = in[i->op == HLO_TRANSPOSE ? HLO_ATTR(i, dims)->dimensions.v[d] : d];
        int64_t extent = to.dims[k];
        if (extent == 1) continue;
        if (n && sides[n - 1].in * sides[n - 1].n == step)
            sides[n - 1].n *= extent;
        else
            sides[n++] = (struct side){extent, step, out};
        out *= extent;
    }
    return n;
}
// Few elements of the innermost side that stay together are one of a larger size.
static int together(struct side *sides, int n, int64_t *size) {
    int64_t few = sides[0].n;
    if (n < 3 || sides[0].in != 1 || few > MOST_RUN) return n;
    *size *= few;
    for (int k = 1; k < n; k++)
        sides[k - 1] = (struct side){sides[k].n, sides[k].in / few, sides[k].out / few};
    return n - 1;
}
static int beside(const struct side *sides, int n, const struct side *of, bool in) {
    for (int k = 0; k < n; k++)
        if (&sides[k] != of && (in ? sides[k].in : sides[k].out) == of->n) return k;
    return -1;
}
// Rows and columns of the planes; *used: sides that are in them, as bits. NULL: there are none.
static piece_fn *sides_in_planes(const struct form *f, const struct side *sides, int n, int along,
                                 struct transpose_state *t, unsigned *used) {
    const struct side *a = &sides[along], *b = &sides[0];
    int a2 = beside(sides, n, a, true), b2 = beside(sides, n, b, false);
    bool a_few = a->n < f->tile, b_few = b->n < f->tile;
    t->alone = true;
    if (!a_few && !b_few) return f->tile == 2 && b->n <= FEW_WIDE && b2 == along ? NULL : f->whole;

    bool between = (!a_few || a2 > 0) && (!b_few || (b2 >= 0 && b2 != along));
    if (between && !(a_few && b_few && a2 == b2)) {
        if (a_few) {
            t->columns.n *= sides[a2].n;
            t->columns.far = sides[a2].out * f->size;
            *used |= 1U << a2;
        }
        if (b_few) {
            t->rows.n *= sides[b2].n;
            t->rows.far = sides[b2].in * f->size;
            *used |= 1U << b2;
        }
        return t->columns.n < f->tile || t->rows.n < f->tile ? NULL : f->far;
    }
    // Kernels do better with two lines of 32 bits, and with long lines of several planes.
    t->alone = false;
    bool kernel = (f->size == 4 && a->n == 2) || (n > 2 && a->n < 4 && b->n >= LONG_LINE);
    return a_few && !b_few && a2 == 0 && !kernel ? f->split : NULL;
}
static void lines_of(struct transpose_state *t, const struct side *sides, int along) {
    const struct side *a = &sides[along], *b = &sides[0];
    t->columns = (struct lines){a->n, a->n, a->out * t->size, 0};
    t->rows = (struct lines){b->n, b->n, b->in * t->size, 0};
    t->alone = t->size <= ALONE_RUN;
}
// Does a kernel make whole vectors of the short rows of runs, which the columns are beside?
static bool rows_in_vectors(const struct side *a, const struct side *b, int64_t size,
                            enum dtype t) {
    enum { WORD = 8, SHORT_ROW = 6 };
    int64_t word = dtype_size(t) < WORD ? dtype_size(t) : WORD, run = size / word;
    return (a->out == b->n && b->n * run <= SHORT_ROW) ||
           (b->in == a->n && a->n * run <= SHORT_ROW && word == 1);
}
static bool state_of(const struct hlo_instr *i, struct transpose_state *t) {
    struct side sides[HLO_MAX_RANK];
    int n = sides_of(i, sides), along = -1;
    const struct form *f = NULL;
    unsigned used;
    if (n < 2) return false;
    *t = (struct transpose_state){
        .size = dtype_size(i->shape->dtype), .bytes = shape_bytes(i->shape), .units = 1};
    n = together(sides, n, &t->size);
    for (int k = 1; k < n; k++)
        if (sides[k].in == 1) along = k;
    for (size_t k = 0; k < sizeof planes / sizeof *planes; k++)
        if (planes[k].size == t->size) f = &planes[k];
    if (along < 0) return false;
    bool runs = !f || t->size > dtype_size(i->shape->dtype);
    if (runs && rows_in_vectors(&sides[along], sides, t->size, i->shape->dtype)) return false;

    lines_of(t, sides, along);
    used = 1U | 1U << along;
    t->run = f ? sides_in_planes(f, sides, n, along, t, &used) : NULL;
    if (!t->run && runs && (!f || (n == 2 && sides[0].n < FEW_RUNS))) {
        lines_of(t, sides, along);
        used = 1U | 1U << along;
        f = NULL;
        t->run = by_runs;
    }
    if (!t->run) return false;
    for (int k = n - 1; k > 0; k--)
        if (!(used >> k & 1)) {
            t->units *= sides[k].n;
            t->around[t->rank++] = sides[k];
        }
    t->chunk = f && t->run == f->split ? FEW_CHUNK : f ? LINES * LINE / t->size : RUNS;
    t->chunks = t->rows.n / t->chunk ? t->rows.n / t->chunk : 1; // the last one takes the rest
    t->units *= t->chunks;
    return true;
}
static bool turns(const struct hlo_instr *i, struct transpose_state *t) {
    return (i->op == HLO_TRANSPOSE || i->op == HLO_COPY) && !shape_is_tuple(i->shape) &&
           !i->shape->dynamic && !i->operands[0]->shape->dynamic && shape_elements(i->shape) > 0 &&
           state_of(i, t);
}
bool cpu_transpose_alone(const struct hlo_instr *i) {
    struct transpose_state t;
    return i->op == HLO_TRANSPOSE && turns(i, &t) && t.alone && shape_elements(i->shape) >= ALONE;
}
static bool transpose_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                              const char **why) {
    struct transpose_state t;
    *why = "not a transposition of long sides";
    return turns(i, &t);
}

// ---- running

static int64_t grain_of(const struct transpose_state *t) {
    int64_t rows = t->rows.n < t->chunk ? t->rows.n : t->chunk;
    return GRAIN / (t->columns.n * rows * t->size) + 1;
}
static status_t transpose_open(struct cpu_exe *x, struct cpu_step *s) {
    struct transpose_state *t = arena_new_of(&x->arena, struct transpose_state);
    if (!state_of(s->plan->instr, t)) return st_internal("not a transposition of sides");
    s->alone = t->units < 2 * grain_of(t);
    s->apart = true;
    s->detail = "transpose";
    s->state = t;
    return ST_OK;
}
struct transpose_call {
    const struct transpose_state *t;
    void **bufs;
};
static void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct transpose_call *call = ctx;
    const struct transpose_state *t = call->t;
    for (int64_t u = begin; u < end; u++) {
        int64_t first = u % t->chunks * t->chunk, rest = u / t->chunks, in = 0, out = 0;
        for (int k = t->rank - 1; k >= 0; k--) {
            in += rest % t->around[k].n * t->around[k].in;
            out += rest % t->around[k].n * t->around[k].out;
            rest /= t->around[k].n;
        }
        struct piece p = {.from = (const char *)call->bufs[0] + in * t->size,
                          .end = (const char *)call->bufs[0] + t->bytes,
                          .to = (char *)call->bufs[1] + out * t->size,
                          .begin = first,
                          .n = u % t->chunks == t->chunks - 1 ? t->rows.n - first : t->chunk};
        t->run(t, &p);
    }
}
static status_t transpose_run(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct transpose_state *t = s->state;
    struct transpose_call call = {t, bufs};
    cpu_parallel(part, &call, t->units, grain_of(t));
    return ST_OK;
}
const struct cpu_impl cpu_impl_transpose = {
    "transpose", transpose_accepts, transpose_open, NULL, transpose_run, NULL, NULL, NULL};
