// SPDX-License-Identifier: Apache-2.0
// Loads and stores: one element, or neighbours (masked in a loop's last turn). Those that lie apart
// are in x86_apart.c.
#include "compiler/codegen/x86/x86_gen.h"

#define EXTEND(from, to, sign) EV(2, 1, 0, ((sign) ? 0x20 : 0x30) + (from) + (to))
enum { FROM_8 = 1, FROM_16 = 3 }; // to 32 bits
#define LOADSD  EV(1, 3, 1, 0x10)
#define DOWN_8  EV(2, 2, 0, 0x31)
#define DOWN_16 EV(2, 2, 0, 0x33)

static void in_lanes(struct x86_gen *g, uint32_t op, enum x86_len len, int dst,
                     struct x86_arg from) {
    bool mask = g->masked && !g->as.vex;
    x86_masked(g, op, len, dst, 0, from, mask ? K_TAIL : 0, mask);
}

static void load_one(struct x86_gen *g, const struct kir_val *v) {
    struct x86_mem m = x86_address(g, v);
    enum dtype t = v->elem;
    int size = dtype_size(t);
    if (v->lanes) {
        int dst = x86_dst(g, v);
        x86_op2(g, v->lanes * size == 8 ? LOADSD : EV_MOVUPS, x86_whole(g, v), dst, x86_m(m));
        x86_put(g, v, dst);
        return;
    }
    if (x86_class(v) == CLASS_G) {
        int dst = x86_dst(g, v);
        x86_load(&g->as, dst, m);
        x86_put(g, v, dst);
        return;
    }
    if (t == DT_PRED) {
        int k = x86_dst(g, v);
        x86_load_small(&g->as, RAX, m, 1, false);
        x86_test(&g->as, RAX, 0xff);
        x86_mask_of_flags(g, CC_NE, k);
        x86_put(g, v, k);
        return;
    }

    int dst = x86_dst(g, v);
    if (size >= 4) {
        const struct x86_val *x = x86_of(v);
        bool few = x->splat && x->places == x->uses && size < x->splat;
        x86_op2(g, size == 8 ? EV_EACHSD : EV_EACHSS, few ? x86_holds(g, x->splat) : FULL, dst,
                x86_m(m));
    } else {
        x86_load_small(&g->as, RAX, m, size, dtype_class(t) == DC_SIGNED);
        if (t == DT_BF16) x86_shift_imm(&g->as, SHIFT_LEFT, RAX, 16);
        if (t == DT_F16 && g->as.vex) x86_imul_imm(&g->as, RAX, RAX, 0x10001); // both words
        if (t == DT_F16 && !g->as.vex)
            x86_op2(g, EV_EACHW_GPR, FULL, dst, x86_r(RAX));
        else
            x86_each_gpr(g, false, dst, RAX);
        if (t == DT_F16) x86_op2(g, EV_PH2PS, FULL, dst, x86_r(dst));
    }
    x86_put(g, v, dst);
}
void x86_load_lanes(struct x86_gen *g, const struct kir_val *v, struct x86_arg m) {
    enum dtype t = v->elem;
    int size = dtype_size(t);
    enum x86_len len = x86_length(g, SHAPE_LANES, size == 8);
    bool sign = dtype_class(t) == DC_SIGNED;
    if (g->as.vex && g->masked && m.mem) {
        x86_avx2_load_tail(g, v, m.m);
        return;
    }
    if (t == DT_PRED) {
        int k = x86_dst(g, v);
        in_lanes(g, EXTEND(FROM_8, 0, false), len, TMP0, m);
        if (g->as.vex) {
            x86_avx2_nonzero(g, false, true, len, k, TMP0);
            x86_put(g, v, k);
            return;
        }
        x86_op3(g, EV_TEST, len, k, TMP0, x86_r(TMP0));
        x86_put(g, v, k);
        return;
    }

    int dst = x86_dst(g, v);
    if (size == 8)
        in_lanes(g, EV_MOVUPS | EV_PD | EV_W, len, dst, m);
    else if (size == 4)
        in_lanes(g, EV_MOVUPS, len, dst, m);
    else if (t == DT_F16)
        in_lanes(g, EV_PH2PS, len, dst, m);
    else
        in_lanes(g, EXTEND(size == 2 ? FROM_16 : FROM_8, 0, sign && t != DT_BF16), len, dst, m);
    if (t == DT_BF16) x86_op3i(g, EV_SHIFT, len, 6, dst, x86_r(dst), 16);
    x86_put(g, v, dst);
}
void x86_load_value(struct x86_gen *g, const struct kir_val *v) {
    const struct x86_val *at = x86_of(v->args[0]);
    if (x86_of(v)->tile)
        x86_tile_load(g, v, x86_address(g, v));
    else if (at->shape == SHAPE_SAME)
        load_one(g, v);
    else if (at->shape == SHAPE_STRIDE && at->stride == 1)
        x86_load_lanes(g, v, x86_m(x86_address(g, v)));
    else
        x86_load_apart(g, v);
}

struct x86_v x86_stored(struct x86_gen *g, const struct kir_val *s) {
    const struct kir_val *v = x86_written(s);
    enum dtype t = s->elem;
    int size = dtype_size(t);
    struct x86_v how = {.len = x86_length(g, SHAPE_LANES, size == 8), .dst = TMP0, .imm = -1};
    if (t == DT_PRED) {
        struct x86_arg one = x86_each32(g, 1);
        one.each = false;
        x86_masked(g, EV_EACHSS, how.len, TMP0, 0, one, x86_mask_reg(g, v), true);
    } else if (t == DT_BF16) {
        x86_to_bf16(g, v, how.len, TMP3, TMP0);
        how.dst = TMP3;
    } else {
        how.dst = x86_lane_reg(g, v, size == 8, TMP0);
    }
    how.op = size == 8     ? EV_STOREUPS | EV_PD | EV_W
             : size == 4   ? EV_STOREUPS
             : t == DT_F16 ? EV_PS2PH
             : size == 2   ? DOWN_16
                           : DOWN_8;
    if (t == DT_F16) how.imm = 0;
    return how;
}
// Neighbours by the CPU's conversion, which takes subnormal numbers for zeros: these get the
// exponent of the smallest normal ones, which rounds the same, and lose it behind.
static void store_bf16(struct x86_gen *g, const struct kir_val *s) {
    enum { CLASSIFY = EV(3, 1, 0, 0x66), SUBNORMAL = 0x20, CONVERT = EV(2, 2, 0, 0x72) };
    enum { SUB_WORDS = EV(1, 1, 0, 0xf9), STORE_WORDS = EV(1, 3, 1, 0x7f) };
    enum x86_len len = x86_length(g, SHAPE_LANES, false), half = len == FULL ? HALF : L128;
    uint16_t one[32];
    for (int k = 0; k < 32; k++)
        one[k] = 0x80;
    int x = x86_lane_reg(g, x86_written(s), false, TMP3);
    x86_op3i(g, CLASSIFY, len, K_TMP, 0, x86_r(x), SUBNORMAL);
    if (x != TMP3) x86_op2(g, EV_MOVAPS, len, TMP3, x86_r(x));
    x86_masked(g, EV_OR, len, TMP3, TMP3, x86_each32(g, 0x800000), K_TMP, false);
    x86_op2(g, CONVERT, len, TMP3, x86_r(TMP3));
    x86_masked(g, SUB_WORDS, half, TMP3, TMP3, x86_m(x86_pooled(x86_const(&g->as, one, 64))), K_TMP,
               false);
    struct x86_v how = {.op = STORE_WORDS, .len = half, .dst = TMP3, .imm = -1};
    if (g->masked) how.k = K_TAIL;
    x86_vec(&g->as, how, x86_m(x86_address(g, s)));
}
static void store_neighbours(struct x86_gen *g, const struct kir_val *s) {
    if (g->as.vex) {
        x86_avx2_store(g, s);
        return;
    }
    if (s->elem == DT_BF16 && g->p->bf16 && x86_written(s)->op != K_QUANT) {
        store_bf16(g, s);
        return;
    }
    struct x86_v how = x86_stored(g, s);
    if (g->masked) how.k = K_TAIL;
    x86_vec(&g->as, how, x86_m(x86_address(g, s)));
}
static void store_one(struct x86_gen *g, const struct kir_val *s) {
    const struct kir_val *v = x86_written(s);
    enum dtype t = s->elem;
    int size = dtype_size(t);

    if (t == DT_PRED) {
        x86_mask_bits(g, RAX, x86_mask_reg(g, v));
        x86_alu_imm(&g->as, ALU_AND, RAX, 1);
    } else if (x86_class(v) == CLASS_G) {
        int r = x86_int(g, v, RAX);
        x86_store(&g->as, x86_address(g, s), r, size);
        return;
    } else if (t == DT_BF16) {
        x86_to_bf16(g, v, FULL, TMP3, TMP0);
        x86_op2(g, EV_TO_GPR, L128, TMP3, x86_r(RAX));
    } else {
        int r = x86_lane_reg(g, v, size == 8, TMP0);
        if (s->lanes) {
            x86_op2(g, s->lanes * size == 8 ? EV_STORESD : EV_STOREUPS, x86_whole(g, s), r,
                    x86_m(x86_address(g, s)));
            return;
        }
        if (size >= 4) {
            x86_op2(g, size == 8 ? EV_STORESD : EV_STORESS, L128, r, x86_m(x86_address(g, s)));
            return;
        }
        if (t == DT_F16) {
            x86_op3i(g, EV_PS2PH, FULL, r, 0, x86_r(TMP3), 0);
            r = TMP3;
        }
        x86_op2(g, EV_TO_GPR, L128, r, x86_r(RAX));
    }
    x86_store(&g->as, x86_address(g, s), RAX, size);
}
void x86_store_value(struct x86_gen *g, const struct kir_val *s) {
    const struct x86_val *at = x86_of(s->args[0]);
    if (at->shape == SHAPE_SAME)
        store_one(g, s);
    else if (at->stride == 1)
        store_neighbours(g, s);
    else
        x86_store_apart(g, s);
}
