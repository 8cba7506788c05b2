// SPDX-License-Identifier: Apache-2.0
// Tree ensembles of ai.onnx.ml as the call of compiler/trees.h: one table of nodes, and a table
// [leaf, target] of weights.
#include <math.h>

#include "compiler/frontend/onnx_tools.h"
#include "compiler/trees.h"

enum { MAX_NODES = 1 << 22, MAX_WEIGHTS = 1 << 24 };
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

// The table of nodes [n, 4]; a leaf's link is its number among the leaves. Gives that count, -1
// after an error.
static int64_t node_table(struct onnx_ctx *c, const struct forest *f, int64_t features,
                          struct literal *table) {
    int64_t leaves = 0, n = (int64_t)f->nodes.n;
    int32_t(*to)[TREE_COLUMNS] = table->data;
    for (int64_t k = 0; k < n; k++) {
        const struct tree_node *t = &f->nodes.v[k];
        bool leaf = t->mode == TREE_LEAF;
        if (!leaf && (t->feature < 0 || t->feature >= features || t->yes < 0 || t->yes >= n ||
                      t->no < 0 || t->no >= n))
            return fail(c, "node %lld: feature %lld of %lld, links %lld and %lld", (long long)k,
                        (long long)t->feature, (long long)features, (long long)t->yes,
                        (long long)t->no),
                   -1;
        to[k][TREE_FEATURE] = leaf ? 0 : (int32_t)t->feature;
        to[k][TREE_YES] = (int32_t)(leaf ? leaves : t->yes);
        to[k][TREE_NO] = (int32_t)(leaf ? 0 : t->no);
        to[k][TREE_KIND] = (int32_t)t->mode | (t->missing_yes && !leaf ? TREE_MISSING : 0);
        leaves += leaf;
    }
    return leaves;
}
// The weights [leaves, targets]; what a leaf has none for is neutral.
static hv leaf_table(struct onnx_ctx *c, const struct forest *f, const struct literal *table,
                     int64_t leaves, enum dtype t, enum hlo_op op) {
    const int32_t(*node)[TREE_COLUMNS] = table->data;
    int64_t n = leaves > 0 ? leaves : 1, dims[2] = {n, f->targets};
    if (f->targets < 1 || f->targets > MAX_WEIGHTS / n)
        return fail(c, "%lld leaves, %lld targets", (long long)leaves, (long long)f->targets), NULL;
    double none = op == HLO_MINIMUM ? highest_of(t) : op == HLO_MAXIMUM ? lowest_of(t) : 0;
    struct literal *w = lit_new(c->a, shape_make(c->a, t, dims, 2));
    for (int64_t k = 0; k < n * f->targets; k++)
        lit_set_f64(w, k, none);
    for (size_t k = 0; k < f->leaf.n; k++) {
        int64_t leaf = f->leaf.v[k], target = f->target.v[k];
        if (leaf < 0 || leaf >= (int64_t)f->nodes.n || target < 0 || target >= f->targets)
            return fail(c, "weight %zu belongs to no leaf or target", k), NULL;
        if (f->nodes.v[leaf].mode != TREE_LEAF) continue; // a weight that nothing comes to
        int64_t at = node[leaf][TREE_YES] * f->targets + target;
        lit_set_f64(w, at, f->weight.v[k] + (op == HLO_ADD ? lit_get_f64(w, at) : 0));
    }
    return hb_constant(&c->b, w);
}

// Scores [samples, targets] of x [samples, features].
static hv scores(struct onnx_ctx *c, const struct forest *f, hv x) {
    static const char *const names[] = {"hlod.trees.sum", "hlod.trees.sum", "hlod.trees.min",
                                        "hlod.trees.max"};
    struct hb *b = &c->b;
    int64_t n = (int64_t)f->nodes.n, trees = (int64_t)f->roots.n, dims[2] = {n, TREE_COLUMNS};
    if (x->shape->rank != 2 || n < 1 || x->shape->dims[1] < 1)
        return fail(c, "input %s, %lld nodes", shape_text(c->a, x->shape), (long long)n), x;
    enum dtype t = x->shape->dtype == DT_F64 ? DT_F64 : DT_F32;
    enum hlo_op op = f->how == AGG_MIN ? HLO_MINIMUM : f->how == AGG_MAX ? HLO_MAXIMUM : HLO_ADD;
    struct literal *table = lit_new(c->a, shape_make(c->a, DT_S32, dims, 2)),
                   *roots = lit_new(c->a, shape_make(c->a, DT_S32, &trees, 1));
    double *split = arena_array(c->a, double, n + 1);
    int64_t leaves = node_table(c, f, x->shape->dims[1], table);
    if (leaves < 0) return x;
    for (int64_t k = 0; k < n; k++)
        split[k] = f->nodes.v[k].split;
    for (int64_t k = 0; k < trees; k++) {
        bool in_table = f->roots.v[k] >= 0 && f->roots.v[k] < n;
        lit_set_i64(roots, k, in_table ? f->roots.v[k] : -1); // refused below
    }
    if (trees_heights(c->a, (const int32_t(*)[TREE_COLUMNS])table->data, n, roots->data, trees,
                      NULL) < 0)
        return fail(c, "the nodes do not make trees"), x;
    hv values = leaf_table(c, f, table, leaves, t, op);
    if (!values) return x;
    struct hlo_attr_custom call = {.custom_call_target = str_of(names[f->how])};
    hv in[5] = {hb_convert(b, x, t), hb_constant(b, table), lit_f64s(c, t, split, &n, 1),
                hb_constant(b, roots), values};
    int64_t size[2] = {x->shape->dims[0], f->targets};
    hv r = hb_op(b, HLO_CUSTOM_CALL, shape_make(c->a, t, size, 2), in, 5, &call);
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
// Numbers of nodes by key. Where each tree's nodes stand together and count from 0, as converters
// write them, a table of the trees' first nodes does.
struct node_ids {
    struct smap any, first;
    bool counted;
    int64_t tree, from, n; // the tree looked up last: its first node, how many nodes
    const struct node_key *keys;
    size_t all;
};
static struct str key_text(const void *key, size_t n) {
    return (struct str){key, n};
}
static void number_nodes(struct node_ids *ids, const struct node_key *keys, size_t n) {
    ids->counted = true;
    ids->tree = -1, ids->n = 0;
    ids->keys = keys;
    ids->all = n;
    for (size_t k = 0; k < n && ids->counted; k++) {
        bool same = k && keys[k].tree == keys[k - 1].tree;
        ids->counted = same ? keys[k].node == keys[k - 1].node + 1 : keys[k].node == 0;
        if (same) continue;
        ids->counted &= !smap_has(&ids->first, key_text(&keys[k].tree, sizeof(int64_t)));
        smap_put(&ids->first, key_text(&keys[k].tree, sizeof(int64_t)), (void *)(k + 1));
    }
    for (size_t k = 0; k < n && !ids->counted; k++)
        smap_put(&ids->any, key_text(&keys[k], sizeof *keys), (void *)(k + 1));
}
static int64_t node_number(struct node_ids *ids, int64_t tree, int64_t node) {
    struct node_key k = {tree, node};
    if (!ids->counted) return (int64_t)(intptr_t)smap_get(&ids->any, key_text(&k, sizeof k)) - 1;
    if (tree != ids->tree || !ids->n) {
        ids->from = (int64_t)(intptr_t)smap_get(&ids->first, key_text(&tree, sizeof tree)) - 1;
        ids->tree = tree;
        for (ids->n = 0; ids->from >= 0 && ids->from + ids->n < (int64_t)ids->all &&
                         ids->keys[ids->from + ids->n].tree == tree;)
            ids->n++;
    }
    return node >= 0 && node < ids->n ? ids->from + node : -1;
}
static enum tree_mode mode_named(struct str s) {
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                        "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
    for (int k = 0; k < 6; k++)
        if (str_is(s, names[k])) return (enum tree_mode)k;
    return str_is(s, "LEAF") ? TREE_LEAF : TREE_MEMBER;
}
// `role`: "target" or "class", the prefix of the attributes that hold the weights.
static bool read_forest(struct onnx_ctx *c, struct forest *f, struct node_ids *ids,
                        const char *role) {
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
    for (size_t k = 0; k < n; k++)
        keys[k] = (struct node_key){tree->ints.v[k], node->ints.v[k]};
    number_nodes(ids, keys, n);
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
// Scores without base values, in the type that the comparisons have.
static hv named_forest(struct onnx_ctx *c, struct forest *f, const char *role) {
    struct node_ids ids = {0};
    hv x = in_val(c, 0), y = x;
    if (!dtype_is_float(x->shape->dtype)) x = hb_convert(&c->b, x, DT_F32);
    if (read_forest(c, f, &ids, role)) y = scores(c, f, x);
    smap_done(&ids.any);
    smap_done(&ids.first);
    return y;
}
static hv with_base(struct onnx_ctx *c, hv y) {
    return hb_ok(&c->b) ? hb_convert(&c->b, add_base(c, y), DT_F32) : y;
}
ONNX(treeregressor) {
    struct str how = at_str(c, "aggregate_function", "SUM");
    struct forest f = {.targets = at_int(c, "n_targets", 1),
                       .how = str_is(how, "AVERAGE") ? AGG_AVERAGE
                              : str_is(how, "MIN")   ? AGG_MIN
                              : str_is(how, "MAX")   ? AGG_MAX
                                                     : AGG_SUM};
    hv y = with_base(c, named_forest(c, &f, "target"));
    out_val(c, 0, onnx_ml_post_transform(c, y, at_str(c, "post_transform", "NONE")));
}
// Two classes of which one has weights, by the rules of ONNX Runtime: the standard has none. With
// weights of class 0 and no base value or one, its sum s is the second class's score and the first
// one's is -s, or 1 - s where all weights are positive; else the other class's score is 0. Above 0,
// or 0.5 where all weights are positive, it is the second label.
static void one_weight(struct onnx_ctx *c, struct forest *f, int64_t with,
                       const struct onnx_attr *labels, struct str post) {
    struct hb *b = &c->b;
    const struct literal *base = numbers_of(c, "base_values_as_tensor", "base_values");
    int64_t nb = shape_elements(base->shape);
    bool positive = true;
    f->targets = 2;
    hv s = named_forest(c, f, "class");
    if (!hb_ok(b)) return;
    if (nb > 2) return fail(c, "%lld base_values", (long long)nb);
    for (size_t k = 0; k < f->weight.n; k++)
        positive &= f->weight.v[k] >= 0;
    s = hb_convert(b, part(c, s, 1, with, with + 1), DT_F32);
    if (with == 0 && nb) s = add_k(c, s, lit_get_f64(base, 0));
    if (with == 1 && nb == 2) s = splat_like(c, s, lit_get_f64(base, 1));
    hv second = hb_compare(b, s, splat_like(c, s, positive ? 0.5 : 0), CMP_GT);
    int64_t rows = s->shape->dims[0];
    onnx_ml_label_at(c, hb_convert(b, hb_reshape(b, second, &rows, 1), DT_S64), labels);
    if (with == 0 && nb < 2) return out_val(c, 1, onnx_ml_two_scores(c, s, positive, post));
    hv zero = splat_like(c, s, 0), pair[2] = {with ? zero : s, with ? s : zero};
    out_val(c, 1, onnx_ml_post_transform(c, hb_concat(b, pair, 2, 1), post));
}
ONNX(treeclassifier) {
    const struct onnx_attr *labels = onnx_ml_labels(c, "classlabels_int64s", "classlabels_strings"),
                           *ids = list(c, "class_ids");
    struct str post = at_str(c, "post_transform", "NONE");
    struct forest f = {.how = AGG_SUM};
    bool several = false;
    size_t n = labels ? labels->ints.n + labels->strings.n : 0;
    if (n < 2 || !ids || !ids->ints.n) return fail(c, "%zu labels", n);
    for (size_t k = 0; k < ids->ints.n; k++)
        several |= ids->ints.v[k] != ids->ints.v[0];
    if (n == 2 && !several && (ids->ints.v[0] == 0 || ids->ints.v[0] == 1))
        return one_weight(c, &f, ids->ints.v[0], labels, post);
    f.targets = (int64_t)n;
    hv y = with_base(c, named_forest(c, &f, "class"));
    if (hb_ok(&c->b)) onnx_ml_classify(c, y, labels, post);
}
