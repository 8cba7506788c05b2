// SPDX-License-Identifier: Apache-2.0
// A loop of small kernels (compiler/kernel/merge.h) as one function without LLVM: its plan is
// walked once and each kernel written in place. Every value lies where the plan has it, so what a
// kernel leaves the next one reads from memory, as where the loop's steps are called one by one;
// what is saved is the calls, and all that is known once the places are. Results are those of the
// kernels alone, bit for bit.
//
// The frame, from RBP down: parameters, registers of the caller, the pointers that places are
// relative to, the sum of operations; then, aligned, what the kernels keep, one after the other in
// the same bytes.
#include "compiler/codegen/abi.h"
#include "compiler/codegen/x86/x86_direct.h"
#include "compiler/codegen/x86/x86_gen.h"
#include "compiler/kernel/merge.h"
#include "compiler/plan/in_place.h"

enum {
    AT_SCRATCH = -32, // the parameter
    AT_MEMORY = -96,
    AT_CANCEL = -104,
    AT_OUTCOME = -112,
    AT_WORK = -120,
    AT_LEAVES = -128, // and down
    MAX_LEAVES = 128,
    MAX_CODE = 1 << 20
};
static const char LARGE[] = "a loop with much memory";
struct place { // pool: an offset there; else an offset from the pointer that lies at RBP + base
    bool pool;
    int32_t base;
    int64_t at;
};
struct frame {
    const struct plan *plan;
    const struct place *params;
    int64_t memory; // of its computation in the loop's
};
struct writer {
    const struct merged_loop *l;
    struct x86 as;
    bool bf16;
    int32_t frame; // bytes that kernels keep, at most
    int cancelled; // label
    const char *why;
};

static struct x86_mem below(int32_t at) {
    return x86_at(RBP, at);
}

// ---- places

static struct place place_of(struct writer *w, const struct frame *f, const struct slice *s) {
    if (s->where == SLICE_PARAM) return f->params[s->index];
    if (s->where == SLICE_CONST) {
        const struct literal *c = f->plan->consts[s->index];
        const void *bytes = c->size_bytes ? c->data : "";
        return (struct place){.pool = true, .at = x86_table(&w->as, bytes, (size_t)c->size_bytes)};
    }
    if (f->memory + s->offset > INT32_MAX) w->why = LARGE;
    return (struct place){.base = AT_MEMORY, .at = f->memory + s->offset};
}
static bool is_same(const struct place *x, const struct place *y) {
    return x->pool == y->pool && x->base == y->base && x->at == y->at;
}
// Its address, in register r.
static void address(struct x86 *as, int r, const struct place *p) {
    if (p->pool) {
        x86_lea(as, r, x86_pooled((int32_t)p->at));
        return;
    }
    x86_load(as, r, below(p->base));
    if (p->at) x86_lea(as, r, x86_at(r, (int32_t)p->at));
}
// `bytes` of them: a vector's, or fewer.
static void copy_vector(struct x86 *as, int bytes, struct x86_mem to, struct x86_mem from) {
    enum x86_len len = bytes == 16 ? L128 : bytes == 32 && !as->vex ? HALF : FULL;
    struct x86_v v = {.op = EV_MOVUPS, .len = len, .dst = TMP0, .imm = -1};
    x86_vec(as, v, x86_m(from));
    v.op = EV_STOREUPS;
    x86_vec(as, v, x86_m(to));
}
// n bytes from RSI to RDI, which do not overlap or are the same.
static void copy_bytes(struct x86 *as, int64_t n) {
    enum { WRITTEN_OUT = 8, LEAST = 16 };
    int full = as->vex ? 32 : 64, at = 0;
    if (n / full > WRITTEN_OUT) {
        struct x86_mem from = x86_at(RSI, 0), to = x86_at(RDI, 0);
        int top = x86_label(as);
        int64_t whole = n / full * full;
        from.index = to.index = RCX;
        x86_lea(as, RSI, x86_at(RSI, (int32_t)whole));
        x86_lea(as, RDI, x86_at(RDI, (int32_t)whole));
        x86_mov_imm(as, RCX, -whole);
        x86_bind(as, top);
        copy_vector(as, full, to, from);
        x86_alu_imm(as, ALU_ADD, RCX, full);
        x86_jump_if(as, CC_NE, top);
        n -= whole;
    }
    for (; full >= LEAST; full /= 2)
        for (; n >= full; n -= full, at += full)
            copy_vector(as, full, x86_at(RDI, at), x86_at(RSI, at));
    for (int size = LEAST / 2; size; size /= 2)
        for (; n >= size; n -= size, at += size) {
            x86_load_small(as, RAX, x86_at(RSI, at), size, false);
            x86_store(as, x86_at(RDI, at), RAX, size);
        }
}
static void copy(struct writer *w, const struct place *to, const struct place *from, int64_t n) {
    if (is_same(to, from) || !n) return;
    if (n > INT32_MAX) w->why = LARGE;
    address(&w->as, RSI, from);
    address(&w->as, RDI, to);
    copy_bytes(&w->as, n);
}

// ---- steps

// All units of a kernel: the range is two constants while it is written.
static void write_kernel(struct writer *w, struct kir_fn *f, const struct place *bufs) {
    struct arena own = {0};
    struct x86_plan p = {.a = &own,
                         .f = f,
                         .turns = 1,
                         .merged = true,
                         .vex = w->as.vex,
                         .bf16 = w->bf16 && !w->as.vex};
    struct kir_val begin = *f->begin, end = *f->end;
    f->begin->op = f->end->op = K_CONST;
    f->begin->imm_i = 0;
    f->end->imm_i = f->extent;

    if (x86_choose(&p) && x86_place(&p)) {
        struct x86_gen g = {.as = w->as, .p = &p};
        for (int k = 0; k < f->n_bufs; k++) {
            if (!p.bufs[k]) continue;
            int r = x86_home_dst(&g, p.bufs[k]);
            address(&g.as, r, &bufs[k]);
            x86_home_put(&g, p.bufs[k], r);
        }
        if (p.scratch) {
            x86_load(&g.as, x86_home_dst(&g, p.scratch), below(AT_SCRATCH));
            x86_home_put(&g, p.scratch, x86_home_dst(&g, p.scratch));
        }
        x86_write_body(&g);
        w->as = g.as;
        w->as.one = false;
        p.why = g.why;
        if (p.frame > w->frame) w->frame = p.frame;
    }
    if (!w->why) w->why = p.why;
    *f->begin = begin;
    *f->end = end;
    arena_done(&own);
}
static void write_plan(struct writer *w, const struct frame *f);
static void write_called(struct writer *w, const struct plan *called, int64_t memory,
                         const struct place *in, const struct place *out) {
    struct frame f = {.plan = called, .params = in, .memory = memory};
    write_plan(w, &f);
    for (int k = 0; k < called->n_root; k++) {
        struct place from = place_of(w, &f, &called->root[k]);
        copy(w, &out[k], &from, called->root[k].size_bytes);
    }
}
// A number that no branch has: the last one.
static void write_conditional(struct writer *w, const struct plan_step *s, int64_t memory,
                              const struct place *in, const struct place *out) {
    bool pred = s->instr->operands[0]->shape->dtype == DT_PRED;
    int at[MERGE_BRANCHES], n = s->instr->n_called, done = x86_label(&w->as);
    for (int k = 0; k < n; k++)
        at[k] = x86_label(&w->as);
    address(&w->as, RAX, &in[0]);
    x86_load_small(&w->as, RAX, x86_at(RAX, 0), pred ? 1 : 4, !pred);
    for (int k = 0; k + 1 < n; k++) {
        x86_alu_imm(&w->as, ALU_CMP, RAX, pred ? 0 : k);
        x86_jump_if(&w->as, pred ? CC_NE : CC_E, at[k]);
    }
    for (int k = n; k-- > 0;) {
        x86_bind(&w->as, at[k]);
        write_called(w, s->called[k], memory, in + plan_branch_leaf(s, k), out);
        if (k) x86_jump(&w->as, done);
    }
    x86_bind(&w->as, done);
}
// The state of the next turn to where the last one's was, as the device does (cpu_loop.c).
static void next_state(struct writer *w, const struct frame *body, const struct place *state) {
    const struct plan *p = body->plan;
    for (int pass = 0; pass < 3; pass++) { // to the stage; what stays in its place; from the stage
        struct place stage = {.base = AT_SCRATCH, .at = w->l->stage_at};
        for (int k = 0; k < p->n_root; k++) {
            struct place from = place_of(w, body, &p->root[k]);
            int64_t n = p->root[k].size_bytes;
            bool moves = plan_moves(p, k);
            if (pass == 1 && !moves) copy(w, &state[k], &from, n);
            if (pass == 0 && moves) copy(w, &stage, &from, n);
            if (pass == 2 && moves) copy(w, &state[k], &stage, n);
            if (moves) stage.at += (n + 63) / 64 * 64;
        }
    }
}
// state holds the first turn's.
static void write_while(struct writer *w, const struct plan_step *s, int64_t memory,
                        const struct place *state) {
    struct x86 *as = &w->as;
    struct frame cond = {.plan = s->called[0], .params = state, .memory = memory},
                 body = {.plan = s->called[1], .params = state, .memory = memory};
    int head = x86_label(as), done = x86_label(as);

    x86_bind(as, head);
    x86_load(as, RAX, below(AT_CANCEL));
    x86_load_small(as, RAX, x86_at(RAX, 0), 1, false);
    x86_alu_imm(as, ALU_CMP, RAX, 0);
    x86_jump_if(as, CC_NE, w->cancelled);

    write_plan(w, &cond);
    struct place go = place_of(w, &cond, &cond.plan->root[0]);
    address(&w->as, RAX, &go);
    x86_load_small(as, RAX, x86_at(RAX, 0), 1, false);
    x86_alu_imm(as, ALU_CMP, RAX, 0);
    x86_jump_if(as, CC_E, done);

    write_plan(w, &body);
    next_state(w, &body, state);
    x86_mov_imm(as, RCX, merge_turn_work(w->l, s));
    x86_load(as, RAX, below(AT_WORK));
    x86_alu(as, ALU_ADD, RAX, RCX);
    x86_store(as, below(AT_WORK), RAX, 8);
    x86_jump(as, head);
    x86_bind(as, done);
}
static void write_step(struct writer *w, const struct frame *f, const struct plan_step *s) {
    struct place io[MAX_LEAVES], *in = io, *out = io + s->n_in;
    bool loop = s->instr->op == HLO_WHILE;
    if (s->n_in + s->n_out > MAX_LEAVES) {
        w->why = "a large state";
        return;
    }
    for (int k = 0; k < s->n_in; k++)
        in[k] = place_of(w, f, &s->in[k]);
    for (int k = 0; k < s->n_out; k++)
        out[k] = loop && plan_unchanged(s->called[1], k) ? in[k] : place_of(w, f, &s->out[k]);

    int64_t memory = f->memory + s->scratch_offset;
    bool update = s->instr->op == HLO_DYNAMIC_UPDATE_SLICE || plan_updates_alone(s->instr);
    for (int k = 0; (update || loop) && k < s->n_out; k++)
        copy(w, &out[k], &in[k], s->out[k].size_bytes);
    if (!s->called)
        write_kernel(w, pmap_get_ptr(&w->l->kernels, s), io);
    else if (s->instr->op == HLO_CALL)
        write_called(w, s->called[0], memory, in, out);
    else if (s->instr->op == HLO_CONDITIONAL)
        write_conditional(w, s, memory, in, out);
    else
        write_while(w, s, memory, out);
}
static void write_plan(struct writer *w, const struct frame *f) {
    for (int k = 0; k < f->plan->n_steps && !w->why; k++)
        write_step(w, f, &f->plan->steps[k]);
    if (w->as.code.n > MAX_CODE) w->why = "too much code";
}

// ---- the function

static const int8_t kept_registers[] = {RBX, R12, R13, R14, R15};
enum { KEPT = 5, PARAMETERS = 6 };

static void finish(struct writer *w, bool cancelled) {
    struct x86 *as = &w->as;
    x86_load(as, RAX, below(AT_OUTCOME));
    x86_load(as, RCX, below(AT_WORK));
    x86_store(as, x86_at(RAX, 0), RCX, 8);
    x86_mov_imm(as, RCX, cancelled);
    x86_store(as, x86_at(RAX, 8), RCX, 8);
    for (int k = 0; k < KEPT; k++)
        x86_load(as, kept_registers[k], below(-8 * (PARAMETERS + 1 + k)));
    x86_mov(as, RSP, RBP);
    x86_pop(as, RBP);
    x86_ret(as);
}
static void write_function(struct writer *w, const struct plan_step *s) {
    static const int8_t regs[PARAMETERS] = {RDI, RSI, RDX, RCX, R8, R9};
    struct x86 *as = &w->as;
    struct place state[MAX_LEAVES];
    x86_push(as, RBP);
    x86_mov(as, RBP, RSP);
    for (int k = 0; k < PARAMETERS; k++)
        x86_push(as, regs[k]);
    for (int k = 0; k < KEPT; k++)
        x86_push(as, kept_registers[k]);
    x86_alu_imm(as, ALU_SUB, RSP, INT32_MAX); // set when its size is known
    size_t at = as->code.n - 4;
    x86_alu_imm(as, ALU_AND, RSP, -64);

    for (int k = 0; k < s->n_out + HLOD_LOOP_BUFFERS; k++) {
        static const int32_t behind[HLOD_LOOP_BUFFERS] = {AT_MEMORY, AT_CANCEL, AT_OUTCOME};
        int32_t to = k < s->n_out ? AT_LEAVES - 8 * k : behind[k - s->n_out];
        if (k < s->n_out) state[k] = (struct place){.base = to};
        x86_load(as, RAX, x86_at(RDI, 8 * k));
        x86_store(as, below(to), RAX, 8);
    }
    x86_mov_imm(as, RAX, 0);
    x86_store(as, below(AT_WORK), RAX, 8);

    w->cancelled = x86_label(as);
    write_while(w, s, 0, state);
    finish(w, false);
    x86_bind(as, w->cancelled);
    finish(w, true);
    int32_t bytes = -AT_LEAVES + 8 * s->n_out + (w->frame + 63) / 64 * 64;
    memcpy(as->code.p + at, &bytes, sizeof bytes);
    x86_finish(as);
    if (as->bad && !w->why) w->why = "an instruction that AVX2 has not";
}

struct span x86_direct_loop(struct arena *a, const struct merged_loop *l, int vector_bits,
                            bool has_bf16, const char **why) {
    struct span s = {NULL, 0};
    struct writer w = {.l = l, .as.vex = vector_bits < 512, .bf16 = has_bf16};
    if (l->loop->n_out > MAX_LEAVES)
        w.why = "a large state";
    else
        write_function(&w, l->loop);
    if (!w.why) s = (struct span){arena_dup(a, w.as.code.p, w.as.code.n), w.as.code.n};
    x86_done(&w.as);
    *why = w.why;
    return s;
}
