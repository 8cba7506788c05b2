// SPDX-License-Identifier: Apache-2.0
// Tree ensembles of ai.onnx.ml. All trees are one table of nodes; every sample walks all trees at
// once, one level a step, as gathers from the table's columns; leaves point to themselves. The
// leaves' weights are a table [node, target] whose rows are gathered and aggregated.
#include <math.h>

#include "compiler/frontend/onnx_tools.h"

enum { MAX_NODES = 1 << 20, MAX_DEPTH = 512, MAX_WEIGHTS = 1 << 24 };
enum tree_mode { TREE_LEQ, TREE_LT, TREE_GTE, TREE_GT, TREE_EQ, TREE_NEQ, TREE_MEMBER, TREE_LEAF };
enum aggregate { AGG_AVERAGE, AGG_SUM, AGG_MIN, AGG_MAX };
struct tree_node {
    int64_t feature, yes, no;
    double split;
    enum tree_mode mode;
    bool missing_yes;
};
struct forest {
    VEC(struct tree_node) nodes;
    VEC(int64_t) roots;
    VEC(int64_t) leaf, target; // contributions: weight[k] of node leaf[k] to target[k]
    VEC(double) weight;
    int64_t targets;
    enum aggregate how;
};

static const struct onnx_attr *list(const struct onnx_ctx *c, const char *name) {
    return onnx_attr(c->n, name);
}
static int64_t int_at(const struct onnx_attr *a, size_t k, int64_t def) {
    return a && k < a->ints.n ? a->ints.v[k] : def;
}
// Numbers given as a tensor or as floats.
static struct literal *numbers_of(struct onnx_ctx *c, const char *tensor, const char *floats) {
    const struct onnx_attr *t = list(c, tensor), *f = floats ? list(c, floats) : NULL;
    struct literal *l = NULL;
    int64_t n = f ? (int64_t)f->floats.n : 0;
    if (t && t->t) {
        status_t st = onnx_tensor_literal(c->a, t->t, &l);
        if (st) hb_fail(&c->b, st);
        if (!st) return l;
    }
    l = lit_new(c->a, shape_make(c->a, DT_F32, &n, 1));
    for (int64_t k = 0; k < n; k++)
        lit_set_f64(l, k, (double)f->floats.v[k]);
    return l;
}

// Steps until every path has reached a leaf (a set's nodes share children, so paths differ in
// length); -1 for cycles, bad links and absurd depth. Heights are found children first, with a
// stack.
static int depth_of(struct onnx_ctx *c, const struct forest *f) {
    enum { NEW, OPEN, DONE };
    int64_t n = (int64_t)f->nodes.n, *stack = arena_array(c->a, int64_t, 2 * n + 1), top;
    int *height = arena_zarray(c->a, int, n + 1), depth = 0;
    uint8_t *state = arena_zarray(c->a, uint8_t, n + 1);
    for (size_t r = 0; r < f->roots.n; r++) {
        if (f->roots.v[r] < 0 || f->roots.v[r] >= n) return -1;
        for (stack[0] = f->roots.v[r], top = 1; top;) {
            int64_t k = stack[top - 1];
            const struct tree_node *t = &f->nodes.v[k];
            int64_t to[2] = {t->yes, t->no};
            int below = 0;
            bool wait = false;
            for (int side = 0; side < 2 && t->mode != TREE_LEAF; side++) {
                if (to[side] < 0 || to[side] >= n || t->feature < 0) return -1;
                if (state[to[side]] == OPEN) return -1;
                if (state[to[side]] == NEW && !wait) {
                    state[k] = OPEN;
                    stack[top++] = to[side];
                    wait = true;
                }
                if (height[to[side]] > below) below = height[to[side]];
            }
            if (wait) continue;
            state[k] = DONE;
            height[k] = t->mode == TREE_LEAF ? 0 : below + 1;
            if (height[k] > MAX_DEPTH) return -1;
            top--;
        }
        if (height[f->roots.v[r]] > depth) depth = height[f->roots.v[r]];
    }
    return depth;
}

static hv column(struct onnx_ctx *c, const struct forest *f, hv at, int which) {
    int64_t n = (int64_t)f->nodes.n, *v = arena_array(c->a, int64_t, n + 1);
    for (int64_t k = 0; k < n; k++) {
        const struct tree_node *t = &f->nodes.v[k];
        v[k] = which == 0   ? (t->mode == TREE_LEAF ? 0 : t->feature)
               : which == 1 ? (t->mode == TREE_LEAF ? k : t->yes)
               : which == 2 ? (t->mode == TREE_LEAF ? k : t->no)
               : which == 3 ? (int64_t)t->mode
                            : t->missing_yes;
    }
    return take(c, lit_s64s(c, v, &n, 1), at, 0);
}
static hv step(struct onnx_ctx *c, const struct forest *f, hv x, hv at, hv split) {
    static const enum cmp_direction compare[] = {CMP_LE, CMP_LT, CMP_GE, CMP_GT, CMP_EQ, CMP_NE};
    struct hb *b = &c->b;
    bool used[TREE_LEAF + 1] = {false}, missing = false;
    hv sample = index_along(c, at->shape, DT_S64, 0), yes = NULL, mode = NULL;
    hv v = take_points(c, x, stack_last(c, (hv[]){sample, column(c, f, at, 0)}, 2), 2);
    hv limit = take(c, split, at, 0);
    for (size_t k = 0; k < f->nodes.n; k++)
        used[f->nodes.v[k].mode] = true, missing |= f->nodes.v[k].missing_yes;
    for (int m = TREE_LEQ; m <= TREE_NEQ; m++) {
        if (!used[m]) continue;
        hv now = hb_compare(b, v, limit, compare[m]);
        if (yes && !mode) mode = column(c, f, at, 3);
        yes =
            yes ? hb_select(b, hb_compare(b, mode, splat_like(c, mode, m), CMP_EQ), now, yes) : now;
    }
    if (!yes) return at;
    if (missing) {
        hv track = hb_convert(b, column(c, f, at, 4), DT_PRED);
        yes = hb_binary(b, HLO_OR, yes, and_(c, track, hb_compare(b, v, v, CMP_NE)));
    }
    return hb_select(b, yes, column(c, f, at, 1), column(c, f, at, 2));
}

// Scores [samples, targets] of x [samples, features].
static hv scores(struct onnx_ctx *c, const struct forest *f, hv x) {
    struct hb *b = &c->b;
    int64_t n = (int64_t)f->nodes.n, trees = (int64_t)f->roots.n, one = 1;
    int depth = depth_of(c, f);
    if (depth < 0) return fail(c, "the nodes do not make trees"), x;
    if (x->shape->rank != 2 || n < 1 || f->targets < 1 || f->targets > MAX_WEIGHTS / n)
        return fail(c, "input %s, %lld nodes, %lld targets", shape_text(c->a, x->shape),
                    (long long)n, (long long)f->targets),
               x;
    double *split = arena_array(c->a, double, n + 1);
    for (int64_t k = 0; k < n; k++) {
        split[k] = f->nodes.v[k].split;
        if (f->nodes.v[k].mode != TREE_LEAF && f->nodes.v[k].feature >= x->shape->dims[1])
            return fail(c, "feature %lld of %s", (long long)f->nodes.v[k].feature,
                        shape_text(c->a, x->shape)),
                   x;
    }
    enum dtype t = x->shape->dtype == DT_F64 ? DT_F64 : DT_F32;
    enum hlo_op op = f->how == AGG_MIN ? HLO_MINIMUM : f->how == AGG_MAX ? HLO_MAXIMUM : HLO_ADD;
    double *w = arena_array(c->a, double, n * f->targets + 1);
    for (int64_t k = 0; k < n * f->targets; k++)
        w[k] = op == HLO_MINIMUM ? highest_of(t) : op == HLO_MAXIMUM ? lowest_of(t) : 0;
    for (size_t k = 0; k < f->leaf.n; k++) {
        if (f->leaf.v[k] < 0 || f->leaf.v[k] >= n || f->target.v[k] < 0 ||
            f->target.v[k] >= f->targets)
            return fail(c, "weight %zu belongs to no leaf or target", k), x;
        double *to = &w[f->leaf.v[k] * f->targets + f->target.v[k]];
        *to = op == HLO_ADD ? *to + f->weight.v[k] : f->weight.v[k];
    }
    x = hb_convert(b, x, t);
    hv at = hb_broadcast(b, lit_s64s(c, f->roots.v, &trees, 1),
                         (int64_t[]){x->shape->dims[0], trees}, 2, (int64_t[]){1});
    hv limits = lit_f64s(c, t, split, &n, 1);
    for (int k = 0; k < depth && hb_ok(b); k++)
        at = step(c, f, x, at, limits);
    hv table = lit_f64s(c, t, w, (int64_t[]){n, f->targets}, 2);
    hv r = reduce_keep(c, take(c, table, at, 0), &one, 1, op, false);
    return f->how == AGG_AVERAGE ? mul_k(c, r, 1 / (double)trees) : r;
}

// ---- TreeEnsemble: links go to nodes or, where marked, to leaves

// A test for membership becomes one equality a member, each "no" leading to the next.
static size_t add_members(struct onnx_ctx *c, struct forest *f, size_t k, const struct literal *m,
                          size_t at) {
    struct tree_node first = f->nodes.v[k];
    int64_t n = m ? shape_elements(m->shape) : 0;
    size_t last = k;
    bool any = false;
    for (; (int64_t)at < n && !isnan(lit_get_f64(m, (int64_t)at)); at++) {
        struct tree_node one = first;
        one.mode = TREE_EQ, one.split = lit_get_f64(m, (int64_t)at);
        if (!any) {
            f->nodes.v[k] = one;
        } else {
            f->nodes.v[last].no = (int64_t)f->nodes.n;
            last = f->nodes.n;
            avec_push(c->a, &f->nodes, one);
        }
        any = true;
    }
    if (!any) fail(c, "membership_values are missing");
    return at + 1;
}
ONNX(treeensemble) {
    struct forest f = {.targets = at_int(c, "n_targets", 1),
                       .how = (enum aggregate)at_int(c, "aggregate_function", AGG_SUM)};
    const struct onnx_attr *feature = list(c, "nodes_featureids"),
                           *yes = list(c, "nodes_truenodeids"), *no = list(c, "nodes_falsenodeids"),
                           *yes_leaf = list(c, "nodes_trueleafs"),
                           *no_leaf = list(c, "nodes_falseleafs"),
                           *missing = list(c, "nodes_missing_value_tracks_true"),
                           *roots = list(c, "tree_roots"), *targets = list(c, "leaf_targetids");
    static const char *const posts[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    int64_t post = at_int(c, "post_transform", 0);
    const struct literal *split = numbers_of(c, "nodes_splits", NULL),
                         *mode = numbers_of(c, "nodes_modes", NULL),
                         *weight = numbers_of(c, "leaf_weights", NULL),
                         *members = list(c, "membership_values")
                                        ? numbers_of(c, "membership_values", NULL)
                                        : NULL;
    if (!hb_ok(&c->b)) return;
    size_t n = feature ? feature->ints.n : 0, leaves = targets ? targets->ints.n : 0, used = 0;
    if (!roots || n > MAX_NODES || leaves > MAX_NODES || post < 0 || post > 4 || f.how > AGG_MAX ||
        (int64_t)n != shape_elements(split->shape) || (int64_t)n != shape_elements(mode->shape) ||
        (int64_t)leaves != shape_elements(weight->shape))
        return fail(c, "attributes of %zu nodes and %zu leaves do not match", n, leaves);
    for (size_t k = 0; k < n + leaves; k++) { // leaves behind the nodes
        struct tree_node t = {.mode = TREE_LEAF};
        if (k < n) {
            int64_t m = lit_get_i64(mode, (int64_t)k), base = (int64_t)n;
            if (m < 0 || m > TREE_MEMBER) return fail(c, "mode %lld", (long long)m);
            t = (struct tree_node){.feature = feature->ints.v[k],
                                   .yes = int_at(yes, k, -1) + (int_at(yes_leaf, k, 0) ? base : 0),
                                   .no = int_at(no, k, -1) + (int_at(no_leaf, k, 0) ? base : 0),
                                   .split = lit_get_f64(split, (int64_t)k),
                                   .mode = (enum tree_mode)m,
                                   .missing_yes = int_at(missing, k, 0) != 0};
        }
        avec_push(c->a, &f.nodes, t);
    }
    for (size_t k = 0; k < n && hb_ok(&c->b); k++)
        if (f.nodes.v[k].mode == TREE_MEMBER) used = add_members(c, &f, k, members, used);
    for (size_t k = 0; k < leaves; k++) {
        avec_push(c->a, &f.leaf, (int64_t)(n + k));
        avec_push(c->a, &f.target, targets->ints.v[k]);
        avec_push(c->a, &f.weight, lit_get_f64(weight, (int64_t)k));
    }
    for (size_t k = 0; k < roots->ints.n; k++)
        avec_push(c->a, &f.roots, roots->ints.v[k]);
    if (!hb_ok(&c->b)) return;
    hv y = onnx_ml_post_transform(c, scores(c, &f, in_val(c, 0)), str_of(posts[post]));
    out_val(c, 0, hb_convert(&c->b, y, in_val(c, 0)->shape->dtype));
}

// ---- TreeEnsembleRegressor, TreeEnsembleClassifier: nodes named by tree and number

struct node_key {
    int64_t tree, node;
};
static int64_t node_number(struct smap *ids, int64_t tree, int64_t node) {
    struct node_key k = {tree, node};
    return (int64_t)(intptr_t)smap_get(ids, (struct str){(const char *)&k, sizeof k}) - 1;
}
static enum tree_mode mode_named(struct str s) {
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                        "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
    for (int k = 0; k < 6; k++)
        if (str_is(s, names[k])) return (enum tree_mode)k;
    return str_is(s, "LEAF") ? TREE_LEAF : TREE_MEMBER;
}
// `role`: "target" or "class", the prefix of the attributes that hold the weights.
static bool read_forest(struct onnx_ctx *c, struct forest *f, struct smap *ids, const char *role) {
    const struct onnx_attr *tree = list(c, "nodes_treeids"), *node = list(c, "nodes_nodeids"),
                           *feature = list(c, "nodes_featureids"), *mode = list(c, "nodes_modes"),
                           *yes = list(c, "nodes_truenodeids"), *no = list(c, "nodes_falsenodeids"),
                           *missing = list(c, "nodes_missing_value_tracks_true"),
                           *wtree = list(c, arena_printf(c->a, "%s_treeids", role)),
                           *wnode = list(c, arena_printf(c->a, "%s_nodeids", role)),
                           *wid = list(c, arena_printf(c->a, "%s_ids", role));
    const struct literal *split = numbers_of(c, "nodes_values_as_tensor", "nodes_values"),
                         *w = numbers_of(c, arena_printf(c->a, "%s_weights_as_tensor", role),
                                         arena_printf(c->a, "%s_weights", role));
    size_t n = node ? node->ints.n : 0, m = wid ? wid->ints.n : 0;
    if (!hb_ok(&c->b)) return false;
    if (!tree || tree->ints.n != n || !mode || mode->strings.n != n || n > MAX_NODES ||
        shape_elements(split->shape) < (int64_t)n || shape_elements(w->shape) < (int64_t)m)
        return fail(c, "attributes of %zu nodes do not match", n), false;
    struct node_key *keys = arena_array(c->a, struct node_key, n + 1);
    bool *child = arena_zarray(c->a, bool, n + 1);
    for (size_t k = 0; k < n; k++) {
        keys[k] = (struct node_key){tree->ints.v[k], node->ints.v[k]};
        smap_put(ids, (struct str){(const char *)&keys[k], sizeof *keys}, (void *)(k + 1));
    }
    for (size_t k = 0; k < n; k++) {
        struct tree_node t = {.feature = int_at(feature, k, 0),
                              .yes = node_number(ids, keys[k].tree, int_at(yes, k, -1)),
                              .no = node_number(ids, keys[k].tree, int_at(no, k, -1)),
                              .split = lit_get_f64(split, (int64_t)k),
                              .mode = mode_named(mode->strings.v[k]),
                              .missing_yes = int_at(missing, k, 0) != 0};
        if (t.mode == TREE_MEMBER)
            return fail(c, "mode '" STR_FMT "' is not known", STR_ARG(mode->strings.v[k])), false;
        if (t.mode != TREE_LEAF && t.yes >= 0) child[t.yes] = true;
        if (t.mode != TREE_LEAF && t.no >= 0) child[t.no] = true;
        avec_push(c->a, &f->nodes, t);
    }
    for (size_t k = 0; k < n; k++)
        if (!child[k]) avec_push(c->a, &f->roots, (int64_t)k);
    for (size_t k = 0; k < m; k++) {
        avec_push(c->a, &f->leaf, node_number(ids, int_at(wtree, k, 0), int_at(wnode, k, -1)));
        avec_push(c->a, &f->target, f->targets == 1 ? 0 : wid->ints.v[k]);
        avec_push(c->a, &f->weight, lit_get_f64(w, (int64_t)k));
    }
    return true;
}
static hv add_base(struct onnx_ctx *c, hv y) {
    const struct literal *base = numbers_of(c, "base_values_as_tensor", "base_values");
    int64_t n = shape_elements(base->shape);
    if (n == 0 || !hb_ok(&c->b)) return y;
    if (n != y->shape->dims[1]) return fail(c, "%lld base_values", (long long)n), y;
    hv v = hb_convert(&c->b, hb_constant(&c->b, lit_clone(c->a, base)), y->shape->dtype);
    return hb_add(&c->b, y, along(c, hb_reshape(&c->b, v, &n, 1), y->shape, 1));
}
static hv named_forest(struct onnx_ctx *c, struct forest *f, const char *role) {
    struct smap ids = {0};
    hv x = in_val(c, 0), y = x;
    if (!dtype_is_float(x->shape->dtype)) x = hb_convert(&c->b, x, DT_F32);
    if (read_forest(c, f, &ids, role)) y = scores(c, f, x);
    smap_done(&ids);
    return hb_ok(&c->b) ? hb_convert(&c->b, add_base(c, y), DT_F32) : y;
}
ONNX(treeregressor) {
    struct str how = at_str(c, "aggregate_function", "SUM");
    struct forest f = {.targets = at_int(c, "n_targets", 1),
                       .how = str_is(how, "AVERAGE") ? AGG_AVERAGE
                              : str_is(how, "MIN")   ? AGG_MIN
                              : str_is(how, "MAX")   ? AGG_MAX
                                                     : AGG_SUM};
    hv y = named_forest(c, &f, "target");
    out_val(c, 0, onnx_ml_post_transform(c, y, at_str(c, "post_transform", "NONE")));
}
// Two classes scored by the weights of one: the other's score follows. Weights that are all
// positive are chances, decided at a half; others are decided at 0.
static void classify_two(struct onnx_ctx *c, struct forest *f, const struct onnx_attr *labels,
                         int64_t id, struct str post) {
    const struct onnx_attr *base = list(c, "base_values");
    size_t n_base = base ? base->floats.n : 0;
    bool chance = true;
    if (list(c, "base_values_as_tensor") || n_base > 1 || (id != 0 && n_base))
        return fail(c, "base_values of two classes scored by one weight are not supported");
    hv y = named_forest(c, f, "class"), zero;
    for (size_t k = 0; k < f->weight.n; k++)
        chance &= f->weight.v[k] >= 0;
    if (!hb_ok(&c->b)) return;
    onnx_ml_classify_two(c, y, labels, chance ? 0.5 : 0, chance, post);
    if (id == 0 || !hb_ok(&c->b)) return;
    zero = splat_like(c, y, 0); // as ONNX Runtime: the first class has no score
    out_val(c, 1, onnx_ml_post_transform(c, hb_concat(&c->b, (hv[]){zero, y}, 2, 1), post));
}
ONNX(treeclassifier) {
    const struct onnx_attr *labels = onnx_ml_labels(c, "classlabels_int64s", "classlabels_strings"),
                           *ids = list(c, "class_ids");
    struct forest f = {.how = AGG_SUM};
    bool second = false;
    size_t n = labels ? labels->ints.n + labels->strings.n : 0;
    if (n < 2) return fail(c, "%zu labels", n);
    for (size_t k = 0; ids && k < ids->ints.n; k++)
        second |= ids->ints.v[k] != ids->ints.v[0];
    if (!second && n == 2 && ids && ids->ints.n) {
        f.targets = 1;
        return classify_two(c, &f, labels, ids->ints.v[0], at_str(c, "post_transform", "NONE"));
    }
    f.targets = (int64_t)n;
    hv y = named_forest(c, &f, "class");
    if (hb_ok(&c->b)) onnx_ml_classify(c, y, labels, at_str(c, "post_transform", "NONE"));
}
