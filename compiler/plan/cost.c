// SPDX-License-Identifier: Apache-2.0
// See cost.h. Work inside called computations is the caller's: a fusion's body, a loop's, a
// branch's; but a reducer's belongs to the elements that are reduced.
#include "compiler/plan/cost.h"

#include "compiler/ir/ir.h"

static void add(int64_t *sum, int64_t x) {
    if (x < 0 || !sz_add(*sum, x, sum)) *sum = INT64_MAX;
}
static int64_t times(int64_t a, int64_t b) {
    int64_t r;
    return sz_mul(a, b, &r) ? r : INT64_MAX;
}
static int64_t elements(const struct shape *s) {
    int64_t n = 0;
    if (!shape_is_tuple(s)) return s->dtype == DT_TOKEN ? 0 : shape_elements(s);
    for (int k = 0; k < s->n_elems; k++)
        add(&n, elements(s->elems[k]));
    return n;
}
static int64_t bytes_of(const struct shape *s) {
    int64_t n = 0;
    if (!shape_is_tuple(s)) return s->dtype == DT_TOKEN ? 0 : shape_bytes(s);
    for (int k = 0; k < s->n_elems; k++)
        add(&n, bytes_of(s->elems[k]));
    return n;
}

static int64_t dot_flops(const struct hlo_instr *i) {
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    int64_t k = 2;
    for (int n = 0; n < d->lhs_contracting_dims.n; n++)
        k = times(k, i->operands[0]->shape->dims[d->lhs_contracting_dims.v[n]]);
    return times(k, elements(i->shape));
}
// Each result takes one product for each element of a filter of its group.
static int64_t conv_flops(const struct hlo_instr *i) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct shape *k = i->operands[1]->shape;
    int64_t out = k->dims[c->dim_labels.k_out];
    return times(2 * (out ? elements(k) / out : 0), elements(i->shape));
}
static int64_t window_flops(const struct hlo_instr *i) {
    const struct hlo_attr_window *w = HLO_ATTR(i, window);
    int64_t n = elements(i->shape);
    for (int d = 0; d < w->window.n; d++)
        n = times(n, w->window.v[d].size);
    return n;
}

static int64_t body_flops(const struct hlo_computation *c);
static int64_t flops_of(const struct hlo_instr *i) {
    enum hlo_op op = i->op;
    int64_t n = 0;
    if (hlo_is_elementwise(i)) return elements(i->shape);
    if (op == HLO_DOT) return dot_flops(i);
    if (op == HLO_CONVOLUTION) return conv_flops(i);
    if (op == HLO_REDUCE_WINDOW) return window_flops(i);
    if (op == HLO_REDUCE || op == HLO_SORT) return elements(i->operands[0]->shape);
    if (op == HLO_MAP || op == HLO_SCATTER || op == HLO_ALL_REDUCE) return elements(i->shape);
    if (op == HLO_FUSION || op == HLO_CALL || op == HLO_WHILE || op == HLO_CONDITIONAL)
        for (int k = 0; k < i->n_called; k++)
            add(&n, body_flops(i->called[k]));
    return n; // what moves data computes nothing
}
static int64_t body_flops(const struct hlo_computation *c) {
    int64_t n = 0;
    for (const struct hlo_instr *i = c->first; i; i = i->next)
        add(&n, flops_of(i));
    return n;
}

// Names and views of values that lie elsewhere.
static bool moves_nothing(const struct hlo_instr *i) {
    return i->op == HLO_PARAMETER || i->op == HLO_CONSTANT || i->op == HLO_TUPLE ||
           i->op == HLO_GET_TUPLE_ELEMENT || i->op == HLO_BITCAST || i->op == HLO_AFTER_ALL;
}

static int64_t body_bytes(const struct hlo_computation *c) {
    int64_t n = 0;
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        if (moves_nothing(i)) continue;
        if (i->op == HLO_WHILE || i->op == HLO_CONDITIONAL || i->op == HLO_CALL) {
            for (int k = 0; k < i->n_called; k++)
                add(&n, body_bytes(i->called[k]));
            continue;
        }
        add(&n, bytes_of(i->shape));
        for (int k = 0; k < i->n_operands; k++)
            add(&n, bytes_of(i->operands[k]->shape));
    }
    return n;
}

struct hlo_cost hlo_cost(const struct hlo_module *m) {
    return (struct hlo_cost){body_flops(m->entry), body_bytes(m->entry)};
}
