// SPDX-License-Identifier: Apache-2.0
// Reading the call, its depth, and its form as gathers: every row walks all trees at once, a level
// a step, by looking the table's columns up; leaves point to themselves.
#include "compiler/calls/trees.h"

#include <math.h>

static const struct {
    const char *target;
    enum hlo_op how;
} calls[] = {{"hlod.trees.sum", HLO_ADD},
             {"hlod.trees.min", HLO_MINIMUM},
             {"hlod.trees.max", HLO_MAXIMUM}};
enum { OPERANDS = 5 };

static int which(const struct hlo_instr *i) {
    if (i->op != HLO_CUSTOM_CALL) return -1;
    for (size_t k = 0; k < sizeof calls / sizeof calls[0]; k++)
        if (str_is(HLO_ATTR(i, custom)->custom_call_target, calls[k].target)) return (int)k;
    return -1;
}
bool trees_is(const struct hlo_instr *i) {
    return which(i) >= 0 && i->n_operands == OPERANDS;
}
bool trees_are_constant(const struct hlo_instr *i) {
    for (int k = 1; k < i->n_operands; k++)
        if (i->operands[k]->op != HLO_CONSTANT || !shape_in_order(i->operands[k]->shape))
            return false;
    return shape_in_order(i->operands[0]->shape) && shape_in_order(i->shape);
}

// ---- checks

enum { NEW, OPEN, DONE };
// Heights are found children first, with a stack; a node that is met while it is open closes a
// cycle.
int trees_heights(struct arena *a, const int32_t (*node)[TREE_COLUMNS], int64_t n,
                  const int32_t *root, int64_t n_roots, int *by_root) {
    int64_t *stack = arena_array(a, int64_t, 2 * n + 1), top;
    int *height = arena_zarray(a, int, n + 1), depth = 0;
    uint8_t *state = arena_zarray(a, uint8_t, n + 1);

    for (int64_t r = 0; r < n_roots; r++) {
        if (root[r] < 0 || root[r] >= n) return -1;
        for (stack[0] = root[r], top = 1; top;) {
            int64_t k = stack[top - 1];
            bool leaf = (node[k][TREE_KIND] & 7) == TREE_LEAF, wait = false;
            int below = 0;
            for (int side = TREE_YES; side <= TREE_NO && !leaf; side++) {
                int64_t to = node[k][side];
                if (to < 0 || to >= n || state[to] == OPEN) return -1;
                if (state[to] == NEW && !wait) {
                    state[k] = OPEN;
                    stack[top++] = to;
                    wait = true;
                }
                if (height[to] > below) below = height[to];
            }
            if (wait) continue;
            state[k] = DONE;
            height[k] = leaf ? 0 : below + 1;
            if (height[k] > TREES_MAX_DEPTH) return -1;
            top--;
        }
        if (by_root) by_root[r] = height[root[r]];
        if (height[root[r]] > depth) depth = height[root[r]];
    }
    return depth;
}

static bool is(const struct shape *s, enum dtype t, int rank) {
    return !shape_is_tuple(s) && s->dtype == t && s->rank == rank && !s->dynamic;
}
static bool shapes_fit(const struct hlo_instr *i, struct trees *t) {
    if (!trees_is(i) || shape_is_tuple(i->operands[0]->shape)) return false;
    const struct shape *s[OPERANDS], *r = i->shape;
    for (int k = 0; k < OPERANDS; k++)
        s[k] = i->operands[k]->shape;
    t->type = s[0]->dtype;
    if ((t->type != DT_F32 && t->type != DT_F64) || !is(s[0], t->type, 2) || !is(s[1], DT_S32, 2) ||
        !is(s[2], t->type, 1) || !is(s[3], DT_S32, 1) || !is(s[4], t->type, 2) ||
        !is(r, t->type, 2))
        return false;
    t->rows = s[0]->dims[0], t->features = s[0]->dims[1];
    t->nodes = s[1]->dims[0], t->roots = s[3]->dims[0];
    t->leaves = s[4]->dims[0], t->width = s[4]->dims[1], t->targets = r->dims[1];
    return s[1]->dims[1] == TREE_COLUMNS && s[2]->dims[0] == t->nodes && r->dims[0] == t->rows &&
           (t->width == t->targets || t->width == 1) && t->targets > 0 && t->features > 0;
}
status_t trees_read(struct arena *a, const struct hlo_instr *i, struct literal *const *in,
                    struct trees *out) {
    const struct literal *v[OPERANDS] = {NULL};
    if (!shapes_fit(i, out))
        return st_invalid("instruction '%s': operands of hlod.trees do not fit %s", i->name,
                          shape_text(a, i->shape));
    out->how = calls[which(i)].how;
    for (int k = 1; k < OPERANDS; k++)
        v[k] = in ? in[k] : i->operands[k]->literal;
    out->node = (const int32_t(*)[TREE_COLUMNS])v[1]->data;
    out->split = v[2];
    out->root = v[3]->data;
    out->values = v[4];
    out->depth = trees_heights(a, out->node, out->nodes, out->root, out->roots, NULL);
    if (out->depth < 0) return st_invalid("instruction '%s': the nodes do not make trees", i->name);
    for (int64_t k = 0; k < out->nodes; k++) {
        const int32_t *n = out->node[k];
        int mode = n[TREE_KIND] & 7;
        bool leaf = mode == TREE_LEAF;
        if (mode == TREE_MEMBER || (n[TREE_KIND] & ~15) ||
            (leaf ? n[TREE_YES] < 0 || n[TREE_YES] >= out->leaves || n[TREE_FEATURE] < 0 ||
                        n[TREE_FEATURE] > out->targets - out->width
                  : n[TREE_FEATURE] < 0 || n[TREE_FEATURE] >= out->features))
            return st_invalid("instruction '%s': node %lld has feature %d, kind %d, link %d",
                              i->name, (long long)k, n[TREE_FEATURE], n[TREE_KIND], n[TREE_YES]);
    }
    return ST_OK;
}

// ---- as gathers

static hv look_up(struct hb *b, hv table, hv at) { // rows of the table
    int64_t sizes[2], zero = 0, two = 2;
    for (int d = 0; d < table->shape->rank; d++)
        sizes[d] = d ? table->shape->dims[d] : 1;
    struct hlo_attr_gather g = {.offset_dims = {&two, table->shape->rank - 1},
                                .collapsed_slice_dims = {&zero, 1},
                                .start_index_map = {&zero, 1},
                                .index_vector_dim = 2,
                                .slice_sizes = {sizes, table->shape->rank}};
    return hb_gather(b, table, at, &g);
}
static hv features_at(struct hb *b, hv x, hv feature) {
    struct arena *a = b->c->module->arena;
    int64_t dims[3] = {feature->shape->dims[0], feature->shape->dims[1], 1};
    int64_t both[2] = {0, 1}, ones[2] = {1, 1};
    hv row = hb_iota(b, shape_make(a, DT_S32, dims, 3), 0);
    hv at = hb_concat(b, (hv[]){row, hb_reshape(b, feature, dims, 3)}, 2, 2);
    struct hlo_attr_gather g = {.collapsed_slice_dims = {both, 2},
                                .start_index_map = {both, 2},
                                .index_vector_dim = 2,
                                .slice_sizes = {ones, 2}};
    return hb_gather(b, x, at, &g);
}
// A column of the nodes with leaves that stay where they are and ask for feature 0.
static hv column(struct hb *b, const struct trees *t, int which_one) {
    struct arena *a = b->c->module->arena;
    struct literal *l = lit_new(a, shape_make(a, DT_S32, &t->nodes, 1));
    for (int64_t k = 0; k < t->nodes; k++) {
        bool leaf = (t->node[k][TREE_KIND] & 7) == TREE_LEAF;
        int64_t v = t->node[k][which_one];
        if (leaf && which_one == TREE_FEATURE) v = 0;
        if (leaf && (which_one == TREE_YES || which_one == TREE_NO)) v = k;
        lit_set_i64(l, k, v);
    }
    return hb_constant(b, l);
}
struct columns { // constants, made once
    hv feature, yes, no, kind, leaf, target; // target: NULL where a leaf has values for all
    bool used[TREE_LEAF + 1], missing;
};
static struct columns columns_of(struct hb *b, const struct trees *t) {
    struct columns c = {column(b, t, TREE_FEATURE), column(b, t, TREE_YES), column(b, t, TREE_NO),
                        column(b, t, TREE_KIND), NULL, NULL, {false}, false};
    struct arena *a = b->c->module->arena;
    struct literal *leaf = lit_new(a, shape_make(a, DT_S32, &t->nodes, 1)),
                   *target = lit_new(a, leaf->shape);
    for (int64_t k = 0; k < t->nodes; k++) {
        int mode = t->node[k][TREE_KIND] & 7;
        c.used[mode] = true;
        c.missing |= (t->node[k][TREE_KIND] & TREE_MISSING) != 0;
        lit_set_i64(leaf, k, mode == TREE_LEAF ? t->node[k][TREE_YES] : 0);
        lit_set_i64(target, k, mode == TREE_LEAF ? t->node[k][TREE_FEATURE] : 0);
    }
    c.leaf = hb_constant(b, leaf);
    if (t->width < t->targets) c.target = hb_constant(b, target);
    return c;
}
static hv holds(struct hb *b, const struct columns *c, hv v, hv limit, hv at) {
    static const enum cmp_direction compare[] = {CMP_LE, CMP_LT, CMP_GE, CMP_GT, CMP_EQ, CMP_NE};
    hv yes = NULL, kind = NULL;
    for (int m = TREE_LEQ; m <= TREE_NEQ; m++) {
        if (!c->used[m]) continue;
        hv now = hb_compare(b, v, limit, compare[m]);
        if (yes && !kind) kind = look_up(b, c->kind, at);
        if (yes) {
            hv mode = hb_binary(b, HLO_AND, kind, hb_splat(b, kind->shape, 7));
            now = hb_select(b, hb_compare(b, mode, hb_splat(b, mode->shape, m), CMP_EQ), now, yes);
        }
        yes = now;
    }
    if (!c->missing) return yes;
    if (!kind) kind = look_up(b, c->kind, at);
    hv track = hb_compare(b, kind, hb_splat(b, kind->shape, TREE_MISSING), CMP_GE);
    return hb_binary(b, HLO_OR, yes,
                     hb_binary(b, HLO_AND, track, hb_compare(b, v, v, CMP_NE)));
}
hv trees_as_gathers(struct hb *b, const struct hlo_instr *i, const struct trees *t) {
    int64_t dims[2] = {t->rows, t->roots}, one = 1;
    struct columns c = columns_of(b, t);
    hv x = i->operands[0], at = hb_broadcast(b, i->operands[3], dims, 2, &one);
    for (int k = 0; k < t->depth && hb_ok(b); k++) { // depth > 0: there is a comparison
        hv v = features_at(b, x, look_up(b, c.feature, at));
        hv yes = holds(b, &c, v, look_up(b, i->operands[2], at), at);
        at = hb_select(b, yes, look_up(b, c.yes, at), look_up(b, c.no, at));
    }
    hv all = look_up(b, i->operands[4], look_up(b, c.leaf, at));
    double init = t->how == HLO_ADD ? 0 : t->how == HLO_MINIMUM ? INFINITY : -INFINITY;
    if (c.target) { // the value where it belongs, what changes nothing elsewhere
        int64_t wide[3] = {t->rows, t->roots, t->targets}, both[2] = {0, 1};
        hv value = hb_broadcast(b, hb_reshape(b, all, wide, 2), wide, 3, both),
           to = hb_broadcast(b, look_up(b, c.target, at), wide, 3, both),
           number = hb_iota(b, shape_make(b->c->module->arena, DT_S32, wide, 3), 2);
        all = hb_select(b, hb_compare(b, to, number, CMP_EQ), value,
                        hb_splat(b, value->shape, init));
    }
    return hb_reduce(b, all, hb_const_f64(b, t->type, init), &one, 1, t->how);
}
