// SPDX-License-Identifier: Apache-2.0
// Rules of gather, scatter, sort and topk.
#include "compiler/gradient/tape.h"
#include "compiler/passes/control/graph.h"

// ---- gather and scatter

// Along `idx`, whose dimension `vector` holds coordinates (none: one coordinate): the last start at
// which a window of `sizes` fits, coordinate k being one of dimension to[k].
static hv last_start(struct tape *t, hv idx, int64_t vector, struct i64s to, const struct shape *s,
                     const int64_t *sizes) {
    int64_t n = to.n;
    struct literal *l = lit_new(t->a, shape_make(t->a, idx->shape->dtype, &n, 1));
    for (int k = 0; k < to.n; k++)
        lit_set_i64(l, k, s->dims[to.v[k]] - sizes[to.v[k]]);
    hv v = hb_constant(t->b, l);
    if (vector == idx->shape->rank) return tape_widen(t, hb_reshape(t->b, v, NULL, 0), idx->shape);
    return hb_broadcast(t->b, v, idx->shape->dims, idx->shape->rank, &vector);
}
// A gather moves windows that do not fit to where they do.
static hv fitting(struct tape *t, hv idx, hv last) {
    struct hb *b = t->b;
    hv zero = tape_splat(t, idx, 0);
    return hb_min(b, hb_max(b, idx, zero), last);
}
void grad_gather(struct tape *t, hv i, hv const *d) {
    const struct hlo_attr_gather *g = HLO_ATTR(i, gather);
    hv x = i->operands[0], idx = i->operands[1];
    if (!tape_wants(t, x) || !shape_elements(i->shape)) return;
    hv last =
        last_start(t, idx, g->index_vector_dim, g->start_index_map, x->shape, g->slice_sizes.v);
    hv in[3] = {tape_zeros(t, x->shape), fitting(t, idx, last), d[0]};
    struct hlo_attr_scatter s = {.update_window_dims = g->offset_dims,
                                 .inserted_window_dims = g->collapsed_slice_dims,
                                 .scatter_dims_to_operand_dims = g->start_index_map,
                                 .input_batching_dims = g->operand_batching_dims,
                                 .scatter_indices_batching_dims = g->start_indices_batching_dims,
                                 .index_vector_dim = g->index_vector_dim,
                                 .indices_are_sorted = g->indices_are_sorted};
    struct hlo_computation *add = hb_reducer_for(t->b, HLO_ADD, x->shape->dtype);
    tape_give(t, x, hb_call(t->b, HLO_SCATTER, NULL, in, 3, &s, &add, 1));
}

struct scattered { // a scatter of one operand
    hv i, x, idx, u;
    const struct hlo_attr_scatter *a;
    int64_t sizes[HLO_MAX_RANK]; // of its windows, by dimension of x
};
static void find_sizes(struct scattered *s) {
    int n = 0;
    for (int64_t k = 0; k < s->x->shape->rank; k++) {
        bool flat =
            i64s_has(s->a->inserted_window_dims, k) || i64s_has(s->a->input_batching_dims, k);
        s->sizes[k] = flat ? 1 : s->u->shape->dims[s->a->update_window_dims.v[n++]];
    }
}
// Where the updates go: those of v that they would find there.
static hv found(struct tape *t, const struct scattered *s, hv v) {
    const struct hlo_attr_scatter *a = s->a;
    struct hlo_attr_gather g = {.offset_dims = a->update_window_dims,
                                .collapsed_slice_dims = a->inserted_window_dims,
                                .start_index_map = a->scatter_dims_to_operand_dims,
                                .operand_batching_dims = a->input_batching_dims,
                                .start_indices_batching_dims = a->scatter_indices_batching_dims,
                                .index_vector_dim = a->index_vector_dim,
                                .slice_sizes = {(int64_t *)(uintptr_t)s->sizes, s->x->shape->rank},
                                .indices_are_sorted = a->indices_are_sorted};
    return hb_gather(t->b, v, s->idx, &g);
}
// Which updates are made at all: a scatter leaves out windows that do not fit.
static hv made(struct tape *t, const struct scattered *s) {
    struct hb *b = t->b;
    int64_t dim = s->a->index_vector_dim, map[HLO_MAX_RANK];
    int n = 0;
    hv last = last_start(t, s->idx, dim, s->a->scatter_dims_to_operand_dims, s->x->shape, s->sizes);
    hv ok = hb_binary(b, HLO_AND, hb_compare(b, s->idx, tape_splat(t, s->idx, 0), CMP_GE),
                      hb_compare(b, s->idx, last, CMP_LE));
    if (dim < s->idx->shape->rank) {
        struct literal *one = lit_new(t->a, shape_scalar(t->a, DT_PRED));
        lit_set_i64(one, 0, 1);
        ok = hb_reduce(b, ok, hb_constant(b, one), &dim, 1, HLO_AND);
    }
    for (int64_t k = 0; k < s->u->shape->rank; k++)
        if (!i64s_has(s->a->update_window_dims, k)) map[n++] = k;
    return hb_broadcast(b, ok, s->u->shape->dims, s->u->shape->rank, map);
}
// The scatter of values over `into`, made with i's own places.
static hv scatter_again(struct tape *t, const struct scattered *s, hv into, hv values,
                        struct hlo_computation *f) {
    hv in[3] = {into, s->idx, values};
    return hb_call(t->b, HLO_SCATTER, NULL, in, 3, s->a, &f, 1);
}
static struct hlo_computation *assigner(struct tape *t, enum dtype dt) {
    struct hlo_computation *c =
        hb_callee(t->b->c->module, arena_printf(t->a, "assign_%s", dtype_name(dt)));
    const struct shape *s = shape_scalar(t->a, dt);
    hlo_add_param(c, 0, s, "old");
    hlo_set_root(c, hlo_add_param(c, 1, s, "new"));
    return c;
}
// Of updates that overwrite: nothing goes to what was there; of several at one place the last
// counts, which the numbers of the updates, scattered as they are, tell.
static void by_assignment(struct tape *t, const struct scattered *s, hv d) {
    struct hb *b = t->b;
    hv zeros = tape_zeros(t, s->u->shape), stays = made(t, s);
    struct hlo_computation *f = assigner(t, d->shape->dtype);
    tape_give(t, s->x, scatter_again(t, s, d, zeros, f));
    if (!tape_wants(t, s->u)) return;
    if (!s->a->unique_indices) {
        int64_t n = shape_elements(s->u->shape);
        hv flat = hb_iota(b, shape_make(t->a, DT_S32, &n, 1), 0);
        hv ids = hb_reshape(b, flat, s->u->shape->dims, s->u->shape->rank);
        hv places = hb_splat(b, shape_make(t->a, DT_S32, s->x->shape->dims, s->x->shape->rank), -1);
        hv last = found(t, s, scatter_again(t, s, places, ids, assigner(t, DT_S32)));
        stays = hb_binary(b, HLO_AND, stays, hb_compare(b, ids, last, CMP_EQ));
    }
    tape_give(t, s->u, tape_where(t, stays, found(t, s, d)));
}
// Those that are the result, what was there too, share the derivative.
static void by_scattered_extreme(struct tape *t, const struct scattered *s, hv d) {
    struct hb *b = t->b;
    hv is_x = hb_compare(b, s->x, s->i, CMP_EQ);
    hv is_u = hb_binary(b, HLO_AND, made(t, s), hb_compare(b, s->u, found(t, s, s->i), CMP_EQ));
    struct hlo_computation *add = hb_reducer_for(b, HLO_ADD, d->shape->dtype);
    enum dtype dt = d->shape->dtype;
    hv n = scatter_again(t, s, hb_convert(b, is_x, dt), hb_convert(b, is_u, dt), add);
    hv part = hb_div(b, d, n);
    tape_give(t, s->x, tape_where(t, is_x, part));
    if (tape_wants(t, s->u)) tape_give(t, s->u, tape_where(t, is_u, found(t, s, part)));
}
// To each the product of the others: as by_product of a reduction has it, of what was there and the
// updates that are made.
static void by_scattered_product(struct tape *t, const struct scattered *s, hv d) {
    struct hb *b = t->b;
    struct hlo_computation *mul = hb_reducer_for(b, HLO_MULTIPLY, d->shape->dtype),
                           *add = hb_reducer_for(b, HLO_ADD, DT_S32);
    hv v[2] = {s->x, s->u}, zero[2], rest[2];
    for (int k = 0; k < 2; k++) {
        hv is_0 = hb_compare(b, v[k], tape_splat(t, v[k], 0), CMP_EQ);
        rest[k] = hb_select(b, is_0, tape_splat(t, v[k], 1), v[k]);
        zero[k] = hb_convert(b, is_0, DT_S32); // an element counts where all zeros are it
    }
    hv product = scatter_again(t, s, rest[0], rest[1], mul),
       zeros = scatter_again(t, s, zero[0], zero[1], add);
    hv all = hb_mul(b, d, product);
    tape_give(t, s->x,
              tape_where(t, hb_compare(b, zeros, zero[0], CMP_EQ), hb_div(b, all, rest[0])));
    if (!tape_wants(t, s->u)) return;
    hv counts = hb_compare(b, found(t, s, zeros), zero[1], CMP_EQ);
    counts = hb_binary(b, HLO_AND, counts, made(t, s));
    tape_give(t, s->u, tape_where(t, counts, hb_div(b, found(t, s, all), rest[1])));
}
// What is done with update k of n: COPY = it stays, PARAMETER = what was there stays.
static enum hlo_op scattered_by(const struct hlo_computation *f, int k, int n) {
    const struct hlo_instr *r = f->root;
    if (n > 1 && r->op != HLO_TUPLE) return HLO_OP_COUNT;
    if (n > 1) r = r->operands[k];
    if (r->op == HLO_PARAMETER && r->param_number == k) return HLO_PARAMETER;
    if (r->op == HLO_PARAMETER && r->param_number == n + k) return HLO_COPY;
    enum hlo_op op = tape_joined_by(f, k, n);
    bool turned = op == HLO_SUBTRACT && r->operands[0]->param_number != k;
    return turned ? HLO_OP_COUNT : op; // then the order of updates counts
}
static void by_scattered(struct tape *t, const struct scattered *s, enum hlo_op op, hv d) {
    bool real = !dtype_is_complex(s->x->shape->dtype);

    if (!shape_elements(s->u->shape) || op == HLO_PARAMETER) {
        tape_give(t, s->x, d);
    } else if (op == HLO_COPY) {
        by_assignment(t, s, d);
    } else if ((op == HLO_MAXIMUM || op == HLO_MINIMUM) && real) {
        by_scattered_extreme(t, s, d);
    } else if (op == HLO_MULTIPLY) {
        by_scattered_product(t, s, d);
    } else if (op == HLO_ADD || op == HLO_SUBTRACT) {
        hv by = op == HLO_ADD ? d : tape_neg(t, d);
        tape_give(t, s->x, d);
        if (tape_wants(t, s->u)) tape_give(t, s->u, tape_where(t, made(t, s), found(t, s, by)));
    } else {
        tape_refuse(t, s->i, "is supported for sums, products, maxima, minima and assignments");
    }
}
void grad_scatter(struct tape *t, hv i, hv const *d) {
    int n = i->n_operands / 2;
    for (int k = 0; k < n && hb_ok(t->b); k++) {
        hv x = i->operands[k], u = i->operands[n + 1 + k];
        if (!d[k] || (!tape_wants(t, x) && !tape_wants(t, u))) continue;
        struct scattered s = {n > 1 ? hb_gte(t->b, i, k) : i, x,  i->operands[n], u,
                              HLO_ATTR(i, scatter),           {0}};
        find_sizes(&s);
        by_scattered(t, &s, scattered_by(i->called[0], k, n), d[k]);
    }
}

// ---- sort and topk

// A comparator of n operands that compares those that f does: f with more parameters.
static struct hlo_computation *one_more(struct tape *t, const struct hlo_computation *f,
                                        const struct shape *s) {
    struct hlo_module *m = t->b->c->module;
    struct hlo_computation *c = hb_callee(m, "compare_places");
    hlo_computation_move_before(c, t->b->c);
    hv args[2 * HLO_MAX_RANK * 8];
    size_t n = f->params.n;
    for (size_t k = 0; k < n + 2; k++) {
        const struct shape *p = k < n ? f->params.v[k]->shape : shape_scalar(m->arena, s->dtype);
        hv v = hlo_add_param(c, (int64_t)k, p, "p");
        if (k < n) args[k] = v;
    }
    hv end = hlo_add_constant(c, lit_scalar_i64(t->a, DT_S32, 0));
    hv root = graph_inline(end, f, args);
    hlo_set_root(c, root);
    hlo_remove_dead(c);
    return c;
}
static struct hlo_computation *ascending(struct tape *t, int n, hv const *in) {
    struct hlo_module *m = t->b->c->module;
    struct hlo_computation *c = hb_callee(m, "ascending_places");
    hv first[2] = {NULL, NULL};
    for (int k = 0; k < 2 * n; k++) {
        hv p = hlo_add_param(c, k, shape_scalar(m->arena, in[k / 2]->shape->dtype), "p");
        if (k < 2) first[k] = p;
    }
    struct hb b = hb_begin(c);
    hlo_set_root(c, hb_compare(&b, first[0], first[1], CMP_LT));
    status_t st = hb_end(&b);
    if (st) hb_fail(t->b, st);
    return c;
}
// The places of the operands' elements, sorted along; then the derivatives sorted by these.
void grad_sort(struct tape *t, hv i, hv const *d) {
    struct hb *b = t->b;
    enum { MOST = 2 * HLO_MAX_RANK };
    hv in[MOST + 1];
    int n = i->n_operands, m = 1, back[MOST + 1];
    if (n > MOST) return tape_refuse(t, i, "of so many operands is not supported");
    const struct hlo_attr_sort *a = HLO_ATTR(i, sort);
    const struct shape *s = i->operands[0]->shape;
    for (int k = 0; k < n; k++)
        in[k] = i->operands[k];
    in[n] = hb_iota(b, shape_make(t->a, DT_S32, s->dims, s->rank), a->dimensions.v[0]);
    struct hlo_computation *f = one_more(t, i->called[0], in[n]->shape);
    hv sorted = hb_call(b, HLO_SORT, NULL, in, n + 1, a, &f, 1);
    if (!hb_ok(b)) return;
    in[0] = hb_gte(b, sorted, n);
    for (int k = 0; k < n; k++)
        if (d[k] && tape_wants(t, i->operands[k])) in[m] = d[k], back[m++] = k;
    if (m == 1) return;
    f = ascending(t, m, in);
    hv r = hb_call(b, HLO_SORT, NULL, in, m, a, &f, 1);
    for (int k = 1; k < m && hb_ok(b); k++)
        tape_give(t, i->operands[back[k]], hb_gte(b, r, k));
}
// The values go back to the places that topk says.
void grad_topk(struct tape *t, hv i, hv const *d) {
    hv x = i->operands[0];
    int64_t dims[HLO_MAX_RANK], last = x->shape->rank - 1;
    for (int64_t k = 0; k <= last; k++)
        dims[k] = k;
    if (!d[0]) return;
    hv in[3] = {tape_zeros(t, x->shape), hb_gte(t->b, i, 1), d[0]};
    struct hlo_attr_scatter s = {.inserted_window_dims = {&last, 1},
                                 .scatter_dims_to_operand_dims = {&last, 1},
                                 .input_batching_dims = {dims, (int32_t)last},
                                 .scatter_indices_batching_dims = {dims, (int32_t)last},
                                 .index_vector_dim = last + 1,
                                 .unique_indices = true};
    struct hlo_computation *add = hb_reducer_for(t->b, HLO_ADD, x->shape->dtype);
    tape_give(t, x, hb_call(t->b, HLO_SCATTER, NULL, in, 3, &s, &add, 1));
}
