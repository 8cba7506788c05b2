// SPDX-License-Identifier: Apache-2.0
// The driver of lowering: one HLO instruction to one kir kernel. The result is one flat loop at
// first; each division by a constant that is left on a loop variable asks for a cut of that loop,
// and the kernel is built again with it, until no division is left (or none can be helped).
#include "compiler/kernel/lower.h"

#include "compiler/ir/work.h"
#include "compiler/kernel/lower_priv.h"
#include "compiler/kernel/policy.h"
#include "compiler/ops/lower/lower_rules.h"
#include "compiler/ops/rules.h"
#include "compiler/ops/while.h"
#include "compiler/plan/in_place.h"

enum { MAX_TRIES = 12, ROW = 4096, MINOR = 8 };
enum { MINOR_VALUES = 1000 }; // values of a kernel

// ---- cuts

// Adds boundary b unless it does not divide its neighbours.
static bool cut(struct lower_space *s, int64_t b) {
    int at = 0;
    if (b <= lower_width(s) || b >= s->total || s->n >= LOWER_MAX_CUTS) return false;
    while (at < s->n && s->cut[at] > b)
        at++;
    if (at < s->n && s->cut[at] == b) return false;
    int64_t above = at ? s->cut[at - 1] : s->total, below = at < s->n ? s->cut[at] : lower_width(s);
    if (above % b || b % below || (below == 1 && b < 4)) return false;
    memmove(s->cut + at + 1, s->cut + at, sizeof s->cut[0] * (size_t)(s->n - at));
    s->cut[at] = b;
    s->n++;
    return true;
}
struct cutter {
    struct lower *lw;
    bool changed;
    int64_t minor; // largest that was asked for
};
static void want_minor(struct cutter *c, const struct lower_space *s, int64_t b, int64_t most) {
    bool short_one = b > 1 && b <= most && s->total % b == 0 && s->total > b,
         merged = c->lw->target && c->lw->target->merged, // vectors that end hidden
        few_rows = b > MINOR / 2 && b < MINOR && s->total <= MINOR / 2 * b;
    if (merged && few_rows) return; // more lanes lie along the row
    if (s == c->lw->result && short_one && !s->minor && b > c->minor) c->minor = b;
}
// A result whose elements repeat after a few (channels last, boxes, stacked values) has these
// written out in each turn: no division is left, and the loop over the rest is the one for vectors.
static void write_out(struct cutter *c) {
    struct lower_space *s = c->lw->result;
    if (!c->minor || c->lw->reduces || c->lw->no_minor) return;
    for (int k = 0; k < s->n; k++)
        if (s->cut[k] % c->minor) return; // no dimension: the turns of a row are to be stepped
    s->minor = c->minor;
    s->n = 0; // cuts are found again
    c->changed = true;
}
// Not where that makes the kernel large; and where it is not done, no sum along a row may be
// written out either: each element of the row would compute all of it.
static bool take_back(struct lower *lw) {
    struct lower_space *s = lw->result;
    bool large = s->minor && lw->k.n_vals > MINOR_VALUES;
    if (!large && (s->minor || !lw->short_rows)) return false;
    s->minor = 0;
    s->n = 0;
    lw->no_minor = lw->long_rows = true;
    lw->short_rows = false;
    return true;
}
// A row that fills a vector, or half of one, is a loop of one turn, but for one that is joined of
// parts; where the direct generator is not, rows that are written out become vectors across rows.
static int64_t minor_most(const struct lower *lw) {
    enum { WORD = 4 };
    bool direct = lw->target && lw->target->direct && lw->target->vector_bits >= 256;
    const struct hlo_instr *i = lw->instr, *root = i->op == HLO_FUSION ? hlo_root(i->called[0]) : i;
    bool parts = root->op == HLO_CONCATENATE && dtype_size(root->shape->dtype) <= WORD;
    return direct && !parts ? MINOR - 1 : MINOR;
}
static void want_cut(void *ctx, struct kir_val *v) {
    struct cutter *c = ctx;
    if (v->op != K_DIVMOD) return;
    struct lower_space *s = pmap_get_ptr(&c->lw->var_space, v->args[0]);
    if (!s) return;
    int64_t stride = v->args[0]->imm_j * v->imm_i;
    want_minor(c, s, stride, minor_most(c->lw));
    if (v->imm_j) want_minor(c, s, stride * v->imm_j, MINOR / 2); // a loop of them does as well
    c->changed |= cut(s, stride);
    if (v->imm_j) c->changed |= cut(s, stride * v->imm_j);
}

// What is left of divisions of the innermost loop's variable by 2 to MOST_STEP, or of it and a
// constant, is decided where a turn makes so many elements.
enum { MOST_STEP = 4 };
static void want_step(void *ctx, struct kir_val *v) {
    struct lower *lw = ctx;
    struct lower_space *s = lw->result;
    if (v->op != K_DIVMOD) return;
    const struct kir_val *x = v->args[0];
    if (x->op == K_ADD) x = x->args[x->args[0]->op == K_CONST];
    int64_t b = v->imm_i > 1 ? v->imm_i : v->imm_j;
    if (x->op == K_VAR && x->imm_j == 1 && pmap_get_ptr(&lw->var_space, x) == s && b > s->step &&
        b <= MOST_STEP)
        s->step = b;
}
// Does the innermost loop take steps now that it did not?
static bool take_steps(struct lower *lw) {
    struct lower_space *s = lw->result;
    if (s->step || s->minor || !s->n || lw->chunk || lw->reduces || lw->cached.n) return false;
    kir_each(&lw->k.fn->top, want_step, lw);
    return s->step > 0;
}

// ---- the kernel

// Counts for each dear instruction the phases (operands of reductions, the root) that reach it.
static void reach(const struct hlo_instr *i, struct pmap *seen, struct pmap *count) {
    if (pmap_has_ptr(seen, i)) return;
    pmap_put_ptr(seen, i, (void *)i);
    if (hlo_is_dear(i)) pmap_put_ptr(count, i, (void *)((intptr_t)pmap_get_ptr(count, i) + 1));
    if (i->op == HLO_REDUCE) return;
    for (int o = 0; o < i->n_operands; o++)
        reach(i->operands[o], seen, count);
}
static void find_cached(struct lower *lw, const struct hlo_computation *c) {
    struct pmap count = {0}, seen = {0};
    reach(hlo_root(c), &seen, &count);
    lw->dear_after = count.n > 0;
    pmap_done(&seen);
    HLO_EACH_INSTR(i, c) if (i->op == HLO_REDUCE) {
        seen = (struct pmap){0};
        for (int o = 0; o < i->n_operands; o++)
            reach(i->operands[o], &seen, &count);
        pmap_done(&seen);
    }
    HLO_EACH_INSTR(i, c)
    if ((intptr_t)pmap_get_ptr(&count, i) >= 2) pmap_put_ptr(&lw->cached, i, i);
    pmap_done(&count);
}

// The loops of a result: `n` of them, the first `p` of which are units.
struct nest {
    const struct lower_outputs *o;
    const struct shape *s;
    struct lower_space *sp;
    int n, p;
    int64_t stride[LOWER_MAX_CUTS + 1], extent[LOWER_MAX_CUTS + 1];
    int64_t chunk, chunks; // of the innermost loop; chunk 0: it is whole
    struct kir_val *c;     // which chunk, where units say so
};

// Of a part of the innermost loop that takes steps: those that are whole, and what is left.
static status_t build_stepped(struct lower *lw, const struct nest *t, int64_t lo, int64_t trip,
                              struct kir_val *v) {
    struct kir *k = &lw->k;
    int64_t step = t->sp->step, turns = trip / step;
    status_t st = ST_OK;
    v = kir_idx_add(k, v, kir_i64(k, lo));
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, turns), turns, NULL, 0);
    lower_track(lw, l->var, t->sp, step);
    l->vectorize = true;
    struct kir_val *at = kir_idx_add(k, v, kir_idx_mul(k, l->var, step));
    for (int64_t e = 0; e < step && !st; e++)
        st = lower_store_all(lw, t->o, t->s, kir_idx_add(k, at, kir_i64(k, e)));
    if (!st) kir_end(k, l, NULL);
    for (int64_t e = turns * step; e < trip && !st; e++)
        st = lower_store_all(lw, t->o, t->s, kir_idx_add(k, v, kir_i64(k, e)));
    return st;
}
// Loop i from `lo` to `hi`, and those in it.
static status_t build_loops(struct lower *lw, const struct nest *t, int i, struct kir_val *v);
static status_t build_part(struct lower *lw, const struct nest *t, int i, struct kir_val *lo,
                           struct kir_val *hi, int64_t trip, struct kir_val *v) {
    struct kir *k = &lw->k;
    bool last = i == t->n - 1;
    if (last && !t->chunk && t->sp->step && trip >= t->sp->step)
        return build_stepped(lw, t, lo->imm_i, trip, v);
    struct kir_loop *l = kir_for(k, lo, hi, trip, NULL, 0);
    status_t st = ST_OK;
    int64_t most = lo->op == K_CONST ? trip : t->extent[i];
    if (last && t->chunk) { // `trip` is where the part ends
        l->trip = most = trip - lo->lo < t->chunk ? trip - lo->lo : t->chunk;
        l->var->hi = trip - 1;
    }
    lower_track(lw, l->var, t->sp, t->stride[i]);
    v = kir_idx_add(k, v, kir_idx_mul(k, l->var, t->stride[i]));
    if (last) {
        struct lower_row row = {
            .var = l->var, .begin = lo, .end = hi, .base = k->depth - 1, .extent = most};
        l->vectorize = true;
        lw->row = t->sp->minor ? NULL : &row;
        for (int64_t e = 0; e < lower_width(t->sp) && !st; e++)
            st = lower_store_all(lw, t->o, t->s, kir_idx_add(k, v, kir_i64(k, e)));
        lw->row = NULL;
    } else {
        st = build_loops(lw, t, i + 1, v);
    }
    if (last && !lw->reduces) l->interleave = lower_long_body(lw, &l->body, most);
    if (!st) kir_end(k, l, NULL);
    return st;
}
static status_t build_loops(struct lower *lw, const struct nest *t, int i, struct kir_val *v) {
    struct kir *k = &lw->k;
    bool last = i == t->n - 1;
    int64_t begin[LOWER_MAX_EDGES + 2];
    int n = lower_parts(lw, t->sp, t->stride[i], t->extent[i], last, begin);
    begin[n] = t->extent[i];
    if (last && t->chunk) { // a chunk's share of each part, which may be nothing
        struct kir_loop *chunks =
            t->c ? NULL : kir_for(k, kir_i64(k, 0), kir_i64(k, t->chunks), t->chunks, NULL, 0);
        struct kir_val *lo = kir_idx_mul(k, chunks ? chunks->var : t->c, t->chunk);
        struct kir_val *hi = kir_op(k, K_MIN, kir_idx_add(k, lo, kir_i64(k, t->chunk)),
                                    kir_i64(k, t->extent[i]), NULL);
        for (int e = 0; e < n; e++) {
            struct kir_val *from = kir_op(k, K_MAX, lo, kir_i64(k, begin[e]), NULL),
                           *to = kir_op(k, K_MIN, hi, kir_i64(k, begin[e + 1]), NULL);
            if (n > 1) to = kir_op(k, K_MAX, to, from, NULL);
            RETURN_IF_ERR(build_part(lw, t, i, from, to, begin[e + 1], v));
        }
        if (chunks) kir_end(k, chunks, NULL);
        return ST_OK;
    }
    for (int e = 0; e < n; e++)
        RETURN_IF_ERR(build_part(lw, t, i, kir_i64(k, begin[e]), kir_i64(k, begin[e + 1]),
                                 begin[e + 1] - begin[e], v));
    return ST_OK;
}
// Which loops are units: leading ones until there are enough; some do where the last has edges. Of
// a fusion within another (attention) a unit is a row: the device runs some rows at a time.
static int64_t take_units(struct lower *lw, struct nest *t) {
    int64_t begin[LOWER_MAX_EDGES + 2], units = 1, enough = lw->policy->units;
    if (lw->instr->parent && lw->instr->parent->fusion) enough = INT64_MAX;
    for (t->p = 0; t->p < t->n - 1 && units < enough; t->p++) {
        if (t->p == t->n - 2 && units >= enough / 4 && !lw->reduces &&
            lower_parts(lw, t->sp, t->stride[t->p], t->extent[t->p], false, begin) > 1)
            break;
        units *= t->extent[t->p];
    }
    return units;
}
// A unit an element, wherever it lies: no row, so nothing is kept in scratch.
static status_t build_elements(struct lower *lw, const struct lower_outputs *o,
                               const struct shape *s, const struct lower_space *sp) {
    struct kir *k = &lw->k;
    k->fn->extent = sp->total;
    if (sp->total == 0) return ST_OK;
    struct kir_loop *u = kir_for(k, k->fn->begin, k->fn->end, sp->total, NULL, 0);
    u->var->hi = sp->total - 1;
    RETURN_IF_ERR(lower_store_all(lw, o, s, u->var));
    kir_end(k, u, NULL);
    return ST_OK;
}
// Into how many units a flat loop is cut.
static int64_t parts_of(const struct lower *lw) {
    return lw->policy->units == 1 ? 1 : lw->reduces ? 32 : 16;
}
// The least columns of a part: what lies side by side in memory comes sooner the longer it is, so
// as many as leave two parts for each thread (measured on Zen 5: extremes and sums of 8 million
// elements take 0.6 to 0.8 of the time at 512 that they take at 64).
static int64_t least_columns(const struct lower *lw, int64_t n) {
    enum { LEAST = 64, ENOUGH = 512 };
    const struct target *t = lw->target;
    int64_t each = t && t->threads > 0 && !t->merged ? n / (2 * t->threads) : 0;
    if (t && t->merged) return ENOUGH;
    return each < LEAST ? LEAST : each > ENOUGH ? ENOUGH : (each + 15) / 16 * 16;
}
// Elements of a part of a flat loop of n. Sums by columns of more columns than one block has run
// side by side, where one thread makes all.
static int64_t chunk_of(const struct lower *lw, const struct lower_space *s, int64_t n) {
    if (lw->target && lw->target->merged && s->n_edges) return 0; // parts of known lengths
    int64_t want = n / parts_of(lw), most = lw->reduces ? 1024 : ROW,
            least = lw->columns   ? least_columns(lw, n)
                    : lw->reduces ? 16
                                  : 1024;
    return want < least ? least : want > most ? most : (want + 15) / 16 * 16;
}
// Loops: units (begin..end) over the leading cuts, plain loops below, the innermost for vectors.
static status_t build(struct lower *lw, const struct lower_outputs *o, const struct shape *s,
                      struct lower_space *sp) {
    struct kir *k = &lw->k;
    struct nest t = {.o = o, .s = s, .sp = sp, .n = sp->n + 1, .chunks = 1};
    for (int i = 0; i < t.n; i++) {
        t.stride[i] = i == sp->n ? lower_width(sp) : sp->cut[i];
        t.extent[i] = (i ? sp->cut[i - 1] : sp->total) / t.stride[i];
    }

    int64_t units = take_units(lw, &t);
    int n = t.n, p = t.p;
    // Loops over units of a few elements cost more than they share out: cut the last of them.
    if (p && !lw->reduces && units > 64 && t.stride[p - 1] < 1024) {
        int64_t best = 1;
        for (int64_t g = 2; g * t.stride[p - 1] <= ROW && g <= t.extent[p - 1]; g++)
            if (t.extent[p - 1] % g == 0) best = g;
        lw->small_units |= best > 1;
        if (best > 1 && lw->settled && cut(sp, t.stride[p - 1] * best)) return build(lw, o, s, sp);
    }

    int64_t chunk = n == 1 && !lw->chunk ? chunk_of(lw, sp, t.extent[0]) : lw->chunk;
    if (chunk && chunk < t.extent[n - 1]) {
        t.chunk = chunk;
        t.chunks = (t.extent[n - 1] + chunk - 1) / chunk;
        units *= p == n - 1 ? t.chunks : 1;
    }

    k->fn->extent = units;
    if (sp->total == 0) {
        k->fn->extent = 0;
        return ST_OK;
    }

    struct kir_loop *u = kir_for(k, k->fn->begin, k->fn->end, units, NULL, 0);
    struct kir_val *v = kir_i64(k, 0);
    int64_t below = 1;
    if (t.chunk && p == n - 1) {
        t.c = kir_idx_divmod(k, u->var, 1, t.chunks);
        below = t.chunks;
    }
    lw->units = (struct lower_units){p ? u->var : NULL, below, p > 1 ? t.extent[p - 1] : 0,
                                     p ? t.stride[p - 1] : 0};
    for (int i = p - 1; i >= 0; i--) {
        v = kir_idx_add(k, v,
                        kir_idx_mul(k, kir_idx_divmod(k, u->var, below, t.extent[i]), t.stride[i]));
        below *= t.extent[i];
    }

    RETURN_IF_ERR(build_loops(lw, &t, p, v));
    kir_end(k, u, NULL);
    return ST_OK;
}

static status_t build_until_stable(struct lower *lw, const struct lower_outputs *o,
                                   const struct shape *s, int n_in) {
    struct shape_phys p;
    int64_t total = 1;
    shape_physical(s, &p);
    for (int d = 0; d < p.rank; d++)
        total *= p.dims[d];

    struct lower_space *sp = lw->result = lower_space(lw, lw->instr->shape, total);
    for (int tries = 0;; tries++) {
        bool reduces = lw->reduces, columns = lw->columns, chunked = lw->chunk != 0,
             ordered = lw->ordered;
        lower_forget(lw);
        lower_begin(lw, n_in, o->beside ? 1 : o->n);
        RETURN_IF_ERR(lw->elements ? build_elements(lw, o, s, sp) : build(lw, o, s, sp));

        if (lower_edges_fewer(lw)) continue;
        if (lw->k.n_vals > MINOR_VALUES && take_back(lw)) continue;
        if (lw->k.overflow) return lower_no(lw, "the kernel is too large");

        kir_sweep(&lw->k);
        lw->k.fn->scratch_bytes = lw->scratch;
        lw->ordered |= lw->twice;
        if ((tries >= MAX_TRIES || sp->step) && lw->ordered == ordered) return ST_OK;
        struct cutter c = {.lw = lw};
        kir_each(&lw->k.fn->top, want_cut, &c);
        write_out(&c);

        if (lw->want_chunk && !lw->chunk) lw->chunk = 1024;
        if (!c.changed && lw->reduces == reduces && lw->columns == columns &&
            chunked == (lw->chunk != 0) && lw->ordered == ordered && !take_back(lw)) {
            bool again = lw->small_units && !lw->settled;
            lw->settled = true;
            if (!lower_edges_find(lw) && !again && !take_steps(lw)) return ST_OK;
        }
    }
}

// Short rows turned in scratch; false: they are not, and the kernel is to be built as others are.
static bool build_rows(struct lower *lw, const struct lower_outputs *o, const struct shape *s,
                       int n_in) {
    if (!lower_rows_fit(lw, o, s)) return false;
    bool ordered, built;
    do {
        ordered = lw->ordered;
        lower_forget(lw);
        lower_begin(lw, n_in, o->n);
        status_t st = lower_rows_build(lw, o, s);
        kir_sweep(&lw->k);
        lw->k.fn->scratch_bytes = lw->scratch;
        built = !st && !lw->k.overflow && !lower_rows_failed(lw);
        st_drop(st);
        lw->ordered |= lw->twice;
    } while (built && lw->ordered != ordered);
    if (built) return true;
    lw->rows = NULL;
    lw->why = NULL;
    lw->reduces = lw->columns = lw->ordered = false;
    return false;
}

static status_t check_types(struct lower *lw, const struct shape *s) {
    if (shape_is_tuple(s)) {
        for (int i = 0; i < shape_leaves(s); i++)
            RETURN_IF_ERR(check_types(lw, shape_leaf(s, i)));
        return ST_OK;
    }
    if (dtype_class(s->dtype) == DC_NONE) return lower_no(lw, "a value that is not an array");
    if (s->dynamic)
        for (int d = 0; d < s->rank; d++)
            if (s->dynamic[d]) return lower_no(lw, "a dynamic dimension");
    return ST_OK;
}

static bool parts_beside(const struct lower *lw, const struct hlo_instr *root) {
    if (lw->instr->op != HLO_FUSION || lw->elements || lw->update || !rule_parts_beside(root))
        return false;
    HLO_EACH_INSTR(i, root->parent)
    if (i->n_called || i->op == HLO_DOT || i->op == HLO_CONVOLUTION) return false;
    return true;
}
static status_t outputs_of(struct lower *lw, const struct hlo_instr *root, struct lower_outputs *o,
                           const struct shape **first) {
    *o = (struct lower_outputs){.n = 1, .root = {root}};
    *first = root->shape;
    if (parts_beside(lw, root)) {
        *o = (struct lower_outputs){.n = root->n_operands, .beside = true};
        memcpy(o->root, root->operands, sizeof *o->root * (size_t)o->n);
        *first = root->operands[0]->shape;
        return ST_OK;
    }
    if (!shape_is_tuple(root->shape)) return ST_OK;
    o->n = shape_leaves(root->shape);
    if (o->n < 1 || o->n > LOWER_MAX_RESULTS || root->shape->n_elems != o->n)
        return lower_no(lw, "its tuple of results");
    o->together = root->op != HLO_TUPLE;
    *first = shape_leaf(root->shape, 0);
    for (int i = 0; i < o->n; i++) {
        const struct shape *s = shape_leaf(root->shape, i);
        struct shape_phys p;
        if (!o->together) o->root[i] = root->operands[i];
        if (!shape_same_dims(s, *first)) return lower_no(lw, "results of different dimensions");
        if (layout_equal(s->layout, (*first)->layout, s->rank)) continue;
        shape_physical(s, &p);
        if (p.padded) return lower_no(lw, "padded results of different layouts");
    }
    return ST_OK;
}

// ---- kernels with loops of their own

typedef status_t (*whole_fn)(struct lower *lw, const struct hlo_instr *i);
#define WHOLE_Y(e) NULL
#define WHOLE_E(e) NULL
#define WHOLE_N(e) NULL
#define WHOLE_W(e) hlo_whole_##e
static const whole_fn whole_rules[HLO_OP_COUNT] = {
#define OP(e, text, arity, traits, attrs, rule, evals, lowers, ...) [HLO_##e] = WHOLE_##lowers(e),
#include "compiler/ir/ops.def"
#undef OP
};

static whole_fn whole_rule(const struct lower *lw, const struct hlo_instr *i) {
    if (lw->in_place && i->op == HLO_DYNAMIC_UPDATE_SLICE) return hlo_whole_DYNAMIC_UPDATE_SLICE;
    return rule_running_window(i, NULL) ? hlo_whole_REDUCE_WINDOW : whole_rules[i->op];
}

static status_t build_whole(struct lower *lw, const struct hlo_instr *i) {
    int n_in = i->n_operands, n_out = shape_leaves(i->shape);
    for (int r = 0; r < n_out; r++) {
        struct shape_phys p;
        shape_physical(shape_leaf(i->shape, r), &p);
        if (p.padded) return lower_no(lw, "a padded result");
    }
    lower_begin(lw, n_in, n_out);
    RETURN_IF_ERR(whole_rule(lw, i)(lw, i));
    if (lw->k.overflow) return lower_no(lw, "the kernel is too large");
    kir_sweep(&lw->k);
    lw->k.fn->scratch_bytes = lw->scratch;
    return ST_OK;
}

// Is i an operation that moves its elements whole?
static bool moves_whole(const struct hlo_instr *i) {
    switch (i->op) {
    case HLO_PARAMETER:
    case HLO_CONSTANT:
    case HLO_BROADCAST:
    case HLO_RESHAPE:
    case HLO_BITCAST:
    case HLO_TRANSPOSE:
    case HLO_REVERSE:
    case HLO_SLICE:
    case HLO_CONCATENATE:
    case HLO_PAD:
    case HLO_DYNAMIC_SLICE:
    case HLO_DYNAMIC_UPDATE_SLICE:
    case HLO_GATHER:
    case HLO_COPY:
    case HLO_SELECT:
    case HLO_TUPLE:
        return true;
    default:
        return false;
    }
}
static bool has_moved(const struct shape *s) {
    for (int n = 0; shape_is_tuple(s) && n < shape_leaves(s); n++)
        if (has_moved(shape_leaf(s, n))) return true;
    return !shape_is_tuple(s) && lower_moved(s->dtype) != s->dtype;
}
static bool takes_moved(const struct hlo_instr *i) {
    bool any = has_moved(i->shape);
    for (int n = 0; n < i->n_operands; n++)
        any |= has_moved(i->operands[n]->shape);
    return any;
}
// Complex numbers that are only moved are integers: one load each, and vectors of them. So are
// floats that kernels compute in wider ones: none is converted, and codes of NaN stay as they are.
static bool only_moves(const struct lower *lw, const struct hlo_instr *i) {
    if (!takes_moved(i) || !lw->policy->has_s64 || lw->in_place || while_of_fusion(i)) return false;
    if (i->op != HLO_FUSION) return moves_whole(i) && !whole_rule(lw, i);
    HLO_EACH_INSTR(b, i->called[0])
    if (takes_moved(b) && !moves_whole(b)) return false;
    return true;
}

static status_t lower_instr(struct lower *lw, const struct hlo_instr *i) {
    const struct hlo_instr *root = i;
    struct lower_outputs o;
    const struct shape *first;
    RETURN_IF_ERR(check_types(lw, i->shape));
    for (int n = 0; n < i->n_operands; n++) {
        if (shape_is_tuple(i->operands[n]->shape)) return lower_no(lw, "a tuple operand");
        RETURN_IF_ERR(check_types(lw, i->operands[n]->shape));
    }
    if (i->op == HLO_FUSION) {
        const struct hlo_computation *c = i->called[0];
        HLO_EACH_INSTR(b, c) RETURN_IF_ERR(check_types(lw, b->shape));
        for (size_t p = 0; p < c->params.n; p++)
            pmap_put_ptr(&lw->leaf, c->params.v[p], (void *)(intptr_t)(p + 1));
        if (!lw->elements) find_cached(lw, c);
        if (!lw->elements) lw->update = plan_last_update(i);
        root = lw->update ? lw->update->operands[1] : hlo_root(c);
    } else {
        for (int n = i->n_operands - 1; n >= 0; n--)
            pmap_put_ptr(&lw->leaf, i->operands[n], (void *)(intptr_t)(n + 1));
    }
    lw->moves = only_moves(lw, i);
    const struct hlo_instr *loop = while_of_fusion(i);
    if (loop) return lower_turns(lw, loop, i->n_operands, shape_leaves(i->shape));
    if (whole_rule(lw, i)) return build_whole(lw, i);
    RETURN_IF_ERR(outputs_of(lw, root, &o, &first));

    status_t st;
    if (o.beside || lw->update) return build_until_stable(lw, &o, first, i->n_operands);
    bool tiles = lw->policy->elements ? lw->policy->tiled : lw->policy->has_scratch;
    if (tiles && lower_in_tiles(lw, &o, first, i->n_operands, &st) && (st || !lw->sums)) return st;
    if (build_rows(lw, &o, first, i->n_operands)) return ST_OK;
    RETURN_IF_ERR(build_until_stable(lw, &o, first, i->n_operands));
    lw->k.fn->sums = lw->sums;
    lw->k.fn->tiles = lw->sums != NULL;
    return ST_OK;
}

static const bool no_kernel[HLO_OP_COUNT] = {
    [HLO_PARAMETER] = true,   [HLO_CONSTANT] = true,          [HLO_TUPLE] = true,
    [HLO_BITCAST] = true,     [HLO_GET_TUPLE_ELEMENT] = true, [HLO_CALL] = true,
    [HLO_WHILE] = true,       [HLO_CONDITIONAL] = true,       [HLO_CUSTOM_CALL] = true,
    [HLO_OPT_BARRIER] = true, [HLO_ADD_DEPENDENCY] = true,    [HLO_AFTER_ALL] = true};

static status_t lower_with(struct arena *a, const struct hlo_instr *i, const struct target *t,
                           enum precision prec, bool in_loop, bool in_place, struct kir_fn **out,
                           const char **why) {
    struct lower *lw = arena_new_of(a, struct lower);
    lw->arena = a;
    lw->in_loop = in_loop;
    lw->in_place = in_place;
    lw->target = t;
    lw->policy = policy_of(t);
    lw->elements = policy_elements(lw->policy, i);
    lw->instr = i;
    lw->prec = prec;
    status_t st = no_kernel[i->op] ? lower_no(lw, "an operation that is not computed by kernels")
                                   : lower_instr(lw, i);
    if (!st) st = kir_verify(lw->k.fn);
    const char *lacks = st ? NULL : policy_lacks(lw->policy, lw->k.fn);
    if (lacks) st = lower_no(lw, lacks);
    if (!st) *out = lw->k.fn;
    if (why) *why = lw->why ? lw->why : st ? "internal error" : NULL;
    lower_forget(lw);
    pmap_done(&lw->leaf);
    pmap_done(&lw->cached);
    return st;
}
status_t lower_kernel(struct arena *a, const struct hlo_instr *i, const struct target *t,
                      enum precision prec, struct kir_fn **out, const char **why) {
    return lower_with(a, i, t, prec, false, false, out, why);
}
status_t lower_in_loop(struct arena *a, const struct hlo_instr *i, const struct target *t,
                       enum precision prec, bool update, struct kir_fn **out, const char **why) {
    return lower_with(a, i, update ? NULL : t, prec, true, update, out, why);
}
