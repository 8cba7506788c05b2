// SPDX-License-Identifier: Apache-2.0
// Conversions. To integers they saturate and NaN gives 0, as kops.def asks; the instructions give
// the smallest (signed) or largest (unsigned) integer for what does not fit.
#include "compiler/codegen/x86/x86_gen.h"

enum { ORDERED = 7, UNORDERED = 3, NOT_LESS = 0x1d }; // comparisons: 0x1d is >=, false for NaN
#define CVT_DQ_PS  EV(1, 0, 0, 0x5b)
#define CVT_UDQ_PS EV(1, 3, 0, 0x7a)
#define CVT_PS_DQ  EV(1, 2, 0, 0x5b)
#define CVT_PS_UDQ EV(1, 0, 0, 0x78)
#define CVT_PS_PD  EV(1, 0, 0, 0x5a)
#define CVT_PD_PS  EV(1, 1, 1, 0x5a)
#define CVT_DQ_PD  EV(1, 2, 0, 0xe6)
#define CVT_UDQ_PD EV(1, 2, 0, 0x7a)
#define CVT_PD_DQ  EV(1, 1, 1, 0xe6)
#define CVT_PD_UDQ EV(1, 0, 1, 0x78)
#define CVT_QQ_PS  EV(1, 0, 1, 0x5b)
#define CVT_UQQ_PS EV(1, 3, 1, 0x7a)
#define CVT_QQ_PD  EV(1, 2, 1, 0xe6)
#define CVT_UQQ_PD EV(1, 2, 1, 0x7a)
#define CVT_PS_QQ  EV(1, 1, 0, 0x7a)
#define CVT_PS_UQQ EV(1, 1, 0, 0x78)
#define CVT_PD_QQ  EV(1, 1, 1, 0x7a)
#define CVT_PD_UQQ EV(1, 1, 1, 0x78)

static void compare(struct x86_gen *g, enum x86_len len, bool wide, int x, struct x86_arg y,
                    int how) {
    x86_op3i(g, EV_CMPPS + (wide ? EV_PD | EV_W : 0), len, K_TMP, x, y, how);
}
// 1 where a pred is true, of type t.
static void from_mask(struct x86_gen *g, const struct kir_val *v, int dst) {
    int k = x86_mask_reg(g, v->args[0]);
    bool wide = x86_of(v)->wide;
    struct x86_arg one =
        dtype_is_float(v->type) ? x86_each_float(g, wide, 1) : x86_each(g, wide, 1);
    if (g->as.vex) {
        k = x86_avx2_widen(g, k, wide, x86_of(v)->shape == SHAPE_LANES);
        x86_op3(g, EV_AND, FULL, dst, k, one);
        x86_put(g, v, dst);
        return;
    }
    one.each = false;
    x86_masked(g, wide ? EV_EACHSD : EV_EACHSS, FULL, dst, 0, one, k, true);
    x86_put(g, v, dst);
}

// All lanes of one value: conversions between widths leave half of them.
static void fill(struct x86_gen *g, const struct kir_val *v, bool wide, int dst) {
    if (x86_of(v)->shape == SHAPE_SAME)
        x86_op2(g, wide ? EV_EACHSD : EV_EACHSS, FULL, dst, x86_r(dst));
}

static uint32_t to_float(enum dtype from, bool from_wide, bool to_wide) {
    bool sign = from != DT_U32 && from != DT_U64;
    if (from_wide) return to_wide ? sign ? CVT_QQ_PD : CVT_UQQ_PD : sign ? CVT_QQ_PS : CVT_UQQ_PS;
    return to_wide ? sign ? CVT_DQ_PD : CVT_UDQ_PD : sign ? CVT_DQ_PS : CVT_UDQ_PS;
}
static void make_float(struct x86_gen *g, const struct kir_val *v, int dst) {
    const struct kir_val *x = v->args[0];
    bool from = x86_of(x)->wide, to = v->type == DT_F64;
    uint32_t op =
        dtype_is_float(x->type) ? to ? CVT_PS_PD : CVT_PD_PS : to_float(x->type, from, to);
    enum x86_len len = x86_length(g, x86_of(v)->shape, from || to);
    if (g->as.vex && op != CVT_PS_PD && op != CVT_PD_PS && op != CVT_DQ_PS && op != CVT_DQ_PD)
        x86_avx2_float(g, x->type, from, to, len, dst, x86_lane_reg(g, x, from, TMP0));
    else
        x86_op2(g, op, len, dst, x86_lane_arg(g, x, from, TMP0));
    if (from && !to) fill(g, v, false, dst);
    x86_put(g, v, dst);
}

// dst, made of the float lanes x, is 0 where they are NaN. A mask counts lanes of the width it was
// compared in, so the move under it has the width of the result, with as many lanes.
static void zero_nan(struct x86_gen *g, bool from, bool to, enum x86_len len, int dst, int x) {
    enum x86_len kept = from == to ? len : to ? FULL : HALF;
    compare(g, len, from, x, x86_r(x), ORDERED);
    x86_masked(g, to ? EV_MOVAPS | EV_PD | EV_W : EV_MOVAPS, kept, dst, 0, x86_r(dst), K_TMP, true);
}
// Of AVX2's lanes in TMP3.
static void avx2_zero_nan(struct x86_gen *g, bool from, bool lanes, enum x86_len len, int x) {
    x86_avx2_compare(g, from, lanes, len, MASK_TMP, x, x86_r(x), ORDERED);
    x86_op3(g, EV_AND, FULL, TMP3, TMP3, x86_r(MASK_TMP));
}
// x, float lanes in a register, to t: 8 and 16 bits are bounded as floats first.
static void make_small(struct x86_gen *g, enum dtype t, bool wide, bool lanes, enum x86_len len,
                       int dst, int x) {
    int bits = dtype_bits(t);
    bool sign = dtype_class(t) == DC_SIGNED;
    uint32_t w = wide ? EV_PD | EV_W : 0;
    double lo = sign ? -(double)(1 << (bits - 1)) : 0, hi = (1 << (bits - sign)) - 1;
    x86_op3(g, EV_MAXPS + w, len, dst, x, x86_each_float(g, wide, lo)); // NaN becomes lo
    x86_op3(g, EV_MINPS + w, len, dst, dst, x86_each_float(g, wide, hi));
    x86_op2(g, wide ? CVT_PD_DQ : CVT_PS_DQ, len, dst, x86_r(dst));
    if (sign && g->as.vex)
        avx2_zero_nan(g, wide, lanes, len, x);
    else if (sign)
        zero_nan(g, wide, false, len, dst, x);
}
static void make_int(struct x86_gen *g, enum dtype t, bool wide, bool lanes, enum x86_len len,
                     int dst, int x) {
    if (g->as.vex) {
        x86_avx2_int(g, t, wide, lanes, len, x);
        return;
    }

    bool sign = dtype_class(t) == DC_SIGNED, to = dtype_bits(t) == 64;
    uint32_t w = wide ? EV_PD | EV_W : 0;
    // Singles are read from half a register when they become 64 bits.
    enum x86_len made = to || wide ? FULL : len;
    if (!sign) {
        x86_op3(g, EV_MAXPS + w, len, dst, x, x86_each_float(g, wide, 0));
        x86_op2(g,
                to     ? wide ? CVT_PD_UQQ : CVT_PS_UQQ
                : wide ? CVT_PD_UDQ
                       : CVT_PS_UDQ,
                made, dst, x86_r(dst));
        return;
    }
    x86_op2(g,
            to     ? wide ? CVT_PD_QQ : CVT_PS_QQ
            : wide ? CVT_PD_DQ
                   : CVT_PS_DQ,
            made, dst, x86_r(x));
    compare(g, len, wide, x, x86_each_float(g, wide, to ? 0x1p63 : 0x1p31), NOT_LESS);
    struct x86_arg most = x86_each(g, to, to ? INT64_MAX : INT32_MAX);
    most.each = false;
    x86_masked(g, to ? EV_EACHSD : EV_EACHSS,
               to     ? FULL
               : wide ? HALF
                      : len,
               dst, 0, most, K_TMP, false);
    zero_nan(g, wide, to, len, dst, x);
}
// Lanes of x, of type `from`, as integers of type t in TMP3.
static void whole_lanes(struct x86_gen *g, const struct kir_val *v) {
    const struct kir_val *x = v->args[0];
    bool wide = x86_of(x)->wide, to = x86_of(v)->wide;
    enum dtype t = v->type;
    enum x86_len len = x86_length(g, x86_of(v)->shape, wide);
    bool lanes = x86_of(v)->shape == SHAPE_LANES;
    int r = x86_lane_reg(g, x, wide, TMP0);
    if (dtype_is_float(x->type)) {
        if (dtype_bits(t) <= 16)
            make_small(g, t, wide, lanes, len, TMP3, r);
        else
            make_int(g, t, wide, lanes, len, TMP3, r);
    } else if (to && !wide) {
        x86_op2(g, dtype_class(x->type) == DC_SIGNED ? EV_SXDQ : EV_ZXDQ, FULL, TMP3, x86_r(r));
    } else if (wide && !to) {
        x86_narrow(g, TMP3, r);
    } else {
        x86_op2(g, EV_MOVAPS, FULL, TMP3, x86_r(r));
    }
    if (wide && !to) fill(g, v, false, TMP3);
    if (!dtype_is_float(x->type) && dtype_bits(t) < 32)
        x86_normal(g, t, x86_length(g, x86_of(v)->shape, to), TMP3, TMP3);
}

void x86_cast(struct x86_gen *g, const struct kir_val *v) {
    int dst = x86_dst(g, v);
    if (v->args[0]->type == DT_PRED) {
        from_mask(g, v, dst);
    } else if (dtype_is_float(v->type)) {
        make_float(g, v, dst);
    } else if (x86_casts_freely(v)) {
        x86_put(g, v, x86_lane_reg(g, v->args[0], false, TMP0));
    } else {
        whole_lanes(g, v);
        x86_put(g, v, TMP3);
    }
}
void x86_cast_index(struct x86_gen *g, const struct kir_val *v) {
    const struct kir_val *x = v->args[0];
    if (x->type == DT_PRED) {
        x86_mask_bits(g, RAX, x86_mask_reg(g, x));
        x86_alu_imm(&g->as, ALU_AND, RAX, 1);
    } else if (v->op == K_BITS) {
        x86_op2(g, EV_TO_GPR | EV_W, L128, x86_lane_reg(g, x, true, TMP0), x86_r(RAX));
    } else if (dtype_is_float(x->type)) {
        bool wide = x86_of(x)->wide;
        make_int(g, v->type, wide, false, FULL, TMP3, x86_lane_reg(g, x, wide, TMP0));
        x86_op2(g, EV_TO_GPR | EV_W, L128, TMP3, x86_r(RAX));
    } else {
        x86_op2(g, EV_TO_GPR, L128, x86_lane_reg(g, x, false, TMP0), x86_r(RAX));
        if (dtype_class(x->type) == DC_SIGNED) x86_sxd(&g->as, RAX, RAX);
    }
    x86_put(g, v, RAX);
}

// x rounded to nearest even in the upper halves of TMP1, whose lower ones are of no use; NaN stays
// NaN (quiet). Uses TMP2 and K_TMP; x is not one of them.
static void round_bf16(struct x86_gen *g, enum x86_len len, int x) {
    enum { FIXUP = EV(3, 1, 0, 0x54), QUIET_NAN = 0x22 }; // for quiet and signalling ones
    if (g->as.vex) {
        x86_op3i(g, EV_SHIFT, len, LANES_RIGHT, TMP1, x86_r(x), 16);
        x86_op3(g, EV_AND, len, TMP1, TMP1, x86_each32(g, 1));
        x86_op3(g, EV_ADDD, len, TMP1, TMP1, x86_r(x));
        x86_op3(g, EV_ADDD, len, TMP1, TMP1, x86_each32(g, 0x7fff));
        x86_avx2_compare(g, false, false, len, MASK_TMP, x, x86_r(x), UNORDERED);
        x86_op3(g, EV_OR, len, TMP2, x, x86_each32(g, 0x400000));
        x86_avx2_blend(g, len, TMP1, TMP1, x86_r(TMP2), MASK_TMP);
        return;
    }
    x86_op3(g, EV_TEST, len, K_TMP, x, x86_each32(g, 0x10000));
    x86_op3(g, EV_ADDD, len, TMP1, x, x86_each32(g, 0x7fff));
    x86_masked(g, EV_ADDD, len, TMP1, x, x86_each32(g, 0x8000), K_TMP, false);
    x86_op3i(g, FIXUP, len, TMP1, x, x86_each32(g, QUIET_NAN), 0);
}
void x86_to_bf16(struct x86_gen *g, const struct kir_val *v, enum x86_len len, int dst, int temp) {
    int x = x86_lane_reg(g, v, false, temp);
    if (v->op != K_QUANT || v->imm_i != DT_BF16) { // else they are rounded
        round_bf16(g, len, x);
        x = TMP1;
    }
    x86_op3i(g, EV_SHIFT, len, LANES_RIGHT, dst, x86_r(x), 16);
}
void x86_quant(struct x86_gen *g, const struct kir_val *v) {
    enum x86_len len = x86_length(g, x86_of(v)->shape, false);
    int x = x86_lane_reg(g, v->args[0], false, TMP0), dst = x86_dst(g, v);
    if (v->imm_i == DT_BF16) {
        round_bf16(g, len, x);
        x86_op3(g, EV_AND, len, dst, TMP1, x86_each32(g, 0xffff0000));
    } else if (v->imm_i == DT_F16) {
        x86_op3i(g, EV_PS2PH, len, x, 0, x86_r(TMP3), 0);
        x86_op2(g, EV_PH2PS, len, dst, x86_r(TMP3));
    } else {
        g->why = "a small float";
    }
    x86_put(g, v, dst);
}
