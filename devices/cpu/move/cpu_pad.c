// SPDX-License-Identifier: Apache-2.0
// pad: whole rows of the operand between runs of the padding value, by copies. A row is what lies
// behind the last padded dimension in the order of memory, with it; the dimensions before it say
// which rows are all padding. Operand and result lie alike, channels last among them.
// There may be padding between rows too. Does not: short rows in groups of few, padding between
// elements of a row (a kernel's), blocks, and types below a byte.
#include "devices/cpu/cpu.h"

// Bytes of a row of the result, and of all of it; of shorter ones so many lie one behind the other
// in the operand, since each such group costs some 20 ns (measured on Zen 4, rows of 5 to 32
// bytes).
enum { LEAST_ROW = 32, LEAST_SHORT = 8, LEAST_GROUP = 12, LEAST_TOTAL = 512 };
enum { GRAIN = 100000 }; // bytes that one thread takes at least: about 20 us
// Small images: groups of so few rows, of so many bytes, are filled some at a time (NEAR bytes of
// the result) before their rows are copied.
enum { LEAST_IMAGE = 64, MOST_GROUP = 32, MOST_SMALL = 2048, NEAR = 8192 };

struct pad_state {
    int rank; // of what stands before the row
    int64_t in[HLO_MAX_RANK], out[HLO_MAX_RANK], low[HLO_MAX_RANK];
    int64_t step[HLO_MAX_RANK];       // from one of the operand's to the next in the result
    int64_t size, before, run, after; // bytes of an element; elements of a row by kind
    int64_t rows;
    int64_t group; // rows of a small image in the result; 0: they are not small
};

// Dimensions before `last` that nothing is put before or behind are one with the one before them.
// Gives how many are left, at the beginning.
static int join_dims(struct pad_state *p, int last) {
    int n = 0;
    for (int k = 0; k < last; k++) {
        bool whole = p->in[k] == p->out[k] && p->low[k] == 0;
        bool above = n > 0 && p->in[n - 1] == p->out[n - 1] && p->low[n - 1] == 0;
        if (whole && above) {
            p->in[n - 1] *= p->in[k];
            p->out[n - 1] *= p->in[k];
            continue;
        }
        p->in[n] = p->in[k];
        p->out[n] = p->out[k];
        p->step[n] = p->step[k];
        p->low[n++] = p->low[k];
    }
    return n;
}
// The dimensions in the order of memory and what is put before each; false: something else.
static bool dims_of(const struct hlo_instr *i, struct pad_state *p) {
    const struct hlo_attr_pad *a = HLO_ATTR(i, pad);
    struct shape_phys from, to;
    shape_physical(i->operands[0]->shape, &from);
    shape_physical(i->shape, &to);
    if (to.rank != i->shape->rank || from.rank != to.rank) return false; // blocks
    int last = -1;
    for (int k = 0; k < to.rank; k++) {
        const struct pad_dim *d = &a->padding.v[to.of[k]];
        if (from.of[k] != to.of[k] || d->low < 0 || d->high < 0) return false;
        p->in[k] = from.dims[k];
        p->out[k] = to.dims[k];
        p->low[k] = d->low;
        p->step[k] = p->in[k] > 1 ? d->interior + 1 : 1; // nothing lies between one and itself
        if (d->low || d->high) last = k;
        if (p->step[k] > 1) last = k + 1; // what lies behind is moved together
    }
    if (last < 0 || last == to.rank) return false;
    int64_t before = p->low[last], run = p->in[last], out = p->out[last];
    p->rank = join_dims(p, last);
    p->size = dtype_size(i->shape->dtype);
    int64_t inner = 1;
    for (int k = last + 1; k < to.rank; k++)
        inner *= to.dims[k];
    p->before = before * inner;
    p->run = run * inner;
    p->after = out * inner - p->before - p->run;
    p->rows = 1;
    for (int k = 0; k < p->rank; k++)
        p->rows *= p->out[k];

    int64_t row = (p->before + p->run + p->after) * p->size;
    bool small =
        p->rank && p->in[p->rank - 1] <= MOST_GROUP && p->out[p->rank - 1] * row <= MOST_SMALL;
    p->group = small ? p->out[p->rank - 1] : 0;
    return true;
}
// Does a kernel make whole vectors of the rows? In small images of rows of very few elements alone.
static bool rows_in_vectors(const struct pad_state *p) {
    enum { SHORT_ROW = 7, SHORTEST_ROW = 2, LONG = 128 };
    int64_t row = p->before + p->run + p->after;
    bool alike = p->rank == 1 && p->in[0] == p->out[0], // nothing is put between rows
        steps = false;
    for (int k = 0; k < p->rank; k++)
        steps |= p->step[k] > 1;
    if (steps) return row * p->size > LONG;
    return row <= (p->group && !alike ? SHORTEST_ROW : SHORT_ROW);
}
static bool pad_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                        const char **why) {
    struct pad_state p;
    *why = "not a padding of long rows";
    if (i->op != HLO_PAD || i->shape->dynamic || i->operands[0]->shape->dynamic ||
        shape_elements(i->operands[0]->shape) < 1 || shape_bytes(i->shape) < LEAST_TOTAL)
        return false;
    if (!dims_of(i, &p) || rows_in_vectors(&p)) return false;
    int64_t row = (p.before + p.run + p.after) * p.size;
    bool groups = p.rank && p.in[p.rank - 1] >= LEAST_GROUP;
    return row >= LEAST_ROW || (row >= LEAST_SHORT && (groups || p.group * row >= LEAST_IMAGE));
}
// A unit is a row, or a small image.
static int64_t units_of(const struct pad_state *p) {
    return p->group ? p->rows / p->group : p->rows;
}
static int64_t units_at_least(const struct pad_state *p) {
    int64_t rows = p->group ? p->group : 1;
    return GRAIN / ((p->before + p->run + p->after) * p->size * rows) + 1;
}
static status_t pad_open(struct cpu_exe *x, struct cpu_step *s) {
    struct pad_state *p = arena_new_of(&x->arena, struct pad_state);
    if (!dims_of(s->plan->instr, p)) return st_internal("not a padding of rows");
    s->alone = units_of(p) < 2 * units_at_least(p);
    s->apart = true;
    s->detail = "pad";
    s->state = p;
    return ST_OK;
}
struct pad_call {
    const struct pad_state *p;
    void **bufs;
};
// The operand's row (of fewer dimensions: group of rows) that the result's at place `c` takes in;
// -1: none.
static int64_t source_row(const struct pad_state *p, int rank, const int64_t *c) {
    int64_t at = 0;
    for (int k = 0; k < rank; k++) {
        int64_t from = c[k] - p->low[k], place = from / p->step[k];
        if (from < 0 || place >= p->in[k] || from % p->step[k]) return -1;
        at = at * p->in[k] + place;
    }
    return at;
}
static void next_row(const struct pad_state *p, int rank, int64_t *c, int64_t n) {
    for (int k = rank - 1; k >= 0 && (c[k] += n) == p->out[k]; k--, n = 1)
        c[k] = 0;
}
// How many rows from place c on, at most `most`, are of a kind: all padding, or not, but for what
// is put between them, and then those of the operand lie one behind the other.
static int64_t rows_alike(const struct pad_state *p, const int64_t *c, bool padding, int64_t most) {
    enum { ROWS = 64 }; // both passes over them find them in the nearest cache
    int last = p->rank - 1;
    int64_t n = 1;
    if (p->rank) {
        int64_t begin = p->low[last], step = p->step[last],
                end = begin + (p->in[last] - 1) * step + 1,
                next = begin + ceil_div(c[last] - begin, step) * step; // the operand's
        n = c[last] < begin  ? begin - c[last]
            : c[last] >= end ? p->out[last] - c[last]
            : !padding       ? end - c[last]
            : next > c[last] ? next - c[last]
                             : p->out[last] - c[last];
        if (!padding && n > ROWS * step) n = (ROWS - 1) * step + 1;
        if (!padding && n > most) n = (most - 1) / step * step + 1;
    }
    return n < most ? n : most;
}
static void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct pad_call *call = ctx;
    const struct pad_state *p = call->p;
    const char *from = call->bufs[0], *value = call->bufs[1];
    int64_t row = (p->before + p->run + p->after) * p->size, run = p->run * p->size;
    char *to = (char *)call->bufs[2] + begin * row;
    int64_t c[HLO_MAX_RANK], rest = begin;
    for (int k = p->rank - 1; k >= 0; rest /= p->out[k--])
        c[k] = rest % p->out[k];
    int64_t step = p->rank ? p->step[p->rank - 1] : 1, pitch = row * step;
    char *free = to; // what is between two rows of the operand is filled at once
    for (int64_t r = begin, n; r < end; r += n, to += n * row, next_row(p, p->rank, c, n)) {
        int64_t source = source_row(p, p->rank, c);
        n = rows_alike(p, c, source < 0, end - r);
        if (source < 0) continue;
        char *at = to + p->before * p->size;
        cpu_fill(free, value, p->size, (at - free) / p->size);
        int64_t copied = (n - 1) / step + 1;
        cpu_copy_runs(at, pitch, from + source * run, run, run, copied);
        cpu_fill_runs(at + run, pitch, value, p->size, (pitch - run) / p->size, copied - 1);
        free = at + (n - 1) * row + run;
    }
    cpu_fill(free, value, p->size, (to - free) / p->size);
}
// Units that are small images.
static void images(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct pad_call *call = ctx;
    const struct pad_state *p = call->p;
    int outer = p->rank - 1;
    int64_t row = (p->before + p->run + p->after) * p->size, run = p->run * p->size,
            rows = p->in[outer], image = p->group * row, few = NEAR / image + 1;
    int64_t first = p->low[outer] * row + p->before * p->size, c[HLO_MAX_RANK], rest = begin;
    const char *from = call->bufs[0];
    char *to = (char *)call->bufs[2] + begin * image;
    for (int k = outer - 1; k >= 0; rest /= p->out[k--])
        c[k] = rest % p->out[k];

    for (int64_t u = begin; u < end; u += few) {
        int64_t n = end - u < few ? end - u : few;
        cpu_fill(to, call->bufs[1], p->size, n * image / p->size);
        for (int64_t k = 0; k < n; k++, to += image, next_row(p, outer, c, 1)) {
            int64_t source = source_row(p, outer, c);
            if (source < 0) continue;
            cpu_copy_runs(to + first, row * p->step[outer], from + source * rows * run, run, run,
                          rows);
        }
    }
}
static status_t pad_run(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct pad_state *p = s->state;
    struct pad_call call = {p, bufs};
    cpu_parallel(p->group ? images : part, &call, units_of(p), units_at_least(p));
    return ST_OK;
}
const struct cpu_impl cpu_impl_pad = {"pad",   pad_accepts, pad_open, NULL,
                                      pad_run, NULL,        NULL,     NULL};
