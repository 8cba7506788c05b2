// SPDX-License-Identifier: Apache-2.0
// The walk: instructions that lie between xs and y are visited from the last to the first; each
// hands the derivatives by its result on to its operands, and sums meet there.
#include "compiler/gradient/tape.h"
#include "compiler/passes/control/graph.h"

static const gradient_fn rules[HLO_OP_COUNT] = {
#define OP(e, text, arity, traits, attrs, infer, eval, lower, batch, grad) [HLO_##e] = grad_##grad,
#include "compiler/ir/ops.def"
#undef OP
};

// ---- tape.h

bool tape_differentiable(const struct shape *s) {
    return dtype_is_float(s->dtype) || dtype_is_complex(s->dtype);
}
bool tape_wants(const struct tape *t, hv x) {
    return pmap_has_ptr(&t->active, x);
}
hv tape_sum(const struct tape *t, hv x, int leaf) {
    hv *all = pmap_get_ptr(&t->sums, x);
    return all ? all[leaf] : NULL;
}
void tape_set_sum(struct tape *t, hv x, int leaf, hv d) {
    hv *all = pmap_get_ptr(&t->sums, x);
    if (!all) {
        all = arena_zarray(t->a, hv, shape_leaves(x->shape) + 1);
        pmap_put_ptr(&t->sums, x, all);
    }
    all[leaf] = d;
}
void tape_give_leaf(struct tape *t, hv x, int leaf, hv d) {
    if (!d || !tape_wants(t, x) || !hb_ok(t->b)) return;
    const struct shape *s = shape_leaf(x->shape, leaf);
    if (!tape_differentiable(s)) return;
    d = hb_convert(t->b, d, s->dtype);
    hv sum = tape_sum(t, x, leaf);
    tape_set_sum(t, x, leaf, sum ? hb_add(t->b, sum, d) : d);
}
void tape_give(struct tape *t, hv x, hv d) {
    tape_give_leaf(t, x, 0, d);
}
void tape_refuse(struct tape *t, const struct hlo_instr *i, const char *why) {
    bool known = i->op_name || i->op_type;
    hb_fail(t->b, st_new(ST_UNIMPLEMENTED, "the derivative of %s %s%s%s%s %s", hlo_op_name(i->op),
                         i->name, known ? ", part of " : "", i->op_type ? i->op_type : "",
                         i->op_name ? arena_printf(t->a, " '%s'", i->op_name) : "", why));
}
hv tape_zeros(struct tape *t, const struct shape *s) {
    return hb_splat(t->b, s, 0);
}
hv tape_splat(struct tape *t, hv like, double k) {
    return hb_splat(t->b, like->shape, k);
}
hv tape_add_k(struct tape *t, hv x, double k) {
    return hb_add(t->b, x, tape_splat(t, x, k));
}
hv tape_mul_k(struct tape *t, hv x, double k) {
    return hb_mul(t->b, x, tape_splat(t, x, k));
}
hv tape_neg(struct tape *t, hv x) {
    return hb_unary(t->b, HLO_NEGATE, x);
}
hv tape_widen(struct tape *t, hv x, const struct shape *like) {
    if (x->shape->rank || !like->rank) return x;
    return hb_broadcast(t->b, x, like->dims, like->rank, NULL);
}
hv tape_where(struct tape *t, hv pred, hv d) {
    return hb_select(t->b, tape_widen(t, pred, d->shape), d, tape_splat(t, d, 0));
}
hv tape_where_not(struct tape *t, hv pred, hv d) {
    return hb_select(t->b, tape_widen(t, pred, d->shape), tape_splat(t, d, 0), d);
}
hv tape_sum_over(struct tape *t, hv x, const int64_t *dims, int n) {
    if (!n) return x;
    return hb_reduce(t->b, x, hb_const_f64(t->b, x->shape->dtype, 0), dims, n, HLO_ADD);
}
hv tape_sum_all(struct tape *t, hv x) {
    int64_t dims[HLO_MAX_RANK];
    for (int k = 0; k < x->shape->rank; k++)
        dims[k] = k;
    return tape_sum_over(t, x, dims, x->shape->rank);
}
hv tape_back_to(struct tape *t, hv x, const struct shape *like, const int64_t *dims, int n) {
    int64_t map[HLO_MAX_RANK];
    int m = 0;
    for (int64_t k = 0; k < like->rank; k++)
        if (!i64s_has((struct i64s){(int64_t *)(uintptr_t)dims, n}, k)) map[m++] = k;
    return like->rank ? hb_broadcast(t->b, x, like->dims, like->rank, map) : x;
}

// ---- rules of no kind

void grad_NONE(struct tape *t, hv i, UNUSED hv const *d) {
    tape_refuse(t, i, "is not supported");
}
void grad_zero(UNUSED struct tape *t, UNUSED hv i, UNUSED hv const *d) {}

// ---- the walk

static bool can_be_derived(const struct shape *s) {
    for (int k = 0; k < shape_leaves(s); k++)
        if (tape_differentiable(shape_leaf(s, k))) return true;
    return false;
}
static bool depends(const struct tape *t, const struct hlo_instr *i) {
    for (int k = 0; k < i->n_operands; k++)
        if (tape_wants(t, i->operands[k])) return true;
    return false;
}
static void mark_active(struct tape *t, hv y) {
    for (hv i = y->parent->first; i; i = i->next) {
        if (depends(t, i) && can_be_derived(i->shape)) pmap_put_ptr(&t->active, i, NULL);
        if (i == y) return;
    }
}
enum { MAX_INSTRS = 1 << 20 };
// Calls between are replaced by what they call; loops, branches and reducers stay. Gives what y is
// then.
static hv inline_calls(struct tape *t, hv y) {
    for (hv i = y->parent->first; i; i = i->next) {
        if (y->parent->n_instrs > MAX_INSTRS) {
            hb_fail(t->b, st_exhausted("the derivative inlines calls to more than %d instructions",
                                       MAX_INSTRS));
            break;
        }
        if (i->op == HLO_CALL && tape_wants(t, i)) {
            hv r = graph_inline(i, i->called[0], i->operands);
            hlo_replace_uses(i, r);
            if (i == y) y = r;
            hlo_remove_instr(i);
            mark_active(t, y);
            i = y->parent->first;
        }
        if (i == y) break;
    }
    return y;
}
static void walk(struct tape *t, hv y) {
    for (hv i = y; i && hb_ok(t->b); i = i->prev) {
        hv *d = tape_wants(t, i) ? pmap_get_ptr(&t->sums, i) : NULL;
        if (d && depends(t, i)) rules[i->op](t, i, d);
    }
}

void gradient_of(struct hb *b, hv y, hv const *seeds, hv const *xs, int n, hv **grads) {
    struct tape t = {.b = b, .a = b->c->module->arena};
    for (int k = 0; k < n; k++)
        if (can_be_derived(xs[k]->shape)) pmap_put_ptr(&t.active, xs[k], NULL);
    mark_active(&t, y);
    y = inline_calls(&t, y);
    for (int k = 0; k < shape_leaves(y->shape) && tape_wants(&t, y); k++)
        tape_give_leaf(&t, y, k, seeds[k]);
    walk(&t, y);
    for (int k = 0; k < n; k++) {
        hv *all = pmap_get_ptr(&t.sums, xs[k]);
        grads[k] = all ? all : arena_zarray(t.a, hv, shape_leaves(xs[k]->shape) + 1);
    }
    pmap_done(&t.active);
    pmap_done(&t.sums);
}

// ---- a module's

// Each real or complex leaf of shape `of`: the derivative, or zeros. Returns how many.
static int add_results(struct hb *b, const struct shape *of, hv const *grads, hv *out) {
    int n = 0;
    for (int k = 0; k < shape_leaves(of); k++) {
        const struct shape *s = shape_leaf(of, k);
        if (tape_differentiable(s)) out[n++] = grads[k] ? grads[k] : hb_splat(b, s, 0);
    }
    return n;
}
// Behind the parameters of e one for each real or complex leaf of `of`; out[leaf], NULL for others.
static void add_params(struct hlo_computation *e, const struct shape *of, const char *name,
                       hv *out) {
    for (int k = 0; k < shape_leaves(of); k++) {
        const struct shape *s = shape_leaf(of, k);
        if (tape_differentiable(s)) out[k] = hlo_add_param(e, (int64_t)e->params.n, s, name);
    }
}
static status_t end_module(struct hlo_module *m, struct hb *b, hv const *out, int n) {
    hv root = hb_tuple(b, out, n);
    RETURN_IF_ERR(hb_end(b));
    hlo_set_root(m->entry, root);
    m->entry_layout = NULL;
    hlo_drop_donors(m);
    hlo_remove_dead(m->entry);
    return ST_OK;
}
// The entry, its parameters before others are added, and the leaves that these and the result have.
struct entry {
    struct hb b;
    hv y, *params, **grads;
    int n, leaves, results;
};
static struct entry entry_of(struct hlo_module *m) {
    struct hlo_computation *e = m->entry;
    struct entry f = {.b = hb_begin(e), .y = e->root, .n = (int)e->params.n};
    f.params = arena_zarray(m->arena, hv, f.n + 1);
    f.grads = arena_zarray(m->arena, hv *, f.n + 1);
    f.results = shape_leaves(f.y->shape);
    for (int k = 0; k < f.n; k++) {
        f.params[k] = e->params.v[k];
        f.leaves += shape_leaves(f.params[k]->shape);
    }
    return f;
}
status_t gradient_module(struct hlo_module *m) {
    struct entry f = entry_of(m);
    hv *seeds = arena_zarray(m->arena, hv, f.results + 1),
       *out = arena_zarray(m->arena, hv, f.leaves + 1);
    int n = 0;
    add_params(m->entry, f.y->shape, "seed", seeds);
    gradient_of(&f.b, f.y, seeds, f.params, f.n, f.grads);
    for (int k = 0; k < f.n && hb_ok(&f.b); k++)
        n += add_results(&f.b, f.params[k]->shape, f.grads[k], out + n);
    return end_module(m, &f.b, out, n);
}
// The derivatives are linear in their seeds, by the Jacobian's transpose; derived by the seeds they
// give the Jacobian. The seeds' own values, zeros here, are then of no use.
status_t gradient_forward(struct hlo_module *m) {
    struct entry f = entry_of(m);
    int most = f.leaves + f.results + 1, n = 0, n_seeds = 0;
    hv *seeds = arena_zarray(m->arena, hv, 6 * most), *of = seeds + most, *back = of + most,
       *along = back + most, *out = along + most, *dirs = out + most;
    hv **by = arena_zarray(m->arena, hv *, most);

    for (int k = 0; k < f.results; k++) {
        const struct shape *s = shape_leaf(f.y->shape, k);
        if (tape_differentiable(s)) of[n_seeds++] = seeds[k] = hb_splat(&f.b, s, 0);
    }
    gradient_of(&f.b, f.y, seeds, f.params, f.n, f.grads);
    for (int k = 0; k < f.n && hb_ok(&f.b); k++) {
        hv *x = dirs;
        for (int j = 0; j < shape_leaves(f.params[k]->shape); j++)
            x[j] = NULL;
        add_params(m->entry, f.params[k]->shape, "direction", x);
        for (int j = 0; j < shape_leaves(f.params[k]->shape); j++)
            if (f.grads[k][j]) back[n] = f.grads[k][j], along[n++] = x[j];
    }
    hv g = hb_tuple(&f.b, back, n);
    if (hb_ok(&f.b)) gradient_of(&f.b, g, along, of, n_seeds, by);
    for (int k = 0; k < n_seeds && hb_ok(&f.b); k++)
        out[k] = by[k][0] ? by[k][0] : of[k];
    return end_module(m, &f.b, out, n_seeds);
}
