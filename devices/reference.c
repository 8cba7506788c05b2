// SPDX-License-Identifier: Apache-2.0
#include "devices/reference.h"

#include "compiler/eval.h"
#include "compiler/ops/index.h"

// A buffer in its layout as a literal in logical order, and back.
static struct literal *to_logical(struct arena *a, const struct shape *s, void *buf) {
    struct literal *l = lit_borrow(a, s, buf);
    if (layout_is_default(s->layout, s->rank)) return l;
    struct literal *r = lit_new(a, s);
    r->shape = l->shape;
    int64_t k = 0;
    EACH_INDEX(x, s) element_copy(r, k++, l, shape_offset(s, x));
    return r;
}
static void from_logical(const struct shape *s, const struct literal *l, void *buf) {
    if (layout_is_default(s->layout, s->rank)) {
        if (l->size_bytes) memcpy(buf, l->data, l->size_bytes);
        return;
    }
    struct literal to = {.shape = l->shape, .data = buf};
    int64_t k = 0;
    memset(buf, 0, (size_t)shape_bytes(s));
    EACH_INDEX(x, s) element_copy(&to, shape_offset(s, x), l, k++);
}
static struct literal *gather_leaves(struct arena *a, const struct shape *s, void *const *bufs,
                                     int *k) {
    if (!shape_is_tuple(s)) return to_logical(a, s, bufs[(*k)++]);
    struct literal **e = arena_array(a, struct literal *, s->n_elems + 1);
    for (int i = 0; i < s->n_elems; i++)
        e[i] = gather_leaves(a, s->elems[i], bufs, k);
    return lit_tuple(a, s, e);
}
static void scatter_leaves(const struct shape *s, const struct literal *l, void *const *bufs,
                           int *k) {
    if (!shape_is_tuple(s)) from_logical(s, l, bufs[(*k)++]);
    for (int i = 0; i < s->n_elems; i++)
        scatter_leaves(s->elems[i], l->elems[i], bufs, k);
}
// What a step may take beside the plan: some copies of what it reads and writes; more where it
// evaluates computations, whose values all stay until it ends.
static int64_t most_bytes(const struct hlo_instr *i) {
    enum { COPIES = 4 };
    int64_t n = shape_bytes(i->shape);
    for (int k = 0; k < i->n_operands; k++)
        n += shape_bytes(i->operands[k]->shape);
    return n * COPIES + (INT64_C(1) << (i->n_called ? 32 : 30));
}
status_t dev_reference_run(struct dev_reference *r, const struct hlo_instr *i, void *const *bufs,
                           int n_in) {
    struct arena a = {0};
    struct hlo_eval ev = hlo_eval_begin(&a);
    if (most_bytes(i) < ev.max_bytes) ev.max_bytes = most_bytes(i);
    ev.rng_state += r->rng_state;
    ev.texts = r->texts;
    ev.cancel = r->cancel;
    struct literal **in = arena_array(&a, struct literal *, i->n_operands + 1), *out = NULL;
    int k = 0, to = n_in;
    for (int p = 0; p < i->n_operands; p++)
        in[p] = gather_leaves(&a, i->operands[p]->shape, bufs, &k);
    status_t st = hlo_op_info(i->op)->eval(&ev, i, in, &out);
    if (!st) scatter_leaves(i->shape, out, bufs, &to);
    r->rng_state = ev.rng_state - HLO_EVAL_FIRST_STATE;
    arena_done(&a);
    return st;
}
