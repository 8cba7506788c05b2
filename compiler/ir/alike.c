// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/alike.h"

#include "base/hash.h"
#include "compiler/ir/op.h"

bool hlo_text_counts(const struct hlo_text_attr *t) {
    return !str_is(t->name, "metadata") && !str_is(t->name, "frontend_attributes") &&
           !str_is(t->name, "origin");
}
bool hlo_same_texts(const struct hlo_instr *a, const struct hlo_instr *b) {
    size_t j = 0, k = 0;
    for (;; j++, k++) { // both in order of names
        while (j < a->extra.n && !hlo_text_counts(&a->extra.v[j]))
            j++;
        while (k < b->extra.n && !hlo_text_counts(&b->extra.v[k]))
            k++;
        if (j == a->extra.n || k == b->extra.n) return j == a->extra.n && k == b->extra.n;
        if (!str_eq(a->extra.v[j].name, b->extra.v[k].name) ||
            !str_eq(a->extra.v[j].value, b->extra.v[k].value))
            return false;
    }
}

static bool same_shapes(const struct shape *a, const struct shape *b) {
    return a == b || shape_equal(a, b);
}
bool hlo_same_alone(const struct hlo_instr *a, const struct hlo_instr *b) {
    if (a->op != b->op || a->n_operands != b->n_operands || a->n_called != b->n_called ||
        !a->literal != !b->literal || a->control_preds.n || b->control_preds.n ||
        !same_shapes(a->shape, b->shape))
        return false;
    if (a->op == HLO_PARAMETER &&
        (a->param_number != b->param_number || a->param_kind != b->param_kind ||
         a->param_index != b->param_index))
        return false;
    if (a->literal && a->literal != b->literal && !lit_equal(a->literal, b->literal)) return false;
    return (a->attr == b->attr || attr_equal(hlo_op_info(a->op)->attrs, a->attr, b->attr)) &&
           hlo_same_texts(a, b);
}

static bool called_alike(const struct hlo_instr *a, const struct hlo_instr *b) {
    for (int k = 0; k < a->n_called; k++)
        if (!hlo_computations_alike(a->called[k], b->called[k])) return false;
    return true;
}
bool hlo_computations_alike(const struct hlo_computation *a, const struct hlo_computation *b) {
    if (a == b) return true;
    if (a->n_instrs != b->n_instrs || a->params.n != b->params.n) return false;

    struct pmap twin = {0}; // instruction of a -> that of b
    const struct hlo_instr *i = a->first, *j = b->first;
    bool same = true;
    for (; same && i && j; i = i->next, j = j->next) {
        same = hlo_same_alone(i, j);
        for (int k = 0; k < i->n_operands && same; k++)
            same = pmap_get_ptr(&twin, i->operands[k]) == j->operands[k];
        same = same && called_alike(i, j);
        pmap_put_ptr(&twin, i, (void *)j);
    }
    same = same && !i && !j && pmap_get_ptr(&twin, a->root) == b->root;
    pmap_done(&twin);
    return same;
}

static bool lies_in_fusion(const struct hlo_instr *i) {
    return i->parent && i->parent->fusion;
}
bool hlo_kernels_alike(const struct hlo_instr *a, const struct hlo_instr *b) {
    if ((a->op != HLO_FUSION && a->op != HLO_DOT) || !hlo_same_alone(a, b) ||
        lies_in_fusion(a) != lies_in_fusion(b))
        return false;
    if (a->op == HLO_DOT &&
        (a->operands[0] == a->operands[1]) != (b->operands[0] == b->operands[1]))
        return false;
    for (int k = 0; k < a->n_operands; k++)
        if (!same_shapes(a->operands[k]->shape, b->operands[k]->shape)) return false;
    return called_alike(a, b);
}

static uint64_t add_shape(const struct shape *s, uint64_t h) {
    h += (uint64_t)s->dtype + 1;
    return shape_is_tuple(s) ? h : hash64(s->dims, sizeof *s->dims * (size_t)s->rank, h);
}
uint64_t hlo_kernel_hash(const struct hlo_instr *i) {
    uint64_t h = attr_hash(hlo_op_info(i->op)->attrs, i->attr) + (uint64_t)i->op;
    for (int k = 0; k < i->n_operands; k++)
        h = add_shape(i->operands[k]->shape, h);
    for (int k = 0; k < i->n_called; k++)
        for (const struct hlo_instr *b = i->called[k]->first; b; b = b->next) {
            uint64_t own = attr_hash(hlo_op_info(b->op)->attrs, b->attr) ^ (uint64_t)b->op << 32;
            h = add_shape(b->shape, h ^ own);
            if (b->literal) h ^= lit_hash(b->literal);
        }
    return h;
}
