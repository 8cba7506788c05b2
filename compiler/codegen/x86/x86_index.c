// SPDX-License-Identifier: Apache-2.0
// Class G: integers of 64 bits that are addresses, sizes and bounds, in general registers. What
// takes several steps is made in RAX, since the home of a result may be that of an argument.
#include "compiler/codegen/x86/x86_gen.h"

static bool brief(int64_t v) {
    return v >= INT32_MIN && v <= INT32_MAX;
}

void x86_spread(struct x86_gen *g, const struct kir_val *v) {
    const struct x86_val *x = x86_of(v);
    if (!x->lanes || x86_class(v) != CLASS_G || v->op == K_CONST) return;
    const struct x86_home *h = x86_lanes_home(g, v);
    int from = x86_int(g, v, RAX), dst = x86_home_dst(g, h);
    int64_t ahead = x86_beside_ahead(g, v);
    if (ahead) {
        x86_lea(&g->as, RAX, x86_at(from, (int32_t)ahead));
        from = RAX;
    }
    x86_each_gpr(g, x->wide, dst, from);
    if (x->shape == SHAPE_STRIDE) {
        int64_t at64[8];
        int32_t at32[16];
        for (int k = 0; k < 16; k++) {
            if (k < 8) at64[k] = k * x->stride;
            at32[k] = (int32_t)(k * x->stride);
        }
        int32_t at = x86_const(&g->as, x->wide ? (void *)at64 : (void *)at32, g->as.vex ? 32 : 64);
        x86_op3(g, x->wide ? EV_ADDQ : EV_ADDD, FULL, dst, dst, x86_m(x86_pooled(at)));
    }
    x86_home_put(g, h, dst);
}

// RAX = RAX / s by multiplication with a reciprocal rounded up (Granlund and Montgomery 1994):
// dividends of 31 bits leave room for the product. Uses RCX and, for wide ones, RDX.
static void divide(struct x86_gen *g, int64_t s, bool narrow) {
    if (s == 1) return;
    if ((s & (s - 1)) == 0) {
        x86_shift_imm(&g->as, SHIFT_RIGHT, RAX, __builtin_ctzll((uint64_t)s));
    } else if (narrow && s < INT32_MAX) {
        int bits = 64 - __builtin_clzll((uint64_t)s - 1);
        x86_mov_imm(&g->as, RCX, (int64_t)(((__int128)1 << (31 + bits)) / s + 1));
        x86_imul(&g->as, RAX, RCX);
        x86_shift_imm(&g->as, SHIFT_RIGHT, RAX, 31 + bits);
    } else {
        x86_mov_imm(&g->as, RCX, s);
        x86_mov_imm(&g->as, RDX, 0);
        x86_unary(&g->as, UN_DIV, RCX, true);
    }
}
static void divmod(struct x86_gen *g, const struct kir_val *v) {
    int64_t m = v->imm_j;
    bool narrow = v->args[0]->hi <= INT32_MAX;
    x86_mov(&g->as, RAX, x86_int(g, v->args[0], RAX));
    divide(g, v->imm_i, narrow);
    if (m && (m & (m - 1)) == 0 && m <= (INT64_C(1) << 30)) {
        x86_alu_imm(&g->as, ALU_AND, RAX, (int32_t)(m - 1));
    } else if (m && (!narrow || m >= INT32_MAX)) {
        x86_mov_imm(&g->as, RCX, m);
        x86_mov_imm(&g->as, RDX, 0);
        x86_unary(&g->as, UN_DIV, RCX, true);
        x86_mov(&g->as, RAX, RDX);
    } else if (m) {
        x86_mov(&g->as, RDX, RAX);
        divide(g, m, true);
        x86_imul_imm(&g->as, RAX, RAX, (int32_t)m);
        x86_alu(&g->as, ALU_SUB, RDX, RAX);
        x86_mov(&g->as, RAX, RDX);
    }
    x86_put(g, v, RAX);
}

static void shift(struct x86_gen *g, const struct kir_val *v) {
    enum x86_shift op = v->op == K_SHL      ? SHIFT_LEFT
                        : v->type == DT_S64 ? SHIFT_SIGNED
                                            : SHIFT_RIGHT;
    int64_t n;
    if (kir_is_const(v->args[1], &n)) {
        x86_mov(&g->as, RAX, x86_int(g, v->args[0], RAX));
        if (n & 63) x86_shift_imm(&g->as, op, RAX, (int)(n & 63));
    } else {
        x86_mov(&g->as, RCX, x86_int(g, v->args[1], RCX));
        x86_mov(&g->as, RAX, x86_int(g, v->args[0], RAX));
        x86_shift_cl(&g->as, op, RAX);
    }
    x86_put(g, v, RAX);
}
static void bound(struct x86_gen *g, const struct kir_val *v) {
    bool sign = v->type == DT_S64, max = v->op == K_MAX;
    x86_mov(&g->as, RAX, x86_int(g, v->args[0], RAX));
    int y = x86_int(g, v->args[1], RCX);
    x86_alu(&g->as, ALU_CMP, RAX, y);
    x86_cmov(&g->as, max ? sign ? CC_L : CC_B : sign ? CC_G : CC_A, RAX, y);
    x86_put(g, v, RAX);
}
static void quotient(struct x86_gen *g, const struct kir_val *v) {
    bool sign = v->type == DT_S64;
    x86_mov(&g->as, RCX, x86_int(g, v->args[1], RCX));
    x86_mov(&g->as, RAX, x86_int(g, v->args[0], RAX));
    if (sign)
        x86_sign(&g->as, true);
    else
        x86_mov_imm(&g->as, RDX, 0);
    x86_unary(&g->as, sign ? UN_IDIV : UN_DIV, RCX, true);
    x86_put(g, v, v->op == K_DIV ? RAX : RDX);
}
static void product(struct x86_gen *g, const struct kir_val *v) {
    const struct kir_val *x = v->args[0], *y = v->args[1];
    int64_t c;
    int dst = x86_dst(g, v);
    x86_constant_last(&x, &y);
    if (kir_is_const(y, &c) && c > 0 && (c & (c - 1)) == 0) {
        x86_mov(&g->as, dst, x86_int(g, x, RAX));
        if (c > 1) x86_shift_imm(&g->as, SHIFT_LEFT, dst, __builtin_ctzll((uint64_t)c));
        x86_put(g, v, dst);
    } else if (kir_is_const(y, &c) && brief(c)) {
        x86_imul_imm(&g->as, dst, x86_int(g, x, RAX), (int32_t)c);
        x86_put(g, v, dst);
    } else {
        x86_mov(&g->as, RAX, x86_int(g, x, RAX));
        x86_imul(&g->as, RAX, x86_int(g, y, RCX));
        x86_put(g, v, RAX);
    }
}
static void sum(struct x86_gen *g, const struct kir_val *v) {
    const struct kir_val *x = v->args[0], *y = v->args[1];
    int64_t c;
    int dst = x86_dst(g, v);
    x86_constant_last(&x, &y);
    int a = x86_int(g, x, RAX);
    if (kir_is_const(y, &c) && brief(c))
        x86_lea(&g->as, dst, x86_at(a, (int32_t)c));
    else
        x86_lea(&g->as, dst,
                (struct x86_mem){.base = (int8_t)a, .index = (int8_t)x86_int(g, y, RCX)});
    x86_put(g, v, dst);
}
static void plain(struct x86_gen *g, const struct kir_val *v) {
    enum x86_alu op = v->op == K_SUB   ? ALU_SUB
                      : v->op == K_AND ? ALU_AND
                      : v->op == K_OR  ? ALU_OR
                                       : ALU_XOR;
    x86_mov(&g->as, RAX, x86_int(g, v->args[0], RAX));
    x86_alu(&g->as, op, RAX, x86_int(g, v->args[1], RCX));
    x86_put(g, v, RAX);
}
// -x, or |x|.
static void negate(struct x86_gen *g, const struct kir_val *v) {
    x86_mov(&g->as, RAX, x86_int(g, v->args[0], RAX));
    if (v->op == K_ABS) x86_mov(&g->as, RCX, RAX);
    x86_unary(&g->as, UN_NEG, RAX, true);
    if (v->op == K_ABS) {
        x86_alu_imm(&g->as, ALU_CMP, RCX, 0);
        x86_cmov(&g->as, CC_GE, RAX, RCX);
    }
    x86_put(g, v, RAX);
}
static void choose(struct x86_gen *g, const struct kir_val *v) {
    x86_mask_bits(g, RDX, x86_mask_reg(g, v->args[0]));
    x86_mov(&g->as, RAX, x86_int(g, v->args[1], RAX));
    int y = x86_int(g, v->args[2], RCX);
    x86_test(&g->as, RDX, 1);
    x86_cmov(&g->as, CC_E, RAX, y);
    x86_put(g, v, RAX);
}

static void count(struct x86_gen *g, const struct kir_val *v) {
    x86_count(&g->as, v->op == K_POPCNT, RAX, x86_int(g, v->args[0], RAX));
    x86_put(g, v, RAX);
}
static void convert(struct x86_gen *g, const struct kir_val *v) {
    if (x86_is_index(v->args[0]->type) && x86_class(v->args[0]) == CLASS_G)
        x86_put(g, v, x86_int(g, v->args[0], RAX));
    else
        x86_cast_index(g, v);
}

typedef void (*rule_fn)(struct x86_gen *g, const struct kir_val *v);
static const rule_fn rules[KOP_COUNT] = {[K_LOAD] = x86_load_value,
                                         [K_TABLE] = x86_load_value,
                                         [K_DIVMOD] = divmod,
                                         [K_ADD] = sum,
                                         [K_SUB] = plain,
                                         [K_AND] = plain,
                                         [K_OR] = plain,
                                         [K_XOR] = plain,
                                         [K_MUL] = product,
                                         [K_DIV] = quotient,
                                         [K_REM] = quotient,
                                         [K_MIN] = bound,
                                         [K_MAX] = bound,
                                         [K_SHL] = shift,
                                         [K_SHR] = shift,
                                         [K_NEG] = negate,
                                         [K_ABS] = negate,
                                         [K_CLZ] = count,
                                         [K_POPCNT] = count,
                                         [K_SELECT] = choose,
                                         [K_CAST] = convert,
                                         [K_BITS] = convert};

void x86_index_value(struct x86_gen *g, const struct kir_val *v) {
    if (v->op == K_CONST || x86_of(v)->fused) return;
    if (rules[v->op])
        rules[v->op](g, v);
    else
        g->why = "an integer operation";
    x86_spread(g, v);
}
