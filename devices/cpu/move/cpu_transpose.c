// SPDX-License-Identifier: Apache-2.0
// transpose: changes of the order of dimensions after which another one lies along memory: planes
// of two dimensions, one along the operand's memory and one along the result's, are turned by tiles
// of a vector's width in registers; the other dimensions say where planes lie. A line of the cache
// of the result is written at once.
// Does not: orders that keep whole runs together (a kernel moves those as well), sides shorter than
// a tile, blocks of channels.
#include "devices/cpu/cpu.h"

enum { LINE = 64, LINES = 4 };  // bytes of a line; lines of the result's side in a unit
enum { GRAIN = 100000 };        // bytes that one thread takes at least: about 20 us
enum { ALONE = 2048 };          // elements: a step of its own costs less than what a kernel loses

typedef void plane_fn(const char *from, int64_t from_row, char *to, int64_t to_row, int64_t rows,
                      int64_t columns);
struct side {
    int64_t n, in, out; // extent; strides in elements
};
struct transpose_state {
    int rank; // of what stands around the planes
    struct side around[HLO_MAX_RANK], a, b; // a lies along the operand, b along the result
    int64_t size, chunk, chunks, units;     // chunk: of b
    plane_fn *plane;
};

// ---- tiles

// One of T by T elements in vectors of T: row j of the operand's tile holds neighbours along a.
// Each round puts the halves of a row beside those of another; after log2(T) rounds all are turned.
#define INLINE static inline __attribute__((always_inline))
#define PLANE(NAME, TYPE, T)                                                                       \
    typedef TYPE NAME##_vector __attribute__((vector_size(T * sizeof(TYPE))));                     \
    INLINE void NAME##_tile(const char *from, int64_t from_row, char *to, int64_t to_row) {        \
        NAME##_vector v[T], w[T];                                                                  \
        _Pragma("GCC unroll 16") for (int k = 0; k < T; k++)                                       \
            memcpy(&v[k], from + k * from_row, sizeof *v);                                         \
        _Pragma("GCC unroll 4") for (int half = 1; half < T; half *= 2) {                          \
            _Pragma("GCC unroll 8") for (int k = 0; k < T / 2; k++) {                              \
                w[2 * k] = __builtin_shufflevector(v[k], v[k + T / 2], LOW_##T);                   \
                w[2 * k + 1] = __builtin_shufflevector(v[k], v[k + T / 2], HIGH_##T);              \
            }                                                                                      \
            _Pragma("GCC unroll 16") for (int k = 0; k < T; k++) v[k] = w[k];                      \
        }                                                                                          \
        _Pragma("GCC unroll 16") for (int k = 0; k < T; k++)                                       \
            memcpy(to + k * to_row, &v[k], sizeof *v);                                             \
    }                                                                                              \
    /* rows along b, columns along a: both at least T. The last tile of a side may overlap. */     \
    static void NAME##_plane(const char *from, int64_t from_row, char *to, int64_t to_row,         \
                             int64_t rows, int64_t columns) {                                      \
        enum { WIDE = LINE / sizeof(TYPE) };                                                       \
        for (int64_t begin = 0; begin < rows; begin += WIDE)                                       \
            for (int64_t k = 0; k < columns; k += T) {                                             \
                int64_t c = k + T <= columns ? k : columns - T;                                    \
                for (int64_t j = begin; j < begin + WIDE && j < rows; j += T) {                    \
                    int64_t r = j + T <= rows ? j : rows - T;                                      \
                    NAME##_tile(from + r * from_row + c * (int64_t)sizeof(TYPE), from_row,         \
                                to + c * to_row + r * (int64_t)sizeof(TYPE), to_row);              \
                }                                                                                  \
            }                                                                                      \
    }
#define LOW_16  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOW_8   0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8  4, 12, 5, 13, 6, 14, 7, 15
#define LOW_4   0, 4, 1, 5
#define HIGH_4  2, 6, 3, 7
#define LOW_2   0, 2
#define HIGH_2  1, 3
PLANE(bytes, uint8_t, 16)
PLANE(twos, uint16_t, 8)
PLANE(fours, uint32_t, 4)
PLANE(eights, uint64_t, 2)

static const struct {
    int64_t size, tile;
    plane_fn *plane;
} planes[] = {{1, 16, bytes_plane}, {2, 8, twos_plane}, {4, 4, fours_plane}, {8, 2, eights_plane}};

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
static bool state_of(const struct hlo_instr *i, struct transpose_state *t) {
    struct side sides[HLO_MAX_RANK];
    int n = sides_of(i, sides), along = -1;
    int64_t tile = 0;
    if (n < 2 || sides[0].in == 1) return false;
    *t = (struct transpose_state){.b = sides[0], .size = dtype_size(i->shape->dtype), .units = 1};
    for (int k = 1; k < n; k++)
        if (sides[k].in == 1) along = k;
    if (along < 0) return false;
    t->a = sides[along];
    for (int k = n - 1; k > 0; k--)
        if (k != along) {
            t->units *= sides[k].n;
            t->around[t->rank++] = sides[k];
        }
    for (size_t k = 0; k < sizeof planes / sizeof *planes; k++)
        if (planes[k].size == t->size) {
            t->plane = planes[k].plane;
            tile = planes[k].tile;
        }
    t->chunk = LINES * LINE / t->size;
    t->chunks = t->b.n / t->chunk ? t->b.n / t->chunk : 1; // the last one takes the rest
    t->units *= t->chunks;
    return t->plane && t->a.n >= tile && t->b.n >= tile;
}
static bool turns(const struct hlo_instr *i) {
    struct transpose_state t;
    return (i->op == HLO_TRANSPOSE || i->op == HLO_COPY) && !shape_is_tuple(i->shape) &&
           !i->shape->dynamic &&
           !i->operands[0]->shape->dynamic && shape_elements(i->shape) > 0 && state_of(i, &t);
}
bool cpu_transpose_alone(const struct hlo_instr *i) {
    return i->op == HLO_TRANSPOSE && turns(i) && shape_elements(i->shape) >= ALONE;
}
static bool transpose_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                              const char **why) {
    *why = "not a transposition of long sides";
    return turns(i);
}

// ---- running

static int64_t grain_of(const struct transpose_state *t) {
    int64_t b = t->b.n < t->chunk ? t->b.n : t->chunk;
    return GRAIN / (t->a.n * b * t->size) + 1;
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
        int64_t b = u % t->chunks * t->chunk, rest = u / t->chunks;
        int64_t in = b * t->b.in, out = b;
        int64_t rows = u % t->chunks == t->chunks - 1 ? t->b.n - b : t->chunk;
        for (int k = t->rank - 1; k >= 0; k--) {
            in += rest % t->around[k].n * t->around[k].in;
            out += rest % t->around[k].n * t->around[k].out;
            rest /= t->around[k].n;
        }
        t->plane((const char *)call->bufs[0] + in * t->size, t->b.in * t->size,
                 (char *)call->bufs[1] + out * t->size, t->a.out * t->size, rows, t->a.n);
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
