// SPDX-License-Identifier: Apache-2.0
// Which loops run as vectors, and the form of each value. A loop marked `vectorize` does if its
// iterations may run together: every carried value is a sum, product, minimum, maximum, conjunction
// or disjunction that may be reordered, stores go to neighbours, and what it reads of what it wrote
// lies at the same place. An outer loop is taken instead of those in it when it reads neighbours
// and they do not: loops in a vector loop run the same number of times in every lane.
#include <stdlib.h>

#include "compiler/codegen/x86/x86_plan.h"

enum {
    MAX_VALUES = 50000,
    MAX_TURNS = 8,
    FOLD_LEAST = 8,
    FOLD_WORK = 32,
    SLOW_TRIP = 8,
    LONG_VALUES = 40,
    LONG_PLAIN = 24,
    BRIEF = 8,
    EACH_LOAD = 3,
    MAX_LOOKUP = 8,
    LINE = 64,
    FAR = 1 << 22 // elements between lanes
};

struct quality {
    const char *why;               // it may not become a vector; NULL: it may
    bool wide, narrow, short_ints; // has lanes of 64 bits; floats of 32; 8 and 16-bit elements
    bool truths, others;           // has lanes of pred in memory; of any other type
    int apart, values, gaps; // apart: gathers, and stores that leave gaps; gaps: stores that do
    int small;               // gathers of 1 or 2 bytes at places without a stride
    int gathers;             // of 4 or 8 bytes at places that were read, which 32 bits hold
    int taken;               // of 4 or 8 bytes at places that were read, or one or two apart
    int loads;
    int tiles;
    bool no_tiles;
    struct x86_plan *p;
    struct kir_loop *l;
};

static bool is_wide(const struct kir_val *v) {
    bool in_32 = v->lo >= INT32_MIN && v->hi <= INT32_MAX;
    return v->type == DT_F64 || (x86_is_index(v->type) && !in_32);
}

// ---- attributes that do not depend on choices

static void attach(struct x86_plan *p, struct kir_val *v) {
    struct x86_val *x = arena_new_of(p->a, struct x86_val);
    x->wide = is_wide(v);
    v->emit = x;
}
static void use(struct kir_val *v) {
    x86_of(v)->uses++;
}
static bool small_float(enum dtype t) {
    return dtype_is_float(t) && t != DT_F16 && t != DT_BF16 && dtype_bits(t) < 32;
}
static const char *refused(const struct x86_plan *p, const struct kir_val *v) {
    if (v->op == K_CALL) return "a function of libm";
    if (v->op == K_COMPLEX) return "a complex value";
    if (v->lanes) return x86_sums_refuse(p, v);
    if ((v->op == K_LOAD || v->op == K_STORE || v->op == K_TABLE) && small_float(v->elem))
        return "8-bit floats";
    if (v->op == K_CONST && v->type == DT_S64 && v->imm_j) return NULL;
    bool pred = v->type == DT_PRED;
    if (pred && v->op >= K_ADD && v->op <= K_COPYSIGN) return "arithmetic on pred";
    if (pred && (v->op == K_SHL || v->op == K_SHR || v->op == K_CLZ || v->op == K_POPCNT))
        return "arithmetic on pred";
    return NULL;
}
// Is there such an operation on the way to a place in memory? K_LOAD: it follows from what lies in
// memory.
static bool comes_from(const struct kir_val *at, enum kop op, int depth) {
    if (at->op == op) return true;
    for (int k = 0; k < at->n_args && depth; k++)
        if (comes_from(at->args[k], op, depth - 1)) return true;
    return false;
}
static void attach_block(struct x86_plan *p, const struct kir_block *b, int *n) {
    for (struct kir_val *v = b->first; v && !p->why; v = v->next) {
        attach(p, v);
        if (++*n > MAX_VALUES) p->why = "too many values";
        const char *why = refused(p, v);
        p->sums |= v->lanes != 0;
        p->is_small |= v->lanes && v->op == K_STORE && v->imm_i != KIR_SCRATCH;
        if (why) p->why = why;
        bool again = v->op == K_STORE || (v->op == K_LOAD && v->flags & KF_PINNED);
        if (again && v->imm_i != KIR_SCRATCH && comes_from(v->args[0], K_LOAD, MAX_LOOKUP))
            p->slow = "updates one after the other"; // of a scatter
        for (int k = 0; k < v->n_args; k++)
            use(v->args[k]);
        if (v->op != K_FOR) continue;

        struct kir_loop *l = v->loop;
        struct x86_loop *x = arena_new_of(p->a, struct x86_loop);
        x->l = l;
        x->copies = 1;
        attach(p, l->var);
        x86_of(l->var)->loop = x86_of(v)->loop = x;
        use(l->begin);
        use(l->end);
        for (int c = 0; c < l->n_carry; c++) {
            attach(p, l->carry[c]);
            attach(p, l->result[c]);
            use(l->init[c]);
        }
        attach_block(p, &l->body, n);
        for (int c = 0; c < l->n_carry && !p->why; c++)
            use(l->yield[c]);
    }
}

// ---- shapes in a loop that might run as vectors

static bool lanes_divmod(const struct kir_val *v) {
    int64_t s = v->imm_i, m = v->imm_j;
    return !x86_of(v->args[0])->wide || ((s & (s - 1)) == 0 && (m & (m - 1)) == 0);
}
static enum x86_shape index_shape(const struct kir_val *v, int64_t *stride) {
    const struct x86_val *x = x86_of(v->args[0]), *y = v->n_args > 1 ? x86_of(v->args[1]) : NULL;
    *stride = 0;
    if (x->shape == SHAPE_LANES || (y && y->shape == SHAPE_LANES)) return SHAPE_LANES;
    switch (v->op) {
    case K_ADD:
        *stride = x->stride + y->stride;
        return *stride ? SHAPE_STRIDE : SHAPE_SAME;
    case K_SUB:
        *stride = x->stride - y->stride;
        return *stride ? SHAPE_STRIDE : SHAPE_SAME;
    case K_MUL:
        for (int k = 0; k < 2; k++)
            if (v->args[k]->op == K_CONST &&
                !__builtin_mul_overflow(v->args[k]->imm_i, x86_of(v->args[1 - k])->stride, stride))
                return *stride ? SHAPE_STRIDE : SHAPE_SAME;
        *stride = 0;
        return SHAPE_LANES;
    default:
        return SHAPE_LANES;
    }
}
static enum x86_shape shape_of(const struct kir_val *v, int64_t *stride) {
    bool moves = false;
    for (int k = 0; k < v->n_args; k++)
        moves |= x86_of(v->args[k])->shape != SHAPE_SAME;
    *stride = 0;
    if (!moves) return SHAPE_SAME;
    return x86_is_index(v->type) && v->op != K_CAST && v->op != K_BITS && v->op != K_SELECT &&
                   v->op != K_LOAD && v->op != K_TABLE
               ? index_shape(v, stride)
               : SHAPE_LANES;
}

static bool short_int(enum dtype t) {
    return dtype_is_int(t) && dtype_size(t) < 4 && t != DT_PRED;
}
static void shape_loop(struct quality *q, struct kir_loop *l);
static void forbid(struct quality *q, bool yes, const char *why) {
    if (yes && !q->why) q->why = why;
}
// A load whose lanes do not lie side by side.
static void judge_apart(struct quality *q, const struct kir_val *v, const struct x86_val *at) {
    bool large = dtype_size(v->elem) >= 4;
    bool read = at->shape == SHAPE_LANES && comes_from(v->args[0], K_LOAD, MAX_LOOKUP) &&
                !comes_from(v->args[0], K_DIVMOD, MAX_LOOKUP); // a place that was read
    q->apart++;
    // Loads of their own; LLVM shuffles what lies closer, and gathers these.
    bool each =
        !q->p->vex && at->shape == SHAPE_STRIDE && llabs(at->stride) * dtype_size(v->elem) >= LINE;
    q->taken += large && (read || each || (x86_near(q->p, v) && llabs(at->stride) <= 2));
    q->small += !large && at->shape == SHAPE_LANES;
    q->gathers += large && read && !at->wide;
    forbid(q, q->small > 1, "many gathers of 8 or 16 bits");
    forbid(q, at->shape == SHAPE_STRIDE && llabs(at->stride) > FAR, "far gathers");
}
static void judge(struct quality *q, struct kir_val *v) {
    struct x86_val *x = x86_of(v);
    x->tile = NULL;
    forbid(q, v->lanes, "vectors of vectors");
    if (v->op == K_STORE) {
        const struct x86_val *at = x86_of(v->args[0]);
        forbid(q, at->shape != SHAPE_STRIDE, "scattered stores");
        forbid(q, llabs(at->stride) > FAR, "far stores");
        q->short_ints |= short_int(v->elem);
        q->truths |= v->elem == DT_PRED;
        q->others |= v->elem != DT_PRED;
        q->gaps += at->stride != 1;
        q->wide |= dtype_size(v->elem) == 8;
        q->values++;
        return;
    }

    if (x->shape == SHAPE_SAME) return;
    q->values++;
    for (int k = 0; k < v->n_args && x->shape == SHAPE_LANES; k++)
        if (v->op != K_LOAD && v->op != K_TABLE) q->wide |= x86_of(v->args[k])->wide;
    if (x->shape == SHAPE_LANES) {
        q->wide |= x->wide;
        q->narrow |= v->type == DT_F32 && v->op != K_CAST;
        q->short_ints |= short_int(v->type);
        q->others |= v->type != DT_PRED;
    }

    bool integer = dtype_is_int(v->type);
    if (x->shape == SHAPE_LANES) switch (v->op) {
        case K_DIV:
        case K_REM:
            forbid(q, integer, "division of integers");
            break;
        case K_CLZ:
        case K_POPCNT:
            forbid(q, true, "counts of bits");
            break;
        case K_DIVMOD:
            forbid(q, !lanes_divmod(v), "division of 64-bit indices");
            break;
        case K_LOAD:
        case K_TABLE: {
            const struct x86_val *at = x86_of(v->args[0]);
            q->loads++;
            if (at->shape == SHAPE_STRIDE && at->stride == 1) break;
            if (at->shape == SHAPE_STRIDE && !q->no_tiles && x86_tile_find(q->p, q->l, v)) {
                q->tiles++;
                break;
            }
            judge_apart(q, v, at);
            if (at->shape == SHAPE_LANES) q->wide |= at->wide;
            break;
        }
        default:
            break;
        }
}
static void shape_block(struct quality *q, const struct kir_block *b) {
    for (struct kir_val *v = b->first; v; v = v->next) {
        if (v->op == K_FOR) {
            shape_loop(q, v->loop);
            continue;
        }
        struct x86_val *x = x86_of(v);
        x->shape = v->op == K_STORE ? SHAPE_SAME : shape_of(v, &x->stride);
        judge(q, v);
    }
}
// A loop inside of the one that is looked at.
static void shape_loop(struct quality *q, struct kir_loop *l) {
    struct quality in = *q;
    forbid(q, x86_of(l->begin)->shape != SHAPE_SAME || x86_of(l->end)->shape != SHAPE_SAME,
           "an inner loop's bounds");
    x86_of(l->var)->shape = SHAPE_SAME;
    x86_of(l->var)->stride = 0;
    for (int c = 0; c < l->n_carry; c++)
        x86_of(l->carry[c])->shape =
            x86_of(l->init[c])->shape == SHAPE_SAME ? SHAPE_SAME : SHAPE_LANES;
    bool changed = true;
    for (int turn = 0; changed && turn < MAX_TURNS; turn++) {
        changed = false;
        *q = in;
        shape_block(q, &l->body);
        for (int c = 0; c < l->n_carry; c++) {
            struct x86_val *x = x86_of(l->carry[c]);
            if (x->shape == SHAPE_LANES || x86_of(l->yield[c])->shape == SHAPE_SAME) continue;
            x->shape = SHAPE_LANES;
            changed = true;
        }
    }
    forbid(q, changed, "too many turns of the analysis");
    for (int c = 0; c < l->n_carry; c++) {
        x86_of(l->result[c])->shape = x86_of(l->carry[c])->shape;
        if (x86_of(l->carry[c])->shape == SHAPE_LANES) q->wide |= x86_of(l->carry[c])->wide;
    }
}

static bool reorders(const struct kir_val *v) {
    bool is_float = dtype_is_float(v->type);
    switch (v->op) {
    case K_ADD:
    case K_MUL:
        return !is_float || v->flags & KF_REASSOC;
    case K_MIN:
    case K_MAX:
    case K_AND:
    case K_OR:
        return true;
    case K_XOR:
        return v->type != DT_PRED;
    default:
        return false;
    }
}
// Is carried value c one that lanes may gather by themselves?
static bool reduces(const struct kir_loop *l, int c) {
    const struct kir_val *v = l->yield[c];
    if (x86_of(l->carry[c])->uses != 1 || v == l->carry[c]) return false;
    enum kop op = v->op;
    for (int n = 0; n < 64; n++) {
        if (v->op != op || v->block != &l->body || !reorders(v) || x86_of(v)->uses != 1)
            return false;
        const struct kir_val *x = v->args[0], *y = v->args[1];
        if (x == y) return false;
        if (x == l->carry[c] || y == l->carry[c]) return true;
        // The chain goes on where a value is of the same kind and leads to the carried one.
        bool first = x->op == op && x->block == &l->body && x86_of(x)->uses == 1,
             second = y->op == op && y->block == &l->body && x86_of(y)->uses == 1;
        if (first == second) return false;
        v = first ? x : y;
    }
    return false;
}

static bool apart(const struct kir_val *x, const struct kir_val *y) {
    __int128 sx = dtype_size(x->elem), sy = dtype_size(y->elem);
    const struct kir_val *a = x->args[0], *b = y->args[0];
    return (a->hi + (__int128)1) * sx <= b->lo * sy || (b->hi + (__int128)1) * sy <= a->lo * sx;
}
static const struct kir_val *without_offset(const struct kir_val *at, int64_t *offset) {
    *offset = 0;
    for (int k = 0; k < 2 && at->op == K_ADD; k++)
        if (kir_is_const(at->args[k], offset)) return at->args[1 - k];
    *offset = 0;
    return at;
}
// Stores that go to each other's gaps.
static bool between(const struct kir_val *x, const struct kir_val *y) {
    int64_t i, j, stride = x86_of(x->args[0])->stride;
    return x->elem == y->elem && without_offset(x->args[0], &i) == without_offset(y->args[0], &j) &&
           x86_of(y->args[0])->stride == stride && stride && (i - j) % stride != 0;
}
// Do a load and a store, or two stores, of one buffer meet in different iterations?
static bool meets(const struct kir_block *b, const struct kir_val *s) {
    for (const struct kir_val *v = b->first; v; v = v->next) {
        if (v->op == K_FOR && meets(&v->loop->body, s)) return true;
        bool other = (v->op == K_STORE && v != s) || (v->op == K_LOAD && v->flags & KF_PINNED);
        if (!other || v->imm_i != s->imm_i) continue;
        if (v->args[0] == s->args[0] && v->elem == s->elem) continue;
        if (v->op == K_STORE && between(v, s)) continue;
        if (!apart(v, s)) return true;
    }
    return false;
}
static bool conflicts(const struct kir_block *all, const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v; v = v->next)
        if (v->op == K_FOR ? conflicts(all, &v->loop->body) : v->op == K_STORE && meets(all, v))
            return true;
    return false;
}

// Finds the stores that fill the gaps of `first`; how many they are, 0 if some stay.
static int fill_gaps(const struct kir_block *b, const struct kir_val *first, struct arena *a) {
    int64_t n = x86_of(first->args[0])->stride, offset;
    struct x86_group g = {.n = (int)n};
    int found = 0;
    const struct kir_val *base = without_offset(first->args[0], &offset);
    int size = dtype_size(first->elem);
    if (n < 2 || n > (size == 4 ? MAX_GROUP : 4 / size) || first->elem == DT_PRED) return 0;
    for (const struct kir_val *v = b->first; v; v = v->next) {
        if (v->op == K_FOR) return 0;
        if (v->op == K_LOAD && v->flags & KF_PINNED && v->imm_i == first->imm_i) return 0;
        if (v->op != K_STORE || v->imm_i != first->imm_i) continue;
        if (without_offset(v->args[0], &offset) != base || offset < 0 || offset >= n ||
            g.store[offset] || v->elem != first->elem)
            return 0;
        g.store[offset] = g.last = v;
        found++;
    }
    if (found != n) return 0;
    struct x86_group *kept = arena_dup(a, &g, sizeof g);
    for (int k = 0; k < g.n; k++)
        x86_of(g.store[k])->group = kept;
    return found;
}
// How many stores with gaps are left when others have filled theirs.
static int gaps_left(const struct kir_block *b, const struct quality *q) {
    int filled = 0;
    for (const struct kir_val *v = b->first; v; v = v->next) {
        if (v->op == K_FOR) return q->gaps;
        if (v->op == K_STORE) x86_of(v)->group = NULL;
    }
    for (const struct kir_val *v = b->first; v; v = v->next) {
        if (v->op != K_STORE || x86_of(v->args[0])->stride == 1) continue;
        bool first = true; // of its buffer
        for (const struct kir_val *u = b->first; u != v; u = u->next)
            first &= u->op != K_STORE || u->imm_i != v->imm_i;
        if (q->wide && dtype_size(v->elem) != 4) continue; // pack() has all lanes
        if (first) filled += fill_gaps(b, v, q->p->a);
    }
    return q->gaps - filled;
}

static void clear_loop(const struct kir_loop *l);
static void clear(const struct kir_block *b) {
    for (struct kir_val *v = b->first; v; v = v->next) {
        struct x86_val *x = x86_of(v);
        x->shape = SHAPE_SAME;
        x->stride = 0;
        x->tile = NULL;
        if (v->op == K_FOR) clear_loop(v->loop);
    }
}
static void clear_loop(const struct kir_loop *l) {
    x86_of(l->var)->shape = SHAPE_SAME;
    x86_of(l->var)->stride = 0;
    for (int c = 0; c < l->n_carry; c++)
        x86_of(l->carry[c])->shape = x86_of(l->result[c])->shape = SHAPE_SAME;
    clear(&l->body);
}
static struct quality judge_tiles(struct kir_loop *l, struct x86_plan *p, bool no_tiles) {
    struct quality q = {.p = p, .l = l, .no_tiles = no_tiles};
    struct x86_val *var = x86_of(l->var);
    var->shape = SHAPE_STRIDE;
    var->stride = 1;
    for (int c = 0; c < l->n_carry; c++) {
        x86_of(l->carry[c])->shape = SHAPE_LANES;
        q.wide |= x86_of(l->carry[c])->wide;
    }
    shape_block(&q, &l->body);
    for (int c = 0; c < l->n_carry; c++) {
        forbid(&q, !reduces(l, c) || x86_of(l->yield[c])->shape != SHAPE_LANES,
               "a carried value that may not be reordered");
        x86_of(l->result[c])->shape = SHAPE_SAME;
    }
    if (q.gaps) q.apart += gaps_left(&l->body, &q);
    forbid(&q, conflicts(&l->body, &l->body), "reads of what another turn stores");
    bool much = q.values * l->trip >= FOLD_WORK; // pays for what follows a fold
    forbid(&q, l->trip < (l->n_carry && !much ? FOLD_LEAST : 2), "few turns");
    return q;
}
static struct quality judge_loop(struct kir_loop *l, struct x86_plan *p) {
    clear(&l->body);
    struct quality q = judge_tiles(l, p, false);
    if (!q.tiles || !q.wide) return q;
    clear(&l->body); // half the lanes: tiles have all
    return judge_tiles(l, p, true);
}
static bool has_loop(const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v; v = v->next)
        if (v->op == K_FOR) return true;
    return false;
}
// Do all innermost loops here run well as vectors?
static bool inner_good(struct x86_plan *p, struct x86_loop *around) {
    bool good = true;
    p->open[p->n_open++] = around;
    for (struct kir_val *v = around->l->body.first; v && good; v = v->next) {
        if (v->op != K_FOR) continue;
        if (has_loop(&v->loop->body)) {
            good = inner_good(p, x86_of(v)->loop);
            continue;
        }
        if (!v->loop->vectorize) {
            good = false;
            continue;
        }
        struct quality q = judge_loop(v->loop, p);
        good = !q.why && !q.apart;
    }
    p->n_open--;
    return good;
}
// Loads of a loop's body whose lanes are the turns of a loop around it; -1: some do not lie a
// constant distance apart, or are too small to be loaded one by one.
static int strided_loads(const struct kir_loop *l) {
    int n = 0;
    for (const struct kir_val *v = l->body.first; v; v = v->next) {
        const struct x86_val *at = v->op == K_LOAD || v->op == K_TABLE ? x86_of(v->args[0]) : NULL;
        if (!at || at->shape == SHAPE_SAME || at->stride == 1) continue;
        if (at->shape != SHAPE_STRIDE || dtype_size(v->elem) < 4 || x86_of(v)->tile) return -1;
        n++;
    }
    return n;
}
// Rows that are summed up, or reduced in another way: is it less work to have a row in each lane,
// its elements loaded one by one, than a row in a vector, whose lanes are then reduced? Hundredths
// of nanoseconds as measured on Zen 5 (maxima, sums and norms of rows of 9 to 20). Longer rows have
// several sums side by side, which also round less.
static bool rows_in_lanes(struct x86_plan *p, struct x86_loop *x) {
    enum { MOST = 32, ELEMENT = 12, ELEMENT_8 = 16, BOUND = 180, SUM = 60, VECTOR = 20, VALUE = 6 };
    int64_t by_rows = 0, by_lanes = 0;
    if (p->vex || !x->l->vectorize) return false;
    p->open[p->n_open++] = x;
    bool fit = true;
    for (struct kir_val *v = x->l->body.first; v && fit; v = v->next) {
        if (v->op != K_FOR) continue;
        struct kir_loop *l = v->loop;
        int64_t trip = x86_trip(l);
        fit = l->vectorize && l->n_carry && trip > 0 && trip <= MOST && !has_loop(&l->body);
        if (!fit) break;
        struct quality q = judge_loop(l, p);
        int64_t lanes = x86_lanes(p, q.wide);
        fit = !q.why && !q.apart;
        for (int c = 0; c < l->n_carry; c++)
            by_rows += l->yield[c]->op == K_MIN || l->yield[c]->op == K_MAX ? BOUND : SUM;
        by_rows += (trip + lanes - 1) / lanes * (VECTOR + VALUE * q.values);
    }
    p->n_open--;
    if (!fit) return false;

    struct quality q = judge_loop(x->l, p);
    int64_t lanes = x86_lanes(p, q.wide);
    if (q.why || q.gaps || x->l->n_carry || x86_trip(x->l) == 0 || x->l->trip < lanes) return false;
    for (const struct kir_val *v = x->l->body.first; v; v = v->next) {
        int n = v->op == K_FOR ? strided_loads(v->loop) : 0;
        if (n < 0 || (v->op == K_LOAD && x86_of(v->args[0])->shape == SHAPE_LANES)) return false;
        if (v->op == K_FOR)
            by_lanes +=
                v->loop->trip * ((q.wide ? ELEMENT_8 : ELEMENT) * n + VALUE * q.values / lanes);
    }
    return by_lanes < by_rows;
}
// Do the turns behind the last vector, which LLVM takes one by one, cost what it gains otherwise,
// up to half of a turn? Here they are one more vector.
static bool ends_apart(const struct kir_loop *l, int lanes) {
    int64_t vectors = l->trip / lanes, left = l->trip % lanes;
    return left && vectors + left > 2 * (vectors + 1);
}
// Does the loop l read operands, and if so, for sums alone?
static void note_reads(struct x86_plan *p, const struct kir_loop *l) {
    bool reads = false, sums = l->n_carry > 0;
    for (int c = 0; c < l->n_carry; c++)
        sums &= l->yield[c]->op == K_ADD;
    for (const struct kir_val *v = l->body.first; v; v = v->next)
        reads |= v->op == K_LOAD && v->imm_i >= 0;
    p->sums_alone |= reads && sums;
    p->reads_else |= reads && !sums;
}
// What of a loop that runs as a vector LLVM makes better code of.
static void note_quality(struct x86_plan *p, const struct kir_loop *l, const struct quality *q,
                         int lanes, bool inner) {
    int64_t few = p->vex || q->apart ? 4 * lanes : lanes;
    int values = q->values - (p->vex ? 0 : EACH_LOAD * q->loads);
    bool plain = !p->vex && !l->n_carry && !q->apart;
    if (!inner && !(p->f->rows && q->tiles) && l->trip * 2 <= few) p->is_short = true;
    bool brief = q->values <= BRIEF; // summing up the lanes is more work
    p->is_brief |= l->n_carry && brief && !inner && l->trip <= 2 * lanes;
    p->has_work |= !brief;
    p->is_apart |= q->apart > (!p->vex ? q->taken : q->gaps ? 0 : q->gathers);
    // With others, lanes are as many as those of 32 bits.
    p->is_narrow |= (q->short_ints && !q->narrow) || (q->truths && !q->others);
    // Much of a quantised body is conversions, which LLVM does not do better. LLVM computes what
    // few elements want for all.
    bool rare = 4 * x86_lazy_rare(p, &l->body) >= q->values;
    p->is_mixed |= q->wide && q->narrow && (p->vex || !rare);
    int most = x86_beside_may(p, l, lanes) ? X86_BESIDE_VALUES : plain ? LONG_PLAIN : LONG_VALUES;
    p->is_long |= !q->short_ints && !rare && values >= most && !ends_apart(l, lanes);
}
// Is what is being decided as good as never run (lower_tile.c: sums that are NaN)?
static bool is_rare(const struct x86_plan *p) {
    for (int d = 0; d < p->n_open; d++)
        if (p->open[d]->l->trip == 0) return true;
    return false;
}
static void decide(struct x86_plan *p, const struct kir_block *b) {
    for (struct kir_val *v = b->first; v; v = v->next) {
        if (v->op != K_FOR) continue;

        struct kir_loop *l = v->loop;
        struct x86_loop *x = x86_of(v)->loop;
        bool inner = has_loop(&l->body);
        const char *why = NULL;
        bool rows = inner && rows_in_lanes(p, x);
        if (l->vectorize && (rows || !(inner && inner_good(p, x)))) {
            struct quality q = judge_loop(l, p);
            why = q.why;
            if (rows) q.apart = 0;
            if (!why && !(inner && q.apart)) {
                x86_tile_take(p, &l->body);
                x->lanes = x86_lanes(p, q.wide);
                p->has_lanes = true;
                note_quality(p, l, &q, x->lanes, inner);
                if (!inner) note_reads(p, l);
                if (l->n_carry && !inner && l->trip >= x->lanes * MAX_COPIES)
                    x->copies = MAX_COPIES;
                continue;
            }
        }
        clear_loop(l);
        if (l->vectorize && !inner && l->trip >= SLOW_TRIP && !is_rare(p)) p->slow = why;
        p->is_short |= l->vectorize && !inner && l->trip > 1 && l->trip < SLOW_TRIP;
        p->open[p->n_open++] = x;
        decide(p, &l->body);
        p->n_open--;
    }
}

// ---- who wants the lanes of a value of class G, and what products become part of a sum

static void want(struct kir_val *v) {
    if (v->type != DT_PRED && x86_class(v) == CLASS_G) x86_of(v)->spread = true;
}
static void want_args(const struct kir_val *v, bool vector) {
    bool index = x86_is_index(v->type);
    switch (v->op) {
    case K_LOAD:
    case K_TABLE:
        return;
    case K_STORE:
        if (vector) want(v->args[1]);
        return;
    case K_CMP:
        if (x86_is_index(v->args[0]->type) && x86_of(v)->shape == SHAPE_SAME) return;
        break;
    default:
        if (index && x86_class(v) == CLASS_G && v->op != K_CAST && v->op != K_BITS) return;
        if (index && x86_class(v) == CLASS_G && x86_is_index(v->args[0]->type)) return;
    }
    for (int k = v->op == K_SELECT ? 1 : 0; k < v->n_args; k++)
        want(v->args[k]);
}
static void fuse_product(const struct kir_val *sum) {
    bool is_float = dtype_is_float(sum->type);
    if (sum->op != K_ADD || (sum->lanes ? is_float && !(sum->flags & KF_CONTRACT)
                                        : !is_float || !(sum->flags & KF_REASSOC)))
        return;
    for (int k = 1; k >= 0; k--) {
        const struct kir_val *m = sum->args[k];
        if (m->op != K_MUL || (is_float && !(m->flags & (KF_CONTRACT | KF_REASSOC))) ||
            m->block != sum->block || x86_of(m)->uses != 1 || x86_of(m)->power[0])
            continue;
        x86_of(m)->fused = true;
        return;
    }
}
// The larger or the smaller of two floats, written as a choice: what the processor's instruction
// gives of NaN and of zeros is the choice's. The comparison is not made.
static void fuse_bound(const struct kir_val *v) {
    const struct kir_val *c = v->args[0];
    if (v->op != K_SELECT || x86_of(v)->lazy || c->op != K_CMP || c->flags & KF_RARE ||
        c->block != v->block || x86_of(c)->uses != 1 ||
        (c->imm_i != CMP_GT && c->imm_i != CMP_LT) || (v->type != DT_F32 && v->type != DT_F64))
        return;
    const struct kir_val *a = c->args[0], *b = c->args[1], *yes = v->args[1], *no = v->args[2];
    if ((a == yes && b == no) || (a == no && b == yes)) x86_of(c)->fused = true;
}
// A rounding to the type in memory that a store alone reads: it rounds.
static void fuse_rounding(const struct kir_val *store) {
    const struct kir_val *v = store->args[1];
    if (store->op == K_STORE && v->op == K_QUANT && v->imm_i == (int64_t)store->elem &&
        v->block == store->block && x86_of(v)->uses == 1)
        x86_of(v)->fused = true;
}
static void forms(struct x86_plan *p, const struct kir_block *b, bool vector) {
    x86_lazy_find(p, b, vector);
    for (struct kir_val *v = b->first; v; v = v->next) {
        if (v->op != K_FOR) {
            want_args(v, vector);
            fuse_product(v);
            if (!p->vex) x86_power_find(v);
            fuse_bound(v);
            fuse_rounding(v);
            continue;
        }
        struct kir_loop *l = v->loop;
        bool lanes = x86_of(v)->loop->lanes != 0;
        for (int c = 0; c < l->n_carry; c++)
            if (x86_of(l->carry[c])->shape == SHAPE_LANES) {
                want(l->init[c]);
                want(l->yield[c]);
            }
        forms(p, &l->body, vector || lanes);
    }
}

// ---- values of which one lane is read: a root of one sum need not be taken in all lanes

static void all_lanes(struct kir_val *v) {
    x86_of(v)->one = false;
}
static bool costs_by_lanes(const struct kir_val *v) {
    return (v->op == K_DIV || v->op == K_SQRT) && dtype_is_float(v->type) &&
           x86_of(v)->shape == SHAPE_SAME;
}
static void one_lane(const struct kir_block *b, const struct kir_loop *around, struct arena *a) {
    VEC(struct kir_val *) all = {0};
    for (struct kir_val *v = b->first; v; v = v->next) {
        x86_of(v)->one = v->op != K_STORE && v->op != K_FOR && x86_class(v) != CLASS_G &&
                         x86_of(v)->shape == SHAPE_SAME && !v->lanes;
        for (int c = 0; v->op == K_FOR && c < v->loop->n_carry; c++) {
            const struct kir_val *r = v->loop->result[c];
            x86_of(r)->one = x86_class(r) == CLASS_V && !r->lanes;
        }
        avec_push(a, &all, v);
    }
    for (int c = 0; around && c < around->n_carry; c++)
        all_lanes(around->yield[c]);
    for (size_t n = all.n; n-- > 0;) { // readers first
        struct kir_val *v = all.v[n];
        if (v->op == K_FOR) {
            for (int c = 0; c < v->loop->n_carry; c++)
                all_lanes(v->loop->init[c]);
            one_lane(&v->loop->body, v->loop, a);
            continue;
        }
        bool stored = v->op == K_STORE && x86_of(v->args[0])->shape == SHAPE_SAME && !v->lanes;
        x86_of(v)->narrow = !x86_of(v)->one && costs_by_lanes(v);
        if (x86_of(v)->one || x86_of(v)->narrow || stored) continue;
        for (int k = 0; k < v->n_args; k++)
            all_lanes(v->args[k]);
    }
}

bool x86_choose(struct x86_plan *p) {
    int n = 0;
    attach(p, p->f->begin);
    attach(p, p->f->end);
    attach_block(p, &p->f->top, &n);
    p->values = n;
    if (p->why) return false;
    decide(p, &p->f->top);
    p->why = x86_slower(p);
    if (p->why) return false;
    forms(p, &p->f->top, false);
    if (p->sums) x86_sums_plan(p);
    if (p->why) return false;
    one_lane(&p->f->top, NULL, p->a);
    return true;
}
