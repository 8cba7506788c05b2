// SPDX-License-Identifier: Apache-2.0
// Blocks, loops and the frame. A vector loop is written up to three times: with several
// accumulators while that many turns are left, with one, and once under a mask for what is left
// then. Of bounds that are known only what runs is written.
#include "compiler/codegen/x86/x86_direct.h"

#include "compiler/codegen/abi.h"
#include "compiler/codegen/x86/x86_gen.h"

enum { MAX_CODE = 1 << 20 };
#define UPPER_HALF    EV(3, 1, 1, 0x3b)
#define UPPER_QUARTER EV(3, 1, 0, 0x39)

static void block(struct x86_gen *g, const struct kir_block *b);
static void one_value(struct x86_gen *g, const struct kir_val *v);

// ---- values between homes

// The register through which a value comes into a home.
static int by_way_of(const struct x86_gen *g, const struct x86_home *h) {
    return h->class == CLASS_V && h->reg < 0 ? TMP0 : x86_home_dst(g, h);
}
static void move_to(struct x86_gen *g, const struct x86_home *h, const struct kir_val *from,
                    bool wide) {
    int temp = by_way_of(g, h);
    x86_home_put(g, h,
                 h->class == CLASS_G   ? x86_int(g, from, temp)
                 : h->class == CLASS_V ? x86_lane_reg(g, from, wide, temp)
                                       : x86_mask_reg(g, from));
}
// In the last turn of a vector loop only its lanes take part.
static void merge_to(struct x86_gen *g, const struct x86_home *h, const struct kir_val *from,
                     bool wide) {
    if (g->as.vex) {
        bool mask = h->class == CLASS_K;
        int r = mask ? x86_mask_reg(g, from) : x86_lane_reg(g, from, wide, TMP0),
            to = x86_home_reg(g, h, TMP3), tail = x86_avx2_tail(g, wide, TMP1);
        x86_avx2_blend(g, x86_length(g, SHAPE_LANES, wide), to, to, x86_r(r), tail);
        x86_home_put(g, h, to);
        return;
    }
    if (h->class == CLASS_K) {
        x86_mask3(&g->as, MASK_AND, K_TMP, K_TAIL, x86_mask_reg(g, from));
        int now = x86_home_reg(g, h, 0);
        x86_mask3(&g->as, MASK_ANDN, now, K_TAIL, now);
        x86_mask3(&g->as, MASK_OR, now, now, K_TMP);
        x86_home_put(g, h, now);
        return;
    }
    int r = x86_lane_reg(g, from, wide, TMP0), to = x86_home_reg(g, h, TMP3);
    x86_masked(g, wide ? EV_MOVAPS | EV_PD | EV_W : EV_MOVAPS, x86_length(g, SHAPE_LANES, wide), to,
               0, x86_r(r), K_TAIL, false);
    x86_home_put(g, h, to);
}
static struct x86_home *extra_slot(struct x86_gen *g, const struct x86_home *like) {
    struct x86_home *h = arena_new_of(g->p->a, struct x86_home);
    *h = (struct x86_home){.slot = x86_frame_slot(g), .reg = -1, .class = like->class};
    return h;
}
static bool wide_of(const struct kir_val *v) {
    return x86_of(v)->wide;
}

static void yields(struct x86_gen *g, const struct kir_loop *l) {
    struct x86_home *kept[64];
    bool own = g->vec && g->vec->l == l, crossed = false;
    for (int c = 0; c < l->n_carry; c++)
        crossed |=
            l->yield[c]->op == K_CARRY && l->yield[c]->loop == l && l->yield[c] != l->carry[c];
    if (crossed && l->n_carry > 64) {
        g->why = "too many carried values";
        return;
    }
    for (int c = 0; crossed && c < l->n_carry; c++) {
        kept[c] = extra_slot(g, x86_home_of(g, l->carry[c]));
        move_to(g, kept[c], l->yield[c], wide_of(l->carry[c]));
    }
    for (int c = 0; c < l->n_carry; c++) {
        const struct kir_val *carry = l->carry[c];
        struct x86_home *h = x86_home_of(g, carry);
        if (crossed)
            x86_home_put(g, h, x86_home_reg(g, kept[c], by_way_of(g, h)));
        else if (own && g->masked)
            merge_to(g, h, l->yield[c], wide_of(carry));
        else if (l->yield[c] != carry)
            move_to(g, h, l->yield[c], wide_of(carry));
    }
}
static void set_var(struct x86_gen *g, const struct kir_loop *l) {
    move_to(g, x86_of(l->var)->home, l->begin, false);
}
static void step_var(struct x86_gen *g, const struct kir_loop *l, int by) {
    const struct x86_home *h = x86_of(l->var)->home;
    int r = x86_home_reg(g, h, RAX);
    x86_alu_imm(&g->as, ALU_ADD, r, by);
    x86_home_put(g, h, r);
}
// Flags of RAX = var + by against the end.
static void compare_end(struct x86_gen *g, const struct kir_loop *l, int by) {
    int r = x86_int(g, l->var, RAX);
    int64_t c;
    if (kir_is_const(l->end, &c) && c - by > INT32_MIN && c - by < INT32_MAX) {
        x86_alu_imm(&g->as, ALU_CMP, r, (int32_t)(c - by));
        return;
    }
    if (by) {
        x86_lea(&g->as, RAX, x86_at(r, by));
        r = RAX;
    }
    x86_alu(&g->as, ALU_CMP, r, x86_int(g, l->end, RCX));
}
static void spread_results(struct x86_gen *g, const struct kir_loop *l) {
    for (int c = 0; c < l->n_carry; c++)
        x86_spread(g, l->result[c]);
}

// ---- loops one iteration at a time

static void plain_loop(struct x86_gen *g, struct x86_loop *x) {
    struct kir_loop *l = x->l;
    int64_t trip = x86_trip(l);
    for (int c = 0; c < l->n_carry; c++)
        move_to(g, x86_of(l->carry[c])->home, l->init[c], wide_of(l->carry[c]));
    int top = x86_label(&g->as), done = x86_label(&g->as);
    if (trip) {
        set_var(g, l);
        if (trip < 0) {
            compare_end(g, l, 0);
            x86_jump_if(&g->as, CC_GE, done);
        }
        x86_bind(&g->as, top);
        x86_window_turn(g, x);
        x86_spread(g, l->var);
        for (int c = 0; c < l->n_carry; c++)
            x86_spread(g, l->carry[c]);
        block(g, &l->body);
        yields(g, l);
        if (trip != 1) {
            step_var(g, l, 1);
            compare_end(g, l, 0);
            x86_jump_if(&g->as, CC_L, top);
        }
    }
    x86_bind(&g->as, done);
    spread_results(g, l);
}

// ---- vector loops

static enum kop reduction(const struct kir_loop *l, int c) {
    return l->yield[c]->op;
}
static bool starts_apart(enum kop op) { // from its neutral element; the others from the first value
    return op == K_ADD || op == K_MUL || op == K_XOR;
}
static void start_accumulators(struct x86_gen *g, struct x86_loop *x) {
    struct kir_loop *l = x->l;
    for (int c = 0; c < l->n_carry; c++)
        for (g->copy = 0; g->copy < x->copies; g->copy++) {
            const struct kir_val *v = l->carry[c];
            const struct x86_home *h = x86_home_of(g, v);
            enum kop op = reduction(l, c);
            bool wide = wide_of(v);
            if (!starts_apart(op) || h->class == CLASS_K) {
                move_to(g, h, l->init[c], wide);
                continue;
            }
            struct x86_arg neutral = dtype_is_float(v->type)
                                         ? x86_each_float(g, wide, op == K_MUL ? 1 : -0.0)
                                         : x86_each(g, wide, op == K_MUL);
            x86_home_put(g, h, x86_in_register(g, neutral, wide, FULL, by_way_of(g, h)));
        }
    g->copy = 0;
}

// What a sum of lanes, or another reduction of them, is made of.
struct fold {
    enum kop op;
    enum dtype t;
    bool wide, half, one; // one: no lane but the first is read
    bool numbers;         // a bound of lanes among which there is no NaN
};
// r = r op TMP1
static void fold_in(struct x86_gen *g, const struct fold *f, enum x86_len len, int r) {
    if (f->numbers)
        x86_bound_numbers(g, f->op == K_MAX, f->wide, len, r, TMP1);
    else
        x86_combine(g, f->op, f->t, f->wide, len, r, r, x86_r(TMP1));
}
// All lanes of `r` become op over its lanes. Uses TMP1, TMP2 and TMP3.
static void avx2_fold(struct x86_gen *g, const struct fold *f, int r) {
    enum { PAIRS = 0x4e, ONES = 0xb1, DOUBLES = 5 };
    enum x86_len len = f->half ? HALF : FULL;
    if (!f->half) {
        x86_op3i(g, EV_PERM_HALVES, FULL, TMP1, r, x86_r(r), 1);
        fold_in(g, f, len, r);
    }
    for (int k = f->wide; k < 2; k++) {
        x86_op3i(g, f->wide ? EV_PERMILPD : EV_PERMILPS, len, TMP1, 0, x86_r(r),
                 f->wide  ? DOUBLES
                 : k == 0 ? PAIRS
                          : ONES);
        fold_in(g, f, len, r);
    }
    if (f->half) x86_op2(g, EV_EACHSS, FULL, r, x86_r(r));
}
// The upper half is folded onto the lower one until a lane is left.
static void fold_lanes(struct x86_gen *g, const struct fold *f, int r) {
    enum { PAIRS = 0x4e, ONES = 0xb1, DOUBLES = 1 };
    bool wide = f->wide;
    if (g->as.vex) {
        avx2_fold(g, f, r);
        return;
    }
    if (!f->half) {
        x86_op3i(g, UPPER_HALF, FULL, r, 0, x86_r(TMP1), 1);
        fold_in(g, f, HALF, r);
    }
    x86_op3i(g, UPPER_QUARTER, HALF, r, 0, x86_r(TMP1), 1);
    fold_in(g, f, L128, r);
    if (!wide) {
        x86_op3i(g, EV_PERMILPS, L128, TMP1, 0, x86_r(r), PAIRS);
        fold_in(g, f, L128, r);
    }
    x86_op3i(g, wide ? EV_PERMILPD : EV_PERMILPS, L128, TMP1, 0, x86_r(r), wide ? DOUBLES : ONES);
    fold_in(g, f, L128, r);
    if (!f->one) x86_op2(g, wide ? EV_EACHSD : EV_EACHSS, FULL, r, x86_r(r));
}
// Bounds look for NaN once, not at each step.
static void across(struct x86_gen *g, struct fold f, int r) {
    int numbers, done;
    if (!dtype_is_float(f.t) || (f.op != K_MIN && f.op != K_MAX)) {
        fold_lanes(g, &f, r);
        return;
    }
    numbers = x86_label(&g->as);
    done = x86_label(&g->as);
    x86_jump_numbers(g, f.wide, f.half ? HALF : FULL, r, numbers);
    fold_lanes(g, &f, r);
    x86_jump(&g->as, done);
    x86_bind(&g->as, numbers);
    f.numbers = true;
    fold_lanes(g, &f, r);
    x86_bind(&g->as, done);
}
static void finish_mask(struct x86_gen *g, struct x86_loop *x, int c) {
    const struct kir_val *v = x->l->carry[c];
    const struct x86_home *h = x86_of(v)->home;
    bool all = reduction(x->l, c) == K_AND, vex = g->as.vex;
    int lanes = (1 << x->lanes) - 1, k = x86_home_reg(g, h, vex ? MASK_TMP : K_TMP);
    for (int n = 1; n < x->copies; n++) {
        int other = x86_home_reg(g, x->more[c][n], vex ? TMP1 : 0);
        if (vex)
            x86_op3(g, all ? EV_AND : EV_OR, FULL, k, k, x86_r(other));
        else
            x86_mask3(&g->as, all ? MASK_AND : MASK_OR, k, k, other);
    }
    x86_mask_bits(g, RAX, k);
    x86_alu_imm(&g->as, ALU_AND, RAX, lanes);
    x86_alu_imm(&g->as, ALU_CMP, RAX, all ? lanes : 0);
    x86_mask_of_flags(g, all ? CC_E : CC_NE, k);
    x86_home_put(g, h, k);
}
static void finish_accumulators(struct x86_gen *g, struct x86_loop *x) {
    struct kir_loop *l = x->l;
    for (int c = 0; c < l->n_carry; c++) {
        const struct kir_val *v = l->carry[c], *result = l->result[c];
        enum kop op = reduction(l, c);
        const struct x86_home *h = x86_of(v)->home;
        bool wide = wide_of(v);
        enum x86_len len = x86_is_half(g, x->lanes, wide) ? HALF : FULL;
        if (h->class == CLASS_K) {
            finish_mask(g, x, c);
            continue;
        }
        int r = x86_home_reg(g, h, TMP0);
        for (int n = 1; n < x->copies; n++)
            x86_combine(g, op, v->type, wide, len, r, r,
                        x86_r(x86_home_reg(g, x->more[c][n], TMP1)));
        bool one = x86_of(result)->one;
        struct fold f = {op, v->type, wide, x86_is_half(g, x->lanes, wide), one, false};
        across(g, f, r);
        if (starts_apart(op))
            x86_combine(g, op, v->type, wide, one && !g->as.vex ? L128 : FULL, r, r,
                        x86_r(x86_lane_reg(g, l->init[c], wide, TMP1)));
        x86_home_put(g, h, r);
        if (x86_class(result) == CLASS_G) {
            x86_op2(g, EV_TO_GPR | EV_W, L128, r, x86_r(RAX));
            x86_put(g, result, RAX);
        }
    }
}

static void turn(struct x86_gen *g, const struct kir_loop *l) {
    x86_spread(g, l->var);
    block(g, &l->body);
    yields(g, l);
}
// All copies of a value before the next one.
static void turns_beside(struct x86_gen *g, struct x86_loop *x) {
    g->beside = true;
    for (g->copy = 0; g->copy < x->copies; g->copy++)
        x86_spread(g, x->l->var);
    for (const struct kir_val *v = x->l->body.first; v && !g->why; v = v->next) {
        g->copy = 0;
        one_value(g, v);
        if (!x86_beside_each(v)) continue;
        for (g->copy = 1; g->copy < x->copies; g->copy++)
            if (x86_class(v) == CLASS_G && v->op != K_STORE)
                x86_spread(g, v);
            else
                one_value(g, v);
    }
    for (g->copy = 0; g->copy < x->copies; g->copy++)
        yields(g, x->l);
    g->copy = 0;
    g->beside = false;
    step_var(g, x->l, x->lanes * x->copies);
}
// `times` turns with accumulators of their own; then the variable is past them.
static void turns(struct x86_gen *g, struct x86_loop *x, int times) {
    if (x->beside && times == x->copies) {
        turns_beside(g, x);
        return;
    }
    for (g->copy = 0; g->copy < times; g->copy++) {
        turn(g, x->l);
        step_var(g, x->l, x->lanes);
    }
    g->copy = 0;
}
static void turns_while(struct x86_gen *g, struct x86_loop *x, int times, bool sure) {
    int by = x->lanes * times, top = x86_label(&g->as), done = x86_label(&g->as);
    if (!sure) {
        compare_end(g, x->l, by);
        x86_jump_if(&g->as, CC_G, done);
    }
    x86_bind(&g->as, top);
    turns(g, x, times);
    compare_end(g, x->l, by);
    x86_jump_if(&g->as, CC_LE, top);
    x86_bind(&g->as, done);
}
static void last_turn(struct x86_gen *g, struct x86_loop *x, int64_t left) {
    int done = x86_label(&g->as);
    bool vex = g->as.vex;
    if (left >= 0) {
        if (!vex) x86_mov_imm(&g->as, RAX, (1 << left) - 1);
    } else {
        x86_mov(&g->as, RCX, x86_int(g, x->l->end, RCX));
        x86_alu(&g->as, ALU_SUB, RCX, x86_int(g, x->l->var, RAX));
        x86_alu_imm(&g->as, ALU_CMP, RCX, 0);
        x86_jump_if(&g->as, CC_LE, done);
        if (vex) {
            x86_avx2_set_tail(g);
        } else {
            x86_mov_imm(&g->as, RAX, 1);
            x86_shift_cl(&g->as, SHIFT_LEFT, RAX);
            x86_alu_imm(&g->as, ALU_SUB, RAX, 1);
        }
    }
    if (!vex) x86_mask_from(&g->as, K_TAIL, RAX);
    g->masked = true;
    g->left = (int)left;
    turn(g, x->l);
    g->masked = false;
    x86_bind(&g->as, done);
}
static void vector_loop(struct x86_gen *g, struct x86_loop *x) {
    int64_t trip = x86_trip(x->l), left = trip;
    int many = x->copies * x->lanes;
    g->vec = x;
    start_accumulators(g, x);
    set_var(g, x->l);
    if (trip < 0) {
        if (x->copies > 1) turns_while(g, x, x->copies, false);
        turns_while(g, x, 1, false);
        last_turn(g, x, -1);
    } else {
        if (x->copies > 1 && trip >= 2 * many)
            turns_while(g, x, x->copies, true);
        else if (x->copies > 1 && trip >= many)
            turns(g, x, x->copies);
        if (x->copies > 1) left %= many;
        if (left >= 2 * x->lanes)
            turns_while(g, x, 1, true);
        else if (left >= x->lanes)
            turns(g, x, 1);
        if (left % x->lanes) last_turn(g, x, left % x->lanes);
    }
    finish_accumulators(g, x);
    g->vec = NULL;
    spread_results(g, x->l);
}

// Goes to `label` where no lane meets the condition c.
static void jump_where_none(struct x86_gen *g, const struct kir_val *c, int label) {
    int k = x86_mask_reg(g, c);
    if (g->as.vex)
        x86_op2(g, EV_PTEST, FULL, k, x86_r(k));
    else
        x86_mask_test(&g->as, k);
    x86_jump_if(&g->as, CC_E, label);
}
// Only the arm that is taken.
static void lazy_select(struct x86_gen *g, const struct kir_val *v) {
    int other = x86_label(&g->as), done = x86_label(&g->as);
    jump_where_none(g, v->args[0], other);
    for (int arm = 1; arm < 3; arm++) {
        for (const struct kir_val *a = v->block->first; a != v; a = a->next)
            if (x86_of(a)->owner == v && x86_of(a)->arm == arm) one_value(g, a);
        move_to(g, x86_home_of(g, v), v->args[arm], wide_of(v));
        if (arm == 1) x86_jump(&g->as, done);
        if (arm == 1) x86_bind(&g->as, other);
    }
    x86_bind(&g->as, done);
}
// What only elements that few are want, unless none of the lanes is one.
static void rare_values(struct x86_gen *g, const struct kir_val *first) {
    const struct kir_val *c = first->args[0];
    int none = x86_label(&g->as);
    jump_where_none(g, c, none);
    for (const struct kir_val *a = first->block->first; a != first; a = a->next)
        if (x86_of(a)->owner == c) one_value(g, a);
    x86_bind(&g->as, none);
}
static void loop(struct x86_gen *g, struct x86_loop *x) {
    for (size_t k = 0; k < x->held.n; k++)
        x->held.v[k].home->reg = (int8_t)x86_home_reg(g, x->held.v[k].home, x->held.v[k].reg);
    if (x->lanes)
        vector_loop(g, x);
    else
        plain_loop(g, x);
    for (size_t k = 0; k < x->held.n; k++)
        x->held.v[k].home->reg = -1;
}
static void one_value(struct x86_gen *g, const struct kir_val *v) {
    struct x86_loop *x = x86_of(v)->loop;
    if (g->why) return;
    if (g->as.code.n > MAX_CODE) g->why = "too much code";
    if (x86_of(v)->opens) rare_values(g, v);
    bool all_one = g->as.one;
    g->as.one |= x86_of(v)->one && (!g->as.vex || v->op == K_DIV || v->op == K_SQRT);
    if (v->op == K_FOR)
        loop(g, x);
    else if (x86_of(v)->lazy)
        lazy_select(g, v);
    else if (v->op == K_STORE)
        x86_store_value(g, v);
    else if (v->type == DT_PRED)
        x86_mask_value(g, v);
    else if (x86_class(v) == CLASS_G)
        x86_index_value(g, v);
    else
        x86_lane_value(g, v);
    g->as.one = all_one;
}
static void block(struct x86_gen *g, const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v && !g->why; v = v->next)
        if (!x86_of(v)->owner) one_value(g, v);
}

// ---- the frame

// Parameters come in registers and on the stack (System V ABI); up to HLOD_KERNEL_DIRECT buffers
// as parameters of their own.
static void parameter(struct x86_gen *g, const struct x86_home *h, int n) {
    enum { IN_REGISTERS = 6 };
    if (!h) return;
    struct x86_mem from =
        n < IN_REGISTERS ? x86_at(RBP, -8 * (n + 1)) : x86_at(RBP, 16 + 8 * (n - IN_REGISTERS));
    x86_load(&g->as, x86_home_dst(g, h), from);
    x86_home_put(g, h, x86_home_dst(g, h));
}
static const int8_t kept_registers[] = {RBX, R12, R13, R14, R15};
enum { KEPT = 5, PARAMETERS = 6 };
static size_t enter(struct x86_gen *g) {
    static const int8_t regs[PARAMETERS] = {RDI, RSI, RDX, RCX, R8, R9};
    const struct x86_plan *p = g->p;
    int n = p->f->n_bufs;

    x86_push(&g->as, RBP);
    x86_mov(&g->as, RBP, RSP);
    for (int k = 0; k < PARAMETERS; k++)
        x86_push(&g->as, regs[k]);
    for (int k = 0; k < KEPT; k++)
        if (p->saved & 1u << kept_registers[k]) x86_push(&g->as, kept_registers[k]);

    x86_alu_imm(&g->as, ALU_SUB, RSP, INT32_MAX); // the frame, set when its size is known
    size_t at = g->as.code.n - 4;
    x86_alu_imm(&g->as, ALU_AND, RSP, -64);

    bool many = n > HLOD_KERNEL_DIRECT;
    for (int k = 0; k < n; k++) {
        if (!p->bufs[k]) continue;
        if (!many) {
            parameter(g, p->bufs[k], k);
            continue;
        }
        x86_load(&g->as, RAX, x86_at(RBP, -8));
        x86_load(&g->as, RAX, x86_at(RAX, 8 * k));
        x86_home_put(g, p->bufs[k], RAX);
    }

    if (many) n = 1;
    parameter(g, p->begin, n);
    parameter(g, p->end, n + 1);
    parameter(g, p->scratch, n + 2);
    x86_spread(g, p->f->begin);
    x86_spread(g, p->f->end);
    return at;
}
static void leave(struct x86_gen *g) {
    int saved = 0;
    for (int k = 0; k < KEPT; k++)
        if (g->p->saved & 1u << kept_registers[k])
            x86_load(&g->as, kept_registers[k], x86_at(RBP, -8 * (PARAMETERS + ++saved)));
    x86_mov(&g->as, RSP, RBP);
    x86_pop(&g->as, RBP);
    x86_ret(&g->as);
}
// Loads constants that live in registers.
static void constants(struct x86_gen *g, struct kir_block *b) {
    for (struct kir_val *v = b->first; v; v = v->next) {
        if (v->op == K_FOR) {
            constants(g, &v->loop->body);
            continue;
        }
        struct x86_home *h = x86_of(v)->home;
        if (v->op != K_CONST || !h || h->reg < 0) continue;
        int8_t reg = h->reg;
        h->reg = -1;
        x86_lane_reg(g, v, x86_of(v)->wide, reg);
        h->reg = reg;
    }
}
void x86_write_body(struct x86_gen *g) {
    const struct kir_fn *f = g->p->f;
    g->as.one = !g->p->vex && !g->p->has_lanes;
    g->tables = arena_array(g->p->a, int32_t, f->tables.n + 1);
    for (size_t k = 0; k < f->tables.n; k++)
        g->tables[k] = x86_table(&g->as, f->tables.v[k].data,
                                 (size_t)(f->tables.v[k].n * dtype_size(f->tables.v[k].elem)));
    constants(g, (struct kir_block *)&f->top);
    block(g, &f->top);
}
static void write_kernel(struct x86_gen *g) {
    g->as.one = !g->p->vex && !g->p->has_lanes;
    size_t at = enter(g);
    x86_write_body(g);
    leave(g);
    int32_t frame = (g->p->frame + 63) / 64 * 64;
    memcpy(g->as.code.p + at, &frame, sizeof frame);
    x86_finish(&g->as);
    if (g->as.bad && !g->why) g->why = "an instruction that AVX2 has not";
}

struct span x86_direct(struct arena *a, const struct kir_fn *f, int64_t turns, int vector_bits,
                       bool has_bf16, const char **why) {
    struct span s = {NULL, 0};
    struct arena own = {0};
    struct x86_plan p = {.a = &own, .f = f, .turns = turns, .vex = vector_bits < 512};
    p.bf16 = has_bf16 && !p.vex;
    struct x86_gen g = {.p = &p, .as.vex = p.vex};
    if (x86_choose(&p) && x86_place(&p)) {
        write_kernel(&g);
        if (!g.why) s = (struct span){arena_dup(a, g.as.code.p, g.as.code.n), g.as.code.n};
        p.why = g.why;
    }
    x86_done(&g.as);
    arena_done(&own);
    if (why) *why = p.why;
    return s;
}
