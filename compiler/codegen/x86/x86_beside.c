// SPDX-License-Identifier: Apache-2.0
// Turns of a vector loop side by side: each value is computed for some vectors before the next one.
// A long chain of operations (an exponential has 16, one after the other) waits for each of them;
// the CPU finds the next turn's only as far as its schedulers reach, which is some turns of a short
// body and less than one of a long one. The places of elements are the first turn's and a constant.
#include "compiler/codegen/x86/x86_plan.h"

enum { LEAST_VALUES = 8, MOST_VALUES = 400, FAR = 1 << 16 };

bool x86_beside_each(const struct kir_val *v) {
    const struct x86_val *x = x86_of(v);
    if (v->op == K_CONST || x->fused) return false;
    return v->op == K_STORE || x->shape == SHAPE_LANES || (x->shape == SHAPE_STRIDE && x->spread);
}
// An access of neighbours, or of one element for all.
static bool is_near(const struct kir_val *v) {
    const struct x86_val *at = x86_of(v->args[0]);
    return (at->shape == SHAPE_STRIDE && at->stride == 1) ||
           (v->op == K_LOAD && at->shape == SHAPE_SAME);
}
static int values_of(const struct kir_loop *l) {
    int n = 0;
    for (const struct kir_val *v = l->body.first; v; v = v->next)
        n += x86_of(v)->shape == SHAPE_LANES && v->op != K_CONST && v->op != K_LOAD;
    return n;
}
static bool fits(const struct kir_loop *l) {
    for (const struct kir_val *v = l->body.first; v; v = v->next) {
        const struct x86_val *x = x86_of(v);
        if (v->op == K_FOR || v->op == K_TABLE || v->lanes || x->tile || x->group) return false;
        if ((v->op == K_LOAD || v->op == K_STORE) && !is_near(v)) return false;
        if (x->shape == SHAPE_STRIDE && (x->stride > FAR || x->stride < -FAR)) return false;
    }
    for (int c = 0; c < l->n_carry; c++)
        if (x86_is_index(l->carry[c]->type) || l->yield[c]->op == K_CARRY) return false;
    int n = values_of(l);
    return n >= LEAST_VALUES && n <= MOST_VALUES;
}
bool x86_beside_may(const struct x86_plan *p, const struct kir_loop *l, int lanes) {
    int64_t trip = x86_trip(l);
    return !p->vex && !p->sums && (trip < 0 || trip >= 2 * lanes) && fits(l);
}
// All is chosen: no arm of a choice is computed alone.
static bool is_straight(const struct kir_loop *l) {
    for (const struct kir_val *v = l->body.first; v; v = v->next)
        if (x86_of(v)->lazy || x86_of(v)->owner) return false;
    return true;
}
void x86_beside_plan(struct x86_plan *p, const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v; v = v->next) {
        if (v->op != K_FOR) continue;
        struct x86_loop *x = x86_of(v)->loop;
        if (!x->lanes) {
            x86_beside_plan(p, &v->loop->body);
            continue;
        }
        int64_t trip = x86_trip(x->l);
        if (!x86_beside_may(p, x->l, x->lanes) || !is_straight(x->l)) continue;
        x->beside = true;
        int many =
            values_of(x->l) > X86_BESIDE_VALUES && x->l->interleave != MAX_COPIES ? 2 : MAX_COPIES;
        x->copies = trip < 0 || trip >= many * x->lanes ? many : 2;
    }
}
