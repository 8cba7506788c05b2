// SPDX-License-Identifier: Apache-2.0
// Where values are while a kernel is written: the register or slot of one (its home), constants of
// the pool, and the instructions that bring a value from its home and back. What makes values
// (x86_index.c, x86_lanes.c, x86_cast.c, x86_memory.c) calls this; it calls only x86_asm.c.
#include <math.h>

#include "compiler/codegen/x86/x86_gen.h"

int32_t x86_frame_slot(struct x86_gen *g) {
    int32_t slot = (g->p->frame + 63) / 64 * 64;
    g->p->frame = slot + 64;
    return slot;
}

void x86_op3i(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, int x, struct x86_arg y,
              int imm) {
    x86_vec(&g->as, (struct x86_v){.op = op, .len = len, .dst = dst, .src = x, .imm = imm}, y);
}

void x86_masked(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, int x, struct x86_arg y,
                int k, bool zero) {
    struct x86_v v = {
        .op = op, .len = len, .dst = dst, .src = x, .k = (uint8_t)k, .zero = zero, .imm = -1};
    x86_vec(&g->as, v, y);
}

void x86_op3(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, int x, struct x86_arg y) {
    x86_op3i(g, op, len, dst, x, y, -1);
}

void x86_op2(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, struct x86_arg y) {
    x86_op3i(g, op, len, dst, 0, y, -1);
}

struct x86_arg x86_each(struct x86_gen *g, bool wide, uint64_t bits) {
    if (g->as.vex) { // no instruction reads one element into all lanes on the way
        uint64_t all[4], both = wide ? bits : (bits & UINT32_MAX) | bits << 32;
        for (int k = 0; k < 4; k++)
            all[k] = both;
        return x86_m(x86_pooled(x86_const(&g->as, all, sizeof all)));
    }
    struct x86_arg r = x86_m(x86_pooled(x86_const(&g->as, &bits, wide ? 8 : 4)));
    r.each = true;
    return r;
}

struct x86_arg x86_each_float(struct x86_gen *g, bool wide, double v) {
    float f = (float)v;
    uint32_t narrow;
    uint64_t bits;
    memcpy(&narrow, &f, 4);
    memcpy(&bits, &v, 8);
    return x86_each(g, wide, wide ? bits : narrow);
}

enum x86_len x86_whole(const struct x86_gen *g, const struct kir_val *v) {
    return x86_holds(g, v->lanes * dtype_size(v->op == K_STORE ? v->elem : v->type));
}
enum x86_len x86_holds(const struct x86_gen *g, int bytes) {
    if (bytes <= 16) return g->as.vex ? HALF : L128;
    return bytes == 32 && !g->as.vex ? HALF : FULL;
}

enum x86_len x86_length(const struct x86_gen *g, enum x86_shape s, bool wide) {
    return s != SHAPE_SAME && g->vec && x86_is_half(g, g->vec->lanes, wide) ? HALF : FULL;
}

// In a turn beside the first; NULL: as there.
static struct x86_home *beside(const struct x86_gen *g, const struct kir_val *v) {
    return g->beside && g->copy && x86_of(v)->beside ? x86_of(v)->beside[g->copy - 1] : NULL;
}
struct x86_home *x86_lanes_home(const struct x86_gen *g, const struct kir_val *v) {
    struct x86_home *h = beside(g, v);
    return h ? h : x86_of(v)->lanes;
}
int64_t x86_beside_ahead(const struct x86_gen *g, const struct kir_val *v) {
    const struct x86_val *x = x86_of(v);
    return g->beside && x->shape == SHAPE_STRIDE ? g->copy * g->vec->lanes * x->stride : 0;
}
struct x86_home *x86_home_of(const struct x86_gen *g, const struct kir_val *v) {
    struct x86_home *h = x86_class(v) == CLASS_G ? NULL : beside(g, v);
    if (h) return h;
    if (v->op == K_CARRY && g->copy && g->vec && g->vec->l == v->loop)
        return g->vec->more[v->imm_i][g->copy];
    return x86_of(v)->home;
}

int x86_home_dst(const struct x86_gen *g, const struct x86_home *h) {
    static const int8_t temp[CLASSES] = {[CLASS_G] = RAX, [CLASS_V] = TMP3, [CLASS_K] = K_TMP};
    bool mask = h->class == CLASS_K && g->as.vex;
    if (h->by_tmp0 && h->reg < 0) return TMP0;
    return h->reg >= 0 ? h->reg : mask ? MASK_TMP : temp[h->class];
}

int x86_home_reg(struct x86_gen *g, const struct x86_home *h, int temp) {
    if (h->reg >= 0) return h->reg;
    if (h->class == CLASS_G)
        x86_load(&g->as, temp, x86_slot(h));
    else if (h->class == CLASS_V || g->as.vex)
        x86_op2(g, EV_MOVUPS, FULL, temp, x86_m(x86_slot(h)));
    else
        x86_mask_load(&g->as, temp, x86_slot(h));
    return temp;
}

void x86_home_put(struct x86_gen *g, const struct x86_home *h, int reg) {
    if (h->reg == reg) return;
    bool slot = h->reg < 0, vector = h->class == CLASS_V || (h->class == CLASS_K && g->as.vex);
    if (h->class == CLASS_G && slot)
        x86_store(&g->as, x86_slot(h), reg, 8);
    else if (h->class == CLASS_G)
        x86_mov(&g->as, h->reg, reg);
    else if (vector && slot)
        x86_op2(g, EV_STOREUPS, FULL, reg, x86_m(x86_slot(h)));
    else if (vector)
        x86_op2(g, EV_MOVAPS, FULL, h->reg, x86_r(reg));
    else if (slot)
        x86_mask_store(&g->as, x86_slot(h), reg);
    else
        x86_mask2(&g->as, MASK_MOVE, h->reg, reg);
}

int x86_dst(const struct x86_gen *g, const struct kir_val *v) {
    return x86_home_dst(g, x86_home_of(g, v));
}

void x86_put(struct x86_gen *g, const struct kir_val *v, int reg) {
    x86_home_put(g, x86_home_of(g, v), reg);
}

// ---- memory

int x86_base(struct x86_gen *g, const struct kir_val *v, int temp) {
    if (v->op == K_TABLE) {
        x86_lea(&g->as, temp, x86_pooled(g->tables[v->imm_i]));
        return temp;
    }
    return x86_home_reg(g, v->imm_i == KIR_SCRATCH ? g->p->scratch : g->p->bufs[v->imm_i], temp);
}
struct x86_mem x86_address(struct x86_gen *g, const struct kir_val *v) {
    const struct kir_val *at = v->args[0];
    int base = x86_base(g, v, RDX), log = x86_log_size(v->elem);
    int64_t c;
    if (kir_is_const(at, &c) && c >= 0 && c << log < INT32_MAX - 64)
        return x86_at(base, (int32_t)(c << log));
    c = x86_beside_ahead(g, at);
    c += x86_distance(at, &at);
    return (struct x86_mem){.base = (int8_t)base,
                            .index = (int8_t)x86_int(g, at, RCX),
                            .scale = (uint8_t)log,
                            .disp = (int32_t)(c * (1 << log))};
}

// ---- lanes and masks

struct x86_arg x86_lane_const(struct x86_gen *g, const struct kir_val *v, bool wide) {
    if (dtype_is_float(v->type)) return x86_each_float(g, v->type == DT_F64, v->imm_f);
    return x86_each(g, wide, (uint64_t)v->imm_i);
}

static struct x86_arg place(const struct x86_home *h) {
    return h->reg >= 0 ? x86_r(h->reg) : x86_m(x86_slot(h));
}

struct x86_arg x86_lane_arg(struct x86_gen *g, const struct kir_val *v, bool wide, int temp) {
    if (v->op == K_SPLAT) v = v->args[0]; // which fills its register
    if (v->op == K_LOAD && x86_of(v)->fused) {
        struct x86_arg m = x86_m(x86_address(g, v));
        m.each = true;
        return m;
    }
    if (v->op == K_CONST) {
        const struct x86_home *h = x86_of(v)->home;
        return h && h->reg >= 0 ? x86_r(h->reg) : x86_lane_const(g, v, wide);
    }
    const struct x86_home *h = x86_class(v) == CLASS_G ? x86_lanes_home(g, v) : x86_home_of(g, v);
    if (!h) {
        g->why = "lanes of a value that has none";
        return x86_r(temp);
    }
    struct x86_arg a = place(h);
    if (x86_of(v)->wide == wide) return a;
    if (wide) {
        x86_op2(g, v->type == DT_U32 ? EV_ZXDQ : EV_SXDQ, FULL, temp, a);
        return x86_r(temp);
    }
    if (a.mem) {
        x86_op2(g, EV_MOVUPS, FULL, temp, a);
        a = x86_r(temp);
    }
    x86_narrow(g, temp, a.reg);
    if (x86_of(v)->shape == SHAPE_SAME) x86_op2(g, EV_EACHSS, FULL, temp, x86_r(temp));
    return x86_r(temp);
}

int x86_in_register(struct x86_gen *g, struct x86_arg a, bool wide, enum x86_len len, int temp) {
    if (!a.mem) return a.reg;
    bool each = a.each, pooled = each && a.m.pool && !g->as.vex && temp >= X86_HELD;
    int64_t what = pooled ? (int64_t)a.m.disp << 3 | wide << 2 | g->as.one << 1 | 1 : 0;
    if (what && g->as.held[temp - X86_HELD] == what) return temp;
    a.each = false;
    x86_op2(g, each ? wide ? EV_EACHSD : EV_EACHSS : EV_MOVUPS, each ? FULL : len, temp, a);
    if (what) g->as.held[temp - X86_HELD] = what;
    return temp;
}

static bool is_zero(const struct kir_val *v) {
    if (v->op == K_SPLAT) v = v->args[0];
    bool zero = dtype_is_float(v->type) ? v->imm_f == 0 && !signbit(v->imm_f) : !v->imm_i;
    return v->op == K_CONST && zero;
}
int x86_lane_reg(struct x86_gen *g, const struct kir_val *v, bool wide, int temp) {
    if (v->op == K_SPLAT && is_zero(v)) {
        x86_op3(g, EV_XOR, L128, temp, temp, x86_r(temp));
        return temp;
    }
    return x86_in_register(g, x86_lane_arg(g, v, wide, temp), wide, FULL, temp);
}

int x86_avx2_mask(struct x86_gen *g, const struct kir_val *v, int temp) {
    if (v->op != K_CONST) return x86_home_reg(g, x86_home_of(g, v), temp);
    x86_op3(g, v->imm_i ? EV_PCMPEQD : EV_XOR, FULL, temp, temp, x86_r(temp));
    return temp;
}

int x86_mask_reg(struct x86_gen *g, const struct kir_val *v) {
    if (g->as.vex) return x86_avx2_mask(g, v, MASK_TMP);
    if (v->op != K_CONST) return x86_home_reg(g, x86_home_of(g, v), K_TMP);
    x86_mask3(&g->as, v->imm_i ? MASK_XNOR : MASK_XOR, K_TMP, K_TMP, K_TMP);
    return K_TMP;
}

// ---- class G

int x86_int(struct x86_gen *g, const struct kir_val *v, int temp) {
    if (v->op != K_CONST) return x86_home_reg(g, x86_home_of(g, v), temp);
    x86_mov_imm(&g->as, temp, v->imm_i);
    return temp;
}

void x86_mask_of_flags(struct x86_gen *g, enum x86_cc cc, int k) {
    x86_setcc(&g->as, cc, RAX);
    x86_unary(&g->as, UN_NEG, RAX, true);
    if (g->as.vex)
        x86_each_gpr(g, false, k, RAX);
    else
        x86_mask_from(&g->as, k, RAX);
}
void x86_mask_bits(struct x86_gen *g, int gpr, int k) {
    enum { SIGNS = 0x50 };
    if (g->as.vex)
        x86_op2(g, EV(1, 0, 0, SIGNS), FULL, gpr, x86_r(k));
    else
        x86_mask_to(&g->as, gpr, k);
}
void x86_each_gpr(struct x86_gen *g, bool wide, int dst, int gpr) {
    if (!g->as.vex) {
        x86_op2(g, EV_EACH_GPR | (wide ? EV_W : 0), FULL, dst, x86_r(gpr));
        return;
    }
    x86_op2(g, EV_FROM_GPR | (wide ? EV_W : 0), L128, dst, x86_r(gpr));
    x86_op2(g, wide ? EV_EACHQ : EV_EACHD, FULL, dst, x86_r(dst));
}
void x86_narrow(struct x86_gen *g, int dst, int src) {
    if (!g->as.vex) {
        x86_op2(g, EV_NARROWQD, FULL, src, x86_r(dst)); // the source is the register operand
        return;
    }
    x86_op3i(g, EV_SHUFPS, FULL, dst, src, x86_r(src), 0x88); // 0 2 0 2 of each half
    x86_op3i(g, EV_PERMQ, FULL, dst, 0, x86_r(dst), 0x08);
}

void x86_lane_shift(struct x86_gen *g, bool wide, enum x86_len len, int dst, int x, int how,
                    int n) {
    uint32_t op = wide ? how == LANES_SIGNED ? EV_SHIFT | EV_W : EV_SHIFTQ : EV_SHIFT;
    x86_op3i(g, op, len, how, dst, x86_r(x), n);
}

void x86_normal(struct x86_gen *g, enum dtype t, enum x86_len len, int dst, int src) {
    int bits = dtype_bits(t);
    if (dtype_class(t) == DC_SIGNED) {
        x86_lane_shift(g, false, len, dst, src, LANES_LEFT, 32 - bits);
        x86_lane_shift(g, false, len, dst, dst, LANES_SIGNED, 32 - bits);
    } else {
        x86_op3(g, EV_AND, len, dst, src, x86_each32(g, (1u << bits) - 1));
    }
}
