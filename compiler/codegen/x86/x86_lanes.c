// SPDX-License-Identifier: Apache-2.0
// Classes V and K: arithmetic in vector registers and masks. The last operand of an instruction
// may be memory: a slot, or a constant of the pool that is read into all lanes.
#include "compiler/codegen/x86/x86_gen.h"

enum { ROUND_NEAREST = 8, ROUND_DOWN, ROUND_UP, ROUND_ZERO }; // 8: no exceptions
enum { UNORDERED = 3 };

static enum x86_len length_of(const struct x86_gen *g, const struct kir_val *v, bool wide) {
    if (v->lanes) return x86_whole(g, v);
    return x86_length(g, x86_of(v)->shape, wide);
}

// ---- arithmetic

// The instruction alone: of zeros and NaN it gives its second operand.
static uint32_t bound_op(bool max, bool wide) {
    return (max ? EV_MAXPS : EV_MINPS) + (wide ? EV_PD | EV_W : 0);
}
// minimum and maximum: NaN wins, -0 < +0.
static void extremum(struct x86_gen *g, bool max, bool wide, enum x86_len len, int dst, int x,
                     struct x86_arg y) {
    if (g->as.vex) {
        x86_avx2_extremum(g, max, wide, len, dst, x, y);
        return;
    }
    uint32_t w = wide ? EV_W : 0;
    int k = K_TMP, yr = x86_in_register(g, y, wide, len, TMP2);
    x86_op3i(g, EV_CMPPS + (wide ? EV_PD | EV_W : 0), len, k, x, x86_r(yr), UNORDERED);
    x86_op3i(g, EV_RANGE | w, len, TMP3, x, x86_r(yr), max ? 5 : 4);
    x86_masked(g, EV_ADDPS + (wide ? EV_PD | EV_W : 0), len, TMP3, x, x86_r(yr), k, false);
    if (dst != TMP3) x86_op2(g, EV_MOVAPS, len, dst, x86_r(TMP3));
}
void x86_bound_numbers(struct x86_gen *g, bool max, bool wide, enum x86_len len, int dst, int y) {
    uint32_t op = bound_op(max, wide);
    if (!g->as.vex) {
        x86_op3i(g, EV_RANGE | (wide ? EV_W : 0), len, dst, dst, x86_r(y), max ? 5 : 4);
        return;
    }
    x86_op3(g, op, len, TMP3, dst, x86_r(y)); // of zeros the second operand: both ways
    x86_op3(g, op, len, MASK_TMP, y, x86_r(dst));
    x86_op3(g, max ? EV_AND : EV_OR, len, dst, TMP3, x86_r(MASK_TMP));
}
void x86_jump_numbers(struct x86_gen *g, bool wide, enum x86_len len, int x, int label) {
    int k = g->as.vex ? MASK_TMP : K_TMP;
    x86_op3i(g, EV_CMPPS + (wide ? EV_PD | EV_W : 0), len, k, x, x86_r(x), UNORDERED);
    if (g->as.vex)
        x86_op2(g, EV_PTEST, FULL, k, x86_r(k));
    else
        x86_mask_test(&g->as, k);
    x86_jump_if(&g->as, CC_E, label);
}
static const uint32_t float_ops[KOP_COUNT] = {
    [K_ADD] = EV_ADDPS, [K_SUB] = EV_SUBPS, [K_MUL] = EV_MULPS, [K_DIV] = EV_DIVPS};
// Of unsigned and signed integers. Sums of 64 bits have an opcode of their own.
static const uint32_t int_ops[KOP_COUNT][2] = {
    [K_ADD] = {EV_ADDD, EV_ADDD},   [K_SUB] = {EV_SUBD, EV_SUBD},   [K_MUL] = {EV_MULD, EV_MULD},
    [K_MIN] = {EV_MINUD, EV_MINSD}, [K_MAX] = {EV_MAXUD, EV_MAXSD}, [K_AND] = {EV_AND, EV_AND},
    [K_OR] = {EV_OR, EV_OR},        [K_XOR] = {EV_XOR, EV_XOR},     [K_SHL] = {EV_SLLV, EV_SLLV},
    [K_SHR] = {EV_SRLV, EV_SRAV}};
static uint32_t int_op(enum kop op, bool sign, bool wide) {
    if (wide && (op == K_ADD || op == K_SUB)) return op == K_ADD ? EV_ADDQ : EV_SUBQ;
    uint32_t o = int_ops[op][sign];
    return o && wide ? o | EV_W : o;
}
void x86_combine(struct x86_gen *g, enum kop op, enum dtype t, bool wide, enum x86_len len, int dst,
                 int x, struct x86_arg y) {
    if (dtype_is_float(t)) {
        uint32_t o = float_ops[op];
        if (o)
            x86_op3(g, o + (wide ? EV_PD | EV_W : 0), len, dst, x, y);
        else
            extremum(g, op == K_MAX, wide, len, dst, x, y);
        return;
    }
    uint32_t o = int_op(op, dtype_class(t) == DC_SIGNED, wide);
    if (!o) g->why = "an operation on integers";
    if (g->as.vex && wide && op != K_ADD && op != K_SUB)
        x86_avx2_wide(g, op, t, dst, x, y);
    else
        x86_op3(g, o, len, dst, x, y);
    bool grows = op == K_ADD || op == K_SUB || op == K_MUL || op == K_SHL;
    if (grows && dtype_bits(t) < 32) x86_normal(g, t, len, dst, dst);
}

// A bound that is a constant: the instruction alone does, since of NaN and of equal zeros it gives
// its second operand; but for +0 as a lower bound, which turns -0 into +0.
static bool constant_bound(struct x86_gen *g, const struct kir_val *v, enum x86_len len, bool wide,
                           int dst) {
    int c = v->args[0]->op == K_CONST ? 0 : 1;
    const struct kir_val *bound = v->args[c], *x = v->args[1 - c];
    if (bound->op != K_CONST || !dtype_is_float(v->type) || bound->imm_f != bound->imm_f)
        return false;
    bool zero = bound->imm_f == 0, minus = zero && __builtin_signbit(bound->imm_f);
    if (zero && minus) return false;
    uint32_t w = wide ? EV_PD | EV_W : 0;
    int b = x86_lane_reg(g, bound, wide, TMP0);
    x86_op3(g, bound_op(v->op == K_MAX, wide), len, dst, b, x86_lane_arg(g, x, wide, TMP1));
    if (zero && v->op == K_MAX)
        x86_op3(g, EV_ADDPS + w, len, dst, dst, x86_lane_const(g, bound, wide));
    return true;
}
// The operands, that which may be memory last.
static void arguments(struct x86_gen *g, const struct kir_val *v, bool wide, int *x,
                      struct x86_arg *y) {
    const struct kir_val *a = v->args[0], *b = v->args[1];
    if (kop_commutes(v->op)) x86_constant_last(&a, &b);
    *x = x86_lane_reg(g, a, wide, TMP0);
    *y = x86_lane_arg(g, b, wide, TMP1);
}
static bool args_wide(const struct kir_val *v, int from) {
    for (int k = from; k < v->n_args; k++)
        if (x86_of(v->args[k])->wide) return true;
    return x86_of(v)->wide;
}

static void multiply_add(struct x86_gen *g, enum x86_len len, bool wide, const struct kir_val *a,
                         const struct kir_val *b, const struct kir_val *c, int dst) {
    uint32_t w = wide ? EV_W : 0;
    x86_constant_last(&a, &b);
    int x = x86_lane_reg(g, a, wide, TMP0);
    struct x86_arg y = x86_lane_arg(g, b, wide, TMP1), z = x86_lane_arg(g, c, wide, TMP2);
    if (!z.mem && z.reg == dst) {
        x86_op3(g, EV_FMA231 | w, len, dst, x, y);
    } else if (x == dst || y.mem || y.reg != dst) { // dst is not y: it may become x
        int d = !z.mem && z.reg == dst ? TMP3 : dst;
        if (y.mem && z.mem) {
            int t = x86_in_register(g, y, wide, len, TMP1);
            y = x86_r(t);
        }
        if (d != x) x86_op2(g, EV_MOVAPS, len, d, x86_r(x));
        if (z.mem)
            x86_op3(g, EV_FMA213 | w, len, d, y.reg, z);
        else
            x86_op3(g, EV_FMA132 | w, len, d, z.reg, y);
        if (d != dst) x86_op2(g, EV_MOVAPS, len, dst, x86_r(d));
    } else { // dst is y
        x86_op3(g, EV_FMA213 | w, len, dst, x, z);
    }
}
// The product that the sum v computes; NULL: none.
static const struct kir_val *product_of(const struct kir_val *v) {
    for (int k = 0; k < v->n_args && v->op == K_ADD; k++)
        if (v->args[k]->op == K_MUL && x86_of(v->args[k])->fused) return v->args[k];
    return NULL;
}
static void int_sum(struct x86_gen *g, const struct kir_val *v, enum x86_len len, int dst) {
    const struct kir_val *m = product_of(v), *z = v->args[v->args[0] == m];
    int x = x86_lane_reg(g, m->args[0], false, TMP0);
    x86_op3(g, EV_MULD, len, TMP0, x, x86_lane_arg(g, m->args[1], false, TMP1));
    x86_op3(g, EV_ADDD, len, dst, TMP0, x86_lane_arg(g, z, false, TMP1));
}
static void float_sum(struct x86_gen *g, const struct kir_val *v, enum x86_len len, bool wide,
                      int dst) {
    const struct kir_val *m = product_of(v);
    if (m) {
        multiply_add(g, len, wide, m->args[0], m->args[1], v->args[v->args[0] == m], dst);
        return;
    }
    int x;
    struct x86_arg y;
    arguments(g, v, wide, &x, &y);
    x86_op3(g, (v->op == K_ADD ? EV_ADDPS : EV_SUBPS) + (wide ? EV_PD | EV_W : 0), len, dst, x, y);
}

// Unsigned numbers below 2^31 by a constant: products of the even and of the odd lanes with a
// reciprocal rounded up, as in x86_index.c.
static void divide(struct x86_gen *g, int64_t s, enum x86_len len, int dst, int x) {
    int bits = 64 - __builtin_clzll((uint64_t)s - 1);
    uint64_t reciprocal = (uint64_t)(((__int128)1 << (31 + bits)) / s + 1);
    struct x86_arg m = x86_each64(g, reciprocal);
    x86_op3(g, EV_MULUDQ, len, TMP1, x, m);
    x86_lane_shift(g, true, len, TMP2, x, LANES_RIGHT, 32);
    x86_op3(g, EV_MULUDQ, len, TMP2, TMP2, m);
    x86_lane_shift(g, true, len, TMP1, TMP1, LANES_RIGHT, 31 + bits);
    x86_lane_shift(g, true, len, TMP2, TMP2, LANES_RIGHT, 31 + bits);
    x86_lane_shift(g, true, len, TMP2, TMP2, LANES_LEFT, 32);
    x86_op3(g, EV_OR, len, dst, TMP1, x86_r(TMP2));
}
static void quotient(struct x86_gen *g, int64_t s, bool wide, enum x86_len len, int dst, int x) {
    if ((s & (s - 1)) == 0)
        x86_lane_shift(g, wide, len, dst, x, LANES_RIGHT, __builtin_ctzll((uint64_t)s));
    else if (!wide && s <= INT32_MAX)
        divide(g, s, len, dst, x);
    else if (!wide)
        x86_op3(g, EV_XOR, len, dst, x, x86_r(x));
    else
        g->why = "a division of lanes";
}
static void divmod(struct x86_gen *g, const struct kir_val *v) {
    int64_t s = v->imm_i, m = v->imm_j;
    bool wide = x86_of(v->args[0])->wide;
    enum x86_len len = length_of(g, v, wide);
    int x = x86_lane_reg(g, v->args[0], wide, TMP0);
    if (s > 1) {
        quotient(g, s, wide, len, TMP0, x);
        x = TMP0;
    }
    if (m && (m & (m - 1)) == 0) {
        x86_op3(g, EV_AND | (wide ? EV_W : 0), len, TMP3, x,
                wide ? x86_each64(g, (uint64_t)m - 1) : x86_each32(g, (uint32_t)(m - 1)));
        x = TMP3;
    } else if (m && (wide || m <= INT32_MAX)) {
        quotient(g, m, wide, len, TMP3, x);
        x86_op3(g, EV_MULD, len, TMP3, TMP3, x86_each32(g, (uint32_t)m));
        x86_op3(g, EV_SUBD, len, TMP3, x, x86_r(TMP3));
        x = TMP3;
    }
    if (wide && !x86_of(v)->wide) {
        x86_narrow(g, TMP3, x);
        x = TMP3;
    }
    x86_put(g, v, x);
}

static void unary(struct x86_gen *g, const struct kir_val *v, enum x86_len len, bool wide,
                  int dst) {
    bool is_float = dtype_is_float(v->type);
    uint32_t w = wide ? EV_W : 0;
    struct x86_arg y = x86_lane_arg(g, v->args[0], wide, TMP0);
    uint64_t sign = UINT64_C(1) << (wide ? 63 : 31);
    int x;

    switch (v->op) {
    case K_NEG:
        x = x86_in_register(g, y, wide, len, TMP0);
        if (is_float) {
            x86_op3(g, EV_XOR | w, len, dst, x, x86_each(g, wide, sign));
            break;
        }
        x86_op3(g, EV_XOR, len, TMP1, TMP1, x86_r(TMP1));
        x86_op3(g, wide ? EV_SUBQ : EV_SUBD, len, dst, TMP1, x86_r(x));
        if (dtype_bits(v->type) < 32) x86_normal(g, v->type, len, dst, dst);
        break;
    case K_ABS:
        x = x86_in_register(g, y, wide, len, TMP0);
        if (is_float)
            x86_op3(g, EV_AND | w, len, dst, x, x86_each(g, wide, sign - 1));
        else if (wide && g->as.vex)
            x86_avx2_wide_abs(g, dst, x);
        else
            x86_op2(g, wide ? EV_ABSQ : EV_ABSD, len, dst, x86_r(x));
        if (dtype_bits(v->type) < 32) x86_normal(g, v->type, len, dst, dst);
        break;
    case K_SQRT:
        x86_op2(g, EV_SQRTPS + (wide ? EV_PD | EV_W : 0), len, dst, y);
        break;
    case K_FLOOR:
    case K_CEIL:
    case K_RINT:
        x86_op3i(g, wide ? EV_RNDSCALEPD : EV_RNDSCALEPS, len, dst, 0, y,
                 v->op == K_FLOOR  ? ROUND_DOWN
                 : v->op == K_CEIL ? ROUND_UP
                                   : ROUND_NEAREST);
        break;
    default: { // K_ROUND: towards zero of x + copysign(largest below a half, x)
        double half = wide ? 0x1.fffffffffffffp-2 : 0x1.fffffep-2;
        x = x86_in_register(g, y, wide, len, TMP0);
        x86_op3(g, EV_AND | w, len, TMP1, x, x86_each(g, wide, sign));
        x86_op3(g, EV_OR | w, len, TMP1, TMP1, x86_each_float(g, wide, half));
        x86_op3(g, EV_ADDPS + (wide ? EV_PD | EV_W : 0), len, TMP1, TMP1, x86_r(x));
        x86_op3i(g, wide ? EV_RNDSCALEPD : EV_RNDSCALEPS, len, dst, 0, x86_r(TMP1), ROUND_ZERO);
    }
    }
}
static void copysign_lanes(struct x86_gen *g, const struct kir_val *v, enum x86_len len, bool wide,
                           int dst) {
    uint32_t w = wide ? EV_W : 0;
    uint64_t sign = UINT64_C(1) << (wide ? 63 : 31);
    struct x86_arg s = x86_each(g, wide, sign), rest = x86_each(g, wide, sign - 1);
    int x = x86_lane_reg(g, v->args[0], wide, TMP0), y = x86_lane_reg(g, v->args[1], wide, TMP1);
    x86_op3(g, EV_AND | w, len, TMP2, x, rest);
    x86_op3(g, EV_AND | w, len, TMP1, y, s);
    x86_op3(g, EV_OR | w, len, dst, TMP1, x86_r(TMP2));
}
// A choice by a comparison of what it chooses among (x86_choose.c: fuse_bound).
static void choose_bound(struct x86_gen *g, const struct kir_val *v, enum x86_len len, bool wide,
                         int dst) {
    const struct kir_val *c = v->args[0], *yes = v->args[1];
    bool max = yes == c->args[c->imm_i == CMP_GT ? 0 : 1];
    x86_op3(g, (max ? EV_MAXPS : EV_MINPS) + (wide ? EV_PD | EV_W : 0), len, dst,
            x86_lane_reg(g, yes, wide, TMP0), x86_lane_arg(g, v->args[2], wide, TMP1));
}
static void choose(struct x86_gen *g, const struct kir_val *v, enum x86_len len, bool wide,
                   int dst) {
    if (x86_of(v->args[0])->fused) {
        choose_bound(g, v, len, wide, dst);
        return;
    }
    int k = x86_mask_reg(g, v->args[0]), no = x86_lane_reg(g, v->args[2], wide, TMP0);
    if (g->as.vex) {
        struct x86_arg yes = x86_lane_arg(g, v->args[1], wide, TMP1);
        k = x86_avx2_widen(g, k, wide, x86_of(v->args[0])->shape == SHAPE_LANES);
        x86_avx2_blend(g, len, dst, no, yes, k);
        return;
    }
    x86_masked(g, EV_BLEND | (wide ? EV_W : 0), len, dst, no,
               x86_lane_arg(g, v->args[1], wide, TMP1), k, false);
}
// Quotients, and counts of bits, of single integers.
static void by_integers(struct x86_gen *g, const struct kir_val *v, int dst) {
    enum dtype t = v->type;
    bool sign = dtype_class(t) == DC_SIGNED;
    int bits = dtype_bits(t);
    if (x86_of(v)->shape != SHAPE_SAME || bits > 32) g->why = "integers of lanes";
    x86_op2(g, EV_TO_GPR, L128, x86_lane_reg(g, v->args[0], false, TMP0), x86_r(RAX));
    if (v->op == K_CLZ || v->op == K_POPCNT) {
        if (bits < 32) x86_alu_imm(&g->as, ALU_AND, RAX, (1 << bits) - 1);
        x86_count(&g->as, v->op == K_POPCNT, RAX, RAX);
        if (v->op == K_CLZ) x86_alu_imm(&g->as, ALU_SUB, RAX, 64 - bits);
    } else {
        x86_op2(g, EV_TO_GPR, L128, x86_lane_reg(g, v->args[1], false, TMP0), x86_r(RCX));
        if (sign)
            x86_sign(&g->as, false);
        else
            x86_mov_imm(&g->as, RDX, 0);
        x86_unary(&g->as, sign ? UN_IDIV : UN_DIV, RCX, false);
        if (v->op == K_REM) x86_mov(&g->as, RAX, RDX);
    }
    x86_each_gpr(g, false, dst, RAX);
}

// The last step of an exponential (x86_power.c).
static void power_of_two(struct x86_gen *g, const struct kir_val *v, int dst) {
    struct kir_val *const *x = x86_of(v)->power;
    bool wide = x86_of(v)->wide;
    int p = x86_lane_reg(g, x[0], wide, TMP0);
    x86_op3(g, EV_SCALEF | (wide ? EV_W : 0), length_of(g, v, wide), dst, p,
            x86_lane_arg(g, x[1], wide, TMP1));
    x86_put(g, v, dst);
}

static void arithmetic(struct x86_gen *g, const struct kir_val *v, int dst) {
    bool wide = args_wide(v, v->op == K_SELECT), is_float = dtype_is_float(v->type);
    enum x86_len len = length_of(g, v, wide);
    int x;
    struct x86_arg y;
    bool all_one = g->as.one;
    g->as.one |= x86_of(v)->narrow;

    switch (v->op) {
    case K_FMA:
        multiply_add(g, len, wide, v->args[0], v->args[1], v->args[2], dst);
        break;
    case K_NEG:
    case K_ABS:
    case K_SQRT:
    case K_FLOOR:
    case K_CEIL:
    case K_RINT:
    case K_ROUND:
        unary(g, v, len, wide, dst);
        break;
    case K_COPYSIGN:
        copysign_lanes(g, v, len, wide, dst);
        break;
    case K_SELECT:
        choose(g, v, len, wide, dst);
        break;
    case K_DIV:
    case K_REM:
        if (!is_float) {
            by_integers(g, v, dst);
            break;
        } // fall through
    default:
        if (is_float && (v->op == K_ADD || v->op == K_SUB)) {
            float_sum(g, v, len, wide, dst);
        } else if (product_of(v)) {
            int_sum(g, v, len, dst);
        } else if (!((v->op == K_MIN || v->op == K_MAX) && constant_bound(g, v, len, wide, dst))) {
            arguments(g, v, wide, &x, &y);
            if (v->flags & KF_NUMBERS) // of zeros either, of NaN what may come
                x86_op3(g, bound_op(v->op == K_MAX, wide), len, dst, x, y);
            else
                x86_combine(g, v->op, v->type, wide, len, dst, x, y);
        }
    }

    if (x86_of(v)->narrow) {
        g->as.one = all_one;
        x86_op2(g, wide ? EV_EACHSD : EV_EACHSS, FULL, dst, x86_r(dst));
    }
    if (wide && !x86_of(v)->wide) {
        x86_narrow(g, TMP3, dst);
        x86_put(g, v, TMP3);
    } else {
        x86_put(g, v, dst);
    }
}

// Lanes of two values in turn: of their first halves, or of their second ones.
static void zip(struct x86_gen *g, const struct kir_val *v, int dst) {
    enum { LOWER = 0x20, UPPER = 0x31, SECOND = 1 };
    bool wide = x86_of(v)->wide;
    enum x86_len len = x86_whole(g, v);
    int x = x86_lane_reg(g, v->args[0], wide, TMP0), y = x86_lane_reg(g, v->args[1], wide, TMP1),
        lanes = v->lanes, half = lanes / 2;
    uint32_t low = wide ? EV_UNPCKPD : EV_UNPCKPS, high = low + 1;

    if (lanes * (wide ? 8 : 4) <= 8) { // two of 4 bytes
        x86_op3(g, low, len, dst, x, x86_r(y));
        if (v->imm_i) x86_op3i(g, EV_PERMILPD, len, dst, 0, x86_r(dst), SECOND);
    } else if (lanes * (wide ? 8 : 4) <= 16) {
        x86_op3(g, v->imm_i ? high : low, len, dst, x, x86_r(y));
    } else if (g->as.vex) {
        x86_op3(g, low, len, TMP2, x, x86_r(y));
        x86_op3(g, high, len, TMP3, x, x86_r(y));
        x86_op3i(g, EV_PERM_HALVES, len, dst, TMP2, x86_r(TMP3), v->imm_i ? UPPER : LOWER);
    } else {
        int64_t at64[8];
        int32_t at32[16];
        for (int k = 0; k < lanes; k++) {
            int at = (v->imm_i ? half : 0) + k / 2 + k % 2 * lanes;
            if (wide) at64[k] = at;
            if (!wide) at32[k] = at;
        }
        int32_t at = x86_const(&g->as, wide ? (void *)at64 : (void *)at32, 4 * (1 + wide) * lanes);
        dst = dst != x && dst != y ? dst : TMP2; // of places first
        x86_op2(g, EV_MOVUPS, len, dst, x86_m(x86_pooled(at)));
        x86_op3(g, EV_PERMI2PS | (wide ? EV_W : 0), len, dst, x, x86_r(y));
    }
    x86_put(g, v, dst);
}

void x86_lane_value(struct x86_gen *g, const struct kir_val *v) {
    int dst;
    bool wide = x86_of(v)->wide;
    if (v->op == K_CONST || x86_of(v)->fused) return;
    dst = x86_dst(g, v);

    switch (v->op) {
    case K_LOAD:
    case K_TABLE:
        x86_load_value(g, v);
        break;
    case K_ZIP:
        zip(g, v, dst);
        break;
    case K_DIVMOD:
        divmod(g, v);
        break;
    case K_CAST:
        x86_cast(g, v);
        break;
    case K_QUANT:
        x86_quant(g, v);
        break;
    case K_BITS:
        if (dtype_bits(v->type) < 32) {
            x86_normal(g, v->type, length_of(g, v, false), dst,
                       x86_lane_reg(g, v->args[0], false, TMP0));
            x86_put(g, v, dst);
        } else {
            bool from = wide || dtype_bits(v->type) == 64;
            x86_put(g, v, x86_lane_reg(g, v->args[0], from, TMP0));
        }
        break;
    case K_CLZ:
    case K_POPCNT:
        by_integers(g, v, dst);
        x86_put(g, v, dst);
        break;
    default:
        if (x86_of(v)->power[0])
            power_of_two(g, v, dst);
        else
            arithmetic(g, v, dst);
    }
}

// ---- class K

// AVX-512: of one value for all lanes, compared in lanes of 64 bits, a loop may read 16 lanes.
static void all_lanes(struct x86_gen *g, const struct kir_val *v, bool wide, int k) {
    if (wide && !g->as.vex && !g->as.one && x86_of(v)->shape == SHAPE_SAME)
        x86_mask_twice(&g->as, k);
}
static void compare(struct x86_gen *g, const struct kir_val *v, int k) {
    static const uint8_t real[] = {0, 4, 0x1d, 0x1e, 0x12, 0x11}, whole[] = {0, 4, 5, 6, 2, 1};
    const struct kir_val *x = v->args[0], *y = v->args[1];
    enum dtype t = x->type;
    bool wide = x86_of(x)->wide || x86_of(y)->wide, lanes = x86_of(v)->shape == SHAPE_LANES;
    if (g->as.vex && !dtype_is_float(t)) {
        x86_avx2_compare_ints(g, v, k);
        return;
    }
    uint32_t op = dtype_is_float(t)             ? EV_CMPPS + (wide ? EV_PD | EV_W : 0)
                  : dtype_class(t) == DC_SIGNED ? EV_CMPD | (wide ? EV_W : 0)
                                                : EV_CMPUD | (wide ? EV_W : 0);
    int a = x86_lane_reg(g, x, wide, TMP0);
    struct x86_arg b = x86_lane_arg(g, y, wide, TMP1);
    if (g->as.vex)
        x86_avx2_compare(g, wide, lanes, length_of(g, v, wide), k, a, b, real[v->imm_i]);
    else
        x86_op3i(g, op, length_of(g, v, wide), k, a, b,
                 dtype_is_float(t) ? real[v->imm_i] : whole[v->imm_i]);
    all_lanes(g, v, wide, k);
}
static void compare_ints(struct x86_gen *g, const struct kir_val *v, int k) {
    static const uint8_t sign[] = {CC_E, CC_NE, CC_GE, CC_G, CC_LE, CC_L},
                         none[] = {CC_E, CC_NE, CC_AE, CC_A, CC_BE, CC_B};
    int x = x86_int(g, v->args[0], RAX), y = x86_int(g, v->args[1], RCX);
    x86_alu(&g->as, ALU_CMP, x, y);
    x86_mask_of_flags(
        g, (enum x86_cc)(v->args[0]->type == DT_S64 ? sign[v->imm_i] : none[v->imm_i]), k);
}
// Two masks. The second may need K_TMP, so the first goes to RAX where both do.
static void masks(struct x86_gen *g, const struct kir_val *v, int k) {
    if (g->as.vex) {
        x86_avx2_logic(g, v, k);
        return;
    }
    int x = x86_mask_reg(g, v->args[0]), y;
    bool both = x == K_TMP && x86_mask_reg(g, v->args[1]) == K_TMP;
    if (both) {
        x86_mask_reg(g, v->args[0]);
        x86_mask2(&g->as, MASK_MOVE, 0, K_TMP);
        x = 0;
    }
    y = x86_mask_reg(g, v->args[1]);
    if (x == K_TMP && y != K_TMP) x = x86_mask_reg(g, v->args[0]);
    if (v->op == K_AND)
        x86_mask3(&g->as, MASK_AND, k, x, y);
    else if (v->op == K_OR)
        x86_mask3(&g->as, MASK_OR, k, x, y);
    else if (v->op == K_XOR || v->imm_i == CMP_NE)
        x86_mask3(&g->as, MASK_XOR, k, x, y);
    else if (v->imm_i == CMP_EQ)
        x86_mask3(&g->as, MASK_XNOR, k, x, y);
    else { // x < y is y without x
        bool less = v->imm_i == CMP_LT || v->imm_i == CMP_GE;
        x86_mask3(&g->as, MASK_ANDN, k, less ? x : y, less ? y : x);
        if (v->imm_i == CMP_GE || v->imm_i == CMP_LE) x86_mask2(&g->as, MASK_NOT, k, k);
    }
}
static void choose_mask(struct x86_gen *g, const struct kir_val *v, int k) {
    if (g->as.vex) {
        int no = x86_avx2_mask(g, v->args[2], TMP0), yes = x86_avx2_mask(g, v->args[1], TMP1);
        x86_avx2_blend(g, FULL, k, no, x86_r(yes), x86_mask_reg(g, v->args[0]));
        return;
    }
    int c = x86_mask_reg(g, v->args[0]);
    x86_mask2(&g->as, MASK_MOVE, 0, c);
    x86_mask3(&g->as, MASK_ANDN, K_TMP, 0, x86_mask_reg(g, v->args[2])); // without the condition
    x86_mask_to(&g->as, RAX, K_TMP);
    x86_mask3(&g->as, MASK_AND, 0, 0, x86_mask_reg(g, v->args[1]));
    x86_mask_from(&g->as, K_TMP, RAX);
    x86_mask3(&g->as, MASK_OR, k, 0, K_TMP);
}
void x86_mask_value(struct x86_gen *g, const struct kir_val *v) {
    if (v->op == K_CONST) return;
    if (x86_of(v)->fused) return;
    int k = x86_dst(g, v);
    const struct kir_val *x = v->n_args ? v->args[0] : NULL;

    switch (v->op) {
    case K_LOAD:
    case K_TABLE:
        x86_load_value(g, v);
        return;
    case K_CMP:
        if (x->type == DT_PRED)
            masks(g, v, k);
        else if (x86_is_index(x->type) && x86_of(v)->shape == SHAPE_SAME)
            compare_ints(g, v, k);
        else
            compare(g, v, k);
        break;
    case K_AND:
    case K_OR:
    case K_XOR:
        masks(g, v, k);
        break;
    case K_SELECT:
        choose_mask(g, v, k);
        break;
    case K_CAST:
        if (x86_class(x) == CLASS_G && !x86_of(x)->lanes) {
            g->why = "a cast to pred";
        } else {
            bool wide = x86_of(x)->wide, is_float = dtype_is_float(x->type);
            int r = x86_lane_reg(g, x, wide, TMP0);
            enum x86_len len = length_of(g, v, wide);
            bool lanes = x86_of(v)->shape == SHAPE_LANES;
            if (g->as.vex && is_float)
                x86_avx2_compare(g, wide, lanes, len, k, r, x86_each(g, wide, 0), 4);
            else if (g->as.vex)
                x86_avx2_nonzero(g, wide, lanes, len, k, r);
            else if (is_float)
                x86_op3i(g, EV_CMPPS + (wide ? EV_PD | EV_W : 0), len, k, r,
                         wide ? x86_each64(g, 0) : x86_each32(g, 0), 4);
            else
                x86_op3(g, EV_TEST | (wide ? EV_W : 0), len, k, r, x86_r(r));
            all_lanes(g, v, wide, k);
        }
        break;
    default:
        g->why = "an operation on pred";
    }
    x86_put(g, v, k);
}
