// SPDX-License-Identifier: Apache-2.0
// Lowering of reductions and windows: each is a lower_reduce whose step asks the operands at one
// position and calls the reducer. Windows that all reach to one end (running sums) are a kernel of
// their own with one step an element.
#include "compiler/ir/work.h"
#include "compiler/kernel/lower.h"
#include "compiler/ops/lower/lower_rules.h"
#include "compiler/ops/rules.h"

// Is the computation one commutative operation of floats on its two parameters, or a sum of complex
// numbers? Then its order may change; of a product only where precision is not strict.
static bool plain_sum(const struct lower *lw, const struct hlo_computation *c) {
    enum hlo_op op;
    if (!hlo_reducer_op(c, &op)) return false;
    if (dtype_is_complex(c->root->shape->dtype)) return op == HLO_ADD;
    if (!dtype_is_float(c->root->shape->dtype)) return false;
    return op == HLO_ADD || (op == HLO_MULTIPLY && lw->prec != PRECISION_STRICT);
}
// Terms that are written out; of rows shorter than some vectors, of elements of 8 bytes; of complex
// numbers, whose products wait for both parts of the one before.
enum { SHORT = 8, SHORT_ROW = 64, SHORT_WIDE = 17, FEW = 32 };

static status_t combine(struct lower *lw, struct lower_reduce *f, struct kir_val *const *acc,
                        struct kir_val *const *x, struct kir_val **out) {
    const struct hlo_computation *c = f->i->called[0];
    struct kir_val *args[2 * LOWER_MAX_RESULTS];
    if (f->n == 1 && plain_sum(lw, c)) { // small floats accumulate in f32, rounded at the end
        enum kop op = hlo_root(c)->op == HLO_ADD ? K_ADD : K_MUL;
        bool complex = dtype_is_complex(f->type[0]); // no vectors of few, which begin with gathers
        uint8_t order = complex && f->total < FEW ? 0 : lower_reassoc(lw);
        struct kir *k = &lw->k;
        if (!complex) {
            *out = kir_flag(k, op, acc[0], x[0], order);
            return ST_OK;
        }
        *out = kir_complex(k, kir_flag(k, op, kir_re(k, acc[0]), kir_re(k, x[0]), order),
                           kir_flag(k, op, kir_im(k, acc[0]), kir_im(k, x[0]), order));
        return ST_OK;
    }
    if (f->numbers) {
        *out = kir_flag(&lw->k, hlo_root(c)->op == HLO_MAXIMUM ? K_MAX : K_MIN, acc[0], x[0],
                        KF_NUMBERS);
        return ST_OK;
    }
    memcpy(args, acc, sizeof *acc * (size_t)f->n);
    memcpy(args + f->n, x, sizeof *x * (size_t)f->n);
    return lower_call(lw, c, args, 2 * f->n, out);
}
static status_t init_values(struct lower *lw, struct lower_reduce *f, struct kir_val **acc) {
    for (int n = 0; n < f->n; n++)
        RETURN_IF_ERR(lower_operand(lw, f->i, f->n + n, NULL, &acc[n]));
    return ST_OK;
}
static void round_results(struct lower *lw, struct lower_reduce *f, struct kir_val **out) {
    for (int n = 0; n < f->n; n++)
        out[n] = kir_quant(&lw->k, f->type[n], out[n]);
}

struct reduce {
    int64_t dims[HLO_MAX_RANK]; // extents of the reduced dimensions, in the order they are walked
    int which[HLO_MAX_RANK], n;
    bool keys; // extremes of floats by integers in their order
};
// May the elements be taken in any order: one reducer of one commutative operation?
static bool any_order(const struct lower *lw, const struct hlo_instr *i) {
    enum hlo_op op;
    if (i->n_operands != 2 || !hlo_reducer_op(i->called[0], &op)) return false;
    if (plain_sum(lw, i->called[0])) return true;
    enum dtype t = i->called[0]->root->shape->dtype;
    bool same = op == HLO_MAXIMUM || op == HLO_MINIMUM || op == HLO_AND || op == HLO_OR ||
                op == HLO_XOR || (dtype_is_int(t) && (op == HLO_ADD || op == HLO_MULTIPLY));
    return same && !dtype_is_complex(t);
}
// Extremes of floats along short rows: a vector at most and then one after the other, where each
// step of floats waits for NaN and the zeros' signs. An integer in the order of the floats takes
// one instruction: NaN before all, -0 below 0. Loops that are one function are mostly LLVM's, whose
// steps of vectors wait too: rows of any length (of 64 and 1000, measured: 2.4 and 1.9 times as
// fast).
static bool by_keys(const struct lower *lw, const struct hlo_instr *i, const struct shape_phys *p) {
    const struct hlo_instr *r = hlo_root(i->called[0]);
    bool extreme = r->op == HLO_MAXIMUM || r->op == HLO_MINIMUM;
    bool wide = r->shape->dtype == DT_F64;
    int64_t row = 1, most = wide ? SHORT_WIDE : SHORT_ROW; // elements side by side
    if (wide && !(lw->target && lw->target->vector_bits == 512)) return false; // AVX2 has no such
    for (int d = p->rank - 1; d >= 0 && row < most; d--) {
        bool reduced = i64s_has(HLO_ATTR(i, dims)->dimensions, p->of[d]);
        if (!reduced && p->dims[d] > 1) break;
        row *= p->dims[d];
    }
    return extreme && any_order(lw, i) && dtype_is_float(r->shape->dtype) &&
           lw->policy->tiles == TILES_OF_CPU && !lw->elements && (row < most || lw->in_loop);
}
static bool finds_largest(const struct hlo_instr *i) {
    return hlo_root(i->called[0])->op == HLO_MAXIMUM;
}
static struct kir_val *of_key(struct kir *k, struct kir_val *key) { // the order is its own inverse
    enum dtype t = key->type == DT_S64 ? DT_F64 : DT_F32;
    return kir_bits(k, t, kmath_total_order(k, kir_bits(k, t, key)));
}
static struct kir_val *key_of(struct kir *k, struct kir_val *x, bool largest) {
    bool wide = x->type == DT_F64;
    int64_t most = wide ? INT64_MAX : INT32_MAX, least = wide ? INT64_MIN : INT32_MIN;
    struct kir_val *first = kir_int(k, wide ? DT_S64 : DT_S32, largest ? most : least);
    return kir_select(k, kir_cmp(k, CMP_NE, x, x), first, kmath_total_order(k, x));
}
static status_t init_key(struct lower *lw, struct lower_reduce *f, struct kir_val **acc) {
    RETURN_IF_ERR(init_values(lw, f, acc));
    acc[0] = key_of(&lw->k, acc[0], finds_largest(f->i));
    return ST_OK;
}
// The reduced dimensions, outermost first: as they lie in memory where the order is free, so that
// a reduction of channels last walks neighbours.
static void reduced_dims(const struct lower *lw, const struct hlo_instr *i, struct reduce *rd) {
    const struct shape *s = i->operands[0]->shape;
    struct shape_phys p;
    int order[HLO_MAX_RANK], n = 0;
    bool met[HLO_MAX_RANK] = {false};
    shape_physical(s, &p);
    for (int d = 0; d < (any_order(lw, i) ? p.rank : 0); d++)
        if (!met[p.of[d]]) met[order[n++] = p.of[d]] = true;
    for (int d = 0; d < s->rank; d++)
        if (!met[d]) order[n++] = d;
    for (int k = 0; k < n; k++) {
        if (!i64s_has(HLO_ATTR(i, dims)->dimensions, order[k])) continue;
        rd->which[rd->n] = order[k];
        rd->dims[rd->n++] = s->dims[order[k]];
    }
}
static status_t reduce_step(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                            struct kir_val *r, struct kir_val *const *acc, struct kir_val **out) {
    const struct reduce *rd = f->ctx;
    struct kir_val *at[HLO_MAX_RANK + 1] = {NULL}, *red[HLO_MAX_RANK + 1], *x[LOWER_MAX_RESULTS];
    int rank = f->i->operands[0]->shape->rank, o = 0;
    lower_unflatten(lw, r, rd->dims, rd->n, red);
    for (int q = 0; q < rd->n; q++)
        at[rd->which[q]] = red[q];
    for (int d = 0; d < rank; d++)
        if (!at[d]) at[d] = index[o++];
    for (int n = 0; n < f->n; n++)
        RETURN_IF_ERR(lower_operand(lw, f->i, n, at, &x[n]));
    if (!rd->keys) return combine(lw, f, acc, x, out);
    bool largest = finds_largest(f->i);
    *out = kir_op(&lw->k, largest ? K_MAX : K_MIN, acc[0], key_of(&lw->k, x[0], largest), NULL);
    return ST_OK;
}
static bool multiplies_complex(const struct hlo_instr *i) {
    enum hlo_op op;
    return i->n_operands == 2 && dtype_is_complex(i->operands[0]->shape->dtype) &&
           hlo_reducer_op(i->called[0], &op) && op == HLO_MULTIPLY;
}
LOWER(REDUCE) {
    const struct shape *s = i->operands[0]->shape;
    struct reduce rd = {.n = 0};
    enum dtype types[LOWER_MAX_RESULTS];
    struct lower_reduce f = {.i = i,
                             .n = i->n_operands / 2,
                             .type = types,
                             .total = 1,
                             .lines = true,
                             .ctx = &rd,
                             .init = init_values,
                             .step = reduce_step};
    struct shape_phys p;
    if (f.n > LOWER_MAX_RESULTS) return lower_no(lw, "too many results");
    for (int n = 0; n < f.n; n++)
        types[n] = i->operands[n]->shape->dtype;
    reduced_dims(lw, i, &rd);
    for (int n = 0; n < rd.n; n++)
        f.total *= rd.dims[n];

    shape_physical(s, &p);
    int innermost = lower_innermost(&p);
    bool row = lw->instr->op == HLO_FUSION &&
               HLO_ATTR(lw->instr, fusion)->kind == FUSION_CUSTOM, // used by all of its row
        minor = rd.n == 1 && p.rank > 0 && p.of[p.rank - 1] == rd.which[0];
    int64_t most = !row && multiplies_complex(i) ? FEW : SHORT;
    f.unroll = f.total <= most && !lw->rows && (!row || (minor && !lw->long_rows));
    lw->short_rows |= f.unroll && row && f.total > 1;
    f.column = lw->rows || (innermost >= 0 && !i64s_has(HLO_ATTR(i, dims)->dimensions, innermost));
    rd.keys = !f.column && !f.unroll && f.total > SHORT && by_keys(lw, i, &p);
    // Of rows alone: there what is broadcast goes back along the lines that it is of.
    f.numbers = row && !rd.keys && rule_sum_tells_nan(i);
    if (rd.keys) {
        types[0] = kir_type(types[0]) == DT_F64 ? DT_S64 : DT_S32;
        f.init = init_key;
    }

    RETURN_IF_ERR(lower_reduce(lw, &f, index, s->rank - rd.n, out));
    if (rd.keys)
        *out = of_key(&lw->k, *out);
    else
        round_results(lw, &f, out);
    return ST_OK;
}

// One position of a window: operand index, and whether it lies on a value.
static struct kir_val *window_at(struct lower *lw, const struct window_dim *w, int64_t size,
                                 struct kir_val *o, struct kir_val *pos, struct kir_val **at) {
    struct kir *k = &lw->k;
    struct kir_val *p =
        w->reversal ? kir_idx_add(k, kir_i64(k, w->size - 1), kir_idx_mul(k, pos, -1)) : pos;
    struct kir_val *x =
        kir_idx_add(k, kir_idx_mul(k, o, w->stride), kir_idx_mul(k, p, w->window_dilation));
    int64_t last = (size - 1) * w->base_dilation;
    x = kir_idx_add(k, x, kir_i64(k, -w->pad_low));
    struct kir_val *ok = kir_op(k, K_AND, kir_cmp(k, CMP_GE, x, kir_i64(k, 0)),
                                kir_cmp(k, CMP_LE, x, kir_i64(k, last)), NULL);
    x = kir_idx_clamp(k, x, 0, last);
    if (w->base_dilation > 1) {
        ok = kir_op(k, K_AND, ok,
                    kir_cmp(k, CMP_EQ, kir_idx_divmod(k, x, 1, w->base_dilation), kir_i64(k, 0)),
                    NULL);
        x = kir_idx_divmod(k, x, w->base_dilation, 0);
    }
    *at = x;
    return ok;
}
static status_t window_step(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                            struct kir_val *r, struct kir_val *const *acc, struct kir_val **out) {
    const struct hlo_instr *i = f->i;
    struct window w = HLO_ATTR(i, window)->window;
    struct kir *k = &lw->k;
    int64_t dims[HLO_MAX_RANK];
    struct kir_val *at[HLO_MAX_RANK + 1], *pos[HLO_MAX_RANK + 1], *x[LOWER_MAX_RESULTS],
        *ok = kir_int(k, DT_PRED, 1);
    for (int d = 0; d < w.n; d++)
        dims[d] = w.v[d].size;
    lower_unflatten(lw, r, dims, w.n, pos);
    for (int d = 0; d < w.n; d++)
        ok = kir_op(
            k, K_AND, ok,
            window_at(lw, &w.v[d], i->operands[0]->shape->dims[d], index[d], pos[d], &at[d]), NULL);
    for (int n = 0; n < f->n; n++)
        RETURN_IF_ERR(lower_operand(lw, i, n, at, &x[n]));
    RETURN_IF_ERR(combine(lw, f, acc, x, out));
    for (int n = 0; n < f->n; n++)
        out[n] = kir_select(k, ok, out[n], acc[n]);
    return ST_OK;
}
LOWER(REDUCE_WINDOW) {
    struct window w = HLO_ATTR(i, window)->window;
    enum dtype types[LOWER_MAX_RESULTS];
    struct lower_reduce f = {.i = i,
                             .n = i->n_operands / 2,
                             .type = types,
                             .total = 1,
                             .init = init_values,
                             .step = window_step};
    if (f.n > LOWER_MAX_RESULTS) return lower_no(lw, "too many results");
    if (w.n != i->operands[0]->shape->rank || shape_elements(i->operands[0]->shape) == 0)
        return lower_no(lw, "a window without values");
    for (int n = 0; n < f.n; n++)
        types[n] = i->operands[n]->shape->dtype;
    for (int d = 0; d < w.n; d++)
        f.total *= w.v[d].size;
    f.unroll = f.total <= 32;
    f.column = true;
    RETURN_IF_ERR(lower_reduce(lw, &f, index, w.n, out));
    round_results(lw, &f, out);
    return ST_OK;
}

// ---- running windows: one pass along the dimension. Along the last one the running values are
// carried from element to element; along others a unit walks a block of neighbours together, whose
// running values lie in scratch. Sums and products of f32 run in f64: n of them in order would lose
// more than windows that are added as trees.

enum { BLOCK = 512 };
struct running {
    const struct hlo_instr *i;
    int n;
    struct running_window w;
    bool wide;
    enum dtype type[LOWER_MAX_RESULTS]; // of the running values
    int64_t at[LOWER_MAX_RESULTS];      // in scratch
};

static struct kir_val *running_at(struct lower *lw, const struct running *r, int o,
                                  struct kir_val *j) {
    int64_t size = dtype_size(dtype_is_complex(r->type[o]) ? r->type[o] : kir_type(r->type[o]));
    return kir_idx_add(&lw->k, j, kir_i64(&lw->k, r->at[o] / size));
}
static struct kir_val *load_running(struct lower *lw, const struct running *r, int o,
                                    struct kir_val *j) {
    enum dtype t = dtype_is_complex(r->type[o]) ? r->type[o] : kir_type(r->type[o]);
    return kir_load(&lw->k, KIR_SCRATCH, t, running_at(lw, r, o, j), KF_PINNED);
}
static void store_running(struct lower *lw, const struct running *r, int o, struct kir_val *j,
                          struct kir_val *v) {
    enum dtype t = dtype_is_complex(r->type[o]) ? r->type[o] : kir_type(r->type[o]);
    kir_store(&lw->k, KIR_SCRATCH, t, running_at(lw, r, o, j), v);
}
static status_t running_init(struct lower *lw, const struct running *r, struct kir_val **acc) {
    for (int o = 0; o < r->n; o++) {
        RETURN_IF_ERR(lower_operand(lw, r->i, r->n + o, NULL, &acc[o]));
        if (r->wide) acc[o] = kir_cast(&lw->k, DT_F64, acc[o]);
    }
    return ST_OK;
}
// Takes in the element at `index` and writes what the values are now (exclusive: were before).
static status_t running_step(struct lower *lw, const struct running *r, struct kir_val **index,
                             struct kir_val *const *acc, struct kir_val **out) {
    struct kir_val *args[2 * LOWER_MAX_RESULTS];
    struct kir *k = &lw->k;
    const struct hlo_computation *f = r->i->called[0];
    for (int o = 0; o < r->n; o++) {
        args[o] = acc[o];
        RETURN_IF_ERR(lower_operand(lw, r->i, o, index, &args[r->n + o]));
    }
    if (r->wide) {
        enum kop op = hlo_root(f)->op == HLO_ADD ? K_ADD : K_MUL;
        out[0] = kir_op(k, op, acc[0], kir_cast(k, DT_F64, args[1]), NULL);
        lower_put(lw, r->i, 0, index, kir_cast(k, DT_F32, (r->w.exclusive ? acc : out)[0]));
        return ST_OK;
    }
    RETURN_IF_ERR(lower_call(lw, f, args, 2 * r->n, out));
    for (int o = 0; o < r->n; o++) {
        out[o] = kir_quant(k, r->type[o], out[o]);
        lower_put(lw, r->i, o, index, r->w.exclusive ? acc[o] : out[o]);
    }
    return ST_OK;
}
static struct kir_val *running_position(struct lower *lw, const struct running *r, int64_t n,
                                        struct kir_val *t) {
    return r->w.back ? kir_idx_add(&lw->k, kir_i64(&lw->k, n - 1), kir_idx_mul(&lw->k, t, -1)) : t;
}
// One line, element after element.
static status_t running_line(struct lower *lw, const struct running *r, struct kir_val **index) {
    struct kir *k = &lw->k;
    int64_t n = r->i->operands[0]->shape->dims[r->w.dim];
    struct kir_val *acc[LOWER_MAX_RESULTS], *next[LOWER_MAX_RESULTS];
    RETURN_IF_ERR(running_init(lw, r, acc));
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, n), n, acc, r->n);
    index[r->w.dim] = running_position(lw, r, n, l->var);
    RETURN_IF_ERR(running_step(lw, r, index, l->carry, next));
    kir_end(k, l, next);
    return ST_OK;
}
static bool has_dear(const struct hlo_computation *c) {
    HLO_EACH_INSTR(i, c) if (hlo_is_dear(i)) return true;
    return false;
}
// A few lines whose elements are neighbours: all in one loop, each one's running value carried,
// where a block would wait for its scratch at each step.
enum { FEW_LINES = 8, FEW_LINES_512 = 16 };
static bool runs_together(const struct lower *lw, const struct running *r, int64_t inner) {
    bool wide = lw->target && lw->target->vector_bits == 512;
    return inner > 1 && r->n == 1 && inner <= (wide ? FEW_LINES_512 : FEW_LINES) &&
           lw->policy->tiles == TILES_OF_CPU && !lw->elements && !has_dear(r->i->called[0]);
}
static status_t running_lines(struct lower *lw, const struct running *r, struct kir_val **index,
                              int64_t inner) {
    struct kir *k = &lw->k;
    const struct shape *s = r->i->operands[0]->shape;
    int64_t n = s->dims[r->w.dim];
    struct kir_val *acc[FEW_LINES_512], *next[FEW_LINES_512], *first;
    RETURN_IF_ERR(running_init(lw, r, &first));
    for (int64_t e = 0; e < inner; e++)
        acc[e] = first;

    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, n), n, acc, (int)inner);
    index[r->w.dim] = running_position(lw, r, n, l->var);
    for (int64_t e = 0; e < inner; e++) {
        lower_unflatten(lw, kir_i64(k, e), s->dims + r->w.dim + 1, s->rank - r->w.dim - 1,
                        index + r->w.dim + 1);
        RETURN_IF_ERR(running_step(lw, r, index, &l->carry[e], &next[e]));
    }
    kir_end(k, l, next);
    return ST_OK;
}
// ---- lines side by side in vectors: short ones, and those whose steps are dear

// Of what lines of n elements repay it, measured on Zen 5, AVX-512, rows of 5 to 50: up to 8
// elements lie in as many vectors of a line's length, longer ones of 4 bytes are gathered. Steps
// are written out: of 1000 operations LLVM makes code in 0.2 s.
static bool runs_beside(const struct lower *lw, const struct running *r, int64_t lines) {
    enum { LEAST = 64, SOME = 8, SOME_WIDE = 7, MANY = 64, MOST_STEPS = 256 };
    const struct shape *s = r->i->operands[0]->shape;
    int64_t n = s->dims[r->w.dim];
    int size = dtype_size(s->dtype);
    if (lines < LEAST || n < 2 || lw->policy->tiles != TILES_OF_CPU || lw->elements) return false;
    if (r->n == 1 && has_dear(r->i->called[0])) return true;
    if (n * (r->i->called[0]->n_instrs - 2 * r->n) > MOST_STEPS) return false;
    if (dtype_is_int(s->dtype) && dtype_bits(s->dtype) >= 8 && size <= 2) return n <= MANY;
    return n <= (size == 8 ? SOME_WIDE : SOME) && r->n == 1;
}
static status_t all_steps(struct lower *lw, const struct running *r, struct kir_val **index,
                          struct kir_val **acc) {
    struct kir_val *next[LOWER_MAX_RESULTS];
    int64_t n = r->i->operands[0]->shape->dims[r->w.dim];
    for (int64_t t = 0; t < n; t++) {
        index[r->w.dim] = running_position(lw, r, n, kir_i64(&lw->k, t));
        RETURN_IF_ERR(running_step(lw, r, index, acc, next));
        memcpy(acc, next, sizeof next);
    }
    return ST_OK;
}
// A loop over lines from `begin` on, whose running values lie in scratch between the steps.
static status_t each_step(struct lower *lw, const struct running *r, struct kir_val **index,
                          struct kir_val *begin, struct kir_val *end, int64_t most) {
    struct kir *k = &lw->k;
    const struct shape *s = r->i->operands[0]->shape;
    struct kir_val *acc[LOWER_MAX_RESULTS], *next[LOWER_MAX_RESULTS], *j;
    struct kir_val *minus = kir_idx_mul(k, begin, -1);
    int64_t n = s->dims[r->w.dim];
    struct kir_loop *l = kir_for(k, begin, end, most, NULL, 0);
    l->vectorize = true;
    RETURN_IF_ERR(running_init(lw, r, acc));
    store_running(lw, r, 0, kir_idx_add(k, l->var, minus), acc[0]);
    kir_end(k, l, NULL);

    struct kir_loop *t = kir_for(k, kir_i64(k, 0), kir_i64(k, n), n, NULL, 0);
    l = kir_for(k, begin, end, most, NULL, 0);
    l->vectorize = true;
    j = kir_idx_add(k, l->var, minus);
    lower_unflatten(lw, l->var, s->dims, r->w.dim, index);
    index[r->w.dim] = running_position(lw, r, n, t->var);
    acc[0] = load_running(lw, r, 0, j);
    RETURN_IF_ERR(running_step(lw, r, index, acc, next));
    store_running(lw, r, 0, j, next[0]);
    kir_end(k, l, NULL);
    kir_end(k, t, NULL);
    return ST_OK;
}
static status_t running_beside(struct lower *lw, struct running *r, int64_t lines) {
    enum { LINES = 256, DEAR_LINES = 64, WRITTEN_OUT = 8 };
    struct kir *k = &lw->k;
    const struct shape *s = r->i->operands[0]->shape;
    bool dear = has_dear(r->i->called[0]), out = !dear || s->dims[r->w.dim] <= WRITTEN_OUT;
    int64_t each = dear ? DEAR_LINES : LINES, units = ceil_div(lines, each);
    struct kir_val *index[HLO_MAX_RANK + 1], *acc[LOWER_MAX_RESULTS];
    if (!out) r->at[0] = lower_scratch(lw, r->type[0], each);
    k->fn->extent = units;
    struct kir_loop *u = kir_for(k, k->fn->begin, k->fn->end, units, NULL, 0);
    struct kir_val *begin = kir_idx_mul(k, u->var, each),
                   *end = kir_op(k, K_MIN, kir_idx_add(k, begin, kir_i64(k, each)),
                                 kir_i64(k, lines), NULL);
    for (int d = r->w.dim + 1; d < s->rank; d++)
        index[d] = kir_i64(k, 0);
    if (!out) {
        RETURN_IF_ERR(each_step(lw, r, index, begin, end, each));
    } else {
        struct kir_loop *l = kir_for(k, begin, end, each, NULL, 0);
        l->vectorize = true;
        lower_unflatten(lw, l->var, s->dims, r->w.dim, index);
        RETURN_IF_ERR(running_init(lw, r, acc));
        RETURN_IF_ERR(all_steps(lw, r, index, acc));
        kir_end(k, l, NULL);
    }
    kir_end(k, u, NULL);
    return ST_OK;
}
// A block of lines whose elements are neighbours: `inner` dims behind the running one.
static status_t running_block(struct lower *lw, const struct running *r, struct kir_val **index,
                              const int64_t *dims, int inner, struct kir_val *begin,
                              struct kir_val *end, int64_t most) {
    struct kir *k = &lw->k;
    int64_t n = r->i->operands[0]->shape->dims[r->w.dim];
    struct kir_val *acc[LOWER_MAX_RESULTS], *next[LOWER_MAX_RESULTS];
    struct kir_val *minus = kir_idx_mul(k, begin, -1);
    struct kir_loop *l = kir_for(k, begin, end, most, NULL, 0);
    RETURN_IF_ERR(running_init(lw, r, acc));
    for (int o = 0; o < r->n; o++)
        store_running(lw, r, o, kir_idx_add(k, l->var, minus), acc[o]);
    kir_end(k, l, NULL);
    struct kir_loop *t = kir_for(k, kir_i64(k, 0), kir_i64(k, n), n, NULL, 0);
    l = kir_for(k, begin, end, most, NULL, 0);
    l->vectorize = true;
    struct kir_val *j = kir_idx_add(k, l->var, minus);
    index[r->w.dim] = running_position(lw, r, n, t->var);
    lower_unflatten(lw, l->var, dims, inner, index + r->w.dim + 1);
    for (int o = 0; o < r->n; o++)
        acc[o] = load_running(lw, r, o, j);
    RETURN_IF_ERR(running_step(lw, r, index, acc, next));
    for (int o = 0; o < r->n; o++)
        store_running(lw, r, o, j, next[o]);
    kir_end(k, l, NULL);
    kir_end(k, t, NULL);
    return ST_OK;
}
WHOLE(REDUCE_WINDOW) {
    struct running r = {.i = i, .n = i->n_operands / 2};
    const struct shape *s = i->operands[0]->shape;
    struct kir *k = &lw->k;
    struct kir_val *index[HLO_MAX_RANK + 1];
    int64_t outer = 1, inner = 1, blocks;
    bool parts = false;

    if (r.n > LOWER_MAX_RESULTS || !rule_running_window(i, &r.w))
        return lower_no(lw, "a window of another kind");
    r.wide = r.n == 1 && s->dtype == DT_F32 && plain_sum(lw, i->called[0]);
    for (int d = 0; d < s->rank; d++)
        if (d != r.w.dim) *(d < r.w.dim ? &outer : &inner) *= s->dims[d];
    for (int o = 0; o < r.n; o++) {
        r.type[o] = r.wide ? DT_F64 : i->operands[o]->shape->dtype;
        parts |= dtype_is_complex(r.type[o]);
    }

    bool line = inner == 1 && !parts;
    if (line && runs_beside(lw, &r, outer)) return running_beside(lw, &r, outer);
    bool together = !parts && runs_together(lw, &r, inner);
    int64_t most = inner < BLOCK ? inner : BLOCK;
    blocks = (inner + BLOCK - 1) / BLOCK;
    for (int o = 0; !line && !together && o < r.n; o++)
        r.at[o] = lower_scratch(lw, r.type[o], most);

    int64_t units = k->fn->extent = shape_elements(s) ? outer * blocks : 0;
    struct kir_loop *u = kir_for(k, k->fn->begin, k->fn->end, units, NULL, 0);
    if (units) {
        lower_unflatten(lw, kir_idx_divmod(k, u->var, blocks, 0), s->dims, r.w.dim, index);
        struct kir_val *begin = kir_idx_mul(k, kir_idx_divmod(k, u->var, 1, blocks), BLOCK);
        struct kir_val *end =
            kir_op(k, K_MIN, kir_idx_add(k, begin, kir_i64(k, BLOCK)), kir_i64(k, inner), NULL);
        for (int d = r.w.dim + 1; d < s->rank; d++)
            index[d] = kir_i64(k, 0);
        RETURN_IF_ERR(line       ? running_line(lw, &r, index)
                      : together ? running_lines(lw, &r, index, inner)
                                 : running_block(lw, &r, index, s->dims + r.w.dim + 1,
                                                 s->rank - r.w.dim - 1, begin, end, most));
    }

    kir_end(k, u, NULL);
    return ST_OK;
}
