// SPDX-License-Identifier: Apache-2.0
// trees: the call of compiler/calls/trees.h. At load the nodes are laid out anew, in the order of a
// walk, the two children of a node side by side, with what a step needs in one line of the cache.
// Eight walks go side by side, of eight rows or, where rows are few, of eight trees: a step finds
// its child without a branch, so what one waits for its memory the others use. A leaf is its own
// child; leaves' values come last, by tree in order, so that sums do not depend on how rows are
// shared out. Nodes that share children, and modes that differ, take a second form with both links
// in the node. Does not: tables that are not constants (the reference evaluator's).
#include <math.h>

#include "compiler/calls/trees.h"
#include "devices/cpu/routines/cpu_trees_bits.h"

enum { LANES = 8, BLOCK = 256, BITS_ROWS = 3, // as many rows make a block of bits pay
        FIRST_STEPS = 6, MORE_STEPS = 3, MODES = TREE_NEQ + 1 };
// Pairs: `to` is the byte offset of the child where the comparison holds; the other one lies
// `other` bytes behind it (0 in a leaf). Links: both are byte offsets. A negative feature is
// ~feature, and NaN counts as holding. Where no leaf has several values, `split` of a leaf is its
// value.
struct node32 {
    float split;
    int32_t feature, to, other;
};
struct node64 {
    double split;
    int32_t feature, to, other, spare[3];
};
struct entry { // what a leaf has for a target
    int32_t target;
    double value;
};
struct trees_state;
// Moves eight walks by `steps`, or until all of them stand on leaves; at: byte offsets.
typedef void (*walk_fn)(const struct trees_state *s, const void *const *rows, int32_t *at,
                        int steps);
struct trees_state {
    struct trees t;
    char *nodes;
    uint8_t *kinds;         // by node, with links
    int32_t *roots, *first; // byte offsets; entries of node k: [first[k], first[k + 1])
    int32_t *target;        // by node, where no leaf has several values; else NULL
    int *steps;             // by tree
    struct entry *entries;
    int64_t n;
    int shift; // bytes of a node = 1 << shift
    walk_fn walk;
    struct trees_bits *bits; // another form of small trees, for many rows; may be NULL
    int64_t grain;
};

// ---- walks

#define HOLDS(MODE, X, SPLIT)                                                                      \
    ((MODE) == TREE_LEQ   ? (X) <= (SPLIT)                                                         \
     : (MODE) == TREE_LT  ? (X) < (SPLIT)                                                          \
     : (MODE) == TREE_GTE ? (X) >= (SPLIT)                                                         \
     : (MODE) == TREE_GT  ? (X) > (SPLIT)                                                          \
     : (MODE) == TREE_EQ  ? (X) == (SPLIT)                                                         \
                          : (X) != (SPLIT))
#define STEP_PAIR(BITS, TYPE, MODE, MISSING)                                                       \
    const struct node##BITS *e = (const struct node##BITS *)(n + at[k]);                           \
    int32_t way = MISSING ? e->feature >> 31 : 0;                                                  \
    TYPE v = x[k][e->feature ^ way];                                                               \
    int32_t no = -(int32_t)!HOLDS(MODE, v, e->split);                                              \
    if (MISSING) no &= ~(way & -(int32_t)(v != v));                                                \
    int32_t to = e->to + (no & e->other);
#define STEP_LINK(BITS, TYPE, MODE, MISSING)                                                       \
    const struct node##BITS *e = (const struct node##BITS *)(n + at[k]);                           \
    int32_t way = e->feature >> 31, mode = s->kinds[at[k] / (int32_t)sizeof *e];                   \
    TYPE v = x[k][e->feature ^ way];                                                               \
    int32_t to = HOLDS(mode, v, e->split) | (way & (v != v)) ? e->to : e->other;
#define EACH_LANE _Pragma("GCC unroll 8") for (int k = 0; k < LANES; k++)
#define WALK(NAME, STEP, BITS, TYPE, MODE, MISSING)                                                \
    static void NAME(const struct trees_state *s, const void *const *rows, int32_t *out,           \
                     int steps) {                                                                  \
        const char *n = s->nodes;                                                                  \
        const TYPE *x[LANES];                                                                      \
        int32_t at[LANES], moved = 1;                                                              \
        memcpy(at, out, sizeof at);                                                                \
        memcpy(x, rows, sizeof x);                                                                 \
        int left = steps < FIRST_STEPS ? steps : FIRST_STEPS;                                      \
        for (steps -= left; left > 0; left--)                                                      \
            EACH_LANE {                                                                            \
                STEP(BITS, TYPE, MODE, MISSING)                                                    \
                at[k] = to;                                                                        \
            }                                                                                      \
        for (; steps > 0 && moved; steps -= MORE_STEPS) {                                          \
            for (int more = 1; more < MORE_STEPS; more++)                                          \
                EACH_LANE {                                                                        \
                    STEP(BITS, TYPE, MODE, MISSING)                                                \
                    at[k] = to;                                                                    \
                }                                                                                  \
            moved = 0;                                                                             \
            EACH_LANE {                                                                            \
                STEP(BITS, TYPE, MODE, MISSING)                                                    \
                moved |= to ^ at[k];                                                               \
                at[k] = to;                                                                        \
            }                                                                                      \
        }                                                                                          \
        memcpy(out, at, sizeof at);                                                                \
    }
#define WALKS(NAME, MODE)                                                                          \
    WALK(NAME##32, STEP_PAIR, 32, float, MODE, false)                                              \
    WALK(NAME##32_nan, STEP_PAIR, 32, float, MODE, true)                                           \
    WALK(NAME##64, STEP_PAIR, 64, double, MODE, false)                                             \
    WALK(NAME##64_nan, STEP_PAIR, 64, double, MODE, true)
WALKS(leq, TREE_LEQ)
WALKS(lt, TREE_LT)
WALKS(gte, TREE_GTE)
WALKS(gt, TREE_GT)
WALKS(eq, TREE_EQ)
WALKS(neq, TREE_NEQ)
WALK(link32, STEP_LINK, 32, float, 0, true)
WALK(link64, STEP_LINK, 64, double, 0, true)

static walk_fn walk_of(bool wide, bool missing, int mode) { // mode: MODES = links
#define ROW(NAME) {{NAME##32, NAME##32_nan}, {NAME##64, NAME##64_nan}}
    static const walk_fn all[MODES + 1][2][2] = {
        ROW(leq), ROW(lt), ROW(gte), ROW(gt), ROW(eq), ROW(neq),
        {{link32, link32}, {link64, link64}}};
#undef ROW
    return all[mode][wide][missing];
}

// ---- values

static inline double combine(enum hlo_op how, double x, double y) {
    return how == HLO_ADD ? x + y : how == HLO_MINIMUM ? (y < x ? y : x) : (y > x ? y : x);
}
static void add_leaf(const struct trees_state *s, int32_t at, void *scores) {
    bool wide = s->t.type == DT_F64;
    int64_t leaf = at >> s->shift;
    for (int32_t e = s->first[leaf]; e < s->first[leaf + 1]; e++) {
        const struct entry *v = &s->entries[e];
        double *d = (double *)scores + v->target;
        float *f = (float *)scores + v->target;
        if (wide)
            *d = combine(s->t.how, *d, v->value);
        else
            *f = (float)combine(s->t.how, (double)*f, v->value);
    }
}
static void start_scores(const struct trees_state *s, void *scores, int64_t n) {
    double v = s->t.how == HLO_ADD ? 0 : s->t.how == HLO_MINIMUM ? INFINITY : -INFINITY;
    for (int64_t k = 0; k < n; k++)
        if (s->t.type == DT_F64)
            ((double *)scores)[k] = v;
        else
            ((float *)scores)[k] = (float)v;
}
// Values of eight walks, each for a row of its own (stride in elements) or all for one row.
static void add_leaves(const struct trees_state *s, const int32_t *at, char *scores,
                       int64_t stride, int n) {
    int size = (int)dtype_size(s->t.type);
    if (!s->target || s->t.how != HLO_ADD) {
        for (int k = 0; k < n; k++)
            add_leaf(s, at[k], scores + k * stride * size);
    } else if (s->t.type == DT_F64) {
        for (int k = 0; k < n; k++)
            ((double *)scores)[k * stride + s->target[at[k] >> s->shift]] +=
                ((const struct node64 *)(s->nodes + at[k]))->split;
    } else {
        for (int k = 0; k < n; k++)
            ((float *)scores)[k * stride + s->target[at[k] >> s->shift]] +=
                ((const struct node32 *)(s->nodes + at[k]))->split;
    }
}
struct trees_call {
    const struct trees_state *s;
    const char *x;
    char *scores;
};
// Eight rows, tree by tree.
static void eight_rows(const struct trees_call *c, int64_t row, int64_t tree) {
    const struct trees_state *s = c->s;
    int64_t size = dtype_size(s->t.type);
    const void *x[LANES];
    int32_t at[LANES];
    for (int k = 0; k < LANES; k++)
        x[k] = c->x + (row + k) * s->t.features * size, at[k] = s->roots[tree];
    s->walk(s, x, at, s->steps[tree]);
    add_leaves(s, at, c->scores + row * s->t.targets * size, s->t.targets, LANES);
}
// One row, eight trees at a time; the last ones again where eight do not come out even.
static void one_row(const struct trees_call *c, int64_t row) {
    const struct trees_state *s = c->s;
    int64_t size = dtype_size(s->t.type), n = s->t.roots;
    const void *x[LANES];
    int32_t at[LANES];
    for (int k = 0; k < LANES; k++)
        x[k] = c->x + row * s->t.features * size;
    for (int64_t tree = 0; tree < n; tree += LANES) {
        int steps = 0;
        for (int k = 0; k < LANES; k++) {
            int64_t one = tree + k < n ? tree + k : n - 1;
            at[k] = s->roots[one];
            if (s->steps[one] > steps) steps = s->steps[one];
        }
        s->walk(s, x, at, steps);
        add_leaves(s, at, c->scores + row * s->t.targets * size, 0,
                   (int)(n - tree < LANES ? n - tree : LANES));
    }
}
static void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) { // of eight rows each
    const struct trees_call *c = ctx;
    const struct trees_state *s = c->s;
    int64_t size = dtype_size(s->t.type), last = end * LANES;
    if (last > s->t.rows) last = s->t.rows;
    start_scores(s, c->scores + begin * LANES * s->t.targets * size,
                 (last - begin * LANES) * s->t.targets);
    for (int64_t from = begin * LANES; from < last; from += BLOCK) {
        int64_t to = from + BLOCK < last ? from + BLOCK : last, row;
        for (int64_t tree = 0; tree < s->t.roots; tree++)
            for (row = from; row + LANES <= to; row += LANES)
                eight_rows(c, row, tree);
        for (row = from + (to - from) / LANES * LANES; row < to; row++)
            one_row(c, row);
    }
}

static void bits_part(void *ctx, int64_t begin, int64_t end, int thread) { // of a block each
    const struct trees_call *c = ctx;
    const struct trees_state *s = c->s;
    int64_t size = dtype_size(s->t.type), lanes = trees_bits_lanes(s->bits);
    for (int64_t row = begin * lanes; row < end * lanes && row < s->t.rows; row += lanes) {
        int64_t n = s->t.rows - row < lanes ? s->t.rows - row : lanes;
        char *to = c->scores + row * s->t.targets * size;
        if (n >= BITS_ROWS) {
            trees_bits_block(s->bits, c->x + row * s->t.features * size, s->t.features, n, to,
                             thread);
            continue;
        }
        start_scores(s, to, n * s->t.targets);
        for (int64_t k = 0; k < n; k++)
            one_row(c, row + k);
    }
}

// ---- layout

struct layout_work {
    const struct trees *t;
    int32_t *order;         // old number by place
    int32_t *number;        // place by old number
    int32_t (*children)[2]; // places, by place
    int64_t n;
};
static bool is_leaf(const struct trees *t, int32_t old) {
    return (t->node[old][TREE_KIND] & 7) == TREE_LEAF;
}
// Places nodes in the order of a walk, both children of one side by side; false when a node has two
// parents.
static bool place_pairs(struct arena *a, struct layout_work *w, int32_t *roots) {
    int32_t *stack = arena_array(a, int32_t, 2 * w->t->nodes + 2);
    for (int64_t r = 0; r < w->t->roots; r++) {
        int64_t top = 0;
        int32_t root = w->t->root[r];
        if (w->number[root] >= 0) return false;
        roots[r] = w->number[root] = (int32_t)w->n;
        w->order[w->n++] = root;
        stack[top++] = root;
        while (top) {
            int32_t k = stack[--top], place = w->number[k];
            for (int side = 0; side < 2; side++) {
                int32_t to = w->t->node[k][TREE_YES + side];
                w->children[place][side] = place;
                if (is_leaf(w->t, k)) continue;
                if (w->number[to] >= 0) return false;
                w->children[place][side] = w->number[to] = (int32_t)w->n;
                w->order[w->n++] = to;
                stack[top++] = to;
            }
        }
    }
    return true;
}
// Every node once, at its old number.
static void place_links(struct layout_work *w, int32_t *roots) {
    w->n = w->t->nodes;
    for (int32_t k = 0; k < w->n; k++) {
        bool leaf = is_leaf(w->t, k);
        w->order[k] = k;
        for (int side = 0; side < 2; side++)
            w->children[k][side] = leaf ? k : w->t->node[k][TREE_YES + side];
    }
    memcpy(roots, w->t->root, sizeof *roots * (size_t)w->t->roots);
}
static void put_node(struct trees_state *s, const struct layout_work *w, int32_t k, bool links) {
    int32_t old = w->order[k], size = 1 << s->shift, kind = s->t.node[old][TREE_KIND];
    int32_t feature = is_leaf(&s->t, old) ? 0 : s->t.node[old][TREE_FEATURE];
    int32_t to = w->children[k][0], other = w->children[k][1] - (links ? 0 : to);
    double split = tree_number(s->t.split, s->t.type, old);
    if (kind & TREE_MISSING) feature = ~feature;
    s->kinds[k] = (uint8_t)(kind & 7);
    if (s->t.type == DT_F64)
        ((struct node64 *)s->nodes)[k] =
            (struct node64){split, feature, to * size, other * size, {0}};
    else
        ((struct node32 *)s->nodes)[k] =
            (struct node32){(float)split, feature, to * size, other * size};
}
// Sums leave zeros out: most leaves of several targets have one that counts.
static int64_t put_entries(struct trees_state *s, const int32_t *order, struct entry *out) {
    int64_t n = 0;
    for (int64_t k = 0; k < s->n; k++) {
        const int32_t *from = s->t.node[order[k]];
        bool leaf = (from[TREE_KIND] & 7) == TREE_LEAF;
        s->first[k] = (int32_t)n;
        for (int64_t c = 0; c < s->t.width && leaf; c++) {
            double v = tree_number(s->t.values, s->t.type, from[TREE_YES] * s->t.width + c);
            if (s->t.how == HLO_ADD && v == 0) continue;
            if (out) out[n] = (struct entry){from[TREE_FEATURE] + (int32_t)c, v};
            n++;
        }
    }
    s->first[s->n] = (int32_t)n;
    return n;
}
// A leaf's one value goes into the leaf.
static void put_values(struct arena *a, struct trees_state *s) {
    for (int64_t k = 0; k < s->n; k++)
        if (s->first[k + 1] - s->first[k] > 1) return;
    s->target = arena_zarray(a, int32_t, s->n + 1);
    for (int64_t k = 0; k < s->n; k++) {
        if (s->kinds[k] != TREE_LEAF) continue;
        const struct entry *e = &s->entries[s->first[k]];
        bool any = s->first[k + 1] > s->first[k];
        s->target[k] = any ? e->target : 0;
        if (s->t.type == DT_F64)
            ((struct node64 *)s->nodes)[k].split = any ? e->value : 0;
        else
            ((struct node32 *)s->nodes)[k].split = any ? (float)e->value : 0;
    }
}
// The one mode of all comparisons, or MODES.
static int common_mode(const struct trees *t, bool *missing) {
    int mode = -1;
    *missing = false;
    for (int64_t k = 0; k < t->nodes; k++) {
        int one = t->node[k][TREE_KIND] & 7;
        if (one == TREE_LEAF) continue;
        mode = mode < 0 || mode == one ? one : MODES;
        *missing |= (t->node[k][TREE_KIND] & TREE_MISSING) != 0;
    }
    return mode < 0 ? TREE_LEQ : mode;
}
static status_t lay_out(struct arena *a, struct arena *scratch, struct trees_state *s) {
    const struct trees *t = &s->t;
    struct layout_work w = {.t = t,
                            .order = arena_array(scratch, int32_t, t->nodes + 1),
                            .number = arena_array(scratch, int32_t, t->nodes + 1),
                            .children = arena_alloc(scratch, sizeof *w.children *
                                                                 (size_t)(t->nodes + 1))};
    bool missing, wide = t->type == DT_F64;
    int mode = common_mode(t, &missing);
    s->shift = wide ? 5 : 4;
    _Static_assert(sizeof(struct node64) == 32 && sizeof(struct node32) == 16, "shift");
    s->roots = arena_array(a, int32_t, t->roots + 1);
    s->steps = arena_array(a, int, t->roots + 1);
    if (t->nodes > INT32_MAX >> s->shift) return st_exhausted("%lld nodes", (long long)t->nodes);
    for (int64_t k = 0; k < t->nodes; k++)
        w.number[k] = -1;
    if (mode == MODES || !place_pairs(scratch, &w, s->roots)) {
        mode = MODES;
        place_links(&w, s->roots);
    }
    s->n = w.n;
    s->nodes = arena_alloc_aligned(a, (size_t)(s->n + 1) << s->shift, 64);
    s->kinds = arena_array(a, uint8_t, s->n + 1);
    s->first = arena_array(a, int32_t, s->n + 1);
    for (int32_t k = 0; k < s->n; k++)
        put_node(s, &w, k, mode == MODES);
    trees_heights(scratch, t->node, t->nodes, t->root, t->roots, s->steps);
    for (int64_t k = 0; k < t->roots; k++)
        s->roots[k] <<= s->shift;
    int64_t n = put_entries(s, w.order, NULL);
    if (n > INT32_MAX) return st_exhausted("leaves with %lld values", (long long)n);
    s->entries = arena_array(a, struct entry, n + 1);
    put_entries(s, w.order, s->entries);
    put_values(a, s);
    s->walk = walk_of(wide, missing, mode);
    return ST_OK;
}

// ---- the implementation

static bool trees_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                          const char **why) {
    *why = "not trees in constants";
    return trees_is(i) && trees_are_constant(i);
}
static status_t trees_open(struct cpu_exe *x, struct cpu_step *s) {
    struct trees_state *f = arena_new_of(&x->arena, struct trees_state);
    struct arena scratch = {0};
    status_t st = trees_read(&scratch, s->plan->instr, NULL, &f->t);
    if (!st) st = lay_out(&x->arena, &scratch, f);
    if (!st && f->t.rows >= BITS_ROWS) f->bits = trees_bits_new(&x->arena, &scratch, &f->t);
    arena_done(&scratch);
    RETURN_IF_ERR(st);
    // A walk's usual length, where trees are not very uneven; about 2 ns a step.
    int64_t steps = 2;
    for (int64_t k = f->t.roots ? f->n / f->t.roots : 0; k > 1; k /= 2)
        steps++;
    int64_t each = f->bits ? trees_bits_ns(f->bits) : LANES * f->t.roots * steps * 2; // ns
    int64_t lanes = f->bits ? trees_bits_lanes(f->bits) : LANES;
    f->grain = each > 0 ? 20000 / each + 1 : 1;
    s->flops = f->t.rows * f->t.roots * steps;
    s->alone = (f->t.rows + lanes - 1) / lanes < 2 * f->grain;
    s->detail = "trees";
    s->state = f;
    return ST_OK;
}
static status_t trees_run(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct trees_state *f = s->state;
    struct trees_call c = {f, bufs[0], bufs[s->plan->n_in]};
    int64_t lanes = f->bits ? trees_bits_lanes(f->bits) : LANES;
    cpu_parallel(f->bits ? bits_part : part, &c, (f->t.rows + lanes - 1) / lanes, f->grain);
    return ST_OK;
}
const struct cpu_impl cpu_impl_trees = {"trees", trees_accepts, trees_open, NULL, trees_run, NULL,
                                        NULL, NULL};
