// SPDX-License-Identifier: Apache-2.0
// Tree ensembles of ai.onnx.ml as the call of compiler/calls/trees.h: one table of nodes, and a
// table [leaf, target] of weights.
#include <math.h>

#include "compiler/calls/trees.h"
#include "compiler/frontend/onnx/onnx_tools.h"

enum { MAX_NODES = 1 << 24, MAX_WEIGHTS = 1 << 25 };
enum aggregate { AGG_AVERAGE, AGG_SUM, AGG_MIN, AGG_MAX };
// Filled as the call has it, but that a leaf's columns are made at the end. A number that does not
// fit 32 bits is -1, which is no feature, node or target.
struct forest {
    int32_t (*node)[TREE_COLUMNS];
    double *split;
    int64_t n;
    int32_t *root;
    int64_t roots;
    int32_t *leaf, *target; // contributions: weight[k] of node leaf[k] to target[k]
    double *weight;
    int64_t weights;
    int64_t targets;
    enum aggregate how;
};

static int32_t narrow(int64_t v) {
    return v >= 0 && v < INT32_MAX ? (int32_t)v : -1;
}
static void forest_room(struct onnx_ctx *c, struct forest *f, int64_t nodes, int64_t roots,
                        int64_t weights) {
    f->node = arena_alloc_aligned(c->a, sizeof *f->node * (size_t)(nodes + 1), 64);
    f->split = arena_alloc_aligned(c->a, sizeof *f->split * (size_t)(nodes + 1), 64);
    f->root = arena_alloc_aligned(c->a, sizeof *f->root * (size_t)(roots + 1), 64);
    f->leaf = arena_array(c->a, int32_t, weights + 1);
    f->target = arena_array(c->a, int32_t, weights + 1);
    f->weight = arena_array(c->a, double, weights + 1);
}
static void add_node(struct forest *f, int32_t feature, int32_t yes, int32_t no, int kind,
                     double split) {
    int32_t *to = f->node[f->n];
    to[TREE_FEATURE] = feature, to[TREE_YES] = yes, to[TREE_NO] = no, to[TREE_KIND] = kind;
    f->split[f->n++] = split;
}
static bool is_leaf(const struct forest *f, int64_t k) {
    return (f->node[k][TREE_KIND] & 7) == TREE_LEAF;
}

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
    return lit_borrow(c->a, shape_make(c->a, DT_F32, &n, 1), f ? f->floats.v : NULL);
}

// A leaf's link becomes its number among the leaves. Gives that count, -1 after an error.
static int64_t number_leaves(struct onnx_ctx *c, struct forest *f, int64_t features) {
    int64_t leaves = 0;
    for (int64_t k = 0; k < f->n; k++) {
        int32_t *t = f->node[k];
        if (is_leaf(f, k)) {
            t[TREE_FEATURE] = t[TREE_NO] = 0;
            t[TREE_YES] = (int32_t)leaves++;
            t[TREE_KIND] = TREE_LEAF;
        } else if (t[TREE_FEATURE] < 0 || t[TREE_FEATURE] >= features || t[TREE_YES] < 0 ||
                   t[TREE_YES] >= f->n || t[TREE_NO] < 0 || t[TREE_NO] >= f->n) {
            return onnx_fail(c, "node %lld: feature %d of %lld, links %d and %d", (long long)k,
                             t[TREE_FEATURE], (long long)features, t[TREE_YES], t[TREE_NO]),
                   -1;
        }
    }
    return leaves;
}

// Has each leaf weights for one target at the most? Then its first column says for which.
static bool one_target(struct onnx_ctx *c, struct forest *f, int64_t leaves) {
    int32_t *first = arena_array(c->a, int32_t, leaves + 1); // of leaves, by number
    for (int64_t k = 0; k < leaves; k++)
        first[k] = -1;
    for (int64_t k = 0; k < f->weights; k++) {
        if (!is_leaf(f, f->leaf[k])) continue;
        int32_t *t = &first[f->node[f->leaf[k]][TREE_YES]];
        if (*t >= 0 && *t != f->target[k]) return false;
        *t = f->target[k];
    }
    for (int64_t k = 0; k < f->n; k++)
        if (is_leaf(f, k) && first[f->node[k][TREE_YES]] >= 0)
            f->node[k][TREE_FEATURE] = first[f->node[k][TREE_YES]];
    return true;
}
// The weights [leaves, width]; what a leaf has none for is neutral.
static hv leaf_table(struct onnx_ctx *c, struct forest *f, int64_t leaves, enum dtype t,
                     enum hlo_op op) {
    int64_t n = leaves > 0 ? leaves : 1, dims[2] = {n, f->targets};
    for (int64_t k = 0; k < f->weights; k++)
        if (f->leaf[k] < 0 || f->leaf[k] >= f->n || f->target[k] < 0 || f->target[k] >= f->targets)
            return onnx_fail(c, "weight %lld belongs to no leaf or target", (long long)k), NULL;
    if (op == HLO_ADD && f->targets >= 1 && one_target(c, f, leaves)) dims[1] = 1;
    if (dims[1] < 1 || dims[1] > MAX_WEIGHTS / n)
        return onnx_fail(c, "%lld leaves, %lld targets", (long long)leaves, (long long)f->targets),
               NULL;
    struct literal *w = lit_new(c->a, shape_make(c->a, t, dims, 2));
    double none = op == HLO_MINIMUM ? dtype_highest(t) : dtype_lowest(t);
    for (int64_t k = 0; k < n * dims[1] && op != HLO_ADD; k++)
        lit_set_f64(w, k, none);
    for (int64_t k = 0; k < f->weights; k++) {
        if (!is_leaf(f, f->leaf[k])) continue; // a weight that nothing comes to
        int64_t at = f->node[f->leaf[k]][TREE_YES] * dims[1] + (dims[1] > 1 ? f->target[k] : 0);
        double old = lit_get_f64(w, at), v = f->weight[k];
        lit_set_f64(w, at,
                    op == HLO_ADD       ? old + v
                    : op == HLO_MINIMUM ? fmin(old, v)
                                        : fmax(old, v));
    }
    return hb_constant(&c->b, w);
}

// Scores [samples, targets] of x [samples, features].
static hv scores(struct onnx_ctx *c, struct forest *f, hv x) {
    static const char *const names[] = {"hlod.trees.sum", "hlod.trees.sum", "hlod.trees.min",
                                        "hlod.trees.max"};
    struct hb *b = &c->b;
    int64_t dims[2] = {f->n, TREE_COLUMNS};
    if (x->shape->rank != 2 || f->n < 1 || x->shape->dims[1] < 1)
        return onnx_fail(c, "input %s, %lld nodes", onnx_show(c, x), (long long)f->n), x;
    enum dtype t = x->shape->dtype == DT_F64 ? DT_F64 : DT_F32;
    enum hlo_op op = f->how == AGG_MIN ? HLO_MINIMUM : f->how == AGG_MAX ? HLO_MAXIMUM : HLO_ADD;
    int64_t leaves = number_leaves(c, f, x->shape->dims[1]);
    if (leaves < 0) return x;
    if (trees_heights(c->a, (const int32_t(*)[TREE_COLUMNS])f->node, f->n, f->root, f->roots,
                      NULL) < 0)
        return onnx_fail(c, "the nodes do not make trees"), x;
    hv values = leaf_table(c, f, leaves, t, op);
    if (!values) return x;
    struct hlo_attr_custom call = {.custom_call_target = str_of(names[f->how])};
    const struct shape *flat = shape_make(c->a, t, dims, 1);
    hv node = hb_constant(b, lit_borrow(c->a, shape_make(c->a, DT_S32, dims, 2), f->node)),
       split = t == DT_F64 ? hb_constant(b, lit_borrow(c->a, flat, f->split))
                           : onnx_lit_f64s(c, t, f->split, dims, 1),
       root = hb_constant(b, lit_borrow(c->a, shape_make(c->a, DT_S32, &f->roots, 1), f->root));
    hv in[5] = {hb_convert(b, x, t), node, split, root, values};
    int64_t size[2] = {x->shape->dims[0], f->targets};
    hv r = hb_op(b, HLO_CUSTOM_CALL, shape_make(c->a, t, size, 2), in, 5, &call);
    return f->how == AGG_AVERAGE ? onnx_mul_k(c, r, 1 / (double)f->roots) : r;
}

// Does every row come to a weight of every target? So it is where some tree has one in each leaf.
static bool reaches_all(struct onnx_ctx *c, const struct forest *f) {
    if (f->targets > MAX_WEIGHTS / f->n) return true;

    // By node and target: has each leaf below one? Children first, each node once: trees may share
    // nodes, and paths may be many more than nodes.
    uint8_t *every = arena_zarray(c->a, uint8_t, f->n * f->targets),
            *done = arena_zarray(c->a, uint8_t, f->n);
    int32_t *stack = arena_array(c->a, int32_t, f->n + 1);
    for (int64_t k = 0; k < f->weights; k++)
        every[f->leaf[k] * f->targets + f->target[k]] = 1;
    for (int64_t k = 0; k < f->n; k++)
        done[k] = is_leaf(f, k);

    for (int64_t r = 0; r < f->roots; r++) {
        int64_t n = 0;
        for (stack[n++] = f->root[r]; n > 0;) {
            int64_t k = stack[n - 1], yes = f->node[k][TREE_YES], no = f->node[k][TREE_NO];
            if (!done[k] && (!done[yes] || !done[no])) {
                stack[n++] = (int32_t)(done[yes] ? no : yes);
                continue;
            }
            for (int64_t t = 0; t < f->targets && !done[k]; t++)
                every[k * f->targets + t] =
                    every[yes * f->targets + t] & every[no * f->targets + t];
            done[k] = 1;
            n--;
        }
    }

    for (int64_t t = 0; t < f->targets; t++) {
        bool sure = false;
        for (int64_t r = 0; r < f->roots && !sure; r++)
            sure = every[(int64_t)f->root[r] * f->targets + t];
        if (!sure) return false;
    }
    return true;
}
// Which targets does a row of x come to a weight of? NULL where that is each.
static hv reached(struct onnx_ctx *c, const struct forest *f, hv x) {
    struct forest counts = *f;
    if (!hb_ok(&c->b) || f->targets < 2 || reaches_all(c, f)) return NULL;
    counts.how = AGG_SUM;
    counts.node = arena_alloc_aligned(c->a, sizeof *f->node * (size_t)(f->n + 1), 64);
    memcpy(counts.node, f->node, sizeof *f->node * (size_t)f->n); // scores() writes columns
    counts.weight = arena_array(c->a, double, f->weights + 1);
    for (int64_t k = 0; k < f->weights; k++)
        counts.weight[k] = 1;
    hv n = scores(c, &counts, x);
    return hb_ok(&c->b) ? onnx_compare_k(c, n, 0, CMP_GT) : NULL;
}
// y, of several targets, with `none` for those that a row comes to no weight of. For 0: ONNX
// Runtime adds no base value there, and a minimum or maximum of nothing is 0.
static hv where_reached(struct onnx_ctx *c, const struct forest *f, hv x, hv y, double none) {
    hv on = reached(c, f, x);
    return on ? hb_select(&c->b, on, y, onnx_splat_like(c, y, none)) : y;
}

// ---- TreeEnsemble: links go to nodes or, where marked, to leaves

// A test for membership becomes one equality a member, each "no" leading to the next.
static size_t add_members(struct onnx_ctx *c, struct forest *f, int64_t k, const struct literal *m,
                          size_t at) {
    const int32_t *first = f->node[k];
    int32_t feature = first[TREE_FEATURE], yes = first[TREE_YES], no = first[TREE_NO];
    int kind = TREE_EQ | (first[TREE_KIND] & TREE_MISSING);
    int64_t n = m ? shape_elements(m->shape) : 0, last = -1;
    for (; (int64_t)at < n && !isnan(lit_get_f64(m, (int64_t)at)); at++) {
        double v = lit_get_f64(m, (int64_t)at);
        if (last < 0) {
            f->node[k][TREE_KIND] = kind;
            f->split[k] = v;
            last = k;
            continue;
        }
        f->node[last][TREE_NO] = (int32_t)f->n;
        last = f->n;
        add_node(f, feature, yes, no, kind, v);
    }
    if (last < 0) onnx_fail(c, "membership_values are missing");
    return at + 1;
}
// Nodes, then leaves, then what sets are spelled out in.
static void read_links(struct onnx_ctx *c, struct forest *f, const struct literal *split,
                       const struct literal *mode, int64_t leaves) {
    const struct onnx_attr *feature = list(c, "nodes_featureids"),
                           *yes = list(c, "nodes_truenodeids"), *no = list(c, "nodes_falsenodeids"),
                           *yes_leaf = list(c, "nodes_trueleafs"),
                           *no_leaf = list(c, "nodes_falseleafs"),
                           *missing = list(c, "nodes_missing_value_tracks_true");
    int64_t n = shape_elements(split->shape);
    for (int64_t k = 0; k < n; k++) {
        int64_t m = lit_get_i64(mode, k),
                to[2] = {int_at(yes, (size_t)k, -1), int_at(no, (size_t)k, -1)};
        if (m < 0 || m > TREE_MEMBER) return onnx_fail(c, "mode %lld", (long long)m);
        bool leaf[2] = {int_at(yes_leaf, (size_t)k, 0) != 0, int_at(no_leaf, (size_t)k, 0) != 0};
        for (int side = 0; side < 2; side++) { // a leaf's number counts from the last node on
            bool there = to[side] >= 0 && to[side] < (leaf[side] ? leaves : n);
            to[side] = there ? to[side] + leaf[side] * n : -1;
        }
        int kind = (int)m | (int_at(missing, (size_t)k, 0) ? TREE_MISSING : 0);
        add_node(f, narrow(feature->ints.v[k]), (int32_t)to[0], (int32_t)to[1], kind,
                 lit_get_f64(split, k));
    }
    for (int64_t k = 0; k < leaves; k++)
        add_node(f, 0, 0, 0, TREE_LEAF, 0);
}
ONNX(treeensemble) {
    struct forest f = {.targets = onnx_at_int(c, "n_targets", 1),
                       .how = (enum aggregate)onnx_at_int(c, "aggregate_function", AGG_SUM)};
    const struct onnx_attr *feature = list(c, "nodes_featureids"), *roots = list(c, "tree_roots"),
                           *targets = list(c, "leaf_targetids");
    static const char *const posts[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    int64_t post = onnx_at_int(c, "post_transform", 0);

    const struct literal *split = numbers_of(c, "nodes_splits", NULL),
                         *mode = numbers_of(c, "nodes_modes", NULL),
                         *weight = numbers_of(c, "leaf_weights", NULL),
                         *members = list(c, "membership_values")
                                        ? numbers_of(c, "membership_values", NULL)
                                        : NULL;
    if (!hb_ok(b)) return;

    size_t n = feature ? feature->ints.n : 0, leaves = targets ? targets->ints.n : 0, used = 0;
    int64_t sets = members ? shape_elements(members->shape) : 0;
    if (!roots || n > MAX_NODES || leaves > MAX_NODES || sets > MAX_NODES || post < 0 || post > 4 ||
        f.how > AGG_MAX || (int64_t)n != shape_elements(split->shape) ||
        (int64_t)n != shape_elements(mode->shape) ||
        (int64_t)leaves != shape_elements(weight->shape))
        return onnx_fail(c, "attributes of %zu nodes and %zu leaves do not match", n, leaves);

    forest_room(c, &f, (int64_t)(n + leaves) + sets, (int64_t)roots->ints.n, (int64_t)leaves);
    read_links(c, &f, split, mode, (int64_t)leaves);
    for (size_t k = 0; k < n && hb_ok(b); k++)
        if ((f.node[k][TREE_KIND] & 7) == TREE_MEMBER)
            used = add_members(c, &f, (int64_t)k, members, used);

    for (size_t k = 0; k < leaves; k++) {
        f.leaf[k] = (int32_t)(n + k);
        f.target[k] = narrow(targets->ints.v[k]);
        f.weight[k] = lit_get_f64(weight, (int64_t)k);
    }
    f.weights = (int64_t)leaves;
    for (size_t k = 0; k < roots->ints.n; k++)
        f.root[f.roots++] = narrow(roots->ints.v[k]);

    if (!hb_ok(b)) return;
    hv x = onnx_in_val(c, 0), y = where_reached(c, &f, x, scores(c, &f, x), 0);
    y = onnx_ml_post_targets(c, y, str_of(posts[post]));
    onnx_out_val(c, 0, hb_convert(b, y, x->shape->dtype));
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
    if (str_is(s, "LEAF")) return TREE_LEAF;
    for (int k = 0; k < 6; k++)
        if (str_is(s, names[k])) return (enum tree_mode)k;
    return TREE_MEMBER;
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
        return onnx_fail(c, "attributes of %zu nodes do not match", n), false;

    struct node_key *keys = arena_array(c->a, struct node_key, n + 1);
    bool *child = arena_zarray(c->a, bool, n + 1);
    for (size_t k = 0; k < n; k++)
        keys[k] = (struct node_key){tree->ints.v[k], node->ints.v[k]};
    number_nodes(ids, keys, n);
    forest_room(c, f, (int64_t)n, (int64_t)n, (int64_t)m);

    for (size_t k = 0; k < n; k++) {
        enum tree_mode kind = mode_named(mode->strings.v[k]);
        bool leaf = kind == TREE_LEAF;
        if (kind == TREE_MEMBER)
            return onnx_fail(c, "mode '" STR_FMT "' is not known", STR_ARG(mode->strings.v[k])),
                   false;
        int64_t to[2] = {leaf ? 0 : node_number(ids, keys[k].tree, int_at(yes, k, -1)),
                         leaf ? 0 : node_number(ids, keys[k].tree, int_at(no, k, -1))};
        for (int side = 0; side < 2 && !leaf; side++)
            if (to[side] >= 0) child[to[side]] = true;
        add_node(f, narrow(int_at(feature, k, 0)), (int32_t)to[0], (int32_t)to[1],
                 (int)kind | (int_at(missing, k, 0) ? TREE_MISSING : 0),
                 lit_get_f64(split, (int64_t)k));
    }

    for (size_t k = 0; k < n; k++)
        if (!child[k]) f->root[f->roots++] = (int32_t)k;

    // Of a single target ONNX Runtime reads each leaf's first weight alone, and skl2onnx writes
    // more (as many as there are classes) for what is no sum: the leaves' numbers.
    bool *given = arena_zarray(c->a, bool, n + 1);
    for (size_t k = 0; k < m; k++) {
        int64_t leaf = node_number(ids, int_at(wtree, k, 0), int_at(wnode, k, -1)), at = f->weights;
        if (f->targets == 1 && leaf >= 0 && given[leaf]) continue;
        if (leaf >= 0) given[leaf] = true;
        f->leaf[at] = (int32_t)leaf;
        f->target[at] = f->targets == 1 ? 0 : narrow(wid->ints.v[k]);
        f->weight[at] = lit_get_f64(w, (int64_t)k);
        f->weights++;
    }
    return true;
}
static hv add_base(struct onnx_ctx *c, hv y) {
    const struct literal *base = numbers_of(c, "base_values_as_tensor", "base_values");
    int64_t n = shape_elements(base->shape);
    if (n == 0 || !hb_ok(&c->b)) return y;
    if (n != y->shape->dims[1]) return onnx_fail(c, "%lld base_values", (long long)n), y;
    hv v = hb_convert(&c->b, hb_constant(&c->b, lit_clone(c->a, base)), y->shape->dtype);
    return hb_add(&c->b, y, onnx_along(c, hb_reshape(&c->b, v, &n, 1), y->shape, 1));
}
// Scores without base values, in the type that the comparisons have.
static hv rows_in_floats(struct onnx_ctx *c) {
    hv x = onnx_in_val(c, 0);
    return dtype_is_float(x->shape->dtype) ? x : hb_convert(&c->b, x, DT_F32);
}
static hv named_forest(struct onnx_ctx *c, struct forest *f, const char *role) {
    struct node_ids ids = {0};
    hv x = rows_in_floats(c), y = x;
    if (read_forest(c, f, &ids, role)) y = scores(c, f, x);
    smap_done(&ids.any);
    smap_done(&ids.first);
    return y;
}
static hv with_base(struct onnx_ctx *c, hv y) {
    return hb_ok(&c->b) ? hb_convert(&c->b, add_base(c, y), DT_F32) : y;
}
ONNX(treeregressor) {
    struct str how = onnx_at_str(c, "aggregate_function", "SUM");
    struct forest f = {.targets = onnx_at_int(c, "n_targets", 1),
                       .how = str_is(how, "AVERAGE") ? AGG_AVERAGE
                              : str_is(how, "MIN")   ? AGG_MIN
                              : str_is(how, "MAX")   ? AGG_MAX
                                                     : AGG_SUM};
    hv y = with_base(c, named_forest(c, &f, "target"));
    y = where_reached(c, &f, rows_in_floats(c), y, 0);
    onnx_out_val(c, 0, onnx_ml_post_targets(c, y, onnx_at_str(c, "post_transform", "NONE")));
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
    if (nb > 2) return onnx_fail(c, "%lld base_values", (long long)nb);
    for (int64_t k = 0; k < f->weights; k++)
        positive &= f->weight[k] >= 0;
    s = hb_convert(b, onnx_part(c, s, 1, with, with + 1), DT_F32);
    if (with == 0 && nb) s = onnx_add_k(c, s, lit_get_f64(base, 0));
    if (with == 1 && nb == 2) s = onnx_splat_like(c, s, lit_get_f64(base, 1));
    hv second = onnx_compare_k(c, s, positive ? 0.5 : 0, CMP_GT);
    int64_t rows = s->shape->dims[0];
    onnx_ml_label_at(c, hb_convert(b, hb_reshape(b, second, &rows, 1), DT_S64), labels);
    if (with == 0 && nb < 2) return onnx_out_val(c, 1, onnx_ml_two_scores(c, s, positive, post));
    hv zero = onnx_splat_like(c, s, 0), pair[2] = {with ? zero : s, with ? s : zero};
    onnx_out_val(c, 1, onnx_ml_post_transform(c, hb_concat(b, pair, 2, 1), post));
}
// One class (a forest that saw one): as ONNX Runtime has it, the label is 1 where the sum is above
// 0 and 0 elsewhere, whatever the class is called, and the score is the sum. It has no answer for a
// text; here it is the one there is.
static void one_class(struct onnx_ctx *c, struct forest *f, const struct onnx_attr *labels,
                      struct str post) {
    struct hb *b = &c->b;
    f->targets = 1;
    hv s = with_base(c, named_forest(c, f, "class"));
    if (!hb_ok(b)) return;
    int64_t rows = s->shape->dims[0];
    hv above = onnx_compare_k(c, s, 0, CMP_GT);
    hv label = hb_convert(b, hb_reshape(b, above, &rows, 1), DT_S64);
    if (labels->strings.n)
        onnx_ml_label_at(c, onnx_splat_like(c, label, 0), labels);
    else
        onnx_out_val(c, 0, label);
    onnx_out_val(c, 1, str_is(post, "PROBIT") ? onnx_ml_post_transform(c, s, post) : s);
}
ONNX(treeclassifier) {
    const struct onnx_attr *labels = onnx_ml_labels(c, "classlabels_int64s", "classlabels_strings"),
                           *ids = list(c, "class_ids");
    struct str post = onnx_at_str(c, "post_transform", "NONE");
    struct forest f = {.how = AGG_SUM};
    bool several = false;
    size_t n = labels ? labels->ints.n + labels->strings.n : 0;
    if (n < 1 || !ids || !ids->ints.n) return onnx_fail(c, "%zu labels", n);
    if (n == 1) return one_class(c, &f, labels, post);
    for (size_t k = 0; k < ids->ints.n; k++)
        several |= ids->ints.v[k] != ids->ints.v[0];
    if (n == 2 && !several && (ids->ints.v[0] == 0 || ids->ints.v[0] == 1))
        return one_weight(c, &f, ids->ints.v[0], labels, post);
    f.targets = (int64_t)n;
    hv y = with_base(c, named_forest(c, &f, "class")), choice = y;
    if (!hb_ok(b)) return;
    // Without base values a class that a row comes to no weight of is not chosen, as in ONNX
    // Runtime.
    bool base = list(c, "base_values") || list(c, "base_values_as_tensor");
    if (n > 2 && !base) choice = where_reached(c, &f, rows_in_floats(c), y, -INFINITY);
    onnx_ml_label(c, choice, labels);
    onnx_out_val(c, 1, onnx_ml_post_transform(c, y, post));
}
