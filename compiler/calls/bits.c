// SPDX-License-Identifier: Apache-2.0
// Reading the call, and its form as unpacking and a dot, of which what depends on weights alone is
// prepared once.
#include "compiler/calls/bits.h"

static const struct {
    const char *target;
    int bits;
    enum bits_x rounding;
} calls[] = {{"hlod.bits.2", 2, BITS_X_F32},           {"hlod.bits.4", 4, BITS_X_F32},
             {"hlod.bits.8", 8, BITS_X_F32},           {"hlod.bits.2.level4", 2, BITS_X_LEVEL4},
             {"hlod.bits.4.level4", 4, BITS_X_LEVEL4}, {"hlod.bits.8.level4", 8, BITS_X_LEVEL4},
             {"hlod.bits.2.x8", 2, BITS_X_8},          {"hlod.bits.4.x8", 4, BITS_X_8},
             {"hlod.bits.8.x8", 8, BITS_X_8}};
enum { CALLS = sizeof calls / sizeof calls[0] };

static int which(const struct hlo_instr *i) {
    for (int k = 0; i->op == HLO_CUSTOM_CALL && k < CALLS; k++)
        if (str_is(HLO_ATTR(i, custom)->custom_call_target, calls[k].target)) return k;
    return -1;
}
bool bits_is(const struct hlo_instr *i) {
    return which(i) >= 0 && i->n_operands == BITS_OPERANDS;
}
enum bits_x bits_rounding(const struct hlo_instr *i) {
    return calls[which(i)].rounding;
}
static bool matrix(const struct shape *s, int64_t rows, int64_t cols) {
    return s->dtype == DT_F32 && s->rank == 2 && s->dims[0] == rows && s->dims[1] == cols;
}
static bool fit(const struct hlo_instr *i, struct bits *o) {
    if (!bits_is(i) || !shape_in_order(i->shape)) return false;
    const struct shape *s[BITS_OPERANDS], *y = i->shape;
    for (int k = 0; k < BITS_OPERANDS; k++)
        if (!shape_in_order(s[k] = i->operands[k]->shape)) return false;
    const struct shape *x = s[BITS_X], *q = s[BITS_Q], *z = s[BITS_ZEROS];
    if (x->dtype != DT_F32 || x->rank < 1 || q->dtype != DT_U8 || q->rank != 3 ||
        y->dtype != DT_F32 || y->rank != x->rank || shape_elements(x) < 1 || shape_elements(q) < 1)
        return false;
    *o = (struct bits){.bits = calls[which(i)].bits,
                       .n = q->dims[0],
                       .blocks = q->dims[1],
                       .rounding = bits_rounding(i)};
    o->block = q->dims[2] * 8 / o->bits;
    o->k = x->dims[x->rank - 1];
    o->rows = shape_elements(x) / o->k;
    o->one_zero = z->rank == 0 && z->dtype == DT_F32;
    for (int d = 0; d < x->rank - 1; d++)
        if (x->dims[d] != y->dims[d]) return false;
    return y->dims[y->rank - 1] == o->n && o->blocks == (o->k + o->block - 1) / o->block &&
           matrix(s[BITS_SCALES], o->blocks, o->n) && (o->one_zero || matrix(z, o->blocks, o->n));
}
status_t bits_read(struct arena *a, const struct hlo_instr *i, struct bits *out) {
    if (fit(i, out)) return ST_OK;
    return st_invalid("instruction '%s': operands of hlod.bits do not fit %s", i->name,
                      shape_text(a, i->shape));
}

hv bits_call(struct hb *b, int bits, enum bits_x rounding, hv const *operands) {
    int64_t dims[HLO_MAX_RANK];
    const struct shape *x = operands[BITS_X]->shape;
    int which = 0;
    while (which < CALLS - 1 && (calls[which].bits != bits || calls[which].rounding != rounding))
        which++;
    struct hlo_attr_custom call = {.custom_call_target = str_of(calls[which].target)};
    for (int d = 0; d < x->rank; d++)
        dims[d] = x->dims[d];
    dims[x->rank - 1] = operands[BITS_Q]->shape->dims[0];
    return hb_op(b, HLO_CUSTOM_CALL, shape_make(b->c->module->arena, DT_F32, dims, x->rank),
                 operands, BITS_OPERANDS, &call);
}

// Bytes [n, blocks, bytes] as weights [n, blocks, bytes * 8/bits] in f32.
static hv unpacked(struct hb *b, hv q, int bits) {
    hv parts[8];
    const struct shape *s = q->shape;
    int64_t wide[4] = {s->dims[0], s->dims[1], s->dims[2], 1};
    int n = 8 / bits;
    for (int k = 0; k < n; k++) {
        hv v = q, by = hb_const_i64(b, DT_U8, k * bits);
        hv mask = hb_const_i64(b, DT_U8, (1 << bits) - 1);
        if (k) v = hb_binary(b, HLO_SHIFT_RIGHT_LOGICAL, v, hb_broadcast(b, by, s->dims, 3, NULL));
        if (n > 1) v = hb_binary(b, HLO_AND, v, hb_broadcast(b, mask, s->dims, 3, NULL));
        parts[k] = hb_reshape(b, v, wide, 4);
    }
    wide[2] *= n;
    hv all = n > 1 ? hb_concat(b, parts, n, 3) : q;
    return hb_convert(b, hb_reshape(b, all, wide, 3), DT_F32);
}
hv bits_as_dot(struct hb *b, int bits, hv const *operands) {
    hv x = operands[BITS_X], q = unpacked(b, operands[BITS_Q], bits), z = operands[BITS_ZEROS];
    int64_t map[2] = {1, 0}, last = x->shape->rank - 1, k = x->shape->dims[last], one = 1;
    if (!hb_ok(b)) return x;
    const struct shape *s = q->shape;
    int64_t flat[2] = {s->dims[0], s->dims[1] * s->dims[2]};
    q = hb_sub(b, q, hb_broadcast(b, z, s->dims, 3, z->shape->rank ? map : NULL));
    q = hb_mul(b, q, hb_broadcast(b, operands[BITS_SCALES], s->dims, 3, map));
    q = hb_slice(b, hb_reshape(b, q, flat, 2),
                 (struct range[]){{0, flat[0], 1}, {0, k < flat[1] ? k : flat[1], 1}});
    return hb_dot(b, x, q,
                  &(struct hlo_attr_dot){.lhs_contracting_dims = {&last, 1},
                                         .rhs_contracting_dims = {&one, 1}});
}
