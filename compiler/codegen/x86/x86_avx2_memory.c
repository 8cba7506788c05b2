// SPDX-License-Identifier: Apache-2.0
// Loads and stores with AVX2. Lanes of 32 bits become elements of 8 or 16 by shuffles. Part of a
// vector, in a loop's last turn, is read and written by pieces of 16, 8, 4, 2 and 1 bytes where its
// length is known; else under a mask (4 and 8 bytes) or one by one.
#include "compiler/codegen/x86/x86_gen.h"

#define LOAD_MASKED  EV(2, 1, 0, 0x2c)
#define STORE_MASKED EV(2, 1, 0, 0x2e)
#define MASKED_WIDE  EV(0, 0, 0, 1) /* added to these: of 8 bytes */
#define GET_HALF     EV(3, 1, 0, 0x39)
#define SET_HALF     EV(3, 1, 0, 0x38)
#define LOAD_32      EV(1, 2, 0, 0x10)
#define LOAD_64      EV(1, 3, 1, 0x10)
#define INSERT_64    EV(1, 0, 0, 0x16) /* above the 64 bits that are there */
#define UNPACK_DQ    EV(1, 1, 0, 0x62)
#define PERMD        EV(2, 1, 0, 0x36)
#define BLENDPS      EV(3, 1, 0, 0x0c)
#define INSERT_8     EV(3, 1, 0, 0x20)
#define INSERT_16    EV(1, 1, 0, 0xc4)
#define INSERT_32    EV(3, 1, 0, 0x22)
#define EXTRACT_8    EV(3, 1, 0, 0x14)
#define EXTRACT_16   EV(3, 1, 0, 0x15)
#define EXTRACT_32   EV(3, 1, 0, 0x16)

// ---- pieces

// The largest piece of `left` bytes.
static int piece(int left) {
    return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}
static void put_bytes(struct x86_gen *g, int r, struct x86_mem m, int n) {
    static const uint32_t extract[] = {EXTRACT_8, EXTRACT_16, EXTRACT_32, EXTRACT_32 | EV_W};
    for (int at = 0, size; at < n; at += size) {
        if (at == 16) {
            x86_op3i(g, GET_HALF, FULL, r, 0, x86_r(TMP2), 1);
            r = TMP2;
        }
        struct x86_mem to = m;
        to.disp += at;
        if (n - at >= 32) {
            x86_op2(g, EV_STOREUPS, FULL, r, x86_m(to));
            return;
        }
        if (n - at >= 16) {
            size = 16;
            x86_op2(g, EV_STOREUPS, L128, r, x86_m(to));
            continue;
        }
        size = piece(n - at);
        x86_op3i(g, extract[__builtin_ctz((unsigned)size)], L128, r, 0, x86_m(to), at % 16 / size);
    }
}
// Up to 15 bytes into `r`, with zeros behind.
static void get_bytes(struct x86_gen *g, int r, struct x86_mem m, int n) {
    static const uint32_t insert[] = {INSERT_8, INSERT_16, INSERT_32, INSERT_32 | EV_W};
    x86_op3(g, EV_XOR, L128, r, r, x86_r(r));
    for (int at = 0, size; at < n; at += size) {
        size = piece(n - at);
        struct x86_mem from = m;
        from.disp += at;
        x86_op3i(g, insert[__builtin_ctz((unsigned)size)], L128, r, r, x86_m(from), at / size);
    }
}
// Where pieces are counted from: no index, so that each is a displacement.
static struct x86_mem place(struct x86_gen *g, const struct kir_val *v) {
    struct x86_mem m = x86_address(g, v);
    if (m.index < 0) return m;
    x86_lea(&g->as, RDX, m);
    return x86_at(RDX, 0);
}

// ---- loads

// One by one: as many as the run knows.
static void get_each(struct x86_gen *g, struct x86_mem m, int size) {
    int done = x86_label(&g->as);
    x86_lea(&g->as, RDX, m);
    x86_mask_bits(g, RAX, x86_avx2_tail(g, false, MASK_TMP));
    x86_op3(g, EV_XOR, L128, TMP0, TMP0, x86_r(TMP0));
    for (int k = 0; k < g->vec->lanes - 1; k++) {
        x86_test(&g->as, RAX, 1 << k);
        x86_jump_if(&g->as, CC_E, done);
        x86_op3i(g, size == 1 ? INSERT_8 : INSERT_16, L128, TMP0, TMP0,
                 x86_m(x86_at(RDX, k * size)), k);
    }
    x86_bind(&g->as, done);
}
void x86_avx2_load_tail(struct x86_gen *g, const struct kir_val *v, struct x86_mem m) {
    int size = dtype_size(v->elem);
    bool wide = size == 8;
    if (size >= 4) {
        int dst = x86_dst(g, v), tail = x86_avx2_tail(g, wide, TMP2);
        x86_op3(g, LOAD_MASKED + (wide ? MASKED_WIDE : 0), x86_length(g, SHAPE_LANES, wide), dst,
                tail, x86_m(m));
        x86_put(g, v, dst);
        return;
    }
    if (g->left < 0) {
        get_each(g, m, size);
    } else {
        x86_lea(&g->as, RDX, m);
        get_bytes(g, TMP0, x86_at(RDX, 0), g->left * size);
    }
    x86_load_lanes(g, v, x86_r(TMP0));
}
void x86_avx2_gather(struct x86_gen *g, uint32_t op, enum x86_len len, bool wide, int dst,
                     struct x86_mem m) {
    x86_avx2_tail(g, wide, MASK_TMP);
    x86_op3(g, EV_XOR, FULL, dst, dst, x86_r(dst));
    x86_gather(&g->as, op, len, dst, m, MASK_TMP);
}
// Lanes of a whole turn one by one: loads and insertions of 8 lanes take less than the processor's
// own gather on Zen 3 (and on processors whose gathers are slow for safety's sake).
static void take_place(struct x86_gen *g, bool wide, int quarter, int pair, int lane) {
    int place = lane ? RCX : RAX;
    if (wide)
        x86_op3i(g, EXTRACT_32 | EV_W, L128, quarter, 0, x86_r(place), lane);
    else if (!lane)
        x86_op3i(g, EXTRACT_32 | EV_W, L128, quarter, 0, x86_r(RCX), pair);
    if (wide) return;
    if (!lane)
        x86_sxd(&g->as, RAX, RCX);
    else
        x86_shift_imm(&g->as, SHIFT_SIGNED, RCX, 32);
}
void x86_avx2_load_each(struct x86_gen *g, const struct kir_val *v, int dst) {
    enum { IN_QUARTER = 4 };
    const struct kir_val *at = v->args[0];
    const struct x86_val *x = x86_of(at);
    int size = dtype_size(v->elem), base = RDX, in_quarter = IN_QUARTER * 4 / size,
        places = IN_QUARTER >> x->wide, from = 0;
    if (x->shape == SHAPE_STRIDE) {
        x86_lea(&g->as, RDX, x86_address(g, v));
    } else {
        from = x86_lane_reg(g, at, x->wide, TMP1);
        base = x86_base(g, v, RDX);
    }

    for (int k = 0; k < g->vec->lanes; k++) {
        struct x86_mem m = x86_at(RDX, (int32_t)(k * x->stride * size));
        int to = k < in_quarter ? dst : TMP0, lane = k % in_quarter;
        if (x->shape != SHAPE_STRIDE) {
            if (k && k % places == 0) {
                x86_op3i(g, GET_HALF, FULL, from, 0, x86_r(TMP1), 1);
                from = TMP1;
            }
            take_place(g, x->wide, from, k % places / 2, k % 2);
            m = (struct x86_mem){.base = (int8_t)base,
                                 .index = k % 2 ? RCX : RAX,
                                 .scale = (uint8_t)x86_log_size(v->elem)};
        }
        if (!lane)
            x86_op2(g, size == 4 ? LOAD_32 : LOAD_64, L128, to, x86_m(m));
        else if (size == 4)
            x86_op3i(g, INSERT_32, L128, to, to, x86_m(m), lane);
        else
            x86_op3(g, INSERT_64, L128, to, to, x86_m(m));
    }
    if (g->vec->lanes > in_quarter) x86_op3i(g, SET_HALF, FULL, dst, dst, x86_r(TMP0), 1);
}

// ---- stores

static void bytes_of_lanes(struct x86_gen *g, enum x86_len len, int dst, int x) {
    uint8_t from[32];
    for (int k = 0; k < 32; k++)
        from[k] = k % 16 < 4 ? (uint8_t)(k % 16 * 4) : 0x80;
    x86_op3(g, EV_PSHUFB, len, dst, x, x86_m(x86_pooled(x86_const(&g->as, from, sizeof from))));
    if (len != FULL) return;
    x86_op3i(g, GET_HALF, FULL, dst, 0, x86_r(TMP2), 1);
    x86_op3(g, UNPACK_DQ, L128, dst, dst, x86_r(TMP2));
}
int x86_avx2_elements(struct x86_gen *g, const struct kir_val *s) {
    const struct kir_val *v = x86_written(s);
    enum dtype t = s->elem;
    int size = dtype_size(t);
    enum x86_len len = x86_length(g, SHAPE_LANES, size == 8);
    if (t == DT_PRED) {
        x86_op3(g, EV_AND, FULL, TMP0, x86_mask_reg(g, v), x86_each32(g, 1));
        bytes_of_lanes(g, len, TMP0, TMP0);
        return TMP0;
    }
    if (t == DT_BF16) {
        x86_to_bf16(g, v, len, TMP3, TMP0);
        x86_avx2_words(g, len, TMP0, TMP3);
        return TMP0;
    }
    int r = x86_lane_reg(g, v, size == 8, TMP0);
    if (size >= 4) return r;
    if (t == DT_F16) {
        x86_op3i(g, EV_PS2PH, len, r, 0, x86_r(TMP0), 0);
    } else if (size == 2) {
        x86_avx2_words(g, len, TMP0, r);
    } else {
        bytes_of_lanes(g, len, TMP0, r);
    }
    return TMP0;
}
void x86_avx2_store(struct x86_gen *g, const struct kir_val *s) {
    int size = dtype_size(s->elem), lanes = g->vec->lanes;
    bool wide = size == 8;
    if (g->masked && g->left < 0 && size < 4) {
        x86_store_each(g, s);
        return;
    }
    int r = x86_avx2_elements(g, s);
    if (!g->masked && size * lanes >= 16) {
        x86_op2(g, EV_STOREUPS, size * lanes == 32 ? FULL : L128, r, x86_m(x86_address(g, s)));
    } else if (g->masked && g->left < 0) {
        int tail = x86_avx2_tail(g, wide, TMP2);
        x86_op3(g, STORE_MASKED + (wide ? MASKED_WIDE : 0), x86_length(g, SHAPE_LANES, wide), r,
                tail, x86_m(x86_address(g, s)));
    } else {
        put_bytes(g, r, place(g, s), size * (g->masked ? g->left : lanes));
    }
}

// ---- groups of stores: see x86_apart.c

void x86_avx2_interleave(struct x86_gen *g, const struct x86_group *group) {
    int n = group->n, w = g->vec->lanes;
    enum x86_len len = x86_length(g, SHAPE_LANES, false);
    x86_lea(&g->as, RDX, x86_address(g, group->store[0]));
    for (int j = 0; j < n; j++) {
        bool first = true;
        for (int k = 0; k < n; k++) {
            int32_t from[8] = {0};
            int in = 0;
            for (int l = 0; l < w; l++)
                if ((w * j + l) % n == k) from[l] = (w * j + l) / n, in |= 1 << l;
            if (!in) continue;
            int value = x86_lane_reg(g, group->store[k]->args[1], false, TMP0);
            x86_op2(g, EV_MOVUPS, FULL, TMP1,
                    x86_m(x86_pooled(x86_const(&g->as, from, sizeof from))));
            x86_op3(g, PERMD, FULL, first ? TMP3 : TMP1, TMP1, x86_r(value));
            if (!first) x86_op3i(g, BLENDPS, FULL, TMP3, TMP3, x86_r(TMP1), in);
            first = false;
        }
        x86_op2(g, EV_STOREUPS, len, TMP3, x86_m(x86_at(RDX, 4 * w * j)));
    }
}
// The lowest `bytes` of each lane of r, to RDX.
void x86_avx2_pack(struct x86_gen *g, int bytes, int r) {
    if (bytes == 2) x86_avx2_words(g, FULL, r, r);
    if (bytes == 3) { // twelve bytes of each half, then the halves side by side
        uint8_t bytes_of[32];
        int32_t words[8];
        for (int k = 0; k < 32; k++)
            bytes_of[k] = k % 16 < 12 ? (uint8_t)(k % 16 / 3 * 4 + k % 16 % 3) : 0x80;
        for (int k = 0; k < 8; k++)
            words[k] = k < 6 ? k / 3 * 4 + k % 3 : 7;
        x86_op3(g, EV_PSHUFB, FULL, r, r,
                x86_m(x86_pooled(x86_const(&g->as, bytes_of, sizeof bytes_of))));
        x86_op2(g, EV_MOVUPS, FULL, TMP1,
                x86_m(x86_pooled(x86_const(&g->as, words, sizeof words))));
        x86_op3(g, PERMD, FULL, r, TMP1, x86_r(r));
    }
    put_bytes(g, r, x86_at(RDX, 0), bytes * x86_lanes(g->p, false));
}
