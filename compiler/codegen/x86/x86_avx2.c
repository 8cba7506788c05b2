// SPDX-License-Identifier: Apache-2.0
// What the generator asks of AVX-512 and AVX2 says in several instructions: masks, which are
// vectors here, comparisons, bounds, and integers of 64 bits. Temporaries are those of the
// instruction that a sequence stands for (x86_gen.h) and MASK_TMP; a result is written last, since
// its register may be that of an operand.
#include "compiler/codegen/x86/x86_gen.h"

#define BLENDVPS EV(3, 1, 0, 0x4a)
#define PCMPGTD  EV(1, 1, 0, 0x66)
#define PCMPEQQ  EV(2, 1, 0, 0x29)
#define PCMPGTQ  EV(2, 1, 0, 0x37)
#define PANDN    EV(1, 1, 0, 0xdf)
enum { UNORDERED = 3, SIGN = INT32_MIN };

// ---- masks

static struct x86_arg ones(struct x86_gen *g) {
    return x86_each(g, true, UINT64_MAX);
}

int x86_avx2_widen(struct x86_gen *g, int k, bool wide, bool lanes) {
    if (!wide || !lanes) return k;
    x86_op2(g, EV_SXDQ, FULL, MASK_TMP, x86_r(k));
    return MASK_TMP;
}

int x86_avx2_tail(struct x86_gen *g, bool wide, int temp) {
    if (g->left < 0) {
        x86_op2(g, wide ? EV_SXDQ : EV_MOVUPS, FULL, temp, x86_m(x86_at(RSP, g->tail)));
        return temp;
    }
    uint32_t lanes[8];
    for (int k = 0; k < 8; k++)
        lanes[k] = (k >> wide) < g->left ? UINT32_MAX : 0;
    x86_op2(g, EV_MOVUPS, FULL, temp, x86_m(x86_pooled(x86_const(&g->as, lanes, sizeof lanes))));
    return temp;
}

// A window of eight lanes over eight that are set and eight that are not.
void x86_avx2_set_tail(struct x86_gen *g) {
    uint32_t lanes[16];
    for (int k = 0; k < 16; k++)
        lanes[k] = k < 8 ? UINT32_MAX : 0;
    if (!g->tail) {
        g->tail = x86_frame_slot(g);
        if (!g->tail) g->tail = x86_frame_slot(g); // 0 says: none yet
    }
    x86_lea(&g->as, RAX, x86_pooled(x86_const(&g->as, lanes, sizeof lanes) + 32));
    x86_shift_imm(&g->as, SHIFT_LEFT, RCX, 2);
    x86_alu(&g->as, ALU_SUB, RAX, RCX);
    x86_op2(g, EV_MOVUPS, FULL, TMP0, x86_m(x86_at(RAX, 0)));
    x86_op2(g, EV_STOREUPS, FULL, TMP0, x86_m(x86_at(RSP, g->tail)));
}

void x86_avx2_blend(struct x86_gen *g, enum x86_len len, int dst, int no, struct x86_arg yes,
                    int k) {
    x86_op3i(g, BLENDVPS, len, dst, no, yes, (k & 15) << 4);
}

void x86_avx2_logic(struct x86_gen *g, const struct kir_val *v, int dst) {
    int x = x86_avx2_mask(g, v->args[0], MASK_TMP), y = x86_avx2_mask(g, v->args[1], TMP0);
    bool less = v->imm_i == CMP_LT || v->imm_i == CMP_GE, turn = false;
    if (v->op == K_AND || v->op == K_OR) {
        x86_op3(g, v->op == K_AND ? EV_AND : EV_OR, FULL, dst, x, x86_r(y));
    } else if (v->op == K_XOR || v->imm_i == CMP_NE) {
        x86_op3(g, EV_XOR, FULL, dst, x, x86_r(y));
    } else if (v->imm_i == CMP_EQ) {
        x86_op3(g, EV_PCMPEQD, FULL, dst, x, x86_r(y));
    } else { // x < y is y without x
        x86_op3(g, PANDN, FULL, dst, less ? x : y, x86_r(less ? y : x));
        turn = v->imm_i == CMP_GE || v->imm_i == CMP_LE;
    }
    if (turn) x86_op3(g, EV_XOR, FULL, dst, dst, ones(g));
}

// ---- comparisons

// Lanes of a comparison become 32 bits where it was of 64.
static void kept(struct x86_gen *g, bool wide, bool lanes, int dst, int made) {
    if (wide && lanes)
        x86_narrow(g, dst, made);
    else if (dst != made)
        x86_op2(g, EV_MOVAPS, FULL, dst, x86_r(made));
}

void x86_avx2_compare(struct x86_gen *g, bool wide, bool lanes, enum x86_len len, int dst, int x,
                      struct x86_arg y, int how) {
    x86_op3i(g, EV_CMPPS + (wide ? EV_PD : 0), len, dst, x, y, how);
    kept(g, wide, lanes, dst, dst);
}

// Without a sign a number is compared with what the other bounds it to; those of 64 bits, for which
// there are no bounds, with signs turned.
void x86_avx2_compare_ints(struct x86_gen *g, const struct kir_val *v, int dst) {
    const struct kir_val *a = v->args[0], *b = v->args[1];
    bool wide = x86_of(a)->wide || x86_of(b)->wide, lanes = x86_of(v)->shape == SHAPE_LANES,
         sign = dtype_class(a->type) == DC_SIGNED;
    enum x86_len len = x86_length(g, x86_of(v)->shape, wide);
    enum cmp_direction d = (enum cmp_direction)v->imm_i;
    bool greater = d == CMP_GT || d == CMP_LE, equal = d == CMP_EQ || d == CMP_NE,
         turn = d == CMP_NE || d == CMP_GE || d == CMP_LE;
    int x = x86_lane_reg(g, a, wide, TMP0), y = x86_lane_reg(g, b, wide, TMP1);

    if (equal) {
        x86_op3(g, wide ? PCMPEQQ : EV_PCMPEQD, len, TMP3, x, x86_r(y));
    } else if (!sign && !wide) {
        x86_op3(g, greater ? EV_MINUD : EV_MAXUD, len, TMP3, x, x86_r(y)); // x <= y, x >= y
        x86_op3(g, EV_PCMPEQD, len, TMP3, TMP3, x86_r(x));
        turn = d == CMP_GT || d == CMP_LT;
    } else {
        if (!sign) {
            x86_op3(g, EV_XOR, len, TMP2, x, x86_each64(g, UINT64_C(1) << 63));
            x86_op3(g, EV_XOR, len, TMP3, y, x86_each64(g, UINT64_C(1) << 63));
            x = TMP2;
            y = TMP3;
        }
        x86_op3(g, wide ? PCMPGTQ : PCMPGTD, len, TMP3, greater ? x : y, x86_r(greater ? y : x));
    }
    if (turn) x86_op3(g, EV_XOR, len, TMP3, TMP3, ones(g));
    kept(g, wide, lanes, dst, TMP3);
}

void x86_avx2_nonzero(struct x86_gen *g, bool wide, bool lanes, enum x86_len len, int dst, int x) {
    x86_op3(g, EV_XOR, len, TMP3, TMP3, x86_r(TMP3));
    x86_op3(g, wide ? PCMPEQQ : EV_PCMPEQD, len, TMP3, x, x86_r(TMP3));
    x86_op3(g, EV_XOR, len, TMP3, TMP3, ones(g));
    kept(g, wide, lanes, dst, TMP3);
}

// ---- arithmetic

// Of equal operands, zeros of both signs among them, each order gives another: bits of both (or of
// either) are the larger (smaller) zero. What is NaN is the sum instead.
void x86_avx2_extremum(struct x86_gen *g, bool max, bool wide, enum x86_len len, int dst, int x,
                       struct x86_arg y) {
    uint32_t w = wide ? EV_PD : 0, op = (max ? EV_MAXPS : EV_MINPS) + w;
    int yr = x86_in_register(g, y, wide, len, TMP2);
    x86_op3(g, op, len, TMP3, x, x86_r(yr));
    x86_op3(g, op, len, MASK_TMP, yr, x86_r(x));
    x86_op3(g, max ? EV_AND : EV_OR, len, TMP3, TMP3, x86_r(MASK_TMP));
    x86_op3i(g, EV_CMPPS + w, len, MASK_TMP, x, x86_r(yr), UNORDERED);
    x86_op3(g, EV_ADDPS + w, len, TMP2, x, x86_r(yr));
    x86_avx2_blend(g, len, dst, TMP3, x86_r(TMP2), MASK_TMP);
}

// The low halves of products, and of the sum of the mixed ones above.
static void wide_product(struct x86_gen *g, int dst, int x, int y) {
    x86_lane_shift(g, true, FULL, TMP3, x, LANES_RIGHT, 32);
    x86_op3(g, EV_MULUDQ, FULL, TMP3, TMP3, x86_r(y));
    x86_lane_shift(g, true, FULL, MASK_TMP, y, LANES_RIGHT, 32);
    x86_op3(g, EV_MULUDQ, FULL, MASK_TMP, MASK_TMP, x86_r(x));
    x86_op3(g, EV_ADDQ, FULL, TMP3, TMP3, x86_r(MASK_TMP));
    x86_lane_shift(g, true, FULL, TMP3, TMP3, LANES_LEFT, 32);
    x86_op3(g, EV_MULUDQ, FULL, MASK_TMP, x, x86_r(y));
    x86_op3(g, EV_ADDQ, FULL, dst, TMP3, x86_r(MASK_TMP));
}
// Without a sign, with signs turned.
static void wide_bound(struct x86_gen *g, bool max, bool sign, int dst, int x, int y) {
    int a = x, b = y;
    if (!sign) {
        x86_op3(g, EV_XOR, FULL, TMP3, x, x86_each64(g, UINT64_C(1) << 63));
        x86_op3(g, EV_XOR, FULL, MASK_TMP, y, x86_each64(g, UINT64_C(1) << 63));
        a = TMP3;
        b = MASK_TMP;
    }
    x86_op3(g, PCMPGTQ, FULL, MASK_TMP, a, x86_r(b)); // x > y
    x86_avx2_blend(g, FULL, dst, max ? y : x, x86_r(max ? x : y), MASK_TMP);
}
// A shift that keeps the sign is one of the number or its complement, whichever is not negative.
static void wide_shift_signed(struct x86_gen *g, int dst, int x, int y) {
    x86_op3(g, EV_XOR, FULL, TMP3, TMP3, x86_r(TMP3));
    x86_op3(g, PCMPGTQ, FULL, MASK_TMP, TMP3, x86_r(x));
    x86_op3(g, EV_XOR, FULL, TMP3, x, x86_r(MASK_TMP));
    x86_op3(g, EV_SRLV | EV_W, FULL, TMP3, TMP3, x86_r(y));
    x86_op3(g, EV_XOR, FULL, dst, TMP3, x86_r(MASK_TMP));
}
void x86_avx2_wide(struct x86_gen *g, enum kop op, enum dtype t, int dst, int x, struct x86_arg y) {
    bool sign = dtype_class(t) == DC_SIGNED;
    int yr = x86_in_register(g, y, true, FULL, TMP2);
    switch (op) {
    case K_MUL:
        wide_product(g, dst, x, yr);
        break;
    case K_MIN:
    case K_MAX:
        wide_bound(g, op == K_MAX, sign, dst, x, yr);
        break;
    case K_AND:
        x86_op3(g, EV_AND, FULL, dst, x, x86_r(yr));
        break;
    case K_OR:
        x86_op3(g, EV_OR, FULL, dst, x, x86_r(yr));
        break;
    case K_XOR:
        x86_op3(g, EV_XOR, FULL, dst, x, x86_r(yr));
        break;
    case K_SHL:
        x86_op3(g, EV_SLLV | EV_W, FULL, dst, x, x86_r(yr));
        break;
    default:
        if (sign)
            wide_shift_signed(g, dst, x, yr);
        else
            x86_op3(g, EV_SRLV | EV_W, FULL, dst, x, x86_r(yr));
    }
}
void x86_avx2_wide_abs(struct x86_gen *g, int dst, int x) {
    x86_op3(g, EV_XOR, FULL, TMP1, TMP1, x86_r(TMP1));
    x86_op3(g, PCMPGTQ, FULL, TMP1, TMP1, x86_r(x));
    x86_op3(g, EV_XOR, FULL, MASK_TMP, x, x86_r(TMP1));
    x86_op3(g, EV_SUBQ, FULL, dst, MASK_TMP, x86_r(TMP1));
}

void x86_avx2_words(struct x86_gen *g, enum x86_len len, int dst, int x) {
    uint8_t from[32];
    for (int k = 0; k < 32; k++)
        from[k] = k % 16 < 8 ? (uint8_t)(k % 16 / 2 * 4 + k % 2) : 0x80;
    x86_op3(g, EV_PSHUFB, len, dst, x, x86_m(x86_pooled(x86_const(&g->as, from, sizeof from))));
    if (len == FULL) x86_op3i(g, EV_PERMQ, FULL, dst, 0, x86_r(dst), 0x08);
}
