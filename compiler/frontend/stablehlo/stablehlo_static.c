// SPDX-License-Identifier: Apache-2.0
// Which arguments of the entry decide shapes: found backwards from the operands that do.
#include "compiler/frontend/stablehlo/stablehlo.h"
#include "compiler/frontend/stablehlo/stablehlo_lower.h"

struct marks { // of one function's values: does a shape depend on it?
    const struct mlir_module *m;
    const struct mlir_func *f;
    bool *v;
    const struct marks *caller;
    int64_t *left; // operations that may still be looked at
};

// Operands [from, to) of these decide the result's shape.
static const struct {
    const char *name;
    int from, to;
} shape_operands[] = {
    {"stablehlo.dynamic_iota", 0, 1},       {"stablehlo.dynamic_broadcast_in_dim", 1, 2},
    {"stablehlo.dynamic_reshape", 1, 2},    {"stablehlo.dynamic_pad", 2, 5},
    {"stablehlo.real_dynamic_slice", 1, 4}, {"stablehlo.dynamic_conv", 2, 3},
    {"stablehlo.dynamic_gather", 2, 3},     {"stablehlo.rng", 2, 3},
    {"stablehlo.set_dimension_size", 1, 2}};

// The first of the operands of a custom call that decide shapes: those from there on do.
static int first_deciding(const struct mlir_op *op) {
    static const struct {
        const char *target;
        int last; // so many operands
    } rows[] = {{"stablehlo.dynamic_top_k", 1},
                {"stablehlo.dynamic_approx_top_k", 1},
                {"stablehlo.dynamic_reduce_window", 5},
                {"stablehlo.dynamic_rng_bit_generator", 1}};
    const struct mlir_attr *at = mlir_op_attr(op, "indices_of_shape_operands");
    struct str target = shl_word(op, "call_target_name");
    int n = op->n_operands;
    if (!str_is(op->name, "stablehlo.custom_call")) return n;
    if (str_is(target, "shape_assertion")) return 0;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (str_is(target, rows[k].target) && n >= rows[k].last) return n - rows[k].last;
    return at && at->kind == MLIR_A_INTS && at->n <= n ? n - at->n : n;
}
static void mark_operands(struct marks *x, const struct mlir_op *op, int from, int to) {
    for (int k = from; k < to && k < op->n_operands; k++)
        x->v[op->operands[k]] = true;
}
static void mark_region(struct arena *a, struct marks *x, const struct mlir_region *r);
static void mark_call(struct arena *a, struct marks *x, const struct mlir_op *op,
                      const char *callee) {
    const struct mlir_func *f = mlir_find_func(x->m, shl_word(op, callee));
    for (const struct marks *c = x; c; c = c->caller)
        if (c->f == f) return; // lowering refuses it
    if (!f || !f->body.ops.n || f->body.n_args != op->n_operands) return;
    struct marks inner = {x->m, f, arena_zarray(a, bool, f->values.n + 1), x, x->left};
    const struct mlir_op *end = f->body.ops.v[f->body.ops.n - 1];
    for (int k = 0; k < op->n_results && k < end->n_operands; k++)
        inner.v[end->operands[k]] |= x->v[op->result + (uint32_t)k];
    mark_region(a, &inner, &f->body);
    for (int k = 0; k < op->n_operands; k++)
        if (inner.v[f->body.args + (uint32_t)k]) x->v[op->operands[k]] = true;
}
// Is `value` a constant of the region, from before `at`, that has other elements than 1?
static bool leaps(struct marks *x, const struct mlir_region *r, size_t at, uint32_t value) {
    while (at-- > 0 && --*x->left > 0) {
        const struct mlir_op *op = r->ops.v[at];
        if (op->n_results != 1 || op->result != value) continue;
        const struct mlir_attr *t = mlir_op_attr(op, "value");
        if (!str_is(op->name, "stablehlo.constant") || !t || t->kind != MLIR_A_DENSE) return false;
        size_t size = t->type ? (size_t)dtype_size(t->type->dtype) : 0;
        for (size_t k = 0; size && k < t->bytes.n; k++)
            if (((const uint8_t *)t->bytes.p)[k] != (k % size == 0)) return true;
        return false;
    }
    return false;
}
// real_dynamic_slice of steps of 1 from a start that only a run needs to know: its limit, computed
// before `at` in the region, is the sum of the start and a size, which decides the shape.
static bool mark_size(struct marks *x, const struct mlir_region *r, size_t at) {
    const struct mlir_op *op = r->ops.v[at];
    if (!str_is(op->name, "stablehlo.real_dynamic_slice") || op->n_operands != 4 ||
        leaps(x, r, at, op->operands[3]))
        return false;
    while (at-- > 0 && --*x->left > 0) {
        const struct mlir_op *sum = r->ops.v[at];
        if (sum->n_results != 1 || sum->result != op->operands[2]) continue;
        if (!str_is(sum->name, "stablehlo.add") || sum->n_operands != 2) return false;
        for (int k = 0; k < 2; k++) {
            if (sum->operands[k] != op->operands[1]) continue;
            x->v[sum->operands[1 - k]] = true;
            x->v[op->operands[3]] = true;
            return true;
        }
        return false;
    }
    return false;
}
static void mark_op(struct arena *a, struct marks *x, const struct mlir_region *in, size_t at) {
    const struct mlir_op *op = in->ops.v[at];
    bool any = false, sized = mark_size(x, in, at);
    for (int k = 0; k < op->n_results; k++)
        any |= x->v[op->result + (uint32_t)k];
    for (size_t k = 0; !sized && k < sizeof shape_operands / sizeof *shape_operands; k++)
        if (str_is(op->name, shape_operands[k].name))
            mark_operands(x, op, shape_operands[k].from, shape_operands[k].to);
    mark_operands(x, op, first_deciding(op), op->n_operands);
    if (str_is(op->name, "func.call")) {
        mark_call(a, x, op, "callee");
    } else if (str_is(op->name, "stablehlo.composite")) {
        mark_call(a, x, op, "decomposition");
    } else if (any && !str_is(op->name, "stablehlo.get_dimension_size")) {
        mark_operands(x, op, 0, op->n_operands);
    }
    for (int k = 0; k < op->n_regions; k++) {
        const struct mlir_region *r = &op->regions[k];
        mark_region(a, x, r);
        for (int i = 0; i < r->n_args && i < op->n_operands; i++)
            if (x->v[r->args + (uint32_t)i]) x->v[op->operands[i]] = true;
    }
}
static void mark_region(struct arena *a, struct marks *x, const struct mlir_region *r) {
    for (size_t k = r->ops.n; k-- > 0 && --*x->left > 0;)
        mark_op(a, x, r, k);
}
void stablehlo_by_value(const struct mlir_module *m, const struct mlir_func *f,
                        struct signature *sig) {
    struct arena tmp = {0};
    int64_t left = mlir_default_limits.max_ops;
    struct marks x = {m, f, arena_zarray(&tmp, bool, f->values.n + 1), NULL, &left};
    mark_region(&tmp, &x, &f->body);
    for (int k = 0; k < sig->n_in; k++) {
        struct sig_tensor *t = &sig->in[k];
        int64_t n = t->rank == 1 ? t->dims[0].size : 1;
        bool small = t->rank <= 1 && n >= 0 && n <= MAX_BOUND_VALUES;
        t->by_value = x.v[f->body.args + (uint32_t)k] && dtype_is_int(t->dtype) && small;
    }
    arena_done(&tmp);
}
