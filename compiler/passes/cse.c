// SPDX-License-Identifier: Apache-2.0
// Common subexpressions: instructions of a computation in order, by a hash of opcode, shape,
// attributes (those kept as text too: groups of participants), operands, callees and literal. Equal
// means equal in all of these, so the first stands for the later ones. Reducers that say the same
// become one first. Side effects, parameters and fusions keep to themselves; custom calls without
// effects are operations like others (the decompositions of LAPACK).
#include "base/hash.h"
#include "compiler/ir/alike.h"
#include "compiler/passes/pass.h"

static uint64_t key_of(const struct hlo_instr *i) {
    uint64_t h =
        attr_hash(hlo_op_info(i->op)->attrs, i->attr) ^ (uint64_t)i->op * 0x9e3779b97f4a7c15u;
    for (int k = 0; k < i->n_operands; k++)
        h = hash64(&i->operands[k]->id, sizeof i->operands[k]->id, h);
    for (int k = 0; k < i->n_called; k++)
        h = hash64(&i->called[k], sizeof i->called[k], h);
    if (!shape_is_tuple(i->shape) && i->shape->rank)
        h = hash64(i->shape->dims, sizeof(int64_t) * (size_t)i->shape->rank,
                   h + (uint64_t)i->shape->dtype);
    for (size_t k = 0; k < i->extra.n; k++)
        if (hlo_text_counts(&i->extra.v[k]))
            h = hash64(i->extra.v[k].value.p, i->extra.v[k].value.n, h);
    return i->literal ? h ^ lit_hash(i->literal) : h;
}
static bool same(const struct hlo_instr *a, const struct hlo_instr *b) {
    if (!hlo_same_alone(a, b)) return false;
    for (int k = 0; k < a->n_operands; k++)
        if (a->operands[k] != b->operands[k]) return false;
    for (int k = 0; k < a->n_called; k++)
        if (a->called[k] != b->called[k]) return false;
    return true;
}

// ---- what is called

enum { MAX_BODY = 8, MAX_BODIES = 64 };
// Reducers, comparators: a few instructions that call nothing and are called, not run as steps.
static bool is_small(const struct hlo_computation *c) {
    if (c->fusion || c == c->module->entry || c->n_instrs > MAX_BODY) return false;
    for (const struct hlo_instr *i = c->first; i; i = i->next)
        if (i->n_called || hlo_has_effect(i) || shape_is_tuple(i->shape) || i->shape->rank ||
            i->control_preds.n)
            return false;
    return true;
}
// Each call of a small computation calls the first that is the same, so that calls can be compared.
static void share_bodies(struct hlo_module *m, struct pass_ctx *p) {
    struct pmap first = {0}; // small computation -> the one that stands for it
    VEC(struct hlo_computation *) small = {0};
    HLO_EACH_COMPUTATION(c, m) {
        if (!is_small(c)) continue;
        struct hlo_computation *like = c;
        for (size_t k = 0; k < small.n && like == c; k++)
            if (hlo_computations_alike(small.v[k], c)) like = small.v[k];
        pmap_put_ptr(&first, c, like);
        if (like == c && small.n < MAX_BODIES) avec_push(&p->scratch, &small, c);
    }
    HLO_EACH_COMPUTATION(c, m)
    for (struct hlo_instr *i = c->first; i; i = i->next)
        for (int k = 0; k < i->n_called; k++) {
            struct hlo_computation *like = pmap_get_ptr(&first, i->called[k]);
            if (!like || like == i->called[k]) continue;
            hlo_set_called(i, k, like);
            p->changed = true;
        }
    pmap_done(&first);
}

status_t pass_cse(struct hlo_module *m, struct pass_ctx *p) {
    share_bodies(m, p);
    HLO_EACH_COMPUTATION(c, m) {
        struct pmap seen = {0};
        HLO_EACH_INSTR(i, c) {
            if (i->op == HLO_PARAMETER || i->op == HLO_FUSION || hlo_has_effect(i)) continue;
            uint64_t h = key_of(i);
            struct hlo_instr *first = pmap_get(&seen, h);
            if (!first) {
                pmap_put(&seen, h, i);
            } else if (same(first, i)) {
                hlo_replace_uses(i, first);
                hlo_remove_instr(i);
                p->changed = true;
            }
        }
        pmap_done(&seen);
    }
    return ST_OK;
}
