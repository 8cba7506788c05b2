// SPDX-License-Identifier: Apache-2.0
// concat: concatenation as copies of whole runs: what lies behind the concatenated dimension, with
// it, is one piece in each operand. Operands and result lie alike: rows, channels last, blocks.
// Does not: short runs, which a kernel moves better.
#include "devices/cpu/cpu.h"

// Every run of so many bytes, or runs of so many elements in the mean: a copy costs as much as some
// elements of a kernel, which looks for each one's operand. A kernel writes out short rows, but not
// of many operands (torch.stack of a loop's results); of single elements it makes whole vectors
// where they are as many as some vector's lanes.
enum { LEAST_RUN = 16, LEAST_MEAN = 2, SHORT_ROW = 7, MANY = 16, MAX_PARTS = 65536 };
enum { PIECE = 4096, GRAIN = 25 }; // bytes that one thread takes at least: about 20 us
enum { BLOCK = 16384 };            // bytes of rows that are written one operand after the other

struct concat_state {
    int n;
    int64_t *run, all, outer; // bytes of each operand's run [n] and of their sum; how many
    int64_t pieces;
};

// Bytes from dimension d on (its blocks, where it has some) in the order of memory. *block: how
// many of d lie together in a block, else 1.
static int64_t run_of(const struct shape *s, int64_t d, int64_t *block) {
    struct shape_phys p;
    int64_t bytes = dtype_size(s->dtype);
    int k = 0;
    shape_physical(s, &p);
    while (k < p.rank && p.of[k] != d)
        k++;
    *block = k < p.rank ? p.step[k] : 1;
    for (; k < p.rank; k++)
        bytes *= p.dims[k];
    return bytes;
}
static bool concat_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                           const char **why) {
    *why = "not a concatenation of long runs";
    if (i->op != HLO_CONCATENATE || i->n_operands > MAX_PARTS || shape_is_tuple(i->shape) ||
        i->shape->dynamic)
        return false;
    int64_t d = HLO_ATTR(i, dims)->dimensions.v[0], block, all = 0, least = INT64_MAX;
    for (int k = 0; k < i->n_operands; k++) {
        const struct shape *s = i->operands[k]->shape;
        if (shape_is_tuple(s) || s->dynamic || shape_elements(s) < 1) return false;
        if (!layout_equal(s->layout, i->shape->layout, s->rank)) return false;
        int64_t run = run_of(s, d, &block);
        if (run < least) least = run;
        all += run / dtype_size(s->dtype);
        // What fills the last block stays zero; one between two operands would have a gap.
        if (k < i->n_operands - 1 && s->dims[d] % block) return false;
    }
    bool lanes = dtype_size(i->shape->dtype) < 4 || (i->n_operands & (i->n_operands - 1)) == 0;
    return least >= LEAST_RUN || i->n_operands > MANY ||
           (all > SHORT_ROW && (all >= LEAST_MEAN * i->n_operands || !lanes));
}
static status_t concat_open(struct cpu_exe *x, struct cpu_step *s) {
    struct concat_state *c = arena_new_of(&x->arena, struct concat_state);
    const struct hlo_instr *i = s->plan->instr;
    int64_t d = HLO_ATTR(i, dims)->dimensions.v[0], block;
    c->n = i->n_operands;
    c->run = arena_array(&x->arena, int64_t, c->n);
    for (int k = 0; k < c->n; k++)
        c->all += c->run[k] = run_of(i->operands[k]->shape, d, &block);
    c->outer = shape_bytes(i->shape) / c->all;
    c->pieces = (c->outer * c->all + PIECE - 1) / PIECE;
    s->alone = c->pieces < 2 * GRAIN;
    s->apart = true;
    s->detail = "concat";
    s->state = c;
    return ST_OK;
}
struct concat_call {
    const struct concat_state *c;
    void **bufs;
};
// Bytes at to stop of the result, which may lie inside of runs.
static void bytes(const struct concat_call *call, int64_t at, int64_t stop) {
    const struct concat_state *c = call->c;
    int64_t o = at / c->all, in = at % c->all;
    for (int k = 0; k < c->n && at < stop; in -= c->run[k++]) {
        if (in >= c->run[k]) continue;
        int64_t n = c->run[k] - in < stop - at ? c->run[k] - in : stop - at;
        memcpy((char *)call->bufs[c->n] + at, (const char *)call->bufs[k] + o * c->run[k] + in,
               (size_t)n);
        at += n;
        in += n;
    }
}
// Rows first to last, an operand at a time, as many of them as stay in the first cache.
static void rows(const struct concat_call *call, int64_t first, int64_t last) {
    const struct concat_state *c = call->c;
    int64_t few = BLOCK / c->all + 1;
    for (int64_t o = first; o < last; o += few) {
        int64_t n = last - o < few ? last - o : few;
        char *to = (char *)call->bufs[c->n] + o * c->all;
        for (int k = 0; k < c->n; to += c->run[k++])
            cpu_copy_runs(to, c->all, (const char *)call->bufs[k] + o * c->run[k], c->run[k],
                          c->run[k], n);
    }
}
// Pieces begin to end of the result: the end of a row, whole rows, the beginning of one.
static void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct concat_call *call = ctx;
    const struct concat_state *c = call->c;
    int64_t at = begin * PIECE, stop = end * PIECE, first = (at + c->all - 1) / c->all;
    if (stop > c->outer * c->all) stop = c->outer * c->all;
    int64_t last = stop / c->all;
    if (first > last) {
        bytes(call, at, stop);
        return;
    }
    bytes(call, at, first * c->all);
    rows(call, first, last);
    bytes(call, last * c->all, stop);
}
static status_t concat_run(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct concat_state *c = s->state;
    struct concat_call call = {c, bufs};
    cpu_parallel(part, &call, c->pieces, GRAIN);
    return ST_OK;
}
const struct cpu_impl cpu_impl_concat = {"concat",   concat_accepts, concat_open, NULL,
                                         concat_run, NULL,           NULL,        NULL};
