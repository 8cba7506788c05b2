// SPDX-License-Identifier: Apache-2.0
// Loads and stores of lanes whose elements do not lie side by side. Elements of 4 and 8 bytes are
// gathered, or where they lie close taken out of vectors; those of 1 and 2 bytes, for which there
// is no such instruction, are put into a register one by one. Stores with gaps are written one by
// one, but for groups that fill each other's gaps: those become whole vectors.
#include <stdlib.h>

#include "compiler/codegen/x86/x86_gen.h"

#define PERMUTE      EV(2, 1, 0, 0x36) /* the last operand by places in src */
#define PERMUTE_INTO EV(2, 1, 0, 0x7f) /* dst and the last operand by places in src */
#define SHUFFLE      EV(2, 1, 0, 0x00) /* bytes of each quarter */
#define GATHER       EV(2, 1, 0, 0x92)
#define GATHER_WIDE  EV(2, 1, 0, 0x93) /* indices of 64 bits */
#define INSERT_8     EV(3, 1, 0, 0x20)
#define INSERT_16    EV(1, 1, 0, 0xc4)
#define EXTRACT_8    EV(3, 1, 0, 0x14)
#define EXTRACT_16   EV(3, 1, 0, 0x15)
#define EXTRACT_32   EV(3, 1, 0, 0x16)
#define JOIN_LOW     EV(1, 1, 1, 0x6c) /* the low halves of two quarters */
#define SET_QUARTER  EV(3, 1, 0, 0x38)
#define GET_QUARTER  EV(3, 1, 0, 0x39)
#define EXTEND_16    EV(2, 1, 0, 0x33)
#define DOWN_16      EV(2, 2, 0, 0x33)

// ---- lanes one by one

static void count_lanes(struct x86_gen *g) { // before the first lane_runs: in RAX
    if (!g->masked || g->left >= 0) return;
    x86_mask_bits(g, RAX, g->as.vex ? x86_avx2_tail(g, false, MASK_TMP) : K_TAIL);
}
// Do this lane and those behind it take part? Where only the run knows, the code jumps to `done`.
static bool lane_runs(struct x86_gen *g, int lane, int done) {
    if (!g->masked) return true;
    if (g->left >= 0) return lane < g->left;
    x86_test(&g->as, RAX, 1 << lane);
    x86_jump_if(&g->as, CC_E, done);
    return true;
}

// Elements of 1 or 2 bytes at indices of any kind: eight in each of TMP0 and TMP1.
static void load_small(struct x86_gen *g, const struct kir_val *v) {
    enum { EIGHT = 8 };
    const struct kir_val *at = v->args[0];
    const struct x86_val *x = x86_of(at);
    int size = dtype_size(v->elem), lanes = g->vec->lanes, done = x86_label(&g->as), base = RDX;
    int32_t slot = 0;
    if (x->shape == SHAPE_STRIDE) {
        x86_lea(&g->as, RDX, x86_address(g, v));
    } else {
        slot = x86_frame_slot(g);
        x86_op2(g, EV_STOREUPS, FULL, x86_lane_reg(g, at, x->wide, TMP0), x86_m(x86_at(RSP, slot)));
        base = x86_base(g, v, RDX);
    }

    count_lanes(g);
    x86_op3(g, EV_XOR, L128, TMP0, TMP0, x86_r(TMP0));
    if (lanes > EIGHT) x86_op3(g, EV_XOR, L128, TMP1, TMP1, x86_r(TMP1));

    for (int k = 0; k < lanes && lane_runs(g, k, done); k++) {
        struct x86_mem m = x86_at(RDX, (int32_t)(k * x->stride * size));
        int to = k < EIGHT ? TMP0 : TMP1;
        if (x->shape != SHAPE_STRIDE) {
            int each = x->wide ? 8 : 4;
            x86_load_small(&g->as, RCX, x86_at(RSP, slot + k * each), each, true);
            m = (struct x86_mem){
                .base = (int8_t)base, .index = RCX, .scale = (uint8_t)x86_log_size(v->elem)};
        }
        x86_op3i(g, size == 1 ? INSERT_8 : INSERT_16, L128, to, to, x86_m(m), k % EIGHT);
    }

    x86_bind(&g->as, done);
    if (lanes > EIGHT && size == 1)
        x86_op3(g, JOIN_LOW, L128, TMP0, TMP0, x86_r(TMP1));
    else if (lanes > EIGHT)
        x86_op3i(g, SET_QUARTER, HALF, TMP0, TMP0, x86_r(TMP1), 1);
    x86_load_lanes(g, v, x86_r(TMP0));
}
void x86_store_each(struct x86_gen *g, const struct kir_val *s) {
    static const uint32_t extract[] = {EXTRACT_8, EXTRACT_16, EXTRACT_32, EXTRACT_32 | EV_W};
    int log = x86_log_size(s->elem), size = 1 << log, in_quarter = 16 / size;
    int64_t stride = x86_of(s->args[0])->stride;
    int r, done = x86_label(&g->as);
    if (g->as.vex) {
        r = x86_avx2_elements(g, s);
    } else {
        struct x86_v how = x86_stored(g, s);
        r = how.dst;
        if (size < 4) {
            x86_vec(&g->as, how, x86_r(TMP3));
            r = TMP3;
        }
    }
    x86_lea(&g->as, RDX, x86_address(g, s));
    count_lanes(g);
    for (int k = 0, from = r; k < g->vec->lanes && lane_runs(g, k, done); k++) {
        if (k && k % in_quarter == 0) {
            from = TMP2;
            x86_op3i(g, GET_QUARTER, FULL, r, 0, x86_r(from), k / in_quarter);
        }
        x86_op3i(g, extract[log], L128, from, 0, x86_m(x86_at(RDX, (int32_t)(k * stride * size))),
                 k % in_quarter);
    }
    x86_bind(&g->as, done);
}

// ---- loads

// Elements of 4 or 8 bytes at a constant distance, each by a load of its own: an instruction that
// gathers takes 2.3 (4 bytes) to 3.7 times as long on Zen 5.
static void load_quarter(struct x86_gen *g, int to, int size, int64_t stride, int first) {
    enum { LOAD_4 = EV(1, 2, 0, 0x10), INSERT_4 = EV(3, 1, 0, 0x21) };
    enum { LOAD_8 = EV(1, 3, 1, 0x10), HIGH_8 = EV(1, 1, 1, 0x16) };
    for (int k = 0; k < 16 / size; k++) {
        struct x86_arg m = x86_m(x86_at(RDX, (int32_t)((first + k) * stride * size)));
        if (k == 0)
            x86_op2(g, size == 8 ? LOAD_8 : LOAD_4, L128, to, m);
        else if (size == 8)
            x86_op3(g, HIGH_8, L128, to, to, m);
        else
            x86_op3i(g, INSERT_4, L128, to, to, m, k << 4);
    }
}
static void load_strided(struct x86_gen *g, const struct kir_val *v) {
    enum { SET_HALF = EV(3, 1, 1, 0x1a) };
    int size = dtype_size(v->elem), in_quarter = 16 / size, quarters = g->vec->lanes / in_quarter,
        dst = x86_dst(g, v);
    int64_t stride = x86_of(v->args[0])->stride;
    x86_lea(&g->as, RDX, x86_address(g, v));
    for (int q = 0; q < quarters; q++) {
        load_quarter(g, q % 2 ? TMP2 : q ? TMP1 : TMP0, size, stride, q * in_quarter);
        if (q % 2)
            x86_op3i(g, SET_QUARTER, HALF, q > 1 ? TMP1 : TMP0, q > 1 ? TMP1 : TMP0, x86_r(TMP2),
                     1);
    }
    if (quarters > 2)
        x86_op3i(g, SET_HALF, FULL, dst, TMP0, x86_r(TMP1), 1);
    else
        x86_op2(g, EV_MOVAPS, FULL, dst, x86_r(TMP0));
    x86_put(g, v, dst);
}
// Elements of 4 or 8 bytes at indices of any kind.
static void load_gathered(struct x86_gen *g, const struct kir_val *v) {
    const struct kir_val *at = v->args[0];
    const struct x86_val *x = x86_of(at);
    bool wide = dtype_size(v->elem) == 8, far = false;
    struct x86_mem m;
    if (g->as.vex && !g->masked) {
        x86_avx2_load_each(g, v, TMP3);
        x86_put(g, v, TMP3);
        return;
    }
    if (x->shape == SHAPE_STRIDE) {
        int32_t offsets[16];
        for (int k = 0; k < 16; k++)
            offsets[k] = (int32_t)(k * x->stride);
        m = x86_address(g, v);
        x86_lea(&g->as, RDX, m);
        m = (struct x86_mem){.base = RDX, .index = TMP0, .scale = (uint8_t)x86_log_size(v->elem)};
        x86_op2(g, EV_MOVUPS, FULL, TMP0,
                x86_m(x86_pooled(x86_const(&g->as, offsets, g->as.vex ? 32 : 64))));
    } else {
        far = x->wide;
        m = (struct x86_mem){.base = (int8_t)x86_base(g, v, RDX),
                             .index = (int8_t)x86_lane_reg(g, at, far, TMP0),
                             .scale = (uint8_t)x86_log_size(v->elem)};
    }

    uint32_t op = (far ? GATHER_WIDE : GATHER) | (wide ? EV_W : 0);
    enum x86_len len = x86_length(g, SHAPE_LANES, wide || far);
    if (g->as.vex) {
        x86_avx2_gather(g, op, len, wide, TMP3, m);
        x86_put(g, v, TMP3);
        return;
    }
    if (g->masked)
        x86_mask2(&g->as, MASK_MOVE, K_TMP, K_TAIL);
    else
        x86_mask3(&g->as, MASK_XNOR, K_TMP, K_TMP, K_TMP);
    x86_op3(g, EV_XOR, FULL, TMP3, TMP3, x86_r(TMP3));
    x86_gather(&g->as, op, len, TMP3, m, K_TMP);
    x86_put(g, v, TMP3);
}
// The second half of the lanes begins an element before its place, so that both reads end with the
// last lane.
static void avx2_second(struct x86_gen *g, const struct kir_val *v) {
    enum x86_len len = x86_length(g, SHAPE_LANES, false);
    int lanes = g->vec->lanes;
    x86_lea(&g->as, RDX, x86_address(g, v));
    x86_op2(g, EV_MOVUPS, len, TMP3, x86_m(x86_at(RDX, 0)));
    x86_op3i(g, EV_SHUFPS, len, TMP3, TMP3, x86_m(x86_at(RDX, 4 * (lanes - 1))), 0xd8); // 0 2 1 3
    if (len == FULL) x86_op3i(g, EV_PERMQ, FULL, TMP3, 0, x86_r(TMP3), 0xd8);
    x86_put(g, v, TMP3);
}
// Every n-th element: whole vectors side by side from the lowest one on, the last of which ends
// with the highest, so that nothing behind it is read. Lanes are taken from one after the other. Of
// few elements in a last turn there is one vector, of which only they are read.
static void load_near(struct x86_gen *g, const struct kir_val *v) {
    bool wide = dtype_size(v->elem) == 8;
    enum x86_len len = x86_length(g, SHAPE_LANES, wide);
    int w = g->vec->lanes, lanes = g->masked ? g->left : w, size = wide ? 8 : 4;
    int stride = (int)x86_of(v->args[0])->stride, low = stride < 0 ? (lanes - 1) * stride : 0;
    int span = (lanes - 1) * abs(stride) + 1, n = (span + w - 1) / w, dst = x86_dst(g, v);
    uint32_t op = (n == 1 ? PERMUTE : PERMUTE_INTO) | (wide ? EV_W : 0);
    uint32_t move = wide ? EV_MOVUPS | EV_PD | EV_W : EV_MOVUPS;
    x86_lea(&g->as, RDX, x86_address(g, v));
    if (span < w) {
        x86_mov_imm(&g->as, RAX, (1 << span) - 1);
        x86_mask_from(&g->as, K_TMP, RAX);
    }

    for (int j = 0; j < n; j++) {
        int64_t from[16] = {0};
        int32_t narrow[16];
        int first = j < n - 1 || n == 1 ? j * w : span - w;
        struct x86_arg part = x86_m(x86_at(RDX, (low + first) * size));
        if (j == 0 && n > 1) {
            x86_op2(g, move, len, dst, part);
            continue;
        }
        for (int k = 0; k < lanes; k++) {
            int at = k * stride - low, of = n > 1 && at >= span - w ? n - 1 : at / w; // who has it
            if (of == j)
                from[k] = at - first + (n > 1 ? w : 0);
            else if (of < j)
                from[k] = j == 1 ? at : k; // the first still lies as it was read
        }
        for (int k = 0; k < 16; k++)
            narrow[k] = (int32_t)from[k];
        const void *places = wide ? (const void *)from : narrow;
        if (span < w) {
            x86_masked(g, move, len, dst, 0, part, K_TMP, true);
            part = x86_r(dst);
        }
        x86_op2(g, EV_MOVUPS, len, TMP1, x86_m(x86_pooled(x86_const(&g->as, places, 64))));
        x86_op3(g, op, len, dst, TMP1, part);
    }
    x86_put(g, v, dst);
}
void x86_load_apart(struct x86_gen *g, const struct kir_val *v) {
    int size = dtype_size(v->elem);
    if (size < 4)
        load_small(g, v);
    else if (x86_near(g->p, v) && (!g->masked || (!g->as.vex && g->left > 0)))
        (g->as.vex ? avx2_second : load_near)(g, v);
    else if (x86_of(v->args[0])->shape == SHAPE_STRIDE && !g->as.vex && !g->masked)
        load_strided(g, v);
    else
        load_gathered(g, v);
}

// ---- groups of stores

// Whole vectors of so many lanes as there are, `w`: lane l of the j-th is lane (w j + l) / n of
// value (w j + l) % n. Each value is put into its lanes of what the values before have made.
static void interleave(struct x86_gen *g, const struct x86_group *group) {
    int n = group->n, w = g->vec->lanes;
    enum x86_len len = x86_length(g, SHAPE_LANES, false);
    if (g->as.vex) {
        x86_avx2_interleave(g, group);
        return;
    }
    x86_lea(&g->as, RDX, x86_address(g, group->store[0]));
    for (int j = 0; j < n; j++) {
        x86_op2(g, EV_MOVAPS, len, TMP3,
                x86_r(x86_lane_reg(g, group->store[0]->args[1], false, TMP0)));
        for (int k = 1; k < n; k++) {
            int32_t from[16] = {0};
            for (int l = 0; l < w; l++) {
                int at = (w * j + l) / n, of = (w * j + l) % n;
                from[l] = of == k ? w + at : k == 1 && of == 0 ? at : l;
            }
            x86_op2(g, EV_MOVUPS, len, TMP1, x86_m(x86_pooled(x86_const(&g->as, from, 64))));
            x86_op3(g, PERMUTE_INTO, len, TMP3, TMP1,
                    x86_lane_arg(g, group->store[k]->args[1], false, TMP2));
        }
        x86_op2(g, EV_STOREUPS, len, TMP3, x86_m(x86_at(RDX, 4 * w * j)));
    }
}
// What is stored, in 32 bits with zeros above. In TMP0; uses TMP1 and TMP2.
static void codes(struct x86_gen *g, const struct kir_val *s) {
    if (s->elem == DT_BF16) {
        x86_to_bf16(g, x86_written(s), FULL, TMP0, TMP0);
        return;
    }
    int r = x86_lane_reg(g, x86_written(s), false, TMP0);
    if (s->elem == DT_F16) {
        x86_op3i(g, EV_PS2PH, FULL, r, 0, x86_r(TMP0), 0);
        x86_op2(g, EXTEND_16, FULL, TMP0, x86_r(TMP0));
    } else {
        x86_op3(g, EV_AND, FULL, TMP0, r, x86_each32(g, dtype_size(s->elem) == 1 ? 0xff : 0xffff));
    }
}
// Up to four bytes of a lane side by side.
static void pack(struct x86_gen *g, const struct x86_group *group) {
    enum { LEFT = 6 };
    int size = dtype_size(group->store[0]->elem), bytes = size * group->n;
    for (int k = 0; k < group->n; k++) {
        codes(g, group->store[k]);
        if (k) x86_op3i(g, EV_SHIFT, FULL, LEFT, TMP0, x86_r(TMP0), 8 * size * k);
        if (k)
            x86_op3(g, EV_OR, FULL, TMP3, TMP3, x86_r(TMP0));
        else
            x86_op2(g, EV_MOVAPS, FULL, TMP3, x86_r(TMP0));
    }

    x86_lea(&g->as, RDX, x86_address(g, group->store[0]));
    if (g->as.vex) {
        x86_avx2_pack(g, bytes, TMP3);
        return;
    }
    struct x86_v out = {
        .op = bytes == 2 ? DOWN_16 : EV_STOREUPS, .len = FULL, .dst = TMP3, .imm = -1};
    if (bytes == 3) { // twelve bytes of each quarter, then the quarters side by side
        uint8_t bytes_of[64];
        int32_t words[16];
        for (int k = 0; k < 64; k++)
            bytes_of[k] = k % 16 < 12 ? (uint8_t)(k % 16 / 3 * 4 + k % 16 % 3) : 0x80;
        for (int k = 0; k < 16; k++)
            words[k] = k < 12 ? k / 3 * 4 + k % 3 : 15;
        x86_op3(g, SHUFFLE, FULL, TMP3, TMP3, x86_m(x86_pooled(x86_const(&g->as, bytes_of, 64))));
        x86_op2(g, EV_MOVUPS, FULL, TMP1, x86_m(x86_pooled(x86_const(&g->as, words, 64))));
        x86_op3(g, PERMUTE, FULL, TMP3, TMP1, x86_r(TMP3));
        x86_mov_imm(&g->as, RAX, 0xfff);
        x86_mask_from(&g->as, K_TMP, RAX);
        out.k = K_TMP;
    }
    x86_vec(&g->as, out, x86_m(x86_at(RDX, 0)));
}
void x86_store_apart(struct x86_gen *g, const struct kir_val *s) {
    const struct x86_group *group = x86_grouped(s) ? x86_of(s)->group : NULL;
    if (!group) {
        x86_store_each(g, s);
        return;
    }
    if (group->last != s) return;
    if (g->masked)
        for (int k = 0; k < group->n; k++)
            x86_store_each(g, group->store[k]);
    else
        (dtype_size(s->elem) < 4 ? pack : interleave)(g, group);
}
