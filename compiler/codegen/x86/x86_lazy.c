// SPDX-License-Identifier: Apache-2.0
// Values that are computed only where somebody wants them. Of a choice by a condition that is one
// for all lanes, one arm: concatenations read one operand, not all. Of choices by a condition that
// few elements meet (KF_RARE), the arm that such elements take, where one of a vector's does: code
// that nobody wants is jumped over, and what its values would have been is not looked at.
#include "compiler/codegen/x86/x86_plan.h"

// v is read by one of `owner`'s arms, or by the block itself (NULL). The owner is the choice, or of
// rare ones the condition.
static void claim(struct kir_val *v, const struct kir_val *owner, int arm) {
    struct x86_val *x = x86_of(v);
    if (x->claims == 0) {
        x->owner = owner;
        x->arm = (int8_t)arm;
    }
    if (x->owner != owner || x->arm != arm) x->owner = NULL, x->arm = 0;
    x->claims++;
}
static bool claim_holds(const struct kir_val *v, const struct kir_block *b) {
    const struct x86_val *x = x86_of(v);
    return x->owner && x->claims == x->uses && v->block == b && v->op != K_CONST &&
           v->op != K_STORE && !(v->flags & KF_PINNED);
}
static bool arms_work(const struct kir_val *v) { // more than the choice itself
    for (int k = 1; k < 3; k++) {
        const struct kir_val *a = v->args[k];
        if (a->block == v->block && x86_of(a)->uses == 1 &&
            (a->op == K_LOAD || a->op == K_SELECT || a->op == K_FMA || a->op == K_DIV))
            return true;
    }
    return false;
}
// Is there a tile whose columns would not all be read under condition c?
static bool cuts_tile(const struct kir_block *b, const struct kir_val *c) {
    for (const struct kir_val *v = b->first; v; v = v->next)
        if (x86_of(v)->tile && c->level >= x86_of(v)->tile->along->l->var->level) return true;
    return false;
}
// Is v the choice of what few elements meet, in a block that it can be left out of? Its condition,
// or NULL.
static struct kir_val *rare(const struct kir_val *v, const struct kir_block *b) {
    if (v->op != K_SELECT || v->type == DT_PRED) return NULL;
    struct kir_val *c = v->args[0];
    return c->op == K_CMP && c->flags & KF_RARE && c->block == b && !x86_of(v)->owner ? c : NULL;
}
// The values of a group are written before its first choice: none of them stands behind it.
static bool stands_before(const struct kir_val *owner, int32_t at) {
    return owner->op != K_CMP || at < x86_of(owner)->first_choice;
}
// From the end: the readers of a value stand behind it.
static void find(struct kir_val *const *all, size_t count, const struct kir_block *b, bool vector) {
    for (size_t n = count; n-- > 0;) {
        struct kir_val *v = all[n], *c;
        struct x86_val *x = x86_of(v);
        if (!claim_holds(v, b) || !stands_before(x->owner, (int32_t)n)) x->owner = NULL, x->arm = 0;
        x->lazy = vector && v->op == K_SELECT && x->shape == SHAPE_LANES && v->type != DT_PRED &&
                  x86_of(v->args[0])->shape == SHAPE_SAME && v->args[0]->op != K_CONST &&
                  arms_work(v) && !cuts_tile(b, v->args[0]);
        c = x->lazy ? NULL : rare(v, b);
        for (int k = 0; k < v->n_args; k++) {
            const struct kir_val *owner = x->lazy && k > 0 ? v : c && k == 1 ? c : x->owner;
            int arm = x->lazy && k > 0 ? k : c && k == 1 ? 1 : x->arm;
            if (v->args[k]->block == b) claim(v->args[k], owner, arm);
        }
    }
}
// Groups of less than pays for a jump, or whose first choice stands in another's arm, are none.
static void end_groups(struct kir_val *const *all, size_t count, const struct kir_block *b) {
    enum { LEAST = 8 };
    for (size_t n = 0; n < count; n++)
        if (x86_of(all[n])->owner && x86_of(all[n])->owner->op == K_CMP)
            x86_of(x86_of(all[n])->owner)->group_values++;
    for (size_t n = 0; n < count; n++) {
        struct x86_val *x = x86_of(all[n]);
        struct kir_val *c = rare(all[n], b);
        x->opens = !x->lazy && c && x86_of(c)->first_choice == (int32_t)n &&
                   x86_of(c)->group_values >= LEAST && !cuts_tile(b, c);
        if (x->opens) x86_of(c)->opened = true;
    }
    for (size_t n = 0; n < count; n++) {
        const struct kir_val *owner = x86_of(all[n])->owner;
        if (owner && owner->op == K_CMP && !x86_of(owner)->opened)
            x86_of(all[n])->owner = NULL, x86_of(all[n])->arm = 0;
    }
}
void x86_lazy_find(struct x86_plan *p, const struct kir_block *b, bool vector) {
    VEC(struct kir_val *) all = {0};
    bool any = vector;
    for (struct kir_val *v = b->first; v; v = v->next) {
        if (v->op == K_FOR) return; // its body reads what cannot be followed here
        any |= v->op == K_CMP && v->flags & KF_RARE;
        avec_push(p->a, &all, v);
    }
    if (!any) return;
    for (size_t n = all.n; n-- > 0;) {
        struct kir_val *c = rare(all.v[n], b);
        if (c) x86_of(c)->first_choice = (int32_t)n;
    }
    find(all.v, all.n, b, vector);
    end_groups(all.v, all.n, b);
}
int x86_lazy_rare(struct x86_plan *p, const struct kir_block *b) {
    int n = 0;
    x86_lazy_find(p, b, false);
    for (const struct kir_val *v = b->first; v; v = v->next) {
        struct x86_val *x = x86_of(v);
        n += x->owner != NULL;
        x->owner = NULL;
        x->opens = x->opened = false;
        x->arm = 0;
        x->claims = x->first_choice = x->group_values = 0;
    }
    return n;
}
