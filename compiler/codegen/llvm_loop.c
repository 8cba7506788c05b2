// SPDX-License-Identifier: Apache-2.0
// A loop of small kernels as one LLVM function: its plan walked once, each kernel written in place.
// Values of at most SMALL bytes get a variable each, which the optimiser turns into registers;
// larger ones lie where the plan puts them. What two accesses of large values cannot have in common
// is said by alias scopes, one a place, so that neither a value's old content (a state written in
// place) nor a place's next owner is ever mistaken for something else.
#include "compiler/codegen/llvm_emit.h"

#include <llvm-c/DebugInfo.h>

#include "compiler/kernel/merge.h"
#include "compiler/plan/in_place.h"

enum { SMALL = 64, MAX_BUFS = 128, MAX_PLACES = 64 };

// ---- loops of a kernel within the loop's function

// Does a place move by as much from turn to turn, or not at all?
static bool is_affine(const struct kir_val *at, const struct kir_loop *l, int depth) {
    if (at == l->var || at->level < l->var->level) return true;
    return depth > 0 && (at->op == K_ADD || at->op == K_MUL) &&
           is_affine(at->args[0], l, depth - 1) && is_affine(at->args[1], l, depth - 1);
}
static int operations(const struct kir_loop *l) {
    int n = 0;
    for (const struct kir_val *v = l->body.first; v; v = v->next)
        n += v->op != K_CONST && v->type != DT_S64;
    return n;
}
static int reads(const struct kir_loop *l) {
    int n = 0;
    for (const struct kir_val *v = l->body.first; v; v = v->next)
        n += v->op == K_LOAD && v->level == l->var->level;
    return n;
}
// Would vectors be worse? The last lanes of one that is not full are hidden by a mask, and what is
// stored so is not handed to the load of the next kernel, which waits for memory: of a few elements
// a turn each is faster, unless much is computed for each (an exponential).
bool llvm_loop_is_worse(const struct kir_loop *l) {
    enum { LEAST = 3, LANES = 4, MOST = 6, SHORT = 12 };
    bool scratch = false, few = l->trip < 8 && l->trip != 4;
    int stores = 0;
    for (const struct kir_val *v = l->body.first; v; v = v->next)
        stores += v->op == K_STORE;
    if (l->trip >= LEAST && l->trip <= MOST && l->trip != LANES &&
        operations(l) - reads(l) < SHORT * (stores > 1 ? stores : 1))
        return true;

    for (const struct kir_val *v = l->body.first; v; v = v->next) {
        if (v->op != K_LOAD && v->op != K_STORE) continue;
        scratch |= v->imm_i == KIR_SCRATCH;
        few |= !is_affine(v->args[0], l, 8);
    }
    return scratch && few;
}
// Lanes of a vector of 64 bytes of what the loop's body reads, computes and writes.
static int64_t lanes_of_body(const struct kir_loop *l) {
    int64_t widest = 1;
    for (const struct kir_val *v = l->body.first; v; v = v->next) {
        bool memory = v->op == K_LOAD || v->op == K_STORE, index = v->type == DT_S64;
        int64_t of_memory = memory ? dtype_size(v->elem) : 0,
                of_value = index || v->op == K_STORE ? 0 : dtype_size(v->type);
        if (of_memory > widest) widest = of_memory;
        if (of_value > widest) widest = of_value;
    }
    return 64 / widest;
}
// Measured with AVX-512. Of fewer turns than LLVM makes vectors of (a Viterbi decoder of 3 to 15
// states): 1.3 to 2 times as fast from 11 turns on, 0.5 to 0.97 times with fewer, but of 5 to 7
// long ones (a chain of hidden states, whose sums are of exponentials) 1.1 to 2.4 times. Of more
// (stencils of 17 to 256 columns, types of 1 to 8 bytes) up to nine times as fast where more than
// half a vector's turns are behind the last one, and a mask's cost in each vector is less than they
// are. Where a turn is several steps of a reduction (9 to 50 states; f64 alone from 16 on, of
// narrower types LLVM makes vectors of what is behind the last one) 1.1 to 2.7 times.
bool llvm_loop_ends_hidden(const struct llvm_inside *in, const struct kir_loop *l) {
    enum { WIDE = 512, LEAST = 11, LANES = 4, LLVMS = 16, MASK = 64, LONG = 20, LONGEST = 100 };
    if (in->vector_bits != WIDE || l->trip <= LANES) return false;
    int n = operations(l);
    bool passes = n >= LONGEST || reads(l) >= 2 * LANES;
    bool most = l->trip < 2 * LANES && n >= LONG; // of a vector, and of the work
    if (l->trip < LLVMS && l->trip > 2 * LANES && passes) return true;
    if (l->trip < LLVMS) return l->trip % LANES && (l->trip >= LEAST || most);
    int64_t lanes = lanes_of_body(l), few = lanes < LLVMS ? lanes : LLVMS;
    if (lanes < LLVMS && passes && l->trip % few) return true;
    return l->trip % few > few / 2 + (l->trip + lanes - 1) / MASK;
}

// The same of a reduction: LLVM takes 32 turns at a time, and what is behind the last of them one
// by one. With a mask it has one vector's sums side by side instead of four: worth it where what is
// behind is a twentieth of the turns, or where steps are long or of few lanes: sums of exponentials
// of 120 elements 1.4 times as fast, least squares of 60 columns 1.4 times, of f64 1.1 times.
bool llvm_sum_ends_hidden(const struct llvm_inside *in, const struct kir_loop *l) {
    enum { WIDE = 512, LEAST = 8, LLVMS = 32, LONG = 20, SHARE = 20, LONGS_SHARE = 100 };
    if (in->vector_bits != WIDE || l->trip <= LEAST) return false;
    bool is_long = operations(l) >= LONG || lanes_of_body(l) <= LEAST;
    return l->trip % LLVMS > l->trip / (is_long ? LONGS_SHARE : SHARE) + 1;
}

struct extent { // of large values: of the loop's memory, or a leaf of its state
    int64_t from, to;
    int leaf; // -1: memory
};
struct place {
    LLVMValueRef p;
    int range; // 1 + its number; 0: a variable, a constant, or none is known
};
struct named { // a small value of a computation, where the plan has it
    int64_t offset;
    struct place at;
};
struct frame {
    const struct plan *plan;
    const struct place *params;
    int64_t base; // of its memory in the loop's
    VEC(struct named) small;
};
struct emitter {
    LLVMContextRef c;
    LLVMModuleRef m;
    LLVMBuilderRef b, entry; // where variables are made
    LLVMValueRef fn, memory, scratch, cancel, work;
    LLVMBasicBlockRef cancelled;
    const struct merged_loop *l;
    int vector_bits;
    struct arena *a;
    VEC(struct extent) ranges;
    struct llvm_apart *apart; // [ranges], then of kernels' scratch; NULL: too many
    status_t st;
};

static LLVMTypeRef bytes_type(struct emitter *e, int64_t n) {
    return LLVMArrayType2(LLVMIntTypeInContext(e->c, 8), (uint64_t)n);
}
static LLVMTypeRef i64_type(struct emitter *e) {
    return LLVMIntTypeInContext(e->c, 64);
}
static LLVMValueRef offset(struct emitter *e, LLVMValueRef p, int64_t n) {
    LLVMValueRef at = LLVMConstInt(i64_type(e), (unsigned long long)n, 1);
    return LLVMBuildInBoundsGEP2(e->b, LLVMIntTypeInContext(e->c, 8), p, &at, 1, "");
}
static LLVMBasicBlockRef new_block(struct emitter *e) {
    return LLVMAppendBasicBlockInContext(e->c, e->fn, "");
}

// ---- ranges and their scopes

static bool is_small(const struct slice *s) {
    return s->size_bytes <= SMALL;
}
static int range_of(struct emitter *e, struct extent r) {
    for (size_t k = 0; k < e->ranges.n; k++) {
        const struct extent *x = &e->ranges.v[k];
        if (x->from == r.from && x->to == r.to && x->leaf == r.leaf) return (int)k + 1;
    }
    return 0;
}
static void add_range(struct emitter *e, struct extent r) {
    if (!range_of(e, r)) avec_push(e->a, &e->ranges, r);
}
static struct extent in_memory(const struct slice *s, int64_t base) {
    return (struct extent){base + s->offset, base + s->offset + s->size_bytes, -1};
}
static void find_ranges(struct emitter *e, const struct plan *p, int64_t base) {
    for (int k = 0; k < p->n_steps; k++) {
        const struct plan_step *s = &p->steps[k];
        for (int o = 0; o < s->n_out; o++)
            if (s->out[o].where == SLICE_ARENA && !is_small(&s->out[o]))
                add_range(e, in_memory(&s->out[o], base));
        for (int c = 0; s->called && c < s->instr->n_called; c++)
            find_ranges(e, s->called[c], base + s->scratch_offset);
    }
}
static bool overlap(const struct extent *x, const struct extent *y) {
    return x->leaf == y->leaf && x->from < y->to && y->from < x->to;
}
static LLVMMetadataRef own_node(struct emitter *e, LLVMMetadataRef domain) {
    LLVMMetadataRef self = LLVMTemporaryMDNode(e->c, NULL, 0), ops[2] = {self, domain};
    LLVMMetadataRef node = LLVMMDNodeInContext2(e->c, ops, domain ? 2 : 1);
    LLVMMetadataReplaceAllUsesWith(self, node);
    return node;
}
static LLVMValueRef list_of(struct emitter *e, LLVMMetadataRef *scopes, size_t n) {
    return n ? LLVMMetadataAsValue(e->c, LLVMMDNodeInContext2(e->c, scopes, n)) : NULL;
}
static void make_scopes(struct emitter *e) {
    size_t n = e->ranges.n;
    LLVMMetadataRef scope[MAX_PLACES + 1], others[MAX_PLACES + 1];
    if (n > MAX_PLACES) return;
    LLVMMetadataRef domain = own_node(e, NULL);
    for (size_t k = 0; k <= n; k++)
        scope[k] = own_node(e, domain);
    e->apart = arena_zarray(e->a, struct llvm_apart, n + 1);
    for (size_t k = 0; k < n; k++) {
        size_t n_others = 0;
        for (size_t j = 0; j < n; j++)
            if (!overlap(&e->ranges.v[k], &e->ranges.v[j])) others[n_others++] = scope[j];
        others[n_others++] = scope[n];
        e->apart[k] = (struct llvm_apart){list_of(e, &scope[k], 1), list_of(e, others, n_others)};
    }
    e->apart[n] = (struct llvm_apart){list_of(e, &scope[n], 1), list_of(e, scope, n)};
}

// ---- values

static struct place variable(struct emitter *e, int64_t size) {
    LLVMValueRef p = LLVMBuildAlloca(e->entry, bytes_type(e, size > 0 ? size : 1), "");
    LLVMSetAlignment(p, SMALL);
    return (struct place){p, 0};
}
static struct place constant(struct emitter *e, const struct literal *c) {
    LLVMValueRef init =
        LLVMConstStringInContext(e->c, c->size_bytes ? c->data : "", (unsigned)c->size_bytes, 1);
    LLVMValueRef g = LLVMAddGlobal(e->m, LLVMTypeOf(init), "constant");
    LLVMSetInitializer(g, init);
    LLVMSetLinkage(g, LLVMPrivateLinkage);
    LLVMSetGlobalConstant(g, 1);
    LLVMSetAlignment(g, 64);
    return (struct place){g, 0};
}
static struct place read_place(struct emitter *e, struct frame *f, const struct slice *s) {
    if (s->where == SLICE_PARAM) return f->params[s->index];
    if (s->where == SLICE_CONST) return constant(e, f->plan->consts[s->index]);
    for (size_t k = s->size_bytes && is_small(s) ? f->small.n : 0; k > 0; k--)
        if (f->small.v[k - 1].offset == s->offset) return f->small.v[k - 1].at;
    return (struct place){offset(e, e->memory, f->base + s->offset),
                          range_of(e, in_memory(s, f->base))};
}
static struct place write_place(struct emitter *e, const struct frame *f, const struct slice *s) {
    if (s->where == SLICE_PARAM) return f->params[s->index];
    if (is_small(s)) return variable(e, s->size_bytes);
    return (struct place){offset(e, e->memory, f->base + s->offset),
                          range_of(e, in_memory(s, f->base))};
}
// From now on s is at `at`. A value without elements may have another's offset.
static void name(struct emitter *e, struct frame *f, const struct slice *s, struct place at) {
    struct named n = {s->offset, at};
    if (s->where == SLICE_ARENA && s->size_bytes && is_small(s)) avec_push(e->a, &f->small, n);
}
static void copy(struct emitter *e, struct place to, struct place from, int64_t n) {
    if (to.p == from.p || (to.range && to.range == from.range) || !n) return;
    if (n == 1 || n == 2 || n == 4 || n == 8) {
        LLVMTypeRef t = LLVMIntTypeInContext(e->c, (unsigned)n * 8);
        LLVMBuildStore(e->b, LLVMBuildLoad2(e->b, t, from.p, ""), to.p);
        return;
    }
    // Equal places of two computations may have two names: memmove.
    LLVMBuildMemMove(e->b, to.p, 1, from.p, 1, LLVMConstInt(i64_type(e), (uint64_t)n, 0));
}

// ---- steps

static void emit_kernel(struct emitter *e, const struct plan_step *s, const struct place *in,
                        const struct place *out) {
    struct kir_fn *fn = pmap_get_ptr(&e->l->kernels, s);
    LLVMValueRef bufs[MAX_BUFS];
    struct llvm_apart apart[MAX_BUFS] = {0};
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        const struct place *p = k < s->n_in ? &in[k] : &out[k - s->n_in];
        bufs[k] = p->p;
        if (p->range && e->apart) apart[k] = e->apart[p->range - 1];
    }
    bool update = s->instr->op == HLO_DYNAMIC_UPDATE_SLICE || plan_updates_alone(s->instr);
    for (int k = 0; update && k < s->n_out; k++)
        copy(e, out[k], in[k], s->out[k].size_bytes);
    struct llvm_inside inside = {e->m, e->b, e->fn, e->scratch, bufs, apart, {0}, e->vector_bits};
    if (e->apart) inside.scratch_apart = e->apart[e->ranges.n];
    status_t st = llvm_emit_inside(&inside, fn);
    if (e->st)
        st_drop(st);
    else
        e->st = st;
}
static void emit_plan(struct emitter *e, struct frame *f);
// Runs `called` on in, results to out.
static void emit_called(struct emitter *e, const struct plan *called, int64_t base,
                        const struct place *in, const struct place *out) {
    struct frame f = {.plan = called, .params = in, .base = base};
    emit_plan(e, &f);
    for (int k = 0; k < called->n_root; k++)
        copy(e, out[k], read_place(e, &f, &called->root[k]), called->root[k].size_bytes);
}
static void emit_conditional(struct emitter *e, const struct plan_step *s, int64_t base,
                             const struct place *in, const struct place *out) {
    const struct hlo_instr *i = s->instr;
    bool pred = i->operands[0]->shape->dtype == DT_PRED;
    LLVMTypeRef t = LLVMIntTypeInContext(e->c, pred ? 8 : 32);
    LLVMValueRef which = LLVMBuildLoad2(e->b, t, in[0].p, "");
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b), done = new_block(e), at[MERGE_BRANCHES];
    int n = i->n_called;
    for (int k = 0; k < n; k++) {
        at[k] = new_block(e);
        LLVMPositionBuilderAtEnd(e->b, at[k]);
        emit_called(e, s->called[k], base, in + plan_branch_leaf(s, k), out);
        LLVMBuildBr(e->b, done);
    }

    LLVMPositionBuilderAtEnd(e->b, from);
    if (pred) {
        LLVMValueRef yes = LLVMBuildICmp(e->b, LLVMIntNE, which, LLVMConstNull(t), "");
        LLVMBuildCondBr(e->b, yes, at[0], at[1]);
    } else { // a number that no branch has: the last one
        LLVMValueRef jump = LLVMBuildSwitch(e->b, which, at[n - 1], (unsigned)n);
        for (int k = 0; k + 1 < n; k++)
            LLVMAddCase(jump, LLVMConstInt(t, (unsigned)k, 0), at[k]);
    }
    LLVMPositionBuilderAtEnd(e->b, done);
}
// The state of a loop's next turn to where the last one's was, as the device does (cpu_loop.c).
static void next_state(struct emitter *e, const struct plan_step *s, struct frame *body,
                       const struct place *state) {
    const struct plan *p = body->plan;
    struct place stage[MAX_BUFS];
    int64_t at = e->l->stage_at;
    for (int k = 0; k < p->n_root; k++) {
        int64_t n = p->root[k].size_bytes;
        if (!plan_moves(p, k)) continue;
        stage[k] =
            is_small(&p->root[k]) ? variable(e, n) : (struct place){offset(e, e->scratch, at), 0};
        at += (n + 63) / 64 * 64;
        copy(e, stage[k], read_place(e, body, &p->root[k]), n);
    }
    for (int k = 0; k < p->n_root; k++)
        if (!plan_moves(p, k))
            copy(e, state[k], read_place(e, body, &p->root[k]), p->root[k].size_bytes);
    for (int k = 0; k < s->n_out; k++)
        if (plan_moves(p, k)) copy(e, state[k], stage[k], p->root[k].size_bytes);
}
// state holds the first turn's.
static void emit_while(struct emitter *e, const struct plan_step *s, int64_t base,
                       const struct place *state) {
    LLVMTypeRef byte = LLVMIntTypeInContext(e->c, 8), i64 = i64_type(e);
    LLVMBasicBlockRef head = new_block(e), go_on = new_block(e), turn = new_block(e),
                      done = new_block(e);
    struct frame cond = {.plan = s->called[0], .params = state, .base = base},
                 body = {.plan = s->called[1], .params = state, .base = base};
    LLVMBuildBr(e->b, head);

    LLVMPositionBuilderAtEnd(e->b, head);
    LLVMValueRef stop = LLVMBuildLoad2(e->b, byte, e->cancel, "");
    LLVMSetVolatile(stop, 1);
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntNE, stop, LLVMConstNull(byte), ""),
                    e->cancelled, go_on);

    LLVMPositionBuilderAtEnd(e->b, go_on);
    emit_plan(e, &cond);
    LLVMValueRef go = LLVMBuildLoad2(e->b, byte, read_place(e, &cond, &cond.plan->root[0]).p, "");
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntNE, go, LLVMConstNull(byte), ""), turn, done);

    LLVMPositionBuilderAtEnd(e->b, turn);
    emit_plan(e, &body);
    next_state(e, s, &body, state);
    LLVMValueRef more = LLVMConstInt(i64, (uint64_t)merge_turn_work(e->l, s), 0);
    LLVMBuildStore(e->b, LLVMBuildAdd(e->b, LLVMBuildLoad2(e->b, i64, e->work, ""), more, ""),
                   e->work);
    LLVMBuildBr(e->b, head);
    LLVMPositionBuilderAtEnd(e->b, done);
}
static void emit_step(struct emitter *e, struct frame *f, const struct plan_step *s) {
    struct place in[MAX_BUFS], out[MAX_BUFS];
    bool loop = s->instr->op == HLO_WHILE;
    for (int k = 0; k < s->n_in; k++)
        in[k] = read_place(e, f, &s->in[k]);
    for (int k = 0; k < s->n_out; k++)
        out[k] = loop && plan_unchanged(s->called[1], k) ? in[k] : write_place(e, f, &s->out[k]);

    int64_t base = f->base + s->scratch_offset;
    if (!s->called) {
        emit_kernel(e, s, in, out);
    } else if (s->instr->op == HLO_CALL) {
        emit_called(e, s->called[0], base, in, out);
    } else if (s->instr->op == HLO_CONDITIONAL) {
        emit_conditional(e, s, base, in, out);
    } else {
        for (int k = 0; k < s->n_out; k++)
            copy(e, out[k], in[k], s->out[k].size_bytes);
        emit_while(e, s, base, out);
    }
    for (int k = 0; k < s->n_out; k++)
        name(e, f, &s->out[k], out[k]);
}
static void emit_plan(struct emitter *e, struct frame *f) {
    for (int k = 0; k < f->plan->n_steps; k++)
        emit_step(e, f, &f->plan->steps[k]);
}

// ---- the function

static LLVMValueRef buffer(struct emitter *e, int k) {
    LLVMTypeRef ptr = LLVMPointerTypeInContext(e->c, 0);
    LLVMValueRef at = LLVMConstInt(i64_type(e), (uint64_t)k, 0);
    at = LLVMBuildInBoundsGEP2(e->b, ptr, LLVMGetParam(e->fn, 0), &at, 1, "");
    return LLVMBuildLoad2(e->b, ptr, at, "");
}
// Small leaves of the state that change are variables.
static void take_state(struct emitter *e, struct place *own, struct place *state) {
    const struct plan_step *s = e->l->loop;
    for (int k = 0; k < s->n_out; k++) {
        struct extent r = {0, s->out[k].size_bytes, k};
        own[k] = state[k] = (struct place){buffer(e, k), range_of(e, r)};
        if (!is_small(&s->out[k])) continue;
        state[k] = variable(e, s->out[k].size_bytes);
        copy(e, state[k], own[k], s->out[k].size_bytes);
    }
}
static void give_state(struct emitter *e, const struct place *own, const struct place *state) {
    const struct plan_step *s = e->l->loop;
    for (int k = 0; k < s->n_out; k++)
        if (!plan_unchanged(s->called[1], k)) copy(e, own[k], state[k], s->out[k].size_bytes);
}
static void finish(struct emitter *e, LLVMValueRef outcome, bool cancelled) {
    LLVMTypeRef i64 = i64_type(e);
    LLVMBuildStore(e->b, LLVMBuildLoad2(e->b, i64, e->work, ""), outcome);
    LLVMBuildStore(e->b, LLVMConstInt(i64, cancelled, 0), offset(e, outcome, 8));
    LLVMBuildRetVoid(e->b);
}
static void emit_function(struct emitter *e, const struct plan_step *s) {
    struct place own[MAX_BUFS], state[MAX_BUFS];
    LLVMBasicBlockRef entry = new_block(e), start = new_block(e);
    LLVMPositionBuilderAtEnd(e->entry, entry);
    LLVMPositionBuilderAtEnd(e->b, start);
    e->cancelled = new_block(e);
    e->work = LLVMBuildAlloca(e->entry, i64_type(e), "");
    LLVMBuildStore(e->entry, LLVMConstNull(i64_type(e)), e->work);
    e->memory = buffer(e, s->n_out);
    e->cancel = buffer(e, s->n_out + 1);
    LLVMValueRef outcome = buffer(e, s->n_out + 2);

    for (int k = 0; k < s->n_out; k++)
        if (!is_small(&s->out[k])) add_range(e, (struct extent){0, s->out[k].size_bytes, k});
    for (int c = 0; c < 2; c++)
        find_ranges(e, s->called[c], 0);
    make_scopes(e);

    take_state(e, own, state);
    emit_while(e, s, 0, state);
    give_state(e, own, state);
    finish(e, outcome, false);
    LLVMPositionBuilderAtEnd(e->b, e->cancelled);
    finish(e, outcome, true);
    LLVMBuildBr(e->entry, start);
}

status_t llvm_emit_loop(LLVMModuleRef m, const struct merged_loop *l, const char *symbol,
                        const struct target *t) {
    struct emitter e = {
        .c = LLVMGetModuleContext(m), .m = m, .l = l, .vector_bits = t->vector_bits};
    struct arena a = {0};
    e.a = &a;
    e.b = LLVMCreateBuilderInContext(e.c);
    e.entry = LLVMCreateBuilderInContext(e.c);
    LLVMTypeRef ptr = LLVMPointerTypeInContext(e.c, 0), i64 = i64_type(&e),
                p[5] = {ptr, i64, i64, ptr, ptr};
    e.fn = LLVMAddFunction(m, symbol, LLVMFunctionType(LLVMVoidTypeInContext(e.c), p, 5, 0));
    llvm_function_attributes(m, e.fn, t);
    e.scratch = LLVMGetParam(e.fn, 3);
    emit_function(&e, l->loop);
    LLVMDisposeBuilder(e.b);
    LLVMDisposeBuilder(e.entry);
    arena_done(&a);
    return e.st;
}
