// SPDX-License-Identifier: Apache-2.0
// pad: whole rows of the operand between runs of the padding value, by copies. A row is what lies
// behind the last padded dimension in the order of memory, with it; the dimensions before it say
// which rows are all padding. Operand and result lie alike, channels last among them.
// Does not: short rows, padding between elements (a kernel's), blocks, and types below a byte.
#include "devices/cpu/cpu.h"

enum { LEAST_ROW = 32, LEAST_TOTAL = 512 }; // bytes of a row of the result, and of all of it
enum { GRAIN = 100000 };                    // bytes that one thread takes at least: about 20 us

struct pad_state {
    int rank;                                  // of what stands before the row
    int64_t in[HLO_MAX_RANK], out[HLO_MAX_RANK], low[HLO_MAX_RANK];
    int64_t size, before, run, after; // bytes of an element; elements of a row by kind
    int64_t rows;
};

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
        if (from.of[k] != to.of[k] || d->low < 0 || d->high < 0 || d->interior) return false;
        p->in[k] = from.dims[k];
        p->out[k] = to.dims[k];
        p->low[k] = d->low;
        if (d->low || d->high) last = k;
    }
    if (last < 0) return false;
    p->rank = last;
    p->size = dtype_size(i->shape->dtype);
    int64_t inner = 1;
    for (int k = last + 1; k < to.rank; k++)
        inner *= to.dims[k];
    p->before = p->low[last] * inner;
    p->run = p->in[last] * inner;
    p->after = p->out[last] * inner - p->before - p->run;
    p->rows = 1;
    for (int k = 0; k < last; k++)
        p->rows *= p->out[k];
    return true;
}
static bool pad_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                        const char **why) {
    struct pad_state p;
    *why = "not a padding of long rows";
    if (i->op != HLO_PAD || i->shape->dynamic ||
        i->operands[0]->shape->dynamic || shape_elements(i->operands[0]->shape) < 1 ||
        shape_bytes(i->shape) < LEAST_TOTAL)
        return false;
    return dims_of(i, &p) && (p.before + p.run + p.after) * p.size >= LEAST_ROW;
}
static int64_t rows_at_least(const struct pad_state *p) {
    return GRAIN / ((p->before + p->run + p->after) * p->size) + 1;
}
static status_t pad_open(struct cpu_exe *x, struct cpu_step *s) {
    struct pad_state *p = arena_new_of(&x->arena, struct pad_state);
    if (!dims_of(s->plan->instr, p)) return st_internal("not a padding of rows");
    s->alone = p->rows < 2 * rows_at_least(p);
    s->apart = true;
    s->detail = "pad";
    s->state = p;
    return ST_OK;
}
struct pad_call {
    const struct pad_state *p;
    void **bufs;
};
// The operand's row that the result's row at place `c` takes in; -1: none.
static int64_t source_row(const struct pad_state *p, const int64_t *c) {
    int64_t at = 0;
    for (int k = 0; k < p->rank; k++) {
        int64_t from = c[k] - p->low[k];
        if (from < 0 || from >= p->in[k]) return -1;
        at = at * p->in[k] + from;
    }
    return at;
}
static void next_row(const struct pad_state *p, int64_t *c) {
    for (int k = p->rank - 1; k >= 0 && ++c[k] == p->out[k]; k--)
        c[k] = 0;
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
    for (int64_t r = begin; r < end; r++, to += row, next_row(p, c)) {
        int64_t source = source_row(p, c);
        if (source < 0) {
            cpu_fill(to, value, p->size, p->before + p->run + p->after);
            continue;
        }
        cpu_fill(to, value, p->size, p->before);
        cpu_copy_runs(to + p->before * p->size, 0, from + source * run, 0, run, 1);
        cpu_fill(to + p->before * p->size + run, value, p->size, p->after);
    }
}
static status_t pad_run(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct pad_state *p = s->state;
    struct pad_call call = {p, bufs};
    cpu_parallel(part, &call, p->rows, rows_at_least(p));
    return ST_OK;
}
const struct cpu_impl cpu_impl_pad = {"pad", pad_accepts, pad_open, NULL, pad_run, NULL, NULL,
                                      NULL};
