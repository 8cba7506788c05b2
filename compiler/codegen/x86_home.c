// SPDX-License-Identifier: Apache-2.0
// Where values are while a kernel is written: the register or slot of one (its home), constants of
// the pool, and the instructions that bring a value from its home and back. What makes values
// (x86_index.c, x86_lanes.c, x86_cast.c, x86_memory.c) calls this; it calls only x86_asm.c.
#include "compiler/codegen/x86_gen.h"

int32_t x86_frame_slot(struct x86_gen *g) {
    int32_t slot = (g->p->frame + 63) / 64 * 64;
    g->p->frame = slot + 64;
    return slot;
}

void x86_op3i(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, int x, struct x86_arg y,
              int imm) {
    x86_vec(&g->as, (struct x86_v){.op = op, .len = len, .dst = dst, .src = x, .imm = imm}, y);
}

void x86_op3(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, int x, struct x86_arg y) {
    x86_op3i(g, op, len, dst, x, y, -1);
}

void x86_op2(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, struct x86_arg y) {
    x86_op3i(g, op, len, dst, 0, y, -1);
}

struct x86_arg x86_each32(struct x86_gen *g, uint32_t bits) {
    struct x86_arg r = x86_m(x86_pooled(x86_const(&g->as, &bits, 4)));
    r.each = true;
    return r;
}

struct x86_arg x86_each64(struct x86_gen *g, uint64_t bits) {
    struct x86_arg r = x86_m(x86_pooled(x86_const(&g->as, &bits, 8)));
    r.each = true;
    return r;
}

enum x86_len x86_length(const struct x86_gen *g, enum x86_shape s, bool wide) {
    return s != SHAPE_SAME && g->vec && g->vec->lanes == 8 && !wide ? L256 : L512;
}

struct x86_home *x86_home_of(const struct x86_gen *g, const struct kir_val *v) {
    if (v->op == K_CARRY && g->copy && g->vec && g->vec->l == v->loop)
        return g->vec->more[v->imm_i][g->copy];
    return x86_of(v)->home;
}

// ---- lanes and masks

struct x86_arg x86_lane_const(struct x86_gen *g, const struct kir_val *v, bool wide) {
    if (v->type == DT_F64) {
        uint64_t bits;
        memcpy(&bits, &v->imm_f, sizeof bits);
        return x86_each64(g, bits);
    }
    if (v->type == DT_F32) {
        float f = (float)v->imm_f;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        return x86_each32(g, bits);
    }
    return wide ? x86_each64(g, (uint64_t)v->imm_i) : x86_each32(g, (uint32_t)v->imm_i);
}

static bool own_wide(const struct kir_val *v) {
    return x86_of(v)->wide;
}

static struct x86_arg place(const struct x86_home *h) {
    return h->reg >= 0 ? x86_r(h->reg) : x86_m(x86_slot(h));
}

struct x86_arg x86_lane_arg(struct x86_gen *g, const struct kir_val *v, bool wide, int temp) {
    if (v->op == K_CONST) {
        const struct x86_home *h = x86_of(v)->home;
        return h && h->reg >= 0 ? x86_r(h->reg) : x86_lane_const(g, v, wide);
    }
    const struct x86_home *h = x86_class(v) == CLASS_G ? x86_of(v)->lanes : x86_home_of(g, v);
    if (!h) {
        g->why = "lanes of a value that has none";
        return x86_r(temp);
    }
    struct x86_arg a = place(h);
    if (own_wide(v) == wide) return a;
    if (wide) {
        x86_op2(g, v->type == DT_U32 ? EV_ZXDQ : EV_SXDQ, L512, temp, a);
        return x86_r(temp);
    }
    if (a.mem) {
        x86_op2(g, EV_MOVUPS, L512, temp, a);
        a = x86_r(temp);
    }
    x86_op2(g, EV_NARROWQD, L512, a.reg, x86_r(temp)); // the source is the register operand
    if (x86_of(v)->shape == SHAPE_SAME) x86_op2(g, EV_EACHSS, L512, temp, x86_r(temp));
    return x86_r(temp);
}

int x86_in_register(struct x86_gen *g, struct x86_arg a, bool wide, enum x86_len len, int temp) {
    if (!a.mem) return a.reg;
    bool each = a.each;
    a.each = false;
    x86_op2(g, each ? wide ? EV_EACHSD : EV_EACHSS : EV_MOVUPS, each ? L512 : len, temp, a);
    return temp;
}

int x86_lane_reg(struct x86_gen *g, const struct kir_val *v, bool wide, int temp) {
    return x86_in_register(g, x86_lane_arg(g, v, wide, temp), wide, L512, temp);
}

int x86_lane_dst(struct x86_gen *g, const struct kir_val *v) {
    const struct x86_home *h = x86_home_of(g, v);
    return h->reg >= 0 ? h->reg : TMP3;
}

void x86_lane_put(struct x86_gen *g, const struct kir_val *v, int reg) {
    const struct x86_home *h = x86_home_of(g, v);
    if (h->reg < 0)
        x86_op2(g, EV_STOREUPS, L512, reg, x86_m(x86_slot(h)));
    else if (h->reg != reg)
        x86_op2(g, EV_MOVAPS, L512, h->reg, x86_r(reg));
}

int x86_mask_reg(struct x86_gen *g, const struct kir_val *v) {
    if (v->op == K_CONST) {
        x86_mask3(&g->as, v->imm_i ? 0x46 : 0x47, K_TMP, K_TMP, K_TMP);
        return K_TMP;
    }
    const struct x86_home *h = x86_home_of(g, v);
    if (h->reg >= 0) return h->reg;
    x86_mask_load(&g->as, K_TMP, x86_slot(h));
    return K_TMP;
}

int x86_mask_dst(struct x86_gen *g, const struct kir_val *v) {
    const struct x86_home *h = x86_home_of(g, v);
    return h->reg >= 0 ? h->reg : K_TMP;
}

void x86_mask_put(struct x86_gen *g, const struct kir_val *v, int k) {
    const struct x86_home *h = x86_home_of(g, v);
    if (h->reg < 0)
        x86_mask_store(&g->as, x86_slot(h), k);
    else if (h->reg != k)
        x86_mask2(&g->as, 0x90, h->reg, k);
}

// ---- class G

int x86_int(struct x86_gen *g, const struct kir_val *v, int temp) {
    if (v->op == K_CONST) {
        x86_mov_imm(&g->as, temp, v->imm_i);
        return temp;
    }
    const struct x86_home *h = x86_home_of(g, v);
    if (h->reg >= 0) return h->reg;
    x86_load(&g->as, temp, x86_slot(h));
    return temp;
}

void x86_int_put(struct x86_gen *g, const struct kir_val *v, int reg) {
    const struct x86_home *h = x86_home_of(g, v);
    if (h->reg >= 0)
        x86_mov(&g->as, h->reg, reg);
    else
        x86_store(&g->as, x86_slot(h), reg, 8);
}

void x86_mask_of_flags(struct x86_gen *g, enum x86_cc cc, int k) {
    x86_setcc(&g->as, cc, RAX);
    x86_unary(&g->as, UN_NEG, RAX, true);
    x86_mask_from(&g->as, k, RAX);
}

void x86_lane_shift(struct x86_gen *g, bool wide, enum x86_len len, int dst, int x, int how,
                      int n) {
    uint32_t op = wide ? how == 4 ? EV_SHIFT | EV_W : EV_SHIFTQ : EV_SHIFT;
    x86_op3i(g, op, len, how, dst, x86_r(x), n);
}

void x86_normal(struct x86_gen *g, enum dtype t, enum x86_len len, int dst, int src) {
    int bits = dtype_bits(t);
    if (dtype_class(t) == DC_SIGNED) {
        x86_lane_shift(g, false, len, dst, src, 6, 32 - bits);
        x86_lane_shift(g, false, len, dst, dst, 4, 32 - bits);
    } else {
        x86_op3(g, EV_AND, len, dst, src, x86_each32(g, (1u << bits) - 1));
    }
}
