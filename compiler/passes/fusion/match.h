// SPDX-License-Identifier: Apache-2.0
// match: small questions that rules ask of instructions.
#pragma once
#include "compiler/ir/ir.h"

// The scalar constant that i broadcasts (or is), as a number.
static inline bool match_splat(const struct hlo_instr *i, double *out) {
    if (i->op == HLO_BROADCAST) i = i->operands[0];
    if (i->op != HLO_CONSTANT || i->shape->rank != 0 || dtype_is_complex(i->shape->dtype))
        return false;
    *out = lit_get_f64(i->literal, 0);
    return true;
}
static inline bool match_splat_is(const struct hlo_instr *i, double v) {
    double x;
    return match_splat(i, &x) && x == v;
}
// Is i 0, of a complex type both parts?
static inline bool match_zero(const struct hlo_instr *i) {
    if (i->op == HLO_BROADCAST) i = i->operands[0];
    if (i->op != HLO_CONSTANT || i->shape->rank != 0) return false;
    double x[2];
    lit_get_c128(i->literal, 0, x);
    return x[0] == 0 && x[1] == 0;
}
// Either operand of a binary is a splat: gives the other.
static inline struct hlo_instr *match_with_splat(const struct hlo_instr *i, double *out) {
    if (match_splat(i->operands[1], out)) return i->operands[0];
    return match_splat(i->operands[0], out) ? i->operands[1] : NULL;
}
// The scalar constant instruction itself.
static inline struct hlo_instr *match_scalar(const struct hlo_instr *i) {
    return i->op == HLO_BROADCAST ? i->operands[0] : (struct hlo_instr *)(uintptr_t)i;
}
// A vector broadcast along dimension d of the result only.
static inline bool match_channel(const struct hlo_instr *i, int d) {
    return i->op == HLO_BROADCAST && i->operands[0]->shape->rank == 1 &&
           HLO_ATTR(i, dims)->dimensions.v[0] == d;
}
static inline bool match_identity_dims(struct i64s d, int rank) {
    if (d.n != rank) return false;
    for (int k = 0; k < rank; k++)
        if (d.v[k] != k) return false;
    return true;
}
