// SPDX-License-Identifier: Apache-2.0
// Loads and stores: one element, neighbours (masked in a loop's last turn), or gathered ones.
#include "compiler/codegen/x86_gen.h"

#define EXTEND(from, to, sign) EV(2, 1, 0, ((sign) ? 0x20 : 0x30) + (from) + (to))
enum { FROM_8 = 1, FROM_16 = 3 }; // to 32 bits
#define DOWN_8       EV(2, 2, 0, 0x31)
#define DOWN_16      EV(2, 2, 0, 0x33)
#define SCATTER      EV(2, 1, 0, 0xa2)
#define PERMUTE_INTO EV(2, 1, 0, 0x7f) /* dst and the last operand by places in src */
#define PERMUTE_TWO  EV(2, 1, 0, 0x77) /* dst: places in src and the last operand */
#define GATHER       EV(2, 1, 0, 0x92)
#define GATHER_WIDE  EV(2, 1, 0, 0x93) /* indices of 64 bits */

static int log_size(enum dtype t) {
    return __builtin_ctz((unsigned)dtype_size(t));
}
// The register with the start of a buffer or table.
static int base_of(struct x86_gen *g, const struct kir_val *v, int temp) {
    if (v->op == K_TABLE) {
        x86_lea(&g->as, temp, x86_pooled(g->tables[v->imm_i]));
        return temp;
    }
    const struct x86_home *h = v->imm_i == KIR_SCRATCH ? g->p->scratch : g->p->bufs[v->imm_i];
    if (h->reg >= 0) return h->reg;
    x86_load(&g->as, temp, x86_slot(h));
    return temp;
}
// Of lane 0. Uses RDX and RCX.
static struct x86_mem address(struct x86_gen *g, const struct kir_val *v) {
    const struct kir_val *at = v->args[0];
    int base = base_of(g, v, RDX), log = log_size(v->elem);
    int64_t c;
    if (kir_is_const(at, &c) && c >= 0 && c << log < INT32_MAX - 64)
        return x86_at(base, (int32_t)(c << log));
    return (struct x86_mem){
        .base = (int8_t)base, .index = (int8_t)x86_int(g, at, RCX), .scale = (uint8_t)log};
}

static void in_lanes(struct x86_gen *g, uint32_t op, enum x86_len len, int dst, struct x86_mem m) {
    x86_vec(&g->as,
            (struct x86_v){.op = op,
                           .len = len,
                           .dst = dst,
                           .k = g->masked ? K_TAIL : 0,
                           .zero = g->masked,
                           .imm = -1},
            x86_m(m));
}

static void load_one(struct x86_gen *g, const struct kir_val *v) {
    struct x86_mem m = address(g, v);
    enum dtype t = v->elem;
    int size = dtype_size(t);
    if (x86_class(v) == CLASS_G) {
        const struct x86_home *h = x86_home_of(g, v);
        int dst = h->reg >= 0 ? h->reg : RAX;
        x86_load(&g->as, dst, m);
        x86_int_put(g, v, dst);
        return;
    }
    if (t == DT_PRED) {
        int k = x86_mask_dst(g, v);
        x86_load_small(&g->as, RAX, m, 1, false);
        x86_test(&g->as, RAX, 0xff);
        x86_mask_of_flags(g, CC_NE, k);
        x86_mask_put(g, v, k);
        return;
    }
    int dst = x86_lane_dst(g, v);
    if (size >= 4) {
        x86_op2(g, size == 8 ? EV_EACHSD : EV_EACHSS, L512, dst, x86_m(m));
    } else {
        x86_load_small(&g->as, RAX, m, size, dtype_class(t) == DC_SIGNED);
        if (t == DT_BF16) x86_shift_imm(&g->as, SHIFT_LEFT, RAX, 16);
        x86_op2(g, t == DT_F16 ? EV_EACHW_GPR : EV_EACH_GPR, L512, dst, x86_r(RAX));
        if (t == DT_F16) x86_op2(g, EV_PH2PS, L512, dst, x86_r(dst));
    }
    x86_lane_put(g, v, dst);
}
static void load_neighbours(struct x86_gen *g, const struct kir_val *v) {
    enum dtype t = v->elem;
    int size = dtype_size(t);
    struct x86_mem m = address(g, v);
    enum x86_len len = x86_length(g, SHAPE_LANES, size == 8);
    bool sign = dtype_class(t) == DC_SIGNED;
    if (t == DT_PRED) {
        int k = x86_mask_dst(g, v);
        in_lanes(g, EXTEND(FROM_8, 0, false), len, TMP0, m);
        x86_op3(g, EV_TEST, len, k, TMP0, x86_r(TMP0));
        x86_mask_put(g, v, k);
        return;
    }
    int dst = x86_lane_dst(g, v);
    if (size == 8)
        in_lanes(g, EV_MOVUPS | EV_PD | EV_W, len, dst, m);
    else if (size == 4)
        in_lanes(g, EV_MOVUPS, len, dst, m);
    else if (t == DT_F16)
        in_lanes(g, EV_PH2PS, len, dst, m);
    else
        in_lanes(g, EXTEND(size == 2 ? FROM_16 : FROM_8, 0, sign && t != DT_BF16), len, dst, m);
    if (t == DT_BF16) x86_op3i(g, EV_SHIFT, len, 6, dst, x86_r(dst), 16);
    x86_lane_put(g, v, dst);
}
// Elements of 4 or 8 bytes at indices of any kind.
static void load_gathered(struct x86_gen *g, const struct kir_val *v) {
    const struct kir_val *at = v->args[0];
    const struct x86_val *x = x86_of(at);
    bool wide = dtype_size(v->elem) == 8, far = false;
    struct x86_mem m;
    if (x->shape == SHAPE_STRIDE) {
        int32_t offsets[16];
        for (int k = 0; k < 16; k++)
            offsets[k] = (int32_t)(k * x->stride);
        m = address(g, v);
        x86_lea(&g->as, RDX, m);
        m = (struct x86_mem){.base = RDX, .index = TMP0, .scale = (uint8_t)log_size(v->elem)};
        x86_op2(g, EV_MOVUPS, L512, TMP0, x86_m(x86_pooled(x86_const(&g->as, offsets, 64))));
    } else {
        far = x->wide;
        m = (struct x86_mem){.base = (int8_t)base_of(g, v, RDX),
                             .index = (int8_t)x86_lane_reg(g, at, far, TMP0),
                             .scale = (uint8_t)log_size(v->elem)};
    }
    if (g->masked)
        x86_mask2(&g->as, 0x90, K_TMP, K_TAIL);
    else
        x86_mask3(&g->as, 0x46, K_TMP, K_TMP, K_TMP);
    x86_op3(g, EV_XOR, L512, TMP3, TMP3, x86_r(TMP3));
    x86_gather(&g->as, (far ? GATHER_WIDE : GATHER) | (wide ? EV_W : 0),
               x86_length(g, SHAPE_LANES, wide || far), TMP3, m, K_TMP);
    x86_lane_put(g, v, TMP3);
}
// Every second element of 4 bytes: two loads, the second without the lane behind the last.
static void load_second(struct x86_gen *g, const struct kir_val *v) {
    int32_t even[16];
    for (int k = 0; k < 16; k++)
        even[k] = 2 * k;
    x86_lea(&g->as, RDX, address(g, v));
    x86_mov_imm(&g->as, RAX, 0x7fff);
    x86_mask_from(&g->as, K_TMP, RAX);
    x86_op2(g, EV_MOVUPS, L512, TMP0, x86_m(x86_at(RDX, 0)));
    x86_vec(&g->as,
            (struct x86_v){
                .op = EV_MOVUPS, .len = L512, .dst = TMP1, .k = K_TMP, .zero = true, .imm = -1},
            x86_m(x86_at(RDX, 64)));
    x86_op2(g, EV_MOVUPS, L512, TMP3, x86_m(x86_pooled(x86_const(&g->as, even, 64))));
    x86_op3(g, PERMUTE_TWO, L512, TMP3, TMP0, x86_r(TMP1));
    x86_lane_put(g, v, TMP3);
}
void x86_load_value(struct x86_gen *g, const struct kir_val *v) {
    const struct x86_val *at = x86_of(v->args[0]);
    bool full = g->vec && g->vec->lanes == 16 && !g->masked && dtype_size(v->elem) == 4;
    if (at->shape == SHAPE_SAME)
        load_one(g, v);
    else if (at->shape == SHAPE_STRIDE && at->stride == 1)
        load_neighbours(g, v);
    else if (at->shape == SHAPE_STRIDE && at->stride == 2 && full)
        load_second(g, v);
    else
        load_gathered(g, v);
}

static void out_lanes(struct x86_gen *g, uint32_t op, enum x86_len len, int src, struct x86_mem m,
                      int imm) {
    x86_vec(
        &g->as,
        (struct x86_v){.op = op, .len = len, .dst = src, .k = g->masked ? K_TAIL : 0, .imm = imm},
        x86_m(m));
}
static void store_neighbours(struct x86_gen *g, const struct kir_val *s) {
    const struct kir_val *v = s->args[1];
    enum dtype t = s->elem;
    int size = dtype_size(t);
    enum x86_len len = x86_length(g, SHAPE_LANES, size == 8);
    int r = TMP0;
    if (t == DT_PRED) {
        struct x86_arg one = x86_each32(g, 1);
        int k = x86_mask_reg(g, v);
        one.each = false;
        x86_vec(
            &g->as,
            (struct x86_v){
                .op = EV_EACHSS, .len = len, .dst = TMP0, .k = (uint8_t)k, .zero = true, .imm = -1},
            one);
    } else {
        r = x86_lane_reg(g, v, size == 8, TMP0);
    }
    if (t == DT_BF16) {
        x86_to_bf16(g, len, TMP3, r);
        r = TMP3;
    }
    struct x86_mem m = address(g, s);
    if (size == 8)
        out_lanes(g, EV_STOREUPS | EV_PD | EV_W, len, r, m, -1);
    else if (size == 4)
        out_lanes(g, EV_STOREUPS, len, r, m, -1);
    else if (t == DT_F16)
        out_lanes(g, EV_PS2PH, len, r, m, 0);
    else
        out_lanes(g, size == 2 ? DOWN_16 : DOWN_8, len, r, m, -1);
}
static void store_one(struct x86_gen *g, const struct kir_val *s) {
    const struct kir_val *v = s->args[1];
    enum dtype t = s->elem;
    int size = dtype_size(t);
    if (t == DT_PRED) {
        x86_mask_to(&g->as, RAX, x86_mask_reg(g, v));
        x86_alu_imm(&g->as, ALU_AND, RAX, 1);
    } else if (x86_class(v) == CLASS_G) {
        int r = x86_int(g, v, RAX);
        x86_store(&g->as, address(g, s), r, size);
        return;
    } else {
        int r = x86_lane_reg(g, v, size == 8, TMP0);
        if (size >= 4) {
            x86_op2(g, size == 8 ? EV_STORESD : EV_STORESS, L128, r, x86_m(address(g, s)));
            return;
        }
        if (t == DT_F16) {
            x86_op3i(g, EV_PS2PH, L512, r, 0, x86_r(TMP3), 0);
            r = TMP3;
        } else if (t == DT_BF16) {
            x86_to_bf16(g, L512, TMP3, r);
            r = TMP3;
        }
        x86_op2(g, EV_TO_GPR, L128, r, x86_r(RAX));
    }
    x86_store(&g->as, address(g, s), RAX, size);
}
// Each of its stores to its own places: in a loop's last turn.
static void scatter(struct x86_gen *g, const struct x86_group *group) {
    int32_t places[16];
    for (int k = 0; k < 16; k++)
        places[k] = k * group->n;
    for (int k = 0; k < group->n; k++) {
        const struct kir_val *s = group->store[k];
        int r = x86_lane_reg(g, s->args[1], false, TMP1);
        x86_lea(&g->as, RDX, address(g, s));
        x86_op2(g, EV_MOVUPS, L512, TMP0, x86_m(x86_pooled(x86_const(&g->as, places, 64))));
        x86_mask2(&g->as, 0x90, K_TMP, K_TAIL);
        x86_gather(&g->as, SCATTER, L512, r,
                   (struct x86_mem){.base = RDX, .index = TMP0, .scale = 2}, K_TMP);
    }
}
// Whole vectors: lane l of the j-th is lane (16 j + l) / n of value (16 j + l) % n. Each value is
// put into its lanes of what the values before have made.
static void interleave(struct x86_gen *g, const struct x86_group *group) {
    int n = group->n;
    x86_lea(&g->as, RDX, address(g, group->store[0]));
    for (int j = 0; j < n; j++) {
        x86_op2(g, EV_MOVAPS, L512, TMP3,
                x86_r(x86_lane_reg(g, group->store[0]->args[1], false, TMP0)));
        for (int k = 1; k < n; k++) {
            int32_t from[16];
            for (int l = 0; l < 16; l++) {
                int at = (16 * j + l) / n, of = (16 * j + l) % n;
                from[l] = of == k ? 16 + at : k == 1 && of == 0 ? at : l;
            }
            x86_op2(g, EV_MOVUPS, L512, TMP1, x86_m(x86_pooled(x86_const(&g->as, from, 64))));
            x86_op3(g, PERMUTE_INTO, L512, TMP3, TMP1,
                    x86_lane_arg(g, group->store[k]->args[1], false, TMP2));
        }
        x86_op2(g, EV_STOREUPS, L512, TMP3, x86_m(x86_at(RDX, 64 * j)));
    }
}
void x86_store_value(struct x86_gen *g, const struct kir_val *s) {
    const struct x86_group *group = x86_grouped(s) ? x86_of(s)->group : NULL;
    if (group) {
        if (group->last == s) (g->masked ? scatter : interleave)(g, group);
        return;
    }
    if (x86_of(s->args[0])->shape == SHAPE_SAME)
        store_one(g, s);
    else
        store_neighbours(g, s);
}
