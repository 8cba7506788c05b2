// SPDX-License-Identifier: Apache-2.0
// See work.h. Work inside called computations is the caller's: a fusion's body, a loop's, a
// branch's; but a reducer's belongs to the elements that are reduced.
#include "compiler/ir/work.h"

#include "compiler/ir/ir.h"

enum { TURNS = 1 << 16 }; // of a loop whose number of turns is not known

static int64_t times(int64_t a, int64_t b) {
    int64_t r;
    return sz_mul(a, b, &r) ? r : INT64_MAX;
}
static int64_t elements(const struct shape *s) {
    int64_t n = 0;
    if (!shape_is_tuple(s)) return s->dtype == DT_TOKEN ? 0 : shape_elements(s);
    for (int k = 0; k < s->n_elems; k++)
        sz_sum(&n, elements(s->elems[k]));
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

int64_t hlo_body_flops(const struct hlo_computation *c) {
    int64_t n = 0;
    for (const struct hlo_instr *i = c->first; i; i = i->next)
        sz_sum(&n, hlo_flops(i));
    return n;
}
int64_t hlo_flops(const struct hlo_instr *i) {
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
            sz_sum(&n, hlo_body_flops(i->called[k]));
    return n; // what moves data computes nothing
}

static int64_t body_work(const struct hlo_computation *c) {
    int64_t n = 0;
    for (const struct hlo_instr *i = c->first; i; i = i->next)
        if (i->op != HLO_PARAMETER && i->op != HLO_CONSTANT) sz_sum(&n, hlo_work(i));
    return n;
}
static int log2_of(int64_t n) {
    int k = 1;
    while (n >>= 1)
        k++;
    return k;
}
int64_t hlo_work(const struct hlo_instr *i) {
    int64_t n = 1, in = 0;
    for (int k = 0; k < i->n_operands; k++)
        sz_sum(&in, elements(i->operands[k]->shape));
    if (i->op == HLO_FUSION || i->op == HLO_CALL || i->op == HLO_WHILE ||
        i->op == HLO_CONDITIONAL) {
        for (int k = 0; k < i->n_called; k++)
            sz_sum(&n, body_work(i->called[k]));
        return i->op == HLO_WHILE ? times(n, TURNS) : n;
    }
    if (i->op == HLO_PARAMETER || i->op == HLO_CONSTANT || i->op == HLO_TUPLE ||
        i->op == HLO_GET_TUPLE_ELEMENT || i->op == HLO_BITCAST)
        return n;
    if (i->op == HLO_SORT || i->op == HLO_TOPK || i->op == HLO_FFT) in = times(in, log2_of(in));
    if ((i->op == HLO_CHOLESKY || i->op == HLO_TRIANGULAR_SOLVE) && i->shape->rank)
        in = times(in, i->shape->dims[i->shape->rank - 1]);
    if (i->op == HLO_SELECT_AND_SCATTER) in = times(in, window_flops(i) / (elements(i->shape) + 1));
    sz_sum(&n, in);
    sz_sum(&n, elements(i->shape));
    sz_sum(&n, hlo_flops(i));
    return n;
}

static const bool dear[HLO_OP_COUNT] = {
    [HLO_EXP] = true,  [HLO_EXPM1] = true,    [HLO_LOG] = true, [HLO_LOG1P] = true,
    [HLO_TANH] = true, [HLO_LOGISTIC] = true, [HLO_ERF] = true, [HLO_POWER] = true,
    [HLO_SIN] = true,  [HLO_COS] = true,      [HLO_TAN] = true, [HLO_ATAN2] = true,
    [HLO_CBRT] = true};
bool hlo_is_dear(const struct hlo_instr *i) {
    return dear[i->op];
}

int64_t hlo_expanded(const struct hlo_module *m, bool steps) {
    struct pmap totals = {0}; // computation -> its instructions with those of what it calls
    int64_t most = 0;

    for (const struct hlo_computation *c = m->first; c; c = c->next) {
        int64_t n = c->n_instrs;
        for (const struct hlo_instr *i = c->first; i; i = i->next) {
            if (steps && i->op != HLO_WHILE && i->op != HLO_CONDITIONAL && i->op != HLO_CALL)
                continue;
            for (int k = 0; k < i->n_called; k++)
                sz_sum(&n, (int64_t)(intptr_t)pmap_get_ptr(&totals, i->called[k]));
        }
        pmap_put_ptr(&totals, c, (void *)(intptr_t)n);
        if (n > most) most = n;
    }
    pmap_done(&totals);
    return most;
}

int hlo_nesting(const struct hlo_module *m, bool calls) {
    struct pmap depths = {0}; // computation -> its own
    int most = 0;

    for (const struct hlo_computation *c = m->first; c; c = c->next) {
        int depth = 0;
        for (const struct hlo_instr *i = c->first; i; i = i->next)
            for (int k = 0; k < i->n_called; k++) {
                int below = (int)(intptr_t)pmap_get_ptr(&depths, i->called[k]);
                below += calls || i->op != HLO_CALL;
                if (below > depth) depth = below;
            }
        pmap_put_ptr(&depths, c, (void *)(intptr_t)depth);
        if (depth > most) most = depth;
    }
    pmap_done(&depths);
    return most;
}
