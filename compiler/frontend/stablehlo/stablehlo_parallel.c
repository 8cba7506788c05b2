// SPDX-License-Identifier: Apache-2.0
// interpreter.run_parallel: the programs of a grid of processes as one program. Each process is
// lowered up to its next operation between processes, which is computed from the values of all in
// its group once they have come to it. The StableHLO specification, "Collective ops".
#include "compiler/frontend/stablehlo/stablehlo_lower.h"

struct process {
    struct shl_process id;
    struct shl_frame frame;
    size_t at; // place of its next operation
};
struct grid {
    int replicas, partitions;
    struct process *v; // [replicas * partitions], by replica, then partition
    int *members;      // of the group that is looked at
    int n_members;
};
enum { MAX_PROCESSES = 1024 };

static const struct mlir_op *next_op(const struct process *p) {
    return p->frame.f->body.ops.v[p->at];
}
static bool finished(const struct process *p) {
    return p->at + 1 == p->frame.f->body.ops.n;
}
static enum hlo_op collective_of(const struct mlir_op *op) {
    const struct shl_row *row = shl_row_of(op->name);
    return row && row->lower == shl_collective ? row->hlo : HLO_PARAMETER; // a parameter is none
}

// ---- groups

static void add_member(struct grid *g, int64_t replica, int64_t partition) {
    if (replica < 0 || replica >= g->replicas || partition < 0 || partition >= g->partitions ||
        g->n_members >= MAX_PROCESSES)
        return;
    g->members[g->n_members++] = (int)(replica * g->partitions + partition);
}
// What the numbers of groups count.
enum numbering { REPLICAS, PARTITIONS, REPLICAS_OF_ALL_PARTITIONS, PROCESSES };
static enum numbering numbering_of(const struct mlir_op *op) {
    enum hlo_op hlo = collective_of(op);
    bool channel = shl_int(op, "channel_id", 0) > 0;
    bool sums = hlo == HLO_ALL_GATHER || hlo == HLO_ALL_REDUCE || hlo == HLO_REDUCE_SCATTER;
    if (!channel) return REPLICAS;
    if (!sums) return PARTITIONS;
    return shl_flag(op, "use_global_device_ids") ? PROCESSES : REPLICAS_OF_ALL_PARTITIONS;
}
static void add_row(struct grid *g, const struct process *p, enum numbering by, const int64_t *row,
                    int64_t n) {
    int times = by == REPLICAS_OF_ALL_PARTITIONS ? g->partitions : 1;
    for (int t = 0; t < times; t++)
        for (int64_t k = 0; k < n; k++) {
            if (row[k] < 0) continue; // a group that is shorter than the others
            if (by == REPLICAS) add_member(g, row[k], p->id.partition);
            if (by == PARTITIONS) add_member(g, p->id.replica, row[k]);
            if (by == REPLICAS_OF_ALL_PARTITIONS) add_member(g, row[k], t);
            if (by == PROCESSES) add_member(g, row[k] / g->partitions, row[k] % g->partitions);
        }
}
// The group of p at its next operation, in the order that the operation says; none: it has none.
static status_t group_of(struct shl *l, struct grid *g, const struct process *p) {
    const struct mlir_op *op = next_op(p);
    enum numbering by = numbering_of(op);
    const struct mlir_attr *t = mlir_op_attr(op, "replica_groups");
    int64_t self = by == PARTITIONS  ? p->id.partition
                   : by == PROCESSES ? p->id.replica * g->partitions + p->id.partition
                                     : p->id.replica;
    g->n_members = 0;
    if (collective_of(op) == HLO_COLLECTIVE_PERMUTE) { // all that may be named by pairs
        for (int k = 0; k < (by == REPLICAS ? g->replicas : g->partitions); k++)
            add_member(g, by == REPLICAS ? k : p->id.replica, by == REPLICAS ? p->id.partition : k);
        return ST_OK;
    }
    struct i64s all;
    RETURN_IF_ERR(shl_matrix(l, t, "replica_groups", &all));
    int64_t columns = t->type->dims[1];
    for (int64_t r = 0; columns && r < all.n / columns; r++)
        for (int64_t k = 0; k < columns; k++)
            if (all.v[r * columns + k] == self) {
                add_row(g, p, by, all.v + r * columns, columns);
                return ST_OK;
            }
    return ST_OK;
}

// ---- what they compute

static hv value_of(const struct process *p, int k) {
    return p->frame.values[next_op(p)->operands[k]];
}
static hv part_of(struct shl *l, hv x, int64_t dim, int64_t k, int64_t n) {
    struct range r[HLO_MAX_RANK];
    for (int d = 0; d < x->shape->rank; d++)
        r[d] = (struct range){0, x->shape->dims[d], 1};
    int64_t size = x->shape->dims[dim] / n;
    r[dim] = (struct range){k * size, (k + 1) * size, 1};
    return hb_slice(&l->b, x, r);
}
static hv zeros(struct shl *l, hv like) {
    return hb_splat(&l->b, like->shape, 0);
}
static status_t sum_of(struct shl *l, const struct grid *g, const struct mlir_op *op, int operand,
                       hv *out) {
    struct hlo_computation *f;
    int64_t dims[HLO_MAX_RANK];
    RETURN_IF_ERR(shl_scalar_region(l, op, 0, &f));
    if (f->params.n != 2) return st_invalid("its region must take two values");
    for (int d = 0; d < HLO_MAX_RANK; d++)
        dims[d] = d;
    *out = NULL;
    for (int k = 0; k < g->n_members; k++) {
        hv x = hb_convert(&l->b, value_of(&g->v[g->members[k]], operand),
                          f->params.v[0]->shape->dtype);
        hv in[2] = {*out, x};
        struct hlo_attr_dims a = {.dimensions = {dims, x->shape->rank}};
        *out = k ? hb_call(&l->b, HLO_MAP, x->shape, in, 2, &a, &f, 1) : x;
    }
    return ST_OK;
}
static status_t permuted(struct shl *l, const struct grid *g, const struct mlir_op *op, int operand,
                         int to, hv *out) {
    struct i64s pairs;
    const struct process *p = &g->v[g->members[to]];
    RETURN_IF_ERR(shl_ints(l, op, "source_target_pairs", -1, 0, &pairs));
    *out = zeros(l, value_of(p, operand));
    for (int k = 0; k + 1 < pairs.n; k += 2)
        if (pairs.v[k + 1] == to && pairs.v[k] >= 0 && pairs.v[k] < g->n_members)
            *out = value_of(&g->v[g->members[pairs.v[k]]], operand);
    return ST_OK;
}
static status_t exchanged(struct shl *l, const struct grid *g, const struct mlir_op *op,
                          int operand, int to, hv *out) {
    int64_t split = shl_int(op, "split_dimension", -1), along = shl_int(op, "concat_dimension", -1);
    hv *v = arena_array(l->a, hv, g->n_members + 1);
    for (int k = 0; k < g->n_members; k++) {
        hv x = value_of(&g->v[g->members[k]], operand);
        if (split < 0 || split >= x->shape->rank || x->shape->dims[split] % g->n_members)
            return st_invalid("split_dimension does not fit");
        v[k] = part_of(l, x, split, to, g->n_members);
    }
    *out = hb_concat(&l->b, v, g->n_members, along);
    return ST_OK;
}
// Value k of the member that element k of the root operand counts; the first without one.
static hv from_root(struct shl *l, const struct grid *g, const struct mlir_op *op, int k, int to,
                    hv const *v) {
    if (op->n_operands == op->n_results) return v[0];
    hv out = v[0], root = value_of(&g->v[g->members[to]], op->n_results);
    struct range at = {k, k + 1, 1};
    root = hb_reshape(&l->b, hb_slice(&l->b, root, &at), NULL, 0);
    for (int i = 1; i < g->n_members && hb_ok(&l->b); i++) {
        hv chosen = hb_compare(&l->b, root, hb_const_i64(&l->b, root->shape->dtype, i), CMP_EQ);
        chosen = hb_broadcast(&l->b, chosen, out->shape->dims, out->shape->rank, NULL);
        out = hb_select(&l->b, chosen, v[i], out);
    }
    return out;
}
// Result k of member `to`. all: what the reduction gives, if there is one.
static status_t result_of(struct shl *l, const struct grid *g, const struct mlir_op *op, int k,
                          int to, hv all, hv *out) {
    int64_t gather = shl_int(op, "all_gather_dim", -1);
    int64_t scatter = shl_int(op, "scatter_dimension", -1);
    hv *v = arena_array(l->a, hv, g->n_members + 1);
    for (int i = 0; i < g->n_members; i++)
        v[i] = value_of(&g->v[g->members[i]], k);
    switch (collective_of(op)) {
    case HLO_ALL_GATHER:
        *out = hb_concat(&l->b, v, g->n_members, gather);
        return ST_OK;
    case HLO_ALL_REDUCE:
        *out = all;
        return ST_OK;
    case HLO_REDUCE_SCATTER:
        if (scatter < 0 || scatter >= all->shape->rank || all->shape->dims[scatter] % g->n_members)
            return st_invalid("scatter_dimension does not fit");
        *out = part_of(l, all, scatter, to, g->n_members);
        return ST_OK;
    case HLO_ALL_TO_ALL:
        return exchanged(l, g, op, k, to, out);
    case HLO_COLLECTIVE_PERMUTE:
        return permuted(l, g, op, k, to, out);
    case HLO_COLLECTIVE_BROADCAST:
        *out = from_root(l, g, op, k, to, v);
        return ST_OK;
    default:
        return st_unimplemented("between processes");
    }
}
// All members of the group wait at the operation: their results, and they go on.
static status_t serve(struct shl *l, struct grid *g) {
    const struct process *first = &g->v[g->members[0]];
    int n = next_op(first)->n_results;
    hv *out = arena_zarray(l->a, hv, (size_t)n * (size_t)g->n_members + 1);
    for (int k = 0; k < n; k++) {
        hv all = NULL;
        l->frame = &g->v[g->members[0]].frame;
        if (next_op(first)->n_regions) RETURN_IF_ERR(sum_of(l, g, next_op(first), k, &all));
        for (int i = 0; i < g->n_members; i++)
            RETURN_IF_ERR(result_of(l, g, next_op(first), k, i, all, &out[i * n + k]));
    }
    RETURN_IF_ERR(hb_end(&l->b));
    for (int i = 0; i < g->n_members; i++) {
        struct process *p = &g->v[g->members[i]];
        l->frame = &p->frame;
        RETURN_IF_ERR(shl_set_results(l, next_op(p), out + i * n));
        p->at++;
    }
    return ST_OK;
}
// One that no group names: only a broadcast may have such, which gives it zeros.
static status_t serve_alone(struct shl *l, struct process *p) {
    const struct mlir_op *op = next_op(p);
    if (collective_of(op) != HLO_COLLECTIVE_BROADCAST || op->n_operands != 1 || op->n_results != 1)
        return st_invalid("process (%d, %d) is in no group", p->id.replica, p->id.partition);
    hv v = zeros(l, value_of(p, 0));
    l->frame = &p->frame;
    RETURN_IF_ERR(shl_set_results(l, op, &v));
    p->at++;
    return ST_OK;
}

// ---- the grid

static status_t run_to_next(struct shl *l, struct process *p) {
    l->frame = &p->frame;
    l->process = &p->id;
    for (; !finished(p) && collective_of(next_op(p)) == HLO_PARAMETER; p->at++)
        RETURN_IF_ERR(shl_lower_op(l, next_op(p)));
    l->process = NULL;
    for (int k = 0; k < next_op(p)->n_operands; k++) {
        hv v = value_of(p, k);
        if (!v)
            return st_invalid("operand %d of %.*s has no value", k, (int)next_op(p)->name.n,
                              next_op(p)->name.p);
        if (!finished(p) && (shape_is_tuple(v->shape) || v->shape->dtype == DT_TOKEN))
            return st_unimplemented("operands between processes that are no arrays");
    }
    return ST_OK;
}
// Operands that say which member's value a broadcast gives.
static int roots_of(const struct mlir_op *op) {
    return collective_of(op) == HLO_COLLECTIVE_BROADCAST && shl_flag(op, "has_dynamic_root");
}
static bool all_wait(const struct grid *g) {
    for (int k = 0; k < g->n_members; k++) {
        const struct process *x = &g->v[g->members[k]], *first = &g->v[g->members[0]];
        if (finished(x) || !str_eq(next_op(x)->name, next_op(first)->name) ||
            next_op(x)->n_operands != next_op(first)->n_operands ||
            next_op(x)->n_results != next_op(first)->n_results ||
            next_op(x)->n_operands != next_op(x)->n_results + roots_of(next_op(x)))
            return false;
    }
    return true;
}
static status_t run_grid(struct shl *l, struct grid *g) {
    int n = g->replicas * g->partitions;
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < n; k++)
            RETURN_IF_ERR(run_to_next(l, &g->v[k]));
        for (int k = 0; k < n; k++) {
            struct process *p = &g->v[k];
            if (finished(p) || collective_of(next_op(p)) == HLO_PARAMETER) continue;
            const struct mlir_op *op = next_op(p);
            status_t st = group_of(l, g, p);
            if (!st && g->n_members && !all_wait(g)) continue;
            if (!st) st = g->n_members ? serve(l, g) : serve_alone(l, p);
            if (st)
                return st_note(st, "%s %lld: %.*s", l->m->where, (long long)op->at, (int)op->name.n,
                               op->name.p);
            moved = true;
        }
    }
    for (int k = 0; k < n; k++)
        if (!finished(&g->v[k])) return st_invalid("its processes wait for each other");
    return ST_OK;
}
// programs = [[@f, @g], [@f, @g]]: replicas of partitions.
static status_t grid_of(struct shl *l, const struct mlir_op *op, struct grid *g) {
    const struct mlir_attr *t;
    RETURN_IF_ERR(shl_needs(op, "programs", &t));
    bool ok = t->kind == MLIR_A_ARRAY && t->n > 0 && t->list[0]->kind == MLIR_A_ARRAY &&
              t->list[0]->n > 0 && (int64_t)t->n * t->list[0]->n <= MAX_PROCESSES;
    if (!ok)
        return st_invalid("attribute 'programs' must be rows of functions, at most %d",
                          MAX_PROCESSES);
    if (mlir_op_attr(op, "infeed")) return st_unimplemented("an infeed");
    *g = (struct grid){.replicas = t->n, .partitions = t->list[0]->n};
    g->v = arena_zarray(l->a, struct process, t->n * t->list[0]->n);
    g->members = arena_array(l->a, int, MAX_PROCESSES);
    for (int r = 0; r < g->replicas; r++)
        for (int p = 0; p < g->partitions; p++) {
            const struct mlir_attr *row = t->list[r];
            if (row->kind != MLIR_A_ARRAY || row->n != g->partitions ||
                row->list[p]->kind != MLIR_A_SYMBOL)
                return st_invalid("attribute 'programs' must have rows of one length");
            const struct mlir_func *f = mlir_find_func(l->m, row->list[p]->s);
            for (struct shl_frame *x = l->frame; x; x = x->caller)
                if (x->f == f) f = NULL;
            if (!f || !f->body.ops.n)
                return st_invalid("there is no function @%.*s to run", (int)row->list[p]->s.n,
                                  row->list[p]->s.p);
            g->v[r * g->partitions + p] =
                (struct process){{r, p}, {f, arena_zarray(l->a, hv, f->values.n + 1), l->frame}, 0};
        }
    return ST_OK;
}
status_t shl_run_parallel(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct grid g;
    struct shl_frame *was = l->frame;
    if (l->process) return st_unimplemented("within another one");
    RETURN_IF_ERR(grid_of(l, op, &g));
    int n = g.replicas * g.partitions, taken = 0, given = 0;
    int64_t wanted = 0;
    for (int k = 0; k < n; k++) {
        const struct mlir_region *r = &g.v[k].frame.f->body;
        for (int32_t i = 0; i < r->n_args && taken < op->n_operands; i++)
            g.v[k].frame.values[r->args + (uint32_t)i] = in[taken++];
        wanted += r->n_args;
    }
    if (wanted != op->n_operands)
        return st_invalid("its programs take %lld values, not %d", (long long)wanted,
                          op->n_operands);
    status_t st = run_grid(l, &g);
    l->frame = was;
    l->process = NULL;
    if (st) return st;
    for (int k = 0; k < n; k++)
        for (int32_t i = 0; i < next_op(&g.v[k])->n_operands && given < op->n_results; i++)
            out[given++] = value_of(&g.v[k], i);
    return given == op->n_results ? ST_OK : st_invalid("its results are not those of its programs");
}
