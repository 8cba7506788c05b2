// SPDX-License-Identifier: Apache-2.0
// cpu_gemm_run: a product of matrices by blocks, as cpu_gemm.c opened it. A block of columns is
// packed in panels as wide as a tile, row by row; the few rows of a tile are packed beside it and
// stay in the nearest cache while they pass the panels. What lies in memory as a tile reads it is
// read there where packing would not pay: columns that few rows pass, rows that pass few panels.
// Tiles are summed to the result in place but at its edges.
#include <string.h>

#include "base/span.h"
#include "devices/cpu/cpu.h"
#include "devices/cpu/gemm/cpu_gemm.h"

enum {
    DIRECT_ROWS = 6,   // tiles' heights up to which columns are read where they lie
    CROWDED_ROWS = 3,  // the same where their lines meet in few places of the nearest cache:
    CROWDED = 1024,    // bytes between lines are a multiple of this
    DIRECT_PANELS = 4, // panels up to which rows are
    MOST_LINES = GEMM_WIDTH_BYTES / 4 + GEMM_VECS * 16,
    MOST_PANELS = 64
};
struct panel {
    const void *b;
    const int64_t *depth;
    int64_t col;
    int cols, vecs, wide;
    bool side, whole; // its results lie side by side; and fill its vectors
};
struct block {
    int64_t group, at, k; // depths [at, at + k)
    int64_t steps;        // of a packed panel
    struct panel panel[MOST_PANELS];
    int n;
    struct gemm_piece piece[MOST_LINES];
    int n_pieces;
};

static bool even(const int64_t *v, int n, int64_t step) {
    for (int e = 1; e < n; e++)
        if (v[e] - v[e - 1] != step) return false;
    return true;
}
static int64_t step_of(const int64_t *v, int n) {
    return n > 1 ? v[1] - v[0] : 1;
}
static int64_t last_depth(const int64_t *depth, int64_t k) {
    int64_t last = depth[0];
    for (int64_t d = 1; d < k; d++)
        if (depth[d] > last) last = depth[d];
    return last;
}
// Lines as pieces of even steps, from TO on in a panel. Gives how many. ROOM: elements behind the
// first one of the operand's group that may be read at depth 0.
static int pieces_of(const int64_t *line, int n, int64_t to, int wide, int64_t room, int lanes,
                     struct gemm_piece *out) {
    int made = 0;
    for (int e = 0; e < n;) {
        int64_t step = n - e > 1 ? line[e + 1] - line[e] : 0;
        int end = e + 1;
        while (end < n && line[end] - line[end - 1] == step)
            end++;
        int count = end - e;
        int64_t beyond = line[e] + (count + lanes - 1) / lanes * lanes;
        out[made++] = (struct gemm_piece){.from = line[e],
                                          .step = step,
                                          .to = to + e,
                                          .n = count,
                                          .wide = wide,
                                          .exact = beyond > room};
        e = end;
    }
    return made;
}
static void columns_of(const struct gemm_call *c, struct block *b, int64_t col, int64_t cols,
                       bool direct, char *scratch) {
    const struct gemm_state *g = c->g;
    int lanes = g->kernel->lanes;
    int64_t vecs = ceil_div(cols, lanes), n = ceil_div(vecs, g->kernel->vecs), to = 0;
    int64_t group = g->b.group[b->group];
    int64_t room = g->b.elements - group - last_depth(g->b.depth + b->at, b->k);
    const char *base = (const char *)c->b + group * g->b.each;
    b->n = (int)n, b->n_pieces = 0;

    for (int64_t e = 0, vec = 0; e < n; e++) {
        struct panel *p = &b->panel[e];
        int64_t end = vecs * (e + 1) / n, left = cols - vec * lanes;
        *p = (struct panel){.col = col + vec * lanes, .vecs = (int)(end - vec)};
        p->wide = p->vecs * lanes;
        p->cols = left < p->wide ? (int)left : p->wide;
        p->side = even(g->n_out + p->col, p->cols, 1);
        p->whole = p->cols == p->wide && p->side;
        const int64_t *line = g->b.line + p->col;
        vec = end;
        if (direct && p->cols == p->wide && even(line, p->cols, 1)) {
            p->b = base + line[0] * g->each, p->depth = g->b.depth + b->at;
            continue;
        }
        p->b = scratch + to * g->each, p->depth = g->steps[GEMM_VECS + p->vecs - 1];
        b->n_pieces += pieces_of(line, p->cols, to, p->wide, room, g->isa->vector / (int)g->each,
                                 b->piece + b->n_pieces);
        if (p->cols < p->wide)
            memset(scratch + to * g->each, 0, (size_t)(b->steps * p->wide * g->each));
        to += b->steps * p->wide + g->isa->vector / g->each;
    }
    if (b->n_pieces) g->b.pack(b->piece, b->n_pieces, base, g->b.depth + b->at, b->k, scratch);
}

#define ADD(NAME, TYPE)                                                                            \
    static void add_##NAME(TYPE *to, int64_t row, const int64_t *col, const struct panel *p,       \
                           const TYPE *tile, int parts, bool add) {                                \
        TYPE *at = to + parts * row;                                                               \
        if (p->side && add)                                                                        \
            for (int c = 0; c < p->cols * parts; c++)                                              \
                at[parts * col[0] + c] += tile[c];                                                 \
        else                                                                                       \
            for (int c = 0; c < p->cols; c++)                                                      \
                for (int e = 0; e < parts; e++) {                                                  \
                    TYPE *one = at + parts * col[c] + e, v = tile[c * parts + e];                  \
                    *one = add ? *one + v : v;                                                     \
                }                                                                                  \
    }
ADD(f32, float)
ADD(f64, double)
ADD(u32, uint32_t)
ADD(u64, uint64_t)
static void add_tile(const struct gemm_state *g, char *to, int64_t row, int rows,
                     const struct panel *p, const char *tile, bool add) {
    const int64_t *m = g->m_out + row, *n = g->n_out + p->col;
    int parts = dtype_is_complex(g->type) ? 2 : 1;
    int64_t step = step_of(m, rows), wide = p->wide * g->each;
    if (!add && p->side && even(m, rows, step)) {
        cpu_copy_runs(to + (m[0] + n[0]) * g->each, step * g->each, tile, wide, p->cols * g->each,
                      rows);
        return;
    }
    for (int r = 0; r < rows; r++, tile += wide)
        if (g->type == DT_C64 || g->type == DT_F32)
            add_f32((float *)to, m[r], n, p, (const float *)tile, parts, add);
        else if (g->type == DT_F64 || g->type == DT_C128)
            add_f64((double *)to, m[r], n, p, (const double *)tile, parts, add);
        else if (g->each == 4)
            add_u32((uint32_t *)to, m[r], n, p, (const uint32_t *)tile, 1, add);
        else
            add_u64((uint64_t *)to, m[r], n, p, (const uint64_t *)tile, 1, add);
}
// What the tile fetches meanwhile: its own lines further on, or where these are few the next one's.
static void ahead(struct gemm_tile *t, const struct panel *p, const struct panel *next) {
    bool far = t->k > 4 * GEMM_AHEAD;
    t->next = far ? p->b : next->b;
    t->next_depth = far ? p->depth + GEMM_AHEAD : next->depth;
}
// ROWS rows from ROW on, in tiles of height H, against a block of columns.
static void rows_of(const struct gemm_call *c, const struct block *b, int64_t row, int rows, int h,
                    char *scratch) {
    const struct gemm_state *g = c->g;
    int high = g->kernel->rows[h];
    const int64_t *line = g->a.line + row, *depth = g->a.depth + b->at;
    int64_t group = g->a.group[b->group], step = step_of(line, rows);
    const char *base = (const char *)c->a + group * g->a.each;
    char *out = (char *)c->out + g->g_out[b->group] * g->each;
    char tile[GEMM_TILE_BYTES] __attribute__((aligned(64)));
    struct gemm_tile t = {
        .k = b->steps, .out_row = step_of(g->m_out + row, rows), .add = b->at > 0};
    bool direct = g->together == 1 && b->n <= DIRECT_PANELS;
    if (rows == high && direct && even(line, rows, step)) {
        t.a = base + line[0] * g->each, t.a_row = step, t.a_depth = depth;
    } else {
        struct gemm_piece piece[8];
        int64_t room = g->a.elements - group - last_depth(depth, b->k);
        int n = pieces_of(line, rows, 0, high, room, g->isa->vector / (int)g->each, piece);
        if (rows < high) memset(scratch, 0, (size_t)(b->steps * high * g->each));
        g->a.pack(piece, n, base, depth, b->k, scratch);
        t.a = scratch, t.a_row = 1, t.a_depth = g->steps[h];
    }

    bool whole = rows == high && even(g->m_out + row, rows, t.out_row);
    for (const struct panel *p = b->panel; p < b->panel + b->n; p++) {
        struct gemm_tile one = t;
        one.b = p->b, one.b_depth = p->depth;
        ahead(&one, p, p + 1 < b->panel + b->n ? p + 1 : b->panel);
        if (whole && p->whole) {
            one.out = out + (g->m_out[row] + g->n_out[p->col]) * g->each;
        } else {
            one.out = tile, one.out_row = p->wide, one.add = false;
        }
        g->kernel->tile[h][p->vecs - 1](&one);
        if (one.out == tile) add_tile(g, out, row, rows, p, tile, t.add);
    }
}
// Do `rows` rows pass columns where these lie?
static bool in_place(const struct gemm_state *g, int64_t rows) {
    int64_t step = g->k > 1 ? (g->b.depth[1] - g->b.depth[0]) * g->each : 0;
    return rows <= (int64_t)(step % CROWDED ? DIRECT_ROWS : CROWDED_ROWS) * g->kernel->rows[0];
}
// The height of a tile for what is left: the least that holds it, or a smaller one where more than
// a quarter would be empty.
static int height_of(const int *rows, int64_t left) {
    int h = 2;
    while (h > 0 && rows[h] < left)
        h--;
    return rows[h] - left > rows[h] / 4 && h < 2 ? h + 1 : h;
}
static void unit(const struct gemm_call *c, int64_t u, char *scratch) {
    const struct gemm_state *g = c->g;
    int64_t part = u % g->parts, block = u / g->parts % g->blocks;
    int64_t from = part * g->tall, to = from + g->tall < g->m ? from + g->tall : g->m;
    int64_t col = block * g->width, cols = g->n - col < g->width ? g->n - col : g->width;
    bool direct = g->together == 1 && in_place(g, to - from);
    struct block b = {.group = u / g->parts / g->blocks};
    for (b.at = 0; b.at < g->k; b.at += GEMM_DEPTH) {
        b.k = g->k - b.at < GEMM_DEPTH ? g->k - b.at : GEMM_DEPTH;
        b.steps = ceil_div(b.k, g->together);
        columns_of(c, &b, col, cols, direct, scratch + g->packed_a);
        for (int64_t row = from; row < to;) {
            int h = height_of(g->kernel->rows, to - row), high = g->kernel->rows[h];
            int rows = to - row < high ? (int)(to - row) : high;
            rows_of(c, &b, row, rows, h, scratch);
            row += rows;
        }
    }
}
void cpu_gemm_units(void *call, int64_t begin, int64_t end, int thread) {
    const struct gemm_call *c = call;
    for (int64_t u = begin; u < end; u++)
        unit(c, u, c->scratch + thread * c->g->total);
}
