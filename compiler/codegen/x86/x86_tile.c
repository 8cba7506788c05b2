// SPDX-License-Identifier: Apache-2.0
// Loads of a transposition: lanes lie far apart, but a loop further out, `along`, reads neighbours.
// Where a window of 16 (8, 4) turns of that loop begins, a tile of rows (the lanes) and as many
// columns is read by rows, transposed and kept on the frame, extended to 32 bits; in each turn the
// load reads its column there. The last window ends with the loop, over what the one before had.
// Loops between the two have tiles of their own for each of their turns.
// Does not: elements of 8 bytes, rows whose place depends on more than sums of loop variables.
#include <stdlib.h>

#include "compiler/codegen/x86/x86_gen.h"

enum { TILE_BYTES = 32768, ALL_TILES = 131072, WINDOW = 16 };
#define INSERT_128  EV(3, 1, 0, 0x18)
#define PAIRS_LOW   EV(1, 0, 0, 0x14)
#define PAIRS_HIGH  EV(1, 0, 0, 0x15)
#define HALVES_LOW  EV(1, 1, 1, 0x14)
#define HALVES_HIGH EV(1, 1, 1, 0x15)
#define LOW_WORDS   EV(2, 2, 0, 0x33)

static int rows_of(const struct x86_plan *p) {
    return x86_lanes(p, false);
}
static int column_of(const struct x86_plan *p) { // bytes
    return 4 * rows_of(p);
}

// ---- which loads

// The coefficient of loop variable `var` in the index v; false: not a sum of such terms.
static bool coefficient(const struct kir_val *v, const struct kir_val *var, int64_t *c) {
    int64_t x, y;
    *c = 0;
    if (v == var) {
        *c = 1;
        return true;
    }
    if (v->op == K_CONST || v->level < var->level) return true;
    switch (v->op) {
    case K_VAR:
        return true;
    case K_ADD:
    case K_SUB:
        if (!coefficient(v->args[0], var, &x) || !coefficient(v->args[1], var, &y)) return false;
        *c = v->op == K_ADD ? x + y : x - y;
        return true;
    case K_MUL:
        for (int k = 0; k < 2; k++)
            if (v->args[k]->op == K_CONST)
                return coefficient(v->args[1 - k], var, &x) &&
                       !__builtin_mul_overflow(x, v->args[k]->imm_i, c);
        return false;
    default:
        return false;
    }
}
// Is scratch written in the block or its loops?
static bool writes_scratch(const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v; v = v->next)
        if (v->op == K_FOR ? writes_scratch(&v->loop->body)
                           : v->op == K_STORE && v->imm_i == KIR_SCRATCH)
            return true;
    return false;
}
// May the load be made before others of its window: nobody writes there meanwhile?
static bool stays(const struct x86_plan *p, const struct kir_val *v, const struct x86_tile *t) {
    return v->imm_i == KIR_SCRATCH ? !writes_scratch(&t->along->l->body)
                                   : !(v->flags & KF_PINNED) && v->imm_i < p->f->n_in;
}
bool x86_tile_find(struct x86_plan *p, struct kir_loop *lanes, struct kir_val *v) {
    struct x86_tile t = {.lanes = lanes, .stride = x86_of(v->args[0])->stride};
    int64_t size = dtype_size(v->elem), trip = x86_trip(lanes), c;
    x86_of(v)->tile = NULL;
    if (v->op != K_LOAD || v->block != &lanes->body || size > 4 || v->elem == DT_PRED ||
        llabs(t.stride) < 2 || llabs(t.stride) > (1 << 24) || trip < 4)
        return false;
    t.bytes = (trip + rows_of(p) - 1) / rows_of(p) * WINDOW * column_of(p);
    for (int d = p->n_open - 1; d >= 0; d--) {
        struct x86_loop *x = p->open[d];
        if (!coefficient(v->args[0], x->l->var, &c)) return false;
        if (c == 1) {
            t.along = x;
            break;
        }
        if (t.n_between == X86_BETWEEN) return false;
        t.between[t.n_between++] = x;
        trip = x86_trip(x->l);
        if (trip < 1 || trip > TILE_BYTES || (t.bytes *= trip) > TILE_BYTES) return false;
    }
    if (!t.along || t.along->l->trip < 4 || t.bytes > TILE_BYTES || !stays(p, v, &t)) return false;
    trip = x86_trip(t.along->l);
    if (trip >= 0 && trip < 4) return false;
    t.slot = -1;
    x86_of(v)->tile = arena_dup(p->a, &t, sizeof t);
    return true;
}
void x86_tile_take(struct x86_plan *p, const struct kir_block *b) {
    for (struct kir_val *v = b->first; v; v = v->next) {
        struct x86_tile *t = x86_of(v)->tile;
        if (v->op == K_FOR || !t) continue;
        if (p->tiles + t->bytes > ALL_TILES) {
            x86_of(v)->tile = NULL; // as single elements
            continue;
        }
        p->tiles += t->bytes;
        int64_t trip = x86_trip(t->along->l);
        if (trip < 0) trip = t->along->l->trip;
        t->along->window = trip >= 16 ? 16 : trip >= 8 ? 8 : 4;
    }
}

// ---- windows: of the loop along the columns, at each of its turns

enum {
    AT = 0,
    FRESH = 8,
    FEW = 16,
    WINDOW_BYTES = 64
}; // offsets: column in bytes; 0: to be
   // filled; no whole window in the loop
static int32_t take(struct x86_gen *g, int32_t bytes) {
    int32_t at = g->p->frame ? (g->p->frame + 63) / 64 * 64 : 64; // 0 says: none yet
    g->p->frame = at + bytes;
    return at;
}
static struct x86_mem word(int32_t slot, int at) {
    return x86_at(RSP, slot + at);
}
void x86_window_turn(struct x86_gen *g, struct x86_loop *x) {
    int64_t trip = x86_trip(x->l), begin;
    int w = x->window, past = x86_label(&g->as), done = x86_label(&g->as);
    if (!w) return;
    bool fixed = trip >= 0, first = kir_is_const(x->l->begin, &begin);
    x->window_slot = x->window_slot ? x->window_slot : take(g, WINDOW_BYTES);

    x86_mov(&g->as, RAX, x86_int(g, x->l->var, RAX));
    if (!first || begin) x86_alu(&g->as, ALU_SUB, RAX, x86_int(g, x->l->begin, RCX));
    x86_mov(&g->as, RCX, RAX);
    x86_alu_imm(&g->as, ALU_AND, RCX, w - 1);
    x86_store(&g->as, word(x->window_slot, FRESH), RCX, 8);
    x86_alu(&g->as, ALU_SUB, RAX, RCX); // turns before the window

    x86_mov_imm(&g->as, RDX, fixed ? trip : 0);
    if (!fixed) {
        x86_mov(&g->as, RDX, x86_int(g, x->l->end, RDX));
        if (!first || begin) {
            x86_store(&g->as, word(x->window_slot, AT), RCX, 8);
            x86_alu(&g->as, ALU_SUB, RDX, x86_int(g, x->l->begin, RCX));
            x86_load(&g->as, RCX, word(x->window_slot, AT));
        }
    }

    // What the window lies behind the end goes to its beginning.
    x86_alu_imm(&g->as, ALU_ADD, RAX, w);
    x86_alu(&g->as, ALU_SUB, RAX, RDX);
    x86_jump_if(&g->as, CC_LE, past);
    x86_alu(&g->as, ALU_ADD, RCX, RAX);
    x86_bind(&g->as, past);
    x86_shift_imm(&g->as, SHIFT_LEFT, RCX, __builtin_ctz((unsigned)column_of(g->p)));
    x86_store(&g->as, word(x->window_slot, AT), RCX, 8);
    if (fixed) return;
    x86_mov_imm(&g->as, RAX, 0);
    x86_store(&g->as, word(x->window_slot, FEW), RAX, 8);
    x86_alu_imm(&g->as, ALU_CMP, RDX, w);
    x86_jump_if(&g->as, CC_GE, done);
    x86_store(&g->as, word(x->window_slot, AT), RAX, 8);
    x86_store(&g->as, word(x->window_slot, FRESH), RAX, 8);
    x86_mov_imm(&g->as, RAX, 1);
    x86_store(&g->as, word(x->window_slot, FEW), RAX, 8);
    x86_bind(&g->as, done);
}

// ---- tiles

// RCX: the block of lanes that is being computed, in bytes from the tile's slot: 64 a lane.
static void block_offset(struct x86_gen *g, const struct x86_tile *t) {
    int64_t begin = 0, rows = rows_of(g->p);
    int32_t columns = (int32_t)((x86_trip(t->lanes) + rows - 1) / rows * rows);
    kir_is_const(t->lanes->begin, &begin);
    x86_mov(&g->as, RCX, x86_int(g, t->lanes->var, RCX));
    if (begin) x86_alu_imm(&g->as, ALU_SUB, RCX, (int32_t)begin);
    for (int k = 0; k < t->n_between; k++) {
        const struct kir_loop *l = t->between[k]->l;
        kir_is_const(l->begin, &begin);
        x86_mov(&g->as, RAX, x86_int(g, l->var, RAX));
        if (begin) x86_alu_imm(&g->as, ALU_SUB, RAX, (int32_t)begin);
        x86_imul_imm(&g->as, RAX, RAX, columns);
        x86_alu(&g->as, ALU_ADD, RCX, RAX);
        columns *= (int32_t)x86_trip(l);
    }
    x86_shift_imm(&g->as, SHIFT_LEFT, RCX, __builtin_ctz(WINDOW * 4));
}
static struct x86_mem tile_at(const struct x86_tile *t, int32_t at) {
    return (struct x86_mem){.base = RSP, .index = RCX, .disp = t->slot + at};
}
// Four columns from column `at` on. Register i holds rows i, i + 4 and so on, so that nothing
// crosses its parts of 16 bytes.
static void four_columns(struct x86_gen *g, const struct kir_val *v, int at, int rows) {
    static const int8_t row[4] = {TMP0, TMP1, TMP2, TMP3}, part[4] = {0, 1, 2, 3};
    const struct x86_tile *t = x86_of(v)->tile;
    int size = dtype_size(v->elem);
    bool sign = dtype_class(v->elem) == DC_SIGNED;
    uint32_t extend = EV(2, 1, 0, (sign ? 0x20u : 0x30u) + (size == 2 ? 3u : 1u));
    for (int r = 0; r < rows_of(g->p); r++) {
        int to = row[r % 4];
        struct x86_mem m = x86_at(RDX, (int32_t)((r * t->stride + at) * size));
        if (r >= rows) {
            if (r < 4) x86_op3(g, EV_XOR, FULL, to, to, x86_r(to));
        } else if (r < 4) {
            x86_op2(g, size == 4 ? EV_MOVUPS : extend, L128, to, x86_m(m));
        } else if (size == 4) {
            x86_op3i(g, INSERT_128, FULL, to, to, x86_m(m), r / 4);
        } else {
            x86_op2(g, extend, L128, part[0], x86_m(m));
            x86_op3i(g, INSERT_128, FULL, to, to, x86_r(part[0]), r / 4);
        }
    }
    for (int k = 0; k < 4; k++)
        x86_op3(g, k % 2 ? PAIRS_HIGH : PAIRS_LOW, FULL, part[k], row[k / 2 * 2],
                x86_r(row[k / 2 * 2 + 1]));
    for (int k = 0; k < 4; k++) {
        x86_op3(g, k % 2 ? HALVES_HIGH : HALVES_LOW, FULL, row[k], part[k / 2],
                x86_r(part[k / 2 + 2]));
        x86_op2(g, EV_STOREUPS, FULL, row[k], x86_m(tile_at(t, (at + k) * column_of(g->p))));
    }
}
// One column, an element at a time.
static void one_column(struct x86_gen *g, const struct kir_val *v, int rows) {
    const struct x86_tile *t = x86_of(v)->tile;
    int size = dtype_size(v->elem);
    for (int r = 0; r < rows; r++) {
        x86_load_small(&g->as, RAX, x86_at(RDX, (int32_t)(r * t->stride * size)), size,
                       dtype_class(v->elem) == DC_SIGNED);
        x86_store(&g->as, tile_at(t, r * 4), RAX, 4);
    }
}
static void fill(struct x86_gen *g, const struct kir_val *v, struct x86_mem from, int rows) {
    const struct x86_tile *t = x86_of(v)->tile;
    const struct x86_loop *along = t->along;
    int few = x86_label(&g->as), done = x86_label(&g->as);
    bool unknown = x86_trip(along->l) < 0;
    x86_lea(&g->as, RDX, from);
    x86_load(&g->as, RAX, word(along->window_slot, AT));
    x86_shift_imm(&g->as, SHIFT_RIGHT, RAX,
                  __builtin_ctz((unsigned)column_of(g->p)) - x86_log_size(v->elem));
    x86_alu(&g->as, ALU_SUB, RDX, RAX);
    block_offset(g, t);
    if (unknown) {
        x86_load(&g->as, RAX, word(along->window_slot, FEW));
        x86_test(&g->as, RAX, 1);
        x86_jump_if(&g->as, CC_NE, few);
    }
    if (!g->tile_save) g->tile_save = take(g, 4 * 64);
    for (int k = 0; k < 4; k++)
        x86_op2(g, EV_STOREUPS, FULL, k, x86_m(word(g->tile_save, 64 * k)));
    for (int at = 0; at < along->window; at += 4)
        four_columns(g, v, at, rows);
    for (int k = 0; k < 4; k++)
        x86_op2(g, EV_MOVUPS, FULL, k, x86_m(word(g->tile_save, 64 * k)));
    x86_jump(&g->as, done);
    x86_bind(&g->as, few);
    if (unknown) one_column(g, v, rows);
    x86_bind(&g->as, done);
}
void x86_tile_load(struct x86_gen *g, const struct kir_val *v, struct x86_mem from) {
    struct x86_tile *t = x86_of(v)->tile;
    int filled = x86_label(&g->as), dst = x86_dst(g, v);
    if (t->slot < 0) t->slot = take(g, (int32_t)t->bytes);
    x86_load(&g->as, RAX, word(t->along->window_slot, FRESH));
    x86_test(&g->as, RAX, 0xff);
    x86_jump_if(&g->as, CC_NE, filled);
    fill(g, v, from, g->masked ? (int)(x86_trip(t->lanes) % rows_of(g->p)) : rows_of(g->p));
    x86_bind(&g->as, filled);
    block_offset(g, t);
    x86_load(&g->as, RAX, word(t->along->window_slot, AT));
    x86_alu(&g->as, ALU_ADD, RCX, RAX);
    x86_op2(g, EV_MOVUPS, FULL, dst, x86_m(tile_at(t, 0)));
    if (v->elem == DT_BF16) x86_op3i(g, EV_SHIFT, FULL, 6, dst, x86_r(dst), 16);
    if (v->elem == DT_F16) {
        if (g->as.vex)
            x86_avx2_words(g, FULL, TMP0, dst);
        else
            x86_op2(g, LOW_WORDS, FULL, dst, x86_r(TMP0));
        x86_op2(g, EV_PH2PS, FULL, dst, x86_r(TMP0));
    }
    x86_put(g, v, dst);
}
