// SPDX-License-Identifier: Apache-2.0
// Looks at a loop's plan step by step; the first thing that does not fit says why.
#include "compiler/kernel/merge.h"

#include "base/str.h"
#include "compiler/ir/work.h"
#include "compiler/kernel/lower.h"

enum { // all of a loop together
    MAX_STEPS = 256,
    MAX_VALUES = 4000,
    MAX_CONSTS = 65536, // bytes
    MAX_LEAVES = 96,
    MAX_TABLES = 64, // of a kernel
    MAX_DEPTH = 8,
    STEP_NS = 60 // that a step of a turn costs more where it is called
};
// Of what the library would take: multiplications of a contraction, operations of another kernel.
// More of them are not looked at; whether fewer are better ours is `lost_ns`.
enum { MAX_PRODUCTS = 1 << 17, MAX_OTHER = 1 << 16 };

static bool no(struct merged_loop *l, const char *why) {
    if (!l->why) l->why = why;
    return false;
}
static bool slices_ok(struct merged_loop *l, const struct slice *s, int n) {
    for (int k = 0; k < n; k++)
        if (s[k].where != SLICE_PARAM && s[k].where != SLICE_CONST && s[k].where != SLICE_ARENA)
            return no(l, "a value without a place");
    return true;
}
static void count_values(void *n, struct kir_val *v) {
    (void)v;
    ++*(int64_t *)n;
}

// Multiplications of the contraction in i; 0: it has none.
static int64_t products(const struct hlo_instr *i) {
    if (i->op == HLO_DOT || i->op == HLO_CONVOLUTION) return hlo_flops(i) / 2;
    if (i->op != HLO_FUSION) return 0;
    int64_t n = 0;
    HLO_EACH_INSTR(x, i->called[0])
    sz_sum(&n, products(x));
    return n;
}
// By how many ns our kernels of the contractions in i are slower than the library's calls; below 0:
// quicker. Measured on Zen 3 with AVX2: products a ns of matrices that meet one row; of those that
// meet several, of our tiles, our loops, and these where the matrix, which they read once a row,
// leaves the nearest cache. Of bytes on Zen 4, whose library has VNNI.
static double lost_ns(const struct target *t, const struct hlo_instr *i) {
    enum { CALL_NS = 100, NEAR_BYTES = 24 << 10, TILE_ROWS = 16 };
    double n = (double)products(i), lost = 0;
    if (i->op == HLO_FUSION) {
        HLO_EACH_INSTR(x, i->called[0])
        if (x->op != HLO_FUSION) lost += lost_ns(t, x);
        return lost;
    }
    if (n <= 0) return 0;
    const struct shape *x = i->operands[0]->shape, *y = i->operands[1]->shape;
    bool bytes = dtype_size(x->dtype) == 1 && dtype_size(y->dtype) == 1;
    if (bytes && t->library_int8 && t->vector_bits == 512) return n / 20 - n / 130 - CALL_NS;
    if (shape_elements(y) > shape_elements(x)) x = y;
    double rows = n / (double)shape_elements(x), rate = shape_bytes(x) > NEAR_BYTES ? 24
                                                        : rows >= TILE_ROWS         ? 38
                                                                                    : 32;
    return rows < 2 ? n / 20 - n / 12 - CALL_NS : n / rate - n / 36 - CALL_NS;
}
bool merge_is_small(const struct hlo_instr *i) {
    int64_t n = products(i);
    return n > 0 && n <= MAX_PRODUCTS;
}
static bool is_narrow(enum dtype t) {
    return dtype_is_float(t) && dtype_size(t) <= 4;
}
// Sums along lines, whose lanes are summed at the end of each: LLVM's code is 1.25 to 1.7 times as
// fast (one vector and matrices of 100 to 256 lines, measured on Zen 5).
static void find_lines(void *found, struct kir_val *v) {
    if (v->op == K_FOR && v->loop->vectorize && v->loop->n_carry > 0) *(bool *)found = true;
}
// Lines of at least two vectors whose steps are long (an exponential, a division) or seek an
// extreme: the direct generator's code is 1.2 to 2.4 times as fast (logsumexp and softmax of rows
// and of columns, Zen 5), as it keeps whole vectors and hides the last one's end.
static void find_long(void *found, struct kir_val *v) {
    enum { LONG = 16, EXTREME = 8, TURNS = 32 };
    int floats = 0, all = 0;
    if (v->op != K_FOR || !v->loop->vectorize || v->loop->trip < TURNS) return;

    for (const struct kir_val *x = v->loop->body.first; x; x = x->next) {
        floats += x->op != K_CONST && is_narrow(x->type);
        all += x->op != K_CONST && x->type != DT_S64;
    }
    *(bool *)found |= floats >= LONG || (v->loop->n_carry && all >= EXTREME);
}
static bool kernel_ok(struct merged_loop *l, const struct plan_step *s) {
    const struct hlo_instr *i = s->instr;
    struct kir_fn *fn;
    const char *why;
    bool library = l->t->library_accepts && l->t->library_accepts(l->t, i);
    if (library && products(i) > MAX_PRODUCTS) return no(l, "a library's step");
    bool update = i->op == HLO_DYNAMIC_UPDATE_SLICE;
    status_t st = lower_in_loop(l->a, i, l->t, l->prec, update, &fn, &why);
    if (st) {
        st_drop(st);
        return no(l, why);
    }

    if (fn->n_bufs != s->n_in + s->n_out) return no(l, "operands that are tuples");
    if (fn->tables.n > MAX_TABLES) return no(l, "many tables");
    int64_t work = kir_work(fn);
    if (work > MERGE_WORK) return no(l, "a kernel that is not small");
    if (library && !products(i) && work > MAX_OTHER) return no(l, "a library's step");
    if (library) l->lost_ns += lost_ns(l->t, i);
    l->work += work;
    l->rare += kir_rare(fn);
    bool lines = false;
    kir_each(&fn->top, find_lines, &lines);
    if (!lines && products(i) && shape_leaves(i->shape) == 1 &&
        is_narrow(shape_leaf(i->shape, 0)->dtype))
        l->product_work += work;
    bool is_long = false;
    kir_each(&fn->top, find_long, &is_long);
    if (is_long && !products(i)) l->long_work += work;
    kir_each(&fn->top, count_values, &l->values);
    if (l->values > MAX_VALUES) return no(l, "too much code");
    if (fn->scratch_bytes > l->stage_at) l->stage_at = (fn->scratch_bytes + 63) / 64 * 64;
    kir_print(&l->text, fn);
    pmap_put_ptr(&l->kernels, s, fn);
    return true;
}
static bool plan_ok(struct merged_loop *l, const struct plan *p);
static bool called_ok(struct merged_loop *l, const struct plan_step *s) {
    const struct hlo_instr *i = s->instr;
    if (i->op == HLO_WHILE && (s->called[0]->n_root != 1 || s->called[1]->n_root != s->n_out))
        return no(l, "a state of another form");
    if (i->op == HLO_CONDITIONAL && i->operands[0]->shape->dtype != DT_PRED &&
        i->operands[0]->shape->dtype != DT_S32)
        return no(l, "a branch index of another type");
    if (i->op == HLO_CONDITIONAL && i->n_called > MERGE_BRANCHES) return no(l, "many branches");
    if (++l->depth > MAX_DEPTH) return no(l, "loops within loops");
    int64_t staged = 0;
    for (int k = 0; i->op == HLO_WHILE && k < s->n_out; k++)
        if (plan_moves(s->called[1], k)) staged += (s->out[k].size_bytes + 63) / 64 * 64;
    if (staged > l->scratch_bytes) l->scratch_bytes = staged;
    for (int k = 0; k < i->n_called; k++)
        if (!plan_ok(l, s->called[k])) return false;
    l->depth--;
    return true;
}
// What code for a call follows from beside the plans: which leaves a branch takes, also where it
// reads only some of them.
static void print_call(struct strbuf *b, const struct plan_step *s) {
    const struct hlo_instr *i = s->instr;
    strbuf_printf(b, "%d at %lld:", s->n_in ? (int)i->operands[0]->shape->dtype : 0,
                  (long long)s->scratch_offset);
    for (int k = 0; i->op == HLO_CONDITIONAL && k < i->n_called; k++)
        strbuf_printf(b, " %d", plan_branch_leaf(s, k));
    strbuf_putc(b, '\n');
}
static bool plan_ok(struct merged_loop *l, const struct plan *p) {
    if (l->steps + p->n_steps > MAX_STEPS) return no(l, "too many steps");
    plan_print_alone(&l->text, p);
    for (int k = 0; k < p->n_consts; k++) {
        const struct literal *c = p->consts[k];
        l->consts += c->size_bytes;
        if (l->consts > MAX_CONSTS) return no(l, "large constants");
        strbuf_add(&l->text, &c->size_bytes, sizeof c->size_bytes);
        strbuf_add(&l->text, c->data, (size_t)c->size_bytes);
    }
    for (int k = 0; k < p->n_steps; k++) {
        const struct plan_step *s = &p->steps[k];
        l->steps++;
        if (s->n_in + s->n_out > MAX_LEAVES) return no(l, "a large state");
        if (!slices_ok(l, s->in, s->n_in) || !slices_ok(l, s->out, s->n_out)) return false;
        strbuf_printf(&l->text, "%s\n", hlo_op_name(s->instr->op));
        if (s->called) print_call(&l->text, s);
        if (!(s->called ? called_ok : kernel_ok)(l, s)) return false;
    }
    return slices_ok(l, p->root, p->n_root);
}

bool merge_loop(struct arena *a, const struct plan_step *loop, const struct target *t,
                enum precision prec, struct merged_loop *out) {
    struct target *merged = arena_dup(a, t, sizeof *t);
    merged->merged = true;
    *out = (struct merged_loop){.loop = loop, .a = a, .t = merged, .prec = prec};
    if (loop->instr->op != HLO_WHILE) return no(out, "not a loop");
    if (t->min_kernel_elements > 1) return no(out, "kernels are not wanted here");
    if (loop->n_in + loop->n_out > MAX_LEAVES) return no(out, "a large state");
    for (int k = 0; k < loop->n_out; k++) // leaves are copied into registers and back by size
        strbuf_printf(&out->text, "%lld ", (long long)loop->out[k].size_bytes);
    if (!called_ok(out, loop)) return false;
    if (out->lost_ns > STEP_NS * out->steps)
        return no(out, "products that the library is quicker with");
    out->scratch_bytes += out->stage_at;
    return true;
}
bool merge_without_llvm(const struct merged_loop *l) {
    enum {
        STEP_WORK = 4000, // 25 ns, of which keeping values in memory is 2.5
        RARE_STEPS = 8    // what LLVM computes of what few elements want takes 10 to 40 ns
    };
    // Long elementwise steps are LLVM's by a sixth where there are 16 registers.
    bool wide = l->t->vector_bits == 512;
    if (l->rare * RARE_STEPS >= l->steps && l->rare) return true;
    int64_t share = wide ? 5 : 8, fit = l->product_work + (wide ? l->long_work : 0);
    return l->work - fit <= l->work / share && l->work >= STEP_WORK * (int64_t)l->steps;
}
void merge_done(struct merged_loop *l) {
    pmap_done(&l->kernels);
    strbuf_done(&l->text);
}

static int64_t plan_work(const struct merged_loop *l, const struct plan *p) {
    int64_t n = 1;
    for (int k = 0; k < p->n_steps; k++) {
        const struct plan_step *s = &p->steps[k];
        if (!s->called) n += kir_work(pmap_get_ptr(&l->kernels, s));
        int64_t most = 0;
        for (int c = 0; s->called && s->instr->op != HLO_WHILE && c < s->instr->n_called; c++) {
            int64_t own = plan_work(l, s->called[c]);
            if (own > most) most = own;
        }
        n += most;
    }
    return n;
}
int64_t merge_turn_work(const struct merged_loop *l, const struct plan_step *loop) {
    return plan_work(l, loop->called[0]) + plan_work(l, loop->called[1]);
}
