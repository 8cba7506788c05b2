// SPDX-License-Identifier: Apache-2.0
// Bits of elements below a byte, which lie in one each: from and to others by shifts. Exact.
#include "compiler/passes/rules/rules.h"

static enum dtype unsigned_of(int bits) {
    switch (bits) {
    case 2:
        return DT_U2;
    case 4:
        return DT_U4;
    case 8:
        return DT_U8;
    case 16:
        return DT_U16;
    case 32:
        return DT_U32;
    case 64:
        return DT_U64;
    default:
        return DT_INVALID;
    }
}
static hv bits_as(struct rule_ctx *r, hv x, enum dtype t) {
    if (x->shape->dtype == t) return x;
    if (dtype_is_int(x->shape->dtype) && dtype_is_int(t)) return hb_convert(&r->b, x, t);
    return hb_op(&r->b, HLO_BITCAST_CONVERT, shape_with_dtype(r->b.c->module->arena, x->shape, t),
                 &x, 1, NULL);
}
// What each element along the last dimension is shifted by: `bits` times its place.
static hv shifts(struct rule_ctx *r, const struct shape *s, int bits) {
    return hb_mul(&r->b, hb_iota(&r->b, s, s->rank - 1), hb_splat(&r->b, s, bits));
}
// Elements to parts of them, which are a dimension more, the lowest bits first.
static hv split(struct rule_ctx *r, hv x, const struct shape *parts, enum dtype wide, int to) {
    int64_t map[HLO_MAX_RANK];
    const struct shape *s = shape_with_dtype(r->b.c->module->arena, parts, wide);
    for (int d = 0; d < x->shape->rank; d++)
        map[d] = d;
    x = hb_broadcast(&r->b, hb_convert(&r->b, x, wide), s->dims, s->rank, map);
    x = hb_binary(&r->b, HLO_SHIFT_RIGHT_LOGICAL, x, shifts(r, s, to));
    return hb_convert(&r->b, x, unsigned_of(to));
}
static hv join(struct rule_ctx *r, hv x, enum dtype wide, int from, int to) {
    int64_t last = x->shape->rank - 1;
    x = hb_convert(&r->b, x, wide);
    x = hb_binary(&r->b, HLO_SHIFT_LEFT, x, shifts(r, x->shape, from));
    x = hb_reduce(&r->b, x, hb_const_i64(&r->b, wide, 0), &last, 1, HLO_ADD);
    return hb_convert(&r->b, x, unsigned_of(to));
}
RULE_FN(bitcast_narrow) {
    if (i->op != HLO_BITCAST_CONVERT) return NULL;
    hv x = i->operands[0];
    enum dtype t = i->shape->dtype;
    int from = dtype_bits(x->shape->dtype), to = dtype_bits(t);
    enum dtype u = unsigned_of(from), wide = unsigned_of(from > 8 || to > 8 ? 0 : 8);
    if (dtype_same_codes(x->shape->dtype, t) || u == DT_INVALID || unsigned_of(to) == DT_INVALID ||
        x->shape->dtype == DT_PRED || t == DT_PRED || dtype_is_complex(t) ||
        dtype_is_complex(x->shape->dtype))
        return NULL;
    if (wide == DT_INVALID) wide = unsigned_of(from > to ? from : to);
    x = bits_as(r, x, u);
    if (from > to) x = split(r, x, i->shape, wide, to);
    if (from < to) x = join(r, x, wide, from, to);
    return bits_as(r, x, t);
}
