// SPDX-License-Identifier: Apache-2.0
// dim-maps: movements in which each dimension says by itself where it comes from (dim_maps.h), a
// row of the result at a time: copies of runs, which are the same for all rows. Operand and result
// lie alike (rows, channels last, blocks), and what lies in blocks stays in its place. Does not:
// rows that are mostly single elements out of order; a kernel moves these.
#include "compiler/passes/fusion/dim_maps.h"
#include "devices/cpu/cpu.h"

enum { GRAIN = 100000 }; // bytes that a thread takes at least

struct piece { // of a row: bytes
    int64_t to, from, n;
};
struct dim_maps_state {
    int rank;                            // of what stands before the row
    int64_t dims[2 * HLO_MAX_RANK];      // of the result
    const int64_t *at[2 * HLO_MAX_RANK]; // bytes of the operand by place
    int64_t rows, row, whole;            // how many, bytes of one; 0: has pieces
    struct piece *piece;
    int64_t n;
};

// The dimension that physical dim k of both is the whole of, or -1: it must stay as it is.
static int64_t moved(const struct shape_phys *p, int k, const struct dim_maps *m) {
    int n = 0;
    for (int e = 0; e < p->rank; e++)
        n += p->of[e] == p->of[k];
    return n == 1 && m->at[p->of[k]] ? p->of[k] : -1;
}
static bool alike(const struct shape_phys *from, const struct shape_phys *to,
                  const struct dim_maps *m) {
    if (from->rank != to->rank) return false;
    for (int k = 0; k < to->rank; k++) {
        if (from->of[k] != to->of[k] || from->step[k] != to->step[k]) return false;
        if (moved(to, k, m) < 0 && (m->at[to->of[k]] || from->dims[k] != to->dims[k])) return false;
    }
    return true;
}
// Runs of the row that dimension d is, `size` bytes an element.
static void pieces_of(const int64_t *at, int64_t n, int64_t size, struct piece *out) {
    for (int64_t k = 0, end; k < n; k = end) {
        for (end = k + 1; end < n && at[end] == at[end - 1] + 1;)
            end++;
        *out++ = (struct piece){k * size, at[k] * size, (end - k) * size};
    }
}
static bool open_state(struct arena *a, const struct hlo_instr *i, struct dim_maps_state *s) {
    struct dim_maps m;
    struct shape_phys from, to;
    if (!dim_maps_match(i) || !dim_maps_of(a, i, &m)) return false;
    shape_physical(i->operands[0]->shape, &from);
    shape_physical(i->shape, &to);
    if (!alike(&from, &to, &m)) return false;

    int64_t size = dtype_size(i->shape->dtype), in[2 * HLO_MAX_RANK];
    int last = to.rank - 1;
    for (; last >= 0 && moved(&to, last, &m) < 0; last--)
        size *= to.dims[last];
    if (last < 0) return false;
    const int64_t *at = m.at[to.of[last]];
    s->n = dim_maps_runs(at, to.dims[last], size / dtype_size(i->shape->dtype));
    if (!s->n) return false;
    s->piece = arena_array(a, struct piece, s->n);
    pieces_of(at, to.dims[last], size, s->piece);
    s->row = size * to.dims[last];
    s->rank = last;
    s->rows = 1;
    in[last] = size;
    for (int k = last - 1; k >= 0; k--) {
        in[k] = in[k + 1] * from.dims[k + 1];
        int64_t d = moved(&to, k, &m), *t = arena_array(a, int64_t, to.dims[k]);
        for (int64_t e = 0; e < to.dims[k]; e++)
            t[e] = (d < 0 ? e : m.at[d][e]) * in[k];
        s->at[k] = t;
        s->dims[k] = to.dims[k];
        s->rows *= to.dims[k];
    }
    return true;
}
static bool dim_maps_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                             const char **why) {
    struct arena a = {0};
    struct dim_maps_state s;
    *why = "no movement along one dimension after another";
    bool ok = dim_maps_match(i) && open_state(&a, i, &s);
    arena_done(&a);
    return ok;
}
static status_t dim_maps_open(struct cpu_exe *x, struct cpu_step *s) {
    struct dim_maps_state *d = arena_new_of(&x->arena, struct dim_maps_state);
    if (!open_state(&x->arena, s->plan->instr, d)) return st_internal("accepted another movement");
    s->state = d;
    s->alone = d->rows * d->row < 2 * GRAIN;
    s->apart = true;
    s->detail = "dim-maps";
    return ST_OK;
}
struct dim_maps_call {
    const struct dim_maps_state *s;
    const char *from;
    char *to;
};
static inline void copy(char *to, const char *from, int64_t n) {
    if (n == 4)
        memcpy(to, from, 4);
    else if (n == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, (size_t)n);
}
static void rows(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct dim_maps_call *c = ctx;
    const struct dim_maps_state *s = c->s;
    int64_t place[2 * HLO_MAX_RANK], left = begin;
    for (int k = s->rank - 1; k >= 0; k--) {
        place[k] = left % s->dims[k];
        left /= s->dims[k];
    }
    for (int64_t r = begin; r < end; r++) {
        const char *from = c->from;
        char *to = c->to + r * s->row;
        for (int k = 0; k < s->rank; k++)
            from += s->at[k][place[k]];
        for (int64_t p = 0; p < s->n; p++)
            copy(to + s->piece[p].to, from + s->piece[p].from, s->piece[p].n);
        for (int k = s->rank - 1; k >= 0 && ++place[k] == s->dims[k]; k--)
            place[k] = 0;
    }
}
static status_t dim_maps_run(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct dim_maps_state *d = s->state;
    struct dim_maps_call c = {d, bufs[0], bufs[1]};
    cpu_parallel(rows, &c, d->rows, 1 + GRAIN / d->row);
    return ST_OK;
}
const struct cpu_impl cpu_impl_dim_maps = {
    "dim-maps", dim_maps_accepts, dim_maps_open, NULL, dim_maps_run, NULL, NULL, NULL};
