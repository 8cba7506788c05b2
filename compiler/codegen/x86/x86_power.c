// SPDX-License-Identifier: Apache-2.0
// The last step of an exponential: p * 2^n as kmath_float.c and kmath_double.c write it, a product
// by two powers of two that are put together of bits, since the result may be subnormal.
// VSCALEFPS and VSCALEFPD (AVX-512) do that at once with one rounding, from n as a float, which the
// reduction of the argument has made: six operations less, and no product that is slow because it
// is subnormal (AMD's CPUs take three times as long for such a vector). The first product is exact
// or the result is 0 in both ways, so the bits are the same.
#include "compiler/codegen/x86/x86_plan.h"

enum { MAX_DEAD = 12, MAX_SUMS = 4 };
struct power {
    const struct kir_val *v; // the product that is looked at
    struct kir_val *p, *n;
    struct kir_val *dead[MAX_DEAD]; // what nobody reads then
    int n_dead, bias, exponent;     // of the type
};

// v, if it is read so many times, by nothing but what is looked at, and has operation `op`.
static struct kir_val *own(struct power *w, struct kir_val *v, enum kop op, int uses) {
    const struct x86_val *x = x86_of(v);
    if (v->op != op || v->block != w->v->block || x->uses != uses || x->shape != SHAPE_LANES ||
        x->fused || w->n_dead == MAX_DEAD)
        return NULL;
    w->dead[w->n_dead++] = v;
    return v;
}
static bool constant(const struct kir_val *v) {
    return v->op == K_CONST && !v->imm_j;
}
// The bits of the constant that a float is added to so that it becomes whole.
static uint64_t bits_of(const struct kir_val *magic) {
    if (magic->type == DT_F64)
        return (union {
                   double f;
                   uint64_t i;
               }){magic->imm_f}
            .i;
    return (union {
               float f;
               uint32_t i;
           }){(float)magic->imm_f}
        .i;
}
// A float between constants within which neither power of two leaves its exponents, or NaN.
static bool clamped(const struct kir_val *x) {
    double lo = x->type == DT_F64 ? -745.5 : -105, hi = x->type == DT_F64 ? 712 : 89;
    if (x->op != K_SELECT || x->args[1]->op != K_CONST || x->args[2]->op != K_SELECT) return false;
    const struct kir_val *y = x->args[2], *less = x->args[0], *more = y->args[0];
    return y->args[1]->op == K_CONST && less->op == K_CMP && more->op == K_CMP &&
           less->imm_i == CMP_LT && more->imm_i == CMP_GT && less->args[0] == y &&
           less->args[1] == x->args[1] && more->args[0] == y->args[2] &&
           more->args[1] == y->args[1] && x->args[1]->imm_f >= lo && y->args[1]->imm_f <= hi;
}
// x * factor + magic, rounded to a whole number in the low bits.
static bool rounds(const struct kir_val *z) {
    return z->op == K_FMA && z->args[1]->op == K_CONST && z->args[2]->op == K_CONST &&
           clamped(z->args[0]);
}
// What `shifted` has where the exponent will be: NULL, if that is not what it is.
static struct kir_val *field(struct power *w, struct kir_val *bits) {
    struct kir_val *shl = own(w, bits, K_BITS, 1) ? own(w, bits->args[0], K_SHL, 1) : NULL;
    return shl && constant(shl->args[1]) && shl->args[1]->imm_i == w->exponent ? shl->args[0]
                                                                               : NULL;
}
// The bits of a whole number, and what is added to them; in an order that kir chose.
static struct kir_val *sum_of_bits(struct power *w, struct kir_val *e, uint64_t *added) {
    for (int k = 0; k < MAX_SUMS && (e->op == K_ADD || e->op == K_SUB); k++) {
        bool sub = e->op == K_SUB;
        int at = sub || constant(e->args[1]);
        if (!own(w, e, e->op, 1) || !constant(e->args[at])) return NULL;
        uint64_t c = (uint64_t)e->args[at]->imm_i;
        *added += sub ? -c : c;
        e = e->args[1 - at];
    }
    return own(w, e, K_BITS, 1);
}
static struct kir_val *as_float(const struct kir_val *z, const struct kir_val *until) {
    for (struct kir_val *n = z->next; n && n != until; n = n->next)
        if (n->op == K_SUB && n->args[0] == z && n->args[1] == z->args[2]) return n;
    return NULL;
}
// w->v as (p * first) * second?
static bool matches(struct power *w, struct kir_val *inner, struct kir_val *second, int at) {
    uint64_t added = 0, mask = (UINT64_C(1) << (w->v->type == DT_F64 ? 12 : 9)) - 1;
    w->n_dead = 0;
    if (!own(w, inner, K_MUL, 1)) return false;
    struct kir_val *most = field(w, inner->args[at]), *rest = field(w, second);
    if (!most || !rest || rest->op != K_SUB || rest->args[1] != most || !own(w, rest, K_SUB, 1) ||
        !own(w, most, K_BITS, 2) || !own(w, most->args[0], K_FMA, 1) || !rounds(most->args[0]))
        return false;
    struct kir_val *bits = sum_of_bits(w, rest->args[0], &added), *z = bits ? bits->args[0] : NULL;
    if (!z || z->block != w->v->block || !rounds(z) || z->args[0] != most->args[0]->args[0] ||
        z->type != w->v->type)
        return false;

    double whole = z->args[1]->imm_f, part = most->args[0]->args[1]->imm_f;
    if (part <= 0 || part > whole || whole > 1.4427) return false;
    if ((bits_of(most->args[0]->args[2]) & mask) != (uint64_t)w->bias ||
        ((bits_of(z->args[2]) + added) & mask) != 2 * (uint64_t)w->bias)
        return false;
    w->p = inner->args[1 - at];
    w->n = as_float(z, w->v);
    if (!w->n) return false;
    const struct x86_val *n = x86_of(w->n), *v = x86_of(w->v);
    return !n->owner || (n->owner == v->owner && n->arm == v->arm);
}
void x86_power_find(const struct kir_val *v) {
    if (v->op != K_MUL || !dtype_is_float(v->type) || x86_of(v)->shape != SHAPE_LANES || v->lanes)
        return;
    bool wide = v->type == DT_F64;
    struct power w = {.v = v, .bias = wide ? 1023 : 127, .exponent = wide ? 52 : 23};
    for (int way = 0; way < 4; way++) {
        struct kir_val *inner = v->args[way & 1], *second = v->args[1 - (way & 1)];
        if (inner->op != K_MUL || second->op != K_BITS || !matches(&w, inner, second, way >> 1))
            continue;
        x86_of(v)->power[0] = w.p;
        x86_of(v)->power[1] = w.n;
        for (int k = 0; k < w.n_dead; k++)
            x86_of(w.dead[k])->fused = true;
        return;
    }
}
