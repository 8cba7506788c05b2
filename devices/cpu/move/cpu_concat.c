// SPDX-License-Identifier: Apache-2.0
// concat: concatenation as copies of whole runs: what lies behind the concatenated dimension, with
// it, is one piece in each operand. Operands and result lie alike: rows, channels last, blocks. So
// are rows that are put together of parts of rows (a rotation, as jnp.roll writes it): a fusion of
// a concatenation with the slices that it joins. Does not: short runs, which a kernel moves better.
#include "compiler/passes/fusion/library.h"
#include "devices/cpu/cpu.h"
#include "devices/cpu/move/cpu_weave.h"

// Every run of so many bytes, or runs of so many elements in the mean: a copy costs as much as some
// elements of a kernel, which looks for each one's operand. A kernel writes out short rows, but not
// of many operands (torch.stack of a loop's results); of single elements it makes whole vectors
// where they are as many as some vector's lanes.
enum { LEAST_RUN = 16, LEAST_MEAN = 2, SHORT_ROW = 7, MANY = 16, MAX_PARTS = 65536 };
enum { PIECE = 4096, GRAIN = 25 }; // bytes that one thread takes at least: about 20 us
enum { BLOCK = 16384 };            // bytes of rows that are written one operand after the other

struct concat_part {
    int buf;
    int64_t run, step, begin; // bytes of a run, from one to the next, and before the first
};
struct concat_state {
    int n, result; // parts; the result's buffer
    struct concat_part *part;
    int64_t all, outer; // bytes of a run of each part together; how many
    int64_t pieces;
    int64_t element; // bytes, where each run is one element of an array of these alone; else 0
};
// More single elements than a kernel has whole vectors of, and as many as have a line each in the
// nearest cache.
enum { LEAST_WOVEN = 9, LEAST_WOVEN_8 = 8, MOST_WOVEN = 64 };

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
// Of a fusion: its concatenation of parts of rows; else NULL.
static const struct hlo_instr *joined(const struct hlo_instr *i) {
    if (i->op != HLO_FUSION || shape_is_tuple(i->shape)) return NULL;
    const struct hlo_instr *c = i->called[0]->root;
    if (!lib_joins_rows(c)) return NULL;
    for (int k = 0; k < c->n_operands; k++)
        if (c->operands[k]->operands[0]->op != HLO_PARAMETER) return NULL;
    return c;
}
static bool woven(const struct hlo_instr *i) {
    int64_t size = dtype_size(i->shape->dtype), block;
    bool words = size == 1 || size == 2 || size == 4 || size == 8;
    if (!words || i->op != HLO_CONCATENATE || i->n_operands > MOST_WOVEN ||
        i->n_operands < (size == 8 ? LEAST_WOVEN_8 : LEAST_WOVEN) ||
        (size >= 4 && (i->n_operands & (i->n_operands - 1)) == 0))
        return false;
    for (int k = 0; k < i->n_operands; k++)
        if (run_of(i->operands[k]->shape, HLO_ATTR(i, dims)->dimensions.v[0], &block) != size)
            return false;
    return true;
}
static bool concat_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                           const char **why) {
    *why = "not a concatenation of long runs";
    if (joined(i)) return true;
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
    return least >= LEAST_RUN || i->n_operands > MANY || woven(i) ||
           (all > SHORT_ROW && (all >= LEAST_MEAN * i->n_operands || !lanes));
}
static status_t concat_open(struct cpu_exe *x, struct cpu_step *s) {
    struct concat_state *c = arena_new_of(&x->arena, struct concat_state);
    const struct hlo_instr *i = s->plan->instr, *in = joined(i) ? joined(i) : i;
    int64_t d = HLO_ATTR(in, dims)->dimensions.v[0], block;
    c->n = in->n_operands;
    c->result = i->n_operands;
    c->part = arena_array(&x->arena, struct concat_part, c->n);
    for (int k = 0; k < c->n; k++) {
        const struct hlo_instr *o = in->operands[k];
        int64_t run = run_of(o->shape, d, &block);
        struct concat_part *p = &c->part[k];
        *p = (struct concat_part){.buf = k, .run = run, .step = run};
        c->all += run;
        if (in == i) continue;
        p->buf = (int)o->operands[0]->param_number;
        p->begin = HLO_ATTR(o, slice)->slice.v[d].start * (run / o->shape->dims[d]);
        p->step = run_of(o->operands[0]->shape, d, &block);
    }
    if (in == i && woven(i)) c->element = dtype_size(i->shape->dtype);
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
// Run o of part k.
static const char *from(const struct concat_call *call, int k, int64_t o) {
    const struct concat_part *p = &call->c->part[k];
    return (const char *)call->bufs[p->buf] + p->begin + o * p->step;
}
// Bytes at to stop of the result, which may lie inside of runs.
static void bytes(const struct concat_call *call, int64_t at, int64_t stop) {
    const struct concat_state *c = call->c;
    int64_t o = at / c->all, in = at % c->all;
    for (int k = 0; k < c->n && at < stop; in -= c->part[k++].run) {
        int64_t run = c->part[k].run;
        if (in >= run) continue;
        int64_t n = run - in < stop - at ? run - in : stop - at;
        memcpy((char *)call->bufs[c->result] + at, from(call, k, o) + in, (size_t)n);
        at += n;
        in += n;
    }
}
// Rows first to last, a part at a time, as many of them as stay in the first cache.
static void rows(const struct concat_call *call, int64_t first, int64_t last) {
    const struct concat_state *c = call->c;
    int64_t few = BLOCK / c->all + 1;
    if (c->element && first < last) {
        const char *parts[MOST_WOVEN];
        for (int k = 0; k < c->n; k++)
            parts[k] = from(call, k, first);
        cpu_weave(c->element, parts, c->n, (char *)call->bufs[c->result] + first * c->all,
                  last - first);
        return;
    }
    for (int64_t o = first; o < last; o += few) {
        int64_t n = last - o < few ? last - o : few;
        char *to = (char *)call->bufs[c->result] + o * c->all;
        for (int k = 0; k < c->n; to += c->part[k++].run)
            cpu_copy_runs(to, c->all, from(call, k, o), c->part[k].step, c->part[k].run, n);
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
